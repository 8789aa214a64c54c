#include "train/stages/latent_windows.h"

#include "base/log.h"
#include "base/random.h"
#include "train/data/encoding/encoding_source.h"
#include "train/networks.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- strides --------------------------------------------------------------------------------------------------- */

int ups_latent_windows_variants(const void *context, int task) {
    const ups_latent_windows *w = context;
    const ups_task_config *config = w->tasks->task[task].config;
    return config->stride_count > 0 ? (int)config->stride_count : 1;
}

int64_t ups_latent_windows_stride(const ups_latent_windows *w, int task, int variant) {
    const ups_task_config *config = w->tasks->task[task].config;
    if (variant == 0) return config->stride;
    for (unsigned i = 0; i < config->stride_count; i++) {
        if (config->strides[i] != config->stride && --variant == 0) return config->strides[i];
    }
    return config->stride;
}

/* Of the loader's windows: stored frames from one to the next. */
static int64_t spacing(const ups_latent_windows *w, int task) {
    int64_t common = w->tasks->task[task].config->stride;
    for (int v = 1; v < ups_latent_windows_variants(w, task); v++) {
        for (int64_t other = ups_latent_windows_stride(w, task, v); other != 0;) {
            int64_t rest = common % other;
            common = other;
            other = rest;
        }
    }
    return common;
}

/* From the first frame of a stride's window to its last, in the loader's frames. */
static int64_t reach(const ups_latent_windows *w, int task, int variant) {
    return (w->window[task][variant] - 1) * (ups_latent_windows_stride(w, task, variant) / spacing(w, task));
}

static int64_t loaded_frames(const ups_latent_windows *w, int task) {
    int64_t furthest = 0;
    for (int v = 0; v < ups_latent_windows_variants(w, task); v++) {
        if (reach(w, task, v) > furthest) furthest = reach(w, task, v);
    }
    return furthest + 1;
}

/* What is drawn for a batch beside how much of a history is known, which takes the numbers below. */
enum { STRIDE_DRAW = 1 << 30 };

int ups_latent_windows_draw_variant(const void *context, int task, const ups_stage_draw *draw) {
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    return (int)ups_random_below(stream, STRIDE_DRAW, (uint64_t)ups_latent_windows_variants(context, task));
}

ups_operator_options ups_latent_windows_options(const ups_latent_windows *w, int task, int variant) {
    ups_operator_options options = ups_run_operator(w->config, w->tasks, &w->tasks->task[task]);
    if (options.grid.stride > 0) options.grid.stride = ups_latent_windows_stride(w, task, variant);
    return options;
}

bool ups_latent_windows_consistent(const ups_latent_windows *w, int task) {
    return w->consistent && ups_task_steps(&w->tasks->task[task]) > 1;
}

int64_t ups_latent_windows_kind(const void *context, int task, int variant) {
    const ups_latent_windows *w = context;
    int64_t shared =
        ups_run_on_grid(w->config) ? task : 2 * w->window[task][variant] + ups_latent_windows_consistent(w, task);
    return shared * UPS_MAX_STRIDES + variant;
}

/* How many times of steps a graph is told: of all its applications of the operator, or one where all are the same.
 * Tasks of a fixed number of tokens share their graphs. */
static int64_t told_times(const ups_latent_windows *w, int task, int64_t applications) {
    bool uneven = w->tasks->task[task].uneven;
    for (int t = 0; t < w->tasks->count && !ups_run_on_grid(w->config); t++)
        uneven = uneven || w->tasks->task[t].uneven;
    return uneven ? applications : 1;
}

ups_value ups_latent_windows_inputs(const ups_latent_windows *w, int task, int64_t batch, int64_t frames, int64_t times,
                                    ups_stage_graph *made) {
    const ups_latent_shape shape = ups_task_latents(w->config, &w->tasks->task[task]);
    ups_graph *g = made->graph;
    ups_value *inputs = made->inputs, stored;
    stored = ups_graph_input(g, "latents", UPS_F16, UPS_SHAPE(batch, frames, shape.tokens, shape.dim));
    inputs[UPS_WINDOW_LATENTS] = stored;
    ups_value latents = ups_cast(g, stored, UPS_F32);
    inputs[UPS_WINDOW_DT] = ups_graph_input(g, "dt", UPS_F32, UPS_SHAPE(batch, told_times(w, task, times)));
    inputs[UPS_WINDOW_PARAMETERS] = inputs[UPS_WINDOW_TASK] = UPS_NO_VALUE;
    if (w->options.parameter_count > 0) {
        inputs[UPS_WINDOW_PARAMETERS] =
            ups_graph_input(g, "parameters", UPS_F32, UPS_SHAPE(batch, w->options.parameter_count));
    }
    if (w->options.task_count > 0)
        inputs[UPS_WINDOW_TASK] = ups_graph_input(g, "task", UPS_F32, UPS_SHAPE(batch, w->options.task_count));
    return latents;
}

void ups_latent_windows_given(ups_stage_graph *made, const ups_operator_options *options, ups_value window,
                              ups_value *given) {
    ups_graph *g = made->graph;
    const int last = options->history - 1;
    given[last] = ups_select_frame(g, window, last);
    if (last == 0) return;
    const int64_t batch = ups_graph_info(g, given[last])->shape.size[0], dim = options->dim;
    made->inputs[UPS_WINDOW_UNKNOWN] = ups_graph_input(g, "unknown", UPS_F32, UPS_SHAPE(batch, last * dim));
    const float *zeros = UPS_ARENA_ARRAY(g->arena, float, batch *dim);
    ups_value none = ups_graph_constant(g, "nothing", UPS_F32, UPS_SHAPE(batch, dim), zeros);
    for (int i = last - 1; i >= 0; i--) {
        ups_value frame = ups_select_frame(g, window, i);
        ups_value change = ups_add(g, frame, ups_scale(g, given[i + 1], -1, UPS_NO_VALUE));
        change = ups_modulate(g, change, ups_slice(g, made->inputs[UPS_WINDOW_UNKNOWN], i * dim, dim), none);
        given[i] = ups_add(g, given[i + 1], change);
    }
}

/* ---- samples and batches --------------------------------------------------------------------------------------- */

ups_loader_load ups_latent_windows_load(const void *context, int index, ups_split split) {
    const ups_latent_windows *w = context;
    const ups_task *task = &w->tasks->task[index];
    ups_loader_load load = {.frames = loaded_frames(w, index),
                            .stride = spacing(w, index),
                            .frame_elements = ups_task_latent_elements(w->config, task),
                            .dtype = UPS_F16};
    load.limits = w->encodes[split][index] ? ups_encoding_limits(w->config, task, task->geometry.times)
                                           : ups_latents_limits(w->config, task);
    return load;
}

ups_status ups_latent_windows_measure_encoders(const void *context, size_t *bytes, ups_error *error) {
    const ups_latent_windows *w = context;
    return ups_encoder_pool_measure(w->request->session, bytes, error);
}

ups_status ups_latent_windows_prepare(void *context, int64_t batch, ups_error *error) {
    ups_latent_windows *w = context;
    ups_device *device = w->request->session->device;
    const size_t row = (size_t)batch * sizeof(float);
    size_t parameters = row * (size_t)(w->options.parameter_count + 1),
           tasks = row * (size_t)(w->options.task_count + 1);
    int64_t longest = 1; /* window: more than times that a graph is told */
    for (int t = 0; t < w->tasks->count; t++) {
        for (int v = 0; v < ups_latent_windows_variants(w, t); v++)
            longest = w->window[t][v] > longest ? w->window[t][v] : longest;
    }
    UPS_TRY(device->class->allocate_host(device, row * (size_t)longest, (void **)&w->dt, error));
    UPS_TRY(device->class->allocate_host(device, parameters, (void **)&w->condition, error));
    if (w->options.history > 1) {
        int64_t widest = 0; /* numbers of a token */
        for (int t = 0; t < w->tasks->count; t++) {
            int64_t dim = ups_task_latents(w->config, &w->tasks->task[t]).dim;
            if (dim > widest) widest = dim;
        }
        size_t unknown = row * (size_t)((w->options.history - 1) * widest);
        UPS_TRY(device->class->allocate_host(device, unknown, (void **)&w->unknown, error));
    }
    w->places = calloc((size_t)batch, sizeof *w->places);
    if (!w->places) return ups_fail(error, UPS_ERR_MEMORY, "no memory for tables of windows");
    return device->class->allocate_host(device, tasks, (void **)&w->one_hot, error);
}

ups_status ups_latent_windows_find_samples(void *context, int index, ups_split split, ups_loader_task *entry,
                                           ups_error *error) {
    ups_latent_windows *w = context;
    const ups_task *task = &w->tasks->task[index];
    size_t count = (size_t)w->tasks->count;
    if (!w->sources[split]) w->sources[split] = calloc(count, sizeof(ups_source *));
    if (!w->sources[split]) return ups_fail(error, UPS_ERR_MEMORY, "no memory for tables of windows");
    ups_source **source = &w->sources[split][index];
    if (w->encodes[split][index]) {
        if (!w->encoders) UPS_TRY(ups_encoder_pool_open(w->request->session, &w->encoders, error));
        UPS_TRY(ups_encoding_source_open(w->encoders, task, split, source, error));
    } else {
        UPS_TRY(ups_latents_open(w->config, task, split, source, error));
    }
    entry->source = *source;
    entry->sample_count = (*source)->count;
    entry->window = loaded_frames(w, index);
    entry->stride = spacing(w, index);
    return UPS_OK;
}

/* Of a batch of one task: (windows, history − 1, dim) zeros, and −1 for frames that a window is not shown. */
static int64_t draw_unknown(ups_latent_windows *w, int task, int64_t windows, const ups_stage_draw *draw) {
    const ups_operator_options options = ups_run_operator(w->config, w->tasks, &w->tasks->task[task]);
    const int64_t earlier = options.history - 1, dim = options.dim;
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    for (int64_t b = 0; b < windows && earlier > 0; b++) {
        bool is_short = ups_random_uniform(stream, 2 * (uint64_t)b) < w->config->op.short_history;
        int64_t unknown = 1 + (int64_t)ups_random_below(stream, 2 * (uint64_t)b + 1, (uint64_t)earlier);
        if (!is_short) unknown = 0;
        for (int64_t i = 0; i < earlier * dim; i++) w->unknown[b * earlier * dim + i] = i < unknown * dim ? -1 : 0;
    }
    return earlier * dim;
}

/* Where each of a batch's windows begins, within the frames that were read: drawn where a task has several strides. */
static const int64_t *draw_places(ups_latent_windows *w, int task, const ups_stage_graph *graph, const ups_batch *batch,
                                  const ups_stage_draw *draw) {
    if (ups_latent_windows_variants(w, task) == 1) return NULL;
    const int64_t places = batch->frames - reach(w, task, graph->variant);
    ups_random stream = ups_random_stream(draw->seed, UPS_RANDOM_HISTORY, (uint32_t)draw->item);
    for (int64_t b = 0; b < batch->windows; b++)
        w->places[b] = (int64_t)ups_random_below(stream, STRIDE_DRAW + 1 + (uint64_t)b, (uint64_t)places);
    return w->places;
}

/* Of a window whose first frame is `place` of those that were read: the time of a step of the operator's application
 * number `application`, from the last frame that it reads to the first that it gives. */
static double step_time(const ups_latent_windows *w, int task, int variant, const ups_window *window, int64_t place,
                        int64_t application) {
    const int64_t stride = ups_latent_windows_stride(w, task, variant),
                  read = w->given[task] - 1 + application * w->bundle[task];
    const int64_t last = place * spacing(w, task) + read * stride;
    return window->time[last + stride] - window->time[last];
}

ups_status ups_latent_windows_upload(void *context, ups_stage_graph *graph, const ups_batch *batch, ups_feed *feed,
                                     const int *task_of, const ups_stage_draw *draw, ups_error *error) {
    ups_latent_windows *w = context;
    int64_t parameters = w->options.parameter_count, tasks = w->options.task_count;
    const int first = task_of[batch->window[0].task];
    const int64_t *places = draw_places(w, first, graph, batch, draw);
    const int64_t step = ups_latent_windows_stride(w, first, graph->variant) / spacing(w, first);
    const int64_t times = ups_shape_last(ups_graph_info(graph->graph, graph->inputs[UPS_WINDOW_DT])->shape);
    for (int64_t b = 0; b < batch->windows; b++) {
        const ups_window *window = &batch->window[b];
        int task = task_of[window->task];
        for (int64_t i = 0; i < times; i++)
            w->dt[b * times + i] = (float)step_time(w, task, graph->variant, window, places ? places[b] : 0, i);
        ups_task_condition(&w->tasks->task[task], window->parameters, (int)parameters, w->condition + b * parameters);
        for (int64_t t = 0; t < tasks; t++) w->one_hot[b * tasks + t] = t == task ? 1 : 0;
    }
    size_t rows = (size_t)batch->windows * sizeof(float);
    const int64_t frames = ups_graph_info(graph->graph, graph->inputs[UPS_WINDOW_LATENTS])->shape.size[1];
    UPS_TRY(ups_feed_upload(feed, graph->step, graph->inputs[UPS_WINDOW_LATENTS], places, frames, step, error));
    UPS_TRY(ups_step_upload(graph->step, graph->inputs[UPS_WINDOW_DT], w->dt, rows * (size_t)times, error));
    if (parameters > 0) {
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[UPS_WINDOW_PARAMETERS], w->condition,
                                rows * (size_t)parameters, error));
    }
    if (tasks > 0) {
        UPS_TRY(ups_step_upload(graph->step, graph->inputs[UPS_WINDOW_TASK], w->one_hot, rows * (size_t)tasks, error));
    }
    int64_t unknown = draw_unknown(w, first, batch->windows, draw);
    if (unknown > 0)
        UPS_TRY(
            ups_step_upload(graph->step, graph->inputs[UPS_WINDOW_UNKNOWN], w->unknown, rows * (size_t)unknown, error));
    return UPS_OK;
}

/* Of a trajectory at a variant's stride. */
static int64_t frames_at(const ups_latent_windows *w, int task, int variant) {
    return (w->tasks->task[task].geometry.times - 1) / ups_latent_windows_stride(w, task, variant) + 1;
}

/* Frames of a task's windows: as many as are wanted and its trajectories have, in steps of its stride. Whether they are
 * all of one length, and have the same losses. */
static bool find_windows(ups_latent_windows *w) {
    bool alike = true;
    for (int t = 0; t < w->tasks->count; t++) {
        const ups_operator_options options = ups_run_operator(w->config, w->tasks, &w->tasks->task[t]);
        for (int v = 0; v < ups_latent_windows_variants(w, t); v++) {
            int64_t bundle = options.bundle, possible = (frames_at(w, t, v) - options.history) / bundle;
            int64_t wanted = w->applications;
            if (wanted > possible) wanted = possible < 1 ? 1 : possible; /* too few: the check says so */
            w->window[t][v] = options.history + wanted * bundle;
            w->given[t] = options.history;
            w->bundle[t] = bundle;
        }
        alike = alike && ups_latent_windows_variants(w, t) == 1 && w->window[t][0] == w->window[0][0] &&
                ups_latent_windows_consistent(w, t) == ups_latent_windows_consistent(w, 0);
    }
    return alike;
}

static ups_status check_window(const ups_latent_windows *w, int index, int variant, ups_error *error) {
    const ups_task *task = &w->tasks->task[index];
    const ups_operator_options options = ups_run_operator(w->config, w->tasks, task);
    const int64_t available = frames_at(w, index, variant), stride = ups_latent_windows_stride(w, index, variant);
    if (options.history + options.bundle <= available) return UPS_OK;
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
                    "%d + %d frames; lower %s or model.operator.history%s",
                    task->name, (long long)task->geometry.times, (long long)available, (long long)stride,
                    options.history, options.bundle,
                    task->config->bundle > 0 ? "tasks[].bundle" : "model.operator.bundle", remedy);
}

ups_status ups_latent_windows_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    const ups_latent_windows w = {.config = config, .tasks = tasks};
    for (int t = 0; t < tasks->count; t++) {
        for (int v = 0; v < ups_latent_windows_variants(&w, t); v++) UPS_TRY(check_window(&w, t, v, error));
    }
    return UPS_OK;
}

/* Which groups are encoded on the fly. */
static void choose_encoding(ups_latent_windows *w) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int t = 0; t < w->tasks->count; t++) {
            bool cached = w->request->done & 1u << UPS_STAGE_CACHE && w->config->data.residency == UPS_RUN_AUTO;
            w->encodes[s][t] = !cached && ups_latents_encode(w->config, &w->tasks->task[t], (ups_split)s);
        }
    }
}

bool ups_latent_windows_begin(ups_latent_windows *w) {
    w->config = w->request->session->config;
    w->tasks = w->request->session->tasks;
    w->options = ups_run_operator(w->config, w->tasks, &w->tasks->task[0]);
    w->options.history = w->config->model.core.history;
    choose_encoding(w);
    return find_windows(w);
}

void ups_latent_windows_say(const ups_latent_windows *w, ups_stage stage) {
    const char *first = NULL, *split = NULL;
    for (int s = UPS_SPLIT_VALIDATION; s >= UPS_SPLIT_TRAIN; s--) {
        for (int t = w->tasks->count - 1; t >= 0; t--) {
            if (!w->encodes[s][t] || w->tasks->task[t].splits.count[s] == 0) continue;
            first = w->tasks->task[t].name;
            split = ups_split_name((ups_split)s);
        }
    }
    if (!first) return;
    if (w->config->data.residency == UPS_RUN_ENCODE)
        ups_log(UPS_LOG_INFO, "%s: fields are encoded on the fly (residency: encode)", ups_stage_name(stage));
    else
        ups_log(UPS_LOG_INFO,
                "%s: the cache of %s/%s is not complete, so fields are encoded on the fly (`ups cache build` does "
                "that once for all runs)",
                ups_stage_name(stage), first, split);
}

void ups_latent_windows_release(ups_latent_windows *w) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int t = 0; w->sources[s] && t < w->tasks->count; t++) ups_source_close(w->sources[s][t]);
        free(w->sources[s]);
    }
    ups_encoder_pool_close(w->encoders);
    ups_device *device = w->request->session->device;
    if (w->dt) device->class->release_host(device, w->dt);
    if (w->condition) device->class->release_host(device, w->condition);
    if (w->one_hot) device->class->release_host(device, w->one_hot);
    if (w->unknown) device->class->release_host(device, w->unknown);
    free(w->places);
}
