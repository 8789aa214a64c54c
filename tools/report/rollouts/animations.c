#include "tools/report/rollouts/animations.h"

#include "base/even.h"
#include "base/system/cancel.h"
#include "tools/report/animation.h"
#include "tools/report/rollouts/subject.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECONDS = 5, SLOWEST = 10, USUAL_FASTEST = 30 }; /* frames a second */
enum { MOMENT_BYTES = 64 };

/* What all frames of an animation have in common. */
typedef struct film {
    const ups_rollout_subject *subject;
    int64_t *frames; /* of the rollout, in their order */
    int count, rate, decimals;
    ups_colour_scale values, errors;
    double *x;         /* 1D: (points) */
    float *errors_now; /* 1D: (points) of the frame that is drawn */
} film;

static bool has_truth(const film *f) {
    return f->subject->rollouts->truth_frames > 0;
}

/* ---- which frames, and for how long ---------------------------------------------------------------------------- */

static ups_status choose_frames(film *f, int rate, ups_error *error) {
    const ups_rollouts *r = f->subject->rollouts;
    const int64_t first = r->given - 1, last = r->frames - 1, all = last - first + 1;
    int64_t most = USUAL_FASTEST * SECONDS;
    if (rate > 0 || all < most) most = all;
    f->frames = malloc((size_t)(most > 0 ? most : 1) * sizeof *f->frames);
    if (!f->frames)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for an animation of %lld frames", (long long)most);
    f->count = all < 3 ? 0 : (int)ups_even_choice(first, last, most, true, f->frames); /* of two one is given */
    f->rate = (f->count + SECONDS - 1) / SECONDS;
    if (f->rate < SLOWEST) f->rate = SLOWEST;
    if (rate > 0) f->rate = rate;
    return UPS_OK;
}

/* Digits behind the point with which the times of all frames can be told apart, and are not rounded by much; −1: too
 * many. */
static int decimals_of(const film *f) {
    enum { MOST = 6 };
    const double *time = f->subject->rollout->time;
    const double step = fabs(time[f->frames[f->count - 1]] - time[f->frames[0]]) / (f->count - 1);
    for (int decimals = 0; decimals < MOST; decimals++) {
        const double unit = pow(10, decimals);
        double off = 0;
        for (int i = 0; i < f->count; i++) {
            const double at = time[f->frames[i]];
            off = fmax(off, fabs(round(at * unit) / unit - at));
        }
        if (off < 0.02 * step) return decimals;
    }
    return -1;
}

/* "t = 0.50", as wide in each frame. */
static void name_moment(const film *f, int64_t frame, char text[MOMENT_BYTES]) {
    const char *units = f->subject->rollouts->task->geometry.time_units;
    const double time = f->subject->rollout->time[frame];
    int used = f->decimals < 0 ? snprintf(text, MOMENT_BYTES, "t = %.4g", time)
                               : snprintf(text, MOMENT_BYTES, "t = %.*f", f->decimals, time);
    if (units && used < MOMENT_BYTES) snprintf(text + used, (size_t)(MOMENT_BYTES - used), " %s", units);
}

/* ---- scales ---------------------------------------------------------------------------------------------------- */

/* Of all frames together: a frame without an error, or without finite values, has no scale of its own. `like`: the
 * shape of a frame. */
static ups_status find_scales(film *f, const ups_field *like, ups_error *error) {
    const ups_rollout *rollout = f->subject->rollout;
    ups_field *values = malloc((size_t)f->count * 3 * sizeof *values);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an animation of %d frames", f->count);
    ups_field *differences = values + 2 * (size_t)f->count;
    int count = 0, known = 0;
    for (int i = 0; i < f->count; i++) {
        ups_field prediction = *like, truth = *like;
        prediction.values = ups_rollout_frame(f->subject, rollout->prediction, f->frames[i]);
        values[count++] = prediction;
        truth.values = ups_rollout_truth(f->subject, f->frames[i]);
        if (!truth.values) continue;
        values[count++] = truth;
        differences[known] = prediction;
        differences[known++].minus = truth.values;
    }
    f->values = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, values, count);
    f->errors = ups_colour_scale_of(UPS_COLOURS_DIVERGING, differences, known);
    free(values);
    return UPS_OK;
}

/* ---- frames ---------------------------------------------------------------------------------------------------- */

static void draw_curves(film *f, int64_t frame, const char *moment, ups_figure *figure) {
    const ups_rollout_subject *s = f->subject;
    const int64_t points = s->rollouts->points, stride = s->rollouts->task->geometry.channels;
    char label[UPS_AXIS_LABEL];
    ups_curves curves = {.title = s->title,
                         .moment = moment,
                         .x = f->x,
                         .points = points,
                         .stride = stride,
                         .x_label = ups_rollout_space_axis(s, 0, label).label,
                         .y_label = s->field,
                         .prediction = ups_rollout_frame(s, s->rollout->prediction, frame),
                         .truth = ups_rollout_truth(s, frame),
                         .error = f->errors_now,
                         .with_error = has_truth(f),
                         .values = f->values,
                         .errors = f->errors};
    for (int64_t i = 0; i < points && curves.truth; i++)
        f->errors_now[i] = curves.prediction[i * stride] - curves.truth[i * stride];
    ups_draw_curves(figure, UPS_FIGURE_FRAME, &curves);
}

static void draw_fields(const film *f, const ups_comparison *like, int64_t frame, const char *moment,
                        ups_figure *figure) {
    const ups_rollout_subject *s = f->subject;
    char given_name[UPS_GIVEN_NAME];
    const ups_comparison_row row = {.prediction = ups_rollout_frame(s, s->rollout->prediction, frame),
                                    .truth = ups_rollout_truth(s, frame),
                                    .given = ups_rollout_given(s, given_name)};
    ups_comparison comparison = *like;
    comparison.moment = moment;
    comparison.given_name = row.given ? given_name : NULL;
    comparison.rows = &row;
    comparison.row_count = 1;
    comparison.values = &f->values;
    comparison.errors = &f->errors;
    ups_draw_comparison(figure, UPS_FIGURE_FRAME, &comparison);
}

static ups_status draw_all(film *f, ups_animation *animation, ups_error *error) {
    const ups_rollouts *r = f->subject->rollouts;
    const bool line = r->task->geometry.dims == 1;
    char labels[2][UPS_AXIS_LABEL], moment[MOMENT_BYTES];
    ups_comparison like = {0};
    ups_field shape = {.rows = 1, .columns = r->points, .column_stride = r->task->geometry.channels};
    if (!line) {
        like = ups_rollout_frames_comparison(f->subject, labels);
        shape = (ups_field){.rows = like.height,
                            .columns = like.width,
                            .row_stride = like.row_stride,
                            .column_stride = like.column_stride};
    }
    UPS_TRY(find_scales(f, &shape, error));
    for (int i = 0; i < f->count; i++) {
        ups_figure figure;
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "stopped");
        name_moment(f, f->frames[i], moment);
        if (line)
            draw_curves(f, f->frames[i], moment, &figure);
        else
            draw_fields(f, &like, f->frames[i], moment, &figure);
        UPS_TRY(ups_animation_add(animation, &figure, error));
    }
    return UPS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static ups_status make(film *f, ups_error *error) {
    const ups_rollouts *r = f->subject->rollouts;
    char path[UPS_ROLLOUT_PATH];
    if (r->task->geometry.dims == 1) {
        f->x = ups_rollout_places(f->subject, 0);
        f->errors_now = malloc((size_t)r->points * sizeof *f->errors_now);
        if (!f->x || !f->errors_now) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an animation");
    }
    f->decimals = decimals_of(f);
    ups_animation *animation = NULL;
    UPS_TRY(ups_animation_begin(f->count, f->rate, &animation, error));
    ups_status status = draw_all(f, animation, error);
    if (status == UPS_OK) {
        ups_rollout_next_path(f->subject, UPS_PICTURE_ANIMATION, path);
        status = ups_animation_publish(animation, path, error);
    }
    ups_animation_free(animation);
    return status;
}

static ups_status draw(const ups_rollout_subject *subject, int rate, ups_error *error) {
    film f = {.subject = subject};
    ups_status status = choose_frames(&f, rate, error);
    if (status == UPS_OK && f.count > 0) status = make(&f, error);
    free(f.frames);
    free(f.x);
    free(f.errors_now);
    return status;
}

ups_status ups_rollout_animations(const char *directory, const ups_rollouts *rollouts, const int64_t *ids, int rate,
                                  int *count, ups_error *error) {
    const ups_rollout_drawings drawings = {.directory = directory, .ids = ids, .rate = rate, .written = count};
    return ups_rollout_each_subject(&drawings, rollouts, draw, error);
}
