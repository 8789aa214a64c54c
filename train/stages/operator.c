/* Stage `operator`: the latent operator trained on latents of all tasks together: cached ones, or such as are encoded
 * on the fly.
 *
 * Windows are as latent_windows.h says, for the rollout losses those of `rollout_steps` applications. There is a graph
 * for every window length and every set of losses that falls due. A curriculum (`rollout_curriculum`) begins with
 * shorter rollouts: the loader's windows are as long as the longest, and what a shorter one needs of them goes to the
 * device. */
#include "base/log.h"
#include "train/data/origin.h"
#include "train/evaluation/evaluate.h"
#include "train/networks.h"
#include "train/objectives/field_losses.h"
#include "train/objectives/semigroup.h"
#include "train/objectives/symmetries.h"
#include "train/objectives/windows.h"
#include "train/portable/described.h"
#include "train/stages/latent_windows.h"
#include "train/stages/measured/conserved.h"
#include "train/stages/measured/one_step.h"
#include "train/stages/measured/own_points.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROLLOUTS = 1 << UPS_OPERATOR_ROLLOUT | 1 << UPS_OPERATOR_ROLLOUT_RELATIVE | 1 << UPS_OPERATOR_ROLLOUT_DECODED };

typedef struct operator_stage {
    ups_latent_windows windows; /* the first */
    const ups_run_config *config;
    const ups_tasks *tasks;
    ups_field_maps *fields; /* NULL where nothing asks for decoded fields, and for a plan */
} operator_stage;

/* ---- lengths of rollouts --------------------------------------------------------------------------------------- */

static bool rolls_out(const ups_operator_stage_config *config) {
    for (int i = 0; i < UPS_MAX_LOSSES; i++)
        if (ROLLOUTS >> i & 1 && config->training.losses[i].weight > 0) return true;
    return false;
}

/* The part of the curriculum that a step is in: equal parts, from the first step that takes a rollout loss. */
static int find_part(const void *context, int64_t step) {
    const operator_stage *o = context;
    const ups_training_config *training = &o->config->op.training;
    const int64_t parts = o->config->op.rollout_curriculum_count + 1;
    int64_t first = training->steps;
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        const ups_loss_config *loss = &training->losses[i];
        if (ROLLOUTS >> i & 1 && loss->weight > 0 && loss->from < first) first = loss->from;
    }
    if (step >= training->steps) return (int)parts - 1;
    return step < first ? 0 : (int)((double)(step - first) * (double)parts / (double)(training->steps - first));
}

/* Frames of a task's windows in a part of the curriculum. */
static int64_t window_of(const operator_stage *o, int task, int variant, int part) {
    const ups_operator_stage_config *config = &o->config->op;
    const int64_t longest = o->windows.window[task][variant];
    if (!rolls_out(config) || part >= (int)config->rollout_curriculum_count) return longest;
    const int64_t window = o->windows.given[task] + config->rollout_curriculum[part] * o->windows.bundle[task];
    return window < longest ? window : longest;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

/* Without a step to roll on to, a task trains on the one-step loss alone; that must not leave it without any. */
static void build_losses(const operator_stage *o, ups_stage_graph *made, const ups_operator_options *options,
                         ups_value window, const ups_value *states, int steps) {
    const ups_loss_config *losses = o->config->op.training.losses;
    const int last = options->history - 1, bundle = options->bundle; /* states[k] is to be frame last + 1 + k */
    ups_graph *g = made->graph;
    for (int k = 0; k < bundle; k++) {
        ups_value target = ups_select_frame(g, window, last + 1 + k);
        made->objective.loss = UPS_OPERATOR_ONE_STEP;
        if (made->losses & 1u << UPS_OPERATOR_ONE_STEP) {
            ups_objective_add(g, &made->objective, ups_loss_mse(g, states[k], target),
                              losses[UPS_OPERATOR_ONE_STEP].weight / bundle);
        }
        made->objective.loss = UPS_OPERATOR_RELATIVE;
        if (made->losses & 1u << UPS_OPERATOR_RELATIVE) {
            ups_objective_add(g, &made->objective, ups_loss_relative(g, states[k], target),
                              losses[UPS_OPERATOR_RELATIVE].weight / bundle);
        }
    }
    bool squared = made->losses & 1u << UPS_OPERATOR_ROLLOUT,
         relative = made->losses & 1u << UPS_OPERATOR_ROLLOUT_RELATIVE;
    const double squared_weight = losses[UPS_OPERATOR_ROLLOUT].weight;
    const double relative_weight = losses[UPS_OPERATOR_ROLLOUT_RELATIVE].weight;
    const bool alone = made->objective.count == 0 && steps == bundle;
    const int first = alone ? 0 : bundle;
    for (int k = first; k < steps; k++) {
        ups_value later = ups_select_frame(g, window, last + 1 + k);
        made->objective.loss = UPS_OPERATOR_ROLLOUT;
        if (squared)
            ups_objective_add(g, &made->objective, ups_loss_mse(g, states[k], later), squared_weight / (steps - first));
        made->objective.loss = UPS_OPERATOR_ROLLOUT_RELATIVE;
        if (relative)
            ups_objective_add(g, &made->objective, ups_loss_relative(g, states[k], later),
                              relative_weight / (steps - first));
    }
}

static void build(const void *context, int task, int64_t batch, ups_stage_graph *made) {
    const operator_stage *o = context;
    const ups_latent_windows *w = &o->windows;
    const ups_task *first = &o->tasks->task[task];
    ups_operator_options options = ups_latent_windows_options(w, task, made->variant);
    options.pushforward = o->config->op.pushforward;
    const int64_t window = window_of(o, task, made->variant, (int)(made->losses >> UPS_STAGE_PART_SHIFT));
    const int steps = made->losses & ROLLOUTS ? (int)window - options.history : options.bundle;
    ups_graph *g = made->graph;
    ups_value latents = ups_latent_windows_inputs(w, task, batch, window, steps / options.bundle, made);
    const ups_value dt = made->inputs[UPS_WINDOW_DT], parameters = made->inputs[UPS_WINDOW_PARAMETERS],
                    one_hot = made->inputs[UPS_WINDOW_TASK];
    latents = ups_windows_shift(g, o->config, first, latents);
    latents = ups_symmetries_build(g, o->config, o->tasks, task, o->fields, latents);
    ups_value given[UPS_MAX_HISTORY], *states = UPS_ARENA_ARRAY(g->arena, ups_value, steps);
    ups_latent_windows_given(made, &options, latents, given);
    given[options.history - 1] = ups_windows_noise(g, o->config, first, &options, given[options.history - 1]);
    ups_operator_rollout(g, &options, given, dt, parameters, one_hot, steps / options.bundle, states);
    build_losses(o, made, &options, latents, states, steps);
    if (made->losses & 1u << UPS_OPERATOR_SEMIGROUP && ups_latent_windows_consistent(w, task)) {
        ups_semigroup_add(g, &made->objective, &options, &(ups_semigroup_input){given[0], dt, parameters, one_hot},
                          states, steps, o->config->op.training.losses[UPS_OPERATOR_SEMIGROUP].weight);
    }
    ups_field_losses_add(o->config, o->tasks, task, o->fields, made->losses, g, &made->objective,
                         &(ups_field_window){latents, options.history, options.bundle}, states, steps);
}

/* ---- what is measured before training -------------------------------------------------------------------------- */

/* What stays the same on average over the domain, which predictions then keep (model.operator.conserve). */
static ups_status set_conserved(const operator_stage *o, int index, ups_parameters *parameters, ups_error *error) {
    const ups_task *task = &o->tasks->task[index];
    const ups_latent_shape shape = ups_task_latents(o->config, task);
    char name[128];
    snprintf(name, sizeof name, "operator.%s.kept", task->name);
    ups_conserved found = {.kept = malloc((size_t)(shape.dim * shape.dim) * sizeof *found.kept)};
    if (!found.kept) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    ups_status status = ups_conserved_find(o->windows.sources[UPS_SPLIT_TRAIN][index], task->geometry.times,
                                           shape.tokens, shape.dim, &found, error);
    if (status != UPS_OK) ups_fail_within(error, "task %s", task->name);
    if (status == UPS_OK) status = ups_parameters_set(parameters, name, found.kept, error);
    if (status == UPS_OK && found.directions > 0) {
        ups_log(UPS_LOG_INFO,
                "operator: %s: the mean over the domain is constant in %d of a token's %lld numbers, and is kept so",
                task->name, found.directions, (long long)shape.dim);
    }
    free(found.kept);
    return status;
}

/* Name of what is kept for steps of the options' stride; `what`: "change" or "rate". */
static const char *name_of_step(const ups_operator_options *options, const char *what, char name[128]) {
    char stride[32] = "";
    if (options->grid.stride > 0) snprintf(stride, sizeof stride, "stride%lld.", (long long)options->grid.stride);
    snprintf(name, 128, "operator.%s.%s%s", options->grid.task, stride, what);
    return name;
}

/* Whether a task's operator may begin as a linear map. One that is free to choose does where one map can do for all
 * steps: where parameters or lengths of steps differ what it leaves is harder to learn than all of it. */
static bool may_begin_linear(const operator_stage *o, const ups_task *task) {
    if (o->config->op.initial != UPS_INITIAL_AUTO) return o->config->op.initial == UPS_INITIAL_LINEAR;
    return !task->uneven && task->config->stride_count < 2 && !ups_task_parameters_differ(task);
}

/* Whether it begins as the map that was found: where that explains nearly all. Elsewhere training gets to its weights
 * soon, and rollouts of waves, which it extrapolates, are less stable for it. */
static bool begins_linear(const operator_stage *o, const ups_task *task, const ups_one_step *step) {
    static const double enough = 0.75;
    const bool wanted = o->config->op.initial == UPS_INITIAL_LINEAR;
    const bool begins = step->linear && (wanted || step->explained >= enough);
    if (begins)
        ups_log(UPS_LOG_INFO, "operator: %s: begins as a linear map, which explains %.0f %% of what a step changes",
                task->name, 100 * step->explained);
    else if (wanted)
        ups_log(UPS_LOG_WARNING, "operator: %s: begins as persistence: there is too little to find a linear map on",
                task->name);
    return begins;
}

/* What a step of the variant's stride changes. Of the task's own stride, the first variant, also what the operator
 * begins as: the linear map that comes closest to that. */
static ups_status set_step(const operator_stage *o, int task, int variant, ups_parameters *parameters,
                           ups_error *error) {
    const ups_operator_options options = ups_latent_windows_options(&o->windows, task, variant);
    const ups_token_grid *grid = &options.grid;
    ups_one_step_of of = {.times = o->tasks->task[task].geometry.times,
                          .shape = ups_task_latents(o->config, &o->tasks->task[task]),
                          .stride = ups_latent_windows_stride(&o->windows, task, variant),
                          .bundle = options.bundle,
                          .with_map = variant == 0 && may_begin_linear(o, &o->tasks->task[task]),
                          .periodic = grid->periodic};
    if (ups_operator_reads_neighbors(&options)) of.dims = grid->dims;
    memcpy(of.cells, grid->cells, sizeof of.cells);
    ups_one_step step;
    char name[128];
    ups_status status = ups_one_step_find(o->windows.sources[UPS_SPLIT_TRAIN][task], &of, &step, error);
    if (status != UPS_OK) return ups_fail_within(error, "task %s", options.grid.task);
    status = ups_parameters_set(parameters, name_of_step(&options, "change", name), step.change, error);
    const bool begins = of.with_map && begins_linear(o, &o->tasks->task[task], &step);
    for (int i = 0; i < 2 && status == UPS_OK && begins; i++) {
        snprintf(name, sizeof name, "operator.%s.skip.%s", options.grid.task, i == 0 ? "weight" : "bias");
        status = ups_parameters_set(parameters, name, i == 0 ? step.weight : step.bias, error);
    }
    if (status == UPS_OK && options.history > 1) { /* what never changes says nothing */
        for (int64_t d = 0; d < options.dim; d++) step.change[d] = step.change[d] > 0 ? 1 / step.change[d] : 0;
        status = ups_parameters_set(parameters, name_of_step(&options, "rate", name), step.change, error);
    }
    ups_one_step_free(&step);
    return status;
}

/* Where each sample has points of its own, how a state tells where they lie. */
static ups_status set_geometry(const operator_stage *o, int index, ups_parameters *parameters, ups_error *error) {
    const ups_task *task = &o->tasks->task[index];
    const int64_t dim = ups_task_latents(o->config, task).dim;
    const int64_t numbers = task->geometry.points->dims * (1 + task->patch[0]);
    char weight[128], bias[128];
    snprintf(weight, sizeof weight, "operator.%s.geometry.weight", task->name);
    snprintf(bias, sizeof bias, "operator.%s.geometry.bias", task->name);
    if (ups_parameters_find(parameters, weight) < 0) return UPS_OK; /* nothing asks where tokens lie */
    float *map = malloc((size_t)(numbers * (dim + 1)) * sizeof *map);
    if (!map) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    ups_status status = ups_own_points_find(o->config, o->tasks, index, o->windows.sources[UPS_SPLIT_TRAIN][index], map,
                                            map + numbers * dim, error);
    if (status == UPS_OK) status = ups_parameters_set(parameters, weight, map, error);
    if (status == UPS_OK) status = ups_parameters_set(parameters, bias, map + numbers * dim, error);
    free(map);
    return status;
}

static ups_status initialise(void *context, ups_parameters *parameters, ups_error *error) {
    const operator_stage *o = context;
    for (int t = 0; t < o->tasks->count && ups_run_on_grid(o->config); t++) {
        const ups_points *points = o->tasks->task[t].geometry.points;
        if (points && points->own) UPS_TRY(set_geometry(o, t, parameters, error));
        for (int v = 0; v < ups_latent_windows_variants(o, t); v++) UPS_TRY(set_step(o, t, v, parameters, error));
        if (o->config->model.core.conserve) UPS_TRY(set_conserved(o, t, parameters, error));
    }
    return UPS_OK;
}

static ups_status find_origin(const void *context, json_t **origin, ups_error *error) {
    const operator_stage *o = context;
    char hash[33];
    UPS_TRY(ups_run_autoencoder_hash(o->config, hash, error));
    *origin = ups_origin_operator(o->config, o->tasks, hash);
    return *origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static json_t *describe_model(const void *context) {
    const operator_stage *o = context;
    return ups_described_tell(o->config, o->tasks);
}

/* ---- the stage ------------------------------------------------------------------------------------------------- */

static ups_stage_description describe(operator_stage *o, const ups_stage_request *request) {
    const ups_operator_stage_config *config = &request->session->config->op;
    *o = (operator_stage){.windows = {.request = request,
                                      .applications = rolls_out(config) ? config->rollout_steps : 1,
                                      .consistent = config->training.losses[UPS_OPERATOR_SEMIGROUP].weight > 0},
                          .config = request->session->config,
                          .tasks = request->session->tasks};
    const bool alike = ups_latent_windows_begin(&o->windows);
    return (ups_stage_description){
        .stage = UPS_STAGE_OPERATOR,
        .on_damage = "the cache is damaged (`ups cache verify` lists where; `ups cache verify --repair` repairs it)",
        .training = &config->training,
        .batches = UPS_F16, /* as caches hold them */
        .one_task_per_batch = !alike || (ups_run_on_grid(o->config) && o->tasks->count > 1),
        .staged_losses = ROLLOUTS,
        .parts = (int)config->rollout_curriculum_count + 1,
        .part = find_part,
        .context = o,
        .variants = ups_latent_windows_variants,
        .draw_variant = ups_latent_windows_draw_variant,
        .kind = ups_latent_windows_kind,
        .build = build,
        .load = ups_latent_windows_load,
        .measure_encoders = ups_latent_windows_measure_encoders,
        .prepare = ups_latent_windows_prepare,
        .find_samples = ups_latent_windows_find_samples,
        .upload = ups_latent_windows_upload,
        .initialise = initialise,
        .find_origin = find_origin,
        .describe_model = describe_model};
}

static void release(operator_stage *o) {
    ups_latent_windows_release(&o->windows);
    ups_field_maps_free(o->fields);
}

/* The operator that is trained is one that can be evaluated. */
static ups_status check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    UPS_TRY(ups_latent_windows_check(config, tasks, error));
    UPS_TRY(ups_windows_check(config, tasks, error));
    UPS_TRY(ups_symmetries_check(config, tasks, error));
    UPS_TRY(ups_field_losses_check(config, tasks, error));
    return ups_evaluation_check(config, tasks, error);
}

static ups_status plan(const ups_stage_request *request, ups_stage_plan *made, ups_error *error) {
    operator_stage o;
    ups_stage_description stage = describe(&o, request);
    ups_status status = ups_stage_training_plan(&stage, request, made, error);
    release(&o);
    return status;
}

/* The cache must have been made by this run's encoder; without one, latents are encoded on the fly. */
static ups_status run(const ups_stage_request *request, ups_error *error) {
    operator_stage o;
    ups_stage_description stage = describe(&o, request);
    ups_latent_windows_say(&o.windows, UPS_STAGE_OPERATOR);
    ups_windows_say(o.config, o.tasks);
    ups_symmetries_say(o.config, o.tasks);
    ups_status status = UPS_OK;
    if (ups_field_losses_wanted(o.config) || o.config->op.augment == UPS_AUGMENT_SYMMETRIES)
        status = ups_field_maps_load(o.config, o.tasks, &o.fields, error);
    if (status == UPS_OK) status = ups_stage_training_run(&stage, request, error);
    release(&o);
    return status;
}

extern const ups_stage_class ups_stage_operator;
const ups_stage_class ups_stage_operator = {
    .depends_on = 1u << UPS_STAGE_AUTOENCODER, .check = check, .plan = plan, .run = run};
