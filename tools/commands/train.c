/* `ups train CONFIG`: the stages of a run in order, each finished one skipped, each stopped one resumable. */
#include "base/json.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "train/precision.h"
#include "train/run_precision.h"
#include "train/stages/run.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>

enum { STAGE, RESUME, RESTART, SET, PLAN, OPTION_COUNT };
static const char details[] =
    "A run is the directory `output` of a configuration: state.json, metrics.jsonl, checkpoints/, cache/, and the\n"
    "finished models as safetensors. Finished stages are skipped; where `steps` was raised since, a stage goes on to\n"
    "the new number. Ctrl-C and SIGTERM write a checkpoint and exit. --resume then goes on with the same samples and\n"
    "the same numbers; a run with a checkpoint is not continued, and not overwritten, without being told which.\n"
    "\nExamples:\n"
    "  ups train configs/quickstart.yaml\n"
    "  ups train configs/reference_2task.yaml --plan\n"
    "  ups train configs/reference_2task.yaml --stage operator --resume --set operator.batch_size=16\n";

/* "autoencoder, cache, operator", with `last` for the last comma. */
static void list_stages(const char *last, char *text, size_t bytes) {
    size_t used = 0;
    for (int s = 0; s < UPS_STAGE_COUNT && used < bytes; s++) {
        const char *between = s == 0 ? "" : s + 1 < UPS_STAGE_COUNT ? ", " : last;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", between, ups_stage_name((ups_stage)s));
    }
}

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static void print_plan(const char *name, const ups_stage_plan *plan, json_t *list) {
    if (list) {
        json_object_set_new(
            list, name,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:I, s:I}", "batch_size",
                      (json_int_t)plan->batch_size, "trainable_parameters", (json_int_t)plan->trainable, "parameters",
                      (json_int_t)plan->parameters, "optimizer", (json_int_t)plan->optimizer, "activations",
                      (json_int_t)plan->activations, "activations_without_checkpointing",
                      (json_int_t)plan->activations_without_checkpointing, "inputs", (json_int_t)plan->inputs,
                      "workspace", (json_int_t)plan->workspace, "loader", (json_int_t)plan->loader, "validation_loader",
                      (json_int_t)plan->validation, "residency", ups_residency_name(plan->residency), "resident",
                      (json_int_t)plan->resident, "encodes", (int)plan->encodes, "encoders", (json_int_t)plan->encoders,
                      "total", (json_int_t)plan->total));
        return;
    }
    printf("%s: %.2f M parameters, batches of %lld\n", name, (double)plan->trainable / 1e6,
           (long long)plan->batch_size);
    static const char *const kept[] = {[UPS_RESIDENCY_STREAM] = "samples kept (stream: none)",
                                       [UPS_RESIDENCY_RAM_COMPRESSED] = "samples kept (ram_compressed)",
                                       [UPS_RESIDENCY_RAM] = "samples kept (ram)"};
    const struct {
        const char *what;
        size_t bytes;
    } rows[] = {{"weights, gradients, compute copy", plan->parameters},
                {"optimizer state", plan->optimizer},
                {"activations", plan->activations},
                {"kernel workspace", plan->workspace},
                {"inputs", plan->inputs},
                {"batches in flight", plan->loader},
                {"batches of validations", plan->validation},
                {plan->encodes ? "samples kept (encode)" : kept[plan->residency], plan->resident},
                {plan->encodes ? "encoders" : NULL, plan->encoders},
                {"total", plan->total}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].what) continue;
        double mib = (double)rows[i].bytes / (1 << 20);
        bool large = plan->total >> 20 >= 100 * 1024;
        printf("  %-34s %10.1f %s\n", rows[i].what, large ? mib / 1024 : mib, large ? "GiB" : "MiB");
    }
    if (plan->activations_without_checkpointing > plan->activations) {
        size_t saved = plan->activations_without_checkpointing - plan->activations;
        printf("  activation checkpointing saves %.1f MiB, %.0f %% of the activations\n", (double)saved / (1 << 20),
               100.0 * (double)saved / (double)plan->activations_without_checkpointing);
    }
}

static ups_status plan_stages(ups_session *session, const ups_stages_wanted *wanted, bool as_json, ups_error *error) {
    const ups_run_config *config = session->config;
    if (wanted->restart)
        session->config->precision = ups_precision_resolve(config->precision);
    else
        UPS_TRY(ups_precision_of_run(config, &session->config->precision, error));
    json_t *list = as_json ? json_object() : NULL;
    ups_status status = UPS_OK, fits = UPS_OK;
    ups_stage_request request = {.session = session};
    for (unsigned i = 0; i < config->stage_count && status == UPS_OK; i++) {
        ups_stage stage = config->stages[i];
        if (wanted->stage < 0) request.done |= 1u << stage;
        if (!ups_stages_include(wanted, config, i) || !ups_stages[stage]->plan) continue;
        ups_stage_plan plan;
        status = ups_stages[stage]->plan(&request, &plan, error);
        if (status != UPS_OK) break;
        print_plan(ups_stage_name(stage), &plan, list);
        if (fits == UPS_OK) fits = ups_stage_check_memory(stage, &plan, error);
    }
    if (status == UPS_OK) status = fits;
    if (list && status == UPS_OK) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(list);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

/* {"output": …, "stages": {"autoencoder": {"steps": …, "weights": XXH3, "model": file}, …}}: what is finished. */
static ups_status print_state(const ups_run_config *config, ups_error *error) {
    ups_run_state state;
    UPS_TRY(ups_run_state_read(config, &state, error));
    json_t *stages = json_object();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const ups_stage_state *stage = &state.stage[s];
        if (!stage->finished) continue;
        json_t *entry = json_object();
        if (ups_run_training(config, (ups_stage)s)) {
            char *model = ups_run_model_path(config, (ups_stage)s);
            json_object_set_new(entry, "steps", json_integer((json_int_t)stage->steps));
            json_object_set_new(entry, "weights", json_string(stage->weights));
            json_object_set_new(entry, "model", json_string(model));
            free(model);
        }
        json_object_set_new(stages, ups_stage_name((ups_stage)s), entry);
    }
    json_t *document = json_pack("{s:s, s:o}", "output", config->output, "stages", stages);
    json_dumpf(document, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(document);
    return UPS_OK;
}

int ups_cmd_train(int argc, char **argv) {
    char names[160], summary[200], stage_help[300];
    const char *stages[UPS_STAGE_COUNT + 1] = {NULL};
    for (int s = 0; s < UPS_STAGE_COUNT; s++) stages[s] = ups_stage_name((ups_stage)s);
    list_stages(", ", names, sizeof names);
    snprintf(summary, sizeof summary, "trains a run's stages: %s", names);
    list_stages(" or ", names, sizeof names);
    snprintf(stage_help, sizeof stage_help, "runs this stage alone: %s (default: all of the configuration's)", names);
    const ups_option options[] = {
        [STAGE] = {"stage", 0, "S", stage_help},
        [RESUME] = {"resume", 'r', NULL, "goes on from the checkpoint of a stage that was stopped"},
        [RESTART] = {"restart", 0, NULL, "starts over: finished stages, too"},
        [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
        [PLAN] = {"plan", 0, NULL, "prints the memory that the stages take, and runs nothing"},
    };
    const ups_usage usage = {"train", "CONFIG", summary, options, OPTION_COUNT, details};
    ups_arguments arguments;
    ups_error error;
    ups_stages_wanted wanted = {.stage = -1};
    bool plan = false;
    size_t override_count = 0;
    const char **overrides = calloc((size_t)argc + 1, sizeof *overrides);
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == STAGE) ups_arguments_choice(&arguments, stages, &wanted.stage);
        if (option == RESUME) wanted.resume = true;
        if (option == RESTART) wanted.restart = true;
        if (option == PLAN) plan = true;
        if (option == SET) overrides[override_count++] = arguments.value;
    }
    int exit_code = UPS_EXIT_OK;
    if (arguments.stop) {
        exit_code = ups_arguments_end(&arguments);
    } else if (arguments.operand_count != 1) {
        exit_code = ups_command_usage_error(&arguments, "one CONFIG was expected");
    } else if (wanted.resume && wanted.restart) {
        exit_code = ups_command_usage_error(&arguments, "--resume and --restart exclude each other");
    } else {
        ups_session session;
        ups_status status = ups_session_open(arguments.operands[0], overrides, override_count, false, &session, &error);
        if (status == UPS_OK && plan)
            status = plan_stages(&session, &wanted, arguments.json, &error);
        else if (status == UPS_OK)
            status = ups_stages_run(&session, &wanted, &error);
        if (status == UPS_OK && arguments.json && !plan) status = print_state(session.config, &error);
        if (status != UPS_OK && !session.config) {
            exit_code =
                ups_command_fail_on_config(&arguments, arguments.operands[0], overrides, override_count, &error);
        } else if (status != UPS_OK) {
            exit_code = ups_command_fail(&arguments, &error);
        }
        ups_session_close(&session);
    }
    free(overrides);
    return exit_code;
}
