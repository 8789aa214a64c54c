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

#include "model/cuda/products/description.h"

/* D = op(A) op(B) + bias?; `result`: its shape, and the dtype that is wanted. On an error `product` is released as any
 * other. */
ups_status ups_cuda_product_make(ups_device *device, ups_cuda_product *product, ups_cuda_matrix a, bool transpose_a,
                                 ups_cuda_matrix b, bool transpose_b, ups_cuda_matrix result,
                                 ups_cuda_product_options options, ups_error *error);
void ups_cuda_product_release(ups_cuda_product *product);
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
