#include "train/data/patch_basis.h"

#include "base/half.h"
#include "train/data/trajectories.h"
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 128, MOST_FRAMES = 512, MOST_JUDGED = 128, LEAST_FRAMES = 4 };
#define MOST_PRODUCTS 4e9               /* of numbers of a patch, over all patches: some seconds */
#define MOST_JUDGED_PRODUCTS 1e9        /* as many, once for each dim that is tried */
#define MOST_VALUES 6.4e7               /* that are held in memory: 256 MB */
#define GOLDEN_RATIO 0.6180339887498949 /* whose multiples, modulo 1, are spread evenly however many there are */

#define HARDLY_WORSE 1.1 /* than rounding alone */

/* Patches of some frames, normalised. */
typedef struct collection {
    const ups_task *task;
    ups_split split;
    int64_t at_most;            /* frames */
    double products;            /* of numbers of a patch, at most, over all patches */
    int64_t numbers, patches;   /* of a patch; of a frame */
    int64_t frames, most, each; /* collected; room for; of a trajectory */
    float *patch;               /* (frames, patches, numbers) */
    double *square; /* (frames): sum over a frame of squared values in units of the deviations, mean and all */
} collection;

static void release(collection *c) {
    free(c->patch);
    free(c->square);
}

/* Eigenvectors of the second moment as rows, the largest first, and its eigenvalues. */
typedef struct components {
    int64_t numbers;
    double *vectors, *values; /* (numbers, numbers), (numbers) */
} components;

/* Axes in front of those that there are have one point. */
typedef struct cells {
    int64_t grid[3], patch[3], count[3];
} cells;

static cells cells_of(const ups_task *task) {
    cells c;
    for (int axis = 0; axis < 3; axis++) {
        int given = axis - (3 - task->geometry.dims);
        c.grid[axis] = given < 0 ? 1 : task->geometry.grid[given];
        c.patch[axis] = given < 0 ? 1 : task->patch[given];
        c.count[axis] = (c.grid[axis] + c.patch[axis] - 1) / c.patch[axis];
    }
    return c;
}

static int64_t within(int64_t index, int64_t points) {
    return index < points ? index : points - 1;
}

/* One frame, as patchify cuts it. */
static void add_frame(collection *c, const float *frame) {
    const ups_sample *geometry = &c->task->geometry;
    const cells of = cells_of(c->task);
    int64_t channels = geometry->channels, points = ups_sample_frame_elements(geometry) / channels;
    bool last = geometry->order == UPS_CHANNELS_LAST;
    float *to = c->patch + c->frames * c->patches * c->numbers;
    double *square = c->square + c->frames++ * channels;
    memset(square, 0, (size_t)channels * sizeof *square);
    for (int64_t cell = 0; cell < c->patches; cell++) {
        int64_t corner[3] = {cell / of.count[2] / of.count[1] * of.patch[0],
                             cell / of.count[2] % of.count[1] * of.patch[1], cell % of.count[2] * of.patch[2]};
        for (int64_t inside = 0; inside < of.patch[0] * of.patch[1] * of.patch[2]; inside++) {
            int64_t z = within(corner[0] + inside / of.patch[2] / of.patch[1], of.grid[0]);
            int64_t y = within(corner[1] + inside / of.patch[2] % of.patch[1], of.grid[1]);
            int64_t x = within(corner[2] + inside % of.patch[2], of.grid[2]);
            int64_t point = (z * of.grid[1] + y) * of.grid[2] + x;
            for (int64_t k = 0; k < channels; k++) {
                const float *pair = c->task->statistics + 2 * k;
                float value = frame[last ? point * channels + k : k * points + point];
                *to++ = (value - pair[0]) * pair[1];
                square[k] += (double)(value * pair[1]) * (double)(value * pair[1]);
            }
        }
    }
}

/* Each trajectory gives frames from other times, so that over all of them every frame counts alike: first frames are
 * often the roughest, and a fixed choice of times would pass them over. */
static ups_status visit(void *context, int64_t position, const ups_sample *sample, const float *frames,
                        ups_error *error) {
    collection *c = context;
    int64_t elements = ups_sample_frame_elements(&c->task->geometry);
    double shift = fmod((double)position * GOLDEN_RATIO, 1.0);
    for (int64_t i = 0; i < c->each && c->frames < c->most; i++) {
        int64_t frame = (int64_t)(((double)i + shift) * (double)sample->times / (double)c->each);
        add_frame(c, frames + within(frame, sample->times) * elements);
    }
    return UPS_OK;
}

static int64_t bounded(double value, int64_t least, int64_t most) {
    return value < (double)least ? least : value > (double)most ? most : (int64_t)value;
}

static ups_status collect(const ups_run_config *config, collection *c, ups_error *error) {
    const ups_task *task = c->task;
    const cells of = cells_of(task);
    c->numbers = ups_task_patch_numbers(task);
    c->patches = of.count[0] * of.count[1] * of.count[2];
    double values = (double)(c->patches * c->numbers);
    double affordable = fmin(c->products / (values * (double)c->numbers), MOST_VALUES / values);
    c->most = bounded(affordable, LEAST_FRAMES, c->at_most);
    int64_t have = task->splits.count[c->split], wanted = have < MOST_SAMPLES ? have : MOST_SAMPLES;
    if (wanted > c->most) wanted = c->most;
    if (wanted == 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: its training split (data.split.train) holds no samples to find its latents by",
                        task->name);
    }
    c->each = bounded((double)(c->most / wanted), 1, task->geometry.times);
    int64_t *chosen = malloc((size_t)wanted * sizeof *chosen);
    c->patch = malloc((size_t)(c->most * c->patches * c->numbers) * sizeof *c->patch);
    c->square = malloc((size_t)(c->most * task->geometry.channels) * sizeof *c->square);
    ups_status status = chosen && c->patch && c->square
                            ? UPS_OK
                            : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its patches", task->name);
    for (int64_t i = 0; i < wanted && status == UPS_OK; i++)
        chosen[i] = task->splits.samples[c->split][i * have / wanted];
    if (status == UPS_OK) status = ups_trajectories_read(config, task, chosen, wanted, visit, c, error);
    if (status == UPS_OK && c->frames == 0 && c->split == UPS_SPLIT_TRAIN) {
        status = ups_fail(error, UPS_ERR_NUMERIC, "task %s: every sample looked at holds NaN or infinite values",
                          task->name);
    }
    free(chosen);
    return status;
}

static ups_status find_components(const collection *c, components *of, ups_error *error) {
    int64_t n = c->numbers, rows = c->frames * c->patches;
    double *vectors = of->vectors, *values = of->values;
    memset(vectors, 0, (size_t)(n * n) * sizeof *vectors);
    for (int64_t row = 0; row < rows; row++) {
        const float *x = c->patch + row * n;
        for (int64_t i = 0; i < n; i++) {
            double xi = (double)x[i], *to = vectors + i * n;
            for (int64_t j = 0; j <= i; j++) to[j] += xi * (double)x[j];
        }
    }
    for (int64_t i = 0; i < n * n; i++) vectors[i] /= (double)rows;
    lapack_int failed = LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'U', (lapack_int)n, vectors, (lapack_int)n, values);
    if (failed != 0) {
        return ups_fail(error, UPS_ERR_NUMERIC, "task %s: the principal components of its patches cannot be found",
                        c->task->name);
    }
    for (int64_t i = 0; i < n / 2; i++) { /* largest first */
        double value = values[i];
        values[i] = values[n - 1 - i];
        values[n - 1 - i] = value;
        for (int64_t j = 0; j < n; j++) {
            double other = vectors[i * n + j];
            vectors[i * n + j] = vectors[(n - 1 - i) * n + j];
            vectors[(n - 1 - i) * n + j] = other;
        }
    }
    for (int64_t i = 0; i < n; i++) { /* a sign that does not depend on the library */
        double largest = 0;
        for (int64_t j = 0; j < n; j++) {
            if (fabs(vectors[i * n + j]) > fabs(largest) * (1 + 1e-9)) largest = vectors[i * n + j];
        }
        for (int64_t j = 0; j < n && largest < 0; j++) vectors[i * n + j] = -vectors[i * n + j];
    }
    return UPS_OK;
}

/* What makes latents of a mean square of 1. */
static double scale_of(const double *values, int64_t dim) {
    double mean = 0;
    for (int64_t i = 0; i < dim; i++) mean += values[i] / (double)dim;
    return mean > 0 ? 1 / sqrt(mean) : 1;
}

/* Room for a patch's numbers, and the components that are kept, once more: number j of each at across[j * dim]. */
typedef struct readback {
    float *latents, *back;
    ups_f16 *cached;
    double *sums, *across;
} readback;

/* sums[i] = Σ_j x[j] rows[j * width + i], in the order of j. */
static void add_rows(const double *rows, int64_t width, const float *x, int64_t count, double *restrict sums) {
    enum { AT_ONCE = 4 };
    int64_t j = 0;
    memset(sums, 0, (size_t)width * sizeof *sums);
    for (; j + AT_ONCE <= count; j += AT_ONCE) {
        const double *a = rows + j * width, *b = a + width, *c = b + width, *d = c + width;
        const double xa = (double)x[j], xb = (double)x[j + 1], xc = (double)x[j + 2], xd = (double)x[j + 3];
        for (int64_t i = 0; i < width; i++) sums[i] = sums[i] + xa * a[i] + xb * b[i] + xc * c[i] + xd * d[i];
    }
    for (; j < count; j++) {
        for (int64_t i = 0; i < width; i++) sums[i] += (double)x[j] * rows[j * width + i];
    }
}

/* A patch as it is read back from latents of the first `dim` components, or of all numbers as they are, rounded to FP16
 * as the cache has them. */
static void read_back(const components *of, int64_t dim, double scale, const float *x, const readback *r) {
    const int64_t n = of->numbers;
    if (dim == n) {
        ups_f32_to_f16(x, r->cached, (size_t)n);
        ups_f16_to_f32(r->cached, r->back, (size_t)n);
        return;
    }
    add_rows(r->across, dim, x, n, r->sums);
    for (int64_t i = 0; i < dim; i++) r->latents[i] = (float)(r->sums[i] * scale);
    ups_f32_to_f16(r->latents, r->cached, (size_t)dim);
    ups_f16_to_f32(r->cached, r->latents, (size_t)dim);
    add_rows(of->vectors, n, r->latents, dim, r->sums);
    for (int64_t j = 0; j < n; j++) r->back[j] = (float)(r->sums[j] / scale);
}

/* nRMSE of the worst field, mean over the frames in which it is not zero, when `dim` numbers are kept. */
static ups_status find_error(const collection *c, const components *of, int64_t dim, double *worst, ups_error *error) {
    const int64_t n = c->numbers, channels = c->task->geometry.channels;
    double *lost = calloc((size_t)channels, sizeof *lost), *sum = calloc((size_t)channels, sizeof *sum);
    int64_t *counted = calloc((size_t)channels, sizeof *counted);
    float *room = calloc((size_t)(2 * n), sizeof *room);
    ups_f16 *cached = calloc((size_t)n, sizeof *cached);
    double *wide = calloc((size_t)(n + (dim < n ? n * dim : 0)), sizeof *wide);
    ups_status status = lost && sum && counted && room && cached && wide
                            ? UPS_OK
                            : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory to measure with", c->task->name);
    const readback r = {room, room + n, cached, wide, wide ? wide + n : NULL};
    const double scale = scale_of(of->values, dim);
    for (int64_t j = 0; j < n && dim < n && status == UPS_OK; j++) {
        for (int64_t i = 0; i < dim; i++) r.across[j * dim + i] = of->vectors[i * n + j];
    }
    for (int64_t f = 0; f < c->frames && status == UPS_OK; f++) {
        memset(lost, 0, (size_t)channels * sizeof *lost);
        for (int64_t p = 0; p < c->patches; p++) {
            const float *x = c->patch + (f * c->patches + p) * n;
            read_back(of, dim, scale, x, &r);
            for (int64_t j = 0; j < n; j++) {
                const double rest = (double)x[j] - (double)r.back[j];
                lost[j % channels] += rest * rest;
            }
        }
        for (int64_t k = 0; k < channels; k++) {
            const double square = c->square[f * channels + k];
            if (square <= 0) continue;
            sum[k] += sqrt(lost[k] / square);
            counted[k]++;
        }
    }
    *worst = 0;
    for (int64_t k = 0; k < channels && status == UPS_OK; k++)
        if (counted[k] > 0) *worst = fmax(*worst, sum[k] / (double)counted[k]);
    free(lost);
    free(sum);
    free(counted);
    free(room);
    free(cached);
    free(wide);
    return status;
}

/* The least dim that reaches the target; where rounding to FP16 alone misses it, the least that is hardly worse than
 * all numbers. Errors fall as dim grows. */
static ups_status find_dim(const collection *c, const components *of, double target, int64_t *dim, ups_error *error) {
    int64_t low = 1, high = of->numbers;
    double found;
    UPS_TRY(find_error(c, of, high, &found, error));
    const double wanted = found <= target ? target : HARDLY_WORSE * found;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        UPS_TRY(find_error(c, of, middle, &found, error));
        if (found <= wanted)
            high = middle;
        else
            low = middle + 1;
    }
    *dim = low;
    return UPS_OK;
}

static bool allocate(ups_patch_basis *basis) {
    basis->encode = calloc((size_t)(basis->dim * basis->numbers), sizeof *basis->encode);
    basis->decode = calloc((size_t)(basis->dim * basis->numbers), sizeof *basis->decode);
    return basis->encode && basis->decode;
}

static void take_components(ups_patch_basis *basis, const components *of) {
    const int64_t n = basis->numbers, dim = basis->dim;
    const double scale = scale_of(of->values, dim);
    for (int64_t i = 0; i < dim; i++) {
        for (int64_t j = 0; j < n; j++) {
            basis->encode[i * n + j] = (float)(of->vectors[i * n + j] * scale);
            basis->decode[j * dim + i] = (float)(of->vectors[i * n + j] / scale);
        }
    }
}

/* A token with room for all its numbers keeps them as they are; it needs no components. */
static ups_status take(const ups_task *task, const components *of, ups_patch_basis *basis, ups_error *error) {
    if (!allocate(basis)) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    if (of && basis->dim < basis->numbers) {
        take_components(basis, of);
        return UPS_OK;
    }
    for (int64_t i = 0; i < basis->numbers; i++)
        basis->encode[i * basis->numbers + i] = basis->decode[i * basis->numbers + i] = 1;
    return UPS_OK;
}

/* Components of training frames; how many, and what they lose, by frames of the validation split, or where that is
 * empty by training frames again. */
static ups_status measure(const ups_run_config *config, const ups_task *task, int64_t wanted, ups_patch_basis *basis,
                          ups_error *error) {
    const int64_t n = basis->numbers;
    const bool held_out = task->splits.count[UPS_SPLIT_VALIDATION] > 0;
    collection shown = {.task = task, .split = UPS_SPLIT_TRAIN, .at_most = MOST_FRAMES, .products = MOST_PRODUCTS},
               judged = {.task = task,
                         .split = UPS_SPLIT_VALIDATION,
                         .at_most = MOST_JUDGED,
                         .products = MOST_JUDGED_PRODUCTS};
    components of = {.numbers = n, .vectors = malloc((size_t)(n * n + n) * sizeof(double))};
    of.values = of.vectors ? of.vectors + n * n : NULL;
    ups_status status =
        of.vectors ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its components", task->name);
    if (status == UPS_OK) status = collect(config, &shown, error);
    if (status == UPS_OK && held_out) status = collect(config, &judged, error);
    if (status == UPS_OK) status = find_components(&shown, &of, error);
    const collection *by = judged.frames > 0 ? &judged : &shown;
    basis->dim = wanted;
    if (status == UPS_OK && wanted == 0) status = find_dim(by, &of, config->autoencoder.target, &basis->dim, error);
    if (status == UPS_OK) status = find_error(by, &of, basis->dim, &basis->error, error);
    if (status == UPS_OK) status = take(task, &of, basis, error);
    free(of.vectors);
    release(&shown);
    release(&judged);
    return status;
}

ups_status ups_patch_basis_find(const ups_run_config *config, const ups_task *task, ups_patch_basis *basis,
                                ups_error *error) {
    *basis = (ups_patch_basis){.numbers = ups_task_patch_numbers(task)};
    int64_t wanted = config->model.dim > 0 ? config->model.dim : task->dim;
    if (wanted > basis->numbers) wanted = basis->numbers;
    basis->dim = wanted;
    ups_status status =
        wanted == basis->numbers ? take(task, NULL, basis, error) : measure(config, task, wanted, basis, error);
    if (status != UPS_OK) ups_patch_basis_free(basis);
    return status;
}

void ups_patch_basis_free(ups_patch_basis *basis) {
    free(basis->encode);
    free(basis->decode);
    basis->encode = basis->decode = NULL;
}
