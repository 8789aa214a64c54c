#include "tools/solvers/initial/initial_conditions.h"
#include "base/random.h"

#include <math.h>

static const double sharpest = 100.0; /* 1/δ */

/* Where in a sample's random stream each number lies; a wave takes three from `DRAW_WAVES` on, an amplitude and a phase
 * of pdebench's two from `DRAW_MODES` on. */
enum {
    DRAW_ABSOLUTE,
    DRAW_SIGN,
    DRAW_WINDOW,
    DRAW_LEFT,
    DRAW_RIGHT,
    DRAW_WAVES = 8,
    DRAW_MODES = DRAW_WAVES + 3 * UPS_MAX_WAVES
};

ups_wave_family ups_wave_family_of(const ups_solver_setup *setup, int first) {
    const double *values = setup->parameters + first;
    return (ups_wave_family){
        .law = (ups_wave_law)values[UPS_WAVE_INITIAL],
        .waves = (int)values[UPS_WAVE_WAVES],
        .k_max = (int)values[UPS_WAVE_K_MAX],
        .p_absolute = values[UPS_WAVE_P_ABSOLUTE],
        .p_window = values[UPS_WAVE_P_WINDOW],
    };
}

int64_t ups_wave_family_highest(const ups_wave_family *family) {
    return (int64_t)family->k_max * (family->law == UPS_WAVES_PDEBENCH ? family->waves : 1);
}

/* Each wave on its own. */
static void draw_waves(const ups_wave_family *family, ups_random stream, ups_wave_profile *profile) {
    profile->waves = family->waves;
    for (int j = 0; j < family->waves; j++) {
        const uint64_t at = DRAW_WAVES + 3 * (uint64_t)j;
        profile->wavenumber[j] = 1 + (int)ups_random_below(stream, at, (uint64_t)family->k_max);
        profile->amplitude[j] = ups_random_uniform(stream, at + 1);
        profile->phase[j] = 2.0 * M_PI * ups_random_uniform(stream, at + 2);
    }
}

/* Every wavenumber has its amplitude and its phase, and was drawn so and so often: even not at all. */
static void draw_modes(const ups_wave_family *family, ups_random stream, ups_wave_profile *profile) {
    int drawn[UPS_MAX_WAVES];
    for (int j = 0; j < family->waves; j++)
        drawn[j] = 1 + (int)ups_random_below(stream, DRAW_WAVES + 3 * (uint64_t)j, (uint64_t)family->k_max);
    for (int k = 1; k <= family->k_max; k++) {
        const uint64_t at = DRAW_MODES + 2 * (uint64_t)k;
        const double amplitude = ups_random_uniform(stream, at);
        const double phase = 2.0 * M_PI * ups_random_uniform(stream, at + 1);
        int times = 0;
        for (int j = 0; j < family->waves; j++) times += drawn[j] == k;
        if (times == 0) {
            profile->constant += amplitude * sin(phase);
            continue;
        }
        profile->wavenumber[profile->waves] = times * k;
        profile->amplitude[profile->waves] = amplitude;
        profile->phase[profile->waves++] = phase;
    }
}

void ups_wave_profile_draw(const ups_wave_family *family, uint64_t seed, int64_t sample, ups_wave_profile *profile) {
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    const bool as_pdebench = family->law == UPS_WAVES_PDEBENCH;
    const double window = ups_random_uniform(stream, DRAW_WINDOW);
    const double left = as_pdebench ? window : ups_random_uniform(stream, DRAW_LEFT);
    const double right = as_pdebench ? window : ups_random_uniform(stream, DRAW_RIGHT);
    *profile = (ups_wave_profile){
        .absolute = ups_random_uniform(stream, DRAW_ABSOLUTE) < family->p_absolute,
        .windowed = window < family->p_window,
        .sign = ups_random_uniform(stream, DRAW_SIGN) < 0.5 ? 1.0 : -1.0,
        .window_left = 0.1 + 0.35 * left,
        .window_right = 0.55 + 0.35 * right,
        .window_sharpness = sharpest,
    };
    if (as_pdebench)
        draw_modes(family, stream, profile);
    else
        draw_waves(family, stream, profile);
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
        value *= 0.5 * (edge((inside - profile->window_left) * profile->window_sharpness) -
                        edge((inside - profile->window_right) * profile->window_sharpness));
    }
    return value;
}

double ups_wave_profile_at(const ups_wave_profile *profile, double x) {
    double sum = profile->constant;
    for (int j = 0; j < profile->waves; j++) {
        sum += profile->amplitude[j] * sin(2.0 * M_PI * profile->wavenumber[j] * x + profile->phase[j]);
    }
    return ups_wave_profile_shape(profile, x, sum);
}

void ups_wave_profile_fill(const ups_wave_family *family, uint64_t seed, int64_t sample, int64_t cells, double *u) {
    ups_wave_profile profile;
    ups_wave_profile_draw(family, seed, sample, &profile);
    for (int64_t i = 0; i < cells; i++) u[i] = ups_wave_profile_at(&profile, ((double)i + 0.5) / (double)cells);
}
