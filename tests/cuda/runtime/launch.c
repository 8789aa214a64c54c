/* What the host code that nvcc compiled calls: kernels tell of themselves by name, and <<<>>> launches them. The names
 * are those that crt/host_runtime.h declares, of CUDA 12 (cudaLaunchKernel) and 13 (__cudaLaunchKernel). */
#include "tests/cuda/runtime/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STUBS = 4096, SHARED_WITHOUT_ASKING = 48 << 10, MAX_GRID_YZ = 65535 };
enum { MAX_PARAMETERS_IN_GRAPH = 4096 /* bytes: some versions of CUDA crash on more (openxla/xla, pull 19252) */ };

typedef struct stub {
    const void *address; /* the host function that stands for the kernel */
    const simt_kernel *kernel;
    size_t dynamic_shared; /* that it may have */
} stub;

static stub stubs[MAX_STUBS];
static int stub_count;
static _Thread_local struct { /* of the launch that this thread is at: it is two calls */
    dim3 grid, block;
    size_t shared;
    void *stream;
} configuration;

static stub *find_stub(const void *address) {
    for (int i = 0; i < stub_count; i++) {
        if (stubs[i].address == address) return &stubs[i];
    }
    return NULL;
}

void **__cudaRegisterFatBinary(void *binary);
void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle);
char __cudaInitModule(void **handle) {
    return 1;
}

/* Constructors run in any order: which kernel it is, is asked when it is launched. */
static const char *stub_names[MAX_STUBS];

void __cudaRegisterFunction(void **handle, const char *address, char *device_function, const char *name, int limit,
                            uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size);
void __cudaRegisterFunction(void **handle, const char *address, char *device_function, const char *name, int limit,
                            uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
    if (stub_count == MAX_STUBS) simt_fail(NULL, "more than %d kernels", MAX_STUBS);
    stub_names[stub_count] = name;
    stubs[stub_count++] = (stub){.address = address};
}

/* Kernels find their variables themselves. */
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t size,
                       int constant, int global);
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t size,
                       int constant, int global) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(void **)stream = configuration.stream;
    return cudaSuccess;
}

static const simt_kernel *kernel_of(stub *s) {
    if (s->kernel) return s->kernel;
    s->kernel = simt_find_kernel(stub_names[s - stubs]);
    if (!s->kernel) simt_fail(NULL, "the kernel %s was compiled but not translated", stub_names[s - stubs]);
    return s->kernel;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    EMULATED_CALL_BEGINS();
    stub *s = find_stub(function);
    if (!s) return emulated_refuse(cudaErrorInvalidDeviceFunction, "an attribute of what is no kernel");
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return emulated_refuse(cudaErrorInvalidValue, "attribute %d of a kernel is not emulated", attribute);
    if (value < 0 || (size_t)value + kernel_of(s)->shared_bytes > emulated_most_shared())
        return emulated_refuse(cudaErrorInvalidValue, "%d bytes of shared memory; a block has %zu", value,
                               emulated_most_shared());
    s->dynamic_shared = (size_t)value;
    return cudaSuccess;
}

static cudaError_t launch(stub *s, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    const simt_kernel *kernel = kernel_of(s);
    uint32_t threads = block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > MAX_GRID_YZ || grid.z > MAX_GRID_YZ)
        return emulated_refuse(cudaErrorInvalidConfiguration, "%s: a grid of %u x %u x %u", kernel->name, grid.x,
                               grid.y, grid.z);
    if (threads == 0 || threads > 1024 || block.z > 64 || threads > kernel->most_threads)
        return emulated_refuse(cudaErrorInvalidConfiguration, "%s: a block of %u x %u x %u; it has at most %u threads",
                               kernel->name, block.x, block.y, block.z, kernel->most_threads);
    size_t may = s->dynamic_shared ? s->dynamic_shared : SHARED_WITHOUT_ASKING - kernel->shared_bytes;
    if (shared > may)
        return emulated_refuse(cudaErrorInvalidValue,
                               "%s: %zu bytes of dynamic shared memory, %zu were asked for by cudaFuncSetAttribute or "
                               "are there without",
                               kernel->name, shared, may);
    emulated_body *body = emulated_body_create(EMULATED_KERNEL);
    size_t bytes = 16;
    for (uint32_t i = 0; i < kernel->parameter_count; i++)
        bytes = kernel->parameters[i].offset + kernel->parameters[i].bytes + 16;
    if (bytes - 16 > MAX_PARAMETERS_IN_GRAPH && (uintptr_t)stream > 2 && stream->capture) {
        emulated_body_release(body);
        return emulated_refuse(cudaErrorInvalidValue, "%s: %zu bytes of parameters in a capture; %d are safe there",
                               kernel->name, bytes - 16, MAX_PARAMETERS_IN_GRAPH);
    }
    uint8_t *parameters = aligned_alloc(16, (bytes + 15) / 16 * 16);
    if (!parameters) return cudaErrorMemoryAllocation;
    for (uint32_t i = 0; i < kernel->parameter_count; i++)
        memcpy(parameters + kernel->parameters[i].offset, arguments[i], kernel->parameters[i].bytes);
    body->kernel = kernel;
    body->grid = (simt_dim){grid.x, grid.y, grid.z};
    body->block = (simt_dim){block.x, block.y, block.z};
    body->dynamic_shared = (uint32_t)shared;
    body->owned = parameters;
    return emulated_issue(stream, body, NULL);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)find_stub(function);
    return *kernel ? cudaSuccess : emulated_refuse(cudaErrorInvalidDeviceFunction, "what is no kernel is launched");
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    return launch((stub *)kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    stub *s = find_stub(function);
    if (!s) return emulated_refuse(cudaErrorInvalidDeviceFunction, "what is no kernel is launched");
    return launch(s, grid, block, arguments, shared, stream);
}
