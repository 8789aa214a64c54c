#include "tools/solvers/incompressible/fourier.h"
#include "tools/solvers/every_width.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Complex columns at a time; a complex number is LANES real parts, then LANES imaginary ones. */
enum { LANES = 8, COMPLEX = 2 * LANES, MOST_FACTORS = 64 };

struct ups_columns {
    int64_t rows;
    bool cosine;
    int factor_count;
    int64_t factors[MOST_FACTORS];
    double *turn;    /* cos, sin of 2πt/N, t < N */
    double *quarter; /* cos, sin of πk/2N, k < N */
};

static void factorize(ups_columns *columns) {
    int64_t rest = columns->rows;
    while (rest % 4 == 0) {
        columns->factors[columns->factor_count++] = 4;
        rest /= 4;
    }
    for (int64_t prime = 2; rest > 1; prime++) {
        if (prime * prime > rest) prime = rest;
        while (rest % prime == 0) {
            columns->factors[columns->factor_count++] = prime;
            rest /= prime;
        }
    }
}

ups_columns *ups_columns_create(int64_t rows, bool cosine) {
    ups_columns *columns = calloc(1, sizeof *columns);
    if (!columns) return NULL;
    *columns = (ups_columns){.rows = rows, .cosine = cosine};
    columns->turn = malloc(sizeof(double) * 2 * (size_t)rows);
    columns->quarter = malloc(sizeof(double) * 2 * (size_t)rows);
    if (!columns->turn || !columns->quarter) {
        ups_columns_destroy(columns);
        return NULL;
    }
    factorize(columns);
    for (int64_t t = 0; t < rows; t++) {
        const double turn = 2.0 * M_PI * (double)t / (double)rows, quarter = 0.5 * M_PI * (double)t / (double)rows;
        columns->turn[2 * t] = cos(turn);
        columns->turn[2 * t + 1] = sin(turn);
        columns->quarter[2 * t] = cos(quarter);
        columns->quarter[2 * t + 1] = sin(quarter);
    }
    return columns;
}

void ups_columns_destroy(ups_columns *columns) {
    if (!columns) return;
    free(columns->turn);
    free(columns->quarter);
    free(columns);
}

size_t ups_columns_scratch(const ups_columns *columns) {
    return 2 * COMPLEX * (size_t)columns->rows;
}

/* out = (re + i im) · exp(-2πi t/N) */
UPS_ALWAYS_INLINE void put_turned(double *restrict out, const double *turn, int64_t t, const double *re,
                                  const double *im) {
    const double c = turn[2 * t], s = turn[2 * t + 1];
    for (int l = 0; l < LANES; l++) {
        out[l] = c * re[l] + s * im[l];
        out[LANES + l] = c * im[l] - s * re[l];
    }
}

/* One pass of radix r over transforms of length n that lie `stride` apart (Van Loan, Computational Frameworks for the
 * FFT, 1.7): y[q + s(rp + j)] = exp(-2πi pj/n) Σ_k x[q + s(p + mk)] exp(-2πi jk/r), m = n/r. */
UPS_ALWAYS_INLINE void pass_of_two(const ups_columns *columns, int64_t n, int64_t stride, const double *x, double *y) {
    const int64_t m = n / 2, step = columns->rows / n;
    for (int64_t p = 0; p < m; p++) {
        for (int64_t q = 0; q < stride; q++) {
            const double *a = x + COMPLEX * (q + stride * p), *b = a + COMPLEX * stride * m;
            double *out = y + COMPLEX * (q + stride * 2 * p);
            double re[LANES], im[LANES];
            for (int l = 0; l < LANES; l++) {
                re[l] = a[l] - b[l];
                im[l] = a[LANES + l] - b[LANES + l];
            }
            for (int l = 0; l < COMPLEX; l++) out[l] = a[l] + b[l];
            put_turned(out + COMPLEX * stride, columns->turn, p * step, re, im);
        }
    }
}

UPS_ALWAYS_INLINE void pass_of_four(const ups_columns *columns, int64_t n, int64_t stride, const double *x, double *y) {
    const int64_t m = n / 4, step = columns->rows / n;
    for (int64_t p = 0; p < m; p++) {
        for (int64_t q = 0; q < stride; q++) {
            const double *a = x + COMPLEX * (q + stride * p), *b = a + COMPLEX * stride * m;
            const double *c = b + COMPLEX * stride * m, *d = c + COMPLEX * stride * m;
            double *out = y + COMPLEX * (q + stride * 4 * p);
            double re[3][LANES], im[3][LANES];
            for (int l = 0; l < LANES; l++) {
                const double sum_re = a[l] + c[l], sum_im = a[LANES + l] + c[LANES + l];
                const double gap_re = a[l] - c[l], gap_im = a[LANES + l] - c[LANES + l];
                const double other_re = b[l] + d[l], other_im = b[LANES + l] + d[LANES + l];
                const double turned_re = b[LANES + l] - d[LANES + l], turned_im = d[l] - b[l]; /* -i (b - d) */
                out[l] = sum_re + other_re;
                out[LANES + l] = sum_im + other_im;
                re[0][l] = gap_re + turned_re;
                im[0][l] = gap_im + turned_im;
                re[1][l] = sum_re - other_re;
                im[1][l] = sum_im - other_im;
                re[2][l] = gap_re - turned_re;
                im[2][l] = gap_im - turned_im;
            }
            for (int64_t j = 1; j < 4; j++)
                put_turned(out + COMPLEX * stride * j, columns->turn, p * j * step, re[j - 1], im[j - 1]);
        }
    }
}

UPS_ALWAYS_INLINE void pass_of_any(const ups_columns *columns, int64_t radix, int64_t n, int64_t stride,
                                   const double *x, double *y) {
    const int64_t m = n / radix, step = columns->rows / n, root = columns->rows / radix;
    for (int64_t p = 0; p < m; p++) {
        for (int64_t q = 0; q < stride; q++) {
            for (int64_t j = 0; j < radix; j++) {
                double re[LANES] = {0.0}, im[LANES] = {0.0};
                for (int64_t k = 0; k < radix; k++) {
                    const double *in = x + COMPLEX * (q + stride * (p + m * k));
                    const int64_t t = j * k % radix * root;
                    const double c = columns->turn[2 * t], s = columns->turn[2 * t + 1];
                    for (int l = 0; l < LANES; l++) {
                        re[l] += c * in[l] + s * in[LANES + l];
                        im[l] += c * in[LANES + l] - s * in[l];
                    }
                }
                put_turned(y + COMPLEX * (q + stride * (radix * p + j)), columns->turn, p * j * step, re, im);
            }
        }
    }
}

/* The complex transform of what `x` holds; `y` is as large. Returns which of them holds the result. */
UPS_ALWAYS_INLINE double *transform(const ups_columns *columns, double *x, double *y) {
    int64_t n = columns->rows, stride = 1;
    for (int f = 0; f < columns->factor_count; f++) {
        const int64_t radix = columns->factors[f];
        if (radix == 4) {
            pass_of_four(columns, n, stride, x, y);
        } else if (radix == 2) {
            pass_of_two(columns, n, stride, x, y);
        } else {
            pass_of_any(columns, radix, n, stride, x, y);
        }
        double *const swapped = x;
        x = y;
        y = swapped;
        n /= radix;
        stride *= radix;
    }
    return x;
}

/* Which row of the matrix is element n of the sequence that is transformed: for cosines even rows forwards, then odd
 * ones backwards. */
static int64_t row_of(const ups_columns *columns, int64_t n) {
    if (!columns->cosine) return n;
    const int64_t even = (columns->rows + 1) / 2;
    return n < even ? 2 * n : 2 * (columns->rows - 1 - n) + 1;
}

/* Two blocks of at most LANES columns are the real and the imaginary part. */
static void gather(const double *row, int64_t width, double *packed) {
    if (width >= COMPLEX) {
        memcpy(packed, row, sizeof(double) * COMPLEX);
        return;
    }
    memset(packed, 0, sizeof(double) * COMPLEX);
    memcpy(packed, row, sizeof(double) * (size_t)width);
}

static void scatter(const double *packed, int64_t width, double *row) {
    memcpy(row, packed, sizeof(double) * (size_t)(width < COMPLEX ? width : COMPLEX));
}

UPS_EVERY_WIDTH void ups_columns_forward(const ups_columns *columns, int64_t width, int64_t pitch, double *matrix,
                                         double *scratch) {
    const int64_t rows = columns->rows;
    for (int64_t first = 0; first < width; first += COMPLEX) {
        double *strip = matrix + first;
        for (int64_t n = 0; n < rows; n++)
            gather(strip + row_of(columns, n) * pitch, width - first, scratch + COMPLEX * n);
        const double *z = transform(columns, scratch, scratch + COMPLEX * rows);
        for (int64_t k = 0; k < rows; k++) {
            /* a, b: the transforms of the two real sequences, taken apart by their symmetry */
            const double *here = z + COMPLEX * k, *there = z + COMPLEX * ((rows - k) % rows);
            const double c = columns->cosine ? columns->quarter[2 * k] : 2 * k <= rows ? 1.0 : 0.0;
            const double s = columns->cosine ? columns->quarter[2 * k + 1] : 2 * k <= rows ? 0.0 : -1.0;
            double packed[COMPLEX];
            for (int l = 0; l < LANES; l++) {
                const double a_re = 0.5 * (here[l] + there[l]), a_im = 0.5 * (here[LANES + l] - there[LANES + l]);
                const double b_re = 0.5 * (here[LANES + l] + there[LANES + l]), b_im = 0.5 * (there[l] - here[l]);
                packed[l] = c * a_re + s * a_im;
                packed[LANES + l] = c * b_re + s * b_im;
            }
            scatter(packed, width - first, strip + k * pitch);
        }
    }
}

UPS_EVERY_WIDTH void ups_columns_inverse(const ups_columns *columns, int64_t width, int64_t pitch, double *matrix,
                                         double *scratch) {
    const int64_t rows = columns->rows;
    const double scale = 1.0 / (double)rows;
    for (int64_t first = 0; first < width; first += COMPLEX) {
        double *strip = matrix + first;
        for (int64_t k = 0; k < rows; k++) {
            double x[COMPLEX], mirrored[COMPLEX] = {0.0};
            gather(strip + k * pitch, width - first, x);
            if (k > 0) gather(strip + (rows - k) * pitch, width - first, mirrored);
            double *z = scratch + COMPLEX * k;
            if (columns->cosine) {
                const double c = scale * columns->quarter[2 * k], s = scale * columns->quarter[2 * k + 1];
                for (int l = 0; l < LANES; l++) {
                    const double a_re = c * x[l] + s * mirrored[l], a_im = s * x[l] - c * mirrored[l];
                    const double b_re = c * x[LANES + l] + s * mirrored[LANES + l];
                    const double b_im = s * x[LANES + l] - c * mirrored[LANES + l];
                    z[l] = a_im + b_re; /* real and imaginary parts exchanged: that makes the transform its inverse */
                    z[LANES + l] = a_re - b_im;
                }
                continue;
            }
            const bool lower = 2 * k <= rows, alone = k == 0 || 2 * k == rows;
            const double sign = lower ? 1.0 : -1.0;
            for (int l = 0; l < LANES; l++) {
                const double a_re = lower ? x[l] : mirrored[l], b_re = lower ? x[LANES + l] : mirrored[LANES + l];
                const double a_im = alone ? 0.0 : sign * (lower ? mirrored[l] : x[l]);
                const double b_im = alone ? 0.0 : sign * (lower ? mirrored[LANES + l] : x[LANES + l]);
                z[l] = scale * (a_im + b_re);
                z[LANES + l] = scale * (a_re - b_im);
            }
        }
        const double *v = transform(columns, scratch, scratch + COMPLEX * rows);
        for (int64_t n = 0; n < rows; n++) {
            const double *in = v + COMPLEX * n;
            double packed[COMPLEX];
            for (int l = 0; l < LANES; l++) {
                packed[l] = in[LANES + l];
                packed[LANES + l] = in[l];
            }
            scatter(packed, width - first, strip + row_of(columns, n) * pitch);
        }
    }
}
