// Mixing of modes, as model/cpu/spectral.c: tokens are taken to modes axis by axis, modes are mixed by matrices of their own,
// and go back to tokens by the transposed tables.
//
// A transform is a product with a table (2 modes, cells) of the lowest modes alone: of 64 cells and 16 modes 32 float32
// multiplications a number that is read, which is about what a card has for each, so that an FFT would save nothing; the
// kernel reads and writes tensors in their own dtype. Mixing costs 4 B D^2 multiplications a wave and mode, by far the most.
// It is a batched product of cuBLASLt in float32, or in TF32 where that is allowed. With waves as in the CPU's file (P / 2 complex numbers side by side):
//
//   Z (2 B, 2 D) = [X_0 | -X_1; X_1 | X_0], W (2 D, D) = [W_0; W_1]      Y = Z W,   dZ = dY W^T,   dW = Z^T dY
//
// where rows p B + b are part p of sample b. Of one axis there is one wave, and W lies so in the weight; of more the weight
// is packed wave by wave first. Kernels between transforms and products sign and place what they move.
#include "model/cuda/elements.cuh"
extern "C" {
#include "model/cuda/products/product.h"
}
#include <stdlib.h>

enum { MOST_BATCH = 65535, ALIGNMENT = 64 };

struct spectral {
    int dims, parts, batch, width;
    int cells[3], rows[3], modes[3], all[3]; // along each axis: rows of the table, modes used, modes of the weight
    int row_count, mode_count, tokens;       // of all axes
    int inner, mixed; // lines side by side, or 1; rows that a part's matrices multiply: samples, or all lines
};

static spectral spectral_of(const ups_op_call *call) {
    const ups_shape *x = &call->inputs[0].shape;
    spectral s = {};
    s.dims = call->attributes->dims, s.parts = 1 << s.dims;
    s.batch = (int)x->size[0], s.tokens = (int)x->size[1], s.width = (int)x->size[2];
    s.inner = call->attributes->length > 0 ? (int)call->attributes->length : 1;
    s.row_count = s.inner, s.mode_count = 1;
    for (int axis = 0; axis < s.dims; axis++) {
        const ups_shape *table = &call->inputs[2 + axis].shape;
        s.rows[axis] = (int)table->size[0], s.cells[axis] = (int)table->size[1];
        s.modes[axis] = s.rows[axis] / 2;
        s.all[axis] = (int)call->attributes->modes[axis];
        s.row_count *= s.rows[axis], s.mode_count *= s.modes[axis];
    }
    if (call->attributes->length > 0) { // lines side by side are a sample, of which there are more
        s.batch *= s.tokens / (s.inner * s.cells[0]);
        s.tokens = s.inner * s.cells[0];
    }
    s.mixed = s.batch * s.inner;
    return s;
}

// ---- a transform along one axis: to (outer, rows, inner) = matrix (rows, terms) from (outer, terms, inner)

enum { COLUMN_GROUPS = 8, ROW_GROUPS = 16, TILE = COLUMN_GROUPS * ROW_GROUPS, COLUMNS = COLUMN_GROUPS * WIDE, TERMS = 16 };

// Where a thread's j-th column lies in shared memory: in two halves, so that four at once of neighbours lie side by side.
static __device__ __forceinline__ int in_tile(int column_group, int j) {
    return j / 4 * (COLUMNS / 2) + column_group * 4 + j % 4;
}

// A table, of which rows are summed over where it is transposed.
struct transform {
    const float *table;
    bool transposed;
    int rows, terms, row_tiles, column_tiles;
    int64_t inner;
};

// WIDE elements of a row of which `left` are left; zeros behind it.
template <bool ALIGNED>
static __device__ __forceinline__ void read_group(elements from, int64_t at, int64_t left, float (&v)[WIDE]) {
    if (ALIGNED && left > 0) {
        read_elements<WIDE>(from, at, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        v[j] = 0.0f;
        if (j >= left) continue;
        float one[1];
        read_elements<1>(from, at + j, one);
        v[j] = one[0];
    }
}

template <bool ALIGNED>
static __device__ __forceinline__ void write_group(elements to, int64_t at, int64_t left, float (&v)[WIDE], bool accumulate) {
    if (ALIGNED && left > 0) {
        write_elements<WIDE>(to, at, v, accumulate);
        return;
    }
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        float one[1] = {v[j]};
        if (j < left) write_elements<1>(to, at + j, one, accumulate);
    }
}

// A block has EACH * ROW_GROUPS rows and COLUMNS columns of one of the outer, a thread EACH rows and WIDE columns.
template <int EACH, bool ALIGNED>
static __global__ void __launch_bounds__(TILE) spectral_transform(elements from, elements to, transform t, bool accumulate) {
    enum { ROWS = EACH * ROW_GROUPS, STRIDE = ROWS + 4 };
    __shared__ __align__(16) float factors[TERMS][STRIDE], values[TERMS][COLUMNS];
    const int column_group = threadIdx.x % COLUMN_GROUPS, row_group = threadIdx.x / COLUMN_GROUPS;
    const int first_row = (int)(blockIdx.x % t.row_tiles) * ROWS;
    const int64_t column = (int64_t)(blockIdx.x / t.row_tiles % t.column_tiles) * COLUMNS + column_group * WIDE;
    const int64_t outer = blockIdx.x / t.row_tiles / t.column_tiles, left = t.inner - column;
    float sum[EACH][WIDE] = {};
    for (int term = 0; term < t.terms; term += TERMS) {
        float read[WIDE] = {};
        if (term + row_group < t.terms) // as many groups of rows as terms
            read_group<ALIGNED>(from, (outer * t.terms + term + row_group) * t.inner + column, left, read);
#pragma unroll
        for (int j = 0; j < WIDE; j++) values[row_group][in_tile(column_group, j)] = read[j];
        for (int i = threadIdx.x; i < TERMS * ROWS; i += TILE) { // neighbours read neighbours
            const int k = t.transposed ? i / ROWS : i % TERMS, r = t.transposed ? i % ROWS : i / TERMS;
            const int row = first_row + r, at = term + k;
            const bool is_there = row < t.rows && at < t.terms;
            factors[k][r] = is_there ? t.table[t.transposed ? (int64_t)at * t.rows + row : (int64_t)row * t.terms + at] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TERMS; k++) {
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                const float factor = factors[k][row_group * EACH + r];
#pragma unroll
                for (int j = 0; j < WIDE; j++) sum[r][j] += factor * values[k][in_tile(column_group, j)];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int row = first_row + row_group * EACH + r;
        if (row < t.rows) write_group<ALIGNED>(to, (outer * t.rows + row) * t.inner + column, left, sum[r], accumulate);
    }
}

template <int EACH>
static void launch_transform(cudaStream_t stream, int64_t outer, const ups_tensor *from, const ups_tensor *to, transform t,
                             bool accumulate) {
    t.row_tiles = (t.rows + EACH * ROW_GROUPS - 1) / (EACH * ROW_GROUPS);
    const unsigned blocks = (unsigned)(outer * t.row_tiles * t.column_tiles);
    elements source = elements_of(from), target = elements_of(to);
    if (is_wide(from, t.inner) && is_wide(to, t.inner))
        spectral_transform<EACH, true><<<blocks, TILE, 0, stream>>>(source, target, t, accumulate);
    else spectral_transform<EACH, false><<<blocks, TILE, 0, stream>>>(source, target, t, accumulate);
}

static ups_status run_transform(ups_device *device, int64_t outer, const ups_tensor *from, const ups_tensor *to, transform t,
                                bool accumulate, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    t.column_tiles = (int)((t.inner + COLUMNS - 1) / COLUMNS);
    if (t.rows > 2 * ROW_GROUPS) launch_transform<4>(stream, outer, from, to, t, accumulate);
    else if (t.rows > ROW_GROUPS) launch_transform<2>(stream, outer, from, to, t, accumulate);
    else launch_transform<1>(stream, outer, from, to, t, accumulate);
    return ups_cuda_launched("a transform to modes", error);
}

static ups_tensor floats(void *data) {
    ups_tensor tensor = {};
    tensor.data = data;
    tensor.dtype = UPS_F32;
    return tensor;
}

// ---- parts and waves (model/cpu/spectral.c): of a plane four parts are split, of a volume four times four

static __device__ __forceinline__ void split_four(float &a, float &ai, float &c, float &ci) {
    const float one = a, i = ai, j = c, ij = ci;
    a = one + ij, ai = i - j; // where ij = 1
    c = one - ij, ci = i + j; // where ij = -1
}

static __device__ __forceinline__ void join_four(float &a, float &ai, float &c, float &ci) {
    const float plus = a, plus_i = ai, minus = c, minus_i = ci;
    a = plus + minus, ai = plus_i + minus_i;
    c = minus_i - plus_i, ci = plus - minus;
}

template <int DIMS> static __device__ __forceinline__ void split(float (&x)[1 << DIMS]) {
    if constexpr (DIMS > 1) split_four(x[0], x[1], x[2], x[3]);
    if constexpr (DIMS > 2) {
        split_four(x[4], x[5], x[6], x[7]);
        split_four(x[0], x[1], x[4], x[5]);
        split_four(x[2], x[3], x[6], x[7]);
    }
}

// The transpose, which is P / 2 times the inverse.
template <int DIMS> static __device__ __forceinline__ void join(float (&x)[1 << DIMS]) {
    if constexpr (DIMS > 2) {
        join_four(x[2], x[3], x[6], x[7]);
        join_four(x[0], x[1], x[4], x[5]);
        join_four(x[4], x[5], x[6], x[7]);
    }
    if constexpr (DIMS > 1) join_four(x[0], x[1], x[2], x[3]);
}

// Rows of a mode's parts among those of a sample, and its place in the weight.
template <int DIMS> struct mode {
    int row[1 << DIMS], weight;
};

template <int DIMS> static __device__ __forceinline__ mode<DIMS> mode_of(const spectral &s, int index) {
    mode<DIMS> m = {};
    int step = s.inner, weight_step = 1;
#pragma unroll
    for (int axis = DIMS - 1; axis >= 0; axis--) {
        const int k = index % s.modes[axis];
        index /= s.modes[axis];
        m.weight += k * weight_step;
#pragma unroll
        for (int p = 0; p < 1 << DIMS; p++) m.row[p] += (2 * k + (p >> (DIMS - 1 - axis) & 1)) * step;
        step *= s.rows[axis];
        weight_step *= s.all[axis];
    }
    return m;
}

// What a product takes and gives, `waves`: (waves of all modes, parts, M, D), or, signed, (…, M, 2, D), of M = s.mixed rows.
struct place {
    int feature, sample, mode; // of M: samples, or lines
};

// Of N features of a sample's mode.
template <int N> static __device__ __forceinline__ place place_of(const spectral &s, int64_t index) {
    const int groups = s.width / N;
    return {(int)(index % groups) * N, (int)(index / groups % s.mixed), (int)(index / groups / s.mixed)};
}

// The first of its rows among those of all samples.
static __device__ __forceinline__ int64_t first_row(const spectral &s, const place &at) {
    return (int64_t)(at.sample / s.inner) * s.row_count + at.sample % s.inner;
}

// Where part p of a wave begins.
template <int DIMS, bool SIGNED>
static __device__ __forceinline__ int64_t wave_start(const spectral &s, const place &at, int wave, int p) {
    const int64_t row = (((int64_t)at.mode * (1 << DIMS) / 2 + wave) * 2 + p) * s.mixed + at.sample;
    return row * s.width * (SIGNED ? 2 : 1) + at.feature;
}

// `modes` (B, rows, D) to `waves`. A thread has N features of a sample's mode.
template <int DIMS, int N, bool SIGNED>
static __global__ void __launch_bounds__(THREADS) spectral_spread(float *modes, float *waves, spectral s, int64_t count) {
    enum { PARTS = 1 << DIMS };
    const elements rows = {modes, UPS_F32}, to = {waves, UPS_F32};
    for (int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x; index < count; index += (int64_t)gridDim.x * THREADS) {
        const place at = place_of<N>(s, index);
        const mode<DIMS> m = mode_of<DIMS>(s, at.mode);
        float x[N][PARTS], v[N];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            read_elements<N>(rows, (first_row(s, at) + m.row[p]) * s.width + at.feature, v);
#pragma unroll
            for (int j = 0; j < N; j++) x[j][p] = v[j];
        }
#pragma unroll
        for (int j = 0; j < N; j++) split<DIMS>(x[j]);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int64_t start = wave_start<DIMS, SIGNED>(s, at, p / 2, p % 2);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = x[j][p];
            write_elements<N>(to, start, v);
            if constexpr (SIGNED) {
#pragma unroll
                for (int j = 0; j < N; j++) v[j] = p % 2 ? x[j][p ^ 1] : -x[j][p ^ 1];
                write_elements<N>(to, start + s.width, v);
            }
        }
    }
}

// Back; signed, the transpose.
template <int DIMS, int N, bool SIGNED>
static __global__ void __launch_bounds__(THREADS) spectral_collect(float *modes, float *waves, spectral s, int64_t count) {
    enum { PARTS = 1 << DIMS };
    const elements rows = {modes, UPS_F32}, from = {waves, UPS_F32};
    for (int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x; index < count; index += (int64_t)gridDim.x * THREADS) {
        const place at = place_of<N>(s, index);
        const mode<DIMS> m = mode_of<DIMS>(s, at.mode);
        float x[N][PARTS], v[N];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            read_elements<N>(from, wave_start<DIMS, SIGNED>(s, at, p / 2, p % 2), v);
#pragma unroll
            for (int j = 0; j < N; j++) x[j][p] = v[j];
        }
#pragma unroll
        for (int p = 0; p < PARTS && SIGNED; p++) {
            read_elements<N>(from, wave_start<DIMS, SIGNED>(s, at, p / 2, p % 2) + s.width, v);
#pragma unroll
            for (int j = 0; j < N; j++) x[j][p ^ 1] += p % 2 ? v[j] : -v[j];
        }
#pragma unroll
        for (int j = 0; j < N; j++) join<DIMS>(x[j]);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = x[j][p];
            write_elements<N>(rows, (first_row(s, at) + m.row[p]) * s.width + at.feature, v);
        }
    }
}

// The matrices of modes, wave by wave, to `packed`, or their gradient back. A thread has N elements of a mode.
template <int DIMS, int N, bool BACK>
static __global__ void __launch_bounds__(THREADS)
    spectral_pack(float *weight, float *packed, spectral s, int64_t count, bool accumulate) {
    enum { PARTS = 1 << DIMS };
    const elements matrices = {weight, UPS_F32}, waves = {packed, UPS_F32};
    const int64_t size = (int64_t)s.width * s.width, groups = size / N;
    const float scale = 2.0f / PARTS; // what joining makes of it
    for (int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x; index < count; index += (int64_t)gridDim.x * THREADS) {
        const int64_t g = index / groups, at = index % groups * N;
        const int64_t there = (int64_t)mode_of<DIMS>(s, (int)g).weight * PARTS * size + at, here = g * PARTS * size + at;
        float x[N][PARTS], v[N];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            read_elements<N>(BACK ? waves : matrices, (BACK ? here : there) + p * size, v);
#pragma unroll
            for (int j = 0; j < N; j++) x[j][p] = v[j];
        }
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (BACK) join<DIMS>(x[j]);
            else split<DIMS>(x[j]);
        }
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = scale * x[j][p];
            write_elements<N>(BACK ? matrices : waves, (BACK ? there : here) + p * size, v, BACK && accumulate);
        }
    }
}

template <bool SIGNED>
static ups_status spread(ups_device *device, const spectral &s, float *modes, float *waves, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool wide = s.width % WIDE == 0 && (uintptr_t)modes % 16 == 0;
    const int64_t count = (int64_t)s.mode_count * s.mixed * (wide ? s.width / WIDE : s.width);
    const unsigned blocks = blocks_for(count, 1);
    switch (s.dims * 2 + wide) {
    case 2: spectral_spread<1, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 3: spectral_spread<1, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 4: spectral_spread<2, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 5: spectral_spread<2, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 6: spectral_spread<3, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    default: spectral_spread<3, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    }
    return ups_cuda_launched("spreading modes", error);
}

template <bool SIGNED>
static ups_status collect(ups_device *device, const spectral &s, float *modes, float *waves, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool wide = s.width % WIDE == 0 && (uintptr_t)modes % 16 == 0;
    const int64_t count = (int64_t)s.mode_count * s.mixed * (wide ? s.width / WIDE : s.width);
    const unsigned blocks = blocks_for(count, 1);
    switch (s.dims * 2 + wide) {
    case 2: spectral_collect<1, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 3: spectral_collect<1, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 4: spectral_collect<2, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 5: spectral_collect<2, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    case 6: spectral_collect<3, 1, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    default: spectral_collect<3, WIDE, SIGNED><<<blocks, THREADS, 0, stream>>>(modes, waves, s, count); break;
    }
    return ups_cuda_launched("collecting modes", error);
}

// Of more than one axis.
template <bool BACK>
static ups_status pack(ups_device *device, const spectral &s, float *weight, float *packed, bool accumulate, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const int64_t size = (int64_t)s.width * s.width;
    const bool wide = s.width % WIDE == 0 && (uintptr_t)weight % 16 == 0;
    const int64_t count = (int64_t)s.mode_count * (wide ? size / WIDE : size);
    const unsigned blocks = blocks_for(count, 1);
    switch (s.dims * 2 + wide) {
    case 4: spectral_pack<2, 1, BACK><<<blocks, THREADS, 0, stream>>>(weight, packed, s, count, accumulate); break;
    case 5: spectral_pack<2, WIDE, BACK><<<blocks, THREADS, 0, stream>>>(weight, packed, s, count, accumulate); break;
    case 6: spectral_pack<3, 1, BACK><<<blocks, THREADS, 0, stream>>>(weight, packed, s, count, accumulate); break;
    default: spectral_pack<3, WIDE, BACK><<<blocks, THREADS, 0, stream>>>(weight, packed, s, count, accumulate); break;
    }
    return ups_cuda_launched("packing matrices of modes", error);
}

// ---- the plan

// Offsets of the workspace; the library's own is at 0.
struct plan {
    ups_cuda_product forward, input, weight;
    size_t between[2]; // of transforms; and there too:
    size_t signed_waves;
    size_t waves, modes, packed, packed_gradient;
};

static size_t aligned(int64_t count) {
    return (size_t)(count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT * sizeof(float);
}

// Floats between two axes, at most.
static int64_t most_between(const spectral &s) {
    int64_t most = 1, before = s.batch, after = (int64_t)s.inner * s.width;
    for (int axis = 0; axis < s.dims; axis++) after *= s.rows[axis];
    for (int axis = 0; axis + 1 < s.dims; axis++) {
        before *= s.cells[axis], after /= s.rows[axis];
        if (before * after > most) most = before * after;
    }
    return most;
}

// Bytes of it all.
static size_t lay_out(plan *p, const spectral &s, bool backward) {
    const int64_t numbers = (int64_t)s.batch * s.row_count * s.width;
    const size_t packed = s.dims > 1 ? aligned((int64_t)s.row_count * s.width * s.width) : 0;
    const size_t transforms = 2 * aligned(most_between(s)), signed_waves = aligned(2 * numbers);
    p->between[0] = p->signed_waves = UPS_CUDA_LIBRARY_BYTES;
    p->between[1] = p->between[0] + aligned(most_between(s));
    p->waves = p->between[0] + (transforms > signed_waves ? transforms : signed_waves);
    p->modes = p->waves + aligned(numbers);
    p->packed = p->modes + aligned(numbers);
    p->packed_gradient = p->packed + packed;
    return p->packed_gradient + (backward ? packed : 0);
}

static void release_plan(void *state) {
    plan *p = (plan *)state;
    ups_cuda_product_release(&p->forward);
    ups_cuda_product_release(&p->input);
    ups_cuda_product_release(&p->weight);
    free(p);
}

static ups_status make_products(ups_device *device, const spectral &s, bool tf32, bool backward, plan *p, ups_error *error) {
    ups_cuda_product_options options = {};
    options.tf32 = tf32;
    options.batch = (int64_t)s.mode_count * s.parts / 2;
    const ups_cuda_matrix w = {2 * s.width, s.width, UPS_F32, 0}, z = {2 * s.mixed, 2 * s.width, UPS_F32, 0};
    const ups_cuda_matrix y = {2 * s.mixed, s.width, UPS_F32, 0};
    UPS_TRY(ups_cuda_product_make(device, &p->forward, w, false, z, false, y, options, error));
    if (!backward) return UPS_OK;
    UPS_TRY(ups_cuda_product_make(device, &p->input, w, true, y, false, z, options, error));
    return ups_cuda_product_make(device, &p->weight, y, false, z, true, w, options, error);
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel, ups_error *error) {
    const spectral s = spectral_of(call);
    const int64_t batch = (int64_t)s.mode_count * s.parts / 2;
    if (batch > MOST_BATCH)
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%d modes of %d axes: on CUDA they have at most %d matrices a layer; model.operator.modes says how many",
                        s.mode_count, s.dims, MOST_BATCH);
    // A transform has no more blocks than it gives numbers.
    const int64_t a_sample = s.tokens > s.row_count ? s.tokens : s.row_count, ends = s.batch * a_sample * s.width;
    const int64_t largest = ends > most_between(s) ? ends : most_between(s);
    if (largest > INT32_MAX)
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "modes of %d samples of %d tokens and %d features: too many for CUDA's kernel; a smaller batch would do",
                        (int)call->inputs[0].shape.size[0], (int)call->inputs[0].shape.size[1], s.width);
    plan *made = (plan *)calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the plan of a product");
    ups_status status = make_products(device, s, call->attributes->tf32, backward, made, error);
    if (status != UPS_OK) {
        release_plan(made);
        return status;
    }
    kernel->workspace_bytes = lay_out(made, s, backward);
    kernel->state = made;
    kernel->release = release_plan;
    return UPS_OK;
}

// ---- the op

static float *at(const ups_op_call *call, size_t offset) {
    return (float *)(void *)((char *)call->workspace + offset);
}

// (B, tokens, D) in any dtype to (B, rows, D).
static ups_status to_modes(ups_device *device, const ups_op_call *call, const spectral &s, const ups_tensor *x, float *modes,
                           ups_error *error) {
    const plan *p = (const plan *)call->state;
    int64_t outer = (int64_t)s.batch * s.tokens / s.inner, inner = (int64_t)s.inner * s.width;
    ups_tensor from = *x;
    for (int axis = s.dims - 1; axis >= 0; axis--) {
        const ups_tensor to = floats(axis == 0 ? modes : at(call, p->between[axis % 2]));
        outer /= s.cells[axis];
        transform t = {(const float *)call->inputs[2 + axis].data, false, s.rows[axis], s.cells[axis], 0, 0, inner};
        UPS_TRY(run_transform(device, outer, &from, &to, t, false, error));
        inner *= s.rows[axis];
        from = to;
    }
    return UPS_OK;
}

static ups_status to_tokens(ups_device *device, const ups_op_call *call, const spectral &s, float *modes, const ups_tensor *y,
                            bool accumulate, ups_error *error) {
    const plan *p = (const plan *)call->state;
    int64_t outer = s.batch, inner = (int64_t)s.row_count * s.width;
    ups_tensor from = floats(modes);
    for (int axis = 0; axis < s.dims; axis++) {
        const bool is_last = axis == s.dims - 1;
        const ups_tensor to = is_last ? *y : floats(at(call, p->between[axis % 2]));
        inner /= s.rows[axis];
        transform t = {(const float *)call->inputs[2 + axis].data, true, s.cells[axis], s.rows[axis], 0, 0, inner};
        UPS_TRY(run_transform(device, outer, &from, &to, t, is_last && accumulate, error));
        outer *= s.cells[axis];
        from = to;
    }
    return UPS_OK;
}

// Where the matrices lie wave by wave.
static ups_status matrices_of(ups_device *device, const ups_op_call *call, const spectral &s, const float **matrices,
                              ups_error *error) {
    const plan *p = (const plan *)call->state;
    float *weight = (float *)call->inputs[1].data;
    *matrices = s.dims == 1 ? weight : at(call, p->packed);
    return s.dims == 1 ? UPS_OK : pack<false>(device, s, weight, at(call, p->packed), false, error);
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const spectral s = spectral_of(call);
    const plan *p = (const plan *)call->state;
    float *const transformed = (float *)call->saved[0].data, *const waves = at(call, p->waves);
    float *const signed_waves = at(call, p->signed_waves), *const modes = at(call, p->modes);
    const float *matrices = nullptr;
    UPS_TRY(to_modes(device, call, s, &call->inputs[0], transformed, error));
    UPS_TRY(spread<true>(device, s, transformed, signed_waves, error));
    UPS_TRY(matrices_of(device, call, s, &matrices, error));
    UPS_TRY(ups_cuda_product_run(device, &p->forward, matrices, signed_waves, nullptr, waves, false, call->workspace, error));
    UPS_TRY(collect<false>(device, s, modes, waves, error));
    return to_tokens(device, call, s, modes, &call->output, false, error);
}

// dW = Z^T dY, of which dY is in `waves`.
static ups_status backward_weight(ups_device *device, const ups_op_call *call, const spectral &s, ups_error *error) {
    const plan *p = (const plan *)call->state;
    const ups_tensor *dw = &call->input_gradients[1];
    float *const weight = (float *)dw->data, *const waves = at(call, p->waves), *const z = at(call, p->signed_waves);
    const bool accumulate = call->accumulate[1];
    bool all = true; // modes of the weight are used
    for (int axis = 0; axis < s.dims; axis++) all = all && s.modes[axis] == s.all[axis];
    if (!all && !accumulate)
        UPS_TRY(ups_cuda_check(cudaMemsetAsync(weight, 0, (size_t)ups_shape_elements(dw->shape) * sizeof(float),
                                               ups_cuda_stream(device)),
                               "zeroing the gradient of modes", error));
    UPS_TRY(spread<true>(device, s, (float *)call->saved[0].data, z, error));
    float *const made = s.dims == 1 ? weight : at(call, p->packed_gradient);
    UPS_TRY(ups_cuda_product_run(device, &p->weight, waves, z, nullptr, made, s.dims == 1 && accumulate, call->workspace,
                                 error));
    return s.dims == 1 ? UPS_OK : pack<true>(device, s, weight, made, accumulate, error);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const spectral s = spectral_of(call);
    const plan *p = (const plan *)call->state;
    const ups_tensor *dx = &call->input_gradients[0];
    float *const modes = at(call, p->modes), *const waves = at(call, p->waves), *const dz = at(call, p->signed_waves);
    const float *matrices = nullptr;
    UPS_TRY(to_modes(device, call, s, &call->output_gradient, modes, error));
    UPS_TRY(spread<false>(device, s, modes, waves, error));
    if (is_present(&call->input_gradients[1])) UPS_TRY(backward_weight(device, call, s, error));
    if (!is_present(dx)) return UPS_OK;
    UPS_TRY(matrices_of(device, call, s, &matrices, error));
    UPS_TRY(ups_cuda_product_run(device, &p->input, matrices, waves, nullptr, dz, false, call->workspace, error));
    UPS_TRY(collect<true>(device, s, modes, dz, error));
    return to_tokens(device, call, s, modes, dx, call->accumulate[0], error);
}

const ups_cuda_kernel ups_cuda_spectral = {forward, backward, prepare};
