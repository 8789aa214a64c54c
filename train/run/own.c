#include "train/run/own.h"

#include "base/files.h"
#include "train/cache_build/encode.h"
#include "train/checkpoint.h"
#include "train/config/load.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ups_run_is_there(const char *directory) {
    char *path = NULL;
    bool there = asprintf(&path, "%s/config.yaml", directory) >= 0 && ups_path_exists(path);
    free(path);
    return there;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

ups_status ups_run_config_publish(const ups_run_config *config, const char *directory, const char *output,
                                  const char *cache_directory, ups_error *error) {
    ups_run_config told = *config;
    char *text = NULL, *path = NULL;
    told.output = ups_path_absolute(output);
    told.cache.directory = ups_path_absolute(cache_directory);
    bool had = told.output && told.cache.directory && asprintf(&path, "%s/config.yaml", directory) >= 0;
    ups_status status =
        had ? ups_config_print(&ups_run_schema, &told, &text, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_make_directories(directory, error);
    if (status == UPS_OK) status = ups_publish_bytes_once(path, text, strlen(text), error);
    free(text);
    free(path);
    free(told.output);
    free(told.cache.directory);
    return status;
}

/* ---- how far it has come ----------------------------------------------------------------------------------------- */

ups_status ups_run_look(const ups_run_config *config, ups_run_progress *progress, ups_error *error) {
    *progress = (ups_run_progress){0};
    UPS_TRY(ups_run_state_read(config, &progress->state, error));
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        progress->step[s] = -1;
        if (progress->state.stage[s].finished) progress->begun |= 1u << s;
        if (!ups_run_training(config, (ups_stage)s)) continue;
        char *checkpoints = ups_run_path(config, "checkpoints/%s", ups_stage_name((ups_stage)s));
        if (!checkpoints) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        ups_status status = ups_checkpoint_step(checkpoints, &progress->step[s], error);
        free(checkpoints);
        UPS_TRY(status);
        if (progress->step[s] >= 0) progress->begun |= 1u << s;
    }
    progress->built = progress->begun;
    if (ups_encode_has_begun(config)) progress->built |= 1u << UPS_STAGE_CACHE;
    return UPS_OK;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    ups_run_differences *found;
    bool failed; /* no memory */
} comparison;

/* Keys of a task that say how the operator learns it, and nothing of its fields or latents. */
static bool is_of_operator(const char *key) {
    static const char *const keys[] = {"bundle", "strides", "symmetries"};
    const char *end = strncmp(key, "tasks[", 6) == 0 ? strstr(key, "].") : NULL;
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && end; i++) found = found || strcmp(end + 2, keys[i]) == 0;
    return found;
}

/* "STAGE.…", "model.STAGE.…" and some of a task's are a stage's own; all stages depend on anything else. */
static ups_stage stage_of(const char *key, bool *own) {
    static const char model[] = "model.";
    *own = is_of_operator(key);
    if (*own) return UPS_STAGE_OPERATOR;
    const char *section = strncmp(key, model, sizeof model - 1) == 0 ? key + sizeof model - 1 : key;
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const char *name = ups_stage_name((ups_stage)s);
        size_t length = strlen(name);
        *own = strncmp(section, name, length) == 0 && section[length] == '.';
        if (*own) return (ups_stage)s;
    }
    return (ups_stage)0;
}

/* As `--set` takes it: texts in quotes, so that they stay texts. */
static char *assign(const ups_config_difference *difference) {
    bool text = difference->key->type == UPS_CONFIG_TEXT && difference->key->list.item_size == 0;
    size_t length = strlen(difference->path) + 2 * strlen(difference->second) + 4;
    char *made = malloc(length), *at = made;
    if (!made) return NULL;
    at += sprintf(at, "%s=%s", difference->path, text ? "'" : "");
    for (const char *c = difference->second; *c; c++) {
        if (text && *c == '\'') *at++ = '\'';
        *at++ = *c;
    }
    snprintf(at, 2, "%s", text ? "'" : "");
    return made;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* `auto` leaves to the run what it has. */
static bool leaves_open(const ups_config_difference *difference) {
    bool open = strcmp(difference->path, "precision") == 0 || ends_with(difference->path, ".batch_size");
    return open && strcmp(difference->second, "auto") == 0;
}

/* More steps, or more patience; 0 is patience without end. */
static bool is_longer(const ups_run_difference *made) {
    char steps[64], patience[64];
    long long run = strtoll(made->run, NULL, 10), now = strtoll(made->now, NULL, 10);
    snprintf(steps, sizeof steps, "%s.steps", ups_stage_name(made->stage));
    snprintf(patience, sizeof patience, "%s.patience", ups_stage_name(made->stage));
    if (strcmp(made->key, steps) == 0) return now > run;
    return strcmp(made->key, patience) == 0 && run > 0 && (now > run || now == 0);
}

static void note(void *context, const ups_config_difference *difference) {
    comparison *c = context;
    if (c->failed || leaves_open(difference)) return;
    ups_run_difference *longer = realloc(c->found->list, (c->found->count + 1) * sizeof *longer);
    if (!longer) {
        c->failed = true;
        return;
    }
    c->found->list = longer;
    ups_run_difference *made = &longer[c->found->count++];
    *made = (ups_run_difference){.key = strdup(difference->path),
                                 .run = strdup(difference->first),
                                 .now = strdup(difference->second),
                                 .assignment = assign(difference),
                                 .neutral = difference->key->neutral};
    made->stage = stage_of(difference->path, &made->of_stage);
    c->failed = !made->key || !made->run || !made->now || !made->assignment;
    if (c->failed) return;
    made->lengthens = made->of_stage && is_longer(made);
}

ups_status ups_run_compare(const ups_run_config *run, const ups_run_config *now, ups_run_differences *differences,
                           ups_error *error) {
    *differences = (ups_run_differences){0};
    comparison c = {.found = differences};
    ups_status status = ups_config_compare(&ups_run_schema, run, now, note, &c, error);
    if (status == UPS_OK && c.failed) status = ups_fail(error, UPS_ERR_MEMORY, "no memory to compare configurations");
    if (status != UPS_OK) ups_run_differences_free(differences);
    return status;
}

void ups_run_differences_free(ups_run_differences *differences) {
    for (size_t i = 0; i < differences->count; i++) {
        free(differences->list[i].key);
        free(differences->list[i].run);
        free(differences->list[i].now);
        free(differences->list[i].assignment);
    }
    free(differences->list);
    *differences = (ups_run_differences){0};
}
