/* Which of how many processes this one is, as the program that started them says (mpirun, srun). It needs no MPI. */
#ifndef UPS_BASE_SYSTEM_LAUNCHER_H
#define UPS_BASE_SYSTEM_LAUNCHER_H

#include <stdint.h>

typedef struct ups_launch {
    int64_t rank, ranks;  /* 0 of 1 where nothing was launched */
    const char *launcher; /* "mpirun", "mpiexec", "srun"; NULL: none */
} ups_launch;

ups_launch ups_launch_find(void);

/* Says that so many processes of this program run on this machine: each takes its part of the processors
 * (ups_cpu_count) and of the memory that is free (ups_memory_free). Called once, before either is asked. */
void ups_launch_share_machine(int processes);
int ups_launch_processes_here(void); /* 1 until that is called */

#endif
