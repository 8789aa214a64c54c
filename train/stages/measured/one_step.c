/* See the header. The normal equations are summed up in double and solved by a Cholesky factorisation of our own: all
 * ranks of a run must find the same bits, whatever a library makes of their processors. */
#include "train/stages/measured/one_step.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 64, ROWS_A_NUMBER = 8 };
static const double most_products = 1e9; /* of the sums below: a second or so */
/* Of the mean square of what the map reads: errors of a tenth, which a rollout soon has, in all numbers alike. Without,
 * numbers that hardly vary get weights that amplify errors: after 3,000 steps rollouts of advection blew up. */
static const double ridge = 1e-2;

/* Sums over rows: a token, 1, and what it changes. */
typedef struct sums {
    int64_t tokens, dim, width, stride;
    int bundle;
    double *squares; /* (width) of changes */
    double *read;    /* (dim + 1, dim + 1), its lower half, weighted */
    double *changed; /* (dim + 1, width), weighted */
    double *row;     /* (dim + 1 + width) */
    int64_t spacing; /* one of so many tokens is a row */
    int64_t pairs, rows;
} sums;

static void add_squares(sums *s, const float *frame, int64_t last) {
    const int64_t each = s->tokens * s->dim;
    for (int k = 0; k < s->bundle && (k + 1) * s->stride <= last; k++) {
        const float *then = frame + (k + 1) * s->stride * each;
        for (int64_t i = 0; i < each; i++) {
            const double step = (double)then[i] - (double)frame[i];
            s->squares[k * s->dim + i % s->dim] += step * step;
        }
    }
}

static void add_row(sums *s, const float *token, double weight) {
    const int64_t n = s->dim + 1, each = s->tokens * s->dim;
    double *row = s->row, *changed = row + n;
    for (int64_t d = 0; d < s->dim; d++) row[d] = (double)token[d];
    row[s->dim] = 1;
    for (int64_t i = 0; i < s->width; i++)
        changed[i] = (double)token[(i / s->dim + 1) * s->stride * each + i % s->dim] - row[i % s->dim];
    for (int64_t a = 0; a < n; a++) {
        const double scaled = weight * row[a];
        for (int64_t b = 0; b <= a; b++) s->read[a * n + b] += scaled * row[b];
        for (int64_t b = 0; b < s->width; b++) s->changed[a * s->width + b] += scaled * changed[b];
    }
    s->rows++;
}

/* Rows of a frame from which all steps are there. Which tokens are rows moves from frame to frame. */
static void add_rows(sums *s, const float *frame) {
    const int64_t each = s->tokens * s->dim;
    double square = 0;
    for (int64_t i = 0; i < each; i++)
        square += (double)frame[s->stride * each + i] * (double)frame[s->stride * each + i];
    if (!(square > 0)) return;
    const double weight = (double)each / square;
    for (int64_t t = (s->pairs * 7) % s->spacing; t < s->tokens; t += s->spacing)
        add_row(s, frame + t * s->dim, weight);
    s->pairs++;
}

/* The lower triangular L of A = L Lᵀ, in A's place; false where A is not positive definite. */
static bool factorise(double *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0)) return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    }
    return true;
}

/* X of L Lᵀ X = B, in B's place (n, width). */
static void solve(const double *l, int64_t n, double *b, int64_t width) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++)
            for (int64_t w = 0; w < width; w++) b[i * width + w] -= l[i * n + k] * b[k * width + w];
        for (int64_t w = 0; w < width; w++) b[i * width + w] /= l[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            for (int64_t w = 0; w < width; w++) b[i * width + w] -= l[k * n + i] * b[k * width + w];
        for (int64_t w = 0; w < width; w++) b[i * width + w] /= l[i * n + i];
    }
}

static void find_map(sums *s, ups_one_step *found) {
    const int64_t n = s->dim + 1;
    double trace = 0;
    if (s->rows < ROWS_A_NUMBER * n) return;
    for (int64_t a = 0; a < n; a++) trace += s->read[a * n + a];
    for (int64_t a = 0; a < n; a++) s->read[a * n + a] += ridge * trace / (double)n;
    if (!factorise(s->read, n)) return;
    solve(s->read, n, s->changed, s->width);
    for (int64_t i = 0; i < s->width; i++) {
        const double unit = (double)found->change[i];
        for (int64_t d = 0; d <= s->dim; d++) {
            const double value = unit > 0 ? s->changed[d * s->width + i] / unit : 0;
            if (d < s->dim)
                found->weight[i * s->dim + d] = (float)value;
            else
                found->bias[i] = (float)value;
        }
    }
    found->linear = true;
}

static ups_status allocate(sums *s, ups_one_step *found, ups_error *error) {
    const size_t n = (size_t)s->dim + 1, width = (size_t)s->width;
    s->squares = calloc(width, sizeof *s->squares);
    s->read = calloc(n * n, sizeof *s->read);
    s->changed = calloc(n * width, sizeof *s->changed);
    s->row = calloc(n + width, sizeof *s->row);
    found->change = calloc(width, sizeof *found->change);
    found->weight = calloc(width * (n - 1), sizeof *found->weight);
    found->bias = calloc(width, sizeof *found->bias);
    if (s->squares && s->read && s->changed && s->row && found->change && found->weight && found->bias) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for the moments of a token's numbers");
}

/* One of how many tokens is a row, where there are so many pairs of frames. */
static int64_t spacing_of(const sums *s, int64_t pairs) {
    const double each = (double)(s->dim + 1) * (0.5 * (double)(s->dim + 1) + (double)s->width);
    const double least = ceil((double)pairs * (double)s->tokens * each / most_products);
    return least < 1 ? 1 : least > (double)s->tokens ? s->tokens : (int64_t)least;
}

ups_status ups_one_step_find(const ups_source *latents, int64_t times, ups_latent_shape shape, int64_t stride,
                             int bundle, bool with_map, ups_one_step *found, ups_error *error) {
    const int64_t each = shape.tokens * shape.dim, wanted = latents->count < SAMPLES ? latents->count : SAMPLES;
    *found = (ups_one_step){.dim = shape.dim, .width = bundle * shape.dim};
    sums s = {.tokens = shape.tokens, .dim = shape.dim, .width = found->width, .stride = stride, .bundle = bundle};
    s.spacing = spacing_of(&s, wanted * (times > bundle * stride ? times - bundle * stride : 1));
    ups_f16 *stored = malloc((size_t)(times * each) * sizeof *stored);
    float *frames = malloc((size_t)(times * each) * sizeof *frames);
    int64_t counted = 0;
    ups_status status =
        stored && frames ? allocate(&s, found, error) : ups_fail(error, UPS_ERR_MEMORY, "no memory for a trajectory");
    for (int64_t i = 0; i < wanted && status == UPS_OK; i++) {
        status = ups_source_read(latents, i * latents->count / wanted, (ups_frames){0, times}, stored, error);
        if (status != UPS_OK || !ups_convert(stored, UPS_F16, frames, UPS_F32, (size_t)(times * each))) continue;
        for (int64_t t = 0; t < times; t++) {
            add_squares(&s, frames + t * each, times - 1 - t);
            if (with_map && t + bundle * stride < times) add_rows(&s, frames + t * each);
        }
        counted++;
    }
    for (int64_t i = 0; i < s.width && status == UPS_OK; i++) {
        const int64_t pairs = times - (i / s.dim + 1) * stride;
        const double seen = (double)counted * (double)pairs * (double)s.tokens;
        found->change[i] = seen > 0 ? (float)sqrt(s.squares[i] / seen) : 1;
    }
    if (status == UPS_OK) find_map(&s, found);
    free(stored);
    free(frames);
    free(s.squares);
    free(s.read);
    free(s.changed);
    free(s.row);
    if (status != UPS_OK) ups_one_step_free(found);
    return status;
}

void ups_one_step_free(ups_one_step *step) {
    free(step->change);
    free(step->weight);
    free(step->bias);
    *step = (ups_one_step){0};
}
