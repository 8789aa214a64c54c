/* What a machine of several nodes says of itself, on files made here. */
#include "base/system/numa.h"
#include "tests/base/testing.h"

#include <sys/stat.h>

static int nodes_of(const char *online, const char *first, const char *second, cpu_set_t *nodes) {
    mkdir(scratch("node0"), 0755);
    mkdir(scratch("node3"), 0755);
    write_text(scratch("online"), online);
    write_text(scratch("node0/cpulist"), first);
    write_text(scratch("node3/cpulist"), second);
    return ups_numa_nodes(scratch_directory, nodes);
}

static void nodes_hold_the_processors_that_this_process_may_use(void **state) {
    cpu_set_t own, nodes[UPS_NUMA_MOST_NODES];
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    size_t mine = 0;
    while (!CPU_ISSET(mine, &own)) mine++;
    char all[64], one[64];
    snprintf(all, sizeof all, "0-%d\n", CPU_SETSIZE - 1);
    snprintf(one, sizeof one, "%zu\n", mine);
    assert_int_equal(nodes_of("0,3\n", all, one, nodes), 2);
    assert_true(CPU_EQUAL(&nodes[0], &own));
    assert_true(CPU_COUNT(&nodes[1]) == 1 && CPU_ISSET(mine, &nodes[1]));
    assert_int_equal(nodes_of("0,3\n", all, "\n", nodes), 1); /* memory without processors */
    assert_int_equal(nodes_of("3\n", all, one, nodes), 1);
    assert_int_equal(CPU_COUNT(&nodes[0]), 1);
}

static void lists_that_are_none_are_no_nodes(void **state) {
    cpu_set_t nodes[UPS_NUMA_MOST_NODES];
    static const char *const lists[] = {"x", "1-", "3-1", "0-99999", "-4", "0;1"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        assert_int_equal(nodes_of("0,3\n", "0-1,4,6-7\n", lists[i], nodes), 0);
    assert_int_equal(ups_numa_nodes("/nowhere", nodes), 0);
}

/* How many of `threads` go to each node. */
static void spread(int threads, const int *processors, int count, int *of) {
    cpu_set_t nodes[4];
    for (int node = 0, next = 0; node < count; node++) {
        CPU_ZERO(&nodes[node]);
        of[node] = 0;
        for (int i = 0; i < processors[node]; i++) CPU_SET((size_t)next++, &nodes[node]);
    }
    for (int i = 0; i < threads; i++) {
        int node = ups_numa_node_of(i, threads, nodes, count);
        if (node >= 0) of[node]++;
    }
}

static void nodes_have_threads_as_they_have_processors(void **state) {
    int of[4];
    spread(9, (int[]){8, 1}, 2, of);
    assert_true(of[0] == 8 && of[1] == 1);
    spread(8, (int[]){16, 16}, 2, of);
    assert_true(of[0] == 4 && of[1] == 4);
    spread(7, (int[]){2, 2, 2}, 3, of);
    assert_true(of[0] + of[1] + of[2] == 7 && of[0] >= 2 && of[1] >= 2 && of[2] >= 2);
    spread(1, (int[]){4, 4}, 2, of);
    assert_true(of[0] == 0 && of[1] == 0);
    spread(8, (int[]){4}, 1, of);
    assert_int_equal(of[0], 0);
}

static void spreading_leaves_a_thread_some_processor(void **state) {
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    ups_numa_spread(1, 64);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    cpu_set_t both;
    CPU_AND(&both, &before, &after);
    assert_true(CPU_COUNT(&after) > 0 && CPU_EQUAL(&both, &after));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_hold_the_processors_that_this_process_may_use),
        cmocka_unit_test(lists_that_are_none_are_no_nodes),
        cmocka_unit_test(nodes_have_threads_as_they_have_processors),
        cmocka_unit_test(spreading_leaves_a_thread_some_processor),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
