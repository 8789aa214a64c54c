#include "tools/report/rollout_pictures.h"

#include "base/even.h"
#include "base/files.h"
#include "tools/report/pictures.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAXIMUM_PROFILES = 6, MAXIMUM_ROWS = 3, NAME_BYTES = 48 };

/* One field of one trajectory, and where it goes. */
typedef struct subject {
    const ups_rollouts *rollouts;
    const ups_rollout *rollout;
    int64_t channel;
    const char *directory, *field;
    int64_t id;
    int *written;
} subject;

static const float *frame_of(const subject *s, const float *frames, int64_t frame) {
    int64_t channels = s->rollouts->task->geometry.channels;
    return frames + frame * s->rollouts->points * channels + s->channel;
}

static void title_of(const subject *s, char *text, size_t size) {
    snprintf(text, size, "%s, %s: %s", s->rollouts->task->name, s->rollout->sample.name, s->field);
}

static ups_status publish(const subject *s, ups_figure *figure, const char *kind, ups_error *error) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%lld-%s%s.png", s->directory, s->rollouts->task->name, (long long)s->id,
             s->field, kind);
    (*s->written)++;
    return ups_figure_publish(figure, path, error);
}

static ups_axis space_axis(const ups_rollouts *rollouts, int axis, char label[UPS_AXIS_LABEL]) {
    static const char *const usual[] = {"x", "y", "z"};
    const ups_sample *geometry = &rollouts->task->geometry;
    const char *name = geometry->axis_names[axis] ? geometry->axis_names[axis] : usual[axis];
    return (ups_axis){.low = rollouts->low[axis],
                      .high = rollouts->high[axis],
                      .label = ups_axis_label(label, name, geometry->axis_units[axis])};
}

/* The first `frames` frames as rows: half an interval beyond the outer ones. */
static ups_axis time_axis(const subject *s, int64_t frames, char label[UPS_AXIS_LABEL]) {
    const double *time = s->rollout->time;
    double half = frames > 1 ? 0.5 * (time[frames - 1] - time[0]) / (double)(frames - 1) : 0.5;
    return (ups_axis){.low = time[0] - half,
                      .high = time[frames - 1] + half,
                      .label = ups_axis_label(label, "time t", s->rollouts->task->geometry.time_units)};
}

/* "t = 0.5", with the unit where the data tell it. */
static void name_time(const subject *s, int64_t frame, char name[NAME_BYTES]) {
    const char *units = s->rollouts->task->geometry.time_units;
    snprintf(name, NAME_BYTES, "t = %.4g%s%s", s->rollout->time[frame], units ? " " : "", units ? units : "");
}

/* At most `maximum` frames of `frames`, evenly spaced, from the first predicted one to the last. */
static int choose_frames(const ups_rollouts *r, int64_t frames, int maximum, int64_t *chosen) {
    return frames <= r->given ? 0 : (int)ups_even_choice(r->given, frames - 1, maximum, true, chosen);
}

/* ---- 1D -------------------------------------------------------------------------------------------------------- */

static ups_status draw_space_time(const subject *s, const char *title, ups_error *error) {
    const ups_rollouts *r = s->rollouts;
    const int64_t channels = r->task->geometry.channels, frames = r->truth_frames > 0 ? r->truth_frames : r->frames;
    char labels[2][UPS_AXIS_LABEL];
    ups_comparison_row row = {.prediction = frame_of(s, s->rollout->prediction, 0)};
    if (r->truth_frames > 0) {
        row.truth = frame_of(s, s->rollout->truth, 0);
        row.nrmse = s->rollout->nrmse[s->channel]; /* without frames that were given */
    }
    ups_comparison comparison = {.title = title,
                                 .prediction_name = "prediction",
                                 .truth_name = "truth",
                                 .rows = &row,
                                 .row_count = 1,
                                 .height = frames,
                                 .width = r->points,
                                 .row_stride = r->points * channels,
                                 .column_stride = channels,
                                 .x = space_axis(r, 0, labels[0]),
                                 .y = time_axis(s, frames, labels[1]),
                                 .stretched = true};
    ups_figure figure;
    ups_draw_comparison(&figure, UPS_FIGURE_PNG, &comparison);
    return publish(s, &figure, "", error);
}

static ups_status draw_profiles(const subject *s, const char *title, ups_error *error) {
    char names[MAXIMUM_PROFILES][NAME_BYTES], label[UPS_AXIS_LABEL];
    const ups_rollouts *r = s->rollouts;
    int64_t chosen[MAXIMUM_PROFILES];
    ups_profile profiles[MAXIMUM_PROFILES];
    int count = choose_frames(r, r->truth_frames, MAXIMUM_PROFILES, chosen);
    if (count < 1) return UPS_OK;
    double *x = malloc((size_t)r->points * sizeof *x);
    if (!x) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld points", (long long)r->points);
    for (int64_t i = 0; i < r->points; i++) x[i] = ups_rollouts_coordinate(r, 0, i);
    for (int i = 0; i < count; i++) {
        name_time(s, chosen[i], names[i]);
        profiles[i] = (ups_profile){.name = names[i],
                                    .prediction = frame_of(s, s->rollout->prediction, chosen[i]),
                                    .truth = frame_of(s, s->rollout->truth, chosen[i])};
    }
    ups_profiles picture = {.title = title,
                            .x = x,
                            .points = r->points,
                            .stride = r->task->geometry.channels,
                            .x_label = space_axis(r, 0, label).label,
                            .y_label = s->field,
                            .profiles = profiles,
                            .count = count};
    ups_figure figure;
    ups_draw_profiles(&figure, UPS_FIGURE_PNG, &picture);
    free(x);
    return publish(s, &figure, "-profiles", error);
}

/* ---- 2D -------------------------------------------------------------------------------------------------------- */

/* The first field that never changes, or −1. */
static int64_t constant_channel(const ups_rollouts *r) {
    for (int64_t c = 0; c < r->task->geometry.channels; c++) {
        if (!r->solution[c]) return c;
    }
    return -1;
}

static ups_status draw_frames(const subject *s, const char *title, ups_error *error) {
    char names[MAXIMUM_ROWS][NAME_BYTES], given_name[64], labels[2][UPS_AXIS_LABEL];
    const ups_rollouts *r = s->rollouts;
    const bool truth = r->truth_frames > 0;
    const int64_t channels = r->task->geometry.channels, given = truth ? constant_channel(r) : -1;
    int64_t chosen[MAXIMUM_ROWS];
    ups_comparison_row rows[MAXIMUM_ROWS];
    int count = choose_frames(r, truth ? r->truth_frames : r->frames, MAXIMUM_ROWS, chosen);
    if (count < 1) return UPS_OK;
    for (int i = 0; i < count; i++) {
        name_time(s, chosen[i], names[i]);
        rows[i] = (ups_comparison_row){.name = r->frames > 2 ? names[i] : NULL,
                                       .prediction = frame_of(s, s->rollout->prediction, chosen[i]),
                                       .truth = truth ? frame_of(s, s->rollout->truth, chosen[i]) : NULL};
        if (given >= 0) rows[i].given = s->rollout->truth + given; /* of frame 0: it is the same in all */
    }
    if (given >= 0) snprintf(given_name, sizeof given_name, "%s (given)", r->task->source->channel_names[given]);
    ups_comparison comparison = {.title = title,
                                 .prediction_name = "prediction",
                                 .truth_name = "truth",
                                 .given_name = given >= 0 ? given_name : NULL,
                                 .rows = rows,
                                 .row_count = count,
                                 .height = r->grid[1],
                                 .width = r->grid[0],
                                 .row_stride = channels,
                                 .column_stride = r->grid[1] * channels,
                                 .x = space_axis(r, 0, labels[0]),
                                 .y = space_axis(r, 1, labels[1])};
    ups_figure figure;
    ups_draw_comparison(&figure, UPS_FIGURE_PNG, &comparison);
    return publish(s, &figure, "", error);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static ups_status draw(const subject *s, ups_error *error) {
    char title[256];
    title_of(s, title, sizeof title);
    if (s->rollouts->task->geometry.dims == 2) return draw_frames(s, title, error);
    UPS_TRY(draw_space_time(s, title, error));
    return s->rollouts->truth_frames > 0 ? draw_profiles(s, title, error) : UPS_OK;
}

ups_status ups_rollout_pictures(const char *directory, const ups_rollouts *rollouts, const int64_t *ids, int *count,
                                ups_error *error) {
    *count = 0;
    const ups_sample *geometry = &rollouts->task->geometry;
    if (geometry->dims > 2) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "task %s: pictures are of fields in 1D and 2D, these are in %dD",
                        rollouts->task->name, geometry->dims);
    }
    UPS_TRY(ups_make_directories(directory, error));
    for (int64_t i = 0; i < rollouts->count; i++) {
        for (int64_t c = 0; c < geometry->channels; c++) {
            if (!rollouts->solution[c]) continue;
            subject s = {.rollouts = rollouts,
                         .rollout = &rollouts->list[i],
                         .channel = c,
                         .directory = directory,
                         .field = rollouts->task->source->channel_names[c],
                         .id = ids[rollouts->list[i].position],
                         .written = count};
            UPS_TRY(draw(&s, error));
        }
    }
    return UPS_OK;
}
