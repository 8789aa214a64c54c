/* `ups bench encode`: an encoder alone, from fields that are already in memory to latents, as the cache build runs it:
 * float32, without gradients. The reference one, or that of a run. */
#include "base/json.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "model/device.h"
#include "model/devices/devices.h"
#include "model/nets/encoder.h"
#include "model/step/step.h"
#include "tools/bench/go_on.h"
#include "tools/bench/median.h"
#include "tools/bench/run_encoder.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/task_option.h"
#include "train/session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2 /* runs before the first that counts */, MAXIMUM_POINTS = 1 << 24 /* of a frame */ };

enum { AXES, POINTS, FRAMES, THREADS, RUNS, TASK, SECONDS, SET };
static const ups_option options[] = {
    [AXES] = {"axes", 0, "1|2|3", "grid axes of a field (default 1)"},
    [POINTS] = {"points", 0, "N", "points along each axis (default 1024, 128 or 32 by the number of axes)"},
    [FRAMES] = {"frames", 0, "N", "frames encoded at once (default 32)"},
    [THREADS] = {"threads", 't', "N", "processors used (default: all)"},
    [RUNS] = {"runs", 0, "N", "runs that count; the median is printed (default 10; with CONFIG 5)"},
    [TASK] = {"task", 0, "TASK", "with CONFIG: the task whose fields are encoded (default: the first)"},
    [SECONDS] = {"seconds", 0, "S", "with CONFIG: length of a run (default 1)"},
    [SET] = {"set", 's', "KEY=VALUE", "with CONFIG: overrides a key of it; may be given several times"},
};
static const ups_usage usage = {
    "bench encode",
    "[CONFIG]",
    "times an encoder alone: frames a second from fields to latents",
    options,
    sizeof options / sizeof *options,
    "Without CONFIG, the reference encoder: fields of one channel become 128 tokens of 128, by patches of 8 points an\n"
    "axis (4 in 3D), a convolutional stem of width 64, a trunk of width 128. With CONFIG, the trained encoder of that\n"
    "run on fields of its own: one encoder a processor, as the cache build has them, and in turn one on all "
    "processors.\n"
    "The cache build's reading and compressing come on top.\n\n"
    "Examples:\n  ups bench encode --axes 2 --points 128 --threads 2\n  ups bench encode configs/quickstart.yaml\n"};

typedef struct bench {
    ups_device *device;
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value field;
    int64_t frames, elements; /* of a run; of a frame */
} bench;

static void destroy(bench *b) {
    ups_step_destroy(b->step);
    ups_graph_destroy(b->graph);
    ups_parameters_destroy(b->parameters);
    ups_device_close(b->device);
}

static ups_status create(bench *b, const ups_device_options *device, int axes, int64_t points, ups_error *error) {
    ups_encoder_options reference = ups_encoder_defaults();
    ups_field_shape shape = {.task = "bench", .dims = axes, .channels = 1};
    b->elements = 1;
    for (int a = 0; a < axes; a++) {
        shape.grid[a] = points;
        b->elements *= points;
        if (axes == 3) reference.patch[a] = 4;
    }
    UPS_TRY(ups_device_open(device, &b->device, error));
    b->parameters = ups_parameters_create();
    if (!b->parameters) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the parameters");
    b->graph = ups_graph_create(b->parameters, UPS_F32);
    b->field = ups_graph_input(b->graph, "field", UPS_F32, UPS_SHAPE(b->frames, b->elements));
    ups_graph_keep(b->graph, ups_encoder_build(b->graph, &reference, &shape, b->field, UPS_NO_VALUE));
    UPS_TRY(ups_parameters_allocate(b->parameters, b->device, false, UPS_F32, 1, error));
    UPS_TRY(ups_step_create(b->graph, b->device, &b->step, error));
    size_t count = (size_t)(b->frames * b->elements);
    float *host = malloc(count * sizeof *host);
    if (!host) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %lld frames", (long long)b->frames);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1), 1.0f, host, count);
    ups_status status = ups_step_upload(b->step, b->field, host, count * sizeof *host, error);
    if (status == UPS_OK) status = ups_step_wait_uploaded(b->step, error);
    free(host);
    return status;
}

static ups_status measure(bench *b, int64_t runs, double *seconds, ups_error *error) {
    for (int64_t i = -WARM_UP; i < runs; i++) {
        double began = ups_now();
        UPS_TRY(ups_bench_go_on(error));
        UPS_TRY(ups_step_run(b->step, &(ups_step_run_options){0}, error));
        UPS_TRY(b->device->class->synchronize(b->device, error));
        if (i >= 0) seconds[i] = ups_now() - began;
    }
    return UPS_OK;
}

static void print(const bench *b, int axes, int64_t points, double median, double fastest, bool as_json) {
    double frames = (double)b->frames / median, megabytes = frames * (double)b->elements * sizeof(float) / 1e6;
    if (!as_json) {
        printf("%dD, %lld points an axis, %d threads: %.2f ms for %lld frames (fastest %.2f), %.0f frames/s, "
               "%.0f MB/s of fields\n",
               axes, (long long)points, ups_device_threads(b->device), median * 1e3, (long long)b->frames,
               fastest * 1e3, frames, megabytes);
        return;
    }
    json_t *facts =
        json_pack("{s:i, s:I, s:I, s:i, s:f, s:f, s:f, s:f}", "axes", axes, "points", (json_int_t)points, "frames",
                  (json_int_t)b->frames, "threads", ups_device_threads(b->device), "ms_per_run", median * 1e3,
                  "fastest_ms", fastest * 1e3, "frames_per_s", frames, "field_mb_per_s", megabytes);
    ups_print_json(facts, JSON_REAL_PRECISION(6));
    json_decref(facts);
}

typedef struct run_plan {
    const char *config, *task;
    double seconds;
    int64_t runs;
} run_plan;

static void print_run(const ups_task *task, const ups_encoder_rate *apart, const ups_encoder_rate *fused,
                      bool as_json) {
    if (!as_json) {
        printf("task %s: %.0f frames/s by %d encoders on %d processor%s each (%.0f us of CPU time a frame), "
               "%.0f frames/s by one on %d (%.0f us)\n",
               task->name, apart->frames_per_s, apart->encoders, apart->threads, apart->threads == 1 ? "" : "s",
               apart->cpu_us, fused->frames_per_s, fused->threads, fused->cpu_us);
        return;
    }
    double best = apart->frames_per_s > fused->frames_per_s ? apart->frames_per_s : fused->frames_per_s;
    json_t *facts = json_pack("{s:s, s:I, s:f, s:{s:i, s:i, s:f, s:f}, s:{s:i, s:i, s:f, s:f}}", "task", task->name,
                              "frames_per_trajectory", (json_int_t)task->geometry.times, "frames_per_s", best, "apart",
                              "encoders", apart->encoders, "threads", apart->threads, "frames_per_s",
                              apart->frames_per_s, "cpu_us_per_frame", apart->cpu_us, "fused", "encoders", 1, "threads",
                              fused->threads, "frames_per_s", fused->frames_per_s, "cpu_us_per_frame", fused->cpu_us);
    ups_print_json(facts, JSON_REAL_PRECISION(6));
    json_decref(facts);
}

static int bench_run(const run_plan *plan, const ups_arguments *arguments) {
    ups_error error = {0};
    ups_session session;
    const ups_task *task = NULL;
    ups_encoder_rate apart = {0}, fused = {0};
    ups_status status =
        ups_session_open(plan->config, arguments->overrides, arguments->override_count, false, &session, &error);
    bool misnamed = status == UPS_OK && ups_task_named(session.tasks, plan->task, &task, &error) != UPS_OK;
    if (status == UPS_OK && !misnamed) status = ups_session_normalise_as_trained(&session, 0, &error);
    if (status == UPS_OK && !misnamed)
        status = ups_bench_run_encoder(&session, task, plan->seconds, plan->runs, &apart, &fused, &error);
    if (status == UPS_OK && !misnamed) print_run(task, &apart, &fused, arguments->json);
    ups_session_close(&session);
    if (misnamed) return ups_command_usage_error(arguments, "%s", error.message);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(arguments, &error);
}

static int bench_reference(bench *b, int axes, int64_t points, int threads, int64_t runs,
                           const ups_arguments *arguments) {
    ups_error error = {0};
    double *seconds = malloc((size_t)runs * sizeof *seconds);
    ups_device_options where = {.name = "auto", .threads = threads};
    ups_status status =
        seconds ? UPS_OK : ups_fail(&error, UPS_ERR_MEMORY, "no memory for %lld times", (long long)runs);
    if (status == UPS_OK) status = create(b, &where, axes, points, &error);
    if (status == UPS_OK) status = measure(b, runs, seconds, &error);
    if (status == UPS_OK) {
        const double median = ups_bench_median(seconds, runs);
        print(b, axes, points, median, seconds[0], arguments->json);
    }
    free(seconds);
    destroy(b);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(arguments, &error);
}

int ups_cmd_bench_encode(int argc, char **argv) {
    enum { REFERENCE_RUNS = 10, CONFIG_RUNS = 5, MAXIMUM_RUNS = 101 };
    static const int64_t usual_points[] = {1024, 128, 32};
    int64_t axes = 1, points = 0, threads = 0, runs = 0;
    bench b = {.frames = 32};
    run_plan plan = {.seconds = 1};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == AXES) ups_arguments_integer(&arguments, 1, 3, &axes);
        if (option == POINTS) ups_arguments_integer(&arguments, 1, MAXIMUM_POINTS, &points);
        if (option == FRAMES) ups_arguments_integer(&arguments, 1, 4096, &b.frames);
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 4096, &threads);
        if (option == RUNS) ups_arguments_integer(&arguments, 1, MAXIMUM_RUNS, &runs);
        if (option == TASK) plan.task = arguments.value;
        if (option == SECONDS) ups_arguments_real(&arguments, 0.01, 600, &plan.seconds);
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 1) return ups_command_usage_error(&arguments, "at most one CONFIG was expected");
    if (arguments.operand_count == 1) {
        plan.config = arguments.operands[0];
        plan.runs = runs > 0 ? runs : CONFIG_RUNS;
        return bench_run(&plan, &arguments);
    }
    if (points == 0) points = usual_points[axes - 1];
    int64_t total = 1;
    for (int64_t a = 0; a < axes; a++) total = total > MAXIMUM_POINTS / points ? MAXIMUM_POINTS + 1 : total * points;
    if (total > MAXIMUM_POINTS)
        return ups_command_usage_error(&arguments, "--points: a frame may have at most %d points in all",
                                       MAXIMUM_POINTS);
    return bench_reference(&b, (int)axes, points, (int)threads, runs > 0 ? runs : REFERENCE_RUNS, &arguments);
}
