/* What the layouts share: a source made of members. A member is a run of samples that have everything but their place
 * in common: all rows of one `tensor`, or one seed's group. A sample's frames are put together from parts, each a slice
 * of a stored array.
 *
 * A layout's own file (layout_tensor.c, …) recognises it and describes its members; describe, extents and decode are
 * here, once. */
#ifndef UPS_PIPELINE_LAYOUT_SOURCE_H
#define UPS_PIPELINE_LAYOUT_SOURCE_H

#include "pipeline/layouts.h"
#include "pipeline/pde_parameters.h"
#include "pipeline/storage_hdf5.h"

enum { UPS_LAYOUT_LONGEST_AXIS = 1 << 24, UPS_LAYOUT_MOST_SAMPLES = 10000000 };

/* One array's share in a sample. Of the array's axes the first may be the sample number and the next may be time; the
 * rest is the frame, or a channel of it, taken whole. */
typedef struct ups_layout_part {
    const ups_stored_array *array;
    bool by_sample, by_time;
    int64_t first_frame;   /* without a time axis: the part fills the sample's frames from here to the last */
    int64_t first_channel; /* where in a frame it starts, in channels (channels-first layouts; else 0) */
} ups_layout_part;

typedef struct ups_layout_member {
    ups_sample sample;      /* of all its samples, but for the name; parameters too */
    const char *name;       /* "0007", or "tensor" whose samples are then called "tensor[7]" */
    int64_t first, samples; /* numbers in the source */
    int part_count;
    ups_layout_part parts[UPS_LAYOUT_MOST_ARRAYS];
    ups_pde_parameters found; /* what the file says; becomes sample.parameters when all members are known */
} ups_layout_member;

/* A source while it is being made. */
typedef struct ups_layout_builder {
    ups_arena *arena;
    ups_hdf5_file *file; /* the one being described */
    uint32_t file_index;
    const char *const *channel_names;
    int64_t channels; /* 0 until the first member */
    ups_layout_member *members;
    int64_t member_count, member_capacity;
} ups_layout_builder;

/* A layout: does a file look like it, and what does it hold. */
typedef struct ups_layout {
    const char *kind;   /* "pdebench.tensor" */
    const char *reason; /* how it was recognised, for people */
    bool (*recognises)(ups_hdf5_file *file);
    ups_status (*describe)(ups_layout_builder *builder, ups_error *error); /* adds the file's members */
    const ups_source_class *class;
} ups_layout;

extern const ups_layout ups_layout_tensor, ups_layout_darcy, ups_layout_seedgroup;

/* Adds a member, zeroed but for its arena; the pointer is valid until the next one is added. NULL when out of memory.
 */
ups_layout_member *ups_layout_add_member(ups_layout_builder *builder);

/* Adds the parameters of an object's attributes: numbers by name, a text named `config` as YAML. */
ups_status ups_layout_read_parameters(ups_layout_builder *builder, const char *object, ups_pde_parameters *parameters,
                                      ups_error *error);

/* Maps a dataset whose rank must be one of [least, most]; `meaning` names its axes in the message: "(sample, t, x)". */
ups_status ups_layout_map(ups_layout_builder *builder, const char *name, int least, int most, const char *meaning,
                          ups_stored_array **array, ups_error *error);

/* Reads a coordinate that must have `length` entries, or up to `spare` more, which are cut off. */
ups_status ups_layout_read_coordinate(ups_layout_builder *builder, const char *name, int64_t length, int64_t spare,
                                      const double **values, ups_error *error);

/* The functions of every layout's source class. */
ups_status ups_layout_source_describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error);
ups_status ups_layout_source_extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *extents,
                                     int64_t *count, ups_error *error);
ups_status ups_layout_source_decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                                    int64_t count, void *scratch, void *out, ups_error *error);
void ups_layout_source_close(ups_source *source);

/* Turns what the builder collected into a source that owns arena, members and files. */
ups_status ups_layout_source_create(ups_layout_builder *builder, const ups_layout *layout, ups_hdf5_file **files,
                                    int64_t file_count, ups_source **source, ups_error *error);

#define UPS_LAYOUT_CLASS(name)                                                                                         \
    {                                                                                                                  \
        .kind = (name), .describe = ups_layout_source_describe, .extents = ups_layout_source_extents,                  \
        .decode = ups_layout_source_decode, .close = ups_layout_source_close,                                          \
    }

#endif
