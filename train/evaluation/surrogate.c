#include "train/evaluation/surrogate.h"

#include "base/log.h"
#include "base/system/cancel.h"
#include "model/parameters/safetensors.h"
#include "model/step/step.h"
#include "train/data/origin.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of batches: enough rows to fill the matmuls, few enough that activations stay near the caches. */
#define MOST_FRAMES 32
#define ENCODER_ELEMENTS (1 << 19)
#define OPERATOR_TOKENS 2048
#define DECODER_POINTS 4096

/* One graph, ready to run, with the host's side of its batch. */
typedef struct network {
    ups_graph *graph;
    ups_step *step;
    int64_t batch;
} network;

struct ups_surrogate {
    const ups_run_config *config;
    const ups_tasks *tasks;
    int task;
    ups_parameters *autoencoder, *op;
    network encoder, advance, decoder;
    ups_value field, encoded;
    ups_operator_options options;
    ups_value state, dt, parameters, one_hot, advanced[UPS_MAX_BUNDLE];
    ups_value latents, coordinates, decoded;
    int64_t frame_elements, latent_elements, points; /* points a batch of the decoder */
    float *frames_in, *latents_in, *latents_out, *given_in, *coordinates_in, *values_out, *dt_in, *parameters_in,
        *one_hot_in;
};

static int64_t clamp(int64_t value, int64_t most) {
    return value < 1 ? 1 : value > most ? most : value;
}

static void build_encoder(ups_surrogate *s) {
    const ups_task *task = &s->tasks->task[s->task];
    network *n = &s->encoder;
    n->batch = clamp(ENCODER_ELEMENTS / s->frame_elements, MOST_FRAMES);
    n->graph = ups_graph_create(s->autoencoder, UPS_AUTOENCODER_COMPUTE);
    s->field = ups_graph_input(n->graph, "field", UPS_F32, UPS_SHAPE(n->batch, s->frame_elements));
    s->encoded = ups_networks_encode(n->graph, s->config, task, s->field);
    ups_graph_keep(n->graph, s->encoded);
}

static void build_decoder(ups_surrogate *s, int64_t points, bool at_grid_points) {
    const ups_task *task = &s->tasks->task[s->task];
    const ups_latent_shape latents = ups_task_latents(s->config, task);
    network *n = &s->decoder;
    s->points = clamp(points, DECODER_POINTS);
    n->batch = clamp(DECODER_POINTS / s->points, MOST_FRAMES);
    n->graph = ups_graph_create(s->autoencoder, UPS_AUTOENCODER_COMPUTE);
    s->latents = ups_graph_input(n->graph, "latents", UPS_F32, UPS_SHAPE(n->batch, latents.tokens, latents.dim));
    s->coordinates = ups_graph_input(n->graph, "coordinates", UPS_F32, UPS_SHAPE(s->points, task->geometry.dims));
    s->decoded = at_grid_points
                     ? ups_networks_decode_at_grid_points(n->graph, s->config, task, s->latents, s->coordinates)
                     : ups_networks_decode(n->graph, s->config, task, s->latents, s->coordinates);
    ups_graph_keep(n->graph, s->decoded);
}

static void build_operator(ups_surrogate *s, int64_t states) {
    const ups_task *task = &s->tasks->task[s->task];
    const ups_latent_shape latents = ups_task_latents(s->config, task);
    network *n = &s->advance;
    n->batch = clamp(OPERATOR_TOKENS / latents.tokens, MOST_FRAMES);
    if (states > 0) n->batch = clamp(states, n->batch);
    n->graph = ups_run_graph(s->config, s->op);
    s->options = ups_run_operator(s->config, s->tasks, task);
    s->state = ups_graph_input(n->graph, "latents", UPS_F32,
                               UPS_SHAPE(n->batch, s->options.history, latents.tokens, latents.dim));
    s->dt = ups_graph_input(n->graph, "dt", UPS_F32, UPS_SHAPE(n->batch, 1));
    s->parameters = s->one_hot = UPS_NO_VALUE;
    if (s->options.parameter_count > 0) {
        s->parameters =
            ups_graph_input(n->graph, "parameters", UPS_F32, UPS_SHAPE(n->batch, s->options.parameter_count));
    }
    if (s->options.task_count > 0) {
        s->one_hot = ups_graph_input(n->graph, "task", UPS_F32, UPS_SHAPE(n->batch, s->options.task_count));
    }
    ups_value given[UPS_MAX_HISTORY];
    for (int i = 0; i < s->options.history; i++) given[i] = ups_select_frame(n->graph, s->state, i);
    ups_operator_rollout(n->graph, &s->options, given, s->dt, s->parameters, s->one_hot, 1, s->advanced);
    for (int i = 0; i < s->options.bundle; i++) ups_graph_keep(n->graph, s->advanced[i]);
}

static float *floats(int64_t rows, int64_t width) {
    return calloc((size_t)(rows * width + 1), sizeof(float)); /* never of no size */
}

static ups_status allocate_host(ups_surrogate *s, ups_error *error) {
    const ups_task *task = &s->tasks->task[s->task];
    int64_t widest = s->advance.batch > s->decoder.batch ? s->advance.batch : s->decoder.batch;
    if (s->encoder.batch > widest) widest = s->encoder.batch;
    s->frames_in = floats(s->encoder.batch, s->frame_elements);
    s->latents_in = floats(widest, s->latent_elements);
    s->latents_out = floats(widest, s->latent_elements);
    s->given_in = floats(s->advance.batch * s->options.history, s->latent_elements);
    s->coordinates_in = floats(s->points, task->geometry.dims);
    s->values_out = floats(s->decoder.batch * s->points, task->geometry.channels);
    s->dt_in = floats(s->advance.batch, 1);
    s->parameters_in = floats(s->advance.batch, s->options.parameter_count);
    s->one_hot_in = floats(s->advance.batch, s->options.task_count);
    bool had = s->frames_in && s->latents_in && s->latents_out && s->given_in && s->coordinates_in && s->values_out &&
               s->dt_in && s->parameters_in && s->one_hot_in;
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for a batch of fields", task->name);
}

/* Both models are of this configuration, and the operator of this autoencoder. */
static ups_status check_origins(const ups_run_config *config, const ups_tasks *tasks, const ups_surrogate_files *files,
                                ups_error *error) {
    json_t *autoencoder = ups_origin_autoencoder_on_any_grid(config, tasks);
    json_t *op = ups_origin_operator(config, tasks, files->autoencoder_hash);
    ups_status status = autoencoder && op ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_origin_check(files->autoencoder, autoencoder, error);
    if (status == UPS_OK && files->op) status = ups_origin_check(files->op, op, error);
    json_decref(autoencoder);
    json_decref(op);
    return status;
}

/* On another grid it works, but not as it was trained. */
static ups_status warn_of_grid(const ups_run_config *config, const ups_task *task, const char *autoencoder,
                               ups_error *error) {
    char words[600];
    bool other;
    UPS_TRY(ups_origin_is_of_another_grid(autoencoder, config, task, &other, words, sizeof words, error));
    if (other) ups_log(UPS_LOG_WARNING, "%s", words);
    return UPS_OK;
}

/* An operator of several frames is none for a steady problem, which is what trajectories of one step are taken for. */
static ups_status check_steps(const ups_run_config *config, const ups_task *task, const char *op, ups_error *error) {
    const int32_t history = config->model.core.history, bundle = ups_run_bundle(config, task->config);
    if (ups_task_steps(task) > 1 || (history == 1 && bundle == 1)) return UPS_OK;
    char earlier[128], output[128]; /* named alike at whatever stride the model was trained */
    snprintf(earlier, sizeof earlier, "operator.%s.earlier1.weight", task->name);
    snprintf(output, sizeof output, "operator.%s.output.bias", task->name);
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(op, &file, error));
    const ups_safetensor *bias = ups_safetensors_find(file, output);
    const bool several = ups_safetensors_find(file, earlier) ||
                         (bias && bias->rank == 1 && bias->size[0] > ups_task_latents(config, task).dim);
    ups_safetensors_close(file);
    if (!several) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s: task %s: trajectories of %lld frames have %lld step%s of a stride of %lld, but the operator "
                    "reads %d frames and gives %d at once (model.operator.history, and bundle of the task or of "
                    "model.operator); it needs files with at "
                    "least %lld frames a trajectory",
                    task->source->files[0], task->name, (long long)task->geometry.times,
                    (long long)ups_task_steps(task), ups_task_steps(task) == 1 ? "" : "s",
                    (long long)task->config->stride, history, bundle, (long long)(2 * task->config->stride + 1));
}

ups_status ups_surrogate_open(const ups_run_config *config, const ups_tasks *tasks, int task, ups_device *device,
                              const ups_surrogate_files *files, ups_surrogate_use use, ups_surrogate **surrogate,
                              ups_error *error) {
    UPS_TRY(ups_networks_check(config, tasks, error));
    UPS_TRY(check_origins(config, tasks, files, error));
    UPS_TRY(warn_of_grid(config, &tasks->task[task], files->autoencoder, error));
    if (files->op) UPS_TRY(check_steps(config, &tasks->task[task], files->op, error));
    ups_surrogate *s = calloc(1, sizeof *s);
    if (!s) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a surrogate");
    s->config = config;
    s->tasks = tasks;
    s->task = task;
    s->frame_elements = ups_sample_frame_elements(&tasks->task[task].geometry);
    s->latent_elements = ups_task_latent_elements(config, &tasks->task[task]);
    s->autoencoder = ups_parameters_create();
    s->op = ups_parameters_create();
    ups_status status =
        s->autoencoder && s->op ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for a surrogate's parameters");
    if (status == UPS_OK) {
        build_encoder(s);
        build_decoder(s, use.points > 0 ? use.points : ups_task_points(&tasks->task[task]), use.at_grid_points);
        if (files->op) build_operator(s, use.states);
        status = ups_networks_load(s->autoencoder, device, UPS_AUTOENCODER_COMPUTE, files->autoencoder, error);
        if (status == UPS_OK && files->op)
            status = ups_networks_load(s->op, device, ups_run_compute(config), files->op, error);
    }
    network *const networks[] = {&s->encoder, &s->advance, &s->decoder};
    for (int i = 0; i < 3 && status == UPS_OK; i++) {
        if (!networks[i]->graph) continue; /* no operator wanted */
        status = ups_step_create(networks[i]->graph, device, &networks[i]->step, error);
    }
    if (status == UPS_OK) status = allocate_host(s, error);
    if (status != UPS_OK) {
        ups_surrogate_close(s);
        return status;
    }
    *surrogate = s;
    return UPS_OK;
}

void ups_surrogate_close(ups_surrogate *s) {
    if (!s) return;
    network *const networks[] = {&s->encoder, &s->advance, &s->decoder};
    for (int i = 0; i < 3; i++) {
        ups_step_destroy(networks[i]->step);
        if (networks[i]->graph) ups_graph_destroy(networks[i]->graph);
    }
    if (s->autoencoder) ups_parameters_destroy(s->autoencoder);
    if (s->op) ups_parameters_destroy(s->op);
    float *const buffers[] = {s->frames_in,  s->latents_in, s->latents_out,   s->given_in,  s->coordinates_in,
                              s->values_out, s->dt_in,      s->parameters_in, s->one_hot_in};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    free(s);
}

int64_t ups_surrogate_latent_elements(const ups_surrogate *s) {
    return s->latent_elements;
}

int64_t ups_surrogate_history(const ups_surrogate *s) {
    return s->options.history;
}

int64_t ups_surrogate_bundle(const ups_surrogate *s) {
    return s->options.bundle;
}

static ups_status upload(network *n, ups_value input, const float *host, int64_t elements, ups_error *error) {
    return ups_step_upload(n->step, input, host, (size_t)elements * sizeof(float), error);
}

static ups_status run(network *n, ups_error *error) {
    if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "interrupted; nothing was written");
    return ups_step_run(n->step, &(ups_step_run_options){0}, error);
}

ups_status ups_surrogate_encode(ups_surrogate *s, const float *frames, int64_t count, float *latents,
                                ups_error *error) {
    network *n = &s->encoder;
    for (int64_t first = 0; first < count; first += n->batch) {
        int64_t rows = clamp(count - first, n->batch);
        memcpy(s->frames_in, frames + first * s->frame_elements,
               (size_t)(rows * s->frame_elements) * sizeof *s->frames_in);
        UPS_TRY(upload(n, s->field, s->frames_in, n->batch * s->frame_elements, error));
        UPS_TRY(run(n, error));
        UPS_TRY(ups_step_download(n->step, s->encoded, s->latents_out,
                                  (size_t)(n->batch * s->latent_elements) * sizeof(float), error));
        memcpy(latents + first * s->latent_elements, s->latents_out,
               (size_t)(rows * s->latent_elements) * sizeof *latents);
    }
    return UPS_OK;
}

/* What the operator reads of the frames so far: (history, tokens, dim) in `to`. */
static void take_given(const ups_surrogate *s, const ups_surrogate_state *state, float *to) {
    const int64_t each = s->latent_elements, first = state->given_count - s->options.history;
    for (int64_t i = 0; i < s->options.history; i++) {
        int64_t frame = first + i < 0 ? 0 : first + i;
        memcpy(to + i * each, state->given + frame * each, (size_t)each * sizeof *to);
    }
}

ups_status ups_surrogate_advance(ups_surrogate *s, const ups_surrogate_state *states, int64_t count, ups_error *error) {
    network *n = &s->advance;
    const int64_t each = s->latent_elements, parameters = s->options.parameter_count, tasks = s->options.task_count;
    const int64_t history = s->options.history;
    const size_t bytes = (size_t)each * sizeof(float);
    const ups_task *task = &s->tasks->task[s->task];
    for (int64_t first = 0; first < count; first += n->batch) {
        int64_t rows = clamp(count - first, n->batch);
        for (int64_t b = 0; b < rows; b++) {
            const ups_surrogate_state *state = &states[first + b];
            take_given(s, state, s->given_in + b * history * each);
            s->dt_in[b] = (float)state->dt;
            ups_task_condition(task, state->parameters, (int)parameters, s->parameters_in + b * parameters);
            if (tasks > 0) s->one_hot_in[b * tasks + s->task] = 1; /* the others stay 0 */
        }
        UPS_TRY(upload(n, s->state, s->given_in, n->batch * history * each, error));
        UPS_TRY(upload(n, s->dt, s->dt_in, n->batch, error));
        if (parameters > 0) UPS_TRY(upload(n, s->parameters, s->parameters_in, n->batch * parameters, error));
        if (tasks > 0) UPS_TRY(upload(n, s->one_hot, s->one_hot_in, n->batch * tasks, error));
        UPS_TRY(run(n, error));
        for (int k = 0; k < s->options.bundle; k++) {
            UPS_TRY(ups_step_download(n->step, s->advanced[k], s->latents_out, (size_t)n->batch * bytes, error));
            for (int64_t b = 0; b < rows; b++) {
                const ups_surrogate_state *state = &states[first + b];
                if (k < state->next_count) memcpy(state->next + k * each, s->latents_out + b * each, bytes);
            }
        }
    }
    return UPS_OK;
}

ups_status ups_surrogate_roll(ups_surrogate *s, const ups_surrogate_rollouts *r, ups_error *error) {
    const int64_t each = s->latent_elements, bundle = s->options.bundle;
    ups_surrogate_state *states = malloc((size_t)(r->count + 1) * sizeof *states);
    if (!states) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %lld trajectories", (long long)r->count);
    ups_status status = UPS_OK;
    for (int64_t f = r->given; f < r->frames && status == UPS_OK; f += bundle) {
        const int64_t left = r->frames - f, next = left < bundle ? left : bundle;
        for (int64_t i = 0; i < r->count; i++) {
            float *latents = r->latents + i * r->frames * each;
            states[i] = (ups_surrogate_state){.given = latents,
                                              .given_count = f,
                                              .next = latents + f * each,
                                              .next_count = next,
                                              .parameters = r->parameters[i],
                                              .dt = r->step_times[i * r->frames + f]};
        }
        status = ups_surrogate_advance(s, states, r->count, error);
        if (status == UPS_OK && r->advanced) status = r->advanced(r->context, next * r->count, error);
    }
    free(states);
    return status;
}

/* Normalised values of one batch, at one chunk of points, to their place in physical units. */
static void place(const ups_surrogate *s, int64_t rows, int64_t first_point, int64_t point_count, int64_t points,
                  float *fields) {
    const ups_task *task = &s->tasks->task[s->task];
    const int64_t channels = task->geometry.channels;
    for (int64_t b = 0; b < rows; b++) {
        const float *from = s->values_out + b * s->points * channels;
        float *to = fields + (b * points + first_point) * channels;
        for (int64_t p = 0; p < point_count; p++) {
            for (int64_t c = 0; c < channels; c++) {
                const float *statistics = task->statistics + 2 * c;
                to[p * channels + c] = from[p * channels + c] / statistics[1] + statistics[0];
            }
        }
    }
}

ups_status ups_surrogate_decode(ups_surrogate *s, const float *latents, int64_t count, const float *coordinates,
                                int64_t points, float *fields, ups_error *error) {
    network *n = &s->decoder;
    const int64_t dims = s->tasks->task[s->task].geometry.dims, channels = s->tasks->task[s->task].geometry.channels;
    for (int64_t point = 0; point < points; point += s->points) {
        int64_t chunk = clamp(points - point, s->points);
        memcpy(s->coordinates_in, coordinates + point * dims, (size_t)(chunk * dims) * sizeof *coordinates);
        UPS_TRY(upload(n, s->coordinates, s->coordinates_in, s->points * dims, error));
        for (int64_t first = 0; first < count; first += n->batch) {
            int64_t rows = clamp(count - first, n->batch);
            memcpy(s->latents_in, latents + first * s->latent_elements,
                   (size_t)(rows * s->latent_elements) * sizeof *latents);
            UPS_TRY(upload(n, s->latents, s->latents_in, n->batch * s->latent_elements, error));
            UPS_TRY(run(n, error));
            UPS_TRY(ups_step_download(n->step, s->decoded, s->values_out,
                                      (size_t)(n->batch * s->points * channels) * sizeof(float), error));
            place(s, rows, point, chunk, points, fields + first * points * channels);
        }
    }
    return UPS_OK;
}
