/* The calls of cuBLASLt that a product takes, in float64. What the real one refuses is refused: other layouts and types
 * than its table of kernels has (cuBLASLt documentation, cublasLtMatmul), dimensions that do not fit together, operands
 * less aligned than was promised when the algorithm was chosen, biases and scales of FP8 that are aligned less than
 * kernels load them (an H200 refused scales at a multiple of 8 bytes), less workspace than it was chosen for.
 *
 * Sums of B's columns (CUBLASLT_EPILOGUE_BGRADB) are of one product, in D's type, as its header has it; that they are
 * not of FP8 is UPS's own limit.
 *
 * An algorithm remembers what it was promised. There are three for each product, which compute the same and take 3, 1
 * and 2 milliseconds of the emulated clock. The workspace is overwritten, as the real one's is. */
#include "tests/cuda/ptx/numbers.h"
#include "tests/cuda/runtime/runtime.h"
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct description {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    const float *scales[2]; /* FP8: of a and b, in device memory; NULL: 1 */
    int8_t fast_sums;
    int32_t bias_type; /* -1: of the result's */
} description;

typedef struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t stride;
    int32_t batch;
    int64_t batch_stride; /* elements from one matrix of a batch to the next; 0: all are the same one */
} layout;

typedef struct preference {
    uint64_t workspace;
    uint32_t alignment[4]; /* a, b, c, d */
    uint32_t reduction;    /* how split products may add their parts: sums here are of float64 and not split */
} preference;

typedef struct algorithm {
    uint64_t magic, workspace;
    uint32_t alignment[4];
    uint32_t number;
} algorithm;
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it is kept in the library's struct");

enum { MAGIC = 0x75707321, DEFAULT_ALIGNMENT = 256, VECTOR_ALIGNMENT = 16 /* of biases and scales */ };
enum { ALGORITHMS = 3 };
static const double milliseconds[ALGORITHMS] = {3, 1, 2};
double emulated_clock;
emulated_sums emulated_sums_are;
double emulated_sums_time = 1.0;
enum { NEEDED_WORKSPACE = 64 << 10 }; /* that the emulated algorithm asks for, where it may have as much */

/* ---- descriptions --------------------------------------------------------------------------------------------------
 */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    static int any;
    *handle = (cublasLtHandle_t)&any;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    default:
        return "a status that the emulator does not name";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale) {
    description *d = calloc(1, sizeof *d);
    if (!d) return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (description){compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL, {NULL, NULL}, 0, -1};
    *made = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t size, const void *from, size_t given) {
    if (given != size) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size) {
    description *d = (description *)(void *)made;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->transpose_a, sizeof d->transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->transpose_b, sizeof d->transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, sizeof d->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, sizeof d->bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&d->bias_type, sizeof d->bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return set(&d->scales[0], sizeof d->scales[0], value, size);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return set(&d->scales[1], sizeof d->scales[1], value, size);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return set(&d->fast_sums, sizeof d->fast_sums, value, size);
    default:
        emulated_refuse(cudaErrorInvalidValue, "attribute %d of a product is not emulated", attribute);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
    layout *l = calloc(1, sizeof *l);
    if (!l) return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (layout){type, rows, columns, stride, 1, 0};
    *made = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t made, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size) {
    layout *l = (layout *)(void *)made;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&l->batch, sizeof l->batch, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&l->batch_stride, sizeof l->batch_stride, value, size);
    default:
        emulated_refuse(cudaErrorInvalidValue, "attribute %d of a matrix is not emulated", attribute);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    preference *p = calloc(1, sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    for (int i = 0; i < 4; i++) p->alignment[i] = DEFAULT_ALIGNMENT;
    *made = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size) {
    preference *p = (preference *)(void *)made;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, sizeof p->workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reduction, sizeof p->reduction, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&p->alignment[0], sizeof *p->alignment, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&p->alignment[1], sizeof *p->alignment, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&p->alignment[2], sizeof *p->alignment, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[3], sizeof *p->alignment, value, size);
    default:
        emulated_refuse(cudaErrorInvalidValue, "preference %d of a product is not emulated", attribute);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- what there is -------------------------------------------------------------------------------------------------
 */

static cudaDataType bias_type(const description *d, const layout *result) {
    return d->bias_type < 0 ? result->type : (cudaDataType)d->bias_type;
}

static bool has_vector(const description *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool is_half(cudaDataType type) {
    return type == CUDA_R_16BF || type == CUDA_R_16F;
}

static bool is_fp8(cudaDataType_t type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* Operands of FP8: of one of the two types at least once E4M3, multiplied "TN" by cards from 8.9 on; results in any of
 * the larger types, with biases in bfloat16 where the result is that or float32. */
static const char *check_fp8(const description *d, const layout *a, const layout *b, const layout *c, const layout *r) {
    const layout *const all[] = {a, b, r};
    int major, minor;
    emulated_capability(&major, &minor);
    if (10 * major + minor < 89) return "FP8 on a card of before compute capability 8.9";
    if (d->compute != CUBLAS_COMPUTE_32F || d->scale != CUDA_R_32F) return "FP8 in another compute type than float32";
    if (!is_fp8(a->type) || !is_fp8(b->type)) return "one operand of FP8, and the other not";
    if (!d->scales[0] || !d->scales[1]) return "FP8 without scales, which the library allows, but not UPS";
    if (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) return "both operands E5M2";
    if (d->transpose_a != CUBLAS_OP_T || d->transpose_b != CUBLAS_OP_N) return "FP8 that does not lie as TN";
    for (int i = 0; i < 3; i++) {
        if (all[i]->rows % 16 || all[i]->columns % 16 || all[i]->stride % 16)
            return "FP8 of sizes that are no multiples of 16";
    }
    if (c->type != r->type) return "C and D of two types";
    if (!is_half(r->type) && r->type != CUDA_R_32F) return "a result of a type that is not emulated";
    if (d->epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (int)bias_type(d, r) != (r->type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF))
        return "a bias of a type that there is not for FP8";
    if (d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return "an epilogue that is not emulated";
    return NULL;
}

/* The tables of types for CUBLAS_COMPUTE_32F and CUBLAS_COMPUTE_32F_FAST_TF32 with float32 scale: A and B alike; C and
 * D alike, float32 or A's. TF32 is of float32 alone. */
static const char *check_types(const description *d, const layout *a, const layout *b, const layout *c,
                               const layout *r) {
    bool tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (is_fp8(a->type) || is_fp8(b->type)) return check_fp8(d, a, b, c, r);
    if (d->scales[0] || d->scales[1]) return "scales of operands that are not FP8";
    if ((d->compute != CUBLAS_COMPUTE_32F && !tf32) || d->scale != CUDA_R_32F)
        return "another compute or scale type than float32";
    if (tf32 && (a->type != CUDA_R_32F || r->type != CUDA_R_32F)) return "TF32 of a type other than float32";
    if (a->type != b->type) return "operands of two types";
    if (!is_half(a->type) && a->type != CUDA_R_32F) return "operands of a type that is not emulated";
    if (c->type != r->type) return "C and D of two types";
    if (r->type != CUDA_R_32F && r->type != a->type) return "a result of a type that there is not for these operands";
    if (d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_vector(d)) return "an epilogue that is not emulated";
    if (has_vector(d) && bias_type(d, r) != r->type) return "a bias, or sums, of another type than the result";
    return NULL;
}

/* Elements from the first to the last. */
static uint64_t extent(const layout *l) {
    return (uint64_t)l->stride * (l->columns - 1) + l->rows;
}

static const char *check_shapes(const description *d, const layout *a, const layout *b, const layout *c,
                                const layout *r) {
    const layout *all[] = {a, b, c, r};
    bool ta = d->transpose_a == CUBLAS_OP_T, tb = d->transpose_b == CUBLAS_OP_T;
    uint64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    uint64_t n = tb ? b->rows : b->columns, kb = tb ? b->columns : b->rows;
    if (k != kb || r->rows != m || r->columns != n || c->rows != m || c->columns != n) return "shapes that do not fit";
    for (int i = 0; i < 4; i++) {
        if (all[i]->rows == 0 || all[i]->columns == 0) return "an empty matrix";
        if (all[i]->stride < (int64_t)all[i]->rows) return "columns that overlap";
        if (all[i]->batch < 1 || all[i]->batch != a->batch) return "batches of several lengths";
    }
    if (r->batch > 1 && r->batch_stride < (int64_t)extent(r)) return "results of a batch that overlap";
    if (r->batch > 1 && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return "a batch with a bias or sums, which is not emulated";
    return NULL;
}

/* Of one row, column or term: versions of the library were seen to have no algorithm for some of these (PyTorch keeps
 * them away from it). Here it never has. */
static bool is_thin(const description *d, const layout *a, const layout *r) {
    const uint64_t depth = d->transpose_a == CUBLAS_OP_T ? a->rows : a->columns;
    return depth == 1 || r->rows == 1 || r->columns == 1;
}

static cublasStatus_t refuse(const char *why, cublasStatus_t status) {
    emulated_refuse(cudaErrorInvalidValue, "cuBLASLt: %s", why);
    cudaGetLastError();
    return status;
}

bool emulated_may_be_refused;

/* What is ill described looks to a program as if the library had no algorithm. */
static cublasStatus_t refuse_to_choose(const char *why, cublasStatus_t status) {
    if (emulated_may_be_refused) return refuse(why, status);
    emulated_caller caller;
    emulated_caller_take(&caller);
    simt_fail(NULL, "%s: cuBLASLt: %s", emulated_caller_describe(&caller), why);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t made,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int most,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
    EMULATED_CALL_BEGINS();
    const description *of = (const description *)(void *)made;
    const preference *p = (const preference *)(void *)wanted;
    *count = 0;
    const char *wrong = check_types(of, (void *)a, (void *)b, (void *)c, (void *)d);
    if (wrong) return refuse_to_choose(wrong, CUBLAS_STATUS_NOT_SUPPORTED);
    wrong = check_shapes(of, (void *)a, (void *)b, (void *)c, (void *)d);
    if (wrong) return refuse_to_choose(wrong, CUBLAS_STATUS_INVALID_VALUE);
    if (most < 1 || is_thin(of, (void *)a, (void *)d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (of->epilogue == CUBLASLT_EPILOGUE_BGRADB && emulated_sums_are == EMULATED_SUMS_REFUSED)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm chosen = {.magic = MAGIC, .workspace = p->workspace < NEEDED_WORKSPACE ? 0 : NEEDED_WORKSPACE};
    memcpy(chosen.alignment, p->alignment, sizeof chosen.alignment);
    *count = most < ALGORITHMS ? most : ALGORITHMS;
    memset(results, 0, (size_t)*count * sizeof *results);
    for (int i = 0; i < *count; i++) {
        chosen.number = (uint32_t)i;
        memcpy(&results[i].algo, &chosen, sizeof chosen);
        results[i].workspaceSize = chosen.workspace;
        results[i].state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_algorithm(const algorithm *chosen) {
    return chosen->magic == MAGIC && chosen->number < ALGORITHMS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t made, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
    EMULATED_CALL_BEGINS();
    algorithm chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (check_types((void *)made, (void *)a, (void *)b, (void *)c, (void *)d) ||
        check_shapes((void *)made, (void *)a, (void *)b, (void *)c, (void *)d) || !is_algorithm(&chosen))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    memcpy(&result->algo, algo, sizeof *algo);
    result->workspaceSize = chosen.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
    return 130000;
}

static bool is_aligned(const void *vector) {
    return (uintptr_t)vector % VECTOR_ALIGNMENT == 0;
}

/* Where the vectors beside the matrices lie; NULL is none. */
static const char *check_vectors(const description *d) {
    if (!is_aligned(d->scales[0]) || !is_aligned(d->scales[1])) return "a scale that is aligned to less than 16 bytes";
    if (has_vector(d) && !is_aligned(d->bias)) return "a bias, or sums, aligned to less than 16 bytes";
    return NULL;
}

/* ---- the product ---------------------------------------------------------------------------------------------------
 */

typedef struct product {
    description of;
    layout a, b, c, d;
    uint64_t from_a, from_b, from_c, to_d, workspace, workspace_bytes;
    double milliseconds;
    float alpha, beta;
    emulated_caller caller;
} product;

/* Ten bits of the mantissa are left. The library does not say how it rounds: cutting off is the worst that it may do.
 */
static float cut_to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~0x1fffu;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* E4M3 has no infinities; its largest number has all bits set but the last. */
static double from_fp8(uint8_t bits, cudaDataType type) {
    const bool e4m3 = type == CUDA_R_8F_E4M3;
    const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    const double sign = bits & 0x80 ? -1.0 : 1.0;
    if (e4m3 ? (bits & 0x7f) == 0x7f : exponent == 31 && fraction) return NAN;
    if (!e4m3 && exponent == 31) return sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - mantissa);
    return sign * ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
}

static double element(const void *memory, cudaDataType type, uint64_t at) {
    if (type == CUDA_R_32F) return (double)((const float *)memory)[at];
    if (is_fp8(type)) return from_fp8(((const uint8_t *)memory)[at], type);
    uint16_t bits = ((const uint16_t *)memory)[at];
    return (double)(type == CUDA_R_16BF ? ptx_from_bf16(bits) : ptx_from_f16(bits));
}

/* Of the product, as the tensor cores see it. */
static double operand(const product *p, const void *memory, cudaDataType type, uint64_t at) {
    double value = element(memory, type, at);
    return p->of.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? (double)cut_to_tf32((float)value) : value;
}

static void put(void *memory, cudaDataType type, uint64_t at, double value) {
    if (type == CUDA_R_32F)
        ((float *)memory)[at] = (float)value;
    else
        ((uint16_t *)memory)[at] = type == CUDA_R_16BF ? ptx_to_bf16((float)value) : ptx_to_f16((float)value);
}

static size_t size_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2;
}

static void *reach(uint32_t work, const product *p, uint64_t address, size_t bytes, bool write) {
    const char *wrong;
    void *found = simt_memory_reach(work, address, bytes, write, &wrong);
    if (!found)
        simt_fail(NULL, "%s: a product %s %zu bytes: %s", emulated_caller_describe(&p->caller),
                  write ? "writes" : "reads", bytes, wrong);
    return found;
}

/* Matrix `index` of a batch. */
static void *reach_matrix(uint32_t work, const product *p, const layout *l, uint64_t address, int32_t index,
                          bool write) {
    uint64_t start = address + (uint64_t)(index * l->batch_stride) * size_of(l->type);
    return reach(work, p, start, extent(l) * size_of(l->type), write);
}

/* Column j of op(A) op(B), the k-th of whose terms is added k-th, in `sums`; `a` holds op(A)'s columns one after the
 * other. */
static void multiply_column(const double *restrict a, const double *restrict b, uint64_t rows, uint64_t terms,
                            double *restrict sums) {
    for (uint64_t i = 0; i < rows; i++) sums[i] = 0;
    for (uint64_t k = 0; k < terms; k++) {
        const double factor = b[k];
        for (uint64_t i = 0; i < rows; i++) sums[i] += a[k * rows + i] * factor;
    }
}

static void multiply(uint32_t work, const product *p, int32_t index) {
    bool ta = p->of.transpose_a == CUBLAS_OP_T, tb = p->of.transpose_b == CUBLAS_OP_T;
    uint64_t k_count = ta ? p->a.rows : p->a.columns;
    const void *a = reach_matrix(work, p, &p->a, p->from_a, index, false);
    const void *b = reach_matrix(work, p, &p->b, p->from_b, index, false);
    double alpha = (double)p->alpha;
    for (int i = 0; i < 2; i++) {
        if (p->of.scales[i])
            alpha *= (double)*(const float *)reach(work, p, (uint64_t)(uintptr_t)p->of.scales[i], sizeof(float), false);
    }
    const void *c = p->beta != 0 ? reach_matrix(work, p, &p->c, p->from_c, index, false) : NULL, *bias = NULL;
    if (p->of.epilogue == CUBLASLT_EPILOGUE_BIAS)
        bias = reach(work, p, (uint64_t)(uintptr_t)p->of.bias, p->d.rows * size_of(bias_type(&p->of, &p->d)), false);
    void *d = reach_matrix(work, p, &p->d, p->to_d, index, true);
    const uint64_t rows = p->d.rows;
    double *columns = malloc((k_count * rows + k_count + rows) * sizeof *columns);
    if (!columns) simt_fail(NULL, "no memory for a product of %llu rows", (unsigned long long)rows);
    double *factors = columns + k_count * rows, *sums = factors + k_count;
    for (uint64_t k = 0; k < k_count; k++) {
        for (uint64_t i = 0; i < rows; i++) {
            uint64_t at = ta ? i * (uint64_t)p->a.stride + k : k * (uint64_t)p->a.stride + i;
            columns[k * rows + i] = operand(p, a, p->a.type, at);
        }
    }
    for (uint64_t j = 0; j < p->d.columns; j++) {
        for (uint64_t k = 0; k < k_count; k++) {
            uint64_t at = tb ? k * (uint64_t)p->b.stride + j : j * (uint64_t)p->b.stride + k;
            factors[k] = operand(p, b, p->b.type, at);
        }
        multiply_column(columns, factors, rows, k_count, sums);
        for (uint64_t i = 0; i < rows; i++) {
            double sum = sums[i] * alpha;
            if (c) sum += (double)p->beta * element(c, p->c.type, j * (uint64_t)p->c.stride + i);
            if (bias) sum += element(bias, bias_type(&p->of, &p->d), i);
            put(d, p->d.type, j * (uint64_t)p->d.stride + i, sum);
        }
    }
    free(columns);
}

/* sums[j] = sum over k of op(B)[k, j] (in a library that is wrong, of A), in float32, of operands as they lie in
 * memory.
 */
static void add_columns(uint32_t work, const product *p) {
    const bool of_a = emulated_sums_are == EMULATED_SUMS_OF_A;
    const layout *l = of_a ? &p->a : &p->b;
    const bool down = of_a ? p->of.transpose_a == CUBLAS_OP_T : p->of.transpose_b == CUBLAS_OP_N; /* a column's */
    const uint64_t terms = down ? l->rows : l->columns, vectors = down ? l->columns : l->rows;
    const cudaDataType type = bias_type(&p->of, &p->d);
    const void *from = reach_matrix(work, p, l, of_a ? p->from_a : p->from_b, 0, false);
    void *sums = reach(work, p, (uint64_t)(uintptr_t)p->of.bias, p->d.columns * size_of(type), true);
    for (uint64_t j = 0; j < p->d.columns; j++) {
        float sum = 0.0f;
        for (uint64_t k = 0; k < terms && j < vectors; k++)
            sum += (float)element(from, l->type, down ? j * (uint64_t)l->stride + k : k * (uint64_t)l->stride + j);
        put(sums, type, j, (double)sum);
    }
}

static void run(uint32_t work, const void *owned) {
    const product *p = owned;
    if (p->workspace_bytes) memset(reach(work, p, p->workspace, p->workspace_bytes, true), 0xff, p->workspace_bytes);
    for (int32_t index = 0; index < p->d.batch; index++) multiply(work, p, index);
    if (p->of.epilogue == CUBLASLT_EPILOGUE_BGRADB && emulated_sums_are != EMULATED_SUMS_NOT_MADE) add_columns(work, p);
    emulated_clock += p->milliseconds;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t made, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t layout_a, const void *b, cublasLtMatrixLayout_t layout_b,
                              const void *beta, const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    const description *of = (const description *)(void *)made;
    const void *const operands[] = {a, b, c, d};
    const layout *const layouts[] = {(void *)layout_a, (void *)layout_b, (void *)layout_c, (void *)layout_d};
    algorithm chosen;
    const char *wrong = check_types(of, (void *)layout_a, (void *)layout_b, (void *)layout_c, (void *)layout_d);
    if (!wrong) wrong = check_shapes(of, (void *)layout_a, (void *)layout_b, (void *)layout_c, (void *)layout_d);
    if (wrong) return refuse(wrong, CUBLAS_STATUS_INVALID_VALUE);
    if (!algo) return refuse("a product without an algorithm", CUBLAS_STATUS_INVALID_VALUE);
    memcpy(&chosen, algo, sizeof chosen);
    if (!is_algorithm(&chosen)) return refuse("an algorithm that was not chosen", CUBLAS_STATUS_INVALID_VALUE);
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)operands[i] % chosen.alignment[i])
            return refuse("an operand is aligned less than was promised", CUBLAS_STATUS_NOT_SUPPORTED);
        if (layouts[i]->batch > 1 &&
            (uint64_t)layouts[i]->batch_stride * size_of(layouts[i]->type) % chosen.alignment[i])
            return refuse("later ones of a batch are aligned less than was promised", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (workspace_bytes < chosen.workspace || (chosen.workspace && (uintptr_t)workspace % 256))
        return refuse("the workspace is smaller than the algorithm's, or not aligned", CUBLAS_STATUS_INVALID_VALUE);
    if (has_vector(of) && !of->bias) return refuse("no bias, or nowhere for sums", CUBLAS_STATUS_INVALID_VALUE);
    wrong = check_vectors(of);
    if (wrong) return refuse(wrong, CUBLAS_STATUS_NOT_SUPPORTED);
    product *p = calloc(1, sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (product){.of = *of,
                   .a = *(layout *)(void *)layout_a,
                   .b = *(layout *)(void *)layout_b,
                   .c = *(layout *)(void *)layout_c,
                   .d = *(layout *)(void *)layout_d,
                   .from_a = (uint64_t)(uintptr_t)a,
                   .from_b = (uint64_t)(uintptr_t)b,
                   .from_c = (uint64_t)(uintptr_t)c,
                   .to_d = (uint64_t)(uintptr_t)d,
                   .workspace = (uint64_t)(uintptr_t)workspace,
                   .workspace_bytes = chosen.workspace,
                   .milliseconds = milliseconds[chosen.number] *
                                   (of->epilogue == CUBLASLT_EPILOGUE_BGRADB ? emulated_sums_time : 1.0),
                   .alpha = *(const float *)alpha,
                   .beta = *(const float *)beta};
    emulated_caller_take(&p->caller);
    emulated_body *body = emulated_body_create(EMULATED_CALL);
    body->call = run;
    body->owned = p;
    body->name = "a product of cuBLASLt";
    return emulated_issue(stream, body, NULL) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
