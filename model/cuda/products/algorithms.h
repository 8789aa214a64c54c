/* Which of cuBLASLt's algorithms a product takes: what was kept (choices.h), or the fastest of the library's
 * suggestions, found by running them; without a file for choices the first suggestion. */
#ifndef UPS_MODEL_CUDA_PRODUCTS_ALGORITHMS_H
#define UPS_MODEL_CUDA_PRODUCTS_ALGORITHMS_H

#include "model/cuda/products/description.h"

/* p->algorithm, of a product that is described but for it; `of`: a, b and d. *none: the library has no algorithm. */
ups_status ups_cuda_choose_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                     bool transpose_a, bool transpose_b, ups_cuda_product_options options,
                                     int64_t batch, bool *none, ups_error *error);
/* p->summing_algorithm; *has: there is one, and it is worth taking. b is transposed. */
ups_status ups_cuda_choose_summing_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                             bool transpose_a, ups_cuda_product_options options, bool *has,
                                             ups_error *error);

#endif
