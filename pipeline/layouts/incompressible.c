/* `velocity` (sample, t, x, y, 2), `particles` (sample, t, x, y, 1), `t` (sample, t) and `force` (sample, x, y, 2):
 * PDEBench's incompressible Navier–Stokes with a passive scalar (arXiv 2210.07182, data_gen/src/sim_ns_incomp_2d.py and
 * data_io.py). A file holds few samples of many frames, a chunk a frame; a window of frames reads its own chunks only.
 *
 * The force drives the flow and does not change: without it the next frame cannot be known, so that it is presented as
 * channels, the same in every frame, which is how surrogates take a static forcing. It is read once a window. The
 * generator's settings are YAML in `config`; its velocity is zero at the boundary unless they say otherwise. */
#include "pipeline/layouts/source.h"

#include <string.h>

static bool recognises(ups_hdf5_file *file) {
    return ups_hdf5_kind_of(file, "velocity") == UPS_HDF5_DATASET &&
           ups_hdf5_kind_of(file, "particles") == UPS_HDF5_DATASET;
}

typedef struct field {
    const char *name, *meaning;
    bool by_time, optional;
    int64_t components; /* 0: as many as the grid has axes */
    const char *const *channel_names;
} field;

enum { FIELD_COUNT = 3, MAX_CHANNELS = 3 * UPS_MAX_GRID_DIMS };

static const char *const velocity_names[] = {"Vx", "Vy", "Vz"}, *const particle_names[] = {"particles"},
                         *const force_names[] = {"force_x", "force_y", "force_z"};
static const field fields[FIELD_COUNT] = {
    {"velocity", "(sample, t, x, y, component)", true, false, 0, velocity_names},
    {"particles", "(sample, t, x, y, 1)", true, false, 1, particle_names},
    {"force", "(sample, x, y, component)", false, true, 0, force_names},
};

/* Samples, frames, grid and components must be those of `velocity`. */
static ups_status check_shape(const ups_layout_builder *builder, const field *f, const ups_stored_array *array,
                              const ups_stored_array *velocity, ups_error *error) {
    int64_t expected[UPS_ARRAY_MAX_RANK];
    int rank = 0, dims = velocity->rank - 3;
    expected[rank++] = velocity->shape[0];
    if (f->by_time) expected[rank++] = velocity->shape[1];
    for (int axis = 0; axis < dims; axis++) expected[rank++] = velocity->shape[2 + axis];
    expected[rank++] = f->components ? f->components : dims;
    if (array->rank != rank || memcmp(array->shape, expected, (size_t)rank * sizeof *expected) != 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has shape %s; %s was expected, to go with 'velocity' %s",
                        builder->path, f->name, ups_layout_shape_text(builder->arena, array->rank, array->shape),
                        ups_layout_shape_text(builder->arena, rank, expected),
                        ups_layout_shape_text(builder->arena, velocity->rank, velocity->shape));
    if (array->dtype != velocity->dtype)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'velocity' is %s and '%s' is %s; store them in one type",
                        builder->path, ups_dtype_name(velocity->dtype), f->name, ups_dtype_name(array->dtype));
    return UPS_OK;
}

typedef struct flow {
    ups_layout_part parts[FIELD_COUNT];
    int part_count;
    const char *channel_names[MAX_CHANNELS];
    int64_t channels;
} flow;

static ups_status map_fields(ups_layout_builder *builder, flow *found, ups_error *error) {
    *found = (flow){0};
    for (int i = 0; i < FIELD_COUNT; i++) {
        const field *f = &fields[i];
        ups_stored_array *array;
        if (f->optional && ups_hdf5_kind_of(builder->file, f->name) != UPS_HDF5_DATASET) continue;
        UPS_TRY(ups_layout_map(builder, f->name, 4, 6, f->meaning, &array, error));
        if (i == 0 && array->rank < 5)
            return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; axes %s were expected", builder->path,
                            f->name, array->rank, f->meaning);
        UPS_TRY(check_shape(builder, f, array, i == 0 ? array : found->parts[0].array, error));
        int64_t components = array->shape[array->rank - 1];
        found->parts[found->part_count++] = (ups_layout_part){.array = array,
                                                              .by_sample = true,
                                                              .by_time = f->by_time,
                                                              .component_axes = 1,
                                                              .first_channel = found->channels};
        for (int64_t c = 0; c < components; c++) found->channel_names[found->channels++] = f->channel_names[c];
    }
    return UPS_OK;
}

/* `t` (sample, t), or one list for all; *samples says how many lists there are. */
static ups_status read_times(ups_layout_builder *builder, int64_t samples, int64_t times, const double **values,
                             bool *by_sample, ups_error *error) {
    ups_numbers t;
    UPS_TRY(ups_hdf5_read_numbers(builder->file, "t", UPS_LAYOUT_LONGEST_AXIS, builder->arena, &t, error));
    *values = t.values;
    *by_sample = t.rank == 2;
    if (t.rank == 2 && t.shape[0] == samples && t.shape[1] == times) return UPS_OK;
    if (t.rank == 1 && t.shape[0] == times) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: 't' has shape %s where 'velocity' has %lld samples of %lld frames",
                    builder->path, ups_layout_shape_text(builder->arena, t.rank, t.shape), (long long)samples,
                    (long long)times);
}

/* The boundary as the generator's settings name it, which are PhiFlow's words. */
typedef struct extrapolation {
    ups_arena *arena;
    const char *word; /* upper case, as written; NULL: not said */
} extrapolation;

static void find_extrapolation(void *context, const char *name, double number, const char *text) {
    static const char key[] = "velocity_extrapolation:";
    extrapolation *found = context;
    const char *at = text && strcmp(name, "config") == 0 ? strstr(text, key) : NULL;
    if (!at) return;
    at += strlen(key);
    at += strspn(at, " '\"");
    size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    if (length > 0 && length < 32) found->word = ups_arena_printf(found->arena, "%.*s", (int)length, at);
}

static ups_status read_boundary(const ups_layout_builder *builder, const char **boundary, ups_error *error) {
    extrapolation found = {builder->arena, NULL};
    UPS_TRY(ups_hdf5_attributes(builder->file, "", find_extrapolation, &found, error));
    if (!found.word || strcmp(found.word, "ZERO") == 0) {
        *boundary = "not periodic: velocity is zero there";
    } else if (strcmp(found.word, "PERIODIC") == 0) {
        *boundary = "periodic";
    } else {
        *boundary = ups_arena_printf(builder->arena, "not periodic: velocity as PhiFlow's %s", found.word);
    }
    return UPS_OK;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    flow found;
    UPS_TRY(map_fields(builder, &found, error));
    UPS_TRY(ups_layout_set_channels(builder, found.channels, found.channel_names, error));
    const ups_stored_array *velocity = found.parts[0].array;
    int64_t samples = velocity->shape[0], times = velocity->shape[1];
    const double *time;
    bool time_by_sample;
    UPS_TRY(read_times(builder, samples, times, &time, &time_by_sample, error));
    ups_pde_parameters parameters = {.arena = builder->arena};
    UPS_TRY(ups_layout_read_parameters(builder, "", &parameters, error));
    ups_sample_parameters own;
    UPS_TRY(ups_layout_read_sample_parameters(builder, samples, &own, error));
    const char *boundary;
    UPS_TRY(read_boundary(builder, &boundary, error));
    const ups_layout_part *parts = NULL;
    for (int64_t s = 0; s < samples; s++) { /* a member each, since each has its own times */
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(builder, &member, error));
        member->sample = (ups_sample){.times = times,
                                      .channels = found.channels,
                                      .dims = velocity->rank - 3,
                                      .grid = {1, 1, 1},
                                      .order = UPS_CHANNELS_LAST,
                                      .dtype = velocity->dtype,
                                      .time = time + (time_by_sample ? s * times : 0)};
        for (int axis = 0; axis < member->sample.dims; axis++) member->sample.grid[axis] = velocity->shape[2 + axis];
        member->name = "sample";
        member->numbered = true;
        member->first_row = s;
        member->boundary = boundary;
        member->sample.periodic = strcmp(boundary, "periodic") == 0;
        member->found = parameters;
        ups_layout_give_parameters(builder, &own, s, member);
        if (s == 0) ups_layout_set_parts(builder, member, found.parts, found.part_count);
        if (s == 0) parts = member->parts;
        member->parts = parts;
        member->part_count = found.part_count;
    }
    return UPS_OK;
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.incompressible");

const ups_layout ups_layout_incompressible = {
    .kind = "pdebench.incompressible",
    .title = "incompressible flow",
    .reason = "datasets 'velocity' (sample, t, x, y, 2) and 'particles' (sample, t, x, y, 1)",
    .looks_for = {"velocity", "particles", "t"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
