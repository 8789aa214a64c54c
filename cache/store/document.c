#include "cache/store/document.h"

#include "base/files.h"
#include "base/hash.h"
#include "cache/store/arrays.h"
#include "cache/store/fingerprint.h"
#include "cache/store/statistics.h"
#include <stdlib.h>
#include <string.h>

#define CHECK_KEY "\"check\": \"" /* as jansson writes it */
#define COPY_KEY "ups_group"      /* in the attributes of the latents' document */
#define NO_CHECK "00000000000000000000000000000000"

enum { HEX_DIGITS = 32, MAX_ARRAYS = 6, MAX_BYTES = 1 << 30 };

static ups_status no_memory(const char *directory, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
}

static char *document_path(const char *directory, const char *array) {
    char *path = NULL;
    return asprintf(&path, "%s%s%s/zarr.json", directory, array ? "/" : "", array ? array : "") < 0 ? NULL : path;
}

static void hash_text(const char *text, size_t length, char hex[33]) {
    ups_hash_hex(ups_hash_bytes(text, length), hex);
}

/* ---- whose shards ------------------------------------------------------------------------------------------------ */

void ups_document_name_group(json_t *attributes) {
    /* What an extension changes, and what a build adds at its end. */
    static const char *const changing[] = {"complete", "samples",   "time_per_sample", "arrays", "source",
                                           "result",   "documents", "check",           "group"};
    char hex[33];
    json_t *shared = json_deep_copy(attributes);
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++) json_object_del(shared, changing[i]);
    json_object_del(json_object_get(shared, "fingerprint"), "source");
    ups_fingerprint_json(shared, hex);
    json_decref(shared);
    json_object_set_new(attributes, "group", json_string(hex));
}

static const char *text_of(const json_t *attributes, const char *key) {
    const char *text = json_string_value(json_object_get(attributes, key));
    return text ? text : "";
}

ups_shard_identity ups_document_identity(const json_t *attributes, int64_t shard) {
    return ups_shard_identity_of(text_of(attributes, "group"), text_of(attributes, "task"),
                                 text_of(attributes, "split"), shard);
}

/* ---- the documents of the arrays ----------------------------------------------------------------------------------
 */

typedef struct array_documents {
    int count;
    const char *name[MAX_ARRAYS];
    json_t *document[MAX_ARRAYS];
} array_documents;

static void add(array_documents *all, const char *name, json_t *document) {
    all->name[all->count] = name;
    all->document[all->count++] = document;
}

static void add_small(array_documents *all, ups_small_array array, json_t *attributes) {
    add(all, array.name, ups_small_document(&array, attributes));
    json_decref(attributes);
}

/* What the latents' document keeps of the group's. */
static json_t *copy_for_latents(const json_t *attributes) {
    static const char *const later[] = {"complete", "result", "documents", "check"};
    json_t *copy = json_copy((json_t *)attributes);
    for (size_t i = 0; copy && i < sizeof later / sizeof *later; i++) json_object_del(copy, later[i]);
    return json_pack("{s:o}", COPY_KEY, copy);
}

static int64_t number(const json_t *attributes, const char *key) {
    return json_integer_value(json_object_get(attributes, key));
}

static array_documents derive(const json_t *attributes) {
    array_documents all = {0};
    ups_cache_shape shape = {number(attributes, "samples"),
                             {number(attributes, "times"), number(attributes, "tokens"), number(attributes, "dim")},
                             number(attributes, "samples_per_shard")};
    ups_chunk_codec codec = {.portable = strcmp(text_of(attributes, "codec"), "portable") == 0,
                             .level = (int)number(attributes, "zstd_level")};
    int parameters = (int)json_array_size(json_object_get(attributes, "parameters"));
    json_t *copy = copy_for_latents(attributes);
    add(&all, UPS_CACHE_LATENT, ups_zarr_latent(shape, codec, copy));
    json_decref(copy);
    add_small(&all, ups_cache_time_array(shape, json_is_true(json_object_get(attributes, "time_per_sample"))), NULL);
    if (parameters > 0) add_small(&all, ups_cache_condition_array(shape, parameters), NULL);
    add_small(&all, ups_cache_source_sample_array(shape), NULL);
    add_small(&all, ups_cache_statistics_array(shape), ups_cache_statistics_columns());
    add_small(&all, ups_cache_shards_array(shape), NULL);
    return all;
}

static void release(array_documents *all) {
    for (int i = 0; i < all->count; i++) json_decref(all->document[i]);
}

static ups_status publish_array(const char *directory, const char *name, const json_t *document, ups_error *error) {
    char *folder = NULL, *path = document_path(directory, name);
    if (asprintf(&folder, "%s/%s/c", directory, name) < 0) folder = NULL;
    ups_status status = folder && path && document ? UPS_OK : no_memory(directory, error);
    if (status == UPS_OK) status = ups_make_directories(folder, error);
    if (status == UPS_OK) status = ups_json_publish_once(path, document, error);
    free(path);
    free(folder);
    return status;
}

ups_status ups_document_publish_arrays(const char *directory, const json_t *attributes, ups_error *error) {
    array_documents all = derive(attributes);
    ups_status status = UPS_OK;
    for (int i = 0; i < all.count && status == UPS_OK; i++)
        status = publish_array(directory, all.name[i], all.document[i], error);
    release(&all);
    return status;
}

/* {array: hash of its document}; NULL: out of memory. */
static json_t *hash_arrays(const json_t *attributes) {
    array_documents all = derive(attributes);
    json_t *hashes = json_object();
    for (int i = 0; i < all.count && hashes; i++) {
        size_t length;
        char hex[33], *text = ups_json_text(all.document[i], &length);
        if (text) hash_text(text, length, hex);
        if (!text || json_object_set_new(hashes, all.name[i], json_string(hex)) != 0) {
            json_decref(hashes);
            hashes = NULL;
        }
        free(text);
    }
    release(&all);
    return hashes;
}

ups_status ups_document_check_arrays(const char *directory, const json_t *attributes, ups_error *error) {
    json_t *documents;
    const char *name;
    json_t *wanted;
    UPS_TRY(ups_json_object(attributes, "documents", directory, &documents, error));
    json_object_foreach(documents, name, wanted) {
        char hex[33], *text = NULL, *path = document_path(directory, name);
        size_t length;
        ups_status status =
            path ? ups_read_regular(path, MAX_BYTES, &text, &length, error) : no_memory(directory, error);
        if (status == UPS_OK) hash_text(text, length, hex);
        if (status == UPS_OK && (!json_is_string(wanted) || strcmp(hex, json_string_value(wanted)) != 0)) {
            status = ups_fail(error, UPS_ERR_CHECKSUM,
                              "%s: changed since it was written, or is another cache's: its hash is not the one in the "
                              "group's zarr.json; `ups cache verify --repair` writes it again",
                              path);
        }
        free(text);
        free(path);
        UPS_TRY(status);
    }
    return UPS_OK;
}

/* ---- the group's own ----------------------------------------------------------------------------------------------
 */

static json_t *wrap(const json_t *attributes) {
    json_t *outer = json_pack("{s:O}", "ups", attributes), *document = ups_zarr_group(outer);
    json_decref(outer);
    return document;
}

ups_status ups_document_publish_group(const char *directory, const json_t *attributes, ups_error *error) {
    json_t *whole = json_copy((json_t *)attributes), *document = NULL;
    char *path = document_path(directory, NULL), *text = NULL, hex[33];
    size_t length = 0;
    if (whole) {
        json_object_del(whole, "documents");
        json_object_del(whole, "check");
        json_object_set_new(whole, "documents", hash_arrays(attributes));
        json_object_set_new(whole, "check", json_string(NO_CHECK));
        document = wrap(whole);
        text = ups_json_text(document, &length);
    }
    ups_status status = path && text ? UPS_OK : no_memory(directory, error);
    if (status == UPS_OK) {
        hash_text(text, length, hex);
        json_object_set_new(whole, "check", json_string(hex));
        status = ups_json_publish_once(path, document, error);
    }
    free(text);
    free(path);
    json_decref(document);
    json_decref(whole);
    return status;
}

/* The last place of the check's digits in the text; NULL when there is none. */
static char *find_check(char *text, size_t length, const char *hex) {
    char *found = NULL;
    for (char *at = text; (at = memmem(at, length - (size_t)(at - text), CHECK_KEY, strlen(CHECK_KEY)));) {
        at += strlen(CHECK_KEY);
        if (length - (size_t)(at - text) > HEX_DIGITS && memcmp(at, hex, HEX_DIGITS) == 0) found = at;
    }
    return found;
}

static ups_status check_text(const char *path, char *text, size_t length, const json_t *attributes, ups_error *error) {
    const char *wanted = text_of(attributes, "check");
    char *digits = strlen(wanted) == HEX_DIGITS ? find_check(text, length, wanted) : NULL, hex[33] = "";
    if (digits) {
        memcpy(digits, NO_CHECK, HEX_DIGITS);
        hash_text(text, length, hex);
    }
    if (digits && strcmp(hex, wanted) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM,
                    "%s: changed since it was written: its `check` does not match; `ups cache verify --repair` writes "
                    "it again",
                    path);
}

/* attributes.<key> of a document. */
static ups_status attributes_of(const json_t *document, const char *key, const char *path, json_t **attributes,
                                ups_error *error) {
    json_t *outer, *found;
    UPS_TRY(ups_json_object(document, "attributes", path, &outer, error));
    UPS_TRY(ups_json_object(outer, key, path, &found, error));
    *attributes = json_incref(found);
    return UPS_OK;
}

ups_status ups_document_read_group(const char *directory, json_t **attributes, ups_error *changed, ups_error *error) {
    *attributes = NULL;
    changed->code = UPS_OK;
    char *path = document_path(directory, NULL), *text = NULL;
    size_t length = 0;
    json_t *document = NULL;
    ups_status status = path ? ups_read_regular(path, MAX_BYTES, &text, &length, error) : no_memory(directory, error);
    if (status == UPS_OK) status = ups_json_parse(path, text, length, &document, error);
    if (status == UPS_OK) status = attributes_of(document, "ups", path, attributes, error);
    if (status == UPS_OK) check_text(path, text, length, *attributes, changed);
    json_decref(document);
    free(text);
    free(path);
    return status;
}

ups_status ups_document_read_copy(const char *directory, json_t **attributes, ups_error *error) {
    *attributes = NULL;
    char *path = document_path(directory, UPS_CACHE_LATENT);
    json_t *document = NULL;
    ups_status status = path ? ups_json_read(path, &document, error) : no_memory(directory, error);
    if (status == UPS_OK) status = attributes_of(document, COPY_KEY, path, attributes, error);
    json_decref(document);
    free(path);
    return status;
}

/* ---- above --------------------------------------------------------------------------------------------------------
 */

ups_status ups_document_publish_parent(const char *directory, ups_error *error) {
    char *path = document_path(directory, NULL);
    json_t *document = ups_zarr_group(NULL);
    ups_status status = path && document ? ups_json_publish_once(path, document, error) : no_memory(directory, error);
    json_decref(document);
    free(path);
    return status;
}

ups_status ups_document_check_parent(const char *directory, ups_error *error) {
    char *path = document_path(directory, NULL), *found = NULL, *text = NULL;
    size_t found_length = 0, length = 0;
    json_t *document = ups_zarr_group(NULL);
    if (document) text = ups_json_text(document, &length);
    ups_status status =
        path && text ? ups_read_regular(path, MAX_BYTES, &found, &found_length, error) : no_memory(directory, error);
    if (status == UPS_OK && (found_length != length || memcmp(found, text, length) != 0)) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: is not the document of a group without attributes that a cache has there; `ups cache "
                          "verify --repair` writes it again",
                          path);
    }
    free(found);
    free(text);
    free(path);
    json_decref(document);
    return status;
}
