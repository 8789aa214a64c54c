/* Mixing of modes. */
#include "tests/model/reference/parts.h"

#include <math.h>
#include <stdlib.h>

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

/* Where a token of a sample, or of one of the lines that lie side by side, stands among all of the batch. */
static int64_t token_at(const ups_reference *r, int64_t sample, int64_t tokens, int64_t token) {
    const int64_t inner = r->attributes->length > 0 ? r->attributes->length : 1;
    return (sample / inner * tokens + token) * inner + sample % inner;
}

void ups_reference_spectral(const ups_reference *r, bool backward) {
    int64_t batch = r->shapes[0].size[0], tokens = r->shapes[0].size[1], width = r->shapes[0].size[2], rows = 1;
    if (r->attributes->length > 0) { /* each line is a sample */
        batch *= tokens / r->shapes[2].size[1];
        tokens = r->shapes[2].size[1];
    }
    int parts = 1 << r->attributes->dims;
    for (int axis = 0; axis < r->attributes->dims; axis++) rows *= r->shapes[2 + axis].size[0];
    const double *weight = r->inputs[1];
    double *x = calloc((size_t)(4 * batch * rows * width), sizeof *x), *y = x + batch * rows * width,
           *dx = y + batch * rows * width, *dy = dx + batch * rows * width;
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t i = 0; i < rows * tokens; i++) {
            for (int64_t d = 0; d < width; d++) {
                int64_t from = token_at(r, b, tokens, i % tokens) * width + d, to = (b * rows + i / tokens) * width + d;
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
            int64_t at = token_at(r, b, tokens, i / width) * width + i % width;
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

/* What mode r of an axis of n points is at point i: an orthonormal matrix (n, n), by its definition. */
static double mode_at(bool periodic, int64_t n, int64_t r, int64_t i) {
    if (!periodic) return sqrt((r ? 2.0 : 1.0) / (double)n) * cos(M_PI * (double)(r * (2 * i + 1)) / (double)(2 * n));
    const double angle = 2.0 * M_PI * (double)((r + 1) / 2 * i % n) / (double)n;
    const bool whole = r == 0 || (n % 2 == 0 && r == n - 1);
    return sqrt((whole ? 1.0 : 2.0) / (double)n) * (r % 2 == 0 ? r ? sin(angle) : 1.0 : cos(angle));
}

/* Axis by axis, by sums over all its points. */
void ups_reference_field_modes(const ups_reference *r, bool backward) {
    const ups_op_attributes *a = r->attributes;
    const int64_t all = ups_shape_elements(r->output_shape);
    double *from = malloc((size_t)all * sizeof *from), *to = malloc((size_t)all * sizeof *to);
    for (int64_t i = 0; i < all; i++) from[i] = backward ? r->output_gradient[i] : r->inputs[0][i];
    for (int64_t axis = a->dims - 1, inner = 1; axis >= 0; inner *= a->grid[axis], axis--) {
        const int64_t n = a->grid[axis];
        for (int64_t i = 0; i < all; i++) {
            const int64_t at = i / inner % n, first = i - at * inner;
            to[i] = 0.0;
            for (int64_t j = 0; j < n; j++)
                to[i] += from[first + j * inner] * mode_at(a->periodic, n, backward ? j : at, backward ? at : j);
        }
        double *made = to;
        to = from, from = made;
    }
    for (int64_t i = 0; i < all; i++) {
        if (backward)
            add_to(r->input_gradients[0], i, from[i]);
        else
            r->output[i] = from[i];
    }
    free(from);
    free(to);
}
