/* Windows of latents, and what a graph is told beside them: what of a stage that learns steps in time does not depend
 * on what it learns of them.
 *
 * A window is the frames that the operator reads (model.operator.history) and those that it is to predict: one
 * application's (model.operator.bundle), or of more applications, fewer where a task's trajectories are shorter
 * (Darcy's have two frames). Tasks whose windows have the same length share one graph and mix within a batch; otherwise
 * a batch holds one task.
 *
 * A rollout begins with fewer frames than a history has, and repeats the first. Of a share of the windows,
 * `short_history`, the operator is shown it in the same way: 1 to history − 1 of the frames, equally often.
 *
 * Where a task has several strides, the loader's windows reach as far as the longest window of any stride does, in
 * steps of their greatest common divisor. Each micro-batch draws its stride, and of each of its windows where in it the
 * stride's own window begins; only that goes to the device. So the order of samples knows nothing of strides. */
#ifndef UPS_TRAIN_STAGES_LATENT_WINDOWS_H
#define UPS_TRAIN_STAGES_LATENT_WINDOWS_H

#include "train/data/latents.h"
#include "train/stages/training/training.h"

/* Inputs of a graph of latent windows; a stage's own may follow. */
enum {
    UPS_WINDOW_LATENTS,
    UPS_WINDOW_DT,
    UPS_WINDOW_PARAMETERS,
    UPS_WINDOW_TASK,
    UPS_WINDOW_UNKNOWN,
    UPS_WINDOW_INPUTS
};

/* A stage's context begins with this: the functions below that take `context` are for its description. */
typedef struct ups_latent_windows {
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    int64_t applications;         /* of the operator that windows are for, at most */
    bool consistent;              /* whether tasks of several steps have a graph that others do not have (semigroup) */
    ups_operator_options options; /* of any task */
    int64_t window[UPS_SAMPLER_MAX_TASKS][UPS_MAX_STRIDES]; /* frames of a task's windows, by variant: its strides */
    int64_t given[UPS_SAMPLER_MAX_TASKS];                   /* of these, those that the operator is given */
    int64_t bundle[UPS_SAMPLER_MAX_TASKS];                  /* and that it gives at once */
    int64_t *places;                                        /* (batch): where windows begin in what was read */
    float *dt, *condition, *one_hot;                        /* a batch's, in host memory of the device's own */
    float *unknown;                                         /* likewise */
    ups_source **sources[UPS_SPLIT_COUNT];                  /* latents of a split, by task; NULL where not opened */
    bool encodes[UPS_SPLIT_COUNT][UPS_SAMPLER_MAX_TASKS];
    struct ups_encoder_pool *encoders; /* NULL where all latents are cached */
} ups_latent_windows;

/* Request, applications and consistency are set: finds the rest. Whether windows of all tasks are alike, and may mix
 * within a batch. Ended with `_release`. */
bool ups_latent_windows_begin(ups_latent_windows *windows);
void ups_latent_windows_release(ups_latent_windows *windows);
/* Trajectories of opened tasks are as long as windows of one application: UPS_ERR_CONFIG. */
ups_status ups_latent_windows_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);
/* Says in one sentence what is encoded on the fly, if anything. */
void ups_latent_windows_say(const ups_latent_windows *windows, ups_stage stage);

/* Stored frames of a step of a task's variant, and whether the stage holds one step of twice the length against two of
 * it: of a steady problem there are none. */
int64_t ups_latent_windows_stride(const ups_latent_windows *windows, int task, int variant);
bool ups_latent_windows_consistent(const ups_latent_windows *windows, int task);
ups_operator_options ups_latent_windows_options(const ups_latent_windows *windows, int task, int variant);

/* Adds the inputs to a graph, windows of so many frames; `times`: applications of the operator. The latents in float32
 * are returned, (B, frames, tokens, dim); the frames that the operator reads of them go to `given`: what the input
 * `unknown` says −1 of repeats the frame after it. */
ups_value ups_latent_windows_inputs(const ups_latent_windows *windows, int task, int64_t batch, int64_t frames,
                                    int64_t times, ups_stage_graph *made);
void ups_latent_windows_given(ups_stage_graph *made, const ups_operator_options *options, ups_value latents,
                              ups_value *given);

/* ---- of a stage's description ------------------------------------------------------------------------------------ */

int ups_latent_windows_variants(const void *context, int task);
int ups_latent_windows_draw_variant(const void *context, int task, const ups_stage_draw *draw);
int64_t ups_latent_windows_kind(const void *context, int task, int variant);
ups_loader_load ups_latent_windows_load(const void *context, int task, ups_split split);
ups_status ups_latent_windows_measure_encoders(const void *context, size_t *bytes, ups_error *error);
ups_status ups_latent_windows_prepare(void *context, int64_t batch, ups_error *error);
ups_status ups_latent_windows_find_samples(void *context, int task, ups_split split, ups_loader_task *entry,
                                           ups_error *error);
ups_status ups_latent_windows_upload(void *context, ups_stage_graph *graph, const ups_batch *batch, ups_feed *feed,
                                     const int *task_of, const ups_stage_draw *draw, ups_error *error);

#endif
