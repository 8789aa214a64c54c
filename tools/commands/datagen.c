/* `ups datagen SOLVER`: training data of our own, in PDEBench's layouts. */
#include "tools/solvers/datagen.h"
#include "base/nearest.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT, SAMPLES, INITIAL, RESOLUTION, STEPS, SEED, PARAM, THREADS, FORCE, RESTART, LIST, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [OUTPUT] = {"output", 'o', "FILE.hdf5", "HDF5 file to write"},
    [SAMPLES] = {"samples", 'n', "N", "problems to draw and solve (default 1000; all of --initial)"},
    [INITIAL] = {"initial", 'i', "FILE", "fields that samples begin from, instead of random ones"},
    [RESOLUTION] = {"resolution", 'r', "N", "cells along each axis (default: the solver's)"},
    [STEPS] = {"steps", 0, "N", "stored times, the initial one included (default: the solver's)"},
    [SEED] = {"seed", 0, "N", "what the random problems are drawn from (default 0)"},
    [PARAM] = {"param", 'p', "NAME=VALUE",
               "a parameter of the solver, below; LOW:HIGH draws one for each sample; may be given several times"},
    [THREADS] = {"threads", 't', "N", "threads; the file does not depend on it (default: all processors)"},
    [FORCE] = {"force", 'f', NULL, "replace FILE if it exists"},
    [RESTART] = {"restart", 0, NULL, "begin again instead of continuing an unfinished run"},
    [LIST] = {"list", 'l', NULL, "list the solvers and end; with --json, with their parameters"},
};

static const int64_t most_threads = 1024, default_samples = 1000;

/* ---- what there is ---- */

static void print_list(FILE *out) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    for (int i = 0; i < count; i++) fprintf(out, "  %-18s %s\n", solvers[i]->name, solvers[i]->summary);
}

static json_t *choice_as_json(const ups_solver_parameter *choice) {
    json_t *words = json_array();
    const char *word;
    for (int i = 0; i <= (int)choice->maximum; i++) {
        const int length = ups_solver_word(choice, i, &word);
        json_array_append_new(words, json_stringn(word, (size_t)length));
    }
    const int length = ups_solver_word(choice, (int)choice->default_value, &word);
    return json_pack("{s:s, s:s%, s:o, s:s}", "name", choice->name, "default", word, (size_t)length, "choices", words,
                     "help", choice->help);
}

static json_t *number_as_json(const ups_solver_parameter *number) {
    return json_pack("{s:s, s:f, s:f, s:f, s:b, s:b, s:s, s:s}", "name", number->name, "default", number->default_value,
                     "minimum", number->minimum, "maximum", number->maximum, "whole", number->kind & UPS_WHOLE,
                     "by_sample", !(number->kind & UPS_SHARED), "unit", number->unit, "help", number->help);
}

static void print_json_list(void) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const ups_solver *solver = solvers[i];
        json_t *parameters = json_array();
        for (int p = 0; p < solver->parameter_count; p++) {
            const ups_solver_parameter *one = &solver->parameters[p];
            json_array_append_new(parameters, one->kind & UPS_CHOICE ? choice_as_json(one) : number_as_json(one));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "name", solver->name, "summary",
                                              solver->summary, "equation", solver->equation, "resolution",
                                              (json_int_t)solver->default_resolution, "steps",
                                              (json_int_t)solver->default_steps, "parameters", parameters));
    }
    ups_print_json(list, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(list);
}

/* A parameter as an option with its default; returns how many characters that takes. */
static int write_setting(const ups_solver_parameter *parameter, char setting[64]) {
    if (!(parameter->kind & UPS_CHOICE))
        return snprintf(setting, 64, "--param %s=%g", parameter->name, parameter->default_value);
    const char *word;
    const int length = ups_solver_word(parameter, (int)parameter->default_value, &word);
    return snprintf(setting, 64, "--param %s=%.*s", parameter->name, length, word);
}

static void describe_solver(const ups_solver *solver, FILE *out) {
    fprintf(out, "%s - %s\n", solver->name, solver->summary);
    for (const char *line = solver->equation; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        fprintf(out, "  %.*s\n", (int)strcspn(line, "\n"), line);
    }
    fprintf(out, "\n  --resolution %lld", (long long)solver->default_resolution);
    if (solver->default_steps > 0) fprintf(out, " --steps %lld", (long long)solver->default_steps);
    fputc('\n', out);
    int widest = 0;
    char setting[64];
    for (int p = 0; p < solver->parameter_count; p++) {
        const int length = write_setting(&solver->parameters[p], setting);
        if (length > widest) widest = length;
    }
    for (int p = 0; p < solver->parameter_count; p++) {
        const ups_solver_parameter *parameter = &solver->parameters[p];
        write_setting(parameter, setting);
        fprintf(out, "  %-*s  %s", widest, setting, parameter->help);
        if (parameter->kind & UPS_CHOICE) {
            fprintf(out, ": %s\n", parameter->unit);
            continue;
        }
        if (strcmp(parameter->unit, "1") != 0) fprintf(out, " [%s]", parameter->unit);
        fprintf(out, ", %g to %g\n", parameter->minimum, parameter->maximum);
    }
}

/* What --help shows below the options: one solver, or all of them in a line each; freed with free(). */
static char *details_text(const ups_solver *solver) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    if (solver) {
        describe_solver(solver, out);
        fputs("\nThe values shown are the defaults. ", out);
    } else {
        fputs("Solvers; `ups datagen SOLVER --help` shows equation and parameters:\n", out);
        print_list(out);
        fputc('\n', out);
    }
    fputs(
        "Sample i of a seed is the same problem whatever the number of\n"
        "samples; draw a test set with another seed. A run that was interrupted, even killed, is continued by the\n"
        "same command and ends with the same bytes.\n\n"
        "--param NAME=LOW:HIGH draws a number for each sample, evenly, and NAME=log:LOW:HIGH so that its logarithm is\n"
        "even. The file keeps each sample's value, and training conditions on it.\n\n"
        "--initial FILE begins sample i as the file's sample i: the first frame of a file that `ups data inspect` "
        "knows,\n"
        "or arrays (NPY, NPZ, HDF5, Zarr) over sample and grid, on the same grid. --resolution says its cells.\n\n"
        "Examples:\n"
        "  ups datagen advection1d -o advection.hdf5 --samples 300 --resolution 256 --steps 41\n"
        "  ups datagen burgers1d -o burgers.hdf5 --param nu=0.001 --seed 1\n"
        "  ups datagen burgers1d -o burgers_of_many.hdf5 --param nu=log:0.001:0.1\n"
        "  ups datagen darcy2d -o darcy.hdf5 --samples 600 --resolution 64\n"
        "  ups datagen burgers1d -o from_mine.hdf5 --initial fields.npy --resolution 256\n"
        "  ups data inspect darcy.hdf5",
        out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static ups_usage usage = {
    .command = "datagen",
    .arguments = "SOLVER -o FILE.hdf5",
    .summary = "solves random problems of a PDE and writes them as PDEBench does",
    .options = options,
    .option_count = OPTION_COUNT,
};

static int unknown_solver(const ups_arguments *arguments, const char *name) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    ups_nearest nearest = {.word = name};
    for (int i = 0; i < count; i++) ups_nearest_try(&nearest, solvers[i]->name);
    if (nearest.name)
        return ups_command_usage_error(arguments, "unknown solver '%.60s'; did you mean '%s'?", name, nearest.name);
    return ups_command_usage_error(arguments, "unknown solver '%.60s'; `ups datagen --list` shows what there is", name);
}

/* The solver that is meant, before options are read: the help depends on it. */
static const ups_solver *mentioned_solver(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const ups_solver *solver = ups_solver_find(argv[i]);
        if (solver) return solver;
    }
    return NULL;
}

/* ---- what was made ---- */

static void print_result(ups_datagen_request *request, const ups_datagen_result *result, bool json) {
    request->samples = result->samples;
    const double rate = (double)(request->samples - result->continued) / result->seconds;
    if (!json) {
        printf("%s: %lld samples of %s, %.1f MB, in %.2f s (%.*f samples/s on %d %s)\n", request->path,
               (long long)request->samples, request->solver->name, 1e-6 * (double)result->bytes, result->seconds,
               rate < 10.0 ? 2 : 0, rate, result->threads, result->threads == 1 ? "thread" : "threads");
        if (result->continued > 0)
            printf("%lld samples were there from an earlier run\n", (long long)result->continued);
        return;
    }
    json_t *document = json_pack("{s:s}", "file", request->path);
    json_t *description = ups_datagen_describe(request);
    json_object_update(document, description);
    json_decref(description);
    if (request->initial) json_object_set_new(document, "initial", json_string(request->initial));
    json_object_set_new(document, "bytes", json_integer((json_int_t)result->bytes));
    json_object_set_new(document, "continued", json_integer((json_int_t)result->continued));
    json_object_set_new(document, "threads", json_integer(result->threads));
    json_object_set_new(document, "seconds", json_real(round(1e4 * result->seconds) * 1e-4));
    json_object_set_new(document, "samples_per_second", json_real(round(1e3 * rate) * 1e-3));
    ups_print_json(document, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(document);
}

typedef struct command_line {
    ups_datagen_request request;
    int64_t resolution, steps, seed, threads; /* 0: not given */
    const char **settings;                    /* NAME=VALUE, as given */
    int setting_count;
    bool list;
} command_line;

static void read_options(ups_arguments *arguments, command_line *line) {
    for (int option; (option = ups_arguments_next(arguments)) >= 0;) {
        if (option == OUTPUT) line->request.path = arguments->value;
        if (option == SAMPLES) ups_arguments_integer(arguments, 1, INT64_C(1) << 32, &line->request.samples);
        if (option == INITIAL) line->request.initial = arguments->value;
        if (option == RESOLUTION) ups_arguments_integer(arguments, 1, INT64_C(1) << 20, &line->resolution);
        if (option == STEPS) ups_arguments_integer(arguments, 2, INT64_C(100000), &line->steps);
        if (option == SEED) ups_arguments_integer(arguments, 0, INT64_MAX, &line->seed);
        if (option == THREADS) ups_arguments_integer(arguments, 1, most_threads, &line->threads);
        if (option == PARAM) line->settings[line->setting_count++] = arguments->value;
        if (option == FORCE) line->request.replace = true;
        if (option == RESTART) line->request.restart = true;
        if (option == LIST) line->list = true;
    }
}

static int make_file(const ups_arguments *arguments, command_line *line) {
    ups_datagen_request *request = &line->request;
    if (arguments->operand_count != 1)
        return ups_command_usage_error(arguments, "one solver was expected, such as advection1d; `ups datagen --list` "
                                                  "shows all");
    request->solver = ups_solver_find(arguments->operands[0]);
    if (!request->solver) return unknown_solver(arguments, arguments->operands[0]);
    if (!request->path) return ups_command_usage_error(arguments, "-o FILE is missing: where to write the data");

    ups_solver_setup_begin(request->solver, &request->setup);
    if (request->samples == 0 && !request->initial) request->samples = default_samples;
    if (line->resolution > 0) request->setup.resolution = line->resolution;
    if (line->steps > 0) request->setup.steps = line->steps;
    request->setup.seed = (uint64_t)line->seed;
    request->threads = (int)line->threads;
    ups_error error;
    ups_datagen_result result;
    ups_status status = UPS_OK;
    for (int i = 0; status == UPS_OK && i < line->setting_count; i++) {
        status = ups_solver_set(request->solver, &request->setup, line->settings[i], &error);
    }
    if (status == UPS_OK) status = ups_solver_check(request->solver, &request->setup, &error);
    if (status != UPS_OK) return ups_command_usage_error(arguments, "%s", error.message);
    if (request->initial) status = ups_output_is_no_input(request->path, &request->initial, 1, &error);
    if (status == UPS_OK) status = ups_datagen_run(request, &result, &error);
    if (status != UPS_OK) return ups_command_fail(arguments, &error);
    print_result(request, &result, arguments->json);
    return UPS_EXIT_OK;
}

int ups_cmd_datagen(int argc, char **argv) {
    ups_arguments arguments;
    command_line line = {.settings = calloc((size_t)argc + 1, sizeof *line.settings)};
    char *details = details_text(mentioned_solver(argc, argv));
    usage.details = details;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int exit_code;
    if (!line.settings) {
        ups_error error;
        ups_fail(&error, UPS_ERR_MEMORY, "out of memory");
        exit_code = ups_command_fail(&arguments, &error);
        goto cleanup;
    }
    read_options(&arguments, &line);
    if (arguments.stop) {
        exit_code = ups_arguments_end(&arguments);
    } else if (line.list) {
        if (arguments.json)
            print_json_list();
        else
            print_list(stdout);
        exit_code = UPS_EXIT_OK;
    } else {
        exit_code = make_file(&arguments, &line);
    }
cleanup:
    usage.details = NULL;
    free(details);
    free(line.settings);
    return exit_code;
}
