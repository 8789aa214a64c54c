// From fields to tokens and back: patchify, gather_points, pool_tokens, read_patches, weigh, fourier, angles.
//
// Fields are float32, (B, points * C), channels first (C, points) or last (points, C). Every gradient is gathered, a thread an
// element: of patches and of pooled tokens by arithmetic, of points that were read from anywhere by lists of who read a number
// (lists.cuh).
#include "model/cuda/gather.cuh"
#include "model/cuda/lists.cuh"
#include "model/cuda/reduce.cuh"

// mean and 1/std of a channel; 0 and 1 where there are no statistics.
static __device__ __forceinline__ float mean_of(const float *statistics, int64_t c) {
    return statistics ? statistics[2 * c] : 0.0f;
}
static __device__ __forceinline__ float inverse_std_of(const float *statistics, int64_t c) {
    return statistics ? statistics[2 * c + 1] : 1.0f;
}

// ---- patchify --------------------------------------------------------------------------------------------------------

// A sample's numbers are counted in 32 bits (patch_grid_fits).
struct patch_grid {
    int grid[3], patch[3], cells[3]; // three axes always: missing ones are of size 1, in front
    int points, count, patch_points, channels;
    bool channels_first; // of more than one channel
};

static patch_grid patch_grid_of(const ups_op_attributes *a) {
    patch_grid p = {};
    p.points = p.count = p.patch_points = 1;
    p.channels = (int)a->channels;
    p.channels_first = a->channels_first && a->channels > 1;
    for (int axis = 0; axis < 3; axis++) {
        int given = axis - (3 - a->dims);
        p.grid[axis] = given < 0 ? 1 : (int)a->grid[given];
        p.patch[axis] = given < 0 ? 1 : (int)a->patch[given];
        p.cells[axis] = (p.grid[axis] - 1) / p.patch[axis] + 1;
        p.points *= p.grid[axis];
        p.count *= p.cells[axis];
        p.patch_points *= p.patch[axis];
    }
    return p;
}

// `tokens`: (B, N, P C), which is as large as the field or larger.
static ups_status patch_grid_fits(ups_shape tokens, const char *what, ups_error *error) {
    int64_t numbers = tokens.size[1] * tokens.size[2];
    if (numbers <= INT32_MAX) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s of a field of %lld numbers: on CUDA it has at most 2^31 - 1", what,
                    (long long)numbers);
}

// Whether WIDE numbers of a token, at a multiple of WIDE, are as many of the field in the same order.
static bool has_runs(const patch_grid &p, const ups_tensor *field, const ups_tensor *tokens) {
    int line = p.patch[2] * p.channels;
    return !p.channels_first && p.grid[2] % p.patch[2] == 0 && is_wide(field, line) && is_wide(tokens, line);
}

// A thread N numbers of a token. Beyond the end of an axis is its last point.
template <int N, bool RUNS>
static __global__ void __launch_bounds__(THREADS)
    patchify_kernel(const float *fields, const float *statistics, elements tokens, int64_t count, patch_grid p) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    int width = p.patch_points * p.channels, size = p.count * width;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t sample = at / size;
        int number = (int)(at - sample * size), cell = number / width, inside = number - cell * width;
        int point = inside / p.channels, c = inside - point * p.channels, line = point / p.patch[2];
        int x = point - line * p.patch[2], z = line / p.patch[1], y = line - z * p.patch[1];
        int lines = cell / p.cells[2], first_x = (cell - lines * p.cells[2]) * p.patch[2];
        int first_y = lines % p.cells[1] * p.patch[1], first_z = lines / p.cells[1] * p.patch[0];
        const float *field = fields + sample * p.points * p.channels;
        float v[N];
        if (RUNS) {
            int of_line = min(first_z + z, p.grid[0] - 1) * p.grid[1] + min(first_y + y, p.grid[1] - 1);
            int from = (of_line * p.grid[2] + first_x + x) * p.channels + c;
            read_elements<N>(elements{(void *)field, UPS_F32}, from, v);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (!RUNS) {
                int of_line = min(first_z + z, p.grid[0] - 1) * p.grid[1] + min(first_y + y, p.grid[1] - 1);
                int there = of_line * p.grid[2] + min(first_x + x, p.grid[2] - 1);
                v[i] = field[p.channels_first ? c * p.points + there : there * p.channels + c];
            }
            v[i] = (v[i] - mean_of(statistics, c)) * inverse_std_of(statistics, c);
            if (++c < p.channels) continue;
            c = 0;
            if (RUNS || ++x < p.patch[2]) continue;
            x = 0;
            if (++y < p.patch[1]) continue;
            y = 0;
            z++;
        }
        write_elements<N>(tokens, at, v);
    }
}

// Where the last point of an axis stands in several places of a patch: [inside, beyond).
static __device__ __forceinline__ int last_place(int point, int grid, int patch, int inside) {
    return point == grid - 1 ? patch : inside + 1;
}

// A thread N numbers of the field.
template <int N, bool RUNS>
static __global__ void __launch_bounds__(THREADS) patchify_gradient_kernel(elements tokens, const float *statistics,
                                                                           elements fields, int64_t count, patch_grid p,
                                                                           bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    int size = p.points * p.channels;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t sample = at / size;
        int number = (int)(at - sample * size), c = p.channels_first ? number / p.points : number % p.channels;
        int point = p.channels_first ? number - c * p.points : number / p.channels;
        int line = point / p.grid[2], at_x = point - line * p.grid[2], at_z = line / p.grid[1], at_y = line - at_z * p.grid[1];
        int cell_x = at_x / p.patch[2], cell_y = at_y / p.patch[1], cell_z = at_z / p.patch[0];
        int in_x = at_x - cell_x * p.patch[2], in_y = at_y - cell_y * p.patch[1], in_z = at_z - cell_z * p.patch[0];
        int end_x = RUNS ? in_x + 1 : last_place(at_x, p.grid[2], p.patch[2], in_x);
        int end_y = last_place(at_y, p.grid[1], p.patch[1], in_y), end_z = last_place(at_z, p.grid[0], p.patch[0], in_z);
        int cell = (cell_z * p.cells[1] + cell_y) * p.cells[2] + cell_x;
        int64_t token = (sample * p.count + cell) * p.patch_points;
        float sum[N] = {};
        for (int z = in_z; z < end_z; z++) {
            for (int y = in_y; y < end_y; y++) {
                for (int x = in_x; x < end_x; x++) {
                    int inside = (z * p.patch[1] + y) * p.patch[2] + x;
                    float d[N];
                    read_elements<N>(tokens, (token + inside) * p.channels + c, d);
#pragma unroll
                    for (int i = 0; i < N; i++) sum[i] += d[i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum[i] *= inverse_std_of(statistics, c);
            if (++c == p.channels) c = 0;
        }
        write_elements<N>(fields, at, sum, accumulate);
    }
}

static ups_status patchify_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                   ups_error *error) {
    return patch_grid_fits(call->output.shape, "patchify", error);
}

static ups_status patchify_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *field = &call->inputs[0], *tokens = &call->output;
    const float *from = (const float *)field->data, *statistics = (const float *)call->inputs[1].data;
    patch_grid p = patch_grid_of(call->attributes);
    int64_t count = ups_shape_elements(tokens->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements to = elements_of(tokens);
    if (has_runs(p, field, tokens))
        patchify_kernel<WIDE, true>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(from, statistics, to, count, p);
    else if (is_wide(tokens, p.patch_points * p.channels))
        patchify_kernel<WIDE, false>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(from, statistics, to, count, p);
    else patchify_kernel<1, false><<<blocks_for(count, 1), THREADS, 0, stream>>>(from, statistics, to, count, p);
    return ups_cuda_launched("patchify", error);
}

static ups_status patchify_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0], *tokens = &call->output_gradient;
    if (!is_present(gradient)) return UPS_OK;
    const float *statistics = (const float *)call->inputs[1].data;
    patch_grid p = patch_grid_of(call->attributes);
    int64_t count = ups_shape_elements(gradient->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements from = elements_of(tokens), to = elements_of(gradient);
    bool accumulate = call->accumulate[0];
    if (has_runs(p, gradient, tokens))
        patchify_gradient_kernel<WIDE, true>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(from, statistics, to, count, p, accumulate);
    else
        patchify_gradient_kernel<1, false>
            <<<blocks_for(count, 1), THREADS, 0, stream>>>(from, statistics, to, count, p, accumulate);
    return ups_cuda_launched("patchify's gradient", error);
}

// ---- gather_points ---------------------------------------------------------------------------------------------------

struct point_grid {
    int64_t points, queries, channels;
    bool channels_first;
};

static point_grid point_grid_of(const ups_op_call *call, ups_shape field) {
    const ups_op_attributes *a = call->attributes;
    return {ups_shape_elements(field) / field.size[0] / a->channels, ups_shape_elements(call->inputs[1].shape), a->channels,
            a->channels_first};
}

static __global__ void __launch_bounds__(THREADS) gather_points_kernel(const float *fields, const int32_t *index,
                                                                       const float *statistics, float *values, int64_t count,
                                                                       point_grid p) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += stride) {
        int64_t row = at / p.channels, c = at - row * p.channels, sample = row / p.queries;
        int64_t point = index[row - sample * p.queries];
        const float *field = fields + sample * p.points * p.channels;
        float v = field[p.channels_first ? c * p.points + point : point * p.channels + c];
        values[at] = (v - mean_of(statistics, c)) * inverse_std_of(statistics, c);
    }
}

static __global__ void __launch_bounds__(THREADS)
    index_words_kernel(const int32_t *index, uint64_t *words, int64_t queries) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t q = (int64_t)blockIdx.x * THREADS + threadIdx.x; q < queries; q += stride)
        words[q] = list_word((uint32_t)index[q], (uint32_t)q);
}

// A thread a number of the field, which most queries did not read.
static __global__ void __launch_bounds__(THREADS)
    gather_points_gradient_kernel(const float *dy, key_lists lists, const float *statistics, float *fields, int64_t count,
                                  point_grid p, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS, size = p.points * p.channels;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += stride) {
        int64_t sample = at / size, number = at - sample * size;
        int64_t c = p.channels_first ? number / p.points : number % p.channels;
        int64_t point = p.channels_first ? number - c * p.points : number / p.channels;
        uint32_t i = lists.first[point], end = lists.first[point + 1];
        if (accumulate && i == end) continue;
        float sum = 0.0f;
        for (; i < end; i++) {
            int64_t q = (uint32_t)lists.words[i];
            sum += dy[(sample * p.queries + q) * p.channels + c];
        }
        sum *= inverse_std_of(statistics, c);
        fields[at] = accumulate ? fields[at] + sum : sum;
    }
}

static ups_status gather_points_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                        ups_error *error) {
    point_grid p = point_grid_of(call, call->inputs[0].shape);
    if (!backward) return UPS_OK;
    kernel->workspace_bytes = ups_cuda_lists_bytes(p.queries, p.points);
    return ups_cuda_lists_fit(p.queries, p.points, "gather_points", error);
}

static ups_status gather_points_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    point_grid p = point_grid_of(call, call->inputs[0].shape);
    int64_t count = ups_shape_elements(call->output.shape);
    if (count == 0) return UPS_OK;
    gather_points_kernel<<<blocks_for(count, 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[0].data, (const int32_t *)call->inputs[1].data, (const float *)call->inputs[2].data,
        (float *)call->output.data, count, p);
    return ups_cuda_launched("gathering points", error);
}

static ups_status gather_points_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    point_grid p = point_grid_of(call, gradient->shape);
    int64_t count = ups_shape_elements(gradient->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    key_lists lists;
    if (p.queries > 0) {
        index_words_kernel<<<blocks_for(p.queries, 1), THREADS, 0, stream>>>((const int32_t *)call->inputs[1].data,
                                                                             (uint64_t *)call->workspace, p.queries);
        UPS_TRY(ups_cuda_launched("listing points", error));
    }
    UPS_TRY(ups_cuda_make_lists(device, call->workspace, p.queries, p.points, &lists, error));
    gather_points_gradient_kernel<<<blocks_for(count, 1), THREADS, 0, stream>>>(
        (const float *)call->output_gradient.data, lists, (const float *)call->inputs[2].data, (float *)gradient->data, count,
        p, call->accumulate[0]);
    return ups_cuda_launched("the gradient of points", error);
}

// ---- read_patches ----------------------------------------------------------------------------------------------------

struct reading {
    patch_grid p;
    int64_t queries, entries, size; // entries: reads, 4^dims of each query; size: numbers of a sample
    int dims;
    bool periodic;
};

static reading reading_of(const ups_op_call *call) {
    reading r = {patch_grid_of(call->attributes), call->inputs[1].shape.size[0], 0, 0, call->attributes->dims,
                 call->attributes->periodic};
    r.entries = r.queries << 2 * r.dims;
    r.size = (int64_t)r.p.count * r.p.patch_points * r.p.channels;
    return r;
}

// Weight i of four, of cubic convolution with a = -1/2 at t in [0, 1) between the second and the third.
static __device__ __forceinline__ double cubic_weight(double t, int i) {
    if (i == 0) return t * (-0.5 + t * (1.0 - 0.5 * t));
    if (i == 1) return 1.0 + t * t * (-2.5 + 1.5 * t);
    if (i == 2) return t * (0.5 + t * (2.0 - 1.5 * t));
    return t * t * (-0.5 + 0.5 * t);
}

// The point of an axis that read i of four takes, and its weight; 0 where the query lies on a point, which the first read takes
// alone. A coordinate is float32, so that one of a grid point is so only nearly.
static __device__ __forceinline__ float point_read(float coordinate, int points, bool periodic, int i, int &point) {
    const double on_the_point = 1e-3;
    double place = (double)coordinate * (double)points - 0.5, nearest = rint(place), before = floor(place);
    bool on_point = fabs(place - nearest) < on_the_point;
    int64_t at = on_point ? (int64_t)nearest : (int64_t)before + i - 1;
    if (periodic) at = (at % points + points) % points;
    point = at < 0 ? 0 : at >= points ? points - 1 : (int)at;
    if (on_point) return i == 0 ? 1.0f : 0.0f;
    return (float)cubic_weight(place - before, i);
}

// A thread a read: what it takes, as the key of a list, and its weight. Keys count points as they stand in patches.
static __global__ void __launch_bounds__(THREADS)
    find_reads_kernel(const float *coordinates, uint64_t *words, float *weights, reading r) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t entry = (int64_t)blockIdx.x * THREADS + threadIdx.x; entry < r.entries; entry += stride) {
        const float *of_query = coordinates + (entry >> 2 * r.dims) * r.dims;
        int cell = 0, inside = 0;
        float weight = 1.0f;
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            int given = axis - (3 - r.dims);
            if (given < 0) continue;
            int point, i = (int)(entry >> 2 * (2 - axis)) & 3;
            weight *= point_read(of_query[given], r.p.grid[axis], r.periodic, i, point);
            cell = cell * r.p.cells[axis] + point / r.p.patch[axis];
            inside = inside * r.p.patch[axis] + point % r.p.patch[axis];
        }
        uint32_t key = weight != 0.0f ? (uint32_t)(cell * r.p.patch_points + inside) : NO_KEY;
        words[entry] = list_word(key, (uint32_t)entry);
        weights[entry] = weight;
    }
}

static __global__ void __launch_bounds__(THREADS) read_patches_kernel(const float *x, const uint64_t *words,
                                                                      const float *weights, float *y, int64_t count,
                                                                      reading r) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += stride) {
        int64_t row = at / r.p.channels, c = at - row * r.p.channels, sample = row / r.queries;
        int64_t entry = (row - sample * r.queries) << 2 * r.dims, end = entry + ((int64_t)1 << 2 * r.dims);
        const float *from = x + sample * r.size + c;
        float sum = 0.0f;
        if (weights[entry] == 1.0f) end = entry + 1; // the query is a grid point
        for (; entry < end; entry++) {
            uint32_t key = (uint32_t)(words[entry] >> 32);
            if (key != NO_KEY) sum += weights[entry] * from[key * r.p.channels];
        }
        y[at] = sum;
    }
}

// A thread a number of a patch.
static __global__ void __launch_bounds__(THREADS)
    read_patches_gradient_kernel(const float *dy, key_lists lists, const float *weights, float *dx, int64_t count, reading r,
                                 bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += stride) {
        int64_t sample = at / r.size, number = at - sample * r.size;
        int64_t key = number / r.p.channels, c = number - key * r.p.channels;
        uint32_t i = lists.first[key], end = lists.first[key + 1];
        if (accumulate && i == end) continue;
        float sum = 0.0f;
        for (; i < end; i++) {
            uint32_t entry = (uint32_t)lists.words[i];
            sum += weights[entry] * dy[(sample * r.queries + (entry >> 2 * r.dims)) * r.p.channels + c];
        }
        dx[at] = accumulate ? dx[at] + sum : sum;
    }
}

// Workspace: the weights of reads, then the lists, of which forward has the words alone, unsorted.
static size_t weights_bytes(const reading &r) { return ((size_t)r.entries * sizeof(float) + 255) & ~(size_t)255; }

static ups_status read_patches_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                       ups_error *error) {
    UPS_TRY(patch_grid_fits(call->inputs[0].shape, "read_patches", error));
    reading r = reading_of(call);
    int64_t keys = (int64_t)r.p.count * r.p.patch_points;
    kernel->workspace_bytes =
        weights_bytes(r) + (backward ? ups_cuda_lists_bytes(r.entries, keys) : (size_t)r.entries * sizeof(uint64_t));
    return ups_cuda_lists_fit(r.entries, keys, "read_patches", error);
}

static ups_status find_reads(ups_device *device, const ups_op_call *call, const reading &r, float **weights,
                             uint64_t **words, ups_error *error) {
    *weights = (float *)call->workspace;
    *words = (uint64_t *)((unsigned char *)call->workspace + weights_bytes(r));
    if (r.entries == 0) return UPS_OK;
    find_reads_kernel<<<blocks_for(r.entries, 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[1].data, *words, *weights, r);
    return ups_cuda_launched("finding what queries read", error);
}

static ups_status read_patches_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    reading r = reading_of(call);
    int64_t count = ups_shape_elements(call->output.shape);
    float *weights;
    uint64_t *words;
    UPS_TRY(find_reads(device, call, r, &weights, &words, error));
    if (count == 0) return UPS_OK;
    read_patches_kernel<<<blocks_for(count, 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[0].data, words, weights, (float *)call->output.data, count, r);
    return ups_cuda_launched("reading patches", error);
}

static ups_status read_patches_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    reading r = reading_of(call);
    int64_t count = ups_shape_elements(gradient->shape);
    float *weights;
    uint64_t *words;
    key_lists lists;
    UPS_TRY(find_reads(device, call, r, &weights, &words, error));
    UPS_TRY(ups_cuda_make_lists(device, words, r.entries, (int64_t)r.p.count * r.p.patch_points, &lists, error));
    read_patches_gradient_kernel<<<blocks_for(count, 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->output_gradient.data, lists, weights, (float *)gradient->data, count, r, call->accumulate[0]);
    return ups_cuda_launched("the gradient of patches that were read", error);
}

// ---- weigh -----------------------------------------------------------------------------------------------------------

// A sample has (Q O, C) numbers, `length`; `each`, O C of them, make the C numbers of one query.
struct weighing {
    int64_t samples, length, each, channels;
};

static weighing weighing_of(const ups_op_call *call, ups_shape output) {
    int64_t channels = output.size[2], each = call->attributes->length * channels;
    return {output.size[0], output.size[1] * each, each, channels};
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    weigh_kernel(elements x, elements weights, elements y, int64_t count, weighing w) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        int64_t row = at / w.channels, from = row * w.each + at - row * w.channels;
        int64_t in_sample = from % w.length;
        float sum[N] = {};
        for (int64_t o = 0; o < w.each; o += w.channels) {
            float v[N], factor[N];
            read_elements<N>(x, from + o, v);
            read_elements<N>(weights, in_sample + o, factor);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += v[i] * factor[i];
        }
        write_elements<N>(y, at, sum);
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    weigh_input_gradient_kernel(elements dy, elements weights, elements dx, int64_t count, weighing w, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += stride) {
        float d[N], factor[N];
        read_elements<N>(dy, at / w.each * w.channels + at % w.channels, d);
        read_elements<N>(weights, at % w.length, factor);
#pragma unroll
        for (int i = 0; i < N; i++) d[i] *= factor[i];
        write_elements<N>(dx, at, d, accumulate);
    }
}

// A thread a weight, a grid row a part of the samples, whose sum goes into a row of `sums`.
static __global__ void __launch_bounds__(THREADS) weigh_weight_gradient_kernel(const float *x, const float *dy, float *sums,
                                                                               weighing w, bool accumulate) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    int64_t first = row_block_start(w.samples, gridDim.y, blockIdx.y);
    int64_t end = row_block_start(w.samples, gridDim.y, blockIdx.y + 1);
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < w.length; at += stride) {
        int64_t of_query = at / w.each * w.channels + at % w.channels, output = w.length / w.each * w.channels;
        float *to = sums + blockIdx.y * w.length + at;
        float sum = accumulate ? *to : 0.0f;
        for (int64_t sample = first; sample < end; sample++)
            sum += x[sample * w.length + at] * dy[sample * output + of_query];
        *to = sum;
    }
}

// Parts of the samples that are summed side by side: as many as fill a large card.
static int64_t weigh_parts(const weighing &w) {
    enum { ENOUGH_BLOCKS = 1024 };
    int64_t columns = blocks_for(w.length, 1), parts = (ENOUGH_BLOCKS + columns - 1) / columns;
    return parts < row_blocks(w.samples) ? parts : row_blocks(w.samples);
}

static ups_status weigh_prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                ups_error *error) {
    weighing w = weighing_of(call, call->output.shape);
    int64_t parts = weigh_parts(w);
    kernel->workspace_bytes = backward && parts > 1 ? (size_t)(parts * w.length) * sizeof(float) : 0;
    return UPS_OK;
}

static ups_status weigh_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *weights = &call->inputs[1], *y = &call->output;
    weighing w = weighing_of(call, y->shape);
    int64_t count = ups_shape_elements(y->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    if (is_wide(x, w.channels) && is_wide(weights, w.channels) && is_wide(y, w.channels))
        weigh_kernel<WIDE><<<blocks_for(count, WIDE), THREADS, 0, stream>>>(elements_of(x), elements_of(weights),
                                                                            elements_of(y), count, w);
    else
        weigh_kernel<1>
            <<<blocks_for(count, 1), THREADS, 0, stream>>>(elements_of(x), elements_of(weights), elements_of(y), count, w);
    return ups_cuda_launched("weighing points", error);
}

static ups_status weigh_backward_input(ups_device *device, const ups_op_call *call, const weighing &w, ups_error *error) {
    const ups_tensor *weights = &call->inputs[1], *dy = &call->output_gradient, *dx = &call->input_gradients[0];
    int64_t count = ups_shape_elements(dx->shape);
    cudaStream_t stream = ups_cuda_stream(device);
    elements upstream = elements_of(dy), factors = elements_of(weights), to = elements_of(dx);
    bool accumulate = call->accumulate[0];
    if (is_wide(dy, w.channels) && is_wide(weights, w.channels) && is_wide(dx, w.channels))
        weigh_input_gradient_kernel<WIDE>
            <<<blocks_for(count, WIDE), THREADS, 0, stream>>>(upstream, factors, to, count, w, accumulate);
    else
        weigh_input_gradient_kernel<1>
            <<<blocks_for(count, 1), THREADS, 0, stream>>>(upstream, factors, to, count, w, accumulate);
    return ups_cuda_launched("the gradient of points that were weighed", error);
}

static ups_status weigh_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    weighing w = weighing_of(call, call->output_gradient.shape);
    if (is_present(&call->input_gradients[0])) UPS_TRY(weigh_backward_input(device, call, w, error));
    if (!is_present(&call->input_gradients[1])) return UPS_OK;
    float *gradient = (float *)call->input_gradients[1].data;
    int64_t parts = weigh_parts(w);
    bool accumulate = call->accumulate[1], in_parts = parts > 1;
    weigh_weight_gradient_kernel<<<dim3(blocks_for(w.length, 1), (unsigned)parts), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[0].data, (const float *)call->output_gradient.data,
        in_parts ? (float *)call->workspace : gradient, w, accumulate && !in_parts);
    UPS_TRY(ups_cuda_launched("the gradient of weights", error));
    if (!in_parts) return UPS_OK;
    return add_partials(device, (const float *)call->workspace, parts, w.length, w.length, gradient, accumulate, error);
}

// ---- pool_tokens -----------------------------------------------------------------------------------------------------

// Token t of `to` averages tokens [floor(t from / to), ceil((t + 1) from / to)) of `from`.
struct pooling {
    int64_t from, to;
    __device__ __forceinline__ int64_t first(int64_t token) const {
        return token * from / to;
    }
    __device__ __forceinline__ int64_t end(int64_t token) const {
        return ((token + 1) * from + to - 1) / to;
    }
    template <typename TAKE> __device__ __forceinline__ void each(int64_t row, TAKE take) const {
        int64_t sample = row / to, token = row - sample * to, beyond = end(token);
        float weight = 1.0f / (float)(beyond - first(token));
        for (int64_t k = first(token); k < beyond; k++) take(sample * from + k, weight);
    }
};

// Token k of `from` lies in the windows of the tokens from floor(k to / from) to ceil((k + 1) to / from) - 1.
struct pooling_gradient {
    pooling of;
    template <typename TAKE> __device__ __forceinline__ void each(int64_t row, TAKE take) const {
        int64_t sample = row / of.from, k = row - sample * of.from, beyond = ((k + 1) * of.to + of.from - 1) / of.from;
        for (int64_t token = k * of.to / of.from; token < beyond; token++)
            take(sample * of.to + token, 1.0f / (float)(of.end(token) - of.first(token)));
    }
};

static ups_status pool_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    pooling p = {call->inputs[0].shape.size[1], call->output.shape.size[1]};
    return gather_rows(device, &call->inputs[0], &call->output, ups_shape_last(call->output.shape), p, false, "pooling",
                       error);
}

static ups_status pool_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!is_present(gradient)) return UPS_OK;
    pooling_gradient p = {{gradient->shape.size[1], call->output_gradient.shape.size[1]}};
    return gather_rows(device, &call->output_gradient, gradient, ups_shape_last(gradient->shape), p, call->accumulate[0],
                       "pooling's gradient", error);
}

// ---- fourier ---------------------------------------------------------------------------------------------------------

struct fourier_frequencies {
    float values[UPS_MAX_FREQUENCIES];
};

// A thread a coordinate and a frequency, or, as frequency -1, the coordinate itself. Whole turns are taken off before anything
// is rounded: what fma says that the product lost is added to the rest (__fmul_rn: so that it is not added twice).
static __global__ void __launch_bounds__(THREADS)
    fourier_kernel(const float *coordinates, elements features, int64_t points, int dims, int count,
                   fourier_frequencies frequencies) {
    int64_t stride = (int64_t)gridDim.x * THREADS, width = (int64_t)dims * (1 + 2 * count);
    int64_t each = (int64_t)dims * (1 + count);
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < points * each; at += stride) {
        int64_t point = at / each, rest = at - point * each;
        int f = (int)(rest / dims) - 1, d = (int)(rest % dims);
        float coordinate = coordinates[point * dims + d], value[1] = {coordinate}, other[1];
        int64_t to = point * width + d;
        if (f < 0) {
            write_elements<1>(features, to, value);
            continue;
        }
        float frequency = 0.0f;
#pragma unroll
        for (int i = 0; i < UPS_MAX_FREQUENCIES; i++) frequency = i == f ? frequencies.values[i] : frequency;
        float turns = __fmul_rn(frequency, coordinate);
        float part = (turns - rintf(turns)) + fmaf(frequency, coordinate, -turns);
        sincospif(2.0f * part, &value[0], &other[0]);
        to += dims + (int64_t)2 * dims * f;
        write_elements<1>(features, to, value);
        write_elements<1>(features, to + dims, other);
    }
}

static ups_status fourier_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_op_attributes *a = call->attributes;
    int64_t points = ups_shape_rows(call->inputs[0].shape), dims = ups_shape_last(call->inputs[0].shape);
    fourier_frequencies frequencies;
    for (int f = 0; f < UPS_MAX_FREQUENCIES; f++) frequencies.values[f] = a->frequencies[f];
    if (points == 0) return UPS_OK;
    fourier_kernel<<<blocks_for(points * dims * (1 + a->frequency_count), 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[0].data, elements_of(&call->output), points, (int)dims, a->frequency_count, frequencies);
    return ups_cuda_launched("Fourier features", error);
}

// ---- angles ----------------------------------------------------------------------------------------------------------

// A thread a pair. k c is rounded as a product; whole turns are taken off by sincospif, exactly.
static __global__ void __launch_bounds__(THREADS)
    angles_kernel(const float *places, float *angles, int64_t points, int dims, int pairs, int each) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < points * pairs; at += stride) {
        int64_t point = at / pairs;
        int pair = (int)(at - point * pairs);
        float sine = 0.0f, cosine = 1.0f;
        if (pair < dims * each) {
            int axis = pair / each;
            sincospif((float)(pair - axis * each + 1) * places[point * dims + axis], &sine, &cosine);
        }
        angles[point * 2 * pairs + pair] = cosine;
        angles[point * 2 * pairs + pairs + pair] = sine;
    }
}

static ups_status angles_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    int64_t points = ups_shape_rows(call->inputs[0].shape), dims = ups_shape_last(call->inputs[0].shape);
    int64_t pairs = ups_shape_last(call->output.shape) / 2;
    if (points * pairs == 0) return UPS_OK;
    angles_kernel<<<blocks_for(points * pairs, 1), THREADS, 0, ups_cuda_stream(device)>>>(
        (const float *)call->inputs[0].data, (float *)call->output.data, points, (int)dims, (int)pairs, (int)(pairs / dims));
    return ups_cuda_launched("angles of places", error);
}

static ups_status no_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return UPS_OK;
}

const ups_cuda_kernel ups_cuda_patchify = {patchify_forward, patchify_backward, patchify_prepare};
const ups_cuda_kernel ups_cuda_gather_points = {gather_points_forward, gather_points_backward, gather_points_prepare};
const ups_cuda_kernel ups_cuda_read_patches = {read_patches_forward, read_patches_backward, read_patches_prepare};
const ups_cuda_kernel ups_cuda_weigh = {weigh_forward, weigh_backward, weigh_prepare};
const ups_cuda_kernel ups_cuda_pool_tokens = {pool_forward, pool_backward, nullptr};
const ups_cuda_kernel ups_cuda_fourier = {fourier_forward, no_backward, nullptr};
const ups_cuda_kernel ups_cuda_angles = {angles_forward, no_backward, nullptr};
