/* The device as it tells of itself: one that an A100's limits hold for, and that multiplies what an H100 does, or what
 * SIMT_CAPABILITY says ("8.0"). */
#include "tests/cuda/runtime/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 13000 };

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device != 0) return emulated_refuse(cudaErrorInvalidDevice, "device %d; there is device 0", device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = VERSION;
    return cudaSuccess;
}

void emulated_capability(int *major, int *minor) {
    const char *given = getenv("SIMT_CAPABILITY");
    *major = 9;
    *minor = 0;
    if (given) sscanf(given, "%d.%d", major, minor);
}

/* One, so that blocks have much to do, or as many as SIMT_PROCESSORS says. */
static int processors(void) {
    const char *given = getenv("SIMT_PROCESSORS");
    return given && atoi(given) > 0 ? atoi(given) : 1;
}

size_t emulated_most_shared(void) {
    int major, minor;
    emulated_capability(&major, &minor);
    return (size_t)(major >= 9 ? 227 : major == 8 && minor > 0 ? 99 : 163) << 10;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    memset(properties, 0, sizeof *properties);
    const char *name = getenv("SIMT_CARD");
    snprintf(properties->name, sizeof properties->name, "%s", name ? name : "emulated, no card");
    emulated_capability(&properties->major, &properties->minor);
    properties->multiProcessorCount = processors();
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->warpSize = 32;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = emulated_most_shared();
    properties->sharedMemPerMultiprocessor = properties->sharedMemPerBlockOptin + (1 << 10);
    properties->totalGlobalMem = (size_t)8 << 30;
    return cudaSuccess;
}

#define ERRORS(X)                                                                                                      \
    X(cudaSuccess)                                                                                                     \
    X(cudaErrorInvalidValue)                                                                                           \
    X(cudaErrorMemoryAllocation)                                                                                       \
    X(cudaErrorInvalidConfiguration)                                                                                   \
    X(cudaErrorInvalidDevice)                                                                                          \
    X(cudaErrorInvalidDeviceFunction)                                                                                  \
    X(cudaErrorInvalidResourceHandle)                                                                                  \
    X(cudaErrorIllegalState)                                                                                           \
    X(cudaErrorNotReady)                                                                                               \
    X(cudaErrorStreamCaptureUnsupported)                                                                               \
    X(cudaErrorStreamCaptureInvalidated)                                                                               \
    X(cudaErrorStreamCaptureMerge)                                                                                     \
    X(cudaErrorStreamCaptureUnmatched)                                                                                 \
    X(cudaErrorStreamCaptureUnjoined)                                                                                  \
    X(cudaErrorStreamCaptureIsolation)                                                                                 \
    X(cudaErrorCapturedEvent)

const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
#define NAME(error)                                                                                                    \
    case error:                                                                                                        \
        return #error;
        ERRORS(NAME)
#undef NAME
    default:
        return "an error that the emulator does not name";
    }
}

const char *cudaGetErrorString(cudaError_t code) {
    return cudaGetErrorName(code);
}
