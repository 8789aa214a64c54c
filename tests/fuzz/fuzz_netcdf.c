/* A classic NetCDF file: its header, whole and in part, then what the CF conventions make of it, and its samples. */
#include "tests/fuzz/fuzz_source.h"

#include "pipeline/netcdf/header.h"
#include <stdlib.h>
#include <string.h>

/* The header as it comes in from a slow file: the parser says how much more it wants, and that must be more. */
static bool parse_in_parts(const uint8_t *data, size_t size) {
    size_t length = size < 16 ? size : 16;
    for (;;) {
        uint8_t *part = malloc(length ? length : 1); /* the sanitizer sees the first byte beyond */
        ups_arena *arena = ups_arena_create(0);
        FUZZ_CHECK(part && arena);
        if (length) memcpy(part, data, length);
        ups_netcdf_header header;
        ups_error error = {0};
        size_t wanted = 0;
        ups_status status = ups_netcdf_header_parse(part, length, size, arena, &header, &wanted, &error);
        ups_arena_destroy(arena);
        free(part);
        if (status == UPS_OK) return true;
        fuzz_accepted(status, &error);
        if (wanted == 0) return false;
        FUZZ_CHECK(wanted > length && wanted <= size);
        length = wanted;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (parse_in_parts(data, size)) fuzz_read_simulation(data, size, false);
    return 0;
}
