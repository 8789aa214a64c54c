#include "capture.h"

#include "base/log.h"
#include "base/progress.h"

#include <pthread.h>

static void a_line_carries_the_time_and_warnings_their_level(void **state) {
    capture c = capture_begin(0);
    ups_log(UPS_LOG_INFO, "cache of %d shards", 3);
    ups_log(UPS_LOG_WARNING, "slow");
    const char *text = capture_end(&c);
    double time;
    int end = 0;
    assert_int_equal(sscanf(text, "[%lf] cache of 3 shards\n%n", &time, &end), 1);
    assert_true(time >= 0 && time < 60);
    assert_contains(text, "] warning: slow\n");
}

static void lines_below_the_level_are_dropped(void **state) {
    capture c = capture_begin(0);
    ups_log(UPS_LOG_DEBUG, "one");
    ups_log_set_level(UPS_LOG_ERROR);
    ups_log(UPS_LOG_WARNING, "two");
    ups_log(UPS_LOG_ERROR, "three");
    ups_log_set_level(UPS_LOG_DEBUG);
    ups_log(UPS_LOG_DEBUG, "four");
    ups_log_set_level(UPS_LOG_INFO);
    const char *text = capture_end(&c);
    assert_null(strstr(text, "one"));
    assert_null(strstr(text, "two"));
    assert_contains(text, "error: three\n");
    assert_contains(text, "debug: four\n");
}

/* Runs this program again, which then logs one line of each level. */
static const char *lines_with_environment(const char *assignment) {
    static char text[1000];
    char self[300] = "", command[400];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "%s '%s' log 2>&1", assignment, self);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), 0);
    return text;
}

static void the_environment_chooses_the_level(void **state) {
    assert_int_equal(count_of(lines_with_environment("UPS_LOG=debug"), "\n"), 4);
    assert_int_equal(count_of(lines_with_environment("UPS_LOG=warning"), "\n"), 2);
    assert_int_equal(count_of(lines_with_environment("UPS_LOG=nonsense"), "\n"), 3); /* as without: info */
}

static void a_long_or_broken_message_stays_one_line(void **state) {
    char message[5000];
    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    message[100] = '\n';
    capture c = capture_begin(0);
    ups_log(UPS_LOG_INFO, "%s", message);
    const char *text = capture_end(&c);
    assert_int_equal(count_of(text, "\n"), 1);
    assert_true(strlen(text) > 1900 && text[strlen(text) - 1] == '\n');
}

static void *log_much(void *argument) {
    for (int i = 0; i < 200; i++) ups_log(UPS_LOG_INFO, "abcdefghijklmnopqrstuvwxyz");
    return NULL;
}

static void lines_of_many_threads_do_not_mix(void **state) {
    pthread_t threads[4];
    capture c = capture_begin(0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, log_much, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    const char *text = capture_end(&c);
    assert_int_equal(count_of(text, "] abcdefghijklmnopqrstuvwxyz\n"), 800);
    assert_int_equal(count_of(text, "\n"), 800);
}

static void a_bar_on_the_terminal_is_erased_before_a_line_and_drawn_again_after_it(void **state) {
    capture c = capture_begin(100);
    ups_progress *bar = ups_progress_begin("encode", "trajectories", 10, 4);
    ups_log(UPS_LOG_INFO, "hello");
    ups_progress_end(bar);
    const char *text = capture_end(&c), *line = strstr(text, "hello");
    assert_non_null(line);
    while (*line != '[') line--;
    assert_true(strncmp(line - 4, "\r\033[K", 4) == 0);
    assert_contains(line, "hello\r\n\r\033[Kencode");
}

int main(int count, char **arguments) {
    if (count > 1) {
        for (int level = UPS_LOG_DEBUG; level <= UPS_LOG_ERROR; level++) ups_log((ups_log_level)level, "line");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_carries_the_time_and_warnings_their_level),
        cmocka_unit_test(lines_below_the_level_are_dropped),
        cmocka_unit_test(the_environment_chooses_the_level),
        cmocka_unit_test(a_long_or_broken_message_stays_one_line),
        cmocka_unit_test(lines_of_many_threads_do_not_mix),
        cmocka_unit_test(a_bar_on_the_terminal_is_erased_before_a_line_and_drawn_again_after_it),
    };
    unsetenv("UPS_LOG");
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
