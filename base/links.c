#include "base/links.h"

#include <errno.h>
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

ups_status ups_follow_links(const char *path, char **place, ups_error *error) {
    *place = NULL;
    /* The system judges first: it may refuse to follow a link that another user left in /tmp (fs.protected_symlinks),
     * which reading the link by oneself would pass over. */
    struct stat there;
    if (stat(path, &there) != 0 && errno != ENOENT)
        return errno == ELOOP ? say_circle(path, error) : ups_fail_errno(error, "%s: cannot be created", path);
    char *at = strdup(path);
    for (int followed = 0; at && followed <= MOST_LINKS; followed++) {
        char text[PATH_MAX];
        ssize_t length = readlink(at, text, sizeof text - 1);
        if (length < 0) { /* no link, or nothing there */
            *place = at;
            return UPS_OK;
        }
        text[length] = '\0';
        char *next = join(at, text);
        free(at);
        at = next;
    }
    if (!at) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    free(at);
    return say_circle(path, error); /* made while we looked */
}
