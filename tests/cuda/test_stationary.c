/* Products whose rows rest in shared memory (products/stationary.h), against float64: of few and many rows of tiles, in
 * shares and rounds of blocks, to the last row and column, with sums that are stored and added. */
#include "base/half.h"
#include "model/cuda/products/stationary.h"
#include "model/device.h"
#include "model/devices/devices.h"
#include "tests/model/claims.h"
#include <math.h>

typedef struct shape {
    int64_t rows, columns, terms;
} shape;

/* A tensor of the device in half precision, and what it holds. */
typedef struct tensor {
    void *data;
    float *values;
    int64_t count;
} tensor;

static ups_device *device;
static ups_dtype dtype;
static uint32_t drawn = 1;

static float next_random(void) {
    drawn = drawn * 1664525u + 1013904223u;
    return (float)(drawn >> 8) / (float)(1 << 23) - 1.0f;
}

static void to_half(const float *from, int64_t count, void *to) {
    if (dtype == UPS_BF16)
        ups_f32_to_bf16(from, to, (size_t)count);
    else
        ups_f32_to_f16(from, to, (size_t)count);
}

static void from_half(const void *from, int64_t count, float *to) {
    if (dtype == UPS_BF16)
        ups_bf16_to_f32(from, to, (size_t)count);
    else
        ups_f16_to_f32(from, to, (size_t)count);
}

/* Numbers from -scale to scale, as the dtype has them. */
static tensor given(int64_t count, float scale) {
    tensor t = {.values = malloc((size_t)count * sizeof(float)), .count = count};
    uint16_t *half = malloc((size_t)count * sizeof *half);
    for (int64_t i = 0; i < count; i++) t.values[i] = scale * next_random();
    to_half(t.values, count, half);
    from_half(half, count, t.values);
    ok(device->class->allocate(device, (size_t)count * sizeof *half, &t.data, &failure));
    ok(device->class->upload(device, t.data, half, (size_t)count * sizeof *half, &failure));
    ok(device->class->synchronize(device, &failure));
    free(half);
    return t;
}

/* What kernels are to make, which is something else before. */
static tensor wanted(int64_t count) {
    return given(count, 100.0f);
}

static void read_back(tensor *t) {
    uint16_t *half = malloc((size_t)t->count * sizeof *half);
    ok(device->class->download(device, half, t->data, (size_t)t->count * sizeof *half, &failure));
    from_half(half, t->count, t->values);
    free(half);
}

static void release(tensor *t) {
    device->class->release(device, t->data);
    free(t->values);
}

/* Rounding to the dtype, of what is as large as `size`. */
static double rounding(double size) {
    return (dtype == UPS_BF16 ? 1.0 / 256.0 : 1.0 / 2048.0) * size;
}

/* Sums are of float32, in whatever order; each is rounded once. */
static void assert_near(float actual, double expected, double size, const char *what, int64_t at) {
    if (fabs((double)actual - expected) <= rounding(fabs(expected)) + 1e-5 * size) return;
    fail_msg("%s: element %lld is %.9g; %.9g was expected", what, (long long)at, (double)actual, expected);
}

/* a b + bias, in float64; `size`: of what is added. */
static double product_of(const tensor *a, const tensor *b, const tensor *bias, shape s, bool turned, int64_t at,
                         double *size) {
    const int64_t row = at / s.columns, column = at % s.columns;
    double sum = bias ? (double)bias->values[column] : 0.0;
    *size = fabs(sum);
    for (int64_t k = 0; k < s.terms; k++) {
        const int64_t of_b = turned ? k * s.columns + column : column * s.terms + k;
        const double term = (double)a->values[row * s.terms + k] * (double)b->values[of_b];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double gelu_of(double x) {
    return 0.5 * x * erfc(-x * sqrt(0.5));
}

static double slope_of(double x) {
    return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
}

/* More rows of tiles than processors, fewer than the processors may share, rows that end in the middle of a tile. */
static const shape shapes[] = {{1, 128, 256},   {130, 384, 384},  {64, 128, 512},
                               {500, 256, 320}, {1300, 128, 448}, {700, 640, 256}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_product(shape s, bool turned, bool with_bias, bool with_gelu) {
    tensor a = given(s.rows * s.terms, 1.0f), b = given(s.columns * s.terms, 2.0f / sqrtf((float)s.terms));
    tensor bias = given(s.columns, 1.0f), d = wanted(s.rows * s.columns), y = wanted(s.rows * s.columns);
    const ups_cuda_stationary product = {.kind = with_gelu ? UPS_CUDA_STATIONARY_GELU : UPS_CUDA_STATIONARY_PRODUCT,
                                         .dtype = dtype,
                                         .turned = turned,
                                         .rows = s.rows,
                                         .columns = s.columns,
                                         .terms = s.terms};
    const ups_cuda_stationary_tensors of = {
        .a = a.data, .b = b.data, .bias = with_bias ? bias.data : NULL, .d = d.data, .y = y.data};
    assert_true(ups_cuda_stationary_fits(device, &product));
    ok(ups_cuda_stationary_run(device, &product, &of, &failure));
    read_back(&d);
    read_back(&y);
    for (int64_t i = 0; i < d.count; i++) {
        double size, expected = product_of(&a, &b, with_bias ? &bias : NULL, s, turned, i, &size);
        assert_near(d.values[i], expected, size, "product", i);
        if (with_gelu) assert_near(y.values[i], gelu_of((double)d.values[i]), 0.1, "GELU", i);
    }
    tensor *const all[] = {&a, &b, &bias, &d, &y};
    for (int i = 0; i < 5; i++) release(all[i]);
}

CLAIM(products_are_those_of_float64) {
    for (dtype = UPS_F16; dtype <= UPS_BF16; dtype++) {
        for (int i = 0; i < SHAPES; i++) {
            check_product(shapes[i], false, i % 2 == 0, false);
            check_product(shapes[i], true, i % 2, false);
        }
    }
}

CLAIM(gelu_is_taken_of_what_was_rounded) {
    for (dtype = UPS_F16; dtype <= UPS_BF16; dtype++) {
        for (int i = 0; i < SHAPES; i++) check_product(shapes[i], false, i % 2, true);
    }
}

static void check_gradient(shape s, bool with_sums, bool accumulate) {
    tensor a = given(s.rows * s.terms, 1.0f), b = given(s.columns * s.terms, 2.0f / sqrtf((float)s.terms));
    tensor h = given(s.rows * s.columns, 3.0f), d = wanted(s.rows * s.columns);
    const ups_cuda_stationary product = {.kind = UPS_CUDA_STATIONARY_GELU_GRADIENT,
                                         .dtype = dtype,
                                         .turned = true,
                                         .rows = s.rows,
                                         .columns = s.columns,
                                         .terms = s.terms};
    const size_t bytes = (size_t)s.columns * sizeof(float);
    float *sums = malloc(bytes);
    void *of_device, *partials;
    for (int64_t c = 0; c < s.columns; c++) sums[c] = 1.5f;
    ok(device->class->allocate(device, bytes, &of_device, &failure));
    ok(device->class->allocate(device, (size_t)ups_cuda_stationary_partials(&product) * sizeof(float), &partials,
                               &failure));
    ok(device->class->upload(device, of_device, sums, bytes, &failure));
    const ups_cuda_stationary_tensors of = {.a = a.data,
                                            .b = b.data,
                                            .d = d.data,
                                            .h = h.data,
                                            .sums = with_sums ? of_device : NULL,
                                            .partials = partials,
                                            .accumulate = accumulate};
    ok(ups_cuda_stationary_run(device, &product, &of, &failure));
    read_back(&d);
    ok(device->class->download(device, sums, of_device, bytes, &failure));
    for (int64_t i = 0; i < d.count; i++) {
        double size, dy = product_of(&a, &b, NULL, s, true, i, &size), slope = slope_of((double)h.values[i]);
        assert_near(d.values[i], dy * slope, size + 1e5 * rounding(fabs(dy * slope)), "gradient", i);
    }
    for (int64_t c = 0; c < s.columns; c++) {
        if (!with_sums) {
            assert_true(sums[c] == 1.5f);
            continue;
        }
        double sum = accumulate ? 1.5 : 0.0, size = fabs(sum);
        for (int64_t row = 0; row < s.rows; row++) {
            sum += (double)d.values[row * s.columns + c];
            size += fabs((double)d.values[row * s.columns + c]);
        }
        if (fabs((double)sums[c] - sum) > 1e-6 * size)
            fail_msg("sum of column %lld: %g, not %g", (long long)c, (double)sums[c], sum);
    }
    device->class->release(device, of_device);
    device->class->release(device, partials);
    free(sums);
    tensor *const all[] = {&a, &b, &h, &d};
    for (int i = 0; i < 4; i++) release(all[i]);
}

CLAIM(gradients_of_gelu_are_those_of_float64_and_their_columns_are_summed) {
    for (dtype = UPS_F16; dtype <= UPS_BF16; dtype++) {
        for (int i = 0; i < SHAPES; i++) check_gradient(shapes[i], true, i % 2);
        check_gradient(shapes[1], false, false);
    }
}

CLAIM(what_has_no_kernel_does_not_fit) {
    const ups_cuda_stationary right = {.dtype = UPS_BF16, .rows = 10, .columns = 128, .terms = 256};
    ups_cuda_stationary wrong[7];
    for (int i = 0; i < 7; i++) wrong[i] = right;
    wrong[0].dtype = UPS_F32;
    wrong[1].rows = 0;
    wrong[2].columns = 192;
    wrong[3].terms = 192;
    wrong[4].terms = 576;
    wrong[5].terms = 288;
    wrong[6].columns = 0;
    assert_true(ups_cuda_stationary_fits(device, &right));
    for (int i = 0; i < 7; i++) assert_false(ups_cuda_stationary_fits(device, &wrong[i]));
}

CLAIM(memory_that_is_aligned_less_is_refused) {
    const ups_cuda_stationary product = {.dtype = UPS_BF16, .rows = 10, .columns = 128, .terms = 256};
    ups_cuda_stationary_tensors of = {.a = (void *)4096, .b = (void *)4096, .d = (void *)4104};
    refused(ups_cuda_stationary_run(device, &product, &of, &failure), UPS_ERR_ARGUMENT, "multiples of 16 bytes");
}

static int open_device(void **unused) {
    ups_device_options options = {.name = "cuda"};
    return ups_device_open(&options, &device, &failure) == UPS_OK ? 0 : -1;
}

static int close_device(void **unused) {
    ups_device_close(device);
    return 0;
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
