/* Attention: heads, groups, QK norm, rotary places, windows with a bias. */
#include "tests/model/reference/parts.h"

#include <math.h>

enum { MAX_HEAD = 128, MAX_KEYS = 512 };

/* One head's row of q or k: normalised when there is a gain; returns 1/rms. */
static double head_row(const ups_reference *r, const double *row, const double *gain, int64_t width, double *out) {
    double mean_square = 0.0;
    for (int64_t i = 0; i < width; i++) mean_square += row[i] * row[i] / (double)width;
    double inverse = gain ? 1.0 / sqrt(mean_square + (double)r->attributes->epsilon) : 1.0;
    for (int64_t i = 0; i < width; i++) out[i] = row[i] * inverse * (gain ? gain[i] : 1.0);
    return inverse;
}

/* From the gradient of a normalised row to that of the row and of the gain. */
static void head_row_backward(const double *row, double inverse, const double *gain, int64_t width, const double *dy,
                              double *drow, double *dgain) {
    double mean_gh = 0.0;
    for (int64_t i = 0; gain && i < width; i++) mean_gh += dy[i] * gain[i] * row[i] * inverse / (double)width;
    for (int64_t i = 0; i < width; i++) {
        if (gain) add_to(dgain, i, dy[i] * row[i] * inverse);
        if (drow) drow[i] += gain ? inverse * (dy[i] * gain[i] - row[i] * inverse * mean_gh) : dy[i];
    }
}

/* Pairs of a row turned by the angles of its token, which each sample may have of its own; `back`: the other way. */
static void turn(const ups_reference *r, int64_t sample, int64_t token, int64_t width, bool back, double *row) {
    if (r->shapes[4].rank == 3) token += sample * r->shapes[4].size[1];
    const double *angles = r->inputs[4] ? r->inputs[4] + token * width : NULL;
    for (int64_t i = 0; angles && i < width / 2; i++) {
        double a = row[i], b = row[width / 2 + i], c = angles[i],
               s = back ? -angles[width / 2 + i] : angles[width / 2 + i];
        row[i] = a * c - b * s;
        row[width / 2 + i] = b * c + a * s;
    }
}

/* Which window of an axis `cell` lies in, and where in it. */
static int64_t window_of(const ups_op_attributes *a, int axis, int64_t cell, int64_t *inside) {
    int64_t n = a->grid[axis], size = a->patch[axis], shift = a->shift[axis];
    int64_t moved = size >= n ? cell : a->periodic ? (cell - shift + n) % n : cell - shift + size;
    *inside = size >= n ? cell : moved % size;
    return size >= n ? 0 : moved / size;
}

/* Whether a query sees a key; where the bias of their places stands. */
static bool sees(const ups_reference *r, int64_t query, int64_t key, int64_t *offset) {
    const ups_op_attributes *a = r->attributes;
    int64_t step = 1;
    *offset = 0;
    for (int axis = a->dims - 1; axis >= 0; axis--) {
        int64_t n = a->grid[axis], i, j;
        if (window_of(a, axis, query % n, &i) != window_of(a, axis, key % n, &j)) return false;
        *offset += (i - j + a->patch[axis] - 1) * step;
        step *= 2 * a->patch[axis] - 1;
        query /= n;
        key /= n;
    }
    return true;
}

/* One query of one head: its probabilities, and with them its output or its share of the gradients. */
static void attend(const ups_reference *r, bool backward, int64_t b, int64_t head, int64_t query) {
    bool cross = r->inputs[1] != NULL;
    int64_t heads = r->attributes->heads, features = ups_shape_last(r->output_shape), width = features / heads;
    int64_t keys = cross ? r->shapes[1].size[1] : r->shapes[0].size[1], queries = r->shapes[0].size[1];
    int64_t q_stride = ups_shape_last(r->shapes[0]), k_stride = cross ? 2 * features : q_stride;
    /* A group of heads has its q, its k and its v behind each other. */
    int64_t group = features / (r->attributes->groups > 1 ? r->attributes->groups : 1), in_row = head * width;
    int64_t packed = cross ? in_row : in_row / group * 3 * group + in_row % group, to_v = cross ? features : group;
    const double *kv = cross ? r->inputs[1] : r->inputs[0] + group;
    double *dkv = cross ? r->input_gradients[1] : r->input_gradients[0];
    if (dkv && !cross) dkv += group;
    int64_t q_at = (b * queries + query) * q_stride + packed, out = (b * queries + query) * features + in_row;
    int64_t k_at = b * keys * k_stride + packed, offset;
    double q[MAX_HEAD], k[MAX_HEAD], p[MAX_KEYS], dp[MAX_KEYS], dq[MAX_HEAD] = {0}, dk[MAX_HEAD];
    double q_inverse = head_row(r, r->inputs[0] + q_at, r->inputs[2], width, q), largest = -INFINITY, sum = 0.0;
    turn(r, b, query, width, false, q);
    for (int64_t j = 0; j < keys; j++) {
        head_row(r, kv + k_at + j * k_stride, r->inputs[3], width, k);
        turn(r, b, j, width, false, k);
        p[j] = sees(r, query, j, &offset) ? 0.0 : -INFINITY;
        for (int64_t i = 0; i < width; i++) p[j] += q[i] * k[i] / sqrt((double)width);
        if (r->inputs[5] && p[j] > -INFINITY) p[j] += r->inputs[5][offset * heads + head];
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = 0; j < keys; j++) sum += p[j] = exp(p[j] - largest);
    for (int64_t j = 0; j < keys; j++) p[j] /= sum;
    if (!backward) {
        for (int64_t i = 0; i < width; i++) r->output[out + i] = 0.0;
        for (int64_t j = 0; j < keys; j++) {
            for (int64_t i = 0; i < width; i++) r->output[out + i] += p[j] * kv[k_at + j * k_stride + to_v + i];
        }
        return;
    }
    const double *dy = r->output_gradient + out;
    double weighted = 0.0;
    for (int64_t j = 0; j < keys; j++) {
        const double *v = kv + k_at + j * k_stride + to_v;
        dp[j] = 0.0;
        for (int64_t i = 0; i < width; i++) {
            dp[j] += dy[i] * v[i];
            if (dkv) dkv[k_at + j * k_stride + to_v + i] += p[j] * dy[i];
        }
        weighted += p[j] * dp[j];
    }
    for (int64_t j = 0; j < keys; j++) {
        if (!sees(r, query, j, &offset)) continue;
        if (r->inputs[5]) add_to(r->input_gradients[5], offset * heads + head, p[j] * (dp[j] - weighted));
        double ds = p[j] * (dp[j] - weighted) / sqrt((double)width);
        const double *row = kv + k_at + j * k_stride;
        double inverse = head_row(r, row, r->inputs[3], width, k);
        turn(r, b, j, width, false, k);
        for (int64_t i = 0; i < width; i++) {
            dq[i] += ds * k[i];
            dk[i] = ds * q[i];
        }
        turn(r, b, j, width, true, dk);
        head_row_backward(row, inverse, r->inputs[3], width, dk, dkv ? dkv + k_at + j * k_stride : NULL,
                          r->input_gradients[3]);
    }
    turn(r, b, query, width, true, dq);
    head_row_backward(r->inputs[0] + q_at, q_inverse, r->inputs[2], width, dq,
                      r->input_gradients[0] ? r->input_gradients[0] + q_at : NULL, r->input_gradients[2]);
}

void ups_reference_attention(const ups_reference *r, bool backward) {
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t head = 0; head < r->attributes->heads; head++) {
            for (int64_t query = 0; query < r->shapes[0].size[1]; query++) attend(r, backward, b, head, query);
        }
    }
}
