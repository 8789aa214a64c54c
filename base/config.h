/* Configuration: YAML, checked before anything runs.
 *
 * A command describes its configuration as a libcyaml schema (which names the keys and types and where they go in a
 * struct) and a table of rules beside it (range, choices, help). Loading checks the document against both and reports
 * the first mistake with file, line, key and what would be right; then applies `--set a.b=c` overrides (checked alike,
 * reported as "--set a.b=c"); then fills the struct.
 *
 * Keys absent from the document keep the defaults the rules name. Relative paths in a document are the caller's
 * business. */
#ifndef UPS_BASE_CONFIG_H
#define UPS_BASE_CONFIG_H

#include "base/error.h"
#include <cyaml/cyaml.h>
#include <stddef.h>

/* What a key's type alone cannot say. `path` is the key's full name with "[]" for list items: "tasks[].name",
 * "train.learning_rate". */
typedef struct ups_config_rule {
    const char *path;
    const char *fallback; /* default as YAML text ("0.001", "[]", "auto"), or NULL: the key is required where its parent
                             is present */
    double minimum, maximum; /* inclusive; both 0: no range */
    const char *help;        /* one line for `ups config keys` and the reference in docs/ */
} ups_config_rule;

typedef struct ups_config_schema {
    const cyaml_schema_value_t *root;
    const ups_config_rule *rules;
    size_t rule_count;
} ups_config_schema;

/* Loads `path` into a newly allocated struct described by `schema`. `overrides` are texts "a.b=c" or "tasks[0].name=x".
 * *value is freed with ups_config_free. Errors: UPS_ERR_CONFIG, UPS_ERR_IO. */
ups_status ups_config_load(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, void **value, ups_error *error);
void ups_config_free(const ups_config_schema *schema, void *value);

/* The configuration as it will run (defaults and overrides in place), as YAML text; free with free(). */
ups_status ups_config_print(const ups_config_schema *schema, const void *value, char **text, ups_error *error);

#endif
