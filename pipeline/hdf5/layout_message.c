/* Source: HDF5 File Format Specification 3.0, IV.A.2.i (data layout message). */
#include "pipeline/hdf5/layout_message.h"

#include "pipeline/hdf5/bytes.h"

bool ups_hdf5_sound_layout(const uint8_t *message, uint64_t length, int address_bytes, int *axes) {
    enum { CHUNKED = 2 };
    uint64_t first, each = 4; /* the extents of a chunk, the last an element's bytes: where, and bytes of each */
    *axes = 0;
    if (length < 5) return true;
    const uint8_t version = message[0], class = version < 3 ? message[2] : message[1];
    if (version < 1 || version > 4 || class != CHUNKED) return true;
    if (version < 3) {
        *axes = message[1], first = 8 + (uint64_t)address_bytes;
    } else if (version == 3) {
        *axes = message[2], first = 3 + (uint64_t)address_bytes;
    } else {
        *axes = message[3], first = 5, each = message[4];
        if (each < 1 || each > 8) return true;
    }
    if (*axes < 2) return false;
    for (int axis = 0; axis < *axes; axis++, first += each)
        if (first + each > length || ups_hdf5_number(message + first, (int)each) == 0) return false;
    return true;
}
