#include "pipeline/layouts/suggest.h"

#include "base/config/key.h"
#include "base/printable.h"
#include "pipeline/layouts/guess.h"
#include "pipeline/pde_parameters.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct suggestion {
    ups_arena *arena;
    ups_arrays *arrays;
    ups_guess guess;
    const char *left_out; /* a group of test or validation data beside training data, or NULL */
    FILE *out;
} suggestion;

/* ---- YAML ----------------------------------------------------------------------------------------------------------
 */

/* As it stands between double quotes: what YAML does not take as it is, as JSON has it too. */
static const char *escaped(ups_arena *arena, const char *text) {
    static const char *const unwritten[][2] = {{"\"", "\\\""},
                                               {"\\", "\\\\"},
                                               {"\n", "\\n"},
                                               {"\t", "\\t"},
                                               {"\xef\xbb\xbf", "\\ufeff"},
                                               {"\xef\xbf\xbe", "\\ufffe"},
                                               {"\xef\xbf\xbf", "\\uffff"}};
    enum { COUNT = sizeof unwritten / sizeof *unwritten };
    const size_t length = strlen(text), room = UPS_PRINTABLE_ROOM * (2 * length + 1) + 1;
    char *safe = ups_arena_alloc(arena, 2 * length + 1), *to = safe, *result = ups_arena_alloc(arena, room);
    while (*text) {
        int u = 0;
        while (u < COUNT && strncmp(text, unwritten[u][0], strlen(unwritten[u][0])) != 0) u++;
        const char *from = u < COUNT ? unwritten[u][1] : text;
        const size_t bytes = u < COUNT ? strlen(from) : 1;
        memcpy(to, from, bytes);
        to += bytes;
        text += u < COUNT ? strlen(unwritten[u][0]) : 1;
    }
    ups_printable(safe, (size_t)(to - safe), result, room);
    return result;
}

/* A text as YAML takes it within { } and [ ]: plain where it cannot be mistaken. */
static const char *quoted(ups_arena *arena, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    double number, value;
    bool truth, too_large;
    bool word = isalpha((unsigned char)text[0]) || text[0] == '/' || (text[0] == '_' && !text[1]);
    if (word && text[strspn(text, plain)] == '\0' && !ups_config_parse_bool(text, &truth) &&
        strcasecmp(text, "null") != 0 && !ups_config_parse_number(text, UPS_CONFIG_DOUBLE, &value, &number, &too_large))
        return text;
    return ups_arena_printf(arena, "\"%s\"", escaped(arena, text));
}

static const char *array_text(const suggestion *s, const ups_array_outline *outline) {
    const char *name = outline->name[0] ? outline->name : "u"; /* an array without a name goes by any */
    return quoted(s->arena, ups_arena_printf(s->arena, "/%s", name));
}

static const char *shape_text(const suggestion *s, const ups_array_outline *outline) {
    const char *text = "";
    for (int axis = 0; axis < outline->rank; axis++)
        text = ups_arena_printf(s->arena, "%s%s%lld", text, axis ? ", " : "", (long long)outline->shape[axis]);
    return ups_arena_printf(s->arena, "(%s)", text);
}

/* Letters, digits, _ and -. */
static const char *task_name(const suggestion *s, const char *path) {
    char *name = ups_arena_strdup(s->arena, path);
    for (size_t length = strlen(name); length > 1 && name[length - 1] == '/';) name[--length] = '\0';
    char *slash = strrchr(name, '/');
    if (slash && slash[1]) name = slash + 1;
    char *dot = strrchr(name, '.');
    if (dot && dot > name) *dot = '\0';
    for (char *at = name; *at; at++) {
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '-') *at = '_';
    }
    if (strlen(name) > 60) name[60] = '\0';
    return name;
}

/* ---- fields --------------------------------------------------------------------------------------------------------
 */

/* {scale: …, offset: …, missing: …} by attributes that say so, where the format does not heed them by itself. */
static ups_status packing_text(const suggestion *s, const ups_array_outline *outline, const char **text,
                               ups_error *error) {
    static const struct {
        const char *key, *names[3];
    } known[] = {{"scale", {"scale_factor", "scale", NULL}},
                 {"offset", {"add_offset", "offset", NULL}},
                 {"missing", {"_FillValue", "missing_value", NULL}}};
    *text = "";
    for (int k = 0; k < 3 && !outline->unpacked; k++) {
        for (int n = 0; known[k].names[n]; n++) {
            ups_attribute attribute;
            UPS_TRY(ups_arrays_attribute(s->arrays, outline->name, known[k].names[n], s->arena, &attribute, error));
            if (!attribute.numbers || attribute.count != 1 || isnan(attribute.numbers[0])) continue;
            *text = ups_arena_printf(s->arena, "%s, %s: {attribute: %s}", *text, known[k].key, known[k].names[n]);
            break;
        }
    }
    return UPS_OK;
}

static bool has_samples(const ups_guess *guess) {
    for (int axis = 0; axis < guess->rank; axis++) {
        if (strcmp(guess->axes[axis], "sample") == 0) return true;
    }
    return false;
}

/* Whether a model has to see where points lie: each sample has its own, or they move. A file of one trajectory may be
 * one of many. */
static bool has_own_points(const ups_guess *guess) {
    return guess->places && (guess->places->rank > 2 || !has_samples(guess));
}

/* Of a field that has the name of a coordinate, which points of their own are fields by. */
static bool is_place_name(const suggestion *s, const char *name) {
    return has_own_points(&s->guess) && (strcmp(name, "x") == 0 || strcmp(name, "y") == 0 || strcmp(name, "z") == 0);
}

/* The name of a field: the last part of its array's, or all of it where two have the same. */
static const char *field_name(const suggestion *s, const ups_array_outline *outline) {
    const char *part = ups_guess_last_part(outline->name);
    int without;
    if (!*part) return "u";
    if (is_place_name(s, part)) return ups_arena_printf(s->arena, "%s_field", part);
    for (int64_t i = 0; i < s->guess.outline_count; i++) {
        const ups_array_outline *other = &s->guess.outlines[i];
        if (other == outline || strcmp(ups_guess_last_part(other->name), part) != 0 ||
            !ups_guess_is_field(&s->guess, other, &without))
            continue;
        char *whole = ups_arena_strdup(s->arena, outline->name);
        for (char *at = whole; *at; at++) {
            if (*at == '/') *at = '_';
        }
        return whole;
    }
    return part;
}

/* Those of the main array, less one. */
static const char *axes_text(const suggestion *s, int without) {
    const char *text = "";
    for (int axis = 0; axis < s->guess.rank; axis++) {
        if (axis == without) continue;
        text = ups_arena_printf(s->arena, "%s%s%s", text, *text ? ", " : "", quoted(s->arena, s->guess.axes[axis]));
    }
    return ups_arena_printf(s->arena, "[%s]", text);
}

static void describe_array(const suggestion *s, const ups_array_outline *outline) {
    fprintf(s->out, "        # %s: %s %s%s\n", *outline->name ? quoted(s->arena, outline->name) : "the array",
            shape_text(s, outline), outline->type,
            outline->unpacked && outline->integer ? ", unpacked as its attributes say" : "");
}

static ups_status write_field(const suggestion *s, const ups_array_outline *outline, int without, ups_error *error) {
    const int channel_axis = s->guess.channel_axis;
    const char *name = field_name(s, outline), *array = array_text(s, outline), *packing;
    const int64_t channels = channel_axis >= 0 && without < 0 ? outline->shape[channel_axis] : 0;
    UPS_TRY(packing_text(s, outline, &packing, error));
    describe_array(s, outline);
    if (without >= 0)
        fprintf(s->out, "        %s: {array: %s, axes: %s%s}%s\n", quoted(s->arena, name), array, axes_text(s, without),
                packing, without == channel_axis ? "" : " # the same in every frame");
    else if (channels == 0 && *packing)
        fprintf(s->out, "        %s: {array: %s%s}\n", quoted(s->arena, name), array, packing);
    else if (channels == 0)
        fprintf(s->out, "        %s: %s\n", quoted(s->arena, name), array);
    for (int64_t c = 0; c < channels; c++)
        fprintf(s->out, "        %s: {array: %s, channel: %lld%s}\n",
                quoted(s->arena, ups_arena_printf(s->arena, "%s%lld", name, (long long)c)), array, (long long)c,
                packing);
    return UPS_OK;
}

/* Where points lie, as fields. */
static void write_places(const suggestion *s) {
    static const char *const names[] = {"x", "y", "z"};
    const ups_guess *guess = &s->guess;
    const ups_array_outline *places = guess->places;
    const char *axes = "";
    for (int axis = 0; axis < places->rank - 2; axis++) {
        const int of = ups_guess_axis_of_places(guess, axis);
        axes = ups_arena_printf(s->arena, "%s%s, ", axes, of >= 0 ? quoted(s->arena, guess->axes[of]) : "_");
    }
    describe_array(s, places);
    for (int64_t c = 0; c < places->shape[places->rank - 1]; c++)
        fprintf(s->out, "        %s: {array: %s, channel: %lld, axes: [%spoint, channel]}\n", names[c],
                array_text(s, places), (long long)c, axes);
}

/* Whether another group has a field of the same name, as files with a group for each trajectory do. */
static bool is_in_several_groups(const suggestion *s) {
    const char *part = ups_guess_last_part(s->guess.main->name);
    for (int64_t i = 0; i < s->guess.outline_count; i++) {
        const ups_array_outline *other = &s->guess.outlines[i];
        int without;
        if (other != s->guess.main && strcmp(ups_guess_last_part(other->name), part) == 0 &&
            ups_guess_is_field(&s->guess, other, &without))
            return true;
    }
    return false;
}

/* Nothing says that an axis is time but its place, and it may as well count samples of a steady problem. */
static void write_steady(const suggestion *s) {
    const char *text = "";
    if (s->guess.time || has_own_points(&s->guess)) return;
    for (int axis = 0; axis < s->guess.rank; axis++) {
        const char *name = s->guess.axes[axis];
        if (strcmp(name, "sample") == 0) return;
        if (strcmp(name, "time") == 0) {
            if (strcmp(s->guess.reasons[axis], "by its place") != 0) return;
            name = "sample";
        }
        text = ups_arena_printf(s->arena, "%s%s%s", text, *text ? ", " : "", quoted(s->arena, name));
    }
    fprintf(s->out,
            "      # axes: [%s] # of a steady problem without times; the field that is sought: "
            "{array: …, solution: true}\n",
            text);
}

static ups_status write_fields(const suggestion *s, ups_error *error) {
    const ups_guess *guess = &s->guess;
    if (s->left_out)
        fprintf(s->out,
                "      # Without the group %s beside that for training: saved as a file of its own, it is what "
                "test_files names.\n",
                quoted(s->arena, s->left_out));
    if (is_in_several_groups(s))
        fprintf(s->out,
                "      # Arrays of several groups become fields. If each group is a trajectory, save one array with "
                "the samples first\n      # instead: groups are not read as samples.\n");
    fprintf(s->out, "      fields:%s\n",
            guess->channel_axis >= 0 ? " # a name for each channel: give them their own" : "");
    if (has_own_points(guess)) write_places(s);
    if (guess->main != guess->places) UPS_TRY(write_field(s, guess->main, -1, error));
    for (int64_t i = 0; i < guess->outline_count; i++) {
        const ups_array_outline *one = &guess->outlines[i];
        int without;
        if (one == guess->main || !ups_guess_is_field(guess, one, &without)) continue;
        UPS_TRY(write_field(s, one, without, error));
    }
    fprintf(s->out, "      # guesses:");
    for (int axis = 0; axis < guess->rank; axis++)
        fprintf(s->out, "%s %s (%lld) %s", axis ? "," : "", quoted(s->arena, guess->axes[axis]),
                (long long)guess->main->shape[axis], escaped(s->arena, guess->reasons[axis]));
    fprintf(s->out, "\n      axes: %s\n", axes_text(s, guess->main == guess->places ? guess->channel_axis : -1));
    write_steady(s);
    return UPS_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------------------------
 */

/* Times in an attribute: a list of them, or the step. */
static ups_status find_time_attribute(const suggestion *s, const char **text, ups_error *error) {
    static const char *const lists[] = {"t", "time", "times"};
    static const char *const steps[] = {"dt", "delta_t", "DT", "time_step", "timestep"};
    ups_attribute attribute;
    *text = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !*text; i++) {
        UPS_TRY(ups_arrays_attribute(s->arrays, "", lists[i], s->arena, &attribute, error));
        if (attribute.numbers && attribute.count > 1) *text = ups_arena_printf(s->arena, "{attribute: %s}", lists[i]);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !*text; i++) {
        UPS_TRY(ups_arrays_attribute(s->arrays, "", steps[i], s->arena, &attribute, error));
        if (attribute.numbers && attribute.count == 1)
            *text = ups_arena_printf(s->arena, "{dt: {attribute: %s}}", steps[i]);
    }
    return UPS_OK;
}

static ups_status write_time(const suggestion *s, ups_error *error) {
    const char *attribute;
    if (s->guess.time) {
        fprintf(s->out, "      time: %s\n", array_text(s, s->guess.time));
        return UPS_OK;
    }
    UPS_TRY(find_time_attribute(s, &attribute, error));
    if (attribute)
        fprintf(s->out, "      time: %s\n", attribute);
    else
        fprintf(s->out, "      # time: {dt: 1} # nothing was found; frames are counted from 0 without it\n");
    return UPS_OK;
}

static void write_coordinates(const suggestion *s) {
    int count = 0;
    for (int axis = 0; axis < s->guess.rank; axis++) {
        if (!s->guess.coordinates[axis]) continue;
        fprintf(s->out, "%s%s: %s", count++ ? ", " : "      coordinates: {", quoted(s->arena, s->guess.axes[axis]),
                array_text(s, s->guess.coordinates[axis]));
    }
    if (count) fprintf(s->out, "}\n");
}

typedef struct parameter_walk {
    const suggestion *s;
    ups_pde_parameters seen; /* which are of the equation, and each once */
} parameter_walk;

static void add_line(parameter_walk *walk, const char *name, const char *value, const char *comment) {
    const int before = walk->seen.count;
    ups_pde_parameters_add(&walk->seen, name, 0);
    if (walk->seen.count == before) return;
    if (before == 0) fprintf(walk->s->out, "      parameters:\n");
    fprintf(walk->s->out, "        %s: %s%s\n", quoted(walk->s->arena, name), value, comment);
}

/* A table's columns: give them their own names. */
static void add_columns(parameter_walk *walk, const ups_array_outline *table) {
    ups_arena *arena = walk->s->arena;
    const char *part = ups_guess_last_part(table->name);
    for (int64_t c = 0; c < table->shape[1]; c++)
        add_line(walk, ups_arena_printf(arena, "%s%lld", part, (long long)c),
                 ups_arena_printf(arena, "{array: %s, column: %lld}", array_text(walk->s, table), (long long)c), "");
}

static void take_attribute(void *context, const char *name, double number) {
    parameter_walk *walk = context;
    add_line(walk, name, ups_arena_printf(walk->s->arena, "{attribute: %s}", quoted(walk->s->arena, name)),
             ups_arena_printf(walk->s->arena, " # %g", number));
}

static ups_status write_parameters(const suggestion *s, ups_error *error) {
    parameter_walk walk = {s, {.arena = s->arena}};
    for (int64_t i = 0; i < s->guess.outline_count; i++) {
        const ups_array_outline *one = &s->guess.outlines[i];
        int without;
        if (ups_guess_is_table(&s->guess, one) && !ups_guess_is_field(&s->guess, one, &without))
            add_columns(&walk, one);
        if (!ups_guess_is_parameter(&s->guess, one)) continue;
        add_line(&walk, ups_guess_last_part(one->name), array_text(s, one),
                 one->rank && one->shape[0] > 1 ? " # one for each sample" : "");
    }
    UPS_TRY(ups_arrays_each_number(s->arrays, "", take_attribute, &walk, error));
    if (walk.seen.count == 0) fprintf(s->out, "      # parameters: {nu: 0.01} # none was found\n");
    return UPS_OK;
}

/* Arrays that no line above takes: a person may know what they are. */
static void write_unused(const suggestion *s) {
    enum { MOST = 12 };
    int64_t count = 0;
    for (int64_t i = 0; i < s->guess.outline_count; i++) {
        const ups_array_outline *one = &s->guess.outlines[i];
        bool used = one == s->guess.main || one == s->guess.time;
        int without;
        for (int axis = 0; axis < s->guess.rank; axis++) used |= one == s->guess.coordinates[axis];
        used |= ups_guess_is_field(&s->guess, one, &without) || ups_guess_is_parameter(&s->guess, one) ||
                ups_guess_is_table(&s->guess, one);
        if (used || !one->numeric) continue;
        if (count < MOST)
            fprintf(s->out, "%s%s %s", count ? ", " : "      # not used: ", array_text(s, one), shape_text(s, one));
        count++;
    }
    if (count > MOST) fprintf(s->out, " and %lld more", (long long)count - MOST);
    if (count) fprintf(s->out, "\n");
}

static void write_periodic(const suggestion *s) {
    const char *text = "";
    if (s->guess.places) return;
    for (int axis = 0; axis < s->guess.rank; axis++) {
        const char *name = s->guess.axes[axis];
        if (!strcmp(name, "sample") || !strcmp(name, "time") || !strcmp(name, "channel") || !strcmp(name, "_"))
            continue;
        text = ups_arena_printf(s->arena, "%s%s%s", text, *text ? ", " : "", quoted(s->arena, name));
    }
    fprintf(s->out, "      # periodic: [%s] # if the domain wraps around along these axes\n", text);
}

/* Patches no longer than the shortest axis of the grid. */
static int64_t patch_of(const ups_guess *guess) {
    int64_t patch = 8;
    if (has_own_points(guess)) return 1;
    if (guess->places) return guess->places->shape[guess->places->rank - 2] < patch ? 4 : patch; /* powers of two */
    for (int axis = 0; axis < guess->rank; axis++) {
        const char *name = guess->axes[axis];
        if (!strcmp(name, "sample") || !strcmp(name, "time") || !strcmp(name, "channel") || !strcmp(name, "_"))
            continue;
        if (guess->main->shape[axis] < patch) patch = guess->main->shape[axis];
    }
    return patch;
}

static ups_status write_all(const suggestion *s, const char *const *paths, int64_t count, ups_error *error) {
    fprintf(s->out, "tasks:\n  - name: %s\n    files: [", quoted(s->arena, task_name(s, paths[0])));
    for (int64_t i = 0; i < count; i++) fprintf(s->out, "%s%s", i ? ", " : "", quoted(s->arena, paths[i]));
    fprintf(s->out, "]%s\n    patch: [%lld]\n    layout:\n",
            has_samples(&s->guess) || count > 1 ? ""
                                                : " # one trajectory a file: name them all, or a pattern, \"run_*.h5\"",
            (long long)patch_of(&s->guess));
    UPS_TRY(write_fields(s, error));
    UPS_TRY(write_time(s, error));
    write_coordinates(s);
    UPS_TRY(write_parameters(s, error));
    write_periodic(s);
    write_unused(s);
    return UPS_OK;
}

static bool begins_with_any(const char *name, const char *const *groups) {
    const char *slash = strchr(name, '/');
    for (int g = 0; slash && groups[g]; g++) {
        if (strlen(groups[g]) == (size_t)(slash - name) && strncasecmp(groups[g], name, strlen(groups[g])) == 0)
            return true;
    }
    return false;
}

/* Without arrays of groups test, valid, … where a group train holds such data, too: they are no fields of its samples.
 */
static ups_array_outline *leave_out_tests(suggestion *s, const ups_array_outline *outlines, int64_t *count) {
    static const char *const training[] = {"train", "training", NULL};
    static const char *const others[] = {"test", "testing", "val", "valid", "validation", NULL};
    ups_array_outline *kept = UPS_ARENA_ARRAY(s->arena, ups_array_outline, *count + 1);
    bool trains = false;
    int64_t left = 0;
    for (int64_t i = 0; i < *count; i++) trains |= begins_with_any(outlines[i].name, training);
    for (int64_t i = 0; i < *count; i++) {
        if (trains && begins_with_any(outlines[i].name, others))
            s->left_out = ups_arena_printf(s->arena, "%.*s", (int)strcspn(outlines[i].name, "/"), outlines[i].name);
        else
            kept[left++] = outlines[i];
    }
    *count = left;
    return kept;
}

static ups_status suggest(suggestion *s, const char *const *paths, int64_t count, ups_error *error) {
    const ups_array_outline *outlines;
    int64_t outline_count;
    UPS_TRY(ups_arrays_list(s->arrays, s->arena, &outlines, &outline_count, error));
    outlines = leave_out_tests(s, outlines, &outline_count);
    ups_guess_axes(s->arena, outlines, outline_count, &s->guess);
    if (s->guess.main) return write_all(s, paths, count, error);
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s holds no array of real numbers with two axes or more; frames over time on a grid have them",
                    paths[0]);
}

ups_status ups_suggest_layout(const char *const *paths, int64_t count, char **yaml, ups_error *error) {
    suggestion s = {.arena = ups_arena_create(0)};
    size_t length = 0;
    *yaml = NULL;
    if (!s.arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to look into %s", paths[0]);
    ups_file_list files = {.arena = s.arena};
    ups_status status = ups_arrays_open(paths[0], NULL, false, &files, &s.arrays, error);
    if (status == UPS_OK && !(s.out = open_memstream(yaml, &length)))
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory to write a layout");
    if (status == UPS_OK) status = suggest(&s, paths, count, error);
    if (s.out) fclose(s.out);
    if (s.arrays && ups_arrays_check(s.arrays, status == UPS_OK ? error : NULL) != UPS_OK) status = UPS_ERR_IO;
    ups_arrays_close(s.arrays);
    ups_arena_destroy(s.arena);
    if (status == UPS_OK) return UPS_OK;
    free(*yaml);
    *yaml = NULL;
    return status;
}
