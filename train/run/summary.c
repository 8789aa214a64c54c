#include "train/run/summary.h"

#include "train/metrics.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP_SHARE = 10 /* one line in so many, at the beginning, is no steady state */ };

static bool is_of(const json_t *line, const char *stage) {
    const char *own = json_string_value(json_object_get(line, "stage"));
    return own && strcmp(own, stage) == 0;
}

/* A line of steps, not of a beginning or a validation. */
static bool is_of_training(const json_t *line, const char *stage) {
    return is_of(line, stage) && json_object_get(line, "learning_rate");
}

static double number_in(const json_t *line, const char *key) {
    const json_t *number = json_object_get(line, key);
    return json_is_number(number) ? json_number_value(number) : (double)NAN;
}

static void set_number(json_t *object, const char *key, double value) {
    if (isfinite(value)) json_object_set_new(object, key, json_real(value));
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Seconds of training until `step`, from the lines of steps; NaN where one does not tell, or none reaches so far. A
 * line is of the steps since the one before it. */
static double seconds_until(const json_t *metrics, const char *stage, double step) {
    double seconds = 0, before = 0;
    size_t index;
    json_t *line;
    json_array_foreach((json_t *)metrics, index, line) {
        if (!is_of_training(line, stage)) continue;
        const double here = number_in(line, "step");
        if (here <= before) continue; /* a run that was stopped and goes on writes a last step twice */
        if (step <= before) break;
        seconds += number_in(line, "step_s") * (fmin(here, step) - before);
        before = here;
    }
    return step <= before ? seconds : (double)NAN;
}

/* ---- steady state ------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, size_t count) {
    if (count == 0) return NAN;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Lines of training, and how many of them come before the steady state. */
static size_t count_training(const json_t *metrics, const char *stage, size_t *warm_up) {
    size_t index, count = 0;
    json_t *line;
    json_array_foreach((json_t *)metrics, index, line) {
        if (is_of_training(line, stage)) count++;
    }
    *warm_up = count > WARM_UP_SHARE ? count / WARM_UP_SHARE : count > 1;
    return count;
}

static bool add_medians(const json_t *metrics, const char *stage, json_t *summary) {
    static const char *const keys[] = {"step_s", "samples_per_s", "flops_per_s", "mfu", "data_wait_share"};
    size_t warm_up, count = count_training(metrics, stage, &warm_up);
    double *values = malloc((count + 1) * sizeof *values);
    if (!values) return false;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        size_t index, seen = 0, kept = 0;
        json_t *line;
        json_array_foreach((json_t *)metrics, index, line) {
            if (!is_of_training(line, stage) || seen++ < warm_up) continue;
            const double value = number_in(line, keys[k]);
            if (isfinite(value)) values[kept++] = value;
        }
        set_number(summary, keys[k], median_of(values, kept));
    }
    free(values);
    if (count > 0) json_object_set_new(summary, "lines", json_integer((json_int_t)(count - warm_up)));
    return true;
}

/* ---- what lines tell of ------------------------------------------------------------------------------------------ */

/* The most that a line has. */
static void note_memory(json_t *summary, const json_t *line) {
    const json_t *told = json_object_get(line, "memory");
    json_t *memory = json_object_get(summary, "memory"), *bytes;
    const char *name;
    if (json_object_size(told) == 0) return;
    if (!memory) {
        memory = json_object();
        json_object_set_new(summary, "memory", memory);
    }
    json_object_foreach((json_t *)told, name, bytes) {
        if (!json_is_integer(bytes)) continue;
        if (json_integer_value(bytes) > json_integer_value(json_object_get(memory, name)))
            json_object_set(memory, name, bytes);
    }
}

/* What a process of a run computes on stands in its first line; several processes, in all of theirs. */
static void note_machine(json_t *summary, const json_t *line) {
    const char *machine = json_string_value(json_object_get(line, "machine"));
    json_t *machines = json_object_get(summary, "machines"), *known;
    size_t index;
    if (!machine) return;
    if (!machines) {
        machines = json_array();
        json_object_set_new(summary, "machines", machines);
    }
    const json_int_t ranks = json_integer_value(json_object_get(line, "ranks"));
    json_t *text = ranks > 1 ? json_sprintf("%s, %lld processes", machine, (long long)ranks) : json_string(machine);
    json_array_foreach(machines, index, known) {
        if (text && json_equal(known, text)) {
            json_decref(text);
            return;
        }
    }
    json_array_append_new(machines, text);
}

static void copy(json_t *summary, const char *to, const json_t *line, const char *from) {
    json_t *value = json_object_get(line, from);
    if (value && !json_is_null(value)) json_object_set(summary, to, value);
}

static void note(json_t *summary, const char *stage, const json_t *line) {
    if (json_object_get(line, "precision")) {
        copy(summary, "precision", line, "precision");
        copy(summary, "parameters", line, "parameters");
        copy(summary, "batch_size", line, "batch_size");
    }
    if (is_of_training(line, stage)) {
        copy(summary, "steps", line, "step");
        note_memory(summary, line);
        note_machine(summary, line);
    }
    if (json_object_get(line, "score")) {
        if (!json_object_get(summary, "steps")) copy(summary, "steps", line, "step");
        copy(summary, "validation", line, "score");
        copy(summary, "best", line, "best");
        copy(summary, "best_step", line, "best_step");
    }
}

json_t *ups_stage_summary(const json_t *metrics, const char *stage) {
    json_t *summary = json_object(), *line;
    size_t index;
    if (!summary) return NULL;
    json_array_foreach((json_t *)metrics, index, line) {
        if (is_of(line, stage)) note(summary, stage, line);
    }
    const double steps = number_in(summary, "steps");
    if (steps > 0) set_number(summary, "training_s", seconds_until(metrics, stage, steps));
    if (!add_medians(metrics, stage, summary)) {
        json_decref(summary);
        return NULL;
    }
    return summary;
}

json_t *ups_stage_reaches(const json_t *metrics, const char *stage, double loss) {
    size_t index;
    json_t *line;
    json_array_foreach((json_t *)metrics, index, line) {
        if (!is_of(line, stage) || !(number_in(line, "score") <= loss)) continue;
        json_t *found = json_object();
        copy(found, "step", line, "step");
        copy(found, "score", line, "score");
        set_number(found, "seconds", seconds_until(metrics, stage, number_in(line, "step")));
        return found;
    }
    return NULL;
}
