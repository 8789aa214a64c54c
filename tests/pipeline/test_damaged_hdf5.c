/* HDF5 files with flipped bits and cut ends: each gives an error in words or data, never a crash. The sanitizer build
 * watches. */
#include "tests/base/testing.h"

#include "base/files.h"
#include "base/random.h"
#include "pipeline/layouts/layouts.h"
#include "tests/pipeline/damaged.h"
#include "tests/pipeline/hdf5_writer.h"

static const written_form forms[] = {
    {.name = "contiguous"},
    {.name = "contiguous, latest format", .latest = true},
    {.name = "contiguous, addresses of 4 bytes", .narrow = true},
    {.name = "chunked", .chunked = true},
    {.name = "gzip + shuffle", .chunked = true, .gzip = true, .shuffle = true},
    {.name = "gzip, latest format", .chunked = true, .gzip = true, .latest = true},
    {.name = "LZF", .chunked = true, .lzf = true},
    {.name = "Fletcher-32", .chunked = true, .fletcher32 = true},
};
enum { FORMS = sizeof forms / sizeof *forms, LAYOUTS = 5, FLIPS = 300, MOST_BYTES = 1 << 24 };

static void write_file(int layout, const char *path, const written_form *form) {
    if (layout == 0) write_tensor_file(path, form, 4, 11, 45);
    if (layout == 1) write_darcy_file(path, form, 4, 9, 37);
    if (layout == 2) write_seed_file(path, form, 3, 11, 37, 2);
    if (layout == 3) write_compressible_file(path, form, 3, 6, 9, 17);
    if (layout == 4) write_well_file(path, form, 3, 6, 9, 7);
}

typedef void (*damage)(uint8_t *bytes, size_t *length, ups_random stream, uint64_t at);

static void damage_each_form(int times, damage hurt, damaged_files *seen) {
    ups_error error;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        for (int f = 0; f < FORMS; f++) {
            char *whole;
            size_t length;
            write_file(layout, scratch("whole.h5"), &forms[f]);
            assert_int_equal(ups_read_file(scratch("whole.h5"), MOST_BYTES, &whole, &length, &error), UPS_OK);
            uint8_t *bytes = malloc(length);
            for (int i = 0; i < times; i++) {
                size_t left = length;
                memcpy(bytes, whole, length);
                hurt(bytes, &left, ups_random_stream(5, UPS_RANDOM_TEST, (uint32_t)(layout * FORMS + f)), (uint64_t)i);
                read_damaged("damaged.h5", bytes, left, seen);
            }
            free(bytes);
            free(whole);
        }
    }
}

/* One to four bits; every other time among the first 4096 bytes, where most of the metadata is. */
static void flip(uint8_t *bytes, size_t *length, ups_random stream, uint64_t at) {
    uint64_t range = at % 2 && *length > 4096 ? 4096 : *length;
    uint64_t count = 1 + ups_random_below(stream, 16 * at, 4);
    for (uint64_t i = 1; i <= count; i++)
        bytes[ups_random_below(stream, 16 * at + i, range)] ^=
            (uint8_t)(1u << ups_random_below(stream, 16 * at + 8 + i, 8));
}

static void cut(uint8_t *bytes, size_t *length, ups_random stream, uint64_t at) {
    *length = ups_random_below(stream, at, *length);
}

static void flipped_bits_give_errors_or_data_and_never_a_crash(void **state) {
    damaged_files seen = {0};
    damage_each_form(FLIPS / FORMS, flip, &seen);
    assert_true(seen.refused + seen.unread > 50); /* or the damage did not reach anything */
    assert_true(seen.read > 50);
}

static void a_file_cut_anywhere_is_an_error(void **state) {
    damaged_files seen = {0};
    damage_each_form(8, cut, &seen);
    assert_int_equal(seen.read, 0);
}

/* The bytes of "said.h5", to be freed. */
static char *read_said(size_t *length) {
    char *bytes;
    assert_int_equal(ups_read_file(scratch("said.h5"), MOST_BYTES, &bytes, length, NULL), UPS_OK);
    return bytes;
}

/* A file of compressible flow, open for what else it should say. */
static hid_t begin_said(void) {
    write_compressible_file(scratch("said.h5"), &(written_form){.name = "contiguous"}, 1, 2, 4, 4);
    return H5Fopen(scratch("said.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
}

/* Where the file says which text it means: length, address of the heap, index in the heap. */
static uint8_t *find_reference(char *bytes, size_t length, uint32_t letters) {
    const char *heap = memmem(bytes, length, "GCOL", 4);
    assert_non_null(heap);
    uint8_t wanted[12];
    const uint64_t address = (uint64_t)(heap - bytes);
    memcpy(wanted, &letters, 4);
    memcpy(wanted + 4, &address, 8);
    uint8_t *found = memmem(bytes, length, wanted, sizeof wanted);
    assert_non_null(found);
    return found;
}

static void assert_boundary(const char *bytes, size_t length, const char *boundary) {
    ups_source *source;
    ups_error error = {0};
    write_bytes(scratch("said.h5"), bytes, length);
    if (ups_layout_open(scratch("said.h5"), NULL, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_string_equal(ups_layout_boundary(source, 0), boundary);
    ups_source_close(source);
}

/* Opens damaged bytes, which must be refused. */
static void assert_refused(const char *bytes, size_t length, const char *part) {
    ups_source *source;
    ups_error error = {0};
    write_bytes(scratch("said.h5"), bytes, length);
    assert_fails(ups_layout_open(scratch("said.h5"), NULL, &source, &error), UPS_ERR_FORMAT, error, "said.h5");
    assert_contains(error.message, part);
}

static void a_text_that_its_heap_does_not_hold_is_left_out(void **state) {
    hid_t file = begin_said();
    write_text_attribute(file, "bc", "walls");
    assert_true(H5Fclose(file) >= 0);
    size_t length;
    char *bytes = read_said(&length);
    assert_boundary(bytes, length, "walls");
    uint8_t *reference = find_reference(bytes, length, 5), whole[16];
    memcpy(whole, reference, sizeof whole);
    const struct {
        size_t at, width;
        uint64_t value;
    } wrong[] = {
        {12, 4, 0}, {12, 4, 2},         {12, 4, 77},        {12, 4, 100000},    {12, 4, UINT32_MAX}, /* index */
        {0, 4, 17}, {0, 4, 4000},       {0, 4, UINT32_MAX},                                          /* length */
        {4, 8, 1},  {4, 8, length - 8}, {4, 8, length},     {4, 8, UINT64_MAX}, /* address of the heap */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(reference + wrong[i].at, &wrong[i].value, wrong[i].width);
        assert_boundary(bytes, length, "not said");
        memcpy(reference, whole, sizeof whole);
    }
    free(bytes);
}

/* An enumeration is copied by its base type's size, wherever that leads. */
static void an_enumeration_larger_than_its_message_is_an_error(void **state) {
    hid_t file = begin_said();
    write_flag(file, "flag", true);
    assert_true(H5Fclose(file) >= 0);
    size_t length;
    char *bytes = read_said(&length);
    assert_boundary(bytes, length, "not said");
    char *name = memmem(bytes, length, "FALSE", 5);
    assert_non_null(name);
    const uint32_t sizes[] = {0, 2, 0x2f0001, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memcpy(name - 8, &sizes[i], 4);
        assert_refused(bytes, length, "");
    }
    free(bytes);
}

/* Name, datatype and dataspace of an attribute: three sizes of two bytes just before the name. */
static void an_attribute_whose_parts_do_not_fit_is_an_error(void **state) {
    H5Fclose(begin_said());
    size_t length;
    char *bytes = read_said(&length);
    char *name = memmem(bytes, length, "eta", 4);
    assert_non_null(name);
    for (int part = 1; part <= 3; part++) {
        char *size = name - 8 + 2 * part, whole[2];
        memcpy(whole, size, 2);
        memcpy(size, "\xf0\x7f", 2);
        assert_refused(bytes, length, "attribute");
        memcpy(size, whole, 2);
    }
    free(bytes);
}

#if H5_VERSION_GE(1, 12, 0)
typedef H5O_info1_t object_info;
#else
typedef H5O_info_t object_info;
#endif

/* As a newer library writes them, or damage leaves them. */
static void a_dataset_that_the_library_cannot_open_is_named(void **state) {
    object_info info;
    size_t length;
    write_tensor_file(scratch("said.h5"), &(written_form){.name = "contiguous"}, 2, 3, 5);
    hid_t file = H5Fopen(scratch("said.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(H5Oget_info_by_name1(file, "tensor", &info, H5P_DEFAULT) >= 0);
    assert_true(H5Fclose(file) >= 0);
    char *bytes = read_said(&length);
    bytes[info.addr] = 77; /* the version of its header */
    assert_refused(bytes, length, "'tensor', which this machine's HDF5 library cannot open");
    free(bytes);
}

/* Absurd sizes in damaged metadata make the HDF5 library ask for absurd memory, and cope with getting none. It also
 * forgets to free some of what it read before it saw the damage. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:detect_leaks=0";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits_give_errors_or_data_and_never_a_crash),
        cmocka_unit_test(a_file_cut_anywhere_is_an_error),
        cmocka_unit_test(a_text_that_its_heap_does_not_hold_is_left_out),
        cmocka_unit_test(an_enumeration_larger_than_its_message_is_an_error),
        cmocka_unit_test(an_attribute_whose_parts_do_not_fit_is_an_error),
        cmocka_unit_test(a_dataset_that_the_library_cannot_open_is_named),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
