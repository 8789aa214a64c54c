/* What a latent trajectory looks like: tokens × dim at a few times, and one line of it over all times. */
#ifndef UPS_TOOLS_REPORT_LATENT_PICTURE_H
#define UPS_TOOLS_REPORT_LATENT_PICTURE_H

#include "cache/codec/chunk.h"

/* `latents` (times, tokens, dim), `time` (times). Publishes a PNG: up to four heat maps on one scale, tokens downward
 * and dim to the right, and below them the channels of the middle token over time. Errors as in
 * tools/report/pictures.h. */
ups_status ups_latent_picture(const char *path, const char *title, ups_chunk_shape shape, const ups_f16 *latents,
                              const double *time, ups_error *error);

#endif
