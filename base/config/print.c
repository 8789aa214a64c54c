/* Struct → tree → YAML text. */
#include "base/config/config.h"

#include "base/config/document.h"
#include "base/config/key.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that read back as the same number. */
static const char *float_text(ups_arena *arena, float value) {
    char *text = NULL;
    for (int digits = 6; digits <= 9; digits++) {
        text = ups_arena_printf(arena, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return text;
}

static const char *double_text(ups_arena *arena, double value) {
    char *text = NULL;
    for (int digits = 15; digits <= 17; digits++) {
        text = ups_arena_printf(arena, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

/* True for text that YAML would take for something else unless it is quoted. */
static bool needs_quotes(const char *text) {
    double number, real;
    bool truth, too_large;
    ups_yaml plain = {.kind = UPS_YAML_SCALAR, .text = text};
    return ups_yaml_is_null(&plain) || ups_config_parse_bool(text, &truth) ||
           ups_config_parse_number(text, UPS_CONFIG_DOUBLE, &real, &number, &too_large) || too_large;
}

/* YAML that was loaded is YAML. */
static ups_yaml *parse_back(ups_arena *arena, const char *text) {
    ups_yaml *node = NULL;
    ups_yaml_parse(arena, "", false, text, strlen(text), &node, NULL);
    return node ? node : ups_yaml_scalar(arena, "", false);
}

/* A node on one line. */
static const char *flow_text(ups_arena *arena, const ups_yaml *node) {
    if (node->kind == UPS_YAML_SCALAR) return ups_arena_printf(arena, node->quoted ? "\"%s\"" : "%s", node->text);
    bool mapping = node->kind == UPS_YAML_MAPPING;
    const char *text = "";
    for (const ups_yaml *child = node->first; child; child = child->next) {
        text = ups_arena_printf(arena, "%s%s%s%s%s", text, child == node->first ? "" : ", ", mapping ? child->key : "",
                                mapping ? ": " : "", flow_text(arena, child));
    }
    return ups_arena_printf(arena, mapping ? "{%s}" : "[%s]", text);
}

const char *ups_config_scalar_text(ups_arena *arena, const ups_config_key *key, const void *place) {
    const char *word = ups_config_word_at(key, place);
    if (word) return word;
    switch (key->type) {
    case UPS_CONFIG_INT32:
        return ups_arena_printf(arena, "%" PRId32, *(const int32_t *)place);
    case UPS_CONFIG_INT64:
        return ups_arena_printf(arena, "%" PRId64, *(const int64_t *)place);
    case UPS_CONFIG_UINT64:
        return ups_arena_printf(arena, "%" PRIu64, *(const uint64_t *)place);
    case UPS_CONFIG_FLOAT:
        return float_text(arena, *(const float *)place);
    case UPS_CONFIG_DOUBLE:
        return double_text(arena, *(const double *)place);
    case UPS_CONFIG_CHOICE:
        return key->choices[*(const unsigned *)place];
    case UPS_CONFIG_BOOL:
        return *(const bool *)place ? "true" : "false";
    case UPS_CONFIG_YAML:
        return flow_text(arena, parse_back(arena, *(char *const *)place));
    default:
        return *(char *const *)place;
    }
}

static ups_yaml *print_keys(ups_arena *arena, const ups_config_key *keys, const char *base);

static ups_yaml *print_item(ups_arena *arena, const ups_config_key *key, const char *place) {
    if (key->type == UPS_CONFIG_SECTION) return print_keys(arena, key->keys, place);
    if (key->type == UPS_CONFIG_YAML) return parse_back(arena, *(char *const *)place);
    const char *text = ups_config_scalar_text(arena, key, place);
    return ups_yaml_scalar(arena, text, key->type == UPS_CONFIG_TEXT && needs_quotes(text));
}

static ups_yaml *print_list(ups_arena *arena, const ups_config_key *key, const char *base) {
    ups_yaml *list = ups_yaml_collection(arena, UPS_YAML_LIST, "");
    const char *items;
    unsigned count;
    memcpy(&items, base + key->offset, sizeof items);
    memcpy(&count, base + key->list.count_offset, sizeof count);
    for (unsigned i = 0; i < count; i++) {
        ups_yaml_append(list, print_item(arena, key, items + i * key->list.item_size), NULL);
    }
    return list;
}

static ups_yaml *print_keys(ups_arena *arena, const ups_config_key *keys, const char *base) {
    ups_yaml *mapping = ups_yaml_collection(arena, UPS_YAML_MAPPING, "");
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type == UPS_CONFIG_REMOVED) continue;
        ups_yaml *node =
            ups_config_is_list(key) ? print_list(arena, key, base) : print_item(arena, key, base + key->offset);
        ups_yaml_append(mapping, node, key->name);
    }
    return mapping;
}

ups_status ups_config_print(const ups_config_schema *schema, const void *value, char **text, ups_error *error) {
    *text = NULL;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to print the configuration");
    size_t length = 0;
    ups_status status = ups_yaml_emit(print_keys(arena, schema->keys, value), text, &length, error);
    ups_arena_destroy(arena);
    return status;
}
