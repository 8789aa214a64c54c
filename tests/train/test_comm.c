/* What processes that train together exchange, held against sums by hand: `mpirun -n 3 test_comm`. Every process runs
 * the same claims; one that fails ends all. */
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "base/system/threads.h"
#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "train/comm/exchange.h"
#include "train/comm/seat.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 240 /* seconds: an exchange that somebody does not come to would never end */, PIECE = 1 << 20 };

static ups_comm *comm;
static int rank, size;

/* Of any rank and place; so different in size that another order of the sum has other bits. */
static float term(int64_t of, int64_t i) {
    static const float sizes[] = {1e8f, 1.0f, -1e8f, 0.37f, 3e4f};
    return sizes[(size_t)((of * 3 + i) % 5)] * (1.0f + 0.125f * (float)((i * 7 + of * 11) % 13));
}

/* By hand, of terms `first`, `first` + 1, … in order. */
static float sum_of(int64_t first, int64_t terms, int64_t i) {
    float sum = term(first, i);
    for (int64_t t = first + 1; t < first + terms; t++) sum += term(t, i);
    return sum;
}

static float *fill(int64_t of, int64_t count) {
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = term(of, i);
    return values;
}

static void assert_sums(const float *values, int64_t first, int64_t terms, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float expected = sum_of(first, terms, i);
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("element %lld of %lld is %.9g, not %.9g", (long long)i, (long long)count, (double)values[i],
                     (double)expected);
    }
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- exchanges ------------------------------------------------------------------------------------------------- */

static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 100, 1001, 40000};

CLAIM(sums_of_any_count_are_taken_in_the_order_of_ranks) {
    bool differs = false;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        float *values = fill(rank, counts[k]);
        ups_comm_sum(comm, values, counts[k]);
        ok(ups_comm_finish(comm, &failure));
        assert_sums(values, 0, size, counts[k]);
        for (int64_t i = 0; i < counts[k]; i++) differs |= values[i] != term(2, i) + term(1, i) + term(0, i);
        free(values);
    }
    assert_true(size < 3 || differs);
}

CLAIM(a_sum_of_nothing_is_nothing) {
    float value = 5;
    ups_comm_sum(comm, &value, 0);
    ok(ups_comm_finish(comm, &failure));
    assert_true(value == 5);
    assert_int_equal(ups_comm_slice(comm, 0), 0);
}

CLAIM(what_rank_0_has_all_have_after_a_broadcast) {
    for (int64_t bytes = 1; bytes < 100000; bytes = bytes * 5 + 2) {
        unsigned char *data = malloc((size_t)bytes);
        assert_non_null(data);
        for (int64_t i = 0; i < bytes; i++) data[i] = (unsigned char)(rank == 0 ? i * 31 + bytes : 0xee);
        ok(ups_comm_broadcast(comm, data, bytes, &failure));
        for (int64_t i = 0; i < bytes; i++) assert_int_equal(data[i], (unsigned char)(i * 31 + bytes));
        free(data);
    }
}

CLAIM(what_each_rank_has_all_have_in_the_order_of_ranks_after_a_gather) {
    int64_t own[] = {rank, 100 * rank + 7, -rank}, *all = malloc((size_t)size * sizeof own);
    assert_non_null(all);
    ok(ups_comm_gather(comm, own, all, sizeof own, &failure));
    for (int r = 0; r < size; r++) {
        assert_true(all[3 * r] == r && all[3 * r + 1] == 100 * r + 7 && all[3 * r + 2] == -r);
    }
    free(all);
}

CLAIM(slices_of_all_ranks_are_all_elements) {
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const int64_t own = ups_comm_slice(comm, counts[k]);
        int64_t *all = malloc((size_t)size * sizeof *all), sum = 0;
        assert_non_null(all);
        ok(ups_comm_gather(comm, &own, all, sizeof own, &failure));
        for (int r = 0; r < size; r++) sum += all[r];
        assert_int_equal(sum, counts[k]);
        free(all);
    }
}

CLAIM(rounds_are_added_term_by_term_and_collected_once) {
    enum { ROUNDS = 4 };
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        float *slice = malloc((size_t)(ups_comm_slice(comm, counts[k]) + 1) * sizeof *slice), *values = NULL;
        assert_non_null(slice);
        for (int round = 0; round < ROUNDS; round++) {
            free(values);
            values = fill(round * size + rank, counts[k]);
            ups_comm_add(comm, values, counts[k], slice, round == 0);
            ok(ups_comm_finish(comm, &failure));
        }
        ups_comm_collect(comm, slice, values, counts[k]);
        ok(ups_comm_finish(comm, &failure));
        assert_sums(values, 0, ROUNDS * size, counts[k]);
        free(values);
        free(slice);
    }
}

CLAIM(many_exchanges_are_under_way_at_once) {
    enum { MANY = 300, COUNT = 17 };
    float *values[MANY];
    for (int k = 0; k < MANY; k++) {
        values[k] = fill(rank + k, COUNT + k % 5);
        ups_comm_sum(comm, values[k], COUNT + k % 5);
    }
    ok(ups_comm_finish(comm, &failure));
    for (int k = 0; k < MANY; k++) {
        assert_sums(values[k], k, size, COUNT + k % 5);
        free(values[k]);
    }
}

CLAIM(an_exchange_begun_while_another_waits_comes_after_it) {
    for (int late = 0; late < size; late++) {
        float *first = fill(rank, 1001), *second = fill(rank + 5, 33);
        int64_t told = rank == 0 ? 77 + late : 0;
        if (rank == late) sleep_ms(40);
        ups_comm_sum(comm, first, 1001);
        ups_comm_sum(comm, second, 33);
        ok(ups_comm_broadcast(comm, &told, sizeof told, &failure)); /* waits for all three */
        assert_sums(first, 0, size, 1001);
        assert_sums(second, 5, size, 33);
        assert_int_equal(told, 77 + late);
        ok(ups_comm_barrier(comm, &failure));
        free(first);
        free(second);
    }
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* Pieces of uneven lengths, dealt to ranks in no order; every fifth piece is long. */
static ups_shares make_shares(int64_t count) {
    ups_shares shares = {.count = size, .pieces = calloc((size_t)count, sizeof *shares.pieces)};
    int32_t last = -1;
    assert_non_null(shares.pieces);
    for (int64_t at = 0, k = 0; at < count; k++) {
        int64_t length = k % 5 == 4 ? count / 3 + 1 : 1 + k * 7 % 61;
        int32_t share = (int32_t)((k * k + k / 3) % size);
        if (share == last) share = (share + 1) % size;
        if (length > count - at) length = count - at;
        shares.pieces[shares.piece_count++] = (ups_share_piece){at, length, share};
        at += length;
        last = share;
    }
    return shares;
}

static int32_t owner(const ups_shares *shares, int64_t element) {
    return shares->pieces[ups_shares_piece_at(shares, element)].share;
}

static void assert_number(float found, float expected, int64_t i) {
    if (memcmp(&found, &expected, sizeof found) != 0)
        fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)found, (double)expected);
}

CLAIM(each_rank_gets_the_sums_of_its_share_and_nothing_else_changes) {
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const int64_t count = counts[k], from = count / 5, some = count - from - count / 7;
        ups_shares shares = make_shares(count);
        float *values = fill(rank, count);
        ups_comm_reduce_scatter(comm, &shares, values + from, from, some);
        ok(ups_comm_finish(comm, &failure));
        for (int64_t i = 0; i < count; i++) {
            const bool summed = i >= from && i < from + some && owner(&shares, i) == rank;
            assert_number(values[i], summed ? sum_of(0, size, i) : term(rank, i), i);
        }
        free(values);
        ups_shares_free(&shares);
    }
}

CLAIM(what_each_rank_has_of_its_share_all_have_or_rank_0_has) {
    for (size_t k = 0; k < 2 * sizeof counts / sizeof *counts; k++) {
        const int64_t count = counts[k / 2], from = count / 4, some = count - from - count / 9;
        const bool brings = k % 2;
        ups_shares shares = make_shares(count);
        float *values = fill(rank, count);
        (brings ? ups_comm_bring : ups_comm_all_gather)(comm, &shares, values + from, from, some);
        ok(ups_comm_finish(comm, &failure));
        for (int64_t i = 0; i < count; i++) {
            const bool given = i >= from && i < from + some && (!brings || rank == 0);
            assert_number(values[i], term(given ? owner(&shares, i) : rank, i), i);
        }
        free(values);
        ups_shares_free(&shares);
    }
}

CLAIM(shares_of_more_than_a_run_are_exchanged_run_by_run) {
    const int64_t count = 2 * UPS_SHARE_RUN + 777;
    ups_shares shares = make_shares(count);
    float *values = fill(rank, count);
    ups_comm_reduce_scatter(comm, &shares, values, 0, count);
    ups_comm_all_gather(comm, &shares, values, 0, count);
    ok(ups_comm_finish(comm, &failure));
    assert_sums(values, 0, size, count);
    free(values);
    ups_shares_free(&shares);
}

/* ---- notices ----------------------------------------------------------------------------------------------------- */

/* Until the communicators have seen that nobody is asked to end. */
static void forget_signals(void) {
    ok(ups_comm_barrier(comm, &failure));
    ups_cancel_reset();
    sleep_ms(300);
    ups_cancel_reset();
    ok(ups_comm_barrier(comm, &failure));
}

CLAIM(a_signal_to_one_is_passed_on_to_all_whatever_they_do) {
    static const int signals[] = {SIGTERM, SIGINT};
    forget_signals();
    for (int who = 0; who < size; who++) {
        const int number = signals[who % 2];
        const double began = ups_now();
        assert_false(ups_cancel_requested());
        ok(ups_comm_barrier(comm, &failure));
        if (rank == who) ups_cancel_request_as(number);
        if (who == 2 && rank == 0) ok(ups_comm_barrier(comm, &failure)); /* while it waits for an exchange */
        while (!ups_cancel_requested() && ups_now() - began < 60) sleep_ms(1);
        assert_true(ups_cancel_requested());
        assert_int_equal(ups_cancel_signal(), number);
        if (who == 2 && rank != 0) ok(ups_comm_barrier(comm, &failure));
        forget_signals();
    }
}

/* ---- seats ------------------------------------------------------------------------------------------------------- */

static ups_seat make_seat(const char *host, const char *processors) {
    ups_seat seat = {0};
    snprintf(seat.host, sizeof seat.host, "%s", host);
    for (const char *p = processors; *p; p++) CPU_SET((size_t)(*p - '0'), &seat.processors);
    return seat;
}

CLAIM(those_share_processors_that_may_run_on_some_of_the_same_of_one_machine) {
    const ups_seat seats[] = {make_seat("a", "0123"), make_seat("a", "0123"), make_seat("a", "45"),
                              make_seat("b", "0123"), make_seat("a", "3"),    make_seat("b", ""),
                              make_seat("b", "")};
    static const int sharing[] = {3, 3, 1, 1, 3, 2, 2};
    for (int i = 0; i < 7; i++) assert_int_equal(ups_seat_count_sharing(&seats[i], seats, 7), sharing[i]);
}

CLAIM(ranks_of_one_machine_divide_its_processors) {
    const int own = ups_cpu_count();
    int *all = malloc((size_t)size * sizeof *all), sum = 0, alone = 0;
    assert_non_null(all);
    ok(ups_comm_gather(comm, &own, all, sizeof own, &failure));
    for (int r = 0; r < size; r++) {
        sum += all[r];
        alone += all[r] == 1;
    }
    free(all);
    assert_int_equal(ups_launch_processes_here(), size);
    assert_true(sum <= sysconf(_SC_NPROCESSORS_ONLN) || alone == size);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static const bool everything[UPS_UPDATE_MAX_SETS] = {true}; /* of one set */

typedef struct training {
    ups_device *device;
    ups_parameters *parameters;
    ups_exchange *exchange;
    ups_update *update; /* device memory */
    int64_t elements;
} training;

static training begin(int64_t elements, bool reproducible, ups_comm *of) {
    training t = {.parameters = ups_parameters_create()};
    ok(ups_device_open(&(ups_device_options){.name = "cpu", .threads = 1}, &t.device, &failure));
    ups_parameters_add(t.parameters, "weight", 1, &elements, (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1});
    ok(ups_parameters_allocate(t.parameters, t.device, true, UPS_F32, 3, &failure));
    t.elements = ups_parameters_elements(t.parameters);
    const ups_exchange_options options = {
        .comm = of, .device = t.device, .parameters = t.parameters, .rounds = 2, .reproducible = reproducible};
    ok(ups_exchange_open(&options, &t.exchange, &failure));
    t.update = calloc(1, sizeof *t.update);
    assert_non_null(t.update);
    return t;
}

static void end(training *t) {
    ups_exchange_close(t->exchange);
    ups_parameters_destroy(t->parameters);
    t->device->class->destroy(t->device);
    free(t->update);
}

/* As a graph writes them, `count` elements from `first` on. */
static void make_gradients(const training *t, int64_t micro_batch, int64_t first, int64_t count) {
    float *gradients = ups_parameters_gradients(t->parameters);
    for (int64_t i = first; i < first + count; i++) gradients[i] = term(micro_batch, i);
}

CLAIM(gradients_that_are_told_complete_bit_by_bit_are_summed_once_each) {
    training t = begin(3 * PIECE + 12345, false, comm);
    const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
    assert_non_null(watch);
    assert_false(ups_exchange_takes_each(t.exchange));
    for (int64_t step = 0; step < 2; step++) {
        /* Ranks are told in pieces of their own, some of them none. */
        const int64_t pieces[] = {step == 0 ? 700001 : PIECE, PIECE + 1, t.elements};
        const int64_t piece = pieces[(rank + step) % 3];
        for (int64_t at = 0; at < t.elements; at += piece) {
            const int64_t count = at + piece < t.elements ? piece : t.elements - at;
            make_gradients(&t, step * size + rank, at, count);
            watch->complete(watch->context, at + (count > 3 ? count - 3 : 0));
            if (rank != 1) watch->complete(watch->context, at + count);
        }
        bool trained[UPS_UPDATE_MAX_SETS] = {true};
        ok(ups_exchange_micro_batch(t.exchange, 0, t.update, &failure));
        ok(ups_exchange_gradients(t.exchange, everything, &failure));
        ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
        assert_sums(ups_parameters_gradients(t.parameters), step * size, size, t.elements);
    }
    end(&t);
}

CLAIM(what_no_process_has_trained_is_left_alone) {
    enum { SETS = 6 };
    const int64_t sizes[SETS] = {4992, PIECE + 1024, 64, 2 * PIECE + 128, 6400, 640};
    training t = begin(64, false, comm);
    ups_exchange_close(t.exchange);
    ups_parameters_destroy(t.parameters);
    t.parameters = ups_parameters_create();
    int32_t set_of[SETS];
    for (int32_t set = 0; set < SETS; set++) {
        char name[16];
        snprintf(name, sizeof name, "weight%d", (int)set);
        set_of[set] = set;
        ups_parameters_add(t.parameters, name, 1, &sizes[set], (ups_init){.kind = UPS_INIT_ZEROS});
    }
    ups_parameters_divide(t.parameters, set_of);
    ok(ups_parameters_allocate(t.parameters, t.device, true, UPS_F32, 3, &failure));
    t.elements = ups_parameters_elements(t.parameters);
    const ups_exchange_options options = {.comm = comm, .device = t.device, .parameters = t.parameters, .rounds = 1};
    ok(ups_exchange_open(&options, &t.exchange, &failure));
    /* By bits: none, one, neighbours, all; sets that one rank has trained, and ones that all have. */
    const unsigned of_rank0[] = {0x3f, 0x01, 0x08, 0x20, 0x00}, of_rank1[] = {0x3f, 0x04, 0x08, 0x02, 0x18};
    for (int step = 0; step < 5; step++) {
        bool own[UPS_UPDATE_MAX_SETS] = {0};
        const unsigned mine = rank == 0 ? of_rank0[step] : rank == 1 ? of_rank1[step] : 0;
        const unsigned any = size > 1 ? of_rank0[step] | of_rank1[step] : of_rank0[step];
        float *gradients = ups_parameters_gradients(t.parameters);
        memset(gradients, 0, (size_t)t.elements * sizeof *gradients);
        for (int set = 0; set < SETS; set++) own[set] = mine >> set & 1;
        for (int32_t i = 0; i < SETS; i++) {
            const ups_parameter *p = ups_parameters_get(t.parameters, i);
            if (any >> p->set & 1) make_gradients(&t, step * size + rank, p->offset, p->elements);
            for (int64_t k = 0; k < p->elements && !(any >> p->set & 1); k++)
                gradients[p->offset + k] = (float)(7 + rank);
        }
        const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, own);
        if (rank != step % 3) watch->complete(watch->context, 2 * PIECE);
        if (rank != 1) watch->complete(watch->context, t.elements);
        ok(ups_exchange_gradients(t.exchange, own, &failure));
        ok(ups_exchange_results(t.exchange, t.update, own, &failure));
        for (int32_t i = 0; i < SETS; i++) {
            const ups_parameter *p = ups_parameters_get(t.parameters, i);
            assert_int_equal(own[p->set], any >> p->set & 1);
            for (int64_t k = 0; k < p->elements; k++) {
                const int64_t at = p->offset + k;
                assert_number(gradients[at], own[p->set] ? sum_of(step * size, size, at) : 7 + rank, at);
            }
        }
    }
    end(&t);
}

CLAIM(a_last_bucket_that_is_whole_is_summed_like_any) {
    training t = begin(2 * PIECE, false, comm);
    bool trained[UPS_UPDATE_MAX_SETS] = {true};
    make_gradients(&t, rank, 0, t.elements);
    const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
    if (rank == 0) watch->complete(watch->context, t.elements);
    ok(ups_exchange_gradients(t.exchange, everything, &failure));
    ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
    assert_sums(ups_parameters_gradients(t.parameters), 0, size, t.elements);
    end(&t);
}

/* Of a step of so many micro-batches for each of `ranks` processes, as one of them. */
static void take_step(training *t, int own, int ranks, int rounds) {
    bool trained[UPS_UPDATE_MAX_SETS] = {0};
    for (int round = 0; round < rounds; round++) {
        const int m = round * ranks + own;
        make_gradients(t, m, 0, t->elements);
        t->update->result.loss[3] += 1.0 / (3 + m);
        t->update->result.windows[3] += 2;
        t->update->result.part[1] += 0.1 * m;
        t->update->result.part_windows[1] += 1;
        if (m == 4 || m == 2) t->update->result.bad_micro_batch = m + 1;
        trained[m % 5] = true;
        ok(ups_exchange_micro_batch(t->exchange, round, t->update, &failure));
    }
    ok(ups_exchange_gradients(t->exchange, everything, &failure));
    ok(ups_exchange_results(t->exchange, t->update, trained, &failure));
    for (int set = 0; set < 7; set++) assert_int_equal(trained[set], set < 5);
}

CLAIM(reproducible_steps_have_the_bits_of_one_process_that_takes_all_micro_batches) {
    enum { ROUNDS = 2, ELEMENTS = 10007 };
    training together = begin(ELEMENTS, true, comm), alone = begin(ELEMENTS, true, NULL);
    assert_null(ups_exchange_watch(together.exchange, everything));
    assert_true(ups_exchange_takes_each(together.exchange) && ups_exchange_takes_each(alone.exchange));
    for (int step = 0; step < 2; step++) {
        memset(&together.update->result, 0, sizeof together.update->result);
        memset(&alone.update->result, 0, sizeof alone.update->result);
        take_step(&together, rank, size, ROUNDS);
        take_step(&alone, 0, 1, ROUNDS * size);
        assert_memory_equal(ups_parameters_gradients(together.parameters), ups_parameters_gradients(alone.parameters),
                            (size_t)together.elements * sizeof(float));
        assert_sums(ups_parameters_gradients(together.parameters), 0, (int64_t)ROUNDS * size, together.elements);
        assert_memory_equal(&together.update->result, &alone.update->result, sizeof alone.update->result);
        assert_int_equal(alone.update->result.bad_micro_batch, 3);
        assert_int_equal(alone.update->result.windows[3], 2 * ROUNDS * size);
    }
    end(&together);
    end(&alone);
}

/* An exchange of shares in the place of one without. */
static void divide(training *t, const ups_shares *shares, bool reproducible) {
    const ups_exchange_options options = {.comm = comm,
                                          .device = t->device,
                                          .parameters = t->parameters,
                                          .rounds = 2,
                                          .reproducible = reproducible,
                                          .shares = shares};
    ups_exchange_close(t->exchange);
    ok(ups_exchange_open(&options, &t->exchange, &failure));
}

CLAIM(gradients_of_shares_are_summed_while_they_are_made_and_norms_are_those_of_all) {
    training t = begin(2 * PIECE + 4321, false, comm);
    ups_shares shares = make_shares(t.elements);
    bool trained[UPS_UPDATE_MAX_SETS] = {true};
    divide(&t, &shares, false);
    assert_true(ups_exchange_divides_gradients(t.exchange) && ups_exchange_gather(t.exchange));
    assert_int_equal(ups_exchange_gather(t.exchange)->writes, rank == 0);
    const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
    for (int64_t step = 0; step < 2; step++) {
        make_gradients(&t, step * size + rank, 0, t.elements);
        if (rank != 1) watch->complete(watch->context, PIECE + 5);
        ok(ups_exchange_gradients(t.exchange, everything, &failure));
        const float *gradients = ups_parameters_gradients(t.parameters);
        for (int64_t i = 0; i < t.elements; i++) {
            const bool own = owner(&shares, i) == rank;
            assert_number(gradients[i], own ? sum_of(step * size, size, i) : term(step * size + rank, i), i);
        }
        memset(&t.update->result, 0, sizeof t.update->result);
        t.update->result.squared_norm = 1 << rank;
        t.update->result.non_finite = rank == 1;
        ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
        assert_true(t.update->result.squared_norm == (1 << size) - 1);
        assert_int_equal(t.update->result.non_finite, size > 1);
    }
    end(&t);
    ups_shares_free(&shares);
}

CLAIM(reproducible_steps_of_shares_have_all_gradients) {
    training t = begin(5000, true, comm);
    ups_shares shares = make_shares(t.elements);
    divide(&t, &shares, true);
    assert_false(ups_exchange_divides_gradients(t.exchange));
    take_step(&t, rank, size, 2);
    assert_sums(ups_parameters_gradients(t.parameters), 0, 2 * (int64_t)size, t.elements);
    end(&t);
    ups_shares_free(&shares);
}

CLAIM(after_an_update_all_have_the_weights_of_each_share) {
    training t = begin(PIECE + 999, false, comm);
    ups_shares shares = make_shares(t.elements);
    float *weights = ups_parameters_values(t.parameters), *saved = fill(rank, t.elements);
    divide(&t, &shares, false);
    for (int64_t i = 0; i < t.elements; i++) weights[i] = term(rank, i);
    ok(ups_exchange_weights(t.exchange, &failure));
    for (int64_t i = 0; i < t.elements; i++) assert_number(weights[i], term(owner(&shares, i), i), i);
    const ups_parameter_gather *gather = ups_exchange_gather(t.exchange);
    ok(gather->bring(gather->context, saved + 100, 100, t.elements - 200, &failure));
    for (int64_t i = 0; i < t.elements && rank == 0; i++)
        assert_number(saved[i], term(i < 100 || i >= t.elements - 100 ? 0 : owner(&shares, i), i), i);
    free(saved);
    end(&t);
    ups_shares_free(&shares);
}

CLAIM(losses_and_the_first_bad_micro_batch_are_those_of_all_ranks) {
    training t = begin(100, false, comm);
    bool trained[UPS_UPDATE_MAX_SETS] = {false};
    trained[rank] = true;
    make_gradients(&t, rank, 0, t.elements);
    t.update->result.loss[0] = 0.5 * (rank + 1);
    t.update->result.windows[rank] = 4;
    if (rank > 0) t.update->result.bad_micro_batch = 1 + 10 - rank;
    ok(ups_exchange_gradients(t.exchange, everything, &failure));
    ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
    assert_true(t.update->result.loss[0] == 0.25 * size * (size + 1));
    for (int r = 0; r < size + 1; r++) {
        assert_int_equal(t.update->result.windows[r], r < size ? 4 : 0);
        assert_int_equal(trained[r], r < size);
    }
    assert_int_equal(t.update->result.bad_micro_batch, size > 1 ? 1 + 10 - (size - 1) : 0);
    end(&t);
}

CLAIM(all_know_after_a_step_that_one_was_asked_to_end_and_by_what) {
    training t = begin(10, false, comm);
    for (int who = -1; who < size; who++) {
        bool trained[UPS_UPDATE_MAX_SETS] = {true};
        if (rank == who) ups_cancel_request_as(SIGTERM);
        ok(ups_exchange_gradients(t.exchange, everything, &failure));
        ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
        assert_int_equal(ups_exchange_cancelled(t.exchange), who >= 0);
        if (who >= 0) assert_int_equal(ups_cancel_signal(), SIGTERM);
        ups_cancel_reset();
    }
    forget_signals();
    end(&t);
}

CLAIM(sums_take_the_memory_of_a_bucket_and_reproducible_ones_that_of_all_gradients) {
    training t = begin(10, false, comm);
    const size_t bucket = ups_exchange_measure(comm, t.device, PIECE, 2, false, NULL);
    assert_true(bucket >= PIECE * sizeof(float) && bucket <= 2 * PIECE * sizeof(float) + 8 * (size_t)size);
    assert_int_equal(ups_exchange_measure(comm, t.device, 50 * PIECE + 7, 2, false, NULL), bucket);
    assert_true(ups_exchange_measure(comm, t.device, 50 * PIECE, 2, true, NULL) >= 50 * PIECE * sizeof(float));
    assert_int_equal(ups_exchange_measure(comm, t.device, 50 * PIECE, 1, true, NULL),
                     bucket); /* one sum has the order */
    ups_shares shares = make_shares(9 * PIECE);
    const size_t most = (size_t)ups_shares_most_within(&shares, PIECE);
    assert_int_equal(ups_exchange_measure(comm, t.device, 9 * PIECE, 2, false, &shares),
                     (PIECE + most * (size_t)size) * sizeof(float)); /* packed, and what all send of a share */
    assert_int_equal(ups_exchange_measure(comm, t.device, 9 * PIECE, 2, true, &shares),
                     ups_exchange_measure(comm, t.device, 9 * PIECE, 2, true, NULL) + PIECE * sizeof(float));
    ups_shares_free(&shares);
    end(&t);
}

CLAIM(ranks_that_begin_apart_are_named) {
    training t = begin(1000, false, comm);
    ups_exchange_facts facts = {.step = 7, .data = ups_hash_bytes("data", 4)};
    ok(ups_exchange_check(t.exchange, &facts, &failure));
    if (rank == size - 1) facts.step = 5;
    assert_int_equal(ups_exchange_check(t.exchange, &facts, &failure), UPS_ERR_IO);
    assert_non_null(strstr(failure.message, "is at step 5, and rank 0 at step 7"));
    facts.step = 7;
    if (rank == 1) facts.data = ups_hash_bytes("date", 4);
    assert_int_equal(ups_exchange_check(t.exchange, &facts, &failure), UPS_ERR_IO);
    assert_non_null(strstr(failure.message, "rank 1 has another checkpoint, other samples"));
    facts.data = ups_hash_bytes("data", 4);
    float *weights = ups_parameters_values(t.parameters); /* of the processor: memory of the host's */
    if (rank == 1) weights[999] += 1;
    assert_int_equal(ups_exchange_check(t.exchange, &facts, &failure), UPS_ERR_IO);
    assert_non_null(strstr(failure.message, "rank 1 has other weights than rank 0"));
    ok(ups_exchange_share_weights(t.exchange, &failure));
    ok(ups_exchange_check(t.exchange, &facts, &failure));
    end(&t);
}

/* ---- one process, and none to find ----------------------------------------------------------------------------- */

CLAIM(a_process_by_itself_is_rank_0_of_1_and_exchanges_nothing) {
    float values[] = {1, 2, 3}, slice[3], back[3] = {0};
    int all = 0;
    assert_int_equal(ups_comm_rank(NULL), 0);
    assert_int_equal(ups_comm_size(NULL), 1);
    assert_int_equal(ups_comm_slice(NULL, 3), 3);
    ok(ups_comm_barrier(NULL, &failure));
    ok(ups_comm_broadcast(NULL, values, sizeof values, &failure));
    ok(ups_comm_gather(NULL, &(int){5}, &all, sizeof all, &failure));
    assert_int_equal(all, 5);
    ups_comm_sum(NULL, values, 3);
    ups_comm_add(NULL, values, 3, slice, true);
    ups_comm_add(NULL, values, 3, slice, false);
    ups_comm_collect(NULL, slice, back, 3);
    ok(ups_comm_finish(NULL, &failure));
    for (int i = 0; i < 3; i++) assert_true(values[i] == (float)(i + 1) && back[i] == 2 * values[i]);
    ups_comm_close(NULL);
    training t = begin(10, false, NULL);
    assert_null(t.exchange);
    assert_null(ups_exchange_watch(t.exchange, everything));
    assert_false(ups_exchange_takes_each(t.exchange) || ups_exchange_cancelled(t.exchange));
    assert_int_equal(ups_exchange_measure(NULL, t.device, t.elements, 2, false, NULL), 0);
    assert_int_equal(ups_exchange_measure(NULL, t.device, t.elements, 2, true, NULL),
                     t.elements * (int64_t)sizeof(float));
    end(&t);
}

CLAIM(a_module_that_is_missing_or_of_another_build_is_named) {
    ups_comm *none = comm;
    char *own = strdup(getenv("UPS_MPI_MODULE"));
    setenv("UPS_MPI_MODULE", "/nowhere/libups_mpi.so", 1);
    refused(ups_comm_open(&none, &failure), UPS_ERR_UNSUPPORTED, "mpirun started", "cannot train one model together",
            "/nowhere/libups_mpi.so");
    assert_null(none);
    setenv("UPS_MPI_MODULE", "libm.so.6", 1);
    refused(ups_comm_open(&none, &failure), UPS_ERR_UNSUPPORTED, "libm.so.6 is of another build");
    setenv("UPS_MPI_MODULE", own, 1);
    free(own);
}

CLAIM(a_process_that_nobody_launched_with_others_has_no_communicator) {
    ups_comm *none = comm;
    char *ranks = strdup(getenv("OMPI_COMM_WORLD_SIZE"));
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    ok(ups_comm_open(&none, &failure));
    assert_null(none);
    setenv("OMPI_COMM_WORLD_SIZE", ranks, 1);
    free(ranks);
}

/* ---- devices that sum by themselves ------------------------------------------------------------------------------ */

static ups_status library(char *text, size_t bytes, ups_error *error) {
    if (rank == 1) return ups_fail(error, UPS_ERR_UNSUPPORTED, "there is no library");
    snprintf(text, bytes, "a library");
    return UPS_OK;
}

static ups_status meet(unsigned char name[UPS_PEERS_NAME], ups_error *error) {
    (void)error;
    memset(name, 7, UPS_PEERS_NAME);
    return UPS_OK;
}

static ups_status join(ups_device *device, const unsigned char name[UPS_PEERS_NAME], int own, int count,
                       ups_peers **peers, ups_error *error) {
    (void)device, (void)name, (void)count, (void)peers, (void)error;
    fail_msg("rank %d would wait for rank 1 without an end", own);
    return UPS_OK;
}

static void leave(ups_device *device, ups_peers *peers) {
    (void)device;
    assert_null(peers);
}

CLAIM(nobody_waits_for_a_rank_whose_device_cannot_join) {
    static const ups_peers_class peers = {.meet = meet, .join = join, .leave = leave, .library = library};
    training t = begin(100, false, NULL);
    const ups_device_class *usual = t.device->class;
    ups_device_class summing = *usual;
    summing.peers = &peers;
    t.device->class = &summing;
    ups_exchange_options options = {.comm = comm, .device = t.device, .parameters = t.parameters, .rounds = 1};
    ups_exchange *exchange;
    ok(ups_exchange_open(&options, &exchange, &failure));
    assert_non_null(ups_exchange_watch(exchange, everything)); /* the host sums */
    ups_exchange_close(exchange);
    options.path = UPS_GRADIENTS_NCCL;
    assert_int_equal(ups_exchange_open(&options, &exchange, &failure), UPS_ERR_UNSUPPORTED);
    assert_non_null(strstr(failure.message, "rank 1 cannot take part: there is no library"));
    t.device->class = usual;
    end(&t);
}

int main(void) {
    if (!getenv("OMPI_COMM_WORLD_SIZE") || !getenv("UPS_MPI_MODULE")) {
        printf("SKIPPED: it is run by mpirun, with UPS_MPI_MODULE\n");
        return UPS_SKIPPED_EXIT;
    }
    alarm(LONGEST);
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* the others would wait for who failed */
    if (ups_comm_open(&comm, &failure) != UPS_OK) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    rank = ups_comm_rank(comm);
    size = ups_comm_size(comm);
    const int failed = run_claims(NULL, NULL, NULL);
    ups_comm_close(comm);
    return failed;
}
