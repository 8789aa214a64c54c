/* `ups cache export`: latents as one NPY or HDF5 file, or as a Zarr store that every reader opens. */
#include "cache/inspect/export.h"
#include "base/json.h"
#include "base/progress.h"
#include "cache/store/group.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/output.h"
#include <stdio.h>
#include <stdlib.h>

enum { FORMAT, OUTPUT, SAMPLES, FORCE, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [FORMAT] = {"format", 0, "npy|hdf5|zarr", "kind of file (default npy)"},
    [OUTPUT] = {"output", 'o', "PATH", "file to write; with zarr a directory, which must not be there yet"},
    [SAMPLES] = {"samples", 'n', "LIST", "samples to write, as 0-9,12,40-60 (default all)"},
    [FORCE] = {"force", 'f', NULL, "replace the file PATH if it exists"},
};

static const ups_usage usage = {
    "cache export",
    "DIR -o PATH",
    "writes the latents of one task and split as NPY, HDF5 or portable Zarr",
    options,
    OPTION_COUNT,
    "The array is (sample, time, token, dim) float16; samples that the build skipped are NaN. HDF5 holds it as\n"
    "'latent', beside 'time', 'condition' (PDE parameters), 'source_sample' and 'ups' (how the cache was made). Zarr "
    "is\n"
    "the cache again, with codecs that zarr-python has without a plug-in: larger, and usable as a cache too.\n\n"
    "Examples:\n"
    "  ups cache export cache/advection1d/train --format hdf5 -o latents.h5\n"
    "  ups cache export cache/advection1d/train --format zarr --samples 0-99 -o few.zarr",
};

/* The bar begins with the first trajectory: what is refused before has none. */
static void show_progress(void *context, int64_t done, int64_t samples) {
    ups_progress **progress = context;
    if (!*progress) *progress = ups_progress_begin("export", "trajectories", samples, 0);
    ups_progress_update(*progress, done, NULL);
}

/* "0-9,12": indices in the order given, malloc. NULL: not such a list, or longer than `maximum`. */
static int64_t *read_samples(const char *text, int64_t maximum, int64_t *count) {
    int64_t *samples = NULL;
    *count = 0;
    for (const char *at = text;; at++) {
        char *end;
        if (*at < '0' || *at > '9') break;
        long long first = strtoll(at, &end, 10), last = first;
        if (*end == '-' && end[1] >= '0' && end[1] <= '9') last = strtoll(end + 1, &end, 10);
        if (last < first || last - first >= maximum - *count) break;
        int64_t *longer = realloc(samples, (size_t)(*count + last - first + 1) * sizeof *longer);
        if (!longer) break;
        samples = longer;
        for (long long i = first; i <= last; i++) samples[(*count)++] = i;
        if (*end == '\0') return samples;
        if (*end != ',') break;
        at = end;
    }
    free(samples);
    return NULL;
}

int ups_cmd_cache_export(int argc, char **argv) {
    static const int64_t most_samples = INT64_C(1) << 28;
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int format = UPS_EXPORT_NPY;
    bool force = false;
    const char *list = NULL, *format_name = "npy";
    ups_export_request request = {0};
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == FORMAT) ups_arguments_choice(&arguments, &format), format_name = arguments.value;
        if (option == OUTPUT) request.path = arguments.value;
        if (option == SAMPLES) list = arguments.value;
        if (option == FORCE) force = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR was expected");
    if (!request.path) return ups_command_usage_error(&arguments, "-o PATH is missing");
    int64_t listed = 0, *samples = NULL;
    if (list && !(samples = read_samples(list, most_samples, &listed)))
        return ups_command_usage_error(&arguments, "--samples %s: a list was expected, such as 0-9,12", list);

    ups_error error;
    ups_cache_group *group = NULL;
    const char *directory = arguments.operands[0];
    ups_status status = format == UPS_EXPORT_ZARR ? UPS_OK : ups_output_check_array(request.path, force, &error);
    if (status == UPS_OK) status = ups_cache_group_open(directory, &group, &error);
    if (status != UPS_OK) {
        free(samples);
        return ups_command_fail(&arguments, &error);
    }
    ups_chunk_shape each = group->shape.trajectory;
    int64_t count = samples ? listed : group->shape.samples;
    ups_cache_group_close(group);
    request.format = (ups_export_format)format;
    request.samples = samples;
    request.sample_count = count;
    request.progress = show_progress;
    ups_progress *progress = NULL;
    request.context = &progress;
    status = ups_cache_export(directory, &request, &error);
    if (progress) ups_progress_end(progress);
    free(samples);
    if (status != UPS_OK) return ups_command_fail(&arguments, &error);
    if (arguments.json) {
        json_t *result =
            json_pack("{s:s, s:s, s:[I,I,I,I]}", "file", request.path, "format", format_name, "shape",
                      (json_int_t)count, (json_int_t)each.times, (json_int_t)each.tokens, (json_int_t)each.dim);
        ups_print_json(result, JSON_INDENT(2));
        json_decref(result);
    } else {
        printf("%s: (%lld, %lld, %lld, %lld) float16\n", request.path, (long long)count, (long long)each.times,
               (long long)each.tokens, (long long)each.dim);
    }
    return UPS_EXIT_OK;
}
