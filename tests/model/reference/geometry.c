/* What moves numbers between places: slices, patches, neighbours, grids, points, features of coordinates. */
#include "tests/model/reference/parts.h"

#include <math.h>

/* y[i] = x[source(i)]: what slice, select_frame and others have in common. */
static void take(const ups_reference *r, bool backward, int64_t i, int64_t source) {
    if (backward)
        add_to(r->input_gradients[0], source, r->output_gradient[i]);
    else
        r->output[i] = r->inputs[0][source];
}

void ups_reference_slice(const ups_reference *r, bool backward) {
    int64_t length = r->attributes->length;
    for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++) {
        take(r, backward, i, i / length * ups_shape_last(r->shapes[0]) + r->attributes->offset + i % length);
    }
}

void ups_reference_select_frame(const ups_reference *r, bool backward) {
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

void ups_reference_patchify(const ups_reference *r, bool backward) {
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

void ups_reference_gather_points(const ups_reference *r, bool backward) {
    int64_t i = 0;
    for (int64_t b = 0; b < r->shapes[0].size[0]; b++) {
        for (int64_t q = 0; q < size_of(r, 1); q++) {
            for (int64_t c = 0; c < r->attributes->channels; c++, i++) {
                take_normalised(r, backward, r->inputs[2], i, b, (int64_t)r->inputs[1][q], c);
            }
        }
    }
}

void ups_reference_neighborhood(const ups_reference *r, bool backward) {
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
void ups_reference_depthwise(const ups_reference *r, bool backward) {
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

void ups_reference_coarsen(const ups_reference *r, bool backward) {
    resample(r, backward, false);
}
void ups_reference_refine(const ups_reference *r, bool backward) {
    resample(r, backward, true);
}

void ups_reference_pool_tokens(const ups_reference *r, bool backward) {
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
void ups_reference_read_patches(const ups_reference *r, bool backward) {
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

void ups_reference_weigh(const ups_reference *r, bool backward) {
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

/* cos πkc and sin πkc of each coordinate; the pairs that do not divide are not turned. */
void ups_reference_angles(const ups_reference *r, bool backward) {
    const int64_t dims = ups_shape_last(r->shapes[0]), pairs = ups_shape_last(r->output_shape) / 2;
    for (int64_t q = 0; q < ups_shape_rows(r->shapes[0]) && !backward; q++) {
        for (int64_t pair = 0; pair < pairs; pair++) {
            const int64_t each = pairs / dims, axis = each > 0 ? pair / each : dims;
            const double turn = axis < dims ? M_PI * (double)(pair % each + 1) * r->inputs[0][q * dims + axis] : 0;
            r->output[q * 2 * pairs + pair] = cos(turn);
            r->output[q * 2 * pairs + pairs + pair] = sin(turn);
        }
    }
}

void ups_reference_fourier(const ups_reference *r, bool backward) {
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
