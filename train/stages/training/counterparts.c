/* Where the counterparts of parameters lie; see the header. */
#include "train/stages/training/counterparts.h"
#include "train/portable/described.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

int ups_counterparts_owner(const ups_counterparts *c, const ups_parameter *parameter) {
    const char *dot = strchr(parameter->name, '.');
    for (int t = 0; t < c->tasks->count && dot; t++) {
        const char *task = c->tasks->task[t].name;
        const size_t length = strlen(task);
        if (strncmp(dot + 1, task, length) == 0 && dot[1 + length] == '.') return t;
    }
    return -1;
}

int64_t ups_counterparts_task(const ups_counterparts *c, const char *task) {
    size_t index;
    json_t *name;
    json_array_foreach(c->names, index, name) {
        if (json_is_string(name) && strcmp(json_string_value(name), task) == 0) return (int64_t)index;
    }
    return -1;
}

static const ups_safetensor *find_stored(const ups_counterparts *c, const char *name) {
    char average[520];
    snprintf(average, sizeof average, "ema.%s", name);
    const ups_safetensor *tensor = ups_safetensors_find(c->file, average);
    return tensor ? tensor : ups_safetensors_find(c->file, name);
}

/* operator.TASK.blocks.…: where the name goes on behind TASK, with the dot; NULL: it is none of such a block. */
static const char *rest_of_own_block(const ups_parameter *parameter, const char *task) {
    static const char start[] = "operator.", block[] = ".blocks.";
    if (!task || !begins_with(parameter->name, start)) return NULL;
    const char *rest = parameter->name + sizeof start - 1 + strlen(task);
    return begins_with(rest, block) ? rest : NULL;
}

/* convolution.2d.weight, position1d.weight */
static bool is_of_grid_axes(const char *name) {
    for (const char *p = strpbrk(name, "123"); p; p = strpbrk(p + 1, "123"))
        if (p[1] == 'd' && (p[2] == '.' || p[2] == '\0')) return true;
    return false;
}

static bool holds_any(const ups_counterparts *c, const char *start) {
    for (int32_t i = 0; i < ups_safetensors_count(c->file); i++)
        if (begins_with(ups_safetensors_get(c->file, i)->name, start)) return true;
    return false;
}

/* How many numbers of the task's own blocks the file holds under another task's name, by parts of a block such as
 * .blocks.1.mlp.: a part that is damaged is there. */
static int64_t count_held(const ups_counterparts *c, const ups_task *task, const char *other) {
    int64_t held = 0;
    for (int32_t i = 0; i < ups_parameters_count(c->parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(c->parameters, i);
        const char *rest = rest_of_own_block(parameter, task->name);
        if (!rest) continue;
        const char *part = strchr(rest + strlen(".blocks."), '.'), *end = part ? strchr(part + 1, '.') : NULL;
        const int length = end && !is_of_grid_axes(rest) ? (int)(end + 1 - rest) : (int)strlen(rest);
        char start[512];
        snprintf(start, sizeof start, "operator.%s%.*s", other, length, rest);
        held += holds_any(c, start) ? parameter->elements : 0;
    }
    return held;
}

/* What speaks for a task of the file whose blocks have as much: first as many axes, then the same borders, then as many
 * fields. */
static int likeness(const json_t *fields, const ups_task *task) {
    const ups_sample *geometry = &task->geometry;
    const bool points = json_object_get(fields, "points") != NULL;
    return 4 * ((int)json_array_size(json_object_get(fields, "grid")) == geometry->dims &&
                points == (geometry->points != NULL)) +
           2 * (json_is_true(json_object_get(fields, "periodic")) == geometry->periodic) +
           ((int64_t)json_array_size(json_object_get(fields, "channels")) == geometry->channels);
}

/* The first of those that a new task is most like. NULL: no task of the file has such blocks of its own; or the task is
 * among them, and what is missing there is missing. */
static const char *find_like(const ups_counterparts *c, const ups_task *task) {
    const char *found = NULL;
    int64_t most = 0;
    int much = 0;
    size_t index;
    json_t *name;
    if (ups_counterparts_task(c, task->name) >= 0) return NULL;
    json_array_foreach(c->names, index, name) {
        const int64_t held = json_is_string(name) ? count_held(c, task, json_string_value(name)) : 0;
        json_t *fields = held > 0 ? ups_described_fields(c->file, json_string_value(name)) : NULL;
        const int like = fields ? likeness(fields, task) : 0;
        json_decref(fields);
        if (held < most || held == 0 || (held == most && like <= much)) continue;
        most = held;
        much = like;
        found = json_string_value(name);
    }
    return found;
}

/* Where a parameter of the operator may be found in the file, best first: names up to the part that all have in common,
 * which begins at *rest. How many there are. */
static int places_of(const ups_counterparts *c, const ups_parameter *parameter, const char **rest,
                     char places[3][160]) {
    const int task = ups_counterparts_owner(c, parameter);
    const char *own = task < 0 ? NULL : c->tasks->task[task].name;
    int count = 0;
    *rest = own ? rest_of_own_block(parameter, own) : NULL;
    if (*rest) {
        snprintf(places[count++], 160, "operator.%s", own);
        snprintf(places[count++], 160, "operator");
        if (c->like[task]) snprintf(places[count++], 160, "operator.%s", c->like[task]);
    } else if (begins_with(parameter->name, "operator.")) {
        *rest = parameter->name + strlen("operator");
        snprintf(places[count++], 160, "operator");
    }
    return count;
}

const ups_safetensor *ups_counterparts_tensor(const ups_counterparts *c, const ups_parameter *parameter,
                                              bool *as_like) {
    const char *rest;
    char places[3][160], name[512];
    const int count = places_of(c, parameter, &rest, places);
    *as_like = false;
    if (count == 0) return find_stored(c, parameter->name);
    for (int p = 0; p < count; p++) {
        snprintf(name, sizeof name, "%s%s", places[p], rest);
        const ups_safetensor *tensor = find_stored(c, name);
        if (!tensor) continue;
        *as_like = p == 2;
        return tensor;
    }
    return NULL;
}

bool ups_counterparts_may_lack(const ups_counterparts *c, const ups_parameter *parameter) {
    static const char *const mixers[] = {".attention.", ".spectral."};
    const char *name = parameter->name, *rest;
    char places[3][160], start[512];
    const int count = places_of(c, parameter, &rest, places);
    if (begins_with(name, "operator.condition.boundary") || begins_with(name, "operator.condition.parameters"))
        return true;
    if (count == 0 || (count == 1 && ups_counterparts_owner(c, parameter) >= 0) || is_of_grid_axes(rest)) return true;
    for (size_t m = 0; m < sizeof mixers / sizeof *mixers; m++) {
        const char *found = begins_with(rest, ".blocks.") ? strstr(rest, mixers[m]) : NULL;
        if (!found) continue;
        bool some = false;
        for (int p = 0; p < count; p++) {
            snprintf(start, sizeof start, "%s%.*s", places[p], (int)(found - rest + (ptrdiff_t)strlen(mixers[m])),
                     rest);
            some |= holds_any(c, start);
        }
        return !some;
    }
    return false;
}

bool ups_counterparts_in_own_block(const ups_counterparts *c, const ups_parameter *parameter) {
    const int task = ups_counterparts_owner(c, parameter);
    return task >= 0 && rest_of_own_block(parameter, c->tasks->task[task].name);
}

ups_status ups_counterparts_find(const ups_tasks *tasks, const ups_parameters *parameters, const ups_safetensors *file,
                                 ups_counterparts *c, ups_error *error) {
    *c = (ups_counterparts){.tasks = tasks, .parameters = parameters, .file = file};
    c->like = calloc((size_t)tasks->count + 1, sizeof *c->like);
    if (!c->like) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const char *text = ups_safetensors_metadata(file, "operator");
    json_t *told = text ? json_loads(text, 0, NULL) : NULL;
    c->names = json_incref(json_object_get(told, "tasks"));
    json_decref(told);
    for (int t = 0; t < tasks->count; t++) c->like[t] = find_like(c, &tasks->task[t]);
    return UPS_OK;
}

void ups_counterparts_free(ups_counterparts *c) {
    json_decref(c->names);
    free(c->like);
    *c = (ups_counterparts){0};
}
