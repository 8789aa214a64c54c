#include "train/stages/decision.h"

#include "base/files.h"
#include "base/log.h"
#include "train/cache_build/encode.h"
#include "train/checkpoint.h"
#include "train/config/load.h"
#include "train/learning_rate.h"
#include "train/run/replace.h"
#include "train/run/seed.h"
#include "train/stages/stage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_CONFIG_BYTES = 16 << 20, LIST_BYTES = 200 };

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
static bool is_blocked(const ups_train_decision *d, const ups_run_difference *difference, unsigned redone) {
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
static ups_status fail_refused(const ups_train_decision *d, ups_error *error) {
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
static ups_status refuse_blocked(ups_train_decision *d, ups_run_differences *differences, unsigned redone,
                                 bool steps_too, ups_error *error) {
    for (size_t i = 0; i < differences->count; i++) {
        ups_run_difference *difference = &differences->list[i];
        if (!is_blocked(d, difference, redone) || (!steps_too && difference->lengthens)) continue;
        UPS_TRY(move_difference(difference, &d->report->refused, error));
    }
    return d->report->refused.count > 0 ? fail_refused(d, error) : UPS_OK;
}

/* What the command's file says otherwise than what is trained with. */
static ups_status tell_ignored(const ups_train_decision *d, ups_error *error) {
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
static void keep_batches(ups_train_decision *d, unsigned stays) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        ups_training_config *given = (ups_training_config *)ups_run_training(d->given, (ups_stage)s);
        if (given && given->batch_size == 0 && stays & d->progress.begun & 1u << s)
            given->batch_size = ups_run_training(d->own, (ups_stage)s)->batch_size;
    }
}

static void tell_taken(const ups_train_decision *d) {
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (difference->neutral || is_blocked(d, difference, 0)) continue;
        ups_log(UPS_LOG_INFO, "%s: %s instead of %s, taken: nothing depends on it yet", difference->key,
                difference->now, difference->run);
    }
}

/* However they are written: relative, behind a link, with a slash at the end. "" is the run's own directory. */
static bool is_same_place(const char *one, const char *other) {
    char *a = ups_path_absolute(one), *b = ups_path_absolute(other);
    for (size_t i = a ? strlen(a) : 0; i > 1 && a[i - 1] == '/'; i--) a[i - 1] = '\0';
    for (size_t i = b ? strlen(b) : 0; i > 1 && b[i - 1] == '/'; i--) b[i - 1] = '\0';
    const bool same = a && b && (strcmp(a, b) == 0 || (a[0] && b[0] && ups_path_is_same(a, b)));
    free(a);
    free(b);
    return same;
}

/* ---- going on -----------------------------------------------------------------------------------------------------
 */

/* The configuration in `directory` with what the command gives: values that no result depends on, from the file, too;
 * others only where --set asks for them, and no result is there. */
static ups_status load_own(ups_train_decision *d, const char *directory, const ups_run_config *own, ups_error *error) {
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

/* As another model than the one that the run was to begin as. */
static bool begins_otherwise(const ups_train_decision *d) {
    return strcmp(d->own->model.from, d->given->model.from) != 0;
}

static ups_status resume_run(ups_train_decision *d, ups_error *error) {
    d->resume = d->progress.begun != 0 || !begins_otherwise(d);
    if (d->progress.begun == 0) {
        d->config = d->given;
        return UPS_OK;
    }
    return load_own(d, d->own->output, d->own, error);
}

/* What was to be done again, and was stopped. */
static ups_status resume_next(ups_train_decision *d, ups_error *error) {
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
    if (status == UPS_OK && !is_same_place(d->config->cache.directory, own->cache.directory)) {
        status = ups_fail(
            error, UPS_ERR_ARGUMENT,
            "cache.directory: what was stopped in %s goes on with the cache in %s, not in %s; ups train %s "
            "--resume does that",
            next, own->cache.directory[0] ? own->cache.directory : "the run's directory",
            d->config->cache.directory[0] ? d->config->cache.directory : "the run's directory", d->own->output);
    }
    ups_run_config_free(own);
    free(next);
    d->staged = d->resume = true;
    return status;
}

/* ---- doing stages again ------------------------------------------------------------------------------------------ */

/* Stages that are built on those done again are done again as well, or must not be there. */
static ups_status add_dependants(ups_train_decision *d, ups_error *error) {
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

/* Where the cache stays, it has to be where the run is told to look for it. */
static ups_status check_cache_stays(const ups_train_decision *d, ups_error *error) {
    if (d->redo & bit(UPS_STAGE_CACHE) || is_same_place(d->config->cache.directory, d->own->cache.directory))
        return UPS_OK;
    if (!ups_encode_has_begun(d->own) || ups_encode_has_begun(d->config)) return UPS_OK;
    char *had = ups_run_cache_directory(d->own), *told = ups_run_cache_directory(d->config), stages[LIST_BYTES];
    ups_status status =
        had && told
            ? ups_fail(error, UPS_ERR_ARGUMENT,
                       "cache.directory: the run's cache lies in %s, and %s alone %s done again, so that none would "
                       "be built in %s; move the directory there, or build one there before (ups cache build %s "
                       "--set cache.directory=%s), or leave cache.directory as the run has it",
                       had, name_stages(d->redo, stages), d->redo & (d->redo - 1) ? "are" : "is", told, d->own->output,
                       told)
            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(had);
    free(told);
    return status;
}

static ups_status restart_run(ups_train_decision *d, ups_error *error) {
    d->config = d->given;
    if (d->progress.begun == 0) return UPS_OK;            /* nothing to be kept */
    UPS_TRY(ups_run_config_check_given(d->given, error)); /* which is read anew */
    d->redo = d->request->stage < 0 ? configured(d->given) : bit((ups_stage)d->request->stage);
    UPS_TRY(add_dependants(d, error));
    UPS_TRY(check_cache_stays(d, error));
    d->staged = d->fresh = d->resume = true;
    keep_batches(d, ~d->redo);
    return refuse_blocked(d, &d->differences, d->redo, true, error);
}

static ups_status fail_not_longer(const ups_train_decision *d, ups_error *error) {
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

/* Where the stage goes on from: with the schedule `wsd` from before its decay. */
static ups_status tell_extension(ups_train_decision *d, ups_stage stage, ups_error *error) {
    const char *name = ups_stage_name(stage);
    const ups_training_config *own = ups_run_training(d->own, stage);
    const long long steps = (long long)ups_run_training(d->config, stage)->steps, has = d->progress.step[stage];
    if (has <= ups_schedule_decay_start(&own->optimizer, own->steps)) {
        ups_log(UPS_LOG_INFO,
                "%s: has %lld steps, goes on to %lld; the learning rate is that of a schedule of %lld steps", name, has,
                steps, steps);
        return UPS_OK;
    }
    int64_t stable = -1;
    char *checkpoints = ups_run_path(d->own, "checkpoints/%s", name);
    ups_status status = checkpoints ? ups_checkpoint_stable_step(checkpoints, &stable, error)
                                    : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(checkpoints);
    UPS_TRY(status);
    if (stable >= 0) {
        d->back |= bit(stage);
        ups_log(UPS_LOG_INFO,
                "%s: has %lld steps, goes back to step %lld, before the decay of its learning rate, and from there on "
                "to %lld",
                name, has, (long long)stable, steps);
    } else {
        ups_log(
            UPS_LOG_WARNING,
            "%s: has %lld steps, goes on to %lld from weights whose learning rate has decayed, since no checkpoint of "
            "before the decay is there (stable.json); the learning rate is that of a schedule of %lld steps",
            name, has, steps, steps);
    }
    return UPS_OK;
}

static ups_status extend_run(ups_train_decision *d, ups_error *error) {
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
    UPS_TRY(check_cache_stays(d, error));
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
        UPS_TRY(tell_extension(d, (ups_stage)s, error));
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
static ups_run_config with_precision(const ups_train_decision *d, unsigned again) {
    ups_run_config told = *d->config;
    if (told.precision == UPS_PRECISION_AUTO && d->progress.begun & ~again) told.precision = d->own->precision;
    return told;
}

ups_status ups_train_seed_next(const ups_train_decision *d, const char *next, ups_error *error) {
    ups_run_config told = with_precision(d, d->redo & ~d->go_on);
    ups_run_seed seed = {.from = d->own,
                         .config = &told,
                         .directory = next,
                         .output = d->given->output,
                         .cache_directory = d->config->cache.directory,
                         .state = d->progress.state,
                         .checkpoints = d->go_on,
                         .given = d->request->extend ? ~0u : ~d->redo,
                         .back = d->back,
                         .redo = d->redo};
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (d->redo & 1u << s) seed.state.stage[s] = (ups_stage_state){0};
    }
    return ups_run_seed_make(&seed, error);
}

/* ---- forking ------------------------------------------------------------------------------------------------------
 */

/* Whether stages that the run had not begun, or that begin afresh, begin with what was given to those of the run. */
static bool begins_as_run(const ups_train_decision *d) {
    return !begins_otherwise(d) && (!d->request->afresh || d->own->model.from[0]);
}

bool ups_train_moves_data(const ups_train_decision *d) {
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (difference->key && strcmp(difference->key, "data.root") == 0)
            return !is_same_place(difference->run, difference->now);
    }
    return false;
}

/* A cache comes along where its data lie where they were, into a directory of its own only where none is yet. */
static bool takes_cache(const ups_train_decision *d, unsigned again) {
    const char *directory = d->config->cache.directory;
    return d->progress.built & ~again & bit(UPS_STAGE_CACHE) && !ups_train_moves_data(d) &&
           (!directory[0] || ups_path_is_absent(directory));
}

/* Stages on which nothing changed come along as they are; the others begin with their weights. */
static ups_status fork_run(ups_train_decision *d, ups_error *error) {
    unsigned again = 0;
    char stages[LIST_BYTES];
    const ups_run_config *own = d->own;
    d->config = d->given;
    for (size_t i = 0; i < d->differences.count; i++) {
        const ups_run_difference *difference = &d->differences.list[i];
        if (is_blocked(d, difference, 0))
            again |= difference->of_stage ? from_on(difference->stage) : from_on((ups_stage)0);
    }
    bool same_cache = is_same_place(d->config->cache.directory, own->cache.directory);
    d->redo = again;
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
                         .given = begins_as_run(d) ? ~0u : ~again,
                         .cache = takes_cache(d, again)};
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (again & 1u << s) seed.state.stage[s] = (ups_stage_state){0};
        if (!(d->progress.begun & 1u << s)) continue;
        bool changed = again & 1u << s && ups_run_training(d->config, (ups_stage)s);
        if (!changed)
            seed.checkpoints |= 1u << s;
        else if (!d->request->afresh && !begins_otherwise(d))
            seed.weights |= 1u << s;
    }
    if (!d->progress.begun) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: nothing of this run has begun; there are no weights to start from", own->output);
    }
    UPS_TRY(ups_run_seed_make(&seed, error));
    d->took_cache_apart = seed.cache && d->config->cache.directory[0];
    const unsigned taken = d->progress.built & ~again & ~(seed.cache ? 0 : bit(UPS_STAGE_CACHE));
    if (seed.weights)
        ups_log(UPS_LOG_INFO, "%s: a new run; %s %s with the weights of %s", d->config->output,
                name_stages(seed.weights, stages), seed.weights & (seed.weights - 1) ? "start" : "starts", own->output);
    else if (again)
        ups_log(UPS_LOG_INFO, "%s: a new run; taken along from %s: %s", d->config->output, own->output,
                taken ? name_stages(taken, stages) : "nothing");
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

char *ups_train_read_config(const char *output) {
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
static ups_status decide_first(ups_train_decision *d, ups_error *error) {
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

static ups_status tell_only(ups_train_decision *d, ups_error *error) {
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

ups_status ups_train_decide(ups_train_decision *d, ups_error *error) {
    const ups_train_request *request = d->request;
    UPS_TRY(ups_run_settle(request->operand, error)); /* nothing where it is no run's directory */
    UPS_TRY(ups_run_config_load(request->operand, request->overrides, request->override_count, &d->given, error));
    const char *output = d->given->output;
    UPS_TRY(ups_run_settle(output, error));
    d->run_before = ups_train_read_config(output);
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

void ups_train_decision_free(ups_train_decision *d) {
    if (d->config != d->given) ups_run_config_free(d->config);
    ups_run_config_free(d->given);
    ups_run_config_free(d->own);
    ups_run_differences_free(&d->differences);
    free(d->run_before);
}
