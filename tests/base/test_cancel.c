#include "testing.h"

#include "base/system/cancel.h"

#include <signal.h>
#include <sys/wait.h>

static void a_signal_sets_the_flag_and_the_process_lives_on(void **state) {
    const int signals[] = {SIGINT, SIGTERM};
    ups_cancel_install();
    for (int i = 0; i < 2; i++) {
        ups_cancel_reset();
        assert_false(ups_cancel_requested());
        raise(signals[i]);
        assert_true(ups_cancel_requested());
        raise(SIGTERM);
        assert_int_equal(ups_cancel_signal(), signals[i]); /* the first */
    }
    ups_cancel_reset();
    assert_int_equal(ups_cancel_signal(), SIGINT);
    ups_cancel_request();
    assert_true(ups_cancel_requested());
    ups_cancel_reset();
    assert_false(ups_cancel_requested());
}

static void a_signal_that_another_process_got_counts_like_one_of_its_own(void **state) {
    ups_cancel_reset();
    ups_cancel_request_as(SIGTERM);
    assert_true(ups_cancel_requested());
    ups_cancel_request_as(SIGINT);
    assert_int_equal(ups_cancel_signal(), SIGTERM); /* the first */
    ups_cancel_reset();
    assert_int_equal(ups_cancel_signal(), SIGINT);
}

/* What becomes of a process that sends itself the two signals; it would exit with 7 if it survived. */
static int fate_of(int first, int second) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ups_cancel_install();
        raise(first);
        raise(second);
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_second_interrupt_ends_the_process_at_once(void **state) {
    int status = fate_of(SIGINT, SIGINT);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

static void repeated_termination_requests_leave_time_for_a_checkpoint(void **state) {
    int status = fate_of(SIGTERM, SIGTERM);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_sets_the_flag_and_the_process_lives_on),
        cmocka_unit_test(a_signal_that_another_process_got_counts_like_one_of_its_own),
        cmocka_unit_test(a_second_interrupt_ends_the_process_at_once),
        cmocka_unit_test(repeated_termination_requests_leave_time_for_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
