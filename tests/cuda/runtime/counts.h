/* What a program asked of the emulated card, for tests that are linked to it. */
#ifndef UPS_TESTS_CUDA_COUNTS_H
#define UPS_TESTS_CUDA_COUNTS_H

#include <stdint.h>

/* Since the last reset. Work is what was issued by itself: in a capture it counts when its graph is launched, as one
 * launch. */
typedef struct emulated_counts {
    int64_t graphs;   /* launches */
    int64_t captures; /* begun */
    int64_t kernels, products, fills;
    int64_t uploads, downloads, copies; /* to the card, from it, within it */
    int64_t waits;             /* of the host for an event, a stream, all streams, or a copy of pageable memory */
    int64_t waits_for_nothing; /* those of them for what the host had waited for before */
    int64_t fewest_left;       /* launches of graphs that had not run when such a wait ended, where fewest were left;
                                  -1: there was no wait, or all were for nothing */
    int64_t allocations, host_allocations; /* of the card's memory, and of pinned memory */
} emulated_counts;

emulated_counts emulated_counts_read(void);
void emulated_counts_reset(void);

#endif
