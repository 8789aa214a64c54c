/* Optimizers in one pass over memory: values, moments, EMA and the compute copy of a block are read and written
 * together, since this pass is bound by memory alone. Muon moves whole matrices first (muon.c). */
#include "model/cpu/device.h"
#include "model/cpu/vector.h"

enum { BLOCK = 16384 /* elements that are summed by one thread, so that sums do not depend on how many there are */ };

/* The elements [start, start + n) of a range. */
static void adamw(const ups_optimizer_call *call, const ups_range *range, float rate, float correction2, int64_t start,
                  int64_t n) {
    float *restrict w = call->values + range->offset + start;
    float *restrict m = call->moments[0] + range->kept + start;
    float *restrict v = call->moments[1] + range->second + start;
    const float *restrict g = call->gradients + range->offset + start;
    const float beta1 = call->beta1, beta2 = call->beta2, epsilon = call->epsilon;
    const float scale = call->update->result.gradient_scale;
    const float keep = 1.0f - call->update->input.learning_rate * call->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * scale;
        float first = beta1 * m[i] + (1.0f - beta1) * d;
        float second = beta2 * v[i] + (1.0f - beta2) * d * d;
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * keep - rate * first / (sqrtf(second) * correction2 + epsilon);
    }
}

/* What follows the values: their average and their copy. */
static void follow(const ups_optimizer_call *call, const ups_range *range, int64_t start, int64_t n) {
    const float *restrict w = call->values + range->offset + start;
    if (call->ema) {
        float *restrict ema = call->ema + range->kept + start;
        float decay = fminf(call->ema_decay, ups_update_ema_decay(call->update->state.taken[call->set] - 1));
        for (int64_t i = 0; i < n; i++) ema[i] = decay * ema[i] + (1.0f - decay) * w[i];
    }
    if (call->compute) {
        ups_row_stream(call->compute_dtype, w, call->compute + range->offset + start, n);
        ups_stream_end();
    }
}

void UPS_CPU(optimize)(int threads, const ups_optimizer_call *call) {
    enum { PIECE = 1024 }; /* what the second pass over w, for EMA and the copy, finds in the first-level cache */
    if (call->update->result.skipped) return;
    const bool by_matrix = call->rule == UPS_RULE_MUON;
    float rate, correction2;
    ups_cpu_bias_corrections(call, &rate, &correction2);
    if (by_matrix) UPS_CPU(muon)(threads, call);
#pragma omp parallel num_threads(threads)
    for (int32_t r = 0; r < call->range_count; r++) {
        const ups_range range = call->ranges[r];
#pragma omp for schedule(static) nowait
        for (int64_t piece = 0; piece < ups_div_up(range.count, PIECE); piece++) {
            int64_t start = piece * PIECE, n = ups_min(PIECE, range.count - start);
            if (!by_matrix) adamw(call, &range, rate, correction2, start, n);
            follow(call, &range, start, n);
        }
    }
}

void UPS_CPU(sum_of_squares)(int threads, const float *x, int64_t count, double *sum, int64_t *non_finite) {
    enum { GROUP = 64 }; /* blocks whose sums are kept at once, to be added in order */
    int64_t blocks = ups_div_up(count, BLOCK);
    *sum = 0.0;
    *non_finite = 0;
    for (int64_t group = 0; group < blocks; group += GROUP) {
        double sums[GROUP];
        int64_t bad[GROUP], n = ups_min(GROUP, blocks - group);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t block = 0; block < n; block++) {
            const float *from = x + (group + block) * BLOCK;
            int64_t length = ups_min(BLOCK, count - (group + block) * BLOCK);
            double total = 0.0;
            int64_t wrong = 0;
#pragma omp simd reduction(+ : total, wrong)
            for (int64_t i = 0; i < length; i++) {
                int32_t bits;
                memcpy(&bits, from + i, sizeof bits);
                wrong += (bits & 0x7f800000) == 0x7f800000;
                total += (double)from[i] * (double)from[i];
            }
            sums[block] = total;
            bad[block] = wrong;
        }
        for (int64_t block = 0; block < n; block++) *sum += sums[block], *non_finite += bad[block];
    }
}

void UPS_CPU(convert)(int threads, const float *from, ups_dtype dtype, uint16_t *to, int64_t count) {
    int64_t blocks = ups_div_up(count, BLOCK);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t start = block * BLOCK;
        ups_row_from_f32(dtype, from + start, to + start, ups_min(BLOCK, count - start));
    }
}
