#include "testing.h"

#include "base/json.h"

static void what_is_published_is_read_back_in_the_order_of_insertion(void **state) {
    const char *path = scratch("a.json");
    ups_error error = {0};
    json_t *written = json_pack("{s:s, s:I, s:f, s:[i,i], s:{}}", "zeta", "ψ", "count", (json_int_t)1 << 53, "alpha",
                                0.1, "list", 1, 2, "inner");
    assert_int_equal(ups_json_publish(path, written, &error), UPS_OK);
    FILE *file = fopen(path, "r");
    char text[500] = {0};
    fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_string_equal(text,
                        "{\n  \"zeta\": \"ψ\",\n  \"count\": 9007199254740992,\n  \"alpha\": 0.10000000000000001,\n"
                        "  \"list\": [\n    1,\n    2\n  ],\n  \"inner\": {}\n}\n");
    json_t *read = NULL;
    assert_int_equal(ups_json_read(path, &read, &error), UPS_OK);
    assert_true(json_equal(read, written));
    json_decref(read);
    json_decref(written);
}

static void values_are_looked_up_by_type(void **state) {
    json_t *object = json_pack("{s:s, s:i, s:f, s:[i], s:{s:i}}", "name", "x", "count", 3, "rate", 0.5, "list", 1,
                               "inner", "deep", 4);
    ups_error error = {0};
    const char *text;
    int64_t integer;
    double real;
    json_t *child;
    assert_int_equal(ups_json_string(object, "name", "f", &text, &error), UPS_OK);
    assert_string_equal(text, "x");
    assert_int_equal(ups_json_integer(object, "count", "f", &integer, &error), UPS_OK);
    assert_int_equal(integer, 3);
    assert_int_equal(ups_json_real(object, "rate", "f", &real, &error), UPS_OK);
    assert_true(real == 0.5);
    assert_int_equal(ups_json_real(object, "count", "f", &real, &error), UPS_OK); /* a whole number is a number */
    assert_true(real == 3);
    assert_int_equal(ups_json_array(object, "list", "f", &child, &error), UPS_OK);
    assert_int_equal(json_array_size(child), 1);
    assert_int_equal(ups_json_object(object, "inner", "f", &child, &error), UPS_OK);
    assert_int_equal(ups_json_integer(child, "deep", "f", &integer, &error), UPS_OK);
    assert_int_equal(integer, 4);
    json_decref(object);
}

static void a_missing_key_and_a_wrong_type_name_the_document_and_the_key(void **state) {
    json_t *object = json_pack("{s:s, s:n}", "name", "x", "nothing");
    ups_error error = {0};
    int64_t integer;
    const char *text;
    json_t *child;
    assert_int_equal(ups_json_integer(object, "count", "zarr.json", &integer, &error), UPS_ERR_FORMAT);
    assert_string_equal(error.message, "zarr.json: the key 'count' is missing; an integer was expected");
    assert_int_equal(ups_json_integer(object, "name", "zarr.json", &integer, &error), UPS_ERR_FORMAT);
    assert_string_equal(error.message, "zarr.json: 'name' is a string; an integer was expected");
    assert_int_equal(ups_json_string(object, "nothing", "zarr.json", &text, &error), UPS_ERR_FORMAT);
    assert_string_equal(error.message, "zarr.json: 'nothing' is null; a string was expected");
    json_t *list = json_array();
    assert_int_equal(ups_json_object(list, "name", "zarr.json", &child, &error), UPS_ERR_FORMAT);
    assert_string_equal(error.message,
                        "zarr.json: an array was found where an object with the key 'name' was expected");
    json_decref(list);
    json_decref(object);
}

static void assert_refused(const char *content, const char *expected) {
    const char *path = scratch("bad.json");
    ups_error error = {0};
    json_t *json = NULL;
    write_text(path, content);
    assert_int_equal(ups_json_read(path, &json, &error), UPS_ERR_FORMAT);
    assert_null(json);
    assert_contains(error.message, path);
    assert_contains(error.message, expected);
}

static void malformed_files_are_refused_with_the_line(void **state) {
    assert_refused("", "the file is empty");
    assert_refused("{\n  \"a\": 1,\n  \"b\": tru\n}\n", ":3:");
    assert_refused("{\"a\": 1", "not valid JSON");
    assert_refused("{\"a\": 1, \"a\": 2}", "duplicate");
    assert_refused("{} x", "end of file expected");
    assert_refused("\"\xff\"", "not valid JSON");
}

static void a_file_that_is_not_there_is_an_io_error_with_its_name(void **state) {
    ups_error error = {0};
    json_t *json = NULL;
    assert_fails(ups_json_read(scratch("absent.json"), &json, &error), UPS_ERR_IO, error,
                 "absent.json: cannot be opened: No such file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_published_is_read_back_in_the_order_of_insertion),
        cmocka_unit_test(values_are_looked_up_by_type),
        cmocka_unit_test(a_missing_key_and_a_wrong_type_name_the_document_and_the_key),
        cmocka_unit_test(malformed_files_are_refused_with_the_line),
        cmocka_unit_test(a_file_that_is_not_there_is_an_io_error_with_its_name),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
