/* See the header. Directions are eigenvectors of the second moment of what the mean over tokens has changed since the
 * first frame; those of the smallest eigenvalues are constant, as far as their sum stays below the bound. */
#include "train/stages/measured/conserved.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 32 };

typedef struct moments {
    double *change; /* (dim, dim): sum over frames */
    double *first;  /* (dim): mean over tokens of a trajectory's first frame */
    double *now;    /* (dim) */
    double square;  /* sum over frames of a token's squared length */
    int64_t frames;
} moments;

static void add_trajectory(moments *m, const float *latents, int64_t times, int64_t tokens, int64_t dim) {
    for (int64_t t = 0; t < times; t++, m->frames++) {
        double *mean = t == 0 ? m->first : m->now;
        memset(mean, 0, (size_t)dim * sizeof *mean);
        for (int64_t i = 0; i < tokens * dim; i++) {
            double value = (double)latents[t * tokens * dim + i];
            mean[i % dim] += value / (double)tokens;
            m->square += value * value / (double)tokens;
        }
        for (int64_t i = 0; i < dim && t > 0; i++) {
            for (int64_t j = 0; j < dim; j++)
                m->change[i * dim + j] += (m->now[i] - m->first[i]) * (m->now[j] - m->first[j]);
        }
    }
}

/* From the moments to the projection: eigenvalues come in ascending order. */
static ups_status project(moments *m, int64_t dim, ups_conserved *found, ups_error *error) {
    double *values = m->now, bound = UPS_CONSERVED_WITHIN * UPS_CONSERVED_WITHIN * m->square, sum = 0;
    if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'U', (lapack_int)dim, m->change, (lapack_int)dim, values) != 0)
        return ups_fail(error, UPS_ERR_NUMERIC, "the means of the latents hold NaN or infinite values");
    for (int64_t k = 0; k < dim && (sum += fmax(values[k], 0)) <= bound; k++, found->directions++) {
        for (int64_t i = 0; i < dim; i++) {
            for (int64_t j = 0; j < dim; j++)
                found->kept[i * dim + j] -= (float)(m->change[i * dim + k] * m->change[j * dim + k]);
        }
    }
    return UPS_OK;
}

ups_status ups_conserved_find(const ups_source *source, int64_t times, int64_t tokens, int64_t dim,
                              ups_conserved *found, ups_error *error) {
    found->directions = 0;
    memset(found->kept, 0, (size_t)(dim * dim) * sizeof *found->kept);
    if (times < 3) return UPS_OK;
    int64_t elements = times * tokens * dim, wanted = source->count < SAMPLES ? source->count : SAMPLES;
    ups_f16 *stored = malloc((size_t)elements * sizeof *stored);
    float *latents = malloc((size_t)elements * sizeof *latents);
    double *memory = calloc((size_t)(dim * (dim + 2)), sizeof *memory);
    moments m = {.change = memory, .first = memory + dim * dim, .now = memory + dim * (dim + 1)};
    ups_status status =
        stored && latents && memory ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for a trajectory's latents");
    for (int64_t i = 0; i < wanted && status == UPS_OK; i++) {
        status = ups_source_read(source, i * source->count / wanted, (ups_frames){0, times}, stored, error);
        if (status == UPS_OK && ups_convert(stored, UPS_F16, latents, UPS_F32, (size_t)elements))
            add_trajectory(&m, latents, times, tokens, dim);
    }
    if (status == UPS_OK && m.frames > 0) status = project(&m, dim, found, error);
    free(stored);
    free(latents);
    free(memory);
    return status;
}
