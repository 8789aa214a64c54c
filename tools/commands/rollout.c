/* `ups rollout CONFIG|RUN -o OUT.h5`: trajectories predicted from their first frames, as HDF5 and as pictures. */
#include "base/files.h"
#include "base/json.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/output.h"
#include "tools/report/rollouts/animations.h"
#include "tools/report/rollouts/pictures.h"
#include "tools/report/rollouts/subject.h"
#include "tools/rollout_file.h"
#include "tools/rollout_netcdf.h"
#include "tools/task_option.h"
#include "train/config/load.h"
#include "train/evaluation/evaluate.h"
#include "train/metrics.h"
#include "train/run/provenance.h"
#include "train/session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    TASK,
    SAMPLE,
    SAMPLES,
    SPLIT,
    STEPS,
    RESOLUTION,
    OUTPUT,
    PNG,
    ANIMATE,
    RATE,
    CHECKPOINT,
    STRIDE,
    SET,
    OPTION_COUNT
};
static const ups_option options[OPTION_COUNT] = {
    [TASK] = {"task", 0, "TASK", "the task to predict (default: every task, each into a file of its own)"},
    [SAMPLE] = {"sample", 0, "I", "predicts trajectory I of the split alone, counted from 0"},
    [SAMPLES] = {"samples", 'n', "N", "predicts N trajectories, evenly spread over the split (default 3)"},
    [SPLIT] = {"split", 0, "train|validation|test",
               "trajectories to take (default test; validation where that is empty)"},
    [STEPS] = {"steps", 0, "N",
               "steps to predict behind the given frames (default: to the data's last one; more go beyond it)"},
    [RESOLUTION] = {"resolution", 'r', "N[xN]",
                    "points along each axis at which predictions are read (default: the data's)"},
    [OUTPUT] = {"output", 'o', "FILE", "file to write: HDF5, or CF NetCDF-4 where the name ends in .nc"},
    [PNG] = {"png", 0, "DIR", "folder for pictures: prediction, truth and error side by side"},
    [ANIMATE] = {"animate", 0, "DIR", "folder for animations of the same over time, as animated PNG files"},
    [RATE] = {"rate", 0, "N",
              "frames of an animation a second, each of the rollout's shown (default: about five seconds in all, at 10 "
              "to 30 a second)"},
    [CHECKPOINT] = {"checkpoint", 'c', "best|latest|FILE|DIR",
                    "models to take instead of the run's: of its checkpoints, a safetensors file or a directory"},
    [STRIDE] = {"stride", 0, "N",
                "stored frames from one step to the next, of those that were trained (default: tasks[].stride)"},
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
};
static const ups_usage usage = {
    "rollout",
    "CONFIG|RUN -o FILE.h5",
    "predicts held-out trajectories from their first frames, at any resolution",
    options,
    OPTION_COUNT,
    "The file has PDEBench's layout: `tensor` (trajectory, t, x) for one field in 1D whose trajectories share times "
    "and\n"
    "PDE parameters, otherwise one group a trajectory with `data` (t, x, [y,] field); `truth` lies beside it where "
    "the\n"
    "grid is the data's own, and attributes ups.* say what made it. The first evaluation.given "
    "frames\n"
    "(ups.given) are those of the data as the autoencoder reads them back, and are not scored. Axes have names, as\n"
    "HDF5's dimension scales: trajectory, t, the grid's as the data name them (else x, y, z), field. A file OUT.nc\n"
    "is CF NetCDF-4: a variable NAME (trajectory, time, x, …) a field, NAME_truth beside it. Of points that lie "
    "anywhere: HDF5 as the\n"
    "layout `points` has it, a dataset NAME (trajectory, t, point) a field, the truth below `truth`. With several "
    "tasks and no --task their "
    "names go into the files': OUT-TASK.h5.\n"
    "\nExamples:\n"
    "  ups rollout configs/quickstart.yaml -o rollout.h5 --png pictures --animate pictures\n"
    "  ups rollout configs/quickstart.yaml --task advection1d --sample 3 --resolution 1024 -o fine.h5\n"
    "  ups rollout configs/quickstart.yaml --task darcy2d --resolution 256x256 -o fine.h5 --png pictures"};

typedef struct rollout_request {
    const char *task, *output, *png, *animate, *checkpoint;
    int64_t sample, samples, steps; /* sample −1: not given */
    int64_t rate;                   /* 0: not given */
    int64_t grid[UPS_MAX_GRID_DIMS];
    int64_t stride; /* 0: each task's own */
    int axes;       /* numbers in --resolution; 0: not given */
    ups_split split;
    bool json;
} rollout_request;

/* ---- what is asked for ----------------------------------------------------------------------------------------- */

/* "64" or "64x32". */
static bool parse_resolution(const char *text, rollout_request *request) {
    enum { MAXIMUM = 65536 };
    for (request->axes = 0; request->axes < UPS_MAX_GRID_DIMS;) {
        char *end;
        long long points = strtoll(text, &end, 10);
        if (end == text || points < 1 || points > MAXIMUM) return false;
        request->grid[request->axes++] = points;
        if (*end == '\0') return true;
        if (*end != 'x') return false;
        text = end + 1;
    }
    return false;
}

static ups_status find_grid(const ups_task *task, const rollout_request *request, int64_t grid[UPS_MAX_GRID_DIMS],
                            ups_error *error) {
    if (task->geometry.points && request->axes > 0)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "task %s: its points lie anywhere, and have no resolution; leave --resolution out", task->name);
    const int dims = task->geometry.dims;
    for (int a = 0; a < UPS_MAX_GRID_DIMS; a++) grid[a] = 0;
    if (request->axes > 1 && request->axes != dims) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "--resolution names %d axes, but fields of task %s have %d",
                        request->axes, task->name, dims);
    }
    for (int a = 0; a < dims && request->axes > 0; a++) grid[a] = request->grid[request->axes == 1 ? 0 : a];
    return UPS_OK;
}

static ups_split split_of(const ups_task *task, const rollout_request *request) {
    return request->split == UPS_SPLIT_COUNT ? ups_task_held_out(task) : request->split;
}

/* The trajectories' places in the split; free with free(). */
static ups_status choose(const ups_task *task, ups_split split, const rollout_request *request, int64_t **ids,
                         int64_t *count, ups_error *error) {
    const int64_t have = task->splits.count[split];
    UPS_TRY(ups_task_check_split(task, split, error));
    if (request->sample >= have) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "task %s: there is no trajectory %lld in its %s split; 0 to %lld are",
                        task->name, (long long)request->sample, ups_split_name(split), (long long)have - 1);
    }
    *count = request->sample >= 0 ? 1 : request->samples < have ? request->samples : have;
    *ids = malloc((size_t)*count * sizeof **ids);
    if (!*ids) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < *count; i++) (*ids)[i] = request->sample >= 0 ? request->sample : i * have / *count;
    return UPS_OK;
}

/* OUT.h5 for one task; OUT-TASK.h5 where there are several. Free with free(). */
static char *output_path(const char *output, const char *task, bool several) {
    if (!several) return strdup(output);
    const char *slash = strrchr(output, '/'), *dot = strrchr(output, '.');
    if (!dot || (slash && dot < slash)) dot = output + strlen(output);
    char *path = NULL;
    return asprintf(&path, "%.*s-%s%s", (int)(dot - output), output, task, dot) < 0 ? NULL : path;
}

/* ---- what is said ---------------------------------------------------------------------------------------------- */

static json_t *report_json(const ups_rollouts *rollouts, const char *path, ups_split split, const int64_t *ids,
                           int pictures, int animations) {
    const ups_task *task = rollouts->task;
    json_t *list = json_array(), *grid = json_array();
    for (int a = 0; a < task->geometry.dims; a++) json_array_append_new(grid, json_integer(rollouts->grid[a]));
    for (int64_t i = 0; i < rollouts->count; i++) {
        const ups_rollout *rollout = &rollouts->list[i];
        json_t *nrmse = json_object();
        for (int64_t c = 0; c < task->geometry.channels; c++) {
            json_object_set_new(nrmse, task->source->channel_names[c], ups_json_number(rollout->nrmse[c]));
        }
        json_array_append_new(list, json_pack("{s:I, s:s, s:o}", "index", (json_int_t)ids[rollout->position], "sample",
                                              rollout->sample.name, "nrmse", nrmse));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:i, s:i, s:o}", "task", task->name, "file", path, "split",
                     ups_split_name(split), "given", (json_int_t)rollouts->given, "steps",
                     (json_int_t)(rollouts->frames - rollouts->given), "grid", grid, "pictures", pictures, "animations",
                     animations, "trajectories", list);
}

static void print_report(const ups_rollouts *rollouts, const char *path, ups_split split, const int64_t *ids) {
    const ups_task *task = rollouts->task;
    const int64_t steps = rollouts->frames - rollouts->given;
    printf("%s: %lld step%s", task->name, (long long)steps, steps == 1 ? "" : "s");
    if (rollouts->given > 1) printf(" behind %lld given frames", (long long)rollouts->given);
    printf(" on %lld", (long long)rollouts->grid[0]);
    for (int a = 1; a < task->geometry.dims; a++) printf(" x %lld", (long long)rollouts->grid[a]);
    printf(" points, in %s\n", path);
    for (int64_t i = 0; i < rollouts->count; i++) {
        const ups_rollout *rollout = &rollouts->list[i];
        printf("  %s trajectory %lld (%s)", ups_split_name(split), (long long)ids[rollout->position],
               rollout->sample.name);
        for (int64_t c = 0; c < task->geometry.channels; c++) {
            if (!rollouts->solution[c] || isnan(rollout->nrmse[c])) continue;
            printf("  nRMSE of %s %.3g", task->source->channel_names[c], rollout->nrmse[c]);
        }
        puts(rollouts->truth_frames > 0 ? "" : "  no truth at this resolution");
    }
}

static void print_animations(int count, const char *folder) {
    if (count > 0)
        printf("  %d animation%s in %s\n", count, count == 1 ? "" : "s", folder);
    else
        puts("  no animation: there is a single step");
}

/* ---- the work -------------------------------------------------------------------------------------------------- */

typedef struct rollout_context {
    const ups_session *session;
    const rollout_request *request;
    const ups_surrogate_files *files;
    const char *config; /* as YAML */
    const json_t *training;
    bool several;
} rollout_context;

static ups_status predict(const rollout_context *c, int index, const int64_t *samples, int64_t count,
                          ups_rollouts *rollouts, ups_error *error) {
    const ups_run_config *config = c->session->config;
    const ups_tasks *tasks = c->session->tasks;
    const ups_task *task = &tasks->task[index];
    ups_rollout_request request = {.count = count, .steps = c->request->steps};
    UPS_TRY(find_grid(task, c->request, request.grid, error));
    request.samples = samples;
    ups_surrogate_use use = {.points = request.grid[0], .states = count, .at_grid_points = request.grid[0] == 0};
    for (int a = 1; a < task->geometry.dims; a++) use.points *= request.grid[a];
    ups_surrogate *surrogate = NULL;
    ups_status status = ups_surrogate_open(config, tasks, index, c->session->device, c->files, use, &surrogate, error);
    if (status == UPS_OK) status = ups_rollouts_run(config, tasks, index, &request, surrogate, rollouts, error);
    ups_surrogate_close(surrogate);
    return status;
}

static ups_status rollout_task(const rollout_context *c, int index, json_t *report, ups_error *error) {
    const rollout_request *request = c->request;
    const ups_task *task = &c->session->tasks->task[index];
    const ups_split split = split_of(task, request);
    int64_t *ids = NULL, count = 0;
    ups_rollouts rollouts = {0};
    int pictures = 0, animations = 0;
    UPS_TRY(choose(task, split, request, &ids, &count, error));
    char *path = output_path(request->output, task->name, c->several);
    int64_t *samples = malloc((size_t)count * sizeof *samples);
    for (int64_t i = 0; samples && i < count; i++) samples[i] = task->splits.samples[split][ids[i]];
    ups_rollout_origin origin = {.config = c->config,
                                 .training = c->training,
                                 .split = ups_split_name(split),
                                 .files = c->files,
                                 .samples = samples};
    ups_status status = path && samples ? predict(c, index, samples, count, &rollouts, error)
                                        : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) {
        status = ups_rollout_is_netcdf(path) ? ups_rollout_netcdf_write(path, &rollouts, &origin, error)
                                             : ups_rollout_file_write(path, &rollouts, &origin, error);
    }
    if (status == UPS_OK && request->png) {
        status = ups_rollout_pictures(request->png, &rollouts, ids, &pictures, error);
    }
    if (status == UPS_OK && request->animate) {
        status = ups_rollout_animations(request->animate, &rollouts, ids, (int)request->rate, &animations, error);
    }
    if (status == UPS_OK) {
        json_array_append_new(report, report_json(&rollouts, path, split, ids, pictures, animations));
        if (!request->json) {
            print_report(&rollouts, path, split, ids);
            if (request->png) printf("  %d pictures in %s\n", pictures, request->png);
            if (request->animate) print_animations(animations, request->animate);
        }
    }
    ups_rollouts_free(&rollouts);
    free(samples);
    free(path);
    free(ids);
    return status;
}

/* A file of points has datasets and groups of its own beside the fields. */
static ups_status check_field_name(const ups_task *task, const char *field, ups_error *error) {
    static const char *const taken[] = {"points", "cells", "count", "t", "truth", "parameters"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const bool written = strcmp(taken[i], "count") != 0 || task->geometry.points->own;
        if (written && strcmp(taken[i], field) == 0)
            return ups_fail(
                error, UPS_ERR_UNSUPPORTED,
                "task %s: a field is called '%s', as is a part of every file of rollouts on points; give it "
                "another name in the task's `layout`",
                task->name, field);
    }
    if (!strchr(field, '/')) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "task %s: a field is called '%s', and a file of rollouts on points cannot have a slash in the name "
                    "of a field; give it another name in the task's `layout`",
                    task->name, field);
}

/* What is written takes the place of nothing but what this command wrote before, and of no data. */
static ups_status check_file(const ups_tasks *tasks, const char *path, ups_output_kind kind, ups_error *error) {
    for (int t = 0; t < tasks->count; t++) {
        const ups_source *source = tasks->task[t].source;
        UPS_TRY(ups_output_is_no_input(path, source->files, source->file_count, error));
    }
    return ups_output_check(path, kind, error);
}

static ups_status check_pictures(const ups_tasks *tasks, const ups_task *task, const char *directory, int64_t id,
                                 ups_error *error) {
    static const char *const kinds[] = {UPS_PICTURE_FIELD, UPS_PICTURE_PROFILES, UPS_PICTURE_ANIMATION};
    char path[UPS_ROLLOUT_PATH];
    for (int64_t c = 0; c < task->geometry.channels; c++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            ups_rollout_picture_path(directory, task, id, c, kinds[k], path);
            UPS_TRY(check_file(tasks, path, UPS_OUTPUT_PICTURE, error));
        }
    }
    return UPS_OK;
}

static ups_status check_outputs(const ups_session *session, const rollout_request *request, const ups_task *task,
                                ups_error *error) {
    const char *folders[] = {request->png, request->animate};
    int64_t *ids = NULL, count = 0;
    char *path = output_path(request->output, task->name, !request->task && session->tasks->count > 1);
    ups_status status = path ? check_file(session->tasks, path, UPS_OUTPUT_ROLLOUT, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(path);
    if (status == UPS_OK) status = choose(task, split_of(task, request), request, &ids, &count, error);
    for (int64_t i = 0; i < 2 * count && status == UPS_OK; i++) {
        if (!folders[i % 2] || ups_path_is_absent(folders[i % 2])) continue; /* it will be made */
        status = check_pictures(session->tasks, task, folders[i % 2], ids[i / 2], error);
    }
    free(ids);
    return status;
}

/* Before the first task's work, not after it. */
static ups_status check_tasks(const ups_session *session, const rollout_request *request, ups_error *error) {
    int64_t given;
    for (int t = 0; t < session->tasks->count; t++) {
        const ups_task *task = &session->tasks->task[t];
        if (request->task && strcmp(task->name, request->task) != 0) continue;
        UPS_TRY(ups_evaluation_given(session->config, task, &given, error));
        for (int64_t c = 0; task->geometry.points && c < task->geometry.channels; c++)
            UPS_TRY(check_field_name(task, task->source->channel_names[c], error));
        if (task->geometry.points && ups_rollout_is_netcdf(request->output))
            return ups_fail(
                error, UPS_ERR_UNSUPPORTED,
                "%s: the points of task %s lie anywhere, and such rollouts are written as HDF5; name a file "
                "that does not end in .nc",
                request->output, task->name);
        UPS_TRY(check_outputs(session, request, task, error));
    }
    return UPS_OK;
}

static ups_status rollout(ups_session *session, const rollout_request *request, ups_error *error) {
    if (ups_rollout_is_netcdf(request->output)) UPS_TRY(ups_rollout_netcdf_available(request->output, error));
    UPS_TRY(check_tasks(session, request, error));
    ups_surrogate_files files;
    UPS_TRY(ups_surrogate_find(session->config, request->checkpoint, &files, error));
    char *config = NULL;
    json_t *report = json_array(), *training = NULL;
    ups_status status = ups_session_normalise(session, files.autoencoder, error);
    if (status == UPS_OK) status = ups_tasks_condition_as_trained(session->tasks, files.op, error);
    if (status == UPS_OK) status = ups_config_print(&ups_run_schema, session->config, &config, error);
    if (status == UPS_OK) status = ups_run_provenance(files.op, &training, error);
    rollout_context context = {.session = session,
                               .request = request,
                               .files = &files,
                               .config = config,
                               .training = training,
                               .several = !request->task && session->tasks->count > 1};
    for (int t = 0; t < session->tasks->count && status == UPS_OK; t++) {
        if (request->task && strcmp(session->tasks->task[t].name, request->task) != 0) continue;
        status = rollout_task(&context, t, report, error);
    }
    if (status == UPS_OK && request->json) {
        ups_print_json(report, JSON_INDENT(2));
    }
    json_decref(report);
    json_decref(training);
    free(config);
    ups_surrogate_files_free(&files);
    return status;
}

/* Whether the name promises a format that a rollout is not written in. */
static bool promises_another_format(const char *output) {
    static const char *const others[] = {".zarr", ".npy", ".npz", ".png", ".csv", ".json", ".mat", ".pt", ".grib"};
    const char *slash = strrchr(output, '/'), *dot = strrchr(slash ? slash : output, '.');
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++) {
        if (strcasecmp(dot, others[i]) == 0) return true;
    }
    return false;
}

/* Reads the options; a line that is wrong is answered and *exit_code set. */
static bool read_line(ups_arguments *arguments, rollout_request *request, int *exit_code) {
    enum { MAXIMUM_SAMPLES = 1 << 20, MAXIMUM_STEPS = 1 << 20, MAXIMUM_STRIDE = 1 << 20, DEFAULT_SAMPLES = 3 };
    int split = UPS_SPLIT_COUNT;
    const char *resolution = NULL;
    *request = (rollout_request){.sample = -1};
    for (int option; (option = ups_arguments_next(arguments)) >= 0;) {
        if (option == TASK) request->task = arguments->value;
        if (option == SAMPLE) ups_arguments_integer(arguments, 0, INT64_MAX, &request->sample);
        if (option == SAMPLES) ups_arguments_integer(arguments, 1, MAXIMUM_SAMPLES, &request->samples);
        if (option == SPLIT) ups_arguments_choice(arguments, &split);
        if (option == STEPS) ups_arguments_integer(arguments, 1, MAXIMUM_STEPS, &request->steps);
        if (option == RESOLUTION) resolution = arguments->value;
        if (option == OUTPUT) request->output = arguments->value;
        if (option == PNG) request->png = arguments->value;
        if (option == ANIMATE) request->animate = arguments->value;
        if (option == RATE) ups_arguments_integer(arguments, 1, UPS_ANIMATION_FASTEST, &request->rate);
        if (option == CHECKPOINT) request->checkpoint = arguments->value;
        if (option == STRIDE) ups_arguments_integer(arguments, 1, MAXIMUM_STRIDE, &request->stride);
        if (option == SET) ups_arguments_override(arguments);
    }
    request->split = (ups_split)split;
    request->json = arguments->json;
    *exit_code = UPS_EXIT_OK;
    if (arguments->stop) {
        *exit_code = ups_arguments_end(arguments);
        return false;
    }
    if (arguments->operand_count != 1) {
        *exit_code = ups_command_no_config(arguments);
    } else if (!request->output) {
        *exit_code = ups_command_usage_error(arguments, "where to? Name the file to write with -o OUT.h5");
    } else if (promises_another_format(request->output)) {
        *exit_code = ups_command_usage_error(arguments,
                                             "--output: '%.200s': rollouts are written as HDF5, or as CF "
                                             "NetCDF-4 where the name ends in .nc; pictures go to --png DIR",
                                             request->output);
    } else if (request->sample >= 0 && request->samples > 0) {
        *exit_code = ups_command_usage_error(arguments, "--sample and --samples exclude each other");
    } else if (request->rate > 0 && !request->animate) {
        *exit_code =
            ups_command_usage_error(arguments, "--rate is of animations; name a folder for them: --animate DIR");
    } else if (resolution && !parse_resolution(resolution, request)) {
        *exit_code = ups_command_usage_error(arguments,
                                             "--resolution: '%.40s' is not a number of points such as 256 "
                                             "or 64x64, each at most 65536",
                                             resolution);
    }
    if (request->samples == 0) request->samples = DEFAULT_SAMPLES;
    return *exit_code == UPS_EXIT_OK;
}

int ups_cmd_rollout(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    rollout_request request;
    int exit_code;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    if (read_line(&arguments, &request, &exit_code)) {
        ups_session session;
        ups_status status = ups_session_open(arguments.operands[0], arguments.overrides, arguments.override_count,
                                             false, &session, &error);
        const ups_task *task = NULL;
        bool misnamed = status == UPS_OK && ups_task_named(session.tasks, request.task, &task, &error) != UPS_OK;
        if (status == UPS_OK && !misnamed) status = ups_session_settle_precision(&session, &error);
        if (status == UPS_OK && !misnamed && request.stride > 0)
            status = ups_session_use_stride(&session, request.task, request.stride, &error);
        if (status == UPS_OK && !misnamed && !ups_surrogate_is_another(request.checkpoint))
            ups_session_warn_of_strides(&session, request.task);
        if (status == UPS_OK && !misnamed) status = rollout(&session, &request, &error);
        if (misnamed) {
            exit_code = ups_command_usage_error(&arguments, "%s", error.message);
        } else if (status != UPS_OK && !session.config) {
            exit_code = ups_command_fail_on_config(&arguments, UPS_PATHS_READ, &error);
        } else if (status != UPS_OK) {
            exit_code = ups_command_fail(&arguments, &error);
        }
        ups_session_close(&session);
    }
    return exit_code;
}
