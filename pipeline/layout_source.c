#include "pipeline/layout_source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct layout_source {
    ups_source head;
    ups_arena *arena; /* everything below, this struct included */
    const ups_layout *layout;
    ups_layout_member *members;
    int64_t member_count;
    const char *
        *names; /* (members): name of each member's first sample; those of one member lie NAME_ROOM bytes apart */
    ups_hdf5_file **files;
} layout_source;

enum { NAME_ROOM = 24 }; /* "tensor[9999999]" and to spare */

/* ---- what a layout's describe uses --------------------------------------------------------------------------------
 */

ups_layout_member *ups_layout_add_member(ups_layout_builder *builder) {
    if (builder->member_count == builder->member_capacity) {
        int64_t capacity = builder->member_capacity ? 2 * builder->member_capacity : 16;
        ups_layout_member *members = realloc(builder->members, (size_t)capacity * sizeof *members);
        if (!members) return NULL;
        builder->members = members;
        builder->member_capacity = capacity;
    }
    ups_layout_member *member = &builder->members[builder->member_count++];
    *member = (ups_layout_member){.found = {.arena = builder->arena}};
    return member;
}

static void visit_parameter(void *context, const char *name, double number, const char *text) {
    ups_pde_parameters *parameters = context;
    if (text && strcmp(name, "config") == 0) ups_pde_parameters_from_yaml(parameters, text);
    if (!text) ups_pde_parameters_add(parameters, name, number);
}

ups_status ups_layout_read_parameters(ups_layout_builder *builder, const char *object, ups_pde_parameters *parameters,
                                      ups_error *error) {
    return ups_hdf5_attributes(builder->file, object, visit_parameter, parameters, error);
}

ups_status ups_layout_map(ups_layout_builder *builder, const char *name, int least, int most, const char *meaning,
                          ups_stored_array **array, ups_error *error) {
    const char *path = ups_hdf5_path(builder->file);
    if (ups_hdf5_kind_of(builder->file, name) != UPS_HDF5_DATASET)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' is missing; the layout needs it, with axes %s", path,
                        name, meaning);
    *array = UPS_ARENA_NEW(builder->arena, ups_stored_array);
    UPS_TRY(ups_hdf5_map(builder->file, name, builder->file_index, builder->arena, *array, error));
    if ((*array)->rank < least || (*array)->rank > most)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; axes %s were expected", path, name,
                        (*array)->rank, meaning);
    for (int axis = 0; axis < (*array)->rank; axis++) {
        if ((*array)->shape[axis] < 1)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: dataset '%s' is empty along axis %d of %s; nothing was written to it", path, name,
                            axis, meaning);
    }
    return UPS_OK;
}

ups_status ups_layout_read_coordinate(ups_layout_builder *builder, const char *name, int64_t length, int64_t spare,
                                      const double **values, ups_error *error) {
    double *read;
    int64_t count;
    UPS_TRY(ups_hdf5_read_axis(builder->file, name, UPS_LAYOUT_LONGEST_AXIS, builder->arena, &read, &count, error));
    if (count < length || count > length + spare)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: coordinate '%s' has %lld entries where the data have %lld%s",
                        ups_hdf5_path(builder->file), name, (long long)count, (long long)length,
                        spare ? " (one more is allowed)" : "");
    *values = read;
    return UPS_OK;
}

/* ---- the source ---------------------------------------------------------------------------------------------------
 */

static int64_t find_member(const layout_source *source, int64_t index) {
    int64_t low = 0, high = source->member_count - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (source->members[middle].first <= index) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static const char *sample_name(const layout_source *source, int64_t member, int64_t index) {
    return source->names[member] + (index - source->members[member].first) * NAME_ROOM;
}

ups_status ups_layout_source_describe(const ups_source *head, int64_t index, ups_sample *sample, ups_error *error) {
    const layout_source *source = (const layout_source *)head;
    int64_t member = find_member(source, index);
    *sample = source->members[member].sample;
    sample->name = sample_name(source, member, index);
    return UPS_OK;
}

/* The slice of a part's array that frames [frames) need, and the first of those frames; false when they need none of
 * it. */
static bool part_region(const ups_layout_member *member, const ups_layout_part *part, int64_t index, ups_frames frames,
                        ups_region *region, int64_t *first_frame) {
    int axis = 0;
    *first_frame = frames.start;
    if (part->by_sample) {
        region->start[axis] = index - member->first;
        region->count[axis++] = 1;
    }
    if (part->by_time) {
        region->start[axis] = frames.start;
        region->count[axis++] = frames.count;
    } else if (part->first_frame > frames.start) {
        *first_frame = part->first_frame;
    }
    for (; axis < part->array->rank; axis++) {
        region->start[axis] = 0;
        region->count[axis] = part->array->shape[axis];
    }
    return *first_frame < frames.start + frames.count;
}

ups_status ups_layout_source_extents(const ups_source *head, int64_t index, ups_frames frames, ups_extent *extents,
                                     int64_t *count, ups_error *error) {
    const layout_source *source = (const layout_source *)head;
    const ups_layout_member *member = &source->members[find_member(source, index)];
    *count = 0;
    for (int p = 0; p < member->part_count; p++) {
        const ups_layout_part *part = &member->parts[p];
        ups_region region;
        int64_t first_frame;
        if (part_region(member, part, index, frames, &region, &first_frame))
            *count += ups_array_extents(part->array, &region, extents + *count);
    }
    return UPS_OK;
}

/* Decodes one part into its place; a part without time is repeated in every frame it fills. */
static ups_status decode_part(const ups_layout_member *member, const ups_layout_part *part, int64_t index,
                              ups_frames frames, const ups_piece *pieces, int64_t count, void *scratch, uint8_t *out,
                              int64_t *used, ups_error *error) {
    ups_region region;
    int64_t first_frame;
    *used = 0;
    if (!part_region(member, part, index, frames, &region, &first_frame)) return UPS_OK;
    size_t frame_bytes = ups_sample_frame_bytes(&member->sample);
    size_t channel_bytes = frame_bytes / (size_t)member->sample.channels;
    uint8_t *to =
        out + (size_t)(first_frame - frames.start) * frame_bytes + (size_t)part->first_channel * channel_bytes;
    UPS_TRY(ups_array_decode(part->array, &region, pieces, count, scratch, to, used, error));
    if (part->by_time) return UPS_OK;
    int64_t end = frames.start + frames.count;
    for (int64_t frame = first_frame + 1; frame < end; frame++) {
        memcpy(to + (size_t)(frame - first_frame) * frame_bytes, to, channel_bytes);
    }
    return UPS_OK;
}

ups_status ups_layout_source_decode(const ups_source *head, int64_t index, ups_frames frames, const ups_piece *pieces,
                                    int64_t count, void *scratch, void *out, ups_error *error) {
    const layout_source *source = (const layout_source *)head;
    int64_t number = find_member(source, index);
    const ups_layout_member *member = &source->members[number];
    bool in_time = true;
    for (int p = 0; p < member->part_count; p++) in_time &= member->parts[p].by_time;
    if (!in_time) memset(out, 0, (size_t)frames.count * ups_sample_frame_bytes(&member->sample));
    ups_status status = UPS_OK;
    for (int p = 0; p < member->part_count && status == UPS_OK; p++) {
        int64_t used;
        status = decode_part(member, &member->parts[p], index, frames, pieces, count, scratch, out, &used, error);
        pieces += used;
        count -= used;
    }
    if (status != UPS_OK) {
        ups_fail_within(error, "%s, sample %s", head->files[member->parts[0].array->file],
                        sample_name(source, number, index));
    }
    return status;
}

void ups_layout_source_close(ups_source *head) {
    layout_source *source = (layout_source *)head;
    for (int64_t i = 0; i < head->file_count; i++) ups_hdf5_close(source->files[i]);
    ups_arena_destroy(source->arena);
}

/* ---- making it ----------------------------------------------------------------------------------------------------
 */

/* Adds to `limits` what one sample of a member takes of one part at most. Samples that share a row of chunks take the
 * same; the row that stores most is the bound. */
static void bound_part(const ups_layout_part *part, ups_source_limits *limits) {
    const ups_stored_array *array = part->array;
    size_t scratch = ups_array_scratch(array);
    if (scratch > limits->scratch_bytes) limits->scratch_bytes = scratch;
    if (array->storage == UPS_STORAGE_CONTIGUOUS && array->offset != UPS_OFFSET_UNWRITTEN) {
        uint64_t bytes = (uint64_t)ups_array_elements(array, NULL) * ups_dtype_size(array->dtype);
        limits->extents += 1;
        limits->stored_bytes += part->by_sample ? bytes / (uint64_t)array->shape[0] : bytes;
    }
    if (array->storage != UPS_STORAGE_CHUNKED) return;
    int64_t rows = part->by_sample ? array->chunk_grid[0] : 1, row_chunks = 1;
    for (int axis = 0; axis < array->rank; axis++) row_chunks *= array->chunk_grid[axis];
    row_chunks /= rows;
    int64_t most_extents = 0;
    uint64_t most_bytes = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t extents = 0;
        uint64_t bytes = 0;
        for (int64_t c = row * row_chunks; c < (row + 1) * row_chunks; c++) {
            if (array->chunks[c].offset == UPS_OFFSET_UNWRITTEN) continue;
            extents++;
            bytes += array->chunks[c].length;
        }
        if (extents > most_extents) most_extents = extents;
        if (bytes > most_bytes) most_bytes = bytes;
    }
    limits->extents += most_extents;
    limits->stored_bytes += most_bytes;
}

static void bound_all(layout_source *source) {
    ups_source_limits *limits = &source->head.limits;
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        ups_source_limits one = {0};
        for (int p = 0; p < member->part_count; p++) bound_part(&member->parts[p], &one);
        uint64_t decoded = (uint64_t)member->sample.times * ups_sample_frame_bytes(&member->sample);
        if (one.extents > limits->extents) limits->extents = one.extents;
        if (one.stored_bytes > limits->stored_bytes) limits->stored_bytes = one.stored_bytes;
        if (one.scratch_bytes > limits->scratch_bytes) limits->scratch_bytes = one.scratch_bytes;
        if (decoded > limits->decoded_bytes) limits->decoded_bytes = decoded;
    }
}

static void name_samples(layout_source *source) {
    source->names = UPS_ARENA_ARRAY(source->arena, const char *, source->member_count);
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        if (!member->parts[0].by_sample) {
            source->names[m] = member->name;
            continue;
        }
        char *names = UPS_ARENA_ARRAY(source->arena, char, NAME_ROOM * member->samples);
        for (int64_t i = 0; i < member->samples; i++) {
            snprintf(names + i * NAME_ROOM, NAME_ROOM, "%s[%lld]", member->name, (long long)i);
        }
        source->names[m] = names;
    }
}

static double parameter_value(const ups_pde_parameters *parameters, const char *name) {
    for (int i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->list[i].name, name) == 0) return parameters->list[i].value;
    }
    return NAN;
}

/* The names any member has, in order of first appearance; every member gets a value for each, NaN where it says
 * nothing. */
static void collect_parameters(layout_source *source) {
    ups_pde_parameters all = {.arena = source->arena};
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_pde_parameters *found = &source->members[m].found;
        for (int i = 0; i < found->count; i++) ups_pde_parameters_add(&all, found->list[i].name, found->list[i].value);
    }
    const char **names = UPS_ARENA_ARRAY(source->arena, const char *, all.count + 1);
    for (int i = 0; i < all.count; i++) names[i] = all.list[i].name;
    for (int64_t m = 0; m < source->member_count; m++) {
        double *values = UPS_ARENA_ARRAY(source->arena, double, all.count + 1);
        for (int i = 0; i < all.count; i++) values[i] = parameter_value(&source->members[m].found, names[i]);
        source->members[m].sample.parameters = values;
    }
    source->head.parameter_count = all.count;
    source->head.parameter_names = names;
}

/* Later sizes of a trajectory are computed without looking back: channels, axes and times must fit together. */
static bool size_fits(const ups_sample *sample) {
    int64_t bytes = (int64_t)ups_dtype_size(sample->dtype);
    bool over = __builtin_mul_overflow(bytes, sample->times, &bytes);
    over |= __builtin_mul_overflow(bytes, sample->channels, &bytes);
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++)
        over |= __builtin_mul_overflow(bytes, sample->grid[axis], &bytes);
    return !over;
}

ups_status ups_layout_source_create(ups_layout_builder *builder, const ups_layout *layout, ups_hdf5_file **files,
                                    int64_t file_count, ups_source **out, ups_error *error) {
    ups_arena *arena = builder->arena;
    layout_source *source = UPS_ARENA_NEW(arena, layout_source);
    const char **paths = UPS_ARENA_ARRAY(arena, const char *, file_count);
    source->arena = arena;
    source->layout = layout;
    source->files = UPS_ARENA_ARRAY(arena, ups_hdf5_file *, file_count);
    for (int64_t i = 0; i < file_count; i++) {
        paths[i] = ups_arena_strdup(arena, ups_hdf5_path(files[i]));
        source->files[i] = files[i];
    }
    source->member_count = builder->member_count;
    source->members = UPS_ARENA_ARRAY(arena, ups_layout_member, builder->member_count);
    memcpy(source->members, builder->members, (size_t)builder->member_count * sizeof *source->members);
    int64_t count = 0;
    for (int64_t m = 0; m < source->member_count; m++) {
        source->members[m].first = count;
        if (source->members[m].samples > UPS_LAYOUT_MOST_SAMPLES - count)
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "%s: more than %d samples; is its first axis really the sample?",
                            paths[source->members[m].parts[0].array->file], UPS_LAYOUT_MOST_SAMPLES);
        if (!size_fits(&source->members[m].sample))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: a sample of it claims more values than memory has addresses; the file is damaged",
                            paths[source->members[m].parts[0].array->file]);
        count += source->members[m].samples;
    }
    source->head = (ups_source){
        .class = layout->class,
        .count = count,
        .file_count = file_count,
        .files = paths,
        .channels = builder->channels,
        .channel_names = builder->channel_names,
    };
    name_samples(source);
    collect_parameters(source);
    bound_all(source);
    *out = &source->head;
    return UPS_OK;
}

const char *ups_layout_reason(const ups_source *source) {
    return ((const layout_source *)source)->layout->reason;
}

int ups_layout_arrays(const ups_source *head, int64_t index, const ups_stored_array **arrays) {
    const layout_source *source = (const layout_source *)head;
    const ups_layout_member *member = &source->members[find_member(source, index)];
    for (int p = 0; p < member->part_count; p++) arrays[p] = member->parts[p].array;
    return member->part_count;
}
