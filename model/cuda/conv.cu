// Neighborhood: every cell beside its 3^dims neighbours, so that a 3x3 convolution is this and a linear. Backward gathers as
// well: a cell receives, through each tap, the gradient of the cell that saw it through that tap.
#include "model/cuda/gather.cuh"

// Three axes always, the fastest first; those that there are not have one cell, and no neighbours.
struct cell_grid {
    int64_t size[3], cells;
    int dims, taps;
    bool periodic;
};

static cell_grid cell_grid_of(const ups_op_attributes *attributes) {
    cell_grid g = {{1, 1, 1}, 1, attributes->dims, 1, attributes->periodic};
    for (int axis = 0; axis < g.dims; axis++) {
        g.size[axis] = attributes->grid[g.dims - 1 - axis];
        g.cells *= g.size[axis];
        g.taps *= 3;
    }
    return g;
}

// Along each axis.
struct cell_place {
    int64_t sample, at[3];
};

static __device__ __forceinline__ cell_place place_of(const cell_grid &g, int64_t row) {
    cell_place p;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        int64_t rest = row / g.size[axis];
        p.at[axis] = row - rest * g.size[axis];
        row = rest;
    }
    p.sample = row;
    return p;
}

// The cell, counted over all samples, that the one at `p` sees through `tap` (direction +1), or that sees it (-1); -1 beyond a
// border of zeros. An axis of one or two periodic cells shows the same neighbour several times.
static __device__ __forceinline__ int64_t neighbour_of(const cell_grid &g, const cell_place &p, int tap, int direction) {
    int64_t result = p.sample * g.cells, stride = 1;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        if (axis >= g.dims) break;
        int64_t at = p.at[axis] + direction * (tap % 3 - 1);
        tap /= 3;
        if (at < 0 || at >= g.size[axis]) {
            if (!g.periodic) return -1;
            at += at < 0 ? g.size[axis] : -g.size[axis];
        }
        result += at * stride;
        stride *= g.size[axis];
    }
    return result;
}

// Rows are the taps of all cells.
struct neighbours_seen {
    cell_grid grid;
    template <typename TAKE> __device__ __forceinline__ void each(int64_t row, TAKE take) const {
        int64_t cell = row / grid.taps, source = neighbour_of(grid, place_of(grid, cell), (int)(row - cell * grid.taps), 1);
        if (source >= 0) take(source, 1.0f);
    }
};

// Rows are the cells, and what is summed the taps of all cells.
struct neighbours_that_see {
    cell_grid grid;
    template <typename TAKE> __device__ __forceinline__ void each(int64_t row, TAKE take) const {
        cell_place place = place_of(grid, row);
        for (int tap = 0; tap < grid.taps; tap++) {
            int64_t source = neighbour_of(grid, place, tap, -1);
            if (source >= 0) take(source * grid.taps + tap, 1.0f);
        }
    }
};

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return gather_rows(device, &call->inputs[0], &call->output, ups_shape_last(call->inputs[0].shape),
                       neighbours_seen{cell_grid_of(call->attributes)}, false, "neighborhoods", error);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    return gather_rows(device, &call->output_gradient, gradient, ups_shape_last(gradient->shape),
                       neighbours_that_see{cell_grid_of(call->attributes)}, call->accumulate[0],
                       "a neighborhood's gradient", error);
}

const ups_cuda_kernel ups_cuda_neighborhood = {forward, backward, nullptr};
