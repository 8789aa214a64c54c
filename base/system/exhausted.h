/* Where memory for a few bytes of metadata is missing no caller could do better than end. A library ends by abort(), so
 * that its host may look into it; a command ends with a sentence and an exit code, as for any failure. */
#ifndef UPS_BASE_SYSTEM_EXHAUSTED_H
#define UPS_BASE_SYSTEM_EXHAUSTED_H

#include <stddef.h>

/* Does not return. `what` could not be had, of `bytes` bytes where that is not 0. */
__attribute__((noreturn)) void ups_out_of_memory(const char *what, size_t bytes);

/* Lets the process end with this exit code, without the clean-up of exit(), instead of by abort(). */
void ups_exit_when_out_of_memory(int exit_code);

#endif
