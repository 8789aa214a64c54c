/* The end of a build: what all shards hold, summed up from the shards themselves, so that it does not matter who built
 * them. */
#include "base/files.h"
#include "cache/build/layout.h"
#include "cache/build/writer_state.h"
#include "cache/store/document.h"
#include <stdlib.h>

/* Reads back what every shard holds, so that a resumed build reports as an undisturbed one. */
static ups_status sum_up(ups_cache_writer *writer, ups_cache_summary *summary, json_t *skipped, uint64_t (*digests)[2],
                         ups_error *error) {
    ups_cache_shape shape = writer->shape;
    ups_small_array array = ups_cache_statistics_array(shape);
    ups_cache_statistics *rows = malloc((size_t)shape.samples * sizeof *rows);
    ups_chunk_place *places = malloc((size_t)shape.samples_per_shard * sizeof *places);
    ups_status status =
        rows && places ? ups_small_read(writer->directory, &array, rows, error) : ups_writer_no_memory(writer, error);
    int64_t kept = 0;
    *summary = (ups_cache_summary){.samples = shape.samples};
    for (int64_t s = 0; s < ups_cache_shard_count(shape) && status == UPS_OK; s++) {
        char *path = ups_cache_shard_path(writer->directory, s);
        int64_t first = s * shape.samples_per_shard;
        ups_shard_identity identity = ups_document_identity(writer->attributes, s);
        ups_shard_facts facts = {0};
        status = path ? ups_shard_read_index(path, &identity, shape.samples_per_shard, first, places, &facts, error)
                      : ups_writer_no_memory(writer, error);
        free(path);
        digests[s][0] = facts.digest.low;
        digests[s][1] = facts.digest.high;
        summary->stored_bytes += facts.bytes;
        for (int64_t i = 0; i < ups_cache_shard_samples(shape, s) && status == UPS_OK; i++) {
            if (ups_chunk_present(places[i])) {
                rows[kept++] = rows[first + i];
                continue;
            }
            char what[160];
            ups_writer_describe_bad(&rows[first + i], what, sizeof what);
            json_array_append_new(skipped,
                                  json_pack("{s:I, s:I, s:s}", "sample", (json_int_t)(first + i), "source_sample",
                                            (json_int_t)writer->source_samples[first + i], "reason", what));
        }
    }
    if (status == UPS_OK) {
        ups_cache_totals totals = ups_cache_statistics_sum(rows, kept);
        summary->skipped = shape.samples - kept;
        summary->raw_bytes = (uint64_t)kept * ups_chunk_raw_bytes(shape.trajectory);
        summary->error_max = totals.error_max;
        summary->error_rms = totals.error_rms;
        summary->minimum = totals.minimum;
        summary->maximum = totals.maximum;
    }
    free(places);
    free(rows);
    return status;
}

/* Whoever comes last writes the same as who came first; it only need not. What expired builders left is removed when
 * nobody else is there. */
static ups_status seal(ups_cache_writer *writer, uint64_t (*digests)[2], json_t *result, ups_error *error) {
    ups_small_array shards = ups_cache_shards_array(writer->shape);
    char hex[33];
    ups_cache_hash_digests(writer->shape, digests, hex);
    json_object_set_new(result, "shards", json_string(hex));
    UPS_TRY(ups_writer_lock_group(writer, error));
    ups_status status = ups_small_publish_chunk(writer->directory, &shards, 0, digests, error);
    if (status == UPS_OK) status = ups_cache_seal(writer->directory, writer->attributes, result, error);
    if (status == UPS_OK && ups_leases_look(writer->leases).count == 0) {
        status = ups_cache_sweep(writer->directory, true, error);
    }
    ups_writer_unlock_group(writer);
    return status;
}

void ups_cache_writer_add_result(ups_cache_writer *writer, const char *key, json_t *value) {
    if (!writer->added) writer->added = json_object();
    json_object_set_new(writer->added, key, value);
}

ups_status ups_cache_writer_finish(ups_cache_writer *writer, ups_cache_summary *summary, ups_error *error) {
    int64_t missing = -1;
    pthread_mutex_lock(&writer->mutex);
    for (int64_t i = 0; i < writer->shape.samples && missing < 0; i++) {
        if (writer->state[i] != SAMPLE_DONE) missing = i;
    }
    int64_t done = writer->done;
    pthread_mutex_unlock(&writer->mutex);
    if (missing >= 0) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: the cache cannot be finished: %lld of %lld samples are there, and sample %lld is not",
                        writer->directory, (long long)done, (long long)writer->shape.samples, (long long)missing);
    }
    ups_cache_summary sums;
    json_t *skipped = json_array();
    uint64_t(*digests)[2] = calloc((size_t)ups_cache_shard_count(writer->shape), sizeof *digests);
    ups_status status =
        skipped && digests ? sum_up(writer, &sums, skipped, digests, error) : ups_writer_no_memory(writer, error);
    json_t *result = NULL;
    if (status == UPS_OK) {
        bool any = sums.skipped < sums.samples; /* without a single value there is no range */
        result = json_pack("{s:I, s:O, s:I, s:I, s:{s:f, s:f}, s:{s:f, s:f}}", "kept",
                           (json_int_t)(sums.samples - sums.skipped), "skipped", skipped, "raw_bytes",
                           (json_int_t)sums.raw_bytes, "stored_bytes", (json_int_t)sums.stored_bytes,
                           "fp16_rounding_error", "max", sums.error_max, "rms", sums.error_rms, "range", "minimum",
                           any ? sums.minimum : 0.0, "maximum", any ? sums.maximum : 0.0);
        if (result && writer->added) json_object_update_missing(result, writer->added);
        status = result ? seal(writer, digests, result, error) : ups_writer_no_memory(writer, error);
    }
    if (status == UPS_OK && summary) *summary = sums;
    json_decref(result);
    json_decref(skipped);
    free(digests);
    return status;
}
