#include "pipeline/source.h"

#include "base/arena.h"
#include "base/files.h"
#include "base/sizes.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

ups_status ups_source_describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    if (index < 0 || index >= source->count)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s has %lld samples, numbered from 0; there is no sample %lld",
                        source->file_count ? source->files[0] : source->class->kind, (long long)source->count,
                        (long long)index);
    return source->class->describe(source, index, sample, error);
}

void ups_source_close(ups_source *source) {
    if (source) source->class->close(source);
}

ups_source_limits ups_source_window_limits(const ups_source *source, int64_t frames) {
    ups_source_limits limits = source->limits;
    if (source->class->limits) source->class->limits(source, frames, &limits);
    return limits;
}

int64_t ups_sample_frame_elements(const ups_sample *sample) {
    int64_t elements = sample->channels;
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++) elements *= sample->grid[axis];
    return elements;
}

size_t ups_sample_frame_bytes(const ups_sample *sample) {
    return (size_t)ups_sample_frame_elements(sample) * ups_dtype_size(sample->dtype);
}

/* Fills `pieces` with what the extents say, one behind the other, in `to`; where that is NULL in one buffer that
 * *memory receives. */
static ups_status read_extents(const ups_source *source, const ups_extent *extents, int64_t count, ups_piece *pieces,
                               uint8_t *to, uint8_t **memory, ups_error *error) {
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) total = ups_size_sum(total, extents[i].length);
    if (!to) to = *memory = ups_aligned_alloc(64, total ? total : 1);
    if (!to) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %llu stored bytes", (unsigned long long)total);
    int fd = -1;
    uint32_t opened = 0;
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        const char *path = source->files[extents[i].file];
        if (fd < 0 || opened != extents[i].file) {
            if (fd >= 0) close(fd);
            opened = extents[i].file;
            status = ups_open_regular(path, O_RDONLY, &fd, error);
            if (status != UPS_OK) break;
        }
        status = ups_read_at(fd, path, extents[i].offset, to, extents[i].length, error);
        pieces[i] = (ups_piece){to, extents[i].length};
        to += extents[i].length;
    }
    if (fd >= 0) close(fd);
    return status;
}

ups_status ups_source_read(const ups_source *source, int64_t index, ups_frames frames, void *out, ups_error *error) {
    ups_sample sample;
    UPS_TRY(ups_source_describe(source, index, &sample, error));
    if (frames.start < 0 || frames.count < 0 || frames.start > sample.times - frames.count)
        return ups_fail(error, UPS_ERR_ARGUMENT, "sample %s has %lld frames; frames %lld to %lld were asked for",
                        sample.name, (long long)sample.times, (long long)frames.start,
                        (long long)(frames.start + frames.count - 1));
    if (frames.count == 0) return UPS_OK;

    size_t room = source->limits.extents > 0 ? (size_t)source->limits.extents : 1;
    ups_extent *extents = malloc(room * sizeof *extents);
    ups_piece *pieces = malloc(room * sizeof *pieces);
    void *scratch = ups_aligned_alloc(64, source->limits.scratch_bytes ? source->limits.scratch_bytes : 64);
    uint8_t *memory = NULL;
    ups_status status = UPS_OK;
    int64_t count = 0;
    if (!extents || !pieces || !scratch) {
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory to read sample %s", sample.name);
        goto cleanup;
    }
    status = source->class->extents(source, index, frames, extents, &count, error);
    bool straight = sample.as_stored && count > 0; /* what is read is what decode would write */
    if (status == UPS_OK) status = read_extents(source, extents, count, pieces, straight ? out : NULL, &memory, error);
    if (status == UPS_OK && !straight)
        status = source->class->decode(source, index, frames, pieces, count, scratch, out, error);
cleanup:
    ups_aligned_free(memory);
    ups_aligned_free(scratch);
    free(pieces);
    free(extents);
    return status;
}
