/* Reading a run's configuration: from a file, or of a run, with what the model that it begins with tells. */
#include "train/config/load.h"

#include "base/config/as_json.h"
#include "base/files.h"
#include "model/nets/core.h"
#include "train/config/check.h"
#include "train/config/given.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

/* "output='DIRECTORY'": wherever it was begun, the run lies there now. Free with free(). */
static char *place_at(const char *directory) {
    size_t length = strlen(directory);
    char *text = malloc(2 * length + sizeof "output=''"), *at = text;
    if (!text) return NULL;
    while (length > 1 && directory[length - 1] == '/') length--;
    at = stpcpy(at, "output='");
    for (size_t i = 0; i < length; i++) {
        if (directory[i] == '\'') *at++ = '\'';
        *at++ = directory[i];
    }
    strcpy(at, "'");
    return text;
}

/* ", such as RUN, RUN (7 in all)" where runs lie below, as those of a sweep do; else "". */
static void name_runs_below(const char *directory, char *words, size_t bytes) {
    enum { NAMED = 4 };
    struct dirent **entries;
    const int count = scandir(directory, &entries, NULL, alphasort);
    int runs = 0;
    size_t length = 0;
    words[0] = '\0';
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        const int written = snprintf(path, sizeof path, "%s/%s/config.yaml", directory, entries[i]->d_name);
        const bool run = entries[i]->d_name[0] != '.' && written < (int)sizeof path && !ups_path_is_absent(path);
        if (run && runs < NAMED && length < bytes)
            length += (size_t)snprintf(words + length, bytes - length, "%s%s/%.80s", runs ? ", " : ", such as ",
                                       directory, entries[i]->d_name);
        runs += run;
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    if (runs > NAMED && length < bytes) snprintf(words + length, bytes - length, " (%d in all)", runs);
}

static ups_status read_file(const char *path, bool owned, const char *const *overrides, size_t override_count,
                            ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error);

/* The configuration of the run in a directory. */
static ups_status read_run(const char *directory, const char *const *overrides, size_t override_count,
                           ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error) {
    const char **all = malloc((override_count + 1) * sizeof *all);
    char *path = NULL, *place = place_at(directory);
    ups_status status = UPS_OK;
    if (!all || !place || asprintf(&path, "%s/config.yaml", directory) < 0) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", directory);
    } else if (ups_path_is_absent(path)) {
        char below[600];
        name_runs_below(directory, below, sizeof below);
        status = ups_fail(
            error, UPS_ERR_CONFIG,
            "%s: is a directory that holds no run (there is no config.yaml in it); name the directory of a run%s, "
            "or a configuration",
            directory, below);
    } else {
        all[0] = place;
        for (size_t i = 0; i < override_count; i++) all[i + 1] = overrides[i];
        status = read_file(path, true, all, override_count + 1, mistakes, config, error);
    }
    free(path);
    free(place);
    free(all);
    return status;
}

/* Where nothing attends, or tokens are no grid, rotary places are what `borders` is, and the run says so. */
static void settle_positions(ups_run_config *config) {
    ups_core_config *core = &config->model.core;
    const ups_core_class *class = ups_core_find(core->name);
    bool attends = core->mixing_count == 0 && class && class->mixing == UPS_MIXING_ATTENTION;
    for (unsigned i = 0; i < core->mixing_count; i++) attends = attends || core->mixing[i] != UPS_MIXING_SPECTRAL;
    if (core->positions == UPS_POSITIONS_ROTARY && !(attends && ups_run_on_grid(config)))
        core->positions = UPS_POSITIONS_BORDERS;
}

/* In one order and once each: [mlp, mixing] is what [mixing, mlp] is. */
static void settle_halves(ups_run_config *config) {
    ups_core_config *core = &config->model.core;
    bool named[UPS_HALF_COUNT] = {false};
    for (unsigned i = 0; i < core->task_specific_count; i++) named[core->task_specific[i]] = true;
    core->task_specific_count = 0;
    for (int half = 0; half < UPS_HALF_COUNT; half++)
        if (named[half]) core->task_specific[core->task_specific_count++] = (ups_block_half)half;
}

/* What follows from several keys of a configuration that was read. */
static ups_run_config *finish(void *value) {
    ups_run_config *made = value;
    if (!made) return NULL;
    ups_run_read_share(made->data.split.test_share, &made->data.split.test, &made->data.split.test_place);
    settle_positions(made);
    settle_halves(made);
    return made;
}

/* A configuration as it stands in its file, with default values where it says nothing. */
static ups_status read_said(const char *path, const char *const *overrides, size_t override_count,
                            ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error) {
    void *value = NULL;
    *mistakes = ups_config_mistakes_create(path);
    if (!*mistakes) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to load it", path);
    UPS_TRY(ups_config_read(path, &ups_run_schema, overrides, override_count, *mistakes, &value, error));
    *config = finish(value);
    return UPS_OK;
}

/* The same once more, with what the model that it begins with has where it says nothing: `given`, `count` texts. */
static ups_status read_with_given(const char *path, char *const *given, size_t count, const char *const *overrides,
                                  size_t override_count, ups_config_mistakes **mistakes, ups_run_config **config,
                                  ups_error *error) {
    const char **all = malloc((count + override_count + 1) * sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to load it", path);
    for (size_t i = 0; i < count; i++) all[i] = given[i];
    for (size_t i = 0; i < override_count; i++) all[count + i] = overrides[i];
    ups_run_config_free(*config);
    ups_config_mistakes_destroy(*mistakes);
    *config = NULL;
    ups_status status = read_said(path, all, count + override_count, mistakes, config, error);
    free(all);
    return status;
}

/* Of a configuration that names a model to begin with; not *had, with the mistake noted, where that cannot be read. */
static ups_status take_given(const char *path, const char *const *overrides, size_t override_count,
                             ups_config_mistakes **mistakes, ups_run_config **config, bool *had, ups_error *error) {
    json_t *told = NULL;
    char **given = NULL;
    size_t count = 0;
    ups_error why;
    *had = ups_given_read((*config)->model.from, &told, &why) == UPS_OK;
    if (!*had) {
        ups_config_mistakes_disagree(*mistakes, "model.from", NULL, "%s", why.message);
        return UPS_OK;
    }
    ups_status status = ups_given_inherit(told, *mistakes, &given, &count, error);
    if (status == UPS_OK && count > 0)
        status = read_with_given(path, given, count, overrides, override_count, mistakes, config, error);
    if (status == UPS_OK && *config) {
        json_t *all = ups_config_as_json(&ups_run_schema, *config);
        ups_given_check(*config, json_object_get(all, "model"), told, given, count, *mistakes);
        json_decref(all);
    }
    ups_given_free(given, count);
    json_decref(told);
    return status;
}

ups_status ups_run_config_check_given(const ups_run_config *config, ups_error *error) {
    json_t *told = NULL;
    if (!config->model.from[0]) return UPS_OK;
    UPS_TRY(ups_given_read(config->model.from, &told, error));
    ups_config_mistakes *mistakes = ups_config_mistakes_create("model.from");
    json_t *all = ups_config_as_json(&ups_run_schema, config);
    if (mistakes) ups_given_check(config, json_object_get(all, "model"), told, NULL, 0, mistakes);
    ups_status status = UPS_OK;
    if (!mistakes)
        status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    else if (mistakes->count > 0)
        status = ups_fail(error, UPS_ERR_CONFIG, "%s", mistakes->list[0].sentence);
    ups_config_mistakes_destroy(mistakes);
    json_decref(all);
    json_decref(told);
    return status;
}

/* Whether the model to begin with is looked at: what a run owns says all of its keys, and has what it needs of that
 * model, which may have changed or gone, unless an override names another one. */
static bool wants_given(const ups_run_config *config, const ups_config_mistakes *mistakes, bool owned) {
    if (!config->model.from[0] || ups_config_mistakes_know(mistakes, "model.from")) return false;
    const ups_yaml *from = ups_config_mistakes_find(mistakes, "model.from");
    return !owned || (from && ups_yaml_is_override(from));
}

static ups_status read_file(const char *path, bool owned, const char *const *overrides, size_t override_count,
                            ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error) {
    bool had = true;
    UPS_TRY(read_said(path, overrides, override_count, mistakes, config, error));
    if (*config && wants_given(*config, *mistakes, owned))
        UPS_TRY(take_given(path, overrides, override_count, mistakes, config, &had, error));
    /* Without that model its keys have default values, which say nothing. */
    if (*config && had) ups_run_config_check(*config, *mistakes);
    return UPS_OK;
}

ups_status ups_run_config_read(const char *path, const char *const *overrides, size_t override_count,
                               ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error) {
    *config = NULL;
    *mistakes = NULL;
    if (is_directory(path)) return read_run(path, overrides, override_count, mistakes, config, error);
    return read_file(path, false, overrides, override_count, mistakes, config, error);
}

/* A configuration without mistakes, or the first of them as an error. */
static ups_status want_none(ups_status status, ups_config_mistakes *mistakes, ups_run_config *read,
                            ups_run_config **config, ups_error *error) {
    if (status == UPS_OK && mistakes->count > 0) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s", mistakes->list[0].sentence);
        ups_run_config_free(read);
    }
    if (status == UPS_OK) *config = read;
    ups_config_mistakes_destroy(mistakes);
    return status;
}

ups_status ups_run_config_load(const char *path, const char *const *overrides, size_t override_count,
                               ups_run_config **config, ups_error *error) {
    ups_config_mistakes *mistakes = NULL;
    ups_run_config *read = NULL;
    ups_status status = ups_run_config_read(path, overrides, override_count, &mistakes, &read, error);
    return want_none(status, mistakes, read, config, error);
}

ups_status ups_run_config_load_owned(const char *path, ups_run_config **config, ups_error *error) {
    ups_config_mistakes *mistakes = NULL;
    ups_run_config *read = NULL;
    ups_status status = read_file(path, true, NULL, 0, &mistakes, &read, error);
    return want_none(status, mistakes, read, config, error);
}

ups_status ups_run_config_load_model(const char *name, const char *text, ups_run_config **config, ups_error *error) {
    void *value = NULL;
    ups_config_mistakes *mistakes = ups_config_mistakes_create(name);
    if (!mistakes) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to load it", name);
    ups_status status = ups_config_read_text(name, text, strlen(text), &ups_run_schema, mistakes, &value, error);
    ups_run_config *read = status == UPS_OK ? finish(value) : NULL;
    if (read) ups_run_config_check_model(read, mistakes);
    return want_none(status, mistakes, read, config, error);
}

void ups_run_config_free(ups_run_config *config) {
    ups_config_free(config);
}

char *ups_run_override(const char *key, const char *text) {
    char *made = malloc(strlen(key) + 2 * strlen(text) + 4), *at = made;
    if (!made) return NULL;
    at += sprintf(at, "%s='", key);
    for (const char *c = text; *c; c++) {
        if (*c == '\'') *at++ = '\'';
        *at++ = *c;
    }
    memcpy(at, "'", 2);
    return made;
}
