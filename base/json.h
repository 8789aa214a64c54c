/* JSON by Jansson: this header adds what UPS needs around it. Objects are `json_t *`, reference-counted; see jansson's
 * manual. */
#ifndef UPS_BASE_JSON_H
#define UPS_BASE_JSON_H

#include "base/error.h"
#include <jansson.h>

/* Reads and parses a file; the error names the file, line and what was expected. *json is a new reference. */
ups_status ups_json_read(const char *path, json_t **json, ups_error *error);
/* The same of text that is in memory; `where` is for messages. */
ups_status ups_json_parse(const char *where, const char *text, size_t length, json_t **json, ups_error *error);
/* Publishes `json` atomically, indented by two, keys in the order of insertion, with a newline at the end. */
char *ups_json_text(const json_t *json, size_t *length); /* what is published, not NUL-terminated; malloc, or NULL */
ups_status ups_json_publish(const char *path, const json_t *json, ups_error *error);
ups_status ups_json_publish_once(const char *path, const json_t *json, ups_error *error); /* unless it is there so */

/* A string, also of bytes that are no UTF-8, which JSON cannot have: they become \x9b. NULL: no memory. */
json_t *ups_json_printable(const char *text);

/* Typed look-ups. `where` names the document in messages. A missing key or another type is UPS_ERR_FORMAT. Strings are
 * borrowed. */
ups_status ups_json_string(const json_t *object, const char *key, const char *where, const char **value,
                           ups_error *error);
ups_status ups_json_integer(const json_t *object, const char *key, const char *where, int64_t *value, ups_error *error);
ups_status ups_json_real(const json_t *object, const char *key, const char *where, double *value, ups_error *error);
ups_status ups_json_object(const json_t *object, const char *key, const char *where, json_t **value, ups_error *error);
ups_status ups_json_array(const json_t *object, const char *key, const char *where, json_t **value, ups_error *error);

#endif
