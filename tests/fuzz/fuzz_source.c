#include "tests/fuzz/fuzz_source.h"

#include "base/config/document.h"
#include "pipeline/hdf5/storage.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "pipeline/layouts/suggest.h"
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

static void read_source(const char *path, const ups_layout_options *options) {
    ups_error error = {0};
    ups_source *source;
    if (!fuzz_accepted(ups_layout_open(path, options, &source, &error), &error)) {
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

void fuzz_read_simulation(const uint8_t *bytes, size_t length, bool through_library) {
    ups_hdf5_quiet_at_exit();
    read_source(fuzz_file(bytes, length), &(ups_layout_options){.through_library = through_library});
}

/* `layout` of the first task, as --layout takes it. */
static char *layout_of(const char *suggestion, ups_arena *arena) {
    ups_error error = {0};
    ups_yaml *root = NULL;
    char *text = NULL;
    size_t length;
    FUZZ_CHECK(ups_yaml_parse(arena, "suggestion", true, suggestion, strlen(suggestion), &root, &error) == UPS_OK);
    const ups_yaml *tasks = ups_yaml_child(root, "tasks");
    FUZZ_CHECK(tasks && tasks->first && ups_yaml_child(tasks->first, "layout"));
    FUZZ_CHECK(ups_yaml_emit(ups_yaml_child(tasks->first, "layout"), &text, &length, &error) == UPS_OK);
    return text;
}

void fuzz_read_suggested(const char *path) {
    ups_error error = {0};
    char *suggestion;
    ups_hdf5_quiet_at_exit();
    if (!fuzz_accepted(ups_suggest_layout(&path, 1, &suggestion, &error), &error)) return;
    ups_arena *arena = ups_arena_create(0);
    FUZZ_CHECK(arena != NULL);
    char *layout = layout_of(suggestion, arena);
    ups_mapping mapping;
    if (fuzz_accepted(ups_mapping_parse("--layout", layout, arena, &mapping, &error), &error))
        read_source(path, &(ups_layout_options){.mapping = &mapping});
    free(layout);
    free(suggestion);
    ups_arena_destroy(arena);
}
