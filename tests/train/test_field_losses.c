/* Gradients of the losses on decoded fields: the slopes of the loss that was built, by differences along random
 * directions of the latents; for lines and planes, periodic and not, with patches that fit the grid and that do not. */
#include "base/random.h"
#include "model/devices/devices.h"
#include "model/differentiate.h"
#include "model/step/step.h"
#include "model/update_channel.h"
#include "tests/model/claims.h"
#include "train/objectives/field_losses.h"

#include <math.h>

enum { BATCH = 2, STEPS = 2, DIM = 6 };

/* A task without files: what losses ask of one. */
typedef struct domain {
    ups_task_config named;
    ups_source source;
    ups_run_config config;
    ups_task task;
    ups_tasks tasks;
    float statistics[8];
} domain;

static const char *const fields[] = {"density", "Vx", "Vy"};

static void make_domain(domain *d, int dims, bool periodic, const int64_t *grid, int64_t patch) {
    static const float statistics[] = {0.2f, 1.0f, 0.5f, 0.7f, -0.3f, 1.4f};
    *d = (domain){.named = {.name = "flow"}};
    d->source = (ups_source){.channels = dims + 1, .channel_names = fields};
    memcpy(d->statistics, statistics, sizeof statistics);
    d->task = (ups_task){.config = &d->named, .name = "flow", .source = &d->source, .statistics = d->statistics};
    d->task.geometry = (ups_sample){.channels = dims + 1, .dims = dims, .grid = {1, 1, 1}, .periodic = periodic};
    for (int a = 0; a < dims; a++) {
        d->task.geometry.grid[a] = grid[a];
        d->task.patch[a] = patch;
    }
    d->task.dim = DIM;
    d->tasks = (ups_tasks){&d->task, 1};
}

typedef struct machine {
    ups_device *device;
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_objective objective;
    ups_update_channel *channel;
    size_t elements; /* of all states */
} machine;

/* States are parameters, so that their gradients can be read. */
static void build(machine *m, domain *d, unsigned losses) {
    *m = (machine){.parameters = ups_parameters_create()};
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &m->device, &failure));
    m->graph = ups_graph_create(m->parameters, UPS_F32);
    const ups_field field = ups_field_of(&d->config, &d->tasks, 0, NULL, m->graph->arena);
    float *decode = (float *)(uintptr_t)field.decode;
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 0), 0.6f, decode, (size_t)(field.numbers * field.dim));
    ups_value states[STEPS];
    int64_t tokens = field.tokens;
    ups_value window = ups_graph_input(m->graph, "window", UPS_F32, UPS_SHAPE(BATCH, STEPS + 1, tokens, DIM));
    for (int k = 0; k < STEPS; k++) {
        char name[16];
        snprintf(name, sizeof name, "state%d", k);
        states[k] = ups_graph_parameter(m->graph, name, UPS_SHAPE(BATCH, tokens, DIM),
                                        (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1});
        states[k] = ups_scale(m->graph, states[k], 1, UPS_NO_VALUE);
    }
    /* in the place of the zeros that a plan takes */
    ups_field_constant(m->graph, "field_decode", UPS_F32, UPS_SHAPE(field.numbers, field.dim), decode);
    ups_field_losses_add(&d->config, &d->tasks, 0, NULL, losses, m->graph, &m->objective,
                         &(ups_field_window){window, 1, 1}, states, STEPS);
    ups_objective_close(m->graph, &m->objective);
    ups_graph_keep(m->graph, m->objective.total);
    ups_graph_differentiate(m->graph, m->objective.total);
    ok(ups_parameters_allocate(m->parameters, m->device, true, UPS_F32, 5, &failure));
    ok(ups_step_create(m->graph, m->device, &m->step, &failure));
    ok(ups_update_open(m->device, &m->channel, &failure));
    ok(ups_update_give(m->channel, &(ups_update_input){.share = 1}, &failure));
    m->elements = (size_t)ups_parameters_elements(m->parameters);
    size_t count = (size_t)(BATCH * (STEPS + 1) * tokens * DIM);
    float *truth = malloc(count * sizeof *truth);
    ups_random_fill_normal(ups_random_stream(2, UPS_RANDOM_TEST, 0), 1, truth, count);
    ok(ups_step_upload(m->step, window, truth, count * sizeof *truth, &failure));
    ok(ups_step_wait_uploaded(m->step, &failure));
    free(truth);
}

static double run(machine *m, bool backward) {
    float loss;
    ups_step_run_options options = {.training = true, .backward = backward, .update = ups_update_memory(m->channel)};
    ok(ups_step_run(m->step, &options, &failure));
    ok(ups_step_download(m->step, m->objective.total, &loss, sizeof loss, &failure));
    return (double)loss;
}

static void end(machine *m) {
    ups_step_destroy(m->step);
    ups_update_close(m->channel);
    ups_graph_destroy(m->graph);
    ups_parameters_destroy(m->parameters);
    ups_device_close(m->device);
}

static void check_slopes(domain *d, int loss) {
    enum { DIRECTIONS = 3 };
    const double size = 0.02;
    machine m;
    build(&m, d, 1u << loss);
    const char *name = ups_run_loss_names(UPS_STAGE_OPERATOR)[loss];
    size_t bytes = m.elements * sizeof(float);
    float *gradients = malloc(bytes), *values = malloc(bytes), *direction = malloc(bytes), *moved = malloc(bytes);
    const ups_device_class *device = m.device->class;
    if (!(run(&m, true) > 0)) fail_msg("%s is not above 0", name);
    ok(device->download(m.device, gradients, ups_parameters_gradients(m.parameters), bytes, &failure));
    ok(device->download(m.device, values, ups_parameters_values(m.parameters), bytes, &failure));
    for (uint32_t i = 0; i < DIRECTIONS; i++) {
        double predicted = 0, sides[2];
        ups_random_fill_normal(ups_random_stream(3, UPS_RANDOM_TEST, i), 1, direction, m.elements);
        for (size_t k = 0; k < m.elements; k++) predicted += (double)direction[k] * (double)gradients[k];
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < m.elements; k++) moved[k] = values[k] + (float)(side ? -size : size) * direction[k];
            ok(device->upload(m.device, ups_parameters_values(m.parameters), moved, bytes, &failure));
            ok(device->synchronize(m.device, &failure));
            sides[side] = run(&m, false);
        }
        double measured = (sides[0] - sides[1]) / (2 * size);
        if (!(fabs(measured - predicted) <= 5e-3 * (fabs(predicted) + 0.05)))
            fail_msg("%s in %dD: gradient %g, measured %g", name, d->task.geometry.dims, predicted, measured);
    }
    free(gradients);
    free(values);
    free(direction);
    free(moved);
    end(&m);
}

CLAIM(gradients_of_every_loss_on_fields_are_its_slopes) {
    static const struct {
        int dims;
        bool periodic;
        int64_t grid[2], patch;
    } shapes[] = {{1, true, {12}, 4}, {1, false, {10}, 4}, {2, true, {8, 6}, 2}, {2, false, {7, 6}, 3}};
    static char *velocity[] = {"Vx", "Vy"}, *density[] = {"density"};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int loss = UPS_OPERATOR_DECODED; loss <= UPS_OPERATOR_BOUNDARY; loss++) {
            domain d;
            make_domain(&d, shapes[s].dims, shapes[s].periodic, shapes[s].grid, shapes[s].patch);
            d.config.op.training.losses[loss].weight = 2;
            d.config.op.divergence = (ups_field_names){velocity, (unsigned)shapes[s].dims};
            d.config.op.positivity = (ups_field_names){density, 1};
            if (loss == UPS_OPERATOR_BOUNDARY && shapes[s].periodic) continue;
            ok(ups_field_losses_check(&d.config, &d.tasks, &failure));
            check_slopes(&d, loss);
        }
    }
}

CLAIM(fields_that_no_task_has_are_refused_with_the_name_that_was_meant) {
    static char *mistyped[] = {"densty"}, *velocity[] = {"Vx"};
    domain d;
    make_domain(&d, 2, true, (const int64_t[]){8, 8}, 4);
    d.config.op.positivity = (ups_field_names){mistyped, 1};
    ok(ups_field_losses_check(&d.config, &d.tasks, &failure)); /* it weighs nothing */
    d.config.op.training.losses[UPS_OPERATOR_POSITIVITY].weight = 1;
    refused(ups_field_losses_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG,
            "operator.losses.positivity.fields: no task has a field 'densty'; did you "
            "mean 'density'?");
    d.config.op.training.losses[UPS_OPERATOR_POSITIVITY].weight = 0;
    d.config.op.training.losses[UPS_OPERATOR_DIVERGENCE].weight = 1;
    d.config.op.divergence = (ups_field_names){velocity, 1};
    refused(ups_field_losses_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG,
            "as many of these fields as grid axes");
    d.config.op.training.losses[UPS_OPERATOR_DIVERGENCE].weight = 0;
    d.config.op.training.losses[UPS_OPERATOR_BOUNDARY].weight = 1;
    refused(ups_field_losses_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "periodic");
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
