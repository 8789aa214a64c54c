/* Test data are told by their name or their folder, as in PDEBench's and The Well's files: "…_Test.hdf5",
 * "Test/….hdf5". What was made for validation is trained on, too, since a task's splits are drawn from its files. */
#include "tools/commands/config/families.h"

#include "base/log.h"
#include "pipeline/layouts/layouts.h"
#include "train/config/given.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "data/1D_Burgers_Sols_Nu0.01.hdf5" to "data/D_Burgers_Sols_Nu". */
static const char *stem_of(ups_arena *arena, const char *path) {
    char *stem = ups_arena_strdup(arena, path), *out = stem;
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const char *end = dot && dot > path ? dot : path + strlen(path);
    for (const char *at = path; at < end; at++) {
        bool number = isdigit((unsigned char)*at) || (*at == '.' && at > path && isdigit((unsigned char)at[-1]));
        bool begun = at > path && (isdigit((unsigned char)at[-1]) ||
                                   (at[-1] == '.' && at - 1 > path && isdigit((unsigned char)at[-2]))); /* "1.e-8" */
        bool exponent = begun && *at == 'e' && (at[1] == '-' || isdigit((unsigned char)at[1]));
        if (exponent && at[1] == '-') at++;
        if (!(number || exponent) || (slash && at < slash)) *out++ = *at;
    }
    *out = '\0';
    return stem;
}

/* Whether a part of a file's name tells no more than the file does: "1D", "Nu0.01", "Train". */
static bool says_little(const char *part, const ups_source *source) {
    static const char *const words[] = {"sols", "sol", "train", "test", "na", "data"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        if (strcasecmp(part, words[w]) == 0) return true;
    }
    size_t letters = strcspn(part, "0123456789"), rest = strspn(part + letters, "0123456789.e-");
    if (letters == 0 && strlen(part) <= 2) return true; /* 2D */
    if (rest == 0 || part[letters + rest]) return false;
    for (int p = 0; p < source->parameter_count; p++) {
        if (strncasecmp(part, source->parameter_names[p], letters) == 0) return true;
    }
    return strchr(part, '.') != NULL;
}

/* A task's name: letters, digits, _ and -. */
static const char *task_name(ups_arena *arena, const char *path, const ups_source *source) {
    char *base = ups_arena_strdup(arena, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    char *dot = strrchr(base, '.');
    if (dot && dot > base) *dot = '\0';
    const char *name = "";
    char *rest = NULL;
    for (char *part = strtok_r(base, "_ ", &rest); part; part = strtok_r(NULL, "_ ", &rest)) {
        if (says_little(part, source)) continue;
        char *out = part;
        for (const char *at = part; *at; at++) {
            bool plain = isalnum((unsigned char)*at) && (unsigned char)*at < 128;
            if (plain) *out++ = (char)tolower((unsigned char)*at);
            if (!plain && out > part && out[-1] != '-') *out++ = '-';
        }
        if (out > part && out[-1] == '-') out--;
        *out = '\0';
        if (!*part) continue;
        name = ups_arena_printf(arena, "%s%s%s", name, *name ? "_" : "", part);
    }
    return *name ? ups_arena_printf(arena, "%.40s", name) : "task";
}

static const char *field_names(ups_arena *arena, const ups_source *source) {
    const char *text = "";
    for (int64_t c = 0; c < source->channels; c++) {
        text = ups_arena_printf(arena, "%s%s%s", text, c ? ", " : "", source->channel_names[c]);
    }
    return text;
}

/* ---- what files are for -------------------------------------------------------------------------------------------
 */

static const char separators[] = "_-. ";

/* Whether the next word of a name begins at `at`: words are parted by marks, and by capitals as in "aTest". */
static bool begins_word(const char *name, const char *at) {
    return at == name || strchr(separators, at[-1]) || (islower((unsigned char)at[-1]) && isupper((unsigned char)*at));
}

/* The word at or behind `at`, up to `end`; its length without the digits that number it. NULL: there is none. */
static const char *next_word(const char *name, const char *at, const char *end, size_t *length) {
    while (at < end && (strchr(separators, *at) || !begins_word(name, at))) at++;
    if (at >= end) return NULL;
    const char *behind = at + 1;
    while (behind < end && !strchr(separators, *behind) && !begins_word(name, behind)) behind++;
    *length = (size_t)(behind - at);
    while (*length > 1 && isdigit((unsigned char)at[*length - 1])) (*length)--;
    return at;
}

static bool is_word(const char *word, size_t length, const char *wanted) {
    return length == strlen(wanted) && strncasecmp(word, wanted, length) == 0;
}

static ups_purpose purpose_of_word(const char *word, size_t length) {
    if (is_word(word, length, "test") || is_word(word, length, "tests")) return UPS_FOR_TESTS;
    if (is_word(word, length, "train") || is_word(word, length, "training")) return UPS_FOR_TRAINING;
    return is_word(word, length, "val") || is_word(word, length, "valid") || is_word(word, length, "validation")
               ? UPS_FOR_VALIDATION
               : UPS_FOR_ANYTHING;
}

/* By the first word from `name` to `end` that says it. */
static ups_purpose purpose_within(const char *name, const char *end) {
    ups_purpose found = UPS_FOR_ANYTHING;
    size_t length;
    for (const char *word = name; !found && (word = next_word(name, word, end, &length)); word++)
        found = purpose_of_word(word, length);
    return found;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static ups_purpose purpose_of_name(const char *path) {
    return purpose_within(base_of(path), path + strlen(path));
}

static ups_purpose purpose_of_folder(const char *path) {
    const char *slash = strrchr(path, '/'), *folder = slash;
    while (folder && folder > path && folder[-1] != '/') folder--;
    return folder ? purpose_of_word(folder, (size_t)(slash - folder)) : UPS_FOR_ANYTHING;
}

/* By its name, else by its folder where files lie in folders for several purposes. */
static ups_purpose purpose_of(const ups_survey *s, const char *path) {
    const ups_purpose named = purpose_of_name(path);
    return named || !s->by_folder ? named : purpose_of_folder(path);
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

/* The family that one file makes. */
static ups_status look_at(const ups_survey *s, char **path, ups_family *made, ups_error *error) {
    ups_source *source = NULL;
    ups_sample shape;
    json_t *text = json_string(*path); /* as YAML, JSON is UTF-8 */
    json_decref(text);
    if (!text) return ups_fail(error, UPS_ERR_FORMAT, "%s: its name is no UTF-8, as a configuration has to be", *path);
    UPS_TRY(ups_layout_open(*path, &(ups_layout_options){.mapping = s->mapping}, &source, error));
    ups_status status = ups_source_describe(source, 0, &shape, error);
    if (status == UPS_OK && shape.times < 2) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: its trajectories have a single frame; an operator needs two or more", *path);
    }
    if (status == UPS_OK) {
        *made = (ups_family){.purpose = purpose_of(s, *path),
                             .stem = stem_of(s->arena, *path),
                             .kind = ups_arena_strdup(s->arena, source->class->kind),
                             .fields = field_names(s->arena, source),
                             .name = task_name(s->arena, *path, source),
                             .shape = shape,
                             .scattered = shape.points != NULL,
                             .own_points = shape.points && shape.points->own,
                             .moving = shape.points && shape.points->moving,
                             .single = source->count == 1,
                             .longest = shape.times,
                             .samples = source->count,
                             .bytes = (double)source->count * (double)source->limits.decoded_bytes,
                             .files = path,
                             .file_count = 1};
        made->shape.points = NULL; /* they go with the source */
    }
    ups_source_close(source);
    return status;
}

/* Whether one task may have both: segments of one length can be cut from single trajectories of different ones. */
static bool are_alike(const ups_family *f, const ups_family *g) {
    const bool may_be_cut = f->single && g->single && !f->moving;
    return f->scattered == g->scattered && f->own_points == g->own_points && f->moving == g->moving &&
           strcmp(f->kind, g->kind) == 0 && strcmp(f->fields, g->fields) == 0 && f->shape.dims == g->shape.dims &&
           (f->shape.times == g->shape.times || may_be_cut) && f->shape.dtype == g->shape.dtype &&
           f->shape.order == g->shape.order &&
           (f->own_points || memcmp(f->shape.grid, g->shape.grid, sizeof f->shape.grid) == 0);
}

/* `f` has room for the files of `g`, which comes before its test data. */
static void absorb(ups_family *f, const ups_family *g) {
    for (int i = 0; i < g->file_count; i++) f->files[f->file_count++] = g->files[i];
    f->samples += g->samples;
    f->bytes += g->bytes;
    f->single = f->single && g->single;
    if (g->shape.times < f->shape.times) f->shape.times = g->shape.times;
    if (g->longest > f->longest) f->longest = g->longest;
    if (f->own_points && g->shape.grid[0] > f->shape.grid[0]) f->shape.grid[0] = g->shape.grid[0];
}

static void take_test_data(ups_family *f, const ups_family *g) {
    for (int i = 0; i < g->file_count; i++) f->files[f->file_count + f->test_count++] = g->files[i];
    f->test_samples += g->samples;
}

/* Fewer trajectories than splits are cut into segments, the last of which are held out: ten of the shortest, or twenty
 * where they are long. More trajectories are cut where their lengths differ, once at least, so that little is left over
 * of longer ones. */
static void choose_segment(ups_family *f) {
    enum { SPLITS = 3, FEW = 10, MANY = 20, LONG = 50, SHORTEST = 4, HALVED = 16 };
    const int64_t times = f->shape.times;
    f->segment = f->longest == times ? 0 : times >= HALVED ? times / 2 : times;
    if (f->samples < SPLITS && times >= FEW * SHORTEST && !f->moving)
        f->segment = times / (times / MANY >= LONG ? MANY : FEW);
}

/* How many words the names of a family have, but for what they are for; -1 where `other` lacks one of them. */
static int words_within(const ups_family *f, const ups_family *other) {
    const char *name = base_of(f->stem), *end = name + strlen(name), *others = base_of(other->stem);
    int count = 0;
    size_t length, own;
    for (const char *word = name; (word = next_word(name, word, end, &length)); word += length) {
        if (purpose_of_word(word, length)) continue;
        const char *found = others, *others_end = others + strlen(others);
        while ((found = next_word(others, found, others_end, &own)) &&
               !(own == length && strncasecmp(found, word, length) == 0))
            found += own;
        if (!found) return -1;
        count++;
    }
    return count;
}

/* Whether test data are as long as the samples of a task, or no shorter than the segments that it cuts. */
static bool are_long_enough(const ups_family *f, const ups_family *tests) {
    ups_family cut = *f;
    choose_segment(&cut);
    if (cut.segment > 0) return tests->shape.times >= cut.segment;
    return tests->shape.times == f->shape.times && tests->longest == f->longest;
}

/* The family of whose task `given` are test or validation data; NULL: of none. */
static ups_family *owner_of(const ups_survey *s, const ups_family *given) {
    ups_family *found = NULL;
    int most = -1;
    for (ups_family *f = s->families; f < s->families + s->count; f++) {
        if (f->file_count == 0 || f->purpose > UPS_FOR_TRAINING || !are_alike(f, given)) continue;
        if (given->purpose == UPS_FOR_TESTS && !are_long_enough(f, given)) continue;
        const int words = words_within(f, given);
        if (words > most) most = words, found = f;
    }
    return found;
}

/* Test data come behind all files of a family: validation data are first. */
static void give_to_owners(ups_survey *s) {
    for (ups_purpose wanted = UPS_FOR_VALIDATION; wanted <= UPS_FOR_TESTS; wanted++) {
        for (ups_family *f = s->families; f < s->families + s->count; f++) {
            if (f->file_count == 0 || f->purpose != wanted) continue;
            ups_family *owner = owner_of(s, f);
            if (!owner && wanted == UPS_FOR_TESTS)
                ups_log(UPS_LOG_WARNING,
                        "%s: test data by its name, but of no other task here: it is a task, and trained on",
                        f->files[0]);
            if (!owner) continue;
            (wanted == UPS_FOR_TESTS ? take_test_data : absorb)(owner, f);
            f->file_count = 0;
        }
    }
    int left = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->families[i].file_count > 0) s->families[left++] = s->families[i];
    }
    s->count = left;
}

/* ---- tasks --------------------------------------------------------------------------------------------------------
 */

static void make_name_unique(ups_survey *s, ups_family *made) {
    const char *name = made->name;
    int number = 1;
    for (const ups_family *f = s->families; f < made;) {
        bool taken = strcmp(f->name, made->name) == 0;
        if (taken) made->name = ups_arena_printf(s->arena, "%s_%d", name, ++number);
        f = taken ? s->families : f + 1;
    }
}

/* Patches of several points where the grid allows, by docs/performance.md: smooth lines of 64 tokens or more, planes of
 * a thousand, whose waves and patterns want small patches, and steady ones, of two frames, of some hundreds. */
static void choose_patches(ups_family *f) {
    if (f->scattered) { /* leaves of a tree: small ones, a power of two (docs/notes/points.md) */
        enum { LARGEST = 64 };
        const int64_t most = f->own_points ? UPS_MOST_OWN_LEAVES : UPS_MOST_SHARED_LEAVES;
        f->patch[0] = 1;
        while (f->patch[0] < LARGEST && f->patch[0] * most < f->shape.grid[0]) f->patch[0] *= 2;
        return;
    }
    const bool steady = f->shape.times == 2;
    const int64_t cells[] = {0, 64, steady ? 16 : 32, 8};
    const int64_t least[] = {0, 4, steady ? 4 : 2, 4}, most[] = {0, 16, 16, 8};
    const int dims = f->shape.dims;
    for (int a = 0; a < dims; a++) {
        int64_t points = f->shape.grid[a], patch = least[dims];
        while (2 * patch <= most[dims] && 2 * patch * cells[dims] <= points) patch *= 2;
        f->patch[a] = patch < points ? patch : points;
    }
}

/* A task that the model has keeps the patches that it has there. */
static void take_patches(const ups_survey *s, ups_family *f) {
    for (int a = 0; a < f->shape.dims; a++) {
        const int64_t there = ups_given_patch(s->told, f->name, (unsigned)a);
        if (there > 0) f->patch[a] = there;
    }
}

ups_status ups_survey_files(ups_survey *s, char **paths, int count, ups_error *error) {
    s->families = UPS_ARENA_ARRAY(s->arena, ups_family, count);
    for (int i = 1; i < count; i++) s->by_folder |= purpose_of_folder(paths[i]) != purpose_of_folder(paths[0]);
    for (int i = 0; i < count; i++) {
        ups_family one, *f = s->families;
        UPS_TRY(look_at(s, &paths[i], &one, error));
        while (f < s->families + s->count &&
               !(f->purpose == one.purpose && strcmp(f->stem, one.stem) == 0 && are_alike(f, &one)))
            f++;
        if (f < s->families + s->count) {
            absorb(f, &one);
        } else {
            *f = one;
            f->files = UPS_ARENA_ARRAY(s->arena, char *, count);
            f->files[0] = paths[i];
            s->count++;
        }
    }
    give_to_owners(s);
    for (ups_family *f = s->families; f < s->families + s->count; f++) {
        make_name_unique(s, f);
        choose_patches(f);
        take_patches(s, f);
        choose_segment(f);
    }
    return UPS_OK;
}

double ups_survey_bytes(const ups_survey *s) {
    double bytes = 0.0;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) bytes += f->bytes;
    return bytes;
}
