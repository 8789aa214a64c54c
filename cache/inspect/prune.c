#include "cache/inspect/prune.h"

#include "base/files.h"
#include "cache/build/leases.h"
#include "cache/inspect/find.h"
#include <stdlib.h>
#include <string.h>

/* Writers that live touch their files, and builders their records, every few seconds. Process numbers alone would not
 * do: containers can share a host's name but not its numbers. Clocks of hosts may differ by less than this. */
#define QUIET_SECONDS 600.0

const char *ups_prune_kind_name(ups_prune_kind kind) {
    static const char *const names[] = {"temporary", "incomplete", "stale", "given up"};
    return names[kind];
}

static double age_of(time_t newest) {
    double age = difftime(time(NULL), newest);
    return age > 0 ? age : 0;
}

static ups_status append(ups_prune_list *list, ups_prune_kind kind, const char *path, ups_prune_item **item,
                         ups_error *error) {
    ups_prune_item *longer = realloc(list->item, (size_t)(list->count + 1) * sizeof *longer);
    char *copy = strdup(path);
    if (longer) list->item = longer;
    if (!longer || !copy) {
        free(copy);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to remember it", path);
    }
    ups_directory_size size = ups_directory_measure(path);
    *item = &list->item[list->count++];
    **item = (ups_prune_item){.kind = kind, .path = copy, .bytes = size.bytes, .age = age_of(size.newest)};
    return UPS_OK;
}

/* ---- temporary files ---- */

static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static ups_status offer_partial(const char *path, ups_prune_list *list, ups_error *error) {
    ups_prune_item *item;
    ups_partial_owner owner = ups_partial_owner_of(last_name(path));
    UPS_TRY(append(list, UPS_PRUNE_PARTIAL, path, &item, error));
    item->removable = owner == UPS_PARTIAL_ABANDONED && item->age >= QUIET_SECONDS;
    const char *reason = "its writer is dead";
    if (owner == UPS_PARTIAL_ALIVE) reason = "its writer is still at work";
    if (owner == UPS_PARTIAL_FOREIGN) reason = "it was written on another host, whose processes cannot be asked";
    if (owner == UPS_PARTIAL_ABANDONED && !item->removable) reason = "it changed within the last ten minutes";
    snprintf(item->reason, sizeof item->reason, "%s", reason);
    return UPS_OK;
}

/* ---- groups ---- */

/* Whether a builder's record in the group changed lately. */
static bool is_being_built(const char *directory) {
    char *folder = NULL;
    if (asprintf(&folder, "%s/" UPS_LEASES_FOLDER, directory) < 0) return true;
    bool busy = ups_path_exists(folder) && age_of(ups_directory_measure(folder).newest) < QUIET_SECONDS;
    free(folder);
    return busy;
}

static void decide(ups_prune_item *item, const char *why) {
    char *foreign = ups_cache_foreign_entry(item->path);
    if (foreign) {
        snprintf(item->reason, sizeof item->reason, "%s; kept, since it holds %.300s, which is no part of a cache", why,
                 foreign);
    } else if (is_being_built(item->path)) {
        snprintf(item->reason, sizeof item->reason, "%s; kept, since a builder is at work in it", why);
    } else {
        item->removable = true;
        snprintf(item->reason, sizeof item->reason, "%s", why);
    }
    free(foreign);
}

static ups_status offer_group(const char *path, const ups_prune_options *options, ups_prune_list *list,
                              ups_error *error) {
    char why[600] = "";
    ups_prune_item *item;
    bool kept = false;
    if (options->stale && options->stale(options->context, path, &kept, why)) {
        UPS_TRY(append(list, UPS_PRUNE_STALE, path, &item, error));
        if (kept)
            memcpy(item->reason, why, sizeof why);
        else
            decide(item, why);
        return UPS_OK;
    }
    ups_cache_group *group = NULL;
    if (ups_cache_group_open(path, &group, NULL) != UPS_OK) return UPS_OK; /* broken: for `verify`, not for us */
    bool complete = group->complete;
    ups_cache_group_close(group);
    if (complete) return UPS_OK;
    double age = age_of(ups_directory_measure(path).newest);
    if (age < options->incomplete_age) return UPS_OK;
    UPS_TRY(append(list, UPS_PRUNE_INCOMPLETE, path, &item, error));
    snprintf(why, sizeof why, "its build did not finish, and nothing changed for %.1f days", age / 86400);
    decide(item, why);
    return UPS_OK;
}

/* Whether a builder is at work in one of the groups below. */
static bool is_built_below(const char *directory) {
    ups_found_paths found;
    if (ups_cache_find(directory, &found, NULL) != UPS_OK) return true;
    bool busy = false;
    for (int64_t i = 0; i < found.count && !busy; i++) busy = is_being_built(found.path[i]);
    ups_found_paths_free(&found);
    return busy;
}

static ups_status offer_staged(const char *path, const ups_prune_options *options, ups_prune_list *list,
                               ups_error *error) {
    char why[600] = "";
    ups_prune_item *item;
    if (!options->given_up || !options->given_up(path, why)) return UPS_OK;
    UPS_TRY(append(list, UPS_PRUNE_GIVEN_UP, path, &item, error));
    item->removable = !is_built_below(path);
    snprintf(item->reason, sizeof item->reason, "%.500s%s", why,
             item->removable ? "" : "; kept, since a builder is at work in it");
    return UPS_OK;
}

/* Temporary files inside a group that goes anyway are not offered a second time. */
static bool inside_removable(const ups_prune_list *list, int64_t from, const char *path) {
    for (int64_t i = from; i < list->count; i++) {
        size_t n = strlen(list->item[i].path);
        if (list->item[i].removable && strncmp(list->item[i].path, path, n) == 0 && path[n] == '/') return true;
    }
    return false;
}

ups_status ups_prune_find(const char *directory, const ups_prune_options *options, ups_prune_list *list,
                          ups_error *error) {
    ups_found_paths found;
    UPS_TRY(ups_cache_find(directory, &found, error));
    ups_status status = UPS_OK;
    int64_t from = list->count;
    for (int64_t i = 0; i < found.count && status == UPS_OK; i++) {
        status = offer_group(found.path[i], options, list, error);
    }
    for (int64_t i = 0; i < found.staged_count && status == UPS_OK; i++) {
        status = offer_staged(found.staged[i], options, list, error);
    }
    for (int64_t i = 0; i < found.partial_count && status == UPS_OK; i++) {
        if (!inside_removable(list, from, found.partial[i])) status = offer_partial(found.partial[i], list, error);
    }
    for (int64_t i = from; i < list->count; i++) list->bytes += list->item[i].removable ? list->item[i].bytes : 0;
    ups_found_paths_free(&found);
    return status;
}

ups_status ups_prune_remove(const ups_prune_item *item, ups_error *error) {
    if (!item->removable) return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is kept: %s", item->path, item->reason);
    if (item->kind == UPS_PRUNE_PARTIAL) {
        if (ups_partial_owner_of(last_name(item->path)) == UPS_PARTIAL_ABANDONED) {
            return ups_remove_tree(item->path, error);
        }
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is kept: its writer came to life", item->path);
    }
    if (item->kind == UPS_PRUNE_GIVEN_UP) {
        if (!is_built_below(item->path)) return ups_remove_tree_at_once(item->path, error);
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is kept: a builder is at work in it", item->path);
    }
    char *foreign = ups_cache_foreign_entry(item->path);
    ups_status status;
    if (foreign || is_being_built(item->path)) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: is kept: somebody has begun to work in it", item->path);
    } else {
        status = ups_remove_tree_at_once(item->path, error);
    }
    free(foreign);
    return status;
}

void ups_prune_list_free(ups_prune_list *list) {
    for (int64_t i = 0; i < list->count; i++) free(list->item[i].path);
    free(list->item);
    *list = (ups_prune_list){0};
}
