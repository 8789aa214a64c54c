/* How long OpenMP's threads spin at a barrier before they sleep.
 *
 * libgomp spins 300,000 rounds by default: about 15 ms on processors whose `pause` takes 140 cycles. On a machine that
 * does anything else beside us (our own decode threads are enough), a thread that waits then burns the very core that
 * the late thread needs: training on a busy two-core machine was measured 20 times slower for it. A thousand rounds,
 * 12 to 50 µs by processor, lose a few percent on an idle machine; docs/performance.md has the figures.
 *
 * libgomp reads its environment when it is loaded, before anything of ours can run (in .preinit_array the C library has
 * no environment yet), so the program starts itself once more with the variable set. A value that the user has set
 * stands. */
#include "tools/openmp_wait.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SPIN_ROUNDS "1000"

void ups_openmp_wait_briefly(char **argv) {
    prctl(PR_SET_NAME, program_invocation_short_name); /* of a program that was started as below it would be "exe" */
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv("GOMP_SPINCOUNT", SPIN_ROUNDS, 1) != 0) return;
    execv("/proc/self/exe", argv); /* returns only where /proc is missing: then all runs as it is */
}
