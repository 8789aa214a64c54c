#include "train/evaluation/scores/spectrum.h"

#include <kiss_fftnd.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

struct ups_spectrum {
    int64_t points, shells;
    int32_t *shell_of; /* (points): of each Fourier coefficient; `shells` and more: beyond the last */
    kiss_fftnd_cfg plan;
    kiss_fft_cpx *field, *coefficients; /* (points) */
};

/* Waves that coefficient `i` of `n` stands for: the upper half are those in the other direction. */
static int64_t waves(int64_t i, int64_t n) {
    return i <= n / 2 ? i : n - i;
}

static void assign_shells(ups_spectrum *spectrum, const int64_t n[3]) {
    int32_t *shell = spectrum->shell_of;
    for (int64_t i = 0; i < n[0]; i++) {
        for (int64_t j = 0; j < n[1]; j++) {
            for (int64_t k = 0; k < n[2]; k++) {
                const int64_t x = waves(i, n[0]), y = waves(j, n[1]), z = waves(k, n[2]);
                *shell++ = (int32_t)floor(sqrt((double)(x * x + y * y + z * z)) + 0.5);
            }
        }
    }
}

ups_status ups_spectrum_create(int dims, const int64_t *grid, ups_spectrum **spectrum, ups_error *error) {
    int64_t n[3] = {1, 1, 1}, points = 1, shortest = INT64_MAX;
    int axes[3];
    if (dims < 1 || dims > 3)
        return ups_fail(error, UPS_ERR_ARGUMENT, "spectrum: a grid of %d dimensions; 1, 2 or 3 was expected", dims);
    for (int a = 0; a < dims; a++) {
        n[a] = grid[a];
        if (n[a] < 1 || n[a] > INT32_MAX || points > INT32_MAX / n[a]) {
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "spectrum: axis %d has %lld points; 1 to 2^31-1 in all were expected", a, (long long)n[a]);
        }
        points *= n[a];
        axes[a] = (int)n[a];
        if (n[a] < shortest) shortest = n[a];
    }
    ups_spectrum *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "spectrum: out of memory");
    made->points = points;
    made->shells = shortest / 2 + 1;
    made->shell_of = malloc((size_t)points * sizeof *made->shell_of);
    made->field = malloc((size_t)points * sizeof *made->field);
    made->coefficients = malloc((size_t)points * sizeof *made->coefficients);
    made->plan = kiss_fftnd_alloc(axes, dims, 0, NULL, NULL);
    if (!made->shell_of || !made->field || !made->coefficients || !made->plan) {
        ups_spectrum_destroy(made);
        return ups_fail(error, UPS_ERR_MEMORY, "spectrum: out of memory for a grid of %lld points", (long long)points);
    }
    assign_shells(made, n);
    *spectrum = made;
    return UPS_OK;
}

void ups_spectrum_destroy(ups_spectrum *spectrum) {
    if (!spectrum) return;
    free(spectrum->shell_of);
    free(spectrum->field);
    free(spectrum->coefficients);
    kiss_fft_free(spectrum->plan);
    free(spectrum);
}

int64_t ups_spectrum_shells(const ups_spectrum *spectrum) {
    return spectrum->shells;
}

void ups_spectrum_add(ups_spectrum *spectrum, const float *field, int64_t stride, double *energy) {
    const int64_t points = spectrum->points;
    const double scale = 1.0 / ((double)points * (double)points);
    double mean = 0;
    for (int64_t p = 0; p < points; p++) mean += field[p * stride];
    mean /= (double)points;
    for (int64_t p = 0; p < points; p++)
        spectrum->field[p] = (kiss_fft_cpx){.r = (float)((double)field[p * stride] - mean)};
    kiss_fftnd(spectrum->plan, spectrum->field, spectrum->coefficients);
    energy[0] += mean * mean;
    for (int64_t p = 1; p < points; p++) { /* the first is the mean again, as good as zero */
        const double re = spectrum->coefficients[p].r, im = spectrum->coefficients[p].i;
        if (spectrum->shell_of[p] < spectrum->shells) energy[spectrum->shell_of[p]] += (re * re + im * im) * scale;
    }
}
