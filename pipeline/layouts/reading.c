#include "pipeline/layouts/state.h"
#include "pipeline/layouts/thin.h"

#include <string.h>

/* ---- the source ---------------------------------------------------------------------------------------------------
 */

static int64_t find_member(const ups_layout_source *source, int64_t index) {
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

static const char *sample_name(const ups_layout_source *source, int64_t member, int64_t index) {
    return source->names[member] + (index - source->members[member].first) * source->name_room;
}

/* Which row of the member's arrays a sample is of, and the stored frame that it begins with. */
typedef struct place {
    int64_t row, frame;
} place;

static place find_place(const ups_layout_member *member, int64_t index) {
    const int64_t number = index - member->first;
    if (member->segments == 0) return (place){number, 0};
    return (place){number / member->segments, number % member->segments * member->sample.times};
}

ups_status ups_layout_source_describe(const ups_source *head, int64_t index, ups_sample *sample, ups_error *error) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    int64_t member = find_member(source, index);
    *sample = source->members[member].sample;
    sample->name = sample_name(source, member, index);
    sample->first_frame = find_place(&source->members[member], index).frame;
    sample->time += sample->first_frame;
    return UPS_OK;
}

int64_t ups_layout_member_times(const ups_layout_member *member) {
    return member->segments > 0 ? member->stored_times : member->sample.times;
}

/* The stored axis that is number `axis` in the order of ups_layout_part. */
int ups_layout_stored_axis(const ups_layout_part *part, int axis) {
    return part->reordered ? part->order[axis] : axis;
}

/* The slice of a part's array that frames [frames) need, and the first of those frames; false when they need none of
 * it. */
bool ups_layout_part_region(const ups_layout_member *member, const ups_layout_part *part, int64_t index,
                            ups_frames frames, ups_region *region, int64_t *first_frame) {
    for (int axis = 0; axis < part->array->rank; axis++) {
        region->start[axis] = 0;
        region->count[axis] = part->array->shape[axis];
    }
    if (part->components > 0) {
        const int last = ups_layout_stored_axis(part, part->array->rank - 1);
        region->start[last] = part->first_component;
        region->count[last] = part->components;
    }
    const place at = find_place(member, index);
    *first_frame = frames.start;
    if (part->by_sample) {
        region->start[ups_layout_stored_axis(part, 0)] = member->first_row + at.row;
        region->count[ups_layout_stored_axis(part, 0)] = 1;
    }
    if (part->by_time) {
        region->start[ups_layout_stored_axis(part, part->by_sample)] = at.frame + frames.start;
        region->count[ups_layout_stored_axis(part, part->by_sample)] = frames.count;
    } else if (part->first_frame > at.frame + frames.start) {
        *first_frame = part->first_frame - at.frame;
    }
    return *first_frame < frames.start + frames.count;
}

ups_status ups_layout_source_extents(const ups_source *head, int64_t index, ups_frames frames, ups_extent *extents,
                                     int64_t *count, ups_error *error) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    const ups_layout_member *member = &source->members[find_member(source, index)];
    *count = 0;
    for (int p = 0; p < member->part_count; p++) {
        const ups_layout_part *part = &member->parts[p];
        ups_region region;
        int64_t first_frame;
        if (ups_layout_part_region(member, part, index, frames, &region, &first_frame))
            *count += ups_array_extents(part->array, &region, extents + *count);
    }
    return UPS_OK;
}

/* How far apart the elements of a frame lie in memory. */
typedef struct frame_strides {
    int64_t channel, grid[UPS_MAX_GRID_DIMS];
} frame_strides;

static frame_strides strides_in_frame(const ups_sample *sample) {
    frame_strides strides;
    int64_t stride = sample->order == UPS_CHANNELS_LAST ? sample->channels : 1;
    for (int axis = UPS_MAX_GRID_DIMS - 1; axis >= 0; axis--) {
        strides.grid[axis] = stride;
        stride *= sample->grid[axis];
    }
    strides.channel = sample->order == UPS_CHANNELS_LAST ? 1 : stride;
    return strides;
}

/* Where neighbours along each axis of a part's array go, in elements; see ups_layout_part for the axes' order. */
void ups_layout_part_strides(const ups_layout_member *member, const ups_layout_part *part, int64_t *strides) {
    const ups_sample *sample = &member->sample;
    frame_strides in_frame = strides_in_frame(sample);
    int axis = 0;
    if (part->by_sample) strides[ups_layout_stored_axis(part, axis++)] = 0;
    if (part->by_time) strides[ups_layout_stored_axis(part, axis++)] = ups_sample_frame_elements(sample);
    for (int unit = 0; unit < part->unit_axes; unit++) strides[ups_layout_stored_axis(part, axis++)] = 0;
    for (int dim = 0; dim < sample->dims; dim++) {
        if (!part->repeated[dim]) strides[ups_layout_stored_axis(part, axis++)] = in_frame.grid[dim];
    }
    int64_t stride = in_frame.channel;
    for (int component = part->array->rank - 1; component >= axis; component--) {
        strides[ups_layout_stored_axis(part, component)] = stride;
        stride *= part->array->shape[ups_layout_stored_axis(part, component)];
    }
}

int64_t ups_layout_part_channels(const ups_layout_part *part) {
    if (part->components > 0) return part->components;
    int64_t channels = 1;
    for (int c = 0; c < part->component_axes; c++)
        channels *= part->array->shape[ups_layout_stored_axis(part, part->array->rank - 1 - c)];
    return channels;
}

/* Copies `count` elements along each grid axis from element 0 of axis `repeated` to all others. */
static void repeat_along(const ups_sample *sample, int repeated, int64_t channels, uint8_t *frame) {
    frame_strides strides = strides_in_frame(sample);
    size_t size = ups_dtype_size(sample->dtype);
    int64_t count[UPS_MAX_GRID_DIMS];
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++) count[axis] = axis == repeated ? 1 : sample->grid[axis];
    for (int64_t x = 0; x < count[0]; x++) {
        for (int64_t y = 0; y < count[1]; y++) {
            for (int64_t z = 0; z < count[2]; z++) {
                const uint8_t *from =
                    frame + (size_t)(x * strides.grid[0] + y * strides.grid[1] + z * strides.grid[2]) * size;
                for (int64_t i = 1; i < sample->grid[repeated]; i++) {
                    for (int64_t c = 0; c < channels; c++) {
                        size_t offset = (size_t)(c * strides.channel) * size;
                        size_t along = (size_t)(i * strides.grid[repeated]) * size;
                        memcpy((uint8_t *)from + along + offset, from + offset, size);
                    }
                }
            }
        }
    }
}

/* Copies a part's channels of one frame into another. */
static void repeat_frame(const ups_sample *sample, int64_t channels, const uint8_t *from, uint8_t *to) {
    size_t size = ups_dtype_size(sample->dtype);
    int64_t points = ups_sample_frame_elements(sample) / sample->channels;
    if (sample->order == UPS_CHANNELS_FIRST || channels == sample->channels) {
        memcpy(to, from, (size_t)(points * channels) * size);
        return;
    }
    size_t step = (size_t)sample->channels * size, bytes = (size_t)channels * size;
    if (bytes == 8) { /* the two components of a force: a size known here is a single move */
        for (int64_t i = 0; i < points; i++) memcpy(to + (size_t)i * step, from + (size_t)i * step, 8);
        return;
    }
    for (int64_t i = 0; i < points; i++) memcpy(to + (size_t)i * step, from + (size_t)i * step, bytes);
}

/* Decodes one part into its place. What has no time is repeated in every frame that it fills, and along the grid axes
 * that it does not have. */
static ups_status decode_part(const ups_layout_member *member, const ups_layout_part *part, int64_t index,
                              ups_frames frames, const ups_piece *pieces, int64_t count, void *scratch, uint8_t *out,
                              int64_t *used, ups_error *error) {
    const ups_sample *sample = &member->sample;
    ups_region region;
    int64_t first_frame, strides[UPS_ARRAY_MAX_RANK], channels = ups_layout_part_channels(part);
    *used = 0;
    if (!ups_layout_part_region(member, part, index, frames, &region, &first_frame)) return UPS_OK;
    size_t frame_bytes = ups_sample_frame_bytes(sample);
    size_t offset = (size_t)(part->first_channel * strides_in_frame(sample).channel) * ups_dtype_size(sample->dtype);
    uint8_t *to = out + (size_t)(first_frame - frames.start) * frame_bytes + offset;
    ups_layout_part_strides(member, part, strides);
    UPS_TRY(ups_array_decode_strided(part->array, &region, strides, pieces, count, scratch, to, used, error));
    int64_t filled = frames.start + frames.count - first_frame;
    for (int axis = sample->dims - 1; axis >= 0; axis--) {
        for (int64_t f = 0; part->repeated[axis] && f < (part->by_time ? filled : 1); f++)
            repeat_along(sample, axis, channels, to + (size_t)f * frame_bytes);
    }
    for (int64_t f = 1; !part->by_time && f < filled; f++)
        repeat_frame(sample, channels, to, to + (size_t)f * frame_bytes);
    return UPS_OK;
}

/* Points stand in the order of their tree in every frame. `frame` has room for one. Stored frames, of `stored` bytes,
 * are no longer than those they become, and the last one moves first. */
static void sort_points(const ups_sample *sample, size_t stored, int64_t frames, uint8_t *out, void *frame) {
    const bool last = sample->order == UPS_CHANNELS_LAST;
    const size_t size = ups_dtype_size(sample->dtype), bytes = ups_sample_frame_bytes(sample);
    const size_t runs = last ? 1 : (size_t)sample->channels;
    for (int64_t f = frames - 1; f >= 0; f--) {
        memcpy(frame, out + (size_t)f * stored, stored);
        for (size_t run = 0; run < runs; run++)
            ups_points_sort(sample->points, last ? sample->channels : 1, size,
                            (const uint8_t *)frame + run * (stored / runs),
                            out + (size_t)f * bytes + run * (bytes / runs));
    }
}

ups_status ups_layout_source_decode(const ups_source *head, int64_t index, ups_frames frames, const ups_piece *pieces,
                                    int64_t count, void *scratch, void *out, ups_error *error) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    int64_t number = find_member(source, index);
    const ups_layout_member *member = &source->members[number];
    const ups_sample *sample = &member->sample;
    ups_layout_member as_stored; /* points have their places afterwards, and of grids are some taken */
    void *const picked = out;
    if (member->stored_points > 0 || member->is_thinned) {
        as_stored = *member;
        if (member->is_thinned) {
            as_stored.sample = ups_layout_full_sample(member);
            out = (uint8_t *)scratch + source->array_scratch;
        } else {
            as_stored.sample.grid[0] = member->stored_points;
        }
        member = &as_stored;
    }
    const size_t stored = ups_sample_frame_bytes(&member->sample);
    bool from_start = true;
    for (int p = 0; p < member->part_count; p++) from_start &= member->parts[p].first_frame == 0;
    if (!from_start) memset(out, 0, (size_t)frames.count * stored);
    ups_status status = UPS_OK;
    for (int p = 0; p < member->part_count && status == UPS_OK; p++) {
        int64_t used;
        status = decode_part(member, &member->parts[p], index, frames, pieces, count, scratch, out, &used, error);
        pieces += used;
        count -= used;
    }
    if (status == UPS_OK && sample->points && sample->points->stored)
        sort_points(sample, stored, frames.count, out, (uint8_t *)scratch + source->array_scratch);
    if (status == UPS_OK && member->is_thinned) ups_layout_pick(&source->members[number], frames.count, out, picked);
    if (status != UPS_OK) {
        ups_fail_within(error, "%s, sample %s", head->files[member->parts[0].array->file],
                        sample_name(source, number, index));
    }
    return status;
}

void ups_layout_source_close(ups_source *head) {
    ups_layout_source *source = (ups_layout_source *)head;
    for (int64_t i = 0; i < source->shared_count; i++) ups_shared_chunks_destroy(source->shared[i]);
    for (int64_t i = 0; i < source->file_count; i++) {
        if (source->files[i].close) source->files[i].close(source->files[i].handle);
    }
    ups_arena_destroy(source->arena);
}

const char *ups_layout_reason(const ups_source *source) {
    return ((const ups_layout_source *)source)->layout->reason;
}

int64_t ups_layout_inputs(const ups_source *source) {
    return ((const ups_layout_source *)source)->file_count;
}

const char *ups_layout_input(const ups_source *source, int64_t index) {
    return ((const ups_layout_source *)source)->files[index].path;
}

const char *ups_layout_left_out(const ups_source *source) {
    return ((const ups_layout_source *)source)->left_out;
}

const char *ups_layout_boundary(const ups_source *head, int64_t index) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    return source->members[find_member(source, index)].boundary;
}

int64_t ups_layout_stored_times(const ups_source *head, int64_t index) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    return ups_layout_member_times(&source->members[find_member(source, index)]);
}

int ups_layout_arrays(const ups_source *head, int64_t index, const ups_stored_array **arrays) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    const ups_layout_member *member = &source->members[find_member(source, index)];
    int count = 0;
    for (int p = 0; p < member->part_count; p++) {
        bool there = false;
        for (int a = 0; a < count; a++) there |= arrays[a] == member->parts[p].array;
        if (!there) arrays[count++] = member->parts[p].array;
    }
    return count;
}
