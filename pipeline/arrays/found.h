/* What is found in a file of arrays. */
#ifndef UPS_PIPELINE_ARRAYS_FOUND_H
#define UPS_PIPELINE_ARRAYS_FOUND_H

#include "base/arena.h"
#include "pipeline/storage/numbers.h"
#include "pipeline/storage/stored_array.h"

/* The files that a source reads. A store may keep an array in many of them. */
typedef struct ups_file_list {
    ups_arena *arena;
    const char **paths;
    int64_t count, capacity;
} ups_file_list;

/* Its index; the path is copied. UPS_ERR_UNSUPPORTED when there are too many. */
ups_status ups_file_list_add(ups_file_list *files, const char *path, uint32_t *index, ups_error *error);

/* What a listing tells of an array. */
typedef struct ups_array_outline {
    const char *name;
    int rank; /* as stored: 0 of a scalar */
    int64_t shape[UPS_ARRAY_MAX_RANK];
    const char *type;                           /* "float32", ">f8", … for people */
    bool numeric, integer;                      /* can be mapped; whole numbers */
    bool unpacked;                              /* scale, offset and missing values in its attributes are heeded */
    const char *dimensions[UPS_ARRAY_MAX_RANK]; /* names that the file gives its axes, or NULL */
} ups_array_outline;

/* An array and the axis of it, as a user counts them, that each stored axis is: files keep some in another order. */
typedef struct ups_found_array {
    ups_stored_array *array;
    int axis_of[UPS_ARRAY_MAX_RANK];
} ups_found_array;

typedef void (*ups_number_visitor)(void *context, const char *name, double number);

/* Outlines as they are found. */
enum { UPS_ARRAYS_MAX_LISTED = 1000 };
typedef struct ups_outline_list {
    ups_arena *arena;
    ups_array_outline *list;
    int64_t count, capacity;
} ups_outline_list;
ups_array_outline *ups_outline_add(ups_outline_list *list, const char *name); /* zeroed but for the name */

#endif
