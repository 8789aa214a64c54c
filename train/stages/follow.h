/* Stages that several processes run together: rank 0 decides what is run, as a process by itself does, and the others
 * follow.
 *
 * Rank 0 tells the configuration as it has it, with the stage. Nobody else writes into the run's directory, but
 * for the cache, which all build (cache/build/leases.h). Every process reads the run and its data by the same paths. */
#ifndef UPS_TRAIN_STAGES_FOLLOW_H
#define UPS_TRAIN_STAGES_FOLLOW_H

#include "train/stages/stage.h"

/* Whether so many processes can share the steps of a stage: UPS_ERR_CONFIG says what to set. */
ups_status ups_stage_check_ranks(const ups_run_config *config, ups_stage stage, int ranks, ups_error *error);

/* Rank 0, before it runs a stage: what the others are to run. `training`: the stages that this command trains (a mask).
 */
ups_status ups_stages_lead(const ups_session *session, ups_stage stage, bool resume, unsigned training,
                           ups_error *error);
/* All ranks, once it has ended on this one in so: what it made may be used, moved and replaced. A stage whose processes
 * work apart is stopped on all where one was stopped: UPS_ERR_CANCELLED, which rank 0 tells of. */
ups_status ups_stages_end_stage(ups_comm *comm, ups_stage stage, ups_status status, ups_error *error);
/* Rank 0, after the last one. */
ups_status ups_stages_end(ups_comm *comm, ups_error *error);

/* The other ranks: what rank 0 tells, until it ends. UPS_ERR_CANCELLED where all were stopped. */
ups_status ups_stages_follow(ups_comm *comm, ups_error *error);

#endif
