/* HDF5 files with flipped bits and cut ends: each gives an error in words or data, never a crash. The sanitizer build
 * watches. */
#include "tests/base/testing.h"

#include "base/files.h"
#include "base/random.h"
#include "pipeline/layouts.h"
#include "tests/pipeline/hdf5_writer.h"

static const written_form forms[] = {
    {.name = "contiguous"},
    {.name = "contiguous, latest format", .latest = true},
    {.name = "chunked", .chunked = true},
    {.name = "gzip + shuffle", .chunked = true, .gzip = true, .shuffle = true},
    {.name = "gzip, latest format", .chunked = true, .gzip = true, .latest = true},
    {.name = "LZF", .chunked = true, .lzf = true},
    {.name = "Fletcher-32", .chunked = true, .fletcher32 = true},
};
enum { FORMS = sizeof forms / sizeof *forms, LAYOUTS = 5, FLIPS = 300, MOST_BYTES = 1 << 24 };

typedef struct outcome {
    int errors, data;
} outcome;

/* Opens and reads everything of reasonable size; an error must name the file. */
static void open_and_read(const char *path, outcome *seen) {
    ups_source *source;
    ups_error error = {0};
    if (ups_layout_open(path, NULL, &source, &error) != UPS_OK) {
        assert_contains(error.message, "damaged.h5");
        assert_null(source);
        seen->errors++;
        return;
    }
    bool sound = true;
    for (int64_t i = 0; i < source->count && i < 4; i++) {
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, i, &sample, &error), UPS_OK);
        size_t bytes = (size_t)sample.times * ups_sample_frame_bytes(&sample);
        if (bytes > MOST_BYTES || source->limits.stored_bytes > MOST_BYTES) continue;
        void *out = malloc(bytes);
        error.message[0] = 0;
        if (ups_source_read(source, i, (ups_frames){0, sample.times}, out, &error) != UPS_OK) {
            assert_contains(error.message, "damaged.h5");
            sound = false;
        }
        free(out);
    }
    *(sound ? &seen->data : &seen->errors) += 1;
    ups_source_close(source);
}

static void write_file(int layout, const char *path, const written_form *form) {
    if (layout == 0) write_tensor_file(path, form, 4, 11, 45);
    if (layout == 1) write_darcy_file(path, form, 4, 9, 37);
    if (layout == 2) write_seed_file(path, form, 3, 11, 37, 2);
    if (layout == 3) write_compressible_file(path, form, 3, 6, 9, 17);
    if (layout == 4) write_well_file(path, form, 3, 6, 9, 7);
}

typedef void (*damage)(uint8_t *bytes, size_t *length, ups_random stream, uint64_t at);

static void damage_each_form(int times, damage hurt, outcome *seen) {
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
                FILE *file = fopen(scratch("damaged.h5"), "wb");
                assert_non_null(file);
                assert_int_equal(fwrite(bytes, 1, left, file), left);
                assert_int_equal(fclose(file), 0);
                open_and_read(scratch("damaged.h5"), seen);
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
    outcome seen = {0};
    damage_each_form(FLIPS / FORMS, flip, &seen);
    assert_true(seen.errors > 50); /* or the damage did not reach anything */
    assert_true(seen.data > 50);
}

static void a_file_cut_anywhere_is_an_error(void **state) {
    outcome seen = {0};
    damage_each_form(8, cut, &seen);
    assert_int_equal(seen.data, 0);
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
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
