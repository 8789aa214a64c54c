/* `ups train CONFIG --sweep KEY=VALUE,VALUE`: what train/stages/sweep.h does, and its table. */
#ifndef UPS_TOOLS_COMMANDS_SWEEP_H
#define UPS_TOOLS_COMMANDS_SWEEP_H

#include "tools/command.h"
#include "train/stages/sweep.h"

/* Returns the exit code. With --json: a list of {"values", "validation", "best", "seconds", "directory", "state"}, and
 * "error" where a run failed. */
int ups_command_sweep(const ups_arguments *arguments, const ups_sweep_request *request);

#endif
