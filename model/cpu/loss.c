/* Losses: one number a sample, float32, and their weighted sum. A sample is what lies behind one index of the first
 * axis. */
#include "model/cpu/vector.h"

/* Samples in parts, by their size alone: threads share those of a few samples, and sums are the same with any number.
 */
typedef struct pieces {
    int64_t samples, size, parts; /* numbers of a sample, parts of it */
    int64_t each;                 /* numbers of a part; the last may have fewer */
} pieces;

static pieces pieces_of(const ups_op_call *call) {
    enum { PART = 4 * UPS_CHUNK, MOST_PARTS = 16 };
    const ups_shape shape = call->inputs[0].shape;
    pieces p = {.samples = shape.size[0], .size = ups_shape_elements(shape) / shape.size[0]};
    const int64_t wanted = ups_min(MOST_PARTS, ups_div_up(p.size, PART));
    p.each = ups_div_up(ups_div_up(p.size, wanted), UPS_CHUNK) * UPS_CHUNK;
    p.parts = ups_div_up(p.size, p.each);
    return p;
}

static int threads_for(const ups_device *device, const pieces *p) {
    return ups_threads_for(device, p->samples * p->size);
}

/* Numbers [first, end) of sample `of`. */
typedef struct piece {
    int64_t of, first, end;
} piece;

static piece piece_of(const pieces *p, int64_t index) {
    const int64_t first = index % p->parts * p->each;
    return (piece){index / p->parts, first, ups_min(first + p->each, p->size)};
}

/* Sums in float32 within a chunk, in float64 over chunks. */
typedef struct sums {
    double difference, target; /* of squares */
} sums;

static sums sum_piece(const ups_op_call *call, const pieces *p, const piece *at) {
    sums total = {0.0, 0.0};
    for (int64_t start = at->first; start < at->end; start += UPS_CHUNK) {
        float a[UPS_CHUNK], b[UPS_CHUNK], difference = 0.0f, target = 0.0f;
        const int64_t n = ups_min(UPS_CHUNK, at->end - start), from = at->of * p->size + start;
        const float *x = ups_row_read(&call->inputs[0], from, n, a), *t = ups_row_read(&call->inputs[1], from, n, b);
#pragma omp simd reduction(+ : difference, target)
        for (int64_t i = 0; i < n; i++) {
            difference += (x[i] - t[i]) * (x[i] - t[i]);
            target += t[i] * t[i];
        }
        total.difference += (double)difference;
        total.target += (double)target;
    }
    return total;
}

/* A sample's sums, and in backward what its gradient is multiplied by; before that, the sums of all parts. */
typedef struct scratch {
    sums *parts;
    float *factors;
} scratch;

static scratch scratch_of(const ups_op_call *call, const pieces *p) {
    sums *parts = call->workspace;
    return (scratch){parts, (float *)(parts + p->samples * p->parts)};
}

static size_t workspace_bytes(const ups_device *device, const ups_op_call *call, bool backward) {
    const pieces p = pieces_of(call);
    return (size_t)p.samples * ((size_t)p.parts * sizeof(sums) + sizeof(float));
}

/* Of each sample, at the first of its parts. */
static void sum_samples(ups_device *device, const ups_op_call *call, const pieces *p, sums *parts) {
#pragma omp parallel for num_threads(threads_for(device, p)) schedule(static)
    for (int64_t i = 0; i < p->samples * p->parts; i++) {
        const piece at = piece_of(p, i);
        parts[i] = sum_piece(call, p, &at);
    }
    for (int64_t i = 0; i < p->samples * p->parts; i++) {
        sums *first = &parts[i / p->parts * p->parts];
        if (first == &parts[i]) continue;
        first->difference += parts[i].difference;
        first->target += parts[i].target;
    }
}

/* gradient of input `input` (+)= factor_sample * (prediction - target). */
static void difference_gradient(ups_device *device, const ups_op_call *call, int input, const pieces *p,
                                const float *factors) {
    const ups_tensor *gradient = &call->input_gradients[input];
    const bool accumulate = call->accumulate[input];
#pragma omp parallel for num_threads(threads_for(device, p)) schedule(static)
    for (int64_t i = 0; i < p->samples * p->parts; i++) {
        const piece of = piece_of(p, i);
        const float factor = factors[of.of];
        for (int64_t start = of.first; start < of.end; start += UPS_CHUNK) {
            float a[UPS_CHUNK], b[UPS_CHUNK], out[UPS_CHUNK];
            const int64_t n = ups_min(UPS_CHUNK, of.end - start), at = of.of * p->size + start;
            const float *x = ups_row_read(&call->inputs[0], at, n, a), *t = ups_row_read(&call->inputs[1], at, n, b);
            float *to = ups_row_target(gradient, at, out, accumulate);
            for (int64_t k = 0; k < n; k++) to[k] = factor * (x[k] - t[k]);
            ups_row_write(gradient, at, n, to, accumulate);
        }
    }
}

static ups_status mse_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const pieces p = pieces_of(call);
    const scratch own = scratch_of(call, &p);
    float *y = call->output.data;
    sum_samples(device, call, &p, own.parts);
    for (int64_t i = 0; i < p.samples; i++) y[i] = (float)(own.parts[i * p.parts].difference / (double)p.size);
    return UPS_OK;
}

static ups_status mse_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const pieces p = pieces_of(call);
    const scratch own = scratch_of(call, &p);
    const float *dy = call->output_gradient.data;
    for (int input = 0; input < 2; input++) {
        if (!ups_present(&call->input_gradients[input])) continue;
        const float sign = input == 0 ? 2.0f : -2.0f;
        for (int64_t i = 0; i < p.samples; i++) own.factors[i] = sign * dy[i] / (float)p.size;
        difference_gradient(device, call, input, &p, own.factors);
    }
    return UPS_OK;
}

static ups_status relative_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const pieces p = pieces_of(call);
    const scratch own = scratch_of(call, &p);
    float *y = call->output.data;
    sum_samples(device, call, &p, own.parts);
    for (int64_t i = 0; i < p.samples; i++) {
        const sums *s = &own.parts[i * p.parts];
        y[i] = (float)(sqrt(s->difference) / (sqrt(s->target) + (double)call->attributes->epsilon));
    }
    return UPS_OK;
}

/* d|p - t|/dp = (p - t)/|p - t|; 0 where prediction and target are equal, where the norm has no derivative. */
static ups_status relative_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (!ups_present(&call->input_gradients[0])) return UPS_OK;
    const pieces p = pieces_of(call);
    const scratch own = scratch_of(call, &p);
    const float *dy = call->output_gradient.data;
    sum_samples(device, call, &p, own.parts);
    for (int64_t i = 0; i < p.samples; i++) {
        const sums *s = &own.parts[i * p.parts];
        const double norm = sqrt(s->difference) * (sqrt(s->target) + (double)call->attributes->epsilon);
        own.factors[i] = norm > 0.0 ? (float)((double)dy[i] / norm) : 0.0f;
    }
    difference_gradient(device, call, 0, &p, own.factors);
    return UPS_OK;
}

/* ---- by groups -------------------------------------------------------------------------------------------------- */

enum { SUMS = 4 }; /* of a group, which neighbours add to in turn, since each addition waits for the one before */

static int64_t group_count(const ups_op_call *call) {
    return call->inputs[3].shape.size[0];
}

static size_t grouped_workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    const pieces p = pieces_of(call);
    return (size_t)(p.samples * p.parts * SUMS * group_count(call)) * sizeof(sums);
}

/* A part's sums of squares by groups, SUMS of each. */
static void sum_groups(const ups_op_call *call, const pieces *p, const piece *of, sums *groups) {
    const int32_t *group = call->inputs[2].data;
    const float *table = call->inputs[3].data;
    const int64_t count = group_count(call);
    memset(groups, 0, (size_t)(SUMS * count) * sizeof *groups);
    for (int64_t start = of->first; start < of->end; start += UPS_CHUNK) {
        float a[UPS_CHUNK], b[UPS_CHUNK];
        const int64_t n = ups_min(UPS_CHUNK, of->end - start), at = of->of * p->size + start;
        const float *x = ups_row_read(&call->inputs[0], at, n, a), *t = ups_row_read(&call->inputs[1], at, n, b);
        for (int64_t i = 0; i < n; i++) {
            const int32_t g = group[start + i];
            sums *sum = groups + i % SUMS * count + g;
            const double difference = (double)x[i] - (double)t[i], target = (double)t[i] + (double)table[2 * g + 1];
            sum->difference += difference * difference;
            sum->target += target * target;
        }
    }
}

/* Sums by groups of each sample: at groups_of. */
static void sum_all_groups(ups_device *device, const ups_op_call *call, const pieces *p) {
    const int64_t count = group_count(call), each = SUMS * count;
    sums *const all = call->workspace;
#pragma omp parallel for num_threads(threads_for(device, p)) schedule(static)
    for (int64_t i = 0; i < p->samples * p->parts; i++) {
        const piece of = piece_of(p, i);
        sum_groups(call, p, &of, all + i * each);
    }
    for (int64_t sample = 0; sample < p->samples; sample++) {
        sums *groups = all + sample * p->parts * each;
        for (int64_t i = count; i < p->parts * each; i++) {
            groups[i % count].difference += groups[i].difference;
            groups[i % count].target += groups[i].target;
        }
    }
}

static sums *groups_of(const ups_op_call *call, const pieces *p, int64_t sample) {
    return (sums *)call->workspace + sample * p->parts * SUMS * group_count(call);
}

static double group_scale(const ups_op_call *call, const sums *of) {
    return fmax(sqrt(of->target), (double)call->attributes->factor);
}

static ups_status grouped_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const pieces p = pieces_of(call);
    const float *table = call->inputs[3].data;
    float *y = call->output.data;
    sum_all_groups(device, call, &p);
    for (int64_t sample = 0; sample < p.samples; sample++) {
        const sums *groups = groups_of(call, &p, sample);
        double loss = 0.0;
        for (int64_t g = 0; g < group_count(call); g++) {
            loss += (double)table[2 * g] * sqrt(groups[g].difference) / group_scale(call, &groups[g]);
        }
        y[sample] = (float)loss;
    }
    return UPS_OK;
}

/* Of a group without an error the norm has no derivative: 0. */
static ups_status grouped_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const pieces p = pieces_of(call);
    const int32_t *group = call->inputs[2].data;
    const float *table = call->inputs[3].data, *dy = call->output_gradient.data;
    sum_all_groups(device, call, &p);
    for (int64_t sample = 0; sample < p.samples; sample++) {
        sums *groups = groups_of(call, &p, sample);
        for (int64_t g = 0; g < group_count(call); g++) { /* what the gradient is multiplied by */
            const double norm = sqrt(groups[g].difference) * group_scale(call, &groups[g]);
            groups[g].difference = norm > 0.0 ? (double)dy[sample] * (double)table[2 * g] / norm : 0.0;
        }
    }
#pragma omp parallel for num_threads(threads_for(device, &p)) schedule(static)
    for (int64_t i = 0; i < p.samples * p.parts; i++) {
        const piece of = piece_of(&p, i);
        const sums *groups = groups_of(call, &p, of.of);
        for (int64_t start = of.first; start < of.end; start += UPS_CHUNK) {
            float a[UPS_CHUNK], b[UPS_CHUNK], out[UPS_CHUNK];
            const int64_t n = ups_min(UPS_CHUNK, of.end - start), at = of.of * p.size + start;
            const float *x = ups_row_read(&call->inputs[0], at, n, a), *t = ups_row_read(&call->inputs[1], at, n, b);
            float *to = ups_row_target(gradient, at, out, call->accumulate[0]);
            for (int64_t k = 0; k < n; k++) to[k] = (float)groups[group[start + k]].difference * (x[k] - t[k]);
            ups_row_write(gradient, at, n, to, call->accumulate[0]);
        }
    }
    return UPS_OK;
}

/* ---- below zero ------------------------------------------------------------------------------------------------- */

static size_t negative_workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    const pieces p = pieces_of(call);
    return (size_t)(p.samples * p.parts) * sizeof(double);
}

static ups_status negative_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const pieces p = pieces_of(call);
    double *const parts = call->workspace;
    float *y = call->output.data;
#pragma omp parallel for num_threads(threads_for(device, &p)) schedule(static)
    for (int64_t i = 0; i < p.samples * p.parts; i++) {
        const piece of = piece_of(&p, i);
        parts[i] = 0.0;
        for (int64_t start = of.first; start < of.end; start += UPS_CHUNK) {
            float in[UPS_CHUNK], sum = 0.0f;
            const int64_t n = ups_min(UPS_CHUNK, of.end - start);
            const float *x = ups_row_read(&call->inputs[0], of.of * p.size + start, n, in);
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < n; k++) sum += x[k] < 0.0f ? x[k] * x[k] : 0.0f;
            parts[i] += (double)sum;
        }
    }
    for (int64_t sample = 0; sample < p.samples; sample++) {
        double total = 0.0;
        for (int64_t i = 0; i < p.parts; i++) total += parts[sample * p.parts + i];
        y[sample] = (float)(total / (double)p.size);
    }
    return UPS_OK;
}

static ups_status negative_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const pieces p = pieces_of(call);
    const float *dy = call->output_gradient.data;
#pragma omp parallel for num_threads(threads_for(device, &p)) schedule(static)
    for (int64_t i = 0; i < p.samples * p.parts; i++) {
        const piece of = piece_of(&p, i);
        const float factor = 2.0f * dy[of.of] / (float)p.size;
        for (int64_t start = of.first; start < of.end; start += UPS_CHUNK) {
            float in[UPS_CHUNK], out[UPS_CHUNK];
            const int64_t n = ups_min(UPS_CHUNK, of.end - start), at = of.of * p.size + start;
            const float *x = ups_row_read(&call->inputs[0], at, n, in);
            float *to = ups_row_target(gradient, at, out, call->accumulate[0]);
            for (int64_t k = 0; k < n; k++) to[k] = x[k] < 0.0f ? factor * x[k] : 0.0f;
            ups_row_write(gradient, at, n, to, call->accumulate[0]);
        }
    }
    return UPS_OK;
}

/* ---- covariance of features ------------------------------------------------------------------------------------- */

/* How many entries of the covariance the loss is a mean of. */
static double entries_of(bool diagonal, int64_t width) {
    return diagonal ? (double)width : fmax((double)(width * (width - 1)), 1.0);
}

/* A row of x, less the means. */
static void read_centred(const ups_tensor *x, int64_t row, int64_t width, const float *means, float *to) {
    for (int64_t start = 0; start < width; start += UPS_CHUNK) {
        float in[UPS_CHUNK];
        int64_t n = ups_min(UPS_CHUNK, width - start);
        const float *from = ups_row_read(x, row * width + start, n, in);
        for (int64_t i = 0; i < n; i++) to[start + i] = from[i] - means[start + i];
    }
}

static void add_row(const ups_tensor *x, int64_t row, int64_t width, float share, float *to) {
    for (int64_t start = 0; start < width; start += UPS_CHUNK) {
        float in[UPS_CHUNK];
        int64_t n = ups_min(UPS_CHUNK, width - start);
        const float *from = ups_row_read(x, row * width + start, n, in);
        for (int64_t i = 0; i < n; i++) to[start + i] += share * from[i];
    }
}

/* A row a thread. */
static size_t covariance_workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    return (size_t)(2 * ups_cpu_threads(device) * ups_shape_last(call->inputs[0].shape)) * sizeof(float);
}

/* Each thread sums up rows of C of its own, over all rows of x in order. */
static ups_status covariance_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0];
    const int64_t width = ups_shape_last(x->shape), rows = ups_shape_rows(x->shape);
    float *const c = call->saved[0].data, *const means = c + width * width, *const y = call->output.data;
    double loss = 0.0;
    memset(means, 0, (size_t)width * sizeof(float));
    for (int64_t row = 0; row < rows; row++) add_row(x, row, width, 1.0f / (float)rows, means);
#pragma omp parallel num_threads(ups_threads_for(device, rows *width *width))
    {
        float *own = (float *)call->workspace + 2 * omp_get_thread_num() * width;
        int64_t threads = omp_get_num_threads(), from = omp_get_thread_num() * width / threads,
                to = (omp_get_thread_num() + 1) * width / threads;
        memset(c + from * width, 0, (size_t)((to - from) * width) * sizeof(float));
        for (int64_t row = 0; row < rows; row++) {
            read_centred(x, row, width, means, own);
            for (int64_t d = from; d < to; d++) {
                float *entries = c + d * width, value = own[d] / (float)rows;
                for (int64_t e = 0; e < width; e++) entries[e] += value * own[e];
            }
        }
    }
    for (int64_t d = 0; d < width; d++) {
        for (int64_t e = 0; e < width; e++) {
            if ((d == e) != call->attributes->diagonal) continue;
            double off = (double)c[d * width + e] - (d == e ? 1.0 : 0.0);
            loss += off * off;
        }
    }
    loss /= entries_of(call->attributes->diagonal, width);
    for (int64_t sample = 0; sample < call->output.shape.size[0]; sample++) y[sample] = (float)loss;
    return UPS_OK;
}

/* dx = 4 Σ dy / (rows · entries) · (x - mean) (C - I), of the entries that count; what the means change cancels. */
static ups_status covariance_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const ups_tensor *x = &call->inputs[0], *gradient = &call->input_gradients[0];
    if (!ups_present(gradient)) return UPS_OK;
    const bool diagonal = call->attributes->diagonal;
    const int64_t width = ups_shape_last(x->shape), rows = ups_shape_rows(x->shape);
    const float *const c = call->saved[0].data, *const means = c + width * width, *dy = call->output_gradient.data;
    double sum = 0.0;
    for (int64_t sample = 0; sample < x->shape.size[0]; sample++) sum += (double)dy[sample];
    const float factor = (float)(4.0 * sum / ((double)rows * entries_of(diagonal, width)));
#pragma omp parallel for num_threads(ups_threads_for(device, rows *width *width)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *own = (float *)call->workspace + 2 * omp_get_thread_num() * width, *made = own + width;
        read_centred(x, row, width, means, own);
        for (int64_t e = 0; e < width; e++) made[e] = diagonal ? own[e] * (c[e * width + e] - 1.0f) : 0.0f;
        for (int64_t d = 0; d < width && !diagonal; d++) {
            const float *entries = c + d * width;
            for (int64_t e = 0; e < width; e++) made[e] += own[d] * entries[e];
            made[d] -= own[d] * entries[d];
        }
        for (int64_t start = 0; start < width; start += UPS_CHUNK) {
            float out[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, width - start), at = row * width + start;
            float *to = ups_row_target(gradient, at, out, call->accumulate[0]);
            for (int64_t i = 0; i < n; i++) to[i] = factor * made[start + i];
            ups_row_write(gradient, at, n, to, call->accumulate[0]);
        }
    }
    return UPS_OK;
}

static ups_status weighted_sum_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    double total = 0.0;
    for (int input = 0; input < call->input_count; input++) {
        const float *x = call->inputs[input].data;
        int64_t count = ups_shape_elements(call->inputs[input].shape);
        double sum = 0.0;
        for (int64_t i = 0; i < count; i++) sum += (double)x[i];
        total += (double)call->attributes->weights[input] * sum / (double)count;
    }
    *(float *)call->output.data = (float)total;
    return UPS_OK;
}

static ups_status weighted_sum_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    float dy = *(const float *)call->output_gradient.data;
    for (int input = 0; input < call->input_count; input++) {
        float *gradient = call->input_gradients[input].data;
        if (!gradient) continue;
        int64_t count = ups_shape_elements(call->input_gradients[input].shape);
        float value = dy * call->attributes->weights[input] / (float)count;
        for (int64_t i = 0; i < count; i++) gradient[i] = call->accumulate[input] ? gradient[i] + value : value;
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(loss_mse) = {
    .workspace = workspace_bytes, .forward = mse_forward, .backward = mse_backward};
const ups_cpu_kernel UPS_CPU(loss_relative) = {
    .workspace = workspace_bytes, .forward = relative_forward, .backward = relative_backward};
const ups_cpu_kernel UPS_CPU(loss_grouped) = {
    .workspace = grouped_workspace, .forward = grouped_forward, .backward = grouped_backward};
const ups_cpu_kernel UPS_CPU(loss_negative) = {
    .workspace = negative_workspace, .forward = negative_forward, .backward = negative_backward};
const ups_cpu_kernel UPS_CPU(loss_covariance) = {
    .workspace = covariance_workspace, .forward = covariance_forward, .backward = covariance_backward};
const ups_cpu_kernel UPS_CPU(weighted_sum) = {.forward = weighted_sum_forward, .backward = weighted_sum_backward};
