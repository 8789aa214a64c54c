/* Recognises what a simulation file holds and makes a source of it. Recognition goes by content (datasets, ranks,
 * attributes); the file name only supplies parameters and boundary conditions that the file itself does not carry.
 *
 *   tensor          `tensor` (sample, t, x), `x-coordinate`, `t-coordinate` (may have one entry too many): advection,
 *                   Burgers, reaction–diffusion; becomes u (t, x, 1)
 *   darcy           `nu` (sample, x, y), `tensor` (sample, 1, x, y); becomes two frames, (ν, 0) → (ν, u)
 *   seed group      groups `0000`, `0001`, …, each with `data` (t, x, [y, [z,]] channel), `grid/…`, `config`:
 *                   diffusion–sorption, 2D diffusion–reaction, radial dam break; as stored
 *   compressible    `density`, `pressure`, `Vx`[, `Vy`[, `Vz`]] of shape (sample, t, x[, y[, z]]); becomes
 *                   (t, channel, x[, y[, z]])
 *   incompressible  `velocity` (sample, t, x, y, 2), `particles` (sample, t, x, y, 1), `t` (sample, t), and perhaps
 *                   `force` (sample, x, y, 2); becomes (t, x, y, channel): the force does not change, but a surrogate
 *                   needs it to advance the flow, so that it stands in every frame
 *   the_well        groups `t0_fields`, `t1_fields`, `t2_fields`, `scalars`, `dimensions`, `boundary_conditions`;
 *                   becomes (t, channel, x[, y[, z]]), a channel for each component; fields that do not vary in time or
 *                   along an axis are repeated; scalars that do not vary in time become parameters
 *   netcdf          NetCDF-3, CDF-5 or NetCDF-4: variables over ([sample,] time, 1 to 3 grid axes), dimensions told
 *                   apart as the CF conventions do; becomes (t, channel, …), the axes in the file's own order
 *   mapped          any HDF5, NetCDF, NPY, NPZ or Zarr, by a mapping that a user gives; becomes (t, channel, …)
 *
 * PDE parameters are attributes, numbers of a `config` text, or in the file's name; those that differ between the
 * samples of a tensor, Darcy, compressible or incompressible file are datasets `parameters/NAME` (sample).
 *
 * Of a tensor and of a seed group, the text attribute `bc` says what happens at the boundary, where there is one:
 * rollouts have it, since their layout does not tell.
 *
 * Sources: PDEBench (Takamoto et al., arXiv 2210.07182) and its data generators; The Well (Ohana et al.,
 * arXiv 2412.00568), docs/data_format.md. */
#ifndef UPS_PIPELINE_LAYOUTS_LAYOUTS_H
#define UPS_PIPELINE_LAYOUTS_LAYOUTS_H

#include "pipeline/source.h"
#include "pipeline/storage/stored_array.h"

typedef struct ups_layout_options {
    /* Read everything by HDF5 instead of extents: for comparison and for trouble. UPS_ERR_UNSUPPORTED of classic
     * NetCDF. */
    bool through_library;
    /* Files below it may keep data in other files below it; NULL, and for other files: below their own directory. */
    const char *root;
    /* What arrays and axes are, for files of a user's own (mapping.h): every format, and nothing is recognised. It is
     * borrowed while files are opened. NULL: what they are is recognised. */
    const struct ups_mapping *mapping;
    /* Points that lie anywhere (pipeline/points.h) stay in the order of the file: for whoever does not train on them.
     */
    bool points_as_stored;
    /* Cuts every trajectory into as many segments of so many frames as it has, each a sample of its own, one after the
     * other; what is left over at its end is left out. UPS_ERR_FORMAT of a trajectory with fewer. 0: they stay whole.
     */
    int64_t segment;
    /* Takes every n-th point of a grid along each axis, slowest first, from the first point on; one number counts for
     * all axes. Errors: UPS_ERR_CONFIG where such a grid would be none, UPS_ERR_UNSUPPORTED of points that lie
     * anywhere. thin_count 0: all points. */
    int64_t thin[UPS_MAX_GRID_DIMS];
    int thin_count;
} ups_layout_options;

/* Opens one file. UPS_ERR_FORMAT when it is no layout we know, saying what was found and what was looked for. */
ups_status ups_layout_open(const char *path, const ups_layout_options *options, ups_source **source, ups_error *error);

/* Opens several files of one task as one source, samples one after the other. A path with * ? [ that names no file is a
 * pattern, and stands for the files that match, in the order of their names; no file may be named twice. Layout,
 * channels, grid (but for the number of points of each sample's own) and frames must agree, else UPS_ERR_FORMAT says
 * which files differ in what; where some hold float32 and others float64, all become float64. Parameters are each
 * sample's own; a name that only some files know (in any case of letters) is NaN in samples of the others. */
ups_status ups_layout_open_many(const char *const *paths, int64_t count, const ups_layout_options *options,
                                ups_source **source, ups_error *error);

/* For people who look into files, on a source that one of the above opened: how the layout was recognised, … */
const char *ups_layout_reason(const ups_source *source);

/* … the files that were named, and what patterns among them stood for, where `source->files` has all that are read: the
 * chunks of a Zarr store, too. */
int64_t ups_layout_inputs(const ups_source *source);
const char *ups_layout_input(const ups_source *source, int64_t index);

/* … and which stored arrays sample `index` is put together from; returns how many, at most UPS_LAYOUT_MAX_ARRAYS. */
#define UPS_LAYOUT_MAX_ARRAYS 64
int ups_layout_arrays(const ups_source *source, int64_t index, const ups_stored_array **arrays);

/* … how many frames the trajectory of sample `index` has in its file, where that is cut into segments, too. */
int64_t ups_layout_stored_times(const ups_source *source, int64_t index);

/* What happens at the domain's boundary in sample `index`, in words: "periodic", "outgoing", "not said"; and what the
 * file has that the source does not show, or NULL. */
const char *ups_layout_boundary(const ups_source *source, int64_t index);
const char *ups_layout_left_out(const ups_source *source);

#endif
