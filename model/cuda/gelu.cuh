// The exact GELU, x Φ(x), and its slope: a library's epilogue is the tanh approximation, and would not be what the CPU computes.
#pragma once
#include "model/cuda/approximate.cuh"

// By the tail of the normal distribution, Q(a) = Φ(-a) = 2^P(a) for a >= 0. P is of degree 8, fitted to log2 Q for a up
// to 6 so that Q max(a, 1) is right to 5e-8 or, in the far tail, to 0.15 %; beyond, it falls faster than log2 Q. For x
// of -12 to 12 errors in float32 are 8e-8 of Q, 2.5e-7 of GELU (1e-7 max(1, |x|): its own rounding) and 1.4e-7 of the
// slope, and exp2_fast adds 2^-22 Q at most. normcdff is hardly better, and so long that a card computes longer than
// its memory takes.
struct gelu {
    // |x|, or a value where Q is 0 already: infinity times 0 is none. NaN stays.
    static __device__ __forceinline__ float magnitude(float x) {
        const float most = 16.0f;
        float a;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(x)), "f"(most));
        return a;
    }
    static __device__ __forceinline__ float tail(float a) {
        float p = -1.08002678e-6f;
        p = fmaf(p, a, 1.82122039e-5f);
        p = fmaf(p, a, -8.61154404e-5f);
        p = fmaf(p, a, -3.74203781e-4f);
        p = fmaf(p, a, 7.36284535e-3f);
        p = fmaf(p, a, -5.26926666e-2f);
        p = fmaf(p, a, -4.59147751e-1f);
        p = fmaf(p, a, -1.15111196f);
        p = fmaf(p, a, -0.99999988f);
        return exp2_fast(p);
    }
    static __device__ float value(float x) {
        float a = magnitude(x);
        return fmaf(-a, tail(a), fmaxf(x, 0.0f));
    }
    // Φ(x) + x φ(x): of -a it is Q(a) - a φ(a), of a what is left to 1.
    static __device__ float slope(float x) {
        const float half_log2_e = 0.721347520f, log2_inverse_root = -1.32574807f; // 1 / sqrt(2 pi)
        float a = magnitude(x), density = exp2_fast(fmaf(a * -half_log2_e, a, log2_inverse_root));
        float negative = fmaf(-a, density, tail(a));
        return x < 0.0f ? negative : 1.0f - negative;
    }
};
