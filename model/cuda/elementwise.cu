// Ops that move elements one by one: cast.
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

static ups_status cast_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return ups_cuda_convert(device, &call->inputs[0], &call->output, false, error);
}

static ups_status cast_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return ups_cuda_convert(device, &call->output_gradient, &call->input_gradients[0], call->accumulate[0], error);
}

const ups_cuda_kernel ups_cuda_cast = {cast_forward, cast_backward, nullptr};
