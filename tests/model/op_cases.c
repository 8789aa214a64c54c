/* The cases of test_ops: several shapes an op, odd ones among them. */
#include "tests/model/op_cases.h"

/* clang-format off */
#define C(...) {.kind = COMPUTE, .shape = UPS_SHAPE(__VA_ARGS__)}
#define S(...) {.kind = STREAM, .shape = UPS_SHAPE(__VA_ARGS__)}
#define V(...) {.kind = VECTOR, .shape = UPS_SHAPE(__VA_ARGS__)}
#define H(...) {.kind = HALF, .shape = UPS_SHAPE(__VA_ARGS__)}
#define NONE {.kind = ABSENT}

const op_case op_cases[] = {
    {.name = "linear", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(4, 32, 64), C(96, 64), V(96)}, .output = C(4, 32, 96)},
    {.name = "linear, odd sizes", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(3, 7, 37), C(53, 37), V(53)}, .output = C(3, 7, 53)},
    {.name = "linear, one row, one feature", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(1, 1), C(5, 1), V(5)}, .output = C(1, 5)},
    {.name = "linear without bias", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(65, 129), C(34, 129), NONE}, .output = C(65, 34)},
    {.name = "linear, many rows", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(1000, 33), C(18, 33), V(18)}, .output = C(1000, 18)},
    {.name = "linear, wide", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(70, 1000), C(130, 1000), V(130)}, .output = C(70, 130)},
    {.name = "linear, more features than are packed together", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(21, 2500), C(23, 2500), V(23)}, .output = C(21, 23)},
    {.name = "linear of the stream to float32", .kind = UPS_OP_LINEAR, .attributes = {.output_f32 = true}, .input_count = 3, .inputs = {S(2, 20, 48), C(40, 48), V(40)}, .output = S(2, 20, 40)},
    {.name = "linear with gelu", .kind = UPS_OP_LINEAR_GELU, .input_count = 3, .inputs = {C(4, 32, 64), C(96, 64), V(96)}, .output = C(4, 32, 96), .saved = {UPS_SHAPE(4, 32, 96)}},
    {.name = "linear with gelu, odd sizes", .kind = UPS_OP_LINEAR_GELU, .input_count = 3, .inputs = {C(3, 7, 37), C(53, 37), V(53)}, .output = C(3, 7, 53), .saved = {UPS_SHAPE(3, 7, 53)}},
    {.name = "linear with gelu without bias, many rows", .kind = UPS_OP_LINEAR_GELU, .input_count = 3, .inputs = {C(1000, 33), C(18, 33), NONE}, .output = C(1000, 18), .saved = {UPS_SHAPE(1000, 18)}},
    {.name = "linear with gelu, more features than are packed together", .kind = UPS_OP_LINEAR_GELU, .input_count = 3, .inputs = {C(21, 2500), C(23, 2500), V(23)}, .output = C(21, 23), .saved = {UPS_SHAPE(21, 23)}},
    {.name = "layer norm", .kind = UPS_OP_LAYER_NORM, .attributes = {.epsilon = 1e-5f}, .input_count = 3, .inputs = {S(2, 33, 48), V(48), V(48)}, .output = C(2, 33, 48), .saved = {UPS_SHAPE(66, 2)}},
    {.name = "layer norm of 384", .kind = UPS_OP_LAYER_NORM, .attributes = {.epsilon = 1e-5f}, .input_count = 3, .inputs = {C(100, 384), V(384), V(384)}, .output = C(100, 384), .saved = {UPS_SHAPE(100, 2)}},
    {.name = "layer norm, odd width, no gain", .kind = UPS_OP_LAYER_NORM, .attributes = {.epsilon = 1e-5f, .output_f32 = true}, .input_count = 3, .inputs = {C(5, 37), NONE, NONE}, .output = S(5, 37), .saved = {UPS_SHAPE(5, 2)}},
    {.name = "rms norm", .kind = UPS_OP_RMS_NORM, .attributes = {.epsilon = 1e-6f}, .input_count = 2, .inputs = {S(3, 21, 64), V(64)}, .output = C(3, 21, 64), .saved = {UPS_SHAPE(63)}},
    {.name = "rms norm, odd width", .kind = UPS_OP_RMS_NORM, .attributes = {.epsilon = 1e-6f}, .input_count = 2, .inputs = {C(130, 19), V(19)}, .output = C(130, 19), .saved = {UPS_SHAPE(130)}},
    {.name = "modulate", .kind = UPS_OP_MODULATE, .input_count = 3, .inputs = {C(3, 17, 45), C(3, 45), C(3, 45)}, .output = C(3, 17, 45)},
    {.name = "residual", .kind = UPS_OP_RESIDUAL, .input_count = 3, .inputs = {S(3, 17, 45), C(3, 17, 45), NONE}, .output = S(3, 17, 45)},
    {.name = "residual with gate", .kind = UPS_OP_RESIDUAL, .input_count = 3, .inputs = {S(2, 9, 300), C(2, 9, 300), C(2, 300)}, .output = S(2, 9, 300)},
    {.name = "residual with gate and drop-path", .kind = UPS_OP_RESIDUAL, .attributes = {.drop_path = 0.4f, .layer = 3}, .input_count = 3, .inputs = {S(9, 5, 16), C(9, 5, 16), C(9, 16)}, .output = S(9, 5, 16), .training = true},
    {.name = "residual with drop-path, not training", .kind = UPS_OP_RESIDUAL, .attributes = {.drop_path = 0.4f, .layer = 3}, .input_count = 3, .inputs = {S(9, 5, 16), C(9, 5, 16), NONE}, .output = S(9, 5, 16)},
    {.name = "add", .kind = UPS_OP_ADD, .input_count = 2, .inputs = {C(3, 17, 45), C(3, 17, 45)}, .output = C(3, 17, 45)},
    {.name = "add a row", .kind = UPS_OP_ADD, .input_count = 2, .inputs = {C(3, 17, 45), V(45)}, .output = C(3, 17, 45)},
    {.name = "add a table over the batch", .kind = UPS_OP_ADD, .input_count = 2, .inputs = {S(3, 17, 45), V(17, 45)}, .output = S(3, 17, 45)},
    {.name = "add a row a sample", .kind = UPS_OP_ADD, .input_count = 2, .inputs = {S(3, 17, 300), C(3, 1, 300)}, .output = S(3, 17, 300)},
    {.name = "broadcast", .kind = UPS_OP_BROADCAST, .attributes = {.batch = 5}, .input_count = 1, .inputs = {C(7, 30)}, .output = C(5, 7, 30)},
    {.name = "gelu", .kind = UPS_OP_GELU, .input_count = 1, .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(33, 129), .spread = 3.0f}}, .output = C(33, 129)},
    {.name = "silu", .kind = UPS_OP_SILU, .input_count = 1, .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(33, 129), .spread = 3.0f}}, .output = C(33, 129)},
    {.name = "scale", .kind = UPS_OP_SCALE, .attributes = {.factor = -0.37f}, .input_count = 1, .inputs = {C(5, 77)}, .output = C(5, 77)},
    {.name = "self-attention", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 2, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(2, 32, 96), NONE, NONE, NONE}, .output = C(2, 32, 32), .saved = {UPS_SHAPE(2, 2, 32)}},
    {.name = "self-attention with gains", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 2, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(2, 128, 288), NONE, V(48), V(48)}, .output = C(2, 128, 96), .saved = {UPS_SHAPE(2, 2, 128), UPS_SHAPE(2, 256, 2)}},
    {.name = "self-attention with gains, odd sizes", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 3, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(2, 71, 45), NONE, V(5), V(5)}, .output = C(2, 71, 15), .saved = {UPS_SHAPE(2, 3, 71), UPS_SHAPE(2, 142, 3)}},
    {.name = "cross-attention", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 2, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(3, 19, 40), C(3, 67, 80), NONE, NONE}, .output = C(3, 19, 40), .saved = {UPS_SHAPE(3, 2, 19)}},
    {.name = "cross-attention with gains", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 2, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(2, 130, 64), C(2, 16, 128), V(32), V(32)}, .output = C(2, 130, 64), .saved = {UPS_SHAPE(2, 2, 130), UPS_SHAPE(2, 146, 2)}},
    {.name = "slice", .kind = UPS_OP_SLICE, .attributes = {.offset = 11, .length = 23}, .input_count = 1, .inputs = {C(4, 9, 50)}, .output = C(4, 9, 23)},
    {.name = "select frame", .kind = UPS_OP_SELECT_FRAME, .attributes = {.frame = 2}, .input_count = 1, .inputs = {C(3, 4, 7, 11)}, .output = C(3, 7, 11)},
    {.name = "select frame of float16", .kind = UPS_OP_SELECT_FRAME, .attributes = {.frame = 1}, .input_count = 1, .inputs = {H(3, 4, 7, 11)}, .output = S(3, 7, 11)},
    {.name = "patchify a line", .kind = UPS_OP_PATCHIFY, .attributes = {.dims = 1, .grid = {64}, .patch = {8}, .channels = 1, .channels_first = true}, .input_count = 2, .inputs = {S(3, 64), NONE}, .output = C(3, 8, 8)},
    {.name = "patchify a padded plane", .kind = UPS_OP_PATCHIFY, .attributes = {.dims = 2, .grid = {9, 14}, .patch = {4, 5}, .channels = 3}, .input_count = 2, .inputs = {S(2, 378), V(3, 2)}, .output = C(2, 9, 60)},
    {.name = "patchify a volume, channels first", .kind = UPS_OP_PATCHIFY, .attributes = {.dims = 3, .grid = {5, 4, 6}, .patch = {2, 2, 4}, .channels = 2, .channels_first = true}, .input_count = 2, .inputs = {S(2, 240), V(2, 2)}, .output = C(2, 12, 32)},
    {.name = "neighborhood of a line, zeros", .kind = UPS_OP_NEIGHBORHOOD, .attributes = {.dims = 1, .grid = {10}}, .input_count = 1, .inputs = {C(2, 10, 17)}, .output = C(2, 10, 51)},
    {.name = "neighborhood of a periodic plane", .kind = UPS_OP_NEIGHBORHOOD, .attributes = {.dims = 2, .grid = {5, 6}, .periodic = true}, .input_count = 1, .inputs = {C(2, 30, 8)}, .output = C(2, 30, 72)},
    {.name = "neighborhood of a periodic volume with short axes", .kind = UPS_OP_NEIGHBORHOOD, .attributes = {.dims = 3, .grid = {1, 2, 3}, .periodic = true}, .input_count = 1, .inputs = {C(2, 6, 4)}, .output = C(2, 6, 108)},
    {.name = "pool tokens", .kind = UPS_OP_POOL_TOKENS, .input_count = 1, .inputs = {C(2, 37, 20)}, .output = C(2, 8, 20)},
    {.name = "pool to more tokens", .kind = UPS_OP_POOL_TOKENS, .input_count = 1, .inputs = {C(2, 5, 20)}, .output = C(2, 12, 20)},
    {.name = "gather points", .kind = UPS_OP_GATHER_POINTS, .attributes = {.channels = 3, .channels_first = true}, .input_count = 3, .inputs = {S(2, 150), {.kind = INDEX, .shape = UPS_SHAPE(21), .bound = 50}, V(3, 2)}, .output = S(2, 21, 3)},
    {.name = "gather points, channels last", .kind = UPS_OP_GATHER_POINTS, .attributes = {.channels = 2}, .input_count = 3, .inputs = {S(2, 80), {.kind = INDEX, .shape = UPS_SHAPE(60), .bound = 40}, NONE}, .output = S(2, 60, 2)},
    {.name = "fourier features", .kind = UPS_OP_FOURIER, .attributes = {.frequency_count = 3, .frequencies = {1.0f, 2.5f, 16.0f}}, .input_count = 1, .inputs = {S(30, 2)}, .output = C(30, 14)},
    {.name = "mean square error", .kind = UPS_OP_LOSS_MSE, .input_count = 2, .inputs = {S(3, 50, 7), S(3, 50, 7)}, .output = S(3)},
    {.name = "relative error", .kind = UPS_OP_LOSS_RELATIVE, .attributes = {.epsilon = 1e-8f}, .input_count = 2, .inputs = {C(4, 5000), S(4, 5000)}, .output = S(4)},
    {.name = "weighted sum", .kind = UPS_OP_WEIGHTED_SUM, .attributes = {.weights = {1.0f, 0.25f, -2.0f}}, .input_count = 3, .inputs = {S(5), S(5), S(3)}, .output = S(1)},
    {.name = "cast to bf16", .kind = UPS_OP_CAST, .attributes = {.dtype = UPS_BF16}, .input_count = 1, .inputs = {S(5, 700)}, .output = C(5, 700)},
    {.name = "cast to fp16", .kind = UPS_OP_CAST, .attributes = {.dtype = UPS_F16}, .input_count = 1, .inputs = {S(5, 700)}, .output = C(5, 700)},
    {.name = "cast to float32", .kind = UPS_OP_CAST, .attributes = {.dtype = UPS_F32}, .input_count = 1, .inputs = {C(5, 700)}, .output = S(5, 700)},
};
const int op_case_count = sizeof op_cases / sizeof *op_cases;

/* The reference operator at batch 8: 128 tokens of 384, 8 heads, MLP ratio 4. */
const op_case op_perf_cases[] = {
    {.name = "linear q, k, v", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(8, 128, 384), C(1152, 384), V(1152)}, .output = C(8, 128, 1152)},
    {.name = "linear projection", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(8, 128, 384), C(384, 384), V(384)}, .output = C(8, 128, 384)},
    {.name = "linear up", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(8, 128, 384), C(1536, 384), V(1536)}, .output = C(8, 128, 1536)},
    {.name = "linear down", .kind = UPS_OP_LINEAR, .input_count = 3, .inputs = {C(8, 128, 1536), C(384, 1536), V(384)}, .output = C(8, 128, 384)},
    {.name = "linear in", .kind = UPS_OP_LINEAR, .attributes = {.output_f32 = true}, .input_count = 3, .inputs = {S(8, 128, 128), C(384, 128), V(384)}, .output = S(8, 128, 384)},
    {.name = "layer norm", .kind = UPS_OP_LAYER_NORM, .attributes = {.epsilon = 1e-5f}, .input_count = 3, .inputs = {S(8, 128, 384), V(384), V(384)}, .output = C(8, 128, 384), .saved = {UPS_SHAPE(1024, 2)}},
    {.name = "rms norm", .kind = UPS_OP_RMS_NORM, .attributes = {.epsilon = 1e-6f}, .input_count = 2, .inputs = {S(8, 128, 384), V(384)}, .output = C(8, 128, 384), .saved = {UPS_SHAPE(1024)}},
    {.name = "attention", .kind = UPS_OP_ATTENTION, .attributes = {.heads = 8, .epsilon = 1e-6f}, .input_count = 4, .inputs = {C(8, 128, 1152), NONE, V(48), V(48)}, .output = C(8, 128, 384), .saved = {UPS_SHAPE(8, 8, 128), UPS_SHAPE(8, 256, 8)}},
    {.name = "gelu", .kind = UPS_OP_GELU, .input_count = 1, .inputs = {C(8, 128, 1536)}, .output = C(8, 128, 1536)},
    {.name = "silu", .kind = UPS_OP_SILU, .input_count = 1, .inputs = {C(8, 128, 1536)}, .output = C(8, 128, 1536)},
    {.name = "residual", .kind = UPS_OP_RESIDUAL, .input_count = 3, .inputs = {S(8, 128, 384), C(8, 128, 384), NONE}, .output = S(8, 128, 384)},
    {.name = "modulate", .kind = UPS_OP_MODULATE, .input_count = 3, .inputs = {C(8, 128, 384), C(8, 384), C(8, 384)}, .output = C(8, 128, 384)},
    {.name = "add", .kind = UPS_OP_ADD, .input_count = 2, .inputs = {S(8, 128, 384), S(8, 128, 384)}, .output = S(8, 128, 384)},
    {.name = "cast", .kind = UPS_OP_CAST, .attributes = {.dtype = UPS_BF16}, .input_count = 1, .inputs = {S(8, 128, 384)}, .output = C(8, 128, 384)},
    {.name = "neighborhood", .kind = UPS_OP_NEIGHBORHOOD, .attributes = {.dims = 2, .grid = {32, 32}, .periodic = true}, .input_count = 1, .inputs = {C(8, 1024, 64)}, .output = C(8, 1024, 576)},
    {.name = "patchify", .kind = UPS_OP_PATCHIFY, .attributes = {.dims = 2, .grid = {128, 128}, .patch = {4, 4}, .channels = 2}, .input_count = 2, .inputs = {S(8, 32768), V(2, 2)}, .output = C(8, 1024, 32)},
    {.name = "mean square error", .kind = UPS_OP_LOSS_MSE, .input_count = 2, .inputs = {S(8, 128, 128), S(8, 128, 128)}, .output = S(8)},
};
const int op_perf_case_count = sizeof op_perf_cases / sizeof *op_perf_cases;
