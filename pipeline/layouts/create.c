/* From what a builder collected to a source: names, parameters, how each array is read, and what reading takes. */
#include "pipeline/layouts/state.h"
#include "pipeline/layouts/thin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_SHARED ((uint64_t)256 << 20) /* bytes of decoded chunks that a source keeps for other samples */
#define MAX_PLACES ((int64_t)1 << 16)    /* of them: smaller chunks cost more to find than to decode */

/* ---- making it ----------------------------------------------------------------------------------------------------
 */

/* What is stored of the chunks in one row by sample and one by time; without such an axis there is one row. */
static void sum_chunks(const ups_layout_part *part, int64_t row, int64_t time_row, ups_source_limits *sum) {
    const ups_stored_array *array = part->array;
    int64_t at[UPS_ARRAY_MAX_RANK] = {0};
    bool fixed[UPS_ARRAY_MAX_RANK] = {false};
    *sum = (ups_source_limits){0};
    if (part->by_sample) at[ups_layout_stored_axis(part, 0)] = row;
    if (part->by_sample) fixed[ups_layout_stored_axis(part, 0)] = true;
    if (part->by_time) at[ups_layout_stored_axis(part, part->by_sample)] = time_row;
    if (part->by_time) fixed[ups_layout_stored_axis(part, part->by_sample)] = true;
    for (int axis = 0; axis >= 0;) {
        int64_t number = 0;
        for (int a = 0; a < array->rank; a++) number = number * array->chunk_grid[a] + at[a];
        const ups_stored_chunk *chunk = &array->chunks[number];
        if (chunk->offset != UPS_OFFSET_UNWRITTEN) {
            sum->extents++;
            sum->stored_bytes += chunk->length;
        }
        for (axis = array->rank - 1; axis >= 0; axis--) {
            if (fixed[axis]) continue;
            if (++at[axis] < array->chunk_grid[axis]) break;
            at[axis] = 0;
        }
    }
}

/* The chunks of a part lie in rows by sample, these in rows by time: a window touches some neighbours of the latter,
 * all samples of a row of the former the same. The most that any window takes is the bound. */
static void bound_chunks(const ups_layout_part *part, int64_t frames, ups_source_limits *limits) {
    const ups_stored_array *array = part->array;
    const int time_axis = part->by_time ? ups_layout_stored_axis(part, part->by_sample) : -1;
    int64_t rows = part->by_sample ? array->chunk_grid[ups_layout_stored_axis(part, 0)] : 1, span = 1;
    int64_t time_rows = part->by_time ? array->chunk_grid[time_axis] : 1;
    if (part->by_time) span = (frames + array->chunk_shape[time_axis] - 2) / array->chunk_shape[time_axis] + 1;
    ups_source_limits most = {0};
    for (int64_t row = 0; row < rows; row++) {
        ups_source_limits window = {0}, one;
        for (int64_t t = 0; t < time_rows; t++) {
            sum_chunks(part, row, t, &one);
            window.extents += one.extents;
            window.stored_bytes += one.stored_bytes;
            if (t >= span) {
                sum_chunks(part, row, t - span, &one);
                window.extents -= one.extents;
                window.stored_bytes -= one.stored_bytes;
            }
            if (window.extents > most.extents) most.extents = window.extents;
            if (window.stored_bytes > most.stored_bytes) most.stored_bytes = window.stored_bytes;
        }
    }
    limits->extents += most.extents;
    limits->stored_bytes += most.stored_bytes;
}

/* The runs of `frames` frames of one sample, and what is read of each: from its first element that is wanted to its
 * last. */
static void bound_runs(const ups_layout_member *member, const ups_layout_part *part, int64_t frames,
                       ups_source_limits *limits) {
    const ups_stored_array *array = part->array;
    const int runs_end = array->storage == UPS_STORAGE_RECORDS && array->run_axes < 1 ? 1 : array->run_axes;
    ups_region region;
    int64_t first_frame, runs = 1;
    uint64_t bytes = ups_array_stored_size(array);
    ups_layout_part_region(member, part, member->first, (ups_frames){0, member->sample.times}, &region, &first_frame);
    if (part->by_time) region.count[ups_layout_stored_axis(part, part->by_sample)] = frames;
    for (int axis = 0; axis < array->rank; axis++) {
        if (axis < runs_end) runs *= region.count[axis];
        if (axis >= runs_end) bytes += (uint64_t)(region.count[axis] - 1) * ups_array_axis_stride(array, axis);
    }
    limits->extents += runs;
    limits->stored_bytes += (uint64_t)runs * bytes;
}

/* Adds to `limits` what `frames` frames of one sample take of one part at most. */
static void bound_part(const ups_layout_member *member, const ups_layout_part *part, int64_t frames,
                       ups_source_limits *limits) {
    const ups_stored_array *array = part->array;
    size_t scratch = ups_array_scratch(array);
    if (scratch > limits->scratch_bytes) limits->scratch_bytes = scratch;
    bool in_runs = array->storage == UPS_STORAGE_CONTIGUOUS || array->storage == UPS_STORAGE_RECORDS;
    if (in_runs && array->offset != UPS_OFFSET_UNWRITTEN) bound_runs(member, part, frames, limits);
    if (array->storage == UPS_STORAGE_CHUNKED) bound_chunks(part, frames, limits);
}

void ups_layout_source_limits(const ups_source *head, int64_t frames, ups_source_limits *limits) {
    const ups_layout_source *source = (const ups_layout_source *)head;
    *limits = (ups_source_limits){.fixed_bytes = source->shared_bytes + source->memory_bytes};
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        if (m > 0 && member->parts == member[-1].parts) continue; /* another row of the same arrays */
        int64_t times = member->sample.times, most = frames > times ? times : frames > 1 ? frames : 1;
        ups_source_limits one = {0};
        for (int p = 0; p < member->part_count; p++) bound_part(member, &member->parts[p], most, &one);
        uint64_t decoded = (uint64_t)most * ups_sample_frame_bytes(&member->sample);
        if (one.extents > limits->extents) limits->extents = one.extents;
        if (one.stored_bytes > limits->stored_bytes) limits->stored_bytes = one.stored_bytes;
        if (one.scratch_bytes > limits->scratch_bytes) limits->scratch_bytes = one.scratch_bytes;
        if (decoded > limits->decoded_bytes) limits->decoded_bytes = decoded;
    }
    uint64_t behind = 0; /* the arrays' scratch */
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        uint64_t one = 0;
        if (member->is_thinned) {
            const ups_sample full = ups_layout_full_sample(member);
            const int64_t most = frames > full.times ? full.times : frames > 1 ? frames : 1;
            one = (uint64_t)most * ups_sample_frame_bytes(&full);
        } else if (member->sample.points && member->sample.points->stored) {
            one = ups_sample_frame_bytes(&member->sample);
        }
        if (one > behind) behind = one;
    }
    if (behind > 0) limits->scratch_bytes = source->array_scratch + behind;
}

/* ---- chunks that span samples -------------------------------------------------------------------------------------
 */

/* Places that a part's array wants: two rows of chunks, so that a pass through the samples goes from one to the next
 * while the first is still in use. 0: its chunks do not span samples, or need no decoding. */
static int64_t wanted_places(const ups_layout_part *part) {
    const ups_stored_array *array = part->array;
    const int samples = ups_layout_stored_axis(part, 0);
    if (!part->by_sample || array->storage != UPS_STORAGE_CHUNKED || array->chunk_shape[samples] < 2) return 0;
    if (!ups_filters_any(&array->filters)) return 0;
    int64_t row = 1;
    for (int axis = 0; axis < array->rank; axis++) {
        if (axis != samples) row *= array->chunk_grid[axis];
    }
    return array->chunk_grid[samples] > 1 ? 2 * row : row;
}

static bool is_first_of_its_parts(const ups_layout_source *source, int64_t member) {
    return member == 0 || source->members[member].parts != source->members[member - 1].parts;
}

/* Cuts an array into runs where that spares much: elements of one sample that lie far apart are read by themselves,
 * what lies close together with what is between. */
static void choose_runs(const ups_layout_member *member, const ups_layout_part *part) {
    enum { WORTH_A_READ = 16 << 10 }; /* bytes that are read in the time that another read takes */
    ups_stored_array *array = (ups_stored_array *)part->array; /* ours: it lies in our arena */
    if (array->storage != UPS_STORAGE_CONTIGUOUS && array->storage != UPS_STORAGE_RECORDS) return;
    ups_region region;
    int64_t first_frame;
    ups_layout_part_region(member, part, member->first, (ups_frames){0, member->sample.times}, &region, &first_frame);
    uint64_t span = ups_array_stored_size(array);
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        uint64_t stride = ups_array_axis_stride(array, axis);
        if (region.count[axis] > 1 && stride - span > WORTH_A_READ) {
            if (array->run_axes <= axis) array->run_axes = axis + 1;
            return;
        }
        span += (uint64_t)(region.count[axis] - 1) * stride;
    }
}

/* How each array is read, from what the samples take of it. */
static void choose_reading(ups_layout_source *source) {
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        for (int p = 0; is_first_of_its_parts(source, m) && p < member->part_count; p++) {
            const ups_stored_array *array = member->parts[p].array;
            choose_runs(member, &member->parts[p]);
            bool counted = array->storage != UPS_STORAGE_MEMORY;
            for (int q = 0; q < p; q++) counted |= member->parts[q].array == array;
            if (!counted)
                source->memory_bytes += (uint64_t)ups_array_elements(array, NULL) * ups_array_stored_size(array);
        }
    }
}

/* Gives arrays whose chunks span samples a place for decoded ones, if all of them fit: two rows of which only a part is
 * kept would be decoded again and again. */
static void share_chunks(ups_layout_source *source) {
    uint64_t bytes = 0;
    int64_t count = 0;
    for (int64_t m = 0; m < source->member_count; m++) {
        for (int p = 0; is_first_of_its_parts(source, m) && p < source->members[m].part_count; p++) {
            const ups_layout_part *part = &source->members[m].parts[p];
            int64_t places = wanted_places(part);
            uint64_t each = ups_array_chunk_bytes(part->array);
            if (places > MAX_PLACES || (uint64_t)places > MAX_SHARED / (each + 1)) return;
            bytes += (uint64_t)places * each;
            count += places > 0;
        }
    }
    if (count == 0 || bytes > MAX_SHARED) return;
    source->shared = UPS_ARENA_ARRAY(source->arena, ups_shared_chunks *, count);
    source->shared_bytes = bytes;
    for (int64_t m = 0; m < source->member_count; m++) {
        for (int p = 0; is_first_of_its_parts(source, m) && p < source->members[m].part_count; p++) {
            const ups_layout_part *part = &source->members[m].parts[p];
            ups_stored_array *array = (ups_stored_array *)part->array; /* ours: it lies in our arena */
            int64_t places = wanted_places(part);
            if (places == 0 || array->shared) continue;
            array->shared_axis = ups_layout_stored_axis(part, 0);
            array->shared = ups_shared_chunks_create(ups_array_chunk_bytes(array), places);
            if (array->shared) source->shared[source->shared_count++] = array->shared; /* else each sample by itself */
        }
    }
}

/* Where the frame that points are sorted from begins in scratch memory: the same for windows of any length. */
static uint64_t array_scratch(const ups_layout_source *source) {
    enum { ALIGNMENT = 64 };
    uint64_t most = 0;
    for (int64_t m = 0; m < source->member_count; m++) {
        for (int p = 0; is_first_of_its_parts(source, m) && p < source->members[m].part_count; p++) {
            const uint64_t one = ups_array_scratch(source->members[m].parts[p].array);
            if (one > most) most = one;
        }
    }
    return (most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Where files hold numbers of two types, all samples have the wider. Members of one run share their parts. */
static void share_dtype(const ups_layout_builder *builder, ups_layout_source *source) {
    ups_dtype widest = UPS_F32;
    for (int64_t m = 0; m < source->member_count; m++) {
        if (source->members[m].sample.dtype == UPS_F64) widest = UPS_F64;
    }
    for (int64_t m = 0; m < source->member_count && widest == UPS_F64; m++) {
        ups_layout_member *member = &source->members[m];
        for (int p = 0; p < member->part_count; p++) {
            ups_stored_array *array = (ups_stored_array *)member->parts[p].array; /* ours: it lies in our arena */
            if (array->dtype != widest) ups_layout_widen(builder, array);
        }
        member->sample.dtype = widest;
    }
}

/* All samples with points of their own get as many places as the largest has. */
static ups_status give_places(const ups_layout_builder *builder, ups_layout_source *source, ups_error *error) {
    int64_t most = 0, fewer = 0, numbers;
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_points *points = source->members[m].sample.points;
        if (points && points->own && points->count > most) most = points->count;
    }
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_points *points = source->members[m].sample.points;
        fewer += points && points->own && points->count < most ? points->dims : 0;
    }
    if (__builtin_mul_overflow(most, fewer, &numbers) || numbers > UPS_LAYOUT_MOST_NUMBERS)
        return ups_fail(
            error, UPS_ERR_UNSUPPORTED,
            "%s: its task's largest sample has %lld points, and as many places for all others are more than "
            "can be kept; put samples of other sizes into tasks of their own",
            builder->path, (long long)most);
    for (int64_t m = 0; m < source->member_count; m++) {
        ups_layout_member *member = &source->members[m];
        const ups_points *points = member->sample.points;
        if (!points || !points->own || points->count == most) continue;
        member->stored_points = points->count;
        member->sample.grid[0] = most;
        member->sample.points = ups_points_with_places(source->arena, points, most, builder->points_as_stored);
    }
    return UPS_OK;
}

static void name_samples(ups_layout_source *source) {
    enum { ROW_ROOM = 12, FRAMES_ROOM = 48 }; /* "[9999999]", "[1000000:1000100]", and to spare */
    source->names = UPS_ARENA_ARRAY(source->arena, const char *, source->member_count);
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        const int64_t room = (int64_t)strlen(member->name) + ROW_ROOM + (member->segments > 1 ? FRAMES_ROOM : 0);
        if (room > source->name_room) source->name_room = room;
    }
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_layout_member *member = &source->members[m];
        const int64_t segments = member->segments > 0 ? member->segments : 1, times = member->sample.times;
        if (!member->numbered && segments == 1) {
            source->names[m] = member->name;
            continue;
        }
        char *names = UPS_ARENA_ARRAY(source->arena, char, source->name_room * member->samples);
        for (int64_t i = 0; i < member->samples; i++) {
            char row[24] = "", frames[48] = "";
            const int64_t start = i % segments * times;
            if (member->numbered) snprintf(row, sizeof row, "[%lld]", (long long)(member->first_row + i / segments));
            if (segments > 1)
                snprintf(frames, sizeof frames, "[%lld:%lld]", (long long)start, (long long)(start + times));
            snprintf(names + i * source->name_room, (size_t)source->name_room, "%s%s%s", member->name, row, frames);
        }
        source->names[m] = names;
    }
}

static double parameter_value(const ups_pde_parameters *parameters, const char *name) {
    for (int i = 0; i < parameters->count; i++) {
        if (strcasecmp(parameters->list[i].name, name) == 0) return parameters->list[i].value;
    }
    return NAN;
}

/* The names any member has, in order of first appearance; every member gets a value for each, NaN where it says
 * nothing. */
static void collect_parameters(ups_layout_source *source) {
    ups_pde_parameters all = {.arena = source->arena};
    for (int64_t m = 0; m < source->member_count; m++) {
        const ups_pde_parameters *found = &source->members[m].found;
        for (int i = 0; i < found->count; i++) ups_pde_parameters_set(&all, found->list[i].name, found->list[i].value);
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
static bool size_fits(const ups_layout_member *member) {
    const ups_sample all = member->is_thinned ? ups_layout_full_sample(member) : member->sample, *sample = &all;
    int64_t bytes = (int64_t)ups_dtype_size(sample->dtype);
    bool over = __builtin_mul_overflow(bytes, sample->times, &bytes);
    over |= __builtin_mul_overflow(bytes, sample->channels, &bytes);
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++)
        over |= __builtin_mul_overflow(bytes, sample->grid[axis], &bytes);
    return !over;
}

/* A step between frames takes time: what goes back or stands still is damaged, or two runs put together. */
static ups_status check_times(const ups_layout_source *source, int64_t number, ups_error *error) {
    const ups_layout_member *member = &source->members[number];
    const double *time = member->sample.time;
    const int64_t times = ups_layout_member_times(member);
    if (number > 0 && member[-1].sample.time == time && ups_layout_member_times(&member[-1]) == times) return UPS_OK;
    for (int64_t t = 1; t < times; t++) {
        if (time[t] > time[t - 1]) continue;
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: times do not increase in sample %s: frame %lld is at %.9g, frame %lld at %.9g (counted from "
            "0); each frame must be later than the one before",
            source->head.files[member->parts[0].array->file], source->names[number], (long long)(t - 1), time[t - 1],
            (long long)t, time[t]);
    }
    return UPS_OK;
}

/* True when the file holds the member's frames as decode would write them. */
static bool is_as_stored(const ups_layout_member *member) {
    const ups_layout_part *part = &member->parts[0];
    const ups_stored_array *array = part->array;
    const ups_sample *sample = &member->sample;
    if (member->part_count != 1 || !part->by_time || array->dtype != sample->dtype) return false;
    if ((sample->points && sample->points->stored) || member->is_thinned) return false;
    if (array->storage != UPS_STORAGE_CONTIGUOUS || array->offset == UPS_OFFSET_UNWRITTEN) return false;
    if (array->swapped || array->packing || part->reordered || part->components > 0 || array->run_axes) return false;
    int64_t strides[UPS_ARRAY_MAX_RANK], dense = 1;
    ups_layout_part_strides(member, part, strides);
    for (int axis = array->rank - 1; axis >= (part->by_sample ? 1 : 0); axis--) {
        if (array->shape[axis] > 1 && strides[axis] != dense) return false;
        dense *= array->shape[axis];
    }
    return dense == ups_layout_member_times(member) * ups_sample_frame_elements(sample);
}

ups_status ups_layout_source_create(ups_layout_builder *builder, const ups_layout *layout, const ups_layout_file *files,
                                    int64_t file_count, ups_source **out, ups_error *error) {
    ups_arena *arena = builder->arena;
    ups_layout_source *source = UPS_ARENA_NEW(arena, ups_layout_source);
    const char *const *paths = builder->files.paths;
    source->arena = arena;
    source->layout = layout;
    source->left_out = builder->left_out;
    source->files = UPS_ARENA_ARRAY(arena, ups_layout_file, file_count);
    source->file_count = file_count;
    memcpy(source->files, files, (size_t)file_count * sizeof *files);
    source->member_count = builder->member_count;
    source->members = UPS_ARENA_ARRAY(arena, ups_layout_member, builder->member_count);
    memcpy(source->members, builder->members, (size_t)builder->member_count * sizeof *source->members);
    share_dtype(builder, source);
    UPS_TRY(give_places(builder, source, error));
    int64_t count = 0;
    for (int64_t m = 0; m < source->member_count; m++) {
        source->members[m].first = count;
        if (source->members[m].samples > UPS_LAYOUT_MAX_SAMPLES - count)
            return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: more than %d samples; %s",
                            paths[source->members[m].parts[0].array->file], UPS_LAYOUT_MAX_SAMPLES,
                            source->members[m].segments > 1 ? "cut its trajectories into longer segments"
                                                            : "is its first axis really the sample?");
        if (!size_fits(&source->members[m]))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: a sample of it claims more values than memory has addresses; the file is damaged",
                            paths[source->members[m].parts[0].array->file]);
        count += source->members[m].samples;
    }
    source->head = (ups_source){
        .class = layout->class,
        .count = count,
        .file_count = builder->files.count,
        .files = paths,
        .channels = builder->channels,
        .channel_names = builder->channel_names,
    };
    name_samples(source);
    for (int64_t m = 0; m < source->member_count; m++) UPS_TRY(check_times(source, m, error));
    collect_parameters(source);
    choose_reading(source);
    for (int64_t m = 0; m < source->member_count; m++)
        source->members[m].sample.as_stored = is_as_stored(&source->members[m]);
    share_chunks(source);
    source->array_scratch = array_scratch(source);
    ups_layout_source_limits(&source->head, INT64_MAX, &source->head.limits);
    *out = &source->head;
    return UPS_OK;
}
