/* Which form of the coder's loops runs: the best that the processor has, or the one that UPS_CPU names. */
#include "base/system/cpu_features.h"
#include "cache/codec/rans_kernel.h"
#include <stdlib.h>
#include <string.h>

static const ups_rans_kernel *forms[4];
static int form_count;
static const ups_rans_kernel *kernel;

__attribute__((constructor)) static void choose_kernel(void) {
#if defined(__x86_64__)
    if (ups_runs_x86_64_v4()) forms[form_count++] = &ups_rans_avx512;
    if (ups_runs_x86_64_v3()) {
        bool gathers = ups_gathers_fast();
        forms[form_count++] = gathers ? &ups_rans_avx2 : &ups_rans_avx2_by_loads;
        forms[form_count++] = gathers ? &ups_rans_avx2_by_loads : &ups_rans_avx2;
    }
#endif
    forms[form_count++] = &ups_rans_baseline;
    for (int i = 0; i < form_count; i++) forms[i]->prepare();
    kernel = forms[0];
    const char *best = getenv("UPS_CPU"); /* of what runs here; "amx", or what does not run, changes nothing */
    for (int i = form_count - 1; best && i >= 0; i--)
        if (strcmp(best, forms[i]->name) == 0) kernel = forms[i];
}

const char *ups_rans_instruction_set(void) {
    return kernel->name;
}

bool ups_rans_use(int form) {
    if (form < 0 || form >= form_count) return false;
    kernel = forms[form];
    return true;
}

void ups_rans_residuals(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                        uint16_t *codes) {
    kernel->residuals(latents, stride, times, series, order, codes);
}

void ups_rans_count(const uint16_t *codes, int64_t times, int64_t series, ups_rans_histogram counts) {
    kernel->count(codes, times, series, counts);
}

uint16_t *ups_rans_encode(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times, int width,
                          uint32_t state[UPS_RANS_LANES], uint16_t *top) {
    return kernel->encode(tables, codes, stride, times, width, state, top);
}

const uint8_t *ups_rans_decode(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times, int width,
                               int order, ups_rans_frames to, uint32_t state[UPS_RANS_LANES], bool *finite) {
    return kernel->decode(tables, at, end, times, width, order, to, state, finite);
}
