// Losses: one float32 a sample (a window), and their weighted sum. A window's elements are divided into parts, a block
// each; its result is made of the parts' sums. Sums are float32 within a thread, float64 beyond. How many parts there
// are depends on shapes alone.
#include "model/cuda/reduce.cuh"
#include <initializer_list>

enum { WARPS = THREADS / 32, LEAST_PART = THREADS * WIDE, MOST_PART = 8 * LEAST_PART /* elements of a part */ };

struct window_parts {
    int64_t windows, size, part; // elements of a window, and of a part
    unsigned parts;              // of a window
};

static window_parts parts_of(const ups_shape &shape) {
    int64_t windows = shape.size[0], size = ups_shape_elements(shape) / windows;
    int64_t least = (size + MOST_PART - 1) / MOST_PART, most = (size + LEAST_PART - 1) / LEAST_PART;
    int64_t wanted = (FULL_CARD + windows - 1) / windows, parts = wanted < most ? wanted : most;
    if (parts < least) parts = least;
    int64_t part = ((size + parts - 1) / parts + LEAST_PART - 1) / LEAST_PART * LEAST_PART;
    return {windows, size, part, (unsigned)((size + part - 1) / part)};
}

static unsigned blocks_of(const window_parts &w) {
    return (unsigned)(w.windows * w.parts);
}

// A block's: elements `start` to `end` of the tensor, which are of the window.
struct part_place {
    int64_t window, start, end;
    unsigned part;
};

static __device__ __forceinline__ part_place part_in(const window_parts &w) {
    part_place at;
    at.part = blockIdx.x % w.parts;
    at.window = blockIdx.x / w.parts;
    int64_t behind = (at.part + 1) * w.part;
    at.start = at.window * w.size + at.part * w.part;
    at.end = at.window * w.size + (behind < w.size ? behind : w.size);
    return at;
}

static bool all_wide(int64_t size, std::initializer_list<const ups_tensor *> tensors) {
    for (const ups_tensor *tensor : tensors) {
        if (is_present(tensor) && !is_wide(tensor, size)) return false;
    }
    return true;
}

// ---- sums of a part

// Sums over the block's threads of COUNT numbers each: thread k < COUNT has number k's.
template <int COUNT> static __device__ __forceinline__ double sums_of_block(const float (&x)[COUNT]) {
    __shared__ double scratch[COUNT][WARPS];
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        double sum = warp_sum((double)x[k]);
        if (threadIdx.x % 32 == 0) scratch[k][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x < COUNT) {
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) sum += scratch[threadIdx.x][warp];
    }
    return sum;
}

// Squares of differences and of targets.
struct squares {
    enum { COUNT = 2 };
    elements p, t;
    template <int N> __device__ void add(int64_t at, float (&sums)[COUNT]) const {
        float a[N], b[N];
        read_elements<N>(p, at, a);
        read_elements<N>(t, at, b);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sums[0] += (a[i] - b[i]) * (a[i] - b[i]);
            sums[1] += b[i] * b[i];
        }
    }
};

// Squares of what is below zero.
struct below_zero {
    enum { COUNT = 1 };
    elements x;
    template <int N> __device__ void add(int64_t at, float (&sums)[COUNT]) const {
        float a[N];
        read_elements<N>(x, at, a);
#pragma unroll
        for (int i = 0; i < N; i++) sums[0] += a[i] < 0.0f ? a[i] * a[i] : 0.0f;
    }
};

// Sum k of a part to sums[(window COUNT + k) parts + part].
template <typename TERMS, int N>
static __global__ void __launch_bounds__(THREADS) loss_sums_kernel(window_parts w, TERMS terms, double *sums) {
    part_place at = part_in(w);
    float own[TERMS::COUNT] = {};
    for (int64_t i = at.start + threadIdx.x * N; i < at.end; i += THREADS * N) terms.template add<N>(i, own);
    double sum = sums_of_block<TERMS::COUNT>(own);
    if (threadIdx.x < TERMS::COUNT) sums[(at.window * TERMS::COUNT + threadIdx.x) * w.parts + at.part] = sum;
}

// Over the parts of a window: every thread has it.
static __device__ __forceinline__ double sum_of_parts(const double *parts, unsigned count) {
    __shared__ double scratch[WARPS];
    double sum = 0.0;
    for (unsigned part = threadIdx.x; part < count; part += THREADS) sum += parts[part];
    return block_sum(sum, scratch);
}

template <typename TERMS>
static ups_status sum_terms(ups_device *device, const window_parts &w, TERMS terms, bool wide, void *sums,
                            ups_error *error) {
    auto kernel = wide ? loss_sums_kernel<TERMS, WIDE> : loss_sums_kernel<TERMS, 1>;
    kernel<<<blocks_of(w), THREADS, 0, ups_cuda_stream(device)>>>(w, terms, (double *)sums);
    return ups_cuda_launched("sums of a loss", error);
}

template <typename TERMS>
static ups_status prepare_sums(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                               ups_error *error) {
    kernel->workspace_bytes = (size_t)blocks_of(parts_of(call->inputs[0].shape)) * TERMS::COUNT * sizeof(double);
    return UPS_OK;
}

// ---- mean square error, and squares below zero: means

static __global__ void __launch_bounds__(THREADS) mean_kernel(window_parts w, int count, const double *sums, float *y) {
    double sum = sum_of_parts(sums + (int64_t)blockIdx.x * count * w.parts, w.parts);
    if (threadIdx.x == 0) y[blockIdx.x] = (float)(sum / (double)w.size);
}

template <typename TERMS>
static ups_status mean_forward(ups_device *device, const ups_op_call *call, TERMS terms, bool wide, ups_error *error) {
    window_parts w = parts_of(call->inputs[0].shape);
    UPS_TRY(sum_terms(device, w, terms, wide, call->workspace, error));
    mean_kernel<<<(unsigned)w.windows, THREADS, 0, ups_cuda_stream(device)>>>(
        w, TERMS::COUNT, (const double *)call->workspace, (float *)call->output.data);
    return ups_cuda_launched("a mean loss", error);
}

static bool pair_is_wide(const ups_op_call *call, int64_t size) {
    return all_wide(size, {&call->inputs[0], &call->inputs[1], &call->input_gradients[0], &call->input_gradients[1]});
}

static ups_status mse_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    squares terms = {elements_of(&call->inputs[0]), elements_of(&call->inputs[1])};
    bool wide = all_wide(parts_of(call->inputs[0].shape).size, {&call->inputs[0], &call->inputs[1]});
    return mean_forward(device, call, terms, wide, error);
}

// dp (+)= factor (p - t), dt (+)= -factor (p - t)
template <int N>
static __device__ __forceinline__ void write_difference(const part_place &at, float factor, elements p, elements t,
                                                        elements dp, bool accumulate_p, elements dt,
                                                        bool accumulate_t) {
    for (int64_t i = at.start + threadIdx.x * N; i < at.end; i += THREADS * N) {
        float a[N], b[N];
        read_elements<N>(p, i, a);
        read_elements<N>(t, i, b);
#pragma unroll
        for (int k = 0; k < N; k++) {
            a[k] = factor * (a[k] - b[k]);
            b[k] = -a[k];
        }
        if (dp.data) write_elements<N>(dp, i, a, accumulate_p);
        if (dt.data) write_elements<N>(dt, i, b, accumulate_t);
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    mse_backward_kernel(window_parts w, elements p, elements t, const float *dy, elements dp, bool accumulate_p,
                        elements dt, bool accumulate_t) {
    part_place at = part_in(w);
    float factor = 2.0f * dy[at.window] / (float)w.size;
    write_difference<N>(at, factor, p, t, dp, accumulate_p, dt, accumulate_t);
}

static ups_status mse_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dp = &call->input_gradients[0], *dt = &call->input_gradients[1];
    if (!is_present(dp) && !is_present(dt)) return UPS_OK;
    window_parts w = parts_of(call->inputs[0].shape);
    auto kernel = pair_is_wide(call, w.size) ? mse_backward_kernel<WIDE> : mse_backward_kernel<1>;
    kernel<<<blocks_of(w), THREADS, 0, ups_cuda_stream(device)>>>(
        w, elements_of(&call->inputs[0]), elements_of(&call->inputs[1]), (const float *)call->output_gradient.data,
        elements_of(dp), call->accumulate[0], elements_of(dt), call->accumulate[1]);
    return ups_cuda_launched("a mean square error's gradient", error);
}

static ups_status negative_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    bool wide = is_wide(&call->inputs[0], parts_of(call->inputs[0].shape).size);
    return mean_forward(device, call, below_zero{elements_of(&call->inputs[0])}, wide, error);
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    negative_backward_kernel(window_parts w, elements x, const float *dy, elements dx, bool accumulate) {
    part_place at = part_in(w);
    float factor = 2.0f * dy[at.window] / (float)w.size;
    for (int64_t i = at.start + threadIdx.x * N; i < at.end; i += THREADS * N) {
        float v[N];
        read_elements<N>(x, i, v);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = v[k] < 0.0f ? factor * v[k] : 0.0f;
        write_elements<N>(dx, i, v, accumulate);
    }
}

static ups_status negative_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dx = &call->input_gradients[0];
    if (!is_present(dx)) return UPS_OK;
    window_parts w = parts_of(x->shape);
    auto kernel = all_wide(w.size, {x, dx}) ? negative_backward_kernel<WIDE> : negative_backward_kernel<1>;
    kernel<<<blocks_of(w), THREADS, 0, ups_cuda_stream(device)>>>(
        w, elements_of(x), (const float *)call->output_gradient.data, elements_of(dx), call->accumulate[0]);
    return ups_cuda_launched("a gradient of what is below zero", error);
}

// ---- relative error: |p - t| / (|t| + epsilon)

static __global__ void __launch_bounds__(THREADS)
    relative_forward_kernel(window_parts w, const double *sums, float epsilon, float *y) {
    const double *own = sums + (int64_t)blockIdx.x * squares::COUNT * w.parts;
    double difference = sum_of_parts(own, w.parts), target = sum_of_parts(own + w.parts, w.parts);
    if (threadIdx.x == 0) y[blockIdx.x] = (float)(sqrt(difference) / (sqrt(target) + (double)epsilon));
}

// d|p - t|/dp = (p - t)/|p - t|; 0 where prediction and target are equal, where the norm has no derivative.
template <int N>
static __global__ void __launch_bounds__(THREADS, 4) // 64 registers: with what the compiler takes by itself it spills
    relative_backward_kernel(window_parts w, const double *sums, float epsilon, elements p, elements t, const float *dy,
                             elements dp, bool accumulate) {
    part_place at = part_in(w);
    const double *own = sums + at.window * squares::COUNT * w.parts;
    double difference = sum_of_parts(own, w.parts), target = sum_of_parts(own + w.parts, w.parts);
    double norm = sqrt(difference) * (sqrt(target) + (double)epsilon);
    float factor = norm > 0.0 ? (float)((double)dy[at.window] / norm) : 0.0f;
    write_difference<N>(at, factor, p, t, dp, accumulate, {}, false);
}

static ups_status relative_sums(ups_device *device, const ups_op_call *call, const window_parts &w, ups_error *error) {
    squares terms = {elements_of(&call->inputs[0]), elements_of(&call->inputs[1])};
    return sum_terms(device, w, terms, all_wide(w.size, {&call->inputs[0], &call->inputs[1]}), call->workspace, error);
}

static ups_status relative_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    window_parts w = parts_of(call->inputs[0].shape);
    UPS_TRY(relative_sums(device, call, w, error));
    relative_forward_kernel<<<(unsigned)w.windows, THREADS, 0, ups_cuda_stream(device)>>>(
        w, (const double *)call->workspace, call->attributes->epsilon, (float *)call->output.data);
    return ups_cuda_launched("a relative error", error);
}

static ups_status relative_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dp = &call->input_gradients[0];
    if (!is_present(dp)) return UPS_OK;
    window_parts w = parts_of(call->inputs[0].shape);
    UPS_TRY(relative_sums(device, call, w, error));
    auto kernel = pair_is_wide(call, w.size) ? relative_backward_kernel<WIDE> : relative_backward_kernel<1>;
    kernel<<<blocks_of(w), THREADS, 0, ups_cuda_stream(device)>>>(
        w, (const double *)call->workspace, call->attributes->epsilon, elements_of(&call->inputs[0]),
        elements_of(&call->inputs[1]), (const float *)call->output_gradient.data, elements_of(dp), call->accumulate[0]);
    return ups_cuda_launched("a relative error's gradient", error);
}

// ---- by groups: each element of a window is of a group; a row of the table is a group's weight, and what its targets
// lack

enum { GROUPS_AT_ONCE = 8 }; // whose sums a thread keeps

template <int N>
static __device__ __forceinline__ void read_groups(const int32_t *from, int64_t at, int32_t (&group)[N]) {
    if (N == WIDE) {
        int4 low = ((const int4 *)(from + at))[0], high = ((const int4 *)(from + at))[1];
        group[0] = low.x, group[1 % N] = low.y, group[2 % N] = low.z, group[3 % N] = low.w;
        group[4 % N] = high.x, group[5 % N] = high.y, group[6 % N] = high.z, group[7 % N] = high.w;
    } else {
        group[0] = from[at];
    }
}

// A grid row has GROUPS_AT_ONCE groups. Sums of squares of differences, then of targets, of a group, to
// sums[((window groups + group) 2 + which) parts + part].
template <int N>
static __global__ void __launch_bounds__(THREADS)
    grouped_sums_kernel(window_parts w, elements p, elements t, const int32_t *group, const float *table, int groups,
                        double *sums) {
    part_place at = part_in(w);
    int first = blockIdx.y * GROUPS_AT_ONCE;
    float own[2 * GROUPS_AT_ONCE] = {};
    for (int64_t i = at.start + threadIdx.x * N; i < at.end; i += THREADS * N) {
        float a[N], b[N];
        int32_t of[N];
        read_elements<N>(p, i, a);
        read_elements<N>(t, i, b);
        read_groups<N>(group, i - at.window * w.size, of);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float target = b[k] + table[2 * of[k] + 1], difference = a[k] - b[k];
#pragma unroll
            for (int g = 0; g < GROUPS_AT_ONCE; g++) {
                if (of[k] != first + g) continue;
                own[2 * g] += difference * difference;
                own[2 * g + 1] += target * target;
            }
        }
    }
    double sum = sums_of_block<2 * GROUPS_AT_ONCE>(own);
    int which = 2 * first + threadIdx.x;
    if (threadIdx.x < 2 * GROUPS_AT_ONCE && which < 2 * groups)
        sums[(at.window * 2 * groups + which) * w.parts + at.part] = sum;
}

// Norms of a group of a window, by a warp.
struct group_norms {
    double difference, target;
};

static __device__ __forceinline__ group_norms norms_of(const double *sums, unsigned parts, float least) {
    double difference = 0.0, target = 0.0;
    for (unsigned part = threadIdx.x % 32; part < parts; part += 32) {
        difference += sums[part];
        target += sums[parts + part];
    }
    return {sqrt(warp_sum(difference)), fmax(sqrt(warp_sum(target)), (double)least)};
}

// A block a window, a warp every WARPS-th group.
static __global__ void __launch_bounds__(THREADS)
    grouped_forward_kernel(window_parts w, const double *sums, const float *table, int groups, float least, float *y) {
    __shared__ double scratch[WARPS];
    int warp = threadIdx.x / 32;
    double loss = 0.0;
    for (int g = warp; g < groups; g += WARPS) {
        group_norms norms = norms_of(sums + ((int64_t)blockIdx.x * groups + g) * 2 * w.parts, w.parts, least);
        loss += (double)table[2 * g] * norms.difference / norms.target;
    }
    if (threadIdx.x % 32 == 0) scratch[warp] = loss;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int other = 1; other < WARPS; other++) loss += scratch[other];
    y[blockIdx.x] = (float)loss;
}

// What a difference is multiplied by, (windows, groups). Of a group without an error the norm has no derivative: 0.
static __global__ void __launch_bounds__(THREADS)
    grouped_factors_kernel(window_parts w, const double *sums, const float *table, int groups, float least,
                           const float *dy, float *factors) {
    for (int g = threadIdx.x / 32; g < groups; g += WARPS) {
        int64_t at = (int64_t)blockIdx.x * groups + g;
        group_norms norms = norms_of(sums + at * 2 * w.parts, w.parts, least);
        double norm = norms.difference * norms.target;
        if (threadIdx.x % 32 == 0)
            factors[at] = norm > 0.0 ? (float)((double)dy[blockIdx.x] * (double)table[2 * g] / norm) : 0.0f;
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    grouped_backward_kernel(window_parts w, elements p, elements t, const int32_t *group, const float *factors,
                            int groups, elements dp, bool accumulate) {
    part_place at = part_in(w);
    for (int64_t i = at.start + threadIdx.x * N; i < at.end; i += THREADS * N) {
        float a[N], b[N];
        int32_t of[N];
        read_elements<N>(p, i, a);
        read_elements<N>(t, i, b);
        read_groups<N>(group, i - at.window * w.size, of);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = factors[at.window * groups + of[k]] * (a[k] - b[k]);
        write_elements<N>(dp, i, a, accumulate);
    }
}

// Of the workspace: the parts' sums, then the factors.
static size_t grouped_sums_bytes(const window_parts &w, int64_t groups) {
    return (size_t)(blocks_of(w) * 2 * groups) * sizeof(double);
}

static ups_status grouped_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                  ups_error *error) {
    enum { MOST_GROUPS = 65535 * GROUPS_AT_ONCE }; // a grid's rows
    window_parts w = parts_of(call->inputs[0].shape);
    int64_t groups = call->inputs[3].shape.size[0];
    if (groups > MOST_GROUPS) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "an error by %lld groups: on CUDA there are at most %d",
                        (long long)groups, MOST_GROUPS);
    }
    kernel->workspace_bytes = grouped_sums_bytes(w, groups) + (size_t)(w.windows * groups) * sizeof(float);
    return UPS_OK;
}

static ups_status grouped_sums(ups_device *device, const ups_op_call *call, const window_parts &w, ups_error *error) {
    const ups_tensor *p = &call->inputs[0], *t = &call->inputs[1], *group = &call->inputs[2];
    int groups = (int)call->inputs[3].shape.size[0];
    dim3 grid(blocks_of(w), (unsigned)(groups + GROUPS_AT_ONCE - 1) / GROUPS_AT_ONCE);
    auto kernel = all_wide(w.size, {p, t, group}) ? grouped_sums_kernel<WIDE> : grouped_sums_kernel<1>;
    kernel<<<grid, THREADS, 0, ups_cuda_stream(device)>>>(
        w, elements_of(p), elements_of(t), (const int32_t *)group->data, (const float *)call->inputs[3].data, groups,
        (double *)call->workspace);
    return ups_cuda_launched("sums of a loss by groups", error);
}

static ups_status grouped_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    window_parts w = parts_of(call->inputs[0].shape);
    int groups = (int)call->inputs[3].shape.size[0];
    UPS_TRY(grouped_sums(device, call, w, error));
    grouped_forward_kernel<<<(unsigned)w.windows, THREADS, 0, ups_cuda_stream(device)>>>(
        w, (const double *)call->workspace, (const float *)call->inputs[3].data, groups, call->attributes->factor,
        (float *)call->output.data);
    return ups_cuda_launched("a loss by groups", error);
}

static ups_status grouped_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *p = &call->inputs[0], *t = &call->inputs[1], *group = &call->inputs[2],
                     *dp = &call->input_gradients[0];
    if (!is_present(dp)) return UPS_OK;
    window_parts w = parts_of(p->shape);
    int groups = (int)call->inputs[3].shape.size[0];
    float *factors = (float *)((char *)call->workspace + grouped_sums_bytes(w, groups));
    cudaStream_t stream = ups_cuda_stream(device);
    UPS_TRY(grouped_sums(device, call, w, error));
    grouped_factors_kernel<<<(unsigned)w.windows, THREADS, 0, stream>>>(
        w, (const double *)call->workspace, (const float *)call->inputs[3].data, groups, call->attributes->factor,
        (const float *)call->output_gradient.data, factors);
    UPS_TRY(ups_cuda_launched("factors of a loss by groups", error));
    auto kernel = all_wide(w.size, {p, t, group, dp}) ? grouped_backward_kernel<WIDE> : grouped_backward_kernel<1>;
    kernel<<<blocks_of(w), THREADS, 0, stream>>>(w, elements_of(p), elements_of(t), (const int32_t *)group->data,
                                                 factors, groups, elements_of(dp), call->accumulate[0]);
    return ups_cuda_launched("a gradient of a loss by groups", error);
}

// ---- covariance of features: C = (x - mean)ᵀ (x - mean) / rows, as products of tiles in float32
//
// What is saved: C (width, width), of which only the diagonal is made where only it counts, then the sums of x's
// columns.

enum {
    TILE = 64,
    DEPTH = 16,
    ROW = TILE + 4 /* floats of a tile's row: without conflicts of banks, and of 16 bytes still */
};

struct tile_operands {
    float a[DEPTH][ROW], b[DEPTH][ROW];
};

// sum[i][j] += over k of a[k][4 i' + i] b[k][4 j' + j]: a thread (i', j') has 4 x 4 of a tile's.
static __device__ __forceinline__ void multiply_tile(const tile_operands &tile, float (&sum)[4][4]) {
    int row = threadIdx.x / (TILE / 4) * 4, column = threadIdx.x % (TILE / 4) * 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float4 u = *(const float4 *)&tile.a[k][row], v = *(const float4 *)&tile.b[k][column];
        float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sum[i][j] += a[i] * b[j];
        }
    }
}

struct covariance {
    int64_t rows, width, samples;
    float share; // of a row in a mean
    bool diagonal;
    unsigned tiles, shares; // along a side of C; of the rows
};

static covariance covariance_of(const ups_op_call *call, const ups_shape &x) {
    enum { LEAST_ROWS = 256, MOST_SHARES = 128 };
    covariance c = {ups_shape_rows(x), ups_shape_last(x), x.size[0], 1.0f, call->attributes->diagonal, 1, 1};
    c.share = 1.0f / (float)c.rows;
    c.tiles = (unsigned)((c.width + TILE - 1) / TILE);
    int64_t made = c.diagonal ? c.tiles : (int64_t)c.tiles * c.tiles, wanted = (FULL_CARD + made - 1) / made;
    int64_t possible = (c.rows + LEAST_ROWS - 1) / LEAST_ROWS, shares = wanted < possible ? wanted : possible;
    c.shares = (unsigned)(shares > MOST_SHARES ? MOST_SHARES : shares);
    return c;
}

// How many entries of C the loss is a mean of.
static __host__ __device__ double entries_of(const covariance &c) {
    double off = (double)c.width * (double)(c.width - 1);
    return c.diagonal ? (double)c.width : off > 1.0 ? off : 1.0;
}

static __device__ __forceinline__ float centred(const covariance &c, elements x, const float *sums, int64_t row,
                                                int64_t end, int64_t column) {
    if (row >= end || column >= c.width) return 0.0f;
    float v[1];
    read_elements<1>(x, row * c.width + column, v);
    return v[0] - sums[column] * c.share;
}

// A block a tile of a share's products: partials[share][d][e].
static __global__ void __launch_bounds__(THREADS)
    covariance_product_kernel(covariance c, elements x, const float *sums, float *partials) {
    __shared__ __align__(16) tile_operands tile;
    unsigned made = blockIdx.x / c.shares, share = blockIdx.x % c.shares;
    int64_t d0 = (int64_t)(c.diagonal ? made : made / c.tiles) * TILE,
            e0 = (int64_t)(c.diagonal ? made : made % c.tiles) * TILE;
    int64_t first = c.rows * share / c.shares, end = c.rows * (share + 1) / c.shares;
    float sum[4][4] = {};
    for (int64_t row = first; row < end; row += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += THREADS) {
            int k = i / TILE, at = i % TILE;
            tile.a[k][at] = centred(c, x, sums, row + k, end, d0 + at);
            tile.b[k][at] = centred(c, x, sums, row + k, end, e0 + at);
        }
        __syncthreads();
        multiply_tile(tile, sum);
        __syncthreads();
    }
    int64_t d = d0 + threadIdx.x / (TILE / 4) * 4, e = e0 + threadIdx.x % (TILE / 4) * 4;
    for (int i = 0; i < 4 && d + i < c.width; i++) {
        for (int j = 0; j < 4 && e + j < c.width; j++)
            partials[((int64_t)share * c.width + d + i) * c.width + e + j] = sum[i][j];
    }
}

static __host__ __device__ int64_t entries_made(const covariance &c) {
    return c.diagonal ? c.width : c.width * c.width;
}

// C's entries, an entry a thread, and each block's sum of what the loss has of them.
static __global__ void __launch_bounds__(THREADS)
    covariance_entries_kernel(covariance c, const float *partials, float *entries, double *losses) {
    __shared__ double scratch[WARPS];
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double loss = 0.0;
    if (i < entries_made(c)) {
        int64_t at = c.diagonal ? i * c.width + i : i;
        bool counts = c.diagonal || i / c.width != i % c.width;
        float sum = 0.0f;
#pragma unroll 8
        for (unsigned share = 0; share < c.shares; share++) sum += partials[share * c.width * c.width + at];
        entries[at] = sum * c.share;
        double off = (double)entries[at] - (c.diagonal ? 1.0 : 0.0);
        if (counts) loss = off * off;
    }
    loss = block_sum(loss, scratch);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

static __global__ void __launch_bounds__(THREADS)
    covariance_loss_kernel(covariance c, const double *losses, unsigned count, float *y) {
    float loss = (float)(sum_of_parts(losses, count) / entries_of(c));
    for (int64_t sample = threadIdx.x; sample < c.samples; sample += THREADS) y[sample] = loss;
}

// dx = 4 Σ dy / (rows · entries) · (x - mean) (C - I), of the entries that count; what the means change cancels. A
// block a tile of dx.
static __global__ void __launch_bounds__(THREADS)
    covariance_backward_kernel(covariance c, elements x, const float *entries, const float *sums, const float *dy,
                               elements dx, bool accumulate) {
    __shared__ __align__(16) tile_operands tile;
    int64_t row0 = (int64_t)(blockIdx.x / c.tiles) * TILE, e0 = (int64_t)(blockIdx.x % c.tiles) * TILE;
    __shared__ double scratch[WARPS];
    double upstream = 0.0;
    for (int64_t sample = threadIdx.x; sample < c.samples; sample += THREADS) upstream += (double)dy[sample];
    float factor = (float)(4.0 * block_sum(upstream, scratch) / ((double)c.rows * entries_of(c)));
    float sum[4][4] = {};
    int64_t first = c.diagonal ? e0 : 0, end = c.diagonal && e0 + TILE < c.width ? e0 + TILE : c.width;
    for (int64_t d0 = first; d0 < end; d0 += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += THREADS) {
            int64_t d = d0 + i / TILE, e = e0 + i % TILE;
            bool counts = d < c.width && e < c.width && (d == e) == c.diagonal;
            tile.b[i / TILE][i % TILE] = counts ? entries[d * c.width + e] - (c.diagonal ? 1.0f : 0.0f) : 0.0f;
            tile.a[i % DEPTH][i / DEPTH] = centred(c, x, sums, row0 + i / DEPTH, c.rows, d0 + i % DEPTH);
        }
        __syncthreads();
        multiply_tile(tile, sum);
        __syncthreads();
    }
    int64_t row = row0 + threadIdx.x / (TILE / 4) * 4, e = e0 + threadIdx.x % (TILE / 4) * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float v[1] = {factor * sum[i][j]};
            if (row + i < c.rows && e + j < c.width) write_elements<1>(dx, (row + i) * c.width + e + j, v, accumulate);
        }
    }
}

// Of the workspace: losses by blocks of entries, then products by shares, or before these sums of columns.
static unsigned entry_blocks(const covariance &c) {
    return (unsigned)((entries_made(c) + THREADS - 1) / THREADS);
}

static ups_status covariance_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                     ups_error *error) {
    covariance c = covariance_of(call, call->inputs[0].shape);
    int64_t products = (int64_t)c.shares * c.width * c.width, columns = row_partials(1, c.rows, c.width);
    kernel->workspace_bytes =
        entry_blocks(c) * sizeof(double) + (size_t)(products > columns ? products : columns) * sizeof(float);
    return UPS_OK;
}

static ups_status covariance_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0];
    covariance c = covariance_of(call, x->shape);
    float *entries = (float *)call->saved[0].data, *sums = entries + c.width * c.width;
    double *losses = (double *)call->workspace;
    float *partials = (float *)(losses + entry_blocks(c));
    unsigned made = c.diagonal ? c.tiles : c.tiles * c.tiles;
    cudaStream_t stream = ups_cuda_stream(device);
    UPS_TRY(ups_cuda_sum_rows(device, x, partials, sums, false, error));
    covariance_product_kernel<<<made * c.shares, THREADS, 0, stream>>>(c, elements_of(x), sums, partials);
    UPS_TRY(ups_cuda_launched("a covariance", error));
    covariance_entries_kernel<<<entry_blocks(c), THREADS, 0, stream>>>(c, partials, entries, losses);
    UPS_TRY(ups_cuda_launched("entries of a covariance", error));
    covariance_loss_kernel<<<1, THREADS, 0, stream>>>(c, losses, entry_blocks(c), (float *)call->output.data);
    return ups_cuda_launched("a loss of covariance", error);
}

static ups_status covariance_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dx = &call->input_gradients[0];
    if (!is_present(dx)) return UPS_OK;
    covariance c = covariance_of(call, x->shape);
    const float *entries = (const float *)call->saved[0].data;
    unsigned blocks = (unsigned)((c.rows + TILE - 1) / TILE) * c.tiles;
    covariance_backward_kernel<<<blocks, THREADS, 0, ups_cuda_stream(device)>>>(
        c, elements_of(x), entries, entries + c.width * c.width, (const float *)call->output_gradient.data,
        elements_of(dx), call->accumulate[0]);
    return ups_cuda_launched("a gradient of a covariance", error);
}

// ---- weighted sum of losses: their means, which are a few hundred numbers, times weights

struct weighted_terms {
    const float *terms[UPS_MAX_INPUTS];
    float *gradients[UPS_MAX_INPUTS]; // NULL: not wanted
    int64_t counts[UPS_MAX_INPUTS];
    float weights[UPS_MAX_INPUTS];
    bool accumulate[UPS_MAX_INPUTS];
    int count;
};

static weighted_terms terms_of(const ups_op_call *call) {
    weighted_terms t = {};
    t.count = call->input_count;
    for (int i = 0; i < t.count; i++) {
        t.terms[i] = (const float *)call->inputs[i].data;
        t.gradients[i] = (float *)call->input_gradients[i].data;
        t.counts[i] = ups_shape_elements(call->inputs[i].shape);
        t.weights[i] = call->attributes->weights[i];
        t.accumulate[i] = call->accumulate[i];
    }
    return t;
}

static __global__ void __launch_bounds__(THREADS) weighted_sum_kernel(weighted_terms t, float *y) {
    __shared__ double scratch[WARPS];
    double total = 0.0;
    for (int term = 0; term < t.count; term++) {
        double sum = 0.0;
        for (int64_t i = threadIdx.x; i < t.counts[term]; i += THREADS) sum += (double)t.terms[term][i];
        total += (double)t.weights[term] * sum / (double)t.counts[term];
    }
    total = block_sum(total, scratch);
    if (threadIdx.x == 0) *y = (float)total;
}

// A grid row a term.
static __global__ void __launch_bounds__(THREADS) weighted_sum_backward_kernel(weighted_terms t, const float *dy) {
    int term = blockIdx.y;
    float *gradient = t.gradients[term], value = *dy * t.weights[term] / (float)t.counts[term];
    if (!gradient) return;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < t.counts[term]; i += (int64_t)gridDim.x * THREADS)
        gradient[i] = t.accumulate[term] ? gradient[i] + value : value;
}

static ups_status weighted_sum_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    weighted_sum_kernel<<<1, THREADS, 0, ups_cuda_stream(device)>>>(terms_of(call), (float *)call->output.data);
    return ups_cuda_launched("a weighted sum", error);
}

static ups_status weighted_sum_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    weighted_terms t = terms_of(call);
    int64_t most = 1;
    for (int i = 0; i < t.count; i++) most = t.counts[i] > most ? t.counts[i] : most;
    weighted_sum_backward_kernel<<<dim3(blocks_for(most, 1), (unsigned)t.count), THREADS, 0, ups_cuda_stream(device)>>>(
        t, (const float *)call->output_gradient.data);
    return ups_cuda_launched("a weighted sum's gradient", error);
}

const ups_cuda_kernel ups_cuda_loss_mse = {mse_forward, mse_backward, prepare_sums<squares>};
const ups_cuda_kernel ups_cuda_loss_relative = {relative_forward, relative_backward, prepare_sums<squares>};
const ups_cuda_kernel ups_cuda_loss_grouped = {grouped_forward, grouped_backward, grouped_prepare};
const ups_cuda_kernel ups_cuda_loss_negative = {negative_forward, negative_backward, prepare_sums<below_zero>};
const ups_cuda_kernel ups_cuda_loss_covariance = {covariance_forward, covariance_backward, covariance_prepare};
const ups_cuda_kernel ups_cuda_weighted_sum = {weighted_sum_forward, weighted_sum_backward, nullptr};
