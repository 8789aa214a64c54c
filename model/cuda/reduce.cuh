// Sums within a block, and over rows in an order of their own. All depend on shapes alone: two runs give the same bits.
#pragma once
#include "model/cuda/elements.cuh"

template <typename T> static __device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
    for (int by = 16; by; by >>= 1) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

// Of all THREADS threads, to all of them. `scratch`: THREADS / 32 of shared memory, free again when it returns.
template <typename T> static __device__ __forceinline__ T block_sum(T x, T *scratch) {
    enum { WARPS = THREADS / 32 };
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    __syncthreads();
    return sum;
}

enum { FULL_CARD = 1056 }; // blocks of THREADS: eight for each of an H100's 132 processors

// ---- kernels that walk down rows

// Rows of one length, those of a group (a sample) behind each other. A block has `lanes` threads side by side, each
// with N columns of its own, and `row_lanes` rows at once; the columns are divided into `stripes`, a group's rows into
// `shares`.
struct row_grid {
    int64_t groups, rows, width; // rows of a group
    unsigned lanes, row_lanes, stripes, shares;
    unsigned *tickets = nullptr; // one a group and stripe, whose last block adds the shares; NULL: a launch does
};

// As few stripes as leave at most a sixteenth of the threads without a column, or else those that leave the fewest.
static inline row_grid row_grid_of(int64_t groups, int64_t rows, int64_t width, int each) {
    enum { LEAST_ROWS = 2 /* a thread */, LEAST_LANES = 16 /* for whole lines of memory */, MOST_SHARES = 512 };
    row_grid grid = {groups, rows, width, 1, 1, 1, 1};
    int64_t columns = (width + each - 1) / each, fewest = (columns + THREADS - 1) / THREADS, stripes = fewest;
    double most = 0.0; // threads of a block that have columns
    for (int64_t tried = fewest; most < THREADS * 15.0 / 16.0; tried++) {
        int64_t lanes = (columns + tried - 1) / tried;
        double busy = (double)(THREADS / lanes * columns) / (double)tried;
        if (tried > fewest && lanes < LEAST_LANES) break;
        if (busy <= most) continue;
        most = busy, stripes = tried;
    }
    grid.stripes = (unsigned)stripes;
    grid.lanes = (unsigned)((columns + stripes - 1) / stripes);
    grid.row_lanes = THREADS / grid.lanes;
    int64_t wanted = (FULL_CARD + groups * stripes - 1) / (groups * stripes);
    int64_t possible = rows / ((int64_t)grid.row_lanes * LEAST_ROWS);
    int64_t shares = wanted < possible ? wanted : possible;
    grid.shares = (unsigned)(shares < 1 ? 1 : shares > MOST_SHARES ? MOST_SHARES : shares);
    return grid;
}

// Of a group and stripe, the block that finishes last adds the shares (is_last_share) where they are few: at most
// MOST_ADDED for each of its row lanes, 64 KB in all, which an H100's processor reads in some 0.6 us. With fence,
// ticket and memory's latency that is less than the 2 to 3 us of a second launch, but a guess. Of a large kernel's 350
// shares and more one block would read 0.7 MB, and take longer than the launch.
static inline void let_last_block_add(ups_device *device, row_grid &grid) {
    enum { MOST_ADDED = 8 };
    if (grid.shares == 1 || grid.shares > MOST_ADDED * grid.row_lanes) return;
    if (grid.groups * grid.stripes <= UPS_CUDA_TICKETS) grid.tickets = ups_cuda_tickets(device);
}

static inline unsigned blocks_of(const row_grid &grid) {
    return (unsigned)(grid.groups * grid.stripes * grid.shares);
}

// What a thread has: of rows first, first + row_lanes, … below `end` of a group, the N columns from `column` on.
struct row_place {
    int64_t group, first, end, column;
    unsigned share, row_lane;
    bool idle;
};

template <int N> static __device__ __forceinline__ row_place place_in(const row_grid &grid) {
    row_place at;
    unsigned block = blockIdx.x, lane = threadIdx.x % grid.lanes;
    at.row_lane = threadIdx.x / grid.lanes;
    at.column = ((int64_t)(block % grid.stripes) * grid.lanes + lane) * N;
    block /= grid.stripes;
    at.share = block % grid.shares;
    at.group = block / grid.shares;
    at.first = grid.rows * at.share / grid.shares + at.row_lane;
    at.end = grid.rows * (at.share + 1) / grid.shares;
    at.idle = at.row_lane >= grid.row_lanes || at.column >= grid.width;
    return at;
}

// Where an element of a thread's lies.
static __device__ __forceinline__ int64_t element_of(const row_grid &grid, const row_place &at, int64_t row) {
    return (at.group * grid.rows + row) * grid.width + at.column;
}

// How many rows a thread has.
static __device__ __forceinline__ int rows_of(const row_grid &grid, const row_place &at) {
    if (at.idle || at.first >= at.end) return 0;
    return (int)(((unsigned)(at.end - at.first) + grid.row_lanes - 1) / grid.row_lanes);
}

// Sums over the rows of each group, (groups, width): a thread's over its rows, then over a block's row lanes, then over
// a group's shares, which are partial sums in between (sum_shares, add_shares); a group of one share is done at once.
struct row_sums {
    float *partials; // as many as row_partials says
    elements to;     // data NULL: not wanted
    bool accumulate;
};

static inline row_sums row_sums_of(const ups_tensor *to, bool accumulate, float *partials) {
    return {partials, elements_of(to), accumulate};
}

// Of any launch with these shapes.
static inline int64_t row_partials(int64_t groups, int64_t rows, int64_t width) {
    unsigned wide = row_grid_of(groups, rows, width, WIDE).shares, narrow = row_grid_of(groups, rows, width, 1).shares;
    return groups * width * (wide > narrow ? wide : narrow);
}

// Sums over a block's row lanes, for threads of the first. All threads come here, those that are idle with zeros.
template <int N>
static __device__ __forceinline__ void sum_row_lanes(const row_grid &grid, const row_place &at, float (&sums)[N]) {
    __shared__ float scratch[N][THREADS];
    __syncthreads(); // another call may read it still
#pragma unroll
    for (int i = 0; i < N; i++) scratch[i][threadIdx.x] = sums[i];
    for (unsigned left = grid.row_lanes; left > 1;) {
        unsigned half = (left + 1) / 2;
        __syncthreads();
        if (at.row_lane < left - half) {
#pragma unroll
            for (int i = 0; i < N; i++) scratch[i][threadIdx.x] += scratch[i][threadIdx.x + half * grid.lanes];
        }
        left = half;
    }
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = scratch[i][threadIdx.x];
}

// All threads of a block come here, those that are idle with zeros.
template <int N>
static __device__ __forceinline__ void write_sums(const row_grid &grid, const row_place &at, const row_sums &to,
                                                  float (&sums)[N]) {
    sum_row_lanes<N>(grid, at, sums);
    if (at.idle || at.row_lane > 0) return;
    if (grid.shares == 1) {
        write_elements<N>(to.to, at.group * grid.width + at.column, sums, to.accumulate);
    } else {
        write_elements<N>({to.partials, UPS_F32}, (at.group * grid.shares + at.share) * grid.width + at.column, sums);
    }
}

// The last stage of what write_sums began, in an order of shares that is fixed: by the last block of a group and stripe
// or, where it does not, by a launch.

// Whether this block is the last, to add (let_last_block_add): all others have written their shares, and it sees them.
// All threads of a block come here.
static __device__ __forceinline__ bool is_last_share(const row_grid &grid, const row_place &at) {
    __shared__ bool last;
    if (!grid.tickets) return false;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *ticket = grid.tickets + at.group * grid.stripes + blockIdx.x % grid.stripes;
        __threadfence();
        last = atomicAdd(ticket, 1u) == grid.shares - 1;
        __threadfence();
        if (last) *ticket = 0;
    }
    __syncthreads();
    return last;
}

template <int N>
static __device__ __forceinline__ void sum_shares(const row_grid &grid, const row_place &at, const row_sums &to) {
    float sums[N] = {};
    const elements partials = {to.partials, UPS_F32};
    const unsigned shares = at.idle ? 0 : grid.shares;
#pragma unroll 4
    for (unsigned share = at.row_lane; share < shares; share += grid.row_lanes) {
        float v[N];
        read_elements<N>(partials, (at.group * grid.shares + share) * grid.width + at.column, v);
#pragma unroll
        for (int i = 0; i < N; i++) sums[i] += v[i];
    }
    sum_row_lanes<N>(grid, at, sums);
    if (!at.idle && at.row_lane == 0) write_elements<N>(to.to, at.group * grid.width + at.column, sums, to.accumulate);
}

// Does nothing where nothing is left to add. Two sums of a kernel take one launch.
ups_status add_shares(ups_device *device, const row_grid &grid, const row_sums &to, ups_error *error);
ups_status add_shares(ups_device *device, const row_grid &grid, const row_sums &first, const row_sums &second,
                      ups_error *error);

// to[g, c] (+)= sum over r < rows of x[g, r, c], c < width; `to` in any float dtype. partials: row_partials.
ups_status sum_groups(ups_device *device, const ups_tensor *x, int64_t groups, int64_t rows, int64_t width,
                      float *partials, const ups_tensor *to, bool accumulate, ups_error *error);

// ---- partial sums of other kernels

enum { ROW_BLOCKS = 64 }; // partial sums over rows, at most

static inline int64_t row_blocks(int64_t rows) {
    return rows < ROW_BLOCKS ? rows : ROW_BLOCKS;
}
static __host__ __device__ inline int64_t row_block_start(int64_t rows, int64_t blocks, int64_t block) {
    return rows * block / blocks;
}

// to[i] (+)= sum over blocks of partials[block * stride + i], i < width, in an order of blocks that is fixed
// (reduce.cu).
ups_status add_partials(ups_device *device, const float *partials, int64_t blocks, int64_t stride, int64_t width,
                        float *to, bool accumulate, ups_error *error);
