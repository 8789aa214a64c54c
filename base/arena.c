#include "base/arena.h"

#include "base/system/exhausted.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, DEFAULT_BLOCK = 64 * 1024 };

typedef struct block {
    struct block *next;
    size_t capacity, used; /* bytes of `data` */
    _Alignas(ALIGNMENT) unsigned char data[];
} block;

struct ups_arena {
    block *first;
    block *current; /* blocks before it are full */
    size_t block_bytes;
};

static size_t round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) & ~(alignment - 1);
}

static block *new_block(size_t capacity) {
    if (capacity > SIZE_MAX - sizeof(block) - ALIGNMENT) return NULL;
    block *made = ups_aligned_alloc(ALIGNMENT, sizeof(block) + capacity);
    if (!made) return NULL;
    made->next = NULL;
    made->capacity = capacity;
    made->used = 0;
    return made;
}

ups_arena *ups_arena_create(size_t block_bytes) {
    ups_arena *arena = malloc(sizeof *arena);
    if (!arena) return NULL;
    arena->block_bytes = round_up(block_bytes ? block_bytes : DEFAULT_BLOCK, ALIGNMENT);
    arena->first = arena->current = new_block(arena->block_bytes);
    if (!arena->first) {
        free(arena);
        return NULL;
    }
    return arena;
}

void ups_arena_destroy(ups_arena *arena) {
    if (!arena) return;
    for (block *b = arena->first, *next; b; b = next) {
        next = b->next;
        ups_aligned_free(b);
    }
    free(arena);
}

static __attribute__((noreturn)) void out_of_memory(size_t bytes) {
    ups_out_of_memory("memory for metadata", bytes);
}

void *ups_arena_alloc(ups_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) out_of_memory(bytes);
    size_t size = round_up(bytes ? bytes : 1, ALIGNMENT);
    block *b = arena->current;
    while (b->capacity - b->used < size) {
        if (!b->next || b->next->capacity < size) {
            block *made = new_block(size > arena->block_bytes ? size : arena->block_bytes);
            if (!made) out_of_memory(bytes);
            made->next = b->next;
            b->next = made;
        }
        b = b->next;
    }
    arena->current = b;
    void *memory = b->data + b->used;
    b->used += size;
    return memset(memory, 0, size);
}

void *ups_arena_array(ups_arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) out_of_memory(SIZE_MAX);
    return ups_arena_alloc(arena, bytes);
}

char *ups_arena_strdup(ups_arena *arena, const char *text) {
    size_t length = strlen(text);
    return memcpy(ups_arena_alloc(arena, length + 1), text, length);
}

char *ups_arena_printf(ups_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = ups_arena_alloc(arena, (size_t)(length > 0 ? length : 0) + 1);
    if (length > 0) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void *ups_aligned_alloc(size_t alignment, size_t bytes) {
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    void *memory = NULL;
    return posix_memalign(&memory, alignment, bytes ? bytes : 1) == 0 ? memory : NULL;
}

void ups_aligned_free(void *pointer) {
    free(pointer);
}
