/* Which of how many processes this one is, as the program that started them says (mpirun, srun). It needs no MPI. */
#ifndef UPS_BASE_SYSTEM_LAUNCHER_H
#define UPS_BASE_SYSTEM_LAUNCHER_H

#include <stdint.h>

typedef struct ups_launch {
    int64_t rank, ranks;  /* 0 of 1 where nothing was launched */
    int64_t number;       /* among those on this machine; −1: not told */
    int64_t here;         /* processes on this machine; 0: not told */
    const char *launcher; /* "mpirun", "mpiexec", "srun"; NULL: none */
} ups_launch;

ups_launch ups_launch_find(void);

/* Says that so many processes of this program run on this machine: each takes its part of the memory that is free
 * (ups_memory_free). `same` of them, this one among them, may run on the same processors, and share these
 * (ups_cpu_count). Called once, before either is asked. */
void ups_launch_share_machine(int processes, int same);
/* The same of processes that do not talk to each other, as their launcher tells: bound to parts that do not overlap, as
 * far as their sizes beside that of the launcher's own processors say, or else sharing these. Nothing where it tells
 * nothing. */
void ups_launch_share_as_told(void);
int ups_launch_processes_here(void); /* 1 until that is called */
int ups_launch_processes_on_same(void);

#endif
