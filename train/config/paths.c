#include "train/config/paths.h"

#include "base/files.h"
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

static ups_status check_root(const char *path, const ups_run_config *config, ups_error *error) {
    const char *root = config->data.root;
    if (is_directory(root)) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG,
                    "%s: data.root: %s is %s; the folder that the tasks' files lie in was expected, relative to the "
                    "configuration's own, or with --set to the working directory",
                    path, root, access(root, F_OK) == 0 ? "no folder" : "not there");
}

static ups_status check_file(const char *path, const ups_run_config *config, unsigned task, unsigned f,
                             ups_error *error) {
    const char *name = config->tasks[task].files[f];
    char *file = NULL;
    if (asprintf(&file, "%s%s%s", name[0] == '/' ? "" : config->data.root, name[0] == '/' ? "" : "/", name) < 0)
        return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    glob_t matches;
    bool pattern = strpbrk(name, "*?[") != NULL && access(file, F_OK) != 0;
    if (pattern && glob(file, GLOB_NOSORT, NULL, &matches) != 0) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[%u].files[%u]: no file matches %s", path, task, f, file);
    } else if (!pattern && is_directory(file)) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[%u].files[%u]: %s is a folder; a file was expected", path,
                          task, f, file);
    } else if (!pattern && access(file, R_OK) != 0) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s: tasks[%u].files[%u]: %s cannot be read: %s", path, task, f, file,
                          strerror(errno));
    }
    if (pattern) globfree(&matches);
    free(file);
    return status;
}

/* The nearest folder above that is there has to let one make what is missing below it. */
static ups_status check_place(const char *path, const char *key, const char *place, ups_error *error) {
    char *at = strdup(place[0] ? place : ".");
    if (!at) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    while (access(at, F_OK) != 0 && ups_errno_is_absent(errno)) {
        char *slash = strrchr(at, '/');
        if (slash == at)
            at[1] = '\0';
        else if (slash)
            *slash = '\0';
        else
            strcpy(at, ".");
    }
    ups_status status = UPS_OK;
    if (access(at, F_OK) == 0 && !is_directory(at)) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s: %s: %s cannot be a folder: %s is a file", path, key, place, at);
    } else if (access(at, W_OK | X_OK) != 0) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s: %s: nothing can be written to %s: %s: %s", path, key, place, at,
                          strerror(errno));
    }
    free(at);
    return status;
}

ups_status ups_run_config_check_paths(const char *path, const ups_run_config *config, ups_error *error) {
    UPS_TRY(check_root(path, config, error));
    for (unsigned t = 0; t < config->task_count; t++) {
        for (unsigned f = 0; f < config->tasks[t].file_count; f++) UPS_TRY(check_file(path, config, t, f, error));
    }
    UPS_TRY(check_place(path, "output", config->output, error));
    if (!config->cache.directory[0]) return UPS_OK;
    return check_place(path, "cache.directory", config->cache.directory, error);
}
