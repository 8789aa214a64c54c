/* `ups cache inspect`: what is in a cache, what it was made from, what it looks like. */
#include "cache/inspect/find.h"
#include "tools/command.h"
#include "tools/commands/cache/operand.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/output.h"
#include "tools/report/cache/facts.h"
#include "tools/report/cache/report.h"
#include "tools/report/pictures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT 64    /* trajectories decoded to measure latents */
#define RECONSTRUCTED 2 /* trajectories decoded to fields */

/* ---- one group ---- */

/* Facts, with `decoded` where there is a reconstructor that knows this group. */
static ups_status describe_group(const char *directory, ups_reconstructor *reconstructor, json_t **facts,
                                 ups_error *error) {
    ups_cache_group *group;
    ups_cache_survey survey;
    ups_latent_measurement measurement;
    *facts = NULL;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    ups_status status = ups_cache_survey_take(group, &survey, error);
    if (status == UPS_OK) {
        status = ups_latent_measure(group, &survey, LOOKED_AT, &measurement, error);
        if (status == UPS_OK) {
            *facts = ups_cache_group_facts(group, &survey, &measurement);
            ups_latent_measurement_free(&measurement);
            if (!*facts) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to describe it", directory);
        }
        json_t *decoded = NULL;
        if (status == UPS_OK && reconstructor) {
            status = ups_cache_field_facts(group, &survey, reconstructor, RECONSTRUCTED, &decoded, error);
            if (status == UPS_OK) json_object_set_new(*facts, "decoded", decoded);
        }
        if (status != UPS_OK) {
            json_decref(*facts);
            *facts = NULL;
        }
        ups_cache_survey_free(&survey);
    }
    ups_cache_group_close(group);
    return status;
}

static void print_orders(const json_t *codec) {
    const json_t *orders = json_object_get(codec, "orders"), *counts = json_object_get(orders, "counts");
    long long looked = ups_fact_integer(orders, "looked_at");
    if (looked == 0) return;
    printf(", prediction of order");
    const char *separator = " ";
    for (size_t order = 0; order < json_array_size(counts); order++) {
        double share = 100.0 * (double)json_integer_value(json_array_get(counts, order)) / (double)looked;
        if (share <= 0) continue;
        printf("%s%zu (%.0f %%)", separator, order, share);
        separator = ", ";
    }
}

static void print_group(const json_t *facts) {
    const json_t *broken = json_object_get(facts, "error");
    if (broken) {
        printf("%s\n  broken       %s\n", ups_fact_text(facts, "directory"), ups_fact_text(broken, "message"));
        return;
    }
    const json_t *shape = json_object_get(facts, "shape"), *shards = json_object_get(facts, "shards");
    const json_t *codec = json_object_get(facts, "codec"), *range = json_object_get(facts, "range");
    const json_t *error = json_object_get(facts, "fp16_rounding_error"),
                 *parameters = json_object_get(facts, "parameters");
    const json_t *skipped = json_object_get(facts, "skipped"), *fingerprint = json_object_get(facts, "fingerprint");
    printf("%s\n", ups_fact_text(facts, "directory"));
    printf("  samples      %lld of %lld", ups_fact_integer(facts, "present"), ups_fact_integer(facts, "samples"));
    if (ups_fact_integer(facts, "skipped_count")) printf(", %lld skipped", ups_fact_integer(facts, "skipped_count"));
    printf("; %lld of %lld shards, %s\n", ups_fact_integer(shards, "present"), ups_fact_integer(shards, "total"),
           json_is_true(json_object_get(facts, "complete")) ? "complete" : "NOT COMPLETE: run ups cache build again");
    printf("  trajectory   %lld times x %lld tokens x %lld dim, float16\n", ups_fact_integer(shape, "times"),
           ups_fact_integer(shape, "tokens"), ups_fact_integer(shape, "dim"));
    char raw[24], stored[24];
    printf("  size         %s, stored in %s: ratio %.2f\n",
           ups_size_text((uint64_t)ups_fact_integer(facts, "raw_bytes"), raw),
           ups_size_text((uint64_t)ups_fact_integer(facts, "stored_bytes"), stored), ups_fact_real(facts, "ratio"));
    printf("  codec        %s", ups_fact_text(codec, "name"));
    if (ups_fact_integer(codec, "zstd_level") > 0) printf(", zstd level %lld", ups_fact_integer(codec, "zstd_level"));
    print_orders(codec);
    printf("\n");
    if (ups_fact_real(facts, "max_abs_error") > 0)
        printf("  error bound  latents were moved by at most %g (max_abs_error)\n",
               ups_fact_real(facts, "max_abs_error"));
    if (json_is_number(json_array_get(range, 0))) {
        printf("  values       %.5g to %.5g; rounding to FP16 changed them by at most %.2g, rms %.2g\n",
               json_number_value(json_array_get(range, 0)), json_number_value(json_array_get(range, 1)),
               ups_fact_real(error, "max"), ups_fact_real(error, "rms"));
    }
    if (json_array_size(parameters) > 0) {
        printf("  parameters  ");
        for (size_t p = 0; p < json_array_size(parameters); p++) {
            printf("%s %s", p ? "," : "", json_string_value(json_array_get(parameters, p)));
        }
        printf("\n");
    }
    const json_t *decoded = json_object_get(facts, "decoded");
    for (size_t c = 0; c < json_array_size(json_object_get(decoded, "fields")); c++) {
        const json_t *field = json_array_get(json_object_get(decoded, "fields"), c);
        const json_t *fp16 = json_object_get(field, "fp16_error");
        printf("  decoded      %s: FP16 costs at most %.2g, rms %.2g, where the field deviates by %.3g; nRMSE %.3g\n",
               ups_fact_text(field, "name"), ups_fact_real(fp16, "max"), ups_fact_real(fp16, "rms"),
               ups_fact_real(field, "deviation"), ups_fact_real(field, "nrmse"));
    }
    if (json_object_get(decoded, "unavailable"))
        printf("  decoded      not: %s\n", ups_fact_text(decoded, "unavailable"));
    if (ups_fact_integer(facts, "dead_channels") > 0) {
        printf("  dead         %lld of %lld channels hardly vary: the encoder does not use them\n",
               ups_fact_integer(facts, "dead_channels"), ups_fact_integer(shape, "dim"));
    }
    printf("  made by      ");
    const char *key, *separator = "";
    json_t *value;
    json_object_foreach((json_t *)fingerprint, key, value) {
        if (!json_is_string(value) || strcmp(key, "max_abs_error") == 0) continue; /* which has a line of its own */
        printf("%s%s %.8s", separator, key, *json_string_value(value) ? json_string_value(value) : "-");
        separator = ", ";
    }
    printf("\n");
    for (size_t i = 0; i < json_array_size(skipped); i++) {
        const json_t *entry = json_array_get(skipped, i);
        printf("  skipped      sample %lld: %s\n", ups_fact_integer(entry, "sample"), ups_fact_text(entry, "reason"));
    }
}

/* ---- one line a group, above the details ---- */

static int widest(const json_t *groups, const char *key, int least) {
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const char *text = ups_fact_text(json_array_get(groups, i), key);
        if (text && (int)strlen(text) > least) least = (int)strlen(text);
    }
    return least;
}

/* Orders chosen, most frequent first: "2", "2 1 0"; "-" when nothing was predicted. */
static const char *orders_text(const json_t *facts, char text[16]) {
    const json_t *orders = json_object_get(json_object_get(facts, "codec"), "orders"),
                 *counts = json_object_get(orders, "counts");
    json_int_t left[3];
    size_t used = 0;
    for (size_t o = 0; o < 3; o++) left[o] = json_integer_value(json_array_get(counts, o));
    for (;;) {
        size_t first = left[1] > left[0] ? 1 : 0;
        if (left[2] > left[first]) first = 2;
        if (left[first] <= 0) break;
        used += (size_t)snprintf(text + used, 16 - used, "%s%zu", used ? " " : "", first);
        left[first] = 0;
    }
    return used ? text : "-";
}

static void print_table(const json_t *groups) {
    const int task = widest(groups, "task", 4), split = widest(groups, "split", 5);
    bool decoded = false;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        if (json_object_get(json_array_get(groups, i), "decoded")) decoded = true;
    }
    printf("%-*s  %-*s  %8s  %13s  %9s  %6s  %5s  %17s  %8s  %s%s\n", task, "task", split, "split", "samples", "shape",
           "stored", "ratio", "order", "values", "FP16 rms", decoded ? "in fields  " : "", "state");
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *facts = json_array_get(groups, i), *shape = json_object_get(facts, "shape");
        const json_t *range = json_object_get(facts, "range"), *error = json_object_get(facts, "error");
        if (error) {
            printf("%s: broken\n", ups_fact_text(facts, "directory"));
            continue;
        }
        char extents[64], stored[24], orders[16], values[48] = "-", fields[24] = "-";
        snprintf(extents, sizeof extents, "%lldx%lldx%lld", ups_fact_integer(shape, "times"),
                 ups_fact_integer(shape, "tokens"), ups_fact_integer(shape, "dim"));
        if (json_is_number(json_array_get(range, 0))) {
            snprintf(values, sizeof values, "%.3g to %.3g", json_number_value(json_array_get(range, 0)),
                     json_number_value(json_array_get(range, 1)));
        }
        printf("%-*s  %-*s  %8lld  %13s  %9s  %6.2f  %5s  %17s  %8.1e  ", task, ups_fact_text(facts, "task"), split,
               ups_fact_text(facts, "split"), ups_fact_integer(facts, "present"), extents,
               ups_size_text((uint64_t)ups_fact_integer(facts, "stored_bytes"), stored), ups_fact_real(facts, "ratio"),
               orders_text(facts, orders), values, ups_fact_real(json_object_get(facts, "fp16_rounding_error"), "rms"));
        const double share = ups_fact_decoded_share(facts);
        if (share >= 0) snprintf(fields, sizeof fields, "%.1g", share);
        if (decoded) printf("%9s  ", fields);
        printf("%s\n", json_is_true(json_object_get(facts, "complete")) ? "complete" : "not complete");
    }
    printf("\n");
}

/* ---- one trajectory ---- */

static void print_sample(const json_t *facts, const char *directory) {
    printf("%s, sample %lld (sample %lld of its source)\n", directory, ups_fact_integer(facts, "sample"),
           ups_fact_integer(facts, "source_sample"));
    if (!json_is_true(json_object_get(facts, "present"))) {
        printf("  skipped when the cache was built\n");
        return;
    }
    const json_t *range = json_object_get(facts, "range"), *error = json_object_get(facts, "fp16_rounding_error");
    char stored[24];
    printf("  size         %s: ratio %.2f", ups_size_text((uint64_t)ups_fact_integer(facts, "stored_bytes"), stored),
           ups_fact_real(facts, "ratio"));
    if (ups_fact_integer(facts, "order") >= 0) printf(", prediction of order %lld", ups_fact_integer(facts, "order"));
    printf("\n  values       %.5g to %.5g; rounding to FP16 changed them by at most %.2g, rms %.2g\n",
           json_number_value(json_array_get(range, 0)), json_number_value(json_array_get(range, 1)),
           ups_fact_real(error, "max"), ups_fact_real(error, "rms"));
    const char *name, *separator = "  parameters   ";
    json_t *value;
    json_object_foreach(json_object_get(facts, "parameters"), name, value) {
        if (json_is_number(value))
            printf("%s%s = %g", separator, name, json_number_value(value));
        else
            printf("%s%s unknown", separator, name);
        separator = ", ";
    }
    if (*separator == ',') printf("\n");
}

static ups_status inspect_sample(const char *directory, int64_t index, const char *png, json_t **facts,
                                 ups_error *error) {
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    ups_cache_reader *reader = ups_cache_reader_create(group);
    ups_cache_trajectory trajectory = {0};
    ups_status status = UPS_OK;
    if (!reader) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", directory);
    } else if (index >= group->shape.samples) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: there is no sample %lld; the last is %lld", directory,
                          (long long)index, (long long)group->shape.samples - 1);
    }
    if (status == UPS_OK) status = ups_cache_read(reader, index, &trajectory, error);
    if (status == UPS_OK) status = ups_cache_sample_facts(group, index, &trajectory, facts, error);
    if (status == UPS_OK && png && !trajectory.present) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was skipped by the build; there is nothing to draw",
                          directory, (long long)index);
    }
    if (status == UPS_OK && png) {
        char title[300];
        snprintf(title, sizeof title, "%s / %s, sample %lld", group->task, group->split, (long long)index);
        const ups_chunk_shape shape = group->shape.trajectory;
        const double *time = group->time + (group->time_per_sample ? index * shape.times : 0);
        const ups_latent_picture picture = {title, shape.times, shape.tokens, shape.dim, trajectory.latents, time};
        ups_figure figure;
        status = ups_draw_latents(&figure, UPS_FIGURE_PNG, &picture, error);
        if (status == UPS_OK) status = ups_figure_publish(&figure, png, error);
    }
    ups_cache_reader_destroy(reader);
    ups_cache_group_close(group);
    return status;
}

/* ---- the command ---- */

enum { SAMPLE, PNG, HTML, CONFIG, FIELDS, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SAMPLE] = {"sample", 0, "I", "look at this trajectory alone, counted from 0"},
    [PNG] = {"png", 0, "FILE.png", "draw the trajectory of --sample (default: sample 0)"},
    [HTML] = {"html", 0, "FILE.html", "write all of it as one page, with pictures; decodes fields where it can"},
    [CONFIG] = {"config", 0, "CONFIG",
                "decode some trajectories with this run's autoencoder: what FP16 costs in fields"},
    [FIELDS] = {"fields", 0, NULL, "the same with the run that the cache lies in (config.yaml beside it)"},
};

static const ups_usage usage = {
    "cache inspect",
    "DIR|CONFIG|RUN",
    "shows what is in a latent cache, and what it was made from",
    options,
    OPTION_COUNT,
    "DIR is a whole cache, one task of it, or one task and split (for --sample and --png); a configuration, or the\n"
    "directory of a run, stands for the run's cache. A cache that is broken\n"
    "is named, the others are shown all the same, and the command ends with 1.\n\n"
    "Examples:\n"
    "  ups cache inspect cache\n"
    "  ups cache inspect runs/quickstart/cache --html cache.html\n"
    "  ups cache inspect cache/advection1d/train --sample 3 --png latent.png",
};

typedef struct request {
    const char *directory, *png, *html, *config;
    bool fields;
    int64_t sample;
} request;

/* The run to decode with. *why says why there is none where none was insisted on. */
static ups_status open_reconstructor(const request *wanted, ups_reconstructor **reconstructor, char why[1000],
                                     ups_error *error) {
    *reconstructor = NULL;
    if (wanted->config) return ups_reconstructor_open(wanted->config, reconstructor, error);
    if (!wanted->fields && !wanted->html) return UPS_OK;
    char *found = ups_run_find(wanted->directory);
    ups_status status = UPS_OK;
    if (!found) {
        status = ups_fail(error, UPS_ERR_IO, "no run was found around the cache; --config CONFIG names one");
    } else {
        status = ups_reconstructor_open(found, reconstructor, error);
    }
    free(found);
    if (status == UPS_OK || wanted->fields || status == UPS_ERR_CANCELLED) return status;
    snprintf(why, 1000, "%s", error->message);
    return UPS_OK;
}

static bool is_trouble_with_one(ups_status status) {
    return status != UPS_OK && status != UPS_ERR_CANCELLED && status != UPS_ERR_MEMORY;
}

/* Facts of one group, whatever is wrong with it. */
static ups_status describe_any(const char *directory, ups_reconstructor *reconstructor, const char *why, json_t **facts,
                               ups_error *error) {
    ups_status status = describe_group(directory, reconstructor, facts, error);
    if (status != UPS_OK && reconstructor && is_trouble_with_one(status)) { /* perhaps it is only not of this run */
        char reason[1000];
        snprintf(reason, sizeof reason, "%s", error->message);
        status = describe_group(directory, NULL, facts, error);
        if (status == UPS_OK) json_object_set_new(*facts, "decoded", json_pack("{s:s}", "unavailable", reason));
    } else if (status == UPS_OK && *why) {
        json_object_set_new(*facts, "decoded", json_pack("{s:s}", "unavailable", why));
    }
    return status;
}

static bool all_broken(const json_t *groups) {
    for (size_t i = 0; i < json_array_size(groups); i++) {
        if (!json_object_get(json_array_get(groups, i), "error")) return false;
    }
    return true;
}

static ups_status inspect_groups(const request *wanted, char **groups, int64_t count, bool json, bool *broken,
                                 json_t **result, ups_error *error) {
    char why[1000] = "";
    ups_reconstructor *reconstructor;
    UPS_TRY(open_reconstructor(wanted, &reconstructor, why, error));
    ups_status status = UPS_OK;
    *result = json_array();
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        json_t *facts = NULL;
        status = describe_any(groups[i], reconstructor, why, &facts, error);
        if (is_trouble_with_one(status) && count > 1) {
            facts = json_pack("{s:s, s:{s:s, s:s}}", "directory", groups[i], "error", "code", ups_status_name(status),
                              "message", error->message);
            status = UPS_OK;
            *broken = true;
        }
        if (status == UPS_OK) json_array_append_new(*result, facts);
    }
    if (status == UPS_OK && wanted->html) {
        ups_report_request report = {
            .directory = wanted->directory, .facts = *result, .reconstructor = reconstructor, .path = wanted->html};
        status = ups_cache_report(&report, error);
    }
    ups_reconstructor_close(reconstructor);
    if (status == UPS_OK && !json) {
        if (count > 1 && !all_broken(*result)) print_table(*result);
        for (size_t i = 0; i < json_array_size(*result); i++) print_group(json_array_get(*result, i));
        if (wanted->html) printf("%s: open it in a browser\n", wanted->html);
    }
    return status;
}

static ups_status check_outputs(const request *wanted, ups_error *error) {
    if (wanted->png) UPS_TRY(ups_output_check(wanted->png, UPS_OUTPUT_PICTURE, error));
    return wanted->html ? ups_output_check(wanted->html, UPS_OUTPUT_PAGE, error) : UPS_OK;
}

int ups_cmd_cache_inspect(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    request wanted = {.sample = -1};
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SAMPLE) ups_arguments_integer(&arguments, 0, INT64_MAX, &wanted.sample);
        if (option == PNG) wanted.png = arguments.value;
        if (option == HTML) wanted.html = arguments.value;
        if (option == CONFIG) wanted.config = arguments.value;
        if (option == FIELDS) wanted.fields = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR, CONFIG or RUN was expected");
    bool one = wanted.sample >= 0 || wanted.png;
    if (one && (wanted.html || wanted.config || wanted.fields)) {
        return ups_command_usage_error(&arguments, "--sample and --png show one trajectory; --html, --config and "
                                                   "--fields are of whole groups");
    }
    ups_error error;
    ups_found_paths found = {0};
    char *directory = NULL;
    const char *operand = arguments.operands[0];
    if (check_outputs(&wanted, &error) != UPS_OK) return ups_command_fail(&arguments, &error);
    ups_status status = ups_operand_cache(operand, NULL, 0, &directory, &error);
    if (status != UPS_OK) return ups_command_fail_on_config(&arguments, UPS_PATHS_NONE, &error);
    wanted.directory = directory;
    if (!wanted.config && (wanted.html || wanted.fields) && ups_operand_is_run(operand)) wanted.config = operand;
    status = ups_cache_find_all(wanted.directory, &found, &error);
    if (status != UPS_OK) {
        free(directory);
        return ups_command_fail(&arguments, &error);
    }
    bool broken = false;
    json_t *result = NULL;
    if (!one) {
        status = inspect_groups(&wanted, found.path, found.count, arguments.json, &broken, &result, &error);
    } else if (found.count > 1) {
        status =
            ups_fail(&error, UPS_ERR_ARGUMENT, "%s: holds %lld groups; --sample and --png look into one, such as %s",
                     wanted.directory, (long long)found.count, found.path[0]);
    } else {
        status = inspect_sample(found.path[0], wanted.sample < 0 ? 0 : wanted.sample, wanted.png, &result, &error);
        if (status == UPS_OK && !arguments.json) print_sample(result, found.path[0]);
    }
    if (status == UPS_OK && arguments.json) {
        ups_print_json(result, JSON_INDENT(2));
    }
    json_decref(result);
    ups_found_paths_free(&found);
    free(directory);
    if (status != UPS_OK) return ups_command_fail(&arguments, &error);
    return broken ? UPS_EXIT_FAILURE : UPS_EXIT_OK;
}
