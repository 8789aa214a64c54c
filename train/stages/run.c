#include "train/stages/run.h"

#include "base/log.h"
#include "train/checkpoint.h"
#include "train/data/latents.h"
#include "train/data/normalisation.h"
#include "train/precision.h"
#include "train/run/given.h"
#include "train/run/own.h"
#include "train/run_precision.h"
#include "train/stages/follow.h"
#include "train/state.h"
#include <stdlib.h>

/* Of one command. */
typedef struct stages_run {
    ups_session *session;
    ups_run_config *config;
    const ups_stages_wanted *wanted;
    ups_run_state state;
    ups_precision configured, recorded; /* of the configuration; of the run that is there. AUTO: none yet */
    ups_precision said, published;      /* each stage decides for itself */
    unsigned training;                  /* stages that this command trains (a mask) */
} stages_run;

bool ups_stages_include(const ups_stages_wanted *wanted, const ups_run_config *config, unsigned i) {
    if (wanted->stage >= 0) return (int)config->stages[i] == wanted->stage;
    return wanted->only == 0 || wanted->only & 1u << config->stages[i];
}

/* Whether this command has nothing to do for the stage. */
static bool is_done(const stages_run *r, ups_stage stage) {
    return ups_run_training(r->config, stage) && r->state.stage[stage].finished;
}

static char *checkpoints_of(const stages_run *r, ups_stage stage, ups_error *error) {
    char *path = ups_run_path(r->config, "checkpoints/%s", ups_stage_name(stage));
    if (!path) ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    return path;
}

/* A checkpoint of a stage that was stopped and is not asked for stops the command: the user decides. */
static ups_status check_checkpoint(const stages_run *r, ups_stage stage, ups_error *error) {
    if (r->wanted->resume) return UPS_OK;
    char *directory = checkpoints_of(r, stage, error);
    if (!directory) return UPS_ERR_MEMORY;
    ups_status status = UPS_OK;
    if (ups_checkpoint_exists(directory)) {
        status = ups_fail(
            error, UPS_ERR_ARGUMENT,
            "%s holds a checkpoint of an unfinished stage; --resume goes on from it, --restart begins anew", directory);
    }
    free(directory);
    return status;
}

/* ---- precision ------------------------------------------------------------------------------------------------- */

/* What a stage computes in: with `precision: auto` what it goes on from, then what the run began in, then what is
 * faster here. What trains nothing is the same in all. */
static ups_status choose_precision(const stages_run *r, ups_stage stage, bool resume, ups_precision *precision,
                                   ups_error *error) {
    *precision = ups_precision_resolve(r->configured != UPS_PRECISION_AUTO ? r->configured : r->recorded,
                                       r->config->device.name);
    if (!ups_run_training(r->config, stage) && r->recorded != UPS_PRECISION_AUTO) *precision = r->recorded;
    if (!resume) return UPS_OK;
    char *checkpoint = checkpoints_of(r, stage, error);
    if (!checkpoint) return UPS_ERR_MEMORY;
    ups_status status = ups_checkpoint_exists(checkpoint)
                            ? ups_precision_of_checkpoint(checkpoint, r->configured, r->recorded,
                                                          r->config->device.name, precision, error)
                            : UPS_OK;
    free(checkpoint);
    return status;
}

/* Decides what the stage computes in, says it, and has the run's config.yaml tell it, once. */
static ups_status settle_precision(stages_run *r, ups_stage stage, bool resume, ups_error *error) {
    ups_precision precision;
    UPS_TRY(choose_precision(r, stage, resume, &precision, error));
    if (ups_run_training(r->config, stage) && precision != r->said) {
        char meaning[120];
        const char *device = r->config->device.name;
        ups_precision_explain(precision, device, meaning, sizeof meaning);
        bool kept =
            r->configured == UPS_PRECISION_AUTO && precision != ups_precision_resolve(UPS_PRECISION_AUTO, device);
        ups_log(UPS_LOG_INFO, "precision: %s%s", meaning, kept ? "; the run began in it" : "");
        r->said = precision;
    }
    if (precision == r->published) return UPS_OK;
    r->config->precision = precision;
    r->published = precision;
    return ups_run_config_publish(r->config, r->config->output, r->wanted->output, r->wanted->directory, error);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static ups_status record(stages_run *r, ups_stage stage, ups_error *error) {
    ups_stage_state *entry = &r->state.stage[stage];
    *entry = (ups_stage_state){.finished = true};
    if (ups_run_training(r->config, stage)) {
        char *path = ups_run_model_path(r->config, stage), *checkpoints = checkpoints_of(r, stage, error);
        ups_status status = path && checkpoints ? ups_file_hash(path, entry->weights, error)
                                                : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        if (status == UPS_OK) status = ups_checkpoint_step(checkpoints, &entry->steps, error); /* it may end early */
        free(path);
        free(checkpoints);
        UPS_TRY(status);
    }
    return ups_run_state_publish(r->config, &r->state, error);
}

static ups_status run_stage(stages_run *r, ups_stage stage, ups_error *error) {
    ups_stage_request request = {.session = r->session, .resume = r->wanted->resume, .profile = r->wanted->profile};
    if (ups_run_training(r->config, stage)) UPS_TRY(check_checkpoint(r, stage, error));
    UPS_TRY(settle_precision(r, stage, request.resume, error));
    UPS_TRY(ups_stages_lead(r->session, stage, request.resume, r->training, error));
    ups_status status = ups_stages[stage]->run(&request, error);
    UPS_TRY(ups_stages_end_stage(r->session->comm, stage, status, error));
    if (ups_stages[stage]->accept) UPS_TRY(ups_stages[stage]->accept(&request, error));
    return record(r, stage, error);
}

/* Weights, and not a cache alone, which is looked at each time. */
static bool trains_anything(const stages_run *r) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++)
        if (r->training & 1u << s && ups_run_training(r->config, (ups_stage)s)) return true;
    return false;
}

static ups_status run_stages(stages_run *r, ups_error *error) {
    const ups_run_config *config = r->config;
    UPS_TRY(ups_precision_recorded(config, &r->recorded, error));
    UPS_TRY(ups_run_state_read(config, &r->state, error));
    for (unsigned i = 0; i < config->stage_count; i++) {
        bool trains = ups_stages_include(r->wanted, config, i) && !is_done(r, config->stages[i]);
        if (!trains) continue;
        r->training |= 1u << config->stages[i];
        UPS_TRY(ups_stage_check_ranks(config, config->stages[i], ups_comm_size(r->session->comm), error));
    }
    UPS_TRY(ups_stages_check(r->training, config, r->session->tasks, error));
    if (r->wanted->keeps_trained && (r->wanted->moves_data ? r->training != 0 : trains_anything(r)))
        UPS_TRY(ups_tasks_check_data(config, r->session->tasks, r->wanted->moves_data, error));
    UPS_TRY(ups_run_take_given(config, r->session->tasks, r->training, r->wanted->resume, error));
    UPS_TRY(ups_session_normalise_as_trained(r->session, r->training, error));
    if (trains_anything(r)) UPS_TRY(ups_tasks_record_data(config, r->session->tasks, error));
    bool any = false;
    for (unsigned i = 0; i < config->stage_count; i++) {
        ups_stage stage = config->stages[i];
        const ups_stage_class *class = ups_stages[stage];
        if (!ups_stages_include(r->wanted, config, i)) continue;
        const char *needless = r->wanted->stage < 0 && class->needless ? class->needless(config) : NULL;
        any = true;
        if (needless)
            ups_log(UPS_LOG_INFO, "%s: %s", ups_stage_name(stage), needless);
        else if (is_done(r, stage))
            ups_log(UPS_LOG_INFO, "%s: finished earlier, skipped", ups_stage_name(stage));
        else
            UPS_TRY(run_stage(r, stage, error));
    }
    if (any) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "the configuration's stages do not include %s",
                    ups_stage_name((ups_stage)r->wanted->stage));
}

ups_status ups_stages_run(ups_session *session, const ups_stages_wanted *wanted, ups_error *error) {
    stages_run r = {
        .session = session, .config = session->config, .wanted = wanted, .configured = session->config->precision};
    return run_stages(&r, error);
}
