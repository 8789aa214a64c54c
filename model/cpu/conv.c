/* Neighborhood: every cell beside its 3^dims neighbours, so that a 3x3 convolution is this and a linear.
 *
 * Backward gathers as well: cell c receives, from each tap, the gradient of the cell that saw c through that tap. With
 * a periodic border on an axis of one or two cells a cell sees the same neighbour several times; gathering handles that
 * with no special case. */
#include "model/cpu/vector.h"

enum { MAX_TAPS = 27 };

typedef struct grid {
    int dims, taps;
    int64_t size[3], cells, channels;
    bool periodic;
} grid;

static grid grid_of(const ups_op_call *call, int64_t channels) {
    grid g = {.dims = call->attributes->dims, .taps = 1, .cells = 1, .channels = channels};
    g.periodic = call->attributes->periodic;
    for (int axis = 0; axis < g.dims; axis++) {
        g.size[axis] = call->attributes->grid[axis];
        g.cells *= g.size[axis];
        g.taps *= 3;
    }
    return g;
}

/* The cell that `cell` sees through `tap` (direction +1), or that sees it (-1); -1 beyond a border of zeros. */
static int64_t neighbour(const grid *g, int64_t cell, int tap, int direction) {
    int64_t result = 0, stride = 1;
    for (int axis = g->dims - 1; axis >= 0; axis--) {
        int64_t at = cell % g->size[axis] + direction * (tap % 3 - 1);
        cell /= g->size[axis];
        tap /= 3;
        if (at < 0 || at >= g->size[axis]) {
            if (!g->periodic) return -1;
            at = (at + g->size[axis]) % g->size[axis];
        }
        result += at * stride;
        stride *= g->size[axis];
    }
    return result;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    grid g = grid_of(call, ups_shape_last(call->inputs[0].shape));
    int64_t cells = ups_shape_rows(call->inputs[0].shape);
    size_t bytes = (size_t)g.channels * ups_dtype_size(call->output.dtype);
#pragma omp parallel for num_threads(ups_threads_for(device, cells *g.taps *g.channels)) schedule(static)
    for (int64_t row = 0; row < cells; row++) {
        int64_t sample = row / g.cells, cell = row % g.cells;
        char *to = (char *)call->output.data + (size_t)(row * g.taps) * bytes;
        for (int tap = 0; tap < g.taps; tap++, to += bytes) {
            int64_t source = neighbour(&g, cell, tap, 1);
            if (source < 0) {
                memset(to, 0, bytes);
                continue;
            }
            memcpy(to, (const char *)call->inputs[0].data + (size_t)(sample * g.cells + source) * bytes, bytes);
        }
    }
    return UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    grid g = grid_of(call, ups_shape_last(gradient->shape));
    int64_t cells = ups_shape_rows(gradient->shape);
#pragma omp parallel for num_threads(ups_threads_for(device, cells *g.taps *g.channels)) schedule(static)
    for (int64_t row = 0; row < cells; row++) {
        int64_t sample = row / g.cells, cell = row % g.cells, seen_by[MAX_TAPS];
        for (int tap = 0; tap < g.taps; tap++) seen_by[tap] = neighbour(&g, cell, tap, -1);
        for (int64_t start = 0; start < g.channels; start += UPS_CHUNK) {
            float in[UPS_CHUNK], sum[UPS_CHUNK], out[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, g.channels - start);
            memset(sum, 0, (size_t)n * sizeof(float));
            for (int tap = 0; tap < g.taps; tap++) {
                if (seen_by[tap] < 0) continue;
                int64_t at = ((sample * g.cells + seen_by[tap]) * g.taps + tap) * g.channels + start;
                const float *d = ups_row_read(&call->output_gradient, at, n, in);
                for (int64_t i = 0; i < n; i++) sum[i] += d[i];
            }
            float *to = ups_row_target(gradient, row * g.channels + start, out, call->accumulate[0]);
            memcpy(to, sum, (size_t)n * sizeof(float));
            ups_row_write(gradient, row * g.channels + start, n, to, call->accumulate[0]);
        }
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(neighborhood) = {.forward = forward, .backward = backward};
