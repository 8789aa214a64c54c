/* A product (product.h) as cuBLASLt is told of it, which whoever chooses its algorithm has to know, too. */
#ifndef UPS_MODEL_CUDA_PRODUCTS_DESCRIPTION_H
#define UPS_MODEL_CUDA_PRODUCTS_DESCRIPTION_H

#include "model/cuda/host.h"
#include "model/cuda/products/choices.h"

enum {
    UPS_CUDA_PROMISED = 16, /* bytes that the library may count on operands being aligned to: an arena's are to 64 */
    UPS_CUDA_LIBRARY_BYTES = 32u << 20, /* of workspace for the library: what cuBLAS takes on Hopper */
};

typedef struct ups_cuda_matrix {
    int64_t rows, columns; /* row-major */
    ups_dtype dtype;
    int64_t stride; /* elements from one of a batch to the next; 0: one behind the other */
} ups_cuda_matrix;

ups_cuda_choices *ups_cuda_choices_of(ups_device *device); /* NULL: the first suggestion is taken */

/* What a product that the library refused is made of. batch 0: it did not. */
typedef struct ups_cuda_plain_product {
    ups_cuda_matrix a, b;
    bool transpose_a, transpose_b;
    int64_t batch;
} ups_cuda_plain_product;

/* One product, D (+)= op(A) op(B), in the library's terms. All zeros: none. */
typedef struct ups_cuda_product {
    cublasLtMatmulDesc_t description, summing; /* summing: with sums of b's columns; NULL: not by the library */
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm, summing_algorithm;
    ups_cuda_matrix result; /* in the dtype that the library makes */
    bool fp8;               /* operands */
    ups_cuda_plain_product plain;
} ups_cuda_product;

/* What there is beside two matrices. All zeros: one product of float32 or half operands as they are. */
typedef struct ups_cuda_product_options {
    bool bias, tf32;
    bool sums;     /* of b's columns, where the library is good for it: b is transposed, the result float32, no batch */
    bool fast;     /* FP8: partial sums may have the fewer bits of the tensor cores' own */
    int64_t batch; /* products at once, of matrices `stride` apart; 0: one */
} ups_cuda_product_options;

/* UPS_OK, or an error that says what the library refused to do. */
ups_status ups_cuda_blas_check(cublasStatus_t status, const char *doing, ups_error *error);
/* Whether memory begins where the library may count on. */
bool ups_cuda_keeps_promise(const void *memory);

ups_status ups_cuda_describe_matrix(cublasLtMatrixLayout_t *layout, ups_cuda_matrix m, int64_t batch, ups_error *error);
ups_status ups_cuda_describe_product(cublasLtMatmulDesc_t description, bool transpose_a, bool transpose_b,
                                     cublasLtEpilogue_t epilogue, ups_error *error);
/* What products of FP8 operands have beside. */
ups_status ups_cuda_describe_fp8(const ups_cuda_product *product, bool fast, bool bias, ups_error *error);
/* Where a product's bias is, or its sums are to go. */
cublasStatus_t ups_cuda_product_vector(cublasLtMatmulDesc_t description, const void *vector);
/* The dtype that a bias has to be in. */
ups_dtype ups_cuda_product_bias(const ups_cuda_product *product);
/* Operands of FP8: what the elements of a and b are multiplied by, in device memory, from the next run on. Refuses what
 * is aligned less than was promised: the library has no algorithm for it. */
ups_status ups_cuda_product_scale(const ups_cuda_product *product, const float *a, const float *b, ups_error *error);

#endif
