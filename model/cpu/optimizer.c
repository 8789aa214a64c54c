/* AdamW in one pass over memory: values, moments, EMA and the compute copy of a stretch are read and written together,
 * since this pass is bound by memory alone. */
#include "model/cpu/vector.h"

enum { STRETCH = 16384 /* elements; also the block of a sum of squares, so that it does not depend on the threads */ };

static void adamw_stretch(const ups_adamw_call *call, int64_t start, int64_t n, float rate, float correction2) {
    float *restrict w = call->values + start, *restrict m = call->first_moment + start;
    float *restrict v = call->second_moment + start;
    const float *restrict g = call->gradients + start;
    const float beta1 = call->beta1, beta2 = call->beta2, epsilon = call->epsilon, scale = call->gradient_scale;
    const float keep = 1.0f - call->learning_rate * call->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * scale;
        float first = beta1 * m[i] + (1.0f - beta1) * d;
        float second = beta2 * v[i] + (1.0f - beta2) * d * d;
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * keep - rate * first / (sqrtf(second) * correction2 + epsilon);
    }
    if (call->ema) {
        float *restrict ema = call->ema + start;
        float decay = call->ema_decay;
        for (int64_t i = 0; i < n; i++) ema[i] = decay * ema[i] + (1.0f - decay) * w[i];
    }
    if (call->compute) {
        ups_row_stream(call->compute_dtype, w, call->compute + start, n);
        ups_stream_end();
    }
}

void UPS_CPU(adamw)(int threads, const ups_adamw_call *call) {
    enum {
        PIECE = 1024
    }; /* what the second pass over w, for EMA and the compute copy, finds in the first-level cache */
    float rate = (float)((double)call->learning_rate / (1.0 - pow((double)call->beta1, (double)call->step)));
    float correction2 = (float)(1.0 / sqrt(1.0 - pow((double)call->beta2, (double)call->step)));
    int64_t pieces = ups_div_up(call->count, PIECE);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = piece * PIECE;
        adamw_stretch(call, start, ups_min(PIECE, call->count - start), rate, correction2);
    }
}

void UPS_CPU(sum_of_squares)(int threads, const float *x, int64_t count, double *sum, int64_t *non_finite) {
    enum { GROUP = 64 }; /* blocks whose sums are kept at once, to be added in order */
    int64_t blocks = ups_div_up(count, STRETCH);
    *sum = 0.0;
    *non_finite = 0;
    for (int64_t group = 0; group < blocks; group += GROUP) {
        double sums[GROUP];
        int64_t bad[GROUP], n = ups_min(GROUP, blocks - group);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t block = 0; block < n; block++) {
            const float *from = x + (group + block) * STRETCH;
            int64_t length = ups_min(STRETCH, count - (group + block) * STRETCH);
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
    int64_t stretches = ups_div_up(count, STRETCH);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t stretch = 0; stretch < stretches; stretch++) {
        int64_t start = stretch * STRETCH;
        ups_row_from_f32(dtype, from + start, to + start, ups_min(STRETCH, count - start));
    }
}
