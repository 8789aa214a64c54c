/* What steps of processes that train together exchange, held against sums by hand: `mpirun -n 3 test_exchange`. */
#include "base/system/cancel.h"
#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include "tests/model/claims.h"
#include "tests/train/ranks.h"
#include "train/comm/exchange.h"

#include <signal.h>

enum { PIECE = 1 << 20 };

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

CLAIM(a_process_by_itself_has_no_exchange_and_takes_memory_for_reproducible_sums_alone) {
    training t = begin(10, false, NULL);
    assert_null(t.exchange);
    assert_null(ups_exchange_watch(t.exchange, everything));
    assert_false(ups_exchange_takes_each(t.exchange) || ups_exchange_cancelled(t.exchange));
    assert_int_equal(ups_exchange_measure(NULL, t.device, t.elements, 2, false, NULL), 0);
    assert_int_equal(ups_exchange_measure(NULL, t.device, t.elements, 2, true, NULL),
                     t.elements * (int64_t)sizeof(float));
    end(&t);
}

enum { BLOCKS = 5 };

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

static ups_status join(ups_device *device, const ups_peers_place *place, ups_peers **peers, ups_error *error) {
    (void)device, (void)peers, (void)error;
    fail_msg("rank %d would wait for rank 1 without an end", place->rank);
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

/* Devices that join and write down what they are asked for; nothing is exchanged. */
struct ups_peers {
    int joined;
};
static struct ups_peers there;

enum { MOST_CALLS = 4096 };
typedef enum asked { BEGIN, SUM, SUM_AT, SPREAD, RESULTS, END, FINISH, LEAVE } asked;
static struct call {
    asked what;
    const float *values;
    int64_t count;
    int rank;
} calls[MOST_CALLS];
static int call_count;
static bool sums_fail;

static ups_status write_down(asked what, const float *values, int64_t count, int of, ups_error *error) {
    assert_true(call_count < MOST_CALLS);
    calls[call_count++] = (struct call){what, values, count, of};
    return sums_fail && what > BEGIN && what < END ? ups_fail(error, UPS_ERR_UNSUPPORTED, "the cable was pulled out")
                                                   : UPS_OK;
}

static ups_status any_library(char *text, size_t bytes, ups_error *error) {
    (void)error;
    snprintf(text, bytes, "a library");
    return UPS_OK;
}

static ups_status join_at_once(ups_device *device, const ups_peers_place *place, ups_peers **peers, ups_error *error) {
    (void)device, (void)error;
    assert_true(place->name[0] == 7 && place->rank == rank && place->size == size && place->most_blocks == BLOCKS);
    *peers = &there;
    return UPS_OK;
}

static ups_status begin_calls(ups_device *device, ups_peers *peers, ups_error *error) {
    (void)device;
    assert_ptr_equal(peers, &there);
    return write_down(BEGIN, NULL, 0, 0, error);
}

static ups_status end_calls(ups_device *device, ups_peers *peers, ups_error *error) {
    (void)device, (void)peers;
    return write_down(END, NULL, 0, 0, error);
}

static ups_status sum(ups_device *device, ups_peers *peers, float *values, int64_t count, ups_error *error) {
    (void)device, (void)peers;
    return write_down(SUM, values, count, 0, error);
}

static ups_status sum_at(ups_device *device, ups_peers *peers, float *values, int64_t count, int of, ups_error *error) {
    (void)device, (void)peers;
    return write_down(SUM_AT, values, count, of, error);
}

static ups_status spread(ups_device *device, ups_peers *peers, float *values, int64_t count, int of, ups_error *error) {
    (void)device, (void)peers;
    return write_down(SPREAD, values, count, of, error);
}

static ups_status add_results(ups_device *device, ups_peers *peers, ups_update_result *result, ups_error *error) {
    (void)device, (void)peers;
    result->loss[0] = 7; /* of all */
    return write_down(RESULTS, NULL, 0, 0, error);
}

static ups_status finish(ups_device *device, ups_peers *peers, ups_error *error) {
    (void)device, (void)peers;
    return write_down(FINISH, NULL, 0, 0, error);
}

static void leave_them(ups_device *device, ups_peers *peers) {
    (void)device;
    assert_ptr_equal(peers, &there);
    write_down(LEAVE, NULL, 0, 0, NULL);
}

static const ups_peers_class joining = {.library = any_library,
                                        .meet = meet,
                                        .join = join_at_once,
                                        .begin = begin_calls,
                                        .end = end_calls,
                                        .sum = sum,
                                        .sum_at = sum_at,
                                        .spread = spread,
                                        .add_results = add_results,
                                        .finish = finish,
                                        .leave = leave_them};

enum { SMALL = 1 << 14 /* elements of a bucket of a sixteenth MiB */ };

/* With devices that join, until `end_joined`. */
static training begin_joined(int64_t elements, ups_device_class *class, const ups_shares *shares) {
    training t = begin(elements, false, NULL);
    *class = *t.device->class;
    class->peers = &joining;
    t.device->class = class;
    const ups_exchange_options options = {.comm = comm,
                                          .device = t.device,
                                          .parameters = t.parameters,
                                          .rounds = 1,
                                          .path = UPS_GRADIENTS_NCCL,
                                          .bucket = 0x1p-4,
                                          .most_blocks = BLOCKS,
                                          .shares = shares};
    call_count = 0;
    sums_fail = false;
    ok(ups_exchange_open(&options, &t.exchange, &failure));
    return t;
}

static void end_joined(training *t) {
    call_count = 0;
    end(t);
    assert_true(call_count == 1 && calls[0].what == LEAVE);
}

/* From `from` on: a sum of so many elements of the gradients, by itself. */
static void assert_sum_of(const training *t, int from, int64_t first, int64_t count) {
    assert_true(calls[from].what == BEGIN && calls[from + 1].what == SUM && calls[from + 2].what == END);
    assert_ptr_equal(calls[from + 1].values, ups_parameters_gradients(t->parameters) + first);
    assert_int_equal(calls[from + 1].count, count);
}

CLAIM(devices_begin_to_sum_a_bucket_as_soon_as_it_is_complete) {
    ups_device_class class;
    training t = begin_joined(3 * SMALL + 64, &class, NULL);
    for (int step = 0; step < 2; step++) {
        call_count = 0;
        const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
        assert_true(watch && watch->every == SMALL);
        watch->complete(watch->context, SMALL - 1);
        assert_int_equal(call_count, 0);
        watch->complete(watch->context, SMALL);
        assert_int_equal(call_count, 3);
        assert_sum_of(&t, 0, 0, SMALL);
        watch->complete(watch->context, 2 * SMALL + 5);
        assert_int_equal(call_count, 6);
        assert_sum_of(&t, 3, SMALL, SMALL);
        ok(ups_exchange_gradients(t.exchange, everything, &failure));
        assert_int_equal(call_count, 13);
        assert_sum_of(&t, 6, 2 * SMALL, SMALL);
        assert_sum_of(&t, 9, 3 * SMALL, 64);
        assert_true(calls[12].what == FINISH);
        bool trained[UPS_UPDATE_MAX_SETS] = {false};
        trained[rank] = true;
        ok(ups_exchange_results(t.exchange, t.update, trained, &failure));
        assert_int_equal(call_count, 17);
        assert_true(calls[14].what == RESULTS && calls[16].what == FINISH && t.update->result.loss[0] == 7);
        assert_true(trained[0] && !trained[rank > 0 ? rank : 1]); /* what was said before the sums */
        assert_false(ups_exchange_cancelled(t.exchange));
    }
    end_joined(&t);
}

/* All pieces of the buffer at `values`, in order, each with the rank that it is of; exchanges begin and end. */
static void assert_pieces(const ups_shares *shares, asked what, const float *values, int64_t elements) {
    int64_t at = 0;
    bool open = false;
    for (int c = 0; c < call_count - 1; c++) {
        if (calls[c].what == BEGIN || calls[c].what == END) {
            assert_true(open == (calls[c].what == END));
            open = !open;
            continue;
        }
        assert_true(open && calls[c].what == what && calls[c].values == values + at);
        for (int64_t i = 0; i < calls[c].count; i++) assert_int_equal(owner(shares, at + i), calls[c].rank);
        at += calls[c].count;
    }
    assert_true(!open && at == elements && calls[call_count - 1].what == FINISH);
}

CLAIM(devices_sum_a_share_where_it_is_updated_and_spread_its_weights) {
    ups_device_class class;
    const int64_t elements = 3 * SMALL + 64;
    ups_shares shares = make_shares(elements);
    training t = begin_joined(elements, &class, &shares);
    assert_true(ups_exchange_divides_gradients(t.exchange));
    const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
    watch->complete(watch->context, SMALL);
    assert_true(call_count > 0 && calls[call_count - 1].what == END);
    ok(ups_exchange_gradients(t.exchange, everything, &failure));
    assert_pieces(&shares, SUM_AT, ups_parameters_gradients(t.parameters), elements);
    call_count = 0;
    ok(ups_exchange_weights(t.exchange, &failure));
    assert_pieces(&shares, SPREAD, ups_parameters_values(t.parameters), elements);
    end_joined(&t);
    ups_shares_free(&shares);
}

CLAIM(what_fails_between_devices_is_told_and_nothing_stays_open) {
    ups_device_class class;
    const int64_t elements = 3 * SMALL;
    ups_shares shares = make_shares(elements);
    for (int divided = 0; divided < 2; divided++) {
        training t = begin_joined(elements, &class, divided ? &shares : NULL);
        const ups_gradient_watch *watch = ups_exchange_watch(t.exchange, everything);
        sums_fail = true;
        watch->complete(watch->context, SMALL); /* a watch has no way to say it */
        watch->complete(watch->context, 2 * SMALL);
        refused(ups_exchange_gradients(t.exchange, everything, &failure), UPS_ERR_UNSUPPORTED, "cable");
        assert_int_equal(call_count, 3); /* begun, failed, ended; no more was tried */
        assert_true(calls[2].what == END);
        end_joined(&t);
    }
    ups_shares_free(&shares);
}

int main(void) {
    const int without = meet_ranks();
    if (without) return without;
    const int failed = run_claims(NULL, NULL, NULL);
    ups_comm_close(comm);
    return failed;
}
