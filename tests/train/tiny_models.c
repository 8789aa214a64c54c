#include "tiny_models.h"

#include "base/random.h"
#include "model/devices/devices.h"
#include "model/step/step.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "train/config/load.h"
#include "train/data/normalisation.h"
#include "train/networks.h"
#include "train/state.h"
#include <hdf5.h>
#include <math.h>

enum { WAVES = 6, WAVE_TIMES = 9, WAVE_POINTS = 16, DARCIES = 8, SIDE = 8 };

static const char configuration[] = "output: %s\n"
                                    "precision: f32\n"
                                    "device: {name: cpu, threads: 1}\n"
                                    "data: {root: %s, split: {train: 0.5, validation: 0, test: 0.5}}\n"
                                    "tasks:\n"
                                    "  - {name: wave, files: [wave.h5], patch: [4], stride: 2}\n"
                                    "  - {name: darcy, files: [darcy.h5], patch: [4], field_scale: [1, 3]}\n"
                                    "model:\n"
                                    "  tokens: 4\n"
                                    "  dim: 8\n"
                                    "  encoder: {width: 8, frequencies: [1, 2]}\n"
                                    "  decoder: {hidden: 8, depth: 1, heads: 2, frequencies: [1, 2]}\n"
                                    "  operator: {hidden: 16, depth: 1, heads: 2, mlp_ratio: 2}\n"
                                    "evaluation: {horizons: [1, 3, 50, 0], start_every: 2, max_samples: 0}\n";

/* ---- data ------------------------------------------------------------------------------------------------------ */

static void write_floats(hid_t file, const char *name, int rank, const hsize_t *shape, const float *values) {
    hid_t space = H5Screate_simple(rank, shape, NULL);
    hid_t set = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* Time steps grow, so that a dt taken from the wrong frames shows. */
static void write_wave(const char *path) {
    float values[WAVES][WAVE_TIMES][WAVE_POINTS], time[WAVE_TIMES], x[WAVE_POINTS];
    for (int t = 0; t < WAVE_TIMES; t++) time[t] = 0.1f * (float)t + 0.02f * (float)(t * t);
    for (int p = 0; p < WAVE_POINTS; p++) x[p] = ((float)p + 0.5f) / WAVE_POINTS;
    for (int s = 0; s < WAVES; s++) {
        for (int t = 0; t < WAVE_TIMES; t++) {
            for (int p = 0; p < WAVE_POINTS; p++) {
                values[s][t][p] = 1 + sinf(6.2831853f * (float)(1 + s % 2) * (x[p] - time[t]) + (float)s);
            }
        }
    }
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    write_floats(file, "tensor", 3, (hsize_t[]){WAVES, WAVE_TIMES, WAVE_POINTS}, &values[0][0][0]);
    write_floats(file, "t-coordinate", 1, (hsize_t[]){WAVE_TIMES}, time);
    write_floats(file, "x-coordinate", 1, (hsize_t[]){WAVE_POINTS}, x);
    double beta = 0.7;
    hid_t attribute = H5Acreate2(file, "beta", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_DOUBLE, &beta);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Fclose(file);
}

static void write_darcy(const char *path) {
    float nu[DARCIES][SIDE][SIDE], u[DARCIES][SIDE][SIDE];
    for (int s = 0; s < DARCIES; s++) {
        for (int i = 0; i < SIDE; i++) {
            for (int j = 0; j < SIDE; j++) {
                nu[s][i][j] = (i + 2 * j + s) % 5 < 2 ? 0.1f : 1.0f;
                u[s][i][j] = 0.01f * (float)((i + 1) * (SIDE - i) * (j + 1) * (SIDE - j) + 3 * s + i);
            }
        }
    }
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    write_floats(file, "nu", 3, (hsize_t[]){DARCIES, SIDE, SIDE}, &nu[0][0][0]);
    write_floats(file, "tensor", 4, (hsize_t[]){DARCIES, 1, SIDE, SIDE}, &u[0][0][0]);
    H5Fclose(file);
}

float *tiny_truth(const tiny_run *run, int index, int64_t sample) {
    const ups_task *task = &run->tasks->task[index];
    const int64_t times = task->geometry.times, stride = task->config->stride, frames = (times - 1) / stride + 1;
    const int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    const int64_t points = elements / channels;
    float *stored = malloc((size_t)(times * elements) * sizeof(float));
    float *truth = malloc((size_t)(frames * elements) * sizeof(float));
    ok(ups_source_read(task->source, sample, (ups_frames){0, times}, stored, &failure));
    for (int64_t f = 0; f < frames; f++) {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = 0; p < points; p++) {
                int64_t at = task->geometry.order == UPS_CHANNELS_LAST ? p * channels + c : c * points + p;
                truth[f * elements + p * channels + c] = stored[f * stride * elements + at];
            }
        }
    }
    free(stored);
    return truth;
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

struct tiny_models {
    const tiny_run *run;
    const ups_task *task;
    ups_parameters *autoencoder, *op;
    ups_graph *encoder, *decoder, *advance;
    ups_step *encoder_step, *decoder_step, *advance_step;
    ups_value field, encoded, latents, decoded, state, dt, parameters, one_hot, advanced;
    float one_hot_values[2];
};

/* `task`: whose encoder and decoder; the operator is everyone's. */
static void build(tiny_models *m, const tiny_run *run, int index) {
    const ups_task *task = &run->tasks->task[index];
    const int64_t points = ups_task_points(task), elements = ups_sample_frame_elements(&task->geometry);
    *m = (tiny_models){.run = run, .task = task, .autoencoder = ups_parameters_create(), .op = ups_parameters_create()};
    m->encoder = ups_graph_create(m->autoencoder, UPS_F32);
    m->field = ups_graph_input(m->encoder, "field", UPS_F32, UPS_SHAPE(1, elements));
    m->encoded = ups_networks_encode(m->encoder, run->config, task, m->field);
    ups_graph_keep(m->encoder, m->encoded);

    m->decoder = ups_graph_create(m->autoencoder, UPS_F32);
    m->latents = ups_graph_input(m->decoder, "latents", UPS_F32, UPS_SHAPE(1, 4, 8));
    float *coordinates = malloc((size_t)(points * task->geometry.dims) * sizeof(float));
    ups_task_coordinates(task, coordinates);
    ups_value everywhere =
        ups_graph_constant(m->decoder, "coordinates", UPS_F32, UPS_SHAPE(points, task->geometry.dims), coordinates);
    free(coordinates);
    m->decoded = ups_networks_decode(m->decoder, run->config, task, m->latents, everywhere);
    ups_graph_keep(m->decoder, m->decoded);

    ups_operator_options options = ups_run_operator(run->config, run->tasks, &run->tasks->task[0]);
    m->advance = ups_graph_create(m->op, UPS_F32);
    m->state = ups_graph_input(m->advance, "latents", UPS_F32, UPS_SHAPE(1, 4, 8));
    m->dt = ups_graph_input(m->advance, "dt", UPS_F32, UPS_SHAPE(1, 1));
    m->parameters = ups_graph_input(m->advance, "parameters", UPS_F32, UPS_SHAPE(1, options.parameter_count));
    m->one_hot = ups_graph_input(m->advance, "task", UPS_F32, UPS_SHAPE(1, 2));
    m->advanced = ups_operator_build(m->advance, &options, m->state, m->dt, m->parameters, m->one_hot);
    ups_graph_keep(m->advance, m->advanced);
    m->one_hot_values[index] = 1;
}

static void unbuild(tiny_models *m) {
    ups_step_destroy(m->encoder_step);
    ups_step_destroy(m->decoder_step);
    ups_step_destroy(m->advance_step);
    ups_graph_destroy(m->encoder);
    ups_graph_destroy(m->decoder);
    ups_graph_destroy(m->advance);
    ups_parameters_destroy(m->autoencoder);
    ups_parameters_destroy(m->op);
}

/* Random values in every parameter, those that start at zero too, so that every input matters. */
static void write_random(ups_parameters *parameters, ups_device *device, char *path) {
    ok(ups_parameters_allocate(parameters, device, false, UPS_F32, 1, &failure));
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        float *values = malloc((size_t)p->elements * sizeof(float));
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, (uint32_t)i), 0.3f, values, (size_t)p->elements);
        write_device(device, ups_parameters_values(parameters) + p->offset, values,
                     (size_t)p->elements * sizeof(float));
        free(values);
    }
    ok(ups_parameters_save(parameters, path, &failure));
    free(path);
}

/* The autoencoder of both tasks in one file: graphs of both share its parameters. */
static void write_models(const tiny_run *run) {
    tiny_models first;
    build(&first, run, WAVE);
    const ups_task *task = &run->tasks->task[DARCY];
    ups_graph *encoder = ups_graph_create(first.autoencoder, UPS_F32),
              *decoder = ups_graph_create(first.autoencoder, UPS_F32);
    ups_value field = ups_graph_input(encoder, "field", UPS_F32, UPS_SHAPE(1, 2 * SIDE * SIDE));
    ups_networks_encode(encoder, run->config, task, field);
    ups_value latents = ups_graph_input(decoder, "latents", UPS_F32, UPS_SHAPE(1, 4, 8));
    ups_value point = ups_graph_input(decoder, "coordinates", UPS_F32, UPS_SHAPE(1, 2));
    ups_networks_decode(decoder, run->config, task, latents, point);
    write_random(first.autoencoder, run->device, ups_run_model_path(run->config, UPS_STAGE_AUTOENCODER));
    write_random(first.op, run->device, ups_run_model_path(run->config, UPS_STAGE_OPERATOR));
    ups_graph_destroy(encoder);
    ups_graph_destroy(decoder);
    unbuild(&first);
}

tiny_models *tiny_models_open(const tiny_run *run, int task) {
    tiny_models *m = malloc(sizeof *m);
    build(m, run, task);
    char *autoencoder = ups_run_model_path(run->config, UPS_STAGE_AUTOENCODER);
    char *op = ups_run_model_path(run->config, UPS_STAGE_OPERATOR);
    ok(ups_networks_load(m->autoencoder, run->device, UPS_F32, autoencoder, &failure));
    ok(ups_networks_load(m->op, run->device, UPS_F32, op, &failure));
    ok(ups_step_create(m->encoder, run->device, &m->encoder_step, &failure));
    ok(ups_step_create(m->decoder, run->device, &m->decoder_step, &failure));
    ok(ups_step_create(m->advance, run->device, &m->advance_step, &failure));
    free(autoencoder);
    free(op);
    return m;
}

void tiny_models_close(tiny_models *models) {
    unbuild(models);
    free(models);
}

static void put(ups_step *step, ups_value input, const float *values, int64_t count) {
    ok(ups_step_upload(step, input, values, (size_t)count * sizeof(float), &failure));
    ok(ups_step_wait_uploaded(step, &failure));
}

static void run_step(ups_step *step, ups_value output, float *values, int64_t count) {
    ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
    ok(ups_step_download(step, output, values, (size_t)count * sizeof(float), &failure));
}

void tiny_encode(tiny_models *m, const float *field, float *latents) {
    const int64_t channels = m->task->geometry.channels, points = ups_task_points(m->task);
    float *stored = malloc((size_t)(points * channels) * sizeof(float));
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t p = 0; p < points; p++) {
            int64_t at = m->task->geometry.order == UPS_CHANNELS_LAST ? p * channels + c : c * points + p;
            stored[at] = field[p * channels + c];
        }
    }
    put(m->encoder_step, m->field, stored, points * channels);
    run_step(m->encoder_step, m->encoded, latents, 4 * 8);
    free(stored);
}

void tiny_advance(tiny_models *m, float *latents, double dt, const double *parameters) {
    float seconds = (float)dt, known[8] = {0};
    int width = ups_tasks_parameter_count(m->run->tasks);
    for (int p = 0; p < m->task->source->parameter_count; p++)
        known[p] = (float)((parameters[p] - m->task->scale[p].mean) / m->task->scale[p].spread);
    put(m->advance_step, m->state, latents, 4 * 8);
    put(m->advance_step, m->dt, &seconds, 1);
    put(m->advance_step, m->parameters, known, width);
    put(m->advance_step, m->one_hot, m->one_hot_values, 2);
    run_step(m->advance_step, m->advanced, latents, 4 * 8);
}

void tiny_decode(tiny_models *m, const float *latents, float *field) {
    const int64_t channels = m->task->geometry.channels, count = ups_sample_frame_elements(&m->task->geometry);
    put(m->decoder_step, m->latents, latents, 4 * 8);
    run_step(m->decoder_step, m->decoded, field, count);
    for (int64_t i = 0; i < count; i++) {
        const float *statistics = m->task->statistics + 2 * (i % channels);
        field[i] = field[i] / statistics[1] + statistics[0];
    }
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

void tiny_run_open(tiny_run *run, const char *directory) {
    char path[300], text[2000];
    *run = (tiny_run){0};
    snprintf(path, sizeof path, "%s/wave.h5", directory);
    write_wave(path);
    snprintf(path, sizeof path, "%s/darcy.h5", directory);
    write_darcy(path);
    snprintf(path, sizeof path, "%s/run.yaml", directory);
    snprintf(text, sizeof text, configuration, directory, directory);
    write_text(path, text);
    ups_device_options options = {.name = "auto", .threads = 1};
    ok(ups_run_config_load(path, NULL, 0, &run->config, &failure));
    ok(ups_device_open(&options, &run->device, &failure));
    ok(ups_tasks_open(run->config, &run->tasks, &failure));
    ok(ups_tasks_normalise_as_trained(run->config, run->tasks, NULL, &failure));
    write_models(run);
}

void tiny_run_close(tiny_run *run) {
    ups_tasks_close(run->tasks);
    ups_device_close(run->device);
    ups_run_config_free(run->config);
}
