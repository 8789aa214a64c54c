/* Ops that move or combine elements one by one: modulate, residual, add, broadcast, scale, slice, select_frame, cast.
 *
 * Gradients that are summed (over tokens, over the batch) are summed by the thread that owns their slice of columns,
 * in the order of rows: no partial sums, and the same bits on any number of threads. */
#include "model/cpu/vector.h"
#include "model/random/drop_path.h"

enum { COLUMNS = 256 /* columns a thread sums at once, at most */ };

typedef struct token_shape {
    int64_t batch, tokens, width;
} token_shape;

/* (B, T, D) of a tensor of any rank: the first axis, those between, the last. */
static token_shape token_shape_of(ups_shape shape) {
    token_shape s = {shape.size[0], 1, ups_shape_last(shape)};
    if (shape.rank == 1) return (token_shape){1, 1, shape.size[0]};
    for (int axis = 1; axis < shape.rank - 1; axis++) s.tokens *= shape.size[axis];
    return s;
}

/* to[to_at ...] (+)= from[from_at ...], converted where the dtypes differ. */
static void copy_row(const ups_tensor *from, int64_t from_at, const ups_tensor *to, int64_t to_at, int64_t count,
                     bool accumulate) {
    for (int64_t start = 0; start < count; start += UPS_CHUNK) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t n = ups_min(UPS_CHUNK, count - start);
        const float *values = ups_row_read(from, from_at + start, n, in);
        float *target = ups_row_target(to, to_at + start, out, accumulate);
        memcpy(target, values, (size_t)n * sizeof(float));
        ups_row_write(to, to_at + start, n, target, accumulate);
    }
}

/* gradient (+)= factor * dy, element by element. */
static void pass_gradient(ups_device *device, const ups_tensor *dy, const ups_tensor *gradient, float factor,
                          bool accumulate) {
    int64_t count = ups_shape_elements(dy->shape), chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, count)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, n = ups_min(UPS_CHUNK, count - start);
        const float *from = ups_row_read(dy, start, n, in);
        float *to = ups_row_target(gradient, start, out, accumulate);
        for (int64_t i = 0; i < n; i++) to[i] = factor * from[i];
        ups_row_write(gradient, start, n, to, accumulate);
    }
}

/* Columns that a thread sums at once: fewer where there are fewer groups of rows than threads. Bits do not depend on
 * it. */
static int64_t stripe_of(const ups_device *device, int64_t groups, int64_t width) {
    int64_t stripes = ups_div_up(width, COLUMNS);
    while (groups * stripes < ups_cpu_threads(device) && stripes * UPS_LANES < width) stripes++;
    return ups_div_up(ups_div_up(width, stripes), UPS_LANES) * UPS_LANES;
}

/* Sums of up to COLUMNS columns to where their gradient lies. */
static void write_sums(const ups_tensor *gradient, int64_t at, int64_t n, const float *sums, bool accumulate) {
    float out[COLUMNS], *to = ups_row_target(gradient, at, out, accumulate);
    memcpy(to, sums, (size_t)n * sizeof(float));
    ups_row_write(gradient, at, n, to, accumulate);
}

/* gradient[g, c] (+)= sum over r < rows of dy[g * group_stride + r * row_stride + c], g < groups, c < width. */
static void sum_gradient(ups_device *device, const ups_tensor *dy, const ups_tensor *gradient, int64_t groups,
                         int64_t group_stride, int64_t rows, int64_t row_stride, int64_t width, bool accumulate) {
    const int64_t stripe_width = stripe_of(device, groups, width), stripes = ups_div_up(width, stripe_width);
#pragma omp parallel for num_threads(ups_threads_for(device, groups *rows *width)) schedule(static) collapse(2)
    for (int64_t group = 0; group < groups; group++) {
        for (int64_t stripe = 0; stripe < stripes; stripe++) {
            float sum[COLUMNS] = {0}, in[COLUMNS];
            int64_t start = stripe * stripe_width, n = ups_min(stripe_width, width - start);
            for (int64_t row = 0; row < rows; row++) {
                int64_t offset = group * group_stride + row * row_stride + start;
                const float *d = ups_row_read(dy, offset, n, in);
                for (int64_t i = 0; i < n; i++) sum[i] += d[i];
            }
            write_sums(gradient, group * width + start, n, sum, accumulate);
        }
    }
}

static ups_status modulate_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    token_shape s = token_shape_of(call->output.shape);
#pragma omp parallel for num_threads(ups_threads_for(device, s.batch *s.tokens *s.width)) schedule(static)
    for (int64_t row = 0; row < s.batch * s.tokens; row++) {
        float in[UPS_CHUNK], scales[UPS_CHUNK], shifts[UPS_CHUNK], out[UPS_CHUNK];
        for (int64_t start = 0; start < s.width; start += UPS_CHUNK) {
            int64_t n = ups_min(UPS_CHUNK, s.width - start), at = row * s.width + start;
            int64_t sample_at = row / s.tokens * s.width + start;
            const float *x = ups_row_read(&call->inputs[0], at, n, in);
            const float *scale = ups_row_read(&call->inputs[1], sample_at, n, scales);
            const float *shift = ups_row_read(&call->inputs[2], sample_at, n, shifts);
            float *y = ups_row_target(&call->output, at, out, false);
            for (int64_t i = 0; i < n; i++) y[i] = x[i] * (1.0f + scale[i]) + shift[i];
            ups_row_write(&call->output, at, n, y, false);
        }
    }
    return UPS_OK;
}

static ups_status modulate_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    token_shape s = token_shape_of(call->output_gradient.shape);
    const ups_tensor *dy = &call->output_gradient, *const to = call->input_gradients;
    const bool wants_dx = ups_present(&to[0]), wants_scale = ups_present(&to[1]);
    const int64_t stripe_width = stripe_of(device, s.batch, s.width), stripes = ups_div_up(s.width, stripe_width);
#pragma omp parallel for num_threads(ups_threads_for(device, s.batch *s.tokens *s.width)) schedule(static) collapse(2)
    for (int64_t sample = 0; sample < s.batch; sample++) {
        for (int64_t stripe = 0; stripe < stripes; stripe++) {
            float in[COLUMNS], other[COLUMNS], out[COLUMNS], factors[COLUMNS];
            float scales[COLUMNS] = {0}, shifts[COLUMNS] = {0};
            const int64_t start = stripe * stripe_width, n = ups_min(stripe_width, s.width - start),
                          of_sample = sample * s.width + start;
            if (wants_dx) { /* else there may be no scale (op.c) */
                const float *scale = ups_row_read(&call->inputs[1], of_sample, n, in);
                for (int64_t i = 0; i < n; i++) factors[i] = 1.0f + scale[i];
            }
            for (int64_t token = 0; token < s.tokens; token++) {
                const int64_t at = (sample * s.tokens + token) * s.width + start;
                const float *d = ups_row_read(dy, at, n, in);
                for (int64_t i = 0; i < n; i++) shifts[i] += d[i];
                if (wants_scale) {
                    const float *x = ups_row_read(&call->inputs[0], at, n, other);
                    for (int64_t i = 0; i < n; i++) scales[i] += d[i] * x[i];
                }
                if (!wants_dx) continue;
                float *dx = ups_row_target(&to[0], at, out, call->accumulate[0]);
                for (int64_t i = 0; i < n; i++) dx[i] = d[i] * factors[i];
                ups_row_write(&to[0], at, n, dx, call->accumulate[0]);
            }
            if (wants_scale) write_sums(&to[1], of_sample, n, scales, call->accumulate[1]);
            if (ups_present(&to[2])) write_sums(&to[2], of_sample, n, shifts, call->accumulate[2]);
        }
    }
    return UPS_OK;
}

static inline float sigmoid(float x) {
    return 1.0f / (1.0f + ups_exp(-x));
}

static inline float keep_of(const ups_op_call *call, int64_t sample) {
    if (!call->training) return 1.0f;
    return ups_drop_path_keep(call->attributes, call->update->input.seed, call->update->input.item, sample);
}

/* keep * sigmoid(gate + 2), or keep where there is no gate. */
static inline const float *branch_weights(const ups_op_call *call, float keep, int64_t at, int64_t n, float *scratch,
                                          float *weights) {
    if (!ups_present(&call->inputs[2])) {
        for (int64_t i = 0; i < n; i++) weights[i] = keep;
        return weights;
    }
    const float *gate = ups_row_read(&call->inputs[2], at, n, scratch);
    for (int64_t i = 0; i < n; i++) weights[i] = keep * sigmoid(gate[i] + 2.0f);
    return weights;
}

static ups_status residual_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    enum { TOGETHER = 64 }; /* tokens, for which a branch's weights are found once more */
    const token_shape s = token_shape_of(call->output.shape);
    const int64_t stripes = ups_div_up(s.width, UPS_CHUNK), blocks = ups_div_up(s.tokens, TOGETHER);
#pragma omp parallel for num_threads(ups_threads_for(device, s.batch *s.tokens *s.width)) schedule(static) collapse(3)
    for (int64_t sample = 0; sample < s.batch; sample++) {
        for (int64_t stripe = 0; stripe < stripes; stripe++) {
            for (int64_t block = 0; block < blocks; block++) {
                float in[UPS_CHUNK], branch[UPS_CHUNK], weights[UPS_CHUNK], out[UPS_CHUNK];
                const int64_t start = stripe * UPS_CHUNK, n = ups_min(UPS_CHUNK, s.width - start);
                const int64_t first = block * TOGETHER, end = ups_min(first + TOGETHER, s.tokens);
                const float *w = branch_weights(call, keep_of(call, sample), sample * s.width + start, n, in, weights);
                for (int64_t token = first; token < end; token++) {
                    const int64_t at = (sample * s.tokens + token) * s.width + start;
                    const float *x = ups_row_read(&call->inputs[0], at, n, in);
                    const float *f = ups_row_read(&call->inputs[1], at, n, branch);
                    float *y = ups_row_target(&call->output, at, out, false);
                    for (int64_t i = 0; i < n; i++) y[i] = x[i] + w[i] * f[i];
                    ups_row_write(&call->output, at, n, y, false);
                }
            }
        }
    }
    return UPS_OK;
}

static ups_status residual_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    token_shape s = token_shape_of(call->output_gradient.shape);
    const ups_tensor *dy = &call->output_gradient, *dx = &call->input_gradients[0];
    const ups_tensor *df = &call->input_gradients[1], *dgate = &call->input_gradients[2];
    const bool wants_dx = ups_present(dx);
    const int64_t stripe_width = stripe_of(device, s.batch, s.width), stripes = ups_div_up(s.width, stripe_width);
#pragma omp parallel for num_threads(ups_threads_for(device, s.batch *s.tokens *s.width)) schedule(static) collapse(2)
    for (int64_t sample = 0; sample < s.batch; sample++) {
        for (int64_t stripe = 0; stripe < stripes; stripe++) {
            float in[COLUMNS], branch[COLUMNS], weights[COLUMNS], out[COLUMNS], sum[COLUMNS] = {0};
            int64_t start = stripe * stripe_width, n = ups_min(stripe_width, s.width - start);
            float keep = keep_of(call, sample);
            const float *w = branch_weights(call, keep, sample * s.width + start, n, in, weights);
            for (int64_t token = 0; token < s.tokens; token++) {
                int64_t at = (sample * s.tokens + token) * s.width + start;
                const float *d = ups_row_read(dy, at, n, in);
                if (wants_dx) {
                    float *to = ups_row_target(dx, at, out, call->accumulate[0]);
                    if (to != d) memcpy(to, d, (size_t)n * sizeof(float));
                    ups_row_write(dx, at, n, to, call->accumulate[0]);
                }
                if (ups_present(df)) {
                    float *to = ups_row_target(df, at, out, call->accumulate[1]);
                    for (int64_t i = 0; i < n; i++) to[i] = w[i] * d[i];
                    ups_row_write(df, at, n, to, call->accumulate[1]);
                }
                if (ups_present(dgate)) {
                    const float *f = ups_row_read(&call->inputs[1], at, n, branch);
                    for (int64_t i = 0; i < n; i++) sum[i] += d[i] * f[i];
                }
            }
            if (!ups_present(dgate)) continue;
            int64_t at = sample * s.width + start;
            const float *gate = ups_row_read(&call->inputs[2], at, n, in);
            float *to = ups_row_target(dgate, at, out, call->accumulate[2]);
            for (int64_t i = 0; i < n; i++) {
                float open = sigmoid(gate[i] + 2.0f);
                to[i] = sum[i] * keep * open * (1.0f - open);
            }
            ups_row_write(dgate, at, n, to, call->accumulate[2]);
        }
    }
    return UPS_OK;
}

/* How z repeats along x: once a token of a sample (B, 1, D), or every `period` elements. */
typedef struct repetition {
    bool per_sample;
    int64_t period;
} repetition;

static repetition repetition_of(ups_shape x, ups_shape z) {
    bool per_sample = z.rank == 3 && x.rank == 3 && z.size[1] == 1 && x.size[1] != 1;
    return (repetition){per_sample, ups_shape_elements(z)};
}

static ups_status add_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    repetition repeat = repetition_of(call->inputs[0].shape, call->inputs[1].shape);
    token_shape s = token_shape_of(call->output.shape);
    int64_t rows = s.batch * s.tokens;
#pragma omp parallel for num_threads(ups_threads_for(device, rows *s.width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float in[UPS_CHUNK], other[UPS_CHUNK], out[UPS_CHUNK];
        for (int64_t start = 0; start < s.width; start += UPS_CHUNK) {
            int64_t n = ups_min(UPS_CHUNK, s.width - start), at = row * s.width + start;
            int64_t z_at = repeat.per_sample ? row / s.tokens * s.width + start : at % repeat.period;
            const float *x = ups_row_read(&call->inputs[0], at, n, in);
            const float *z = ups_row_read(&call->inputs[1], z_at, n, other);
            float *y = ups_row_target(&call->output, at, out, false);
            for (int64_t i = 0; i < n; i++) y[i] = x[i] + z[i];
            ups_row_write(&call->output, at, n, y, false);
        }
    }
    return UPS_OK;
}

static ups_status add_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dy = &call->output_gradient, *dx = &call->input_gradients[0], *dz = &call->input_gradients[1];
    if (ups_present(dx)) pass_gradient(device, dy, dx, 1.0f, call->accumulate[0]);
    if (!ups_present(dz)) return UPS_OK;
    repetition repeat = repetition_of(dy->shape, dz->shape);
    token_shape s = token_shape_of(dy->shape);
    int64_t count = s.batch * s.tokens * s.width;
    if (repeat.period == count) {
        pass_gradient(device, dy, dz, 1.0f, call->accumulate[1]);
    } else if (repeat.per_sample) {
        sum_gradient(device, dy, dz, s.batch, s.tokens * s.width, s.tokens, s.width, s.width, call->accumulate[1]);
    } else {
        sum_gradient(device, dy, dz, 1, 0, count / repeat.period, repeat.period, repeat.period, call->accumulate[1]);
    }
    return UPS_OK;
}

static ups_status broadcast_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    int64_t period = ups_shape_elements(call->inputs[0].shape);
    for (int64_t sample = 0; sample < call->attributes->batch; sample++) {
        copy_row(&call->inputs[0], 0, &call->output, sample * period, period, false);
    }
    return UPS_OK;
}

static ups_status broadcast_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    int64_t period = ups_shape_elements(gradient->shape);
    sum_gradient(device, &call->output_gradient, gradient, 1, 0, call->attributes->batch, period, period,
                 call->accumulate[0]);
    return UPS_OK;
}

/* to (+)= factor · from · gain */
static void scale_rows(ups_device *device, const ups_op_call *call, const ups_tensor *from, const ups_tensor *to,
                       bool accumulate) {
    const float *const gain = call->inputs[1].data, factor = call->attributes->factor;
    int64_t rows = ups_shape_rows(from->shape), width = ups_shape_last(from->shape);
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        for (int64_t start = 0; start < width; start += UPS_CHUNK) {
            int64_t n = ups_min(UPS_CHUNK, width - start), at = row * width + start;
            const float *x = ups_row_read(from, at, n, in);
            float *y = ups_row_target(to, at, out, accumulate);
            for (int64_t i = 0; i < n; i++) y[i] = factor * x[i] * gain[start + i];
            ups_row_write(to, at, n, y, accumulate);
        }
    }
}

static ups_status scale_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (ups_present(&call->inputs[1]))
        scale_rows(device, call, &call->inputs[0], &call->output, false);
    else
        pass_gradient(device, &call->inputs[0], &call->output, call->attributes->factor, false);
    return UPS_OK;
}

static ups_status scale_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    if (ups_present(&call->inputs[1]))
        scale_rows(device, call, &call->output_gradient, &call->input_gradients[0], call->accumulate[0]);
    else
        pass_gradient(device, &call->output_gradient, &call->input_gradients[0], call->attributes->factor,
                      call->accumulate[0]);
    return UPS_OK;
}

static ups_status cast_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    pass_gradient(device, &call->inputs[0], &call->output, 1.0f, false);
    return UPS_OK;
}

static ups_status cast_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    pass_gradient(device, &call->output_gradient, &call->input_gradients[0], 1.0f, call->accumulate[0]);
    return UPS_OK;
}

/* A run of `inner` elements at `offset` of every `outer`-long piece: slices of the last axis, and frames, are such.
 */
typedef struct strided_slice {
    int64_t pieces, outer, offset, inner;
} strided_slice;

static strided_slice slice_of(const ups_op_call *call, ups_shape x) {
    return (strided_slice){ups_shape_rows(x), ups_shape_last(x), call->attributes->offset, call->attributes->length};
}

static strided_slice frame_of(const ups_op_call *call, ups_shape x) {
    int64_t outer = ups_shape_elements(x) / x.size[0], inner = outer / x.size[1];
    return (strided_slice){x.size[0], outer, call->attributes->frame * inner, inner};
}

static void strided_forward(ups_device *device, const ups_op_call *call, strided_slice s) {
    const ups_tensor *x = &call->inputs[0];
#pragma omp parallel for num_threads(ups_threads_for(device, s.pieces *s.inner)) schedule(static)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        copy_row(x, piece * s.outer + s.offset, &call->output, piece * s.inner, s.inner, false);
    }
}

static void strided_backward(ups_device *device, const ups_op_call *call, strided_slice s) {
    const ups_tensor *gradient = &call->input_gradients[0];
    size_t size = ups_dtype_size(gradient->dtype);
#pragma omp parallel for num_threads(ups_threads_for(device, s.pieces *s.outer)) schedule(static)
    for (int64_t piece = 0; piece < s.pieces; piece++) {
        if (!call->accumulate[0]) {
            memset((char *)gradient->data + (size_t)(piece * s.outer) * size, 0, (size_t)s.outer * size);
        }
        copy_row(&call->output_gradient, piece * s.inner, gradient, piece * s.outer + s.offset, s.inner,
                 call->accumulate[0]);
    }
}

static ups_status slice_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    strided_forward(device, call, slice_of(call, call->inputs[0].shape));
    return UPS_OK;
}
static ups_status slice_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    strided_backward(device, call, slice_of(call, call->input_gradients[0].shape));
    return UPS_OK;
}
static ups_status select_frame_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    strided_forward(device, call, frame_of(call, call->inputs[0].shape));
    return UPS_OK;
}
static ups_status select_frame_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    strided_backward(device, call, frame_of(call, call->input_gradients[0].shape));
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(modulate) = {.forward = modulate_forward, .backward = modulate_backward};
const ups_cpu_kernel UPS_CPU(residual) = {.forward = residual_forward, .backward = residual_backward};
const ups_cpu_kernel UPS_CPU(add) = {.forward = add_forward, .backward = add_backward};
const ups_cpu_kernel UPS_CPU(broadcast) = {.forward = broadcast_forward, .backward = broadcast_backward};
const ups_cpu_kernel UPS_CPU(scale) = {.forward = scale_forward, .backward = scale_backward};
const ups_cpu_kernel UPS_CPU(cast) = {.forward = cast_forward, .backward = cast_backward};
const ups_cpu_kernel UPS_CPU(slice) = {.forward = slice_forward, .backward = slice_backward};
const ups_cpu_kernel UPS_CPU(select_frame) = {.forward = select_frame_forward, .backward = select_frame_backward};
