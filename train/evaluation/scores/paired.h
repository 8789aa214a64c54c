/* Two evaluations held against each other, trajectory by trajectory: whole-rollout nRMSE of A less that of B, its mean,
 * and how sure that is, by the bootstrap over trajectories (Efron and Tibshirani, An Introduction to the Bootstrap,
 * 1993, chapter 13): trajectories are drawn with replacement as often as there are, a pair at a time, and the mean
 * difference taken; the percentiles of many such means are the interval. Trajectories are told apart by the hash of
 * their truth, so that neither their order nor the names of files matter.
 *
 * Over all tasks: the mean of the tasks' mean differences, each task drawn within itself. The numbers drawn depend on
 * the task's name and its number of trajectories alone: the result is the same at every run, and that of (B, A) is that
 * of (A, B) mirrored. */
#ifndef UPS_TRAIN_EVALUATION_PAIRED_H
#define UPS_TRAIN_EVALUATION_PAIRED_H

#include "base/error.h"
#include "base/json.h"
#include <stdint.h>

enum { UPS_PAIRED_RESAMPLES = 10000 };
#define UPS_PAIRED_CONFIDENCE 0.95

typedef struct ups_paired_result {
    int64_t trajectories; /* on which both errors are finite: those below are of them. Of all: the sum of tasks' */
    double a, b;          /* means */
    double difference;    /* of A less B: negative where A is better */
    double low, high;     /* of its interval; NaN below two trajectories */
    double probability_a; /* share of resamples in which A is better, ties half; NaN below two trajectories */
    int64_t failed_a, failed_b; /* trajectories on which this one alone has no finite error: it blew up */
    int64_t undefined;          /* on which neither has: truth of zeros, or both blew up */
} ups_paired_result;

typedef struct ups_paired_task {
    char *name;
    ups_paired_result result;
} ups_paired_task;

typedef struct ups_paired {
    ups_paired_task *task; /* those that both have, in A's order */
    int count;
    ups_paired_result all;
    char **only_a, **only_b; /* names of tasks that one has alone */
    int only_a_count, only_b_count;
} ups_paired;

/* Of two documents as document.h has them; `where_a` and `where_b` are for messages. Errors: UPS_ERR_FORMAT where one
 * is no evaluation, or has no errors of trajectories; UPS_ERR_ARGUMENT where they have no task in common or their test
 * trajectories differ; UPS_ERR_NUMERIC where no trajectory of a task has finite errors of both; UPS_ERR_MEMORY. On
 * failure there is nothing to free. */
ups_status ups_paired_compare(const json_t *a, const char *where_a, const json_t *b, const char *where_b,
                              ups_paired *paired, ups_error *error);
void ups_paired_free(ups_paired *paired);

#endif
