/* Runs a stage's training: finds samples, makes memory, goes on from a checkpoint, and hands all to the loop. */
#include "base/files.h"
#include "base/log.h"
#include "base/system/threads.h"
#include "model/cpu/device.h"
#include "train/data/loader_memory.h"
#include "train/networks.h"
#include "train/precision.h"
#include "train/stages/training/parts.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

static ups_status begin_sampling(ups_stage_training *t, ups_error *error) {
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
    ups_stage_training *t = context;
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
    const int64_t batches = t->stage->training->accumulation / ups_comm_size(t->request->session->comm);
    return ups_loader_add_phase(t->loader, phase, step * batches, error);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static ups_status list_samples(ups_stage_training *t, ups_split split, ups_stage_samples *list, ups_error *error) {
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

static bool has_checkpoint(const ups_stage_training *t) {
    char *checkpoints = ups_run_path(t->config, "checkpoints/%s", ups_stage_name(t->stage->stage));
    bool has = t->request->resume && checkpoints && ups_checkpoint_exists(checkpoints);
    free(checkpoints);
    return has;
}

/* Of all graphs, whose arithmetic is known then. */
static ups_status create_steps(ups_stage_training *t, ups_error *error) {
    ups_device *device = t->request->session->device;
    const ups_card *card = ups_card_of_driver(device->card);
    const ups_graph **graphs = ups_stage_training_list_graphs(t);
    ups_step **steps = calloc((size_t)t->graph_count + 1, sizeof *steps);
    ups_status status = graphs && steps ? ups_step_create_together(graphs, t->graph_count, device, steps, error)
                                        : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int i = 0; i < t->graph_count && status == UPS_OK; i++) {
        t->graphs[i].step = steps[i];
        ups_step_profile_enable(steps[i], t->request->profile);
        t->graphs[i].arithmetic = ups_arithmetic_of(graphs[i], ups_step_plan(steps[i]), card);
    }
    free(steps);
    free(graphs);
    return status;
}

static ups_status allocate(ups_stage_training *t, ups_error *error) {
    ups_device *device = t->request->session->device;
    UPS_TRY(ups_stage_training_divide_parameters(t, error));
    UPS_TRY(ups_stage_training_find_shares(t, error));
    UPS_TRY(ups_parameters_allocate(t->parameters, device, true, ups_run_compute(t->config), t->config->seed, error));
    if (!has_checkpoint(t)) {
        if (t->stage->initialise) UPS_TRY(t->stage->initialise(t->stage->context, t->parameters, error));
        UPS_TRY(ups_stage_training_take_given(t, error));
        UPS_TRY(ups_parameters_refresh(t->parameters, error));
    }
    size_t rows = (size_t)t->batch;
    t->windows = calloc(2 * (size_t)t->stage->training->accumulation * rows, sizeof *t->windows);
    if (!t->windows) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    UPS_TRY(device->class->allocate_host(device, rows * sizeof *t->window_tasks, (void **)&t->window_tasks, error));
    bool warms_up = false;
    for (int i = 0; i < UPS_MAX_LOSSES; i++) warms_up = warms_up || t->stage->training->losses[i].warmup > 0;
    const size_t ramps = UPS_MAX_LOSSES * rows * sizeof *t->ramps;
    if (warms_up) UPS_TRY(device->class->allocate_host(device, ramps, (void **)&t->ramps, error));
    UPS_TRY(ups_update_open(device, &t->validated, error));
    UPS_TRY(create_steps(t, error));
    ups_comm *comm = t->request->session->comm;
    const ups_share own = {ups_stage_training_shares(t), ups_comm_rank(comm)};
    UPS_TRY(ups_optimizer_create(&t->stage->training->optimizer, device, t->parameters, own.of ? &own : NULL,
                                 &t->optimizer, error));
    const ups_exchange_options exchange = {.comm = comm,
                                           .device = device,
                                           .parameters = t->parameters,
                                           .rounds = t->stage->training->accumulation / ups_comm_size(comm),
                                           .reproducible = t->config->ranks.reproducible,
                                           .path = t->config->ranks.gradients,
                                           .bucket = t->config->ranks.bucket,
                                           .most_blocks = t->config->ranks.blocks,
                                           .shares = own.of};
    return ups_exchange_open(&exchange, &t->exchange, error);
}

/* Of the layers that fp8_layers names. */
static void tell_fp8(const ups_stage_training *t) {
    const char *stage = ups_stage_name(t->stage->stage);
    int layers = 0, products = 0, odd = 0;
    if (!ups_precision_allows_fp8(t->config->precision)) return;
    for (int32_t i = 0; i < ups_parameters_count(t->parameters); i++) {
        const char *name = ups_parameters_get(t->parameters, i)->name, *end = strrchr(name, '.');
        layers += end && strcmp(end, ".fp8") == 0;
    }
    for (int g = 0; g < t->graph_count; g++) {
        const ups_graph *graph = t->graphs[g].graph;
        for (int32_t n = 0; n < graph->node_count; n++) {
            const ups_node *node = &graph->nodes[n];
            if (!node->attributes || !node->attributes->fp8) continue;
            products++;
            odd += ups_shape_rows(ups_graph_info(graph, node->output)->shape) % UPS_FP8_MULTIPLE != 0;
        }
    }
    if (layers > 0) ups_log(UPS_LOG_INFO, "%s: %d layers multiply FP8 where the device does", stage, layers);
    if (odd > 0)
        ups_log(UPS_LOG_WARNING,
                "%s: %d of their %d products stay bf16, since their rows, batch times tokens, are no multiple of %d",
                stage, odd, products, UPS_FP8_MULTIPLE);
    if (layers == 0 && t->stage->stage == UPS_STAGE_OPERATOR)
        ups_log(UPS_LOG_WARNING,
                "fp8_layers names no hidden layer of the %s whose sizes are multiples of %d: it computes in bf16",
                stage, UPS_FP8_MULTIPLE);
}

/* The frames of any batch. */
static ups_status open_feed(ups_stage_training *t, const ups_stores_list *lists, uint64_t on_device, ups_error *error) {
    ups_feed_options options = {.device = t->request->session->device,
                                .lists = lists,
                                .list_count = 2,
                                .dtype = t->stage->batches,
                                .draws = ups_stage_training_draws_on_device(t),
                                .device_bytes = on_device};
    ups_stage_training_find_largest_batch(t, &options.rows, &options.elements);
    UPS_TRY(ups_feed_open(&options, &t->feed, error));
    const double room = (double)ups_feed_look(t->feed).room / (double)(1 << 30);
    if (options.draws)
        ups_log(UPS_LOG_INFO,
                "%s: windows are drawn on the device, of samples that stay there once read, in up to %.2f GiB",
                ups_stage_name(t->stage->stage), room);
    return UPS_OK;
}

/* Rank 0 loads first: it removes what a killed run left. The others read the same files. */
static ups_status go_on(ups_stage_training *t, ups_training_state *state, ups_error *error) {
    if (!t->request->resume) return UPS_OK;
    ups_comm *comm = t->request->session->comm;
    char *checkpoints = ups_run_path(t->config, "checkpoints/%s", ups_stage_name(t->stage->stage));
    if (!checkpoints) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    for (int turn = 0; turn < 2 && status == UPS_OK; turn++) {
        if ((ups_comm_rank(comm) > 0) == turn && ups_checkpoint_exists(checkpoints))
            status = (turn == 0 ? ups_checkpoint_load : ups_checkpoint_read)(checkpoints, state, t->parameters,
                                                                             t->optimizer, error);
        if (status == UPS_OK) status = ups_comm_barrier(comm, error);
    }
    free(checkpoints);
    return status;
}

static ups_status open_loader(ups_stage_training *t, int64_t step, ups_error *error) {
    ups_loader_options options = ups_stage_training_loader_options(t, step);
    ups_loader_use_memory_of(t->request->session->device, &options);
    options.one_task_per_batch = t->stage->one_task_per_batch;
    options.phases = ups_task_sampling_phases(t->sampling, &options.phase_count);
    return ups_loader_open(&options, t->train.entries, t->train.count, &t->loader, error);
}

static ups_status export_model(const ups_stage_training *t, ups_error *error) {
    char *path = ups_run_model_path(t->config, t->stage->stage);
    json_t *told = t->origin ? json_copy(t->origin) : json_object();
    json_t *besides = t->stage->describe_model ? t->stage->describe_model(t->stage->context) : json_object();
    const bool had = path && besides && json_object_update(told, besides) == 0;
    ups_status status =
        had ? ups_model_export(path, t->parameters, t->optimizer, ups_exchange_gather(t->exchange), told, error)
            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_decref(told);
    json_decref(besides);
    free(path);
    return status;
}

/* {"stage": …, "step": 0, "precision": …, "parameters": …, "batch_size": …} */
static json_t *describe_run(const ups_stage_training *t, const ups_training_state *state) {
    return json_pack("{s:s, s:i, s:s, s:I, s:I}", "stage", ups_stage_name(t->stage->stage), "step", 0, "precision",
                     ups_precision_name(state->precision), "parameters",
                     (json_int_t)ups_parameters_trainable(t->parameters), "batch_size", (json_int_t)t->batch);
}

/* Processors and cards round each in their own way; processes that make the same updates have to be alike. */
static ups_status check_alike(const ups_session *session, const char *stage, ups_error *error) {
    enum { NAME = 120 };
    ups_comm *comm = session->comm;
    const ups_device *device = session->device;
    const int ranks = ups_comm_size(comm);
    if (!comm) return UPS_OK;
    char own[NAME] = "", *all = calloc((size_t)ranks, NAME);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    snprintf(own, NAME, "%s, %s", device->class->name, device->card ? device->card : ups_cpu_instruction_set());
    ups_status status = ups_comm_gather(comm, own, all, NAME, error);
    for (int rank = 1; rank < ranks && status == UPS_OK; rank++) {
        if (strcmp(all + (ptrdiff_t)rank * NAME, all) == 0) continue;
        status = ups_fail(error, UPS_ERR_UNSUPPORTED,
                          "%s: rank %d computes on another device than rank 0 (%s; %s), and rounds otherwise; set "
                          "device.name, or UPS_CPU to instructions that all processors have",
                          stage, rank, all + (ptrdiff_t)rank * NAME, all);
        ups_comm_end_together(comm, true);
    }
    const bool rounds = ups_precision_allows_fp8(session->config->precision) && !device->class->immediate;
    if (status == UPS_OK && rounds) {
        status = ups_fail(error, UPS_ERR_UNSUPPORTED,
                          "%s: precision fp8 is of one process, since each would scale operands by what it has seen "
                          "itself; set precision to bf16, or start one process",
                          stage);
        ups_comm_end_together(comm, true);
    }
    free(all);
    return status;
}

/* What the model belongs to, the checkpoint that it goes on from, and the samples. */
static ups_hash hash_data(const ups_stage_training *t, const ups_training_state *state) {
    ups_hasher *hasher = ups_hasher_create();
    char *origin = t->origin ? json_dumps(t->origin, JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    if (origin) ups_hasher_update(hasher, origin, strlen(origin));
    free(origin);
    for (int task = 0; task < t->tasks->count; task++)
        ups_hasher_update(hasher, t->tasks->task[task].splits.count, sizeof t->tasks->task[task].splits.count);
    const double numbers[] = {state->running_loss, isfinite(state->score) ? state->score : 0,
                              state->best.step > 0 ? state->best.score : 0, (double)state->best.stale};
    ups_hasher_update(hasher, numbers, sizeof numbers);
    ups_hasher_update(hasher, &t->batch, sizeof t->batch);
    return ups_hasher_finish(hasher);
}

/* Processes that train together begin alike. */
static ups_status begin_alike(ups_stage_training *t, const ups_training_state *state, ups_error *error) {
    t->facts = (ups_exchange_facts){state->step, hash_data(t, state)};
    UPS_TRY(ups_exchange_share_weights(t->exchange, error));
    if (t->exchange && state->step == 0) UPS_TRY(ups_optimizer_restart_average(t->optimizer, error));
    return ups_exchange_check(t->exchange, &t->facts, error);
}

/* How much less of the optimizer's state this process keeps. */
static ups_status tell_share(const ups_stage_training *t, ups_error *error) {
    const ups_optimizer_config *config = &t->stage->training->optimizer;
    const ups_share own = {ups_stage_training_shares(t), ups_comm_rank(t->request->session->comm)};
    ups_device *device = t->request->session->device;
    const ups_dtype compute = ups_run_compute(t->config);
    ups_optimizer_memory kept, all;
    if (!own.of) return UPS_OK;
    UPS_TRY(ups_optimizer_measure(config, device, t->parameters, &own, compute, &kept, error));
    UPS_TRY(ups_optimizer_measure(config, device, t->parameters, NULL, compute, &all, error));
    ups_log(UPS_LOG_INFO, "%s: each of %d processes keeps a share of the optimizer's state, here %.2f of %.2f MiB",
            ups_stage_name(t->stage->stage), own.of->count, (double)kept.all / (1 << 20), (double)all.all / (1 << 20));
    return UPS_OK;
}

static void tell_beginning(const ups_stage_training *t, int64_t step) {
    const ups_training_config *config = t->stage->training;
    const char *card = t->request->session->device->card;
    ups_log(UPS_LOG_INFO, "%s: %.2f M parameters, batch %lld × %lld, %lld steps%s%s%s", ups_stage_name(t->stage->stage),
            (double)ups_parameters_trainable(t->parameters) / 1e6, (long long)config->accumulation, (long long)t->batch,
            (long long)config->steps,
            step > 0   ? " (resumed)"
            : t->given ? ", from given weights"
                       : "",
            card ? ", on " : "", card ? card : "");
    tell_fp8(t);
}

/* All that a step needs is there. `names`: of the tasks. */
static ups_status run_loop(ups_stage_training *t, const ups_training_state *state, const char *const *names,
                           ups_error *error) {
    const ups_training_config *config = t->stage->training;
    const ups_session *session = t->request->session;
    const char *name = ups_stage_name(t->stage->stage);
    ups_loop_stage stage = {.name = name,
                            .context = t,
                            .micro_batch = ups_stage_training_micro_batch,
                            .validate = ups_stage_training_validate,
                            .advance = advance,
                            .losses_due = ups_stage_training_loss_set_due,
                            .describe_batch = ups_stage_training_describe_batch,
                            .loader = t->loader,
                            .residency = t->stores.residency,
                            .zero_gradients = t->graph_count > 1 && (config->accumulation > 1 || t->undivided)};
    ups_loop_options loop = {.training = config,
                             .seed = t->config->seed,
                             .output = t->config->output,
                             .resume = state,
                             .opening = t->opening,
                             .device = session->device,
                             .parameters = t->parameters,
                             .optimizer = t->optimizer,
                             .comm = session->comm,
                             .exchange = t->exchange,
                             .task_names = names,
                             .task_count = t->tasks->count,
                             .loss_names = ups_run_loss_names(t->stage->stage)};
    const double began = ups_now();
    const ups_status status = ups_loop_run(&loop, &stage, error);
    if (t->request->profile && (status == UPS_OK || status == UPS_ERR_CANCELLED))
        ups_stage_training_tell_profile(t, ups_now() - began);
    UPS_TRY(status);
    const ups_feed_facts fed = ups_feed_look(t->feed);
    if (ups_stage_training_draws_on_device(t))
        ups_log(UPS_LOG_INFO, "%s: %lld of %lld windows were drawn on the device, where %lld samples stay", name,
                (long long)fed.drawn, (long long)(fed.drawn + fed.sent), (long long)fed.trajectories);
    return UPS_OK;
}

static ups_status train(ups_stage_training *t, uint64_t on_device, ups_error *error) {
    UPS_TRY(t->stage->find_origin(t->stage->context, &t->origin, error));
    UPS_TRY(t->stage->prepare(t->stage->context, t->batch, error));
    UPS_TRY(list_samples(t, UPS_SPLIT_TRAIN, &t->train, error));
    UPS_TRY(list_samples(t, UPS_SPLIT_VALIDATION, &t->validation, error));
    ups_stores_list lists[] = {{t->train.entries, t->train.count}, {t->validation.entries, t->validation.count}};
    UPS_TRY(
        ups_stores_open(t->config, ups_stage_name(t->stage->stage), lists, 2, t->stage->batches, &t->stores, error));
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
    UPS_TRY(begin_alike(t, &state, error));
    UPS_TRY(open_loader(t, state.step, error));
    tell_beginning(t, state.step);
    UPS_TRY(tell_share(t, error));
    UPS_TRY(run_loop(t, &state, names, error));
    const bool has_part = ups_comm_rank(t->request->session->comm) == 0 || ups_exchange_gather(t->exchange);
    return has_part ? export_model(t, error) : UPS_OK;
}

ups_status ups_stage_training_run(const ups_stage_description *stage, const ups_stage_request *request,
                                  ups_error *error) {
    ups_comm *comm = request->session->comm;
    ups_stage_request same = *request;
    ups_stage_plan plan;
    const int64_t bytes = sizeof same.batch_size; /* rank 0 may have to find it */
    UPS_TRY(check_alike(request->session, ups_stage_name(stage->stage), error));
    if (ups_comm_rank(comm) > 0) UPS_TRY(ups_comm_broadcast(comm, &same.batch_size, bytes, error));
    UPS_TRY(ups_stage_training_plan(stage, &same, &plan, error));
    UPS_TRY(ups_stage_check_memory(request->session, stage->stage, &plan, error));
    same.batch_size = plan.batch_size;
    if (ups_comm_rank(comm) == 0) UPS_TRY(ups_comm_broadcast(comm, &same.batch_size, bytes, error));
    UPS_TRY(ups_comm_barrier(comm, error)); /* nobody takes memory while others look how much is free */
    ups_stage_training t;
    ups_status status = ups_stage_training_begin(&t, stage, request, plan.batch_size, error);
    if (status == UPS_OK) status = train(&t, plan.resident_on_device, error);
    ups_stage_training_end(&t);
    return status;
}
