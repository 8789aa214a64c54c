/* Which trajectories files of rollouts hold, as the attribute `ups.samples` of each tells: the names of the data's
 * samples, one file's behind the other's. */
#ifndef UPS_TRAIN_EVALUATION_TOLD_SAMPLES_H
#define UPS_TRAIN_EVALUATION_TOLD_SAMPLES_H

#include "base/error.h"
#include <stdint.h>

typedef struct ups_told_samples {
    char **names; /* (count); owned */
    int64_t count;
} ups_told_samples;

/* Of files in that order; count 0 where one of them tells none. Errors: UPS_ERR_MEMORY. */
ups_status ups_told_samples_read(const char *const *files, int64_t count, ups_told_samples *told, ups_error *error);
void ups_told_samples_free(ups_told_samples *told);

/* The number of the only one of a name; −1: there is none, or several. */
int64_t ups_told_samples_find(const ups_told_samples *told, const char *name);

#endif
