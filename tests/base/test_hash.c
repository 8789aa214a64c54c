#include "testing.h"

#include "base/hash.h"

static void crc32_gives_the_value_that_its_catalogue_checks_by(void **state) {
    assert_int_equal(ups_crc32(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(ups_crc32(ups_crc32(0, "1234", 4), "56789", 5), 0xcbf43926);
    assert_int_equal(ups_crc32(7, NULL, 0), 7);
}

static void crc32c_gives_the_values_of_rfc_3720(void **state) {
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    const unsigned char read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                            0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                            0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
    memset(ones, 0xff, sizeof ones);
    for (unsigned char i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = 31 - i;
    }
    assert_int_equal(ups_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(ups_crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(ups_crc32c(0, up, 32), 0x46dd794e);
    assert_int_equal(ups_crc32c(0, down, 32), 0x113fdb5c);
    assert_int_equal(ups_crc32c(0, read_command, 48), 0xd9963a56);
    assert_int_equal(ups_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(ups_crc32c(0, NULL, 0), 0);
}

static void crc32c_continues_where_it_left_off(void **state) {
    for (size_t split = 0; split <= 9; split++) {
        uint32_t crc = ups_crc32c(ups_crc32c(0, "123456789", split), &"123456789"[split], 9 - split);
        assert_int_equal(crc, 0xe3069283);
    }
}

static void xxh3_of_nothing_is_the_published_value(void **state) {
    char hex[33];
    ups_hash_hex(ups_hash_bytes("", 0), hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
}

static void a_hash_in_pieces_equals_the_hash_at_once(void **state) {
    unsigned char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i >> 3);
    ups_hash whole = ups_hash_bytes(bytes, sizeof bytes);
    for (size_t piece = 1; piece < sizeof bytes; piece = piece * 3 + 1) {
        ups_hasher *hasher = ups_hasher_create();
        for (size_t at = 0; at < sizeof bytes; at += piece) {
            ups_hasher_update(hasher, bytes + at, at + piece < sizeof bytes ? piece : sizeof bytes - at);
        }
        ups_hasher_update(hasher, NULL, 0);
        ups_hash pieced = ups_hasher_finish(hasher);
        assert_true(pieced.low == whole.low && pieced.high == whole.high);
    }
}

static void one_flipped_bit_changes_the_hash(void **state) {
    unsigned char bytes[100] = {0};
    ups_hash before = ups_hash_bytes(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ups_hash after = ups_hash_bytes(bytes, sizeof bytes);
        assert_true(after.low != before.low && after.high != before.high);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32_gives_the_value_that_its_catalogue_checks_by),
        cmocka_unit_test(crc32c_gives_the_values_of_rfc_3720),
        cmocka_unit_test(crc32c_continues_where_it_left_off),
        cmocka_unit_test(xxh3_of_nothing_is_the_published_value),
        cmocka_unit_test(a_hash_in_pieces_equals_the_hash_at_once),
        cmocka_unit_test(one_flipped_bit_changes_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
