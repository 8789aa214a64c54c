#include "tools/solvers/implicit_diffusion.h"

#include <math.h>
#include <string.h>

/* u' = twice · S²u - once · Su. */
static const double twice = 1.0 + M_SQRT2, once = M_SQRT2;

/* ---- a periodic line ---- */

ups_periodic_factor ups_periodic_factorize(int64_t cells, double q) {
    ups_periodic_factor made = {.a = 2.0 * q / (1.0 + 2.0 * q + sqrt(1.0 + 4.0 * q))};
    made.scale = made.a / q;
    const double forgotten = ceil(log(1e-18) / log(made.a));
    made.reach = forgotten < (double)cells ? (int64_t)forgotten : cells;
    made.turns = -1.0 / expm1((double)cells * log(made.a));
    return made;
}

void ups_periodic_solve(int64_t cells, const ups_periodic_factor *factor, double *x) {
    const double a = factor->a;
    double carried = 0.0;
    for (int64_t i = cells - factor->reach; i < cells; i++) carried = x[i] + a * carried;
    carried *= factor->turns;
    for (int64_t i = 0; i < cells; i++) x[i] = carried = x[i] + a * carried;
    carried = 0.0;
    for (int64_t i = factor->reach - 1; i >= 0; i--) carried = x[i] + a * carried;
    carried *= factor->turns;
    for (int64_t i = cells - 1; i >= 0; i--) {
        carried = x[i] + a * carried;
        x[i] = factor->scale * carried;
    }
}

void ups_periodic_diffuse(int64_t cells, const ups_periodic_factor *factor, double *u, double *work) {
    ups_periodic_solve(cells, factor, u);
    memcpy(work, u, sizeof(double) * (size_t)cells);
    ups_periodic_solve(cells, factor, work);
    for (int64_t i = 0; i < cells; i++) u[i] = twice * work[i] - once * u[i];
}

/* ---- between walls ---- */

/* The inverses of the pivots of Gauss's elimination: diagonal 1 + 2q, at both ends 1 + q; beside it -q. */
void ups_walled_factorize(int64_t cells, double q, double *pivots) {
    double eliminated = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        const int neighbours = (i > 0) + (i + 1 < cells);
        pivots[i] = 1.0 / (1.0 + q * neighbours - eliminated);
        eliminated = q * q * pivots[i];
    }
}

static void walled_solve(int64_t cells, int64_t width, double q, const double *pivots, double *restrict x) {
    for (int64_t j = 0; j < width; j++) x[j] *= pivots[0];
    for (int64_t i = 1; i < cells; i++) {
        double *row = x + i * width;
        const double *before = row - width, pivot = pivots[i];
        for (int64_t j = 0; j < width; j++) row[j] = (row[j] + q * before[j]) * pivot;
    }
    for (int64_t i = cells - 2; i >= 0; i--) {
        double *row = x + i * width;
        const double *after = row + width, factor = q * pivots[i];
        for (int64_t j = 0; j < width; j++) row[j] += factor * after[j];
    }
}

void ups_walled_diffuse(int64_t cells, int64_t width, double q, const double *pivots, double *u, double *work) {
    walled_solve(cells, width, q, pivots, u);
    memcpy(work, u, sizeof(double) * (size_t)(cells * width));
    walled_solve(cells, width, q, pivots, work);
    for (int64_t i = 0; i < cells * width; i++) u[i] = twice * work[i] - once * u[i];
}

/* In blocks that stay in the first cache. */
static void transpose(int64_t n, const double *restrict from, double *restrict to) {
    enum { BLOCK = 16 };
    for (int64_t top = 0; top < n; top += BLOCK) {
        for (int64_t left = 0; left < n; left += BLOCK) {
            const int64_t bottom = top + BLOCK < n ? top + BLOCK : n, right = left + BLOCK < n ? left + BLOCK : n;
            for (int64_t i = top; i < bottom; i++) {
                for (int64_t j = left; j < right; j++) to[j * n + i] = from[i * n + j];
            }
        }
    }
}

void ups_walled_diffuse_square(int64_t cells, double q, const double *pivots, double *u, double *work) {
    double *turned = work + cells * cells;
    ups_walled_diffuse(cells, cells, q, pivots, u, work);
    transpose(cells, u, turned);
    ups_walled_diffuse(cells, cells, q, pivots, turned, work);
    transpose(cells, turned, u);
}
