#include "model/cuda/products/product.h"

#include "model/cuda/products/algorithms.h"

static bool is_fp8(ups_dtype dtype) {
    return dtype == UPS_E4M3 || dtype == UPS_E5M2;
}

/* ---- products ------------------------------------------------------------------------------------------------------
 */

/* The library has half results of half operands, and float32 of all. */
static ups_cuda_matrix result_of(ups_cuda_matrix wanted, ups_dtype operands) {
    if (operands == UPS_F32) wanted.dtype = UPS_F32;
    return wanted;
}

/* What makes sums beside a product that is made, for a b that is transposed: the library's B is then the same memory,
 * and sums over its rows are what the epilogue makes. They are of D's type. */
static ups_status add_sums(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3], bool transpose_a,
                           cublasComputeType_t compute, ups_cuda_product_options options, ups_error *error) {
    bool has = false;
    UPS_TRY(
        ups_cuda_blas_check(cublasLtMatmulDescCreate(&p->summing, compute, CUDA_R_32F), "describing a product", error));
    UPS_TRY(ups_cuda_describe_product(p->summing, transpose_a, true, CUBLASLT_EPILOGUE_BGRADB, error));
    UPS_TRY(ups_cuda_choose_summing_algorithm(device, p, of, transpose_a, options, &has, error));
    if (has) return UPS_OK;
    cublasLtMatmulDescDestroy(p->summing);
    p->summing = NULL;
    return UPS_OK;
}

ups_status ups_cuda_product_make(ups_device *device, ups_cuda_product *product, ups_cuda_matrix a, bool transpose_a,
                                 ups_cuda_matrix b, bool transpose_b, ups_cuda_matrix result,
                                 ups_cuda_product_options options, ups_error *error) {
    const int64_t batch = options.batch > 1 ? options.batch : 1;
    const cublasComputeType_t compute =
        options.tf32 && a.dtype == UPS_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t epilogue = options.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    ups_cuda_product_options without_sums = options;
    without_sums.sums = false;
    product->result = result_of(result, a.dtype);
    product->fp8 = is_fp8(a.dtype);
    if (ups_cuda_only_plans(device)) return UPS_OK; /* the library opens with a card alone */
    UPS_TRY(ups_cuda_blas_check(cublasLtMatmulDescCreate(&product->description, compute, CUDA_R_32F),
                                "describing a product", error));
    UPS_TRY(ups_cuda_describe_product(product->description, transpose_a, transpose_b, epilogue, error));
    if (product->fp8) UPS_TRY(ups_cuda_describe_fp8(product, options.fast, options.bias, error));
    UPS_TRY(ups_cuda_describe_matrix(&product->a, a, batch, error));
    UPS_TRY(ups_cuda_describe_matrix(&product->b, b, batch, error));
    UPS_TRY(ups_cuda_describe_matrix(&product->d, product->result, batch, error));
    bool none = false;
    const ups_cuda_matrix of[] = {a, b, product->result};
    UPS_TRY(
        ups_cuda_choose_algorithm(device, product, of, transpose_a, transpose_b, without_sums, batch, &none, error));
    if (none && product->fp8)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt has no algorithm for a product of FP8 of these shapes");
    if (none) product->plain = (ups_cuda_plain_product){a, b, transpose_a, transpose_b, batch};
    const bool may_sum = transpose_b && batch == 1 && !product->fp8 && product->result.dtype == UPS_F32;
    return options.sums && may_sum && !none ? add_sums(device, product, of, transpose_a, compute, options, error)
                                            : UPS_OK;
}

void ups_cuda_product_release(ups_cuda_product *product) {
    if (product->description) cublasLtMatmulDescDestroy(product->description);
    if (product->summing) cublasLtMatmulDescDestroy(product->summing);
    if (product->a) cublasLtMatrixLayoutDestroy(product->a);
    if (product->b) cublasLtMatrixLayoutDestroy(product->b);
    if (product->d) cublasLtMatrixLayoutDestroy(product->d);
}

/* `vector`: what the epilogue reads or writes; NULL: it has none. */
static ups_status run(ups_device *device, const ups_cuda_product *product, cublasLtMatmulDesc_t description,
                      const cublasLtMatmulAlgo_t *algorithm, const void *a, const void *b, const void *vector, void *d,
                      bool accumulate, void *workspace, ups_error *error) {
    const float one = 1.0f, add = accumulate ? 1.0f : 0.0f;
    if (!ups_cuda_keeps_promise(a) || !ups_cuda_keeps_promise(b) || !ups_cuda_keeps_promise(vector) ||
        !ups_cuda_keeps_promise(d))
        return ups_fail(error, UPS_ERR_ARGUMENT, "products: tensors begin at multiples of %d bytes on CUDA",
                        UPS_CUDA_PROMISED);
    if (product->plain.batch) return ups_cuda_plain_product_run(device, product, a, b, vector, d, accumulate, error);
    /* the description is the plan's: a call at a time issues */
    if (vector) UPS_TRY(ups_cuda_blas_check(ups_cuda_product_vector(description, vector), "a product", error));
    return ups_cuda_blas_check(cublasLtMatmul(ups_cuda_blas(device), description, &one, a, product->a, b, product->b,
                                              &add, d, product->d, d, product->d, algorithm, workspace,
                                              UPS_CUDA_LIBRARY_BYTES, ups_cuda_stream(device)),
                               "a product", error);
}

ups_status ups_cuda_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                const void *bias, void *d, bool accumulate, void *workspace, ups_error *error) {
    return run(device, product, product->description, &product->algorithm, a, b, bias, d, accumulate, workspace, error);
}

bool ups_cuda_product_has_sums(const ups_cuda_product *product) {
    return product->summing;
}

ups_status ups_cuda_product_run_with_sums(ups_device *device, const ups_cuda_product *product, const void *a,
                                          const void *b, float *sums, void *d, bool accumulate, void *workspace,
                                          ups_error *error) {
    return run(device, product, product->summing, &product->summing_algorithm, a, b, sums, d, accumulate, workspace,
               error);
}
