#include "train/state.h"

#include "base/files.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *ups_run_model_path(const ups_run_config *config, ups_stage stage) {
    return ups_run_path(config, "%s.safetensors", ups_stage_name(stage));
}

char *ups_run_initial_weights(const ups_run_config *config, ups_stage stage) {
    return ups_run_path(config, "initial/%s.safetensors", ups_stage_name(stage));
}

/* What trains nothing has neither steps nor weights. */
static ups_status read_stage(const json_t *entry, const char *where, const char *name, bool trained,
                             ups_stage_state *stage, ups_error *error) {
    const char *weights = NULL;
    UPS_TRY(ups_json_integer(entry, "steps", where, &stage->steps, error));
    UPS_TRY(ups_json_string(entry, "weights", where, &weights, error));
    if (stage->steps < 0 || (!trained && stage->steps > 0)) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'steps' of the %s is %lld; %s was expected", where, name,
                        (long long)stage->steps, trained ? "0 or more" : "0");
    }
    size_t digits = strspn(weights, "0123456789abcdef");
    if (weights[digits] || digits != (trained ? sizeof stage->weights - 1 : 0)) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'weights' of the %s is '%.40s'; %s was expected", where, name,
                        weights, trained ? "a hash of 32 hexadecimal digits" : "nothing");
    }
    snprintf(stage->weights, sizeof stage->weights, "%s", weights);
    stage->finished = true;
    return UPS_OK;
}

ups_status ups_run_state_read(const ups_run_config *config, ups_run_state *state, ups_error *error) {
    *state = (ups_run_state){0};
    char *path = ups_run_path(config, "state.json");
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_t *json = NULL;
    ups_status status = UPS_OK;
    if (ups_path_exists(path)) {
        status = ups_json_read(path, &json, error);
        if (status == UPS_OK && !json_is_object(json)) {
            status = ups_fail(error, UPS_ERR_FORMAT, "%s: an object was expected; remove the file to begin anew", path);
        }
        for (int s = 0; s < UPS_STAGE_COUNT && status == UPS_OK; s++) {
            const char *name = ups_stage_name((ups_stage)s);
            const json_t *entry = json_object_get(json, name);
            if (!entry) continue;
            bool trained = ups_run_training(config, (ups_stage)s) != NULL;
            status = read_stage(entry, path, name, trained, &state->stage[s], error);
            if (status != UPS_OK)
                ups_fail_within(error, "the run's state is damaged (restore the file, or remove it to begin anew)");
        }
    }
    json_decref(json);
    free(path);
    return status;
}

ups_status ups_run_state_publish(const ups_run_config *config, const ups_run_state *state, ups_error *error) {
    char *path = ups_run_path(config, "state.json");
    json_t *json = json_object();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const ups_stage_state *stage = &state->stage[s];
        if (!stage->finished) continue;
        json_object_set_new(json, ups_stage_name((ups_stage)s),
                            json_pack("{s:I, s:s}", "steps", (json_int_t)stage->steps, "weights", stage->weights));
    }
    ups_status status =
        path && json ? ups_make_directories(config->output, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_json_publish(path, json, error);
    json_decref(json);
    free(path);
    return status;
}
