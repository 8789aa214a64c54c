/* Pages: whatever text says, it stays text; pictures are whole; numbers are numbers. */
#include "base/files.h"
#include "tests/model/claims.h"
#include "tools/report/cache/charts.h"
#include "tools/report/plot.h"
#include <math.h>

CLAIM(text_is_escaped_and_markup_is_not) {
    ups_html html = {0};
    ups_html_markup(&html, "<b>%d</b>", 7);
    ups_html_text(&html, "<script>alert(\"x\" & 'y')</script>");
    assert_string_equal(html.text, "<b>7</b>&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)&lt;/script&gt;");
    ups_html_free(&html);
}

CLAIM(what_is_no_utf8_or_a_control_character_is_replaced) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8a", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8a"},
        {"a\x01\x7f\tb", "a\xef\xbf\xbd\xef\xbf\xbd\tb"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong '/' */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"x\xe2\x82", "x\xef\xbf\xbd\xef\xbf\xbd"},               /* cut off */
        {"\xff<", "\xef\xbf\xbd&lt;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ups_html html = {0};
        ups_html_text(&html, cases[i].in);
        assert_string_equal(html.text, cases[i].out);
        ups_html_free(&html);
    }
}

CLAIM(numbers_that_are_not_finite_become_a_dash) {
    ups_html html = {0};
    ups_html_number(&html, 3, 1.23456);
    ups_html_number(&html, 3, NAN);
    ups_html_number(&html, 3, -INFINITY);
    assert_string_equal(html.text, "1.23\xe2\x80\x93\xe2\x80\x93");
    ups_html_free(&html);
}

CLAIM(an_svg_is_inlined_with_names_of_its_own_and_nothing_outside_changed) {
    const char *svg = "<?xml version=\"1.0\"?>\n<svg width=\"9pt\" viewBox=\"0 0 9 5\">"
                      "<g id=\"a\"/><use xlink:href=\"#a\" x=\"1\"/><path clip-path=\"url(#a)\" d=\"M 0 1 Z\"/></svg>";
    ups_html html = {0};
    ups_html_svg(&html, svg, "chart", "<d>");
    ups_html_svg(&html, svg, "chart", "<d>");
    assert_null(strstr(html.text, "<?xml"));
    assert_non_null(
        strstr(html.text, "viewBox=\"0 0 9 5\" style=\"max-width:9px\" role=\"img\" aria-label=\"&lt;d&gt;\""));
    for (int i = 0; i < 2; i++) {
        char expected[160];
        snprintf(expected, sizeof expected,
                 "<g id=\"f%d-a\"/><use xlink:href=\"#f%d-a\" x=\"1\"/><path clip-path=\"url(#f%d-a)\" d=\"M 0 1 "
                 "Z\"/></svg>",
                 i, i, i);
        assert_contains(html.text, expected);
    }
    ups_html_svg(&html, "no svg", "chart", "d");
    assert_non_null(html.failure);
    ups_html_free(&html);
}

static int occurrences(const char *text, const char *what) {
    int count = 0;
    for (; (text = strstr(text, what)); text++) count++;
    return count;
}

CLAIM(outliers_are_found_and_the_farthest_are_named) {
    enum { COUNT = 200, FAR = 12 };
    double values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = 4 + 0.01 * sin(i);
    for (int i = 0; i < FAR; i++) values[10 * i + 3] = 2 - 0.1 * i;
    values[150] = NAN;
    ups_html html = {0};
    const ups_chart_outliers far = ups_chart_items(&html, values, COUNT, "sample", "ratio", "test");
    assert_int_equal(far.found, FAR);
    assert_int_equal(far.named, UPS_CHART_NAMED);
    for (int i = 0; i < UPS_CHART_NAMED; i++)
        assert_int_equal(far.index[i], 10 * (FAR - 1 - i) + 3); /* farthest first */
    const char *dots = strstr(html.text, "stroke-linecap:round"), *end = strstr(dots, "/>");
    int drawn = 0;
    for (; dots < end; dots++) drawn += *dots == 'Z';
    assert_int_equal(drawn, COUNT - 1); /* every sample but the one without a number */
    ups_html_free(&html);
}

CLAIM(charts_of_any_values_hold_only_finite_numbers) {
    const double nothing[3] = {NAN, NAN, NAN}, same[3] = {5, 5, 5}, huge[3] = {-1e300, 0, 1e300}, one[1] = {2};
    const int64_t empty[4] = {0}, single[4] = {0, 9, 0, 0};
    const ups_chart_band flat = {1, 1, 1, 0};
    ups_html html = {0};
    ups_chart_items(&html, nothing, 3, "sample", "y", "d");
    ups_chart_items(&html, same, 3, "sample", "y", "d");
    ups_chart_items(&html, huge, 3, "sample", "y", "d");
    ups_chart_items(&html, one, 1, "sample", "y", "d");
    ups_chart_histogram(&html, empty, 4, INFINITY, -INFINITY, "x", "d");
    ups_chart_histogram(&html, single, 4, 3, 3, "x", "d");
    ups_chart_bands(&html, &flat, 1, "x", "y", "d");
    assert_null(html.failure);
    assert_int_equal(html.figures, 7);
    assert_int_equal(occurrences(html.text, "</svg>"), 7);
    assert_null(strstr(html.text, "nan"));
    assert_null(strstr(html.text, "inf"));
    ups_html_free(&html);
}

CLAIM(bars_are_as_high_as_their_share) {
    const int64_t counts[4] = {1, 10, 100, 0};
    ups_html html = {0};
    ups_chart_histogram(&html, counts, 4, 0, 4, "x", "d");
    const char *bars = strstr(html.text, "fill:rgb(12.156863%,38.431373%,66.666667%)"), *at = strstr(bars, " d=\"") + 4;
    double x[3], y[3], bottom = 0;
    for (int i = 0; i < 3; i++) { /* "M x bottom L …" or "M x top L …": both heights of each rectangle */
        double corner[4][2];
        assert_int_equal(sscanf(at, "M %lf %lf L %lf %lf L %lf %lf L %lf %lf", &corner[0][0], &corner[0][1],
                                &corner[1][0], &corner[1][1], &corner[2][0], &corner[2][1], &corner[3][0],
                                &corner[3][1]),
                         8);
        x[i] = corner[0][0];
        y[i] = fmin(corner[0][1], corner[2][1]);
        bottom = fmax(corner[0][1], corner[2][1]);
        at = strchr(at, 'Z') + 2;
    }
    assert_true(x[0] < x[1] && x[1] < x[2] && y[0] < bottom);
    assert_true(fabs((y[0] - y[1]) - (y[1] - y[2])) < 0.01 && y[1] < y[0]); /* a factor of ten each, on a log scale */
    ups_html_free(&html);
}

CLAIM(an_embedded_figure_is_escaped_and_holds_its_field) {
    const float value = 1;
    const ups_field field = {.values = &value, .rows = 1, .columns = 1};
    const ups_plot plot = {.area = {60, 20, 50, 50}, .x = {.low = 0, .high = 1}, .y = {.low = 0, .high = 1}};
    const ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &field, 1);
    ups_figure figure;
    ups_html html = {0};
    ups_figure_begin(&figure, UPS_FIGURE_SVG, 200, 100);
    ups_plot_field(&figure, &plot, &field, &scale);
    ups_figure_embed(&figure, &html, "picture", "\"d\" <u>");
    assert_null(html.failure);
    assert_int_equal(occurrences(html.text, "aria-label=\"&quot;d&quot; &lt;u&gt;\""), 2); /* region and picture */
    assert_int_equal(occurrences(html.text, "data:image/png;base64,iVBORw0KGgo"), 1);
    ups_html_free(&html);
}

CLAIM(a_page_without_memory_is_not_published) {
    ups_error error;
    ups_html html = {.failure = "no memory"};
    assert_int_equal(ups_html_publish(&html, "/tmp/ups-no-such-page.html", &error), UPS_ERR_MEMORY);
    assert_false(ups_path_exists("/tmp/ups-no-such-page.html"));
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
