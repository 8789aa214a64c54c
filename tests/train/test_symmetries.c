/* What symmetries make of windows: latents of fields that were reflected, and whose axes were exchanged, point by
 * point. */
#include "base/random.h"
#include "model/devices/devices.h"
#include "model/ops.h"
#include "model/step/step.h"
#include "model/update_channel.h"
#include "tests/model/claims.h"
#include "train/objectives/symmetries.h"

#include <math.h>

enum { BATCH = 300, FRAMES = 2 };

static const char *const fields[] = {"density", "Vy", "p", "Vz", "Vx"}; /* components in any order */
static const float statistics[] = {0.2f, 1.0f, 0.5f, 0.7f, -0.3f, 1.4f, -0.8f, 0.6f, 0.1f, 0.4f};

/* A task without files. */
typedef struct domain {
    ups_task_config named;
    ups_source source;
    ups_run_config config;
    ups_task task;
    ups_tasks tasks;
    float statistics[10];
} domain;

/* What a domain may have beside its grid. */
typedef enum speciality { NOTHING, ENDS_DIFFER, ONE_COMPONENT_IS_SMALL } speciality;

static void make_domain(domain *d, int dims, const int64_t *grid, const int64_t *patch, int channels,
                        const char *const *names) {
    static char *vectors[] = {"Vx", "Vy", "Vz", "force_x", "force_y", "force_z"}; /* where none are given */
    *d = (domain){.named = {.name = "flow", .symmetries = true}};
    d->config.op.augment = UPS_AUGMENT_SYMMETRIES;
    d->config.op.vectors = (ups_field_names){vectors, 6};
    d->source = (ups_source){.channels = channels, .channel_names = names};
    d->task = (ups_task){.config = &d->named, .name = "flow", .source = &d->source, .statistics = d->statistics};
    d->task.geometry = (ups_sample){.channels = channels, .dims = dims, .grid = {1, 1, 1}};
    memcpy(d->statistics, statistics, sizeof statistics);
    d->task.dim = channels;
    for (int a = 0; a < dims; a++) {
        d->task.geometry.grid[a] = grid[a];
        d->task.patch[a] = patch[a];
        d->task.dim *= patch[a];
    }
    d->tasks = (ups_tasks){&d->task, 1};
}

/* Windows through the graph: numbers of patches are their own latents. */
static void run(domain *d, bool training, const float *windows, float *moved, size_t count) {
    ups_device *device;
    ups_step *step;
    ups_update_channel *channel;
    ups_parameters *parameters = ups_parameters_create();
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 2}, &device, &failure));
    ups_graph *graph = ups_graph_create(parameters, UPS_F32);
    const ups_field field = ups_field_of(&d->config, &d->tasks, 0, NULL, graph->arena);
    assert_int_equal(field.dim, field.numbers);
    float *one = UPS_ARENA_ARRAY(graph->arena, float, field.dim *field.dim);
    for (int64_t i = 0; i < field.dim; i++) one[i * field.dim + i] = 1;
    ups_field_constant(graph, "field_decode", UPS_F32, UPS_SHAPE(field.dim, field.dim), one);
    ups_field_constant(graph, "field_encode", UPS_F32, UPS_SHAPE(field.dim, field.dim), one);
    ups_value window = ups_graph_input(graph, "window", UPS_F32, UPS_SHAPE(BATCH, FRAMES, field.tokens, field.dim));
    ups_value made = ups_symmetries_build(graph, &d->config, &d->tasks, 0, NULL, window);
    assert_int_not_equal(made, window);
    ups_graph_keep(graph, made);
    ok(ups_parameters_allocate(parameters, device, false, UPS_F32, 5, &failure));
    ok(ups_step_create(graph, device, &step, &failure));
    ok(ups_update_open(device, &channel, &failure));
    ok(ups_update_give(channel, &(ups_update_input){.share = 1, .seed = 3}, &failure));
    ok(ups_step_upload(step, window, windows, count * sizeof *windows, &failure));
    ok(ups_step_wait_uploaded(step, &failure));
    const ups_step_run_options options = {.training = training, .update = ups_update_memory(channel)};
    ok(ups_step_run(step, &options, &failure));
    ok(ups_step_download(step, made, moved, count * sizeof *moved, &failure));
    ups_step_destroy(step);
    ups_update_close(channel);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    ups_device_close(device);
}

/* A field's value in its own units at a point of a frame. */
static double value_of(const ups_field *field, const float *frame, const int64_t *at, int64_t channel) {
    const float *s = field->statistics + 2 * channel;
    return (double)frame[ups_field_number(field, at, channel)] / (double)s[1] + (double)s[0];
}

/* Whether a frame is another one with axis a's points read along axis from[a], backwards where back[a]. */
static bool is_moved(const domain *d, const ups_field *field, const float *frame, const float *moved, const int *from,
                     const bool *back) {
    const int dims = d->task.geometry.dims;
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[3], was[3] = {0, 0, 0};
        ups_field_point(&d->task, p, at);
        for (int a = 0; a < dims; a++) was[from[a]] = back[a] ? d->task.geometry.grid[a] - 1 - at[a] : at[a];
        for (int64_t c = 0; c < field->channels; c++) {
            const char *name = d->source.channel_names[c];
            const int axis = name[0] == 'V' ? name[1] - 'x' : -1;
            char other[3] = "V?";
            if (axis >= 0) other[1] = (char)('x' + from[axis]);
            const double expected = value_of(field, frame, was, axis < 0 ? c : ups_field_channel(&d->task, other));
            const double sign = axis >= 0 && back[axis] ? -1 : 1;
            if (!(fabs(value_of(field, moved, at, c) - sign * expected) < 1e-5)) return false;
        }
    }
    return true;
}

/* Every window is moved by one symmetry, in all of its frames, and each symmetry comes. */
static void check(int dims, const int64_t *grid, const int64_t *patch, int channels, const char *const *names,
                  speciality special, int orders) {
    static const int order[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    domain d;
    make_domain(&d, dims, grid, patch, channels, names);
    d.task.ends_differ = special == ENDS_DIFFER;
    if (special == ONE_COMPONENT_IS_SMALL) d.statistics[1] *= 4;
    ups_arena *arena = ups_arena_create(0);
    const ups_field field = ups_field_of(&d.config, &d.tasks, 0, NULL, arena);
    const size_t frame = (size_t)(field.tokens * field.numbers), count = BATCH * FRAMES * frame;
    float *windows = malloc(count * sizeof *windows), *moved = malloc(count * sizeof *moved);
    int seen[48] = {0};
    ups_random_fill_normal(ups_random_stream(2, UPS_RANDOM_TEST, 0), 1, windows, count);
    run(&d, true, windows, moved, count);
    for (size_t b = 0; b < BATCH; b++) {
        int found = -1;
        for (int e = 0; e < orders << dims; e++) {
            const bool back[3] = {e & 1, e >> 1 & 1, e >> 2 & 1};
            const float *before = windows + b * FRAMES * frame, *after = moved + b * FRAMES * frame;
            if (!is_moved(&d, &field, before, after, order[e >> dims], back)) continue;
            assert_int_equal(found, -1);
            assert_true(is_moved(&d, &field, before + frame, after + frame, order[e >> dims], back));
            found = e;
        }
        if (found < 0) fail_msg("window %zu is moved by no symmetry", b);
        seen[found]++;
    }
    for (int e = 0; e < orders << dims; e++)
        if (seen[e] == 0) fail_msg("no window was moved by symmetry %d of %d", e, orders << dims);
    run(&d, false, windows, moved, count); /* a validation's stay as they are */
    assert_memory_equal(windows, moved, count * sizeof *windows);
    ups_arena_destroy(arena);
    free(windows);
    free(moved);
}

CLAIM(windows_on_a_line_are_reflected) {
    static const char *const names[] = {"density", "Vx"};
    check(1, (int64_t[]){12}, (int64_t[]){4}, 2, names, NOTHING, 1);
}

CLAIM(windows_of_a_square_are_reflected_and_turned) {
    static const char *const names[] = {"Vy", "density", "Vx"};
    check(2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 3, names, NOTHING, 2);
}

CLAIM(windows_of_other_planes_are_reflected_alone) {
    static const char *const names[] = {"Vy", "density", "Vx"};
    check(2, (int64_t[]){6, 8}, (int64_t[]){2, 2}, 3, names, NOTHING, 1);
    check(2, (int64_t[]){8, 8}, (int64_t[]){2, 4}, 3, names, NOTHING, 1);
}

CLAIM(windows_of_a_cube_are_seen_by_all_its_symmetries) {
    check(3, (int64_t[]){4, 4, 4}, (int64_t[]){2, 2, 2}, 5, fields, NOTHING, 6);
}

CLAIM(axes_are_exchanged_where_their_ends_and_their_components_are_alike) {
    static const char *const names[] = {"Vy", "density", "Vx"};
    check(2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 3, names, ENDS_DIFFER, 1);
    check(2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 3, names, ONE_COMPONENT_IS_SMALL, 1);
}

CLAIM(what_cannot_be_moved_is_said) {
    static const char *const names[] = {"Vx", "density"};
    domain d;
    make_domain(&d, 2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 2, names);
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "names some components");
    make_domain(&d, 2, (int64_t[]){7, 6}, (int64_t[]){2, 2}, 3, fields);
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "beyond the grid");
    make_domain(&d, 2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 3, fields);
    int64_t thin[] = {2};
    d.named.thin = thin, d.named.thin_count = 1;
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "`thin`");
    make_domain(&d, 1, (int64_t[]){6}, (int64_t[]){2}, 2, names);
    ok(ups_symmetries_check(&d.config, &d.tasks, &failure));
    d.statistics[0] = 5; /* a flow with a direction is warned of, and left as it is */
    ok(ups_symmetries_check(&d.config, &d.tasks, &failure));
    ups_parameters *parameters = ups_parameters_create();
    ups_graph *graph = ups_graph_create(parameters, UPS_F32);
    ups_value window = ups_graph_input(graph, "window", UPS_F32, UPS_SHAPE(1, FRAMES, 3, 4));
    assert_int_equal(ups_symmetries_build(graph, &d.config, &d.tasks, 0, NULL, window), window);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    d.named.symmetries = false;
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "`symmetries` are false");
    d.config.op.augment = UPS_AUGMENT_NONE;
    ok(ups_symmetries_check(&d.config, &d.tasks, &failure));
}

CLAIM(names_of_vectors_that_are_given_are_fields_of_some_task) {
    static const char *const plane[] = {"density", "Vx", "Vy"};
    static char *given[] = {"Vx", "Vy", "Vz"}, *mistyped[] = {"vx", "Vy"};
    domain d;
    make_domain(&d, 2, (int64_t[]){6, 6}, (int64_t[]){2, 2}, 3, plane);
    d.config.op.vectors = (ups_field_names){given, 3};
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG, "no task has a field 'Vz'");
    d.config.op.vectors.count = 2;
    ok(ups_symmetries_check(&d.config, &d.tasks, &failure));
    d.config.op.vectors = (ups_field_names){mistyped, 2};
    refused(ups_symmetries_check(&d.config, &d.tasks, &failure), UPS_ERR_CONFIG,
            "operator.vectors: no task has a field 'vx'; did you mean 'Vx'?");
    d.config.op.vectors.count = 0; /* all are scalars */
    ok(ups_symmetries_check(&d.config, &d.tasks, &failure));
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
