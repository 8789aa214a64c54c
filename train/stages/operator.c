/* Stage `operator`: the latent operator trained on latents of all tasks together: cached ones, or such as are encoded
 * on the fly.
 *
 * A window is the frames that the operator reads (model.operator.history) and those that it is to predict: one
 * application's (model.operator.bundle), or for the rollout losses those of `rollout_steps` applications, fewer where a
 * task's trajectories are shorter (Darcy's have two frames). Tasks whose windows have the same length share one graph
 * and mix within a batch; otherwise a batch holds one task. There is a graph for every window length and every set of
 * losses that falls due. A curriculum (`rollout_curriculum`) begins with shorter rollouts: the loader's windows are as
 * long as the longest, and what a shorter one needs of them goes to the device.
 *
 * A rollout begins with fewer frames than a history has, and repeats the first. Of a share of the windows,
 * `short_history`, the operator is shown it in the same way: 1 to history − 1 of the frames, equally often.
 *
 * Where a task has several strides, the loader's windows reach as far as the longest window of any stride does, in
 * steps of their greatest common divisor. Each micro-batch draws its stride, and of each of its windows where in it the
 * stride's own window begins; only that goes to the device. So the order of samples knows nothing of strides. */
#include "base/half.h"
#include "base/log.h"
#include "base/random.h"
#include "pipeline/convert.h"
#include "train/data/encoding/encoding_source.h"
#include "train/data/latents.h"
#include "train/data/origin.h"
#include "train/networks.h"
#include "train/objectives/field_losses.h"
#include "train/objectives/semigroup.h"
#include "train/objectives/windows.h"
#include "train/portable/described.h"
#include "train/stages/conserved.h"
#include "train/stages/training/training.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATENTS, DT, PARAMETERS, TASK, UNKNOWN };
enum { CHANGE_SAMPLES = 64 };
enum { ROLLOUTS = 1 << UPS_OPERATOR_ROLLOUT | 1 << UPS_OPERATOR_ROLLOUT_RELATIVE | 1 << UPS_OPERATOR_ROLLOUT_DECODED };

typedef struct operator_stage {
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    ups_operator_options options;
    int64_t window[UPS_SAMPLER_MAX_TASKS][UPS_MAX_STRIDES]; /* frames of a task's windows, by variant: its strides */
    int64_t given[UPS_SAMPLER_MAX_TASKS];                   /* of these, those that the operator is given */
    int64_t bundle[UPS_SAMPLER_MAX_TASKS];                  /* and that it gives at once */
    int64_t *places;                                        /* (batch): where windows begin in what was read */
    float *dt, *condition, *one_hot;                        /* a batch's, in host memory of the device's own */
    float *unknown;                                         /* likewise */
    ups_source **sources[UPS_SPLIT_COUNT];                  /* latents of a split, by task; NULL where not opened */
    bool encodes[UPS_SPLIT_COUNT][UPS_SAMPLER_MAX_TASKS];
    ups_encoder_pool *encoders; /* NULL where all latents are cached */
    ups_field_maps *fields;     /* NULL where no loss is one of decoded fields, and for a plan */
} operator_stage;

/* ---- strides --------------------------------------------------------------------------------------------------- */

static int variants(const void *context, int task) {
    const operator_stage *o = context;
    const ups_task_config *config = o->tasks->task[task].config;
    return config->stride_count > 0 ? (int)config->stride_count : 1;
}

/* The first variant is the task's `stride`, which validation takes. */
static int64_t stride_of(const operator_stage *o, int task, int variant) {
    const ups_task_config *config = o->tasks->task[task].config;
    if (variant == 0) return config->stride;
    for (unsigned i = 0; i < config->stride_count; i++) {
        if (config->strides[i] != config->stride && --variant == 0) return config->strides[i];
    }
    return config->stride;
}

/* Of the loader's windows: stored frames from one to the next. */
static int64_t spacing(const operator_stage *o, int task) {
    int64_t common = o->tasks->task[task].config->stride;
    for (int v = 1; v < variants(o, task); v++) {
        for (int64_t other = stride_of(o, task, v); other != 0;) {
            int64_t rest = common % other;
            common = other;
            other = rest;
        }
    }
    return common;
}

/* From the first frame of a stride's window to its last, in the loader's frames. */
static int64_t reach(const operator_stage *o, int task, int variant) {
    return (o->window[task][variant] - 1) * (stride_of(o, task, variant) / spacing(o, task));
}

static int64_t loaded_frames(const operator_stage *o, int task) {
    int64_t furthest = 0;
    for (int v = 0; v < variants(o, task); v++) {
        if (reach(o, task, v) > furthest) furthest = reach(o, task, v);
    }
    return furthest + 1;
}

/* What is drawn for a batch beside how much of a history is known, which takes the numbers below. */
enum { STRIDE_DRAW = 1 << 30 };

static int draw_variant(const void *context, int task, const ups_stage_draw *draw) {
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    return (int)ups_random_below(stream, STRIDE_DRAW, (uint64_t)variants(context, task));
}

static ups_operator_options options_of(const operator_stage *o, int task, int variant) {
    ups_operator_options options = ups_run_operator(o->config, o->tasks, &o->tasks->task[task]);
    if (options.grid.stride > 0) options.grid.stride = stride_of(o, task, variant);
    return options;
}

/* Whether a loss holds one step of twice the length against two: of a steady problem there are none. */
static bool is_consistent(const operator_stage *o, int task) {
    return o->config->op.training.losses[UPS_OPERATOR_SEMIGROUP].weight > 0 &&
           ups_task_steps(&o->tasks->task[task]) > 1;
}

static int64_t kind(const void *context, int task, int variant) {
    const operator_stage *o = context;
    int64_t shared = ups_run_on_grid(o->config) ? task : 2 * o->window[task][variant] + is_consistent(o, task);
    return shared * UPS_MAX_STRIDES + variant;
}

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
    const int64_t longest = o->window[task][variant];
    if (!rolls_out(config) || part >= (int)config->rollout_curriculum_count) return longest;
    const int64_t window = o->given[task] + config->rollout_curriculum[part] * o->bundle[task];
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

/* The frames that the operator reads, from the first ones of the latents: what `unknown` says −1 of repeats the frame
 * after it. */
static void build_given(ups_stage_graph *made, const ups_operator_options *options, ups_value window,
                        ups_value *given) {
    ups_graph *g = made->graph;
    const int last = options->history - 1;
    given[last] = ups_select_frame(g, window, last);
    if (last == 0) return;
    const int64_t batch = ups_graph_info(g, given[last])->shape.size[0], dim = options->dim;
    made->inputs[UNKNOWN] = ups_graph_input(g, "unknown", UPS_F32, UPS_SHAPE(batch, last * dim));
    const float *zeros = UPS_ARENA_ARRAY(g->arena, float, batch *dim);
    ups_value none = ups_graph_constant(g, "nothing", UPS_F32, UPS_SHAPE(batch, dim), zeros);
    for (int i = last - 1; i >= 0; i--) {
        ups_value frame = ups_select_frame(g, window, i);
        ups_value change = ups_add(g, frame, ups_scale(g, given[i + 1], -1, UPS_NO_VALUE));
        change = ups_modulate(g, change, ups_slice(g, made->inputs[UNKNOWN], i * dim, dim), none);
        given[i] = ups_add(g, given[i + 1], change);
    }
}

/* How many times of steps a graph is told: of all its applications of the operator, or one where all are the same.
 * Tasks of a fixed number of tokens share their graphs. */
static int64_t told_times(const operator_stage *o, int task, int64_t applications) {
    bool uneven = o->tasks->task[task].uneven;
    for (int t = 0; t < o->tasks->count && !ups_run_on_grid(o->config); t++)
        uneven = uneven || o->tasks->task[t].uneven;
    return uneven ? applications : 1;
}

static void build(const void *context, int task, int64_t batch, ups_stage_graph *made) {
    const operator_stage *o = context;
    const ups_task *first = &o->tasks->task[task];
    const ups_latent_shape shape = ups_task_latents(o->config, first);
    ups_operator_options options = options_of(o, task, made->variant);
    options.pushforward = o->config->op.pushforward;
    const int64_t window = window_of(o, task, made->variant, (int)(made->losses >> UPS_STAGE_PART_SHIFT));
    ups_graph *g = made->graph;
    ups_value stored = ups_graph_input(g, "latents", UPS_F16, UPS_SHAPE(batch, window, shape.tokens, shape.dim));
    ups_value latents = ups_cast(g, stored, UPS_F32);
    const int steps = made->losses & ROLLOUTS ? (int)window - options.history : options.bundle;
    const int64_t times = told_times(o, task, steps / options.bundle);
    ups_value dt = ups_graph_input(g, "dt", UPS_F32, UPS_SHAPE(batch, times)), parameters = UPS_NO_VALUE,
              one_hot = UPS_NO_VALUE;
    if (o->options.parameter_count > 0) {
        parameters = ups_graph_input(g, "parameters", UPS_F32, UPS_SHAPE(batch, o->options.parameter_count));
    }
    if (o->options.task_count > 0) {
        one_hot = ups_graph_input(g, "task", UPS_F32, UPS_SHAPE(batch, o->options.task_count));
    }
    made->inputs[LATENTS] = stored;
    made->inputs[DT] = dt;
    made->inputs[PARAMETERS] = parameters;
    made->inputs[TASK] = one_hot;
    latents = ups_windows_shift(g, o->config, first, latents);
    ups_value given[UPS_MAX_HISTORY], *states = UPS_ARENA_ARRAY(g->arena, ups_value, steps);
    build_given(made, &options, latents, given);
    given[options.history - 1] = ups_windows_noise(g, o->config, first, &options, given[options.history - 1]);
    ups_operator_rollout(g, &options, given, dt, parameters, one_hot, steps / options.bundle, states);
    build_losses(o, made, &options, latents, states, steps);
    if (made->losses & 1u << UPS_OPERATOR_SEMIGROUP && is_consistent(o, task)) {
        ups_semigroup_add(g, &made->objective, &options, &(ups_semigroup_input){given[0], dt, parameters, one_hot},
                          states, steps, o->config->op.training.losses[UPS_OPERATOR_SEMIGROUP].weight);
    }
    ups_field_losses_add(o->config, o->tasks, task, o->fields, made->losses, g, &made->objective,
                         &(ups_field_window){latents, options.history, options.bundle}, states, steps);
}

/* ---- samples and batches --------------------------------------------------------------------------------------- */

static ups_loader_load load(const void *context, int index, ups_split split) {
    const operator_stage *o = context;
    const ups_task *task = &o->tasks->task[index];
    ups_loader_load load = {.frames = loaded_frames(o, index),
                            .stride = spacing(o, index),
                            .frame_elements = ups_task_latent_elements(o->config, task),
                            .dtype = UPS_F16};
    load.limits = o->encodes[split][index] ? ups_encoding_limits(o->config, task, task->geometry.times)
                                           : ups_latents_limits(o->config, task);
    return load;
}

static ups_status measure_encoders(const void *context, size_t *bytes, ups_error *error) {
    const operator_stage *o = context;
    return ups_encoder_pool_measure(o->request->session, bytes, error);
}

static ups_status prepare(void *context, int64_t batch, ups_error *error) {
    operator_stage *o = context;
    ups_device *device = o->request->session->device;
    const size_t row = (size_t)batch * sizeof(float);
    size_t parameters = row * (size_t)(o->options.parameter_count + 1),
           tasks = row * (size_t)(o->options.task_count + 1);
    int64_t longest = 1; /* window: more than times that a graph is told */
    for (int t = 0; t < o->tasks->count; t++) {
        for (int v = 0; v < variants(o, t); v++) longest = o->window[t][v] > longest ? o->window[t][v] : longest;
    }
    UPS_TRY(device->class->allocate_host(device, row * (size_t)longest, (void **)&o->dt, error));
    UPS_TRY(device->class->allocate_host(device, parameters, (void **)&o->condition, error));
    if (o->options.history > 1) {
        int64_t widest = 0; /* numbers of a token */
        for (int t = 0; t < o->tasks->count; t++) {
            int64_t dim = ups_task_latents(o->config, &o->tasks->task[t]).dim;
            if (dim > widest) widest = dim;
        }
        size_t unknown = row * (size_t)((o->options.history - 1) * widest);
        UPS_TRY(device->class->allocate_host(device, unknown, (void **)&o->unknown, error));
    }
    o->places = calloc((size_t)batch, sizeof *o->places);
    if (!o->places) return ups_fail(error, UPS_ERR_MEMORY, "operator: no memory for its tables");
    return device->class->allocate_host(device, tasks, (void **)&o->one_hot, error);
}

static ups_status find_samples(void *context, int index, ups_split split, ups_loader_task *entry, ups_error *error) {
    operator_stage *o = context;
    const ups_task *task = &o->tasks->task[index];
    size_t count = (size_t)o->tasks->count;
    if (!o->sources[split]) o->sources[split] = calloc(count, sizeof(ups_source *));
    if (!o->sources[split]) return ups_fail(error, UPS_ERR_MEMORY, "operator: no memory for its tables");
    ups_source **source = &o->sources[split][index];
    if (o->encodes[split][index]) {
        if (!o->encoders) UPS_TRY(ups_encoder_pool_open(o->request->session, &o->encoders, error));
        UPS_TRY(ups_encoding_source_open(o->encoders, task, split, source, error));
    } else {
        UPS_TRY(ups_latents_open(o->config, task, split, source, error));
    }
    entry->source = *source;
    entry->sample_count = (*source)->count;
    entry->window = loaded_frames(o, index);
    entry->stride = spacing(o, index);
    return UPS_OK;
}

/* Of a batch of one task: (windows, history − 1, dim) zeros, and −1 for frames that a window is not shown. */
static int64_t draw_unknown(operator_stage *o, int task, int64_t windows, const ups_stage_draw *draw) {
    const ups_operator_options options = ups_run_operator(o->config, o->tasks, &o->tasks->task[task]);
    const int64_t earlier = options.history - 1, dim = options.dim;
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    for (int64_t b = 0; b < windows && earlier > 0; b++) {
        bool is_short = ups_random_uniform(stream, 2 * (uint64_t)b) < o->config->op.short_history;
        int64_t unknown = 1 + (int64_t)ups_random_below(stream, 2 * (uint64_t)b + 1, (uint64_t)earlier);
        if (!is_short) unknown = 0;
        for (int64_t i = 0; i < earlier * dim; i++) o->unknown[b * earlier * dim + i] = i < unknown * dim ? -1 : 0;
    }
    return earlier * dim;
}

/* Where each of a batch's windows begins, within the frames that were read: drawn where a task has several strides. */
static const int64_t *draw_places(operator_stage *o, int task, const ups_stage_graph *graph, const ups_batch *batch,
                                  const ups_stage_draw *draw) {
    if (variants(o, task) == 1) return NULL;
    const int64_t places = batch->frames - reach(o, task, graph->variant);
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    for (int64_t b = 0; b < batch->windows; b++)
        o->places[b] = (int64_t)ups_random_below(stream, STRIDE_DRAW + 1 + (uint64_t)b, (uint64_t)places);
    return o->places;
}

/* Of a window whose first frame is `place` of those that were read: the time of a step of the operator's application
 * number `application`, from the last frame that it reads to the first that it gives. */
static double step_time(const operator_stage *o, int task, int variant, const ups_window *window, int64_t place,
                        int64_t application) {
    const int64_t stride = stride_of(o, task, variant), read = o->given[task] - 1 + application * o->bundle[task];
    const int64_t last = place * spacing(o, task) + read * stride;
    return window->time[last + stride] - window->time[last];
}

static ups_status upload(void *context, ups_stage_graph *graph, const ups_batch *batch, ups_feed *feed,
                         const int *task_of, const ups_stage_draw *draw, ups_error *error) {
    operator_stage *o = context;
    int64_t parameters = o->options.parameter_count, tasks = o->options.task_count;
    const int first = task_of[batch->window[0].task];
    const int64_t *places = draw_places(o, first, graph, batch, draw);
    const int64_t step = stride_of(o, first, graph->variant) / spacing(o, first);
    const int64_t times = ups_shape_last(ups_graph_info(graph->graph, graph->inputs[DT])->shape);
    for (int64_t b = 0; b < batch->windows; b++) {
        const ups_window *window = &batch->window[b];
        int task = task_of[window->task];
        for (int64_t i = 0; i < times; i++)
            o->dt[b * times + i] = (float)step_time(o, task, graph->variant, window, places ? places[b] : 0, i);
        ups_task_condition(&o->tasks->task[task], window->parameters, (int)parameters, o->condition + b * parameters);
        for (int64_t t = 0; t < tasks; t++) o->one_hot[b * tasks + t] = t == task ? 1 : 0;
    }
    size_t rows = (size_t)batch->windows * sizeof(float);
    const int64_t frames = ups_graph_info(graph->graph, graph->inputs[LATENTS])->shape.size[1];
    UPS_TRY(ups_feed_upload(feed, graph->step, graph->inputs[LATENTS], places, frames, step, error));
    UPS_TRY(ups_step_upload(graph->step, graph->inputs[DT], o->dt, rows * (size_t)times, error));
    if (parameters > 0) {
        UPS_TRY(
            ups_step_upload(graph->step, graph->inputs[PARAMETERS], o->condition, rows * (size_t)parameters, error));
    }
    if (tasks > 0) {
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[TASK], o->one_hot, rows * (size_t)tasks, error));
    }
    int64_t unknown = draw_unknown(o, first, batch->windows, draw);
    if (unknown > 0)
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[UNKNOWN], o->unknown, rows * (size_t)unknown, error));
    return UPS_OK;
}

/* Root mean square of what `bundle` steps of a stride change in each number of a token, over training trajectories:
 * (bundle, dim), after one step, after two … */
static ups_status measure_change(const operator_stage *o, int index, int64_t stride, int bundle, float *change,
                                 ups_error *error) {
    const ups_task *task = &o->tasks->task[index];
    const ups_source *source = o->sources[UPS_SPLIT_TRAIN][index];
    const ups_latent_shape shape = ups_task_latents(o->config, task);
    int64_t times = task->geometry.times, each = shape.tokens * shape.dim, counted = 0;
    const int64_t dim = shape.dim;
    int64_t wanted = source->count < CHANGE_SAMPLES ? source->count : CHANGE_SAMPLES;
    ups_f16 *stored = malloc((size_t)(times * each) * sizeof *stored);
    float *latents = malloc((size_t)(times * each) * sizeof *latents);
    double *squares = calloc((size_t)(bundle * dim), sizeof *squares);
    ups_status status = stored && latents && squares
                            ? UPS_OK
                            : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for a trajectory", task->name);
    for (int64_t i = 0; i < wanted && status == UPS_OK; i++) {
        status = ups_source_read(source, i * source->count / wanted, (ups_frames){0, times}, stored, error);
        if (status != UPS_OK || !ups_convert(stored, UPS_F16, latents, UPS_F32, (size_t)(times * each))) continue;
        for (int64_t k = 1; k <= bundle; k++) {
            for (int64_t at = 0; at < (times - k * stride) * each; at++) {
                double step = (double)latents[at + k * stride * each] - (double)latents[at];
                squares[(k - 1) * dim + at % dim] += step * step;
            }
        }
        counted++;
    }
    for (int64_t i = 0; i < bundle * dim && status == UPS_OK; i++) {
        double seen = (double)counted * (double)(times - (i / dim + 1) * stride) * (double)shape.tokens;
        change[i] = seen > 0 ? (float)sqrt(squares[i] / seen) : 1;
    }
    free(stored);
    free(latents);
    free(squares);
    return status;
}

/* What stays the same on average over the domain, which predictions then keep (model.operator.conserve). */
static ups_status set_conserved(const operator_stage *o, int index, ups_parameters *parameters, ups_error *error) {
    const ups_task *task = &o->tasks->task[index];
    const ups_latent_shape shape = ups_task_latents(o->config, task);
    char name[128];
    snprintf(name, sizeof name, "operator.%s.kept", task->name);
    ups_conserved found = {.kept = malloc((size_t)(shape.dim * shape.dim) * sizeof *found.kept)};
    if (!found.kept) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    ups_status status = ups_conserved_find(o->sources[UPS_SPLIT_TRAIN][index], task->geometry.times, shape.tokens,
                                           shape.dim, &found, error);
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

static ups_status set_change(const operator_stage *o, int task, int variant, ups_parameters *parameters,
                             ups_error *error) {
    const ups_operator_options options = options_of(o, task, variant);
    char name[128];
    float *change = malloc((size_t)(options.bundle * options.dim) * sizeof *change);
    if (!change) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", options.grid.task);
    ups_status status = measure_change(o, task, stride_of(o, task, variant), options.bundle, change, error);
    if (status == UPS_OK)
        status = ups_parameters_set(parameters, name_of_step(&options, "change", name), change, error);
    if (status == UPS_OK && options.history > 1) { /* what never changes says nothing */
        for (int64_t d = 0; d < options.dim; d++) change[d] = change[d] > 0 ? 1 / change[d] : 0;
        status = ups_parameters_set(parameters, name_of_step(&options, "rate", name), change, error);
    }
    free(change);
    return status;
}

static ups_status initialise(void *context, ups_parameters *parameters, ups_error *error) {
    const operator_stage *o = context;
    for (int t = 0; t < o->tasks->count && ups_run_on_grid(o->config); t++) {
        for (int v = 0; v < variants(o, t); v++) UPS_TRY(set_change(o, t, v, parameters, error));
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

/* Of a trajectory at a variant's stride. */
static int64_t frames_at(const operator_stage *o, int task, int variant) {
    return (o->tasks->task[task].geometry.times - 1) / stride_of(o, task, variant) + 1;
}

/* Frames of a task's windows: as many as the losses want and its trajectories have, in steps of its stride. Whether
 * they are all of one length, and have the same losses. */
static bool find_windows(operator_stage *o) {
    bool alike = true;
    for (int t = 0; t < o->tasks->count; t++) {
        const ups_operator_options options = ups_run_operator(o->config, o->tasks, &o->tasks->task[t]);
        for (int v = 0; v < variants(o, t); v++) {
            int64_t bundle = options.bundle, possible = (frames_at(o, t, v) - options.history) / bundle;
            int64_t wanted = rolls_out(&o->config->op) ? o->config->op.rollout_steps : 1;
            if (wanted > possible) wanted = possible < 1 ? 1 : possible; /* too few: check_windows says so */
            o->window[t][v] = options.history + wanted * bundle;
            o->given[t] = options.history;
            o->bundle[t] = bundle;
        }
        alike = alike && variants(o, t) == 1 && o->window[t][0] == o->window[0][0] &&
                is_consistent(o, t) == is_consistent(o, 0);
    }
    return alike;
}

static ups_status check_window(const operator_stage *o, int index, int variant, ups_error *error) {
    const ups_task *task = &o->tasks->task[index];
    const ups_operator_options options = ups_run_operator(o->config, o->tasks, task);
    const int64_t available = frames_at(o, index, variant), stride = stride_of(o, index, variant);
    if (o->window[index][variant] <= available) return UPS_OK;
    char remedy[80] = ""; /* variant 0 is the task's own stride, which stays */
    if (variant > 0)
        snprintf(remedy, sizeof remedy, "%sleave %lld out of tasks[].strides", available < 2 ? "; " : ", or ",
                 (long long)stride);
    if (available < 2)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: a stride of %lld leaves no step in trajectories of %lld frames%s", task->name,
                        (long long)stride, (long long)task->geometry.times, remedy);
    return ups_fail(error, UPS_ERR_CONFIG,
                    "task %s: trajectories of %lld frames (%lld at a stride of %lld) are shorter than a window of "
                    "%d + %d frames; lower model.operator.history or model.operator.bundle%s",
                    task->name, (long long)task->geometry.times, (long long)available, (long long)stride,
                    options.history, options.bundle, remedy);
}

static ups_status check_windows(const operator_stage *o, ups_error *error) {
    for (int t = 0; t < o->tasks->count; t++) {
        for (int v = 0; v < variants(o, t); v++) UPS_TRY(check_window(o, t, v, error));
    }
    return UPS_OK;
}

/* Which groups are encoded on the fly. */
static void choose_encoding(operator_stage *o) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int t = 0; t < o->tasks->count; t++) {
            bool cached = o->request->done & 1u << UPS_STAGE_CACHE && o->config->data.residency == UPS_RUN_AUTO;
            o->encodes[s][t] = !cached && ups_latents_encode(o->config, &o->tasks->task[t], (ups_split)s);
        }
    }
}

/* Says it in one sentence. */
static void say_encoding(const operator_stage *o) {
    const char *first = NULL, *split = NULL;
    for (int s = UPS_SPLIT_VALIDATION; s >= UPS_SPLIT_TRAIN; s--) {
        for (int t = o->tasks->count - 1; t >= 0; t--) {
            if (!o->encodes[s][t] || o->tasks->task[t].splits.count[s] == 0) continue;
            first = o->tasks->task[t].name;
            split = ups_split_name((ups_split)s);
        }
    }
    if (!first) return;
    if (o->config->data.residency == UPS_RUN_ENCODE)
        ups_log(UPS_LOG_INFO, "operator: fields are encoded on the fly (residency: encode)");
    else
        ups_log(UPS_LOG_INFO,
                "operator: the cache of %s/%s is not complete, so fields are encoded on the fly (`ups cache build` "
                "does that once for all runs)",
                first, split);
}

static ups_stage_description describe(operator_stage *o, const ups_stage_request *request) {
    const ups_operator_stage_config *config = &request->session->config->op;
    *o = (operator_stage){.request = request,
                          .config = request->session->config,
                          .tasks = request->session->tasks,
                          .options = ups_run_operator(request->session->config, request->session->tasks,
                                                      &request->session->tasks->task[0])};
    o->options.history = o->config->model.core.history; /* of any task */
    choose_encoding(o);
    return (ups_stage_description){
        .stage = UPS_STAGE_OPERATOR,
        .on_damage = "the cache is damaged (`ups cache verify` lists where; `ups cache verify --repair` repairs it)",
        .training = &config->training,
        .batches = UPS_F16, /* as caches hold them */
        .one_task_per_batch = !find_windows(o) || (ups_run_on_grid(o->config) && o->tasks->count > 1),
        .staged_losses = ROLLOUTS,
        .parts = (int)config->rollout_curriculum_count + 1,
        .part = find_part,
        .context = o,
        .variants = variants,
        .draw_variant = draw_variant,
        .kind = kind,
        .build = build,
        .load = load,
        .measure_encoders = measure_encoders,
        .prepare = prepare,
        .find_samples = find_samples,
        .upload = upload,
        .initialise = initialise,
        .find_origin = find_origin,
        .describe_model = describe_model};
}

static void release(operator_stage *o) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int t = 0; o->sources[s] && t < o->tasks->count; t++) ups_source_close(o->sources[s][t]);
        free(o->sources[s]);
    }
    ups_encoder_pool_close(o->encoders);
    ups_field_maps_free(o->fields);
    ups_device *device = o->request->session->device;
    if (o->dt) device->class->release_host(device, o->dt);
    if (o->condition) device->class->release_host(device, o->condition);
    if (o->one_hot) device->class->release_host(device, o->one_hot);
    if (o->unknown) device->class->release_host(device, o->unknown);
    free(o->places);
}

/* What can only be held against the tasks. */
static ups_status check_training(const operator_stage *o, ups_error *error) {
    UPS_TRY(check_windows(o, error));
    UPS_TRY(ups_windows_check(o->config, o->tasks, error));
    return ups_field_losses_check(o->config, o->tasks, error);
}

static ups_status plan(const ups_stage_request *request, ups_stage_plan *made, ups_error *error) {
    operator_stage o;
    ups_stage_description stage = describe(&o, request);
    ups_status status = check_training(&o, error);
    if (status == UPS_OK) status = ups_stage_training_plan(&stage, request, made, error);
    release(&o);
    return status;
}

/* The cache must have been made by this run's encoder; without one, latents are encoded on the fly. */
static ups_status run(const ups_stage_request *request, ups_error *error) {
    operator_stage o;
    ups_stage_description stage = describe(&o, request);
    say_encoding(&o);
    ups_windows_say(o.config, o.tasks);
    ups_status status = check_training(&o, error);
    if (status == UPS_OK && ups_field_losses_wanted(o.config))
        status = ups_field_maps_load(o.config, o.tasks, &o.fields, error);
    if (status == UPS_OK) status = ups_stage_training_run(&stage, request, error);
    release(&o);
    return status;
}

extern const ups_stage_class ups_stage_operator;
const ups_stage_class ups_stage_operator = {.depends_on = 1u << UPS_STAGE_AUTOENCODER, .plan = plan, .run = run};
