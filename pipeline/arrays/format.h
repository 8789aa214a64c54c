/* What a format implements for arrays.h. */
#ifndef UPS_PIPELINE_ARRAYS_FORMAT_H
#define UPS_PIPELINE_ARRAYS_FORMAT_H

#include "pipeline/arrays/found.h"

typedef struct ups_arrays_options {
    const char *root;
    bool through_library;
} ups_arrays_options;

typedef struct ups_arrays_format_class {
    const char *name;
    /* Opens it; *file is the path that stands for it among the source's files, in `arena`. On failure nothing is left.
     */
    ups_status (*open)(const char *path, const ups_arrays_options *options, ups_arena *arena, void **handle,
                       const char **file, ups_error *error);
    ups_status (*list)(void *handle, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                       ups_error *error);
    /* *is_there false: there is no such array, and nothing else is set. `array` and `axis_of` are as in
     * ups_found_array, in a state of zeros and of the identity. */
    ups_status (*map)(void *handle, const char *name, uint32_t file, ups_file_list *files, ups_arena *arena,
                      ups_found_array *found, bool *is_there, ups_error *error);
    /* The same for reading at once; NULL: as map, and then by plain reads. */
    ups_status (*read)(void *handle, const char *name, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                       bool *is_there, ups_error *error);
    ups_status (*attribute)(void *handle, const char *object, const char *name, ups_arena *arena,
                            ups_attribute *attribute, ups_error *error);
    ups_status (*each_number)(void *handle, const char *object, ups_number_visitor visit, void *context,
                              ups_error *error);               /* NULL: there are none */
    ups_status (*check)(const void *handle, ups_error *error); /* NULL: always well */
    void (*settle)(void *handle);                              /* NULL: nothing */
    void (*close)(void *handle);
} ups_arrays_format_class;

extern const ups_arrays_format_class ups_arrays_hdf5, ups_arrays_netcdf, ups_arrays_numpy, ups_arrays_zarr;

#endif
