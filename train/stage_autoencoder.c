/* Stage `autoencoder`: encoder and any-point decoder trained on single frames of raw fields, all tasks together.
 *
 * A batch holds one task, since fields of different tasks have different shapes; with accumulation every optimizer step
 * can see all of them. Each task has a graph for every set of losses that falls due; all share one set of parameters.
 * Only one graph runs at a time.
 *
 * Inverse decoding (UPT, arXiv 2402.12365): decode(encode(u)) ≈ u at `queries` grid points drawn uniformly, the same
 * for a whole batch. Inverse encoding: encode(decode(z)) ≈ z, for which the latents are decoded at every grid point. */
#include "base/log.h"
#include "base/random.h"
#include "train/batches.h"
#include "train/loop.h"
#include "train/losses.h"
#include "train/networks.h"
#include "train/origin.h"
#include "train/stage.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { INVERSE_DECODING, RELATIVE, INVERSE_ENCODING, LOSSES };

/* One task's graph for one set of losses. */
typedef struct variant {
    unsigned mask;
    ups_graph *graph;
    ups_step *step; /* NULL while only a plan is wanted */
    ups_value field, query_index, query_coordinates;
    ups_objective objective;
} variant;

typedef struct autoencoder {
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    int64_t batch, queries;
    const ups_loss_config *losses[LOSSES];
    unsigned masks[1 << LOSSES];
    int mask_count;
    ups_parameters *parameters;
    variant *variants;   /* (tasks, masks) */
    float **coordinates; /* of all grid points, a task: (points, dims) */
    int32_t *query_index;
    float *query_coordinates, *windows, *scratch;
    ups_optimizer *optimizer;
    ups_loader_task *loader_tasks, *validation_tasks;
    int *validation_task; /* task of the i-th validation task: those without validation samples are left out */
    int validation_count;
    ups_loader *loader;
    const ups_batch *batch_in_hand;
    json_t *origin;
} autoencoder;

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

static int64_t query_count(const autoencoder *a, const ups_task *task) {
    int64_t points = ups_task_points(task);
    return a->queries < points ? a->queries : points;
}

static void add_inverse_encoding(const autoencoder *a, const ups_task *task, variant *v, ups_value latents) {
    int64_t points = ups_task_points(task), channels = task->geometry.channels;
    float *host = malloc((size_t)(points * task->geometry.dims) * sizeof *host);
    if (!host) ups_graph_abort(v->graph, "constant", "no memory for the grid's coordinates");
    ups_task_coordinates(task, host);
    ups_value everywhere =
        ups_graph_constant(v->graph, "grid_coordinates", UPS_F32, UPS_SHAPE(points, task->geometry.dims), host);
    free(host);
    ups_value decoded = ups_networks_decode(v->graph, a->config, task, latents, everywhere);
    ups_value field = ups_graph_reshape(v->graph, decoded, UPS_SHAPE(a->batch, points * channels));
    ups_value again = ups_networks_encode_normalised(v->graph, a->config, task, field);
    ups_objective_add(v->graph, &v->objective, ups_loss_mse(v->graph, again, latents),
                      a->losses[INVERSE_ENCODING]->weight);
}

static void build_variant(const autoencoder *a, const ups_task *task, unsigned mask, variant *v) {
    int64_t queries = query_count(a, task), channels = task->geometry.channels;
    bool channels_first = task->geometry.order == UPS_CHANNELS_FIRST;
    v->mask = mask;
    v->graph = ups_graph_create(a->parameters, ups_run_compute(a->config));
    ups_graph *g = v->graph;
    v->field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(a->batch, ups_sample_frame_elements(&task->geometry)));
    v->query_index = ups_graph_input(g, "query_index", UPS_I32, UPS_SHAPE(queries));
    v->query_coordinates = ups_graph_input(g, "query_coordinates", UPS_F32, UPS_SHAPE(queries, task->geometry.dims));

    ups_value latents = ups_networks_encode(g, a->config, task, v->field);
    ups_value decoded = ups_networks_decode(g, a->config, task, latents, v->query_coordinates);
    ups_value target =
        ups_gather_points(g, v->field, v->query_index, ups_networks_statistics(g, task), channels, channels_first);
    if (mask & 1u << INVERSE_DECODING) {
        ups_objective_add(g, &v->objective, ups_loss_mse(g, decoded, target), a->losses[INVERSE_DECODING]->weight);
    }
    if (mask & 1u << RELATIVE) {
        ups_objective_add(g, &v->objective, ups_loss_relative(g, decoded, target), a->losses[RELATIVE]->weight);
    }
    if (mask & 1u << INVERSE_ENCODING) add_inverse_encoding(a, task, v, latents);
    ups_objective_close(g, &v->objective);
    ups_graph_differentiate(g, v->objective.total);
}

static ups_status build(autoencoder *a, ups_error *error) {
    a->parameters = ups_parameters_create();
    a->variants = calloc((size_t)(a->tasks->count * a->mask_count), sizeof *a->variants);
    if (!a->parameters || !a->variants) return ups_fail(error, UPS_ERR_MEMORY, "autoencoder: no memory for its graphs");
    for (int t = 0; t < a->tasks->count; t++) {
        for (int m = 0; m < a->mask_count; m++) {
            build_variant(a, &a->tasks->task[t], a->masks[m], &a->variants[t * a->mask_count + m]);
        }
    }
    return UPS_OK;
}

static variant *find_variant(autoencoder *a, int task, unsigned mask) {
    for (int m = 0; m < a->mask_count; m++) {
        if (a->masks[m] == mask) return &a->variants[task * a->mask_count + m];
    }
    return &a->variants[task * a->mask_count];
}

static void release(autoencoder *a) {
    ups_loader_close(a->loader);
    ups_optimizer_destroy(a->optimizer);
    for (int i = 0; a->variants && i < a->tasks->count * a->mask_count; i++) {
        ups_step_destroy(a->variants[i].step);
        ups_graph_destroy(a->variants[i].graph);
    }
    for (int t = 0; a->coordinates && t < a->tasks->count; t++) free(a->coordinates[t]);
    free(a->coordinates);
    free(a->variants);
    ups_parameters_destroy(a->parameters);
    free(a->query_index);
    free(a->query_coordinates);
    free(a->windows);
    free(a->scratch);
    free(a->loader_tasks);
    free(a->validation_tasks);
    free(a->validation_task);
    json_decref(a->origin);
}

/* ---- planning -------------------------------------------------------------------------------------------------- */

static ups_status begin(autoencoder *a, const ups_stage_request *request, int64_t batch, ups_error *error) {
    const ups_autoencoder_config *config = &request->config->autoencoder;
    *a = (autoencoder){
        .request = request,
        .config = request->config,
        .tasks = request->tasks,
        .batch = batch,
        .queries = config->queries,
        .losses = {&config->losses.inverse_decoding, &config->losses.relative, &config->losses.inverse_encoding}};
    UPS_TRY(ups_networks_check(request->config, request->tasks, error));
    a->mask_count = ups_losses_masks(a->losses, LOSSES, config->training.steps, a->masks);
    return build(a, error);
}

static size_t loader_bytes(const autoencoder *a) {
    ups_loader_load loads[UPS_SAMPLER_MAX_TASKS];
    for (int t = 0; t < a->tasks->count; t++) {
        const ups_task *task = &a->tasks->task[t];
        loads[t] = (ups_loader_load){.frames = 1,
                                     .stride = 1,
                                     .frame_elements = ups_sample_frame_elements(&task->geometry),
                                     .dtype = task->geometry.dtype,
                                     .limits = task->source->limits};
    }
    ups_loader_options options = ups_training_loader_options(a->config, &a->config->autoencoder.training, a->batch, 0);
    return ups_loader_measure(&options, loads, a->tasks->count).total;
}

static ups_status measure(void *context, int64_t batch, ups_stage_plan *plan, ups_error *error) {
    const ups_stage_request *request = context;
    autoencoder a;
    *plan = (ups_stage_plan){.batch_size = batch};
    ups_status status = begin(&a, request, batch, error);
    for (int i = 0; status == UPS_OK && i < a.tasks->count * a.mask_count; i++) {
        ups_plan_memory memory;
        status = ups_step_measure(a.variants[i].graph, request->device, &memory, error);
        if (status != UPS_OK) break;
        plan->activations += memory.activations;
        plan->inputs += memory.inputs;
        plan->workspace += memory.workspace;
        plan->parameters = memory.parameters;
    }
    if (status == UPS_OK) {
        plan->trainable = ups_parameters_trainable(a.parameters);
        plan->optimizer = ups_optimizer_bytes(&request->config->autoencoder.training.optimizer, a.parameters);
        plan->loader = loader_bytes(&a);
        plan->total =
            plan->parameters + plan->optimizer + plan->activations + plan->inputs + plan->workspace + plan->loader;
    }
    release(&a);
    return status;
}

ups_status ups_stage_autoencoder_plan(const ups_stage_request *request, ups_stage_plan *plan, ups_error *error) {
    return ups_stage_choose_batch(request, UPS_STAGE_AUTOENCODER, measure, plan, error);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Query points of one micro-batch: uniform over the grid, with replacement, a function of (seed, micro-batch) alone. */
static void draw_queries(autoencoder *a, int task, uint64_t seed, int64_t micro_batch, int64_t count) {
    int dims = a->tasks->task[task].geometry.dims;
    uint64_t points = (uint64_t)ups_task_points(&a->tasks->task[task]);
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_QUERY, (uint32_t)micro_batch);
    for (int64_t q = 0; q < count; q++) {
        int64_t point = count == (int64_t)points ? q : (int64_t)ups_random_below(stream, (uint64_t)q, points);
        a->query_index[q] = (int32_t)point;
        for (int d = 0; d < dims; d++) a->query_coordinates[q * dims + d] = a->coordinates[task][point * dims + d];
    }
}

static ups_status run_batch(autoencoder *a, int task, variant *v, const ups_batch *batch, uint64_t query_seed,
                            int64_t query_item, const ups_step_run_options *options, ups_error *error) {
    const ups_task *t = &a->tasks->task[task];
    int64_t queries = query_count(a, t);
    size_t field_bytes = (size_t)(a->batch * batch->frame_elements) * sizeof(float);
    draw_queries(a, task, query_seed, query_item, queries);
    UPS_TRY(ups_step_upload(v->step, v->field, batch->data, field_bytes, error));
    UPS_TRY(ups_step_upload(v->step, v->query_index, a->query_index, (size_t)queries * sizeof(int32_t), error));
    UPS_TRY(ups_step_upload(v->step, v->query_coordinates, a->query_coordinates,
                            (size_t)(queries * t->geometry.dims) * sizeof(float), error));
    UPS_TRY(ups_step_run(v->step, options, error));
    return ups_objective_read(&v->objective, v->step, a->batch, a->scratch, a->windows, error);
}

static void add_windows(const autoencoder *a, int task, ups_loss_sums *sums) {
    for (int64_t b = 0; b < a->batch; b++) sums->sum[task] += (double)a->windows[b];
    sums->count[task] += a->batch;
    sums->windows += a->batch;
}

static ups_status micro_batch(void *context, const ups_micro_batch *micro, ups_loss_sums *sums, ups_error *error) {
    autoencoder *a = context;
    if (a->batch_in_hand) ups_loader_release(a->loader, a->batch_in_hand);
    a->batch_in_hand = NULL;
    UPS_TRY(ups_loader_next(a->loader, &a->batch_in_hand, error));
    if (!a->batch_in_hand) return ups_fail(error, UPS_ERR_ARGUMENT, "autoencoder: the loader ended early");
    int task = a->batch_in_hand->window[0].task;
    int64_t item = micro->step * a->config->autoencoder.training.accumulation + micro->index;
    ups_step_run_options options = {.training = true,
                                    .backward = true,
                                    .accumulate = micro->accumulate,
                                    .loss_scale = micro->loss_scale,
                                    .seed = a->config->seed,
                                    .step = (uint64_t)item};
    variant *v = find_variant(a, task, ups_losses_due(a->losses, LOSSES, micro->step));
    UPS_TRY(run_batch(a, task, v, a->batch_in_hand, a->config->seed, item, &options, error));
    add_windows(a, task, sums);
    return UPS_OK;
}

static unsigned losses_due(void *context, int64_t step) {
    const autoencoder *a = context;
    return ups_losses_due(a->losses, LOSSES, step);
}

static void describe_batch(void *context, char *text, size_t bytes) {
    autoencoder *a = context;
    if (a->batch_in_hand) ups_batch_describe(a->batch_in_hand, a->loader_tasks, text, bytes);
}

/* Mean objective by task on fixed windows and query points of the validation split. */
static ups_status validate(void *context, json_t *report, double *score, ups_error *error) {
    autoencoder *a = context;
    *score = NAN;
    if (a->validation_count == 0) return UPS_OK;
    const ups_training_config *training = &a->config->autoencoder.training;
    ups_loader_options options = ups_validation_loader_options(a->config, training, a->batch, a->validation_count);
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(&options, a->validation_tasks, a->validation_count, &loader, error));
    ups_loss_sums *sums = calloc(1, sizeof *sums);
    ups_status status = sums ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "autoencoder: out of memory");
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        int task = a->validation_task[batch->window[0].task];
        ups_step_run_options run = {.loss_scale = 1};
        variant *v = find_variant(a, task, a->masks[0]);
        status = run_batch(a, task, v, batch, 0, batch->index, &run, error);
        if (status == UPS_OK) add_windows(a, task, sums);
        ups_loader_release(loader, batch);
    }
    double total = 0;
    for (int i = 0; status == UPS_OK && i < a->validation_count; i++) {
        int task = a->validation_task[i];
        double mean = sums->sum[task] / (double)sums->count[task];
        json_object_set_new(report, a->tasks->task[task].name, json_real(mean));
        total += mean / a->validation_count;
    }
    if (status == UPS_OK) *score = total;
    free(sums);
    ups_loader_close(loader);
    return status;
}

static ups_status prepare_host(autoencoder *a, ups_error *error) {
    int count = a->tasks->count, most_dims = UPS_MAX_GRID_DIMS;
    a->coordinates = calloc((size_t)count, sizeof *a->coordinates);
    a->query_index = malloc((size_t)a->queries * sizeof *a->query_index);
    a->query_coordinates = malloc((size_t)(a->queries * most_dims) * sizeof *a->query_coordinates);
    a->windows = malloc((size_t)a->batch * sizeof *a->windows);
    a->scratch = malloc((size_t)a->batch * sizeof *a->scratch);
    a->loader_tasks = calloc((size_t)count, sizeof *a->loader_tasks);
    a->validation_tasks = calloc((size_t)count, sizeof *a->validation_tasks);
    a->validation_task = calloc((size_t)count, sizeof *a->validation_task);
    bool had = a->coordinates && a->query_index && a->query_coordinates && a->windows && a->scratch &&
               a->loader_tasks && a->validation_tasks && a->validation_task;
    for (int t = 0; had && t < count; t++) {
        const ups_task *task = &a->tasks->task[t];
        a->coordinates[t] = malloc((size_t)(ups_task_points(task) * task->geometry.dims) * sizeof(float));
        had = a->coordinates[t] != NULL;
        if (!had) break;
        ups_task_coordinates(task, a->coordinates[t]);
        ups_loader_task entry = {.name = task->name, .source = task->source, .weight = task->config->weight};
        entry.samples = task->samples[UPS_SPLIT_TRAIN];
        entry.sample_count = task->sample_count[UPS_SPLIT_TRAIN];
        a->loader_tasks[t] = entry;
        if (task->sample_count[UPS_SPLIT_VALIDATION] == 0) continue;
        entry.samples = task->samples[UPS_SPLIT_VALIDATION];
        entry.sample_count = task->sample_count[UPS_SPLIT_VALIDATION];
        a->validation_task[a->validation_count] = t;
        a->validation_tasks[a->validation_count++] = entry;
    }
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "autoencoder: no memory for its tables");
}

static ups_status prepare_device(autoencoder *a, ups_training_state *state, const char *checkpoints, ups_error *error) {
    ups_device *device = a->request->device;
    const ups_training_config *training = &a->config->autoencoder.training;
    bool bf16 = ups_run_compute(a->config) == UPS_BF16;
    UPS_TRY(ups_parameters_allocate(a->parameters, device, true, bf16, a->config->seed, error));
    for (int i = 0; i < a->tasks->count * a->mask_count; i++) {
        UPS_TRY(ups_step_create(a->variants[i].graph, device, &a->variants[i].step, error));
    }
    UPS_TRY(ups_optimizer_create(&training->optimizer, device, a->parameters, &a->optimizer, error));
    if (a->request->resume && ups_checkpoint_exists(checkpoints)) {
        UPS_TRY(ups_checkpoint_load(checkpoints, state, a->parameters, a->optimizer, error));
    }
    return UPS_OK;
}

static ups_status train(autoencoder *a, ups_error *error) {
    const ups_training_config *training = &a->config->autoencoder.training;
    a->origin = ups_origin_autoencoder(a->config, a->tasks);
    if (!a->origin) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_training_state state = {.seed = a->config->seed, .score = NAN, .batch_size = a->batch, .origin = a->origin};
    char *checkpoints = ups_run_path(a->config, "checkpoints/autoencoder");
    const char *names[UPS_SAMPLER_MAX_TASKS];
    for (int t = 0; t < a->tasks->count; t++) names[t] = a->tasks->task[t].name;
    ups_status status = checkpoints ? prepare_host(a, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = prepare_device(a, &state, checkpoints, error);
    free(checkpoints);
    UPS_TRY(status);

    ups_loader_options options = ups_training_loader_options(a->config, training, a->batch, state.step);
    options.one_task_per_batch = true;
    UPS_TRY(ups_loader_open(&options, a->loader_tasks, a->tasks->count, &a->loader, error));
    ups_log(UPS_LOG_INFO, "autoencoder: %.2f M parameters, batch %lld × %lld, %lld steps%s",
            (double)ups_parameters_trainable(a->parameters) / 1e6, (long long)training->accumulation,
            (long long)a->batch, (long long)training->steps, state.step > 0 ? " (resumed)" : "");
    ups_loop_stage stage = {.name = "autoencoder",
                            .context = a,
                            .micro_batch = micro_batch,
                            .validate = validate,
                            .losses_due = losses_due,
                            .describe_batch = describe_batch,
                            .loader = a->loader,
                            .graphs = a->tasks->count};
    ups_loop_options loop = {.training = training,
                             .seed = a->config->seed,
                             .output = a->config->output,
                             .resume = &state,
                             .device = a->request->device,
                             .parameters = a->parameters,
                             .optimizer = a->optimizer,
                             .task_names = names,
                             .task_count = a->tasks->count};
    UPS_TRY(ups_loop_run(&loop, &stage, error));
    char *path = ups_run_model_path(a->config, UPS_STAGE_AUTOENCODER);
    status = path ? ups_model_export(path, a->parameters, a->optimizer, a->origin, error)
                  : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(path);
    return status;
}

ups_status ups_stage_autoencoder_run(const ups_stage_request *request, ups_error *error) {
    ups_stage_plan plan;
    UPS_TRY(ups_stage_autoencoder_plan(request, &plan, error));
    autoencoder a;
    ups_status status = begin(&a, request, plan.batch_size, error);
    if (status == UPS_OK) status = train(&a, error);
    release(&a);
    return status;
}
