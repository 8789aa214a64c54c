#include "train/data/cache_fill.h"

#include "base/log.h"
#include "base/sizes.h"
#include "train/data/latents_writer.h"
#include <pthread.h>
#include <stdlib.h>

struct ups_cache_fill {
    const ups_run_config *config;
    const ups_task *task;
    ups_split split;
    ups_cache_writer *writer;
    int64_t samples, samples_per_shard;
    int64_t most_begun;    /* samples of shards that are begun at once; one shard may always be */
    pthread_mutex_t lock;  /* guards all below */
    bool *taken;           /* (samples) somebody puts it, or did */
    int64_t *missing;      /* (shards) samples that are yet to be put */
    bool *begun;           /* (shards) */
    int64_t begun_samples; /* of those that still miss some */
    int64_t missing_count; /* samples */
    bool ended;            /* complete, or cannot be filled */
};

static uint64_t trajectory_bytes(const ups_run_config *config, const ups_task *task) {
    uint64_t frame = (uint64_t)(config->model.tokens * config->model.dim) * sizeof(ups_f16);
    return ups_size_product((uint64_t)task->geometry.times, frame);
}

uint64_t ups_cache_fill_bytes(const ups_run_config *config, const ups_task *task, ups_split split) {
    return ups_size_product((uint64_t)task->sample_count[split], trajectory_bytes(config, task));
}

void ups_cache_fill_close(ups_cache_fill *fill) {
    if (!fill) return;
    ups_cache_writer_close(fill->writer);
    pthread_mutex_destroy(&fill->lock);
    free(fill->taken);
    free(fill->missing);
    free(fill->begun);
    free(fill);
}

/* Marks the group complete, and says so: done by the thread that put the last sample. */
static void finish(ups_cache_fill *f) {
    ups_error error;
    ups_cache_summary summary;
    const char *split = ups_split_name(f->split);
    if (ups_cache_writer_finish(f->writer, &summary, &error) != UPS_OK) {
        ups_log(UPS_LOG_WARNING, "cache %s/%s: %s", f->task->name, split, error.message);
        return;
    }
    ups_log(UPS_LOG_INFO, "cache %s/%s: complete on the way: %lld trajectories, %.1f MB", f->task->name, split,
            (long long)summary.samples, (double)summary.stored_bytes / 1e6);
}

ups_status ups_cache_fill_open(const ups_run_config *config, const ups_task *task, ups_split split, uint64_t most_bytes,
                               ups_cache_fill **result, ups_error *error) {
    *result = NULL;
    ups_cache_fill *f = calloc(1, sizeof *f);
    if (!f) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    *f = (ups_cache_fill){.config = config, .task = task, .split = split, .samples = task->sample_count[split]};
    pthread_mutex_init(&f->lock, NULL);
    ups_status status = ups_latents_write(config, task, split, (ups_latents_writing){0}, &f->writer, error);
    if (status == UPS_ERR_STALE) {
        ups_fail_within(error, "the cache cannot be filled (`ups cache build --restart` builds it anew, `cache.fill: "
                               "false` leaves it as it is)");
    }
    if (status == UPS_OK) {
        f->samples_per_shard = ups_cache_writer_room(f->writer, 1); /* the least that a take gives: a shard */
        int64_t shards = (f->samples + f->samples_per_shard - 1) / f->samples_per_shard;
        uint64_t each = trajectory_bytes(config, task), all = ups_cache_fill_bytes(config, task, split);
        uint64_t most = most_bytes < all ? most_bytes : all;
        f->most_begun = (int64_t)(ups_size_sum(most, each / 2) / each); /* half a one may be the rounding of a share */
        f->taken = calloc((size_t)f->samples + 1, sizeof *f->taken);
        f->missing = calloc((size_t)shards + 1, sizeof *f->missing);
        f->begun = calloc((size_t)shards + 1, sizeof *f->begun);
        if (!f->taken || !f->missing || !f->begun) status = ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    }
    if (status != UPS_OK) {
        ups_cache_fill_close(f);
        return status;
    }
    for (int64_t i = 0; i < f->samples; i++) {
        f->taken[i] = ups_cache_writer_done(f->writer, i);
        f->missing[i / f->samples_per_shard] += !f->taken[i];
        f->missing_count += !f->taken[i];
    }
    f->ended = f->missing_count == 0;
    if (f->ended) status = ups_cache_writer_finish(f->writer, NULL, error); /* of a run that was killed just before */
    if (status != UPS_OK) {
        ups_cache_fill_close(f);
        return status;
    }
    *result = f;
    return UPS_OK;
}

bool ups_cache_fill_has(ups_cache_fill *f, int64_t sample) {
    return ups_cache_writer_done(f->writer, sample);
}

static int64_t shard_samples(const ups_cache_fill *f, int64_t shard) {
    int64_t left = f->samples - shard * f->samples_per_shard;
    return left < f->samples_per_shard ? left : f->samples_per_shard;
}

/* Begins a shard, if there is room. */
static bool begin_shard(ups_cache_fill *f, int64_t shard) {
    int64_t samples = shard_samples(f, shard);
    bool fits = f->begun_samples == 0 || f->begun_samples + samples <= f->most_begun;
    if (fits) f->begun_samples += samples;
    return f->begun[shard] = fits;
}

bool ups_cache_fill_wants(ups_cache_fill *f, int64_t sample) {
    int64_t shard = sample / f->samples_per_shard;
    pthread_mutex_lock(&f->lock);
    bool wants = !f->ended && !f->taken[sample] && (f->begun[shard] || begin_shard(f, shard));
    if (wants) f->taken[sample] = true;
    pthread_mutex_unlock(&f->lock);
    return wants;
}

void ups_cache_fill_give_up(ups_cache_fill *f, int64_t sample) {
    pthread_mutex_lock(&f->lock);
    f->taken[sample] = false;
    pthread_mutex_unlock(&f->lock);
}

/* Notes that a sample is there; whether it was the last. */
static bool note_put(ups_cache_fill *f, int64_t sample) {
    int64_t shard = sample / f->samples_per_shard;
    pthread_mutex_lock(&f->lock);
    if (--f->missing[shard] == 0) f->begun_samples -= shard_samples(f, shard);
    bool last = --f->missing_count == 0 && !f->ended;
    f->ended |= last;
    pthread_mutex_unlock(&f->lock);
    return last;
}

/* Says once why the cache is not filled any more. */
static void end_filling(ups_cache_fill *f, const ups_error *why) {
    pthread_mutex_lock(&f->lock);
    bool first = !f->ended;
    f->ended = true;
    pthread_mutex_unlock(&f->lock);
    if (!first) return;
    ups_log(UPS_LOG_WARNING, "cache %s/%s: filled no further; training goes on without it: %s", f->task->name,
            ups_split_name(f->split), why->message);
}

static ups_status leave_out(ups_cache_fill *f, int64_t sample, const char *name, ups_error *error) {
    UPS_TRY(ups_cache_writer_skip(f->writer, sample, error));
    ups_log(UPS_LOG_WARNING, "cache %s/%s: sample %s is left out: it holds NaN or infinite values", f->task->name,
            ups_split_name(f->split), name);
    return UPS_OK;
}

void ups_cache_fill_put(ups_cache_fill *f, int64_t sample, const char *name, const float *latents) {
    ups_error error;
    ups_status status;
    if (latents)
        status = ups_cache_writer_put(f->writer, sample, name, latents, &error);
    else if (f->config->data.on_bad_sample == UPS_BAD_SAMPLE_SKIP)
        status = leave_out(f, sample, name, &error);
    else /* as a build, which ends here */
        status = ups_fail(&error, UPS_ERR_NUMERIC,
                          "sample %s holds NaN or infinite values; `on_bad_sample: skip` leaves it out", name);
    if (status != UPS_OK)
        end_filling(f, &error);
    else if (note_put(f, sample))
        finish(f);
}
