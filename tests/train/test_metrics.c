/* metrics.jsonl: one object a line, readable at any moment; a resumed run drops what it will do again and nothing
 * else. */
#include "base/files.h"
#include "tests/model/claims.h"
#include "train/metrics.h"

#include <math.h>

#define LINE(stage, step) "{\"stage\":\"" stage "\",\"step\":" #step ",\"loss\":1}\n"

/* Takes the time out of the one line that has it. */
static void drop_time(char *lines) {
    char *time = strstr(lines, ",\"time\":\""), *end = time ? strchr(time + 9, '"') : NULL;
    int year, month, day, hour, minute;
    double second;
    assert_non_null(end);
    assert_int_equal(sscanf(time + 9, "%4d-%2d-%2dT%2d:%2d:%6lfZ\"", &year, &month, &day, &hour, &minute, &second), 6);
    assert_int_equal(end - time, 9 + (int)strlen("2026-01-02T03:04:05.678Z"));
    memmove(time, end + 1, strlen(end + 1) + 1);
}

/* Opens a file of `text` as a run of stage `operator` that resumes at `step`, writes one line, and compares. */
static void check(const char *text, int64_t step, const char *expected) {
    ups_metrics *metrics;
    const char *path = scratch("metrics.jsonl");
    if (text)
        write_text(path, text);
    else
        unlink(path);
    ok(ups_metrics_open(path, "operator", step, &metrics, &failure));
    ok(ups_metrics_write(metrics, json_pack("{s:s, s:i, s:i}", "stage", "operator", "step", 100, "loss", 2), &failure));
    char *found;
    size_t length;
    ok(ups_read_file(path, 1 << 20, &found, &length, &failure)); /* before it is closed */
    char *whole = NULL;
    drop_time(found);
    assert_true(asprintf(&whole, "%s%s", expected, "{\"stage\":\"operator\",\"step\":100,\"loss\":2}\n") > 0);
    assert_string_equal(found, whole);
    free(whole);
    free(found);
    ups_metrics_close(metrics);
    assert_int_equal(count_entries(scratch_directory, "partial"), 0);
}

CLAIM(a_new_file_is_begun_and_each_line_is_readable_at_once) {
    check(NULL, 0, "");
    check("", 0, "");
}

CLAIM(lines_of_steps_done_again_are_dropped_and_others_kept) {
    check(LINE("operator", 10) LINE("operator", 20) LINE("operator", 30), 20,
          LINE("operator", 10) LINE("operator", 20));
    check(LINE("operator", 10) LINE("operator", 20), 0, "");
    check(LINE("operator", 10) LINE("operator", 20), 30, LINE("operator", 10) LINE("operator", 20));
}

CLAIM(all_lines_are_read_but_one_that_is_being_written) {
    json_t *lines;
    write_text(scratch("metrics.jsonl"), LINE("autoencoder", 5) LINE("operator", 10) "[1]\n{\"stage\":\"oper");
    ok(ups_metrics_read(scratch("metrics.jsonl"), &lines, &failure));
    assert_int_equal(json_array_size(lines), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(lines, 1), "step")), 10);
    json_decref(lines);
    ok(ups_metrics_read(scratch("none.jsonl"), &lines, &failure));
    assert_int_equal(json_array_size(lines), 0);
    json_decref(lines);
}

CLAIM(lines_of_other_stages_stay_whatever_their_step) {
    check(LINE("autoencoder", 5000) LINE("operator", 10) LINE("autoencoder", 6000), 0,
          LINE("autoencoder", 5000) LINE("autoencoder", 6000));
}

CLAIM(a_last_line_half_written_is_dropped) {
    check(LINE("autoencoder", 10) "{\"stage\":\"autoenc", 0, LINE("autoencoder", 10));
    check(LINE("autoencoder", 10) "{\"stage\":\"autoencoder\",\"step\":20,\"loss\":1}", 0, LINE("autoencoder", 10));
}

CLAIM(lines_that_are_no_json_are_dropped) {
    check(LINE("autoencoder", 10) "rubbish\n" LINE("autoencoder", 20), 0,
          LINE("autoencoder", 10) LINE("autoencoder", 20));
}

CLAIM(numbers_that_are_not_finite_are_written_as_null) {
    json_t *line = json_array();
    json_array_append_new(line, ups_json_number(NAN));
    json_array_append_new(line, ups_json_number(-INFINITY));
    json_array_append_new(line, ups_json_number(0.5));
    char *text = json_dumps(line, JSON_COMPACT);
    assert_string_equal(text, "[null,null,0.5]");
    free(text);
    json_decref(line);
}

CLAIM(a_place_where_nothing_can_be_written_is_named) {
    ups_metrics *metrics = NULL;
    refused(ups_metrics_open(scratch("nowhere/metrics.jsonl"), "operator", 0, &metrics, &failure), UPS_ERR_IO,
            "nowhere/metrics.jsonl");
    assert_null(metrics);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
