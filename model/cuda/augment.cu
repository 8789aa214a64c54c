// What training does to its inputs at random: noise, shifts of periodic grids, symmetries of grids. In use they copy.
#include "model/cuda/reduce.cuh"
extern "C" {
#include "model/random/augment.h"
}

// An element a thread: numbers cost far more than accesses.
static __global__ void __launch_bounds__(THREADS)
    noise_kernel(row_grid grid, ups_op_attributes attributes, const ups_update *update, elements x, const float *gain,
                 elements y) {
    row_place at = place_in<1>(grid);
    if (at.idle) return;
    uint64_t seed = update->input.seed, item = update->input.item;
    float deviation = attributes.factor * (gain ? gain[at.column] : 1.0f);
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes) {
        int64_t element = element_of(grid, at, row);
        float v[1];
        read_elements<1>(x, element, v);
        v[0] += deviation * (float)ups_noise_at(&attributes, seed, item, element);
        write_elements<1>(y, element, v);
    }
}

static ups_status noise_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *gain = &call->inputs[1], *y = &call->output;
    if (!call->training) return ups_cuda_convert(device, x, y, false, error);
    int64_t count = ups_shape_elements(y->shape), width = is_present(gain) ? ups_shape_last(y->shape) : count;
    row_grid grid = row_grid_of(1, count / width, width, 1);
    noise_kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(
        grid, *call->attributes, call->update, elements_of(x), (const float *)gain->data, elements_of(y));
    return ups_cuda_launched("noise", error);
}

static ups_status noise_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return ups_cuda_convert(device, &call->output_gradient, &call->input_gradients[0], call->accumulate[0], error);
}

// A group is a plane of cells, `layers` of them a sample. `from` is read here and written there, or read there and
// written here with `back`: each cell once.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    shift_kernel(row_grid grid, ups_op_attributes attributes, const ups_update *update, int64_t layers, elements from,
                 elements to, bool back, bool accumulate) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    int64_t shift[3];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        shift[axis] = axis < attributes.dims
                          ? ups_shift_of(&attributes, update->input.seed, update->input.item, at.group / layers, axis)
                          : 0;
    }
    for (int64_t cell = at.first; cell < at.end; cell += grid.row_lanes) {
        int64_t here = element_of(grid, at, cell),
                there = element_of(grid, at, ups_shift_cell(&attributes, shift, cell));
        float v[N];
        read_elements<N>(from, back ? there : here, v);
        write_elements<N>(to, back ? here : there, v, accumulate);
    }
}

static ups_status move(ups_device *device, const ups_op_call *call, const ups_tensor *from, const ups_tensor *to,
                       bool back, bool accumulate, ups_error *error) {
    if (!call->training) return ups_cuda_convert(device, from, to, accumulate, error);
    const ups_shape &shape = to->shape;
    int64_t samples = shape.size[0], width = ups_shape_last(shape), cells = shape.size[shape.rank - 2];
    int64_t planes = ups_shape_elements(shape) / (cells * width);
    bool wide = is_wide(from, width) && is_wide(to, width);
    row_grid grid = row_grid_of(planes, cells, width, wide ? WIDE : 1);
    auto kernel = wide ? shift_kernel<WIDE> : shift_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(
        grid, *call->attributes, call->update, planes / samples, elements_of(from), elements_of(to), back, accumulate);
    return ups_cuda_launched("a shift", error);
}

static ups_status shift_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return move(device, call, &call->inputs[0], &call->output, false, false, error);
}

static ups_status shift_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    return move(device, call, &call->output_gradient, gradient, true, call->accumulate[0], error);
}

// A number a thread: those of a cell come from a cell, in an order of their own.
static __global__ void __launch_bounds__(THREADS)
    symmetry_kernel(row_grid grid, ups_op_attributes attributes, const ups_update *update, int64_t layers,
                    int64_t symmetries, const float *x, const int32_t *source, const float2 *table, float *y) {
    row_place at = place_in<1>(grid);
    if (at.idle) return;
    const int64_t e =
        ups_symmetry_of(update->input.seed, update->input.item, at.group / layers, symmetries);
    const int64_t entry = e * grid.width + at.column;
    const float2 map = table[entry];
    const int64_t number = source[entry];
    for (int64_t cell = at.first; cell < at.end; cell += grid.row_lanes) {
        const int64_t from = ups_symmetry_from(attributes.dims, attributes.grid, e, cell);
        y[element_of(grid, at, cell)] = map.x * x[(at.group * grid.rows + from) * grid.width + number] + map.y;
    }
}

static ups_status symmetry_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *source = &call->inputs[1], *y = &call->output;
    if (!call->training) return ups_cuda_convert(device, x, y, false, error);
    const ups_shape &shape = y->shape;
    const int64_t width = ups_shape_last(shape), cells = shape.size[shape.rank - 2];
    const int64_t planes = ups_shape_elements(shape) / (cells * width);
    row_grid grid = row_grid_of(planes, cells, width, 1);
    symmetry_kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(
        grid, *call->attributes, call->update, planes / shape.size[0], source->shape.size[0], (const float *)x->data,
        (const int32_t *)source->data, (const float2 *)call->inputs[2].data, (float *)y->data);
    return ups_cuda_launched("symmetries", error);
}

// Windows come from outside.
static ups_status symmetry_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return UPS_OK;
}

const ups_cuda_kernel ups_cuda_noise = {noise_forward, noise_backward, nullptr};
const ups_cuda_kernel ups_cuda_shift = {shift_forward, shift_backward, nullptr};
const ups_cuda_kernel ups_cuda_symmetry = {symmetry_forward, symmetry_backward, nullptr};
