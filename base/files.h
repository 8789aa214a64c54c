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
ups_status ups_make_directories(const char *path, ups_error *error); /* like mkdir -p */
ups_status ups_file_size(const char *path, uint64_t *size, ups_error *error);

/* Reads a whole file; *bytes is NUL-terminated beyond *length and freed by the caller with free(). Refuses files over
 * `limit` bytes. */
ups_status ups_read_file(const char *path, uint64_t limit, char **bytes, size_t *length, ups_error *error);

/* A file being written, not yet visible under its name. */
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

/* All of the above for bytes already in memory. */
ups_status ups_publish_bytes(const char *path, const void *bytes, size_t length, ups_error *error);

/* Removes what killed writers left in a directory: temporary names (they match ".*.ups-partial-*") that no living
 * process of this host owns. */
ups_status ups_remove_partials(const char *directory, ups_error *error);

/* pwrite/pread until done; EINTR and short transfers handled; a read past the end is an error. `name` is for the
 * message. */
ups_status ups_write_at(int fd, const char *name, uint64_t offset, const void *bytes, size_t length, ups_error *error);
ups_status ups_read_at(int fd, const char *name, uint64_t offset, void *bytes, size_t length, ups_error *error);

#endif
