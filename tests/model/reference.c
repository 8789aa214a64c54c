#include "tests/model/reference.h"
#include "base/half.h"
#include "model/random/augment.h"
#include "model/random/drop_path.h"
#include <math.h>
#include <stdlib.h>

/* Each op is one function that computes its output (backward false) or adds to the gradients of its inputs (backward
 * true), so that both read side by side. */
typedef void op(const ups_reference *r, bool backward);

static void add_to(double *gradient, int64_t at, double value) {
    if (gradient) gradient[at] += value;
}

static int64_t size_of(const ups_reference *r, int input) {
    return ups_shape_elements(r->shapes[input]);
}

static void linear(const ups_reference *r, bool backward) {
    int64_t rows = ups_shape_rows(r->shapes[0]), in = r->shapes[1].size[1], out = r->shapes[1].size[0];
    const double *x = r->inputs[0], *w = r->inputs[1], *b = r->inputs[2];
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t m = 0; m < out; m++) {
            double sum = b ? b[m] : 0.0, dy = backward ? r->output_gradient[n * out + m] : 0.0;
            for (int64_t k = 0; k < in; k++) {
                sum += x[n * in + k] * w[m * in + k];
                if (!backward) continue;
                add_to(r->input_gradients[0], n * in + k, dy * w[m * in + k]);
                add_to(r->input_gradients[1], m * in + k, dy * x[n * in + k]);
            }
            if (backward)
                add_to(r->input_gradients[2], m, dy);
            else
                r->output[n * out + m] = sum;
        }
    }
}

static double gelu_of(double x, double *slope) {
    const double integral = 0.5 * erfc(-x / sqrt(2.0)), density = exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
    *slope = integral + x * density;
    return x * integral;
}

static void linear_gelu(const ups_reference *r, bool backward) {
    int64_t count = ups_shape_elements(r->output_shape);
    double *between = malloc((size_t)count * sizeof *between), *gradient = malloc((size_t)count * sizeof *gradient);
    ups_reference product = *r;
    product.output = between;
    product.output_gradient = gradient;
    linear(&product, false);
    for (int64_t i = 0; i < count; i++) {
        double slope, value = gelu_of(between[i], &slope);
        if (backward)
            gradient[i] = r->output_gradient[i] * slope;
        else
            r->output[i] = value;
    }
    if (backward) linear(&product, true);
    free(between);
    free(gradient);
}

/* Layer norm, or RMS norm when not `centred`, over rows of `width`. */
static void norm(const ups_reference *r, bool backward, bool centred) {
    int64_t rows = ups_shape_rows(r->shapes[0]), width = ups_shape_last(r->shapes[0]);
    const double *gain = r->inputs[1], *bias = centred ? r->inputs[2] : NULL;
    for (int64_t n = 0; n < rows; n++) {
        const double *x = r->inputs[0] + n * width;
        double mean = 0.0, variance = 0.0, mean_g = 0.0, mean_gh = 0.0;
        for (int64_t i = 0; centred && i < width; i++) mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)width;
        double scale = 1.0 / sqrt(variance + (double)r->attributes->epsilon);
        for (int64_t i = 0; i < width && !backward; i++) {
            r->output[n * width + i] = (x[i] - mean) * scale * (gain ? gain[i] : 1.0) + (bias ? bias[i] : 0.0);
        }
        if (!backward) continue;
        const double *dy = r->output_gradient + n * width;
        for (int64_t i = 0; i < width; i++) {
            double h = (x[i] - mean) * scale, g = dy[i] * (gain ? gain[i] : 1.0);
            if (centred) mean_g += g / (double)width;
            mean_gh += g * h / (double)width;
            add_to(r->input_gradients[1], i, dy[i] * h);
            if (centred) add_to(r->input_gradients[2], i, dy[i]);
        }
        for (int64_t i = 0; i < width; i++) {
            double h = (x[i] - mean) * scale, g = dy[i] * (gain ? gain[i] : 1.0);
            add_to(r->input_gradients[0], n * width + i, scale * (g - mean_g - h * mean_gh));
        }
    }
}

static void layer_norm(const ups_reference *r, bool backward) {
    norm(r, backward, true);
}
static void rms_norm(const ups_reference *r, bool backward) {
    norm(r, backward, false);
}

static void modulate(const ups_reference *r, bool backward) {
    const int64_t *s = r->output_shape.size;
    const double *x = r->inputs[0], *scale = r->inputs[1], *shift = r->inputs[2];
    for (int64_t b = 0; b < s[0]; b++) {
        for (int64_t t = 0; t < s[1]; t++) {
            for (int64_t d = 0; d < s[2]; d++) {
                int64_t at = (b * s[1] + t) * s[2] + d, sample = b * s[2] + d;
                if (!backward) {
                    r->output[at] = x[at] * (1.0 + scale[sample]) + shift[sample];
                    continue;
                }
                double dy = r->output_gradient[at];
                add_to(r->input_gradients[0], at, dy * (1.0 + scale[sample]));
                add_to(r->input_gradients[1], sample, dy * x[at]);
                add_to(r->input_gradients[2], sample, dy);
            }
        }
    }
}

static void residual(const ups_reference *r, bool backward) {
    const int64_t *s = r->output_shape.size;
    const double *x = r->inputs[0], *f = r->inputs[1], *gate = r->inputs[2];
    for (int64_t b = 0; b < s[0]; b++) {
        double keep = r->training ? (double)ups_drop_path_keep(r->attributes, r->seed, r->step, b) : 1;
        for (int64_t t = 0; t < s[1]; t++) {
            for (int64_t d = 0; d < s[2]; d++) {
                int64_t at = (b * s[1] + t) * s[2] + d;
                double open = gate ? 1.0 / (1.0 + exp(-(gate[b * s[2] + d] + 2.0))) : 1.0;
                if (!backward) {
                    r->output[at] = x[at] + keep * open * f[at];
                    continue;
                }
                double dy = r->output_gradient[at];
                add_to(r->input_gradients[0], at, dy);
                add_to(r->input_gradients[1], at, dy * keep * open);
                if (gate) add_to(r->input_gradients[2], b * s[2] + d, dy * keep * f[at] * open * (1.0 - open));
            }
        }
    }
}

static void add(const ups_reference *r, bool backward) {
    int64_t count = size_of(r, 0), width = ups_shape_last(r->shapes[0]), period = size_of(r, 1);
    bool per_sample = r->shapes[1].rank == 3 && r->shapes[1].size[1] == 1;
    int64_t sample = count / r->shapes[0].size[0];
    for (int64_t i = 0; i < count; i++) {
        int64_t z = per_sample ? i / sample * width + i % width : i % period;
        if (!backward) {
            r->output[i] = r->inputs[0][i] + r->inputs[1][z];
            continue;
        }
        add_to(r->input_gradients[0], i, r->output_gradient[i]);
        add_to(r->input_gradients[1], z, r->output_gradient[i]);
    }
}

static void broadcast(const ups_reference *r, bool backward) {
    int64_t period = size_of(r, 0);
    for (int64_t i = 0; i < period * r->attributes->batch; i++) {
        if (backward)
            add_to(r->input_gradients[0], i % period, r->output_gradient[i]);
        else
            r->output[i] = r->inputs[0][i % period];
    }
}

/* y = f(x), value by value; `slope` becomes f'(x). */
static void elementwise(const ups_reference *r, bool backward, double (*f)(double x, double *slope)) {
    for (int64_t i = 0; i < size_of(r, 0); i++) {
        double slope, value = f(r->inputs[0][i], &slope);
        if (backward)
            add_to(r->input_gradients[0], i, r->output_gradient[i] * slope);
        else
            r->output[i] = value;
    }
}

static void bound(const ups_reference *r, bool backward) {
    const double b = (double)r->attributes->factor;
    for (int64_t i = 0; i < size_of(r, 0); i++) {
        const double u = r->inputs[0][i] / b;
        const double slope = r->attributes->inverse ? cosh(u) : 1.0 / sqrt(1.0 + u * u);
        if (backward)
            add_to(r->input_gradients[0], i, r->output_gradient[i] * slope);
        else
            r->output[i] = b * (r->attributes->inverse ? sinh(u) : asinh(u));
    }
}

/* Straight through: backward does not see it. */
static void round_f16(const ups_reference *r, bool backward) {
    for (int64_t i = 0; i < size_of(r, 0); i++) {
        ups_f16 half;
        float value = (float)r->inputs[0][i];
        ups_f32_to_f16(&value, &half, 1);
        ups_f16_to_f32(&half, &value, 1);
        if (backward)
            add_to(r->input_gradients[0], i, r->output_gradient[i]);
        else
            r->output[i] = (double)value;
    }
}

static double silu_of(double x, double *slope) {
    const double s = 1.0 / (1.0 + exp(-x));
    *slope = s * (1.0 + x * (1.0 - s));
    return x * s;
}

static void gelu(const ups_reference *r, bool backward) {
    elementwise(r, backward, gelu_of);
}
static void silu(const ups_reference *r, bool backward) {
    elementwise(r, backward, silu_of);
}

static void scaled(const ups_reference *r, bool backward, double factor, const double *gain) {
    int64_t width = ups_shape_last(r->shapes[0]);
    for (int64_t i = 0; i < size_of(r, 0); i++) {
        double by = gain ? factor * gain[i % width] : factor;
        if (backward)
            add_to(r->input_gradients[0], i, by * r->output_gradient[i]);
        else
            r->output[i] = by * r->inputs[0][i];
    }
}

static void scale(const ups_reference *r, bool backward) {
    scaled(r, backward, (double)r->attributes->factor, r->inputs[1]);
}
static void cast(const ups_reference *r, bool backward) {
    scaled(r, backward, 1.0, NULL);
}

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

/* Pairs of a row turned by the angles of its token; `back`: the other way. */
static void turn(const ups_reference *r, int64_t token, int64_t width, bool back, double *row) {
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
    turn(r, query, width, false, q);
    for (int64_t j = 0; j < keys; j++) {
        head_row(r, kv + k_at + j * k_stride, r->inputs[3], width, k);
        turn(r, j, width, false, k);
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
        turn(r, j, width, false, k);
        for (int64_t i = 0; i < width; i++) {
            dq[i] += ds * k[i];
            dk[i] = ds * q[i];
        }
        turn(r, j, width, true, dk);
        head_row_backward(row, inverse, r->inputs[3], width, dk, dkv ? dkv + k_at + j * k_stride : NULL,
                          r->input_gradients[3]);
    }
    turn(r, query, width, true, dq);
    head_row_backward(r->inputs[0] + q_at, q_inverse, r->inputs[2], width, dq,
                      r->input_gradients[0] ? r->input_gradients[0] + q_at : NULL, r->input_gradients[2]);
}

static void attention(const ups_reference *r, bool backward) {
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t head = 0; head < r->attributes->heads; head++) {
            for (int64_t query = 0; query < r->shapes[0].size[1]; query++) attend(r, backward, b, head, query);
        }
    }
}

/* y[i] = x[source(i)]: what slice, select_frame and others have in common. */
static void take(const ups_reference *r, bool backward, int64_t i, int64_t source) {
    if (backward)
        add_to(r->input_gradients[0], source, r->output_gradient[i]);
    else
        r->output[i] = r->inputs[0][source];
}

static void slice(const ups_reference *r, bool backward) {
    int64_t length = r->attributes->length;
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++) {
        take(r, backward, i, i / length * ups_shape_last(r->shapes[0]) + r->attributes->offset + i % length);
    }
}

static void select_frame(const ups_reference *r, bool backward) {
    int64_t frames = r->shapes[0].size[1], inner = size_of(r, 0) / (r->shapes[0].size[0] * frames);
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++) {
        take(r, backward, i, (i / inner * frames + r->attributes->frame) * inner + i % inner);
    }
}

static double statistic(const double *statistics, int64_t c, int which) {
    return statistics ? statistics[2 * c + which] : which ? 1.0 : 0.0;
}

/* Output i is the normalised field of `sample` at `point` in channel c. */
static void take_normalised(const ups_reference *r, bool backward, const double *statistics, int64_t i, int64_t sample,
                            int64_t point, int64_t c) {
    int64_t size = size_of(r, 0) / r->shapes[0].size[0], points = size / r->attributes->channels;
    int64_t at =
        sample * size + (r->attributes->channels_first ? c * points + point : point * r->attributes->channels + c);
    double inverse = statistic(statistics, c, 1);
    if (backward)
        add_to(r->input_gradients[0], at, r->output_gradient[i] * inverse);
    else
        r->output[i] = (r->inputs[0][at] - statistic(statistics, c, 0)) * inverse;
}

static void patchify(const ups_reference *r, bool backward) {
    const ups_op_attributes *a = r->attributes;
    int64_t count = 1, inside_count = 1;
    for (int axis = 0; axis < a->dims; axis++) {
        count *= (a->grid[axis] + a->patch[axis] - 1) / a->patch[axis];
        inside_count *= a->patch[axis];
    }
    int64_t i = 0;
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t cell = 0; cell < count; cell++) {
            for (int64_t inside = 0; inside < inside_count; inside++) {
                int64_t point = 0, cell_rest = cell, inside_rest = inside, stride = 1;
                for (int axis = a->dims - 1; axis >= 0; axis--) {
                    int64_t cells = (a->grid[axis] + a->patch[axis] - 1) / a->patch[axis];
                    int64_t at = cell_rest % cells * a->patch[axis] + inside_rest % a->patch[axis];
                    if (at >= a->grid[axis]) at = a->grid[axis] - 1;
                    point += at * stride;
                    stride *= a->grid[axis];
                    cell_rest /= cells;
                    inside_rest /= a->patch[axis];
                }
                for (int64_t c = 0; c < a->channels; c++, i++) {
                    take_normalised(r, backward, r->inputs[1], i, b, point, c);
                }
            }
        }
    }
}

static void gather_points(const ups_reference *r, bool backward) {
    int64_t i = 0;
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t q = 0; q < size_of(r, 1); q++) {
            for (int64_t c = 0; c < r->attributes->channels; c++, i++) {
                take_normalised(r, backward, r->inputs[2], i, b, (int64_t)r->inputs[1][q], c);
            }
        }
    }
}

static void neighborhood(const ups_reference *r, bool backward) {
    const ups_op_attributes *a = r->attributes;
    int64_t size[3] = {1, 1, 1}, reach[3] = {0, 0, 0}, channels = ups_shape_last(r->shapes[0]), i = 0;
    for (int axis = 0; axis < a->dims; axis++) {
        size[3 - a->dims + axis] = a->grid[axis];
        reach[3 - a->dims + axis] = 1;
    }
    int64_t cells = size[0] * size[1] * size[2];
    for (int64_t row = 0; row < ups_shape_rows(r->shapes[0]); row++) {
        int64_t cell = row % cells;
        for (int64_t u = -reach[0]; u <= reach[0]; u++) {
            for (int64_t v = -reach[1]; v <= reach[1]; v++) {
                for (int64_t w = -reach[2]; w <= reach[2]; w++) {
                    int64_t p[3] = {cell / (size[1] * size[2]) + u, cell / size[2] % size[1] + v, cell % size[2] + w};
                    bool outside = false;
                    for (int axis = 0; axis < 3; axis++) {
                        outside |= p[axis] < 0 || p[axis] >= size[axis];
                        p[axis] = (p[axis] + size[axis]) % size[axis];
                    }
                    int64_t source = row - cell + (p[0] * size[1] + p[1]) * size[2] + p[2];
                    for (int64_t c = 0; c < channels; c++, i++) {
                        if (!outside || a->periodic)
                            take(r, backward, i, source * channels + c);
                        else if (!backward)
                            r->output[i] = 0.0;
                    }
                }
            }
        }
    }
}

/* A sum over all pairs of cells that some tap connects. */
static void depthwise(const ups_reference *r, bool backward) {
    const ups_op_attributes *a = r->attributes;
    int64_t cells = r->shapes[0].size[1], channels = r->shapes[0].size[2], taps = ups_shape_rows(r->shapes[1]);
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape) && !backward; i++) r->output[i] = 0.0;
    for (int64_t i = 0; i < ups_shape_rows(r->shapes[0]) * taps; i++) {
        int64_t row = i / taps, tap = i % taps, place = row % cells, rest = tap, source = 0, step = 1;
        bool outside = false;
        for (int axis = a->dims - 1; axis >= 0; axis--) {
            int64_t n = a->grid[axis], at = place % n + rest % a->patch[axis] - a->patch[axis] / 2;
            outside |= at < 0 || at >= n;
            source += (at + 8 * n) % n * step;
            step *= n;
            place /= n;
            rest /= a->patch[axis];
        }
        if (outside && !a->periodic) continue;
        for (int64_t c = 0; c < channels; c++) {
            int64_t to = row * channels + c, from = (row - row % cells + source) * channels + c, w = tap * channels + c;
            if (!backward) {
                r->output[to] += r->inputs[0][from] * r->inputs[1][w];
                continue;
            }
            add_to(r->input_gradients[0], from, r->output_gradient[to] * r->inputs[1][w]);
            add_to(r->input_gradients[1], w, r->output_gradient[to] * r->inputs[0][from]);
        }
    }
}

/* A cell of one grid for each choice of one of two cells along every axis: their product, to `fine` or from it. */
static void resample(const ups_reference *r, bool backward, bool refine) {
    const ups_op_attributes *a = r->attributes;
    int64_t from = r->shapes[0].size[1], to = r->output_shape.size[1], width = r->shapes[0].size[2];
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape) && !backward; i++) r->output[i] = 0.0;
    for (int64_t i = 0; i < r->shapes[0].size[0] * to * 8; i++) {
        int64_t cell = i / 8 % to, rest = cell, choice = i % 8, source = 0, step = 1;
        double weight = 1.0;
        for (int axis = a->dims - 1; axis >= 0; axis--, choice /= 2) {
            int64_t fine = a->grid[axis], coarse = (fine + 1) / 2, n = refine ? fine : coarse, at;
            if (refine) {
                double place = ((double)(rest % n) + 0.5) / 2.0 - 0.5, below = floor(place);
                at = (int64_t)below + choice % 2;
                weight *= choice % 2 ? place - below : 1.0 - (place - below);
                at = a->periodic ? (at + coarse) % coarse : at < 0 ? 0 : at >= coarse ? coarse - 1 : at;
            } else {
                at = 2 * (rest % n) + choice % 2;
                at = at < fine ? at : fine - 1;
                weight *= 0.5;
            }
            rest /= n;
            source += at * step;
            step *= refine ? coarse : fine;
        }
        if (choice > 0) continue; /* of an axis that there is not */
        for (int64_t d = 0; d < width; d++) {
            int64_t x = (i / 8 / to * from + source) * width + d, y = i / 8 * width + d;
            if (backward)
                add_to(r->input_gradients[0], x, weight * r->output_gradient[y]);
            else
                r->output[y] += weight * r->inputs[0][x];
        }
    }
}

static void coarsen(const ups_reference *r, bool backward) {
    resample(r, backward, false);
}
static void refine(const ups_reference *r, bool backward) {
    resample(r, backward, true);
}

static void pool_tokens(const ups_reference *r, bool backward) {
    int64_t from = r->shapes[0].size[1], to = r->output_shape.size[1], width = r->shapes[0].size[2];
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t t = 0; t < to; t++) {
            int64_t first = t * from / to, end = ((t + 1) * from + to - 1) / to;
            for (int64_t d = 0; d < width; d++) {
                int64_t at = (b * to + t) * width + d;
                if (!backward) r->output[at] = 0.0;
                for (int64_t n = first; n < end; n++) {
                    int64_t x = (b * from + n) * width + d;
                    if (backward)
                        add_to(r->input_gradients[0], x, r->output_gradient[at] / (double)(end - first));
                    else
                        r->output[at] += r->inputs[0][x] / (double)(end - first);
                }
            }
        }
    }
}

/* Keys' kernel with a = -1/2. */
static double cubic(double distance) {
    double t = fabs(distance);
    if (t < 1.0) return 1.0 + t * t * (-2.5 + 1.5 * t);
    return t < 2.0 ? 2.0 - t * (4.0 - t * (2.5 - 0.5 * t)) : 0.0;
}

/* Every point within two of the query, wherever beyond the border, with its weight. */
static void read_patches(const ups_reference *r, bool backward) {
    const ups_op_attributes *a = r->attributes;
    int64_t queries = r->output_shape.size[1], channels = a->channels, size = size_of(r, 0) / r->output_shape.size[0];
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++) {
        int64_t c = i % channels, q = i / channels % queries, b = i / channels / queries;
        if (!backward) r->output[i] = 0.0;
        for (int64_t tap = 0; tap < 125; tap++) {
            int64_t rest = tap, cell = 0, inside = 0, patch_points = 1;
            double weight = 1.0;
            for (int axis = 0; axis < a->dims; axis++, rest /= 5) {
                double place = r->inputs[1][q * a->dims + axis] * (double)a->grid[axis] - 0.5;
                int64_t at = (int64_t)floor(place) + rest % 5 - 2, n = a->grid[axis];
                weight *= cubic(place - (double)at);
                at = a->periodic ? (at % n + n) % n : at < 0 ? 0 : at >= n ? n - 1 : at;
                cell = cell * ((n + a->patch[axis] - 1) / a->patch[axis]) + at / a->patch[axis];
                inside = inside * a->patch[axis] + at % a->patch[axis];
                patch_points *= a->patch[axis];
            }
            if (rest > 0) continue; /* of an axis that there is not */
            int64_t from = b * size + (cell * patch_points + inside) * channels + c;
            if (backward)
                add_to(r->input_gradients[0], from, weight * r->output_gradient[i]);
            else
                r->output[i] += weight * r->inputs[0][from];
        }
    }
}

static void weigh(const ups_reference *r, bool backward) {
    const int64_t rows = r->attributes->length, queries = r->output_shape.size[1], channels = r->output_shape.size[2];
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++) {
        int64_t c = i % channels, q = i / channels % queries, b = i / channels / queries;
        if (!backward) r->output[i] = 0.0;
        for (int64_t o = 0; o < rows; o++) {
            int64_t w = (q * rows + o) * channels + c, x = b * queries * rows * channels + w;
            if (!backward) r->output[i] += r->inputs[0][x] * r->inputs[1][w];
            if (!backward) continue;
            add_to(r->input_gradients[0], x, r->output_gradient[i] * r->inputs[1][w]);
            add_to(r->input_gradients[1], w, r->output_gradient[i] * r->inputs[0][x]);
        }
    }
}

static void fourier(const ups_reference *r, bool backward) {
    int64_t dims = ups_shape_last(r->shapes[0]), i = 0;
    for (int64_t q = 0; q < ups_shape_rows(r->shapes[0]) && !backward; q++) {
        const double *c = r->inputs[0] + q * dims;
        for (int64_t d = 0; d < dims; d++) r->output[i++] = c[d];
        for (int f = 0; f < r->attributes->frequency_count; f++) {
            double frequency = (double)r->attributes->frequencies[f];
            for (int64_t d = 0; d < dims; d++) r->output[i++] = sin(2.0 * M_PI * frequency * c[d]);
            for (int64_t d = 0; d < dims; d++) r->output[i++] = cos(2.0 * M_PI * frequency * c[d]);
        }
    }
}

/* One element of T: how much of `token` is in `row`. */
static double basis(const ups_reference *r, int64_t row, int64_t token) {
    double product = 1.0;
    for (int axis = r->attributes->dims - 1; axis >= 0; axis--) {
        const int64_t *size = r->shapes[2 + axis].size;
        product *= r->inputs[2 + axis][row % size[0] * size[1] + token % size[1]];
        row /= size[0];
        token /= size[1];
    }
    return product;
}

/* Which row is part `part` of mode `mode`, and where that mode stands in the weight. */
static int64_t row_of_mode(const ups_reference *r, int64_t mode, int part, int64_t *in_weight) {
    int64_t row = 0, step = 1, weight_step = 1;
    *in_weight = 0;
    for (int axis = r->attributes->dims - 1; axis >= 0; axis--, part /= 2) {
        int64_t modes = r->shapes[2 + axis].size[0] / 2, k = mode % modes;
        row += (2 * k + part % 2) * step;
        *in_weight += k * weight_step;
        mode /= modes;
        step *= 2 * modes;
        weight_step *= r->attributes->modes[axis];
    }
    return row;
}

/* e_a e_b = sign · e_(a xor b), where every axis has an imaginary unit of its own. */
static double sign_of_product(int a, int b) {
    double sign = 1.0;
    for (int both = a & b; both > 0; both /= 2) sign = both % 2 ? -sign : sign;
    return sign;
}

static void spectral(const ups_reference *r, bool backward) {
    int64_t batch = r->shapes[0].size[0], tokens = r->shapes[0].size[1], width = r->shapes[0].size[2], rows = 1;
    int parts = 1 << r->attributes->dims;
    for (int axis = 0; axis < r->attributes->dims; axis++) rows *= r->shapes[2 + axis].size[0];
    const double *weight = r->inputs[1];
    double *x = calloc((size_t)(4 * batch * rows * width), sizeof *x), *y = x + batch * rows * width,
           *dx = y + batch * rows * width, *dy = dx + batch * rows * width;
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t i = 0; i < rows * tokens; i++) {
            for (int64_t d = 0; d < width; d++) {
                int64_t from = (b * tokens + i % tokens) * width + d, to = (b * rows + i / tokens) * width + d;
                double much = basis(r, i / tokens, i % tokens);
                x[to] += much * r->inputs[0][from];
                if (backward) dy[to] += much * r->output_gradient[from];
            }
        }
        for (int64_t i = 0; i < rows / parts * parts * parts; i++) {
            int p = (int)(i % parts), q = (int)(i / parts % parts);
            int64_t in_weight, ignored, mode = i / parts / parts;
            int64_t to = (b * rows + row_of_mode(r, mode, p, &in_weight)) * width;
            int64_t from = (b * rows + row_of_mode(r, mode, p ^ q, &ignored)) * width;
            double sign = sign_of_product(p ^ q, q);
            for (int64_t k = 0; k < width * width; k++) {
                int64_t at = ((in_weight * parts + q) * width + k / width) * width + k % width;
                y[to + k % width] += sign * x[from + k / width] * weight[at];
                if (!backward) continue;
                dx[from + k / width] += sign * dy[to + k % width] * weight[at];
                add_to(r->input_gradients[1], at, sign * x[from + k / width] * dy[to + k % width]);
            }
        }
        for (int64_t i = 0; i < tokens * width; i++) {
            int64_t at = b * tokens * width + i;
            double sum = 0.0;
            for (int64_t row = 0; row < rows; row++)
                sum += basis(r, row, i / width) * (backward ? dx : y)[(b * rows + row) * width + i % width];
            if (backward)
                add_to(r->input_gradients[0], at, sum);
            else
                r->output[at] = sum;
        }
    }
    free(x);
}

static void loss(const ups_reference *r, bool backward, bool relative) {
    int64_t batch = r->shapes[0].size[0], size = size_of(r, 0) / batch;
    for (int64_t b = 0; b < batch; b++) {
        const double *p = r->inputs[0] + b * size, *t = r->inputs[1] + b * size;
        double squares = 0.0, target = 0.0;
        for (int64_t i = 0; i < size; i++) {
            squares += (p[i] - t[i]) * (p[i] - t[i]);
            target += t[i] * t[i];
        }
        double scale_of_sample = sqrt(target) + (double)r->attributes->epsilon;
        if (!backward) {
            r->output[b] = relative ? sqrt(squares) / scale_of_sample : squares / (double)size;
            continue;
        }
        double dy = r->output_gradient[b];
        double factor =
            relative ? (squares > 0.0 ? dy / (sqrt(squares) * scale_of_sample) : 0.0) : 2.0 * dy / (double)size;
        for (int64_t i = 0; i < size; i++) {
            add_to(r->input_gradients[0], b * size + i, factor * (p[i] - t[i]));
            if (!relative) add_to(r->input_gradients[1], b * size + i, -factor * (p[i] - t[i]));
        }
    }
}

static void loss_mse(const ups_reference *r, bool backward) {
    loss(r, backward, false);
}
static void loss_relative(const ups_reference *r, bool backward) {
    loss(r, backward, true);
}

static void loss_grouped(const ups_reference *r, bool backward) {
    enum { MOST = 16 };
    int64_t batch = r->shapes[0].size[0], size = size_of(r, 0) / batch, groups = r->shapes[3].size[0];
    const double *group = r->inputs[2], *table = r->inputs[3];
    for (int64_t b = 0; b < batch; b++) {
        const double *p = r->inputs[0] + b * size, *t = r->inputs[1] + b * size;
        double squares[MOST] = {0.0}, target[MOST] = {0.0};
        for (int64_t i = 0; i < size; i++) {
            int g = (int)group[i];
            squares[g] += pow(p[i] - t[i], 2);
            target[g] += pow(t[i] + table[2 * g + 1], 2);
        }
        for (int64_t g = 0; g < groups; g++) {
            double scale = fmax(sqrt(target[g]), (double)r->attributes->factor);
            if (!backward) {
                r->output[b] = (g == 0 ? 0.0 : r->output[b]) + table[2 * g] * sqrt(squares[g]) / scale;
                continue;
            }
            for (int64_t i = 0; i < size; i++) {
                if ((int)group[i] != g || squares[g] == 0.0) continue;
                double slope = table[2 * g] * (p[i] - t[i]) / (sqrt(squares[g]) * scale);
                add_to(r->input_gradients[0], b * size + i, r->output_gradient[b] * slope);
            }
        }
    }
}

static void loss_negative(const ups_reference *r, bool backward) {
    int64_t batch = r->shapes[0].size[0], size = size_of(r, 0) / batch;
    for (int64_t b = 0; b < batch; b++) {
        double sum = 0.0;
        for (int64_t i = b * size; i < (b + 1) * size; i++) {
            double below = fmin(r->inputs[0][i], 0.0);
            sum += below * below / (double)size;
            if (backward) add_to(r->input_gradients[0], i, r->output_gradient[b] * 2.0 * below / (double)size);
        }
        if (!backward) r->output[b] = sum;
    }
}

static void loss_covariance(const ups_reference *r, bool backward) {
    int64_t width = ups_shape_last(r->shapes[0]), rows = ups_shape_rows(r->shapes[0]), batch = r->shapes[0].size[0];
    const double *x = r->inputs[0];
    const bool diagonal = r->attributes->diagonal;
    double *means = calloc((size_t)width, sizeof *means), loss = 0.0, dy = 0.0;
    for (int64_t i = 0; i < rows * width; i++) means[i % width] += x[i] / (double)rows;
    for (int64_t b = 0; backward && b < batch; b++) dy += r->output_gradient[b];
    for (int64_t d = 0; d < width; d++) {
        for (int64_t e = 0; e < width; e++) {
            if ((d == e) != diagonal) continue;
            double entry = diagonal ? -1.0 : 0.0, entries = (double)(diagonal ? width : width * (width - 1));
            for (int64_t n = 0; n < rows; n++)
                entry += (x[n * width + d] - means[d]) * (x[n * width + e] - means[e]) / (double)rows;
            loss += entry * entry / entries;
            for (int64_t n = 0; backward && n < rows; n++) {
                double slope = 2.0 * dy * entry / entries / (double)rows;
                add_to(r->input_gradients[0], n * width + d, slope * (x[n * width + e] - means[e]));
                add_to(r->input_gradients[0], n * width + e, slope * (x[n * width + d] - means[d]));
            }
        }
    }
    for (int64_t b = 0; !backward && b < batch; b++) r->output[b] = loss;
    free(means);
}

static void noise(const ups_reference *r, bool backward) {
    int64_t width = ups_shape_last(r->shapes[0]);
    const double *gain = r->inputs[1];
    for (int64_t i = 0; i < size_of(r, 0); i++) {
        if (backward) {
            add_to(r->input_gradients[0], i, r->output_gradient[i]);
            continue;
        }
        double scale = (double)r->attributes->factor * (gain ? gain[i % width] : 1.0);
        r->output[i] = r->inputs[0][i];
        if (r->training) r->output[i] += scale * ups_noise_at(r->attributes, r->seed, r->step, i);
    }
}

static void shift(const ups_reference *r, bool backward) {
    const ups_shape shape = r->shapes[0];
    int64_t width = ups_shape_last(shape), cells = shape.size[shape.rank - 2], rows = ups_shape_rows(shape);
    for (int64_t row = 0; row < rows; row++) {
        int64_t by[3] = {0, 0, 0}, sample = row / (rows / shape.size[0]);
        for (int axis = 0; axis < r->attributes->dims && r->training; axis++)
            by[axis] = ups_shift_of(r->attributes, r->seed, r->step, sample, axis);
        int64_t there = row - row % cells + ups_shift_cell(r->attributes, by, row % cells);
        for (int64_t d = 0; d < width; d++) {
            if (backward)
                add_to(r->input_gradients[0], row * width + d, r->output_gradient[there * width + d]);
            else
                r->output[there * width + d] = r->inputs[0][row * width + d];
        }
    }
}

static void weighted_sum(const ups_reference *r, bool backward) {
    if (!backward) r->output[0] = 0.0;
    for (int k = 0; k < r->input_count; k++) {
        double weight = (double)r->attributes->weights[k] / (double)size_of(r, k);
        for (int64_t i = 0; i < size_of(r, k); i++) {
            if (backward)
                add_to(r->input_gradients[k], i, r->output_gradient[0] * weight);
            else
                r->output[0] += weight * r->inputs[k][i];
        }
    }
}

static op *const ops[UPS_OP_COUNT] = {
#define UPS_OP_REFERENCE(KIND, name) [UPS_OP_##KIND] = name,
    UPS_OPS(UPS_OP_REFERENCE)
#undef UPS_OP_REFERENCE
};

void ups_reference_forward(const ups_reference *r) {
    ops[r->kind](r, false);
}

void ups_reference_backward(const ups_reference *r) {
    ops[r->kind](r, true);
}
