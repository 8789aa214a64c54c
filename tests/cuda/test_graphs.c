/* What training asks of a card, counted by the emulated one: a step is a few launches of graphs, nothing is captured or
 * allocated once each kind of step has come twice, and the host waits for no step that it has just issued. Stages run
 * as `ups train` runs them; the ranges that a device is told of say where a step ends. */
#include "model/devices/devices.h"
#include "tests/cuda/runtime/counts.h"
#include "tests/train/generate.h"
#include "train/cache_build/encode.h"
#include "train/stages/stage.h"

enum { STEPS = 12, MICRO_BATCHES = 2 /* of a step */, LINE = 4, VALIDATION = 6, CHECKPOINT = 9 };
enum { LAUNCHES = MICRO_BATCHES + 1 /* of graphs a step: forward and backward, and the optimizer's */ };
enum { MOST_RANGES = 64 };

static struct {
    ups_device_class class; /* the device's, but for ranges */
    const char *open[MOST_RANGES];
    int depth, due; /* ranges under way, and of them validations and checkpoints */
    int steps;
    emulated_counts step[STEPS + 1]; /* from the end of the step before to its own, without what fell due */
} seen;

/* What was counted since the last call. */
static void close_counts(void) {
    emulated_counts *sum = &seen.step[seen.steps], now = emulated_counts_read();
    emulated_counts_reset();
    if (seen.due > 0) return;
    sum->graphs += now.graphs;
    sum->captures += now.captures;
    sum->kernels += now.kernels;
    sum->products += now.products;
    sum->fills += now.fills;
    sum->uploads += now.uploads;
    sum->downloads += now.downloads;
    sum->copies += now.copies;
    sum->waits += now.waits;
    sum->waits_for_nothing += now.waits_for_nothing;
    sum->allocations += now.allocations;
    sum->host_allocations += now.host_allocations;
    if (now.fewest_left >= 0 && (sum->fewest_left < 0 || now.fewest_left < sum->fewest_left))
        sum->fewest_left = now.fewest_left;
}

static bool is_due(const char *range) {
    return strcmp(range, "validation") == 0 || strcmp(range, "checkpoint") == 0;
}

static void range_begin(const char *name) {
    assert_true(seen.depth < MOST_RANGES);
    seen.open[seen.depth++] = name;
    if (!is_due(name)) return;
    close_counts();
    seen.due++;
}

static void range_end(void) {
    const char *name = seen.open[--seen.depth];
    if (is_due(name)) {
        close_counts();
        seen.due--;
    } else if (strcmp(name, "optimizer") == 0) {
        close_counts();
        assert_true(seen.steps < STEPS);
        seen.steps++;
    }
}

static void watch(ups_device *device) {
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i <= STEPS; i++) seen.step[i].fewest_left = -1;
    seen.class = *device->class;
    seen.class.range_begin = range_begin;
    seen.class.range_end = range_end;
    device->class = &seen.class;
    emulated_counts_reset();
}

static const char configuration[] = "output: %s/run\n"
                                    "seed: 5\n"
                                    "precision: bf16\n"
                                    "device: {name: cuda, threads: 1}\n"
                                    "data:\n"
                                    "  root: %s\n"
                                    "  split: {train: 0.6, validation: 0.2, test: 0.2}\n"
                                    "  decode_threads: 1\n"
                                    "tasks:\n"
                                    "  - {name: advection, files: [advection.h5], patch: [4]}\n"
                                    "model:\n"
                                    "  tokens: 4\n"
                                    "  dim: 8\n"
                                    "  encoder: {width: 16, frequencies: [1, 2]}\n"
                                    "  decoder: {hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}\n"
                                    "  operator: {hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, drop_path: 0.1}\n"
                                    "autoencoder: %s\n"
                                    "operator: %s\n";
static const char training[] = "{steps: %d, batch_size: 4, accumulation: %d, log_every: %d, validate_every: %d, "
                               "checkpoint_every: %d, validation_batches: 1, "
                               "optimizer: {ema_decay: 0.9, learning_rate: 0.003, warmup_steps: 2}}";

static int make_data(void **state) {
    char text[4096], stage[400];
    if (make_scratch(state) != 0) return -1;
    generate("advection1d", "advection.h5", 10, 32, 6);
    snprintf(stage, sizeof stage, training, STEPS, MICRO_BATCHES, LINE, VALIDATION, CHECKPOINT);
    snprintf(text, sizeof text, configuration, scratch_directory, scratch_directory, stage, stage);
    write_text(scratch("run.yaml"), text);
    return 0;
}

static void open_run(const char *override, ups_session *session) {
    ok(ups_session_open(scratch("run.yaml"), &override, override ? 1 : 0, true, session, &failure));
}

/* What is issued by itself, beside graphs. */
typedef struct expected {
    int kinds;    /* of steps: they differ in losses */
    int inputs;   /* of a graph, each of which is uploaded for a micro-batch */
    bool gathers; /* a kernel fetches windows that stay on the card */
} expected;

/* The step's results that the host has read once so many steps were issued: all but the last one's, or all where a
 * line, a validation or a checkpoint is due. */
static int settled(int issued) {
    if (issued == 0) return 0;
    return issued % LINE == 0 || issued % VALIDATION == 0 || issued % CHECKPOINT == 0 ? issued : issued - 1;
}

static void check_step(int step, const expected *e) {
    const emulated_counts *c = &seen.step[step];
    const bool all_settled = settled(step) == step;
    assert_int_equal(c->graphs, LAUNCHES);
    assert_int_equal(c->captures, 0);
    assert_int_equal(c->products, 0);
    /* The sum of losses, whose parameters are too many for a graph; on the stream of copies the kernel that gathers. */
    assert_int_equal(c->kernels, MICRO_BATCHES * (1 + e->gathers));
    /* A step that may have graphs of several kinds adds to gradients of zero. */
    assert_int_equal(c->fills, e->kinds > 1);
    /* On the stream of copies inputs, or the list of what is gathered; on the other one what the update is given. */
    assert_int_equal(c->uploads, MICRO_BATCHES * (e->inputs + 1));
    /* From where inputs were uploaded to where the graph reads them: then the next ones may come. */
    assert_int_equal(c->copies, MICRO_BATCHES);
    /* The update's results, which are read a step later. */
    assert_int_equal(c->downloads, 1);
    assert_int_equal(c->allocations, 0);
    assert_int_equal(c->host_allocations, 0);

    /* For the inputs of the micro-batch before, which a validation has waited for, and for the memory that the update
     * is given from; and for results. */
    const int uploads = MICRO_BATCHES - (step % VALIDATION == 0), given = MICRO_BATCHES;
    assert_int_equal(c->waits, uploads + given + settled(step) - settled(step - 1));
    /* Whatever it waits for, the card has as many launches left as a step has. */
    assert_int_equal(c->fewest_left, all_settled ? 0 : LAUNCHES);
}

static void train(ups_stage stage, const char *override, expected e) {
    ups_session session;
    open_run(override, &session);
    watch(session.device);
    ok(ups_stages[stage]->run(&(ups_stage_request){.session = &session}, &failure));
    assert_int_equal(seen.steps, STEPS);
    int64_t captures = 0;
    for (int step = 0; step < 2 * e.kinds; step++) captures += seen.step[step].captures;
    /* The first micro-batch overwrites gradients and later ones add to them, unless there are several kinds. */
    assert_int_equal(captures, 1 + (e.kinds > 1 ? e.kinds : MICRO_BATCHES));
    for (int step = 1; step < STEPS; step++) assert_int_equal(seen.step[step].allocations, 0);
    for (int step = 2 * e.kinds; step < STEPS; step++) check_step(step, &e);
    ups_session_close(&session);
}

CLAIM(a_step_of_an_autoencoder_is_a_graph_a_micro_batch_and_one_for_the_optimizer) {
    train(UPS_STAGE_AUTOENCODER, NULL, (expected){.kinds = 1, .inputs = 4});
}

CLAIM(a_step_of_an_operator_is_a_graph_a_micro_batch_and_one_for_the_optimizer) {
    ups_session session;
    open_run(NULL, &session);
    ok(ups_encode_run(&session, NULL, NULL, &failure));
    ups_session_close(&session);
    train(UPS_STAGE_OPERATOR, NULL, (expected){.kinds = 1, .inputs = 5});
}

CLAIM(adamw_alone_is_one_graph_too) {
    train(UPS_STAGE_OPERATOR, "operator.optimizer.kind=adamw", (expected){.kinds = 1, .inputs = 5});
}

CLAIM(windows_drawn_on_the_card_cost_a_list_and_a_kernel) {
    train(UPS_STAGE_OPERATOR, "data.residency=device", (expected){.kinds = 1, .inputs = 5, .gathers = true});
}

CLAIM(steps_of_two_kinds_are_launches_once_each_kind_has_come_twice) {
    train(UPS_STAGE_OPERATOR, "operator.losses={one_step: {weight: 1}, rollout: {weight: 1, every: 2}}",
          (expected){.kinds = 2, .inputs = 5});
}

CLAIM(the_sum_of_losses_stays_outside_of_graphs_for_its_parameters_which_the_emulated_card_refuses_there) {
    ups_device *device;
    ups_capture *capture;
    const ups_losses_call call = {.windows = 1};
    ok(ups_device_open(&(ups_device_options){.name = "cuda"}, &device, &failure));
    ok(device->class->capture_begin(device, &failure));
    refused(device->class->add_losses(device, &call, &failure), UPS_ERR_UNSUPPORTED, "adding losses");
    ok(device->class->capture_end(device, &capture, &failure));
    device->class->capture_release(device, capture);
    ups_device_close(device);
}

int main(void) {
    return run_claims(make_data, remove_scratch, NULL);
}
