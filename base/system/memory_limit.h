/* How much memory this process has taken, and how much it may still take, whoever sets the limit: what is `auto` in a
 * configuration asks. */
#ifndef UPS_BASE_SYSTEM_MEMORY_LIMIT_H
#define UPS_BASE_SYSTEM_MEMORY_LIMIT_H

#include <stdint.h>

/* Bytes: the least of the machine's available memory (MemAvailable), what the control groups above this process leave
 * (versions 1 and 2; page cache that the kernel would give up counts as free), and what `ulimit -v` leaves. 0 when the
 * machine does not tell. Where several processes share the machine (launcher.h), the first two are divided by them. */
uint64_t ups_memory_free(void);

/* The same from files below `root` instead of "/", and without `ulimit`: for tests. */
uint64_t ups_memory_free_below(const char *root);

/* Bytes of this process that lie in memory: now, and at most since it began (VmRSS and VmHWM); memory that it shares
 * with others and mapped files count. 0 where the machine does not tell. Reads one file of /proc. */
typedef struct ups_memory_use {
    uint64_t resident, peak;
} ups_memory_use;
ups_memory_use ups_memory_used(void);

#endif
