/* Constructors of nodes: see the header. */
#include "model/ops.h"

static const float layer_norm_epsilon = 1e-5f;    /* PyTorch's */
static const float rms_norm_epsilon = 1e-6f;      /* also of the heads' q and k */
static const float relative_loss_epsilon = 1e-8f; /* a zero target gives a large, finite loss */

static ups_shape shape_of(const ups_graph *g, ups_value value) {
    return ups_graph_info(g, value)->shape;
}

static ups_dtype dtype_of(const ups_graph *g, ups_value value) {
    return ups_graph_info(g, value)->dtype;
}

static void require_float(const ups_graph *g, ups_op_kind kind, const char *what, ups_value value) {
    ups_dtype dtype = dtype_of(g, value);
    if (dtype != UPS_F32 && dtype != UPS_BF16 && dtype != g->compute) {
        ups_graph_abort(g, ups_op_name(kind), "%s is %s; float32 or bfloat16 was expected", what,
                        ups_dtype_name(dtype));
    }
}

static void require_rank(const ups_graph *g, ups_op_kind kind, const char *what, ups_value value, int rank) {
    if (shape_of(g, value).rank != rank) {
        ups_graph_abort(g, ups_op_name(kind), "%s has rank %d; %d was expected", what, shape_of(g, value).rank, rank);
    }
}

static void require_size(const ups_graph *g, ups_op_kind kind, const char *what, int64_t size, int64_t expected) {
    if (size != expected) {
        ups_graph_abort(g, ups_op_name(kind), "%s is %lld; %lld was expected", what, (long long)size,
                        (long long)expected);
    }
}

/* A vector of `expected` float32 elements, or absent: a gain, a bias. */
static void require_vector(const ups_graph *g, ups_op_kind kind, const char *what, ups_value value, int64_t expected) {
    if (value == UPS_NO_VALUE) return;
    if (dtype_of(g, value) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "%s is not float32", what);
    require_size(g, kind, what, ups_shape_elements(shape_of(g, value)), expected);
}

static void require_same_shape(const ups_graph *g, ups_op_kind kind, ups_value a, ups_value b) {
    ups_shape x = shape_of(g, a), y = shape_of(g, b);
    if (x.rank != y.rank) ups_graph_abort(g, ups_op_name(kind), "ranks %d and %d differ", x.rank, y.rank);
    for (int i = 0; i < x.rank; i++) {
        if (x.size[i] != y.size[i]) {
            ups_graph_abort(g, ups_op_name(kind), "sizes %lld and %lld of axis %d differ", (long long)x.size[i],
                            (long long)y.size[i], i);
        }
    }
}

static ups_shape with_last(ups_shape shape, int64_t last) {
    shape.size[shape.rank - 1] = last;
    return shape;
}

/* What was measured is exact. */
static bool allows_tf32(const ups_graph *g, ups_value weight) {
    const ups_value_info *info = ups_graph_info(g, ups_graph_root(g, weight));
    return g->tf32 && g->compute == UPS_F32 && info->kind == UPS_VALUE_PARAMETER &&
           !ups_parameters_get(g->parameters, info->parameter)->init.fixed;
}

/* One input, same shape and dtype. */
static ups_value pointwise(ups_graph *g, ups_op_kind kind, const ups_op_attributes *attributes, ups_value x) {
    require_float(g, kind, "x", x);
    return ups_graph_append(g, kind, attributes, 1, &x, dtype_of(g, x), shape_of(g, x), 0, NULL);
}

static ups_value linear(ups_graph *g, ups_value x, ups_value weight, ups_value bias, ups_value state, bool output_f32) {
    const ups_op_kind kind = UPS_OP_LINEAR;
    const bool fp8 = state != UPS_NO_VALUE;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "the weight", weight, 2);
    ups_shape w = shape_of(g, weight);
    require_size(g, kind, "the last axis of x", ups_shape_last(shape_of(g, x)), w.size[1]);
    require_vector(g, kind, "the bias", bias, w.size[0]);
    ups_value_kind weight_kind = ups_graph_info(g, ups_graph_root(g, weight))->kind;
    bool exact = weight_kind == UPS_VALUE_CONSTANT && dtype_of(g, weight) == UPS_F32 && output_f32;
    if (weight_kind != UPS_VALUE_PARAMETER && !exact && dtype_of(g, weight) != g->compute) {
        ups_graph_abort(g, ups_op_name(kind), "the weight is neither a parameter nor %s", ups_dtype_name(g->compute));
    }
    ups_op_attributes attributes = {.output_f32 = output_f32, .tf32 = allows_tf32(g, weight), .fp8 = fp8};
    return ups_graph_append(g, kind, &attributes, fp8 ? 4 : 3, (ups_value[]){x, weight, bias, state},
                            output_f32 ? UPS_F32 : g->compute, with_last(shape_of(g, x), w.size[0]), 0, NULL);
}

ups_value ups_linear(ups_graph *g, ups_value x, ups_value weight, ups_value bias, bool output_f32) {
    return linear(g, x, weight, bias, UPS_NO_VALUE, output_f32);
}

ups_value ups_linear_fp8(ups_graph *g, ups_value x, ups_value weight, ups_value bias, ups_value state,
                         bool output_f32) {
    if (g->compute != UPS_BF16) ups_graph_abort(g, ups_op_name(UPS_OP_LINEAR), "FP8 stands in bfloat16 graphs alone");
    require_vector(g, UPS_OP_LINEAR, "what is remembered of its operands", state,
                   (int64_t)UPS_FP8_OPERANDS * UPS_FP8_NUMBERS);
    return linear(g, x, weight, bias, state, output_f32);
}

ups_value ups_layer_norm(ups_graph *g, ups_value x, ups_value gain, ups_value bias, bool output_f32) {
    const ups_op_kind kind = UPS_OP_LAYER_NORM;
    require_float(g, kind, "x", x);
    ups_shape shape = shape_of(g, x);
    require_vector(g, kind, "the gain", gain, ups_shape_last(shape));
    require_vector(g, kind, "the bias", bias, ups_shape_last(shape));
    ups_op_attributes attributes = {.epsilon = layer_norm_epsilon, .output_f32 = output_f32};
    return ups_graph_append(g, kind, &attributes, 3, (ups_value[]){x, gain, bias}, output_f32 ? UPS_F32 : g->compute,
                            shape, 1, &UPS_SHAPE(ups_shape_rows(shape), 2));
}

ups_value ups_rms_norm(ups_graph *g, ups_value x, ups_value gain) {
    const ups_op_kind kind = UPS_OP_RMS_NORM;
    require_float(g, kind, "x", x);
    ups_shape shape = shape_of(g, x);
    require_vector(g, kind, "the gain", gain, ups_shape_last(shape));
    ups_op_attributes attributes = {.epsilon = rms_norm_epsilon};
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, gain}, g->compute, shape, 1,
                            &UPS_SHAPE(ups_shape_rows(shape)));
}

/* (B, D) for x (B, T, D). */
static void require_condition(const ups_graph *g, ups_op_kind kind, const char *what, ups_value condition,
                              ups_value x) {
    require_rank(g, kind, "x", x, 3);
    require_rank(g, kind, what, condition, 2);
    require_float(g, kind, what, condition);
    require_size(g, kind, "the condition's batch", shape_of(g, condition).size[0], shape_of(g, x).size[0]);
    require_size(g, kind, "the condition's width", shape_of(g, condition).size[1], shape_of(g, x).size[2]);
}

ups_value ups_modulate(ups_graph *g, ups_value x, ups_value scale, ups_value shift) {
    const ups_op_kind kind = UPS_OP_MODULATE;
    require_float(g, kind, "x", x);
    require_condition(g, kind, "the scale", scale, x);
    require_condition(g, kind, "the shift", shift, x);
    return ups_graph_append(g, kind, NULL, 3, (ups_value[]){x, scale, shift}, dtype_of(g, x), shape_of(g, x), 0, NULL);
}

ups_value ups_residual(ups_graph *g, ups_value x, ups_value branch, ups_value gate, float drop_path, uint32_t layer) {
    const ups_op_kind kind = UPS_OP_RESIDUAL;
    require_float(g, kind, "x", x);
    require_float(g, kind, "the branch", branch);
    require_rank(g, kind, "x", x, 3);
    require_same_shape(g, kind, x, branch);
    if (gate != UPS_NO_VALUE) require_condition(g, kind, "the gate", gate, x);
    if (!(drop_path >= 0 && drop_path < 1))
        ups_graph_abort(g, ups_op_name(kind), "drop_path %g is not in [0, 1)", drop_path);
    ups_op_attributes attributes = {.drop_path = drop_path, .layer = layer};
    return ups_graph_append(g, kind, &attributes, 3, (ups_value[]){x, branch, gate}, dtype_of(g, x), shape_of(g, x), 0,
                            NULL);
}

ups_value ups_add(ups_graph *g, ups_value x, ups_value z) {
    const ups_op_kind kind = UPS_OP_ADD;
    require_float(g, kind, "x", x);
    require_float(g, kind, "z", z);
    ups_shape a = shape_of(g, x), b = shape_of(g, z);
    bool row = b.rank == 1;
    bool table = b.rank == 2 && a.rank == 3 && b.size[0] == a.size[1];
    bool per_sample = b.rank == 3 && a.rank == 3 && b.size[0] == a.size[0] && b.size[1] == 1;
    if (!row && !table && !per_sample) require_same_shape(g, kind, x, z);
    require_size(g, kind, "the last axis of z", ups_shape_last(b), ups_shape_last(a));
    return ups_graph_append(g, kind, NULL, 2, (ups_value[]){x, z}, dtype_of(g, x), a, 0, NULL);
}

ups_value ups_broadcast(ups_graph *g, ups_value x, int64_t batch) {
    const ups_op_kind kind = UPS_OP_BROADCAST;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 2);
    ups_shape shape = shape_of(g, x);
    ups_op_attributes attributes = {.batch = batch};
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype_of(g, x), UPS_SHAPE(batch, shape.size[0], shape.size[1]),
                            0, NULL);
}

ups_value ups_gelu(ups_graph *g, ups_value x) {
    return pointwise(g, UPS_OP_GELU, NULL, x);
}

ups_value ups_silu(ups_graph *g, ups_value x) {
    return pointwise(g, UPS_OP_SILU, NULL, x);
}

ups_value ups_bound(ups_graph *g, ups_value x, float b, bool inverse) {
    if (dtype_of(g, x) != UPS_F32) ups_graph_abort(g, ups_op_name(UPS_OP_BOUND), "x is not float32");
    if (!(b > 0)) ups_graph_abort(g, ups_op_name(UPS_OP_BOUND), "a bound of %g", (double)b);
    return pointwise(g, UPS_OP_BOUND, &(ups_op_attributes){.factor = b, .inverse = inverse}, x);
}

ups_value ups_round(ups_graph *g, ups_value x) {
    if (dtype_of(g, x) != UPS_F32) ups_graph_abort(g, ups_op_name(UPS_OP_ROUND_F16), "x is not float32");
    return pointwise(g, UPS_OP_ROUND_F16, NULL, x);
}

ups_value ups_scale(ups_graph *g, ups_value x, float factor, ups_value gain) {
    const ups_op_kind kind = UPS_OP_SCALE;
    require_float(g, kind, "x", x);
    require_vector(g, kind, "the gain", gain, ups_shape_last(shape_of(g, x)));
    ups_op_attributes attributes = {.factor = factor};
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, gain}, dtype_of(g, x), shape_of(g, x), 0, NULL);
}

ups_value ups_attention(ups_graph *g, ups_value q, ups_value kv, ups_value gain_q, ups_value gain_k, int heads) {
    const ups_op_kind kind = UPS_OP_ATTENTION;
    bool cross = kv != UPS_NO_VALUE;
    require_float(g, kind, "q", q);
    require_rank(g, kind, "q", q, 3);
    ups_shape shape = shape_of(g, q);
    int64_t batch = shape.size[0], queries = shape.size[1], keys = queries;
    int64_t dim = cross ? shape.size[2] : shape.size[2] / 3;
    if (cross) {
        require_rank(g, kind, "kv", kv, 3);
        require_size(g, kind, "the batch of kv", shape_of(g, kv).size[0], batch);
        require_size(g, kind, "the width of kv", shape_of(g, kv).size[2], 2 * dim);
        if (dtype_of(g, kv) != dtype_of(g, q)) ups_graph_abort(g, ups_op_name(kind), "q and kv differ in dtype");
        keys = shape_of(g, kv).size[1];
    } else {
        require_size(g, kind, "the width of packed q, k, v", shape.size[2], 3 * dim);
    }
    if (heads < 1 || dim % heads != 0) {
        ups_graph_abort(g, ups_op_name(kind), "a width of %lld does not divide into %d heads", (long long)dim, heads);
    }
    if ((gain_q == UPS_NO_VALUE) != (gain_k == UPS_NO_VALUE)) {
        ups_graph_abort(g, ups_op_name(kind), "gains of q and k go together");
    }
    require_vector(g, kind, "the gain of q", gain_q, dim / heads);
    require_vector(g, kind, "the gain of k", gain_k, dim / heads);
    bool normalised = gain_q != UPS_NO_VALUE;
    ups_op_attributes attributes = {.epsilon = rms_norm_epsilon, .heads = heads};
    ups_shape saved[] = {UPS_SHAPE(batch, heads, queries), UPS_SHAPE(batch, queries + keys, heads)};
    return ups_graph_append(g, kind, &attributes, 4, (ups_value[]){q, kv, gain_q, gain_k}, dtype_of(g, q),
                            UPS_SHAPE(batch, queries, dim), normalised ? 2 : 1, saved);
}

ups_value ups_self_attention(ups_graph *g, ups_value qkv, const ups_attention_options *options) {
    const ups_op_kind kind = UPS_OP_ATTENTION;
    require_float(g, kind, "q", qkv);
    require_rank(g, kind, "q", qkv, 3);
    ups_shape shape = shape_of(g, qkv);
    int64_t batch = shape.size[0], tokens = shape.size[1], dim = shape.size[2] / 3, offsets = 1, cells = 1;
    int heads = options->heads, groups = options->groups > 1 ? options->groups : 1;
    require_size(g, kind, "the width of packed q, k, v", shape.size[2], 3 * dim);
    if (heads < 1 || dim % heads != 0 || heads % groups != 0) {
        ups_graph_abort(g, ups_op_name(kind), "a width of %lld does not divide into %d heads in %d groups",
                        (long long)dim, heads, groups);
    }
    if ((options->gain_q == UPS_NO_VALUE) != (options->gain_k == UPS_NO_VALUE)) {
        ups_graph_abort(g, ups_op_name(kind), "gains of q and k go together");
    }
    require_vector(g, kind, "the gain of q", options->gain_q, dim / heads);
    require_vector(g, kind, "the gain of k", options->gain_k, dim / heads);
    const bool own = options->rotary != UPS_NO_VALUE && shape_of(g, options->rotary).rank == 3; /* of each sample */
    require_vector(g, kind, "the number of angles", options->rotary, (own ? batch : 1) * tokens * (dim / heads));
    if (options->rotary != UPS_NO_VALUE) require_size(g, kind, "what is left of a head's pairs", dim / heads % 2, 0);
    ups_op_attributes attributes = {.epsilon = rms_norm_epsilon, .heads = heads, .groups = groups};
    attributes.dims = options->dims;
    attributes.periodic = options->periodic;
    for (int i = 0; i < options->dims; i++) {
        int64_t window = options->window[i], shift = options->shift[i];
        if (window < 1 || shift < 0 || shift >= window) {
            ups_graph_abort(g, ups_op_name(kind), "a window of %lld cells, shifted by %lld", (long long)window,
                            (long long)shift);
        }
        attributes.grid[i] = options->cells[i];
        attributes.patch[i] = window;
        attributes.shift[i] = shift;
        cells *= options->cells[i];
        offsets *= 2 * window - 1;
    }
    if (options->dims > 0) require_size(g, kind, "the number of cells", tokens, cells);
    if (options->dims == 0 && options->bias != UPS_NO_VALUE) {
        ups_graph_abort(g, ups_op_name(kind), "a bias without windows");
    }
    require_vector(g, kind, "the bias", options->bias, offsets * heads);
    bool normalised = options->gain_q != UPS_NO_VALUE;
    ups_shape saved[] = {UPS_SHAPE(batch, heads, tokens), UPS_SHAPE(batch, 2 * tokens, heads)};
    ups_value inputs[] = {qkv, UPS_NO_VALUE, options->gain_q, options->gain_k, options->rotary, options->bias};
    return ups_graph_append(g, kind, &attributes, 6, inputs, dtype_of(g, qkv), UPS_SHAPE(batch, tokens, dim),
                            normalised ? 2 : 1, saved);
}

ups_value ups_slice(ups_graph *g, ups_value x, int64_t offset, int64_t length) {
    const ups_op_kind kind = UPS_OP_SLICE;
    require_float(g, kind, "x", x);
    ups_shape shape = shape_of(g, x);
    if (offset < 0 || length < 1 || offset + length > ups_shape_last(shape)) {
        ups_graph_abort(g, ups_op_name(kind), "[%lld, %lld) is not within an axis of %lld", (long long)offset,
                        (long long)(offset + length), (long long)ups_shape_last(shape));
    }
    ups_op_attributes attributes = {.offset = offset, .length = length};
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype_of(g, x), with_last(shape, length), 0, NULL);
}

ups_value ups_select_frame(ups_graph *g, ups_value x, int64_t frame) {
    const ups_op_kind kind = UPS_OP_SELECT_FRAME;
    ups_dtype dtype = dtype_of(g, x);
    if (dtype != UPS_F16) require_float(g, kind, "x", x);
    ups_shape shape = shape_of(g, x);
    if (shape.rank < 2 || frame < 0 || frame >= shape.size[1]) {
        ups_graph_abort(g, ups_op_name(kind), "there is no frame %lld", (long long)frame);
    }
    ups_shape selected = {.rank = shape.rank - 1, .size = {shape.size[0]}};
    for (int i = 1; i < selected.rank; i++) selected.size[i] = shape.size[i + 1];
    ups_op_attributes attributes = {.frame = frame};
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype == UPS_F16 ? UPS_F32 : dtype, selected, 0, NULL);
}

/* A float32 field (B, points·C) and its statistics (C, 2), which may be absent. */
static void require_field(const ups_graph *g, ups_op_kind kind, ups_value field, ups_value statistics,
                          int64_t channels) {
    require_rank(g, kind, "the field", field, 2);
    if (dtype_of(g, field) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "the field is not float32");
    if (channels < 1 || shape_of(g, field).size[1] % channels != 0) {
        ups_graph_abort(g, ups_op_name(kind), "a field of %lld values does not divide into %lld channels",
                        (long long)shape_of(g, field).size[1], (long long)channels);
    }
    require_vector(g, kind, "the number of statistics", statistics, 2 * channels);
}

ups_value ups_patchify(ups_graph *g, ups_value field, ups_value statistics, int dims, const int64_t *grid,
                       const int64_t *patch, int64_t channels, bool channels_first) {
    const ups_op_kind kind = UPS_OP_PATCHIFY;
    require_field(g, kind, field, statistics, channels);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    ups_op_attributes attributes = {.dims = dims, .channels = channels, .channels_first = channels_first};
    int64_t points = 1, patches = 1, patch_points = 1;
    for (int i = 0; i < dims; i++) {
        if (grid[i] < 1 || patch[i] < 1) ups_graph_abort(g, ups_op_name(kind), "an empty grid or patch");
        attributes.grid[i] = grid[i];
        attributes.patch[i] = patch[i];
        points *= grid[i];
        patch_points *= patch[i];
        patches *= (grid[i] + patch[i] - 1) / patch[i];
    }
    require_size(g, kind, "the field's number of values", shape_of(g, field).size[1], points * channels);
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){field, statistics}, g->compute,
                            UPS_SHAPE(shape_of(g, field).size[0], patches, patch_points * channels), 0, NULL);
}

ups_value ups_neighborhood(ups_graph *g, ups_value x, int dims, const int64_t *cells, bool periodic) {
    const ups_op_kind kind = UPS_OP_NEIGHBORHOOD;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    ups_shape shape = shape_of(g, x);
    ups_op_attributes attributes = {.dims = dims, .periodic = periodic};
    int64_t count = 1, taps = 1;
    for (int i = 0; i < dims; i++) {
        attributes.grid[i] = cells[i];
        count *= cells[i];
        taps *= 3;
    }
    require_size(g, kind, "the number of cells", shape.size[1], count);
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype_of(g, x), with_last(shape, taps * shape.size[2]), 0,
                            NULL);
}

ups_value ups_depthwise(ups_graph *g, ups_value x, ups_value weight, int dims, const int64_t *cells, int size,
                        bool periodic) {
    const ups_op_kind kind = UPS_OP_DEPTHWISE;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    if (size != 3 && size != 5 && size != 7) ups_graph_abort(g, ups_op_name(kind), "a kernel of %d cells", size);
    ups_shape shape = shape_of(g, x);
    ups_op_attributes attributes = {.dims = dims, .periodic = periodic};
    int64_t count = 1, taps = 1;
    for (int i = 0; i < dims; i++) {
        attributes.grid[i] = cells[i];
        attributes.patch[i] = size;
        count *= cells[i];
        taps *= size;
    }
    require_size(g, kind, "the number of cells", shape.size[1], count);
    require_vector(g, kind, "the weight", weight, taps * shape.size[2]);
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, weight}, dtype_of(g, x), shape, 0, NULL);
}

/* Coarsen and refine: from a finer grid, or to it. */
static ups_value resample(ups_graph *g, ups_op_kind kind, ups_value x, int dims, const int64_t *cells, bool periodic) {
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    ups_shape shape = shape_of(g, x);
    ups_op_attributes attributes = {.dims = dims, .periodic = periodic};
    int64_t fine = 1, coarse = 1;
    for (int i = 0; i < dims; i++) {
        attributes.grid[i] = cells[i];
        fine *= cells[i];
        coarse *= (cells[i] + 1) / 2;
    }
    bool refine = kind == UPS_OP_REFINE;
    require_size(g, kind, "the number of cells", shape.size[1], refine ? coarse : fine);
    shape.size[1] = refine ? fine : coarse;
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype_of(g, x), shape, 0, NULL);
}

ups_value ups_coarsen(ups_graph *g, ups_value x, int dims, const int64_t *cells) {
    return resample(g, UPS_OP_COARSEN, x, dims, cells, false);
}

ups_value ups_refine(ups_graph *g, ups_value x, int dims, const int64_t *cells, bool periodic) {
    return resample(g, UPS_OP_REFINE, x, dims, cells, periodic);
}

ups_value ups_pool_tokens(ups_graph *g, ups_value x, int64_t tokens) {
    const ups_op_kind kind = UPS_OP_POOL_TOKENS;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    ups_shape shape = shape_of(g, x);
    return ups_graph_append(g, kind, NULL, 1, &x, dtype_of(g, x), UPS_SHAPE(shape.size[0], tokens, shape.size[2]), 0,
                            NULL);
}

ups_value ups_gather_points(ups_graph *g, ups_value field, ups_value index, ups_value statistics, int64_t channels,
                            bool channels_first) {
    const ups_op_kind kind = UPS_OP_GATHER_POINTS;
    require_field(g, kind, field, statistics, channels);
    require_rank(g, kind, "the index", index, 1);
    if (dtype_of(g, index) != UPS_I32) ups_graph_abort(g, ups_op_name(kind), "the index is not int32");
    ups_op_attributes attributes = {.channels = channels, .channels_first = channels_first};
    return ups_graph_append(g, kind, &attributes, 3, (ups_value[]){field, index, statistics}, UPS_F32,
                            UPS_SHAPE(shape_of(g, field).size[0], shape_of(g, index).size[0], channels), 0, NULL);
}

ups_value ups_read_patches(ups_graph *g, ups_value x, ups_value coordinates, int dims, const int64_t *grid,
                           const int64_t *patch, int64_t channels, bool periodic) {
    const ups_op_kind kind = UPS_OP_READ_PATCHES;
    require_rank(g, kind, "x", x, 3);
    require_rank(g, kind, "the coordinates", coordinates, 2);
    if (dtype_of(g, x) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "x is not float32");
    if (dtype_of(g, coordinates) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "the coordinates are not float32");
    require_size(g, kind, "the number of coordinates", shape_of(g, coordinates).size[1], dims);
    ups_op_attributes attributes = {.dims = dims, .channels = channels, .periodic = periodic};
    int64_t patches = 1, numbers = channels;
    for (int i = 0; i < dims; i++) {
        if (grid[i] < 1 || patch[i] < 1) ups_graph_abort(g, ups_op_name(kind), "an empty grid or patch");
        attributes.grid[i] = grid[i];
        attributes.patch[i] = patch[i];
        patches *= (grid[i] + patch[i] - 1) / patch[i];
        numbers *= patch[i];
    }
    require_size(g, kind, "the number of patches", shape_of(g, x).size[1], patches);
    require_size(g, kind, "the numbers of a patch", shape_of(g, x).size[2], numbers);
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, coordinates}, UPS_F32,
                            UPS_SHAPE(shape_of(g, x).size[0], shape_of(g, coordinates).size[0], channels), 0, NULL);
}

ups_value ups_weigh_points(ups_graph *g, ups_value x, ups_value weights, int64_t rows) {
    const ups_op_kind kind = UPS_OP_WEIGH;
    require_rank(g, kind, "x", x, 3);
    require_rank(g, kind, "the weights", weights, 2);
    ups_shape shape = shape_of(g, x);
    if (dtype_of(g, x) != UPS_F32 || dtype_of(g, weights) != UPS_F32)
        ups_graph_abort(g, ups_op_name(kind), "x or the weights are not float32");
    const int64_t groups = rows > 0 ? shape.size[1] / rows : 0;
    if (groups < 1 || groups * rows != shape.size[1])
        ups_graph_abort(g, ups_op_name(kind), "x has no multiple of %lld rows", (long long)rows);
    require_size(g, kind, "the weights' rows", shape_of(g, weights).size[0], shape.size[1]);
    require_size(g, kind, "the weights' width", shape_of(g, weights).size[1], shape.size[2]);
    ups_op_attributes attributes = {.length = rows};
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, weights}, UPS_F32,
                            UPS_SHAPE(shape.size[0], groups, shape.size[2]), 0, NULL);
}

ups_value ups_fourier(ups_graph *g, ups_value coordinates, const float *frequencies, int count) {
    const ups_op_kind kind = UPS_OP_FOURIER;
    require_rank(g, kind, "the coordinates", coordinates, 2);
    if (dtype_of(g, coordinates) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "the coordinates are not float32");
    if (count < 0 || count > UPS_MAX_FREQUENCIES) ups_graph_abort(g, ups_op_name(kind), "%d frequencies", count);
    ups_op_attributes attributes = {.frequency_count = count};
    for (int i = 0; i < count; i++) attributes.frequencies[i] = frequencies[i];
    ups_shape shape = shape_of(g, coordinates);
    return ups_graph_append(g, kind, &attributes, 1, &coordinates, g->compute,
                            with_last(shape, shape.size[1] * (1 + 2 * count)), 0, NULL);
}

ups_value ups_angles(ups_graph *g, ups_value places, int64_t width) {
    const ups_op_kind kind = UPS_OP_ANGLES;
    if (dtype_of(g, places) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "the places are not float32");
    require_size(g, kind, "what is left of pairs", width % 2, 0);
    return ups_graph_append(g, kind, &(ups_op_attributes){0}, 1, &places, UPS_F32,
                            with_last(shape_of(g, places), width), 0, NULL);
}

/* `inner`: 0, or how many lines lie side by side. */
static ups_value mix_modes(ups_graph *g, ups_value x, ups_value weight, const ups_value *tables, int dims,
                           const int64_t *modes, int64_t inner) {
    const ups_op_kind kind = UPS_OP_SPECTRAL;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    require_rank(g, kind, "the weight", weight, 3);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    ups_op_attributes attributes = {.dims = dims, .length = inner, .tf32 = allows_tf32(g, weight)};
    ups_value inputs[] = {x, weight, UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE};
    ups_shape shape = shape_of(g, x), matrices = shape_of(g, weight);
    int64_t cells = 1, rows = 1, all = 1, parts = 1;
    for (int axis = 0; axis < dims; axis++) {
        require_rank(g, kind, "a table", tables[axis], 2);
        ups_shape table = shape_of(g, tables[axis]);
        if (dtype_of(g, tables[axis]) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "a table is not float32");
        if (table.size[0] % 2 != 0 || table.size[0] / 2 > modes[axis]) {
            ups_graph_abort(g, ups_op_name(kind), "a table of %lld rows for at most %lld modes",
                            (long long)table.size[0], (long long)modes[axis]);
        }
        inputs[2 + axis] = tables[axis];
        attributes.modes[axis] = modes[axis];
        rows *= table.size[0];
        cells *= table.size[1];
        all *= modes[axis];
        parts *= 2;
    }
    if (inner > 0) { /* of lines: as many as it takes for all tokens */
        require_size(g, kind, "tokens beside whole lines", shape.size[1] % (cells * inner), 0);
        rows *= shape.size[1] / cells;
        cells = shape.size[1];
    }
    require_size(g, kind, "the number of tokens", shape.size[1], cells);
    require_size(g, kind, "the number of modes", matrices.size[0], all);
    require_size(g, kind, "the height of a mode's matrices", matrices.size[1], parts * shape.size[2]);
    require_size(g, kind, "the width of a mode's matrices", matrices.size[2], shape.size[2]);
    if (dtype_of(g, weight) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "the weight is not float32");
    return ups_graph_append(g, kind, &attributes, 2 + dims, inputs, dtype_of(g, x), shape, 1,
                            &UPS_SHAPE(shape.size[0], rows, shape.size[2]));
}

ups_value ups_spectral(ups_graph *g, ups_value x, ups_value weight, const ups_value *tables, int dims,
                       const int64_t *modes) {
    return mix_modes(g, x, weight, tables, dims, modes, 0);
}

ups_value ups_spectral_lines(ups_graph *g, ups_value x, ups_value weight, ups_value table, int64_t inner,
                             int64_t modes) {
    if (inner < 1) ups_graph_abort(g, ups_op_name(UPS_OP_SPECTRAL), "%lld lines side by side", (long long)inner);
    return mix_modes(g, x, weight, &table, 1, &modes, inner);
}

static ups_value sample_loss(ups_graph *g, ups_op_kind kind, const ups_op_attributes *attributes, ups_value prediction,
                             ups_value target) {
    require_float(g, kind, "the prediction", prediction);
    require_float(g, kind, "the target", target);
    require_same_shape(g, kind, prediction, target);
    return ups_graph_append(g, kind, attributes, 2, (ups_value[]){prediction, target}, UPS_F32,
                            UPS_SHAPE(shape_of(g, prediction).size[0]), 0, NULL);
}

ups_value ups_field_modes(ups_graph *g, ups_value x, int dims, const int64_t *grid, bool periodic) {
    const ups_op_kind kind = UPS_OP_FIELD_MODES;
    require_rank(g, kind, "x", x, 2);
    if (dtype_of(g, x) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "x is not float32");
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    ups_op_attributes attributes = {.dims = dims, .periodic = periodic};
    int64_t points = 1;
    for (int i = 0; i < dims; i++) {
        if (grid[i] < 1) ups_graph_abort(g, ups_op_name(kind), "an empty grid");
        attributes.grid[i] = grid[i];
        points *= grid[i];
    }
    const int64_t numbers = shape_of(g, x).size[1];
    require_size(g, kind, "the field's number of values", numbers,
                 numbers < points ? points : numbers / points * points);
    return ups_graph_append(g, kind, &attributes, 1, &x, UPS_F32, shape_of(g, x), 0, NULL);
}

ups_value ups_loss_mse(ups_graph *g, ups_value prediction, ups_value target) {
    return sample_loss(g, UPS_OP_LOSS_MSE, NULL, prediction, target);
}

ups_value ups_loss_relative(ups_graph *g, ups_value prediction, ups_value target) {
    return sample_loss(g, UPS_OP_LOSS_RELATIVE, &(ups_op_attributes){.epsilon = relative_loss_epsilon}, prediction,
                       target);
}

ups_value ups_loss_grouped(ups_graph *g, ups_value prediction, ups_value target, ups_value group, ups_value table,
                           float least) {
    const ups_op_kind kind = UPS_OP_LOSS_GROUPED;
    require_float(g, kind, "the prediction", prediction);
    require_float(g, kind, "the target", target);
    require_same_shape(g, kind, prediction, target);
    ups_shape shape = shape_of(g, prediction);
    if (!(least > 0)) ups_graph_abort(g, ups_op_name(kind), "the least norm of a target is %g", (double)least);
    if (dtype_of(g, group) != UPS_I32) ups_graph_abort(g, ups_op_name(kind), "the groups are not int32");
    require_size(g, kind, "the number of groups' numbers", ups_shape_elements(shape_of(g, group)),
                 ups_shape_elements(shape) / shape.size[0]);
    require_rank(g, kind, "the table", table, 2);
    require_vector(g, kind, "the number of the table's columns", table, 2 * shape_of(g, table).size[0]);
    ups_op_attributes attributes = {.factor = least};
    return ups_graph_append(g, kind, &attributes, 4, (ups_value[]){prediction, target, group, table}, UPS_F32,
                            UPS_SHAPE(shape.size[0]), 0, NULL);
}

ups_value ups_loss_negative(ups_graph *g, ups_value x) {
    const ups_op_kind kind = UPS_OP_LOSS_NEGATIVE;
    require_float(g, kind, "x", x);
    return ups_graph_append(g, kind, NULL, 1, &x, UPS_F32, UPS_SHAPE(shape_of(g, x).size[0]), 0, NULL);
}

ups_value ups_loss_covariance(ups_graph *g, ups_value x, bool diagonal) {
    const ups_op_kind kind = UPS_OP_LOSS_COVARIANCE;
    require_float(g, kind, "x", x);
    require_rank(g, kind, "x", x, 3);
    ups_shape shape = shape_of(g, x);
    ups_op_attributes attributes = {.diagonal = diagonal};
    return ups_graph_append(g, kind, &attributes, 1, &x, UPS_F32, UPS_SHAPE(shape.size[0]), 1,
                            &UPS_SHAPE(shape.size[2] + 1, shape.size[2]));
}

ups_value ups_noise(ups_graph *g, ups_value x, float deviation, ups_value gain, uint32_t layer) {
    const ups_op_kind kind = UPS_OP_NOISE;
    require_float(g, kind, "x", x);
    require_vector(g, kind, "the gain", gain, ups_shape_last(shape_of(g, x)));
    ups_op_attributes attributes = {.factor = deviation, .layer = layer};
    return ups_graph_append(g, kind, &attributes, 2, (ups_value[]){x, gain}, dtype_of(g, x), shape_of(g, x), 0, NULL);
}

ups_value ups_shift(ups_graph *g, ups_value x, int dims, const int64_t *cells) {
    const ups_op_kind kind = UPS_OP_SHIFT;
    require_float(g, kind, "x", x);
    ups_shape shape = shape_of(g, x);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    if (shape.rank < 3) ups_graph_abort(g, ups_op_name(kind), "x has rank %d; 3 or more was expected", shape.rank);
    ups_op_attributes attributes = {.dims = dims};
    int64_t count = 1;
    for (int i = 0; i < dims; i++) count *= attributes.grid[i] = cells[i];
    require_size(g, kind, "the number of cells", shape.size[shape.rank - 2], count);
    return ups_graph_append(g, kind, &attributes, 1, &x, dtype_of(g, x), shape, 0, NULL);
}

int64_t ups_symmetry_count(int dims, bool exchanges) {
    const int64_t orders = dims == 3 ? 6 : dims; /* dims! */
    return ((int64_t)1 << dims) * (exchanges ? orders : 1);
}

ups_value ups_symmetry(ups_graph *g, ups_value x, int dims, const int64_t *cells, ups_value source, ups_value table) {
    const ups_op_kind kind = UPS_OP_SYMMETRY;
    ups_shape shape = shape_of(g, x), sources = shape_of(g, source);
    if (dims < 1 || dims > 3) ups_graph_abort(g, ups_op_name(kind), "%d grid axes", dims);
    if (shape.rank < 3) ups_graph_abort(g, ups_op_name(kind), "x has rank %d; 3 or more was expected", shape.rank);
    require_rank(g, kind, "the sources", source, 2);
    if (dtype_of(g, source) != UPS_I32 || dtype_of(g, table) != UPS_F32 || dtype_of(g, x) != UPS_F32)
        ups_graph_abort(g, ups_op_name(kind), "the sources are not int32, or x or the table is not float32");
    ups_op_attributes attributes = {.dims = dims};
    int64_t count = 1;
    bool alike = true;
    for (int i = 0; i < dims; i++) {
        count *= attributes.grid[i] = cells[i];
        alike = alike && cells[i] == cells[0];
    }
    require_size(g, kind, "the number of cells", shape.size[shape.rank - 2], count);
    require_size(g, kind, "numbers of a cell with a source", sources.size[1], ups_shape_last(shape));
    if (sources.size[0] != ups_symmetry_count(dims, false) &&
        !(alike && sources.size[0] == ups_symmetry_count(dims, true)))
        ups_graph_abort(g, ups_op_name(kind), "%lld symmetries of a grid of %d axes", (long long)sources.size[0], dims);
    require_size(g, kind, "the table's numbers", ups_shape_elements(shape_of(g, table)),
                 2 * ups_shape_elements(sources));
    return ups_graph_append(g, kind, &attributes, 3, (ups_value[]){x, source, table}, UPS_F32, shape, 0, NULL);
}

ups_value ups_weighted_sum(ups_graph *g, const ups_value *losses, const float *weights, int count) {
    const ups_op_kind kind = UPS_OP_WEIGHTED_SUM;
    if (count < 1 || count > UPS_MAX_INPUTS) ups_graph_abort(g, ups_op_name(kind), "%d terms", count);
    ups_op_attributes attributes = {0};
    for (int i = 0; i < count; i++) {
        require_rank(g, kind, "a loss", losses[i], 1);
        if (dtype_of(g, losses[i]) != UPS_F32) ups_graph_abort(g, ups_op_name(kind), "a loss is not float32");
        attributes.weights[i] = weights[i];
    }
    return ups_graph_append(g, kind, &attributes, count, losses, UPS_F32, UPS_SHAPE(1), 0, NULL);
}

ups_value ups_cast(ups_graph *g, ups_value x, ups_dtype dtype) {
    const ups_op_kind kind = UPS_OP_CAST;
    if (dtype_of(g, x) != UPS_F16) require_float(g, kind, "x", x);
    if (dtype != UPS_F32 && dtype != UPS_BF16 && dtype != UPS_F16) {
        ups_graph_abort(g, ups_op_name(kind), "values become float32, bfloat16 or float16, not %s",
                        ups_dtype_name(dtype));
    }
    return ups_graph_append(g, kind, &(ups_op_attributes){.dtype = dtype}, 1, &x, dtype, shape_of(g, x), 0, NULL);
}
