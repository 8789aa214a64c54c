/* What processes that train together tell each other, held against sums by hand: `mpirun -n 3 test_comm`. What a
 * training step exchanges is test_exchange's. */
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "base/system/threads.h"
#include "tests/model/claims.h"
#include "tests/train/ranks.h"
#include "train/comm/seat.h"

#include <signal.h>
#include <unistd.h>

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

int main(void) {
    const int without = meet_ranks();
    if (without) return without;
    const int failed = run_claims(NULL, NULL, NULL);
    ups_comm_close(comm);
    return failed;
}
