/* ups.h: trajectories of UPS caches and of PDE simulation files, and predictions of trained models, for other programs.
 *
 * A data set is the cached latents of one task and split, or one or several simulation files in any layout that UPS
 * recognises (PDEBench, The Well, NetCDF). Both are the same here: samples, each a trajectory of frames over time.
 *
 *     ups_data *data;
 *     ups_data_error error;
 *     if (ups_data_open("cache/advection1d/train", &data, &error) != UPS_DATA_OK) puts(error.message);
 *
 * then either one trajectory at a time, ups_data_read, or shuffled batches read ahead by threads, ups_data_loader.
 *
 * Conventions
 *  - Functions return UPS_DATA_OK or say in `error` (which may be NULL) what was wrong, where, and what would be right.
 *    Nothing is printed (but log lines on standard error where the environment's UPS_LOG asks for them), no signal
 *    handler is installed, and nothing exits (but a process that is out of memory for a few kilobytes of metadata).
 *  - Structs that the caller fills or gets filled begin with `size`: start from their initialiser, such as
 *    UPS_DATA_INFO. What is 0 stands for the default. A program built against an older header goes on working.
 *  - Pointers in what is handed out are borrowed from the handle it came from.
 *  - A data set may be used by many threads at once, a loader by one at a time; ups_data_loader_release by any.
 *  - After fork() a loader belongs to the parent alone, since its threads did not follow. A data set may be opened and
 *    read in both: to that end fork() waits, once a data set was opened, until no thread is within HDF5 for this
 *    library. That is as long as opening a file takes, or one read that needs HDF5. posix_spawn and vfork do not wait.
 *  - HDF5 files are opened under a lock of this library's own: a program that uses the same copy of the HDF5 library
 *    itself must not do so in another thread while a data set is being opened, nor while one is read that needs HDF5
 *    for its reading (rare: a storage form that cannot be read by extents).
 */
#ifndef UPS_H
#define UPS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define UPS_DATA_API __attribute__((visibility("default")))
#else
#define UPS_DATA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version and errors ----------------------------------------------------------------------------------------- */

/* Of this header: major × 10000 + minor × 100 + patch. Within a major version functions and fields are only added. */
#define UPS_DATA_VERSION 100

/* Of the library that is loaded: the same number. */
UPS_DATA_API int32_t ups_data_version(void);

typedef enum ups_data_status {
    UPS_DATA_OK = 0,
    UPS_DATA_ERR_ARGUMENT = 1,    /* the caller asked for something that makes no sense */
    UPS_DATA_ERR_IO = 3,          /* the operating system refused: not found, no rights, read error */
    UPS_DATA_ERR_FORMAT = 4,      /* a file is not what it should be: truncated, damaged, another layout */
    UPS_DATA_ERR_CHECKSUM = 5,    /* bytes changed since they were written */
    UPS_DATA_ERR_STALE = 6,       /* a cache in another format, or a file that changed while it was open */
    UPS_DATA_ERR_NUMERIC = 7,     /* NaN or Inf where finite numbers were asked for */
    UPS_DATA_ERR_MEMORY = 8,      /* memory that could not be had, or that the bound does not allow */
    UPS_DATA_ERR_UNSUPPORTED = 9, /* valid, but not possible here */
    UPS_DATA_ERR_CANCELLED = 10
} ups_data_status;

/* A short name: "ok", "argument", "io", … Static. */
UPS_DATA_API const char *ups_data_status_name(ups_data_status status);

typedef struct ups_data_error {
    ups_data_status status;
    char message[1020]; /* a sentence, UTF-8 */
} ups_data_error;

/* ---- data sets -------------------------------------------------------------------------------------------------- */

typedef struct ups_data ups_data;

/* Opens the directory of a cache of one task and split, such as cache/advection1d/train, or a simulation file. */
UPS_DATA_API ups_data_status ups_data_open(const char *path, ups_data **data, ups_data_error *error);

/* Opens several simulation files of one task as one data set, samples one after the other. A path with * ? [ that names
 * no file stands for the files that match. */
UPS_DATA_API ups_data_status ups_data_open_files(const char *const *paths, int64_t count, ups_data **data,
                                                 ups_data_error *error);

/* The same of files of a layout of their own, HDF5, NetCDF, NumPy or Zarr (a store's directory is a file here):
 * `layout` is YAML that says what their arrays are, as a task's `layout` does: "{fields: {u: /u}, axes: [sample, time,
 * x]}". NULL: as ups_data_open_files. */
UPS_DATA_API ups_data_status ups_data_open_layout(const char *const *paths, int64_t count, const char *layout,
                                                  ups_data **data, ups_data_error *error);

/* NULL is fine. Loaders keep what they need: a data set may be closed before them. */
UPS_DATA_API void ups_data_close(ups_data *data);

typedef enum ups_data_dtype { UPS_DATA_F32 = 1, UPS_DATA_F16 = 2, UPS_DATA_F64 = 3 } ups_data_dtype;

UPS_DATA_API int64_t ups_data_count(const ups_data *data); /* samples */

typedef struct ups_data_info {
    size_t size; /* of this struct, as the caller knows it */
    int64_t count;
    const char *kind;                 /* "latent", "pdebench.tensor", "pdebench.seedgroup", "the_well", "netcdf", … */
    int64_t channels;                 /* fields; of latents the size of a token */
    const char *const *channel_names; /* (channels), or NULL: latents have none */
    int32_t parameter_count;
    const char *const *parameter_names; /* (parameter_count): "beta", "nu", … */
    int64_t file_count;
    const char *const *files; /* (file_count) that hold the samples */
    const char *attributes;   /* JSON: what made a cache (encoder, fingerprint, normalisation, …); NULL for others */
} ups_data_info;
#define UPS_DATA_INFO                                                                                                  \
    { sizeof(ups_data_info), 0, NULL, 0, NULL, 0, NULL, 0, NULL, NULL }

UPS_DATA_API ups_data_status ups_data_describe(const ups_data *data, ups_data_info *info, ups_data_error *error);

#define UPS_DATA_MAX_RANK 5

typedef struct ups_data_sample {
    size_t size;
    const char *name;                             /* "tensor[7]", "0007", "latent[7]" */
    int32_t rank;                                 /* axes, time and channel among them */
    int32_t channel_axis;                         /* which of them: 1 or the last */
    int64_t shape[UPS_DATA_MAX_RANK];             /* entries along each axis; axis 0 is time */
    const char *axes[UPS_DATA_MAX_RANK];          /* "time", "channel", "token", "x", "y", "z", or as the file has it */
    const double *coordinates[UPS_DATA_MAX_RANK]; /* (shape[a]) each, or NULL: seconds, then as the file has them */
    ups_data_dtype dtype;                         /* as stored; what is read can be converted */
    int32_t periodic;                             /* 1: the domain wraps around, as far as the data tells */
    const double *parameters; /* (parameter_count) of the equation, NaN where this sample has none of a name */
    int64_t origin;           /* of a cached sample: its number in the data that was encoded; else its own */
} ups_data_sample;
#define UPS_DATA_SAMPLE                                                                                                \
    {                                                                                                                  \
        sizeof(ups_data_sample), NULL, 0, 0, {0, 0, 0, 0, 0}, {NULL, NULL, NULL, NULL, NULL},                          \
            {NULL, NULL, NULL, NULL, NULL}, UPS_DATA_F32, 0, NULL, 0                                                   \
    }

UPS_DATA_API ups_data_status ups_data_describe_sample(const ups_data *data, int64_t index, ups_data_sample *sample,
                                                      ups_data_error *error);

/* The parameters of samples [first, first + count) at once: (count, parameter_count), NaN where a sample has none of a
 * name; `bytes` is what `values` has room for. */
UPS_DATA_API ups_data_status ups_data_parameters(const ups_data *data, int64_t first, int64_t count, double *values,
                                                 size_t bytes, ups_data_error *error);

/* Reads frames [first, first + frames) of a sample into `values`, C order, in the sample's shape but for time. Any type
 * becomes float32, and each type itself; `bytes` is what `values` has room for. Checksums are checked. */
UPS_DATA_API ups_data_status ups_data_read(const ups_data *data, int64_t index, int64_t first, int64_t frames,
                                           ups_data_dtype dtype, void *values, size_t bytes, ups_data_error *error);

/* ---- the loader: batches of windows, read ahead ------------------------------------------------------------------
 *
 * A window is some frames of a trajectory. Batches have a position in an endless run: which windows batch p holds
 * depends on the seed, the data and the options, and on nothing else (not on threads, ranks or timing), so that
 * `first_batch` resumes exactly. Every sample comes once an epoch, in an order of its own each epoch. */

/* What a loader draws from: a data set, or some of its samples. Zeroed but for `data` is all of it. */
typedef struct ups_data_task {
    const ups_data *data;
    const char *name;       /* for messages; NULL: its number */
    const int64_t *samples; /* (sample_count) to draw from: a split; NULL: all. Copied */
    int64_t sample_count;
    double weight;        /* share among several tasks, for UPS_DATA_BALANCED; 0: 1 */
    const void *later[4]; /* 0 */
} ups_data_task;

typedef enum ups_data_strategy {
    UPS_DATA_PROPORTIONAL = 0, /* every sample of every task equally often */
    UPS_DATA_BALANCED = 1,     /* every task equally often, or by weight */
    UPS_DATA_TEMPERATURE = 2   /* in proportion to samples^(1 / temperature) */
} ups_data_strategy;

typedef enum ups_data_residency {
    UPS_DATA_STREAM = 0,         /* nothing is kept: each draw reads and decodes */
    UPS_DATA_RAM_COMPRESSED = 1, /* what files store is kept in memory: each draw decodes */
    UPS_DATA_RAM = 2,            /* decoded trajectories are kept in memory */
    UPS_DATA_RESIDENCY_AUTO = 3  /* the most of these that fits into `memory` */
} ups_data_residency;

/* Flags, to be combined. */
#define UPS_DATA_SEQUENTIAL 1u         /* samples in order, windows from frame 0; ends after one pass */
#define UPS_DATA_ONE_TASK_PER_BATCH 2u /* needed where tasks' frames differ in shape */
#define UPS_DATA_IN_PLACE 4u           /* windows are not gathered but handed out where they lie: see ups_data_batch */
#define UPS_DATA_DIRECT 8u             /* read around the page cache: for data that exceeds memory */
#define UPS_DATA_SKIP_BAD 16u          /* a sample with NaN or Inf is replaced by another draw, not an error */

typedef struct ups_data_loader_options {
    size_t size;
    uint64_t seed;
    int64_t batch_size;           /* windows in a batch; 0: 1 */
    int64_t frames;               /* in a window: 2 for pairs, k + 1 for k-step rollouts; 0: the whole trajectory */
    int64_t time_stride;          /* steps between a window's frames; 0: 1 */
    int64_t windows_per_sample;   /* taken from one decoded trajectory, neighbours in the batch; 0: 1 */
    int64_t first_batch;          /* where to begin, or to resume */
    int64_t batches;              /* where to end, counted from batch 0; 0: never, or with the pass if sequential */
    ups_data_dtype dtype;         /* of the batches, float32 or (where that is stored) float16; 0: float32 */
    uint32_t flags;               /* UPS_DATA_SEQUENTIAL, … */
    ups_data_strategy strategy;   /* among several tasks */
    double temperature;           /* of that strategy */
    int32_t rank, ranks;          /* this process's share of every global batch of ranks × batch_size; 0: alone */
    int32_t threads;              /* that decode; 0: one a processor */
    int32_t slots;                /* batches in flight, those held by the caller among them; 0: 4 */
    int32_t queue_depth;          /* reads in flight; 0: 64 */
    ups_data_residency residency; /* what stays in memory between one draw and the next */
    uint64_t memory; /* bytes that the loader and what it keeps may take; 0: no bound on the loader, half of the free
                        memory for UPS_DATA_RESIDENCY_AUTO */
    void *(*allocate)(void *context, size_t bytes); /* memory of batches, aligned to 4096 bytes: pinned, say, for a GPU;
                                                       NULL when there is none. NULL here: ordinary memory */
    void (*release)(void *context, void *memory);   /* by whoever releases or closes last; any thread */
    void *allocator_context;
} ups_data_loader_options;
#define UPS_DATA_LOADER_OPTIONS                                                                                        \
    {                                                                                                                  \
        sizeof(ups_data_loader_options), 0, 0, 0, 0, 0, 0, 0, UPS_DATA_F32, 0, UPS_DATA_PROPORTIONAL, 0.0, 0, 0, 0, 0, \
            0, UPS_DATA_STREAM, 0, NULL, NULL, NULL                                                                    \
    }

typedef struct ups_data_loader ups_data_loader;

/* `options` may be NULL: whole trajectories one at a time, shuffled, without end. */
UPS_DATA_API ups_data_status ups_data_loader_open(const ups_data_task *tasks, int32_t task_count,
                                                  const ups_data_loader_options *options, ups_data_loader **loader,
                                                  ups_data_error *error);

/* Cancels what is in flight. Batches that are still held stay valid until they are released. NULL is fine. */
UPS_DATA_API void ups_data_loader_close(ups_data_loader *loader);

/* A batch, borrowed until released. The library makes these, so the struct grows at its end alone. */
typedef struct ups_data_batch {
    int64_t index;          /* position in the run, from 0 */
    int64_t windows;        /* B; fewer than batch_size only at the end of a sequential pass */
    int64_t frames;         /* W */
    int64_t frame_elements; /* E */
    ups_data_dtype dtype;
    int32_t rank;         /* of `shape` */
    const int64_t *shape; /* (rank) B, W, then a frame's: (…, channel) or (channel, …) as in its sample; (B, W, E) where
                             the frames of a batch differ in shape */
    void *values;         /* (shape), C order; NULL with UPS_DATA_IN_PLACE */
    const void *const *window_values; /* (B) the first frame of each window, the others follow … */
    const int64_t *frame_step;        /* (B) … every so many elements */
    const int32_t *task;              /* (B) */
    const int64_t *sample;            /* (B) index into the task's data set; −1: skipped, its values mean nothing */
    const int64_t *start;             /* (B) first frame */
    const double *dt;                 /* (B) seconds between the window's first two frames; 0 for single frames */
    int64_t parameter_count;          /* P, of the task that has most */
    const double *parameters;         /* (B, P) each task's own, then NaN */
} ups_data_batch;

/* The next batch, waiting for it; *batch is NULL at the end. Fewer batches than `slots` may be held at a time. A
 * failure is repeated by every later call. */
UPS_DATA_API ups_data_status ups_data_loader_next(ups_data_loader *loader, const ups_data_batch **batch,
                                                  ups_data_error *error);

/* Gives a batch back; NULL is fine. Once only: a second time is passed over while the loader or another of its batches
 * is there and the place was not taken by a later batch, but no program should count on it. */
UPS_DATA_API void ups_data_loader_release(ups_data_loader *loader, const ups_data_batch *batch);

/* Waits for at most so many seconds until ups_data_loader_next has something to say at once; 1 when it has, 0 when not
 * yet: for callers that look at something else now and then, an interrupt or a window. */
UPS_DATA_API int32_t ups_data_loader_wait(ups_data_loader *loader, double seconds);

/* Goes on at another position. What is in memory stays there, and so do batches that are held. */
UPS_DATA_API ups_data_status ups_data_loader_seek(ups_data_loader *loader, int64_t batch, ups_data_error *error);

UPS_DATA_API int64_t ups_data_loader_position(const ups_data_loader *loader); /* of the next batch: what resumes here */

/* Batches in which every window's sample was drawn once, as nearly as batches divide samples: rounded down and at least
 * 1, since the order goes on across an epoch's end; up for a sequential pass, whose last batch may be smaller. */
UPS_DATA_API int64_t ups_data_loader_epoch_batches(const ups_data_loader *loader);

typedef struct ups_data_loader_statistics {
    size_t size;
    int64_t batches, windows;     /* handed out since the loader was opened or last sought */
    int64_t draws, resident;      /* trajectories drawn, and of them those found in memory */
    uint64_t bytes_read;          /* from files */
    uint64_t memory;              /* bytes of the loader itself */
    uint64_t kept;                /* bytes reserved for what stays in memory */
    double seconds_disk;          /* threads waiting for reads, summed */
    double seconds_decode;        /* threads decoding, summed */
    double seconds_consumer;      /* the caller waiting in ups_data_loader_next */
    double seconds_full;          /* reading waited because the caller had not taken what was ready */
    int64_t skipped_count;        /* samples that UPS_DATA_SKIP_BAD skipped … */
    const char *const *skipped;   /* (skipped_count) … a sentence each, valid until the loader is closed or sought */
    ups_data_residency residency; /* what was chosen */
    int32_t threads, slots;       /* likewise */
} ups_data_loader_statistics;
#define UPS_DATA_LOADER_STATISTICS                                                                                     \
    { sizeof(ups_data_loader_statistics), 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, NULL, UPS_DATA_STREAM, 0, 0 }

UPS_DATA_API ups_data_status ups_data_loader_describe(const ups_data_loader *loader,
                                                      ups_data_loader_statistics *statistics, ups_data_error *error);

/* ---- models ------------------------------------------------------------------------------------------------------
 *
 * A trained surrogate, without its data: given first frames of trajectories, those that follow.
 *
 *     ups_model *model;
 *     if (ups_model_open("advection.safetensors", NULL, &model, &error) != UPS_DATA_OK) puts(error.message);
 *     ups_model_request request = UPS_MODEL_REQUEST;
 *     request.frames = start;  request.steps = 50;  request.fields = fields;  request.field_bytes = sizeof fields;
 *     ups_model_predict(model, 0, &request, &error);
 *
 * A model is for one thread at a time. It computes with threads of OpenMP, or on a card. Neither survives a fork: where
 * the parent has predicted, a child opens models with one thread (UPS_DATA_ERR_UNSUPPORTED otherwise). */

typedef struct ups_model ups_model;

typedef struct ups_model_options {
    size_t size;
    const char *device; /* "cpu", "cuda", "auto" (a card where there is one); NULL: "auto" */
    int32_t threads;    /* of the processor; 0: one a core */
    int32_t later;      /* 0 */
} ups_model_options;
#define UPS_MODEL_OPTIONS                                                                                              \
    { sizeof(ups_model_options), NULL, 0, 0 }

/* `path`: a file that `ups export` wrote, or the directory of a run that has finished. `options` may be NULL. */
UPS_DATA_API ups_data_status ups_model_open(const char *path, const ups_model_options *options, ups_model **model,
                                            ups_data_error *error);
UPS_DATA_API void ups_model_close(ups_model *model); /* NULL is fine */

UPS_DATA_API int32_t ups_model_task_count(const ups_model *model);
UPS_DATA_API const char *ups_model_device(const ups_model *model); /* "cpu" or "cuda" */

#define UPS_MODEL_MAX_DIMS 3

/* A PDE that the model was trained on. */
typedef struct ups_model_task {
    size_t size;
    const char *name;
    int32_t channel_count;
    const char *const *channel_names; /* (channel_count): fields */
    int32_t dims;                     /* axes of the grid */
    int64_t grid[UPS_MODEL_MAX_DIMS]; /* points along each that it was trained on */
    const char *axes[UPS_MODEL_MAX_DIMS];
    double low[UPS_MODEL_MAX_DIMS], high[UPS_MODEL_MAX_DIMS]; /* the domain's edges; points are centres of cells */
    int32_t periodic;                                         /* 1: along all axes; along some counts as borders */
    int32_t parameter_count;
    const char *const *parameter_names; /* (parameter_count) of the equation */
    double dt;                          /* seconds of a step, of the task's own stride; NaN where steps differ in it:
                                           see step_times */
    const char *time_units;             /* or NULL: not known */
    int64_t steps;       /* of the trajectories it was trained on; 1: a steady problem, whose given frame holds what is
                            known and 0 in the fields that are sought */
    int32_t history;     /* frames that it reads: with fewer given the first one stands for those before it */
    int32_t bundle;      /* frames that it gives at a time */
    int64_t tokens, dim; /* of a frame's latents */
    int64_t frames;      /* of a trajectory of its data, as stored */
    int64_t stride;      /* stored frames in a step */
    int32_t stride_count;
    const int64_t *strides; /* (stride_count) that it has learnt; 0 of them: that one alone */
    int32_t patches; /* 1: tokens are patches of so many points of `grid`, so that frames on a grid of another spacing
                        are predicted as other physics */
    const double *step_times; /* (steps) seconds of each step where they differ within a trajectory, but not from one
                                 to another. NULL with a dt of NaN: trajectories differ too, and the model has no
                                 default: predictions say how long their steps take */
} ups_model_task;
#define UPS_MODEL_TASK                                                                                                 \
    {                                                                                                                  \
        sizeof(ups_model_task), NULL, 0, NULL, 0, {0, 0, 0}, {NULL, NULL, NULL}, {0, 0, 0}, {0, 0, 0}, 0, 0, NULL, 0,  \
            NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, NULL                                                                \
    }

UPS_DATA_API ups_data_status ups_model_describe(const ups_model *model, int32_t task, ups_model_task *description,
                                                ups_data_error *error);

/* What is to be predicted. Arrays are C order, float32, fields in physical units with channels last. `bytes` say what
 * arrays hold or have room for. */
typedef struct ups_model_request {
    size_t size;
    int64_t trajectories;                   /* B; 0: 1 */
    int64_t given;                          /* F, first frames of each, a step apart; 0: 1 */
    int64_t steps;                          /* S to predict behind them; 0: to the end of a trajectory of its data */
    int64_t stride;                         /* of a step, of those that were learnt; 0: the task's own */
    int64_t grid[UPS_MODEL_MAX_DIMS];       /* points along each axis of the given frames; 0: as trained (see
                                               ups_model_task.patches; the log warns of others). Points that lie
                                               anywhere, each sample's own, may be fewer than were trained on */
    int64_t resolution[UPS_MODEL_MAX_DIMS]; /* of the fields; 0: as the given frames */
    const float *frames;                    /* (B, F, grid…, channels) */
    size_t frame_bytes;
    const double *parameters; /* (B, parameter_count); NaN: not known; NULL: none is */
    const double *dt;         /* (B) seconds of a step; NaN or NULL: as trained, where one length of a step is known */
    float *fields; /* (B, F + S, resolution…, channels): the given frames as the model's autoencoder reads them
                      back, then the predicted ones; NULL: not wanted */
    size_t field_bytes;
    float *latents; /* (B, F + S, tokens, dim); NULL: not wanted */
    size_t latent_bytes;
    int32_t (*progress)(void *context, int64_t done, int64_t all); /* called now and then by the thread that asked;
                                                                     other than 0: UPS_DATA_ERR_CANCELLED; or NULL */
    void *progress_context;
    const double *step_times; /* (B, S) seconds of each step that is predicted, where they differ; `steps` is said then,
                                 and `dt` is NULL. NaN or NULL: as trained; where steps differed there, those from the
                                 first frame on, and the last one again and again beyond a trajectory's end */
} ups_model_request;
#define UPS_MODEL_REQUEST                                                                                              \
    {                                                                                                                  \
        sizeof(ups_model_request), 0, 0, 0, 0, {0, 0, 0}, {0, 0, 0}, NULL, 0, NULL, NULL, NULL, 0, NULL, 0, NULL,      \
            NULL, NULL                                                                                                 \
    }

/* UPS_DATA_ERR_ARGUMENT where neither request nor model say how long a step takes.
 *
 * The first prediction of a kind (task, trajectories, stride, grids) reads the files again and builds its graphs; four
 * kinds are kept. UPS_DATA_ERR_STALE: the files are others by then than were opened. */
UPS_DATA_API ups_data_status ups_model_predict(ups_model *model, int32_t task, const ups_model_request *request,
                                               ups_data_error *error);

#ifdef __cplusplus
}
#endif

#endif
