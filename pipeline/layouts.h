/* Recognises what a simulation file holds and makes a source of it. Recognition goes by content (datasets, ranks,
 * attributes); the file name only supplies parameters that the file itself does not carry.
 *
 *   tensor      `tensor` (sample, t, x), `x-coordinate`, `t-coordinate` (may have one entry too many); becomes u(t, x)
 *   darcy       `nu` (sample, x, y), `tensor` (sample, 1, x, y); becomes two frames, (ν, 0) → (ν, u)
 *   seed group  groups `0000`, `0001`, …, each with `data` (t, x, [y, [z,]] channel), `grid/…`, `config`; as stored
 *
 * Source: PDEBench (Takamoto et al., arXiv 2210.07182) and its data generators. */
#ifndef UPS_PIPELINE_LAYOUTS_H
#define UPS_PIPELINE_LAYOUTS_H

#include "pipeline/source.h"
#include "pipeline/stored_array.h"

typedef struct ups_layout_options {
    bool through_library; /* read everything with H5Dread instead of extents: for comparison and for trouble */
} ups_layout_options;

/* Opens one file. UPS_ERR_FORMAT when it is no layout we know, saying what was found and what was looked for. */
ups_status ups_layout_open(const char *path, const ups_layout_options *options, ups_source **source, ups_error *error);

/* Opens several files of one task as one source, samples one after the other; channels and parameter names must agree.
 */
ups_status ups_layout_open_many(const char *const *paths, int64_t count, const ups_layout_options *options,
                                ups_source **source, ups_error *error);

/* For people who look into files, on a source that one of the above opened: how the layout was recognised, … */
const char *ups_layout_reason(const ups_source *source);

/* … and which stored arrays sample `index` is put together from; returns how many, at most UPS_LAYOUT_MOST_ARRAYS. */
#define UPS_LAYOUT_MOST_ARRAYS 2
int ups_layout_arrays(const ups_source *source, int64_t index, const ups_stored_array **arrays);

#endif
