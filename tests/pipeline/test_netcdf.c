/* The classic NetCDF formats: headers written here byte by byte, whole, in part and damaged; and numbers unpacked,
 * against a plain loop. */
#include "tests/base/testing.h"

#include "base/files.h"
#include "base/random.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/netcdf/cf.h"
#include "pipeline/netcdf/header.h"
#include "pipeline/netcdf/storage.h"
#include "tests/pipeline/damaged.h"
#include <errno.h>
#include <math.h>

/* ---- a file, written byte by byte ---- */

typedef struct written {
    uint8_t bytes[4096];
    size_t length;
    int version;
} written;

static void put(written *to, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--) to->bytes[to->length++] = (uint8_t)(value >> (8 * i));
}

static void put_count(written *to, uint64_t value) {
    put(to, value, to->version == 5 ? 8 : 4);
}

static void put_name(written *to, const char *name) {
    size_t length = strlen(name);
    put_count(to, length);
    memcpy(to->bytes + to->length, name, length);
    memset(to->bytes + to->length + length, 0, 4);
    to->length += (length + 3) / 4 * 4;
}

static void put_variable(written *to, const char *name, const int *dimensions, int rank, ups_netcdf_type type,
                         uint64_t offset) {
    put_name(to, name);
    put_count(to, (uint64_t)rank);
    for (int axis = 0; axis < rank; axis++) put_count(to, (uint64_t)dimensions[axis]);
    put(to, 12, 4); /* one attribute */
    put_count(to, 1);
    put_name(to, "scale_factor");
    put(to, UPS_NETCDF_FLOAT, 4);
    put_count(to, 1);
    put(to, 0x3f000000, 4); /* 0.5 */
    put(to, type, 4);
    put_count(to, 12);
    put(to, offset, to->version == 1 ? 4 : 8);
}

enum { POINTS = 5, RECORDS = 3, DATA = 1024, RECORD_BYTES = 4 * POINTS + 12 };

/* `u` float (time, x) and `v` short (time, x), records of 4 + 2 bytes a point, padded, from DATA on; `h` float (x)
 * behind them. */
static void write_header_of(written *to, int version, uint64_t records, uint64_t points) {
    const uint64_t record_bytes = 4 * points + (2 * points + 3) / 4 * 4;
    *to = (written){.version = version};
    memcpy(to->bytes, "CDF", 3);
    to->bytes[3] = (uint8_t)version;
    to->length = 4;
    put_count(to, records);
    put(to, 10, 4);
    put_count(to, 2);
    put_name(to, "time");
    put_count(to, 0);
    put_name(to, "x");
    put_count(to, points);
    put(to, 12, 4);
    put_count(to, 2);
    put_name(to, "title");
    put(to, UPS_NETCDF_CHAR, 4);
    put_count(to, 5);
    memcpy(to->bytes + to->length, "waves\0\0\0", 8);
    to->length += 8;
    put_name(to, "nu");
    put(to, UPS_NETCDF_DOUBLE, 4);
    put_count(to, 1);
    put(to, 0x3fd0000000000000, 8); /* 0.25 */
    put(to, 11, 4);
    put_count(to, 3);
    put_variable(to, "u", (int[]){0, 1}, 2, UPS_NETCDF_FLOAT, DATA);
    put_variable(to, "v", (int[]){0, 1}, 2, UPS_NETCDF_SHORT, DATA + 4 * points);
    put_variable(to, "h", (int[]){1}, 1, UPS_NETCDF_FLOAT,
                 DATA + (records == UINT64_MAX ? RECORDS : records) * record_bytes);
}

static void write_header(written *to, int version, uint64_t records) {
    write_header_of(to, version, records, POINTS);
}

static void write_whole(written *to, int version, uint64_t records) {
    write_header(to, version, records);
    assert_true(to->length <= DATA);
    to->length = DATA;
    for (int r = 0; r < RECORDS; r++) {
        for (int i = 0; i < POINTS; i++) {
            float value = (float)(10 * r + i);
            uint32_t bits;
            memcpy(&bits, &value, 4);
            put(to, bits, 4);
        }
        for (int i = 0; i < POINTS; i++) put(to, (uint64_t)(100 * r + i), 2);
        put(to, 0, 2);
    }
    for (int i = 0; i < POINTS; i++) put(to, 0x40000000, 4); /* 2 */
}

/* Parses a copy that is exactly as long as it may be read, so that the sanitizer sees a step beyond. */
static ups_status parse(const uint8_t *bytes, size_t length, uint64_t file_bytes, ups_arena *arena,
                        ups_netcdf_header *header, size_t *wanted, ups_error *error) {
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, bytes, length);
    ups_status status = ups_netcdf_header_parse(exact, length, file_bytes, arena, header, wanted, error);
    free(exact);
    return status;
}

/* ---- headers ---- */

static const int versions[] = {1, 2, 5};

static void headers_of_all_three_formats_say_the_same(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        ups_netcdf_header header;
        ups_error error;
        size_t wanted;
        ups_arena *arena = ups_arena_create(0);
        write_whole(&file, versions[i], RECORDS);
        assert_int_equal(parse(file.bytes, file.length, file.length, arena, &header, &wanted, &error), UPS_OK);
        assert_int_equal(header.version, versions[i]);
        assert_int_equal(header.records, RECORDS);
        assert_int_equal(header.record_bytes, RECORD_BYTES);
        assert_int_equal(header.dimension_count, 2);
        assert_string_equal(header.dimensions[0].name, "time");
        assert_true(header.dimensions[0].unlimited);
        assert_int_equal(header.dimensions[0].length, RECORDS);
        assert_int_equal(header.dimensions[1].length, POINTS);
        assert_string_equal(ups_netcdf_find(header.attributes, header.attribute_count, "title")->values, "waves");
        assert_true(ups_netcdf_number(ups_netcdf_find(header.attributes, header.attribute_count, "nu"), 0) == 0.25);
        assert_int_equal(header.variable_count, 3);
        assert_true(header.variables[1].record);
        assert_int_equal(header.variables[1].bytes, 2 * POINTS);
        assert_int_equal(header.variables[1].offset, DATA + 4 * POINTS);
        assert_false(header.variables[2].record);
        ups_arena_destroy(arena);
    }
}

static void a_header_read_in_part_says_how_much_to_come_back_with(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        ups_netcdf_header header;
        ups_error error;
        ups_arena *arena = ups_arena_create(0);
        write_header(&file, versions[i], RECORDS);
        for (size_t length = 0; length < file.length; length++) {
            size_t wanted;
            assert_int_not_equal(parse(file.bytes, length, 4096, arena, &header, &wanted, &error), UPS_OK);
            assert_in_range(wanted, length + 1, 4096);
            assert_int_not_equal(parse(file.bytes, length, length, arena, &header, &wanted, &error), UPS_OK);
            assert_int_equal(wanted, 0);
            assert_contains(error.message, "cut short");
        }
        ups_arena_destroy(arena);
    }
}

static void a_streamed_file_has_as_many_records_as_fit(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        ups_netcdf_header header;
        ups_error error;
        size_t wanted;
        ups_arena *arena = ups_arena_create(0);
        write_whole(&file, versions[i], UINT64_MAX);
        assert_int_equal(parse(file.bytes, file.length, DATA + 2 * RECORD_BYTES + 1, arena, &header, &wanted, &error),
                         UPS_OK);
        assert_int_equal(header.records, 2);
        assert_int_equal(header.dimensions[0].length, 2);
        ups_arena_destroy(arena);
    }
}

/* Every field that counts something, with the greatest number it can hold. */
static void absurd_counts_are_refused_before_memory_is_asked_for(void **state) {
    for (int i = 0; i < 3; i++) {
        written whole;
        write_whole(&whole, versions[i], RECORDS);
        int width = versions[i] == 5 ? 8 : 4;
        int refused = 0;
        for (size_t at = 4; at + (size_t)width <= 200; at += 4) {
            written file = whole;
            ups_netcdf_header header;
            ups_error error;
            size_t wanted;
            ups_arena *arena = ups_arena_create(0);
            memset(file.bytes + at, 0x7f, (size_t)width);
            refused += parse(file.bytes, file.length, (uint64_t)1 << 40, arena, &header, &wanted, &error) != UPS_OK;
            assert_true(wanted <= UPS_NETCDF_LARGEST_HEADER);
            ups_arena_destroy(arena);
        }
        assert_true(refused > 20);
    }
}

/* ---- files ---- */

static void records_of_several_variables_are_read_around_their_padding(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        ups_source *source;
        ups_error error;
        float out[2][3][POINTS];
        write_whole(&file, versions[i], RECORDS);
        write_bytes(scratch("whole.nc"), file.bytes, file.length);
        assert_int_equal(ups_layout_open(scratch("whole.nc"), NULL, &source, &error), UPS_OK);
        assert_string_equal(source->class->kind, "netcdf");
        assert_int_equal(source->channels, 3);
        assert_int_equal(ups_source_read(source, 0, (ups_frames){1, 2}, out, &error), UPS_OK);
        for (int t = 0; t < 2; t++) {
            for (int x = 0; x < POINTS; x++) {
                assert_true(out[t][0][x] == 0.5f * (float)(10 * (t + 1) + x));
                assert_true(out[t][1][x] == 0.5f * (float)(100 * (t + 1) + x));
                assert_true(out[t][2][x] == 1);
            }
        }
        ups_source_close(source);
    }
}

/* Sparse files: one of records of more than 4 GiB, one of more records than memory should be spent on. */
static void records_of_any_size_and_number_are_extents(void **state) {
    static const struct { uint64_t records, points; } shapes[] = {{2, 1200000000}, {20000000, 2}};
    for (int i = 0; i < 2; i++) {
        const uint64_t records = shapes[i].records, points = shapes[i].points;
        written file;
        ups_netcdf_file *open_file;
        ups_stored_array array;
        ups_extent extent;
        ups_error error;
        ups_arena *arena = ups_arena_create(0);
        write_header_of(&file, 5, records, points);
        write_bytes(scratch("large.nc"), file.bytes, file.length);
        if (truncate(scratch("large.nc"), (off_t)(DATA + records * 6 * points + 4 * points)) != 0) {
            assert_int_equal(errno, EFBIG); /* a file system that has none so large */
            skip_because("the file system of %s has no files this large, not even sparse ones", scratch_directory);
        }
        assert_int_equal(ups_netcdf_open(scratch("large.nc"), &open_file, &error), UPS_OK);
        const ups_netcdf_variable *v = &ups_netcdf_contents(open_file)->variables[1];
        assert_int_equal(ups_netcdf_map(open_file, v, UPS_F32, 0, arena, &array, &error), UPS_OK);
        ups_region last = {{(int64_t)records - 1, (int64_t)points - 1}, {1, 1}};
        assert_int_equal(ups_array_extents(&array, &last, &extent), 1);
        assert_int_equal(extent.offset, DATA + records * 6 * points - 2);
        assert_int_equal(extent.length, 2);
        ups_netcdf_close(open_file);
        ups_arena_destroy(arena);
        assert_int_equal(unlink(scratch("large.nc")), 0);
    }
}

/* Fewer bytes each time, down to the header alone. */
static void a_file_cut_after_it_was_opened_is_an_error_not_zeros(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        write_whole(&file, versions[i], RECORDS);
        for (size_t length = DATA; length < file.length; length++) {
            ups_source *source;
            ups_error error;
            float out[RECORDS][3][POINTS];
            write_bytes(scratch("cut.nc"), file.bytes, file.length);
            assert_int_equal(ups_layout_open(scratch("cut.nc"), NULL, &source, &error), UPS_OK);
            assert_int_equal(truncate(scratch("cut.nc"), (off_t)length), 0);
            assert_int_not_equal(ups_source_read(source, 0, (ups_frames){0, RECORDS}, out, &error), UPS_OK);
            assert_contains(error.message, "cut.nc");
            ups_source_close(source);
        }
    }
}

static void flipped_bytes_give_errors_or_data_and_never_a_crash(void **state) {
    enum { FLIPS = 1000 };
    damaged_files seen = {0};
    for (int i = 0; i < 3; i++) {
        written whole, header;
        write_whole(&whole, versions[i], RECORDS);
        write_header(&header, versions[i], RECORDS);
        ups_random stream = ups_random_stream(11, UPS_RANDOM_TEST, (uint32_t)i);
        for (uint64_t n = 0; n < FLIPS; n++) {
            written file = whole;
            uint64_t count = 1 + ups_random_below(stream, 16 * n, 3);
            for (uint64_t f = 1; f <= count; f++)
                file.bytes[ups_random_below(stream, 16 * n + f, header.length)] =
                    (uint8_t)ups_random_below(stream, 16 * n + 8 + f, 256);
            read_damaged("damaged.nc", file.bytes, file.length, &seen);
        }
    }
    assert_true(seen.refused > 300); /* or the damage did not reach anything */
    assert_true(seen.unread + seen.read > 300);
}

static void a_file_cut_anywhere_is_an_error(void **state) {
    for (int i = 0; i < 3; i++) {
        written file;
        damaged_files seen = {0};
        int cuts = 0;
        write_whole(&file, versions[i], RECORDS);
        for (size_t length = 3; length < file.length; length += 13, cuts++)
            read_damaged("damaged.nc", file.bytes, length, &seen);
        assert_int_equal(seen.refused, cuts);
    }
}

/* ---- numbers ---- */

/* A stored element as a double, by the plainest way. */
static double stored_value(ups_number number, const uint8_t *at) {
#define VALUE_CASE(number, type)                                                                                       \
    case number: {                                                                                                     \
        type value;                                                                                                    \
        memcpy(&value, at, sizeof value);                                                                              \
        return (double)value;                                                                                          \
    }
    switch (number) {
        VALUE_CASE(UPS_NUMBER_F32, float)
        VALUE_CASE(UPS_NUMBER_F64, double)
        VALUE_CASE(UPS_NUMBER_I8, int8_t)
        VALUE_CASE(UPS_NUMBER_U8, uint8_t)
        VALUE_CASE(UPS_NUMBER_I16, int16_t)
        VALUE_CASE(UPS_NUMBER_U16, uint16_t)
        VALUE_CASE(UPS_NUMBER_I32, int32_t)
        VALUE_CASE(UPS_NUMBER_U32, uint32_t)
        VALUE_CASE(UPS_NUMBER_I64, int64_t)
        VALUE_CASE(UPS_NUMBER_U64, uint64_t)
    }
    return 0;
}

static void numbers_of_every_type_order_and_stride_are_unpacked(void **state) {
    enum { COUNT = 1300, STEP = 3 }; /* more than two blocks */
    static uint8_t stored[COUNT * STEP * 8];
    static double wide[COUNT * 2];
    static float narrow[COUNT * 2];
    for (ups_number number = UPS_NUMBER_F32; number <= UPS_NUMBER_U64; number++) {
        size_t size = ups_number_size(number);
        ups_random stream = ups_random_stream(12, UPS_RANDOM_TEST, number);
        for (size_t i = 0; i < sizeof stored; i++) stored[i] = (uint8_t)ups_random_below(stream, i, 256);
        for (int variant = 0; variant < 16; variant++) {
            bool swapped = variant & 1, strided = variant & 2, single = variant & 4, packed = variant & 8;
            int64_t from_step = (int64_t)size * (strided ? STEP : 1), to_gap = strided ? 2 : 1;
            ups_packing packing = {.number = number, .missing_count = 1, .scaled = packed, .shifted = packed};
            packing.scale = 0.25;
            packing.offset = 3;
            memcpy(packing.missing[0], stored, 8);
            if (swapped) {
                for (size_t b = 0; b < size; b++) packing.missing[0][b] = stored[size - 1 - b];
            }
            ups_dtype dtype = single ? UPS_F32 : UPS_F64;
            void *out = single ? (void *)narrow : (void *)wide;
            ups_unpack(&packing, swapped, stored, from_step, dtype, out, to_gap * (single ? 4 : 8), COUNT);
            for (int64_t i = 0; i < COUNT; i++) {
                uint8_t element[8];
                for (size_t b = 0; b < size; b++)
                    element[b] = stored[i * from_step + (int64_t)(swapped ? size - 1 - b : b)];
                double value = stored_value(number, element);
                if (memcmp(element, packing.missing[0], size) == 0) value = (double)NAN;
                if (packed) value = value * 0.25 + 3;
                double got = single ? (double)narrow[i * to_gap] : wide[i * to_gap];
                double wanted = single ? (double)(float)value : value;
                assert_true(got == wanted || (isnan(got) && isnan(wanted)));
            }
        }
    }
}

static void missing_integers_of_64_bits_are_told_from_their_neighbours(void **state) {
    const int64_t near = INT64_C(9007199254740993), stored[3] = {near - 1, near, near + 1}; /* one double for two */
    ups_netcdf_attribute missing = {"missing_value", UPS_NETCDF_INT64, 1, &near};
    ups_netcdf_variable variable = {
        .name = "n", .type = UPS_NETCDF_INT64, .attribute_count = 1, .attributes = &missing};
    ups_arena *arena = ups_arena_create(0);
    double out[3];
    const ups_packing *packing = ups_netcdf_packing(&variable, UPS_NUMBER_I64, arena);
    ups_unpack(packing, false, (const uint8_t *)stored, 8, UPS_F64, (uint8_t *)out, 8, 3);
    assert_false(isnan(out[0]));
    assert_true(isnan(out[1]));
    assert_false(isnan(out[2]));
    ups_arena_destroy(arena);
}

static void a_missing_value_that_the_type_cannot_hold_means_nothing(void **state) {
    const double beyond = 1e20;
    ups_netcdf_attribute attributes[] = {{"missing_value", UPS_NETCDF_DOUBLE, 1, &beyond}};
    ups_netcdf_variable variable = {
        .name = "n", .type = UPS_NETCDF_BYTE, .attribute_count = 1, .attributes = attributes};
    ups_arena *arena = ups_arena_create(0);
    assert_int_equal(ups_netcdf_packing(&variable, UPS_NUMBER_I8, arena)->missing_count, 0);
    variable.type = UPS_NETCDF_FLOAT; /* a float holds it, rounded; and the default fill value is there too */
    assert_int_equal(ups_netcdf_packing(&variable, UPS_NUMBER_F32, arena)->missing_count, 2);
    ups_arena_destroy(arena);
}

static void units_of_time_are_seconds(void **state) {
    assert_true(ups_netcdf_seconds("hours since 1900-01-01 00:00:0.0") == 3600);
    assert_true(ups_netcdf_seconds("Days since 2000-01-01") == 86400);
    assert_true(ups_netcdf_seconds("s") == 1);
    assert_true(ups_netcdf_seconds("ms") == 1e-3);
    assert_true(ups_netcdf_seconds("m") == 0);
    assert_true(ups_netcdf_seconds("degrees_north") == 0);
    assert_true(ups_netcdf_seconds("") == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_all_three_formats_say_the_same),
        cmocka_unit_test(a_header_read_in_part_says_how_much_to_come_back_with),
        cmocka_unit_test(a_streamed_file_has_as_many_records_as_fit),
        cmocka_unit_test(absurd_counts_are_refused_before_memory_is_asked_for),
        cmocka_unit_test(records_of_several_variables_are_read_around_their_padding),
        cmocka_unit_test(records_of_any_size_and_number_are_extents),
        cmocka_unit_test(a_file_cut_after_it_was_opened_is_an_error_not_zeros),
        cmocka_unit_test(flipped_bytes_give_errors_or_data_and_never_a_crash),
        cmocka_unit_test(a_file_cut_anywhere_is_an_error),
        cmocka_unit_test(numbers_of_every_type_order_and_stride_are_unpacked),
        cmocka_unit_test(missing_integers_of_64_bits_are_told_from_their_neighbours),
        cmocka_unit_test(a_missing_value_that_the_type_cannot_hold_means_nothing),
        cmocka_unit_test(units_of_time_are_seconds),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
