/* GELU (gelu.h) and SiLU. */
#include "model/cpu/gelu.h"
#include "model/cpu/vector.h"

static void silu_row(const float *restrict x, float *restrict y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / (1.0f + ups_exp(-x[i]));
}

static void silu_row_backward(const float *restrict x, const float *restrict dy, float *restrict dx, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + ups_exp(-x[i]));
        dx[i] = dy[i] * sigmoid * (1.0f + x[i] * (1.0f - sigmoid));
    }
}

static void forward(ups_device *device, const ups_op_call *call, void (*row)(const float *, float *, int64_t)) {
    int64_t count = ups_shape_elements(call->output.shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *x = ups_row_read(&call->inputs[0], start, n, in);
        float *y = ups_row_target(&call->output, start, out, false);
        row(x, y, n);
        ups_row_write(&call->output, start, n, y, false);
    }
}

static void backward(ups_device *device, const ups_op_call *call,
                     void (*row)(const float *, const float *, float *, int64_t)) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return;
    int64_t count = ups_shape_elements(gradient->shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], upstream[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *x = ups_row_read(&call->inputs[0], start, n, in);
        const float *dy = ups_row_read(&call->output_gradient, start, n, upstream);
        float *dx = ups_row_target(gradient, start, out, call->accumulate[0]);
        row(x, dy, dx, n);
        ups_row_write(gradient, start, n, dx, call->accumulate[0]);
    }
}

static ups_status gelu_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    forward(device, call, ups_gelu_row);
    return UPS_OK;
}
static ups_status gelu_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    backward(device, call, ups_gelu_row_backward);
    return UPS_OK;
}
static ups_status silu_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    forward(device, call, silu_row);
    return UPS_OK;
}
static ups_status silu_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    backward(device, call, silu_row_backward);
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(gelu) = {.forward = gelu_forward, .backward = gelu_backward};
const ups_cpu_kernel UPS_CPU(silu) = {.forward = silu_forward, .backward = silu_backward};
