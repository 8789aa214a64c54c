/* Training in numbers, as the lines of metrics.jsonl tell it: for a page of a run, for sweeps, and for runs that are
 * held against each other. What no line tells is absent, never made up. */
#ifndef UPS_TRAIN_RUN_SUMMARY_H
#define UPS_TRAIN_RUN_SUMMARY_H

#include "base/json.h"

/* Of a stage, where it has lines (else an empty object), a new reference; NULL: no memory. `metrics`: the lines, as
 * ups_metrics_read has them. Keys, and units as in the lines:
 *
 *   precision, parameters, batch_size    as its first line has them
 *   steps                                done
 *   training_s                           of all steps: the lines' step_s, each times the steps that it is of; without
 *                                        validations and checkpoints. Where a run was resumed, steps that were logged
 *                                        nowhere count as those after them
 *   step_s, samples_per_s, flops_per_s, mfu, data_wait_share
 *                                        medians over the lines of training, without the first tenth of them (and at
 *                                        least one), in which memory is touched for the first time; where there is one
 *                                        line only, its numbers
 *   lines                                how many the medians are of
 *   memory                               {resident, resident_peak, device}: the most that a line has
 *   validation, best, best_step          the last score, the lowest, and its step
 *   machines                             a list: what trained it, as its lines tell; more than one where it was resumed
 *                                        elsewhere */
json_t *ups_stage_summary(const json_t *metrics, const char *stage);

/* The first validation of a stage whose score is `loss` or less: {"step", "score", "seconds" of training until then (as
 * training_s; absent where lines do not tell)}. A new reference; NULL: there is none. */
json_t *ups_stage_reaches(const json_t *metrics, const char *stage, double loss);

#endif
