/* What a step does to latents on a grid, as far as that can be measured before anything is learnt: how much each number
 * of a token changes, and the linear map of a token, or of it and its neighbours, that comes closest to the change. An
 * operator that begins as that map begins where gradients would take it in thousands of steps: where a few steps of a
 * trajectory change far more than the others, as noise that fades does, its weights are many times those that rates of
 * learning are made for. */
#ifndef UPS_TRAIN_STAGES_MEASURED_ONE_STEP_H
#define UPS_TRAIN_STAGES_MEASURED_ONE_STEP_H

#include "pipeline/source.h"
#include "train/data/tasks.h"

/* What is measured. */
typedef struct ups_one_step_of {
    int64_t times;          /* frames of a trajectory */
    ups_latent_shape shape; /* of a frame's latents */
    int64_t stride;         /* stored frames of a step */
    int bundle;             /* steps */
    bool with_map;
    int dims; /* of the grid of cells, whose neighbours the map reads as ups_neighborhood has them; 0: a token alone */
    int64_t cells[UPS_MAX_GRID_DIMS];
    bool periodic;
} ups_one_step_of;

typedef struct ups_one_step {
    int64_t read, width; /* numbers that are read, dim or 3^dims · dim, and that are predicted: bundle · dim */
    float *change;       /* (bundle, dim): root mean square of the change after one step, after two, … */
    float *weight;       /* (width, read), of the map from what is read to changes in units of `change` */
    float *bias;         /* (width) */
    double explained;    /* share of the changes' squares that the map explains, weighted as its errors are */
    bool linear;         /* whether there was a map to be found; else nobody reads weight and bias */
} ups_one_step;

/* Over at most 64 training trajectories of `latents` (tokens, dim) in FP16. Errors of the map are counted as the
 * relative loss counts them, over the size of a frame: of the one that follows, for all steps of a bundle. It is found
 * by least squares over tokens of all frames, evenly spread, as many as a second or two allow. Where these are fewer
 * than twice what it reads it reads the token alone; there is none where they are too few for that, or the trajectory
 * has no step, or with_map is false. Errors: those of reading, UPS_ERR_MEMORY. Free with ups_one_step_free. */
ups_status ups_one_step_find(const ups_source *latents, const ups_one_step_of *of, ups_one_step *found,
                             ups_error *error);
void ups_one_step_free(ups_one_step *step);

#endif
