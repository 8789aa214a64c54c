/* A step at work: batches in, the calls of the schedule, results out. Nothing is allocated here, but what a device
 * makes of a captured run. */
#include "model/step/parts.h"

#include "base/system/threads.h"

/* ---- in and out -------------------------------------------------------------------------------------------------- */

void *ups_step_data(const ups_step *step, ups_value value) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, value));
    if (info->kind == UPS_VALUE_ACTIVATION && !info->keep) return NULL;
    return ups_step_value_address(step, value, INT32_MAX); /* as it is after the run */
}

static ups_status require_input(const ups_step *step, ups_value input, size_t bytes, ups_error *error) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, input));
    if (info->kind != UPS_VALUE_INPUT) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is no input of the graph", input);
    }
    if (bytes != ups_step_value_bytes(step->graph, input)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "input '%s' has %zu bytes; %zu were given", info->name,
                        ups_step_value_bytes(step->graph, input), bytes);
    }
    return UPS_OK;
}

/* Where an input is staged, once what was there has been taken. */
static ups_status open_staging(ups_step *step, ups_value input, void **to, ups_error *error) {
    staged_inputs *staging = &step->staging;
    if (!staging->filled) UPS_TRY(class_of(step)->stream_wait(step->device, UPS_STREAM_COPY, staging->consumed, error));
    staging->filled = true;
    *to = staging->memory + step->input_offsets[ups_graph_root(step->graph, input)];
    return UPS_OK;
}

ups_status ups_step_upload(ups_step *step, ups_value input, const void *host, size_t bytes, ups_error *error) {
    const ups_device_class *class = class_of(step);
    staged_inputs *staging = &step->staging;
    void *to;
    UPS_TRY(require_input(step, input, bytes, error));
    if (!staging->memory) {
        UPS_TRY(class->upload(step->device, ups_step_value_address(step, input, 0), host, bytes, error));
        return class->event_record(step->device, staging->uploaded, UPS_STREAM_COMPUTE, error);
    }
    UPS_TRY(open_staging(step, input, &to, error));
    UPS_TRY(class->upload_ahead(step->device, to, host, bytes, error));
    return class->event_record(step->device, staging->uploaded, UPS_STREAM_COPY, error);
}

ups_status ups_step_gather(ups_step *step, ups_value input, const void *const *rows, int64_t count, size_t row_bytes,
                           void *list, ups_error *error) {
    const ups_device_class *class = class_of(step);
    void *to;
    UPS_TRY(require_input(step, input, (size_t)count * row_bytes, error));
    if (!class->gather_ahead || !step->staging.memory)
        return ups_fail(error, UPS_ERR_ARGUMENT, "the device %s does not gather rows", class->name);
    UPS_TRY(open_staging(step, input, &to, error));
    UPS_TRY(class->upload_ahead(step->device, list, rows, (size_t)count * sizeof *rows, error));
    UPS_TRY(class->gather_ahead(step->device, to, list, count, row_bytes, error));
    return class->event_record(step->device, step->staging.uploaded, UPS_STREAM_COPY, error);
}

ups_status ups_step_wait_uploaded(const ups_step *step, ups_error *error) {
    return class_of(step)->event_wait(step->device, step->staging.uploaded, error);
}

/* Brings what was staged into the inputs. */
static ups_status take_staged(ups_step *step, ups_error *error) {
    const ups_device_class *class = class_of(step);
    staged_inputs *staging = &step->staging;
    if (!staging->filled) return UPS_OK;
    staging->filled = false;
    UPS_TRY(class->stream_wait(step->device, UPS_STREAM_COMPUTE, staging->uploaded, error));
    UPS_TRY(class->copy(step->device, step->inputs, staging->memory, step->input_bytes, error));
    return class->event_record(step->device, staging->consumed, UPS_STREAM_COMPUTE, error);
}

static ups_status find_kept(const ups_step *step, ups_value value, size_t bytes, const void **data, ups_error *error) {
    *data = ups_step_data(step, value);
    if (!*data) return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is not kept: its memory was reused", value);
    if (bytes != ups_step_value_bytes(step->graph, value)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d has %zu bytes; %zu were asked for", value,
                        ups_step_value_bytes(step->graph, value), bytes);
    }
    return UPS_OK;
}

ups_status ups_step_download(const ups_step *step, ups_value value, void *host, size_t bytes, ups_error *error) {
    const void *data;
    UPS_TRY(find_kept(step, value, bytes, &data, error));
    return class_of(step)->download(step->device, host, data, bytes, error);
}

ups_status ups_step_download_later(const ups_step *step, ups_value value, void *host, size_t bytes,
                                   ups_event *downloaded, ups_error *error) {
    const void *data;
    UPS_TRY(find_kept(step, value, bytes, &data, error));
    UPS_TRY(class_of(step)->download_later(step->device, host, data, bytes, error));
    return class_of(step)->event_record(step->device, downloaded, UPS_STREAM_COMPUTE, error);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void prepare_call(prepared_entry *entry, const ups_step_run_options *options) {
    ups_op_call *call = &entry->call;
    call->training = options->training;
    call->update = options->update;
    for (int i = 0; i < call->input_count; i++) {
        if (entry->first_parameter_gradients >> i & 1) call->accumulate[i] = options->accumulate;
    }
}

static ups_status run_call(ups_step *step, int32_t at, ups_error *error) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    const ups_kernel *kernel = &step->kernels[scheduled->node];
    const prepared_entry *entry = &step->entries[at];
    bool backward = scheduled->action == UPS_BACKWARD;
    if (!entry->with_next) return (backward ? kernel->backward : kernel->forward)(step->device, &entry->call, error);
    const prepared_entry *next = entry + 1; /* backward begins with the second op */
    return entry->with_next(step->device, backward ? &next->call : &entry->call, backward ? &entry->call : &next->call,
                            error);
}

/* Runs the entry, or the pair that it begins. */
static ups_status run_entry(ups_step *step, int32_t at, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    prepared_entry *entry = &step->entries[at];
    if (!entry->runs) return UPS_OK;
    prepare_call(entry, options);
    if (entry->with_next) prepare_call(entry + 1, options);
    const ups_node *node = &step->graph->nodes[scheduled[entry->with_next && scheduled->action != UPS_BACKWARD].node];
    double begin = step->timing ? ups_now() : 0;
    ups_device_range_begin(step->device, node->scope);
    ups_status status = run_call(step, at, error);
    ups_device_range_end(step->device);
    if (status == UPS_OK && step->timing) {
        status = class_of(step)->synchronize(step->device, error);
        *ups_op_pass(&step->profile.of[node->kind], scheduled->action) += ups_now() - begin;
    }
    return status == UPS_OK ? UPS_OK : ups_fail_within(error, "%s in '%s'", ups_op_name(node->kind), node->scope);
}

/* Ends the part of a run that is being captured, and begins the next. */
static ups_status begin_next_part(ups_step *step, int64_t complete, ups_error *error) {
    captured_run *run = step->capturing;
    captured_part *part = &run->part[run->parts];
    part->complete = complete;
    UPS_TRY(class_of(step)->capture_end(step->device, &part->capture, error));
    run->parts++;
    return class_of(step)->capture_begin(step->device, error);
}

/* After an entry of backward. In a capture there is nothing to tell yet: it is cut where there will be. */
static ups_status tell_complete(ups_step *step, const ups_gradient_watch *watch, int64_t complete, ups_error *error) {
    const captured_run *run = step->capturing;
    if (!run) {
        watch->complete(watch->context, complete);
        return UPS_OK;
    }
    const int64_t all = step->weights.count, told = run->parts > 0 ? run->part[run->parts - 1].complete : 0;
    const int64_t pieces = (all + watch->every - 1) / watch->every, most = MOST_PARTS - 1;
    const int64_t piece = (pieces + most - 1) / most * watch->every; /* the same to the end of backward */
    return complete / piece > told / piece && complete < all ? begin_next_part(step, complete, error) : UPS_OK;
}

static ups_status run_entries(ups_step *step, const char *name, int32_t first, int32_t end,
                              const ups_step_run_options *options, ups_error *error) {
    ups_status status = UPS_OK;
    ups_device_range_begin(step->device, name);
    const ups_gradient_watch *watch = first > 0 && !step->timing ? options->watch : NULL;
    for (int32_t at = first, next; at < end && status == UPS_OK; at = next) {
        next = at + (step->entries[at].with_next ? 2 : 1);
        status = run_entry(step, at, options, error);
        if (watch && status == UPS_OK) status = tell_complete(step, watch, step->entries[next - 1].complete, error);
    }
    ups_device_range_end(step->device);
    return status;
}

static ups_status replay(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    UPS_TRY(run_entries(step, "forward", 0, schedule->backward, options, error));
    if (!options->backward) return UPS_OK;

    float *seed = ups_step_gradient_address(step, step->graph->loss);
    UPS_TRY(class_of(step)->seed_backward(step->device, options->update, seed, error));
    return run_entries(step, "backward", schedule->backward, schedule->count, options, error);
}

/* ---- captured runs ----------------------------------------------------------------------------------------------- */

typedef struct wanted_run {
    ups_step *step;
    const ups_step_run_options *options;
} wanted_run;

static ups_status replay_wanted(void *context, ups_error *error) {
    const wanted_run *wanted = context;
    return replay(wanted->step, wanted->options, error);
}

void ups_step_forget_capture(const ups_step *step, captured_run *run) {
    for (int i = 0; i < run->parts; i++) class_of(step)->capture_release(step->device, run->part[i].capture);
    run->parts = 0;
}

static ups_status capture_run(ups_step *step, captured_run *run, const ups_step_run_options *options,
                              ups_error *error) {
    wanted_run wanted = {step, options};
    ups_capture *last;
    step->capturing = run;
    const ups_status status = ups_device_capture(step->device, replay_wanted, &wanted, &last, error);
    step->capturing = NULL;
    if (status == UPS_OK)
        run->part[run->parts++] = (captured_part){last, step->weights.count};
    else
        ups_step_forget_capture(step, run);
    return status;
}

static ups_status launch(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    const ups_device_class *class = class_of(step);
    const ups_gradient_watch *watch = options->backward ? options->watch : NULL;
    const int64_t every = watch ? watch->every : 0;
    captured_run *run =
        &step->captured[options->training | options->backward << 1 | options->accumulate << 2 | (watch != NULL) << 3];
    if (!run->issued) { /* call by call: what a device loads then, it may not while it captures */
        run->issued = true;
        return replay(step, options, error);
    }
    if (run->update != options->update || run->every != every) ups_step_forget_capture(step, run);
    if (run->parts == 0) UPS_TRY(capture_run(step, run, options, error));
    run->update = options->update;
    run->every = every;
    for (int i = 0; i < run->parts; i++) {
        UPS_TRY(class->capture_launch(step->device, run->part[i].capture, error));
        if (watch) watch->complete(watch->context, run->part[i].complete);
    }
    return UPS_OK;
}

ups_status ups_step_run(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    if (options->backward && step->graph->loss == UPS_NO_VALUE) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked of a graph that was not differentiated");
    }
    if (options->backward && !step->weights.gradients) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked with weights that have no gradients");
    }
    if ((options->backward || options->training) && !options->update) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "a training step needs an update (model/update.h)");
    }
    UPS_TRY(take_staged(step, error));
    step->timing = step->profiling && options->backward;
    step->profile.runs += step->timing;
    const bool captures = class_of(step)->capture_begin && !step->profiling;
    ups_device_range_begin(step->device, options->backward ? "step" : "evaluation");
    ups_status status = captures ? launch(step, options, error) : replay(step, options, error);
    ups_device_range_end(step->device);
    return status;
}

void ups_step_profile_enable(ups_step *step, bool on) {
    step->profiling = on;
    step->profile = (ups_step_profile){0};
}

void ups_step_profile_add(const ups_step *step, ups_step_profile *profile) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    profile->runs += step->profile.runs;
    for (int kind = 0; kind <= UPS_OP_COUNT; kind++) {
        profile->of[kind].kind = kind;
        ups_op_work_add(&profile->of[kind], &step->profile.of[kind]);
    }
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_work work = ups_work_of(step->graph, step->plan, at);
        const ups_node *node = &step->graph->nodes[schedule->entries[at].node];
        ups_op_work_count(&profile->of[node->kind], &work, (double)step->profile.runs);
    }
}
