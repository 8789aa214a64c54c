/* Times of frames as files keep them: what is one length of a step but for rounding, and what differs. */
#include "tests/base/testing.h"
#include "train/data/conditions/step_times.h"
#include <math.h>

enum { FRAMES = 101 };

/* Times from `begin` on, kept in float32; every second step longer by the share `jitter`. */
static ups_sample sample_of(double *time, double begin, double dt, double jitter) {
    for (int f = 0; f < FRAMES; f++)
        time[f] = (double)(float)(begin + dt * ((double)f + jitter * (double)((f + 1) / 2)));
    return (ups_sample){.times = FRAMES, .time = time};
}

static void rounded_times_have_one_length_of_a_step(void **state) {
    (void)state;
    double time[FRAMES], seconds[FRAMES - 1];
    for (int hundreds = 0; hundreds < 10; hundreds++) {
        const ups_sample sample = sample_of(time, 100 * hundreds, 0.05, 0);
        const double dt = ups_sample_dt(&sample);
        assert_true(fabs(dt - 0.05) < 1e-6);
        assert_true(dt == (time[FRAMES - 1] - time[0]) / (FRAMES - 1));
        ups_sample_step_times(&sample, (double)NAN, 3, seconds);
        for (int k = 0; k < (FRAMES - 1) / 3; k++) assert_true(seconds[k] == 3 * dt);
        ups_sample_step_times(&sample, 0.07, 2, seconds);
        for (int k = 0; k < (FRAMES - 1) / 2; k++) assert_true(seconds[k] == 0.14);
    }
}

/* By less than what counts as uneven in training, too. */
static void steps_that_differ_are_taken_as_they_are(void **state) {
    (void)state;
    double time[FRAMES], seconds[FRAMES - 1];
    const ups_sample sample = sample_of(time, 0, 0.05, 0.005);
    assert_false(ups_sample_is_uneven(&sample));
    assert_true(isnan(ups_sample_dt(&sample)));
    ups_sample_step_times(&sample, (double)NAN, 3, seconds);
    for (int k = 0; k < (FRAMES - 1) / 3; k++) assert_true(seconds[k] == time[3 * k + 3] - time[3 * k]);
}

static void a_single_frame_has_no_step(void **state) {
    (void)state;
    const double time = 1;
    const ups_sample sample = {.times = 1, .time = &time};
    assert_true(isnan(ups_sample_dt(&sample)));
}

static void samples_have_the_same_times_but_for_rounding_and_where_they_begin(void **state) {
    (void)state;
    double time[FRAMES], later[FRAMES], faster[FRAMES], unlike[FRAMES];
    const ups_sample sample = sample_of(time, 0, 0.05, 0.5), same = sample_of(later, 700, 0.05, 0.5),
                     other = sample_of(faster, 0, 0.0501, 0.5);
    assert_true(ups_samples_have_same_times(&sample, &same));
    assert_false(ups_samples_have_same_times(&sample, &other));
    ups_sample longer_first = sample_of(unlike, 0, 0.05, 0.5); /* as long in all, other steps between */
    for (int f = 1; f < FRAMES - 1; f++) unlike[f] = time[FRAMES - 1] - time[FRAMES - 1 - f] + 0.01;
    assert_false(ups_samples_have_same_times(&sample, &longer_first));
    longer_first.times = FRAMES - 1;
    assert_false(ups_samples_have_same_times(&sample, &longer_first));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_times_have_one_length_of_a_step),
        cmocka_unit_test(steps_that_differ_are_taken_as_they_are),
        cmocka_unit_test(a_single_frame_has_no_step),
        cmocka_unit_test(samples_have_the_same_times_but_for_rounding_and_where_they_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
