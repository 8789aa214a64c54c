#include "tests/cuda/runtime/counts.h"

#include "tests/cuda/runtime/runtime.h"

static const emulated_counts none = {.fewest_left = -1};
emulated_counts emulated_counted = {.fewest_left = -1};
int64_t emulated_graphs_left;

emulated_counts emulated_counts_read(void) {
    EMULATED_CALL_BEGINS();
    return emulated_counted;
}

void emulated_counts_reset(void) {
    EMULATED_CALL_BEGINS();
    emulated_counted = none;
}

void emulated_count_issued(const emulated_body *body) {
    emulated_counts *c = &emulated_counted;
    c->kernels += body->kind == EMULATED_KERNEL;
    c->products += body->kind == EMULATED_CALL;
    c->fills += body->kind == EMULATED_FILL;
    if (body->kind != EMULATED_COPY) return;
    const bool to_device = simt_memory_is_device(body->to), from_device = simt_memory_is_device(body->from);
    c->copies += to_device && from_device;
    c->uploads += to_device && !from_device;
    c->downloads += !to_device;
}

void emulated_count_wait(bool for_nothing) {
    emulated_counts *c = &emulated_counted;
    c->waits++;
    c->waits_for_nothing += for_nothing;
    if (!for_nothing && (c->fewest_left < 0 || emulated_graphs_left < c->fewest_left))
        c->fewest_left = emulated_graphs_left;
}
