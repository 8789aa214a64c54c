/* `ups cache inspect`: what is in a cache, what it was made from, what it looks like. */
#include "base/files.h"
#include "cache/reader.h"
#include "tools/command.h"
#include "tools/commands.h"
#include "tools/latent_picture.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT 64 /* trajectories decoded to tell which prediction orders are in use */

/* ---- facts about a group, as JSON; the text is printed from the same facts ---- */

/* Counts of prediction orders 0, 1, 2 over trajectories spread evenly; damage is for `verify` to tell. */
static json_t *orders_in_use(const ups_cache_group *group) {
    json_int_t counts[3] = {0}, looked = 0;
    ups_cache_reader *reader = group->codec.portable ? NULL : ups_cache_reader_create(group);
    int64_t samples = group->shape.samples, wanted = samples < LOOKED_AT ? samples : LOOKED_AT;
    for (int64_t i = 0; reader && i < wanted; i++) {
        ups_cache_trajectory trajectory;
        if (ups_cache_read(reader, i * samples / wanted, &trajectory, NULL) != UPS_OK || !trajectory.present) continue;
        counts[trajectory.order]++;
        looked++;
    }
    ups_cache_reader_destroy(reader);
    return json_pack("{s:I, s:[I,I,I]}", "looked_at", looked, "counts", counts[0], counts[1], counts[2]);
}

/* From shards and statistics, so that unfinished caches can be looked at as well. */
typedef struct contents {
    int64_t shards, present, skipped;
    uint64_t stored_bytes;
    ups_cache_totals totals;
} contents;

static ups_status look_through_shards(const ups_cache_group *group, contents *found, ups_error *error) {
    ups_cache_shape shape = group->shape;
    size_t per_shard = (size_t)shape.samples_per_shard;
    ups_chunk_place *places = malloc(per_shard * sizeof *places);
    ups_cache_statistics *rows = malloc(((size_t)shape.samples + per_shard) * sizeof *rows);
    ups_status status = UPS_OK;
    if (!places || !rows) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to look into it", group->directory);
    *found = (contents){0};
    for (int64_t s = 0; s < ups_cache_shard_count(shape) && status == UPS_OK; s++) {
        char *path = ups_cache_shard_path(group->directory, s);
        uint64_t size = 0;
        if (!path) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
        if (path && ups_path_exists(path)) {
            status = ups_shard_read_index(path, shape.samples_per_shard, s * shape.samples_per_shard, places, error);
            if (status == UPS_OK) status = ups_file_size(path, &size, error);
            if (status == UPS_OK) status = ups_cache_read_statistics(group, s, rows + found->present, error);
            if (status == UPS_OK) {
                found->shards++;
                found->stored_bytes += size;
            }
            for (int64_t i = 0, first = found->present; i < ups_cache_shard_samples(shape, s) && status == UPS_OK;
                 i++) {
                if (ups_chunk_present(places[i]))
                    rows[found->present++] = rows[first + i];
                else
                    found->skipped++;
            }
        }
        free(path);
    }
    if (status == UPS_OK) found->totals = ups_cache_statistics_sum(rows, found->present);
    free(rows);
    free(places);
    return status;
}

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static ups_status describe_group(const char *directory, json_t **facts, ups_error *error) {
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    contents found;
    ups_status status = look_through_shards(group, &found, error);
    if (status != UPS_OK) {
        ups_cache_group_close(group);
        return status;
    }
    ups_chunk_shape shape = group->shape.trajectory;
    uint64_t raw = (uint64_t)found.present * ups_chunk_raw_bytes(shape);
    json_t *parameters = json_array(),
           *skipped = json_object_get(json_object_get(group->attributes, "result"), "skipped");
    for (int p = 0; p < group->parameter_count; p++)
        json_array_append_new(parameters, json_string(group->parameter_names[p]));
    *facts = json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:{s:I, s:I, s:I}, s:o, s:{s:s, s:i, s:o}, s:{s:I, s:I, "
                       "s:I}, s:I, s:I, s:o, s:[o,o], "
                       "s:{s:f, s:f}, s:O, s:O*}",
                       "directory", directory, "task", group->task, "split", group->split, "complete", group->complete,
                       "samples", (json_int_t)group->shape.samples, "present", (json_int_t)found.present,
                       "skipped_count", (json_int_t)found.skipped, "shape", "times", (json_int_t)shape.times, "tokens",
                       (json_int_t)shape.tokens, "dim", (json_int_t)shape.dim, "parameters", parameters, "codec",
                       "name", group->codec.portable ? "portable" : "ups.latent", "zstd_level", group->codec.level,
                       "orders", orders_in_use(group), "shards", "present", (json_int_t)found.shards, "total",
                       (json_int_t)ups_cache_shard_count(group->shape), "samples_each",
                       (json_int_t)group->shape.samples_per_shard, "raw_bytes", (json_int_t)raw, "stored_bytes",
                       (json_int_t)found.stored_bytes, "ratio",
                       number(found.stored_bytes ? (double)raw / (double)found.stored_bytes : NAN), "range",
                       number(found.totals.minimum), number(found.totals.maximum), "fp16_rounding_error", "max",
                       found.totals.error_max, "rms", found.totals.error_rms, "fingerprint",
                       json_object_get(group->attributes, "fingerprint"), "skipped", skipped);
    ups_cache_group_close(group);
    return *facts ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to describe it", directory);
}

/* "3.3 MB"; the buffer belongs to the caller. */
static const char *size_text(long long bytes, char text[24]) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1000 && unit < 4; unit++) value /= 1000;
    snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static long long integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static double real_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void print_orders(const json_t *codec) {
    const json_t *orders = json_object_get(codec, "orders"), *counts = json_object_get(orders, "counts");
    long long looked = integer_of(orders, "looked_at");
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
    const json_t *shape = json_object_get(facts, "shape"), *shards = json_object_get(facts, "shards");
    const json_t *codec = json_object_get(facts, "codec"), *range = json_object_get(facts, "range");
    const json_t *error = json_object_get(facts, "fp16_rounding_error"),
                 *parameters = json_object_get(facts, "parameters");
    const json_t *skipped = json_object_get(facts, "skipped"), *fingerprint = json_object_get(facts, "fingerprint");
    printf("%s\n", text_of(facts, "directory"));
    printf("  samples      %lld of %lld", integer_of(facts, "present"), integer_of(facts, "samples"));
    if (integer_of(facts, "skipped_count")) printf(", %lld skipped", integer_of(facts, "skipped_count"));
    printf("; %lld of %lld shards, %s\n", integer_of(shards, "present"), integer_of(shards, "total"),
           json_is_true(json_object_get(facts, "complete")) ? "complete" : "NOT COMPLETE: run ups cache build again");
    printf("  trajectory   %lld times x %lld tokens x %lld dim, float16\n", integer_of(shape, "times"),
           integer_of(shape, "tokens"), integer_of(shape, "dim"));
    char raw[24], stored[24];
    printf("  size         %s, stored in %s: ratio %.2f\n", size_text(integer_of(facts, "raw_bytes"), raw),
           size_text(integer_of(facts, "stored_bytes"), stored), real_of(facts, "ratio"));
    printf("  codec        %s + zstd level %lld", text_of(codec, "name"), integer_of(codec, "zstd_level"));
    print_orders(codec);
    printf("\n");
    if (json_is_number(json_array_get(range, 0))) {
        printf("  values       %.5g to %.5g; rounding to FP16 changed them by at most %.2g, rms %.2g\n",
               json_number_value(json_array_get(range, 0)), json_number_value(json_array_get(range, 1)),
               real_of(error, "max"), real_of(error, "rms"));
    }
    if (json_array_size(parameters) > 0) {
        printf("  parameters  ");
        for (size_t p = 0; p < json_array_size(parameters); p++) {
            printf("%s %s", p ? "," : "", json_string_value(json_array_get(parameters, p)));
        }
        printf("\n");
    }
    printf("  made from    ");
    const char *key, *separator = "";
    json_t *value;
    json_object_foreach((json_t *)fingerprint, key, value) {
        if (!json_is_string(value)) continue;
        printf("%s%s %.8s", separator, key, *json_string_value(value) ? json_string_value(value) : "-");
        separator = ", ";
    }
    printf("\n");
    for (size_t i = 0; i < json_array_size(skipped); i++) {
        const json_t *entry = json_array_get(skipped, i);
        printf("  skipped      sample %lld: %s\n", integer_of(entry, "sample"), text_of(entry, "reason"));
    }
}

/* ---- one line a group, above the details ---- */

static void print_table(const json_t *groups) {
    int task_width = 4, split_width = 5;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        int task = (int)strlen(text_of(json_array_get(groups, i), "task"));
        int split = (int)strlen(text_of(json_array_get(groups, i), "split"));
        if (task > task_width) task_width = task;
        if (split > split_width) split_width = split;
    }
    printf("%-*s  %-*s  %8s  %15s  %9s  %6s  %s\n", task_width, "task", split_width, "split", "samples", "shape",
           "stored", "ratio", "state");
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *facts = json_array_get(groups, i), *shape = json_object_get(facts, "shape");
        char extents[64], stored[24];
        snprintf(extents, sizeof extents, "%lldx%lldx%lld", integer_of(shape, "times"), integer_of(shape, "tokens"),
                 integer_of(shape, "dim"));
        printf("%-*s  %-*s  %8lld  %15s  %9s  %6.2f  %s\n", task_width, text_of(facts, "task"), split_width,
               text_of(facts, "split"), integer_of(facts, "present"), extents,
               size_text(integer_of(facts, "stored_bytes"), stored), real_of(facts, "ratio"),
               json_is_true(json_object_get(facts, "complete")) ? "complete" : "not complete");
    }
    printf("\n");
}

/* ---- one trajectory ---- */

static ups_status describe_sample(const ups_cache_group *group, ups_cache_reader *reader, int64_t index, json_t **facts,
                                  ups_cache_trajectory *trajectory, ups_error *error) {
    UPS_TRY(ups_cache_read(reader, index, trajectory, error));
    ups_cache_statistics *rows = malloc((size_t)group->shape.samples_per_shard * sizeof *rows);
    if (!rows) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    int64_t per_shard = group->shape.samples_per_shard;
    ups_status status = ups_cache_read_statistics(group, index / per_shard, rows, error);
    const ups_cache_statistics *row = &rows[index % per_shard];
    if (status == UPS_OK) {
        json_t *parameters = json_object();
        for (int p = 0; p < group->parameter_count; p++) {
            json_object_set_new(parameters, group->parameter_names[p],
                                number(group->parameters[index * group->parameter_count + p]));
        }
        *facts =
            json_pack("{s:I, s:I, s:b, s:I, s:f, s:i, s:[o,o], s:{s:f, s:f}, s:o}", "sample", (json_int_t)index,
                      "source_sample", (json_int_t)group->source_samples[index], "present", trajectory->present,
                      "stored_bytes", (json_int_t)trajectory->stored_bytes, "ratio",
                      trajectory->present
                          ? (double)ups_chunk_raw_bytes(group->shape.trajectory) / (double)trajectory->stored_bytes
                          : 0.0,
                      "order", trajectory->order, "range", number(row->minimum), number(row->maximum),
                      "fp16_rounding_error", "max", row->error_max, "rms", row->error_rms, "parameters", parameters);
        if (!*facts) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    }
    free(rows);
    return status;
}

static void print_sample(const json_t *facts, const char *directory) {
    printf("%s, sample %lld (sample %lld of its source)\n", directory, integer_of(facts, "sample"),
           integer_of(facts, "source_sample"));
    if (!json_is_true(json_object_get(facts, "present"))) {
        printf("  skipped when the cache was built\n");
        return;
    }
    const json_t *range = json_object_get(facts, "range"), *error = json_object_get(facts, "fp16_rounding_error");
    char stored[24];
    printf("  size         %s: ratio %.2f", size_text(integer_of(facts, "stored_bytes"), stored),
           real_of(facts, "ratio"));
    if (integer_of(facts, "order") >= 0) printf(", prediction of order %lld", integer_of(facts, "order"));
    printf("\n  values       %.5g to %.5g; rounding to FP16 changed them by at most %.2g, rms %.2g\n",
           json_number_value(json_array_get(range, 0)), json_number_value(json_array_get(range, 1)),
           real_of(error, "max"), real_of(error, "rms"));
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
    ups_cache_trajectory trajectory;
    ups_status status = UPS_OK;
    if (!reader) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", directory);
    } else if (index >= group->shape.samples) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: there is no sample %lld; the last is %lld", directory,
                          (long long)index, (long long)group->shape.samples - 1);
    }
    if (status == UPS_OK) status = describe_sample(group, reader, index, facts, &trajectory, error);
    if (status == UPS_OK && png && !trajectory.present) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was skipped by the build; there is nothing to draw",
                          directory, (long long)index);
    }
    if (status == UPS_OK && png) {
        char title[300];
        snprintf(title, sizeof title, "%s / %s, sample %lld", group->task, group->split, (long long)index);
        const double *time = group->time + (group->time_per_sample ? index * group->shape.trajectory.times : 0);
        status = ups_latent_picture(png, title, group->shape.trajectory, trajectory.latents, time, error);
    }
    ups_cache_reader_destroy(reader);
    ups_cache_group_close(group);
    return status;
}

/* ---- the command ---- */

enum { SAMPLE, PNG, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SAMPLE] = {"sample", 0, "I", "look at this trajectory alone, counted from 0"},
    [PNG] = {"png", 0, "FILE", "draw the trajectory of --sample (default: sample 0)"},
};

static const ups_usage usage = {
    "cache inspect",
    "DIR",
    "shows what is in a latent cache, and what it was made from",
    options,
    OPTION_COUNT,
    "DIR is a whole cache, one task of it, or one task and split (for --sample and --png).\n\n"
    "Examples:\n"
    "  ups cache inspect cache\n"
    "  ups cache inspect cache/advection1d/train --sample 3 --png latent.png",
};

int ups_cmd_cache_inspect(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t sample = -1;
    const char *png = NULL;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SAMPLE) ups_arguments_integer(&arguments, 0, INT64_MAX, &sample);
        if (option == PNG) png = arguments.value;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_usage_error(&arguments, "one DIR was expected");

    ups_error error;
    char **groups;
    int64_t count;
    if (ups_cache_groups_find(arguments.operands[0], &groups, &count, &error) != UPS_OK) {
        return ups_command_fail(&arguments, &error);
    }
    ups_status status = UPS_OK;
    json_t *result = NULL, *facts = NULL;
    if (sample >= 0 || png) {
        if (count > 1) {
            status = ups_fail(&error, UPS_ERR_ARGUMENT,
                              "%s: holds %lld groups; --sample and --png look into one, such as %s",
                              arguments.operands[0], (long long)count, groups[0]);
        } else {
            status = inspect_sample(groups[0], sample < 0 ? 0 : sample, png, &result, &error);
        }
        if (status == UPS_OK && !arguments.json) print_sample(result, groups[0]);
    } else {
        result = json_array();
        for (int64_t i = 0; i < count && status == UPS_OK; i++) {
            status = describe_group(groups[i], &facts, &error);
            if (status == UPS_OK) json_array_append_new(result, facts);
        }
        if (status == UPS_OK && !arguments.json) {
            if (count > 1) print_table(result);
            for (size_t i = 0; i < json_array_size(result); i++) print_group(json_array_get(result, i));
        }
    }
    if (status == UPS_OK && arguments.json) {
        json_dumpf(result, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(result);
    ups_cache_groups_free(groups, count);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
}
