/* `ups train CONFIG|RUN`: the stages of a run in order, each finished one skipped, each stopped one resumable. */
#include "train/stages/train.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system/launcher.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/commands/plan.h"
#include "tools/commands/ranks.h"
#include "tools/commands/refused_run.h"
#include "tools/commands/sweep.h"
#include "tools/commands/train_for.h"
#include "train/state.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAGE, FOR, RESUME, EXTEND, FORK, RESTART, SET, SWEEP, PLAN, DEVICE, MEMORY, PROFILE, OPTION_COUNT };
static const char details[] =
    "A run is the directory `output` of a configuration: config.yaml, state.json, metrics.jsonl, checkpoints/,\n"
    "cache/, and the finished models as safetensors. Finished stages are skipped. Ctrl-C and SIGTERM write a\n"
    "checkpoint and exit; --resume then goes on with the same samples and the same numbers. TensorBoard shows the\n"
    "numbers of metrics.jsonl, also while a run trains: tensorboard --logdir FOLDER, a folder of runs.\n"
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
    "\n--for 10m trains as many steps of the operator as fit into ten minutes from the command on, which are those of\n"
    "encoder, cache and validations, too. What a step takes is measured first, for some seconds, in RUN/.trial, which\n"
    "goes again. The run then has these operator.steps and is as any other; --resume goes on to them. A training that\n"
    "was stopped before its operator began goes on with --for and --resume.\n"
    "\nA configuration whose model.from names another run, or a file of `ups export`, begins as that model: tasks of\n"
    "the same name go on as they were there, others learn from where it is.\n"
    "\n--sweep KEY=VALUE,VALUE trains a run with each value, one after another, in directories of their own below\n"
    "`output` (OUTPUT/learning_rate=0.001); several --sweep are a grid. All values are checked before the first run\n"
    "begins. Stages on which no swept key has an influence are trained once, and taken along by the later runs (where\n"
    "cache.directory is set, each run builds a cache of its own below it). A table at the end has each run's last\n"
    "validation, seconds of training and directory. Ctrl-C ends the sweep; the same command with --resume goes on "
    "with\n"
    "what is left of it. A run whose numbers are no longer finite, or whose memory does not suffice, is told of, and\n"
    "the next one begins.\n"
    "\nmpirun -n 4 ups train CONFIG, or srun, trains in four processes: each computes its share of a step's\n"
    "micro-batches (accumulation), and rank 0 writes. A run may go on with another number of processes. With --plan\n"
    "rank 0 says what each of them would take.\n"
    "\nups train RUN alone says how far the run has come.\n"
    "\nExamples:\n"
    "  ups train configs/quickstart.yaml\n"
    "  ups train configs/quickstart.yaml --for 10m\n"
    "  ups train configs/reference_2task.yaml --plan\n"
    "  ups train configs/reference_2task.yaml --plan --device cuda --memory 80 --set operator.batch_size=auto\n"
    "  ups train runs/quickstart --resume\n"
    "  ups train runs/quickstart --extend --set operator.steps=24000\n"
    "  ups train runs/quickstart --fork runs/tuned --set operator.optimizer.learning_rate=0.0003\n"
    "  mpirun -n 2 ups train configs/reference_2task.yaml --set autoencoder.accumulation=2 --set "
    "operator.accumulation=2\n"
    "  ups train configs/quickstart.yaml --set operator.steps=500 --set output=/tmp/trial --profile\n"
    "  ups train configs/quickstart.yaml --sweep operator.optimizer.learning_rate=1e-3,3e-3\n";

/* "autoencoder, cache, operator", with `between` for the commas. */
static void list_stages(const char *between, char *text, size_t bytes) {
    size_t used = 0;
    for (int s = 0; s < UPS_STAGE_COUNT && used < bytes; s++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", s ? between : "", ups_stage_name((ups_stage)s));
    }
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

/* The command line, read. */
typedef struct train_command {
    ups_arguments arguments;
    ups_train_request request;
    ups_sweep_request sweep; /* no keys: no sweep */
    bool plan;
    double card_gib; /* of an absent card to plan for; 0: none */
    double seconds;  /* that the operator's steps are to fit into; 0: it has the configuration's */
} train_command;

/* `keys` has room for one an argument. */
static void take_option(train_command *c, int option, const char **keys) {
    ups_arguments *arguments = &c->arguments;
    if (option == STAGE) ups_arguments_choice(arguments, &c->request.stage);
    if (option == FOR) ups_arguments_duration(arguments, "s", 1, &c->seconds);
    if (option == RESUME) c->request.resume = true;
    if (option == EXTEND) c->request.extend = true;
    if (option == FORK) c->request.fork = arguments->value;
    if (option == RESTART) c->request.restart = true;
    if (option == PLAN) c->plan = true;
    if (option == PROFILE) c->request.profile = true;
    if (option == DEVICE) {
        int device;
        ups_arguments_choice(arguments, &device);
        ups_arguments_key(arguments, "device.name");
    }
    if (option == MEMORY) ups_arguments_real(arguments, 0.001, 1e6, &c->card_gib);
    if (option == SET) ups_arguments_override(arguments);
    if (option == SWEEP && keys) keys[c->sweep.key_count++] = arguments->value;
}

/* Whether what was given goes together; the exit code, after a sentence where it does not. */
static int check_line(const train_command *c) {
    const ups_arguments *arguments = &c->arguments;
    const ups_train_request *request = &c->request;
    const int ways = request->resume + request->extend + request->restart + (request->fork != NULL);
    if (arguments->operand_count != 1) return ups_command_no_config(arguments);
    if (ways > 1)
        return ups_command_usage_error(arguments, "--resume, --extend, --fork and --restart exclude each other");
    if (c->seconds > 0 && (ways > request->resume || request->stage >= 0 || c->plan || c->sweep.key_count > 0))
        return ups_command_usage_error(arguments, "--for finds the steps of a run that begins; --extend, --fork, "
                                                  "--restart, --stage, --sweep and --plan do not go with it");
    if (c->seconds > 0 && ups_launch_find().ranks > 1)
        return ups_command_usage_error(arguments,
                                       "--for measures in one process; give the configuration operator.steps");
    if (request->profile && (c->plan || c->sweep.key_count > 0))
        return ups_command_usage_error(arguments, "--profile is of a training that runs, and not of a sweep");
    if (c->card_gib > 0 && !c->plan)
        return ups_command_usage_error(arguments,
                                       "--memory is for --plan; device.memory is what a run may use of a card");
    if (request->fork && !request->fork[0])
        return ups_command_usage_error(arguments, "--fork: the directory of the new run was expected");
    if (c->sweep.key_count > 0 && (ways > request->resume || request->stage >= 0 || c->plan))
        return ups_command_usage_error(arguments, "--sweep trains whole runs; of the other ways, --resume alone goes "
                                                  "with it");
    for (size_t i = 0; i < c->sweep.key_count; i++) {
        const char *key = c->sweep.keys[i], *equals = strchr(key, '=');
        if (equals && equals != key && equals[1]) continue;
        return ups_command_usage_error(arguments,
                                       "--sweep: '%.200s' is not of the form KEY=VALUE,VALUE, such as "
                                       "operator.optimizer.learning_rate=1e-3,3e-3",
                                       key);
    }
    if (c->sweep.key_count > 0 && ups_launch_find().ranks > 1)
        return ups_command_usage_error(arguments, "--sweep trains one run after the other in one process");
    return UPS_EXIT_OK;
}

/* Whether there is something to do; otherwise the line was answered, and *exit_code is set. */
static bool read_line(train_command *c, const char **keys, int *exit_code) {
    c->request.stage = -1;
    c->sweep.keys = keys;
    for (int option; (option = ups_arguments_next(&c->arguments)) >= 0;) take_option(c, option, keys);
    *exit_code = c->arguments.stop ? ups_arguments_end(&c->arguments) : check_line(c);
    if (c->arguments.stop || *exit_code != UPS_EXIT_OK) return false;
    c->request.overrides = c->sweep.overrides = c->arguments.overrides;
    c->request.override_count = c->sweep.override_count = c->arguments.override_count;
    c->request.operand = c->sweep.operand = c->arguments.operands[0];
    c->sweep.resume = c->request.resume;
    return true;
}

/* With the steps that fit into `seconds`. */
static ups_status train_for(const ups_train_request *request, double seconds, ups_train_report *report,
                            ups_error *error) {
    int64_t steps;
    char text[64];
    UPS_TRY(ups_train_fit_steps(request, seconds, &steps, report, error));
    const char **overrides = calloc(request->override_count + 1, sizeof *overrides);
    if (!overrides) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < request->override_count; i++) overrides[i] = request->overrides[i];
    snprintf(text, sizeof text, "operator.steps=%lld", (long long)steps);
    overrides[request->override_count] = text;
    ups_train_request with = *request;
    with.overrides = overrides;
    with.override_count++;
    ups_train_report_free(report);
    ups_status status = ups_train(&with, report, error);
    free(overrides);
    return status;
}

static int run_training(const ups_arguments *arguments, const ups_train_request *request, double seconds) {
    ups_train_report report;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    ups_status status =
        seconds > 0 ? train_for(request, seconds, &report, &error) : ups_train(request, &report, &error);
    ups_ranks_speak();
    if (status == UPS_OK && report.only_told && !arguments->json) print_progress(&report);
    if (status == UPS_OK && arguments->json) status = print_state(report.config, &error);
    if (status != UPS_OK) exit_code = fail(arguments, &report, &error);
    ups_train_report_free(&report);
    return exit_code;
}

/* Of several processes, rank 0. */
static int lead(void *context, ups_comm *comm) {
    train_command *c = context;
    c->request.comm = comm;
    if (c->plan) return ups_command_plan(&c->arguments, &c->request, c->card_gib);
    if (comm) ups_log(UPS_LOG_INFO, "%d processes train together (%s)", ups_comm_size(comm), ups_comm_library(comm));
    return run_training(&c->arguments, &c->request, c->seconds);
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
        [FOR] = {"for", 0, "TIME",
                 "trains as many steps of the operator as fit into this time: 90s, 10m, 1.5h, or seconds"},
        [RESUME] = {"resume", 0, NULL, "goes on with what was stopped, by the run's own configuration"},
        [EXTEND] = {"extend", 0, NULL, "gives stages more steps: those that --set or the configuration says now"},
        [FORK] = {"fork", 0, "DIR", "makes a new run in DIR that starts from this one's weights"},
        [RESTART] = {"restart", 0, NULL, "starts over: finished stages, too"},
        [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
        [SWEEP] = {"sweep", 0, "KEY=V,V,...", "trains a run with each value; several --sweep: with each combination"},
        [PLAN] = {"plan", 0, NULL, "prints the memory that the stages take, and runs nothing"},
        [DEVICE] = {"device", 0, "auto|cpu|cuda", "what computes: device.name of the configuration"},
        [MEMORY] = {"memory", 0, "GIB", "--plan for an absent card of so much memory"},
        [PROFILE] = {"profile", 0, NULL,
                     "also tells, at the end of a stage, where its time went, op by op; slows steps down a little"},
    };
    const ups_usage usage = {"train", "CONFIG|RUN", summary, options, OPTION_COUNT, details};
    train_command command = {.plan = false};
    int exit_code = UPS_EXIT_OK;
    const char **keys = calloc((size_t)argc + 1, sizeof *keys);
    ups_arguments_begin(&command.arguments, &usage, argc, argv);
    /* What all of several processes find in the same line, rank 0 says. */
    const bool follows = ups_ranks_follows();
    int kept[2];
    if (follows) hush(kept);
    const bool sound = read_line(&command, keys, &exit_code);
    if (follows) speak(kept);
    if (!sound)
        exit_code = follows ? UPS_EXIT_OK : exit_code;
    else if (command.sweep.key_count > 0)
        exit_code = ups_command_sweep(&command.arguments, &command.sweep);
    else
        exit_code = ups_ranks_run(&command.arguments, lead, &command);
    free(keys);
    return exit_code;
}
