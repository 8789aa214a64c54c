/* From a solver to a file: samples solved on all threads, each written as soon as it is done. Memory is bounded by one
 * sample a thread; the file's bytes depend on the request alone, never on the number of threads. */
#ifndef UPS_SOLVERS_DATAGEN_H
#define UPS_SOLVERS_DATAGEN_H

#include "base/json.h"
#include "tools/solvers/solver.h"

typedef struct ups_datagen_request {
    const ups_solver *solver;
    ups_solver_setup setup;
    int64_t samples; /* 1 … 2³² */
    int threads;     /* 0: all processors */
    const char *path;
    bool replace; /* an existing file; refused otherwise */
} ups_datagen_request;

typedef struct ups_datagen_result {
    double seconds;
    uint64_t bytes; /* of the file */
    int threads;
} ups_datagen_result;

/* Makes the file, with a progress bar. Ctrl-C is UPS_ERR_CANCELLED; after any failure nothing remains, and a file that
 * was to be replaced is untouched. */
ups_status ups_datagen_run(const ups_datagen_request *request, ups_datagen_result *result, ups_error *error);

/* What is asked for, but for path and threads: solver, seed, samples, resolution, steps, parameters. Kept in the file,
 * so that it can be made again. A new reference; NULL when out of memory. */
json_t *ups_datagen_describe(const ups_datagen_request *request);

#endif
