/* `ups bench step`: the training step of the reference operator alone: forward, backward, the norm of gradients and the
 * optimizer, on latents that are already in memory. */
#include "model/step/step.h"
#include "base/half.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "model/cpu/device.h"
#include "model/devices/devices.h"
#include "model/differentiate.h"
#include "model/nets/operator.h"
#include "tools/bench/go_on.h"
#include "tools/bench/median.h"
#include "tools/bench/roofline.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "train/optimizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3 /* steps before the first that counts */ };

enum { BATCH, DTYPE, RESIDUAL, THREADS, DEVICE, STEPS, CHECKPOINTING, OPTIMIZER, PROFILE, CARD, PREDICT };
static const ups_option options[] = {
    [BATCH] = {"batch", 0, "N", "latent pairs a step (default 8)"},
    [DTYPE] = {"dtype", 0, "float32|bfloat16|float16|tf32|fp8",
               "of the matrix products and what lies between them (default: the fastest here)"},
    [RESIDUAL] = {"residual", 0, "float32|half",
                  "dtype of what blocks add to: half is that of the products (default float32)"},
    [THREADS] = {"threads", 't', "N", "processors used (default: all)"},
    [DEVICE] = {"device", 0, "auto|cpu|cuda", "what computes (default auto)"},
    [STEPS] = {"steps", 0, "N", "steps that count; the median is printed (default 10)"},
    [CHECKPOINTING] = {"activation-checkpointing", 0, "none|cheap|block",
                       "what is recomputed in backward instead of kept (default none)"},
    [OPTIMIZER] = {"optimizer", 0, "adamw|muon", "what moves the weights (default adamw)"},
    [PROFILE] =
        {"profile", 0, NULL,
         "also print each op's time, GFLOP/s, GB/s and, of a card that is known, what it would take at best; it "
         "slows a step down a little"},
    [CARD] = {"card", 0, "a100|h100|h200",
              "the data sheet that MFU and best times are told by (default: that of the device, where it is one of "
              "these)"},
    [PREDICT] = {"predict", 0, "a100|h100|h200",
                 "print what the step would take at best on such a card, by its data sheet; runs nothing"},
};
static const ups_usage usage = {
    "bench step",
    "",
    "times a training step of the reference operator",
    options,
    sizeof options / sizeof *options,
    "The reference operator has 128 tokens of 128, 12 blocks of width 384 with 8 heads: 21.4 million parameters and\n"
    "17.3 GFLOP a pair. A step is forward, backward, the norm of gradients and the optimizer. tf32 is float32 of which "
    "a card\n"
    "may multiply fewer bits; fp8 is bfloat16 of which a card may multiply eight.\n\n"
    "Examples:\n  ups bench step --batch 8 --dtype bfloat16 --threads 2 --profile\n"
    "  ups bench step --batch 512 --dtype bfloat16 --predict h100\n"};

typedef struct bench {
    ups_device *device;
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value z, target, dt;
    ups_optimizer *optimizer;
} bench;

static void destroy(bench *b) {
    ups_optimizer_destroy(b->optimizer);
    ups_step_destroy(b->step);
    if (b->graph) ups_graph_destroy(b->graph);
    if (b->parameters) ups_parameters_destroy(b->parameters);
    ups_device_close(b->device);
}

static ups_status fill(bench *b, ups_value input, uint32_t stream, ups_error *error) {
    const ups_value_info *info = ups_graph_info(b->graph, input);
    const size_t count = (size_t)ups_shape_elements(info->shape), bytes = count * ups_dtype_size(info->dtype);
    float *host = malloc(count * (sizeof *host + sizeof(ups_f16)));
    if (!host) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a batch of latents");
    ups_f16 *half = (ups_f16 *)(void *)(host + count);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, stream), 1.0f, host, count);
    ups_f32_to_f16(host, half, count);
    const void *given = info->dtype == UPS_F16 ? (const void *)half : host;
    ups_status status = ups_step_upload(b->step, input, given, bytes, error);
    if (status == UPS_OK) status = ups_step_wait_uploaded(b->step, error);
    free(host);
    return status;
}

typedef enum products { F32, BF16, F16, TF32, FP8 } products; /* in the order of the option's words */

/* The graph of a step, on no device yet. */
static void build(bench *b, int64_t batch, products dtype, ups_residual_dtype residual,
                  ups_checkpointing checkpointing) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16, UPS_F32, UPS_BF16};
    static const char *const every_layer[] = {"*"};
    ups_operator_options reference = ups_operator_defaults();
    reference.residual = residual;
    b->parameters = ups_parameters_create();
    b->graph = ups_graph_create(b->parameters, computes[dtype]);
    b->graph->tf32 = dtype == TF32;
    b->graph->fp8_layers = every_layer;
    b->graph->fp8_layer_count = dtype == FP8;
    b->graph->checkpointing = checkpointing;
    ups_shape latents = UPS_SHAPE(batch, reference.tokens, reference.dim);
    b->z = ups_graph_input(b->graph, "z", UPS_F16, latents); /* as caches hold them */
    b->target = ups_graph_input(b->graph, "target", UPS_F16, latents);
    ups_value z = ups_cast(b->graph, b->z, UPS_F32), target = ups_cast(b->graph, b->target, UPS_F32);
    b->dt = ups_graph_input(b->graph, "dt", UPS_F32, UPS_SHAPE(batch, 1));
    ups_value next = ups_operator_build(b->graph, &reference, z, b->dt, UPS_NO_VALUE, UPS_NO_VALUE);
    ups_value loss = ups_loss_mse(b->graph, next, target);
    ups_graph_differentiate(b->graph, ups_weighted_sum(b->graph, &loss, (float[]){1.0f}, 1));
}

static ups_status create(bench *b, const ups_device_options *device, ups_optimizer_kind optimizer, ups_error *error) {
    const ups_optimizer_config config = {.kind = optimizer,
                                         .learning_rate = 1e-3,
                                         .weight_decay = 0.03,
                                         .beta1 = 0.9,
                                         .beta2 = 0.999,
                                         .epsilon = 1e-8,
                                         .momentum = 0.95};
    UPS_TRY(ups_device_open(device, &b->device, error));
    UPS_TRY(ups_parameters_allocate(b->parameters, b->device, true, b->graph->compute, 1, error));
    UPS_TRY(ups_step_create(b->graph, b->device, &b->step, error));
    UPS_TRY(ups_optimizer_create(&config, b->device, b->parameters, NULL, &b->optimizer, error));
    UPS_TRY(fill(b, b->z, 1, error));
    UPS_TRY(fill(b, b->target, 2, error));
    return fill(b, b->dt, 3, error);
}

/* Seconds of one whole step, and of its optimizer, the norm of gradients included. */
static ups_status run(bench *b, int64_t number, double *seconds, double *optimizer, ups_error *error) {
    ups_step_run_options how = {.training = true, .backward = true, .update = ups_optimizer_update(b->optimizer)};
    ups_update_input input = {.seed = 1, .item = (uint64_t)number, .step = number - 1, .share = 1};
    ups_update result;
    input.learning_rate = 1e-3f;
    UPS_TRY(ups_optimizer_begin(b->optimizer, &input, error));
    double start = ups_now();
    UPS_TRY(ups_step_run(b->step, &how, error));
    UPS_TRY(b->device->class->synchronize(b->device, error));
    double middle = ups_now();
    UPS_TRY(ups_optimizer_step(b->optimizer, NULL, error));
    UPS_TRY(b->device->class->synchronize(b->device, error));
    *seconds = ups_now() - start;
    *optimizer = *seconds - (middle - start);
    return ups_optimizer_result(b->optimizer, &result, error);
}

/* Of an op, or of the optimizer with the norm: milliseconds a step, and of what its shapes ask for (roofline.h) how
 * much a second. */
static void add_row(json_t *rows, const char *name, const ups_op_work *took, double steps, const ups_op_work *asked,
                    bool as_json) {
    const double to_ms = 1e3 / steps, all = ups_op_seconds(took) / steps, best = ups_op_seconds(asked) * 1e3;
    const double ms[] = {took->forward * to_ms, took->backward * to_ms, took->recompute * to_ms};
    json_t *row = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "op", name, "forward_ms", ms[0], "backward_ms", ms[1],
                            "recompute_ms", ms[2], "gflop_per_s", asked->flops / all * 1e-9, "gb_per_s",
                            asked->bytes / all * 1e-9);
    if (best > 0.0) json_object_set_new(row, "best_ms", json_real(best));
    json_array_append_new(rows, row);
    if (as_json) return;
    char flops[UPS_OP_RATE], bytes[UPS_OP_RATE];
    ups_op_rate(asked->flops, all, flops);
    ups_op_rate(asked->bytes, all, bytes);
    printf("%-16s %10.2f %10.2f %10.2f %10s %8s", name, ms[0], ms[1], ms[2], flops, bytes);
    if (best > 0.0) printf(" %10.2f", best);
    printf("\n");
}

/* `mover`: what the optimizer is called; what Muon asks for is not known. */
static json_t *profile_of(const bench *b, const ups_step_work *work, const char *mover, double optimizer,
                          bool as_json) {
    ups_step_profile profile = {0};
    const ups_op_work unknown = {0};
    json_t *rows = json_array();
    ups_step_profile_add(b->step, &profile);
    profile.of[UPS_OP_COUNT].forward = optimizer * (double)profile.runs;
    ups_op_works_sort(profile.of, UPS_OP_COUNT + 1);
    if (!as_json)
        printf("%-16s %10s %10s %10s %10s %8s%s\n", "ms a step", "forward", "backward", "recompute", "GFLOP/s", "GB/s",
               work->model.at_peak > 0.0 ? "    at best" : "");
    for (const ups_op_work *op = profile.of; op <= &profile.of[UPS_OP_COUNT] && ups_op_seconds(op) > 0.0; op++) {
        const bool moves = op->kind == UPS_OP_COUNT;
        add_row(rows, moves ? mover : ups_op_name((ups_op_kind)op->kind), op, (double)profile.runs,
                moves && strcmp(mover, "adamw") != 0 ? &unknown : &work->of[op->kind], as_json);
    }
    return rows;
}

/* `began`: when the device was opened; `card`: NULL where no data sheet is known. */
static ups_status measure(bench *b, double began, int64_t batch, int64_t steps, const char *mover, const ups_card *card,
                          bool profile, bool as_json, ups_error *error) {
    const char *dtype = ups_products_name(b->graph);
    ups_step_work work;
    double first = 0.0;
    UPS_TRY(ups_step_work_of(b->graph, ups_parameters_trainable(b->parameters), card, &work, error));
    double *seconds = malloc(2 * (size_t)steps * sizeof *seconds);
    if (!seconds) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %lld times", (long long)steps);
    double *optimizer = seconds + steps;
    ups_status status = UPS_OK;
    for (int64_t i = -WARM_UP; i < steps && status == UPS_OK; i++) {
        int64_t at = i < 0 ? 0 : i;
        if (i == 0) ups_step_profile_enable(b->step, profile);
        status = ups_bench_go_on(error);
        if (status == UPS_OK) status = run(b, i + WARM_UP + 1, &seconds[at], &optimizer[at], error);
        if (i == -WARM_UP) first = ups_now() - began;
    }
    if (status == UPS_OK) {
        double median = ups_bench_median(seconds, steps);
        json_t *facts =
            json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "device", b->device->class->name,
                      "threads", ups_device_threads(b->device), "dtype", dtype, "batch", (json_int_t)batch, "params",
                      (json_int_t)ups_parameters_trainable(b->parameters), "activation_bytes",
                      (json_int_t)ups_step_memory(b->step).activations, "ms_per_step", median * 1e3, "fastest_ms",
                      seconds[0] * 1e3, "pairs_per_s", (double)batch / median, "product_gflop_per_s",
                      work.product_flops / median * 1e-9, "first_step_s", first);
        if (card) {
            json_object_set_new(facts, "card", json_string(card->sheet));
            json_object_set_new(facts, "mfu", json_real(work.model.at_peak / median));
            json_object_set_new(facts, "best_ms", json_real(work.seconds * 1e3));
        }
        if (!as_json) {
            printf("%s, %d threads, %s, batch %lld: %.1f ms a step (fastest %.1f), %.1f pairs/s, %.0f GFLOP/s of "
                   "products, "
                   "%.0f MB of activations; the first step was done %.2f s after the device was asked for\n",
                   b->device->class->name, ups_device_threads(b->device), dtype, (long long)batch, median * 1e3,
                   seconds[0] * 1e3, (double)batch / median, work.product_flops / median * 1e-9,
                   (double)ups_step_memory(b->step).activations * 1e-6, first);
            if (card)
                printf("MFU %.1f %% by the data sheet of an %s, which allows %.1f ms\n",
                       100.0 * work.model.at_peak / median, card->sheet, work.seconds * 1e3);
        }
        if (profile)
            json_object_set_new(facts, "profile",
                                profile_of(b, &work, mover, ups_bench_median(optimizer, steps), as_json));
        if (as_json) {
            ups_print_json(facts, JSON_REAL_PRECISION(6));
        }
        json_decref(facts);
    }
    free(seconds);
    return status;
}

static ups_status predict(const bench *b, const ups_card *card, bool as_json, ups_error *error) {
    json_t *facts;
    UPS_TRY(ups_roofline(b->graph, card, ups_parameters_trainable(b->parameters), as_json, &facts, error));
    if (as_json) ups_print_json(facts, JSON_REAL_PRECISION(6));
    json_decref(facts);
    return UPS_OK;
}

int ups_cmd_bench_step(int argc, char **argv) {
    static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
    static const char *const optimizers[] = {[UPS_OPTIMIZER_ADAMW] = "adamw", [UPS_OPTIMIZER_MUON] = "muon"};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t batch = 8, threads = 0, steps = 10;
    int dtype = -1, residual = 0, device = 0, checkpointing = 0, optimizer = UPS_OPTIMIZER_ADAMW, sheet = -1, card = -1;
    bool profile = false;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == BATCH) ups_arguments_integer(&arguments, 1, 1 << 20, &batch);
        if (option == DTYPE) ups_arguments_choice(&arguments, &dtype);
        if (option == RESIDUAL) ups_arguments_choice(&arguments, &residual);
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 4096, &threads);
        if (option == DEVICE) ups_arguments_choice(&arguments, &device);
        if (option == STEPS) ups_arguments_integer(&arguments, 1, 1 << 20, &steps);
        if (option == CHECKPOINTING) ups_arguments_choice(&arguments, &checkpointing);
        if (option == OPTIMIZER) ups_arguments_choice(&arguments, &optimizer);
        if (option == PROFILE) profile = true;
        if (option == CARD) ups_arguments_choice(&arguments, &sheet);
        if (option == PREDICT) ups_arguments_choice(&arguments, &card);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 0) return ups_command_usage_error(&arguments, "no operands were expected");
    if (card >= 0 && optimizer != UPS_OPTIMIZER_ADAMW)
        return ups_command_usage_error(&arguments, "--predict knows steps of --optimizer adamw alone");

    ups_error error = {0};
    bench b = {0};
    const bool on_card = card >= 0 || strcmp(device ? devices[device] : ups_device_automatic(), "cuda") == 0;
    if (dtype < 0) dtype = on_card || ups_cpu_bf16_is_fast() ? BF16 : F32;
    ups_device_options where = {.name = devices[device], .threads = (int)threads};
    build(&b, batch, (products)dtype, (ups_residual_dtype)residual, (ups_checkpointing)checkpointing);
    const double began = ups_now();
    ups_status status = card >= 0 ? predict(&b, ups_card_at(card), arguments.json, &error)
                                  : create(&b, &where, (ups_optimizer_kind)optimizer, &error);
    if (status == UPS_OK && card < 0) {
        const ups_card *known = sheet >= 0 ? ups_card_at(sheet) : ups_card_of_driver(b.device->card);
        status = measure(&b, began, batch, steps, optimizers[optimizer], known, profile, arguments.json, &error);
    }
    destroy(&b);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
}
