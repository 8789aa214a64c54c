#include "model/cuda/products/contest.h"

#include "base/half.h"
#include "model/cuda/products/description.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same of both. */
typedef struct result {
    void *of[2];
    ups_dtype dtype;
    int64_t count;
} result;

struct ups_cuda_contest_memory {
    ups_device *device;
    char *data; /* NULL: what tensors take is measured */
    size_t used;
    uint32_t random;
    result results[UPS_CUDA_CONTEST_RESULTS];
    int result_count;
    cudaError_t code; /* the first thing that went wrong */
};

static cudaError_t copy_and_wait(ups_device *device, void *to, const void *from, size_t bytes,
                                 enum cudaMemcpyKind kind) {
    const cudaError_t code = cudaMemcpyAsync(to, from, bytes, kind, ups_cuda_stream(device));
    return code == cudaSuccess ? cudaStreamSynchronize(ups_cuda_stream(device)) : code;
}

/* ---- tensors -------------------------------------------------------------------------------------------------------
 */

void *ups_cuda_contest_room(ups_cuda_contest_memory *memory, size_t bytes) {
    enum { ALIGNMENT = 256 };
    char *at = memory->data ? memory->data + memory->used : NULL;
    memory->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static float next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 24);
}

static void convert(const float *from, ups_dtype dtype, size_t count, void *to) {
    if (dtype == UPS_BF16)
        ups_f32_to_bf16(from, to, count);
    else if (dtype == UPS_F16)
        ups_f32_to_f16(from, to, count);
    else
        memcpy(to, from, count * sizeof *from);
}

/* Long tensors hold the same numbers again and again, at places that no row's length divides. */
static cudaError_t fill(ups_cuda_contest_memory *memory, char *to, size_t count, ups_dtype dtype, float middle,
                        float spread) {
    enum { MOST = 1000003 };
    const size_t different = count < MOST ? count : MOST, size = ups_dtype_size(dtype);
    float *numbers = calloc(different, sizeof *numbers);
    char *converted = malloc(different * size);
    cudaError_t code = numbers && converted ? cudaSuccess : cudaErrorMemoryAllocation;
    if (code == cudaSuccess) {
        for (size_t i = 0; i < different; i++)
            numbers[i] = middle + spread * (next_random(&memory->random) + next_random(&memory->random) - 1.0f);
        convert(numbers, dtype, different, converted);
    }
    for (size_t at = 0; at < count && code == cudaSuccess; at += different) {
        const size_t some = count - at < different ? count - at : different;
        code = copy_and_wait(memory->device, to + at * size, converted, some * size, cudaMemcpyHostToDevice);
    }
    free(numbers);
    free(converted);
    return code;
}

void *ups_cuda_contest_numbers(ups_cuda_contest_memory *memory, int64_t count, ups_dtype dtype, float middle,
                               float spread) {
    char *at = ups_cuda_contest_room(memory, (size_t)count * ups_dtype_size(dtype));
    if (at && memory->code == cudaSuccess) memory->code = fill(memory, at, (size_t)count, dtype, middle, spread);
    return at;
}

void ups_cuda_contest_results(ups_cuda_contest_memory *memory, int64_t count, ups_dtype dtype, void *of[2]) {
    for (int k = 0; k < 2; k++) of[k] = ups_cuda_contest_room(memory, (size_t)count * ups_dtype_size(dtype));
    if (memory->result_count == UPS_CUDA_CONTEST_RESULTS)
        memory->code = cudaErrorInvalidValue;
    else
        memory->results[memory->result_count++] = (result){{of[0], of[1]}, dtype, count};
}

static cudaError_t open_memory(ups_device *device, const ups_cuda_contest *contest, ups_cuda_contest_memory *memory) {
    ups_cuda_contest_memory measured = {.device = device};
    contest->lay_out(&measured, contest->context);
    *memory = (ups_cuda_contest_memory){.device = device, .random = 1};
    cudaError_t code = cudaMalloc((void **)&memory->data, measured.used);
    if (code == cudaSuccess) code = cudaMemsetAsync(memory->data, 0, measured.used, ups_cuda_stream(device));
    if (code == cudaSuccess) code = cudaStreamSynchronize(ups_cuda_stream(device));
    if (code != cudaSuccess) return code;
    contest->lay_out(memory, contest->context);
    return memory->code;
}

/* ---- results -------------------------------------------------------------------------------------------------------
 */

/* What came of a contest. Only what the contestants themselves did is kept. BROKEN: the card does nothing any more for
 * this process. */
typedef enum outcome { FAILED, BROKEN, LOST, WON } outcome;

static void read_floats(const void *from, ups_dtype dtype, size_t count, float *to) {
    if (dtype == UPS_BF16)
        ups_bf16_to_f32(from, to, count);
    else if (dtype == UPS_F16)
        ups_f16_to_f32(from, to, count);
    else
        memcpy(to, from, count * sizeof *to);
}

/* Whether numbers are the same but for rounding: the root mean square of what is between them, and each by itself. */
static bool same_numbers(const char *first, const char *second, ups_dtype dtype, size_t count) {
    enum { AT_ONCE = 1024 };
    const double within = 0.02, each_within = 0.25; /* of the root mean square of all */
    const size_t size = ups_dtype_size(dtype);
    double squares = 0.0, between = 0.0, most = 0.0;
    float a[AT_ONCE], b[AT_ONCE];
    for (size_t at = 0; at < count; at += AT_ONCE) {
        const size_t some = count - at < AT_ONCE ? count - at : AT_ONCE;
        read_floats(first + at * size, dtype, some, a);
        read_floats(second + at * size, dtype, some, b);
        for (size_t i = 0; i < some; i++) {
            if (!isfinite(a[i]) || !isfinite(b[i])) return false;
            const double d = fabs((double)a[i] - b[i]), reference = fabs((double)a[i]);
            squares += reference * reference;
            between += d * d;
            most = fmax(most, d - each_within * reference);
        }
    }
    const double size_of_all = sqrt(squares / (double)count);
    return sqrt(between / (double)count) <= within * size_of_all && most <= each_within * size_of_all;
}

/* Of a long result pieces, the first and the last ones among them, are told apart by the host, which takes a second for
 * what a card makes in a millisecond. */
enum { PIECES = 64, PIECE = 1 << 16 };

static cudaError_t read_pieces(ups_device *device, const result *r, int which, size_t each, int pieces, char *to) {
    const size_t size = ups_dtype_size(r->dtype), left = (size_t)r->count - each;
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < pieces && code == cudaSuccess; i++) {
        const size_t first = pieces > 1 ? left * (size_t)i / (size_t)(pieces - 1) : 0;
        const char *from = (const char *)r->of[which] + first * size;
        code = copy_and_wait(device, to + (size_t)i * each * size, from, each * size, cudaMemcpyDeviceToHost);
    }
    return code;
}

static outcome agree(ups_device *device, const result *r) {
    const bool whole = r->count <= (int64_t)PIECES * PIECE;
    const int pieces = whole ? 1 : PIECES;
    const size_t each = whole ? (size_t)r->count : PIECE, count = each * (size_t)pieces;
    const size_t bytes = count * ups_dtype_size(r->dtype);
    char *of_both = malloc(2 * bytes);
    outcome found = FAILED;
    if (of_both && read_pieces(device, r, 0, each, pieces, of_both) == cudaSuccess &&
        read_pieces(device, r, 1, each, pieces, of_both + bytes) == cudaSuccess)
        found = same_numbers(of_both, of_both + bytes, r->dtype, count) ? WON : LOST;
    free(of_both);
    return found;
}

static outcome all_agree(const ups_cuda_contest_memory *memory) {
    outcome all = WON;
    for (int i = 0; i < memory->result_count && all == WON; i++) all = agree(memory->device, &memory->results[i]);
    return all;
}

/* ---- rounds --------------------------------------------------------------------------------------------------------
 */

/* Milliseconds of some runs; negative: it does not run. */
static float time_of(ups_device *device, const ups_cuda_contest *contest, int which, const cudaEvent_t events[2]) {
    enum { RUNS = 4 };
    cudaStream_t stream = ups_cuda_stream(device);
    float spent = -1.0f;
    if (cudaEventRecord(events[0], stream) != cudaSuccess) return -1.0f;
    for (int i = 0; i < RUNS; i++) {
        if (contest->run[which](device, contest->context, NULL) != UPS_OK) return -1.0f;
    }
    if (cudaEventRecord(events[1], stream) != cudaSuccess || cudaEventSynchronize(events[1]) != cudaSuccess ||
        cudaEventElapsedTime(&spent, events[0], events[1]) != cudaSuccess)
        return -1.0f;
    return spent;
}

static outcome hold_rounds(const ups_cuda_contest_memory *memory, const ups_cuda_contest *contest,
                           const cudaEvent_t events[2]) {
    enum { ROUNDS = 4 };       /* the first one warms up */
    const float worth = 0.97f; /* of the first's time: what the second may take at most */
    float least[2] = {INFINITY, INFINITY};
    if (contest->prepare && contest->prepare(memory->device, contest->context, NULL) != UPS_OK) return FAILED;
    for (int round = 0; round < ROUNDS; round++) {
        for (int which = 0; which < 2; which++) {
            const float time = time_of(memory->device, contest, which, events);
            if (time < 0.0f) return FAILED;
            if (round > 0) least[which] = fminf(least[which], time);
        }
    }
    return least[1] <= worth * least[0] ? all_agree(memory) : LOST;
}

static outcome hold_contest(ups_device *device, const ups_cuda_contest *contest) {
    ups_cuda_contest_memory memory;
    cudaEvent_t events[2] = {NULL, NULL};
    cudaError_t code = open_memory(device, contest, &memory);
    for (int i = 0; i < 2 && code == cudaSuccess; i++) code = cudaEventCreateWithFlags(&events[i], cudaEventDefault);
    outcome found = code == cudaSuccess ? hold_rounds(&memory, contest, events) : FAILED;
    if (cudaStreamSynchronize(ups_cuda_stream(device)) != cudaSuccess) found = BROKEN;
    for (int i = 0; i < 2; i++) {
        if (events[i]) cudaEventDestroy(events[i]);
    }
    if (memory.data) cudaFree(memory.data);
    cudaGetLastError(); /* what a contest could not do is no fault of what comes */
    return found;
}

/* ---- what is kept --------------------------------------------------------------------------------------------------
 */

enum { ATTEMPTS = 8 /* at a contest that could not be held, such as for want of memory */ };

/* That the n-th attempt was begun, or ended, in a line of its own. */
static bool name_attempt(char key[UPS_CUDA_CHOICE_KEY], const char *name, const char *word, int n) {
    return snprintf(key, UPS_CUDA_CHOICE_KEY, "%s.%s-%d", name, word, n) < UPS_CUDA_CHOICE_KEY;
}

static bool has_said(const ups_cuda_choices *choices, const char *name, const char *word, int n) {
    char key[UPS_CUDA_CHOICE_KEY];
    cublasLtMatmulAlgo_t any;
    return name_attempt(key, name, word, n) && ups_cuda_choices_find(choices, key, &any);
}

static void say(ups_cuda_choices *choices, const char *name, const char *word, int n) {
    char key[UPS_CUDA_CHOICE_KEY];
    cublasLtMatmulAlgo_t any = {{0}};
    if (name_attempt(key, name, word, n)) ups_cuda_choices_add(choices, key, &any);
}

/* A kernel that faults breaks the process's card, and one that hangs is ended by whoever waits: a contest that was
 * begun and not ended is lost, as far as later runs know. */
static outcome hold_and_come_back(ups_device *device, ups_cuda_choices *choices, const char *name,
                                  const ups_cuda_contest *contest) {
    int n = 1;
    while (n <= ATTEMPTS && has_said(choices, name, "begun", n) && has_said(choices, name, "ended", n)) n++;
    if (n > ATTEMPTS || has_said(choices, name, "begun", n)) return FAILED;
    say(choices, name, "begun", n);
    const outcome found = hold_contest(device, contest);
    if (found != BROKEN) say(choices, name, "ended", n);
    return found;
}

bool ups_cuda_second_wins(ups_device *device, const char *name, const ups_cuda_contest *contest) {
    ups_cuda_choices *choices = ups_cuda_choices_of(device);
    cublasLtMatmulAlgo_t winner = {{0}}; /* as the file keeps it: 0 or 1 in the first of an algorithm's words */
    if (!choices) return false;
    if (!ups_cuda_choices_find(choices, name, &winner)) {
        const outcome found = hold_and_come_back(device, choices, name, contest);
        if (found == FAILED || found == BROKEN) return false; /* what could not be tried is not kept */
        winner.data[0] = found == WON;
        ups_cuda_choices_add(choices, name, &winner);
    }
    return winner.data[0] == 1;
}
