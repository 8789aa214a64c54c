/* ups.latent and the chunk around it: lossless on any bits, and no bit of a chunk can change unseen. */
#include "base/hash.h"
#include "base/random.h"
#include "cache/codec/chunk.h"
#include "fixture.h"
#include "latent_codec.h"

/* Blocks of several series, an odd number of frames, a last block of its own size. */
static void trajectories_of_many_blocks_come_back(void **state) {
    enum { TIMES = 1025, SERIES = 500 }; /* 192 series a block */
    size_t count = (size_t)TIMES * SERIES;
    ups_f16 *latents = malloc(count * sizeof *latents), *back = malloc(count * sizeof *back);
    float *floats = malloc(count * sizeof *floats), *expected = malloc(count * sizeof *expected);
    ups_random stream = ups_random_stream(4, UPS_RANDOM_TEST, 0);
    for (size_t i = 0; i < count; i++) {
        size_t frame = i / SERIES, series = i % SERIES;
        latents[i] = (ups_f16)(series < 200 ? 0x3000 + frame : ups_random_u32(stream, i) & 0x80ff);
    }
    latent_codec c = latent_codec_create(TIMES, SERIES);
    latent_encode(&c, latents);
    bool finite;
    ups_latent_orders orders;
    assert_int_equal(ups_latent_decode(c.encoded, c.length, TIMES, SERIES, 0, TIMES, c.scratch, UPS_F16, back, &finite,
                                       &orders, NULL),
                     UPS_OK);
    assert_memory_equal(back, latents, count * sizeof *back);
    assert_true(finite);
    assert_true(orders.blocks[0] > 0 && orders.blocks[1] > 0); /* each block has the order that suits it */
    assert_int_equal(orders.blocks[0] + orders.blocks[1] + orders.blocks[2], (SERIES + 191) / 192);
    assert_int_equal(latent_decode(&c, 1000, 3, UPS_F32, floats, NULL), UPS_OK);
    ups_f16_to_f32(latents + (size_t)1000 * SERIES, expected, (size_t)3 * SERIES);
    assert_memory_equal(floats, expected, (size_t)3 * SERIES * sizeof *floats);
    latent_codec_destroy(&c);
    free(latents);
    free(back);
    free(floats);
    free(expected);
}

/* What version 3 makes of a trajectory, written down: both widths of groups (17 series in groups of 16), all kinds of
 * tokens, extra bits, shared frequencies. */
static void a_trajectory_has_the_bytes_of_the_format_document(void **state) {
    enum { TIMES = 64, SERIES = 17 };
    static const char expected[] =
        "\x03\x00\x00\x00\x11\x00\x00\x00\xd2\x00\x00\x00\x02\x10\x0f\x05\x49\x00\x02\x03\x82\x6e\x00\x81\x92\x03"
        "\x83\xfa\x00\x06\x04\x00\x00\x00\x84\x00\x01\x84\x00\x04\x0d\x00\x83\xed\x06\x1f\x81\x41\x00\x80\xb5\x3c"
        "\x64\x00\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x81\x56\x70\x5f\x0b\x09\x9d\x4f\x01\x00\x82\xcb\xcb\x02\x0b\xe3\x01\x00\x7a\xd3\x0c\x00\xac\x13\x04\x00"
        "\xec\x36\x01\x00\x17\x53\x02\x00\xde\x67\x02\x00\x74\x13\x07\x00\x00\x37\x6a\x07\x28\xb3\xb9\x00\x7a\x4f"
        "\x01\x00\xc0\xfb\xde\x00\xa2\x1b\x40\x00\xc2\xc7\xd7\x06\x12\xa8\x36\xa4\x6c\x84\x7e\xb0\x90\x28\xd8\xe8"
        "\x85\x4c\x62\x66\x45\x2a\x65\x3a\x46\x79\x91\xad\x81\x52\xef\x7d\xa9\xca\x57\x4c\x1c\x0c\x7c\xba\x7c\xba"
        "\x7c\xba\xe5\x62\xe5\x62\xe5\x62\x37\x4d\x37\x4d\x37\x4d\x37\x4d\x37\x4d\x37\x4d\xdd\x05\xdd\x05\xdd\x05"
        "\xaa\x19\xda\x39\xda\x39\xda\x39\x37\x0a\x20\xa9\x7c\xba";
    ups_f16 latents[TIMES * SERIES];
    for (int t = 0; t < TIMES; t++)
        for (int s = 0; s < SERIES; s++)
            latents[t * SERIES + s] = (ups_f16)(0x3c00 + s * 9 + t * (s % 3) + (t * s * 7 % 5 == 3));
    latent_codec c = latent_codec_create(TIMES, SERIES);
    latent_encode(&c, latents);
    assert_int_equal(c.length, sizeof expected - 1);
    assert_memory_equal(c.encoded, expected, sizeof expected - 1);
    latent_codec_destroy(&c);
}

static void headers_and_tables_that_are_not_ours_are_refused(void **state) {
    enum { TIMES = 3, SERIES = 2, HEADER = 8 }; /* so few that they are stored as they are */
    static const ups_f16 latents[TIMES * SERIES] = {1, 2, 3, 5, 8, 13};
    ups_f16 out[TIMES * SERIES];
    ups_error error;
    latent_codec c = latent_codec_create(TIMES, SERIES);
    latent_encode(&c, latents);
    for (int byte = 0; byte < HEADER + 7; byte++) {
        c.encoded[byte] += 9;
        assert_fails(latent_decode(&c, 0, TIMES, UPS_F16, out, &error), UPS_ERR_FORMAT, error, "ups.latent");
        c.encoded[byte] -= 9;
    }
    const size_t whole = c.length;
    for (c.length = 0; c.length < whole; c.length++)
        assert_int_equal(latent_decode(&c, 0, TIMES, UPS_F16, out, &error), UPS_ERR_FORMAT);
    assert_decodes_to(&c, latents);
    latent_codec_destroy(&c);
}

/* Static latents, whose tables are made in part only: what promises less than 8 KiB has few lanes, other blocks many.
 */
static void lanes_are_chosen_by_what_a_block_promises(void **state) {
    enum { SERIES = 4096, LANES = 8 + 4 + 1 };
    static ups_f16 latents[2 * SERIES];
    for (int64_t times = 1; times <= 2; times++) {
        for (int bits = 5; bits <= 13; bits += 4) { /* and one for the sign */
            ups_random stream = ups_random_stream(7, UPS_RANDOM_TEST, (uint32_t)bits);
            for (int i = 0; i < times * SERIES; i++)
                latents[i] = (ups_f16)(ups_random_u32(stream, (uint64_t)i) >> (32 - bits));
            latent_codec c = latent_codec_create(times, SERIES);
            memset(c.scratch, 0xa5, ups_latent_scratch_bytes(times));
            latent_encode(&c, latents);
            assert_int_equal(c.encoded[LANES], times * SERIES * (bits + 1) < 8 * 8192 ? 16 : 64);
            assert_decodes_to(&c, latents);
            latent_codec_destroy(&c);
        }
    }
}

/* A block on a grid, as whose numbers its bytes are read once another grid, or another order, is written over its own:
 * 2047 steps are a number that FP16 has, sums of many are not, nor is 2047 · 2^15. */
static void blocks_on_a_grid_whose_numbers_fp16_does_not_have_are_refused(void **state) {
    enum { TIMES = 40, SERIES = 64, BLOCK = 12, GRID = BLOCK + 2 };
    static ups_f16 latents[TIMES * SERIES], out[TIMES * SERIES];
    static float floats[TIMES * SERIES];
    ups_random stream = ups_random_stream(5, UPS_RANDOM_TEST, 0);
    for (int i = 0; i < TIMES * SERIES; i++) {
        float value = (float)((int)(ups_random_u32(stream, (uint64_t)i) % 4095) - 2047) / 1024;
        ups_f32_to_f16(&value, &latents[i], 1);
    }
    latent_codec c = latent_codec_create(TIMES, SERIES);
    latent_encode(&c, latents);
    assert_int_equal(c.encoded[BLOCK], 0);      /* its order */
    assert_int_equal(c.encoded[GRID], 25 - 10); /* of 1/1024 */
    ups_error error;
    for (int t = 0; t < 4; t++) {
        bool changes_grid = t & 1, as_floats = t & 2, finite;
        c.encoded[GRID] = changes_grid ? 40 : 25 - 10;
        c.encoded[BLOCK] = changes_grid ? 0 : 1;
        assert_fails(ups_latent_decode(c.encoded, c.length, TIMES, SERIES, 0, TIMES, c.scratch,
                                       as_floats ? UPS_F32 : UPS_F16, as_floats ? (void *)floats : (void *)out, &finite,
                                       NULL, &error),
                     UPS_ERR_FORMAT, error, "is damaged");
    }
    c.encoded[GRID] = 25 - 10;
    c.encoded[BLOCK] = 0;
    assert_decodes_to(&c, latents);
    latent_codec_destroy(&c);
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

/* `count` frames from `start` on; the test's own `out` where it wants floats. */
static ups_status decode_chunk(const encoded_chunk *c, int64_t start, int64_t count, ups_dtype dtype, void *out) {
    bool finite;
    return ups_chunk_decode(c->codec, c->shape, c->bytes, c->length, start, count, c->scratch, dtype, out, &finite,
                            NULL, NULL);
}

static void chunks_come_back_whole_and_in_part_with_both_codecs(void **state) {
    bool finite;
    for (int portable = 0; portable < 2; portable++) {
        encoded_chunk c = encode_smooth(portable, (ups_chunk_shape){40, 8, 24});
        size_t frame = c.count / 40;
        assert_int_equal(decode_chunk(&c, 0, 40, UPS_F16, c.out), UPS_OK);
        assert_memory_equal(c.out, c.latents, c.count * sizeof *c.out);
        assert_int_equal(decode_chunk(&c, 17, 6, UPS_F16, c.out), UPS_OK);
        assert_memory_equal(c.out, c.latents + 17 * frame, 6 * frame * sizeof *c.out);
        float *floats = malloc(c.count * sizeof *floats), *expected = malloc(c.count * sizeof *expected);
        assert_int_equal(ups_chunk_decode(c.codec, c.shape, c.bytes, c.length, 5, 30, c.scratch, UPS_F32, floats,
                                          &finite, NULL, NULL),
                         UPS_OK);
        assert_true(finite);
        ups_f16_to_f32(c.latents + 5 * frame, expected, 30 * frame);
        assert_memory_equal(floats, expected, 30 * frame * sizeof *floats);
        free(floats);
        free(expected);
        free_chunk(&c);
    }
}

static void every_single_bit_flip_in_a_chunk_is_found(void **state) {
    for (int portable = 0; portable < 2; portable++) {
        encoded_chunk c = encode_smooth(portable, (ups_chunk_shape){20, 2, 16});
        for (size_t bit = 0; bit < 8 * c.length; bit++) {
            c.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(decode_chunk(&c, 0, 20, UPS_F16, c.out), UPS_ERR_CHECKSUM);
            c.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free_chunk(&c);
    }
}

/* Whoever can write a cache can write a CRC: what lies behind it must be refused or decoded, never run wild. */
static void chunks_forged_with_a_right_crc_do_no_harm(void **state) {
    encoded_chunk c = encode_smooth(false, (ups_chunk_shape){20, 2, 48});
    ups_random stream = ups_random_stream(5, UPS_RANDOM_TEST, 1);
    uint8_t *sound = malloc(c.length);
    memcpy(sound, c.bytes, c.length);
    int refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        memcpy(c.bytes, sound, c.length);
        for (uint64_t k = 0; k <= round % 3; k++) {
            uint64_t at = ups_random_below(stream, 8 * round + k, k == 0 ? 32 : c.length - 4); /* headers above all */
            c.bytes[at] = (uint8_t)ups_random_u32(stream, 8 * round + 4 + k);
        }
        uint32_t crc = ups_crc32c(0, c.bytes, c.length - 4);
        memcpy(c.bytes + c.length - 4, &crc, 4);
        ups_status status = decode_chunk(&c, 0, 20, UPS_F16, c.out);
        refused += status != UPS_OK;
        assert_true(status == UPS_OK || status == UPS_ERR_CHECKSUM || status == UPS_ERR_FORMAT);
    }
    assert_true(refused > 2900);
    free(sound);
    free_chunk(&c);
}

static void truncated_chunks_and_chunks_of_another_shape_are_refused(void **state) {
    encoded_chunk c = encode_smooth(false, (ups_chunk_shape){20, 2, 16});
    const size_t whole = c.length;
    for (c.length = 0; c.length < whole; c.length++)
        assert_int_not_equal(decode_chunk(&c, 0, 20, UPS_F16, c.out), UPS_OK);
    c.shape.times = 19;
    assert_int_equal(decode_chunk(&c, 0, 19, UPS_F16, c.out), UPS_ERR_FORMAT);
    free_chunk(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_of_many_blocks_come_back),
        cmocka_unit_test(a_trajectory_has_the_bytes_of_the_format_document),
        cmocka_unit_test(headers_and_tables_that_are_not_ours_are_refused),
        cmocka_unit_test(lanes_are_chosen_by_what_a_block_promises),
        cmocka_unit_test(blocks_on_a_grid_whose_numbers_fp16_does_not_have_are_refused),
        cmocka_unit_test(chunks_come_back_whole_and_in_part_with_both_codecs),
        cmocka_unit_test(every_single_bit_flip_in_a_chunk_is_found),
        cmocka_unit_test(chunks_forged_with_a_right_crc_do_no_harm),
        cmocka_unit_test(truncated_chunks_and_chunks_of_another_shape_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
