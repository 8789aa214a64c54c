#include "tools/solvers/writer/sink.h"
#include "base/arena.h"
#include "base/half.h"
#include "base/system/cancel.h"

#include <stdlib.h>

/* Values passed on at once: large enough that a write costs nothing beside its bytes. */
enum { PIECE = 128 * 1024 };

typedef struct held_values {
    float *values;
    int64_t capacity, count;
    int64_t passed; /* values of this sample already passed on */
} held_values;

struct ups_sink {
    const ups_file_layout *layout;
    ups_sink_write write;
    void *context;
    int64_t sample;
    held_values held[UPS_FILE_ARRAYS];
};

ups_sink *ups_sink_create(const ups_file_layout *layout, ups_sink_write write, void *context) {
    ups_sink *sink = calloc(1, sizeof *sink);
    if (!sink) return NULL;
    sink->layout = layout;
    sink->write = write;
    sink->context = context;
    for (int i = 0; i < layout->array_count; i++) {
        const int64_t all = ups_file_sample_values(&layout->arrays[i]);
        held_values *held = &sink->held[i];
        held->capacity = all < PIECE ? all : PIECE;
        held->values = ups_aligned_alloc(64, sizeof(float) * (size_t)held->capacity);
        if (!held->values) {
            ups_sink_destroy(sink);
            return NULL;
        }
    }
    return sink;
}

void ups_sink_destroy(ups_sink *sink) {
    if (!sink) return;
    for (int i = 0; i < UPS_FILE_ARRAYS; i++) ups_aligned_free(sink->held[i].values);
    free(sink);
}

void ups_sink_begin(ups_sink *sink, int64_t sample) {
    sink->sample = sample;
    for (int i = 0; i < sink->layout->array_count; i++) sink->held[i].count = sink->held[i].passed = 0;
}

static ups_status pass_on(ups_sink *sink, int array, ups_error *error) {
    held_values *held = &sink->held[array];
    if (held->count == 0) return UPS_OK;
    const ups_f32_range_result range = ups_f32_range(held->values, (size_t)held->count);
    if (range.non_finite > 0) {
        const ups_file_array *declared = &sink->layout->arrays[array];
        const int64_t at = held->passed + (int64_t)range.first_non_finite;
        return ups_fail(error, UPS_ERR_NUMERIC,
                        "the solution left the range of float32 in %s, frame %lld; milder parameters are needed",
                        declared->name, (long long)(at / ups_file_frame_values(declared)));
    }
    UPS_TRY(sink->write(sink->context, array, sink->sample, held->passed, held->values, held->count, error));
    held->passed += held->count;
    held->count = 0;
    return UPS_OK;
}

ups_status ups_sink_end(ups_sink *sink, ups_error *error) {
    for (int i = 0; i < sink->layout->array_count; i++) {
        UPS_TRY(pass_on(sink, i, error));
        const int64_t all = ups_file_sample_values(&sink->layout->arrays[i]);
        if (sink->held[i].passed != all) {
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %lld of %lld values were computed",
                            sink->layout->arrays[i].name, (long long)sink->held[i].passed, (long long)all);
        }
    }
    return UPS_OK;
}

ups_status ups_sink_put_channels(ups_sink *sink, int array, int64_t frame, const double *const *planes,
                                 ups_error *error) {
    const ups_file_array *declared = &sink->layout->arrays[array];
    const int64_t channels = declared->channels > 0 ? declared->channels : 1;
    const int64_t points = ups_file_frame_values(declared) / channels;
    held_values *held = &sink->held[array];
    if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
    if (held->passed + held->count != frame * points * channels) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: frame %lld came out of order", declared->name, (long long)frame);
    }
    int64_t channel = 0;
    for (int64_t done = 0; done < points * channels;) {
        if (held->count == held->capacity) UPS_TRY(pass_on(sink, array, error));
        const int64_t room = held->capacity - held->count, left = points * channels - done;
        const int64_t take = room < left ? room : left;
        float *to = held->values + held->count;
        if (channels == 1) {
            for (int64_t i = 0; i < take; i++) to[i] = (float)planes[0][done + i];
        } else {
            for (int64_t i = 0; i < take; i++) {
                to[i] = (float)planes[channel][(done + i) / channels];
                channel = channel + 1 == channels ? 0 : channel + 1;
            }
        }
        held->count += take;
        done += take;
    }
    return UPS_OK;
}

ups_status ups_sink_put(ups_sink *sink, int array, int64_t frame, const double *values, ups_error *error) {
    return ups_sink_put_channels(sink, array, frame, &values, error);
}
