#include "tools/report/run_table.h"

#include "base/system/terminal.h"
#include "train/config/config.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LABEL = 36, VALUE = 13, RATIO = 9 };

/* ---- configurations ---------------------------------------------------------------------------------------------- */

static bool begins_character(char c) {
    return ((unsigned char)c & 0xC0) != 0x80;
}

static int characters(const char *text) {
    int count = 0;
    for (; *text; text++) count += begins_character(*text);
    return count;
}

/* The text, cut to `most` characters where it is longer, padded to `width`. */
static void print_cut(const char *text, int most, int width) {
    const int length = characters(text);
    int shown = 0;
    for (const char *c = text; *c; c++) {
        shown += begins_character(*c);
        if (length > most && shown == most) break;
        putchar(*c);
    }
    const int printed = length > most ? most : length;
    if (length > most) printf("…");
    if (printed < width) printf("%*s", width - printed, "");
}

static const char *text_in(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The longest of a column, at most `most`. */
static int width_of(const json_t *rows, const char *key, int most) {
    size_t index;
    json_t *row;
    int width = 1;
    json_array_foreach((json_t *)rows, index, row) {
        const int length = characters(text_in(row, key));
        if (length > width) width = length;
    }
    return width < most ? width : most;
}

void ups_run_table_print_differences(const json_t *comparison) {
    enum { GAP = 2, LEAST = 12, MOST = 60 };
    static const char title[] = "configuration";
    const json_t *rows = json_object_get(comparison, "differences");
    if (!rows) return;
    if (json_array_size(rows) == 0) {
        printf("Their configurations are the same.\n\n");
        return;
    }
    const int columns = ups_terminal_columns(STDOUT_FILENO), longest = width_of(rows, "key", MOST);
    const int keys = longest > (int)strlen(title) ? longest : (int)strlen(title);
    int most = columns > 0 ? (columns - keys - 2 * GAP) / 2 : MOST;
    most = most < LEAST ? LEAST : most > MOST ? MOST : most;
    const int first = width_of(rows, "a", most);
    printf("%-*s  %-*s  B\n", keys, title, first, "A");
    size_t index;
    json_t *row;
    json_array_foreach((json_t *)rows, index, row) {
        print_cut(text_in(row, "key"), MOST, keys + GAP);
        print_cut(text_in(row, "a"), most, first + GAP);
        print_cut(text_in(row, "b"), most, 0);
        printf("\n");
    }
    printf("\n");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

typedef struct table {
    const json_t *comparison;
    bool marked; /* a ratio has a * */
} table;

/* Places of a value: a path of keys below "a", "b" and "ratio". */
enum { DEPTH = 4 };
typedef struct place {
    const char *key[DEPTH];
} place;

static const json_t *find(const json_t *of, const place *at) {
    for (int i = 0; i < DEPTH && at->key[i]; i++) of = json_object_get(of, at->key[i]);
    return of;
}

static void print_value(const json_t *number, double unit) {
    enum { WHOLE_FROM = 10000 };
    if (!json_is_number(number)) {
        printf(" %*s", VALUE, "-");
        return;
    }
    const double value = json_number_value(number) / unit;
    const bool whole = (json_is_integer(number) && unit == 1) || fabs(value) >= WHOLE_FROM;
    printf(whole ? " %*.0f" : " %*.4g", VALUE, value);
}

static void print_ratio(table *t, const json_t *ratio, bool marked) {
    if (!json_is_number(ratio)) {
        printf("\n");
        return;
    }
    printf(" %*.3g%s\n", RATIO, json_number_value(ratio), marked ? " *" : "");
    t->marked = t->marked || marked;
}

static void print_row(table *t, const char *label, const json_t *a, const json_t *b, const json_t *ratio, double unit,
                      bool marked) {
    enum { INDENT = 2 };
    if (!json_is_number(a) && !json_is_number(b)) return;
    printf("%*s", INDENT, "");
    print_cut(label, LABEL - INDENT, LABEL - INDENT);
    print_value(a, unit);
    print_value(b, unit);
    print_ratio(t, ratio, marked);
}

static void print_at(table *t, const char *label, const place *at, double unit, bool marked) {
    print_row(t, label, find(json_object_get(t->comparison, "a"), at), find(json_object_get(t->comparison, "b"), at),
              find(json_object_get(t->comparison, "ratio"), at), unit, marked);
}

/* Whether the two were measured on machines of one kind, as far as is known. */
static bool are_alike(const table *t, const char *measured) {
    const json_t *machines = json_object_get(json_object_get(t->comparison, "machines"), measured);
    return json_is_true(json_object_get(machines, "same"));
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

typedef struct stage_row {
    const char *label, *key, *within; /* `within`: an object of the stage's, or NULL */
    double unit;
    bool measured; /* depends on the machine */
} stage_row;

static const stage_row stage_rows[] = {
    {"parameters", "parameters", NULL, 1, false},
    {"windows a micro-batch", "batch_size", NULL, 1, false},
    {"steps", "steps", NULL, 1, false},
    {"training, s", "training_s", NULL, 1, true},
    {"a step, ms", "step_s", NULL, 1e-3, true},
    {"windows a second", "samples_per_s", NULL, 1, true},
    {"GFLOP/s", "flops_per_s", NULL, 1e9, true},
    {"MFU, %", "mfu", NULL, 1e-2, true},
    {"waiting for data, %", "data_wait_share", NULL, 1e-2, true},
    {"memory of the process, MB", "resident", "memory", 1e6, true},
    {"at most since it began, MB", "resident_peak", "memory", 1e6, true},
    {"memory of the card, MB", "device", "memory", 1e6, true},
    {"best validation loss", "best", NULL, 1, false},
    {"of step", "best_step", NULL, 1, false},
    {"last validation loss", "validation", NULL, 1, false},
};

static json_t *learning_of(const table *t, const char *stage) {
    size_t index;
    json_t *learning;
    json_array_foreach(json_object_get(t->comparison, "learning"), index, learning) {
        if (strcmp(text_in(learning, "stage"), stage) == 0) return learning;
    }
    return NULL;
}

/* When each had reached the same loss. */
static void print_reached(table *t, const char *stage) {
    const json_t *learning = learning_of(t, stage), *loss = json_object_get(learning, "loss");
    const json_t *a = json_object_get(learning, "a"), *b = json_object_get(learning, "b"),
                 *ratio = json_object_get(learning, "ratio");
    char label[80];
    if (!loss) return;
    snprintf(label, sizeof label, "s until validation loss %.4g", json_number_value(loss));
    print_row(t, label, json_object_get(a, "seconds"), json_object_get(b, "seconds"), json_object_get(ratio, "seconds"),
              1, !are_alike(t, stage));
    snprintf(label, sizeof label, "steps until %.4g", json_number_value(loss));
    print_row(t, label, json_object_get(a, "step"), json_object_get(b, "step"), json_object_get(ratio, "step"), 1,
              false);
}

static void print_stage(table *t, const char *stage) {
    const place whole = {{"stages", stage}};
    if (!find(json_object_get(t->comparison, "a"), &whole) && !find(json_object_get(t->comparison, "b"), &whole))
        return;
    const bool alike = are_alike(t, stage);
    printf("%s\n", stage);
    for (size_t i = 0; i < sizeof stage_rows / sizeof *stage_rows; i++) {
        const stage_row *row = &stage_rows[i];
        const place at =
            row->within ? (place){{"stages", stage, row->within, row->key}} : (place){{"stages", stage, row->key}};
        print_at(t, row->label, &at, row->unit, row->measured && !alike);
    }
    print_reached(t, stage);
}

/* ---- cache and predictions --------------------------------------------------------------------------------------- */

static void print_cache(table *t) {
    if (!json_object_get(json_object_get(t->comparison, "a"), "cache") &&
        !json_object_get(json_object_get(t->comparison, "b"), "cache"))
        return;
    printf("cache\n");
    print_at(t, "size, MB", &(place){{"cache", "bytes"}}, 1e6, false);
    print_at(t, "FP16 latents over size", &(place){{"cache", "ratio"}}, 1, false);
}

/* A row for each task that one of them has a number of. */
static void print_tasks(table *t, const char *title, const char *key, double unit, bool marked) {
    const json_t *a = json_object_get(json_object_get(t->comparison, "a"), "tasks"),
                 *b = json_object_get(json_object_get(t->comparison, "b"), "tasks");
    bool titled = false;
    const char *task;
    json_t *of_a;
    json_object_foreach((json_t *)a, task, of_a) {
        if (!json_object_get(of_a, key) || !json_object_get(b, task)) continue;
        if (!titled) printf("%s\n", title);
        titled = true;
        print_at(t, task, &(place){{"tasks", task, key}}, unit, marked);
    }
}

/* ---- what there is to say below ---------------------------------------------------------------------------------- */

static void print_machine(const char *side, const json_t *machines) {
    size_t index;
    json_t *machine;
    if (!machines) printf("    %s: not recorded\n", side);
    json_array_foreach((json_t *)machines, index, machine) {
        printf("    %s: %s\n", side, json_string_value(machine));
    }
}

static bool is_told(const json_t *machines) {
    return !json_is_true(json_object_get(machines, "same")) &&
           (json_object_get(machines, "a") || json_object_get(machines, "b"));
}

/* Once for all that was measured on the same two. */
static void print_machines(const table *t) {
    json_t *all = json_object_get(t->comparison, "machines"), *machines, *others;
    const char *measured, *other;
    printf("\n* The machines differ, or one is not recorded: the ratio may come from that.\n");
    json_object_foreach(all, measured, machines) {
        bool before = false, first = true;
        json_object_foreach(all, other, others) {
            if (!is_told(machines) || before || !json_equal(machines, others)) continue;
            before = first && strcmp(other, measured) != 0;
            if (!before) printf("%s%s", first ? "  " : ", ", other);
            first = false;
        }
        if (first || before) continue;
        printf("\n");
        print_machine("A", json_object_get(machines, "a"));
        print_machine("B", json_object_get(machines, "b"));
    }
}

static void print_reasons(const table *t) {
    size_t index;
    json_t *learning;
    bool any = false;
    json_array_foreach(json_object_get(t->comparison, "learning"), index, learning) {
        const char *reason = json_string_value(json_object_get(learning, "reason"));
        if (!reason) continue;
        if (!any) printf("\n");
        any = true;
        printf(json_is_true(json_object_get(learning, "comparable"))
                   ? "%s: no time until the same loss: %s\n"
                   : "%s: validation losses are not held against each other:\n  %s\n",
               text_in(learning, "stage"), reason);
    }
}

void ups_run_table_print(const json_t *comparison) {
    table t = {.comparison = comparison};
    const json_t *a = json_object_get(comparison, "a"), *b = json_object_get(comparison, "b");
    if (json_object_size(a) == 0 && json_object_size(b) == 0) return;
    printf("\n%-*s %*s %*s %*s\n", LABEL, "", VALUE, "A", VALUE, "B", RATIO, "B / A");
    for (int s = 0; s < UPS_STAGE_COUNT; s++) print_stage(&t, ups_stage_name((ups_stage)s));
    print_cache(&t);
    print_tasks(&t, "latents: numbers a frame", "latents_per_frame", 1, false);
    print_tasks(&t, "prediction: ms a frame", "frame_seconds", 1e-3, !are_alike(&t, "evaluation"));
    if (t.marked) print_machines(&t);
    print_reasons(&t);
}
