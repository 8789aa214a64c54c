#include "fixture.h"

#include "base/files.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "tests/base/testing.h"

#include <fts.h>
#include <math.h>

#define MOST 4096 /* samples or times of any fixture */

void fixture_latents(int64_t sample, int64_t times, int64_t tokens, int64_t dim, float *latents) {
    ups_random stream = ups_random_stream(7, UPS_RANDOM_TEST, (uint32_t)(sample % 5));
    for (int64_t k = 0; k < tokens; k++) {
        for (int64_t d = 0; d < dim; d++) {
            uint64_t base = (uint64_t)(k * dim + d) * 6;
            double a = 3 * ups_random_uniform(stream, base) - 1, b = 0.5 * ups_random_uniform(stream, base + 1);
            double f = 1 + 2 * ups_random_uniform(stream, base + 2), g = 3 + 5 * ups_random_uniform(stream, base + 3);
            double p = ups_random_uniform(stream, base + 4) + 0.01 * (double)sample,
                   q = ups_random_uniform(stream, base + 5);
            for (int64_t t = 0; t < times; t++) {
                double x = (double)t / 100.0, turn = 6.283185307179586;
                latents[(t * tokens + k) * dim + d] =
                    (float)(a * sin(turn * (f * x + p)) + b * sin(turn * (g * x + q)));
            }
        }
    }
}

ups_cache_description fixture_description(int64_t samples, int64_t times, int64_t tokens, int64_t dim,
                                          int64_t samples_per_shard) {
    static double time[MOST], parameters[2 * MOST];
    static const char *const names[] = {"beta", "nu"};
    for (int64_t t = 0; t < times; t++) time[t] = 0.05 * (double)t;
    for (int64_t i = 0; i < samples; i++) {
        parameters[2 * i] = 0.1 * (double)i;
        parameters[2 * i + 1] = i % 3 ? 1e-3 : NAN;
    }
    return (ups_cache_description){
        .task = "waves",
        .split = "train",
        .samples = samples,
        .times = times,
        .tokens = tokens,
        .dim = dim,
        .time = time,
        .parameter_count = 2,
        .parameter_names = names,
        .parameters = parameters,
        .fingerprint = {"00000000000000000000000000000001", "00000000000000000000000000000002",
                        "00000000000000000000000000000003", "00000000000000000000000000000004", "0", ""},
        .samples_per_shard = samples_per_shard,
    };
}

typedef struct build {
    ups_cache_writer *writer;
    const ups_cache_description *description;
} build;

static ups_status put_one(void *context, int64_t sample, int thread, ups_error *error) {
    build *b = context;
    if (ups_cache_writer_done(b->writer, sample)) return UPS_OK;
    const ups_cache_description *d = b->description;
    float *latents = malloc((size_t)(d->times * d->tokens * d->dim) * sizeof *latents);
    if (!latents) return ups_fail(error, UPS_ERR_MEMORY, "no memory");
    fixture_latents(sample, d->times, d->tokens, d->dim, latents);
    char name[40];
    snprintf(name, sizeof name, "waves.h5, sample %lld", (long long)sample);
    ups_status status = ups_cache_writer_put(b->writer, sample, name, latents, error);
    free(latents);
    return status;
}

ups_status fixture_build(const char *directory, const ups_cache_description *description, int threads,
                         ups_error *error) {
    build b = {.description = description};
    UPS_TRY(ups_cache_writer_open(directory, description, &b.writer, error));
    ups_pool *pool = ups_pool_create(threads);
    ups_status status = ups_pool_run(pool, description->samples, put_one, &b, error);
    ups_pool_destroy(pool);
    if (status == UPS_OK) status = ups_cache_writer_finish(b.writer, NULL, error);
    ups_cache_writer_close(b.writer);
    return status;
}

void fixture_must_build(const char *directory, const ups_cache_description *description, int threads) {
    ups_error error;
    if (fixture_build(directory, description, threads, &error) != UPS_OK) fail_msg("%s", error.message);
}

ups_cache_writer *fixture_writer(const char *directory, const ups_cache_description *description) {
    ups_cache_writer *writer;
    ups_error error;
    if (ups_cache_writer_open(directory, description, &writer, &error) != UPS_OK) fail_msg("%s", error.message);
    return writer;
}

void fixture_put(ups_cache_writer *writer, const ups_cache_description *description, int64_t sample) {
    ups_error error;
    build b = {writer, description};
    if (put_one(&b, sample, 0, &error) != UPS_OK) fail_msg("%s", error.message);
}

void fixture_finish(ups_cache_writer *writer) {
    ups_error error;
    if (ups_cache_writer_finish(writer, NULL, &error) != UPS_OK) fail_msg("%s", error.message);
    ups_cache_writer_close(writer);
}

ups_cache_group *fixture_group(const char *directory) {
    ups_cache_group *group;
    ups_error error;
    if (ups_cache_group_open(fixture_join(directory, "waves/train"), &group, &error) != UPS_OK)
        fail_msg("%s", error.message);
    return group;
}

static ups_verify_report verified;

const ups_verify_report *fixture_verify(const char *group) {
    ups_error error;
    ups_verify_report_free(&verified);
    ups_pool *pool = ups_pool_create(2);
    ups_status status = ups_cache_verify(group, pool, NULL, NULL, &verified, &error);
    ups_pool_destroy(pool);
    if (status != UPS_OK) fail_msg("%s", error.message);
    return &verified;
}

/* What fixture_clear frees, and where it is the name of a directory, removes. */
typedef struct kept {
    struct kept *next;
    char *memory;
    bool directory;
} kept;
static kept *all_kept;

static char *keep(char *memory, bool directory) {
    kept *k = malloc(sizeof *k);
    *k = (kept){all_kept, memory, directory};
    all_kept = k;
    return memory;
}

int fixture_clear(void **state) {
    while (all_kept) {
        kept *k = all_kept;
        all_kept = k->next;
        if (k->directory && ups_remove_tree(k->memory, NULL) != UPS_OK) return -1;
        free(k->memory);
        free(k);
    }
    ups_verify_report_free(&verified);
    return 0;
}

char *fixture_directory(void) {
    const char *parent = getenv("TMPDIR");
    if (!parent) parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* syncing costs nothing in memory */
    char *path = NULL;
    assert_true(asprintf(&path, "%s/ups-cache-XXXXXX", parent) > 0);
    assert_non_null(mkdtemp(path));
    return keep(path, true);
}

char *fixture_join(const char *a, const char *b) {
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", a, b) > 0);
    return keep(path, false);
}

char *fixture_read(const char *path, size_t *length) {
    char *bytes;
    ups_error error;
    if (ups_read_file(path, 1u << 30, &bytes, length, &error) != UPS_OK) fail_msg("%s", error.message);
    return keep(bytes, false);
}

void fixture_copy(const char *directory, const char *to) {
    char command[8300];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", directory, to);
    assert_int_equal(system(command), 0);
}

/* Every file below a has a twin below b; returns how many there are. */
static int64_t compare_below(const char *a, const char *b) {
    char *paths[] = {(char *)a, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int64_t files = 0;
    for (FTSENT *entry; (entry = fts_read(walk));) {
        if (entry->fts_info != FTS_F) continue;
        const char *twin = fixture_join(b, entry->fts_path + strlen(a) + 1);
        char *bytes, *others;
        size_t length, other_length;
        ups_error error;
        assert_int_equal(ups_read_file(entry->fts_path, 1u << 30, &bytes, &length, &error), UPS_OK);
        if (ups_read_file(twin, 1u << 30, &others, &other_length, &error) != UPS_OK) fail_msg("%s", error.message);
        if (length != other_length || memcmp(bytes, others, length) != 0)
            fail_msg("%s and %s differ", entry->fts_path, twin);
        free(bytes);
        free(others);
        files++;
    }
    fts_close(walk);
    return files;
}

void fixture_assert_same_tree(const char *a, const char *b) {
    int64_t files = compare_below(a, b);
    assert_true(files > 0);
    assert_int_equal(files, compare_below(b, a));
}

int64_t fixture_count_partials(const char *directory) {
    char *paths[] = {(char *)directory, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int64_t partials = 0;
    for (FTSENT *entry; (entry = fts_read(walk));) partials += strstr(entry->fts_name, ".ups-partial-") != NULL;
    fts_close(walk);
    return partials;
}
