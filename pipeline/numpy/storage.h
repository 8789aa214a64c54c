/* NPY and NPZ files: their arrays, and where they lie. An NPY file and a member that is stored as it is are read in
 * place. A compressed member is inflated into memory once, when it is first read, and stays there while the file is
 * open. Errors name the file. */
#ifndef UPS_PIPELINE_NUMPY_STORAGE_H
#define UPS_PIPELINE_NUMPY_STORAGE_H

#include "base/arena.h"
#include "pipeline/numpy/header.h"
#include "pipeline/storage/stored_array.h"

typedef struct ups_numpy_file ups_numpy_file;

ups_status ups_numpy_open(const char *path, ups_numpy_file **file, ups_error *error);
bool ups_numpy_is_archive(const ups_numpy_file *file); /* NPZ */
void ups_numpy_settle(ups_numpy_file *file);           /* all is mapped */
void ups_numpy_close(ups_numpy_file *file);            /* what was inflated is gone. NULL is fine */

/* Names of the arrays ("" in an NPY file), which live as long as the file. */
int64_t ups_numpy_count(const ups_numpy_file *file);
const char *ups_numpy_name(const ups_numpy_file *file, int64_t index);

/* What an array's header says. */
ups_status ups_numpy_describe(ups_numpy_file *file, int64_t index, const ups_npy_header **header, ups_error *error);

/* Where it lies: its axes in the order in which they are stored, which is the reverse of the header's where that says
 * `fortran`. */
ups_status ups_numpy_map(ups_numpy_file *file, int64_t index, uint32_t file_index, ups_arena *arena,
                         ups_stored_array *array, ups_error *error);

#endif
