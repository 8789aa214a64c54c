/* Whole rollouts over time: how the error grows, how long a prediction resembles the truth, what becomes of what should
 * be conserved, and which wave numbers are right. Trajectories are added one by one; their errors are kept apart, so
 * that two models can be compared on each.
 *
 * For a trajectory's prediction p and truth u of a field at a frame, means over the grid:
 *
 *   nRMSE        sqrt(mean (p - u)² / mean u²), as in pde_metrics.h: undefined (NaN) where u is zero everywhere,
 * infinite where p is not finite correlation  Pearson's, of p and u over space: undefined where u is constant (a
 * deviation of at most 1e-6 of its root mean square, which is rounding); 0 where p is constant or not finite change of
 * the field's mean since the last given frame, over the root mean square of u in all frames: the prediction's and the
 * truth's, both from the true mean then; and the difference of the two. Where the truth's mean does not change, it is
 * conserved, and the prediction's change is its drift energy       by radial wave number (spectrum.h), at the first,
 * the middle and the last frame
 *
 * Over several fields: the mean over those that are asked for. Frames are counted from 0, the first one that is scored;
 * steps are counted from the last given frame, so that frame f is step f + 1. */
#ifndef UPS_TRAIN_EVALUATION_ROLLOUT_SCORES_H
#define UPS_TRAIN_EVALUATION_ROLLOUT_SCORES_H

#include "base/error.h"
#include "train/evaluation/scores/forecast.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_rollout_shape {
    int dims;
    int64_t grid[3];
    int64_t channels;
    int64_t frames; /* scored in each trajectory */
    bool scattered; /* one axis of points that lie anywhere: there are no spectra */
} ups_rollout_shape;

typedef struct ups_rollout_scores ups_rollout_scores;

/* Errors: UPS_ERR_ARGUMENT (spectrum.h), UPS_ERR_MEMORY. */
ups_status ups_rollout_scores_create(const ups_rollout_shape *shape, ups_rollout_scores **scores, ups_error *error);
void ups_rollout_scores_destroy(ups_rollout_scores *scores); /* NULL is fine */

/* Adds a trajectory: `forecasts` (frames, points, channels) each; `truth` (frames + 1, points, channels) and `time`
 * (frames + 1) begin with the last given frame. `points`: how many of a frame count, as in pde_metrics.h. Not
 * thread-safe. Errors: UPS_ERR_MEMORY. */
ups_status ups_rollout_scores_add(ups_rollout_scores *scores, const float *const forecasts[UPS_FORECASTS],
                                  const float *truth, const double *time, int64_t points, ups_error *error);

int64_t ups_rollout_scores_count(const ups_rollout_scores *scores); /* trajectories */

/* Below, `fields` (channels) says which count. */

/* Time from the last given frame to frame `frame`, mean over trajectories. */
double ups_rollout_time(const ups_rollout_scores *scores, int64_t frame);

/* nRMSE of the model on one trajectory, at a frame, or over the whole rollout: then the mean over frames of each field,
 * of which the mean. NaN where it is undefined for all, infinite as said above. */
double ups_rollout_nrmse_at(const ups_rollout_scores *scores, const bool *fields, int64_t trajectory, int64_t frame);
double ups_rollout_nrmse(const ups_rollout_scores *scores, const bool *fields, int64_t trajectory);

/* Its quantiles over trajectories at a frame, linear between neighbours; NaN where it is undefined for all. */
enum { UPS_ROLLOUT_QUANTILES = 5 };
extern const double ups_rollout_quantiles[UPS_ROLLOUT_QUANTILES]; /* 0.05, 0.25, 0.5, 0.75, 0.95 */
ups_status ups_rollout_nrmse_quantiles(const ups_rollout_scores *scores, const bool *fields, int64_t frame,
                                       double out[UPS_ROLLOUT_QUANTILES], ups_error *error);

/* Correlation of a forecast at a frame, mean over trajectories. */
double ups_rollout_correlation(const ups_rollout_scores *scores, int forecast, const bool *fields, int64_t frame);

/* When a correlation falls below `threshold` for the first time. */
typedef struct ups_correlation_time {
    double steps, time; /* infinite: it never does */
} ups_correlation_time;
/* Of the mean over trajectories; of the model on one of them; the median of the latter. */
ups_correlation_time ups_rollout_correlation_time(const ups_rollout_scores *scores, int forecast, const bool *fields,
                                                  double threshold);
ups_correlation_time ups_rollout_correlation_time_of(const ups_rollout_scores *scores, const bool *fields,
                                                     int64_t trajectory, double threshold);
ups_status ups_rollout_correlation_time_median(const ups_rollout_scores *scores, const bool *fields, double threshold,
                                               ups_correlation_time *median, ups_error *error);

/* Changes of a field's mean at a frame, root mean square over trajectories; NaN where the field is zero in all. */
typedef struct ups_mean_change {
    double model, truth, difference;
} ups_mean_change;
ups_mean_change ups_rollout_mean_change(const ups_rollout_scores *scores, int64_t channel, int64_t frame);

/* Change of a truth's mean, as above, up to which it counts as conserved. */
#define UPS_CONSERVED_WITHIN 3e-4

/* The largest difference of changes on one trajectory. */
typedef struct ups_rollout_drift {
    double scale; /* root mean square of the truth in all frames, the last given one among them; 0: zero everywhere, and
                     nothing below is set */
    double difference; /* infinite where the model's mean is not finite */
    int64_t frame;     /* at which it is */
} ups_rollout_drift;
ups_rollout_drift ups_rollout_drift_of(const ups_rollout_scores *scores, int64_t trajectory, int64_t channel);

/* Frames whose spectra are kept: first, middle, last; fewer where those are the same. */
enum { UPS_ROLLOUT_SPECTRA = 3 };
int ups_rollout_spectra(const ups_rollout_scores *scores, int64_t frames[UPS_ROLLOUT_SPECTRA]);
int64_t ups_rollout_shells(const ups_rollout_scores *scores);
/* Mean over trajectories of a field's energy in shell `shell` at the index-th of these frames; `forecast`
 * UPS_FORECASTS: of the truth. */
double ups_rollout_energy(const ups_rollout_scores *scores, int forecast, int index, int64_t channel, int64_t shell);

#endif
