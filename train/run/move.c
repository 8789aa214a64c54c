#include "train/run/move.h"

#include "base/files.h"
#include "base/system/links.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

ups_status ups_run_share_file(const char *from, const char *to, ups_error *error) {
    if (link(from, to) == 0) return UPS_OK;
    bool impossible = errno == EXDEV || errno == EPERM || errno == EMLINK || errno == EOPNOTSUPP || errno == ENOSYS;
    return impossible ? ups_publish_copy(from, to, error)
                      : ups_fail_errno(error, "%s: cannot be linked to %s", to, from);
}

ups_status ups_run_share_tree(const char *from, const char *to, ups_error *error) {
    UPS_TRY(ups_make_directories(to, error));
    DIR *listing = opendir(from);
    if (!listing) return ups_fail_errno(error, "%s: cannot be listed", from);
    ups_status status = UPS_OK;
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(listing));) {
        char *source = NULL, *target = NULL;
        struct stat info;
        if (entry->d_name[0] == '.') continue;
        if (asprintf(&source, "%s/%s", from, entry->d_name) < 0 || asprintf(&target, "%s/%s", to, entry->d_name) < 0)
            status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        else if (lstat(source, &info) != 0)
            status = ups_fail_errno(error, "%s: cannot be looked at", source);
        else if (S_ISDIR(info.st_mode))
            status = ups_run_share_tree(source, target, error);
        else if (S_ISREG(info.st_mode))
            status = ups_run_share_file(source, target, error);
        free(source);
        free(target);
    }
    closedir(listing);
    if (status == UPS_OK) status = ups_sync_directory(to, error);
    return status;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

static ups_status fail_move(const char *from, const char *to, ups_error *error) {
    return ups_fail_errno(error, "%s: cannot be moved to %s", from, to);
}

/* `from` takes the place of `to` within a file system, or *crosses: they lie on two, and nothing has happened. An old
 * directory is renamed aside, to a name that those of killed commands are removed by, before it goes. */
static ups_status put(const char *from, const char *to, bool *crosses, ups_error *error) {
    *crosses = false;
    if (rename(from, to) == 0) return UPS_OK;
    if (errno == EXDEV) *crosses = true;
    if (*crosses) return UPS_OK;
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_move(from, to, error);
    char *aside = ups_temporary_name(to);
    if (!aside) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = rename(to, aside) == 0 ? UPS_OK : fail_move(from, to, error);
    if (status == UPS_OK && rename(from, to) != 0) {
        *crosses = errno == EXDEV;
        if (!*crosses) status = fail_move(from, to, error);
        if (rename(aside, to) != 0 && status == UPS_OK) status = fail_move(aside, to, error);
    } else if (status == UPS_OK) {
        status = ups_remove_tree(aside, error);
    }
    free(aside);
    return status;
}

/* By a copy beside `to`. The original goes at once, so that what is left of it when killed is not taken for the whole.
 */
static ups_status put_copy(const char *from, const char *to, ups_error *error) {
    struct stat entry;
    ups_error after;
    bool crosses;
    char *ready = ups_temporary_name(to);
    if (!ready) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = lstat(from, &entry) != 0 ? ups_fail_errno(error, "%s: cannot be looked at", from)
                        : S_ISDIR(entry.st_mode) ? ups_run_share_tree(from, ready, error)
                                                 : ups_run_share_file(from, ready, error);
    if (status == UPS_OK) status = put(ready, to, &crosses, error);
    if (status == UPS_OK && crosses) {
        status = ups_fail(error, UPS_ERR_IO,
                          "%s: cannot be replaced, since it is where another file system begins; "
                          "a symbolic link to a directory within that one can be in its place",
                          to);
    }
    if (status == UPS_OK)
        status = ups_remove_tree_at_once(from, error);
    else if (ups_path_exists(ready))
        ups_remove_tree(ready, &after);
    free(ready);
    return status;
}

/* Where a directory of the name `to` lies. Free with free(). */
static ups_status find_place(const char *to, bool is_directory, char **place, ups_error *error) {
    struct stat entry;
    if (is_directory && lstat(to, &entry) == 0 && S_ISLNK(entry.st_mode)) return ups_follow_links(to, place, error);
    *place = strdup(to);
    return *place ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

ups_status ups_run_move(const char *from, const char *to, ups_error *error) {
    struct stat entry;
    ups_remove_partials_of(to);
    if (lstat(from, &entry) != 0) {
        return ups_errno_is_absent(errno) ? UPS_OK : ups_fail_errno(error, "%s: cannot be looked at", from);
    }
    char *place = NULL;
    bool crosses = false;
    UPS_TRY(find_place(to, S_ISDIR(entry.st_mode), &place, error));
    char *parent = strdup(place), *slash = parent ? strrchr(parent, '/') : NULL;
    ups_status status = slash ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (slash) *slash = '\0';
    if (status == UPS_OK) status = ups_make_directories(parent, error);
    if (status == UPS_OK) status = put(from, place, &crosses, error);
    if (status == UPS_OK && crosses) status = put_copy(from, place, error);
    if (status == UPS_OK) status = ups_sync_directory(parent, error);
    free(parent);
    free(place);
    return status;
}
