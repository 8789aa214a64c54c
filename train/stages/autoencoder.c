/* Stage `autoencoder`: encoder and any-point decoder trained on single frames of raw fields, all tasks together.
 *
 * A batch holds one task, since fields of different tasks have different shapes; with accumulation every optimizer step
 * can see all of them. Each task has a graph for every set of losses that falls due.
 *
 * Inverse decoding (UPT, arXiv 2402.12365): decode(encode(u)) ≈ u at `queries` grid points that are drawn, the same for
 * a whole batch. Inverse encoding: encode(decode(z)) ≈ z, for which the latents are decoded at every grid point.
 * Rounded: as inverse decoding, of latents as the cache will hold them; the gradient does not see the rounding.
 * Between: what a patch code reads between grid points learns from fields of which every second point is left out. At
 * those it is known what it should read; anywhere between two points of the whole grid along an axis the polynomial
 * through the eight around says so nearly. */
#include "base/random.h"
#include "model/nets/patch_reading.h"
#include "train/data/origin.h"
#include "train/data/patch_basis.h"
#include "train/networks.h"
#include "train/stages/autoencoder_gate.h"
#include "train/stages/training/training.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIELD, QUERY_INDEX, QUERY_COORDINATES, PLACES, LINES, LINE_WEIGHTS };

typedef struct autoencoder {
    ups_device *device;
    const ups_run_config *config;
    const ups_tasks *tasks;
    int64_t queries;
    float **coordinates;  /* of all grid points, a task: (points, dims) */
    int32_t *query_index; /* a batch's, in host memory of the device's own, like the next */
    float *query_coordinates;
    float *places, *lines, *line_weights; /* likewise; NULL where nothing is learnt between points */
} autoencoder;

static int64_t kind(const void *context, int task, int variant) {
    return task;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

static int64_t query_count(const autoencoder *a, const ups_task *task) {
    int64_t points = ups_task_points(task);
    return a->queries < points ? a->queries : points;
}

/* What the losses of a graph are made of. Only what one of them reads is there. */
typedef struct parts {
    ups_value field, coordinates; /* of the query points */
    ups_value latents, decoded;   /* at the query points */
    ups_value target;             /* the field there */
} parts;

enum {
    READ_DECODED = 1 << UPS_AUTOENCODER_INVERSE_DECODING | 1 << UPS_AUTOENCODER_RELATIVE,
    READ_TARGET = READ_DECODED | 1 << UPS_AUTOENCODER_ROUNDED | 1 << UPS_AUTOENCODER_BETWEEN,
    READ_LATENTS = READ_DECODED | 1 << UPS_AUTOENCODER_ROUNDED | 1 << UPS_AUTOENCODER_INVERSE_ENCODING |
                   1 << UPS_AUTOENCODER_LATENT_NORM | 1 << UPS_AUTOENCODER_LATENT_DIVERSITY
};

static bool is_due(const ups_stage_graph *made, int loss) {
    return made->losses & 1u << loss;
}

/* `share` of the loss's weight. */
static void add_term(const autoencoder *a, ups_stage_graph *made, int loss, ups_value term, double share) {
    made->objective.loss = loss;
    ups_objective_add(made->graph, &made->objective, term, a->config->autoencoder.training.losses[loss].weight * share);
}

/* The model has all its parameters, whether a loss reads them or not: a graph that is not kept names them. */
static void name_parameters(const autoencoder *a, const ups_task *task, ups_parameters *parameters) {
    ups_graph *g = ups_graph_create(parameters, UPS_F32);
    ups_value field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(1, ups_sample_frame_elements(&task->geometry)));
    ups_value coordinates = ups_graph_input(g, "coordinates", UPS_F32, UPS_SHAPE(1, task->geometry.dims));
    ups_networks_decode(g, a->config, task, ups_networks_encode(g, a->config, task, field), coordinates);
    ups_graph_destroy(g);
}

static void add_latent_losses(const autoencoder *a, ups_stage_graph *made, const parts *p) {
    static const int of_latents[] = {UPS_AUTOENCODER_LATENT_NORM, UPS_AUTOENCODER_LATENT_DIVERSITY};
    for (int i = 0; i < 2; i++) {
        if (!is_due(made, of_latents[i])) continue;
        const bool variances = of_latents[i] == UPS_AUTOENCODER_LATENT_NORM;
        add_term(a, made, of_latents[i], ups_loss_covariance(made->graph, p->latents, variances), 1);
    }
}

static void add_rounded(const autoencoder *a, const ups_task *task, ups_stage_graph *made, const parts *p) {
    ups_graph *g = made->graph;
    ups_value cached = ups_networks_decode_at_grid_points(g, a->config, task, ups_round(g, p->latents), p->coordinates);
    add_term(a, made, UPS_AUTOENCODER_ROUNDED, ups_loss_relative(g, cached, p->target), 1);
}

static void add_between(const autoencoder *a, const ups_task *task, ups_stage_graph *made, const parts *p) {
    ups_graph *g = made->graph;
    const int64_t dims = task->geometry.dims, queries = query_count(a, task), rows = queries * UPS_LINE_POINTS;
    ups_value places = ups_graph_input(g, "places", UPS_F32, UPS_SHAPE(queries, dims));
    ups_value lines = ups_graph_input(g, "lines", UPS_F32, UPS_SHAPE(rows, dims));
    ups_value weights = ups_graph_input(g, "line_weights", UPS_F32, UPS_SHAPE(rows, task->geometry.channels));
    ups_value left_out = ups_networks_read_thinned(g, a->config, task, p->field, p->coordinates);
    ups_value between = ups_networks_read_thinned(g, a->config, task, p->field, places);
    ups_value there = ups_networks_read_lines(g, a->config, task, p->field, lines, weights);
    add_term(a, made, UPS_AUTOENCODER_BETWEEN, ups_loss_relative(g, left_out, p->target), 0.5);
    add_term(a, made, UPS_AUTOENCODER_BETWEEN, ups_loss_relative(g, between, there), 0.5);
    made->inputs[PLACES] = places;
    made->inputs[LINES] = lines;
    made->inputs[LINE_WEIGHTS] = weights;
}

static void add_inverse_encoding(const autoencoder *a, const ups_task *task, int64_t batch, ups_stage_graph *made,
                                 const parts *p) {
    ups_graph *g = made->graph;
    int64_t points = ups_task_points(task), dims = task->geometry.dims;
    float *host = UPS_ARENA_ARRAY(g->arena, float, points *dims);
    ups_task_coordinates(task, host);
    ups_value everywhere = ups_graph_constant(g, "grid_coordinates", UPS_F32, UPS_SHAPE(points, dims), host);
    ups_value decoded = ups_networks_decode_at_grid_points(g, a->config, task, p->latents, everywhere);
    ups_value field = ups_graph_reshape(g, decoded, UPS_SHAPE(batch, points * task->geometry.channels));
    ups_value again = ups_networks_encode_normalised(g, a->config, task, field);
    add_term(a, made, UPS_AUTOENCODER_INVERSE_ENCODING, ups_loss_mse(g, again, p->latents), 1);
}

static void build(const void *context, int index, int64_t batch, ups_stage_graph *made) {
    const autoencoder *a = context;
    const ups_task *task = &a->tasks->task[index];
    const int64_t queries = query_count(a, task), channels = task->geometry.channels;
    ups_graph *g = made->graph;
    parts p = {UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE};
    name_parameters(a, task, g->parameters);
    p.field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(batch, ups_sample_frame_elements(&task->geometry)));
    made->inputs[FIELD] = p.field;
    if (made->losses & READ_TARGET) {
        ups_value points = ups_graph_input(g, "query_index", UPS_I32, UPS_SHAPE(queries));
        p.coordinates = ups_graph_input(g, "query_coordinates", UPS_F32, UPS_SHAPE(queries, task->geometry.dims));
        made->inputs[QUERY_INDEX] = points;
        made->inputs[QUERY_COORDINATES] = p.coordinates;
        p.target = ups_gather_points(g, p.field, points, ups_networks_statistics(g, task), channels,
                                     task->geometry.order == UPS_CHANNELS_FIRST);
    }
    if (made->losses & READ_LATENTS) p.latents = ups_networks_encode(g, a->config, task, p.field);
    if (made->losses & READ_DECODED)
        p.decoded = ups_networks_decode_at_grid_points(g, a->config, task, p.latents, p.coordinates);
    if (is_due(made, UPS_AUTOENCODER_INVERSE_DECODING))
        add_term(a, made, UPS_AUTOENCODER_INVERSE_DECODING, ups_loss_mse(g, p.decoded, p.target), 1);
    if (is_due(made, UPS_AUTOENCODER_RELATIVE))
        add_term(a, made, UPS_AUTOENCODER_RELATIVE, ups_loss_relative(g, p.decoded, p.target), 1);
    add_latent_losses(a, made, &p);
    if (is_due(made, UPS_AUTOENCODER_ROUNDED)) add_rounded(a, task, made, &p);
    if (is_due(made, UPS_AUTOENCODER_BETWEEN)) add_between(a, task, made, &p);
    if (is_due(made, UPS_AUTOENCODER_INVERSE_ENCODING)) add_inverse_encoding(a, task, batch, made, &p);
}

/* ---- samples and batches --------------------------------------------------------------------------------------- */

static ups_loader_load load(const void *context, int index, ups_split split) {
    const autoencoder *a = context;
    const ups_task *task = &a->tasks->task[index];
    return (ups_loader_load){.frames = 1,
                             .stride = 1,
                             .frame_elements = ups_sample_frame_elements(&task->geometry),
                             .dtype = task->geometry.dtype,
                             .limits = task->source->limits,
                             .window = ups_source_window_limits(task->source, 1)};
}

static ups_status prepare(void *context, int64_t batch, ups_error *error) {
    autoencoder *a = context;
    a->coordinates = calloc((size_t)a->tasks->count, sizeof *a->coordinates);
    size_t queries = (size_t)a->queries, coordinates = queries * UPS_MAX_GRID_DIMS * sizeof *a->query_coordinates;
    UPS_TRY(
        a->device->class->allocate_host(a->device, queries * sizeof *a->query_index, (void **)&a->query_index, error));
    UPS_TRY(a->device->class->allocate_host(a->device, coordinates, (void **)&a->query_coordinates, error));
    if (a->config->model.decoder.between > 0) {
        int64_t channels = 1;
        for (int t = 0; t < a->tasks->count; t++) {
            if (a->tasks->task[t].geometry.channels > channels) channels = a->tasks->task[t].geometry.channels;
        }
        const size_t lines = UPS_LINE_POINTS * coordinates,
                     weights = UPS_LINE_POINTS * queries * (size_t)channels * sizeof *a->line_weights;
        UPS_TRY(a->device->class->allocate_host(a->device, coordinates, (void **)&a->places, error));
        UPS_TRY(a->device->class->allocate_host(a->device, lines, (void **)&a->lines, error));
        UPS_TRY(a->device->class->allocate_host(a->device, weights, (void **)&a->line_weights, error));
    }
    bool had = a->coordinates != NULL;
    for (int t = 0; had && t < a->tasks->count; t++) {
        const ups_task *task = &a->tasks->task[t];
        a->coordinates[t] = malloc((size_t)(ups_task_points(task) * task->geometry.dims) * sizeof(float));
        had = a->coordinates[t] != NULL;
        if (had) ups_task_coordinates(task, a->coordinates[t]);
    }
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "autoencoder: no memory for its tables");
}

static ups_status find_samples(void *context, int index, ups_split split, ups_loader_task *entry, ups_error *error) {
    const autoencoder *a = context;
    const ups_task *task = &a->tasks->task[index];
    entry->source = task->source;
    entry->samples = task->splits.samples[split];
    entry->sample_count = task->splits.count[split];
    entry->window = entry->stride = 1;
    return UPS_OK;
}

/* A grid point by its number among those whose places along each axis are multiples of `stride`. */
static int64_t coarse_point(const ups_sample *geometry, int64_t stride, int64_t number) {
    int64_t point = 0, at[UPS_MAX_GRID_DIMS] = {0};
    for (int a = geometry->dims - 1; a >= 0; a--) {
        int64_t places = (geometry->grid[a] + stride - 1) / stride;
        at[a] = number % places * stride;
        number /= places;
    }
    for (int a = 0; a < geometry->dims; a++) point = point * geometry->grid[a] + at[a];
    return point;
}

/* Of a curriculum: every eighth point along an axis in the first quarter of the steps, all in the last. */
static int64_t stride_of(const autoencoder *a, const ups_stage_draw *draw) {
    if (a->config->autoencoder.query_sampling != UPS_QUERY_CURRICULUM) return 1;
    return draw->progress < 0.25 ? 8 : draw->progress < 0.5 ? 4 : draw->progress < 0.75 ? 2 : 1;
}

/* Query points of one batch. Uniform: with replacement. Stratified: points in the order of memory are cut into equal
 * parts, each of which gives one; nearly equal where their numbers do not divide. */
static void draw_queries(autoencoder *a, int task, const ups_stage_draw *draw, int64_t count) {
    const ups_sample *geometry = &a->tasks->task[task].geometry;
    const bool stratified = a->config->autoencoder.query_sampling == UPS_QUERY_STRATIFIED;
    const int64_t stride = stride_of(a, draw), all = ups_task_points(&a->tasks->task[task]);
    int64_t points = 1;
    for (int axis = 0; axis < geometry->dims; axis++) points *= (geometry->grid[axis] + stride - 1) / stride;
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_QUERY, (uint32_t)draw->item);
    for (int64_t q = 0; q < count; q++) {
        int64_t from = stratified ? q * points / count : 0, end = stratified ? (q + 1) * points / count : points;
        int64_t drawn = from + (int64_t)ups_random_below(stream, (uint64_t)q, (uint64_t)(end - from));
        int64_t point = count == all && stride == 1 ? q : coarse_point(geometry, stride, drawn);
        a->query_index[q] = (int32_t)point;
        for (int d = 0; d < geometry->dims; d++)
            a->query_coordinates[q * geometry->dims + d] = a->coordinates[task][point * geometry->dims + d];
    }
}

/* A place between the middle two of UPS_LINE_POINTS grid points in a row along an axis, and at a grid point along the
 * others. Where there is a border, the row ends within. */
static void draw_place(autoencoder *a, int task, ups_random stream, uint64_t drawn, int64_t q, int along) {
    const ups_sample *geometry = &a->tasks->task[task].geometry;
    const int64_t dims = geometry->dims, channels = geometry->channels, row = q * UPS_LINE_POINTS;
    const double inside = 0.5 * UPS_LINE_POINTS - 1 + ups_random_uniform(stream, drawn++);
    float weights[UPS_LINE_POINTS];
    ups_patch_line_weights(inside, weights);
    for (int64_t i = 0; i < UPS_LINE_POINTS * channels; i++)
        a->line_weights[row * channels + i] = weights[i / channels];
    for (int d = 0; d < dims; d++) {
        const int64_t points = geometry->grid[d];
        const int64_t room = d == along && !geometry->periodic ? points - UPS_LINE_POINTS + 1 : points;
        const int64_t first = (int64_t)ups_random_below(stream, drawn++, (uint64_t)room);
        for (int64_t i = 0; i < UPS_LINE_POINTS; i++) {
            const int64_t at = d == along ? (first + i) % points : first;
            a->lines[(row + i) * dims + d] = ((float)at + 0.5f) / (float)points;
        }
        const double place = fmod(((double)first + (d == along ? inside : 0) + 0.5) / (double)points, 1.0);
        a->places[q * dims + d] = (float)place;
    }
}

static void draw_places(autoencoder *a, int task, const ups_stage_draw *draw, int64_t count) {
    const ups_sample *geometry = &a->tasks->task[task].geometry;
    int usable[UPS_MAX_GRID_DIMS], axes = 0;
    for (int axis = 0; axis < geometry->dims; axis++) {
        if (geometry->grid[axis] >= UPS_LINE_POINTS) usable[axes++] = axis;
    }
    enum { DRAWS = 2 + UPS_MAX_GRID_DIMS }; /* of each place, behind those of the query points */
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_QUERY, (uint32_t)draw->item);
    for (int64_t q = 0; q < count; q++) {
        const uint64_t first = (uint64_t)(a->queries + q * DRAWS);
        draw_place(a, task, stream, first + 1, q, usable[ups_random_below(stream, first, (uint64_t)axes)]);
    }
}

static ups_status upload(void *context, ups_stage_graph *graph, const ups_batch *batch, ups_feed *feed,
                         const int *task_of, const ups_stage_draw *draw, ups_error *error) {
    autoencoder *a = context;
    int task = task_of[batch->window[0].task];
    int64_t queries = query_count(a, &a->tasks->task[task]), dims = a->tasks->task[task].geometry.dims;
    UPS_TRY(ups_feed_upload(feed, graph->step, graph->inputs[FIELD], NULL, 1, 1, error));
    if (!(graph->losses & READ_TARGET)) return UPS_OK;
    draw_queries(a, task, draw, queries);
    UPS_TRY(ups_step_upload(graph->step, graph->inputs[QUERY_INDEX], a->query_index, (size_t)queries * sizeof(int32_t),
                            error));
    const size_t coordinates = (size_t)(queries * dims) * sizeof(float);
    if (graph->losses & 1u << UPS_AUTOENCODER_BETWEEN) {
        const size_t weights =
            UPS_LINE_POINTS * (size_t)(queries * a->tasks->task[task].geometry.channels) * sizeof(float);
        draw_places(a, task, draw, queries);
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[PLACES], a->places, coordinates, error));
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[LINES], a->lines, UPS_LINE_POINTS * coordinates, error));
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[LINE_WEIGHTS], a->line_weights, weights, error));
    }
    return ups_step_upload(graph->step, graph->inputs[QUERY_COORDINATES], a->query_coordinates, coordinates, error);
}

/* On a grid of tokens: both linear maps of every task. */
static ups_status initialise(void *context, ups_parameters *parameters, ups_error *error) {
    const autoencoder *a = context;
    if (!ups_run_on_grid(a->config)) return UPS_OK;
    for (int t = 0; t < a->tasks->count; t++) {
        const ups_task *task = &a->tasks->task[t];
        ups_patch_basis basis;
        char encode[128], decode[128];
        snprintf(encode, sizeof encode, "encoder.%s.patch.weight", task->name);
        snprintf(decode, sizeof decode, "decoder.%s.patch.weight", task->name);
        UPS_TRY(ups_patch_basis_find(a->config, task, &basis, error));
        ups_status status = ups_parameters_set(parameters, encode, basis.encode, error);
        if (status == UPS_OK) status = ups_parameters_set(parameters, decode, basis.decode, error);
        ups_patch_basis_free(&basis);
        UPS_TRY(status);
    }
    return UPS_OK;
}

static ups_status find_origin(const void *context, json_t **origin, ups_error *error) {
    const autoencoder *a = context;
    *origin = ups_origin_autoencoder(a->config, a->tasks);
    return *origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

/* ---- the stage ------------------------------------------------------------------------------------------------- */

static ups_stage_description describe(autoencoder *a, const ups_stage_request *request) {
    const ups_autoencoder_config *config = &request->session->config->autoencoder;
    *a = (autoencoder){.device = request->session->device,
                       .config = request->session->config,
                       .tasks = request->session->tasks,
                       .queries = config->queries};
    return (ups_stage_description){.stage = UPS_STAGE_AUTOENCODER,
                                   .training = &config->training,
                                   .batches = UPS_F32,
                                   .one_task_per_batch = true,
                                   .exact_losses = 1u << UPS_AUTOENCODER_ROUNDED,
                                   .context = a,
                                   .kind = kind,
                                   .build = build,
                                   .load = load,
                                   .prepare = prepare,
                                   .find_samples = find_samples,
                                   .upload = upload,
                                   .initialise = initialise,
                                   .find_origin = find_origin};
}

static void release(autoencoder *a) {
    for (int t = 0; a->coordinates && t < a->tasks->count; t++) free(a->coordinates[t]);
    free(a->coordinates);
    if (a->query_index) a->device->class->release_host(a->device, a->query_index);
    if (a->query_coordinates) a->device->class->release_host(a->device, a->query_coordinates);
    if (a->places) a->device->class->release_host(a->device, a->places);
    if (a->lines) a->device->class->release_host(a->device, a->lines);
    if (a->line_weights) a->device->class->release_host(a->device, a->line_weights);
}

/* A task whose grid cannot be thinned has nothing to learn the correction from. */
static ups_status check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    if (config->model.decoder.between == 0) return UPS_OK;
    for (int t = 0; t < tasks->count; t++) {
        if (ups_networks_can_thin(config, &tasks->task[t])) continue;
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "task %s: no axis of its grid has 16 points or more of which every second can be left out (of "
            "a periodic axis an even number), so that model.decoder.between would learn nothing; leave it 0",
            tasks->task[t].name);
    }
    return UPS_OK;
}

static ups_status plan(const ups_stage_request *request, ups_stage_plan *made, ups_error *error) {
    autoencoder a;
    ups_stage_description stage = describe(&a, request);
    ups_status status = ups_stage_training_plan(&stage, request, made, error);
    release(&a);
    return status;
}

static ups_status run(const ups_stage_request *request, ups_error *error) {
    autoencoder a;
    ups_stage_description stage = describe(&a, request);
    ups_status status = ups_stage_training_run(&stage, request, error);
    release(&a);
    return status;
}

static ups_status accept(const ups_stage_request *request, ups_error *error) {
    return ups_gate_autoencoder(request->session, error);
}

extern const ups_stage_class ups_stage_autoencoder;
const ups_stage_class ups_stage_autoencoder = {.check = check, .plan = plan, .run = run, .accept = accept};
