#include "pipeline/hdf5/driver.h"

#include "base/files.h"
#include "pipeline/hdf5/bytes.h"
#include "pipeline/hdf5/elsewhere.h"
#include "pipeline/hdf5/guards.h"
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

typedef struct noting_file {
    H5FD_t head; /* the library's part */
    int fd;
    dev_t device;
    ino_t inode;
    haddr_t end_of_allocation, end_of_file;
    ups_hdf5_sizes sizes;     /* once the superblock has been read */
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

/* Two more guards: no H5FD_FEAT_DATA_SIEVE, since the sieve buffer of HDF5 1.10 is overrun by shapes that a damaged
 * file claims; and no H5FD_FEAT_ACCUMULATE_METADATA, since after a failed read its accumulator is a null pointer that
 * it copies from. */
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
    const bool sound =
        ups_hdf5_guard_block(&file->sizes, file->fd, file->end_of_file, start, buffer, whole, &file->note->trouble);
    return sound ? 0 : -1;
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
