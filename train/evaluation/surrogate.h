/* A trained surrogate of one task, for use: fields become latents, latents advance in time, latents are read at any
 * points. What the evaluation and the rollouts run on.
 *
 * Graphs are built for fixed batches; any number of rows may be handed in, the last batch is filled up. Fields are in
 * physical units on both sides. */
#ifndef UPS_TRAIN_EVALUATION_SURROGATE_H
#define UPS_TRAIN_EVALUATION_SURROGATE_H

#include "model/device.h"
#include "train/data/tasks.h"

/* Which files a run's models are read from. */
typedef struct ups_surrogate_files {
    char *autoencoder, *op;                       /* paths; owned */
    char autoencoder_hash[33], operator_hash[33]; /* XXH3 of the files */
} ups_surrogate_files;

/* The run's exported models, or those that `checkpoint` (NULL: none) names: "best" or "latest" of the operator's
 * checkpoints in the run; or a safetensors file with the operator, the
 * autoencoder or both, as a stage exports it or as training's checkpoints are; or a directory with
 * operator.safetensors, autoencoder.safetensors or a training checkpoint (latest.json). A model that the checkpoint
 * does not hold is the run's. Errors name the file that is missing and what makes it. */
ups_status ups_surrogate_find(const ups_run_config *config, const char *checkpoint, ups_surrogate_files *files,
                              ups_error *error);
/* Whether it names files, which may be of another run. */
bool ups_surrogate_is_another(const char *checkpoint);
/* The models that a safetensors file or a directory holds, one of the two or both: paths alone, no hashes. */
ups_status ups_surrogate_take(const char *path, ups_surrogate_files *files, ups_error *error);
void ups_surrogate_files_free(ups_surrogate_files *files);

typedef struct ups_surrogate ups_surrogate;

/* What it is opened for. Batches are sized by numbers; more and fewer work too. */
typedef struct ups_surrogate_use {
    int64_t points;      /* that a frame is decoded at; 0: as many as the task's grid has */
    int64_t states;      /* advanced side by side; 0: many */
    bool at_grid_points; /* decoded at points of the task's grid alone: nothing between them is corrected */
} ups_surrogate_use;

/* `files->op` NULL: the autoencoder alone; ups_surrogate_advance may not be called then. `tasks` is normalised and,
 * like the rest, borrowed. Errors: those of the files; UPS_ERR_FORMAT when they do not fit the configuration;
 * UPS_ERR_STALE when they say that they are of another one, or the operator of another autoencoder (origin.h). */
ups_status ups_surrogate_open(const ups_run_config *config, const ups_tasks *tasks, int task, ups_device *device,
                              const ups_surrogate_files *files, ups_surrogate_use use, ups_surrogate **surrogate,
                              ups_error *error);
void ups_surrogate_close(ups_surrogate *surrogate); /* NULL is fine */

int64_t ups_surrogate_latent_elements(const ups_surrogate *surrogate); /* tokens × dim, of one frame */

/* Latents (count, tokens, dim) of frames (count, elements) in the task's own channel order. */
ups_status ups_surrogate_encode(ups_surrogate *surrogate, const float *frames, int64_t count, float *latents,
                                ups_error *error);

/* Frames that an application of the operator reads, and that it gives at most. */
int64_t ups_surrogate_history(const ups_surrogate *surrogate);
int64_t ups_surrogate_bundle(const ups_surrogate *surrogate);

/* A trajectory to advance: from the frames so far, a step apart, to those that follow. Where fewer are given than the
 * operator reads, it is told the first one again. `next` may lie behind `given`. */
typedef struct ups_surrogate_state {
    const float *given; /* (given_count, tokens, dim), the last one last */
    int64_t given_count;
    float *next;              /* (next_count, tokens, dim): filled */
    int64_t next_count;       /* 1 to ups_surrogate_bundle */
    const double *parameters; /* (parameter_count of the task's source) */
    double dt;                /* seconds of a step: of the first one, where they differ */
} ups_surrogate_state;
ups_status ups_surrogate_advance(ups_surrogate *surrogate, const ups_surrogate_state *states, int64_t count,
                                 ups_error *error);

/* Trajectories to advance side by side, to their ends. */
typedef struct ups_surrogate_rollouts {
    float
        *latents; /* (count, frames, tokens, dim): the first `given` of each are there, those behind them are filled */
    int64_t count, given, frames;
    const double *step_times; /* (count, frames): seconds from the frame before to each; of the given ones unread */
    const double *const *parameters; /* (count) of (parameter_count of the task's source) each */
    /* After each application: frames that were made since, of all trajectories; an error of its ends it. NULL: none. */
    ups_status (*advanced)(void *context, int64_t frames, ups_error *error);
    void *context;
} ups_surrogate_rollouts;
ups_status ups_surrogate_roll(ups_surrogate *surrogate, const ups_surrogate_rollouts *rollouts, ups_error *error);

/* Fields (count, points, channels), channels last, of latents (count, tokens, dim) at coordinates (points, dims) in
 * [0, 1]. */
ups_status ups_surrogate_decode(ups_surrogate *surrogate, const float *latents, int64_t count, const float *coordinates,
                                int64_t points, float *fields, ups_error *error);

#endif
