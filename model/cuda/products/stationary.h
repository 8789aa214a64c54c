/* Products of our own for layers of few features, on cards that multiply by groups of warps (compute capability 9.0):
 * 128 rows of the first operand rest in shared memory, with all of their terms, while the second operand passes by, so
 * that rows are read from memory once for all columns. GELU, or its gradient, is taken of sums while they are in
 * registers: the library's epilogue has the tanh approximation alone, and a kernel after it reads and writes what is
 * four times as wide as the layer once more.
 *
 * Sums are float32, rounded once to the operands' dtype; GELU is taken of what was rounded, as it is where it is a
 * kernel of its own. Whether a call takes them, or the library and such a kernel, is found on the card
 * (stationary_choice.c). */
#ifndef UPS_MODEL_CUDA_PRODUCTS_STATIONARY_H
#define UPS_MODEL_CUDA_PRODUCTS_STATIONARY_H

#include "model/cuda/products/description.h"

typedef enum ups_cuda_stationary_kind {
    UPS_CUDA_STATIONARY_PRODUCT,       /* d = a b + bias? */
    UPS_CUDA_STATIONARY_GELU,          /* the same, and y = GELU(d) */
    UPS_CUDA_STATIONARY_GELU_GRADIENT, /* d = a b GELU'(h), and sums of its columns */
} ups_cuda_stationary_kind;

/* a (rows, terms), b (columns, terms) or with `turned` (terms, columns), d, y and h (rows, columns): row-major, bf16 or
 * fp16, one behind the other. */
typedef struct ups_cuda_stationary {
    ups_cuda_stationary_kind kind;
    ups_dtype dtype;
    bool turned;
    int64_t rows, columns, terms;
} ups_cuda_stationary;

/* Device memory at multiples of 16 bytes. */
typedef struct ups_cuda_stationary_tensors {
    const void *a, *b;
    const void *bias; /* (columns) in the operands' dtype; NULL: none */
    void *d, *y;
    const void *h;
    float *sums; /* (columns); NULL: not wanted */
    float *partials;
    bool accumulate; /* sums are added to what is there */
} ups_cuda_stationary_tensors;

/* Whether there is a kernel for it on this card. */
bool ups_cuda_stationary_fits(ups_device *device, const ups_cuda_stationary *product);
/* Whether it is the one to take: on this card it is faster than `library`, which computes the same of b and a, and the
 * kernel of GELU after that, and agrees with them. What was found is kept with the library's algorithms (choices.h). */
bool ups_cuda_takes_stationary(ups_device *device, const ups_cuda_stationary *product, const ups_cuda_product *library,
                               bool bias);
/* Floats of `partials` where sums are wanted. */
int64_t ups_cuda_stationary_partials(const ups_cuda_stationary *product);
/* Issues it. Refuses memory that is aligned less. */
ups_status ups_cuda_stationary_run(ups_device *device, const ups_cuda_stationary *product,
                                   const ups_cuda_stationary_tensors *of, ups_error *error);

#endif
