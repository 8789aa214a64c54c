// Sums over rows, in two stages: blocks of rows side by side, then their sums in order.
#include "model/cuda/reduce.cuh"

static __global__ void __launch_bounds__(THREADS)
    add_partials_kernel(const float *partials, int64_t blocks, int64_t stride, int64_t width, float *to, bool accumulate) {
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= width) return;
    float sum = accumulate ? to[column] : 0.0f;
    for (int64_t block = 0; block < blocks; block++) sum += partials[block * stride + column];
    to[column] = sum;
}

ups_status add_partials(ups_device *device, const float *partials, int64_t blocks, int64_t stride, int64_t width, float *to,
                        bool accumulate, ups_error *error) {
    add_partials_kernel<<<blocks_for(width, 1), THREADS, 0, ups_cuda_stream(device)>>>(partials, blocks, stride, width, to,
                                                                                       accumulate);
    return ups_cuda_launched("sums over rows", error);
}

// A thread a column, a grid row a block of rows: neighbours read neighbours.
static __global__ void __launch_bounds__(THREADS) sum_rows_kernel(elements x, float *partials, int64_t rows, int64_t width) {
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x, block = blockIdx.y;
    if (column >= width) return;
    float sum = 0.0f;
    for (int64_t row = row_block_start(rows, gridDim.y, block); row < row_block_start(rows, gridDim.y, block + 1); row++) {
        float v[1];
        read_elements<1>(x, row * width + column, v);
        sum += v[0];
    }
    partials[block * width + column] = sum;
}

int64_t ups_cuda_column_partials(int64_t rows, int64_t width) {
    return row_blocks(rows) * width;
}

ups_status ups_cuda_sum_rows(ups_device *device, const ups_tensor *x, float *partials, float *sums, bool accumulate,
                             ups_error *error) {
    int64_t rows = ups_shape_rows(x->shape), width = ups_shape_last(x->shape), blocks = row_blocks(rows);
    dim3 grid(blocks_for(width, 1), (unsigned)blocks);
    sum_rows_kernel<<<grid, THREADS, 0, ups_cuda_stream(device)>>>(elements_of(x), partials, rows, width);
    UPS_TRY(ups_cuda_launched("sums of rows", error));
    return add_partials(device, partials, blocks, width, width, sums, accumulate, error);
}
