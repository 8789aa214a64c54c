#include "tools/report/rollouts/subject.h"

#include "base/files.h"
#include "tools/report/rollouts/raster.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int dims_of(const ups_rollouts *rollouts) {
    return rollouts->task->geometry.dims;
}

/* Along the last axis of a grid in 3D. */
static int64_t middle_plane(const ups_rollouts *rollouts) {
    return dims_of(rollouts) == 3 ? rollouts->grid[2] / 2 : 0;
}

const float *ups_rollout_frame(const ups_rollout_subject *s, const float *frames, int64_t frame) {
    const int64_t channels = s->rollouts->task->geometry.channels;
    return frames + (frame * s->rollouts->points + middle_plane(s->rollouts)) * channels + s->channel;
}

double ups_rollout_frame_nrmse(const ups_rollout_subject *s, int64_t frame) {
    if (!s->on_points || !s->on_points->truth) return 0;
    const int64_t channels = s->rollouts->task->geometry.channels, points = s->on_points->sample.points->count;
    const float *prediction = s->on_points->prediction + frame * points * channels + s->channel;
    const float *truth = s->on_points->truth + frame * points * channels + s->channel;
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < points * channels; i += channels) {
        const double error = (double)prediction[i] - (double)truth[i];
        errors += error * error;
        squares += (double)truth[i] * (double)truth[i];
    }
    return sqrt(errors / squares);
}

int64_t ups_rollout_shown_frames(const ups_rollouts *rollouts) {
    return rollouts->truth_frames > 0 ? rollouts->truth_frames : rollouts->frames;
}

/* Other names become other names: the percent sign is escaped as well. */
static void escape(const char *field, char *name, size_t room) {
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)field; *c && used + 4 < room; c++) {
        const bool plain = *c >= ' ' && *c != '/' && *c != '%' && *c != 0x7f;
        used += (size_t)snprintf(name + used, room - used, plain ? "%c" : "%%%02X", *c);
    }
    name[used] = '\0';
}

void ups_rollout_picture_path(const char *directory, const ups_task *task, int64_t id, int64_t channel,
                              const char *kind, char path[UPS_ROLLOUT_PATH]) {
    char field[1024];
    escape(task->source->channel_names[channel], field, sizeof field);
    snprintf(path, UPS_ROLLOUT_PATH, "%s/%s-%lld-%s%s.png", directory, task->name, (long long)id, field, kind);
}

void ups_rollout_next_path(const ups_rollout_subject *s, const char *kind, char path[UPS_ROLLOUT_PATH]) {
    ups_rollout_picture_path(s->directory, s->rollouts->task, s->id, s->channel, kind, path);
    (*s->written)++;
}

static const char *axis_name(const ups_rollouts *rollouts, int axis) {
    static const char *const usual[] = {"x", "y", "z"};
    const char *name = rollouts->task->geometry.axis_names[axis];
    return name ? name : usual[axis];
}

ups_axis ups_rollout_space_axis(const ups_rollouts *rollouts, int axis, char label[UPS_AXIS_LABEL]) {
    return (ups_axis){.low = rollouts->low[axis],
                      .high = rollouts->high[axis],
                      .label =
                          ups_axis_label(label, axis_name(rollouts, axis), rollouts->task->geometry.axis_units[axis])};
}

ups_comparison ups_rollout_frames_comparison(const ups_rollout_subject *s, char labels[2][UPS_AXIS_LABEL]) {
    const ups_rollouts *r = s->rollouts;
    const int64_t row_stride = r->task->geometry.channels * (dims_of(r) == 3 ? r->grid[2] : 1);
    return (ups_comparison){.title = s->title,
                            .prediction_name = "prediction",
                            .truth_name = "truth",
                            .outside = s->on_points != NULL,
                            .height = r->grid[1],
                            .width = r->grid[0],
                            .row_stride = row_stride,
                            .column_stride = r->grid[1] * row_stride,
                            .x = ups_rollout_space_axis(r, 0, labels[0]),
                            .y = ups_rollout_space_axis(r, 1, labels[1])};
}

/* Whether a field says where points lie, which a picture shows by itself. */
static bool tells_places(const ups_rollout_subject *s, const char *field) {
    const ups_points *points = s->on_points ? s->on_points->sample.points : NULL;
    bool found = false;
    for (int axis = 0; points && points->own && axis < points->dims; axis++)
        found |= strcmp(points->names[axis], field) == 0;
    return found;
}

const float *ups_rollout_given(const ups_rollout_subject *s, char name[UPS_GIVEN_NAME]) {
    const ups_rollouts *r = s->rollouts;
    if (r->truth_frames == 0) return NULL;
    for (int64_t c = 0; c < r->task->geometry.channels; c++) {
        if (r->solution[c] || tells_places(s, r->task->source->channel_names[c])) continue;
        snprintf(name, UPS_GIVEN_NAME, "%s (given)", r->task->source->channel_names[c]);
        return ups_rollout_frame(s, s->rollout->truth, 0) + (c - s->channel); /* of frame 0: it is the same in all */
    }
    return NULL;
}

/* "turbulence, sample 3: density, z = 0.5" */
static void name_subject(ups_rollout_subject *s) {
    const ups_rollouts *r = s->rollouts;
    int used = snprintf(s->title, sizeof s->title, "%s, %s: %s", r->task->name, s->rollout->sample.name, s->field);
    if (dims_of(r) == 3 && used > 0 && (size_t)used < sizeof s->title)
        snprintf(s->title + used, sizeof s->title - (size_t)used, ", %s = %.4g", axis_name(r, 2),
                 ups_rollouts_coordinate(r, 2, middle_plane(r)));
}

/* Every field of one trajectory that changes in time. */
static ups_status draw_fields(const ups_rollout_drawings *drawings, const ups_rollouts *rollouts, int64_t index,
                              const ups_rollout *on_points, ups_rollout_draw draw, ups_error *error) {
    for (int64_t c = 0; c < rollouts->task->geometry.channels; c++) {
        if (!rollouts->solution[c]) continue;
        ups_rollout_subject s = {.rollouts = rollouts,
                                 .rollout = &rollouts->list[index],
                                 .on_points = on_points,
                                 .channel = c,
                                 .directory = drawings->directory,
                                 .page = drawings->page,
                                 .field = rollouts->task->source->channel_names[c],
                                 .id = drawings->ids ? drawings->ids[rollouts->list[index].position] : 0,
                                 .written = drawings->written};
        name_subject(&s);
        UPS_TRY(draw(&s, drawings->rate, error));
    }
    return UPS_OK;
}

ups_status ups_rollout_each_subject(const ups_rollout_drawings *drawings, const ups_rollouts *rollouts,
                                    ups_rollout_draw draw, ups_error *error) {
    *drawings->written = 0;
    if (drawings->directory) UPS_TRY(ups_make_directories(drawings->directory, error));
    for (int64_t i = 0; i < rollouts->count; i++) {
        if (!rollouts->task->geometry.points) {
            UPS_TRY(draw_fields(drawings, rollouts, i, NULL, draw, error));
            continue;
        }
        ups_rollout_raster raster;
        UPS_TRY(ups_rollout_raster_make(rollouts, i, &raster, error));
        ups_status status = draw_fields(drawings, &raster.rollouts, 0, &rollouts->list[i], draw, error);
        ups_rollout_raster_free(&raster);
        if (status != UPS_OK) return status;
    }
    return UPS_OK;
}
