/* Sources: HDF5 File Format Specification 3.0, III.E (global heaps), IV.A.1.a (headers of version 1), IV.A.2.b
 * (dataspace), .d (datatype), .m (attribute), .q (continuation), IV.B (data of variable length). */
#include "pipeline/hdf5/guards.h"

#include "base/files.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- global heaps ----------------------------------------------------------------------------------------------- */

/* Bug: an object of size 0 in a global heap keeps the library there for ever, and one beyond the heap is read beyond
 * memory. So the heap, at `address` in the file of `end` bytes, is walked; false when it is not what it says, or has no
 * object `index` (0: all of it is looked at).
 *
 * Layout: "GCOL", version, 3 unused bytes, the collection's size; then objects: index (2 bytes), count (2), unused (4),
 * size, data padded to 8; index 0 is the free rest, whose size counts its header. Both headers are padded to 16 bytes.
 */
static bool find_in_heap(int fd, uint64_t end, const ups_hdf5_sizes *sizes, uint64_t address, uint64_t index,
                         uint64_t *offset, uint64_t *bytes, ups_hdf5_trouble *trouble) {
    enum { HEADER = 16, MAX_OBJECTS = 1 << 16 };
    uint8_t header[HEADER];
    if (!ups_hdf5_read(fd, end, address, header, HEADER, trouble) || memcmp(header, "GCOL", 4) != 0) return false;
    const uint64_t size = ups_hdf5_number(header + 8, sizes->length);
    if (size < HEADER || address > end || size > end - address) return false;
    uint64_t at = HEADER;
    for (int objects = 0; at + HEADER <= size; objects++) {
        if (objects == MAX_OBJECTS || !ups_hdf5_read(fd, end, address + at, header, HEADER, trouble)) return false;
        const uint64_t found = ups_hdf5_number(header, 2), room = size - at - HEADER;
        *bytes = ups_hdf5_number(header + 8, sizes->length);
        if (found == 0) { /* one of no size would keep the library here for ever */
            if (*bytes < HEADER || *bytes > room + HEADER) return false;
            at += *bytes;
            continue;
        }
        if (*bytes > room) return false;
        *offset = address + at + HEADER;
        if (found == index) return true;
        at += HEADER + (*bytes + 7) / 8 * 8;
    }
    return index == 0;
}

/* Behind the user block; signature, version; of versions 0 and 1 four more and an unused byte; then how many bytes an
 * address has, and a length. (II.) */
static void take_sizes(ups_hdf5_sizes *sizes, uint64_t start, const uint8_t *block) {
    const uint8_t *bytes = block + (block[8] < 2 ? 13 : 9);
    if (bytes[0] <= 8 && bytes[1] <= 8) *sizes = (ups_hdf5_sizes){bytes[0], bytes[1], start};
}

bool ups_hdf5_guard_block(ups_hdf5_sizes *sizes, int fd, uint64_t end, uint64_t address, const uint8_t *block,
                          size_t size, ups_hdf5_trouble *trouble) {
    enum { SHORTEST = 16 };
    uint64_t offset, bytes;
    if (size < SHORTEST) return true;
    if (memcmp(block, "\x89HDF\r\n\x1a\n", 8) == 0) take_sizes(sizes, address, block);
    /* Heaps come as raw data do: these eight bytes are no two numbers that a simulation writes. */
    if (sizes->length == 0 || memcmp(block, "GCOL\1\0\0\0", 8) != 0) return true;
    return find_in_heap(fd, end, sizes, address, 0, &offset, &bytes, trouble);
}

/* ---- datatypes of attributes ------------------------------------------------------------------------------------- */

/* Bug: a datatype is decoded without knowing where its message ends. Names without an end, and an enumeration whose
 * base type claims to be large, are copied from beyond it. This walks a message as the library would, and stays inside.
 * A message has at most 64 KiB, and so an end to its depth. Types of a version or class that is not known here are left
 * to the library, which decodes or refuses them by itself. */

enum { TYPE_HEADER = 8, MAX_RANK = 32, LATEST_VERSION = 5 };
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
    return rank <= MAX_RANK && pass_over(m, base_at) && walk_type(m, &base_size);
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
    if (!pass_over(m, TYPE_HEADER)) return false;
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

static bool sound_type(const uint8_t *bytes, uint64_t length) {
    message m = {.bytes = bytes, .length = length};
    uint64_t size;
    return walk_type(&m, &size) || m.unknown;
}

/* ---- attributes in headers of objects ---------------------------------------------------------------------------- */

/* Bug: an attribute is taken apart without asking whether its parts lie within the object's header. A damaged size
 * makes the library read whatever lies behind in memory, or beyond memory. So headers without a checksum of their own
 * are walked first. */

enum { PREFIX = 16, MESSAGE = 8, MAX_CHUNKS = 1024, LARGEST_CHUNK = 1 << 24 };
enum { ATTRIBUTE_MESSAGE = 0x0c, CONTINUATION_MESSAGE = 0x10, SHARED = 2 };

/* Elements of a dataspace message; false when it does not fit its bytes. */
static bool count_elements(const uint8_t *bytes, uint64_t length, int length_bytes, uint64_t *elements) {
    if (length < 4 || bytes[0] < 1 || bytes[0] > 2 || bytes[1] > MAX_RANK) return false;
    uint8_t version = bytes[0], rank = bytes[1];
    uint64_t first = version == 1 ? 8 : 4;
    *elements = version == 2 && bytes[3] == 2 ? 0 : 1; /* 2: a null dataspace */
    if (first + (uint64_t)length_bytes * rank > length) return false;
    for (int axis = 0; axis < rank; axis++) {
        if (__builtin_mul_overflow(*elements, ups_hdf5_number(bytes + first + length_bytes * axis, length_bytes),
                                   elements))
            return false;
    }
    return true;
}

/* Version, flags, sizes of name, datatype and dataspace; then these three (in version 1 padded to 8 bytes); then the
 * value. */
static bool sound_attribute(const uint8_t *bytes, uint64_t length, int length_bytes) {
    if (length < 8) return false;
    if (bytes[0] < 1 || bytes[0] > 3) return true; /* refused by the library */
    uint8_t version = bytes[0], flags = version == 1 ? 0 : bytes[1];
    uint64_t part[3], at = version == 3 ? 9 : 8, start[3];
    for (int i = 0; i < 3; i++) {
        part[i] = ups_hdf5_number(bytes + 2 + 2 * i, 2);
        start[i] = at;
        at += version == 1 ? (part[i] + 7) / 8 * 8 : part[i];
        if (at > length || start[i] + part[i] > length) return false;
    }
    if (part[0] == 0 || memchr(bytes + start[0], 0, part[0]) != bytes + start[0] + part[0] - 1) return false;
    if (flags & 3) return true; /* datatype or dataspace is kept elsewhere: the value's size is not known here */
    uint64_t elements, size;
    if (part[1] < 8 || !count_elements(bytes + start[2], part[2], length_bytes, &elements)) return false;
    if (!sound_type(bytes + start[1], part[1])) return false;
    return !__builtin_mul_overflow(elements, ups_hdf5_number(bytes + start[1] + 4, 4), &size) && size <= length - at;
}

typedef struct header_walk {
    ups_hdf5_sizes sizes;
    struct {
        uint64_t address, length;
    } chunks[MAX_CHUNKS];
    int count;
} header_walk;

/* Messages of one chunk; notes down where the header goes on. */
static bool sound_messages(header_walk *walk, const uint8_t *bytes, uint64_t length) {
    const int address = walk->sizes.address;
    for (uint64_t at = 0; at + MESSAGE <= length;) {
        uint64_t type = ups_hdf5_number(bytes + at, 2), size = ups_hdf5_number(bytes + at + 2, 2),
                 flags = bytes[at + 4];
        at += MESSAGE;
        if (size > length - at) return true; /* seen by the library */
        if (type == ATTRIBUTE_MESSAGE && !(flags & SHARED) && !sound_attribute(bytes + at, size, walk->sizes.length))
            return false;
        /* the library takes address and length whatever size the message has */
        if (type == CONTINUATION_MESSAGE && length - at >= (uint64_t)(address + walk->sizes.length) &&
            walk->count < MAX_CHUNKS) {
            walk->chunks[walk->count].address = walk->sizes.base + ups_hdf5_number(bytes + at, address);
            walk->chunks[walk->count++].length = ups_hdf5_number(bytes + at + address, walk->sizes.length);
        }
        at += size;
    }
    return true;
}

static bool sound_header(int fd, ups_hdf5_sizes sizes, uint64_t address) {
    uint8_t prefix[PREFIX];
    if (ups_read_at(fd, "", address, prefix, PREFIX, NULL) != UPS_OK || prefix[0] != 1)
        return true; /* others have checksums */
    header_walk walk = {.sizes = sizes, .chunks = {{address + PREFIX, ups_hdf5_number(prefix + 8, 4)}}, .count = 1};
    bool sound = true;
    for (int c = 0; c < walk.count && sound; c++) {
        uint64_t length = walk.chunks[c].length;
        uint8_t *bytes = length <= LARGEST_CHUNK ? malloc(length ? length : 1) : NULL;
        ssize_t got = bytes ? pread(fd, bytes, length, (off_t)walk.chunks[c].address) : -1;
        if (got > 0) sound = sound_messages(&walk, bytes, (uint64_t)got);
        free(bytes);
    }
    return sound;
}

bool ups_hdf5_guard_attributes(const ups_hdf5_file *file, hid_t object) {
    hobj_ref_t address;
    const ups_hdf5_sizes sizes = ups_hdf5_sizes_of(file->id);
    return file->fd < 0 || !sizes.address || !ups_hdf5_is_of(file, object) ||
           H5Rcreate(&address, object, ".", H5R_OBJECT, -1) < 0 || sound_header(file->fd, sizes, sizes.base + address);
}

static herr_t skip_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    return 0;
}

/* Bug: where one attribute cannot be decoded, the list of them is freed before it was filled. This decodes them all
 * without that list: looking for one that is not there does, where they lie in the object's header; going through them
 * in no order does, where they lie in a B-tree. */
bool ups_hdf5_guard_list(hid_t object) {
    return H5Aexists(object, "ups: no attribute has this name") >= 0 &&
           H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, skip_attribute, NULL) >= 0;
}

/* ---- texts of variable length ------------------------------------------------------------------------------------ */

/* Bug: an attribute holds, of a text of variable length, where it lies: its length, a global heap's address and an
 * index in it. The library follows the index without looking whether the heap has so many objects, and reads past its
 * own tables. So it is asked for the reference alone, by a conversion that leaves its bytes as they are, and the heap
 * is looked into here; unless the attribute lies in another file than the one that was opened. */

static const char reference_name[] = "ups heap reference";

/* The library's conversion of stored references to `reference_name`: they stay what they are. */
static herr_t keep_references(hid_t stored, hid_t wanted, H5T_cdata_t *about, size_t count, size_t stride,
                              size_t background_stride, void *buffer, void *background, hid_t transfer) {
    if (about->command == H5T_CONV_CONV) return H5Tget_size(stored) == H5Tget_size(wanted) ? 0 : -1;
    if (about->command == H5T_CONV_FREE) return 0;
    char *tag = H5Tget_class(wanted) == H5T_OPAQUE ? H5Tget_tag(wanted) : NULL;
    bool ours = tag && strcmp(tag, reference_name) == 0;
    if (tag) H5free_memory(tag);
    about->need_bkg = H5T_BKG_NO;
    return ours ? 0 : -1;
}

static bool read_references(hid_t attribute, size_t size, uint8_t *references) {
    static bool registered; /* within the lock; stays for the process, and touches no type but the one of this name */
    hid_t wanted = H5Tcreate(H5T_OPAQUE, size), stored = H5Aget_type(attribute);
    bool fine = wanted >= 0 && stored >= 0 && H5Tset_tag(wanted, reference_name) >= 0;
    if (fine && !registered)
        registered = H5Tregister(H5T_PERS_SOFT, reference_name, stored, wanted, keep_references) >= 0;
    fine = fine && H5Aread(attribute, wanted, references) >= 0;
    if (stored >= 0) H5Tclose(stored);
    if (wanted >= 0) H5Tclose(wanted);
    return fine;
}

/* The text that a reference stands for, to be freed; NULL when it cannot be had. */
static char *fetch(ups_hdf5_file *file, const ups_hdf5_sizes *sizes, const uint8_t *reference, uint64_t longest) {
    const uint64_t length = ups_hdf5_number(reference, 4), heap = ups_hdf5_number(reference + 4, sizes->address);
    const uint64_t index = ups_hdf5_number(reference + 4 + sizes->address, 4);
    uint64_t offset, bytes;
    if (length > longest || heap > file->bytes || index == 0 ||
        !find_in_heap(file->fd, file->bytes, sizes, sizes->base + heap, index, &offset, &bytes, &file->note.trouble) ||
        length > bytes)
        return NULL;
    char *text = calloc(1, length + 1);
    if (text && ups_hdf5_read(file->fd, file->bytes, offset, text, length, &file->note.trouble)) return text;
    free(text);
    return NULL;
}

static bool fetch_all(ups_hdf5_file *file, const ups_hdf5_sizes *sizes, hid_t attribute, int64_t count,
                      uint64_t longest, char **texts) {
    const size_t size = 8 + (size_t)sizes->address;
    uint8_t *references = calloc((size_t)count, size);
    bool fine = references && read_references(attribute, size, references);
    for (int64_t i = 0; fine && i < count; i++) {
        const uint8_t *reference = references + (size_t)i * size;
        if (ups_hdf5_number(reference + 4, sizes->address) == 0) continue; /* never written */
        texts[i] = fetch(file, sizes, reference, longest);
        fine = texts[i] != NULL;
    }
    free(references);
    return fine;
}

static bool read_by_library(hid_t attribute, int64_t count, uint64_t longest, char **texts) {
    char **found = calloc((size_t)count, sizeof *found);
    hid_t type = H5Aget_type(attribute), wanted = H5Tcopy(H5T_C_S1);
    bool fine = found && type >= 0 && H5Tset_size(wanted, H5T_VARIABLE) >= 0 &&
                H5Tset_cset(wanted, H5Tget_cset(type)) >= 0 && H5Aread(attribute, wanted, found) >= 0;
    for (int64_t i = 0; fine && i < count; i++) {
        if (!found[i]) continue;
        texts[i] = strlen(found[i]) <= longest ? strdup(found[i]) : NULL;
        fine = texts[i] != NULL;
    }
    for (int64_t i = 0; found && i < count; i++) H5free_memory(found[i]);
    free(found);
    if (type >= 0) H5Tclose(type);
    H5Tclose(wanted);
    return fine;
}

bool ups_hdf5_read_texts(ups_hdf5_file *file, hid_t attribute, int64_t count, uint64_t longest, char **texts) {
    memset(texts, 0, (size_t)count * sizeof *texts);
    const ups_hdf5_sizes sizes = ups_hdf5_sizes_of(file->id);
    bool fine = sizes.address && ups_hdf5_is_of(file, attribute)
                    ? fetch_all(file, &sizes, attribute, count, longest, texts)
                    : read_by_library(attribute, count, longest, texts);
    for (int64_t i = 0; !fine && i < count; i++) {
        free(texts[i]);
        texts[i] = NULL;
    }
    return fine;
}
