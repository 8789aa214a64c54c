/* A NetCDF-4 file: as every command opens it, and as NetCDF-4 even where another layout would take it; then what the
 * CF conventions make of each variable. */
#include "tests/fuzz/fuzz_source.h"

#include "pipeline/netcdf/cf.h"
#include "pipeline/netcdf/storage.h"
#include <string.h>

enum { MOST_ELEMENTS = 1 << 16 };

static void read_variables(ups_netcdf_file *file, ups_arena *arena) {
    const ups_netcdf_header *header = ups_netcdf_contents(file);
    ups_error error = {0};
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        for (int a = 0; a < variable->rank; a++)
            FUZZ_CHECK(variable->dimensions[a] >= 0 && variable->dimensions[a] < header->dimension_count);
        const ups_netcdf_attribute *units = ups_netcdf_find(variable->attributes, variable->attribute_count, "units");
        if (units && units->type == UPS_NETCDF_CHAR) ups_netcdf_seconds(units->values);
        if (variable->type == UPS_NETCDF_CHAR || variable->type == UPS_NETCDF_OTHER) continue;
        double *values;
        int64_t count;
        if (variable->rank <= 1)
            fuzz_accepted(ups_netcdf_read(file, variable, MOST_ELEMENTS, arena, &values, &count, &error), &error);
    }
}

static void read_as_netcdf(const char *path) {
    ups_error error = {0};
    ups_hdf5_file *hdf5;
    if (!fuzz_accepted(ups_hdf5_open(path, NULL, false, &hdf5, &error), &error)) return;
    ups_netcdf_file *file;
    if (fuzz_accepted(ups_netcdf_open_hdf5(hdf5, &file, &error), &error)) {
        ups_arena *arena = ups_arena_create(0);
        FUZZ_CHECK(arena != NULL);
        read_variables(file, arena);
        ups_arena_destroy(arena);
        ups_netcdf_close(file);
    }
    ups_hdf5_close(hdf5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size % 2)
        fuzz_read_simulation(data, size, false);
    else
        read_as_netcdf(fuzz_file(data, size));
    return 0;
}
