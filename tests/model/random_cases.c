#include "tests/model/random_cases.h"

#include "base/random.h"
#include <stdio.h>

typedef struct dice {
    ups_random stream;
    uint64_t thrown;
} dice;

/* low … high */
static int64_t throw(dice * d, int64_t low, int64_t high) {
    return low + (int64_t)ups_random_below(d->stream, d->thrown++, (uint64_t)(high - low + 1));
}

/* Sizes that kernels treat apart: small, a multiple of 8, any. */
static int64_t throw_size(dice *d, int64_t most) {
    switch (throw(d, 0, 3)) {
    case 0:
        return throw(d, 1, 9);
    case 1:
        return 8 * throw(d, 1, most / 8);
    default:
        return throw(d, 1, most);
    }
}

static operand of(operand_kind kind, ups_shape shape) {
    return (operand){.kind = kind, .shape = shape};
}

static operand perhaps(dice *d, operand_kind kind, ups_shape shape) {
    return throw(d, 0, 1) ? of(kind, shape) : (operand){.kind = ABSENT};
}

static void draw_linear(dice *d, op_case *c) {
    const int64_t rows = throw_size(d, 150), from = throw_size(d, 200), to = throw_size(d, 200);
    const bool gelu = c->kind == UPS_OP_LINEAR_GELU;
    c->attributes.output_f32 = !gelu && throw(d, 0, 1);
    c->input_count = 3;
    c->inputs[0] = of(throw(d, 0, 1) ? STREAM : COMPUTE, UPS_SHAPE(2, rows, from));
    if (gelu) c->inputs[0].kind = COMPUTE;
    c->inputs[1] = of(COMPUTE, UPS_SHAPE(to, from));
    c->inputs[2] = perhaps(d, VECTOR, UPS_SHAPE(to));
    c->output = of(c->attributes.output_f32 ? STREAM : COMPUTE, UPS_SHAPE(2, rows, to));
    if (gelu) c->saved[0] = UPS_SHAPE(2, rows, to);
}

static void draw_norm(dice *d, op_case *c) {
    const bool layer = c->kind == UPS_OP_LAYER_NORM;
    const int64_t rows = throw_size(d, 300), width = 1 + throw_size(d, 600);
    c->attributes.epsilon = 1e-5f;
    c->input_count = layer ? 3 : 2;
    c->inputs[0] = of(throw(d, 0, 1) ? STREAM : COMPUTE, UPS_SHAPE(rows, width));
    c->inputs[1] = of(VECTOR, UPS_SHAPE(width));
    if (layer) c->inputs[2] = of(VECTOR, UPS_SHAPE(width));
    c->output = of(COMPUTE, UPS_SHAPE(rows, width));
    c->saved[0] = layer ? UPS_SHAPE(rows, 2) : UPS_SHAPE(rows);
}

static void draw_residual(dice *d, op_case *c) {
    const int64_t batch = throw(d, 1, 5), tokens = throw_size(d, 90), width = throw_size(d, 200);
    c->input_count = 3;
    c->inputs[0] = of(STREAM, UPS_SHAPE(batch, tokens, width));
    c->inputs[1] = of(COMPUTE, UPS_SHAPE(batch, tokens, width));
    c->inputs[2] = perhaps(d, COMPUTE, UPS_SHAPE(batch, width));
    c->output = of(STREAM, UPS_SHAPE(batch, tokens, width));
    c->training = throw(d, 0, 1);
    if (c->training) c->attributes.drop_path = 0.3f;
}

static void draw_attention(dice *d, op_case *c) {
    const bool cross = throw(d, 0, 2) == 0, gains = throw(d, 0, 1), rotary = !cross && throw(d, 0, 2) == 0;
    const int64_t batch = throw(d, 1, 2), heads = throw(d, 1, 3), size = 2 * throw(d, 1, 64);
    const int64_t queries = 1 + throw_size(d, 140), keys = cross ? 1 + throw_size(d, 140) : queries;
    const int64_t width = heads * size;
    c->attributes.heads = (int)heads;
    if (gains) c->attributes.epsilon = 1e-6f;
    c->input_count = 6;
    c->inputs[0] = of(COMPUTE, UPS_SHAPE(batch, queries, cross ? width : 3 * width));
    if (cross) c->inputs[1] = of(COMPUTE, UPS_SHAPE(batch, keys, 2 * width));
    for (int i = 2; gains && i < 4; i++) c->inputs[i] = of(VECTOR, UPS_SHAPE(size));
    if (rotary) {
        c->inputs[4] = of(VECTOR, throw(d, 0, 1) ? UPS_SHAPE(queries, size) : UPS_SHAPE(batch, queries, size));
        c->inputs[4].spread = 0.7f;
        c->looser = 2.0f;
    }
    c->output = of(COMPUTE, UPS_SHAPE(batch, queries, width));
    c->saved[0] = UPS_SHAPE(batch, heads, queries);
    if (gains) c->saved[1] = UPS_SHAPE(batch, queries + keys, heads);
}

static void draw_depthwise(dice *d, op_case *c) {
    const int64_t batch = throw(d, 1, 3), channels = throw_size(d, 70), taps = 3 + 2 * throw(d, 0, 2);
    int64_t tokens = 1, kernel = 1;
    c->attributes.dims = (int) throw(d, 1, 2);
    c->attributes.periodic = throw(d, 0, 1);
    for (int axis = 0; axis < c->attributes.dims; axis++) {
        c->attributes.grid[axis] = throw(d, 1, c->attributes.dims == 1 ? 70 : 12);
        c->attributes.patch[axis] = taps;
        tokens *= c->attributes.grid[axis], kernel *= taps;
    }
    c->input_count = 2;
    c->inputs[0] = of(COMPUTE, UPS_SHAPE(batch, tokens, channels));
    c->inputs[1] = of(VECTOR, UPS_SHAPE(kernel, channels));
    c->output = of(COMPUTE, UPS_SHAPE(batch, tokens, channels));
}

/* A kind, and what draws its shapes. Attention, whose tiles are many, comes twice. */
static const struct {
    ups_op_kind kind;
    void (*draw)(dice *d, op_case *c);
} kinds[] = {
    {UPS_OP_LINEAR, draw_linear},     {UPS_OP_ATTENTION, draw_attention}, {UPS_OP_LINEAR_GELU, draw_linear},
    {UPS_OP_LAYER_NORM, draw_norm},   {UPS_OP_RMS_NORM, draw_norm},       {UPS_OP_ATTENTION, draw_attention},
    {UPS_OP_RESIDUAL, draw_residual}, {UPS_OP_DEPTHWISE, draw_depthwise},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int add_shape(char *text, int used, int bytes, ups_shape shape) {
    for (int axis = 0; axis < shape.rank && used < bytes; axis++)
        used += snprintf(text + used, (size_t)(bytes - used), "%s%lld", axis ? "x" : " ", (long long)shape.size[axis]);
    return used;
}

void random_case_draw(uint64_t seed, int number, random_case *drawn) {
    dice d = {.stream = ups_random_stream(seed, UPS_RANDOM_TEST, 1000 + (uint32_t)number)};
    *drawn = (random_case){.c.kind = kinds[number % KINDS].kind};
    kinds[number % KINDS].draw(&d, &drawn->c);
    int used = snprintf(drawn->name, sizeof drawn->name, "%s, shapes of seed %llu,", ups_op_name(drawn->c.kind),
                        (unsigned long long)seed);
    for (int i = 0; i < drawn->c.input_count; i++)
        used = add_shape(drawn->name, used, sizeof drawn->name, drawn->c.inputs[i].shape);
    drawn->c.name = drawn->name;
}
