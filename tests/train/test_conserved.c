/* What a PDE conserves, found in latents made for it: tokens whose mean moves along some directions and not along
 * others. */
#include "base/half.h"
#include "tests/model/claims.h"
#include "train/stages/measured/conserved.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 5, TIMES = 9, TOKENS = 24, DIM = 4 };

typedef struct waves {
    ups_source source;
    double drift[DIM]; /* of the mean over tokens, a frame */
    bool damaged;
} waves;

/* Waves that travel, whose mean over tokens is zero at any time, on top of a mean that is the sample's own. */
static double value(const waves *w, int64_t sample, int64_t frame, int64_t token, int64_t d) {
    double phase = 2 * M_PI * ((double)(token * (d + 1)) / TOKENS - 0.07 * (double)(frame * (d + 1)));
    return 0.3 * (double)(sample - d) + w->drift[d] * (double)frame + sin(phase);
}

static ups_status describe(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    static const double time[TIMES];
    *sample = (ups_sample){.name = "wave",
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

static ups_status decode(const ups_source *source, int64_t index, ups_frames frames, const ups_piece *pieces,
                         int64_t count, void *scratch, void *out, ups_error *error) {
    const waves *w = (const waves *)source;
    ups_f16 *to = out;
    for (int64_t i = 0; i < frames.count * TOKENS * DIM; i++) {
        float now = (float)value(w, index, frames.start + i / (TOKENS * DIM), i / DIM % TOKENS, i % DIM);
        if (w->damaged && index == 2 && i == 77) now = NAN;
        ups_f32_to_f16(&now, &to[i], 1);
    }
    return UPS_OK;
}

static void nothing_to_close(ups_source *source) {}

static const ups_source_class class = {
    .kind = "waves", .describe = describe, .extents = extents, .decode = decode, .close = nothing_to_close};

static waves make(double a, double b, double c, double d) {
    return (waves){.source = {.class = &class,
                              .count = SAMPLES,
                              .channels = DIM,
                              .limits = {.decoded_bytes = TIMES * TOKENS * DIM * sizeof(ups_f16)}},
                   .drift = {a, b, c, d}};
}

static ups_conserved find(const waves *w, int64_t times, float kept[DIM * DIM]) {
    ups_conserved found = {.kept = kept};
    ok(ups_conserved_find(&w->source, times, TOKENS, DIM, &found, &failure));
    return found;
}

CLAIM(what_stays_is_found_and_what_moves_is_not) {
    float kept[DIM * DIM];
    waves w = make(0, 0.05, 0, -0.2);
    /* 1 and 3 move together: across the direction in which they do, they stay. */
    assert_int_equal(find(&w, TIMES, kept).directions, 3);
    const double length = hypot(0.05, 0.2), moving[DIM] = {0, 0.05 / length, 0, -0.2 / length};
    for (int i = 0; i < DIM; i++) {
        for (int j = 0; j < DIM; j++) assert_float_equal(kept[i * DIM + j], moving[i] * moving[j] - (i == j), 1e-3);
    }
}

CLAIM(means_that_all_stay_are_all_kept) {
    float kept[DIM * DIM];
    waves w = make(0, 0, 0, 0);
    assert_int_equal(find(&w, TIMES, kept).directions, DIM);
    for (int at = 0; at < DIM * DIM; at++) assert_float_equal(kept[at], (at % (DIM + 1) == 0 ? -1 : 0), 1e-5f);
}

CLAIM(a_drift_above_the_bound_is_none_of_rounding) {
    float kept[DIM * DIM];
    waves w = make(2e-3, 0, 0, 0); /* 0.016 in all, of fields of size two */
    assert_int_equal(find(&w, TIMES, kept).directions, DIM - 1);
    assert_float_equal(kept[0], 0, 1e-3);
}

CLAIM(problems_without_time_conserve_nothing) {
    float kept[DIM * DIM];
    waves w = make(0, 0, 0, 0);
    assert_int_equal(find(&w, 2, kept).directions, 0);
    for (int i = 0; i < DIM * DIM; i++) assert_true(kept[i] == 0);
}

CLAIM(trajectories_with_nan_are_left_out) {
    float kept[DIM * DIM];
    waves w = make(0, 0.05, 0, -0.2);
    w.damaged = true;
    assert_int_equal(find(&w, TIMES, kept).directions, 3);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
