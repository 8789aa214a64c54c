/* All stages. A new one is a file beside this one, a line here, and its section in train/config. */
#include "train/stages/stage.h"

extern const ups_stage_class ups_stage_autoencoder, ups_stage_cache, ups_stage_operator;

const ups_stage_class *const ups_stages[UPS_STAGE_COUNT] = {
    [UPS_STAGE_AUTOENCODER] = &ups_stage_autoencoder,
    [UPS_STAGE_CACHE] = &ups_stage_cache,
    [UPS_STAGE_OPERATOR] = &ups_stage_operator,
};
