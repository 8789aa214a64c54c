/* `ups cache export`: latents as one NPY or HDF5 file, for tools that read no Zarr. */
#include "base/json.h"
#include "base/progress.h"
#include "cache/export.h"
#include "cache/group.h"
#include "tools/command.h"
#include "tools/commands.h"
#include <stdio.h>

enum { FORMAT, OUTPUT, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [FORMAT] = {"format", 'f', "npy|hdf5", "kind of file (default npy)"},
    [OUTPUT] = {"output", 'o', "FILE", "file to write"},
};

static const ups_usage usage = {
    "cache export",
    "DIR -o FILE",
    "writes the latents of one task and split as an NPY or HDF5 file",
    options,
    OPTION_COUNT,
    "The array is (sample, time, token, dim) float16; samples that the build skipped are NaN. HDF5 holds it as\n"
    "'latent', beside 'time', 'condition' (PDE parameters), 'source_sample' and 'ups' (how the cache was made).\n\n"
    "Example:\n"
    "  ups cache export cache/advection1d/train --format hdf5 -o latents.h5",
};

static void show_progress(void *context, int64_t done, int64_t samples) {
    ups_progress_update(context, done, NULL);
}

int ups_cmd_cache_export(int argc, char **argv) {
    static const char *const formats[] = {"npy", "hdf5", NULL};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int format = UPS_EXPORT_NPY;
    const char *output = NULL;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == FORMAT) ups_arguments_choice(&arguments, formats, &format);
        if (option == OUTPUT) output = arguments.value;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR was expected");
    if (!output) return ups_command_usage_error(&arguments, "-o FILE is missing");

    ups_error error;
    ups_cache_group *group = NULL;
    const char *directory = arguments.operands[0];
    if (ups_cache_group_open(directory, &group, &error) != UPS_OK) return ups_command_fail(&arguments, &error);
    ups_cache_shape shape = group->shape;
    ups_cache_group_close(group);
    ups_progress *progress = ups_progress_begin("export", "trajectories", shape.samples, 0);
    ups_status status = ups_cache_export(directory, (ups_export_format)format, output, show_progress, progress, &error);
    ups_progress_end(progress);
    if (status != UPS_OK) return ups_command_fail(&arguments, &error);
    ups_chunk_shape each = shape.trajectory;
    if (arguments.json) {
        json_t *result =
            json_pack("{s:s, s:s, s:[I,I,I,I]}", "file", output, "format", formats[format], "shape",
                      (json_int_t)shape.samples, (json_int_t)each.times, (json_int_t)each.tokens, (json_int_t)each.dim);
        json_dumpf(result, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(result);
    } else {
        printf("%s: (%lld, %lld, %lld, %lld) float16\n", output, (long long)shape.samples, (long long)each.times,
               (long long)each.tokens, (long long)each.dim);
    }
    return UPS_EXIT_OK;
}
