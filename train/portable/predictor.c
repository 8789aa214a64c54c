#include "train/portable/predictor.h"

#include "model/nets/blocks.h"
#include "train/data/conditions/unlearnt.h"
#include "train/data/latents.h"
#include "train/data/trajectories.h"
#include "train/evaluation/surrogate.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KINDS = 4, FRAMES_DECODED_AT_ONCE = 64 };

/* A surrogate of one task, for as many trajectories and for such grids. */
typedef struct prediction_kind {
    int task;
    int64_t count, stride, grid[UPS_MAX_GRID_DIMS], resolution[UPS_MAX_GRID_DIMS];
    ups_described described; /* what the surrogate borrows */
    ups_surrogate *surrogate;
    int64_t used; /* when it was, last */
    bool warned;  /* of parameters beyond training's, once */
} prediction_kind;

struct ups_predictor {
    ups_surrogate_files files;
    ups_device *device;
    ups_described described;
    prediction_kind kinds[KINDS];
    int64_t predictions;
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static ups_status hash_files(ups_surrogate_files *files, ups_error *error) {
    UPS_TRY(ups_file_hash(files->autoencoder, files->autoencoder_hash, error));
    return ups_file_hash(files->op, files->operator_hash, error);
}

static ups_status find_files(const char *path, ups_surrogate_files *files, ups_error *error) {
    struct stat entry;
    if (stat(path, &entry) != 0) return ups_fail_errno(error, "%s: the model cannot be opened", path);
    UPS_TRY(ups_surrogate_take(path, files, error));
    if (files->op && files->autoencoder) return hash_files(files, error);
    return ups_fail(error, UPS_ERR_IO,
                    "%s: there is %s in it, but no trained %s; name the directory of a run that has finished, or a "
                    "file that `ups export` wrote",
                    path, files->op ? "an operator" : "an autoencoder", files->op ? "autoencoder" : "operator");
}

ups_status ups_predictor_open(const char *path, const ups_device_options *device, ups_predictor **predictor,
                              ups_error *error) {
    ups_predictor *p = calloc(1, sizeof *p);
    if (!p) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a predictor");
    ups_status status = find_files(path, &p->files, error);
    if (status == UPS_OK) {
        status = ups_described_open(p->files.op, p->files.autoencoder, NULL, &p->described, error);
    }
    if (status == UPS_OK) status = ups_device_open(device, &p->device, error);
    if (status != UPS_OK) {
        ups_predictor_close(p);
        return status;
    }
    *predictor = p;
    return UPS_OK;
}

static void close_kind(prediction_kind *kind) {
    ups_surrogate_close(kind->surrogate);
    ups_described_close(&kind->described);
    *kind = (prediction_kind){0};
}

void ups_predictor_close(ups_predictor *predictor) {
    if (!predictor) return;
    for (int k = 0; k < KINDS; k++) close_kind(&predictor->kinds[k]);
    ups_described_close(&predictor->described);
    ups_device_close(predictor->device);
    ups_surrogate_files_free(&predictor->files);
    free(predictor);
}

const ups_described *ups_predictor_describe(const ups_predictor *predictor) {
    return &predictor->described;
}

const char *ups_predictor_device(const ups_predictor *predictor) {
    return predictor->device->class->name;
}

ups_operator_options ups_predictor_operator(const ups_predictor *predictor, int task) {
    const ups_described *d = &predictor->described;
    return ups_run_operator(d->config, d->tasks, &d->tasks->task[task]);
}

/* ---- kinds of predictions --------------------------------------------------------------------------------------- */

static bool is_of_kind(const prediction_kind *kind, const prediction_kind *wanted) {
    return kind->surrogate && kind->task == wanted->task && kind->count == wanted->count &&
           kind->stride == wanted->stride && memcmp(kind->grid, wanted->grid, sizeof kind->grid) == 0 &&
           memcmp(kind->resolution, wanted->resolution, sizeof kind->resolution) == 0;
}

static ups_status describe(const ups_predictor *p, int task, const int64_t grid[UPS_MAX_GRID_DIMS], int64_t stride,
                           ups_described *described, ups_error *error) {
    ups_described_use use = {.task = task, .stride = stride};
    memcpy(use.points, grid, sizeof use.points);
    return ups_described_open(p->files.op, p->files.autoencoder, &use, described, error);
}

static int64_t points_of(const int64_t *grid, int dims) {
    int64_t points = 1;
    for (int a = 0; a < dims; a++) points *= grid[a];
    return points;
}

/* Each kind reads the files again, and a run that goes on or an export may have put others in their places. */
static ups_status check_unchanged(const ups_predictor *p, ups_error *error) {
    ups_surrogate_files now = p->files;
    UPS_TRY(hash_files(&now, error));
    const bool same = strcmp(now.operator_hash, p->files.operator_hash) == 0 &&
                      strcmp(now.autoencoder_hash, p->files.autoencoder_hash) == 0;
    if (same) return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE, "%s: the model is another one than was opened; open it again", p->files.op);
}

static ups_status open_kind(const ups_predictor *p, prediction_kind *kind, ups_error *error) {
    UPS_TRY(describe(p, kind->task, kind->grid, kind->stride, &kind->described, error));
    UPS_TRY(check_unchanged(p, error));
    const ups_described *d = &kind->described;
    const ups_surrogate_use use = {.points = points_of(kind->resolution, d->tasks->task[kind->task].geometry.dims),
                                   .states = kind->count,
                                   .at_grid_points = memcmp(kind->grid, kind->resolution, sizeof kind->grid) == 0};
    UPS_TRY(ups_surrogate_open(d->config, d->tasks, kind->task, p->device, &p->files, use, &kind->surrogate, error));
    return check_unchanged(p, error);
}

/* The kind that is wanted; of those kept the one that was used longest ago makes room. */
static ups_status find_kind(ups_predictor *p, const prediction_kind *wanted, prediction_kind **found,
                            ups_error *error) {
    prediction_kind *oldest = &p->kinds[0];
    for (int k = 0; k < KINDS; k++) {
        prediction_kind *kind = &p->kinds[k];
        if (kind->used < oldest->used) oldest = kind;
        if (!is_of_kind(kind, wanted)) continue;
        kind->used = ++p->predictions;
        *found = kind;
        return UPS_OK;
    }
    close_kind(oldest);
    *oldest = *wanted;
    ups_status status = open_kind(p, oldest, error);
    if (status != UPS_OK) {
        close_kind(oldest);
        return status;
    }
    oldest->used = ++p->predictions;
    *found = oldest;
    return UPS_OK;
}

ups_status ups_predictor_latents(ups_predictor *p, int task, const int64_t grid[UPS_MAX_GRID_DIMS],
                                 ups_latent_shape *shape, ups_error *error) {
    ups_described described;
    if (grid[0] == 0 || p->described.tasks->task[task].geometry.points) {
        *shape = ups_task_latents(p->described.config, &p->described.tasks->task[task]);
        return UPS_OK;
    }
    UPS_TRY(describe(p, task, grid, 0, &described, error));
    *shape = ups_task_latents(described.config, &described.tasks->task[task]);
    ups_described_close(&described);
    return UPS_OK;
}

/* ---- predicting ------------------------------------------------------------------------------------------------- */

typedef struct predicting {
    const ups_prediction *asked;
    const ups_task *task; /* of the kind's grid */
    ups_surrogate *surrogate;
    int64_t frames, elements, points, latent_elements; /* frames: of a trajectory; elements: of a frame of the task */
    int64_t handed;                                    /* elements of a frame that is handed in, or over, by points */
    float *given;                                      /* (count, given, elements), in the task's order of channels */
    float *encoded;                                    /* (count, given, tokens, dim) */
    float *latents;                                    /* (count, frames, tokens, dim) */
    float *coordinates;
    ups_arena *arena;      /* of what follows, where points lie anywhere */
    const ups_points **of; /* (count); NULL: there is a grid */
    float *frame;          /* (elements), and */
    float *decoded;        /* (FRAMES_DECODED_AT_ONCE, elements) of them */
    double *step_times;    /* (count, frames): seconds from the frame before to each */
    const double **parameters;
    int64_t done, all; /* frames, each advanced and decoded */
} predicting;

static ups_status go_on(predicting *r, int64_t frames, ups_error *error) {
    r->done += frames;
    if (!r->asked->go_on || r->asked->go_on(r->asked->context, r->done, r->all)) return UPS_OK;
    return ups_fail(error, UPS_ERR_CANCELLED, "the prediction was cancelled");
}

static ups_status advanced(void *context, int64_t frames, ups_error *error) {
    return go_on(context, frames, error);
}

static bool all_finite(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* ---- points that lie anywhere ------------------------------------------------------------------------------------
 * Frames come and go in the order of the data's file; in between they stand in that of the tree (pipeline/points.h). */

/* The points of one trajectory: all trajectories' own, or what its first frame tells in the fields that are called as
 * coordinates are. */
static ups_status find_points(const predicting *r, ups_arena *arena, int64_t trajectory, const ups_points **points,
                              ups_error *error) {
    const ups_points *trained = r->task->geometry.points;
    const int64_t channels = r->task->geometry.channels, count = r->handed / channels;
    *points = trained;
    if (!trained->own) return UPS_OK;
    const float *frame = r->asked->frames + trajectory * r->asked->given * r->handed;
    double *coordinates = UPS_ARENA_ARRAY(arena, double, count * trained->dims);
    for (int axis = 0; axis < trained->dims; axis++) {
        int64_t channel = 0;
        while (channel < channels && strcmp(r->task->source->channel_names[channel], trained->names[axis]) != 0)
            channel++;
        if (channel == channels)
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "task %s: every trajectory has points of its own, and no field is called '%s' that tells "
                            "where they lie",
                            r->task->name, trained->names[axis]);
        for (int64_t i = 0; i < count; i++)
            coordinates[i * trained->dims + axis] = (double)frame[i * channels + channel];
    }
    *points = ups_points_create(arena, trained->dims, count, trained->count, coordinates);
    return UPS_OK;
}

/* Finds the points of all trajectories. */
static ups_status take_points(predicting *r, ups_error *error) {
    if (!r->task->geometry.points) return UPS_OK;
    r->arena = ups_arena_create(0);
    r->frame = malloc((size_t)r->elements * sizeof *r->frame);
    r->decoded = malloc((size_t)(FRAMES_DECODED_AT_ONCE * r->elements) * sizeof *r->decoded);
    if (!r->arena || !r->frame || !r->decoded)
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", r->task->name);
    r->of = UPS_ARENA_ARRAY(r->arena, const ups_points *, r->asked->count);
    for (int64_t i = 0; i < r->asked->count; i++) UPS_TRY(find_points(r, r->arena, i, &r->of[i], error));
    return UPS_OK;
}

/* ---- encoding, decoding ------------------------------------------------------------------------------------------
 */

/* The given frames in the task's order of channels, and of points. */
static void take_frames(predicting *r) {
    const ups_prediction *asked = r->asked;
    const int64_t channels = r->task->geometry.channels, frames = asked->count * asked->given;
    for (int64_t f = 0; r->of && f < frames; f++) {
        ups_points_sort(r->of[f / asked->given], channels, sizeof *r->frame, asked->frames + f * r->handed, r->frame);
        ups_frames_from_channels_last(r->task, r->frame, 1, r->given + f * r->elements);
    }
    if (!r->of) ups_frames_from_channels_last(r->task, asked->frames, frames, r->given);
}

/* All frames that are given, together: they fill batches that one trajectory's would not. */
static ups_status encode(predicting *r, ups_error *error) {
    const ups_prediction *asked = r->asked;
    for (int64_t i = 0; i < asked->count; i++) {
        if (all_finite(asked->frames + i * asked->given * r->handed, asked->given * r->handed)) continue;
        return ups_fail(error, UPS_ERR_NUMERIC,
                        "task %s: the frames given of trajectory %lld hold NaN or Inf, which no prediction can begin "
                        "with",
                        r->task->name, (long long)i);
    }
    UPS_TRY(take_points(r, error));
    take_frames(r);
    UPS_TRY(ups_surrogate_encode(r->surrogate, r->given, asked->count * asked->given, r->encoded, error));
    for (int64_t i = 0; i < asked->count; i++) {
        memcpy(r->latents + i * r->frames * r->latent_elements, r->encoded + i * asked->given * r->latent_elements,
               (size_t)(asked->given * r->latent_elements) * sizeof *r->latents);
    }
    return UPS_OK;
}

static ups_status decode(predicting *r, ups_error *error) {
    const ups_prediction *asked = r->asked;
    const int64_t all = asked->count * r->frames;
    for (int64_t first = 0; first < all; first += FRAMES_DECODED_AT_ONCE) {
        const int64_t left = all - first, frames = left < FRAMES_DECODED_AT_ONCE ? left : FRAMES_DECODED_AT_ONCE;
        float *fields = r->of ? r->decoded : asked->fields + first * r->points * r->task->geometry.channels;
        UPS_TRY(ups_surrogate_decode(r->surrogate, r->latents + first * r->latent_elements, frames, r->coordinates,
                                     r->points, fields, error));
        for (int64_t f = first; r->of && f < first + frames; f++, fields += r->elements) {
            ups_points_unsort(r->of[f / r->frames], r->task->geometry.channels, sizeof *fields, fields, r->frame);
            memcpy(asked->fields + f * r->handed, r->frame, (size_t)r->handed * sizeof *fields);
        }
        UPS_TRY(go_on(r, frames, error));
    }
    return UPS_OK;
}

/* Seconds of the k-th step that is predicted of a trajectory; NaN: nobody says. */
static double step_time(const ups_prediction *asked, const ups_task *task, const ups_described_task *told, int64_t i,
                        int64_t k) {
    if (asked->step_times && !isnan(asked->step_times[i * asked->steps + k]))
        return asked->step_times[i * asked->steps + k];
    if (asked->dt && !isnan(asked->dt[i])) return asked->dt[i];
    if (!told->step_times) return told->dt;
    const int64_t step = asked->given - 1 + k, last = ups_task_steps(task) - 1;
    return told->step_times[step < last ? step : last];
}

/* Said by the caller or told by the model, of all steps, and finite. */
static ups_status take_step_times(predicting *r, const ups_described_task *told, ups_error *error) {
    const ups_prediction *asked = r->asked;
    for (int64_t n = 0; n < asked->count * asked->steps; n++) {
        const int64_t i = n / asked->steps, k = n % asked->steps;
        const double seconds = step_time(asked, r->task, told, i, k);
        if (isnan(seconds)) {
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "task %s: dt is needed, seconds of each step: the trajectories that the model was trained "
                            "on differ in it, so that it knows no length of the steps of others",
                            r->task->name);
        }
        if (isinf(seconds)) {
            return ups_fail(error, UPS_ERR_ARGUMENT, "task %s: the step of trajectory %lld is infinite", r->task->name,
                            (long long)i);
        }
        r->step_times[i * r->frames + asked->given + k] = seconds;
    }
    return UPS_OK;
}

static ups_status allocate(predicting *r, ups_error *error) {
    const ups_prediction *asked = r->asked;
    const size_t count = (size_t)asked->count;
    r->given = malloc(count * (size_t)(asked->given * r->elements) * sizeof *r->given);
    r->encoded = malloc(count * (size_t)(asked->given * r->latent_elements) * sizeof *r->encoded);
    r->latents =
        asked->latents ? asked->latents : malloc(count * (size_t)(r->frames * r->latent_elements) * sizeof *r->latents);
    r->coordinates = malloc((size_t)(r->points * r->task->geometry.dims) * sizeof *r->coordinates);
    r->step_times = calloc(count * (size_t)r->frames, sizeof *r->step_times);
    r->parameters = calloc(count, sizeof *r->parameters); /* NULL until it is filled: release() looks at the first */
    double *none = NULL;
    const int known = r->task->source->parameter_count;
    if (!asked->parameters) none = malloc((size_t)(known + 1) * sizeof *none);
    if (!r->given || !r->encoded || !r->latents || !r->coordinates || !r->step_times || !r->parameters ||
        (!asked->parameters && !none)) {
        free(none);
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for %lld predictions of %lld frames", r->task->name,
                        (long long)asked->count, (long long)r->frames);
    }
    for (int p = 0; p < known && none; p++) none[p] = (double)NAN;
    for (int64_t i = 0; i < asked->count; i++) {
        r->parameters[i] = none ? none : asked->parameters + i * known;
    }
    return UPS_OK;
}

static void release(predicting *r) {
    if (r->parameters && !r->asked->parameters) free((void *)r->parameters[0]);
    if (r->latents != r->asked->latents) free(r->latents);
    free(r->given);
    free(r->encoded);
    free(r->coordinates);
    free(r->step_times);
    free(r->parameters);
    free(r->frame);
    free(r->decoded);
    ups_arena_destroy(r->arena);
}

/* Whether frames may have so many points: all that were trained on, or fewer where each sample has its own. */
static bool have_places(const ups_task *task, const ups_prediction *asked, int64_t points) {
    const ups_sample *trained = &task->geometry;
    const int64_t handed = asked->grid[0] > 0 ? asked->grid[0] : trained->grid[0];
    return points == handed && (trained->points->own ? points <= trained->grid[0] : points == trained->grid[0]);
}

static ups_status check(const ups_predictor *p, const ups_prediction *asked, ups_error *error) {
    const int64_t most = (int64_t)1 << 31;
    const ups_task *task = &p->described.tasks->task[asked->task];
    if (asked->count < 1 || asked->given < 1 || asked->steps < 0 || !asked->frames || asked->count > most ||
        asked->given > most || asked->steps > most) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "task %s: a prediction is of one trajectory or more, begins with one frame or more, and takes "
                        "no negative number of steps",
                        task->name);
    }
    const int64_t *const grids[] = {asked->grid, asked->resolution};
    for (int g = 0; g < 2; g++) {
        int64_t points = task->geometry.channels;
        for (int a = 0; a < task->geometry.dims && grids[g][0] != 0; a++) {
            if (grids[g][a] < 1 || grids[g][a] > most / points) {
                return ups_fail(error, UPS_ERR_ARGUMENT,
                                "task %s: %lld points along axis %d of %s grid cannot be; its fields have %d axes",
                                task->name, (long long)grids[g][a], a, g == 0 ? "the given frames'" : "the wanted",
                                task->geometry.dims);
            }
            points *= grids[g][a];
            if (!task->geometry.points || have_places(task, asked, grids[g][a])) continue;
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "task %s: the model was trained on %lld points that lie anywhere, and frames of %lld are "
                            "others; a prediction has %s",
                            task->name, (long long)task->geometry.grid[a], (long long)grids[g][a],
                            task->geometry.points->own ? "as many points as it was trained on, or fewer"
                                                       : "the points that it was trained on");
        }
    }
    return UPS_OK;
}

ups_status ups_predictor_run(ups_predictor *p, const ups_prediction *asked, ups_error *error) {
    UPS_TRY(check(p, asked, error));
    const ups_task *wished = &p->described.tasks->task[asked->task];
    UPS_TRY(ups_unlearnt_refuse(wished, asked->parameters, asked->count, error)); /* NaN is what is not known */
    const ups_sample *trained = &wished->geometry;
    prediction_kind wanted = {.task = asked->task, .count = asked->count, .stride = asked->stride}, *kind = NULL;
    for (int a = 0; a < UPS_MAX_GRID_DIMS; a++) {
        const bool used = a < trained->dims && !trained->points; /* points have the places that were trained on */
        wanted.grid[a] = asked->grid[0] > 0 && used ? asked->grid[a] : trained->grid[a];
        wanted.resolution[a] = asked->resolution[0] > 0 && used ? asked->resolution[a] : wanted.grid[a];
    }
    UPS_TRY(find_kind(p, &wanted, &kind, error));
    const ups_task *task = &kind->described.tasks->task[asked->task];
    if (!kind->warned) kind->warned = ups_unlearnt_warn_of(task, asked->parameters, asked->count);
    predicting r = {.asked = asked,
                    .task = task,
                    .surrogate = kind->surrogate,
                    .frames = asked->given + asked->steps,
                    .elements = ups_sample_frame_elements(&task->geometry),
                    .points = points_of(kind->resolution, task->geometry.dims),
                    .latent_elements = ups_surrogate_latent_elements(kind->surrogate)};
    r.handed = trained->points && asked->grid[0] > 0 ? asked->grid[0] * trained->channels : r.elements;
    const int64_t elements = r.elements > r.latent_elements ? r.elements : r.latent_elements;
    if (elements > INT64_MAX / (int64_t)sizeof(float) / r.frames / asked->count) {
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: %lld predictions of %lld frames are more than memory can hold",
                        task->name, (long long)asked->count, (long long)r.frames);
    }
    r.all = asked->count * (asked->steps + (asked->fields ? r.frames : 0));
    ups_status status = allocate(&r, error);
    if (status == UPS_OK) status = take_step_times(&r, &kind->described.task[asked->task], error);
    if (status == UPS_OK) status = encode(&r, error);
    if (status == UPS_OK) {
        const ups_surrogate_rollouts rollouts = {.latents = r.latents,
                                                 .count = asked->count,
                                                 .given = asked->given,
                                                 .frames = r.frames,
                                                 .step_times = r.step_times,
                                                 .parameters = r.parameters,
                                                 .advanced = advanced,
                                                 .context = &r};
        status = ups_surrogate_roll(kind->surrogate, &rollouts, error);
    }
    if (status == UPS_OK && asked->fields) {
        ups_grid_coordinates(task->geometry.dims, kind->resolution, r.coordinates);
        status = decode(&r, error);
    }
    release(&r);
    return status;
}
