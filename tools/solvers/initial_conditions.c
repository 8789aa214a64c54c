#include "tools/solvers/initial_conditions.h"
#include "base/random.h"

#include <math.h>

static const double window_sharpness = 100.0; /* 1/δ */

/* Where in a sample's random stream each number lies; a wave takes three from `DRAW_WAVES` on. */
enum { DRAW_ABSOLUTE, DRAW_SIGN, DRAW_WINDOW, DRAW_LEFT, DRAW_RIGHT, DRAW_WAVES = 8 };

ups_wave_family ups_wave_family_of(const ups_solver_setup *setup, int first) {
    const double *values = setup->parameters + first;
    return (ups_wave_family){
        .waves = (int)values[UPS_WAVE_WAVES],
        .k_max = (int)values[UPS_WAVE_K_MAX],
        .p_absolute = values[UPS_WAVE_P_ABSOLUTE],
        .p_window = values[UPS_WAVE_P_WINDOW],
    };
}

void ups_wave_profile_draw(const ups_wave_family *family, uint64_t seed, int64_t sample, ups_wave_profile *profile) {
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    *profile = (ups_wave_profile){
        .waves = family->waves,
        .absolute = ups_random_uniform(stream, DRAW_ABSOLUTE) < family->p_absolute,
        .windowed = ups_random_uniform(stream, DRAW_WINDOW) < family->p_window,
        .sign = ups_random_uniform(stream, DRAW_SIGN) < 0.5 ? 1.0 : -1.0,
        .window_left = 0.1 + 0.35 * ups_random_uniform(stream, DRAW_LEFT),
        .window_right = 0.55 + 0.35 * ups_random_uniform(stream, DRAW_RIGHT),
    };
    for (int j = 0; j < family->waves; j++) {
        const uint64_t at = DRAW_WAVES + 3 * (uint64_t)j;
        profile->wavenumber[j] = 1 + (int)ups_random_below(stream, at, (uint64_t)family->k_max);
        profile->amplitude[j] = ups_random_uniform(stream, at + 1);
        profile->phase[j] = 2.0 * M_PI * ups_random_uniform(stream, at + 2);
    }
}

/* tanh is 1 to the last bit beyond 19.1: most points of a window are far from both edges. */
static double edge(double z) {
    if (z > 20.0) return 1.0;
    if (z < -20.0) return -1.0;
    return tanh(z);
}

double ups_wave_profile_shape(const ups_wave_profile *profile, double x, double sum) {
    double value = profile->sign * (profile->absolute ? fabs(sum) : sum);
    if (profile->windowed) {
        const double inside = x - floor(x);
        value *= 0.5 * (edge((inside - profile->window_left) * window_sharpness) -
                        edge((inside - profile->window_right) * window_sharpness));
    }
    return value;
}

double ups_wave_profile_at(const ups_wave_profile *profile, double x) {
    double sum = 0.0;
    for (int j = 0; j < profile->waves; j++) {
        sum += profile->amplitude[j] * sin(2.0 * M_PI * profile->wavenumber[j] * x + profile->phase[j]);
    }
    return ups_wave_profile_shape(profile, x, sum);
}
