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
#include <sys/wait.h>
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

static void build_alone(const char *directory, const ups_cache_description *d) {
    ups_error error;
    if (fixture_build(directory, d, 1, &error) != UPS_OK) fail_msg("%s", error.message);
}

static void four_processes_share_the_work_and_make_the_bytes_of_one(void **state) {
    char *alone = fixture_directory(), *together = fixture_directory();
    ups_cache_description d = usual();
    build_alone(alone, &d);
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
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(read(pipes[0], &put, sizeof put), sizeof put);
        sum += put;
    }
    assert_int_equal(sum, SAMPLES); /* nothing was encoded twice */
    fixture_assert_same_tree(alone, together);
    close(pipes[0]);
    close(pipes[1]);
    fixture_remove(alone);
    fixture_remove(together);
}

/* Every shard that has its name is whole at every moment. */
static void assert_no_torn_shard(const char *directory, const ups_cache_description *d) {
    char *group = fixture_join(directory, "waves/train"), *document = fixture_join(group, "zarr.json");
    const bool begun = ups_path_exists(document); /* which comes before all shards */
    free(document);
    if (!begun) {
        free(group);
        return;
    }
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
    free(group);
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
    build_alone(alone, &d);
    double whole = ups_now() - began;
    uint64_t seed = (uint64_t)(began * 1e6), draw = 0;
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_TEST, 0);
    for (; killed < kills; rounds++) {
        assert_true(rounds < 20 * kills);
        char *together = fixture_directory();
        killed += build_under_fire(together, &d, stream, &draw, 0.5 * whole, kills - killed);
        pid_t last = start_builder(together, &d, -1); /* all may have been killed: started once more, it ends */
        int status;
        assert_int_equal(waitpid(last, &status, 0), last);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(fixture_count_partials(together), 0);
        fixture_assert_same_tree(alone, together);
        fixture_remove(together);
    }
    print_message("%d kills in %d builds\n", killed, rounds);
    fixture_remove(alone);
}

static ups_cache_group *open_group(const char *directory) {
    char *path = fixture_join(directory, "waves/train");
    ups_cache_group *group;
    ups_error error;
    if (ups_cache_group_open(path, &group, &error) != UPS_OK) fail_msg("%s", error.message);
    free(path);
    return group;
}

static void a_complete_cache_that_lost_a_shard_is_incomplete_until_it_is_whole(void **state) {
    char *alone = fixture_directory(), *mended = fixture_directory();
    ups_cache_description d = usual();
    build_alone(alone, &d);
    build_alone(mended, &d);
    char *shard = fixture_join(mended, "waves/train/latent/c/3/0/0/0");
    assert_int_equal(unlink(shard), 0);
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(mended, &d, &writer, &error), UPS_OK);
    ups_cache_group *group = open_group(mended);
    assert_false(group->complete);
    ups_cache_group_close(group);
    assert_int_equal(ups_cache_writer_done_count(writer), SAMPLES - PER_SHARD);
    ups_cache_writer_close(writer);
    build_alone(mended, &d);
    fixture_assert_same_tree(alone, mended);
    free(shard);
    fixture_remove(alone);
    fixture_remove(mended);
}

static void what_others_completed_is_seen_and_not_built_again(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *first, *second;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(directory, &d, &first, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_open(directory, &d, &second, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_look(second).others, 1);
    int64_t taken[2 * PER_SHARD], count, other[SAMPLES];
    float latents[TIMES * TOKENS * DIM];
    assert_int_equal(ups_cache_writer_take(first, 2 * PER_SHARD, taken, &count, &error), UPS_OK);
    assert_int_equal(count, 2 * PER_SHARD);
    for (int64_t i = 0; i < PER_SHARD; i++) { /* one shard whole, one not begun */
        fixture_latents(taken[i], TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_put(first, taken[i], "x", latents, &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_done_count(second), 0);
    assert_int_equal(ups_cache_writer_refresh(second, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_done_count(second), PER_SHARD);
    assert_int_equal(ups_cache_writer_take(second, SAMPLES, other, &count, &error), UPS_OK);
    assert_int_equal(count, SAMPLES - 2 * PER_SHARD);
    ups_cache_writer_close(first); /* gives back what it had not built */
    assert_int_equal(ups_cache_writer_take(second, SAMPLES, other, &count, &error), UPS_OK);
    assert_int_equal(count, PER_SHARD);
    ups_cache_writer_close(second);
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_processes_share_the_work_and_make_the_bytes_of_one),
        cmocka_unit_test(processes_killed_at_random_lose_and_tear_nothing),
        cmocka_unit_test(a_complete_cache_that_lost_a_shard_is_incomplete_until_it_is_whole),
        cmocka_unit_test(what_others_completed_is_seen_and_not_built_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
