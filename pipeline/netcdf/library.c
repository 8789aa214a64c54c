#include "pipeline/netcdf/library.h"

#if defined(UPS_HAVE_NETCDF)

#include "pipeline/hdf5/library.h"
#include <errno.h>
#include <netcdf.h>

typedef struct library_variable {
    const char *path, *name;
    struct stat opened; /* the file, when its header was read */
} library_variable;

const char *ups_netcdf_library_version(void) {
    return nc_inq_libvers();
}

static int read_region(const ups_stored_array *array, const ups_region *region, void *out) {
    const library_variable *variable = array->library;
    size_t start[UPS_ARRAY_MAX_RANK], count[UPS_ARRAY_MAX_RANK];
    for (int axis = 0; axis < array->rank; axis++) {
        start[axis] = (size_t)region->start[axis];
        count[axis] = (size_t)region->count[axis];
    }
    int file, number;
    int result = nc_open(variable->path, NC_NOWRITE, &file);
    if (result != NC_NOERR) return result;
    result = nc_inq_varid(file, variable->name, &number);
    if (result == NC_NOERR) {
        result = array->dtype == UPS_F64 ? nc_get_vara_double(file, number, start, count, out)
                                         : nc_get_vara_float(file, number, start, count, out);
    }
    nc_close(file);
    return result;
}

/* The file is as it was. The library reads fill values and zeros from one that lost its end. */
static ups_status check_unchanged(const library_variable *variable, ups_error *error) {
    const struct stat *then = &variable->opened;
    struct stat now = {0};
    if (stat(variable->path, &now) == 0 && now.st_size == then->st_size && now.st_ino == then->st_ino &&
        now.st_mtim.tv_sec == then->st_mtim.tv_sec && now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: was changed while it was being read (%llu bytes at opening, %llu now); what was read of "
                    "variable '%s' is not used. Start again once nothing writes to it",
                    variable->path, (unsigned long long)then->st_size, (unsigned long long)now.st_size, variable->name);
}

static ups_status read_through(const ups_stored_array *array, const ups_region *region, void *out, ups_error *error) {
    UPS_TRY(check_unchanged(array->library, error));
    ups_hdf5_enter();
    int result = read_region(array, region, out);
    ups_hdf5_leave();
    UPS_TRY(check_unchanged(array->library, error));
    if (result == NC_NOERR) return UPS_OK;
    if (result > 0) { /* the system's own */
        errno = result;
        return ups_fail_errno(error, "variable '%s' cannot be read by the NetCDF library", array->name);
    }
    if (result == NC_ENOMEM)
        return ups_fail(error, UPS_ERR_MEMORY, "the NetCDF library found no memory to read variable '%s'", array->name);
    return ups_fail(error, UPS_ERR_FORMAT,
                    "variable '%s' cannot be read by the NetCDF library (%s); the file is damaged, or its disk failed",
                    array->name, nc_strerror(result));
}

ups_status ups_netcdf_leave_to_library(const char *path, const struct stat *opened, const char *name,
                                       const char *fallback_reason, ups_arena *arena, ups_stored_array *array,
                                       ups_error *error) {
    library_variable *variable = UPS_ARENA_NEW(arena, library_variable);
    *variable = (library_variable){
        .path = ups_arena_strdup(arena, path), .name = ups_arena_strdup(arena, name), .opened = *opened};
    array->storage = UPS_STORAGE_LIBRARY;
    array->swapped = false;
    array->fallback_reason = fallback_reason;
    array->read_through = read_through;
    array->library = variable;
    return UPS_OK;
}

#else

const char *ups_netcdf_library_version(void) {
    return NULL;
}

ups_status ups_netcdf_leave_to_library(const char *path, const struct stat *opened, const char *name,
                                       const char *fallback_reason, ups_arena *arena, ups_stored_array *array,
                                       ups_error *error) {
    return ups_fail(
        error, UPS_ERR_UNSUPPORTED,
        "%s: variable '%s' would have to be read by the NetCDF-C library (%s), which this build is without: "
        "install it (Debian: libnetcdf-dev) and build UPS again",
        path, name, fallback_reason);
}

#endif
