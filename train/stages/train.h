/* What `ups train` does where a run may lie already: which configuration counts, what is done, and where.
 *
 * A run owns its configuration (train/run/own.h). A command that gives another one is refused, unless no result that is
 * there depends on what differs. A run that is stopped goes on with its own. Stages that are done again (extend,
 * restart) are made beside the run and take its place once they have finished (train/run/replace.h). */
#ifndef UPS_TRAIN_STAGES_TRAIN_H
#define UPS_TRAIN_STAGES_TRAIN_H

#include "train/run/own.h"
#include <stddef.h>

typedef struct ups_train_request {
    const char *operand; /* a configuration, or the directory of a run */
    const char *const *overrides;
    size_t override_count;
    int stage;        /* this one alone; −1: all of the configuration's */
    bool resume;      /* what was stopped goes on, with the run's own configuration */
    bool restart;     /* begins anew: finished stages, too */
    bool extend;      /* stages get the steps that are given now */
    const char *fork; /* the directory of a new run that starts from this one's weights; NULL: none */
} ups_train_request;

typedef struct ups_train_report {
    ups_run_config *config;      /* of the run; NULL where it did not come so far */
    ups_run_differences refused; /* why it is refused: values that differ and that results depend on */
    bool only_told;              /* a run's directory alone: nothing was done */
    ups_run_progress progress;   /* of the run, where only that is told */
    unsigned redone;             /* the same: stages that are being done again, and were stopped (a mask) */
} ups_train_report;

/* UPS_ERR_ARGUMENT with `report->refused` where another configuration is given; then no file of the run has changed. To
 * be freed, whatever the outcome. */
ups_status ups_train(const ups_train_request *request, ups_train_report *report, ups_error *error);
void ups_train_report_free(ups_train_report *report);

#endif
