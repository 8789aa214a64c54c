#include "tools/commands/ranks.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "train/stages/follow.h"
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

bool ups_ranks_follows(void) {
    return ups_launch_find().rank > 0;
}

/* ---- who speaks -------------------------------------------------------------------------------------------------- */

static atomic_flag spoken = ATOMIC_FLAG_INIT;

void ups_ranks_speak(void) {
    while (atomic_flag_test_and_set(&spoken)) pause();
}

/* Another rank fails. Its own log says so, which several may do; a script reads standard output. A signal that all were
 * told of is no failure of one of them: who was stopped alone, before the first step of a stage, leaves it to this. */
static bool tell_failure(void *context, int rank, const ups_error *error) {
    const ups_arguments *arguments = context;
    ups_error told;
    if (atomic_flag_test_and_set(&spoken)) return false;
    ups_fail(&told, error->code, "rank %d: %s", rank, error->message);
    if (error->code == UPS_ERR_CANCELLED)
        ups_command_fail(arguments, &told);
    else if (arguments->json)
        ups_command_print_error(&told);
    fflush(stdout);
    return true;
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* Most often nobody finds MPI. Rank 0 says so, and its end ends the others before they have waited. */
static int fail_without_others(const ups_arguments *arguments, const ups_error *error) {
    enum { PATIENCE = 20 }; /* tenths of a second */
    for (int i = 0; ups_ranks_follows() && i < PATIENCE; i++) {
        if (ups_cancel_requested()) return UPS_EXIT_FAILURE;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    return ups_command_fail(arguments, error);
}

/* Those that follow wait to be told what is next. */
static int end_leading(ups_comm *comm, int exit_code) {
    ups_error error;
    if (exit_code != UPS_EXIT_OK && !ups_comm_ended_together(comm)) ups_comm_fail(comm, exit_code, NULL);
    if (ups_stages_end(comm, &error) != UPS_OK) exit_code = UPS_EXIT_FAILURE;
    ups_comm_close(comm);
    return exit_code;
}

static int follow(ups_comm *comm) {
    ups_error error;
    ups_progress_enable(false);
    const ups_status status = ups_stages_follow(comm, &error);
    const int exit_code = status == UPS_OK              ? UPS_EXIT_OK
                          : status == UPS_ERR_CANCELLED ? UPS_EXIT_SIGNAL + ups_cancel_signal()
                                                        : UPS_EXIT_FAILURE;
    if (status != UPS_OK && !ups_comm_ended_together(comm)) {
        if (status != UPS_ERR_CANCELLED) ups_log(UPS_LOG_ERROR, "%s", error.message);
        ups_comm_fail(comm, exit_code, &error);
    }
    ups_comm_close(comm);
    return exit_code;
}

int ups_ranks_run(const ups_arguments *arguments, ups_ranks_lead *lead, void *context) {
    ups_comm *comm;
    ups_error error;
    if (ups_comm_open(&comm, &error) != UPS_OK) return fail_without_others(arguments, &error);
    if (!comm) return lead(context, NULL);
    if (ups_comm_rank(comm) > 0) return follow(comm);
    ups_comm_on_failure(comm, tell_failure, (void *)arguments);
    return end_leading(comm, lead(context, comm));
}
