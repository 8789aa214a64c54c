/* Products of matrices by cuBLASLt: one a shape, made once and run often.
 *
 * The library's matrices are column-major: a row-major (r, c) is its (c, r), and what is computed is the transpose of
 * each product. Operands are in one dtype; sums are float32. Results of half operands are in the same half or in
 * float32, results of float32 in float32; operands of float32 are rounded to TF32 where `tf32` allows it. Operands of
 * FP8 (E4M3, of which one may be E5M2 instead) have results in any of the others, and scales of their own: the library
 * has them for sizes that are multiples of 16, the first operand transposed and the second not. Which of the library's
 * algorithms runs is chosen when a product is made (choices.h). What the library refuses, such as matrices of one
 * column, is computed by a kernel of our own (plain.cu), but for FP8.
 *
 * A product that reads a gradient can make the sums of its columns by the way, which are a bias's gradient: by an
 * epilogue of the library, which reads nothing twice. Not all shapes have it, and it may cost as much as a kernel of
 * our own after the product: it is taken where a trial says that it costs little, and that its sums are right. */
#ifndef UPS_MODEL_CUDA_PRODUCTS_PRODUCT_H
#define UPS_MODEL_CUDA_PRODUCTS_PRODUCT_H

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

/* D = op(A) op(B) + bias?; `result`: its shape, and the dtype that is wanted. On an error `product` is released as any
 * other. */
ups_status ups_cuda_product_make(ups_device *device, ups_cuda_product *product, ups_cuda_matrix a, bool transpose_a,
                                 ups_cuda_matrix b, bool transpose_b, ups_cuda_matrix result,
                                 ups_cuda_product_options options, ups_error *error);
void ups_cuda_product_release(ups_cuda_product *product);
/* The dtype that a bias has to be in. */
ups_dtype ups_cuda_product_bias(const ups_cuda_product *product);
/* Operands of FP8: what the elements of a and b are multiplied by, in device memory, from the next run on. Refuses what
 * is aligned less than was promised: the library has no algorithm for it. */
ups_status ups_cuda_product_scale(const ups_cuda_product *product, const float *a, const float *b, ups_error *error);

/* Issues it: `d` = product, or `d` += product; `bias` NULL where there is none, `workspace` UPS_CUDA_LIBRARY_BYTES that
 * it may change. Refuses memory that is aligned less than was promised. */
ups_status ups_cuda_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                const void *bias, void *d, bool accumulate, void *workspace, ups_error *error);
/* The same of one that the library refused (plain.cu). */
ups_status ups_cuda_plain_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                      const void *bias, void *d, bool accumulate, ups_error *error);
/* It can make sums: it was asked for them, and the library makes them in less time than a kernel after it. */
bool ups_cuda_product_has_sums(const ups_cuda_product *product);
/* As ups_cuda_product_run, and sums[c] = sum over r of b[r, c], float32 that is stored and not added. Only of one that
 * has sums. */
ups_status ups_cuda_product_run_with_sums(ups_device *device, const ups_cuda_product *product, const void *a,
                                          const void *b, float *sums, void *d, bool accumulate, void *workspace,
                                          ups_error *error);

#endif
