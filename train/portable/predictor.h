/* Predictions of a trained model from fields that are handed in: without its data, its run or its configuration, by
 * what its files tell (train/portable/described.h). */
#ifndef UPS_TRAIN_PORTABLE_PREDICTOR_H
#define UPS_TRAIN_PORTABLE_PREDICTOR_H

#include "model/devices/devices.h"
#include "train/portable/described.h"

typedef struct ups_predictor ups_predictor;

/* `path`: a file that `ups export` wrote, or the directory of a run whose operator is trained. A predictor is for one
 * thread at a time. Errors: UPS_ERR_IO where there is no model, UPS_ERR_FORMAT where it does not tell enough,
 * UPS_ERR_STALE where operator and autoencoder are not of one run, those of the device. */
ups_status ups_predictor_open(const char *path, const ups_device_options *device, ups_predictor **predictor,
                              ups_error *error);
void ups_predictor_close(ups_predictor *predictor); /* NULL is fine */

const ups_described *ups_predictor_describe(const ups_predictor *predictor); /* of the grids that were trained on */
const char *ups_predictor_device(const ups_predictor *predictor);            /* "cpu", "cuda" */
/* Frames that the operator of a task reads, and that it gives at a time. */
ups_operator_options ups_predictor_operator(const ups_predictor *predictor, int task);

typedef struct ups_prediction {
    int task;
    int64_t count;  /* trajectories */
    int64_t given;  /* first frames of each, a step apart */
    int64_t steps;  /* to predict behind them */
    int64_t stride; /* of a step, of those that were learnt; 0: the task's own */
    /* Points along each axis of the frames, and of the fields; first 0: as trained, and as the frames. Of points that
     * lie anywhere, each sample's own, there may be fewer than were trained on. */
    int64_t grid[UPS_MAX_GRID_DIMS], resolution[UPS_MAX_GRID_DIMS];
    const float *frames; /* (count, given, points, channels), physical units */
    const double
        *parameters; /* (count, parameters), in the order that the model tells; NaN: not known. NULL: none is */
    /* Seconds of a step, (count), or of each step, (count, steps); NaN, or NULL both: as the model tells, of uneven
     * trajectories from their first frame on and their last step again and again behind them. A model whose
     * trajectories differed in it tells none. */
    const double *dt, *step_times;
    float *fields;  /* (count, given + steps, points of `resolution`, channels): the given frames as the autoencoder
                       reads them back, then what is predicted. NULL: not wanted */
    float *latents; /* (count, given + steps, tokens, dim). NULL: not wanted */
    bool (*go_on)(void *context, int64_t done, int64_t all); /* false ends it: UPS_ERR_CANCELLED; NULL: it goes on */
    void *context;
} ups_prediction;

/* Graphs are built for the first prediction of a kind (task, trajectories, stride, grids), and four kinds are kept.
 * Errors: UPS_ERR_ARGUMENT for sizes that cannot be, and where no length of a step is known, UPS_ERR_NUMERIC for frames
 * with NaN or Inf, UPS_ERR_MEMORY. */
ups_status ups_predictor_run(ups_predictor *predictor, const ups_prediction *prediction, ups_error *error);

/* Tokens and dim of a task's latents on a grid (first 0: as trained). */
ups_status ups_predictor_latents(ups_predictor *predictor, int task, const int64_t grid[UPS_MAX_GRID_DIMS],
                                 ups_latent_shape *shape, ups_error *error);

#endif
