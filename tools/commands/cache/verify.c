/* `ups cache verify`: reads every byte of a cache, says what is wrong with it and where, and repairs it if asked to. */
#include "cache/inspect/verify.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/system/threads.h"
#include "cache/build/leases.h"
#include "cache/inspect/find.h"
#include "cache/store/group.h"
#include "tools/command.h"
#include "tools/commands/cache/operand.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/report/cache/facts.h"
#include "train/cache_build/repair.h"
#include "train/run/own.h"
#include "train/session.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { THREADS, REPAIR, SET, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [THREADS] = {"threads", 't', "N", "threads (default: all processors)"},
    [REPAIR] = {"repair", 0, NULL, "builds what is broken or missing again, with the run's encoder"},
    [SET] = {"set", 's', "KEY=VALUE",
             "with --repair: overrides a key of the configuration; may be given several times"},
};

static const ups_usage usage = {
    "cache verify",
    "DIR|CONFIG|RUN",
    "checks every byte of a latent cache, and names the shard and sample of any damage",
    options,
    OPTION_COUNT,
    "DIR is a whole cache, one task of it, or one task and split; CONFIG, or the directory of a RUN, stands for the "
    "cache of\n"
    "the run. Ends with 1 when anything is wrong.\n\n"
    "--repair builds broken and missing shards again from the run's files and encoder, and writes damaged documents\n"
    "again; they come out with the bytes they had. What could not be read is left alone. With DIR the run is found by\n"
    "its config.yaml, which lies above the cache.\n",
};

typedef struct verification {
    const ups_arguments *arguments;
    ups_pool *pool;
    bool repairs;
    ups_session session; /* open when it repairs */
    json_t *result;
    int64_t problems; /* that remain */
} verification;

static const int64_t max_threads = 1024;

static void show_progress(void *context, int64_t done, int64_t shards) {
    ups_progress_update(context, done, NULL);
}

static json_t *report_facts(const char *directory, const ups_verify_report *report) {
    json_t *findings = json_array();
    for (int64_t i = 0; i < report->finding_count; i++) {
        const ups_verify_finding *finding = &report->findings[i];
        json_t *entry = json_pack("{s:s, s:s}", "code", ups_status_name(finding->code), "message", finding->message);
        if (finding->shard >= 0) json_object_set_new(entry, "shard", json_integer(finding->shard));
        if (finding->sample >= 0) json_object_set_new(entry, "sample", json_integer(finding->sample));
        json_array_append_new(findings, entry);
    }
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:o}", "directory", directory, "sound", report->finding_count == 0,
                     "shards", (json_int_t)report->shards, "samples", (json_int_t)report->samples, "skipped",
                     (json_int_t)report->skipped, "bytes", (json_int_t)report->bytes, "findings", findings);
}

static void print_report(const char *directory, const ups_verify_report *report) {
    char size[24];
    printf("%s: %lld shard%s, %lld samples, %s of shards: ", directory, (long long)report->shards,
           report->shards == 1 ? "" : "s", (long long)report->samples, ups_size_text(report->bytes, size));
    if (report->finding_count == 0) {
        printf("sound\n");
        return;
    }
    printf("%lld problem%s\n", (long long)report->finding_count, report->finding_count == 1 ? "" : "s");
    for (int64_t i = 0; i < report->finding_count; i++) printf("  %s\n", report->findings[i].message);
}

static ups_status repair_group(verification *v, const char *group, const ups_verify_report *found, json_t *facts,
                               ups_error *error) {
    ups_repair_report report;
    ups_status status = ups_repair_group(&v->session, group, found, v->pool, &report, error);
    if (status != UPS_OK) return status;
    v->problems += report.after.finding_count;
    json_t *entry = json_pack("{s:I, s:I, s:b}", "shards", (json_int_t)report.shards, "encoded",
                              (json_int_t)report.encoded, "sound", report.after.finding_count == 0);
    json_object_set_new(facts, "repaired", entry);
    if (!v->arguments->json) {
        printf("  built again: %lld shard%s, %lld trajectories; now %s\n", (long long)report.shards,
               report.shards == 1 ? "" : "s", (long long)report.encoded,
               report.after.finding_count == 0 ? "sound" : "still not sound:");
        for (int64_t i = 0; i < report.after.finding_count; i++) printf("  %s\n", report.after.findings[i].message);
    }
    ups_verify_report_free(&report.after);
    return UPS_OK;
}

static ups_status verify_group(verification *v, const char *directory, ups_error *error) {
    ups_verify_report report;
    ups_cache_group *group = NULL; /* only to know how much there is to do; what is wrong with it comes from verify */
    int64_t shards = ups_cache_group_open(directory, &group, NULL) == UPS_OK ? ups_cache_shard_count(group->shape) : -1;
    ups_cache_group_close(group);
    ups_progress *progress = ups_progress_begin("verify", "shards", shards, 0);
    ups_leases_clear(directory);
    ups_status status = ups_cache_verify(directory, v->pool, show_progress, progress, &report, error);
    ups_progress_end(progress);
    if (status != UPS_OK) return status;
    json_t *facts = report_facts(directory, &report);
    if (!v->arguments->json) print_report(directory, &report);
    if (v->repairs && report.finding_count > 0)
        status = repair_group(v, directory, &report, facts, error);
    else
        v->problems += report.finding_count;
    json_array_append_new(v->result, facts);
    ups_verify_report_free(&report);
    return status;
}

/* The groups named by the operand. */
static ups_status verify_all(verification *v, const char *operand, bool repair, ups_error *error) {
    char *config = NULL, *cache = NULL;
    ups_found_paths found = {0};
    const ups_arguments *a = v->arguments;
    ups_status status = ups_operand_cache(operand, a->overrides, a->override_count, &cache, error);
    if (status == UPS_OK && repair) status = ups_repair_find_config(operand, &config, error);
    if (status == UPS_OK && config) {
        status = ups_session_open(config, a->overrides, a->override_count, true, &v->session, error);
        v->repairs = status == UPS_OK;
    }
    if (status == UPS_OK) status = ups_cache_find_all(cache, &found, error);
    for (int64_t i = 0; i < found.count && status == UPS_OK; i++) status = verify_group(v, found.path[i], error);
    ups_found_paths_free(&found);
    if (config) ups_session_close(&v->session);
    free(cache);
    free(config);
    return status;
}

/* Of a configuration all mistakes are told: of the operand, or of that of the run around a cache. */
static int fail(const ups_arguments *arguments, bool repair, const ups_error *error) {
    char *config = NULL;
    ups_error none;
    const char *operand = arguments->operands[0];
    if (repair && ups_repair_find_config(operand, &config, &none) == UPS_OK) operand = config;
    int exit_code =
        ups_operand_is_run(operand)
            ? ups_command_fail_on_config_at(arguments, operand, repair ? UPS_PATHS_READ : UPS_PATHS_NONE, error)
            : ups_command_fail(arguments, error);
    free(config);
    return exit_code;
}

int ups_cmd_cache_verify(int argc, char **argv) {
    ups_arguments arguments;
    bool repair = false;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t threads = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == THREADS) ups_arguments_integer(&arguments, 1, max_threads, &threads);
        if (option == REPAIR) repair = true;
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR, CONFIG or RUN was expected");
    ups_error error;
    verification v = {.arguments = &arguments, .pool = ups_pool_create((int)threads), .result = json_array()};
    ups_status status = v.pool ? verify_all(&v, arguments.operands[0], repair, &error)
                               : ups_fail(&error, UPS_ERR_MEMORY, "threads cannot be had; try --threads 1");
    if (status == UPS_OK && arguments.json) {
        json_dumpf(v.result, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(v.result);
    ups_pool_destroy(v.pool);
    if (status != UPS_OK) return fail(&arguments, repair, &error);
    return v.problems ? UPS_EXIT_FAILURE : UPS_EXIT_OK;
}
