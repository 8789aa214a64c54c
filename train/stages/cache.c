/* Stage `cache`: the latents of all tasks, encoded once for all epochs and runs (train/cache_build). A cache that is
 * complete is left as it is, one that is not is gone on with. */
#include "base/log.h"
#include "train/cache_build/encode.h"
#include "train/stages/stage.h"

static void say_group(void *context, const ups_encode_report *report) {
    char text[160];
    ups_encode_describe(report, text, sizeof text);
    ups_log(UPS_LOG_INFO, "cache %s/%s: %s", report->task, report->split, text);
}

static ups_status run(const ups_stage_request *request, ups_error *error) {
    return ups_encode_run(request->session, say_group, NULL, error);
}

static const char *needless(const ups_run_config *config) {
    return config->data.residency == UPS_RUN_ENCODE ? "not built, since the operator does without (residency: encode)"
                                                    : NULL;
}

extern const ups_stage_class ups_stage_cache;
const ups_stage_class ups_stage_cache = {
    .depends_on = 1u << UPS_STAGE_AUTOENCODER, .apart = true, .run = run, .needless = needless};
