/* GELU (gelu.h), SiLU, and what latents pass through: bound, round. */
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

static ups_status bound_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const float *x = call->inputs[0].data, b = call->attributes->factor;
    float *y = call->output.data;
    const bool inverse = call->attributes->inverse;
    int64_t count = ups_shape_elements(call->output.shape);
#pragma omp parallel for num_threads(ups_threads_for(device, 16 * count)) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = b * (inverse ? sinhf(x[i] / b) : asinhf(x[i] / b));
    return UPS_OK;
}

static ups_status bound_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const float *x = call->inputs[0].data, *dy = call->output_gradient.data, b = call->attributes->factor;
    float *dx = gradient->data;
    const bool inverse = call->attributes->inverse, accumulate = call->accumulate[0];
    int64_t count = ups_shape_elements(gradient->shape);
#pragma omp parallel for num_threads(ups_threads_for(device, 16 * count)) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float u = x[i] / b, slope = inverse ? coshf(u) : 1.0f / sqrtf(1.0f + u * u);
        dx[i] = (accumulate ? dx[i] : 0.0f) + dy[i] * slope;
    }
    return UPS_OK;
}

static ups_status round_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const float *x = call->inputs[0].data;
    float *y = call->output.data;
    int64_t count = ups_shape_elements(call->output.shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        ups_f16 halves[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        ups_f32_to_f16(x + start, halves, (size_t)n);
        ups_f16_to_f32(halves, y + start, (size_t)n);
    }
    return UPS_OK;
}

static ups_status round_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const float *dy = call->output_gradient.data;
    float *dx = gradient->data;
    int64_t count = ups_shape_elements(gradient->shape);
    for (int64_t i = 0; i < count; i++) dx[i] = call->accumulate[0] ? dx[i] + dy[i] : dy[i];
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(bound) = {.forward = bound_forward, .backward = bound_backward};
const ups_cpu_kernel UPS_CPU(round_f16) = {.forward = round_forward, .backward = round_backward};
const ups_cpu_kernel UPS_CPU(gelu) = {.forward = gelu_forward, .backward = gelu_backward};
const ups_cpu_kernel UPS_CPU(silu) = {.forward = silu_forward, .backward = silu_backward};
