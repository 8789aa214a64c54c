/* Large buffers on huge pages where the kernel grants them: a batch slot is touched end to end, and at 4 KiB a fault
 * the faults cost more than the decoding. Smaller ones lie on ordinary pages. */
#ifndef UPS_BASE_SYSTEM_PAGES_H
#define UPS_BASE_SYSTEM_PAGES_H

#include <stddef.h>

void *ups_pages_alloc(size_t bytes);  /* aligned to 2 MiB from that size on, else to 4 KiB; NULL when out of memory */
void ups_pages_free(void *memory);    /* NULL is fine */
size_t ups_pages_bytes(size_t bytes); /* what such a buffer takes: whole pages */

/* Buffers that were given back, for whoever wants as many bytes next: the kernel clears fresh pages, which takes as
 * long as filling them. For loaders that follow each other; one thread at a time. With NULL for a store they are
 * allocated and freed. */
typedef struct ups_pages_store ups_pages_store;
ups_pages_store *ups_pages_store_create(void);        /* NULL when out of memory */
void ups_pages_store_destroy(ups_pages_store *store); /* everything was given back; NULL is fine */
void *ups_pages_take(ups_pages_store *store, size_t bytes);
void ups_pages_give(ups_pages_store *store, void *memory); /* NULL is fine */

#endif
