#include "base/config/schema.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const ups_config_rule *ups_config_find_rule(const ups_config_schema *schema, const char *path) {
    for (size_t i = 0; i < schema->rule_count; i++) {
        if (strcmp(schema->rules[i].path, path) == 0) return &schema->rules[i];
    }
    return NULL;
}

const cyaml_schema_field_t *ups_config_find_field(const cyaml_schema_value_t *mapping, const char *key) {
    for (const cyaml_schema_field_t *field = mapping->mapping.fields; field->key; field++) {
        if (strcmp(field->key, key) == 0) return field;
    }
    return NULL;
}

const char *ups_config_join(ups_arena *arena, const char *path, const char *key) {
    return *path ? ups_arena_printf(arena, "%s.%s", path, key) : ups_arena_strdup(arena, key);
}

bool ups_config_is_list(const cyaml_schema_value_t *value) {
    return value->type == CYAML_SEQUENCE || value->type == CYAML_SEQUENCE_FIXED;
}

/* Bounds from here on are none: they are where doubles stop telling whole numbers apart. */
static const double unbounded = 9e15;

bool ups_config_has_range(const ups_config_rule *rule) {
    return rule && (rule->minimum != 0 || rule->maximum != 0);
}

bool ups_config_in_range(const ups_config_rule *rule, double number) {
    if (!ups_config_has_range(rule)) return true;
    if (fabs(rule->minimum) < unbounded && number < rule->minimum) return false;
    return fabs(rule->maximum) >= unbounded || number <= rule->maximum;
}

const ups_config_rule *ups_config_item_rule(const ups_config_schema *schema, const ups_config_rule *list_rule,
                                            const char *item_path) {
    const ups_config_rule *own = ups_config_find_rule(schema, item_path);
    return own ? own : list_rule;
}

static const char *number_text(ups_arena *arena, const char *noun, const ups_config_rule *rule, bool is_unsigned) {
    const char *text = noun;
    if (ups_config_has_range(rule)) {
        bool below = fabs(rule->minimum) < unbounded, above = fabs(rule->maximum) < unbounded;
        if (below && above)
            text = ups_arena_printf(arena, "%s between %.10g and %.10g", noun, rule->minimum, rule->maximum);
        else if (below)
            text = ups_arena_printf(arena, "%s of at least %.10g", noun, rule->minimum);
        else if (above)
            text = ups_arena_printf(arena, "%s of at most %.10g", noun, rule->maximum);
    } else if (is_unsigned) {
        text = ups_arena_printf(arena, "%s of at least 0", noun);
    }
    return rule && rule->word ? ups_arena_printf(arena, "%s, or %s", text, rule->word) : text;
}

static const char *choices_text(ups_arena *arena, const cyaml_schema_value_t *value) {
    const char *text = "";
    for (uint32_t i = 0; i < value->enumeration.count; i++) {
        const char *between = i == 0 ? "" : i + 1 == value->enumeration.count ? " or " : ", ";
        text = ups_arena_printf(arena, "%s%s%s", text, between, value->enumeration.strings[i].str);
    }
    return text;
}

/* The plural, for "a list of …". */
static const char *items_text(ups_arena *arena, const cyaml_schema_value_t *value) {
    switch (value->type) {
    case CYAML_INT:
    case CYAML_UINT:
        return "whole numbers";
    case CYAML_FLOAT:
        return "numbers";
    case CYAML_BOOL:
        return "true or false";
    case CYAML_STRING:
        return "texts";
    case CYAML_MAPPING:
        return "mappings";
    case CYAML_SEQUENCE:
    case CYAML_SEQUENCE_FIXED:
        return "lists";
    default:
        return choices_text(arena, value);
    }
}

static const char *list_text(ups_arena *arena, const cyaml_schema_value_t *value) {
    const char *items = items_text(arena, value->sequence.entry);
    uint32_t min = value->sequence.min, max = value->sequence.max;
    if (min == max) return ups_arena_printf(arena, "a list of exactly %u %s", min, items);
    if (max == CYAML_UNLIMITED && min == 0) return ups_arena_printf(arena, "a list of %s", items);
    if (max == CYAML_UNLIMITED) return ups_arena_printf(arena, "a list of at least %u %s", min, items);
    return ups_arena_printf(arena, "a list of %u to %u %s", min, max, items);
}

const char *ups_config_expected(ups_arena *arena, const cyaml_schema_value_t *value, const ups_config_rule *rule) {
    switch (value->type) {
    case CYAML_INT:
        return number_text(arena, "a whole number", rule, false);
    case CYAML_UINT:
        return number_text(arena, "a whole number", rule, true);
    case CYAML_FLOAT:
        return number_text(arena, "a number", rule, false);
    case CYAML_BOOL:
        return "true or false";
    case CYAML_ENUM:
        return choices_text(arena, value);
    case CYAML_STRING:
        return "text";
    case CYAML_MAPPING:
        return "a mapping (indented lines of key: value)";
    case CYAML_SEQUENCE:
    case CYAML_SEQUENCE_FIXED:
        return list_text(arena, value);
    default:
        return "anything";
    }
}

bool ups_config_parse_integer(const char *text, bool is_signed, unsigned bytes, uint64_t *bits, bool *too_large) {
    *too_large = false;
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    uint64_t magnitude = strtoull(digits, NULL, 10);
    bool negative = *text == '-' && magnitude > 0;
    uint64_t largest = UINT64_MAX >> (64 - 8 * bytes);
    if (is_signed)
        largest = largest / 2 + (negative ? 1 : 0);
    else if (negative)
        largest = 0;
    *too_large = errno == ERANGE || magnitude > largest;
    *bits = negative ? 0 - magnitude : magnitude;
    return !*too_large;
}

bool ups_config_parse_real(const char *text, unsigned bytes, double *number, bool *too_large) {
    *too_large = false;
    const char *at = *text == '-' || *text == '+' ? text + 1 : text;
    size_t whole = strspn(at, "0123456789"), part = 0;
    at += whole;
    if (*at == '.') {
        part = strspn(++at, "0123456789");
        at += part;
    }
    if (whole + part == 0) return false;
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        size_t exponent = strspn(at, "0123456789");
        if (exponent == 0) return false;
        at += exponent;
    }
    if (*at) return false;
    *number = strtod(text, NULL);
    *too_large = fabs(*number) > (bytes == sizeof(float) ? FLT_MAX : DBL_MAX);
    return !*too_large;
}

bool ups_config_parse_bool(const char *text, bool *value) {
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        *value = strcasecmp(text, yes[i]) == 0;
        if (*value || strcasecmp(text, no[i]) == 0) return true;
    }
    return false;
}

static bool path_exists(const cyaml_schema_value_t *value, const char *path) {
    while (*path) {
        if (strncmp(path, "[]", 2) == 0) {
            if (!ups_config_is_list(value)) return false;
            value = value->sequence.entry;
            path += 2;
            if (*path && *path != '.' && *path != '[') return false;
        } else {
            size_t length = strcspn(path, ".[");
            if (value->type != CYAML_MAPPING || length == 0) return false;
            const cyaml_schema_field_t *field = value->mapping.fields;
            while (field->key && (strlen(field->key) != length || strncmp(field->key, path, length) != 0)) field++;
            if (!field->key) return false;
            value = &field->value;
            path += length;
        }
        if (*path == '.') path++;
    }
    return true;
}

const ups_config_rule *ups_config_stray_rule(const ups_config_schema *schema) {
    for (size_t i = 0; i < schema->rule_count; i++) {
        if (!path_exists(schema->root, schema->rules[i].path)) return &schema->rules[i];
    }
    return NULL;
}

typedef struct visitor {
    const ups_config_schema *schema;
    void (*visit)(void *context, const ups_config_key *key);
    void *context;
    ups_arena *arena;
} visitor;

static void visit_fields(const visitor *v, const cyaml_schema_value_t *mapping, const char *path) {
    for (const cyaml_schema_field_t *field = mapping->mapping.fields; field->key; field++) {
        const char *key_path = ups_config_join(v->arena, path, field->key);
        const ups_config_rule *rule = ups_config_find_rule(v->schema, key_path);
        const cyaml_schema_value_t *value = &field->value;
        bool optional = value->flags & CYAML_FLAG_OPTIONAL ||
                        (value->type == CYAML_MAPPING && !(value->flags & CYAML_FLAG_POINTER));
        ups_config_key key = {
            .path = key_path,
            .expected = ups_config_expected(v->arena, value, rule),
            .fallback = rule ? rule->fallback : NULL,
            .required = !optional && !(rule && rule->fallback),
            .help = rule && rule->help ? rule->help : "",
        };
        v->visit(v->context, &key);
        while (ups_config_is_list(value)) {
            value = value->sequence.entry;
            key_path = ups_arena_printf(v->arena, "%s[]", key_path);
        }
        if (value->type == CYAML_MAPPING) visit_fields(v, value, key_path);
    }
}

void ups_config_each_key(const ups_config_schema *schema, void (*visit)(void *context, const ups_config_key *key),
                         void *context) {
    visitor v = {.schema = schema, .visit = visit, .context = context, .arena = ups_arena_create(0)};
    if (!v.arena) return;
    visit_fields(&v, schema->root, "");
    ups_arena_destroy(v.arena);
}
