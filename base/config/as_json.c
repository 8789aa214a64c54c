#include "base/config/as_json.h"

#include "base/config/document.h"
#include "base/config/key.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------------------------- */

static json_t *keys_as_json(const ups_config_key *keys, const char *base);

/* The shortest double that is the same float: 0.1f is 0.1. */
static double shortest(float value) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return strtod(text, NULL);
}

/* Of YAML that was loaded: numbers and truths as such, where they are not quoted. */
static json_t *node_as_json(const ups_yaml *node) {
    double number;
    int64_t whole;
    bool truth, too_large;
    if (node->kind == UPS_YAML_SCALAR) {
        if (!node->quoted && ups_yaml_is_null(node)) return json_null();
        if (!node->quoted && ups_config_parse_bool(node->text, &truth)) return json_boolean(truth);
        if (!node->quoted && ups_config_parse_number(node->text, UPS_CONFIG_INT64, &whole, &number, &too_large))
            return json_integer(whole);
        if (!node->quoted && ups_config_parse_number(node->text, UPS_CONFIG_DOUBLE, &number, &number, &too_large))
            return json_real(number);
        return json_string(node->text);
    }
    bool list = node->kind == UPS_YAML_LIST;
    json_t *made = list ? json_array() : json_object();
    for (const ups_yaml *child = node->first; child; child = child->next) {
        if (list)
            json_array_append_new(made, node_as_json(child));
        else
            json_object_set_new(made, child->key, node_as_json(child));
    }
    return made;
}

static json_t *yaml_as_json(const char *text) {
    ups_arena *arena = ups_arena_create(0);
    ups_yaml *node = NULL;
    if (arena) ups_yaml_parse(arena, "", false, text, strlen(text), &node, NULL);
    json_t *made = node ? node_as_json(node) : json_null();
    ups_arena_destroy(arena);
    return made;
}

static json_t *scalar_as_json(const ups_config_key *key, const void *place) {
    if (key->type == UPS_CONFIG_YAML) return yaml_as_json(*(char *const *)place);
    const char *word = ups_config_word_at(key, place);
    if (word) return json_string(word);
    switch (key->type) {
    case UPS_CONFIG_SECTION:
        return keys_as_json(key->keys, place);
    case UPS_CONFIG_BOOL:
        return json_boolean(*(const bool *)place);
    case UPS_CONFIG_INT32:
        return json_integer(*(const int32_t *)place);
    case UPS_CONFIG_INT64:
        return json_integer(*(const int64_t *)place);
    case UPS_CONFIG_UINT64: {
        uint64_t number = *(const uint64_t *)place;
        return number <= INT64_MAX ? json_integer((json_int_t)number) : json_sprintf("%" PRIu64, number);
    }
    case UPS_CONFIG_FLOAT:
        return json_real(shortest(*(const float *)place));
    case UPS_CONFIG_DOUBLE:
        return json_real(*(const double *)place);
    case UPS_CONFIG_CHOICE:
        return json_string(key->choices[*(const unsigned *)place]);
    case UPS_CONFIG_TEXT:
        return json_string(*(char *const *)place);
    case UPS_CONFIG_YAML:
    case UPS_CONFIG_REMOVED:
        break;
    }
    return json_null();
}

static json_t *list_as_json(const ups_config_key *key, const char *base) {
    json_t *list = json_array();
    const char *items;
    unsigned count;
    memcpy(&items, base + key->offset, sizeof items);
    memcpy(&count, base + key->list.count_offset, sizeof count);
    for (unsigned i = 0; i < count; i++) {
        json_array_append_new(list, scalar_as_json(key, items + i * key->list.item_size));
    }
    return list;
}

static json_t *keys_as_json(const ups_config_key *keys, const char *base) {
    json_t *object = json_object();
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type == UPS_CONFIG_REMOVED) continue;
        json_object_set_new(object, key->name,
                            ups_config_is_list(key) ? list_as_json(key, base)
                                                    : scalar_as_json(key, base + key->offset));
    }
    return object;
}

json_t *ups_config_as_json(const ups_config_schema *schema, const void *value) {
    return keys_as_json(schema->keys, value);
}

/* ---- schema ----------------------------------------------------------------------------------------------------- */

static json_t *section_schema(const ups_config_key *keys);

/* A number without needless digits after the point. */
static json_t *bound(double number) {
    return number == floor(number) ? json_integer((json_int_t)number) : json_real(number);
}

static void set_bound(json_t *schema, const char *name, double number) {
    if (fabs(number) < UPS_CONFIG_UNBOUNDED) json_object_set_new(schema, name, bound(number));
}

static json_t *number_schema(const ups_config_key *key) {
    json_t *schema = json_pack("{s:s}", "type", ups_config_is_real(key->type) ? "number" : "integer");
    if (ups_config_has_range(key)) {
        set_bound(schema, "minimum", key->range.minimum);
        set_bound(schema, "maximum", key->range.maximum);
    } else if (key->type == UPS_CONFIG_UINT64) {
        set_bound(schema, "minimum", 0);
    }
    return key->word ? json_pack("{s:[o, {s:s}]}", "anyOf", schema, "const", key->word) : schema;
}

/* Any scalar is text to the loader: `name: 5` names a task "5". */
static json_t *text_schema(const ups_config_key *key) {
    json_t *schema = json_pack("{s:[s, s, s]}", "type", "string", "number", "boolean");
    if (ups_config_has_range(key)) {
        if (key->range.minimum > 0) set_bound(schema, "minLength", key->range.minimum);
        set_bound(schema, "maxLength", key->range.maximum);
    }
    return schema;
}

static json_t *item_schema(const ups_config_key *key) {
    json_t *choices;
    switch (key->type) {
    case UPS_CONFIG_SECTION:
        return section_schema(key->keys);
    case UPS_CONFIG_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case UPS_CONFIG_CHOICE:
        choices = json_array();
        for (int i = 0; key->choices[i]; i++) json_array_append_new(choices, json_string(key->choices[i]));
        return json_pack("{s:o}", "enum", choices);
    case UPS_CONFIG_TEXT:
        return text_schema(key);
    case UPS_CONFIG_YAML: /* its forms are its check's */
        return json_object();
    default:
        return number_schema(key);
    }
}

static json_t *list_schema(const ups_config_key *key) {
    json_t *schema = json_pack("{s:s, s:o}", "type", "array", "items", item_schema(key));
    if (key->list.minimum_items > 0) set_bound(schema, "minItems", key->list.minimum_items);
    if (key->list.maximum_items > 0) set_bound(schema, "maxItems", key->list.maximum_items);
    return schema;
}

static json_t *default_of(const ups_config_key *key, const ups_yaml *node) {
    if (key->type == UPS_CONFIG_YAML) return node_as_json(node);
    if (node->kind == UPS_YAML_LIST) {
        json_t *list = json_array();
        for (const ups_yaml *item = node->first; item; item = item->next) {
            json_array_append_new(list, default_of(key, item));
        }
        return list;
    }
    int64_t place[2];
    double number;
    bool truth, too_large;
    if (key->type == UPS_CONFIG_BOOL && ups_config_parse_bool(node->text, &truth)) return json_boolean(truth);
    bool named = key->type == UPS_CONFIG_TEXT || key->type == UPS_CONFIG_CHOICE || key->type == UPS_CONFIG_BOOL;
    if (named || !ups_config_parse_number(node->text, key->type, place, &number, &too_large))
        return json_string(node->text);
    return bound(number);
}

static void describe(json_t *schema, const ups_config_key *key) {
    if (key->help) json_object_set_new(schema, "description", json_string(key->help));
    ups_arena *arena = key->default_value ? ups_arena_create(0) : NULL;
    if (!arena) return;
    ups_yaml *node = NULL;
    const char *text = key->default_value;
    if (ups_yaml_parse(arena, key->name, false, text, strlen(text), &node, NULL) == UPS_OK && node) {
        json_object_set_new(schema, "default", default_of(key, node));
    }
    ups_arena_destroy(arena);
}

/* A key that was removed may say what happens anyway. */
static json_t *removed_schema(const ups_config_key *key) {
    json_t *schema = json_pack("{s:b, s:s+}", "deprecated", 1, "description", "removed: ", key->help);
    bool truth;
    if (!key->default_value)
        json_object_set_new(schema, "not", json_object());
    else if (ups_config_parse_bool(key->default_value, &truth))
        json_object_set_new(schema, "const", json_boolean(truth));
    else
        json_object_set_new(schema, "const", json_string(key->default_value));
    return schema;
}

static json_t *key_schema(const ups_config_key *key) {
    if (key->type == UPS_CONFIG_REMOVED) return removed_schema(key);
    json_t *schema = ups_config_is_list(key) ? list_schema(key) : item_schema(key);
    if (ups_config_takes_single(key)) schema = json_pack("{s:[o, o]}", "anyOf", schema, item_schema(key));
    describe(schema, key);
    return schema;
}

static json_t *section_schema(const ups_config_key *keys) {
    json_t *properties = json_object(), *required = json_array();
    for (const ups_config_key *key = keys; key->name; key++) {
        json_object_set_new(properties, key->name, key_schema(key));
        if (key->type != UPS_CONFIG_REMOVED && ups_config_is_required(key)) {
            json_array_append_new(required, json_string(key->name));
        }
    }
    json_t *schema =
        json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties, "additionalProperties", 0);
    if (json_array_size(required) > 0) {
        json_object_set_new(schema, "required", required);
        return schema;
    }
    json_decref(required); /* then all its lines may be commented out */
    json_object_set_new(schema, "type", json_pack("[s, s]", "object", "null"));
    return schema;
}

json_t *ups_config_json_schema(const ups_config_schema *schema, const char *title) {
    json_t *document =
        json_pack("{s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "title", title);
    json_object_update_new(document, section_schema(schema->keys));
    return document;
}
