/* Safetensors and parameters in files: what is written is read back, and no malformed file gets through or leaves a
 * mark. */
#include "base/files.h"
#include "base/random.h"
#include "model/device.h"
#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include "model/parameters/safetensors.h"
#include "tests/model/claims.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static ups_device *device;

static int setup(void **state) {
    return make_scratch(state) != 0 || ups_device_open(&(ups_device_options){.name = "cpu"}, &device, NULL) != UPS_OK;
}

static int teardown(void **state) {
    ups_device_close(device);
    return remove_scratch(state);
}

/* Writes length + header + data bytes (zeros). */
static const char *write_raw(const char *header, size_t data) {
    const char *path = scratch("raw.safetensors");
    FILE *file = fopen(path, "wb");
    uint64_t length = strlen(header);
    fwrite(&length, sizeof length, 1, file);
    fputs(header, file);
    for (size_t i = 0; i < data; i++) fputc(0, file);
    fclose(file);
    return path;
}

static void refuses(const char *header, size_t data, const char *why) {
    ups_safetensors *file;
    const char *path = write_raw(header, data);
    ups_status status = ups_safetensors_open(path, &file, &failure);
    if (status != UPS_ERR_FORMAT) fail_msg("accepted: %s", header);
    assert_null(file);
    if (!strstr(failure.message, path) || !strstr(failure.message, why))
        fail_msg("%s\n said: %s", header, failure.message);
}

static void accepts(const char *header, size_t data) {
    ups_safetensors *file;
    ok(ups_safetensors_open(write_raw(header, data), &file, &failure));
    ups_safetensors_close(file);
}

CLAIM(malformed_headers_are_refused_with_the_reason) {
    refuses("", 0, "not JSON");
    refuses("{", 0, "not JSON");
    refuses("[]", 0, "not a JSON object");
    refuses("{} trailing", 0, "not JSON");
    refuses("{\"a\": 1}", 0, "'a' must have exactly");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'a' must have exactly");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":0}}", 4, "'a' must have exactly");
    refuses("{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'a' must have exactly");
    refuses("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F31'");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "axis 0");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,\"2\"],\"data_offsets\":[0,4]}}", 4, "axis 1");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "axis 0");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "rank 9");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
            "impossibly large");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0, "not JSON");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "not [begin, end]");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "not [begin, end]");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "not [begin, end]");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "4 bytes where its shape and F32 need 8");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "ends at byte 8 of 4");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "1 bytes at its end");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "the one before it ends at 0");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
            8, "reaches to 8");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
            "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
            8, "not JSON: duplicate");
    refuses("{\"__metadata__\":[]}", 0, "not an object");
    refuses("{\"__metadata__\":{\"step\":3}}", 0, "'step' is not text");
}

CLAIM(what_the_format_allows_is_accepted) {
    accepts("{}", 0);
    accepts("{}      ", 0);
    accepts("{\"__metadata__\":{\"format\":\"pt\"}}", 0);
    accepts("{\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
    accepts("{\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[4,12]},"
            "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[4,4]},"
            "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]}}",
            12);
}

CLAIM(files_that_are_no_safetensors_are_refused_before_memory_is_asked_for) {
    ups_safetensors *file;
    const char *path = scratch("short");
    ok(ups_publish_bytes(path, "1234", 4, &failure));
    refused(ups_safetensors_open(path, &file, &failure), UPS_ERR_FORMAT, "4 bytes are too few");
    ok(ups_publish_bytes(path, "", 0, &failure));
    assert_int_equal(ups_safetensors_open(path, &file, &failure), UPS_ERR_FORMAT);
    ok(ups_publish_bytes(path, "\x89HDF\r\n\x1a\n and so on", 18, &failure));
    refused(ups_safetensors_open(path, &file, &failure), UPS_ERR_FORMAT, "not safetensors");
    refused(ups_safetensors_open(scratch("absent"), &file, &failure), UPS_ERR_IO, "absent");
    assert_int_equal(ups_safetensors_open(scratch_directory, &file, &failure), UPS_ERR_FORMAT);
}

CLAIM(tensors_come_back_as_they_were_written) {
    const float a[] = {1, 2, 3, 4, 5, 6};
    const uint16_t b[] = {7, 8, 9};
    const char *path = scratch("two.safetensors");
    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    ups_safetensors_writer_declare(writer, "a \"quoted\" naïve name", UPS_F32, 2, (int64_t[]){2, 3});
    ups_safetensors_writer_declare(writer, "b", UPS_BF16, 1, (int64_t[]){3});
    ups_safetensors_writer_metadata(writer, "step", "12");
    ok(ups_safetensors_writer_begin(writer, path, &failure));
    assert_false(ups_path_exists(path));
    ok(ups_safetensors_writer_append(writer, a, 8, &failure)); /* in pieces */
    ok(ups_safetensors_writer_append(writer, a + 2, 16, &failure));
    ok(ups_safetensors_writer_append(writer, b, sizeof b, &failure));
    ok(ups_safetensors_writer_commit(writer, &failure));

    ups_safetensors *file;
    ok(ups_safetensors_open(path, &file, &failure));
    assert_int_equal(ups_safetensors_count(file), 2);
    assert_string_equal(ups_safetensors_metadata(file, "step"), "12");
    assert_null(ups_safetensors_metadata(file, "epoch"));
    const ups_safetensor *first = ups_safetensors_find(file, "a \"quoted\" naïve name");
    assert_ptr_equal(first, ups_safetensors_get(file, 0));
    assert_int_equal(first->offset % 8, 0);
    assert_int_equal(first->rank, 2);
    assert_int_equal(first->size[1], 3);
    float read_a[6];
    uint16_t read_b[3];
    ok(ups_safetensors_read(file, first, read_a, &failure));
    ok(ups_safetensors_read(file, ups_safetensors_find(file, "b"), read_b, &failure));
    assert_memory_equal(read_a, a, sizeof a);
    assert_memory_equal(read_b, b, sizeof b);
    assert_null(ups_safetensors_find(file, "c"));
    ups_safetensors_close(file);
}

CLAIM(an_unfinished_file_never_appears) {
    const char *path = scratch("unfinished.safetensors");
    float value = 1;
    for (int k = 0; k < 2; k++) {
        ups_safetensors_writer *writer = ups_safetensors_writer_create();
        ups_safetensors_writer_declare(writer, "a", UPS_F32, 1, (int64_t[]){2});
        ok(ups_safetensors_writer_begin(writer, path, &failure));
        ok(ups_safetensors_writer_append(writer, &value, sizeof value, &failure));
        if (k) ups_safetensors_writer_abandon(writer);
        if (!k) assert_int_equal(ups_safetensors_writer_commit(writer, &failure), UPS_ERR_ARGUMENT);
        assert_false(ups_path_exists(path));
    }
    assert_int_equal(count_entries(scratch_directory, "partial"), 0);
}

static const ups_init normal = {.kind = UPS_INIT_NORMAL, .scale = 1};
static const ups_init ones = {.kind = UPS_INIT_ONES};

static ups_parameters *make_parameters(uint64_t seed, int64_t width, bool extra) {
    ups_parameters *parameters = ups_parameters_create();
    ups_parameters_add(parameters, "encoder.w", 2, (int64_t[]){width, 7}, normal);
    ups_parameters_add(parameters, "operator.gain", 1, (int64_t[]){5}, ones);
    if (extra) ups_parameters_add(parameters, "operator.extra", 1, (int64_t[]){3}, normal);
    ups_parameters_add(parameters, "operator.b", 1, (int64_t[]){70},
                       (ups_init){.kind = UPS_INIT_UNIFORM, .scale = 0.5f});
    ok(ups_parameters_allocate(parameters, device, true, UPS_BF16, seed, &failure));
    return parameters;
}

static float *values_of(ups_parameters *parameters) {
    size_t bytes = sizeof(float) * (size_t)ups_parameters_elements(parameters);
    float *host = malloc(bytes);
    ok(device->class->download(device, host, ups_parameters_values(parameters), bytes, &failure));
    return host;
}

CLAIM(parameters_lie_in_reverse_order_padded_with_zeros_and_start_as_named) {
    ups_parameters *p = make_parameters(1, 4, false), *larger = make_parameters(1, 4, true),
                   *other = make_parameters(2, 4, false);
    assert_int_equal(ups_parameters_count(p), 3);
    assert_int_equal(ups_parameters_get(p, 2)->offset, 0);
    assert_int_equal(ups_parameters_get(p, 1)->offset, 128);
    assert_int_equal(ups_parameters_get(p, 0)->offset, 192);
    assert_int_equal(ups_parameters_elements(p), 256);
    assert_int_equal(ups_parameters_trainable(p), 28 + 5 + 70);
    float *v = values_of(p), *with_extra = values_of(larger), *another_seed = values_of(other);
    for (int i = 0; i < 70; i++) assert_true(v[i] >= -0.5f && v[i] < 0.5f);
    for (int i = 70; i < 128; i++) assert_true(v[i] == 0);
    for (int i = 0; i < 5; i++) assert_true(v[128 + i] == 1);
    for (int i = 192 + 28; i < 256; i++) assert_true(v[i] == 0);
    int64_t moved = ups_parameters_get(larger, 0)->offset;
    assert_int_equal(moved, 256);
    assert_memory_equal(with_extra + moved, v + 192, 28 * sizeof *v); /* one layer more changes no other's start */
    assert_true(memcmp(another_seed, v, 70 * sizeof *v) != 0);
    free(another_seed);
    free(with_extra);
    free(v);
    ups_parameters_destroy(other);
    ups_parameters_destroy(larger);
    ups_parameters_destroy(p);
}

CLAIM(parameters_are_loaded_as_saved_the_bf16_copy_too) {
    const char *path = scratch("saved.safetensors");
    ups_parameters *a = make_parameters(1, 4, false), *b = make_parameters(2, 4, false);
    ok(ups_parameters_save(a, path, &failure));
    ok(ups_parameters_load(b, path, true, &failure));
    float *x = values_of(a), *y = values_of(b);
    assert_memory_equal(x, y, sizeof *x * 256);
    uint16_t half_a[256], half_b[256];
    ok(device->class->download(device, half_a, ups_parameters_weights(a)->compute, sizeof half_a, &failure));
    ok(device->class->download(device, half_b, ups_parameters_weights(b)->compute, sizeof half_b, &failure));
    assert_memory_equal(half_a, half_b, sizeof half_a);
    free(y);
    free(x);
    ups_parameters_destroy(b);
    ups_parameters_destroy(a);
}

static void refuses_to_load(ups_parameters *parameters, const char *path, bool strict, const char *why) {
    float *before = values_of(parameters);
    assert_int_equal(ups_parameters_load(parameters, path, strict, &failure), UPS_ERR_FORMAT);
    if (!strstr(failure.message, path) || !strstr(failure.message, why)) fail_msg("it said: %s", failure.message);
    float *after = values_of(parameters);
    assert_memory_equal(before, after, sizeof *before * (size_t)ups_parameters_elements(parameters));
    free(after);
    free(before);
}

CLAIM(files_of_another_model_are_refused_and_change_nothing) {
    const char *path = scratch("model.safetensors");
    ups_parameters *plain = make_parameters(1, 4, false), *extra = make_parameters(2, 4, true),
                   *wide = make_parameters(3, 6, false);
    ok(ups_parameters_save(extra, path, &failure));
    refuses_to_load(plain, path, true, "'operator.extra' is no part of this model");
    ok(ups_parameters_load(plain, path, false, &failure));
    ok(ups_parameters_save(plain, path, &failure));
    refuses_to_load(extra, path, true, "no tensor 'operator.extra'");
    ok(ups_parameters_load(extra, path, false, &failure));
    refuses_to_load(wide, path, true, "'encoder.w' has shape (4, 7) where the model has (6, 7)");
    refuses_to_load(wide, path, false, "'encoder.w' has shape");
    refuses_to_load(plain,
                    write_raw("{\"operator.b\":{\"dtype\":\"F16\",\"shape\":[70],\"data_offsets\":[0,140]}}", 140),
                    false, "is F16; F32 was expected");
    ups_parameters_destroy(wide);
    ups_parameters_destroy(extra);
    ups_parameters_destroy(plain);
}

CLAIM(weights_that_are_not_finite_are_refused_naming_the_tensor_and_change_nothing) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const char *path = scratch("diverged.safetensors");
    ups_parameters *sound = make_parameters(1, 4, false), *diverged = make_parameters(2, 4, false);
    for (int i = 0; i < 3; i++) {
        float *values = ups_parameters_values(diverged), before = values[3];
        values[3] = bad[i];
        ok(ups_parameters_save(diverged, path, &failure));
        values[3] = before;
        float *kept = values_of(sound);
        assert_int_equal(ups_parameters_load(sound, path, true, &failure), UPS_ERR_NUMERIC);
        if (!strstr(failure.message, path) || !strstr(failure.message, "tensor 'operator.b' holds 1 values") ||
            !strstr(failure.message, "element 3") || !strstr(failure.message, "restore it")) {
            fail_msg("it said: %s", failure.message);
        }
        float *after = values_of(sound);
        assert_memory_equal(kept, after, sizeof *kept * (size_t)ups_parameters_elements(sound));
        free(after);
        free(kept);
    }
    ups_parameters_destroy(diverged);
    ups_parameters_destroy(sound);
}

/* Truncations are found for certain; flips in the data are not the format's business, but nothing may crash. */
CLAIM(truncated_and_damaged_files_never_crash_and_truncated_ones_are_refused) {
    const char *path = scratch("damaged.safetensors");
    ups_parameters *p = make_parameters(1, 4, false);
    ok(ups_parameters_save(p, path, &failure));
    char *bytes;
    size_t length;
    ok(ups_read_file(path, 1 << 20, &bytes, &length, &failure));
    for (size_t cut = 0; cut < length; cut += cut < 400 ? 1 : 37) {
        FILE *file = fopen(path, "wb");
        fwrite(bytes, 1, cut, file);
        fclose(file);
        refuses_to_load(p, path, true, "");
    }
    uint64_t header = 0;
    memcpy(&header, bytes, sizeof header);
    ups_random flips = ups_random_stream(1, UPS_RANDOM_TEST, 0);
    int refused = 0;
    for (uint64_t k = 0; k < 500; k++) {
        uint64_t at = ups_random_below(flips, 2 * k, 8 + header);
        bytes[at] ^= (char)(1 << ups_random_below(flips, 2 * k + 1, 8));
        FILE *file = fopen(path, "wb");
        fwrite(bytes, 1, length, file);
        fclose(file);
        ups_status status = ups_parameters_load(p, path, true, &failure);
        assert_true(status == UPS_OK || (status == UPS_ERR_FORMAT && strstr(failure.message, path)));
        refused += status != UPS_OK;
        bytes[at] ^= (char)(1 << ups_random_below(flips, 2 * k + 1, 8));
    }
    assert_true(refused > 400); /* the rest: trailing spaces that turn into others */
    free(bytes);
    ups_parameters_destroy(p);
}

CLAIM(one_file_holds_several_buffers_and_a_part_of_the_names) {
    const char *path = scratch("checkpoint.safetensors");
    ups_parameters *p = make_parameters(1, 4, false);
    float *host = values_of(p);
    void *moment, *average;
    size_t bytes = 256 * sizeof(float);
    ok(device->class->allocate(device, bytes, &moment, &failure));
    ok(device->class->allocate(device, bytes, &average, &failure));
    float numbers[256], zeros[256] = {0};
    for (int i = 0; i < 256; i++) numbers[i] = (float)i;
    ok(device->class->upload(device, moment, numbers, bytes, &failure));
    const ups_parameter_buffer buffers[] = {{.prefix = "", .values = ups_parameters_values(p)},
                                            {.prefix = "moment.", .values = moment},
                                            {.prefix = "ema.", .values = average}};
    json_t *metadata = json_pack("{s:s}", "step", "41");
    ok(ups_parameters_save_buffers(p, "operator.", buffers, 3, NULL, metadata, path, &failure));
    json_decref(metadata);

    ups_safetensors *file;
    ok(ups_safetensors_open(path, &file, &failure));
    assert_int_equal(ups_safetensors_count(file), 6);
    assert_non_null(ups_safetensors_find(file, "moment.operator.gain"));
    assert_null(ups_safetensors_find(file, "encoder.w"));
    assert_string_equal(ups_safetensors_metadata(file, "step"), "41");
    ups_safetensors_close(file);

    ok(device->class->upload(device, moment, zeros, bytes, &failure));
    ok(ups_parameters_load_buffers(p, "operator.", buffers, 3, path, true, &failure));
    float back[256];
    ok(device->class->download(device, back, moment, bytes, &failure));
    assert_memory_equal(back, numbers, 70 * sizeof *back);            /* operator.b */
    assert_memory_equal(back + 128, numbers + 128, 5 * sizeof *back); /* operator.gain */
    assert_true(back[192] == 0);                                      /* encoder.w stayed */
    refused(ups_parameters_load_buffers(p, "operator.", buffers, 2, path, true, &failure), UPS_ERR_FORMAT, "'ema.");
    assert_int_equal(ups_parameters_load_buffers(p, NULL, buffers, 3, path, true, &failure), UPS_ERR_FORMAT);
    device->class->release(device, average);
    device->class->release(device, moment);
    free(host);
    ups_parameters_destroy(p);
}

CLAIM(saving_where_one_may_not_write_says_so_and_leaves_nothing) {
    ups_parameters *p = make_parameters(1, 4, false);
    refused(ups_parameters_save(p, "/proc/nowhere/model.safetensors", &failure), UPS_ERR_IO, "/proc/nowhere");
    ups_parameters_destroy(p);
}

int main(void) {
    return run_claims(setup, teardown, NULL);
}
