#include "train/stages/training.h"
#include "model/differentiate.h"

#include "base/files.h"
#include "base/log.h"
#include "base/sizes.h"
#include "model/update_channel.h"
#include "train/data/batches.h"
#include "train/data/stores.h"
#include "train/data/task_sampling.h"
#include "train/loop.h"
#include "train/networks.h"
#include "train/precision.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tasks that have samples in a split, as the loader wants them. */
typedef struct split_tasks {
    ups_loader_task *entries;
    int *task_of; /* task of the i-th entry */
    int count;
} split_tasks;

typedef struct training {
    const ups_stage_description *stage;
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    int64_t batch;
    unsigned masks[UPS_MAX_LOSS_SETS]; /* of losses, in the order in which they first fall due */
    int mask_count;
    ups_parameters *parameters;
    ups_stage_graph *graphs;
    int graph_count;
    bool *trains;   /* (graph, UPS_UPDATE_MAX_SETS): the sets of parameters that a graph trains */
    bool undivided; /* all parameters are one set, though graphs train different ones */
    ups_optimizer *optimizer;
    split_tasks train, validation;
    ups_stores stores; /* of the samples of both */
    ups_feed *feed;
    ups_loader *loader;
    const ups_batch *batch_in_hand; /* whose upload may not have been read yet */
    ups_step *uploading;            /* the step it goes to; NULL: none */
    int32_t *window_tasks;          /* (batch): uploaded with it */
    ups_window *windows;            /* of the micro-batches of two steps, for messages */
    ups_update_channel *validated;  /* losses of a validation */
    ups_task_sampling *sampling;
    bool given;         /* the first weights are another run's */
    bool shares_unsaid; /* they changed since the log last told of them */
    json_t *origin;
    json_t *opening; /* the metrics' first line */
} training;

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

static ups_stage_graph *find_graph(const training *t, int64_t kind, unsigned losses) {
    for (int i = 0; i < t->graph_count; i++) {
        if (t->graphs[i].kind == kind && t->graphs[i].losses == losses) return &t->graphs[i];
    }
    return NULL;
}

static void build_graph(training *t, int task, int variant, int64_t kind, unsigned losses) {
    ups_stage_graph *made = &t->graphs[t->graph_count++];
    made->variant = variant;
    made->kind = kind;
    made->losses = losses;
    const bool exact = losses & t->stage->exact_losses;
    made->graph = exact ? ups_graph_create(t->parameters, UPS_F32) : ups_run_graph(t->config, t->parameters);
    made->graph->checkpointing = t->stage->training->checkpointing;
    t->stage->build(t->stage->context, task, t->batch, made);
    ups_objective_close(made->graph, &made->objective);
    made->tasks = ups_graph_input(made->graph, "window_tasks", UPS_I32, UPS_SHAPE(t->batch));
    ups_graph_differentiate(made->graph, made->objective.total);
}

static void free_split_tasks(split_tasks *list) {
    free(list->entries);
    free(list->task_of);
}

static void end(training *t) {
    ups_device *device = t->request->session->device;
    ups_error after;
    device->class->synchronize(device, &after); /* what was issued reads batches and tables */
    ups_loader_close(t->loader);
    ups_feed_close(t->feed);
    ups_stores_close(&t->stores);
    ups_optimizer_destroy(t->optimizer);
    for (int i = 0; i < t->graph_count; i++) {
        ups_step_destroy(t->graphs[i].step);
        ups_graph_destroy(t->graphs[i].graph);
    }
    free(t->graphs);
    free(t->trains);
    ups_parameters_destroy(t->parameters);
    free_split_tasks(&t->train);
    free_split_tasks(&t->validation);
    ups_update_close(t->validated);
    if (t->window_tasks) device->class->release_host(device, t->window_tasks);
    free(t->windows);
    ups_task_sampling_destroy(t->sampling);
    json_decref(t->origin);
    json_decref(t->opening);
}

static int count_variants(const training *t, int task) {
    return t->stage->variants ? t->stage->variants(t->stage->context, task) : 1;
}

/* The graphs, without memory to run in. */
static ups_status begin(training *t, const ups_stage_description *stage, const ups_stage_request *request,
                        int64_t batch, ups_error *error) {
    *t = (training){.stage = stage,
                    .request = request,
                    .config = request->session->config,
                    .tasks = request->session->tasks,
                    .batch = batch};
    if (t->config->data.split.train <= 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: data.split.train is %g: nothing is left to train on",
                        ups_stage_name(stage->stage), t->config->data.split.train);
    }
    UPS_TRY(ups_networks_check(t->config, t->tasks, error));
    int64_t steps = stage->training->steps;
    t->mask_count = ups_losses_masks(stage->training->losses, steps > 0 ? steps : 1, t->masks);
    t->parameters = ups_parameters_create();
    int variants = 0;
    for (int task = 0; task < t->tasks->count; task++) variants += count_variants(t, task);
    t->graphs = calloc((size_t)(variants * t->mask_count), sizeof *t->graphs);
    if (!t->parameters || !t->graphs) {
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its graphs", ups_stage_name(stage->stage));
    }
    for (int task = 0; task < t->tasks->count; task++) {
        for (int v = 0; v < count_variants(t, task); v++) {
            int64_t kind = stage->kind(stage->context, task, v);
            for (int m = 0; m < t->mask_count; m++) {
                if (!find_graph(t, kind, t->masks[m])) build_graph(t, task, v, kind, t->masks[m]);
            }
        }
    }
    return UPS_OK;
}

static const ups_graph **list_graphs(const training *t) {
    const ups_graph **list = calloc((size_t)t->graph_count + 1, sizeof *list);
    for (int i = 0; list && i < t->graph_count; i++) list[i] = t->graphs[i].graph;
    return list;
}

/* Marks the parameters that a graph has gradients for, each in its row of as many as there are graphs. */
static void mark_trained(const training *t, int graph, bool *trains) {
    const ups_graph *of = t->graphs[graph].graph;
    for (ups_value v = 0; v < of->value_count; v++) {
        const ups_value_info *value = &of->values[v];
        if (value->kind == UPS_VALUE_PARAMETER && value->needs_gradient)
            trains[(int64_t)value->parameter * t->graph_count + graph] = true;
    }
}

/* Parameters that the same graphs train become a set. More sets than an update has place for: one set, which every step
 * trains. */
static ups_status divide_parameters(training *t, ups_error *error) {
    const int32_t count = ups_parameters_count(t->parameters);
    const size_t row = (size_t)t->graph_count;
    bool *trains = calloc((size_t)count * row + 1, sizeof *trains);
    int32_t *set_of = calloc((size_t)count + 1, sizeof *set_of);
    t->trains = calloc(row * UPS_UPDATE_MAX_SETS + 1, sizeof *t->trains);
    ups_status status = UPS_OK;
    if (!trains || !set_of || !t->trains)
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its tables", ups_stage_name(t->stage->stage));
    for (int graph = 0; graph < t->graph_count && status == UPS_OK; graph++) mark_trained(t, graph, trains);
    int32_t first[UPS_UPDATE_MAX_SETS], sets = 0;
    for (int32_t p = 0; p < count && status == UPS_OK; p++) {
        int32_t set = 0;
        while (set < sets && memcmp(trains + (size_t)first[set] * row, trains + (size_t)p * row, row) != 0) set++;
        if (set == UPS_UPDATE_MAX_SETS) {
            memset(set_of, 0, (size_t)count * sizeof *set_of);
            sets = 0;
            break;
        }
        if (set == sets) first[sets++] = p;
        set_of[p] = set;
    }
    for (int graph = 0; graph < t->graph_count && status == UPS_OK; graph++) {
        for (int32_t set = 0; set < sets; set++)
            t->trains[graph * UPS_UPDATE_MAX_SETS + set] = trains[(size_t)first[set] * row + (size_t)graph];
        if (sets == 0) t->trains[graph * UPS_UPDATE_MAX_SETS] = true;
    }
    t->undivided = sets == 0;
    if (status == UPS_OK) ups_parameters_divide(t->parameters, set_of);
    free(trains);
    free(set_of);
    return status;
}

/* ---- planning -------------------------------------------------------------------------------------------------- */

/* What loading the task's windows takes; without samples, nothing. */
static bool find_load(const training *t, int task, ups_split split, bool kept, ups_loader_load *load) {
    if (t->tasks->task[task].splits.count[split] == 0) return false;
    *load = t->stage->load(t->stage->context, task, split);
    load->kept = kept || load->limits.keep_decoded;
    return true;
}

static bool draws_on_device(const training *t) {
    return t->config->data.residency == UPS_DATA_DEVICE && ups_feed_can_keep_on(t->request->session->device);
}

/* Of a training that goes on from `step`. */
static ups_loader_options training_loader(const training *t, int64_t step) {
    ups_loader_options options =
        ups_training_loader_options(t->config, t->stage->training, t->batch, t->stage->batches, step);
    options.in_place = draws_on_device(t);
    return options;
}

static ups_loader_options validation_loader(const training *t, int tasks) {
    ups_loader_options options =
        ups_validation_loader_options(t->config, t->stage->training, t->batch, t->stage->batches, tasks);
    options.in_place = draws_on_device(t);
    return options;
}

/* What the loader of training takes, and that of validation. */
static void plan_loaders(const training *t, bool kept, ups_stage_plan *plan) {
    ups_loader_load loads[UPS_SAMPLER_MAX_TASKS], validated[UPS_SAMPLER_MAX_TASKS];
    int count = 0, validated_count = 0;
    for (int task = 0; task < t->tasks->count; task++) {
        count += find_load(t, task, UPS_SPLIT_TRAIN, kept, &loads[count]);
        validated_count += find_load(t, task, UPS_SPLIT_VALIDATION, kept, &validated[validated_count]);
    }
    ups_loader_options options = training_loader(t, 0);
    plan->loader = ups_loader_measure(&options, loads, count).total;
    if (validated_count == 0) return;
    options = validation_loader(t, validated_count);
    plan->validation = ups_loader_measure(&options, validated, validated_count).total;
}

static void add_places(uint64_t *bytes, uint64_t samples, uint64_t each) {
    *bytes = ups_size_sum(*bytes, ups_size_product(samples, ups_size_sum(each, UPS_STORE_ALIGNMENT)));
}

/* What the samples that stay in memory take, judged by the bounds known before there are any; and what encodes those
 * that are encoded on the fly. */
static ups_status plan_residency(const training *t, ups_stage_plan *plan, ups_error *error) {
    static const ups_split splits[] = {UPS_SPLIT_TRAIN, UPS_SPLIT_VALIDATION};
    ups_residency_need needs[2] = {{0}, {0}}; /* read, encoded */
    for (int task = 0; task < t->tasks->count; task++) {
        for (int s = 0; s < 2; s++) {
            uint64_t samples = (uint64_t)t->tasks->task[task].splits.count[splits[s]];
            if (samples == 0) continue;
            ups_loader_load load = t->stage->load(t->stage->context, task, splits[s]);
            bool encoded = load.limits.keep_decoded;
            uint64_t values = load.limits.decoded_bytes / ups_dtype_size(load.dtype);
            add_places(&needs[encoded].decoded, samples, ups_size_product(values, ups_dtype_size(t->stage->batches)));
            add_places(&needs[encoded].stored, samples, load.limits.stored_bytes);
            plan->encodes = plan->encodes || encoded;
        }
    }
    ups_residency_choice choice = ups_residency_decide(t->config, needs[0], needs[1]);
    plan->residency = choice.residency;
    plan->resident = choice.read + choice.encoded;
    return plan->encodes ? t->stage->measure_encoders(t->stage->context, &plan->encoders, error) : UPS_OK;
}

/* Frames of a batch, and their elements, at most; 0 where batches go to the device as the loader has them. */
static void find_largest_batch(const training *t, int64_t *rows, int64_t *elements) {
    *rows = *elements = 0;
    for (int task = 0; task < t->tasks->count; task++) {
        if (!draws_on_device(t) && count_variants(t, task) == 1) continue;
        const ups_loader_load load = t->stage->load(t->stage->context, task, UPS_SPLIT_TRAIN);
        const int64_t frames = t->batch * load.frames;
        if (frames > *rows) *rows = frames;
        if (frames * load.frame_elements > *elements) *elements = frames * load.frame_elements;
    }
}

/* Of the samples that stay in memory, what stays in the device's memory too: as much as fits beside all else that is
 * there, but not more than half of what may be used. */
static ups_status plan_on_device(const training *t, ups_stage_plan *plan, ups_error *error) {
    int64_t rows, elements; /* of windows that are sent, and the list of all */
    find_largest_batch(t, &rows, &elements);
    plan->inputs += (size_t)elements * ups_dtype_size(t->stage->batches) + (size_t)rows * sizeof(void *);
    const double others = (double)ups_size_sum(
        ups_size_sum(plan->parameters, plan->optimizer - plan->offloaded),
        ups_size_sum(ups_size_sum(plan->activations, plan->inputs), ups_size_sum(plan->workspace, plan->encoders)));
    double budget;
    UPS_TRY(ups_stage_device_budget(t->request->session, t->stage->training, &budget, error));
    plan->wanted_on_device = (double)plan->resident < budget / 2 ? plan->resident : (size_t)(budget / 2);
    const double left = budget > others ? budget - others : 0;
    plan->resident_on_device = (double)plan->wanted_on_device < left ? plan->wanted_on_device : (size_t)left;
    return UPS_OK;
}

typedef struct plan_request {
    const ups_stage_description *stage;
    const ups_stage_request *request;
} plan_request;

/* What the graphs take, for a training `t` that the caller ends. */
static ups_status measure_graphs(training *t, const ups_stage_description *stage, const ups_stage_request *request,
                                 int64_t batch, ups_plan_memory *memory, ups_error *error) {
    UPS_TRY(begin(t, stage, request, batch, error));
    const ups_graph **graphs = list_graphs(t);
    ups_status status = graphs
                            ? ups_step_measure_together(graphs, t->graph_count, request->session->device, memory, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(graphs);
    return status;
}

/* What activations would take if none was computed again. */
static ups_status measure_without_checkpointing(const plan_request *wanted, int64_t batch, size_t *activations,
                                                ups_error *error) {
    ups_stage_description stage = *wanted->stage;
    ups_training_config training_config = *stage.training;
    training_config.checkpointing = UPS_CHECKPOINTING_NONE;
    stage.training = &training_config;
    training t;
    ups_plan_memory memory = {0};
    ups_status status = measure_graphs(&t, &stage, wanted->request, batch, &memory, error);
    *activations = memory.activations;
    end(&t);
    return status;
}

static ups_status measure(void *context, int64_t batch, ups_stage_plan *plan, ups_error *error) {
    const plan_request *wanted = context;
    training t;
    *plan = (ups_stage_plan){.batch_size = batch};
    ups_plan_memory memory;
    ups_status status = measure_graphs(&t, wanted->stage, wanted->request, batch, &memory, error);
    if (status == UPS_OK) {
        plan->activations = plan->activations_without_checkpointing = memory.activations;
        plan->inputs = memory.inputs;
        plan->workspace = memory.workspace;
        plan->parameters = memory.parameters;
        plan->trainable = ups_parameters_trainable(t.parameters);
        ups_optimizer_memory optimizer = {0};
        status = ups_optimizer_measure(&wanted->stage->training->optimizer, wanted->request->session->device,
                                       t.parameters, ups_run_compute(t.config), &optimizer, error);
        plan->optimizer = optimizer.all;
        plan->offloaded = optimizer.offloaded;
        if (status == UPS_OK) status = plan_residency(&t, plan, error);
        if (status == UPS_OK && wanted->stage->training->checkpointing != UPS_CHECKPOINTING_NONE)
            status = measure_without_checkpointing(wanted, batch, &plan->activations_without_checkpointing, error);
        plan_loaders(&t, plan->residency != UPS_RESIDENCY_STREAM, plan);
        if (status == UPS_OK && draws_on_device(&t)) status = plan_on_device(&t, plan, error);
        const size_t parts[] = {
            plan->parameters, plan->optimizer,  plan->activations, plan->inputs,   plan->workspace,
            plan->loader,     plan->validation, plan->resident,    plan->encoders, plan->resident_on_device};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) plan->total = ups_size_sum(plan->total, parts[i]);
        if (wanted->request->session->device->class->memory)
            plan->on_device = plan->total - ups_size_sum(ups_size_sum(plan->loader, plan->validation),
                                                         ups_size_sum(plan->resident, plan->offloaded));
    }
    end(&t);
    return status;
}

ups_status ups_stage_training_plan(const ups_stage_description *stage, const ups_stage_request *request,
                                   ups_stage_plan *plan, ups_error *error) {
    plan_request wanted = {stage, request};
    return ups_stage_choose_batch(request, stage->stage, measure, &wanted, plan, error);
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

/* Until what was uploaded is the host's again. */
static ups_status finish_upload(training *t, ups_error *error) {
    if (t->uploading) UPS_TRY(ups_step_wait_uploaded(t->uploading, error));
    t->uploading = NULL;
    if (t->batch_in_hand) ups_loader_release(t->loader, t->batch_in_hand);
    t->batch_in_hand = NULL;
    return UPS_OK;
}

/* The graph that takes a batch; `drawn`: of the variant that is drawn for training. */
static ups_stage_graph *graph_for(const training *t, const ups_batch *batch, const int *task_of, unsigned losses,
                                  const ups_stage_draw *draw, bool drawn) {
    const int first = task_of[batch->window[0].task];
    const bool varies = drawn && t->stage->draw_variant;
    const int variant = varies ? t->stage->draw_variant(t->stage->context, first, draw) : 0;
    return find_graph(t, t->stage->kind(t->stage->context, first, variant), losses);
}

/* Issues a batch: its upload, the run, its losses. */
static ups_status run_batch(training *t, ups_stage_graph *graph, const ups_batch *batch, const split_tasks *split,
                            const ups_stage_draw *draw, const ups_step_run_options *options, ups_update *update,
                            ups_error *error) {
    const int *task_of = split->task_of;
    for (int64_t b = 0; b < t->batch; b++) t->window_tasks[b] = (int32_t)task_of[batch->window[b].task];
    t->uploading = graph->step;
    ups_feed_take(t->feed, batch, split->entries);
    ups_device_range_begin(t->request->session->device, "batch");
    ups_status status = t->stage->upload(t->stage->context, graph, batch, t->feed, task_of, draw, error);
    ups_device_range_end(t->request->session->device);
    UPS_TRY(status);
    UPS_TRY(
        ups_step_upload(graph->step, graph->tasks, t->window_tasks, (size_t)t->batch * sizeof *t->window_tasks, error));
    UPS_TRY(ups_step_run(graph->step, options, error));
    return ups_objective_add_losses(&graph->objective, graph->step, t->request->session->device, t->batch, graph->tasks,
                                    update, error);
}

static void *allocate_slot(void *context, size_t bytes) {
    ups_device *device = context;
    ups_error error;
    void *memory = NULL;
    return device->class->allocate_host(device, bytes, &memory, &error) == UPS_OK ? memory : NULL;
}

static void release_slot(void *context, void *memory) {
    ups_device *device = context;
    device->class->release_host(device, memory);
}

/* Batches lie in host memory of the device's own. */
static void use_host_memory(const training *t, ups_loader_options *options) {
    options->allocate = allocate_slot;
    options->release = release_slot;
    options->allocator_context = t->request->session->device;
}

/* The loader's next batch; NULL at its end. */
static ups_status next_batch(const training *t, ups_loader *loader, const ups_batch **batch, ups_error *error) {
    ups_status status = ups_loader_next(loader, batch, error);
    if (status == UPS_ERR_CHECKSUM && t->stage->on_damage) ups_fail_within(error, "%s", t->stage->on_damage);
    return status;
}

static unsigned losses_due(const training *t, int64_t step) {
    return ups_losses_due(t->stage->training->losses, step);
}

/* Which of the sets that occur a step takes. */
static int loss_set_due(void *context, int64_t step) {
    const training *t = context;
    int set = 0;
    while (set < t->mask_count - 1 && t->masks[set] != losses_due(t, step)) set++;
    return set;
}

/* Windows of a micro-batch, kept for messages until two steps later. */
static ups_window *windows_of(const training *t, int64_t step, int64_t index) {
    return t->windows + ((step % 2) * t->stage->training->accumulation + index) * t->batch;
}

static ups_status micro_batch(void *context, const ups_micro_batch *micro, ups_error *error) {
    training *t = context;
    UPS_TRY(finish_upload(t, error));
    UPS_TRY(next_batch(t, t->loader, &t->batch_in_hand, error));
    const ups_batch *batch = t->batch_in_hand;
    if (!batch) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: the loader ended early", ups_stage_name(t->stage->stage));
    }
    memcpy(windows_of(t, micro->step, micro->index), batch->window, (size_t)t->batch * sizeof *t->windows);
    const ups_training_config *config = t->stage->training;
    ups_stage_draw draw = {t->config->seed, micro->step * config->accumulation + micro->index,
                           (double)micro->step / (double)config->steps};
    ups_step_run_options options = {
        .training = true, .backward = true, .accumulate = micro->accumulate, .update = micro->update};
    ups_stage_graph *graph = graph_for(t, batch, t->train.task_of, losses_due(t, micro->step), &draw, true);
    const bool *trains = t->trains + (graph - t->graphs) * UPS_UPDATE_MAX_SETS;
    for (int32_t set = 0; set < ups_parameters_sets(t->parameters); set++) micro->trained[set] |= trains[set];
    return run_batch(t, graph, batch, &t->train, &draw, &options, micro->update, error);
}

static void describe_batch(void *context, int64_t step, int64_t index, char *text, size_t bytes) {
    const training *t = context;
    ups_windows_describe(windows_of(t, step, index), t->batch, t->train.entries, text, bytes);
}

static ups_status validate_batches(training *t, ups_loader *loader, ups_error *error) {
    ups_update *update = ups_update_memory(t->validated);
    for (;;) {
        const ups_batch *batch = NULL;
        UPS_TRY(next_batch(t, loader, &batch, error));
        if (!batch) return UPS_OK;
        ups_stage_draw draw = {0, batch->index, 1};
        ups_step_run_options run = {0};
        ups_stage_graph *graph = graph_for(t, batch, t->validation.task_of, t->masks[0], &draw, false);
        UPS_TRY(run_batch(t, graph, batch, &t->validation, &draw, &run, update, error));
        UPS_TRY(finish_upload(t, error));
        ups_loader_release(loader, batch);
    }
}

/* The objective of the first step's losses, on fixed windows of the validation split. */
static ups_status validate(void *context, ups_loss_sums *sums, ups_error *error) {
    training *t = context;
    ups_device *device = t->request->session->device;
    if (t->validation.count == 0) return UPS_OK;
    ups_loader_options options = validation_loader(t, t->validation.count);
    use_host_memory(t, &options);
    ups_loader *loader = NULL;
    ups_update all;
    UPS_TRY(finish_upload(t, error));
    UPS_TRY(ups_update_give(t->validated, &(ups_update_input){0}, error)); /* the first: results are cleared */
    UPS_TRY(ups_loader_open(&options, t->validation.entries, t->validation.count, &loader, error));
    ups_status status = validate_batches(t, loader, error);
    ups_error after;
    if (status != UPS_OK) device->class->synchronize(device, &after); /* the loader's batches may be read still */
    ups_loader_close(loader);
    UPS_TRY(status);
    UPS_TRY(ups_update_take(t->validated, error));
    UPS_TRY(ups_update_read(t->validated, &all, error));
    for (int task = 0; task < t->tasks->count; task++) {
        sums->sum[task] += all.result.loss[task];
        sums->count[task] += all.result.windows[task];
        sums->windows += all.result.windows[task];
    }
    return UPS_OK;
}

/* ---- sampling -------------------------------------------------------------------------------------------------- */

static ups_status begin_sampling(training *t, ups_error *error) {
    ups_sampled_task tasks[UPS_SAMPLER_MAX_TASKS];
    for (int k = 0; k < t->train.count; k++) {
        const ups_loader_task *entry = &t->train.entries[k];
        tasks[k].config = t->tasks->task[t->train.task_of[k]].config;
        tasks[k].samples = entry->samples ? entry->sample_count : entry->source->count;
    }
    int64_t draws = t->batch / t->stage->training->pairs_per_trajectory;
    return ups_task_sampling_create(t->config, t->stage->training, draws, tasks, t->train.count, &t->sampling, error);
}

static ups_status advance(void *context, int64_t step, const ups_loss_sums *validation, json_t *report,
                          ups_error *error) {
    training *t = context;
    double losses[UPS_SAMPLER_MAX_TASKS];
    for (int k = 0; k < t->train.count && validation; k++) {
        int task = t->train.task_of[k];
        losses[k] = validation->count[task] > 0 ? validation->sum[task] / (double)validation->count[task] : (double)NAN;
    }
    const ups_sampler_phase *phase = NULL;
    UPS_TRY(ups_task_sampling_advance(t->sampling, step, validation ? losses : NULL, &phase, error));
    json_t *sampling = report ? ups_task_sampling_report(t->sampling) : NULL;
    if (json_is_object(sampling)) json_object_set(report, "sampling", sampling);
    json_decref(sampling);
    t->shares_unsaid = t->shares_unsaid || phase;
    if (report && t->shares_unsaid) {
        char text[400];
        ups_task_sampling_describe(t->sampling, text, sizeof text);
        ups_log(UPS_LOG_INFO, "%s, step %lld: tasks are drawn %s", ups_stage_name(t->stage->stage), (long long)step,
                text);
        t->shares_unsaid = false;
    }
    if (!phase) return UPS_OK;
    return ups_loader_add_phase(t->loader, phase, step * t->stage->training->accumulation, error);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static ups_status list_samples(training *t, ups_split split, split_tasks *list, ups_error *error) {
    size_t count = (size_t)t->tasks->count;
    list->entries = calloc(count, sizeof *list->entries);
    list->task_of = calloc(count, sizeof *list->task_of);
    if (!list->entries || !list->task_of) {
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its tables", ups_stage_name(t->stage->stage));
    }
    for (int task = 0; task < t->tasks->count; task++) {
        const ups_task *of = &t->tasks->task[task];
        ups_loader_task entry = {.name = of->name, .weight = of->config->weight};
        if (of->splits.count[split] == 0) continue;
        UPS_TRY(t->stage->find_samples(t->stage->context, task, split, &entry, error));
        if (entry.sample_count == 0 && split != UPS_SPLIT_TRAIN) continue;
        list->task_of[list->count] = task;
        list->entries[list->count++] = entry;
    }
    return UPS_OK;
}

/* Of a run that was forked: the weights of the one that it came from, in the place of random ones. */
static ups_status begin_with_given_weights(training *t, ups_error *error) {
    char *path = ups_run_initial_weights(t->config, t->stage->stage);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    if (ups_path_exists(path)) {
        ups_parameter_buffer weights = {.prefix = "", .values = ups_parameters_values(t->parameters)};
        status = ups_parameters_load_buffers(t->parameters, NULL, &weights, 1, path, false, error);
        if (status != UPS_OK) {
            ups_fail_within(error,
                            "the %s was to begin with weights that do not fit this configuration (a run of its "
                            "own, without --fork, begins with random ones)",
                            ups_stage_name(t->stage->stage));
        } else {
            t->given = true;
        }
    }
    free(path);
    return status;
}

static bool has_checkpoint(const training *t) {
    char *checkpoints = ups_run_path(t->config, "checkpoints/%s", ups_stage_name(t->stage->stage));
    bool has = t->request->resume && checkpoints && ups_checkpoint_exists(checkpoints);
    free(checkpoints);
    return has;
}

static ups_status allocate(training *t, ups_error *error) {
    ups_device *device = t->request->session->device;
    UPS_TRY(divide_parameters(t, error));
    UPS_TRY(ups_parameters_allocate(t->parameters, device, true, ups_run_compute(t->config), t->config->seed, error));
    UPS_TRY(begin_with_given_weights(t, error));
    if (t->stage->initialise && !t->given && !has_checkpoint(t)) {
        UPS_TRY(t->stage->initialise(t->stage->context, t->parameters, error));
        UPS_TRY(ups_parameters_refresh(t->parameters, error));
    }
    size_t rows = (size_t)t->batch;
    t->windows = calloc(2 * (size_t)t->stage->training->accumulation * rows, sizeof *t->windows);
    UPS_TRY(device->class->allocate_host(device, rows * sizeof *t->window_tasks, (void **)&t->window_tasks, error));
    UPS_TRY(ups_update_open(device, &t->validated, error));
    const ups_graph **graphs = list_graphs(t);
    ups_step **steps = calloc((size_t)t->graph_count + 1, sizeof *steps);
    ups_status status = t->windows && graphs && steps
                            ? ups_step_create_together(graphs, t->graph_count, device, steps, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int i = 0; i < t->graph_count && status == UPS_OK; i++) t->graphs[i].step = steps[i];
    free(steps);
    free(graphs);
    UPS_TRY(status);
    return ups_optimizer_create(&t->stage->training->optimizer, device, t->parameters, &t->optimizer, error);
}

/* The frames of any batch. */
static ups_status open_feed(training *t, const ups_stores_list *lists, uint64_t on_device, ups_error *error) {
    ups_feed_options options = {.device = t->request->session->device,
                                .lists = lists,
                                .list_count = 2,
                                .dtype = t->stage->batches,
                                .draws = draws_on_device(t),
                                .device_bytes = on_device};
    find_largest_batch(t, &options.rows, &options.elements);
    UPS_TRY(ups_feed_open(&options, &t->feed, error));
    const double room = (double)ups_feed_look(t->feed).room / (double)(1 << 30);
    if (options.draws)
        ups_log(UPS_LOG_INFO,
                "%s: windows are drawn on the device, of samples that stay there once read, in up to %.2f GiB",
                ups_stage_name(t->stage->stage), room);
    return UPS_OK;
}

static ups_status go_on(training *t, ups_training_state *state, ups_error *error) {
    if (!t->request->resume) return UPS_OK;
    char *checkpoints = ups_run_path(t->config, "checkpoints/%s", ups_stage_name(t->stage->stage));
    if (!checkpoints) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    if (ups_checkpoint_exists(checkpoints)) {
        status = ups_checkpoint_load(checkpoints, state, t->parameters, t->optimizer, error);
    }
    free(checkpoints);
    return status;
}

static ups_status open_loader(training *t, int64_t step, ups_error *error) {
    ups_loader_options options = training_loader(t, step);
    use_host_memory(t, &options);
    options.one_task_per_batch = t->stage->one_task_per_batch;
    options.phases = ups_task_sampling_phases(t->sampling, &options.phase_count);
    return ups_loader_open(&options, t->train.entries, t->train.count, &t->loader, error);
}

static ups_status export_model(const training *t, ups_error *error) {
    char *path = ups_run_model_path(t->config, t->stage->stage);
    ups_status status = path ? ups_model_export(path, t->parameters, t->optimizer, t->origin, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(path);
    return status;
}

/* {"stage": …, "step": 0, "precision": …, "parameters": …, "batch_size": …} */
static json_t *describe_run(const training *t, const ups_training_state *state) {
    return json_pack("{s:s, s:i, s:s, s:I, s:I}", "stage", ups_stage_name(t->stage->stage), "step", 0, "precision",
                     ups_precision_name(state->precision), "parameters",
                     (json_int_t)ups_parameters_trainable(t->parameters), "batch_size", (json_int_t)t->batch);
}

static ups_status train(training *t, uint64_t on_device, ups_error *error) {
    const ups_training_config *config = t->stage->training;
    const char *name = ups_stage_name(t->stage->stage);
    UPS_TRY(t->stage->find_origin(t->stage->context, &t->origin, error));
    UPS_TRY(t->stage->prepare(t->stage->context, t->batch, error));
    UPS_TRY(list_samples(t, UPS_SPLIT_TRAIN, &t->train, error));
    UPS_TRY(list_samples(t, UPS_SPLIT_VALIDATION, &t->validation, error));
    ups_stores_list lists[] = {{t->train.entries, t->train.count}, {t->validation.entries, t->validation.count}};
    UPS_TRY(ups_stores_open(t->config, name, lists, 2, t->stage->batches, &t->stores, error));
    UPS_TRY(begin_sampling(t, error));
    UPS_TRY(allocate(t, error));
    UPS_TRY(open_feed(t, lists, on_device, error));
    const char *names[UPS_SAMPLER_MAX_TASKS];
    for (int task = 0; task < t->tasks->count; task++) names[task] = t->tasks->task[task].name;
    ups_training_state state = {
        .interval = {.tasks = t->tasks->count, .task_names = names, .loss_names = ups_run_loss_names(t->stage->stage)},
        .seed = t->config->seed,
        .score = NAN,
        .keep = t->config->checkpoint.keep,
        .batch_size = t->batch,
        .precision = ups_precision_resolve(t->config->precision, t->config->device.name),
        .origin = t->origin,
        .sampling = t->sampling};

    t->opening = describe_run(t, &state);
    UPS_TRY(go_on(t, &state, error));

    UPS_TRY(open_loader(t, state.step, error));
    ups_log(UPS_LOG_INFO, "%s: %.2f M parameters, batch %lld × %lld, %lld steps%s", name,
            (double)ups_parameters_trainable(t->parameters) / 1e6, (long long)config->accumulation, (long long)t->batch,
            (long long)config->steps,
            state.step > 0 ? " (resumed)"
            : t->given     ? ", from given weights"
                           : "");
    ups_loop_stage stage = {.name = name,
                            .context = t,
                            .micro_batch = micro_batch,
                            .validate = validate,
                            .advance = advance,
                            .losses_due = loss_set_due,
                            .describe_batch = describe_batch,
                            .loader = t->loader,
                            .residency = t->stores.residency,
                            .zero_gradients = t->graph_count > 1 && (config->accumulation > 1 || t->undivided)};
    ups_loop_options loop = {.training = config,
                             .seed = t->config->seed,
                             .output = t->config->output,
                             .resume = &state,
                             .opening = t->opening,
                             .device = t->request->session->device,
                             .parameters = t->parameters,
                             .optimizer = t->optimizer,
                             .task_names = names,
                             .task_count = t->tasks->count,
                             .loss_names = ups_run_loss_names(t->stage->stage)};
    UPS_TRY(ups_loop_run(&loop, &stage, error));
    const ups_feed_facts fed = ups_feed_look(t->feed);
    if (draws_on_device(t))
        ups_log(UPS_LOG_INFO, "%s: %lld of %lld windows were drawn on the device, where %lld samples stay", name,
                (long long)fed.drawn, (long long)(fed.drawn + fed.sent), (long long)fed.trajectories);
    return export_model(t, error);
}

ups_status ups_stage_training_run(const ups_stage_description *stage, const ups_stage_request *request,
                                  ups_error *error) {
    ups_stage_plan plan;
    UPS_TRY(ups_stage_training_plan(stage, request, &plan, error));
    UPS_TRY(ups_stage_check_memory(request->session, stage->stage, &plan, error));
    training t;
    ups_status status = begin(&t, stage, request, plan.batch_size, error);
    if (status == UPS_OK) status = train(&t, plan.resident_on_device, error);
    end(&t);
    return status;
}
