/* GELU, x Phi(x), and its derivative, for the op of its own (activation.c) and for products that end in it (matmul.c).
 *
 * Phi(x), the normal distribution's integral, and the derivative of x Phi(x) are odd functions plus a half: x times a
 * polynomial in x^2, without an exponential or a division. Polynomials are in t = 2 x^2/L^2 - 1, whose powers stay
 * small; least squares over Chebyshev nodes, reweighted towards the smallest largest error. Beyond L both are constant
 * to float32. Errors in float32 arithmetic: 1.5e-7 of Phi, 3e-7 of the derivative. */
#ifndef UPS_MODEL_CPU_GELU_H
#define UPS_MODEL_CPU_GELU_H

#include <stdint.h>

#define UPS_GELU_INTEGRAL_LIMIT 5.2f
#define UPS_GELU_SLOPE_LIMIT 5.7f

static const float ups_gelu_integral[] = {1.359499991e-01f, -6.774366647e-02f, 5.002452061e-02f, -3.992981836e-02f,
                                          3.198995814e-02f, -2.472362481e-02f, 1.795479283e-02f, -1.250514109e-02f,
                                          8.559956215e-03f, -4.789003171e-03f, 1.800133730e-03f, -1.221524435e-03f,
                                          1.268506981e-03f, -4.812670522e-04f};
static const float ups_gelu_slope[] = {
    1.241653115e-01f, -6.292559952e-02f, 5.013947934e-02f, -4.846972227e-02f, 5.327432603e-02f, -6.109900400e-02f,
    6.872374564e-02f, -7.308295369e-02f, 6.737874448e-02f, -5.222860351e-02f, 4.592045769e-02f, -4.537274688e-02f,
    2.419171110e-02f, -9.593852446e-04f, 4.550531507e-03f, -1.094430778e-02f, 4.457375966e-03f};

/* 1/2 + x p(x^2), 0 far to the left and 1 far to the right; NaN stays NaN. */
static inline float ups_gelu_step(float x, float limit, const float *polynomial, int count) {
    float near = x > limit ? limit : x;
    near = near < -limit ? -limit : near;
    float t = near * near * (2.0f / (limit * limit)) - 1.0f, sum = polynomial[count - 1];
#pragma GCC unroll 16
    for (int i = count - 2; i >= 0; i--) sum = sum * t + polynomial[i];
    sum = sum * near + 0.5f;
    sum = x > limit ? 1.0f : sum;
    return x < -limit ? 0.0f : sum;
}

enum {
    UPS_GELU_INTEGRAL_TERMS = sizeof ups_gelu_integral / sizeof *ups_gelu_integral,
    UPS_GELU_SLOPE_TERMS = sizeof ups_gelu_slope / sizeof *ups_gelu_slope,
};

static inline void ups_gelu_row(const float *restrict x, float *restrict y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float integral = ups_gelu_step(x[i], UPS_GELU_INTEGRAL_LIMIT, ups_gelu_integral, UPS_GELU_INTEGRAL_TERMS);
        y[i] = x[i] < -UPS_GELU_INTEGRAL_LIMIT ? 0.0f : x[i] * integral;
    }
}

static inline void ups_gelu_row_backward(const float *restrict x, const float *restrict dy, float *restrict dx,
                                         int64_t n) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * ups_gelu_step(x[i], UPS_GELU_SLOPE_LIMIT, ups_gelu_slope, UPS_GELU_SLOPE_TERMS);
}

#endif
