#include "testing.h"

#include "base/system/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static void the_cpu_count_respects_affinity(void **state) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(ups_cpu_count(), CPU_COUNT(&before));
    int first = 0;
    while (!CPU_ISSET(first, &before)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ups_cpu_count(), 1);
    sched_setaffinity(0, sizeof before, &before);
}

typedef struct tally {
    atomic_int seen[10000];
    int64_t per_thread[16]; /* written without a lock: a thread number is one thread's own */
    int threads;
} tally;

static ups_status count_one(void *context, int64_t index, int thread, ups_error *error) {
    tally *t = context;
    if (thread < 0 || thread >= t->threads) return ups_fail(error, UPS_ERR_ARGUMENT, "thread %d", thread);
    atomic_fetch_add(&t->seen[index], 1);
    t->per_thread[thread]++;
    return UPS_OK;
}

static void each_index_is_worked_on_once_whatever_the_number_of_threads(void **state) {
    static tally t;
    for (int threads = 1; threads <= 16; threads = threads * 2 + 1) {
        ups_pool *pool = ups_pool_create(threads);
        assert_int_equal(ups_pool_threads(pool), threads);
        const int64_t counts[] = {0, 1, 2, 17, 10000};
        for (int k = 0; k < 5; k++) {
            memset(&t, 0, sizeof t);
            t.threads = threads;
            assert_int_equal(ups_pool_run(pool, counts[k], count_one, &t, NULL), UPS_OK);
            int64_t total = 0;
            for (int i = 0; i < 16; i++) total += t.per_thread[i];
            assert_int_equal(total, counts[k]);
            for (int64_t i = 0; i < 10000; i++) assert_int_equal(atomic_load(&t.seen[i]), i < counts[k]);
        }
        ups_pool_destroy(pool);
    }
}

static void a_pool_of_no_given_size_has_a_thread_per_processor(void **state) {
    ups_pool *pool = ups_pool_create(0);
    assert_int_equal(ups_pool_threads(pool), ups_cpu_count());
    ups_pool_destroy(pool);
    ups_pool_destroy(NULL);
}

static ups_status fail_from(void *context, int64_t index, int thread, ups_error *error) {
    atomic_llong *last = context;
    long long before = atomic_load(last);
    while (index > before && !atomic_compare_exchange_weak(last, &before, index)) {
    }
    if (index < 100) return UPS_OK;
    return ups_fail(error, UPS_ERR_NUMERIC, "sample %lld is not finite", (long long)index);
}

static void the_first_failure_stops_the_loop_and_is_the_one_of_the_lowest_index(void **state) {
    ups_pool *pool = ups_pool_create(4);
    for (int round = 0; round < 200; round++) {
        atomic_llong last = 0;
        ups_error error = {0};
        assert_int_equal(ups_pool_run(pool, 1000000, fail_from, &last, &error), UPS_ERR_NUMERIC);
        assert_string_equal(error.message, "sample 100 is not finite");
        assert_int_equal(error.code, UPS_ERR_NUMERIC);
        assert_in_range(atomic_load(&last), 100, 103); /* each thread fails at most once */
    }
    ups_pool_destroy(pool);
}

static ups_status run_inside(void *context, int64_t index, int thread, ups_error *error) {
    return ups_pool_run(context, 1, run_inside, context, error);
}

static void a_loop_inside_a_loop_of_the_same_pool_is_refused_instead_of_hanging(void **state) {
    ups_pool *pool = ups_pool_create(2);
    ups_error error = {0};
    assert_fails(ups_pool_run(pool, 2, run_inside, pool, &error), UPS_ERR_ARGUMENT, error, "same pool");
    ups_pool_destroy(pool);
}

static void *run_from_thread(void *argument) {
    static tally tallies[2];
    static atomic_int turn;
    tally *t = &tallies[atomic_fetch_add(&turn, 1)];
    t->threads = ups_pool_threads(argument);
    for (int i = 0; i < 20; i++) ups_pool_run(argument, 1000, count_one, t, NULL);
    bool right = true;
    for (int i = 0; i < 1000; i++) right &= atomic_load(&t->seen[i]) == 20;
    return right ? argument : NULL;
}

static void two_threads_may_share_a_pool(void **state) {
    ups_pool *pool = ups_pool_create(3);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_from_thread, pool), 0);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, pool);
    }
    ups_pool_destroy(pool);
}

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 3000 };
typedef struct traffic {
    ups_queue *queue;
    atomic_int next_producer;
    atomic_int seen[PRODUCERS * EACH];
    atomic_bool disordered;
} traffic;

static void *produce(void *argument) {
    traffic *t = argument;
    int first = atomic_fetch_add(&t->next_producer, 1) * EACH;
    for (int i = 0; i < EACH; i++) {
        int item = first + i;
        ups_queue_push(t->queue, &item);
    }
    return NULL;
}

static void *consume(void *argument) {
    traffic *t = argument;
    int item, latest[PRODUCERS] = {-1, -1, -1};
    while (ups_queue_pop(t->queue, &item)) {
        atomic_fetch_add(&t->seen[item], 1);
        if (item % EACH <= latest[item / EACH]) atomic_store(&t->disordered, true);
        latest[item / EACH] = item % EACH;
    }
    return NULL;
}

static void every_item_goes_through_the_queue_once_and_in_its_producers_order(void **state) {
    static traffic t;
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];
    t.queue = ups_queue_create(sizeof(int), 5);
    for (int i = 0; i < CONSUMERS; i++) pthread_create(&consumers[i], NULL, consume, &t);
    for (int i = 0; i < PRODUCERS; i++) pthread_create(&producers[i], NULL, produce, &t);
    for (int i = 0; i < PRODUCERS; i++) pthread_join(producers[i], NULL);
    ups_queue_close(t.queue);
    for (int i = 0; i < CONSUMERS; i++) pthread_join(consumers[i], NULL);
    for (int i = 0; i < PRODUCERS * EACH; i++) assert_int_equal(atomic_load(&t.seen[i]), 1);
    assert_false(atomic_load(&t.disordered));
    ups_queue_destroy(t.queue);
}

static void a_closed_queue_takes_nothing_but_gives_what_is_in_it(void **state) {
    ups_queue *queue = ups_queue_create(sizeof(int), 4);
    int item = 1, out = 0;
    assert_true(ups_queue_push(queue, &item));
    item = 2;
    assert_true(ups_queue_push(queue, &item));
    ups_queue_close(queue);
    assert_false(ups_queue_push(queue, &item));
    assert_true(ups_queue_pop(queue, &out));
    assert_int_equal(out, 1);
    assert_true(ups_queue_pop(queue, &out));
    assert_int_equal(out, 2);
    assert_false(ups_queue_pop(queue, &out));
    ups_queue_destroy(queue);
}

static void *push_into_full(void *argument) {
    int item = 5;
    return ups_queue_push(argument, &item) ? argument : NULL;
}

static void closing_wakes_a_producer_that_waits_on_a_full_queue(void **state) {
    ups_queue *queue = ups_queue_create(sizeof(int), 1);
    int item = 1;
    ups_queue_push(queue, &item);
    pthread_t thread;
    pthread_create(&thread, NULL, push_into_full, queue);
    usleep(20000); /* most likely it waits by now; if not, it finds the queue closed */
    ups_queue_close(queue);
    void *result = queue;
    pthread_join(thread, &result);
    assert_null(result);
    ups_queue_destroy(queue);
}

static void the_clock_goes_forward_in_seconds(void **state) {
    struct timespec before, after;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    double start = ups_now();
    usleep(20000);
    double passed = ups_now() - start;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
    double around = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    assert_true(passed >= 0.02 && passed <= around + 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_count_respects_affinity),
        cmocka_unit_test(each_index_is_worked_on_once_whatever_the_number_of_threads),
        cmocka_unit_test(a_pool_of_no_given_size_has_a_thread_per_processor),
        cmocka_unit_test(the_first_failure_stops_the_loop_and_is_the_one_of_the_lowest_index),
        cmocka_unit_test(a_loop_inside_a_loop_of_the_same_pool_is_refused_instead_of_hanging),
        cmocka_unit_test(two_threads_may_share_a_pool),
        cmocka_unit_test(every_item_goes_through_the_queue_once_and_in_its_producers_order),
        cmocka_unit_test(a_closed_queue_takes_nothing_but_gives_what_is_in_it),
        cmocka_unit_test(closing_wakes_a_producer_that_waits_on_a_full_queue),
        cmocka_unit_test(the_clock_goes_forward_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
