/* What the layouts share: a source made of members. A member is a run of samples that have everything but their place
 * in common: all rows of one `tensor`, or one seed's group. A sample's frames are put together from parts, each a slice
 * of a stored array.
 *
 * A layout's own file (tensor.c, …) recognises it and describes its members with what is in builder.c; create.c makes a
 * source of them, whose describe, extents and decode are in reading.c. */
#ifndef UPS_PIPELINE_LAYOUTS_SOURCE_H
#define UPS_PIPELINE_LAYOUTS_SOURCE_H

#include "pipeline/arrays/arrays.h"
#include "pipeline/hdf5/storage.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "pipeline/pde_parameters.h"

enum { UPS_LAYOUT_LONGEST_AXIS = 1 << 24, UPS_LAYOUT_MOST_NUMBERS = 1 << 28, UPS_LAYOUT_MAX_SAMPLES = 10000000 };

/* One array's share in a sample. The array's axes are, in this order: the sample number, where it has one; time, where
 * it has one; axes of one entry; the grid's axes, but for those it does not vary along; and its components, which are
 * channels. It is taken whole along all but the first two. An array that is stored in another order says in `order`
 * which stored axis each of these is. */
typedef struct ups_layout_part {
    const ups_stored_array *array;
    bool by_sample, by_time;
    bool repeated[UPS_MAX_GRID_DIMS];    /* grid axes that it does not have: its values are repeated along them */
    int unit_axes;                       /* axes of one entry, which say nothing */
    int component_axes;                  /* 0: it is one channel */
    int64_t first_component, components; /* of the only such axis, where not all are taken; 0 components: all */
    bool reordered;
    int order[UPS_ARRAY_MAX_RANK];
    int64_t first_frame;   /* without a time axis: it fills the sample's frames from here to the last */
    int64_t first_channel; /* which of the sample's channels its first component is */
} ups_layout_part;

typedef struct ups_layout_member {
    ups_sample sample;     /* of all its samples, but for the name; parameters too */
    int64_t stored_points; /* entries of its arrays along the axis of points, where samples have more places than that
                              (points.h); 0: as many */
    int64_t stored_times;  /* frames of its arrays, where they are cut into segments; 0: as many as samples have */
    int64_t segments;      /* of each row; 0: it is not cut */
    bool is_thinned;       /* samples have every thin[a]-th point of full_grid, which its arrays have */
    int64_t thin[UPS_MAX_GRID_DIMS], full_grid[UPS_MAX_GRID_DIMS];
    const double *full_coordinates[UPS_MAX_GRID_DIMS]; /* where `thin` was asked for */
    const char *name;                                  /* "0007", or "tensor" */
    bool numbered;                                     /* the name is followed by the row: "tensor[7]" */
    int64_t first, samples;                            /* numbers in the source */
    int64_t first_row;                                 /* where arrays that have a sample axis keep the first of them */
    int part_count;
    const ups_layout_part *parts; /* shared where members share arrays */
    const char *boundary;         /* for people: "periodic", "outgoing", … */
    ups_pde_parameters found;     /* what the file says; becomes sample.parameters when all members are known */
} ups_layout_member;

/* An open file of whatever storage; the source closes it. */
typedef struct ups_layout_file {
    const char *path;            /* as it was named */
    void *handle;                /* ups_hdf5_file, … */
    void (*close)(void *handle); /* NULL: there is nothing to close */
} ups_layout_file;

/* A source while it is being made. */
typedef struct ups_layout_builder {
    ups_arena *arena;
    ups_file_list files; /* that will be read */
    const char *path;    /* of the file being described */
    ups_hdf5_file *file; /* the same, where it is HDF5 */
    ups_arrays *arrays;  /* the same, where there is a mapping */
    const ups_mapping *mapping;
    bool through_library, points_as_stored;
    int64_t segment; /* see ups_layout_options */
    int64_t thin[UPS_MAX_GRID_DIMS];
    int thin_count;
    uint32_t file_index; /* in `files` */
    const char *const *channel_names;
    int64_t channels; /* 0 until the first member */
    ups_layout_member *members;
    int64_t member_count, member_capacity;
    const char *left_out; /* what the file has that the source does not show, for people, or NULL */
} ups_layout_builder;

#define UPS_LAYOUT_MAX_SOUGHT 5

/* A layout: does a file look like it, and what does it hold. */
typedef struct ups_layout {
    const char *kind;                                 /* "pdebench.tensor" */
    const char *title;                                /* for people: "compressible flow" */
    const char *reason;                               /* how it was recognised, for people */
    const char *looks_for[UPS_LAYOUT_MAX_SOUGHT + 1]; /* objects that it needs, to say what a file lacks */
    bool (*recognises)(ups_hdf5_file *file);
    ups_status (*describe)(ups_layout_builder *builder, ups_error *error); /* adds the file's members */
    const ups_source_class *class;
} ups_layout;

extern const ups_layout ups_layout_tensor, ups_layout_darcy, ups_layout_seedgroup, ups_layout_compressible,
    ups_layout_incompressible, ups_layout_well, ups_layout_points, ups_layout_netcdf, ups_layout_mapped;

int64_t ups_layout_part_channels(const ups_layout_part *part);

/* ---- what a layout's `describe` uses (builder.c) ---- */

/* Adds a member, zeroed but for its arena, of one sample; the pointer is valid until the next one is added. */
ups_status ups_layout_add_member(ups_layout_builder *builder, ups_layout_member **member, ups_error *error);

/* Gives a member a copy of `parts`. */
void ups_layout_set_parts(ups_layout_builder *builder, ups_layout_member *member, const ups_layout_part *parts,
                          int count);

/* Sets the source's channels, or checks that they are what files and groups before had. `names` is copied. */
ups_status ups_layout_set_channels(ups_layout_builder *builder, int64_t count, const char *const *names,
                                   ups_error *error);

/* Adds the parameters of an object's attributes: numbers by name, a text named `config` as YAML. */
ups_status ups_layout_read_parameters(ups_layout_builder *builder, const char *object, ups_pde_parameters *parameters,
                                      ups_error *error);

/* The same into member->found; and where a text named `bc` or `boundary` says what happens at the boundary, that
 * decides: "periodic", or any other word. */
ups_status ups_layout_read_description(ups_layout_builder *builder, const char *object, ups_layout_member *member,
                                       ups_error *error);

/* Parameters that differ between the samples of a file: `parameters/NAME` (sample), one number each, as `ups datagen`
 * writes those that it draws. */
typedef struct ups_sample_parameters {
    int64_t count;
    const char *const *names;
    const double *const *values; /* (count): (samples) each */
} ups_sample_parameters;

/* Reads them; count is 0 in files that have none. UPS_ERR_FORMAT when one is not a finite number for each sample. */
ups_status ups_layout_read_sample_parameters(ups_layout_builder *builder, int64_t samples,
                                             ups_sample_parameters *parameters, ups_error *error);

/* Gives a member of one sample those of `row`; where the rest of the file names one as well, that is replaced. */
void ups_layout_give_parameters(ups_layout_builder *builder, const ups_sample_parameters *parameters, int64_t row,
                                ups_layout_member *member);

/* Where there are any, turns the member added last, which is complete, into a member for each of its samples. */
ups_status ups_layout_split_by_parameters(ups_layout_builder *builder, ups_error *error);

/* What `ups rollout` calls the fields of its file (the root's attribute `ups.fields`), where they are as many; else
 * NULL. */
const char *const *ups_layout_told_fields(ups_layout_builder *builder, int64_t channels);

/* Names of `dims` axes of a dataset from `first` on, as HDF5's dimensions have them; NULL where one has none. */
const char *const *ups_layout_axis_labels(ups_layout_builder *builder, const char *dataset, int first, int dims);

/* Maps a dataset whose rank must be one of [least, most]; `meaning` names its axes in the message: "(sample, t, x)". */
ups_status ups_layout_map(ups_layout_builder *builder, const char *name, int least, int most, const char *meaning,
                          ups_stored_array **array, ups_error *error);

/* Lets all arrays be decoded to one type, the widest of theirs. */
ups_dtype ups_layout_share_dtype(const ups_layout_builder *builder, ups_stored_array *const *arrays, int count);

/* Lets an array of float32 be decoded to float64. */
void ups_layout_widen(const ups_layout_builder *builder, ups_stored_array *array);

/* Points from their coordinates `read`, (count, d) for all samples or (samples, count, d), *own, with a set for each:
 * (1 or samples) in *points. `name` is the array's, for messages. `distinct` (samples), NULL: how many of its `count`
 * each sample has, of its own; what is behind them is anything. *own before: (count, d) are the only sample's own. */
ups_status ups_layout_make_points(const ups_layout_builder *builder, const char *name, const ups_numbers *read,
                                  int64_t samples, int64_t count, const int64_t *distinct, ups_points ***points,
                                  bool *own, ups_error *error);

/* Reads a coordinate that must have `length` entries, or up to `spare` more, which are cut off. */
ups_status ups_layout_read_coordinate(ups_layout_builder *builder, const char *name, int64_t length, int64_t spare,
                                      const double **values, ups_error *error);

/* The same where the file may lack it: *values is then left as it is. */
ups_status ups_layout_read_optional_coordinate(ups_layout_builder *builder, const char *name, int64_t length,
                                               const double **values, ups_error *error);

/* "run7" of "/data/run7.nc", in the arena. */
const char *ups_layout_name_of_file(const ups_layout_builder *builder);

/* Cuts the trajectories of the members from `first` on into segments. */
ups_status ups_layout_cut(ups_layout_builder *builder, int64_t first, ups_error *error);

/* A shape as people write it: "(10, 101, 1024)". */
const char *ups_layout_shape_text(ups_arena *arena, int rank, const int64_t *shape);

/* ---- the functions of every layout's source class (reading.c, create.c) ---- */

ups_status ups_layout_source_describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error);
ups_status ups_layout_source_extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *extents,
                                     int64_t *count, ups_error *error);
ups_status ups_layout_source_decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                                    int64_t count, void *scratch, void *out, ups_error *error);
void ups_layout_source_limits(const ups_source *source, int64_t frames, ups_source_limits *limits);
void ups_layout_source_close(ups_source *source);

/* Turns what the builder collected into a source that owns arena, members and files (all of them, on success only). */
ups_status ups_layout_source_create(ups_layout_builder *builder, const ups_layout *layout, const ups_layout_file *files,
                                    int64_t file_count, ups_source **source, ups_error *error);

#define UPS_LAYOUT_CLASS(name)                                                                                         \
    {                                                                                                                  \
        .kind = (name), .describe = ups_layout_source_describe, .extents = ups_layout_source_extents,                  \
        .decode = ups_layout_source_decode, .limits = ups_layout_source_limits, .close = ups_layout_source_close,      \
    }

#endif
