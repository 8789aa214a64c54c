/* What a schema and its rules say about one value: shared by checking (config.c) and printing (config_print.c). */
#ifndef UPS_BASE_CONFIG_SCHEMA_H
#define UPS_BASE_CONFIG_SCHEMA_H

#include "base/arena.h"
#include "base/config/config.h"
#include <stdint.h>

const ups_config_rule *ups_config_find_rule(const ups_config_schema *schema, const char *path); /* NULL: none */
const cyaml_schema_field_t *ups_config_find_field(const cyaml_schema_value_t *mapping, const char *key);

/* "a.b" and "c" to "a.b.c"; the root's path is "". */
const char *ups_config_join(ups_arena *arena, const char *path, const char *key);

/* What a value must be, for messages: "a whole number between 1 and 64, or auto". `rule` may be NULL. */
const char *ups_config_expected(ups_arena *arena, const cyaml_schema_value_t *value, const ups_config_rule *rule);

/* The rule of a list's items: that of "path[]", or else the list's own with the range it gives. */
const ups_config_rule *ups_config_item_rule(const ups_config_schema *schema, const ups_config_rule *list_rule,
                                            const char *item_path);

bool ups_config_is_list(const cyaml_schema_value_t *value);
bool ups_config_has_range(const ups_config_rule *rule); /* rule may be NULL, here and below */
bool ups_config_in_range(const ups_config_rule *rule, double number);

/* Strictly decimal text to numbers; false when it is none or out of the type's reach (*too_large says which). */
bool ups_config_parse_integer(const char *text, bool is_signed, unsigned bytes, uint64_t *bits, bool *too_large);
bool ups_config_parse_real(const char *text, unsigned bytes, double *number, bool *too_large);
bool ups_config_parse_bool(const char *text, bool *value);

/* The first rule whose path the schema lacks; NULL when all fit. */
const ups_config_rule *ups_config_stray_rule(const ups_config_schema *schema);

#endif
