/* The run's latent cache, from the side of training: where it lies, what must have made it, and its groups opened as
 * sources. */
#ifndef UPS_TRAIN_DATA_LATENTS_H
#define UPS_TRAIN_DATA_LATENTS_H

#include "cache/store/fingerprint.h"
#include "train/data/tasks.h"

/* cache.max_abs_error as it was written. */
double ups_latents_error_bound(const ups_run_config *config);

/* The encoder as a cache's documents tell of it: with the length of segments, without which numbers of samples do not
 * say which frames they are. */
json_t *ups_latents_describe_encoder(const ups_run_config *config, const ups_task *task);

/* What a cache of this task and split must have been made by: weights of output/autoencoder.safetensors, encoder,
 * normalisation, source. */
ups_status ups_latents_fingerprint(const ups_run_config *config, const ups_task *task, ups_split split,
                                   ups_fingerprint *fingerprint, ups_error *error);

/* Opens <cache>/<task>/<split>, refusing one that something else made. Absent groups are UPS_ERR_IO with what to run.
 */
ups_status ups_latents_open(const ups_run_config *config, const ups_task *task, ups_split split, ups_source **source,
                            ups_error *error);

/* Whether the operator's latents of this group are encoded on the fly instead (encoding_source.h): because the
 * configuration wants that, or because it leaves the choice and the cache is absent or not complete. One that is
 * complete and stale is never passed over in silence: opening it says what differs. */
bool ups_latents_encode(const ups_run_config *config, const ups_task *task, ups_split split);

/* What loading a cached trajectory of this task takes at most: known before there is a cache. */
ups_source_limits ups_latents_limits(const ups_run_config *config, const ups_task *task);

/* XXH3 of a whole file, as 32 hex digits. */
ups_status ups_file_hash(const char *path, char hex[33], ups_error *error);
/* The same of output/autoencoder.safetensors; UPS_ERR_IO, with what to run, when there is none. */
ups_status ups_run_autoencoder_hash(const ups_run_config *config, char hex[33], ups_error *error);

#endif
