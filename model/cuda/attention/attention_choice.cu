// Which kernels take short sequences: those of warps (attention_short.cu), or on cards that have them those of groups of warps
// (attention_groups.cu). A card is asked, as for products (products/choices.h): both run on the call's shapes, and the second are
// taken where they are faster and agree with the first. What was found is kept in the same file.
#include "model/cuda/attention/attention_short.cuh"
extern "C" {
#include "model/cuda/products/product.h"
}
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 /* of either's code: what was found for another one is found anew */, WARPS = 0, GROUPS = 1 };
static const float worth = 0.97f; // of the warps' time: what groups may take at most

// Both on the same inputs, with results of their own.
struct contest {
    attention_call call[2];
    cudaEvent_t began, ended;
    char *memory;
    size_t bytes, inputs; // inputs: at the beginning of memory
};

typedef ups_status attention_function(ups_device *device, const attention_call &c, ups_error *error);

static int64_t elements_of_queries(const attention_call &c) {
    return c.batch * c.queries * c.q_stride;
}
static int64_t elements_of_keys(const attention_call &c) {
    return c.batch * c.keys * c.kv_stride;
}
static int64_t elements_of_outputs(const attention_call &c) {
    return c.batch * c.queries * c.heads * c.width;
}

// Gives tensors their places from `memory` on, NULL as well; returns the bytes that they take.
static size_t lay_out(contest &it, bool gains, bool backward, char *memory) {
    enum { ALIGNMENT = 256 };
    size_t used = 0;
    const auto take = [&](int64_t count, size_t each) {
        char *at = memory ? memory + used : nullptr;
        used += ((size_t)count * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        return at;
    };
    attention_call &c = it.call[WARPS];
    const int64_t rows = c.batch * c.heads;
    c.q.data = take(elements_of_queries(c), 2);
    c.kv.data = c.packed ? c.q.data : take(elements_of_keys(c), 2);
    if (backward) c.upstream.data = take(elements_of_outputs(c), 2);
    it.inputs = used;
    if (gains) c.gain_q = (float *)take(c.width, sizeof(float)), c.gain_k = (float *)take(c.width, sizeof(float));
    for (attention_call &each : it.call) {
        if (&each != &c) each = c;
        if (&each != &c && backward) { // of outputs that the first one made
            each.dq.data = take(elements_of_queries(c), 2);
        } else {
            each.out.data = take(elements_of_outputs(c), 2);
            each.lse = (float *)take(rows * c.queries, sizeof(float));
            if (gains) each.rms = (float *)take(rows * (c.queries + c.keys), sizeof(float));
            if (backward) each.dq.data = take(elements_of_queries(c), 2);
        }
        if (!backward) continue;
        each.dkv.data = c.packed ? each.dq.data : take(elements_of_keys(c), 2);
        each.dq.dtype = each.dkv.dtype = each.upstream.dtype = c.q.dtype;
        if (!gains) continue;
        each.gains_of_q = (float *)take(rows * c.width, sizeof(float));
        each.gains_of_k = (float *)take(rows * c.width, sizeof(float));
    }
    return used;
}

static cudaError_t copy_and_wait(ups_device *device, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t code = cudaMemcpyAsync(to, from, bytes, kind, ups_cuda_stream(device));
    return code == cudaSuccess ? cudaStreamSynchronize(ups_cuda_stream(device)) : code;
}

// Numbers about as large as training's, in any of the two dtypes, from -2 to 2: a card makes less heat of zeros, and more speed.
static cudaError_t fill(ups_device *device, const contest &it) {
    enum { COUNT = 1000003 };
    uint16_t *numbers = (uint16_t *)malloc(COUNT * sizeof *numbers);
    float gains[2 * MOST_WIDTH];
    uint32_t state = 1;
    if (!numbers) return cudaErrorMemoryAllocation;
    const bool bf16 = it.call[WARPS].q.dtype == UPS_BF16;
    const auto next = [&] { return (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 24); };
    for (int i = 0; i < COUNT; i++) {
        const float x = 2.0f * (next() + next()) - 2.0f;
        numbers[i] = bf16 ? __bfloat16_as_ushort(__float2bfloat16(x)) : __half_as_ushort(__float2half(x));
    }
    for (float &gain : gains) gain = 0.5f + next();
    cudaError_t code = cudaSuccess;
    for (size_t at = 0; at < it.inputs && code == cudaSuccess; at += COUNT * sizeof *numbers) {
        const size_t left = it.inputs - at, bytes = left < COUNT * sizeof *numbers ? left : COUNT * sizeof *numbers;
        code = copy_and_wait(device, it.memory + at, numbers, bytes, cudaMemcpyHostToDevice);
    }
    free(numbers);
    const attention_call &c = it.call[WARPS];
    const size_t bytes = (size_t)c.width * sizeof(float);
    for (int k = 0; k < 2 && code == cudaSuccess && c.gain_q; k++)
        code = copy_and_wait(device, (void *)(k ? c.gain_k : c.gain_q), gains + k * c.width, bytes, cudaMemcpyHostToDevice);
    return code;
}

// What came of a contest. Only what groups themselves did is kept.
enum outcome { FAILED, LOST, WON };

// Whether results are the same but for rounding: the root mean square of what is between them, and each number itself.
static outcome agree(ups_device *device, elements a, elements b, int64_t count) {
    const double within = 0.02, each_within = 0.25; // of the root mean square of all
    const size_t size = ups_dtype_size(a.dtype), bytes = (size_t)count * size;
    char *of_both = (char *)malloc(2 * bytes);
    if (!of_both || copy_and_wait(device, of_both, a.data, bytes, cudaMemcpyDeviceToHost) != cudaSuccess ||
        copy_and_wait(device, of_both + bytes, b.data, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) {
        free(of_both);
        return FAILED;
    }
    bool same = true;
    double squares = 0.0, between = 0.0, most = 0.0;
    for (int64_t i = 0; i < count && same; i++) {
        float x[2];
        for (int k = 0; k < 2; k++) {
            const char *at = of_both + (size_t)k * bytes + (size_t)i * size;
            if (a.dtype == UPS_F32) memcpy(&x[k], at, sizeof x[k]);
            else {
                uint16_t bits;
                memcpy(&bits, at, sizeof bits);
                x[k] = a.dtype == UPS_BF16 ? __bfloat162float(__ushort_as_bfloat16(bits)) : __half2float(__ushort_as_half(bits));
            }
        }
        const double d = fabs((double)x[0] - x[1]), reference = fabs((double)x[0]);
        same = isfinite(x[0]) && isfinite(x[1]);
        squares += reference * reference;
        between += d * d;
        most = fmax(most, d - each_within * reference);
    }
    free(of_both);
    const double size_of_all = sqrt(squares / (double)count);
    same = same && sqrt(between / (double)count) <= within * size_of_all && most <= each_within * size_of_all;
    return same ? WON : LOST;
}

static outcome results_agree(ups_device *device, const contest &it, bool backward) {
    const attention_call &a = it.call[WARPS], &b = it.call[GROUPS];
    const int64_t rows = a.batch * a.heads;
    struct result {
        elements of[2];
        int64_t count;
    };
    const auto floats = [](const float *x, const float *y, int64_t count) {
        return result{{{(void *)x, UPS_F32}, {(void *)y, UPS_F32}}, x ? count : 0};
    };
    const result of_forward[] = {{{a.out, b.out}, elements_of_outputs(a)},
                                 floats(a.lse, b.lse, rows * a.queries),
                                 floats(a.rms, b.rms, rows * (a.queries + a.keys))};
    const result of_backward[] = {{{a.dq, b.dq}, elements_of_queries(a)},
                                  {{a.dkv, b.dkv}, a.packed ? 0 : elements_of_keys(a)},
                                  floats(a.gains_of_q, b.gains_of_q, rows * a.width),
                                  floats(a.gains_of_k, b.gains_of_k, rows * a.width)};
    outcome all = WON;
    const result *each = backward ? of_backward : of_forward;
    for (int left = backward ? 4 : 3; left > 0 && all == WON; left--, each++) {
        if (each->count) all = agree(device, each->of[0], each->of[1], each->count);
    }
    return all;
}

// Milliseconds of some runs; negative: it does not run.
static float time_of(ups_device *device, const contest &it, attention_function *run, const attention_call &c) {
    enum { RUNS = 4 };
    cudaStream_t stream = ups_cuda_stream(device);
    float spent = -1.0f;
    if (cudaEventRecord(it.began, stream) != cudaSuccess) return -1.0f;
    for (int i = 0; i < RUNS; i++) {
        if (run(device, c, nullptr) != UPS_OK) return -1.0f;
    }
    if (cudaEventRecord(it.ended, stream) != cudaSuccess || cudaEventSynchronize(it.ended) != cudaSuccess ||
        cudaEventElapsedTime(&spent, it.began, it.ended) != cudaSuccess)
        return -1.0f;
    return spent;
}

static outcome hold_rounds(ups_device *device, const contest &it, bool backward) {
    enum { ROUNDS = 4 }; // the first one warms up
    attention_function *const run[] = {backward ? attention_short_backward : attention_short_forward,
                                       backward ? attention_groups_backward : attention_groups_forward};
    float least[2] = {INFINITY, INFINITY};
    if (backward && attention_short_forward(device, it.call[WARPS], nullptr) != UPS_OK) return FAILED;
    for (int round = 0; round < ROUNDS; round++) {
        for (int which : {WARPS, GROUPS}) {
            const float time = time_of(device, it, run[which], it.call[which]);
            if (time < 0.0f) return FAILED;
            if (round > 0) least[which] = fminf(least[which], time);
        }
    }
    return least[GROUPS] <= worth * least[WARPS] ? results_agree(device, it, backward) : LOST;
}

// As many samples as keep a card busy.
static outcome hold_contest(ups_device *device, const attention_call &c, bool gains, bool backward) {
    contest it = {};
    const int64_t enough = tiles_in(8 * ups_cuda_processors(device), c.heads);
    it.call[WARPS] = c;
    if (it.call[WARPS].batch > enough) it.call[WARPS].batch = enough;
    it.bytes = lay_out(it, gains, backward, nullptr);
    bool held = cudaMalloc((void **)&it.memory, it.bytes) == cudaSuccess;
    if (held) lay_out(it, gains, backward, it.memory);
    // What nobody writes, beyond the last of packed rows' own, is the same on both sides.
    held = held && cudaMemsetAsync(it.memory, 0, it.bytes, ups_cuda_stream(device)) == cudaSuccess &&
           cudaStreamSynchronize(ups_cuda_stream(device)) == cudaSuccess && fill(device, it) == cudaSuccess &&
           cudaEventCreateWithFlags(&it.began, cudaEventDefault) == cudaSuccess &&
           cudaEventCreateWithFlags(&it.ended, cudaEventDefault) == cudaSuccess;
    const outcome found = held ? hold_rounds(device, it, backward) : FAILED;
    if (held) cudaStreamSynchronize(ups_cuda_stream(device));
    if (it.began) cudaEventDestroy(it.began);
    if (it.ended) cudaEventDestroy(it.ended);
    if (it.memory) cudaFree(it.memory);
    cudaGetLastError(); // what it could not do is no fault of what comes
    return found;
}

bool attention_takes_groups(ups_device *device, const attention_call &c, bool gains, bool backward) {
    const size_t bytes = backward ? attention_groups_backward_bytes(c) : attention_groups_forward_bytes(c);
    if (ups_cuda_only_plans(device) || !ups_cuda_has_groups(device) || bytes > ups_cuda_most_shared(device)) return false;
    if (ups_cuda_kernels_by_shape(device)) return false; // on any card, the same bits
    const char *wanted = getenv("UPS_CUDA_ATTENTION");
    if (wanted && *wanted) return strcmp(wanted, "groups") == 0;
    ups_cuda_choices *choices = ups_cuda_choices_of(device);
    if (!choices) return false;
    char name[UPS_CUDA_CHOICE_KEY];
    cublasLtMatmulAlgo_t choice = {}; // what the file keeps: ours say which of the two in the first of its words
    snprintf(name, sizeof name, "attention-%d.%s.%s.%lld.%d.%d.%d.%d%s%s", VERSION, backward ? "backward" : "forward",
             ups_dtype_name(c.q.dtype), (long long)c.batch, c.heads, c.queries, c.keys, c.width, c.packed ? ".packed" : "",
             gains ? ".gains" : "");
    if (!ups_cuda_choices_find(choices, name, &choice)) {
        const outcome found = hold_contest(device, c, gains, backward);
        if (found == FAILED) return false; // what could not be tried is not kept
        choice.data[0] = found == WON ? GROUPS : WARPS;
        ups_cuda_choices_add(choices, name, &choice);
    }
    return choice.data[0] == GROUPS;
}
