/* `density`, `pressure`, `Vx`[, `Vy`[, `Vz`]], each (sample, t, x[, y[, z]]): PDEBench's compressible Navier–Stokes in
 * one, two or three dimensions (arXiv 2210.07182, data_gen/…/CompressibleFluid and Data_Merge.py). A file of a single
 * run may lack the sample axis. `t-coordinate` may have one entry too many, which is cut off.
 *
 * What happens at the boundary the files say in their names alone: `periodic` or `trans` (values copied outwards, so
 * that waves leave), or the name of a test whose set-up is known. */
#include "pipeline/layouts/source.h"

#include <string.h>
#include <strings.h>

enum { MAX_CHANNELS = 2 + UPS_MAX_GRID_DIMS };

static const char *const channel_names[MAX_CHANNELS] = {"density", "pressure", "Vx", "Vy", "Vz"};

static bool recognises(ups_hdf5_file *file) {
    for (int c = 0; c < 3; c++) {
        if (ups_hdf5_kind_of(file, channel_names[c]) != UPS_HDF5_DATASET) return false;
    }
    return true;
}

/* ---- the boundary -------------------------------------------------------------------------------------------------
 */

typedef struct boundary_word {
    const char *word;
    bool whole; /* the word stands alone; else it begins a longer one ("Sod3") */
    const char *boundary;
} boundary_word;

/* Said outright first; then by the tests' names (data_gen/…/CompressibleFluid/config/args). */
static const boundary_word words[] = {{"KHI", true, "periodic in x, outgoing in y"},
                                      {"periodic", true, "periodic"},
                                      {"trans", true, "outgoing"},
                                      {"KH", true, "periodic in x, outgoing in y"},
                                      {"OTVortex", false, "periodic"},
                                      {"Turb", false, "periodic"},
                                      {"Sod", false, "outgoing"},
                                      {"shock", false, "outgoing"},
                                      {"BlastWave", false, "outgoing"}};

/* Whether a file's name holds the word, between '_', '-' and '.'. */
static bool name_holds(const char *path, const boundary_word *word) {
    const char *slash = strrchr(path, '/'), *token = slash ? slash + 1 : path;
    size_t letters = strlen(word->word);
    while (*token) {
        size_t length = strcspn(token, "_-.");
        if (strncasecmp(token, word->word, letters) == 0 && (word->whole ? length == letters : length >= letters))
            return true;
        token += length + (token[length] != 0);
    }
    return false;
}

typedef struct boundary_attribute {
    ups_arena *arena;
    const char *text; /* NULL: none */
} boundary_attribute;

static void visit_boundary(void *context, const char *name, double number, const char *text) {
    boundary_attribute *attribute = context;
    if (text && (strcasecmp(name, "bc") == 0 || strcasecmp(name, "boundary") == 0))
        attribute->text = ups_arena_strdup(attribute->arena, text);
}

static ups_status find_boundary(const ups_layout_builder *builder, const char **boundary, ups_error *error) {
    boundary_attribute attribute = {builder->arena, NULL};
    UPS_TRY(ups_hdf5_attributes(builder->file, "", visit_boundary, &attribute, error));
    if (attribute.text) *boundary = attribute.text;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!name_holds(attribute.text ? attribute.text : builder->path, &words[i])) continue;
        *boundary = words[i].boundary;
        return UPS_OK;
    }
    return UPS_OK;
}

/* ---- the fields ---------------------------------------------------------------------------------------------------
 */

/* All must have the first's shape and number type. */
static ups_status check_field(const ups_layout_builder *builder, const ups_stored_array *field,
                              const ups_stored_array *first, ups_error *error) {
    ups_arena *arena = builder->arena;
    if (field->rank != first->rank || memcmp(field->shape, first->shape, (size_t)first->rank * sizeof *first->shape))
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' %s and '%s' %s have different shapes; they must agree",
                        builder->path, first->name, ups_layout_shape_text(arena, first->rank, first->shape),
                        field->name, ups_layout_shape_text(arena, field->rank, field->shape));
    if (field->dtype != first->dtype)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is %s and '%s' is %s; store them in one type", builder->path,
                        first->name, ups_dtype_name(first->dtype), field->name, ups_dtype_name(field->dtype));
    return UPS_OK;
}

/* Velocities tell how many dimensions there are; the fields' rank must agree. */
static ups_status map_fields(ups_layout_builder *builder, ups_stored_array *fields[MAX_CHANNELS], int *dims,
                             ups_error *error) {
    static const char *const meanings[] = {"(sample, t, x)", "(sample, t, x, y)", "(sample, t, x, y, z)"};
    *dims = 1;
    while (*dims < UPS_MAX_GRID_DIMS && ups_hdf5_kind_of(builder->file, channel_names[2 + *dims]) == UPS_HDF5_DATASET)
        ++*dims;
    for (int c = 0; c < 2 + *dims; c++) {
        UPS_TRY(
            ups_layout_map(builder, channel_names[c], 1, UPS_ARRAY_MAX_RANK, meanings[*dims - 1], &fields[c], error));
        UPS_TRY(check_field(builder, fields[c], fields[0], error));
    }
    int rank = fields[0]->rank;
    if (rank == *dims + 2 || rank == *dims + 1) return UPS_OK;
    if (rank > *dims + 2 && *dims < UPS_MAX_GRID_DIMS)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '%s' has rank %d, but there is no '%s'; with %s, axes %s were expected", builder->path,
                        channel_names[0], rank, channel_names[2 + *dims],
                        *dims == 1 ? "'Vx' alone" : "'Vx' and 'Vy' alone", meanings[*dims - 1]);
    return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; axes %s were expected", builder->path,
                    channel_names[0], rank, meanings[*dims - 1]);
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    static const char *const coordinate_names[] = {"x-coordinate", "y-coordinate", "z-coordinate"};
    ups_stored_array *fields[MAX_CHANNELS] = {NULL};
    ups_layout_part parts[MAX_CHANNELS] = {0};
    ups_layout_member *member;
    int dims;
    UPS_TRY(map_fields(builder, fields, &dims, error));
    UPS_TRY(ups_layout_set_channels(builder, 2 + dims, channel_names, error));
    UPS_TRY(ups_layout_add_member(builder, &member, error));
    bool by_sample = fields[0]->rank == dims + 2;
    const int64_t *shape = fields[0]->shape + by_sample;
    ups_sample *sample = &member->sample;
    *sample = (ups_sample){.times = shape[0],
                           .channels = 2 + dims,
                           .dims = dims,
                           .grid = {1, 1, 1},
                           .order = UPS_CHANNELS_FIRST,
                           .dtype = fields[0]->dtype};
    for (int c = 0; c < 2 + dims; c++)
        parts[c] = (ups_layout_part){.array = fields[c], .by_sample = by_sample, .by_time = true, .first_channel = c};
    ups_layout_set_parts(builder, member, parts, 2 + dims);
    member->name = "sample";
    member->numbered = true;
    member->samples = by_sample ? fields[0]->shape[0] : 1;
    UPS_TRY(ups_layout_read_coordinate(builder, "t-coordinate", sample->times, 1, &sample->time, error));
    for (int axis = 0; axis < dims; axis++) {
        sample->grid[axis] = shape[1 + axis];
        UPS_TRY(ups_layout_read_coordinate(builder, coordinate_names[axis], sample->grid[axis], 0,
                                           &sample->coordinates[axis], error));
    }
    UPS_TRY(find_boundary(builder, &member->boundary, error));
    sample->periodic = strcasecmp(member->boundary, "periodic") == 0;
    UPS_TRY(ups_layout_read_parameters(builder, "", &member->found, error));
    return ups_layout_split_by_parameters(builder, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.compressible");

const ups_layout ups_layout_compressible = {
    .kind = "pdebench.compressible",
    .title = "compressible flow",
    .reason = "datasets 'density', 'pressure' and 'Vx', with as many velocities as the grid has axes",
    .looks_for = {"density", "pressure", "Vx", "t-coordinate"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
