#include "pipeline/numpy/zip.h"

#include "base/files.h"
#include "base/hash.h"
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    LONGEST_COMMENT = 65535,
    STORED = 0,
    DEFLATED = 8
};
static const uint64_t largest_directory = UINT64_C(64) << 20;

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)get16(at) | (uint32_t)get16(at + 2) << 16;
}

static uint64_t get64(const uint8_t *at) {
    return (uint64_t)get32(at) | (uint64_t)get32(at + 4) << 32;
}

static ups_status damaged(const char *path, const char *what, ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT, "%s: %s; the file is damaged, or its copy is not complete", path, what);
}

/* ---- the directory ------------------------------------------------------------------------------------------------
 */

typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

/* Sizes that do not fit 32 bits stand in a record of their own, which a locator before the end names. */
static ups_status find_directory64(int fd, const char *path, uint64_t file_bytes, uint64_t end, directory *found,
                                   ups_error *error) {
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) return UPS_OK;
    UPS_TRY(ups_read_at(fd, path, end - LOCATOR_BYTES, locator, sizeof locator, error));
    if (memcmp(locator, "PK\6\7", 4) != 0) return UPS_OK;
    uint64_t at = get64(locator + 8);
    if (at > file_bytes || file_bytes - at < END64_BYTES)
        return damaged(path, "its ZIP directory lies beyond its end", error);
    UPS_TRY(ups_read_at(fd, path, at, record, sizeof record, error));
    if (memcmp(record, "PK\6\6", 4) != 0) return damaged(path, "its ZIP64 record is missing", error);
    *found = (directory){get64(record + 48), get64(record + 40), get64(record + 32)};
    return UPS_OK;
}

static ups_status find_directory(int fd, const char *path, uint64_t file_bytes, directory *found, ups_error *error) {
    uint64_t length = file_bytes < END_BYTES + LONGEST_COMMENT ? file_bytes : END_BYTES + LONGEST_COMMENT;
    uint8_t *tail = malloc(length + 1);
    if (!tail) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", path);
    ups_status status = ups_read_at(fd, path, file_bytes - length, tail, length, error);
    uint64_t at = length;
    bool there = false;
    for (uint64_t back = END_BYTES; status == UPS_OK && back <= length && !there; back++) {
        at = length - back;
        there = memcmp(tail + at, "PK\5\6", 4) == 0 && get16(tail + at + 20) + (uint64_t)END_BYTES == back;
    }
    if (status == UPS_OK && !there) status = damaged(path, "the end of its ZIP directory is missing", error);
    if (there) *found = (directory){get32(tail + at + 16), get32(tail + at + 12), get16(tail + at + 10)};
    free(tail);
    if (status == UPS_OK) status = find_directory64(fd, path, file_bytes, file_bytes - length + at, found, error);
    if (status != UPS_OK) return status;
    if (found->offset > file_bytes || found->bytes > file_bytes - found->offset || found->bytes > largest_directory ||
        found->count > found->bytes / CENTRAL_BYTES)
        return damaged(path, "its ZIP directory does not fit into it", error);
    return UPS_OK;
}

/* Sizes of 32 ones stand in the ZIP64 field, in this order. */
static bool widen(const uint8_t *extra, size_t length, ups_zip_member *member) {
    uint64_t *wide[] = {&member->bytes, &member->stored_bytes, &member->header};
    for (size_t at = 0; at + 4 <= length;) {
        size_t field = get16(extra + at + 2), next = at + 4 + field;
        if (next > length) return false;
        size_t from = at + 4;
        for (int w = 0; get16(extra + at) == 1 && w < 3; w++) {
            if (*wide[w] != UINT32_MAX) continue;
            if (from + 8 > next) return false;
            *wide[w] = get64(extra + from);
            from += 8;
        }
        at = next;
    }
    return true;
}

ups_status ups_zip_list(int fd, const char *path, uint64_t file_bytes, ups_arena *arena, const ups_zip_member **members,
                        int64_t *count, ups_error *error) {
    directory found = {0};
    UPS_TRY(find_directory(fd, path, file_bytes, &found, error));
    uint8_t *bytes = malloc(found.bytes + 1);
    if (!bytes) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its directory", path);
    ups_zip_member *list = UPS_ARENA_ARRAY(arena, ups_zip_member, found.count + 1);
    ups_status status = ups_read_at(fd, path, found.offset, bytes, found.bytes, error);
    *members = list;
    *count = 0;
    uint64_t at = 0;
    for (uint64_t i = 0; i < found.count && status == UPS_OK; i++) {
        const uint8_t *entry = bytes + at;
        bool fits = found.bytes - at >= CENTRAL_BYTES && memcmp(entry, "PK\1\2", 4) == 0;
        uint64_t name = fits ? get16(entry + 28) : 0, extra = fits ? get16(entry + 30) : 0;
        uint64_t all = CENTRAL_BYTES + name + extra + (fits ? get16(entry + 32) : 0);
        if (!fits || all > found.bytes - at) {
            status = damaged(path, "an entry of its ZIP directory is cut short", error);
            break;
        }
        ups_zip_member member = {.name =
                                     ups_arena_printf(arena, "%.*s", (int)name, (const char *)entry + CENTRAL_BYTES),
                                 .deflated = get16(entry + 10) == DEFLATED,
                                 .stored_bytes = get32(entry + 20),
                                 .bytes = get32(entry + 24),
                                 .crc32 = get32(entry + 16),
                                 .header = get32(entry + 42)};
        if (!widen(entry + CENTRAL_BYTES + name, extra, &member))
            status = damaged(path, "a ZIP64 field of its directory is cut short", error);
        bool encrypted = get16(entry + 8) & 1, known = member.deflated || get16(entry + 10) == STORED;
        if (known && !encrypted) list[(*count)++] = member;
        at += all;
    }
    free(bytes);
    return status;
}

/* ---- a member -----------------------------------------------------------------------------------------------------
 */

ups_status ups_zip_locate(int fd, const char *path, uint64_t file_bytes, const ups_zip_member *member, uint64_t *offset,
                          ups_error *error) {
    uint8_t local[LOCAL_BYTES];
    if (member->header > file_bytes || file_bytes - member->header < LOCAL_BYTES)
        return damaged(path, "a member lies beyond its end", error);
    UPS_TRY(ups_read_at(fd, path, member->header, local, sizeof local, error));
    if (memcmp(local, "PK\3\4", 4) != 0) return damaged(path, "a member is not where its directory says", error);
    *offset = member->header + LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (*offset > file_bytes || member->stored_bytes > file_bytes - *offset)
        return damaged(path, "a member goes on beyond its end", error);
    if (!member->deflated && member->stored_bytes != member->bytes)
        return damaged(path, "a member that is not compressed has two sizes", error);
    return UPS_OK;
}

/* Feeds blocks of the file to the decompressor until `length` bytes came out or it has no more. */
static ups_status inflate_blocks(int fd, const char *path, const ups_zip_member *member, uint64_t offset,
                                 struct inflate_state *state, uint8_t *block, size_t room, uint8_t *out,
                                 uint64_t length, uint64_t *produced, ups_error *error) {
    uint64_t left = member->stored_bytes;
    while (*produced < length && state->block_state != ISAL_BLOCK_FINISH) {
        if (state->avail_in == 0 && left > 0) {
            size_t next = left < room ? (size_t)left : room;
            UPS_TRY(ups_read_at(fd, path, offset, block, next, error));
            state->next_in = block;
            state->avail_in = (uint32_t)next;
            offset += next;
            left -= next;
        }
        uint64_t wanted = length - *produced;
        uint32_t space = wanted < INT32_MAX ? (uint32_t)wanted : INT32_MAX, had = state->avail_in;
        state->next_out = out + *produced;
        state->avail_out = space;
        if (isal_inflate(state) != ISAL_DECOMP_OK) return damaged(path, "a compressed member is damaged", error);
        *produced += space - state->avail_out;
        if (space == state->avail_out && had == state->avail_in && left == 0) break;
    }
    return UPS_OK;
}

ups_status ups_zip_inflate(int fd, const char *path, const ups_zip_member *member, uint64_t offset, uint8_t *out,
                           uint64_t length, ups_error *error) {
    enum { BLOCK = 1 << 20 };
    struct inflate_state *state = malloc(sizeof *state);
    uint8_t *block = malloc(BLOCK);
    uint64_t produced = 0;
    ups_status status = UPS_OK;
    if (!state || !block) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to inflate '%s'", path, member->name);
    if (status == UPS_OK) {
        isal_inflate_init(state); /* raw deflate */
        status = inflate_blocks(fd, path, member, offset, state, block, BLOCK, out, length, &produced, error);
    }
    free(block);
    free(state);
    if (status != UPS_OK) return status;
    if (produced != length) return damaged(path, "a compressed member holds less than its directory says", error);
    if (length < member->bytes) return UPS_OK;
    if (ups_crc32(0, out, length) == member->crc32) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM,
                    "%s: the CRC-32 of '%s' does not match: bytes changed since it was written", path, member->name);
}
