// Lists of entries by key, for the backward of what was gathered from anywhere: which entries read a number, in the order of
// entries. They are sorted on the card, so that sums over a list have one order, and no atomics.
#pragma once
#include "model/cuda/elements.cuh"

enum { LIST_TILE = 2048 }; // entries that a block sorts

// A word is one entry: its key above, the entry below. Keys that are no list's are NO_KEY.
#define NO_KEY 0xffffffffu
static __device__ __forceinline__ uint64_t list_word(uint32_t key, uint32_t entry) {
    return (uint64_t)key << 32 | entry;
}

// Of key k: words [first[k], first[k + 1]), entries in their low halves, ascending.
struct key_lists {
    const uint64_t *words;
    const uint32_t *first;
};

// Bytes of workspace, at a multiple of 8, that lists of `entries` by keys below `keys` take. The words are first in it, for the
// caller's kernel to fill.
size_t ups_cuda_lists_bytes(int64_t entries, int64_t keys);
// Refuses what has more entries or keys than 31 bits count; `what` names the op.
ups_status ups_cuda_lists_fit(int64_t entries, int64_t keys, const char *what, ups_error *error);
// Sorts the words in `workspace`, and makes the lists there.
ups_status ups_cuda_make_lists(ups_device *device, void *workspace, int64_t entries, int64_t keys, key_lists *lists,
                               ups_error *error);
