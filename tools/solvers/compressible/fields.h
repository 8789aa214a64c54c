/* How PDEBench's compressible flows begin: random waves, decaying turbulence, shock tubes, Kelvin–Helmholtz shear, the
 * Orszag–Tang vortex.
 *
 * All fill `fields`, one pointer a variable in the order density, velocities, pressure, each of cells^axes values with
 * the last axis fastest; the domain is the unit interval, square or cube (the flow solver scales it). Random ones are a
 * pure function of (seed, sample) and, but for normalisations by means over the grid, the same at every resolution.
 *
 * Source: Takamoto et al., arXiv 2210.07182, appendix D.5, and PDEBench's published generator. `law` says which of the
 * two, where they differ: the waves of a line (initial_conditions.h), windows and jumps. In the generator's files the
 * edges of a window stand on one line (0.1 + 0.35 q and 0.55 + 0.35 q; q < ½ along x, q < 1 along the others), a line's
 * window is in the right half of [-1, 1], a jump of a shock tube is the further right the larger the value right of it,
 * and velocities of shock tubes are exponentials of what is uniform in [-½, ½]. Differences from both: perturbations of
 * density and pressure are held to 95 % of the mean, so that none is negative; the projection onto solenoidal fields is
 * exact. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_FIELDS_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_FIELDS_H

#include "tools/solvers/initial/initial_conditions.h"

#include <stddef.h>
#include <stdint.h>

/* One dimension. Density and pressure: two sines of wavenumbers up to 3 each, now and then their absolute value (1 in
 * 10) or seen through a window (1 in 2), scaled to lie in [b, b + m]; b and m log-uniform in [1, 10] for density and
 * [10, 100] for pressure. Velocity: the same without scaling. */
void ups_gas_random_line(ups_wave_law law, int64_t cells, uint64_t seed, int64_t sample, double *const fields[3]);

/* One dimension. Each field jumps once, at its own place in the middle half: density log-uniform in [1, 10], pressure
 * in [10, 100], velocity uniform in [-½, ½] on either side, or by pdebench its exponential. */
void ups_gas_random_shock(ups_wave_law law, int64_t cells, uint64_t seed, int64_t sample, double *const fields[3]);

/* One dimension. Riemann problems 1 to 7 of Toro's book (4.3.3 and 10.8); 1 is Sod's, moving. */
void ups_gas_shock_tube(int64_t cells, int test, double *const fields[3]);

typedef struct ups_gas_waves {
    int axes; /* 2 or 3 */
    int64_t cells;
    ups_wave_law law;
    int k_max;    /* wavenumbers -k_max … k_max along each axis, none of them 0 */
    double mach;  /* mean speed over the speed of sound */
    double gamma; /* ratio of specific heats */
} ups_gas_waves;

/* Doubles of working memory. */
size_t ups_gas_waves_scratch(const ups_gas_waves *waves);

/* Waves in all fields: mean density d and mean temperature T uniform in [0.1, 10]; velocities of mean speed M √(γT);
 * density and pressure perturbed by a mean of 1 to 20 %; half of the samples seen through a window in which the rest is
 * at rest. Amplitudes fall as |k|^-½ in two dimensions and 1/|k| in three. */
void ups_gas_random_waves(const ups_gas_waves *waves, uint64_t seed, int64_t sample, double *const *fields,
                          double *scratch);

/* Turbulence that will decay: uniform density 1 and pressure 1/(γM²), solenoidal waves of mean speed 1. */
void ups_gas_turbulence(const ups_gas_waves *waves, uint64_t seed, int64_t sample, double *const *fields,
                        double *scratch);

/* Two dimensions. Streams of speed ∓1 below and above an interface at y = ½ + 0.005 sin 2πkx, k = 1, 2 or 3; their
 * ratio of densities is uniform in [1/ratio_max, ratio_max], the mean density 1, the pressure 1/(γM²). Cells on the
 * interface hold means, so that coarse grids have the wave too. */
void ups_gas_kelvin_helmholtz(int64_t cells, double mach, double ratio_max, double gamma, uint64_t seed, int64_t sample,
                              double *const fields[4]);

/* Two dimensions. The Orszag–Tang vortex without its magnetic field: density γ², pressure γ, v = (-sin 2πy, sin 2πx).
 */
void ups_gas_orszag_tang(int64_t cells, double gamma, double *const fields[4]);

#endif
