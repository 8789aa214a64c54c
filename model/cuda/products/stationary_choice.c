/* Which products are our own (stationary.h): found by a contest on the card against what the library and the kernels of
 * GELU do instead. */
#include "model/cuda/products/contest.h"
#include "model/cuda/products/product.h"
#include "model/cuda/products/stationary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 /* of either's code: what was found for another one is found anew */, LIBRARY = 0, OWN = 1 };

typedef struct trial {
    const ups_cuda_stationary *product;
    const ups_cuda_product *library;
    bool bias;
    ups_cuda_stationary_tensors of[2]; /* b, a, bias and h are the same of both */
    void *workspace, *between;         /* the library's; the gradient before GELU's */
    float *partials;
} trial;

static bool has_gelu(const trial *t) {
    return t->product->kind == UPS_CUDA_STATIONARY_GELU;
}

static bool has_gelu_gradient(const trial *t) {
    return t->product->kind == UPS_CUDA_STATIONARY_GELU_GRADIENT;
}

/* Sums are about as large as 1, where GELU is neither 0 nor a line. */
static void lay_out(ups_cuda_contest_memory *memory, void *context) {
    trial *t = context;
    const ups_cuda_stationary *p = t->product;
    const int64_t made = p->rows * p->columns;
    ups_cuda_stationary_tensors *library = &t->of[LIBRARY], *own = &t->of[OWN];
    *library = (ups_cuda_stationary_tensors){0};
    library->a = ups_cuda_contest_numbers(memory, p->rows * p->terms, p->dtype, 0.0f, 2.0f);
    library->b = ups_cuda_contest_numbers(memory, p->columns * p->terms, p->dtype, 0.0f, 2.0f / sqrtf((float)p->terms));
    if (t->bias) library->bias = ups_cuda_contest_numbers(memory, p->columns, p->dtype, 0.0f, 1.0f);
    if (has_gelu_gradient(t)) library->h = ups_cuda_contest_numbers(memory, made, p->dtype, 0.0f, 2.0f);
    *own = *library;
    void *d[2], *y[2] = {NULL, NULL}, *sums[2] = {NULL, NULL};
    ups_cuda_contest_results(memory, made, p->dtype, d);
    if (has_gelu(t)) ups_cuda_contest_results(memory, made, p->dtype, y);
    if (has_gelu_gradient(t)) ups_cuda_contest_results(memory, p->columns, UPS_F32, sums);
    for (int k = 0; k < 2; k++) t->of[k].d = d[k], t->of[k].y = y[k], t->of[k].sums = sums[k];
    t->workspace = ups_cuda_contest_room(memory, UPS_CUDA_LIBRARY_BYTES);
    if (!has_gelu_gradient(t)) return;
    t->between = ups_cuda_contest_room(memory, (size_t)made * ups_dtype_size(p->dtype));
    t->partials = ups_cuda_contest_room(memory, (size_t)ups_cuda_column_partials(p->rows, p->columns) * sizeof(float));
    own->partials = ups_cuda_contest_room(memory, (size_t)ups_cuda_stationary_partials(p) * sizeof(float));
}

static ups_status run_library(ups_device *device, const void *context, ups_error *error) {
    const trial *t = context;
    const ups_cuda_stationary_tensors *of = &t->of[LIBRARY];
    const ups_shape shape = {2, {t->product->rows, t->product->columns}};
    const ups_dtype dtype = t->product->dtype;
    const ups_tensor d = {.data = of->d, .dtype = dtype, .shape = shape};
    const ups_tensor product = {.data = has_gelu_gradient(t) ? t->between : of->d, .dtype = dtype, .shape = shape};
    UPS_TRY(ups_cuda_product_run(device, t->library, of->b, of->a, of->bias, product.data, false, t->workspace, error));
    if (has_gelu(t)) {
        const ups_tensor y = {.data = of->y, .dtype = dtype, .shape = shape};
        return ups_cuda_gelu_rows(device, &d, &y, error);
    }
    if (!has_gelu_gradient(t)) return UPS_OK;
    const ups_tensor h = {.data = (void *)(uintptr_t)of->h, .dtype = dtype, .shape = shape};
    return ups_cuda_gelu_gradient(device, &h, &product, &d, t->partials, of->sums, false, error);
}

static ups_status run_own(ups_device *device, const void *context, ups_error *error) {
    const trial *t = context;
    return ups_cuda_stationary_run(device, t->product, &t->of[OWN], error);
}

/* What takes less is a matter of launches, which graphs have fewer of: not worth a contest for each such shape. */
static bool keeps_card_busy(ups_device *device, const ups_cuda_stationary *p) {
    enum { TILE = 128 };
    return p->rows / TILE * (p->columns / TILE) >= ups_cuda_processors(device);
}

bool ups_cuda_takes_stationary(ups_device *device, const ups_cuda_stationary *p, const ups_cuda_product *library,
                               bool bias) {
    static const char *const kinds[] = {[UPS_CUDA_STATIONARY_PRODUCT] = "product",
                                        [UPS_CUDA_STATIONARY_GELU] = "gelu",
                                        [UPS_CUDA_STATIONARY_GELU_GRADIENT] = "gelu_gradient"};
    const char *wanted = getenv("UPS_CUDA_PRODUCTS");
    if (!ups_cuda_stationary_fits(device, p) || ups_cuda_kernels_by_shape(device)) return false;
    if (wanted && strcmp(wanted, "stationary") == 0) return true;
    if (wanted && strcmp(wanted, "library") == 0) return false;
    if (!keeps_card_busy(device, p)) return false;
    char name[128];
    snprintf(name, sizeof name, "stationary-%d.%s.%s.%lldx%lldx%lld%s%s", VERSION, kinds[p->kind],
             ups_dtype_name(p->dtype), (long long)p->rows, (long long)p->columns, (long long)p->terms,
             p->turned ? ".turned" : "", bias ? ".bias" : "");
    trial t = {.product = p, .library = library, .bias = bias};
    const ups_cuda_contest contest = {.lay_out = lay_out, .run = {run_library, run_own}, .context = &t};
    return ups_cuda_second_wins(device, name, &contest);
}
