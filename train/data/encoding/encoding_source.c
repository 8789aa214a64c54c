#include "train/data/encoding/encoding_source.h"

#include "base/sizes.h"
#include "cache/store/statistics.h"
#include "pipeline/convert.h"
#include "train/data/latents.h"
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define F16_NAN 0x7e00

typedef struct encoding_source {
    ups_source base;
    ups_encoder_pool *pool;
    const ups_task *task;
    const int64_t *samples; /* (base.count) indices into the task's source */
    int64_t tokens, dim;
    double max_abs_error;
} encoding_source;

static const encoding_source *self(const ups_source *source) {
    return (const encoding_source *)source;
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

/* Offsets into a decode's scratch. */
typedef struct scratch_places {
    size_t stored;  /* fields in the file's type, unless that is float32; the raw source's own scratch lies before */
    size_t fields;  /* the same as float32 */
    size_t latents; /* float32, not yet rounded */
    size_t frame;   /* FP16, one frame */
    size_t end;
} scratch_places;

/* Where what follows `count` values of so many bytes may begin, these beginning at `at`. */
static size_t behind(size_t at, uint64_t count, size_t bytes) {
    uint64_t end = ups_size_sum(at, ups_size_product(count, bytes));
    return end > UPS_SIZE_ABSURD - ALIGNMENT ? UPS_SIZE_ABSURD : (end + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* For decoding `fields` frames of fields and encoding `latents` of them; the raw source's decode takes `raw` bytes. */
static scratch_places place_scratch(const ups_task *task, int64_t latent_elements, size_t raw, int64_t fields,
                                    int64_t latents) {
    const ups_dtype type = task->geometry.dtype;
    uint64_t values = ups_size_product((uint64_t)fields, (uint64_t)ups_sample_frame_elements(&task->geometry));
    scratch_places at = {.stored = behind(0, raw, 1)};
    at.fields = type == UPS_F32 ? at.stored : behind(at.stored, values, ups_dtype_size(type));
    at.latents = behind(at.fields, values, sizeof(float));
    at.frame = behind(at.latents, ups_size_product((uint64_t)latents, (uint64_t)latent_elements), sizeof(float));
    at.end = behind(at.frame, (uint64_t)latent_elements, sizeof(ups_f16));
    return at;
}

ups_source_limits ups_encoding_limits(const ups_run_config *config, const ups_task *task, int64_t frames) {
    int64_t times = task->geometry.times, each = ups_task_latent_elements(config, task);
    if (frames > times) frames = times;
    int64_t span = frames + 2 * UPS_ENCODER_BLOCK - 2 < times ? frames + 2 * UPS_ENCODER_BLOCK - 2 : times;
    ups_source_limits made = ups_source_window_limits(task->source, span); /* of the raw fields; what differs: */
    made.decoded_bytes = ups_size_product(ups_size_product((uint64_t)frames, (uint64_t)each), sizeof(ups_f16));
    made.keep_decoded = made.threaded = true;
    made.scratch_bytes = place_scratch(task, each, made.scratch_bytes, span, frames).end;
    return made;
}

static void limits(const ups_source *source, int64_t frames, ups_source_limits *of) {
    const encoding_source *s = self(source);
    *of = ups_encoding_limits(ups_encoder_pool_config(s->pool), s->task, frames);
}

/* ---- the source ------------------------------------------------------------------------------------------------ */

static ups_status describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    const encoding_source *s = self(source);
    ups_sample raw;
    UPS_TRY(ups_source_describe(s->task->source, s->samples[index], &raw, error));
    *sample = (ups_sample){.name = raw.name,
                           .times = raw.times,
                           .channels = s->dim,
                           .dims = 1,
                           .grid = {s->tokens, 1, 1},
                           .order = UPS_CHANNELS_LAST,
                           .dtype = UPS_F16,
                           .time = raw.time,
                           .parameters = raw.parameters};
    return UPS_OK;
}

static ups_status extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *list, int64_t *count,
                          ups_error *error) {
    const encoding_source *s = self(source);
    const ups_source *raw = s->task->source;
    return raw->class->extents(raw, s->samples[index], ups_frame_encoder_span(s->task, frames), list, count, error);
}

static ups_status decode_fields(const encoding_source *s, int64_t index, ups_frames span, const ups_piece *pieces,
                                int64_t count, uint8_t *scratch, const scratch_places *at, bool *finite,
                                ups_error *error) {
    const ups_source *raw = s->task->source;
    float *fields = (float *)(void *)(scratch + at->fields);
    void *to = s->task->geometry.dtype == UPS_F32 ? (void *)fields : (void *)(scratch + at->stored);
    UPS_TRY(raw->class->decode(raw, s->samples[index], span, pieces, count, scratch, to, error));
    size_t values = (size_t)(span.count * ups_sample_frame_elements(&s->task->geometry));
    *finite = ups_convert(to, s->task->geometry.dtype, fields, UPS_F32, values);
    return UPS_OK;
}

static ups_status encode(const encoding_source *s, ups_frames wanted, const float *fields, float *latents,
                         ups_error *error) {
    ups_frame_encoder *encoder = ups_encoder_pool_take(s->pool);
    ups_status status = ups_frame_encoder_run(encoder, s->task, wanted, fields, latents, error);
    ups_encoder_pool_give_back(s->pool, encoder);
    return status;
}

/* A frame as the cache rounds it. */
static void round_frame(const encoding_source *s, const float *latents, ups_f16 *rounded) {
    ups_cache_rounding rounding = ups_cache_rounding_begin(s->max_abs_error);
    ups_cache_rounding_add(&rounding, latents, (size_t)(s->tokens * s->dim), rounded);
    if (rounding.lost > 0) rounded[rounding.first_lost] = F16_NAN; /* infinite already, or beyond the error bound */
}

/* Whether a frame of the fields, which hold those of `span`, is finite: what the encoder makes of it may be, and need
 * not. */
static bool is_finite(const encoding_source *s, const float *fields, ups_frames span, int64_t frame) {
    size_t elements = (size_t)ups_sample_frame_elements(&s->task->geometry), nan = 0, infinite = 0;
    ups_count_non_finite(fields + (size_t)(frame - span.start) * elements, UPS_F32, elements, &nan, &infinite);
    return nan + infinite == 0;
}

/* Frames as a cache would hold them, by one of two ways out: rounded to `half`, or `floats` with the values of that. */
static ups_status decode_as(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                            int64_t count, void *scratch, ups_f16 *half, float *floats, bool *finite,
                            ups_error *error) {
    const encoding_source *s = self(source);
    const int64_t each = s->tokens * s->dim;
    ups_frames span = ups_frame_encoder_span(s->task, frames);
    size_t raw_scratch = ups_source_window_limits(s->task->source, span.count).scratch_bytes;
    bool sound;
    scratch_places at = place_scratch(s->task, each, raw_scratch, span.count, frames.count);
    UPS_TRY(decode_fields(s, index, span, pieces, count, scratch, &at, &sound, error));
    const float *fields = (const float *)(const void *)((uint8_t *)scratch + at.fields);
    float *latents = (float *)(void *)((uint8_t *)scratch + at.latents);
    UPS_TRY(encode(s, frames, fields, latents, error));
    ups_f16 *frame = (ups_f16 *)(void *)((uint8_t *)scratch + at.frame);
    *finite = true;
    for (int64_t i = 0; i < frames.count; i++) {
        ups_f16 *rounded = half ? half + i * each : frame;
        round_frame(s, latents + i * each, rounded);
        if (!sound && !is_finite(s, fields, span, frames.start + i)) rounded[0] = F16_NAN;
        if (floats) *finite &= ups_convert(rounded, UPS_F16, floats + i * each, UPS_F32, (size_t)each);
    }
    return UPS_OK;
}

static ups_status decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error) {
    bool finite;
    return decode_as(source, index, frames, pieces, count, scratch, out, NULL, &finite, error);
}

static ups_status decode_f32(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                             int64_t count, void *scratch, float *out, bool *finite, ups_error *error) {
    return decode_as(source, index, frames, pieces, count, scratch, NULL, out, finite, error);
}

static void close_source(ups_source *source) {
    free(source);
}

static const ups_source_class encoding_class = {
    .kind = "encoded",
    .not_finite = "latents of fields that are not finite, or that a cache could not hold (FP16's ±65504, "
                  "cache.max_abs_error)",
    .describe = describe,
    .extents = extents,
    .decode = decode,
    .decode_f32 = decode_f32,
    .limits = limits,
    .close = close_source,
};

ups_status ups_encoding_source_open(ups_encoder_pool *pool, const ups_task *task, ups_split split, ups_source **source,
                                    ups_error *error) {
    *source = NULL;
    const ups_run_config *config = ups_encoder_pool_config(pool);
    int64_t count = task->splits.count[split];
    encoding_source *s = calloc(1, sizeof *s);
    if (!s) return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its source", task->name);
    s->pool = pool;
    s->task = task;
    s->samples = task->splits.samples[split];
    s->tokens = ups_task_latents(config, task).tokens;
    s->dim = ups_task_latents(config, task).dim;
    s->max_abs_error = ups_latents_error_bound(config);
    s->base = (ups_source){.class = &encoding_class,
                           .count = count,
                           .file_count = task->source->file_count,
                           .files = task->source->files,
                           .channels = s->dim,
                           .parameter_count = task->source->parameter_count,
                           .parameter_names = task->source->parameter_names};
    s->base.limits = ups_encoding_limits(config, task, task->geometry.times);
    *source = &s->base;
    return UPS_OK;
}
