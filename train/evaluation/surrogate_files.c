/* Where a surrogate's models lie: the run's own, or what --checkpoint names. A file's tensors say what it holds. */
#include "base/files.h"
#include "base/nearest.h"
#include "model/parameters/safetensors.h"
#include "train/checkpoint.h"
#include "train/data/latents.h"
#include "train/evaluation/surrogate.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void ups_surrogate_files_free(ups_surrogate_files *files) {
    free(files->autoencoder);
    free(files->op);
    *files = (ups_surrogate_files){0};
}

static bool holds(const ups_safetensors *file, const char *prefix) {
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        if (strncmp(ups_safetensors_get(file, i)->name, prefix, strlen(prefix)) == 0) return true;
    }
    return false;
}

static ups_status note(const char *path, char **noted, ups_error *error) {
    free(*noted);
    *noted = strdup(path);
    return *noted ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

/* Notes `path` for each model that the file holds. */
static ups_status take_file(const char *path, ups_surrogate_files *files, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    bool op = holds(file, "operator."), autoencoder = holds(file, "encoder.");
    ups_safetensors_close(file);
    if (!op && !autoencoder) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: holds neither an operator nor an autoencoder (no tensor is named operator.… or encoder.…)",
                        path);
    }
    if (op) UPS_TRY(note(path, &files->op, error));
    if (autoencoder) UPS_TRY(note(path, &files->autoencoder, error));
    return UPS_OK;
}

/* The file that a training checkpoint's latest.json names. */
static ups_status take_latest(const char *directory, ups_surrogate_files *files, ups_error *error) {
    char *path = NULL;
    UPS_TRY(ups_checkpoint_file(directory, &path, error));
    ups_status status = take_file(path, files, error);
    free(path);
    return status;
}

/* The operator of the run's best or latest checkpoint; the autoencoder is the one that it was trained on. */
static ups_status take_checkpoint(const ups_run_config *config, bool best, ups_surrogate_files *files,
                                  ups_error *error) {
    char *directory = ups_run_path(config, "checkpoints/%s", ups_stage_name(UPS_STAGE_OPERATOR)), *path = NULL;
    if (!directory) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status =
        best ? ups_checkpoint_best_file(directory, &path, error) : ups_checkpoint_file(directory, &path, error);
    if (status == UPS_OK) status = take_file(path, files, error);
    free(path);
    free(directory);
    return status;
}

static ups_status take_directory(const char *directory, ups_surrogate_files *files, ups_error *error) {
    static const char *const names[] = {"latest.json", "autoencoder.safetensors", "operator.safetensors"};
    bool any = false;
    ups_status status = UPS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == UPS_OK; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", directory, names[i]) < 0) {
            return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        }
        if (ups_path_exists(path)) {
            any = true;
            status = i == 0 ? take_latest(directory, files, error) : take_file(path, files, error);
        }
        free(path);
    }
    if (status == UPS_OK && !any) {
        status = ups_fail(error, UPS_ERR_IO,
                          "%s: a directory without operator.safetensors, autoencoder.safetensors or latest.json; "
                          "name a safetensors file or a directory with one of these",
                          directory);
    }
    return status;
}

/* The run's own model of a stage, where no checkpoint gave one. */
static ups_status take_own(const ups_run_config *config, ups_stage stage, char **path, ups_error *error) {
    if (*path) return UPS_OK;
    *path = ups_run_model_path(config, stage);
    if (!*path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (ups_path_exists(*path)) return UPS_OK;
    return ups_fail(error, UPS_ERR_IO,
                    "%s: there is no trained %s yet; run `ups train` on this configuration first, or name one with "
                    "--checkpoint",
                    *path, ups_stage_name(stage));
}

ups_status ups_surrogate_take(const char *path, ups_surrogate_files *files, ups_error *error) {
    struct stat entry;
    const bool directory = stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
    ups_status status = directory ? take_directory(path, files, error) : take_file(path, files, error);
    if (status != UPS_OK) ups_surrogate_files_free(files);
    return status;
}

bool ups_surrogate_is_another(const char *checkpoint) {
    return checkpoint && strcmp(checkpoint, "best") != 0 && strcmp(checkpoint, "latest") != 0;
}

ups_status ups_surrogate_find(const ups_run_config *config, const char *checkpoint, ups_surrogate_files *files,
                              ups_error *error) {
    *files = (ups_surrogate_files){0};
    ups_status status = UPS_OK;
    bool best = checkpoint && strcmp(checkpoint, "best") == 0, latest = checkpoint && strcmp(checkpoint, "latest") == 0;
    if (best || latest) {
        status = take_checkpoint(config, best, files, error);
    } else if (checkpoint) {
        struct stat entry;
        if (stat(checkpoint, &entry) != 0) {
            ups_nearest nearest = {.word = checkpoint};
            ups_nearest_try(&nearest, "best");
            ups_nearest_try(&nearest, "latest");
            return nearest.name ? ups_fail(error, UPS_ERR_IO, "%s: there is no such checkpoint; did you mean '%s'?",
                                           checkpoint, nearest.name)
                                : ups_fail_errno(error, "%s: the checkpoint cannot be opened", checkpoint);
        }
        status = ups_surrogate_take(checkpoint, files, error);
    }
    if (status == UPS_OK) status = take_own(config, UPS_STAGE_AUTOENCODER, &files->autoencoder, error);
    if (status == UPS_OK) status = take_own(config, UPS_STAGE_OPERATOR, &files->op, error);
    if (status == UPS_OK) status = ups_file_hash(files->autoencoder, files->autoencoder_hash, error);
    if (status == UPS_OK) status = ups_file_hash(files->op, files->operator_hash, error);
    if (status != UPS_OK) ups_surrogate_files_free(files);
    return status;
}
