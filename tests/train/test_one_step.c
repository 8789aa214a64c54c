/* What a step changes, and the linear map of a token that comes closest to it, found in latents made for it. */
#include "base/half.h"
#include "tests/model/claims.h"
#include "train/stages/measured/one_step.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 6, TIMES = 12, TOKENS = 40, DIM = 3 };

/* z' = z + A z + b in each token by itself, from beginnings of the sample's own. */
typedef struct linear {
    ups_source source;
    double a[DIM][DIM], b[DIM];
    bool damaged;
} linear;

static ups_status describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    static const double time[TIMES];
    *sample = (ups_sample){.name = "linear",
                           .times = TIMES,
                           .channels = DIM,
                           .dims = 1,
                           .grid = {TOKENS, 1, 1},
                           .dtype = UPS_F16,
                           .time = time};
    return UPS_OK;
}

static ups_status extents(const ups_source *source, int64_t index, ups_frames frames, ups_extent *list, int64_t *count,
                          ups_error *error) {
    *count = 0; /* decode needs none */
    return UPS_OK;
}

static void token(const linear *l, int64_t sample, int64_t index, int64_t frame, double z[DIM]) {
    for (int d = 0; d < DIM; d++) z[d] = sin(1.7 * (double)(sample * TOKENS + index) * (d + 1) + d);
    for (int64_t t = 0; t < frame; t++) {
        double next[DIM];
        for (int i = 0; i < DIM; i++) {
            next[i] = z[i] + l->b[i];
            for (int j = 0; j < DIM; j++) next[i] += l->a[i][j] * z[j];
        }
        memcpy(z, next, sizeof next);
    }
}

static ups_status decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error) {
    const linear *l = (const linear *)source;
    ups_f16 *to = out;
    for (int64_t i = 0; i < frames.count * TOKENS; i++) {
        double z[DIM];
        token(l, index, i % TOKENS, frames.start + i / TOKENS, z);
        for (int d = 0; d < DIM; d++) {
            const float now = l->damaged && index == 2 && i == 7 ? NAN : (float)z[d];
            ups_f32_to_f16(&now, &to[i * DIM + d], 1);
        }
    }
    return UPS_OK;
}

static void nothing_to_close(ups_source *source) {}

static const ups_source_class class = {
    .kind = "linear", .describe = describe, .extents = extents, .decode = decode, .close = nothing_to_close};

static linear make(int64_t samples) {
    return (linear){.source = {.class = &class,
                               .count = samples,
                               .channels = DIM,
                               .limits = {.decoded_bytes = TIMES * TOKENS * DIM * sizeof(ups_f16)}},
                    .a = {{-0.2, 0.1, 0}, {0, -0.1, 0.05}, {0, 0, 0}}, /* the last number stays as it is */
                    .b = {0.02, -0.01, 0}};
}

static const ups_latent_shape shape = {.tokens = TOKENS, .dim = DIM};

static ups_one_step find(const linear *l, int64_t times, int64_t stride, int bundle) {
    const ups_one_step_of of = {.times = times, .shape = shape, .stride = stride, .bundle = bundle, .with_map = true};
    ups_one_step found;
    ok(ups_one_step_find(&l->source, &of, &found, &failure));
    return found;
}

CLAIM(changes_are_their_root_mean_square) {
    const linear l = make(SAMPLES);
    for (int64_t stride = 1; stride <= 2; stride++) {
        ups_one_step found = find(&l, TIMES, stride, 2);
        for (int64_t k = 1; k <= 2; k++) {
            double squares[DIM] = {0}, counted = 0;
            for (int64_t s = 0; s < SAMPLES; s++)
                for (int64_t t = 0; t + k * stride < TIMES; t++)
                    for (int64_t i = 0; i < TOKENS; i++, counted++) {
                        double now[DIM], then[DIM];
                        token(&l, s, i, t, now);
                        token(&l, s, i, t + k * stride, then);
                        for (int d = 0; d < DIM; d++) squares[d] += (then[d] - now[d]) * (then[d] - now[d]);
                    }
            for (int d = 0; d < DIM; d++)
                assert_float_equal(found.change[(k - 1) * DIM + d], sqrt(squares[d] / counted), 2e-4);
        }
        ups_one_step_free(&found);
    }
}

/* Within what the ridge takes away. */
CLAIM(a_linear_step_is_found) {
    const linear l = make(SAMPLES);
    ups_one_step found = find(&l, TIMES, 1, 1);
    assert_true(found.linear);
    for (int i = 0; i < DIM; i++) {
        for (int j = 0; j < DIM; j++) assert_float_equal(found.change[i] * found.weight[i * DIM + j], l.a[i][j], 0.012);
        assert_float_equal(found.change[i] * found.bias[i], l.b[i], 0.012);
    }
    for (int j = 0; j < DIM; j++) assert_true(found.weight[2 * DIM + j] == 0); /* of what never changes */
    ups_one_step_free(&found);
}

CLAIM(each_step_of_a_bundle_has_a_map_of_its_own) {
    const linear l = make(SAMPLES);
    ups_one_step one = find(&l, TIMES, 2, 1), both = find(&l, TIMES, 1, 2);
    assert_int_equal(both.width, 2 * DIM);
    for (int i = 0; i < 2; i++) /* two steps, or one of twice the stride */
        for (int j = 0; j < DIM; j++)
            assert_float_equal(both.change[DIM + i] * both.weight[(DIM + i) * DIM + j],
                               one.change[i] * one.weight[i * DIM + j], 5e-3);
    ups_one_step_free(&one);
    ups_one_step_free(&both);
}

CLAIM(there_is_no_map_where_there_is_little_to_measure) {
    linear l = make(SAMPLES);
    ups_one_step none = find(&l, 2, 2, 1);
    assert_false(none.linear);
    for (int i = 0; i < DIM; i++) assert_true(none.change[i] == 1);
    ups_one_step_free(&none);
    const ups_one_step_of unasked = {.times = TIMES, .shape = shape, .stride = 1, .bundle = 1};
    ok(ups_one_step_find(&l.source, &unasked, &none, &failure));
    assert_false(none.linear);
    assert_true(none.change[0] > 0 && none.change[0] < 1);
    ups_one_step_free(&none);
    l.source.count = 0;
    none = find(&l, TIMES, 1, 1);
    assert_false(none.linear);
    ups_one_step_free(&none);
}

/* Frames that shrink to nothing count as much as large ones, and the ridge counts with them. */
CLAIM(small_frames_count_as_large_ones) {
    linear l = make(SAMPLES);
    memset(l.b, 0, sizeof l.b);
    for (int d = 0; d < DIM; d++) l.a[d][d] = -0.45;
    ups_one_step found = find(&l, TIMES, 1, 1);
    for (int i = 0; i < DIM; i++)
        for (int j = 0; j < DIM; j++) assert_float_equal(found.change[i] * found.weight[i * DIM + j], l.a[i][j], 0.02);
    ups_one_step_free(&found);
}

/* In numbers of a token alone, what its neighbours tell counts for nothing; beyond the border are zeros. */
CLAIM(neighbours_are_read_in_their_order) {
    const linear l = make(SAMPLES);
    for (int periodic = 0; periodic < 2; periodic++) {
        const ups_one_step_of of = {.times = TIMES,
                                    .shape = shape,
                                    .stride = 1,
                                    .bundle = 1,
                                    .with_map = true,
                                    .dims = 2,
                                    .cells = {5, 8},
                                    .periodic = periodic};
        ups_one_step found;
        ok(ups_one_step_find(&l.source, &of, &found, &failure));
        assert_true(found.linear);
        assert_int_equal(found.read, 9 * DIM);
        for (int i = 0; i < DIM; i++)
            for (int at = 0; at < 9 * DIM; at++)
                assert_float_equal(found.change[i] * found.weight[i * 9 * DIM + at],
                                   at / DIM == 4 ? l.a[i][at % DIM] : 0, 0.03);
        ups_one_step_free(&found);
    }
}

CLAIM(a_trajectory_with_nan_is_left_out) {
    linear l = make(SAMPLES);
    l.damaged = true;
    ups_one_step found = find(&l, TIMES, 1, 1);
    assert_true(found.linear && isfinite(found.change[0]));
    assert_float_equal(found.change[0] * found.weight[0], l.a[0][0], 0.012);
    ups_one_step_free(&found);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
