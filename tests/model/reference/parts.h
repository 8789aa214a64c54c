/* What the files of the reference share: each op is one function that computes its output (backward false) or adds to
 * the gradients of its inputs (backward true), so that both read side by side. */
#ifndef UPS_TESTS_MODEL_REFERENCE_PARTS_H
#define UPS_TESTS_MODEL_REFERENCE_PARTS_H

#include "tests/model/reference/reference.h"

#define UPS_REFERENCE_OP(KIND, name) void ups_reference_##name(const ups_reference *r, bool backward);
UPS_OPS(UPS_REFERENCE_OP)
#undef UPS_REFERENCE_OP

/* `gradient` may be absent. */
static inline void add_to(double *gradient, int64_t at, double value) {
    if (gradient) gradient[at] += value;
}

static inline int64_t size_of(const ups_reference *r, int input) {
    return ups_shape_elements(r->shapes[input]);
}

#endif
