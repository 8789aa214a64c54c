#include "base/system/launcher.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int processes_here = 1, processes_on_same = 1;

/* A batch script of Slurm has SLURM_PROCID and SLURM_NTASKS, too; the number of tasks of a step has only what srun
 * started. */
static const struct {
    const char *launcher, *rank, *ranks, *number, *here, *node; /* `here` is a list over nodes where a node is told */
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"}};

/* The entry of a node in Slurm's list of numbers, "4(x2),3": of three nodes 4, 4 and 3. 0: there is none. */
static int64_t of_node(const char *list, int64_t node) {
    while (list && *list) {
        char *end;
        const int64_t number = strtoll(list, &end, 10),
                      times = strncmp(end, "(x", 2) == 0 ? strtoll(end + 2, &end, 10) : 1;
        if (end == list || number < 1 || times < 1) return 0;
        if (node < times) return number;
        node -= times;
        list = strchr(end, ',');
        if (list) list++;
    }
    return 0;
}

static int64_t count_here(const char *here, const char *node) {
    const char *told = getenv(here), *at = node ? getenv(node) : NULL;
    return told ? of_node(told, at ? strtoll(at, NULL, 10) : 0) : 0;
}

ups_launch ups_launch_find(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *rank = getenv(launchers[i].rank), *ranks = getenv(launchers[i].ranks);
        if (!rank || !ranks) continue;
        const char *number = getenv(launchers[i].number);
        return (ups_launch){.rank = strtoll(rank, NULL, 10),
                            .ranks = strtoll(ranks, NULL, 10),
                            .number = number ? strtoll(number, NULL, 10) : -1,
                            .here = count_here(launchers[i].here, launchers[i].node),
                            .launcher = launchers[i].launcher};
    }
    return (ups_launch){.ranks = 1, .number = -1};
}

static int at_least_one(int number) {
    return number > 1 ? number : 1;
}

void ups_launch_share_machine(int processes, int same) {
    atomic_store(&processes_here, at_least_one(processes));
    atomic_store(&processes_on_same, at_least_one(same));
}

void ups_launch_share_as_told(void) {
    const int64_t here = ups_launch_find().here;
    cpu_set_t own, all; /* what may be used: a container, or a job, may have fewer than the machine */
    if (here < 2 || here > sysconf(_SC_NPROCESSORS_ONLN)) return;
    const bool known =
        sched_getaffinity(0, sizeof own, &own) == 0 && sched_getaffinity(getppid(), sizeof all, &all) == 0;
    ups_launch_share_machine((int)here, known && CPU_COUNT(&own) * here <= CPU_COUNT(&all) ? 1 : (int)here);
}

int ups_launch_processes_here(void) {
    return atomic_load(&processes_here);
}

int ups_launch_processes_on_same(void) {
    return atomic_load(&processes_on_same);
}
