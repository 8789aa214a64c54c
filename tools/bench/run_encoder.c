#include "tools/bench/run_encoder.h"

#include "base/arena.h"
#include "base/system/threads.h"
#include "tools/bench/go_on.h"
#include "tools/bench/median.h"
#include "train/data/batches.h"
#include "train/data/encoding/frame_encoder.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAXIMUM_ROUNDS = 101 };

typedef struct bench_encoder {
    const ups_task *task;
    ups_frame_encoder *encoder;
    float *fields;  /* a trajectory */
    float seen;     /* of its latents, so that nobody leaves them out */
    double until;   /* when to stop */
    int64_t frames; /* encoded */
    ups_status status;
    ups_error error;
} bench_encoder;

static void close_encoder(bench_encoder *b) {
    ups_frame_encoder_close(b->encoder);
    ups_aligned_free(b->fields);
}

static ups_status open_encoder(const ups_session *session, const ups_task *task, int number, int threads,
                               bench_encoder *b, ups_error *error) {
    int64_t times = task->geometry.times;
    if (task->splits.count[UPS_SPLIT_TRAIN] == 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "task '%s': its training split is empty; encoding is timed on it",
                        task->name);
    }
    size_t fields = (size_t)(times * ups_sample_frame_elements(&task->geometry)) * sizeof(float);
    *b = (bench_encoder){.task = task, .fields = ups_aligned_alloc(64, fields)};
    if (!b->fields) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a trajectory");
    int64_t sample = task->splits.samples[UPS_SPLIT_TRAIN][number % task->splits.count[UPS_SPLIT_TRAIN]];
    ups_loader_options options = ups_sequential_loader_options(session->config);
    ups_loader_task loaded = {.name = task->name, .source = task->source, .samples = &sample, .sample_count = 1};
    ups_loader *loader = NULL;
    const ups_batch *batch = NULL;
    UPS_TRY(ups_loader_open(&options, &loaded, 1, &loader, error));
    ups_status status = ups_loader_next(loader, &batch, error);
    if (status == UPS_OK) memcpy(b->fields, batch->data, fields);
    ups_loader_close(loader);
    if (status == UPS_OK) status = ups_frame_encoder_open(session, task, threads, &b->encoder, error);
    return status;
}

static void look(void *context, const float *latents, int64_t count) {
    bench_encoder *b = context;
    b->seen += latents[0] * (float)count;
}

static void *run(void *context) {
    bench_encoder *b = context;
    int64_t times = b->task->geometry.times;
    while (b->status == UPS_OK && ups_now() < b->until && (b->status = ups_bench_go_on(&b->error)) == UPS_OK) {
        b->status = ups_frame_encoder_stream(b->encoder, b->task, b->fields, look, b, &b->error);
        b->frames += times;
    }
    return NULL;
}

/* All encoders for some seconds: frames a second, and CPU time a frame in microseconds. */
static ups_status measure(bench_encoder *encoders, int count, double seconds, double *rate, double *cpu_us,
                          ups_error *error) {
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    if (!threads) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d threads", count);
    double began = ups_now(), used = ups_process_seconds();
    int running = 0;
    while (running < count) {
        encoders[running].frames = 0;
        encoders[running].until = began + seconds;
        if (pthread_create(&threads[running], NULL, run, &encoders[running]) != 0) break;
        running++;
    }
    for (int i = 0; i < running; i++) pthread_join(threads[i], NULL);
    used = ups_process_seconds() - used;
    double passed = ups_now() - began;
    free(threads);
    if (running < count) return ups_fail(error, UPS_ERR_MEMORY, "%d threads could not be started", count);
    int64_t frames = 0;
    for (int i = 0; i < count; i++) {
        frames += encoders[i].frames;
        if (encoders[i].status == UPS_OK) continue;
        *error = encoders[i].error;
        return encoders[i].status;
    }
    *rate = (double)frames / passed;
    *cpu_us = 1e6 * used / (double)frames;
    return UPS_OK;
}

ups_status ups_bench_run_encoder(const ups_session *session, const ups_task *task, double seconds, int64_t rounds,
                                 ups_encoder_rate *apart, ups_encoder_rate *fused, ups_error *error) {
    enum { WAYS = 2 };
    const int processors = ups_frame_encoder_processors(session->device);
    ups_encoder_rate *const results[WAYS] = {apart, fused};
    double rates[WAYS][MAXIMUM_ROUNDS], used[WAYS][MAXIMUM_ROUNDS];
    size_t each;
    UPS_TRY(ups_frame_encoder_measure(session, task, &each, error));
    ups_encoder_shares shares = ups_frame_encoder_share(each, processors);
    *apart = (ups_encoder_rate){.encoders = shares.count, .threads = shares.threads};
    *fused = (ups_encoder_rate){.encoders = 1, .threads = processors};
    if (rounds > MAXIMUM_ROUNDS) rounds = MAXIMUM_ROUNDS;
    bench_encoder *all = calloc((size_t)shares.count + 1, sizeof *all), *const of[WAYS] = {all, all + shares.count};
    ups_status status = all ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for %d encoders", shares.count);
    for (int i = 0; i <= shares.count && status == UPS_OK; i++) {
        status = open_encoder(session, task, i, i < shares.count ? shares.threads : processors, &all[i], error);
    }
    for (int64_t r = -1; r < rounds && status == UPS_OK; r++) { /* the first warms up */
        for (int w = 0; w < WAYS && status == UPS_OK; w++) {
            int64_t at = r < 0 ? 0 : r;
            status = measure(of[w], results[w]->encoders, seconds, &rates[w][at], &used[w][at], error);
        }
    }
    for (int w = 0; w < WAYS && status == UPS_OK; w++) {
        results[w]->frames_per_s = ups_bench_median(rates[w], rounds);
        results[w]->cpu_us = ups_bench_median(used[w], rounds);
    }
    for (int i = 0; all && i <= shares.count; i++) close_encoder(&all[i]);
    free(all);
    return status;
}
