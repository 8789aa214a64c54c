/* Configuration: YAML, checked before anything runs, into a struct.
 *
 * A key stands once, in the table of its section: name, type, place in the struct, default value, range, help. Reading,
 * default values, checks, printing, the list of all keys and suggestions for unknown ones come from these tables.
 * Loading applies `--set a.b=c` overrides, fills in default values, and reports mistakes, the first or all, with file,
 * line, key and what would be right (mistakes in an override as "--set a.b=c: …").
 *
 * A section that is absent is as good as an empty one; a key that is absent takes its default value, and is required
 * where it has none. A key may say that its text is a path: those are relative to the folder of the document. */
#ifndef UPS_BASE_CONFIG_CONFIG_H
#define UPS_BASE_CONFIG_CONFIG_H

#include "base/config/mistakes.h"
#include "base/config/table.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads `path` into a newly allocated struct described by `schema`. `overrides` are texts "a.b=c" or "tasks[0].name=x",
 * the value being YAML; a list may grow by one item at its end. *value is freed with ups_config_free, with all that it
 * points to. Errors: UPS_ERR_CONFIG, UPS_ERR_IO. */
ups_status ups_config_load(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, void **value, ups_error *error);
/* The same of text that is in memory; `name` stands for the file in messages. */
ups_status ups_config_load_text(const char *name, const char *text, size_t length, const ups_config_schema *schema,
                                const char *const *overrides, size_t override_count, void **value, ups_error *error);
void ups_config_free(void *value); /* NULL is fine */

/* As ups_config_load, but goes on after a mistake: all stand in `mistakes`, which was made for `path`. Where there are
 * any, *value has default values in their places (NULL where the text is no YAML at all): checks of several keys can
 * go on with it, nothing else. Errors: UPS_ERR_IO and the like, where there was nothing to read. */
ups_status ups_config_read(const char *path, const ups_config_schema *schema, const char *const *overrides,
                           size_t override_count, ups_config_mistakes *mistakes, void **value, ups_error *error);

/* The same of text that is in memory; `name`, for which `mistakes` were made, stands for the file. */
ups_status ups_config_read_text(const char *name, const char *text, size_t length, const ups_config_schema *schema,
                                ups_config_mistakes *mistakes, void **value, ups_error *error);

/* The configuration as it will run (default values and overrides in place), as YAML text that loads to the same values;
 * free with free(). */
ups_status ups_config_print(const ups_config_schema *schema, const void *value, char **text, ups_error *error);

/* A key whose value is not the same in two configurations of a schema. */
typedef struct ups_config_difference {
    const char *path;           /* "operator.steps", "tasks[1].weight"; "tasks[2]" for an item that only one has */
    const char *first, *second; /* values as they are printed, lists on one line; "absent" */
    const ups_config_key *key;
} ups_config_difference;

/* Visits what differs between two structs of `schema`, in the tables' order; texts live only during the visit. */
typedef void (*ups_config_visit_difference)(void *context, const ups_config_difference *difference);
ups_status ups_config_compare(const ups_config_schema *schema, const void *first, const void *second,
                              ups_config_visit_difference visit, void *context, ups_error *error);

#endif
