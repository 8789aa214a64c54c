/* Linear by cuBLASLt: y = x W^T + b.  Backward: dx = dy W, dW = dy^T x (float32), db = column sums of dy. With GELU,
 * h = x W^T + b is saved and y = GELU(h) is a kernel of our own, since the library's epilogue is the tanh
 * approximation; its gradient's kernel can make db by the way.
 *
 * The operands' dtype is that of W; x and dy are converted to it in the workspace where they differ, and a result that
 * the library has not for such operands (half of float32) is made in float32 there and converted.
 *
 * A bias is added by the library's epilogue, which wants it in a dtype of its own: the weights' copy in the compute
 * dtype, which the optimizer keeps, or one that is made first. db may come out of an epilogue as well, of dW's product
 * (product.h). It is always the sum of dy as it is given, in float32: where the product reads a rounded dy, or db is
 * added to what is there, which the epilogue does not, a kernel of our own makes it. With GELU it is made as without:
 * where activations are recomputed the two are apart, and gradients have the same bits.
 *
 * Layers of few features may be multiplied by kernels of our own, where a card finds them faster, which take GELU, or
 * its gradient, of sums in registers (products/stationary.h). For the latter a linear with GELU and the linear that
 * reads it are a pair in backward: the second's dx is the first's dy, and only dh is written. db is then summed tile by
 * tile, in another order than without; all other bits are those of the two alone, if they are multiplied by these
 * kernels too.
 *
 * In FP8, while training, operands are rounded in the workspace before each product (fp8/fp8.h), transposed where sums
 * run down their columns. Evaluation, and shapes that FP8 has no products for, are as without it. */
#include "model/cuda/fp8/fp8.h"
#include "model/cuda/products/product.h"
#include "model/cuda/products/stationary.h"
#include <stdlib.h>

enum { ALIGNMENT = 64 /* of parts of the workspace */ };

typedef struct products {
    ups_cuda_product forward, input, weight;
} products;

/* What runs by kernels of our own; rows 0: it does not. */
typedef struct stationary_products {
    ups_cuda_stationary forward, input;
    ups_cuda_stationary pair; /* input, as the second of a pair: the first's GELU gradient comes with it */
} stationary_products;

typedef struct plan {
    products own, fp8;
    stationary_products stationary;
    ups_dtype operands; /* of the weight, which backward may not be given */
    bool has_backward, has_fp8;
    size_t cast_x, cast_dy, results, bias, partials; /* offsets; the library's workspace is at 0 */
    size_t fp8_x, fp8_weight, fp8_dy, fp8_dy_turned; /* x and the weight: transposed in backward */
    size_t bytes;
} plan;

static size_t bytes_of(ups_cuda_matrix m) {
    size_t bytes = (size_t)(m.rows * m.columns) * ups_dtype_size(m.dtype);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ups_cuda_matrix matrix_of(const ups_tensor *tensor) {
    return (ups_cuda_matrix){
        .rows = ups_shape_rows(tensor->shape), .columns = ups_shape_last(tensor->shape), .dtype = tensor->dtype};
}

/* The saved value is what GELU is taken of. */
static bool has_gelu(const ups_op_call *call) {
    return call->saved[0].shape.rank > 0;
}

/* `to` (+)= the product; through the workspace where the library has no such result. */
static ups_status run_product(ups_device *device, const ups_op_call *call, const ups_cuda_product *p, const void *a,
                              const void *b, const void *bias, const ups_tensor *to, bool accumulate,
                              ups_error *error) {
    const plan *whole = call->state;
    char *workspace = call->workspace;
    ups_tensor made = *to;
    bool direct = to->dtype == p->result.dtype;
    if (!direct) made.data = workspace + whole->results, made.dtype = p->result.dtype;
    UPS_TRY(ups_cuda_product_run(device, p, a, b, bias, made.data, direct && accumulate, workspace, error));
    return direct ? UPS_OK : ups_cuda_convert(device, &made, to, accumulate, error);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------
 */

static void release_products(products *p) {
    ups_cuda_product_release(&p->forward);
    ups_cuda_product_release(&p->input);
    ups_cuda_product_release(&p->weight);
}

static void release_plan(void *state) {
    plan *made = state;
    release_products(&made->own);
    release_products(&made->fp8);
    free(made);
}

/* What is mapped to what: all in the dtypes of the tensors. */
static ups_cuda_matrix result_of(const ups_op_call *call) {
    ups_cuda_matrix y = matrix_of(&call->output);
    if (has_gelu(call)) y.dtype = call->saved[0].dtype;
    return y;
}

/* The product for dW may make db: it reads dy as it is given, or GELU's gradient as that has rounded it. */
static bool reads_whole_gradients(const ups_op_call *call) {
    const ups_dtype operands = call->inputs[1].dtype;
    const bool rounds = call->attributes->fp8 || (call->attributes->tf32 && operands == UPS_F32);
    return !rounds && (has_gelu(call) || call->output.dtype == operands);
}

static ups_status make_products(ups_device *device, const ups_op_call *call, plan *made, ups_error *error) {
    ups_cuda_matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]), y = result_of(call), dx = x;
    ups_cuda_product_options options = {.bias = call->inputs[2].shape.rank > 0, .tf32 = call->attributes->tf32};
    products *own = &made->own;
    x.dtype = w.dtype;
    UPS_TRY(ups_cuda_product_make(device, &own->forward, w, true, x, false, y, options, error));
    if (!made->has_backward) return UPS_OK;
    options.bias = false;
    ups_cuda_matrix dy = y, dw = w;
    dy.dtype = w.dtype;
    dw.dtype = UPS_F32;
    UPS_TRY(ups_cuda_product_make(device, &own->input, w, false, dy, false, dx, options, error));
    options.sums = call->inputs[2].shape.rank > 0 && reads_whole_gradients(call);
    return ups_cuda_product_make(device, &own->weight, x, false, dy, true, dw, options, error);
}

/* A kernel of our own for what `library` computes, where it is the one to take. */
static void choose_stationary(ups_device *device, ups_cuda_stationary wanted, const ups_cuda_product *library,
                              bool bias, ups_cuda_stationary *taken) {
    if (ups_cuda_takes_stationary(device, &wanted, library, bias)) *taken = wanted;
}

/* Of tensors that are in the dtype of the operands: nothing is converted on the way. */
static void choose_stationary_products(ups_device *device, const ups_op_call *call, plan *made) {
    const ups_dtype dtype = made->operands;
    const ups_cuda_matrix w = matrix_of(&call->inputs[1]);
    const int64_t rows = matrix_of(&call->inputs[0]).rows;
    const bool gelu = has_gelu(call), bias = call->inputs[2].shape.rank > 0;
    if (made->has_fp8 || call->inputs[0].dtype != dtype || call->output.dtype != dtype) return;
    if (gelu && call->saved[0].dtype != dtype) return;
    ups_cuda_stationary wanted = {.kind = gelu ? UPS_CUDA_STATIONARY_GELU : UPS_CUDA_STATIONARY_PRODUCT,
                                  .dtype = dtype,
                                  .rows = rows,
                                  .columns = w.rows,
                                  .terms = w.columns};
    choose_stationary(device, wanted, &made->own.forward, bias, &made->stationary.forward);
    if (!made->has_backward || call->input_gradients[0].dtype != dtype) return;
    wanted = (ups_cuda_stationary){.kind = UPS_CUDA_STATIONARY_PRODUCT,
                                   .dtype = dtype,
                                   .turned = true,
                                   .rows = rows,
                                   .columns = w.columns,
                                   .terms = w.rows};
    choose_stationary(device, wanted, &made->own.input, false, &made->stationary.input);
    wanted.kind = UPS_CUDA_STATIONARY_GELU_GRADIENT;
    if (call->paired) choose_stationary(device, wanted, &made->own.input, false, &made->stationary.pair);
}

static ups_cuda_matrix turned(ups_cuda_matrix m) {
    return (ups_cuda_matrix){.rows = m.columns, .columns = m.rows, .dtype = m.dtype};
}

/* Sums run along the rows of both operands: weights, inputs and gradients lie as the product wants them. */
static ups_status make_fp8_products(ups_device *device, const ups_op_call *call, plan *made, ups_error *error) {
    ups_cuda_matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]), y = result_of(call);
    ups_cuda_matrix dx = x, dw = w, dy = y;
    ups_cuda_product_options options = {.bias = call->inputs[2].shape.rank > 0, .fast = true};
    products *fp8 = &made->fp8;
    w.dtype = x.dtype = UPS_E4M3;
    dy.dtype = UPS_E5M2;
    dw.dtype = UPS_F32;
    UPS_TRY(ups_cuda_product_make(device, &fp8->forward, w, true, x, false, y, options, error));
    if (!made->has_backward) return UPS_OK;
    options = (ups_cuda_product_options){0};
    UPS_TRY(ups_cuda_product_make(device, &fp8->input, turned(w), true, dy, false, dx, options, error));
    return ups_cuda_product_make(device, &fp8->weight, turned(x), true, turned(dy), false, dw, options, error);
}

static bool fits_fp8(const ups_op_call *call) {
    const ups_cuda_matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]);
    return call->attributes->fp8 && x.rows % UPS_FP8_MULTIPLE == 0 && w.rows % UPS_FP8_MULTIPLE == 0 &&
           w.columns % UPS_FP8_MULTIPLE == 0;
}

/* Offsets in the workspace. */
static void place(const ups_op_call *call, plan *made) {
    const bool backward = made->has_backward;
    ups_cuda_matrix w = matrix_of(&call->inputs[1]), x = matrix_of(&call->inputs[0]), y = matrix_of(&call->output);
    x.dtype = y.dtype = UPS_F32; /* room for any */
    const size_t largest = bytes_of(x) > bytes_of(y) ? bytes_of(x) : bytes_of(y);
    made->cast_x = UPS_CUDA_LIBRARY_BYTES;
    made->cast_dy = made->cast_x + bytes_of(x);
    made->results = made->cast_dy + (backward ? bytes_of(y) : 0);
    made->bias = made->results + largest;
    made->partials = made->bias + bytes_of((ups_cuda_matrix){.rows = 1, .columns = y.columns, .dtype = UPS_F32});
    made->bytes = made->partials;
    if (backward) {
        const int64_t own = ups_cuda_column_partials(y.rows, y.columns);
        const ups_cuda_stationary pair = {.rows = x.rows, .columns = call->paired ? x.columns : 0};
        const int64_t of_pair = ups_cuda_stationary_partials(&pair); /* of the first's db */
        made->bytes += (size_t)(own > of_pair ? own : of_pair) * sizeof(float);
    }
    if (!made->has_fp8) return;
    w.dtype = x.dtype = y.dtype = UPS_E4M3;
    made->fp8_x = (made->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->fp8_weight = made->fp8_x + bytes_of(x);
    made->fp8_dy = made->fp8_weight + bytes_of(w);
    made->fp8_dy_turned = made->fp8_dy + (backward ? bytes_of(y) : 0);
    made->bytes = made->fp8_dy_turned + (backward ? bytes_of(y) : 0);
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                          ups_error *error) {
    plan *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the plan of a product");
    made->has_backward = backward;
    made->has_fp8 = fits_fp8(call);
    made->operands = call->inputs[1].dtype;
    ups_status status = made->has_fp8 ? ups_cuda_has_fp8(device, error) : UPS_OK;
    if (status == UPS_OK) status = make_products(device, call, made, error);
    if (status == UPS_OK && made->has_fp8) status = make_fp8_products(device, call, made, error);
    if (status != UPS_OK) {
        release_plan(made);
        return status;
    }
    choose_stationary_products(device, call, made);
    place(call, made);
    if (!made->stationary.pair.rows) kernel->pair_backward = NULL; /* the two run by themselves */
    kernel->workspace_bytes = made->bytes;
    kernel->state = made;
    kernel->release = release_plan;
    return UPS_OK;
}

/* ---- operands in FP8 -----------------------------------------------------------------------------------------------
 */

static bool runs_in_fp8(const ups_op_call *call) {
    const plan *p = call->state;
    return p->has_fp8 && call->training && call->update;
}

static ups_cuda_fp8_state *state_of(const ups_op_call *call, ups_fp8_operand operand) {
    return (ups_cuda_fp8_state *)call->inputs[3].data + operand;
}

static ups_cuda_fp8_cast cast_of(const ups_op_call *call, const ups_tensor *from, ups_fp8_operand operand) {
    return (ups_cuda_fp8_cast){.from = from,
                               .rows = ups_shape_rows(from->shape),
                               .columns = ups_shape_last(from->shape),
                               .dtype = operand == UPS_FP8_GRADIENT ? UPS_E5M2 : UPS_E4M3,
                               .state = state_of(call, operand)};
}

/* The product's a is of x or the weight, its b of any. */
static ups_status scale(const ups_op_call *call, const ups_cuda_product *p, ups_fp8_operand a, ups_fp8_operand b,
                        ups_error *error) {
    return ups_cuda_product_scale(p, &state_of(call, a)->inverse, &state_of(call, b)->inverse, error);
}

static ups_status cast_forward(ups_device *device, const ups_op_call *call, const void **x, const void **w,
                               ups_error *error) {
    const plan *p = call->state;
    ups_cuda_fp8_cast casts[] = {cast_of(call, &call->inputs[0], UPS_FP8_X),
                                 cast_of(call, &call->inputs[1], UPS_FP8_WEIGHT)};
    *x = casts[0].to = (char *)call->workspace + p->fp8_x;
    *w = casts[1].to = (char *)call->workspace + p->fp8_weight;
    UPS_TRY(ups_cuda_fp8_begin(device, casts, 2, call->update, error));
    UPS_TRY(ups_cuda_fp8_run(device, &casts[0], error));
    UPS_TRY(ups_cuda_fp8_run(device, &casts[1], error));
    return scale(call, &p->fp8.forward, UPS_FP8_WEIGHT, UPS_FP8_X, error);
}

/* dx = dy W, and dW = dy^T x, of operands that forward has decided the scales of. */
static ups_status backward_in_fp8(ups_device *device, const ups_op_call *call, const ups_tensor *dh, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *dx = &call->input_gradients[0], *dw = &call->input_gradients[1];
    char *workspace = call->workspace;
    if (!dx->data && !dw->data) return UPS_OK;
    ups_cuda_fp8_cast dy = cast_of(call, dh, UPS_FP8_GRADIENT);
    if (dx->data) dy.to = workspace + p->fp8_dy;
    if (dw->data) dy.transposed = workspace + p->fp8_dy_turned;
    UPS_TRY(ups_cuda_fp8_begin(device, &dy, 1, call->update, error));
    UPS_TRY(ups_cuda_fp8_run(device, &dy, error));
    if (dx->data) {
        ups_cuda_fp8_cast w = cast_of(call, &call->inputs[1], UPS_FP8_WEIGHT);
        w.transposed = workspace + p->fp8_weight;
        UPS_TRY(ups_cuda_fp8_run(device, &w, error));
        UPS_TRY(scale(call, &p->fp8.input, UPS_FP8_WEIGHT, UPS_FP8_GRADIENT, error));
        UPS_TRY(run_product(device, call, &p->fp8.input, w.transposed, dy.to, NULL, dx, call->accumulate[0], error));
    }
    if (!dw->data) return UPS_OK;
    ups_cuda_fp8_cast x = cast_of(call, &call->inputs[0], UPS_FP8_X);
    x.transposed = workspace + p->fp8_x;
    UPS_TRY(ups_cuda_fp8_run(device, &x, error));
    UPS_TRY(scale(call, &p->fp8.weight, UPS_FP8_X, UPS_FP8_GRADIENT, error));
    return run_product(device, call, &p->fp8.weight, x.transposed, dy.transposed, NULL, dw, call->accumulate[1], error);
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

static ups_status bias_in_dtype(ups_device *device, const ups_op_call *call, ups_dtype dtype, void *copy,
                                const void **bias, ups_error *error) {
    *bias = call->copies[2];
    if (*bias && call->copies_dtype == dtype) return UPS_OK;
    return in_dtype(device, &call->inputs[2], dtype, copy, bias, error);
}

/* The same by a kernel of our own. */
static ups_status forward_stationary(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *made = has_gelu(call) ? &call->saved[0] : &call->output;
    ups_cuda_stationary_tensors of = {
        .a = call->inputs[0].data, .b = call->inputs[1].data, .d = made->data, .y = call->output.data};
    UPS_TRY(bias_in_dtype(device, call, p->operands, (char *)call->workspace + p->bias, &of.bias, error));
    return ups_cuda_stationary_run(device, &p->stationary.forward, &of, error);
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    if (p->stationary.forward.rows > 0) return forward_stationary(device, call, error);
    const ups_cuda_product *product = runs_in_fp8(call) ? &p->fp8.forward : &p->own.forward;
    const ups_tensor *made = has_gelu(call) ? &call->saved[0] : &call->output;
    char *workspace = call->workspace;
    const void *x, *w = call->inputs[1].data, *bias;
    if (runs_in_fp8(call))
        UPS_TRY(cast_forward(device, call, &x, &w, error));
    else
        UPS_TRY(in_dtype(device, &call->inputs[0], p->operands, workspace + p->cast_x, &x, error));
    UPS_TRY(bias_in_dtype(device, call, ups_cuda_product_bias(product), workspace + p->bias, &bias, error));
    UPS_TRY(run_product(device, call, product, w, x, bias, made, false, error));
    return has_gelu(call) ? ups_cuda_gelu_rows(device, made, &call->output, error) : UPS_OK;
}

/* db is made with dW. */
static bool sums_with_weight(const ups_op_call *call, const ups_tensor *dh) {
    const plan *p = call->state;
    const ups_tensor *dw = &call->input_gradients[1], *db = &call->input_gradients[2];
    return ups_cuda_product_has_sums(&p->own.weight) && dw->data && dw->dtype == UPS_F32 && db->data &&
           !call->accumulate[2] && dh->dtype == p->operands && !runs_in_fp8(call);
}

static ups_status backward_as_it_is(ups_device *device, const ups_op_call *call, const ups_tensor *dh,
                                    ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *dx = &call->input_gradients[0], *dw = &call->input_gradients[1];
    char *workspace = call->workspace;
    const void *dy, *x;
    UPS_TRY(in_dtype(device, dh, p->operands, workspace + p->cast_dy, &dy, error));
    if (dx->data && p->stationary.input.rows > 0 && !call->accumulate[0]) {
        const ups_cuda_stationary_tensors of = {.a = dy, .b = call->inputs[1].data, .d = dx->data};
        UPS_TRY(ups_cuda_stationary_run(device, &p->stationary.input, &of, error));
    } else if (dx->data) {
        UPS_TRY(
            run_product(device, call, &p->own.input, call->inputs[1].data, dy, NULL, dx, call->accumulate[0], error));
    }
    if (!dw->data) return UPS_OK;
    UPS_TRY(in_dtype(device, &call->inputs[0], p->operands, workspace + p->cast_x, &x, error));
    if (!sums_with_weight(call, dh))
        return run_product(device, call, &p->own.weight, x, dy, NULL, dw, call->accumulate[1], error);
    return ups_cuda_product_run_with_sums(device, &p->own.weight, x, dy, call->input_gradients[2].data, dw->data,
                                          call->accumulate[1], workspace, error);
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const plan *p = call->state;
    const ups_tensor *db = &call->input_gradients[2];
    char *workspace = call->workspace;
    float *partials = (float *)(void *)(workspace + p->partials);
    ups_tensor dh = call->output_gradient;
    if (has_gelu(call)) {
        dh.data = workspace + p->cast_dy;
        dh.dtype = p->operands;
        UPS_TRY(ups_cuda_gelu_gradient(device, &call->saved[0], &call->output_gradient, &dh, partials,
                                       sums_with_weight(call, &dh) ? NULL : db->data, call->accumulate[2], error));
    }
    UPS_TRY((runs_in_fp8(call) ? backward_in_fp8 : backward_as_it_is)(device, call, &dh, error));
    if (!db->data || has_gelu(call) || sums_with_weight(call, &dh)) return UPS_OK;
    return ups_cuda_sum_rows(device, &dh, partials, db->data, call->accumulate[2], error);
}

/* first: y = GELU(h); second: reads y, and alone does. */
static ups_status pair_backward(ups_device *device, const ups_op_call *first, const ups_op_call *second,
                                ups_error *error) {
    const plan *of_first = first->state, *of_second = second->state;
    const ups_tensor *between = &second->input_gradients[0], *db = &first->input_gradients[2];
    ups_op_call rest = *second;
    if (!between->data || !of_second->stationary.pair.rows || of_first->has_fp8) {
        UPS_TRY(backward(device, second, error));
        return backward(device, first, error);
    }
    rest.input_gradients[0].data = NULL;
    UPS_TRY(backward(device, &rest, error));
    const ups_cuda_stationary_tensors of = {
        .a = second->output_gradient.data,
        .b = second->inputs[1].data,
        .d = between->data, /* dh in the place of dy */
        .h = first->saved[0].data,
        .sums = sums_with_weight(first, between) ? NULL : db->data,
        .partials = (float *)(void *)((char *)second->workspace + of_second->partials),
        .accumulate = first->accumulate[2],
    };
    UPS_TRY(ups_cuda_stationary_run(device, &of_second->stationary.pair, &of, error));
    return backward_as_it_is(device, first, between, error);
}

const ups_cuda_kernel ups_cuda_linear = {
    .forward = forward, .backward = backward, .prepare = prepare, .pair_backward = pair_backward};
const ups_cuda_kernel ups_cuda_linear_gelu = {.forward = forward, .backward = backward, .prepare = prepare};
