/* Parameters: all of a model's weights in one flat float32 buffer, their gradients in another. Those that the same
 * graphs train are a set, and lie side by side, so that a step passes over what it trains alone. Within a set they are
 * laid out in reverse order of first use, so that a range of gradients is complete early in backward and can be reduced
 * while the rest still runs, and shards are slices. The buffers are ups_weights (weights.h), on the device.
 */
#ifndef UPS_MODEL_PARAMETERS_PARAMETERS_H
#define UPS_MODEL_PARAMETERS_PARAMETERS_H

#include "model/parameters/weights.h"

struct json_t; /* jansson's */
struct ups_safetensor;

typedef enum ups_init_kind {
    UPS_INIT_ZEROS,
    UPS_INIT_ONES,
    UPS_INIT_NORMAL,  /* mean 0, standard deviation `scale` */
    UPS_INIT_UNIFORM, /* in [−scale, scale] */
} ups_init_kind;

typedef struct ups_init {
    ups_init_kind kind;
    float scale;
    bool no_decay;    /* gains, biases and embeddings are not decayed */
    bool fixed;       /* measured before training (ups_parameters_set), and left as it is: no gradient flows to it, and
                         products with it are float32, whatever a graph computes in */
    int64_t matrices; /* hidden weights, which Muon may move: how many matrices lie in it, one after the other, each of
                         as many columns as its last axis has elements; 0: none (inputs, outputs, norms, embeddings) */
} ups_init;

typedef struct ups_parameter {
    const char *name;
    int rank;
    int64_t size[4];
    int64_t elements;
    int64_t offset; /* elements from the start of the flat buffers; a multiple of 64; set by allocate */
    int32_t set;    /* 0 unless ups_parameters_divide said another */
    ups_init init;
} ups_parameter;

typedef struct ups_parameters ups_parameters;

ups_parameters *ups_parameters_create(void);
void ups_parameters_destroy(ups_parameters *parameters); /* frees device buffers too */

/* Index of the parameter; adds it when it is new. Aborts when the name exists with another shape. Not after allocate.
 */
int32_t ups_parameters_add(ups_parameters *parameters, const char *name, int rank, const int64_t *size, ups_init init);

/* After all graphs are built and before allocate: the set of each parameter, by index, from 0 on without a gap. */
void ups_parameters_divide(ups_parameters *parameters, const int32_t *set_of);
int32_t ups_parameters_sets(const ups_parameters *parameters); /* at least 1 */

/* After all graphs are built: where each lies in the flat buffers is settled; no parameter may be added any more. */
void ups_parameters_place(ups_parameters *parameters);
/* The same where it was not done; then allocates and initialises (Philox keyed by seed and name, so an added layer does
 * not change the others). `gradients`: allocate these too. `compute`: the dtype of the copy that bf16 and fp16 graphs
 * read; UPS_F32: none. */
ups_status ups_parameters_allocate(ups_parameters *parameters, struct ups_device *device, bool gradients,
                                   ups_dtype compute, uint64_t seed, ups_error *error);

int32_t ups_parameters_count(const ups_parameters *parameters);
const ups_parameter *ups_parameters_get(const ups_parameters *parameters, int32_t index);
int32_t ups_parameters_find(const ups_parameters *parameters, const char *name); /* −1 when absent */
int32_t ups_parameters_placed(const ups_parameters *parameters, int32_t i); /* index of the i-th in the flat buffers */
int64_t ups_parameters_elements(
    const ups_parameters *parameters); /* of the flat buffers, padding (kept at zero) included; grows until allocate */
int64_t ups_parameter_extent(const ups_parameter *parameter); /* what it takes of these: with its padding */
int64_t ups_parameters_trainable(
    const ups_parameters *parameters); /* without padding and what is fixed: what a paper would state */

float *ups_parameters_values(ups_parameters *parameters);    /* device memory */
float *ups_parameters_gradients(ups_parameters *parameters); /* device memory; NULL when not allocated */
bool ups_parameters_allocated(const ups_parameters *parameters);
const ups_weights *ups_parameters_weights(const ups_parameters *parameters); /* its own; empty until allocated */
/* First values for one of them, (elements) in host memory, in the place of its initialisation; refresh when all are
 * set.
 */
ups_status ups_parameters_set(ups_parameters *parameters, const char *name, const float *values, ups_error *error);
/* What one of them holds, by index, to (elements) in host memory. */
ups_status ups_parameters_get_values(const ups_parameters *parameters, int32_t index, float *values, ups_error *error);
ups_status ups_parameters_refresh(ups_parameters *parameters, ups_error *error); /* ups_weights_refresh of them */

/* Safetensors files (safetensors.h). Loading checks everything (names, shapes, length, that all is finite) before it
 * changes anything, and refreshes the compute copy; `strict` refuses missing and extra tensors. */
ups_status ups_parameters_save(const ups_parameters *parameters, const char *path, ups_error *error);
ups_status ups_parameters_load(ups_parameters *parameters, const char *path, bool strict, ups_error *error);

/* Whether a file's tensor can be loaded into the parameter, asked before memory is taken for all of them: sizes that
 * somebody made up want absurd amounts. `path` is the file's, for the sentence. UPS_ERR_FORMAT. */
ups_status ups_parameter_check(const ups_parameter *parameter, const struct ups_safetensor *tensor, const char *path,
                               ups_error *error);

/* What a buffer holds of the flat buffers' elements, and from which of its own on. */
typedef struct ups_parameter_part {
    int64_t offset, count, place;
} ups_parameter_part;

/* The first part of the elements [at, end), of a list in their order; false: there is none of them. A list that is NULL
 * has all, in their places. */
bool ups_parameter_find_part(const ups_parameter_part *parts, int32_t count, int64_t at, int64_t end,
                             ups_parameter_part *found);

/* Flat device buffers laid out as the parameters are (values, moments, EMA): one file holds several, its tensors named
 * `prefix` + name, float32. Of the parameters only those whose names start with `only` go in (NULL: all). */
typedef struct ups_parameter_buffer {
    const char *prefix;              /* "", "ema." */
    float *values;                   /* device memory */
    const bool *has;                 /* by index, whether it has this parameter; NULL: all */
    const ups_parameter_part *parts; /* what it holds of them here; NULL: all, where they lie in the values */
    int32_t part_count;
} ups_parameter_buffer;

/* Of buffers with parts, each process may hold other ones: brings together what all hold. Collective: all of them save
 * the same buffers at the same time, and one writes the file. */
typedef struct ups_parameter_gather {
    /* The elements [offset, offset + count) in host memory, where this process has put what it holds of them; then
     * who writes has all. */
    ups_status (*bring)(void *context, float *elements, int64_t offset, int64_t count, ups_error *error);
    void *context;
    bool writes; /* this process */
} ups_parameter_gather;

/* `metadata`: an object of texts for the file's header, or NULL. `gather` NULL: all is held here. Nobody holds more of
 * what others have than one tensor at a time. */
ups_status ups_parameters_save_buffers(const ups_parameters *parameters, const char *only,
                                       const ups_parameter_buffer *buffers, int buffer_count,
                                       const ups_parameter_gather *gather, const struct json_t *metadata,
                                       const char *path, ups_error *error);
/* Buffers of the caller's own: the compute copy is not refreshed unless one of them is the values. Of each tensor what
 * the buffer holds of it is read. */
ups_status ups_parameters_load_buffers(ups_parameters *parameters, const char *only,
                                       const ups_parameter_buffer *buffers, int buffer_count, const char *path,
                                       bool strict, ups_error *error);

#endif
