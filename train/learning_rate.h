/* Learning-rate schedules: a function of the step and, of `plateau`, of what validations were before, which a
 * checkpoint keeps. So a resumed run sees the same rates. */
#ifndef UPS_TRAIN_LEARNING_RATE_H
#define UPS_TRAIN_LEARNING_RATE_H

#include "train/config/config.h"

/* The rate for optimizer step `step`, counted from 0, of `steps`: linear warm-up to learning_rate, then by schedule:
 *
 *   constant  as it is
 *   cosine    a half cosine down to final_fraction · learning_rate at the last step (Loshchilov & Hutter, arXiv
 *             1608.03983, without restarts)
 *   wsd       as it is, then down to the same in the last decay_fraction of the steps, linearly or by 1 − √ of the
 * share of the decay that is done (Hägele et al., arXiv 2405.18392) plateau   learning_rate · plateau_factor ^ cuts,
 * and no less than final_fraction · learning_rate */
double ups_schedule_rate(const ups_optimizer_config *config, int64_t step, int64_t steps, int64_t cuts);

/* The steps of `steps` that come before the decay of `wsd`; of other schedules all. */
int64_t ups_schedule_decay_start(const ups_optimizer_config *config, int64_t steps);

/* What `plateau` knows of the validations that fell due; zeroed where there was none. */
typedef struct ups_plateau {
    bool begun;
    double best;   /* score, the lowest so far */
    int64_t stale; /* validations since then, or since the rate was cut */
    int64_t cuts;
} ups_plateau;

/* A validation after `step` steps. Whether the rate falls: after plateau_patience validations in a row whose score was
 * not lower than the best by more than `min_delta`. Those of the warm-up can only be better. Of other schedules never.
 */
bool ups_plateau_note(ups_plateau *plateau, const ups_optimizer_config *config, double min_delta, int64_t step,
                      double score);

#endif
