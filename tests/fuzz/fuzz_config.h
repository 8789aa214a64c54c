/* YAML and, behind NULs, overrides as `--set` takes them, against a schema. What is accepted prints as a configuration
 * that loads to the same. */
#ifndef UPS_TESTS_FUZZ_FUZZ_CONFIG_H
#define UPS_TESTS_FUZZ_FUZZ_CONFIG_H

#include "base/config/as_json.h"
#include "base/config/config.h"
#include "tests/fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_OVERRIDES = 4 };

typedef ups_status (*fuzz_loader)(const char *path, const char *const *overrides, size_t count, void **config,
                                  ups_error *error);

static inline void fuzz_print_and_load(const ups_config_schema *schema, fuzz_loader load, const void *config) {
    ups_error error = {0};
    char *once = NULL, *twice = NULL;
    FUZZ_CHECK(ups_config_print(schema, config, &once, &error) == UPS_OK);
    void *again = NULL;
    FUZZ_CHECK(fuzz_accepted(load(fuzz_file((const uint8_t *)once, strlen(once)), NULL, 0, &again, &error), &error));
    FUZZ_CHECK(ups_config_print(schema, again, &twice, &error) == UPS_OK);
    FUZZ_CHECK(strcmp(once, twice) == 0);
    ups_config_free(again);
    free(once);
    free(twice);
}

/* All mistakes: none of what was accepted, each with a sentence, and a configuration to go on checking with. */
static inline void fuzz_all_mistakes(const ups_config_schema *schema, const char *path, const char *const *overrides,
                                     size_t count, bool accepted) {
    ups_config_mistakes *mistakes = ups_config_mistakes_create(path);
    ups_error error = {0};
    void *value = NULL;
    FUZZ_CHECK(mistakes && ups_config_read(path, schema, overrides, count, mistakes, &value, &error) == UPS_OK);
    FUZZ_CHECK(!accepted || (value && mistakes->count == 0));
    ups_config_mistakes_sort(mistakes);
    for (size_t i = 0; i < mistakes->count; i++) {
        FUZZ_CHECK(mistakes->list[i].sentence[0]);
        FUZZ_CHECK(i == 0 || mistakes->list[i].line == 0 || mistakes->list[i].line >= mistakes->list[i - 1].line);
    }
    json_t *json = value ? ups_config_as_json(schema, value) : NULL;
    FUZZ_CHECK(json || !value);
    json_decref(json);
    ups_config_free(value);
    ups_config_mistakes_destroy(mistakes);
}

static inline void fuzz_configuration(const uint8_t *data, size_t size, const ups_config_schema *schema,
                                      fuzz_loader load) {
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    const char *overrides[MOST_OVERRIDES];
    size_t count = 0, yaml = strlen(text);
    for (size_t at = yaml + 1; at < size && count < MOST_OVERRIDES; at += strlen(text + at) + 1)
        overrides[count++] = text + at;
    ups_error error = {0};
    void *config = NULL;
    const char *path = fuzz_file(data, yaml);
    bool accepted = fuzz_accepted(load(path, overrides, count, &config, &error), &error);
    fuzz_all_mistakes(schema, path, overrides, count, accepted);
    if (accepted) {
        fuzz_print_and_load(schema, load, config);
        ups_config_free(config);
    } else {
        FUZZ_CHECK(config == NULL);
    }
    free(text);
}

#endif
