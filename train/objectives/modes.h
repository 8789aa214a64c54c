/* Fourier modes of a decoded field, within a graph: an orthonormal transform along each axis, sines and cosines where
 * the domain is periodic and cosines (DCT-II, which no jump at the borders disturbs) where it is not. */
#ifndef UPS_TRAIN_OBJECTIVES_MODES_H
#define UPS_TRAIN_OBJECTIVES_MODES_H

#include "train/objectives/field.h"

/* Modes (B, channels · points) float32 of patches (B, tokens, numbers) float32. Their squares sum up to those of the
 * field's grid points. */
ups_value ups_modes_build(ups_graph *graph, const ups_field *field, ups_value patches);

/* Of each of these modes a group: of a channel and an octave of wavenumbers, in waves along the domain, as the length
 * of the vector of all axes' (0 to 1, 1 to 2, 2 to 4, …). Every group has a mode. The table lies in the arena. */
int32_t *ups_modes_octaves(const ups_field *field, ups_arena *arena, int *groups);

#endif
