/* What cached latents are worth as fields: a trajectory's frames as the source has them, and as the run's autoencoder
 * reads them back from the cache; and what of the difference rounding to FP16 is to blame for. */
#ifndef UPS_TRAIN_EVALUATION_RECONSTRUCTION_H
#define UPS_TRAIN_EVALUATION_RECONSTRUCTION_H

#include "cache/store/group.h"
#include "train/session.h"

/* A run with its trained autoencoder, to decode caches with. */
typedef struct ups_reconstructor ups_reconstructor;

/* `config_path` names the run's configuration. A run without a trained autoencoder is refused. */
ups_status ups_reconstructor_open(const char *config_path, ups_reconstructor **reconstructor, ups_error *error);
void ups_reconstructor_close(ups_reconstructor *reconstructor); /* NULL is fine */

typedef struct ups_reconstructed_channel {
    const char *name;
    double deviation;          /* of the field over the frames looked at */
    double fp16_max, fp16_rms; /* decode(latents as cached) − decode(latents before rounding) */
    double nrmse;              /* of decode(latents as cached) against the field; NaN where the field is zero */
} ups_reconstructed_channel;

typedef struct ups_reconstruction {
    const ups_task *task;     /* borrowed from the reconstructor */
    int64_t sample;           /* in the cache */
    const char *name;         /* of the sample in its source; borrowed */
    const ups_points *points; /* where its points lie, of those that lie anywhere, in the order of fields; borrowed */
    int64_t frames;
    int64_t *frame;                     /* (frames): which ones, evenly spaced from the first on */
    const double *time;                 /* of all frames of the sample, by their numbers; borrowed */
    float *truth, *decoded;             /* (frames, points, channels), physical units */
    ups_reconstructed_channel *channel; /* (channels) */
    double latent_distance;             /* largest |cached latent − latent encoded now and rounded| */
} ups_reconstruction;

/* `latents` (times, tokens, dim) are those of the group's `sample`; at most `max_frames` frames, and fewer where
 * frames are large (64 MiB of fields). UPS_ERR_STALE when the group is not of this run's encoder; UPS_ERR_ARGUMENT when
 * the run has no such task. */
ups_status ups_reconstruct(ups_reconstructor *reconstructor, const ups_cache_group *group, int64_t sample,
                           const ups_f16 *latents, int64_t max_frames, ups_reconstruction *result, ups_error *error);
void ups_reconstruction_free(ups_reconstruction *reconstruction);

/* Axes of a picture of the group's task: as many as its grid has, of points that lie anywhere 2; 0 when the run does
 * not know it. */
int ups_reconstructor_dims(const ups_reconstructor *reconstructor, const ups_cache_group *group);

#endif
