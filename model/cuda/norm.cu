// Layer norm and RMS norm over the last axis: a block a row, which is read once into shared memory; statistics in two
// passes there (mean, then squared deviations), as on the CPU.
//
// Backward, with h the normalised row, g = dy * gain and s = 1/sqrt(var + epsilon):
//   layer norm  dx = s (g - mean(g) - h mean(g h))      RMS norm  dx = s (g - h mean(g h))
//   dgain = sum over rows of dy h, dbias = sum over rows of dy: partial sums by block of rows, added in order.
#include "model/cuda/reduce.cuh"

enum { MOST_SHARED = 48 << 10 }; // that every kernel has without asking

template <bool CENTRED, int N>
static __global__ void __launch_bounds__(THREADS) norm_forward(elements x, const float *gain, const float *bias, elements y,
                                                               float *saved, int width, float epsilon) {
    extern __shared__ __align__(16) float in[];
    __shared__ float scratch[THREADS / 32];
    int64_t start = (int64_t)blockIdx.x * width;
    float sum = 0.0f;
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
        read_elements<N>(x, start + i, v);
#pragma unroll
        for (int j = 0; j < N; j++) sum += in[i + j] = v[j];
    }
    float mean = CENTRED ? block_sum(sum, scratch) / width : 0.0f, squares = 0.0f;
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
#pragma unroll
        for (int j = 0; j < N; j++) squares += (in[i + j] - mean) * (in[i + j] - mean);
    }
    float scale = 1.0f / sqrtf(block_sum(squares, scratch) / width + epsilon);
    if (saved && threadIdx.x == 0) {
        if (CENTRED) saved[2 * blockIdx.x] = mean, saved[2 * blockIdx.x + 1] = scale;
        else saved[blockIdx.x] = scale;
    }
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            v[j] = (in[i + j] - mean) * scale;
            if (gain) v[j] *= gain[i + j];
            if (bias) v[j] += bias[i + j];
        }
        write_elements<N>(y, start + i, v);
    }
}

// dx: a block a row. h and g stay in shared memory between the means and the result.
template <bool CENTRED, int N>
static __global__ void __launch_bounds__(THREADS) norm_backward(elements x, elements dy, const float *gain, const float *saved,
                                                                elements dx, int width, bool accumulate) {
    extern __shared__ __align__(16) float rows[];
    __shared__ float scratch[THREADS / 32];
    float *h = rows, *g = rows + width;
    int64_t start = (int64_t)blockIdx.x * width;
    float mean = CENTRED ? saved[2 * blockIdx.x] : 0.0f, scale = CENTRED ? saved[2 * blockIdx.x + 1] : saved[blockIdx.x];
    float sum_g = 0.0f, sum_gh = 0.0f;
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N], d[N];
        read_elements<N>(x, start + i, v);
        read_elements<N>(dy, start + i, d);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float normalised = (v[j] - mean) * scale, upstream = gain ? d[j] * gain[i + j] : d[j];
            h[i + j] = normalised;
            g[i + j] = upstream;
            sum_g += upstream;
            sum_gh += upstream * normalised;
        }
    }
    float mean_g = CENTRED ? block_sum(sum_g, scratch) / width : 0.0f, mean_gh = block_sum(sum_gh, scratch) / width;
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = scale * (g[i + j] - mean_g - h[i + j] * mean_gh);
        write_elements<N>(dx, start + i, v, accumulate);
    }
}

// Partial sums of dgain and dbias: a thread a column, a grid row a block of rows. Block b has 2 width floats.
template <bool CENTRED>
static __global__ void __launch_bounds__(THREADS)
    norm_parameters(elements x, elements dy, const float *saved, float *partials, int64_t rows, int width) {
    int column = blockIdx.x * THREADS + threadIdx.x, block = blockIdx.y;
    if (column >= width) return;
    float gain = 0.0f, bias = 0.0f;
    for (int64_t row = row_block_start(rows, gridDim.y, block); row < row_block_start(rows, gridDim.y, block + 1); row++) {
        float v[1], d[1];
        read_elements<1>(x, row * width + column, v);
        read_elements<1>(dy, row * width + column, d);
        float mean = CENTRED ? saved[2 * row] : 0.0f, scale = CENTRED ? saved[2 * row + 1] : saved[row];
        gain += d[0] * (v[0] - mean) * scale;
        bias += d[0];
    }
    partials[(int64_t)2 * block * width + column] = gain;
    partials[(int64_t)(2 * block + 1) * width + column] = bias;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel, ups_error *error) {
    int64_t width = ups_shape_last(call->inputs[0].shape), rows = ups_shape_rows(call->inputs[0].shape);
    enum { SCRATCH = 1024 }; // beside the rows: the kernels' own
    int64_t widest = (MOST_SHARED - SCRATCH) / (int64_t)sizeof(float) / (backward ? 2 : 1);
    if (width > widest) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "norms of rows of %lld elements: on CUDA they have at most %lld",
                        (long long)width, (long long)widest);
    }
    kernel->workspace_bytes = backward ? (size_t)(2 * row_blocks(rows) * width) * sizeof(float) : 0;
    return UPS_OK;
}

template <bool CENTRED>
static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *y = &call->output;
    const float *gain = (const float *)call->inputs[1].data, *bias = CENTRED ? (const float *)call->inputs[2].data : nullptr;
    float *saved = (float *)call->saved[0].data;
    int width = (int)ups_shape_last(x->shape);
    unsigned rows = (unsigned)ups_shape_rows(x->shape);
    size_t shared = (size_t)width * sizeof(float);
    cudaStream_t stream = ups_cuda_stream(device);
    float epsilon = call->attributes->epsilon;
    if (is_wide(x, width) && is_wide(y, width))
        norm_forward<CENTRED, WIDE>
            <<<rows, THREADS, shared, stream>>>(elements_of(x), gain, bias, elements_of(y), saved, width, epsilon);
    else
        norm_forward<CENTRED, 1>
            <<<rows, THREADS, shared, stream>>>(elements_of(x), gain, bias, elements_of(y), saved, width, epsilon);
    return ups_cuda_launched("a norm", error);
}

template <bool CENTRED>
static ups_status backward_input(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dy = &call->output_gradient, *dx = &call->input_gradients[0];
    const float *gain = (const float *)call->inputs[1].data, *saved = (const float *)call->saved[0].data;
    int width = (int)ups_shape_last(x->shape);
    unsigned rows = (unsigned)ups_shape_rows(x->shape);
    size_t shared = (size_t)width * 2 * sizeof(float);
    cudaStream_t stream = ups_cuda_stream(device);
    bool accumulate = call->accumulate[0];
    if (is_wide(x, width) && is_wide(dy, width) && is_wide(dx, width))
        norm_backward<CENTRED, WIDE><<<rows, THREADS, shared, stream>>>(elements_of(x), elements_of(dy), gain, saved,
                                                                        elements_of(dx), width, accumulate);
    else
        norm_backward<CENTRED, 1><<<rows, THREADS, shared, stream>>>(elements_of(x), elements_of(dy), gain, saved,
                                                                     elements_of(dx), width, accumulate);
    return ups_cuda_launched("a norm's gradient", error);
}

template <bool CENTRED>
static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dy = &call->output_gradient;
    int64_t rows = ups_shape_rows(x->shape), width = ups_shape_last(x->shape), blocks = row_blocks(rows);
    float *dgain = (float *)call->input_gradients[1].data;
    float *dbias = CENTRED ? (float *)call->input_gradients[2].data : nullptr, *partials = (float *)call->workspace;
    if (is_present(&call->input_gradients[0])) UPS_TRY(backward_input<CENTRED>(device, call, error));
    if (!dgain && !dbias) return UPS_OK;
    dim3 grid(blocks_for(width, 1), (unsigned)blocks);
    norm_parameters<CENTRED><<<grid, THREADS, 0, ups_cuda_stream(device)>>>(
        elements_of(x), elements_of(dy), (const float *)call->saved[0].data, partials, rows, (int)width);
    UPS_TRY(ups_cuda_launched("a norm's gradient", error));
    if (dgain)
        UPS_TRY(add_partials(device, partials, blocks, 2 * width, width, dgain, call->accumulate[1], error));
    if (dbias)
        UPS_TRY(add_partials(device, partials + width, blocks, 2 * width, width, dbias, call->accumulate[2], error));
    return UPS_OK;
}

const ups_cuda_kernel ups_cuda_layer_norm = {forward<true>, backward<true>, prepare};
const ups_cuda_kernel ups_cuda_rms_norm = {forward<false>, backward<false>, prepare};
