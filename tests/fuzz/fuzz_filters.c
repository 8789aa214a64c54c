/* A stored chunk of an HDF5 dataset: gzip, LZF, shuffle and Fletcher-32 undone, in every combination. The first bytes
 * choose the filters, the mask and the chunk's size; the rest is what is stored. */
#include "tests/fuzz/fuzz.h"

#include "pipeline/storage/filters.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    uint8_t how = fuzz_byte(&input);
    ups_filters filters = UPS_FILTERS_NONE;
    int position = 0;
    if (how & 1) {
        filters.shuffle_position = position++;
        filters.shuffle_bytes = (int)fuzz_from_1_to(&input, 9);
    }
    filters.compressor = (ups_compressor)(how >> 1 & 3);
    if (filters.compressor > UPS_COMPRESSOR_LZF) filters.compressor = UPS_COMPRESSOR_NONE;
    if (filters.compressor != UPS_COMPRESSOR_NONE) filters.compressor_position = position++;
    if (how & 8) filters.fletcher32_position = position++;
    uint32_t mask = how >> 4 & 7;
    uint64_t chunk_bytes = (uint64_t)fuzz_byte(&input) | (uint64_t)(fuzz_byte(&input) & 31) << 8;

    size_t length = input.length, checked = filters.fletcher32_position >= 0 && !(how & 128) ? 4 : 0;
    uint8_t *stored = malloc(length + checked + 1);
    FUZZ_CHECK(stored != NULL);
    if (length) memcpy(stored, input.bytes, length);
    if (checked) { /* the checksum that fits, or damage would never get past it */
        uint32_t sum = ups_fletcher32(stored, length);
        memcpy(stored + length, &sum, checked);
    }
    uint8_t *scratch = fuzz_room(ups_filters_scratch(chunk_bytes));
    const uint8_t *decoded = NULL;
    ups_error error = {0};
    ups_status status =
        ups_filters_undo(&filters, mask, stored, length + checked, chunk_bytes, scratch, &decoded, &error);
    if (fuzz_accepted(status, &error)) {
        FUZZ_CHECK(decoded != NULL);
        uint8_t *copy = malloc(chunk_bytes + 1); /* all of it must be there */
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, decoded, chunk_bytes);
        free(copy);
    }
    free(scratch);
    free(stored);
    return 0;
}
