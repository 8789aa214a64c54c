/* For tests: errors on grids (or with steps) each twice as fine as the one before, and the orders that they tell of. */
#ifndef UPS_TESTS_SOLVERS_CONVERGENCE_H
#define UPS_TESTS_SOLVERS_CONVERGENCE_H

#include "tests/base/testing.h"

#include <math.h>

/* The centre of cell `i` on the unit interval. */
static inline double centre(int64_t i, int64_t cells) {
    return ((double)i + 0.5) / (double)cells;
}

/* Prints the errors and their orders; the finest must be below `largest`. */
static inline void expect_errors(const char *what, const double errors[3], double largest) {
    print_message("%s: errors %.2e %.2e %.2e, orders %.2f %.2f\n", what, errors[0], errors[1], errors[2],
                  log2(errors[0] / errors[1]), log2(errors[1] / errors[2]));
    assert_true(errors[2] < largest);
}

/* Both orders must be above `order`. */
static inline void expect_orders(const char *what, double coarse, double middle, double fine, double order,
                                 double largest) {
    expect_errors(what, (const double[3]){coarse, middle, fine}, largest);
    assert_true(log2(coarse / middle) > order);
    assert_true(log2(middle / fine) > order);
}

/* The last order must be above `order`. */
static inline void expect_last_order(const char *what, const double errors[3], double order, double largest) {
    expect_errors(what, errors, largest);
    assert_true(log2(errors[1] / errors[2]) > order);
}

#endif
