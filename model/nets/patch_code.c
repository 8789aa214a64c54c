#include "model/nets/patch_code.h"

#include "model/nets/blocks.h"

#include <stdio.h>

void ups_patch_code_cells(const ups_patch_code *code, int64_t cells[3]) {
    for (int axis = 0; axis < 3; axis++) cells[axis] = 1;
    for (int axis = 0; axis < code->field.dims; axis++)
        cells[axis] = (code->field.grid[axis] + code->patch[axis] - 1) / code->patch[axis];
}

int64_t ups_patch_code_tokens(const ups_patch_code *code) {
    int64_t cells[3];
    ups_patch_code_cells(code, cells);
    return cells[0] * cells[1] * cells[2];
}

int64_t ups_patch_code_numbers(const ups_patch_code *code) {
    int64_t numbers = code->field.channels;
    for (int axis = 0; axis < code->field.dims; axis++) numbers *= code->patch[axis];
    return numbers;
}

ups_patch_reading ups_patch_code_reading(const ups_patch_code *code) {
    const ups_field_shape *shape = &code->field;
    ups_patch_reading reading = {.task = shape->task,
                                 .dims = shape->dims,
                                 .channels = shape->channels,
                                 .periodic = shape->periodic,
                                 .hidden = code->between};
    for (int axis = 0; axis < shape->dims; axis++) {
        reading.grid[axis] = shape->grid[axis];
        reading.patch[axis] = code->patch[axis];
    }
    return reading;
}

static const ups_dense_options plain = {.no_bias = true, .no_decay = true, .output_f32 = true};

ups_value ups_patch_encode(ups_graph *g, const ups_patch_code *code, ups_value field, ups_value statistics) {
    char prefix[160];
    const ups_field_shape *shape = &code->field;
    snprintf(prefix, sizeof prefix, "encoder.%s", shape->task);
    ups_graph_scope(g, "%s", prefix);
    ups_value patches = ups_patchify(g, field, statistics, shape->dims, shape->grid, code->patch, shape->channels,
                                     shape->channels_first);
    return ups_dense(g, prefix, "patch", patches, code->dim, plain);
}

ups_value ups_patch_decode(ups_graph *g, const ups_patch_code *code, ups_value latents, ups_value coordinates) {
    char prefix[160];
    const ups_field_shape *shape = &code->field;
    snprintf(prefix, sizeof prefix, "decoder.%s", shape->task);
    ups_value patches = ups_dense(g, prefix, "patch", latents, ups_patch_code_numbers(code), plain);
    const ups_patch_reading reading = ups_patch_code_reading(code);
    return ups_patch_read(g, &reading, patches, coordinates);
}
