/* Files that are either complete or absent. What others may read is written beside its place under a temporary name,
 * synced, and renamed; the directory is synced too. A process killed at any moment leaves the old file or the new one,
 * never half of one. */
#ifndef UPS_BASE_FILES_H
#define UPS_BASE_FILES_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

bool ups_path_exists(const char *path);
/* Both name the same file, also through links of either kind. */
bool ups_path_is_same(const char *one, const char *other);
/* From the root; "" stays. Free with free(); NULL: no memory. */
char *ups_path_absolute(const char *path);
/* Nothing has this name. Where the system does not tell (no rights, a failing disk) neither this nor ups_path_exists is
 * true. */
bool ups_path_is_absent(const char *path);
bool ups_errno_is_absent(int number);                                /* ENOENT or ENOTDIR */
ups_status ups_make_directories(const char *path, ups_error *error); /* like mkdir -p */
ups_status ups_file_size(const char *path, uint64_t *size, ups_error *error);
/* Bytes that may still be written where `path` is, or is to be made. False where the system does not tell. */
bool ups_free_space(const char *path, uint64_t *bytes);

/* Opens a regular file, or what a link leads to, with open's `flags` (O_CLOEXEC is added). A pipe, a socket, a device
 * or a directory is refused by name (UPS_ERR_FORMAT), at once: opening a pipe nobody writes to would wait for ever.
 * What cannot be opened is UPS_ERR_IO, errno as open left it. On failure *fd is −1. */
ups_status ups_open_regular(const char *path, int flags, int *fd, ups_error *error);

/* Reads a whole file; *bytes is NUL-terminated beyond *length and freed by the caller with free(). Refuses files over
 * `limit` bytes. */
ups_status ups_read_regular(const char *path, uint64_t limit, char **bytes, size_t *length, ups_error *error);
/* The same also of what the shell opened for this process (/dev/stdin, /dev/fd/63): a pipe, or a terminal. Waiting for
 * it ends with UPS_ERR_CANCELLED where the command is to end. */
ups_status ups_read_file(const char *path, uint64_t limit, char **bytes, size_t *length, ups_error *error);

/* A file being written, not yet visible under its name. A name that is a symbolic link stays one: its target is
 * written. */
typedef struct ups_publication ups_publication;
ups_status ups_publish_begin(const char *path, ups_publication **publication, ups_error *error);
int ups_publish_descriptor(
    ups_publication *publication); /* for writes of the caller's own, at positions of its own choice */
const char *ups_publish_temporary(
    const ups_publication *publication); /* its name while unpublished, for libraries that open by name (HDF5) */
ups_status ups_publish_append(ups_publication *publication, const void *bytes, size_t length, ups_error *error);
/* Sync, rename into place, sync the directory, free. On failure nothing remains, unless it was the directory that could
 * not be synced: then the file is in place, and may be gone after a crash of the machine. */
ups_status ups_publish_commit(ups_publication *publication, ups_error *error);
void ups_publish_abandon(ups_publication *publication); /* removes the temporary file and frees; NULL is fine */

/* Makes names put into or taken out of a directory outlive a crash of the machine. */
int ups_sync_file(int fd); /* fsync, again when a signal came in between; 0, or −1 with errno set */
ups_status ups_sync_directory(const char *path, ups_error *error);

/* All of the above for bytes already in memory. */
ups_status ups_publish_bytes(const char *path, const void *bytes, size_t length, ups_error *error);
/* The same, unless a file of exactly these bytes is there: then nothing is written. */
ups_status ups_publish_bytes_once(const char *path, const void *bytes, size_t length, ups_error *error);
/* A regular file's bytes under another name. */
ups_status ups_publish_copy(const char *from, const char *to, ups_error *error);

/* The same for a directory: a fresh one under a temporary name beside `path`, which the caller fills with files that
 * are synced themselves. Refused (UPS_ERR_ARGUMENT) when `path` is there already: what stands there may be dear. */
typedef struct ups_directory_publication ups_directory_publication;
ups_status ups_publish_directory_begin(const char *path, ups_directory_publication **publication, ups_error *error);
const char *ups_publish_directory_temporary(const ups_directory_publication *publication);
/* Rename into place, sync the parent, free. On failure nothing remains. */
ups_status ups_publish_directory_commit(ups_directory_publication *publication, ups_error *error);
void ups_publish_directory_abandon(ups_directory_publication *publication); /* removes it all and frees; NULL is fine */

/* Removes a file, or a directory with all below it; symbolic links are removed, not followed. */
ups_status ups_remove_tree(const char *path, ups_error *error);
/* The same for what others may be looking at: it loses its name at once, then goes. Killed between the two, what is
 * left has a temporary name. */
ups_status ups_remove_tree_at_once(const char *path, ups_error *error);

/* Whose a temporary name (".*.ups-partial-*") is. */
typedef enum ups_partial_owner {
    UPS_PARTIAL_NONE,      /* not a temporary name of ours */
    UPS_PARTIAL_ABANDONED, /* of a process of this host and container that has ended */
    UPS_PARTIAL_ALIVE,     /* of one that runs */
    UPS_PARTIAL_FOREIGN    /* of another host or container: its processes cannot be asked */
} ups_partial_owner;
ups_partial_owner ups_partial_owner_of(const char *name); /* without directories */

/* Such a name beside `path` that nobody else uses. Free with free(); NULL: no memory. */
char *ups_temporary_name(const char *path);

/* Removes what killed writers left in a directory: abandoned temporary names, files and directories. */
ups_status ups_remove_partials(const char *directory, ups_error *error);
/* Those alone that were to become `path`. For a file in a directory where anything may lie. */
void ups_remove_partials_of(const char *path);

/* pwrite/pread until done; EINTR and short transfers handled; a read past the end is an error. `name` is for the
 * message. */
ups_status ups_write_at(int fd, const char *name, uint64_t offset, const void *bytes, size_t length, ups_error *error);
ups_status ups_read_at(int fd, const char *name, uint64_t offset, void *bytes, size_t length, ups_error *error);

#endif
