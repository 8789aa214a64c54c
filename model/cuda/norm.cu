// Layer norm and RMS norm over the last axis. Rows that fit are read once into registers, a few lanes of a warp a row,
// so that none idle where rows are short; longer ones into shared memory, a block a row. Statistics in two passes there
// (mean, then squared deviations), as on the CPU.
//
// Backward, with h the normalised row, g = dy * gain and s = 1/sqrt(var + epsilon):
//   layer norm  dx = s (g - mean(g) - h mean(g h))      RMS norm  dx = s (g - h mean(g h))
//   dgain = sum over rows of dy h, dbias = sum over rows of dy (reduce.cuh).
//
// As the second of a pair a norm makes the row itself, x = residual's x + keep branch, and hands the whole gradient of
// the sum on while it is in registers.
#include "model/cuda/reduce.cuh"
extern "C" {
#include "model/random/drop_path.h"
}

enum { MOST_SHARED = 48 << 10 }; // that every kernel has without asking

// ---- the residual before a norm

// The first of a pair; of a norm by itself all are NULL.
struct residual_rows {
    elements branch, sum, dx, df; // dx, df: where they are wanted
    bool accumulate_x, accumulate_f;
    ups_op_attributes attributes;
    const ups_update *update; // NULL: not in training
    int64_t tokens;           // rows of a sample
};

static residual_rows residual_of(const ups_op_call *call) {
    if (!call) return {};
    const ups_shape &shape = call->output.shape;
    return {elements_of(&call->inputs[1]),
            elements_of(&call->output),
            elements_of(&call->input_gradients[0]),
            elements_of(&call->input_gradients[1]),
            call->accumulate[0],
            call->accumulate[1],
            *call->attributes,
            call->training ? call->update : nullptr,
            shape.rank > 1 ? ups_shape_rows(shape) / shape.size[0] : 1};
}

static bool residual_is_wide(const ups_op_call *call, int64_t width) {
    if (!call) return true;
    for (const ups_tensor *tensor : {&call->inputs[0], &call->inputs[1], &call->output, &call->input_gradients[0],
                                     &call->input_gradients[1]}) {
        if (is_present(tensor) && !is_wide(tensor, width)) return false;
    }
    return true;
}

// Of a row.
static __device__ __forceinline__ float keep_of(const residual_rows &r, int64_t row) {
    if (!r.update) return 1.0f;
    return ups_drop_path_keep(&r.attributes, r.update->input.seed, r.update->input.item, row / r.tokens);
}

// N elements of the norm's input as they lie: of x and, of a pair, of the branch that is added to it.
template <int N> struct raw_input { raw_elements<N> x, branch; };
template <int N>
static __device__ __forceinline__ raw_input<N> load_input(const residual_rows &r, elements x, int64_t at) {
    raw_input<N> raw;
    raw.x = load_elements<N>(x, at);
    if (r.branch.data) raw.branch = load_elements<N>(r.branch, at);
    return raw;
}
// The same as numbers; the sum is made, and written.
template <int N>
static __device__ __forceinline__ void convert_input(const residual_rows &r, elements x, int64_t at, float keep,
                                                     const raw_input<N> &raw, float (&v)[N]) {
    convert_elements<N>(x.dtype, raw.x, v);
    if (!r.branch.data) return;
    float f[N];
    convert_elements<N>(r.branch.dtype, raw.branch, f);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] += keep * f[i];
    const raw_elements<N> sum = pack_elements<N>(r.sum.dtype, v);
    store_elements<N>(r.sum, at, sum);
    convert_elements<N>(r.sum.dtype, sum, v); // as the norm would read it
}

// Writes the norm's gradient, and hands on what the sum's is then.
template <int N>
static __device__ __forceinline__ void write_gradient(const residual_rows &r, elements dx, int64_t at, float keep,
                                                      bool accumulate, float (&d)[N]) {
    if (accumulate) {
        float before[N];
        read_elements<N>(dx, at, before);
#pragma unroll
        for (int i = 0; i < N; i++) d[i] += before[i];
    }
    const raw_elements<N> sum = pack_elements<N>(dx.dtype, d);
    store_elements<N>(dx, at, sum);
    convert_elements<N>(dx.dtype, sum, d); // as the residual would read it
    if (r.df.data) {
        float v[N];
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = keep * d[i];
        write_elements<N>(r.df, at, v, r.accumulate_f);
    }
    if (r.dx.data) write_elements<N>(r.dx, at, d, r.accumulate_x);
}

// ---- short rows

enum { MOST_PIECES = 4 }; // of N elements a lane

// How many lanes have a row, and how many pieces each.
struct row_lanes {
    int64_t rows;
    int width, lanes, pieces; // lanes: a power of two, 32 at most; 0: the row is too long
};

// As few lanes idle as may be or, for kernels that need registers more, as few pieces.
static row_lanes row_lanes_of(int64_t rows, int64_t width, int each, bool few_pieces) {
    row_lanes best = {rows, (int)width, 0, 0};
    int64_t columns = (width + each - 1) / each;
    for (int pieces = 1; pieces <= MOST_PIECES; pieces++) {
        int lanes = 1;
        while (lanes < 32 && lanes * pieces < columns) lanes *= 2;
        if (lanes * pieces < columns || (best.lanes && lanes * pieces >= best.lanes * best.pieces)) continue;
        best.lanes = lanes, best.pieces = pieces;
        if (few_pieces) break;
    }
    return best;
}

static unsigned blocks_of(const row_lanes &r) {
    int64_t rows = THREADS / r.lanes; // a block's
    return (unsigned)((r.rows + rows - 1) / rows);
}

// Over the lanes of a row, to all of them. All lanes of the warp take part.
static __device__ __forceinline__ float lanes_sum(float x, int lanes) {
#pragma unroll
    for (int by = 16; by; by >>= 1) {
        if (by < lanes) x += __shfl_xor_sync(0xffffffffu, x, by);
    }
    return x;
}

// The same of two sums, neither of which waits for the other.
static __device__ __forceinline__ void lanes_sums(float &x, float &y, int lanes) {
#pragma unroll
    for (int by = 16; by; by >>= 1) {
        if (by >= lanes) continue;
        float other_x = __shfl_xor_sync(0xffffffffu, x, by), other_y = __shfl_xor_sync(0xffffffffu, y, by);
        x += other_x;
        y += other_y;
    }
}

// Where layers take and give bf16, as in training, kernels know the dtypes: what a thread reads is asked for before any
// of it is looked at, and takes as few registers as may be. STREAM: of x, sum and dx; the others are bf16.
enum known_dtypes { ANY, FLOAT_STREAM, BF16_STREAM };

template <bool CENTRED, int N, int PIECES, known_dtypes KNOWN>
static __global__ void __launch_bounds__(THREADS, PIECES <= 2 ? 4 : PIECES == 3 ? 3 : 2)
    norm_forward_short(row_lanes r, residual_rows residual, elements x, float *gain, float *bias, elements y,
                       float *saved, float epsilon) {
    if (KNOWN) { // as they are, for the compiler to know
        x.dtype = residual.sum.dtype = KNOWN == FLOAT_STREAM ? UPS_F32 : UPS_BF16;
        y.dtype = residual.branch.dtype = UPS_BF16;
    }
    int lane = threadIdx.x % r.lanes;
    int64_t row = (int64_t)blockIdx.x * (THREADS / r.lanes) + threadIdx.x / r.lanes, start = row * r.width;
    raw_input<N> raw[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES && KNOWN; p++) {
        int column = (p * r.lanes + lane) * N;
        if (row < r.rows && column < r.width) raw[p] = load_input<N>(residual, x, start + column);
    }
    float v[PIECES][N] = {}, sum = 0.0f, squares = 0.0f, keep = row < r.rows ? keep_of(residual, row) : 0.0f;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int column = (p * r.lanes + lane) * N;
        if (row >= r.rows || column >= r.width) continue;
        if (!KNOWN) raw[p] = load_input<N>(residual, x, start + column);
        convert_input<N>(residual, x, start + column, keep, raw[p], v[p]);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[p][i];
    }
    float mean = CENTRED ? lanes_sum(sum, r.lanes) / r.width : 0.0f;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if ((p * r.lanes + lane) * N >= r.width) continue;
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[p][i] - mean) * (v[p][i] - mean);
    }
    float scale = 1.0f / sqrtf(lanes_sum(squares, r.lanes) / r.width + epsilon);
    if (row >= r.rows) return;
    if (saved && lane == 0) {
        if (CENTRED)
            saved[2 * row] = mean, saved[2 * row + 1] = scale;
        else
            saved[row] = scale;
    }
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int column = (p * r.lanes + lane) * N;
        if (column >= r.width) continue;
        float by[N], plus[N];
        if (gain) read_elements<N>({gain, UPS_F32}, column, by);
        if (bias) read_elements<N>({bias, UPS_F32}, column, plus);
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[p][i] = (v[p][i] - mean) * scale;
            if (gain) v[p][i] *= by[i];
            if (bias) v[p][i] += plus[i];
        }
        write_elements<N>(y, start + column, v[p]);
    }
}

// Blocks that walk down rows, each with sums of its own for gain and bias: four for each of an H100's 132 processors,
// of which it runs half at once where a lane has two pieces of a row.
static unsigned walking_blocks_of(const row_lanes &r) {
    enum { MOST = FULL_CARD / 2 };
    unsigned blocks = blocks_of(r);
    return blocks < MOST ? blocks : MOST;
}

// All gradients in one pass. A lane has columns of its own, adds what they give to gain and bias over its rows, and the
// block adds its lanes' (write_sums). Blocks are few, for their registers, and would wait for memory most of the time
// if dtypes were not known.
template <bool CENTRED, int N, int PIECES, known_dtypes KNOWN>
static __global__ void __launch_bounds__(THREADS, PIECES <= 2 ? 2 : 1)
    norm_backward_short(row_lanes r, residual_rows residual, elements x, elements dy, float *gain, const float *saved,
                        elements dx, bool accumulate, row_sums dgain, row_sums dbias) {
    unsigned lane = threadIdx.x % r.lanes, row_lane = threadIdx.x / r.lanes, row_lanes = THREADS / r.lanes;
    if (KNOWN) { // as they are, for the compiler to know
        x.dtype = dx.dtype = residual.dx.dtype = KNOWN == FLOAT_STREAM ? UPS_F32 : UPS_BF16;
        dy.dtype = residual.df.dtype = UPS_BF16;
    }
    const bool early = KNOWN && accumulate && dx.data;
    const float inverse_width = 1.0f / r.width;
    float to_gain[PIECES][N] = {}, to_bias[PIECES][N] = {};
    for (int64_t first = (int64_t)blockIdx.x * row_lanes; first < r.rows; first += (int64_t)gridDim.x * row_lanes) {
        int64_t row = first + row_lane, start = row * r.width;
        raw_elements<N> raw_x[PIECES], raw_dy[PIECES], before[PIECES];
#pragma unroll
        for (int p = 0; p < PIECES && KNOWN; p++) {
            int column = (p * r.lanes + lane) * N;
            if (row >= r.rows || column >= r.width) continue;
            raw_x[p] = load_elements<N>(x, start + column);
            raw_dy[p] = load_elements<N>(dy, start + column);
            if (early) before[p] = load_elements<N>(dx, start + column);
        }
        float keep = residual.df.data && row < r.rows ? keep_of(residual, row) : 0.0f;
        float h[PIECES][N], g[PIECES][N], sum_g = 0.0f, sum_gh = 0.0f, mean = 0.0f, scale = 0.0f;
        if (row < r.rows) {
            mean = CENTRED ? saved[2 * row] : 0.0f;
            scale = CENTRED ? saved[2 * row + 1] : saved[row];
        }
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int column = (p * r.lanes + lane) * N;
            if (row >= r.rows || column >= r.width) continue;
            float by[N];
            convert_elements<N>(x.dtype, KNOWN ? raw_x[p] : load_elements<N>(x, start + column), h[p]);
            convert_elements<N>(dy.dtype, KNOWN ? raw_dy[p] : load_elements<N>(dy, start + column), g[p]);
            if (gain) read_elements<N>({gain, UPS_F32}, column, by);
#pragma unroll
            for (int i = 0; i < N; i++) {
                h[p][i] = (h[p][i] - mean) * scale;
                to_gain[p][i] += g[p][i] * h[p][i];
                to_bias[p][i] += g[p][i];
                if (gain) g[p][i] *= by[i];
                sum_g += g[p][i];
                sum_gh += g[p][i] * h[p][i];
            }
        }
        if (CENTRED)
            lanes_sums(sum_g, sum_gh, r.lanes);
        else
            sum_gh = lanes_sum(sum_gh, r.lanes);
        float mean_g = CENTRED ? sum_g * inverse_width : 0.0f, mean_gh = sum_gh * inverse_width;
        if (row >= r.rows || !dx.data) continue;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int column = (p * r.lanes + lane) * N;
            if (column >= r.width) continue;
#pragma unroll
            for (int i = 0; i < N; i++) g[p][i] = scale * (g[p][i] - mean_g - h[p][i] * mean_gh);
            if (early) {
                float more[N];
                convert_elements<N>(dx.dtype, before[p], more);
#pragma unroll
                for (int i = 0; i < N; i++) g[p][i] += more[i];
            }
            write_gradient<N>(residual, dx, start + column, keep, accumulate && !early, g[p]);
        }
    }
    const row_grid grid = {1, r.rows, r.width, (unsigned)r.lanes, row_lanes, 1, gridDim.x};
    dgain.to.dtype = dbias.to.dtype = UPS_F32; // as it is, for the compiler to know
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int64_t column = (int64_t)(p * r.lanes + lane) * N;
        const row_place at = {0, 0, 0, column, blockIdx.x, row_lane, column >= r.width};
        if (dgain.to.data) write_sums<N>(grid, at, dgain, to_gain[p]);
        if (CENTRED && dbias.to.data) write_sums<N>(grid, at, dbias, to_bias[p]);
    }
}

// ---- long rows

template <bool CENTRED, int N>
static __global__ void __launch_bounds__(THREADS)
    norm_forward_long(residual_rows residual, elements x, const float *gain, const float *bias, elements y,
                      float *saved, int width, float epsilon) {
    extern __shared__ __align__(16) float in[];
    __shared__ float scratch[THREADS / 32];
    int64_t start = (int64_t)blockIdx.x * width;
    float sum = 0.0f, keep = keep_of(residual, blockIdx.x);
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
        convert_input<N>(residual, x, start + i, keep, load_input<N>(residual, x, start + i), v);
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
        if (CENTRED)
            saved[2 * blockIdx.x] = mean, saved[2 * blockIdx.x + 1] = scale;
        else
            saved[blockIdx.x] = scale;
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
static __global__ void __launch_bounds__(THREADS, 4) // as norm_parameters
    norm_backward_long(residual_rows residual, elements x, elements dy, const float *gain, const float *saved,
                       elements dx, int width, bool accumulate) {
    extern __shared__ __align__(16) float rows[];
    __shared__ float scratch[THREADS / 32];
    float *h = rows, *g = rows + width;
    int64_t start = (int64_t)blockIdx.x * width;
    float mean = CENTRED ? saved[2 * blockIdx.x] : 0.0f,
          scale = CENTRED ? saved[2 * blockIdx.x + 1] : saved[blockIdx.x];
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
    float keep = residual.df.data ? keep_of(residual, blockIdx.x) : 0.0f;
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = scale * (g[i + j] - mean_g - h[i + j] * mean_gh);
        write_gradient<N>(residual, dx, start + i, keep, accumulate, v);
    }
}

// Of long rows, gradients of gain and bias by themselves.

template <bool CENTRED, int N>
static __global__ void __launch_bounds__(THREADS, 4) // 64 registers: with what the compiler takes by itself it spills
    norm_parameters(row_grid grid, elements x, elements dy, const float *saved, row_sums dgain, row_sums dbias) {
    row_place at = place_in<N>(grid);
    float gain[N] = {}, bias[N] = {};
    for (int64_t row = at.first; row < at.end && !at.idle; row += grid.row_lanes) {
        raw_elements<N> raw_x = load_elements<N>(x, element_of(grid, at, row));
        raw_elements<N> raw_dy = load_elements<N>(dy, element_of(grid, at, row));
        float v[N], d[N];
        float mean = CENTRED ? saved[2 * row] : 0.0f, scale = CENTRED ? saved[2 * row + 1] : saved[row];
        convert_elements<N>(x.dtype, raw_x, v);
        convert_elements<N>(dy.dtype, raw_dy, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            gain[i] += d[i] * (v[i] - mean) * scale;
            bias[i] += d[i];
        }
    }
    if (dgain.to.data) write_sums<N>(grid, at, dgain, gain);
    if (dbias.to.data) write_sums<N>(grid, at, dbias, bias);
}

// ---- calls

// Of gain and bias together, for any launch of backward with these shapes.
static int64_t partials_of(int64_t rows, int64_t width) {
    int64_t most = row_partials(1, rows, width);
    for (int each : {(int)WIDE, 1}) {
        row_lanes r = row_lanes_of(rows, width, each, true);
        int64_t partials = r.lanes ? walking_blocks_of(r) * width : 0;
        if (partials > most) most = partials;
    }
    return 2 * most;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                          ups_error *error) {
    int64_t width = ups_shape_last(call->inputs[0].shape), rows = ups_shape_rows(call->inputs[0].shape);
    enum { SCRATCH = 1024 }; // beside the rows: the kernels' own
    int64_t widest = (MOST_SHARED - SCRATCH) / (int64_t)sizeof(float) / (backward ? 2 : 1);
    if (width > widest) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "norms of rows of %lld elements: on CUDA they have at most %lld",
                        (long long)width, (long long)widest);
    }
    kernel->workspace_bytes = backward ? (size_t)partials_of(rows, width) * sizeof(float) : 0;
    return UPS_OK;
}

// Gain and bias are float32 vectors; either may be absent.
static bool vector_is_wide(const ups_tensor *vector, int64_t width) {
    return !is_present(vector) || is_wide(vector, width);
}

// What kernels may know of dtypes: `stream` of what a norm reads.
static known_dtypes known_of(ups_dtype stream, bool others_are_bf16) {
    if (!others_are_bf16) return ANY;
    return stream == UPS_F32 ? FLOAT_STREAM : stream == UPS_BF16 ? BF16_STREAM : ANY;
}

template <bool CENTRED, int N>
static void launch_forward(cudaStream_t stream, const ups_op_call *first, const ups_op_call *call) {
    const ups_tensor *gain = &call->inputs[1];
    const ups_tensor none = {}, *bias = CENTRED ? &call->inputs[2] : &none;
    const ups_shape &shape = call->inputs[0].shape;
    row_lanes r = row_lanes_of(ups_shape_rows(shape), ups_shape_last(shape), N, false);
    float *saved = (float *)call->saved[0].data, epsilon = call->attributes->epsilon;
    const elements x = elements_of(first ? &first->inputs[0] : &call->inputs[0]);
    if (r.lanes) {
        constexpr bool KNOWN = CENTRED && N == WIDE; // of layer norms, which models are made of
        constexpr known_dtypes FLOATS = KNOWN ? FLOAT_STREAM : ANY, HALVES = KNOWN ? BF16_STREAM : ANY;
        static constexpr decltype(&norm_forward_short<CENTRED, N, 1, ANY>) kernels[][MOST_PIECES] = {
            {norm_forward_short<CENTRED, N, 1, ANY>, norm_forward_short<CENTRED, N, 2, ANY>,
             norm_forward_short<CENTRED, N, 3, ANY>, norm_forward_short<CENTRED, N, 4, ANY>},
            {norm_forward_short<CENTRED, N, 1, FLOATS>, norm_forward_short<CENTRED, N, 2, FLOATS>,
             norm_forward_short<CENTRED, N, 3, FLOATS>, norm_forward_short<CENTRED, N, 4, FLOATS>},
            {norm_forward_short<CENTRED, N, 1, HALVES>, norm_forward_short<CENTRED, N, 2, HALVES>,
             norm_forward_short<CENTRED, N, 3, HALVES>, norm_forward_short<CENTRED, N, 4, HALVES>}};
        const ups_dtype dtype = call->inputs[0].dtype;
        const bool as_in_training = call->output.dtype == UPS_BF16 &&
                                    (!first || (first->inputs[0].dtype == dtype && first->inputs[1].dtype == UPS_BF16));
        kernels[known_of(dtype, as_in_training)][r.pieces - 1]<<<blocks_of(r), THREADS, 0, stream>>>(
            r, residual_of(first), x, (float *)gain->data, (float *)bias->data, elements_of(&call->output), saved,
            epsilon);
    } else {
        norm_forward_long<CENTRED, N><<<(unsigned)r.rows, THREADS, (size_t)r.width * sizeof(float), stream>>>(
            residual_of(first), x, (const float *)gain->data, (const float *)bias->data, elements_of(&call->output),
            saved, r.width, epsilon);
    }
}

// `first`: of a pair, or NULL.
template <bool CENTRED>
static ups_status norm(ups_device *device, const ups_op_call *first, const ups_op_call *call, ups_error *error) {
    int64_t width = ups_shape_last(call->output.shape);
    bool wide = is_wide(&call->inputs[0], width) && is_wide(&call->output, width) &&
                vector_is_wide(&call->inputs[1], width) && residual_is_wide(first, width);
    if (CENTRED) wide = wide && vector_is_wide(&call->inputs[2], width);
    if (wide)
        launch_forward<CENTRED, WIDE>(ups_cuda_stream(device), first, call);
    else
        launch_forward<CENTRED, 1>(ups_cuda_stream(device), first, call);
    return ups_cuda_launched("a norm", error);
}

// All gradients of rows that fit into registers.
template <bool CENTRED, int N>
static ups_status short_gradients(ups_device *device, const row_lanes &r, const ups_op_call *first,
                                  const ups_op_call *call, row_sums dgain, row_sums dbias, ups_error *error) {
    constexpr bool KNOWN = CENTRED && N == WIDE; // of layer norms, which models are made of
    constexpr known_dtypes FLOATS = KNOWN ? FLOAT_STREAM : ANY, HALVES = KNOWN ? BF16_STREAM : ANY;
    static constexpr decltype(&norm_backward_short<CENTRED, N, 1, ANY>) kernels[][MOST_PIECES] = {
        {norm_backward_short<CENTRED, N, 1, ANY>, norm_backward_short<CENTRED, N, 2, ANY>,
         norm_backward_short<CENTRED, N, 3, ANY>, norm_backward_short<CENTRED, N, 4, ANY>},
        {norm_backward_short<CENTRED, N, 1, FLOATS>, norm_backward_short<CENTRED, N, 2, FLOATS>,
         norm_backward_short<CENTRED, N, 3, FLOATS>, norm_backward_short<CENTRED, N, 4, FLOATS>},
        {norm_backward_short<CENTRED, N, 1, HALVES>, norm_backward_short<CENTRED, N, 2, HALVES>,
         norm_backward_short<CENTRED, N, 3, HALVES>, norm_backward_short<CENTRED, N, 4, HALVES>}};
    const ups_tensor *dx = &call->input_gradients[0], *df = first ? &first->input_gradients[1] : nullptr;
    const ups_dtype stream = call->inputs[0].dtype;
    const bool as_in_training = call->output_gradient.dtype == UPS_BF16 && (!is_present(dx) || dx->dtype == stream) &&
                                (!df || !is_present(df) || df->dtype == UPS_BF16);
    const known_dtypes known = known_of(stream, as_in_training);
    unsigned blocks = walking_blocks_of(r);
    kernels[known][r.pieces - 1]<<<blocks, THREADS, 0, ups_cuda_stream(device)>>>(
        r, residual_of(first), elements_of(&call->inputs[0]), elements_of(&call->output_gradient),
        (float *)call->inputs[1].data, (const float *)call->saved[0].data, elements_of(&call->input_gradients[0]),
        call->accumulate[0], dgain, dbias);
    UPS_TRY(ups_cuda_launched("a norm's gradients", error));
    row_grid grid = {1, r.rows, r.width, (unsigned)r.lanes, (unsigned)(THREADS / r.lanes), 1, blocks};
    return add_shares(device, grid, dgain, dbias, error);
}

template <bool CENTRED, int N>
static ups_status long_gradients(ups_device *device, const row_lanes &r, const ups_op_call *first,
                                 const ups_op_call *call, row_sums dgain, row_sums dbias, ups_error *error) {
    elements x = elements_of(&call->inputs[0]), dy = elements_of(&call->output_gradient);
    const float *gain = (const float *)call->inputs[1].data, *saved = (const float *)call->saved[0].data;
    cudaStream_t stream = ups_cuda_stream(device);
    if (is_present(&call->input_gradients[0])) {
        norm_backward_long<CENTRED, N><<<(unsigned)r.rows, THREADS, (size_t)r.width * 2 * sizeof(float), stream>>>(
            residual_of(first), x, dy, gain, saved, elements_of(&call->input_gradients[0]), r.width,
            call->accumulate[0]);
        UPS_TRY(ups_cuda_launched("a norm's gradient", error));
    }
    if (!dgain.to.data && !dbias.to.data) return UPS_OK;
    row_grid grid = row_grid_of(1, r.rows, r.width, N);
    norm_parameters<CENTRED, N><<<blocks_of(grid), THREADS, 0, stream>>>(grid, x, dy, saved, dgain, dbias);
    UPS_TRY(ups_cuda_launched("the gradients of a norm's gain and bias", error));
    return add_shares(device, grid, dgain, dbias, error);
}

template <bool CENTRED, int N>
static ups_status gradients_by(ups_device *device, const ups_op_call *first, const ups_op_call *call,
                               ups_error *error) {
    const ups_tensor none = {}, *dbias = CENTRED ? &call->input_gradients[2] : &none;
    int64_t rows = ups_shape_rows(call->inputs[0].shape), width = ups_shape_last(call->inputs[0].shape);
    float *partials = (float *)call->workspace;
    row_sums to_gain = row_sums_of(&call->input_gradients[1], call->accumulate[1], partials);
    row_sums to_bias = row_sums_of(dbias, call->accumulate[2], partials + partials_of(rows, width) / 2);
    row_lanes r = row_lanes_of(rows, width, N, true);
    return (r.lanes ? short_gradients<CENTRED, N> : long_gradients<CENTRED, N>)(device, r, first, call, to_gain,
                                                                                to_bias, error);
}

template <bool CENTRED>
static ups_status gradients(ups_device *device, const ups_op_call *first, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dy = &call->output_gradient, *dx = &call->input_gradients[0];
    int64_t width = ups_shape_last(x->shape);
    bool wide = is_wide(x, width) && is_wide(dy, width) && (!is_present(dx) || is_wide(dx, width)) &&
                vector_is_wide(&call->inputs[1], width) && vector_is_wide(&call->input_gradients[1], width) &&
                residual_is_wide(first, width);
    if (CENTRED) wide = wide && vector_is_wide(&call->input_gradients[2], width);
    return (wide ? gradients_by<CENTRED, WIDE> : gradients_by<CENTRED, 1>)(device, first, call, error);
}

template <bool CENTRED> static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return norm<CENTRED>(device, nullptr, call, error);
}

template <bool CENTRED> static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return gradients<CENTRED>(device, nullptr, call, error);
}

const ups_cuda_kernel ups_cuda_layer_norm = {forward<true>, backward<true>, prepare, norm<true>, gradients<true>};
const ups_cuda_kernel ups_cuda_rms_norm = {forward<false>, backward<false>, prepare, norm<false>, gradients<false>};
