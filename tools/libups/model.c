/* Models: opening a trained one, saying what it predicts, predicting. */
#include "model/devices/devices.h"
#include "tools/libups/handles.h"
#include "train/networks.h"
#include "train/portable/predictor.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(UPS_MODEL_MAX_DIMS == UPS_MAX_GRID_DIMS, "grids have as many axes on both sides");

struct ups_model {
    ups_predictor *predictor;
    int32_t threads; /* that were asked for */
};

/* The process that predicted with threads of OpenMP; 0: none has. A process forked from it would wait for these threads
 * without an end, since they are not there. */
static atomic_int predicted_in;

static ups_status check_threads(int32_t threads, ups_error *error) {
    const int process = atomic_load(&predicted_in);
    if (threads < 0) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "ups_model_options.threads is %d: 0 (one a core) or more",
                        (int)threads);
    }
    if (threads == 1 || process == 0 || process == (int)getpid()) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "this process was forked from one that had predicted, whose threads are not here: open the model "
                    "with threads = 1, or start processes anew (Python: by 'spawn') or before the first prediction");
}

ups_data_status ups_model_open(const char *path, const ups_model_options *options, ups_model **model,
                               ups_data_error *error) {
    ups_error inner;
    ups_model_options own;
    if (!path || !model) {
        ups_fail(&inner, UPS_ERR_ARGUMENT, "a path and a place for the model are needed: one of them is NULL");
        return ups_data_fail(error, &inner);
    }
    *model = NULL;
    ups_library_settle();
    ups_status status = ups_data_take("ups_model_options", &own, sizeof own, options, &inner);
    if (status == UPS_OK) status = check_threads(own.threads, &inner);
    ups_model *made = calloc(1, sizeof *made);
    if (status == UPS_OK && !made) status = ups_fail(&inner, UPS_ERR_MEMORY, "no memory for a model");
    const ups_device_options device = {.name = own.device, .threads = own.threads};
    if (status == UPS_OK) status = ups_predictor_open(path, &device, &made->predictor, &inner);
    if (status == UPS_OK) {
        made->threads = own.threads;
        *model = made;
        return UPS_DATA_OK;
    }
    free(made);
    return ups_data_fail(error, &inner);
}

void ups_model_close(ups_model *model) {
    if (!model) return;
    ups_predictor_close(model->predictor);
    free(model);
}

int32_t ups_model_task_count(const ups_model *model) {
    return ups_predictor_describe(model->predictor)->tasks->count;
}

const char *ups_model_device(const ups_model *model) {
    return ups_predictor_device(model->predictor);
}

static ups_status check_task(const ups_model *model, int32_t task, ups_error *error) {
    const int count = ups_predictor_describe(model->predictor)->tasks->count;
    if (task >= 0 && task < count) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "there is no task %d: the model has %d, counted from 0", (int)task, count);
}

ups_data_status ups_model_describe(const ups_model *model, int32_t index, ups_model_task *description,
                                   ups_data_error *error) {
    ups_error inner;
    if (check_task(model, index, &inner) != UPS_OK) return ups_data_fail(error, &inner);
    const ups_described *d = ups_predictor_describe(model->predictor);
    const ups_task *task = &d->tasks->task[index];
    const ups_sample *geometry = &task->geometry;
    const ups_operator_options op = ups_predictor_operator(model->predictor, index);
    const ups_latent_shape latents = ups_task_latents(d->config, task);
    const ups_described_task *told = &d->task[index];
    ups_model_task own = {.size = sizeof own,
                          .name = task->name,
                          .channel_count = (int32_t)geometry->channels,
                          .channel_names = task->source->channel_names,
                          .dims = geometry->dims,
                          .periodic = geometry->periodic,
                          .parameter_count = task->source->parameter_count,
                          .parameter_names = task->source->parameter_names,
                          .dt = told->dt,
                          .time_units = geometry->time_units,
                          .steps = ups_task_steps(task),
                          .history = op.history,
                          .bundle = op.bundle,
                          .tokens = latents.tokens,
                          .dim = latents.dim,
                          .frames = geometry->times,
                          .stride = task->config->stride,
                          .stride_count = (int32_t)task->config->stride_count,
                          .strides = task->config->strides,
                          .patches = ups_run_on_grid(d->config) && !geometry->points,
                          .step_times = told->step_times};
    for (int a = 0; a < geometry->dims; a++) {
        own.grid[a] = geometry->grid[a];
        own.axes[a] = geometry->axis_names[a];
        own.low[a] = told->low[a];
        own.high[a] = told->high[a];
    }
    if (ups_data_give("ups_model_task", description, &own, sizeof own, &inner) == UPS_OK) return UPS_DATA_OK;
    return ups_data_fail(error, &inner);
}

/* ---- predicting ------------------------------------------------------------------------------------------------- */

static bool go_on(void *context, int64_t done, int64_t all) {
    const ups_model_request *request = context;
    return request->progress(request->progress_context, done, all) == 0;
}

/* Bytes of (B, frames) times what a frame has; SIZE_MAX where that is too many to be there. */
static size_t bytes_of(const int64_t *sizes, int count) {
    size_t bytes = sizeof(float);
    for (int i = 0; i < count; i++) {
        if (sizes[i] < 0 || (sizes[i] > 0 && bytes > SIZE_MAX / (size_t)sizes[i])) return SIZE_MAX;
        bytes *= (size_t)sizes[i];
    }
    return bytes;
}

static ups_status check_bytes(const char *name, size_t given, size_t needed, ups_error *error) {
    if (given >= needed) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "ups_model_request.%s are %zu bytes; %zu are needed", name, given, needed);
}

static ups_status check_signs(const ups_model_request *r, ups_error *error) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"trajectories", r->trajectories},
                 {"given", r->given},
                 {"steps", r->steps},
                 {"stride", r->stride},
                 {"grid[0]", r->grid[0]},
                 {"grid[1]", r->grid[1]},
                 {"grid[2]", r->grid[2]},
                 {"resolution[0]", r->resolution[0]},
                 {"resolution[1]", r->resolution[1]},
                 {"resolution[2]", r->resolution[2]}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value >= 0) continue;
        return ups_fail(error, UPS_ERR_ARGUMENT, "ups_model_request.%s is %lld: it cannot be negative", sizes[i].name,
                        (long long)sizes[i].value);
    }
    return UPS_OK;
}

static ups_status check_times(const ups_model_request *r, ups_error *error) {
    if (!r->step_times) return UPS_OK;
    if (r->dt)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "ups_model_request.dt and .step_times are both given: steps take one or the other; set dt to "
                        "NULL");
    if (r->steps > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "ups_model_request.step_times is given and .steps is 0: set steps to how many of them there are");
}

/* Sizes that the caller left at 0 are filled in. */
static ups_status complete(const ups_model *model, int32_t index, ups_model_request *r, ups_error *error) {
    const ups_described *d = ups_predictor_describe(model->predictor);
    const ups_task *task = &d->tasks->task[index];
    const ups_sample *geometry = &task->geometry;
    UPS_TRY(check_signs(r, error));
    UPS_TRY(check_times(r, error));
    if (r->trajectories == 0) r->trajectories = 1;
    if (r->given == 0) r->given = 1;
    if (r->steps == 0) { /* one at least */
        const int64_t all = (geometry->times - 1) / (r->stride > 0 ? r->stride : task->config->stride) + 1;
        r->steps = all > r->given ? all - r->given : 1;
    }
    for (int a = 0; a < UPS_MODEL_MAX_DIMS; a++) {
        const bool used = a < geometry->dims;
        if (r->grid[a] == 0 || !used) r->grid[a] = geometry->grid[a];
        if (r->resolution[a] == 0 || !used) r->resolution[a] = r->grid[a];
    }
    if (!r->frames)
        return ups_fail(error, UPS_ERR_ARGUMENT, "ups_model_request.frames is NULL: what is it to begin with?");
    if (!r->fields && !r->latents)
        return ups_fail(error, UPS_ERR_ARGUMENT, "ups_model_request.fields and .latents are NULL: nothing is wanted");
    const int64_t frames = r->given > INT64_MAX - r->steps ? -1 : r->given + r->steps;
    const int64_t in[] = {r->trajectories, r->given, r->grid[0], r->grid[1], r->grid[2], geometry->channels};
    const int64_t out[] = {r->trajectories,  frames,           r->resolution[0],
                           r->resolution[1], r->resolution[2], geometry->channels};
    UPS_TRY(check_bytes("frame_bytes", r->frame_bytes, bytes_of(in, 6), error));
    if (r->fields) UPS_TRY(check_bytes("field_bytes", r->field_bytes, bytes_of(out, 6), error));
    if (!r->latents) return UPS_OK;
    ups_latent_shape shape;
    UPS_TRY(ups_predictor_latents(model->predictor, index, r->grid, &shape, error));
    const int64_t of_latents[] = {r->trajectories, frames, shape.tokens, shape.dim};
    return check_bytes("latent_bytes", r->latent_bytes, bytes_of(of_latents, 4), error);
}

ups_data_status ups_model_predict(ups_model *model, int32_t task, const ups_model_request *request,
                                  ups_data_error *error) {
    ups_error inner;
    ups_model_request own;
    ups_status status = check_task(model, task, &inner);
    if (status == UPS_OK) status = ups_data_take("ups_model_request", &own, sizeof own, request, &inner);
    if (status == UPS_OK) status = complete(model, task, &own, &inner);
    if (status == UPS_OK) {
        ups_prediction prediction = {.task = task,
                                     .count = own.trajectories,
                                     .given = own.given,
                                     .steps = own.steps,
                                     .stride = own.stride,
                                     .frames = own.frames,
                                     .parameters = own.parameters,
                                     .dt = own.dt,
                                     .step_times = own.step_times,
                                     .fields = own.fields,
                                     .latents = own.latents,
                                     .go_on = own.progress ? go_on : NULL,
                                     .context = &own};
        memcpy(prediction.grid, own.grid, sizeof own.grid);
        memcpy(prediction.resolution, own.resolution, sizeof own.resolution);
        if (model->threads != 1) atomic_store(&predicted_in, (int)getpid());
        status = ups_predictor_run(model->predictor, &prediction, &inner);
    }
    return status == UPS_OK ? UPS_DATA_OK : ups_data_fail(error, &inner);
}
