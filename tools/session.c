#include "tools/session.h"

#include "base/files.h"
#include "train/networks.h"

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
    if (status == UPS_OK && normalise && ups_path_exists(session->config->output)) {
        status = ups_remove_partials(session->config->output, error); /* of an earlier command that was killed */
    }
    if (status == UPS_OK && normalise) status = ups_tasks_normalise(session->config, session->tasks, error);
    session->request =
        (ups_stage_request){.config = session->config, .tasks = session->tasks, .device = session->device};
    if (status != UPS_OK) ups_session_close(session);
    return status;
}

void ups_session_close(ups_session *session) {
    ups_tasks_close(session->tasks);
    ups_device_close(session->device);
    ups_run_config_free(session->config);
    *session = (ups_session){0};
}
