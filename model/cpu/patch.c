/* From fields to tokens and back: patchify, gather_points, pool_tokens, read_patches, weigh, fourier, angles.
 *
 * Fields are float32, (B, points * C), channels first (C, points) or last (points, C). What is written to tokens or
 * read from them by element is inlined once a dtype, so that its loops do not ask for it. */
#include "model/cpu/vector.h"

/* Element of a sample's field at `point`, channel `c`. */
static inline int64_t field_at(bool channels_first, int64_t points, int64_t channels, int64_t point, int64_t c) {
    return channels_first ? c * points + point : point * channels + c;
}

static inline float element(const void *data, ups_dtype dtype, int64_t at) {
    if (dtype == UPS_F32) return ((const float *)data)[at];
    return ups_f32_of_half(dtype, ((const uint16_t *)data)[at]);
}

static inline void set_element(void *data, ups_dtype dtype, int64_t at, float value) {
    if (dtype == UPS_F32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = ups_half_of_f32(dtype, value);
}

#define BY_DTYPE(dtype, run, ...)                                                                                      \
    ((dtype) == UPS_F32    ? run(__VA_ARGS__, UPS_F32)                                                                 \
     : (dtype) == UPS_BF16 ? run(__VA_ARGS__, UPS_BF16)                                                                \
                           : run(__VA_ARGS__, UPS_F16))

/* mean and 1/std of a channel; 0 and 1 where there are no statistics. */
static inline float mean_of(const float *statistics, int64_t c) {
    return statistics ? statistics[2 * c] : 0.0f;
}
static inline float inverse_std_of(const float *statistics, int64_t c) {
    return statistics ? statistics[2 * c + 1] : 1.0f;
}

typedef struct patches {
    int dims;
    int64_t grid[3], patch[3], cells[3]; /* three axes always: missing ones are of size 1, in front */
    int64_t points, count, patch_points, channels;
} patches;

static patches patches_of(const ups_op_attributes *a) {
    patches p = {.dims = a->dims, .points = 1, .count = 1, .patch_points = 1, .channels = a->channels};
    for (int axis = 0; axis < 3; axis++) {
        int given = axis - (3 - a->dims);
        p.grid[axis] = given < 0 ? 1 : a->grid[given];
        p.patch[axis] = given < 0 ? 1 : a->patch[given];
        p.cells[axis] = ups_div_up(p.grid[axis], p.patch[axis]);
        p.points *= p.grid[axis];
        p.count *= p.cells[axis];
        p.patch_points *= p.patch[axis];
    }
    return p;
}

/* Where a patch begins on each axis. */
static inline void corner_of(const patches *p, int64_t cell, int64_t corner[3]) {
    for (int axis = 2; axis >= 0; axis--) {
        corner[axis] = cell % p->cells[axis] * p->patch[axis];
        cell /= p->cells[axis];
    }
}

/* The grid point before the line (z, y) of a patch: line + x is on it. Beyond the end of an axis is its last point. */
static inline int64_t line_of(const patches *p, const int64_t corner[3], int64_t z, int64_t y) {
    int64_t line = ups_min(corner[0] + z, p->grid[0] - 1) * p->grid[1] + ups_min(corner[1] + y, p->grid[1] - 1);
    return line * p->grid[2];
}

static inline __attribute__((always_inline)) void patch_row(const ups_op_call *call, const patches *p, int64_t row,
                                                            ups_dtype dtype) {
    const bool channels_first = call->attributes->channels_first;
    const float *statistics = call->inputs[1].data;
    const float *field = (const float *)call->inputs[0].data + row / p->count * p->points * p->channels;
    void *const tokens = call->output.data;
    int64_t corner[3], out = row * p->patch_points * p->channels;
    corner_of(p, row % p->count, corner);
    for (int64_t zy = 0; zy < p->patch[0] * p->patch[1]; zy++, out += p->patch[2] * p->channels) {
        int64_t line = line_of(p, corner, zy / p->patch[1], zy % p->patch[1]);
        for (int64_t c = 0; c < p->channels; c++) {
            float mean = mean_of(statistics, c), inverse_std = inverse_std_of(statistics, c);
            const float *from = field + field_at(channels_first, p->points, p->channels, line + corner[2], c);
            int64_t step = channels_first ? 1 : p->channels, there = p->grid[2] - corner[2];
            for (int64_t x = 0; x < p->patch[2]; x++) {
                float v = from[ups_min(x, there - 1) * step];
                set_element(tokens, dtype, out + x * p->channels + c, (v - mean) * inverse_std);
            }
        }
    }
}

static ups_status patchify_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    patches p = patches_of(call->attributes);
    int64_t rows = call->inputs[0].shape.size[0] * p.count, width = p.patch_points * p.channels;
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) BY_DTYPE(call->output.dtype, patch_row, call, &p, row);
    return UPS_OK;
}

/* A sample's gradient is summed in float32 by one thread, since the points at the end of an axis stand in several
 * places. */
static size_t field_workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    int64_t size = ups_shape_elements(call->inputs[0].shape) / call->inputs[0].shape.size[0];
    return backward ? (size_t)(ups_cpu_threads(device) * size) * sizeof(float) : 0;
}

static void write_field_gradient(const ups_op_call *call, int64_t sample, int64_t size, float *values) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (gradient->dtype == UPS_F32 && !call->accumulate[0]) {
        memcpy((float *)gradient->data + sample * size, values, (size_t)size * sizeof(float));
        return;
    }
    ups_row_write(gradient, sample * size, size, values, call->accumulate[0]);
}

static inline __attribute__((always_inline)) void sum_patches(const ups_op_call *call, const patches *p, int64_t sample,
                                                              float *restrict sum, ups_dtype dtype) {
    const bool channels_first = call->attributes->channels_first;
    const float *statistics = call->inputs[1].data;
    const void *const tokens = call->output_gradient.data;
    int64_t from = sample * p->count * p->patch_points * p->channels;
    for (int64_t cell = 0; cell < p->count; cell++) {
        int64_t corner[3];
        corner_of(p, cell, corner);
        for (int64_t zy = 0; zy < p->patch[0] * p->patch[1]; zy++) {
            int64_t line = line_of(p, corner, zy / p->patch[1], zy % p->patch[1]);
            for (int64_t x = 0; x < p->patch[2]; x++, from += p->channels) {
                int64_t point = line + ups_min(corner[2] + x, p->grid[2] - 1);
                for (int64_t c = 0; c < p->channels; c++) {
                    float d = element(tokens, dtype, from + c);
                    sum[field_at(channels_first, p->points, p->channels, point, c)] +=
                        d * inverse_std_of(statistics, c);
                }
            }
        }
    }
}

static ups_status patchify_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    patches p = patches_of(call->attributes);
    int64_t batch = call->input_gradients[0].shape.size[0], size = p.points * p.channels;
#pragma omp parallel for num_threads(ups_threads_for(device, batch *size)) schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        float *sum = (float *)call->workspace + omp_get_thread_num() * size;
        memset(sum, 0, (size_t)size * sizeof(float));
        BY_DTYPE(call->output_gradient.dtype, sum_patches, call, &p, sample, sum);
        write_field_gradient(call, sample, size, sum);
    }
    return UPS_OK;
}

/* A channel of a sample's field, and what its numbers are normalised by. */
typedef struct channel {
    int64_t first, step; /* where its points lie */
    float mean, inverse_std;
} channel;

static inline channel channel_of(const ups_op_call *call, int64_t points, int64_t c) {
    const ups_op_attributes *a = call->attributes;
    const float *statistics = call->inputs[2].data;
    return (channel){field_at(a->channels_first, points, a->channels, 0, c), a->channels_first ? 1 : a->channels,
                     mean_of(statistics, c), inverse_std_of(statistics, c)};
}

enum { AHEAD = 128 }; /* of a gather's numbers, which are asked for: patches lie where prefetchers do not follow */

static ups_status gather_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const int32_t *index = call->inputs[1].data;
    const int64_t batch = call->inputs[0].shape.size[0], channels = call->attributes->channels;
    const int64_t size = ups_shape_elements(call->inputs[0].shape) / batch;
    const int64_t queries = ups_shape_elements(call->inputs[1].shape), parts = ups_div_up(queries, UPS_CHUNK);
#pragma omp parallel for num_threads(ups_threads_for(device, batch *queries *channels)) schedule(static)
    for (int64_t part = 0; part < batch * parts; part++) {
        const int64_t sample = part / parts, start = part % parts * UPS_CHUNK,
                      end = ups_min(start + UPS_CHUNK, queries);
        for (int64_t c = 0; c < channels; c++) {
            const channel of = channel_of(call, size / channels, c);
            const float *restrict from = (const float *)call->inputs[0].data + sample * size + of.first;
            float *restrict to = (float *)call->output.data + sample * queries * channels + c;
            for (int64_t q = start; q < end; q++) {
                __builtin_prefetch(from + index[ups_min(q + AHEAD, queries - 1)] * of.step);
                to[q * channels] = (from[index[q] * of.step] - of.mean) * of.inverse_std;
            }
        }
    }
    return UPS_OK;
}

static ups_status gather_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const int32_t *index = call->inputs[1].data;
    const int64_t batch = gradient->shape.size[0], size = ups_shape_elements(gradient->shape) / batch;
    const int64_t queries = ups_shape_elements(call->inputs[1].shape), channels = call->attributes->channels;
    const bool in_place = gradient->dtype == UPS_F32 && !call->accumulate[0];
#pragma omp parallel for num_threads(ups_threads_for(device, batch *size)) schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        float *sum =
            in_place ? (float *)gradient->data + sample * size : (float *)call->workspace + omp_get_thread_num() * size;
        memset(sum, 0, (size_t)size * sizeof(float));
        for (int64_t c = 0; c < channels; c++) {
            const channel of = channel_of(call, size / channels, c);
            const float *restrict from = (const float *)call->output_gradient.data + sample * queries * channels + c;
            float *restrict to = sum + of.first;
            for (int64_t q = 0; q < queries; q++) {
                __builtin_prefetch(to + index[ups_min(q + AHEAD, queries - 1)] * of.step, 1);
                to[index[q] * of.step] += from[q * channels] * of.inverse_std;
            }
        }
        if (!in_place) write_field_gradient(call, sample, size, sum);
    }
    return UPS_OK;
}

/* What a query reads: up to four points along each axis, each with its weight. */
enum { MAX_TAPS = 64 };
typedef struct reading {
    int count;
    int64_t at[MAX_TAPS]; /* of a patch's numbers: its first channel */
    float weight[MAX_TAPS];
} reading;

/* Cubic convolution with a = -1/2 at t in [0, 1) between the second and the third of four points. */
static int cubic_weights(double t, float weights[4]) {
    weights[0] = (float)(t * (-0.5 + t * (1.0 - 0.5 * t)));
    weights[1] = (float)(1.0 + t * t * (-2.5 + 1.5 * t));
    weights[2] = (float)(t * (0.5 + t * (2.0 - 1.5 * t)));
    weights[3] = (float)(t * t * (-0.5 + 0.5 * t));
    return 4;
}

static int64_t within(bool periodic, int64_t index, int64_t points) {
    if (periodic) return (index % points + points) % points;
    return index < 0 ? 0 : index >= points ? points - 1 : index;
}

/* A coordinate is float32, so that one of a grid point is so only nearly. */
static const double on_the_point = 1e-3;

static void find_reading(const patches *p, bool periodic, const float *coordinates, reading *r) {
    int64_t index[3][4] = {{0}};
    float weight[3][4] = {{1.0f}, {1.0f}, {1.0f}};
    int taps[3] = {1, 1, 1};
    for (int axis = 3 - p->dims; axis < 3; axis++) {
        double place = (double)coordinates[axis - (3 - p->dims)] * (double)p->grid[axis] - 0.5;
        double nearest = nearbyint(place);
        if (fabs(place - nearest) < on_the_point) {
            index[axis][0] = within(periodic, (int64_t)nearest, p->grid[axis]);
            continue;
        }
        double before = floor(place);
        taps[axis] = cubic_weights(place - before, weight[axis]);
        for (int i = 0; i < 4; i++) index[axis][i] = within(periodic, (int64_t)before + i - 1, p->grid[axis]);
    }
    r->count = 0;
    for (int z = 0; z < taps[0]; z++) {
        for (int y = 0; y < taps[1]; y++) {
            for (int x = 0; x < taps[2]; x++, r->count++) {
                const int64_t point[] = {index[0][z], index[1][y], index[2][x]};
                int64_t cell = 0, inside = 0;
                for (int axis = 0; axis < 3; axis++) {
                    cell = cell * p->cells[axis] + point[axis] / p->patch[axis];
                    inside = inside * p->patch[axis] + point[axis] % p->patch[axis];
                }
                r->at[r->count] = (cell * p->patch_points + inside) * p->channels;
                r->weight[r->count] = weight[0][z] * weight[1][y] * weight[2][x];
            }
        }
    }
}

static ups_status read_patches_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const patches p = patches_of(call->attributes);
    const float *x = call->inputs[0].data, *coordinates = call->inputs[1].data;
    float *y = call->output.data;
    int64_t batch = call->inputs[0].shape.size[0], size = p.count * p.patch_points * p.channels;
    int64_t queries = call->inputs[1].shape.size[0];
#pragma omp parallel for num_threads(ups_threads_for(device, batch *queries *p.channels)) schedule(static)
    for (int64_t q = 0; q < queries; q++) {
        reading r;
        find_reading(&p, call->attributes->periodic, coordinates + q * p.dims, &r);
        for (int64_t b = 0; b < batch; b++) {
            float *to = y + (b * queries + q) * p.channels;
            for (int64_t c = 0; c < p.channels; c++) {
                float sum = 0.0f;
                for (int i = 0; i < r.count; i++) sum += r.weight[i] * x[b * size + r.at[i] + c];
                to[c] = sum;
            }
        }
    }
    return UPS_OK;
}

/* By sample, since points that lie near each other add to the same numbers. */
static ups_status read_patches_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *const gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const patches p = patches_of(call->attributes);
    const float *coordinates = call->inputs[1].data, *dy = call->output_gradient.data;
    float *dx = gradient->data;
    int64_t batch = gradient->shape.size[0], size = p.count * p.patch_points * p.channels;
    int64_t queries = call->inputs[1].shape.size[0];
    if (!call->accumulate[0]) memset(dx, 0, (size_t)(batch * size) * sizeof(float));
#pragma omp parallel for num_threads(ups_threads_for(device, batch *size)) schedule(static)
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t q = 0; q < queries; q++) {
            reading r;
            find_reading(&p, call->attributes->periodic, coordinates + q * p.dims, &r);
            for (int i = 0; i < r.count; i++) {
                for (int64_t c = 0; c < p.channels; c++)
                    dx[b * size + r.at[i] + c] += r.weight[i] * dy[(b * queries + q) * p.channels + c];
            }
        }
    }
    return UPS_OK;
}

/* Rows (Q·O, C) of a sample; `each`: O. */
static ups_status weigh_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const int64_t *size = call->output.shape.size, queries = size[1], channels = size[2];
    const int64_t each = call->attributes->length * channels;
    const float *x = call->inputs[0].data, *weights = call->inputs[1].data;
    float *y = call->output.data;
#pragma omp parallel for num_threads(ups_threads_for(device, size[0] * queries * each)) schedule(static)
    for (int64_t row = 0; row < size[0] * queries; row++) {
        const float *from = x + row * each, *w = weights + row % queries * each;
        float *to = y + row * channels;
        memset(to, 0, (size_t)channels * sizeof *to);
        for (int64_t o = 0; o < each; o += channels) {
            for (int64_t c = 0; c < channels; c++) to[c] += from[o + c] * w[o + c];
        }
    }
    return UPS_OK;
}

/* By query, since all samples add to its weights. */
static ups_status weigh_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const int64_t *size = call->output_gradient.shape.size, queries = size[1], channels = size[2];
    const int64_t rows = call->attributes->length, each = rows * channels;
    const float *x = call->inputs[0].data, *weights = call->inputs[1].data, *dy = call->output_gradient.data;
    float *const dx = ups_present(&call->input_gradients[0]) ? call->input_gradients[0].data : NULL;
    float *const dw = ups_present(&call->input_gradients[1]) ? call->input_gradients[1].data : NULL;
#pragma omp parallel for num_threads(ups_threads_for(device, size[0] * queries * each)) schedule(static)
    for (int64_t q = 0; q < queries; q++) {
        if (dw && !call->accumulate[1]) memset(dw + q * each, 0, (size_t)each * sizeof *dw);
        for (int64_t b = 0; b < size[0]; b++) {
            const int64_t at = (b * queries + q) * each;
            const float *d = dy + (b * queries + q) * channels;
            for (int64_t o = 0; o < each; o++) {
                if (dw) dw[q * each + o] += d[o % channels] * x[at + o];
                if (!dx) continue;
                float slope = d[o % channels] * weights[q * each + o];
                dx[at + o] = call->accumulate[0] ? dx[at + o] + slope : slope;
            }
        }
    }
    return UPS_OK;
}

/* (B, N or T, D) */
typedef struct pooling {
    int64_t batch, from, to, width;
} pooling;

static ups_status pool_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const int64_t *x = call->inputs[0].shape.size;
    pooling p = {x[0], x[1], call->output.shape.size[1], x[2]};
#pragma omp parallel for num_threads(ups_threads_for(device, p.batch *p.from *p.width)) schedule(static)
    for (int64_t row = 0; row < p.batch * p.to; row++) {
        int64_t sample = row / p.to, token = row % p.to;
        int64_t first = token * p.from / p.to, end = ups_div_up((token + 1) * p.from, p.to);
        for (int64_t start = 0; start < p.width; start += UPS_CHUNK) {
            float in[UPS_CHUNK], sum[UPS_CHUNK], out[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, p.width - start);
            memset(sum, 0, (size_t)n * sizeof(float));
            for (int64_t k = first; k < end; k++) {
                const float *v = ups_row_read(&call->inputs[0], (sample * p.from + k) * p.width + start, n, in);
                for (int64_t i = 0; i < n; i++) sum[i] += v[i];
            }
            float *y = ups_row_target(&call->output, row * p.width + start, out, false);
            for (int64_t i = 0; i < n; i++) y[i] = sum[i] / (float)(end - first);
            ups_row_write(&call->output, row * p.width + start, n, y, false);
        }
    }
    return UPS_OK;
}

/* Input token k lies in the windows of the tokens from floor(k T/N) to ceil((k + 1) T/N) - 1. */
static ups_status pool_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const int64_t *x = gradient->shape.size;
    pooling p = {x[0], x[1], call->output_gradient.shape.size[1], x[2]};
#pragma omp parallel for num_threads(ups_threads_for(device, p.batch *p.from *p.width)) schedule(static)
    for (int64_t row = 0; row < p.batch * p.from; row++) {
        int64_t sample = row / p.from, k = row % p.from;
        int64_t first = k * p.to / p.from, end = ups_div_up((k + 1) * p.to, p.from);
        for (int64_t start = 0; start < p.width; start += UPS_CHUNK) {
            float in[UPS_CHUNK], sum[UPS_CHUNK], out[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, p.width - start);
            memset(sum, 0, (size_t)n * sizeof(float));
            for (int64_t token = first; token < end; token++) {
                int64_t length = ups_div_up((token + 1) * p.from, p.to) - token * p.from / p.to;
                const float *d = ups_row_read(&call->output_gradient, (sample * p.to + token) * p.width + start, n, in);
                for (int64_t i = 0; i < n; i++) sum[i] += d[i] / (float)length;
            }
            float *to = ups_row_target(gradient, row * p.width + start, out, call->accumulate[0]);
            memcpy(to, sum, (size_t)n * sizeof(float));
            ups_row_write(gradient, row * p.width + start, n, to, call->accumulate[0]);
        }
    }
    return UPS_OK;
}

/* Features of a point: its coordinates, then for each frequency the sines and then the cosines of all coordinates. */
static ups_status fourier_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const float *coordinates = call->inputs[0].data;
    const ups_dtype dtype = call->output.dtype;
    void *const out = call->output.data;
    int64_t points = ups_shape_rows(call->inputs[0].shape), dims = ups_shape_last(call->inputs[0].shape);
    int64_t width = ups_shape_last(call->output.shape);
#pragma omp parallel for num_threads(ups_threads_for(device, points *width)) schedule(static)
    for (int64_t point = 0; point < points; point++) {
        int64_t at = point * width;
        for (int64_t d = 0; d < dims; d++) set_element(out, dtype, at + d, coordinates[point * dims + d]);
        at += dims;
        for (int f = 0; f < call->attributes->frequency_count; f++, at += 2 * dims) {
            for (int64_t d = 0; d < dims; d++) {
                double turns = (double)call->attributes->frequencies[f] * (double)coordinates[point * dims + d];
                double angle = 2.0 * M_PI * (turns - floor(turns)); /* exact for large frequencies too */
                set_element(out, dtype, at + d, (float)sin(angle));
                set_element(out, dtype, at + dims + d, (float)cos(angle));
            }
        }
    }
    return UPS_OK;
}

/* cos πkc, then sin πkc: the first by sines and cosines, the others by turning on. */
static ups_status angles_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const float *places = call->inputs[0].data;
    const int64_t points = ups_shape_rows(call->inputs[0].shape), dims = ups_shape_last(call->inputs[0].shape);
    const int64_t width = ups_shape_last(call->output.shape), pairs = width / 2, each = pairs / dims;
#pragma omp parallel for num_threads(ups_threads_for(device, points *width)) schedule(static)
    for (int64_t point = 0; point < points; point++) {
        float *to = (float *)call->output.data + point * width;
        for (int64_t axis = 0; axis < dims; axis++) {
            const double angle = M_PI * (double)places[point * dims + axis], x = cos(angle), y = sin(angle);
            double cosine = 1, sine = 0;
            for (int64_t pair = axis * each; pair < (axis + 1) * each; pair++) {
                const double before = cosine;
                cosine = before * x - sine * y;
                sine = sine * x + before * y;
                to[pair] = (float)cosine;
                to[pairs + pair] = (float)sine;
            }
        }
        for (int64_t pair = dims * each; pair < pairs; pair++) to[pair] = 1, to[pairs + pair] = 0;
    }
    return UPS_OK;
}

static ups_status no_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(patchify) = {
    .workspace = field_workspace, .forward = patchify_forward, .backward = patchify_backward};
const ups_cpu_kernel UPS_CPU(gather_points) = {
    .workspace = field_workspace, .forward = gather_forward, .backward = gather_backward};
const ups_cpu_kernel UPS_CPU(pool_tokens) = {.forward = pool_forward, .backward = pool_backward};
const ups_cpu_kernel UPS_CPU(fourier) = {.forward = fourier_forward, .backward = no_backward};
const ups_cpu_kernel UPS_CPU(angles) = {.forward = angles_forward, .backward = no_backward};
const ups_cpu_kernel UPS_CPU(read_patches) = {.forward = read_patches_forward, .backward = read_patches_backward};
const ups_cpu_kernel UPS_CPU(weigh) = {.forward = weigh_forward, .backward = weigh_backward};
