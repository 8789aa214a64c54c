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

/* Where moments lie, by parameter; −1: it has none of these. */
typedef struct places {
    int64_t *first, *momentum, *second; /* of AdamW, of Muon, of AdamW again */
    int64_t seconds;                    /* elements of all second moments */
} places;

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
    float *moments[MOMENTS], *average; /* the second moment only of what AdamW moves */
    void *workspace;                   /* Muon's; NULL: none */
    places places;
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

static bool is_by_matrix(const ups_optimizer_config *config, const ups_parameter *parameter) {
    return config->kind == UPS_OPTIMIZER_MUON && parameter->init.matrices > 0;
}

static group_kind kind_of(const ups_optimizer_config *config, const ups_parameter *parameter) {
    if (is_by_matrix(config, parameter)) return parameter->init.no_decay ? UNDECAYED_MATRICES : DECAYED_MATRICES;
    return parameter->init.no_decay ? UNDECAYED : DECAYED;
}

/* Where it lies once all are placed. */
static ups_matrices matrices_of(const ups_parameter *parameter) {
    const int64_t count = parameter->init.matrices, columns = parameter->size[parameter->rank - 1];
    return (ups_matrices){parameter->offset, count, parameter->elements / (count * columns), columns};
}

/* Second moments are in the order of the flat buffers, one behind the other. */
static ups_status place_moments(ups_optimizer *optimizer, ups_error *error) {
    const ups_parameters *parameters = optimizer->parameters;
    const int32_t count = ups_parameters_count(parameters);
    places *at = &optimizer->places;
    int64_t **const lists[] = {&at->first, &at->momentum, &at->second};
    for (int i = 0; i < 3; i++) {
        *lists[i] = calloc((size_t)count + 1, sizeof **lists[i]);
        if (!*lists[i]) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    }
    for (int32_t k = 0; k < count; k++) {
        const int32_t i = ups_parameters_placed(parameters, k);
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        const bool by_matrix = is_by_matrix(&optimizer->config, parameter);
        at->first[i] = by_matrix ? -1 : parameter->offset;
        at->momentum[i] = by_matrix ? parameter->offset : -1;
        at->second[i] = by_matrix ? -1 : at->seconds;
        if (!by_matrix) at->seconds += ups_parameter_extent(parameter);
    }
    return UPS_OK;
}

/* Of a group, in the order of the flat buffers; neighbours are one range. */
static int32_t find_ranges(const ups_optimizer *optimizer, int32_t set, group_kind kind, ups_range *ranges) {
    const ups_parameters *parameters = optimizer->parameters;
    int32_t count = 0;
    for (int32_t k = 0; k < ups_parameters_count(parameters); k++) {
        const int32_t i = ups_parameters_placed(parameters, k);
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (parameter->set != set || kind_of(&optimizer->config, parameter) != kind) continue;
        const int64_t second = optimizer->places.second[i] < 0 ? 0 : optimizer->places.second[i];
        ups_range *last = count ? &ranges[count - 1] : NULL;
        if (last && last->offset + last->count == parameter->offset)
            last->count += ups_parameter_extent(parameter);
        else
            ranges[count++] = (ups_range){parameter->offset, ups_parameter_extent(parameter), second};
    }
    return count;
}

/* Those of a group; of all with set −1. */
static int32_t find_matrices(const ups_optimizer_config *config, const ups_parameters *parameters, int32_t set,
                             group_kind kind, ups_matrices *matrices) {
    int32_t count = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (!is_by_matrix(config, parameter)) continue;
        if (set < 0 || (parameter->set == set && kind_of(config, parameter) == kind))
            matrices[count++] = matrices_of(parameter);
    }
    return count;
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
        made->matrices = calloc((size_t)ups_parameters_count(optimizer->parameters), sizeof *made->matrices);
        if (!made->matrices) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
        made->matrices_count = find_matrices(&optimizer->config, optimizer->parameters, set, kind, made->matrices);
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
    ups_range *ranges = calloc((size_t)parameter_count + 1, sizeof *ranges);
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

/* Of all matrices, which are moved one after the other. */
static ups_status measure_workspace(const ups_optimizer_config *config, ups_device *device,
                                    const ups_parameters *parameters, ups_dtype compute, size_t *bytes,
                                    ups_error *error) {
    *bytes = 0;
    if (config->kind != UPS_OPTIMIZER_MUON) return UPS_OK;
    ups_matrices *all = calloc((size_t)ups_parameters_count(parameters) + 1, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    int32_t count = find_matrices(config, parameters, -1, DECAYED, all);
    if (count > 0) *bytes = device->class->matrices_workspace(device, all, count, compute);
    free(all);
    return UPS_OK;
}

static bool offloads(const ups_optimizer_config *config, const ups_device *device) {
    return config->offload && device->class->offloads;
}

ups_status ups_optimizer_measure(const ups_optimizer_config *config, ups_device *device,
                                 const ups_parameters *parameters, ups_dtype compute, ups_optimizer_memory *memory,
                                 ups_error *error) {
    UPS_TRY(measure_workspace(config, device, parameters, compute, &memory->all, error));
    int64_t all = ups_parameters_elements(parameters), seconds = all;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (is_by_matrix(config, parameter)) seconds -= ups_parameter_extent(parameter);
    }
    memory->all += (size_t)(all + seconds + (config->ema_decay > 0 ? all : 0)) * sizeof(float);
    memory->offloaded = offloads(config, device) ? (size_t)(all + seconds) * sizeof(float) : 0;
    return UPS_OK;
}

ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                ups_optimizer **optimizer, ups_error *error) {
    ups_optimizer *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer");
    made->config = *config;
    made->device = device;
    made->parameters = parameters;
    size_t bytes = (size_t)ups_parameters_elements(parameters) * sizeof(float), workspace = 0;
    const ups_dtype compute = ups_parameters_weights(parameters)->compute_dtype;
    ups_status status = place_moments(made, error);
    if (status == UPS_OK) status = make_groups(made, error);
    if (status == UPS_OK) status = measure_workspace(config, device, parameters, compute, &workspace, error);
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
    const size_t sizes[MOMENTS] = {bytes, (size_t)made->places.seconds * sizeof(float)};
    const bool offloaded = offloads(config, device);
    for (int i = 0; i < MOMENTS && status == UPS_OK; i++) {
        void **const moment = (void **)&made->moments[i];
        status = offloaded ? device->class->allocate_offloaded(device, sizes[i], moment, error)
                           : device->class->allocate(device, sizes[i], moment, error);
    }
    if (status == UPS_OK && config->ema_decay > 0) {
        status = device->class->allocate(device, bytes, (void **)&made->average, error);
        const float *values = ups_parameters_values(parameters); /* where the average begins */
        if (status == UPS_OK) status = device->class->copy(device, made->average, values, bytes, error);
    }
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
    free(optimizer->places.first);
    free(optimizer->places.momentum);
    free(optimizer->places.second);
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
    UPS_TRY(measure_norm(optimizer, trained, error));
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

int ups_optimizer_buffers(const ups_optimizer *optimizer, ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS]) {
    const places *at = &optimizer->places;
    float *const first = optimizer->moments[0], *const second = optimizer->moments[1];
    int count = 0;
    buffers[count++] = (ups_parameter_buffer){"adamw.first_moment.", first, at->first};
    buffers[count++] = (ups_parameter_buffer){"adamw.second_moment.", second, at->second};
    if (optimizer->workspace) buffers[count++] = (ups_parameter_buffer){"muon.momentum.", first, at->momentum};
    if (optimizer->average) buffers[count++] = (ups_parameter_buffer){.prefix = "ema.", .values = optimizer->average};
    return count;
}

float *ups_optimizer_average(const ups_optimizer *optimizer) {
    return optimizer->average;
}
