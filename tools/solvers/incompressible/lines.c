#include "tools/solvers/incompressible/lines.h"
#include "tools/solvers/every_width.h"

#include <stddef.h>

/* A table: n reciprocals of pivots, then n values z that close a periodic line (Sherman & Morrison): x = y - (y_0 +
 * close y_{n-1}) z with y the solution of the open line. `close` = r/diagonal is kept in z's formula by the caller. */
void ups_line_factorize(ups_line_ends ends, int64_t n, double diagonal, double r, double *table) {
    double *inverse = table, *z = table + n;
    const int singular = diagonal <= 2.0 * r;
    double first = diagonal, last = diagonal;
    if (ends == UPS_LINE_ODD) first = last = diagonal + r;
    if (ends == UPS_LINE_EVEN) first = last = diagonal - r;
    if (ends == UPS_LINE_PERIODIC && !singular) {
        first = 2.0 * diagonal;
        last = diagonal + r * r / diagonal;
    }
    const int fixed = ends == UPS_LINE_NODE || (ends == UPS_LINE_PERIODIC && singular); /* x_0 = 0 */
    inverse[0] = fixed ? 0.0 : 1.0 / first;
    for (int64_t j = 1; j < n; j++) {
        const double pivot = (j == n - 1 ? last : diagonal) - r * r * inverse[j - 1];
        inverse[j] = ends == UPS_LINE_EVEN && singular && j == n - 1 ? 0.0 : 1.0 / pivot;
    }
    for (int64_t j = 0; j < n; j++) z[j] = 0.0;
    if (ends != UPS_LINE_PERIODIC || singular) return;
    z[0] = -diagonal * inverse[0];
    for (int64_t j = 1; j < n; j++) z[j] = ((j == n - 1 ? -r : 0.0) + r * z[j - 1]) * inverse[j];
    for (int64_t j = n - 2; j >= 0; j--) z[j] += r * inverse[j] * z[j + 1];
    const double scale = 1.0 / (1.0 + z[0] + r / diagonal * z[n - 1]);
    for (int64_t j = 0; j < n; j++) z[j] *= scale;
}

/* r/diagonal from a periodic table: its first pivot is twice the diagonal. */
static double closing(const double *table, double r) {
    return 2.0 * r * table[0];
}

UPS_EVERY_WIDTH void ups_lines_solve_slow(ups_line_ends ends, int64_t n, int64_t width, int64_t pitch, double r,
                                          const double *table, double *x) {
    for (int64_t c = 0; c < width; c++) x[c] *= table[0];
    for (int64_t j = 1; j < n; j++) {
        const double inverse = table[j];
        const double *before = x + (j - 1) * pitch;
        double *here = x + j * pitch;
        for (int64_t c = 0; c < width; c++) here[c] = (here[c] + r * before[c]) * inverse;
    }
    for (int64_t j = n - 2; j >= 0; j--) {
        const double factor = r * table[j];
        const double *after = x + (j + 1) * pitch;
        double *here = x + j * pitch;
        for (int64_t c = 0; c < width; c++) here[c] += factor * after[c];
    }
    if (ends != UPS_LINE_PERIODIC) return;
    const double close = closing(table, r);
    const double *z = table + n;
    enum { BLOCK = 64 };
    for (int64_t begin = 0; begin < width; begin += BLOCK) {
        const int64_t count = width - begin < BLOCK ? width - begin : BLOCK;
        double sum[BLOCK];
        const double *top = x + begin, *bottom = x + (n - 1) * pitch + begin;
        for (int64_t c = 0; c < count; c++) sum[c] = top[c] + close * bottom[c];
        for (int64_t j = 0; j < n; j++) {
            double *here = x + j * pitch + begin;
            for (int64_t c = 0; c < count; c++) here[c] -= z[j] * sum[c];
        }
    }
}

void ups_lines_solve_fast(ups_line_ends ends, int64_t n, int64_t lines, int64_t pitch, double r, const double *table,
                          int64_t table_pitch, double *x) {
    enum { TOGETHER = 8 };
    for (int64_t begin = 0; begin < lines; begin += TOGETHER) {
        const int count = (int)(lines - begin < TOGETHER ? lines - begin : TOGETHER);
        double *line[TOGETHER], carried[TOGETHER];
        const double *own[TOGETHER];
        for (int l = 0; l < TOGETHER; l++) { /* those beyond the last are the last */
            const int64_t number = begin + (l < count ? l : count - 1);
            line[l] = x + number * pitch;
            own[l] = table + number * table_pitch;
            carried[l] = 0.0;
        }
        if (count == TOGETHER) {
            for (int64_t j = 0; j < n; j++) {
                for (int l = 0; l < TOGETHER; l++) line[l][j] = carried[l] = (line[l][j] + r * carried[l]) * own[l][j];
            }
            for (int l = 0; l < TOGETHER; l++) carried[l] = 0.0;
            for (int64_t j = n - 1; j >= 0; j--) {
                for (int l = 0; l < TOGETHER; l++) line[l][j] = carried[l] = line[l][j] + r * own[l][j] * carried[l];
            }
        } else {
            for (int l = 0; l < count; l++) {
                for (int64_t j = 0; j < n; j++) line[l][j] = carried[l] = (line[l][j] + r * carried[l]) * own[l][j];
                carried[l] = 0.0;
                for (int64_t j = n - 1; j >= 0; j--) line[l][j] = carried[l] = line[l][j] + r * own[l][j] * carried[l];
            }
        }
        if (ends != UPS_LINE_PERIODIC) continue;
        for (int l = 0; l < count; l++) {
            const double sum = line[l][0] + closing(own[l], r) * line[l][n - 1];
            const double *z = own[l] + n;
            for (int64_t j = 0; j < n; j++) line[l][j] -= z[j] * sum;
        }
    }
}
