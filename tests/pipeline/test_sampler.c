/* The sampler's claims: each sample once an epoch, shares kept at every prefix, the same order on any number of ranks,
 * at ten samples and at 10^12. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/interleave.h"
#include "pipeline/sampler.h"

static ups_sampler *make(ups_sampler_strategy strategy, int64_t block, const ups_sampler_task *tasks, int32_t count) {
    ups_sampler_options options = {.seed = 7, .strategy = strategy, .windows_per_draw = 4, .block = block};
    ups_sampler *sampler = NULL;
    ups_error error = {0};
    ups_status status = ups_sampler_create(&options, tasks, count, &sampler, &error);
    if (status != UPS_OK) fail_msg("%s", error.message);
    return sampler;
}

static void proportional_visits_every_sample_exactly_once_an_epoch(void **state) {
    (void)state;
    const ups_sampler_task tasks[] = {
        {.samples = 10, .starts = 3}, {.samples = 1, .starts = 3}, {.samples = 487, .starts = 1}};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, tasks, 3);
    assert_int_equal(ups_sampler_epoch_draws(sampler), 498);
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
    (void)state;
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

static void an_epoch_of_blocks_has_seen_every_sample(void **state) {
    (void)state;
    const ups_sampler_task tasks[] = {{.samples = 10, .starts = 3}, {.samples = 33, .starts = 3}};
    for (int strategy = UPS_SAMPLER_PROPORTIONAL; strategy <= (int)UPS_SAMPLER_BALANCED; strategy++) {
        ups_sampler *sampler = make((ups_sampler_strategy)strategy, 4, tasks, 2);
        int seen[2][33] = {{0}};
        int64_t draws = ups_sampler_epoch_draws(sampler);
        for (int64_t p = 0; p < draws; p++)
            seen[ups_sampler_draw(sampler, p).task][ups_sampler_draw(sampler, p).sample]++;
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < tasks[k].samples; i++) assert_true(seen[k][i] >= 1);
        assert_true(draws <= 4 * 18 + 4); /* 9 blocks of the larger task, as many of the other */
        ups_sampler_destroy(sampler);
    }
}

static void epochs_differ_in_order_and_so_do_seeds(void **state) {
    (void)state;
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
    (void)state;
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
    (void)state;
    const int64_t huge = 1000000000000;
    const ups_sampler_task tasks[] = {{.samples = huge, .starts = 200}, {.samples = 3 * huge, .starts = 200}};
    ups_sampler *sampler = make(UPS_SAMPLER_PROPORTIONAL, 1, tasks, 2);
    assert_int_equal(ups_sampler_epoch_draws(sampler), 4 * huge);
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
    (void)state;
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
    (void)state;
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
    (void)state;
    const int64_t counts[] = {5000, 1, 170, 2300, 2300, 11, 900};
    ups_interleave *interleave = NULL;
    assert_int_equal(ups_interleave_exact(counts, 7, &interleave, NULL), UPS_OK);
    int64_t total = 10682, had[7] = {0};
    for (int64_t t = 0; t < 2 * total; t++) {
        ups_turn turn = ups_interleave_at(interleave, t);
        assert_int_equal(turn.count, had[turn.task]);
        had[turn.task]++;
        assert_int_equal(ups_interleave_turns(interleave, turn.task, turn.count + 1), t + 1);
        for (int k = 0; k < 7; k++) assert_true(llabs(had[k] * total - (t + 1) * counts[k]) < 2 * total);
    }
    for (int k = 0; k < 7; k++) assert_int_equal(had[k], 2 * counts[k]);
    ups_interleave_destroy(interleave);
}

static void the_global_order_is_the_same_on_1_2_3_and_8_ranks(void **state) {
    (void)state;
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

static void the_windows_of_a_draw_start_at_distinct_frames(void **state) {
    (void)state;
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
    (void)state;
    ups_sampler_options options = {.strategy = UPS_SAMPLER_BALANCED, .windows_per_draw = 1, .block = 1};
    ups_sampler *sampler = NULL;
    ups_error error = {0};
    ups_sampler_task task = {.samples = 0, .starts = 1};
    assert_int_equal(ups_sampler_create(&options, &task, 1, &sampler, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "0 samples"));
    task = (ups_sampler_task){.samples = 3, .starts = 1, .weight = -1.0};
    assert_int_equal(ups_sampler_create(&options, &task, 1, &sampler, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "weight -1"));
    assert_int_equal(ups_sampler_create(&options, &task, 0, &sampler, &error), UPS_ERR_ARGUMENT);
    assert_null(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportional_visits_every_sample_exactly_once_an_epoch),
        cmocka_unit_test(blocks_keep_one_task_and_still_visit_every_sample_evenly),
        cmocka_unit_test(an_epoch_of_blocks_has_seen_every_sample),
        cmocka_unit_test(epochs_differ_in_order_and_so_do_seeds),
        cmocka_unit_test(every_sample_is_as_likely_as_another_in_every_place),
        cmocka_unit_test(a_million_million_samples_need_no_more_memory_than_ten),
        cmocka_unit_test(balanced_is_within_one_draw_of_the_share_at_every_prefix),
        cmocka_unit_test(whole_number_weights_are_met_exactly),
        cmocka_unit_test(proportional_spreads_tasks_evenly_over_the_epoch),
        cmocka_unit_test(the_global_order_is_the_same_on_1_2_3_and_8_ranks),
        cmocka_unit_test(the_windows_of_a_draw_start_at_distinct_frames),
        cmocka_unit_test(impossible_tasks_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
