#include "train/stages/run.h"

#include "base/files.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/config/load.h"
#include "train/data/latents.h"
#include "train/precision.h"
#include "train/run_lock.h"
#include "train/run_precision.h"
#include "train/state.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of one command. */
typedef struct stages_run {
    ups_session *session;
    ups_run_config *config;
    const ups_stages_wanted *wanted;
    ups_run_state state;
    ups_precision configured, recorded; /* of the configuration; of the run that is there. AUTO: none yet */
    ups_precision said, published;      /* each stage decides for itself */
} stages_run;

bool ups_stages_include(const ups_stages_wanted *wanted, const ups_run_config *config, unsigned i) {
    return wanted->stage < 0 || (int)config->stages[i] == wanted->stage;
}

static int64_t steps_of(const stages_run *r, ups_stage stage) {
    const ups_training_config *training = ups_run_training(r->config, stage);
    return training ? training->steps : 0;
}

/* Whether this command has nothing to do for the stage. */
static bool is_done(const stages_run *r, ups_stage stage) {
    const ups_stage_state *known = &r->state.stage[stage];
    if (r->wanted->restart || !ups_run_training(r->config, stage)) return false;
    return known->finished && known->steps >= steps_of(r, stage);
}

static char *checkpoints_of(const stages_run *r, ups_stage stage, ups_error *error) {
    char *path = ups_run_path(r->config, "checkpoints/%s", ups_stage_name(stage));
    if (!path) ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    return path;
}

/* So that a later --resume cannot pick it up. */
static void disown_checkpoint(const stages_run *r, ups_stage stage) {
    char *latest = ups_run_path(r->config, "checkpoints/%s/latest.json", ups_stage_name(stage));
    if (latest) unlink(latest);
    free(latest);
}

/* Whether the stage goes on from a checkpoint. A stage that finished with fewer steps than are asked for now does,
 * since raising them asks for just that. A checkpoint of a stage that was stopped, neither asked for nor disowned,
 * stops the command: the user decides. */
static ups_status decide(stages_run *r, ups_stage stage, bool *resume, ups_error *error) {
    const ups_stages_wanted *wanted = r->wanted;
    const ups_stage_state *state = &r->state.stage[stage];
    char *directory = checkpoints_of(r, stage, error);
    if (!directory) return UPS_ERR_MEMORY;
    ups_status status = UPS_OK;
    bool exists = ups_checkpoint_exists(directory), extended = state->finished && !wanted->restart;
    *resume = (wanted->resume || extended) && !wanted->restart;
    if (extended && !exists) {
        status = ups_fail(error, UPS_ERR_IO,
                          "%s: the %s finished with %lld steps, but the checkpoint to go on from is gone; --restart "
                          "trains it from the beginning",
                          directory, ups_stage_name(stage), (long long)state->steps);
    } else if (extended) {
        ups_log(
            UPS_LOG_INFO,
            "%s: finished earlier with %lld steps, goes on to %lld; the learning rate is that of a schedule of %lld "
            "steps (--restart begins anew)",
            ups_stage_name(stage), (long long)state->steps, (long long)steps_of(r, stage),
            (long long)steps_of(r, stage));
    } else if (exists && !wanted->resume && !wanted->restart) {
        status = ups_fail(
            error, UPS_ERR_ARGUMENT,
            "%s holds a checkpoint of an unfinished stage; --resume goes on from it, --restart begins anew", directory);
    }
    if (wanted->restart) disown_checkpoint(r, stage);
    free(directory);
    return status;
}

/* ---- precision ------------------------------------------------------------------------------------------------- */

static ups_status publish_config(const ups_run_config *config, ups_error *error) {
    char *text = NULL, *path = ups_run_path(config, "config.yaml");
    ups_status status = path ? ups_config_print(&ups_run_schema, config, &text, error)
                             : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_make_directories(config->output, error);
    if (status == UPS_OK) status = ups_publish_bytes(path, text, strlen(text), error);
    free(text);
    free(path);
    return status;
}

/* What a stage computes in: with `precision: auto` what it goes on from, then what the run began in, then what is
 * faster here. What trains nothing is the same in all. */
static ups_status choose_precision(const stages_run *r, ups_stage stage, bool resume, ups_precision *precision,
                                   ups_error *error) {
    *precision = r->configured != UPS_PRECISION_AUTO ? r->configured : ups_precision_resolve(r->recorded);
    if (!ups_run_training(r->config, stage) && r->recorded != UPS_PRECISION_AUTO) *precision = r->recorded;
    if (!resume) return UPS_OK;
    char *checkpoint = checkpoints_of(r, stage, error);
    if (!checkpoint) return UPS_ERR_MEMORY;
    ups_status status = ups_checkpoint_exists(checkpoint)
                            ? ups_precision_of_checkpoint(checkpoint, r->configured, r->recorded, precision, error)
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
        ups_precision_explain(precision, meaning, sizeof meaning);
        bool kept = r->configured == UPS_PRECISION_AUTO && precision != ups_precision_resolve(UPS_PRECISION_AUTO);
        ups_log(UPS_LOG_INFO, "precision: %s%s", meaning, kept ? "; the run began in it" : "");
        r->said = precision;
    }
    if (precision == r->published) return UPS_OK;
    r->config->precision = precision;
    r->published = precision;
    return publish_config(r->config, error);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Records a finished stage. Once it was trained, what is built on it has to be done again. */
static ups_status record(stages_run *r, ups_stage stage, ups_error *error) {
    ups_stage_state *entry = &r->state.stage[stage];
    *entry = (ups_stage_state){.finished = true, .steps = steps_of(r, stage)};
    if (ups_run_training(r->config, stage)) {
        char *path = ups_run_model_path(r->config, stage);
        ups_status status =
            path ? ups_file_hash(path, entry->weights, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        free(path);
        UPS_TRY(status);
    }
    for (int later = 0; later < UPS_STAGE_COUNT; later++) {
        if (!(ups_stages[later]->depends_on & 1u << stage)) continue;
        r->state.stage[later] = (ups_stage_state){0};
        disown_checkpoint(r, (ups_stage)later);
    }
    return ups_run_state_publish(r->config, &r->state, error);
}

static ups_status run_stage(stages_run *r, ups_stage stage, ups_error *error) {
    ups_stage_request request = {.session = r->session, .restart = r->wanted->restart};
    if (ups_run_training(r->config, stage)) UPS_TRY(decide(r, stage, &request.resume, error));
    UPS_TRY(settle_precision(r, stage, request.resume, error));
    if (r->state.stage[stage].finished) { /* no longer: a stop from here on has to be resumable */
        r->state.stage[stage] = (ups_stage_state){0};
        UPS_TRY(ups_run_state_publish(r->config, &r->state, error));
    }
    UPS_TRY(ups_stages[stage]->run(&request, error));
    return record(r, stage, error);
}

static ups_status run_stages(stages_run *r, ups_error *error) {
    const ups_run_config *config = r->config;
    unsigned training = 0;
    if (!r->wanted->restart) UPS_TRY(ups_precision_recorded(config, &r->recorded, error));
    UPS_TRY(ups_run_state_read(config, &r->state, error));
    for (unsigned i = 0; i < config->stage_count; i++) {
        bool trains = ups_stages_include(r->wanted, config, i) && !is_done(r, config->stages[i]);
        if (trains) training |= 1u << config->stages[i];
    }
    UPS_TRY(ups_session_normalise_as_trained(r->session, training, error));
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
            ups_log(UPS_LOG_INFO, "%s: finished earlier, skipped (--restart trains it again)", ups_stage_name(stage));
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
    ups_run_lock *lock = NULL;
    UPS_TRY(ups_run_lock_take(session->config->output, &lock, error));
    ups_status status = run_stages(&r, error);
    ups_run_lock_release(lock);
    return status;
}
