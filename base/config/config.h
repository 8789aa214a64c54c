/* Configuration: YAML, checked before anything runs.
 *
 * A command describes its configuration as a libcyaml schema (which names the keys and types and where they go in a
 * struct) and a table of rules beside it (defaults, ranges, help). Loading applies `--set a.b=c` overrides, checks the
 * document against both and reports the first mistake with file, line, key and what would be right (mistakes in an
 * override as
 * "--set a.b=c: …"), puts defaults where keys are absent, and fills the struct.
 *
 * What is absent: a key with a default takes it; a mapping that lies in its parent's struct is as good as an empty one,
 * so that its own keys' defaults apply; a key marked CYAML_FLAG_OPTIONAL without a default stays zero or NULL; any
 * other is required.
 *
 * Types: CYAML_INT, _UINT, _BOOL, _ENUM, _FLOAT, _STRING, _MAPPING, _SEQUENCE, _SEQUENCE_FIXED, _IGNORE; the root is a
 * mapping with CYAML_FLAG_POINTER. Relative paths in a document are the caller's business. */
#ifndef UPS_BASE_CONFIG_CONFIG_H
#define UPS_BASE_CONFIG_CONFIG_H

#include "base/error.h"
#include <cyaml/cyaml.h>
#include <stdbool.h>
#include <stddef.h>

/* What a key's type alone cannot say. `path` is the key's full name with "[]" for list items: "tasks[].name",
 * "train.learning_rate". A rule whose path the schema lacks is reported at every load. */
typedef struct ups_config_rule {
    const char *path;
    const char *fallback; /* default as YAML text ("0.001", "[]", "auto"), or NULL when there is none */
    double minimum,
        maximum;      /* inclusive; INFINITY (or 9e15 and more) for none; both 0: no range. For a list, of each item */
    const char *help; /* one line for `ups config keys` and the reference in docs/ */
    const char *word; /* a word that a number's key also takes, such as "auto", or NULL; free of the range … */
    int64_t word_value; /* … and the number it stands for in the struct */
    /* What is wrong with a text, and what would be right: "is empty; name a directory". NULL where nothing is. */
    const char *(*objection)(const char *text);
} ups_config_rule;

typedef struct ups_config_schema {
    const cyaml_schema_value_t *root;
    const ups_config_rule *rules;
    size_t rule_count;
} ups_config_schema;

/* Loads `path` into a newly allocated struct described by `schema`. `overrides` are texts "a.b=c" or "tasks[0].name=x",
 * the value being YAML; a list may grow by one item at its end. *value is freed with ups_config_free. Errors:
 * UPS_ERR_CONFIG, UPS_ERR_IO. */
ups_status ups_config_load(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, void **value, ups_error *error);
void ups_config_free(const ups_config_schema *schema, void *value); /* NULL is fine */

/* The configuration as it will run (defaults and overrides in place), as YAML text that loads to the same values; free
 * with free(). */
ups_status ups_config_print(const ups_config_schema *schema, const void *value, char **text, ups_error *error);

/* One key, as `ups config keys` lists it. Texts live only during the visit. */
typedef struct ups_config_key {
    const char *path;     /* with "[]" for list items */
    const char *expected; /* "a number between 0 and 1", "stack or unet", "a list of mappings" */
    const char *fallback; /* as YAML text; NULL when there is none */
    bool required;
    const char *help; /* "" when the rules have none */
} ups_config_key;

/* Visits every key in the schema's order, parents before their children. */
void ups_config_each_key(const ups_config_schema *schema, void (*visit)(void *context, const ups_config_key *key),
                         void *context);

#endif
