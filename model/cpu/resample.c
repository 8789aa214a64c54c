/* Coarsen and refine: a grid of cells halved along each axis, and back.
 *
 * Along an axis each cell of the result is a weighted sum of two cells, and backward of a few: lists that are made of
 * the axis once a call. A row of the result is then the sum over the product of its axes' lists, gathered by one thread
 * in both directions. */
#include "model/cpu/vector.h"

/* What the cells of an axis are made of: entries [first[i], first[i + 1]) of cell i. Axes that there are not have one
 * cell, made of one. */
typedef struct axis {
    int64_t from, to;
    int32_t *first, *source;
    float *weight;
} axis;

typedef struct resampling {
    axis axes[3];
    int64_t from, to, channels; /* cells in all */
} resampling;

static inline int64_t halved(int64_t cells) {
    return (cells + 1) / 2;
}

/* The two cells that cell `i` of a coarser axis is the mean of, or that cell `i` of a finer one lies between. */
static inline void pair_of(bool refine, int64_t fine, bool periodic, int64_t i, int64_t source[2], float weight[2]) {
    if (!refine) {
        source[0] = 2 * i;
        source[1] = ups_min(2 * i + 1, fine - 1);
        weight[0] = weight[1] = 0.5f;
        return;
    }
    int64_t coarse = halved(fine), beside = i / 2 + (i % 2 ? 1 : -1);
    if (beside < 0) beside = periodic ? coarse - 1 : 0;
    if (beside >= coarse) beside = periodic ? 0 : coarse - 1;
    source[0] = i / 2, weight[0] = 0.75f;
    source[1] = beside, weight[1] = 0.25f;
}

/* The same for all cells, or of `back` for those that they are made of. Entries are in the order of the other side's
 * cells. */
static void make_lists(axis *a, bool refine, int64_t fine, bool periodic, bool back) {
    const int64_t cells = refine ? fine : halved(fine), others = refine ? halved(fine) : fine;
    a->to = back ? others : cells;
    a->from = back ? cells : others;
    int64_t source[2];
    float weight[2];
    memset(a->first, 0, (size_t)(a->to + 1) * sizeof *a->first);
    for (int64_t i = 0; i < cells; i++) {
        pair_of(refine, fine, periodic, i, source, weight);
        for (int k = 0; k < 2; k++) a->first[(back ? source[k] : i) + 1]++;
    }
    for (int64_t i = 0; i < a->to; i++) a->first[i + 1] += a->first[i];
    for (int64_t i = 0; i < cells; i++) {
        pair_of(refine, fine, periodic, i, source, weight);
        for (int k = 0; k < 2; k++) {
            int32_t at = a->first[back ? source[k] : i]++;
            a->source[at] = (int32_t)(back ? i : source[k]);
            a->weight[at] = weight[k];
        }
    }
    for (int64_t i = a->to; i > 0; i--) a->first[i] = a->first[i - 1];
    a->first[0] = 0;
}

/* An axis of `fine` cells has two entries for each cell of the result, and ends one beyond its last cell. */
static inline int64_t list_entries(int64_t fine) {
    return fine + 2 + 4 * (fine + 1);
}

static size_t workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    size_t entries = 0;
    for (int k = 0; k < 3; k++)
        entries += (size_t)list_entries(k < call->attributes->dims ? call->attributes->grid[k] : 1);
    return entries * sizeof(float);
}

static resampling resampling_of(const ups_op_call *call, bool refine, bool back) {
    const ups_op_attributes *attributes = call->attributes;
    resampling r = {.from = 1, .to = 1, .channels = ups_shape_last(call->output.shape)};
    int32_t *memory = call->workspace;
    for (int k = 0; k < 3; k++) {
        int from = k - (3 - attributes->dims);
        int64_t fine = from < 0 ? 1 : attributes->grid[from];
        axis *a = &r.axes[k];
        a->first = memory;
        a->source = a->first + fine + 2;
        a->weight = (float *)(a->source + 2 * (fine + 1));
        memory += list_entries(fine);
        make_lists(a, refine, fine, attributes->periodic, back);
        if (from < 0) { /* the one cell is itself */
            a->first[1] = 1;
            a->weight[0] = 1.0f;
        }
        r.from *= a->from;
        r.to *= a->to;
    }
    return r;
}

/* Channels [start, start + n) of one cell of the result. */
static void gather(const resampling *r, const ups_tensor *from, int64_t sample, int64_t cell, int64_t start, int64_t n,
                   float *restrict sum) {
    const axis *u = &r->axes[0], *v = &r->axes[1], *w = &r->axes[2];
    const int64_t k = cell % w->to, j = cell / w->to % v->to, i = cell / w->to / v->to;
    float scratch[UPS_CHUNK];
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int32_t a = u->first[i]; a < u->first[i + 1]; a++) {
        for (int32_t b = v->first[j]; b < v->first[j + 1]; b++) {
            for (int32_t c = w->first[k]; c < w->first[k + 1]; c++) {
                int64_t at = ((int64_t)u->source[a] * v->from + v->source[b]) * w->from + w->source[c];
                float weight = u->weight[a] * v->weight[b] * w->weight[c];
                const float *x = ups_row_read(from, (sample * r->from + at) * r->channels + start, n, scratch);
                for (int64_t d = 0; d < n; d++) sum[d] += weight * x[d];
            }
        }
    }
}

static void run(ups_device *device, const resampling *r, const ups_tensor *from, const ups_tensor *to,
                bool accumulate) {
    const int64_t rows = ups_shape_rows(to->shape);
#pragma omp parallel for num_threads(ups_threads_for(device, rows * r->channels)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t start = 0; start < r->channels; start += UPS_CHUNK) {
            float sum[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, r->channels - start), at = row * r->channels + start;
            gather(r, from, row / r->to, row % r->to, start, n, sum);
            float *target = ups_row_target(to, at, sum, accumulate);
            if (target != sum) memcpy(target, sum, (size_t)n * sizeof(float));
            ups_row_write(to, at, n, target, accumulate);
        }
    }
}

static ups_status resample(ups_device *device, const ups_op_call *call, bool refine, bool back) {
    if (back && !ups_present(&call->input_gradients[0])) return UPS_OK;
    const resampling r = resampling_of(call, refine, back);
    run(device, &r, back ? &call->output_gradient : &call->inputs[0], back ? &call->input_gradients[0] : &call->output,
        back && call->accumulate[0]);
    return UPS_OK;
}

static ups_status coarsen_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return resample(device, call, false, false);
}
static ups_status coarsen_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return resample(device, call, false, true);
}
static ups_status refine_forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return resample(device, call, true, false);
}
static ups_status refine_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    return resample(device, call, true, true);
}

const ups_cpu_kernel UPS_CPU(coarsen) = {
    .workspace = workspace, .forward = coarsen_forward, .backward = coarsen_backward};
const ups_cpu_kernel UPS_CPU(refine) = {.workspace = workspace, .forward = refine_forward, .backward = refine_backward};
