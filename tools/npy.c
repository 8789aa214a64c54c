#include "tools/npy.h"

#include "base/files.h"
#include <stdio.h>
#include <string.h>

static const char *description(ups_dtype dtype) {
    switch (dtype) {
    case UPS_F32:
        return "<f4";
    case UPS_F64:
        return "<f8";
    case UPS_F16:
        return "<f2";
    case UPS_I32:
        return "<i4";
    default:
        return NULL;
    }
}

/* Magic, version, the header's length, and a Python dict padded with blanks so that the data start at a multiple of 64.
 */
static size_t write_header(const char *type, int rank, const int64_t *shape, char header[512]) {
    enum { PREFIX = 10, ALIGNMENT = 64 };
    size_t used = PREFIX;
    used += (size_t)snprintf(header + used, 512 - used, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (int axis = 0; axis < rank; axis++) {
        const char *separator = axis + 1 < rank ? ", " : rank == 1 ? "," : "";
        used += (size_t)snprintf(header + used, 512 - used, "%lld%s", (long long)shape[axis], separator);
    }
    used += (size_t)snprintf(header + used, 512 - used, "), }");
    size_t total = (used + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(header + used, ' ', total - used);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - PREFIX) & 0xff);
    header[9] = (char)((total - PREFIX) >> 8);
    return total;
}

ups_status ups_npy_write(const char *path, ups_dtype dtype, int rank, const int64_t *shape, const void *elements,
                         ups_error *error) {
    enum { MAXIMUM_AXES = 8 };
    const char *type = description(dtype);
    if (!type || rank < 0 || rank > MAXIMUM_AXES)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: an array of %s with %d axes cannot be written as NPY", path,
                        ups_dtype_name(dtype), rank);
    char header[512];
    size_t header_bytes = write_header(type, rank, shape, header);
    size_t bytes = ups_dtype_size(dtype);
    for (int axis = 0; axis < rank; axis++) bytes *= (size_t)shape[axis];

    ups_publication *publication;
    ups_remove_partials_of(path);
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = ups_publish_append(publication, header, header_bytes, error);
    if (status == UPS_OK) status = ups_publish_append(publication, elements, bytes, error);
    if (status == UPS_OK) return ups_publish_commit(publication, error);
    ups_publish_abandon(publication);
    return status;
}
