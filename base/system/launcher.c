#include "base/system/launcher.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_int processes_here = 1, processes_on_same = 1;

/* A batch script of Slurm has SLURM_PROCID and SLURM_NTASKS, too; the number of tasks of a step has only what srun
 * started. */
static const struct {
    const char *launcher, *rank, *ranks, *number;
} launchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                 {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
                 {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};

ups_launch ups_launch_find(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *rank = getenv(launchers[i].rank), *ranks = getenv(launchers[i].ranks);
        if (!rank || !ranks) continue;
        const char *number = getenv(launchers[i].number);
        return (ups_launch){.rank = strtoll(rank, NULL, 10),
                            .ranks = strtoll(ranks, NULL, 10),
                            .number = number ? strtoll(number, NULL, 10) : -1,
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

int ups_launch_processes_here(void) {
    return atomic_load(&processes_here);
}

int ups_launch_processes_on_same(void) {
    return atomic_load(&processes_on_same);
}
