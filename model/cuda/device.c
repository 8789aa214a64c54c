/* A CUDA card as a device: two streams, pinned host memory, and a graph for each capture. C only: kernels are in the
 * .cu files beside this one, and look like those of model/cpu/.
 *
 * CUDA tells of what failed on the card by a later call; every call here tells it on. */
#include "model/cuda/host.h"
#include "model/cuda/libraries/cublaslt.h"
#include "model/cuda/module.h"
#include "model/cuda/peers/peers.h"
#include "model/cuda/products/product.h"
#include <stdlib.h>
#include <string.h>
#if __has_include(<nvtx3/nvToolsExt.h>) /* a toolkit may come without */
#include <nvtx3/nvToolsExt.h>
#define HAS_NVTX
#endif

/* Pinned host memory by both of its addresses. */
typedef struct offloaded {
    struct offloaded *next;
    void *host, *memory;
    size_t bytes;
} offloaded;

typedef struct cuda_device {
    ups_device device;
    cudaStream_t streams[UPS_STREAM_COUNT];
    cublasLtHandle_t blas;
    ups_cuda_choices *choices;
    ups_kernel_choice choice;
    ups_cuda_norm_partial *norm_partials;
    unsigned *tickets;
    ups_cuda_muon *muon_plans;
    offloaded *offloaded;
    char name[256];
    int capability[2]; /* major, minor */
    size_t most_shared;
    int processors;
    uint64_t planned; /* bytes of an absent card: no stream, no library; 0: there is one */
} cuda_device;

static cuda_device *of(ups_device *device) {
    return (cuda_device *)(void *)device;
}

cudaStream_t ups_cuda_stream(ups_device *device) {
    return of(device)->streams[UPS_STREAM_COMPUTE];
}

cublasLtHandle_t ups_cuda_blas(ups_device *device) {
    return of(device)->blas;
}

ups_cuda_choices *ups_cuda_choices_of(ups_device *device) {
    return of(device)->choice == UPS_KERNELS_FASTEST ? of(device)->choices : NULL;
}

int ups_cuda_processors(ups_device *device) {
    return of(device)->processors;
}

size_t ups_cuda_most_shared(ups_device *device) {
    return of(device)->most_shared;
}

unsigned *ups_cuda_tickets(ups_device *device) {
    return of(device)->tickets;
}

bool ups_cuda_only_plans(ups_device *device) {
    return of(device)->planned > 0;
}

bool ups_cuda_kernels_by_shape(ups_device *device) {
    return of(device)->choice == UPS_KERNELS_BY_SHAPE;
}

bool ups_cuda_has_groups(ups_device *device) {
    const int *has = of(device)->capability; /* Hopper alone: the next cards have other instructions */
    return has[0] == 9 && has[1] == 0;
}

ups_status ups_cuda_has_fp8(ups_device *device, ups_error *error) {
    const int *has = of(device)->capability;
    if (ups_cuda_only_plans(device) || has[0] > 8 || (has[0] == 8 && has[1] >= 9)) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "%s is of compute capability %d.%d; FP8 is multiplied from 8.9 (Ada, Hopper) on: take "
                    "precision: bf16",
                    of(device)->name, has[0], has[1]);
}

ups_cuda_muon **ups_cuda_muon_plans(ups_device *device) {
    return &of(device)->muon_plans;
}

ups_status ups_cuda_check(cudaError_t code, const char *doing, ups_error *error) {
    if (code == cudaSuccess) return UPS_OK;
    cudaGetLastError();
    ups_status status = code == cudaErrorMemoryAllocation ? UPS_ERR_MEMORY : UPS_ERR_UNSUPPORTED;
    return ups_fail(error, status, "CUDA: %s failed: %s (%s)", doing, cudaGetErrorString(code), cudaGetErrorName(code));
}

ups_status ups_cuda_launched(const char *kernel, ups_error *error) {
    return ups_cuda_check(cudaGetLastError(), kernel, error);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static ups_status synchronize(ups_device *device, ups_error *error) {
    for (int s = 0; s < UPS_STREAM_COUNT; s++) {
        if (!of(device)->streams[s]) continue; /* it was never made: opening failed */
        UPS_TRY(ups_cuda_check(cudaStreamSynchronize(of(device)->streams[s]), "waiting for the card", error));
    }
    return UPS_OK;
}

/* Zeroed before anything else is issued, on whichever stream. */
static ups_status allocate(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    cudaError_t code = cudaMalloc(memory, bytes ? bytes : 1);
    if (code != cudaSuccess) {
        cudaGetLastError();
        size_t available = 0, total = 0;
        cudaMemGetInfo(&available, &total);
        return ups_fail(error, UPS_ERR_MEMORY, "%.1f MB of memory of %s could not be had: %.1f of its %.1f MB are left",
                        (double)bytes * 1e-6, of(device)->name, (double)available * 1e-6, (double)total * 1e-6);
    }
    code = cudaMemsetAsync(*memory, 0, bytes ? bytes : 1, ups_cuda_stream(device));
    if (code == cudaSuccess) code = cudaStreamSynchronize(ups_cuda_stream(device));
    if (code == cudaSuccess) return UPS_OK;
    cudaFree(*memory);
    *memory = NULL;
    return ups_cuda_check(code, "zeroing memory", error);
}

static void release(ups_device *device, void *memory) {
    synchronize(device, NULL);
    cudaFree(memory);
}

static ups_status allocate_host(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    cudaError_t code = cudaHostAlloc(memory, bytes ? bytes : 1, cudaHostAllocDefault);
    if (code == cudaSuccess) return UPS_OK;
    cudaGetLastError();
    return ups_fail(error, UPS_ERR_MEMORY, "%.1f MB of pinned host memory could not be had", (double)bytes * 1e-6);
}

static void release_host(ups_device *device, void *memory) {
    synchronize(device, NULL);
    cudaFreeHost(memory);
}

static ups_status allocate_offloaded(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    offloaded *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left");
    *memory = NULL;
    if (cudaHostAlloc(&made->host, bytes ? bytes : 1, cudaHostAllocMapped) != cudaSuccess) {
        cudaGetLastError();
        free(made);
        return ups_fail(error, UPS_ERR_MEMORY, "%.1f MB of pinned host memory could not be had", (double)bytes * 1e-6);
    }
    memset(made->host, 0, bytes);
    ups_status status = ups_cuda_check(cudaHostGetDevicePointer(&made->memory, made->host, 0),
                                       "asking for the card's address of host memory", error);
    if (status != UPS_OK) {
        cudaFreeHost(made->host);
        free(made);
        return status;
    }
    made->bytes = bytes;
    made->next = of(device)->offloaded;
    of(device)->offloaded = made;
    *memory = made->memory;
    return UPS_OK;
}

static void release_offloaded(ups_device *device, void *memory) {
    offloaded **at = &of(device)->offloaded;
    synchronize(device, NULL);
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    offloaded *gone = *at;
    if (!gone) return;
    *at = gone->next;
    cudaFreeHost(gone->host);
    free(gone);
}

static ups_status memory_of(ups_device *device, uint64_t *total, uint64_t *available, ups_error *error) {
    /* What the driver, its context, the module and cuBLASLt take: a guess on the large side. */
    const uint64_t context = UINT64_C(1) << 30;
    *total = of(device)->planned;
    *available = *total > context ? *total - context : 0;
    if (of(device)->planned) return UPS_OK;
    size_t all = 0, left = 0;
    UPS_TRY(ups_cuda_check(cudaMemGetInfo(&left, &all), "asking for free memory", error));
    *total = all;
    *available = left;
    return UPS_OK;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

/* The host's address of offloaded memory; NULL: it is the card's. */
static void *host_address(ups_device *device, const void *memory) {
    for (const offloaded *o = of(device)->offloaded; o; o = o->next) {
        size_t at = (size_t)((const char *)memory - (const char *)o->memory);
        if (at < o->bytes) return (char *)o->host + at;
    }
    return NULL;
}

/* Between host memory and host memory that kernels reach, which CUDA promises no order for: when the card is done. */
static ups_status copy_by_host(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    UPS_TRY(synchronize(device, error));
    memcpy(to, from, bytes);
    return UPS_OK;
}

static ups_status copy_on(ups_device *device, ups_stream stream, void *to, const void *from, size_t bytes,
                          enum cudaMemcpyKind kind, ups_error *error) {
    return ups_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, of(device)->streams[stream]), "a copy", error);
}

static ups_status upload(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    void *there = host_address(device, to);
    if (there) return copy_by_host(device, there, from, bytes, error);
    return copy_on(device, UPS_STREAM_COMPUTE, to, from, bytes, cudaMemcpyHostToDevice, error);
}

static ups_status upload_ahead(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    return copy_on(device, UPS_STREAM_COPY, to, from, bytes, cudaMemcpyHostToDevice, error);
}

static ups_status gather_ahead(ups_device *device, void *to, const void *const *rows, int64_t count, size_t bytes,
                               ups_error *error) {
    return ups_cuda_gather_rows(of(device)->streams[UPS_STREAM_COPY], to, rows, count, bytes, error);
}

static ups_status download_later(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    const void *there = host_address(device, from);
    if (there) return copy_by_host(device, to, there, bytes, error);
    return copy_on(device, UPS_STREAM_COMPUTE, to, from, bytes, cudaMemcpyDeviceToHost, error);
}

static ups_status download(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    UPS_TRY(download_later(device, to, from, bytes, error));
    return ups_cuda_check(cudaStreamSynchronize(ups_cuda_stream(device)), "a copy", error);
}

static ups_status copy(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    return copy_on(device, UPS_STREAM_COMPUTE, to, from, bytes, cudaMemcpyDeviceToDevice, error);
}

static ups_status zero(ups_device *device, void *memory, size_t bytes, ups_error *error) {
    return ups_cuda_check(cudaMemsetAsync(memory, 0, bytes, ups_cuda_stream(device)), "zeroing memory", error);
}

/* ---- events: a ups_event is a cudaEvent_t -------------------------------------------------------------------------
 */

static ups_status event_create(ups_device *device, ups_event **event, ups_error *error) {
    return ups_cuda_check(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming), "making an event",
                          error);
}

static void event_destroy(ups_device *device, ups_event *event) {
    cudaEventDestroy((cudaEvent_t)event);
}

static ups_status event_record(ups_device *device, ups_event *event, ups_stream stream, ups_error *error) {
    return ups_cuda_check(cudaEventRecord((cudaEvent_t)event, of(device)->streams[stream]), "recording an event",
                          error);
}

static ups_status event_wait(ups_device *device, ups_event *event, ups_error *error) {
    return ups_cuda_check(cudaEventSynchronize((cudaEvent_t)event), "waiting for an event", error);
}

static ups_status stream_wait(ups_device *device, ups_stream stream, ups_event *event, ups_error *error) {
    return ups_cuda_check(cudaStreamWaitEvent(of(device)->streams[stream], (cudaEvent_t)event, 0),
                          "waiting for an event", error);
}

/* ---- capture: a ups_capture is a cudaGraphExec_t ------------------------------------------------------------------
 */

static ups_status capture_begin(ups_device *device, ups_error *error) {
    return ups_cuda_check(cudaStreamBeginCapture(ups_cuda_stream(device), cudaStreamCaptureModeThreadLocal),
                          "beginning a capture", error);
}

static ups_status capture_end(ups_device *device, ups_capture **capture, ups_error *error) {
    cudaGraph_t graph;
    *capture = NULL;
    UPS_TRY(ups_cuda_check(cudaStreamEndCapture(ups_cuda_stream(device), &graph), "ending a capture", error));
    ups_status status =
        ups_cuda_check(cudaGraphInstantiate((cudaGraphExec_t *)capture, graph, 0), "making a graph", error);
    cudaGraphDestroy(graph);
    return status;
}

static ups_status capture_launch(ups_device *device, const ups_capture *capture, ups_error *error) {
    return ups_cuda_check(cudaGraphLaunch((cudaGraphExec_t)(uintptr_t)capture, ups_cuda_stream(device)),
                          "launching a graph", error);
}

static void capture_release(ups_device *device, ups_capture *capture) {
    cudaGraphExecDestroy((cudaGraphExec_t)capture);
}

/* ---- ranges: NVTX, which calls a profiler that has loaded itself, and otherwise nobody -----------------------------
 */

static void range_begin(const char *name) {
#ifdef HAS_NVTX
    nvtxRangePushA(name);
#endif
}

static void range_end(void) {
#ifdef HAS_NVTX
    nvtxRangePop();
#endif
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static const ups_cuda_kernel *const kernels[UPS_OP_COUNT] = {
    [UPS_OP_LINEAR] = &ups_cuda_linear,
    [UPS_OP_LINEAR_GELU] = &ups_cuda_linear_gelu,
    [UPS_OP_LAYER_NORM] = &ups_cuda_layer_norm,
    [UPS_OP_RMS_NORM] = &ups_cuda_rms_norm,
    [UPS_OP_GELU] = &ups_cuda_gelu,
    [UPS_OP_SILU] = &ups_cuda_silu,
    [UPS_OP_CAST] = &ups_cuda_cast,
    [UPS_OP_SLICE] = &ups_cuda_slice,
    [UPS_OP_SELECT_FRAME] = &ups_cuda_select_frame,
    [UPS_OP_PATCHIFY] = &ups_cuda_patchify,
    [UPS_OP_NEIGHBORHOOD] = &ups_cuda_neighborhood,
    [UPS_OP_COARSEN] = &ups_cuda_coarsen,
    [UPS_OP_REFINE] = &ups_cuda_refine,
    [UPS_OP_POOL_TOKENS] = &ups_cuda_pool_tokens,
    [UPS_OP_GATHER_POINTS] = &ups_cuda_gather_points,
    [UPS_OP_WEIGH] = &ups_cuda_weigh,
    [UPS_OP_READ_PATCHES] = &ups_cuda_read_patches,
    [UPS_OP_FOURIER] = &ups_cuda_fourier,
    [UPS_OP_ANGLES] = &ups_cuda_angles,
    [UPS_OP_DEPTHWISE] = &ups_cuda_depthwise,
    [UPS_OP_SPECTRAL] = &ups_cuda_spectral,
    [UPS_OP_FIELD_MODES] = &ups_cuda_field_modes,
    [UPS_OP_ATTENTION] = &ups_cuda_attention,
    [UPS_OP_MODULATE] = &ups_cuda_modulate,
    [UPS_OP_RESIDUAL] = &ups_cuda_residual,
    [UPS_OP_ADD] = &ups_cuda_add,
    [UPS_OP_BROADCAST] = &ups_cuda_broadcast,
    [UPS_OP_SCALE] = &ups_cuda_scale,
    [UPS_OP_BOUND] = &ups_cuda_bound,
    [UPS_OP_ROUND_F16] = &ups_cuda_round_f16,
    [UPS_OP_NOISE] = &ups_cuda_noise,
    [UPS_OP_SHIFT] = &ups_cuda_shift,
    [UPS_OP_SYMMETRY] = &ups_cuda_symmetry,
    [UPS_OP_LOSS_MSE] = &ups_cuda_loss_mse,
    [UPS_OP_LOSS_RELATIVE] = &ups_cuda_loss_relative,
    [UPS_OP_LOSS_GROUPED] = &ups_cuda_loss_grouped,
    [UPS_OP_LOSS_NEGATIVE] = &ups_cuda_loss_negative,
    [UPS_OP_LOSS_COVARIANCE] = &ups_cuda_loss_covariance,
    [UPS_OP_WEIGHTED_SUM] = &ups_cuda_weighted_sum,
};

static ups_status choose_kernel(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                ups_error *error) {
    const ups_cuda_kernel *chosen = kernels[call->kind];
    *kernel = (ups_kernel){0};
    if (!chosen) return UPS_OK;
    kernel->forward = chosen->forward;
    kernel->backward = chosen->backward;
    kernel->pair_forward = chosen->pair_forward;
    kernel->pair_backward = chosen->pair_backward;
    return chosen->prepare ? chosen->prepare(device, call, backward, kernel, error) : UPS_OK;
}

static ups_kernel_choice choose(ups_device *device, ups_kernel_choice how) {
    const ups_kernel_choice before = of(device)->choice;
    of(device)->choice = how;
    return before;
}

static ups_status convert(ups_device *device, const float *from, ups_dtype dtype, uint16_t *to, int64_t count,
                          ups_error *error) {
    ups_tensor source = {.data = (void *)(uintptr_t)from, .dtype = UPS_F32, .shape = {1, {count}}};
    ups_tensor target = {.data = to, .dtype = dtype, .shape = {1, {count}}};
    return ups_cuda_convert(device, &source, &target, false, error);
}

static ups_status norm(ups_device *device, const float *gradients, int64_t count, ups_update *update,
                       ups_error *error) {
    return ups_cuda_norm(device, of(device)->norm_partials, gradients, count, update, error);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int threads(const ups_device *device) {
    return 1; /* it issues */
}

static void destroy(ups_device *device) {
    cuda_device *d = of(device);
    synchronize(device, NULL);
    ups_cuda_muon_release(d->muon_plans);
    if (d->norm_partials) cudaFree(d->norm_partials);
    if (d->tickets) cudaFree(d->tickets);
    if (d->blas) cublasLtDestroy(d->blas);
    ups_cuda_choices_close(d->choices);
    for (int s = 0; s < UPS_STREAM_COUNT; s++) {
        if (d->streams[s]) cudaStreamDestroy(d->streams[s]);
    }
    free(d);
}

static const ups_device_class cuda_class = {
    .name = "cuda",
    .input_sets = 2,
    .results = "cuda",
    .threads = threads,
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .offloads = true,
    .allocate_offloaded = allocate_offloaded,
    .release_offloaded = release_offloaded,
    .memory = memory_of,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .upload = upload,
    .upload_ahead = upload_ahead,
    .gather_ahead = gather_ahead,
    .download = download,
    .download_later = download_later,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_launch = capture_launch,
    .capture_release = capture_release,
    .range_begin = range_begin,
    .range_end = range_end,
    .kernel = choose_kernel,
    .choose = choose,
    .convert = convert,
    .add_losses = ups_cuda_add_losses,
    .seed_backward = ups_cuda_seed_backward,
    .norm = norm,
    .decide = ups_cuda_decide,
    .optimize = ups_cuda_optimize,
    .matrices_workspace = ups_cuda_matrices_workspace,
    .peers = &ups_cuda_peers,
};

enum { LEAST = 8 /* compute capability: sm_80 */ };

static bool has_card(void) {
    struct cudaDeviceProp properties;
    int count = 0;
    const bool there = cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
                       cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.major >= LEAST;
    cudaGetLastError();
    return there && ups_cuda_library_load(NULL) == UPS_OK;
}

static ups_status open_parts(cuda_device *d, ups_error *error) {
    struct cudaDeviceProp properties;
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0) {
        cudaGetLastError();
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "there is no CUDA card that can be used: %s",
                        code == cudaSuccess ? "the driver shows none" : cudaGetErrorString(code));
    }
    UPS_TRY(ups_cuda_check(cudaSetDevice(0), "choosing card 0", error));
    UPS_TRY(ups_cuda_check(cudaGetDeviceProperties(&properties, 0), "asking for what card 0 is", error));
    memcpy(d->name, properties.name, sizeof d->name);
    d->name[sizeof d->name - 1] = '\0';
    d->device.card = d->name;
    d->capability[0] = properties.major;
    d->capability[1] = properties.minor;
    d->most_shared = properties.sharedMemPerBlockOptin;
    d->processors = properties.multiProcessorCount;
    if (properties.major < LEAST) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s is of compute capability %d.%d; the kernels are for 8.0 (Ampere) and later", d->name,
                        properties.major, properties.minor);
    }
    UPS_TRY(ups_cuda_library_load(error));
    for (int s = 0; s < UPS_STREAM_COUNT; s++)
        UPS_TRY(
            ups_cuda_check(cudaStreamCreateWithFlags(&d->streams[s], cudaStreamNonBlocking), "making a stream", error));
    if (cublasLtCreate(&d->blas) != CUBLAS_STATUS_SUCCESS)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt cannot be opened on %s", d->name);
    int driver = 0;
    UPS_TRY(ups_cuda_check(cudaDriverGetVersion(&driver), "asking for the driver's version", error));
    d->choices = ups_cuda_choices_open(d->name, driver, cublasLtGetVersion());
    const size_t tickets = UPS_CUDA_TICKETS * sizeof *d->tickets;
    UPS_TRY(ups_cuda_check(cudaMalloc((void **)&d->norm_partials, UPS_CUDA_NORM_BLOCKS * sizeof *d->norm_partials),
                           "allocating memory", error));
    UPS_TRY(ups_cuda_check(cudaMalloc((void **)&d->tickets, tickets), "allocating memory", error));
    return ups_cuda_check(cudaMemsetAsync(d->tickets, 0, tickets, ups_cuda_stream(&d->device)), "zeroing memory",
                          error);
}

static ups_status open_card(ups_device **device, ups_error *error) {
    cuda_device *d = calloc(1, sizeof *d);
    *device = NULL;
    if (!d) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left to open a CUDA card");
    d->device.class = &cuda_class;
    ups_status status = open_parts(d, error);
    if (status == UPS_OK)
        *device = &d->device;
    else
        destroy(&d->device);
    return status;
}

static const ups_device_class plan_class = {
    .name = "cuda",
    .only_plans = true,
    .input_sets = 2,
    .results = "cuda",
    .threads = threads,
    .destroy = destroy,
    .offloads = true,
    .memory = memory_of,
    .synchronize = synchronize,
    .gather_ahead = gather_ahead, /* there is one: what is kept on the card counts */
    .kernel = choose_kernel,
    .matrices_workspace = ups_cuda_matrices_workspace,
};

static ups_status open_to_plan(uint64_t memory, ups_device **device, ups_error *error) {
    cuda_device *d = calloc(1, sizeof *d);
    *device = NULL;
    if (!d) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left to plan for a CUDA card");
    d->device.class = &plan_class;
    d->planned = memory > 0 ? memory : 1;
    *device = &d->device;
    return UPS_OK;
}

/* ---- the module ---------------------------------------------------------------------------------------------------
 */

static bool has_kernel(ups_op_kind kind) {
    return kernels[kind] != NULL;
}

__attribute__((visibility("default"))) const ups_cuda_module *ups_cuda_module_4(void) {
    static ups_cuda_module module;
    int count = 0;
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) count += kernels[kind] != NULL;
    module = (ups_cuda_module){.headers = UPS_CUDA_HEADERS,
                               .op_count = UPS_OP_COUNT,
                               .kernel_count = count,
                               .has_kernel = has_kernel,
                               .has_card = has_card,
                               .open = open_card,
                               .open_to_plan = open_to_plan,
                               .peers = &ups_cuda_peers};
    return &module;
}
