/* Products in FP8 on a card, emulated but for the program that tools/package makes: rounding beside NVIDIA's own
 * functions for the host, scales from step to step, and layers beside float64 of the same rounded operands. */
#include "base/half.h"
#include "base/random.h"
#include "model/cuda/fp8/fp8.h"
#include "model/cuda/products/product.h"
#include "model/devices/devices.h"
#include "model/update_channel.h"
#include "tests/model/claims.h"
#include <cuda_fp8.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ups_device *device;
static ups_update_channel *channel;

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    ok(device->class->allocate(device, bytes, &memory, &failure));
    return memory;
}

static void *uploaded(const void *host, size_t bytes) {
    void *memory = device_memory(bytes);
    ok(device->class->upload(device, memory, host, bytes, &failure));
    ok(device->class->synchronize(device, &failure));
    return memory;
}

static void download(void *host, const void *from, size_t bytes) {
    ok(device->class->download(device, host, from, bytes, &failure));
}

static void release(void *memory) {
    device->class->release(device, memory);
}

static void begin_step(int64_t step) {
    ok(ups_update_give(channel, &(ups_update_input){.step = step}, &failure));
}

static uint8_t by_nvidia(float x, ups_dtype dtype) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, dtype == UPS_E4M3 ? __NV_E4M3 : __NV_E5M2);
}

static double value_of(uint8_t bits, ups_dtype dtype) {
    const __half_raw half = __nv_cvt_fp8_to_halfraw(bits, dtype == UPS_E4M3 ? __NV_E4M3 : __NV_E5M2);
    float single;
    ups_f16_to_f32(&half.x, &single, 1);
    return (double)single;
}

static bool is_nan(uint8_t bits, ups_dtype dtype) {
    return isnan(value_of(bits, dtype));
}

/* A scale that stays, since it is of the step that the update says. */
static ups_cuda_fp8_state settled(float scale) {
    return (ups_cuda_fp8_state){.step = 1.0f, .scale = scale, .inverse = 1.0f / scale};
}

/* Casts (rows, columns) with this scale, as it lies and transposed; returns the state after it. */
static ups_cuda_fp8_state cast(const void *host, ups_dtype from, int64_t rows, int64_t columns, ups_dtype dtype,
                               const ups_cuda_fp8_state *state, uint8_t *as_it_lies, uint8_t *transposed) {
    const size_t count = (size_t)(rows * columns);
    ups_tensor x = {.data = uploaded(host, count * ups_dtype_size(from)), .dtype = from, .shape = {2, {rows, columns}}};
    ups_cuda_fp8_cast wanted = {.from = &x,
                                .rows = rows,
                                .columns = columns,
                                .dtype = dtype,
                                .state = uploaded(state, sizeof *state),
                                .to = device_memory(count),
                                .transposed = device_memory(count)};
    ups_cuda_fp8_state after;
    ok(ups_cuda_fp8_begin(device, &wanted, 1, ups_update_memory(channel), &failure));
    ok(ups_cuda_fp8_run(device, &wanted, &failure));
    download(as_it_lies, wanted.to, count);
    download(transposed, wanted.transposed, count);
    download(&after, wanted.state, sizeof after);
    release(x.data);
    release(wanted.state);
    release(wanted.to);
    release(wanted.transposed);
    return after;
}

static void check_rounding(const float *values, const void *host, ups_dtype from, int64_t rows, int64_t columns,
                           ups_dtype dtype, float scale) {
    const ups_cuda_fp8_state state = settled(scale);
    const size_t count = (size_t)(rows * columns);
    uint8_t *as_it_lies = malloc(count), *transposed = malloc(count);
    float most = 0.0f;
    begin_step(0);
    const ups_cuda_fp8_state after = cast(host, from, rows, columns, dtype, &state, as_it_lies, transposed);
    for (int64_t i = 0; i < rows * columns; i++) {
        const uint8_t expected = by_nvidia(values[i] * scale, dtype);
        const bool finite = isfinite(values[i]);
        if (finite) most = fmaxf(most, fabsf(values[i]));
        if (finite ? as_it_lies[i] != expected : !is_nan(as_it_lies[i], dtype))
            fail_msg("%s of %.9g, scaled by %g: 0x%02x; 0x%02x was expected", ups_dtype_name(dtype), (double)values[i],
                     (double)scale, as_it_lies[i], expected);
        assert_int_equal(transposed[i % columns * rows + i / columns], as_it_lies[i]);
    }
    assert_true(after.now == most && after.scale == state.scale && after.step == state.step);
    free(as_it_lies);
    free(transposed);
}

CLAIM(rounding_is_that_of_nvidia_for_every_bfloat16) {
    enum { ROWS = 1024, COLUMNS = 64, COUNT = ROWS * COLUMNS };
    ups_bf16 *bits = malloc(COUNT * sizeof *bits);
    float *values = malloc(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++) bits[i] = (ups_bf16)i;
    ups_bf16_to_f32(bits, values, COUNT);
    for (int dtype = UPS_E4M3; dtype <= UPS_E5M2; dtype++)
        check_rounding(values, bits, UPS_BF16, ROWS, COLUMNS, (ups_dtype)dtype, 1.0f);
    free(bits);
    free(values);
}

/* Tiles that matrices fill in part, among them. */
CLAIM(rounding_is_that_of_nvidia_for_float32_of_all_magnitudes) {
    static const int64_t shapes[][2] = {{16, 16}, {144, 80}, {272, 208}, {128, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t count = shapes[s][0] * shapes[s][1];
        float *values = malloc((size_t)count * sizeof *values);
        const ups_random random = ups_random_stream(3, UPS_RANDOM_TEST, (uint32_t)s);
        for (int64_t i = 0; i < count; i++) {
            const int power = (int)(i % 40) - 24; /* below the smallest number up to beyond the largest */
            values[i] = ldexpf((float)ups_random_normal(random, (uint64_t)i), power);
        }
        for (int dtype = UPS_E4M3; dtype <= UPS_E5M2; dtype++) {
            check_rounding(values, values, UPS_F32, shapes[s][0], shapes[s][1], (ups_dtype)dtype, 1.0f);
            check_rounding(values, values, UPS_F32, shapes[s][0], shapes[s][1], (ups_dtype)dtype, 0x1p-9f);
        }
        free(values);
    }
}

/* ---- scales --------------------------------------------------------------------------------------------------- */

/* The largest power of two by which `most` stays within the format. */
static float scale_for(float most, ups_dtype dtype) {
    const float limit = dtype == UPS_E4M3 ? 448.0f : 57344.0f;
    return most == 0.0f ? 1.0f : exp2f(floorf(log2f(limit / most)));
}

/* One step whose largest magnitude is `most`. */
static ups_cuda_fp8_state step_of(const ups_cuda_fp8_state *state, int64_t step, float most, uint8_t *largest) {
    enum { SIZE = 16 };
    float values[SIZE * SIZE] = {0};
    uint8_t as_it_lies[SIZE * SIZE], transposed[SIZE * SIZE];
    values[37] = -most;
    begin_step(step);
    const ups_cuda_fp8_state after = cast(values, UPS_F32, SIZE, SIZE, UPS_E4M3, state, as_it_lies, transposed);
    *largest = as_it_lies[37];
    return after;
}

CLAIM(scales_follow_the_steps_before) {
    static const float magnitudes[] = {3.0f,  3.5f,  100.0f, 0.0f,  1e-3f, 1e-3f, 1e-3f, 1e-3f, 1e-3f, 1e-3f,
                                       1e-3f, 1e-3f, 1e-3f,  1e-3f, 1e-3f, 1e-3f, 1e-3f, 1e-3f, 7e5f,  1.0f};
    enum { STEPS = sizeof magnitudes / sizeof *magnitudes };
    ups_cuda_fp8_state s = {0};
    bool forgot = false;
    for (int step = 0; step < STEPS; step++) {
        uint8_t largest;
        float known = 0.0f;
        for (int before = step - 1; before >= 0 && before >= step - UPS_CUDA_FP8_BEFORE; before--)
            known = fmaxf(known, magnitudes[before]);
        if (known == 0.0f) known = magnitudes[step]; /* of the operand itself */
        s = step_of(&s, step, magnitudes[step], &largest);
        assert_true(s.scale == scale_for(known, UPS_E4M3) && s.inverse * s.scale == 1.0f);
        assert_int_equal(largest, by_nvidia(-magnitudes[step] * s.scale, UPS_E4M3));
        assert_true(s.now == magnitudes[step]);
        forgot = forgot || s.scale == scale_for(1e-3f, UPS_E4M3);
    }
    assert_true(forgot);
}

/* In a step nothing changes a scale, so that what is computed again is the same. */
CLAIM(a_scale_stays_for_a_step) {
    ups_cuda_fp8_state s = {0};
    uint8_t largest;
    s = step_of(&s, 0, 2.0f, &largest);
    const float scale = s.scale;
    s = step_of(&s, 0, 1000.0f, &largest); /* a later micro-batch */
    assert_true(s.scale == scale && s.now == 1000.0f && largest == by_nvidia(-1e6f, UPS_E4M3));
    s = step_of(&s, 0, 1.0f, &largest);
    assert_true(s.scale == scale && s.now == 1000.0f);
    s = step_of(&s, 1, 1.0f, &largest);
    assert_true(s.scale == scale_for(1000.0f, UPS_E4M3) && s.before[0] == 1000.0f);
}

CLAIM(what_is_not_finite_decides_no_scale) {
    ups_cuda_fp8_state s = {0};
    uint8_t largest;
    s = step_of(&s, 0, INFINITY, &largest);
    assert_true(s.scale == 1.0f && s.now == 0.0f && is_nan(largest, UPS_E4M3));
    s = step_of(&s, 1, NAN, &largest);
    assert_true(s.scale == 1.0f && s.now == 0.0f && is_nan(largest, UPS_E4M3));
    s = step_of(&s, 2, 1e-40f, &largest); /* so small that no scale brings it up */
    assert_true(s.scale == 0x1p60f && s.inverse == 0x1p-60f);
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

enum { ROWS = 48, IN = 80, OUT = 32 };

/* A layer's tensors on the device, all float32, and its kernel. */
typedef struct layer {
    ups_op_attributes attributes;
    ups_op_call call;
    ups_kernel kernel;
    int64_t rows;
} layer;

static ups_tensor filled(int64_t rows, int64_t columns, uint32_t stream, float spread) {
    const size_t count = (size_t)(rows * columns);
    float *host = malloc(count * sizeof *host);
    ups_random_fill_normal(ups_random_stream(5, UPS_RANDOM_TEST, stream), spread, host, (int64_t)count);
    ups_tensor made = {.data = uploaded(host, count * sizeof *host), .shape = {2, {rows, columns}}};
    free(host);
    return made;
}

static ups_status make_layer(layer *l, int64_t rows, bool fp8, ups_error *error) {
    *l = (layer){.attributes = {.fp8 = fp8, .output_f32 = true}, .rows = rows};
    l->call = (ups_op_call){.kind = UPS_OP_LINEAR,
                            .attributes = &l->attributes,
                            .input_count = 4,
                            .training = true,
                            .update = ups_update_memory(channel)};
    l->call.inputs[0] = filled(rows, IN, 1, 2.0f);
    l->call.inputs[1] = filled(OUT, IN, 2, 0.1f);
    l->call.inputs[3] = filled(UPS_FP8_OPERANDS, UPS_FP8_NUMBERS, 3, 0.0f);
    l->call.output = filled(rows, OUT, 4, 1.0f);
    l->call.output_gradient = filled(rows, OUT, 5, 1e-6f);
    l->call.input_gradients[0] = filled(rows, IN, 6, 1.0f);
    l->call.input_gradients[1] = filled(OUT, IN, 7, 1.0f);
    UPS_TRY(device->class->kernel(device, &l->call, true, &l->kernel, error));
    l->call.state = l->kernel.state;
    l->call.workspace = device_memory(l->kernel.workspace_bytes);
    return UPS_OK;
}

static void destroy_layer(layer *l) {
    void *const memory[] = {l->call.inputs[0].data, l->call.inputs[1].data,         l->call.inputs[3].data,
                            l->call.output.data,    l->call.output_gradient.data,   l->call.input_gradients[0].data,
                            l->call.workspace,      l->call.input_gradients[1].data};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        if (memory[i]) release(memory[i]);
    }
    if (l->kernel.release) l->kernel.release(l->kernel.state);
}

static void run_layer(layer *l) {
    ok(l->kernel.forward(device, &l->call, &failure));
    ok(l->kernel.backward(device, &l->call, &failure));
}

static float *host_of(const ups_tensor *tensor) {
    const size_t bytes = (size_t)ups_shape_elements(tensor->shape) * sizeof(float);
    float *host = malloc(bytes);
    download(host, tensor->data, bytes);
    return host;
}

/* What a product sees of it. */
static double *rounded(const ups_tensor *tensor, ups_dtype dtype) {
    const int64_t count = ups_shape_elements(tensor->shape);
    float *host = host_of(tensor), most = 0.0f;
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) most = fmaxf(most, fabsf(host[i]));
    const float scale = scale_for(most, dtype);
    for (int64_t i = 0; i < count; i++) values[i] = value_of(by_nvidia(host[i] * scale, dtype), dtype) / (double)scale;
    free(host);
    return values;
}

/* Of the largest number. Tensor cores keep some thirteen bits of a sum of FP8 products; the emulator adds in float32.
 */
#ifdef UPS_TEST_ON_CARD
#define PRODUCT_ERROR 2e-3
#else
#define PRODUCT_ERROR 1e-6
#endif

/* c (m, n) = Σ a[i sa + k ka] b[j sb + k kb] */
static void compare_product(const ups_tensor *made, int64_t depth, const double *a, int64_t a_row, int64_t a_deep,
                            const double *b, int64_t b_row, int64_t b_deep) {
    float *host = host_of(made);
    const int64_t columns = made->shape.size[1];
    double largest = 0.0, worst = 0.0;
    for (int64_t i = 0; i < made->shape.size[0]; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < depth; k++) sum += a[i * a_row + k * a_deep] * b[j * b_row + k * b_deep];
            const double error = fabs(sum - (double)host[i * columns + j]);
            assert_true(isfinite(error)); /* fmax leaves a NaN out */
            largest = fmax(largest, fabs(sum));
            worst = fmax(worst, error);
        }
    }
    assert_true(largest > 0.0 && worst <= PRODUCT_ERROR * largest);
    free(host);
}

CLAIM(a_layer_multiplies_the_rounded_operands) {
    layer l;
    begin_step(0);
    ok(make_layer(&l, ROWS, true, &failure));
    run_layer(&l);
    double *x = rounded(&l.call.inputs[0], UPS_E4M3), *w = rounded(&l.call.inputs[1], UPS_E4M3),
           *dy = rounded(&l.call.output_gradient, UPS_E5M2);
    compare_product(&l.call.output, IN, x, IN, 1, w, IN, 1);
    compare_product(&l.call.input_gradients[0], OUT, dy, OUT, 1, w, 1, IN);
    compare_product(&l.call.input_gradients[1], ROWS, dy, 1, OUT, x, 1, IN);
    free(x);
    free(w);
    free(dy);
    destroy_layer(&l);
}

/* The library multiplies by scales that lie so, and by no others. */
CLAIM(scales_begin_at_multiples_of_16_bytes) {
    const ups_cuda_matrix square = {.rows = ROWS, .columns = ROWS, .dtype = UPS_E4M3};
    ups_cuda_matrix result = square;
    ups_cuda_product product = {0};
    float *scales = device_memory(8 * sizeof *scales);
    result.dtype = UPS_F32;
    ok(ups_cuda_product_make(device, &product, square, true, square, false, result, (ups_cuda_product_options){0},
                             &failure));
    ok(ups_cuda_product_scale(&product, scales, scales + 4, &failure));
    refused(ups_cuda_product_scale(&product, scales, scales + 2, &failure), UPS_ERR_ARGUMENT, "multiples of 16 bytes");
    refused(ups_cuda_product_scale(&product, scales + 1, scales, &failure), UPS_ERR_ARGUMENT, "multiples of 16 bytes");
    ups_cuda_product_release(&product);
    release(scales);
}

/* In evaluation, and with rows that FP8 has no products for. */
CLAIM(elsewhere_a_layer_is_what_it_is_without) {
    for (int odd = 0; odd < 2; odd++) {
        layer with, without;
        ok(make_layer(&with, ROWS + odd, true, &failure));
        ok(make_layer(&without, ROWS + odd, false, &failure));
        with.call.training = odd;
        run_layer(&with);
        run_layer(&without);
        const ups_tensor *pairs[][2] = {{&with.call.output, &without.call.output},
                                        {&with.call.input_gradients[0], &without.call.input_gradients[0]},
                                        {&with.call.input_gradients[1], &without.call.input_gradients[1]}};
        for (int i = 0; i < 3; i++) {
            float *a = host_of(pairs[i][0]), *b = host_of(pairs[i][1]);
            assert_memory_equal(a, b, (size_t)ups_shape_elements(pairs[i][0]->shape) * sizeof *a);
            free(a);
            free(b);
        }
        destroy_layer(&with);
        destroy_layer(&without);
    }
}

#ifndef UPS_TEST_ON_CARD
CLAIM(a_card_that_does_not_multiply_it_is_named) {
    ups_device *usual = device, *older = NULL;
    layer l;
    setenv("SIMT_CAPABILITY", "8.6", 1);
    ok(ups_device_open(&(ups_device_options){.name = "cuda"}, &older, &failure));
    device = older;
    assert_int_equal(make_layer(&l, ROWS, true, &failure), UPS_ERR_UNSUPPORTED);
    assert_non_null(strstr(failure.message, "compute capability 8.6; FP8 is multiplied from 8.9"));
    destroy_layer(&l);
    device = usual;
    unsetenv("SIMT_CAPABILITY");
    ups_device_close(older);
}
#endif

int main(void) {
    setenv("UPS_CUDA_CHOICES", "", 1);
    if (ups_device_open(&(ups_device_options){.name = "cuda"}, &device, &failure) != UPS_OK ||
        ups_update_open(device, &channel, &failure) != UPS_OK) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    const int result = run_claims(NULL, NULL, NULL);
    ups_update_close(channel);
    ups_device_close(device);
    return result;
}
