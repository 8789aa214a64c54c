#include "model/cuda/products/product.h"

#include "model/cuda/products/algorithms.h"

static cudaDataType type_of(ups_dtype dtype) {
    switch (dtype) {
    case UPS_BF16:
        return CUDA_R_16BF;
    case UPS_F16:
        return CUDA_R_16F;
    case UPS_E4M3:
        return CUDA_R_8F_E4M3;
    case UPS_E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_32F;
    }
}

static bool is_fp8(ups_dtype dtype) {
    return dtype == UPS_E4M3 || dtype == UPS_E5M2;
}

ups_status ups_cuda_blas_check(cublasStatus_t status, const char *doing, ups_error *error) {
    if (status == CUBLAS_STATUS_SUCCESS) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt: %s failed: %s", doing, cublasLtGetStatusName(status));
}

cublasStatus_t ups_cuda_product_vector(cublasLtMatmulDesc_t description, const void *vector) {
    return cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
}

static ups_status make_layout(cublasLtMatrixLayout_t *layout, ups_cuda_matrix m, int64_t batch, ups_error *error) {
    const int32_t count = (int32_t)batch;
    const int64_t stride = m.stride ? m.stride : m.rows * m.columns;
    cublasStatus_t status =
        cublasLtMatrixLayoutCreate(layout, type_of(m.dtype), (uint64_t)m.columns, (uint64_t)m.rows, m.columns);
    if (batch > 1 && status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (batch > 1 && status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                  sizeof stride);
    return ups_cuda_blas_check(status, "describing a matrix", error);
}

static ups_status set_description(cublasLtMatmulDesc_t description, bool transpose_a, bool transpose_b,
                                  cublasLtEpilogue_t epilogue, ups_error *error) {
    cublasOperation_t a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const bool vector = epilogue != CUBLASLT_EPILOGUE_DEFAULT; /* a bias, or sums */
    cublasStatus_t status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    /* The choice of an algorithm reads a bias's alignment off its address: one that is no better than promised. */
    const void *promised = vector ? (const void *)(uintptr_t)UPS_CUDA_PROMISED : NULL;
    if (status == CUBLAS_STATUS_SUCCESS && vector)
        status =
            cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &promised, sizeof promised);
    return ups_cuda_blas_check(status, "describing a product", error);
}

/* What products of FP8 operands have beside. */
static ups_status describe_fp8(const ups_cuda_product *p, bool fast, bool bias, ups_error *error) {
    const int8_t fast_sums = fast;
    const int32_t bias_type = (int32_t)type_of(ups_cuda_product_bias(p));
    const cublasLtMatmulDesc_t description = p->description;
    const float *const promised = (const float *)(uintptr_t)UPS_CUDA_PROMISED; /* as of a bias: there will be scales */
    cublasStatus_t status =
        cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast_sums, sizeof fast_sums);
    if (status == CUBLAS_STATUS_SUCCESS && bias)
        status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                                sizeof bias_type);
    UPS_TRY(ups_cuda_blas_check(status, "describing a product", error));
    return ups_cuda_product_scale(p, promised, promised, error);
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
    UPS_TRY(set_description(p->summing, transpose_a, true, CUBLASLT_EPILOGUE_BGRADB, error));
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
    UPS_TRY(set_description(product->description, transpose_a, transpose_b, epilogue, error));
    if (product->fp8) UPS_TRY(describe_fp8(product, options.fast, options.bias, error));
    UPS_TRY(make_layout(&product->a, a, batch, error));
    UPS_TRY(make_layout(&product->b, b, batch, error));
    UPS_TRY(make_layout(&product->d, product->result, batch, error));
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

ups_dtype ups_cuda_product_bias(const ups_cuda_product *product) {
    return product->fp8 && product->result.dtype == UPS_F32 ? UPS_BF16 : product->result.dtype;
}

static bool is_aligned(const void *memory) {
    return (uintptr_t)memory % UPS_CUDA_PROMISED == 0;
}

ups_status ups_cuda_product_scale(const ups_cuda_product *product, const float *a, const float *b, ups_error *error) {
    const void *const scales[] = {a, b};
    const cublasLtMatmulDescAttributes_t attributes[] = {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                         CUBLASLT_MATMUL_DESC_B_SCALE_POINTER};
    if (!is_aligned(a) || !is_aligned(b))
        return ups_fail(error, UPS_ERR_ARGUMENT, "products: scales of FP8 begin at multiples of %d bytes on CUDA",
                        UPS_CUDA_PROMISED);
    for (int i = 0; i < 2; i++) /* as with a bias: a call at a time issues */
        UPS_TRY(ups_cuda_blas_check(
            cublasLtMatmulDescSetAttribute(product->description, attributes[i], &scales[i], sizeof scales[i]),
            "a product", error));
    return UPS_OK;
}

/* `vector`: what the epilogue reads or writes; NULL: it has none. */
static ups_status run(ups_device *device, const ups_cuda_product *product, cublasLtMatmulDesc_t description,
                      const cublasLtMatmulAlgo_t *algorithm, const void *a, const void *b, const void *vector, void *d,
                      bool accumulate, void *workspace, ups_error *error) {
    const float one = 1.0f, add = accumulate ? 1.0f : 0.0f;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(vector) || !is_aligned(d))
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
