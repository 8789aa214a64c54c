/* Linear by cuBLASLt: y = x W^T + b.  Backward: dx = dy W, dW = dy^T x (float32), db = column sums of dy. With GELU,
 * h = x W^T + b is saved and y = GELU(h) is a kernel of our own, since the library's epilogue is the tanh
 * approximation.
 *
 * The operands' dtype is that of W; x and dy are converted to it in the workspace where they differ, and a result that
 * the library has not for such operands (half of float32) is made in float32 there and converted.
 *
 * A bias is added by the library's epilogue, which wants it in the result's dtype: a copy of it is made first, as short
 * as one row. */
#include "model/cuda/products/product.h"
#include <stdlib.h>

enum { ALIGNMENT = 64 /* of parts of the workspace */ };

typedef struct plan {
    ups_cuda_product forward, input, weight;
    ups_dtype operands; /* of the weight, which backward may not be given */
    bool has_backward;
    size_t cast_x, cast_dy, results, bias, partials, bytes; /* offsets; the library's workspace is at 0 */
} plan;

static size_t bytes_of(ups_cuda_matrix m) {
    size_t bytes = (size_t)(m.rows * m.columns) * ups_dtype_size(m.dtype);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ups_cuda_matrix matrix_of(const ups_tensor *tensor) {
    return (ups_cuda_matrix){
        .rows = ups_shape_rows(tensor->shape), .columns = ups_shape_last(tensor->shape), .dtype = tensor->dtype};
}

/* The saved value is what GELU is taken of. */
static bool has_gelu(const ups_op_call *call) {
    return call->saved[0].shape.rank > 0;
}

/* `to` (+)= the product; through the workspace where the library has no such result. */
static ups_status run_product(ups_device *device, const ups_op_call *call, const ups_cuda_product *p, const void *a,
                              const void *b, const void *bias, const ups_tensor *to, bool accumulate,
                              ups_error *error) {
    const plan *whole = call->state;
    char *workspace = call->workspace;
    ups_tensor made = *to;
    bool direct = to->dtype == p->result.dtype;
    if (!direct) made.data = workspace + whole->results, made.dtype = p->result.dtype;
    UPS_TRY(ups_cuda_product_run(device, p, a, b, bias, made.data, direct && accumulate, workspace, error));
    return direct ? UPS_OK : ups_cuda_convert(device, &made, to, accumulate, error);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------
 */

static void release_plan(void *state) {
    plan *made = state;
    ups_cuda_product_release(&made->forward);
    ups_cuda_product_release(&made->input);
    ups_cuda_product_release(&made->weight);
    free(made);
}

static ups_status make_products(ups_device *device, const ups_op_call *call, plan *made, ups_error *error) {
    ups_cuda_matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]), y = matrix_of(&call->output),
                    dx = x;
    ups_cuda_product_options options = {.bias = call->inputs[2].shape.rank > 0, .tf32 = call->attributes->tf32};
    if (has_gelu(call)) y.dtype = call->saved[0].dtype;
    x.dtype = w.dtype;
    UPS_TRY(ups_cuda_product_make(device, &made->forward, w, true, x, false, y, options, error));
    if (!made->has_backward) return UPS_OK;
    options.bias = false;
    ups_cuda_matrix dy = y, dw = w;
    dy.dtype = w.dtype;
    dw.dtype = UPS_F32;
    UPS_TRY(ups_cuda_product_make(device, &made->input, w, false, dy, false, dx, options, error));
    return ups_cuda_product_make(device, &made->weight, x, false, dy, true, dw, options, error);
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                          ups_error *error) {
    plan *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the plan of a product");
    made->has_backward = backward;
    made->operands = call->inputs[1].dtype;
    ups_status status = make_products(device, call, made, error);
    if (status != UPS_OK) {
        release_plan(made);
        return status;
    }
    ups_cuda_matrix x = matrix_of(&call->inputs[0]), y = matrix_of(&call->output);
    x.dtype = y.dtype = UPS_F32; /* room for either */
    size_t largest = bytes_of(x) > bytes_of(y) ? bytes_of(x) : bytes_of(y);
    made->cast_x = UPS_CUDA_LIBRARY_BYTES;
    made->cast_dy = made->cast_x + bytes_of(x);
    made->results = made->cast_dy + (backward ? bytes_of(y) : 0);
    made->bias = made->results + largest;
    made->partials = made->bias + bytes_of((ups_cuda_matrix){.rows = 1, .columns = y.columns, .dtype = UPS_F32});
    made->bytes = made->partials;
    if (backward) made->bytes += (size_t)ups_cuda_column_partials(y.rows, y.columns) * sizeof(float);
    kernel->workspace_bytes = made->bytes;
    kernel->state = made;
    kernel->release = release_plan;
    return UPS_OK;
}

/* ---- the op --------------------------------------------------------------------------------------------------------
 */

/* The tensor's data in `dtype`, copied to `copy` where it is in another. */
static ups_status in_dtype(ups_device *device, const ups_tensor *tensor, ups_dtype dtype, void *copy, const void **data,
                           ups_error *error) {
    *data = tensor->data;
    if (tensor->dtype == dtype || !tensor->data) return UPS_OK;
    ups_tensor to = {.data = copy, .dtype = dtype, .shape = tensor->shape};
    *data = copy;
    return ups_cuda_convert(device, tensor, &to, false, error);
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *made = has_gelu(call) ? &call->saved[0] : &call->output;
    char *workspace = call->workspace;
    const void *x, *bias;
    UPS_TRY(in_dtype(device, &call->inputs[0], p->operands, workspace + p->cast_x, &x, error));
    UPS_TRY(in_dtype(device, &call->inputs[2], p->forward.result.dtype, workspace + p->bias, &bias, error));
    UPS_TRY(run_product(device, call, &p->forward, call->inputs[1].data, x, bias, made, false, error));
    return has_gelu(call) ? ups_cuda_gelu_rows(device, made, &call->output, error) : UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *dx = &call->input_gradients[0], *dw = &call->input_gradients[1], *db = &call->input_gradients[2];
    ups_dtype operands = p->operands;
    char *workspace = call->workspace;
    ups_tensor dh = call->output_gradient;
    const void *dy, *x;
    if (has_gelu(call)) {
        dh.data = workspace + p->cast_dy;
        dh.dtype = operands;
        UPS_TRY(ups_cuda_gelu_gradient(device, &call->saved[0], &call->output_gradient, &dh, error));
    }
    UPS_TRY(in_dtype(device, &dh, operands, workspace + p->cast_dy, &dy, error));
    if (dx->data)
        UPS_TRY(run_product(device, call, &p->input, call->inputs[1].data, dy, NULL, dx, call->accumulate[0], error));
    if (dw->data) {
        UPS_TRY(in_dtype(device, &call->inputs[0], operands, workspace + p->cast_x, &x, error));
        UPS_TRY(run_product(device, call, &p->weight, x, dy, NULL, dw, call->accumulate[1], error));
    }
    if (!db->data) return UPS_OK;
    return ups_cuda_sum_rows(device, &dh, (float *)(void *)(workspace + p->partials), db->data, call->accumulate[2],
                             error);
}

const ups_cuda_kernel ups_cuda_linear = {.forward = forward, .backward = backward, .prepare = prepare};
const ups_cuda_kernel ups_cuda_linear_gelu = {.forward = forward, .backward = backward, .prepare = prepare};
