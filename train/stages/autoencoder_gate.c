#include "train/stages/autoencoder_gate.h"

#include "base/log.h"
#include "train/evaluation/readback.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ups_status measure(const ups_session *session, int index, const char *autoencoder, double *nrmse,
                          ups_error *error) {
    const ups_task *task = &session->tasks->task[index];
    ups_split split = task->splits.count[UPS_SPLIT_VALIDATION] > 0 ? UPS_SPLIT_VALIDATION : UPS_SPLIT_TEST;
    if (task->splits.count[split] == 0)
        ups_log(UPS_LOG_INFO, "autoencoder: %s has no held-out fields, so autoencoder.gate does not judge it",
                task->name);
    return ups_readback(session, index, split, autoencoder, nrmse, error);
}

/* Whether it is RUN/next, where stages of RUN are done again: RUN is what can be extended. */
static bool is_done_again(const char *output) {
    unsigned stages;
    const char *slash = strrchr(output, '/');
    return slash && slash != output && strcmp(slash, "/next") == 0 &&
           ups_run_redo_read(output, &stages, NULL) == UPS_OK && stages != 0;
}

ups_status ups_gate_autoencoder(const ups_session *session, ups_error *error) {
    const ups_run_config *config = session->config;
    double gate = config->autoencoder.gate, worst = 0;
    const char *of = NULL;
    char *autoencoder = ups_run_model_path(config, UPS_STAGE_AUTOENCODER);
    ups_status status = autoencoder ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int t = 0; t < session->tasks->count && status == UPS_OK && gate > 0; t++) {
        double nrmse;
        status = measure(session, t, autoencoder, &nrmse, error);
        if (status != UPS_OK || isnan(nrmse)) continue;
        ups_log(UPS_LOG_INFO, "autoencoder: held-out fields of %s are read back with an nRMSE of %.3g",
                session->tasks->task[t].name, nrmse);
        if (nrmse <= worst) continue;
        worst = nrmse;
        of = session->tasks->task[t].name;
    }
    free(autoencoder);
    if (status != UPS_OK || worst <= gate || gate <= 0) return status;
    const bool is_next = is_done_again(config->output);
    const int run = (int)(is_next ? strrchr(config->output, '/') - config->output : (long)strlen(config->output));
    return ups_fail(
        error, UPS_ERR_NUMERIC,
        "autoencoder: held-out fields of task %s are read back with an nRMSE of %.3g, above autoencoder.gate "
        "(%g), and no operator on these latents can be better. Try more steps (%s%s%sups train %.*s --extend "
        "--set autoencoder.steps=%lld), a smaller patch of the task, more model.tokens or a larger model.dim; "
        "--resume --set autoencoder.gate=0 goes on all the same",
        of, worst, gate, is_next ? "rm -r " : "", is_next ? config->output : "", is_next ? " && " : "", run,
        config->output, (long long)config->autoencoder.training.steps * 2);
}
