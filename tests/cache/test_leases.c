/* Leases: one holder each, expired ones are taken over, nothing is left behind. */
#include "base/files.h"
#include "base/json.h"
#include "base/system/threads.h"
#include "cache/build/leases.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

static const ups_leases_timing quick = {.heartbeat = 0.05, .timeout = 0.4};

static ups_leases *join_with(const char *directory, const char *purpose, ups_leases_timing timing) {
    ups_leases *leases;
    ups_error error;
    if (ups_leases_join(directory, purpose, timing, &leases, &error) != UPS_OK) fail_msg("%s", error.message);
    return leases;
}

static ups_leases *join(const char *directory, const char *purpose) {
    return join_with(directory, purpose, quick);
}

static bool take(ups_leases *leases, const char *name) {
    bool ours;
    ups_error error;
    if (ups_leases_take(leases, name, &ours, &error) != UPS_OK) fail_msg("%s", error.message);
    return ours;
}

static void pause_for(double seconds) {
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

static void a_claim_has_one_holder_until_it_is_given_back(void **state) {
    char *directory = fixture_directory();
    ups_leases *a = join(directory, "x"), *b = join(directory, "x");
    assert_true(take(a, "shard-1"));
    assert_true(take(a, "shard-1"));
    assert_false(take(b, "shard-1"));
    assert_true(take(b, "shard-2"));
    ups_leases_release(b, "shard-1"); /* not b's to give */
    assert_false(take(b, "shard-1"));
    ups_leases_release(a, "shard-1");
    assert_true(take(b, "shard-1"));
    ups_leases_leave(b);
    assert_true(take(a, "shard-1"));
    assert_true(take(a, "shard-2"));
    ups_leases_leave(a);
    assert_false(ups_path_exists(fixture_join(directory, ".building")));
}

static void builders_see_each_other_and_what_for(void **state) {
    char *directory = fixture_directory();
    ups_leases *a = join(directory, "x");
    assert_int_equal(ups_leases_look(a).count, 0);
    ups_leases *b = join(directory, "x"), *c = join(directory, "y");
    ups_leases_others others = ups_leases_look(a);
    assert_int_equal(others.count, 2);
    assert_int_equal(others.other_purpose, 1);
    char expected[40];
    snprintf(expected, sizeof expected, "process %d on ", (int)getpid());
    assert_contains(others.example, expected);
    ups_leases_leave(c);
    ups_leases_leave(b);
    assert_int_equal(ups_leases_look(a).count, 0);
    ups_leases_leave(a);
}

static void a_killed_process_of_this_host_loses_its_claims_at_once(void **state) {
    char *directory = fixture_directory();
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        ups_leases *leases;
        bool ours = false;
        if (ups_leases_join(directory, "x", (ups_leases_timing){0}, &leases, NULL) == UPS_OK)
            ups_leases_take(leases, "shard-1", &ours, NULL);
        if (write(pipes[1], &ours, 1) != 1) _exit(1);
        for (;;) pause();
    }
    bool ours = false;
    assert_int_equal(read(pipes[0], &ours, 1), 1);
    assert_true(ours);
    ups_leases *leases = join_with(directory, "x", (ups_leases_timing){0});
    assert_false(take(leases, "shard-1"));
    kill(child, SIGKILL);
    siginfo_t ended; /* it stays a zombie: not even a parent that does not wait for it keeps its leases alive */
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_true(take(leases, "shard-1"));
    assert_int_equal(waitpid(child, NULL, 0), child);
    ups_leases_leave(leases);
    assert_false(ups_path_exists(fixture_join(directory, ".building")));
    close(pipes[0]);
    close(pipes[1]);
}

/* The record and lease of a builder on another host, whose process nobody here can ask for. */
static char *make_foreign_builder(const char *directory, const char *lease) {
    char *folder = fixture_join(directory, ".building"), *record = fixture_join(folder, "builder-feed");
    char *link = fixture_join(folder, lease);
    json_t *facts = json_pack("{s:s, s:i, s:s, s:s, s:i, s:s}", "host", "node3", "pid", (int)getpid(), "boot",
                              "another", "pid_space", "another", "started", 1, "purpose", "x");
    assert_int_equal(ups_make_directories(folder, NULL), UPS_OK);
    assert_int_equal(ups_json_publish(record, facts, NULL), UPS_OK);
    assert_int_equal(symlink("builder-feed", link), 0);
    json_decref(facts);
    return record;
}

static void a_builder_elsewhere_expires_only_when_its_heartbeat_stops(void **state) {
    /* Longer than a busy machine holds this test up between a heartbeat and a look. */
    static const ups_leases_timing patient = {.heartbeat = 0.05, .timeout = 3};
    char *directory = fixture_directory(), *record = make_foreign_builder(directory, "shard-1");
    ups_leases *leases = join_with(directory, "x", patient);
    double began = 0; /* before its last heartbeat was seen */
    /* Its clock may be years off: only change counts. */
    for (int i = 0; i < 16; i++) { /* for longer than the timeout */
        struct timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, record, times, 0), 0);
        began = ups_now();
        assert_false(take(leases, "shard-1"));
        assert_int_equal(ups_leases_look(leases).count, 1);
        pause_for(0.2);
    }
    while (!take(leases, "shard-1")) {
        assert_true(ups_now() - began < 300);
        pause_for(0.02);
    }
    assert_true(ups_now() - began > patient.timeout);
    assert_int_equal(ups_leases_look(leases).count, 0);
    ups_leases_leave(leases);
    assert_false(ups_path_exists(fixture_join(directory, ".building")));
}

static void a_builder_that_was_given_up_wrongly_shows_itself_again(void **state) {
    char *directory = fixture_directory(), *folder = fixture_join(directory, ".building");
    ups_leases *a = join(directory, "x"), *b = join(directory, "x");
    assert_int_equal(ups_leases_look(a).count, 1);
    ups_leases *third = join(directory, "x");
    char command[600];
    snprintf(command, sizeof command, "rm -f %s/builder-*", folder);
    assert_int_equal(system(command), 0);
    double began = ups_now();
    while (ups_leases_look(a).count < 2) {
        assert_true(ups_now() - began < 300);
        pause_for(0.02);
    }
    ups_leases_leave(third);
    ups_leases_leave(b);
    ups_leases_leave(a);
    assert_false(ups_path_exists(folder));
}

enum { RACERS = 4, ROUNDS = 200 };

/* Every racer takes what it can of the same leases; the sum of what all took is written down by each. */
static void of_many_that_reach_for_a_claim_exactly_one_gets_it(void **state) {
    char *directory = fixture_directory();
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t racers[RACERS];
    for (int r = 0; r < RACERS; r++) {
        racers[r] = fork();
        assert_true(racers[r] >= 0);
        if (racers[r] != 0) continue;
        ups_leases *leases;
        if (ups_leases_join(directory, "x", quick, &leases, NULL) != UPS_OK) _exit(1);
        unsigned char got[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            char name[40];
            bool ours;
            snprintf(name, sizeof name, "shard-%d", i);
            if (ups_leases_take(leases, name, &ours, NULL) != UPS_OK) _exit(1);
            got[i] = ours;
        }
        if (write(pipes[1], got, sizeof got) != (ssize_t)sizeof got) _exit(1);
        pause(); /* holds what it has until all are done */
        _exit(0);
    }
    int holders[ROUNDS] = {0};
    for (int r = 0; r < RACERS; r++) {
        unsigned char got[ROUNDS];
        size_t have = 0;
        while (have < sizeof got) {
            ssize_t n = read(pipes[0], got + have, sizeof got - have);
            assert_true(n > 0);
            have += (size_t)n;
        }
        for (int i = 0; i < ROUNDS; i++) holders[i] += got[i];
    }
    for (int r = 0; r < RACERS; r++) {
        kill(racers[r], SIGKILL);
        waitpid(racers[r], NULL, 0);
    }
    for (int i = 0; i < ROUNDS; i++) assert_int_equal(holders[i], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_has_one_holder_until_it_is_given_back),
        cmocka_unit_test(builders_see_each_other_and_what_for),
        cmocka_unit_test(a_killed_process_of_this_host_loses_its_claims_at_once),
        cmocka_unit_test(a_builder_elsewhere_expires_only_when_its_heartbeat_stops),
        cmocka_unit_test(a_builder_that_was_given_up_wrongly_shows_itself_again),
        cmocka_unit_test(of_many_that_reach_for_a_claim_exactly_one_gets_it),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
