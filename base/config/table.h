/* The tables that configurations are described by: a line a key, a table a section. */
#ifndef UPS_BASE_CONFIG_TABLE_H
#define UPS_BASE_CONFIG_TABLE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ups_yaml;

typedef enum ups_config_type {
    UPS_CONFIG_SECTION, /* a mapping with keys of its own */
    UPS_CONFIG_BOOL,
    UPS_CONFIG_INT32,
    UPS_CONFIG_INT64,
    UPS_CONFIG_UINT64,
    UPS_CONFIG_FLOAT,
    UPS_CONFIG_DOUBLE,
    UPS_CONFIG_CHOICE,  /* an enumeration that counts from 0 */
    UPS_CONFIG_TEXT,    /* char * */
    UPS_CONFIG_YAML,    /* char *: any YAML, as text; what may stand there is said by whoever reads it (`check`) */
    UPS_CONFIG_REMOVED, /* a key of earlier versions: refused with its help, which says what to do instead, but for the
                           value default_value (or NULL), which is what happens anyway and stands in older runs */
} ups_config_type;

#define UPS_CONFIG_UNBOUNDED 9e15 /* as a bound of a range: none; where doubles stop telling whole numbers apart */

typedef struct ups_config_key {
    const char *name;     /* NULL ends a table */
    ups_config_type type; /* of a list: of its items */
    size_t offset; /* in the whole struct; for keys of a list's items, in the item. Of a section: 0, or where the struct
                      begins that its own keys count from */
    const char *default_value; /* YAML text ("0.001", "[]", "auto"), or NULL */
    struct {
        double minimum, maximum;
    } range;                           /* inclusive; of a number, of a text's length, of a list's items. Both 0: none */
    const char *help;                  /* one line; may be NULL */
    const struct ups_config_key *keys; /* of a section */
    const char *const *choices;        /* of an enumeration: names by value, then NULL */
    const char
        *word; /* "auto": a number's key takes it too; 0 in the struct. Of YAML: what may stand there, in words */
    const char *(*objection)(const char *text); /* what is wrong with a text ("is empty; name a directory"), or NULL */
    bool path;    /* a text: a file or folder, relative to the folder of the document that says it (one of --set: to the
                     working directory); absolute once it is loaded. Empty stays empty where that is the default */
    bool working; /* beside `path`: relative to the working directory in any case */
    bool neutral; /* no result depends on it: threads, memory, what is logged, where files lie */
    /* Of YAML: whether this may stand there. UPS_ERR_CONFIG with a sentence that begins with `place`, "x.yaml:3: a.b",
     * or with the `where` of a node below. */
    ups_status (*check)(const struct ups_yaml *node, const char *place, ups_error *error);
    struct {
        size_t count_offset, item_size;        /* of the `unsigned` number of items, beside a pointer to them */
        unsigned minimum_items, maximum_items; /* 0: any number */
    } list;                                    /* item_size 0: no list */
} ups_config_key;

/* How tables are written. UPS_CONFIG_KEY(struct, type, name, member, default value, minimum, maximum, help), then what
 * few keys have: .choices, .word, .objection, .path, .neutral, .list. UPS_CONFIG_SUBSECTION(name, keys…). */
#define UPS_CONFIG_KEY(owner, kind, key, member, ...)                                                                  \
    UPS_CONFIG_ENTRY(kind, key, offsetof(owner, member), __VA_ARGS__, )
#define UPS_CONFIG_ENTRY(kind, key, place, default_text, low, high, about, ...)                                        \
    {                                                                                                                  \
        .name = key, .type = UPS_CONFIG_##kind, .offset = place, .default_value = default_text, .range = {low, high},  \
        .help = about, __VA_ARGS__                                                                                     \
    }
#define UPS_CONFIG_SUBSECTION(key, ...)                                                                                \
    {                                                                                                                  \
        .name = key, .type = UPS_CONFIG_SECTION, .keys = (const ups_config_key[]) {                                    \
            __VA_ARGS__, {                                                                                             \
                .name = NULL                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
/* The .list of a key whose member points at items, `count` of them, at least and at most so many (0: any number). */
#define UPS_CONFIG_LIST(owner, member, count, minimum, maximum)                                                        \
    { offsetof(owner, count), sizeof *((owner *)0)->member, minimum, maximum }

typedef struct ups_config_schema {
    const ups_config_key *keys;
    size_t size; /* of the struct */
} ups_config_schema;

/* Visits every key in the tables' order, parents before their children. `path` has "[]" for list items; `expected` is
 * "a number between 0 and 1", "stack or unet", "a list of mappings". Both live only during the visit. */
typedef void (*ups_config_visit)(void *context, const char *path, const char *expected, const ups_config_key *key);
void ups_config_each_key(const ups_config_schema *schema, ups_config_visit visit, void *context);
bool ups_config_is_required(const ups_config_key *key);

#endif
