// Muon, as model/cpu/optimizer/muon.c. Matrices of one shape are moved together, as many as a batched product of cuBLASLt
// takes at once: a model has a few shapes, and small matrices leave most of a card idle. The momentum is looked ahead into
// the workspace, so that a batch may be of any parameters. Squares are of the shorter side.
//
// Nothing here waits for the host: where a step is skipped kernels do nothing, and products multiply what is left over.
#include "model/cuda/optimizer.cuh"
extern "C" {
#include "model/cuda/products/product.h"
}
#include <stdlib.h>

enum {
    STEPS = 5,
    NORM_BLOCKS = 64,        // a matrix, at most
    MOST_MATRICES = 64,      // a batch
    MOST_ELEMENTS = 1 << 24, // of a batch, unless one matrix has more
    ALIGNMENT = 64,          // bytes, of each matrix
};
static const float a_factor = 3.4445f, b_factor = -4.7750f, c_factor = 2.0315f;
#define SMALLEST_NORM 1e-30 // a smaller momentum is none: its reciprocal would leave float32

// Matrices in the flat buffers; in the workspace they are `stride` elements apart.
struct batch {
    int count;
    int64_t rows, columns, stride;
    int64_t offsets[MOST_MATRICES], kept[MOST_MATRICES]; // of values, and of what is kept of them (ups_matrices)
};

struct ups_cuda_muon {
    ups_cuda_muon *next;
    int64_t rows, columns, count;
    ups_dtype operands;
    ups_cuda_product gram, square, step, last;
};

// ---- kernels: a grid row a matrix

// The moment moves on, and x becomes what it would be a step later. A block has chunks of THREADS elements, of which each
// thread squares one. Where N elements are accessed at once they are of N chunks, and go by shared memory to the threads that
// square them: the norm's bits do not depend on how memory was accessed.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    muon_look_ahead(ups_optimizer_call call, batch of, float *x, ups_cuda_norm_partial *partials) {
    __shared__ __align__(16) float turn[N][THREADS];
    __shared__ ups_cuda_norm_partial sums[THREADS];
    const int line = N * threadIdx.x / THREADS, column = N * threadIdx.x % THREADS;
    const ups_update *update = call.update;
    if (update->result.skipped) return;
    const float scale = update->result.gradient_scale, beta = call.beta1;
    const int64_t size = of.rows * of.columns, offset = of.offsets[blockIdx.y], kept_at = of.kept[blockIdx.y];
    ups_cuda_norm_partial own = {};
    for (int64_t first = blockIdx.x; first * THREADS < size; first += N * gridDim.x) {
        const int64_t i = (first + line * gridDim.x) * THREADS + column;
        float given[N], kept[N], ahead[N] = {};
        if (i < size) {
            get_floats(call.gradients + offset + i, given);
            get_floats(call.moments[0] + kept_at + i, kept);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float share = (1.0f - beta) * given[k];
                kept[k] = fmaf(share, scale, beta * kept[k]); // whichever N: the compiler would fuse one or the other product
                ahead[k] = fmaf(share, scale, beta * kept[k]);
            }
            put_floats(call.moments[0] + kept_at + i, kept);
            put_floats(x + blockIdx.y * of.stride + i, ahead);
        }
        if constexpr (N > 1) {
            *(float4 *)&turn[line][column] = make_float4(ahead[0], ahead[1], ahead[2], ahead[3]);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < N; k++) ahead[k] = turn[k][threadIdx.x];
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            own.sum += (double)ahead[k] * (double)ahead[k];
            own.non_finite += !isfinite(ahead[k]);
        }
    }
    sums[threadIdx.x] = own;
    add_in_order(sums, THREADS);
    if (threadIdx.x == 0) partials[blockIdx.y * NORM_BLOCKS + blockIdx.x] = sums[0];
}

// 1 over the norm of each, or 0 where a matrix is not to be moved.
static __global__ void __launch_bounds__(NORM_BLOCKS)
    muon_norm(const ups_update *update, const ups_cuda_norm_partial *partials, int count, float *inverse) {
    __shared__ ups_cuda_norm_partial sums[NORM_BLOCKS];
    const ups_cuda_norm_partial none = {};
    if (update->result.skipped) return;
    sums[threadIdx.x] = threadIdx.x < count ? partials[blockIdx.x * NORM_BLOCKS + threadIdx.x] : none;
    add_in_order(sums, NORM_BLOCKS);
    if (threadIdx.x) return;
    const double norm = sqrt(sums[0].sum);
    inverse[blockIdx.x] = norm > SMALLEST_NORM && sums[0].non_finite == 0 ? (float)(1.0 / norm) : 0.0f;
}

// `to` = x over its norm.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    muon_scale(const ups_update *update, const float *inverse, const float *x, elements to, int64_t size, int64_t stride) {
    if (update->result.skipped) return;
    const float factor = inverse[blockIdx.y];
    for (int64_t i = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x); i < size; i += N * (int64_t)gridDim.x * THREADS) {
        float v[N];
        read_elements<N>({(void *)x, UPS_F32}, blockIdx.y * stride + i, v);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = factor != 0.0f ? v[k] * factor : 0.0f;
        write_elements<N>(to, blockIdx.y * stride + i, v);
    }
}

// `to` = factor x + diagonal I of squares; `copy` = x, where there is one. N elements are of one row.
template <int N>
static __global__ void __launch_bounds__(THREADS)
    muon_shift(const float *x, elements copy, elements to, float factor, float diagonal, int side, int64_t stride) {
    const int64_t size = (int64_t)side * side;
    for (int64_t i = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x); i < size; i += N * (int64_t)gridDim.x * THREADS) {
        const int64_t at = blockIdx.y * stride + i, row = i / side;
        const int of_diagonal = (int)(row * side + row - i); // the element that lies on it, if that is one of these
        float v[N], shifted[N];
        read_elements<N>({(void *)x, UPS_F32}, at, v);
#pragma unroll
        for (int k = 0; k < N; k++) shifted[k] = factor * v[k] + (k == of_diagonal ? diagonal : 0.0f);
        if (copy.data) write_elements<N>(copy, at, v);
        write_elements<N>(to, at, shifted);
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    muon_move(ups_optimizer_call call, batch of, const float *inverse, const float *direction) {
    const ups_update *update = call.update;
    if (update->result.skipped) return;
    const float rate = update->input.learning_rate, keep = 1.0f - rate * call.weight_decay, decay = average_decay(call);
    const float longer = (float)(of.rows > of.columns ? of.rows : of.columns);
    const float step = inverse[blockIdx.y] != 0.0f ? rate * 0.2f * sqrtf(longer) : 0.0f;
    const int64_t size = of.rows * of.columns, offset = of.offsets[blockIdx.y];
    for (int64_t i = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x); i < size; i += N * (int64_t)gridDim.x * THREADS) {
        float value[N], ahead[N];
        get_floats(call.values + offset + i, value);
        get_floats(direction + blockIdx.y * of.stride + i, ahead);
#pragma unroll
        for (int k = 0; k < N; k++) value[k] = value[k] * keep - step * ahead[k];
        put_values<N>(call, offset + i, of.kept[blockIdx.y] + i, value, decay);
    }
}

// ---- where things lie

static int64_t stride_of(int64_t elements) {
    enum { EACH = ALIGNMENT / sizeof(uint16_t) };
    return (elements + EACH - 1) / EACH * EACH;
}

static ups_dtype operands_of(ups_dtype compute) {
    return compute == UPS_BF16 ? UPS_BF16 : UPS_F32;
}

static int64_t side_of(int64_t rows, int64_t columns) {
    return rows < columns ? rows : columns;
}

static int most_together(int64_t rows, int64_t columns) {
    const int64_t fit = MOST_ELEMENTS / (rows * columns);
    return (int)(fit < 1 ? 1 : fit < MOST_MATRICES ? fit : MOST_MATRICES);
}

// Offsets of the workspace; the library's own is at 0. x is float32; in another dtype of operands both ends of a step are
// beside it, and two of the squares.
struct layout {
    size_t partials, inverse, x, ends[2], squares[3], bytes;
};

static layout layout_of(int64_t rows, int64_t columns, int64_t count, ups_dtype operands) {
    const int64_t side = side_of(rows, columns);
    const size_t whole = (size_t)(count * stride_of(rows * columns)), square = (size_t)(count * stride_of(side * side));
    const size_t bytes = ups_dtype_size(operands);
    layout l;
    l.partials = UPS_CUDA_LIBRARY_BYTES;
    l.inverse = l.partials + (size_t)count * NORM_BLOCKS * sizeof(ups_cuda_norm_partial);
    l.x = l.inverse + (size_t)stride_of(count) * sizeof(float);
    const size_t behind = l.x + whole * sizeof(float);
    l.ends[0] = operands == UPS_F32 ? l.x : behind;
    l.ends[1] = operands == UPS_F32 ? behind : behind + whole * bytes;
    l.squares[0] = l.ends[1] + whole * bytes;
    l.squares[1] = l.squares[0] + square * sizeof(float);
    l.squares[2] = l.squares[1] + square * bytes;
    l.bytes = l.squares[2] + square * bytes;
    return l;
}

size_t ups_cuda_matrices_workspace(ups_device *device, const ups_matrices *matrices, int32_t count, ups_dtype compute) {
    size_t most = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t rows = matrices[i].rows, columns = matrices[i].columns, limit = most_together(rows, columns);
        int64_t alike = 0;
        for (int32_t k = 0; k < count; k++) {
            if (matrices[k].rows == rows && matrices[k].columns == columns) alike += matrices[k].count;
        }
        const size_t bytes = layout_of(rows, columns, alike < limit ? alike : limit, operands_of(compute)).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

// ---- products

void ups_cuda_muon_release(ups_cuda_muon *plans) {
    while (plans) {
        ups_cuda_muon *next = plans->next;
        ups_cuda_product_release(&plans->gram);
        ups_cuda_product_release(&plans->square);
        ups_cuda_product_release(&plans->step);
        ups_cuda_product_release(&plans->last);
        free(plans);
        plans = next;
    }
}

// G = X X^T of the shorter side, or X^T X; G P; Q X, or X Q.
static ups_status make_products(ups_device *device, ups_cuda_muon *p, ups_error *error) {
    const bool wide = p->columns > p->rows;
    const int64_t side = side_of(p->rows, p->columns), count = p->count, square = stride_of(side * side);
    const ups_cuda_matrix x = {p->rows, p->columns, p->operands, stride_of(p->rows * p->columns)};
    const ups_cuda_matrix s = {side, side, p->operands, square}, sums = {side, side, UPS_F32, square};
    ups_cuda_matrix made = x;
    made.dtype = UPS_F32;
    ups_cuda_product_options options = {};
    options.batch = count;
    UPS_TRY(ups_cuda_product_make(device, &p->gram, x, wide, x, !wide, sums, options, error));
    UPS_TRY(ups_cuda_product_make(device, &p->square, s, false, s, false, sums, options, error));
    UPS_TRY(ups_cuda_product_make(device, &p->step, wide ? x : s, false, wide ? s : x, false, x, options, error));
    return ups_cuda_product_make(device, &p->last, wide ? x : s, false, wide ? s : x, false, made, options, error);
}

// Made once, and kept by the device.
static ups_status find_products(ups_device *device, const batch &of, ups_dtype operands, const ups_cuda_muon **plan,
                                ups_error *error) {
    ups_cuda_muon **const first = ups_cuda_muon_plans(device);
    for (const ups_cuda_muon *p = *first; p; p = p->next) {
        if (p->rows != of.rows || p->columns != of.columns || p->count != of.count || p->operands != operands) continue;
        *plan = p;
        return UPS_OK;
    }
    ups_cuda_muon *made = (ups_cuda_muon *)calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for Muon's products");
    made->rows = of.rows, made->columns = of.columns, made->count = of.count, made->operands = operands;
    ups_status status = make_products(device, made, error);
    if (status != UPS_OK) {
        ups_cuda_muon_release(made);
        return status;
    }
    made->next = *first;
    *plan = *first = made;
    return UPS_OK;
}

// ---- a batch

// ends[0], of norm 1, to nearly orthogonal in float32; returns where that is.
static ups_status orthogonalise(ups_device *device, const ups_cuda_muon *p, char *workspace, const layout &l, const float **result,
                                ups_error *error) {
    const bool wide = p->columns > p->rows, rounds = p->operands != UPS_F32;
    const int side = (int)side_of(p->rows, p->columns);
    const int64_t stride = stride_of((int64_t)side * side);
    const int each = side % WIDE == 0 ? WIDE : 1;
    const auto shift = each == WIDE ? muon_shift<WIDE> : muon_shift<1>;
    const dim3 grid(blocks_for((int64_t)side * side, each), (unsigned)p->count);
    cudaStream_t stream = ups_cuda_stream(device);
    float *const gram = (float *)(void *)(workspace + l.squares[0]);
    char *const first = workspace + l.squares[1], *const second = workspace + l.squares[2];
    // Rounded, squares are made in one place and multiplied in two others.
    float *const made = rounds ? gram : (float *)(void *)second;
    const elements left = {rounds ? first : nullptr, p->operands}, right = {rounds ? second : first, p->operands};
    const elements none = {nullptr, UPS_F32}, factor = {second, p->operands};
    char *from = workspace + l.ends[0];
    for (int step = 0; step < STEPS; step++) {
        const bool last = step == STEPS - 1;
        char *const to = workspace + (last && rounds ? l.x : l.ends[(step + 1) % 2]);
        UPS_TRY(ups_cuda_product_run(device, &p->gram, from, from, nullptr, gram, false, workspace, error));
        shift<<<grid, THREADS, 0, stream>>>(gram, left, right, c_factor, b_factor, side, stride);
        UPS_TRY(ups_cuda_launched("Muon's squares", error));
        UPS_TRY(ups_cuda_product_run(device, &p->square, right.data, rounds ? (void *)first : gram, nullptr, made, false,
                                     workspace, error));
        shift<<<grid, THREADS, 0, stream>>>(made, none, factor, 1.0f, a_factor, side, stride);
        UPS_TRY(ups_cuda_launched("Muon's squares", error));
        UPS_TRY(ups_cuda_product_run(device, last ? &p->last : &p->step, wide ? from : second, wide ? second : from, nullptr, to,
                                     false, workspace, error));
        from = to;
    }
    *result = (const float *)(const void *)from;
    return UPS_OK;
}

// Whether QUAD elements of the flat buffers, at a multiple of QUAD of each matrix, may be accessed at once.
static bool lies_wide(const batch &of) {
    bool wide = of.rows * of.columns % QUAD == 0;
    for (int m = 0; m < of.count; m++) wide = wide && of.offsets[m] % QUAD == 0 && of.kept[m] % QUAD == 0;
    return wide;
}

static ups_status move(ups_device *device, const ups_optimizer_call *call, const batch &of, ups_error *error) {
    const ups_dtype operands = operands_of(call->compute_dtype);
    const layout l = layout_of(of.rows, of.columns, of.count, operands);
    const int64_t size = of.rows * of.columns;
    char *const workspace = (char *)call->workspace;
    ups_cuda_norm_partial *const partials = (ups_cuda_norm_partial *)(void *)(workspace + l.partials);
    float *const inverse = (float *)(void *)(workspace + l.inverse), *const x = (float *)(void *)(workspace + l.x);
    const elements first = {workspace + l.ends[0], operands};
    const bool wide = lies_wide(of), scales_wide = size % WIDE == 0;
    const unsigned blocks = blocks_for(size, 1), summed = blocks < NORM_BLOCKS ? blocks : NORM_BLOCKS;
    const dim3 norms(summed, (unsigned)of.count), scales(blocks_for(size, scales_wide ? WIDE : 1), (unsigned)of.count);
    const dim3 moves(blocks_for(size, wide ? QUAD : 1), (unsigned)of.count);
    cudaStream_t stream = ups_cuda_stream(device);
    const ups_cuda_muon *plan = nullptr;
    const float *direction = nullptr;
    UPS_TRY(find_products(device, of, operands, &plan, error));
    (wide ? muon_look_ahead<QUAD> : muon_look_ahead<1>)<<<norms, THREADS, 0, stream>>>(*call, of, x, partials);
    muon_norm<<<(unsigned)of.count, NORM_BLOCKS, 0, stream>>>(call->update, partials, (int)summed, inverse);
    (scales_wide ? muon_scale<WIDE> : muon_scale<1>)<<<scales, THREADS, 0, stream>>>(call->update, inverse, x, first, size, of.stride);
    UPS_TRY(ups_cuda_launched("Muon's momentum", error));
    UPS_TRY(orthogonalise(device, plan, workspace, l, &direction, error));
    (wide ? muon_move<QUAD> : muon_move<1>)<<<moves, THREADS, 0, stream>>>(*call, of, inverse, direction);
    return ups_cuda_launched("Muon", error);
}

ups_status ups_cuda_move_matrices(ups_device *device, const ups_optimizer_call *call, ups_error *error) {
    for (int32_t i = 0; i < call->matrices_count; i++) {
        const ups_matrices *shape = &call->matrices[i];
        const int most = most_together(shape->rows, shape->columns);
        bool is_done = false; // with an earlier one of its shape
        for (int32_t k = 0; k < i; k++)
            is_done = is_done || (call->matrices[k].rows == shape->rows && call->matrices[k].columns == shape->columns);
        batch of = {0, shape->rows, shape->columns, stride_of(shape->rows * shape->columns), {}, {}};
        for (int32_t k = i; k < call->matrices_count && !is_done; k++) {
            const ups_matrices *m = &call->matrices[k];
            if (m->rows != of.rows || m->columns != of.columns) continue;
            for (int64_t index = 0; index < m->count; index++) {
                of.offsets[of.count] = m->offset + index * m->rows * m->columns;
                of.kept[of.count++] = m->kept + index * m->rows * m->columns;
                if (of.count < most) continue;
                UPS_TRY(move(device, call, of, error));
                of.count = 0;
            }
        }
        if (of.count > 0) UPS_TRY(move(device, call, of, error));
    }
    return UPS_OK;
}
