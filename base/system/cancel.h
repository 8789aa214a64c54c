/* Clean Ctrl-C: SIGINT and SIGTERM set a flag that long work polls between items; a second SIGINT ends the process at
 * once. The work that notices finishes or drops its current item, publishes what is complete, and returns
 * UPS_ERR_CANCELLED. */
#ifndef UPS_BASE_SYSTEM_CANCEL_H
#define UPS_BASE_SYSTEM_CANCEL_H

#include <stdbool.h>

void ups_cancel_install(void);   /* installs the handlers; called once by the `ups` command */
bool ups_cancel_requested(void); /* async-signal-safe, cheap */
int ups_cancel_signal(void);     /* the first of the two that arrived; SIGINT where none did */
void ups_cancel_request(void);   /* what the signal does, for tests and for shutting down from another thread */
void ups_cancel_request_as(int signal_number); /* the same, for a signal that another process got */
/* Takes back what ups_cancel_request asked for, once the work has ended; a signal stays. */
void ups_cancel_withdraw(void);
void ups_cancel_reset(void); /* for tests */

#endif
