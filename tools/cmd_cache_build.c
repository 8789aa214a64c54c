/* `ups cache build CONFIG`: encodes every task's trajectories with the run's trained encoder. */
#include "base/json.h"
#include "base/progress.h"
#include "tools/command.h"
#include "tools/commands.h"
#include "tools/encode.h"
#include "tools/session.h"
#include <stdio.h>
#include <stdlib.h>

enum { SET, RESTART };
static const ups_option options[] = {
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
    [RESTART] = {"restart", 0, NULL, "removes this run's cache first, whatever made it"},
};
static const ups_usage usage = {
    "cache build",
    "CONFIG",
    "encodes raw fields into the latent cache with the run's trained encoder",
    options,
    2,
    "A build that was stopped goes on where it stood. A cache of fewer files of the same "
    "task is extended. A cache\nthat another encoder made is refused; --restart replaces "
    "it.\n\n"
    "Several processes build one cache together: run the same command as often as you like, "
    "on any hosts that share\nits directory, by hand, with mpirun or srun. Each takes what "
    "nobody else has; what a killed one had is taken over.\n"
    "\nExamples:\n  ups cache build configs/quickstart.yaml --set cache.codec=portable\n"
    "  srun -n 4 ups cache build configs/reference_2task.yaml\n"};

static json_t *report_json(const ups_encode_report *report) {
    const ups_cache_summary *s = &report->summary;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "task", report->task, "split",
                     report->split, "samples", (json_int_t)s->samples, "skipped", (json_int_t)s->skipped, "encoded",
                     (json_int_t)report->encoded, "raw_bytes", (json_int_t)s->raw_bytes, "stored_bytes",
                     (json_int_t)s->stored_bytes, "fp16_error_max", s->error_max, "fp16_error_rms", s->error_rms,
                     "seconds", report->seconds, "extended_from", (json_int_t)report->extended_from);
}

static void visit(void *context, const ups_encode_report *report) {
    json_t *list = context;
    const ups_cache_summary *s = &report->summary;
    if (list) {
        json_array_append_new(list, report_json(report));
        return;
    }
    double ratio = s->stored_bytes > 0 ? (double)s->raw_bytes / (double)s->stored_bytes : 0;
    printf("%-20s %-10s %6lld trajectories  %8.1f MB  ratio %.2f", report->task, report->split, (long long)s->samples,
           (double)s->stored_bytes / 1e6, ratio);
    if (report->was_whole) printf("  (was complete)");
    if (report->extended_from > 0) printf("  (%lld were there)", (long long)report->extended_from);
    if (s->skipped > 0) printf("  %lld skipped", (long long)s->skipped);
    putchar('\n');
}

int ups_cmd_cache_build(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    bool restart = false;
    size_t override_count = 0;
    int exit_code = UPS_EXIT_OK;
    const char **overrides = calloc((size_t)argc + 1, sizeof *overrides);
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SET) overrides[override_count++] = arguments.value;
        if (option == RESTART) restart = true;
    }
    if (arguments.stop || arguments.operand_count != 1) {
        exit_code = arguments.stop ? ups_arguments_end(&arguments)
                                   : ups_command_usage_error(&arguments, "one CONFIG was expected");
        free(overrides);
        return exit_code;
    }
    ups_session session;
    json_t *list = arguments.json ? json_array() : NULL;
    ups_status status = ups_session_open(arguments.operands[0], overrides, override_count, true, &session, &error);
    if (status == UPS_OK && restart) status = ups_encode_remove(session.config, &error);
    if (status == UPS_OK) status = ups_encode_run(&session.request, visit, list, &error);
    if (status != UPS_OK) exit_code = ups_command_fail(&arguments, &error);
    if (status == UPS_OK && list) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(list);
    ups_session_close(&session);
    free(overrides);
    return exit_code;
}
