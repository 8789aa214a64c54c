/* What this process has taken of the machine's memory. */
#include "base/system/memory_limit.h"
#include "tests/base/testing.h"
#include <sys/mman.h>

static void memory_counts_once_it_is_touched_and_its_peak_stays(void **state) {
    enum { BYTES = 64 << 20, ROOM = 4 << 20 /* what else may come and go meanwhile */ };
    const ups_memory_use before = ups_memory_used();
    assert_true(before.resident > 0 && before.peak >= before.resident);
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_true(ups_memory_used().resident < before.resident + ROOM);
    memset(memory, 1, BYTES);
    const ups_memory_use touched = ups_memory_used();
    assert_true(touched.resident > before.resident + BYTES - ROOM && touched.resident < before.resident + BYTES + ROOM);
    munmap(memory, BYTES);
    const ups_memory_use after = ups_memory_used();
    assert_true(after.resident < before.resident + ROOM);
    assert_true(after.peak >= touched.resident - ROOM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_counts_once_it_is_touched_and_its_peak_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
