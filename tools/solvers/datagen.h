/* From a solver to a file: samples solved on all threads, their frames written as they come. Memory is bounded by what
 * the solver works with and a few megabytes a thread, never by the file; the file's bytes depend on the request alone,
 * not on the number of threads or on interruptions. */
#ifndef UPS_SOLVERS_DATAGEN_H
#define UPS_SOLVERS_DATAGEN_H

#include "base/json.h"
#include "tools/solvers/solver.h"

typedef struct ups_datagen_request {
    const ups_solver *solver;
    ups_solver_setup setup;
    int64_t samples; /* 1 … 2³²; 0 with `initial`: as many as that has */
    int threads;     /* 0: all processors */
    const char *path;
    const char *initial; /* file of fields to begin from (initial_fields.h); NULL: they are drawn */
    bool replace;        /* an existing file; refused otherwise */
    bool restart;        /* do not continue an unfinished run */
} ups_datagen_request;

typedef struct ups_datagen_result {
    double seconds;
    uint64_t bytes;    /* of the file */
    int64_t samples;   /* as asked for, or as many as there were to begin from */
    int64_t continued; /* samples that were there from an earlier run */
    int threads;
} ups_datagen_result;

/* Makes the file, with a progress bar. An unfinished run of the same request is continued (unfinished.h). Interrupted
 * by Ctrl-C (UPS_ERR_CANCELLED) or by the operating system (UPS_ERR_IO), what is complete is kept for that; after other
 * failures nothing remains. A file that was to be replaced is untouched until the new one is complete. */
ups_status ups_datagen_run(const ups_datagen_request *request, ups_datagen_result *result, ups_error *error);

/* What is asked for, but for path and threads: solver, seed, samples, resolution, steps, parameters, and the file
 * begun from. Kept in the file,
 * so that it can be made again. A new reference; NULL when out of memory. */
json_t *ups_datagen_describe(const ups_datagen_request *request);

#endif
