// Rows from anywhere, side by side: windows of trajectories that stay on the card become a batch.
#include "model/cuda/elements.cuh"

enum { GATHER_THREADS = 128, GATHER_MOST_PIECES = 32 /* blocks of a row */ };

// A row a block of the first axis; the second divides it.
template <typename WORD>
static __global__ void __launch_bounds__(GATHER_THREADS) gather_rows_kernel(WORD *to, const WORD *const *rows, int64_t words) {
    const WORD *from = rows[blockIdx.x];
    WORD *row = to + blockIdx.x * words;
    const int64_t step = (int64_t)gridDim.y * GATHER_THREADS;
    for (int64_t i = (int64_t)blockIdx.y * GATHER_THREADS + threadIdx.x; i < words; i += step) row[i] = from[i];
}

template <typename WORD>
static void launch(cudaStream_t stream, void *to, const void *const *rows, int64_t count, size_t bytes) {
    const int64_t words = (int64_t)(bytes / sizeof(WORD)), pieces = (words + GATHER_THREADS - 1) / GATHER_THREADS;
    const dim3 grid((unsigned)count, (unsigned)(pieces < GATHER_MOST_PIECES ? pieces : GATHER_MOST_PIECES));
    gather_rows_kernel<WORD><<<grid, GATHER_THREADS, 0, stream>>>((WORD *)to, (const WORD *const *)rows, words);
}

// Rows of a trajectory that begins at 64 bytes begin at multiples of their own length, if not of 64.
ups_status ups_cuda_gather_rows(cudaStream_t stream, void *to, const void *const *rows, int64_t count, size_t bytes,
                                ups_error *error) {
    if (count == 0 || bytes == 0) return UPS_OK;
    if (count > INT32_MAX) return ups_fail(error, UPS_ERR_ARGUMENT, "%lld rows at once", (long long)count);
    if (bytes % sizeof(uint4) == 0) launch<uint4>(stream, to, rows, count, bytes);
    else if (bytes % sizeof(uint32_t) == 0) launch<uint32_t>(stream, to, rows, count, bytes);
    else launch<uint16_t>(stream, to, rows, count, bytes);
    return ups_cuda_launched("gathering rows", error);
}
