/* The lock of a run's directory: one holder at a time, whoever is refused is told who has it, and nobody has it once
 * the holder is gone, however it went. */
#include "base/files.h"
#include "tests/model/claims.h"
#include "train/run_lock.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that takes the lock and waits to be killed; returns once it has it. */
static pid_t holder(const char *directory) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        ups_run_lock *lock;
        char taken = ups_run_lock_take(directory, &lock, &failure) == UPS_OK;
        if (write(ready[1], &taken, 1) != 1) _exit(1);
        for (;;) pause();
    }
    char taken = 0;
    assert_int_equal(read(ready[0], &taken, 1), 1);
    assert_int_equal(taken, 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

CLAIM(a_second_process_is_refused_and_told_which_one_and_where) {
    ups_run_lock *lock = NULL;
    char host[256], process[64];
    pid_t first = holder(scratch("run"));
    assert_int_equal(ups_run_lock_take(scratch("run"), &lock, &failure), UPS_ERR_IO);
    assert_null(lock);
    gethostname(host, sizeof host);
    snprintf(process, sizeof process, "process %ld on host ", (long)first);
    assert_contains(failure.message, process);
    assert_contains(failure.message, host);
    assert_contains(failure.message, scratch("run"));
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    ok(ups_run_lock_take(scratch("run"), &lock, &failure)); /* it went with the process */
    ups_run_lock_release(lock);
}

CLAIM(a_lock_that_is_released_can_be_taken_again_and_leaves_nothing) {
    ups_run_lock *lock = NULL;
    for (int i = 0; i < 2; i++) {
        ok(ups_run_lock_take(scratch("again"), &lock, &failure));
        ups_run_lock_release(lock);
    }
    assert_false(ups_path_exists(scratch("again"))); /* it was made for the lock, and stayed empty */
    assert_int_equal(mkdir(scratch("again"), 0700), 0);
    ok(ups_run_lock_take(scratch("again"), &lock, &failure));
    ups_run_lock_release(lock);
    assert_true(ups_path_exists(scratch("again")));
    assert_false(ups_path_exists(scratch("again/lock")));
}

CLAIM(other_directories_have_locks_of_their_own) {
    ups_run_lock *one = NULL, *other = NULL;
    ok(ups_run_lock_take(scratch("one"), &one, &failure));
    ok(ups_run_lock_take(scratch("other"), &other, &failure));
    ups_run_lock_release(one);
    ups_run_lock_release(other);
    ups_run_lock_release(NULL);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
