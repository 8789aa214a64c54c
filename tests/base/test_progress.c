#include "capture.h"

#include "base/progress.h"
#include "base/system/threads.h"

static void a_terminal_shows_a_bar_with_percent_rate_and_time_left(void **state) {
    capture c = capture_begin(120);
    ups_progress *bar = ups_progress_begin("encode", "trajectories", 1000, 0);
    for (int i = 1; i <= 30; i++) {
        usleep(10000);
        ups_progress_update(bar, 10 * i, "burgers1d");
    }
    ups_progress_end(bar);
    const char *text = capture_end(&c);
    assert_contains(text, "encode ");
    assert_contains(text, "█");
    assert_contains(text, "   0% 0/1000 trajectories");
    assert_contains(text, "/1000 trajectories, ");
    assert_contains(text, "/s, ");
    assert_contains(text, " left, burgers1d");
    assert_contains(text, "encode 300 of 1000 trajectories in ");
}

static void the_bar_is_redrawn_at_most_ten_times_a_second(void **state) {
    capture c = capture_begin(120);
    ups_progress *bar = ups_progress_begin("train", "steps", 1 << 30, 0);
    double start = ups_now();
    int64_t i = 0;
    while (ups_now() - start < 0.35) ups_progress_update(bar, i++, NULL);
    usleep(110000);
    ups_progress_update(bar, i, NULL);
    const int most = (int)((ups_now() - start) / 0.1) + 2; /* with the first and the last line */
    ups_progress_end(bar);
    assert_in_range(count_of(capture_end(&c), "\r\033[Ktrain"), 3, most);
}

/* The last line drawn of one that stands at 500 of 1000, on a terminal of so many columns. */
static const char *draw_at(int columns, const char *note) {
    static char line[1 << 16];
    capture c = capture_begin(columns);
    ups_progress *bar = ups_progress_begin("encode", "trajectories", 1000, 0);
    usleep(110000);
    ups_progress_update(bar, 500, note);
    const char *text = capture_end(&c);
    const char *last = text;
    for (const char *at = text; (at = strstr(at, "\033[K")); at += 3) last = at + 3;
    memcpy(line, last, strlen(last) + 1);
    c = capture_begin(columns);
    ups_progress_end(bar);
    capture_end(&c);
    return line;
}

static int columns_of(const char *line) {
    int columns = 0;
    for (; *line; line++) columns += ((unsigned char)*line & 0xC0) != 0x80;
    return columns;
}

static void a_narrow_terminal_loses_the_bar_then_the_note_then_the_rate_and_last_the_time_left(void **state) {
    static const struct {
        int columns;
        bool bar, note, percent, rate, left;
    } lines[] = {{100, true, true, true, true, true},    {72, true, true, true, true, true},
                 {66, false, true, true, true, true},    {58, false, false, true, true, true},
                 {50, false, false, false, true, true},  {40, false, false, false, false, true},
                 {30, false, false, false, false, true}, {12, false, false, false, false, false}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *line = draw_at(lines[i].columns, "burgers1d");
        print_message("%3d: %s\n", lines[i].columns, line);
        assert_true(columns_of(line) < lines[i].columns);
        assert_int_equal(strstr(line, "█") != NULL, lines[i].bar);
        assert_int_equal(strstr(line, "burgers1d") != NULL, lines[i].note);
        assert_int_equal(strchr(line, '%') != NULL, lines[i].percent);
        assert_int_equal(strstr(line, "/s") != NULL, lines[i].rate);
        assert_int_equal(strstr(line, " left") != NULL, lines[i].left);
    }
}

static void elsewhere_short_work_leaves_one_plain_line(void **state) {
    capture c = capture_begin(0);
    ups_progress *bar = ups_progress_begin("encode", "trajectories", 1000, 0);
    for (int i = 0; i <= 1000; i++) ups_progress_update(bar, i, NULL);
    ups_progress_end(bar);
    const char *text = capture_end(&c);
    assert_int_equal(count_of(text, "\n"), 1);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
    assert_contains(text, "encode 1000 trajectories in ");
}

static void a_resumed_run_counts_its_rate_from_where_it_started(void **state) {
    capture c = capture_begin(0);
    ups_progress *bar = ups_progress_begin("train", "steps", 2000000, 1000000);
    usleep(100000);
    ups_progress_update(bar, 1000010, NULL);
    ups_progress_end(bar);
    const char *text = capture_end(&c);
    double rate = 0;
    assert_int_equal(sscanf(strstr(text, " s, ") + 4, "%lf", &rate), 1);
    assert_true(rate < 101); /* 10 steps in 0.1 s or more */
    assert_contains(text, "train 10 steps in ");
    assert_contains(text, ", from 1000000 to 1000010 of 2000000\n");
}

static void an_unknown_total_shows_counts_without_percent(void **state) {
    capture c = capture_begin(120);
    ups_progress *bar = ups_progress_begin("scan", "files", -1, 0);
    usleep(110000);
    ups_progress_update(bar, 7, NULL);
    ups_progress_end(bar);
    const char *text = capture_end(&c);
    assert_contains(text, "scan 7 files, ");
    assert_null(strchr(text, '%'));
    assert_null(strstr(text, "left"));
}

static void nothing_is_written_when_it_is_switched_off(void **state) {
    capture c = capture_begin(120);
    ups_progress_enable(false);
    ups_progress *bar = ups_progress_begin("encode", "trajectories", 10, 0);
    ups_progress_update(bar, 10, NULL);
    ups_progress_hide();
    ups_progress_show();
    ups_progress_end(bar);
    ups_progress_enable(true);
    assert_string_equal(capture_end(&c), "");
}

static void a_bar_begun_inside_another_stays_silent(void **state) {
    capture c = capture_begin(120);
    ups_progress *outer = ups_progress_begin("outer", "stages", 2, 0);
    ups_progress *inner = ups_progress_begin("inner", "steps", 2, 0);
    usleep(110000);
    ups_progress_update(inner, 1, NULL);
    ups_progress_end(inner);
    ups_progress_end(outer);
    const char *text = capture_end(&c);
    assert_null(strstr(text, "inner"));
    assert_contains(text, "outer 0 of 2 stages in ");
}

static void a_bar_that_could_not_be_had_is_no_obstacle(void **state) {
    ups_progress_update(NULL, 1, NULL);
    ups_progress_end(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_shows_a_bar_with_percent_rate_and_time_left),
        cmocka_unit_test(the_bar_is_redrawn_at_most_ten_times_a_second),
        cmocka_unit_test(a_narrow_terminal_loses_the_bar_then_the_note_then_the_rate_and_last_the_time_left),
        cmocka_unit_test(elsewhere_short_work_leaves_one_plain_line),
        cmocka_unit_test(a_resumed_run_counts_its_rate_from_where_it_started),
        cmocka_unit_test(an_unknown_total_shows_counts_without_percent),
        cmocka_unit_test(nothing_is_written_when_it_is_switched_off),
        cmocka_unit_test(a_bar_begun_inside_another_stays_silent),
        cmocka_unit_test(a_bar_that_could_not_be_had_is_no_obstacle),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
