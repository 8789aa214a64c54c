/* Benchmarks end at Ctrl-C too, between two items of what they measure, and remove what they made. */
#ifndef UPS_TOOLS_BENCH_GO_ON_H
#define UPS_TOOLS_BENCH_GO_ON_H

#include "base/error.h"
#include "base/system/cancel.h"

/* UPS_ERR_CANCELLED once SIGINT or SIGTERM has arrived. */
static inline ups_status ups_bench_go_on(ups_error *error) {
    return ups_cancel_requested() ? ups_fail(error, UPS_ERR_CANCELLED, "interrupted; nothing was measured") : UPS_OK;
}

#endif
