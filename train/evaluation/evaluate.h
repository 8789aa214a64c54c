/* Evaluation of a trained surrogate on held-out trajectories: PDEBench's metrics of decoded fields, on the full grid
 * and in physical units, beside two others that say what they are worth: persistence (the start frame repeated) and the
 * autoencoder's own reconstruction of the same target frames, below which no operator comes.
 *
 * A step is the task's stride of stored frames. A horizon of h steps scores the frame h steps ahead, from a start every
 * evaluation.start_every steps of every trajectory that has h steps left; horizon 0 scores all frames of the rollout
 * from each trajectory's first start. The operator sees the true state only at the start.
 *
 * The first evaluation.given frames of a trajectory are given and never scored; the first start is the last of them,
 * from which horizons count. With 10 the frames that count are those of PDEBench's initial_step = 10. A trajectory of
 * two frames, as a steady problem has, always has one that is given.
 *
 * A field that never changes in time in the data (Darcy's coefficient) is an input, not a solution: solution fields are
 * the others, and the summary is their mean. Where no field changes all count. */
#ifndef UPS_TRAIN_EVALUATION_EVALUATE_H
#define UPS_TRAIN_EVALUATION_EVALUATE_H

#include "train/evaluation/predictions.h"
#include "train/evaluation/results.h"
#include "train/evaluation/surrogate.h"

/* What is evaluated: a trained surrogate, or predictions of another model. Those go from each trajectory's first start
 * alone, whatever evaluation.start_every says, and nothing is encoded: there is no reconstruction. */
typedef struct ups_evaluated {
    ups_surrogate *surrogate;
    ups_predictions *predictions; /* NULL: the surrogate */
} ups_evaluated;

/* How many first frames of a trajectory are given and not scored, at the task's stride. UPS_ERR_CONFIG, which names the
 * task, where that leaves none. */
ups_status ups_evaluation_given(const ups_run_config *config, const ups_task *task, int64_t *given, ups_error *error);

/* Whether every task has frames left to be scored, before the first one is evaluated: UPS_ERR_CONFIG names the task. */
ups_status ups_evaluation_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);

/* Whether predictions fit the trajectories of a split that would be evaluated (ups_predictions_match). */
ups_status ups_evaluation_match(const ups_run_config *config, const ups_task *task, ups_split split,
                                ups_predictions *predictions, ups_error *error);

/* `split`: UPS_SPLIT_COUNT stands for ups_task_held_out. Errors: UPS_ERR_ARGUMENT (a split without samples),
 * UPS_ERR_CONFIG (no frame to score), those of reading, of the surrogate and of predictions.h, UPS_ERR_CANCELLED. Free
 * with ups_task_evaluation_free. */
ups_status ups_evaluate_task(const ups_run_config *config, const ups_tasks *tasks, int task, ups_split split,
                             const ups_evaluated *evaluated, ups_task_evaluation *evaluation, ups_error *error);

#endif
