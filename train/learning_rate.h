/* Learning-rate schedules: a pure function of the step, so that a resumed run sees the same rates. */
#ifndef UPS_TRAIN_LEARNING_RATE_H
#define UPS_TRAIN_LEARNING_RATE_H

#include "train/config/config.h"

/* The rate for optimizer step `step`, counted from 0, of `steps`: linear warm-up to learning_rate, then constant, or a
 * half cosine down to final_fraction · learning_rate at the last step (Loshchilov & Hutter, arXiv 1608.03983, without
 * restarts). */
double ups_schedule_rate(const ups_optimizer_config *config, int64_t step, int64_t steps);

#endif
