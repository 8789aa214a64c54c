/* For tests: one sample of a solver in memory, as it would stand in the file, without a file. */
#ifndef UPS_TESTS_SOLVERS_SOLVED_SAMPLE_H
#define UPS_TESTS_SOLVERS_SOLVED_SAMPLE_H

#include "tests/base/testing.h"
#include "tools/solvers/solver.h"

typedef struct solved_sample {
    ups_file_layout layout;
    float *arrays[UPS_FILE_ARRAYS]; /* (times, x, …, channel) each */
} solved_sample;

static ups_status keep_values(void *context, int array, int64_t sample, int64_t first, const float *values,
                              int64_t count, ups_error *error) {
    solved_sample *solved = context;
    memcpy(solved->arrays[array] + first, values, sizeof(float) * (size_t)count);
    return UPS_OK;
}

/* The setup with "NAME=VALUE" assignments (NULL-terminated) made. */
static inline ups_solver_setup setup_of(const ups_solver *solver, int64_t resolution, int64_t steps, uint64_t seed,
                                        const char *const *assignments) {
    ups_error error = {0};
    ups_solver_setup setup;
    ups_solver_setup_begin(solver, &setup);
    setup.resolution = resolution;
    if (steps > 0) setup.steps = steps;
    setup.seed = seed;
    for (int i = 0; assignments && assignments[i]; i++) {
        if (ups_solver_set(solver, &setup, assignments[i], &error) != UPS_OK) fail_msg("%s", error.message);
    }
    return setup;
}

static inline void solve_sample(const ups_solver *solver, const ups_solver_setup *setup, int64_t sample,
                                solved_sample *solved) {
    ups_error error = {0};
    void *plan = NULL;
    memset(solved, 0, sizeof *solved);
    if (solver->prepare) assert_int_equal(solver->prepare(setup, &plan, &error), UPS_OK);
    solver->describe(setup, plan, &solved->layout);
    solved->layout.table_count = 0; /* their values are the plan's, which is gone when this returns */
    for (int i = 0; i < solved->layout.array_count; i++)
        solved->arrays[i] = malloc(sizeof(float) * (size_t)ups_file_sample_values(&solved->layout.arrays[i]));
    void *scratch = NULL;
    assert_int_equal(posix_memalign(&scratch, 64, solver->scratch_bytes(setup, plan)), 0);
    ups_sink *sink = ups_sink_create(&solved->layout, keep_values, solved);
    assert_non_null(sink);
    ups_sink_begin(sink, sample);
    if (solver->solve(setup, plan, sample, scratch, sink, &error) != UPS_OK) fail_msg("%s", error.message);
    if (ups_sink_end(sink, &error) != UPS_OK) fail_msg("%s", error.message);
    ups_sink_destroy(sink);
    free(scratch);
    if (solver->release) solver->release(plan);
}

static inline void release_sample(solved_sample *solved) {
    for (int i = 0; i < UPS_FILE_ARRAYS; i++) free(solved->arrays[i]);
}

#endif
