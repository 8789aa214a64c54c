/* The HDF5 library (up to 1.14.0, and in parts later) takes an attribute apart without asking whether its parts lie
 * within the object's header: a damaged size makes it read whatever lies behind in memory, or beyond memory; and where
 * 1.10 does refuse one, it frees the list of them before it is filled. So headers without a checksum of their own are
 * walked first, and all attributes decoded one by one before the library lists them. What else may be wrong with a
 * header, and what is not understood here, is left to the library.
 *
 * Source: HDF5 File Format Specification 3.0, IV.A.1.a (version 1 object headers), IV.A.2.b (dataspace), .d (datatype),
 * .m (attribute), .q (continuation). */
#include "pipeline/hdf5/object.h"

#include "base/files.h"
#include "base/log.h"
#include "pipeline/hdf5/bytes.h"
#include "pipeline/hdf5/type_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PREFIX = 16, MESSAGE = 8, MOST_CHUNKS = 1024, LARGEST_CHUNK = 1 << 24 };
enum { ATTRIBUTE_MESSAGE = 0x0c, CONTINUATION_MESSAGE = 0x10, SHARED = 2 };

/* Elements of a dataspace message; false when it does not fit its bytes. */
static bool count_elements(const uint8_t *bytes, uint64_t length, int length_bytes, uint64_t *elements) {
    enum { MOST_RANK = 32 };
    if (length < 4 || bytes[0] < 1 || bytes[0] > 2 || bytes[1] > MOST_RANK) return false;
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
    if (!ups_hdf5_sound_type(bytes + start[1], part[1])) return false;
    return !__builtin_mul_overflow(elements, ups_hdf5_number(bytes + start[1] + 4, 4), &size) && size <= length - at;
}

typedef struct header_walk {
    ups_hdf5_sizes sizes;
    struct {
        uint64_t address, length;
    } chunks[MOST_CHUNKS];
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
            walk->count < MOST_CHUNKS) {
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

bool ups_hdf5_is_of(const ups_hdf5_file *file, hid_t part) {
    char name[4096];
    return H5Fget_name(part, name, sizeof name) >= 0 && strcmp(name, file->path) == 0;
}

static bool is_damaged(const ups_hdf5_file *file, hid_t object) {
    hobj_ref_t address;
    const ups_hdf5_sizes sizes = ups_hdf5_sizes_of(file->id);
    return file->fd >= 0 && sizes.address && ups_hdf5_is_of(file, object) &&
           H5Rcreate(&address, object, ".", H5R_OBJECT, -1) >= 0 &&
           !sound_header(file->fd, sizes, sizes.base + address);
}

hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name) {
    hid_t object = H5Oopen(file->id, *name ? name : "/", H5P_DEFAULT);
    if (object < 0 || !is_damaged(file, object)) return object;
    H5Oclose(object);
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_ATTR, H5E_BADVALUE,
             "one of its attributes is damaged");
    return H5I_INVALID_HID;
}

void ups_hdf5_undecodable(ups_hdf5_file *file, char why[600]) {
    unsigned major, minor, release;
    char reason[300];
    ups_hdf5_failed(&file->note, reason);
    H5get_libversion(&major, &minor, &release);
    if (!strstr(reason, "version")) {
        snprintf(why, 600, "%s", reason);
        return;
    }
    snprintf(
        why, 600,
        "%s: a later HDF5 wrote it than the %u.%u.%u that UPS uses here; have it written in an older format (h5py: "
        "libver='v108'), or build UPS with the later HDF5",
        reason, major, minor, release);
}

static herr_t pass_over(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    return 0;
}

/* Decodes them all without the list that is freed too early: looking for one that is not there does, where they lie in
 * the object's header; going through them in no order does, where they lie in a B-tree. */
static bool decodable(hid_t object) {
    return H5Aexists(object, "ups: no attribute has this name") >= 0 &&
           H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, pass_over, NULL) >= 0;
}

void ups_hdf5_each_attribute(ups_hdf5_file *file, hid_t object, H5A_operator2_t visit, void *context) {
    char name[200] = "", why[600];
    if (decodable(object)) {
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, context);
        return;
    }
    if (file->told_left_out) return;
    file->told_left_out = true;
    ups_hdf5_undecodable(file, why);
    H5Iget_name(object, name, sizeof name);
    ups_log(UPS_LOG_WARNING, "%s: the attributes of '%s' are left out, since one of them cannot be decoded (%s)",
            file->path, name, why);
}
