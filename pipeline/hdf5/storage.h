/* HDF5 files: what they contain and where they keep it. The library parses a file once, when it is opened; then it is
 * closed again, and the bytes are fetched and decoded without it (see stored_array.h). Only arrays whose storage we
 * cannot express stay with the library.
 *
 * Object names are paths from the root, without the first slash: "tensor", "0003/data". Errors name the file.
 * Thread-safe. */
#ifndef UPS_PIPELINE_HDF5_STORAGE_H
#define UPS_PIPELINE_HDF5_STORAGE_H

#include "base/arena.h"
#include "pipeline/storage/numbers.h"
#include "pipeline/storage/stored_array.h"

typedef struct ups_hdf5_file ups_hdf5_file;

/* For programs that are UPS alone, before anything else: the library then does not close at exit what is still open, of
 * which HDF5 1.10 complains on standard error where files were damaged. In a program that uses HDF5 itself it would
 * lose what that has not closed. */
void ups_hdf5_quiet_at_exit(void);

/* Opens a file for mapping. What it keeps in other files (external links, sources of virtual datasets, external
 * storage) is read where these lie below `root`, if the file itself does; otherwise, or with NULL, below the file's own
 * directory. With `through_library` every array will be read by the library. UPS_ERR_IO when it cannot
 * be opened at all, UPS_ERR_FORMAT when it is empty, truncated or no HDF5; the sentence says which, and what to do. */
ups_status ups_hdf5_open(const char *path, const char *root, bool through_library, ups_hdf5_file **file,
                         ups_error *error);
const char *ups_hdf5_path(const ups_hdf5_file *file);

/* UPS_ERR_IO or UPS_ERR_STALE when something of the file could not be read since it was opened, or is gone: then what
 * was found in it may not be all, though every call succeeded. Other errors when it refers to files that are missing or
 * not to be read. */
ups_status ups_hdf5_check_reads(const ups_hdf5_file *file, ups_error *error);

/* Closes the library's side unless an array needs it. Call when all is mapped; after it only reading mapped arrays is
 * allowed. */
void ups_hdf5_settle(ups_hdf5_file *file);
void ups_hdf5_close(
    ups_hdf5_file *file); /* arrays mapped from it can no longer be read through the library. NULL is fine */

typedef enum ups_hdf5_kind { UPS_HDF5_ABSENT, UPS_HDF5_GROUP, UPS_HDF5_DATASET } ups_hdf5_kind;
ups_hdf5_kind ups_hdf5_kind_of(ups_hdf5_file *file, const char *name);
/* Whether the library cannot open an object that ups_hdf5_list names, and why: it is damaged, or of a newer library. */
bool ups_hdf5_unreadable(ups_hdf5_file *file, const char *name, char reason[300]);

/* Names in a group ("" for the root), in the order of their bytes; allocated in `arena`. */
ups_status ups_hdf5_list(ups_hdf5_file *file, const char *group, ups_arena *arena, const char *const **names,
                         int64_t *count, ups_error *error);

/* Finds out where a numeric dataset lies. The array and what it points to live in `arena`; chunk tables too. */
ups_status ups_hdf5_map(ups_hdf5_file *file, const char *name, uint32_t file_index, ups_arena *arena,
                        ups_stored_array *array, ups_error *error);

/* Reads a numeric dataset of at most `limit` entries as doubles, into `arena`. */
ups_status ups_hdf5_read_numbers(ups_hdf5_file *file, const char *name, int64_t limit, ups_arena *arena,
                                 ups_numbers *numbers, ups_error *error);

/* The same of what lies at 0 along `axis`, which the numbers do not have: the first frame of all samples. */
ups_status ups_hdf5_read_first(ups_hdf5_file *file, const char *name, int axis, int64_t limit, ups_arena *arena,
                               ups_numbers *numbers, ups_error *error);

/* How many axes a numeric dataset has; no values are read. */
ups_status ups_hdf5_read_rank(ups_hdf5_file *file, const char *name, ups_arena *arena, int *rank, ups_error *error);

/* Reads a numeric rank-1 dataset of at most `limit` entries as doubles, into `arena`. */
ups_status ups_hdf5_read_axis(ups_hdf5_file *file, const char *name, int64_t limit, ups_arena *arena, double **values,
                              int64_t *count, ups_error *error);

/* Calls `visit` for each scalar attribute of an object ("" for the root): a number has text = NULL, a string its text.
 * Others are passed over. `visit` must not call back into this file. */
typedef void (*ups_hdf5_attribute_visitor)(void *context, const char *name, double number, const char *text);
ups_status ups_hdf5_attributes(ups_hdf5_file *file, const char *object, ups_hdf5_attribute_visitor visit, void *context,
                               ups_error *error);

/* One attribute, into `arena`. */
ups_status ups_hdf5_read_attribute(ups_hdf5_file *file, const char *object, const char *name, ups_arena *arena,
                                   ups_attribute *attribute, ups_error *error);

#endif
