/* `ups data`: what is in simulation files, and one trajectory out of them. */
#include "base/arena.h"
#include "base/even.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/system/pages.h"
#include "pipeline/io/io.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "pipeline/layouts/suggest.h"
#include "tools/command.h"
#include "tools/commands/cache/operand.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/npy.h"
#include "tools/output.h"
#include "train/config/load.h"
#include "train/data/splits.h"
#include "train/data/tasks.h"
#include "train/run/own.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- inspect: facts about a source, as JSON; the text is printed from the same facts ------------------------------
 */

static json_t *list_shape(int rank, const int64_t *shape) {
    json_t *list = json_array();
    for (int axis = 0; axis < rank; axis++) json_array_append_new(list, json_integer(shape[axis]));
    return list;
}

/* JSON has no NaN; damaged files have. */
static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *range_of(double first, double last) {
    return json_pack("[o, o]", number(first), number(last));
}

static json_t *list_filters(const ups_stored_array *array) {
    json_t *list = json_array();
    const ups_filters *filters = &array->filters;
    if (array->storage != UPS_STORAGE_CHUNKED) return list;
    if (filters->shuffle_position >= 0) json_array_append_new(list, json_string("shuffle"));
    if (filters->compressor_position >= 0)
        json_array_append_new(list, json_string(ups_compressor_name(filters->compressor)));
    if (filters->fletcher32_position >= 0) json_array_append_new(list, json_string("fletcher32"));
    if (filters->crc32c_position >= 0) json_array_append_new(list, json_string("crc32c"));
    return list;
}

static json_t *describe_array(const ups_stored_array *array) {
    static const char *const names[] = {[UPS_STORAGE_CONTIGUOUS] = "contiguous",
                                        [UPS_STORAGE_CHUNKED] = "chunked",
                                        [UPS_STORAGE_RECORDS] = "records",
                                        [UPS_STORAGE_LIBRARY] = "library",
                                        [UPS_STORAGE_MEMORY] = "inflated into memory"};
    uint64_t bytes = (uint64_t)ups_array_elements(array, NULL) * ups_dtype_size(array->dtype);
    json_t *facts =
        json_pack("{s:o, s:o, s:s, s:b, s:s, s:I, s:I, s:o}", "name", ups_json_printable(array->name), "shape",
                  list_shape(array->rank, array->shape), "dtype", ups_dtype_name(array->dtype), "byte_swapped",
                  array->swapped, "storage", names[array->storage], "bytes", (json_int_t)bytes, "stored_bytes",
                  (json_int_t)array->stored_bytes, "filters", list_filters(array));
    if (array->storage == UPS_STORAGE_CHUNKED) {
        int64_t written = 0, unfiltered = 0, count = 1;
        for (int axis = 0; axis < array->rank; axis++) count *= array->chunk_grid[axis];
        for (int64_t c = 0; c < count; c++) {
            written += array->chunks[c].offset != UPS_OFFSET_UNWRITTEN;
            unfiltered += array->chunks[c].mask != 0;
        }
        json_object_set_new(facts, "chunk_shape", list_shape(array->rank, array->chunk_shape));
        json_object_set_new(facts, "chunks", json_integer(count));
        json_object_set_new(facts, "chunks_written", json_integer(written));
        json_object_set_new(facts, "chunks_with_filters_skipped", json_integer(unfiltered));
    }
    if (array->packing)
        json_object_set_new(facts, "stored_dtype", json_string(ups_number_name(array->packing->number)));
    if (array->fallback_reason) json_object_set_new(facts, "why_library", json_string(array->fallback_reason));
    return facts;
}

/* Least and greatest value of each parameter over all samples; null where no sample names it. *unnamed: samples that
 * miss one that others have. */
static json_t *describe_parameters(const ups_source *source, int64_t *unnamed) {
    json_t *facts = json_object();
    *unnamed = 0;
    for (int p = 0; p < source->parameter_count; p++) {
        double least = INFINITY, greatest = -INFINITY;
        int64_t missing = 0;
        for (int64_t i = 0; i < source->count; i++) {
            ups_sample sample;
            if (ups_source_describe(source, i, &sample, NULL) != UPS_OK) break;
            missing += isnan(sample.parameters[p]);
            if (sample.parameters[p] < least) least = sample.parameters[p];
            if (sample.parameters[p] > greatest) greatest = sample.parameters[p];
        }
        if (missing > *unnamed) *unnamed = missing;
        json_t *range = least <= greatest ? range_of(least, greatest) : json_null();
        char name[512];
        ups_printable(source->parameter_names[p], strlen(source->parameter_names[p]), name, sizeof name);
        json_object_set_new(facts, name, range);
    }
    return facts;
}

/* Samples whose shape is another than the first's, and what all arrays together take, decoded and in the file. */
static void sum_samples(const ups_source *source, int64_t *differing, uint64_t *bytes, uint64_t *stored_bytes) {
    ups_sample first, sample;
    const ups_stored_array *arrays[UPS_LAYOUT_MAX_ARRAYS], *previous = NULL;
    *differing = 0;
    *bytes = *stored_bytes = 0;
    if (ups_source_describe(source, 0, &first, NULL) != UPS_OK) return;
    for (int64_t i = 0; i < source->count; i++) {
        if (ups_source_describe(source, i, &sample, NULL) != UPS_OK) return;
        *differing += sample.times != first.times || memcmp(sample.grid, first.grid, sizeof first.grid) != 0;
        int count = ups_layout_arrays(source, i, arrays);
        if (arrays[0] == previous) continue; /* rows of the same datasets */
        previous = arrays[0];
        for (int a = 0; a < count; a++) {
            *bytes += (uint64_t)ups_array_elements(arrays[a], NULL) * ups_dtype_size(arrays[a]->dtype);
            *stored_bytes += arrays[a]->stored_bytes;
        }
    }
}

/* Whether sample i of all files begins with the same field; warns where it does. */
static void describe_beginnings(const ups_source *source, json_t *facts) {
    bool alike;
    ups_error error;
    if (ups_files_begin_alike(source, &alike, &error) != UPS_OK) {
        ups_log(UPS_LOG_WARNING, "first frames were not compared: %s", error.message);
        return;
    }
    json_object_set_new(facts, "files_begin_alike", json_boolean(alike));
    if (!alike) return;
    ups_log(UPS_LOG_WARNING,
            "samples with the same index in these files begin with the same field: one of them in training and another "
            "in the test would share the initial condition. As files of one task they stay in one split "
            "(data.split.by: index, which `auto` takes here); as tasks of their own they may not");
}

/* Points that lie anywhere: how many samples have, whether all have the same, whether any move, and the box that holds
 * those of the first sample's first frame. */
static json_t *describe_points(const ups_source *source, const ups_points *points) {
    int64_t least = points->distinct, most = least;
    bool moving = points->moving;
    for (int64_t s = 1; s < source->count && points->own; s++) {
        ups_sample sample;
        ups_source_describe(source, s, &sample, NULL);
        if (sample.points->distinct < least) least = sample.points->distinct;
        if (sample.points->distinct > most) most = sample.points->distinct;
        moving |= sample.points->moving;
    }
    json_t *box = json_object();
    for (int axis = 0; axis < points->dims; axis++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t i = 0; i < points->count; i++) {
            low = fmin(low, points->coordinates[i * points->dims + axis]);
            high = fmax(high, points->coordinates[i * points->dims + axis]);
        }
        json_object_set_new(box, points->names[axis], range_of(low, high));
    }
    return json_pack("{s:I, s:I, s:b, s:b, s:o, s:I, s:i}", "count", (json_int_t)most, "least", (json_int_t)least,
                     "of_each_sample", (int)points->own, "moving", (int)moving, "box", box, "cells",
                     (json_int_t)points->cell_count, "corners", points->corners);
}

/* The least and the largest distance of neighbours. */
static json_t *spacing_of(const double *x, int64_t points) {
    double least = INFINITY, largest = 0;
    for (int64_t i = 1; i < points; i++) {
        least = fmin(least, fabs(x[i] - x[i - 1]));
        largest = fmax(largest, fabs(x[i] - x[i - 1]));
    }
    return range_of(least, largest);
}

static json_t *describe_source(const ups_source *source) {
    static const char *const axes[] = {"x", "y", "z"};
    ups_sample sample;
    ups_source_describe(source, 0, &sample, NULL);
    json_t *fields = json_array(), *grid = json_array(), *arrays = json_array();
    for (int64_t c = 0; c < source->channels; c++)
        json_array_append_new(fields, ups_json_printable(source->channel_names[c]));
    for (int axis = 0; axis < sample.dims && !sample.points; axis++) {
        const double *x = sample.coordinates[axis];
        int64_t points = sample.grid[axis];
        const char *name = sample.axis_names[axis] ? sample.axis_names[axis] : axes[axis];
        json_t *facts = json_pack("{s:o, s:I}", "axis", ups_json_printable(name), "points", (json_int_t)points);
        if (x) json_object_set_new(facts, "range", range_of(x[0], x[points - 1]));
        if (x && points > 2 && !ups_is_even(x, points)) json_object_set_new(facts, "spacing", spacing_of(x, points));
        json_array_append_new(grid, facts);
    }
    const ups_stored_array *stored[UPS_LAYOUT_MAX_ARRAYS];
    int stored_count = ups_layout_arrays(source, 0, stored);
    for (int a = 0; a < stored_count; a++) json_array_append_new(arrays, describe_array(stored[a]));
    int64_t differing;
    uint64_t bytes, stored_bytes;
    sum_samples(source, &differing, &bytes, &stored_bytes);
    int64_t unnamed;
    json_t *parameters = describe_parameters(source, &unnamed);
    json_t *facts =
        json_pack("{s:o, s:s, s:s, s:I, s:I, s:o, s:s, s:o, s:b, s:o, s:{s:I, s:o}, s:o, s:I, s:o, s:I, s:I}", "file",
                  ups_json_printable(ups_layout_input(source, 0)), "layout", source->class->kind, "recognised_by",
                  ups_layout_reason(source), "samples", (json_int_t)source->count, "samples_of_another_shape",
                  (json_int_t)differing, "fields", fields, "dtype", ups_dtype_name(sample.dtype), "grid", grid,
                  "periodic", sample.periodic, "boundary", ups_json_printable(ups_layout_boundary(source, 0)), "time",
                  "frames", (json_int_t)sample.times, "range", range_of(sample.time[0], sample.time[sample.times - 1]),
                  "parameters", parameters, "samples_without_a_parameter", (json_int_t)unnamed, "arrays", arrays,
                  "bytes", (json_int_t)bytes, "stored_bytes", (json_int_t)stored_bytes);
    if (ups_layout_inputs(source) > 1) {
        json_t *files = json_array();
        for (int64_t f = 0; f < ups_layout_inputs(source); f++)
            json_array_append_new(files, ups_json_printable(ups_layout_input(source, f)));
        json_object_set_new(facts, "files", files);
    }
    if (sample.points) json_object_set_new(facts, "points", describe_points(source, sample.points));
    if (ups_layout_stored_times(source, 0) > sample.times)
        json_object_set_new(facts, "segments_of", json_integer(ups_layout_stored_times(source, 0)));
    if (ups_layout_left_out(source))
        json_object_set_new(facts, "left_out", ups_json_printable(ups_layout_left_out(source)));
    return facts;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static long long integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static double entry_of(const json_t *list, size_t index) {
    const json_t *entry = json_array_get(list, index);
    return json_is_real(entry) ? json_real_value(entry) : NAN;
}

static void print_shape(const json_t *shape) {
    for (size_t i = 0; i < json_array_size(shape); i++)
        printf("%s%lld", i ? ", " : "(", (long long)json_integer_value(json_array_get(shape, i)));
    printf(")");
}

static void print_array(const json_t *facts) {
    printf("  stored     %s ", text_of(facts, "name"));
    print_shape(json_object_get(facts, "shape"));
    const char *stored = text_of(facts, "stored_dtype");
    printf(" %s%s, ", stored ? stored : text_of(facts, "dtype"),
           json_is_true(json_object_get(facts, "byte_swapped")) ? " in the other byte order" : "");
    const char *storage = text_of(facts, "storage");
    if (strcmp(storage, "chunked") == 0) {
        printf("chunks ");
        print_shape(json_object_get(facts, "chunk_shape"));
        const json_t *filters = json_object_get(facts, "filters");
        for (size_t i = 0; i < json_array_size(filters); i++)
            printf("%s%s", i ? " + " : ", ", json_string_value(json_array_get(filters, i)));
        long long count = integer_of(facts, "chunks"), written = integer_of(facts, "chunks_written");
        long long skipped = integer_of(facts, "chunks_with_filters_skipped");
        if (written < count) printf("; %lld of %lld chunks never written", count - written, count);
        if (skipped) printf("; %lld of %lld chunks with a filter skipped", skipped, count);
    } else if (strcmp(storage, "contiguous") == 0) {
        printf("contiguous");
    } else if (strcmp(storage, "records") == 0) {
        printf("records, between those of others");
    } else if (strcmp(storage, "library") == 0) {
        printf("read through the library: %s", text_of(facts, "why_library"));
    } else {
        printf("%s", storage);
    }
    printf("\n");
}

static void print_points(const json_t *points) {
    const char *name;
    json_t *range;
    printf("  points     ");
    if (integer_of(points, "least") < integer_of(points, "count")) printf("%lld to ", integer_of(points, "least"));
    printf("%lld, %s%s", integer_of(points, "count"),
           json_is_true(json_object_get(points, "moving")) ? "which move, " : "",
           json_is_true(json_object_get(points, "of_each_sample")) ? "other ones in each sample" : "of all samples");
    json_object_foreach(json_object_get(points, "box"), name, range) {
        printf("; %s %g to %g", name, entry_of(range, 0), entry_of(range, 1));
    }
    if (integer_of(points, "cells"))
        printf("; %lld cells of %lld corners", integer_of(points, "cells"), integer_of(points, "corners"));
    printf("\n");
}

static void print_source(const json_t *facts) {
    printf("%s", text_of(facts, "file"));
    size_t more = json_array_size(json_object_get(facts, "files"));
    if (more) printf(" and %zu more", more - 1);
    printf("\n");
    printf("  layout     %s: %s\n", text_of(facts, "layout"), text_of(facts, "recognised_by"));
    printf("  samples    %lld", integer_of(facts, "samples"));
    long long differing = integer_of(facts, "samples_of_another_shape");
    if (differing) printf(" (the first is shown; %lld have another shape)", differing);
    printf("\n  fields    ");
    const json_t *fields = json_object_get(facts, "fields");
    for (size_t i = 0; i < json_array_size(fields); i++)
        printf("%s %s", i ? "," : "", json_string_value(json_array_get(fields, i)));
    printf(" (%s)\n", text_of(facts, "dtype"));
    const json_t *grid = json_object_get(facts, "grid");
    for (size_t i = 0; i < json_array_size(grid); i++) {
        const json_t *axis = json_array_get(grid, i), *range = json_object_get(axis, "range");
        const json_t *spacing = json_object_get(axis, "spacing");
        printf("  %s  %lld points", i ? "         " : "grid     ", integer_of(axis, "points"));
        printf(" along %s", text_of(axis, "axis"));
        if (range) printf(", %g to %g", entry_of(range, 0), entry_of(range, 1));
        if (spacing) printf(", unevenly spaced: %g to %g apart", entry_of(spacing, 0), entry_of(spacing, 1));
        printf("\n");
    }
    if (json_object_get(facts, "points")) print_points(json_object_get(facts, "points"));
    printf("  boundary   %s\n", text_of(facts, "boundary"));
    const json_t *time = json_object_get(facts, "time"), *times = json_object_get(time, "range");
    printf("  time       %lld frames, %g to %g", integer_of(time, "frames"), entry_of(times, 0), entry_of(times, 1));
    const long long whole = integer_of(facts, "segments_of"); /* 0: there is none */
    if (whole) printf("; a segment of a trajectory of %lld", whole);
    printf("\n");
    printf("  parameters");
    const char *name;
    json_t *range, *parameters = json_object_get(facts, "parameters");
    const char *separator = "";
    json_object_foreach(parameters, name, range) {
        printf("%s %s = %g", separator, name, entry_of(range, 0));
        if (entry_of(range, 0) < entry_of(range, 1)) printf(" to %g", entry_of(range, 1));
        separator = ",";
    }
    printf("%s", json_object_size(parameters) ? "" : " none");
    long long unnamed = integer_of(facts, "samples_without_a_parameter");
    if (unnamed) printf(" (%lld samples do not name all of them)", unnamed);
    printf("\n");
    if (text_of(facts, "left_out")) printf("  left out   %s\n", text_of(facts, "left_out"));
    const json_t *arrays = json_object_get(facts, "arrays");
    for (size_t i = 0; i < json_array_size(arrays); i++) print_array(json_array_get(arrays, i));
    double bytes = (double)integer_of(facts, "bytes"), stored = (double)integer_of(facts, "stored_bytes");
    printf("  size       %.1f MB of data", 1e-6 * bytes);
    if (stored > 0) printf(" in %.1f MB of the file (ratio %.2f)", 1e-6 * stored, bytes / stored);
    printf("\n");
}

#define LAYOUT_HELP "what the files hold, as a task's `layout` says it: YAML, or @FILE, such as a configuration"

/* Opens files as `layout` says, or by what they hold where that is NULL. */
static ups_status open_source(const char *const *paths, int64_t count, const char *layout, bool through_library,
                              ups_source **source, ups_error *error) {
    ups_layout_options options = {.through_library = through_library, .points_as_stored = true};
    if (!layout) return ups_layout_open_many(paths, count, &options, source, error);
    char *text = NULL;
    size_t length;
    ups_mapping mapping;
    ups_arena *arena = ups_arena_create(0);
    ups_status status = arena ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the layout");
    if (status == UPS_OK && layout[0] == '@') status = ups_read_file(layout + 1, 1 << 20, &text, &length, error);
    if (status == UPS_OK)
        status = ups_mapping_parse(text ? layout + 1 : "--layout", text ? text : layout, arena, &mapping, error);
    options.mapping = &mapping;
    if (status == UPS_OK) status = ups_layout_open_many(paths, count, &options, source, error);
    free(text);
    ups_arena_destroy(arena);
    return status;
}

enum { TOGETHER, INSPECT_LAYOUT, SUGGEST, INSPECT_OPTION_COUNT };
static const ups_option inspect_options[INSPECT_OPTION_COUNT] = {
    [TOGETHER] = {"together", 0, NULL, "all FILEs as one task, as `files` of a configuration does"},
    [INSPECT_LAYOUT] = {"layout", 0, "YAML", LAYOUT_HELP},
    [SUGGEST] = {"suggest", 0, NULL,
                 "prints the task to paste into a configuration, FILEs being of a layout of your own"},
};

static const ups_usage inspect_usage = {
    .command = "data inspect",
    .arguments = "FILE|CONFIG|RUN...",
    .summary = "shows what simulation files hold and how they store it",
    .options = inspect_options,
    .option_count = INSPECT_OPTION_COUNT,
    .details =
        "Prints the layout and how it was recognised, samples, fields, grid, time, PDE parameters (from\n"
        "attributes, the `config` attribute or the file's name), what happens at the boundary, and how the data\n"
        "are stored. Of a file that is none of the layouts it says what the nearest ones lack.\n"
        "Of a configuration, or of a run's directory, it shows each task: all its files together, by its `layout`.\n"
        "With --together: whether the files can be one task, the ranges of their parameters, and a warning where\n"
        "samples with the same index share the initial condition.\n"
        "With --suggest: for a file of none of the layouts, the task with a `layout` that says what it holds, to "
        "paste\n"
        "into a configuration; what is guessed has a comment. With --layout: what a file is as such a layout says it.\n"
        "With --json: a list with one object a file, or one in all with --together.\n\n"
        "Examples:\n"
        "  ups data inspect 1D_Advection_Sols_beta0.4.hdf5\n"
        "  ups data inspect --together 1D_Burgers_Sols_Nu*.hdf5\n"
        "  ups data inspect --suggest flow.npz\n"
        "  ups data inspect --layout '{fields: {u: /u}, axes: [sample, time, x]}' flow.h5\n"
        "  ups data inspect --json *.h5 | jq '.[].samples'",
};

/* ---- inspect: the files of a configuration ---------------------------------------------------------------------- */

/* A run's directory, or a YAML file; any other directory may be a Zarr store. */
static bool names_config(const char *operand) {
    const char *dot = strrchr(operand, '.');
    bool yaml = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    return (yaml && ups_operand_is_run(operand)) || ups_run_is_there(operand);
}

/* Each task as it would be trained on: all its files together. */
static ups_status inspect_config(const char *path, bool print, json_t *all, ups_error *error) {
    ups_run_config *config;
    UPS_TRY(ups_run_config_load(path, NULL, 0, &config, error));
    ups_status status = UPS_OK;
    for (unsigned t = 0; t < config->task_count && status == UPS_OK; t++) {
        ups_source *source;
        status = ups_task_open_source(config, &config->tasks[t], &source, error);
        if (status != UPS_OK) break;
        json_t *facts = describe_source(source);
        json_object_set_new(facts, "task", ups_json_printable(config->tasks[t].name));
        if (print) printf("task %s: ", config->tasks[t].name);
        if (print) print_source(facts);
        ups_source_close(source);
        json_array_append_new(all, facts);
    }
    ups_run_config_free(config);
    return status;
}

/* What is recognised needs no layout, and a guess is seldom as good. */
static void say_if_recognised(const char *path) {
    ups_source *source = NULL;
    ups_error ignored;
    if (ups_layout_open(path, NULL, &source, &ignored) != UPS_OK) return;
    ups_log(
        UPS_LOG_WARNING,
        "%s is %s, which is recognised: a task of it needs no layout, and `ups config init` writes its configuration; "
        "what follows is for files that are not",
        path, source->class->kind);
    ups_source_close(source);
}

static int print_suggestion(ups_arguments *arguments) {
    ups_error error;
    char *yaml;
    say_if_recognised(arguments->operands[0]);
    if (ups_suggest_layout((const char *const *)arguments->operands, arguments->operand_count, &yaml, &error) != UPS_OK)
        return ups_command_fail(arguments, &error);
    if (arguments->json) {
        json_t *facts = json_pack("{s:o}", "yaml", ups_json_printable(yaml));
        ups_print_json(facts, JSON_INDENT(2));
        json_decref(facts);
    } else {
        fputs(yaml, stdout);
    }
    free(yaml);
    return UPS_EXIT_OK;
}

static int inspect(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &inspect_usage, argc, argv);
    bool together = false, suggest = false;
    const char *layout = NULL;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == TOGETHER) together = true;
        if (option == INSPECT_LAYOUT) layout = arguments.value;
        if (option == SUGGEST) suggest = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count < 1) return ups_command_usage_error(&arguments, "at least one FILE was expected");
    if (suggest && (together || layout))
        return ups_command_usage_error(&arguments, "--suggest finds a layout for the files by itself, of all of them "
                                                   "together; --together and --layout do not go with it");
    if (suggest) return print_suggestion(&arguments);
    json_t *all = json_array();
    ups_error error;
    int step = together ? arguments.operand_count : 1;
    for (int i = 0; i < arguments.operand_count; i += step) {
        ups_source *source;
        if (!together && !layout && names_config(arguments.operands[i])) {
            if (inspect_config(arguments.operands[i], !arguments.json, all, &error) == UPS_OK) continue;
            json_decref(all);
            return ups_command_fail_on_config_at(&arguments, arguments.operands[i], UPS_PATHS_READ, &error);
        }
        if (open_source((const char *const *)arguments.operands + i, step, layout, false, &source, &error) != UPS_OK) {
            json_decref(all);
            return ups_command_fail(&arguments, &error);
        }
        json_t *facts = describe_source(source);
        if (together && ups_layout_inputs(source) > 1) describe_beginnings(source, facts);
        ups_source_close(source);
        if (!arguments.json) print_source(facts);
        json_array_append_new(all, facts);
    }
    if (arguments.json) {
        ups_print_json(all, JSON_INDENT(2));
    }
    json_decref(all);
    return UPS_EXIT_OK;
}

/* ---- dump ---------------------------------------------------------------------------------------------------------
 */

/* Fetches all extents through the engine, one behind the other (`packed`), or with ups_io_room for each; pieces point
 * into `memory`. */
static ups_status fetch(ups_io *io, const ups_extent *extents, int64_t count, bool packed, uint8_t *memory,
                        ups_piece *pieces, ups_error *error) {
    enum { BATCH = 64 };
    ups_io_completion completions[BATCH];
    int64_t submitted = 0, done = 0;
    while (done < count) {
        while (submitted < count && ups_io_submit(io, extents[submitted], memory, (uint64_t)submitted)) {
            memory += packed ? extents[submitted].length : ups_io_room(extents[submitted].length);
            submitted++;
        }
        int got = 0;
        UPS_TRY(ups_io_reap(io, true, completions, BATCH, &got, error));
        for (int i = 0; i < got; i++) {
            if (completions[i].status != UPS_OK) return ups_io_completion_error(io, &completions[i], error);
            pieces[completions[i].tag] = (ups_piece){completions[i].bytes, completions[i].extent.length};
        }
        done += got;
    }
    return UPS_OK;
}

/* Reads a whole trajectory into `out` as the loader would: extents, engine, decode. Bytes that are frames as they are
 * go straight to `out`: a second copy, in memory that is new to the process, takes longer than the reading. */
static ups_status read_sample(const ups_source *source, int64_t index, ups_frames frames, ups_io_engine engine,
                              void *out, ups_error *error) {
    ups_io_options options = {.engine = engine};
    ups_io *io = NULL;
    uint8_t *memory = NULL;
    size_t room = source->limits.extents > 0 ? (size_t)source->limits.extents : 1;
    ups_extent *extents = calloc(room, sizeof *extents);
    ups_piece *pieces = calloc(room, sizeof *pieces);
    void *scratch = ups_aligned_alloc(64, source->limits.scratch_bytes ? source->limits.scratch_bytes : 64);
    int64_t count = 0;
    uint64_t bytes = UPS_IO_ALIGNMENT;
    ups_status status = UPS_OK;
    ups_sample sample = {0};
    if (!extents || !pieces || !scratch) status = ups_fail(error, UPS_ERR_MEMORY, "no memory to read a trajectory");
    if (status == UPS_OK) status = ups_source_describe(source, index, &sample, error);
    if (status == UPS_OK) status = source->class->extents(source, index, frames, extents, &count, error);
    bool straight = sample.as_stored && count > 0;
    for (int64_t i = 0; i < count; i++) bytes += ups_io_room(extents[i].length);
    if (status == UPS_OK && !straight && !(memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, bytes)))
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for %llu stored bytes", (unsigned long long)bytes);
    if (status == UPS_OK) status = ups_io_open(source->files, source->file_count, &options, &io, error);
    if (status == UPS_OK) status = fetch(io, extents, count, straight, straight ? out : memory, pieces, error);
    ups_io_close(io); /* before its buffers go */
    if (status == UPS_OK && !straight)
        status = source->class->decode(source, index, frames, pieces, count, scratch, out, error);
    ups_aligned_free(memory);
    ups_aligned_free(scratch);
    free(pieces);
    free(extents);
    return status;
}

/* The axes as they lie in memory; returns how many. */
static int sample_shape(const ups_sample *sample, int64_t shape[UPS_MAX_GRID_DIMS + 2]) {
    int rank = 0;
    shape[rank++] = sample->times;
    if (sample->order == UPS_CHANNELS_FIRST) shape[rank++] = sample->channels;
    for (int axis = 0; axis < sample->dims; axis++) shape[rank++] = sample->grid[axis];
    if (sample->order == UPS_CHANNELS_LAST) shape[rank++] = sample->channels;
    return rank;
}

static ups_status dump_sample(const ups_source *source, int64_t index, ups_io_engine engine, const char *output,
                              ups_error *error) {
    ups_sample sample;
    int64_t shape[UPS_MAX_GRID_DIMS + 2];
    UPS_TRY(ups_source_describe(source, index, &sample, error));
    size_t bytes = (size_t)sample.times * ups_sample_frame_bytes(&sample);
    void *out = ups_pages_alloc(bytes);
    if (!out) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the %zu bytes of sample %s", bytes, sample.name);
    ups_status status = read_sample(source, index, (ups_frames){0, sample.times}, engine, out, error);
    int rank = sample_shape(&sample, shape);
    if (status == UPS_OK) status = ups_npy_write(output, sample.dtype, rank, shape, out, error);
    ups_pages_free(out);
    return status;
}

enum { SAMPLE, IO, OUTPUT, DUMP_LAYOUT, FORCE, DUMP_OPTION_COUNT };
static const ups_option dump_options[DUMP_OPTION_COUNT] = {
    [SAMPLE] = {"sample", 0, "I", "trajectory to write, counted from 0 (default 0)"},
    [IO] = {"io", 0, "auto|uring|threads|library", "library: all by HDF5 (default auto)"},
    [OUTPUT] = {"output", 'o', "FILE.npy", "NPY file to write"},
    [DUMP_LAYOUT] = {"layout", 0, "YAML", LAYOUT_HELP},
    [FORCE] = {"force", 'f', NULL, "replace FILE.npy if it exists"},
};

static const ups_usage dump_usage = {
    .command = "data dump",
    .arguments = "FILE -o FILE.npy",
    .summary = "writes one trajectory as an NPY file, bit for bit as stored",
    .options = dump_options,
    .option_count = DUMP_OPTION_COUNT,
    .details =
        "The array is (time, x, [y, [z,]] channel) as the file keeps it, or (time, channel, x, [y, [z]]) where each\n"
        "field has a dataset of its own; a Darcy sample is (2, 2, x, y): frames (nu, 0) and (nu, u). Behind the\n"
        "points of a sample that has fewer than others the last one is repeated. All ways of reading give the same\n"
        "bytes; they differ in speed.\n\n"
        "Examples:\n"
        "  ups data dump 2D_diff-react_NA_NA.h5 --sample 1 -o reaction.npy\n"
        "  ups data dump burgers.h5 --io threads -o u.npy && python3 -c \"import numpy; "
        "print(numpy.load('u.npy').shape)\"",
};

static int dump(int argc, char **argv) {
    static const ups_io_engine engines[] = {UPS_IO_AUTO, UPS_IO_URING, UPS_IO_THREADS, UPS_IO_THREADS};
    enum { LIBRARY = 3 };
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &dump_usage, argc, argv);
    int64_t index = 0;
    int way = 0;
    bool force = false;
    const char *output = NULL, *layout = NULL;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SAMPLE) ups_arguments_integer(&arguments, 0, INT64_MAX, &index);
        if (option == IO) ups_arguments_choice(&arguments, &way);
        if (option == OUTPUT) output = arguments.value;
        if (option == DUMP_LAYOUT) layout = arguments.value;
        if (option == FORCE) force = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1)
        return ups_command_usage_error(&arguments, "one FILE was expected, %d were given", arguments.operand_count);
    if (!output) return ups_command_usage_error(&arguments, "where to? Name the file to write with -o X.npy");

    ups_error error;
    ups_source *source;
    if (open_source((const char *const *)arguments.operands, 1, layout, way == LIBRARY, &source, &error) != UPS_OK)
        return ups_command_fail(&arguments, &error);
    ups_status status = ups_output_is_no_input(output, source->files, source->file_count, &error);
    if (status == UPS_OK) status = ups_output_check_array(output, force, &error);
    if (status == UPS_OK) status = dump_sample(source, index, engines[way], output, &error);
    ups_source_close(source);
    if (status != UPS_OK) return ups_command_fail(&arguments, &error);
    if (arguments.json) {
        json_t *facts = json_pack("{s:o, s:I, s:o}", "file", ups_json_printable(arguments.operands[0]), "sample",
                                  (json_int_t)index, "output", ups_json_printable(output));
        ups_print_json(facts, JSON_INDENT(2));
        json_decref(facts);
    }
    return UPS_EXIT_OK;
}

/* ---- the group ----------------------------------------------------------------------------------------------------
 */

int ups_cmd_data(int argc, char **argv) {
    static const ups_command commands[] = {
        {"inspect", "show what simulation files hold and how they store it", inspect},
        {"dump", "write one trajectory as an NPY file", dump},
    };
    static const ups_command_group group = {
        .name = "data",
        .summary = "ups data - looks into files of PDE simulations: HDF5, NetCDF, NumPy, Zarr",
        .commands = commands,
        .count = sizeof commands / sizeof *commands,
        .details =
            "Layouts read: PDEBench's `tensor` files (1D advection, Burgers, reaction-diffusion), Darcy files, one\n"
            "group a seed (diffusion-sorption, diffusion-reaction, shallow water), compressible flow in 1D, 2D and\n"
            "3D, incompressible flow; The Well's; and NetCDF (classic and NetCDF-4) with a time dimension.\n"
            "Other HDF5, NetCDF, NPY, NPZ and Zarr: by a task's `layout`, which 'inspect --suggest' writes.",
    };
    return ups_command_dispatch(&group, argc, argv);
}
