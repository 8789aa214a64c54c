#include "train/config/config.h"

#include "base/files.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ups_stage_names[UPS_STAGE_COUNT + 1] = {
    [UPS_STAGE_AUTOENCODER] = "autoencoder", [UPS_STAGE_CACHE] = "cache", [UPS_STAGE_OPERATOR] = "operator"};

const char *ups_stage_name(ups_stage stage) {
    return ups_stage_names[stage];
}

const ups_training_config *ups_run_training(const ups_run_config *config, ups_stage stage) {
    if (stage == UPS_STAGE_AUTOENCODER) return &config->autoencoder.training;
    if (stage == UPS_STAGE_OPERATOR) return &config->op.training;
    return NULL;
}

static const char *const autoencoder_losses[UPS_MAX_LOSSES] = {
    [UPS_AUTOENCODER_INVERSE_DECODING] = "inverse_decoding",
    [UPS_AUTOENCODER_RELATIVE] = "relative",
    [UPS_AUTOENCODER_INVERSE_ENCODING] = "inverse_encoding",
    [UPS_AUTOENCODER_LATENT_NORM] = "latent_norm",
    [UPS_AUTOENCODER_LATENT_DIVERSITY] = "latent_diversity",
    [UPS_AUTOENCODER_ROUNDED] = "rounded",
    [UPS_AUTOENCODER_BETWEEN] = "between",
};
static const char *const operator_losses[UPS_MAX_LOSSES] = {
    [UPS_OPERATOR_ONE_STEP] = "one_step",
    [UPS_OPERATOR_RELATIVE] = "relative",
    [UPS_OPERATOR_ROLLOUT] = "rollout",
    [UPS_OPERATOR_ROLLOUT_RELATIVE] = "rollout_relative",
    [UPS_OPERATOR_SEMIGROUP] = "semigroup",
    [UPS_OPERATOR_DECODED] = "decoded",
    [UPS_OPERATOR_ROLLOUT_DECODED] = "rollout_decoded",
    [UPS_OPERATOR_SPECTRAL] = "spectral",
    [UPS_OPERATOR_CONSERVATION] = "conservation",
    [UPS_OPERATOR_POSITIVITY] = "positivity",
    [UPS_OPERATOR_DIVERGENCE] = "divergence",
    [UPS_OPERATOR_BOUNDARY] = "boundary",
};

const char *const *ups_run_loss_names(ups_stage stage) {
    if (stage == UPS_STAGE_AUTOENCODER) return autoencoder_losses;
    if (stage == UPS_STAGE_OPERATOR) return operator_losses;
    return NULL;
}

char *ups_run_find(const char *directory) {
    enum { LEVELS = 3 }; /* cache/task/split */
    char at[PATH_MAX];
    if (!realpath(directory, at)) return NULL;
    for (int level = 0; level <= LEVELS && *at; level++) {
        char *path = NULL;
        if (asprintf(&path, "%s/config.yaml", at) < 0) return NULL;
        bool there = ups_path_exists(path);
        free(path);
        if (there) return strdup(at);
        *strrchr(at, '/') = '\0';
    }
    return NULL;
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

char *ups_run_path(const ups_run_config *config, const char *format, ...) {
    char *tail = NULL, *path = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&tail, format, args);
    va_end(args);
    if (length < 0 || asprintf(&path, "%s/%s", config->output, tail) < 0) path = NULL;
    free(tail);
    return path;
}

char *ups_run_data_path(const ups_run_config *config, const char *file) {
    char *path = NULL;
    if (file[0] == '/') return strdup(file);
    return asprintf(&path, "%s/%s", config->data.root, file) < 0 ? NULL : path;
}

char *ups_run_cache_directory(const ups_run_config *config) {
    return config->cache.directory[0] ? strdup(config->cache.directory) : ups_run_path(config, "cache");
}
