#include "tests/fuzz/fuzz_source.h"

#include "pipeline/hdf5/storage.h"
#include "pipeline/layouts/layouts.h"
#include <stdlib.h>
#include <string.h>

/* A damaged file may truly be of terabytes (never written, so that it is short); a command asks for what it needs. */
enum { MOST_BYTES = 1 << 22, MOST_SAMPLES = 3 };

static void look(const double *numbers, int64_t count) {
    static volatile double seen;
    for (int64_t i = 0; numbers && i < count; i++) seen = numbers[i];
    (void)seen;
}

/* All that a sample is said to be must be there. */
static void look_at(const ups_source *source, const ups_sample *sample) {
    FUZZ_CHECK(sample->name && sample->times > 0 && sample->dims >= 1 && sample->dims <= UPS_MAX_GRID_DIMS);
    FUZZ_CHECK(sample->channels == source->channels && source->channels > 0);
    look(sample->time, sample->times);
    for (int a = 0; a < UPS_MAX_GRID_DIMS; a++) {
        FUZZ_CHECK(sample->grid[a] > 0);
        look(sample->coordinates[a], sample->grid[a]);
    }
    look(sample->parameters, source->parameter_count);
    for (int p = 0; p < source->parameter_count; p++) FUZZ_CHECK(source->parameter_names[p] != NULL);
    for (int64_t c = 0; c < source->channels; c++) FUZZ_CHECK(source->channel_names[c] != NULL);
}

static void read_frames(const ups_source *source, int64_t index, ups_frames frames, size_t frame_bytes) {
    ups_error error = {0};
    ups_source_limits limits = ups_source_window_limits(source, frames.count);
    if (limits.stored_bytes > MOST_BYTES || limits.scratch_bytes > MOST_BYTES || limits.extents > MOST_BYTES / 64 ||
        (size_t)frames.count > MOST_BYTES / frame_bytes)
        return;
    void *out = fuzz_room((size_t)frames.count * frame_bytes);
    fuzz_accepted(ups_source_read(source, index, frames, out, &error), &error);
    free(out);
}

void fuzz_read_simulation(const uint8_t *bytes, size_t length, bool through_library) {
    ups_layout_options options = {.through_library = through_library};
    ups_error error = {0};
    ups_source *source;
    ups_hdf5_quiet_at_exit();
    if (!fuzz_accepted(ups_layout_open(fuzz_file(bytes, length), &options, &source, &error), &error)) {
        FUZZ_CHECK(source == NULL);
        return;
    }
    FUZZ_CHECK(source->count > 0);
    ups_layout_reason(source);
    ups_layout_left_out(source);
    for (int64_t i = 0; i < source->count && i < MOST_SAMPLES; i++) {
        int64_t index = i + 1 < MOST_SAMPLES ? i : source->count - 1;
        ups_sample sample;
        FUZZ_CHECK(ups_source_describe(source, index, &sample, &error) == UPS_OK);
        look_at(source, &sample);
        const ups_stored_array *arrays[UPS_LAYOUT_MAX_ARRAYS];
        FUZZ_CHECK(ups_layout_arrays(source, index, arrays) <= UPS_LAYOUT_MAX_ARRAYS);
        FUZZ_CHECK(ups_layout_boundary(source, index) != NULL);
        size_t frame_bytes = ups_sample_frame_bytes(&sample);
        if (frame_bytes == 0 || frame_bytes > MOST_BYTES) continue;
        read_frames(source, index, (ups_frames){0, sample.times}, frame_bytes);
        if (sample.times > 2) read_frames(source, index, (ups_frames){1, 1}, frame_bytes);
    }
    ups_source_close(source);
}
