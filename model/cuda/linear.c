/* Linear by cuBLASLt: y = x W^T + b.  Backward: dx = dy W, dW = dy^T x (float32), db = column sums of dy. With GELU,
 * h = x W^T + b is saved and y = GELU(h) is a kernel of our own, since the library's epilogue is the tanh
 * approximation.
 *
 * The library's matrices are column-major: a row-major (r, c) is its (c, r), and what is computed is the transpose of
 * each product. The operands' dtype is that of W; x and dy are converted to it in the workspace where they differ, and
 * a result that the library has not for such operands (half of float32) is made in float32 there and converted.
 *
 * A bias is added by the library's epilogue, which wants it in the result's dtype: a copy of it is made first, as short
 * as one row. */
#include "model/cuda/host.h"
#include <stdlib.h>

enum {
    ALIGNMENT = 64,            /* of parts of the workspace */
    PROMISED = 16,             /* bytes that the library may count on operands being aligned to: an arena's are to 64 */
    LIBRARY_BYTES = 32u << 20, /* of workspace for the library: what cuBLAS takes on Hopper */
};

typedef struct matrix {
    int64_t rows, columns; /* row-major */
    ups_dtype dtype;
} matrix;

/* One product, D (+)= op(A) op(B), in the library's terms. */
typedef struct product {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    matrix result; /* in the dtype that the library makes */
} product;

typedef struct plan {
    product forward, input, weight;
    ups_dtype operands; /* of the weight, which backward may not be given */
    bool has_backward;
    size_t cast_x, cast_dy, results, bias, partials, bytes; /* offsets; the library's workspace is at 0 */
} plan;

static cudaDataType type_of(ups_dtype dtype) {
    return dtype == UPS_BF16 ? CUDA_R_16BF : dtype == UPS_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static size_t bytes_of(matrix m) {
    size_t bytes = (size_t)(m.rows * m.columns) * ups_dtype_size(m.dtype);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static matrix matrix_of(const ups_tensor *tensor) {
    return (matrix){ups_shape_rows(tensor->shape), ups_shape_last(tensor->shape), tensor->dtype};
}

/* The saved value is what GELU is taken of. */
static bool has_gelu(const ups_op_call *call) {
    return call->saved[0].shape.rank > 0;
}

/* ---- products -----------------------------------------------------------------------------------------------------
 */

static ups_status check(cublasStatus_t status, const char *doing, ups_error *error) {
    if (status == CUBLAS_STATUS_SUCCESS) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "cuBLASLt: %s failed: %s", doing, cublasLtGetStatusName(status));
}

static ups_status make_layout(cublasLtMatrixLayout_t *layout, matrix m, ups_error *error) {
    return check(cublasLtMatrixLayoutCreate(layout, type_of(m.dtype), (uint64_t)m.columns, (uint64_t)m.rows, m.columns),
                 "describing a matrix", error);
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
    const void *promised = bias ? (const void *)(uintptr_t)PROMISED : NULL;
    if (status == CUBLAS_STATUS_SUCCESS && bias)
        status =
            cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &promised, sizeof promised);
    return check(status, "describing a product", error);
}

static ups_status choose_algorithm(ups_device *device, product *p, ups_error *error) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    size_t workspace = LIBRARY_BYTES;
    uint32_t promised = PROMISED, reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    UPS_TRY(check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm", error));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    /* Partial sums of a split product are added in float32, never in the result's half precision. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &promised, sizeof promised);
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
static matrix result_of(matrix wanted, ups_dtype operands) {
    if (operands == UPS_F32) wanted.dtype = UPS_F32;
    return wanted;
}

static ups_status make_product(ups_device *device, product *p, matrix a, bool transpose_a, matrix b, bool transpose_b,
                               matrix result, bool bias, ups_error *error) {
    p->result = result_of(result, a.dtype);
    UPS_TRY(check(cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product",
                  error));
    UPS_TRY(set_description(p->description, transpose_a, transpose_b, bias, error));
    UPS_TRY(make_layout(&p->a, a, error));
    UPS_TRY(make_layout(&p->b, b, error));
    UPS_TRY(make_layout(&p->d, p->result, error));
    return choose_algorithm(device, p, error);
}

static void release_product(product *p) {
    if (p->description) cublasLtMatmulDescDestroy(p->description);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
}

static bool is_aligned(const void *memory) {
    return (uintptr_t)memory % PROMISED == 0;
}

/* `to` (+)= the product; through the workspace where the library has no such result. */
static ups_status run_product(ups_device *device, const ups_op_call *call, const product *p, const void *a,
                              const void *b, const void *bias, const ups_tensor *to, bool accumulate,
                              ups_error *error) {
    const plan *whole = call->state;
    char *workspace = call->workspace;
    ups_tensor made = *to;
    bool direct = to->dtype == p->result.dtype;
    if (!direct) made.data = workspace + whole->results, made.dtype = p->result.dtype;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(bias) || !is_aligned(made.data))
        return ups_fail(error, UPS_ERR_ARGUMENT, "linear: tensors begin at multiples of %d bytes on CUDA", PROMISED);
    const float one = 1.0f, add = direct && accumulate ? 1.0f : 0.0f;
    if (bias) { /* the description is the plan's: a call at a time issues */
        UPS_TRY(
            check(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                  "a product", error));
    }
    UPS_TRY(check(cublasLtMatmul(ups_cuda_blas(device), p->description, &one, a, p->a, b, p->b, &add, made.data, p->d,
                                 made.data, p->d, &p->algorithm, workspace, LIBRARY_BYTES, ups_cuda_stream(device)),
                  "a product", error));
    return direct ? UPS_OK : ups_cuda_convert(device, &made, to, accumulate, error);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------
 */

static void release_plan(void *state) {
    plan *made = state;
    release_product(&made->forward);
    release_product(&made->input);
    release_product(&made->weight);
    free(made);
}

static ups_status make_products(ups_device *device, const ups_op_call *call, plan *made, ups_error *error) {
    matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]), y = matrix_of(&call->output), dx = x;
    bool bias = call->inputs[2].shape.rank > 0;
    if (has_gelu(call)) y.dtype = call->saved[0].dtype;
    x.dtype = w.dtype;
    UPS_TRY(make_product(device, &made->forward, w, true, x, false, y, bias, error));
    if (!made->has_backward) return UPS_OK;
    matrix dy = y, dw = w;
    dy.dtype = w.dtype;
    dw.dtype = UPS_F32;
    UPS_TRY(make_product(device, &made->input, w, false, dy, false, dx, false, error));
    return make_product(device, &made->weight, x, false, dy, true, dw, false, error);
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                          ups_error *error) {
    plan *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the plan of a product");
    made->has_backward = backward;
    made->operands = call->inputs[1].dtype;
    ups_status status = make_products(device, call, made, error);
    if (status != UPS_OK) {
        release_plan(made);
        return status;
    }
    matrix x = matrix_of(&call->inputs[0]), y = matrix_of(&call->output);
    x.dtype = y.dtype = UPS_F32; /* room for either */
    size_t largest = bytes_of(x) > bytes_of(y) ? bytes_of(x) : bytes_of(y);
    made->cast_x = LIBRARY_BYTES;
    made->cast_dy = made->cast_x + bytes_of(x);
    made->results = made->cast_dy + (backward ? bytes_of(y) : 0);
    made->bias = made->results + largest;
    made->partials = made->bias + bytes_of((matrix){1, y.columns, UPS_F32});
    made->bytes = made->partials;
    if (backward) made->bytes += (size_t)ups_cuda_column_partials(y.rows, y.columns) * sizeof(float);
    kernel->workspace_bytes = made->bytes;
    kernel->state = made;
    kernel->release = release_plan;
    return UPS_OK;
}

/* ---- the op --------------------------------------------------------------------------------------------------------
 */

/* The tensor's data in `dtype`, copied to `copy` where it is in another. */
static ups_status in_dtype(ups_device *device, const ups_tensor *tensor, ups_dtype dtype, void *copy, const void **data,
                           ups_error *error) {
    *data = tensor->data;
    if (tensor->dtype == dtype || !tensor->data) return UPS_OK;
    ups_tensor to = {.data = copy, .dtype = dtype, .shape = tensor->shape};
    *data = copy;
    return ups_cuda_convert(device, tensor, &to, false, error);
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *made = has_gelu(call) ? &call->saved[0] : &call->output;
    char *workspace = call->workspace;
    const void *x, *bias;
    UPS_TRY(in_dtype(device, &call->inputs[0], p->operands, workspace + p->cast_x, &x, error));
    UPS_TRY(in_dtype(device, &call->inputs[2], p->forward.result.dtype, workspace + p->bias, &bias, error));
    UPS_TRY(run_product(device, call, &p->forward, call->inputs[1].data, x, bias, made, false, error));
    return has_gelu(call) ? ups_cuda_gelu_rows(device, made, &call->output, error) : UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *dx = &call->input_gradients[0], *dw = &call->input_gradients[1], *db = &call->input_gradients[2];
    ups_dtype operands = p->operands;
    char *workspace = call->workspace;
    ups_tensor dh = call->output_gradient;
    const void *dy, *x;
    if (has_gelu(call)) {
        dh.data = workspace + p->cast_dy;
        dh.dtype = operands;
        UPS_TRY(ups_cuda_gelu_gradient(device, &call->saved[0], &call->output_gradient, &dh, error));
    }
    UPS_TRY(in_dtype(device, &dh, operands, workspace + p->cast_dy, &dy, error));
    if (dx->data)
        UPS_TRY(run_product(device, call, &p->input, call->inputs[1].data, dy, NULL, dx, call->accumulate[0], error));
    if (dw->data) {
        UPS_TRY(in_dtype(device, &call->inputs[0], operands, workspace + p->cast_x, &x, error));
        UPS_TRY(run_product(device, call, &p->weight, x, dy, NULL, dw, call->accumulate[1], error));
    }
    if (!db->data) return UPS_OK;
    return ups_cuda_sum_rows(device, &dh, (float *)(void *)(workspace + p->partials), db->data, call->accumulate[2],
                             error);
}

const ups_cuda_kernel ups_cuda_linear = {forward, backward, prepare};
const ups_cuda_kernel ups_cuda_linear_gelu = {forward, backward, prepare};
