/* Learning-rate schedules: what each step's rate is, whatever was run before it. */
#include "tests/model/claims.h"
#include "train/learning_rate.h"

#include <math.h>

static ups_optimizer_config config(ups_schedule_kind kind, int64_t warmup) {
    return (ups_optimizer_config){
        .learning_rate = 0.5, .schedule = kind, .warmup_steps = warmup, .final_fraction = 0.1};
}

static void close_to(double found, double expected) {
    if (!(fabs(found - expected) <= 1e-12)) fail_msg("%.15g where %.15g was expected", found, expected);
}

CLAIM(the_warm_up_rises_evenly_and_ends_at_the_peak) {
    ups_optimizer_config c = config(UPS_SCHEDULE_COSINE, 5);
    for (int64_t step = 0; step < 5; step++) close_to(ups_schedule_rate(&c, step, 100, 0), 0.1 * (double)(step + 1));
    close_to(ups_schedule_rate(&c, 5, 100, 0), 0.5);
}

CLAIM(a_constant_schedule_stays_at_the_peak) {
    ups_optimizer_config c = config(UPS_SCHEDULE_CONSTANT, 5);
    close_to(ups_schedule_rate(&c, 5, 100, 0), 0.5);
    close_to(ups_schedule_rate(&c, 99, 100, 0), 0.5);
}

CLAIM(the_cosine_is_half_way_down_in_the_middle_and_ends_at_its_share) {
    ups_optimizer_config c = config(UPS_SCHEDULE_COSINE, 10);
    close_to(ups_schedule_rate(&c, 10, 111, 0), 0.5);
    close_to(ups_schedule_rate(&c, 60, 111, 0), 0.5 * (0.1 + 0.9 * 0.5));
    close_to(ups_schedule_rate(&c, 110, 111, 0), 0.05);
    for (int64_t step = 10; step < 110; step++) {
        assert_true(ups_schedule_rate(&c, step + 1, 111, 0) < ups_schedule_rate(&c, step, 111, 0));
    }
}

CLAIM(beyond_the_last_step_the_rate_stays_where_the_cosine_ended) {
    ups_optimizer_config c = config(UPS_SCHEDULE_COSINE, 10);
    close_to(ups_schedule_rate(&c, 500, 111, 0), 0.05);
}

CLAIM(runs_shorter_than_the_warm_up_still_rise_to_the_peak) {
    ups_optimizer_config c = config(UPS_SCHEDULE_COSINE, 100);
    close_to(ups_schedule_rate(&c, 0, 4, 0), 0.125);
    close_to(ups_schedule_rate(&c, 3, 4, 0), 0.5);
    close_to(ups_schedule_rate(&c, 0, 1, 0), 0.5);
}

CLAIM(without_a_warm_up_the_first_step_has_the_peak_rate) {
    ups_optimizer_config c = config(UPS_SCHEDULE_COSINE, 0);
    close_to(ups_schedule_rate(&c, 0, 10, 0), 0.5);
    close_to(ups_schedule_rate(&c, 0, 1, 0), 0.5);
}

static ups_optimizer_config wsd(double fraction, ups_decay_shape shape) {
    ups_optimizer_config c = config(UPS_SCHEDULE_WSD, 5);
    c.decay_fraction = fraction;
    c.decay_shape = shape;
    return c;
}

CLAIM(wsd_stays_at_the_peak_until_its_decay_which_ends_at_its_share) {
    static const ups_decay_shape shapes[] = {UPS_DECAY_LINEAR, UPS_DECAY_SQRT};
    for (int i = 0; i < 2; i++) {
        ups_optimizer_config c = wsd(0.25, shapes[i]);
        assert_int_equal(ups_schedule_decay_start(&c, 100), 75);
        close_to(ups_schedule_rate(&c, 2, 100, 0), 0.3);
        close_to(ups_schedule_rate(&c, 5, 100, 0), 0.5);
        close_to(ups_schedule_rate(&c, 74, 100, 0), 0.5);
        double share = 10.0 / 25, left = 1 - (shapes[i] == UPS_DECAY_LINEAR ? share : sqrt(share));
        close_to(ups_schedule_rate(&c, 84, 100, 0), 0.5 * (0.1 + 0.9 * left));
        close_to(ups_schedule_rate(&c, 99, 100, 0), 0.05);
        close_to(ups_schedule_rate(&c, 500, 100, 0), 0.05);
        for (int64_t step = 74; step < 99; step++) {
            assert_true(ups_schedule_rate(&c, step + 1, 100, 0) < ups_schedule_rate(&c, step, 100, 0));
        }
    }
}

/* Up to where the shorter run's decay begins both saw the same rates: the longer one may go on from there. */
CLAIM(more_steps_change_no_rate_before_the_decay) {
    ups_optimizer_config c = wsd(0.2, UPS_DECAY_SQRT);
    for (int64_t steps = 10; steps < 200; steps++) {
        int64_t start = ups_schedule_decay_start(&c, steps);
        assert_true(start < steps && start <= ups_schedule_decay_start(&c, steps + 1));
        for (int64_t step = 0; step < start; step++) {
            assert_true(ups_schedule_rate(&c, step, steps, 0) == ups_schedule_rate(&c, step, steps + 7, 0));
        }
    }
}

CLAIM(a_decay_has_one_step_at_least_and_of_other_schedules_none) {
    ups_optimizer_config c = wsd(0.001, UPS_DECAY_LINEAR);
    assert_int_equal(ups_schedule_decay_start(&c, 10), 9);
    close_to(ups_schedule_rate(&c, 9, 10, 0), 0.05);
    c.decay_fraction = 1;
    assert_int_equal(ups_schedule_decay_start(&c, 10), 0);
    c.schedule = UPS_SCHEDULE_COSINE;
    assert_int_equal(ups_schedule_decay_start(&c, 10), 10);
}

static ups_optimizer_config plateau(void) {
    ups_optimizer_config c = config(UPS_SCHEDULE_PLATEAU, 5);
    c.plateau_factor = 0.5;
    c.plateau_patience = 2;
    return c;
}

CLAIM(the_rate_is_halved_by_each_cut_and_ends_at_its_share) {
    ups_optimizer_config c = plateau();
    const double expected[] = {0.5, 0.25, 0.125, 0.0625, 0.05, 0.05};
    for (int64_t cuts = 0; cuts < 6; cuts++) close_to(ups_schedule_rate(&c, 50, 100, cuts), expected[cuts]);
    close_to(ups_schedule_rate(&c, 1, 100, 3), 0.2); /* the warm-up is what it is */
}

CLAIM(a_plateau_is_patience_validations_in_a_row_without_a_better_score) {
    static const struct {
        double score;
        bool cuts;
        int64_t stale;
    } validations[] = {{1, false, 0},    {1, false, 1},  {0.9, false, 0}, {NAN, false, 0},
                       {0.95, false, 1}, {0.9, true, 0}, {0.9, false, 1}, {0.8, false, 0},
                       {0.8, false, 1},  {0.8, true, 0}, {0.5, false, 0}, {0.6, false, 1}};
    ups_optimizer_config c = plateau();
    ups_plateau p = {0};
    int64_t cuts = 0;
    for (size_t i = 0; i < sizeof validations / sizeof *validations; i++) {
        assert_int_equal(ups_plateau_note(&p, &c, 0, 10, validations[i].score), validations[i].cuts);
        cuts += validations[i].cuts;
        assert_int_equal(p.cuts, cuts);
        assert_int_equal(p.stale, validations[i].stale);
    }
}

CLAIM(only_a_score_that_is_lower_by_min_delta_delays_a_cut) {
    ups_optimizer_config c = plateau();
    ups_plateau p = {0};
    assert_false(ups_plateau_note(&p, &c, 0.1, 10, 1));
    assert_false(ups_plateau_note(&p, &c, 0.1, 10, 0.95));
    assert_true(ups_plateau_note(&p, &c, 0.1, 10, 0.92));
    close_to(p.best, 1);
}

CLAIM(in_the_warm_up_at_the_least_rate_and_by_other_schedules_nothing_is_cut) {
    ups_optimizer_config c = plateau();
    ups_plateau p = {0};
    for (int i = 0; i < 9; i++) assert_false(ups_plateau_note(&p, &c, 0, 4, 1));
    assert_int_equal(p.stale, 0);
    p.cuts = 4; /* at 0.05 */
    for (int i = 0; i < 9; i++) assert_false(ups_plateau_note(&p, &c, 0, 10, 1));
    p = (ups_plateau){0};
    c.schedule = UPS_SCHEDULE_COSINE;
    for (int i = 0; i < 9; i++) assert_false(ups_plateau_note(&p, &c, 0, 10, 1));
    assert_false(p.begun);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
