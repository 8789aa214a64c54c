/* `ups train CONFIG`: the stages of a run in order, each finished one skipped, each stopped one resumable. */
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/encode.h"
#include "tools/session.h"
#include "train/checkpoint.h"
#include "train/data/latents.h"
#include "train/precision.h"
#include "train/run_lock.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAGE, RESUME, RESTART, SET, PLAN, OPTION_COUNT };
static const ups_option options[] = {
    [STAGE] = {"stage", 0, "S",
               "runs this stage alone: autoencoder, cache or operator (default: all of the configuration's)"},
    [RESUME] = {"resume", 'r', NULL, "goes on from the checkpoint of a stage that was stopped"},
    [RESTART] = {"restart", 0, NULL, "begins the stages anew, finished ones too"},
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
    [PLAN] = {"plan", 0, NULL, "prints the memory that the stages take, and runs nothing"},
};
static const ups_usage usage = {
    "train",
    "CONFIG",
    "trains a run's stages: autoencoder, cache, operator",
    options,
    OPTION_COUNT,
    "Stages that are finished are skipped; one that finished with fewer steps than it is to have now goes on. Ctrl-C "
    "and SIGTERM write a checkpoint and exit; --resume then continues\n"
    "with the same samples and the same numbers. Everything lies in the run's directory (output): state.json,\n"
    "metrics.jsonl, checkpoints/, cache/, and the finished models as safetensors.\n"
    "\nExamples:\n"
    "  ups train configs/quickstart.yaml\n"
    "  ups train configs/reference_2task.yaml --plan\n"
    "  ups train configs/reference_2task.yaml --stage operator --resume --set operator.batch_size=16\n"};

typedef struct train_request {
    const char *config;
    const char **overrides;
    size_t override_count;
    int stage; /* −1: all */
    bool resume, restart, plan, json;
} train_request;

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static void print_plan(const char *name, const ups_stage_plan *plan, json_t *list) {
    if (list) {
        json_object_set_new(
            list, name,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:I, s:I, s:I}", "batch_size",
                      (json_int_t)plan->batch_size, "trainable_parameters", (json_int_t)plan->trainable, "parameters",
                      (json_int_t)plan->parameters, "optimizer", (json_int_t)plan->optimizer, "activations",
                      (json_int_t)plan->activations, "inputs", (json_int_t)plan->inputs, "workspace",
                      (json_int_t)plan->workspace, "loader", (json_int_t)plan->loader, "validation_loader",
                      (json_int_t)plan->validation, "residency", ups_residency_name(plan->residency), "resident",
                      (json_int_t)plan->resident, "encodes", (int)plan->encodes, "encoders", (json_int_t)plan->encoders,
                      "filling", (json_int_t)plan->filling, "total", (json_int_t)plan->total));
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
                {plan->encodes ? "waiting for the cache" : NULL, plan->filling},
                {"total", plan->total}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].what) continue;
        double mib = (double)rows[i].bytes / (1 << 20);
        bool large = plan->total >> 20 >= 100 * 1024;
        printf("  %-30s %10.1f %s\n", rows[i].what, large ? mib / 1024 : mib, large ? "GiB" : "MiB");
    }
}

static ups_status plan_stages(ups_session *session, const train_request *request, ups_error *error) {
    if (request->restart)
        session->config->precision = ups_precision_resolve(session->config->precision);
    else
        UPS_TRY(ups_precision_of_run(session->config, &session->config->precision, error));
    json_t *list = request->json ? json_object() : NULL;
    ups_status status = UPS_OK, fits = UPS_OK;
    ups_stage_request planned = session->request;
    for (unsigned i = 0; i < session->config->stage_count && status == UPS_OK; i++) {
        ups_stage stage = session->config->stages[i];
        planned.cached = planned.cached || (stage == UPS_STAGE_CACHE && request->stage < 0);
        if ((request->stage >= 0 && (int)stage != request->stage) || stage == UPS_STAGE_CACHE) continue;
        ups_stage_plan plan;
        status = stage == UPS_STAGE_AUTOENCODER ? ups_stage_autoencoder_plan(&planned, &plan, error)
                                                : ups_stage_operator_plan(&planned, &plan, error);
        if (status != UPS_OK) break;
        print_plan(ups_stage_name(stage), &plan, list);
        if (fits == UPS_OK) fits = ups_stage_check_memory(stage, &plan, error);
    }
    if (status == UPS_OK) status = fits;
    if (list && fits == UPS_OK && status == UPS_OK) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(list);
    return status;
}

/* ---- stages ---------------------------------------------------------------------------------------------------- */

static void say_group(void *context, const ups_encode_report *report) {
    (void)context;
    const ups_cache_summary *s = &report->summary;
    ups_log(UPS_LOG_INFO, "cache %s/%s: %lld trajectories, %.1f MB, ratio %.2f", report->task, report->split,
            (long long)s->samples, (double)s->stored_bytes / 1e6,
            s->stored_bytes > 0 ? (double)s->raw_bytes / (double)s->stored_bytes : 0.0);
}

static int64_t stage_steps(const ups_run_config *config, ups_stage stage) {
    if (stage == UPS_STAGE_AUTOENCODER) return config->autoencoder.training.steps;
    if (stage == UPS_STAGE_OPERATOR) return config->op.training.steps;
    return 0;
}

/* Whether this command has nothing to do for the stage. */
static bool is_done(const ups_run_config *config, ups_stage stage, const ups_run_state *state,
                    const train_request *request) {
    const ups_stage_state *known = &state->stage[stage];
    if (request->restart || stage == UPS_STAGE_CACHE) return false;
    return known->finished && known->steps >= stage_steps(config, stage);
}

/* A cache that nobody is going to read is not built unless it is asked for by name. */
static bool is_needless(const ups_run_config *config, ups_stage stage, const train_request *request) {
    return stage == UPS_STAGE_CACHE && request->stage < 0 && config->data.residency == UPS_DATA_ENCODE;
}

static bool is_asked_for(const ups_run_config *config, ups_stage stage, const train_request *request) {
    for (unsigned i = 0; i < config->stage_count; i++) {
        if (config->stages[i] == stage) return request->stage < 0 || (int)stage == request->stage;
    }
    return false;
}

/* So that a later --resume cannot pick it up. */
static void disown_checkpoint(const ups_run_config *config, ups_stage stage) {
    char *latest = ups_run_path(config, "checkpoints/%s/latest.json", ups_stage_name(stage));
    if (latest) unlink(latest);
    free(latest);
}

/* Whether the stage goes on from a checkpoint. A stage that finished with fewer steps than are asked for now does,
 * since raising them asks for just that. A checkpoint of a stage that was stopped, neither asked for nor disowned,
 * stops the command: the user decides. */
static ups_status decide(const ups_run_config *config, ups_stage stage, const ups_stage_state *state,
                         const train_request *request, bool *resume, ups_error *error) {
    char *directory = ups_run_path(config, "checkpoints/%s", ups_stage_name(stage));
    if (!directory) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    bool exists = ups_checkpoint_exists(directory), extended = state->finished && !request->restart;
    *resume = (request->resume || extended) && !request->restart;
    if (extended && !exists) {
        status = ups_fail(error, UPS_ERR_IO,
                          "%s: the %s finished with %lld steps, but the checkpoint to go on from is gone; --restart "
                          "trains it from the beginning",
                          directory, ups_stage_name(stage), (long long)state->steps);
    } else if (extended) {
        ups_log(
            UPS_LOG_INFO,
            "%s: finished earlier with %lld steps, goes on to %lld; the learning rate is that of a schedule of %lld "
            "steps (--restart begins anew)",
            ups_stage_name(stage), (long long)state->steps, (long long)stage_steps(config, stage),
            (long long)stage_steps(config, stage));
    } else if (exists && !request->resume && !request->restart) {
        status = ups_fail(
            error, UPS_ERR_ARGUMENT,
            "%s holds a checkpoint of an unfinished stage; --resume goes on from it, --restart begins anew", directory);
    }
    if (request->restart) disown_checkpoint(config, stage);
    free(directory);
    return status;
}

/* Of the command's stages: each decides for itself. AUTO: none yet. */
typedef struct precisions {
    ups_precision configured, recorded; /* of the configuration; of the run that is there */
    ups_precision said, published;
} precisions;

static ups_status run_cache(const ups_session *session, const train_request *request, ups_error *error) {
    if (request->restart) UPS_TRY(ups_encode_remove(session->config, error));
    return ups_encode_run(&session->request, say_group, NULL, error);
}

static ups_status run_stage(const ups_session *session, ups_stage stage, bool resume, const train_request *request,
                            ups_error *error) {
    if (stage == UPS_STAGE_CACHE) return run_cache(session, request, error);
    ups_stage_request stage_request = session->request;
    stage_request.resume = resume;
    if (stage == UPS_STAGE_AUTOENCODER) return ups_stage_autoencoder_run(&stage_request, error);
    return ups_stage_operator_run(&stage_request, error);
}

/* Records a finished stage; the stages after it in the run's order have to be done again on top of it. */
static ups_status record(const ups_run_config *config, ups_stage stage, ups_run_state *state, ups_error *error) {
    ups_stage_state *entry = &state->stage[stage];
    *entry = (ups_stage_state){.finished = true, .steps = stage_steps(config, stage)};
    if (stage != UPS_STAGE_CACHE) {
        char *path = ups_run_model_path(config, stage);
        ups_status status =
            path ? ups_file_hash(path, entry->weights, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        free(path);
        UPS_TRY(status);
    }
    if (stage == UPS_STAGE_AUTOENCODER) {
        for (int later = stage + 1; later < UPS_STAGE_COUNT; later++) state->stage[later] = (ups_stage_state){0};
        disown_checkpoint(config, UPS_STAGE_OPERATOR); /* it was trained on latents that are no more */
    }
    return ups_run_state_publish(config, state, error);
}

static ups_status publish_config(const ups_run_config *config, ups_error *error) {
    char *text = NULL, *path = ups_run_path(config, "config.yaml");
    ups_status status = path ? ups_config_print(&ups_run_schema, config, &text, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_make_directories(config->output, error);
    if (status == UPS_OK) status = ups_publish_bytes(path, text, strlen(text), error);
    free(text);
    free(path);
    return status;
}

/* A trained autoencoder brings its normalisation, unless it is trained (on) by this very command. */
static ups_status normalise(ups_session *session, const ups_run_state *state, const train_request *request,
                            ups_error *error) {
    const ups_run_config *config = session->config;
    bool trains =
        is_asked_for(config, UPS_STAGE_AUTOENCODER, request) && !is_done(config, UPS_STAGE_AUTOENCODER, state, request);
    char *model = ups_run_model_path(config, UPS_STAGE_AUTOENCODER);
    if (!model) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_session_normalise(session, !trains && ups_path_exists(model) ? model : NULL, error);
    free(model);
    return status;
}

/* What a stage computes in: with `precision: auto` what it goes on from, then what the run began in, then what is
 * faster here. The cache is the same in all. */
static ups_status choose_precision(const ups_run_config *config, ups_stage stage, bool resume, precisions *known,
                                   ups_precision *precision, ups_error *error) {
    ups_precision recorded = known->recorded;
    *precision = known->configured != UPS_PRECISION_AUTO ? known->configured : ups_precision_resolve(recorded);
    if (stage == UPS_STAGE_CACHE && recorded != UPS_PRECISION_AUTO) *precision = recorded;
    if (!resume) return UPS_OK;
    char *checkpoint = ups_run_path(config, "checkpoints/%s", ups_stage_name(stage));
    if (!checkpoint) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_checkpoint_exists(checkpoint)
                            ? ups_precision_of_checkpoint(checkpoint, known->configured, recorded, precision, error)
                            : UPS_OK;
    free(checkpoint);
    return status;
}

static void say_precision(ups_precision precision, const precisions *known) {
    char meaning[120];
    ups_precision_explain(precision, meaning, sizeof meaning);
    bool kept = known->configured == UPS_PRECISION_AUTO && precision != ups_precision_resolve(UPS_PRECISION_AUTO);
    ups_log(UPS_LOG_INFO, "precision: %s%s", meaning, kept ? "; the run began in it" : "");
}

/* Decides what the stage computes in, says it, and has the run's config.yaml tell it, once. */
static ups_status settle_precision(ups_session *session, ups_stage stage, bool resume, precisions *known,
                                   ups_error *error) {
    ups_run_config *config = session->config;
    ups_precision precision;
    UPS_TRY(choose_precision(config, stage, resume, known, &precision, error));
    if (stage != UPS_STAGE_CACHE && precision != known->said) {
        say_precision(precision, known);
        known->said = precision;
    }
    if (precision == known->published) return UPS_OK;
    config->precision = precision;
    known->published = precision;
    return publish_config(config, error);
}

static ups_status run_stages(ups_session *session, const train_request *request, ups_error *error) {
    const ups_run_config *config = session->config;
    ups_run_state state;
    precisions known = {.configured = config->precision};
    if (!request->restart) UPS_TRY(ups_precision_recorded(config, &known.recorded, error));
    UPS_TRY(ups_run_state_read(config, &state, error));
    UPS_TRY(normalise(session, &state, request, error));
    bool ran = false;
    for (unsigned i = 0; i < config->stage_count; i++) {
        ups_stage stage = config->stages[i];
        if (request->stage >= 0 && (int)stage != request->stage) continue;
        if (is_needless(config, stage, request)) {
            ups_log(UPS_LOG_INFO, "cache: not built, since the operator does without (residency: encode)");
            continue;
        }
        if (is_done(config, stage, &state, request)) {
            ups_log(UPS_LOG_INFO, "%s: finished earlier, skipped (--restart trains it again)", ups_stage_name(stage));
            ran = true;
            continue;
        }
        bool resume = false;
        if (stage != UPS_STAGE_CACHE) {
            UPS_TRY(decide(config, stage, &state.stage[stage], request, &resume, error));
        }
        UPS_TRY(settle_precision(session, stage, resume, &known, error));
        if (state.stage[stage].finished) { /* no longer: a stop from here on has to be resumable */
            state.stage[stage] = (ups_stage_state){0};
            UPS_TRY(ups_run_state_publish(config, &state, error));
        }
        UPS_TRY(run_stage(session, stage, resume, request, error));
        UPS_TRY(record(config, stage, &state, error));
        ran = true;
    }
    if (!ran) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "the configuration's stages do not include %s",
                        ups_stage_name((ups_stage)request->stage));
    }
    return UPS_OK;
}

static ups_status run_alone(ups_session *session, const train_request *request, ups_error *error) {
    ups_run_lock *lock = NULL;
    UPS_TRY(ups_run_lock_take(session->config->output, &lock, error));
    ups_status status = run_stages(session, request, error);
    ups_run_lock_release(lock);
    return status;
}

/* {"output": …, "stages": {"autoencoder": {"steps": …, "weights": XXH3, "model": file}, …}}: what is finished. */
static ups_status print_state(const ups_run_config *config, ups_error *error) {
    ups_run_state state;
    UPS_TRY(ups_run_state_read(config, &state, error));
    json_t *stages = json_object();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const ups_stage_state *stage = &state.stage[s];
        if (!stage->finished) continue;
        json_t *entry = json_object();
        if (s != UPS_STAGE_CACHE) {
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
    static const char *const stage_names[] = {"autoencoder", "cache", "operator", NULL};
    ups_arguments arguments;
    ups_error error;
    train_request request = {.stage = -1};
    request.overrides = calloc((size_t)argc + 1, sizeof *request.overrides);
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == STAGE) ups_arguments_choice(&arguments, stage_names, &request.stage);
        if (option == RESUME) request.resume = true;
        if (option == RESTART) request.restart = true;
        if (option == PLAN) request.plan = true;
        if (option == SET) request.overrides[request.override_count++] = arguments.value;
    }
    int exit_code = UPS_EXIT_OK;
    if (arguments.stop) {
        exit_code = ups_arguments_end(&arguments);
    } else if (arguments.operand_count != 1) {
        exit_code = ups_command_usage_error(&arguments, "one CONFIG was expected");
    } else if (request.resume && request.restart) {
        exit_code = ups_command_usage_error(&arguments, "--resume and --restart exclude each other");
    } else {
        request.config = arguments.operands[0];
        request.json = arguments.json;
        ups_session session;
        ups_status status =
            ups_session_open(request.config, request.overrides, request.override_count, false, &session, &error);
        if (status == UPS_OK && request.plan)
            status = plan_stages(&session, &request, &error);
        else if (status == UPS_OK)
            status = run_alone(&session, &request, &error);
        if (status == UPS_OK && request.json && !request.plan) status = print_state(session.config, &error);
        if (status != UPS_OK) exit_code = ups_command_fail(&arguments, &error);
        ups_session_close(&session);
    }
    free(request.overrides);
    return exit_code;
}
