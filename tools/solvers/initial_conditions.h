/* PDEBench's family of one-dimensional initial conditions: a sum of sines with random wavenumbers, amplitudes and
 * phases; sometimes its absolute value; a random sign; sometimes seen through a window.
 *
 *     u(x) = s · w(x) · a(Σ_j A_j sin(2π k_j x + φ_j)),      x ∈ [0, 1), continued periodically
 *
 * with k_j whole in 1 … k_max, A_j ∈ [0, 1), φ_j ∈ [0, 2π), s = ±1, a the identity or |·|, and w either 1 or
 * ½(tanh((x - l)/δ) - tanh((x - r)/δ)), l ∈ [0.1, 0.45), r ∈ [0.55, 0.9), δ = 0.01: so sharp that most grids see an
 * edge.
 *
 * Source: PDEBench (Takamoto et al., arXiv 2210.07182), which gives two waves and k_max = 8. Its published script
 * differs from its text in points that this does not repeat: k_max = 4, wavenumbers that were not drawn leave their
 * constant A sin φ behind, and one drawn twice is doubled. */
#ifndef UPS_SOLVERS_INITIAL_CONDITIONS_H
#define UPS_SOLVERS_INITIAL_CONDITIONS_H

#include "tools/solvers/solver.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_MAX_WAVES 16

typedef struct ups_wave_family {
    int waves;         /* 1 … UPS_MAX_WAVES */
    int k_max;         /* largest wavenumber */
    double p_absolute; /* probability of the absolute value */
    double p_window;   /* probability of the window */
} ups_wave_family;

typedef struct ups_wave_profile {
    int waves;
    int wavenumber[UPS_MAX_WAVES];
    double amplitude[UPS_MAX_WAVES], phase[UPS_MAX_WAVES];
    bool absolute, windowed;
    double sign;
    double window_left, window_right;
} ups_wave_profile;

/* The family as four consecutive parameters of a solver, and how it is read back. */
enum { UPS_WAVE_WAVES, UPS_WAVE_K_MAX, UPS_WAVE_P_ABSOLUTE, UPS_WAVE_P_WINDOW, UPS_WAVE_PARAMETERS };
#define UPS_WAVE_FAMILY_PARAMETERS(first, waves_default_value, k_max_default_value)                                    \
    [(first) + UPS_WAVE_WAVES] =                                                                                       \
        {"waves", waves_default_value, 1, UPS_MAX_WAVES, true, "1", "sines in an initial condition"},                  \
               [(first) + UPS_WAVE_K_MAX] =                                                                            \
                   {"k_max", k_max_default_value, 1, 512, true, "1", "largest wavenumber; drawn from 1 to k_max"},     \
               [(first) + UPS_WAVE_P_ABSOLUTE] =                                                                       \
                   {"p_absolute", 0.1, 0.0, 1.0, false, "1", "share of samples that begin as absolute values"},        \
               [(first) + UPS_WAVE_P_WINDOW] = {                                                                       \
                   "p_window", 0.1, 0.0, 1.0, false, "1", "share of samples that begin seen through a window"}
ups_wave_family ups_wave_family_of(const ups_solver_setup *setup, int first);

/* The profile of (seed, sample). */
void ups_wave_profile_draw(const ups_wave_family *family, uint64_t seed, int64_t sample, ups_wave_profile *profile);

/* u(x) for any real x. */
double ups_wave_profile_at(const ups_wave_profile *profile, double x);

/* s · w(x) · a(sum): what is left to do once the sum of sines at x is known by other means. */
double ups_wave_profile_shape(const ups_wave_profile *profile, double x, double sum);

#endif
