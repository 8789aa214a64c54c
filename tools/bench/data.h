/* Data that the benchmarks make for themselves, and the directory it lives in while they run. */
#ifndef UPS_TOOLS_BENCH_DATA_H
#define UPS_TOOLS_BENCH_DATA_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* A new directory under $TMPDIR or /tmp; free() the path. */
ups_status ups_bench_directory(char **path, ups_error *error);
void ups_bench_remove(char *path); /* with all that is in it; frees; NULL is fine */

/* A cache group <directory>/bench/train of `samples` latent trajectories (201, 128, 128): smooth evolutions with FP16's
 * grain, so that they compress as real latents do; `portable` without our codec, for readers that lack it. *group
 * receives its path; free() it. */
ups_status ups_bench_make_latents(const char *directory, int64_t samples, bool portable, char **group,
                                  ups_error *error);

/* A file of `bytes` random bytes, a multiple of 1 MiB; free() the path. */
ups_status ups_bench_make_file(const char *directory, uint64_t bytes, char **path, ups_error *error);

#endif
