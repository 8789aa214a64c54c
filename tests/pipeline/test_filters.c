/* Filters undone: against vectors that h5py wrote, against the definition written plainly, and against damage. */
#include "base/random.h"
#include "pipeline/storage/filters.h"
#include "tests/base/testing.h"
#include <libdeflate.h>

enum { GUARD = 0xa5 };

static void fill_random(uint8_t *bytes, size_t length, uint32_t item) {
    ups_random stream = ups_random_stream(1, UPS_RANDOM_TEST, item);
    for (size_t i = 0; i < length; i++) bytes[i] = (uint8_t)ups_random_u32(stream, i);
}

/* ---- LZF ---- */

/* What the format says, one byte at a time. */
static size_t decode_plainly(const uint8_t *in, size_t length, uint8_t *out) {
    size_t at = 0, produced = 0;
    while (at < length) {
        size_t token = in[at++];
        if (token < 32) {
            for (size_t i = 0; i <= token; i++) out[produced++] = in[at++];
            continue;
        }
        size_t count = token >> 5;
        if (count == 7) count += in[at++];
        size_t distance = ((token & 31) << 8 | in[at++]) + 1;
        for (size_t i = 0; i < count + 2; i++, produced++) out[produced] = out[produced - distance];
    }
    return produced;
}

static size_t put_run(uint8_t *stream, size_t at, const uint8_t *bytes, size_t count) {
    stream[at++] = (uint8_t)(count - 1);
    memcpy(stream + at, bytes, count);
    return at + count;
}

static size_t put_match(uint8_t *stream, size_t at, size_t distance, size_t count) {
    size_t length = count - 2;
    stream[at++] = (uint8_t)((length < 7 ? length : 7) << 5 | (distance - 1) >> 8);
    if (length >= 7) stream[at++] = (uint8_t)(length - 7);
    stream[at++] = (uint8_t)((distance - 1) & 0xff);
    return at;
}

static void lzf_decodes_what_h5py_wrote(void **state) {
    static const uint8_t stream[] = {1,  0,  0,  224, 29, 0,  2,  1,  2,  3,  224, 48, 2,  64, 60, 31,
                                     4,  5,  6,  7,   8,  9,  10, 11, 12, 13, 14,  15, 16, 17, 18, 19,
                                     20, 21, 22, 23,  24, 25, 26, 27, 28, 29, 30,  31, 32, 33, 34, 35,
                                     13, 36, 37, 38,  39, 40, 41, 42, 43, 44, 45,  46, 47, 48, 49};
    uint8_t expected[150] = {0}, out[150 + UPS_FILTER_SLACK];
    for (int i = 0; i < 60; i++) expected[40 + i] = (uint8_t)(1 + i % 3);
    for (int i = 0; i < 50; i++) expected[100 + i] = (uint8_t)i;
    size_t produced;
    assert_int_equal(ups_lzf_decode(stream, sizeof stream, out, 150, &produced, NULL), UPS_OK);
    assert_int_equal(produced, 150);
    assert_memory_equal(out, expected, 150);
}

static void lzf_copies_matches_of_every_distance_and_length(void **state) {
    enum { LEAD = 8192, LONGEST = 264, ROOM = LEAD + LONGEST + 16 };
    static uint8_t lead[LEAD], stream[2 * ROOM], expected[ROOM], out[ROOM + UPS_FILTER_SLACK];
    fill_random(lead, LEAD, 1);
    static const size_t far[] = {63, 64, 65, 255, 256, 257, 4095, 8191, 8192};
    for (size_t d = 0; d < 40 + sizeof far / sizeof *far; d++) {
        size_t distance = d < 40 ? d + 1 : far[d - 40];
        for (size_t count = 3; count <= LONGEST; count += count < 24 ? 1 : 17) {
            size_t at = 0;
            for (size_t i = 0; i < LEAD; i += 32) at = put_run(stream, at, lead + i, 32);
            at = put_match(stream, at, distance, count);
            at = put_run(stream, at, lead, 5);
            size_t length = decode_plainly(stream, at, expected), produced;
            assert_int_equal(ups_lzf_decode(stream, at, out, ROOM, &produced, NULL), UPS_OK);
            assert_int_equal(produced, length);
            assert_memory_equal(out, expected, length);
        }
    }
}

/* Random tokens that are valid where they stand. */
static size_t random_stream(uint32_t item, uint8_t *stream, size_t most, size_t *produced) {
    ups_random draw = ups_random_stream(2, UPS_RANDOM_TEST, item);
    uint8_t bytes[32];
    size_t at = 0;
    *produced = 0;
    for (uint64_t i = 0; at + 64 < most; i++) {
        if (*produced < 8 || ups_random_below(draw, 4 * i, 3) == 0) {
            size_t count = 1 + ups_random_below(draw, 4 * i + 1, 32);
            fill_random(bytes, count, item + (uint32_t)i);
            at = put_run(stream, at, bytes, count);
            *produced += count;
        } else {
            size_t reach = *produced < 8192 ? *produced : 8192;
            size_t distance = 1 + ups_random_below(draw, 4 * i + 1, reach);
            if (ups_random_below(draw, 4 * i + 2, 2)) distance = 1 + distance % 8;
            size_t count = 3 + ups_random_below(draw, 4 * i + 3, 262);
            at = put_match(stream, at, distance, count);
            *produced += count;
        }
    }
    return at;
}

static void lzf_decodes_random_streams_as_the_definition_does(void **state) {
    enum { MOST = 4096, ROOM = MOST * 132 };
    uint8_t *stream = malloc(MOST), *expected = malloc(ROOM), *out = malloc(ROOM + UPS_FILTER_SLACK);
    for (uint32_t item = 0; item < 50; item++) {
        size_t length, produced;
        size_t at = random_stream(item * 1000, stream, MOST, &length);
        assert_int_equal(decode_plainly(stream, at, expected), length);
        assert_int_equal(ups_lzf_decode(stream, at, out, length, &produced, NULL), UPS_OK);
        assert_int_equal(produced, length);
        assert_memory_equal(out, expected, length);
    }
    free(out);
    free(expected);
    free(stream);
}

static void lzf_never_reads_or_writes_outside_whatever_the_bytes(void **state) {
    enum { ROOM = 3000 };
    for (uint32_t item = 0; item < 3000; item++) {
        size_t length = 1 + item % 300, produced;
        uint8_t *in = malloc(length), *out = malloc(ROOM + UPS_FILTER_SLACK + 1); /* the sanitizer watches both ends */
        fill_random(in, length, item);
        if (item % 2) {
            for (size_t i = 0; i < length; i += 2)
                in[i] &= 0x3f; /* more runs, so that matches have something to copy */
        }
        out[ROOM + UPS_FILTER_SLACK] = GUARD;
        ups_lzf_decode(in, length, out, ROOM, &produced, NULL);
        assert_true(produced <= ROOM);
        assert_int_equal(out[ROOM + UPS_FILTER_SLACK], GUARD);
        free(out);
        free(in);
    }
}

static void lzf_refuses_streams_that_end_early_refer_back_too_far_or_overflow(void **state) {
    uint8_t out[64 + UPS_FILTER_SLACK];
    size_t produced;
    ups_error error;
    const uint8_t short_run[] = {4, 1, 2}, no_distance[] = {0, 1, 0x20}, no_length[] = {0, 1, 0xe0, 0};
    const uint8_t too_far[] = {0, 1, 0x20, 1}, too_long[] = {0, 1, 0xe0, 200, 0};
    assert_fails(ups_lzf_decode(short_run, sizeof short_run, out, 64, &produced, &error), UPS_ERR_FORMAT, error,
                 "cut short");
    assert_int_equal(ups_lzf_decode(no_distance, sizeof no_distance, out, 64, &produced, &error), UPS_ERR_FORMAT);
    assert_int_equal(ups_lzf_decode(no_length, sizeof no_length, out, 64, &produced, &error), UPS_ERR_FORMAT);
    assert_fails(ups_lzf_decode(too_far, sizeof too_far, out, 64, &produced, &error), UPS_ERR_FORMAT, error,
                 "before its start");
    assert_fails(ups_lzf_decode(too_long, sizeof too_long, out, 64, &produced, &error), UPS_ERR_FORMAT, error,
                 "more than a chunk");
}

/* ---- shuffle, Fletcher-32, byte order ---- */

static void unshuffle_is_a_transpose_for_every_element_size_and_length(void **state) {
    uint8_t in[700], out[700];
    fill_random(in, sizeof in, 3);
    for (size_t element = 1; element <= 16; element++) {
        for (size_t length = 0; length <= sizeof in; length += length < 80 ? 1 : 31) {
            memset(out, GUARD, sizeof out);
            ups_unshuffle(in, out, length, element);
            size_t count = length / element;
            for (size_t i = 0; i < count; i++) {
                for (size_t byte = 0; byte < element; byte++)
                    assert_int_equal(out[i * element + byte], in[byte * count + i]);
            }
            for (size_t i = count * element; i < length; i++) assert_int_equal(out[i], in[i]);
            for (size_t i = length; i < sizeof out; i++) assert_int_equal(out[i], GUARD);
        }
    }
}

static void fletcher32_gives_the_checksums_that_hdf5_stored(void **state) {
    uint8_t bytes[257];
    for (int i = 0; i < 257; i++) bytes[i] = (uint8_t)(i + 1);
    assert_int_equal(ups_fletcher32(bytes, 1), 0x01000100);
    assert_int_equal(ups_fletcher32(bytes, 7), 0x1e20100c);
    assert_int_equal(ups_fletcher32(bytes, 8), 0x1e281014);
    assert_int_equal(ups_fletcher32(bytes, 257), 0xf59540c0);
}

static void bytes_swap_in_elements_of_four_and_eight(void **state) {
    uint8_t bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8_t by_four[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
    ups_swap_bytes(bytes, 4, 4);
    assert_memory_equal(bytes, by_four, 16);
    ups_swap_bytes(bytes, 4, 4);
    ups_swap_bytes(bytes, 2, 8);
    for (int i = 0; i < 16; i++) assert_int_equal(bytes[i], i / 8 * 8 + 7 - i % 8);
}

/* ---- the pipeline ---- */

enum { CHUNK = 4096 };

typedef struct chunk_fixture {
    uint8_t plain[CHUNK], shuffled[CHUNK];
    uint8_t *scratch;
} chunk_fixture;

static int set_up(void **state) {
    static chunk_fixture fixture;
    for (int i = 0; i < CHUNK; i++) fixture.plain[i] = (uint8_t)(i % 4 == 3 ? 63 : i / 64);
    for (int i = 0; i < CHUNK; i++) fixture.shuffled[i % 4 * (CHUNK / 4) + i / 4] = fixture.plain[i];
    fixture.scratch = aligned_alloc(64, ups_filters_scratch(CHUNK));
    *state = &fixture;
    return fixture.scratch ? 0 : -1;
}

static int tear_down(void **state) {
    free(((chunk_fixture *)*state)->scratch);
    return 0;
}

/* Shuffle at 0, gzip at 1, Fletcher-32 at 2: applies those the mask does not skip. */
static size_t encode(const chunk_fixture *fixture, uint32_t mask, uint8_t *stored) {
    const uint8_t *bytes = mask & 1 ? fixture->plain : fixture->shuffled;
    size_t length = CHUNK;
    if (mask & 2) {
        memcpy(stored, bytes, length);
    } else {
        struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
        length = libdeflate_zlib_compress(compressor, bytes, CHUNK, stored, 2 * CHUNK);
        libdeflate_free_compressor(compressor);
        assert_true(length > 0);
    }
    if (!(mask & 4)) {
        uint32_t checksum = ups_fletcher32(stored, length);
        for (int i = 0; i < 4; i++) stored[length++] = (uint8_t)(checksum >> 8 * i);
    }
    return length;
}

static const ups_filters all_three = {UPS_COMPRESSOR_GZIP, 1, 0, 4, 2};

static void every_filter_mask_is_respected(void **state) {
    chunk_fixture *fixture = *state;
    static uint8_t stored[2 * CHUNK];
    for (uint32_t mask = 0; mask < 8; mask++) {
        size_t length = encode(fixture, mask, stored);
        const uint8_t *decoded;
        assert_int_equal(ups_filters_undo(&all_three, mask, stored, length, CHUNK, fixture->scratch, &decoded, NULL),
                         UPS_OK);
        assert_memory_equal(decoded, fixture->plain, CHUNK);
    }
}

static void a_flipped_bit_under_a_checksum_is_found(void **state) {
    chunk_fixture *fixture = *state;
    static uint8_t stored[2 * CHUNK];
    ups_error error;
    size_t length = encode(fixture, 0, stored);
    for (size_t bit = 0; bit < 8 * length; bit += 7) {
        const uint8_t *decoded;
        stored[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(ups_filters_undo(&all_three, 0, stored, length, CHUNK, fixture->scratch, &decoded, &error),
                         UPS_ERR_CHECKSUM);
        stored[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void damaged_gzip_and_wrong_sizes_are_errors(void **state) {
    chunk_fixture *fixture = *state;
    static uint8_t stored[2 * CHUNK];
    const uint8_t *decoded;
    ups_error error;
    size_t length = encode(fixture, 4, stored);
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(ups_filters_undo(&all_three, 4, stored, cut, CHUNK, fixture->scratch, &decoded, &error),
                         UPS_ERR_FORMAT);
    }
    assert_fails(ups_filters_undo(&all_three, 4, stored, length, CHUNK - 4, fixture->scratch, &decoded, &error),
                 UPS_ERR_FORMAT, error, "more than a chunk");
    assert_fails(ups_filters_undo(&all_three, 7, stored, 100, CHUNK, fixture->scratch, &decoded, &error),
                 UPS_ERR_FORMAT, error, "100 bytes");
    assert_int_equal(ups_filters_undo(&all_three, 0, stored, 3, CHUNK, fixture->scratch, &decoded, &error),
                     UPS_ERR_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lzf_decodes_what_h5py_wrote),
        cmocka_unit_test(lzf_copies_matches_of_every_distance_and_length),
        cmocka_unit_test(lzf_decodes_random_streams_as_the_definition_does),
        cmocka_unit_test(lzf_never_reads_or_writes_outside_whatever_the_bytes),
        cmocka_unit_test(lzf_refuses_streams_that_end_early_refer_back_too_far_or_overflow),
        cmocka_unit_test(unshuffle_is_a_transpose_for_every_element_size_and_length),
        cmocka_unit_test(fletcher32_gives_the_checksums_that_hdf5_stored),
        cmocka_unit_test(bytes_swap_in_elements_of_four_and_eight),
        cmocka_unit_test_setup_teardown(every_filter_mask_is_respected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flipped_bit_under_a_checksum_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_gzip_and_wrong_sizes_are_errors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
