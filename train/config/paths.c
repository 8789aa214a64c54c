#include "train/config/paths.h"

#include "base/files.h"
#include "pipeline/arrays/arrays.h"
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define disagree ups_config_mistakes_disagree

static const char *const data_root[] = {"data.root", NULL};

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

static void check_root(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const char *root = config->data.root;
    if (is_directory(root)) return;
    disagree(mistakes, "data.root", NULL,
             "%s is %s; the folder that the tasks' files lie in was expected, relative to the configuration's own, or "
             "with --set to the working directory",
             root, access(root, F_OK) == 0 ? "no folder" : "not there");
}

/* A store of Zarr is a folder. */
static bool is_store(const char *path) {
    const char *format;
    return ups_arrays_are_foreign(path, &format);
}

static void check_file(const ups_run_config *config, const char *key, const char *name, ups_config_mistakes *mistakes) {
    char *file = ups_run_data_path(config, name);
    if (!file) return;
    glob_t matches;
    const char *below = name[0] == '/' ? "" : "; files are looked for below the key data.root";
    bool pattern = strpbrk(name, "*?[") != NULL && access(file, F_OK) != 0;
    if (pattern && glob(file, GLOB_NOSORT, NULL, &matches) != 0) {
        disagree(mistakes, key, data_root, "no file matches %s%s", file, below);
    } else if (!pattern && is_directory(file) && !is_store(file)) {
        disagree(mistakes, key, data_root, "%s is a directory, and no store of Zarr; a file was expected", file);
    } else if (!pattern && ups_path_is_absent(file)) {
        disagree(mistakes, key, data_root, "there is no file %s%s", file, below);
    } else if (!pattern && access(file, R_OK) != 0) {
        disagree(mistakes, key, data_root, "%s cannot be read: %s", file, strerror(errno));
    }
    if (pattern) globfree(&matches);
    free(file);
}

static void check_files(const ups_run_config *config, unsigned task, const char *list, char **files, unsigned count,
                        ups_config_mistakes *mistakes) {
    char key[64];
    for (unsigned f = 0; f < count; f++) {
        snprintf(key, sizeof key, "tasks[%u].%s[%u]", task, list, f);
        if (files[f]) check_file(config, key, files[f], mistakes); /* NULL: wrong by itself */
    }
}

void ups_run_config_check_data(const ups_run_config *config, ups_config_mistakes *mistakes) {
    check_root(config, mistakes);
    for (unsigned t = 0; t < config->task_count; t++) {
        const ups_task_config *task = &config->tasks[t];
        check_files(config, t, "files", task->files, task->file_count, mistakes);
        check_files(config, t, "test_files", task->test_files, task->test_file_count, mistakes);
    }
}

/* The nearest folder above that is there has to let one make what is missing below it. */
static void check_place(const char *key, const char *place, ups_config_mistakes *mistakes) {
    char *at = strdup(place[0] ? place : ".");
    if (!at) return;
    while (access(at, F_OK) != 0 && ups_errno_is_absent(errno)) {
        char *slash = strrchr(at, '/');
        if (slash == at)
            at[1] = '\0';
        else if (slash)
            *slash = '\0';
        else
            strcpy(at, ".");
    }
    if (access(at, F_OK) == 0 && !is_directory(at)) {
        disagree(mistakes, key, NULL, "%s cannot be a folder: %s is a file", place, at);
    } else if (access(at, W_OK | X_OK) != 0) {
        disagree(mistakes, key, NULL, "nothing can be written to %s: %s: %s", place, at, strerror(errno));
    }
    free(at);
}

void ups_run_config_check_places(const ups_run_config *config, ups_config_mistakes *mistakes) {
    check_place("output", config->output, mistakes);
    if (config->cache.directory[0]) check_place("cache.directory", config->cache.directory, mistakes);
}
