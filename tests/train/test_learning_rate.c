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

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
