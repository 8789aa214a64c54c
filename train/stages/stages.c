/* All stages. A new one is a file beside this one, a line here, and its section in train/config. */
#include "train/stages/stage.h"

extern const ups_stage_class ups_stage_autoencoder, ups_stage_cache, ups_stage_operator;

const ups_stage_class *const ups_stages[UPS_STAGE_COUNT] = {
    [UPS_STAGE_AUTOENCODER] = &ups_stage_autoencoder,
    [UPS_STAGE_CACHE] = &ups_stage_cache,
    [UPS_STAGE_OPERATOR] = &ups_stage_operator,
};

ups_status ups_stages_check(unsigned stages, const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (stages & 1u << s && ups_stages[s]->check) UPS_TRY(ups_stages[s]->check(config, tasks, error));
    }
    return UPS_OK;
}

ups_status ups_stages_check_all(const ups_run_config *config, ups_error *error) {
    ups_tasks *tasks = NULL;
    unsigned stages = 0;
    for (unsigned i = 0; i < config->stage_count; i++) stages |= 1u << config->stages[i];
    UPS_TRY(ups_tasks_open(config, &tasks, error));
    const ups_status status = ups_stages_check(stages, config, tasks, error);
    ups_tasks_close(tasks);
    return status;
}
