/* Struct → tree → YAML text. libcyaml can save too, but writes numbers with six digits ("%g"), which would not load to
 * the same values. */
#include "base/config/config.h"

#include "base/config/document.h"
#include "base/config/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    const ups_config_schema *schema;
    ups_arena *arena;
} printer;

/* Little-endian, as every machine UPS runs on. */
static uint64_t read_bits(const void *data, size_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, data, bytes);
    return bits;
}

static int64_t read_signed(const void *data, size_t bytes) {
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return (int64_t)(read_bits(data, bytes) << unused) >> unused;
}

/* The fewest digits that read back as the same number. */
static const char *real_text(ups_arena *arena, const void *data, size_t bytes) {
    char *text = NULL;
    if (bytes == sizeof(float)) {
        float value;
        memcpy(&value, data, sizeof value);
        for (int digits = 6; digits <= 9; digits++) {
            text = ups_arena_printf(arena, "%.*g", digits, (double)value);
            if (strtof(text, NULL) == value) break;
        }
        return text;
    }
    double value;
    memcpy(&value, data, sizeof value);
    for (int digits = 15; digits <= 17; digits++) {
        text = ups_arena_printf(arena, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

/* True for text that YAML would take for something else unless it is quoted. */
static bool needs_quotes(const char *text) {
    double number;
    bool truth, too_large;
    ups_yaml plain = {.kind = UPS_YAML_SCALAR, .text = text};
    return ups_yaml_is_null(&plain) || ups_config_parse_bool(text, &truth) ||
           ups_config_parse_real(text, sizeof number, &number, &too_large) || too_large;
}

static const char *choice_name(const cyaml_schema_value_t *value, int64_t choice) {
    for (uint32_t i = 0; i < value->enumeration.count; i++) {
        if (value->enumeration.strings[i].val == choice) return value->enumeration.strings[i].str;
    }
    return "?";
}

static ups_yaml *print_value(const printer *p, const cyaml_schema_value_t *value, const void *data, uint64_t count,
                             const char *path, const ups_config_rule *rule);

static ups_yaml *print_number(const printer *p, const cyaml_schema_value_t *value, const void *data,
                              const ups_config_rule *rule) {
    const char *text;
    double number;
    if (value->type == CYAML_FLOAT) {
        text = real_text(p->arena, data, value->data_size);
        number = strtod(text, NULL);
    } else if (value->type == CYAML_INT) {
        text = ups_arena_printf(p->arena, "%" PRId64, read_signed(data, value->data_size));
        number = (double)read_signed(data, value->data_size);
    } else {
        text = ups_arena_printf(p->arena, "%" PRIu64, read_bits(data, value->data_size));
        number = (double)read_bits(data, value->data_size);
    }
    bool as_word = rule && rule->word && number == (double)rule->word_value;
    return ups_yaml_scalar(p->arena, as_word ? rule->word : text, false);
}

static ups_yaml *print_list(const printer *p, const cyaml_schema_value_t *value, const void *data, uint64_t count,
                            const char *path, const ups_config_rule *rule) {
    ups_yaml *list = ups_yaml_collection(p->arena, UPS_YAML_LIST, "");
    const cyaml_schema_value_t *entry = value->sequence.entry;
    const char *item_path = ups_arena_printf(p->arena, "%s[]", path);
    const ups_config_rule *item_rule = ups_config_item_rule(p->schema, rule, item_path);
    size_t stride = value->data_size; /* of one item: for lists libcyaml keeps it here */
    for (uint64_t i = 0; i < count; i++) {
        const char *item = (const char *)data + i * stride;
        ups_yaml_append(list, print_value(p, entry, item, 0, item_path, item_rule), NULL);
    }
    return list;
}

static ups_yaml *print_mapping(const printer *p, const cyaml_schema_value_t *value, const char *data,
                               const char *path) {
    ups_yaml *mapping = ups_yaml_collection(p->arena, UPS_YAML_MAPPING, "");
    for (const cyaml_schema_field_t *field = value->mapping.fields; field->key; field++) {
        const void *place = data + field->data_offset;
        bool absent = field->value.flags & CYAML_FLAG_POINTER && *(void *const *)place == NULL;
        if (field->value.type == CYAML_IGNORE) continue;
        if (absent && field->value.type != CYAML_SEQUENCE && field->value.flags & CYAML_FLAG_OPTIONAL) continue;
        uint64_t count =
            field->value.type == CYAML_SEQUENCE ? read_bits(data + field->count_offset, field->count_size) : 0;
        const char *key_path = ups_config_join(p->arena, path, field->key);
        const ups_config_rule *rule = ups_config_find_rule(p->schema, key_path);
        ups_yaml_append(mapping, print_value(p, &field->value, place, count, key_path, rule), field->key);
    }
    return mapping;
}

/* `data` is where the value lies in its parent; `count` the number of items of a variable list. */
static ups_yaml *print_value(const printer *p, const cyaml_schema_value_t *value, const void *data, uint64_t count,
                             const char *path, const ups_config_rule *rule) {
    if (value->flags & CYAML_FLAG_POINTER) {
        data = *(void *const *)data;
        if (!data && value->type != CYAML_SEQUENCE) return ups_yaml_scalar(p->arena, "null", false);
    }
    switch (value->type) {
    case CYAML_INT:
    case CYAML_UINT:
    case CYAML_FLOAT:
        return print_number(p, value, data, rule);
    case CYAML_BOOL:
        return ups_yaml_scalar(p->arena, read_bits(data, value->data_size) ? "true" : "false", false);
    case CYAML_ENUM:
        return ups_yaml_scalar(p->arena, choice_name(value, read_signed(data, value->data_size)), false);
    case CYAML_MAPPING:
        return print_mapping(p, value, data, path);
    case CYAML_SEQUENCE:
        return print_list(p, value, data, count, path, rule);
    case CYAML_SEQUENCE_FIXED:
        return print_list(p, value, data, value->sequence.max, path, rule);
    default:
        return ups_yaml_scalar(p->arena, data, needs_quotes(data)); /* text */
    }
}

ups_status ups_config_print(const ups_config_schema *schema, const void *value, char **text, ups_error *error) {
    printer p = {.schema = schema, .arena = ups_arena_create(0)};
    *text = NULL;
    if (!p.arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to print the configuration");
    const void *root = value;
    size_t length = 0;
    ups_status status = ups_yaml_emit(print_value(&p, schema->root, &root, 0, "", NULL), text, &length, error);
    ups_arena_destroy(p.arena);
    return status;
}
