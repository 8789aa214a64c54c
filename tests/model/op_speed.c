#include "tests/model/op_speed.h"

#include "base/system/threads.h"
#include "tests/model/claims.h"
#include "tests/model/op_fixture.h"
#include <math.h>
#include <string.h>

static double multiplications(const op_case *c) {
    if (c->kind == UPS_OP_LINEAR || c->kind == UPS_OP_LINEAR_GELU) {
        return 2.0 * (double)ups_shape_rows(c->inputs[0].shape) * (double)ups_shape_elements(c->inputs[1].shape);
    }
    if (c->kind == UPS_OP_ATTENTION)
        return 4.0 * (double)ups_shape_elements(c->output.shape) * (double)c->output.shape.size[1];
    return 0.0;
}

static double bytes_of(const ups_tensor *tensor) {
    if (!tensor->data) return 0.0;
    return (double)ups_shape_elements(tensor->shape) * (double)ups_dtype_size(tensor->dtype);
}

/* The fastest of some runs: other work on the machine only adds. A device that works behind the host gets several at
 * once, so that it does not wait for the host. */
static double fastest(fixture *f, void (*run)(fixture *)) {
    enum { RUNS = 30, AT_ONCE = 20 };
    const int at_once = strcmp(device->class->name, "cpu") == 0 ? 1 : AT_ONCE;
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double start = ups_now();
        for (int k = 0; k < at_once; k++) run(f);
        device->class->synchronize(device, &failure);
        best = fmin(best, (ups_now() - start) / at_once);
    }
    return best;
}

static void print_speed(const char *name, ups_dtype compute, const char *way, double seconds, double flop,
                        double bytes) {
    printf("%-20s %-9s %-9s %9.1f us", name, ups_dtype_name(compute), way, seconds * 1e6);
    if (flop > 0.0)
        printf(" %9.1f GFLOP/s\n", flop / seconds * 1e-9);
    else
        printf(" %9.1f GB/s\n", bytes / seconds * 1e-9);
}

static void measure(const op_case *c, ups_dtype compute) {
    fixture f;
    if (!fixture_create(&f, c, compute)) return;
    double bytes = bytes_of(&f.call.output), flop = multiplications(c);
    for (int i = 0; i < c->input_count; i++) bytes += bytes_of(&f.call.inputs[i]);
    print_speed(c->name, compute, "forward", fastest(&f, run_forward), flop, bytes);
    prepare_backward_call(&f);
    bytes = bytes_of(&f.call.output_gradient);
    for (int i = 0; i < c->input_count; i++) {
        if (!wants_gradient(c, i)) continue;
        give_gradient(&f, i, 200);
        bytes += bytes_of(&f.call.inputs[i]) + bytes_of(&f.gradients[i].tensor);
    }
    double factor = c->kind == UPS_OP_ATTENTION ? 2.5 : 2.0;
    print_speed(c->name, compute, "backward", fastest(&f, run_backward), factor * flop, bytes);
    fixture_destroy(&f);
}

static void measure_adamw(void) {
    enum { COUNT = 21400000 };
    const ups_range all = {0, COUNT, 0, 0};
    ups_range *ranges = device_memory(sizeof all);
    device->class->upload(device, ranges, &all, sizeof all, &failure);
    ups_optimizer_call call = {
        .ranges = ranges, .range_count = 1, .range_elements = COUNT, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    ups_update_rules rules = {.trained = {true}};
    call.weight_decay = 0.03f;
    call.update = ups_update_memory(channel);
    float **buffers[] = {&call.values, &call.gradients, &call.moments[0], &call.moments[1]};
    for (int i = 0; i < 4; i++) *buffers[i] = device_memory(COUNT * sizeof(float));
    call.compute = device_memory(COUNT * sizeof *call.compute);
    call.compute_dtype = UPS_BF16;
    double best = 1e9;
    for (int64_t step = 0; step < 9; step++) {
        give(&(ups_update_input){.step = step, .learning_rate = 1e-3f});
        double start = ups_now();
        device->class->decide(device, &rules, ups_update_memory(channel), &failure);
        device->class->optimize(device, &call, &failure);
        device->class->synchronize(device, &failure);
        best = fmin(best, ups_now() - start);
    }
    print_speed("adamw, 21.4 M", UPS_F32, "", best, 0.0, 30.0 * COUNT);
    for (int i = 0; i < 4; i++) device->class->release(device, *buffers[i]);
    device->class->release(device, call.compute);
    device->class->release(device, ranges);
}

/* A step of Muon over so many matrices of one shape. */
void measure_muon(int64_t count, int64_t rows, int64_t columns) {
    const ups_dtype computes[] = {UPS_F32, UPS_BF16};
    const int64_t elements = count * rows * columns;
    const ups_matrices matrices = {0, count, rows, columns, 0};
    const ups_range all = {0, elements, 0, 0};
    ups_range *range = device_memory(sizeof all);
    device->class->upload(device, range, &all, sizeof all, &failure);
    ups_optimizer_call call = {.rule = UPS_RULE_MUON,
                               .ranges = range,
                               .range_count = 1,
                               .range_elements = elements,
                               .matrices = &matrices,
                               .matrices_count = 1,
                               .beta1 = 0.95f,
                               .update = ups_update_memory(channel)};
    float **buffers[] = {&call.values, &call.gradients, &call.moments[0]},
          *noise = malloc(sizeof *noise * (size_t)elements);
    for (int i = 0; i < 3; i++) *buffers[i] = device_memory((size_t)elements * sizeof(float));
    ups_random_fill_normal(ups_random_stream(SEED, UPS_RANDOM_TEST, 1), 1.0f, noise, elements);
    device->class->upload(device, call.gradients, noise, (size_t)elements * sizeof *noise, &failure);
    device->class->synchronize(device, &failure);
    for (int k = 0; k < 2; k++) {
        call.compute_dtype = computes[k];
        call.compute = k ? device_memory((size_t)elements * sizeof *call.compute) : NULL;
        call.workspace = device_memory(device->class->matrices_workspace(device, &matrices, 1, computes[k]));
        double best = 1e9;
        for (int step = 0; step < 30; step++) {
            give(&(ups_update_input){.step = step, .learning_rate = 1e-3f});
            const double start = ups_now();
            device->class->decide(device, &(ups_update_rules){.trained = {true}}, ups_update_memory(channel), &failure);
            device->class->optimize(device, &call, &failure);
            device->class->synchronize(device, &failure);
            best = fmin(best, ups_now() - start);
        }
        const double side = fmin((double)rows, (double)columns);
        const double flop = 5.0 * (4.0 * side * (double)elements + 2.0 * side * side * side * (double)count);
        print_speed("muon", computes[k], "", best, flop, 0.0);
        device->class->release(device, call.workspace);
        if (k) device->class->release(device, call.compute);
    }
    for (int i = 0; i < 3; i++) device->class->release(device, *buffers[i]);
    device->class->release(device, range);
    free(noise);
}

/* Weights are small, so that GELU is taken of numbers about as large as 1. */
void measure_linear(int64_t rows, int64_t features, int64_t made) {
    const operand weight = {
        .kind = COMPUTE, .shape = UPS_SHAPE(made, features), .spread = 1.0f / sqrtf((float)features)};
    op_case linear = {.name = "linear",
                      .kind = UPS_OP_LINEAR,
                      .input_count = 3,
                      .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(rows, features)},
                                 weight,
                                 {.kind = VECTOR, .shape = UPS_SHAPE(made)}},
                      .output = {.kind = COMPUTE, .shape = UPS_SHAPE(rows, made)}};
    measure(&linear, UPS_F32);
    measure(&linear, UPS_BF16);
    linear.name = "linear with gelu";
    linear.kind = UPS_OP_LINEAR_GELU;
    linear.saved[0] = linear.output.shape;
    measure(&linear, UPS_F32);
    measure(&linear, UPS_BF16);
}

void measure_attention(int64_t batch, int64_t heads, int64_t tokens, int64_t head_size) {
    const int64_t features = heads * head_size;
    const operand gain = {.kind = VECTOR, .shape = UPS_SHAPE(head_size)};
    const op_case attention = {
        .name = "attention",
        .kind = UPS_OP_ATTENTION,
        .attributes = {.heads = (int)heads, .epsilon = 1e-6f},
        .input_count = 4,
        .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(batch, tokens, 3 * features)}, {.kind = ABSENT}, gain, gain},
        .output = {.kind = COMPUTE, .shape = UPS_SHAPE(batch, tokens, features)},
        .saved = {UPS_SHAPE(batch, heads, tokens), UPS_SHAPE(batch, 2 * tokens, heads)}};
    measure(&attention, UPS_F32);
    measure(&attention, UPS_BF16);
}

void measure_ops(const char *only) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    for (size_t i = 0; i < (size_t)op_perf_case_count; i++) {
        if (only && !strstr(op_perf_cases[i].name, only)) continue;
        for (int k = 0; k < 3; k++) measure(&op_perf_cases[i], computes[k]);
    }
    if (!only || strstr("adamw", only)) measure_adamw();
}
