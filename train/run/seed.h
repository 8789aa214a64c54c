/* A run that begins with parts of another one: RUN/next, for stages that are done again, and the run that --fork makes.
 */
#ifndef UPS_TRAIN_RUN_SEED_H
#define UPS_TRAIN_RUN_SEED_H

#include "train/config/config.h"
#include "train/state.h"

typedef struct ups_run_seed {
    const ups_run_config *from;   /* its output is where it lies */
    const ups_run_config *config; /* of the new run */
    const char *directory;        /* of the new run; it appears as a whole */
    const char *output;           /* what its config.yaml says: DIRECTORY, or, of RUN/next, RUN */
    const char *cache_directory;  /* the same; "": output/cache */
    ups_run_state state;          /* of the stages that it has finished: their models and checkpoints come along */
    unsigned checkpoints;         /* stages whose checkpoints come along (a mask): they are gone on with */
    unsigned back;                /* of these, stages that go back to before their decay (ups_checkpoint_go_back) */
    unsigned weights;             /* stages that begin with the weights of `from`, in initial/ (a mask) */
    unsigned given; /* stages whose own initial/ comes along, where there is one and no weights (a mask) */
    bool cache;     /* the cache comes along, of the tasks of `config`; a cache_directory must not be there then */
    unsigned redo;  /* of RUN/next: what it does again */
} ups_run_seed;

/* Files are shared by hard links where the file system permits it: what is published is never written again. On failure
 * nothing is there. UPS_ERR_ARGUMENT when the directory exists. */
ups_status ups_run_seed_make(const ups_run_seed *seed, ups_error *error);

#endif
