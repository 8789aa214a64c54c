#include "train/origin.h"

#include "model/safetensors.h"
#include "train/networks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "TASK.PART": the document as text, keys sorted, every digit of a number kept; takes the reference to `document`. */
static void tell(json_t *origin, const char *task, const char *part, json_t *document) {
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    char key[128]; /* names of tasks have at most 64 letters */
    snprintf(key, sizeof key, "%s%s%s", task, *task ? "." : "", part);
    if (text) json_object_set_new(origin, key, json_string(text));
    free(text);
    json_decref(document);
}

static json_t *tell_autoencoder(const ups_run_config *config, const ups_tasks *tasks, bool with_grid) {
    json_t *origin = json_object();
    for (int t = 0; origin && t < tasks->count; t++) {
        const ups_task *task = &tasks->task[t];
        json_t *encoder = ups_networks_describe_encoder(config, task);
        if (!with_grid) json_object_del(encoder, "grid");
        tell(origin, task->name, "encoder", encoder);
        tell(origin, task->name, "decoder", ups_networks_describe_decoder(config, task));
        tell(origin, task->name, "normalisation", ups_networks_describe_normalisation(task));
    }
    return origin;
}

json_t *ups_origin_autoencoder(const ups_run_config *config, const ups_tasks *tasks) {
    return tell_autoencoder(config, tasks, true);
}

json_t *ups_origin_autoencoder_on_any_grid(const ups_run_config *config, const ups_tasks *tasks) {
    return tell_autoencoder(config, tasks, false);
}

json_t *ups_origin_operator(const ups_run_config *config, const ups_tasks *tasks, const char *autoencoder_hash) {
    json_t *origin = json_object();
    if (!origin) return NULL;
    json_object_set_new(origin, "autoencoder", json_string(autoencoder_hash));
    tell(origin, "", "operator", ups_networks_describe_operator(config, tasks));
    return origin;
}

/* Whether all that both tell is the same. */
static bool agree(const char *found, const char *expected) {
    if (strcmp(found, expected) == 0) return true;
    json_t *theirs = json_loads(found, JSON_DECODE_ANY, NULL), *ours = json_loads(expected, JSON_DECODE_ANY, NULL);
    bool same = json_is_object(theirs) && json_is_object(ours);
    const char *key;
    json_t *value;
    json_object_foreach(ours, key, value) {
        const json_t *other = json_object_get(theirs, key);
        if (other && !json_equal(other, value)) same = false;
    }
    json_decref(theirs);
    json_decref(ours);
    return same;
}

ups_status ups_origin_check(const char *path, const json_t *expected, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    ups_status status = UPS_OK;
    const char *part;
    json_t *text;
    json_object_foreach((json_t *)expected, part, text) {
        const char *found = ups_safetensors_metadata(file, part);
        if (!found || agree(found, json_string_value(text))) continue;
        status = ups_fail(error, UPS_ERR_STALE,
                          "%s: the model was trained with another %s than this configuration and its run have; go back "
                          "to what it was trained with, or train it again",
                          path, part);
        break;
    }
    ups_safetensors_close(file);
    return status;
}
