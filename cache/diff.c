#include "cache/diff.h"

#include "base/cancel.h"
#include "base/files.h"
#include "cache/reader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *ups_fingerprint_difference(const ups_fingerprint *a, const ups_fingerprint *b, int64_t *differing) {
    json_t *left = ups_fingerprint_to_json(a), *right = ups_fingerprint_to_json(b), *parts = json_object();
    const char *key;
    json_t *value;
    *differing = 0;
    json_object_foreach(left, key, value) {
        json_t *other = json_object_get(right, key);
        bool same = json_equal(value, other);
        *differing += !same;
        json_object_set_new(parts, key, json_pack("{s:O, s:O, s:b}", "a", value, "b", other, "same", same));
    }
    json_decref(left);
    json_decref(right);
    return parts;
}

/* ---- matching samples ---- */

/* A sample of one cache by its place in the source. */
typedef struct place {
    int64_t source, index;
} place;

static int by_source(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static place *sorted_places(const ups_cache_group *group) {
    place *places = malloc((size_t)group->shape.samples * sizeof *places);
    for (int64_t i = 0; places && i < group->shape.samples; i++) places[i] = (place){group->source_samples[i], i};
    if (places) qsort(places, (size_t)group->shape.samples, sizeof *places, by_source);
    return places;
}

/* ---- values ---- */

static double value_of(ups_f16 bits) {
    float value;
    ups_f16_to_f32(&bits, &value, 1);
    return value;
}

/* The squares of all differences are added to *squares. */
static void compare_values(const ups_f16 *a, const ups_f16 *b, ups_chunk_shape shape, ups_sample_difference *d,
                           double *squares) {
    int64_t frame = shape.tokens * shape.dim, count = shape.times * frame;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (a[i] == b[i]) continue;
        double x = value_of(a[i]), y = value_of(b[i]), error = fabs(x - y);
        if (d->values++ == 0) {
            d->first[0] = i / frame;
            d->first[1] = i % frame / shape.dim;
            d->first[2] = i % shape.dim;
            d->first_a = x;
            d->first_b = y;
        }
        if (!isfinite(x) || !isfinite(y)) {
            d->non_finite++;
            continue;
        }
        sum += error * error;
        if (error > d->max_abs) d->max_abs = error;
    }
    d->rms = sqrt(sum / (double)count);
    *squares += sum;
}

/* ---- one pair of samples after the other ---- */

typedef struct comparison {
    const ups_cache_group *a, *b;
    ups_cache_reader *read_a, *read_b;
    const ups_diff_options *options;
    ups_cache_difference *found;
    bool parameters; /* both have the same ones, so that values can be compared */
    double squares;
} comparison;

static bool same_parameters(const ups_cache_group *a, int64_t i, const ups_cache_group *b, int64_t j) {
    if (a->parameter_count == 0) return true;
    size_t bytes = (size_t)a->parameter_count * sizeof *a->parameters;
    return memcmp(a->parameters + i * a->parameter_count, b->parameters + j * b->parameter_count, bytes) == 0;
}

static bool same_times(const ups_cache_group *a, int64_t i, const ups_cache_group *b, int64_t j) {
    int64_t times = a->shape.trajectory.times;
    const double *x = a->time + (a->time_per_sample ? i * times : 0);
    const double *y = b->time + (b->time_per_sample ? j * times : 0);
    return memcmp(x, y, (size_t)times * sizeof *x) == 0;
}

static bool same_names(const ups_cache_group *a, const ups_cache_group *b) {
    if (a->parameter_count != b->parameter_count) return false;
    for (int p = 0; p < a->parameter_count; p++) {
        if (strcmp(a->parameter_names[p], b->parameter_names[p]) != 0) return false;
    }
    return true;
}

static bool shard_is_there(const ups_cache_group *group, int64_t shard) {
    char *path = ups_cache_shard_path(group->directory, shard);
    bool there = path && ups_path_exists(path);
    free(path);
    return there;
}

/* Reads sample `index`; in an unfinished cache one whose shard is not there yet counts as absent. */
static ups_status read_if_there(const ups_cache_group *group, ups_cache_reader *reader, int64_t index,
                                ups_cache_trajectory *trajectory, ups_error *error) {
    if (!group->complete && !shard_is_there(group, index / group->shape.samples_per_shard)) {
        *trajectory = (ups_cache_trajectory){0};
        return UPS_OK;
    }
    return ups_cache_read(reader, index, trajectory, error);
}

static ups_status compare_sample(comparison *c, place a, place b, ups_error *error) {
    ups_cache_difference *found = c->found;
    if (!same_times(c->a, a.index, c->b, b.index)) found->surroundings = true;
    if (c->parameters && !same_parameters(c->a, a.index, c->b, b.index)) found->surroundings = true;
    if (c->options->metadata_alone) return UPS_OK;
    ups_cache_trajectory x, y;
    UPS_TRY(read_if_there(c->a, c->read_a, a.index, &x, error));
    UPS_TRY(read_if_there(c->b, c->read_b, b.index, &y, error));
    found->only_a += x.present && !y.present;
    found->only_b += y.present && !x.present;
    if (!x.present || !y.present) return UPS_OK;
    ups_chunk_shape shape = c->a->shape.trajectory;
    found->common++;
    if (memcmp(x.latents, y.latents, ups_chunk_raw_bytes(shape)) == 0) {
        found->equal++;
        return UPS_OK;
    }
    ups_sample_difference d = {.source_sample = a.source, .a = a.index, .b = b.index};
    compare_values(x.latents, y.latents, shape, &d, &c->squares);
    if (found->differing++ == 0 || d.max_abs > found->worst.max_abs) found->worst = d;
    if (d.max_abs > found->max_abs) found->max_abs = d.max_abs;
    if (found->list_count < c->options->list) found->list[found->list_count++] = d;
    return UPS_OK;
}

/* A sample that only one side has in its array: counts when latents are there. */
static ups_status count_alone(const ups_cache_group *group, ups_cache_reader *reader, int64_t index, bool metadata,
                              int64_t *count, ups_error *error) {
    if (metadata) {
        (*count)++;
        return UPS_OK;
    }
    ups_cache_trajectory trajectory;
    UPS_TRY(read_if_there(group, reader, index, &trajectory, error));
    *count += trajectory.present;
    return UPS_OK;
}

static ups_status walk(comparison *c, const place *a, const place *b, ups_error *error) {
    int64_t i = 0, j = 0, na = c->a->shape.samples, nb = c->b->shape.samples;
    bool metadata = c->options->metadata_alone;
    while (i < na || j < nb) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "the comparison was interrupted");
        if (j == nb || (i < na && a[i].source < b[j].source)) {
            UPS_TRY(count_alone(c->a, c->read_a, a[i++].index, metadata, &c->found->only_a, error));
        } else if (i == na || b[j].source < a[i].source) {
            UPS_TRY(count_alone(c->b, c->read_b, b[j++].index, metadata, &c->found->only_b, error));
        } else {
            UPS_TRY(compare_sample(c, a[i++], b[j++], error));
        }
        if (c->options->progress) c->options->progress(c->options->context, i > j ? i : j, na > nb ? na : nb);
    }
    return UPS_OK;
}

ups_status ups_cache_diff(const ups_cache_group *a, const ups_cache_group *b, const ups_diff_options *options,
                          ups_cache_difference *difference, ups_error *error) {
    *difference = (ups_cache_difference){0};
    json_decref(ups_fingerprint_difference(&a->fingerprint, &b->fingerprint, &difference->fingerprint_parts));
    ups_chunk_shape x = a->shape.trajectory, y = b->shape.trajectory;
    difference->shape = x.times != y.times || x.tokens != y.tokens || x.dim != y.dim;
    bool parameters = same_names(a, b);
    difference->surroundings = !parameters;
    if (difference->shape) return UPS_OK;
    comparison c = {.a = a, .b = b, .options = options, .found = difference, .parameters = parameters};
    c.read_a = ups_cache_reader_create(a);
    c.read_b = ups_cache_reader_create(b);
    place *places_a = sorted_places(a), *places_b = sorted_places(b);
    difference->list = calloc((size_t)options->list + 1, sizeof *difference->list);
    ups_status status = UPS_OK;
    if (!c.read_a || !c.read_b || !places_a || !places_b || !difference->list) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s, %s: no memory to compare them", a->directory, b->directory);
    }
    if (status == UPS_OK) status = walk(&c, places_a, places_b, error);
    if (status == UPS_OK && difference->common > 0) {
        double values = (double)difference->common * (double)(ups_chunk_raw_bytes(x) / sizeof(ups_f16));
        difference->rms = sqrt(c.squares / values);
    }
    free(places_a);
    free(places_b);
    ups_cache_reader_destroy(c.read_a);
    ups_cache_reader_destroy(c.read_b);
    if (status != UPS_OK) ups_cache_difference_free(difference);
    return status;
}

void ups_cache_difference_free(ups_cache_difference *difference) {
    free(difference->list);
    *difference = (ups_cache_difference){0};
}

bool ups_cache_differs(const ups_cache_difference *d) {
    return d->shape || d->surroundings || d->fingerprint_parts > 0 || d->differing > 0 || d->only_a > 0 ||
           d->only_b > 0;
}
