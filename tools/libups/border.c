/* What crosses the library's border: errors, element types, and structs whose size the caller states, so that a program
 * built against an older header goes on working and one built against a newer one is told what this library lacks. */
#include "base/printable.h"
#include "tools/libups/handles.h"

#include <stdio.h>
#include <string.h>

#define SAME_CODE(name) _Static_assert((int)UPS_DATA_ERR_##name == (int)UPS_ERR_##name, "codes are the floors' own")
SAME_CODE(ARGUMENT);
SAME_CODE(IO);
SAME_CODE(FORMAT);
SAME_CODE(CHECKSUM);
SAME_CODE(STALE);
SAME_CODE(NUMERIC);
SAME_CODE(MEMORY);
SAME_CODE(UNSUPPORTED);
SAME_CODE(CANCELLED);

_Static_assert(UPS_DATA_VERSION == UPS_PROJECT_VERSION, "ups.h states the project's version");

int32_t ups_data_version(void) {
    return UPS_DATA_VERSION;
}

const char *ups_data_status_name(ups_data_status status) {
    return ups_status_name((ups_status)status);
}

ups_data_status ups_data_fail(ups_data_error *error, const ups_error *inner) {
    if (error) {
        error->status = (ups_data_status)inner->code;
        ups_printable(inner->message, strlen(inner->message), error->message, sizeof error->message); /* UTF-8 */
    }
    return (ups_data_status)inner->code;
}

ups_status ups_data_take(const char *name, void *own, size_t own_size, const void *given, ups_error *error) {
    size_t size = own_size;
    if (given) memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s.size is %zu: set it to sizeof(%s), as the initialiser does", name,
                        size, name);
    memset(own, 0, own_size);
    if (given) memcpy(own, given, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    if (!given) return UPS_OK;
    const unsigned char *byte = given;
    for (size_t i = own_size; i < size; i++) {
        if (byte[i] == 0) continue;
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s has an option set that this libups (version %d) does not know: it needs a newer one", name,
                        UPS_DATA_VERSION);
    }
    return UPS_OK;
}

ups_status ups_data_give(const char *name, void *given, const void *own, size_t own_size, ups_error *error) {
    if (!given)
        return ups_fail(error, UPS_ERR_ARGUMENT, "the %s to be filled in is NULL: pass the address of one", name);
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s.size is %zu: set it to sizeof(%s), as the initialiser does", name,
                        size, name);
    memset(given, 0, size);
    memcpy(given, own, size < own_size ? size : own_size);
    memcpy(given, &size, sizeof size);
    return UPS_OK;
}

bool ups_data_dtype_known(ups_data_dtype dtype, ups_dtype *inner) {
    switch (dtype) {
    case UPS_DATA_F32:
        *inner = UPS_F32;
        return true;
    case UPS_DATA_F16:
        *inner = UPS_F16;
        return true;
    case UPS_DATA_F64:
        *inner = UPS_F64;
        return true;
    }
    return false;
}

/* Sources decode to these three alone. */
ups_data_dtype ups_data_dtype_of(ups_dtype inner) {
    if (inner == UPS_F64) return UPS_DATA_F64;
    return inner == UPS_F16 ? UPS_DATA_F16 : UPS_DATA_F32;
}

int ups_data_axes(const ups_sample *sample, int64_t shape[UPS_DATA_MAX_RANK], int grid_axis[UPS_DATA_MAX_RANK],
                  int *channel_axis) {
    int rank = 0;
    shape[rank] = sample->times;
    grid_axis[rank++] = -1;
    if (sample->order == UPS_CHANNELS_FIRST) {
        *channel_axis = rank;
        shape[rank] = sample->channels;
        grid_axis[rank++] = -2;
    }
    for (int a = 0; a < sample->dims; a++) {
        shape[rank] = sample->grid[a];
        grid_axis[rank++] = a;
    }
    if (sample->order == UPS_CHANNELS_LAST) {
        *channel_axis = rank;
        shape[rank] = sample->channels;
        grid_axis[rank++] = -2;
    }
    return rank;
}
