#include "model/cuda/products/product.h"

#include <math.h>
#include <stdio.h>

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
    UPS_TRY(check(status, "describing a product", error));
    return ups_cuda_product_scale(p, promised, promised, error);
}

/* What every matrix of a batch is aligned to, where the first one keeps the promise. */
static uint32_t alignment_of(ups_cuda_matrix m, int64_t batch) {
    const int64_t bytes = (m.stride ? m.stride : m.rows * m.columns) * (int64_t)ups_dtype_size(m.dtype);
    uint32_t alignment = UPS_CUDA_PROMISED;
    while (batch > 1 && bytes % alignment) alignment /= 2;
    return alignment;
}

/* ---- the algorithm -------------------------------------------------------------------------------------------------
 */

enum { SUGGESTIONS = 16, ROUNDS = 3, LEAST_RUNS = 4, MOST_RUNS = 256 };
static const float least_milliseconds = 0.2f; /* that are timed at once */
static const float hopeless = 1.5f;           /* times the best of single runs: not timed any further */
static const float worth = 0.97f;             /* of the first suggestion's time: what another one may take at most */

/* At most `most` algorithms, the library's favourite first; none where it has none for such shapes. `aligned`: of a, b,
 * c and d. */
static ups_status ask_library(ups_device *device, const ups_cuda_product *p, const uint32_t aligned[4], int most,
                              cublasLtMatmulHeuristicResult_t *found, int *count, ups_error *error) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t preference;
    size_t workspace = UPS_CUDA_LIBRARY_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    *count = 0;
    UPS_TRY(check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm", error));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    /* Partial sums of a split product are added in float32, never in the result's half precision. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &aligned[i], sizeof aligned[i]);
    const bool asked = status == CUBLAS_STATUS_SUCCESS;
    if (asked)
        status = cublasLtMatmulAlgoGetHeuristic(ups_cuda_blas(device), p->description, p->a, p->b, p->d, p->d,
                                                preference, most, found, count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (asked && (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)) {
        *count = 0;
        return UPS_OK;
    }
    return check(status, "choosing an algorithm", error);
}

/* Bytes from the first of a batch's matrices to the end of the last, in whole cache lines. */
static size_t bytes_of(ups_cuda_matrix m, int64_t batch) {
    const int64_t one = m.rows * m.columns, step = m.stride ? m.stride : one;
    return (((size_t)((batch - 1) * step + one) * ups_dtype_size(m.dtype)) + 255) / 256 * 256;
}

/* Memory to try algorithms in: a, b, d, the bias, and the library's workspace. */
typedef struct trial {
    char *a, *b, *d, *bias, *workspace;
    cudaEvent_t began, ended;
} trial;

static cudaError_t open_trial(ups_device *device, const ups_cuda_matrix of[3], int64_t batch, trial *t) {
    const size_t a = bytes_of(of[0], batch), b = bytes_of(of[1], batch), d = bytes_of(of[2], batch);
    const size_t bias = bytes_of((ups_cuda_matrix){.rows = 1, .columns = of[2].columns, .dtype = UPS_F32}, 1);
    const size_t bytes = a + b + d + bias + UPS_CUDA_LIBRARY_BYTES;
    *t = (trial){0};
    cudaError_t code = cudaMalloc((void **)&t->a, bytes);
    if (code != cudaSuccess) return code;
    t->b = t->a + a;
    t->d = t->b + b;
    t->bias = t->d + d;
    t->workspace = t->bias + bias;
    /* Small numbers in any dtype: of zeros a card makes less heat, and more speed. */
    code = cudaMemsetAsync(t->a, 0x3c, bytes, ups_cuda_stream(device));
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&t->began, cudaEventDefault);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&t->ended, cudaEventDefault);
    return code;
}

static void close_trial(ups_device *device, trial *t) {
    cudaStreamSynchronize(ups_cuda_stream(device));
    if (t->began) cudaEventDestroy(t->began);
    if (t->ended) cudaEventDestroy(t->ended);
    if (t->a) cudaFree(t->a);
    cudaGetLastError(); /* what a trial could not do is no fault of what comes */
}

/* Milliseconds of one of `runs`; negative: it does not run. */
static float time_of(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulAlgo_t *algorithm, int runs,
                     const trial *t) {
    const float one = 1.0f, zero = 0.0f;
    cudaStream_t stream = ups_cuda_stream(device);
    float spent = -1.0f;
    if (cudaEventRecord(t->began, stream) != cudaSuccess) return -1.0f;
    for (int run = 0; run < runs; run++) {
        if (cublasLtMatmul(ups_cuda_blas(device), p->description, &one, t->a, p->a, t->b, p->b, &zero, t->d, p->d, t->d,
                           p->d, algorithm, t->workspace, UPS_CUDA_LIBRARY_BYTES, stream) != CUBLAS_STATUS_SUCCESS)
            return -1.0f;
    }
    if (cudaEventRecord(t->ended, stream) != cudaSuccess || cudaEventSynchronize(t->ended) != cudaSuccess ||
        cudaEventElapsedTime(&spent, t->began, t->ended) != cudaSuccess)
        return -1.0f;
    return spent / (float)runs;
}

/* So many that a timer's steps and launches do not decide. */
static int runs_for(float milliseconds) {
    const float wanted = milliseconds > 0.0f ? least_milliseconds / milliseconds : (float)MOST_RUNS;
    return wanted < (float)LEAST_RUNS ? LEAST_RUNS : wanted < (float)MOST_RUNS ? (int)wanted : MOST_RUNS;
}

/* The least time of each suggestion over some rounds, all in turn; negative: it does not run. */
static void time_all(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulHeuristicResult_t *found,
                     int count, const trial *t, float *least) {
    int runs[SUGGESTIONS];
    float best = INFINITY;
    for (int i = 0; i < count; i++) {
        least[i] = found[i].state == CUBLAS_STATUS_SUCCESS ? time_of(device, p, &found[i].algo, 1, t) : -1.0f;
        if (least[i] >= 0.0f) least[i] = time_of(device, p, &found[i].algo, 1, t); /* the first one warmed up */
        const float again = least[i] >= 0.0f ? time_of(device, p, &found[i].algo, 1, t) : -1.0f;
        least[i] = fminf(least[i], again);
        if (least[i] >= 0.0f) best = fminf(best, least[i]);
        runs[i] = runs_for(least[i]);
    }
    for (int i = 1; i < count; i++) { /* the first is what others are held against */
        if (least[i] > hopeless * best) runs[i] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            if (least[i] < 0.0f || runs[i] == 0) continue;
            const float time = time_of(device, p, &found[i].algo, runs[i], t);
            if (round == 0 || time < least[i]) least[i] = time;
        }
    }
}

/* Of the library's suggestions the one that takes the least time, where that is worth it; -1: they cannot be tried. */
static int find_fastest(ups_device *device, const ups_cuda_product *p, bool bias, const ups_cuda_matrix of[3],
                        int64_t batch, const cublasLtMatmulHeuristicResult_t *found, int count) {
    trial t;
    int best = -1;
    float least[SUGGESTIONS] = {0};
    cudaError_t code = open_trial(device, of, batch, &t);
    const void *there = t.bias;
    if (code == cudaSuccess && bias &&
        cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &there, sizeof there) !=
            CUBLAS_STATUS_SUCCESS)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess && p->fp8 &&
        ups_cuda_product_scale(p, (const float *)there, (const float *)there, NULL) != UPS_OK)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess) time_all(device, p, found, count, &t, least);
    for (int i = 0; i < count && code == cudaSuccess; i++) {
        if (least[i] >= 0.0f && (best < 0 || least[i] < least[best])) best = i;
    }
    if (best > 0 && least[0] >= 0.0f && least[best] > worth * least[0]) best = 0;
    close_trial(device, &t);
    return best;
}

/* What tells a product from others, to the library. */
static void name_product(char name[UPS_CUDA_CHOICE_KEY], const ups_cuda_matrix of[3], bool transpose_a,
                         bool transpose_b, ups_cuda_product_options options, int64_t batch) {
    int used = snprintf(name, UPS_CUDA_CHOICE_KEY, "%s%s%s",
                        options.tf32   ? "tf32."
                        : options.fast ? "fast."
                                       : "",
                        transpose_a ? "T" : "N", transpose_b ? "T" : "N");
    for (int i = 0; i < 3; i++)
        used +=
            snprintf(name + used, UPS_CUDA_CHOICE_KEY - (size_t)used, ".%s.%lldx%lld+%lld", ups_dtype_name(of[i].dtype),
                     (long long)of[i].rows, (long long)of[i].columns, (long long)(batch > 1 ? of[i].stride : 0));
    snprintf(name + used, UPS_CUDA_CHOICE_KEY - (size_t)used, ".%lld%s", (long long)batch, options.bias ? ".bias" : "");
}

/* An algorithm that was kept still runs: the library says. */
static bool still_runs(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulAlgo_t *algorithm) {
    cublasLtMatmulHeuristicResult_t found;
    return cublasLtMatmulAlgoCheck(ups_cuda_blas(device), p->description, p->a, p->b, p->d, p->d, algorithm, &found) ==
               CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= UPS_CUDA_LIBRARY_BYTES;
}

/* `of`: a, b and d. *none: the library has no algorithm. */
static ups_status choose_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                   bool transpose_a, bool transpose_b, ups_cuda_product_options options, int64_t batch,
                                   bool *none, ups_error *error) {
    ups_cuda_choices *choices = ups_cuda_choices_of(device);
    const uint32_t d = alignment_of(of[2], batch);
    const uint32_t aligned[] = {alignment_of(of[0], batch), alignment_of(of[1], batch), d, d};
    cublasLtMatmulHeuristicResult_t found[SUGGESTIONS];
    char name[UPS_CUDA_CHOICE_KEY];
    int count;
    name_product(name, of, transpose_a, transpose_b, options, batch);
    if (choices && ups_cuda_choices_find(choices, name, &p->algorithm) && still_runs(device, p, &p->algorithm))
        return UPS_OK;
    UPS_TRY(ask_library(device, p, aligned, choices ? SUGGESTIONS : 1, found, &count, error));
    *none = count == 0;
    if (*none) return UPS_OK;
    const int best = choices && count > 1 ? find_fastest(device, p, options.bias, of, batch, found, count) : -1;
    p->algorithm = found[best < 0 ? 0 : best].algo;
    if (best >= 0) ups_cuda_choices_add(choices, name, &p->algorithm); /* what could not be tried is not kept */
    return UPS_OK;
}

/* ---- products ------------------------------------------------------------------------------------------------------
 */

/* The library has half results of half operands, and float32 of all. */
static ups_cuda_matrix result_of(ups_cuda_matrix wanted, ups_dtype operands) {
    if (operands == UPS_F32) wanted.dtype = UPS_F32;
    return wanted;
}

ups_status ups_cuda_product_make(ups_device *device, ups_cuda_product *product, ups_cuda_matrix a, bool transpose_a,
                                 ups_cuda_matrix b, bool transpose_b, ups_cuda_matrix result,
                                 ups_cuda_product_options options, ups_error *error) {
    const int64_t batch = options.batch > 1 ? options.batch : 1;
    const cublasComputeType_t compute =
        options.tf32 && a.dtype == UPS_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    product->result = result_of(result, a.dtype);
    product->fp8 = is_fp8(a.dtype);
    if (ups_cuda_only_plans(device)) return UPS_OK; /* the library opens with a card alone */
    UPS_TRY(check(cublasLtMatmulDescCreate(&product->description, compute, CUDA_R_32F), "describing a product", error));
    UPS_TRY(set_description(product->description, transpose_a, transpose_b, options.bias, error));
    if (product->fp8) UPS_TRY(describe_fp8(product, options.fast, options.bias, error));
    UPS_TRY(make_layout(&product->a, a, batch, error));
    UPS_TRY(make_layout(&product->b, b, batch, error));
    UPS_TRY(make_layout(&product->d, product->result, batch, error));
    bool none = false;
    UPS_TRY(choose_algorithm(device, product, (const ups_cuda_matrix[]){a, b, product->result}, transpose_a,
                             transpose_b, options, batch, &none, error));
    if (none && product->fp8)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt has no algorithm for a product of FP8 of these shapes");
    if (none) product->plain = (ups_cuda_plain_product){a, b, transpose_a, transpose_b, batch};
    return UPS_OK;
}

void ups_cuda_product_release(ups_cuda_product *product) {
    if (product->description) cublasLtMatmulDescDestroy(product->description);
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
        UPS_TRY(check(cublasLtMatmulDescSetAttribute(product->description, attributes[i], &scales[i], sizeof scales[i]),
                      "a product", error));
    return UPS_OK;
}

ups_status ups_cuda_product_run(ups_device *device, const ups_cuda_product *product, const void *a, const void *b,
                                const void *bias, void *d, bool accumulate, void *workspace, ups_error *error) {
    const float one = 1.0f, add = accumulate ? 1.0f : 0.0f;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(bias) || !is_aligned(d))
        return ups_fail(error, UPS_ERR_ARGUMENT, "products: tensors begin at multiples of %d bytes on CUDA",
                        UPS_CUDA_PROMISED);
    if (product->plain.batch) return ups_cuda_plain_product_run(device, product, a, b, bias, d, accumulate, error);
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
