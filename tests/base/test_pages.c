/* Buffers that one loader leaves to the next. */
#include "base/system/pages.h"
#include "tests/base/testing.h"

static void buffers_of_a_size_come_back(void **state) {
    ups_pages_store *store = ups_pages_store_create();
    char *small = ups_pages_take(store, 5000), *large = ups_pages_take(store, (size_t)3 << 20);
    assert_int_equal((uintptr_t)small % 4096, 0);
    assert_int_equal((uintptr_t)large % ((size_t)2 << 20), 0);
    large[0] = 'x';
    ups_pages_give(store, large);
    ups_pages_give(store, small);
    ups_pages_give(store, NULL);
    assert_ptr_equal(ups_pages_take(store, (size_t)3 << 20), large);
    assert_ptr_equal(ups_pages_take(store, 5000), small);
    assert_int_equal(large[0], 'x');
    char *other = ups_pages_take(store, 5000);
    assert_ptr_not_equal(other, small);
    memset(other, 1, 5000);
    ups_pages_give(store, small);
    ups_pages_give(store, other);
    ups_pages_give(store, large);
    ups_pages_store_destroy(store);
}

static void a_want_that_nothing_fits_frees_what_lies_idle_and_nothing_else(void **state) {
    ups_pages_store *store = ups_pages_store_create();
    char *taken = ups_pages_take(store, 8192), *idle = ups_pages_take(store, 8192);
    memset(taken, 7, 8192);
    ups_pages_give(store, idle); /* freed by the next want: the address sanitizer sees what is lost or freed twice */
    char *larger = ups_pages_take(store, 16384);
    memset(larger, 8, 16384);
    assert_int_equal(taken[8191], 7);
    ups_pages_give(store, larger);
    ups_pages_give(store, taken);
    assert_ptr_equal(ups_pages_take(store, 8192), taken);
    assert_ptr_equal(ups_pages_take(store, 16384), larger);
    ups_pages_give(store, larger);
    ups_pages_give(store, taken);
    ups_pages_store_destroy(store);
}

static void without_a_store_they_are_allocated_and_freed(void **state) {
    char *memory = ups_pages_take(NULL, 100);
    memset(memory, 1, 100);
    ups_pages_give(NULL, memory);
    ups_pages_store_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_of_a_size_come_back),
        cmocka_unit_test(a_want_that_nothing_fits_frees_what_lies_idle_and_nothing_else),
        cmocka_unit_test(without_a_store_they_are_allocated_and_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
