// Ops that move or combine elements one by one: modulate, residual, add, broadcast, scale, cast, slice,
// select_frame. But for the last three, a thread
// has columns of its own and walks down rows (reduce.cuh): what belongs to a column it reads once.
#include "model/cuda/reduce.cuh"
#include <initializer_list>
extern "C" {
#include "model/random/drop_path.h"
}

struct token_shape {
    int64_t batch, tokens, width;
};

// (B, T, D) of a tensor of any rank: the first axis, those between, the last.
static token_shape token_shape_of(const ups_shape &shape) {
    token_shape s = {shape.size[0], 1, ups_shape_last(shape)};
    if (shape.rank == 1) return {1, 1, shape.size[0]};
    for (int axis = 1; axis < shape.rank - 1; axis++) s.tokens *= shape.size[axis];
    return s;
}

// Of tensors that may be absent.
static bool are_wide(int64_t width, std::initializer_list<const ups_tensor *> tensors) {
    for (const ups_tensor *tensor : tensors) {
        if (is_present(tensor) && !is_wide(tensor, width)) return false;
    }
    return true;
}

// ---- cast, and gradients that pass as they are

template <int N>
static __global__ void __launch_bounds__(THREADS)
    convert_kernel(elements from, elements to, int64_t count, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        float v[N];
        read_elements<N>(from, at, v);
        write_elements<N>(to, at, v, accumulate);
    }
}

ups_status ups_cuda_convert(ups_device *device, const ups_tensor *from, const ups_tensor *to, bool accumulate,
                            ups_error *error) {
    int64_t count = ups_shape_elements(from->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements source = elements_of(from), target = elements_of(to);
    if (count == 0) return UPS_OK;
    if (is_wide(from, count) && is_wide(to, count))
        convert_kernel<WIDE><<<blocks_for(count, WIDE), THREADS, 0, stream>>>(source, target, count, accumulate);
    else
        convert_kernel<1><<<blocks_for(count, 1), THREADS, 0, stream>>>(source, target, count, accumulate);
    return ups_cuda_launched("a conversion", error);
}

// A run of `inner` elements at `offset` of every `outer`-long piece: slices of the last axis, and frames, are such.
struct strided_slice {
    int64_t outer, offset, inner;
};

static strided_slice slice_of(const ups_op_call *call, ups_shape x) {
    return {ups_shape_last(x), call->attributes->offset, call->attributes->length};
}

static strided_slice frame_of(const ups_op_call *call, ups_shape x) {
    int64_t outer = ups_shape_elements(x) / x.size[0], inner = outer / x.size[1];
    return {outer, call->attributes->frame * inner, inner};
}

static bool is_wide_slice(const strided_slice &s, const ups_tensor *whole, const ups_tensor *part) {
    return s.offset % WIDE == 0 && is_wide(whole, s.outer) && is_wide(part, s.inner);
}

template <int N>
static __global__ void __launch_bounds__(THREADS) slice_kernel(elements x, elements y, int64_t count, strided_slice s) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t piece = at / s.inner;
        float v[N];
        read_elements<N>(x, piece * s.outer + s.offset + at - piece * s.inner, v);
        write_elements<N>(y, at, v);
    }
}

// Zeros beside the slice.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    slice_gradient_kernel(elements dy, elements dx, int64_t count, strided_slice s) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t piece = at / s.outer, inside = at - piece * s.outer - s.offset;
        float v[N] = {};
        if (inside >= 0 && inside < s.inner) read_elements<N>(dy, piece * s.inner + inside, v);
        write_elements<N>(dx, at, v);
    }
}

// What is beside the slice stays.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    slice_addition_kernel(elements dy, elements dx, int64_t count, strided_slice s) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t piece = at / s.inner;
        float v[N];
        read_elements<N>(dy, at, v);
        write_elements<N>(dx, piece * s.outer + s.offset + at - piece * s.inner, v, true);
    }
}

static ups_status strided_forward(ups_device *device, const ups_op_call *call, strided_slice s, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *y = &call->output;
    int64_t count = ups_shape_elements(y->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    if (count == 0) return UPS_OK;
    if (is_wide_slice(s, x, y))
        slice_kernel<WIDE><<<blocks_for(count, WIDE), THREADS, 0, stream>>>(elements_of(x), elements_of(y), count, s);
    else slice_kernel<1><<<blocks_for(count, 1), THREADS, 0, stream>>>(elements_of(x), elements_of(y), count, s);
    return ups_cuda_launched("a slice", error);
}

static ups_status strided_backward(ups_device *device, const ups_op_call *call, strided_slice s, ups_error *error) {
    const ups_tensor *dy = &call->output_gradient, *dx = &call->input_gradients[0];
    bool wide = is_wide_slice(s, dx, dy), adds = call->accumulate[0];
    int64_t count = ups_shape_elements(adds ? dy->shape : dx->shape);
    unsigned blocks = blocks_for(count, wide ? WIDE : 1);
    cudaStream_t stream = ups_cuda_stream(device);
    elements from = elements_of(dy), to = elements_of(dx);
    if (count == 0) return UPS_OK;
    if (adds && wide) slice_addition_kernel<WIDE><<<blocks, THREADS, 0, stream>>>(from, to, count, s);
    else if (adds) slice_addition_kernel<1><<<blocks, THREADS, 0, stream>>>(from, to, count, s);
    else if (wide) slice_gradient_kernel<WIDE><<<blocks, THREADS, 0, stream>>>(from, to, count, s);
    else slice_gradient_kernel<1><<<blocks, THREADS, 0, stream>>>(from, to, count, s);
    return ups_cuda_launched("a slice's gradient", error);
}

static ups_status slice_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return strided_forward(device, call, slice_of(call, call->inputs[0].shape), error);
}

static ups_status slice_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return strided_backward(device, call, slice_of(call, call->input_gradients[0].shape), error);
}

static ups_status select_frame_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return strided_forward(device, call, frame_of(call, call->inputs[0].shape), error);
}

static ups_status select_frame_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return strided_backward(device, call, frame_of(call, call->input_gradients[0].shape), error);
}

const ups_cuda_kernel ups_cuda_slice = {slice_forward, slice_backward, nullptr};
const ups_cuda_kernel ups_cuda_select_frame = {select_frame_forward, select_frame_backward, nullptr};

static ups_status cast_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return ups_cuda_convert(device, &call->inputs[0], &call->output, false, error);
}

static ups_status cast_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return ups_cuda_convert(device, &call->output_gradient, &call->input_gradients[0], call->accumulate[0], error);
}

// ---- modulate: y = x (1 + scale) + shift, these two a row a sample

template <int N>
static __global__ void __launch_bounds__(THREADS)
    modulate_forward_kernel(row_grid grid, elements x, elements scale, elements shift, elements y) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    float by[N], plus[N];
    read_elements<N>(scale, at.group * grid.width + at.column, by);
    read_elements<N>(shift, at.group * grid.width + at.column, plus);
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes) {
        float v[N];
        read_elements<N>(x, element_of(grid, at, row), v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = v[i] * (1.0f + by[i]) + plus[i];
        write_elements<N>(y, element_of(grid, at, row), v);
    }
}

// x and scale are read for the gradients that need them.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    modulate_backward_kernel(row_grid grid, elements x, elements scale, elements dy, elements dx, bool accumulate,
                             row_sums dscale, row_sums dshift) {
    row_place at = place_in<N>(grid);
    float by[N] = {}, sum_scale[N] = {}, sum_shift[N] = {};
    if (dx.data && !at.idle) read_elements<N>(scale, at.group * grid.width + at.column, by);
    for (int64_t row = at.first; row < at.end && !at.idle; row += grid.row_lanes) {
        float d[N], v[N] = {};
        read_elements<N>(dy, element_of(grid, at, row), d);
        if (dscale.to.data) read_elements<N>(x, element_of(grid, at, row), v);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum_scale[i] += d[i] * v[i];
            sum_shift[i] += d[i];
            d[i] *= 1.0f + by[i];
        }
        if (dx.data) write_elements<N>(dx, element_of(grid, at, row), d, accumulate);
    }
    if (dscale.to.data) write_sums<N>(grid, at, dscale, sum_scale);
    if (dshift.to.data) write_sums<N>(grid, at, dshift, sum_shift);
    if (!is_last_share(grid, at)) return;
    if (dscale.to.data) sum_shares<N>(grid, at, dscale);
    if (dshift.to.data) sum_shares<N>(grid, at, dshift);
}

static ups_status modulate_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *scale = &call->inputs[1], *shift = &call->inputs[2], *y = &call->output;
    token_shape s = token_shape_of(y->shape);
    bool wide = are_wide(s.width, {x, scale, shift, y});
    row_grid grid = row_grid_of(s.batch, s.tokens, s.width, wide ? WIDE : 1);
    auto kernel = wide ? modulate_forward_kernel<WIDE> : modulate_forward_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, elements_of(x), elements_of(scale),
                                                                     elements_of(shift), elements_of(y));
    return ups_cuda_launched("modulate", error);
}

static ups_status modulate_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *scale = &call->inputs[1], *dy = &call->output_gradient;
    const ups_tensor *dx = &call->input_gradients[0], *dscale = &call->input_gradients[1],
                     *dshift = &call->input_gradients[2];
    if (!is_present(dx) && !is_present(dscale) && !is_present(dshift)) return UPS_OK;
    token_shape s = token_shape_of(dy->shape);
    float *partials = (float *)call->workspace;
    bool wide = are_wide(s.width, {x, scale, dy, dx, dscale, dshift});
    row_grid grid = row_grid_of(s.batch, s.tokens, s.width, wide ? WIDE : 1);
    let_last_block_add(device, grid);
    row_sums to_scale = row_sums_of(dscale, call->accumulate[1], partials);
    row_sums to_shift = row_sums_of(dshift, call->accumulate[2], partials + row_partials(s.batch, s.tokens, s.width));
    auto kernel = wide ? modulate_backward_kernel<WIDE> : modulate_backward_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, elements_of(x), elements_of(scale),
                                                                     elements_of(dy), elements_of(dx),
                                                                     call->accumulate[0], to_scale, to_shift);
    UPS_TRY(ups_cuda_launched("modulate's gradient", error));
    return add_shares(device, grid, to_scale, to_shift, error);
}

static ups_status modulate_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                   ups_error *error) {
    token_shape s = token_shape_of(call->output.shape);
    if (backward) kernel->workspace_bytes = (size_t)(2 * row_partials(s.batch, s.tokens, s.width)) * sizeof(float);
    return UPS_OK;
}

// ---- residual: y = x + keep sigmoid(gate + 2) branch, the gate a row a sample, keep a number a sample

// What multiplies the branch: `open` is the gate's part of it. `update` NULL: not in training.
template <int N>
static __device__ __forceinline__ float read_branch_weights(const row_grid &grid, const row_place &at, elements gate,
                                                            const ups_op_attributes &attributes,
                                                            const ups_update *update, float (&open)[N]) {
    float keep = update ? ups_drop_path_keep(&attributes, update->input.seed, update->input.item, at.group) : 1.0f;
    if (gate.data) read_elements<N>(gate, at.group * grid.width + at.column, open);
#pragma unroll
    for (int i = 0; i < N; i++) open[i] = gate.data ? 1.0f / (1.0f + expf(-(open[i] + 2.0f))) : 1.0f;
    return keep;
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    residual_forward_kernel(row_grid grid, ups_op_attributes attributes, const ups_update *update, elements x,
                            elements branch, elements gate, elements y) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    float weight[N];
    float keep = read_branch_weights<N>(grid, at, gate, attributes, update, weight);
#pragma unroll
    for (int i = 0; i < N; i++) weight[i] *= keep;
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes) {
        float v[N], f[N];
        read_elements<N>(x, element_of(grid, at, row), v);
        read_elements<N>(branch, element_of(grid, at, row), f);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += weight[i] * f[i];
        write_elements<N>(y, element_of(grid, at, row), v);
    }
}

// Where gradients go, and whether they are added.
struct gradient {
    elements to;
    bool accumulate;
};

static gradient gradient_of(const ups_op_call *call, int input) {
    return {elements_of(&call->input_gradients[input]), call->accumulate[input]};
}

// The branch is read for the gate's gradient, the gate for its own and the branch's.
template <int N>
static __global__ void __launch_bounds__(THREADS, 4) // 64 registers: with what the compiler takes by itself it spills
    residual_backward_kernel(row_grid grid, ups_op_attributes attributes, const ups_update *update, elements branch,
                             elements gate, elements dy, gradient dx, gradient df, row_sums dgate) {
    row_place at = place_in<N>(grid);
    float open[N] = {}, sums[N] = {}, keep = 0.0f;
    if (!at.idle) keep = read_branch_weights<N>(grid, at, gate, attributes, update, open);
    for (int64_t row = at.first; row < at.end && !at.idle; row += grid.row_lanes) {
        float d[N], v[N];
        read_elements<N>(dy, element_of(grid, at, row), d);
        if (dgate.to.data) {
            read_elements<N>(branch, element_of(grid, at, row), v);
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += d[i] * v[i];
        }
        if (df.to.data) {
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = keep * open[i] * d[i];
            write_elements<N>(df.to, element_of(grid, at, row), v, df.accumulate);
        }
        if (dx.to.data) write_elements<N>(dx.to, element_of(grid, at, row), d, dx.accumulate);
    }
    if (!dgate.to.data) return;
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] *= keep * open[i] * (1.0f - open[i]);
    write_sums<N>(grid, at, dgate, sums);
    if (is_last_share(grid, at)) sum_shares<N>(grid, at, dgate);
}

static const ups_update *drawn_from(const ups_op_call *call) {
    return call->training ? call->update : nullptr;
}

static ups_status residual_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *branch = &call->inputs[1], *gate = &call->inputs[2], *y = &call->output;
    token_shape s = token_shape_of(y->shape);
    bool wide = are_wide(s.width, {x, branch, gate, y});
    row_grid grid = row_grid_of(s.batch, s.tokens, s.width, wide ? WIDE : 1);
    auto kernel = wide ? residual_forward_kernel<WIDE> : residual_forward_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, *call->attributes, drawn_from(call),
                                                                     elements_of(x), elements_of(branch),
                                                                     elements_of(gate), elements_of(y));
    return ups_cuda_launched("a residual", error);
}

static ups_status residual_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *branch = &call->inputs[1], *gate = &call->inputs[2], *dy = &call->output_gradient;
    const ups_tensor *dx = &call->input_gradients[0], *df = &call->input_gradients[1],
                     *dgate = &call->input_gradients[2];
    if (!is_present(df) && !is_present(dgate))
        return is_present(dx) ? ups_cuda_convert(device, dy, dx, call->accumulate[0], error) : UPS_OK;
    token_shape s = token_shape_of(dy->shape);
    bool wide = are_wide(s.width, {branch, gate, dy, dx, df, dgate});
    row_grid grid = row_grid_of(s.batch, s.tokens, s.width, wide ? WIDE : 1);
    let_last_block_add(device, grid);
    row_sums to_gate = row_sums_of(dgate, call->accumulate[2], (float *)call->workspace);
    auto kernel = wide ? residual_backward_kernel<WIDE> : residual_backward_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(
        grid, *call->attributes, drawn_from(call), elements_of(branch), elements_of(gate), elements_of(dy),
        gradient_of(call, 0), gradient_of(call, 1), to_gate);
    UPS_TRY(ups_cuda_launched("a residual's gradient", error));
    return add_shares(device, grid, to_gate, error);
}

static ups_status residual_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                   ups_error *error) {
    token_shape s = token_shape_of(call->output.shape);
    bool gated = call->inputs[2].shape.rank > 0;
    if (backward && gated) kernel->workspace_bytes = (size_t)row_partials(s.batch, s.tokens, s.width) * sizeof(float);
    return UPS_OK;
}

// ---- add: y = x + z, z of x's shape, or repeated along it

// x as rows that z is added to: a group has one row of z.
struct repetition {
    int64_t groups, rows, width;
};

static repetition repetition_of(const ups_shape &x, const ups_shape &z) {
    token_shape s = token_shape_of(x);
    if (z.rank == 3 && x.rank == 3 && z.size[1] == 1 && x.size[1] != 1) return {s.batch, s.tokens, s.width};
    int64_t period = ups_shape_elements(z);
    return {1, ups_shape_elements(x) / period, period};
}

template <int N>
static __global__ void __launch_bounds__(THREADS) add_kernel(row_grid grid, elements x, elements z, elements y) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    float other[N];
    read_elements<N>(z, at.group * grid.width + at.column, other);
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes) {
        float v[N];
        read_elements<N>(x, element_of(grid, at, row), v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += other[i];
        write_elements<N>(y, element_of(grid, at, row), v);
    }
}

static ups_status add_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *z = &call->inputs[1], *y = &call->output;
    repetition r = repetition_of(x->shape, z->shape);
    bool wide = are_wide(r.width, {x, z, y});
    row_grid grid = row_grid_of(r.groups, r.rows, r.width, wide ? WIDE : 1);
    auto kernel = wide ? add_kernel<WIDE> : add_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, elements_of(x), elements_of(z),
                                                                     elements_of(y));
    return ups_cuda_launched("an addition", error);
}

static ups_status add_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dy = &call->output_gradient, *dx = &call->input_gradients[0], *dz = &call->input_gradients[1];
    if (is_present(dx)) UPS_TRY(ups_cuda_convert(device, dy, dx, call->accumulate[0], error));
    if (!is_present(dz)) return UPS_OK;
    repetition r = repetition_of(dy->shape, dz->shape);
    if (r.rows == 1) return ups_cuda_convert(device, dy, dz, call->accumulate[1], error);
    return sum_groups(device, dy, r.groups, r.rows, r.width, (float *)call->workspace, dz, call->accumulate[1], error);
}

static ups_status add_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                              ups_error *error) {
    repetition r = repetition_of(call->inputs[0].shape, call->inputs[1].shape);
    if (backward && r.rows > 1)
        kernel->workspace_bytes = (size_t)row_partials(r.groups, r.rows, r.width) * sizeof(float);
    return UPS_OK;
}

// ---- broadcast: a row a copy

template <int N>
static __global__ void __launch_bounds__(THREADS) broadcast_kernel(row_grid grid, elements x, elements y) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    float v[N];
    read_elements<N>(x, at.column, v);
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes)
        write_elements<N>(y, element_of(grid, at, row), v);
}

static ups_status broadcast_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *y = &call->output;
    int64_t width = ups_shape_elements(x->shape);
    bool wide = are_wide(width, {x, y});
    row_grid grid = row_grid_of(1, call->attributes->batch, width, wide ? WIDE : 1);
    auto kernel = wide ? broadcast_kernel<WIDE> : broadcast_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, elements_of(x), elements_of(y));
    return ups_cuda_launched("a broadcast", error);
}

static ups_status broadcast_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dx = &call->input_gradients[0];
    if (!is_present(dx)) return UPS_OK;
    return sum_groups(device, &call->output_gradient, 1, call->attributes->batch, ups_shape_elements(dx->shape),
                      (float *)call->workspace, dx, call->accumulate[0], error);
}

static ups_status broadcast_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                    ups_error *error) {
    int64_t width = ups_shape_elements(call->inputs[0].shape);
    if (backward) kernel->workspace_bytes = (size_t)row_partials(1, call->attributes->batch, width) * sizeof(float);
    return UPS_OK;
}

// ---- scale: y = factor x, or factor x gain

template <int N>
static __global__ void __launch_bounds__(THREADS)
    scale_kernel(row_grid grid, elements x, elements gain, float factor, elements y, bool accumulate) {
    row_place at = place_in<N>(grid);
    if (at.idle) return;
    float by[N];
    if (gain.data) read_elements<N>(gain, at.column, by);
    for (int64_t row = at.first; row < at.end; row += grid.row_lanes) {
        float v[N];
        read_elements<N>(x, element_of(grid, at, row), v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = gain.data ? factor * v[i] * by[i] : factor * v[i];
        write_elements<N>(y, element_of(grid, at, row), v, accumulate);
    }
}

static ups_status scale(ups_device *device, const ups_op_call *call, const ups_tensor *x, const ups_tensor *y,
                        bool accumulate, ups_error *error) {
    const ups_tensor *gain = &call->inputs[1];
    int64_t count = ups_shape_elements(x->shape), width = is_present(gain) ? ups_shape_last(x->shape) : count;
    bool wide = are_wide(width, {x, gain, y});
    row_grid grid = row_grid_of(1, count / width, width, wide ? WIDE : 1);
    auto kernel = wide ? scale_kernel<WIDE> : scale_kernel<1>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(
        grid, elements_of(x), elements_of(gain), call->attributes->factor, elements_of(y), accumulate);
    return ups_cuda_launched("a scale", error);
}

static ups_status scale_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return scale(device, call, &call->inputs[0], &call->output, false, error);
}

static ups_status scale_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return scale(device, call, &call->output_gradient, &call->input_gradients[0], call->accumulate[0], error);
}

const ups_cuda_kernel ups_cuda_cast = {cast_forward, cast_backward, nullptr};
const ups_cuda_kernel ups_cuda_modulate = {modulate_forward, modulate_backward, modulate_prepare};
const ups_cuda_kernel ups_cuda_residual = {residual_forward, residual_backward, residual_prepare};
const ups_cuda_kernel ups_cuda_add = {add_forward, add_backward, add_prepare};
const ups_cuda_kernel ups_cuda_broadcast = {broadcast_forward, broadcast_backward, broadcast_prepare};
const ups_cuda_kernel ups_cuda_scale = {scale_forward, scale_backward, nullptr};
