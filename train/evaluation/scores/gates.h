/* Physics gates: whether whole rollouts are physically admissible, as numbers with limits. Each gate has one number a
 * trajectory and field, 0 where nothing is amiss; the largest over all trajectories and fields is held against its
 * limit (evaluation.gates). For a trajectory, p is the prediction and u the truth of a field at its points in the
 * frames that are scored; R is the root mean square of u in these and the last given frame (ups_rollout_drift.scale):
 *
 *   bounded         how far p leaves the range of u over all trajectories and frames, the last given one among them:
 *                   max(max p - max u, min u - min p, 0) / (max u - min u)
 *   conservation    largest over frames of |mean p - mean u| / R, means over points (ups_rollout_drift.difference). Of
 *                   fields that the data conserve: the truth's mean changes by at most UPS_CONSERVED_WITHIN of R in
 *                   every frame, root mean square over trajectories (ups_rollout_mean_change)
 *   positivity      max(-min p, 0) / R: how deep it falls. Of fields that are nowhere negative in the truth of all
 *                   trajectories, the last given frame among them
 *   negative_share  share of points and frames with p < 0, of the same fields
 *   boundary        sqrt(mean (p - u)²) / R over the grid's outermost points and all frames: a point counts once.
 *                   Nothing where the domain is periodic
 *   divergence      of the velocity v(p), one field along each axis: sqrt(mean (div v(p) - div v(u))² / mean |∇v(u)|²),
 *                   |∇v|² the sum of squares of all derivatives, by central differences, over all frames and points:
 * the grid's inner points where the domain is not periodic. Where the truth is free of divergence on this grid:
 * sqrt(mean (div v(u))² / mean |∇v(u)|²) is at most UPS_GATE_INCOMPRESSIBLE in every trajectory
 *
 * A prediction that is not finite has infinite numbers. A field that is zero everywhere in a trajectory's truth has no
 * R, and its numbers that need one are left out there. */
#ifndef UPS_TRAIN_EVALUATION_GATES_H
#define UPS_TRAIN_EVALUATION_GATES_H

#include "train/data/tasks.h"
#include "train/evaluation/scores/rollout_scores.h"

/* Divergence of a truth that counts as incompressible, over its velocity's gradient: what central differences of a
 * sound solution have. The ratio is 1 of a flow without vorticity in a periodic domain. */
#define UPS_GATE_INCOMPRESSIBLE 0.03

typedef enum ups_gate_state { UPS_GATE_PASSES, UPS_GATE_FAILS, UPS_GATE_DOES_NOT_APPLY, UPS_GATE_OFF } ups_gate_state;

extern const char *const ups_gate_names[UPS_GATES];
const char *ups_gate_state_name(ups_gate_state state); /* "passes", "fails", "does not apply", "off" */

typedef struct ups_gate_result {
    ups_gate_state state;
    const char *reason; /* why it does not apply; else NULL */
    double limit;
    double value;       /* the worst; NaN where it does not apply or is off, infinite where p is not finite */
    int64_t trajectory; /* that has it, in the order in which they were added */
    int64_t channel;    /* the field; -1 for the divergence, which is of several */
    int64_t frame;      /* where it stands, counted as in rollout_scores.h; -1: it is of all frames */
} ups_gate_result;

typedef struct ups_gates ups_gates;

/* For rollouts of `frames` frames of a task's fields. `velocity` (dims): the channel along each axis; NULL: there is
 * none. What is borrowed lives as long as the gates. Errors: UPS_ERR_MEMORY. */
ups_status ups_gates_create(const ups_task *task, int64_t frames, const int64_t *velocity, ups_gates **gates,
                            ups_error *error);
void ups_gates_destroy(ups_gates *gates); /* NULL is fine */

/* The velocity's channel along each axis: the fields of operator.losses.divergence where the task has them all, else
 * those named Vx or velocity_x, by axis. False: there is none, or one axis alone. */
bool ups_gates_find_velocity(const ups_run_config *config, const ups_task *task, int64_t velocity[UPS_MAX_GRID_DIMS]);

/* Adds a trajectory, as ups_rollout_scores_add does: `prediction` (frames, points, channels), `truth` (frames + 1,
 * points, channels) with the last given frame first; `points` as there. Not thread-safe. Errors: UPS_ERR_MEMORY. */
ups_status ups_gates_add(ups_gates *gates, const float *prediction, const float *truth, int64_t points,
                         ups_error *error);

/* Holds all that was added against a limit; 0: the gate is off. `scores` are of the same trajectories; `fields`
 * (channels) says which are judged. */
ups_gate_result ups_gates_judge(const ups_gates *gates, const ups_rollout_scores *scores, const bool *fields, int gate,
                                double limit);

/* The same of one field: its worst value over all trajectories, which one has it, and at which frame (as in
 * ups_gate_result). NaN where the gate is not of the field. The divergence is that of the velocity, whatever `channel`
 * is. */
double ups_gates_worst(const ups_gates *gates, const ups_rollout_scores *scores, int gate, int64_t channel,
                       int64_t *trajectory, int64_t *frame);

#endif
