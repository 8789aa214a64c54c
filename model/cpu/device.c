/* The CPU as a device: ordinary memory, work done at once, and the kernels of the best instruction set that the
 * processor has.
 *
 * AMX needs the kernel's permission before first use (Linux, Documentation/arch/x86/xstate.rst); without it the AVX-512
 * kernels run. */
#include "model/cpu/device.h"
#include "base/arena.h"
#include "base/system/cpu_features.h"
#include "base/system/pages.h"
#include "base/system/threads.h"
#include "model/cpu/kernels.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
static const ups_cpu_variant *const variants[] = {&ups_cpu_amx, &ups_cpu_avx512_bf16, &ups_cpu_avx512, &ups_cpu_avx2,
                                                  &ups_cpu_baseline};

static bool runs_here(const ups_cpu_variant *variant) {
    if (variant == &ups_cpu_amx) return ups_runs_amx_bf16();
    if (variant == &ups_cpu_avx512_bf16) return ups_runs_avx512_bf16();
    if (variant == &ups_cpu_avx512) return ups_runs_x86_64_v4();
    if (variant == &ups_cpu_avx2) return ups_runs_x86_64_v3();
    return true;
}
#else
static const ups_cpu_variant *const variants[] = {&ups_cpu_baseline};

static bool runs_here(const ups_cpu_variant *variant) {
    return true;
}
#endif

static const ups_cpu_variant *chosen;
static pthread_once_t choose_once = PTHREAD_ONCE_INIT;

static void choose(void) {
    enum { COUNT = sizeof variants / sizeof *variants };
    const char *wanted = getenv("UPS_CPU");
    int first = 0;
    for (int i = 0; wanted && i < COUNT; i++) {
        if (strcmp(wanted, variants[i]->name) == 0) first = i;
    }
    for (int i = first; i < COUNT && !chosen; i++) {
        if (runs_here(variants[i])) chosen = variants[i];
    }
}

static const ups_cpu_variant *variant_here(void) {
    pthread_once(&choose_once, choose);
    return chosen;
}

const char *ups_cpu_instruction_set(void) {
    return variant_here()->name;
}

bool ups_cpu_bf16_is_fast(void) {
    const char *set = ups_cpu_instruction_set();
    return strcmp(set, "amx") == 0 || (strcmp(set, "avx512_bf16") == 0 && ups_multiplies_bf16_fast());
}

/* Large memory lies on large pages where the kernel has them (Documentation/admin-guide/mm/transhuge.rst): products
 * read rows far apart, and a page table of small pages does not fit the processor's cache of it. */
static ups_status allocate(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    enum { PAGE = 4096, LARGE_PAGE = 2 << 20 };
    bool large = bytes >= 2 * (size_t)LARGE_PAGE;
    *memory = ups_aligned_alloc(large ? LARGE_PAGE : PAGE, bytes ? bytes : 1);
    if (!*memory) return ups_fail(error, UPS_ERR_MEMORY, "%.1f MB of memory could not be had", (double)bytes * 1e-6);
    if (large) madvise(*memory, bytes, MADV_HUGEPAGE); /* a wish: without it all works, slower */
    memset(*memory, 0, bytes);
    return UPS_OK;
}

static void release(ups_device *device, void *memory) {
    ups_aligned_free(memory);
}

static ups_status allocate_host(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    *memory = ups_pages_alloc(bytes ? bytes : 1);
    if (*memory) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "%.1f MB of memory could not be had", (double)bytes * 1e-6);
}

static void release_host(ups_device *device, void *memory) {
    ups_pages_free(memory);
}

static ups_status copy(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    memcpy(to, from, bytes);
    return UPS_OK;
}

static ups_status zero(ups_device *device, void *memory, size_t bytes, ups_error *error) {
    memset(memory, 0, bytes);
    return UPS_OK;
}

/* ---- waiting: all that was issued has run --------------------------------------------------------------------- */

static ups_status synchronize(ups_device *device, ups_error *error) {
    return UPS_OK;
}

static ups_status event_create(ups_device *device, ups_event **event, ups_error *error) {
    *event = NULL;
    return UPS_OK;
}

static void event_destroy(ups_device *device, ups_event *event) {}

static ups_status event_record(ups_device *device, ups_event *event, ups_stream stream, ups_error *error) {
    return UPS_OK;
}

static ups_status event_wait(ups_device *device, ups_event *event, ups_error *error) {
    return UPS_OK;
}

static ups_status stream_wait(ups_device *device, ups_stream stream, ups_event *event, ups_error *error) {
    return UPS_OK;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static ups_status kernel(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *result,
                         ups_error *error) {
    const ups_cpu_kernel *of = variant_here()->kernels[call->kind];
    *result = (ups_kernel){.forward = of->forward,
                           .backward = of->backward,
                           .workspace_bytes = of->workspace ? of->workspace(device, call, backward) : 0};
    return UPS_OK;
}

static ups_status optimize(ups_device *device, const ups_optimizer_call *call, ups_error *error) {
    variant_here()->optimize(ups_cpu_threads(device), call);
    return UPS_OK;
}

static size_t matrices_workspace(ups_device *device, const ups_matrices *matrices, int32_t count, ups_dtype compute) {
    return variant_here()->muon_workspace(ups_cpu_threads(device), matrices, count, compute);
}

static ups_status norm(ups_device *device, const float *gradients, int64_t count, ups_update *update,
                       ups_error *error) {
    double sum;
    int64_t non_finite;
    variant_here()->sum_of_squares(ups_cpu_threads(device), gradients, count, &sum, &non_finite);
    update->result.squared_norm += sum;
    update->result.non_finite += non_finite;
    return UPS_OK;
}

static ups_status convert(ups_device *device, const float *from, ups_dtype dtype, uint16_t *to, int64_t count,
                          ups_error *error) {
    variant_here()->convert(ups_cpu_threads(device), from, dtype, to, count);
    return UPS_OK;
}

static void destroy(ups_device *device) {
    free(device);
}

static const ups_device_class cpu_class = {
    .name = "cpu",
    .input_sets = 1,
    .immediate = true,
    .threads = ups_cpu_threads,
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .upload = copy,
    .upload_ahead = copy,
    .download = copy,
    .download_later = copy,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .kernel = kernel,
    .convert = convert,
    .add_losses = ups_cpu_add_losses,
    .seed_backward = ups_cpu_seed_backward,
    .norm = norm,
    .decide = ups_cpu_decide,
    .optimize = optimize,
    .matrices_workspace = matrices_workspace,
};

ups_status ups_cpu_device_open(int threads, ups_device **device, ups_error *error) {
    if (threads < 0) return ups_fail(error, UPS_ERR_ARGUMENT, "threads is %d; 0 or more was expected", threads);
    ups_cpu_device *opened = malloc(sizeof *opened);
    if (!opened) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left to open the CPU");
    *opened = (ups_cpu_device){.device = {.class = &cpu_class}, .threads = threads ? threads : ups_cpu_count()};
    *device = &opened->device;
    return UPS_OK;
}
