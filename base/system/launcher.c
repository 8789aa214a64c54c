#include "base/system/launcher.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_int processes_here = 1;

/* A batch script of Slurm has SLURM_PROCID and SLURM_NTASKS, too; the number of tasks of a step has only what srun
 * started. */
static const struct {
    const char *launcher, *rank, *ranks;
} launchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"mpiexec", "PMI_RANK", "PMI_SIZE"},
                 {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

ups_launch ups_launch_find(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *rank = getenv(launchers[i].rank), *ranks = getenv(launchers[i].ranks);
        if (!rank || !ranks) continue;
        return (ups_launch){strtoll(rank, NULL, 10), strtoll(ranks, NULL, 10), launchers[i].launcher};
    }
    return (ups_launch){.ranks = 1};
}

void ups_launch_share_machine(int processes) {
    atomic_store(&processes_here, processes > 1 ? processes : 1);
}

int ups_launch_processes_here(void) {
    return atomic_load(&processes_here);
}
