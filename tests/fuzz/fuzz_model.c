/* A model's file as a stranger wrote it: what it tells of itself, and a prediction of one step.
 *
 * The input is lines, "key text" of the header each, after two bytes: the first chooses what is done with the tensors
 * that such a model has (they are there; one is left out, has another size or another type), the second on what grid it
 * predicts. Small models are given their tensors, which are all the same number; of large ones, that a file as small as
 * this cannot hold, nothing may be built. */
#include "tests/fuzz/fuzz.h"

#include "base/json.h"
#include "model/devices/devices.h"
#include "model/graph.h"
#include "model/parameters/parameters.h"
#include "train/networks.h"
#include "train/portable/predictor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TENSORS = 2000,
    MOST_BYTES = 1 << 22, /* of a file */
    MOST_ELEMENTS = 4096, /* of a frame, and of its latents: more are not predicted, since that takes long */
    MOST_POINTS = 1 << 20 /* for which there is a frame at all */
};
enum { SOUND, LACKING, RESIZED, RETYPED, WAYS };

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static json_t *read_header(fuzz_input input) {
    json_t *texts = json_object();
    const char *at = (const char *)input.bytes, *end = at + input.length;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        const char *space = memchr(at, ' ', (size_t)(line_end - at));
        if (space) {
            char key[128];
            snprintf(key, sizeof key, "%.*s", (int)(space - at), at);
            json_object_set_new(texts, key, json_stringn(space + 1, (size_t)(line_end - space - 1)));
        }
        at = line_end + 1;
    }
    return texts;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static const char *write_file(json_t *texts, const ups_parameters *parts[2], int way, uint8_t which) {
    static uint8_t bytes[MOST_BYTES + 16];
    json_t *header = json_object();
    int64_t at = 0, total = 0;
    json_object_set(header, "__metadata__", texts);
    for (int m = 0; m < 2; m++) total += parts[m] ? ups_parameters_count(parts[m]) : 0;
    for (int m = 0; m < 2; m++) {
        for (int32_t i = 0; parts[m] && i < ups_parameters_count(parts[m]) && total <= MOST_TENSORS; i++) {
            const ups_parameter *parameter = ups_parameters_get(parts[m], i);
            const bool chosen = (m * 7 + i) % total == which % total;
            if (chosen && way == LACKING) continue;
            json_t *shape = json_array();
            int64_t elements = 1;
            for (int a = 0; a < parameter->rank; a++) {
                const int64_t size = parameter->size[a] + (chosen && way == RESIZED && a == 0);
                json_array_append_new(shape, json_integer(size));
                elements *= size;
            }
            const int64_t size = (chosen && way == RETYPED ? 2 : 4) * elements;
            if (at + size > MOST_BYTES / 2) {
                json_decref(shape);
                continue;
            }
            json_object_set_new(header, parameter->name,
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", size == 2 * elements ? "F16" : "F32",
                                          "shape", shape, "data_offsets", (json_int_t)at, (json_int_t)(at + size)));
            at += size;
        }
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t length = strlen(text);
    FUZZ_CHECK(length + (uint64_t)at + 8 <= sizeof bytes); /* inputs are shorter */
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, text, length);
    for (int64_t i = 0; i + 4 <= at; i += 4) memcpy(bytes + 8 + length + i, &(float){0.03f}, 4);
    free(text);
    json_decref(header);
    return fuzz_file(bytes, 8 + length + (size_t)at);
}

/* ---- its tensors ------------------------------------------------------------------------------------------------- */

static bool is_small(const ups_described *d) {
    const ups_model_config *m = &d->config->model;
    const ups_core_config *core = &m->core;
    int64_t depth = core->depth, width = core->hidden;
    double ratio = core->mlp_ratio;
    for (unsigned l = 0; l < core->depth_count; l++) depth += core->depths[l];
    if (!ups_run_on_grid(d->config)) {
        width = larger(width, larger(m->dim, larger(m->encoder.width, m->decoder.hidden)));
        ratio += m->encoder.mlp_ratio + m->decoder.mlp_ratio;
        depth += m->encoder.depth + m->decoder.depth;
    }
    for (int t = 0; t < d->tasks->count; t++) {
        const ups_task *task = &d->tasks->task[t];
        if (ups_sample_frame_elements(&task->geometry) > MOST_ELEMENTS) return false;
        if (ups_task_latent_elements(d->config, task) > MOST_ELEMENTS) return false;
    }
    return width <= 64 && depth <= 16 && ratio <= 16 && d->tasks->count <= 4 && core->history <= 4 &&
           core->bundle <= 4 && ups_tasks_parameter_count(d->tasks) <= 16;
}

/* The graphs of all tasks, as a surrogate builds them, name the parameters. */
static void name_parameters(const ups_described *d, ups_parameters *autoencoder, ups_parameters *op) {
    for (int t = 0; t < d->tasks->count; t++) {
        const ups_task *task = &d->tasks->task[t];
        const ups_latent_shape latents = ups_task_latents(d->config, task);
        const ups_operator_options options = ups_run_operator(d->config, d->tasks, task);
        ups_graph *g = ups_graph_create(autoencoder, UPS_F32);
        ups_networks_encode(
            g, d->config, task,
            ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(1, ups_sample_frame_elements(&task->geometry))));
        ups_networks_decode(g, d->config, task,
                            ups_graph_input(g, "latents", UPS_F32, UPS_SHAPE(1, latents.tokens, latents.dim)),
                            ups_graph_input(g, "coordinates", UPS_F32, UPS_SHAPE(2, task->geometry.dims)));
        ups_graph_destroy(g);
        g = ups_run_graph(d->config, op);
        ups_value given[UPS_MAX_HISTORY], advanced[UPS_MAX_BUNDLE], parameters = UPS_NO_VALUE, one_hot = UPS_NO_VALUE;
        for (int i = 0; i < options.history; i++) {
            char name[20];
            snprintf(name, sizeof name, "given%d", i);
            given[i] = ups_graph_input(g, name, UPS_F32, UPS_SHAPE(1, latents.tokens, latents.dim));
        }
        if (options.parameter_count > 0)
            parameters = ups_graph_input(g, "parameters", UPS_F32, UPS_SHAPE(1, options.parameter_count));
        if (options.task_count > 0) one_hot = ups_graph_input(g, "task", UPS_F32, UPS_SHAPE(1, options.task_count));
        ups_operator_rollout(g, &options, given, ups_graph_input(g, "dt", UPS_F32, UPS_SHAPE(1, 1)), parameters,
                             one_hot, 1, advanced);
        ups_graph_destroy(g);
    }
}

/* ---- predicting ------------------------------------------------------------------------------------------------- */

static void predict(const char *path, uint8_t grid, bool small) {
    ups_predictor *predictor = NULL;
    ups_error error = {0};
    ups_device_options device = {.name = "cpu", .threads = 1};
    if (!fuzz_accepted(ups_predictor_open(path, &device, &predictor, &error), &error)) return;
    const ups_described *d = ups_predictor_describe(predictor);
    for (int t = 0; t < d->tasks->count && t < 4; t++) {
        const ups_sample *geometry = &d->tasks->task[t].geometry;
        ups_prediction p = {.task = t, .count = 1 + grid % 2, .given = 1 + grid / 2 % 2, .steps = 1};
        int64_t elements = geometry->channels, wanted = geometry->channels;
        for (int a = 0; a < geometry->dims; a++) {
            p.grid[a] = grid & 4 ? geometry->grid[a] + 1 : geometry->grid[a];
            p.resolution[a] = grid & 8 ? geometry->grid[a] + 2 : p.grid[a];
            elements *= p.grid[a];
            wanted *= p.resolution[a];
        }
        if (elements > MOST_POINTS || wanted > MOST_POINTS) continue;
        const size_t given = (size_t)(p.count * p.given * elements);
        float *frames = calloc(given + 1, sizeof *frames);
        FUZZ_CHECK(frames != NULL);
        for (size_t i = 0; i < given; i++) frames[i] = (float)(i % 5) * 0.25f;
        p.frames = frames;
        p.fields = fuzz_room((size_t)(p.count * (p.given + p.steps) * wanted) * sizeof *p.fields);
        const bool predicted = fuzz_accepted(ups_predictor_run(predictor, &p, &error), &error);
        FUZZ_CHECK(!predicted || small);
        free(frames);
        free(p.fields);
    }
    ups_predictor_close(predictor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t first = fuzz_byte(&input), grid = fuzz_byte(&input);
    json_t *texts = read_header(input);
    const ups_parameters *none[2] = {NULL, NULL};
    ups_described described;
    ups_error error = {0};
    const char *path = write_file(texts, none, SOUND, 0);
    if (fuzz_accepted(ups_described_open(path, path, NULL, &described, &error), &error)) {
        const bool small = is_small(&described);
        ups_parameters *parts[2] = {ups_parameters_create(), ups_parameters_create()};
        if (small && fuzz_accepted(ups_networks_check(described.config, described.tasks, &error), &error)) {
            name_parameters(&described, parts[0], parts[1]);
        } else {
            ups_parameters_add(parts[0], "encoder.x", 1, (int64_t[]){1}, (ups_init){.kind = UPS_INIT_ZEROS});
            ups_parameters_add(parts[1], "operator.x", 1, (int64_t[]){1}, (ups_init){.kind = UPS_INIT_ZEROS});
        }
        ups_described_close(&described);
        path = write_file(texts, (const ups_parameters *[]){parts[0], parts[1]}, first % WAYS, first / WAYS);
        predict(path, grid, small);
        ups_parameters_destroy(parts[0]);
        ups_parameters_destroy(parts[1]);
    }
    json_decref(texts);
    return 0;
}
