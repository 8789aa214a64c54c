#include "model/cuda/products/algorithms.h"

#include "base/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What every matrix of a batch is aligned to, where the first one keeps the promise. */
static uint32_t alignment_of(ups_cuda_matrix m, int64_t batch) {
    const int64_t bytes = (m.stride ? m.stride : m.rows * m.columns) * (int64_t)ups_dtype_size(m.dtype);
    uint32_t alignment = UPS_CUDA_PROMISED;
    while (batch > 1 && bytes % alignment) alignment /= 2;
    return alignment;
}

/* ---- the algorithm -------------------------------------------------------------------------------------------------
 */

enum { SUGGESTIONS = 48, ALWAYS = 8 /* that are tried */, FINALISTS = 8, ROUNDS = 3, LEAST_RUNS = 4, MOST_RUNS = 256 };
static const float enough_milliseconds = 50.0f; /* of single runs: more than ALWAYS are tried in less alone */
static const float least_milliseconds = 0.2f;   /* that are timed at once */
static const float hopeless = 1.5f;             /* times the best of single runs: not timed any further */
static const float worth = 0.97f;               /* of the first suggestion's time: what another one may take at most */

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
    UPS_TRY(ups_cuda_blas_check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm", error));
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
    return ups_cuda_blas_check(status, "choosing an algorithm", error);
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

/* The best of a few single runs; negative: it does not run. *spent grows by what they took. */
static float try_once(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulHeuristicResult_t *found,
                      const trial *t, float *spent) {
    enum { SINGLES = 3 }; /* of which the first warms up */
    float best = INFINITY;
    for (int run = 0; run < SINGLES; run++) {
        const float time = found->state == CUBLAS_STATUS_SUCCESS ? time_of(device, p, &found->algo, 1, t) : -1.0f;
        if (time < 0.0f) return -1.0f;
        *spent += time;
        if (run > 0) best = fminf(best, time);
    }
    return best;
}

/* Which go on: the first, which others are held against, and the best of those that are not hopeless. */
static void choose_finalists(const float *single, int count, bool *goes_on) {
    goes_on[0] = single[0] >= 0.0f;
    for (int i = 1; i < count; i++) {
        int better = 0;
        float best = INFINITY;
        for (int k = 0; k < count; k++) {
            if (single[k] < 0.0f) continue;
            best = fminf(best, single[k]);
            better += single[k] < single[i] || (single[k] == single[i] && k < i);
        }
        goes_on[i] = single[i] >= 0.0f && better < FINALISTS && single[i] <= hopeless * best;
    }
}

/* The least time of each suggestion over some rounds, all in turn; negative: it does not run, or others are better. */
static void time_all(ups_device *device, const ups_cuda_product *p, const cublasLtMatmulHeuristicResult_t *found,
                     int count, const trial *t, float *least) {
    bool goes_on[SUGGESTIONS];
    float single[SUGGESTIONS] = {-1.0f}, spent = 0.0f;
    for (int i = 0; i < count; i++) {
        const bool tried = i < ALWAYS || spent < enough_milliseconds;
        single[i] = tried ? try_once(device, p, &found[i], t, &spent) : -1.0f;
        least[i] = -1.0f;
    }
    choose_finalists(single, count, goes_on);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            if (!goes_on[i]) continue;
            const float time = time_of(device, p, &found[i].algo, runs_for(single[i]), t);
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

/* Of the library's suggestions the one that takes the least time, where that is worth it; -1: they cannot be tried. */
static int find_fastest(ups_device *device, const ups_cuda_product *p, bool bias, const ups_cuda_matrix of[3],
                        int64_t batch, const cublasLtMatmulHeuristicResult_t *found, int count) {
    trial t;
    int best = -1;
    float least[SUGGESTIONS] = {0};
    cudaError_t code = open_trial(device, of, batch, false, &t);
    const void *there = t.bias;
    if (code == cudaSuccess && bias && ups_cuda_product_vector(p->description, there) != CUBLAS_STATUS_SUCCESS)
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
ups_status ups_cuda_choose_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                     bool transpose_a, bool transpose_b, ups_cuda_product_options options,
                                     int64_t batch, bool *none, ups_error *error) {
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
    if (code == cudaSuccess && ups_cuda_product_vector(summing->description, t.sums) != CUBLAS_STATUS_SUCCESS)
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
ups_status ups_cuda_choose_summing_algorithm(ups_device *device, ups_cuda_product *p, const ups_cuda_matrix of[3],
                                             bool transpose_a, ups_cuda_product_options options, bool *has,
                                             ups_error *error) {
    ups_cuda_choices *choices = ups_cuda_choices_of(device);
    const uint32_t aligned[] = {UPS_CUDA_PROMISED, UPS_CUDA_PROMISED, UPS_CUDA_PROMISED, UPS_CUDA_PROMISED};
    cublasLtMatmulHeuristicResult_t found[SUGGESTIONS];
    ups_cuda_product summing = *p;
    char name[UPS_CUDA_CHOICE_KEY];
    int count;
    name_product(name, of, transpose_a, true, options, 1);
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
    const cublasLtMatmulAlgo_t none = {{0}};
    p->summing_algorithm = best < 0 ? none : found[best].algo;
    if (tried) ups_cuda_choices_add(choices, name, &p->summing_algorithm);
    *has = !is_none(&p->summing_algorithm);
    return UPS_OK;
}
