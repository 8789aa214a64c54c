/* Hashes. XXH3 (xxHash) tells contents apart: fingerprints, "is it the same file". CRC32C (ISA-L) guards bytes on disk,
 * as Zarr v3 asks for. Neither is cryptographic. */
#ifndef UPS_BASE_HASH_H
#define UPS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ups_hash {
    uint64_t low, high;
} ups_hash; /* XXH3, 128 bits */

ups_hash ups_hash_bytes(const void *bytes, size_t length);

typedef struct ups_hasher ups_hasher; /* streaming form of the same hash */
ups_hasher *ups_hasher_create(void);  /* never NULL: out of memory ends the process, as in ups_arena_alloc */
void ups_hasher_update(ups_hasher *hasher, const void *bytes, size_t length);
ups_hash ups_hasher_finish(ups_hasher *hasher); /* also destroys it */

void ups_hash_hex(ups_hash hash, char out[33]); /* 32 lower-case digits and a NUL */

/* CRC32C (Castagnoli), as in RFC 3720: crc32c("123456789") = 0xe3069283. Continue with the previous result; start with
 * 0. */
uint32_t ups_crc32c(uint32_t crc, const void *bytes, size_t length);

/* The older CRC-32 of gzip, ZIP and PNG, in the same way: crc32("123456789") = 0xcbf43926. */
uint32_t ups_crc32(uint32_t crc, const void *bytes, size_t length);

#endif
