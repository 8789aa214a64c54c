/* Pages: whatever text says, it stays text; pictures are whole; numbers are numbers. */
#include "base/files.h"
#include "tools/report/html.h"
#include "tools/report/html_chart.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void text_is_escaped_and_markup_is_not(void **state) {
    (void)state;
    ups_html html = {0};
    ups_html_markup(&html, "<b>%d</b>", 7);
    ups_html_text(&html, "<script>alert(\"x\" & 'y')</script>");
    assert_string_equal(html.text, "<b>7</b>&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)&lt;/script&gt;");
    ups_html_free(&html);
}

static void what_is_no_utf8_or_a_control_character_is_replaced(void **state) {
    (void)state;
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

static void numbers_that_are_not_finite_become_a_dash(void **state) {
    (void)state;
    ups_html html = {0};
    ups_html_number(&html, 3, 1.23456);
    ups_html_number(&html, 3, NAN);
    ups_html_number(&html, 3, -INFINITY);
    assert_string_equal(html.text, "1.23\xe2\x80\x93\xe2\x80\x93");
    ups_html_free(&html);
}

static void base64_is_that_of_rfc_4648(void **state) {
    (void)state;
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        ups_html html = {0};
        char expected[80];
        ups_html_png(&html, vectors[i][0], strlen(vectors[i][0]));
        snprintf(expected, sizeof expected, "data:image/png;base64,%s", vectors[i][1]);
        assert_string_equal(html.text, expected);
        ups_html_free(&html);
    }
}

static int occurrences(const char *text, const char *what) {
    int count = 0;
    for (; (text = strstr(text, what)); text++) count++;
    return count;
}

static void outliers_are_found_and_the_farthest_are_named(void **state) {
    (void)state;
    enum { COUNT = 200, FAR = 12 };
    double values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = 4 + 0.01 * sin(i);
    for (int i = 0; i < FAR; i++) values[10 * i + 3] = 2 - 0.1 * i;
    values[150] = NAN;
    ups_html html = {0};
    assert_int_equal(ups_html_items(&html, values, COUNT, "sample", "ratio", "test"), FAR);
    assert_int_equal(occurrences(html.text, "class=\"named\""), 8);
    assert_non_null(strstr(html.text, ">sample 113<")); /* the farthest */
    assert_null(strstr(html.text, ">sample 3<"));       /* the nearest of the far ones */
    assert_int_equal(occurrences(html.text, "class=\"dot\""), COUNT - 1);
    ups_html_free(&html);
}

static void charts_of_any_values_hold_only_finite_numbers(void **state) {
    (void)state;
    const double nothing[3] = {NAN, NAN, NAN}, same[3] = {5, 5, 5}, huge[3] = {-1e300, 0, 1e300}, one[1] = {2};
    const int64_t empty[4] = {0}, single[4] = {0, 9, 0, 0};
    const ups_html_band flat = {1, 1, 1, 0};
    ups_html html = {0};
    ups_html_items(&html, nothing, 3, "sample", "y", "d");
    ups_html_items(&html, same, 3, "sample", "y", "d");
    ups_html_items(&html, huge, 3, "sample", "y", "d");
    ups_html_items(&html, one, 1, "sample", "y", "d");
    ups_html_histogram(&html, empty, 4, INFINITY, -INFINITY, "x", "d");
    ups_html_histogram(&html, single, 4, 3, 3, "x", "d");
    ups_html_bands(&html, &flat, 1, "x", "y", "d");
    assert_false(html.failed);
    assert_null(strstr(html.text, "nan"));
    assert_null(strstr(html.text, "inf"));
    ups_html_free(&html);
}

static void a_field_of_any_size_becomes_a_small_picture(void **state) {
    (void)state;
    enum { SIDE = 1000 };
    ups_error error;
    float *values = malloc(sizeof(float) * SIDE * SIDE);
    assert_non_null(values);
    for (int64_t i = 0; i < SIDE * SIDE; i++) values[i] = i % 7 == 0 ? NAN : (float)(i % SIDE);
    ups_html_field field = {.values = values,
                            .rows = SIDE,
                            .columns = SIDE,
                            .row_stride = SIDE,
                            .column_stride = 1,
                            .low = 0,
                            .high = SIDE,
                            .title = "<u>",
                            .description = "\"d\""};
    ups_html html = {0};
    assert_int_equal(ups_html_figure(&html, &field, &error), UPS_OK);
    assert_non_null(strstr(html.text, "alt=\"&quot;d&quot;\""));
    assert_non_null(strstr(html.text, "&lt;u&gt;"));
    assert_true(html.length < 320 * 320 * 4);
    assert_int_equal(occurrences(html.text, "data:image/png;base64,iVBORw0KGgo"), 1);
    ups_html_free(&html);
    free(values);
}

static void a_page_without_memory_is_not_published(void **state) {
    (void)state;
    ups_error error;
    ups_html html = {.failed = 1};
    assert_int_equal(ups_html_publish(&html, "/tmp/ups-no-such-page.html", &error), UPS_ERR_MEMORY);
    assert_false(ups_path_exists("/tmp/ups-no-such-page.html"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped_and_markup_is_not),
        cmocka_unit_test(what_is_no_utf8_or_a_control_character_is_replaced),
        cmocka_unit_test(numbers_that_are_not_finite_become_a_dash),
        cmocka_unit_test(base64_is_that_of_rfc_4648),
        cmocka_unit_test(outliers_are_found_and_the_farthest_are_named),
        cmocka_unit_test(charts_of_any_values_hold_only_finite_numbers),
        cmocka_unit_test(a_field_of_any_size_becomes_a_small_picture),
        cmocka_unit_test(a_page_without_memory_is_not_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
