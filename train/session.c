#include "train/session.h"

#include "base/files.h"
#include "base/log.h"
#include "train/data/normalisation.h"
#include "train/networks.h"
#include "train/precision.h"
#include "train/state.h"
#include <stdlib.h>

ups_status ups_session_normalise(ups_session *session, const char *model, ups_error *error) {
    const char *output = session->config->output;
    if (ups_path_exists(output)) UPS_TRY(ups_remove_partials(output, error)); /* of a command that was killed */
    return ups_tasks_normalise_as_trained(session->config, session->tasks, model, error);
}

ups_status ups_session_normalise_as_trained(ups_session *session, unsigned training, ups_error *error) {
    char *model = ups_run_model_path(session->config, UPS_STAGE_AUTOENCODER);
    if (!model) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    bool trained = !(training & 1u << UPS_STAGE_AUTOENCODER) && ups_path_exists(model);
    ups_status status = ups_session_normalise(session, trained ? model : NULL, error);
    free(model);
    return status;
}

ups_status ups_session_open(const char *config_path, const char *const *overrides, size_t override_count,
                            bool normalise, ups_session *session, ups_error *error) {
    *session = (ups_session){0};
    ups_status status = ups_run_config_load(config_path, overrides, override_count, &session->config, error);
    if (status == UPS_OK) {
        ups_device_options options = {.name = session->config->device.name, .threads = session->config->device.threads};
        status = ups_device_open(&options, &session->device, error);
    }
    if (status == UPS_OK) status = ups_tasks_open(session->config, &session->tasks, error);
    if (status == UPS_OK) status = ups_networks_check(session->config, session->tasks, error);
    if (status == UPS_OK && normalise) status = ups_session_normalise_as_trained(session, 0, error);
    if (status != UPS_OK) ups_session_close(session);
    return status;
}

ups_status ups_session_settle_precision(ups_session *session, ups_error *error) {
    UPS_TRY(ups_precision_of_run(session->config, &session->config->precision, error));
    if (ups_precision_is_slow(session->config->precision)) {
        char meaning[120];
        ups_precision_explain(session->config->precision, meaning, sizeof meaning);
        ups_log(UPS_LOG_INFO, "precision: %s", meaning);
    }
    return UPS_OK;
}

void ups_session_close(ups_session *session) {
    ups_tasks_close(session->tasks);
    ups_device_close(session->device);
    ups_run_config_free(session->config);
    *session = (ups_session){0};
}
