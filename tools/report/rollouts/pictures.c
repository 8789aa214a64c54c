#include "tools/report/rollouts/pictures.h"

#include "base/even.h"
#include "tools/report/rollouts/subject.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAXIMUM_PROFILES = 6, MAXIMUM_ROWS = 3, NAME_BYTES = 48 };

static ups_figure_kind kind_of(const ups_rollout_subject *s) {
    return s->page ? UPS_FIGURE_SVG : UPS_FIGURE_PNG;
}

static ups_status publish(const ups_rollout_subject *s, ups_figure *figure, const char *kind, ups_error *error) {
    char path[UPS_ROLLOUT_PATH];
    if (s->page) {
        ups_html_markup(s->page, "<div class=\"wide picture\">");
        ups_figure_embed(figure, s->page, "field", s->title);
        ups_html_markup(s->page, "</div>\n");
        (*s->written)++;
        return UPS_OK;
    }
    ups_rollout_next_path(s, kind, path);
    return ups_figure_publish(figure, path, error);
}

/* All frames as rows: half an interval beyond the outer ones. `edges`, malloc'ed, where they are no even ones. */
static ups_axis time_axis(const ups_rollout_subject *s, char label[UPS_AXIS_LABEL], double **edges) {
    const double *time = s->rollout->time;
    const int64_t frames = s->rollouts->frames;
    *edges = ups_is_even(time, frames) ? NULL : ups_axis_edges(time, frames);
    if (*edges)
        return (ups_axis){.low = (*edges)[0],
                          .high = (*edges)[frames],
                          .label = ups_axis_label(label, "time t", s->rollouts->task->geometry.time_units),
                          .edges = *edges};
    double half = frames > 1 ? 0.5 * (time[frames - 1] - time[0]) / (double)(frames - 1) : 0.5;
    return (ups_axis){.low = time[0] - half,
                      .high = time[frames - 1] + half,
                      .label = ups_axis_label(label, "time t", s->rollouts->task->geometry.time_units)};
}

/* "t = 0.5", with the unit where the data tell it. */
static void name_time(const ups_rollout_subject *s, int64_t frame, char name[NAME_BYTES]) {
    const char *units = s->rollouts->task->geometry.time_units;
    snprintf(name, NAME_BYTES, "t = %.4g%s%s", s->rollout->time[frame], units ? " " : "", units ? units : "");
}

/* At most `maximum` frames, evenly spaced, from the first predicted one to the last. */
static int choose_frames(const ups_rollouts *r, int maximum, int64_t *chosen) {
    return r->frames <= r->given ? 0 : (int)ups_even_choice(r->given, r->frames - 1, maximum, true, chosen);
}

/* ---- 1D -------------------------------------------------------------------------------------------------------- */

static ups_status draw_space_time(const ups_rollout_subject *s, ups_error *error) {
    const ups_rollouts *r = s->rollouts;
    const int64_t channels = r->task->geometry.channels;
    char labels[2][UPS_AXIS_LABEL];
    double *edges;
    ups_comparison_row row = {.prediction = ups_rollout_frame(s, s->rollout->prediction, 0)};
    if (r->truth_frames > 0) {
        row.truth = ups_rollout_truth(s, 0);
        row.known = r->truth_frames;
        row.nrmse = s->rollout->nrmse[s->channel]; /* without frames that were given */
    }
    ups_comparison comparison = {.title = s->title,
                                 .prediction_name = "prediction",
                                 .truth_name = "truth",
                                 .rows = &row,
                                 .row_count = 1,
                                 .height = r->frames,
                                 .width = r->points,
                                 .row_stride = r->points * channels,
                                 .column_stride = channels,
                                 .x = ups_rollout_space_axis(s, 0, labels[0]),
                                 .y = time_axis(s, labels[1], &edges),
                                 .stretched = true};
    ups_figure figure;
    ups_draw_comparison(&figure, kind_of(s), &comparison);
    free(edges);
    return publish(s, &figure, UPS_PICTURE_FIELD, error);
}

static ups_status draw_profiles(const ups_rollout_subject *s, ups_error *error) {
    char names[MAXIMUM_PROFILES][NAME_BYTES], label[UPS_AXIS_LABEL];
    const ups_rollouts *r = s->rollouts;
    int64_t chosen[MAXIMUM_PROFILES];
    ups_profile profiles[MAXIMUM_PROFILES];
    int count = choose_frames(r, MAXIMUM_PROFILES, chosen);
    if (count < 1) return UPS_OK;
    double *x = ups_rollout_places(s, 0);
    if (!x) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld points", (long long)r->points);
    for (int i = 0; i < count; i++) {
        name_time(s, chosen[i], names[i]);
        profiles[i] = (ups_profile){.name = names[i],
                                    .prediction = ups_rollout_frame(s, s->rollout->prediction, chosen[i]),
                                    .truth = ups_rollout_truth(s, chosen[i])};
    }
    ups_profiles picture = {.title = s->title,
                            .x = x,
                            .points = r->points,
                            .stride = r->task->geometry.channels,
                            .x_label = ups_rollout_space_axis(s, 0, label).label,
                            .y_label = s->field,
                            .profiles = profiles,
                            .count = count};
    ups_figure figure;
    ups_draw_profiles(&figure, kind_of(s), &picture);
    free(x);
    return publish(s, &figure, UPS_PICTURE_PROFILES, error);
}

/* ---- 2D, and planes in 3D -------------------------------------------------------------------------------------- */

static ups_status draw_frames(const ups_rollout_subject *s, ups_error *error) {
    char names[MAXIMUM_ROWS][NAME_BYTES], given_name[UPS_GIVEN_NAME], labels[2][UPS_AXIS_LABEL];
    const ups_rollouts *r = s->rollouts;
    const float *given = ups_rollout_given(s, given_name);
    int64_t chosen[MAXIMUM_ROWS];
    ups_comparison_row rows[MAXIMUM_ROWS];
    int count = choose_frames(r, MAXIMUM_ROWS, chosen);
    if (count < 1) return UPS_OK;
    for (int i = 0; i < count; i++) {
        name_time(s, chosen[i], names[i]);
        rows[i] = (ups_comparison_row){.name = r->frames > 2 ? names[i] : NULL,
                                       .prediction = ups_rollout_frame(s, s->rollout->prediction, chosen[i]),
                                       .truth = ups_rollout_truth(s, chosen[i]),
                                       .given = given,
                                       .nrmse = ups_rollout_frame_nrmse(s, chosen[i])};
    }
    ups_comparison comparison = ups_rollout_frames_comparison(s, labels);
    comparison.given_name = given ? given_name : NULL;
    comparison.rows = rows;
    comparison.row_count = count;
    ups_figure figure;
    ups_draw_comparison(&figure, kind_of(s), &comparison);
    return publish(s, &figure, UPS_PICTURE_FIELD, error);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static ups_status draw(const ups_rollout_subject *s, int rate, ups_error *error) {
    (void)rate; /* pictures stand still */
    if (s->rollouts->task->geometry.dims > 1) return draw_frames(s, error);
    UPS_TRY(draw_space_time(s, error));
    return s->rollouts->truth_frames > 0 ? draw_profiles(s, error) : UPS_OK;
}

ups_status ups_rollout_pictures(const char *directory, const ups_rollouts *rollouts, const int64_t *ids, int *count,
                                ups_error *error) {
    const ups_rollout_drawings drawings = {.directory = directory, .ids = ids, .written = count};
    return ups_rollout_each_subject(&drawings, rollouts, draw, error);
}

/* Of what is in 1D a page has the map over space and time alone. */
static ups_status draw_on_page(const ups_rollout_subject *s, int rate, ups_error *error) {
    (void)rate;
    return s->rollouts->task->geometry.dims > 1 ? draw_frames(s, error) : draw_space_time(s, error);
}

ups_status ups_rollout_show(ups_html *page, const ups_rollouts *rollouts, int *count, ups_error *error) {
    const ups_rollout_drawings drawings = {.page = page, .written = count};
    return ups_rollout_each_subject(&drawings, rollouts, draw_on_page, error);
}
