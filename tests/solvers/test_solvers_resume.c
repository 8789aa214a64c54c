/* `ups datagen` interrupted: killed at any moment it goes on from the samples it has and ends with the same bytes. */
#include "base/files.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "tests/solvers/datagen_directory.h"
#include "tools/solvers/datagen.h"

#include <signal.h>
#include <stdatomic.h>

/* Samples of some milliseconds each, half a second in all. */
static ups_datagen_request request_for(const char *solver, const char *path, int threads) {
    ups_datagen_request request = {.solver = ups_solver_find(solver), .samples = 60, .threads = threads, .path = path};
    assert_non_null(request.solver);
    ups_solver_setup_begin(request.solver, &request.setup);
    request.setup.resolution = strcmp(solver, "burgers1d") == 0         ? 512
                               : request.solver->minimum_resolution > 4 ? 16
                                                                        : 32;
    request.setup.steps = 6;
    request.setup.seed = 7;
    return request;
}

static void read_all(const char *path, char **bytes, size_t *length) {
    ups_error error = {0};
    if (ups_read_file(path, 1 << 28, bytes, length, &error) != UPS_OK) fail_msg("%s", error.message);
}

static void assert_same_file(const char *path, const char *other) {
    size_t length, other_length;
    char *bytes, *other_bytes;
    read_all(path, &bytes, &length);
    read_all(other, &other_bytes, &other_length);
    assert_int_equal(length, other_length);
    assert_memory_equal(bytes, other_bytes, length);
    free(other_bytes);
    free(bytes);
}

static ups_datagen_result must_run(const ups_datagen_request *request) {
    ups_error error = {0};
    ups_datagen_result result;
    if (ups_datagen_run(request, &result, &error) != UPS_OK) fail_msg("%s", error.message);
    return result;
}

/* A process of its own, which ends with 0 when it has made the file. */
static pid_t start(const ups_datagen_request *request) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) return child;
    ups_error error;
    ups_datagen_result result;
    _exit(ups_datagen_run(request, &result, &error) == UPS_OK ? 0 : 1);
}

/* Killed after `seconds`, unless it ended by itself, which is what is returned. */
static bool ends_before(pid_t child, double seconds) {
    usleep((useconds_t)(1e6 * seconds));
    kill(child, SIGKILL);
    int outcome;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (WIFEXITED(outcome)) assert_int_equal(WEXITSTATUS(outcome), 0);
    return WIFEXITED(outcome);
}

/* Moments are drawn from the time that an undisturbed run takes, and from less when runs turn out to be faster. A file
 * is there as soon as it has its name: a process may still be killed after that. */
static void killed_at_any_moment_it_ends_with_the_same_bytes(void **state) {
    static const char *const solvers[] = {"burgers1d", "diffreact2d",
                                          "transport_mesh2d"}; /* one array; a group a sample; a mesh */
    enum { KILLS = 12, MOST_RUNS = 400 };
    const ups_random stream = ups_random_stream(1, UPS_RANDOM_TEST, 0);
    for (size_t s = 0; s < sizeof solvers / sizeof *solvers; s++) {
        const char *whole = scratch("whole.h5"), *killed = scratch("killed.h5");
        ups_datagen_request request = request_for(solvers[s], whole, 2);
        double longest = must_run(&request).seconds;
        request.path = killed;
        int kills = 0, runs = 0, kills_of_this_file = 0;
        while (kills < KILLS) {
            assert_true(runs < MOST_RUNS);
            const bool ended = ends_before(start(&request), longest * ups_random_uniform(stream, (uint64_t)runs++));
            if (ended) assert_true(ups_path_exists(killed));
            if (!ended) kills++, kills_of_this_file++;
            if (!ups_path_exists(killed)) continue;
            assert_same_file(whole, killed);
            if (!ended) unlink(scratch(".killed.h5.ups-journal")); /* killed between giving the name and removing it */
            assert_int_equal(entries(), 2);
            unlink(killed);
            if (kills_of_this_file == 0) longest *= 0.8;
            kills_of_this_file = 0;
        }
        must_run(&request);
        print_message("%s: %d kills in %d runs\n", solvers[s], kills, runs);
        assert_same_file(whole, killed);
        assert_int_equal(entries(), 2);
        unlink(whole);
        unlink(killed);
    }
}

/* ---- runs that end at a place of the tests' choice: what they do is put into a copy of the solver ---- */

static ups_solver chosen;                    /* the copy */
static const ups_solver *real;               /* what it is a copy of */
static atomic_int solved, cancel_after = -1; /* samples; −1: never */

static ups_status solve_and_cancel(const ups_solver_setup *setup, const void *plan, int64_t sample, void *memory,
                                   ups_sink *sink, ups_error *error) {
    const ups_status status = real->solve(setup, plan, sample, memory, sink, error);
    if (atomic_fetch_add(&solved, 1) + 1 == cancel_after) ups_cancel_request();
    return status;
}

static ups_status never_solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *memory,
                              ups_sink *sink, ups_error *error) {
    pause();
    return ups_fail(error, UPS_ERR_CANCELLED, "it was woken");
}

/* Called once the file has its name. */
static void die(void *plan) {
    raise(SIGKILL);
}

static void copy_solver(ups_datagen_request *request) {
    real = request->solver;
    chosen = *real;
    request->solver = &chosen;
}

static void killed_after_its_file_has_its_name_it_has_made_it(void **state) {
    ups_datagen_request request = request_for("diffreact2d", scratch("whole.h5"), 2);
    request.samples = 4;
    must_run(&request);
    const char *whole = request.path;
    request.path = scratch("x.h5");
    copy_solver(&request);
    assert_null(chosen.release);
    chosen.release = die;
    int outcome;
    const pid_t child = start(&request);
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_true(WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGKILL);
    assert_same_file(whole, request.path);
    assert_int_equal(entries(), 2);
}

/* Leaves an unfinished run of `request` behind. */
static void interrupt(const ups_datagen_request *request) {
    enum { ENOUGH = 12 };
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request interrupted = *request;
    copy_solver(&interrupted);
    chosen.solve = solve_and_cancel;
    atomic_store(&solved, 0);
    atomic_store(&cancel_after, ENOUGH);
    const ups_status status = ups_datagen_run(&interrupted, &result, &error);
    ups_cancel_reset();
    assert_fails(status, UPS_ERR_CANCELLED, error, "the same command continues, --restart begins again");
}

static void a_cancelled_run_keeps_every_complete_sample_and_says_how_to_go_on(void **state) {
    ups_datagen_request request = request_for("diffreact2d", scratch("whole.h5"), 2);
    request.samples = 40;
    must_run(&request);
    const char *whole = request.path;
    request.path = scratch("x.h5");
    interrupt(&request);
    assert_false(ups_path_exists(request.path));
    assert_int_equal(entries(), 3);
    assert_true(must_run(&request).continued > 0);
    assert_same_file(whole, request.path);
    assert_int_equal(entries(), 2);
}

static void other_settings_do_not_continue_a_run(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request request = request_for("diffreact2d", scratch("x.h5"), 2);
    request.samples = 40;
    interrupt(&request);

    ups_datagen_request other = request;
    other.setup.seed = 8;
    assert_fails(ups_datagen_run(&other, &result, &error), UPS_ERR_ARGUMENT, error, "seed is 7 there and 8 here");
    assert_contains(error.message, "--restart");
    other = request;
    ups_solver_set(other.solver, &other.setup, "Du=0.25", &error);
    assert_fails(ups_datagen_run(&other, &result, &error), UPS_ERR_ARGUMENT, error, "Du is 0.001 there and 0.25 here");
    assert_int_equal(entries(), 2); /* refused, not lost */

    other.samples = 2;
    other.restart = true;
    assert_int_equal(must_run(&other).continued, 0);
    assert_int_equal(entries(), 1);
}

static void a_torn_journal_is_believed_as_far_as_it_holds(void **state) {
    ups_error error = {0};
    ups_datagen_request request = request_for("diffreact2d", scratch("whole.h5"), 2);
    request.samples = 40;
    must_run(&request);
    const char *whole = request.path;
    request.path = scratch("x.h5");
    interrupt(&request);

    char journal[300], *text;
    size_t length;
    snprintf(journal, sizeof journal, "%s/.x.h5.ups-journal", scratch_directory);
    read_all(journal, &text, &length);
    const char *first_line = strchr(text, '\n') + 1;
    const int64_t lines = (int64_t)(length - (size_t)(first_line - text)) / 20;
    assert_true(lines > 3);
    text[length - 25] ^= 1; /* the last line but one is damaged, and the last torn */
    assert_int_equal(ups_publish_bytes(journal, text, length - 5, &error), UPS_OK);
    free(text);
    assert_int_equal(must_run(&request).continued, lines - 2);
    assert_same_file(whole, request.path);
}

static void a_run_whose_data_is_gone_begins_again(void **state) {
    ups_datagen_request request = request_for("diffreact2d", scratch("x.h5"), 2);
    request.samples = 40;
    interrupt(&request);
    assert_int_equal(unlink(scratch(".x.h5.ups-unfinished")), 0);
    request.samples = 3;
    assert_int_equal(must_run(&request).continued, 0);
    assert_int_equal(entries(), 1);
}

static void data_that_is_damaged_is_refused_and_restart_makes_it_anew(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request request = request_for("diffreact2d", scratch("x.h5"), 2);
    request.samples = 40;
    interrupt(&request);
    assert_int_equal(truncate(scratch(".x.h5.ups-unfinished"), 5000), 0);
    assert_int_not_equal(ups_datagen_run(&request, &result, &error), UPS_OK);
    assert_contains(error.message, "--restart");
    request.restart = true;
    request.samples = 3;
    must_run(&request);
    assert_int_equal(entries(), 1);
}

static void two_processes_do_not_make_one_file(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request request = request_for("diffreact2d", scratch("x.h5"), 1), other = request;
    copy_solver(&other);
    chosen.solve = never_solve;
    const pid_t child = start(&other);
    while (entries() < 2 && waitpid(child, NULL, WNOHANG) == 0)
        usleep(1000); /* the journal is locked, the file begun */
    const ups_status status = ups_datagen_run(&request, &result, &error);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(status, UPS_ERR_IO);
    assert_contains(error.message, "another process");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        in_a_directory(killed_after_its_file_has_its_name_it_has_made_it),
        in_a_directory(killed_at_any_moment_it_ends_with_the_same_bytes),
        in_a_directory(a_cancelled_run_keeps_every_complete_sample_and_says_how_to_go_on),
        in_a_directory(other_settings_do_not_continue_a_run),
        in_a_directory(a_torn_journal_is_believed_as_far_as_it_holds),
        in_a_directory(a_run_whose_data_is_gone_begins_again),
        in_a_directory(data_that_is_damaged_is_refused_and_restart_makes_it_anew),
        in_a_directory(two_processes_do_not_make_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
