/* Loading: read → tree (document.c) → overrides → struct. Each node is checked against its key's entry in the table,
 * and stored. What the file lacks is read from the default values' own YAML by the same way. */
#include "base/config/config.h"

#include "base/config/document.h"
#include "base/config/key.h"
#include "base/config/mistakes.h"
#include "base/files.h"
#include "base/nearest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t size_limit = UINT64_C(16) << 20; /* bytes of a configuration file */
enum { SHOWN_CHARACTERS = 60 };                        /* of a wrong value, in messages */

typedef struct reader {
    const ups_config_schema *schema;
    ups_arena *arena;  /* of the document */
    ups_arena *values; /* of the struct and all that it points to */
    ups_config_mistakes *mistakes;
} reader;

/* A place in the document, its name for the user ("tasks[1].name") and what belongs there. */
typedef struct spot {
    ups_yaml *node;
    const char *path;
    const ups_config_key *key;
    bool item; /* one of the key's list */
} spot;

/* "configs/x.yaml:12: train.lr", or "--set train.lr=fast" alone where that already names the key. */
static const char *place_of(const reader *r, const spot *s) {
    const char *where = s->node->where;
    size_t length = strlen(s->path);
    if (length == 0) return where;
    if (ups_yaml_is_override(s->node)) {
        const char *set = where + strlen("--set ");
        if (strncmp(set, s->path, length) == 0 && set[length] == '=') return where;
    }
    return ups_arena_printf(r->arena, "%s: %s", where, s->path);
}

/* What stands there, in the user's words: "'fast'", "a list". */
static const char *found(const reader *r, const ups_yaml *node) {
    if (node->kind == UPS_YAML_LIST) return "a list";
    if (node->kind == UPS_YAML_MAPPING) return "a mapping";
    if (ups_yaml_is_null(node)) return "no value";
    bool long_text = strlen(node->text) > SHOWN_CHARACTERS;
    char *text = ups_arena_printf(r->arena, "'%.*s%s'", SHOWN_CHARACTERS, node->text, long_text ? "…" : "");
    for (char *at = text; *at; at++) {
        if (*at == '\n') *at = ' ';
    }
    return text;
}

/* Notes a mistake and goes on: all are told at once. */
static ups_status mistake(const reader *r, const spot *s, const char *sentence) {
    ups_config_mistakes_add(r->mistakes, s->node->where, s->path, NULL, sentence);
    return UPS_ERR_CONFIG;
}

static ups_status wrong(const reader *r, const spot *s, const char *problem) {
    return mistake(r, s,
                   ups_arena_printf(r->arena, "%s: %s; %s was expected", place_of(r, s), problem,
                                    ups_config_expected(r->arena, s->key, s->item)));
}

static ups_status stands_here(const reader *r, const spot *s) {
    return wrong(r, s, ups_arena_printf(r->arena, "%s stands here", found(r, s->node)));
}

/* ---- unknown keys ---------------------------------------------------------------------------------------------- */

/* Where in all tables a key of this name stands; NULL when nowhere. */
static const char *home_of(const reader *r, const ups_config_key *keys, const char *path, const char *name) {
    if (ups_config_find_key(keys, name)) return ups_config_join(r->arena, path, name);
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type != UPS_CONFIG_SECTION) continue;
        const char *below = ups_config_join(r->arena, path, key->name);
        if (ups_config_is_list(key)) below = ups_arena_printf(r->arena, "%s[]", below);
        const char *home = home_of(r, key->keys, below, name);
        if (home) return home;
    }
    return NULL;
}

static ups_status unknown_key(const reader *r, const spot *s, const char *section, const ups_config_key *keys) {
    const char *name = s->node->key, *known = "", *place = place_of(r, s);
    ups_nearest nearest = {.word = name};
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type == UPS_CONFIG_REMOVED) continue;
        ups_nearest_try(&nearest, key->name);
        known = ups_arena_printf(r->arena, "%s%s%s", known, *known ? ", " : "", key->name);
    }
    const char *sentence, *home = nearest.name ? NULL : home_of(r, r->schema->keys, "", name);
    if (nearest.name)
        sentence = ups_arena_printf(r->arena, "%s: there is no such key; did you mean '%s'?", place, nearest.name);
    else if (home)
        sentence = ups_arena_printf(r->arena, "%s: there is no such key here; did you mean '%s'?", place, home);
    else
        sentence = ups_arena_printf(r->arena, "%s: there is no such key; the keys here are %s", place, known);
    ups_config_mistakes_add(r->mistakes, s->node->where, s->path,
                            nearest.name ? ups_config_join(r->arena, section, nearest.name) : NULL, sentence);
    return UPS_ERR_CONFIG;
}

/* ---- scalars --------------------------------------------------------------------------------------------------- */

static ups_status read_number(const reader *r, const spot *s, void *place) {
    const ups_yaml *node = s->node;
    if (s->key->word && strcmp(node->text, s->key->word) == 0) {
        memset(place, 0, ups_config_size(s->key->type));
        return UPS_OK;
    }
    const char *shown = found(r, node), *noun = ups_config_is_real(s->key->type) ? "a number" : "a whole number";
    if (node->quoted) return wrong(r, s, ups_arena_printf(r->arena, "%s in quotes is text, not %s", shown, noun));
    double number = 0;
    bool too_large, parsed = ups_config_parse_number(node->text, s->key->type, place, &number, &too_large);
    if (too_large) return wrong(r, s, ups_arena_printf(r->arena, "%s is out of range", shown));
    if (!parsed) return wrong(r, s, ups_arena_printf(r->arena, "%s is not %s", shown, noun));
    if (ups_config_in_range(s->key, number)) return UPS_OK;
    return wrong(r, s, ups_arena_printf(r->arena, "%s is out of range", node->text));
}

static ups_status read_choice(const reader *r, const spot *s, unsigned *place) {
    ups_nearest nearest = {.word = s->node->text};
    for (unsigned i = 0; s->key->choices[i]; i++) {
        const char *choice = s->key->choices[i];
        *place = i;
        if (strcmp(s->node->text, choice) == 0) return UPS_OK;
        ups_nearest_try(&nearest, choice);
    }
    const char *hint = nearest.name ? ups_arena_printf(r->arena, " (did you mean '%s'?)", nearest.name) : "";
    return wrong(r, s, ups_arena_printf(r->arena, "%s is not one of the choices%s", found(r, s->node), hint));
}

/* The folder that a document's paths begin at, absolute and without links. What comes through a pipe lies nowhere: its
 * paths begin at the working directory, as those of overrides do. */
static const char *folder_of(const reader *r, bool working) {
    char *folder = ups_arena_strdup(r->arena, r->mistakes->path), resolved[PATH_MAX];
    char *slash = strrchr(folder, '/');
    static const char *const pipes[] = {"/dev/fd/", "/dev/stdin", "/proc/"};
    bool piped = false;
    for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++) {
        piped = piped || strncmp(folder, pipes[i], strlen(pipes[i])) == 0;
    }
    if (slash) slash[slash == folder ? 1 : 0] = '\0';
    if (!realpath(slash && !working && !piped ? folder : ".", resolved)) return ".";
    return ups_arena_strdup(r->arena, resolved);
}

/* An absolute path. Steps up at its beginning are taken at once: the folder that they begin at has no links. */
static char *absolute_path(const reader *r, const spot *s) {
    const char *text = s->node->text;
    const bool stays = !text[0] && s->key->default_value && strcmp(s->key->default_value, "''") == 0;
    if (text[0] == '/' || stays) return ups_arena_strdup(r->values, text);
    char *folder = ups_arena_strdup(r->arena, folder_of(r, s->key->working || ups_yaml_is_override(s->node)));
    while (text[0] == '.' && (text[1] == '/' || text[1] == '\0' || (text[1] == '.' && (text[2] == '/' || !text[2])))) {
        char *last = text[1] == '.' ? strrchr(folder, '/') : NULL;
        if (last) last[last == folder ? 1 : 0] = '\0';
        text += text[1] == '.' ? 2 : 1;
        text += strspn(text, "/");
    }
    const char *between = !*text || folder[strlen(folder) - 1] == '/' ? "" : "/";
    return ups_arena_printf(r->values, "%s%s%s", folder, between, text);
}

static ups_status read_text(const reader *r, const spot *s, char **place) {
    const char *text = s->node->text, *shown = found(r, s->node);
    if (!ups_config_in_range(s->key, (double)strlen(text))) {
        bool is_short = (double)strlen(text) < s->key->range.minimum;
        double bound = is_short ? s->key->range.minimum : s->key->range.maximum;
        return wrong(
            r, s,
            ups_arena_printf(r->arena, "%s is %s than %.0f characters", shown, is_short ? "shorter" : "longer", bound));
    }
    const char *objection = s->key->objection ? s->key->objection(text) : NULL;
    if (objection) return mistake(r, s, ups_arena_printf(r->arena, "%s: %s %s", place_of(r, s), shown, objection));
    *place = s->key->path ? absolute_path(r, s) : ups_arena_strdup(r->values, text);
    return UPS_OK;
}

/* Written twice: what the emitter put into quotes has them from then on, so that it is printed as it is loaded. */
static ups_status read_yaml(const reader *r, const spot *s, char **place) {
    ups_error error;
    ups_status status = s->key->check ? s->key->check(s->node, place_of(r, s), &error) : UPS_OK;
    ups_yaml *again = s->node;
    char *text = NULL;
    for (int pass = 0; pass < 2 && status == UPS_OK; pass++) {
        size_t length = 0;
        free(text);
        status = ups_yaml_emit(again, &text, &length, &error);
        if (status == UPS_OK && pass == 0)
            status = ups_yaml_parse(r->arena, s->path, false, text, length, &again, &error);
    }
    if (status == UPS_OK) *place = ups_arena_strdup(r->values, text);
    free(text);
    return status == UPS_OK ? UPS_OK : mistake(r, s, ups_arena_printf(r->arena, "%s", error.message));
}

static ups_status read_scalar(const reader *r, const spot *s, void *place) {
    const ups_yaml *node = s->node;
    if (node->kind != UPS_YAML_SCALAR || ups_yaml_is_null(node)) return stands_here(r, s);
    switch (s->key->type) {
    case UPS_CONFIG_TEXT:
        return read_text(r, s, place);
    case UPS_CONFIG_CHOICE:
        return read_choice(r, s, place);
    case UPS_CONFIG_BOOL:
        if (!node->quoted && ups_config_parse_bool(node->text, place)) return UPS_OK;
        return wrong(r, s, ups_arena_printf(r->arena, "%s is neither true nor false", found(r, node)));
    default:
        return read_number(r, s, place);
    }
}

/* ---- lists and sections ---------------------------------------------------------------------------------------- */

static ups_status read_section(const reader *r, const spot *s, char *base);

static ups_status read_item(const reader *r, const spot *s, char *place) {
    if (s->key->type == UPS_CONFIG_SECTION) return read_section(r, s, place);
    return s->key->type == UPS_CONFIG_YAML ? read_yaml(r, s, (char **)(void *)place) : read_scalar(r, s, place);
}

/* "[1, 2]" of "1, 2": what an override may say without brackets. */
static ups_yaml *split_at_commas(const reader *r, const ups_yaml *node) {
    ups_yaml *list = ups_yaml_collection(r->arena, UPS_YAML_LIST, node->where);
    for (const char *at = node->text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *begin = at + strspn(at, " ");
        size_t length = strcspn(begin, ",");
        while (length > 0 && begin[length - 1] == ' ') length--;
        ups_yaml *item = ups_yaml_scalar(r->arena, ups_arena_printf(r->arena, "%.*s", (int)length, begin), false);
        item->where = node->where;
        ups_yaml_append(list, item, NULL);
    }
    return list;
}

/* A list, or a scalar in place of a list of one. */
static ups_status read_list(const reader *r, const spot *given, char *base) {
    spot list = *given, *s = &list;
    bool scalar = s->node->kind == UPS_YAML_SCALAR && !ups_yaml_is_null(s->node);
    if (scalar && s->key->type != UPS_CONFIG_SECTION && ups_yaml_is_override(s->node) && !s->node->quoted &&
        strchr(s->node->text, ',')) {
        s->node = split_at_commas(r, s->node);
    } else if (scalar && ups_config_takes_single(s->key)) {
        spot single = {s->node, s->path, s->key, true};
        unsigned one = 1;
        char *item = ups_arena_array(r->values, one, s->key->list.item_size);
        memcpy(base + s->key->offset, &item, sizeof item);
        memcpy(base + s->key->list.count_offset, &one, sizeof one);
        return read_scalar(r, &single, item);
    }
    if (s->node->kind != UPS_YAML_LIST) return stands_here(r, s);
    spot item = {.key = s->key, .item = true};
    ups_status status = UPS_OK;
    unsigned count = 0, minimum = s->key->list.minimum_items, maximum = s->key->list.maximum_items;
    for (const ups_yaml *node = s->node->first; node; node = node->next) count++;
    char *items = ups_arena_array(r->values, count, s->key->list.item_size), *at = items;
    for (item.node = s->node->first; item.node; item.node = item.node->next, at += s->key->list.item_size) {
        item.path = ups_arena_printf(r->arena, "%s[%zu]", s->path, (size_t)(at - items) / s->key->list.item_size);
        ups_status read = read_item(r, &item, at);
        if (read != UPS_OK) status = read;
    }
    if (count < minimum || (maximum > 0 && count > maximum)) {
        return wrong(r, s, ups_arena_printf(r->arena, "the list has %u item%s", count, count == 1 ? "" : "s"));
    }
    memcpy(base + s->key->offset, &items, sizeof items);
    memcpy(base + s->key->list.count_offset, &count, sizeof count);
    return status;
}

static ups_status read_key(const reader *r, const spot *s, char *base) {
    return ups_config_is_list(s->key) ? read_list(r, s, base) : read_item(r, s, base + s->key->offset);
}

/* A key's default value, or an empty section. */
static ups_status read_default(const reader *r, const spot *s, const ups_config_key *key, char *base) {
    spot child = {.path = ups_config_join(r->arena, s->path, key->name), .key = key};
    const char *where = s->node->where, *text = key->default_value;
    if (text) {
        ups_error error;
        where = ups_arena_printf(r->arena, "the default of %s", child.path);
        if (ups_yaml_parse(r->arena, where, false, text, strlen(text), &child.node, &error) != UPS_OK) {
            return mistake(r, s, error.message);
        }
    }
    if (!child.node) child.node = ups_yaml_collection(r->arena, UPS_YAML_MAPPING, where);
    return read_key(r, &child, base);
}

/* A key that the mapping at `s` lacks: its default value, or a mistake, unless another key was probably meant as it. */
static ups_status read_absent(const reader *r, const spot *s, const ups_config_key *key, char *base) {
    if (!ups_config_is_required(key)) return read_default(r, s, key, base);
    spot missing = {s->node, ups_config_join(r->arena, s->path, key->name), key, false};
    if (ups_config_mistakes_know(r->mistakes, missing.path)) return UPS_ERR_CONFIG;
    const char *help = key->help ? ups_arena_printf(r->arena, " (%s)", key->help) : "";
    return mistake(r, &missing,
                   ups_arena_printf(r->arena, "%s: the key '%s' is missing; %s was expected%s", place_of(r, s),
                                    key->name, ups_config_expected(r->arena, key, false), help));
}

/* What is wrong gives way to what checks of several keys can work with; nobody runs with it. */
static void stand_in(const reader *r, const spot *s, const ups_config_key *key, char *base) {
    if (key->type == UPS_CONFIG_SECTION) return;
    r->mistakes->muted++;
    if (!ups_config_is_required(key))
        read_default(r, s, key, base);
    else if (key->type == UPS_CONFIG_TEXT && !ups_config_is_list(key))
        *(char **)(base + key->offset) = ups_arena_strdup(r->values, "");
    else if (ups_config_is_list(key))
        memset(base + key->list.count_offset, 0, sizeof(unsigned));
    r->mistakes->muted--;
}

static ups_status read_given(const reader *r, const spot *s, ups_yaml *at, char *base) {
    spot child = {at, ups_config_join(r->arena, s->path, at->key), ups_config_find_key(s->key->keys, at->key), false};
    bool full = r->mistakes->count == UPS_CONFIG_MOST_MISTAKES;
    bool section = child.key && child.key->type == UPS_CONFIG_SECTION && !ups_config_is_list(child.key);
    if (!section && ups_yaml_is_override(at) && ups_config_mistakes_know(r->mistakes, child.path)) {
        if (child.key) stand_in(r, s, child.key, base); /* half set, by an override that is told already */
        return UPS_ERR_CONFIG;
    }
    if (!child.key) return full ? UPS_ERR_CONFIG : unknown_key(r, &child, s->path, s->key->keys);
    if (child.key->type == UPS_CONFIG_REMOVED) {
        bool harmless =
            child.key->default_value && at->kind == UPS_YAML_SCALAR && strcmp(at->text, child.key->default_value) == 0;
        if (harmless) return UPS_OK;
        return mistake(
            r, &child,
            ups_arena_printf(r->arena, "%s: this key was removed: %s", place_of(r, &child), child.key->help));
    }
    const ups_yaml *earlier = ups_yaml_child(s->node, at->key);
    if (earlier != at) {
        return mistake(r, &child,
                       ups_arena_printf(r->arena, "%s: this key is given twice; it first stands at %s",
                                        place_of(r, &child), earlier->where));
    }
    ups_status status = read_key(r, &child, base);
    if (status != UPS_OK) stand_in(r, s, child.key, base);
    return status;
}

static ups_status read_section(const reader *r, const spot *s, char *base) {
    ups_status status = UPS_OK;
    ups_yaml nothing = {.kind = UPS_YAML_MAPPING, .where = s->node->where};
    spot section = *s;
    bool null = ups_yaml_is_null(s->node), mapping = null || s->node->kind == UPS_YAML_MAPPING;
    if (!mapping) status = stands_here(r, s);
    if (null || !mapping) section.node = &nothing; /* a section whose every line may be commented out */
    if (!mapping) r->mistakes->muted++;            /* all that it lacks */
    for (ups_yaml *at = section.node->first; at; at = at->next) {
        if (read_given(r, &section, at, base) != UPS_OK) status = UPS_ERR_CONFIG;
    }
    for (const ups_config_key *key = s->key->keys; key->name; key++) {
        bool absent = key->type != UPS_CONFIG_REMOVED && !ups_yaml_child(section.node, key->name);
        if (!absent || read_absent(r, &section, key, base) == UPS_OK) continue;
        stand_in(r, &section, key, base);
        status = UPS_ERR_CONFIG;
    }
    if (!mapping) r->mistakes->muted--;
    return status;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* In front of the struct that callers see: what is freed with it. */
typedef struct header {
    _Alignas(max_align_t) ups_arena *values;
} header;

/* The document with its overrides; *root stays NULL, with a mistake noted, where it cannot be had. */
static ups_status read_document(const reader *r, const char *const *overrides, size_t override_count, const char *text,
                                size_t length, ups_yaml **root) {
    ups_error error;
    const char *path = r->mistakes->path;
    ups_status status = ups_yaml_parse(r->arena, path, true, text, length, root, &error);
    if (status == UPS_OK && (!*root || ups_yaml_is_null(*root))) {
        *root = NULL;
        status = ups_fail(&error, UPS_ERR_CONFIG, "%s: the file is empty; lines of key: value were expected", path);
    }
    if (status != UPS_OK) {
        ups_config_mistakes_add(r->mistakes, error.message, "", NULL, error.message);
        return status == UPS_ERR_MEMORY ? status : UPS_OK;
    }
    for (size_t i = 0; i < override_count; i++) {
        if (ups_yaml_set(r->arena, *root, overrides[i], &error) == UPS_OK) continue;
        const char *key = ups_arena_printf(r->arena, "%.*s", (int)strcspn(overrides[i], "="), overrides[i]);
        ups_config_mistakes_add(r->mistakes, error.message, key, NULL, error.message);
    }
    return UPS_OK;
}

static ups_status read_text_into(const reader *r, const char *const *overrides, size_t override_count, const char *text,
                                 size_t length, void **value) {
    ups_config_key all = {.keys = r->schema->keys};
    spot root = {.path = "", .key = &all};
    UPS_TRY(read_document(r, overrides, override_count, text, length, &root.node));
    if (!root.node) return UPS_OK;
    r->mistakes->root = root.node;
    header *made = ups_arena_alloc(r->values, sizeof *made + r->schema->size);
    made->values = r->values;
    read_section(r, &root, (char *)(made + 1));
    *value = made + 1;
    return UPS_OK;
}

/* The text of a document that is called `name`; *value stays NULL where there is nothing to work with. */
static ups_status read_named(const char *name, const char *text, size_t length, const ups_config_schema *schema,
                             const char *const *overrides, size_t override_count, ups_config_mistakes *mistakes,
                             void **value, ups_error *error) {
    reader r = {.schema = schema, .arena = mistakes->arena, .values = ups_arena_create(0), .mistakes = mistakes};
    ups_status status = UPS_ERR_MEMORY;
    *value = NULL;
    if (r.values) status = read_text_into(&r, overrides, override_count, text, length, value);
    if (status != UPS_OK) ups_fail(error, status, "%s: no memory to load it", name);
    if (!*value) ups_arena_destroy(r.values);
    return status;
}

ups_status ups_config_read(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, ups_config_mistakes *mistakes, void **value, ups_error *error) {
    *value = NULL;
    char *text = NULL;
    size_t length = 0;
    UPS_TRY(ups_read_file(path, size_limit, &text, &length, error));
    ups_status status = read_named(path, text, length, schema, overrides, override_count, mistakes, value, error);
    free(text);
    return status;
}

ups_status ups_config_load_text(const char *name, const char *text, size_t length, const ups_config_schema *schema,
                                const char *const *overrides, size_t override_count, void **value, ups_error *error) {
    *value = NULL;
    ups_config_mistakes *mistakes = ups_config_mistakes_create(name);
    if (!mistakes) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to load it", name);
    ups_status status = read_named(name, text, length, schema, overrides, override_count, mistakes, value, error);
    if (status == UPS_OK && mistakes->count > 0) {
        status = ups_fail(error, UPS_ERR_CONFIG, "%s", mistakes->list[0].sentence);
        ups_config_free(*value);
        *value = NULL;
    }
    ups_config_mistakes_destroy(mistakes);
    return status;
}

ups_status ups_config_load(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, void **value, ups_error *error) {
    *value = NULL;
    char *text = NULL;
    size_t length = 0;
    UPS_TRY(ups_read_file(path, size_limit, &text, &length, error));
    ups_status status = ups_config_load_text(path, text, length, schema, overrides, override_count, value, error);
    free(text);
    return status;
}

ups_status ups_config_read_text(const char *name, const char *text, size_t length, const ups_config_schema *schema,
                                ups_config_mistakes *mistakes, void **value, ups_error *error) {
    *value = NULL;
    return read_named(name, text, length, schema, NULL, 0, mistakes, value, error);
}

void ups_config_free(void *value) {
    if (value) ups_arena_destroy(((header *)value - 1)->values);
}
