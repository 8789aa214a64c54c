/* A run small enough to be computed directly: two tasks (a travelling wave in 1D; Darcy's layout in 2D, which stores
 * channels first and has a field that never changes), and models with random weights. */
#ifndef UPS_TESTS_TRAIN_TINY_MODELS_H
#define UPS_TESTS_TRAIN_TINY_MODELS_H

#include "model/device.h"
#include "train/data/tasks.h"

typedef struct tiny_run {
    ups_run_config *config;
    ups_device *device;
    ups_tasks *tasks;
} tiny_run;

enum { WAVE, DARCY };

/* Everything made, opened and normalised, the run's autoencoder.safetensors and operator.safetensors written.
 * `directory` takes the run's output, its data and its configuration. */
void tiny_run_open(tiny_run *run, const char *directory);
void tiny_run_close(tiny_run *run);

/* The task's truth, read with plain reads: (frames, points, channels) float32 of a sample of its source. Free with
 * free(). */
float *tiny_truth(const tiny_run *run, int task, int64_t sample);

/* Graphs of batch 1, of this test's own. Fields are (points, channels) in physical units. */
typedef struct tiny_models tiny_models;
tiny_models *tiny_models_open(const tiny_run *run, int task);
void tiny_models_close(tiny_models *models);
void tiny_encode(tiny_models *models, const float *field, float *latents);
void tiny_advance(tiny_models *models, float *latents, double dt, const double *parameters);
void tiny_decode(tiny_models *models, const float *latents, float *field);

#endif
