#include "tools/solvers/mesh/sparse.h"
#include "base/system/cancel.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- the pattern ---- */

/* Sorts a row's columns, of which neighbours stand twice, and drops what is repeated. */
static int64_t sort_row(int32_t *columns, int64_t count) {
    int64_t kept = 0;
    for (int64_t k = 0; k < count; k++) {
        const int32_t one = columns[k];
        int64_t at = kept;
        while (at > 0 && columns[at - 1] > one) at--;
        if (at > 0 && columns[at - 1] == one) continue;
        memmove(columns + at + 1, columns + at, sizeof *columns * (size_t)(kept - at));
        columns[at] = one;
        kept++;
    }
    return kept;
}

static int64_t find_entry(const ups_sparse *pattern, int64_t row, int32_t column) {
    int64_t at = pattern->begin[row];
    while (pattern->column[at] != column) at++;
    return at;
}

/* Where rows of all columns, repeated ones too, would begin: each cell gives each of its points three. */
static void count_columns(const ups_mesh *mesh, int64_t *begin) {
    memset(begin, 0, sizeof *begin * (size_t)(mesh->point_count + 1));
    for (int64_t i = 0; i < 3 * mesh->cell_count; i++) begin[mesh->cells[i] + 1] += 3;
    for (int64_t row = 0; row < mesh->point_count; row++) begin[row + 1] += begin[row];
}

static void fill_pattern(const ups_mesh *mesh, ups_sparse *pattern, int64_t *filled) {
    count_columns(mesh, pattern->begin);
    memcpy(filled, pattern->begin, sizeof *filled * (size_t)pattern->rows);
    for (int64_t i = 0; i < 3 * mesh->cell_count; i++) {
        memcpy(pattern->column + filled[mesh->cells[i]], mesh->cells + i / 3 * 3, 3 * sizeof(int32_t));
        filled[mesh->cells[i]] += 3;
    }
    int64_t next = 0;
    for (int64_t row = 0; row < pattern->rows; row++) {
        int32_t *columns = pattern->column + pattern->begin[row];
        const int64_t kept = sort_row(columns, filled[row] - pattern->begin[row]);
        memmove(pattern->column + next, columns, sizeof *columns * (size_t)kept);
        pattern->begin[row] = next;
        next += kept;
    }
    pattern->begin[pattern->rows] = pattern->entries = next;
    for (int64_t row = 0; row < pattern->rows; row++) pattern->diagonal[row] = find_entry(pattern, row, (int32_t)row);
    for (int64_t i = 0; i < 9 * mesh->cell_count; i++) {
        const int32_t *cell = mesh->cells + i / 9 * 3;
        pattern->place[i] = find_entry(pattern, cell[i % 9 / 3], cell[i % 3]);
    }
}

ups_status ups_sparse_create(const ups_mesh *mesh, ups_sparse **pattern, ups_error *error) {
    const size_t rows = (size_t)mesh->point_count, places = 9 * (size_t)mesh->cell_count;
    ups_sparse *made = calloc(1, sizeof *made);
    int64_t *filled = malloc(sizeof *filled * rows);
    if (made) {
        *made = (ups_sparse){
            .rows = mesh->point_count,
            .begin = malloc(sizeof *made->begin * (rows + 1)),
            .column = malloc(sizeof *made->column * places),
            .diagonal = malloc(sizeof *made->diagonal * rows),
            .place = malloc(sizeof *made->place * places),
        };
    }
    if (!filled || !made || !made->begin || !made->column || !made->diagonal || !made->place) {
        ups_sparse_destroy(made);
        free(filled);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the equations of %zu points", rows);
    }
    fill_pattern(mesh, made, filled);
    free(filled);
    *pattern = made;
    return UPS_OK;
}

void ups_sparse_destroy(ups_sparse *pattern) {
    if (!pattern) return;
    free(pattern->place);
    free(pattern->diagonal);
    free(pattern->column);
    free(pattern->begin);
    free(pattern);
}

/* ---- products and factors ---- */

void ups_sparse_times(const ups_sparse *pattern, const double *matrix, const double *x, double *out) {
    for (int64_t row = 0; row < pattern->rows; row++) {
        double sum = 0.0;
        for (int64_t k = pattern->begin[row]; k < pattern->begin[row + 1]; k++)
            sum += matrix[k] * x[pattern->column[k]];
        out[row] = sum;
    }
}

void ups_sparse_fix(const ups_sparse *pattern, double *matrix, int64_t row) {
    for (int64_t k = pattern->begin[row]; k < pattern->begin[row + 1]; k++) matrix[k] = 0.0;
    matrix[pattern->diagonal[row]] = 1.0;
}

/* Row `row` less `times` the part of row `of` right of its diagonal, where both have entries. */
static void eliminate(const ups_sparse *pattern, double *factors, int64_t row, int64_t of, double times) {
    int64_t at = pattern->begin[row];
    const int64_t end = pattern->begin[row + 1];
    for (int64_t k = pattern->diagonal[of] + 1; k < pattern->begin[of + 1]; k++) {
        while (at < end && pattern->column[at] < pattern->column[k]) at++;
        if (at < end && pattern->column[at] == pattern->column[k]) factors[at] -= times * factors[k];
    }
}

void ups_sparse_factorize(const ups_sparse *pattern, const double *matrix, double *factors) {
    memcpy(factors, matrix, sizeof *factors * (size_t)pattern->entries);
    for (int64_t row = 0; row < pattern->rows; row++) {
        for (int64_t k = pattern->begin[row]; k < pattern->diagonal[row]; k++) {
            const int64_t of = pattern->column[k];
            factors[k] /= factors[pattern->diagonal[of]];
            eliminate(pattern, factors, row, of, factors[k]);
        }
    }
}

/* out = (L U)⁻¹ r. */
static void precondition(const ups_sparse *pattern, const double *factors, const double *r, double *out) {
    for (int64_t row = 0; row < pattern->rows; row++) {
        double sum = r[row];
        for (int64_t k = pattern->begin[row]; k < pattern->diagonal[row]; k++)
            sum -= factors[k] * out[pattern->column[k]];
        out[row] = sum;
    }
    for (int64_t row = pattern->rows - 1; row >= 0; row--) {
        double sum = out[row];
        for (int64_t k = pattern->diagonal[row] + 1; k < pattern->begin[row + 1]; k++)
            sum -= factors[k] * out[pattern->column[k]];
        out[row] = sum / factors[pattern->diagonal[row]];
    }
}

/* ---- solving ---- */

static const int most_iterations = 5000;

enum { RESIDUAL, SHADOW, DIRECTION, IMAGE, HALF, HALF_IMAGE, SMOOTH, VECTORS };

size_t ups_sparse_scratch(const ups_sparse *pattern) {
    return VECTORS * (size_t)pattern->rows;
}

/* Four partial sums: one would wait for itself. */
static double dot(int64_t count, const double *a, const double *b) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int lane = 0; lane < 4; lane++) sums[lane] += a[i + lane] * b[i + lane];
    }
    for (; i < count; i++) sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* r = b - A x. */
static void residual_of(const ups_sparse *pattern, const double *matrix, const double *b, const double *x, double *r) {
    ups_sparse_times(pattern, matrix, x, r);
    for (int64_t i = 0; i < pattern->rows; i++) r[i] = b[i] - r[i];
}

ups_status ups_sparse_solve(const ups_sparse *pattern, const double *matrix, const double *factors, const double *b,
                            double tolerance, double *x, double *scratch, ups_error *error) {
    const int64_t n = pattern->rows;
    double *r = scratch + RESIDUAL * n, *shadow = scratch + SHADOW * n, *direction = scratch + DIRECTION * n;
    double *image = scratch + IMAGE * n, *half = scratch + HALF * n, *half_image = scratch + HALF_IMAGE * n;
    double *smooth = scratch + SMOOTH * n;
    const double target = tolerance * tolerance * dot(n, b, b);
    residual_of(pattern, matrix, b, x, r);
    double square = dot(n, r, r), along = 1.0, damping = 1.0, projection = 1.0;
    bool restart = true;
    int done = 0;
    for (; square > target && done < most_iterations; done++) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
        if (restart) memcpy(shadow, r, sizeof *r * (size_t)n);
        const double next = dot(n, shadow, r);
        const double share = restart ? 0.0 : next / projection * (along / damping);
        projection = next;
        for (int64_t i = 0; i < n; i++)
            direction[i] = restart ? r[i] : r[i] + share * (direction[i] - damping * image[i]);
        precondition(pattern, factors, direction, half);
        ups_sparse_times(pattern, matrix, half, image);
        along = projection / dot(n, shadow, image);
        for (int64_t i = 0; i < n; i++) x[i] += along * half[i];
        for (int64_t i = 0; i < n; i++) r[i] -= along * image[i];
        precondition(pattern, factors, r, smooth);
        ups_sparse_times(pattern, matrix, smooth, half_image);
        const double length = dot(n, half_image, half_image);
        damping = length > 0.0 ? dot(n, half_image, r) / length : 0.0;
        for (int64_t i = 0; i < n; i++) x[i] += damping * smooth[i];
        for (int64_t i = 0; i < n; i++) r[i] -= damping * half_image[i];
        square = dot(n, r, r);
        if (!isfinite(square)) break;
        /* The residual carried along has drifted by rounding: the true one decides. Without progress along either
         * direction a new shadow is taken. */
        restart = square <= target || damping == 0.0 || next == 0.0;
        if (restart) {
            residual_of(pattern, matrix, b, x, r);
            square = dot(n, r, r);
        }
    }
    if (square <= target) return UPS_OK;
    return ups_fail(error, UPS_ERR_NUMERIC,
                    "the linear system of %lld points was not solved to %g within %d iterations; milder parameters are "
                    "needed",
                    (long long)n, tolerance, done);
}
