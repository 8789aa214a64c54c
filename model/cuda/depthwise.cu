// Depthwise convolution over the cells of a grid. A thread has N channels of TOGETHER neighbouring cells of a line: what the
// kernel has along a line stays in registers, and a cell that was loaded serves all that see it. The gradient to the input
// is the same with the kernel turned round. That to the weight has the sums of a line of the kernel in registers instead:
// blocks of pieces side by side, within a block the threads of a channel one after the other, then blocks in order.
#include "model/cuda/reduce.cuh"

enum { TOGETHER = 4, BLOCK = 128, MOST_PIECE_BLOCKS = 256, ENOUGH_BLOCKS = 1024 };

// Axes that there are not have one cell, and come first.
struct depthwise {
    int batch, channels;
    int cells[3], size[3], reach[3];
    int taps, lines, pieces; // of the kernel; its lines; pieces of TOGETHER cells in a line of cells
    bool periodic;
};

static depthwise depthwise_of(const ups_op_call *call) {
    const ups_op_attributes *a = call->attributes;
    const ups_shape *x = &call->inputs[0].shape;
    depthwise d = {};
    d.batch = (int)x->size[0], d.channels = (int)x->size[2], d.periodic = a->periodic, d.taps = 1;
    for (int axis = 0; axis < 3; axis++) {
        int from = axis - (3 - a->dims);
        d.cells[axis] = from < 0 ? 1 : (int)a->grid[from];
        d.size[axis] = from < 0 ? 1 : (int)a->patch[from];
        d.reach[axis] = d.size[axis] / 2;
        d.taps *= d.size[axis];
    }
    d.lines = d.size[0] * d.size[1];
    d.pieces = (d.cells[2] + TOGETHER - 1) / TOGETHER;
    return d;
}

// Of all samples.
static uint32_t pieces_of(const depthwise &d) {
    return (uint32_t)d.batch * d.cells[0] * d.cells[1] * d.pieces;
}

struct piece {
    int sample, u, v, first; // the line, and the first cell along it
};

static __device__ __forceinline__ piece piece_of(const depthwise &d, uint32_t index) {
    piece p;
    p.first = (int)(index % d.pieces) * TOGETHER;
    index /= d.pieces;
    p.v = (int)(index % d.cells[1]);
    index /= d.cells[1];
    p.u = (int)(index % d.cells[0]);
    p.sample = (int)(index / d.cells[0]);
    return p;
}

// Where a cell lies on an axis of n, or -1 beyond a border of zeros.
static __device__ __forceinline__ int inside(int at, int n, bool periodic) {
    if (!periodic) return at >= 0 && at < n ? at : -1;
    while (at < 0) at += n;
    while (at >= n) at -= n;
    return at;
}

// Element of channel 0 in the first cell of a line.
static __device__ __forceinline__ int64_t line_start(const depthwise &d, int sample, int u, int v) {
    return (((int64_t)sample * d.cells[0] + u) * d.cells[1] + v) * d.cells[2] * d.channels;
}

template <int SIZE, int N>
static __global__ void __launch_bounds__(BLOCK) depthwise_convolve(elements x, const float *weight, elements y, depthwise d,
                                                                   uint32_t count, bool turned, bool accumulate) {
    const uint32_t index = blockIdx.x * BLOCK + threadIdx.x, groups = (uint32_t)(d.channels / N);
    if (index >= count) return;
    const int channel = (int)(index % groups) * N;
    const piece p = piece_of(d, index / groups);
    const elements weights = {(void *)weight, UPS_F32};
    float sum[TOGETHER][N] = {};
    for (int line = 0; line < d.lines; line++) {
        const int u = inside(p.u + line / d.size[1] - d.reach[0], d.cells[0], d.periodic);
        const int v = inside(p.v + line % d.size[1] - d.reach[1], d.cells[1], d.periodic);
        if (u < 0 || v < 0) continue;
        const int64_t start = line_start(d, p.sample, u, v) + channel;
        float w[SIZE][N];
#pragma unroll
        for (int tap = 0; tap < SIZE; tap++) {
            int at = line * SIZE + tap;
            read_elements<N>(weights, (int64_t)(turned ? d.taps - 1 - at : at) * d.channels + channel, w[tap]);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER + SIZE - 1; i++) {
            const int cell = inside(p.first + i - SIZE / 2, d.cells[2], d.periodic);
            if (cell < 0) continue;
            float seen[N];
            read_elements<N>(x, start + (int64_t)cell * d.channels, seen);
#pragma unroll
            for (int tap = 0; tap < SIZE; tap++) {
                if (i - tap < 0 || i - tap >= TOGETHER) continue;
#pragma unroll
                for (int j = 0; j < N; j++) sum[i - tap][j] += seen[j] * w[tap][j];
            }
        }
    }
    const int64_t start = line_start(d, p.sample, p.u, p.v) + channel;
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
        if (p.first + i < d.cells[2])
            write_elements<N>(y, start + (int64_t)(p.first + i) * d.channels, sum[i], accumulate);
    }
}

// Partial sums of the weight's gradient, (blocks, taps, channels): a grid row a block of pieces; beside each other the lines
// of the kernel, and `columns` threads of N channels each. The other threads of a block share its pieces.
template <int SIZE, int N>
static __global__ void __launch_bounds__(BLOCK)
    depthwise_weigh(elements x, elements dy, float *partials, depthwise d, uint32_t count, int columns) {
    __shared__ float sums[SIZE * N][BLOCK];
    const int lanes = BLOCK / columns, lane = threadIdx.x / columns, line = blockIdx.x % d.lines;
    const int first = (int)(blockIdx.x / d.lines) * columns * N, channel = first + threadIdx.x % columns * N;
    const uint32_t end = (uint32_t)row_block_start(count, gridDim.y, blockIdx.y + 1);
    uint32_t index = (uint32_t)row_block_start(count, gridDim.y, blockIdx.y) + lane;
    float sum[SIZE][N] = {};
    for (; channel < d.channels && index < end; index += lanes) {
        const piece p = piece_of(d, index);
        const int u = inside(p.u + line / d.size[1] - d.reach[0], d.cells[0], d.periodic);
        const int v = inside(p.v + line % d.size[1] - d.reach[1], d.cells[1], d.periodic);
        if (u < 0 || v < 0) continue;
        const int64_t own = line_start(d, p.sample, p.u, p.v) + channel, start = line_start(d, p.sample, u, v) + channel;
        float gradient[TOGETHER][N] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (p.first + i < d.cells[2]) read_elements<N>(dy, own + (int64_t)(p.first + i) * d.channels, gradient[i]);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER + SIZE - 1; i++) {
            const int cell = inside(p.first + i - SIZE / 2, d.cells[2], d.periodic);
            if (cell < 0) continue;
            float seen[N];
            read_elements<N>(x, start + (int64_t)cell * d.channels, seen);
#pragma unroll
            for (int tap = 0; tap < SIZE; tap++) {
                if (i - tap < 0 || i - tap >= TOGETHER) continue;
#pragma unroll
                for (int j = 0; j < N; j++) sum[tap][j] += seen[j] * gradient[i - tap][j];
            }
        }
    }
#pragma unroll
    for (int tap = 0; tap < SIZE; tap++) {
#pragma unroll
        for (int j = 0; j < N; j++) sums[tap * N + j][threadIdx.x] = sum[tap][j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SIZE * columns * N; i += BLOCK) {
        const int j = i % N, column = i / N % columns, tap = i / N / columns;
        float total = 0.0f;
        for (int of = 0; of < lanes; of++) total += sums[tap * N + j][of * columns + column];
        if (first + column * N + j >= d.channels) continue;
        partials[((int64_t)blockIdx.y * d.taps + line * SIZE + tap) * d.channels + first + column * N + j] = total;
    }
}

// How the weight's gradient is shared out: by shapes alone.
struct division {
    int columns;
    unsigned across, blocks;
};

static division division_of(const depthwise &d, int each) {
    enum { MOST_COLUMNS = 32 };
    const int groups = (d.channels + each - 1) / each;
    division s = {1, 0, 0};
    while (s.columns < groups && s.columns < MOST_COLUMNS) s.columns *= 2;
    s.across = (unsigned)((groups + s.columns - 1) / s.columns * d.lines);
    const uint32_t lanes = BLOCK / s.columns, most = (pieces_of(d) + lanes - 1) / lanes;
    const uint32_t wanted = (ENOUGH_BLOCKS + s.across - 1) / s.across;
    s.blocks = wanted < MOST_PIECE_BLOCKS ? wanted : MOST_PIECE_BLOCKS;
    if (s.blocks > most) s.blocks = most;
    return s;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel, ups_error *error) {
    const ups_shape *x = &call->inputs[0].shape;
    const depthwise d = depthwise_of(call);
    // A thread's index has 32 bits; the last piece of a line is counted whole.
    if (x->size[0] * x->size[2] > INT32_MAX / d.pieces / (x->size[1] / d.cells[2]))
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "a depthwise convolution of %lld samples of %lld cells and %lld channels: too many for CUDA's kernel; "
                        "a smaller batch would do",
                        (long long)x->size[0], (long long)x->size[1], (long long)x->size[2]);
    if (!backward) return UPS_OK;
    const unsigned one = division_of(d, 1).blocks, wide = division_of(d, WIDE).blocks;
    kernel->workspace_bytes = (size_t)(one > wide ? one : wide) * d.taps * d.channels * sizeof(float);
    return UPS_OK;
}

template <int SIZE>
static ups_status convolve(ups_device *device, const depthwise &d, const ups_tensor *x, const float *weight, const ups_tensor *y,
                           bool turned, bool accumulate, ups_error *error) {
    const bool wide = is_wide(x, d.channels) && is_wide(y, d.channels) && (uintptr_t)weight % 16 == 0;
    const uint32_t count = pieces_of(d) * (uint32_t)(wide ? d.channels / WIDE : d.channels);
    const unsigned blocks = (count + BLOCK - 1) / BLOCK;
    cudaStream_t stream = ups_cuda_stream(device);
    elements from = elements_of(x), to = elements_of(y);
    if (wide)
        depthwise_convolve<SIZE, WIDE><<<blocks, BLOCK, 0, stream>>>(from, weight, to, d, count, turned, accumulate);
    else depthwise_convolve<SIZE, 1><<<blocks, BLOCK, 0, stream>>>(from, weight, to, d, count, turned, accumulate);
    return ups_cuda_launched("a depthwise convolution", error);
}

template <int SIZE>
static ups_status weigh(ups_device *device, const depthwise &d, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *dy = &call->output_gradient;
    const bool wide = is_wide(x, d.channels) && is_wide(dy, d.channels);
    const division s = division_of(d, wide ? WIDE : 1);
    const dim3 grid(s.across, s.blocks);
    const uint32_t count = pieces_of(d);
    float *partials = (float *)call->workspace;
    cudaStream_t stream = ups_cuda_stream(device);
    elements from = elements_of(x), upstream = elements_of(dy);
    if (wide) depthwise_weigh<SIZE, WIDE><<<grid, BLOCK, 0, stream>>>(from, upstream, partials, d, count, s.columns);
    else depthwise_weigh<SIZE, 1><<<grid, BLOCK, 0, stream>>>(from, upstream, partials, d, count, s.columns);
    UPS_TRY(ups_cuda_launched("a depthwise convolution's gradient", error));
    const int64_t width = (int64_t)d.taps * d.channels;
    return add_partials(device, partials, s.blocks, width, width, (float *)call->input_gradients[1].data, call->accumulate[1],
                        error);
}

template <int SIZE>
static ups_status run_backward(ups_device *device, const depthwise &d, const ups_op_call *call, ups_error *error) {
    const ups_tensor *dx = &call->input_gradients[0];
    if (is_present(dx))
        UPS_TRY(convolve<SIZE>(device, d, &call->output_gradient, (const float *)call->inputs[1].data, dx, true,
                               call->accumulate[0], error));
    return is_present(&call->input_gradients[1]) ? weigh<SIZE>(device, d, call, error) : UPS_OK;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const depthwise d = depthwise_of(call);
    const ups_tensor *x = &call->inputs[0], *y = &call->output;
    const float *weight = (const float *)call->inputs[1].data;
    if (d.size[2] == 3) return convolve<3>(device, d, x, weight, y, false, false, error);
    if (d.size[2] == 5) return convolve<5>(device, d, x, weight, y, false, false, error);
    return convolve<7>(device, d, x, weight, y, false, false, error);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const depthwise d = depthwise_of(call);
    if (d.size[2] == 3) return run_backward<3>(device, d, call, error);
    if (d.size[2] == 5) return run_backward<5>(device, d, call, error);
    return run_backward<7>(device, d, call, error);
}

const ups_cuda_kernel ups_cuda_depthwise = {forward, backward, prepare};
