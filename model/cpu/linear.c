/* Linear: y = x W^T + b.  Backward: dx = dy W, dW = dy^T x (summed in float32), db = column sums of dy.
 *
 * The operands' dtype is that of W (bf16 graphs pass the bf16 copy); x and dy are converted to it in the workspace
 * where they differ. */
#include "model/cpu/matmul.h"
#include "model/cpu/vector.h"
#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* Indexed by whether the gradient is accumulated. */
typedef struct linear_state {
    ups_matmul *forward, *input[2], *weight[2];
    size_t scratch, cast_x, cast_dy; /* offsets in the workspace, after the scratch of oneDNN at 0 */
    size_t partials;
} linear_state;

typedef struct linear_shape {
    int64_t rows, in, out;
} linear_shape;

static linear_shape linear_shape_of(const ups_op_call *call) {
    ups_shape weight = call->inputs[1].shape;
    return (linear_shape){ups_shape_rows(call->inputs[0].shape), weight.size[1], weight.size[0]};
}

static void release(ups_device *device, void *memory) {
    linear_state *state = memory;
    if (!state) return;
    ups_matmul_destroy(state->forward);
    for (int i = 0; i < 2; i++) {
        ups_matmul_destroy(state->input[i]);
        ups_matmul_destroy(state->weight[i]);
    }
    free(state);
}

static ups_status create(ups_device *device, ups_matmul_shape shape, ups_matmul **matmul, size_t *scratch,
                         ups_error *error) {
    size_t bytes = 0;
    UPS_TRY(ups_matmul_create(&shape, device->threads, matmul, &bytes, error));
    if (bytes > *scratch) *scratch = bytes;
    return UPS_OK;
}

static ups_status create_products(ups_device *device, const ups_op_call *call, bool backward, linear_state *state,
                                  size_t *scratch, ups_error *error) {
    linear_shape s = linear_shape_of(call);
    ups_dtype compute = call->inputs[1].dtype;
    ups_matmul_shape forward = {.m = s.rows, .n = s.out, .k = s.in, .transpose_b = true, .operands = compute};
    forward.bias = call->inputs[2].shape.rank > 0;
    forward.result = call->output.dtype;
    forward.streamed = true;
    UPS_TRY(create(device, forward, &state->forward, scratch, error));
    if (!backward) return UPS_OK;
    ups_matmul_shape input = {.m = s.rows, .n = s.in, .k = s.out, .operands = compute};
    input.result = call->inputs[0].dtype;
    ups_matmul_shape weight = {.m = s.out, .n = s.in, .k = s.rows, .transpose_a = true, .operands = compute};
    weight.result = UPS_F32;
    for (int i = 0; i < 2; i++) {
        input.accumulate = weight.accumulate = i == 1;
        input.streamed = weight.streamed = i == 0;
        UPS_TRY(create(device, input, &state->input[i], scratch, error));
        UPS_TRY(create(device, weight, &state->weight[i], scratch, error));
    }
    return UPS_OK;
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, void **memory,
                          size_t *workspace_bytes, ups_error *error) {
    linear_state *state = calloc(1, sizeof *state);
    if (!state) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left for a linear layer");
    linear_shape s = linear_shape_of(call);
    ups_dtype compute = call->inputs[1].dtype;
    size_t scratch = 0, item = ups_dtype_size(compute);
    ups_status status = create_products(device, call, backward, state, &scratch, error);
    if (status != UPS_OK) {
        release(device, state);
        return status;
    }
    state->cast_x = aligned(scratch);
    state->cast_dy = state->cast_x;
    if (call->inputs[0].dtype != compute) state->cast_dy += aligned((size_t)(s.rows * s.in) * item);
    state->partials = state->cast_dy;
    if (backward && call->output.dtype != compute) state->partials += aligned((size_t)(s.rows * s.out) * item);
    *workspace_bytes = state->partials;
    if (backward) *workspace_bytes += (size_t)(ups_row_blocks(s.rows) * s.out) * sizeof(float);
    *memory = state;
    return UPS_OK;
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
    const linear_state *state = call->state;
    char *workspace = call->workspace;
    const void *x = operand(device, &call->inputs[0], call->inputs[1].dtype, workspace + state->cast_x);
    return ups_matmul_run(state->forward, x, call->inputs[1].data, call->inputs[2].data, call->output.data, workspace,
                          error);
}

static void bias_gradient(ups_device *device, const ups_op_call *call, float *partials) {
    const ups_tensor *dy = &call->output_gradient;
    int64_t rows = ups_shape_rows(dy->shape), width = ups_shape_last(dy->shape), blocks = ups_row_blocks(rows);
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        float *sum = partials + block * width, scratch[UPS_CHUNK];
        memset(sum, 0, (size_t)width * sizeof(float));
        for (int64_t row = ups_row_block_start(rows, block); row < ups_row_block_start(rows, block + 1); row++) {
            for (int64_t start = 0; start < width; start += UPS_CHUNK) {
                int64_t n = ups_min(UPS_CHUNK, width - start);
                const float *d = ups_row_read(dy, row * width + start, n, scratch);
                for (int64_t i = 0; i < n; i++) sum[start + i] += d[i];
            }
        }
    }
    ups_add_partials(partials, blocks, width, width, call->input_gradients[2].data, call->accumulate[2]);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const linear_state *state = call->state;
    char *workspace = call->workspace;
    ups_dtype compute = call->inputs[1].dtype;
    const void *dy = operand(device, &call->output_gradient, compute, workspace + state->cast_dy);
    if (ups_present(&call->input_gradients[0])) {
        UPS_TRY(ups_matmul_run(state->input[call->accumulate[0]], dy, call->inputs[1].data, NULL,
                               call->input_gradients[0].data, workspace, error));
    }
    if (ups_present(&call->input_gradients[1])) {
        const void *x = operand(device, &call->inputs[0], compute, workspace + state->cast_x);
        UPS_TRY(ups_matmul_run(state->weight[call->accumulate[1]], dy, x, NULL, call->input_gradients[1].data,
                               workspace, error));
    }
    if (ups_present(&call->input_gradients[2])) {
        bias_gradient(device, call, (float *)(workspace + state->partials));
    }
    return UPS_OK;
}

const ups_kernel UPS_CPU(linear) = {.prepare = prepare, .release = release, .forward = forward, .backward = backward};
