/* Regions of stored arrays, of random shapes, against a plain copy: any rank, chunk shape, region, with chunks missing.
 */
#include "tests/base/testing.h"

#include "base/random.h"
#include "pipeline/storage/stored_array.h"

typedef struct made_array {
    ups_stored_array array;
    ups_stored_chunk *chunks;
    uint8_t *file;   /* what the array's bytes would be on disk */
    uint8_t *values; /* what decode should give, row-major */
} made_array;

static uint64_t draw(ups_random stream, uint64_t *at, uint64_t bound) {
    return ups_random_below(stream, (*at)++, bound);
}

static int64_t chunk_count(const ups_stored_array *array) {
    int64_t count = 1;
    for (int axis = 0; axis < array->rank; axis++) count *= array->chunk_grid[axis];
    return count;
}

/* Where element `index` of the array lies: its chunk, and its element number there. */
static int64_t locate(const ups_stored_array *array, int64_t index, int64_t *within) {
    int64_t chunk = 0, chunk_stride = 1, stride = 1;
    *within = 0;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        int64_t at = index % array->shape[axis];
        index /= array->shape[axis];
        chunk += at / array->chunk_shape[axis] * chunk_stride;
        *within += at % array->chunk_shape[axis] * stride;
        chunk_stride *= array->chunk_grid[axis];
        stride *= array->chunk_shape[axis];
    }
    return chunk;
}

static void make_array(uint32_t item, made_array *made) {
    ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, item);
    uint64_t at = 0;
    ups_stored_array *array = &made->array;
    *made = (made_array){.array = {.name = "made", .filters = UPS_FILTERS_NONE}};
    array->rank = 1 + (int)draw(stream, &at, UPS_ARRAY_MAX_RANK);
    array->dtype = draw(stream, &at, 2) ? UPS_F64 : UPS_F32;
    array->swapped = draw(stream, &at, 2);
    static const ups_storage storages[] = {UPS_STORAGE_CHUNKED, UPS_STORAGE_CHUNKED, UPS_STORAGE_CONTIGUOUS,
                                           UPS_STORAGE_RECORDS};
    array->storage = storages[draw(stream, &at, 4)];
    uint64_t longest = array->rank <= 4 ? 9 : array->rank <= 6 ? 3 : 2; /* so that all stay small */
    for (int axis = 0; axis < array->rank; axis++) {
        array->shape[axis] = 1 + (int64_t)draw(stream, &at, longest);
        array->chunk_shape[axis] = array->storage == UPS_STORAGE_CHUNKED
                                       ? 1 + (int64_t)draw(stream, &at, longest + longest / 4)
                                       : array->shape[axis];
        if (array->storage == UPS_STORAGE_RECORDS && axis == 0) array->chunk_shape[axis] = 1;
        array->chunk_grid[axis] = (array->shape[axis] + array->chunk_shape[axis] - 1) / array->chunk_shape[axis];
    }
    size_t size = ups_dtype_size(array->dtype), chunk_bytes = size;
    for (int axis = 0; axis < array->rank; axis++) chunk_bytes *= (size_t)array->chunk_shape[axis];
    for (size_t i = 0; i < size; i++) array->fill[i] = (uint8_t)(200 + i);

    int64_t chunks = chunk_count(array), elements = ups_array_elements(array, NULL);
    if (array->storage == UPS_STORAGE_RECORDS) { /* chunks of one entry, and something between them */
        array->offset = 8;
        array->record_stride = chunk_bytes + 4 * draw(stream, &at, 6);
    }
    const size_t stride = array->record_stride ? array->record_stride : chunk_bytes;
    made->chunks = calloc((size_t)chunks, sizeof *made->chunks);
    made->file = malloc(array->offset + (size_t)chunks * stride);
    made->values = malloc((size_t)elements * size);
    for (size_t i = 0; i < array->offset + (size_t)chunks * stride; i++)
        made->file[i] = (uint8_t)draw(stream, &at, 256);
    for (int64_t c = 0; c < chunks; c++) {
        bool written = array->storage != UPS_STORAGE_CHUNKED || draw(stream, &at, 5);
        made->chunks[c] = (ups_stored_chunk){written ? array->offset + (uint64_t)c * stride : UPS_OFFSET_UNWRITTEN,
                                             written ? (uint32_t)chunk_bytes : 0, 0};
    }
    array->chunks = made->chunks;
    for (int64_t e = 0; e < elements; e++) {
        int64_t within;
        const ups_stored_chunk *chunk = &made->chunks[locate(array, e, &within)];
        const uint8_t *from =
            chunk->offset == UPS_OFFSET_UNWRITTEN ? array->fill : made->file + chunk->offset + (size_t)within * size;
        memcpy(made->values + (size_t)e * size, from, size);
    }
    if (array->swapped) ups_swap_bytes(made->values, (size_t)elements, size);
    if (array->storage != UPS_STORAGE_CHUNKED) array->run_axes = (int)draw(stream, &at, (uint64_t)array->rank);
}

static void drop_array(made_array *made) {
    free(made->chunks);
    free(made->file);
    free(made->values);
}

static ups_region draw_region(const ups_stored_array *array, ups_random stream, uint64_t *at) {
    ups_region region;
    for (int axis = 0; axis < array->rank; axis++) {
        region.start[axis] = (int64_t)draw(stream, at, (uint64_t)array->shape[axis]);
        region.count[axis] = 1 + (int64_t)draw(stream, at, (uint64_t)(array->shape[axis] - region.start[axis]));
    }
    return region;
}

/* Decodes a region, into strides where they are not NULL, and the values that belong there into `expected`. */
static void decode_region(const made_array *made, const ups_region *region, const int64_t *strides, uint8_t *out,
                          uint8_t *expected) {
    const ups_stored_array *array = &made->array;
    const size_t size = ups_dtype_size(array->dtype);
    int64_t count = ups_array_extents(array, region, NULL), used;
    ups_extent *extents = calloc((size_t)count + 1, sizeof *extents);
    ups_piece *pieces = calloc((size_t)count + 1, sizeof *pieces);
    uint8_t *scratch = aligned_alloc(64, ups_array_scratch(array) + 64);
    assert_int_equal(ups_array_extents(array, region, extents), count);
    for (int64_t i = 0; i < count; i++) pieces[i] = (ups_piece){made->file + extents[i].offset, extents[i].length};
    ups_status status = strides
                            ? ups_array_decode_strided(array, region, strides, pieces, count, scratch, out, &used, NULL)
                            : ups_array_decode(array, region, pieces, count, scratch, out, &used, NULL);
    assert_int_equal(status, UPS_OK);
    assert_int_equal(used, count);
    for (int64_t e = 0; e < ups_array_elements(array, region); e++) {
        int64_t rest = e, source = 0, stride = 1, to = strides ? 0 : e;
        for (int axis = array->rank - 1; axis >= 0; axis--) {
            int64_t step = rest % region->count[axis];
            source += (region->start[axis] + step) * stride;
            if (strides) to += step * strides[axis];
            rest /= region->count[axis];
            stride *= array->shape[axis];
        }
        memcpy(expected + (size_t)to * size, made->values + (size_t)source * size, size);
    }
    free(scratch);
    free(pieces);
    free(extents);
}

static void any_region_of_any_array_decodes_to_what_a_plain_copy_gives(void **state) {
    for (uint32_t item = 0; item < 1500; item++) {
        made_array made;
        make_array(item, &made);
        uint64_t at = 0;
        ups_region region = draw_region(&made.array, ups_random_stream(4, UPS_RANDOM_TEST, item), &at);
        size_t bytes = (size_t)ups_array_elements(&made.array, &region) * ups_dtype_size(made.array.dtype);
        uint8_t *out = aligned_alloc(64, (bytes + 63) / 64 * 64), *expected = malloc(bytes);
        decode_region(&made, &region, NULL, out, expected);
        assert_memory_equal(out, expected, bytes);
        free(expected);
        free(out);
        drop_array(&made);
    }
}

/* Axes in any order and with gaps between, as fields of several arrays have them; gaps keep what they held. */
static void a_region_decodes_into_any_strides_and_touches_nothing_between(void **state) {
    for (uint32_t item = 0; item < 600; item++) {
        made_array made;
        make_array(item, &made);
        ups_random stream = ups_random_stream(5, UPS_RANDOM_TEST, item);
        uint64_t at = 0;
        int order[UPS_ARRAY_MAX_RANK];
        int64_t strides[UPS_ARRAY_MAX_RANK], room = 1 + (int64_t)draw(stream, &at, 3);
        ups_region region = draw_region(&made.array, stream, &at);
        for (int axis = 0; axis < made.array.rank; axis++) {
            int place = (int)draw(stream, &at, (uint64_t)axis + 1);
            order[axis] = order[place];
            order[place] = axis;
        }
        for (int i = 0; i < made.array.rank; i++) {
            strides[order[i]] = room;
            room = room * region.count[order[i]] + (int64_t)draw(stream, &at, 2);
        }
        size_t bytes = (size_t)room * ups_dtype_size(made.array.dtype);
        uint8_t *out = malloc(bytes), *expected = malloc(bytes);
        memset(out, 0xa5, bytes);
        memset(expected, 0xa5, bytes);
        decode_region(&made, &region, strides, out, expected);
        assert_memory_equal(out, expected, bytes);
        free(expected);
        free(out);
        drop_array(&made);
    }
}

/* A chunk without filters that holds rows of many samples: only the row asked for is read. */
static void of_a_chunk_without_filters_only_what_is_needed_is_read(void **state) {
    enum { SAMPLES = 50, POINTS = 20 };
    static float values[SAMPLES * POINTS];
    for (int i = 0; i < SAMPLES * POINTS; i++) values[i] = (float)i;
    ups_stored_chunk chunk = {0, sizeof values, 0};
    ups_stored_array array = {.name = "made",
                              .rank = 2,
                              .shape = {SAMPLES, POINTS},
                              .dtype = UPS_F32,
                              .storage = UPS_STORAGE_CHUNKED,
                              .chunk_shape = {SAMPLES, POINTS},
                              .chunk_grid = {1, 1},
                              .chunks = &chunk,
                              .filters = UPS_FILTERS_NONE};
    ups_region row = {{7, 0}, {1, POINTS}};
    ups_extent extent;
    int64_t used;
    float out[POINTS];
    assert_int_equal(ups_array_extents(&array, &row, &extent), 1);
    assert_int_equal(extent.offset, 7 * POINTS * sizeof(float));
    assert_int_equal(extent.length, POINTS * sizeof(float));
    ups_piece piece = {(const uint8_t *)values + extent.offset, extent.length};
    assert_int_equal(ups_array_decode(&array, &row, &piece, 1, NULL, out, &used, NULL), UPS_OK);
    assert_memory_equal(out, values + 7 * POINTS, sizeof out);
}

static void channels_kept_in_chunks_of_one_interleave_at_any_row_length(void **state) {
    for (int64_t points = 1; points <= 40; points++) {
        float stored[2][40], *out = malloc((size_t)(2 * points) * sizeof *out); /* no room for a stray write */
        ups_stored_chunk chunks[2] = {{0, (uint32_t)points * 4, 0}, {1000, (uint32_t)points * 4, 0}};
        ups_stored_array array = {.name = "data",
                                  .rank = 2,
                                  .shape = {points, 2},
                                  .storage = UPS_STORAGE_CHUNKED,
                                  .chunk_shape = {points, 1},
                                  .chunk_grid = {1, 2},
                                  .chunks = chunks,
                                  .filters = UPS_FILTERS_NONE};
        for (int64_t p = 0; p < points; p++) stored[0][p] = (float)p, stored[1][p] = -(float)p;
        ups_piece pieces[2] = {{(uint8_t *)stored[0], (uint64_t)points * 4},
                               {(uint8_t *)stored[1], (uint64_t)points * 4}};
        int64_t used;
        memset(out, 0xff, (size_t)(2 * points) * sizeof *out);
        assert_int_equal(ups_array_decode(&array, &(ups_region){{0}, {points, 2}}, pieces, 2, NULL, out, &used, NULL),
                         UPS_OK);
        for (int64_t i = 0; i < 2 * points; i++) assert_true(out[i] == stored[i % 2][i / 2]);
        free(out);
    }
}

static void only_chunks_that_the_region_touches_are_fetched(void **state) {
    static ups_stored_chunk chunks[6];
    ups_stored_array array = {.name = "data",
                              .rank = 2,
                              .shape = {10, 20},
                              .storage = UPS_STORAGE_CHUNKED,
                              .chunk_shape = {4, 10},
                              .chunk_grid = {3, 2},
                              .chunks = chunks,
                              .filters = UPS_FILTERS_NONE};
    for (uint32_t c = 0; c < 6; c++) chunks[c] = (ups_stored_chunk){1000 * c, 160, 0};
    ups_extent extents[6];
    assert_int_equal(ups_array_extents(&array, &(ups_region){{3, 0}, {2, 20}}, extents), 4);
    assert_int_equal(ups_array_extents(&array, &(ups_region){{4, 0}, {4, 20}}, extents), 2);
    assert_int_equal(extents[0].offset, 2000);
    assert_int_equal(extents[1].offset, 3000);
    assert_int_equal(ups_array_extents(&array, &(ups_region){{9, 0}, {0, 20}}, extents), 0);
}

static void pieces_that_were_not_asked_for_are_refused(void **state) {
    made_array made;
    uint32_t item = 0;
    for (;; item++, drop_array(&made)) { /* the first with at least two chunks written */
        make_array(item, &made);
        if (made.array.storage == UPS_STORAGE_CHUNKED && chunk_count(&made.array) > 3) break;
    }
    ups_region all = {{0}, {0}};
    for (int axis = 0; axis < made.array.rank; axis++) all.count[axis] = made.array.shape[axis];
    ups_piece pieces[4096] = {{0}};
    uint8_t *out = aligned_alloc(64, 1 << 20), *scratch = aligned_alloc(64, ups_array_scratch(&made.array) + 64);
    int64_t used, count = ups_array_extents(&made.array, &all, NULL);
    assert_int_equal(ups_array_decode(&made.array, &all, pieces, count, scratch, out, &used, NULL),
                     UPS_ERR_ARGUMENT); /* of no length */
    assert_int_equal(ups_array_decode(&made.array, &all, pieces, 0, scratch, out, &used, NULL), UPS_ERR_ARGUMENT);
    free(scratch);
    free(out);
    drop_array(&made);
}

static void damage_has_the_same_status_whether_or_not_a_message_is_wanted(void **state) {
    const uint8_t stored[12] = {1, 2, 3, 4, 5, 6, 7, 8}; /* eight bytes and a Fletcher-32 that is not theirs */
    ups_stored_chunk chunk = {0, sizeof stored, 0};
    ups_stored_array array = {.name = "data",
                              .rank = 1,
                              .shape = {2},
                              .storage = UPS_STORAGE_CHUNKED,
                              .chunk_shape = {2},
                              .chunk_grid = {1},
                              .chunks = &chunk,
                              .filters = {UPS_COMPRESSOR_NONE, -1, -1, 0, 0, -1}};
    ups_piece piece = {stored, sizeof stored};
    ups_region all = {{0}, {2}};
    float out[2];
    int64_t used;
    ups_error error = {0};
    assert_fails(ups_array_decode(&array, &all, &piece, 1, NULL, out, &used, &error), UPS_ERR_CHECKSUM, error,
                 "chunk (0) of dataset 'data', 12 bytes at offset 0");
    assert_int_equal(ups_array_decode(&array, &all, &piece, 1, NULL, out, &used, NULL), UPS_ERR_CHECKSUM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_region_of_any_array_decodes_to_what_a_plain_copy_gives),
        cmocka_unit_test(a_region_decodes_into_any_strides_and_touches_nothing_between),
        cmocka_unit_test(of_a_chunk_without_filters_only_what_is_needed_is_read),
        cmocka_unit_test(channels_kept_in_chunks_of_one_interleave_at_any_row_length),
        cmocka_unit_test(only_chunks_that_the_region_touches_are_fetched),
        cmocka_unit_test(pieces_that_were_not_asked_for_are_refused),
        cmocka_unit_test(damage_has_the_same_status_whether_or_not_a_message_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
