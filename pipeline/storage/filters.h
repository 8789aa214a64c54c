/* Undoing what HDF5 or Zarr did to a chunk before storing it: a compressor, byte shuffle, a checksum; and byte order.
 *
 * Everything here takes bytes that may be damaged: sizes are checked against the buffers before a byte moves, and
 * damage is an error, never a crash. */
#ifndef UPS_PIPELINE_STORAGE_FILTERS_H
#define UPS_PIPELINE_STORAGE_FILTERS_H

#include "pipeline/storage/compressors.h"

/* The order in which they were applied: shuffle, compressor, checksum; each may be absent (position −1). A position
 * is the filter's place in the dataset's pipeline, which is the number of its bit in a chunk's filter mask: a set bit
 * says "not applied to this chunk". */
typedef struct ups_filters {
    ups_compressor compressor;
    int compressor_position;
    int shuffle_position;
    int shuffle_bytes; /* element size that the shuffle worked with */
    int fletcher32_position;
    int crc32c_position; /* Zarr's: four bytes behind the rest */
} ups_filters;

#define UPS_FILTERS_NONE ((ups_filters){UPS_COMPRESSOR_NONE, -1, -1, 0, -1, -1})

bool ups_filters_any(const ups_filters *filters);

size_t ups_filters_scratch(uint64_t chunk_bytes); /* bytes of scratch that ups_filters_undo needs */

/* Decodes one stored chunk. *decoded points to its `chunk_bytes` bytes: into `scratch` (64-byte aligned), or `stored`
 * itself where no filter was applied. UPS_ERR_FORMAT or UPS_ERR_CHECKSUM when the bytes are damaged; the message does
 * not name the chunk. */
ups_status ups_filters_undo(const ups_filters *filters, uint32_t mask, const uint8_t *stored, uint64_t length,
                            uint64_t chunk_bytes, uint8_t *scratch, const uint8_t **decoded, ups_error *error);

/* Undoes HDF5's byte shuffle: all first bytes, all second bytes, … become elements of `element_bytes`; bytes beyond the
 * last whole element stay at the end. `in` and `out` must not overlap. */
void ups_unshuffle(const uint8_t *in, uint8_t *out, size_t length, size_t element_bytes);

/* HDF5's Fletcher-32: over 16-bit big-endian words, an odd last byte counts as the high half of a word. */
uint32_t ups_fletcher32(const uint8_t *bytes, size_t length);

void ups_swap_bytes(void *elements, size_t count, size_t element_bytes); /* element_bytes 4 or 8 */

#endif
