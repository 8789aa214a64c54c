/* Layer norm and RMS norm over the last axis. One row is read once into the first-level cache, its statistics computed
 * there in two passes (mean, then squared deviations: no cancellation), and written once.
 *
 * Backward, with h the normalised row, g = dy * gain and s = 1/sqrt(var + epsilon):
 *   layer norm  dx = s (g - mean(g) - h mean(g h))      RMS norm  dx = s (g - h mean(g h))
 *   dgain = sum over rows of dy h, dbias = sum over rows of dy: partial sums by block of rows. */
#include "model/cpu/vector.h"

static inline float row_sum(const float *x, int64_t n) {
    f32v sum = (f32v){0};
    int64_t i = 0;
    for (; i + UPS_VECTOR <= n; i += UPS_VECTOR) sum += f32v_load(x + i);
    float total = f32v_sum(sum);
    for (; i < n; i++) total += x[i];
    return total;
}

/* Sum of (x - shift)^2. */
static inline float row_sum_of_squares(const float *x, float shift, int64_t n) {
    f32v sum = (f32v){0};
    int64_t i = 0;
    for (; i + UPS_VECTOR <= n; i += UPS_VECTOR) {
        f32v d = f32v_load(x + i) - shift;
        sum += d * d;
    }
    float total = f32v_sum(sum);
    for (; i < n; i++) total += (x[i] - shift) * (x[i] - shift);
    return total;
}

/* Two scratch rows a thread, and the partial sums of gain and bias. */
static size_t workspace_bytes(const ups_device *device, const ups_op_call *call, bool backward) {
    int64_t width = ups_shape_last(call->inputs[0].shape), rows = ups_shape_rows(call->inputs[0].shape);
    int64_t floats = 4 * ups_cpu_threads(device) * width + (backward ? 2 * ups_row_blocks(rows) * width : 0);
    return (size_t)floats * sizeof(float);
}

static inline float *thread_rows(const ups_op_call *call, int64_t width) {
    return (float *)call->workspace + 4 * omp_get_thread_num() * width;
}

static inline void affine_row(const float *restrict x, float mean, float scale, const float *restrict gain,
                              const float *restrict bias, float *restrict y, int64_t n) {
    if (gain && bias) {
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float value = (x[i] - mean) * scale;
        if (gain) value *= gain[i];
        if (bias) value += bias[i];
        y[i] = value;
    }
}

static ups_status norm_forward(ups_device *device, const ups_op_call *call, bool centred) {
    const ups_tensor *input = &call->inputs[0];
    const float *gain = call->inputs[1].data, *bias = centred ? call->inputs[2].data : NULL;
    float *saved = call->saved[0].data;
    int64_t width = ups_shape_last(input->shape), rows = ups_shape_rows(input->shape);
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *scratch = thread_rows(call, width);
        const float *x = ups_row_read(input, row * width, width, scratch);
        float mean = centred ? row_sum(x, width) / (float)width : 0.0f;
        float variance = row_sum_of_squares(x, mean, width) / (float)width;
        float scale = 1.0f / sqrtf(variance + call->attributes->epsilon);
        if (saved && centred) saved[2 * row] = mean, saved[2 * row + 1] = scale;
        if (saved && !centred) saved[row] = scale;
        float *y = ups_row_target(&call->output, row * width, scratch + width, false);
        affine_row(x, mean, scale, gain, bias, y, width);
        ups_row_write(&call->output, row * width, width, y, false);
    }
    return UPS_OK;
}

typedef struct means {
    float g, gh;
} means;

/* mean(g) and mean(g h), and h itself; adds to the partial sums of dgain and dbias where they are wanted. */
static inline means row_products(const float *restrict x, const float *restrict dy, const float *restrict gain,
                                 float mean, float scale, float *restrict h, float *restrict dgain,
                                 float *restrict dbias, int64_t n) {
    f32v sum_g = (f32v){0}, sum_gh = (f32v){0};
    int64_t i = 0;
    for (; i + UPS_VECTOR <= n; i += UPS_VECTOR) {
        f32v normalised = (f32v_load(x + i) - mean) * scale, d = f32v_load(dy + i);
        f32v_store(h + i, normalised);
        if (dgain) f32v_store(dgain + i, f32v_load(dgain + i) + d * normalised);
        if (dbias) f32v_store(dbias + i, f32v_load(dbias + i) + d);
        f32v g = gain ? d * f32v_load(gain + i) : d;
        sum_g += g;
        sum_gh += g * normalised;
    }
    means result = {f32v_sum(sum_g), f32v_sum(sum_gh)};
    for (; i < n; i++) {
        h[i] = (x[i] - mean) * scale;
        if (dgain) dgain[i] += dy[i] * h[i];
        if (dbias) dbias[i] += dy[i];
        float g = gain ? dy[i] * gain[i] : dy[i];
        result.g += g;
        result.gh += g * h[i];
    }
    result.g /= (float)n;
    result.gh /= (float)n;
    return result;
}

static ups_status norm_backward(ups_device *device, const ups_op_call *call, bool centred) {
    const ups_tensor *input = &call->inputs[0], *gradient = &call->input_gradients[0];
    const float *gain = call->inputs[1].data, *saved = call->saved[0].data;
    int64_t width = ups_shape_last(input->shape), rows = ups_shape_rows(input->shape);
    int64_t blocks = ups_row_blocks(rows);
    float *partials = (float *)call->workspace + 4 * ups_cpu_threads(device) * width;
    float *dgain = call->input_gradients[1].data, *dbias = centred ? call->input_gradients[2].data : NULL;
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        float *scratch = thread_rows(call, width), *h = scratch + 2 * width;
        float *block_dgain = dgain ? partials + 2 * block * width : NULL;
        float *block_dbias = dbias ? partials + (2 * block + 1) * width : NULL;
        if (dgain) memset(block_dgain, 0, (size_t)width * sizeof(float));
        if (dbias) memset(block_dbias, 0, (size_t)width * sizeof(float));
        for (int64_t row = ups_row_block_start(rows, block); row < ups_row_block_start(rows, block + 1); row++) {
            float mean = centred ? saved[2 * row] : 0.0f, scale = centred ? saved[2 * row + 1] : saved[row];
            const float *x = ups_row_read(input, row * width, width, scratch);
            const float *dy = ups_row_read(&call->output_gradient, row * width, width, scratch + width);
            means m = row_products(x, dy, gain, mean, scale, h, block_dgain, block_dbias, width);
            if (!ups_present(gradient)) continue;
            if (!centred) m.g = 0.0f;
            float *dx = ups_row_target(gradient, row * width, scratch + 3 * width, call->accumulate[0]);
            if (gain) {
                for (int64_t i = 0; i < width; i++) dx[i] = scale * (dy[i] * gain[i] - m.g - h[i] * m.gh);
            } else {
                for (int64_t i = 0; i < width; i++) dx[i] = scale * (dy[i] - m.g - h[i] * m.gh);
            }
            ups_row_write(gradient, row * width, width, dx, call->accumulate[0]);
        }
    }
    if (dgain) ups_add_partials(partials, blocks, 2 * width, width, dgain, call->accumulate[1]);
    if (dbias) ups_add_partials(partials + width, blocks, 2 * width, width, dbias, call->accumulate[2]);
    return UPS_OK;
}

static ups_status layer_norm_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return norm_forward(device, call, true);
}
static ups_status layer_norm_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return norm_backward(device, call, true);
}
static ups_status rms_norm_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return norm_forward(device, call, false);
}
static ups_status rms_norm_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return norm_backward(device, call, false);
}

const ups_cpu_kernel UPS_CPU(layer_norm) = {
    .workspace = workspace_bytes, .forward = layer_norm_forward, .backward = layer_norm_backward};
const ups_cpu_kernel UPS_CPU(rms_norm) = {
    .workspace = workspace_bytes, .forward = rms_norm_forward, .backward = rms_norm_backward};
