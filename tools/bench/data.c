#include "tools/bench/data.h"

#include "base/files.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "cache/build/writer.h"
#include "cache/store/fingerprint.h"
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMES = 201, TOKENS = 128, DIM = 128, SERIES = TOKENS * DIM };

ups_status ups_bench_directory(char **path, ups_error *error) {
    const char *parent = getenv("TMPDIR");
    if (asprintf(path, "%s/ups-bench-XXXXXX", parent && *parent ? parent : "/tmp") < 0) {
        *path = NULL;
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a path");
    }
    if (mkdtemp(*path)) return UPS_OK;
    ups_status status =
        ups_fail_errno(error, "%s: cannot be made; set TMPDIR to a directory that can be written", *path);
    free(*path);
    *path = NULL;
    return status;
}

static int remove_entry(const char *path, const struct stat *entry, int kind, struct FTW *where) {
    return remove(path);
}

void ups_bench_remove(char *path) {
    enum { DESCRIPTORS = 16 };
    if (path) (void)nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
    free(path);
}

/* Two waves a series, each stepped by a rotation instead of a sine. */
static void make_trajectory(int64_t sample, float *values) {
    enum { WAVES = 2 };
    ups_random stream = ups_random_stream(1, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    for (int64_t s = 0; s < SERIES; s++) {
        float real[WAVES], imaginary[WAVES], turn_real[WAVES], turn_imaginary[WAVES];
        for (int w = 0; w < WAVES; w++) {
            const uint64_t draw = (uint64_t)(s * WAVES + w) * 3;
            double amplitude = (w ? 0.3 : 2.0) * ups_random_uniform(stream, draw);
            double phase = 2 * M_PI * ups_random_uniform(stream, draw + 1);
            double step = 2 * M_PI / TIMES * (w ? 3.0 + 4.0 * ups_random_uniform(stream, draw + 2) : 1.0);
            real[w] = (float)(amplitude * cos(phase));
            imaginary[w] = (float)(amplitude * sin(phase));
            turn_real[w] = (float)cos(step);
            turn_imaginary[w] = (float)sin(step);
        }
        for (int64_t t = 0; t < TIMES; t++) {
            values[t * SERIES + s] = real[0] + real[1];
            for (int w = 0; w < WAVES; w++) {
                float next = real[w] * turn_real[w] - imaginary[w] * turn_imaginary[w];
                imaginary[w] = real[w] * turn_imaginary[w] + imaginary[w] * turn_real[w];
                real[w] = next;
            }
        }
    }
}

typedef struct making {
    ups_cache_writer *writer;
    float **values; /* one a thread */
} making;

static ups_status make_one(void *context, int64_t sample, int thread, ups_error *error) {
    making *m = context;
    char name[32];
    snprintf(name, sizeof name, "bench, sample %d", (int)sample);
    make_trajectory(sample, m->values[thread]);
    return ups_cache_writer_put(m->writer, sample, name, m->values[thread], error);
}

static ups_status make_all(ups_cache_writer *writer, int64_t samples, ups_error *error) {
    ups_pool *pool = ups_pool_create(0);
    int threads = pool ? ups_pool_threads(pool) : 0;
    making m = {.writer = writer, .values = calloc((size_t)threads + 1, sizeof *m.values)};
    bool fine = pool && m.values;
    for (int i = 0; i < threads && fine; i++) fine = (m.values[i] = malloc(sizeof(float) * TIMES * SERIES)) != NULL;
    ups_status status = fine ? ups_pool_run(pool, samples, make_one, &m, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "no memory to make latents");
    for (int i = 0; m.values && i < threads; i++) free(m.values[i]);
    free(m.values);
    ups_pool_destroy(pool);
    return status;
}

ups_status ups_bench_make_latents(const char *directory, int64_t samples, bool portable, char **group,
                                  ups_error *error) {
    double time[TIMES];
    for (int t = 0; t < TIMES; t++) time[t] = 0.01 * t;
    ups_cache_description description = {.task = "bench",
                                         .split = "train",
                                         .samples = samples,
                                         .times = TIMES,
                                         .tokens = TOKENS,
                                         .dim = DIM,
                                         .codec = {.portable = portable},
                                         .time = time};
    memset(&description.fingerprint, '0', sizeof description.fingerprint);
    char *parts[] = {description.fingerprint.encoder_weights, description.fingerprint.encoder_configuration,
                     description.fingerprint.normalisation, description.fingerprint.source};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) parts[i][32] = '\0';
    strcpy(description.fingerprint.device, "cpu");
    ups_fingerprint_bound(0, description.fingerprint.max_abs_error);
    ups_cache_writer *writer = NULL;
    *group = NULL;
    UPS_TRY(ups_cache_writer_open(directory, &description, &writer, error));
    ups_status status = make_all(writer, samples, error);
    if (status == UPS_OK) status = ups_cache_writer_finish(writer, NULL, error);
    if (status == UPS_OK) *group = strdup(ups_cache_writer_directory(writer));
    ups_cache_writer_close(writer);
    if (status == UPS_OK && !*group) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a path");
    return status;
}

ups_status ups_bench_make_file(const char *directory, uint64_t bytes, char **path, ups_error *error) {
    enum { PART = 1 << 20 };
    *path = NULL;
    uint32_t *part = malloc(PART);
    if (!part || asprintf(path, "%s/random.bin", directory) < 0) {
        free(part);
        *path = NULL;
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to make a file");
    }
    ups_publication *publication = NULL;
    ups_status status = ups_publish_begin(*path, &publication, error);
    for (uint64_t at = 0; at < bytes && status == UPS_OK; at += PART) {
        ups_random stream = ups_random_stream(2, UPS_RANDOM_DATAGEN, (uint32_t)(at / PART));
        for (uint32_t i = 0; i < PART / sizeof *part; i++) part[i] = ups_random_u32(stream, i);
        status = ups_publish_append(publication, part, PART, error);
    }
    if (status == UPS_OK)
        status = ups_publish_commit(publication, error);
    else
        ups_publish_abandon(publication);
    free(part);
    if (status == UPS_OK) return UPS_OK;
    free(*path);
    *path = NULL;
    return status;
}
