#include "tools/commands/plan.h"

#include "base/files.h"
#include "base/json.h"
#include "model/devices/devices.h"
#include "tools/commands/config_mistakes.h"
#include "tools/commands/ranks.h"
#include "train/cache_build/encode.h"
#include "train/precision.h"
#include "train/run_precision.h"
#include "train/session.h"
#include "train/stages/follow.h"
#include "train/stages/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"batch_size": …, …}: all that is known of a stage; `ranks` where there are several, and all of it is of each. */
static json_t *describe_plan(const ups_stage_plan *plan, int ranks) {
    json_t *described = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I}", "batch_size",
        (json_int_t)plan->batch_size, "trainable_parameters", (json_int_t)plan->trainable, "parameters",
        (json_int_t)plan->parameters, "optimizer", (json_int_t)plan->optimizer, "activations",
        (json_int_t)plan->activations, "activations_without_checkpointing",
        (json_int_t)plan->activations_without_checkpointing, "inputs", (json_int_t)plan->inputs, "workspace",
        (json_int_t)plan->workspace, "loader", (json_int_t)plan->loader, "validation_loader",
        (json_int_t)plan->validation, "residency", ups_residency_name(plan->residency), "resident",
        (json_int_t)plan->resident, "resident_on_device", (json_int_t)plan->resident_on_device, "encodes",
        (int)plan->encodes, "encoders", (json_int_t)plan->encoders, "exchange", (json_int_t)plan->exchange, "total",
        (json_int_t)plan->total, "on_device", (json_int_t)plan->on_device, "offloaded", (json_int_t)plan->offloaded);
    if (ranks > 1) json_object_set_new(described, "ranks", json_integer(ranks));
    return described;
}

/* `micro_batches`: of a step, of all ranks; `shares`: each keeps a share of the optimizer's state. */
static void print_plan(const char *name, const ups_stage_plan *plan, int64_t micro_batches, int ranks, bool shares) {
    printf("%s: %.2f M parameters, batches of %lld\n", name, (double)plan->trainable / 1e6,
           (long long)plan->batch_size);
    if (ranks > 1)
        printf("  of each of %d ranks, for %lld of the %lld micro-batches of a step:\n", ranks,
               (long long)micro_batches / ranks, (long long)micro_batches);
    static const char *const kept[] = {[UPS_RESIDENCY_STREAM] = "samples kept (stream: none)",
                                       [UPS_RESIDENCY_RAM_COMPRESSED] = "samples kept (ram_compressed)",
                                       [UPS_RESIDENCY_RAM] = "samples kept (ram)"};
    const struct {
        const char *what;
        size_t bytes;
    } rows[] = {{"weights, gradients, compute copy", plan->parameters},
                {shares ? "a rank's share of optimizer state" : "optimizer state", plan->optimizer},
                {"activations", plan->activations},
                {"kernel workspace", plan->workspace},
                {"inputs", plan->inputs},
                {"batches in flight", plan->loader},
                {"batches of validations", plan->validation},
                {plan->encodes ? "samples kept (encode)" : kept[plan->residency], plan->resident},
                {plan->resident_on_device ? "samples kept on the card" : NULL, plan->resident_on_device},
                {plan->encodes ? "encoders" : NULL, plan->encoders},
                {plan->exchange ? "sums over processes" : NULL, plan->exchange},
                {"total", plan->total},
                {plan->on_device ? "of it on the card" : NULL, plan->on_device},
                {plan->offloaded ? "moments in the host's memory" : NULL, plan->offloaded}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].what) continue;
        double mib = (double)rows[i].bytes / (1 << 20);
        bool large = plan->total >> 20 >= 100 * 1024;
        printf("  %-34s %10.1f %s\n", rows[i].what, large ? mib / 1024 : mib, large ? "GiB" : "MiB");
    }
    if (plan->activations_without_checkpointing > plan->activations) {
        size_t saved = plan->activations_without_checkpointing - plan->activations;
        printf("  activation checkpointing saves %.1f MiB, %.0f %% of the activations\n", (double)saved / (1 << 20),
               100.0 * (double)saved / (double)plan->activations_without_checkpointing);
    }
}

/* What the cache stage writes, before compression and without heads of files, and what there is room for; NULL where it
 * writes none. */
static json_t *plan_cache(const ups_session *session, bool print) {
    if (session->config->data.residency == UPS_RUN_ENCODE) return NULL;
    char *directory = ups_run_cache_directory(session->config);
    const uint64_t latents = ups_encode_plain_bytes(session);
    uint64_t room = 0;
    const bool known = directory && ups_free_space(directory, &room);
    const bool large = latents >= 1000000000;
    if (print)
        printf("cache: %.1f %s of latents before compression", (double)latents / (large ? 1e9 : 1e6),
               large ? "GB" : "MB");
    if (print && known) printf("; %.1f GB are free at %s", (double)room / 1e9, directory);
    if (print) putchar('\n');
    json_t *described = json_pack("{s:I}", "latents", (json_int_t)latents);
    if (known) json_object_set_new(described, "free", json_integer((json_int_t)room));
    free(directory);
    return described;
}

static ups_status plan_stages(ups_session *session, int stage_alone, bool restart, bool as_json, ups_error *error) {
    const ups_run_config *config = session->config;
    if (restart)
        session->config->precision = ups_precision_resolve(config->precision, config->device.name);
    else
        UPS_TRY(ups_precision_of_run(config, &session->config->precision, error));
    json_t *list = as_json ? json_object() : NULL;
    ups_status status = UPS_OK, fits = UPS_OK;
    ups_stage_request request = {.session = session};
    ups_stages_wanted wanted = {.stage = stage_alone};
    const int ranks = ups_comm_size(session->comm);
    unsigned planned = 0;
    for (unsigned i = 0; i < config->stage_count; i++)
        if (ups_stages_include(&wanted, config, i)) planned |= 1u << config->stages[i];
    status = ups_stages_check(planned, config, session->tasks, error);
    for (unsigned i = 0; i < config->stage_count && status == UPS_OK; i++) {
        ups_stage stage = config->stages[i];
        if (stage_alone < 0) request.done |= 1u << stage;
        if (!ups_stages_include(&wanted, config, i)) continue;
        if (stage == UPS_STAGE_CACHE) {
            json_t *cache = plan_cache(session, !as_json);
            if (list && cache) json_object_set(list, ups_stage_name(stage), cache);
            json_decref(cache);
        }
        if (!ups_stages[stage]->plan) continue;
        ups_stage_plan plan;
        status = ups_stage_check_ranks(config, stage, ranks, error);
        if (status == UPS_OK) status = ups_stages[stage]->plan(&request, &plan, error);
        if (status != UPS_OK) break;
        if (list)
            json_object_set_new(list, ups_stage_name(stage), describe_plan(&plan, ranks));
        else
            print_plan(ups_stage_name(stage), &plan, ups_run_training(config, stage)->accumulation, ranks,
                       ranks > 1 && config->ranks.shard != UPS_SHARD_NONE);
        if (fits == UPS_OK) fits = ups_stage_check_memory(session, stage, &plan, error);
    }
    if (status == UPS_OK) status = fits;
    if (!list && status == UPS_OK && ups_run_on_grid(config) && config->model.dim == 0)
        puts("model.dim: auto is found when training begins; planned is the most it can be, all numbers of a patch.");
    if (list && status == UPS_OK) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(list);
    return status;
}

int ups_command_plan(const ups_arguments *arguments, const ups_train_request *request, double card_gib) {
    const uint64_t card = (uint64_t)(card_gib * (double)(1 << 30));
    ups_session session;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    ups_status status =
        ups_session_open_to_plan(request->operand, request->overrides, request->override_count, card, &session, &error);
    if (status == UPS_OK && card > 0 && !session.device->class->memory)
        status = ups_fail(&error, UPS_ERR_ARGUMENT, "--memory is of a card, and the device is '%s'; add --device cuda",
                          session.device->class->name);
    if (status == UPS_ERR_UNSUPPORTED && card == 0 && ups_device_can_plan("cuda")) {
        size_t used = strlen(error.message);
        snprintf(error.message + used, sizeof error.message - used, "; --memory 80 plans for an absent card of 80 GiB");
    }
    session.comm = request->comm;
    ups_ranks_speak();
    if (status == UPS_OK) status = plan_stages(&session, request->stage, request->restart, arguments->json, &error);
    if (status != UPS_OK && !session.config)
        exit_code = ups_command_fail_on_config(arguments, UPS_PATHS_ALL, &error);
    else if (status != UPS_OK)
        exit_code = ups_command_fail(arguments, &error);
    ups_session_close(&session);
    return exit_code;
}
