#include "train/session.h"

#include "base/files.h"
#include "base/log.h"
#include "model/devices/devices.h"
#include "train/config/load.h"
#include "train/data/normalisation.h"
#include "train/networks.h"
#include "train/precision.h"
#include "train/run/replace.h"
#include "train/run_precision.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ups_status ups_session_normalise(ups_session *session, const char *model, ups_error *error) {
    const char *output = session->config->output;
    if (ups_path_exists(output)) UPS_TRY(ups_remove_partials(output, error)); /* of a command that was killed */
    return ups_tasks_normalise_as_trained(session->config, session->tasks, model, error);
}

/* An operator that begins as another one is told parameters as that one was. */
static ups_status condition(ups_session *session, ups_error *error) {
    char *initial = ups_run_initial_weights(session->config, UPS_STAGE_OPERATOR);
    ups_status status = initial ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(initial))
        status = ups_tasks_condition_to_begin(session->tasks, initial, error);
    free(initial);
    return status;
}

/* By the statistics of the run's own autoencoder, of that which it is to begin as, or by none (NULL). */
static ups_status normalise_by_model(ups_session *session, unsigned training,
                                     ups_status (*normalise)(ups_session *, const char *, ups_error *),
                                     ups_error *error) {
    char *model = ups_run_model_path(session->config, UPS_STAGE_AUTOENCODER);
    char *initial = ups_run_initial_weights(session->config, UPS_STAGE_AUTOENCODER);
    if (!model || !initial) {
        free(model);
        free(initial);
        return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    bool trained = !(training & 1u << UPS_STAGE_AUTOENCODER) && ups_path_exists(model);
    const char *from = trained ? model : ups_path_exists(initial) ? initial : NULL;
    ups_status status = normalise(session, from, error);
    free(model);
    free(initial);
    if (status == UPS_OK && training & 1u << UPS_STAGE_OPERATOR) status = condition(session, error);
    return status;
}

ups_status ups_session_normalise_as_trained(ups_session *session, unsigned training, ups_error *error) {
    return normalise_by_model(session, training, ups_session_normalise, error);
}

static ups_status recall(ups_session *session, const char *model, ups_error *error) {
    return ups_tasks_normalise_as_trained(session->config, session->tasks, model, error);
}

ups_status ups_session_normalise_as_rank_0(ups_session *session, unsigned training, ups_error *error) {
    return normalise_by_model(session, training, recall, error);
}

static ups_status begin(ups_run_config *config, bool normalise, uint64_t card_memory, ups_session *session,
                        ups_error *error) {
    *session = (ups_session){.config = config};
    ups_device_options options = {
        .name = config->device.name, .threads = config->device.threads, .planned_memory = card_memory};
    ups_status status = ups_device_open(&options, &session->device, error);
    if (status == UPS_OK) status = ups_tasks_open(config, &session->tasks, error);
    if (status == UPS_OK) status = ups_networks_check(config, session->tasks, error);
    if (status == UPS_OK && normalise) status = ups_session_normalise_as_trained(session, 0, error);
    if (status != UPS_OK) {
        session->config = NULL;
        ups_session_close(session);
    }
    return status;
}

ups_status ups_session_begin(ups_run_config *config, bool normalise, ups_session *session, ups_error *error) {
    return begin(config, normalise, 0, session, error);
}

static ups_status open_session(const char *config_path, const char *const *overrides, size_t override_count,
                               bool normalise, uint64_t card_memory, ups_session *session, ups_error *error) {
    *session = (ups_session){0};
    ups_run_config *config = NULL;
    UPS_TRY(ups_run_settle(config_path, error)); /* nothing where it is no run's directory */
    UPS_TRY(ups_run_config_load(config_path, overrides, override_count, &config, error));
    ups_status status = ups_run_settle(config->output, error);
    if (status == UPS_OK) status = begin(config, normalise, card_memory, session, error);
    if (status != UPS_OK) ups_run_config_free(config);
    return status;
}

ups_status ups_session_open(const char *config_path, const char *const *overrides, size_t override_count,
                            bool normalise, ups_session *session, ups_error *error) {
    return open_session(config_path, overrides, override_count, normalise, 0, session, error);
}

ups_status ups_session_open_to_plan(const char *config_path, const char *const *overrides, size_t override_count,
                                    uint64_t card_memory, ups_session *session, ups_error *error) {
    return open_session(config_path, overrides, override_count, false, card_memory, session, error);
}

ups_status ups_session_settle_precision(ups_session *session, ups_error *error) {
    UPS_TRY(ups_precision_of_run(session->config, &session->config->precision, error));
    if (ups_precision_is_slow(session->config->precision, session->config->device.name)) {
        char meaning[120];
        ups_precision_explain(session->config->precision, session->config->device.name, meaning, sizeof meaning);
        ups_log(UPS_LOG_INFO, "precision: %s", meaning);
    }
    return UPS_OK;
}

static bool has_learnt(const ups_task_config *task, int64_t stride) {
    bool found = task->stride == stride;
    for (unsigned i = 0; i < task->stride_count; i++) found = found || task->strides[i] == stride;
    return found;
}

ups_status ups_session_use_stride(ups_session *session, const char *task, int64_t stride, ups_error *error) {
    int found = 0;
    char learnt[200] = "", kept[200] = "";
    for (unsigned t = 0; t < session->config->task_count; t++) {
        ups_task_config *config = &session->config->tasks[t];
        if (task && strcmp(config->name, task) != 0) continue;
        if (has_learnt(config, stride)) {
            config->stride = stride;
            found++;
            continue;
        }
        size_t used = strlen(kept);
        snprintf(kept + used, sizeof kept - used, "%s%s (%lld)", used ? ", " : "", config->name,
                 (long long)config->stride);
        used = strlen(learnt);
        snprintf(learnt + used, sizeof learnt - used, "%s%s %lld", used ? "; " : "", config->name,
                 (long long)(config->stride_count > 0 ? config->strides[0] : config->stride));
        for (unsigned i = 1; i < config->stride_count; i++) {
            used = strlen(learnt);
            snprintf(learnt + used, sizeof learnt - used, ", %lld", (long long)config->strides[i]);
        }
    }
    if (found > 0 && kept[0]) {
        ups_log(UPS_LOG_INFO, "--stride %lld: where no step of it was learnt, steps are of the task's own stride: %s",
                (long long)stride, kept);
    }
    if (found > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "--stride %lld: no step of it was learnt; steps were of %s (tasks[].strides says which are)",
                    (long long)stride, learnt);
}

void ups_session_warn_of_strides(const ups_session *session, const char *only) {
    const ups_run_config *config = session->config;
    ups_run_config *own = NULL;
    ups_error ignored;
    if (ups_run_config_load(config->output, NULL, 0, &own, &ignored) != UPS_OK) return; /* not trained yet */
    for (unsigned i = 0; i < config->task_count * own->task_count; i++) {
        const ups_task_config *task = &config->tasks[i / own->task_count], *trained = &own->tasks[i % own->task_count];
        if (strcmp(task->name, trained->name) != 0 || has_learnt(trained, task->stride)) continue;
        if (only && strcmp(task->name, only) != 0) continue;
        ups_log(
            UPS_LOG_WARNING,
            "task %s: its steps are of stride %lld, and the operator learnt steps of stride %lld: that is right only "
            "for files whose frames lie as far apart in time as those steps",
            task->name, (long long)task->stride, (long long)trained->stride);
    }
    ups_run_config_free(own);
}

void ups_session_close(ups_session *session) {
    ups_tasks_close(session->tasks);
    ups_device_close(session->device);
    ups_run_config_free(session->config);
    *session = (ups_session){0};
}
