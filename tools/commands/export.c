/* `ups export RUN -o FILE`: a trained model as one file, for Python, C and PyTorch. */
#include "base/files.h"
#include "base/json.h"
#include "model/devices/devices.h"
#include "model/parameters/safetensors.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "train/config/load.h"
#include "train/portable/described.h"
#include "train/portable/pack.h"
#include "train/run/replace.h"
#include "train/session.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT, CHECKPOINT, SET, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [OUTPUT] = {"output", 'o', "FILE",
                "file to write, safetensors; a model that is there is replaced once the new one is whole"},
    [CHECKPOINT] = {"checkpoint", 'c', "best|latest|FILE|DIR",
                    "models to take instead of the run's: of its checkpoints, a safetensors file or a directory"},
    [SET] = {"set", 's', "KEY=VALUE",
             "overrides a key of the configuration; may be given several times. A model that tells of its fields heeds "
             "`output` alone"},
};
static const ups_usage usage = {
    "export",
    "RUN|CONFIG -o FILE",
    "writes a trained model as one file, which needs neither the run nor its data",
    options,
    OPTION_COUNT,
    "The file holds autoencoder and operator, the fields, grids and parameters that they were trained on, and how "
    "these "
    "are\nnormalised. Python reads it with ups.Model.load, C with ups_model_open (ups.h), PyTorch with "
    "ups.pytorch.load;\n"
    "`ups eval` and `ups rollout` take it as --checkpoint. Of averaged weights it holds the average. The run's data "
    "are\n"
    "needed for models alone that were trained before models told of their fields, and for --checkpoint where the run "
    "has\nnot finished.\n"
    "\nExamples:\n"
    "  ups export runs/many -o many.safetensors\n"
    "  ups export runs/many --checkpoint best -o best.safetensors"};

/* Whether there is somebody who tells of the model: its operator's file, or that of the run. */
static ups_status find_teller(const ups_run_config *config, const ups_surrogate_files *files, char **teller,
                              ups_error *error) {
    bool told = false;
    *teller = NULL;
    UPS_TRY(ups_described_is_told(files->op, &told, error));
    if (told) {
        *teller = strdup(files->op);
        return *teller ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    char *own = ups_run_model_path(config, UPS_STAGE_OPERATOR);
    if (!own) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (ups_described_is_told(own, &told, NULL) == UPS_OK && told) {
        *teller = own;
    } else {
        free(own);
    }
    return UPS_OK;
}

/* Builds the graphs of every task with the weights, which finds what does not fit. */
static ups_status try_all(const ups_run_config *config, const ups_tasks *tasks, const ups_surrogate_files *files,
                          ups_device *device, ups_error *error) {
    const ups_surrogate_use use = {.states = 1, .at_grid_points = true};
    ups_status status = UPS_OK;
    for (int t = 0; t < tasks->count && status == UPS_OK; t++) {
        ups_surrogate *surrogate = NULL;
        status = ups_surrogate_open(config, tasks, t, device, files, use, &surrogate, error);
        ups_surrogate_close(surrogate);
    }
    return status;
}

static ups_status pack_told(const ups_surrogate_files *files, const char *teller, const char *path, ups_packed *packed,
                            ups_error *error) {
    ups_described described;
    ups_device *device = NULL;
    UPS_TRY(ups_described_open(teller, files->autoencoder, NULL, &described, error));
    ups_status status = ups_device_open(&(ups_device_options){.name = "cpu"}, &device, error);
    if (status == UPS_OK) status = try_all(described.config, described.tasks, files, device, error);
    if (status == UPS_OK) status = ups_pack(described.config, files, NULL, teller, path, packed, error);
    ups_device_close(device);
    ups_described_close(&described);
    return status;
}

/* A model that is there is replaced, and nothing else: data are not lost for a mistyped name. */
static ups_status check_output(const char *path, ups_error *error) {
    ups_safetensors *there = NULL;
    if (!ups_path_exists(path)) return UPS_OK;
    if (ups_safetensors_open(path, &there, NULL) != UPS_OK) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s is there already, and is no model; name another file, or remove it", path);
    }
    ups_safetensors_close(there);
    return UPS_OK;
}

/* What a model tells of itself is packed as it is: of the configuration there counts only where the run is. */
static ups_status check_overrides(const ups_arguments *arguments, const char *teller, ups_error *error) {
    static const char counts[] = "output";
    for (size_t i = 0; i < arguments->override_count; i++) {
        const char *override = arguments->overrides[i];
        const size_t length = strcspn(override, "= ");
        if (length == sizeof counts - 1 && strncmp(override, counts, length) == 0) continue;
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "--set %s changes nothing: %s tells by itself what it was trained with, and is exported so; "
                        "leave %.*s out, or train with it",
                        override, teller, (int)length, override);
    }
    return UPS_OK;
}

/* The run keeps its own models, and the file does not take the place of a part that it is made of. */
static ups_status keep_models(const ups_run_config *config, const ups_surrogate_files *files, const char *path,
                              ups_error *error) {
    const bool whole = ups_path_is_same(files->op, files->autoencoder); /* such a file may be written anew */
    bool taken = !whole && (ups_path_is_same(path, files->op) || ups_path_is_same(path, files->autoencoder));
    static const ups_stage stages[] = {UPS_STAGE_AUTOENCODER, UPS_STAGE_OPERATOR};
    for (size_t s = 0; s < sizeof stages / sizeof *stages && !taken; s++) {
        char *own = ups_run_model_path(config, stages[s]);
        if (!own) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        taken = ups_path_is_same(path, own);
        free(own);
    }
    if (!taken) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s is a model of the run, which the run needs; name another file", path);
}

/* Takes over the configuration. */
static ups_status pack_by_data(ups_run_config *config, const ups_surrogate_files *files, const char *path,
                               ups_packed *packed, ups_error *error) {
    ups_session session;
    ups_status status = ups_session_begin(config, false, &session, error);
    if (status != UPS_OK) {
        ups_run_config_free(config);
        return status;
    }
    if (status == UPS_OK) status = ups_session_normalise(&session, files->autoencoder, error);
    if (status == UPS_OK) status = ups_tasks_condition_as_trained(session.tasks, files->op, error);
    if (status == UPS_OK) status = ups_session_settle_precision(&session, error);
    if (status == UPS_OK) status = try_all(session.config, session.tasks, files, session.device, error);
    json_t *told = status == UPS_OK ? ups_described_tell(session.config, session.tasks) : NULL;
    if (status == UPS_OK && !told) status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_pack(session.config, files, told, NULL, path, packed, error);
    json_decref(told);
    ups_session_close(&session);
    return status;
}

static ups_status export_model(const char *run, const ups_arguments *arguments, const char *checkpoint,
                               const char *path, ups_packed *packed, bool *loaded, ups_error *error) {
    ups_run_config *config = NULL;
    UPS_TRY(check_output(path, error));
    UPS_TRY(ups_run_settle(run, error));
    UPS_TRY(ups_run_config_load(run, arguments->overrides, arguments->override_count, &config, error));
    *loaded = true;
    ups_surrogate_files files = {0};
    char *teller = NULL;
    ups_status status = ups_run_settle(config->output, error);
    if (status == UPS_OK) status = ups_surrogate_find(config, checkpoint, &files, error);
    if (status == UPS_OK) status = keep_models(config, &files, path, error);
    if (status == UPS_OK) status = find_teller(config, &files, &teller, error);
    if (status == UPS_OK && !teller) {
        status = pack_by_data(config, &files, path, packed, error);
    } else {
        if (status == UPS_OK) status = check_overrides(arguments, teller, error);
        if (status == UPS_OK) status = pack_told(&files, teller, path, packed, error);
        ups_run_config_free(config);
    }
    free(teller);
    ups_surrogate_files_free(&files);
    return status;
}

static int report(const ups_arguments *arguments, const char *path, const ups_packed *packed) {
    if (arguments->json) {
        json_t *told = json_pack("{s:s, s:I, s:I, s:I}", "file", path, "tensors", (json_int_t)packed->tensors,
                                 "parameters", (json_int_t)packed->parameters, "bytes", (json_int_t)packed->bytes);
        ups_print_json(told, JSON_INDENT(2));
        json_decref(told);
    } else {
        printf("%s: %lld parameters in %lld tensors, %.1f MB\n", path, (long long)packed->parameters,
               (long long)packed->tensors, 1e-6 * (double)packed->bytes);
    }
    return UPS_EXIT_OK;
}

int ups_cmd_export(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    const char *output = NULL, *checkpoint = NULL;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == OUTPUT) output = arguments.value;
        if (option == CHECKPOINT) checkpoint = arguments.value;
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_no_config(&arguments);
    if (!output)
        return ups_command_usage_error(&arguments, "where to? Name the file to write with -o FILE.safetensors");
    ups_packed packed;
    bool loaded = false;
    const ups_status status =
        export_model(arguments.operands[0], &arguments, checkpoint, output, &packed, &loaded, &error);
    if (status == UPS_OK) return report(&arguments, output, &packed);
    return loaded ? ups_command_fail(&arguments, &error)
                  : ups_command_fail_on_config(&arguments, UPS_PATHS_READ, &error);
}
