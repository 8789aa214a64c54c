/* For tests of the emulator: streams, arrays in device memory, and numbers that are near. Includers have no use for
 * all. */
#ifndef UPS_TESTS_CUDA_ARRAYS_H
#define UPS_TESTS_CUDA_ARRAYS_H

#include "base/random.h"
#include "tests/model/claims.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

static cudaStream_t stream, other;

#define works(call) assert_int_equal((call), cudaSuccess)
static inline int open_streams(void **state) {
    works(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    works(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    return 0;
}

static inline void *room(size_t bytes) {
    void *memory;
    works(cudaMalloc(&memory, bytes));
    return memory;
}

static inline void *up(const void *host, size_t bytes) {
    void *memory = room(bytes);
    works(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, stream));
    return memory;
}

static inline void *down(const void *device, size_t bytes) {
    void *host = malloc(bytes);
    works(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    works(cudaStreamSynchronize(stream));
    return host;
}

static inline float *normal(size_t count, uint32_t draw) {
    float *x = malloc(count * sizeof *x);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, draw), 1.0f, x, count);
    return x;
}

static inline void near(double actual, double expected, double bound) {
    if (fabs(actual - expected) <= bound) return; /* a NaN is not near */
    fail_msg("%.9g; %.9g was expected, within %.1e", actual, expected, bound);
}

#endif
