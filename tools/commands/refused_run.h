/* A run that is refused because its configuration is another one: the table of what differs. */
#ifndef UPS_TOOLS_COMMANDS_REFUSED_RUN_H
#define UPS_TOOLS_COMMANDS_REFUSED_RUN_H

#include "tools/command.h"
#include "train/run/own.h"

/* As ups_command_fail, with the table before the sentence. With --json the error has `differences`, a list of objects
 * with key, run and now. */
int ups_command_fail_refused(const ups_arguments *arguments, const ups_run_differences *refused,
                             const ups_error *error);

#endif
