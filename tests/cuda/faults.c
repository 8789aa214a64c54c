/* faults NAME: commits one planted fault. It ends by the emulator's hand, or says that nothing was noticed. */
#include "tests/cuda/faults.h"
#include "tests/cuda/rings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 256, FEW = 64, BYTES = COUNT * sizeof(float) };

static cudaStream_t stream, other;
static float *x, *host; /* device memory of COUNT, pinned memory of COUNT */

static void launched(void (*launch)(float *, cudaStream_t)) {
    launch(x, stream);
    cudaStreamSynchronize(stream);
}

/* x of exactly FEW: one further is another's. */
static void launched_on_few(void (*launch)(float *, cudaStream_t)) {
    float *few;
    cudaMalloc((void **)&few, FEW * sizeof *few);
    cudaMemsetAsync(few, 0, FEW * sizeof *few, stream);
    launch(few, stream);
    cudaStreamSynchronize(stream);
}

static void beyond_global(void) {
    launched_on_few(launch_beyond_global);
}

static void missing_stream_wait(void) {
    launch_right(x, stream);
    launch_right(x, other);
    cudaStreamSynchronize(stream);
    cudaStreamSynchronize(other);
}

static void use_after_free(void) {
    cudaFree(x);
    launched(launch_right);
}

static void unjoined_capture(void) {
    cudaEvent_t event;
    cudaGraph_t graph;
    float *y;
    cudaMalloc((void **)&y, BYTES);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    launch_right(x, stream);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(other, event, 0);
    cudaMemsetAsync(y, 0, BYTES, other);
    if (cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined) abort(); /* fault: unjoined_capture */
}

static void reused_host_memory(void) {
    cudaMemcpyAsync(x, host, BYTES, cudaMemcpyHostToDevice, stream);
    host[1] = 2.0f; /* fault: reused_host_memory */
    cudaStreamSynchronize(stream);
}

static void host_reads_early(void) {
    cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream);
    if (host[0] > 0.0f) puts("more"); /* fault: host_reads_early */
    cudaStreamSynchronize(stream);
}

static void host_reads_device(void) {
    if (x[0] > 0.0f) puts("more"); /* fault: host_reads_device */
}

#define LAUNCHED(X)                                                                                                    \
    X(missing_barrier)                                                                                                 \
    X(beyond_shared)                                                                                                   \
    X(misaligned)                                                                                                      \
    X(divergent_shuffle)                                                                                               \
    X(missing_copy_wait)                                                                                               \
    X(race_between_blocks)                                                                                             \
    X(release_without_barrier)                                                                                         \
    X(release_without_fence)                                                                                           \
    X(acquire_without_fence)                                                                                           \
    X(write_behind_the_fence)                                                                                          \
    X(release_by_shared_atomic)                                                                                        \
    X(release_by_volatile)                                                                                             \
    X(endless_loop)                                                                                                    \
    X(barrier_not_met)
#define COMMIT(name)                                                                                                   \
    static void name(void) {                                                                                           \
        launched(launch_##name);                                                                                       \
    }
LAUNCHED(COMMIT)
GROUP_FAULTS(COMMIT)
MBARRIER_FAULTS(COMMIT)
#define COMMIT_RING(name) COMMIT(ring_##name)
RING_FAULTS(COMMIT_RING)
ARRIVING_RING_FAULTS(COMMIT_RING)

#define ENTRY(name) {#name, name},
#define RING_ENTRY(name) ENTRY(ring_##name)
static const struct {
    const char *name;
    void (*commit)(void);
} faults[] = {LAUNCHED(ENTRY) GROUP_FAULTS(ENTRY) MBARRIER_FAULTS(ENTRY) RING_FAULTS(RING_ENTRY)
                  ARRIVING_RING_FAULTS(RING_ENTRY) ENTRY(beyond_global) ENTRY(missing_stream_wait) ENTRY(use_after_free)
                      ENTRY(unjoined_capture) ENTRY(reused_host_memory) ENTRY(host_reads_early)
                          ENTRY(host_reads_device)};

int main(int argc, char **argv) {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaMalloc((void **)&x, BYTES);
    cudaHostAlloc((void **)&host, BYTES, 0);
    cudaMemsetAsync(x, 0, BYTES, stream);
    cudaStreamSynchronize(stream);
    for (size_t i = 0; argc == 2 && i < sizeof faults / sizeof *faults; i++) {
        if (strcmp(argv[1], faults[i].name) != 0) continue;
        faults[i].commit();
        fprintf(stderr, "nothing was noticed\n");
        return 1;
    }
    fprintf(stderr, "usage: faults NAME\n");
    return 2;
}
