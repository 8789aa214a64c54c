/* Pictures: what is on them is where it should be, and a picture is complete or absent. */
#include "tools/report/font.h"
#include "tools/report/pictures.h"
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/ups-pictures-XXXXXX";
static char path[64];

static int make_directory(void **state) {
    (void)state;
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof(path), "%s/picture.png", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory); /* fails when something half-written was left behind */
}

static bool same(ups_colour a, ups_colour b) {
    return a.red == b.red && a.green == b.green && a.blue == b.blue;
}

static ups_canvas *blank(int width, int height) {
    ups_error error;
    ups_canvas *canvas = NULL;
    assert_int_equal(ups_canvas_create(width, height, &canvas, &error), UPS_OK);
    return canvas;
}

/* The picture at `path`, (height, width, 3); free(). */
static uint8_t *read_png(int *width, int *height) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, path));
    image.format = PNG_FORMAT_RGB;
    uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image));
    assert_non_null(pixels);
    assert_true(png_image_finish_read(&image, NULL, pixels, 0, NULL));
    *width = (int)image.width;
    *height = (int)image.height;
    return pixels;
}

static void a_published_picture_reads_back_pixel_by_pixel(void **state) {
    (void)state;
    ups_canvas *canvas = blank(40, 30);
    ups_canvas_pixel(canvas, 7, 3, (ups_colour){10, 200, 30});
    ups_error error;
    assert_int_equal(ups_canvas_publish(canvas, path, &error), UPS_OK);
    int width, height;
    uint8_t *pixels = read_png(&width, &height);
    assert_int_equal(width, 40);
    assert_int_equal(height, 30);
    const uint8_t expected[3] = {10, 200, 30};
    assert_memory_equal(pixels + 3 * (3 * 40 + 7), expected, 3);
    assert_int_equal(pixels[0], 255);
    free(pixels);
    ups_canvas_destroy(canvas);
}

static void a_heat_map_puts_row_0_at_the_bottom_or_on_top_when_downward(void **state) {
    (void)state;
    const float values[6] = {0, 1, 2, 3, 4, 5}; /* two rows of three */
    for (int downward = 0; downward < 2; downward++) {
        ups_canvas *canvas = blank(300, 200);
        const ups_heat_map map = {
            .values = values, .rows = 2, .columns = 3, .row_stride = 3, .column_stride = 1, .downward = downward};
        ups_plot_heat_map(canvas, (ups_rectangle){60, 20, 90, 60}, &map);
        for (int row = 0; row < 2; row++) {
            for (int column = 0; column < 3; column++) {
                const int x = 60 + 30 * column + 15, y = 20 + 30 * (downward ? row : 1 - row) + 15;
                const ups_colour expected = ups_colour_of(UPS_COLOURS_SEQUENTIAL, values[3 * row + column] / 5);
                assert_true(same(ups_canvas_at(canvas, x, y), expected));
            }
        }
        ups_canvas_destroy(canvas);
    }
}

static void a_heat_map_follows_strides(void **state) {
    (void)state;
    float values[2 * 2 * 3]; /* (row, column, channel): channel 1 of three */
    for (int i = 0; i < 12; i++) values[i] = i % 3 == 1 ? (float)(i / 3) : 99.0f;
    ups_canvas *canvas = blank(200, 200);
    const ups_heat_map map = {
        .values = values + 1, .rows = 2, .columns = 2, .row_stride = 6, .column_stride = 3, .downward = true};
    ups_plot_heat_map(canvas, (ups_rectangle){60, 20, 80, 80}, &map);
    for (int i = 0; i < 4; i++) {
        const ups_colour found = ups_canvas_at(canvas, 60 + 40 * (i % 2) + 20, 20 + 40 * (i / 2) + 20);
        assert_true(same(found, ups_colour_of(UPS_COLOURS_SEQUENTIAL, (float)i / 3)));
    }
    ups_canvas_destroy(canvas);
}

static void values_finer_than_pixels_are_averaged(void **state) {
    (void)state;
    enum { N = 64 };
    float values[N * N];
    for (int i = 0; i < N * N; i++)
        values[i] = (float)((i / N + i % N) % 2); /* a checkerboard: its mean is 1/2 everywhere */
    ups_canvas *canvas = blank(150, 150);
    const ups_heat_map map = {
        .values = values, .rows = N, .columns = N, .row_stride = N, .column_stride = 1, .low = 0, .high = 1};
    ups_plot_heat_map(canvas, (ups_rectangle){80, 20, 32, 32}, &map);
    for (int i = 0; i < 32 * 32; i++) {
        const ups_colour found = ups_canvas_at(canvas, 80 + i % 32, 20 + i / 32);
        assert_true(same(found, ups_colour_of(UPS_COLOURS_SEQUENTIAL, 0.5f)));
    }
    ups_canvas_destroy(canvas);
}

static void values_that_are_no_numbers_are_grey_and_do_not_spoil_the_scale(void **state) {
    (void)state;
    const float values[4] = {0, NAN, INFINITY, 1};
    ups_canvas *canvas = blank(200, 200);
    const ups_heat_map map = {.values = values, .rows = 1, .columns = 4, .row_stride = 4, .column_stride = 1};
    ups_plot_heat_map(canvas, (ups_rectangle){60, 20, 80, 80}, &map);
    const ups_colour grey = ups_colour_of(UPS_COLOURS_SEQUENTIAL, NAN);
    assert_true(same(ups_canvas_at(canvas, 90, 60), grey));
    assert_true(same(ups_canvas_at(canvas, 110, 60), grey));
    assert_true(same(ups_canvas_at(canvas, 70, 60), ups_colour_of(UPS_COLOURS_SEQUENTIAL, 0)));
    assert_true(same(ups_canvas_at(canvas, 130, 60), ups_colour_of(UPS_COLOURS_SEQUENTIAL, 1)));
    ups_canvas_destroy(canvas);
}

static double lightness(ups_colour c) {
    return 0.2126 * pow(c.red / 255.0, 2.2) + 0.7152 * pow(c.green / 255.0, 2.2) + 0.0722 * pow(c.blue / 255.0, 2.2);
}

static void the_sequential_map_grows_lighter_and_the_diverging_one_darkens_both_ways(void **state) {
    (void)state;
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

static void ticks_are_round_numbers_inside_the_axis(void **state) {
    (void)state;
    double ticks[UPS_PLOT_TICKS];
    int count = ups_plot_ticks(-0.13, 1.07, false, 5, ticks, UPS_PLOT_TICKS);
    const double expected[] = {0, 0.5, 1.0};
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) assert_true(fabs(ticks[i] - expected[i]) < 1e-12);
    count = ups_plot_ticks(3e-4, 2.0, true, 6, ticks, UPS_PLOT_TICKS);
    assert_int_equal(count, 4); /* 1e-3, 1e-2, 1e-1, 1 */
    assert_true(fabs(ticks[0] - 1e-3) < 1e-12 && fabs(ticks[3] - 1) < 1e-12);
    assert_int_equal(ups_plot_ticks(1, 1, false, 5, ticks, UPS_PLOT_TICKS), 0);
    assert_int_equal(ups_plot_ticks(0, NAN, false, 5, ticks, UPS_PLOT_TICKS), 0);
}

static void every_printable_character_but_space_has_ink_within_its_box(void **state) {
    (void)state;
    for (int letter = '!'; letter <= '~'; letter++) {
        ups_font_point points[UPS_FONT_STROKE_POINTS];
        size_t count = ups_font_stroke((char)letter, 0, points, UPS_FONT_STROKE_POINTS);
        assert_true(count > 0);
        for (int stroke = 0; count > 0;
             count = ups_font_stroke((char)letter, ++stroke, points, UPS_FONT_STROKE_POINTS)) {
            for (size_t i = 0; i < count; i++) {
                assert_true(points[i].x >= 0 && points[i].x <= ups_font_width((char)letter));
                assert_true(points[i].y >= 0 && points[i].y <= UPS_FONT_BASELINE + UPS_FONT_CAP_HEIGHT);
            }
        }
    }
    ups_font_point point;
    assert_int_equal(ups_font_stroke(' ', 0, &point, 1), 0);
}

static void a_line_goes_through_its_points_and_leaves_a_gap_at_nan(void **state) {
    (void)state;
    const float y[5] = {0, 0, NAN, 0, 0};
    const ups_line line = {.y = y, .count = 5, .width = 4};
    const ups_line_chart chart = {
        .x = {.low = 0, .high = 4}, .y = {.low = -1, .high = 1}, .lines = &line, .line_count = 1};
    ups_canvas *canvas = blank(400, 300);
    ups_plot_lines(canvas, (ups_rectangle){80, 40, 200, 101}, &chart);
    assert_true(same(ups_canvas_at(canvas, 105, 90), ups_colour_line(0)));
    assert_true(same(ups_canvas_at(canvas, 255, 90), ups_colour_line(0)));
    assert_false(same(ups_canvas_at(canvas, 180, 90), ups_colour_line(0)));
    ups_canvas_destroy(canvas);
}

static void drawing_outside_the_canvas_or_with_infinite_points_does_nothing(void **state) {
    (void)state;
    ups_canvas *canvas = blank(20, 20);
    const ups_point wild[4] = {{-1e9f, 5}, {1e9f, 5}, {NAN, 3}, {INFINITY, -INFINITY}};
    ups_canvas_stroke(canvas, wild + 2, 2, 3, 0, (ups_colour){0, 0, 0});
    ups_canvas_fill(canvas, (ups_rectangle){-50, -50, 10, 10}, (ups_colour){0, 0, 0});
    ups_canvas_text(canvas, (ups_point){-300, 500}, "far away", &(ups_text_style){.size = 9});
    for (int i = 0; i < 400; i++) assert_true(same(ups_canvas_at(canvas, i % 20, i / 20), (ups_colour){255, 255, 255}));
    ups_canvas_stroke(canvas, wild, 2, 3, 0, (ups_colour){0, 0, 0});
    assert_true(same(ups_canvas_at(canvas, 10, 5), (ups_colour){0, 0, 0}));
    ups_canvas_destroy(canvas);
}

static void whole_pictures_are_written_for_fields_profiles_charts_and_latents(void **state) {
    (void)state;
    enum { T = 12, X = 48 };
    float truth[T * X], prediction[T * X];
    for (int i = 0; i < T * X; i++) {
        truth[i] = sinf(0.1f * (float)(i % X + i / X));
        prediction[i] = truth[i] + 0.01f;
    }
    ups_error error;
    int width, height;
    const ups_comparison_row rows[2] = {{.name = "u", .prediction = prediction, .truth = truth},
                                        {.name = "v", .prediction = prediction, .truth = truth}};
    const ups_comparison comparison = {
        .title = "t", .rows = rows, .row_count = 2, .height = T, .width = X, .row_stride = X, .column_stride = 1};
    assert_int_equal(ups_picture_comparison(path, &comparison, &error), UPS_OK);
    free(read_png(&width, &height));
    assert_true(width > 400 && height > 200);

    const ups_profile profiles[2] = {{"t = 0", prediction, truth}, {"t = 1", prediction + X, truth + X}};
    const ups_profiles sheet = {.points = X, .stride = 1, .profiles = profiles, .count = 2};
    assert_int_equal(ups_picture_profiles(path, &sheet, &error), UPS_OK);
    free(read_png(&width, &height));
    assert_true(width > 400);

    const ups_heat_map map = {
        .values = truth, .rows = T, .columns = X, .row_stride = X, .column_stride = 1, .map = UPS_COLOURS_DIVERGING};
    assert_int_equal(ups_picture_heat_map(path, &map, &error), UPS_OK);
    const ups_line line = {.y = truth, .count = X, .name = "loss"};
    const ups_line_chart chart = {.lines = &line, .line_count = 1, .y = {.logarithmic = true}};
    assert_int_equal(ups_picture_lines(path, &chart, &error), UPS_OK);
    free(read_png(&width, &height));
}

static void a_picture_that_cannot_be_written_is_an_error_naming_its_path(void **state) {
    (void)state;
    ups_error error = {0};
    ups_canvas *canvas = blank(10, 10);
    assert_int_equal(ups_canvas_publish(canvas, "/nonexistent/folder/p.png", &error), UPS_ERR_IO);
    assert_non_null(strstr(error.message, "/nonexistent/folder"));
    ups_canvas_destroy(canvas);
    const ups_comparison nothing = {0};
    assert_int_equal(ups_picture_comparison(path, &nothing, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_canvas_create(0, 10, &canvas, &error), UPS_ERR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_published_picture_reads_back_pixel_by_pixel),
        cmocka_unit_test(a_heat_map_puts_row_0_at_the_bottom_or_on_top_when_downward),
        cmocka_unit_test(a_heat_map_follows_strides),
        cmocka_unit_test(values_finer_than_pixels_are_averaged),
        cmocka_unit_test(values_that_are_no_numbers_are_grey_and_do_not_spoil_the_scale),
        cmocka_unit_test(the_sequential_map_grows_lighter_and_the_diverging_one_darkens_both_ways),
        cmocka_unit_test(ticks_are_round_numbers_inside_the_axis),
        cmocka_unit_test(every_printable_character_but_space_has_ink_within_its_box),
        cmocka_unit_test(a_line_goes_through_its_points_and_leaves_a_gap_at_nan),
        cmocka_unit_test(drawing_outside_the_canvas_or_with_infinite_points_does_nothing),
        cmocka_unit_test(whole_pictures_are_written_for_fields_profiles_charts_and_latents),
        cmocka_unit_test(a_picture_that_cannot_be_written_is_an_error_naming_its_path),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
