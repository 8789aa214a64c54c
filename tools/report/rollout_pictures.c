#include "tools/report/rollout_pictures.h"

#include "base/files.h"
#include "tools/report/pictures.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PROFILES = 6, MOST_ROWS = 3 };

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

static void path_of(const subject *s, const char *kind, char *path, size_t size) {
    snprintf(path, size, "%s/%s-%lld-%s%s.png", s->directory, s->rollouts->task->name, (long long)s->id, s->field,
             kind);
}

static ups_axis space_axis(const ups_rollouts *rollouts, int axis, const char *label) {
    return (ups_axis){.low = rollouts->low[axis], .high = rollouts->high[axis], .label = label};
}

/* The first `frames` frames as rows: half an interval beyond the outer ones. */
static ups_axis time_axis(const subject *s, int64_t frames) {
    const double *time = s->rollout->time;
    double half = frames > 1 ? 0.5 * (time[frames - 1] - time[0]) / (double)(frames - 1) : 0.5;
    return (ups_axis){.low = time[0] - half, .high = time[frames - 1] + half, .label = "time t"};
}

/* `count` frames (at most `most`) from the first predicted one to the last. */
static int choose_frames(int64_t frames, int most, int64_t *chosen) {
    int64_t predicted = frames - 1;
    int count = predicted < most ? (int)predicted : most;
    for (int i = 0; i < count; i++) chosen[i] = count == 1 ? predicted : 1 + i * (predicted - 1) / (count - 1);
    return count;
}

/* ---- 1D -------------------------------------------------------------------------------------------------------- */

static ups_status draw_space_time(const subject *s, const char *title, ups_error *error) {
    char path[4096];
    const ups_rollouts *r = s->rollouts;
    const int64_t channels = r->task->geometry.channels;
    path_of(s, "", path, sizeof path);
    (*s->written)++;
    if (r->truth_frames == 0) {
        ups_heat_map map = {.values = frame_of(s, s->rollout->prediction, 0),
                            .rows = r->frames,
                            .columns = r->points,
                            .row_stride = r->points * channels,
                            .column_stride = channels,
                            .x = space_axis(r, 0, "x"),
                            .y = time_axis(s, r->frames),
                            .stretched = true,
                            .title = title};
        return ups_picture_heat_map(path, &map, error);
    }
    ups_comparison_row row = {.prediction = frame_of(s, s->rollout->prediction, 0),
                              .truth = frame_of(s, s->rollout->truth, 0),
                              .nrmse = s->rollout->nrmse[s->channel]}; /* without frame 0, which was given */
    ups_comparison comparison = {.title = title,
                                 .rows = &row,
                                 .row_count = 1,
                                 .height = r->truth_frames,
                                 .width = r->points,
                                 .row_stride = r->points * channels,
                                 .column_stride = channels,
                                 .x = space_axis(r, 0, "x"),
                                 .y = time_axis(s, r->truth_frames),
                                 .stretched = true};
    return ups_picture_comparison(path, &comparison, error);
}

static ups_status draw_profiles(const subject *s, const char *title, ups_error *error) {
    char path[4096], names[MOST_PROFILES][48];
    const ups_rollouts *r = s->rollouts;
    int64_t chosen[MOST_PROFILES];
    ups_profile profiles[MOST_PROFILES];
    int count = choose_frames(r->truth_frames, MOST_PROFILES, chosen);
    if (count < 1) return UPS_OK;
    double *x = malloc((size_t)r->points * sizeof *x);
    if (!x) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld points", (long long)r->points);
    for (int64_t i = 0; i < r->points; i++) x[i] = ups_rollouts_coordinate(r, 0, i);
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "t = %.4g", s->rollout->time[chosen[i]]);
        profiles[i] = (ups_profile){.name = names[i],
                                    .prediction = frame_of(s, s->rollout->prediction, chosen[i]),
                                    .truth = frame_of(s, s->rollout->truth, chosen[i])};
    }
    ups_profiles picture = {.title = title,
                            .x = x,
                            .points = r->points,
                            .stride = r->task->geometry.channels,
                            .x_label = "x",
                            .y_label = s->field,
                            .profiles = profiles,
                            .count = count};
    path_of(s, "-profiles", path, sizeof path);
    ups_status status = ups_picture_profiles(path, &picture, error);
    free(x);
    (*s->written)++;
    return status;
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
    char path[4096], names[MOST_ROWS][48];
    const ups_rollouts *r = s->rollouts;
    const int64_t channels = r->task->geometry.channels, given = constant_channel(r);
    int64_t chosen[MOST_ROWS];
    ups_comparison_row rows[MOST_ROWS];
    int count = choose_frames(r->truth_frames, MOST_ROWS, chosen);
    if (count < 1) return UPS_OK;
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "t = %.4g", s->rollout->time[chosen[i]]);
        rows[i] = (ups_comparison_row){.name = r->truth_frames > 2 ? names[i] : NULL,
                                       .prediction = frame_of(s, s->rollout->prediction, chosen[i]),
                                       .truth = frame_of(s, s->rollout->truth, chosen[i])};
        if (given >= 0) rows[i].given = s->rollout->truth + given; /* of frame 0: it is the same in all */
    }
    char given_name[64];
    if (given >= 0) snprintf(given_name, sizeof given_name, "%s (given)", r->task->source->channel_names[given]);
    ups_comparison comparison = {.title = title,
                                 .given_name = given >= 0 ? given_name : NULL,
                                 .rows = rows,
                                 .row_count = count,
                                 .height = r->grid[1],
                                 .width = r->grid[0],
                                 .row_stride = channels,
                                 .column_stride = r->grid[1] * channels,
                                 .x = space_axis(r, 0, "x"),
                                 .y = space_axis(r, 1, "y")};
    path_of(s, "", path, sizeof path);
    (*s->written)++;
    return ups_picture_comparison(path, &comparison, error);
}

/* The last frame alone, where there is no truth on this grid. */
static ups_status draw_last_frame(const subject *s, const char *title, ups_error *error) {
    char path[4096], text[320];
    const ups_rollouts *r = s->rollouts;
    const int64_t channels = r->task->geometry.channels;
    snprintf(text, sizeof text, "%s at t = %.4g", title, s->rollout->time[r->frames - 1]);
    ups_heat_map map = {.values = frame_of(s, s->rollout->prediction, r->frames - 1),
                        .rows = r->grid[1],
                        .columns = r->grid[0],
                        .row_stride = channels,
                        .column_stride = r->grid[1] * channels,
                        .x = space_axis(r, 0, "x"),
                        .y = space_axis(r, 1, "y"),
                        .title = text};
    path_of(s, "", path, sizeof path);
    (*s->written)++;
    return ups_picture_heat_map(path, &map, error);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static ups_status draw(const subject *s, ups_error *error) {
    char title[256];
    title_of(s, title, sizeof title);
    bool truth = s->rollouts->truth_frames > 0;
    if (s->rollouts->task->geometry.dims == 2) {
        return truth ? draw_frames(s, title, error) : draw_last_frame(s, title, error);
    }
    UPS_TRY(draw_space_time(s, title, error));
    return truth ? draw_profiles(s, title, error) : UPS_OK;
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
