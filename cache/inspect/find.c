#include "cache/inspect/find.h"

#include "base/files.h"
#include "base/json.h"
#include "cache/build/leases.h"
#include "cache/store/zarr.h"
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- finding ---- */

static bool has_latents(const char *directory) {
    char *path = NULL;
    struct stat info;
    if (asprintf(&path, "%s/" UPS_CACHE_LATENT, directory) < 0) return false;
    bool there = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    free(path);
    return there;
}

/* A zarr.json with attributes.ups; what cannot be parsed is not known to be ours. */
static bool says_it_is_ours(const char *directory) {
    char *path = NULL;
    json_t *document = NULL;
    if (asprintf(&path, "%s/zarr.json", directory) < 0) return false;
    bool ours = ups_path_exists(path) && ups_json_read(path, &document, NULL) == UPS_OK &&
                json_is_object(json_object_get(json_object_get(document, "attributes"), "ups"));
    json_decref(document);
    free(path);
    return ours;
}

static bool is_array(const char *name) {
    static const char *const arrays[] = {UPS_CACHE_LATENT,        UPS_CACHE_CONDITION,  UPS_CACHE_TIME,
                                         UPS_CACHE_SOURCE_SAMPLE, UPS_CACHE_STATISTICS, UPS_CACHE_SHARDS};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (strcmp(name, arrays[i]) == 0) return true;
    }
    return false;
}

/* Whether it could be a group that lost its latents: it has arrays, or no directories at all. One with other
 * directories lies above groups, whatever its document says: that may be a group's, by mistake. */
static bool could_be_group(const char *directory) {
    DIR *open = opendir(directory);
    bool arrays = false, others = false;
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        struct stat info;
        if (entry->d_name[0] == '.' || fstatat(dirfd(open), entry->d_name, &info, 0) != 0 || !S_ISDIR(info.st_mode))
            continue;
        if (is_array(entry->d_name))
            arrays = true;
        else
            others = true;
    }
    if (open) closedir(open);
    return arrays || !others;
}

static ups_status append(char ***list, int64_t *count, const char *path, ups_error *error) {
    char **longer = realloc(*list, (size_t)(*count + 1) * sizeof **list), *copy = strdup(path);
    if (longer) *list = longer;
    if (!longer || !copy) {
        free(copy);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to remember it", path);
    }
    (*list)[(*count)++] = copy;
    return UPS_OK;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* One step of the walk. */
static ups_status visit(FTS *walk, FTSENT *entry, bool all, ups_found_paths *found, ups_error *error) {
    bool top = entry->fts_level == FTS_ROOTLEVEL, is_directory = entry->fts_info == FTS_D;
    bool unreadable = entry->fts_info == FTS_NS || entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR;
    if ((top || all) && unreadable) {
        errno = entry->fts_errno;
        return ups_fail_errno(error, "%s: cannot be read", entry->fts_path);
    }
    if (top && entry->fts_info == FTS_F)
        return ups_fail(error, UPS_ERR_IO, "%s: is a file; a directory was expected", entry->fts_path);
    if (entry->fts_info == FTS_DP) return UPS_OK;
    if (!top && ups_partial_owner_of(entry->fts_name) != UPS_PARTIAL_NONE) {
        fts_set(walk, entry, FTS_SKIP);
        return append(&found->partial, &found->partial_count, entry->fts_path, error);
    }
    bool hidden = !top && entry->fts_name[0] == '.';
    if (is_directory && hidden && !all && strcmp(entry->fts_name, UPS_CACHE_STAGED) == 0)
        UPS_TRY(append(&found->staged, &found->staged_count, entry->fts_path, error));
    bool is_group =
        is_directory && !hidden &&
        (has_latents(entry->fts_path) || (says_it_is_ours(entry->fts_path) && could_be_group(entry->fts_path)));
    if (is_directory && (hidden || (is_group && all))) fts_set(walk, entry, FTS_SKIP);
    return is_group ? append(&found->path, &found->count, entry->fts_path, error) : UPS_OK;
}

static ups_status find(const char *directory, bool all, ups_found_paths *found, ups_error *error) {
    *found = (ups_found_paths){0};
    char *root = strdup(directory);
    if (!root) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--) root[n - 1] = '\0';
    char *paths[] = {root, NULL};
    FTS *walk = fts_open(paths, FTS_NOCHDIR | (all ? FTS_LOGICAL : FTS_PHYSICAL | FTS_COMFOLLOW), by_name);
    ups_status status = walk ? UPS_OK : ups_fail_errno(error, "%s: cannot be read", root);
    for (FTSENT *entry; status == UPS_OK && (entry = fts_read(walk));) status = visit(walk, entry, all, found, error);
    if (walk) fts_close(walk);
    if (status == UPS_OK && all && found->count == 0) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: no latent cache was found in it or in its directories (nothing holds an array `latent`)",
                          root);
    }
    free(root);
    if (status != UPS_OK) ups_found_paths_free(found);
    return status;
}

ups_status ups_cache_find(const char *directory, ups_found_paths *found, ups_error *error) {
    return find(directory, false, found, error);
}

ups_status ups_cache_find_all(const char *directory, ups_found_paths *found, ups_error *error) {
    return find(directory, true, found, error);
}

void ups_found_paths_free(ups_found_paths *found) {
    for (int64_t i = 0; i < found->count; i++) free(found->path[i]);
    for (int64_t i = 0; i < found->partial_count; i++) free(found->partial[i]);
    for (int64_t i = 0; i < found->staged_count; i++) free(found->staged[i]);
    free(found->path);
    free(found->partial);
    free(found->staged);
    *found = (ups_found_paths){0};
}

/* ---- what is in a directory ---- */

ups_directory_size ups_directory_measure(const char *path) {
    ups_directory_size size = {0};
    char *paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; walk && (entry = fts_read(walk));) {
        if (entry->fts_info != FTS_F && entry->fts_info != FTS_D) continue;
        if (entry->fts_statp->st_mtime > size.newest) size.newest = entry->fts_statp->st_mtime;
        if (entry->fts_info != FTS_F) continue;
        size.bytes += (uint64_t)entry->fts_statp->st_size;
        size.files++;
    }
    if (walk) fts_close(walk);
    return size;
}

static bool all_digits(const char *name) {
    return *name && name[strspn(name, "0123456789")] == '\0';
}

/* Within an array's directory: zarr.json, c, and numbers below c. */
static bool belongs(const FTSENT *entry) {
    const char *name = entry->fts_name;
    if (entry->fts_info != FTS_F && entry->fts_info != FTS_D) return false;
    if (ups_partial_owner_of(name) != UPS_PARTIAL_NONE) return true;
    if (entry->fts_level == 1 && entry->fts_info == FTS_D) {
        return is_array(name);
    }
    if (strcmp(name, "zarr.json") == 0) return entry->fts_info == FTS_F && entry->fts_level <= 2;
    if (entry->fts_level == 2) return strcmp(name, "c") == 0 && entry->fts_info == FTS_D;
    return entry->fts_level > 2 && all_digits(name);
}

char *ups_cache_foreign_entry(const char *group) {
    char *paths[] = {(char *)group, NULL}, *foreign = NULL;
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return strdup(".");
    for (FTSENT *entry; !foreign && (entry = fts_read(walk));) {
        if (entry->fts_level == FTS_ROOTLEVEL || entry->fts_info == FTS_DP) continue;
        if (entry->fts_level == 1 && entry->fts_info == FTS_D && strcmp(entry->fts_name, UPS_LEASES_FOLDER) == 0) {
            fts_set(walk, entry, FTS_SKIP); /* whatever builders keep there */
        } else if (!belongs(entry)) {
            foreign = strdup(entry->fts_path + strlen(group) + 1);
        }
    }
    fts_close(walk);
    return foreign;
}
