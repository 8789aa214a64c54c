/* The first half of `ups train`: what is to be done with which configuration, decided by reading alone. Only a fork's
 * directory is made here, as a whole. */
#ifndef UPS_TRAIN_STAGES_DECISION_H
#define UPS_TRAIN_STAGES_DECISION_H

#include "train/comm/comm.h"
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
    bool profile;     /* as ups_stage_request */
    const char *fork; /* the directory of a new run that starts from this one's weights; NULL: none */
    ups_comm *comm;   /* processes that train together, of which this is rank 0; borrowed; NULL: this one alone */
    bool afresh;      /* of a fork: stages that a change concerns take no weights along, and begin as in any new run */
} ups_train_request;

typedef struct ups_train_report {
    ups_run_config *config;      /* of the run; NULL where it did not come so far */
    ups_run_differences refused; /* why it is refused: values that differ and that results depend on */
    bool only_told;              /* a run's directory alone: nothing was done */
    ups_run_progress progress;   /* of the run, where only that is told */
    unsigned redone;             /* the same: stages that are being done again, and were stopped (a mask) */
} ups_train_report;

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
    bool took_cache_apart;           /* a fork's cache was made in a directory of its own, cache.directory */
    unsigned back;                   /* of go_on: stages that go back to before the decay of their learning rate */
    unsigned redo, go_on; /* stages that are staged, or that a fork does again; of these, those that go on from their
                             checkpoints */
} ups_train_decision;

/* `decision` comes with the request and the report. What it holds is the caller's to free, whatever the outcome:
 * ups_train_decision_free. UPS_ERR_ARGUMENT where another configuration is refused (train.h). */
ups_status ups_train_decide(ups_train_decision *decision, ups_error *error);
void ups_train_decision_free(ups_train_decision *decision);

/* Whether the data lie elsewhere now, and may be others. */
bool ups_train_moves_data(const ups_train_decision *decision);

/* RUN/next, with all of the run that stays. */
ups_status ups_train_seed_next(const ups_train_decision *decision, const char *next, ups_error *error);

/* The text of a run's config.yaml; NULL where there is none. Free with free(). */
char *ups_train_read_config(const char *output);

#endif
