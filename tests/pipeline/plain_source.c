#include "plain_source.h"

#include "base/files.h"
#include "base/half.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES 2
#define HEADER 1001 /* bytes before the first chunk, so that nothing is aligned */
#define GAP 20000   /* bytes between trajectories */

typedef struct plain {
    ups_source source;
    plain_options options;
    char paths[FILES][256];
    const char *files[FILES];
    const char *channel;
    char (*names)[16];
    double *time;
    double *parameters; /* (samples) */
    const char *parameter_name;
} plain;

float plain_value(int64_t sample, int64_t frame, int64_t element) {
    return (float)((sample * 131 + frame * 17 + element) % 2039);
}

static size_t frame_bytes(const plain_options *options) {
    return (size_t)options->elements * ups_dtype_size(options->dtype);
}

static int64_t chunk_frames(const plain_options *options) {
    return options->chunk_frames ? options->chunk_frames : options->times;
}

static int64_t chunk_count(const plain_options *options) {
    return (options->times + chunk_frames(options) - 1) / chunk_frames(options);
}

static uint64_t chunk_offset(const plain_options *options, int64_t sample, int64_t chunk) {
    uint64_t chunk_bytes = (uint64_t)chunk_frames(options) * frame_bytes(options);
    int64_t place = options->scattered ? chunk_count(options) - 1 - chunk : chunk;
    return HEADER + (uint64_t)(sample / FILES) * (chunk_bytes * (uint64_t)chunk_count(options) + GAP) +
           (uint64_t)place * chunk_bytes;
}

static ups_status describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    const plain *p = (const plain *)source;
    *sample = (ups_sample){.name = p->names[index],
                           .times = p->options.times,
                           .channels = 1,
                           .dims = 1,
                           .grid = {p->options.elements, 1, 1},
                           .dtype = p->options.dtype,
                           .as_stored = p->options.as_stored,
                           .time = p->time,
                           .parameters = &p->parameters[index]};
    return UPS_OK;
}

static ups_status extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *out, int64_t *count,
                          ups_error *error) {
    const plain *p = (const plain *)source;
    int64_t step = chunk_frames(&p->options);
    *count = 0;
    if (p->options.without_extents) return UPS_OK;
    if (p->options.as_stored) {
        uint64_t bytes = frame_bytes(&p->options);
        out[(*count)++] = (ups_extent){(uint32_t)(index % FILES),
                                       chunk_offset(&p->options, index, 0) + (uint64_t)frames.start * bytes,
                                       (uint64_t)frames.count * bytes};
        return UPS_OK;
    }
    for (int64_t c = frames.start / step; c * step < frames.start + frames.count; c++)
        out[(*count)++] = (ups_extent){(uint32_t)(index % FILES), chunk_offset(&p->options, index, c),
                                       (uint64_t)step * frame_bytes(&p->options)};
    return UPS_OK;
}

static ups_status decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error) {
    const plain *p = (const plain *)source;
    if (index == p->options.undecodable) return ups_fail(error, UPS_ERR_CHECKSUM, "its bytes changed");
    int64_t step = chunk_frames(&p->options), first = frames.start / step;
    size_t bytes = frame_bytes(&p->options);
    if (p->options.as_stored) {
        memcpy(out, pieces[0].bytes, pieces[0].length);
        return UPS_OK;
    }
    for (int64_t f = 0; f < frames.count; f++) {
        int64_t frame = frames.start + f;
        uint8_t *to = (uint8_t *)out + (size_t)f * bytes;
        if (p->options.without_extents) { /* as a library would: open, read, close */
            FILE *file = fopen(p->files[index % FILES], "rb");
            uint64_t offset = chunk_offset(&p->options, index, frame / step) + (uint64_t)(frame % step) * bytes;
            bool there = file && fseek(file, (long)offset, SEEK_SET) == 0 && fread(to, 1, bytes, file) == bytes;
            if (file) fclose(file);
            if (!there) return ups_fail(error, UPS_ERR_IO, "%s cannot be read", p->files[index % FILES]);
            continue;
        }
        if (frame / step - first >= count) return ups_fail(error, UPS_ERR_FORMAT, "a piece is missing");
        memcpy(to, pieces[frame / step - first].bytes + (size_t)(frame % step) * bytes, bytes);
    }
    return UPS_OK;
}

/* Its files go with it. */
static void close_plain(ups_source *source) {
    plain *p = (plain *)source;
    for (int f = 0; f < FILES; f++) unlink(p->paths[f]);
    free(p->names);
    free(p->time);
    free(p->parameters);
    free(p);
}

static const ups_source_class plain_class = {
    .kind = "test.plain", .describe = describe, .extents = extents, .decode = decode, .close = close_plain};

static void fill_frame(const plain_options *options, int64_t sample, int64_t frame, uint8_t *out) {
    for (int64_t e = 0; e < options->elements; e++) {
        float value = plain_value(sample, frame, e);
        bool bad = sample == options->bad_sample || (options->bad_onward && sample > options->bad_sample);
        if (bad && frame == options->bad_frame && e == options->elements / 2) value = NAN;
        double wide = value;
        ups_f16 half;
        ups_f32_to_f16(&value, &half, 1);
        uint8_t *to = out + (size_t)e * ups_dtype_size(options->dtype);
        if (options->dtype == UPS_F64)
            memcpy(to, &wide, sizeof wide);
        else if (options->dtype == UPS_F32)
            memcpy(to, &value, sizeof value);
        else
            memcpy(to, &half, sizeof half);
    }
}

static void write_files(const plain *p) {
    const plain_options *options = &p->options;
    size_t bytes = frame_bytes(options);
    uint64_t end = chunk_offset(options, options->samples + FILES, 0);
    for (int f = 0; f < FILES; f++) {
        uint8_t *content = calloc(1, end);
        for (int64_t s = f; s < options->samples; s += FILES)
            for (int64_t t = 0; t < options->times; t++) {
                int64_t step = chunk_frames(options);
                fill_frame(options, s, t, content + chunk_offset(options, s, t / step) + (size_t)(t % step) * bytes);
            }
        ups_error error = {0};
        if (ups_publish_bytes(p->paths[f], content, end, &error) != UPS_OK) {
            fprintf(stderr, "%s\n", error.message);
            abort();
        }
        free(content);
    }
}

ups_source *plain_source(const plain_options *options) {
    plain *p = calloc(1, sizeof *p);
    p->options = *options;
    p->names = calloc((size_t)options->samples, sizeof *p->names);
    p->time = calloc((size_t)options->times, sizeof *p->time);
    p->parameters = calloc((size_t)options->samples, sizeof *p->parameters);
    for (int64_t s = 0; s < options->samples; s++) {
        snprintf(p->names[s], sizeof p->names[s], "%04d", (int)s);
        p->parameters[s] = 0.5 * (double)s;
    }
    for (int64_t t = 0; t < options->times; t++)
        p->time[t] = 0.25 * (double)t + 0.5 * options->slowing * (double)(t * (t - 1));
    for (int f = 0; f < FILES; f++) {
        snprintf(p->paths[f], sizeof p->paths[f], "%s/%s-%d.bin", options->directory, options->name, f);
        p->files[f] = p->paths[f];
    }
    p->channel = "u";
    p->parameter_name = "beta";
    uint64_t stored = (uint64_t)(chunk_count(options) * chunk_frames(options)) * frame_bytes(options);
    p->source = (ups_source){.class = &plain_class,
                             .count = options->samples,
                             .file_count = FILES,
                             .files = p->files,
                             .channels = 1,
                             .channel_names = &p->channel,
                             .parameter_count = 1,
                             .parameter_names = &p->parameter_name,
                             .limits = {.extents = chunk_count(options),
                                        .stored_bytes = stored,
                                        .decoded_bytes = (uint64_t)options->times * frame_bytes(options)}};
    write_files(p);
    return &p->source;
}
