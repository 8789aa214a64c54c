/* HDF5 1.10 takes an attribute apart without asking whether its parts lie within the object's header: a damaged size
 * makes it read whatever lies behind in memory, or beyond memory; and where it does refuse one, it frees the list of
 * them before it is filled. So headers without a checksum of their own are walked first, and all attributes decoded one
 * by one before the library lists them. What else may be wrong with a header is left to the library, which does look.
 *
 * Source: HDF5 File Format Specification 3.0, IV.A.1.a (version 1 object headers), IV.A.2.b (dataspace), .d (datatype),
 * .m (attribute), .q (continuation). Offsets and lengths are of 8 bytes, as all files have them today. */
#include "pipeline/hdf5_object.h"

#include "base/files.h"
#include "pipeline/hdf5_type_message.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 10, 3) && !H5_VERSION_GE(1, 12, 0)

enum { PREFIX = 16, MESSAGE = 8, MOST_CHUNKS = 64, LARGEST_CHUNK = 1 << 24 };
enum { ATTRIBUTE_MESSAGE = 0x0c, CONTINUATION_MESSAGE = 0x10, SHARED = 2 };

static uint64_t number(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* Elements of a dataspace message; false when it does not fit its bytes. */
static bool count_elements(const uint8_t *bytes, uint64_t length, uint64_t *elements) {
    enum { MOST_RANK = 32 };
    if (length < 4 || bytes[0] < 1 || bytes[0] > 2 || bytes[1] > MOST_RANK) return false;
    uint8_t version = bytes[0], rank = bytes[1];
    uint64_t first = version == 1 ? 8 : 4;
    *elements = version == 2 && bytes[3] == 2 ? 0 : 1; /* 2: a null dataspace */
    if (first + 8 * (uint64_t)rank > length) return false;
    for (int axis = 0; axis < rank; axis++) {
        if (__builtin_mul_overflow(*elements, number(bytes + first + 8 * axis, 8), elements)) return false;
    }
    return true;
}

/* Version, flags, sizes of name, datatype and dataspace; then these three (in version 1 padded to 8 bytes); then the
 * value. */
static bool sound_attribute(const uint8_t *bytes, uint64_t length) {
    if (length < 8 || bytes[0] < 1 || bytes[0] > 3) return false;
    uint8_t version = bytes[0], flags = version == 1 ? 0 : bytes[1];
    uint64_t part[3], at = version == 3 ? 9 : 8, start[3];
    for (int i = 0; i < 3; i++) {
        part[i] = number(bytes + 2 + 2 * i, 2);
        start[i] = at;
        at += version == 1 ? (part[i] + 7) / 8 * 8 : part[i];
        if (at > length || start[i] + part[i] > length) return false;
    }
    if (part[0] == 0 || memchr(bytes + start[0], 0, part[0]) != bytes + start[0] + part[0] - 1) return false;
    if (flags & 3) return true; /* datatype or dataspace is kept elsewhere: the value's size is not known here */
    uint64_t elements, size;
    if (part[1] < 8 || !count_elements(bytes + start[2], part[2], &elements)) return false;
    if (!ups_hdf5_sound_type(bytes + start[1], part[1])) return false;
    return !__builtin_mul_overflow(elements, number(bytes + start[1] + 4, 4), &size) && size <= length - at;
}

typedef struct header_walk {
    struct {
        uint64_t address, length;
    } chunks[MOST_CHUNKS];
    int count;
} header_walk;

/* Messages of one chunk; notes down where the header goes on. */
static bool sound_messages(header_walk *walk, const uint8_t *bytes, uint64_t length, uint64_t base) {
    for (uint64_t at = 0; at + MESSAGE <= length;) {
        uint64_t type = number(bytes + at, 2), size = number(bytes + at + 2, 2), flags = bytes[at + 4];
        at += MESSAGE;
        if (size > length - at) return true; /* seen by the library */
        if (type == ATTRIBUTE_MESSAGE && !(flags & SHARED) && !sound_attribute(bytes + at, size)) return false;
        if (type == CONTINUATION_MESSAGE && size >= 16 && walk->count < MOST_CHUNKS) {
            walk->chunks[walk->count].address = base + number(bytes + at, 8);
            walk->chunks[walk->count++].length = number(bytes + at + 8, 8);
        }
        at += size;
    }
    return true;
}

static bool sound_header(int fd, uint64_t base, uint64_t address) {
    uint8_t prefix[PREFIX];
    if (ups_read_at(fd, "", address, prefix, PREFIX, NULL) != UPS_OK || prefix[0] != 1)
        return true; /* others have checksums */
    header_walk walk = {.chunks = {{address + PREFIX, number(prefix + 8, 4)}}, .count = 1};
    bool sound = true;
    for (int c = 0; c < walk.count && sound; c++) {
        uint64_t length = walk.chunks[c].length;
        uint8_t *bytes = length <= LARGEST_CHUNK ? malloc(length ? length : 1) : NULL;
        ssize_t got = bytes ? pread(fd, bytes, length, (off_t)walk.chunks[c].address) : -1;
        if (got > 0) sound = sound_messages(&walk, bytes, (uint64_t)got, base);
        free(bytes);
    }
    return sound;
}

/* Bytes before the HDF5 file proper begins, to which its addresses count. */
static uint64_t user_block(hid_t file) {
    hsize_t bytes = 0;
    hid_t creation = H5Fget_create_plist(file);
    if (creation < 0 || H5Pget_userblock(creation, &bytes) < 0) bytes = 0;
    if (creation >= 0) H5Pclose(creation);
    return bytes;
}

static bool trustworthy(const ups_hdf5_file *file, const char *name) {
    H5O_info_t info;
    if (file->fd < 0 || H5Oget_info_by_name2(file->id, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) return true;
    uint64_t base = user_block(file->id);
    return sound_header(file->fd, base, base + info.addr);
}

#else

static bool trustworthy(const ups_hdf5_file *file, const char *name) {
    return true; /* later libraries look for themselves */
}

#endif

/* Looking for one that is not there decodes all of them, without the list that is freed too early. */
static bool decodable(hid_t object) {
    return H5Aexists(object, "ups: no attribute has this name") >= 0;
}

hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name) {
    const char *path = *name ? name : "/";
    bool sound = trustworthy(file, path);
    hid_t object = sound ? H5Oopen(file->id, path, H5P_DEFAULT) : H5I_INVALID_HID;
    if (object < 0 && sound) return object;
    if (object >= 0 && decodable(object)) return object;
    if (object >= 0) H5Oclose(object);
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_ATTR, H5E_BADVALUE,
             "one of its attributes is damaged");
    return H5I_INVALID_HID;
}
