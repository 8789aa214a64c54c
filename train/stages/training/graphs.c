/* The graphs of a stage's training: one for each kind of batch and set of losses, over one set of parameters. */
#include "model/differentiate.h"
#include "train/networks.h"
#include "train/stages/training/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ups_stage_graph *ups_stage_training_find_graph(const ups_stage_training *t, int64_t kind, unsigned losses) {
    for (int i = 0; i < t->graph_count; i++) {
        if (t->graphs[i].kind == kind && t->graphs[i].losses == losses) return &t->graphs[i];
    }
    return NULL;
}

unsigned ups_stage_training_losses_due(const ups_stage_training *t, int64_t step) {
    const ups_stage_description *stage = t->stage;
    const unsigned losses = ups_losses_due(stage->training->losses, step);
    const bool staged = stage->part && losses & stage->staged_losses;
    return losses | (staged ? (unsigned)stage->part(stage->context, step) << UPS_STAGE_PART_SHIFT : 0);
}

static ups_status add_mask(ups_stage_training *t, unsigned mask, ups_error *error) {
    for (int i = 0; i < t->mask_count; i++)
        if (t->masks[i] == mask) return UPS_OK;
    if (t->mask_count == UPS_MAX_LOSS_SETS)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: more than %d sets of losses and lengths of rollouts, each of which takes a graph; "
                        "give losses the same `every` and `from`, or shorten rollout_curriculum",
                        ups_stage_name(t->stage->stage), UPS_MAX_LOSS_SETS);
    t->masks[t->mask_count++] = mask;
    return UPS_OK;
}

/* The sets that occur, each with the parts that it may fall into, and all losses together, in the first part, which is
 * what is validated: from the first step on, and however many steps there are, so that those which begin later have
 * their say in which weights are the best. */
static ups_status find_masks(ups_stage_training *t, ups_error *error) {
    const ups_stage_description *stage = t->stage;
    const int64_t steps = stage->training->steps;
    unsigned sets[UPS_MAX_LOSS_SETS];
    const int found = ups_losses_masks(stage->training->losses, steps > 0 ? steps : 1, sets);
    for (int i = 0; i < found && i < UPS_MAX_LOSS_SETS; i++) {
        const int parts = stage->part && sets[i] & stage->staged_losses ? stage->parts : 1;
        for (int part = 0; part < parts; part++)
            UPS_TRY(add_mask(t, sets[i] | (unsigned)part << UPS_STAGE_PART_SHIFT, error));
    }
    for (int i = 0; i < UPS_MAX_LOSSES; i++)
        if (stage->training->losses[i].weight > 0) t->validated_losses |= 1u << i;
    return add_mask(t, t->validated_losses, error);
}

/* Inputs by which losses that warm up are multiplied. */
static void add_ramps(const ups_stage_training *t, ups_stage_graph *made) {
    const char *const *names = ups_run_loss_names(t->stage->stage);
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        made->ramp[i] = UPS_NO_VALUE;
        if (!(made->losses >> i & 1) || t->stage->training->losses[i].warmup == 0) continue;
        char name[64];
        snprintf(name, sizeof name, "warmup.%s", names[i]);
        made->ramp[i] = ups_graph_input(made->graph, name, UPS_F32, UPS_SHAPE(t->batch));
    }
    made->objective.ramp = made->ramp;
}

static void build_graph(ups_stage_training *t, int task, int variant, int64_t kind, unsigned losses) {
    ups_stage_graph *made = &t->graphs[t->graph_count++];
    made->variant = variant;
    made->kind = kind;
    made->losses = losses;
    const bool exact = losses & t->stage->exact_losses;
    made->graph = exact ? ups_graph_create(t->parameters, UPS_F32) : ups_run_graph(t->config, t->parameters);
    if (!exact) ups_run_allow_fp8(t->config, made->graph);
    made->graph->checkpointing = t->stage->training->checkpointing;
    add_ramps(t, made);
    t->stage->build(t->stage->context, task, t->batch, made);
    ups_objective_close(made->graph, &made->objective);
    made->tasks = ups_graph_input(made->graph, "window_tasks", UPS_I32, UPS_SHAPE(t->batch));
    ups_graph_differentiate(made->graph, made->objective.total);
}

static void free_samples(ups_stage_samples *list) {
    free(list->entries);
    free(list->task_of);
}

void ups_stage_training_end(ups_stage_training *t) {
    ups_device *device = t->request->session->device;
    ups_error after;
    device->class->synchronize(device, &after); /* what was issued reads batches and tables */
    ups_exchange_close(t->exchange);            /* before memory that it may still read goes */
    ups_loader_close(t->loader);
    ups_feed_close(t->feed);
    ups_stores_close(&t->stores);
    ups_optimizer_destroy(t->optimizer);
    ups_shares_free(&t->shares);
    for (int i = 0; i < t->graph_count; i++) {
        ups_step_destroy(t->graphs[i].step);
        ups_graph_destroy(t->graphs[i].graph);
    }
    free(t->graphs);
    free(t->trains);
    ups_parameters_destroy(t->parameters);
    free_samples(&t->train);
    free_samples(&t->validation);
    ups_update_close(t->validated);
    if (t->window_tasks) device->class->release_host(device, t->window_tasks);
    if (t->ramps) device->class->release_host(device, t->ramps);
    free(t->windows);
    ups_task_sampling_destroy(t->sampling);
    json_decref(t->origin);
    json_decref(t->opening);
}

int ups_stage_training_variants(const ups_stage_training *t, int task) {
    return t->stage->variants ? t->stage->variants(t->stage->context, task) : 1;
}

ups_status ups_stage_training_begin(ups_stage_training *t, const ups_stage_description *stage,
                                    const ups_stage_request *request, int64_t batch, ups_error *error) {
    *t = (ups_stage_training){.stage = stage,
                              .request = request,
                              .config = request->session->config,
                              .tasks = request->session->tasks,
                              .batch = batch};
    if (t->config->data.split.train <= 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: data.split.train is %g: nothing is left to train on",
                        ups_stage_name(stage->stage), t->config->data.split.train);
    }
    UPS_TRY(ups_networks_check(t->config, t->tasks, error));
    UPS_TRY(find_masks(t, error));
    t->parameters = ups_parameters_create();
    int variants = 0;
    for (int task = 0; task < t->tasks->count; task++) variants += ups_stage_training_variants(t, task);
    t->graphs = calloc((size_t)(variants * t->mask_count), sizeof *t->graphs);
    if (!t->parameters || !t->graphs) {
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its graphs", ups_stage_name(stage->stage));
    }
    for (int task = 0; task < t->tasks->count; task++) {
        for (int v = 0; v < ups_stage_training_variants(t, task); v++) {
            int64_t kind = stage->kind(stage->context, task, v);
            for (int m = 0; m < t->mask_count; m++) {
                if (!ups_stage_training_find_graph(t, kind, t->masks[m])) build_graph(t, task, v, kind, t->masks[m]);
            }
        }
    }
    return UPS_OK;
}

const ups_graph **ups_stage_training_list_graphs(const ups_stage_training *t) {
    const ups_graph **list = calloc((size_t)t->graph_count + 1, sizeof *list);
    for (int i = 0; list && i < t->graph_count; i++) list[i] = t->graphs[i].graph;
    return list;
}

/* Marks the parameters that a graph has gradients for, each in its row of as many as there are graphs. */
static void mark_trained(const ups_stage_training *t, int graph, bool *trains) {
    const ups_graph *of = t->graphs[graph].graph;
    for (ups_value v = 0; v < of->value_count; v++) {
        const ups_value_info *value = &of->values[v];
        if (value->kind == UPS_VALUE_PARAMETER && value->needs_gradient)
            trains[(int64_t)value->parameter * t->graph_count + graph] = true;
    }
}

ups_status ups_stage_training_divide_parameters(ups_stage_training *t, ups_error *error) {
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

ups_status ups_stage_training_find_shares(ups_stage_training *t, ups_error *error) {
    const int32_t ranks = ups_comm_size(t->request->session->comm);
    if (ranks == 1 || t->config->ranks.shard == UPS_SHARD_NONE) return UPS_OK;
    const bool whole_matrices = ups_optimizer_moves_matrices(&t->stage->training->optimizer);
    ups_parameters_place(t->parameters);
    return ups_shares_find(t->parameters, ranks, whole_matrices, &t->shares, error);
}

const ups_shares *ups_stage_training_shares(const ups_stage_training *t) {
    return t->shares.piece_count > 0 ? &t->shares : NULL;
}
