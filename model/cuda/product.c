#include "model/cuda/product.h"

static cudaDataType type_of(ups_dtype dtype) {
    return dtype == UPS_BF16 ? CUDA_R_16BF : dtype == UPS_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static ups_status check(cublasStatus_t status, const char *doing, ups_error *error) {
    if (status == CUBLAS_STATUS_SUCCESS) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt: %s failed: %s", doing, cublasLtGetStatusName(status));
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
    return check(status, "describing a matrix", error);
}

static ups_status set_description(cublasLtMatmulDesc_t description, bool transpose_a, bool transpose_b, bool bias,
                                  ups_error *error) {
    cublasOperation_t a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cublasStatus_t status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    /* The choice of an algorithm reads a bias's alignment off its address: one that is no better than promised. */
    const void *promised = bias ? (const void *)(uintptr_t)UPS_CUDA_PROMISED : NULL;
    if (status == CUBLAS_STATUS_SUCCESS && bias)
        status =
            cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &promised, sizeof promised);
    return check(status, "describing a product", error);
}

/* What every matrix of a batch is aligned to, where the first one keeps the promise. */
static uint32_t alignment_of(ups_cuda_matrix m, int64_t batch) {
    const int64_t bytes = (m.stride ? m.stride : m.rows * m.columns) * (int64_t)ups_dtype_size(m.dtype);
    uint32_t alignment = UPS_CUDA_PROMISED;
    while (batch > 1 && bytes % alignment) alignment /= 2;
    return alignment;
}

/* `aligned`: of a, b, c and d. */
static ups_status choose_algorithm(ups_device *device, ups_cuda_product *p, const uint32_t aligned[4],
                                   ups_error *error) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    size_t workspace = UPS_CUDA_LIBRARY_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    UPS_TRY(check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm", error));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    /* Partial sums of a split product are added in float32, never in the result's half precision. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &aligned[i], sizeof aligned[i]);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(ups_cuda_blas(device), p->description, p->a, p->b, p->d, p->d,
                                                preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    UPS_TRY(check(status, "choosing an algorithm", error));
    if (count == 0)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt has no algorithm for a product of these shapes");
    p->algorithm = found.algo;
    return UPS_OK;
}

/* The library has half results of half operands, and float32 of all. */
static ups_cuda_matrix result_of(ups_cuda_matrix wanted, ups_dtype operands) {
    if (operands == UPS_F32) wanted.dtype = UPS_F32;
    return wanted;
}

ups_status ups_cuda_product_make(ups_device *device, ups_cuda_product *product, ups_cuda_matrix a, bool transpose_a,
                                 ups_cuda_matrix b, bool transpose_b, ups_cuda_matrix result, bool bias, int64_t batch,
                                 ups_error *error) {
    product->result = result_of(result, a.dtype);
    if (ups_cuda_only_plans(device)) return UPS_OK; /* the library opens with a card alone */
    UPS_TRY(check(cublasLtMatmulDescCreate(&product->description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "describing a product", error));
    UPS_TRY(set_description(product->description, transpose_a, transpose_b, bias, error));
    UPS_TRY(make_layout(&product->a, a, batch, error));
    UPS_TRY(make_layout(&product->b, b, batch, error));
    UPS_TRY(make_layout(&product->d, product->result, batch, error));
    const uint32_t d = alignment_of(product->result, batch);
    return choose_algorithm(device, product, (uint32_t[]){alignment_of(a, batch), alignment_of(b, batch), d, d}, error);
}

void ups_cuda_product_release(ups_cuda_product *product) {
    if (product->description) cublasLtMatmulDescDestroy(product->description);
    if (product->a) cublasLtMatrixLayoutDestroy(product->a);
    if (product->b) cublasLtMatrixLayoutDestroy(product->b);
    if (product->d) cublasLtMatrixLayoutDestroy(product->d);
}

static bool is_aligned(const void *memory) {
    return (uintptr_t)memory % UPS_CUDA_PROMISED == 0;
}

ups_status ups_cuda_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                const void *bias, void *d, bool accumulate, void *workspace, ups_error *error) {
    const float one = 1.0f, add = accumulate ? 1.0f : 0.0f;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(bias) || !is_aligned(d))
        return ups_fail(error, UPS_ERR_ARGUMENT, "products: tensors begin at multiples of %d bytes on CUDA",
                        UPS_CUDA_PROMISED);
    if (bias) { /* the description is the plan's: a call at a time issues */
        UPS_TRY(check(
            cublasLtMatmulDescSetAttribute(product->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
            "a product", error));
    }
    return check(cublasLtMatmul(ups_cuda_blas(device), product->description, &one, a, product->a, b, product->b, &add,
                                d, product->d, d, product->d, &product->algorithm, workspace, UPS_CUDA_LIBRARY_BYTES,
                                ups_cuda_stream(device)),
                 "a product", error);
}
