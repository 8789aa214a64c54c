#include "testing.h"

#include "base/arena.h"
#include "base/system/exhausted.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

static void memory_is_zeroed_and_aligned(void **state) {
    ups_arena *arena = ups_arena_create(1024);
    for (size_t size = 0; size < 3000; size += 37) {
        unsigned char *memory = ups_arena_alloc(arena, size);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < size; i++) assert_int_equal(memory[i], 0);
        memset(memory, 0xa5, size);
    }
    ups_arena_destroy(arena);
}

static void allocations_do_not_overlap(void **state) {
    enum { COUNT = 500 };
    ups_arena *arena = ups_arena_create(256);
    unsigned char *pieces[COUNT];
    for (int i = 0; i < COUNT; i++) {
        pieces[i] = ups_arena_alloc(arena, 1 + (size_t)(i * 7 % 600));
        memset(pieces[i], i & 0xff, 1 + (size_t)(i * 7 % 600));
    }
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 1 + i * 7 % 600; k++) assert_int_equal(pieces[i][k], i & 0xff);
    }
    ups_arena_destroy(arena);
}

/* How a process of its own ends that asks for so many numbers; its words are not for this test's output. */
static int ending(size_t count, bool of_command) {
    pid_t child = fork();
    if (child == 0) {
        if (of_command) ups_exit_when_out_of_memory(7);
        ups_arena *arena = ups_arena_create(0);
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        double *numbers = UPS_ARENA_ARRAY(arena, double, count);
        numbers[0] = 1;
        _exit(numbers[count / 2] == 0 ? 0 : 4);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void an_array_whose_size_overflows_ends_the_process_instead_of_being_short(void **state) {
    assert_int_equal(ending(1000, false), 0);
    assert_int_equal(ending(SIZE_MAX / sizeof(double) + 2, false), -SIGABRT); /* 8 bytes, were the product cut */
    assert_int_equal(ending((size_t)-1, false), -SIGABRT);
}

static void a_command_without_memory_ends_with_its_exit_code(void **state) {
#ifdef UPS_SANITIZED
    skip_because("a sanitizer ends the process itself where so much memory is asked for");
#else
    assert_int_equal(ending((size_t)-1, true), 7);
    assert_int_equal(ending((size_t)1 << 56, true), 7);
#endif
}

static void text_is_copied_and_formatted(void **state) {
    ups_arena *arena = ups_arena_create(0);
    char original[] = "rollout";
    char *copied = ups_arena_strdup(arena, original);
    original[0] = 'X';
    assert_string_equal(copied, "rollout");
    assert_string_equal(ups_arena_printf(arena, "%s[%d]", copied, 7), "rollout[7]");
    assert_string_equal(ups_arena_printf(arena, "%s", ""), "");
    ups_arena_destroy(arena);
    ups_arena_destroy(NULL);
}

static void large_buffers_have_the_alignment_asked_for(void **state) {
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *buffer = ups_aligned_alloc(alignment, 100);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer % alignment, 0);
        ups_aligned_free(buffer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(allocations_do_not_overlap),
        cmocka_unit_test(an_array_whose_size_overflows_ends_the_process_instead_of_being_short),
        cmocka_unit_test(a_command_without_memory_ends_with_its_exit_code),
        cmocka_unit_test(text_is_copied_and_formatted),
        cmocka_unit_test(large_buffers_have_the_alignment_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
