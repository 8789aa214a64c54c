#include "tools/solvers/incompressible/noise.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

/* The half plane: k along x from 0, k along y both ways; of k = 0 along x only the upper half. */
enum { MODES_X = UPS_NOISE_MODES + 1, MODES_Y = 2 * UPS_NOISE_MODES + 1, MODES = MODES_X * MODES_Y };

static const double longest = 0.1; /* smallest scale² |k|² */

static double weight(const ups_noise *noise, int kx, int ky) {
    const double square = noise->scale * noise->scale * ((double)kx * kx + (double)ky * ky);
    if ((kx == 0 && ky <= 0) || square <= longest) return 0.0;
    return pow(square, -noise->smoothness);
}

size_t ups_noise_scratch(int64_t cells) {
    return 2 * (MODES + MODES_Y + MODES_Y * (size_t)cells);
}

/* Amplitudes of one component into `cosine` and `sine`; returns its variance. */
static double draw_modes(const ups_noise *noise, ups_random stream, int field, int component, double *cosine,
                         double *sine) {
    const uint64_t first = (uint64_t)(field * 2 + component) * 2 * MODES;
    double variance = 0.0;
    for (int kx = 0; kx < MODES_X; kx++) {
        for (int m = 0; m < MODES_Y; m++) {
            const int mode = kx * MODES_Y + m;
            const double w = weight(noise, kx, m - UPS_NOISE_MODES);
            cosine[mode] = sine[mode] = 0.0;
            if (w <= 0.0) continue;
            cosine[mode] = w * ups_random_normal(stream, first + 2 * (uint64_t)mode);
            sine[mode] = w * ups_random_normal(stream, first + 2 * (uint64_t)mode + 1);
            variance += 0.5 * (cosine[mode] * cosine[mode] + sine[mode] * sine[mode]);
        }
    }
    return variance;
}

void ups_noise_draw(const ups_noise *noise, uint64_t seed, int64_t sample, int field, int component, int64_t cells,
                    double dx, double dy, double *values, double *scratch) {
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    double *cosine = scratch, *sine = cosine + MODES, *line_cosine = sine + MODES, *line_sine = line_cosine + MODES_Y;
    double *wave_cosine = line_sine + MODES_Y, *wave_sine = wave_cosine + MODES_Y * cells;
    double variance = 0.0;
    for (int c = 0; c < noise->components; c++) {
        if (c != component) variance += draw_modes(noise, stream, field, c, cosine, sine);
    }
    variance += draw_modes(noise, stream, field, component, cosine, sine);
    const double scale = sqrt((double)noise->components / variance);
    for (int m = 0; m < MODES_Y; m++) {
        for (int64_t j = 0; j < cells; j++) {
            const double angle = 2.0 * M_PI * (m - UPS_NOISE_MODES) * ((double)j + dy) / (double)cells;
            wave_cosine[m * cells + j] = cos(angle);
            wave_sine[m * cells + j] = sin(angle);
        }
    }
    for (int64_t i = 0; i < cells; i++) {
        memset(line_cosine, 0, 2 * MODES_Y * sizeof(double));
        for (int kx = 0; kx < MODES_X; kx++) {
            const double angle = 2.0 * M_PI * kx * ((double)i + dx) / (double)cells;
            const double c = scale * cos(angle), s = scale * sin(angle);
            const double *a = cosine + kx * MODES_Y, *b = sine + kx * MODES_Y;
            for (int m = 0; m < MODES_Y; m++) {
                /* a cos(α + β) + b sin(α + β), α along x, β along y */
                line_cosine[m] += a[m] * c + b[m] * s;
                line_sine[m] += b[m] * c - a[m] * s;
            }
        }
        double *row = values + i * cells;
        memset(row, 0, sizeof(double) * (size_t)cells);
        for (int m = 0; m < MODES_Y; m++) {
            const double a = line_cosine[m], b = line_sine[m];
            const double *c = wave_cosine + m * cells, *s = wave_sine + m * cells;
            for (int64_t j = 0; j < cells; j++) row[j] += a * c[j] + b * s[j];
        }
    }
}
