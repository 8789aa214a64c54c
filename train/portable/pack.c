#include "train/portable/pack.h"

#include "base/files.h"
#include "model/parameters/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AVERAGE "ema."

static bool begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Of the tensors that are a model's, the one to take: its average, where there is one. NULL: it is none of a model. */
static const ups_safetensor *to_take(const ups_safetensors *file, const ups_safetensor *tensor, bool op) {
    const bool wanted =
        op ? begins(tensor->name, "operator.") : begins(tensor->name, "encoder.") || begins(tensor->name, "decoder.");
    char name[512];
    if (!wanted || !tensor->known_dtype || snprintf(name, sizeof name, AVERAGE "%s", tensor->name) >= (int)sizeof name)
        return NULL;
    const ups_safetensor *average = ups_safetensors_find(file, name);
    return average ? average : tensor;
}

static void declare(ups_safetensors_writer *writer, const ups_safetensors *file, bool op, ups_packed *packed) {
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        const ups_safetensor *tensor = ups_safetensors_get(file, i), *taken = to_take(file, tensor, op);
        if (!taken) continue;
        ups_safetensors_writer_declare(writer, tensor->name, taken->dtype, taken->rank, taken->size);
        int64_t elements = 1;
        for (int a = 0; a < taken->rank; a++) elements *= taken->size[a];
        packed->tensors++;
        packed->parameters += elements;
    }
}

static ups_status append(ups_safetensors_writer *writer, const ups_safetensors *file, bool op, ups_error *error) {
    ups_status status = UPS_OK;
    for (int32_t i = 0; i < ups_safetensors_count(file) && status == UPS_OK; i++) {
        const ups_safetensor *taken = to_take(file, ups_safetensors_get(file, i), op);
        if (!taken) continue;
        void *bytes = malloc(taken->bytes + 1);
        if (!bytes) return ups_fail(error, UPS_ERR_MEMORY, "no memory for tensor '%s'", taken->name);
        status = ups_safetensors_read(file, taken, bytes, error);
        if (status == UPS_OK) status = ups_safetensors_writer_append(writer, bytes, taken->bytes, error);
        free(bytes);
    }
    return status;
}

static void copy_text(ups_safetensors_writer *writer, const ups_safetensors *file, const char *key) {
    const char *text = ups_safetensors_metadata(file, key);
    if (text) ups_safetensors_writer_metadata(writer, key, text);
}

/* What both belong to, but the hash of the autoencoder's file: they are one file now. */
static void copy_origin(ups_safetensors_writer *writer, const ups_run_config *config, const ups_safetensors *op,
                        const ups_safetensors *autoencoder) {
    static const char *const parts[] = {"encoder", "decoder", "normalisation"};
    char key[128];
    copy_text(writer, op, "operator");
    for (unsigned t = 0; t < config->task_count; t++) {
        const char *task = config->tasks[t].name; /* of at most 64 letters */
        snprintf(key, sizeof key, "%s.parameters", task);
        copy_text(writer, op, key);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(key, sizeof key, "%s.%s", task, parts[i]);
            copy_text(writer, autoencoder, key);
        }
    }
}

static void tell(ups_safetensors_writer *writer, const ups_run_config *config, const json_t *told,
                 const ups_safetensors *teller) {
    const char *key;
    json_t *text;
    json_object_foreach((json_t *)told, key, text) {
        ups_safetensors_writer_metadata(writer, key, json_string_value(text));
    }
    if (told) return;
    copy_text(writer, teller, "ups.config");
    for (unsigned t = 0; t < config->task_count; t++) {
        char own[128];
        snprintf(own, sizeof own, "%s.fields", config->tasks[t].name);
        copy_text(writer, teller, own);
    }
}

static ups_status write_all(const ups_run_config *config, const ups_safetensors *op, const ups_safetensors *autoencoder,
                            const json_t *told, const ups_safetensors *teller, const char *path, ups_packed *packed,
                            ups_error *error) {
    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    if (!writer) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    declare(writer, autoencoder, false, packed);
    declare(writer, op, true, packed);
    copy_origin(writer, config, op, autoencoder);
    tell(writer, config, told, teller);
    ups_status status = ups_safetensors_writer_begin(writer, path, error);
    if (status == UPS_OK) status = append(writer, autoencoder, false, error);
    if (status == UPS_OK) status = append(writer, op, true, error);
    if (status == UPS_OK) return ups_safetensors_writer_commit(writer, error);
    ups_safetensors_writer_abandon(writer);
    return status;
}

ups_status ups_pack(const ups_run_config *config, const ups_surrogate_files *files, const json_t *told,
                    const char *teller, const char *path, ups_packed *packed, ups_error *error) {
    ups_safetensors *op = NULL, *autoencoder = NULL, *telling = NULL;
    *packed = (ups_packed){0};
    ups_status status = ups_safetensors_open(files->op, &op, error);
    if (status == UPS_OK) status = ups_safetensors_open(files->autoencoder, &autoencoder, error);
    if (status == UPS_OK && !told) status = ups_safetensors_open(teller ? teller : files->op, &telling, error);
    if (status == UPS_OK) status = write_all(config, op, autoencoder, told, telling, path, packed, error);
    ups_safetensors_close(op);
    ups_safetensors_close(autoencoder);
    ups_safetensors_close(telling);
    return status == UPS_OK ? ups_file_size(path, &packed->bytes, error) : status;
}
