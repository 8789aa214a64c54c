#include "pipeline/hdf5/bytes.h"

#include "base/files.h"
#include <errno.h>
#include <string.h>

ups_hdf5_sizes ups_hdf5_sizes_of(hid_t file) {
    hsize_t base = 0;
    size_t address = 0, length = 0;
    hid_t creation = H5Fget_create_plist(file);
    bool known = creation >= 0 && H5Pget_userblock(creation, &base) >= 0 &&
                 H5Pget_sizes(creation, &address, &length) >= 0 && address <= 8 && length <= 8;
    if (creation >= 0) H5Pclose(creation);
    return known ? (ups_hdf5_sizes){(int)address, (int)length, base} : (ups_hdf5_sizes){0};
}

bool ups_hdf5_read(int fd, uint64_t end, uint64_t address, void *bytes, size_t length, ups_hdf5_trouble *trouble) {
    if (address > end || length > end - address) return false;
    errno = 0;
    ups_status status = ups_read_at(fd, "", address, bytes, length, NULL);
    if (status == UPS_OK) return true;
    if (status == UPS_ERR_FORMAT) trouble->cut = true;
    if (status != UPS_ERR_FORMAT && trouble->error_number == 0) trouble->error_number = errno;
    return false;
}

/* Layout: "GCOL", version, 3 unused bytes, the collection's size; then objects: index (2 bytes), count (2), unused (4),
 * size, data padded to 8; index 0 is the free rest, whose size counts its header. Both headers are padded to 16 bytes.
 * (HDF5 File Format Specification 3.0, III.E.) */
bool ups_hdf5_find_in_heap(int fd, uint64_t end, const ups_hdf5_sizes *sizes, uint64_t address, uint64_t index,
                           uint64_t *offset, uint64_t *bytes, ups_hdf5_trouble *trouble) {
    enum { HEADER = 16, MOST_OBJECTS = 1 << 16 };
    uint8_t header[HEADER];
    if (!ups_hdf5_read(fd, end, address, header, HEADER, trouble) || memcmp(header, "GCOL", 4) != 0) return false;
    const uint64_t size = ups_hdf5_number(header + 8, sizes->length);
    if (size < HEADER || address > end || size > end - address) return false;
    uint64_t at = HEADER;
    for (int objects = 0; at + HEADER <= size; objects++) {
        if (objects == MOST_OBJECTS || !ups_hdf5_read(fd, end, address + at, header, HEADER, trouble)) return false;
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
