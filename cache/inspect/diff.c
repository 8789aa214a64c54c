#include "cache/inspect/diff.h"

#include "base/files.h"
#include "base/system/cancel.h"
#include "base/system/threads.h"
#include "cache/store/reader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *ups_fingerprint_difference(const ups_fingerprint *a, const ups_fingerprint *b, int64_t *differing) {
    json_t *left = ups_fingerprint_to_json(a), *right = ups_fingerprint_to_json(b), *parts = json_object();
    const char *key;
    json_t *value;
    *differing = 0;
    if (json_object_get(left, "device") || json_object_get(right, "device")) { /* told of where it is not the CPU */
        json_object_set_new(left, "device", json_string(*a->device ? a->device : "cpu"));
        json_object_set_new(right, "device", json_string(*b->device ? b->device : "cpu"));
    }
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

/* ---- pairs of samples, compared by threads and counted in order ---- */

enum { LOT = 64 }; /* pairs that are compared before they are counted */

/* Both caches' index of one place in the source; −1: not in this one. */
typedef struct pair {
    int64_t source, a, b;
    int64_t reached; /* samples of the longer cache that are done with this one */
} pair;

typedef struct outcome {
    bool surroundings; /* time grids or parameters differ */
    bool in_a, in_b;   /* there are latents */
    bool equal;
    double squares;
    ups_sample_difference difference;
} outcome;

typedef struct comparison {
    const ups_cache_group *a, *b;
    ups_cache_reader **read_a, **read_b; /* (threads) */
    const ups_diff_options *options;
    bool parameters; /* both have the same ones, so that values can be compared */
    const place *places_a, *places_b;
    int64_t next_a, next_b; /* in these, what is to be matched next */
    pair pairs[LOT];
    outcome outcomes[LOT];
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

static ups_status compare_pair(void *context, int64_t index, int thread, ups_error *error) {
    comparison *c = context;
    const pair *p = &c->pairs[index];
    outcome *out = &c->outcomes[index];
    *out = (outcome){.difference = {.source_sample = p->source, .a = p->a, .b = p->b}};
    if (p->a >= 0 && p->b >= 0) {
        out->surroundings =
            !same_times(c->a, p->a, c->b, p->b) || (c->parameters && !same_parameters(c->a, p->a, c->b, p->b));
    }
    if (c->options->metadata_alone) {
        out->in_a = p->b < 0; /* what both have is not looked at, and counts on neither side */
        out->in_b = p->a < 0;
        return UPS_OK;
    }
    ups_cache_trajectory x = {0}, y = {0};
    if (p->a >= 0) UPS_TRY(read_if_there(c->a, c->read_a[thread], p->a, &x, error));
    if (p->b >= 0) UPS_TRY(read_if_there(c->b, c->read_b[thread], p->b, &y, error));
    out->in_a = x.present;
    out->in_b = y.present;
    if (!x.present || !y.present) return UPS_OK;
    const ups_chunk_shape shape = c->a->shape.trajectory;
    out->equal = memcmp(x.latents, y.latents, ups_chunk_raw_bytes(shape)) == 0;
    if (!out->equal) compare_values(x.latents, y.latents, shape, &out->difference, &out->squares);
    return UPS_OK;
}

/* In the order of the source, so that sums and lists do not depend on threads. */
static void count_outcome(const outcome *out, int64_t most_listed, ups_cache_difference *found, double *squares) {
    found->surroundings |= out->surroundings;
    found->only_a += out->in_a && !out->in_b;
    found->only_b += out->in_b && !out->in_a;
    if (!out->in_a || !out->in_b) return;
    found->common++;
    if (out->equal) {
        found->equal++;
        return;
    }
    const ups_sample_difference *d = &out->difference;
    *squares += out->squares;
    if (found->differing++ == 0 || d->max_abs > found->worst.max_abs) found->worst = *d;
    if (d->max_abs > found->max_abs) found->max_abs = d->max_abs;
    if (found->list_count < most_listed) found->list[found->list_count++] = *d;
}

/* Matches up to LOT pairs; how many. */
static int64_t match(comparison *c) {
    const int64_t na = c->a->shape.samples, nb = c->b->shape.samples;
    int64_t *i = &c->next_a, *j = &c->next_b, count = 0;
    for (; count < LOT && (*i < na || *j < nb); count++) {
        const place *a = *i < na ? &c->places_a[*i] : NULL, *b = *j < nb ? &c->places_b[*j] : NULL;
        const bool has_a = a && (!b || a->source <= b->source), has_b = b && (!a || b->source <= a->source);
        pair *p = &c->pairs[count];
        *p = (pair){.source = has_a ? a->source : b->source, .a = has_a ? a->index : -1, .b = has_b ? b->index : -1};
        *i += has_a;
        *j += has_b;
        p->reached = *i > *j ? *i : *j;
    }
    return count;
}

static ups_status walk(comparison *c, ups_pool *pool, ups_cache_difference *found, double *squares, ups_error *error) {
    const int64_t na = c->a->shape.samples, nb = c->b->shape.samples;
    for (int64_t count; (count = match(c)) > 0;) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "the comparison was interrupted");
        UPS_TRY(ups_pool_run(pool, count, compare_pair, c, error));
        for (int64_t k = 0; k < count; k++) count_outcome(&c->outcomes[k], c->options->list, found, squares);
        if (c->options->progress)
            c->options->progress(c->options->context, c->pairs[count - 1].reached, na > nb ? na : nb);
    }
    return UPS_OK;
}

static ups_cache_reader **make_readers(const ups_cache_group *group, int threads) {
    ups_cache_reader **readers = calloc((size_t)threads, sizeof(ups_cache_reader *));
    bool fine = readers;
    for (int t = 0; fine && t < threads; t++) fine = (readers[t] = ups_cache_reader_create(group)) != NULL;
    return readers;
}

static bool all_there(ups_cache_reader *const *readers, int threads) {
    return readers && readers[threads - 1];
}

static void destroy_readers(ups_cache_reader **readers, int threads) {
    for (int t = 0; readers && t < threads; t++) ups_cache_reader_destroy(readers[t]);
    free(readers);
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
    ups_pool *pool = ups_pool_create(options->threads);
    const int threads = pool ? ups_pool_threads(pool) : 0;
    comparison *c = calloc(1, sizeof *c);
    ups_cache_reader **read_a = make_readers(a, threads), **read_b = make_readers(b, threads);
    place *places_a = sorted_places(a), *places_b = sorted_places(b);
    difference->list = calloc((size_t)options->list + 1, sizeof *difference->list);
    double squares = 0;
    ups_status status = UPS_OK;
    if (!pool || !c || !all_there(read_a, threads) || !all_there(read_b, threads) || !places_a || !places_b ||
        !difference->list) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s, %s: no memory to compare them", a->directory, b->directory);
    } else {
        *c = (comparison){.a = a,
                          .b = b,
                          .read_a = read_a,
                          .read_b = read_b,
                          .options = options,
                          .parameters = parameters,
                          .places_a = places_a,
                          .places_b = places_b};
        status = walk(c, pool, difference, &squares, error);
    }
    if (status == UPS_OK && difference->common > 0) {
        double values = (double)difference->common * (double)(ups_chunk_raw_bytes(x) / sizeof(ups_f16));
        difference->rms = sqrt(squares / values);
    }
    free(places_a);
    free(places_b);
    destroy_readers(read_a, threads);
    destroy_readers(read_b, threads);
    free(c);
    ups_pool_destroy(pool);
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
