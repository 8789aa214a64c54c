// Ops that move elements one by one: cast, slice, select_frame.
#include "model/cuda/elements.cuh"

template <int N>
static __global__ void __launch_bounds__(THREADS) convert_kernel(elements from, elements to, int64_t count, bool accumulate) {
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
    else convert_kernel<1><<<blocks_for(count, 1), THREADS, 0, stream>>>(source, target, count, accumulate);
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

const ups_cuda_kernel ups_cuda_cast = {cast_forward, cast_backward, nullptr};
