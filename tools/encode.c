/* This thread reads: claims shards, and hands loaded trajectories to the workers (encode_workers.h).
 *
 * Other processes may build the same cache: shards are taken a few seconds' worth at a time, so that whoever comes
 * later finds some, and fewer when little is left. What others hold is waited for at the end of the run, when there is
 * nothing else to do. */
#include "tools/encode.h"

#include "base/cancel.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/threads.h"
#include "cache/claims.h"
#include "tools/encode_workers.h"
#include "train/batches.h"
#include "train/latents_writer.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOTS_AHEAD 2                                     /* trajectories being read while the workers are busy */
#define FIRST_TAKE 1                                      /* trajectory, so a shard: their rate is not known yet */
#define MOST_TAKE (1 << 16)                               /* trajectories, at any rate */
static const double take_seconds = 8;                     /* worth of trajectories taken at once */
static const double look_seconds = 1, wait_seconds = 0.2; /* between looks at what others did; between tries to take */

/* One task and split being encoded by this process. */
typedef struct split_build {
    const ups_stage_request *request;
    const ups_task *task;
    ups_split split;
    ups_cache_writer *writer;
    ups_progress *progress;
    bool failed;                 /* a worker has */
    char note[40];               /* beside the progress */
    double looked;               /* when others were last looked at */
    int64_t encoded;             /* trajectories, by this process */
    double seconds;              /* that it took */
    ups_encode_workers *workers; /* while there is something to encode */
} split_build;

static bool is_whole(const split_build *b) {
    return ups_cache_writer_done_count(b->writer) == b->task->sample_count[b->split];
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

static ups_status check_cancelled(const split_build *b, ups_error *error) {
    if (!ups_cancel_requested()) return UPS_OK;
    return ups_fail(error, UPS_ERR_CANCELLED,
                    "cache: stopped after %lld trajectories of task %s; the same command goes on from there",
                    (long long)ups_cache_writer_done_count(b->writer), b->task->name);
}

/* Everything from the loader to the workers. `taken` are samples of the cache, `samples` the same in the source. */
static ups_status encode_taken(split_build *b, const int64_t *taken, const int64_t *samples, int64_t count,
                               ups_error *error) {
    ups_loader_options options = ups_sequential_loader_options(b->request->config);
    int held = ups_encode_workers_count(b->workers) + 2; /* by workers, in their queue, in this function's hands */
    options.slots = options.slots > held + SLOTS_AHEAD ? options.slots : held + SLOTS_AHEAD;
    ups_loader_task loader_task = {
        .name = b->task->name, .source = b->task->source, .samples = samples, .sample_count = count};
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(&options, &loader_task, 1, &loader, error));
    ups_status status = UPS_OK;
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        status = check_cancelled(b, error);
        if (status == UPS_OK) status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        ups_sample sample;
        bool handed_over = false;
        if (batch->window[0].sample == UPS_NO_SAMPLE) { /* a bad one */
            status = ups_cache_writer_skip(b->writer, taken[batch->index], error);
        } else {
            status = ups_source_describe(b->task->source, samples[batch->index], &sample, error);
            if (status == UPS_OK) {
                handed_over = ups_encode_workers_push(b->workers, loader, batch, taken[batch->index], sample.name);
                b->failed = !handed_over;
            }
        }
        if (!handed_over) ups_loader_release(loader, batch);
        if (b->failed) break;
        b->encoded++;
        if (status == UPS_OK) status = show_progress(b, error);
    }
    ups_encode_workers_drain(b->workers);
    ups_loader_report_bad(loader, 0);
    ups_loader_close(loader);
    return status;
}

/* Trajectories worth taking at once: some seconds of this process's own rate; with others at work not more than its
 * even share of half of what is left, so that all end together. */
static int64_t worth_taking(split_build *b) {
    double most = b->encoded > 0 ? take_seconds * (double)b->encoded / b->seconds : FIRST_TAKE;
    ups_cache_writer_state state = ups_cache_writer_look(b->writer);
    double share = (double)(state.samples - state.done) / (2.0 * (state.others + 1));
    if (state.others > 0 && most > share) most = share;
    return most < 1 ? 1 : most > MOST_TAKE ? MOST_TAKE : (int64_t)most;
}

/* Takes and encodes until nothing is left to take. */
static ups_status encode_untaken(split_build *b, ups_error *error) {
    ups_status status = UPS_OK;
    for (int64_t count = 1; count > 0 && status == UPS_OK && !b->failed;) {
        int64_t most = worth_taking(b), room = ups_cache_writer_room(b->writer, most);
        int64_t *taken = malloc(2 * (size_t)room * sizeof *taken), *samples = taken + room;
        status = taken ? ups_cache_writer_take(b->writer, most, taken, &count, error)
                       : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
        for (int64_t i = 0; status == UPS_OK && i < count; i++) samples[i] = b->task->samples[b->split][taken[i]];
        if (status == UPS_OK && count > 0 && !b->workers) {
            status = ups_encode_workers_start(b->request, b->task, b->writer, &b->workers, error);
        }
        double began = ups_now();
        if (status == UPS_OK && count > 0) status = encode_taken(b, taken, samples, count, error);
        b->seconds += ups_now() - began;
        free(taken);
    }
    ups_error first;
    ups_status failed = ups_encode_workers_stop(b->workers, &first);
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

/* Which of how many processes this one is, as its launcher says; left alone where none does. */
static void find_rank(int64_t *rank, int64_t *ranks) {
    static const char *const launchers[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *own = getenv(launchers[i][0]), *all = getenv(launchers[i][1]);
        if (!own || !all) continue;
        *rank = strtoll(own, NULL, 10);
        *ranks = strtoll(all, NULL, 10);
        return;
    }
}

ups_status ups_encode_split(const ups_stage_request *request, const ups_task *task, ups_split split,
                            ups_encode_options options, ups_encode_report *report, ups_error *error) {
    *report = (ups_encode_report){.task = task->name, .split = ups_split_name(split)};
    double began = ups_now();
    split_build b = {.request = request, .task = task, .split = split};
    ups_latents_writing writing = {.broken = options.broken, .broken_count = options.broken_count};
    find_rank(&writing.rank, &writing.ranks);
    UPS_TRY(ups_latents_write(request->config, task, split, writing, &b.writer, error));
    ups_cache_writer_state state = ups_cache_writer_look(b.writer);
    report->extended_from = state.extended_from;
    report->was_whole = is_whole(&b);
    ups_status status = UPS_OK;
    if (!report->was_whole) {
        char title[128];
        snprintf(title, sizeof title, "cache %s/%s", task->name, report->split);
        b.progress = ups_progress_begin(title, "trajectories", state.samples, state.done);
        status = build(&b, options.wait, error);
        ups_progress_end(b.progress);
    }
    report->whole = status == UPS_OK && is_whole(&b);
    if (report->whole) status = ups_cache_writer_finish(b.writer, &report->summary, error);
    ups_cache_writer_close(b.writer);
    report->encoded = b.encoded;
    report->seconds = ups_now() - began;
    return status;
}

/* One pass over all tasks and splits that are not `finished`; the first does not wait for others, the second does. */
static ups_status run_pass(const ups_stage_request *request, bool wait, ups_encode_report *reports,
                           void (*visit)(void *context, const ups_encode_report *report), void *context,
                           ups_error *error) {
    for (int i = 0; i < request->tasks->count * UPS_SPLIT_COUNT; i++) {
        const ups_task *task = &request->tasks->task[i / UPS_SPLIT_COUNT];
        ups_split split = (ups_split)(i % UPS_SPLIT_COUNT);
        if (task->sample_count[split] == 0 || reports[i].whole) continue;
        ups_encode_report before = reports[i];
        ups_status status =
            ups_encode_split(request, task, split, (ups_encode_options){.wait = wait}, &reports[i], error);
        if (status == UPS_ERR_STALE) {
            return ups_fail_within(error, "the cache there is another one (`ups cache build --restart` replaces it)");
        }
        UPS_TRY(status);
        reports[i].encoded += before.encoded;
        reports[i].seconds += before.seconds;
        if (before.task) reports[i].was_whole = false;
        if (before.extended_from > 0) reports[i].extended_from = before.extended_from;
        if (reports[i].whole && visit) visit(context, &reports[i]);
    }
    return UPS_OK;
}

ups_status ups_encode_run(const ups_stage_request *request,
                          void (*visit)(void *context, const ups_encode_report *report), void *context,
                          ups_error *error) {
    ups_encode_report *reports = calloc((size_t)request->tasks->count * UPS_SPLIT_COUNT, sizeof *reports);
    if (!reports) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    ups_status status = run_pass(request, false, reports, visit, context, error);
    if (status == UPS_OK) status = run_pass(request, true, reports, visit, context, error);
    free(reports);
    return status;
}

/* ---- removal --------------------------------------------------------------------------------------------------- */

static ups_status remove_tree(const char *path, ups_error *error) {
    DIR *listing = opendir(path);
    if (!listing) return ups_fail_errno(error, "%s: cannot be listed", path);
    ups_status status = UPS_OK;
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(listing));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *child = NULL;
        if (asprintf(&child, "%s/%s", path, entry->d_name) < 0)
            status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        else if (entry->d_type == DT_DIR)
            status = remove_tree(child, error);
        else if (unlink(child) != 0)
            status = ups_fail_errno(error, "%s: cannot be removed", child);
        free(child);
    }
    closedir(listing);
    if (status == UPS_OK && rmdir(path) != 0) status = ups_fail_errno(error, "%s: cannot be removed", path);
    return status;
}

/* Nobody else may be building in a group that is to be removed. */
static ups_status check_unused(const char *group, ups_error *error) {
    ups_claims *claims;
    UPS_TRY(ups_claims_join(group, "remove", (ups_claims_timing){0}, &claims, error));
    ups_claims_others others = ups_claims_look(claims);
    ups_claims_leave(claims);
    if (others.count == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_IO, "%s: cannot be removed while it is being built: %s is at work in it", group,
                    others.example);
}

ups_status ups_encode_remove(const ups_run_config *config, ups_error *error) {
    int64_t rank = 0, ranks = 1;
    find_rank(&rank, &ranks);
    if (ranks > 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "a cache is removed by one process alone, and this is one of %lld: run with --restart once, "
                        "without a launcher, before they build together",
                        (long long)ranks);
    }
    char *cache = ups_run_cache_directory(config);
    ups_status status = cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (unsigned t = 0; t < config->task_count && status == UPS_OK; t++) {
        for (int s = 0; s < UPS_SPLIT_COUNT && status == UPS_OK; s++) {
            char *group = NULL, *metadata = NULL;
            if (asprintf(&group, "%s/%s/%s", cache, config->tasks[t].name, ups_split_name((ups_split)s)) < 0 ||
                asprintf(&metadata, "%s/latent/zarr.json", group) < 0) {
                status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
            } else if (ups_path_exists(metadata)) { /* nothing that is not a cache is removed */
                status = check_unused(group, error);
                if (status == UPS_OK) status = remove_tree(group, error);
            }
            free(group);
            free(metadata);
        }
    }
    free(cache);
    return status;
}
