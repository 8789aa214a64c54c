/* `ups train CONFIG --plan`: what memory the stages take, found out without running them; of a process by itself, or of
 * each of those that a launcher started, which divide a step and the machine. */
#ifndef UPS_TOOLS_COMMANDS_PLAN_H
#define UPS_TOOLS_COMMANDS_PLAN_H

#include "tools/command.h"
#include "train/stages/decision.h"

/* Returns the exit code. `card_gib` > 0: for an absent card of so much memory. With --json: {"operator": {"batch_size",
 * "activations", …, "total"}, "cache": {"latents", "free"}, …}, all in bytes; and "ranks" where there are several. */
int ups_command_plan(const ups_arguments *arguments, const ups_train_request *request, double card_gib);

#endif
