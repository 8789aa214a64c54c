/* `ups train CONFIG --for 10m`: how many steps of the operator a time has room for. */
#ifndef UPS_TOOLS_COMMANDS_TRAIN_FOR_H
#define UPS_TOOLS_COMMANDS_TRAIN_FOR_H

#include "train/stages/train.h"

/* Does the stages before the operator, then trains it for some seconds in OUTPUT/.trial, which goes again, and finds
 * from that how many steps fit into what is left of `seconds`, counted from this call, with validations and
 * checkpoints. Losses that begin later than that are warned of. UPS_ERR_ARGUMENT: the configuration has no operator,
 * its run has begun it, or as ups_train, whose `report` this is; UPS_ERR_CONFIG: nothing is left. */
ups_status ups_train_fit_steps(const ups_train_request *request, double seconds, int64_t *steps,
                               ups_train_report *report, ups_error *error);

#endif
