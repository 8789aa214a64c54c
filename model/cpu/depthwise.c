/* Depthwise convolution over the cells of a grid.
 *
 * Some channels of a sample are taken at a time: their cells are copied into scratch with a border of zeros, or of
 * what lies on the other side, so that the innermost loops know no border. There the sums of a few neighbouring cells
 * stay in registers, and a cell that was loaded serves all of them. The gradient to the input is the same with the
 * kernel turned round; that to the weight is summed by sample, and samples are added in order. */
#include "model/cpu/vector.h"

enum { MAX_WIDTH = 4 * UPS_LANES, MAX_SIZE = 7 };
#if defined(__AVX512F__)
enum { TOGETHER = 8 }; /* cells, whose sums and what they see fit the registers */
#else
enum { TOGETHER = 4 };
#endif

/* Axes that there are not have one cell, and come first. */
typedef struct depthwise {
    int64_t batch, tokens, channels;
    int64_t width, chunks;                          /* channels taken at a time, whole vectors, and how often */
    int64_t cells[3], size[3], reach[3], padded[3]; /* padded: cells with the border; of the last axis a few more */
    int64_t taps, block;                            /* block: floats of the padded cells */
    bool periodic;
} depthwise;

static depthwise depthwise_of(const ups_op_call *call) {
    const ups_op_attributes *a = call->attributes;
    const ups_shape *x = &call->inputs[0].shape;
    depthwise d = {.batch = x->size[0], .tokens = x->size[1], .channels = x->size[2], .taps = 1};
    d.width = ups_min(MAX_WIDTH, ups_div_up(d.channels, UPS_LANES) * UPS_LANES);
    d.chunks = ups_div_up(d.channels, d.width);
    d.block = d.width;
    d.periodic = a->periodic;
    for (int axis = 0; axis < 3; axis++) {
        int from = axis - (3 - a->dims);
        d.cells[axis] = from < 0 ? 1 : a->grid[from];
        d.size[axis] = from < 0 ? 1 : a->patch[from];
        d.reach[axis] = d.size[axis] / 2;
        d.padded[axis] = d.cells[axis] + 2 * d.reach[axis] + (axis == 2 ? TOGETHER - 1 : 0);
        d.taps *= d.size[axis];
        d.block *= d.padded[axis];
    }
    return d;
}

static inline int64_t line_floats(const depthwise *d) {
    return (d->cells[2] + TOGETHER) * d->width;
}

/* A thread's: padded cells of the input and of the gradient, the kernel, a line of results. */
static inline int64_t thread_floats(const depthwise *d) {
    return 2 * d->block + d->taps * d->width + line_floats(d);
}

static size_t workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    depthwise d = depthwise_of(call);
    int64_t partials = backward ? d.batch * d.taps * d.channels : 0;
    return (size_t)(ups_cpu_threads(device) * thread_floats(&d) + partials) * sizeof(float);
}

/* ---- cells --------------------------------------------------------------------------------------------------------
 */

/* Where a padded place lies on an axis, or −1 beyond a border of zeros. */
static inline int64_t inside(const depthwise *d, int axis, int64_t place) {
    int64_t at = place - d->reach[axis], n = d->cells[axis];
    if (at >= 0 && at < n) return at;
    return d->periodic ? (at % n + n) % n : -1;
}

/* `n` channels of a cell as float32, and zeros up to `width`. */
static inline void read_cell(const ups_tensor *tensor, int64_t at, int64_t n, int64_t width, float *restrict to) {
    const float *from = ups_row_read(tensor, at, n, to);
    if (from != to) memcpy(to, from, (size_t)n * sizeof(float));
    for (int64_t i = n; i < width; i++) to[i] = 0.0f;
}

static void read_block(const depthwise *d, const ups_tensor *tensor, int64_t sample, int64_t chunk, float *to) {
    const int64_t first = chunk * d->width, n = ups_min(d->width, d->channels - first);
    const int64_t row = d->padded[2] * d->width, behind = d->cells[2] + d->reach[2];
    for (int64_t u = 0; u < d->padded[0]; u++) {
        for (int64_t v = 0; v < d->padded[1]; v++, to += row) {
            int64_t a = inside(d, 0, u), b = inside(d, 1, v);
            if (a < 0 || b < 0) {
                memset(to, 0, (size_t)row * sizeof(float));
                continue;
            }
            int64_t at = (sample * d->tokens + (a * d->cells[1] + b) * d->cells[2]) * d->channels + first;
            for (int64_t w = d->reach[2]; w < behind; w++)
                read_cell(tensor, at + (w - d->reach[2]) * d->channels, n, d->width, to + w * d->width);
            for (int64_t w = 0; w < d->padded[2]; w++) {
                if (w >= d->reach[2] && w < behind) continue;
                int64_t c = inside(d, 2, w);
                if (c < 0)
                    memset(to + w * d->width, 0, d->width * sizeof(float));
                else
                    memcpy(to + w * d->width, to + (c + d->reach[2]) * d->width, d->width * sizeof(float));
            }
        }
    }
}

static inline void write_cell(const ups_tensor *tensor, int64_t at, int64_t n, float *values, bool accumulate) {
    float *to = ups_row_target(tensor, at, values, accumulate);
    if (to != values) memcpy(to, values, (size_t)n * sizeof(float));
    ups_row_write(tensor, at, n, to, accumulate);
}

/* The kernel of a chunk, (taps, width); `turned`: its last tap first. */
static void read_kernel(const depthwise *d, const float *weight, int64_t chunk, bool turned, float *to) {
    const int64_t first = chunk * d->width, n = ups_min(d->width, d->channels - first);
    for (int64_t tap = 0; tap < d->taps; tap++, to += d->width) {
        const float *from = weight + (turned ? d->taps - 1 - tap : tap) * d->channels + first;
        for (int64_t i = 0; i < d->width; i++) to[i] = i < n ? from[i] : 0.0f;
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------------------
 */

/* Padded cells of line (u, v) of the results, seen through the kernel's line (a, b). */
static inline const float *seen(const depthwise *d, const float *block, int64_t u, int64_t v, int64_t a, int64_t b) {
    return block + ((u + a) * d->padded[1] + v + b) * d->padded[2] * d->width;
}

/* Line (u, v) of the results; `size`: the kernel's along the line. */
static inline __attribute__((always_inline)) void convolve_line(const int size, const depthwise *d, const float *block,
                                                                const float *kernel, int64_t u, int64_t v, float *to) {
    for (int64_t cell = 0; cell < d->cells[2]; cell += TOGETHER) {
        for (int64_t at = 0; at < d->width; at += UPS_VECTOR) {
            f32v sum[TOGETHER];
            for (int i = 0; i < TOGETHER; i++) sum[i] = (f32v){0};
            const float *w = kernel + at;
            for (int64_t a = 0; a < d->size[0]; a++) {
                for (int64_t b = 0; b < d->size[1]; b++, w += size * d->width) {
                    const float *x = seen(d, block, u, v, a, b) + cell * d->width + at;
                    f32v loaded[TOGETHER + MAX_SIZE - 1];
#pragma GCC unroll 16
                    for (int i = 0; i < TOGETHER + size - 1; i++) loaded[i] = f32v_load(x + i * d->width);
#pragma GCC unroll 8
                    for (int tap = 0; tap < size; tap++) {
                        f32v weight = f32v_load(w + tap * d->width);
#pragma GCC unroll 8
                        for (int i = 0; i < TOGETHER; i++) sum[i] += loaded[i + tap] * weight;
                    }
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < TOGETHER; i++) f32v_store(to + (cell + i) * d->width + at, sum[i]);
        }
    }
}

static void convolve(const depthwise *d, const float *block, const float *kernel, int64_t sample, int64_t chunk,
                     const ups_tensor *result, bool accumulate, float *line) {
    const int64_t first = chunk * d->width, n = ups_min(d->width, d->channels - first);
    for (int64_t u = 0; u < d->cells[0]; u++) {
        for (int64_t v = 0; v < d->cells[1]; v++) {
            if (d->size[2] == 3) convolve_line(3, d, block, kernel, u, v, line);
            if (d->size[2] == 5) convolve_line(5, d, block, kernel, u, v, line);
            if (d->size[2] == 7) convolve_line(7, d, block, kernel, u, v, line);
            int64_t at = (sample * d->tokens + (u * d->cells[1] + v) * d->cells[2]) * d->channels + first;
            for (int64_t cell = 0; cell < d->cells[2]; cell++)
                write_cell(result, at + cell * d->channels, n, line + cell * d->width, accumulate);
        }
    }
}

/* Σ over cells of input · gradient for the taps of one line of the kernel. */
static inline __attribute__((always_inline)) void weigh_line(const int size, const depthwise *d, const float *x,
                                                             const float *dy, int64_t a, int64_t b, int64_t n,
                                                             float *partial) {
    for (int64_t at = 0; at < d->width; at += UPS_VECTOR) {
        f32v sum[MAX_SIZE], other[MAX_SIZE]; /* of even and of odd cells: enough sums that none waits for itself */
#pragma GCC unroll 8
        for (int tap = 0; tap < size; tap++) sum[tap] = other[tap] = (f32v){0};
        for (int64_t u = 0; u < d->cells[0]; u++) {
            for (int64_t v = 0; v < d->cells[1]; v++) {
                const float *from = seen(d, x, u, v, a, b) + at;
                const float *own = seen(d, dy, u, v, d->reach[0], d->reach[1]) + d->reach[2] * d->width;
                own += at;
                int64_t cell = 0;
                for (; cell + 2 <= d->cells[2]; cell += 2, from += 2 * d->width, own += 2 * d->width) {
                    f32v gradient = f32v_load(own), next = f32v_load(own + d->width), loaded[MAX_SIZE + 1];
#pragma GCC unroll 8
                    for (int tap = 0; tap <= size; tap++) loaded[tap] = f32v_load(from + tap * d->width);
#pragma GCC unroll 8
                    for (int tap = 0; tap < size; tap++) {
                        sum[tap] += loaded[tap] * gradient;
                        other[tap] += loaded[tap + 1] * next;
                    }
                }
                if (cell == d->cells[2]) continue;
                f32v gradient = f32v_load(own);
#pragma GCC unroll 8
                for (int tap = 0; tap < size; tap++) sum[tap] += f32v_load(from + tap * d->width) * gradient;
            }
        }
        for (int tap = 0; tap < size; tap++) {
            float lanes[UPS_VECTOR];
            f32v_store(lanes, sum[tap] + other[tap]);
            float *to = partial + ((a * d->size[1] + b) * size + tap) * d->channels;
            for (int i = 0; i < UPS_VECTOR && at + i < n; i++) to[at + i] = lanes[i];
        }
    }
}

/* Into (taps, channels) of the sample, from the chunk's first channel on. */
static void weigh(const depthwise *d, const float *x, const float *dy, int64_t n, float *partial) {
    for (int64_t a = 0; a < d->size[0]; a++) {
        for (int64_t b = 0; b < d->size[1]; b++) {
            if (d->size[2] == 3) weigh_line(3, d, x, dy, a, b, n, partial);
            if (d->size[2] == 5) weigh_line(5, d, x, dy, a, b, n, partial);
            if (d->size[2] == 7) weigh_line(7, d, x, dy, a, b, n, partial);
        }
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------
 */

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const depthwise d = depthwise_of(call);
    const int64_t each = thread_floats(&d);
#pragma omp parallel for num_threads(ups_threads_for(device, d.batch *d.tokens *d.channels)) schedule(static)
    for (int64_t item = 0; item < d.batch * d.chunks; item++) {
        int64_t sample = item / d.chunks, chunk = item % d.chunks;
        float *x = (float *)call->workspace + omp_get_thread_num() * each, *kernel = x + 2 * d.block;
        read_block(&d, &call->inputs[0], sample, chunk, x);
        read_kernel(&d, call->inputs[1].data, chunk, false, kernel);
        convolve(&d, x, kernel, sample, chunk, &call->output, false, kernel + d.taps * d.width);
    }
    return UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const depthwise d = depthwise_of(call);
    const int64_t each = thread_floats(&d);
    const ups_tensor *const dx = &call->input_gradients[0], *const dw = &call->input_gradients[1];
    float *const partials = (float *)call->workspace + ups_cpu_threads(device) * each;
#pragma omp parallel for num_threads(ups_threads_for(device, d.batch *d.tokens *d.channels)) schedule(static)
    for (int64_t item = 0; item < d.batch * d.chunks; item++) {
        int64_t sample = item / d.chunks, chunk = item % d.chunks;
        float *dy = (float *)call->workspace + omp_get_thread_num() * each, *x = dy + d.block;
        float *kernel = x + d.block;
        read_block(&d, &call->output_gradient, sample, chunk, dy);
        if (ups_present(dw)) {
            read_block(&d, &call->inputs[0], sample, chunk, x);
            weigh(&d, x, dy, ups_min(d.width, d.channels - chunk * d.width),
                  partials + sample * d.taps * d.channels + chunk * d.width);
        }
        if (!ups_present(dx)) continue;
        read_kernel(&d, call->inputs[1].data, chunk, true, kernel);
        convolve(&d, dy, kernel, sample, chunk, dx, call->accumulate[0], kernel + d.taps * d.width);
    }
    if (ups_present(dw)) {
        int64_t count = d.taps * d.channels;
        ups_add_partials(partials, d.batch, count, count, dw->data, call->accumulate[1]);
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(depthwise) = {.workspace = workspace, .forward = forward, .backward = backward};
