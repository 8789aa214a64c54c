/* Loading: read → tree (config_document.c) → overrides → check, and complete with defaults → text → libcyaml → struct.
 *
 * libcyaml could check the document by itself, but it says neither the line nor what would be right, takes "10x" for 10
 * and any word for true. So the tree is checked here against the very schema that libcyaml then reads it by, and handed
 * on normalised: what reaches libcyaml is right. */
#include "base/config/config.h"

#include "base/config/document.h"
#include "base/config/schema.h"
#include "base/edit_distance.h"
#include "base/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t size_limit = UINT64_C(16) << 20; /* bytes of a configuration file */
enum { SHOWN_CHARACTERS = 60 };                        /* of a wrong value, in messages */

typedef struct checker {
    const ups_config_schema *schema;
    ups_arena *arena;
    ups_error *error;
} checker;

/* A place in the document: the node, its name for the user ("tasks[1].name") and for the rules ("tasks[].name"). */
typedef struct spot {
    ups_yaml *node;
    const char *path, *rule_path;
} spot;

/* "configs/x.yaml:12: train.lr", or "--set train.lr=fast" alone where that already names the key. */
static const char *place_of(const checker *c, const spot *s) {
    static const char prefix[] = "--set ";
    const char *where = s->node->where;
    size_t length = strlen(s->path);
    if (length == 0) return where;
    if (strncmp(where, prefix, sizeof prefix - 1) == 0) {
        const char *set = where + sizeof prefix - 1;
        if (strncmp(set, s->path, length) == 0 && set[length] == '=') return where;
    }
    return ups_arena_printf(c->arena, "%s: %s", where, s->path);
}

/* What stands there, in the user's words: "'fast'", "a list". */
static const char *found(const checker *c, const ups_yaml *node) {
    if (node->kind == UPS_YAML_LIST) return "a list";
    if (node->kind == UPS_YAML_MAPPING) return "a mapping";
    if (ups_yaml_is_null(node)) return "no value";
    bool long_text = strlen(node->text) > SHOWN_CHARACTERS;
    char *text = ups_arena_printf(c->arena, "'%.*s%s'", SHOWN_CHARACTERS, node->text, long_text ? "…" : "");
    for (char *at = text; *at; at++) {
        if (*at == '\n') *at = ' ';
    }
    return text;
}

static ups_status wrong(const checker *c, const spot *s, const char *problem, const cyaml_schema_value_t *value,
                        const ups_config_rule *rule) {
    return ups_fail(c->error, UPS_ERR_CONFIG, "%s: %s; %s was expected", place_of(c, s), problem,
                    ups_config_expected(c->arena, value, rule));
}

/* A typing error changes at most two letters, and not most of a short word. */
static bool resembles(const char *written, const char *known, size_t *best) {
    size_t distance = ups_edit_distance(written, known), allowed = strlen(known) < 5 ? 1 : 2;
    if (distance > allowed || distance >= *best) return false;
    *best = distance;
    return true;
}

/* Where in the whole schema a key of this name lives; NULL when nowhere. */
static const char *home_of(const checker *c, const cyaml_schema_value_t *value, const char *path, const char *key) {
    while (ups_config_is_list(value)) {
        value = value->sequence.entry;
        path = ups_arena_printf(c->arena, "%s[]", path);
    }
    if (value->type != CYAML_MAPPING) return NULL;
    if (ups_config_find_field(value, key)) return ups_config_join(c->arena, path, key);
    for (const cyaml_schema_field_t *field = value->mapping.fields; field->key; field++) {
        const char *home = home_of(c, &field->value, ups_config_join(c->arena, path, field->key), key);
        if (home) return home;
    }
    return NULL;
}

static ups_status unknown_key(const checker *c, const spot *s, const cyaml_schema_value_t *mapping) {
    const char *key = s->node->key, *nearest = NULL, *known = "";
    size_t best = SIZE_MAX;
    for (const cyaml_schema_field_t *field = mapping->mapping.fields; field->key; field++) {
        if (resembles(key, field->key, &best)) nearest = field->key;
        known = ups_arena_printf(c->arena, "%s%s%s", known, *known ? ", " : "", field->key);
    }
    const char *place = place_of(c, s);
    if (nearest) {
        return ups_fail(c->error, UPS_ERR_CONFIG, "%s: there is no such key; did you mean '%s'?", place, nearest);
    }
    const char *home = home_of(c, c->schema->root, "", key);
    if (home) {
        return ups_fail(c->error, UPS_ERR_CONFIG, "%s: there is no such key here; did you mean '%s'?", place, home);
    }
    return ups_fail(c->error, UPS_ERR_CONFIG, "%s: there is no such key; the keys here are %s", place, known);
}

static ups_status check(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                        const ups_config_rule *rule);

static ups_status check_range(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                              const ups_config_rule *rule, double number) {
    if (ups_config_in_range(rule, number)) return UPS_OK;
    return wrong(c, s, ups_arena_printf(c->arena, "%s is out of range", s->node->text), value, rule);
}

static ups_status check_number(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                               const ups_config_rule *rule) {
    ups_yaml *node = s->node;
    if (rule && rule->word && strcmp(node->text, rule->word) == 0) {
        node->text = ups_arena_printf(c->arena, "%" PRId64, rule->word_value);
        return UPS_OK;
    }
    const char *shown = found(c, node);
    const char *noun = value->type == CYAML_FLOAT ? "a number" : "a whole number";
    if (node->quoted) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s in quotes is text, not %s", shown, noun), value, rule);
    }
    bool too_large = false, parsed;
    uint64_t bits = 0;
    double number = 0;
    if (value->type == CYAML_FLOAT) {
        parsed = ups_config_parse_real(node->text, value->data_size, &number, &too_large);
    } else {
        parsed = ups_config_parse_integer(node->text, value->type == CYAML_INT, value->data_size, &bits, &too_large);
        number = value->type == CYAML_INT ? (double)(int64_t)bits : (double)bits;
    }
    if (too_large) return wrong(c, s, ups_arena_printf(c->arena, "%s is out of range", shown), value, rule);
    if (!parsed) return wrong(c, s, ups_arena_printf(c->arena, "%s is not %s", shown, noun), value, rule);
    UPS_TRY(check_range(c, s, value, rule, number));
    /* plain decimal for libcyaml, which would read 010 as eight */
    if (value->type == CYAML_INT) node->text = ups_arena_printf(c->arena, "%" PRId64, (int64_t)bits);
    if (value->type == CYAML_UINT) node->text = ups_arena_printf(c->arena, "%" PRIu64, bits);
    return UPS_OK;
}

static ups_status check_choice(const checker *c, const spot *s, const cyaml_schema_value_t *value) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (uint32_t i = 0; i < value->enumeration.count; i++) {
        const char *choice = value->enumeration.strings[i].str;
        if (strcmp(s->node->text, choice) == 0) return UPS_OK;
        if (resembles(s->node->text, choice, &best)) nearest = choice;
    }
    const char *hint = nearest ? ups_arena_printf(c->arena, " (did you mean '%s'?)", nearest) : "";
    return wrong(c, s, ups_arena_printf(c->arena, "%s is not one of the choices%s", found(c, s->node), hint), value,
                 NULL);
}

static ups_status check_scalar(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                               const ups_config_rule *rule) {
    ups_yaml *node = s->node;
    const char *shown = found(c, node);
    if (node->kind != UPS_YAML_SCALAR || ups_yaml_is_null(node)) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s stands here", shown), value, rule);
    }
    switch (value->type) {
    case CYAML_INT:
    case CYAML_UINT:
    case CYAML_FLOAT:
        return check_number(c, s, value, rule);
    case CYAML_ENUM:
        return check_choice(c, s, value);
    case CYAML_BOOL: {
        bool truth;
        if (node->quoted || !ups_config_parse_bool(node->text, &truth)) {
            return wrong(c, s, ups_arena_printf(c->arena, "%s is neither true nor false", shown), value, rule);
        }
        node->text = truth ? "true" : "false";
        return UPS_OK;
    }
    default:
        break;
    }
    size_t length = strlen(node->text);
    uint32_t min = value->string.min, max = value->string.max;
    if (length < min) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s is shorter than %u characters", shown, min), value, rule);
    }
    if (length > max) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s is longer than %u characters", shown, max), value, rule);
    }
    const char *objection = rule && rule->objection ? rule->objection(node->text) : NULL;
    if (objection) return ups_fail(c->error, UPS_ERR_CONFIG, "%s: %s %s", place_of(c, s), shown, objection);
    return UPS_OK;
}

static ups_status check_list(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                             const ups_config_rule *rule) {
    if (s->node->kind != UPS_YAML_LIST) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s stands here", found(c, s->node)), value, rule);
    }
    spot item = {.rule_path = ups_arena_printf(c->arena, "%s[]", s->rule_path)};
    const ups_config_rule *item_rule = ups_config_item_rule(c->schema, rule, item.rule_path);
    uint32_t count = 0;
    for (item.node = s->node->first; item.node; item.node = item.node->next) {
        item.path = ups_arena_printf(c->arena, "%s[%u]", s->path, count++);
        UPS_TRY(check(c, &item, value->sequence.entry, item_rule));
    }
    if (count < value->sequence.min || count > value->sequence.max) {
        return wrong(c, s, ups_arena_printf(c->arena, "the list has %u item%s", count, count == 1 ? "" : "s"), value,
                     rule);
    }
    return UPS_OK;
}

/* A key that the mapping at `s` lacks: its default, an empty mapping, nothing, or a mistake. */
static ups_status complete(const checker *c, const spot *s, const cyaml_schema_field_t *field) {
    const cyaml_schema_value_t *value = &field->value;
    spot child = {.path = ups_config_join(c->arena, s->path, field->key),
                  .rule_path = ups_config_join(c->arena, s->rule_path, field->key)};
    const ups_config_rule *rule = ups_config_find_rule(c->schema, child.rule_path);
    if (rule && rule->fallback) {
        const char *name = ups_arena_printf(c->arena, "the default of %s", child.rule_path);
        UPS_TRY(ups_yaml_parse(c->arena, name, false, rule->fallback, strlen(rule->fallback), &child.node, c->error));
        if (!child.node) child.node = ups_yaml_scalar(c->arena, "", false);
        child.node->where = name;
    } else if (value->type == CYAML_MAPPING && !(value->flags & CYAML_FLAG_POINTER)) {
        child.node = ups_yaml_collection(c->arena, UPS_YAML_MAPPING, s->node->where);
    } else if (value->flags & CYAML_FLAG_OPTIONAL || value->type == CYAML_IGNORE) {
        return UPS_OK;
    } else {
        const char *help = rule && rule->help ? ups_arena_printf(c->arena, " (%s)", rule->help) : "";
        return ups_fail(c->error, UPS_ERR_CONFIG, "%s: the key '%s' is missing; %s was expected%s", place_of(c, s),
                        field->key, ups_config_expected(c->arena, value, rule), help);
    }
    ups_yaml_append(s->node, child.node, field->key);
    return check(c, &child, value, rule);
}

static ups_status check_mapping(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                                const ups_config_rule *rule) {
    ups_yaml *node = s->node;
    if (ups_yaml_is_null(node)) { /* a section whose every line is commented out */
        node->kind = UPS_YAML_MAPPING;
        node->first = node->last = NULL;
    }
    if (node->kind != UPS_YAML_MAPPING) {
        return wrong(c, s, ups_arena_printf(c->arena, "%s stands here", found(c, node)), value, rule);
    }
    spot child;
    for (child.node = node->first; child.node; child.node = child.node->next) {
        const char *key = child.node->key;
        child.path = ups_config_join(c->arena, s->path, key);
        child.rule_path = ups_config_join(c->arena, s->rule_path, key);
        const cyaml_schema_field_t *field = ups_config_find_field(value, key);
        if (!field) return unknown_key(c, &child, value);
        const ups_yaml *earlier = ups_yaml_child(node, key);
        if (earlier != child.node) {
            return ups_fail(c->error, UPS_ERR_CONFIG, "%s: this key is given twice; it first stands at %s",
                            place_of(c, &child), earlier->where);
        }
        UPS_TRY(check(c, &child, &field->value, ups_config_find_rule(c->schema, child.rule_path)));
    }
    for (const cyaml_schema_field_t *field = value->mapping.fields; field->key; field++) {
        if (!ups_yaml_child(node, field->key)) UPS_TRY(complete(c, s, field));
    }
    return UPS_OK;
}

/* Checks the node against its schema and rule, completes it with defaults, and normalises its scalars for libcyaml. */
static ups_status check(const checker *c, const spot *s, const cyaml_schema_value_t *value,
                        const ups_config_rule *rule) {
    bool nullable = (value->flags & CYAML_FLAG_POINTER_NULL) == CYAML_FLAG_POINTER_NULL;
    if (nullable && ups_yaml_is_null(s->node)) {
        s->node->text = ""; /* the spelling of NULL that libcyaml always takes */
        return UPS_OK;
    }
    switch (value->type) {
    case CYAML_IGNORE:
        return UPS_OK;
    case CYAML_MAPPING:
        return check_mapping(c, s, value, rule);
    case CYAML_SEQUENCE:
    case CYAML_SEQUENCE_FIXED:
        return check_list(c, s, value, rule);
    case CYAML_INT:
    case CYAML_UINT:
    case CYAML_BOOL:
    case CYAML_ENUM:
    case CYAML_FLOAT:
    case CYAML_STRING:
        return check_scalar(c, s, value, rule);
    default:
        break;
    }
    return ups_fail(c->error, UPS_ERR_UNSUPPORTED, "%s: the schema gives this key a type that is not supported",
                    place_of(c, s));
}

/* libcyaml's own complaint, should it have one after all. */
typedef struct complaint {
    char text[300];
} complaint;

static void keep_complaint(cyaml_log_t level, void *context, const char *format, va_list args) {
    complaint *kept = context;
    if (kept->text[0] == '\0') vsnprintf(kept->text, sizeof kept->text, format, args); /* the first is the cause */
}

static ups_status fill_struct(const checker *c, const char *path, const ups_yaml *root, void **value) {
    char *text = NULL;
    size_t length = 0;
    UPS_TRY(ups_yaml_emit(root, &text, &length, c->error));
    complaint kept = {.text = ""};
    const cyaml_config_t config = {.log_fn = keep_complaint,
                                   .log_ctx = &kept,
                                   .log_level = CYAML_LOG_ERROR,
                                   .mem_fn = cyaml_mem,
                                   .flags = CYAML_CFG_DEFAULT};
    cyaml_err_t result =
        cyaml_load_data((const uint8_t *)text, length, &config, c->schema->root, (cyaml_data_t **)value, NULL);
    free(text);
    if (result == CYAML_OK) return UPS_OK;
    *value = NULL;
    if (result == CYAML_ERR_OOM) return ups_fail(c->error, UPS_ERR_MEMORY, "%s: no memory to load it", path);
    kept.text[strcspn(kept.text, "\n")] = '\0';
    return ups_fail(c->error, UPS_ERR_CONFIG, "%s: libcyaml refuses it: %s (%s)", path, cyaml_strerror(result),
                    kept.text);
}

static ups_status load(const checker *c, const char *path, const char *const *overrides, size_t override_count,
                       const char *text, size_t length, void **value) {
    const ups_config_rule *stray = ups_config_stray_rule(c->schema);
    if (stray) {
        return ups_fail(c->error, UPS_ERR_ARGUMENT, "the rule for '%s' belongs to no key of the schema", stray->path);
    }
    spot root = {.path = "", .rule_path = ""};
    UPS_TRY(ups_yaml_parse(c->arena, path, true, text, length, &root.node, c->error));
    if (!root.node || ups_yaml_is_null(root.node)) {
        return ups_fail(c->error, UPS_ERR_CONFIG, "%s: the file is empty; lines of key: value were expected", path);
    }
    for (size_t i = 0; i < override_count; i++) UPS_TRY(ups_yaml_set(c->arena, root.node, overrides[i], c->error));
    UPS_TRY(check(c, &root, c->schema->root, NULL));
    return fill_struct(c, path, root.node, value);
}

ups_status ups_config_load(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, void **value, ups_error *error) {
    *value = NULL;
    char *text = NULL;
    size_t length = 0;
    UPS_TRY(ups_read_file(path, size_limit, &text, &length, error));
    checker c = {.schema = schema, .arena = ups_arena_create(0), .error = error};
    ups_status status = c.arena ? load(&c, path, overrides, override_count, text, length, value)
                                : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to load it", path);
    ups_arena_destroy(c.arena);
    free(text);
    return status;
}

void ups_config_free(const ups_config_schema *schema, void *value) {
    if (!value) return;
    const cyaml_config_t config = {.mem_fn = cyaml_mem, .log_level = CYAML_LOG_ERROR};
    cyaml_free(&config, schema->root, value, 0);
}
