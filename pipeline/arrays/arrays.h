/* Files of named arrays, whatever their format: HDF5, NetCDF, NPY, NPZ and Zarr seen alike. What they contain, where
 * they keep an array (a stored array, which is read without them), and small numbers.
 *
 * Names are paths from the root without the first slash; the array of an NPY file, and a Zarr store that is one array,
 * are called by any name, "" among them. Errors name the file. Not thread-safe while it is mapped. */
#ifndef UPS_PIPELINE_ARRAYS_ARRAYS_H
#define UPS_PIPELINE_ARRAYS_ARRAYS_H

#include "pipeline/arrays/found.h"

typedef struct ups_arrays ups_arrays;

/* True for what only this module opens: NPY, NPZ, and folders that are a Zarr store. *format is then its name. */
bool ups_arrays_are_foreign(const char *path, const char **format);

/* Opens a file or store. `files` gets the paths that will be read, and is borrowed until it is settled. For
 * `through_library` and `root` see ups_layout_options. */
ups_status ups_arrays_open(const char *path, const char *root, bool through_library, ups_file_list *files,
                           ups_arrays **arrays, ups_error *error);
const char *ups_arrays_format(const ups_arrays *arrays); /* "HDF5", "NPZ", … */
uint32_t ups_arrays_file(const ups_arrays *arrays);      /* its index in `files` */

/* All arrays, in `arena`; at most a thousand. */
ups_status ups_arrays_list(ups_arrays *arrays, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                           ups_error *error);

/* Finds out where an array of numbers lies. A name that is not there is UPS_ERR_FORMAT with a list of those that are.
 */
ups_status ups_arrays_map(ups_arrays *arrays, const char *name, ups_arena *arena, ups_found_array *found,
                          ups_error *error);

/* Reads an array of at most `limit` entries as doubles, axes as a user counts them, into `arena`. */
ups_status ups_arrays_read(ups_arrays *arrays, const char *name, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                           ups_error *error);

/* The same of what has the index 0 along an axis, which keeps its place with one entry: the first frame of many. */
ups_status ups_arrays_read_first(ups_arrays *arrays, const char *name, int axis, int64_t limit, ups_arena *arena,
                                 ups_numbers *numbers, ups_error *error);

/* Reads an attribute of an array or group; of the file itself with object "". */
ups_status ups_arrays_attribute(ups_arrays *arrays, const char *object, const char *name, ups_arena *arena,
                                ups_attribute *attribute, ups_error *error);

/* Calls `visit` for each attribute of the file, or of an object, that is one number. `visit` must not call back. */
ups_status ups_arrays_each_number(ups_arrays *arrays, const char *object, ups_number_visitor visit, void *context,
                                  ups_error *error);

/* Whether the file was read well so far, whatever seems to be wrong with what was in it. */
ups_status ups_arrays_check(const ups_arrays *arrays, ups_error *error);
void ups_arrays_settle(ups_arrays *arrays); /* all is mapped: closes what reading does not need */
void ups_arrays_close(ups_arrays *arrays);  /* mapped arrays can no longer be read. NULL is fine */

#endif
