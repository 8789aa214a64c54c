/* A sweep: one configuration trained with each combination of some keys' values, one run after the other, each in a
 * directory of its own below `output` (OUTPUT/learning_rate=0.001). Each is a run like any other, and owns its
 * configuration.
 *
 * Stages on which no swept value has an influence are trained once: a run takes finished ones along from an earlier run
 * of the sweep, or from one that lies in `output` itself, with the bits that it would have trained. */
#ifndef UPS_TRAIN_STAGES_SWEEP_H
#define UPS_TRAIN_STAGES_SWEEP_H

#include "train/run/own.h"
#include <stddef.h>

typedef struct ups_sweep_request {
    const char *operand; /* a configuration, or the directory of a run */
    const char *const *overrides;
    size_t override_count;
    const char *const *keys; /* "KEY=VALUE,VALUE,…": the values of one key each; commas within [], {} and quotes stay */
    size_t key_count;
    bool resume; /* runs that were stopped go on */
} ups_sweep_request;

typedef enum ups_sweep_outcome { UPS_SWEEP_LEFT, UPS_SWEEP_FINISHED, UPS_SWEEP_FAILED } ups_sweep_outcome;

typedef struct ups_sweep_run {
    const char **values;    /* of each key, as written */
    const char **overrides; /* of the command, then KEY=VALUE each */
    size_t override_count;
    char *name, *directory; /* "learning_rate=0.001"; OUTPUT/name */
    ups_run_config *config; /* by ups_sweep_prepare */
    ups_sweep_outcome outcome;
    double score, best; /* of the last training stage: of its last validation, and of the best; NaN without one */
    double seconds;     /* of training, all stages, those that were taken along too */
    ups_error error;    /* why it failed */
} ups_sweep_run;

typedef struct ups_sweep {
    const ups_sweep_request *request;
    char **keys;
    size_t key_count;
    ups_sweep_run *runs; /* the last key changes fastest */
    size_t run_count;
    ups_run_differences refused; /* why a directory's run is refused: see ups_sweep_prepare */
} ups_sweep;

#define UPS_SWEEP_MOST_RUNS 1000

/* The combinations; no configuration is read. `request` is borrowed as long as the sweep lives, which is to be freed
 * whatever the outcome. UPS_ERR_ARGUMENT: a key without values, given twice, or too many runs. */
ups_status ups_sweep_begin(const ups_sweep_request *request, ups_sweep *sweep, ups_error *error);

/* Loads every run's configuration, holds it against its data, and looks at what lies in its directory; writes nothing.
 * UPS_ERR_CONFIG: a wrong value. UPS_ERR_ARGUMENT: two runs would be the same; a directory holds a run of another
 * configuration (sweep->refused), or, without `resume`, one that was stopped. */
ups_status ups_sweep_prepare(ups_sweep *sweep, ups_error *error);

/* Trains what is left. A run that fails for its numbers or its memory is noted, and the next one begins; any other
 * error, UPS_ERR_CANCELLED among them, ends the sweep. */
ups_status ups_sweep_train(ups_sweep *sweep, ups_error *error);

/* Why validations of the runs that have finished are of different kinds, so that none of them is the lowest; "": they
 * are not. */
#define UPS_SWEEP_REASON_BYTES 300
ups_status ups_sweep_compare(const ups_sweep *sweep, char reason[UPS_SWEEP_REASON_BYTES], ups_error *error);

void ups_sweep_free(ups_sweep *sweep);

#endif
