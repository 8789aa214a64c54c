#include "train/networks.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"
#include "model/nets/patch_code.h"
#include "model/parameters/safetensors.h"
#include "train/precision.h"
#include <stdio.h>
#include <string.h>

ups_dtype ups_run_compute(const ups_run_config *config) {
    return ups_precision_dtype(ups_precision_resolve(config->precision, config->device.name));
}

ups_graph *ups_run_graph(const ups_run_config *config, ups_parameters *parameters) {
    ups_graph *graph = ups_graph_create(parameters, ups_run_compute(config));
    graph->tf32 = ups_precision_allows_tf32(config->precision);
    return graph;
}

void ups_run_allow_fp8(const ups_run_config *config, ups_graph *graph) {
    if (!ups_precision_allows_fp8(config->precision)) return;
    graph->fp8_layers = (const char *const *)config->fp8_layers;
    graph->fp8_layer_count = config->fp8_layer_count;
}

int64_t ups_task_steps(const ups_task *task) {
    return (task->geometry.times - 1) / task->config->stride;
}

int64_t ups_task_points(const ups_task *task) {
    return ups_sample_frame_elements(&task->geometry) / task->geometry.channels;
}

static ups_field_shape field_of(const ups_task *task) {
    const ups_sample *geometry = &task->geometry;
    ups_field_shape field = {.task = task->name,
                             .dims = geometry->dims,
                             .channels = geometry->channels,
                             .channels_first = geometry->order == UPS_CHANNELS_FIRST,
                             .periodic = geometry->periodic};
    for (int a = 0; a < geometry->dims; a++) field.grid[a] = geometry->grid[a];
    return field;
}

/* The stem works on as many channels as a patch has values, within bounds that keep small patches able and large ones
 * cheap. */
static int64_t stem_width(const ups_task *task) {
    int64_t values = task->geometry.channels;
    for (int a = 0; a < task->geometry.dims; a++) values *= task->patch[a];
    return values < 16 ? 16 : values > 128 ? 128 : values;
}

static ups_patch_code patch_code_of(const ups_run_config *config, const ups_task *task) {
    ups_patch_code code = {
        .field = field_of(task), .dim = ups_task_latents(config, task).dim, .between = config->model.decoder.between};
    if (task->geometry.points) code.between = 0; /* values are those of points, and none lies between them */
    for (int a = 0; a < task->geometry.dims; a++) code.patch[a] = task->patch[a];
    return code;
}

static ups_encoder_options encoder_of(const ups_run_config *config, const ups_task *task) {
    const ups_encoder_config *encoder = &config->model.encoder;
    ups_encoder_options options = ups_encoder_defaults();
    for (int a = 0; a < task->geometry.dims; a++) options.patch[a] = task->patch[a];
    options.width = encoder->width;
    options.stem_width = stem_width(task);
    options.tokens = config->model.tokens;
    options.dim = config->model.dim;
    options.pooling = encoder->pooling;
    options.depth = (int)encoder->depth;
    options.heads = (int)encoder->heads;
    options.mlp_ratio = (float)encoder->mlp_ratio;
    options.frequency_count = (int)encoder->frequency_count;
    for (unsigned f = 0; f < encoder->frequency_count; f++) options.frequencies[f] = encoder->frequencies[f];
    return options;
}

static ups_decoder_options decoder_of(const ups_run_config *config, const ups_task *task) {
    const ups_decoder_config *decoder = &config->model.decoder;
    ups_decoder_options options = ups_decoder_defaults();
    options.tokens = config->model.tokens;
    options.dim = config->model.dim;
    options.hidden = decoder->hidden;
    options.depth = (int)decoder->depth;
    options.heads = (int)decoder->heads;
    options.mlp_ratio = (float)decoder->mlp_ratio;
    options.qk_norm = decoder->qk_norm;
    options.position = decoder->position && config->model.encoder.pooling == UPS_POOL_MEAN; /* queries have no place */
    options.frequency_count = 0;
    for (unsigned f = 0; f < decoder->frequency_count; f++) {
        bool held = f == 0 || (double)decoder->frequencies[f] <= task->finest_frequency;
        if (held) options.frequencies[options.frequency_count++] = decoder->frequencies[f];
    }
    return options;
}

ups_operator_options ups_run_core(const ups_run_config *config) {
    const ups_core_config *core = &config->model.core;
    ups_operator_options options = ups_operator_defaults();
    options.tokens = config->model.tokens;
    options.dim = config->model.dim > 0 ? config->model.dim : 1; /* not decided yet */
    if (ups_run_on_grid(config)) {                               /* of any task */
        options.tokens = 1;
        options.grid = (ups_token_grid){.task = "", .dims = 1, .cells = {1}};
    }
    for (int d = 0; d < 3; d++) { /* the last one given counts for those that are not */
        options.modes[d] = core->modes[d < (int)core->mode_count ? d : (int)core->mode_count - 1];
        options.window[d] = core->window[d < (int)core->window_count ? d : (int)core->window_count - 1];
    }
    options.level_count = (int)core->depth_count;
    for (int l = 0; l < options.level_count; l++) options.depths[l] = (int)core->depths[l];
    options.attention = core->attention;
    options.positions = core->positions;
    options.mixing_count = (int)core->mixing_count;
    for (int m = 0; m < options.mixing_count; m++) options.mixing[m] = core->mixing[m];
    for (unsigned h = 0; h < core->task_specific_count; h++) options.task_specific[core->task_specific[h]] = true;
    options.attended_tokens = core->attended_tokens;
    options.merge_above = core->merge_above;
    options.convolution = (int)core->convolution;
    options.factorized = core->factorized;
    options.core = core->name;
    options.hidden = core->hidden;
    options.depth = (int)core->depth;
    options.heads = (int)core->heads;
    options.mlp_ratio = (float)core->mlp_ratio;
    options.drop_path = (float)core->drop_path;
    options.qk_norm = core->qk_norm;
    options.update_norm = core->update_norm;
    options.residual = core->residual;
    options.boundary = core->boundary && core->condition;
    options.conserve = core->conserve;
    options.neighbors = core->linear == UPS_LINEAR_NEIGHBORS;
    options.history = core->history;
    options.bundle = core->bundle;
    return options;
}

ups_operator_options ups_run_operator(const ups_run_config *config, const ups_tasks *tasks, const ups_task *task) {
    ups_operator_options options = ups_run_core(config);
    if (ups_run_on_grid(config)) {
        ups_latent_shape latents = ups_task_latents(config, task);
        ups_patch_code code = patch_code_of(config, task);
        options.tokens = latents.tokens;
        options.dim = latents.dim;
        options.grid =
            (ups_token_grid){.task = task->name, .dims = task->geometry.dims, .periodic = task->geometry.periodic};
        if (task->geometry.points) {
            options.grid.scattered = true;
            options.grid.place_dims = task->geometry.points->dims;
            options.grid.bound = (float)config->model.bound;
            options.grid.places = task->places;
            options.grid.offsets = task->offsets;
            options.grid.offset_count = task->patch[0] * task->geometry.points->dims;
        }
        if (task->config->stride_count > 0) options.grid.stride = task->config->stride;
        ups_patch_code_cells(&code, options.grid.cells);
        options.bundle = ups_run_bundle(config, task->config);
        if (ups_task_steps(task) < 2) options.history = options.bundle = 1;
    }
    if (config->model.core.condition) {
        options.parameter_count = ups_tasks_parameter_count(tasks);
        options.task_count = tasks->count;
    }
    return options;
}

ups_status ups_networks_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    for (int t = 0; t < tasks->count; t++) {
        if (tasks->task[t].geometry.points && !ups_run_on_grid(config))
            return ups_fail(error, UPS_ERR_CONFIG,
                            "task %s: its points lie anywhere, and tokens are runs of them; set model.tokens: grid",
                            tasks->task[t].name);
        ups_operator_options core = ups_run_operator(config, tasks, &tasks->task[t]);
        UPS_TRY(ups_operator_check(&core, error));
        if (ups_run_on_grid(config)) continue;
        ups_encoder_options encoder = encoder_of(config, &tasks->task[t]);
        UPS_TRY(ups_encoder_check(&encoder, error));
        ups_decoder_options decoder = decoder_of(config, &tasks->task[t]);
        UPS_TRY(ups_decoder_check(&decoder, error));
    }
    return UPS_OK;
}

ups_value ups_networks_statistics(ups_graph *graph, const ups_task *task) {
    int64_t channels = task->geometry.channels;
    ups_value known = ups_graph_find(graph, "statistics");
    if (known != UPS_NO_VALUE) return known;
    if (task->statistics) {
        return ups_graph_constant(graph, "statistics", UPS_F32, UPS_SHAPE(channels, 2), task->statistics);
    }
    const float *none = UPS_ARENA_ARRAY(graph->arena, float, 2 * channels); /* a plan is made before measuring */
    return ups_graph_constant(graph, "statistics", UPS_F32, UPS_SHAPE(channels, 2), none);
}

static ups_value bounded(ups_graph *graph, const ups_run_config *config, ups_value latents) {
    return config->model.bound > 0 ? ups_bound(graph, latents, (float)config->model.bound, false) : latents;
}

ups_value ups_networks_encode(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value field) {
    if (ups_run_on_grid(config)) {
        ups_patch_code code = patch_code_of(config, task);
        return bounded(graph, config, ups_patch_encode(graph, &code, field, ups_networks_statistics(graph, task)));
    }
    ups_encoder_options options = encoder_of(config, task);
    ups_field_shape shape = field_of(task);
    ups_value statistics = ups_networks_statistics(graph, task);
    return bounded(graph, config, ups_encoder_build(graph, &options, &shape, field, statistics));
}

ups_value ups_networks_encode_normalised(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                         ups_value field) {
    if (ups_run_on_grid(config)) {
        ups_patch_code code = patch_code_of(config, task);
        code.field.channels_first = false;
        return bounded(graph, config, ups_patch_encode(graph, &code, field, UPS_NO_VALUE));
    }
    ups_encoder_options options = encoder_of(config, task);
    ups_field_shape shape = field_of(task);
    shape.channels_first = false;
    return bounded(graph, config, ups_encoder_build(graph, &options, &shape, field, UPS_NO_VALUE));
}

static ups_value decode(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value latents,
                        ups_value coordinates, bool at_grid_points) {
    if (config->model.bound > 0) latents = ups_bound(graph, latents, (float)config->model.bound, true);
    if (ups_run_on_grid(config)) {
        ups_patch_code code = patch_code_of(config, task);
        if (at_grid_points) code.between = 0; /* the correction is nothing there */
        return ups_patch_decode(graph, &code, latents, coordinates);
    }
    ups_decoder_options options = decoder_of(config, task);
    ups_value places = UPS_NO_VALUE;
    if (options.position) {
        places = ups_graph_find(graph, "token_coordinates");
        if (places == UPS_NO_VALUE) {
            ups_encoder_options encoder = encoder_of(config, task);
            ups_field_shape shape = field_of(task);
            float *host = UPS_ARENA_ARRAY(graph->arena, float, options.tokens *shape.dims);
            ups_encoder_token_coordinates(&encoder, &shape, host);
            places =
                ups_graph_constant(graph, "token_coordinates", UPS_F32, UPS_SHAPE(options.tokens, shape.dims), host);
        }
    }
    return ups_decoder_build(graph, &options, task->name, task->geometry.channels, latents, coordinates, places);
}

ups_value ups_networks_decode(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value latents,
                              ups_value coordinates) {
    return decode(graph, config, task, latents, coordinates, false);
}

ups_value ups_networks_decode_at_grid_points(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                             ups_value latents, ups_value coordinates) {
    return decode(graph, config, task, latents, coordinates, true);
}

/* Which points of the grid stay, where along each axis one of `steps` does. */
static ups_value kept_points(ups_graph *graph, const ups_patch_reading *reading, const int64_t steps[3]) {
    int64_t kept = 1, left[3];
    for (int axis = 0; axis < reading->dims; axis++) {
        left[axis] = (reading->grid[axis] + steps[axis] - 1) / steps[axis];
        kept *= left[axis];
    }
    int32_t *index = UPS_ARENA_ARRAY(graph->arena, int32_t, kept);
    for (int64_t i = 0; i < kept; i++) {
        int64_t rest = i, point = 0, stride = 1;
        for (int axis = reading->dims - 1; axis >= 0; axis--) {
            point += rest % left[axis] * steps[axis] * stride;
            rest /= left[axis];
            stride *= reading->grid[axis];
        }
        index[i] = (int32_t)point;
    }
    return ups_graph_constant(graph, ups_arena_printf(graph->arena, "kept_points%d", (int)graph->value_count), UPS_I32,
                              UPS_SHAPE(kept), index);
}

/* Normalised values (B, points that stay, channels). */
static ups_value gather_kept(ups_graph *graph, const ups_task *task, const ups_patch_reading *reading,
                             const int64_t steps[3], ups_value field) {
    return ups_gather_points(graph, field, kept_points(graph, reading, steps), ups_networks_statistics(graph, task),
                             reading->channels, task->geometry.order == UPS_CHANNELS_FIRST);
}

static ups_patch_reading reading_of(const ups_run_config *config, const ups_task *task) {
    const ups_patch_code code = patch_code_of(config, task);
    return ups_patch_code_reading(&code);
}

ups_value ups_networks_read_thinned(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                    ups_value field, ups_value coordinates) {
    const ups_patch_reading reading = reading_of(config, task);
    int64_t steps[3];
    ups_patch_thinning(&reading, steps);
    ups_value thinned = gather_kept(graph, task, &reading, steps, field);
    return ups_patch_read_thinned(graph, &reading, steps, thinned, coordinates);
}

ups_value ups_networks_read_lines(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value field,
                                  ups_value lines, ups_value weights) {
    static const int64_t all[3] = {1, 1, 1};
    const ups_patch_reading reading = reading_of(config, task);
    return ups_patch_read_lines(graph, &reading, gather_kept(graph, task, &reading, all, field), lines, weights);
}

bool ups_networks_can_thin(const ups_run_config *config, const ups_task *task) {
    if (task->geometry.points) return false;
    const ups_patch_reading reading = reading_of(config, task);
    int64_t steps[3];
    return ups_patch_thinning(&reading, steps);
}

void ups_task_coordinates(const ups_task *task, float *out) {
    ups_grid_coordinates(task->geometry.dims, task->geometry.grid, out);
}

static json_t *list_frequencies(const float *frequencies, int count) {
    json_t *list = json_array();
    for (int f = 0; f < count; f++) json_array_append_new(list, json_real((double)frequencies[f]));
    return list;
}

/* What the fields are, where a mapping says it: with another one they are other fields. */
static json_t *describe_layout(const ups_mapping_config *layout) {
    json_t *axes = json_array();
    for (unsigned a = 0; a < layout->axis_count; a++) json_array_append_new(axes, json_string(layout->axes[a]));
    return json_pack("{s:s, s:o, s:s, s:s, s:s}", "fields", layout->fields, "axes", axes, "array", layout->array,
                     "time", layout->time, "parameters", layout->parameters);
}

static json_t *describe_patch_code(const ups_run_config *config, const ups_task *task) {
    ups_latent_shape latents = ups_task_latents(config, task);
    json_t *patch = json_array(), *grid = json_array();
    for (int a = 0; a < task->geometry.dims; a++) {
        json_array_append_new(patch, json_integer(task->patch[a]));
        json_array_append_new(grid, json_integer(task->geometry.grid[a]));
    }
    json_t *code = json_pack("{s:s, s:s, s:I, s:o, s:o, s:s}", "task", task->name, "tokens", "grid", "dim",
                             (json_int_t)latents.dim, "patch", patch, "grid", grid, "precision", "f32");
    /* The order of points is part of what a patch is: another one gets another name. */
    if (task->geometry.points) json_object_set_new(code, "points", json_string("halved"));
    return code;
}

static json_t *describe_encoder(const ups_run_config *config, const ups_task *task) {
    ups_encoder_options options = encoder_of(config, task);
    json_t *patch = json_array(), *grid = json_array();
    for (int a = 0; a < task->geometry.dims; a++) {
        json_array_append_new(patch, json_integer(options.patch[a]));
        json_array_append_new(grid, json_integer(task->geometry.grid[a]));
    }
    json_t *encoder = json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:b, s:s}", "task", task->name, "tokens",
                                (json_int_t)options.tokens, "dim", (json_int_t)options.dim, "width",
                                (json_int_t)options.width, "stem_width", (json_int_t)options.stem_width, "pooling",
                                options.pooling == UPS_POOL_MEAN ? "average" : "queries", "patch", patch, "grid", grid,
                                "frequencies", list_frequencies(options.frequencies, options.frequency_count),
                                "periodic", (int)task->geometry.periodic, "precision", "f32");
    json_object_set_new(encoder, "depth", json_integer(options.depth));
    if (options.pooling == UPS_POOL_QUERIES || options.depth > 0) { /* without attention heads mean nothing */
        json_object_set_new(encoder, "heads", json_integer(options.heads));
    }
    return encoder;
}

json_t *ups_networks_describe_encoder(const ups_run_config *config, const ups_task *task) {
    json_t *encoder = ups_run_on_grid(config) ? describe_patch_code(config, task) : describe_encoder(config, task);
    if (config->model.bound > 0) json_object_set_new(encoder, "bound", json_real(config->model.bound));
    if (ups_mapping_is_given(&task->config->layout))
        json_object_set_new(encoder, "layout", describe_layout(&task->config->layout));
    return encoder;
}

/* The correction stands here even where there is none: a model that has one, or none, must be used so. */
static json_t *describe_reading(const ups_run_config *config, const ups_task *task) {
    return json_pack("{s:b, s:I}", "periodic", (int)task->geometry.periodic, "between",
                     (json_int_t)config->model.decoder.between);
}

static json_t *describe_decoder(const ups_run_config *config, const ups_task *task) {
    ups_decoder_options options = decoder_of(config, task);
    return json_pack("{s:I, s:b, s:b, s:o}", "heads", (json_int_t)options.heads, "qk_norm", (int)options.qk_norm,
                     "position", (int)options.position, "frequencies",
                     list_frequencies(options.frequencies, options.frequency_count));
}

/* So does the bound. */
json_t *ups_networks_describe_decoder(const ups_run_config *config, const ups_task *task) {
    json_t *decoder = ups_run_on_grid(config) ? describe_reading(config, task) : describe_decoder(config, task);
    if (decoder) json_object_set_new(decoder, "bound", json_real(config->model.bound));
    return decoder;
}

/* What a core does beyond its name; what it does not do is not said. */
static void describe_core(const ups_operator_options *options, json_t *op) {
    static const char *const mixings[] = {"attention", "spectral", "auto"};
    if (options->mixing_count > 0) {
        json_t *mixing = json_array();
        for (int m = 0; m < options->mixing_count; m++) {
            json_array_append_new(mixing, json_string(mixings[options->mixing[m]]));
        }
        json_object_set_new(op, "mixing", mixing);
        if (ups_core_may_choose(options))
            json_object_set_new(op, "attended_tokens", json_integer(options->attended_tokens));
    }
    static const char *const halves[] = {"none", "mixing", "mlp", "mixing and mlp"};
    if (options->grid.task)
        json_object_set_new(
            op, "task_specific",
            json_string(halves[options->task_specific[UPS_HALF_MIXING] + 2 * options->task_specific[UPS_HALF_MLP]]));
    static const char *const attentions[] = {NULL, "channel_separated", "window"};
    static const char *const positions[] = {"borders", "none", "learned", "rotary"};
    if (options->attention != UPS_ATTENTION_STANDARD)
        json_object_set_new(op, "attention", json_string(attentions[options->attention]));
    if (options->attention == UPS_ATTENTION_WINDOW) {
        json_t *window = json_array();
        for (int d = 0; d < 3; d++) json_array_append_new(window, json_integer(options->window[d]));
        json_object_set_new(op, "window", window);
    }
    if (options->grid.task) json_object_set_new(op, "positions", json_string(positions[options->positions]));
    if (options->core && strcmp(options->core, "unet") == 0) {
        json_t *depths = json_array();
        for (int l = 0; l < options->level_count; l++) json_array_append_new(depths, json_integer(options->depths[l]));
        json_object_set_new(op, "depths", depths);
        json_object_set_new(op, "merge_above", json_integer(options->merge_above));
    }
    if (options->convolution > 0) json_object_set_new(op, "convolution", json_integer(options->convolution));
    if (options->factorized) json_object_set_new(op, "factorized", json_true());
}

/* Of tasks that have one of their own. */
static void describe_bundles(const ups_run_config *config, json_t *op) {
    json_t *bundles = json_object();
    for (unsigned t = 0; t < config->task_count; t++) {
        const ups_task_config *task = &config->tasks[t];
        if (task->bundle > 0) json_object_set_new(bundles, task->name, json_integer(task->bundle));
    }
    if (json_object_size(bundles) > 0) json_object_set(op, "bundles", bundles);
    json_decref(bundles);
}

/* Tasks in their order: it says which one each column of the task's embedding is. */
json_t *ups_networks_describe_operator(const ups_run_config *config, const ups_tasks *tasks) {
    ups_operator_options options = ups_run_operator(config, tasks, &tasks->task[0]);
    json_t *names = json_array();
    for (int t = 0; t < tasks->count; t++) json_array_append_new(names, json_string(tasks->task[t].name));
    json_t *op = json_pack("{s:s, s:o}", "update_norm",
                           options.update_norm == UPS_UPDATE_LAYER_NORM ? "layer_norm" : "none", "tasks", names);
    if (ups_core_may_attend(&options)) {
        json_object_set_new(op, "heads", json_integer(options.heads));
        json_object_set_new(op, "qk_norm", json_boolean(options.qk_norm));
    }
    if (ups_run_on_grid(config)) {
        json_t *modes = json_array();
        for (int d = 0; d < 3; d++) json_array_append_new(modes, json_integer(options.modes[d]));
        json_object_set_new(op, "modes", modes);
        json_object_set_new(op, "conserve", json_boolean(options.conserve));
        if (options.boundary) json_object_set_new(op, "boundary", json_true());
        if (options.neighbors) json_object_set_new(op, "linear", json_string("neighbors"));
        json_object_del(op, "update_norm"); /* there is none */
        const ups_core_config *core = &config->model.core;
        json_object_set_new(op, "history", json_integer(core->history));
        json_object_set_new(op, "bundle", json_integer(core->bundle));
        describe_bundles(config, op);
    }
    /* Models from before there was a choice do not name theirs. */
    bool other = options.core && strcmp(options.core, "stack") != 0;
    if (op && other) json_object_set_new(op, "core", json_string(options.core));
    if (op) describe_core(&options, op);
    return op;
}

json_t *ups_networks_describe_parameters(const ups_task *task) {
    json_t *names = json_array(), *scales = json_array(), *constant = json_array();
    bool any = false; /* models without are told as they always were */
    const int count = task->condition ? task->condition_count : task->source->parameter_count;
    for (int p = 0; p < count; p++) {
        const char *name = task->condition ? task->condition_names[p] : task->source->parameter_names[p];
        json_array_append_new(names, json_string(name));
        if (!task->scale) continue;
        const ups_parameter_scale *scale = &task->scale[p];
        json_array_append_new(scales,
                              json_pack("[s, f, f]", scale->logarithm ? "log" : "linear", scale->mean, scale->spread));
        json_array_append_new(constant, json_boolean(scale->constant));
        any |= scale->constant;
    }
    json_t *told = task->scale ? json_pack("{s:O, s:O}", "names", names, "scale", scales) : json_incref(names);
    if (any) json_object_set(told, "constant", constant);
    json_decref(constant);
    json_decref(scales);
    json_decref(names);
    return told;
}

json_t *ups_networks_describe_normalisation(const ups_task *task) {
    json_t *list = json_array();
    for (int64_t c = 0; c < task->geometry.channels; c++) {
        json_array_append_new(
            list, json_pack("[f, f]", (double)task->statistics[2 * c], (double)task->statistics[2 * c + 1]));
    }
    return list;
}

/* Of weights and their average a checkpoint has both: the average is what was validated and is exported. */
static const char *find_prefix(const ups_safetensors *file, const ups_parameters *parameters) {
    char name[512];
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const int length = snprintf(name, sizeof name, "ema.%s", ups_parameters_get(parameters, i)->name);
        if (length >= (int)sizeof name || !ups_safetensors_find(file, name)) return "";
    }
    return "ema.";
}

/* All of them are there, of their shapes: so memory is taken for no more than the file holds. */
static ups_status check_tensors(const ups_safetensors *file, const ups_parameters *parameters, const char *prefix,
                                const char *path, ups_error *error) {
    char name[512];
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        const int length = snprintf(name, sizeof name, "%s%s", prefix, parameter->name);
        const ups_safetensor *tensor = length < (int)sizeof name ? ups_safetensors_find(file, name) : NULL;
        if (!tensor) {
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: tensor '%s' is missing; the model was trained with another configuration or other "
                            "tasks",
                            path, parameter->name);
        }
        UPS_TRY(ups_parameter_check(parameter, tensor, path, error));
    }
    return UPS_OK;
}

ups_status ups_networks_load(ups_parameters *parameters, ups_device *device, ups_dtype compute, const char *path,
                             ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    const char *prefix = find_prefix(file, parameters);
    ups_status status = check_tensors(file, parameters, prefix, path, error);
    ups_safetensors_close(file);
    if (status == UPS_OK) status = ups_parameters_allocate(parameters, device, false, compute, 0, error);
    const ups_parameter_buffer values = {.prefix = prefix, .values = ups_parameters_values(parameters)};
    return status == UPS_OK ? ups_parameters_load_buffers(parameters, NULL, &values, 1, path, false, error) : status;
}
