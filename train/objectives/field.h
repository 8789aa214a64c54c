/* Fields within the operator's graph: what losses on fields are made of.
 *
 * On a grid of tokens the decoder is a linear map of each token to its patch (model/nets/patch_code.h), so that decoded
 * fields, and all that is linear in them (means, differences, Fourier modes, borders), are products of the latents with
 * fixed matrices. The map is the trained autoencoder's, a constant here. Products are in float32 whatever the graph
 * computes in. Fields are normalised: of deviation 1, or task.field_scale. */
#ifndef UPS_TRAIN_OBJECTIVES_FIELD_H
#define UPS_TRAIN_OBJECTIVES_FIELD_H

#include "model/ops.h"
#include "train/data/tasks.h"

/* Encoders and decoders of all tasks, as output/autoencoder.safetensors has them. */
typedef struct ups_field_maps ups_field_maps;

/* Errors name the file. Free with ups_field_maps_free. */
ups_status ups_field_maps_load(const ups_run_config *config, const ups_tasks *tasks, ups_field_maps **maps,
                               ups_error *error);
void ups_field_maps_free(ups_field_maps *maps); /* NULL is fine */

/* Fields of one task in one graph. */
typedef struct ups_field {
    const ups_task *task;
    int64_t dim, tokens, numbers, points, channels; /* numbers: of a patch; points: of the grid */
    int64_t cells[UPS_MAX_GRID_DIMS];
    const float *decode;     /* (numbers, dim) */
    const float *encode;     /* (dim, numbers) */
    const float *statistics; /* (channels, 2) */
} ups_field;

/* maps NULL: for a plan, whose graphs do not run. What is allocated lies in the arena. */
ups_field ups_field_of(const ups_run_config *config, const ups_tasks *tasks, int task, const ups_field_maps *maps,
                       ups_arena *arena);

/* Whether patches end where the grid does, along every axis. */
bool ups_field_fits(const ups_field *field);
/* The grid's point of a number, row-major, along each axis. */
void ups_field_point(const ups_task *task, int64_t number, int64_t at[UPS_MAX_GRID_DIMS]);
/* Whether a point is one of the grid's outermost. */
bool ups_field_on_border(const ups_task *task, int64_t number);
/* Of the grid along an axis, in parts of the domain where the file tells no coordinates. */
double ups_field_spacing(const ups_task *task, int axis);
/* Where a number of a point stands among all numbers of a frame's patches. `at`: of the point along each axis. */
int64_t ups_field_number(const ups_field *field, const int64_t *at, int64_t channel);
/* What a value of 0 is where fields are normalised: minus the offset. offset = mean · inverse deviation */
float ups_field_offset(const ups_field *field, int64_t channel);

/* Patches (B, tokens, numbers) float32 of latents (B, tokens, dim). */
ups_value ups_field_decode(ups_graph *graph, const ups_field *field, ups_value latents);
/* And back. Both take more axes between the first and the last two. */
ups_value ups_field_encode(ups_graph *graph, const ups_field *field, ups_value patches);

/* The constant of that name: the one that is there, or one that is made. Bytes are copied. */
ups_value ups_field_constant(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape, const void *bytes);

/* Numbers (B, count) of a frame x (B, …) float32 by their places (count) int32, a constant. */
ups_value ups_field_gather(ups_graph *graph, ups_value x, ups_value places);

/* The channel of that name; -1 where the task has none. */
int64_t ups_field_channel(const ups_task *task, const char *name);
/* Each name is that of a field of some task: UPS_ERR_CONFIG, which begins with the key, tells the one that is not, and
 * which was meant. */
ups_status ups_field_check_names(const ups_field_names *names, const char *key, const ups_tasks *tasks,
                                 ups_error *error);

#endif
