/* Figures: the data's colours are where the data are, text stays within its room whatever it says, and a file is whole
 * or absent. */
#include "tests/model/claims.h"
#include "tools/report/pictures.h"
#include <math.h>

static char directory[] = "/tmp/ups-pictures-XXXXXX";
static char path[64];

static int make_directory(void **state) {
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof(path), "%s/picture.png", directory);
    return 0;
}

static int remove_directory(void **state) {
    unlink(path);
    return rmdir(directory); /* fails when something half-written was left behind */
}

static bool same(ups_colour a, ups_colour b) {
    return a.red == b.red && a.green == b.green && a.blue == b.blue;
}

static ups_colour pixel(cairo_surface_t *image, int x, int y) {
    cairo_surface_flush(image);
    assert_in_range(x, 0, cairo_image_surface_get_width(image) - 1);
    assert_in_range(y, 0, cairo_image_surface_get_height(image) - 1);
    uint32_t value;
    memcpy(&value, cairo_image_surface_get_data(image) + y * cairo_image_surface_get_stride(image) + 4 * x, 4);
    return (ups_colour){(uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
}

/* At a point of a figure that is still drawn on. */
static ups_colour at(const ups_figure *figure, double x, double y) {
    return pixel(cairo_get_target(figure->cairo), (int)(UPS_FIGURE_DENSITY * x), (int)(UPS_FIGURE_DENSITY * y));
}

static bool is_white(const ups_figure *figure, double x, double y) {
    return same(at(figure, x, y), (ups_colour){255, 255, 255});
}

static void begin(ups_figure *figure, double width, double height) {
    ups_figure_begin(figure, UPS_FIGURE_PNG, width, height);
}

static void end(ups_figure *figure) {
    ups_error error;
    assert_int_equal(ups_figure_publish(figure, path, &error), UPS_OK);
}

/* The file at `path`; cairo_surface_destroy(). */
static cairo_surface_t *read_png(void) {
    cairo_surface_t *image = cairo_image_surface_create_from_png(path);
    assert_int_equal(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    return image;
}

static ups_colour sequential(double share) {
    return ups_colour_of(UPS_COLOURS_SEQUENTIAL, (float)share);
}

CLAIM(a_published_figure_reads_back_pixel_by_pixel) {
    ups_figure figure;
    begin(&figure, 40, 30);
    ups_figure_colour(&figure, (ups_colour){10, 200, 30});
    cairo_rectangle(figure.cairo, 7, 3, 1, 1);
    cairo_fill(figure.cairo);
    end(&figure);
    cairo_surface_t *image = read_png();
    assert_int_equal(cairo_image_surface_get_width(image), UPS_FIGURE_DENSITY * 40);
    assert_int_equal(cairo_image_surface_get_height(image), UPS_FIGURE_DENSITY * 30);
    for (int i = 0; i < UPS_FIGURE_DENSITY * UPS_FIGURE_DENSITY; i++) {
        const int x = UPS_FIGURE_DENSITY * 7 + i % UPS_FIGURE_DENSITY,
                  y = UPS_FIGURE_DENSITY * 3 + i / UPS_FIGURE_DENSITY;
        assert_true(same(pixel(image, x, y), (ups_colour){10, 200, 30}));
    }
    assert_true(same(pixel(image, 0, 0), (ups_colour){255, 255, 255}));
    cairo_surface_destroy(image);
}

CLAIM(a_field_has_row_0_at_the_bottom_and_on_top_where_the_axis_is_turned) {
    const float values[6] = {0, 1, 2, 4, 6, 8}; /* two rows of three */
    const ups_field field = {.values = values, .rows = 2, .columns = 3, .row_stride = 3, .column_stride = 1};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    for (int downward = 0; downward < 2; downward++) {
        ups_figure figure;
        begin(&figure, 300, 200);
        const ups_plot plot = {.area = {60, 20, 90, 60},
                               .x = {.low = 0, .high = 3},
                               .y = {.low = downward ? 2 : 0, .high = downward ? 0 : 2}};
        ups_plot_field(&figure, &plot, &field, &scale);
        for (int i = 0; i < 6; i++) {
            const int row = downward ? i / 3 : 1 - i / 3;
            const double left = 60 + 30 * (i % 3), top = 20 + 30 * row;
            for (int corner = 0; corner < 4; corner++) { /* to its very edges */
                const ups_colour found = at(&figure, left + (corner & 1 ? 29.5 : 0), top + (corner & 2 ? 29.5 : 0));
                assert_true(same(found, sequential(values[i] / 8)));
            }
        }
        end(&figure);
    }
}

CLAIM(a_field_follows_strides_and_what_is_subtracted) {
    float values[12], minus[12]; /* (row, column, channel): channel 1 of three */
    for (int i = 0; i < 12; i++) {
        values[i] = i % 3 == 1 ? (float)(i / 3 + 10) : 99.0f;
        minus[i] = i % 3 == 1 ? (float)(10 - i / 3 % 2) : -99.0f; /* differences 0, 2, 2, 4 */
    }
    const ups_field field = {values + 1, minus + 1, 2, 2, 6, 3, 0};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    assert_true(scale.low == 0 && scale.high == 4 && !scale.missing);
    ups_figure figure;
    begin(&figure, 200, 200);
    const ups_plot plot = {.area = {60, 20, 80, 80}, .x = {.low = 0, .high = 2}, .y = {.low = 2, .high = 0}};
    ups_plot_field(&figure, &plot, &field, &scale);
    const double expected[4] = {0, 0.5, 0.5, 1};
    for (int i = 0; i < 4; i++) {
        assert_true(same(at(&figure, 80 + 40 * (i % 2), 40 + 40 * (i / 2)), sequential(expected[i])));
    }
    end(&figure);
}

CLAIM(values_finer_than_pixels_are_averaged) {
    enum { N = 64 * UPS_FIGURE_DENSITY };
    float *values = malloc(sizeof(float) * N * N);
    assert_non_null(values);
    for (int i = 0; i < N * N; i++)
        values[i] = 0.5f * (float)(i / N % 2 + i % N % 2); /* stripes along both axes: the mean is 1/2 everywhere */
    const ups_field field = {.values = values, .rows = N, .columns = N, .row_stride = N, .column_stride = 1};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    ups_figure figure;
    begin(&figure, 150, 150);
    const ups_plot plot = {.area = {80, 20, 32, 32}, .x = {.low = 0, .high = 1}, .y = {.low = 0, .high = 1}};
    ups_plot_field(&figure, &plot, &field, &scale);
    for (int i = 0; i < 64 * 64; i++) {
        assert_true(same(at(&figure, 80 + i % 64 / 2.0, 20 + i / 64 / 2.0), sequential(0.5)));
    }
    end(&figure);
    free(values);
}

CLAIM(missing_values_are_grey_and_do_not_spoil_the_scale) {
    const float values[4] = {0, NAN, INFINITY, 1};
    const ups_field field = {.values = values, .rows = 1, .columns = 4, .row_stride = 4, .column_stride = 1};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    assert_true(scale.low == 0 && scale.high == 1 && scale.missing);
    ups_figure figure;
    begin(&figure, 240, 200);
    const ups_plot plot = {.area = {60, 20, 80, 80}, .x = {.low = 0, .high = 4}, .y = {.low = 0, .high = 1}};
    ups_plot_field(&figure, &plot, &field, &scale);
    ups_plot_colour_bar(&figure, &plot, &scale);
    const ups_colour grey = sequential(NAN);
    assert_true(same(at(&figure, 70, 60), sequential(0)));
    assert_true(same(at(&figure, 90, 60), grey));
    assert_true(same(at(&figure, 110, 60), grey));
    assert_true(same(at(&figure, 130, 60), sequential(1)));
    assert_true(same(at(&figure, 140 + UPS_PLOT_BAR_GAP + 6, 94), grey)); /* what grey means is beside the scale */
    end(&figure);
}

CLAIM(uneven_cells_are_as_wide_as_they_are_whichever_way_they_go) {
    const float values[3] = {0, 0.5f, 1};
    const double centres[3] = {6, 2, 0}, back[3] = {0, 2, 1};
    double *edges = ups_axis_edges(centres, 3);
    assert_true(edges[0] == 8 && edges[1] == 4 && edges[2] == 1 && edges[3] == -1);
    assert_null(ups_axis_edges(back, 3));
    assert_null(ups_axis_edges(centres, 1));
    const ups_field row = {.values = values, .rows = 1, .columns = 3, .column_stride = 1};
    const ups_field column = {.values = values, .rows = 3, .columns = 1, .row_stride = 1, .known = 2};
    const ups_colour_scale scale = {.map = UPS_COLOURS_SEQUENTIAL, .low = 0, .high = 1};
    ups_figure figure;
    begin(&figure, 150, 150);
    ups_plot plot = {.area = {20, 20, 90, 10}, .x = {.low = 8, .high = -1, .edges = edges}, .y = {.low = 0, .high = 1}};
    ups_plot_field(&figure, &plot, &row, &scale);
    for (int i = 0; i < 90; i++)
        assert_true(same(at(&figure, 20.5 + i, 25), sequential(i < 40 ? 0 : i < 70 ? 0.5f : 1)));
    plot =
        (ups_plot){.area = {20, 40, 10, 90}, .x = {.low = 0, .high = 1}, .y = {.low = -1, .high = 8, .edges = edges}};
    ups_plot_field(&figure, &plot, &column, &scale);
    const ups_colour white = {255, 255, 255};
    for (int i = 0; i < 90; i++)
        assert_true(same(at(&figure, 25, 40.5 + i), i < 40 ? sequential(0) : i < 70 ? sequential(0.5f) : white));
    end(&figure);
    free(edges);
}

CLAIM(numbers_that_differ_behind_many_digits_stand_without_what_they_have_in_common) {
    enum { BEHIND = 20 + 40 + UPS_PLOT_BAR_GAP + UPS_PLOT_BAR };
    ups_figure figures[2];
    const ups_plot plot = {.area = {20, 40, 40, 100}, .x = {.low = 0, .high = 1}, .y = {.low = 0, .high = 1}};
    for (int f = 0; f < 2; f++) {
        const double offset = f ? 101320 : 0;
        const ups_colour_scale scale = {.map = UPS_COLOURS_SEQUENTIAL, .low = offset, .high = offset + 10};
        begin(&figures[f], BEHIND + UPS_PLOT_BAR_LABELS + 20, 160);
        ups_plot_colour_bar(&figures[f], &plot, &scale);
    }
    int above = 0;
    for (int y = 0; y < 160; y++) {
        for (int x = 0; x < BEHIND + UPS_PLOT_BAR_LABELS + 20; x++) {
            const bool alike = same(at(&figures[0], x, y), at(&figures[1], x, y));
            if (y > 34) assert_true(alike);
            above += !alike;
        }
    }
    assert_true(above > 0);
    end(&figures[0]);
    end(&figures[1]);
}

CLAIM(a_scale_of_nothing_finite_or_of_one_value_can_be_divided_by) {
    const float nothing[2] = {NAN, INFINITY}, one[2] = {3, 3}, errors[2] = {-1, 3};
    ups_field field = {.values = nothing, .rows = 1, .columns = 2, .column_stride = 1};
    ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    assert_true(scale.low == 0 && scale.high == 1 && scale.missing);
    field.values = one;
    scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    assert_true(scale.low < 3 && scale.high > 3);
    field.values = errors;
    scale = ups_colour_scale_of(UPS_COLOURS_DIVERGING, &field, 1);
    assert_true(scale.low == -3 && scale.high == 3);
}

static double lightness(ups_colour c) {
    return 0.2126 * pow(c.red / 255.0, 2.2) + 0.7152 * pow(c.green / 255.0, 2.2) + 0.0722 * pow(c.blue / 255.0, 2.2);
}

CLAIM(the_sequential_map_grows_lighter_and_the_diverging_one_darkens_both_ways) {
    for (int i = 1; i <= 100; i++) {
        const float before = (float)(i - 1) / 100, now = (float)i / 100;
        assert_true(lightness(ups_colour_of(UPS_COLOURS_SEQUENTIAL, now)) >
                    lightness(ups_colour_of(UPS_COLOURS_SEQUENTIAL, before)) - 1e-3);
        const double step = lightness(ups_colour_of(UPS_COLOURS_DIVERGING, now)) -
                            lightness(ups_colour_of(UPS_COLOURS_DIVERGING, before));
        assert_true(i <= 50 ? step > -1e-3 : step < 1e-3);
    }
    assert_true(lightness(ups_colour_of(UPS_COLOURS_DIVERGING, 0.5f)) > 0.9);
}

CLAIM(ticks_are_round_numbers_inside_the_axis) {
    double ticks[UPS_PLOT_TICKS];
    int count = ups_plot_ticks(&(ups_axis){.low = -0.13, .high = 1.07}, 5, ticks);
    const double expected[] = {0, 0.5, 1.0};
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) assert_true(fabs(ticks[i] - expected[i]) < 1e-12);
    assert_int_equal(ups_plot_ticks(&(ups_axis){.low = 1.07, .high = -0.13}, 5, ticks), 3); /* turned */
    count = ups_plot_ticks(&(ups_axis){.low = 3e-4, .high = 2, .logarithmic = true}, 6, ticks);
    assert_int_equal(count, 4); /* 1e-3, 1e-2, 1e-1, 1 */
    assert_true(fabs(ticks[0] - 1e-3) < 1e-12 && fabs(ticks[3] - 1) < 1e-12);
    count = ups_plot_ticks(&(ups_axis){.low = -0.5, .high = 1.5, .whole = true}, 7, ticks);
    assert_true(count == 2 && ticks[0] == 0 && ticks[1] == 1);
    assert_int_equal(ups_plot_ticks(&(ups_axis){.low = 1, .high = 1}, 5, ticks), 0);
    assert_int_equal(ups_plot_ticks(&(ups_axis){.low = 0, .high = NAN}, 5, ticks), 0);
}

CLAIM(a_line_goes_through_its_points_and_leaves_a_gap_at_nan) {
    const double x[6] = {0, 1, 2, 3, 4, 5};
    const float y[6] = {0, 0, NAN, 0, 0, 0};
    const ups_plot plot = {
        .area = {80, 40, 200, 100}, .x = {.low = 0, .high = 5}, .y = {.low = -1, .high = 1}, .title = "title"};
    ups_figure figure;
    begin(&figure, 400, 300);
    ups_plot_axes(&figure, &plot);
    cairo_set_line_width(figure.cairo, 4);
    ups_figure_colour(&figure, ups_colour_line(0));
    ups_plot_line(&figure, &plot, x, y, 6, 1);
    assert_true(same(at(&figure, 100, 90), ups_colour_line(0)));
    assert_true(same(at(&figure, 240, 90), ups_colour_line(0)));
    assert_true(is_white(&figure, 150, 90));
    assert_true(is_white(&figure, 130, 65)); /* it does not begin at the title */
    end(&figure);
}

CLAIM(text_of_any_bytes_is_drawn_within_its_room) {
    static const char *const texts[] = {"plain", "\xc3\xa9\xe2\x82\xac \xf0\x9f\x8c\x8a and on and on and on",
                                        "\xff\xfe\xc0", "\033[2J\r\n", "<&>\"'"};
    const ups_text_style style = {.size = 12, .room = 60};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ups_figure figure;
        begin(&figure, 200, 40);
        const double width = ups_figure_text(&figure, 20, 25, texts[i], &style);
        assert_true(width > 5 && width <= 60);
        int ink = 0;
        for (int k = 0; k < 200 * 40; k++) {
            if (is_white(&figure, k % 200, k / 200)) continue;
            ink++;
            assert_in_range(k % 200, 17, 83);
        }
        assert_true(ink > 10);
        end(&figure);
    }
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    ups_figure figure;
    begin(&figure, 20, 20);
    assert_true(ups_figure_text(&figure, 0, 0, long_text, &style) <= 60);
    end(&figure);
}

CLAIM(a_comparison_shows_prediction_and_truth_on_one_scale_and_the_error_about_zero) {
    const float truth[4] = {-8, 0, 4, 4}, prediction[4] = {0, 0, 4, 8}; /* (y, x), row 0 at the bottom */
    const ups_comparison_row row = {.prediction = prediction, .truth = truth};
    const ups_comparison comparison = {.title = "t",
                                       .prediction_name = "prediction",
                                       .truth_name = "truth",
                                       .rows = &row,
                                       .row_count = 1,
                                       .height = 2,
                                       .width = 2,
                                       .row_stride = 2,
                                       .column_stride = 1,
                                       .x = {.low = 0, .high = 1},
                                       .y = {.low = 0, .high = 1}};
    enum { SIDE = 200, TOP = UPS_PICTURE_TITLE + UPS_PLOT_TOP, LEFT = UPS_PLOT_LEFT };
    const double left[3] = {LEFT, LEFT + SIDE + UPS_PLOT_RIGHT,
                            LEFT + 2 * SIDE + UPS_PLOT_RIGHT + UPS_PLOT_BAR_GAP + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS};
    const float upper_right[3] = {1, 0.75f, 0.75f}, lower_left[3] = {0.5f, 0, 1};
    ups_figure figure;
    ups_draw_comparison(&figure, UPS_FIGURE_PNG, &comparison);
    for (int i = 0; i < 3; i++) {
        const ups_colour_map map = i == 2 ? UPS_COLOURS_DIVERGING : UPS_COLOURS_SEQUENTIAL;
        assert_true(same(at(&figure, left[i] + 150, TOP + 50), ups_colour_of(map, upper_right[i])));
        assert_true(same(at(&figure, left[i] + 50, TOP + 150), ups_colour_of(map, lower_left[i])));
    }
    end(&figure);
}

CLAIM(profiles_and_latents_are_whole_pictures) {
    enum { T = 12, X = 48 };
    float truth[T * X], prediction[T * X];
    double x[X];
    ups_f16 latents[T * X];
    for (int i = 0; i < T * X; i++) {
        x[i % X] = i % X;
        truth[i] = sinf(0.1f * (float)(i % X + i / X));
        prediction[i] = i == 5 ? NAN : truth[i] + 0.01f;
    }
    ups_f32_to_f16(truth, latents, T * X);
    const ups_profile profiles[2] = {{"t = 0", prediction, truth}, {"t = 1", prediction + X, truth + X}};
    const ups_profiles sheet = {.title = "u",
                                .x = x,
                                .points = X,
                                .stride = 1,
                                .x_label = "x",
                                .y_label = "u",
                                .profiles = profiles,
                                .count = 2};
    ups_figure figure;
    ups_draw_profiles(&figure, UPS_FIGURE_PNG, &sheet);
    end(&figure);
    cairo_surface_t *image = read_png();
    assert_true(cairo_image_surface_get_width(image) > UPS_FIGURE_DENSITY * 400);
    cairo_surface_destroy(image);

    ups_error error;
    const ups_latent_picture picture = {"latents", T, 6, 8, latents, x};
    assert_int_equal(ups_draw_latents(&figure, UPS_FIGURE_PNG, &picture, &error), UPS_OK);
    const ups_field all = {truth, NULL, 1, T * X, 0, 1, 0};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_DIVERGING, &all, 1);
    float first;
    ups_f16_to_f32(latents, &first, 1);
    const double share = rint(256 * (first - scale.low) / (scale.high - scale.low)) / 256;
    assert_true(same(at(&figure, UPS_PLOT_LEFT + 5, UPS_PICTURE_TITLE + UPS_PLOT_TOP + 5), /* token 0 is on top */
                     ups_colour_of(UPS_COLOURS_DIVERGING, (float)share)));
    end(&figure);
}

CLAIM(a_figure_that_cannot_be_drawn_or_written_is_an_error_naming_its_path) {
    ups_error error = {0};
    ups_figure figure;
    begin(&figure, 10, 10);
    assert_int_equal(ups_figure_publish(&figure, "/nonexistent/folder/p.png", &error), UPS_ERR_IO);
    assert_contains(error.message, "/nonexistent/folder");
    unlink(path);
    begin(&figure, 1e5, 1e5); /* more than cairo's pixels */
    ups_figure_text(&figure, 5, 5, "nothing", &(ups_text_style){.size = 12, .room = 3});
    const float value = 1;
    const ups_field field = {.values = &value, .rows = 1, .columns = 1};
    const ups_plot plot = {.area = {0, 0, 10, 10}, .x = {.low = 0, .high = 1}, .y = {.low = 0, .high = 1}};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    ups_plot_field(&figure, &plot, &field, &scale);
    assert_int_equal(ups_figure_publish(&figure, path, &error), UPS_ERR_MEMORY);
    assert_contains(error.message, path);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void) {
    return run_claims(make_directory, remove_directory, NULL);
}
