#include "pipeline/hdf5_driver.h"

#include "base/files.h"
#include "pipeline/filters.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* The library is one for the process, so is the lock around it. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static H5E_auto2_t outer_report; /* what the program had set before we entered */
static void *outer_report_context;

void ups_hdf5_enter(void) {
    pthread_mutex_lock(&library_lock);
    H5dont_atexit(); /* at exit HDF5 1.10 writes to standard error about files that were damaged; all of ours are closed
                      */
    H5Eget_auto2(H5E_DEFAULT, &outer_report, &outer_report_context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void ups_hdf5_leave(void) {
    H5Eset_auto2(H5E_DEFAULT, outer_report, outer_report_context);
    pthread_mutex_unlock(&library_lock);
}

static herr_t take_innermost(unsigned depth, const H5E_error2_t *entry, void *context) {
    char *text = context;
    if (depth == 0 && entry->desc) snprintf(text, 300, "%s", entry->desc);
    return 0;
}

const char *ups_hdf5_reason(char text[300]) {
    snprintf(text, 300, "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, text);
    return text;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------
 */

typedef struct noting_file {
    H5FD_t head; /* the library's part */
    int fd;
    dev_t device;
    ino_t inode;
    haddr_t end_of_allocation, end_of_file;
    uint64_t largest_heap;               /* bytes of names of the groups seen so far */
    uint64_t names_bytes, names_address; /* of the latest */
    ups_hdf5_note *note;
} noting_file;

typedef struct noting_access { /* what the file access property list carries */
    ups_hdf5_note *note;
} noting_access;

static H5FD_t *noting_open(const char *path, unsigned flags, hid_t access_list, haddr_t max_address) {
    if (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC | H5F_ACC_CREAT)) return NULL;
    const noting_access *access = H5Pget_driver_info(access_list);
    noting_file *file = calloc(1, sizeof *file);
    if (!file) return NULL;
    struct stat status;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        if (file->fd >= 0) close(file->fd);
        free(file);
        return NULL;
    }
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->end_of_file = (haddr_t)status.st_size;
    file->note = access ? access->note : NULL;
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
    *flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
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

/* Whether a global heap collection (where variable-length strings live) is what it says. HDF5 1.10 copies its objects
 * without checking their sizes. Layout: "GCOL", version, 3 unused bytes, the collection's size; then objects: index (2
 * bytes), count (2), unused (4), size (8), data padded to 8; index 0 is the free rest. (HDF5 File Format Specification
 * III.E; sizes of 8 bytes, as all files have today.) */
static bool sound_heap(const noting_file *file, haddr_t address) {
    enum { HEADER = 16, MOST = 1 << 24 };
    uint8_t header[HEADER];
    uint64_t size;
    if (ups_read_at(file->fd, "", address, header, HEADER, NULL) != UPS_OK) return false;
    memcpy(&size, header + 8, sizeof size);
    if (size < HEADER || size > MOST || address > file->end_of_file || size > file->end_of_file - address) return false;
    uint64_t at = HEADER;
    while (at + HEADER <= size) {
        uint16_t index;
        uint64_t object;
        if (ups_read_at(file->fd, "", address + at, header, HEADER, NULL) != UPS_OK) return false;
        memcpy(&index, header, sizeof index);
        memcpy(&object, header + 8, sizeof object);
        if (index == 0) { /* its size counts the header; one of 0 would keep the library here for ever */
            if (object < HEADER || object > size - at) return false;
            at += object;
            continue;
        }
        if (object > size - at - HEADER) return false;
        at += HEADER + (object + 7) / 8 * 8;
    }
    return true;
}

/* The names of a group lie in its local heap, and entries of its symbol table nodes say where. HDF5 1.10 follows them
 * wherever they lead. So the heap's last byte, which in a sound heap is the NUL of a name, its padding or part of a
 * free block, is made a NUL, and nodes that point beyond the largest heap of the file so far are refused; the library
 * reads a group's heap first. Layout of the heap: "HEAP", version, 3 unused bytes, the size of the names (8 bytes), 8
 * unused, their address (8). They are read with it where they follow it, and else next. (HDF5 File Format Specification
 * III.D.)
 */
static void end_names(noting_file *file, haddr_t address, uint8_t *block, size_t size) {
    enum { HEADER = 32, LEAST_USER_BLOCK = 512 };
    if (size >= HEADER && memcmp(block, "HEAP", 4) == 0) {
        memcpy(&file->names_bytes, block + 8, 8);
        memcpy(&file->names_address, block + 24, 8);
        if (file->names_bytes > file->largest_heap && file->names_bytes <= file->end_of_file)
            file->largest_heap = file->names_bytes;
        if (file->names_bytes > 0 && file->names_bytes <= size - HEADER) block[HEADER + file->names_bytes - 1] = 0;
        return;
    }
    haddr_t before = address - file->names_address; /* addresses count from behind a user block, a power of two */
    if (size > 0 && size == file->names_bytes && (before & (before - 1)) == 0 &&
        (before == 0 || before >= LEAST_USER_BLOCK))
        block[size - 1] = 0;
}

/* "SNOD", version, an unused byte, how many entries (2 bytes); entries of 40 bytes: the name's place (8), the object's
 * address (8), what is in the last 16 bytes (4; 2: a soft link, whose text's place begins them), 4 unused, these 16.
 * (III.B, III.C.) */
static bool sound_node(const noting_file *file, const uint8_t *node, size_t size) {
    enum { HEADER = 8, ENTRY = 40, SOFT_LINK = 2 };
    uint16_t count;
    memcpy(&count, node + 6, sizeof count);
    for (size_t at = HEADER; count > 0 && at + ENTRY <= size; count--, at += ENTRY) {
        uint64_t name;
        uint32_t kind, text;
        memcpy(&name, node + at, sizeof name);
        memcpy(&kind, node + at + 16, sizeof kind);
        memcpy(&text, node + at + 24, sizeof text);
        if (name >= file->largest_heap || (kind == SOFT_LINK && text >= file->largest_heap)) return false;
    }
    return true;
}

/* Whether what was read can be given to the library. */
static bool sound_block(noting_file *file, H5FD_mem_t type, haddr_t address, uint8_t *block, size_t size) {
    enum { SHORTEST = 16 };
    if (type == H5FD_MEM_LHEAP) end_names(file, address, block, size);
    if (size < SHORTEST) return true;
    if (memcmp(block, "GCOL", 4) == 0) return sound_heap(file, address);
    return type != H5FD_MEM_BTREE || memcmp(block, "SNOD", 4) != 0 || sound_node(file, block, size);
}

static herr_t noting_read(H5FD_t *head, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, void *buffer) {
    noting_file *file = (noting_file *)head;
    if (type == H5FD_MEM_DRAW && file->note && file->note->armed) {
        file->note->offset = address;
        file->note->length = size;
        file->note->taken = true;
        return 0;
    }
    const haddr_t start = address;
    const size_t whole = size;
    char *to = buffer;
    while (size) {
        ssize_t got = pread(file->fd, to, size, (off_t)address);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
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
    .open = noting_open,
    .close = noting_close,
    .cmp = noting_compare,
    .query = noting_query,
    .get_eoa = noting_get_end_of_allocation,
    .set_eoa = noting_set_end_of_allocation,
    .get_eof = noting_get_end_of_file,
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
    if (file < 0) ups_hdf5_reason(reason);
    if (access_list >= 0) H5Pclose(access_list);
    return file;
}
