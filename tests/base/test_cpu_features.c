/* A level of x86-64 runs where the kernel lists everything that belongs to it, and only there. */
#include "base/system/cpu_features.h"
#include "tests/base/testing.h"

static char *flags; /* of the first processor, as /proc/cpuinfo lists them, with spaces around; NULL: none */

static int read_flags(void **state) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t room = 0;
    while (file && !flags && getline(&line, &room, file) > 0) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "flags", 5) != 0) continue;
        line[strlen(line) - 1] = ' '; /* for the newline */
        flags = strdup(colon + 1);
    }
    free(line);
    if (file) fclose(file);
    return 0;
}

static int free_flags(void **state) {
    free(flags);
    return 0;
}

static bool lists(const char *const *names) {
    for (; flags && *names; names++) {
        char name[32];
        snprintf(name, sizeof name, " %s ", *names);
        if (!strstr(flags, name)) return false;
    }
    return flags != NULL;
}

static const char *const third[] = {"cx16", "lahf_lm", "popcnt", "pni",  "ssse3", "sse4_1", "sse4_2", "avx",
                                    "avx2", "bmi1",    "bmi2",   "f16c", "fma",   "abm",    "movbe",  NULL};
static const char *const fourth[] = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", NULL};

static void each_level_runs_where_the_kernel_lists_all_of_it(void **state) {
    assert_int_equal(ups_runs_x86_64_v3(), lists(third));
    assert_int_equal(ups_runs_x86_64_v4(), lists(third) && lists(fourth));
}

static void gathers_are_fast_where_avx_vnni_is(void **state) {
    assert_int_equal(ups_gathers_fast(), lists(third) && lists((const char *const[]){"avx_vnni", NULL}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_runs_where_the_kernel_lists_all_of_it),
        cmocka_unit_test(gathers_are_fast_where_avx_vnni_is),
    };
    return cmocka_run_group_tests(tests, read_flags, free_flags);
}
