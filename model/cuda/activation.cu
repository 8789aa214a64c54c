// GELU, SiLU, and what latents pass through: bound, round.
#include "model/cuda/approximate.cuh"
#include "model/cuda/gelu.cuh"
#include "model/cuda/reduce.cuh"

struct silu {
    static __device__ __forceinline__ float sigmoid(float x) {
        const float log2_e = 1.44269504f;
        return inverse_fast(1.0f + exp2_fast(-log2_e * x));
    }
    static __device__ float value(float x) {
        return x * sigmoid(x);
    }
    static __device__ float slope(float x) {
        float y = sigmoid(x);
        return y * (1.0f + x * (1.0f - y));
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
        raw_elements<N> raw_x = load_elements<N>(x, at), raw_dy = load_elements<N>(dy, at);
        float v[N], d[N];
        convert_elements<N>(x.dtype, raw_x, v);
        convert_elements<N>(dy.dtype, raw_dy, d);
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

// dh, and the sums of its columns as they were rounded, while they are in registers.
template <int N, bool BF16>
static __global__ void __launch_bounds__(THREADS, 4)
    gelu_gradient_with_sums(row_grid grid, elements h, elements dy, elements dh, row_sums to) {
    enum { AHEAD = BF16 ? 2 : 1 }; // rows that are on their way at once: registers have room for two of 16 bits
    if (BF16) h.dtype = dy.dtype = dh.dtype = UPS_BF16; // as they are, for the compiler to know
    to.to.dtype = UPS_F32;
    row_place at = place_in<N>(grid);
    int64_t start = element_of(grid, at, at.first), step = grid.row_lanes * grid.width;
    float sums[N] = {};
    for (int left = rows_of(grid, at); left > 0; left -= AHEAD, start += AHEAD * step) {
        raw_elements<N> raw_h[AHEAD], raw_dy[AHEAD];
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            if (r >= left) break;
            raw_h[r] = load_elements<N>(h, start + r * step);
            raw_dy[r] = load_elements<N>(dy, start + r * step);
        }
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            if (r >= left) break;
            float v[N], d[N];
            convert_elements<N>(h.dtype, raw_h[r], v);
            convert_elements<N>(dy.dtype, raw_dy[r], d);
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = d[i] * gelu::slope(v[i]);
            raw_elements<N> made = pack_elements<N>(dh.dtype, v);
            store_elements<N>(dh, start + r * step, made);
            convert_elements<N>(dh.dtype, made, v);
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += v[i];
        }
    }
    write_sums<N>(grid, at, to, sums);
    if (is_last_share(grid, at)) sum_shares<N>(grid, at, to);
}

ups_status ups_cuda_gelu_gradient(ups_device *device, const ups_tensor *h, const ups_tensor *dy, const ups_tensor *dh,
                                  float *partials, float *sums, bool accumulate, ups_error *error) {
    if (!sums) return run_backward(device, gelu(), h, dy, dh, false, error);
    int64_t rows = ups_shape_rows(h->shape), width = ups_shape_last(h->shape);
    const ups_tensor to = {sums, UPS_F32, {1, {width}}};
    bool wide = is_wide(h, width) && is_wide(dy, width) && is_wide(dh, width) && is_wide(&to, width);
    row_grid grid = row_grid_of(1, rows, width, wide ? WIDE : 1);
    let_last_block_add(device, grid);
    row_sums columns = row_sums_of(&to, accumulate, partials);
    bool bf16 = h->dtype == UPS_BF16 && dy->dtype == UPS_BF16 && dh->dtype == UPS_BF16;
    auto kernel = !wide  ? gelu_gradient_with_sums<1, false>
                  : bf16 ? gelu_gradient_with_sums<WIDE, true>
                         : gelu_gradient_with_sums<WIDE, false>;
    kernel<<<blocks_of(grid), THREADS, 0, ups_cuda_stream(device)>>>(grid, elements_of(h), elements_of(dy),
                                                                     elements_of(dh), columns);
    UPS_TRY(ups_cuda_launched("an activation's gradient", error));
    return add_shares(device, grid, columns, error);
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
