#include "train/stages/train.h"

#include "base/files.h"
#include "train/config/load.h"
#include "train/run/replace.h"
#include "train/run/staged_cache.h"
#include "train/run_lock.h"
#include "train/stages/decision.h"
#include "train/stages/run.h"
#include <stdlib.h>
#include <string.h>

/* ---- doing --------------------------------------------------------------------------------------------------------
 */

/* Between deciding and taking the lock another command may have done something. */
static ups_status check_unchanged(const ups_train_decision *d, const char *output, ups_error *error) {
    char *now = ups_train_read_config(output), *before = d->run_before;
    bool same = now && before ? strcmp(now, before) == 0 : now == before;
    if (d->fresh && ups_run_has_next(output)) same = false;
    free(now);
    return same ? UPS_OK
                : ups_fail(error, UPS_ERR_IO, "%s: another command changed the run just now; give this one again",
                           output);
}

/* Whether something that was trained stays, or goes on. */
static bool keeps_trained(const ups_train_decision *d) {
    const unsigned anew = d->fresh ? d->redo & ~d->go_on : 0;
    return !d->request->fork && d->progress.begun & ~anew;
}

/* A beginning that failed at once, at what will be no better the next time, leaves nothing that could be gone on with.
 */
static bool came_to_nothing(const ups_train_decision *d, const ups_run_config *made, ups_status status) {
    ups_run_progress progress;
    ups_error error;
    bool fresh = d->fresh || (d->request->fork && d->redo);
    if (!fresh || status == UPS_OK || status == UPS_ERR_CANCELLED || status == UPS_ERR_IO) return false;
    if (ups_run_look(made, &progress, &error) != UPS_OK) return false;
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        int64_t before = d->go_on & 1u << s ? d->progress.step[s] : -1;
        if (d->redo & 1u << s && (progress.state.stage[s].finished || progress.step[s] > before)) return false;
    }
    return true;
}

/* The loaded configuration is the session's; what the report says of it is read again. */
static ups_status train_in_place(ups_train_decision *d, ups_error *error) {
    ups_session session;
    ups_run_lock *lock = NULL;
    ups_stages_wanted wanted = {.stage = d->request->stage,
                                .resume = d->resume,
                                .profile = d->request->profile,
                                .keeps_trained = keeps_trained(d),
                                .moves_data = ups_train_moves_data(d)};
    ups_run_config *config = d->config;
    if (d->given == config) d->given = NULL;
    d->config = NULL;
    if (ups_session_begin(config, false, &session, error) != UPS_OK) {
        ups_run_config_free(config);
        return error->code;
    }
    session.comm = d->request->comm;
    wanted.output = session.config->output;
    wanted.directory = session.config->cache.directory;
    ups_status status = ups_run_lock_take(wanted.output, &lock, error);
    if (status == UPS_OK && !d->request->fork) status = check_unchanged(d, wanted.output, error);
    /* Its RUN/next was given up. */
    if (status == UPS_OK && !ups_run_has_next(wanted.output)) status = ups_staged_cache_clear(session.config, error);
    if (status == UPS_OK) status = ups_stages_run(&session, &wanted, error);
    ups_error after;
    /* the weights that it was to begin with, or what it was to do with the data */
    bool unfit = d->request->fork && (status == UPS_ERR_FORMAT || status == UPS_ERR_CONFIG);
    if (unfit && came_to_nothing(d, session.config, status)) {
        ups_remove_tree_at_once(wanted.output, &after);
        if (d->took_cache_apart) ups_remove_tree_at_once(session.config->cache.directory, &after);
    }
    ups_run_lock_release(lock);
    d->report->config = session.config;
    session.config = NULL;
    ups_session_close(&session);
    return status;
}

/* The only one of a mask; −1: there are several. */
static int single(unsigned stages) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (stages == 1u << s) return s;
    }
    return -1;
}

/* RUN/next, and the place of its cache, where that is done again. */
static ups_status seed(const ups_train_decision *d, const ups_run_config *config, const char *next, ups_error *error) {
    const bool caches = d->redo & 1u << UPS_STAGE_CACHE;
    ups_error after;
    if (!d->fresh) return caches ? ups_staged_cache_claim(config, false, error) : UPS_OK;
    if (caches) UPS_TRY(ups_staged_cache_check(config, error));
    UPS_TRY(ups_train_seed_next(d, next, error));
    ups_status status = caches ? ups_staged_cache_claim(config, true, error) : ups_staged_cache_clear(config, error);
    if (status != UPS_OK) ups_remove_tree_at_once(next, &after);
    return status;
}

static ups_status train_staged(ups_train_decision *d, ups_error *error) {
    ups_session session;
    ups_run_lock *lock = NULL;
    ups_run_config *config = d->config;
    char *output = config->output, *told = config->cache.directory, *next = ups_run_next(output);
    char *cache = ups_run_cache_directory(config), *next_cache = cache ? ups_run_next_cache(cache) : NULL;
    ups_status status = next && next_cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_run_lock_take(output, &lock, error);
    if (status == UPS_OK) status = check_unchanged(d, output, error);
    ups_run_config staged = *config;
    staged.output = next;
    staged.cache.directory = d->redo & 1u << UPS_STAGE_CACHE ? next_cache : cache;
    if (status == UPS_OK) {
        ups_stages_wanted wanted = {.stage = single(d->redo),
                                    .only = d->redo,
                                    .resume = true,
                                    .profile = d->request->profile,
                                    .keeps_trained = keeps_trained(d),
                                    .moves_data = ups_train_moves_data(d),
                                    .output = output,
                                    .directory = told};
        status = ups_session_begin(&staged, false, &session, error);
        if (status == UPS_OK) session.comm = d->request->comm;
        if (status == UPS_OK) status = seed(d, config, next, error);
        const bool seeded = status == UPS_OK;
        if (status == UPS_OK) status = ups_stages_run(&session, &wanted, error);
        session.config = NULL;
        ups_session_close(&session);
        ups_error after;
        if (seeded && came_to_nothing(d, &staged, status)) {
            ups_remove_tree_at_once(next, &after);
            ups_staged_cache_clear(config, &after);
        }
    }
    if (status == UPS_OK && d->redo & 1u << UPS_STAGE_CACHE) status = ups_staged_cache_check_finished(config, error);
    if (status == UPS_OK) status = ups_run_replace(output, error);
    ups_run_lock_release(lock);
    free(next);
    free(cache);
    free(next_cache);
    return status;
}

static ups_status follow(ups_train_decision *d, ups_error *error) {
    if (d->report->only_told) return UPS_OK;
    return d->staged ? train_staged(d, error) : train_in_place(d, error);
}

ups_status ups_train(const ups_train_request *request, ups_train_report *report, ups_error *error) {
    ups_train_decision d = {.request = request, .report = report};
    *report = (ups_train_report){0};
    ups_status status = ups_train_decide(&d, error);
    if (status == UPS_OK) status = follow(&d, error);
    if (status == UPS_OK && !report->config) { /* of what is told of */
        report->config = d.config ? d.config : d.own;
        if (d.config == d.given) d.given = NULL;
        if (d.config)
            d.config = NULL;
        else
            d.own = NULL;
    }
    ups_train_decision_free(&d);
    return status;
}

void ups_train_report_free(ups_train_report *report) {
    ups_run_config_free(report->config);
    ups_run_differences_free(&report->refused);
    *report = (ups_train_report){0};
}
