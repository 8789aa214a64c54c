#include "train/optimizer.h"

#include "model/update_channel.h"
#include <stdlib.h>
#include <string.h>

enum { MOMENTS = 2 };

/* Those of matrices are empty but for Muon. */
typedef enum group_kind { DECAYED, UNDECAYED, DECAYED_MATRICES, UNDECAYED_MATRICES, GROUPS } group_kind;

typedef struct group {
    int32_t set;
    ups_range *ranges; /* device memory */
    int32_t count;
    int64_t elements;       /* of all ranges */
    ups_matrices *matrices; /* of its parameters; NULL: moved element by element */
    int32_t matrices_count;
    float weight_decay;
} group;

/* Elements of the flat buffers that a buffer holds, one part behind the other. */
typedef struct holding {
    ups_parameter_part *parts;
    int32_t count;
    int64_t elements;
} holding;

/* Parameters that the same graphs train: where they lie in the flat buffers. */
typedef struct parameter_set {
    int64_t offset, count;
} parameter_set;

/* A step of some sets, launched as a whole from the second on. */
typedef struct captured_step {
    bool trained[UPS_UPDATE_MAX_SETS];
    ups_capture *capture; /* NULL: it was issued once */
    int64_t used;         /* count of steps when it last was */
} captured_step;

enum { CAPTURES = 32 /* combinations of sets that are kept, those that were used last */ };

struct ups_optimizer {
    ups_optimizer_config config;
    ups_device *device;
    ups_parameters *parameters;
    float *moments[MOMENTS], *average;
    void *workspace;              /* Muon's; NULL: none */
    holding kept, seconds;        /* first moments and averages; second moments, which only what AdamW moves has */
    bool *by_matrix, *by_element; /* by parameter, of any share: Muon moves it, AdamW does */
    bool norm_is_given;           /* steps do not measure it */
    parameter_set *sets;
    int32_t set_count;
    group *groups; /* those that are not empty */
    int32_t group_count;
    int64_t growth_steps;    /* 0: the loss scale is fixed */
    captured_step *captured; /* CAPTURES; NULL: the device has none */
    int captured_count;
    int64_t launched; /* steps */
    ups_update_channel *channel;
    ups_update_state state;
};

bool ups_optimizer_moves_matrices(const ups_optimizer_config *config) {
    return config->kind == UPS_OPTIMIZER_MUON;
}

static bool is_by_matrix(const ups_optimizer_config *config, const ups_parameter *parameter) {
    return ups_optimizer_moves_matrices(config) && parameter->init.matrices > 0;
}

static group_kind kind_of(const ups_optimizer_config *config, const ups_parameter *parameter) {
    if (is_by_matrix(config, parameter)) return parameter->init.no_decay ? UNDECAYED_MATRICES : DECAYED_MATRICES;
    return parameter->init.no_decay ? UNDECAYED : DECAYED;
}

/* ---- what is held ------------------------------------------------------------------------------------------------ */

static ups_status begin_holding(holding *h, int32_t most, ups_error *error) {
    h->parts = calloc((size_t)most + 1, sizeof *h->parts);
    return h->parts ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
}

/* Neighbours are one part. */
static void hold(holding *h, int64_t offset, int64_t count) {
    ups_parameter_part *last = h->count ? &h->parts[h->count - 1] : NULL;
    if (last && last->offset + last->count == offset)
        last->count += count;
    else
        h->parts[h->count++] = (ups_parameter_part){offset, count, h->elements};
    h->elements += count;
}

/* The share, or all; to be freed whatever is returned. */
static ups_status find_kept(const ups_parameters *parameters, const ups_share *share, holding *kept, ups_error *error) {
    UPS_TRY(begin_holding(kept, share ? share->of->piece_count : 1, error));
    if (!share) hold(kept, 0, ups_parameters_elements(parameters));
    for (int32_t i = 0; share && i < share->of->piece_count; i++) {
        const ups_share_piece *piece = &share->of->pieces[i];
        if (piece->share == share->index) hold(kept, piece->offset, piece->count);
    }
    return UPS_OK;
}

/* The first part of a parameter that is held, from *at on, its padding included; *at goes on behind it. */
static bool next_part(const holding *h, const ups_parameter *parameter, int64_t *at, ups_parameter_part *part) {
    const int64_t end = parameter->offset + ups_parameter_extent(parameter);
    const bool found = ups_parameter_find_part(h->parts, h->count, *at, end, part);
    *at = part->offset + part->count;
    return found;
}

static ups_status find_seconds(ups_optimizer *optimizer, ups_error *error) {
    const ups_parameters *parameters = optimizer->parameters;
    const int32_t count = ups_parameters_count(parameters);
    ups_parameter_part part;
    optimizer->by_matrix = calloc((size_t)count + 1, sizeof *optimizer->by_matrix);
    optimizer->by_element = calloc((size_t)count + 1, sizeof *optimizer->by_element);
    if (!optimizer->by_matrix || !optimizer->by_element)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    UPS_TRY(begin_holding(&optimizer->seconds, count + optimizer->kept.count, error));
    for (int32_t k = 0; k < count; k++) {
        const int32_t i = ups_parameters_placed(parameters, k);
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        optimizer->by_matrix[i] = is_by_matrix(&optimizer->config, parameter);
        optimizer->by_element[i] = !optimizer->by_matrix[i];
        if (optimizer->by_matrix[i]) continue;
        for (int64_t at = parameter->offset; next_part(&optimizer->kept, parameter, &at, &part);)
            hold(&optimizer->seconds, part.offset, part.count);
    }
    return UPS_OK;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Of a group, in the order of the flat buffers; neighbours are one range. */
static int32_t find_ranges(const ups_optimizer *optimizer, int32_t set, group_kind kind, ups_range *ranges) {
    const ups_parameters *parameters = optimizer->parameters;
    ups_parameter_part part, second;
    int32_t count = 0;
    for (int32_t k = 0; k < ups_parameters_count(parameters); k++) {
        const int32_t i = ups_parameters_placed(parameters, k);
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (parameter->set != set || kind_of(&optimizer->config, parameter) != kind) continue;
        for (int64_t at = parameter->offset; next_part(&optimizer->kept, parameter, &at, &part);) {
            ups_range *last = count ? &ranges[count - 1] : NULL;
            if (last && last->offset + last->count == part.offset) {
                last->count += part.count;
                continue;
            }
            const bool has = ups_parameter_find_part(optimizer->seconds.parts, optimizer->seconds.count, part.offset,
                                                     part.offset + part.count, &second);
            ranges[count++] = (ups_range){part.offset, part.count, part.place, has ? second.place : 0};
        }
    }
    return count;
}

/* Of a parameter that is moved by matrix: those that are held, which lie whole in a part. */
static int32_t find_held_matrices(const holding *kept, const ups_parameter *parameter, ups_matrices *matrices) {
    const int64_t columns = parameter->size[parameter->rank - 1], each = parameter->elements / parameter->init.matrices;
    const int64_t end = parameter->offset + parameter->elements;
    ups_parameter_part part;
    int32_t count = 0;
    for (int64_t at = parameter->offset; ups_parameter_find_part(kept->parts, kept->count, at, end, &part);
         at = part.offset + part.count)
        matrices[count++] = (ups_matrices){part.offset, part.count / each, each / columns, columns, part.place};
    return count;
}

/* Those of a group; of all with set −1. */
static int32_t find_matrices(const ups_optimizer_config *config, const ups_parameters *parameters, const holding *kept,
                             int32_t set, group_kind kind, ups_matrices *matrices) {
    int32_t count = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (!is_by_matrix(config, parameter)) continue;
        if (set < 0 || (parameter->set == set && kind_of(config, parameter) == kind))
            count += find_held_matrices(kept, parameter, matrices + count);
    }
    return count;
}

/* No list of parts of parameters is longer. */
static size_t most_parts(const ups_parameters *parameters, const holding *kept) {
    return (size_t)ups_parameters_count(parameters) + (size_t)kept->count;
}

/* The group of these ranges; it is there for `destroy` to free whatever becomes of it. */
static ups_status make_group(ups_optimizer *optimizer, int32_t set, group_kind kind, const ups_range *ranges,
                             int32_t count, ups_error *error) {
    ups_device *device = optimizer->device;
    const bool decays = kind == DECAYED || kind == DECAYED_MATRICES;
    group *made = &optimizer->groups[optimizer->group_count++];
    *made = (group){.set = set, .count = count, .weight_decay = decays ? (float)optimizer->config.weight_decay : 0};
    for (int32_t i = 0; i < count; i++) made->elements += ranges[i].count;
    if (kind == DECAYED_MATRICES || kind == UNDECAYED_MATRICES) {
        made->matrices = calloc(most_parts(optimizer->parameters, &optimizer->kept), sizeof *made->matrices);
        if (!made->matrices) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
        made->matrices_count =
            find_matrices(&optimizer->config, optimizer->parameters, &optimizer->kept, set, kind, made->matrices);
    }
    const size_t bytes = (size_t)count * sizeof *ranges;
    UPS_TRY(device->class->allocate(device, bytes, (void **)&made->ranges, error));
    UPS_TRY(device->class->upload(device, made->ranges, ranges, bytes, error));
    return device->class->synchronize(device, error); /* `ranges` is used again */
}

static ups_status make_groups(ups_optimizer *optimizer, ups_error *error) {
    const ups_parameters *parameters = optimizer->parameters;
    const int32_t parameter_count = ups_parameters_count(parameters);
    optimizer->set_count = ups_parameters_sets(parameters);
    optimizer->sets = calloc((size_t)optimizer->set_count, sizeof *optimizer->sets);
    optimizer->groups = calloc((size_t)optimizer->set_count * GROUPS, sizeof *optimizer->groups);
    ups_range *ranges = calloc(most_parts(parameters, &optimizer->kept), sizeof *ranges);
    ups_status status = UPS_OK;
    if (!optimizer->sets || !optimizer->groups || !ranges)
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    for (int32_t k = parameter_count - 1; k >= 0 && status == UPS_OK; k--) {
        const ups_parameter *parameter = ups_parameters_get(parameters, ups_parameters_placed(parameters, k));
        optimizer->sets[parameter->set].offset = parameter->offset;
        optimizer->sets[parameter->set].count += ups_parameter_extent(parameter);
    }
    for (int32_t set = 0; set < optimizer->set_count; set++) {
        for (int kind = 0; kind < GROUPS && status == UPS_OK; kind++) {
            const int32_t count = find_ranges(optimizer, set, (group_kind)kind, ranges);
            if (count > 0) status = make_group(optimizer, set, (group_kind)kind, ranges, count, error);
        }
    }
    free(ranges);
    return status;
}

/* Of all matrices that are held, which are moved one after the other. */
static ups_status measure_workspace(const ups_optimizer_config *config, ups_device *device,
                                    const ups_parameters *parameters, const holding *kept, ups_dtype compute,
                                    size_t *bytes, ups_error *error) {
    *bytes = 0;
    if (!ups_optimizer_moves_matrices(config)) return UPS_OK;
    ups_matrices *all = calloc(most_parts(parameters, kept), sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    int32_t count = find_matrices(config, parameters, kept, -1, DECAYED, all);
    if (count > 0) *bytes = device->class->matrices_workspace(device, all, count, compute);
    free(all);
    return UPS_OK;
}

static bool offloads(const ups_optimizer_config *config, const ups_device *device) {
    return config->offload && device->class->offloads;
}

/* All that `create` does before it allocates. */
static ups_status find_places(ups_optimizer *optimizer, const ups_share *share, ups_error *error) {
    UPS_TRY(find_kept(optimizer->parameters, share, &optimizer->kept, error));
    return find_seconds(optimizer, error);
}

static void free_places(ups_optimizer *optimizer) {
    free(optimizer->kept.parts);
    free(optimizer->seconds.parts);
    free(optimizer->by_matrix);
    free(optimizer->by_element);
}

ups_status ups_optimizer_measure(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                 const ups_share *share, ups_dtype compute, ups_optimizer_memory *memory,
                                 ups_error *error) {
    ups_optimizer imagined = {.config = *config, .parameters = parameters};
    ups_parameters_place(parameters);
    ups_status status = find_places(&imagined, share, error);
    if (status == UPS_OK)
        status = measure_workspace(config, device, parameters, &imagined.kept, compute, &memory->all, error);
    const int64_t kept = imagined.kept.elements, moments = kept + imagined.seconds.elements;
    free_places(&imagined);
    UPS_TRY(status);
    memory->all += (size_t)(moments + (config->ema_decay > 0 ? kept : 0)) * sizeof(float);
    memory->offloaded = offloads(config, device) ? (size_t)moments * sizeof(float) : 0;
    return UPS_OK;
}

static ups_status begin_average(ups_optimizer *optimizer, ups_error *error) {
    ups_device *device = optimizer->device;
    const size_t bytes = (size_t)optimizer->kept.elements * sizeof *optimizer->average;
    UPS_TRY(device->class->allocate(device, bytes, (void **)&optimizer->average, error));
    return ups_optimizer_restart_average(optimizer, error);
}

ups_status ups_optimizer_restart_average(ups_optimizer *optimizer, ups_error *error) {
    ups_device *device = optimizer->device;
    const holding *kept = &optimizer->kept;
    const float *values = ups_parameters_values(optimizer->parameters);
    if (!optimizer->average) return UPS_OK;
    for (int32_t i = 0; i < kept->count; i++) {
        const ups_parameter_part *part = &kept->parts[i];
        UPS_TRY(device->class->copy(device, optimizer->average + part->place, values + part->offset,
                                    (size_t)part->count * sizeof *values, error));
    }
    return UPS_OK;
}

ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                const ups_share *share, ups_optimizer **optimizer, ups_error *error) {
    ups_optimizer *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer");
    made->config = *config;
    made->device = device;
    made->parameters = parameters;
    size_t workspace = 0;
    const ups_dtype compute = ups_parameters_weights(parameters)->compute_dtype;
    ups_status status = find_places(made, share, error);
    if (status == UPS_OK) status = make_groups(made, error);
    if (status == UPS_OK)
        status = measure_workspace(config, device, parameters, &made->kept, compute, &workspace, error);
    if (status == UPS_OK && workspace > 0) status = device->class->allocate(device, workspace, &made->workspace, error);
    if (status == UPS_OK) status = ups_update_open(device, &made->channel, error);
    if (status == UPS_OK && device->class->capture_begin) {
        made->captured = calloc(CAPTURES, sizeof *made->captured);
        if (!made->captured) status = ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's steps");
    }
    made->state.loss_scale = 1;
    if (status == UPS_OK && compute == UPS_F16) {
        status = ups_optimizer_scale_losses(made, UPS_LOSS_SCALE_FIRST, UPS_LOSS_SCALE_GOOD_STEPS, error);
    }
    const int64_t elements[MOMENTS] = {made->kept.elements, made->seconds.elements};
    const bool offloaded = offloads(config, device);
    for (int i = 0; i < MOMENTS && status == UPS_OK; i++) {
        void **const moment = (void **)&made->moments[i];
        const size_t bytes = (size_t)elements[i] * sizeof(float);
        status = offloaded ? device->class->allocate_offloaded(device, bytes, moment, error)
                           : device->class->allocate(device, bytes, moment, error);
    }
    if (status == UPS_OK && config->ema_decay > 0) status = begin_average(made, error);
    if (status != UPS_OK) {
        ups_optimizer_destroy(made);
        return status;
    }
    *optimizer = made;
    return UPS_OK;
}

static void forget_captures(ups_optimizer *optimizer) {
    ups_device *device = optimizer->device;
    for (int i = 0; i < optimizer->captured_count; i++)
        if (optimizer->captured[i].capture) device->class->capture_release(device, optimizer->captured[i].capture);
    optimizer->captured_count = 0;
}

void ups_optimizer_destroy(ups_optimizer *optimizer) {
    if (!optimizer) return;
    ups_device *device = optimizer->device;
    forget_captures(optimizer);
    free(optimizer->captured);
    const bool offloaded = offloads(&optimizer->config, device);
    for (int i = 0; i < MOMENTS; i++) {
        if (!optimizer->moments[i]) continue;
        (offloaded ? device->class->release_offloaded : device->class->release)(device, optimizer->moments[i]);
    }
    if (optimizer->average) device->class->release(device, optimizer->average);
    if (optimizer->workspace)
        device->class->release(device, optimizer->workspace); /* waits for what reads `matrices` */
    for (int32_t i = 0; i < optimizer->group_count; i++) {
        if (optimizer->groups[i].ranges) device->class->release(device, optimizer->groups[i].ranges);
        free(optimizer->groups[i].matrices);
    }
    free(optimizer->groups);
    free(optimizer->sets);
    free_places(optimizer);
    ups_update_close(optimizer->channel);
    free(optimizer);
}

ups_status ups_optimizer_scale_losses(ups_optimizer *optimizer, float first, int64_t good_steps, ups_error *error) {
    optimizer->growth_steps = good_steps;
    forget_captures(optimizer); /* they judge steps by the rules of before */
    return ups_optimizer_restore(optimizer, &(ups_update_state){.loss_scale = first}, error);
}

bool ups_optimizer_scales_losses(const ups_optimizer *optimizer) {
    return optimizer->growth_steps > 0;
}

ups_update *ups_optimizer_update(const ups_optimizer *optimizer) {
    return ups_update_memory(optimizer->channel);
}

ups_update_state ups_optimizer_state(const ups_optimizer *optimizer) {
    return optimizer->state;
}

ups_status ups_optimizer_restore(ups_optimizer *optimizer, const ups_update_state *state, ups_error *error) {
    optimizer->state = *state;
    return ups_update_restore(optimizer->channel, &optimizer->state, error);
}

ups_status ups_optimizer_begin(ups_optimizer *optimizer, const ups_update_input *micro, ups_error *error) {
    return ups_update_give(optimizer->channel, micro, error);
}

/* Sets that lie side by side are one piece. */
static ups_status measure_norm(const ups_optimizer *optimizer, const bool trained[], ups_error *error) {
    const ups_device_class *class = optimizer->device->class;
    float *const gradients = ups_parameters_gradients(optimizer->parameters);
    ups_update *const update = ups_optimizer_update(optimizer);
    for (int32_t set = 0; set < optimizer->set_count;) {
        const int64_t offset = optimizer->sets[set].offset;
        int64_t count = 0;
        for (; set < optimizer->set_count && trained[set]; set++) count += optimizer->sets[set].count;
        if (count > 0)
            UPS_TRY(class->norm(optimizer->device, gradients + offset, count, update, error));
        else
            set++;
    }
    return UPS_OK;
}

static ups_status issue_step(const ups_optimizer *optimizer, const bool trained[], ups_error *error) {
    const ups_optimizer_config *config = &optimizer->config;
    ups_device *device = optimizer->device;
    ups_update *update = ups_optimizer_update(optimizer);
    ups_update_rules rules = {.clip = config->clip, .growth_steps = optimizer->growth_steps};
    const ups_weights *weights = ups_parameters_weights(optimizer->parameters);
    ups_optimizer_call call = {
        .values = weights->values,
        .gradients = weights->gradients,
        .moments = {optimizer->moments[0], optimizer->moments[1]},
        .ema = optimizer->average,
        .compute = weights->compute,
        .compute_dtype = weights->compute_dtype,
        .workspace = optimizer->workspace,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->epsilon,
        .ema_decay = (float)config->ema_decay,
        .update = update,
    };
    for (int32_t set = 0; set < optimizer->set_count; set++) rules.trained[set] = trained[set];
    if (!optimizer->norm_is_given) UPS_TRY(measure_norm(optimizer, trained, error));
    UPS_TRY(device->class->decide(device, &rules, update, error));
    for (int32_t i = 0; i < optimizer->group_count; i++) {
        const group *of = &optimizer->groups[i];
        if (!trained[of->set]) continue;
        call.set = of->set;
        call.ranges = of->ranges;
        call.range_count = of->count;
        call.range_elements = of->elements;
        call.rule = of->matrices ? UPS_RULE_MUON : UPS_RULE_ADAMW;
        call.matrices = of->matrices;
        call.matrices_count = of->matrices_count;
        call.beta1 = of->matrices ? (float)config->momentum : (float)config->beta1;
        call.weight_decay = of->weight_decay;
        UPS_TRY(device->class->optimize(device, &call, error));
    }
    return UPS_OK;
}

typedef struct wanted_step {
    const ups_optimizer *optimizer;
    const bool *trained;
} wanted_step;

static ups_status issue_wanted(void *context, ups_error *error) {
    const wanted_step *wanted = context;
    return issue_step(wanted->optimizer, wanted->trained, error);
}

/* The step of such sets that was issued before, or a new one in the place of that whose last use is longest ago. */
static captured_step *find_captured(ups_optimizer *optimizer, const bool *trained, bool *is_new) {
    const size_t bytes = (size_t)optimizer->set_count * sizeof *trained;
    captured_step *oldest = optimizer->captured, *end = oldest + optimizer->captured_count;
    for (captured_step *step = optimizer->captured; step < end; step++) {
        *is_new = memcmp(step->trained, trained, bytes) != 0;
        if (!*is_new) return step;
        if (step->used < oldest->used) oldest = step;
    }
    captured_step *made = optimizer->captured_count < CAPTURES ? end : oldest;
    if (made == end)
        optimizer->captured_count++;
    else if (made->capture)
        optimizer->device->class->capture_release(optimizer->device, made->capture);
    *made = (captured_step){0};
    memcpy(made->trained, trained, bytes);
    *is_new = true;
    return made;
}

/* The first step of its kind is issued call by call: what a device prepares then, it may not while it captures. */
static ups_status launch_step(ups_optimizer *optimizer, const bool *trained, ups_error *error) {
    ups_device *device = optimizer->device;
    bool is_new;
    if (!optimizer->captured) return issue_step(optimizer, trained, error);
    captured_step *captured = find_captured(optimizer, trained, &is_new);
    captured->used = optimizer->launched++;
    if (is_new) return issue_step(optimizer, trained, error);
    if (!captured->capture) {
        wanted_step wanted = {optimizer, trained};
        UPS_TRY(ups_device_capture(device, issue_wanted, &wanted, &captured->capture, error));
    }
    return device->class->capture_launch(device, captured->capture, error);
}

ups_status ups_optimizer_measure_norm(ups_optimizer *optimizer, ups_error *error) {
    const holding *kept = &optimizer->kept;
    const float *gradients = ups_parameters_gradients(optimizer->parameters);
    if (!optimizer->norm_is_given) forget_captures(optimizer); /* they measure it */
    optimizer->norm_is_given = true;
    for (int32_t i = 0; i < kept->count; i++)
        UPS_TRY(optimizer->device->class->norm(optimizer->device, gradients + kept->parts[i].offset,
                                               kept->parts[i].count, ups_optimizer_update(optimizer), error));
    return UPS_OK;
}

ups_status ups_optimizer_step(ups_optimizer *optimizer, const bool *trained, ups_error *error) {
    bool all[UPS_UPDATE_MAX_SETS];
    memset(all, true, sizeof all);
    UPS_TRY(launch_step(optimizer, trained ? trained : all, error));
    return ups_update_take(optimizer->channel, error);
}

ups_status ups_optimizer_result(ups_optimizer *optimizer, ups_update *result, ups_error *error) {
    UPS_TRY(ups_update_read(optimizer->channel, result, error));
    optimizer->state = result->state;
    return UPS_OK;
}

/* Of these parameters; of all with NULL. */
static ups_parameter_buffer buffer_of(const char *prefix, float *values, const holding *held, const bool *has) {
    return (ups_parameter_buffer){
        .prefix = prefix, .values = values, .has = has, .parts = held->parts, .part_count = held->count};
}

static bool has_any(const ups_optimizer *optimizer, const bool *of) {
    bool found = false;
    for (int32_t i = 0; i < ups_parameters_count(optimizer->parameters); i++) found = found || of[i];
    return found;
}

int ups_optimizer_buffers(const ups_optimizer *optimizer, ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS]) {
    const holding *kept = &optimizer->kept;
    float *const first = optimizer->moments[0], *const second = optimizer->moments[1];
    int count = 0;
    buffers[count++] = buffer_of("adamw.first_moment.", first, kept, optimizer->by_element);
    buffers[count++] = buffer_of("adamw.second_moment.", second, &optimizer->seconds, optimizer->by_element);
    if (has_any(optimizer, optimizer->by_matrix))
        buffers[count++] = buffer_of("muon.momentum.", first, kept, optimizer->by_matrix);
    if (optimizer->average) buffers[count++] = ups_optimizer_average_buffer(optimizer);
    return count;
}

float *ups_optimizer_average(const ups_optimizer *optimizer) {
    return optimizer->average;
}

ups_parameter_buffer ups_optimizer_average_buffer(const ups_optimizer *optimizer) {
    return buffer_of("ema.", optimizer->average, &optimizer->kept, NULL);
}

ups_status ups_optimizer_put_average(const ups_optimizer *optimizer, float *values, ups_error *error) {
    ups_device *device = optimizer->device;
    for (int32_t i = 0; i < optimizer->kept.count; i++) {
        const ups_parameter_part *part = &optimizer->kept.parts[i];
        UPS_TRY(device->class->copy(device, values + part->offset, optimizer->average + part->place,
                                    (size_t)part->count * sizeof *values, error));
    }
    return UPS_OK;
}
