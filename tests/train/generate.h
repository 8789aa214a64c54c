/* For tests: data files of our own solvers. */
#ifndef UPS_TESTS_TRAIN_GENERATE_H
#define UPS_TESTS_TRAIN_GENERATE_H

#include "tests/model/claims.h"
#include "tools/solvers/datagen.h"

/* `steps` 0: as many as the solver makes unasked. The file comes into the scratch directory. */
static inline void generate(const char *solver, const char *name, int64_t samples, int64_t resolution, int64_t steps) {
    ups_datagen_request request = {
        .solver = ups_solver_find(solver), .samples = samples, .threads = 1, .path = scratch(name), .replace = true};
    ups_solver_setup_begin(request.solver, &request.setup);
    request.setup.resolution = resolution;
    if (steps) request.setup.steps = steps;
    ups_datagen_result result;
    ok(ups_datagen_run(&request, &result, &failure));
}

#endif
