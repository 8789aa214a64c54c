/* `ups train CONFIG|RUN`: the stages of a run in order, each finished one skipped, each stopped one resumable. */
#include "train/stages/train.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "model/devices/devices.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/commands/refused_run.h"
#include "tools/commands/sweep.h"
#include "train/precision.h"
#include "train/run_precision.h"
#include "train/session.h"
#include "train/stages/follow.h"
#include "train/stages/run.h"
#include "train/state.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STAGE, RESUME, EXTEND, FORK, RESTART, SET, SWEEP, PLAN, DEVICE, MEMORY, OPTION_COUNT };
static const char details[] =
    "A run is the directory `output` of a configuration: config.yaml, state.json, metrics.jsonl, checkpoints/,\n"
    "cache/, and the finished models as safetensors. Finished stages are skipped. Ctrl-C and SIGTERM write a\n"
    "checkpoint and exit; --resume then goes on with the same samples and the same numbers.\n"
    "\nA run owns its configuration. Given another one, the command compares the two: what no result depends on\n"
    "(threads, memory, what is logged, where files lie) is taken, anything else is refused with a table, and nothing\n"
    "is changed. The ways on:\n"
    "  --resume     the run's own configuration counts, whatever the file says; RUN, its directory, is enough\n"
    "  --extend     more steps, as in --set operator.steps=N; stages built on the extended one are done again;\n"
    "               with the schedule wsd they go on from before the decay of the learning rate\n"
    "  --fork DIR   a new run in DIR with the configuration that is given; stages that it concerns start from\n"
    "               this run's weights, the others come along as they are\n"
    "  --restart    begins anew with the configuration that is given\n"
    "What is extended or restarted is made in RUN/next. The run stays as it was until all of that has finished,\n"
    "then it is replaced at once; --resume goes on with what was stopped, and removing RUN/next gives it up.\n"
    "\n--sweep KEY=VALUE,VALUE trains a run with each value, one after another, in directories of their own below\n"
    "`output` (OUTPUT/learning_rate=0.001); several --sweep are a grid. All values are checked before the first run\n"
    "begins. Stages on which no swept key has an influence are trained once, and taken along by the later runs (where\n"
    "cache.directory is set, each run builds a cache of its own below it). A table at the end has each run's last\n"
    "validation, seconds of training and directory. Ctrl-C ends the sweep; the same command with --resume goes on "
    "with\n"
    "what is left of it. A run whose numbers are no longer finite, or whose memory does not suffice, is told of, and\n"
    "the next one begins.\n"
    "\nmpirun -n 4 ups train CONFIG, or srun, trains in four processes: each computes its share of the micro-batches "
    "of\n"
    "a step (accumulation), and rank 0 writes. A run may go on with another number of processes.\n"
    "\nups train RUN alone says how far the run has come.\n"
    "\nExamples:\n"
    "  ups train configs/quickstart.yaml\n"
    "  ups train configs/reference_2task.yaml --plan\n"
    "  ups train configs/reference_2task.yaml --plan --device cuda --memory 80 --set operator.batch_size=auto\n"
    "  ups train runs/quickstart --resume\n"
    "  ups train runs/quickstart --extend --set operator.steps=24000\n"
    "  ups train runs/quickstart --fork runs/tuned --set operator.optimizer.learning_rate=0.0003\n"
    "  mpirun -n 2 ups train configs/reference_2task.yaml --set autoencoder.accumulation=2 --set "
    "operator.accumulation=2\n"
    "  ups train configs/quickstart.yaml --sweep operator.optimizer.learning_rate=1e-3,3e-3\n";

/* "autoencoder, cache, operator", with `between` for the commas. */
static void list_stages(const char *between, char *text, size_t bytes) {
    size_t used = 0;
    for (int s = 0; s < UPS_STAGE_COUNT && used < bytes; s++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", s ? between : "", ups_stage_name((ups_stage)s));
    }
}

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static void print_plan(const char *name, const ups_stage_plan *plan, json_t *list) {
    if (list) {
        json_object_set_new(
            list, name,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I}",
                      "batch_size", (json_int_t)plan->batch_size, "trainable_parameters", (json_int_t)plan->trainable,
                      "parameters", (json_int_t)plan->parameters, "optimizer", (json_int_t)plan->optimizer,
                      "activations", (json_int_t)plan->activations, "activations_without_checkpointing",
                      (json_int_t)plan->activations_without_checkpointing, "inputs", (json_int_t)plan->inputs,
                      "workspace", (json_int_t)plan->workspace, "loader", (json_int_t)plan->loader, "validation_loader",
                      (json_int_t)plan->validation, "residency", ups_residency_name(plan->residency), "resident",
                      (json_int_t)plan->resident, "resident_on_device", (json_int_t)plan->resident_on_device, "encodes",
                      (int)plan->encodes, "encoders", (json_int_t)plan->encoders, "exchange",
                      (json_int_t)plan->exchange, "total", (json_int_t)plan->total, "on_device",
                      (json_int_t)plan->on_device, "offloaded", (json_int_t)plan->offloaded));
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
                {plan->resident_on_device ? "samples kept on the card" : NULL, plan->resident_on_device},
                {plan->encodes ? "encoders" : NULL, plan->encoders},
                {plan->exchange ? "sums over processes" : NULL, plan->exchange},
                {"total", plan->total},
                {plan->on_device ? "of it on the card" : NULL, plan->on_device},
                {plan->offloaded ? "moments in the host's memory" : NULL, plan->offloaded}};
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

static ups_status plan_stages(ups_session *session, int stage_alone, bool restart, bool as_json, ups_error *error) {
    const ups_run_config *config = session->config;
    if (restart)
        session->config->precision = ups_precision_resolve(config->precision, config->device.name);
    else
        UPS_TRY(ups_precision_of_run(config, &session->config->precision, error));
    json_t *list = as_json ? json_object() : NULL;
    ups_status status = UPS_OK, fits = UPS_OK;
    ups_stage_request request = {.session = session};
    ups_stages_wanted wanted = {.stage = stage_alone};
    for (unsigned i = 0; i < config->stage_count && status == UPS_OK; i++) {
        ups_stage stage = config->stages[i];
        if (stage_alone < 0) request.done |= 1u << stage;
        if (!ups_stages_include(&wanted, config, i) || !ups_stages[stage]->plan) continue;
        ups_stage_plan plan;
        status = ups_stages[stage]->plan(&request, &plan, error);
        if (status != UPS_OK) break;
        print_plan(ups_stage_name(stage), &plan, list);
        if (fits == UPS_OK) fits = ups_stage_check_memory(session, stage, &plan, error);
    }
    if (status == UPS_OK) status = fits;
    if (list && status == UPS_OK) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(list);
    return status;
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

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

static int fail(const ups_arguments *arguments, const ups_train_report *report, const ups_error *error) {
    if (report->refused.count > 0) return ups_command_fail_refused(arguments, &report->refused, error);
    return report->config ? ups_command_fail(arguments, error)
                          : ups_command_fail_on_config(arguments, UPS_PATHS_ALL, error);
}

/* All steps of an autoencoder are done, and its fields are not yet near enough to the truth. */
static bool is_at_gate(const ups_train_report *report, ups_stage stage) {
    const ups_run_config *config = report->config;
    return stage == UPS_STAGE_AUTOENCODER && config->autoencoder.gate > 0 &&
           !report->progress.state.stage[stage].finished &&
           report->progress.step[stage] >= config->autoencoder.training.steps;
}

/* "finished, 60 steps"; whether anything is left to do for it. */
static bool describe_stage(const ups_train_report *report, ups_stage stage, char *text, size_t bytes) {
    const ups_training_config *training = ups_run_training(report->config, stage);
    const ups_stage_state *state = &report->progress.state.stage[stage];
    int64_t step = report->progress.step[stage];
    if (state->finished && training)
        snprintf(text, bytes, "finished, %lld steps", (long long)state->steps);
    else if (state->finished)
        snprintf(text, bytes, "finished");
    else if (is_at_gate(report, stage))
        snprintf(text, bytes, "has its %lld steps, but has not passed autoencoder.gate", (long long)step);
    else if (step >= 0)
        snprintf(text, bytes, "stopped at step %lld of %lld", (long long)step, (long long)training->steps);
    else
        snprintf(text, bytes, "%s", report->progress.built & 1u << stage ? "begun" : "not begun");
    return !state->finished;
}

/* How far the run has come, and what would be done. */
static void print_progress(const ups_train_report *report) {
    const ups_run_config *config = report->config;
    const char *first = NULL;
    printf("%s: what `ups train %s --resume` would do\n", config->output, config->output);
    for (unsigned i = 0; i < config->stage_count; i++) {
        char text[80];
        bool left = describe_stage(report, config->stages[i], text, sizeof text);
        bool again = report->redone & 1u << config->stages[i];
        bool goes_on = report->redone ? again : left;
        if (goes_on && !first) first = ups_stage_name(config->stages[i]);
        printf("  %-12s %s%s\n", ups_stage_name(config->stages[i]), text,
               again                                   ? "; is being done again in next/"
               : is_at_gate(report, config->stages[i]) ? "; would be measured again"
               : goes_on                               ? "; would be trained"
                                                       : "; nothing to do");
    }
    if (!first)
        printf("All stages are finished. --extend gives one more steps, --fork DIR begins a new run from here.\n");
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

/* Reads the options; a line that is wrong is answered and *exit_code set. `keys` has room for one an argument. */
static bool read_line(ups_arguments *arguments, ups_train_request *request, const char **keys, ups_sweep_request *sweep,
                      bool *plan, double *card_gib, int *exit_code) {
    *request = (ups_train_request){.stage = -1};
    *sweep = (ups_sweep_request){.keys = keys};
    for (int option; (option = ups_arguments_next(arguments)) >= 0;) {
        if (option == STAGE) ups_arguments_choice(arguments, &request->stage);
        if (option == RESUME) request->resume = true;
        if (option == EXTEND) request->extend = true;
        if (option == FORK) request->fork = arguments->value;
        if (option == RESTART) request->restart = true;
        if (option == PLAN) *plan = true;
        if (option == DEVICE) {
            int device;
            ups_arguments_choice(arguments, &device);
            ups_arguments_key(arguments, "device.name");
        }
        if (option == MEMORY) ups_arguments_real(arguments, 0.001, 1e6, card_gib);
        if (option == SET) ups_arguments_override(arguments);
        if (option == SWEEP && keys) keys[sweep->key_count++] = arguments->value;
    }
    if (arguments->stop) {
        *exit_code = ups_arguments_end(arguments);
        return false;
    }
    int ways = request->resume + request->extend + request->restart + (request->fork != NULL);
    if (arguments->operand_count != 1)
        *exit_code = ups_command_no_config(arguments);
    else if (ways > 1)
        *exit_code = ups_command_usage_error(arguments, "--resume, --extend, --fork and --restart exclude each other");
    else if (*card_gib > 0 && !*plan)
        *exit_code =
            ups_command_usage_error(arguments, "--memory is for --plan; device.memory is what a run may use of a card");
    else if (request->fork && !request->fork[0])
        *exit_code = ups_command_usage_error(arguments, "--fork: the directory of the new run was expected");
    else if (sweep->key_count > 0 && (ways > request->resume || request->stage >= 0 || *plan))
        *exit_code = ups_command_usage_error(arguments, "--sweep trains whole runs; of the other ways, --resume alone "
                                                        "goes with it");
    for (size_t i = 0; i < sweep->key_count && *exit_code == UPS_EXIT_OK; i++) {
        const char *equals = strchr(keys[i], '=');
        if (equals && equals != keys[i] && equals[1]) continue;
        *exit_code = ups_command_usage_error(arguments,
                                             "--sweep: '%.200s' is not of the form KEY=VALUE,VALUE, such as "
                                             "operator.optimizer.learning_rate=1e-3,3e-3",
                                             keys[i]);
    }
    request->overrides = arguments->overrides;
    request->override_count = arguments->override_count;
    request->operand = arguments->operand_count == 1 ? arguments->operands[0] : NULL;
    sweep->operand = request->operand;
    sweep->overrides = request->overrides;
    sweep->override_count = request->override_count;
    sweep->resume = request->resume;
    return *exit_code == UPS_EXIT_OK;
}

static int run_plan(const ups_arguments *arguments, const ups_train_request *request, double card_gib) {
    const uint64_t card = (uint64_t)(card_gib * (double)(1 << 30));
    ups_session session;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    ups_status status =
        ups_session_open_to_plan(request->operand, request->overrides, request->override_count, card, &session, &error);
    if (status == UPS_OK && card > 0 && !session.device->class->memory)
        status = ups_fail(&error, UPS_ERR_ARGUMENT, "--memory is of a card, and the device is '%s'; add --device cuda",
                          session.device->class->name);
    if (status == UPS_ERR_UNSUPPORTED && card == 0 && ups_device_can_plan("cuda")) {
        size_t used = strlen(error.message);
        snprintf(error.message + used, sizeof error.message - used, "; --memory 80 plans for an absent card of 80 GiB");
    }
    if (status == UPS_OK) status = plan_stages(&session, request->stage, request->restart, arguments->json, &error);
    if (status != UPS_OK && !session.config)
        exit_code = ups_command_fail_on_config(arguments, UPS_PATHS_ALL, &error);
    else if (status != UPS_OK)
        exit_code = ups_command_fail(arguments, &error);
    ups_session_close(&session);
    return exit_code;
}

static int run_training(const ups_arguments *arguments, const ups_train_request *request) {
    ups_train_report report;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    ups_status status = ups_train(request, &report, &error);
    if (status == UPS_OK && report.only_told && !arguments->json) print_progress(&report);
    if (status == UPS_OK && arguments->json) status = print_state(report.config, &error);
    if (status != UPS_OK) exit_code = fail(arguments, &report, &error);
    ups_train_report_free(&report);
    return exit_code;
}

/* A process that fails by itself ends the others, too: they would wait for it. */
static int end_together(ups_comm *comm, int exit_code) {
    ups_error error;
    if (exit_code != UPS_EXIT_OK && !ups_comm_ended_together(comm)) ups_comm_fail(comm, exit_code, NULL);
    if (ups_comm_rank(comm) == 0 && ups_stages_end(comm, &error) != UPS_OK) exit_code = UPS_EXIT_FAILURE;
    ups_comm_close(comm);
    return exit_code;
}

/* Where several processes were started and one is enough, the others have nothing to do. */
static bool is_another_rank(void) {
    return ups_launch_find().rank > 0;
}

/* Most often nobody finds MPI. Rank 0 says so, and its end ends the others before they have waited. */
static int fail_without_others(const ups_arguments *arguments, const ups_error *error) {
    enum { PATIENCE = 20 }; /* tenths of a second */
    for (int i = 0; is_another_rank() && i < PATIENCE; i++) {
        if (ups_cancel_requested()) return UPS_EXIT_FAILURE;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    return ups_command_fail(arguments, error);
}

/* What the launcher started: rank 0 trains as a process by itself does, the others follow it. */
static int run_ranks(const ups_arguments *arguments, ups_train_request *request) {
    ups_comm *comm;
    ups_error error;
    if (ups_comm_open(&comm, &error) != UPS_OK) return fail_without_others(arguments, &error);
    request->comm = comm;
    if (!comm) return run_training(arguments, request);
    if (ups_comm_rank(comm) == 0) {
        ups_log(UPS_LOG_INFO, "%d processes train together (%s)", ups_comm_size(comm), ups_comm_library(comm));
        return end_together(comm, run_training(arguments, request));
    }
    ups_progress_enable(false);
    ups_status status = ups_stages_follow(comm, &error);
    if (status != UPS_OK && !ups_comm_ended_together(comm)) ups_log(UPS_LOG_ERROR, "%s", error.message);
    const bool cancelled = status == UPS_ERR_CANCELLED;
    return end_together(comm, cancelled          ? UPS_EXIT_SIGNAL + ups_cancel_signal()
                              : status != UPS_OK ? UPS_EXIT_FAILURE
                                                 : UPS_EXIT_OK);
}

/* Nothing is written to the two streams until `speak`. */
static void hush(int kept[2]) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        kept[fd - STDOUT_FILENO] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        dup2(nowhere, fd);
    }
    close(nowhere);
}

static void speak(const int kept[2]) {
    fflush(stdout);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        dup2(kept[fd - STDOUT_FILENO], fd);
        close(kept[fd - STDOUT_FILENO]);
    }
}

int ups_cmd_train(int argc, char **argv) {
    char names[160], summary[200];
    list_stages(", ", names, sizeof names);
    snprintf(summary, sizeof summary, "trains a run's stages: %s", names);
    list_stages("|", names, sizeof names);
    const ups_option options[] = {
        [STAGE] = {"stage", 0, names, "runs this stage alone (default: all of the configuration's)"},
        [RESUME] = {"resume", 0, NULL, "goes on with what was stopped, by the run's own configuration"},
        [EXTEND] = {"extend", 0, NULL, "gives stages more steps: those that --set or the configuration says now"},
        [FORK] = {"fork", 0, "DIR", "makes a new run in DIR that starts from this one's weights"},
        [RESTART] = {"restart", 0, NULL, "starts over: finished stages, too"},
        [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
        [SWEEP] = {"sweep", 0, "KEY=V,V,...", "trains a run with each value; several --sweep: with each combination"},
        [PLAN] = {"plan", 0, NULL, "prints the memory that the stages take, and runs nothing"},
        [DEVICE] = {"device", 0, "auto|cpu|cuda", "what computes: device.name of the configuration"},
        [MEMORY] = {"memory", 0, "GIB", "--plan for an absent card of so much memory"},
    };
    const ups_usage usage = {"train", "CONFIG|RUN", summary, options, OPTION_COUNT, details};
    ups_arguments arguments;
    ups_train_request request;
    ups_sweep_request sweep;
    bool plan = false;
    double card_gib = 0;
    int exit_code = UPS_EXIT_OK;
    const char **keys = calloc((size_t)argc + 1, sizeof *keys);
    ups_arguments_begin(&arguments, &usage, argc, argv);
    /* What all of several processes find in the same line, or one of them can answer, rank 0 says. */
    const bool follows = is_another_rank();
    int kept[2];
    if (follows) hush(kept);
    const bool sound = read_line(&arguments, &request, keys, &sweep, &plan, &card_gib, &exit_code);
    if (follows) speak(kept);
    if (follows && (!sound || plan || sweep.key_count > 0))
        exit_code = UPS_EXIT_OK;
    else if (sound && plan)
        exit_code = run_plan(&arguments, &request, card_gib);
    else if (sound && sweep.key_count > 0 && ups_launch_find().ranks > 1)
        exit_code = ups_command_usage_error(&arguments, "--sweep trains one run after the other in one process");
    else if (sound)
        exit_code = sweep.key_count > 0 ? ups_command_sweep(&arguments, &sweep) : run_ranks(&arguments, &request);
    free(keys);
    return exit_code;
}
