/* Files that commands write under names that the user gives, asked for before any work: what is there may be dear. A
 * file that UPS wrote as the same kind is replaced, so that a command can be repeated; any other is refused. */
#ifndef UPS_TOOLS_OUTPUT_H
#define UPS_TOOLS_OUTPUT_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ups_output_kind {
    UPS_OUTPUT_ROLLOUT,    /* HDF5 or NetCDF-4 (rollout_file.h, rollout_netcdf.h) */
    UPS_OUTPUT_EVALUATION, /* JSON (train/evaluation/document.h), of a model or of predictions */
    UPS_OUTPUT_SCORES,     /* the same, of predictions alone */
    UPS_OUTPUT_PAGE,       /* HTML (report/page.h) */
    UPS_OUTPUT_PICTURE     /* PNG, also an animation (report/figure.h) */
} ups_output_kind;

/* Whether a file can be written as `path`: its folder is there, and `path` is absent or a file of this kind by UPS. */
ups_status ups_output_check(const char *path, ups_output_kind kind, ups_error *error);
/* The same of an array, which does not tell who wrote it: `path` is absent, or a file and `replace` (--force). */
ups_status ups_output_check_array(const char *path, bool replace, ups_error *error);
/* Refuses a `path` that is one of the files that the command reads, by whatever link. */
ups_status ups_output_is_no_input(const char *path, const char *const *files, int64_t count, ups_error *error);

#endif
