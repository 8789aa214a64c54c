/* GELU and SiLU.
 *
 * Phi(x), the normal distribution's integral, comes from Abramowitz & Stegun 7.1.26: |error| below 1.5e-7 and one
 * exponential, which the derivative wants too. */
#include "model/cpu/vector.h"

/* Phi(x) and the density e^(-x^2/2)/sqrt(2 pi). */
static inline void normal_distribution(float x, float *integral, float *density) {
    float a = fabsf(x) * 0.707106781f;
    float t = 1.0f / (1.0f + 0.3275911f * a);
    float gauss = ups_exp(-0.5f * x * x);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * gauss; /* Phi(-|x|) */
    *integral = x < 0.0f ? tail : 1.0f - tail;
    *density = 0.398942280f * gauss;
}

static void gelu_row(const float *restrict x, float *restrict y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float integral, density;
        normal_distribution(x[i], &integral, &density);
        y[i] = x[i] * integral;
    }
}

static void gelu_row_backward(const float *restrict x, const float *restrict dy, float *restrict dx, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float integral, density;
        normal_distribution(x[i], &integral, &density);
        dx[i] = dy[i] * (integral + x[i] * density);
    }
}

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
    forward(device, call, gelu_row);
    return UPS_OK;
}
static ups_status gelu_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    backward(device, call, gelu_row_backward);
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
