/* Which of how many processes this one is, by what launchers leave in the environment; and its part of the machine. */
#include "base/system/launcher.h"
#include "base/system/memory_limit.h"
#include "base/system/threads.h"
#include "testing.h"

#include <sched.h>
#include <unistd.h>

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",      "PMI_RANK",     "PMI_SIZE",
    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS",      "SLURM_NTASKS", "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",      "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"};

static int forget(void **state) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    return 0;
}

static void found(int64_t rank, int64_t ranks, const char *launcher) {
    const ups_launch launch = ups_launch_find();
    assert_int_equal(launch.rank, rank);
    assert_int_equal(launch.ranks, ranks);
    if (launcher)
        assert_string_equal(launch.launcher, launcher);
    else
        assert_null(launch.launcher);
}

static void a_process_that_nobody_launched_is_rank_0_of_1(void **state) {
    found(0, 1, NULL);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1); /* without the number of them it says nothing */
    found(0, 1, NULL);
}

static void each_launcher_is_known_by_its_environment(void **state) {
    static const struct {
        const char *launcher, *rank, *ranks;
    } launchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                     {"mpiexec", "PMI_RANK", "PMI_SIZE"},
                     {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < 3; i++) {
        forget(NULL);
        setenv(launchers[i].rank, "2", 1);
        setenv(launchers[i].ranks, "7", 1);
        found(2, 7, launchers[i].launcher);
    }
}

static void mpirun_within_a_step_of_slurm_counts(void **state) {
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    found(5, 8, "mpirun");
}

static void a_batch_script_of_slurm_is_one_process(void **state) {
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "16", 1);
    found(0, 1, NULL);
}

static int64_t here_of(const char *list, const char *node) {
    setenv("SLURM_STEP_TASKS_PER_NODE", list, 1);
    setenv("SLURM_NODEID", node, 1);
    return ups_launch_find().here;
}

static void slurm_lists_how_many_processes_each_machine_has(void **state) {
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "11", 1);
    assert_int_equal(ups_launch_find().here, 0);
    assert_int_equal(here_of("2", "0"), 2);
    assert_int_equal(here_of("4(x2),3", "0"), 4);
    assert_int_equal(here_of("4(x2),3", "1"), 4);
    assert_int_equal(here_of("4(x2),3", "2"), 3);
    assert_int_equal(here_of("4(x2),3", "3"), 0);
    assert_int_equal(here_of("", "0"), 0);
    assert_int_equal(here_of("some", "0"), 0);
    assert_int_equal(here_of("4(x0),3", "1"), 0);
}

/* ---- a part of the machine --------------------------------------------------------------------------------------- */

/* Since it is said once, each number of processes in a process of its own: 0 where all is as it should be. */
static int share(void *context) {
    const int processes = *(const int *)context;
    const int own = ups_cpu_count();
    if (ups_launch_processes_here() != 1) return 1;
    ups_launch_share_machine(2 * processes, processes);
    if (ups_launch_processes_here() != (2 * processes > 1 ? 2 * processes : 1)) return 2;
    if (ups_launch_processes_on_same() != (processes > 1 ? processes : 1)) return 2;
    int expected = processes > 1 ? own / processes : own;
    if (expected < 1) expected = 1;
    return ups_cpu_count() == expected ? 0 : 3;
}

static void processes_of_one_machine_share_its_processors_and_each_has_one(void **state) {
    for (int processes = -1; processes < 6; processes++) assert_int_equal(exit_code_of(share, &processes), 0);
    int many = 100000;
    assert_int_equal(exit_code_of(share, &many), 0);
}

static int share_bound(void *context) {
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) return 4;
    size_t first = 0;
    while (!CPU_ISSET(first, &before)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 5;
    ups_launch_share_machine(2, 1);
    return ups_cpu_count() == 1 ? 0 : 6;
}

static void a_process_that_was_bound_has_what_it_is_bound_to(void **state) {
    assert_int_equal(exit_code_of(share_bound, NULL), 0);
}

static int share_memory(void *context) {
    const double before = (double)ups_memory_free();
    ups_launch_share_machine(4, 1);
    const double part = (double)ups_memory_free();
    return before == 0 || (part > 0.15 * before && part < 0.35 * before) ? 0 : 7; /* others use some, too */
}

static void processes_of_one_machine_share_its_free_memory(void **state) {
    assert_int_equal(exit_code_of(share_memory, NULL), 0);
}

/* Two processes that do not talk to each other: on a processor each, or both on all. */
static int share_as_told(void *context) {
    const bool bound = *(const bool *)context;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t own;
    if (online < 2 || sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) < online) return 0;
    for (int i = 1; i < CPU_SETSIZE && bound; i++) CPU_CLR((size_t)i, &own);
    if (bound && sched_setaffinity(0, sizeof own, &own) != 0) return 8;
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "6", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    ups_launch_share_as_told();
    if (ups_launch_processes_here() != 2) return 9;
    return ups_launch_processes_on_same() == (bound ? 1 : 2) ? 0 : 10;
}

static void processes_that_do_not_talk_to_each_other_take_the_launchers_word(void **state) {
    for (int bound = 0; bound < 2; bound++) assert_int_equal(exit_code_of(share_as_told, &(bool){bound}), 0);
}

int main(void) {
    forget(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_process_that_nobody_launched_is_rank_0_of_1, forget),
        cmocka_unit_test_teardown(each_launcher_is_known_by_its_environment, forget),
        cmocka_unit_test_teardown(mpirun_within_a_step_of_slurm_counts, forget),
        cmocka_unit_test_teardown(a_batch_script_of_slurm_is_one_process, forget),
        cmocka_unit_test_teardown(slurm_lists_how_many_processes_each_machine_has, forget),
        cmocka_unit_test(processes_of_one_machine_share_its_processors_and_each_has_one),
        cmocka_unit_test(a_process_that_was_bound_has_what_it_is_bound_to),
        cmocka_unit_test(processes_of_one_machine_share_its_free_memory),
        cmocka_unit_test(processes_that_do_not_talk_to_each_other_take_the_launchers_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
