/* An open HDF5 file, as contents.c (what it contains) and map.c (where it keeps it) share it. */
#ifndef UPS_PIPELINE_HDF5_FILE_H
#define UPS_PIPELINE_HDF5_FILE_H

#include "pipeline/hdf5/library.h"
#include "pipeline/hdf5/storage.h"
#include <time.h>

struct ups_hdf5_file {
    char *path;
    int fd;   /* for reading what was mapped; negative once settled */
    hid_t id; /* the library's; negative once settled */
    uint64_t bytes;
    struct timespec modified; /* at opening */
    bool through_library;
    bool needed;        /* an array reads through the library */
    bool told_left_out; /* that attributes cannot be decoded: said once a file */
    ups_hdf5_note note;
};

/* Whether an object or attribute lies in this file: behind an external link it does not. */
bool ups_hdf5_is_of(const ups_hdf5_file *file, hid_t part);

/* ups_hdf5_map for reading at once: an array that stays with the library does not keep the file open. */
ups_status ups_hdf5_map_for_now(ups_hdf5_file *file, const char *name, ups_arena *arena, ups_stored_array *array,
                                ups_error *error);

#endif
