#include "train/run/seed.h"

#include "base/files.h"
#include "train/checkpoint.h"
#include "train/data/tasks.h"
#include "train/run/move.h"
#include "train/run/own.h"
#include "train/run/replace.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the directory that `path` is to lie in. */
static ups_status make_parent(const char *path, ups_error *error) {
    char *parent = strdup(path), *slash = parent ? strrchr(parent, '/') : NULL;
    ups_status status = parent ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && slash && slash != parent) {
        *slash = '\0';
        status = ups_make_directories(parent, error);
    }
    free(parent);
    return status;
}

/* ---- parts of a run ---------------------------------------------------------------------------------------------- */

/* Where it is built. */
typedef struct making {
    const ups_run_seed *seed;
    const char *directory;
} making;

typedef ups_status (*take_function)(const char *from, const char *to, ups_error *error);

/* A part that may be absent, by its name. */
static ups_status take(const making *m, take_function how, const char *name, ups_error *error) {
    char *from = ups_run_path(m->seed->from, "%s", name), *to = NULL;
    bool had = from && asprintf(&to, "%s/%s", m->directory, name) >= 0;
    ups_status status = had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(from)) {
        char *slash = strrchr(to, '/');
        *slash = '\0';
        status = ups_make_directories(to, error);
        *slash = '/';
        if (status == UPS_OK) status = how(from, to, error);
    }
    free(from);
    free(to);
    return status;
}

static ups_status take_stage(const making *m, ups_stage stage, ups_error *error) {
    char name[64];
    const ups_run_seed *seed = m->seed;
    bool finished = seed->state.stage[stage].finished;
    if (!ups_run_training(seed->config, stage)) return UPS_OK;
    if (finished) {
        snprintf(name, sizeof name, "%s.safetensors", ups_stage_name(stage));
        UPS_TRY(take(m, ups_run_share_file, name, error));
    }
    if (!finished && !(seed->checkpoints & 1u << stage)) return UPS_OK;
    snprintf(name, sizeof name, "checkpoints/%s", ups_stage_name(stage));
    UPS_TRY(take(m, ups_run_share_tree, name, error));
    if (!(seed->back & 1u << stage)) return UPS_OK;
    char *checkpoints = NULL;
    if (asprintf(&checkpoints, "%s/%s", m->directory, name) < 0)
        return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_checkpoint_go_back(checkpoints, error);
    free(checkpoints);
    return status;
}

/* The finished model, or what its training has got so far. */
static ups_status take_weights(const making *m, ups_stage stage, ups_error *error) {
    char *model = ups_run_model_path(m->seed->from, stage), *directory = NULL, *to = NULL;
    char *checkpoints = ups_run_path(m->seed->from, "checkpoints/%s", ups_stage_name(stage));
    bool had = model && checkpoints && asprintf(&directory, "%s/initial", m->directory) >= 0 &&
               asprintf(&to, "%s/%s.safetensors", directory, ups_stage_name(stage)) >= 0;
    ups_status status = had ? ups_make_directories(directory, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && !ups_path_exists(model)) {
        free(model);
        model = NULL;
        status = ups_checkpoint_exists(checkpoints) ? ups_checkpoint_file(checkpoints, &model, error) : UPS_OK;
    }
    if (status == UPS_OK && model) status = ups_run_share_file(model, to, error);
    if (status == UPS_OK) status = ups_sync_directory(directory, error);
    free(model);
    free(checkpoints);
    free(directory);
    free(to);
    return status;
}

/* What the stage of the run itself began with, if anything was given. */
static ups_status take_given(const making *m, ups_stage stage, ups_error *error) {
    char name[64];
    snprintf(name, sizeof name, "initial/%s.safetensors", ups_stage_name(stage));
    return take(m, ups_run_share_file, name, error);
}

/* CACHE/NAME, which may be absent, as THERE/NAME. */
static ups_status take_cached(take_function how, const char *cache, const char *there, const char *name,
                              ups_error *error) {
    char *from = NULL, *to = NULL;
    bool had = asprintf(&from, "%s/%s", cache, name) >= 0 && asprintf(&to, "%s/%s", there, name) >= 0;
    ups_status status = had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(from)) status = how(from, to, error);
    free(from);
    free(to);
    return status;
}

static ups_status take_cache(const ups_run_seed *seed, const char *there, ups_error *error) {
    char *cache = ups_run_cache_directory(seed->from), name[128]; /* names of tasks have at most 64 letters */
    ups_status status = cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (unsigned t = 0; t < seed->config->task_count && status == UPS_OK; t++) {
        const char *task = seed->config->tasks[t].name;
        for (int s = 0; s < UPS_SPLIT_COUNT && status == UPS_OK; s++) {
            snprintf(name, sizeof name, "%s/%s", task, ups_split_name((ups_split)s));
            status = take_cached(ups_run_share_tree, cache, there, name, error);
        }
        snprintf(name, sizeof name, "%s/zarr.json", task);
        if (status == UPS_OK) status = take_cached(ups_run_share_file, cache, there, name, error);
    }
    if (status == UPS_OK) status = take_cached(ups_run_share_file, cache, there, "zarr.json", error);
    free(cache);
    return status;
}

static ups_status take_cache_within(const making *m, ups_error *error) {
    char *there = NULL;
    if (asprintf(&there, "%s/cache", m->directory) < 0) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = take_cache(m->seed, there, error);
    free(there);
    return status;
}

/* Into a directory of its own, which appears as a whole. */
static ups_status take_cache_apart(const ups_run_seed *seed, ups_error *error) {
    ups_directory_publication *publication = NULL;
    UPS_TRY(make_parent(seed->cache_directory, error));
    UPS_TRY(ups_publish_directory_begin(seed->cache_directory, &publication, error));
    ups_status status = take_cache(seed, ups_publish_directory_temporary(publication), error);
    if (status == UPS_OK) return ups_publish_directory_commit(publication, error);
    ups_publish_directory_abandon(publication);
    return status;
}

static ups_status fill(const making *m, ups_error *error) {
    const ups_run_seed *seed = m->seed;
    ups_run_config there = *seed->config;
    there.output = (char *)m->directory;
    UPS_TRY(take(m, ups_publish_copy, "normalisation.json", error));
    UPS_TRY(take(m, ups_publish_copy, "metrics.jsonl", error)); /* lines are added to it */
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        UPS_TRY(take_stage(m, (ups_stage)s, error));
        if (seed->weights & 1u << s)
            UPS_TRY(take_weights(m, (ups_stage)s, error));
        else if (seed->given & 1u << s)
            UPS_TRY(take_given(m, (ups_stage)s, error));
    }
    if (seed->cache && !seed->cache_directory[0]) UPS_TRY(take_cache_within(m, error));
    if (seed->redo) UPS_TRY(ups_run_redo_publish(m->directory, seed->redo, error));
    UPS_TRY(ups_run_state_publish(&there, &seed->state, error));
    return ups_run_config_publish(seed->config, m->directory, seed->output, seed->cache_directory, error);
}

ups_status ups_run_seed_make(const ups_run_seed *seed, ups_error *error) {
    ups_directory_publication *publication = NULL;
    const bool apart = seed->cache && seed->cache_directory[0];
    ups_error after;
    UPS_TRY(make_parent(seed->directory, error));
    UPS_TRY(ups_publish_directory_begin(seed->directory, &publication, error));
    making m = {seed, ups_publish_directory_temporary(publication)};
    ups_status status = fill(&m, error);
    if (status == UPS_OK && apart) status = take_cache_apart(seed, error);
    if (status != UPS_OK) {
        ups_publish_directory_abandon(publication);
        return status;
    }
    status = ups_publish_directory_commit(publication, error);
    if (status != UPS_OK && apart) ups_remove_tree_at_once(seed->cache_directory, &after);
    return status;
}
