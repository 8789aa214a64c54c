// GELU, SiLU, and what latents pass through: bound, round. GELU is the exact one, x Φ(x), by erff, which is accurate to
// 1e-7: a library's epilogue is the tanh approximation, and would not be what the CPU computes.
#include "model/cuda/elements.cuh"

struct gelu {
    static __device__ float value(float x) {
        return x * normcdff(x);
    }
    static __device__ float slope(float x) {
        const float inverse_root = 0.398942280f; // 1 / sqrt(2 pi)
        return normcdff(x) + x * inverse_root * expf(-0.5f * x * x);
    }
};

struct silu {
    static __device__ float value(float x) {
        return x / (1.0f + expf(-x));
    }
    static __device__ float slope(float x) {
        float sigmoid = 1.0f / (1.0f + expf(-x));
        return sigmoid * (1.0f + x * (1.0f - sigmoid));
    }
};

// b asinh(x / b), or its inverse b sinh(x / b)
struct bound {
    float b;
    bool inverse;
    __device__ float value(float x) const {
        return b * (inverse ? sinhf(x / b) : asinhf(x / b));
    }
    __device__ float slope(float x) const {
        float u = x / b;
        return inverse ? coshf(u) : 1.0f / sqrtf(1.0f + u * u);
    }
};

// To FP16 and back; its gradient passes.
struct round_f16 {
    static __device__ float value(float x) {
        return __half2float(__float2half(x));
    }
};

template <typename FUNCTION, int N>
static __global__ void __launch_bounds__(THREADS)
    activation_forward(FUNCTION function, elements x, elements y, int64_t count) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        float v[N];
        read_elements<N>(x, at, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = function.value(v[i]);
        write_elements<N>(y, at, v);
    }
}

template <typename FUNCTION, int N>
static __global__ void __launch_bounds__(THREADS)
    activation_backward(FUNCTION function, elements x, elements dy, elements dx, int64_t count, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        float v[N], d[N];
        read_elements<N>(x, at, v);
        read_elements<N>(dy, at, d);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = d[i] * function.slope(v[i]);
        write_elements<N>(dx, at, v, accumulate);
    }
}

template <typename FUNCTION>
static ups_status run_forward(ups_device *device, FUNCTION function, const ups_tensor *x, const ups_tensor *y,
                              ups_error *error) {
    int64_t count = ups_shape_elements(y->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements from = elements_of(x), to = elements_of(y);
    if (is_wide(x, count) && is_wide(y, count))
        activation_forward<FUNCTION, WIDE><<<blocks_for(count, WIDE), THREADS, 0, stream>>>(function, from, to, count);
    else
        activation_forward<FUNCTION, 1><<<blocks_for(count, 1), THREADS, 0, stream>>>(function, from, to, count);
    return ups_cuda_launched("an activation", error);
}

template <typename FUNCTION>
static ups_status run_backward(ups_device *device, FUNCTION function, const ups_tensor *x, const ups_tensor *dy,
                               const ups_tensor *dx, bool accumulate, ups_error *error) {
    if (!is_present(dx)) return UPS_OK;
    int64_t count = ups_shape_elements(dx->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements in = elements_of(x), upstream = elements_of(dy), to = elements_of(dx);
    if (is_wide(x, count) && is_wide(dy, count) && is_wide(dx, count))
        activation_backward<FUNCTION, WIDE>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(function, in, upstream, to, count, accumulate);
    else
        activation_backward<FUNCTION, 1>
            <<<blocks_for(count, 1), THREADS, 0, stream>>>(function, in, upstream, to, count, accumulate);
    return ups_cuda_launched("an activation's gradient", error);
}

ups_status ups_cuda_gelu_rows(ups_device *device, const ups_tensor *h, const ups_tensor *y, ups_error *error) {
    return run_forward(device, gelu(), h, y, error);
}

ups_status ups_cuda_gelu_gradient(ups_device *device, const ups_tensor *h, const ups_tensor *dy, const ups_tensor *dh,
                                  ups_error *error) {
    return run_backward(device, gelu(), h, dy, dh, false, error);
}

template <typename FUNCTION>
static ups_status forward(ups_device *device, const ups_op_call *call, FUNCTION function, ups_error *error) {
    return run_forward(device, function, &call->inputs[0], &call->output, error);
}

template <typename FUNCTION>
static ups_status backward(ups_device *device, const ups_op_call *call, FUNCTION function, ups_error *error) {
    return run_backward(device, function, &call->inputs[0], &call->output_gradient, &call->input_gradients[0],
                        call->accumulate[0], error);
}

template <typename FUNCTION>
static ups_status op_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return forward(device, call, FUNCTION(), error);
}

template <typename FUNCTION>
static ups_status op_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return backward(device, call, FUNCTION(), error);
}

static bound bound_of(const ups_op_call *call) {
    return {call->attributes->factor, call->attributes->inverse};
}

static ups_status bound_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return forward(device, call, bound_of(call), error);
}

static ups_status bound_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return backward(device, call, bound_of(call), error);
}

static ups_status round_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return ups_cuda_convert(device, &call->output_gradient, &call->input_gradients[0], call->accumulate[0], error);
}

const ups_cuda_kernel ups_cuda_gelu = {op_forward<gelu>, op_backward<gelu>, nullptr};
const ups_cuda_kernel ups_cuda_silu = {op_forward<silu>, op_backward<silu>, nullptr};
const ups_cuda_kernel ups_cuda_bound = {bound_forward, bound_backward, nullptr};
const ups_cuda_kernel ups_cuda_round_f16 = {op_forward<round_f16>, round_backward, nullptr};
