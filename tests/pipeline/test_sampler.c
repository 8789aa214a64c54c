/* The sampler's claims: each sample once an epoch, shares kept at every prefix, the same order on any number of ranks,
 * at ten samples and at 10^12. */

#include "pipeline/sampling/interleave.h"
#include "pipeline/sampling/sampler.h"
#include "tests/base/testing.h"

static ups_sampler *make(ups_sampler_strategy strategy, int64_t block, const ups_sampler_task *tasks, int32_t count) {
    ups_sampler_options options = {.seed = 7, .strategy = strategy, .windows_per_draw = 4, .block = block};
    ups_sampler *sampler = NULL;
    ups_error error = {0};
    ups_status status = ups_sampler_create(&options, tasks, count, &sampler, &error);
    if (status != UPS_OK) fail_msg("%s", error.message);
    return sampler;
}

static void proportional_visits_every_sample_exactly_once_an_epoch(void **state) {
    const ups_sampler_task tasks[] = {
        {.samples = 10, .starts = 3}, {.samples = 1, .starts = 3}, {.samples = 487, .starts = 1}};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, tasks, 3);
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        int seen[3][487] = {{0}};
        for (int64_t p = epoch * 498; p < (epoch + 1) * 498; p++) {
            ups_draw draw = ups_sampler_draw(sampler, p);
            assert_int_equal(draw.epoch, epoch);
            assert_in_range(draw.sample, 0, tasks[draw.task].samples - 1);
            seen[draw.task][draw.sample]++;
        }
        for (int k = 0; k < 3; k++)
            for (int64_t i = 0; i < tasks[k].samples; i++) assert_int_equal(seen[k][i], 1);
    }
    ups_sampler_destroy(sampler);
}

static void blocks_keep_one_task_and_still_visit_every_sample_evenly(void **state) {
    const ups_sampler_task tasks[] = {{.samples = 10, .starts = 3}, {.samples = 33, .starts = 3}};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 8, tasks, 2);
    int seen[2][33] = {{0}};
    int64_t draws = 8 * 43; /* eight epochs: the weights come out even again */
    for (int64_t p = 0; p < draws; p++) {
        ups_draw draw = ups_sampler_draw(sampler, p);
        assert_int_equal(draw.task, ups_sampler_draw(sampler, p - p % 8).task);
        seen[draw.task][draw.sample]++;
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < tasks[k].samples; i++) assert_int_equal(seen[k][i], 8);
    ups_sampler_destroy(sampler);
}

static void epochs_differ_in_order_and_so_do_seeds(void **state) {
    const ups_sampler_task task = {.samples = 100, .starts = 1};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, &task, 1);
    ups_sampler_options other = {.seed = 8, .windows_per_draw = 1, .block = 1};
    ups_sampler *reseeded = NULL;
    assert_int_equal(ups_sampler_create(&other, &task, 1, &reseeded, NULL), UPS_OK);
    int same_epoch = 0, same_seed = 0;
    for (int64_t p = 0; p < 100; p++) {
        int64_t sample = ups_sampler_draw(sampler, p).sample;
        same_epoch += sample == ups_sampler_draw(sampler, p + 100).sample;
        same_seed += sample == ups_sampler_draw(reseeded, p).sample;
    }
    assert_true(same_epoch < 10); /* one expected */
    assert_true(same_seed < 10);
    ups_sampler_destroy(sampler);
    ups_sampler_destroy(reseeded);
}

static void every_sample_is_as_likely_as_another_in_every_place(void **state) {
    const ups_sampler_task task = {.samples = 10, .starts = 1};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, &task, 1);
    int counts[10][10] = {{0}};
    for (int64_t epoch = 0; epoch < 10000; epoch++)
        for (int64_t place = 0; place < 10; place++)
            counts[place][ups_sampler_draw(sampler, epoch * 10 + place).sample]++;
    for (int place = 0; place < 10; place++)
        for (int sample = 0; sample < 10; sample++) assert_in_range(counts[place][sample], 850, 1150); /* 1000 ± 5σ */
    ups_sampler_destroy(sampler);
}

static void a_million_million_samples_need_no_more_memory_than_ten(void **state) {
    const int64_t huge = 1000000000000;
    const ups_sampler_task tasks[] = {{.samples = huge, .starts = 200}, {.samples = 3 * huge, .starts = 200}};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, tasks, 2);
    const int64_t window = 20000;
    static int64_t seen[20000];
    int64_t of_first = 0, far = 2 * huge + 12345;
    for (int64_t p = 0; p < window; p++) {
        ups_draw draw = ups_sampler_draw(sampler, far + p);
        assert_in_range(draw.sample, 0, tasks[draw.task].samples - 1);
        assert_int_equal(draw.epoch, 0);
        if (draw.task == 0) seen[of_first++] = draw.sample;
    }
    assert_in_range(of_first, window / 4 - 1, window / 4 + 1);
    int64_t low = 0;
    for (int64_t i = 0; i < of_first; i++) {
        low += seen[i] < huge / 2;
        for (int64_t j = i + 1; j < of_first && j < i + 100; j++) assert_int_not_equal(seen[i], seen[j]);
    }
    assert_in_range(low, of_first / 2 - 200, of_first / 2 + 200);
    assert_int_equal(ups_sampler_draw(sampler, 4 * huge + 1).epoch, 1);
    ups_sampler_destroy(sampler);
}

/* Counts every prefix from `from` on and compares with the target. */
static void check_shares(const double *weights, int32_t n, int64_t from, int64_t turns) {
    ups_interleave *interleave = NULL;
    ups_error error = {0};
    assert_int_equal(ups_interleave_shares(weights, n, &interleave, &error), UPS_OK);
    double total = 0;
    for (int32_t k = 0; k < n; k++) total += weights[k];
    int64_t had[16] = {0}, numerator[16], period = 1;
    for (int32_t k = 0; k < n; k++) {
        ups_interleave_share(interleave, k, &numerator[k], &period);
        assert_true((double)numerator[k] / (double)period - weights[k] / total < 2.0 * n / UPS_INTERLEAVE_PERIOD);
        assert_true(weights[k] / total - (double)numerator[k] / (double)period < 2.0 * n / UPS_INTERLEAVE_PERIOD);
        for (int64_t t = from; t < from + 4 * period && had[k] == 0; t++) {
            ups_turn turn = ups_interleave_at(interleave, t);
            if (turn.task == k) had[k] = turn.count + 1; /* counts from here on, made absolute below */
        }
        had[k]--;
    }
    for (int64_t t = from; t < from + turns; t++) {
        ups_turn turn = ups_interleave_at(interleave, t);
        assert_int_equal(turn.count, had[turn.task]);
        had[turn.task]++;
        for (int32_t k = 0; k < n; k++) {
            __int128 ahead = (__int128)had[k] * period - (__int128)(t + 1) * numerator[k];
            assert_true(ahead < period && ahead > -period);
        }
    }
    ups_interleave_destroy(interleave);
}

static void balanced_is_within_one_draw_of_the_share_at_every_prefix(void **state) {
    const double equal[] = {1, 1, 1}, many[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, uneven[] = {0.1, 0.2, 0.7},
                 lopsided[] = {1000, 1, 1, 3, 7},
                 odd[] = {1.4142135623730951, 3.141592653589793, 2.718281828459045, 0.01};
    for (int64_t from = 0; from <= 1000000000000; from += 1000000000000) {
        check_shares(equal, 3, from, 3000);
        check_shares(many, 13, from, 3000);
        check_shares(uneven, 3, from, 3000);
        check_shares(lopsided, 5, from, 3000);
        check_shares(odd, 4, from, 140000);
    }
}

static void whole_number_weights_are_met_exactly(void **state) {
    const double weights[] = {0.1, 0.2, 0.7};
    ups_interleave *interleave = NULL;
    assert_int_equal(ups_interleave_shares(weights, 3, &interleave, NULL), UPS_OK);
    int64_t numerator, denominator;
    ups_interleave_share(interleave, 2, &numerator, &denominator);
    assert_int_equal(numerator, 7);
    assert_int_equal(denominator, 10);
    ups_interleave_destroy(interleave);
}

static void proportional_spreads_tasks_evenly_over_the_epoch(void **state) {
    const int64_t counts[] = {5000, 1, 170, 2300, 2300, 11, 900};
    ups_interleave *interleave = NULL;
    assert_int_equal(ups_interleave_exact(counts, 7, &interleave, NULL), UPS_OK);
    int64_t total = 10682, had[7] = {0};
    for (int64_t t = 0; t < 2 * total; t++) {
        ups_turn turn = ups_interleave_at(interleave, t);
        assert_int_equal(turn.count, had[turn.task]);
        had[turn.task]++;
        assert_int_equal(ups_interleave_count(interleave, turn.task, t), turn.count);
        assert_int_equal(ups_interleave_count(interleave, turn.task, t + 1), turn.count + 1);
        for (int k = 0; k < 7; k++) assert_true(llabs(had[k] * total - (t + 1) * counts[k]) < 2 * total);
    }
    for (int k = 0; k < 7; k++) assert_int_equal(had[k], 2 * counts[k]);
    ups_interleave_destroy(interleave);
}

static void the_global_order_is_the_same_on_1_2_3_and_8_ranks(void **state) {
    const ups_sampler_task tasks[] = {{.samples = 1000, .starts = 99}, {.samples = 31, .starts = 50}};
    ups_sampler *sampler = make(UPS_SAMPLER_BALANCED, 1, tasks, 2);
    const int64_t draws = 48;
    const int32_t ranks[] = {1, 2, 3, 8};
    for (int64_t batch = 0; batch < 20; batch++)
        for (int r = 0; r < 4; r++) {
            int64_t global = batch * draws; /* what one rank sees, in order */
            for (int32_t rank = 0; rank < ranks[r]; rank++)
                for (int64_t d = 0; d < draws / ranks[r]; d++, global++) {
                    int64_t position = ups_sampler_position(batch, draws, rank, ranks[r], d);
                    assert_int_equal(position, global);
                    ups_draw here = ups_sampler_draw(sampler, position), alone = ups_sampler_draw(sampler, global);
                    assert_memory_equal(&here.sample, &alone.sample, sizeof here.sample);
                }
            assert_int_equal(global, (batch + 1) * draws);
        }
    ups_sampler_destroy(sampler);
}

static void temperature_lies_between_proportional_and_balanced(void **state) {
    const ups_sampler_task tasks[] = {
        {.samples = 100, .starts = 1}, {.samples = 10000, .starts = 1}, {.samples = 10000, .starts = 1, .weight = 3}};
    ups_sampler_options options = {.strategy = UPS_SAMPLER_TEMPERATURE, .windows_per_draw = 1, .block = 1};
    double weights[3];
    options.temperature = 1;
    ups_sampler_weights(&options, tasks, 3, weights);
    assert_true(weights[0] == 100 && weights[1] == 10000 && weights[2] == 30000);
    options.temperature = 2;
    ups_sampler_weights(&options, tasks, 3, weights);
    assert_true(weights[0] == 10 && weights[1] == 100 && weights[2] == 300);
    options.temperature = 1e9;
    ups_sampler_weights(&options, tasks, 3, weights);
    assert_true(weights[1] / weights[0] < 1.001 && weights[2] / weights[1] > 2.999);

    options.temperature = 2;
    ups_sampler *sampler = NULL;
    assert_int_equal(ups_sampler_create(&options, tasks, 3, &sampler, NULL), UPS_OK);
    int64_t had[3] = {0};
    for (int64_t p = 0; p < 41000; p++) {
        had[ups_sampler_draw(sampler, p).task]++;
        for (int k = 0; k < 3; k++) { /* shares 1 : 10 : 30 */
            int64_t ahead = had[k] * 41 - (p + 1) * (int64_t)(k == 0 ? 1 : k == 1 ? 10 : 30);
            assert_true(llabs(ahead) < 41);
        }
    }
    ups_sampler_destroy(sampler);
}

static void shares_are_the_nearest_that_sum_to_their_fixed_total_and_leave_no_task_out(void **state) {
    const double weights[][4] = {{1, 1, 1, 0}, {1e9, 1, 1, 1e-9}, {0.3, 0.3, 0.3, 0.1}, {5, 0, 0, 0}};
    for (int i = 0; i < 4; i++) {
        int32_t shares[4];
        double total = 0;
        int64_t sum = 0;
        ups_sampler_shares(weights[i], 4, shares);
        for (int k = 0; k < 4; k++) total += weights[i][k];
        for (int k = 0; k < 4; k++) {
            double wanted = weights[i][k] / total * UPS_SAMPLER_SHARES;
            sum += shares[k];
            assert_int_equal(shares[k] > 0, weights[i][k] > 0);
            assert_true(shares[k] - wanted < 1.001 && wanted - shares[k] < 3.001); /* what the small ones are given */
        }
        assert_int_equal(sum, UPS_SAMPLER_SHARES);
    }
}

/* ---- phases ---- */

static const ups_sampler_task three[] = {
    {.samples = 50, .starts = 9}, {.samples = 31, .starts = 9}, {.samples = 400, .starts = 9}};
static const int32_t phase_shares[][3] = {{0, 4095, 1}, {1365, 1365, 1366}, {1000, 0, 3096}, {0, 0, 7}, {1, 2, 3}};
static const int64_t phase_positions[] = {0, 480, 96 * 48, 96 * 49, 96 * 70};
enum { PHASES = 5, PHASED_DRAWS = 96 * 100 };

static ups_status add(ups_sampler *sampler, int i, ups_error *error) {
    return ups_sampler_add_phase(sampler, &(ups_sampler_phase){phase_positions[i], phase_shares[i]}, error);
}

static ups_sampler *make_phased(int64_t block, int phases) {
    ups_sampler *sampler = make(UPS_SAMPLER_DIFFICULTY, block, three, 3);
    ups_error error = {0};
    for (int i = 0; i < phases; i++)
        if (add(sampler, i, &error) != UPS_OK) fail_msg("%s", error.message);
    return sampler;
}

static void every_prefix_of_a_phase_is_within_one_block_of_its_shares(void **state) {
    for (int64_t block = 1; block <= 48; block += 47) {
        ups_sampler *sampler = make_phased(block, PHASES);
        for (int i = 0; i < PHASES; i++) {
            int64_t end = i + 1 < PHASES ? phase_positions[i + 1] : PHASED_DRAWS, had[3] = {0}, sum = 0;
            for (int k = 0; k < 3; k++) sum += phase_shares[i][k];
            for (int64_t p = phase_positions[i]; p < end; p += block) {
                had[ups_sampler_draw(sampler, p).task]++;
                int64_t turns = (p - phase_positions[i]) / block + 1;
                for (int k = 0; k < 3; k++) assert_true(llabs(had[k] * sum - turns * phase_shares[i][k]) < sum);
            }
        }
        ups_sampler_destroy(sampler);
    }
}

static void tasks_go_on_in_their_permutations_across_phases(void **state) {
    for (int64_t block = 1; block <= 48; block += 47) {
        ups_sampler *sampler = make_phased(block, PHASES);
        int64_t had[3] = {0}, seen[3][400] = {{0}};
        for (int64_t p = 0; p < PHASED_DRAWS; p++) {
            ups_draw draw = ups_sampler_draw(sampler, p);
            assert_int_equal(draw.task, ups_sampler_draw(sampler, p - p % block).task);
            assert_int_equal(draw.epoch, had[draw.task] / three[draw.task].samples);
            assert_int_equal(seen[draw.task][draw.sample]++, draw.epoch); /* once an epoch */
            had[draw.task]++;
        }
        ups_sampler_destroy(sampler);
    }
}

static void phases_added_as_the_run_goes_on_make_the_order_that_they_make_when_known_before(void **state) {
    const int64_t lead = 96; /* each is settled this long before it begins, or later */
    ups_sampler *known = make_phased(48, PHASES), *growing = make_phased(48, 1);
    int added = 1;
    for (int64_t p = 0; p < PHASED_DRAWS; p++) {
        while (added < PHASES && phase_positions[added] <= p + lead)
            assert_int_equal(add(growing, added++, NULL), UPS_OK);
        if (p % 480 == 0) ups_sampler_forget(growing, p);
        ups_draw a = ups_sampler_draw(known, p), b = ups_sampler_draw(growing, p);
        assert_true(a.task == b.task && a.sample == b.sample && a.epoch == b.epoch);
        assert_int_equal(ups_sampler_start(known, p, 1), ups_sampler_start(growing, p, 1));
    }
    ups_sampler_destroy(known);
    ups_sampler_destroy(growing);
}

static void a_run_resumed_anywhere_from_its_phases_goes_on_as_if_it_had_not_stopped(void **state) {
    ups_sampler *whole = make_phased(1, PHASES);
    for (int64_t stop = 0; stop < PHASED_DRAWS; stop += 333) {
        ups_sampler *resumed = make_phased(1, PHASES);
        ups_sampler_forget(resumed, stop);
        for (int64_t p = stop; p < stop + 100; p++) {
            ups_draw a = ups_sampler_draw(whole, p), b = ups_sampler_draw(resumed, p);
            assert_true(a.task == b.task && a.sample == b.sample && a.epoch == b.epoch);
        }
        ups_sampler_destroy(resumed);
    }
    ups_sampler_destroy(whole);
}

static void phases_are_the_same_on_1_2_3_and_8_ranks(void **state) {
    const int64_t draws = 48;
    const int32_t ranks[] = {1, 2, 3, 8};
    ups_sampler *alone = make_phased(draws, PHASES);
    for (int r = 0; r < 4; r++)
        for (int32_t rank = 0; rank < ranks[r]; rank++) {
            ups_sampler *sampler = make_phased(draws, PHASES); /* every rank's own */
            for (int64_t batch = 0; batch < PHASED_DRAWS / draws; batch++)
                for (int64_t d = 0; d < draws / ranks[r]; d++) {
                    int64_t position = ups_sampler_position(batch, draws, rank, ranks[r], d);
                    ups_draw a = ups_sampler_draw(alone, batch * draws + rank * (draws / ranks[r]) + d);
                    ups_draw b = ups_sampler_draw(sampler, position);
                    assert_true(a.task == b.task && a.sample == b.sample && a.epoch == b.epoch);
                }
            ups_sampler_destroy(sampler);
        }
    ups_sampler_destroy(alone);
}

static void phases_that_would_make_two_orders_are_refused(void **state) {
    ups_sampler *sampler = make_phased(48, 1);
    ups_error error = {0};
    const int32_t none[3] = {0}, negative[3] = {2, -1, 2}, many[3] = {UPS_SAMPLER_SHARES, 1, 0};
    ups_sampler_draw(sampler, 500);
    assert_int_equal(add(sampler, 1, &error), UPS_ERR_ARGUMENT); /* 480 */
    assert_contains(error.message, "begins at draw 480, but draws up to 500 were made");
    const ups_sampler_phase within = {48 * 20 + 1, phase_shares[1]}, empty = {48 * 20, none};
    assert_fails(ups_sampler_add_phase(sampler, &within, &error), UPS_ERR_ARGUMENT, error, "within a block of 48");
    assert_fails(ups_sampler_add_phase(sampler, &empty, &error), UPS_ERR_ARGUMENT, error, "no task");
    assert_int_equal(ups_sampler_add_phase(sampler, &(ups_sampler_phase){48 * 20, negative}, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_sampler_add_phase(sampler, &(ups_sampler_phase){48 * 20, many}, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(add(sampler, 2, &error), UPS_OK);
    assert_int_equal(ups_sampler_add_phase(sampler, &(ups_sampler_phase){48 * 20, phase_shares[1]}, &error),
                     UPS_ERR_ARGUMENT); /* before the last */
    ups_sampler_destroy(sampler);
}

static void the_windows_of_a_draw_start_at_distinct_frames(void **state) {
    const ups_sampler_task tasks[] = {{.samples = 10, .starts = 5}, {.samples = 10, .starts = 3}};
    ups_sampler *sampler = make(UPS_SAMPLER_BALANCED, 1, tasks, 2);
    int histogram[5] = {0};
    for (int64_t p = 0; p < 2000; p++) {
        int32_t task = ups_sampler_draw(sampler, p).task;
        int64_t starts = tasks[task].starts;
        int seen[5] = {0};
        for (int64_t w = 0; w < 4; w++) {
            int64_t start = ups_sampler_start(sampler, p, w);
            assert_in_range(start, 0, starts - 1);
            seen[start]++;
            if (task == 0) histogram[start]++;
        }
        for (int64_t s = 0; s < starts; s++) assert_true(seen[s] <= (starts == 5 ? 1 : 2));
        if (starts == 3)
            assert_int_equal(seen[0] * seen[1] * seen[2], 2); /* four windows on three frames: all of them used */
    }
    for (int s = 0; s < 5; s++) assert_in_range(histogram[s], 720, 880); /* 800 each */
    ups_sampler_destroy(sampler);
}

static void impossible_tasks_are_refused_with_a_sentence(void **state) {
    ups_sampler_options options = {.strategy = UPS_SAMPLER_BALANCED, .windows_per_draw = 1, .block = 1};
    ups_sampler *sampler = NULL;
    ups_error error = {0};
    ups_sampler_task task = {.samples = 0, .starts = 1};
    assert_fails(ups_sampler_create(&options, &task, 1, &sampler, &error), UPS_ERR_ARGUMENT, error, "0 samples");
    task = (ups_sampler_task){.samples = 3, .starts = 1, .weight = -1.0};
    assert_fails(ups_sampler_create(&options, &task, 1, &sampler, &error), UPS_ERR_ARGUMENT, error, "weight -1");
    assert_int_equal(ups_sampler_create(&options, &task, 0, &sampler, &error), UPS_ERR_ARGUMENT);
    assert_null(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportional_visits_every_sample_exactly_once_an_epoch),
        cmocka_unit_test(blocks_keep_one_task_and_still_visit_every_sample_evenly),
        cmocka_unit_test(epochs_differ_in_order_and_so_do_seeds),
        cmocka_unit_test(every_sample_is_as_likely_as_another_in_every_place),
        cmocka_unit_test(a_million_million_samples_need_no_more_memory_than_ten),
        cmocka_unit_test(balanced_is_within_one_draw_of_the_share_at_every_prefix),
        cmocka_unit_test(whole_number_weights_are_met_exactly),
        cmocka_unit_test(proportional_spreads_tasks_evenly_over_the_epoch),
        cmocka_unit_test(the_global_order_is_the_same_on_1_2_3_and_8_ranks),
        cmocka_unit_test(temperature_lies_between_proportional_and_balanced),
        cmocka_unit_test(shares_are_the_nearest_that_sum_to_their_fixed_total_and_leave_no_task_out),
        cmocka_unit_test(every_prefix_of_a_phase_is_within_one_block_of_its_shares),
        cmocka_unit_test(tasks_go_on_in_their_permutations_across_phases),
        cmocka_unit_test(phases_added_as_the_run_goes_on_make_the_order_that_they_make_when_known_before),
        cmocka_unit_test(a_run_resumed_anywhere_from_its_phases_goes_on_as_if_it_had_not_stopped),
        cmocka_unit_test(phases_are_the_same_on_1_2_3_and_8_ranks),
        cmocka_unit_test(phases_that_would_make_two_orders_are_refused),
        cmocka_unit_test(the_windows_of_a_draw_start_at_distinct_frames),
        cmocka_unit_test(impossible_tasks_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
