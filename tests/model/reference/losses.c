/* Losses, and what training draws: noise, shifts. */
#include "tests/model/reference/parts.h"

#include "model/random/augment.h"
#include <math.h>
#include <stdlib.h>

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

void ups_reference_loss_mse(const ups_reference *r, bool backward) {
    loss(r, backward, false);
}
void ups_reference_loss_relative(const ups_reference *r, bool backward) {
    loss(r, backward, true);
}

void ups_reference_loss_grouped(const ups_reference *r, bool backward) {
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

void ups_reference_loss_negative(const ups_reference *r, bool backward) {
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

void ups_reference_loss_covariance(const ups_reference *r, bool backward) {
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

void ups_reference_noise(const ups_reference *r, bool backward) {
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

void ups_reference_shift(const ups_reference *r, bool backward) {
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

/* By coordinates: what each cell has comes to lie in another one. */
void ups_reference_symmetry(const ups_reference *r, bool backward) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const ups_shape shape = r->shapes[0];
    const int dims = r->attributes->dims;
    const int64_t width = ups_shape_last(shape), cells = shape.size[shape.rank - 2], rows = ups_shape_rows(shape);
    const int64_t *n = r->attributes->grid;
    for (int64_t row = 0; row < rows && !backward; row++) {
        const int64_t sample = row / (rows / shape.size[0]);
        const int64_t e = ups_symmetry_of(r->seed, r->step, sample, r->shapes[1].size[0]);
        const int order = (int)(e / (1 << dims));
        int64_t at[3] = {0, 0, 0}, to[3] = {0, 0, 0}, rest = row % cells, there = 0;
        for (int axis = dims - 1; axis >= 0; axis--) at[axis] = rest % n[axis], rest /= n[axis];
        for (int axis = 0; axis < dims; axis++) {
            const int was = dims == 3 ? orders[order][axis] : order ? 1 - axis : axis;
            to[axis] = e >> axis & 1 ? n[axis] - 1 - at[was] : at[was];
        }
        for (int axis = 0; axis < dims; axis++) there = there * n[axis] + to[axis];
        there = r->training ? row - row % cells + there : row;
        for (int64_t d = 0; d < width; d++) {
            const double *entry = r->inputs[2] + 2 * (e * width + d);
            const int64_t from = row * width + (int64_t)r->inputs[1][e * width + d];
            r->output[there * width + d] =
                r->training ? entry[0] * r->inputs[0][from] + entry[1] : r->inputs[0][row * width + d];
        }
    }
}

void ups_reference_weighted_sum(const ups_reference *r, bool backward) {
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
