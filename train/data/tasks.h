/* The tasks of a run: sources opened, samples split, fields normalised. What the stages, the cache build and the
 * evaluation share. */
#ifndef UPS_TRAIN_DATA_TASKS_H
#define UPS_TRAIN_DATA_TASKS_H

#include "base/json.h"
#include "train/config/config.h"
#include "train/data/splits.h"

/* How a PDE parameter enters the operator's condition: (x − mean) / spread of its value or of the value's logarithm. */
typedef struct ups_parameter_scale {
    bool logarithm;
    double mean, spread;
    bool constant; /* training had one value alone, `mean`; false too where a model of before does not tell */
} ups_parameter_scale;

typedef struct ups_task {
    const ups_task_config *config; /* borrowed */
    const char *name;              /* config->name */
    ups_source *source;
    ups_sample geometry; /* of every sample: shape, grid and channels agree, which opening checks */
    bool ends_differ;    /* the boundary is not the same along every axis */
    bool uneven;         /* the time from frame to frame differs within some trajectory */
    bool same_times;     /* frames of all samples lie as long behind the first one, but for rounding */
    double dt;           /* seconds from a stored frame to the next; NaN where these differ, see step_times.h */
    ups_sample_splits splits;
    int64_t patch[UPS_MAX_GRID_DIMS];
    float *places;  /* of points that lie anywhere: where tokens lie, (tokens, d) in [0, 1]; else NULL */
    float *offsets; /* of points that all samples share: from there to each of a token's points, (tokens, patch · d), of
                       unit deviation; else NULL */
    double finest_frequency; /* of the decoder's Fourier features: see ups_tasks_open */
    int *condition;         /* which of the source's parameters each input of the operator's condition is; −1: none */
    int condition_count;    /* NULL: the source's own, in their order */
    char **condition_names; /* as the model that told of them calls these; NULL with `condition` */
    ups_parameter_scale *scale; /* of each of these; NULL: they enter as they are */
    int64_t dim;       /* numbers of a latent token, where `model.dim: auto` was decided (patch_basis.h); else 0 */
    float *statistics; /* (channels, 2): mean, and what a deviation is multiplied by; NULL until normalised
                          (normalisation.h) */
} ups_task;

/* Of a frame's latents: (tokens, dim). */
typedef struct ups_latent_shape {
    int64_t tokens, dim;
} ups_latent_shape;

typedef struct ups_tasks {
    ups_task *task;
    int count;
} ups_tasks;

/* The files of a task, by its layout, with those kept for tests behind the others. Close with ups_source_close. */
ups_status ups_task_open_source(const ups_run_config *config, const ups_task_config *task, ups_source **source,
                                ups_error *error);

/* Opens every task's files and splits their samples (splits.h): adding a task, adding files behind those a task has, or
 * changing the seed leaves splits as they are. Errors name the task and file.
 *
 * finest_frequency: training asks the decoder for values at grid points alone, so a feature near the grid's Nyquist
 * frequency is not held by anything between them and shows as stripes at other resolutions. Tasks take features of at
 * most a quarter of the points along the shortest axis of any task with as many axes (those share the layer that reads
 * the features). */
ups_status ups_tasks_open(const ups_run_config *config, ups_tasks **tasks, ups_error *error);
/* Whether one task's files can be opened as `ups_tasks_open` would, with what is wrong if not. */
ups_status ups_task_try(const ups_run_config *config, int index, ups_error *error);
/* The same of sources (one for each task of the configuration, which are taken over, on failure too) that say what
 * samples are and have none: nothing is split, and parameters are not scaled. */
ups_status ups_tasks_of_sources(const ups_run_config *config, ups_source *const *sources, ups_tasks **tasks,
                                ups_error *error);
void ups_tasks_close(ups_tasks *tasks); /* NULL is fine */

/* [n, …], of each axis, where every n-th point of its files' grids is taken; NULL: all are. */
json_t *ups_task_describe_thin(const ups_task *task);

/* Of the task's latents: what the configuration says, or, with `model.tokens: grid`, a token a patch with at most the
 * patch's numbers. */
ups_latent_shape ups_task_latents(const ups_run_config *config, const ups_task *task);
int64_t ups_task_latent_elements(const ups_run_config *config, const ups_task *task); /* tokens · dim */
int64_t ups_task_patch_numbers(const ups_task *task); /* of a patch: points · channels */

/* Samples to judge a model by: the test split, or validation where the test split is empty. */
ups_split ups_task_held_out(const ups_task *task);
/* UPS_ERR_ARGUMENT, with the remedy, where a split has none. */
ups_status ups_task_check_split(const ups_task *task, ups_split split, ups_error *error);

/* Whether training samples differ in a PDE parameter. */
bool ups_task_parameters_differ(const ups_task *task);

/* Largest number of PDE parameters that the operator is told of any task: the width of its condition. */
int ups_tasks_parameter_count(const ups_tasks *tasks);

/* What the operator in the file `path` was conditioned on, by name, as it tells: files used with it may have their
 * parameters in another order. The log names those that they do not tell, which are 0. Tasks of which the file tells
 * nothing keep their files' order. */
ups_status ups_tasks_condition_as_trained(ups_tasks *tasks, const char *path, ups_error *error);
/* The same for a training that begins as that operator: parameters that it was not told of come behind the others. */
ups_status ups_tasks_condition_to_begin(ups_tasks *tasks, const char *path, ups_error *error);

/* Condition of one window from its parameters, which are in the source's order: scaled; unknown and absent ones are 0.
 * `out` holds `width` floats. */
void ups_task_condition(const ups_task *task, const double *parameters, int width, float *out);

/* How a parameter's value is to an operator of that scale (unlearnt.h says what follows). */
typedef enum ups_parameter_fit {
    UPS_PARAMETER_FITS,         /* also what is not known: NaN */
    UPS_PARAMETER_INFINITE,     /* the operator reads it as not known */
    UPS_PARAMETER_NOT_POSITIVE, /* as well, since it is told the logarithm */
    UPS_PARAMETER_NEW,          /* training had one value alone, and this is another, beyond rounding */
    UPS_PARAMETER_FAR,          /* more deviations away from training's mean than what is drawn evenly ever is */
    UPS_PARAMETER_FITS_COUNT
} ups_parameter_fit;

/* `scale` NULL: values enter as they are, and only what is infinite does not fit. */
ups_parameter_fit ups_parameter_judge(const ups_parameter_scale *scale, double value);
/* By how many deviations a value is away from training's mean, where it fits or is far. */
double ups_parameter_deviations(const ups_parameter_scale *scale, double value);

#endif
