/* `ups datagen SOLVER`: training data of our own, in PDEBench's layouts. */
#include "tools/command.h"
#include "tools/commands.h"
#include "tools/solvers/datagen.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT, SAMPLES, RESOLUTION, STEPS, SEED, PARAM, THREADS, FORCE, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [OUTPUT] = {"output", 'o', "FILE", "HDF5 file to write"},
    [SAMPLES] = {"samples", 'n', "N", "problems to draw and solve (default 1000)"},
    [RESOLUTION] = {"resolution", 'r', "N", "cells along each axis (default: the solver's)"},
    [STEPS] = {"steps", 's', "N", "stored times, the initial one included (default: the solver's)"},
    [SEED] = {"seed", 0, "N", "what the random problems are drawn from (default 0)"},
    [PARAM] = {"param", 'p', "NAME=VALUE", "a parameter of the solver, below; may be given several times"},
    [THREADS] = {"threads", 't', "N", "threads; the file does not depend on it (default: all processors)"},
    [FORCE] = {"force", 'f', NULL, "replace FILE if it exists"},
};

static const int64_t most_threads = 1024;

/* Solvers and their parameters, from their own tables; freed with free(). */
static char *describe_solvers(void) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    fputs("Solvers and their parameters:\n", out);
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    for (int i = 0; i < count; i++) {
        const ups_solver *solver = solvers[i];
        fprintf(out, "\n%s - %s\n", solver->name, solver->summary);
        for (const char *line = solver->equation; line; line = strchr(line, '\n')) {
            line += *line == '\n';
            fprintf(out, "  %.*s\n", (int)strcspn(line, "\n"), line);
        }
        fprintf(out, "  --resolution %lld", (long long)solver->default_resolution);
        if (solver->default_steps > 0) fprintf(out, "  --steps %lld", (long long)solver->default_steps);
        fputc('\n', out);
        for (int p = 0; p < solver->parameter_count; p++) {
            const ups_solver_parameter *parameter = &solver->parameters[p];
            char setting[64], unit[32] = "";
            snprintf(setting, sizeof setting, "--param %s=%g", parameter->name, parameter->fallback);
            if (strcmp(parameter->unit, "1") != 0) snprintf(unit, sizeof unit, " [%s]", parameter->unit);
            fprintf(out, "  %-26s%s%s, %g to %g\n", setting, parameter->help, unit, parameter->minimum,
                    parameter->maximum);
        }
    }
    fputs(
        "\nThe values shown are the defaults. Sample i of a seed is the same problem whatever the number of samples;\n"
        "draw a test set with another seed.\n\n"
        "Examples:\n"
        "  ups datagen advection1d -o advection.h5 --samples 300 --resolution 256 --steps 41\n"
        "  ups datagen burgers1d -o burgers.h5 --param nu=0.001 --seed 1\n"
        "  ups datagen darcy2d -o darcy.h5 --samples 600 --resolution 64\n"
        "  ups data inspect darcy.h5",
        out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static ups_usage usage = {
    .command = "datagen",
    .arguments = "SOLVER -o FILE",
    .summary = "solves random problems of a PDE and writes them as PDEBench does",
    .options = options,
    .option_count = OPTION_COUNT,
};

static const char *solver_name(const void *context, size_t index) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    return index < (size_t)count ? solvers[index]->name : NULL;
}

static int unknown_solver(const ups_arguments *arguments, const char *name) {
    char names[128] = "";
    for (size_t i = 0; solver_name(NULL, i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", solver_name(NULL, i));
    }
    const char *nearest = ups_command_nearest(name, solver_name, NULL);
    if (nearest) return ups_command_usage_error(arguments, "unknown solver '%.60s'; did you mean %s?", name, nearest);
    return ups_command_usage_error(arguments, "unknown solver '%.60s'; there are %s", name, names);
}

static void print_result(const ups_datagen_request *request, const ups_datagen_result *result, bool json) {
    const double rate = (double)request->samples / result->seconds;
    if (!json) {
        printf("%s: %lld samples of %s, %.1f MB, in %.2f s (%.0f samples/s on %d threads)\n", request->path,
               (long long)request->samples, request->solver->name, 1e-6 * (double)result->bytes, result->seconds, rate,
               result->threads);
        return;
    }
    json_t *document = json_pack("{s:s}", "file", request->path);
    json_t *description = ups_datagen_describe(request);
    json_object_update(document, description);
    json_decref(description);
    json_object_set_new(document, "bytes", json_integer((json_int_t)result->bytes));
    json_object_set_new(document, "threads", json_integer(result->threads));
    json_object_set_new(document, "seconds", json_real(round(1e4 * result->seconds) * 1e-4));
    json_object_set_new(document, "samples_per_second", json_real(round(10.0 * rate) * 0.1));
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(document);
}

int ups_cmd_datagen(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    ups_datagen_request request = {.samples = 1000};
    int64_t resolution = 0, steps = 0, seed = 0, threads = 0;
    int exit_code = UPS_EXIT_FAILURE;
    int settings_count = 0;
    const char **settings = calloc((size_t)argc + 1, sizeof *settings);
    char *details = describe_solvers();
    usage.details = details;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == OUTPUT) request.path = arguments.value;
        if (option == SAMPLES) ups_arguments_integer(&arguments, 1, INT64_C(1) << 32, &request.samples);
        if (option == RESOLUTION) ups_arguments_integer(&arguments, 1, INT64_C(1) << 20, &resolution);
        if (option == STEPS) ups_arguments_integer(&arguments, 2, INT64_C(100000), &steps);
        if (option == SEED) ups_arguments_integer(&arguments, 0, INT64_MAX, &seed);
        if (option == THREADS) ups_arguments_integer(&arguments, 1, most_threads, &threads);
        if (option == PARAM && settings) settings[settings_count++] = arguments.value;
        if (option == FORCE) request.replace = true;
    }
    if (arguments.stop) {
        exit_code = ups_arguments_end(&arguments);
        goto cleanup;
    }
    if (!settings) {
        ups_fail(&error, UPS_ERR_MEMORY, "out of memory");
        exit_code = ups_command_fail(&arguments, &error);
        goto cleanup;
    }
    if (arguments.operand_count != 1) {
        exit_code = ups_command_usage_error(&arguments, "one solver was expected: advection1d, burgers1d or darcy2d");
        goto cleanup;
    }
    request.solver = ups_solver_find(arguments.operands[0]);
    if (!request.solver) {
        exit_code = unknown_solver(&arguments, arguments.operands[0]);
        goto cleanup;
    }
    if (!request.path) {
        exit_code = ups_command_usage_error(&arguments, "-o FILE is missing: where to write the data");
        goto cleanup;
    }
    ups_solver_setup_begin(request.solver, &request.setup);
    if (resolution > 0) request.setup.resolution = resolution;
    if (steps > 0) request.setup.steps = steps;
    request.setup.seed = (uint64_t)seed;
    request.threads = (int)threads;
    ups_datagen_result result;
    ups_status status = UPS_OK;
    for (int i = 0; status == UPS_OK && i < settings_count; i++) {
        status = ups_solver_set(request.solver, &request.setup, settings[i], &error);
    }
    if (status == UPS_OK) status = ups_datagen_run(&request, &result, &error);
    if (status != UPS_OK) {
        exit_code = ups_command_fail(&arguments, &error);
        goto cleanup;
    }
    print_result(&request, &result, arguments.json);
    exit_code = UPS_EXIT_OK;
cleanup:
    usage.details = NULL;
    free(details);
    free(settings);
    return exit_code;
}
