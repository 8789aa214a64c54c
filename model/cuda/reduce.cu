// Sums over rows, in two stages: blocks of rows side by side, then their sums.
#include "model/cuda/reduce.cuh"

enum { ADD_COLUMNS = 32, ADD_LANES = THREADS / ADD_COLUMNS };

// to[g, c] (+)= sum over blocks of partials[(g blocks + block) stride + c], c < width: a lane adds every ADD_LANES-th,
// then lanes are added in order. A block has ADD_COLUMNS columns of a group.
static __global__ void __launch_bounds__(THREADS)
    add_partials_kernel(const float *partials, int64_t blocks, int64_t stride, int64_t width, elements to,
                        bool accumulate) {
    __shared__ float sums[ADD_LANES][ADD_COLUMNS];
    unsigned stripes = (unsigned)((width + ADD_COLUMNS - 1) / ADD_COLUMNS);
    unsigned column_of = threadIdx.x % ADD_COLUMNS, lane = threadIdx.x / ADD_COLUMNS;
    int64_t group = blockIdx.x / stripes, column = (int64_t)(blockIdx.x % stripes) * ADD_COLUMNS + column_of;
    float sum = 0.0f;
    if (column < width) {
        const float *from = partials + group * blocks * stride + column;
#pragma unroll 8
        for (int64_t block = lane; block < blocks; block += ADD_LANES) sum += from[block * stride];
    }
    sums[lane][column_of] = sum;
    __syncthreads();
    if (lane > 0 || column >= width) return;
    float total[1] = {0.0f};
#pragma unroll
    for (int i = 0; i < ADD_LANES; i++) total[0] += sums[i][column_of];
    write_elements<1>(to, group * width + column, total, accumulate);
}

static ups_status add(ups_device *device, const float *partials, int64_t groups, int64_t blocks, int64_t stride,
                      int64_t width, elements to, bool accumulate, ups_error *error) {
    unsigned grid = (unsigned)(groups * ((width + ADD_COLUMNS - 1) / ADD_COLUMNS));
    add_partials_kernel<<<grid, THREADS, 0, ups_cuda_stream(device)>>>(partials, blocks, stride, width, to, accumulate);
    return ups_cuda_launched("sums over rows", error);
}

ups_status add_partials(ups_device *device, const float *partials, int64_t blocks, int64_t stride, int64_t width,
                        float *to, bool accumulate, ups_error *error) {
    return add(device, partials, 1, blocks, stride, width, {to, UPS_F32}, accumulate, error);
}

ups_status add_shares(ups_device *device, const row_grid &grid, const row_sums &to, ups_error *error) {
    if (grid.shares == 1 || !to.to.data) return UPS_OK;
    return add(device, to.partials, grid.groups, grid.shares, grid.width, grid.width, to.to, to.accumulate, error);
}

template <int N>
static __global__ void __launch_bounds__(THREADS, 4) sum_groups_kernel(row_grid grid, elements x, row_sums to) {
    enum { AHEAD = 4 }; // rows that are on their way at once
    row_place at = place_in<N>(grid);
    int64_t start = element_of(grid, at, at.first), step = grid.row_lanes * grid.width;
    float sums[N] = {};
    for (int left = rows_of(grid, at); left > 0; left -= AHEAD, start += AHEAD * step) {
        raw_elements<N> raw[AHEAD];
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            if (r < left) raw[r] = load_elements<N>(x, start + r * step);
        }
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
            if (r >= left) break;
            float v[N];
            convert_elements<N>(x.dtype, raw[r], v);
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += v[i];
        }
    }
    write_sums<N>(grid, at, to, sums);
}

ups_status sum_groups(ups_device *device, const ups_tensor *x, int64_t groups, int64_t rows, int64_t width,
                      float *partials, const ups_tensor *to, bool accumulate, ups_error *error) {
    bool wide = is_wide(x, width) && is_wide(to, width);
    row_grid grid = row_grid_of(groups, rows, width, wide ? WIDE : 1);
    row_sums sums = row_sums_of(to, accumulate, partials);
    cudaStream_t stream = ups_cuda_stream(device);
    if (wide)
        sum_groups_kernel<WIDE><<<blocks_of(grid), THREADS, 0, stream>>>(grid, elements_of(x), sums);
    else
        sum_groups_kernel<1><<<blocks_of(grid), THREADS, 0, stream>>>(grid, elements_of(x), sums);
    UPS_TRY(ups_cuda_launched("sums of rows", error));
    return add_shares(device, grid, sums, error);
}

int64_t ups_cuda_column_partials(int64_t rows, int64_t width) {
    return row_partials(1, rows, width);
}

ups_status ups_cuda_sum_rows(ups_device *device, const ups_tensor *x, float *partials, float *sums, bool accumulate,
                             ups_error *error) {
    int64_t rows = ups_shape_rows(x->shape), width = ups_shape_last(x->shape);
    ups_tensor to = {sums, UPS_F32, {1, {width}}};
    return sum_groups(device, x, 1, rows, width, partials, &to, accumulate, error);
}
