#include "tools/report/rollouts/subject.h"

#include "base/even.h"
#include "base/files.h"
#include "tools/report/rollouts/raster.h"
#include "tools/rollout_facts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int dims_of(const ups_rollouts *rollouts) {
    return rollouts->task->geometry.dims;
}

static int64_t middle_plane(const ups_rollout_subject *s) {
    return dims_of(s->rollouts) == 3 ? s->rollouts->grid[s->view->across] / 2 : 0;
}

/* From one point to the next along an axis, in numbers. */
static int64_t stride_of(const ups_rollouts *rollouts, int axis) {
    int64_t stride = rollouts->task->geometry.channels;
    for (int a = axis + 1; a < dims_of(rollouts); a++) stride *= rollouts->grid[a];
    return stride;
}

const float *ups_rollout_frame(const ups_rollout_subject *s, const float *frames, int64_t frame) {
    const int64_t elements = s->rollouts->points * s->rollouts->task->geometry.channels;
    const int64_t plane = middle_plane(s) * stride_of(s->rollouts, s->view->across);
    return frames + frame * elements + plane + s->channel;
}

const float *ups_rollout_truth(const ups_rollout_subject *s, int64_t frame) {
    return frame < s->rollouts->truth_frames ? ups_rollout_frame(s, s->rollout->truth, frame) : NULL;
}

double ups_rollout_frame_nrmse(const ups_rollout_subject *s, int64_t frame) {
    if (!s->on_points || frame >= s->rollouts->truth_frames) return 0;
    const ups_points *of = s->on_points->sample.points;
    const int64_t channels = s->rollouts->task->geometry.channels, points = of->count;
    const float *prediction = s->on_points->prediction + frame * points * channels + s->channel;
    const float *truth = s->on_points->truth + frame * points * channels + s->channel;
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < points * channels; i += channels) {
        if (!ups_points_is_first(of, i / channels)) continue;
        const double error = (double)prediction[i] - (double)truth[i];
        errors += error * error;
        squares += (double)truth[i] * (double)truth[i];
    }
    return sqrt(errors / squares);
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

/* ---- how the grid is looked at ---------------------------------------------------------------------------------- */

/* The first axis, of those that are `free`, of one of the names; −1: there is none. */
static int axis_named(const ups_sample *geometry, const bool *free, const char *const names[4]) {
    for (int a = 0; a < geometry->dims; a++) {
        for (int n = 0; n < 4 && free[a] && geometry->axis_names[a]; n++) {
            if (strcasecmp(geometry->axis_names[a], names[n]) == 0) return a;
        }
    }
    return -1;
}

/* The axis of such a name, else the first that is left; no longer free then. */
static int take_axis(const ups_sample *geometry, bool *free, const char *const names[4]) {
    int axis = axis_named(geometry, free, names);
    for (int a = 0; a < UPS_MAX_GRID_DIMS && axis < 0; a++) axis = free[a] ? a : -1;
    free[axis] = false;
    return axis;
}

ups_rollout_view ups_rollout_view_of(const ups_sample *geometry) {
    static const char *const right[4] = {"x", "lon", "longitude", "x"}, *const up[4] = {"y", "lat", "latitude", "y"},
                             *const high[4] = {"z", "height", "level", "depth"};
    bool free[UPS_MAX_GRID_DIMS] = {true, true, true};
    ups_rollout_view view = {0};
    const int named_up = axis_named(geometry, free, up), named_high = axis_named(geometry, free, high);
    const int kept = named_up >= 0 ? named_up : named_high; /* which is not to go to the right */
    if (kept >= 0 && geometry->dims > 1) free[kept] = false;
    view.right = take_axis(geometry, free, right);
    if (kept >= 0 && geometry->dims > 1) free[kept] = true;
    view.up = take_axis(geometry, free, geometry->dims == 2 && named_up < 0 ? high : up);
    view.across = take_axis(geometry, free, high);
    return view;
}

/* False when out of memory. */
static bool find_edges(const ups_rollouts *rollouts, ups_rollout_view *view) {
    for (int a = 0; a < dims_of(rollouts); a++) {
        const bool even = !rollouts->centres[a] || ups_is_even(rollouts->centres[a], rollouts->grid[a]);
        if (even && rollouts->low[a] < rollouts->high[a]) continue;
        double *centres = ups_rollout_coordinates(rollouts, a);
        if (!centres) return false;
        view->edges[a] = ups_axis_edges(centres, rollouts->grid[a]);
        free(centres);
    }
    return true;
}

/* Whether an axis's coordinates turn back, so that they are no places to draw at. */
static bool turns_back(const ups_rollout_subject *s, int axis) {
    const ups_rollouts *r = s->rollouts;
    return r->centres[axis] && !s->view->edges[axis] && !ups_is_even(r->centres[axis], r->grid[axis]);
}

ups_axis ups_rollout_space_axis(const ups_rollout_subject *s, int axis, char label[UPS_AXIS_LABEL]) {
    const ups_rollouts *r = s->rollouts;
    const double *edges = s->view->edges[axis];
    if (turns_back(s, axis))
        return (ups_axis){.low = -0.5,
                          .high = (double)r->grid[axis] - 0.5,
                          .label = ups_axis_label(label, axis_name(r, axis), "grid point"),
                          .whole = true};
    return (ups_axis){.low = edges ? edges[0] : r->low[axis],
                      .high = edges ? edges[r->grid[axis]] : r->high[axis],
                      .label = ups_axis_label(label, axis_name(r, axis), r->task->geometry.axis_units[axis]),
                      .edges = edges};
}

double *ups_rollout_places(const ups_rollout_subject *s, int axis) {
    double *places = ups_rollout_coordinates(s->rollouts, axis);
    for (int64_t i = 0; places && turns_back(s, axis) && i < s->rollouts->grid[axis]; i++) places[i] = (double)i;
    return places;
}

/* The same, with the smaller end at the bottom. */
static ups_axis upward_axis(const ups_rollout_subject *s, int axis, char label[UPS_AXIS_LABEL]) {
    ups_axis made = ups_rollout_space_axis(s, axis, label);
    const double low = made.low;
    if (!made.edges || made.low < made.high) return made;
    made.low = made.high;
    made.high = low;
    return made;
}

ups_comparison ups_rollout_frames_comparison(const ups_rollout_subject *s, char labels[2][UPS_AXIS_LABEL]) {
    const ups_rollouts *r = s->rollouts;
    const int right = s->view->right, up = s->view->up;
    return (ups_comparison){.title = s->title,
                            .prediction_name = "prediction",
                            .truth_name = "truth",
                            .truth_column = r->truth_frames > 0,
                            .outside = s->on_points != NULL,
                            .height = r->grid[up],
                            .width = r->grid[right],
                            .row_stride = stride_of(r, up),
                            .column_stride = stride_of(r, right),
                            .x = ups_rollout_space_axis(s, right, labels[0]),
                            .y = upward_axis(s, up, labels[1])};
}

/* ---- what is drawn ------------------------------------------------------------------------------------------------
 */

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
        snprintf(s->title + used, sizeof s->title - (size_t)used, ", %s = %.4g", axis_name(r, s->view->across),
                 ups_rollouts_coordinate(r, s->view->across, middle_plane(s)));
}

/* Every field of one trajectory that changes in time. */
static ups_status draw_fields(const ups_rollout_drawings *drawings, const ups_rollouts *rollouts, int64_t index,
                              const ups_rollout *on_points, ups_rollout_draw draw, ups_error *error) {
    ups_rollout_view view = ups_rollout_view_of(&rollouts->task->geometry);
    ups_status status = find_edges(rollouts, &view) ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int64_t c = 0; c < rollouts->task->geometry.channels && status == UPS_OK; c++) {
        if (!rollouts->solution[c]) continue;
        ups_rollout_subject s = {.rollouts = rollouts,
                                 .rollout = &rollouts->list[index],
                                 .on_points = on_points,
                                 .view = &view,
                                 .channel = c,
                                 .directory = drawings->directory,
                                 .page = drawings->page,
                                 .field = rollouts->task->source->channel_names[c],
                                 .id = drawings->ids ? drawings->ids[rollouts->list[index].position] : 0,
                                 .written = drawings->written};
        name_subject(&s);
        status = draw(&s, drawings->rate, error);
    }
    for (int a = 0; a < UPS_MAX_GRID_DIMS; a++) free(view.edges[a]);
    return status;
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
