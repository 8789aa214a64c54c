/* Configurations and their tables as JSON, for other programs. */
#ifndef UPS_BASE_CONFIG_AS_JSON_H
#define UPS_BASE_CONFIG_AS_JSON_H

#include "base/config/table.h"
#include <jansson.h>

/* A configuration's values by the names of their keys. What JSON's readers would round, a whole number beyond 2^63, is
 * text. The caller owns it. */
json_t *ups_config_as_json(const ups_config_schema *schema, const void *value);

/* The tables as JSON Schema, draft 2020-12: types, ranges, choices, default values and help of every key, for editors
 * that complete and check. It says no more than the tables do; keys that must agree are the loader's business. The
 * caller owns it. */
json_t *ups_config_json_schema(const ups_config_schema *schema, const char *title);

#endif
