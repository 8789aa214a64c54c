/* What `ups train` does where a run may lie already: which configuration counts, what is done, and where.
 *
 * A run owns its configuration (train/run/own.h). A command that gives another one is refused, unless no result that is
 * there depends on what differs. A run that is stopped goes on with its own. Stages that are done again (extend,
 * restart) are made beside the run and take its place once they have finished (train/run/replace.h). */
#ifndef UPS_TRAIN_STAGES_TRAIN_H
#define UPS_TRAIN_STAGES_TRAIN_H

#include "train/stages/decision.h"

/* UPS_ERR_ARGUMENT with `report->refused` where another configuration is given; then no file of the run has changed. To
 * be freed, whatever the outcome. */
ups_status ups_train(const ups_train_request *request, ups_train_report *report, ups_error *error);
void ups_train_report_free(ups_train_report *report);

#endif
