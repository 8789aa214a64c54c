/* What a step does to latents on a grid, as far as that can be measured before anything is learnt: how much each number
 * of a token changes, and the linear map of a token that comes closest to the change. An operator that begins as that
 * map begins where gradients would take it in thousands of steps: where a few steps of a trajectory change far more
 * than the others, as smooth noise does, its weights are many times those that rates of learning are made for. */
#ifndef UPS_TRAIN_STAGES_MEASURED_ONE_STEP_H
#define UPS_TRAIN_STAGES_MEASURED_ONE_STEP_H

#include "pipeline/source.h"
#include "train/data/tasks.h"

typedef struct ups_one_step {
    int64_t dim, width; /* of a token, and of what is predicted: bundle · dim */
    float *change;      /* (bundle, dim): root mean square of the change after one step, after two, … */
    float *weight;      /* (width, dim), of the map from a token to its changes in units of `change` */
    float *bias;        /* (width) */
    bool linear;        /* whether there was a map to be found; else weight and bias are 0 */
} ups_one_step;

/* Over at most 64 training trajectories of `latents` (tokens, dim) in FP16, `times` frames each, at a stride. Errors of
 * the map are counted as the relative loss counts them: over the size of the frame that follows. It is found by least
 * squares over tokens of all frames, evenly spread, as many as a second or so allows; there is none where these are
 * fewer than eight for each number of a token, or the trajectory has no step, or `with_map` is false. Errors: those of
 * reading, UPS_ERR_MEMORY. Free with ups_one_step_free. */
ups_status ups_one_step_find(const ups_source *latents, int64_t times, ups_latent_shape shape, int64_t stride,
                             int bundle, bool with_map, ups_one_step *found, ups_error *error);
void ups_one_step_free(ups_one_step *step);

#endif
