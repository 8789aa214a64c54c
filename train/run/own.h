/* A run owns its configuration: DIR/config.yaml, written before the first stage begins. A command that is given another
 * one is held against it, key by key; so a forgotten or changed option cannot undo what is there. */
#ifndef UPS_TRAIN_RUN_OWN_H
#define UPS_TRAIN_RUN_OWN_H

#include "train/config/config.h"
#include "train/state.h"

/* Whether a directory holds a run. */
bool ups_run_is_there(const char *directory);

/* Writes DIRECTORY/config.yaml: `config` as the run in `output` has it, with `cache_directory` ("": output/cache).
 * Paths become absolute, so that the file means the same from anywhere. */
ups_status ups_run_config_publish(const ups_run_config *config, const char *directory, const char *output,
                                  const char *cache_directory, ups_error *error);

/* How far the stages of a run have come. */
typedef struct ups_run_progress {
    ups_run_state state;
    int64_t step[UPS_STAGE_COUNT]; /* of the checkpoint that is there; −1: none */
    unsigned begun;                /* a mask: finished, or a checkpoint is there */
    unsigned built;                /* the same, and the cache, where a part of it is there */
} ups_run_progress;
ups_status ups_run_look(const ups_run_config *config, ups_run_progress *progress, ups_error *error);

/* A value of the run's own configuration that is not the same in the one that a command was given. */
typedef struct ups_run_difference {
    char *key, *run, *now;
    char *assignment; /* "KEY=VALUE" that makes the run's own the same as the other */
    bool neutral;     /* no result depends on it */
    bool of_stage;    /* a key of `stage` alone and what is built on it; otherwise of all, and `stage` is the first */
    ups_stage stage;  /* the first whose results depend on it */
    bool lengthens;   /* STAGE.steps or STAGE.patience, and it is more now */
} ups_run_difference;
typedef struct ups_run_differences {
    ups_run_difference *list;
    size_t count;
} ups_run_differences;

/* `precision: auto` and `batch_size: auto` agree with whatever the run has. */
ups_status ups_run_compare(const ups_run_config *run, const ups_run_config *now, ups_run_differences *differences,
                           ups_error *error);
void ups_run_differences_free(ups_run_differences *differences);

#endif
