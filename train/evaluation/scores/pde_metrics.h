/* PDEBench's six metrics (Takamoto et al., arXiv 2210.07182, appendix B) and The Well's VRMSE (Ohana et al., arXiv
 * 2412.00568) on fields, summed up trajectory by trajectory.
 *
 * The numbers of the six are those of `metric_func` in PDEBench's own code with all trajectories as one batch;
 * tests/train/test_pde_metrics.c holds them side by side. e = prediction - target, N grid points, means over what the
 * name in brackets says:
 *
 *   rmse       sqrt(mean[grid] e²), then mean [trajectory, channel, time]
 *   nrmse      rmse of each (trajectory, channel, time) over the root mean square of its target, then mean
 *   vrmse      sqrt(mean[grid] e² / (variance[grid] of the target + 1e-7)), then mean [trajectory, channel, time]; 1 is
 *              what the target's mean scores. The variance divides by N - 1, as The Well's code does
 *   crmse      |mean[grid] e| : error of the conserved total, root mean square over trajectories, then mean [channel,
 * time] max_error  largest |e| over grid and trajectories, then mean [channel, time] brmse      as rmse on the points
 * of the domain's faces alone frmse      |FFT(e)|/N by wave number (2D, 3D: shells of the positive octant, summed),
 * root mean square over trajectories, mean over a band of wave numbers (low: below 4; middle: 4 to 11; high: 12 and
 * more), then mean [channel, time]
 *
 * What may surprise, and is kept because figures are compared with published ones: in 3D brmse sums over channels
 * before its root; a band that the grid is too coarse for is NaN. One thing differs: where a target is zero everywhere
 * PDEBench's nrmse is NaN or infinite; here such a (trajectory, channel, time) is left out of the mean and counted. */
#ifndef UPS_TRAIN_EVALUATION_PDE_METRICS_H
#define UPS_TRAIN_EVALUATION_PDE_METRICS_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { UPS_FREQUENCY_LOW, UPS_FREQUENCY_MIDDLE, UPS_FREQUENCY_HIGH, UPS_FREQUENCY_BANDS };

typedef struct ups_pde_metrics_shape {
    int dims;        /* 1, 2 or 3 */
    int64_t grid[3]; /* points along each axis in use, in the order the strides name them */
    int64_t channels;
    int64_t times;    /* frames that are scored: leave the given initial frames out */
    double length[3]; /* of the domain along each axis: scales frmse; 0 means 1, PDEBench's default */
    bool scattered;   /* one axis of points that lie anywhere: brmse and frmse, which need a grid, are NaN */
} ups_pde_metrics_shape;

/* Where an element lies, in elements from the start of a trajectory. */
typedef struct ups_pde_metrics_strides {
    int64_t time, channel, grid[3];
} ups_pde_metrics_strides;

typedef struct ups_pde_metrics_values {
    double rmse, nrmse, vrmse, crmse, max_error, brmse;
    double frmse[UPS_FREQUENCY_BANDS];
    int64_t trajectories; /* that were added */
    int64_t zero_targets; /* (trajectory, channel, time)s left out of nrmse */
} ups_pde_metrics_values;

typedef struct ups_pde_metrics ups_pde_metrics;

/* Errors: UPS_ERR_ARGUMENT for a shape without points, UPS_ERR_MEMORY. */
ups_status ups_pde_metrics_create(const ups_pde_metrics_shape *shape, ups_pde_metrics **metrics, ups_error *error);
void ups_pde_metrics_destroy(ups_pde_metrics *metrics); /* NULL is fine */

/* Strides of contiguous trajectories: (time, grid…, channel) and (time, channel, grid…). */
ups_pde_metrics_strides ups_pde_metrics_channels_last(const ups_pde_metrics_shape *shape);
ups_pde_metrics_strides ups_pde_metrics_channels_first(const ups_pde_metrics_shape *shape);

/* Adds one trajectory. NaN or Inf in the prediction makes the metrics it touches NaN or Inf, as it should. `points`:
 * how many of a frame count, the first ones, where points are scattered; 0: all. Not thread-safe. */
void ups_pde_metrics_add(ups_pde_metrics *metrics, const float *prediction, const float *target,
                         const ups_pde_metrics_strides *strides, int64_t points);

/* The metrics of one channel (or -1: the mean over channels) over frames [time_begin, time_end), so that the first
 * step, the first ten and the whole rollout come from one pass. All NaN before the first trajectory. */
ups_pde_metrics_values ups_pde_metrics_read(const ups_pde_metrics *metrics, int64_t channel, int64_t time_begin,
                                            int64_t time_end);

#endif
