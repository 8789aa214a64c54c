#include "train/config/check.h"

#include "train/data/task_sampling.h"
#include "train/losses.h"
#include "train/networks.h"
#include <stdio.h>
#include <string.h>

static ups_status check_batch_size(const char *path, const char *stage, const ups_training_config *training,
                                   ups_error *error) {
    if (training->batch_size % training->pairs_per_trajectory != 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: %s.batch_size: %lld is not a multiple of pairs_per_trajectory (%lld)", path, stage,
                        (long long)training->batch_size, (long long)training->pairs_per_trajectory);
    }
    return UPS_OK;
}

static ups_status check_heads(const char *path, const char *key, const char *width_key, int64_t width, int64_t heads,
                              ups_error *error) {
    if (width % heads == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG, "%s: %s.heads: %lld heads do not divide %s = %lld", path, key,
                    (long long)heads, width_key, (long long)width);
}

static ups_status check_model(const char *path, const ups_run_config *config, ups_error *error) {
    const ups_model_config *model = &config->model;
    const ups_encoder_config *encoder = &model->encoder;
    ups_operator_options core = ups_run_core(config);
    if (ups_operator_check(&core, error) != UPS_OK) return ups_fail_within(error, "%s: model", path);
    UPS_TRY(check_heads(path, "model.decoder", "hidden", model->decoder.hidden, model->decoder.heads, error));
    if (encoder->pooling == UPS_POOL_QUERIES || encoder->depth > 0) { /* else there is no attention in it */
        UPS_TRY(check_heads(path, "model.encoder", "width", encoder->width, encoder->heads, error));
    }
    if (encoder->frequency_count > UPS_MAX_FREQUENCIES || model->decoder.frequency_count > UPS_MAX_FREQUENCIES) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: model: a list of frequencies has more than %d entries", path,
                        UPS_MAX_FREQUENCIES);
    }
    return UPS_OK;
}

/* What its keys must be to each other; what each must be was checked where its line is known. */
static ups_status check_layout(const char *path, unsigned number, const ups_mapping_config *layout, ups_error *error) {
    if (!ups_mapping_is_given(layout)) return UPS_OK;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to check it", path);
    ups_mapping mapping;
    const char *place = ups_arena_printf(arena, "%s: tasks[%u].layout", path, number);
    ups_status status = ups_mapping_read(layout, place, arena, &mapping, error);
    ups_arena_destroy(arena);
    return status;
}

static ups_status check_tasks(const char *path, const ups_run_config *config, ups_error *error) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    for (unsigned i = 0; i < config->task_count; i++) {
        const ups_task_config *task = &config->tasks[i];
        if (strspn(task->name, letters) != strlen(task->name)) {
            return ups_fail(
                error, UPS_ERR_CONFIG,
                "%s: tasks[%u].name: '%s' becomes a folder's name: only letters, digits, _ and - may stand in it", path,
                i, task->name);
        }
        if (task->patch_count > UPS_MAX_GRID_DIMS) {
            return ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[%u].patch: %u numbers; a grid has at most %d axes", path,
                            i, task->patch_count, UPS_MAX_GRID_DIMS);
        }
        UPS_TRY(check_layout(path, i, &task->layout, error));
        for (unsigned j = 0; j < i; j++) {
            if (strcmp(config->tasks[j].name, task->name) == 0) {
                return ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[%u].name: '%s' names tasks[%u] already", path, i,
                                task->name, j);
            }
        }
    }
    return UPS_OK;
}

/* A step without any loss would train nothing. */
static ups_status check_losses(const char *path, const char *stage, const ups_training_config *training,
                               ups_error *error) {
    unsigned masks[1 << UPS_MAX_LOSSES];
    int found = ups_losses_masks(training->losses, training->steps, masks);
    for (int m = 0; m < found; m++) {
        if (masks[m] != 0) continue;
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "%s: %s.losses: at some steps no loss is taken; give one of them weight: 1, every: 1 and from: 0", path,
            stage);
    }
    return UPS_OK;
}

/* In an order in which each finds what it needs, and none twice: the enumeration's. */
static ups_status check_stages(const char *path, const ups_run_config *config, ups_error *error) {
    for (unsigned i = 1; i < config->stage_count; i++) {
        ups_stage before = config->stages[i - 1], here = config->stages[i];
        if (here > before) continue;
        if (here == before)
            return ups_fail(error, UPS_ERR_CONFIG, "%s: stages: '%s' stands there twice", path, ups_stage_name(here));
        char order[200] = "";
        for (int s = 0; s < UPS_STAGE_COUNT; s++) {
            size_t used = strlen(order);
            snprintf(order + used, sizeof order - used, "%s%s", s > 0 ? ", " : "", ups_stage_name((ups_stage)s));
        }
        return ups_fail(error, UPS_ERR_CONFIG, "%s: stages: '%s' cannot come after '%s'; the order is %s", path,
                        ups_stage_name(here), ups_stage_name(before), order);
    }
    return UPS_OK;
}

static ups_status check_stage_sampling(const char *path, const ups_run_config *config, const char *stage,
                                       const ups_training_config *training, ups_error *error) {
    if (config->data.strategy == UPS_SAMPLER_DIFFICULTY && training->validate_every == 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: data.sampling: difficulty is learnt from validations, and %s.validate_every: 0 has none "
                        "before the end; give it a number of steps",
                        path, stage);
    }
    for (unsigned t = 0; t < config->task_count; t++) {
        if (config->tasks[t].from < training->steps) continue;
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: tasks[%u].from: step %lld lies beyond %s.steps (%lld): the task would never be trained",
                        path, t, (long long)config->tasks[t].from, stage, (long long)training->steps);
    }
    return UPS_OK;
}

static ups_status check_sampling(const char *path, const ups_run_config *config, ups_error *error) {
    if (!ups_task_sampling_changes(config)) return UPS_OK;
    bool any = false;
    for (unsigned t = 0; t < config->task_count; t++) any = any || config->tasks[t].from == 0;
    if (!any) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[].from: no task is there at step 0; one has to begin", path);
    }
    if (config->data.slots > UPS_SAMPLING_LEAD - 2) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: data.slots: %d batches in flight; where shares of tasks change in training, at most %d",
                        path, config->data.slots, UPS_SAMPLING_LEAD - 2);
    }
    if (config->data.strategy == UPS_SAMPLER_DIFFICULTY && config->data.split.validation <= 0) {
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "%s: data.sampling: difficulty is learnt from validation losses, and data.split.validation is 0", path);
    }
    for (unsigned i = 0; i < config->stage_count; i++) {
        const ups_training_config *training = ups_run_training(config, config->stages[i]);
        if (training) UPS_TRY(check_stage_sampling(path, config, ups_stage_name(config->stages[i]), training, error));
    }
    return UPS_OK;
}

ups_status ups_run_config_check(const char *path, const ups_run_config *config, ups_error *error) {
    const ups_split_config *split = &config->data.split;
    double sum = split->train + split->validation + split->test;
    if (sum < 0.999 || sum > 1.001) {
        return ups_fail(error, UPS_ERR_CONFIG, "%s: data.split: train + validation + test is %g; 1 was expected", path,
                        sum);
    }
    UPS_TRY(check_tasks(path, config, error));
    UPS_TRY(check_stages(path, config, error));
    UPS_TRY(check_sampling(path, config, error));
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const ups_training_config *training = ups_run_training(config, (ups_stage)s);
        if (!training) continue;
        UPS_TRY(check_batch_size(path, ups_stage_name((ups_stage)s), training, error));
        UPS_TRY(check_losses(path, ups_stage_name((ups_stage)s), training, error));
    }
    return check_model(path, config, error);
}
