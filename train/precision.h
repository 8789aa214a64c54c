/* Precision: what a run computes its matrix products in. `precision: auto` is bf16 where that is faster (on a card, and
 * on some processors), f32 elsewhere. tf32 is f32, but that a card may round the operands of products to TF32's ten
 * bits; a processor computes it as f32. fp8 is bf16, but that a card may round the operands of hidden layers' products
 * to eight bits in training; a processor computes it as bf16. It is decided once, when a run starts, and belongs to the
 * run from then on: the run's config.yaml and its checkpoints tell it, and a run goes on in what it began in, on
 * whatever machine. */
#ifndef UPS_TRAIN_PRECISION_H
#define UPS_TRAIN_PRECISION_H

#include "train/config/config.h"

const char *ups_precision_name(ups_precision precision);             /* "auto", "f32", "tf32", "bf16", "fp16", "fp8" */
bool ups_precision_find(const char *name, ups_precision *precision); /* false: no such name */
ups_dtype ups_precision_dtype(ups_precision precision);              /* of a resolved one, as the next */
bool ups_precision_allows_tf32(ups_precision precision);
bool ups_precision_allows_fp8(ups_precision precision);

/* The following are of this machine and `device`, a configuration's device.name. */
ups_precision ups_precision_resolve(ups_precision precision, const char *device); /* `auto`; others are unchanged */
/* Slower than what `auto` takes, and of less precision than f32. */
bool ups_precision_is_slow(ups_precision precision, const char *device);
/* "f32 (…)", of a resolved one. */
void ups_precision_explain(ups_precision precision, const char *device, char *text, size_t bytes);

#endif
