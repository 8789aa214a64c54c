/* `ups cache build CONFIG`: encodes every task's trajectories with the run's trained encoder. */
#include "base/json.h"
#include "base/progress.h"
#include "base/system/launcher.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/report/cache/facts.h"
#include "train/cache_build/encode.h"
#include "train/session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SET, RESTART };
static const ups_option options[] = {
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
    [RESTART] = {"restart", 0, NULL, "removes this run's cache first, whatever made it"},
};
static const ups_usage usage = {
    "cache build",
    "CONFIG|RUN",
    "encodes raw fields into the latent cache with the run's trained encoder",
    options,
    2,
    "A build that was stopped goes on where it stood. A cache of fewer files of the same "
    "task is extended. A cache\nthat another encoder made is refused; --restart replaces "
    "it.\n\nThe table has a row for each task and split: numbers of a frame and of its latents, nRMSE of fields that "
    "are\n"
    "read back from latents, and the bytes of fields, of latents as plain FP16, and of the cache.\n\n"
    "Several processes build one cache together: run the same command as often as you like, "
    "on any hosts that share\nits directory, by hand, with mpirun or srun. Each takes what "
    "nobody else has; what a killed one had is taken over.\n\n"
    "Keys such as cache.codec belong in the configuration: a cache that was built with others by --set\n"
    "is refused by a training that is not given the same. For other programs, `ups cache export` writes one.\n"
    "\nExamples:\n  ups cache build configs/quickstart.yaml\n"
    "  srun -n 4 ups cache build configs/reference_2task.yaml\n"};

static json_t *stage_json(double seconds, double processor) {
    return json_pack("{s:f, s:f}", "seconds", seconds, "processor_seconds", processor);
}

/* Where the time went. Waiting takes no processor. */
static json_t *stages_json(const ups_encode_stages *s) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "read", stage_json(s->disk, s->read_cpu), "decode",
                     stage_json(s->decode, s->decode_cpu), "encode", stage_json(s->encode, s->encode_cpu), "compress",
                     stage_json(s->compress, s->compress_cpu), "publish", stage_json(s->publish, s->publish_cpu),
                     "idle", stage_json(s->idle, 0.0));
}

/* Trajectories a second in each tenth of what was encoded; nothing of fewer than ten. */
static json_t *rates_json(const ups_encode_report *report) {
    json_t *rates = json_array();
    if (report->encoded < UPS_ENCODE_PARTS) return rates;
    double before = 0, each = (double)report->encoded / UPS_ENCODE_PARTS;
    for (int part = 0; part < UPS_ENCODE_PARTS && report->reached[part] > before; part++) {
        json_array_append_new(rates, json_real(each / (report->reached[part] - before)));
        before = report->reached[part];
    }
    return rates;
}

static json_t *report_json(const ups_encode_report *report) {
    const ups_cache_summary *s = &report->summary;
    double seconds = report->seconds;
    json_t *facts = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "task", report->task, "split", report->split,
        "samples", (json_int_t)s->samples, "skipped", (json_int_t)s->skipped, "encoded", (json_int_t)report->encoded,
        "raw_bytes", (json_int_t)s->raw_bytes, "source_bytes", (json_int_t)report->source_bytes, "stored_bytes",
        (json_int_t)s->stored_bytes, "fp16_error_max", s->error_max, "fp16_error_rms", s->error_rms, "seconds", seconds,
        "extended_from", (json_int_t)report->extended_from);
    if (facts && !isnan(report->nrmse)) json_object_set_new(facts, "reconstruction_nrmse", json_real(report->nrmse));
    if (facts) {
        json_object_set_new(facts, "tokens", json_integer((json_int_t)report->latents.tokens));
        json_object_set_new(facts, "dim", json_integer((json_int_t)report->latents.dim));
        json_object_set_new(facts, "field_numbers", json_integer((json_int_t)report->field_numbers));
    }
    if (!facts || report->encoded == 0) return facts;
    json_t *speed =
        json_pack("{s:f, s:f, s:f, s:i, s:f, s:o, s:o}", "frames_per_s", (double)report->frames / seconds,
                  "field_gb_per_s", (double)report->field_bytes / seconds / 1e9, "processor_seconds", report->cpu,
                  "processors", report->processors, "processor_use", report->cpu / (seconds * report->processors),
                  "stages", stages_json(&report->stages), "trajectories_per_s_by_tenth", rates_json(report));
    json_object_update_missing(facts, speed);
    json_decref(speed);
    return facts;
}

/* What latents are, what they lose, and what they take. */
static void print_row(const ups_encode_report *report) {
    const ups_cache_summary *s = &report->summary;
    char shape[48], read[16] = "-", fields[24], plain[24], stored[24];
    snprintf(shape, sizeof shape, "%lld x %lld", (long long)report->latents.tokens, (long long)report->latents.dim);
    if (!isnan(report->nrmse)) snprintf(read, sizeof read, "%.2g", report->nrmse);
    printf("%-20s %-10s %9lld %14lld %14s %10s %9s %9s %9s", report->task, report->split, (long long)s->samples,
           (long long)report->field_numbers, shape, read, ups_size_text(report->source_bytes, fields),
           ups_size_text(s->raw_bytes, plain), ups_size_text(s->stored_bytes, stored));
}

/* Where reports go: to a list, or as rows below a heading. */
typedef struct output {
    json_t *list;
    bool begun;
} output;

static void visit(void *context, const ups_encode_report *report) {
    output *out = context;
    const ups_cache_summary *s = &report->summary;
    if (out->list) {
        json_array_append_new(out->list, report_json(report));
        return;
    }
    if (!out->begun) {
        printf("%-20s %-10s %9s %14s %14s %10s %9s %9s %9s\n", "task", "split", "samples", "numbers/frame",
               "tokens x dim", "read back", "fields", "FP16", "cache");
        out->begun = true;
    }
    print_row(report);
    if (report->was_whole) printf("  (was complete)");
    if (report->extended_from > 0) printf("  (%lld were there)", (long long)report->extended_from);
    if (report->encoded > 0) {
        printf("  %.0f frames/s, %.0f %% of %d processors", (double)report->frames / report->seconds,
               100 * report->cpu / (report->seconds * report->processors), report->processors);
    }
    if (s->skipped > 0) printf("  %lld skipped", (long long)s->skipped);
    putchar('\n');
}

int ups_cmd_cache_build(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    bool restart = false;
    int exit_code = UPS_EXIT_OK;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SET) ups_arguments_override(&arguments);
        if (option == RESTART) restart = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_no_config(&arguments);
    ups_launch_share_as_told();
    ups_session session;
    output out = {.list = arguments.json ? json_array() : NULL};
    ups_status status =
        ups_session_open(arguments.operands[0], arguments.overrides, arguments.override_count, true, &session, &error);
    if (status == UPS_OK && restart) status = ups_encode_remove(session.config, &error);
    if (status == UPS_OK) status = ups_encode_run(&session, visit, &out, &error);
    if (status != UPS_OK && !session.config) {
        exit_code = ups_command_fail_on_config(&arguments, UPS_PATHS_ALL, &error);
    } else if (status != UPS_OK) {
        exit_code = ups_command_fail(&arguments, &error);
    }
    if (status == UPS_OK && out.list) {
        json_dumpf(out.list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        putchar('\n');
    }
    json_decref(out.list);
    ups_session_close(&session);
    return exit_code;
}
