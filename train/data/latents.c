#include "train/data/latents.h"

#include "base/files.h"
#include "base/hash.h"
#include "cache/codec/chunk.h"
#include "cache/store/group.h"
#include "cache/store/source.h"
#include "train/networks.h"
#include "train/state.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (1 << 20)

ups_status ups_file_hash(const char *path, char hex[33], ups_error *error) {
    int fd;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
    ups_hasher *hasher = ups_hasher_create();
    char *buffer = malloc(READ_BYTES);
    ups_status status = hasher && buffer ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    while (status == UPS_OK) {
        ssize_t got = read(fd, buffer, READ_BYTES);
        if (got < 0) status = ups_fail_errno(error, "%s: read failed", path);
        if (got <= 0) break;
        ups_hasher_update(hasher, buffer, (size_t)got);
    }
    if (hasher) ups_hash_hex(ups_hasher_finish(hasher), hex);
    free(buffer);
    close(fd);
    return status;
}

ups_status ups_run_autoencoder_hash(const ups_run_config *config, char hex[33], ups_error *error) {
    char *path = ups_run_model_path(config, UPS_STAGE_AUTOENCODER);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    if (!ups_path_exists(path)) {
        status = ups_fail(error, UPS_ERR_IO,
                          "%s: there is no trained encoder yet; run `ups train` with --stage autoencoder first", path);
    }
    if (status == UPS_OK) status = ups_file_hash(path, hex, error);
    free(path);
    return status;
}

double ups_latents_error_bound(const ups_run_config *config) {
    char digits[32]; /* what was written, not the float that is nearest */
    snprintf(digits, sizeof digits, "%.6g", (double)config->cache.max_abs_error);
    return strtod(digits, NULL);
}

json_t *ups_latents_describe_encoder(const ups_run_config *config, const ups_task *task) {
    json_t *encoder = ups_networks_describe_encoder(config, task);
    if (task->config->segment > 0) json_object_set_new(encoder, "segment", json_integer(task->config->segment));
    json_t *thin = ups_task_describe_thin(task);
    if (thin) json_object_set_new(encoder, "thin", thin);
    return encoder;
}

ups_status ups_latents_fingerprint(const ups_run_config *config, const ups_task *task, ups_split split,
                                   ups_fingerprint *fingerprint, ups_error *error) {
    UPS_TRY(ups_run_autoencoder_hash(config, fingerprint->encoder_weights, error));
    json_t *encoder = ups_latents_describe_encoder(config, task);
    json_t *normalisation = ups_networks_describe_normalisation(task);
    ups_fingerprint_json(encoder, fingerprint->encoder_configuration);
    ups_fingerprint_json(normalisation, fingerprint->normalisation);
    json_decref(encoder);
    json_decref(normalisation);
    ups_fingerprint_bound(ups_latents_error_bound(config), fingerprint->max_abs_error);
    fingerprint->device[0] = '\0'; /* any: who writes says which */
    return ups_fingerprint_source(task->source->files, task->source->file_count, task->splits.samples[split],
                                  task->splits.count[split], fingerprint->source, error);
}

/* <cache>/<task>/<split>; free with free(). NULL when out of memory. */
static char *group_directory(const ups_run_config *config, const ups_task *task, ups_split split) {
    char *cache = ups_run_cache_directory(config), *directory = NULL;
    if (cache && asprintf(&directory, "%s/%s/%s", cache, task->name, ups_split_name(split)) < 0) directory = NULL;
    free(cache);
    return directory;
}

bool ups_latents_encode(const ups_run_config *config, const ups_task *task, ups_split split) {
    if (config->data.residency != UPS_RUN_AUTO) return config->data.residency == UPS_RUN_ENCODE;
    char *directory = group_directory(config, task, split);
    if (!directory) return false;
    ups_cache_group *group = NULL;
    bool absent = !ups_path_exists(directory);
    bool partial = !absent && ups_cache_group_open(directory, &group, NULL) == UPS_OK && !group->complete;
    ups_cache_group_close(group);
    free(directory);
    return absent || partial;
}

ups_status ups_latents_open(const ups_run_config *config, const ups_task *task, ups_split split, ups_source **source,
                            ups_error *error) {
    ups_fingerprint expected = {0};
    UPS_TRY(ups_latents_fingerprint(config, task, split, &expected, error));
    char *directory = group_directory(config, task, split);
    if (!directory) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status;
    if (ups_path_exists(directory)) {
        status = ups_cache_source_open(directory, &expected, source, error);
        if (status == UPS_ERR_STALE) {
            ups_fail_within(error,
                            "the cache is not of this encoder and these data (`ups cache build --restart` builds "
                            "it anew)");
        }
    } else {
        status =
            ups_fail(error, UPS_ERR_IO,
                     "%s: there is no cache yet; run `ups cache build` on this configuration first, or train without "
                     "one (`data.residency: encode`)",
                     directory);
    }
    free(directory);
    return status;
}

ups_source_limits ups_latents_limits(const ups_run_config *config, const ups_task *task) {
    ups_chunk_codec codec = {.portable = config->cache.codec == UPS_CACHE_PORTABLE, .level = (int)config->cache.level};
    ups_latent_shape latents = ups_task_latents(config, task);
    ups_chunk_shape shape = {task->geometry.times, latents.tokens, latents.dim};
    size_t raw = ups_chunk_raw_bytes(shape);
    return (ups_source_limits){.extents = 1,
                               .stored_bytes = raw,
                               .decoded_bytes = raw,
                               .scratch_bytes = ups_chunk_scratch_bytes(codec, shape)};
}
