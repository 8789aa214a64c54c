/* Linear: y = x W^T + b.  Backward: dx = dy W, dW = dy^T x (summed in float32), db = column sums of dy. With GELU the
 * product ends in y = GELU(h), h = x W^T + b is saved, and backward begins with dh = dy GELU'(h) in the workspace.
 *
 * The operands' dtype is that of W (bf16 and fp16 graphs pass the compute copy); x and dy are converted to it in the
 * workspace where they differ. */
#include "model/cpu/gelu.h"
#include "model/cpu/matmul.h"
#include "model/cpu/vector.h"

enum { ALIGNMENT = 64 };

/* Offsets in the workspace, after the scratch of products at 0. */
typedef struct linear_layout {
    size_t cast_x, cast_dy, partials, bytes;
} linear_layout;

typedef struct linear_shape {
    int64_t rows, in, out;
    ups_dtype compute; /* of the operands */
} linear_shape;

static linear_shape linear_shape_of(const ups_op_call *call) {
    const ups_tensor *weight = &call->inputs[1];
    return (linear_shape){ups_shape_rows(call->inputs[0].shape), weight->shape.size[1], weight->shape.size[0],
                          weight->dtype};
}

/* y = x W^T */
static ups_matmul_shape forward_product(const ups_op_call *call, linear_shape s) {
    return (ups_matmul_shape){.m = s.rows,
                              .n = s.out,
                              .k = s.in,
                              .transpose_b = true,
                              .streamed = true,
                              .operands = s.compute,
                              .result = call->output.dtype};
}

/* dx = dy W */
static ups_matmul_shape input_product(const ups_op_call *call, linear_shape s) {
    return (ups_matmul_shape){.m = s.rows,
                              .n = s.in,
                              .k = s.out,
                              .accumulate = call->accumulate[0],
                              .streamed = !call->accumulate[0],
                              .operands = s.compute,
                              .result = call->inputs[0].dtype};
}

/* dW = dy^T x */
static ups_matmul_shape weight_product(const ups_op_call *call, linear_shape s) {
    return (ups_matmul_shape){.m = s.out,
                              .n = s.in,
                              .k = s.rows,
                              .transpose_a = true,
                              .accumulate = call->accumulate[1],
                              .streamed = !call->accumulate[1],
                              .operands = s.compute,
                              .result = UPS_F32};
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The saved value is what GELU is taken of. */
static bool has_gelu(const ups_op_call *call) {
    return call->saved[0].shape.rank > 0;
}

static linear_layout layout_of(const ups_device *device, const ups_op_call *call, bool backward) {
    linear_shape s = linear_shape_of(call);
    ups_matmul_shape products[] = {forward_product(call, s), input_product(call, s), weight_product(call, s)};
    size_t scratch = 0, item = ups_dtype_size(s.compute);
    for (int i = 0; i < (backward ? 3 : 1); i++) {
        size_t bytes = UPS_CPU(matmul_scratch)(&products[i], ups_cpu_threads(device));
        if (bytes > scratch) scratch = bytes;
    }
    linear_layout l = {.cast_x = aligned(scratch)};
    l.cast_dy = l.cast_x;
    if (call->inputs[0].dtype != s.compute) l.cast_dy += aligned((size_t)(s.rows * s.in) * item);
    l.partials = l.cast_dy;
    if (backward && (call->output.dtype != s.compute || has_gelu(call)))
        l.partials += aligned((size_t)(s.rows * s.out) * item);
    l.bytes = l.partials;
    if (backward) l.bytes += (size_t)(ups_row_blocks(s.rows) * s.out) * sizeof(float);
    return l;
}

static size_t workspace_bytes(const ups_device *device, const ups_op_call *call, bool backward) {
    return layout_of(device, call, backward).bytes;
}

/* The tensor's data in the dtype of the weights. */
static const void *operand(ups_device *device, const ups_tensor *tensor, ups_dtype compute, void *copy) {
    if (tensor->dtype == compute) return tensor->data;
    ups_tensor to = {.data = copy, .dtype = compute, .shape = tensor->shape};
    int64_t count = ups_shape_elements(tensor->shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *from = ups_row_read(tensor, start, n, in);
        float *target = ups_row_target(&to, start, out, false);
        memcpy(target, from, (size_t)n * sizeof(float));
        ups_row_write(&to, start, n, target, false);
    }
    return copy;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    linear_shape s = linear_shape_of(call);
    ups_matmul_shape product = forward_product(call, s);
    char *workspace = call->workspace;
    const void *x = operand(device, &call->inputs[0], s.compute, workspace + layout_of(device, call, false).cast_x);
    const ups_tensor *made = has_gelu(call) ? &call->saved[0] : &call->output;
    UPS_CPU(matmul)
    (&product, ups_cpu_threads(device), x, call->inputs[1].data, call->inputs[2].data, made->data,
     has_gelu(call) ? call->output.data : NULL, workspace);
    return UPS_OK;
}

/* What becomes of `dy` before it is multiplied, and its sums over rows, in one pass: dh = dy GELU'(h) where there is
 * GELU. `dh`: NULL where there is none; `sums`: a row for each block of rows, or NULL. */
static void pass_rows(ups_device *device, const ups_op_call *call, const ups_tensor *dh, float *sums) {
    const ups_tensor *dy = &call->output_gradient;
    int64_t rows = ups_shape_rows(dy->shape), width = ups_shape_last(dy->shape), blocks = ups_row_blocks(rows);
    if (!dh && !sums) return;
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        float *sum = sums ? sums + block * width : NULL;
        if (sum) memset(sum, 0, (size_t)width * sizeof(float));
        for (int64_t row = ups_row_block_start(rows, block); row < ups_row_block_start(rows, block + 1); row++) {
            for (int64_t start = 0; start < width; start += UPS_CHUNK) {
                float before[UPS_CHUNK], in[UPS_CHUNK], out[UPS_CHUNK];
                const int64_t n = ups_min(UPS_CHUNK, width - start), at = row * width + start;
                const float *d = ups_row_read(dy, at, n, in);
                if (dh) {
                    float *to = ups_row_target(dh, at, out, false);
                    ups_gelu_row_backward(ups_row_read(&call->saved[0], at, n, before), d, to, n);
                    ups_row_write(dh, at, n, to, false);
                    d = ups_row_read(dh, at, n, in); /* as rounded: what is summed where GELU is an op by itself */
                }
                for (int64_t i = 0; sum && i < n; i++) sum[start + i] += d[i];
            }
        }
    }
    if (sums) ups_add_partials(sums, blocks, width, width, call->input_gradients[2].data, call->accumulate[2]);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    linear_shape s = linear_shape_of(call);
    linear_layout l = layout_of(device, call, true);
    char *workspace = call->workspace;
    ups_tensor dy = {.dtype = s.compute, .shape = call->output_gradient.shape};
    const bool gelu = has_gelu(call), wants_bias = ups_present(&call->input_gradients[2]);
    if (gelu) dy.data = workspace + l.cast_dy;
    pass_rows(device, call, gelu ? &dy : NULL, wants_bias ? (float *)(void *)(workspace + l.partials) : NULL);
    if (!gelu) dy.data = (void *)(uintptr_t)operand(device, &call->output_gradient, s.compute, workspace + l.cast_dy);
    if (ups_present(&call->input_gradients[0])) {
        ups_matmul_shape product = input_product(call, s);
        UPS_CPU(matmul)
        (&product, ups_cpu_threads(device), dy.data, call->inputs[1].data, NULL, call->input_gradients[0].data, NULL,
         workspace);
    }
    if (ups_present(&call->input_gradients[1])) {
        ups_matmul_shape product = weight_product(call, s);
        const void *x = operand(device, &call->inputs[0], s.compute, workspace + l.cast_x);
        UPS_CPU(matmul)
        (&product, ups_cpu_threads(device), dy.data, x, NULL, call->input_gradients[1].data, NULL, workspace);
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(linear) = {.workspace = workspace_bytes, .forward = forward, .backward = backward};
const ups_cpu_kernel UPS_CPU(linear_gelu) = {.workspace = workspace_bytes, .forward = forward, .backward = backward};
