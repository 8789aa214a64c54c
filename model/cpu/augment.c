/* What training does to its inputs at random: noise, shifts of periodic grids, symmetries of grids. In use they copy.
 */
#include "model/random/augment.h"
#include "model/cpu/vector.h"

static ups_status noise_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_op_attributes *a = call->attributes;
    const float *gain = call->inputs[1].data;
    int64_t count = ups_shape_elements(call->output.shape), width = ups_shape_last(call->output.shape);
    int64_t chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, 16 * count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *x = ups_row_read(&call->inputs[0], start, n, in);
        float *y = ups_row_target(&call->output, start, out, false);
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i];
            if (!call->training) continue;
            double normal = ups_noise_at(a, call->update->input.seed, call->update->input.item, start + i);
            y[i] += a->factor * (gain ? gain[(start + i) % width] : 1.0f) * (float)normal;
        }
        ups_row_write(&call->output, start, n, y, false);
    }
    return UPS_OK;
}

static ups_status noise_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    int64_t count = ups_shape_elements(gradient->shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *dy = ups_row_read(&call->output_gradient, start, n, in);
        float *dx = ups_row_target(gradient, start, out, call->accumulate[0]);
        memcpy(dx, dy, (size_t)n * sizeof(float));
        ups_row_write(gradient, start, n, dx, call->accumulate[0]);
    }
    return UPS_OK;
}

/* Rows of `from` to rows of `to`: there, or back again. */
static void move(ups_device *device, const ups_op_call *call, const ups_tensor *from, const ups_tensor *to, bool back,
                 bool accumulate) {
    const ups_op_attributes *a = call->attributes;
    ups_shape shape = to->shape;
    int64_t samples = shape.size[0], width = ups_shape_last(shape), cells = shape.size[shape.rank - 2];
    int64_t layers = ups_shape_elements(shape) / (samples * cells * width);
#pragma omp parallel for num_threads(ups_threads_for(device, ups_shape_elements(shape))) schedule(static)
    for (int64_t plane = 0; plane < samples * layers; plane++) {
        int64_t shift[3] = {0, 0, 0};
        for (int axis = 0; axis < a->dims && call->training; axis++) {
            shift[axis] = ups_shift_of(a, call->update->input.seed, call->update->input.item, plane / layers, axis);
        }
        for (int64_t cell = 0; cell < cells; cell++) {
            int64_t there = (plane * cells + ups_shift_cell(a, shift, cell)) * width;
            int64_t here = (plane * cells + cell) * width;
            for (int64_t start = 0; start < width; start += UPS_CHUNK) {
                float in[UPS_CHUNK], out[UPS_CHUNK];
                int64_t n = ups_min(UPS_CHUNK, width - start), at = (back ? here : there) + start;
                const float *row = ups_row_read(from, (back ? there : here) + start, n, in);
                float *target = ups_row_target(to, at, out, accumulate);
                memcpy(target, row, (size_t)n * sizeof(float));
                ups_row_write(to, at, n, target, accumulate);
            }
        }
    }
}

static ups_status shift_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    move(device, call, &call->inputs[0], &call->output, false, false);
    return UPS_OK;
}

static ups_status shift_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (ups_present(gradient)) move(device, call, &call->output_gradient, gradient, true, call->accumulate[0]);
    return UPS_OK;
}

static ups_status symmetry_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_op_attributes *a = call->attributes;
    const ups_shape shape = call->output.shape;
    const int64_t width = ups_shape_last(shape), cells = shape.size[shape.rank - 2], rows = ups_shape_rows(shape);
    const int64_t rows_of_sample = rows / shape.size[0], symmetries = call->inputs[1].shape.size[0];
    const float *const x = call->inputs[0].data;
    float *const y = call->output.data;
    if (!call->training) {
        memcpy(y, x, (size_t)(rows * width) * sizeof(float));
        return UPS_OK;
    }
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t e =
            ups_symmetry_of(call->update->input.seed, call->update->input.item, row / rows_of_sample, symmetries);
        const int64_t cell = row % cells, from = row - cell + ups_symmetry_from(a->dims, a->grid, e, cell);
        const int32_t *source = (const int32_t *)call->inputs[1].data + e * width;
        const float *table = (const float *)call->inputs[2].data + 2 * e * width;
        for (int64_t d = 0; d < width; d++)
            y[row * width + d] = table[2 * d] * x[from * width + source[d]] + table[2 * d + 1];
    }
    return UPS_OK;
}

/* Windows come from outside. */
static ups_status no_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(noise) = {.forward = noise_forward, .backward = noise_backward};
const ups_cpu_kernel UPS_CPU(shift) = {.forward = shift_forward, .backward = shift_backward};
const ups_cpu_kernel UPS_CPU(symmetry) = {.forward = symmetry_forward, .backward = no_backward};
