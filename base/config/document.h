/* A YAML document as a tree, for config.c: every node knows where it came from, `--set` overrides replace parts of it,
 * and it is written back as text. Aliases are copied out, merge keys ("<<: *base") are merged in. All memory is the
 * arena's. */
#ifndef UPS_BASE_CONFIG_DOCUMENT_H
#define UPS_BASE_CONFIG_DOCUMENT_H

#include "base/arena.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum ups_yaml_kind { UPS_YAML_SCALAR, UPS_YAML_LIST, UPS_YAML_MAPPING } ups_yaml_kind;

typedef struct ups_yaml {
    ups_yaml_kind kind;
    const char *where; /* for messages: "configs/x.yaml:12" or "--set a.b=c" */
    const char *text;  /* scalars */
    bool quoted;       /* scalars: written in quotes or as a block, so that "5" is text and 5 a number */
    const char *key;   /* when the parent is a mapping */
    struct ups_yaml *first, *last, *next; /* children; the next sibling */
} ups_yaml;

ups_yaml *ups_yaml_scalar(ups_arena *arena, const char *text, bool quoted);
ups_yaml *ups_yaml_collection(ups_arena *arena, ups_yaml_kind kind, const char *where);
void ups_yaml_append(ups_yaml *parent, ups_yaml *child, const char *key); /* key: NULL for lists */
ups_yaml *ups_yaml_child(const ups_yaml *mapping, const char *key);       /* NULL when absent */
bool ups_yaml_is_override(const ups_yaml *node);                          /* an assignment put it there */
bool ups_yaml_is_null(const ups_yaml *node);                              /* an unquoted nothing, null or ~ */

/* Whether no collection of a YAML text is nested deeper than configurations may be; otherwise *line (from 1) is where.
 * To be asked before libyaml loads a text: it takes time that grows with the square of the depth. */
bool ups_yaml_is_shallow(const char *text, size_t length, size_t *line);

/* Parses one document. `name` stands in messages, with line numbers when `numbered`. *root is NULL for an empty
 * document. */
ups_status ups_yaml_parse(ups_arena *arena, const char *name, bool numbered, const char *text, size_t length,
                          ups_yaml **root, ups_error *error);

/* Applies "a.b=c" or "tasks[0].name=x"; c is YAML. Mappings on the way are created; a list may grow by one item at its
 * end. */
ups_status ups_yaml_set(ups_arena *arena, ups_yaml *root, const char *assignment, ups_error *error);

/* Writes the tree as block-style YAML, lists of scalars on one line. *text is NUL-terminated and freed with free(). */
ups_status ups_yaml_emit(const ups_yaml *root, char **text, size_t *length, ups_error *error);

#endif
