/* How long steps take: what rollouts, evaluations and exported models tell the operator of a step.
 *
 * Times that a file keeps in float32 are rounded, so that differences of neighbours are all slightly different. Where
 * steps differ by no more than that, there is one length of a step, and everyone takes that one: what a model predicts
 * without its data is then what it predicts with them, to the bit. Otherwise differences are taken as they are. */
#ifndef UPS_TRAIN_DATA_CONDITIONS_STEP_TIMES_H
#define UPS_TRAIN_DATA_CONDITIONS_STEP_TIMES_H

#include "pipeline/source.h"

/* By more than a hundredth of a step, and more than times in float32 are rounded by: whether the steps of a window are
 * to be told one by one. */
bool ups_sample_is_uneven(const ups_sample *sample);

/* Seconds from a stored frame to the next; NaN where these differ by more than rounding. */
double ups_sample_dt(const ups_sample *sample);

/* Whether frames of both lie as long behind the first one, but for rounding. */
bool ups_samples_have_same_times(const ups_sample *a, const ups_sample *b);

/* Seconds of each step of `stride` stored frames, ((times - 1) / stride). `dt`: seconds from a stored frame to the next
 * that all samples of the task share (ups_task.dt); NaN: the sample's own, or the differences of its times. */
void ups_sample_step_times(const ups_sample *sample, double dt, int64_t stride, double *seconds);

#endif
