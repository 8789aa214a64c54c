// Fourier and cosine modes of fields, an axis after the other, by fast Fourier transforms; what is computed, and how two lines
// share a transform, is in model/cpu/field_modes.c. A block takes a few pairs of lines, whose numbers stay in shared memory
// from one step to the next; lines too long for it stay in the workspace.
#include "model/cuda/elements.cuh"

enum { MOST_STEPS = 32, MOST_PAIRS = 8, SHARED = 48 * 1024, BLOCKS_IN_MEMORY = 256 };

// Lines along an axis: in groups (a sample's, or those that lie side by side), a number of them every `number`, neighbours
// every `line`.
struct lines {
    int n, steps, radix[MOST_STEPS], pairs; // pairs: that a block takes at once
    bool periodic;
    int64_t groups, members, line, number;
};

static lines lines_of(const ups_op_attributes *attributes, int axis, int64_t inner, int64_t batch, int64_t sample) {
    lines l = {};
    l.n = (int)attributes->grid[axis];
    l.periodic = attributes->periodic;
    l.groups = inner > 1 ? batch * sample / (l.n * inner) : batch;
    l.members = inner > 1 ? inner : sample / l.n;
    l.line = inner > 1 ? 1 : l.n;
    l.number = inner;
    int left = l.n;
    while (left % 4 == 0) l.radix[l.steps++] = 4, left /= 4;
    for (int64_t p = 2; left > 1; p++) {
        if (p * p > left) p = left;
        while (left % p == 0) l.radix[l.steps++] = (int)p, left /= (int)p;
    }
    l.pairs = MOST_PAIRS;
    return l;
}

// Two buffers of numbers, and the turns.
static inline size_t bytes_of(const lines &l) {
    return (size_t)l.n * (size_t)(2 * l.pairs + 1) * sizeof(float2);
}

static inline bool fits(lines &l) {
    while (l.pairs > 1 && bytes_of(l) > SHARED) l.pairs /= 2;
    return bytes_of(l) <= SHARED;
}

// e^{2 pi i k / n}: by quadrants, so that what is rounded is small.
static __device__ __forceinline__ float2 turn_of(int64_t k, int64_t n) {
    const int64_t quadrant = 4 * k / n;
    float sine, cosine;
    sincospif(0.5f * ((float)(4 * k - quadrant * n) / (float)n), &sine, &cosine);
    if (quadrant == 0) return make_float2(cosine, sine);
    if (quadrant == 1) return make_float2(-sine, cosine);
    return quadrant == 2 ? make_float2(-cosine, -sine) : make_float2(sine, -cosine);
}

// x e^-iθ
static __device__ __forceinline__ float2 turned(float2 x, float2 by) {
    return make_float2(x.x * by.x + x.y * by.y, x.y * by.x - x.x * by.y);
}

// One step of radix r: of sequences of n numbers, s of them interleaved, to those of n / r.
static __device__ void take_step(const lines &l, const float2 *turns, int r, int n, int s, const float2 *x, float2 *y) {
    const int m = n / r, unit = l.n / n, part = l.n / r;
    for (int at = (int)threadIdx.x; at < l.n * l.pairs; at += THREADS) {
        const int pair = at % l.pairs, place = at / l.pairs, rest = place / s, q = place - rest * s;
        const int p = rest / r, k = rest - p * r;
        float2 sum = x[(q + s * p) * l.pairs + pair];
        for (int j = 1, angle = k; j < r; j++, angle = angle + k < r ? angle + k : angle + k - r) {
            const float2 term = turned(x[(q + s * (p + j * m)) * l.pairs + pair], turns[part * angle]);
            sum.x += term.x, sum.y += term.y;
        }
        y[at] = turned(sum, turns[unit * p * k]);
    }
}

// Where the cosine transform's number j lies in the line.
static __device__ __forceinline__ int place_of(const lines &l, int j) {
    if (l.periodic) return j;
    return j < (l.n + 1) / 2 ? 2 * j : 2 * (l.n - 1 - j) + 1;
}

// Mode `row` of both lines of a pair, of their transform w.
static __device__ float2 mode_of(const lines &l, const float2 *w, int row, int pair) {
    const int n = l.n, k = l.periodic ? (row + 1) / 2 : row;
    const bool whole = row == 0 || (l.periodic && 2 * k == n);
    const float size = sqrtf((whole ? 1.0f : 0.5f) / (float)n);
    const float2 a = w[k * l.pairs + pair];
    if (whole) return make_float2(a.x * size, a.y * size);
    const float2 b = w[(n - k) * l.pairs + pair];
    const float2 cosines = make_float2((a.x + b.x) * size, (a.y + b.y) * size);
    const float2 sines = make_float2((b.y - a.y) * size, (a.x - b.x) * size);
    if (l.periodic) return row % 2 ? cosines : sines;
    const float2 quarter = turn_of(row, 4 * (int64_t)n);
    return make_float2(cosines.x * quarter.x - sines.x * quarter.y, cosines.y * quarter.x - sines.y * quarter.y);
}

// Number k of what the transform makes the lines of, real and imaginary parts in each other's place, of modes y.
static __device__ float2 number_of(const lines &l, const float2 *y, int k, int pair) {
    const int n = l.n, wave = 2 * k <= n ? k : n - k;
    const bool whole = k == 0 || (l.periodic && 2 * k == n);
    const float size = sqrtf((whole ? 1.0f : 0.5f) / (float)n);
    if (whole) {
        const float2 a = y[(k ? n - 1 : 0) * l.pairs + pair];
        return make_float2(a.y * size, a.x * size);
    }
    if (l.periodic) {
        const float2 a = y[(2 * wave - 1) * l.pairs + pair], b = y[2 * wave * l.pairs + pair];
        if (wave == k) return make_float2((a.y - b.x) * size, (a.x + b.y) * size);
        return make_float2((a.y + b.x) * size, (a.x - b.y) * size);
    }
    const float2 a = y[k * l.pairs + pair], b = y[(n - k) * l.pairs + pair], quarter = turn_of(k, 4 * (int64_t)n);
    const float u = (a.x + b.y) * size, v = (a.y - b.x) * size;
    return make_float2(u * quarter.y + v * quarter.x, u * quarter.x - v * quarter.y);
}

// Number j of line `line` of the block's, of which a thread takes every THREADS-th, neighbours where memory has them.
struct element_place {
    int j, line;
    int64_t at; // -1: there is no such line
};

static __device__ __forceinline__ element_place place_in(const lines &l, int64_t first, int index) {
    element_place place;
    const int count = 2 * l.pairs;
    place.j = l.number == 1 ? index % l.n : index / count;
    place.line = l.number == 1 ? index / l.n : index % count;
    const int64_t each = (l.members + 1) / 2, pair = first + place.line / 2, group = pair / each;
    const int64_t member = 2 * (pair - group * each) + place.line % 2;
    place.at = group < l.groups && member < l.members ? group * l.members * l.n + member * l.line : -1;
    return place;
}

// Four blocks a processor leave registers enough; without a number the compiler keeps some in memory.
template <bool BACK>
static __global__ void __launch_bounds__(THREADS, 4)
    field_modes_kernel(lines l, const float *from, float *to, bool accumulate, float2 *memory) {
    extern __shared__ float2 shared[];
    float2 *x = memory ? memory + (size_t)blockIdx.x * l.n * (2 * l.pairs + 1) : shared;
    float2 *y = x + l.n * l.pairs, *turns = y + l.n * l.pairs;
    const int64_t pairs = l.groups * ((l.members + 1) / 2);
    for (int k = (int)threadIdx.x; k < l.n; k += THREADS) turns[k] = turn_of(k, l.n);
    for (int64_t first = (int64_t)blockIdx.x * l.pairs; first < pairs; first += (int64_t)gridDim.x * l.pairs) {
        float2 *loaded = BACK ? y : x;
        for (int i = (int)threadIdx.x; i < 2 * l.n * l.pairs; i += THREADS) {
            const element_place e = place_in(l, first, i);
            const int j = BACK ? e.j : place_of(l, e.j);
            ((float *)(loaded + e.j * l.pairs))[e.line] = e.at < 0 ? 0.0f : from[e.at + j * l.number];
        }
        __syncthreads();
        if (BACK) {
            for (int i = (int)threadIdx.x; i < l.n * l.pairs; i += THREADS)
                x[i] = number_of(l, y, i / l.pairs, i % l.pairs);
            __syncthreads();
        }
        float2 *made = x, *other = y;
        for (int step = 0, n = l.n, s = 1; step < l.steps; step++) {
            const int r = l.radix[step];
            take_step(l, turns, r, n, s, made, other);
            n /= r, s *= r;
            float2 *before = made;
            made = other, other = before;
            __syncthreads();
        }
        for (int i = (int)threadIdx.x; i < 2 * l.n * l.pairs; i += THREADS) {
            const element_place e = place_in(l, first, i);
            if (e.at < 0) continue;
            float value;
            if (BACK) {
                value = ((const float *)(made + e.j * l.pairs))[e.line ^ 1];
            } else {
                const float2 both = mode_of(l, made, e.j, e.line / 2);
                value = e.line % 2 ? both.y : both.x;
            }
            float *place = to + e.at + (BACK ? place_of(l, e.j) : e.j) * l.number;
            *place = accumulate ? *place + value : value;
        }
        __syncthreads();
    }
}

template <bool BACK>
static ups_status run(ups_device *device, const ups_op_call *call, const float *from, float *to, bool accumulate,
                      ups_error *error) {
    const ups_op_attributes *attributes = call->attributes;
    const int64_t batch = call->output.shape.size[0], all = ups_shape_elements(call->output.shape);
    float *const staged = accumulate ? (float *)call->workspace : to; // between two axes
    float2 *const memory = (float2 *)(BACK ? (float *)call->workspace + (all + 3) / 4 * 4 : (float *)call->workspace);
    int64_t inner = 1;
    if (all == 0) return UPS_OK;
    for (int axis = attributes->dims - 1; axis >= 0; axis--) {
        lines l = lines_of(attributes, axis, inner, batch, all / batch);
        const bool last = axis == 0, shared = fits(l);
        const int64_t pairs = l.groups * ((l.members + 1) / 2), most = shared ? INT32_MAX : BLOCKS_IN_MEMORY;
        const int64_t blocks = (pairs + l.pairs - 1) / l.pairs;
        field_modes_kernel<BACK>
            <<<(unsigned)(blocks < most ? blocks : most), THREADS, shared ? bytes_of(l) : 0, ups_cuda_stream(device)>>>(
                l, from, last ? to : staged, last && accumulate, shared ? nullptr : memory);
        UPS_TRY(ups_cuda_launched("modes of fields", error));
        from = staged;
        inner *= l.n;
    }
    return UPS_OK;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return run<false>(device, call, (const float *)call->inputs[0].data, (float *)call->output.data, false, error);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!is_present(&call->input_gradients[0])) return UPS_OK;
    return run<true>(device, call, (const float *)call->output_gradient.data, (float *)call->input_gradients[0].data,
                     call->accumulate[0], error);
}

// Of backward what lies between two axes, then buffers of lines that shared memory is too small for.
static ups_status prepare(ups_device *device, const ups_op_call *call, bool back, ups_kernel *kernel, ups_error *error) {
    const ups_op_attributes *attributes = call->attributes;
    const int64_t batch = call->output.shape.size[0], all = ups_shape_elements(call->output.shape);
    size_t memory = 0;
    int64_t inner = 1;
    for (int axis = attributes->dims - 1; axis >= 0 && all > 0; axis--) {
        lines l = lines_of(attributes, axis, inner, batch, all / batch);
        if (!fits(l)) {
            const int64_t pairs = l.groups * ((l.members + 1) / 2);
            const size_t bytes = (size_t)(pairs < BLOCKS_IN_MEMORY ? pairs : BLOCKS_IN_MEMORY) * bytes_of(l);
            if (bytes > memory) memory = bytes;
        }
        inner *= l.n;
    }
    kernel->workspace_bytes = memory + (back ? (size_t)((all + 3) / 4 * 4) * sizeof(float) : 0);
    return UPS_OK;
}

const ups_cuda_kernel ups_cuda_field_modes = {forward, backward, prepare};
