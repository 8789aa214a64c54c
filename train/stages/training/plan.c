/* What a stage's training takes, before there is anything of it: memory of graphs, parameters, optimizer, loaders,
 * samples that stay. */
#include "base/sizes.h"
#include "train/data/batches.h"
#include "train/networks.h"
#include "train/stages/training/parts.h"

#include <stdlib.h>

/* Micro-batches of all processes that loaders may begin before shares of tasks may change (task_sampling.h). */
#define MOST_AHEAD (UPS_SAMPLING_LEAD - 2)

/* What loading the task's windows takes; without samples, nothing. */
static bool find_load(const ups_stage_training *t, int task, ups_split split, bool kept, ups_loader_load *load) {
    if (t->tasks->task[task].splits.count[split] == 0) return false;
    *load = t->stage->load(t->stage->context, task, split);
    load->kept = kept || load->limits.keep_decoded;
    return true;
}

bool ups_stage_training_draws_on_device(const ups_stage_training *t) {
    return t->config->data.residency == UPS_RUN_DEVICE && ups_feed_can_keep_on(t->request->session->device);
}

ups_loader_options ups_stage_training_loader_options(const ups_stage_training *t, int64_t step) {
    ups_loader_options options =
        ups_training_loader_options(t->config, t->stage->training, t->batch, t->stage->batches, step);
    const int ranks = ups_comm_size(t->request->session->comm);
    options.rank = ups_comm_rank(t->request->session->comm);
    options.ranks = ranks;
    options.first_batch /= ranks;
    options.batch_count /= ranks;
    if (ups_task_sampling_changes(t->config) && options.slots > MOST_AHEAD / ranks) options.slots = MOST_AHEAD / ranks;
    options.in_place = ups_stage_training_draws_on_device(t);
    return options;
}

ups_loader_options ups_stage_training_validation_options(const ups_stage_training *t, int tasks) {
    ups_loader_options options =
        ups_validation_loader_options(t->config, t->stage->training, t->batch, t->stage->batches, tasks);
    const int rank = ups_comm_rank(t->request->session->comm), ranks = ups_comm_size(t->request->session->comm);
    options.rank = rank;
    options.ranks = ranks;
    options.batch_count = (options.batch_count - rank + ranks - 1) / ranks;
    options.in_place = ups_stage_training_draws_on_device(t);
    return options;
}

/* What the loader of training takes, and that of validation. */
static void plan_loaders(const ups_stage_training *t, bool kept, ups_stage_plan *plan) {
    ups_loader_load loads[UPS_SAMPLER_MAX_TASKS], validated[UPS_SAMPLER_MAX_TASKS];
    int count = 0, validated_count = 0;
    for (int task = 0; task < t->tasks->count; task++) {
        count += find_load(t, task, UPS_SPLIT_TRAIN, kept, &loads[count]);
        validated_count += find_load(t, task, UPS_SPLIT_VALIDATION, kept, &validated[validated_count]);
    }
    ups_loader_options options = ups_stage_training_loader_options(t, 0);
    plan->loader = ups_loader_measure(&options, loads, count).total;
    if (validated_count == 0) return;
    options = ups_stage_training_validation_options(t, validated_count);
    plan->validation = ups_loader_measure(&options, validated, validated_count).total;
}

static void add_places(uint64_t *bytes, uint64_t samples, uint64_t each) {
    *bytes = ups_size_sum(*bytes, ups_size_product(samples, ups_size_sum(each, UPS_STORE_ALIGNMENT)));
}

/* What the samples that stay in memory take, judged by the bounds known before there are any; and what encodes those
 * that are encoded on the fly. */
static ups_status plan_residency(const ups_stage_training *t, ups_stage_plan *plan, ups_error *error) {
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

void ups_stage_training_find_largest_batch(const ups_stage_training *t, int64_t *rows, int64_t *elements) {
    *rows = *elements = 0;
    for (int task = 0; task < t->tasks->count; task++) {
        const bool as_loaded = ups_stage_training_variants(t, task) == 1 && t->stage->parts <= 1;
        if (as_loaded && !ups_stage_training_draws_on_device(t)) continue;
        const ups_loader_load load = t->stage->load(t->stage->context, task, UPS_SPLIT_TRAIN);
        const int64_t frames = t->batch * load.frames;
        if (frames > *rows) *rows = frames;
        if (frames * load.frame_elements > *elements) *elements = frames * load.frame_elements;
    }
}

/* What the feed puts a batch together in (feed.h). */
static void plan_feed(const ups_stage_training *t, ups_stage_plan *plan) {
    int64_t rows, elements;
    ups_stage_training_find_largest_batch(t, &rows, &elements);
    plan->loader += (size_t)elements * ups_dtype_size(t->stage->batches);
    if (ups_stage_training_draws_on_device(t)) plan->loader += (size_t)rows * sizeof(void *);
}

/* Of the samples that stay in memory, what stays in the device's memory too: as much as fits beside all else that is
 * there, but not more than half of what may be used. */
static ups_status plan_on_device(const ups_stage_training *t, ups_stage_plan *plan, ups_error *error) {
    int64_t rows, elements; /* of windows that are sent, and the list of all */
    ups_stage_training_find_largest_batch(t, &rows, &elements);
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
static ups_status measure_graphs(ups_stage_training *t, const ups_stage_description *stage,
                                 const ups_stage_request *request, int64_t batch, ups_plan_memory *memory,
                                 ups_error *error) {
    UPS_TRY(ups_stage_training_begin(t, stage, request, batch, error));
    const ups_graph **graphs = ups_stage_training_list_graphs(t);
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
    ups_stage_training t;
    ups_plan_memory memory = {0};
    ups_status status = measure_graphs(&t, &stage, wanted->request, batch, &memory, error);
    *activations = memory.activations;
    ups_stage_training_end(&t);
    return status;
}

/* What a process that sums with others takes for that. */
static size_t measure_exchange(const ups_stage_training *t) {
    const ups_session *session = t->request->session;
    const int64_t rounds = t->stage->training->accumulation / ups_comm_size(session->comm);
    return ups_exchange_measure(session->comm, session->device, ups_parameters_elements(t->parameters), rounds,
                                t->config->ranks.reproducible, ups_stage_training_shares(t));
}

/* Of shares the most that a process takes, on its device and beside it, so that all plan the same. */
static ups_status measure_optimizer(const ups_stage_training *t, ups_optimizer_memory *most, ups_error *error) {
    const ups_shares *shares = ups_stage_training_shares(t);
    size_t rest = 0; /* what is not offloaded */
    *most = (ups_optimizer_memory){0};
    for (int32_t index = 0; index < (shares ? shares->count : 1); index++) {
        const ups_share share = {shares, index};
        ups_optimizer_memory memory;
        UPS_TRY(ups_optimizer_measure(&t->stage->training->optimizer, t->request->session->device, t->parameters,
                                      shares ? &share : NULL, ups_run_compute(t->config), &memory, error));
        if (memory.offloaded > most->offloaded) most->offloaded = memory.offloaded;
        if (memory.all - memory.offloaded > rest) rest = memory.all - memory.offloaded;
    }
    most->all = most->offloaded + rest;
    return UPS_OK;
}

/* All but the total, of a training whose graphs take `memory`. */
static ups_status plan_parts(const ups_stage_training *t, const plan_request *wanted, const ups_plan_memory *memory,
                             ups_stage_plan *plan, ups_error *error) {
    const ups_training_config *training = t->stage->training;
    ups_optimizer_memory optimizer = {0};
    plan->activations = plan->activations_without_checkpointing = memory->activations;
    plan->inputs = memory->inputs;
    plan->workspace = memory->workspace;
    plan->parameters = memory->parameters;
    plan->trainable = ups_parameters_trainable(t->parameters);
    UPS_TRY(measure_optimizer(t, &optimizer, error));
    plan->optimizer = optimizer.all;
    plan->offloaded = optimizer.offloaded;
    plan->exchange = measure_exchange(t);
    UPS_TRY(plan_residency(t, plan, error));
    if (training->checkpointing != UPS_CHECKPOINTING_NONE)
        UPS_TRY(measure_without_checkpointing(wanted, t->batch, &plan->activations_without_checkpointing, error));
    plan_loaders(t, plan->residency != UPS_RESIDENCY_STREAM, plan);
    plan_feed(t, plan);
    return ups_stage_training_draws_on_device(t) ? plan_on_device(t, plan, error) : UPS_OK;
}

static void add_up(const ups_device *device, ups_stage_plan *plan) {
    const size_t parts[] = {plan->parameters, plan->optimizer, plan->activations,       plan->inputs,
                            plan->workspace,  plan->loader,    plan->validation,        plan->resident,
                            plan->encoders,   plan->exchange,  plan->resident_on_device},
                 of_host[] = {plan->loader, plan->validation, plan->resident, plan->offloaded, plan->exchange};
    size_t host = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) plan->total = ups_size_sum(plan->total, parts[i]);
    for (size_t i = 0; i < sizeof of_host / sizeof *of_host; i++) host = ups_size_sum(host, of_host[i]);
    if (device->class->memory) plan->on_device = plan->total - host;
}

static ups_status measure(void *context, int64_t batch, ups_stage_plan *plan, ups_error *error) {
    const plan_request *wanted = context;
    ups_stage_training t;
    ups_plan_memory memory;
    *plan = (ups_stage_plan){.batch_size = batch};
    ups_status status = measure_graphs(&t, wanted->stage, wanted->request, batch, &memory, error);
    if (status == UPS_OK) status = ups_stage_training_divide_parameters(&t, error);
    if (status == UPS_OK) status = ups_stage_training_find_shares(&t, error);
    if (status == UPS_OK) status = plan_parts(&t, wanted, &memory, plan, error);
    if (status == UPS_OK) add_up(wanted->request->session->device, plan);
    ups_stage_training_end(&t);
    return status;
}

ups_status ups_stage_training_plan(const ups_stage_description *stage, const ups_stage_request *request,
                                   ups_stage_plan *plan, ups_error *error) {
    plan_request wanted = {stage, request};
    return ups_stage_choose_batch(request, stage->stage, measure, &wanted, plan, error);
}
