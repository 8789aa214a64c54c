/* Stage `operator`: the latent operator trained on cached latents, all tasks together.
 *
 * A window is one frame and its successors: two frames for one step, `rollout_steps` + 1 for the rollout loss, fewer
 * where a task's trajectories are shorter (Darcy's have two frames). Tasks whose windows have the same length share one
 * graph and mix within a batch; otherwise a batch holds one task. There is a graph for every window length and every
 * set of losses that falls due; all share one set of parameters. */
#include "base/log.h"
#include "train/batches.h"
#include "train/latents.h"
#include "train/loop.h"
#include "train/losses.h"
#include "train/networks.h"
#include "train/origin.h"
#include "train/stage.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ONE_STEP, RELATIVE, ROLLOUT, LOSSES };

/* The graph for one window length and one set of losses. */
typedef struct variant {
    int64_t window;
    unsigned mask;
    ups_graph *graph;
    ups_step *step;
    ups_value latents, dt, parameters, task;
    ups_objective objective;
} variant;

typedef struct operator_stage {
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    ups_operator_options options;
    int64_t batch;
    const ups_loss_config *losses[LOSSES];
    unsigned masks[1 << LOSSES];
    int mask_count;
    int64_t window[UPS_SAMPLER_MAX_TASKS]; /* frames of a task's windows */
    bool mixed;                            /* all tasks' windows have the same length */
    ups_parameters *parameters;
    variant *variants;
    int variant_count;
    float *dt, *condition, *one_hot, *windows, *scratch;
    ups_optimizer *optimizer;
    ups_source **sources[2]; /* cached latents of training and validation, by task */
    ups_loader_task *loader_tasks, *validation_tasks;
    int *validation_task;
    int validation_count;
    ups_loader *loader;
    const ups_batch *batch_in_hand;
    json_t *origin;
} operator_stage;

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

/* Without a step to roll on to, a task trains on the one-step loss alone; that must not leave it without any. */
static void build_losses(const operator_stage *o, variant *v, const ups_value *states, int steps) {
    ups_graph *g = v->graph;
    ups_value first = ups_select_frame(g, v->latents, 1);
    bool rollout = (v->mask & 1u << ROLLOUT) && steps > 1;
    if (v->mask & 1u << ONE_STEP) {
        ups_objective_add(g, &v->objective, ups_loss_mse(g, states[0], first), o->losses[ONE_STEP]->weight);
    }
    if (v->mask & 1u << RELATIVE) {
        ups_objective_add(g, &v->objective, ups_loss_relative(g, states[0], first), o->losses[RELATIVE]->weight);
    }
    for (int k = 1; k < steps && rollout; k++) {
        ups_value later = ups_select_frame(g, v->latents, k + 1);
        ups_objective_add(g, &v->objective, ups_loss_mse(g, states[k], later),
                          o->losses[ROLLOUT]->weight / (steps - 1));
    }
    if (v->objective.count == 0) {
        ups_objective_add(g, &v->objective, ups_loss_mse(g, states[0], first), o->losses[ROLLOUT]->weight);
    }
}

static void build_variant(const operator_stage *o, int64_t window, unsigned mask, variant *v) {
    int64_t tokens = o->config->model.tokens, dim = o->config->model.dim;
    v->window = window;
    v->mask = mask;
    v->graph = ups_graph_create(o->parameters, ups_run_compute(o->config));
    ups_graph *g = v->graph;
    v->latents = ups_graph_input(g, "latents", UPS_F32, UPS_SHAPE(o->batch, window, tokens, dim));
    v->dt = ups_graph_input(g, "dt", UPS_F32, UPS_SHAPE(o->batch, 1));
    v->parameters = v->task = UPS_NO_VALUE;
    if (o->options.parameter_count > 0) {
        v->parameters = ups_graph_input(g, "parameters", UPS_F32, UPS_SHAPE(o->batch, o->options.parameter_count));
    }
    if (o->options.task_count > 0) {
        v->task = ups_graph_input(g, "task", UPS_F32, UPS_SHAPE(o->batch, o->options.task_count));
    }
    int steps = mask & 1u << ROLLOUT ? (int)window - 1 : 1;
    ups_value *states = UPS_ARENA_ARRAY(g->arena, ups_value, steps);
    ups_value start = ups_select_frame(g, v->latents, 0);
    ups_operator_rollout(g, &o->options, start, v->dt, v->parameters, v->task, steps, states);
    build_losses(o, v, states, steps);
    ups_objective_close(g, &v->objective);
    ups_graph_differentiate(g, v->objective.total);
}

static variant *find_variant(operator_stage *o, int64_t window, unsigned mask) {
    for (int i = 0; i < o->variant_count; i++) {
        if (o->variants[i].window == window && o->variants[i].mask == mask) return &o->variants[i];
    }
    return NULL;
}

static ups_status build(operator_stage *o, ups_error *error) {
    o->parameters = ups_parameters_create();
    o->variants = calloc((size_t)(o->tasks->count * o->mask_count), sizeof *o->variants);
    if (!o->parameters || !o->variants) return ups_fail(error, UPS_ERR_MEMORY, "operator: no memory for its graphs");
    for (int t = 0; t < o->tasks->count; t++) {
        for (int m = 0; m < o->mask_count; m++) {
            if (find_variant(o, o->window[t], o->masks[m])) continue;
            build_variant(o, o->window[t], o->masks[m], &o->variants[o->variant_count++]);
        }
    }
    return UPS_OK;
}

/* Frames of a task's windows: as many as the losses want and its trajectories have, in steps of its stride. */
static void find_windows(operator_stage *o) {
    bool rolls_out = o->losses[ROLLOUT]->weight > 0;
    o->mixed = true;
    for (int t = 0; t < o->tasks->count; t++) {
        const ups_task *task = &o->tasks->task[t];
        int64_t available = (task->geometry.times - 1) / task->config->stride + 1;
        int64_t wanted = rolls_out ? o->config->op.rollout_steps + 1 : 2;
        o->window[t] = wanted < available ? wanted : available;
        o->mixed = o->mixed && o->window[t] == o->window[0];
    }
}

static void release(operator_stage *o) {
    ups_loader_close(o->loader);
    for (int s = 0; s < 2; s++) {
        for (int t = 0; o->sources[s] && t < o->tasks->count; t++) ups_source_close(o->sources[s][t]);
        free(o->sources[s]);
    }
    ups_optimizer_destroy(o->optimizer);
    for (int i = 0; i < o->variant_count; i++) {
        ups_step_destroy(o->variants[i].step);
        ups_graph_destroy(o->variants[i].graph);
    }
    free(o->variants);
    ups_parameters_destroy(o->parameters);
    free(o->dt);
    free(o->condition);
    free(o->one_hot);
    free(o->windows);
    free(o->scratch);
    free(o->loader_tasks);
    free(o->validation_tasks);
    free(o->validation_task);
    json_decref(o->origin);
}

/* ---- planning -------------------------------------------------------------------------------------------------- */

static ups_status begin(operator_stage *o, const ups_stage_request *request, int64_t batch, ups_error *error) {
    const ups_operator_stage_config *config = &request->config->op;
    *o = (operator_stage){.request = request,
                          .config = request->config,
                          .tasks = request->tasks,
                          .options = ups_run_operator(request->config, request->tasks),
                          .batch = batch,
                          .losses = {&config->losses.one_step, &config->losses.relative, &config->losses.rollout}};
    UPS_TRY(ups_networks_check(request->config, request->tasks, error));
    find_windows(o);
    o->mask_count = ups_losses_masks(o->losses, LOSSES, config->training.steps, o->masks);
    return build(o, error);
}

static size_t loader_bytes(const operator_stage *o) {
    ups_loader_load loads[UPS_SAMPLER_MAX_TASKS];
    for (int t = 0; t < o->tasks->count; t++) {
        const ups_task *task = &o->tasks->task[t];
        loads[t] = (ups_loader_load){.frames = o->window[t],
                                     .stride = task->config->stride,
                                     .frame_elements = o->config->model.tokens * o->config->model.dim,
                                     .dtype = UPS_F16,
                                     .limits = ups_latents_limits(o->config, task)};
    }
    ups_loader_options options = ups_training_loader_options(o->config, &o->config->op.training, o->batch, 0);
    return ups_loader_measure(&options, loads, o->tasks->count).total;
}

static ups_status measure(void *context, int64_t batch, ups_stage_plan *plan, ups_error *error) {
    const ups_stage_request *request = context;
    operator_stage o;
    *plan = (ups_stage_plan){.batch_size = batch};
    ups_status status = begin(&o, request, batch, error);
    for (int i = 0; status == UPS_OK && i < o.variant_count; i++) {
        ups_plan_memory memory;
        status = ups_step_measure(o.variants[i].graph, request->device, &memory, error);
        if (status != UPS_OK) break;
        plan->activations += memory.activations;
        plan->inputs += memory.inputs;
        plan->workspace += memory.workspace;
        plan->parameters = memory.parameters;
    }
    if (status == UPS_OK) {
        plan->trainable = ups_parameters_trainable(o.parameters);
        plan->optimizer = ups_optimizer_bytes(&request->config->op.training.optimizer, o.parameters);
        plan->loader = loader_bytes(&o);
        plan->total =
            plan->parameters + plan->optimizer + plan->activations + plan->inputs + plan->workspace + plan->loader;
    }
    release(&o);
    return status;
}

ups_status ups_stage_operator_plan(const ups_stage_request *request, ups_stage_plan *plan, ups_error *error) {
    return ups_stage_choose_batch(request, UPS_STAGE_OPERATOR, measure, plan, error);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static ups_status run_batch(operator_stage *o, variant *v, const ups_batch *batch, const int *task_of,
                            const ups_step_run_options *options, ups_error *error) {
    int64_t parameters = o->options.parameter_count, tasks = o->options.task_count;
    for (int64_t b = 0; b < batch->windows; b++) {
        const ups_window *window = &batch->window[b];
        int task = task_of[window->task];
        o->dt[b] = (float)window->dt;
        ups_task_condition(window->parameters, o->tasks->task[task].source->parameter_count, (int)parameters,
                           o->condition + b * parameters);
        for (int64_t t = 0; t < tasks; t++) o->one_hot[b * tasks + t] = t == task ? 1 : 0;
    }
    size_t rows = (size_t)o->batch * sizeof(float);
    UPS_TRY(ups_step_upload(v->step, v->latents, batch->data, rows * (size_t)(batch->frames * batch->frame_elements),
                            error));
    UPS_TRY(ups_step_upload(v->step, v->dt, o->dt, rows, error));
    if (parameters > 0)
        UPS_TRY(ups_step_upload(v->step, v->parameters, o->condition, rows * (size_t)parameters, error));
    if (tasks > 0) UPS_TRY(ups_step_upload(v->step, v->task, o->one_hot, rows * (size_t)tasks, error));
    UPS_TRY(ups_step_run(v->step, options, error));
    return ups_objective_read(&v->objective, v->step, o->batch, o->scratch, o->windows, error);
}

static void add_windows(const operator_stage *o, const ups_batch *batch, const int *task_of, ups_loss_sums *sums) {
    for (int64_t b = 0; b < batch->windows; b++) {
        int task = task_of[batch->window[b].task];
        sums->sum[task] += (double)o->windows[b];
        sums->count[task]++;
    }
    sums->windows += batch->windows;
}

static const int *identity(void) {
    static int table[UPS_SAMPLER_MAX_TASKS];
    for (int t = 0; t < UPS_SAMPLER_MAX_TASKS; t++) table[t] = t;
    return table;
}

static ups_status micro_batch(void *context, const ups_micro_batch *micro, ups_loss_sums *sums, ups_error *error) {
    operator_stage *o = context;
    if (o->batch_in_hand) ups_loader_release(o->loader, o->batch_in_hand);
    o->batch_in_hand = NULL;
    ups_status status = ups_loader_next(o->loader, &o->batch_in_hand, error);
    if (status == UPS_ERR_CHECKSUM) {
        ups_fail_within(error,
                        "the cache is damaged (`ups cache verify` lists where; `ups cache build --restart` builds "
                        "it anew)");
    }
    UPS_TRY(status);
    if (!o->batch_in_hand) return ups_fail(error, UPS_ERR_ARGUMENT, "operator: the loader ended early");
    ups_step_run_options options = {.training = true,
                                    .backward = true,
                                    .accumulate = micro->accumulate,
                                    .loss_scale = micro->loss_scale,
                                    .seed = o->config->seed,
                                    .step =
                                        (uint64_t)(micro->step * o->config->op.training.accumulation + micro->index)};
    variant *v = find_variant(o, o->batch_in_hand->frames, ups_losses_due(o->losses, LOSSES, micro->step));
    UPS_TRY(run_batch(o, v, o->batch_in_hand, identity(), &options, error));
    add_windows(o, o->batch_in_hand, identity(), sums);
    return UPS_OK;
}

static unsigned losses_due(void *context, int64_t step) {
    const operator_stage *o = context;
    return ups_losses_due(o->losses, LOSSES, step);
}

static void describe_batch(void *context, char *text, size_t bytes) {
    operator_stage *o = context;
    if (o->batch_in_hand) ups_batch_describe(o->batch_in_hand, o->loader_tasks, text, bytes);
}

static ups_status validate(void *context, json_t *report, double *score, ups_error *error) {
    operator_stage *o = context;
    *score = NAN;
    if (o->validation_count == 0) return UPS_OK;
    ups_loader_options options =
        ups_validation_loader_options(o->config, &o->config->op.training, o->batch, o->validation_count);
    options.window = o->window[0];
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(&options, o->validation_tasks, o->validation_count, &loader, error));
    ups_loss_sums *sums = calloc(1, sizeof *sums);
    ups_status status = sums ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "operator: out of memory");
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        ups_step_run_options run = {.loss_scale = 1};
        variant *v = find_variant(o, batch->frames, o->masks[0]);
        status = run_batch(o, v, batch, o->validation_task, &run, error);
        if (status == UPS_OK) add_windows(o, batch, o->validation_task, sums);
        ups_loader_release(loader, batch);
    }
    double total = 0;
    for (int i = 0; status == UPS_OK && i < o->validation_count; i++) {
        int task = o->validation_task[i];
        double mean = sums->sum[task] / (double)sums->count[task];
        json_object_set_new(report, o->tasks->task[task].name, json_real(mean));
        total += mean / o->validation_count;
    }
    if (status == UPS_OK) *score = total;
    free(sums);
    ups_loader_close(loader);
    return status;
}

static ups_status open_latents(operator_stage *o, ups_error *error) {
    int count = o->tasks->count;
    for (int s = 0; s < 2; s++) o->sources[s] = calloc((size_t)count, sizeof(ups_source *));
    o->loader_tasks = calloc((size_t)count, sizeof *o->loader_tasks);
    o->validation_tasks = calloc((size_t)count, sizeof *o->validation_tasks);
    o->validation_task = calloc((size_t)count, sizeof *o->validation_task);
    if (!o->sources[0] || !o->sources[1] || !o->loader_tasks || !o->validation_tasks || !o->validation_task) {
        return ups_fail(error, UPS_ERR_MEMORY, "operator: no memory for its tables");
    }
    for (int t = 0; t < count; t++) {
        const ups_task *task = &o->tasks->task[t];
        UPS_TRY(ups_latents_open(o->config, task, UPS_SPLIT_TRAIN, &o->sources[0][t], error));
        ups_loader_task entry = {.name = task->name,
                                 .source = o->sources[0][t],
                                 .sample_count = o->sources[0][t]->count,
                                 .weight = task->config->weight,
                                 .window = o->window[t],
                                 .stride = task->config->stride};
        o->loader_tasks[t] = entry;
        if (task->sample_count[UPS_SPLIT_VALIDATION] == 0) continue;
        UPS_TRY(ups_latents_open(o->config, task, UPS_SPLIT_VALIDATION, &o->sources[1][t], error));
        entry.source = o->sources[1][t];
        entry.sample_count = o->sources[1][t]->count;
        if (entry.sample_count == 0) continue;
        o->validation_task[o->validation_count] = t;
        o->validation_tasks[o->validation_count++] = entry;
    }
    return UPS_OK;
}

static ups_status prepare(operator_stage *o, ups_training_state *state, const char *checkpoints, ups_error *error) {
    ups_device *device = o->request->device;
    bool bf16 = ups_run_compute(o->config) == UPS_BF16;
    size_t rows = (size_t)o->batch;
    o->dt = calloc(rows, sizeof *o->dt);
    o->condition = calloc(rows * (size_t)(o->options.parameter_count + 1), sizeof *o->condition);
    o->one_hot = calloc(rows * (size_t)(o->options.task_count + 1), sizeof *o->one_hot);
    o->windows = calloc(rows, sizeof *o->windows);
    o->scratch = calloc(rows, sizeof *o->scratch);
    if (!o->dt || !o->condition || !o->one_hot || !o->windows || !o->scratch) {
        return ups_fail(error, UPS_ERR_MEMORY, "operator: no memory for its inputs");
    }
    UPS_TRY(ups_parameters_allocate(o->parameters, device, true, bf16, o->config->seed, error));
    for (int i = 0; i < o->variant_count; i++) {
        UPS_TRY(ups_step_create(o->variants[i].graph, device, &o->variants[i].step, error));
    }
    UPS_TRY(ups_optimizer_create(&o->config->op.training.optimizer, device, o->parameters, &o->optimizer, error));
    if (o->request->resume && ups_checkpoint_exists(checkpoints)) {
        UPS_TRY(ups_checkpoint_load(checkpoints, state, o->parameters, o->optimizer, error));
    }
    return UPS_OK;
}

static ups_status find_origin(operator_stage *o, ups_error *error) {
    char hash[33];
    UPS_TRY(ups_run_autoencoder_hash(o->config, hash, error));
    o->origin = ups_origin_operator(o->config, o->tasks, hash);
    return o->origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static ups_status train(operator_stage *o, ups_error *error) {
    const ups_training_config *training = &o->config->op.training;
    UPS_TRY(find_origin(o, error));
    ups_training_state state = {.seed = o->config->seed, .score = NAN, .batch_size = o->batch, .origin = o->origin};
    char *checkpoints = ups_run_path(o->config, "checkpoints/operator");
    const char *names[UPS_SAMPLER_MAX_TASKS];
    for (int t = 0; t < o->tasks->count; t++) names[t] = o->tasks->task[t].name;
    ups_status status = checkpoints ? open_latents(o, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = prepare(o, &state, checkpoints, error);
    free(checkpoints);
    UPS_TRY(status);

    ups_loader_options options = ups_training_loader_options(o->config, training, o->batch, state.step);
    options.window = o->window[0];
    options.one_task_per_batch = !o->mixed;
    UPS_TRY(ups_loader_open(&options, o->loader_tasks, o->tasks->count, &o->loader, error));
    ups_log(UPS_LOG_INFO, "operator: %.2f M parameters, batch %lld × %lld, %lld steps%s",
            (double)ups_parameters_trainable(o->parameters) / 1e6, (long long)training->accumulation,
            (long long)o->batch, (long long)training->steps, state.step > 0 ? " (resumed)" : "");
    ups_loop_stage stage = {.name = "operator",
                            .context = o,
                            .micro_batch = micro_batch,
                            .validate = validate,
                            .losses_due = losses_due,
                            .describe_batch = describe_batch,
                            .loader = o->loader,
                            .graphs = 1};
    ups_loop_options loop = {.training = training,
                             .seed = o->config->seed,
                             .output = o->config->output,
                             .resume = &state,
                             .device = o->request->device,
                             .parameters = o->parameters,
                             .optimizer = o->optimizer,
                             .task_names = names,
                             .task_count = o->tasks->count};
    UPS_TRY(ups_loop_run(&loop, &stage, error));
    char *path = ups_run_model_path(o->config, UPS_STAGE_OPERATOR);
    status = path ? ups_model_export(path, o->parameters, o->optimizer, o->origin, error)
                  : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(path);
    return status;
}

ups_status ups_stage_operator_run(const ups_stage_request *request, ups_error *error) {
    ups_stage_plan plan;
    UPS_TRY(ups_stage_operator_plan(request, &plan, error));
    operator_stage o;
    ups_status status = begin(&o, request, plan.batch_size, error);
    if (status == UPS_OK) status = train(&o, error);
    release(&o);
    return status;
}
