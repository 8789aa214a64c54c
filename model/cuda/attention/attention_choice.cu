// Which kernels take short sequences: those of warps (attention_short.cu), or on cards that have them those of groups of warps
// (attention_groups.cu). A card is asked: they meet in a contest (products/contest.h) on the call's shapes.
#include "model/cuda/attention/attention_short.cuh"
extern "C" {
#include "model/cuda/products/contest.h"
#include "model/cuda/products/choices.h"
}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 /* of either's code: what was found for another one is found anew */, WARPS = 0, GROUPS = 1 };

// Both on the same inputs, with results of their own.
struct rivals {
    attention_call call[2];
    bool gains;
};

static int64_t elements_of_queries(const attention_call &c) {
    return c.batch * c.queries * c.q_stride;
}
static int64_t elements_of_keys(const attention_call &c) {
    return c.batch * c.keys * c.kv_stride;
}
static int64_t elements_of_outputs(const attention_call &c) {
    return c.batch * c.queries * c.heads * c.width;
}
static int64_t rows_of(const attention_call &c) {
    return c.batch * c.heads;
}

static elements numbers(ups_cuda_contest_memory *memory, const attention_call &c, int64_t count) {
    return {ups_cuda_contest_numbers(memory, count, c.q.dtype, 0.0f, 2.0f), c.q.dtype};
}
static const float *numbers_of_gain(ups_cuda_contest_memory *memory, const attention_call &c) {
    return (const float *)ups_cuda_contest_numbers(memory, c.width, UPS_F32, 1.0f, 0.5f);
}
static float *room_for(ups_cuda_contest_memory *memory, int64_t floats) {
    return (float *)ups_cuda_contest_room(memory, (size_t)floats * sizeof(float));
}

// A tensor of both, in the dtype of queries, or of float32.
static void results(ups_cuda_contest_memory *memory, rivals &it, elements attention_call::*tensor, int64_t count) {
    const ups_dtype dtype = it.call[WARPS].q.dtype;
    void *of[2];
    ups_cuda_contest_results(memory, count, dtype, of);
    for (int which : {WARPS, GROUPS}) it.call[which].*tensor = {of[which], dtype};
}
static void results(ups_cuda_contest_memory *memory, rivals &it, float *attention_call::*tensor, int64_t count) {
    void *of[2];
    ups_cuda_contest_results(memory, count, UPS_F32, of);
    for (int which : {WARPS, GROUPS}) it.call[which].*tensor = (float *)of[which];
}

static void lay_out_inputs(ups_cuda_contest_memory *memory, const rivals &it, attention_call &c) {
    c.q = numbers(memory, c, elements_of_queries(c));
    c.kv = c.packed ? c.q : numbers(memory, c, elements_of_keys(c));
    if (it.gains) c.gain_q = numbers_of_gain(memory, c), c.gain_k = numbers_of_gain(memory, c);
}

static void lay_out_forward(ups_cuda_contest_memory *memory, void *context) {
    rivals &it = *(rivals *)context;
    attention_call &c = it.call[WARPS];
    lay_out_inputs(memory, it, c);
    it.call[GROUPS] = c;
    results(memory, it, &attention_call::out, elements_of_outputs(c));
    results(memory, it, &attention_call::lse, rows_of(c) * c.queries);
    if (it.gains) results(memory, it, &attention_call::rms, rows_of(c) * (c.queries + c.keys));
}

// Of outputs that warps made. What nobody writes, beyond the last of packed rows' own, is zero on both sides.
static void lay_out_backward(ups_cuda_contest_memory *memory, void *context) {
    rivals &it = *(rivals *)context;
    attention_call &c = it.call[WARPS];
    lay_out_inputs(memory, it, c);
    c.upstream = numbers(memory, c, elements_of_outputs(c));
    c.out = {ups_cuda_contest_room(memory, (size_t)elements_of_outputs(c) * ups_dtype_size(c.q.dtype)), c.q.dtype};
    c.lse = room_for(memory, rows_of(c) * c.queries);
    if (it.gains) c.rms = room_for(memory, rows_of(c) * (c.queries + c.keys));
    it.call[GROUPS] = c;
    results(memory, it, &attention_call::dq, elements_of_queries(c));
    if (!c.packed) results(memory, it, &attention_call::dkv, elements_of_keys(c));
    else for (attention_call &each : it.call) each.dkv = each.dq;
    if (!it.gains) return;
    results(memory, it, &attention_call::gains_of_q, rows_of(c) * c.width);
    results(memory, it, &attention_call::gains_of_k, rows_of(c) * c.width);
}

template <ups_status run(ups_device *, const attention_call &, ups_error *), int WHICH>
static ups_status contestant(ups_device *device, const void *context, ups_error *error) {
    return run(device, ((const rivals *)context)->call[WHICH], error);
}

// By the file of choices, or a contest of as many samples as keep a card busy.
static bool groups_win(ups_device *device, const char *name, const attention_call &c, bool gains, bool backward) {
    const int64_t enough = tiles_in(8 * ups_cuda_processors(device), c.heads);
    rivals it = {{c}, gains};
    if (c.batch > enough) it.call[WARPS].batch = enough;
    ups_cuda_contestant *const warps[] = {contestant<attention_short_forward, WARPS>, contestant<attention_short_backward, WARPS>};
    ups_cuda_contestant *const groups[] = {contestant<attention_groups_forward, GROUPS>,
                                           contestant<attention_groups_backward, GROUPS>};
    const ups_cuda_contest of_forward = {lay_out_forward, nullptr, {warps[0], groups[0]}, &it};
    const ups_cuda_contest of_backward = {lay_out_backward, warps[0], {warps[1], groups[1]}, &it};
    return ups_cuda_second_wins(device, name, backward ? &of_backward : &of_forward);
}

bool attention_takes_groups(ups_device *device, const attention_call &c, bool gains, bool backward) {
    const size_t bytes = backward ? attention_groups_backward_bytes(c) : attention_groups_forward_bytes(c);
    if (ups_cuda_only_plans(device) || !ups_cuda_has_groups(device) || bytes > ups_cuda_most_shared(device)) return false;
    if (ups_cuda_kernels_by_shape(device)) return false; // on any card, the same bits
    const char *wanted = getenv("UPS_CUDA_ATTENTION");
    if (wanted && *wanted) return strcmp(wanted, "groups") == 0;
    char name[UPS_CUDA_CHOICE_KEY];
    snprintf(name, sizeof name, "attention-%d.%s.%s.%lld.%d.%d.%d.%d%s%s", VERSION, backward ? "backward" : "forward",
             ups_dtype_name(c.q.dtype), (long long)c.batch, c.heads, c.queries, c.keys, c.width, c.packed ? ".packed" : "",
             gains ? ".gains" : "");
    return groups_win(device, name, c, gains, backward);
}
