/* Batches of a stage's training, from the loader into a graph: of a step, and of a validation. */
#include "train/data/batches.h"
#include "train/data/loader_memory.h"
#include "train/stages/training/parts.h"

#include <string.h>

/* Until what was uploaded is the host's again. */
static ups_status finish_upload(ups_stage_training *t, ups_error *error) {
    if (t->uploading) UPS_TRY(ups_step_wait_uploaded(t->uploading, error));
    t->uploading = NULL;
    if (t->batch_in_hand) ups_loader_release(t->loader, t->batch_in_hand);
    t->batch_in_hand = NULL;
    return UPS_OK;
}

/* The graph that takes a batch; `drawn`: of the variant that is drawn for training. */
static ups_stage_graph *graph_for(const ups_stage_training *t, const ups_batch *batch, const int *task_of,
                                  unsigned losses, const ups_stage_draw *draw, bool drawn) {
    const int first = task_of[batch->window[0].task];
    const bool varies = drawn && t->stage->draw_variant;
    const int variant = varies ? t->stage->draw_variant(t->stage->context, first, draw) : 0;
    return ups_stage_training_find_graph(t, t->stage->kind(t->stage->context, first, variant), losses);
}

/* By how much losses that warm up count, once a window. */
static ups_status upload_ramps(ups_stage_training *t, ups_stage_graph *graph, int64_t step, ups_error *error) {
    for (int i = 0; i < UPS_MAX_LOSSES && t->ramps; i++) {
        if (graph->ramp[i] == UPS_NO_VALUE) continue;
        float *values = t->ramps + i * t->batch;
        const float ramp = ups_losses_ramp(&t->stage->training->losses[i], step);
        for (int64_t b = 0; b < t->batch; b++) values[b] = ramp;
        UPS_TRY(ups_step_upload(graph->step, graph->ramp[i], values, (size_t)t->batch * sizeof *values, error));
    }
    return UPS_OK;
}

/* Issues a batch: its upload, the run, its losses. */
static ups_status run_batch(ups_stage_training *t, ups_stage_graph *graph, const ups_batch *batch,
                            const ups_stage_samples *split, const ups_stage_draw *draw,
                            const ups_step_run_options *options, ups_update *update, ups_error *error) {
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
    UPS_TRY(upload_ramps(t, graph, draw->step, error));
    UPS_TRY(ups_step_run(graph->step, options, error));
    return ups_objective_add_losses(&graph->objective, graph->step, t->request->session->device, t->batch, graph->tasks,
                                    update, error);
}

/* The loader's next batch; NULL at its end. */
static ups_status next_batch(const ups_stage_training *t, ups_loader *loader, const ups_batch **batch,
                             ups_error *error) {
    ups_status status = ups_loader_next(loader, batch, error);
    if (status == UPS_ERR_CHECKSUM && t->stage->on_damage) ups_fail_within(error, "%s", t->stage->on_damage);
    return status;
}

int ups_stage_training_loss_set_due(void *context, int64_t step) {
    const ups_stage_training *t = context;
    int set = 0;
    while (set < t->mask_count - 1 && t->masks[set] != ups_stage_training_losses_due(t, step)) set++;
    return set;
}

/* Windows of a micro-batch, kept for messages until two steps later. */
static ups_window *windows_of(const ups_stage_training *t, int64_t step, int64_t index) {
    return t->windows + ((step % 2) * t->stage->training->accumulation + index) * t->batch;
}

ups_status ups_stage_training_micro_batch(void *context, const ups_micro_batch *micro, ups_error *error) {
    ups_stage_training *t = context;
    UPS_TRY(finish_upload(t, error));
    UPS_TRY(next_batch(t, t->loader, &t->batch_in_hand, error));
    const ups_batch *batch = t->batch_in_hand;
    if (!batch) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: the loader ended early", ups_stage_name(t->stage->stage));
    }
    memcpy(windows_of(t, micro->step, micro->index), batch->window, (size_t)t->batch * sizeof *t->windows);
    const ups_training_config *config = t->stage->training;
    ups_stage_draw draw = {.seed = t->config->seed,
                           .step = micro->step,
                           .item = micro->step * config->accumulation + micro->index,
                           .progress = (double)micro->step / (double)config->steps};
    ups_step_run_options options = {.training = true,
                                    .backward = true,
                                    .accumulate = micro->accumulate,
                                    .update = micro->update,
                                    .watch = micro->watch};
    const unsigned losses = ups_stage_training_losses_due(t, micro->step);
    ups_stage_graph *graph = graph_for(t, batch, t->train.task_of, losses, &draw, true);
    const bool *trains = t->trains + (graph - t->graphs) * UPS_UPDATE_MAX_SETS;
    for (int32_t set = 0; set < ups_parameters_sets(t->parameters); set++) micro->trained[set] |= trains[set];
    micro->arithmetic->flops += graph->arithmetic.flops;
    micro->arithmetic->at_peak += graph->arithmetic.at_peak;
    return run_batch(t, graph, batch, &t->train, &draw, &options, micro->update, error);
}

void ups_stage_training_describe_batch(void *context, int64_t step, int64_t index, char *text, size_t bytes) {
    const ups_stage_training *t = context;
    ups_windows_describe(windows_of(t, step, index), t->batch, t->train.entries, text, bytes);
}

/* Losses of a batch of a validation, by task. */
typedef struct validated {
    double sum[UPS_SAMPLER_MAX_TASKS];
    int64_t count[UPS_SAMPLER_MAX_TASKS];
} validated;

static ups_status validate_batch(ups_stage_training *t, const ups_batch *batch, int64_t index, ups_error *error) {
    ups_stage_draw draw = {.step = INT64_MAX - 1, .item = index, .progress = 1};
    ups_step_run_options run = {0};
    ups_stage_graph *graph = graph_for(t, batch, t->validation.task_of, t->validated_losses, &draw, false);
    UPS_TRY(run_batch(t, graph, batch, &t->validation, &draw, &run, ups_update_memory(t->validated), error));
    return finish_upload(t, error);
}

/* What was added to the update since the last time. */
static ups_status take_losses(ups_stage_training *t, validated *losses, ups_error *error) {
    ups_update all;
    UPS_TRY(ups_update_take(t->validated, error));
    UPS_TRY(ups_update_read(t->validated, &all, error));
    memcpy(losses->sum, all.result.loss, sizeof losses->sum);
    memcpy(losses->count, all.result.windows, sizeof losses->count);
    return ups_update_give(t->validated, &(ups_update_input){0}, error); /* clears them */
}

/* Every batch of this process: `of_batch` (as many) gets their losses. NULL: all of them stay in the update. */
static ups_status validate_batches(ups_stage_training *t, ups_loader *loader, validated *of_batch, ups_error *error) {
    const int rank = ups_comm_rank(t->request->session->comm), ranks = ups_comm_size(t->request->session->comm);
    for (int64_t k = 0;; k++) {
        const ups_batch *batch = NULL;
        UPS_TRY(next_batch(t, loader, &batch, error));
        if (!batch) return UPS_OK;
        UPS_TRY(validate_batch(t, batch, k * ranks + rank, error));
        ups_loader_release(loader, batch);
        if (of_batch) UPS_TRY(take_losses(t, &of_batch[k], error));
    }
}

/* What is validated is what will be exported: the average of the weights, where there is one. The weights themselves
 * wait in the place of the gradients, which no step has left anything in that the next one needs. */
static ups_status take_average(ups_stage_training *t, ups_error *error) {
    ups_device *device = t->request->session->device;
    float *values = ups_parameters_values(t->parameters), *kept = ups_parameters_gradients(t->parameters);
    const size_t bytes = (size_t)ups_parameters_elements(t->parameters) * sizeof *values;
    UPS_TRY(device->class->copy(device, kept, values, bytes, error));
    UPS_TRY(ups_optimizer_put_average(t->optimizer, values, error));
    UPS_TRY(ups_exchange_weights(t->exchange, error)); /* of which each process may have a share */
    return ups_parameters_refresh(t->parameters, error);
}

static ups_status give_average_back(ups_stage_training *t, ups_error *error) {
    ups_device *device = t->request->session->device;
    float *values = ups_parameters_values(t->parameters), *kept = ups_parameters_gradients(t->parameters);
    const size_t bytes = (size_t)ups_parameters_elements(t->parameters) * sizeof *values;
    UPS_TRY(device->class->copy(device, values, kept, bytes, error));
    UPS_TRY(device->class->zero(device, kept, bytes, error));
    return ups_parameters_refresh(t->parameters, error);
}

static ups_status validate_weights(ups_stage_training *t, validated *of_batch, ups_error *error) {
    ups_device *device = t->request->session->device;
    ups_loader_options options = ups_stage_training_validation_options(t, t->validation.count);
    ups_loader_use_memory_of(device, &options);
    ups_loader *loader = NULL;
    UPS_TRY(ups_update_give(t->validated, &(ups_update_input){0}, error)); /* the first: results are cleared */
    UPS_TRY(ups_loader_open(&options, t->validation.entries, t->validation.count, &loader, error));
    ups_status status = validate_batches(t, loader, of_batch, error);
    ups_error after;
    if (status != UPS_OK) device->class->synchronize(device, &after); /* the loader's batches may be read still */
    ups_loader_close(loader);
    return status;
}

/* With the weights that will be exported. */
static ups_status validate_average(ups_stage_training *t, validated *of_batch, ups_error *error) {
    UPS_TRY(finish_upload(t, error));
    const bool average = ups_optimizer_average(t->optimizer) != NULL;
    if (average) UPS_TRY(take_average(t, error));
    ups_status status = validate_weights(t, of_batch, error);
    ups_error after; /* a run that was stopped meanwhile keeps its weights */
    const ups_status back = average ? give_average_back(t, &after) : UPS_OK;
    UPS_TRY(status);
    return back == UPS_OK ? UPS_OK : ups_fail(error, back, "%s", after.message);
}

static void add_losses(const ups_stage_training *t, const validated *losses, ups_loss_sums *sums) {
    for (int task = 0; task < t->tasks->count; task++) {
        sums->sum[task] += losses->sum[task];
        sums->count[task] += losses->count[task];
        sums->windows += losses->count[task];
    }
}

/* Processes that train together share the batches, and add all losses in the order of batches. */
static ups_status validate_together(ups_stage_training *t, ups_loss_sums *sums, ups_error *error) {
    ups_comm *comm = t->request->session->comm;
    const int ranks = ups_comm_size(comm);
    UPS_TRY(ups_exchange_check(t->exchange, &t->facts, error)); /* whether weights are the same still */
    const int64_t batches = ups_stage_training_validation_options(t, t->validation.count).batch_count;
    const int64_t each = (t->stage->training->validation_batches * t->validation.count + ranks - 1) / ranks;
    validated *own = calloc((size_t)each, sizeof *own), *all = calloc((size_t)(each * ranks), sizeof *all);
    ups_status status = own && all && batches <= each
                            ? validate_average(t, own, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "no memory for the losses of a validation");
    if (status == UPS_OK) status = ups_comm_gather(comm, own, all, each * (int64_t)sizeof *own, error);
    for (int64_t k = 0; k < each && status == UPS_OK; k++) {
        for (int rank = 0; rank < ranks; rank++) add_losses(t, &all[rank * each + k], sums);
    }
    free(own);
    free(all);
    return status;
}

ups_status ups_stage_training_validate(void *context, ups_loss_sums *sums, ups_error *error) {
    ups_stage_training *t = context;
    if (t->validation.count == 0) return UPS_OK;
    if (t->request->session->comm || t->config->ranks.reproducible) return validate_together(t, sums, error);
    validated all;
    UPS_TRY(validate_average(t, NULL, error));
    UPS_TRY(take_losses(t, &all, error));
    add_losses(t, &all, sums);
    return UPS_OK;
}
