/* HDF5 1.10 decodes a datatype without knowing where its message ends: names without an end, and an enumeration whose
 * base type claims to be large, are copied from beyond it. This walks a message as the library would, and stays inside.
 * A message has at most 64 KiB, and so an end to its depth. Types of a version or class that is not known here are left
 * to the library, which decodes or refuses them by itself.
 *
 * Source: HDF5 File Format Specification 3.0 and 4.0, IV.A.2.d. */
#include "pipeline/hdf5/type_message.h"

#include "pipeline/hdf5/bytes.h"
#include <string.h>

enum { HEADER = 8, MOST_RANK = 32, LATEST_VERSION = 5 };
enum { FIXED, FLOATING, TIME, STRING, BITFIELD, OPAQUE, COMPOUND, REFERENCE, ENUMERATION, VARIABLE, ARRAY };

typedef struct message {
    const uint8_t *bytes;
    uint64_t length, at; /* at: what has been walked over */
    bool unknown;        /* what follows is the library's */
} message;

static bool pass_over(message *m, uint64_t bytes) {
    if (bytes > m->length - m->at) return false;
    m->at += bytes;
    return true;
}

/* A name and its NUL; before version 3 padded to 8 bytes. */
static bool pass_name(message *m, int version) {
    const uint8_t *end = memchr(m->bytes + m->at, 0, m->length - m->at);
    if (!end) return false;
    const uint64_t bytes = (uint64_t)(end + 1 - (m->bytes + m->at));
    return pass_over(m, version >= 3 ? bytes : (bytes + 7) / 8 * 8);
}

static bool walk_type(message *m, uint64_t *size);

/* Name, offset (in version 1 then four axes that nobody uses), type. */
static bool walk_member(message *m, int version, uint64_t size) {
    int offset_bytes = 4;
    if (version >= 3)
        for (offset_bytes = 1; offset_bytes < 4 && size >> 8 * offset_bytes; offset_bytes++) continue;
    if (!pass_name(m, version)) return false;
    const uint8_t *offset = m->bytes + m->at;
    uint64_t member_size;
    return pass_over(m, (uint64_t)offset_bytes + (version == 1 ? 28 : 0)) && walk_type(m, &member_size) &&
           ups_hdf5_number(offset, offset_bytes) + member_size <= size;
}

static bool walk_enumeration(message *m, int version, uint64_t members, uint64_t size) {
    uint64_t base_size;
    if (m->at < m->length && (m->bytes[m->at] & 15) != FIXED) return false;
    if (!walk_type(m, &base_size) || base_size != size) return false;
    for (uint64_t i = 0; i < members; i++)
        if (!pass_name(m, version)) return false;
    return pass_over(m, members * size);
}

static bool walk_array(message *m, int version) {
    if (version < 2 || m->at >= m->length) return false;
    const uint64_t rank = m->bytes[m->at], base_at = version == 2 ? 4 + 8 * rank : 1 + 4 * rank;
    uint64_t base_size;
    return rank <= MOST_RANK && pass_over(m, base_at) && walk_type(m, &base_size);
}

/* Bits of a number: where it lies in its bytes; of a floating one its sign, exponent and mantissa too. */
static bool walk_number(message *m, bool floating, uint64_t sign, uint64_t size) {
    const uint8_t *parts = m->bytes + m->at;
    if (!pass_over(m, floating ? 12 : 4)) return false;
    const uint64_t bits = 8 * size;
    if (ups_hdf5_number(parts, 2) + ups_hdf5_number(parts + 2, 2) > bits) return false;
    return !floating || (sign < bits && (uint64_t)parts[4] + parts[5] <= bits && (uint64_t)parts[6] + parts[7] <= bits);
}

static bool walk_type(message *m, uint64_t *size) {
    const uint8_t *start = m->bytes + m->at;
    if (!pass_over(m, HEADER)) return false;
    const int class = start[0] & 15, version = start[0] >> 4;
    const uint64_t members = ups_hdf5_number(start + 1, 2);
    *size = ups_hdf5_number(start + 4, 4);
    if (version < 1 || version > LATEST_VERSION || class > ARRAY) m->unknown = true;
    if (m->unknown || *size == 0) return false;
    switch (class) {
    case FIXED:
    case BITFIELD:
        return walk_number(m, false, 0, *size);
    case FLOATING:
        return walk_number(m, true, start[2], *size);
    case TIME:
        return pass_over(m, 2);
    case STRING:
    case REFERENCE:
        return true;
    case OPAQUE:
        return pass_over(m, start[1]);
    case COMPOUND:
        for (uint64_t i = 0; i < members; i++)
            if (!walk_member(m, version, *size)) return false;
        return true;
    case ENUMERATION:
        return walk_enumeration(m, version, members, *size);
    case VARIABLE: {
        uint64_t base_size;
        return walk_type(m, &base_size);
    }
    case ARRAY:
        return walk_array(m, version);
    default:
        return false;
    }
}

bool ups_hdf5_sound_type(const uint8_t *bytes, uint64_t length) {
    message m = {.bytes = bytes, .length = length};
    uint64_t size;
    return walk_type(&m, &size) || m.unknown;
}
