/* A loader drawn from for very long: memory and descriptors of the process as it goes on. */
#ifndef UPS_TOOLS_BENCH_ENDURANCE_H
#define UPS_TOOLS_BENCH_ENDURANCE_H

#include "pipeline/loader/loader.h"

/* Draws `batches` and prints, after each tenth of them, what the process holds then. */
ups_status ups_bench_endure(const ups_loader_options *options, const ups_loader_task *task, int64_t batches,
                            bool as_json, ups_error *error);

#endif
