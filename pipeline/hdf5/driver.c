#include "pipeline/hdf5/driver.h"

#include "base/files.h"
#include "pipeline/hdf5/bytes.h"
#include "pipeline/hdf5/elsewhere.h"
#include "pipeline/hdf5/layout_message.h"
#include "pipeline/storage/filters.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* ---- the driver ----------------------------------------------------------------------------------------------- */

enum { MOST_CONTINUATIONS = 256 };

typedef struct noting_file {
    H5FD_t head; /* the library's part */
    int fd;
    dev_t device;
    ino_t inode;
    haddr_t end_of_allocation, end_of_file;
    ups_hdf5_sizes sizes;                            /* once the superblock has been read */
    uint64_t largest_heap;                           /* bytes of names of the groups seen so far */
    uint64_t names_bytes, names_address, names_free; /* of the latest; the place of its first free block */
    uint64_t continuation[MOST_CONTINUATIONS];       /* where headers of objects go on, the latest of them, */
    int continuations;                               /* and how many were seen */
    int rank, axes;           /* that the latest header says its dataset, and its chunks, have; −1, 0: nothing yet */
    ups_hdf5_note *note, own; /* `own` where nobody gave one */
} noting_file;

typedef struct noting_access { /* what the file access property list carries */
    ups_hdf5_note *note;
} noting_access;

/* What files that this one refers to are opened with: they share its note. */
static void *noting_access_of(H5FD_t *head) {
    noting_file *file = (noting_file *)head;
    noting_access *access = H5allocate_memory(sizeof *access, false);
    if (access) access->note = file->note;
    return access;
}

static void *noting_copy_access(const void *access) {
    noting_access *copy = H5allocate_memory(sizeof *copy, false);
    if (copy) *copy = *(const noting_access *)access;
    return copy;
}

static herr_t noting_free_access(void *access) {
    H5free_memory(access);
    return 0;
}

static H5FD_t *noting_open(const char *path, unsigned flags, hid_t access_list, haddr_t max_address) {
    if (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC | H5F_ACC_CREAT)) return NULL;
    const noting_access *access = H5Pget_driver_info(access_list);
    noting_file *file = calloc(1, sizeof *file);
    if (!file) { /* which the library does not call want of memory */
        if (access) ups_hdf5_refuse(access->note, UPS_ERR_MEMORY, "no memory to open %s", path);
        return NULL;
    }
    struct stat status;
    file->fd = ups_hdf5_open_admitted(access ? access->note : &file->own, path);
    if (file->fd < 0) { /* refused, with the reason; or absent, which the library looks elsewhere for */
        free(file);
        return NULL;
    }
    if (fstat(file->fd, &status) != 0) {
        if (access) access->note->trouble.error_number = errno; /* not a word of the library tells */
        close(file->fd);
        free(file);
        return NULL;
    }
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->end_of_file = (haddr_t)status.st_size;
    file->note = access ? access->note : &file->own;
    if (file->note->bytes < file->end_of_file) file->note->bytes = file->end_of_file;
    return &file->head;
}

static herr_t noting_close(H5FD_t *head) {
    noting_file *file = (noting_file *)head;
    close(file->fd);
    free(file);
    return 0;
}

static int noting_compare(const H5FD_t *first, const H5FD_t *second) {
    const noting_file *a = (const noting_file *)first, *b = (const noting_file *)second;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode) return a->inode < b->inode ? -1 : 1;
    return a->note == b->note ? 0 : (uintptr_t)a->note < (uintptr_t)b->note ? -1 : 1; /* two openings stay two files */
}

/* No H5FD_FEAT_DATA_SIEVE: the sieve buffer of HDF5 1.10 is overrun by shapes that a damaged file claims. No
 * H5FD_FEAT_ACCUMULATE_METADATA: after a failed read its accumulator is a null pointer that it copies from; and so
 * every block of metadata is read as a whole, which end_names counts on. */
static herr_t noting_query(const H5FD_t *head, unsigned long *flags) {
    *flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE | H5FD_FEAT_POSIX_COMPAT_HANDLE;
    return 0;
}

/* With it the library finds where a symbolic link leads, and looks there for files that the file refers to. */
static herr_t noting_get_handle(H5FD_t *head, hid_t access_list, void **handle) {
    *handle = &((noting_file *)head)->fd;
    return 0;
}

static haddr_t noting_get_end_of_allocation(const H5FD_t *head, H5FD_mem_t type) {
    return ((const noting_file *)head)->end_of_allocation;
}

static herr_t noting_set_end_of_allocation(H5FD_t *head, H5FD_mem_t type, haddr_t address) {
    ((noting_file *)head)->end_of_allocation = address;
    return 0;
}

static haddr_t noting_get_end_of_file(const H5FD_t *head, H5FD_mem_t type) {
    return ((const noting_file *)head)->end_of_file;
}

/* The superblock: signature, version; of versions 0 and 1 four more and an unused byte; then how many bytes an address
 * has, and a length. It lies behind the user block. (HDF5 File Format Specification 3.0, II.) */
static void take_sizes(noting_file *file, haddr_t start, const uint8_t *block) {
    const uint8_t *sizes = block + (block[8] < 2 ? 13 : 9);
    if (sizes[0] <= 8 && sizes[1] <= 8) file->sizes = (ups_hdf5_sizes){sizes[0], sizes[1], start};
}

/* A free block: the place of the next, 1 for none, and its size. Those beyond the names the library refuses itself. */
static bool free_blocks_end(const uint8_t *names, uint64_t bytes, uint64_t first, int length) {
    const uint64_t none = 1, each = 2 * (uint64_t)length;
    uint64_t left = each > 0 ? bytes / each : 0;
    for (uint64_t at = first; at != none; at = ups_hdf5_number(names + at, length)) {
        if (at > bytes || bytes - at < each) return true;
        if (left-- == 0) return false;
    }
    return true;
}

/* The names of a group lie in its local heap, and entries of its symbol table nodes say where. HDF5 1.10 follows them
 * wherever they lead. So the heap's last byte, which in a sound heap is the NUL of a name, its padding or part of a
 * free block, is made a NUL, and nodes that point beyond the largest heap of the file so far are refused, as are heaps
 * larger than the file; the library reads a group's heap first. Nor are heaps whose free blocks follow each other in a
 * circle: it would note them without end. Layout of the heap: "HEAP", version, 3 unused bytes, the size of the names,
 * the place of the first free block, their address; padded to 8 bytes. They are read with it where they follow it, and
 * else next. (III.D.) */
static bool end_names(noting_file *file, haddr_t start, uint8_t *block, size_t size) {
    const int length = file->sizes.length, address = file->sizes.address;
    const size_t header = (8 + 2 * (size_t)length + (size_t)address + 7) / 8 * 8;
    if (size >= header && memcmp(block, "HEAP", 4) == 0) {
        const uint64_t bytes = ups_hdf5_number(block + 8, length);
        file->names_bytes = bytes;
        file->names_address = file->sizes.base + ups_hdf5_number(block + 8 + 2 * length, address);
        if (bytes > file->end_of_file) return false;
        if (bytes > file->largest_heap) file->largest_heap = bytes;
        file->names_free = ups_hdf5_number(block + 8 + length, length);
        const bool follow = file->names_address == start + header && bytes > 0 && bytes <= size - header;
        if (!follow) return true;
        block[header + bytes - 1] = 0;
        return free_blocks_end(block + header, bytes, file->names_free, length);
    }
    if (size == 0 || size != file->names_bytes || start != file->names_address) return true;
    block[size - 1] = 0;
    return free_blocks_end(block, size, file->names_free, length);
}

/* "SNOD", version, an unused byte, how many entries (2 bytes). An entry: the name's place, the object's address, what
 * is in the last 16 bytes (4; 2: a soft link, whose text's place begins them), 4 unused, these 16. (III.B, III.C.) */
static bool sound_node(const noting_file *file, const uint8_t *node, size_t size) {
    enum { HEADER = 8, SOFT_LINK = 2 };
    const size_t kind_at = (size_t)file->sizes.length + (size_t)file->sizes.address, entry = kind_at + 24;
    uint64_t count = ups_hdf5_number(node + 6, 2);
    for (size_t at = HEADER; count > 0 && at + entry <= size; count--, at += entry) {
        const uint64_t name = ups_hdf5_number(node + at, file->sizes.length);
        const uint64_t kind = ups_hdf5_number(node + at + kind_at, 4),
                       text = ups_hdf5_number(node + at + kind_at + 8, 4);
        if (name >= file->largest_heap || (kind == SOFT_LINK && text >= file->largest_heap)) return false;
    }
    return true;
}

/* Where a message says that its object's header goes on; the library reads there next, whatever size it has. */
static void note_continuation(noting_file *file, const uint8_t *message, uint64_t length) {
    const int address = file->sizes.address;
    if (length < (uint64_t)address) return;
    file->continuation[file->continuations++ % MOST_CONTINUATIONS] =
        file->sizes.base + ups_hdf5_number(message, address);
}

/* Layouts in a header of version 1, whose chunk of messages begins `at` in the block: other versions have checksums.
 * Chunks of fewer axes than the dataset has lead to a division by 0, too. A message: type and size (2 bytes each),
 * flags, 3 unused; a dataspace: version, rank. (IV.A.1.a, IV.A.2.b) */
static bool sound_messages(noting_file *file, const uint8_t *block, size_t size, size_t at) {
    enum { DATASPACE = 0x01, LAYOUT = 0x08, CONTINUATION = 0x10, MESSAGE = 8, SHARED = 2 };
    while (at + MESSAGE <= size) {
        const uint64_t type = ups_hdf5_number(block + at, 2), length = ups_hdf5_number(block + at + 2, 2);
        const uint8_t flags = block[at + 4];
        at += MESSAGE;
        if (length > size - at) return true; /* not all of it is here, or the library sees it */
        const bool here = !(flags & SHARED);
        if (type == DATASPACE && here && length >= 2) file->rank = block[at + 1];
        if (type == LAYOUT && here && !ups_hdf5_sound_layout(block + at, length, file->sizes.address, &file->axes))
            return false;
        if (file->rank >= 0 && file->axes > 0 && file->axes != file->rank + 1) return false;
        if (type == CONTINUATION) note_continuation(file, block + at, size - at);
        at += length;
    }
    return true;
}

/* The prefix: version, unused, how many messages (2 bytes), references (4), bytes of messages (4), unused (4). */
static bool sound_object_header(noting_file *file, haddr_t start, const uint8_t *block, size_t size) {
    enum { PREFIX = 16 };
    const int known = file->continuations < MOST_CONTINUATIONS ? file->continuations : MOST_CONTINUATIONS;
    for (int i = 0; i < known; i++)
        if (file->continuation[i] == start) return sound_messages(file, block, size, 0);
    file->rank = -1, file->axes = 0;
    if (block[0] != 1) return true;
    const uint64_t bytes = ups_hdf5_number(block + 8, 4); /* more may have been read */
    return sound_messages(file, block, bytes < size - PREFIX ? PREFIX + bytes : size, PREFIX);
}

/* Whether what was read can be given to the library. */
static bool sound_block(noting_file *file, H5FD_mem_t type, haddr_t start, uint8_t *block, size_t size) {
    enum { SHORTEST = 16 };
    uint64_t offset, bytes;
    if (size >= SHORTEST && type == H5FD_MEM_SUPER && memcmp(block, "\x89HDF\r\n\x1a\n", 8) == 0)
        take_sizes(file, start, block);
    if (file->sizes.length == 0) return true;
    if (type == H5FD_MEM_LHEAP && !end_names(file, start, block, size)) return false;
    if (size < SHORTEST) return true;
    if (type == H5FD_MEM_OHDR && !sound_object_header(file, start, block, size)) return false;
    if (memcmp(block, "GCOL", 4) == 0)
        return ups_hdf5_find_in_heap(file->fd, file->end_of_file, &file->sizes, start, 0, &offset, &bytes,
                                     &file->note->trouble);
    return type != H5FD_MEM_BTREE || memcmp(block, "SNOD", 4) != 0 || sound_node(file, block, size);
}

#define SLIGHTLY_BEYOND ((size_t)1 << 16)

static herr_t noting_read(H5FD_t *head, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, void *buffer) {
    noting_file *file = (noting_file *)head;
    if (type == H5FD_MEM_DRAW && file->note->armed) {
        file->note->offset = address;
        file->note->length = size;
        file->note->taken = true;
        return 0;
    }
    /* The library may look a little beyond the end, where it finds zeros; never for more than there is in the file. */
    if (size > SLIGHTLY_BEYOND && size - SLIGHTLY_BEYOND > file->end_of_file) return -1;
    const haddr_t start = address;
    const size_t whole = size;
    char *to = buffer;
    while (size) {
        ssize_t got = pread(file->fd, to, size, (off_t)address);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            if (file->note->trouble.error_number == 0) file->note->trouble.error_number = errno;
            return -1;
        }
        if (got == 0 && address < file->end_of_file) {
            file->note->trouble.cut = true;
            return -1;
        }
        if (got == 0) { /* beyond the end: zeros, as HDF5's own driver has it */
            memset(to, 0, size);
            return 0;
        }
        to += got;
        address += (haddr_t)got;
        size -= (size_t)got;
    }
    return sound_block(file, type, start, buffer, whole) ? 0 : -1;
}

static herr_t noting_write(H5FD_t *head, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                           const void *buffer) {
    return -1; /* read-only; the library insists that the entry exists */
}

static const H5FD_class_t noting_driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = 600, /* from the range HDF5 leaves to private drivers */
#endif
    .name = "ups_noting",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(noting_access),
    .fapl_get = noting_access_of,
    .fapl_copy = noting_copy_access,
    .fapl_free = noting_free_access,
    .open = noting_open,
    .close = noting_close,
    .cmp = noting_compare,
    .query = noting_query,
    .get_eoa = noting_get_end_of_allocation,
    .set_eoa = noting_set_end_of_allocation,
    .get_eof = noting_get_end_of_file,
    .get_handle = noting_get_handle,
    .read = noting_read,
    .write = noting_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- LZF for the library itself -----------------------------------------------------------------------------------
 */

enum { LZF_FILTER = 32000 };

/* Decodes where the library reads through. Encoding declines each chunk, which makes the library store it as it is. */
static size_t lzf_filter(unsigned flags, size_t parameter_count, const unsigned parameters[], size_t length,
                         size_t *capacity, void **buffer) {
    if (!(flags & H5Z_FLAG_REVERSE) || parameter_count < 3 || parameters[2] == 0) return 0;
    size_t room = parameters[2]; /* the chunk's size, which h5py keeps there */
    uint8_t *out = H5allocate_memory(room + UPS_FILTER_SLACK, false);
    size_t produced = 0;
    if (!out || ups_lzf_decode(*buffer, length, out, room, &produced, NULL) != UPS_OK || produced != room) {
        H5free_memory(out);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = out;
    *capacity = room + UPS_FILTER_SLACK;
    return produced;
}

static const H5Z_class2_t lzf_class = {
    .version = H5Z_CLASS_T_VERS,
    .id = LZF_FILTER,
    .encoder_present = 1,
    .decoder_present = 1,
    .name = "lzf",
    .filter = lzf_filter,
};

/* The driver's number, registered at first use, as LZF is; within the lock. */
static hid_t driver_number(void) {
    static hid_t driver = H5I_INVALID_HID;
    if (driver >= 0) return driver;
    driver = H5FDregister(&noting_driver);
    if (driver >= 0 && H5Zfilter_avail(LZF_FILTER) <= 0) H5Zregister(&lzf_class);
    return driver;
}

hid_t ups_hdf5_driver_open(const char *path, ups_hdf5_note *note, char reason[300]) {
    noting_access access = {note};
    hid_t driver = driver_number(), file = H5I_INVALID_HID;
    hid_t access_list = H5Pcreate(H5P_FILE_ACCESS);
    if (driver >= 0 && access_list >= 0 && H5Pset_driver(access_list, driver, &access) >= 0)
        file = H5Fopen(path, H5F_ACC_RDONLY, access_list);
    if (file < 0) ups_hdf5_failed(note, reason);
    if (access_list >= 0) H5Pclose(access_list);
    return file;
}
