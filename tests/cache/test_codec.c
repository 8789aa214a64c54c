/* ups.latent and the chunk around it: lossless on any bits, and no bit of a chunk can change unseen. */
#include "base/arena.h"
#include "base/hash.h"
#include "base/random.h"
#include "cache/chunk.h"
#include "cache/codec.h"
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ups_f16 *random_bits(uint32_t item, size_t count) {
    ups_f16 *bits = malloc(count * sizeof *bits);
    ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, item);
    for (size_t i = 0; i < count; i++) bits[i] = (ups_f16)ups_random_u32(stream, i); /* NaN and Inf among them */
    return bits;
}

static const int64_t shapes[][2] = {{1, 1},   {1, 64},  {2, 64},   {2, 16384}, {15, 65},   {16, 63},
                                    {16, 64}, {17, 64}, {17, 130}, {31, 256},  {101, 192}, {201, 320}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static void any_bit_pattern_comes_back_in_every_order_and_shape(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t times = shapes[i][0], series = shapes[i][1];
        size_t count = (size_t)(times * series), length = ups_latent_encoded_bytes(times, series);
        ups_f16 *bits = random_bits((uint32_t)i, count), *back = malloc(count * sizeof *back);
        uint8_t *encoded = malloc(length);
        for (int order = 0; order <= UPS_LATENT_MAX_ORDER; order++) {
            ups_latent_encode(bits, times, series, order, encoded);
            memset(back, 0xee, count * sizeof *back);
            assert_int_equal(ups_latent_decode(encoded, length, times, series, 0, times, back, NULL), UPS_OK);
            assert_memory_equal(bits, back, count * sizeof *back);
        }
        free(bits);
        free(back);
        free(encoded);
    }
}

static void fast_and_plain_decoders_agree_on_any_run_of_frames(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t times = shapes[i][0], series = shapes[i][1];
        size_t count = (size_t)(times * series), length = ups_latent_encoded_bytes(times, series);
        uint8_t *encoded = (uint8_t *)random_bits(100 + (uint32_t)i, (length + 1) / 2);
        ups_f16 *fast = malloc(count * sizeof *fast), *plain = malloc(count * sizeof *plain);
        memcpy(encoded, (uint8_t[]){UPS_LATENT_VERSION, (uint8_t)(i % 3), 0, 0}, 4);
        for (int64_t start = 0; start < times; start += 1 + times / 7) {
            int64_t frames = 1 + (times - start - 1) / 2;
            assert_int_equal(ups_latent_decode(encoded, length, times, series, start, frames, fast, NULL), UPS_OK);
            assert_int_equal(ups_latent_decode_scalar(encoded, length, times, series, start, frames, plain, NULL),
                             UPS_OK);
            assert_memory_equal(fast, plain, (size_t)(frames * series) * sizeof *fast);
        }
        free(encoded);
        free(fast);
        free(plain);
    }
}

/* By hand: 0.0, 1.0 (0x3c00), 2.0 (0x4000), −0.0 (0x8000) map to 0, 15360, 16384, −1. First differences 0, 15360, 1024,
 * −16385; second ones 0, 15360, −14336, −17409; zigzagged 0, 30720, 28671, 34817 = 0x0000, 0x7800, 0x6fff, 0x8801. */
static void bytes_are_those_of_the_format_document(void **state) {
    static const ups_f16 latents[4] = {0x0000, 0x3c00, 0x4000, 0x8000};
    static const uint8_t expected[12] = {1, 2, 0, 0, 0x00, 0x78, 0x6f, 0x88, 0x00, 0x00, 0xff, 0x01};
    uint8_t encoded[12];
    ups_latent_encode(latents, 4, 1, 2, encoded);
    assert_memory_equal(encoded, expected, sizeof expected);
}

static void the_order_chosen_is_the_one_that_fits(void **state) {
    enum { TIMES = 64, SERIES = 128 };
    ups_f16 *noise = random_bits(50, TIMES * SERIES), latents[TIMES * SERIES];
    for (int i = 0; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(0x3c00 + noise[i] % 64); /* nothing to predict */
    assert_int_equal(ups_latent_choose_order(latents, TIMES, SERIES), 0);
    for (int i = 0; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(0x3c00 + i % SERIES + (i / SERIES) * (i % SERIES));
    assert_int_equal(ups_latent_choose_order(latents, TIMES, SERIES), 2); /* straight lines of many slopes */
    for (int i = SERIES; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(latents[i - SERIES] + noise[i] % 64);
    assert_int_equal(ups_latent_choose_order(latents, TIMES, SERIES), 1); /* random walks */
    free(noise);
}

static void headers_that_are_not_ours_are_refused(void **state) {
    uint8_t encoded[4 + 2 * 6] = {UPS_LATENT_VERSION, 1, 0, 0};
    ups_f16 out[6];
    ups_error error;
    assert_int_equal(ups_latent_decode(encoded, sizeof encoded, 3, 2, 0, 3, out, &error), UPS_OK);
    assert_int_equal(ups_latent_decode(encoded, sizeof encoded - 1, 3, 2, 0, 3, out, &error), UPS_ERR_FORMAT);
    for (int byte = 0; byte < 4; byte++) {
        encoded[byte] += 9;
        assert_int_equal(ups_latent_decode(encoded, sizeof encoded, 3, 2, 0, 3, out, &error), UPS_ERR_FORMAT);
        assert_non_null(strstr(error.message, "ups.latent"));
        encoded[byte] -= 9;
    }
}

typedef struct encoded_chunk {
    ups_chunk_codec codec;
    ups_chunk_shape shape;
    ups_f16 *latents;
    size_t count, length;
    uint8_t *bytes;
    void *scratch;
    ups_f16 *out;
} encoded_chunk;

static encoded_chunk encode_smooth(bool portable, ups_chunk_shape shape) {
    encoded_chunk c = {.codec = {.portable = portable}, .shape = shape};
    c.count = ups_chunk_raw_bytes(shape) / sizeof(ups_f16);
    float *values = malloc(c.count * sizeof *values);
    c.latents = malloc(c.count * sizeof *c.latents);
    fixture_latents(1, shape.times, shape.tokens, shape.dim, values);
    ups_f32_to_f16(values, c.latents, c.count);
    free(values);
    ups_chunk_encoder *encoder = ups_chunk_encoder_create(c.codec, shape);
    const uint8_t *bytes;
    assert_int_equal(ups_chunk_encode(encoder, c.latents, &bytes, &c.length, NULL), UPS_OK);
    c.bytes = malloc(c.length);
    memcpy(c.bytes, bytes, c.length);
    ups_chunk_encoder_destroy(encoder);
    c.scratch = ups_aligned_alloc(64, ups_chunk_scratch_bytes(c.codec, shape));
    c.out = malloc(c.count * sizeof *c.out);
    return c;
}

static void free_chunk(encoded_chunk *c) {
    free(c->latents);
    free(c->bytes);
    free(c->out);
    ups_aligned_free(c->scratch);
}

static void chunks_come_back_whole_and_in_part_with_both_codecs(void **state) {
    for (int portable = 0; portable < 2; portable++) {
        encoded_chunk c = encode_smooth(portable, (ups_chunk_shape){40, 8, 24});
        size_t frame = c.count / 40;
        assert_int_equal(ups_chunk_decode(c.codec, c.shape, c.bytes, c.length, 0, 40, c.scratch, c.out, NULL), UPS_OK);
        assert_memory_equal(c.out, c.latents, c.count * sizeof *c.out);
        assert_int_equal(ups_chunk_decode(c.codec, c.shape, c.bytes, c.length, 17, 6, c.scratch, c.out, NULL), UPS_OK);
        assert_memory_equal(c.out, c.latents + 17 * frame, 6 * frame * sizeof *c.out);
        assert_int_equal(ups_chunk_order(c.codec, c.scratch), portable ? -1 : 2);
        free_chunk(&c);
    }
}

static void every_single_bit_flip_in_a_chunk_is_found(void **state) {
    for (int portable = 0; portable < 2; portable++) {
        encoded_chunk c = encode_smooth(portable, (ups_chunk_shape){20, 2, 16});
        for (size_t bit = 0; bit < 8 * c.length; bit++) {
            c.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            ups_error error;
            assert_int_equal(ups_chunk_decode(c.codec, c.shape, c.bytes, c.length, 0, 20, c.scratch, c.out, &error),
                             UPS_ERR_CHECKSUM);
            c.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free_chunk(&c);
    }
}

/* Whoever can write a cache can write a CRC: what lies behind it must be refused or decoded, never run wild. */
static void chunks_forged_with_a_right_crc_do_no_harm(void **state) {
    encoded_chunk c = encode_smooth(false, (ups_chunk_shape){20, 2, 48});
    ups_random stream = ups_random_stream(5, UPS_RANDOM_TEST, 1);
    uint8_t *forged = malloc(c.length);
    int refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        memcpy(forged, c.bytes, c.length);
        for (uint64_t k = 0; k <= round % 3; k++) {
            uint64_t at = ups_random_below(stream, 8 * round + k, k == 0 ? 32 : c.length - 4); /* headers above all */
            forged[at] = (uint8_t)ups_random_u32(stream, 8 * round + 4 + k);
        }
        uint32_t crc = ups_crc32c(0, forged, c.length - 4);
        memcpy(forged + c.length - 4, &crc, 4);
        ups_status status = ups_chunk_decode(c.codec, c.shape, forged, c.length, 0, 20, c.scratch, c.out, NULL);
        refused += status != UPS_OK;
        assert_true(status == UPS_OK || status == UPS_ERR_CHECKSUM || status == UPS_ERR_FORMAT);
    }
    assert_true(refused > 2900);
    free(forged);
    free_chunk(&c);
}

static void truncated_chunks_and_chunks_of_another_shape_are_refused(void **state) {
    encoded_chunk c = encode_smooth(false, (ups_chunk_shape){20, 2, 16});
    for (size_t length = 0; length < c.length; length++) {
        assert_int_not_equal(ups_chunk_decode(c.codec, c.shape, c.bytes, length, 0, 20, c.scratch, c.out, NULL),
                             UPS_OK);
    }
    ups_error error;
    ups_chunk_shape other = {19, 2, 16};
    assert_int_equal(ups_chunk_decode(c.codec, other, c.bytes, c.length, 0, 19, c.scratch, c.out, &error),
                     UPS_ERR_FORMAT);
    free_chunk(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bit_pattern_comes_back_in_every_order_and_shape),
        cmocka_unit_test(fast_and_plain_decoders_agree_on_any_run_of_frames),
        cmocka_unit_test(bytes_are_those_of_the_format_document),
        cmocka_unit_test(the_order_chosen_is_the_one_that_fits),
        cmocka_unit_test(headers_that_are_not_ours_are_refused),
        cmocka_unit_test(chunks_come_back_whole_and_in_part_with_both_codecs),
        cmocka_unit_test(every_single_bit_flip_in_a_chunk_is_found),
        cmocka_unit_test(chunks_forged_with_a_right_crc_do_no_harm),
        cmocka_unit_test(truncated_chunks_and_chunks_of_another_shape_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
