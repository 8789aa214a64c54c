#include "base/system/cancel.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* Lock-free atomics may be touched by a signal handler (C17 7.14.1.1). */
static atomic_bool requested;
static atomic_int asked;        /* the signal that came first; 0: none */
static atomic_bool interrupted; /* by SIGINT: the next one ends the process */

static void handle(int signal_number) {
    ups_cancel_request_as(signal_number);
    if (signal_number != SIGINT) return;
    if (!atomic_exchange(&interrupted, true)) return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT); /* delivered when this handler returns: the shell sees a death by SIGINT */
}

void ups_cancel_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART; /* libraries such as HDF5 do not expect EINTR */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool ups_cancel_requested(void) {
    return atomic_load_explicit(&requested, memory_order_relaxed);
}

int ups_cancel_signal(void) {
    int first = atomic_load(&asked);
    return first ? first : SIGINT;
}

void ups_cancel_request(void) {
    atomic_store(&requested, true);
}

void ups_cancel_request_as(int signal_number) {
    atomic_compare_exchange_strong(&asked, &(int){0}, signal_number);
    atomic_store(&requested, true);
}

void ups_cancel_withdraw(void) {
    atomic_store(&requested, false);
    if (atomic_load(&asked)) atomic_store(&requested, true);
}

void ups_cancel_reset(void) {
    atomic_store(&requested, false);
    atomic_store(&interrupted, false);
    atomic_store(&asked, 0);
}
