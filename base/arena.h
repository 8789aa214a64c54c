/* An arena: many small allocations, one release. Metadata (graphs, sources, parsed headers) lives in arenas, so that an
 * object is freed by freeing its arena. Not thread-safe; one owner. */
#ifndef UPS_BASE_ARENA_H
#define UPS_BASE_ARENA_H

#include <stddef.h>

typedef struct ups_arena ups_arena;

ups_arena *ups_arena_create(size_t block_bytes); /* NULL when out of memory; 0 picks a default */
void ups_arena_destroy(ups_arena *arena);        /* NULL is fine */

/* Zeroed memory aligned to 64 bytes, valid until destroy. Never NULL: running out of memory for metadata ends
 * the process, since no caller could do better. Large buffers are not metadata: use ups_aligned_alloc and check. */
void *ups_arena_alloc(ups_arena *arena, size_t bytes);
/* As above for count elements of `size` bytes; a product that no address space holds is one that could not be had. */
void *ups_arena_array(ups_arena *arena, size_t count, size_t size);
char *ups_arena_strdup(ups_arena *arena, const char *text);
char *ups_arena_printf(ups_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define UPS_ARENA_NEW(arena, type) ((type *)ups_arena_alloc((arena), sizeof(type)))
#define UPS_ARENA_ARRAY(arena, type, count) ((type *)ups_arena_array((arena), (size_t)(count), sizeof(type)))

/* Large buffers: `alignment` a power of two (4096 for O_DIRECT); NULL when out of memory. Free with ups_aligned_free.
 */
void *ups_aligned_alloc(size_t alignment, size_t bytes);
void ups_aligned_free(void *pointer);

#endif
