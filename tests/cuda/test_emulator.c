/* The emulator runs kernels that are right, and they are right: each against float64 or the same in C. Then streams,
 * events, graphs and pinned memory in any order that they allow, and calls that a card refuses. */
#include "base/half.h"
#include "tests/cuda/arrays.h"
#include "tests/cuda/kernels.h"
#include "tests/cuda/runtime/runtime.h"
#include <cublasLt.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define fails(call, code)                                                                                              \
    do {                                                                                                               \
        assert_int_equal((call), (code));                                                                              \
        assert_int_equal(cudaGetLastError(), (code));                                                                  \
    } while (0)

CLAIM(sums_of_rows_by_shuffles_and_barriers) {
    enum { ROWS = 37, N = 1000 };
    float *x = normal(ROWS * N, 1), *y = room(ROWS * sizeof *y);
    launch_reduce(up(x, ROWS * N * sizeof *x), y, ROWS, N, stream);
    float *sums = down(y, ROWS * sizeof *y);
    for (int row = 0; row < ROWS; row++) {
        double sum = 0.0;
        for (int i = 0; i < N; i++) sum += (double)x[row * N + i];
        near((double)sums[row], sum, 1e-4);
    }
    free(x);
    free(sums);
}

CLAIM(the_last_block_adds_what_others_left) {
    enum { N = 100003, BLOCKS = 13 };
    float *x = normal(N, 2), *y = room(sizeof *y), *partials = room(BLOCKS * sizeof *partials);
    unsigned *ticket = room(sizeof *ticket);
    works(cudaMemsetAsync(ticket, 0, sizeof *ticket, stream));
    launch_sum(up(x, N * sizeof *x), y, partials, ticket, N, BLOCKS, stream);
    float *sum = down(y, sizeof *y);
    double expected = 0.0;
    for (int i = 0; i < N; i++) expected += (double)x[i];
    near((double)*sum, expected, 2e-3);
    free(x);
    free(sum);
}

CLAIM(what_a_barrier_a_fence_and_an_atomic_publish_is_read) {
    enum { BLOCKS = 5, WIDTH = 256, COUNT = BLOCKS * WIDTH };
    float *x = normal(COUNT, 3), *left = room(COUNT * sizeof *left), *y = room(WIDTH * sizeof *y);
    float *given = up(x, COUNT * sizeof *x);
    unsigned *ticket = room(sizeof *ticket);
    works(cudaMemsetAsync(ticket, 0, sizeof *ticket, stream));
    for (int in_one = 0; in_one < 2; in_one++) {
        launch_publish(given, left, y, ticket, in_one, BLOCKS, stream);
        float *sums = down(y, WIDTH * sizeof *y);
        for (int i = 0; i < WIDTH; i++) {
            double expected = 0.0;
            for (int b = 0; b < BLOCKS; b++) expected += 2.0 * (double)x[b * WIDTH + WIDTH - 1 - i];
            near((double)sums[i], expected, 1e-5);
        }
        free(sums);
    }
    free(x);
}

CLAIM(layer_norm_to_bf16) {
    enum { ROWS = 20, D = 384 };
    float *x = normal(ROWS * D, 3), *gain = normal(D, 4), *bias = normal(D, 5);
    uint16_t *y = room(ROWS * D * sizeof *y);
    launch_layer_norm(up(x, ROWS * D * sizeof *x), up(gain, D * sizeof *gain), up(bias, D * sizeof *bias), y, ROWS, D,
                      1e-5f, stream);
    ups_bf16 *result = down(y, ROWS * D * sizeof *y);
    for (int row = 0; row < ROWS; row++) {
        double mean = 0.0, variance = 0.0;
        for (int i = 0; i < D; i++) mean += (double)x[row * D + i] / D;
        for (int i = 0; i < D; i++) variance += pow((double)x[row * D + i] - mean, 2.0) / D;
        for (int i = 0; i < D; i++) {
            double expected =
                ((double)x[row * D + i] - mean) / sqrt(variance + 1e-5) * (double)gain[i] + (double)bias[i];
            near((double)ups_f32_of_bf16(result[row * D + i]), expected, 4e-3 * fabs(expected) + 1e-6);
        }
    }
    free(x);
    free(gain);
    free(bias);
    free(result);
}

static double function_of(int row, float x, int i) {
    static const double coefficients[4] = {0.5, -1.25, 3.0, 0.125};
    double v = (double)x;
    float rounded;
    switch (row) {
    case 0:
        return exp(v);
    case 1:
        return erf(v);
    case 2:
        return tanh(v);
    case 3:
        return sin(v);
    case 4:
        return cos((double)(1000.0f * x));
    case 5:
        return log((double)(fabsf(x) + 1e-3f));
    case 6:
        return sqrt(fabs(v));
    case 7:
        return 1.0 / sqrt((double)(fabsf(x) + 1e-3f));
    case 8:
        return v / (fabs(v) + 1.0);
    case 9:
        return pow((double)(fabsf(x) + 1.0f), 2.5);
    case 10:
        return 0.5 * v * (1.0 + erf(v * sqrt(0.5)));
    case 11:
        return (double)ups_f32_of_bf16(ups_bf16_of_f32(x));
    case 12: {
        ups_f16 half;
        ups_f32_to_f16(&x, &half, 1);
        ups_f16_to_f32(&half, &rounded, 1);
        return (double)rounded;
    }
    case 13:
        return rint(v) + floor(v) + trunc(v) + (double)(int)x;
    case 14:
        return coefficients[i % 4] * v;
    default:
        return v / 3.0 + sqrt(fabs(v));
    }
}

CLAIM(functions_of_the_cuda_library) {
    enum { N = 1000 };
    float *x = normal(N, 6), *y = room(FUNCTIONS * N * sizeof *y);
    launch_functions(up(x, N * sizeof *x), y, N, stream);
    float *result = down(y, FUNCTIONS * N * sizeof *y);
    for (int row = 0; row < FUNCTIONS; row++) {
        for (int i = 0; i < N; i++) {
            double expected = function_of(row, x[i], i);
            near((double)result[row * N + i], expected, 1e-6 * (1.0 + fabs(expected)));
        }
    }
    free(x);
    free(result);
}

static float tf32(float x) { /* to the nearest that the hardware reads, so that both sides see the same */
    return ups_f32_of_bits((ups_bits_of_f32(x) + 0x1000) & 0xffffe000u);
}

static void check_product(product_kind kind) {
    enum { M = 48, N = 32, K = 64 };
    float *a = normal(M * K, 7), *b = normal(N * K, 8), *c = room(M * N * sizeof *c);
    uint16_t half_a[M * K], half_b[N * K];
    void *device_a, *device_b;
    if (kind == PRODUCT_TF32) {
        for (int i = 0; i < M * K; i++) a[i] = tf32(a[i]);
        for (int i = 0; i < N * K; i++) b[i] = tf32(b[i]);
        device_a = up(a, M * K * sizeof *a), device_b = up(b, N * K * sizeof *b);
    } else {
        bool f16 = kind == PRODUCT_F16;
        (f16 ? ups_f32_to_f16 : ups_f32_to_bf16)(a, half_a, M * K);
        (f16 ? ups_f32_to_f16 : ups_f32_to_bf16)(b, half_b, N * K);
        (f16 ? ups_f16_to_f32 : ups_bf16_to_f32)(half_a, a, M * K);
        (f16 ? ups_f16_to_f32 : ups_bf16_to_f32)(half_b, b, N * K);
        device_a = up(half_a, sizeof half_a), device_b = up(half_b, sizeof half_b);
    }
    launch_product(kind, device_a, device_b, c, M, N, K, stream);
    float *result = down(c, M * N * sizeof *c);
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double sum = 0.0;
            for (int k = 0; k < K; k++) {
                double from_b = (double)(kind == PRODUCT_BF16_TRANSPOSED ? b[k * N + j] : b[j * K + k]);
                sum += (double)a[i * K + k] * from_b;
            }
            near((double)result[i * N + j], sum, 1e-5 * (1.0 + fabs(sum)));
        }
    }
    free(a);
    free(b);
    free(result);
}

CLAIM(products_on_tensor_cores) {
    check_product(PRODUCT_BF16);
    check_product(PRODUCT_F16);
    check_product(PRODUCT_TF32);
    check_product(PRODUCT_BF16_TRANSPOSED);
}

CLAIM(asynchronous_copies_in_two_stages) {
    enum { N = 7 * 1024 };
    float *x = normal(N, 9), *y = room(N * sizeof *y);
    launch_staged(up(x, N * sizeof *x), y, 3.0f, N, stream);
    float *result = down(y, N * sizeof *y);
    for (int i = 0; i < N; i++) assert_true(result[i] == 3.0f * x[i]);
    free(x);
    free(result);
}

static uint64_t integer_of(int row, int32_t s, int32_t t) {
    uint32_t u = (uint32_t)s, v = (uint32_t)t, reversed = 0;
    uint64_t bytes = (uint64_t)v << 32 | u;
    for (int i = 0; i < 32; i++) reversed |= (u >> i & 1) << (31 - i);
    switch (row) {
    case 0:
        return (uint64_t)(int64_t)(s / t);
    case 1:
        return (uint64_t)(int64_t)(s % t);
    case 2:
        return u / v;
    case 3:
        return u % v;
    case 4:
        return (uint64_t)((int64_t)s * t);
    case 5:
        return (uint64_t)u * v;
    case 6:
        return (uint32_t)((uint64_t)u * v >> 32) ^ (uint32_t)((uint64_t)((int64_t)s * t) >> 32);
    case 7:
        return (uint32_t)(s >> (v & 31)) ^ (u << (v & 31));
    case 8:
        return (uint64_t)(int64_t)(int8_t)s + (uint64_t)(int64_t)(int16_t)t;
    case 9:
        return (uint64_t)(__builtin_popcount(u) * 100 + (u ? __builtin_clz(u) : 32));
    case 10:
        return (u & 0xff) | (v & 0xff) << 8 | (u >> 8 & 0xff) << 16 | (v >> 8 & 0xff) << 24;
    case 11:
        return (uint32_t)(bytes << 7 >> 32) ^ (uint32_t)(bytes >> 9);
    case 12:
        return (uint64_t)(int64_t)(s < t ? s : t) ^ (u > v ? u : v);
    case 13:
        return (u & v) ^ (~u | v);
    case 14:
        return reversed ^ (t < 0 ? 0 - v : v);
    default:
        return ((uint64_t)u << 32 | v) / ((uint64_t)v + 12345678901ull);
    }
}

static cublasLtMatrixLayout_t matrices(uint64_t rows, uint64_t columns, int32_t count, int64_t stride) {
    cublasLtMatrixLayout_t made;
    cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, rows, columns, (int64_t)rows);
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return made;
}

/* D (M, N) of each = A (M, K) B (K, N), column-major; B is one for all. */
CLAIM(products_in_batches_are_refused_where_they_do_not_fit) {
    enum { M = 3, N = 4, K = 5, COUNT = 3, A_STRIDE = 20, D_STRIDE = 16 };
    float *a = normal(COUNT * A_STRIDE, 1), *b = normal(K * N, 2), *d = room(COUNT * D_STRIDE * sizeof *d);
    float *a_there = up(a, COUNT * A_STRIDE * sizeof *a), *b_there = up(b, K * N * sizeof *b);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t of;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&of, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    const cublasLtMatmulPreferenceAttributes_t promises[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t promised = 32; /* later ones of A lie at multiples of 80 bytes */
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceSetAttribute(preference, promises[i], &promised, sizeof promised);
    cublasLtMatrixLayout_t la = matrices(M, K, COUNT, A_STRIDE), lb = matrices(K, N, COUNT, 0);
    cublasLtMatrixLayout_t ld = matrices(M, N, COUNT, D_STRIDE), fewer = matrices(K, N, COUNT - 1, 0);
    cublasLtMatrixLayout_t overlapping = matrices(M, N, COUNT, M * N - 1);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, of, la, fewer, ld, ld, preference, 1, &found, &count),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatmulAlgoGetHeuristic(handle, of, la, lb, overlapping, overlapping, preference, 1, &found, &count),
        CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, of, la, lb, ld, ld, preference, 1, &found, &count),
                     CUBLAS_STATUS_SUCCESS);
    const float one = 1.0f, zero = 0.0f;
    assert_int_equal(
        cublasLtMatmul(handle, of, &one, a_there, la, b_there, lb, &zero, d, ld, d, ld, &found.algo, NULL, 0, stream),
        CUBLAS_STATUS_NOT_SUPPORTED);
    promised = 16;
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceSetAttribute(preference, promises[i], &promised, sizeof promised);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, of, la, lb, ld, ld, preference, 1, &found, &count),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(
        cublasLtMatmul(handle, of, &one, a_there, la, b_there, lb, &zero, d, ld, d, ld, &found.algo, NULL, 0, stream),
        CUBLAS_STATUS_SUCCESS);
    float *made = down(d, COUNT * D_STRIDE * sizeof *d);
    for (int i = 0; i < COUNT * M * N; i++) {
        const int of_batch = i / (M * N), row = i % M, column = i / M % N;
        double sum = 0.0;
        for (int k = 0; k < K; k++) sum += (double)a[of_batch * A_STRIDE + k * M + row] * (double)b[column * K + k];
        near((double)made[of_batch * D_STRIDE + column * M + row], sum, 1e-5);
    }
    assert_true(isnan(made[D_STRIDE - 1])); /* between two results nothing is written */
    cublasLtMatrixLayout_t all[] = {la, lb, ld, fewer, overlapping};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cublasLtMatrixLayoutDestroy(all[i]);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(of);
    free(a), free(b), free(made);
}

static cublasLtMatrixLayout_t matrix(cudaDataType type, uint64_t rows, uint64_t columns) {
    cublasLtMatrixLayout_t made;
    cublasLtMatrixLayoutCreate(&made, type, rows, columns, (int64_t)rows);
    return made;
}

static void point_to(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute, const void *vector) {
    assert_int_equal(cublasLtMatmulDescSetAttribute(of, attribute, &vector, sizeof vector), CUBLAS_STATUS_SUCCESS);
}

/* One of FP8 with all that may lie beside its matrices. */
CLAIM(products_whose_biases_or_scales_lie_anywhere_are_refused) {
    enum { SIZE = 16 };
    static const cublasLtMatmulDescAttributes_t vectors[] = {
        CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER};
    enum { VECTORS = sizeof vectors / sizeof *vectors };
    const float one = 1.0f, zero = 0.0f;
    const cublasOperation_t turned = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    float *zeros = calloc(2 * SIZE * SIZE, sizeof *zeros);
    void *a = up(zeros, SIZE * SIZE), *b = up(zeros, SIZE * SIZE), *d = room(2 * SIZE * SIZE);
    char *vector = up(zeros, 4 * SIZE);
    cublasLtMatrixLayout_t operand = matrix(CUDA_R_8F_E4M3, SIZE, SIZE), result = matrix(CUDA_R_16BF, SIZE, SIZE);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t of;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&of, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(of, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
    cublasLtMatmulDescSetAttribute(of, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    for (int i = 0; i < VECTORS; i++) point_to(of, vectors[i], vector);
    cublasLtMatmulPreferenceCreate(&preference);
    assert_int_equal(
        cublasLtMatmulAlgoGetHeuristic(handle, of, operand, operand, result, result, preference, 1, &found, &count),
        CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i <= VECTORS; i++) { /* that one a little further; in the end none */
        if (i < VECTORS) point_to(of, vectors[i], vector + 8);
        assert_int_equal(cublasLtMatmul(handle, of, &one, a, operand, b, operand, &zero, d, result, d, result,
                                        &found.algo, NULL, 0, stream),
                         i < VECTORS ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
        if (i < VECTORS) point_to(of, vectors[i], vector + 16);
    }
    free(down(d, 2 * SIZE * SIZE));
    free(zeros);
    cublasLtMatrixLayoutDestroy(operand);
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(of);
}

/* D (M, N) = A (M, K) B^T of bf16 and, of B (N, K), the sums of its rows: column-major. */
CLAIM(sums_of_a_product_are_of_one_product_and_of_its_results_type) {
    enum { M = 16, N = 24, K = 32 };
    const float one = 1.0f, zero = 0.0f;
    const cublasOperation_t turned = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BGRADB;
    uint16_t a[M * K], b[N * K];
    for (int i = 0; i < M * K; i++) a[i] = 0x3f80;                                  /* 1 */
    for (int i = 0; i < N * K; i++) b[i] = (uint16_t)(i % N % 2 ? 0x4000 : 0x4040); /* 2 and 3 */
    void *a_there = up(a, sizeof a), *b_there = up(b, sizeof b);
    float *d = room(M * N * sizeof *d), *sums = room((N + 4) * sizeof *sums);
    cublasLtMatrixLayout_t la = matrix(CUDA_R_16BF, M, K), lb = matrix(CUDA_R_16BF, N, K),
                           ld = matrix(CUDA_R_32F, M, N);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t of;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&of, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(of, CUBLASLT_MATMUL_DESC_TRANSB, &turned, sizeof turned);
    cublasLtMatmulDescSetAttribute(of, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulPreferenceCreate(&preference);
    for (int32_t refused = 0; refused < 3; refused++) { /* for the type, then for a batch, then not */
        const int32_t type = refused == 0 ? (int32_t)CUDA_R_16BF : -1, batch = refused == 1 ? 2 : 1;
        const int64_t stride = M * N;
        cublasLtMatrixLayout_t all[] = {la, lb, ld};
        cublasLtMatmulDescSetAttribute(of, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
        for (int i = 0; i < 3; i++) {
            cublasLtMatrixLayoutSetAttribute(all[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
            cublasLtMatrixLayoutSetAttribute(all[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                             sizeof stride);
        }
        assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, of, la, lb, ld, ld, preference, 1, &found, &count),
                         refused == 0   ? CUBLAS_STATUS_NOT_SUPPORTED
                         : refused == 1 ? CUBLAS_STATUS_INVALID_VALUE
                                        : CUBLAS_STATUS_SUCCESS);
    }
    float *const places[] = {NULL, sums + 1, sums};
    const cublasStatus_t expected[] = {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_SUCCESS};
    for (int i = 0; i < 3; i++) {
        point_to(of, CUBLASLT_MATMUL_DESC_BIAS_POINTER, places[i]);
        assert_int_equal(cublasLtMatmul(handle, of, &one, a_there, la, b_there, lb, &zero, d, ld, d, ld, &found.algo,
                                        NULL, 0, stream),
                         expected[i]);
    }
    float *made = down(sums, (N + 4) * sizeof *sums);
    for (int i = 0; i < N; i++) assert_true(made[i] == (float)(K * (i % 2 ? 2 : 3)));
    assert_true(isnan(made[N])); /* no further */
    free(made);
    free(down(d, M * N * sizeof *d));
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(of);
}

CLAIM(integers_wrap_divide_and_shift_as_in_c) {
    enum { N = 777 };
    int32_t a[N], b[N];
    ups_random random = ups_random_stream(1, UPS_RANDOM_TEST, 10);
    for (int i = 0; i < N; i++) {
        a[i] = (int32_t)(uint32_t)ups_random_below(random, (uint64_t)(2 * i), (uint64_t)1 << 32);
        b[i] = (int32_t)(uint32_t)ups_random_below(random, (uint64_t)(2 * i + 1), (uint64_t)1 << (i % 32 + 1)) | 2;
    }
    uint64_t *y = room(OPERATIONS * N * sizeof *y);
    launch_integers(up(a, sizeof a), up(b, sizeof b), y, N, stream);
    uint64_t *result = down(y, OPERATIONS * N * sizeof *y);
    for (int row = 0; row < OPERATIONS; row++) {
        for (int i = 0; i < N; i++) {
            if (result[row * N + i] == integer_of(row, a[i], b[i])) continue;
            fail_msg("operation %d of %d and %d: %#llx; %#llx was expected", row, a[i], b[i],
                     (unsigned long long)result[row * N + i], (unsigned long long)integer_of(row, a[i], b[i]));
        }
    }
    free(result);
}

CLAIM(votes_shuffles_and_counts) {
    uint32_t *y = room(WARP_RESULTS * 64 * sizeof *y);
    launch_warp(y, stream);
    uint32_t *result = down(y, WARP_RESULTS * 64 * sizeof *y);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t lane = t % 32, ballot = 0;
        for (uint32_t l = 0; l < 32; l++) ballot |= (uint32_t)((t - lane + l) % 3 == 0) << l;
        const uint32_t expected[] = {ballot,
                                     (t >= 32) + 2 * (t < 32),
                                     lane + 5 < 32 ? t + 5 : t,
                                     lane % 8 >= 3 ? t - 3 : t,
                                     t / 16 * 16 + 9,
                                     t ^ 6,
                                     13,
                                     3};
        for (size_t row = 0; row < sizeof expected / sizeof *expected; row++)
            assert_int_equal(result[row * 64 + t], expected[row]);
        assert_int_equal(result[9 * 64 + t], (lane < 16 ? 2 : 3) * (t ^ 1));
    }
    assert_int_equal(result[8 * 64], 63 * 64 / 2);
    assert_int_equal(result[8 * 64 + 1], 63);
    free(result);
}

/* ---- streams and graphs ---- */

static void all_are(const float *device, float value) {
    enum { N = 300 };
    float *host = down(device, N * sizeof *host);
    for (int i = 0; i < N; i++) assert_true(host[i] == value);
    free(host);
}

CLAIM(events_order_two_streams) {
    enum { N = 300 };
    float *x = room(N * sizeof *x);
    cudaEvent_t there, back;
    works(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    works(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
    works(cudaMemsetAsync(x, 0, N * sizeof *x, stream));
    for (int i = 0; i < 3; i++) { /* x = (x + 1) 3 */
        launch_add(x, 1.0f, N, stream);
        works(cudaEventRecord(there, stream));
        works(cudaStreamWaitEvent(other, there, 0));
        launch_scale(x, 3.0f, N, other);
        works(cudaEventRecord(back, other));
        works(cudaStreamWaitEvent(stream, back, 0));
    }
    all_are(x, 39.0f);
    while (cudaEventQuery(back) != cudaSuccess) continue;
    works(cudaEventSynchronize(there));
    works(cudaEventDestroy(there));
    works(cudaEventDestroy(back));
}

/* x = (x + 1) 3 and y = (y + 2) 5 side by side, then both joined; replayed. */
CLAIM(graphs_keep_their_edges) {
    enum { N = 300 };
    float *x = room(N * sizeof *x), *y = room(N * sizeof *y);
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    works(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    works(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    works(cudaMemsetAsync(x, 0, N * sizeof *x, stream));
    works(cudaMemsetAsync(y, 0, N * sizeof *y, stream));
    works(cudaStreamSynchronize(stream));
    works(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    works(cudaEventRecord(fork, stream));
    works(cudaStreamWaitEvent(other, fork, 0));
    launch_add(y, 2.0f, N, other);
    launch_add(x, 1.0f, N, stream);
    launch_scale(y, 5.0f, N, other);
    launch_scale(x, 3.0f, N, stream);
    works(cudaEventRecord(join, other));
    works(cudaStreamWaitEvent(stream, join, 0));
    works(cudaMemcpyAsync(x, y, N / 2 * sizeof *x, cudaMemcpyDeviceToDevice, stream));
    works(cudaMemcpyAsync(y, x, N / 2 * sizeof *x, cudaMemcpyDeviceToDevice, stream));
    works(cudaStreamEndCapture(stream, &graph));
    all_are(x, 0.0f); /* nothing has run */
    works(cudaGraphInstantiate(&exec, graph, 0));
    works(cudaGraphDestroy(graph));
    works(cudaGraphLaunch(exec, stream));
    works(cudaGraphLaunch(exec, stream));
    float *first = down(x, N * sizeof *x), *second = down(y, N * sizeof *y);
    for (int i = 0; i < N; i++) {
        assert_true(first[i] == (i < N / 2 ? 60.0f : 12.0f));
        assert_true(second[i] == 60.0f);
    }
    works(cudaGraphExecDestroy(exec));
    works(cudaEventDestroy(fork));
    works(cudaEventDestroy(join));
    free(first);
    free(second);
}

CLAIM(a_capture_refuses_what_a_card_does) {
    enum { N = 64 };
    float *x = room(N * sizeof *x), host[N];
    void *memory;
    cudaGraph_t graph;
    cudaEvent_t before, during;
    works(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    works(cudaEventCreateWithFlags(&during, cudaEventDisableTiming));
    works(cudaEventRecord(before, stream));

    works(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fails(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    fails(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

    works(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fails(cudaMalloc(&memory, 64), cudaErrorStreamCaptureUnsupported);
    fails(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream), cudaErrorStreamCaptureUnsupported);
    fails(cudaStreamWaitEvent(stream, before, 0), cudaErrorStreamCaptureIsolation);
    fails(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

    works(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    works(cudaEventRecord(during, stream));
    works(cudaStreamWaitEvent(other, during, 0));
    fails(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    launch_add(x, 1.0f, N, other);
    fails(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);

    fails(cudaStreamWaitEvent(stream, during, 0), cudaErrorCapturedEvent);
    fails(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    works(cudaStreamSynchronize(other));
    works(cudaEventDestroy(before));
    works(cudaEventDestroy(during));
}

/* ---- memory ---- */

CLAIM(pinned_memory_is_copied_both_ways) {
    enum { N = 3000 };
    float *from, *to, *x = room(N * sizeof *x);
    works(cudaHostAlloc((void **)&from, N * sizeof *from, cudaHostAllocDefault));
    works(cudaHostAlloc((void **)&to, N * sizeof *to, cudaHostAllocDefault));
    for (int i = 0; i < N; i++) from[i] = (float)i;
    works(cudaMemcpyAsync(x, from, N * sizeof *x, cudaMemcpyHostToDevice, stream));
    launch_add(x, 1.0f, N, stream);
    works(cudaMemcpyAsync(to, x, N * sizeof *x, cudaMemcpyDeviceToHost, stream));
    works(cudaStreamSynchronize(stream));
    for (int i = 0; i < N; i++) assert_true(to[i] == (float)i + 1.0f);
    from[0] = 5.0f; /* it may be filled again */
    works(cudaFreeHost(from));
    works(cudaFreeHost(to));
}

CLAIM(copies_and_memory_that_make_no_sense_are_refused) {
    float *x = room(64), host[16];
    size_t available, total;
    void *memory;
    works(cudaMemGetInfo(&available, &total));
    fails(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
    fails(cudaMemcpyAsync(x, host, 64, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
    fails(cudaMemcpyAsync(x, x, 64, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
    fails(cudaMemsetAsync(host, 0, 64, stream), cudaErrorInvalidValue);
    fails(cudaMemsetAsync(x, 0, 64, NULL), cudaErrorInvalidResourceHandle);
    fails(cudaFree(x + 1), cudaErrorInvalidValue);
    works(cudaFree(x));
    fails(cudaFree(x), cudaErrorInvalidValue);
    fails(cudaFreeHost(host), cudaErrorInvalidValue);
}

CLAIM(launches_beyond_a_cards_limits_are_refused) {
    enum { TOO_WIDE = 60000 / sizeof(float) }; /* bytes of shared memory, for which nobody asked */
    float *x = room(64);
    launch_layer_norm(x, x, x, room(64), 1, TOO_WIDE, 1e-5f, stream);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    launch_reduce(x, x, 0, 16, stream);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    works(cudaPeekAtLastError());
}

/* What <<<>>> becomes: two calls, between which another thread may make its own. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

static void *begin_a_launch(void *context) {
    __cudaPushCallConfiguration((dim3){7, 1, 1}, (dim3){64, 1, 1}, 16, other);
    return NULL;
}

CLAIM(launches_of_two_threads_keep_their_own_grids) {
    pthread_t thread;
    dim3 grid, block;
    size_t shared;
    cudaStream_t of;
    __cudaPushCallConfiguration((dim3){3, 2, 1}, (dim3){32, 1, 1}, 48, stream);
    assert_int_equal(pthread_create(&thread, NULL, begin_a_launch, NULL), 0);
    pthread_join(thread, NULL);
    works(__cudaPopCallConfiguration(&grid, &block, &shared, &of));
    assert_true(grid.x == 3 && grid.y == 2 && block.x == 32 && shared == 48 && of == stream);
}

int main(void) {
    emulated_may_be_refused = true;
    return run_claims(open_streams, NULL, NULL);
}
