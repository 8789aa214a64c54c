/* What of the caches below a directory can go: temporary files of writers that are dead, builds that nobody finished,
 * caches that something else made than what asks for them now, and those that were to replace another and were given
 * up. Found first, removed one by one on demand. Only what is certainly ours is ever offered: names that carry our
 * mark, and groups in which every file belongs to a cache. */
#ifndef UPS_CACHE_INSPECT_PRUNE_H
#define UPS_CACHE_INSPECT_PRUNE_H

#include "cache/store/group.h"

typedef enum ups_prune_kind {
    UPS_PRUNE_PARTIAL,
    UPS_PRUNE_INCOMPLETE,
    UPS_PRUNE_STALE,
    UPS_PRUNE_GIVEN_UP /* a directory UPS_CACHE_STAGED whose replacement was given up */
} ups_prune_kind;
const char *ups_prune_kind_name(ups_prune_kind kind); /* "temporary", "incomplete", "stale", "given up" */

typedef struct ups_prune_item {
    ups_prune_kind kind;
    char *path;
    uint64_t bytes;
    double age;     /* seconds since anything in it changed */
    bool removable; /* false: it matches, but has to stay; `reason` says why */
    char reason[600];
} ups_prune_item;

typedef struct ups_prune_list {
    ups_prune_item *item;
    int64_t count;
    uint64_t bytes; /* of those removable */
} ups_prune_list;

typedef struct ups_prune_options {
    double incomplete_age; /* seconds without a change after which an unfinished build is given up */
    /* Whether the group at `directory` is of something else than it should be, and why; *kept: it is of use
     * nevertheless, and the reason says for what. NULL: never asked. */
    bool (*stale)(void *context, const char *directory, bool *kept, char reason[600]);
    void *context;
    /* Whether a directory UPS_CACHE_STAGED was given up, and why; NULL: never asked. */
    bool (*given_up)(const char *directory, char reason[600]);
} ups_prune_options;

/* Appends to `list`, which begins as {0}. Errors: the directory cannot be read, UPS_ERR_MEMORY. */
ups_status ups_prune_find(const char *directory, const ups_prune_options *options, ups_prune_list *list,
                          ups_error *error);
/* Looks again, and refuses (UPS_ERR_ARGUMENT) when a builder has come to life meanwhile. */
ups_status ups_prune_remove(const ups_prune_item *item, ups_error *error);
void ups_prune_list_free(ups_prune_list *list);

#endif
