/* See the header. The normal equations are summed up in double and solved by a Cholesky factorisation of our own: all
 * ranks that run one program find the same bits, whatever a library makes of their processors. */
#include "train/stages/measured/one_step.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, ROWS_A_NUMBER = 2, MOST_TAPS = 27 };
static const double most_products = 2e9; /* of the sums below: a second or two */
/* Of the mean square of what the map reads: errors of a tenth, which a rollout soon has, in all numbers alike. Without,
 * numbers that hardly vary get weights that amplify errors: after 3,000 steps rollouts of advection blew up. */
static const double ridge = 1e-2;

/* Sums over rows: what the map reads of a token, 1, and what the token changes. */
typedef struct sums {
    const ups_one_step_of *of;
    int64_t tokens, dim, width;
    int taps;                       /* tokens that a row reads: 1, or 3^dims; 0: there are no rows */
    int64_t read;                   /* taps · dim */
    double *squares;                /* (width) of changes */
    double *moments;                /* (read + 1, read + 1), its lower half, weighted */
    double *changed;                /* (read + 1, width), weighted */
    double *row;                    /* (read + 1 + width) */
    int64_t spacing, frame_spacing; /* one of so many tokens is a row, in one of so many frames of a trajectory */
    int64_t pairs, rows;            /* of frames, and in all */
    double total;                   /* squares of changes, weighted */
} sums;

static void add_squares(sums *s, const float *frame, int64_t last) {
    const int64_t each = s->tokens * s->dim, stride = s->of->stride;
    for (int k = 0; k < s->of->bundle && (k + 1) * stride <= last; k++) {
        const float *then = frame + (k + 1) * stride * each;
        for (int64_t i = 0; i < each; i++) {
            const double step = (double)then[i] - (double)frame[i];
            s->squares[k * s->dim + i % s->dim] += step * step;
        }
    }
}

/* The token at a tap of another, or −1 beyond the border. Taps count as those of ups_neighborhood do. */
static int64_t neighbour(const ups_one_step_of *of, int64_t token, int tap) {
    int64_t at[UPS_MAX_GRID_DIMS] = {0}, found = 0;
    for (int a = of->dims - 1; a >= 0; a--) {
        at[a] = token % of->cells[a] + tap % 3 - 1;
        token /= of->cells[a];
        tap /= 3;
        const bool outside = at[a] < 0 || at[a] >= of->cells[a];
        if (outside && !of->periodic) return -1;
        at[a] = (at[a] + of->cells[a]) % of->cells[a];
    }
    for (int a = 0; a < of->dims; a++) found = found * of->cells[a] + at[a];
    return found;
}

static void add_row(sums *s, const float *frame, int64_t token, double weight) {
    const int64_t n = s->read + 1, dim = s->dim, each = s->tokens * dim;
    const float *own = frame + token * dim;
    double *row = s->row, *changed = row + n;
    for (int tap = 0; tap < s->taps; tap++) {
        const int64_t from = s->taps == 1 ? token : neighbour(s->of, token, tap);
        for (int64_t d = 0; d < dim; d++) row[tap * dim + d] = from < 0 ? 0 : (double)frame[from * dim + d];
    }
    row[s->read] = 1;
    for (int64_t i = 0; i < s->width; i++)
        changed[i] = (double)own[(i / dim + 1) * s->of->stride * each + i % dim] - (double)own[i % dim];
    for (int64_t i = 0; i < s->width; i++) s->total += weight * changed[i] * changed[i];
    for (int64_t a = 0; a < n; a++) {
        const double scaled = weight * row[a];
        for (int64_t b = 0; b <= a; b++) s->moments[a * n + b] += scaled * row[b];
        for (int64_t b = 0; b < s->width; b++) s->changed[a * s->width + b] += scaled * changed[b];
    }
    s->rows++;
}

/* Rows of a frame from which all steps are there. Which tokens are rows moves from frame to frame, by the golden ratio,
 * so that it repeats with no length of trajectories and no row of the grid. */
static void add_rows(sums *s, const float *frame) {
    const int64_t each = s->tokens * s->dim;
    const float *following = frame + s->of->stride * each;
    double square = 0;
    for (int64_t i = 0; i < each; i++) square += (double)following[i] * (double)following[i];
    const double weight = 1 / (square / (double)each + 1e-8); /* as the relative loss has it */
    const double turn = (double)s->pairs++ * 0.6180339887498949;
    const int64_t first = (int64_t)((turn - floor(turn)) * (double)s->spacing);
    for (int64_t t = first; t < s->tokens; t += s->spacing) add_row(s, frame, t, weight);
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

/* X of L Lᵀ X = B, in B's place (n, width). Returns Σ (L⁻¹ B)², what the map X explains of the squares. */
static double solve(const double *l, int64_t n, double *b, int64_t width) {
    double explained = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++)
            for (int64_t w = 0; w < width; w++) b[i * width + w] -= l[i * n + k] * b[k * width + w];
        for (int64_t w = 0; w < width; w++) b[i * width + w] /= l[i * n + i];
    }
    for (int64_t i = 0; i < n * width; i++) explained += b[i] * b[i];
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            for (int64_t w = 0; w < width; w++) b[i * width + w] -= l[k * n + i] * b[k * width + w];
        for (int64_t w = 0; w < width; w++) b[i * width + w] /= l[i * n + i];
    }
    return explained;
}

/* The map: where a token alone is read, what it reads stands in the middle of the neighbours. */
static void find_map(sums *s, ups_one_step *found) {
    const int64_t n = s->read + 1, first = (found->read - s->read) / 2;
    double trace = 0;
    if (s->rows < ROWS_A_NUMBER * n) return;
    for (int64_t a = 0; a < s->read; a++) trace += s->moments[a * n + a];
    for (int64_t a = 0; a < s->read; a++) s->moments[a * n + a] += ridge * trace / (double)s->read; /* not to the 1 */
    if (!factorise(s->moments, n)) return;
    const double explained = solve(s->moments, n, s->changed, s->width);
    found->explained = s->total > 0 ? explained / s->total : 0;
    for (int64_t i = 0; i < s->width; i++) {
        const double unit = (double)found->change[i];
        if (!(unit > 0)) continue;
        for (int64_t d = 0; d < s->read; d++)
            found->weight[i * found->read + first + d] = (float)(s->changed[d * s->width + i] / unit);
        found->bias[i] = (float)(s->changed[s->read * s->width + i] / unit);
    }
    found->linear = true;
}

/* Multiplications that a row costs which reads so many tokens. */
static double row_cost(const sums *s, int taps) {
    const double n = (double)(taps * s->dim + 1);
    return n * (0.5 * n + (double)s->width);
}

/* How many tokens a row reads, and which tokens are rows, of so many pairs of frames. */
static void plan_rows(sums *s, double pairs) {
    const double all = pairs * (double)s->tokens;
    int most = 1;
    for (int a = 0; a < s->of->dims; a++) most *= 3;
    for (int taps = most; s->of->with_map && s->taps == 0; taps = 1) {
        const double rows = fmin(all, most_products / row_cost(s, taps));
        if (rows >= ROWS_A_NUMBER * (double)(taps * s->dim + 1)) s->taps = taps;
        if (taps == 1) break;
    }
    s->read = s->taps * s->dim;
    const double least = fmax(1, ceil(all * row_cost(s, s->taps) / most_products));
    s->spacing = least < (double)s->tokens ? (int64_t)least : s->tokens;
    s->frame_spacing = (int64_t)ceil(least / (double)s->spacing);
}

static ups_status allocate(sums *s, ups_one_step *found, ups_error *error) {
    const size_t n = (size_t)s->read + 1, width = (size_t)s->width;
    s->squares = calloc(width, sizeof *s->squares);
    s->moments = calloc(n * n, sizeof *s->moments);
    s->changed = calloc(n * width, sizeof *s->changed);
    s->row = calloc(n + width, sizeof *s->row);
    found->change = calloc(width, sizeof *found->change);
    if (s->taps > 0) found->weight = calloc(width * (size_t)found->read, sizeof *found->weight);
    if (s->taps > 0) found->bias = calloc(width, sizeof *found->bias);
    const bool has_map = s->taps == 0 || (found->weight && found->bias);
    if (s->squares && s->moments && s->changed && s->row && found->change && has_map) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for the moments of a token's numbers");
}

static void add_trajectory(sums *s, const float *frames) {
    const int64_t each = s->tokens * s->dim, times = s->of->times;
    for (int64_t t = 0; t < times; t++) {
        add_squares(s, frames + t * each, times - 1 - t);
        if (s->taps > 0 && t + s->of->bundle * s->of->stride < times && t % s->frame_spacing == 0)
            add_rows(s, frames + t * each);
    }
}

ups_status ups_one_step_find(const ups_source *latents, const ups_one_step_of *of, ups_one_step *found,
                             ups_error *error) {
    const int64_t tokens = of->shape.tokens, dim = of->shape.dim, elements = of->times * tokens * dim;
    const int64_t wanted = latents->count < SAMPLES ? latents->count : SAMPLES;
    const int64_t pairs = of->times - of->bundle * of->stride;
    sums s = {.of = of, .tokens = tokens, .dim = dim, .width = of->bundle * dim};
    *found = (ups_one_step){.read = dim, .width = s.width};
    for (int a = 0; a < of->dims; a++) found->read *= 3;
    plan_rows(&s, (double)wanted * (pairs > 0 ? (double)pairs : 0));
    ups_f16 *stored = malloc((size_t)elements * sizeof *stored);
    float *frames = malloc((size_t)elements * sizeof *frames);
    int64_t counted = 0;
    ups_status status =
        stored && frames ? allocate(&s, found, error) : ups_fail(error, UPS_ERR_MEMORY, "no memory for a trajectory");
    for (int64_t i = 0; i < wanted && status == UPS_OK; i++) {
        status = ups_source_read(latents, i * latents->count / wanted, (ups_frames){0, of->times}, stored, error);
        if (status != UPS_OK || !ups_convert(stored, UPS_F16, frames, UPS_F32, (size_t)elements)) continue;
        add_trajectory(&s, frames);
        counted++;
    }
    for (int64_t i = 0; i < s.width && status == UPS_OK; i++) {
        const double seen = (double)counted * (double)(of->times - (i / dim + 1) * of->stride) * (double)tokens;
        found->change[i] = seen > 0 ? (float)sqrt(s.squares[i] / seen) : 1;
    }
    if (status == UPS_OK && s.taps > 0) find_map(&s, found);
    free(stored);
    free(frames);
    free(s.squares);
    free(s.moments);
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
