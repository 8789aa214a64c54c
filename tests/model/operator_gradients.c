/* Builds the operator, runs one training step on random numbers, and writes everything a second implementation needs to
 * do the same (parameters, inputs) and to compare with (states, loss, gradients) as one safetensors file.
 *
 *   operator_gradients OUT.safetensors [load=PARAMETERS.safetensors] [option=value …]
 *
 * Parameters are loaded, or all drawn at random, gains and the zero-initialised layers too, so that no gradient is zero
 * by symmetry. */
#include "base/random.h"
#include "model/device.h"
#include "model/devices/devices.h"
#include "model/differentiate.h"
#include "model/nets/operator.h"
#include "model/parameters/safetensors.h"
#include "model/step/step.h"
#include "model/update_channel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 16 };

/* Inputs: the frames that the operator reads, oldest first; in the order of the alphabet. */
static const char *const given_names[UPS_MAX_HISTORY] = {"z",  "z1", "z2", "z3", "z4", "z5", "z6", "z7",
                                                         "z8", "z9", "za", "zb", "zc", "zd", "ze", "zf"};

typedef struct settings {
    ups_operator_options options;
    int64_t rows, columns; /* of the grid's inner axes, which it has where they are not 0 */
    int64_t batch;
    int steps; /* operator applications: more than one is a rollout; each gives options.bundle states */
    bool bf16;
    const char *load; /* NULL: draw the parameters */
} settings;

static ups_error failure; /* of the last call that failed */

static void check(ups_status status) {
    if (status == UPS_OK) return;
    fprintf(stderr, "operator_gradients: %s\n", failure.message);
    exit(1);
}

static bool take(settings *s, const char *key, double value) {
    ups_operator_options *o = &s->options;
    if (strcmp(key, "tokens") == 0) return o->tokens = (int64_t)value, true;
    if (strcmp(key, "dim") == 0) return o->dim = (int64_t)value, true;
    if (strcmp(key, "hidden") == 0) return o->hidden = (int64_t)value, true;
    if (strcmp(key, "depth") == 0) return o->depth = (int)value, true;
    if (strcmp(key, "heads") == 0) return o->heads = (int)value, true;
    if (strcmp(key, "qk_norm") == 0) return o->qk_norm = value != 0, true;
    if (strcmp(key, "parameters") == 0) return o->parameter_count = (int64_t)value, true;
    if (strcmp(key, "tasks") == 0) return o->task_count = (int64_t)value, true;
    if (strcmp(key, "condition_hidden") == 0) return o->condition_hidden = (int64_t)value, true;
    if (strcmp(key, "plain_update") == 0) return o->update_norm = (ups_update_norm)(value != 0), true;
    if (strcmp(key, "spectral") == 0) return o->core = value != 0 ? "spectral" : "stack", true;
    if (strcmp(key, "turns") == 0) /* 1: all blocks mix modes; 2: every second one attends */
        return o->mixing_count = (int)value, o->mixing[0] = UPS_MIXING_SPECTRAL, true;
    if (strcmp(key, "unet") == 0) return o->core = value != 0 ? "unet" : "stack", true;
    if (strcmp(key, "each") == 0) {
        for (int level = 0; level < o->level_count; level++) o->depths[level] = (int)value;
        return true;
    }
    if (strcmp(key, "attention") == 0) return o->attention = (ups_attention_kind)value, true;
    if (strcmp(key, "window") == 0) return o->window[0] = o->window[1] = o->window[2] = (int64_t)value, true;
    if (strcmp(key, "positions") == 0) return o->positions = (ups_positions)value, true;
    if (strcmp(key, "convolution") == 0) return o->convolution = (int)value, true;
    if (strcmp(key, "modes") == 0) return o->modes[0] = o->modes[1] = o->modes[2] = (int64_t)value, true;
    if (strcmp(key, "factorized") == 0) return o->factorized = value != 0, true;
    if (strcmp(key, "rows") == 0) return s->rows = (int64_t)value, true;
    if (strcmp(key, "columns") == 0) return s->columns = (int64_t)value, true;
    if (strcmp(key, "grid") == 0) return o->grid.task = value != 0 ? "wave" : NULL, true;
    if (strcmp(key, "periodic") == 0) return o->grid.periodic = value != 0, true;
    if (strcmp(key, "boundary") == 0) return o->boundary = value != 0, true;
    if (strcmp(key, "conserve") == 0) return o->conserve = value != 0, true;
    if (strcmp(key, "history") == 0) return o->history = (int)value, true;
    if (strcmp(key, "bundle") == 0) return o->bundle = (int)value, true;
    if (strcmp(key, "batch") == 0) return s->batch = (int64_t)value, true;
    if (strcmp(key, "steps") == 0) return s->steps = (int)value, true;
    if (strcmp(key, "bf16") == 0) return s->bf16 = value != 0, true;
    return false;
}

/* The outermost axis has the tokens that the others leave it. */
static void lay_out(settings *s) {
    ups_token_grid *grid = &s->options.grid;
    const int64_t inner[] = {s->rows, s->columns};
    grid->dims = 1;
    grid->cells[0] = s->options.tokens;
    for (int i = 0; i < 2; i++) {
        if (inner[i] == 0) continue;
        grid->cells[grid->dims++] = inner[i];
        grid->cells[0] /= inner[i];
    }
}

static void randomise_parameters(ups_parameters *parameters, ups_device *device) {
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        size_t count = (size_t)p->elements;
        float *values = malloc(sizeof *values * count);
        bool is_gain = p->rank == 1 && strstr(p->name, "norm.weight");
        bool is_rate = strstr(p->name, ".rate"); /* of changes that are of size 1 here, as frames are */
        float scale = p->rank == 2 ? 1 / sqrtf((float)p->size[1]) : is_rate ? 1 : 0.1f;
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, (uint32_t)i), scale, values, count);
        for (size_t k = 0; k < count && is_gain; k++) values[k] += 1;
        check(device->class->upload(device, ups_parameters_values(parameters) + p->offset, values,
                                    sizeof *values * count, &failure));
        free(values);
    }
    check(ups_parameters_refresh(parameters, &failure));
}

typedef struct array {
    char name[160];
    int rank;
    int64_t size[UPS_MAX_RANK];
    float *values;
    int64_t count;
} array;

typedef struct arrays {
    array *list;
    int count, capacity;
} arrays;

static float *append(arrays *all, const char *prefix, const char *name, int rank, const int64_t *size) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 64;
        all->list = realloc(all->list, sizeof *all->list * (size_t)all->capacity);
    }
    array *a = &all->list[all->count++];
    *a = (array){.rank = rank, .count = 1};
    snprintf(a->name, sizeof a->name, "%s%s", prefix, name);
    for (int i = 0; i < rank; i++) {
        a->size[i] = size[i];
        a->count *= size[i];
    }
    return a->values = malloc(sizeof *a->values * (size_t)a->count);
}

static void upload_random(ups_step *step, arrays *all, const ups_graph *graph, const char *name, uint32_t item) {
    ups_value input = ups_graph_find(graph, name);
    if (input == UPS_NO_VALUE) return;
    ups_shape shape = ups_graph_info(graph, input)->shape;
    float *values = append(all, "inputs.", name, shape.rank, shape.size);
    size_t count = (size_t)ups_shape_elements(shape);
    ups_random_fill_normal(ups_random_stream(2, UPS_RANDOM_TEST, item), 1, values, count);
    check(ups_step_upload(step, input, values, sizeof *values * count, &failure));
}

static void download(const ups_step *step, arrays *all, const ups_graph *graph, const char *name, ups_value value) {
    ups_shape shape = ups_graph_info(graph, value)->shape;
    float *values = append(all, "outputs.", name, shape.rank, shape.size);
    check(ups_step_download(step, value, values, sizeof *values * (size_t)ups_shape_elements(shape), &failure));
}

static void download_parameters(arrays *all, ups_parameters *parameters, ups_device *device) {
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        size_t bytes = sizeof(float) * (size_t)p->elements;
        float *values = append(all, "parameters.", p->name, p->rank, p->size);
        check(device->class->download(device, values, ups_parameters_values(parameters) + p->offset, bytes, &failure));
        float *gradients = append(all, "gradients.", p->name, p->rank, p->size);
        check(device->class->download(device, gradients, ups_parameters_gradients(parameters) + p->offset, bytes,
                                      &failure));
    }
}

static void write_arrays(const arrays *all, const char *path) {
    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    for (int i = 0; i < all->count; i++) {
        ups_safetensors_writer_declare(writer, all->list[i].name, UPS_F32, all->list[i].rank, all->list[i].size);
    }
    check(ups_safetensors_writer_begin(writer, path, &failure));
    for (int i = 0; i < all->count; i++) {
        check(ups_safetensors_writer_append(writer, all->list[i].values, sizeof(float) * (size_t)all->list[i].count,
                                            &failure));
    }
    check(ups_safetensors_writer_commit(writer, &failure));
}

int main(int argc, char **argv) {
    settings s = {.options = ups_operator_defaults(), .batch = 2, .steps = 1};
    for (int i = 2; i < argc; i++) {
        char key[32];
        double value;
        if (strncmp(argv[i], "load=", 5) == 0) {
            s.load = argv[i] + 5;
            continue;
        }
        if (sscanf(argv[i], "%31[a-z0-9_]=%lf", key, &value) != 2 || !take(&s, key, value)) {
            fprintf(stderr, "operator_gradients: '%s' is no option=value that is known\n", argv[i]);
            return 2;
        }
    }
    const int states_wanted = s.steps * s.options.bundle;
    if (argc < 2 || s.steps < 1 || states_wanted > MAX_STEPS) {
        fprintf(stderr, "operator_gradients OUT.safetensors [option=value ...], steps from 1 to %d\n", MAX_STEPS);
        return 2;
    }
    lay_out(&s);
    check(ups_operator_check(&s.options, &failure));

    const ups_operator_options *o = &s.options;
    ups_parameters *parameters = ups_parameters_create();
    ups_graph *graph = ups_graph_create(parameters, s.bf16 ? UPS_BF16 : UPS_F32);
    ups_shape latents = UPS_SHAPE(s.batch, o->tokens, o->dim);
    ups_value given[UPS_MAX_HISTORY];
    for (int i = 0; i < o->history; i++) given[i] = ups_graph_input(graph, given_names[i], UPS_F32, latents);
    ups_value dt = ups_graph_input(graph, "dt", UPS_F32, UPS_SHAPE(s.batch, 1));
    ups_value pde = UPS_NO_VALUE, task = UPS_NO_VALUE, states[MAX_STEPS], losses[MAX_STEPS];
    if (o->parameter_count) pde = ups_graph_input(graph, "parameters", UPS_F32, UPS_SHAPE(s.batch, o->parameter_count));
    if (o->task_count) task = ups_graph_input(graph, "task", UPS_F32, UPS_SHAPE(s.batch, o->task_count));
    ups_operator_rollout(graph, o, given, dt, pde, task, s.steps, states);
    float weights[MAX_STEPS];
    for (int k = 0; k < states_wanted; k++) {
        char name[32];
        snprintf(name, sizeof name, "target%d", k);
        losses[k] = ups_loss_mse(graph, states[k], ups_graph_input(graph, name, UPS_F32, latents));
        weights[k] = 1.0f / (float)states_wanted;
        ups_graph_keep(graph, states[k]);
    }
    ups_value sums[MAX_STEPS]; /* a weighted sum takes few inputs */
    float ones[MAX_STEPS];
    int groups = 0;
    for (int k = 0; k < states_wanted; k += UPS_MAX_INPUTS) {
        int size = states_wanted - k < UPS_MAX_INPUTS ? states_wanted - k : UPS_MAX_INPUTS;
        ones[groups] = 1;
        sums[groups++] = ups_weighted_sum(graph, losses + k, weights + k, size);
    }
    ups_value loss = groups == 1 ? sums[0] : ups_weighted_sum(graph, sums, ones, groups);
    ups_graph_differentiate(graph, loss);

    ups_device *device;
    ups_step *step;
    check(ups_device_open(&(ups_device_options){.name = "cpu"}, &device, &failure));
    check(ups_parameters_allocate(parameters, device, true, graph->compute, 0, &failure));
    if (s.load) check(ups_parameters_load(parameters, s.load, true, &failure));
    if (!s.load) randomise_parameters(parameters, device);
    check(ups_step_create(graph, device, &step, &failure));

    arrays all = {0};
    for (int i = 0; i < o->history; i++)
        upload_random(step, &all, graph, given_names[i], i == 0 ? 0 : 100 + (uint32_t)i);
    upload_random(step, &all, graph, "dt", 1);
    upload_random(step, &all, graph, "parameters", 2);
    upload_random(step, &all, graph, "task", 3);
    for (int k = 0; k < states_wanted; k++) {
        char name[32];
        snprintf(name, sizeof name, "target%d", k);
        upload_random(step, &all, graph, name, 4 + (uint32_t)k);
    }
    ups_update_channel *channel;
    check(ups_update_open(device, &channel, &failure));
    check(ups_update_give(channel, &(ups_update_input){.share = 1}, &failure));
    ups_step_run_options backward = {.backward = true, .update = ups_update_memory(channel)};
    check(ups_step_run(step, &backward, &failure));
    for (int k = 0; k < states_wanted; k++) {
        char name[32];
        snprintf(name, sizeof name, "state%d", k);
        download(step, &all, graph, name, states[k]);
    }
    download(step, &all, graph, "loss", loss);
    download_parameters(&all, parameters, device);
    write_arrays(&all, argv[1]);

    for (int i = 0; i < all.count; i++) free(all.list[i].values);
    free(all.list);
    ups_step_destroy(step);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    ups_update_close(channel);
    ups_device_close(device);
    return 0;
}
