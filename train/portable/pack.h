/* One file of a trained model: operator and autoencoder with what they tell of themselves (train/portable/described.h,
 * origin.h), for use where neither the run nor its data are. */
#ifndef UPS_TRAIN_PORTABLE_PACK_H
#define UPS_TRAIN_PORTABLE_PACK_H

#include "base/json.h"
#include "train/evaluation/surrogate.h"

typedef struct ups_packed {
    int64_t tensors, parameters;
    uint64_t bytes; /* of the file */
} ups_packed;

/* Writes `path` from two models, of which the average of the weights is taken where there is one. Both were held
 * against each other (ups_surrogate_open). `told` is what ups_described_tell says, or NULL: the operator's file tells
 * it, or that in `teller`. Errors: UPS_ERR_IO, UPS_ERR_FORMAT, UPS_ERR_MEMORY. */
ups_status ups_pack(const ups_run_config *config, const ups_surrogate_files *files, const json_t *told,
                    const char *teller, const char *path, ups_packed *packed, ups_error *error);

#endif
