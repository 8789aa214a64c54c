#include "model/cuda/products/description.h"

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

ups_status ups_cuda_blas_check(cublasStatus_t status, const char *doing, ups_error *error) {
    if (status == CUBLAS_STATUS_SUCCESS) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt: %s failed: %s", doing, cublasLtGetStatusName(status));
}

cublasStatus_t ups_cuda_product_vector(cublasLtMatmulDesc_t description, const void *vector) {
    return cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
}

ups_status ups_cuda_describe_matrix(cublasLtMatrixLayout_t *layout, ups_cuda_matrix m, int64_t batch,
                                    ups_error *error) {
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

ups_status ups_cuda_describe_product(cublasLtMatmulDesc_t description, bool transpose_a, bool transpose_b,
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

ups_status ups_cuda_describe_fp8(const ups_cuda_product *p, bool fast, bool bias, ups_error *error) {
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

ups_dtype ups_cuda_product_bias(const ups_cuda_product *product) {
    return product->fp8 && product->result.dtype == UPS_F32 ? UPS_BF16 : product->result.dtype;
}

bool ups_cuda_keeps_promise(const void *memory) {
    return (uintptr_t)memory % UPS_CUDA_PROMISED == 0;
}

ups_status ups_cuda_product_scale(const ups_cuda_product *product, const float *a, const float *b, ups_error *error) {
    const void *const scales[] = {a, b};
    const cublasLtMatmulDescAttributes_t attributes[] = {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                         CUBLASLT_MATMUL_DESC_B_SCALE_POINTER};
    if (!ups_cuda_keeps_promise(a) || !ups_cuda_keeps_promise(b))
        return ups_fail(error, UPS_ERR_ARGUMENT, "products: scales of FP8 begin at multiples of %d bytes on CUDA",
                        UPS_CUDA_PROMISED);
    for (int i = 0; i < 2; i++) /* as with a bias: a call at a time issues */
        UPS_TRY(ups_cuda_blas_check(
            cublasLtMatmulDescSetAttribute(product->description, attributes[i], &scales[i], sizeof scales[i]),
            "a product", error));
    return UPS_OK;
}
