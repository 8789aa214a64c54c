/* Several processes building one cache: every shard built by somebody, none torn, the same bytes as one process makes,
 * whoever is killed on the way. UPS_TEST_KILLS=N kills N times instead of 20. */
#include "base/files.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "cache/inspect/verify.h"
#include "cache/store/document.h"
#include "cache/store/group.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

enum { SAMPLES = 95, TIMES = 18, TOKENS = 4, DIM = 24, PER_SHARD = 4, PROCESSES = 4, USUAL_KILLS = 20 };

static ups_cache_description usual(void) {
    return fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
}

static void pause_for(double seconds) {
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

/* Takes and puts until the group is complete; *put counts what this process did. */
static ups_status take_part(const char *directory, const ups_cache_description *d, int64_t *put, ups_error *error) {
    ups_cache_writer *writer;
    *put = 0;
    UPS_TRY(ups_cache_writer_open(directory, d, &writer, error));
    int64_t *taken = malloc((size_t)ups_cache_writer_room(writer, PER_SHARD) * sizeof *taken), count;
    float *latents = malloc((size_t)(d->times * d->tokens * d->dim) * sizeof *latents);
    ups_status status = UPS_OK;
    while (status == UPS_OK && ups_cache_writer_done_count(writer) < d->samples) {
        status = ups_cache_writer_take(writer, PER_SHARD, taken, &count, error);
        for (int64_t i = 0; i < count && status == UPS_OK; i++) {
            fixture_latents(taken[i], d->times, d->tokens, d->dim, latents);
            status = ups_cache_writer_put(writer, taken[i], "waves", latents, error);
            ++*put;
        }
        if (status == UPS_OK && count == 0) {
            pause_for(0.002);
            status = ups_cache_writer_refresh(writer, error);
        }
    }
    if (status == UPS_OK) status = ups_cache_writer_finish(writer, NULL, error);
    ups_cache_writer_close(writer);
    free(latents);
    free(taken);
    return status;
}

/* A child that takes part; it exits with 0 once the cache is complete. Its count of samples goes to `report` (−1: to
 * nobody). */
static pid_t start_builder(const char *directory, const ups_cache_description *d, int report) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) return child;
    ups_error error = {0};
    int64_t put;
    ups_status status = take_part(directory, d, &put, &error);
    if (status != UPS_OK) fprintf(stderr, "%s\n", error.message);
    if (report >= 0 && write(report, &put, sizeof put) != (ssize_t)sizeof put) _exit(2);
    _exit(status == UPS_OK ? 0 : 1);
}

static void assert_ends_well(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void four_processes_share_the_work_and_make_the_bytes_of_one(void **state) {
    char *alone = fixture_directory(), *together = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(alone, &d, 1);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t children[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        d.rank = p;
        d.ranks = PROCESSES;
        children[p] = start_builder(together, &d, pipes[1]);
    }
    int64_t sum = 0, put;
    for (int p = 0; p < PROCESSES; p++) {
        assert_ends_well(children[p]);
        assert_int_equal(read(pipes[0], &put, sizeof put), sizeof put);
        sum += put;
    }
    assert_int_equal(sum, SAMPLES); /* nothing was encoded twice */
    fixture_assert_same_tree(alone, together);
    close(pipes[0]);
    close(pipes[1]);
}

/* Every shard that has its name is whole at every moment. */
static void assert_no_torn_shard(const char *directory, const ups_cache_description *d) {
    char *group = fixture_join(directory, "waves/train"), *document = fixture_join(group, "zarr.json");
    const bool begun = ups_path_exists(document); /* which comes before all shards */
    if (!begun) return;
    ups_cache_shape shape = {d->samples, {d->times, d->tokens, d->dim}, d->samples_per_shard};
    ups_chunk_place places[PER_SHARD];
    ups_error error, changed;
    json_t *attributes;
    assert_int_equal(ups_document_read_group(group, &attributes, &changed, &error), UPS_OK);
    assert_int_equal(changed.code, UPS_OK);
    for (int64_t s = 0; s < ups_cache_shard_count(shape); s++) {
        char *path = ups_cache_shard_path(group, s);
        ups_shard_identity identity = ups_document_identity(attributes, s);
        if (ups_path_exists(path) && ups_shard_read_index(path, &identity, shape.samples_per_shard, s * PER_SHARD,
                                                          places, NULL, &error) != UPS_OK) {
            fail_msg("%s", error.message);
        }
        free(path);
    }
    json_decref(attributes);
}

/* Four at work, of which random ones are killed and, now and then, replaced, until `kills` met a running process or the
 * cache is complete; returns how many did. */
static int build_under_fire(const char *directory, const ups_cache_description *d, ups_random stream, uint64_t *draw,
                            double whole, int kills) {
    pid_t children[PROCESSES];
    int killed = 0, living = PROCESSES;
    for (int p = 0; p < PROCESSES; p++) children[p] = start_builder(directory, d, -1);
    while (living > 0) {
        pause_for(ups_random_uniform(stream, (*draw)++) * whole);
        assert_no_torn_shard(directory, d);
        int p = (int)(ups_random_uniform(stream, (*draw)++) * PROCESSES), status;
        bool shoot = killed < kills && ups_random_uniform(stream, (*draw)++) < 0.8;
        if (children[p] > 0 && shoot) kill(children[p], SIGKILL);
        for (int i = 0; i < PROCESSES; i++) {
            if (children[i] <= 0) continue;
            pid_t ended = waitpid(children[i], &status, shoot && i == p ? 0 : WNOHANG);
            if (ended == 0) continue;
            if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail_msg("a builder failed by itself");
            bool dead = WIFSIGNALED(status);
            killed += dead;
            children[i] = -1;
            living--;
            if (dead && ups_random_uniform(stream, (*draw)++) < 0.5) { /* another takes its place */
                children[i] = start_builder(directory, d, -1);
                living++;
            }
        }
    }
    return killed;
}

static void processes_killed_at_random_lose_and_tear_nothing(void **state) {
    const char *wanted = getenv("UPS_TEST_KILLS");
    int kills = wanted ? atoi(wanted) : USUAL_KILLS, killed = 0, rounds = 0;
    char *alone = fixture_directory();
    ups_cache_description d = usual();
    double began = ups_now();
    fixture_must_build(alone, &d, 1);
    double whole = ups_now() - began;
    uint64_t seed = (uint64_t)(began * 1e6), draw = 0;
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_TEST, 0);
    for (; killed < kills; rounds++) {
        assert_true(rounds < 20 * kills);
        char *together = fixture_directory();
        killed += build_under_fire(together, &d, stream, &draw, 0.5 * whole, kills - killed);
        assert_ends_well(start_builder(together, &d, -1)); /* all may have been killed: started once more, it ends */
        assert_int_equal(fixture_count_partials(together), 0);
        fixture_assert_same_tree(alone, together);
    }
    print_message("%d kills in %d builds\n", killed, rounds);
}

static void a_complete_cache_that_lost_a_shard_is_incomplete_until_it_is_whole(void **state) {
    char *alone = fixture_directory(), *mended = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(alone, &d, 1);
    fixture_must_build(mended, &d, 1);
    assert_int_equal(unlink(fixture_join(mended, "waves/train/latent/c/3/0/0/0")), 0);
    ups_cache_writer *writer = fixture_writer(mended, &d);
    ups_cache_group *group = fixture_group(mended);
    assert_false(group->complete);
    ups_cache_group_close(group);
    assert_int_equal(ups_cache_writer_done_count(writer), SAMPLES - PER_SHARD);
    ups_cache_writer_close(writer);
    fixture_must_build(mended, &d, 1);
    fixture_assert_same_tree(alone, mended);
}

static void what_others_completed_is_seen_and_not_built_again(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *first = fixture_writer(directory, &d), *second = fixture_writer(directory, &d);
    ups_error error;
    assert_int_equal(ups_cache_writer_look(second).others, 1);
    int64_t taken[2 * PER_SHARD], count, other[SAMPLES];
    assert_int_equal(ups_cache_writer_take(first, 2 * PER_SHARD, taken, &count, &error), UPS_OK);
    assert_int_equal(count, 2 * PER_SHARD);
    for (int64_t i = 0; i < PER_SHARD; i++) fixture_put(first, &d, taken[i]); /* one shard whole, one not begun */
    assert_int_equal(ups_cache_writer_done_count(second), 0);
    assert_int_equal(ups_cache_writer_refresh(second, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_done_count(second), PER_SHARD);
    assert_int_equal(ups_cache_writer_take(second, SAMPLES, other, &count, &error), UPS_OK);
    assert_int_equal(count, SAMPLES - 2 * PER_SHARD);
    ups_cache_writer_close(first); /* gives back what it had not built */
    assert_int_equal(ups_cache_writer_take(second, SAMPLES, other, &count, &error), UPS_OK);
    assert_int_equal(count, PER_SHARD);
    ups_cache_writer_close(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_processes_share_the_work_and_make_the_bytes_of_one),
        cmocka_unit_test(processes_killed_at_random_lose_and_tear_nothing),
        cmocka_unit_test(a_complete_cache_that_lost_a_shard_is_incomplete_until_it_is_whole),
        cmocka_unit_test(what_others_completed_is_seen_and_not_built_again),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
