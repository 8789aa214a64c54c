/* Every op of model/ops.h in float64 and plain loops, forward and backward: what the devices' kernels are compared
 * with. Slow, and easy to check against the formulas; its gradients are checked by finite differences. */
#ifndef UPS_TESTS_MODEL_REFERENCE_REFERENCE_H
#define UPS_TESTS_MODEL_REFERENCE_REFERENCE_H

#include "model/ops.h"

typedef struct ups_reference {
    ups_op_kind kind;
    const ups_op_attributes *attributes;
    int input_count;
    ups_shape shapes[UPS_MAX_INPUTS];
    double *inputs[UPS_MAX_INPUTS]; /* integers too; NULL: absent */
    ups_shape output_shape;
    double *output;
    double *output_gradient;
    double *input_gradients[UPS_MAX_INPUTS]; /* set to zero by the caller; added to. NULL: not wanted */
    bool training;
    uint64_t seed, step;
} ups_reference;

void ups_reference_forward(const ups_reference *r);
void ups_reference_backward(const ups_reference *r);

#endif
