/* What pictures and animations of rollouts are of: one field of one trajectory. */
#ifndef UPS_TOOLS_REPORT_ROLLOUTS_SUBJECT_H
#define UPS_TOOLS_REPORT_ROLLOUTS_SUBJECT_H

#include "tools/report/pictures.h"
#include "train/evaluation/rollout.h"

/* Which of the grid's axes goes to the right, which up, and across which in 3D the middle plane is shown. */
typedef struct ups_rollout_view {
    int right, up, across;
    double *edges[UPS_MAX_GRID_DIMS]; /* of each axis's cells where they are no even ones that rise; else NULL */
} ups_rollout_view;

/* Of a grid whose axes have these names: x to the right and y up where they are called so (lon and lat likewise), else
 * the first to the right and the second up. Without edges. */
ups_rollout_view ups_rollout_view_of(const ups_sample *geometry);

typedef struct ups_rollout_subject {
    const ups_rollouts *rollouts;
    const ups_rollout *rollout;
    const ups_rollout *on_points; /* what `rollout` was drawn from where points lie anywhere; else NULL */
    const ups_rollout_view *view;
    int64_t channel;
    const char *directory, *field;
    ups_html *page; /* that pictures go to; NULL: they are files */
    char title[256];
    int64_t id;
    int *written;
} ups_rollout_subject;

typedef ups_status (*ups_rollout_draw)(const ups_rollout_subject *subject, int rate, ups_error *error);

/* Where drawings of rollouts go: files in `directory`, which is made, or a page. `ids[position]` name trajectories in
 * files' names. `written` begins at 0. `rate` is of animations (animations.h). */
typedef struct ups_rollout_drawings {
    const char *directory; /* NULL: to the page */
    ups_html *page;
    const int64_t *ids; /* NULL: of a page */
    int rate;
    int *written;
} ups_rollout_drawings;

/* Calls `draw` for every trajectory and every field that changes in time. */
ups_status ups_rollout_each_subject(const ups_rollout_drawings *drawings, const ups_rollouts *rollouts,
                                    ups_rollout_draw draw, ups_error *error);

/* DIRECTORY/TASK-ID-FIELDKIND.png. What the name of a file cannot have, a slash first of all, is written as in an
 * address: %2F. */
enum { UPS_ROLLOUT_PATH = 4096 };
#define UPS_PICTURE_FIELD ""
#define UPS_PICTURE_PROFILES "-profiles"
#define UPS_PICTURE_ANIMATION "-animation"
void ups_rollout_picture_path(const char *directory, const ups_task *task, int64_t id, int64_t channel,
                              const char *kind, char path[UPS_ROLLOUT_PATH]);
/* The same of a subject, which is counted as written. */
void ups_rollout_next_path(const ups_rollout_subject *subject, const char *kind, char path[UPS_ROLLOUT_PATH]);

/* The field in a frame of the rollout's prediction or truth; in 3D in the middle plane. Points are `channels` apart
 * along the last axis. */
const float *ups_rollout_frame(const ups_rollout_subject *subject, const float *frames, int64_t frame);
/* nRMSE of a frame of points that lie anywhere, which the picture's own cells would give another one; 0 of a grid. */
double ups_rollout_frame_nrmse(const ups_rollout_subject *subject, int64_t frame);
/* The same of the truth; NULL where the data have no such frame. */
const float *ups_rollout_truth(const ups_rollout_subject *subject, int64_t frame);

/* A comparison of frames in 2D, or of planes in 3D, without its rows. `labels` hold what the axes say. */
ups_comparison ups_rollout_frames_comparison(const ups_rollout_subject *subject, char labels[2][UPS_AXIS_LABEL]);
/* The first field that never changes, which predictions were made from (Darcy's coefficient), as the rows' `given`;
 * NULL where there is none. Its name for the column goes to `name`. */
enum { UPS_GIVEN_NAME = 64 };
const float *ups_rollout_given(const ups_rollout_subject *subject, char name[UPS_GIVEN_NAME]);

/* An axis of the grid, in the data's units; of coordinates that turn back, points by their numbers. */
ups_axis ups_rollout_space_axis(const ups_rollout_subject *subject, int axis, char label[UPS_AXIS_LABEL]);
/* Places of the points along it, malloc'ed; NULL when out of memory. */
double *ups_rollout_places(const ups_rollout_subject *subject, int axis);

#endif
