/* The contract between files and the loader: a source says where sample i's bytes lie, and how bytes become a tensor.
 * Nothing else.
 *
 * A sample is a trajectory: frames over time on a regular grid, several channels. Raw fields and cached latents are the
 * same thing seen from here (a latent trajectory has one grid axis, its tokens, and `dim` channels), so one loader
 * serves both.
 *
 * The I/O engine fetches what `extents` lists; `decode` turns the fetched bytes into frames on any thread. Where
 * storage cannot be expressed as extents (an exotic HDF5 filter, a virtual dataset) a source lists none, and its decode
 * reads through the library under the library's lock: slower, never wrong.
 */
#ifndef UPS_PIPELINE_SOURCE_H
#define UPS_PIPELINE_SOURCE_H

#include "base/dtype.h"
#include "base/error.h"
#include "pipeline/points.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPS_MAX_GRID_DIMS 3

typedef enum ups_channel_order {
    UPS_CHANNELS_LAST, /* (time, [z,] [y,] x, channel), as PDEBench's seed groups and our latents keep it */
    UPS_CHANNELS_FIRST /* (time, channel, [z,] [y,] x), as fields stored in separate datasets become */
} ups_channel_order;

/* What sample i is. Pointers are borrowed from the source and live as long as it. */
typedef struct ups_sample {
    const char *name;                /* as a person would say it: "tensor[7]", "0007" */
    int64_t times;                   /* frames */
    int64_t first_frame;             /* where it begins in its trajectory: not 0 where that is cut into segments */
    int64_t channels;                /* fields, or a latent's dim */
    int dims;                        /* grid axes in use: 1, 2 or 3 */
    int64_t grid[UPS_MAX_GRID_DIMS]; /* points along each, slowest first, as stored (PDEBench: x, y, z); unused ones are
                                        1 and come last */
    ups_channel_order order;
    ups_dtype dtype;    /* what decode writes, in this machine's byte order */
    bool periodic;      /* the PDE's domain wraps around, as far as the layout tells */
    bool as_stored;     /* the extents of any range of frames, end to end, are what decode would write */
    const double *time; /* (times) seconds; never NULL */
    const double *coordinates[UPS_MAX_GRID_DIMS]; /* (grid[a]) each, or NULL where the file has none */
    const char *axis_names[UPS_MAX_GRID_DIMS];    /* as the file has them, or NULL: x, y, z */
    const char *axis_units[UPS_MAX_GRID_DIMS];    /* of the coordinates, as the file has them; NULL: not told */
    const char *time_units;                       /* "s"; NULL: the file tells none */
    const ups_points *points; /* NULL: a regular grid. Points that lie anywhere have one grid axis, of their number, in
                                 the order of points.h; coordinates, axis_names and axis_units then say nothing */
    const double
        *parameters; /* (parameter_count of the source) PDE parameters; NaN where this sample does not name one */
} ups_sample;

/* Frames [start, start + count) of a trajectory. */
typedef struct ups_frames {
    int64_t start, count;
} ups_frames;

typedef struct ups_extent {
    uint32_t file;   /* index into the source's files */
    uint64_t offset; /* bytes from the start of the file */
    uint64_t length; /* bytes */
} ups_extent;

typedef struct ups_piece {
    const uint8_t *bytes;
    uint64_t length;
} ups_piece; /* what an extent became once read */

/* What reading takes at most, over all samples, so that buffers are sized once; and what the source says of its cost.
 */
typedef struct ups_source_limits {
    int64_t extents;        /* extents of one sample */
    uint64_t stored_bytes;  /* their lengths, summed */
    uint64_t decoded_bytes; /* a whole trajectory, decoded */
    uint64_t scratch_bytes; /* working memory of one decode call */
    uint64_t fixed_bytes;   /* memory that the source takes however much is read: decoded chunks kept for later calls */
    bool keep_decoded;      /* decoding costs more than reading, and decoded samples are worth their memory whatever
                               residency others have */
    bool threaded;          /* decode starts threads of its own, which the machine is to have room for */
} ups_source_limits;

/* What happens to a sample whose values are NaN or infinite: the work stops with a sentence, or goes on without it. */
typedef enum ups_on_bad_sample { UPS_BAD_SAMPLE_STOP, UPS_BAD_SAMPLE_SKIP } ups_on_bad_sample;

typedef struct ups_source ups_source;

/* What a kind of source implements. All functions but `close` are thread-safe on an open source. */
typedef struct ups_source_class {
    const char *kind;       /* "pdebench.tensor", "pdebench.darcy", "pdebench.seedgroup", "latent", … */
    const char *not_finite; /* what it means when its values are NaN or infinite, for messages; NULL: just that */
    ups_status (*describe)(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error);
    /* Writes at most limits.extents extents, in the order decode wants the pieces; *count = 0 means that decode reads
     * by itself. */
    ups_status (*extents)(const ups_source *source, int64_t index, ups_frames frames, ups_extent *extents,
                          int64_t *count, ups_error *error);
    /* `out` receives frames.count frames of sample.dtype in sample.order, contiguous. Pure but for `out` and `scratch`
     * (64-byte aligned). */
    ups_status (*decode)(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error);
    /* The same, written as float32, and whether all of it is finite: for sources that know a shorter way there than
     * decode and a conversion. NULL: that is the way. */
    ups_status (*decode_f32)(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                             int64_t count, void *scratch, float *out, bool *finite, ups_error *error);
    /* The source's limits for windows of at most `frames` frames; NULL: they are those of whole samples. */
    void (*limits)(const ups_source *source, int64_t frames, ups_source_limits *limits);
    void (*close)(ups_source *source); /* frees everything, the struct included */
} ups_source_class;

/* The head of every source; a kind embeds it first in its own struct. */
struct ups_source {
    const ups_source_class *class;
    int64_t count; /* samples */
    int64_t file_count;
    const char *const *files;         /* paths, for the I/O engine and for messages */
    int64_t channels;                 /* the same for all samples of a source */
    const char *const *channel_names; /* (channels): "u", "activator", …; NULL for latents */
    int parameter_count;
    const char *const *parameter_names; /* (parameter_count): "beta", "nu", … */
    ups_source_limits limits;
};

ups_status ups_source_describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error);
void ups_source_close(ups_source *source); /* NULL is fine */

/* Upper bounds for windows of at most `frames` frames: a trajectory of gigabytes is read in windows of megabytes. */
ups_source_limits ups_source_window_limits(const ups_source *source, int64_t frames);

int64_t ups_sample_frame_elements(const ups_sample *sample); /* channels × grid points */
size_t ups_sample_frame_bytes(const ups_sample *sample);

/* Reads frames of one sample with plain reads on the calling thread: for tools and tests; the loader is the fast way.
 * `out` holds frames.count × ups_sample_frame_bytes. */
ups_status ups_source_read(const ups_source *source, int64_t index, ups_frames frames, void *out, ups_error *error);

#endif
