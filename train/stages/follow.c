#include "train/stages/follow.h"

#include "base/files.h"
#include "base/system/cancel.h"
#include "train/config/load.h"
#include "train/data/normalisation.h"
#include "train/data/task_sampling.h"
#include "train/state.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What rank 0 tells; the configuration follows, in so many bytes. */
typedef struct order {
    bool ends;
    int32_t stage;
    bool resume;
    unsigned training;
    int64_t config_bytes;
} order;

ups_status ups_stage_check_ranks(const ups_run_config *config, ups_stage stage, int ranks, ups_error *error) {
    const ups_training_config *training = ups_run_training(config, stage);
    const char *name = ups_stage_name(stage);
    if (!training || training->steps == 0) return UPS_OK;
    const long long micro_batches = training->accumulation;
    if (micro_batches % ranks)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: %d processes cannot share a step of %lld micro-batch%s; set %s.accumulation to a multiple "
                        "of %d, or start another number of processes",
                        name, ranks, micro_batches, micro_batches == 1 ? "" : "es", name, ranks);
    if (ranks > UPS_SAMPLING_MOST_RANKS && ups_task_sampling_changes(config))
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: tasks' shares change as training goes on (data.sampling, tasks[].from), which at most %d "
                        "processes can follow, and these are %d",
                        name, UPS_SAMPLING_MOST_RANKS, ranks);
    return UPS_OK;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

static ups_status print_config(const ups_run_config *config, char **text, ups_error *error) {
    ups_run_config told = *config;
    told.output = ups_path_absolute(config->output);
    told.cache.directory = ups_path_absolute(config->cache.directory);
    ups_status status = told.output && told.cache.directory ? ups_config_print(&ups_run_schema, &told, text, error)
                                                            : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(told.output);
    free(told.cache.directory);
    return status;
}

ups_status ups_stages_lead(const ups_session *session, ups_stage stage, bool resume, unsigned training,
                           ups_error *error) {
    if (!session->comm) return UPS_OK;
    char *text = NULL;
    ups_comm_end_together(session->comm, false);
    UPS_TRY(print_config(session->config, &text, error));
    order told = {
        .stage = (int32_t)stage, .resume = resume, .training = training, .config_bytes = (int64_t)strlen(text)};
    ups_status status = ups_comm_broadcast(session->comm, &told, sizeof told, error);
    if (status == UPS_OK) status = ups_comm_broadcast(session->comm, text, told.config_bytes, error);
    free(text);
    return status;
}

ups_status ups_stages_end_stage(ups_comm *comm, ups_stage stage, ups_status status, ups_error *error) {
    const bool stopped = status == UPS_ERR_CANCELLED && ups_stages[stage]->apart;
    if (!comm || (status != UPS_OK && !stopped)) return status;
    const int ranks = ups_comm_size(comm), own = stopped ? ups_cancel_signal() : 0;
    int *signals = calloc((size_t)ranks, sizeof *signals), by = 0;
    if (!signals) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const ups_status met = ups_comm_gather(comm, &own, signals, sizeof own, error);
    for (int rank = 0; rank < ranks && by == 0; rank++) by = signals[rank];
    free(signals);
    UPS_TRY(met);
    ups_comm_end_together(comm, true); /* what is next is told */
    if (by) ups_cancel_request_as(by);
    if (stopped || !by) return status;
    return ups_fail(error, UPS_ERR_CANCELLED,
                    "%s: stopped while other processes of this training were at work on it; the same command goes on "
                    "from there",
                    ups_stage_name(stage));
}

ups_status ups_stages_end(ups_comm *comm, ups_error *error) {
    order told = {.ends = true};
    return ups_comm_broadcast(comm, &told, sizeof told, error);
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static ups_status load_config(const char *text, int64_t bytes, ups_run_config **config, ups_error *error) {
    char path[PATH_MAX];
    int file = memfd_create("configuration", MFD_CLOEXEC);
    if (file < 0 || write(file, text, (size_t)bytes) != (ssize_t)bytes) {
        if (file >= 0) close(file);
        return ups_fail(error, UPS_ERR_IO, "the configuration that rank 0 told cannot be kept in memory");
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ups_status status = ups_run_config_load_owned(path, config, error);
    close(file);
    return status;
}

/* As the session of rank 0, which has written down what it measured. */
static ups_status open_session(ups_comm *comm, ups_run_config *config, unsigned training, ups_session *session,
                               ups_error *error) {
    ups_status status = ups_session_begin(config, false, session, error);
    if (status != UPS_OK) {
        ups_run_config_free(config);
        return status;
    }
    session->comm = comm;
    return ups_session_normalise_as_rank_0(session, training, error);
}

static ups_status carry_out(ups_comm *comm, const order *told, ups_run_config *config, ups_error *error) {
    ups_session session = {0};
    ups_comm_end_together(comm, false);
    ups_status status = open_session(comm, config, told->training, &session, error);
    ups_stage_request request = {.session = &session, .resume = told->resume};
    if (status == UPS_OK) status = ups_stages[told->stage]->run(&request, error);
    ups_session_close(&session);
    return ups_stages_end_stage(comm, (ups_stage)told->stage, status, error);
}

ups_status ups_stages_follow(ups_comm *comm, ups_error *error) {
    for (ups_status last = UPS_OK;;) {
        order told;
        UPS_TRY(ups_comm_broadcast(comm, &told, sizeof told, error));
        if (told.ends) return last;
        char *text = calloc(1, (size_t)told.config_bytes + 1);
        if (!text) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        ups_run_config *config = NULL;
        ups_status status = ups_comm_broadcast(comm, text, told.config_bytes, error);
        if (status == UPS_OK) status = load_config(text, told.config_bytes, &config, error);
        free(text);
        if (status == UPS_OK) status = carry_out(comm, &told, config, error);
        if (status != UPS_OK && !ups_comm_ended_together(comm)) return status;
        last = status;
    }
}
