#include "pipeline/loader/residency.h"

#include "base/sizes.h"
#include "base/system/pages.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_EMPTY, PLACE_CLAIMED, PLACE_FILLED, PLACE_REFUSED };
#define NO_PLACE UINT64_MAX

struct ups_store {
    ups_store_options options;
    uint8_t *memory;
    uint64_t bytes;
    uint64_t *offset;    /* (source's count) of the sample's place, or NO_PLACE */
    atomic_uchar *state; /* (source's count) PLACE_… */
    int64_t places;
    atomic_int_least64_t filled;
};

static const char *const names[] = {[UPS_RESIDENCY_AUTO] = "auto",
                                    [UPS_RESIDENCY_STREAM] = "stream",
                                    [UPS_RESIDENCY_RAM_COMPRESSED] = "ram_compressed",
                                    [UPS_RESIDENCY_RAM] = "ram"};

const char *ups_residency_name(ups_residency residency) {
    return names[residency];
}

bool ups_residency_parse(const char *name, ups_residency *residency) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *residency = (ups_residency)i;
        return true;
    }
    return false;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static uint64_t place_of(uint64_t bytes) {
    return bytes > UINT64_MAX - UPS_STORE_ALIGNMENT
               ? UPS_SIZE_ABSURD
               : (bytes + UPS_STORE_ALIGNMENT - 1) & ~(uint64_t)(UPS_STORE_ALIGNMENT - 1);
}

/* `extents`: room for those of a whole trajectory. */
static ups_status measure_sample(const ups_source *source, int64_t index, ups_dtype dtype, ups_extent *extents,
                                 ups_residency_need *need, ups_error *error) {
    ups_sample sample;
    UPS_TRY(ups_source_describe(source, index, &sample, error));
    uint64_t values = ups_size_product((uint64_t)sample.times, (uint64_t)ups_sample_frame_elements(&sample));
    need->decoded = place_of(ups_size_product(values, ups_dtype_size(dtype)));
    int64_t count = 0;
    UPS_TRY(source->class->extents(source, index, (ups_frames){0, sample.times}, extents, &count, error));
    uint64_t stored = 0;
    for (int64_t i = 0; i < count; i++) stored = ups_size_sum(stored, extents[i].length);
    need->stored = place_of(stored);
    return UPS_OK;
}

static ups_extent *room_for_extents(const ups_source *source) {
    return calloc((size_t)source->limits.extents + 1, sizeof(ups_extent));
}

ups_status ups_residency_measure(const ups_source *source, const int64_t *samples, int64_t count, ups_dtype dtype,
                                 ups_residency_need *need, ups_error *error) {
    *need = (ups_residency_need){0};
    ups_extent *extents = room_for_extents(source);
    if (!extents) return ups_fail(error, UPS_ERR_MEMORY, "no memory to measure what samples take");
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < (samples ? count : source->count) && status == UPS_OK; i++) {
        ups_residency_need one;
        status = measure_sample(source, samples ? samples[i] : i, dtype, extents, &one, error);
        if (status != UPS_OK) break;
        need->decoded = ups_size_sum(need->decoded, one.decoded);
        need->stored = ups_size_sum(need->stored, one.stored);
    }
    free(extents);
    return status;
}

uint64_t ups_residency_bytes(ups_residency residency, ups_residency_need need) {
    if (residency == UPS_RESIDENCY_RAM) return need.decoded;
    return residency == UPS_RESIDENCY_RAM_COMPRESSED ? need.stored : 0;
}

ups_residency ups_residency_choose(ups_residency wanted, ups_residency_need need, uint64_t memory) {
    if (wanted != UPS_RESIDENCY_AUTO) return wanted;
    if (need.decoded <= memory) return UPS_RESIDENCY_RAM;
    /* Nothing stored means that the source reads by itself. */
    return need.stored > 0 && need.stored <= memory ? UPS_RESIDENCY_RAM_COMPRESSED : UPS_RESIDENCY_STREAM;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static ups_status give_places(ups_store *store, const ups_source *source, const int64_t *samples, int64_t count,
                              ups_error *error) {
    ups_extent *extents = room_for_extents(source);
    if (!extents) return ups_fail(error, UPS_ERR_MEMORY, "no memory to measure what samples take");
    for (int64_t i = 0; i < source->count; i++) store->offset[i] = NO_PLACE;
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < (samples ? count : source->count) && status == UPS_OK; i++) {
        int64_t index = samples ? samples[i] : i;
        ups_residency_need need;
        status = measure_sample(source, index, store->options.dtype, extents, &need, error);
        if (status != UPS_OK) break;
        uint64_t bytes = ups_residency_bytes(store->options.residency, need);
        if (bytes == 0 || store->offset[index] != NO_PLACE) continue;
        if (ups_size_sum(store->bytes, bytes) > store->options.max_bytes) continue;
        store->offset[index] = store->bytes;
        store->bytes += bytes;
        store->places++;
    }
    free(extents);
    return status;
}

ups_status ups_store_open(const ups_source *source, const int64_t *samples, int64_t count,
                          const ups_store_options *options, ups_store **out, ups_error *error) {
    *out = NULL;
    ups_store *store = calloc(1, sizeof *store);
    if (store) {
        store->options = *options;
        store->offset = calloc((size_t)source->count + 1, sizeof *store->offset);
        store->state = calloc((size_t)source->count + 1, sizeof *store->state);
    }
    ups_status status = UPS_OK;
    if (!store || !store->offset || !store->state)
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a table of %lld samples", (long long)source->count);
    if (status == UPS_OK) status = give_places(store, source, samples, count, error);
    if (status == UPS_OK && store->bytes > 0) {
        store->memory = ups_pages_alloc(store->bytes);
        if (!store->memory)
            status = ups_fail(error, UPS_ERR_MEMORY,
                              "no %.1f GiB of memory to keep samples in; `residency: stream` needs none",
                              (double)store->bytes / (1 << 30));
    }
    if (status != UPS_OK) {
        ups_store_close(store);
        return status;
    }
    *out = store;
    return UPS_OK;
}

void ups_store_close(ups_store *store) {
    if (!store) return;
    ups_pages_free(store->memory);
    free(store->offset);
    free(store->state);
    free(store);
}

ups_store_facts ups_store_look(const ups_store *store) {
    return (ups_store_facts){.residency = store->options.residency,
                             .dtype = store->options.dtype,
                             .bytes = store->bytes,
                             .places = store->places,
                             .resident = atomic_load(&store->filled)};
}

/* ---- the loader's side ----------------------------------------------------------------------------------------- */

const uint8_t *ups_store_find(const ups_store *store, int64_t index) {
    bool filled = atomic_load_explicit(&store->state[index], memory_order_acquire) == PLACE_FILLED;
    return filled ? store->memory + store->offset[index] : NULL;
}

uint8_t *ups_store_claim(ups_store *store, int64_t index) {
    unsigned char empty = PLACE_EMPTY;
    if (store->offset[index] == NO_PLACE) return NULL;
    if (!atomic_compare_exchange_strong(&store->state[index], &empty, PLACE_CLAIMED)) return NULL;
    return store->memory + store->offset[index];
}

void ups_store_settle(ups_store *store, int64_t index, ups_claim how) {
    static const unsigned char state[] = {
        [UPS_CLAIM_FILLED] = PLACE_FILLED, [UPS_CLAIM_DROPPED] = PLACE_EMPTY, [UPS_CLAIM_REFUSED] = PLACE_REFUSED};
    if (how == UPS_CLAIM_FILLED) atomic_fetch_add(&store->filled, 1);
    atomic_store_explicit(&store->state[index], state[how], memory_order_release);
}
