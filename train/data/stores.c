#include "train/data/stores.h"

#include "base/log.h"
#include "base/sizes.h"
#include "base/system/memory_limit.h"
#include <stdlib.h>

#define GIB ((double)(1 << 30))
#define DEFAULT_SHARE 0.25 /* of free memory; `batch_size: auto` plans for half of it */

static uint64_t memory_for_samples(const ups_run_config *config) {
    double given = config->data.residency_memory;
    return (uint64_t)(given > 0 ? given * GIB : DEFAULT_SHARE * (double)ups_memory_free());
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

ups_residency_choice ups_residency_decide(const ups_run_config *config, ups_residency_need read,
                                          ups_residency_need encoded) {
    uint64_t memory = memory_for_samples(config);
    ups_residency_choice choice = {0};
    choice.encoded = smaller(encoded.decoded, memory);
    memory -= choice.encoded;
    ups_run_residency wanted = config->data.residency;
    ups_residency residency = wanted == UPS_RUN_ENCODE   ? UPS_RESIDENCY_AUTO
                              : wanted == UPS_RUN_DEVICE ? UPS_RESIDENCY_RAM
                                                         : (ups_residency)wanted;
    choice.residency = ups_residency_choose(residency, read, memory);
    choice.read = smaller(ups_residency_bytes(choice.residency, read), memory);
    return choice;
}

/* Entries of one kind: those whose samples are read from files, or those that are encoded on the fly. */
typedef struct kind {
    bool keep_decoded;
    ups_residency residency;
    uint64_t bytes; /* to keep samples in */
    ups_residency_need need;
} kind;

static void say(const ups_run_config *config, const char *stage, const kind *of, int64_t samples,
                const ups_store_facts *kept) {
    double memory = (double)memory_for_samples(config) / GIB;
    if (of->keep_decoded) {
        ups_log(UPS_LOG_INFO,
                "%s: %lld of %lld encoded samples stay in memory, in %.2f GiB of the %.2f GiB that may be used%s",
                stage, (long long)kept->places, (long long)samples, (double)kept->bytes / GIB, memory,
                kept->places < samples ? "; the others are encoded whenever they are drawn, which a cache would save "
                                         "(`ups cache build`)"
                                       : "");
        return;
    }
    bool chosen = config->data.residency == UPS_RUN_AUTO || config->data.residency == UPS_RUN_ENCODE;
    const char *how = chosen ? ", chosen by size" : "";
    if (of->residency == UPS_RESIDENCY_STREAM) {
        ups_log(UPS_LOG_INFO,
                "%s: samples are streamed from disk%s (%.2f GiB decoded, %.2f GiB as stored; %.2f GiB may be used)",
                stage, how, (double)of->need.decoded / GIB, (double)of->need.stored / GIB, memory);
        return;
    }
    ups_log(UPS_LOG_INFO, "%s: %lld samples stay in memory %s%s, in %.2f GiB of the %.2f GiB that may be used", stage,
            (long long)kept->places, of->residency == UPS_RESIDENCY_RAM ? "decoded" : "as they are stored", how,
            (double)kept->bytes / GIB, memory);
}

/* A stage's entries, one list after the other, with what each needs. */
typedef struct entry {
    ups_loader_task *task;
    ups_residency_need need;
} entry;

/* Stores for the entries of one kind. Says what came of it, unless there are none. */
static ups_status open_stores(const ups_run_config *config, const char *stage, const kind *of, const entry *entries,
                              int count, ups_dtype dtype, ups_stores *stores, ups_error *error) {
    uint64_t left = of->bytes, wanted_left = ups_residency_bytes(of->residency, of->need);
    ups_store_facts kept = {0};
    int64_t samples = 0;
    for (int i = 0; i < count; i++) {
        ups_loader_task *task = entries[i].task;
        if (task->source->limits.keep_decoded != of->keep_decoded) continue;
        samples += task->sample_count;
        if (of->residency == UPS_RESIDENCY_STREAM) continue;
        uint64_t wanted = ups_residency_bytes(of->residency, entries[i].need);
        /* The whole where all fits; rounding is in nobody's disfavour, since the last takes what is left. */
        uint64_t share =
            wanted_left <= left ? wanted : (uint64_t)((double)left * ((double)wanted / (double)wanted_left));
        ups_store_options options = {.residency = of->residency, .dtype = dtype, .max_bytes = share};
        UPS_TRY(ups_store_open(task->source, task->samples, task->sample_count, &options, &stores->store[stores->count],
                               error));
        task->store = stores->store[stores->count++];
        ups_store_facts facts = ups_store_look(task->store);
        kept.places += facts.places;
        kept.bytes += facts.bytes;
        left -= facts.bytes;
        wanted_left -= wanted;
    }
    if (samples > 0) say(config, stage, of, samples, &kept);
    return UPS_OK;
}

ups_status ups_stores_open(const ups_run_config *config, const char *stage, const ups_stores_list *lists,
                           int list_count, ups_dtype dtype, ups_stores *stores, ups_error *error) {
    *stores = (ups_stores){0};
    int count = 0;
    for (int l = 0; l < list_count; l++) count += lists[l].count;
    entry *entries = calloc((size_t)count + 1, sizeof *entries);
    stores->store = calloc((size_t)count + 1, sizeof *stores->store);
    ups_status status = entries && stores->store ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", stage);
    ups_residency_need all[2] = {{0}, {0}}; /* read, encoded */
    entry *at = entries;
    for (int l = 0; l < list_count; l++) {
        for (int i = 0; i < lists[l].count && status == UPS_OK; i++, at++) {
            at->task = &lists[l].entries[i];
            status = ups_residency_measure(at->task->source, at->task->samples, at->task->sample_count, dtype,
                                           &at->need, error);
            ups_residency_need *sum = &all[at->task->source->limits.keep_decoded];
            sum->decoded = ups_size_sum(sum->decoded, at->need.decoded);
            sum->stored = ups_size_sum(sum->stored, at->need.stored);
        }
    }
    if (status == UPS_OK) {
        ups_residency_choice choice = ups_residency_decide(config, all[0], all[1]);
        stores->residency = all[1].decoded > 0 ? "encode" : ups_residency_name(choice.residency);
        kind encoded = {true, UPS_RESIDENCY_RAM, choice.encoded, all[1]};
        kind read = {false, choice.residency, choice.read, all[0]};
        status = open_stores(config, stage, &encoded, entries, count, dtype, stores, error);
        if (status == UPS_OK) status = open_stores(config, stage, &read, entries, count, dtype, stores, error);
    }
    free(entries);
    return status;
}

void ups_stores_close(ups_stores *stores) {
    for (int i = 0; i < stores->count; i++) ups_store_close(stores->store[i]);
    free(stores->store);
    *stores = (ups_stores){0};
}
