/* Grids of which every n-th point is taken: ups_layout_options.thin. */
#ifndef UPS_PIPELINE_LAYOUTS_THIN_H
#define UPS_PIPELINE_LAYOUTS_THIN_H

#include "pipeline/layouts/source.h"

/* Takes every n-th point of the members from `first` on. UPS_ERR_CONFIG: of another number of axes, a single point is
 * left, or a domain that wraps around would not any more; UPS_ERR_UNSUPPORTED: points that lie anywhere. */
ups_status ups_layout_thin(ups_layout_builder *builder, int64_t first, ups_error *error);

/* A thinned member's sample with all the points that its arrays have. */
ups_sample ups_layout_full_sample(const ups_layout_member *member);

/* Frames of a thinned member from frames of all its points, both in the sample's order and dtype. */
void ups_layout_pick(const ups_layout_member *member, int64_t frames, const void *from, void *to);

#endif
