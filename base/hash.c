#include "base/hash.h"

#include "base/system/exhausted.h"

#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct ups_hasher {
    XXH3_state_t *state;
};

static ups_hash from_xxh(XXH128_hash_t value) {
    return (ups_hash){.low = value.low64, .high = value.high64};
}

ups_hash ups_hash_bytes(const void *bytes, size_t length) {
    return from_xxh(XXH3_128bits(bytes, length));
}

ups_hasher *ups_hasher_create(void) {
    ups_hasher *hasher = malloc(sizeof *hasher);
    XXH3_state_t *state = XXH3_createState();
    if (!hasher || !state) ups_out_of_memory("a hash state", 0);
    XXH3_128bits_reset(state);
    hasher->state = state;
    return hasher;
}

void ups_hasher_update(ups_hasher *hasher, const void *bytes, size_t length) {
    if (length > 0) XXH3_128bits_update(hasher->state, bytes, length);
}

ups_hash ups_hasher_finish(ups_hasher *hasher) {
    ups_hash hash = from_xxh(XXH3_128bits_digest(hasher->state));
    XXH3_freeState(hasher->state);
    free(hasher);
    return hash;
}

void ups_hash_hex(ups_hash hash, char out[33]) {
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
}

uint32_t ups_crc32c(uint32_t crc, const void *bytes, size_t length) {
    enum { PIECE = 1 << 30 };                   /* crc32_iscsi counts in int */
    unsigned char *at = (unsigned char *)bytes; /* not written to: ISA-L's prototype lacks the const */
    uint32_t state = ~crc;                      /* ISA-L leaves the inversions of RFC 3720 to its caller */
    while (length > 0) {
        size_t piece = length < PIECE ? length : PIECE;
        state = crc32_iscsi(at, (int)piece, state);
        at += piece;
        length -= piece;
    }
    return ~state;
}

uint32_t ups_crc32(uint32_t crc, const void *bytes, size_t length) {
    return length > 0 ? crc32_gzip_refl(crc, bytes, length) : crc; /* which inverts by itself */
}
