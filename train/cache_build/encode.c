/* This thread reads: claims shards, and hands loaded trajectories to the workers (workers.h).
 *
 * Other processes may build the same cache: shards are taken a few seconds' worth at a time, so that whoever comes
 * later finds some, and fewer when little is left. What others hold is waited for at the end of the run, when there is
 * nothing else to do. */
#include "train/cache_build/encode.h"

#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "base/system/threads.h"
#include "cache/build/leases.h"
#include "cache/store/document.h"
#include "train/cache_build/latents_writer.h"
#include "train/cache_build/workers.h"
#include "train/data/batches.h"
#include "train/data/encoding/frame_encoder.h"
#include "train/data/loader_memory.h"
#include "train/evaluation/readback.h"
#include "train/state.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_TAKE 1                                      /* trajectory, so a shard: their rate is not known yet */
#define MAX_TAKE (1 << 16)                                /* trajectories, at any rate */
#define BATCHES_EACH 4                                    /* for every worker, of what is taken at once, at least */
static const double take_seconds = 8;                     /* worth of trajectories taken at once */
static const double look_seconds = 1, wait_seconds = 0.2; /* between looks at what others did; between tries to take */

/* One task and split being encoded by this process. */
typedef struct split_build {
    const ups_session *session;
    const ups_task *task;
    ups_split split;
    ups_cache_writer *writer;
    ups_progress *progress;
    bool failed;                 /* a worker has */
    char note[40];               /* beside the progress */
    double looked;               /* when others were last looked at */
    int64_t encoded;             /* trajectories, by this process */
    double seconds;              /* that it took */
    ups_encode_plan plan;        /* of workers and loaders */
    ups_encode_workers *workers; /* while there is something to encode */
    ups_pages_store *pages;      /* of the loaders of lots, which follow each other */
    ups_encode_times times;      /* of workers */
    ups_encode_stages stages;    /* of reading */
    double began;
    int64_t expected; /* trajectories to be encoded, when this process began */
    double *reached;  /* (UPS_ENCODE_PARTS) when each part of them had been handed over, in seconds from there */
} split_build;

static bool is_whole(const split_build *b) {
    return ups_cache_writer_done_count(b->writer) == b->task->splits.count[b->split];
}

/* Shows what all have done; looks at the others now and then. */
static ups_status show_progress(split_build *b, ups_error *error) {
    if (ups_now() - b->looked >= look_seconds) {
        b->looked = ups_now();
        int others = ups_cache_writer_look(b->writer).others;
        if (others > 0) UPS_TRY(ups_cache_writer_refresh(b->writer, error));
        b->note[0] = '\0';
        if (others > 0) snprintf(b->note, sizeof b->note, "%d other%s at work", others, others == 1 ? "" : "s");
    }
    ups_progress_update(b->progress, ups_cache_writer_done_count(b->writer), *b->note ? b->note : NULL);
    return UPS_OK;
}

/* So that one can see whether a long build slows down. */
static void note_rate(split_build *b) {
    for (int part = 0; part < UPS_ENCODE_PARTS; part++) {
        bool due = b->encoded * UPS_ENCODE_PARTS >= b->expected * (part + 1);
        if (due && b->reached[part] == 0) b->reached[part] = ups_now() - b->began;
    }
}

static ups_status fail_cancelled(ups_cache_writer *writer, const ups_task *task, ups_error *error) {
    return ups_fail(error, UPS_ERR_CANCELLED,
                    "cache: stopped after %lld trajectories of task %s; the same command goes on from there",
                    (long long)ups_cache_writer_done_count(writer), task->name);
}

static ups_status check_cancelled(const split_build *b, ups_error *error) {
    return ups_cancel_requested() ? fail_cancelled(b->writer, b->task, error) : UPS_OK;
}

/* Trajectories worth taking at once: some seconds of this process's own rate; with others at work not more than its
 * even share of half of what is left, so that all end together. */
static int64_t worth_taking(split_build *b) {
    double worth = b->encoded > 0 ? take_seconds * (double)b->encoded / b->seconds : FIRST_TAKE;
    ups_cache_writer_state state = ups_cache_writer_look(b->writer);
    double share = (double)(state.samples - state.done) / (2.0 * (state.others + 1));
    if (state.others > 0 && worth > share) worth = share;
    return worth < 1 ? 1 : worth > MAX_TAKE ? MAX_TAKE : (int64_t)worth;
}

/* ---- lots: what is taken at once -------------------------------------------------------------------------------- */

typedef struct lot {
    ups_encode_lot of;
    int64_t *taken, *samples; /* (count): in the cache, and the same in the source */
    int64_t count;
} lot;

/* Gives back what the lot needed, once nothing of it is on its way. */
static void close_lot(split_build *b, lot *l) {
    if (!l) return;
    if (l->of.loader) {
        ups_loader_statistics loaded;
        ups_loader_statistics_get(l->of.loader, &loaded);
        b->stages.read_cpu += loaded.processor_io;
        b->stages.decode += loaded.seconds_decode;
        b->stages.decode_cpu += loaded.processor_decode;
        b->stages.disk += loaded.seconds_disk;
        ups_loader_report_bad(l->of.loader, 0);
        ups_loader_close(l->of.loader);
    }
    free(l->taken);
    free(l);
}

/* Small trajectories travel together: handing one over costs more than encoding it. But there are to be some batches
 * for every worker. */
static int64_t trajectories_together(const split_build *b, int64_t count) {
    int64_t fair = count / (BATCHES_EACH * b->plan.workers);
    int64_t together = b->plan.batch < fair ? b->plan.batch : fair;
    return together > 1 ? together : 1;
}

static ups_status open_loader(split_build *b, lot *l, ups_error *error) {
    ups_loader_options options = ups_sequential_loader_options(b->session->config);
    options.pages = b->pages;
    options.slots = b->plan.slots;
    options.decode_threads = b->plan.decode_threads;
    options.batch = l->of.batch = trajectories_together(b, l->count);
    /* A card copies fast from pinned memory. A processor reads any, and takes over what the loader before left. */
    if (b->session->device->class->memory) ups_loader_use_memory_of(b->session->device, &options);
    ups_loader_task task = {
        .name = b->task->name, .source = b->task->source, .samples = l->samples, .sample_count = l->count};
    return ups_loader_open(&options, &task, 1, &l->of.loader, error);
}

static ups_status start_workers(split_build *b, ups_error *error) {
    UPS_TRY(ups_encode_plan_make(b->session, b->task, &b->plan, error));
    return ups_encode_workers_start(b->session, b->task, &b->plan, b->writer, &b->workers, error);
}

/* Takes what is worth taking, and begins to read it. *result is NULL when nothing is left to take. */
static ups_status take_lot(split_build *b, lot **result, ups_error *error) {
    *result = NULL;
    int64_t worth = worth_taking(b), room = ups_cache_writer_room(b->writer, worth);
    lot *l = calloc(1, sizeof *l);
    if (l) l->taken = malloc(2 * (size_t)room * sizeof *l->taken);
    ups_status status = l && l->taken ? ups_cache_writer_take(b->writer, worth, l->taken, &l->count, error)
                                      : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    if (status == UPS_OK && l->count > 0) {
        l->of.samples = l->taken;
        l->samples = l->taken + room;
        for (int64_t i = 0; i < l->count; i++) l->samples[i] = b->task->splits.samples[b->split][l->taken[i]];
        if (!b->workers) status = start_workers(b, error);
        if (status == UPS_OK) status = open_loader(b, l, error);
        if (status == UPS_OK) {
            *result = l;
            return UPS_OK;
        }
    }
    close_lot(b, l);
    return status;
}

/* Everything of a lot from its loader to the workers, who may still be at work on it when this returns. `before`, the
 * lot before it, is closed and becomes NULL as soon as they are done with it. */
static ups_status hand_over(split_build *b, lot *l, lot **before, ups_error *error) {
    for (;;) {
        const ups_batch *batch = NULL;
        UPS_TRY(check_cancelled(b, error));
        UPS_TRY(ups_loader_next(l->of.loader, &batch, error));
        if (!batch) return UPS_OK;
        int64_t windows = batch->windows; /* the batch is not ours once it is pushed */
        if (!ups_encode_workers_push(b->workers, &l->of, batch)) {
            ups_loader_release(l->of.loader, batch);
            b->failed = true;
            return UPS_OK;
        }
        b->encoded += windows;
        note_rate(b);
        if (*before && ups_encode_workers_finished(b->workers, &(*before)->of, false)) {
            close_lot(b, *before);
            *before = NULL;
        }
        UPS_TRY(show_progress(b, error));
    }
}

/* Waits until the workers are done with a lot, and closes it. */
static void end_lot(split_build *b, lot **l) {
    if (!*l) return;
    ups_encode_workers_finished(b->workers, &(*l)->of, true);
    close_lot(b, *l);
    *l = NULL;
}

/* Takes and encodes until nothing is left to take. While the workers are at the end of one lot, the next is taken and
 * read, if both fit into memory. */
static ups_status encode_untaken(split_build *b, ups_error *error) {
    ups_status status = UPS_OK;
    lot *before = NULL;
    while (status == UPS_OK && !b->failed) {
        lot *next;
        double began = ups_now();
        if (!b->plan.overlapping) end_lot(b, &before);
        status = take_lot(b, &next, error);
        if (status != UPS_OK || !next) break;
        status = hand_over(b, next, &before, error);
        end_lot(b, &before);
        before = next;
        b->seconds += ups_now() - began;
    }
    double began = ups_now();
    end_lot(b, &before);
    b->seconds += ups_now() - began;
    ups_error first;
    ups_status failed = ups_encode_workers_stop(b->workers, &b->times, &first);
    b->workers = NULL;
    if (failed == UPS_OK) return status;
    if (error) *error = first; /* came first: whatever was said here followed from it */
    return failed;
}

/* `wait`: until others have built what they hold, or died and left it to us. */
static ups_status build(split_build *b, bool wait, ups_error *error) {
    for (;;) {
        UPS_TRY(encode_untaken(b, error));
        if (!wait || is_whole(b)) return UPS_OK;
        UPS_TRY(check_cancelled(b, error));
        UPS_TRY(show_progress(b, error));
        nanosleep(&(struct timespec){0, (long)(wait_seconds * 1e9)}, NULL);
        UPS_TRY(ups_cache_writer_refresh(b->writer, error));
    }
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* What is kept with the cache of how well fields are read back. It is measured once: what a complete cache says is
 * taken over. Few digits, for others who build the same cache may round otherwise. */
static ups_status find_loss(const ups_session *session, const ups_task *task, ups_split split, ups_cache_writer *writer,
                            ups_encode_report *report, ups_error *error) {
    static const char key[] = "reconstruction_nrmse";
    json_t *group = NULL;
    ups_error changed = {0}, ignored;
    if (ups_document_read_group(ups_cache_writer_directory(writer), &group, &changed, &ignored) != UPS_OK) group = NULL;
    const bool sound = changed.code == UPS_OK;
    const json_t *known = sound ? json_object_get(json_object_get(group, "result"), key) : NULL;
    report->nrmse = json_is_number(known) ? json_number_value(known) : (double)NAN;
    json_decref(group);
    ups_status status = UPS_OK;
    if (isnan(report->nrmse)) {
        char *autoencoder = ups_run_model_path(session->config, UPS_STAGE_AUTOENCODER), digits[16];
        status = autoencoder ? ups_readback(session, (int)(task - session->tasks->task), split, autoencoder,
                                            &report->nrmse, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        if (status == UPS_ERR_CANCELLED) status = fail_cancelled(writer, task, error);
        snprintf(digits, sizeof digits, "%.2g", report->nrmse);
        report->nrmse = strtod(digits, NULL);
        free(autoencoder);
    }
    if (!isnan(report->nrmse)) ups_cache_writer_add_result(writer, key, json_real(report->nrmse));
    ups_cache_writer_add_result(writer, "source_bytes", json_integer((json_int_t)report->source_bytes));
    return status;
}

ups_status ups_encode_split(const ups_session *session, const ups_task *task, ups_split split,
                            ups_encode_options options, ups_encode_report *report, ups_error *error) {
    *report = (ups_encode_report){.task = task->name, .split = ups_split_name(split)};
    double began = ups_now(), used = ups_process_seconds();
    split_build b = {.session = session, .task = task, .split = split, .began = began, .reached = report->reached};
    ups_latents_writing writing = {
        .repair = options.repair,
        .broken = options.broken,
        .broken_count = options.broken_count,
        .device = session->device->class->results,
    };
    const ups_launch launch = ups_launch_find();
    writing.rank = launch.rank;
    writing.ranks = launch.ranks;
    UPS_TRY(ups_latents_write(session->config, task, split, writing, &b.writer, error));
    ups_cache_writer_state state = ups_cache_writer_look(b.writer);
    report->extended_from = state.extended_from;
    report->was_whole = is_whole(&b);
    b.expected = state.samples - state.done;
    ups_status status = UPS_OK;
    if (!report->was_whole) {
        char title[128];
        snprintf(title, sizeof title, "cache %s/%s", task->name, report->split);
        b.pages = ups_pages_store_create();
        b.progress = ups_progress_begin(title, "trajectories", state.samples, state.done);
        status = build(&b, options.wait, error);
        ups_progress_update(b.progress, ups_cache_writer_done_count(b.writer), NULL);
        ups_progress_end(b.progress);
        ups_pages_store_destroy(b.pages);
    }
    report->whole = status == UPS_OK && is_whole(&b);
    report->latents = ups_task_latents(session->config, task);
    report->field_numbers = ups_sample_frame_elements(&task->geometry);
    report->source_bytes = (uint64_t)(state.samples * task->geometry.times) * ups_sample_frame_bytes(&task->geometry);
    if (report->whole) status = find_loss(session, task, split, b.writer, report, error);
    if (report->whole && status == UPS_OK) status = ups_cache_writer_finish(b.writer, &report->summary, error);
    state = ups_cache_writer_look(b.writer);
    ups_cache_writer_close(b.writer);
    report->stages = b.stages;
    report->stages.encode = b.times.encode;
    report->stages.encode_cpu = b.times.encode_cpu;
    report->stages.compress = b.times.put - state.publishing;
    report->stages.compress_cpu = b.times.put_cpu - state.publishing_processor;
    report->stages.publish = state.publishing;
    report->stages.publish_cpu = state.publishing_processor;
    report->stages.idle = b.times.idle;
    report->encoded = b.encoded;
    report->cpu = ups_process_seconds() - used;
    report->processors = ups_frame_encoder_processors(session->device);
    report->frames = b.encoded * task->geometry.times;
    report->field_bytes = (uint64_t)report->frames * ups_sample_frame_bytes(&task->geometry);
    report->seconds = ups_now() - began;
    return status;
}

/* What an earlier pass did of the same split. */
static void add_pass(ups_encode_report *report, const ups_encode_report *before) {
    report->encoded += before->encoded;
    report->frames += before->frames;
    report->field_bytes += before->field_bytes;
    report->seconds += before->seconds;
    report->cpu += before->cpu;
    double *to = (double *)&report->stages;
    const double *from = (const double *)&before->stages;
    for (size_t i = 0; i < sizeof report->stages / sizeof *to; i++) to[i] += from[i];
    if (before->encoded > 0) memcpy(report->reached, before->reached, sizeof report->reached);
}

/* A cache that is larger than what it stands for is seldom meant, unless it is so small that its files' heads are most
 * of it; of several builders one says so. */
static void warn_of_size(const ups_run_config *config, const ups_task *task, const ups_encode_report *report) {
    const ups_cache_summary *summary = &report->summary;
    const bool larger = summary->stored_bytes > report->source_bytes && summary->raw_bytes > report->source_bytes;
    if (ups_launch_find().rank > 0 || !report->whole || !larger) return;
    ups_latent_shape latents = ups_task_latents(config, task);
    ups_log(UPS_LOG_WARNING,
            "task %s: its latents take %.1f times the memory of its fields: %lld tokens of %lld numbers stand for %lld "
            "values a frame; fewer model.tokens or a smaller model.dim make the cache smaller",
            task->name, (double)summary->stored_bytes / (double)report->source_bytes, (long long)latents.tokens,
            (long long)latents.dim, (long long)ups_sample_frame_elements(&task->geometry));
}

/* One pass over all tasks and splits that are not `finished`; the first does not wait for others, the second does. */
static ups_status run_pass(const ups_session *session, bool wait, ups_encode_report *reports,
                           void (*visit)(void *context, const ups_encode_report *report), void *context,
                           ups_error *error) {
    for (int i = 0; i < session->tasks->count * UPS_SPLIT_COUNT; i++) {
        const ups_task *task = &session->tasks->task[i / UPS_SPLIT_COUNT];
        ups_split split = (ups_split)(i % UPS_SPLIT_COUNT);
        if (task->splits.count[split] == 0 || reports[i].whole) continue;
        const ups_encode_report before = reports[i];
        ups_status status =
            ups_encode_split(session, task, split, (ups_encode_options){.wait = wait}, &reports[i], error);
        if (status == UPS_ERR_STALE) {
            return ups_fail_within(error, "the cache there is another one (`ups cache build --restart` replaces it)");
        }
        UPS_TRY(status);
        add_pass(&reports[i], &before);
        if (before.task) reports[i].was_whole = false;
        if (before.extended_from > 0) reports[i].extended_from = before.extended_from;
        if (split == UPS_SPLIT_TRAIN) warn_of_size(session->config, task, &reports[i]);
        if (reports[i].whole && visit) visit(context, &reports[i]);
    }
    return UPS_OK;
}

static const char *size_text(uint64_t bytes, char text[24]) {
    snprintf(text, 24, bytes < 1000000 ? "%.1f KB" : "%.1f MB", (double)bytes / (bytes < 1000000 ? 1e3 : 1e6));
    return text;
}

void ups_encode_describe(const ups_encode_report *report, char *text, size_t bytes) {
    const ups_cache_summary *s = &report->summary;
    char fields[24], stored[24], plain[24];
    int written = snprintf(text, bytes, "%lld trajectories, %s of fields, %s of latents (%s as plain FP16)",
                           (long long)s->samples, size_text(report->source_bytes, fields),
                           size_text(s->stored_bytes, stored), size_text(s->raw_bytes, plain));
    if (!isnan(report->nrmse) && written >= 0 && (size_t)written < bytes)
        snprintf(text + written, bytes - (size_t)written, ", read back to nRMSE %.2g", report->nrmse);
}

uint64_t ups_encode_plain_bytes(const ups_session *session) {
    uint64_t bytes = 0;
    for (int t = 0; t < session->tasks->count; t++) {
        const ups_task *task = &session->tasks->task[t];
        const ups_latent_shape latents = ups_task_latents(session->config, task);
        const uint64_t frame = (uint64_t)(latents.tokens * latents.dim) * sizeof(uint16_t);
        for (int s = 0; s < UPS_SPLIT_COUNT; s++)
            bytes += (uint64_t)(task->splits.count[s] * task->geometry.times) * frame;
    }
    return bytes;
}

/* Of several builders one says so. */
static void warn_of_room(const ups_session *session) {
    char *cache = ups_run_cache_directory(session->config);
    const uint64_t plain = ups_encode_plain_bytes(session);
    uint64_t room;
    if (cache && ups_launch_find().rank <= 0 && !ups_encode_has_begun(session->config) &&
        ups_free_space(cache, &room) && room < plain) {
        ups_log(UPS_LOG_WARNING,
                "cache: its latents are %.1f GB before compression, and %.1f GB are free at %s: they may not fit; "
                "cache.directory names another place, and data.residency: encode does without a cache",
                (double)plain / 1e9, (double)room / 1e9, cache);
    }
    free(cache);
}

ups_status ups_encode_run(const ups_session *session, void (*visit)(void *context, const ups_encode_report *report),
                          void *context, ups_error *error) {
    warn_of_room(session);
    ups_encode_report *reports = calloc((size_t)session->tasks->count * UPS_SPLIT_COUNT, sizeof *reports);
    if (!reports) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    ups_status status = run_pass(session, false, reports, visit, context, error);
    if (status == UPS_OK) status = run_pass(session, true, reports, visit, context, error);
    free(reports);
    return status;
}

/* ---- removal --------------------------------------------------------------------------------------------------- */

/* Nobody else may be building in a group that is to be removed. */
static ups_status check_unused(const char *group, ups_error *error) {
    ups_leases *leases;
    UPS_TRY(ups_leases_join(group, "remove", (ups_leases_timing){0}, &leases, error));
    ups_leases_others others = ups_leases_look(leases);
    ups_leases_leave(leases);
    if (others.count == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_IO, "%s: cannot be removed while it is being built: %s is at work in it", group,
                    others.example);
}

bool ups_encode_has_begun(const ups_run_config *config) {
    char *cache = ups_run_cache_directory(config);
    bool begun = false;
    for (unsigned i = 0; cache && !begun && i < config->task_count * UPS_SPLIT_COUNT; i++) {
        const char *task = config->tasks[i / UPS_SPLIT_COUNT].name,
                   *split = ups_split_name((ups_split)(i % UPS_SPLIT_COUNT));
        char *metadata = NULL;
        if (asprintf(&metadata, "%s/%s/%s/latent/zarr.json", cache, task, split) < 0) break;
        begun = ups_path_exists(metadata);
        free(metadata);
    }
    free(cache);
    return begun;
}

static ups_status remove_group(const char *group, ups_error *error) {
    UPS_TRY(check_unused(group, error)); /* it may have begun since */
    return ups_remove_tree_at_once(group, error);
}

/* Of the cache's groups that are there; what is no cache is passed over. */
static ups_status each_group(const ups_run_config *config, ups_status (*visit)(const char *group, ups_error *error),
                             ups_error *error) {
    char *cache = ups_run_cache_directory(config);
    ups_status status = cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (unsigned i = 0; i < config->task_count * UPS_SPLIT_COUNT && status == UPS_OK; i++) {
        const char *task = config->tasks[i / UPS_SPLIT_COUNT].name,
                   *split = ups_split_name((ups_split)(i % UPS_SPLIT_COUNT));
        char *group = NULL, *metadata = NULL;
        if (asprintf(&group, "%s/%s/%s", cache, task, split) < 0 ||
            asprintf(&metadata, "%s/latent/zarr.json", group) < 0)
            status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        else if (ups_path_exists(metadata))
            status = visit(group, error);
        free(group);
        free(metadata);
    }
    free(cache);
    return status;
}

ups_status ups_encode_remove(const ups_run_config *config, ups_error *error) {
    const ups_launch launch = ups_launch_find();
    if (launch.ranks > 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "a cache is removed by one process alone, and this is one of %lld: run with --restart once, "
                        "without a launcher, before they build together",
                        (long long)launch.ranks);
    }
    UPS_TRY(each_group(config, check_unused, error)); /* all of them, before the first one goes */
    return each_group(config, remove_group, error);
}
