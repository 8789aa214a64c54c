/* The sampler: a pure function of (seed, phases, position) that says which windows the run sees, in which order.
 *
 * A draw is (task, sample, `windows_per_draw` start frames); position p of the whole run is draw p. Within a task the
 * order is a keyed permutation, evaluated in O(1) time and memory by a cycle-walking Feistel network, a new one each
 * epoch of that task; across tasks a deterministic low-discrepancy interleave of the wanted proportions. The order is
 * global: rank r of R takes its slice of every global batch, so it does not depend on ranks or threads, and resuming
 * needs one integer. Works for 10^12 samples as for 10.
 *
 * Proportions may change as the run goes on, at positions that are settled before anyone asks for them: the run falls
 * into phases, each with an interleave of its own that begins at its first draw. Every task goes on in its permutation
 * where the phase before left it. Who knows the list of (position, shares) knows the whole order. */
#ifndef UPS_PIPELINE_SAMPLING_SAMPLER_H
#define UPS_PIPELINE_SAMPLING_SAMPLER_H

#include "base/error.h"
#include <stdint.h>

typedef enum ups_sampler_strategy {
    UPS_SAMPLER_PROPORTIONAL, /* by number of samples: every sample exactly once an epoch */
    UPS_SAMPLER_BALANCED, /* every task its share (equal, or by weight); at every prefix within one draw of the target
                           */
    UPS_SAMPLER_TEMPERATURE, /* shares in proportion to samples^(1/temperature), times weight: 1 is proportional, ∞
                                balanced */
    UPS_SAMPLER_DIFFICULTY,  /* begins as balanced; who trains adds phases as it learns what is difficult */
} ups_sampler_strategy;

typedef struct ups_sampler_task {
    int64_t samples; /* trajectories in this task's split, > 0 */
    int64_t starts;  /* admissible start frames in each, > 0: times − (window − 1)·stride */
    double weight;   /* relative share, but for the proportional strategy; 0 means 1 */
} ups_sampler_task;

typedef struct ups_sampler_options {
    uint64_t seed;
    ups_sampler_strategy strategy;
    double temperature;       /* > 0; 0 means 1 */
    int64_t windows_per_draw; /* start frames taken from one decoded trajectory (`pairs_per_trajectory`), ≥ 1 */
    int64_t block; /* this many consecutive draws come from one task: 1 mixes tasks within a batch; the draws of a
                      global batch make every batch of one task (raw fields of different shapes) */
} ups_sampler_options;

#define UPS_SAMPLER_MAX_TASKS 256

/* Most that the shares of a phase may sum to. */
#define UPS_SAMPLER_SHARES 4096

/* From its first draw on, task k gets shares[k] of every Σ shares draws. */
typedef struct ups_sampler_phase {
    int64_t position;      /* of the first draw; a multiple of the sampler's block */
    const int32_t *shares; /* (tasks), ≥ 0; a task with 0 is not drawn */
} ups_sampler_phase;

typedef struct ups_sampler ups_sampler;

typedef struct ups_draw {
    int32_t task;
    int64_t sample; /* within the task's split */
    int64_t epoch;  /* of this task */
} ups_draw;

ups_status ups_sampler_create(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t task_count,
                              ups_sampler **sampler, ups_error *error);
void ups_sampler_destroy(ups_sampler *sampler);

/* What the strategy gives each task before there is any phase: (task_count) relative shares, > 0. */
void ups_sampler_weights(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t task_count,
                         double *weights);
/* The nearest shares that sum to UPS_SAMPLER_SHARES, by largest remainders; a weight above 0 gets 1 at least. Weights
 * (task_count) ≥ 0, not all 0. */
void ups_sampler_shares(const double *weights, int32_t task_count, int32_t *shares);

/* Adds a phase after all that are there; its shares are copied. Positions from it on must not have been asked for yet:
 * UPS_ERR_ARGUMENT, since two readers would see two orders. One thread may add while others draw. */
ups_status ups_sampler_add_phase(ups_sampler *sampler, const ups_sampler_phase *phase, ups_error *error);
/* Releases what only positions before this one need; none of those will be asked for again. By the thread that adds. */
void ups_sampler_forget(ups_sampler *sampler, int64_t position);

ups_draw ups_sampler_draw(const ups_sampler *sampler, int64_t position);
/* The start frame of window w in [0, windows_per_draw) of that draw; distinct within a draw as far as `starts` allows.
 */
int64_t ups_sampler_start(const ups_sampler *sampler, int64_t position, int64_t w);

/* Position of the d-th draw of rank `rank` of `ranks` in global batch `batch` of `draws` draws (a multiple of `ranks`).
 */
int64_t ups_sampler_position(int64_t batch, int64_t draws, int32_t rank, int32_t ranks, int64_t d);

#endif
