/* Two small matrix products evaluate the series: cosines × coefficients × cosines. With 64 modes that is cheaper than
 * drawing the coefficients. */
#include "tools/solvers/initial/gaussian_field.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODES = UPS_FIELD_MODES };

struct ups_gaussian_field {
    int64_t resolution;
    double deviation[MODES][MODES]; /* standard deviation of each coefficient */
    double basis[];                 /* (MODES, resolution): ψ_k at the cell centres */
};

ups_status ups_gaussian_field_create(int64_t resolution, double tau, double alpha, ups_gaussian_field **field,
                                     ups_error *error) {
    ups_gaussian_field *made = malloc(sizeof *made + sizeof(double) * (size_t)(MODES * resolution));
    if (!made)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a random field of %lld cells", (long long)resolution);
    made->resolution = resolution;
    for (int k = 0; k < MODES; k++) {
        for (int l = 0; l < MODES; l++) {
            made->deviation[k][l] = pow(M_PI * M_PI * (k * k + l * l) + tau * tau, -0.5 * alpha);
        }
        for (int64_t i = 0; i < resolution; i++) {
            const double x = ((double)i + 0.5) / (double)resolution;
            made->basis[k * resolution + i] = k == 0 ? 1.0 : M_SQRT2 * cos(M_PI * k * x);
        }
    }
    made->deviation[0][0] = 0.0;
    *field = made;
    return UPS_OK;
}

void ups_gaussian_field_destroy(ups_gaussian_field *field) {
    free(field);
}

size_t ups_gaussian_field_scratch(const ups_gaussian_field *field) {
    return (size_t)(MODES * MODES + field->resolution * MODES);
}

void ups_gaussian_field_draw(const ups_gaussian_field *field, uint64_t seed, int64_t sample, double *restrict values,
                             double *restrict scratch) {
    const int64_t n = field->resolution;
    const double *basis = field->basis;
    double *coefficients = scratch, *half = scratch + MODES * MODES; /* half: (resolution, MODES) */
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    for (int k = 0; k < MODES; k++) {
        for (int l = 0; l < MODES; l++) {
            const uint64_t index = (uint64_t)(k * MODES + l);
            coefficients[index] = field->deviation[k][l] * ups_random_normal(stream, index);
        }
    }
    memset(half, 0, sizeof(double) * (size_t)(n * MODES));
    for (int64_t i = 0; i < n; i++) {
        double *row = half + i * MODES;
        for (int k = 0; k < MODES; k++) {
            const double weight = basis[k * n + i];
            for (int l = 0; l < MODES; l++) row[l] += weight * coefficients[k * MODES + l];
        }
    }
    memset(values, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++) {
        double *row = values + i * n;
        for (int l = 0; l < MODES; l++) {
            const double weight = half[i * MODES + l];
            for (int64_t j = 0; j < n; j++) row[j] += weight * basis[l * n + j];
        }
    }
}
