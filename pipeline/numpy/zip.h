/* The directory of a ZIP file, which is what an NPZ file is, and one member inflated. As numpy.savez writes them:
 * stored or deflated, not encrypted, with ZIP64 sizes or without. Source: PKWARE, .ZIP File Format Specification 6.3
 * (APPNOTE.TXT). Bytes may come from anyone. */
#ifndef UPS_PIPELINE_NUMPY_ZIP_H
#define UPS_PIPELINE_NUMPY_ZIP_H

#include "base/arena.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_zip_member {
    const char *name;
    bool deflated;
    uint64_t stored_bytes, bytes; /* in the file; inflated */
    uint32_t crc32;
    uint64_t header; /* where its local header is; where its bytes begin: ups_zip_locate */
} ups_zip_member;

/* Reads the directory of an open file. Members that are folders, encrypted or compressed otherwise are left out.
 * Errors name `path`. */
ups_status ups_zip_list(int fd, const char *path, uint64_t file_bytes, ups_arena *arena, const ups_zip_member **members,
                        int64_t *count, ups_error *error);

/* Where a member's bytes begin; they lie within the file. */
ups_status ups_zip_locate(int fd, const char *path, uint64_t file_bytes, const ups_zip_member *member, uint64_t *offset,
                          ups_error *error);

/* Inflates the first `length` bytes of a deflated member that begins at `offset`. Of a whole one the CRC-32 is
 * checked: UPS_ERR_CHECKSUM. */
ups_status ups_zip_inflate(int fd, const char *path, const ups_zip_member *member, uint64_t offset, uint8_t *out,
                           uint64_t length, ups_error *error);

#endif
