/* Finding caches in the wild: below any directory, at any depth, sound or not. */
#ifndef UPS_CACHE_INSPECT_FIND_H
#define UPS_CACHE_INSPECT_FIND_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct ups_found_paths {
    char **path; /* sorted as the walk goes: by name within a directory */
    int64_t count;
    char **partial; /* files and directories with temporary names, inside groups or not */
    int64_t partial_count;
    char **staged; /* directories UPS_CACHE_STAGED */
    int64_t staged_count;
} ups_found_paths;

/* Within the directory of a cache: where one is built that is to take its place. */
#define UPS_CACHE_STAGED ".next"

/* Every group at or below `directory`: what holds a directory `latent`, whose document may be what is lost, or a
 * zarr.json with attributes.ups. Hidden directories are passed over. Symbolic links are not followed, and directories
 * that cannot be read are passed over. None at all is no error; UPS_ERR_IO when `directory` itself cannot be read. */
ups_status ups_cache_find(const char *directory, ups_found_paths *found, ups_error *error);

/* The same for who must not miss one: symbolic links are followed, what cannot be read is UPS_ERR_IO, and none at all
 * UPS_ERR_FORMAT. Nothing within a group is looked at: temporary names there are not found. */
ups_status ups_cache_find_all(const char *directory, ups_found_paths *found, ups_error *error);
void ups_found_paths_free(ups_found_paths *found);

typedef struct ups_directory_size {
    uint64_t bytes; /* of the files, as they are long */
    int64_t files;
    time_t newest; /* latest modification of a file or directory in it */
} ups_directory_size;

/* Of a file, or of a directory with all below it. What vanishes meanwhile is not counted. */
ups_directory_size ups_directory_measure(const char *path);

/* The first entry of a group that is not part of a cache, relative to the group; NULL when all is. malloc. */
char *ups_cache_foreign_entry(const char *group);

#endif
