/* Linear layers, norms, residuals, activations, sums. */
#include "tests/model/reference/parts.h"

#include "base/half.h"
#include "model/random/drop_path.h"
#include <math.h>
#include <stdlib.h>

void ups_reference_linear(const ups_reference *r, bool backward) {
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

void ups_reference_linear_gelu(const ups_reference *r, bool backward) {
    int64_t count = ups_shape_elements(r->output_shape);
    double *between = malloc((size_t)count * sizeof *between), *gradient = malloc((size_t)count * sizeof *gradient);
    ups_reference product = *r;
    product.output = between;
    product.output_gradient = gradient;
    ups_reference_linear(&product, false);
    for (int64_t i = 0; i < count; i++) {
        double slope, value = gelu_of(between[i], &slope);
        if (backward)
            gradient[i] = r->output_gradient[i] * slope;
        else
            r->output[i] = value;
    }
    if (backward) ups_reference_linear(&product, true);
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

void ups_reference_layer_norm(const ups_reference *r, bool backward) {
    norm(r, backward, true);
}
void ups_reference_rms_norm(const ups_reference *r, bool backward) {
    norm(r, backward, false);
}

void ups_reference_modulate(const ups_reference *r, bool backward) {
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

void ups_reference_residual(const ups_reference *r, bool backward) {
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

void ups_reference_add(const ups_reference *r, bool backward) {
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

void ups_reference_broadcast(const ups_reference *r, bool backward) {
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

void ups_reference_bound(const ups_reference *r, bool backward) {
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
void ups_reference_round_f16(const ups_reference *r, bool backward) {
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

void ups_reference_gelu(const ups_reference *r, bool backward) {
    elementwise(r, backward, gelu_of);
}
void ups_reference_silu(const ups_reference *r, bool backward) {
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

void ups_reference_scale(const ups_reference *r, bool backward) {
    scaled(r, backward, (double)r->attributes->factor, r->inputs[1]);
}
void ups_reference_cast(const ups_reference *r, bool backward) {
    scaled(r, backward, 1.0, NULL);
}
