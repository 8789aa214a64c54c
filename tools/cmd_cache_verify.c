/* `ups cache verify`: reads every byte of a cache, and says what is wrong with it and where. */
#include "base/json.h"
#include "base/progress.h"
#include "base/threads.h"
#include "cache/group.h"
#include "cache/verify.h"
#include "tools/command.h"
#include "tools/commands.h"
#include <stdio.h>
#include <stdlib.h>

enum { THREADS, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [THREADS] = {"threads", 't', "N", "threads (default: all processors)"},
};

static const ups_usage usage = {
    "cache verify",
    "DIR",
    "checks every byte of a latent cache, and names the shard and sample of any damage",
    options,
    OPTION_COUNT,
    "DIR is a whole cache, one task of it, or one task and split. Ends with 1 when anything is wrong.\n"
    "To mend a cache: remove the shards named (the files latent/c/N/0/0/0) and run ups cache build again;\n"
    "it builds only what is missing.",
};

static const int64_t most_threads = 1024;

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
    printf("%s: %lld shards, %lld samples, %.1f MB: ", directory, (long long)report->shards, (long long)report->samples,
           (double)report->bytes / 1e6);
    if (report->finding_count == 0) {
        printf("sound\n");
        return;
    }
    printf("%lld problem%s\n", (long long)report->finding_count, report->finding_count == 1 ? "" : "s");
    for (int64_t i = 0; i < report->finding_count; i++) printf("  %s\n", report->findings[i].message);
}

int ups_cmd_cache_verify(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t threads = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == THREADS) ups_arguments_integer(&arguments, 1, most_threads, &threads);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR was expected");

    ups_error error;
    char **groups = NULL;
    int64_t count = 0, problems = 0;
    json_t *result = json_array();
    ups_pool *pool = ups_pool_create((int)threads);
    ups_status status = pool ? ups_cache_groups_find(arguments.operands[0], &groups, &count, &error)
                             : ups_fail(&error, UPS_ERR_MEMORY, "threads cannot be had; try --threads 1");
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        ups_verify_report report;
        ups_cache_group *group =
            NULL; /* only to know how much there is to do; what is wrong with it comes from verify */
        int64_t shards =
            ups_cache_group_open(groups[i], &group, NULL) == UPS_OK ? ups_cache_shard_count(group->shape) : -1;
        ups_cache_group_close(group);
        ups_progress *progress = ups_progress_begin("verify", "shards", shards, 0);
        status = ups_cache_verify(groups[i], pool, show_progress, progress, &report, &error);
        ups_progress_end(progress);
        if (status != UPS_OK) break;
        problems += report.finding_count;
        json_array_append_new(result, report_facts(groups[i], &report));
        if (!arguments.json) print_report(groups[i], &report);
        ups_verify_report_free(&report);
    }
    if (status == UPS_OK && arguments.json) {
        json_dumpf(result, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(result);
    ups_cache_groups_free(groups, count);
    ups_pool_destroy(pool);
    if (status != UPS_OK) return ups_command_fail(&arguments, &error);
    return problems ? UPS_EXIT_FAILURE : UPS_EXIT_OK;
}
