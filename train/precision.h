/* Precision: what a run computes its matrix products in. `precision: auto` is bf16 where that is faster, f32 elsewhere.
 * It is decided once, when a run starts, and belongs to the run from then on: the run's config.yaml and its checkpoints
 * tell it, and a run goes on in what it began in, on whatever machine. */
#ifndef UPS_TRAIN_PRECISION_H
#define UPS_TRAIN_PRECISION_H

#include "train/config/config.h"

const char *ups_precision_name(ups_precision precision);             /* "auto", "f32", "bf16", "fp16" */
bool ups_precision_find(const char *name, ups_precision *precision); /* false: no such name */
ups_precision ups_precision_resolve(ups_precision precision);        /* `auto` on this machine; others unchanged */
ups_dtype ups_precision_dtype(ups_precision precision);              /* of a resolved one */
bool ups_precision_is_slow(
    ups_precision precision); /* slower here than what `auto` takes, of less precision than f32 */
void ups_precision_explain(ups_precision precision, char *text, size_t bytes); /* "f32 (…)": a resolved one, here */

/* What the run in config->output began in, as its config.yaml has it; UPS_PRECISION_AUTO where there is no run yet, or
 * where the file cannot be read, which a warning says if `precision: auto` asks for it. */
ups_status ups_precision_recorded(const ups_run_config *config, ups_precision *recorded, ups_error *error);

/* What the commands that use or plan a run compute in: as configured; with `auto` what the run began in, and before it
 * began what is faster here. */
ups_status ups_precision_of_run(const ups_run_config *config, ups_precision *precision, ups_error *error);

/* The same for a stage that goes on from the checkpoint in `checkpoint` (a directory): what the checkpoint tells
 * before what the run does. UPS_ERR_STALE where another one is configured. */
ups_status ups_precision_of_checkpoint(const char *checkpoint, ups_precision configured, ups_precision recorded,
                                       ups_precision *precision, ups_error *error);

#endif
