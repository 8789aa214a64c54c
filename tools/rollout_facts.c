#include "tools/rollout_facts.h"

#include "pipeline/layouts/layouts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *ups_rollout_boundary(const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                 const ups_rollout *rollout) {
    if (rollout->sample.periodic) return "periodic";
    const char *text = ups_layout_boundary(rollouts->task->source, origin->samples[rollout->position]);
    return strcasecmp(text, "periodic") == 0 ? "not periodic" : text;
}

double *ups_rollout_coordinates(const ups_rollouts *rollouts, int axis) {
    double *values = malloc((size_t)rollouts->grid[axis] * sizeof *values);
    for (int64_t i = 0; values && i < rollouts->grid[axis]; i++) values[i] = ups_rollouts_coordinate(rollouts, axis, i);
    return values;
}

/* "a, b, c": names of the fields, or of the samples that were rolled out. Free with free(). */
static char *join(const ups_rollouts *rollouts, bool samples) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    int64_t count = samples ? rollouts->count : rollouts->task->geometry.channels;
    for (int64_t i = 0; i < count; i++) {
        const char *name = samples ? rollouts->list[i].sample.name : rollouts->task->source->channel_names[i];
        fprintf(out, "%s%s", i ? ", " : "", name);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

bool ups_rollout_tell(const ups_rollouts *rollouts, const ups_rollout_origin *origin, ups_rollout_write_fact write,
                      void *context) {
    char *fields = join(rollouts, false), *samples = join(rollouts, true), given[24];
    snprintf(given, sizeof given, "%lld", (long long)rollouts->given);
    const struct {
        const char *name, *text;
    } facts[] = {
        {"ups.task", rollouts->task->name},
        {"ups.fields", fields},
        {"ups.split", origin->split},
        {"ups.samples", samples},
        {"ups.given", given},
        {"ups.autoencoder", origin->files->autoencoder_hash},
        {"ups.operator", origin->files->operator_hash},
        {"ups.config", origin->config},
        {"ups.training_run", json_string_value(json_object_get(origin->training, "run"))},
        {"ups.training_config", json_string_value(json_object_get(origin->training, "config"))},
    };
    bool fine = fields && samples;
    for (size_t i = 0; i < sizeof facts / sizeof *facts && fine; i++) /* of a model that lies in no run, less */
        fine = !facts[i].text || write(context, facts[i].name, facts[i].text);
    free(fields);
    free(samples);
    return fine;
}
