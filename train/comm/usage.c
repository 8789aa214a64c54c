#include "train/comm/usage.h"

#include "base/system/memory_limit.h"
#include <stdlib.h>

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static ups_status find_own(ups_device *device, const ups_arithmetic *own, ups_usage *usage, ups_error *error) {
    const ups_memory_use host = ups_memory_used();
    *usage = (ups_usage){.arithmetic = *own, .resident = host.resident, .resident_peak = host.peak};
    uint64_t total = 0, available = 0;
    if (device->class->memory) UPS_TRY(device->class->memory(device, &total, &available, error));
    usage->device = total - available;
    return UPS_OK;
}

static void add(const ups_usage *one, ups_usage *all) {
    all->arithmetic.flops += one->arithmetic.flops;
    all->arithmetic.at_peak += one->arithmetic.at_peak;
    all->resident = most(all->resident, one->resident);
    all->resident_peak = most(all->resident_peak, one->resident_peak);
    all->device = most(all->device, one->device);
}

ups_status ups_usage_gather(ups_comm *comm, ups_device *device, const ups_arithmetic *own, ups_usage *usage,
                            ups_error *error) {
    const int ranks = ups_comm_size(comm);
    ups_usage here, *all = calloc((size_t)ranks, sizeof *all);
    ups_status status = all ? find_own(device, own, &here, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_comm_gather(comm, &here, all, sizeof here, error);
    *usage = (ups_usage){0};
    for (int rank = 0; rank < ranks && status == UPS_OK; rank++) add(&all[rank], usage);
    free(all);
    return status;
}

static void add_bytes(json_t *memory, const char *name, uint64_t bytes) {
    if (bytes > 0) json_object_set_new(memory, name, json_integer((json_int_t)bytes));
}

void ups_usage_describe(const ups_usage *usage, double seconds, int processes, json_t *line) {
    const ups_arithmetic *done = &usage->arithmetic;
    json_t *memory = json_object();
    add_bytes(memory, "resident", usage->resident);
    add_bytes(memory, "resident_peak", usage->resident_peak);
    add_bytes(memory, "device", usage->device);
    if (done->flops > 0) json_object_set_new(line, "flops_per_s", json_real(done->flops / seconds));
    if (done->at_peak > 0) json_object_set_new(line, "mfu", json_real(done->at_peak / (seconds * processes)));
    json_object_set_new(line, "memory", memory);
}
