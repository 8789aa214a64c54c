/* Every n-th point along the axes of a grid, from the first on, as PDEBench's `reduced_resolution` takes them. All of
 * the file is read; what is left out is left out behind decoding. */
#include "pipeline/layouts/thin.h"

#include <string.h>

/* One number for all axes says nothing of those of a single point. */
static int64_t step_along(const ups_layout_builder *builder, int axis, int64_t points) {
    if (builder->thin_count == 1) return points > 1 ? builder->thin[0] : 1;
    return builder->thin[axis];
}

/* Other grids may look alike once they are thinned. */
static ups_status check_grid(const ups_layout_builder *builder, const ups_layout_member *member, ups_error *error) {
    const ups_layout_member *first = &builder->members[0];
    if (memcmp(member->full_grid, first->full_grid, sizeof member->full_grid) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: its samples have the grid %s, and those before %s; what `thin` makes of them would be other "
                    "fields: put files of different resolution into tasks of their own",
                    builder->path, ups_layout_shape_text(builder->arena, member->sample.dims, member->full_grid),
                    ups_layout_shape_text(builder->arena, first->sample.dims, first->full_grid));
}

static const double *thin_coordinate(ups_arena *arena, const double *values, int64_t step, int64_t count) {
    if (!values || step == 1) return values;
    double *kept = UPS_ARENA_ARRAY(arena, double, count);
    for (int64_t i = 0; i < count; i++) kept[i] = values[i * step];
    return kept;
}

/* Coordinates that the member before has, too, are shared as they were. */
static const double *coordinate_of(const ups_layout_builder *builder, int64_t m, int64_t first, int axis,
                                   int64_t step) {
    const ups_layout_member *member = &builder->members[m], *before = member - 1;
    if (m > first && before->full_coordinates[axis] == member->full_coordinates[axis])
        return before->sample.coordinates[axis];
    return thin_coordinate(builder->arena, member->full_coordinates[axis], step, member->sample.grid[axis]);
}

ups_status ups_layout_thin(ups_layout_builder *builder, int64_t first, ups_error *error) {
    enum { FEWEST = 2 };
    for (int64_t m = first; m < builder->member_count && builder->thin_count > 0; m++) {
        ups_layout_member *member = &builder->members[m];
        ups_sample *sample = &member->sample;
        if (sample->points)
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "%s: its points lie anywhere, and `thin` takes every n-th of a grid; leave it out",
                            builder->path);
        if (builder->thin_count != 1 && builder->thin_count != sample->dims)
            return ups_fail(error, UPS_ERR_CONFIG, "%s: `thin` has %d numbers, but its fields have %d grid axes",
                            builder->path, builder->thin_count, sample->dims);
        for (int axis = 0; axis < sample->dims; axis++) {
            const int64_t points = sample->grid[axis], step = step_along(builder, axis, points);
            const int64_t left = (points - 1) / step + 1;
            if (step > 1 && left < FEWEST)
                return ups_fail(error, UPS_ERR_CONFIG,
                                "%s: a `thin` of %lld leaves one point of a grid axis of %lld; choose a smaller number",
                                builder->path, (long long)step, (long long)points);
            if (sample->periodic && points % step != 0)
                return ups_fail(error, UPS_ERR_CONFIG,
                                "%s: its domain wraps around after %lld points, which %lld does not divide; "
                                "choose a number for `thin` that does",
                                builder->path, (long long)points, (long long)step);
            member->full_grid[axis] = points;
            member->thin[axis] = step;
            member->is_thinned |= step > 1;
            member->full_coordinates[axis] = sample->coordinates[axis];
            sample->grid[axis] = left;
            sample->coordinates[axis] = coordinate_of(builder, m, first, axis, step);
        }
        for (int axis = sample->dims; axis < UPS_MAX_GRID_DIMS; axis++) {
            member->full_grid[axis] = member->thin[axis] = 1;
        }
        UPS_TRY(check_grid(builder, member, error));
    }
    return UPS_OK;
}

ups_sample ups_layout_full_sample(const ups_layout_member *member) {
    ups_sample full = member->sample;
    memcpy(full.grid, member->full_grid, sizeof full.grid);
    return full;
}

/* Runs of `count` elements of `bytes`, each `step` from the one before. */
static uint8_t *pick_row(const uint8_t *from, size_t bytes, int64_t step, int64_t count, uint8_t *to) {
    if (step == 1) {
        memcpy(to, from, (size_t)count * bytes);
        return to + (size_t)count * bytes;
    }
    for (int64_t i = 0; i < count; i++, to += bytes) {
        const uint8_t *at = from + (size_t)(i * step) * bytes;
        if (bytes == sizeof(float)) /* a size known here is a single move */
            memcpy(to, at, sizeof(float));
        else
            memcpy(to, at, bytes);
    }
    return to;
}

void ups_layout_pick(const ups_layout_member *member, int64_t frames, const void *from, void *to) {
    const ups_sample *sample = &member->sample;
    const int64_t *full = member->full_grid, *step = member->thin, *left = sample->grid;
    const bool last = sample->order == UPS_CHANNELS_LAST;
    const size_t bytes = ups_dtype_size(sample->dtype) * (size_t)(last ? sample->channels : 1);
    const int64_t grids = frames * (last ? 1 : sample->channels);
    const int slow = sample->dims - 1; /* axes before the fastest */
    const int64_t rows[2] = {slow > 0 ? left[0] : 1, slow > 1 ? left[1] : 1};
    const size_t row = (size_t)full[slow] * bytes, plane = slow > 1 ? (size_t)full[1] * row : row;
    const size_t grid = slow > 0 ? (size_t)full[0] * plane : row;
    const uint8_t *source = from;
    uint8_t *out = to;
    for (int64_t g = 0; g < grids; g++, source += grid) {
        for (int64_t x = 0; x < rows[0]; x++) {
            for (int64_t y = 0; y < rows[1]; y++) {
                const uint8_t *at =
                    source + (size_t)(x * step[0]) * plane + (slow > 1 ? (size_t)(y * step[1]) * row : 0);
                out = pick_row(at, bytes, step[slow], left[slow], out);
            }
        }
    }
}
