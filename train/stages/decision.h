/* The first half of `ups train`: what is to be done with which configuration, decided by reading alone. Only a fork's
 * directory is made here, as a whole. */
#ifndef UPS_TRAIN_STAGES_DECISION_H
#define UPS_TRAIN_STAGES_DECISION_H

#include "train/stages/train.h"

typedef struct ups_train_decision {
    const ups_train_request *request;
    ups_train_report *report;
    ups_run_config *given;           /* what the command says */
    ups_run_config *own;             /* the run's; NULL: there is no run, or it cannot be read and is given up */
    ups_run_config *config;          /* what is trained with: one of these, or one that was loaded */
    ups_run_progress progress;       /* of the run */
    ups_run_differences differences; /* of `given` from `own` */
    char *run_before;                /* config.yaml, when all this was decided; NULL: absent */
    bool resume, staged, fresh;      /* fresh: what is staged has to be seeded first */
    unsigned redo, go_on;            /* stages that are staged; of these, those that go on from their checkpoints */
} ups_train_decision;

/* `decision` comes with the request and the report. What it holds is the caller's to free, whatever the outcome:
 * ups_train_decision_free. UPS_ERR_ARGUMENT where another configuration is refused (train.h). */
ups_status ups_train_decide(ups_train_decision *decision, ups_error *error);
void ups_train_decision_free(ups_train_decision *decision);

/* RUN/next, with all of the run that stays, and without what an earlier one left of its cache in `next_cache`. */
ups_status ups_train_seed_next(const ups_train_decision *decision, const char *next, const char *next_cache,
                               ups_error *error);

/* The text of a run's config.yaml; NULL where there is none. Free with free(). */
char *ups_train_read_config(const char *output);

#endif
