#include "base/system/links.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINKS 40 /* one after the other, as Linux has it */

static ups_status say_circle(const char *path, ups_error *error) {
    return ups_fail(
        error, UPS_ERR_IO,
        "%s: cannot be created: its symbolic links lead round in a circle; remove the link, or give another "
        "name",
        path);
}

/* A link's text is relative to the directory that the link is in. */
static char *join(const char *link, const char *text) {
    const char *slash = strrchr(link, '/');
    int directory = slash && text[0] != '/' ? (int)(slash - link) + 1 : 0;
    char *joined = NULL;
    return asprintf(&joined, "%.*s%s", directory, link, text) < 0 ? NULL : joined;
}

/* Anybody may leave links in /tmp and its like. There only those of this user, and of the directory's owner, are
 * followed, as the system does it (fs.protected_symlinks) where it is told to. */
static bool is_trusted(const char *link, const struct stat *of) {
    const char *slash = strrchr(link, '/');
    char *directory = slash ? strndup(link, slash == link ? 1 : (size_t)(slash - link)) : strdup(".");
    struct stat around;
    bool known = directory && stat(directory, &around) == 0;
    free(directory);
    if (!known) return false;
    bool shared = (around.st_mode & S_ISVTX) && (around.st_mode & S_IWOTH);
    return !shared || of->st_uid == geteuid() || of->st_uid == around.st_uid;
}

/* The text of a link, and whether `path` is one: asked of one and the same file. */
static ups_status read_link(const char *path, char text[PATH_MAX], bool *is_link, ups_error *error) {
    struct stat of;
    int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    *is_link = file >= 0 && fstat(file, &of) == 0 && S_ISLNK(of.st_mode);
    ssize_t length = *is_link ? readlinkat(file, "", text, PATH_MAX - 1) : 0;
    if (file >= 0) close(file);
    if (!*is_link) return UPS_OK; /* or nothing is there */
    if (length < 0) return ups_fail_errno(error, "%s: cannot be created", path);
    text[length] = '\0';
    if (is_trusted(path, &of)) return UPS_OK;
    return ups_fail(error, UPS_ERR_IO,
                    "%s: cannot be created: another user left a symbolic link of this name where anybody may; remove "
                    "it, or give another name",
                    path);
}

ups_status ups_follow_links(const char *path, char **place, ups_error *error) {
    *place = NULL;
    struct stat there;
    if (stat(path, &there) != 0 && errno != ENOENT)
        return errno == ELOOP ? say_circle(path, error) : ups_fail_errno(error, "%s: cannot be created", path);
    char *at = strdup(path), text[PATH_MAX];
    for (int followed = 0; at && followed <= MOST_LINKS; followed++) {
        bool is_link;
        ups_status status = read_link(at, text, &is_link, error);
        if (status == UPS_OK && !is_link) {
            *place = at;
            return UPS_OK;
        }
        char *next = status == UPS_OK ? join(at, text) : NULL;
        free(at);
        if (status != UPS_OK) return status;
        at = next;
    }
    if (!at) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    free(at);
    return say_circle(path, error); /* made while we looked */
}
