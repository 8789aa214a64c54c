/* Large buffers on huge pages where the kernel grants them: a batch slot is touched end to end, and at 4 KiB a fault
 * the faults cost more than the decoding. */
#ifndef UPS_PIPELINE_PAGES_H
#define UPS_PIPELINE_PAGES_H

#include <stddef.h>

void *ups_pages_alloc(size_t bytes); /* aligned to 2 MiB; NULL when out of memory */
void ups_pages_free(void *memory);   /* NULL is fine */

#endif
