/* For tests of ops: a case of the list on a device, in one dtype, beside the same case of the reference. Kernels are
 * called directly, through ups_op_call, and given only what the op's description promises them. */
#ifndef UPS_TESTS_MODEL_OP_FIXTURE_H
#define UPS_TESTS_MODEL_OP_FIXTURE_H

#include "model/device.h"
#include "model/update_channel.h"
#include "tests/model/op_cases.h"
#include "tests/model/reference/reference.h"

enum { SEED = 11, ITEM = 5 }; /* of what is random in an op */

extern ups_device *device;
extern ups_update_channel *channel; /* on it */

ups_status open_device(const char *name, int threads, ups_error *error);
void close_device(void);
void *device_memory(size_t bytes);
void give(const ups_update_input *input);
ups_update take(void); /* what stands in the update by now */

/* A tensor on the device beside its values in float64. One of more than a million elements has none, and the same
 * million of numbers again and again: it can be timed, and not compared. */
typedef struct twin {
    ups_tensor tensor;
    double *values;
} twin;

twin twin_create(const operand *o, ups_dtype compute, uint32_t stream);
void download(const ups_tensor *tensor, double *values);

/* One case in one dtype: its tensors, and the reference over the same values. */
typedef struct fixture {
    const op_case *c;
    ups_dtype compute;
    ups_kernel kernel;
    twin inputs[UPS_MAX_INPUTS], output, output_gradient, gradients[UPS_MAX_INPUTS];
    ups_op_call call;
    ups_reference reference;
    void *workspace;
} fixture;

bool fixture_create(fixture *f, const op_case *c, ups_dtype compute); /* false: the device has no kernel for it */
void fixture_destroy(fixture *f);
bool wants_gradient(const op_case *c, int input);
void run_forward(fixture *f);
/* What backward is promised, and no more: the rest is absent. */
void prepare_backward_call(fixture *f);
void prepare_backward_call_for(fixture *f, unsigned gradients); /* where only these are wanted (a mask) */
/* Memory for the gradient of input `i`: that of a parameter is float32 whatever its copy for compute is. */
void give_gradient(fixture *f, int i, uint32_t stream);
void run_backward(fixture *f);

#endif
