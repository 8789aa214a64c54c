#include "train/stages/train.h"

#include "base/files.h"
#include "base/log.h"
#include "train/config/load.h"
#include "train/data/normalisation.h"
#include "train/run/replace.h"
#include "train/run/seed.h"
#include "train/run_lock.h"
#include "train/stages/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_CONFIG_BYTES = 16 << 20, LIST_BYTES = 200 };

/* Of one command. */
typedef struct decision {
    const ups_train_request *request;
    ups_train_report *report;
    ups_run_config *given;           /* what the command says */
    ups_run_config *own;             /* the run's; NULL: there is no run, or it cannot be read and is given up */
    ups_run_config *config;          /* what is trained with: one of these, or one that was loaded */
    ups_run_progress progress;       /* of the run */
    ups_run_differences differences; /* of `given` from `own` */
    char *run_before;                /* config.yaml, when all this was decided; NULL: absent */
    bool resume, staged, fresh;      /* fresh: what is staged has to be seeded first */
    unsigned redo, go_on;            /* stages that are staged; of these, those that go on from their checkpoints */
} decision;

static unsigned bit(ups_stage stage) {
    return 1u << stage;
}

static unsigned from_on(ups_stage stage) {
    return ~(bit(stage) - 1) & ((1u << UPS_STAGE_COUNT) - 1);
}

static unsigned configured(const ups_run_config *config) {
    unsigned stages = 0;
    for (unsigned i = 0; i < config->stage_count; i++) stages |= bit(config->stages[i]);
    return stages;
}

/* Stages that are built on these. */
static unsigned dependants(unsigned stages) {
    unsigned found = 0;
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (ups_stages[s]->depends_on & (stages | found)) found |= 1u << s;
    }
    return found & ~stages;
}

/* "the cache and the operator" */
static const char *name_stages(unsigned stages, char text[LIST_BYTES]) {
    size_t used = 0;
    text[0] = '\0';
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (!(stages & 1u << s)) continue;
        const char *between = used == 0 ? "" : stages >> (s + 1) ? ", " : " and ";
        used += (size_t)snprintf(text + used, LIST_BYTES - used, "%sthe %s", between, ups_stage_name((ups_stage)s));
    }
    return text;
}

/* ---- what differs -------------------------------------------------------------------------------------------------
 */

/* Whether results that are there, and stay, depend on the value. */
static bool is_blocked(const decision *d, const ups_run_difference *difference, unsigned redone) {
    unsigned affected = difference->of_stage ? from_on(difference->stage) : from_on((ups_stage)0);
    return !difference->neutral && d->progress.begun & affected & ~redone;
}

static ups_status move_difference(ups_run_difference *from, ups_run_differences *to, ups_error *error) {
    ups_run_difference *longer = realloc(to->list, (to->count + 1) * sizeof *longer);
    if (!longer) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    to->list = longer;
    to->list[to->count++] = *from;
    *from = (ups_run_difference){.neutral = true};
    return UPS_OK;
}

/* The ways on, of which one is told in full where it is all that is wanted. */
static ups_status fail_refused(const decision *d, ups_error *error) {
    const ups_run_differences *refused = &d->report->refused;
    char extend[LIST_BYTES + 160] = "--extend (more steps of a stage, and nothing else)", names[LIST_BYTES];
    unsigned raised = 0;
    bool steps_alone = true;
    for (size_t i = 0; i < refused->count; i++) {
        steps_alone = steps_alone && refused->list[i].lengthens;
        if (refused->list[i].lengthens) raised |= bit(refused->list[i].stage);
    }
    if (steps_alone && !d->request->extend) {
        unsigned again = dependants(raised) & d->progress.built;
        int used =
            snprintf(extend, sizeof extend, "--extend (%s goes on to that many steps", name_stages(raised, names));
        snprintf(extend + used, sizeof extend - (size_t)used, "%s%s%s)", again ? "; " : "",
                 again ? name_stages(again, names) : "",
                 again & (again - 1) ? ", built on it, are done again"
                 : again             ? ", built on it, is done again"
                                     : "");
    }
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s holds a run of another configuration (key, run, now: see the table), and nothing was changed. "
                    "The ways on: %s; --fork DIR (a new run in DIR that starts from this one's weights); or the run's "
                    "own configuration: ups train %s --resume",
                    d->given->output, extend, d->given->output);
}

/* Refuses what results that are there, and stay, depend on. */
static ups_status refuse_blocked(decision *d, ups_run_differences *differences, unsigned redone, bool steps_too,
                                 ups_error *error) {
    for (size_t i = 0; i < differences->count; i++) {
        ups_run_difference *difference = &differences->list[i];
        if (!is_blocked(d, difference, redone) || (!steps_too && difference->lengthens)) continue;
        UPS_TRY(move_difference(difference, &d->report->refused, error));
    }
    return d->report->refused.count > 0 ? fail_refused(d, error) : UPS_OK;
}

/* What the command's file says otherwise than what is trained with. */
static ups_status tell_ignored(const decision *d, ups_error *error) {
    ups_run_differences differences;
    const ups_run_difference *first = NULL;
    size_t count = 0;
    UPS_TRY(ups_run_compare(d->config, d->given, &differences, error));
    for (size_t i = 0; i < differences.count; i++) {
        if (differences.list[i].neutral) continue;
        if (count++ == 0) first = &differences.list[i];
    }
    char more[40] = "";
    if (count > 1) snprintf(more, sizeof more, " and %zu other key%s", count - 1, count > 2 ? "s" : "");
    if (count > 0)
        ups_log(UPS_LOG_WARNING,
                "%s differs from the run's own configuration in %s (%s in the run, %s there)%s; the run's own is used",
                d->request->operand, first->key, first->run, first->now, more);
    ups_run_differences_free(&differences);
    return UPS_OK;
}

/* `batch_size: auto` of a stage that stays is what the run has. */
static void keep_batches(decision *d, unsigned stays) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        ups_training_config *given = (ups_training_config *)ups_run_training(d->given, (ups_stage)s);
        if (given && given->batch_size == 0 && stays & d->progress.begun & 1u << s)
            given->batch_size = ups_run_training(d->own, (ups_stage)s)->batch_size;
    }
}

static void tell_taken(const decision *d) {
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (difference->neutral || is_blocked(d, difference, 0)) continue;
        ups_log(UPS_LOG_INFO, "%s: %s instead of %s, taken: nothing depends on it yet", difference->key,
                difference->now, difference->run);
    }
}

/* ---- going on -----------------------------------------------------------------------------------------------------
 */

/* The configuration in `directory` with what the command gives: values that no result depends on, from the file, too;
 * others only where --set asks for them, and no result is there. */
static ups_status load_own(decision *d, const char *directory, const ups_run_config *own, ups_error *error) {
    const ups_train_request *request = d->request;
    ups_run_config *asked = NULL;
    ups_run_differences set = {0};
    UPS_TRY(ups_run_config_load(directory, request->overrides, request->override_count, &asked, error));
    ups_status status = ups_run_compare(own, asked, &set, error);
    ups_run_config_free(asked);
    if (status == UPS_OK) status = refuse_blocked(d, &set, 0, true, error);
    ups_run_differences_free(&set);
    UPS_TRY(status);
    const char **all = calloc(d->differences.count + request->override_count + 1, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    size_t count = 0;
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (difference->neutral && difference->assignment) all[count++] = difference->assignment;
    }
    for (size_t i = 0; i < request->override_count; i++) all[count++] = request->overrides[i];
    status = ups_run_config_load(directory, all, count, &d->config, error);
    free(all);
    return status == UPS_OK ? tell_ignored(d, error) : status;
}

static ups_status resume_run(decision *d, ups_error *error) {
    d->resume = true;
    if (d->progress.begun == 0) {
        d->config = d->given;
        return UPS_OK;
    }
    return load_own(d, d->own->output, d->own, error);
}

/* What was to be done again, and was stopped. */
static ups_status resume_next(decision *d, ups_error *error) {
    char *next = ups_run_next(d->own->output);
    ups_run_config *own = NULL;
    ups_status status =
        next ? ups_run_redo_read(next, &d->redo, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_run_config_load(next, NULL, 0, &own, error);
    if (status == UPS_OK) {
        ups_run_differences_free(&d->differences);
        status = ups_run_compare(own, d->given, &d->differences, error);
    }
    if (status == UPS_OK) {
        d->progress.begun = from_on((ups_stage)0);
        status = load_own(d, next, own, error);
    }
    ups_run_config_free(own);
    free(next);
    d->staged = d->resume = true;
    return status;
}

/* ---- doing stages again ------------------------------------------------------------------------------------------ */

/* Stages that are built on those done again are done again as well, or must not be there. */
static ups_status add_dependants(decision *d, ups_error *error) {
    unsigned built_on = dependants(d->redo), possible = configured(d->config);
    char stages[LIST_BYTES], others[LIST_BYTES];
    if (d->request->stage < 0) {
        d->redo |= built_on & possible;
        built_on &= ~possible;
    }
    unsigned left = built_on & d->progress.built;
    if (left == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %s %s built on %s and would no longer fit; %s", d->given->output,
                    name_stages(left, others), left & (left - 1) ? "are" : "is", name_stages(d->redo, stages),
                    d->request->stage < 0 ? "the key stages has to name them, so that they are done again"
                                          : "without --stage they are done again, too");
}

static ups_status restart_run(decision *d, ups_error *error) {
    d->config = d->given;
    if (d->progress.begun == 0) return UPS_OK; /* nothing to be kept */
    d->redo = d->request->stage < 0 ? configured(d->given) : bit((ups_stage)d->request->stage);
    UPS_TRY(add_dependants(d, error));
    d->staged = d->fresh = d->resume = true;
    keep_batches(d, ~d->redo);
    return refuse_blocked(d, &d->differences, d->redo, true, error);
}

static ups_status fail_not_longer(const decision *d, ups_error *error) {
    for (int s = UPS_STAGE_COUNT - 1; s >= 0; s--) {
        const ups_training_config *training = ups_run_training(d->own, (ups_stage)s);
        if (!training || !(configured(d->own) & 1u << s)) continue;
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "--extend: which stage is to have more steps? The %s has %lld; --set %s.steps=%lld, say",
                        ups_stage_name((ups_stage)s), (long long)training->steps, ups_stage_name((ups_stage)s),
                        (long long)training->steps * 2);
    }
    return ups_fail(error, UPS_ERR_ARGUMENT, "--extend: the run has no stage with steps");
}

static ups_status extend_run(decision *d, ups_error *error) {
    char stages[LIST_BYTES], others[LIST_BYTES];
    d->config = d->given;
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (difference->lengthens && d->progress.begun & bit(difference->stage)) d->go_on |= bit(difference->stage);
    }
    if (d->request->stage >= 0 && d->go_on & ~bit((ups_stage)d->request->stage)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "--extend --stage %s: more steps are given for %s",
                        ups_stage_name((ups_stage)d->request->stage), name_stages(d->go_on, stages));
    }
    d->redo = d->go_on;
    if (d->redo) UPS_TRY(add_dependants(d, error));
    UPS_TRY(refuse_blocked(d, &d->differences, d->redo & ~d->go_on, false, error));
    if (d->redo == 0) return fail_not_longer(d, error);
    d->go_on &= ~dependants(d->go_on); /* what is built on another one that goes on begins anew */
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (!(d->go_on & 1u << s)) continue;
        if (d->progress.step[s] < 0) {
            return ups_fail(error, UPS_ERR_IO,
                            "%s/checkpoints/%s: the %s finished with %lld steps, but the checkpoint to go on from is "
                            "gone; --restart trains it from the beginning",
                            d->given->output, ups_stage_name((ups_stage)s), ups_stage_name((ups_stage)s),
                            (long long)d->progress.state.stage[s].steps);
        }
        long long steps = (long long)ups_run_training(d->config, (ups_stage)s)->steps;
        ups_log(UPS_LOG_INFO,
                "%s: has %lld steps, goes on to %lld; the learning rate is that of a schedule of %lld steps",
                ups_stage_name((ups_stage)s), (long long)d->progress.step[s], steps, steps);
    }
    unsigned again = d->redo & ~d->go_on;
    keep_batches(d, ~again);
    if (again)
        ups_log(UPS_LOG_INFO, "%s, built on %s, %s done again; until then the run stays as it is",
                name_stages(again, others), name_stages(d->go_on, stages), again & (again - 1) ? "are" : "is");
    d->staged = d->fresh = d->resume = true;
    return UPS_OK;
}

/* What the new run's config.yaml tells: where some of the run stays, `precision: auto` is what that began in. */
static ups_run_config with_precision(const decision *d, unsigned again) {
    ups_run_config told = *d->config;
    if (told.precision == UPS_PRECISION_AUTO && d->progress.begun & ~again) told.precision = d->own->precision;
    return told;
}

/* RUN/next, with all of the run that stays. What an earlier one left of its cache goes. */
static ups_status seed_next(const decision *d, const char *next, const char *next_cache, ups_error *error) {
    ups_run_config told = with_precision(d, d->redo & ~d->go_on);
    ups_run_seed seed = {.from = d->own,
                         .config = &told,
                         .directory = next,
                         .output = d->given->output,
                         .cache_directory = d->config->cache.directory,
                         .state = d->progress.state,
                         .checkpoints = d->go_on,
                         .redo = d->redo};
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (d->redo & 1u << s) seed.state.stage[s] = (ups_stage_state){0};
    }
    if (ups_path_exists(next_cache)) UPS_TRY(ups_remove_tree_at_once(next_cache, error));
    return ups_run_seed_make(&seed, error);
}

/* ---- forking ------------------------------------------------------------------------------------------------------
 */

/* Stages on which nothing changed come along as they are; the others begin with their weights. */
static ups_status fork_run(decision *d, ups_error *error) {
    unsigned again = 0;
    char stages[LIST_BYTES];
    const ups_run_config *own = d->own;
    d->config = d->given;
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (is_blocked(d, difference, 0))
            again |= difference->of_stage ? from_on(difference->stage) : from_on((ups_stage)0);
    }
    bool same_cache = strcmp(d->config->cache.directory, own->cache.directory) == 0;
    keep_batches(d, ~again);
    if (same_cache) d->config->cache.directory = (char *)"";
    d->config->output = (char *)d->request->fork;
    ups_run_config told = with_precision(d, again);
    ups_run_seed seed = {.from = own,
                         .config = &told,
                         .directory = d->config->output,
                         .output = d->config->output,
                         .cache_directory = d->config->cache.directory,
                         .state = d->progress.state,
                         .cache = same_cache && d->progress.built & ~again & bit(UPS_STAGE_CACHE)};
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (again & 1u << s) seed.state.stage[s] = (ups_stage_state){0};
        if (!(d->progress.begun & 1u << s)) continue;
        if (again & 1u << s && ups_run_training(d->config, (ups_stage)s))
            seed.weights |= 1u << s;
        else
            seed.checkpoints |= 1u << s;
    }
    if (!d->progress.begun) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: nothing of this run has begun; there are no weights to start from", own->output);
    }
    UPS_TRY(ups_run_seed_make(&seed, error));
    if (seed.weights)
        ups_log(UPS_LOG_INFO, "%s: a new run; %s %s with the weights of %s", d->config->output,
                name_stages(seed.weights, stages), seed.weights & (seed.weights - 1) ? "start" : "starts", own->output);
    else
        ups_log(UPS_LOG_INFO, "%s: a new run, as %s is", d->config->output, own->output);
    d->resume = true;
    return UPS_OK;
}

/* ---- deciding -----------------------------------------------------------------------------------------------------
 */

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

/* The text of the run's config.yaml; NULL where there is none. */
static char *read_config(const char *output) {
    char *path = NULL, *text = NULL;
    size_t length;
    ups_error error;
    if (asprintf(&path, "%s/config.yaml", output) < 0) return NULL;
    if (!ups_path_exists(path) || ups_read_regular(path, MOST_CONFIG_BYTES, &text, &length, &error) != UPS_OK)
        text = NULL;
    free(path);
    return text;
}

/* No run lies there, as far as can be seen. */
static ups_status decide_first(decision *d, ups_error *error) {
    const ups_train_request *request = d->request;
    char *state = ups_run_path(d->given, "state.json");
    bool remains = state && ups_path_exists(state);
    free(state);
    d->config = d->given;
    d->resume = request->resume;
    if (request->extend || request->fork) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: holds no run that could be %s", d->given->output,
                        request->extend ? "extended" : "forked");
    }
    if (!remains) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_IO,
        "%s: holds a run whose config.yaml is missing, so that it cannot be compared with what is given now; "
        "restore the file, or begin anew in another directory (--set output=DIR)",
        d->given->output);
}

static ups_status tell_only(decision *d, ups_error *error) {
    d->report->only_told = true;
    d->report->progress = d->progress;
    UPS_TRY(refuse_blocked(d, &d->differences, 0, true, error));
    if (!ups_run_has_next(d->own->output)) return UPS_OK;
    char *next = ups_run_next(d->own->output);
    ups_status status =
        next ? ups_run_redo_read(next, &d->report->redone, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(next);
    return status;
}

static ups_status decide(decision *d, ups_error *error) {
    const ups_train_request *request = d->request;
    UPS_TRY(ups_run_settle(request->operand, error)); /* nothing where it is no run's directory */
    UPS_TRY(ups_run_config_load(request->operand, request->overrides, request->override_count, &d->given, error));
    const char *output = d->given->output;
    UPS_TRY(ups_run_settle(output, error));
    d->run_before = read_config(output);
    if (!ups_run_is_there(output)) return decide_first(d, error);
    UPS_TRY(ups_run_config_load(output, NULL, 0, &d->own, error));
    UPS_TRY(ups_run_look(d->own, &d->progress, error));
    UPS_TRY(ups_run_compare(d->own, d->given, &d->differences, error));
    bool asks = request->resume || request->restart || request->extend || request->fork;
    if (is_directory(request->operand) && !asks) return tell_only(d, error);
    if (request->fork) return fork_run(d, error);
    if (ups_run_has_next(output)) {
        if (request->resume) return resume_next(d, error);
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s/next holds stages that are being done again, and were stopped; --resume goes on with them; "
                        "remove %s/next to give them up",
                        output, output);
    }
    if (request->restart) return restart_run(d, error);
    if (request->extend) return extend_run(d, error);
    if (request->resume) return resume_run(d, error);
    UPS_TRY(refuse_blocked(d, &d->differences, 0, true, error));
    tell_taken(d);
    keep_batches(d, ~0u);
    d->config = d->given;
    return UPS_OK;
}

/* ---- doing --------------------------------------------------------------------------------------------------------
 */

/* Between deciding and taking the lock another command may have done something. */
static ups_status check_unchanged(const decision *d, const char *output, ups_error *error) {
    char *now = read_config(output), *before = d->run_before;
    bool same = now && before ? strcmp(now, before) == 0 : now == before;
    if (d->fresh && ups_run_has_next(output)) same = false;
    free(now);
    return same ? UPS_OK
                : ups_fail(error, UPS_ERR_IO, "%s: another command changed the run just now; give this one again",
                           output);
}

/* Whether the data lie elsewhere now. What they are must not have changed with it. */
static bool moves_data(const decision *d) {
    for (size_t i = 0; i < d->differences.count && d->progress.begun && !d->request->fork; i++) {
        if (d->differences.list[i].key && strcmp(d->differences.list[i].key, "data.root") == 0) return true;
    }
    return false;
}

/* The loaded configuration is the session's; what the report says of it is read again. */
static ups_status train_in_place(decision *d, ups_error *error) {
    ups_session session;
    ups_run_lock *lock = NULL;
    ups_stages_wanted wanted = {.stage = d->request->stage, .resume = d->resume};
    ups_run_config *config = d->config;
    if (d->given == config) d->given = NULL;
    d->config = NULL;
    if (ups_session_begin(config, false, &session, error) != UPS_OK) {
        ups_run_config_free(config);
        return error->code;
    }
    wanted.output = session.config->output;
    wanted.directory = session.config->cache.directory;
    ups_status status = ups_run_lock_take(wanted.output, &lock, error);
    if (status == UPS_OK && !d->request->fork) status = check_unchanged(d, wanted.output, error);
    if (status == UPS_OK && moves_data(d)) status = ups_tasks_check_data(session.config, session.tasks, error);
    if (status == UPS_OK) status = ups_stages_run(&session, &wanted, error);
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

/* A beginning that failed at once, at what will be no better the next time, leaves nothing that could be gone on with.
 */
static bool came_to_nothing(const decision *d, const ups_run_config *staged, ups_status status) {
    ups_run_progress progress;
    ups_error error;
    if (!d->fresh || status == UPS_OK || status == UPS_ERR_CANCELLED || status == UPS_ERR_IO) return false;
    if (ups_run_look(staged, &progress, &error) != UPS_OK) return false;
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        int64_t before = d->go_on & 1u << s ? d->progress.step[s] : -1;
        if (d->redo & 1u << s && (progress.state.stage[s].finished || progress.step[s] > before)) return false;
    }
    return true;
}

static ups_status train_staged(decision *d, ups_error *error) {
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
    staged.cache.directory = d->redo & bit(UPS_STAGE_CACHE) ? next_cache : cache;
    if (status == UPS_OK) {
        ups_stages_wanted wanted = {
            .stage = single(d->redo), .only = d->redo, .resume = true, .output = output, .directory = told};
        status = ups_session_begin(&staged, false, &session, error);
        if (status == UPS_OK && d->fresh) status = seed_next(d, next, next_cache, error);
        if (status == UPS_OK) status = ups_stages_run(&session, &wanted, error);
        session.config = NULL;
        ups_session_close(&session);
        ups_error after;
        if (came_to_nothing(d, &staged, status)) {
            ups_remove_tree_at_once(next, &after);
            if (ups_path_exists(next_cache)) ups_remove_tree_at_once(next_cache, &after);
        }
    }
    if (status == UPS_OK) status = ups_run_replace(output, error);
    ups_run_lock_release(lock);
    free(next);
    free(cache);
    free(next_cache);
    return status;
}

static ups_status follow(decision *d, ups_error *error) {
    if (d->report->only_told) return UPS_OK;
    return d->staged ? train_staged(d, error) : train_in_place(d, error);
}

ups_status ups_train(const ups_train_request *request, ups_train_report *report, ups_error *error) {
    decision d = {.request = request, .report = report};
    *report = (ups_train_report){0};
    ups_status status = decide(&d, error);
    if (status == UPS_OK) status = follow(&d, error);
    if (status == UPS_OK && !report->config) { /* of what is told of */
        report->config = d.config ? d.config : d.own;
        if (d.config == d.given) d.given = NULL;
        if (d.config)
            d.config = NULL;
        else
            d.own = NULL;
    }
    if (d.config != d.given) ups_run_config_free(d.config);
    ups_run_config_free(d.given);
    ups_run_config_free(d.own);
    ups_run_differences_free(&d.differences);
    free(d.run_before);
    return status;
}

void ups_train_report_free(ups_train_report *report) {
    ups_run_config_free(report->config);
    ups_run_differences_free(&report->refused);
    *report = (ups_train_report){0};
}
