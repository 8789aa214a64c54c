// Rows that are weighted sums of rows: neighbours of a grid's cells, pairs of cells, windows of tokens, in both directions. A
// map says of which rows a row is the sum, by arithmetic, always in the same order: two runs give the same bits.
#pragma once
#include "model/cuda/elements.cuh"

// Rows [0, rows) of `to`, each of `width` elements. map.each(row, take) calls take(source, weight) for each row of `from` that
// the row is a sum of.
// Four blocks a processor leave registers enough for any map; without a number the compiler spills some.
template <int N, typename MAP>
static __global__ void __launch_bounds__(THREADS, 4)
    gather_rows_kernel(elements from, elements to, int64_t rows, int64_t width, MAP map, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < rows * width; at += stride) {
        int64_t row = at / width, column = at - row * width;
        float sum[N] = {};
        map.each(row, [&](int64_t source, float weight) {
            float v[N];
            read_elements<N>(from, source * width + column, v);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += weight * v[i];
        });
        write_elements<N>(to, at, sum, accumulate);
    }
}

// `what` names the op in an error.
template <typename MAP>
static ups_status gather_rows(ups_device *device, const ups_tensor *from, const ups_tensor *to, int64_t width, MAP map,
                              bool accumulate, const char *what, ups_error *error) {
    int64_t count = ups_shape_elements(to->shape), rows = width ? count / width : 0;
    cudaStream_t stream = ups_cuda_stream(device);
    elements in = elements_of(from), out = elements_of(to);
    if (count == 0) return UPS_OK;
    if (is_wide(from, width) && is_wide(to, width))
        gather_rows_kernel<WIDE>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(in, out, rows, width, map, accumulate);
    else
        gather_rows_kernel<1><<<blocks_for(count, 1), THREADS, 0, stream>>>(in, out, rows, width, map, accumulate);
    return ups_cuda_launched(what, error);
}
