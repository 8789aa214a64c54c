#include "tools/commands/config_mistakes.h"

#include "base/printable.h"
#include "train/config/load.h"
#include "train/config/paths.h"
#include "train/data/tasks.h"
#include "train/networks.h"
#include "train/stages/stage.h"
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_KEY = 160 };

/* Whether a word of the sentence is a path that the pattern stands for. */
static bool names_one_of(const char *sentence, const char *pattern) {
    char *words = strdup(sentence), *rest = NULL;
    bool found = false;
    for (char *word = words ? strtok_r(words, " ,:;()'\"", &rest) : NULL; word && !found;
         word = strtok_r(NULL, " ,:;()'\"", &rest))
        found = fnmatch(pattern, word, FNM_PATHNAME) == 0;
    free(words);
    return found;
}

/* The file that a sentence names: of those whose names are in it the longest, since one may begin as another; else the
 * first pattern that stands for one that it names. */
static unsigned file_in(const ups_run_config *config, const ups_task_config *task, const char *sentence) {
    unsigned found = 0;
    size_t longest = 0;
    for (unsigned f = 0; f < task->file_count; f++) {
        const size_t length = strlen(task->files[f]);
        if (length <= longest || !strstr(sentence, task->files[f])) continue;
        found = f;
        longest = length;
    }
    for (unsigned f = 0; f < task->file_count && longest == 0; f++) {
        char *pattern = ups_run_data_path(config, task->files[f]);
        const bool named = pattern && names_one_of(sentence, pattern);
        free(pattern);
        if (named) return f;
    }
    return found;
}

/* The key of the task that a sentence is about; NULL: it is about a file. */
static const char *part_in(const ups_task_config *task, const ups_error *error) {
    static const char *const keys[] = {"segment", "stride", "patch", "field_scale"};
    if (strstr(error->message, ": layout.") && ups_mapping_is_given(&task->layout)) return "layout";
    if (strstr(error->message, "`segment`") && task->segment > 0) return keys[0]; /* a file may be too short for it */
    if (strstr(error->message, "`thin`") && task->thin_count > 0) return "thin";
    const char *name = strstr(error->message, task->name);
    const char *said = name ? name + strlen(task->name) : error->message;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && error->code == UPS_ERR_CONFIG; k++) {
        if (strstr(said, keys[k])) return keys[k];
    }
    return NULL;
}

typedef struct asked_key {
    const char *word;
    bool found;
} asked_key;

static void compare_key(void *context, const char *path, const char *expected, const ups_config_key *key) {
    asked_key *asked = context;
    (void)expected, (void)key;
    asked->found = asked->found || strcmp(path, asked->word) == 0;
}

/* Whether a word is a key within a section: "evaluation.given", "tasks[].bundle". */
static bool is_key(const char *word) {
    asked_key asked = {.word = word};
    if (strchr(word, '.')) ups_config_each_key(&ups_run_schema, compare_key, &asked);
    return asked.found;
}

/* "tasks[1].bundle" of "tasks[].bundle", where a sentence begins with "task NAME: "; any other key as it is. */
static void name_key(char key[LONGEST_KEY], const char *word, const ups_tasks *tasks, const char *sentence) {
    static const char task[] = "task ", of_task[] = "tasks[]";
    snprintf(key, LONGEST_KEY, "%s", word);
    if (strncmp(word, of_task, sizeof of_task - 1) != 0 || strncmp(sentence, task, sizeof task - 1) != 0) return;
    for (int t = 0; t < tasks->count; t++) {
        const size_t length = strlen(tasks->task[t].name);
        const char *name = sentence + sizeof task - 1;
        if (strncmp(name, tasks->task[t].name, length) == 0 && name[length] == ':')
            snprintf(key, LONGEST_KEY, "tasks[%d]%s", t, word + sizeof of_task - 1);
    }
}

/* Of the keys that a sentence names, the one that a user has said: on the command's line, else in the file, else the
 * first. False: it names none. */
static bool find_key(char key[LONGEST_KEY], const ups_tasks *tasks, const char *sentence,
                     const ups_config_mistakes *mistakes) {
    char *words = strdup(sentence), *rest = NULL, named[LONGEST_KEY];
    int nearest = -1;
    for (char *word = words ? strtok_r(words, " ,:;()'", &rest) : NULL; word; word = strtok_r(NULL, " ,:;()'", &rest)) {
        if (!is_key(word)) continue;
        name_key(named, word, tasks, sentence);
        const ups_yaml *said = ups_config_mistakes_find(mistakes, named);
        const int near = !said ? 0 : ups_yaml_is_override(said) ? 2 : 1;
        if (near > nearest) snprintf(key, LONGEST_KEY, "%s", named);
        if (near > nearest) nearest = near;
    }
    free(words);
    return nearest >= 0;
}

/* What a stage says against the tasks, at the key that the sentence begins with or names. */
static void check_stage(ups_stage stage, const ups_run_config *config, const ups_tasks *tasks,
                        ups_config_mistakes *mistakes) {
    ups_error error;
    char key[LONGEST_KEY];
    if (ups_stages_check(1u << stage, config, tasks, &error) == UPS_OK) return;
    const char *said = error.message, *colon = strstr(said, ": ");
    snprintf(key, sizeof key, "%.*s", colon ? (int)(colon - said) : 0, said);
    if (is_key(key))
        said = colon + 2;
    else if (!find_key(key, tasks, said, mistakes))
        snprintf(key, sizeof key, "%s", ups_stage_name(stage));
    ups_config_mistakes_disagree(mistakes, key, NULL, "%s", said);
}

/* What the files of each task say against it, where its key stands, or the file; else what its network and the stages
 * do. */
static void open_data(const ups_run_config *config, ups_config_mistakes *mistakes) {
    ups_tasks *tasks = NULL;
    ups_error error;
    if (ups_tasks_open(config, &tasks, &error) == UPS_OK) {
        const bool fits = ups_networks_check(config, tasks, &error) == UPS_OK;
        if (!fits) ups_config_mistakes_disagree(mistakes, "model", NULL, "%s", error.message);
        for (unsigned i = 0; i < config->stage_count && fits; i++)
            check_stage(config->stages[i], config, tasks, mistakes);
        ups_tasks_close(tasks);
        return;
    }
    for (unsigned t = 0; t < config->task_count; t++) {
        char key[64];
        if (ups_task_try(config, (int)t, &error) == UPS_OK) continue;
        const char *part = part_in(&config->tasks[t], &error);
        if (part)
            snprintf(key, sizeof key, "tasks[%u].%s", t, part);
        else
            snprintf(key, sizeof key, "tasks[%u].files[%u]", t, file_in(config, &config->tasks[t], error.message));
        ups_config_mistakes_disagree(mistakes, key, NULL, "%s", error.message);
    }
}

ups_status ups_look_for_mistakes(const ups_arguments *arguments, const char *path, ups_config_paths paths,
                                 ups_config_mistakes **mistakes, ups_error *error) {
    ups_run_config *config = NULL;
    ups_status status =
        ups_run_config_read(path, arguments->overrides, arguments->override_count, mistakes, &config, error);
    if (config && paths >= UPS_PATHS_READ) ups_run_config_check_data(config, *mistakes);
    if (config && paths >= UPS_PATHS_ALL) ups_run_config_check_places(config, *mistakes);
    if (config && paths == UPS_PATHS_OPENED && (*mistakes)->count == 0) open_data(config, *mistakes);
    ups_run_config_free(config);
    if (*mistakes) ups_config_mistakes_sort(*mistakes);
    return status;
}

/* [{"file": …, "line": 12, "key": "model.dim", "message": …}]; without file and line where an override is wrong. */
static json_t *list_mistakes(const ups_config_mistakes *mistakes) {
    json_t *list = json_array();
    for (size_t i = 0; i < mistakes->count; i++) {
        const ups_config_mistake *mistake = &mistakes->list[i];
        json_t *entry = json_pack("{s:o, s:o}", "key", ups_json_printable(mistake->key), "message",
                                  ups_json_printable(mistake->sentence));
        if (mistake->line > 0) {
            json_object_set_new(entry, "file", ups_json_printable(mistakes->path));
            json_object_set_new(entry, "line", json_integer((json_int_t)mistake->line));
        }
        json_array_append_new(list, entry);
    }
    return list;
}

int ups_tell_mistakes(const ups_arguments *arguments, const ups_config_mistakes *mistakes) {
    ups_error error;
    size_t count = mistakes->count;
    const char **sentences = calloc(count + 1, sizeof *sentences);
    for (size_t i = 0; sentences && count > 1 && i < count; i++) sentences[i] = mistakes->list[i].sentence;
    if (count == 1)
        ups_fail(&error, UPS_ERR_CONFIG, "%s", mistakes->list[0].sentence);
    else
        ups_fail(&error, UPS_ERR_CONFIG, "%s: %zu%s mistakes", mistakes->path, count,
                 count == UPS_CONFIG_MOST_MISTAKES ? " or more" : "");
    const char *none = NULL;
    int exit_code = ups_command_fail_each(arguments, &error, sentences ? sentences : &none, list_mistakes(mistakes));
    free(sentences);
    return exit_code;
}

json_t *ups_mistakes_of_check(const ups_config_mistakes *mistakes) {
    return json_pack("{s:o, s:o, s:o}", "config", ups_json_printable(mistakes->path), "error",
                     ups_json_printable(mistakes->list[0].sentence), "mistakes", list_mistakes(mistakes));
}

int ups_command_fail_on_config(const ups_arguments *arguments, ups_config_paths paths, const ups_error *error) {
    return ups_command_fail_on_config_at(arguments, arguments->operands[0], paths, error);
}

int ups_command_fail_on_config_at(const ups_arguments *arguments, const char *path, ups_config_paths paths,
                                  const ups_error *error) {
    struct stat status;
    bool read_again = error->code == UPS_ERR_CONFIG || error->code == UPS_ERR_IO;
    read_again = read_again && stat(path, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
    if (!read_again) return ups_command_fail(arguments, error); /* a pipe is read once */
    ups_config_mistakes *mistakes = NULL;
    ups_error second;
    bool found = ups_look_for_mistakes(arguments, path, paths, &mistakes, &second) == UPS_OK && mistakes->count > 0;
    int exit_code = found ? ups_tell_mistakes(arguments, mistakes) : ups_command_fail(arguments, error);
    ups_config_mistakes_destroy(mistakes);
    return exit_code;
}
