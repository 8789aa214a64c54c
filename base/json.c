#include "base/json.h"

#include "base/files.h"
#include "base/printable.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t size_limit = UINT64_C(1) << 30; /* far above any index UPS writes; a mistaken path is refused */

ups_status ups_json_parse(const char *where, const char *text, size_t length, json_t **json, ups_error *error) {
    json_error_t problem;
    *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (*json) return UPS_OK;
    if (length == 0) return ups_fail(error, UPS_ERR_FORMAT, "%s: the file is empty; JSON was expected", where);
    return ups_fail(error, UPS_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s", where, problem.line, problem.column,
                    problem.text);
}

ups_status ups_json_read(const char *path, json_t **json, ups_error *error) {
    char *bytes = NULL;
    size_t length = 0;
    *json = NULL;
    UPS_TRY(ups_read_regular(path, size_limit, &bytes, &length, error));
    ups_status status = ups_json_parse(path, bytes, length, json, error);
    free(bytes);
    return status;
}

char *ups_json_text(const json_t *json, size_t *length) {
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_ENCODE_ANY);
    if (!text) return NULL;
    *length = strlen(text) + 1;
    text[*length - 1] = '\n'; /* takes the place of the NUL: the text is written by length */
    return text;
}

json_t *ups_json_printable(const char *text) {
    json_t *string = json_string(text);
    if (string) return string;
    const size_t length = strlen(text), room = UPS_PRINTABLE_ROOM * length + 1;
    char *printable = malloc(room);
    if (!printable) return NULL;
    ups_printable(text, length, printable, room);
    string = json_string(printable);
    free(printable);
    return string;
}

static ups_status publish(const char *path, const json_t *json,
                          ups_status (*as)(const char *path, const void *bytes, size_t length, ups_error *error),
                          ups_error *error) {
    size_t length;
    char *text = ups_json_text(json, &length);
    if (!text) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write JSON", path);
    ups_status status = as(path, text, length, error);
    free(text);
    return status;
}

ups_status ups_json_publish(const char *path, const json_t *json, ups_error *error) {
    return publish(path, json, ups_publish_bytes, error);
}

ups_status ups_json_publish_once(const char *path, const json_t *json, ups_error *error) {
    return publish(path, json, ups_publish_bytes_once, error);
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

/* Finds the value of `key`; NULL with the error recorded when it is missing. */
static json_t *find(const json_t *object, const char *key, const char *where, const char *expected, ups_error *error) {
    json_t *value = json_object_get(object, key);
    if (value) return value;
    if (!json_is_object(object)) {
        ups_fail(error, UPS_ERR_FORMAT, "%s: %s was found where an object with the key '%s' was expected", where,
                 object ? type_name(object) : "nothing", key);
    } else {
        ups_fail(error, UPS_ERR_FORMAT, "%s: the key '%s' is missing; %s was expected", where, key, expected);
    }
    return NULL;
}

static ups_status wrong_type(const json_t *value, const char *key, const char *where, const char *expected,
                             ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is %s; %s was expected", where, key, type_name(value), expected);
}

ups_status ups_json_string(const json_t *object, const char *key, const char *where, const char **value,
                           ups_error *error) {
    json_t *found = find(object, key, where, "a string", error);
    if (!found) return UPS_ERR_FORMAT;
    if (!json_is_string(found)) return wrong_type(found, key, where, "a string", error);
    *value = json_string_value(found);
    return UPS_OK;
}

ups_status ups_json_integer(const json_t *object, const char *key, const char *where, int64_t *value,
                            ups_error *error) {
    json_t *found = find(object, key, where, "an integer", error);
    if (!found) return UPS_ERR_FORMAT;
    if (!json_is_integer(found)) return wrong_type(found, key, where, "an integer", error);
    *value = json_integer_value(found);
    return UPS_OK;
}

ups_status ups_json_real(const json_t *object, const char *key, const char *where, double *value, ups_error *error) {
    json_t *found = find(object, key, where, "a number", error);
    if (!found) return UPS_ERR_FORMAT;
    if (!json_is_number(found)) return wrong_type(found, key, where, "a number", error);
    *value = json_number_value(found);
    return UPS_OK;
}

ups_status ups_json_object(const json_t *object, const char *key, const char *where, json_t **value, ups_error *error) {
    json_t *found = find(object, key, where, "an object", error);
    if (!found) return UPS_ERR_FORMAT;
    if (!json_is_object(found)) return wrong_type(found, key, where, "an object", error);
    *value = found;
    return UPS_OK;
}

ups_status ups_json_array(const json_t *object, const char *key, const char *where, json_t **value, ups_error *error) {
    json_t *found = find(object, key, where, "an array", error);
    if (!found) return UPS_ERR_FORMAT;
    if (!json_is_array(found)) return wrong_type(found, key, where, "an array", error);
    *value = found;
    return UPS_OK;
}
