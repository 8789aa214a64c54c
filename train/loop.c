#include "train/loop.h"

#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/threads.h"
#include "train/data/batches.h"
#include "train/learning_rate.h"
#include "train/metrics.h"
#include "train/run/machine.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNNING_LOSS_DECAY 0.98
#define SPIKE_AFTER 100 /* steps before a spike is reported: the running mean has to settle */
#define BATCH_TEXT 320  /* bytes of a message that may go to naming samples */

/* Running mean of the loss over the steps of this process that took the same losses. */
typedef struct loss_history {
    double mean;
    int64_t steps;
    double largest; /* spike that was reported, over the mean of its time */
} loss_history;

typedef struct loop {
    const ups_loop_options *options;
    const ups_loop_stage *stage;
    ups_training_state state;          /* as of the last step whose result was read */
    int64_t issued;                    /* steps, of which the last may not be read yet */
    bool trained[UPS_UPDATE_MAX_SETS]; /* by the step that is being issued */
    ups_metrics *metrics;
    ups_progress *progress;
    char *checkpoints; /* directory */
    double last_gradient_norm, last_rate;
    loss_history history[UPS_MAX_LOSS_SETS];
    int64_t spikes, spikes_reported; /* since this process began */
    int64_t bad_reported;            /* samples that the loader skipped, by now in the log */
    double began;                    /* clock when this process began; validations and checkpoints do not count */
    int64_t began_step;
    ups_loss_sums last;                      /* of the steps of the last line */
    double validated[UPS_SAMPLER_MAX_TASKS]; /* loss of each task in the last validation; NaN: none */
    double line_began;                       /* clock when the current line began */
    int64_t line_step;                       /* and the step */
    ups_loader_statistics loaded;            /* what the loader had done by then */
    ups_arithmetic arithmetic;               /* of the steps that this process issued since */
    ups_usage usage;                         /* of the last line; its arithmetic: of all lines of this process */
    bool told_machine;                       /* by a line of this process */
} loop;

/* Σ loss / Σ windows over tasks. */
static double mean_loss(const double *sum, const int64_t *count, int tasks) {
    double total = 0;
    int64_t windows = 0;
    for (int t = 0; t < tasks; t++) {
        total += sum[t];
        windows += count[t];
    }
    return windows > 0 ? total / (double)windows : NAN;
}

/* Whether this process writes and tells what there is to. */
static bool leads(const loop *l) {
    return ups_comm_rank(l->options->comm) == 0;
}

/* Whether it has part in what is saved: where each keeps a share, all have. */
static bool saves(const loop *l) {
    return leads(l) || ups_exchange_gather(l->options->exchange);
}

static double running_mean(double mean, double value, bool first) {
    return first ? value : RUNNING_LOSS_DECAY * mean + (1 - RUNNING_LOSS_DECAY) * value;
}

/* Where the loader's time went since the current line began. */
static ups_loader_statistics loaded(const loop *l) {
    ups_loader_statistics now = {0};
    if (l->stage->loader) ups_loader_statistics_get(l->stage->loader, &now);
    return now;
}

static double waited(const loop *l) {
    return loaded(l).seconds_consumer - l->loaded.seconds_consumer;
}

/* Seconds: this thread waiting for a batch; decode threads waiting for the disk, and at work, summed over them; the
 * loader waiting because every slot held a batch already. */
static json_t *loader_line(const loop *l) {
    ups_loader_statistics now = loaded(l), before = l->loaded;
    int64_t draws = now.trajectories - before.trajectories;
    json_t *line = json_object();
    if (l->stage->residency) json_object_set_new(line, "residency", json_string(l->stage->residency));
    json_object_set_new(line, "waited_s", ups_json_number(now.seconds_consumer - before.seconds_consumer));
    json_object_set_new(line, "disk_s", ups_json_number(now.seconds_disk - before.seconds_disk));
    json_object_set_new(line, "decode_s", ups_json_number(now.seconds_decode - before.seconds_decode));
    json_object_set_new(line, "full_s", ups_json_number(now.seconds_full - before.seconds_full));
    json_object_set_new(line, "read_bytes", json_integer((json_int_t)(now.bytes_read - before.bytes_read)));
    json_object_set_new(line, "resident_share",
                        ups_json_number(draws > 0 ? (double)(now.resident - before.resident) / (double)draws : 0.0));
    return line;
}

/* Rates are of this process alone: the clock and what it is divided into begin anew where a run goes on. */
static void begin_clock(loop *l) {
    l->state.interval.windows = 0;
    l->line_began = ups_now();
    l->line_step = l->state.step;
    l->loaded = loaded(l);
    l->arithmetic = (ups_arithmetic){0};
}

/* {loss: its mean over the windows of steps that took it, without its weight}; NULL where they are not told apart. */
static json_t *list_losses(const loop *l) {
    const ups_loss_sums *interval = &l->state.interval;
    if (!interval->loss_names) return NULL;
    json_t *losses = json_object();
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        double weight = l->options->training->losses[i].weight;
        if (interval->part_count[i] == 0 || weight <= 0) continue;
        json_object_set_new(losses, interval->loss_names[i],
                            ups_json_number(interval->part[i] / (weight * (double)interval->part_count[i])));
    }
    return losses;
}

static ups_status write_metrics(const loop *l, json_t *line, ups_error *error) {
    if (leads(l)) return ups_metrics_write(l->metrics, line, error);
    json_decref(line);
    return UPS_OK;
}

/* What the steps of the line computed, and what memory is taken now. */
static ups_status add_usage(loop *l, double seconds, json_t *line, ups_error *error) {
    const ups_arithmetic before = l->usage.arithmetic;
    UPS_TRY(ups_usage_gather(l->options->comm, l->options->device, &l->arithmetic, &l->usage, error));
    ups_usage_describe(&l->usage, seconds, ups_comm_size(l->options->comm), line);
    l->usage.arithmetic.flops += before.flops;
    l->usage.arithmetic.at_peak += before.at_peak;
    return UPS_OK;
}

/* One line of metrics.jsonl for the steps since the last one that was due. `due`: not only because the run ends. */
static ups_status write_line(loop *l, bool due, ups_error *error) {
    double seconds = ups_now() - l->line_began;
    json_t *tasks = json_object();
    for (int t = 0; t < l->state.interval.tasks; t++) {
        if (l->state.interval.count[t] == 0) continue;
        json_object_set_new(tasks, l->state.interval.task_names[t],
                            ups_json_number(l->state.interval.sum[t] / (double)l->state.interval.count[t]));
    }
    json_t *line = json_object(), *losses = list_losses(l);
    json_object_set_new(line, "stage", json_string(l->stage->name));
    json_object_set_new(line, "step", json_integer(l->state.step));
    json_object_set_new(
        line, "loss",
        ups_json_number(mean_loss(l->state.interval.sum, l->state.interval.count, l->state.interval.tasks)));
    json_object_set_new(line, "task_loss", tasks);
    if (losses) json_object_set_new(line, "losses", losses);
    json_object_set_new(line, "learning_rate", ups_json_number(l->last_rate));
    json_object_set_new(line, "gradient_norm", ups_json_number(l->last_gradient_norm));
    if (ups_optimizer_scales_losses(l->options->optimizer)) {
        ups_update_state scaling = ups_optimizer_state(l->options->optimizer);
        json_object_set_new(line, "loss_scale", ups_json_number((double)scaling.loss_scale));
        json_object_set_new(line, "skipped", json_integer((json_int_t)scaling.skipped));
    }
    if (l->state.step > l->line_step)
        json_object_set_new(line, "step_s", ups_json_number(seconds / (double)(l->state.step - l->line_step)));
    json_object_set_new(line, "samples_per_s", ups_json_number((double)l->state.interval.windows / seconds));
    json_object_set_new(line, "data_wait_share", ups_json_number(waited(l) / seconds));
    ups_status status = add_usage(l, seconds, line, error);
    if (l->stage->loader) json_object_set_new(line, "loader", loader_line(l));
    if (l->options->comm) json_object_set_new(line, "ranks", json_integer(ups_comm_size(l->options->comm)));
    if (!l->told_machine) json_object_set_new(line, "machine", ups_machine_describe(l->options->device));
    l->told_machine = true;
    if (status == UPS_OK)
        status = write_metrics(l, line, error);
    else
        json_decref(line);
    l->last = l->state.interval;
    if (due) {
        memset(l->state.interval.sum, 0, sizeof l->state.interval.sum);
        memset(l->state.interval.count, 0, sizeof l->state.interval.count);
        memset(l->state.interval.part, 0, sizeof l->state.interval.part);
        memset(l->state.interval.part_count, 0, sizeof l->state.interval.part_count);
    }
    begin_clock(l);
    return status;
}

static void show_progress(loop *l, double loss) {
    double seconds = ups_now() - l->line_began;
    char note[160];
    int used = snprintf(note, sizeof note, "loss %.3g", loss);
    if (seconds > 0.5 && used > 0) {
        snprintf(note + used, sizeof note - (size_t)used, "  %.0f samples/s  wait %.0f %%",
                 (double)l->state.interval.windows / seconds, 100 * waited(l) / seconds);
    }
    ups_progress_update(l->progress, l->state.step, note);
}

/* What the stage changes for later steps. */
static ups_status advance(loop *l, const ups_loss_sums *validation, json_t *report, ups_error *error) {
    if (!l->stage->advance) return UPS_OK;
    return l->stage->advance(l->stage->context, l->issued, validation, report, error);
}

/* The weights of the best validation are kept, and how many have been no better since. */
static ups_status note_score(loop *l, ups_error *error) {
    const ups_training_config *training = l->options->training;
    ups_best_score *best = &l->state.best;
    if (!isfinite(l->state.score)) return UPS_OK;
    if (best->step > 0 && !(l->state.score < best->score - training->min_delta)) {
        best->stale++;
        return UPS_OK;
    }
    *best = (ups_best_score){.step = l->state.step, .score = l->state.score};
    memcpy(best->task, l->validated, sizeof best->task);
    const ups_loop_options *options = l->options;
    if (!saves(l)) return UPS_OK;
    ups_device_range_begin(options->device, "checkpoint");
    ups_status status = ups_checkpoint_save_best(l->checkpoints, &l->state, options->parameters, options->optimizer,
                                                 ups_exchange_gather(options->exchange), error);
    ups_device_range_end(options->device);
    return status;
}

/* Where the schedule looks at validations. */
static void note_plateau(loop *l) {
    const ups_training_config *training = l->options->training;
    ups_plateau *plateau = &l->state.plateau;
    if (!ups_plateau_note(plateau, &training->optimizer, training->min_delta, l->state.step, l->state.score)) return;
    ups_log(UPS_LOG_INFO,
            "%s, step %lld: %lld validations in a row were no better than %.4g; the learning rate is %.3g now",
            l->stage->name, (long long)l->state.step, (long long)training->optimizer.plateau_patience, plateau->best,
            ups_schedule_rate(&training->optimizer, l->state.step, training->steps, plateau->cuts));
}

static bool has_ended_early(const loop *l) {
    int64_t patience = l->options->training->patience;
    return patience > 0 && l->state.best.stale >= patience;
}

/* "operator, step 40 of 60: validation 0.0123 (advection 0.01, darcy 0.0146), the best so far" */
static void say_validation(const loop *l) {
    enum { SHOWN_TASKS = 8 };
    const ups_best_score *best = &l->state.best;
    char tasks[400] = "", note[80] = "";
    size_t used = 0;
    int shown = 0;
    if (!isfinite(l->state.score)) return; /* nothing to validate on */
    for (int t = 0; t < l->state.interval.tasks && used < sizeof tasks; t++) {
        if (!isfinite(l->validated[t])) continue;
        if (shown++ == SHOWN_TASKS) {
            used += (size_t)snprintf(tasks + used, sizeof tasks - used, ", …");
            break;
        }
        used += (size_t)snprintf(tasks + used, sizeof tasks - used, "%s%.40s %.3g", shown > 1 ? ", " : "",
                                 l->state.interval.task_names[t], l->validated[t]);
    }
    if (best->step == l->state.step)
        snprintf(note, sizeof note, "; the best so far");
    else if (best->step > 0)
        snprintf(note, sizeof note, "; best %.4g at step %lld", best->score, (long long)best->step);
    ups_log(UPS_LOG_INFO, "%s, step %lld of %lld: validation %.4g (%s)%s", l->stage->name, (long long)l->state.step,
            (long long)l->options->training->steps, l->state.score, tasks, note);
}

/* "autoencoder: 60 steps in 1.2 s, 20 ms a step, 31.4 GFLOP/s, at most 212 MB of memory" */
static void say_usage(const loop *l) {
    const ups_usage *usage = &l->usage;
    const double seconds = ups_now() - l->began, processes = ups_comm_size(l->options->comm);
    const int64_t steps = l->state.step - l->began_step;
    char rate[40] = "", mfu[40] = "", device[40] = "";
    if (usage->arithmetic.flops > 0)
        snprintf(rate, sizeof rate, ", %.3g GFLOP/s", usage->arithmetic.flops / seconds * 1e-9);
    if (usage->arithmetic.at_peak > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * usage->arithmetic.at_peak / (seconds * processes));
    if (usage->device > 0)
        snprintf(device, sizeof device, " and %.0f MB of the device's", (double)usage->device * 1e-6);
    ups_log(UPS_LOG_INFO, "%s: %lld steps in %.1f s, %.3g ms a step%s%s, at most %.0f MB of memory%s", l->stage->name,
            (long long)steps, seconds, 1e3 * seconds / (double)steps, rate, mfu, (double)usage->resident_peak * 1e-6,
            device);
}

/* A table at the stage's end: each task's loss in training, in the last validation and in the best one. */
static void say_summary(const loop *l, bool ended_early) {
    const ups_best_score *best = &l->state.best;
    if (ended_early)
        ups_log(UPS_LOG_INFO,
                "%s: ended at step %lld of %lld: %lld validations in a row were no better than %.4g at step "
                "%lld (%s.patience)",
                l->stage->name, (long long)l->state.step, (long long)l->options->training->steps,
                (long long)best->stale, best->score, (long long)best->step, l->stage->name);
    if (l->state.step == l->began_step) return;
    say_usage(l);
    if (l->spikes > l->spikes_reported)
        ups_log(UPS_LOG_INFO, "  the loss spiked in %lld steps; those larger than all before were reported",
                (long long)l->spikes);
    char header[40] = "";
    if (best->step > 0) snprintf(header, sizeof header, "best, step %lld", (long long)best->step);
    ups_log(UPS_LOG_INFO, "  %-20s %12s %12s   %s", "task", "training", "validation", header);
    for (int t = 0; t < l->state.interval.tasks; t++) {
        char columns[3][24] = {"-", "-", ""};
        if (l->last.count[t] > 0)
            snprintf(columns[0], sizeof columns[0], "%.4g", l->last.sum[t] / (double)l->last.count[t]);
        if (isfinite(l->validated[t])) snprintf(columns[1], sizeof columns[1], "%.4g", l->validated[t]);
        if (best->step > 0 && isfinite(best->task[t])) snprintf(columns[2], sizeof columns[2], "%.4g", best->task[t]);
        ups_log(UPS_LOG_INFO, "  %-20.40s %12s %12s   %s", l->state.interval.task_names[t], columns[0], columns[1],
                columns[2]);
    }
}

/* `due`: not only because the run ends. A run that is given more steps later has to be as if it had had them. */
static ups_status validate(loop *l, bool due, ups_error *error) {
    if (!l->stage->validate) return advance(l, NULL, NULL, error);
    double began = ups_now();
    ups_loss_sums sums = {.tasks = l->state.interval.tasks, .task_names = l->state.interval.task_names};
    ups_device_range_begin(l->options->device, "validation");
    ups_status status = l->stage->validate(l->stage->context, &sums, error);
    ups_device_range_end(l->options->device);
    UPS_TRY(status);
    json_t *means = json_object();
    for (int t = 0; t < UPS_SAMPLER_MAX_TASKS; t++) l->validated[t] = NAN;
    double total = 0;
    int counted = 0;
    for (int t = 0; t < sums.tasks; t++) {
        if (sums.count[t] == 0) continue; /* no validation samples */
        double mean = sums.sum[t] / (double)sums.count[t];
        json_object_set_new(means, sums.task_names[t], ups_json_number(mean));
        l->validated[t] = mean;
        total += mean;
        counted++;
    }
    l->state.score = counted > 0 ? total / counted : (double)NAN;
    json_t *report = json_object();
    json_object_set_new(report, "stage", json_string(l->stage->name));
    json_object_set_new(report, "step", json_integer(l->state.step));
    json_object_set_new(report, "validation", means);
    json_object_set_new(report, "score", ups_json_number(l->state.score));
    status = due ? note_score(l, error) : UPS_OK;
    if (due) note_plateau(l);
    if (l->state.best.step > 0) {
        json_object_set_new(report, "best", ups_json_number(l->state.best.score));
        json_object_set_new(report, "best_step", json_integer((json_int_t)l->state.best.step));
    }
    if (status == UPS_OK) status = advance(l, due ? &sums : NULL, report, error);
    if (status != UPS_OK) {
        json_decref(report);
        return status;
    }
    say_validation(l);
    double spent = ups_now() - began;
    l->line_began += spent; /* rates are of training alone */
    l->began += spent;
    return write_metrics(l, report, error);
}

static ups_status save(loop *l, ups_error *error) {
    const ups_loop_options *options = l->options;
    double began = ups_now();
    if (!saves(l)) return UPS_OK;
    ups_device_range_begin(options->device, "checkpoint");
    ups_status status = ups_checkpoint_save(l->checkpoints, &l->state, options->parameters, options->optimizer,
                                            ups_exchange_gather(options->exchange), error);
    ups_device_range_end(options->device);
    double spent = ups_now() - began;
    l->line_began += spent;
    l->began += spent;
    return status;
}

static void describe_batch(const loop *l, int64_t step, int64_t index, char text[BATCH_TEXT]) {
    text[0] = '\0';
    if (l->stage->describe_batch) l->stage->describe_batch(l->stage->context, step, index, text, BATCH_TEXT);
}

/* The same of a micro-batch of any process, in all. */
static ups_status describe_any_batch(const loop *l, int64_t step, int64_t index, char text[BATCH_TEXT],
                                     ups_error *error) {
    const int ranks = ups_comm_size(l->options->comm), owner = (int)(index % ranks);
    char own[BATCH_TEXT], *all = malloc((size_t)ranks * BATCH_TEXT);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    memset(own, 0, sizeof own);
    if (owner == ups_comm_rank(l->options->comm)) describe_batch(l, step, index, own);
    ups_status status = ups_comm_gather(l->options->comm, own, all, BATCH_TEXT, error);
    memcpy(text, all + owner * BATCH_TEXT, BATCH_TEXT);
    free(all);
    return status;
}

static ups_status fail_not_finite(const loop *l, const ups_update *update, ups_error *error) {
    const ups_update_result *result = &update->result;
    int64_t last = l->options->training->accumulation - 1;
    char batch[BATCH_TEXT];
    UPS_TRY(describe_any_batch(l, l->state.step, result->bad_micro_batch ? result->bad_micro_batch - 1 : last, batch,
                               error));
    ups_comm_end_together(l->options->comm, true);
    return ups_fail(error, UPS_ERR_NUMERIC,
                    "%s, step %lld: the %s is not finite%s%s. The last checkpoint is from before it; lower "
                    "%s.optimizer.learning_rate, or look at these samples%s",
                    l->stage->name, (long long)l->state.step, result->bad_micro_batch ? "loss" : "gradient",
                    batch[0] ? "; the batch held " : "", batch, l->stage->name,
                    ups_optimizer_scales_losses(l->options->optimizer)
                        ? "; fp16 holds no value beyond 65504, other precisions do"
                        : "");
}

static ups_status zero_gradients(const loop *l, ups_error *error) {
    const ups_loop_options *options = l->options;
    const size_t bytes = (size_t)ups_parameters_elements(options->parameters) * sizeof(float);
    return options->device->class->zero(options->device, ups_parameters_gradients(options->parameters), bytes, error);
}

/* The `round`-th micro-batch of this process in the next optimizer step. */
static ups_status issue_micro_batch(loop *l, int64_t round, ups_error *error) {
    const ups_loop_options *options = l->options;
    const ups_training_config *training = options->training;
    const int64_t m = round * ups_comm_size(options->comm) + ups_comm_rank(options->comm);
    const bool is_last = m + ups_comm_size(options->comm) >= training->accumulation;
    const bool begins = round == 0 || ups_exchange_takes_each(options->exchange), zeroed = l->stage->zero_gradients;
    if (begins && zeroed) UPS_TRY(zero_gradients(l, error));
    ups_update_input input = {.seed = options->seed,
                              .item = (uint64_t)(l->issued * training->accumulation + m),
                              .step = l->issued,
                              .micro_batch = m,
                              .clears = round == 0,
                              .share = 1.0f / (float)training->accumulation,
                              .learning_rate = (float)l->last_rate};
    UPS_TRY(ups_optimizer_begin(options->optimizer, &input, error));
    ups_micro_batch micro = {.step = l->issued,
                             .index = m,
                             .accumulate = zeroed || !begins,
                             .update = ups_optimizer_update(options->optimizer),
                             .watch = is_last ? ups_exchange_watch(options->exchange, l->trained) : NULL,
                             .trained = l->trained,
                             .arithmetic = &l->arithmetic};
    UPS_TRY(l->stage->micro_batch(l->stage->context, &micro, error));
    return ups_exchange_micro_batch(options->exchange, round, micro.update, error);
}

/* All micro-batches of the next optimizer step, and the update. */
static ups_status issue_step(loop *l, ups_error *error) {
    const ups_loop_options *options = l->options;
    const ups_training_config *training = options->training;
    memset(l->trained, 0, sizeof l->trained);
    l->last_rate = ups_schedule_rate(&training->optimizer, l->issued, training->steps, l->state.plateau.cuts);
    for (int64_t round = 0; round < training->accumulation / ups_comm_size(options->comm); round++)
        UPS_TRY(issue_micro_batch(l, round, error));
    UPS_TRY(ups_exchange_gradients(options->exchange, l->trained, error));
    if (ups_exchange_divides_gradients(options->exchange))
        UPS_TRY(ups_optimizer_measure_norm(options->optimizer, error));
    UPS_TRY(ups_exchange_results(options->exchange, ups_optimizer_update(options->optimizer), l->trained, error));
    ups_device_range_begin(options->device, "optimizer");
    ups_status status = ups_optimizer_step(options->optimizer, l->trained, error);
    ups_device_range_end(options->device);
    UPS_TRY(status);
    UPS_TRY(ups_exchange_weights(options->exchange, error));
    l->issued++;
    return UPS_OK;
}

/* A step's losses' own running mean is what it is held against. Losses of some data spike again and again: reported
 * are those that are larger than all before, the others are counted. */
static ups_status watch_for_spike(loop *l, int64_t step, double loss, ups_error *error) {
    const ups_training_config *training = l->options->training;
    int set = l->stage->losses_due ? l->stage->losses_due(l->stage->context, step) : 0;
    loss_history *history = &l->history[set];
    const bool spikes =
        training->spike_factor > 0 && history->steps > SPIKE_AFTER && loss > training->spike_factor * history->mean;
    if (spikes) l->spikes++;
    if (spikes && loss > history->largest * history->mean) {
        history->largest = loss / history->mean;
        l->spikes_reported++;
        char batch[BATCH_TEXT];
        UPS_TRY(describe_any_batch(l, step, training->accumulation - 1, batch, error));
        if (leads(l))
            ups_log(UPS_LOG_WARNING,
                    "%s, step %lld: the loss spiked to %.3g, %.0f times its running mean; the batch held %s",
                    l->stage->name, (long long)step, loss, loss / history->mean, batch);
    }
    history->mean = running_mean(history->mean, loss, history->steps++ == 0);
    l->state.running_loss = running_mean(l->state.running_loss, loss, step == 0);
    return UPS_OK;
}

/* Reads results until `step` steps are accounted for. */
static ups_status settle(loop *l, int64_t step, ups_error *error) {
    ups_loss_sums *interval = &l->state.interval;
    while (l->state.step < step) {
        ups_update update;
        UPS_TRY(ups_optimizer_result(l->options->optimizer, &update, error));
        if (update.result.failed) return fail_not_finite(l, &update, error);
        for (int t = 0; t < interval->tasks; t++) {
            interval->sum[t] += update.result.loss[t];
            interval->count[t] += update.result.windows[t];
            interval->windows += update.result.windows[t];
        }
        for (int i = 0; i < UPS_MAX_LOSSES && interval->loss_names; i++) {
            interval->part[i] += update.result.part[i];
            interval->part_count[i] += update.result.part_windows[i];
        }
        l->last_gradient_norm = update.result.gradient_norm;
        const double loss = mean_loss(update.result.loss, update.result.windows, interval->tasks);
        UPS_TRY(watch_for_spike(l, l->state.step, loss, error));
        l->state.step++;
        show_progress(l, l->state.running_loss);
    }
    return UPS_OK;
}

/* With `wsd` the point from which more steps go on (checkpoint.h), before the first step of the decay is issued. */
static ups_status keep_stable(loop *l, ups_error *error) {
    const ups_training_config *training = l->options->training;
    const int64_t start = ups_schedule_decay_start(&training->optimizer, training->steps);
    if (start == 0 || l->issued != start) return UPS_OK;
    UPS_TRY(settle(l, l->issued, error));
    UPS_TRY(save(l, error));
    return leads(l) ? ups_checkpoint_keep_stable(l->checkpoints, error) : UPS_OK;
}

static bool falls_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* Processes that train together stop after the same step. */
static bool is_cancelled(const loop *l) {
    return l->options->comm ? ups_exchange_cancelled(l->options->exchange) : ups_cancel_requested();
}

static ups_status run(loop *l, ups_error *error) {
    const ups_training_config *training = l->options->training;
    if (training->steps == 0) { /* what there is to train was set */
        UPS_TRY(validate(l, false, error));
        UPS_TRY(save(l, error));
    }
    while (l->issued < training->steps && !has_ended_early(l)) {
        if (is_cancelled(l)) {
            UPS_TRY(settle(l, l->issued, error));
            UPS_TRY(save(l, error));
            ups_comm_end_together(l->options->comm, true);
            return ups_fail(error, UPS_ERR_CANCELLED, "%s: stopped at step %lld of %lld; --resume goes on from there",
                            l->stage->name, (long long)l->state.step, (long long)training->steps);
        }
        UPS_TRY(keep_stable(l, error));
        UPS_TRY(issue_step(l, error));
        if (l->stage->loader) l->bad_reported = ups_loader_report_bad(l->stage->loader, l->bad_reported);
        bool last = l->issued == training->steps;
        bool logs = falls_due(l->issued, training->log_every),
             validates = falls_due(l->issued, training->validate_every);
        bool keeps = falls_due(l->issued, training->checkpoint_every);
        UPS_TRY(settle(l, logs || validates || keeps || last ? l->issued : l->issued - 1, error));
        if (logs || last) UPS_TRY(write_line(l, logs, error));
        UPS_TRY(validates || last ? validate(l, validates, error) : advance(l, NULL, NULL, error));
        bool ends = !last && has_ended_early(l);
        if (ends && !logs) UPS_TRY(write_line(l, false, error));
        if (keeps || last || ends) UPS_TRY(save(l, error));
    }
    say_summary(l, l->state.step < training->steps);
    return UPS_OK;
}

ups_status ups_loop_run(const ups_loop_options *options, const ups_loop_stage *stage, ups_error *error) {
    loop *l = calloc(1, sizeof *l);
    char *metrics_path = NULL;
    ups_status status = UPS_OK;
    if (!l || asprintf(&metrics_path, "%s/metrics.jsonl", options->output) < 0 ||
        asprintf(&l->checkpoints, "%s/checkpoints/%s", options->output, stage->name) < 0) {
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for the training loop");
        goto cleanup;
    }
    l->options = options;
    l->stage = stage;
    l->state = *options->resume;
    l->issued = l->state.step;
    l->state.interval.tasks = options->task_count;
    l->state.interval.task_names = options->task_names;
    l->state.interval.loss_names = options->loss_names;
    if (leads(l)) status = ups_make_directories(options->output, error);
    if (status == UPS_OK && leads(l))
        status = ups_metrics_open(metrics_path, stage->name, l->state.step, &l->metrics, error);
    if (status == UPS_OK && leads(l) && options->opening && l->state.step == 0) {
        status = ups_metrics_write(l->metrics, json_copy((json_t *)options->opening), error);
    }
    if (status != UPS_OK) goto cleanup;
    if (leads(l)) l->progress = ups_progress_begin(stage->name, "steps", options->training->steps, l->state.step);
    begin_clock(l);
    l->began = l->line_began;
    l->began_step = l->state.step;
    for (int t = 0; t < UPS_SAMPLER_MAX_TASKS; t++) l->validated[t] = NAN;
    status = run(l, error);
    ups_progress_end(l->progress);

cleanup:
    if (l) {
        ups_metrics_close(l->metrics);
        free(l->checkpoints);
    }
    free(metrics_path);
    free(l);
    return status;
}
