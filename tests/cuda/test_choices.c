/* cuBLASLt's algorithms: the fastest is found once, kept in a file, and taken from there. The emulator has three for
 * each product, of which the second takes the least time. The same of sums that a product makes by the way; kernels
 * take no time of the emulator's clock. */
#include "base/files.h"
#include "base/half.h"
#include "model/cuda/products/product.h"
#include "model/devices/devices.h"
#include "model/differentiate.h"
#include "model/ops.h"
#include "model/step/step.h"
#include "tests/cuda/runtime/runtime.h"
#include "tests/model/claims.h"
#include <string.h>
#include <unistd.h>

enum { M = 8, N = 16, K = 32, FIRST = 3, FASTEST = 1 /* milliseconds */ };

static ups_device *open_device(const char *choices) {
    ups_device *device = NULL;
    setenv("UPS_CUDA_CHOICES", choices, 1);
    ok(ups_device_open(&(ups_device_options){.name = "cuda"}, &device, &failure));
    return device;
}

/* Milliseconds of the clock that a product of (M, K) and (K, N) takes; *trying: those of choosing its algorithm. */
static double time_of(ups_device *device, bool tf32, double *trying) {
    const ups_cuda_matrix a = {.rows = M, .columns = K}, b = {.rows = K, .columns = N}, d = {.rows = M, .columns = N};
    const double before = emulated_clock;
    ups_cuda_product product = {0};
    /* in the library's terms the transpose: D' = B' A' */
    ok(ups_cuda_product_make(device, &product, b, false, a, false, d, (ups_cuda_product_options){.tf32 = tf32},
                             &failure));
    *trying = emulated_clock - before;
    void *memory[4];
    const size_t bytes[] = {M * K * sizeof(float), K * N * sizeof(float), M * N * sizeof(float),
                            UPS_CUDA_LIBRARY_BYTES};
    for (int i = 0; i < 4; i++) ok(device->class->allocate(device, bytes[i], &memory[i], &failure));
    const double began = emulated_clock;
    ok(ups_cuda_product_run(device, &product, memory[1], memory[0], NULL, memory[2], false, memory[3], &failure));
    ok(device->class->synchronize(device, &failure));
    for (int i = 0; i < 4; i++) device->class->release(device, memory[i]);
    ups_cuda_product_release(&product);
    return emulated_clock - began;
}

static char *read_text(const char *path) {
    char *text;
    size_t length;
    ok(ups_read_regular(path, 1 << 20, &text, &length, &failure));
    return text;
}

static int lines_in(const char *path) {
    char *text = read_text(path);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    free(text);
    return lines;
}

CLAIM(without_a_file_the_first_suggestion_is_taken_and_nothing_is_run) {
    double trying;
    ups_device *device = open_device("");
    assert_true(time_of(device, false, &trying) == FIRST && trying == 0);
    ups_device_close(device);
}

CLAIM(the_fastest_is_found_once_and_kept) {
    const char *path = scratch("new/folder/choices.txt");
    double trying;
    ups_device *device = open_device(path);
    assert_true(time_of(device, false, &trying) == FASTEST && trying > 0);
    assert_true(time_of(device, false, &trying) == FASTEST && trying == 0); /* again in the same process */
    assert_int_equal(lines_in(path), 1);
    assert_true(time_of(device, true, &trying) == FASTEST && trying > 0); /* another product */
    assert_int_equal(lines_in(path), 2);
    ups_device_close(device);
    device = open_device(path);
    for (int tf32 = 0; tf32 < 2; tf32++) assert_true(time_of(device, tf32, &trying) == FASTEST && trying == 0);
    assert_int_equal(lines_in(path), 2);
    ups_device_close(device);
}

CLAIM(what_is_far_behind_is_run_three_times_and_no_more_but_the_first) {
    enum { FAVOURITE = 3, ALL = FAVOURITE + 1 + 2, ROUNDS = 3, RUNS = 4 };
    double trying;
    ups_device *device = open_device(scratch("bounded.txt"));
    time_of(device, false, &trying);
    assert_true(trying == 3 * ALL + ROUNDS * RUNS * (FASTEST + FAVOURITE));
    ups_device_close(device);
}

CLAIM(lines_that_are_not_whole_are_passed_over) {
    const char *path = scratch("damaged.txt");
    double trying;
    ups_device *device = open_device(path);
    time_of(device, false, &trying);
    ups_device_close(device);
    char *text = read_text(path);
    const size_t length = strlen(text);
    for (size_t at = 0; at < length; at += 7) { /* a byte is another one, or the file ends there */
        for (int cut = 0; cut < 2; cut++) {
            char *changed = strdup(text);
            changed[at] ^= 0x11;
            ok(ups_publish_bytes(path, changed, cut ? at : length, &failure));
            free(changed);
            device = open_device(path);
            assert_true(time_of(device, false, &trying) == FASTEST);
            assert_true(trying > 0);
            ups_device_close(device);
        }
    }
    free(text);
}

CLAIM(where_no_file_can_be_written_a_process_keeps_what_it_found) {
    double trying;
    ups_device *device = open_device("/dev/null/choices.txt");
    assert_true(time_of(device, false, &trying) == FASTEST && trying > 0);
    assert_true(time_of(device, false, &trying) == FASTEST && trying == 0);
    ups_device_close(device);
}

CLAIM(of_two_processes_the_first_to_write_counts_for_both) {
    const char *path = scratch("both.txt");
    cublasLtMatmulAlgo_t first = {{1}}, second = {{2}}, found;
    setenv("UPS_CUDA_CHOICES", path, 1);
    ups_cuda_choices *one = ups_cuda_choices_open("card", 1, 1), *other = ups_cuda_choices_open("card", 1, 1);
    ups_cuda_choices_add(one, "a", &first);
    ups_cuda_choices_add(other, "a", &second);
    assert_int_equal(second.data[0], 1);
    assert_true(ups_cuda_choices_find(other, "a", &found) && found.data[0] == 1);
    assert_int_equal(lines_in(path), 1);
    ups_cuda_choices_close(one);
    ups_cuda_choices_close(other);
}

CLAIM(an_algorithm_that_the_library_refuses_is_not_taken) {
    const char *path = scratch("refused.txt");
    double trying;
    ups_device *device = open_device(path);
    time_of(device, false, &trying);
    ups_device_close(device);
    struct cudaDeviceProp card;
    int driver;
    cudaGetDeviceProperties(&card, 0);
    cudaDriverGetVersion(&driver);
    char *text = read_text(path), *key = text;
    for (int slashes = 0; slashes < 4; key++) slashes += *key == '/';
    *strchr(key, ' ') = '\0';
    remove(path);
    ups_cuda_choices *choices = ups_cuda_choices_open(card.name, driver, cublasLtGetVersion());
    cublasLtMatmulAlgo_t nothing = {{0}};
    ups_cuda_choices_add(choices, key, &nothing);
    ups_cuda_choices_close(choices);
    free(text);
    device = open_device(path);
    assert_true(time_of(device, false, &trying) == FASTEST && trying > 0);
    ups_device_close(device);
}

CLAIM(kernels_that_are_chosen_by_shape_are_not_tried) {
    double trying;
    ups_device *device = open_device(scratch("shape.txt"));
    assert_int_equal(ups_device_choose_kernels(device, UPS_KERNELS_BY_SHAPE), UPS_KERNELS_FASTEST);
    assert_true(time_of(device, false, &trying) == FIRST && trying == 0);
    assert_int_equal(ups_device_choose_kernels(device, UPS_KERNELS_FASTEST), UPS_KERNELS_BY_SHAPE);
    assert_true(time_of(device, false, &trying) == FASTEST && trying > 0);
    ups_device_close(device);
}

/* dW (OUT, IN) = dy^T x over ROWS, with the sums of dy's columns where has_sums says so. */
enum { ROWS = 40, IN = 16, OUT = 24 };

static bool has_sums(ups_device *device, ups_dtype dtype, ups_cuda_product *product, double *trying) {
    const ups_cuda_matrix x = {.rows = ROWS, .columns = IN, .dtype = dtype};
    const ups_cuda_matrix dy = {.rows = ROWS, .columns = OUT, .dtype = dtype}, dw = {.rows = OUT, .columns = IN};
    const double before = emulated_clock;
    *product = (ups_cuda_product){0};
    ok(ups_cuda_product_make(device, product, x, false, dy, true, dw, (ups_cuda_product_options){.sums = true},
                             &failure));
    *trying = emulated_clock - before;
    return ups_cuda_product_has_sums(product);
}

static bool has_sums_of(const char *choices, emulated_sums are, double time, double *trying) {
    ups_cuda_product product;
    emulated_sums_are = are;
    emulated_sums_time = time;
    ups_device *device = open_device(choices);
    const bool has = has_sums(device, UPS_BF16, &product, trying);
    ups_cuda_product_release(&product);
    ups_device_close(device);
    emulated_sums_are = EMULATED_SUMS_RIGHT;
    emulated_sums_time = 1.0;
    return has;
}

CLAIM(a_product_makes_sums_where_they_are_right_and_cost_little) {
    static const struct {
        const char *file;
        emulated_sums are;
        double time;
        bool taken;
        int lines;
    } cases[] = {{"faster", EMULATED_SUMS_RIGHT, 0.5, true, 2},
                 {"slower", EMULATED_SUMS_RIGHT, 1.5, false, 2},
                 {"not_made", EMULATED_SUMS_NOT_MADE, 0.5, false, 2},
                 {"of_x", EMULATED_SUMS_OF_A, 0.5, false, 2},
                 {"refused", EMULATED_SUMS_REFUSED, 0.5, false, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch(cases[i].file);
        double trying;
        assert_int_equal(has_sums_of(path, cases[i].are, cases[i].time, &trying), cases[i].taken);
        assert_true(trying > 0);
        assert_int_equal(lines_in(path), cases[i].lines);
        if (cases[i].lines == 1) continue;
        for (int again = 0; again < 2; again++) { /* what was found counts, whatever would be found now */
            const double time = again ? 1.5 - cases[i].time : cases[i].time;
            assert_int_equal(has_sums_of(path, EMULATED_SUMS_RIGHT, time, &trying), cases[i].taken);
            assert_true(trying == 0);
        }
    }
}

CLAIM(without_a_file_a_product_makes_sums_where_the_library_has_them) {
    double trying;
    assert_true(has_sums_of("", EMULATED_SUMS_RIGHT, 1, &trying) && trying == 0);
    assert_false(has_sums_of("", EMULATED_SUMS_REFUSED, 1, &trying));
}

static void *up(ups_device *device, ups_dtype dtype, const float *values, size_t count) {
    void *memory, *converted = malloc(count * sizeof(float));
    if (dtype == UPS_BF16)
        ups_f32_to_bf16(values, converted, count);
    else if (dtype == UPS_F16)
        ups_f32_to_f16(values, converted, count);
    else
        memcpy(converted, values, count * sizeof *values);
    ok(device->class->allocate(device, count * ups_dtype_size(dtype), &memory, &failure));
    ok(device->class->upload(device, memory, converted, count * ups_dtype_size(dtype), &failure));
    ok(device->class->synchronize(device, &failure));
    free(converted);
    return memory;
}

/* Of small integers: all dtypes hold them. */
CLAIM(sums_are_stored_where_a_product_is_added) {
    static const ups_dtype dtypes[] = {UPS_F32, UPS_BF16, UPS_F16};
    float x[ROWS * IN], dy[ROWS * OUT], made[OUT * IN], sums[OUT];
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 7 % 5 - 2);
    for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i * 11 % 13 - 4);
    ups_device *device = open_device("");
    for (int i = 0; i < 3; i++) {
        ups_cuda_product product;
        double trying;
        void *workspace;
        assert_true(has_sums(device, dtypes[i], &product, &trying));
        void *x_there = up(device, dtypes[i], x, ROWS * IN), *dy_there = up(device, dtypes[i], dy, ROWS * OUT);
        for (int c = 0; c < OUT * IN; c++) made[c] = 1000.0f;
        for (int c = 0; c < OUT; c++) sums[c] = 1000.0f;
        void *made_there = up(device, UPS_F32, made, OUT * IN), *sums_there = up(device, UPS_F32, sums, OUT);
        ok(device->class->allocate(device, UPS_CUDA_LIBRARY_BYTES, &workspace, &failure));
        ok(ups_cuda_product_run_with_sums(device, &product, x_there, dy_there, sums_there, made_there, true, workspace,
                                          &failure));
        ok(device->class->download(device, made, made_there, sizeof made, &failure));
        ok(device->class->download(device, sums, sums_there, sizeof sums, &failure));
        for (int c = 0; c < OUT; c++) {
            float sum = 0.0f, product_sum = 1000.0f;
            for (int row = 0; row < ROWS; row++) sum += dy[row * OUT + c];
            for (int row = 0; row < ROWS; row++) product_sum += dy[row * OUT + c] * x[row * IN + 3];
            assert_true(sums[c] == sum);
            assert_true(made[c * IN + 3] == product_sum);
        }
        refused(ups_cuda_product_run_with_sums(device, &product, x_there, dy_there, (float *)sums_there + 1, made_there,
                                               true, workspace, &failure),
                UPS_ERR_ARGUMENT, "multiples of 16 bytes");
        void *const memory[] = {x_there, dy_there, made_there, sums_there, workspace};
        for (int m = 0; m < 5; m++) device->class->release(device, memory[m]);
        ups_cuda_product_release(&product);
    }
    ups_device_close(device);
}

static ups_tensor tensor(void *data, ups_dtype dtype, ups_shape shape) {
    return (ups_tensor){.data = data, .dtype = dtype, .shape = shape};
}

/* By a product that takes half of its time where it makes sums: whose they are shows in the clock. */
CLAIM(a_bias_gradient_is_the_same_whoever_makes_it) {
    static const struct {
        emulated_sums are;
        bool accumulate, only_bias, by_product;
    } cases[] = {{EMULATED_SUMS_RIGHT, false, false, true},
                 {EMULATED_SUMS_RIGHT, true, false, false}, /* an epilogue does not add */
                 {EMULATED_SUMS_RIGHT, false, true, false}, /* there is no product */
                 {EMULATED_SUMS_REFUSED, false, false, false}};
    enum { CASES = sizeof cases / sizeof *cases };
    const ups_op_attributes attributes = {0};
    float dy[ROWS * OUT], h[ROWS * OUT], before[OUT], sums[OUT];
    for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i * 11 % 13 - 4);
    for (int i = 0; i < ROWS * OUT; i++) h[i] = 16.0f; /* where GELU's slope is 1 */
    for (int c = 0; c < OUT; c++) before[c] = 1000.0f;
    for (int number = 0; number < 2 * CASES; number++) {
        const int i = number % CASES;
        const bool gelu = number >= CASES;
        emulated_sums_are = cases[i].are;
        emulated_sums_time = 0.5;
        ups_device *device = open_device("");
        ups_op_call call = {.kind = gelu ? UPS_OP_LINEAR_GELU : UPS_OP_LINEAR, .attributes = &attributes};
        call.input_count = 3;
        if (gelu) call.saved[0] = tensor(up(device, UPS_BF16, h, ROWS * OUT), UPS_BF16, UPS_SHAPE(ROWS, OUT));
        call.inputs[0] = tensor(up(device, UPS_BF16, dy, ROWS * IN), UPS_BF16, UPS_SHAPE(ROWS, IN));
        call.inputs[1] = tensor(up(device, UPS_BF16, dy, OUT * IN), UPS_BF16, UPS_SHAPE(OUT, IN));
        call.inputs[2] = tensor(up(device, UPS_F32, before, OUT), UPS_F32, UPS_SHAPE(OUT));
        call.output = tensor(NULL, UPS_BF16, UPS_SHAPE(ROWS, OUT));
        call.output_gradient = tensor(up(device, UPS_BF16, dy, ROWS * OUT), UPS_BF16, UPS_SHAPE(ROWS, OUT));
        if (!cases[i].only_bias)
            call.input_gradients[1] = tensor(up(device, UPS_F32, dy, OUT * IN), UPS_F32, UPS_SHAPE(OUT, IN));
        call.input_gradients[2] = tensor(up(device, UPS_F32, before, OUT), UPS_F32, UPS_SHAPE(OUT));
        call.accumulate[2] = cases[i].accumulate;
        ups_kernel kernel;
        ok(device->class->kernel(device, &call, true, &kernel, &failure));
        call.state = kernel.state;
        ok(device->class->allocate(device, kernel.workspace_bytes, &call.workspace, &failure));
        const double began = emulated_clock;
        ok(kernel.backward(device, &call, &failure));
        ok(device->class->download(device, sums, call.input_gradients[2].data, sizeof sums, &failure));
        assert_true(emulated_clock - began == (cases[i].only_bias    ? 0
                                               : cases[i].by_product ? FIRST * emulated_sums_time
                                                                     : FIRST));
        for (int c = 0; c < OUT; c++) {
            float sum = cases[i].accumulate ? before[c] : 0.0f;
            for (int row = 0; row < ROWS; row++) sum += dy[row * OUT + c];
            assert_true(sums[c] == sum);
        }
        kernel.release(kernel.state);
        if (gelu) device->class->release(device, call.saved[0].data);
        void *const memory[] = {call.inputs[0].data,         call.inputs[1].data,          call.inputs[2].data,
                                call.output_gradient.data,   call.input_gradients[2].data, call.workspace,
                                call.input_gradients[1].data};
        for (int m = 0; m < 7 - cases[i].only_bias; m++) device->class->release(device, memory[m]);
        ups_device_close(device);
        emulated_sums_are = EMULATED_SUMS_RIGHT;
        emulated_sums_time = 1.0;
    }
}

/* A linear layer with a bias, in bf16: its forward and both products of its backward. */
static ups_graph *linear_graph(ups_parameters *parameters) {
    ups_graph *graph = ups_graph_create(parameters, UPS_BF16);
    ups_value x = ups_graph_input(graph, "x", UPS_F32, UPS_SHAPE(4, K));
    ups_value weight = ups_graph_parameter(graph, "weight", UPS_SHAPE(N, K), (ups_init){.kind = UPS_INIT_ONES});
    ups_value bias = ups_graph_parameter(graph, "bias", UPS_SHAPE(N), (ups_init){.kind = UPS_INIT_ONES});
    ups_value target = ups_graph_input(graph, "target", UPS_F32, UPS_SHAPE(4, N));
    ups_value loss = ups_loss_mse(graph, ups_linear(graph, x, weight, bias, true), target);
    ups_graph_differentiate(graph, ups_weighted_sum(graph, &loss, (float[]){1}, 1));
    return graph;
}

CLAIM(a_plan_runs_nothing_and_a_step_finds_what_its_products_take) {
    const char *path = scratch("step.txt");
    ups_device *device = open_device(path);
    ups_parameters *parameters = ups_parameters_create();
    ups_graph *graph = linear_graph(parameters);
    ups_plan_memory memory;
    ups_step *step;
    const double before = emulated_clock;
    ok(ups_step_measure(graph, device, &memory, &failure));
    assert_true(emulated_clock == before && !ups_path_exists(path));
    ok(ups_parameters_allocate(parameters, device, true, UPS_BF16, 1, &failure));
    ok(ups_step_create(graph, device, &step, &failure));
    assert_true(emulated_clock > before);
    assert_int_equal(lines_in(path), 3); /* as for x, though its gradient is not wanted */
    ups_step_destroy(step);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    ups_device_close(device);
}

/* Attention of a short sequence, in bf16, with gains. */
static ups_graph *attention_graph(ups_parameters *parameters) {
    enum { HEADS = 2, WIDTH = 16, HIDDEN = HEADS * WIDTH };
    const ups_init normal = {.kind = UPS_INIT_NORMAL, .scale = 0.2f}, ones = {.kind = UPS_INIT_ONES};
    const ups_shape shape = UPS_SHAPE(2, 70, HIDDEN);
    ups_graph *g = ups_graph_create(parameters, UPS_BF16);
    ups_value x = ups_graph_input(g, "x", UPS_F32, shape), target = ups_graph_input(g, "target", UPS_F32, shape);
    ups_value in = ups_graph_parameter(g, "in", UPS_SHAPE(3 * HIDDEN, HIDDEN), normal);
    ups_value out = ups_graph_parameter(g, "out", UPS_SHAPE(HIDDEN, HIDDEN), normal);
    ups_value gain_q = ups_graph_parameter(g, "gain_q", UPS_SHAPE(WIDTH), ones);
    ups_value gain_k = ups_graph_parameter(g, "gain_k", UPS_SHAPE(WIDTH), ones);
    ups_value y = ups_attention(g, ups_linear(g, x, in, UPS_NO_VALUE, false), UPS_NO_VALUE, gain_q, gain_k, HEADS);
    ups_value loss = ups_loss_mse(g, ups_linear(g, y, out, UPS_NO_VALUE, true), target);
    ups_graph_differentiate(g, ups_weighted_sum(g, &loss, (float[]){1}, 1));
    return g;
}

/* What a step writes to `path`, to be freed. */
static char *choices_of_attention(const char *path) {
    ups_device *device = open_device(path);
    ups_parameters *parameters = ups_parameters_create();
    ups_graph *graph = attention_graph(parameters);
    ups_step *step;
    ok(ups_parameters_allocate(parameters, device, true, UPS_BF16, 1, &failure));
    ok(ups_step_create(graph, device, &step, &failure));
    ups_step_destroy(step);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    ups_device_close(device);
    return read_text(path);
}

/* Of the emulator's clock kernels take no time, so that groups of warps are as fast, and taken where they agree. */
CLAIM(kernels_of_attention_are_found_once_and_kept) {
    static const char *const names[] = {"/attention-1.forward.bfloat16.2.2.70.70.16.packed.gains 0100000000000000",
                                        "/attention-1.backward.bfloat16.2.2.70.70.16.packed.gains 0100000000000000"};
    const char *path = scratch("attention.txt");
    setenv("UPS_CUDA_ATTENTION", "", 1);
    char *first = choices_of_attention(path), *again = choices_of_attention(path);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(first, names[i]));
    assert_string_equal(first, again);
    free(first);
    free(again);
    setenv("UPS_CUDA_ATTENTION", "warps", 1); /* nothing is tried where it is said */
    first = choices_of_attention(scratch("told.txt"));
    assert_null(strstr(first, "attention"));
    free(first);
}

CLAIM(lines_are_of_one_card_driver_and_library) {
    cublasLtMatmulAlgo_t any = {{7}}, found;
    unsetenv("UPS_CUDA_CHOICES");
    setenv("XDG_CACHE_HOME", scratch("cache"), 1);
    ups_cuda_choices *choices = ups_cuda_choices_open("NVIDIA H100 80GB", 13000, 130000);
    ups_cuda_choices_add(choices, "a", &any);
    ups_cuda_choices_close(choices);
    assert_int_equal(lines_in(scratch("cache/ups/cublaslt.txt")), 1);
    const struct {
        const char *card;
        int driver;
        size_t library;
        bool same;
    } others[] = {{"NVIDIA H100 80GB", 13000, 130000, true},
                  {"NVIDIA H200", 13000, 130000, false},
                  {"NVIDIA H100 80GB", 12080, 130000, false},
                  {"NVIDIA H100 80GB", 13000, 130001, false}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        choices = ups_cuda_choices_open(others[i].card, others[i].driver, others[i].library);
        assert_int_equal(ups_cuda_choices_find(choices, "a", &found), others[i].same);
        if (others[i].same) assert_memory_equal(&found, &any, sizeof any);
        ups_cuda_choices_close(choices);
    }
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
