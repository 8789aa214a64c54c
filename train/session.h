/* What every command that works on a run begins with: the configuration loaded, the device opened, the tasks opened and
 * normalised. */
#ifndef UPS_TRAIN_SESSION_H
#define UPS_TRAIN_SESSION_H

#include "model/device.h"
#include "train/comm/comm.h"
#include "train/data/tasks.h"

typedef struct ups_session {
    ups_run_config *config;
    ups_device *device;
    ups_tasks *tasks; /* opened; normalised unless only a plan is wanted */
    ups_comm *comm;   /* the processes that train together; borrowed; NULL: this one alone */
} ups_session;

/* What is wrong with the configuration for all stages alike is found here, what is for one by ups_stages_check.
 * `normalise`: with the statistics of the run's trained autoencoder where there is one, else recalled or measured;
 * plans need none. On failure everything is released. */
ups_status ups_session_open(const char *config_path, const char *const *overrides, size_t override_count,
                            bool normalise, ups_session *session, ups_error *error);
/* The same for a plan: nothing is normalised. `card_memory` > 0: for an absent card of so many bytes, on a device that
 * only plans. */
ups_status ups_session_open_to_plan(const char *config_path, const char *const *overrides, size_t override_count,
                                    uint64_t card_memory, ups_session *session, ups_error *error);
/* As ups_session_open, with a configuration that is loaded. It becomes the session's unless this fails; who wants to
 * keep it takes it out before closing. */
ups_status ups_session_begin(ups_run_config *config, bool normalise, ups_session *session, ups_error *error);
/* The same later on: with the statistics that `model` tells (an autoencoder; NULL: none), else recalled or measured. */
ups_status ups_session_normalise(ups_session *session, const char *model, ups_error *error);
/* With those of the run's own autoencoder, unless it is among the stages that are to be trained (a mask). */
ups_status ups_session_normalise_as_trained(ups_session *session, unsigned training, ups_error *error);
/* The same in a process that follows another one, which has written down what it measured: nothing is removed. */
ups_status ups_session_normalise_as_rank_0(ups_session *session, unsigned training, ups_error *error);
/* What the session's models compute in: `precision: auto` is settled (train/precision.h), and bf16 that is slow here is
 * told of. For commands that plan or use a run; training settles it stage by stage. */
ups_status ups_session_settle_precision(ups_session *session, ups_error *error);
/* Steps of this stride from now on, in all tasks that have learnt it (tasks[].strides), or in `task` alone where it is
 * not NULL. The others keep theirs, and the log names them. Errors: UPS_ERR_ARGUMENT where none has. */
ups_status ups_session_use_stride(ups_session *session, const char *task, int64_t stride, ups_error *error);
/* Warns of tasks, or of `task` alone where it is not NULL, whose stride (--set tasks[0].stride=…) is none that their
 * run was trained with: for who uses the run's own model. */
void ups_session_warn_of_strides(const ups_session *session, const char *task);
void ups_session_close(ups_session *session);

#endif
