// Lists by key: a merge sort of 64-bit words, tiles in shared memory first, then runs that double with each launch. A word's
// place in the merged run is its place in its own run and the words of the other one before it, which a binary search counts:
// all words move at once, and no block waits for another.
#include "model/cuda/lists.cuh"

// How many of `count` ascending words are less than `word`, or not greater.
template <typename COUNT>
static __device__ __forceinline__ COUNT words_before(const uint64_t *words, COUNT count, uint64_t word, bool or_equal) {
    COUNT low = 0, high = count;
    while (low < high) {
        COUNT middle = (low + high) / 2;
        if (words[middle] < word || (or_equal && words[middle] == word)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static __global__ void __launch_bounds__(THREADS) sort_tiles_kernel(uint64_t *words, int64_t count) {
    __shared__ uint64_t tiles[2][LIST_TILE];
    int64_t start = (int64_t)blockIdx.x * LIST_TILE;
    int now = 0;
    for (int i = threadIdx.x; i < LIST_TILE; i += THREADS)
        tiles[0][i] = start + i < count ? words[start + i] : ~(uint64_t)0; // these stay behind all that there are
    for (int run = 1; run < LIST_TILE; run *= 2, now ^= 1) {
        __syncthreads();
        for (int i = threadIdx.x; i < LIST_TILE; i += THREADS) {
            uint64_t word = tiles[now][i];
            bool second = i & run;
            int pair = i & ~(2 * run - 1), other = second ? pair : pair + run;
            int before = words_before(&tiles[now][other], run, word, second);
            tiles[now ^ 1][pair + (i & (run - 1)) + before] = word;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < LIST_TILE; i += THREADS) {
        if (start + i < count) words[start + i] = tiles[now][i];
    }
}

static __global__ void __launch_bounds__(THREADS)
    merge_runs_kernel(const uint64_t *from, uint64_t *to, int64_t count, int64_t run) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) {
        int64_t pair = i / (2 * run) * (2 * run), middle = min(pair + run, count), end = min(pair + 2 * run, count);
        bool second = i >= middle;
        uint64_t word = from[i];
        int64_t before = second ? words_before(from + pair, middle - pair, word, true)
                                : words_before(from + middle, end - middle, word, false);
        to[(second ? pair + i - middle : i) + before] = word;
    }
}

static __global__ void __launch_bounds__(THREADS)
    list_starts_kernel(const uint64_t *words, int64_t count, uint32_t *first, int64_t keys) {
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t key = (int64_t)blockIdx.x * THREADS + threadIdx.x; key <= keys; key += stride)
        first[key] = (uint32_t)words_before(words, count, (uint64_t)key << 32, false);
}

size_t ups_cuda_lists_bytes(int64_t entries, int64_t keys) {
    return (size_t)entries * 2 * sizeof(uint64_t) + (size_t)(keys + 1) * sizeof(uint32_t);
}

ups_status ups_cuda_lists_fit(int64_t entries, int64_t keys, const char *what, ups_error *error) {
    if (entries <= INT32_MAX && keys < INT32_MAX) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "%s: %lld reads of %lld places; on CUDA both are below 2^31: take fewer points at once", what,
                    (long long)entries, (long long)keys);
}

ups_status ups_cuda_make_lists(ups_device *device, void *workspace, int64_t entries, int64_t keys, key_lists *lists,
                               ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    uint64_t *words = (uint64_t *)workspace, *spare = words + entries;
    uint32_t *first = (uint32_t *)(spare + entries);
    if (entries > 0) {
        unsigned tiles = (unsigned)((entries + LIST_TILE - 1) / LIST_TILE);
        sort_tiles_kernel<<<tiles, THREADS, 0, stream>>>(words, entries);
        UPS_TRY(ups_cuda_launched("sorting tiles of reads", error));
    }
    for (int64_t run = LIST_TILE; run < entries; run *= 2) {
        merge_runs_kernel<<<blocks_for(entries, 1), THREADS, 0, stream>>>(words, spare, entries, run);
        UPS_TRY(ups_cuda_launched("merging runs of reads", error));
        uint64_t *merged = spare;
        spare = words, words = merged;
    }
    list_starts_kernel<<<blocks_for(keys + 1, 1), THREADS, 0, stream>>>(words, entries, first, keys);
    *lists = key_lists{words, first};
    return ups_cuda_launched("finding lists of reads", error);
}
