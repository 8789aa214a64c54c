// Sums over rows, in two stages: blocks of rows side by side, then their sums, by the last of few blocks or a launch.
#include "model/cuda/reduce.cuh"

// to[g, c] (+)= sum over blocks of partials[(g blocks + block) stride + c], c < width: a lane adds every LANES-th,
// then lanes are added in pairs. A block has COLUMNS columns of a group, of `first` or, in the grid's second row, of
// `second`.
template <unsigned COLUMNS>
static __global__ void __launch_bounds__(THREADS)
    add_partials_kernel(row_sums first, row_sums second, int64_t blocks, int64_t stride, int64_t width) {
    enum { LANES = THREADS / COLUMNS };
    __shared__ float sums[THREADS];
    const bool of_second = blockIdx.y > 0;
    const float *partials = of_second ? second.partials : first.partials;
    const elements to = {of_second ? second.to.data : first.to.data, of_second ? second.to.dtype : first.to.dtype};
    unsigned stripes = (unsigned)((width + COLUMNS - 1) / COLUMNS), lane = threadIdx.x / COLUMNS;
    int64_t group = blockIdx.x / stripes, column = (int64_t)(blockIdx.x % stripes) * COLUMNS + threadIdx.x % COLUMNS;
    float sum = 0.0f;
    if (column < width) {
        const float *from = partials + group * blocks * stride + column;
#pragma unroll 8
        for (int64_t block = lane; block < blocks; block += LANES) sum += from[block * stride];
    }
    sums[threadIdx.x] = sum;
#pragma unroll
    for (unsigned half = LANES / 2; half; half /= 2) {
        __syncthreads();
        if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + half * COLUMNS];
    }
    if (lane > 0 || column >= width) return;
    float total[1] = {sums[threadIdx.x]};
    write_elements<1>(to, group * width + column, total, of_second ? second.accumulate : first.accumulate);
}

// Where partial sums are many, a lane would wait for memory several times: there are more lanes then, of as few columns
// as a sector of memory holds.
static ups_status add(ups_device *device, const row_sums &first, const row_sums *second, int64_t groups, int64_t blocks,
                      int64_t stride, int64_t width, ups_error *error) {
    enum { FEW = 64, FEW_COLUMNS = 32, MANY_COLUMNS = 8 };
    const int64_t columns = blocks <= FEW ? FEW_COLUMNS : MANY_COLUMNS;
    const dim3 grid((unsigned)(groups * ((width + columns - 1) / columns)), second ? 2 : 1);
    auto kernel = blocks <= FEW ? add_partials_kernel<FEW_COLUMNS> : add_partials_kernel<MANY_COLUMNS>;
    kernel<<<grid, THREADS, 0, ups_cuda_stream(device)>>>(first, second ? *second : first, blocks, stride, width);
    return ups_cuda_launched("sums over rows", error);
}

ups_status add_partials(ups_device *device, const float *partials, int64_t blocks, int64_t stride, int64_t width,
                        float *to, bool accumulate, ups_error *error) {
    const row_sums sums = {(float *)partials, {to, UPS_F32}, accumulate}; // which are only read
    return add(device, sums, nullptr, 1, blocks, stride, width, error);
}

ups_status add_shares(ups_device *device, const row_grid &grid, const row_sums &to, ups_error *error) {
    if (grid.shares == 1 || grid.tickets || !to.to.data) return UPS_OK;
    return add(device, to, nullptr, grid.groups, grid.shares, grid.width, grid.width, error);
}

ups_status add_shares(ups_device *device, const row_grid &grid, const row_sums &first, const row_sums &second,
                      ups_error *error) {
    if (!first.to.data || !second.to.data) return add_shares(device, grid, first.to.data ? first : second, error);
    if (grid.shares == 1 || grid.tickets) return UPS_OK;
    return add(device, first, &second, grid.groups, grid.shares, grid.width, grid.width, error);
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
    if (is_last_share(grid, at)) sum_shares<N>(grid, at, to);
}

ups_status sum_groups(ups_device *device, const ups_tensor *x, int64_t groups, int64_t rows, int64_t width,
                      float *partials, const ups_tensor *to, bool accumulate, ups_error *error) {
    bool wide = is_wide(x, width) && is_wide(to, width);
    row_grid grid = row_grid_of(groups, rows, width, wide ? WIDE : 1);
    let_last_block_add(device, grid);
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
