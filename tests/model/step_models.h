/* For tests of steps: small models, ready to run on random inputs, and what a run gives. */
#ifndef UPS_TESTS_MODEL_STEP_MODELS_H
#define UPS_TESTS_MODEL_STEP_MODELS_H

#include "model/nets/encoder.h"
#include "model/nets/operator.h"
#include "model/step/step.h"
#include "tests/model/on_device.h"

extern ups_device *device;
extern ups_checkpointing checkpointing; /* of the models that are built */

/* cmocka group fixtures. */
int open_device(void **state);
int close_device(void **state);

typedef struct model {
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value loss;
} model;

static const ups_init small = {.kind = UPS_INIT_NORMAL, .scale = 0.3f};

/* A graph without values; then its parameters and its step; released by `end`. */
model begin(ups_dtype compute);
void ready(model *m);
void end(model m);

typedef struct settings {
    bool training, backward, accumulate;
    float share;
    uint64_t item;
    const ups_gradient_watch *watch;
} settings;

static const settings train = {.training = true, .backward = true, .share = 1};

ups_status try_run(const model *m, settings how, ups_error *error);
void run(const model *m, settings how);
float loss_of(const model *m);

/* Of all parameters, on the host; free with free(). */
float *gradients_of(const model *m);
float *values_of(const model *m);
void upload_values(const model *m, const float *host);
/* Normal numbers into an input, the same for the same `item`. */
void upload_random(const model *m, const char *name, uint32_t item);

/* Runs the graph once on random inputs (drawn by name, so the same for every graph): the elements of a value that it
 * keeps, for free(). Parameters are drawn where they are not there yet. */
float *evaluate(const model *m, ups_value kept, uint32_t draw);
/* The parameter `name` set to small random numbers. */
void randomise(const model *m, const char *name);
/* ||a - b|| / ||b|| */
double difference(const float *a, const float *b, int64_t count);

/* An input of the graph, of float32. */
ups_value float_input(model *m, const char *name, ups_shape shape);
ups_value mean_square(ups_graph *g, ups_value x, ups_value target);
/* Values with several consumers, views of views, parameters used twice, slices of one value, a branch that leads
 * nowhere. */
model tangled_model(float drop_path);
ups_operator_options small_operator(void);
model operator_graph(ups_dtype compute, ups_operator_options options, int64_t batch); /* not ready */
model operator_model(ups_dtype compute, ups_operator_options options, int64_t batch);
void upload_operator(const model *m); /* the inputs that operator_model has */
model autoencoder_model(ups_pooling pooling);

#endif
