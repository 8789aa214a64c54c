/* Claims of test_ops about what a device does once a step, beside ops: optimizers, the norm of gradients, sums of
 * losses. */
#ifndef UPS_TESTS_MODEL_UPDATE_KERNELS_H
#define UPS_TESTS_MODEL_UPDATE_KERNELS_H

#include "tests/base/testing.h"

/* Enters them behind the claims that are there: each file has a list of its own, and a program runs one (claims.h). */
void enter_update_claims(void (*enter)(const char *name, CMUnitTestFunction test, int line));

#endif
