#include "pipeline/hdf5/bytes.h"

#include "base/files.h"
#include <errno.h>

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
