#include "train/stores.h"

#include "base/log.h"
#include "pipeline/memory_limit.h"
#include <stdlib.h>

#define GIB ((double)(1 << 30))
#define DEFAULT_SHARE 0.25 /* of free memory; `batch_size: auto` plans for half of it */

uint64_t ups_residency_memory(const ups_run_config *config) {
    double given = config->data.residency_memory;
    return (uint64_t)(given > 0 ? given * GIB : DEFAULT_SHARE * (double)ups_memory_free());
}

ups_residency_choice ups_residency_decide(const ups_run_config *config, ups_residency_need need) {
    uint64_t memory = ups_residency_memory(config);
    ups_residency chosen = ups_residency_choose(config->data.residency, need, memory);
    uint64_t bytes = ups_residency_bytes(chosen, need);
    return (ups_residency_choice){chosen, bytes < memory ? bytes : memory};
}

static void say(const ups_run_config *config, const char *stage, ups_residency_choice choice, ups_residency_need need,
                const ups_stores *stores) {
    int64_t places = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < stores->count; i++) {
        ups_store_facts facts = ups_store_look(stores->store[i]);
        places += facts.places;
        bytes += facts.bytes;
    }
    const char *how = config->data.residency == UPS_RESIDENCY_AUTO ? ", chosen by size" : "";
    double memory = (double)ups_residency_memory(config) / GIB;
    if (choice.residency == UPS_RESIDENCY_STREAM) {
        ups_log(UPS_LOG_INFO,
                "%s: samples are streamed from disk%s (%.2f GiB decoded, %.2f GiB as stored; %.2f GiB may be used)",
                stage, how, (double)need.decoded / GIB, (double)need.stored / GIB, memory);
        return;
    }
    ups_log(UPS_LOG_INFO, "%s: %lld samples stay in memory %s%s, in %.2f GiB of the %.2f GiB that may be used", stage,
            (long long)places, choice.residency == UPS_RESIDENCY_RAM ? "decoded" : "as they are stored", how,
            (double)bytes / GIB, memory);
}

static ups_status open_stores(const ups_stores_list *lists, int list_count, const ups_residency_need *needs,
                              ups_residency_choice choice, ups_dtype dtype, ups_stores *stores, ups_error *error) {
    uint64_t left = choice.bytes, wanted_left = 0;
    int count = 0;
    for (int l = 0; l < list_count; l++) count += lists[l].count;
    for (int i = 0; i < count; i++) wanted_left += ups_residency_bytes(choice.residency, needs[i]);
    const ups_residency_need *need = needs;
    for (int l = 0; l < list_count; l++) {
        for (int i = 0; i < lists[l].count; i++, need++) {
            ups_loader_task *entry = &lists[l].entries[i];
            uint64_t wanted = ups_residency_bytes(choice.residency, *need);
            /* The whole where all fits; rounding is in nobody's disfavour, since the last takes what is left. */
            uint64_t share =
                wanted_left <= left ? wanted : (uint64_t)((double)left * ((double)wanted / (double)wanted_left));
            ups_store_options options = {.residency = choice.residency, .dtype = dtype, .most_bytes = share};
            UPS_TRY(ups_store_open(entry->source, entry->samples, entry->sample_count, &options,
                                   &stores->store[stores->count], error));
            entry->store = stores->store[stores->count++];
            left -= ups_store_look(entry->store).bytes;
            wanted_left -= wanted;
        }
    }
    return UPS_OK;
}

ups_status ups_stores_open(const ups_run_config *config, const char *stage, const ups_stores_list *lists,
                           int list_count, ups_dtype dtype, ups_stores *stores, ups_error *error) {
    *stores = (ups_stores){0};
    int count = 0;
    for (int l = 0; l < list_count; l++) count += lists[l].count;
    ups_residency_need all = {0}, *needs = calloc((size_t)count + 1, sizeof *needs);
    stores->store = calloc((size_t)count + 1, sizeof *stores->store);
    ups_status status = needs && stores->store ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", stage);
    ups_residency_need *need = needs;
    for (int l = 0; l < list_count; l++) {
        for (int i = 0; i < lists[l].count && status == UPS_OK; i++, need++) {
            const ups_loader_task *entry = &lists[l].entries[i];
            status = ups_residency_measure(entry->source, entry->samples, entry->sample_count, dtype, need, error);
            all.decoded += need->decoded;
            all.stored += need->stored;
        }
    }
    if (status == UPS_OK) {
        ups_residency_choice choice = ups_residency_decide(config, all);
        if (choice.residency != UPS_RESIDENCY_STREAM)
            status = open_stores(lists, list_count, needs, choice, dtype, stores, error);
        if (status == UPS_OK) say(config, stage, choice, all, stores);
    }
    free(needs);
    return status;
}

void ups_stores_close(ups_stores *stores) {
    for (int i = 0; i < stores->count; i++) ups_store_close(stores->store[i]);
    free(stores->store);
    *stores = (ups_stores){0};
}
