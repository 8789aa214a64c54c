#include "model/cuda/products/product.h"

#include "base/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static size_t bytes_of_floats(int64_t count) {
    return bytes_of((ups_cuda_matrix){.rows = 1, .columns = count, .dtype = UPS_F32}, 1);
}

/* Memory to try algorithms in: a, b, d, the bias, the library's workspace, and what sums of b's columns take. */
typedef struct trial {
    char *a, *b, *d, *bias, *workspace;
    float *sums, *partials;
    ups_tensor summed; /* b, where a kernel makes its sums after each product; data NULL: none does */
    cudaEvent_t began, ended;
} trial;

static cudaError_t open_trial(ups_device *device, const ups_cuda_matrix of[3], int64_t batch, bool with_sums,
                              trial *t) {
    const size_t a = bytes_of(of[0], batch), b = bytes_of(of[1], batch), d = bytes_of(of[2], batch);
    const size_t bias = bytes_of_floats(of[2].columns), sums = with_sums ? bytes_of_floats(of[1].columns) : 0;
    const size_t partials = with_sums ? bytes_of_floats(ups_cuda_column_partials(of[1].rows, of[1].columns)) : 0;
    const size_t bytes = a + b + d + bias + UPS_CUDA_LIBRARY_BYTES + sums + partials;
    *t = (trial){0};
    cudaError_t code = cudaMalloc((void **)&t->a, bytes);
    if (code != cudaSuccess) return code;
    t->b = t->a + a;
    t->d = t->b + b;
    t->bias = t->d + d;
    t->workspace = t->bias + bias;
    t->sums = (float *)(void *)(t->workspace + UPS_CUDA_LIBRARY_BYTES);
    t->partials = (float *)(void *)(t->workspace + UPS_CUDA_LIBRARY_BYTES + sums);
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
        if (t->summed.data && ups_cuda_sum_rows(device, &t->summed, t->partials, t->sums, false, NULL) != UPS_OK)
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

/* The one that takes the least time, where that is worth it, or the first; -1: none runs. */
static int least_of(const float *least, int count) {
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (least[i] >= 0.0f && (best < 0 || least[i] < least[best])) best = i;
    }
    return best > 0 && least[0] >= 0.0f && least[best] > worth * least[0] ? 0 : best;
}

static cublasStatus_t set_vector(cublasLtMatmulDesc_t description, const void *vector) {
    return cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
}

/* Of the library's suggestions the one that takes the least time, where that is worth it; -1: they cannot be tried. */
static int find_fastest(ups_device *device, const ups_cuda_product *p, bool bias, const ups_cuda_matrix of[3],
                        int64_t batch, const cublasLtMatmulHeuristicResult_t *found, int count) {
    trial t;
    int best = -1;
    float least[SUGGESTIONS] = {0};
    cudaError_t code = open_trial(device, of, batch, false, &t);
    const void *there = t.bias;
    if (code == cudaSuccess && bias && set_vector(p->description, there) != CUBLAS_STATUS_SUCCESS)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess && p->fp8 &&
        ups_cuda_product_scale(p, (const float *)there, (const float *)there, NULL) != UPS_OK)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess) time_all(device, p, found, count, &t, least);
    if (code == cudaSuccess) best = least_of(least, count);
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
    snprintf(name + used, UPS_CUDA_CHOICE_KEY - (size_t)used, ".%lld%s%s", (long long)batch,
             options.bias ? ".bias" : "", options.sums ? ".sums" : "");
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

/* ---- sums of b's columns -------------------------------------------------------------------------------------------
 */

/* What a trial's columns hold, in each row: numbers that all dtypes have, whose sums of some 270,000 rows are exact in
 * float32, and of which a column's neighbours have others. */
static float value_of_column(int64_t column) {
    enum { VALUES = 61 };
    return (float)(1 + column % VALUES) / 256.0f;
}

/* The first row by the host, then twice as many rows each time. */
static cudaError_t fill_columns(ups_device *device, ups_cuda_matrix b, const trial *t) {
    const size_t element = ups_dtype_size(b.dtype), row = (size_t)b.columns * element, bytes = row * (size_t)b.rows;
    char *values = malloc(row);
    if (!values) return cudaErrorMemoryAllocation;
    for (int64_t c = 0; c < b.columns; c++) {
        const float value = value_of_column(c);
        char *to = values + (size_t)c * element;
        if (b.dtype == UPS_BF16)
            ups_f32_to_bf16(&value, (ups_bf16 *)(void *)to, 1);
        else if (b.dtype == UPS_F16)
            ups_f32_to_f16(&value, (ups_f16 *)(void *)to, 1);
        else
            memcpy(to, &value, sizeof value);
    }
    cudaError_t code = cudaMemcpyAsync(t->b, values, row, cudaMemcpyHostToDevice, ups_cuda_stream(device));
    for (size_t there = row; there < bytes && code == cudaSuccess; there *= 2)
        code = cudaMemcpyAsync(t->b + there, t->b, there < bytes - there ? there : bytes - there,
                               cudaMemcpyDeviceToDevice, ups_cuda_stream(device));
    if (code == cudaSuccess) code = cudaStreamSynchronize(ups_cuda_stream(device));
    free(values);
    return code;
}

/* A library that left the vector alone, or added other columns, is found out. */
static bool sums_are_right(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulAlgo_t *algorithm,
                           ups_cuda_matrix b, const trial *t) {
    const double tolerance = 1e-5;
    const size_t bytes = (size_t)b.columns * sizeof(float);
    cudaStream_t stream = ups_cuda_stream(device);
    float *sums = malloc(bytes);
    bool right = sums && cudaMemsetAsync(t->sums, 0xff, bytes, stream) == cudaSuccess &&
                 time_of(device, p, algorithm, 1, t) >= 0.0f &&
                 cudaMemcpyAsync(sums, t->sums, bytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
                 cudaStreamSynchronize(stream) == cudaSuccess;
    for (int64_t c = 0; c < b.columns && right; c++) {
        const double expected = (double)value_of_column(c) * (double)b.rows;
        right = fabs((double)sums[c] - expected) <= tolerance * expected; /* NaN is not */
    }
    free(sums);
    return right;
}

/* As find_fastest, of products with sums: -1 where they save too little of what a kernel after the product without them
 * takes, or the library's sums are wrong. GELU's gradient makes sums for nothing, but does as all do (linear.c): what
 * an epilogue costs is lost there. *tried: that was found out. */
static int find_fastest_sums(ups_device *device, const ups_cuda_product *p, const ups_cuda_product *summing,
                             const ups_cuda_matrix of[3], const cublasLtMatmulHeuristicResult_t *found, int count,
                             bool *tried) {
    const cublasLtMatmulHeuristicResult_t without = {.algo = p->algorithm, .state = CUBLAS_STATUS_SUCCESS};
    const float worth_of_kernel = 0.25f; /* what an epilogue may take at most of the kernel's time */
    float least[SUGGESTIONS] = {0}, alone = -1.0f, apart = -1.0f;
    trial t;
    cudaError_t code = open_trial(device, of, 1, true, &t);
    if (code == cudaSuccess) code = fill_columns(device, of[1], &t);
    if (code == cudaSuccess && set_vector(summing->description, t.sums) != CUBLAS_STATUS_SUCCESS)
        code = cudaErrorInvalidValue;
    int best = -1;
    if (code == cudaSuccess) {
        time_all(device, summing, found, count, &t, least);
        best = least_of(least, count);
        time_all(device, p, &without, 1, &t, &alone);
        t.summed = (ups_tensor){.data = t.b, .dtype = of[1].dtype, .shape = {2, {of[1].rows, of[1].columns}}};
        time_all(device, p, &without, 1, &t, &apart);
        t.summed.data = NULL;
        if (best >= 0 && (alone < 0.0f || apart < alone || least[best] > alone + worth_of_kernel * (apart - alone) ||
                          !sums_are_right(device, summing, &found[best].algo, of[1], &t)))
            best = -1;
    }
    *tried = code == cudaSuccess && alone >= 0.0f && apart >= 0.0f;
    close_trial(device, &t);
    return *tried ? best : -1;
}

/* No algorithm has these bits: the product without sums is faster, or alone right. */
static bool is_none(const cublasLtMatmulAlgo_t *algorithm) {
    const cublasLtMatmulAlgo_t none = {{0}};
    return memcmp(algorithm, &none, sizeof none) == 0;
}

/* p->summing_algorithm; *has: there is one, and it is worth taking. */
static ups_status choose_summing_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                           const char *name, bool *has, ups_error *error) {
    ups_cuda_choices *choices = ups_cuda_choices_of(device);
    const uint32_t aligned[] = {UPS_CUDA_PROMISED, UPS_CUDA_PROMISED, UPS_CUDA_PROMISED, UPS_CUDA_PROMISED};
    cublasLtMatmulHeuristicResult_t found[SUGGESTIONS];
    ups_cuda_product summing = *p;
    int count;
    summing.description = p->summing;
    if (choices && ups_cuda_choices_find(choices, name, &p->summing_algorithm)) {
        *has = !is_none(&p->summing_algorithm) && still_runs(device, &summing, &p->summing_algorithm);
        if (*has || is_none(&p->summing_algorithm)) return UPS_OK;
    }
    UPS_TRY(ask_library(device, &summing, aligned, choices ? SUGGESTIONS : 1, found, &count, error));
    *has = count > 0;
    if (!*has) return UPS_OK;
    p->summing_algorithm = found[0].algo;
    if (!choices) return UPS_OK;
    bool tried;
    const int best = find_fastest_sums(device, p, &summing, of, found, count, &tried);
    p->summing_algorithm = best < 0 ? (cublasLtMatmulAlgo_t){{0}} : found[best].algo;
    if (tried) ups_cuda_choices_add(choices, name, &p->summing_algorithm);
    *has = !is_none(&p->summing_algorithm);
    return UPS_OK;
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
    char name[UPS_CUDA_CHOICE_KEY];
    bool has = false;
    name_product(name, of, transpose_a, true, options, 1);
    UPS_TRY(check(cublasLtMatmulDescCreate(&p->summing, compute, CUDA_R_32F), "describing a product", error));
    UPS_TRY(set_description(p->summing, transpose_a, true, CUBLASLT_EPILOGUE_BGRADB, error));
    UPS_TRY(choose_summing_algorithm(device, p, of, name, &has, error));
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
    UPS_TRY(check(cublasLtMatmulDescCreate(&product->description, compute, CUDA_R_32F), "describing a product", error));
    UPS_TRY(set_description(product->description, transpose_a, transpose_b, epilogue, error));
    if (product->fp8) UPS_TRY(describe_fp8(product, options.fast, options.bias, error));
    UPS_TRY(make_layout(&product->a, a, batch, error));
    UPS_TRY(make_layout(&product->b, b, batch, error));
    UPS_TRY(make_layout(&product->d, product->result, batch, error));
    bool none = false;
    const ups_cuda_matrix of[] = {a, b, product->result};
    UPS_TRY(choose_algorithm(device, product, of, transpose_a, transpose_b, without_sums, batch, &none, error));
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
        UPS_TRY(check(cublasLtMatmulDescSetAttribute(product->description, attributes[i], &scales[i], sizeof scales[i]),
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
    if (vector) UPS_TRY(check(set_vector(description, vector), "a product", error));
    return check(cublasLtMatmul(ups_cuda_blas(device), description, &one, a, product->a, b, product->b, &add, d,
                                product->d, d, product->d, algorithm, workspace, UPS_CUDA_LIBRARY_BYTES,
                                ups_cuda_stream(device)),
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
