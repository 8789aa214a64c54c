#include "train/data/conditions/step_times.h"

#include <float.h>
#include <math.h>

/* What counts as a difference between steps, as a share of one: less than what tells the operator anything. */
#define SAME_STEP 1e-5

/* That the difference of two times may be off by, where they are kept in float32. */
static double rounding_of(const ups_sample *sample) {
    return 2.0 * (double)FLT_EPSILON * fmax(fabs(sample->time[0]), fabs(sample->time[sample->times - 1]));
}

bool ups_sample_is_uneven(const ups_sample *sample) {
    const int64_t last = sample->times - 1;
    if (last < 2) return false;
    const double first = sample->time[1] - sample->time[0], rounding = rounding_of(sample);
    for (int64_t f = 2; f <= last; f++) {
        if (fabs(sample->time[f] - sample->time[f - 1] - first) > 0.01 * fabs(first) + rounding) return true;
    }
    return false;
}

double ups_sample_dt(const ups_sample *sample) {
    const int64_t last = sample->times - 1;
    if (last < 1) return (double)NAN;
    const double mean = (sample->time[last] - sample->time[0]) / (double)last;
    const double allowed = SAME_STEP * fabs(mean) + rounding_of(sample);
    for (int64_t f = 1; f <= last; f++) {
        if (!(fabs(sample->time[f] - sample->time[f - 1] - mean) <= allowed)) return (double)NAN;
    }
    return mean;
}

bool ups_samples_have_same_times(const ups_sample *a, const ups_sample *b) {
    if (a->times != b->times) return false;
    if (a->time == b->time) return true;
    const int64_t last = a->times - 1;
    const double rounding = fmax(rounding_of(a), rounding_of(b)), whole = a->time[last] - a->time[0];
    if (!(fabs(whole - (b->time[last] - b->time[0])) <= SAME_STEP * fabs(whole) + rounding)) return false;
    for (int64_t f = 1; f <= last; f++) {
        const double step = a->time[f] - a->time[f - 1], other = b->time[f] - b->time[f - 1];
        if (!(fabs(step - other) <= SAME_STEP * fabs(step) + rounding)) return false;
    }
    return true;
}

void ups_sample_step_times(const ups_sample *sample, double dt, int64_t stride, double *seconds) {
    if (isnan(dt)) dt = ups_sample_dt(sample);
    for (int64_t k = 0; k < (sample->times - 1) / stride; k++) {
        const double *time = sample->time + k * stride;
        seconds[k] = isnan(dt) ? time[stride] - time[0] : dt * (double)stride;
    }
}
