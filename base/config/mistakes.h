/* All mistakes of a configuration: those that the tables show (config.c finds them) and those that only its owner
 * knows, such as two keys that do not agree. Each is a sentence with file, line and key. */
#ifndef UPS_BASE_CONFIG_MISTAKES_H
#define UPS_BASE_CONFIG_MISTAKES_H

#include "base/arena.h"
#include "base/config/document.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct ups_config_mistake {
    const char *sentence; /* "c.yaml:12: model.dim: 'x' is not a whole number; …" */
    const char *key;      /* "model.dim", "tasks[1].name"; "": the whole document */
    const char *meant;    /* the key that was probably meant, where `key` is unknown; or NULL */
    size_t line;          /* in the file, from 1; 0: in an override, or nowhere in particular */
} ups_config_mistake;

#define UPS_CONFIG_MOST_MISTAKES 200 /* later ones are not kept */

typedef struct ups_config_mistakes {
    ups_arena *arena;     /* of the document and of all that is said about it */
    const char *path;     /* of the file */
    const ups_yaml *root; /* the document, overrides in place; NULL where it could not be read */
    ups_config_mistake *list;
    size_t count;
    int muted; /* above 0: what would be added follows from a mistake that is known already */
} ups_config_mistakes;

ups_config_mistakes *ups_config_mistakes_create(const char *path); /* NULL when out of memory */
void ups_config_mistakes_destroy(ups_config_mistakes *mistakes);   /* NULL is fine */

/* Adds a sentence about `key`, whole with its place, as it stands. */
void ups_config_mistakes_add(ups_config_mistakes *mistakes, const char *where, const char *key, const char *meant,
                             const char *sentence);

/* Adds "PLACE: KEY: …", a mistake that shows only beside other keys, `with` (a list of names that NULL ends, or NULL).
 * The place is the line where `key` stands, else that of the first of `with` that stands anywhere, but an override
 * before a line. Nothing is added
 * where one of these keys is known to be wrong by itself. */
void ups_config_mistakes_disagree(ups_config_mistakes *mistakes, const char *key, const char *const *with,
                                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Whether a mistake is known of `key`, of a section that holds it, or of something within it. */
bool ups_config_mistakes_know(const ups_config_mistakes *mistakes, const char *key);

/* The node of "tasks[1].name" in the document, or NULL. */
const ups_yaml *ups_config_mistakes_find(const ups_config_mistakes *mistakes, const char *key);

void ups_config_mistakes_sort(ups_config_mistakes *mistakes); /* by line; those without one come last */

#endif
