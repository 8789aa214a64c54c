/* Families of one-dimensional initial conditions: a sum of sines with random wavenumbers, amplitudes and phases;
 * sometimes its absolute value; a random sign; sometimes seen through a window.
 *
 *     u(x) = s · w(x) · a(c + Σ_j A_j sin(2π k_j x + φ_j)),      x ∈ [0, 1), continued periodically
 *
 * with A_j ∈ [0, 1), φ_j ∈ [0, 2π), s = ±1, a the identity or |·|, and w either 1 or
 * ½(tanh((x - l)/δ) - tanh((x - r)/δ)), δ = 0.01: so sharp that most grids see an edge.
 *
 * `pdebench` is what the files of PDEBench hold, as its published scripts make them (init_multi, init_multi_HD):
 * wavenumbers are drawn from 1 … k_max, with an amplitude and a phase each; one that is drawn n times has its
 * wavenumber multiplied by n; those that are not drawn leave their A sin φ behind, which together are the constant c:
 * the mean is then as large as the waves. The edges of a window are not independent: l = 0.1 + 0.35 q and r = 0.55 +
 * 0.35 q, with q below the probability of a window. One difference is kept: the scripts' waves are one cell too short
 * for the domain (at 1024 cells by 1/1023), these fit it at every resolution.
 *
 * `waves` is what PDEBench's paper describes (Takamoto et al., arXiv 2210.07182; with k_max = 8): each of the waves has
 * a whole k_j in 1 … k_max of its own, c = 0, l ∈ [0.1, 0.45) and r ∈ [0.55, 0.9). */
#ifndef UPS_SOLVERS_INITIAL_CONDITIONS_H
#define UPS_SOLVERS_INITIAL_CONDITIONS_H

#include "tools/solvers/solver.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_MAX_WAVES 16

typedef enum ups_wave_law { UPS_WAVES_PDEBENCH, UPS_WAVES_PLAIN } ups_wave_law;

typedef struct ups_wave_family {
    ups_wave_law law;
    int waves;         /* 1 … UPS_MAX_WAVES */
    int k_max;         /* largest wavenumber */
    double p_absolute; /* probability of the absolute value */
    double p_window;   /* probability of the window */
} ups_wave_family;

typedef struct ups_wave_profile {
    int waves; /* with pdebench: how many different ones were drawn */
    int wavenumber[UPS_MAX_WAVES];
    double amplitude[UPS_MAX_WAVES], phase[UPS_MAX_WAVES];
    double constant; /* c */
    bool absolute, windowed;
    double sign;
    double window_left, window_right, window_sharpness; /* l, r, 1/δ */
} ups_wave_profile;

/* The family as five consecutive parameters of a solver, and how it is read back. */
enum { UPS_WAVE_INITIAL, UPS_WAVE_WAVES, UPS_WAVE_K_MAX, UPS_WAVE_P_ABSOLUTE, UPS_WAVE_P_WINDOW, UPS_WAVE_PARAMETERS };
/* clang-format off */
#define UPS_WAVE_INITIAL_PARAMETER                                                                                     \
    {"initial", UPS_WAVES_PDEBENCH, 0, 1, UPS_CHOICE, "pdebench|waves",                                                \
     "how samples begin: as in PDEBench's files, or as its paper says"}
#define UPS_WAVE_FAMILY_PARAMETERS(first)                                                                              \
    [(first) + UPS_WAVE_INITIAL] = UPS_WAVE_INITIAL_PARAMETER,                                                         \
    [(first) + UPS_WAVE_WAVES] = {"waves", 2, 1, UPS_MAX_WAVES, UPS_WHOLE | UPS_PLANNED, "1",                          \
                                  "sines in an initial condition"},                                                    \
    [(first) + UPS_WAVE_K_MAX] = {"k_max", 4, 1, 512, UPS_WHOLE | UPS_PLANNED, "1",                                    \
                                  "largest wavenumber; drawn from 1 to k_max"},                                        \
    [(first) + UPS_WAVE_P_ABSOLUTE] = {"p_absolute", 0.1, 0.0, 1.0, UPS_REAL, "1",                                     \
                                       "share of samples that begin as absolute values"},                              \
    [(first) + UPS_WAVE_P_WINDOW] = {"p_window", 0.1, 0.0, 1.0, UPS_REAL, "1",                                         \
                                     "share of samples that begin seen through a window"}
/* clang-format on */
ups_wave_family ups_wave_family_of(const ups_solver_setup *setup, int first);

/* No profile of the family has a larger wavenumber. */
int64_t ups_wave_family_highest(const ups_wave_family *family);

/* The profile of (seed, sample). */
void ups_wave_profile_draw(const ups_wave_family *family, uint64_t seed, int64_t sample, ups_wave_profile *profile);

/* u(x) for any real x. */
double ups_wave_profile_at(const ups_wave_profile *profile, double x);

/* The profile of (seed, sample) at the centres of `cells` cells. */
void ups_wave_profile_fill(const ups_wave_family *family, uint64_t seed, int64_t sample, int64_t cells, double *u);

/* s · w(x) · a(sum): what is left to do once c and the sines at x have been summed by other means. */
double ups_wave_profile_shape(const ups_wave_profile *profile, double x, double sum);

#endif
