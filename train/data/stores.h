/* Which samples of a stage stay in memory (pipeline/loader/residency.h), by the configuration's data.residency and
 * data.residency_memory. Latents that are encoded on the fly are always kept decoded, as many as fit: a draw that
 * finds its own costs nothing, one that does not costs an encoder's run. */
#ifndef UPS_TRAIN_DATA_STORES_H
#define UPS_TRAIN_DATA_STORES_H

#include "train/config/config.h"

/* What is chosen for samples that are read from files, and for those that are encoded on the fly, and what it takes
 * at most. */
typedef struct ups_residency_choice {
    ups_residency residency; /* of those read */
    uint64_t read, encoded;
} ups_residency_choice;
ups_residency_choice ups_residency_decide(const ups_run_config *config, ups_residency_need read,
                                          ups_residency_need encoded);

typedef struct ups_stores {
    ups_store **store; /* (count) */
    int count;
    const char *residency; /* what was chosen, for metrics: as the configuration names it, "encode" where any are */
} ups_stores;

/* A store for every entry of the lists (splits of a stage), which gets it as entry.store; the memory is divided in
 * proportion to what each needs. Says in the log what was chosen and why. With `stream` there are none. */
typedef struct ups_stores_list {
    ups_loader_task *entries;
    int count;
} ups_stores_list;
ups_status ups_stores_open(const ups_run_config *config, const char *stage, const ups_stores_list *lists,
                           int list_count, ups_dtype dtype, ups_stores *stores, ups_error *error);
void ups_stores_close(ups_stores *stores); /* after the loaders that use them */

#endif
