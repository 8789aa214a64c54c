#include "base/files.h"

#include "base/hash.h"
#include "base/system/cancel.h"
#include "base/system/links.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

bool ups_path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool ups_path_is_same(const char *one, const char *other) {
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool ups_errno_is_absent(int number) {
    return number == ENOENT || number == ENOTDIR;
}

bool ups_path_is_absent(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 && ups_errno_is_absent(errno);
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The directory that `path` is an entry of. */
static ups_status sync_parent(const char *path, ups_error *error) {
    const char *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/') end--;
    while (end > path && end[-1] != '/') end--;
    while (end > path + 1 && end[-1] == '/') end--;
    char *parent = end == path ? strdup(".") : strndup(path, (size_t)(end - path));
    if (!parent) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to create the directory", path);
    ups_status status = ups_sync_directory(parent, error);
    free(parent);
    return status;
}

ups_status ups_make_directories(const char *path, ups_error *error) {
    char *prefix = strdup(path);
    if (!prefix) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to create the directory", path);
    ups_status status = UPS_OK;
    size_t length = strlen(prefix);
    for (size_t i = 1; i <= length && status == UPS_OK; i++) {
        if (i < length && prefix[i] != '/') continue;
        prefix[i] = '\0';
        int reason = mkdir(prefix, 0777) == 0 ? 0 : errno;
        if (reason != 0 && !is_directory(prefix)) {
            errno = reason; /* of mkdir: looking at the path set its own */
            status = reason == EEXIST ? ups_fail(error, UPS_ERR_IO,
                                                 "%s: cannot be created: %s is a file, not a directory", path, prefix)
                                      : ups_fail_errno(error, "%s: the directory cannot be created", prefix);
        }
        if (reason == 0) status = sync_parent(prefix, error);
        if (i < length) prefix[i] = '/';
    }
    free(prefix);
    return status;
}

ups_status ups_file_size(const char *path, uint64_t *size, ups_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) return ups_fail_errno(error, "%s", path);
    if (S_ISDIR(info.st_mode)) return ups_fail(error, UPS_ERR_IO, "%s: is a directory; a file was expected", path);
    *size = (uint64_t)info.st_size;
    return UPS_OK;
}

/* What a file is that is not a regular one. */
static const char *kind_name(mode_t mode) {
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a named pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

ups_status ups_open_regular(const char *path, int flags, int *fd, ups_error *error) {
    *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int reason = errno;
    struct stat info;
    bool known = (*fd >= 0 ? fstat(*fd, &info) : stat(path, &info)) == 0; /* a socket has no descriptor, only a name */
    if (known && !S_ISREG(info.st_mode)) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        return ups_fail(error, UPS_ERR_FORMAT, "%s: is %s; a regular file was expected", path, kind_name(info.st_mode));
    }
    if (*fd >= 0) {
        /* io_uring does not wait for the disk on behalf of a descriptor that is not to block. */
        int status_flags = flags & O_NONBLOCK ? 0 : fcntl(*fd, F_GETFL);
        if (known && (flags & O_NONBLOCK || fcntl(*fd, F_SETFL, status_flags & ~O_NONBLOCK) == 0)) return UPS_OK;
        reason = errno;
        close(*fd);
        *fd = -1;
    }
    errno = reason;
    ups_status status = ups_fail_errno(error, "%s: cannot be opened", path);
    errno = reason;
    return status;
}

/* Waits until there is something to read, or the end: of a pipe or a terminal for as long as nobody ends the command.
 */
static ups_status wait_for_bytes(int fd, const char *path, ups_error *error) {
    enum { LOOK_AFTER = 100 }; /* milliseconds */
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    for (;;) {
        const int ready = poll(&waiting, 1, LOOK_AFTER);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return UPS_OK; /* an error is met by read */
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "%s: cancelled while reading it", path);
    }
}

/* Reads what is left of `fd`, of about `size` bytes. */
static ups_status read_rest(int fd, const char *path, uint64_t size, uint64_t limit, char **bytes, size_t *length,
                            ups_error *error) {
    ups_status status = UPS_OK;
    size_t used = 0,
           capacity = (size_t)(size < limit ? size : limit) + 1; /* one more: shows that the end was reached */
    char *content = malloc(capacity + 1);
    if (!content) {
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it (%zu bytes)", path, capacity);
    }
    for (;;) {
        if (used > limit) {
            status = ups_fail(error, UPS_ERR_FORMAT, "%s: larger than the %llu bytes that are allowed here", path,
                              (unsigned long long)limit);
            goto cleanup;
        }
        if (used == capacity) { /* the file grew, or is one whose size the system does not know (a pipe, /proc) */
            char *larger = realloc(content, capacity * 2 + 1);
            if (!larger) {
                status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", path);
                goto cleanup;
            }
            content = larger;
            capacity *= 2;
        }
        status = wait_for_bytes(fd, path, error);
        if (status != UPS_OK) goto cleanup;
        ssize_t got = read(fd, content + used, capacity - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = ups_fail_errno(error, "%s: cannot be read", path);
            goto cleanup;
        }
        if (got == 0) break;
        used += (size_t)got;
    }
    content[used] = '\0';
    *bytes = content;
    *length = used;
    content = NULL;
cleanup:
    free(content);
    return status;
}

ups_status ups_read_regular(const char *path, uint64_t limit, char **bytes, size_t *length, ups_error *error) {
    *bytes = NULL;
    *length = 0;
    int fd;
    struct stat info;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
    ups_status status = fstat(fd, &info) == 0 ? read_rest(fd, path, (uint64_t)info.st_size, limit, bytes, length, error)
                                              : ups_fail_errno(error, "%s: cannot be read", path);
    close(fd);
    return status;
}

/* Names of what the shell opened for this process: its other end is there, or was. */
static bool is_inherited(const char *path) {
    return strncmp(path, "/dev/std", 8) == 0 || strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/", 6) == 0;
}

ups_status ups_read_file(const char *path, uint64_t limit, char **bytes, size_t *length, ups_error *error) {
    *bytes = NULL;
    *length = 0;
    uint64_t size;
    UPS_TRY(ups_file_size(path, &size, error));
    if (!is_inherited(path)) return ups_read_regular(path, limit, bytes, length, error);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return ups_fail_errno(error, "%s: cannot be opened", path);
    ups_status status = read_rest(fd, path, size, limit, bytes, length, error);
    close(fd);
    return status;
}

ups_status ups_write_at(int fd, const char *name, uint64_t offset, const void *bytes, size_t length, ups_error *error) {
    const char *at = bytes;
    while (length > 0) {
        ssize_t written = pwrite(fd, at, length, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0)
            return ups_fail_errno(error, "%s: cannot be written at byte %llu", name, (unsigned long long)offset);
        at += written;
        offset += (uint64_t)written;
        length -= (size_t)written;
    }
    return UPS_OK;
}

ups_status ups_read_at(int fd, const char *name, uint64_t offset, void *bytes, size_t length, ups_error *error) {
    char *at = bytes;
    while (length > 0) {
        ssize_t got = pread(fd, at, length, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ups_fail_errno(error, "%s: cannot be read at byte %llu", name, (unsigned long long)offset);
        if (got == 0) {
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: ends at or before byte %llu where %zu more bytes were expected: it is truncated", name,
                            (unsigned long long)offset, length);
        }
        at += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return UPS_OK;
}

int ups_sync_file(int fd) {
    int failed;
    do failed = fsync(fd);
    while (failed != 0 && errno == EINTR);
    return failed;
}

struct ups_publication {
    int fd;
    uint64_t appended; /* bytes written by ups_publish_append, which continues there */
    char *name;        /* for messages: as the caller said it, and where it leads */
    char *place, *temporary, *directory;
};

static const char marker[] = ".ups-partial-";

/* Tells in temporary names where process ids mean the same: on one host since it was started, in one container. */
static uint32_t place_tag(void) {
    char place[HOST_NAME_MAX + 1 + 64 + 64] = "";
    gethostname(place, HOST_NAME_MAX);
    size_t length = strlen(place);
    int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = boot >= 0 ? read(boot, place + length, 64) : -1;
    if (boot >= 0) close(boot);
    length += got > 0 ? (size_t)got : 0;
    got = readlink("/proc/self/ns/pid", place + length, 64);
    return (uint32_t)ups_hash_bytes(place, length + (got > 0 ? (size_t)got : 0)).low;
}

static unsigned long long drawn_process_tag;

static void draw_process_tag(void) {
    if (getrandom(&drawn_process_tag, sizeof drawn_process_tag, 0) == (ssize_t)sizeof drawn_process_tag) return;
    drawn_process_tag = (unsigned long long)time(NULL); /* a kernel without random numbers */
}

/* Tells this process from all others, whatever hosts and containers share the file system. */
static unsigned long long process_tag(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_process_tag);
    return drawn_process_tag;
}

static void release(ups_publication *publication) {
    if (publication->fd >= 0) close(publication->fd);
    free(publication->name);
    free(publication->place);
    free(publication->temporary);
    free(publication->directory);
    free(publication);
}

/* A temporary name beside `path` that nobody else uses, and the directory both are in; malloc. False: out of memory,
 * and what could be had is freed by the caller. */
static bool split_path(const char *path, char **temporary, char **directory) {
    static atomic_uint serial;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int length = slash ? (int)(slash - path) : 0;
    if (slash == path)
        *directory = strdup("/");
    else
        *directory = slash ? strndup(path, (size_t)length) : strdup(".");
    if (asprintf(temporary, "%.*s%s.%s%s%08x-%d-%016llx-%u", length, path, slash ? "/" : "", name, marker, place_tag(),
                 (int)getpid(), process_tag(), atomic_fetch_add(&serial, 1)) < 0) {
        *temporary = NULL;
    }
    return *directory && *temporary;
}

char *ups_temporary_name(const char *path) {
    char *temporary = NULL, *directory = NULL;
    if (!split_path(path, &temporary, &directory)) {
        free(temporary);
        temporary = NULL;
    }
    free(directory);
    return temporary;
}

/* "out.h5 (a link to /data/out.h5)"; malloc. */
static char *name_of(const char *path, const char *place) {
    char *name = NULL;
    if (strcmp(path, place) == 0) return strdup(path);
    return asprintf(&name, "%s (a link to %s)", path, place) < 0 ? NULL : name;
}

/* Whether there is something that renaming a file over it would wrongly replace: a device, a pipe, a socket. `path` is
 * asked, since links of /proc lead to what has no name. */
static ups_status check_place(const ups_publication *publication, const char *path, ups_error *error) {
    const char *place = publication->place, *slash = strrchr(place, '/');
    if (*(slash ? slash + 1 : place) == '\0')
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: names no file", publication->name);
    struct stat there;
    if (stat(path, &there) != 0 || S_ISREG(there.st_mode)) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is %s, not a file that can be replaced", publication->name,
                    S_ISDIR(there.st_mode) ? "a directory" : "a device or a pipe");
}

ups_status ups_publish_begin(const char *path, ups_publication **publication, ups_error *error) {
    *publication = NULL;
    ups_publication *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    made->fd = -1;
    ups_status status = ups_follow_links(path, &made->place, error);
    if (status == UPS_OK) {
        made->name = name_of(path, made->place);
        bool split = split_path(made->place, &made->temporary, &made->directory);
        status = made->name && split ? check_place(made, path, error)
                                     : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    }
    if (status == UPS_OK) {
        made->fd = open(made->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (made->fd < 0) status = ups_fail_errno(error, "%s: cannot be created", made->name);
    }
    if (status != UPS_OK) {
        release(made);
        return status;
    }
    *publication = made;
    return UPS_OK;
}

int ups_publish_descriptor(ups_publication *publication) {
    return publication->fd;
}

const char *ups_publish_temporary(const ups_publication *publication) {
    return publication->temporary;
}

ups_status ups_publish_append(ups_publication *publication, const void *bytes, size_t length, ups_error *error) {
    UPS_TRY(ups_write_at(publication->fd, publication->name, publication->appended, bytes, length, error));
    publication->appended += length;
    return UPS_OK;
}

ups_status ups_sync_directory(const char *path, ups_error *error) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ups_fail_errno(error, "%s: the directory cannot be opened", path);
    ups_status status = UPS_OK;
    /* EINVAL: a file system that has no directories to sync (FUSE, some network ones) */
    if (ups_sync_file(fd) != 0 && errno != EINVAL)
        status = ups_fail_errno(error, "%s: the directory cannot be synced", path);
    close(fd);
    return status;
}

ups_status ups_publish_commit(ups_publication *publication, ups_error *error) {
    ups_status status = UPS_OK;
    int fd = publication->fd;
    publication->fd = -1;
    if (ups_sync_file(fd) != 0) {
        status = ups_fail_errno(error, "%s: cannot be written to disk", publication->name);
        close(fd);
    } else if (close(fd) != 0) {
        status = ups_fail_errno(error, "%s: cannot be written to disk", publication->name);
    } else if (rename(publication->temporary, publication->place) != 0) {
        status = ups_fail_errno(error, "%s: cannot be put in place", publication->name);
    }
    if (status != UPS_OK)
        unlink(publication->temporary);
    else
        status = ups_sync_directory(publication->directory, error);
    release(publication);
    return status;
}

void ups_publish_abandon(ups_publication *publication) {
    if (!publication) return;
    unlink(publication->temporary);
    release(publication);
}

ups_status ups_publish_bytes(const char *path, const void *bytes, size_t length, ups_error *error) {
    ups_publication *publication = NULL;
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = ups_publish_append(publication, bytes, length, error);
    if (status != UPS_OK) {
        ups_publish_abandon(publication);
        return status;
    }
    return ups_publish_commit(publication, error);
}

ups_status ups_publish_bytes_once(const char *path, const void *bytes, size_t length, ups_error *error) {
    char *found = NULL;
    size_t found_length;
    bool there = ups_read_regular(path, length, &found, &found_length, NULL) == UPS_OK && found_length == length &&
                 memcmp(found, bytes, length) == 0;
    free(found);
    return there ? UPS_OK : ups_publish_bytes(path, bytes, length, error);
}

static ups_status append_all(int fd, const char *path, ups_publication *publication, ups_error *error) {
    enum { COPY_BYTES = 1 << 20 };
    char *buffer = malloc(COPY_BYTES);
    ups_status status = buffer ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    while (status == UPS_OK) {
        ssize_t got = read(fd, buffer, COPY_BYTES);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = ups_fail_errno(error, "%s: read failed", path);
        if (got <= 0) break;
        status = ups_publish_append(publication, buffer, (size_t)got, error);
    }
    free(buffer);
    return status;
}

ups_status ups_publish_copy(const char *from, const char *to, ups_error *error) {
    int fd;
    ups_publication *publication = NULL;
    UPS_TRY(ups_open_regular(from, O_RDONLY, &fd, error));
    ups_status status = ups_publish_begin(to, &publication, error);
    if (status == UPS_OK) {
        status = append_all(fd, from, publication, error);
        if (status == UPS_OK)
            status = ups_publish_commit(publication, error);
        else
            ups_publish_abandon(publication);
    }
    close(fd);
    return status;
}

/* ---- directories ---- */

struct ups_directory_publication {
    char *place, *temporary, *parent;
};

static void release_directory(ups_directory_publication *publication) {
    free(publication->place);
    free(publication->temporary);
    free(publication->parent);
    free(publication);
}

static void without_last_slashes(char *path) {
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
}

ups_status ups_publish_directory_begin(const char *path, ups_directory_publication **publication, ups_error *error) {
    *publication = NULL;
    ups_directory_publication *made = calloc(1, sizeof *made);
    char *plain = strdup(path);
    if (!made || !plain) {
        free(made);
        free(plain);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    }
    without_last_slashes(plain);
    ups_status status = ups_follow_links(plain, &made->place, error);
    free(plain);
    if (status == UPS_OK) {
        without_last_slashes(made->place); /* links may have some as well */
        if (!split_path(made->place, &made->temporary, &made->parent))
            status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
        else if (ups_path_exists(made->place))
            status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: is there already; remove it, or give another name", path);
        else if (mkdir(made->temporary, 0777) != 0)
            status = ups_fail_errno(error, "%s: cannot be created", path);
    }
    if (status != UPS_OK) {
        release_directory(made);
        return status;
    }
    *publication = made;
    return UPS_OK;
}

const char *ups_publish_directory_temporary(const ups_directory_publication *publication) {
    return publication->temporary;
}

ups_status ups_publish_directory_commit(ups_directory_publication *publication, ups_error *error) {
    ups_status status = ups_sync_directory(publication->temporary, error);
    if (status == UPS_OK && rename(publication->temporary, publication->place) != 0) {
        status = ups_fail_errno(error, "%s: cannot be put in place", publication->place);
    }
    if (status != UPS_OK)
        ups_remove_tree(publication->temporary, NULL);
    else
        status = ups_sync_directory(publication->parent, error);
    release_directory(publication);
    return status;
}

void ups_publish_directory_abandon(ups_directory_publication *publication) {
    if (!publication) return;
    ups_remove_tree(publication->temporary, NULL);
    release_directory(publication);
}

ups_status ups_remove_tree(const char *path, ups_error *error) {
    char *paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return ups_fail_errno(error, "%s: cannot be removed", path);
    ups_status status = UPS_OK;
    for (FTSENT *entry; status == UPS_OK && (entry = fts_read(walk));) {
        if (entry->fts_info == FTS_D) continue; /* on the way down */
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
            errno = entry->fts_errno;
            if (errno != ENOENT || entry->fts_level == FTS_ROOTLEVEL) /* below, another may be removing it as well */
                status = ups_fail_errno(error, "%s: cannot be removed", entry->fts_path);
        } else if ((entry->fts_info == FTS_DP ? rmdir(entry->fts_path) : unlink(entry->fts_path)) != 0 &&
                   errno != ENOENT) {
            status = ups_fail_errno(error, "%s: cannot be removed", entry->fts_path);
        }
    }
    fts_close(walk);
    return status;
}

ups_status ups_remove_tree_at_once(const char *path, ups_error *error) {
    char *temporary = NULL, *parent = NULL;
    ups_status status = UPS_OK;
    if (!split_path(path, &temporary, &parent)) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to remove it", path);
    } else if (rename(path, temporary) != 0) {
        status = ups_fail_errno(error, "%s: cannot be removed", path);
    } else {
        status = ups_remove_tree(temporary, error);
    }
    free(temporary);
    free(parent);
    return status;
}

/* ---- what killed writers leave ---- */

/* One that has ended writes nothing, also where nobody has waited for it yet: in a container, whose first process may
 * never. */
static bool is_running(int pid) {
    char path[40], text[512]; /* "PID (name, which may be any) STATE …" */
    if (kill(pid, 0) != 0 && errno == ESRCH) return false;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0) close(file);
    if (got <= 0) return true;
    text[got] = '\0';
    const char *name_end = strrchr(text, ')');
    return !name_end || strncmp(name_end, ") Z", 3) != 0;
}

ups_partial_owner ups_partial_owner_of(const char *name) {
    const char *found = name[0] == '.' ? strstr(name, marker) : NULL;
    for (const char *later = found; later; later = strstr(later + 1, marker)) found = later;
    unsigned place, serial;
    unsigned long long process;
    int pid, used = 0;
    if (!found || sscanf(found + strlen(marker), "%8x-%d-%16llx-%u%n", &place, &pid, &process, &serial, &used) != 4) {
        return UPS_PARTIAL_NONE;
    }
    if (found[strlen(marker) + (size_t)used] != '\0' || pid <= 0) return UPS_PARTIAL_NONE;
    if (place != place_tag()) return UPS_PARTIAL_FOREIGN;
    if (pid == getpid()) return process == process_tag() ? UPS_PARTIAL_ALIVE : UPS_PARTIAL_ABANDONED;
    return is_running(pid) ? UPS_PARTIAL_ALIVE : UPS_PARTIAL_ABANDONED;
}

/* unlinkat, or for a directory its whole tree. */
static ups_status remove_entry(const char *directory, int descriptor, const char *name, ups_error *error) {
    if (unlinkat(descriptor, name, 0) == 0 || errno == ENOENT) return UPS_OK;
    if (errno != EISDIR && errno != EPERM) return ups_fail_errno(error, "%s/%s: cannot be removed", directory, name);
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    ups_status status = ups_remove_tree(path, error);
    free(path);
    return status;
}

/* Another host's, or of this one before it was started anew: nobody can be asked, but nobody writes nothing for so long
 * either. */
static bool is_old(int descriptor, const char *name) {
    enum { DAY = 24 * 60 * 60 };
    struct stat info;
    return fstatat(descriptor, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - info.st_mtime > DAY;
}

/* Those of files whose temporary names begin with `prefix`; NULL: of all. */
static ups_status remove_partials(const char *directory, const char *prefix, ups_error *error) {
    DIR *stream = opendir(directory);
    if (!stream) return ups_fail_errno(error, "%s: the directory cannot be opened", directory);
    ups_status status = UPS_OK;
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(stream));) {
        if (prefix && strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        ups_partial_owner owner = ups_partial_owner_of(entry->d_name);
        bool foreign = owner == UPS_PARTIAL_FOREIGN && is_old(dirfd(stream), entry->d_name);
        if (owner != UPS_PARTIAL_ABANDONED && !foreign) continue;
        status = remove_entry(directory, dirfd(stream), entry->d_name, error);
    }
    closedir(stream);
    return status;
}

ups_status ups_remove_partials(const char *directory, ups_error *error) {
    return remove_partials(directory, NULL, error);
}

void ups_remove_partials_of(const char *path) {
    char *place;
    if (ups_follow_links(path, &place, NULL) != UPS_OK) return;
    const char *slash = strrchr(place, '/');
    char *directory = slash ? strndup(place, (size_t)(slash - place) + 1) : strdup("."), *prefix = NULL;
    if (asprintf(&prefix, ".%s%s", slash ? slash + 1 : place, marker) < 0) prefix = NULL;
    if (directory && prefix) remove_partials(directory, prefix, NULL);
    free(prefix);
    free(directory);
    free(place);
}

/* What need not be there yet has no links to follow. */
char *ups_path_absolute(const char *path) {
    char resolved[PATH_MAX], *made = NULL;
    if (!path[0]) return strdup(path);
    if (realpath(path, resolved)) return strdup(resolved);
    if (path[0] == '/' || !getcwd(resolved, sizeof resolved)) return strdup(path);
    return asprintf(&made, "%s/%s", resolved, path) < 0 ? NULL : made;
}

bool ups_free_space(const char *path, uint64_t *bytes) {
    char *at = ups_path_absolute(path);
    struct statvfs room;
    bool known = at && statvfs(at, &room) == 0;
    while (at && !known && ups_errno_is_absent(errno) && at[0] == '/' && at[1]) { /* the folder above */
        char *slash = strrchr(at, '/');
        slash[slash == at] = '\0';
        known = statvfs(at, &room) == 0;
    }
    if (known) *bytes = (uint64_t)room.f_bavail * room.f_frsize;
    free(at);
    return known;
}
