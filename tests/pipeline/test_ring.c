/* The ring's claims: order, back-pressure, errors in their turn, and that closing wakes everyone. */

#include <pthread.h>
#include <stdatomic.h>

#include "base/system/threads.h"
#include "pipeline/loader/ring.h"
#include "tests/base/testing.h"

static ups_ring *make(int slots, int64_t first) {
    ups_ring_options options = {.slots = slots, .slot_bytes = 64};
    ups_ring *ring = NULL;
    assert_int_equal(ups_ring_create(&options, first, &ring, NULL), UPS_OK);
    return ring;
}

static void batches_come_out_in_the_order_they_were_begun(void **state) {
    ups_ring *ring = make(3, 100);
    ups_slot *slots[3];
    for (int i = 0; i < 3; i++) slots[i] = ups_ring_begin(ring, 1, false);
    for (int i = 2; i >= 0; i--) ups_ring_part_done(ring, slots[i], 0, UPS_OK, NULL); /* the last is ready first */
    for (int i = 0; i < 3; i++) {
        ups_slot *slot = ups_ring_next(ring);
        assert_ptr_equal(slot, slots[i]);
        assert_int_equal(slot->index, 100 + i);
    }
    ups_ring_finish(ring);
    assert_null(ups_ring_next(ring));
    ups_ring_destroy(ring);
}

static void a_full_ring_hands_out_no_slot_until_one_is_released(void **state) {
    ups_ring *ring = make(2, 0);
    ups_slot *first = ups_ring_begin(ring, 1, false);
    assert_non_null(ups_ring_begin(ring, 1, false));
    assert_null(ups_ring_begin(ring, 1, false));
    ups_ring_part_done(ring, first, 0, UPS_OK, NULL);
    assert_null(ups_ring_begin(ring, 1, false)); /* ready is not free */
    assert_ptr_equal(ups_ring_next(ring), first);
    assert_null(ups_ring_begin(ring, 1, false)); /* nor is held */
    ups_ring_release(ring, first);
    ups_slot *third = ups_ring_begin(ring, 1, false);
    assert_ptr_equal(third, first);
    assert_int_equal(third->index, 2);
    ups_ring_destroy(ring);
}

static void of_several_failures_the_earliest_part_is_reported(void **state) {
    ups_ring *ring = make(1, 0);
    ups_slot *slot = ups_ring_begin(ring, 3, false);
    ups_error late = {.code = UPS_ERR_IO, .message = "part 2"}, early = {.code = UPS_ERR_FORMAT, .message = "part 1"};
    ups_ring_part_done(ring, slot, 2, UPS_ERR_IO, &late);
    ups_ring_part_done(ring, slot, 1, UPS_ERR_FORMAT, &early);
    ups_ring_part_done(ring, slot, 0, UPS_OK, NULL);
    assert_ptr_equal(ups_ring_next(ring), slot);
    assert_int_equal(slot->status, UPS_ERR_FORMAT);
    assert_string_equal(slot->error.message, "part 1");
    ups_ring_release(ring, slot);
    assert_int_equal(ups_ring_begin(ring, 1, false)->status, UPS_OK); /* a reused slot is clean */
    ups_ring_destroy(ring);
}

enum { BATCHES = 2000, PARTS = 3 };

typedef struct ring_work {
    ups_ring *ring;
    ups_queue *parts; /* of (slot, part) */
} ring_work;

typedef struct ring_part {
    ups_slot *slot;
    int64_t number;
} ring_part;

static void *fill(void *context) {
    ring_work *work = context;
    ring_part part;
    while (ups_queue_pop(work->parts, &part)) {
        ((int64_t *)part.slot->data)[part.number] = part.slot->index * PARTS + part.number;
        ups_ring_part_done(work->ring, part.slot, part.number, UPS_OK, NULL);
    }
    return NULL;
}

static void *begin(void *context) {
    ring_work *work = context;
    for (int i = 0; i < BATCHES; i++) {
        ups_slot *slot = ups_ring_begin(work->ring, PARTS, true);
        for (int64_t p = 0; slot && p < PARTS; p++) ups_queue_push(work->parts, &(ring_part){slot, p});
    }
    ups_ring_finish(work->ring);
    ups_queue_close(work->parts);
    return NULL;
}

static void many_fillers_and_one_consumer_lose_nothing(void **state) {
    ring_work work = {make(4, 0), ups_queue_create(sizeof(ring_part), 8)};
    pthread_t threads[4];
    pthread_create(&threads[0], NULL, begin, &work);
    for (int i = 1; i < 4; i++) pthread_create(&threads[i], NULL, fill, &work);
    int64_t index = 0;
    for (ups_slot *slot; (slot = ups_ring_next(work.ring)); index++) {
        assert_int_equal(slot->index, index);
        for (int64_t p = 0; p < PARTS; p++) assert_int_equal(((int64_t *)slot->data)[p], index * PARTS + p);
        ups_ring_release(work.ring, slot);
    }
    assert_int_equal(index, BATCHES);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    ups_queue_destroy(work.parts);
    ups_ring_destroy(work.ring);
}

static void *wait_for_a_slot(void *ring) {
    return ups_ring_begin(ring, 1, true);
}
static void *wait_for_a_batch(void *ring) {
    return ups_ring_next(ring);
}

static void closing_wakes_the_filler_and_the_consumer(void **state) {
    ups_ring *ring = make(1, 0);
    assert_non_null(ups_ring_begin(ring, 1, false));
    pthread_t filler, consumer;
    pthread_create(&filler, NULL, wait_for_a_slot, ring);
    pthread_create(&consumer, NULL, wait_for_a_batch, ring);
    usleep(20000);
    ups_ring_close(ring);
    void *slot = ring, *batch = ring;
    pthread_join(filler, &slot);
    pthread_join(consumer, &batch);
    assert_null(slot);
    assert_null(batch);
    ups_ring_destroy(ring);
}

/* Starts a thread that waits, and ends its waiting after `microseconds`, of which it may have slept through the first.
 */
static void let_wait(ups_ring *ring, void *(*wait)(void *), useconds_t microseconds) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait, ring);
    usleep(microseconds);
    ups_ring_close(ring);
    pthread_join(thread, NULL);
}

/* The thread gets more time until it has waited for some of it: who knows when a busy machine starts it. */
static void waiting_is_booked_on_the_one_who_causes_it(void **state) {
    enum { FIRST = 20000, LONGEST = 20000000 };
    double waited = 0, full = 0;
    for (useconds_t time = FIRST; waited <= 0.005 && time < LONGEST; time *= 2) {
        ups_ring *ring = make(1, 0);
        ups_ring_begin(ring, 1, false);
        let_wait(ring, wait_for_a_batch, time); /* nobody filled the slot */
        waited = ups_ring_seconds_waiting(ring);
        assert_true(ups_ring_seconds_full(ring) == 0.0);
        ups_ring_destroy(ring);
    }
    assert_true(waited > 0.005);
    for (useconds_t time = FIRST; full <= 0.005 && time < LONGEST; time *= 2) {
        ups_ring *ring = make(1, 0);
        ups_slot *slot = ups_ring_begin(ring, 1, false);
        ups_ring_part_done(ring, slot, 0, UPS_OK, NULL);
        assert_ptr_equal(ups_ring_next(ring), slot);
        let_wait(ring, wait_for_a_slot, time); /* the consumer holds it */
        full = ups_ring_seconds_full(ring);
        assert_true(ups_ring_seconds_waiting(ring) == 0.0);
        ups_ring_destroy(ring);
    }
    assert_true(full > 0.005);
}

static void waiting_for_news_ends_with_it_or_with_its_time(void **state) {
    ups_ring *ring = make(1, 0);
    double start = ups_now();
    assert_false(ups_ring_wait(ring, 0));
    assert_false(ups_ring_wait(ring, 0.03));
    assert_true(ups_now() - start >= 0.03);
    assert_true(ups_ring_seconds_waiting(ring) >= 0.02);
    ups_slot *slot = ups_ring_begin(ring, 1, false);
    assert_false(ups_ring_wait(ring, 0)); /* begun is not ready */
    ups_ring_part_done(ring, slot, 0, UPS_OK, NULL);
    assert_true(ups_ring_wait(ring, 60));
    ups_ring_release(ring, ups_ring_next(ring));
    assert_false(ups_ring_wait(ring, 0));
    ups_ring_finish(ring);
    assert_true(ups_ring_wait(ring, 60));
    ups_ring_destroy(ring);
}

static void *refuse(void *context, size_t bytes) {
    int *left = context;
    return (*left)-- > 0 ? malloc(bytes) : NULL;
}
static void give_back(void *context, void *memory) {
    free(memory);
}

static void memory_that_cannot_be_had_is_said_and_nothing_leaks(void **state) {
    int left = 2;
    ups_ring_options options = {
        .slots = 4, .slot_bytes = 1 << 20, .allocate = refuse, .release = give_back, .context = &left};
    ups_ring *ring = NULL;
    ups_error error = {0};
    assert_int_equal(ups_ring_create(&options, 0, &ring, &error), UPS_ERR_MEMORY);
    assert_null(ring);
    assert_contains(error.message, "4 batches of 1.0 MiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_out_in_the_order_they_were_begun),
        cmocka_unit_test(a_full_ring_hands_out_no_slot_until_one_is_released),
        cmocka_unit_test(of_several_failures_the_earliest_part_is_reported),
        cmocka_unit_test(many_fillers_and_one_consumer_lose_nothing),
        cmocka_unit_test(closing_wakes_the_filler_and_the_consumer),
        cmocka_unit_test(waiting_is_booked_on_the_one_who_causes_it),
        cmocka_unit_test(waiting_for_news_ends_with_it_or_with_its_time),
        cmocka_unit_test(memory_that_cannot_be_had_is_said_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
