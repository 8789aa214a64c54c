/* A configuration with every type that schemas may have, for the tests of base/config. */
#ifndef UPS_TESTS_BASE_SAMPLE_CONFIG_H
#define UPS_TESTS_BASE_SAMPLE_CONFIG_H

#include "testing.h"

#include "base/config/config.h"

#include <math.h>
#include <stdbool.h>

typedef enum core_kind { CORE_STACK, CORE_UNET } core_kind;
typedef enum stage { STAGE_AUTOENCODER, STAGE_CACHE, STAGE_OPERATOR } stage;

typedef struct task_config {
    char *name;
    char **files;
    unsigned file_count;
    double weight;
    int32_t (*crops)[2]; /* a list of pairs */
    unsigned crop_count;
} task_config;

typedef struct train_config {
    double learning_rate;
    int64_t steps;
    int32_t batch_size; /* 0: auto */
    float clip;
    float betas[2];
    bool ema;
    uint64_t seed;
    uint8_t level;
    int8_t shift;
    stage *stages;
    unsigned stage_count;
} train_config;

typedef struct diffusion_config {
    int32_t steps;
    char *schedule;
} diffusion_config;

typedef struct sample_config {
    char *output;
    char label[8];
    char *note; /* may be NULL */
    core_kind core;
    task_config *tasks;
    unsigned task_count;
    train_config train;
    diffusion_config *diffusion; /* NULL when absent */
    int32_t untouched;           /* no default: stays zero */
} sample_config;

static const cyaml_strval_t core_kinds[] = {{"stack", CORE_STACK}, {"unet", CORE_UNET}};
static const cyaml_strval_t stages[] = {
    {"autoencoder", STAGE_AUTOENCODER}, {"cache", STAGE_CACHE}, {"operator", STAGE_OPERATOR}};

static const cyaml_schema_value_t text_value = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, CYAML_UNLIMITED)};
static const cyaml_schema_value_t beta_value = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, float)};
static const cyaml_schema_value_t extent_value = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int32_t)};
static const cyaml_schema_value_t crop_value = {
    CYAML_VALUE_SEQUENCE_FIXED(CYAML_FLAG_DEFAULT, int32_t, &extent_value, 2)};
static const cyaml_schema_value_t stage_value = {CYAML_VALUE_ENUM(CYAML_FLAG_DEFAULT, stage, stages, 3)};

static const cyaml_schema_field_t task_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, task_config, name, 1, 16),
    CYAML_FIELD_SEQUENCE_COUNT("files", CYAML_FLAG_POINTER, task_config, files, file_count, &text_value, 1,
                               CYAML_UNLIMITED),
    CYAML_FIELD_FLOAT("weight", CYAML_FLAG_OPTIONAL, task_config, weight),
    CYAML_FIELD_SEQUENCE_COUNT("crops", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, task_config, crops, crop_count,
                               &crop_value, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END};
static const cyaml_schema_value_t task_value = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, task_config, task_fields)};

static const cyaml_schema_field_t train_fields[] = {
    CYAML_FIELD_FLOAT("learning_rate", CYAML_FLAG_OPTIONAL, train_config, learning_rate),
    CYAML_FIELD_INT("steps", CYAML_FLAG_OPTIONAL, train_config, steps),
    CYAML_FIELD_INT("batch_size", CYAML_FLAG_OPTIONAL, train_config, batch_size),
    CYAML_FIELD_FLOAT("clip", CYAML_FLAG_OPTIONAL, train_config, clip),
    CYAML_FIELD_SEQUENCE_FIXED("betas", CYAML_FLAG_OPTIONAL, train_config, betas, &beta_value, 2),
    CYAML_FIELD_BOOL("ema", CYAML_FLAG_OPTIONAL, train_config, ema),
    CYAML_FIELD_UINT("seed", CYAML_FLAG_OPTIONAL, train_config, seed),
    CYAML_FIELD_UINT("level", CYAML_FLAG_OPTIONAL, train_config, level),
    CYAML_FIELD_INT("shift", CYAML_FLAG_OPTIONAL, train_config, shift),
    CYAML_FIELD_SEQUENCE_COUNT("stages", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, train_config, stages, stage_count,
                               &stage_value, 1, 3),
    CYAML_FIELD_END};

static const cyaml_schema_field_t diffusion_fields[] = {
    CYAML_FIELD_INT("steps", CYAML_FLAG_OPTIONAL, diffusion_config, steps),
    CYAML_FIELD_STRING_PTR("schedule", CYAML_FLAG_POINTER, diffusion_config, schedule, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END};

static const cyaml_schema_field_t sample_fields[] = {
    CYAML_FIELD_STRING_PTR("output", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, sample_config, output, 0,
                           CYAML_UNLIMITED),
    CYAML_FIELD_STRING("label", CYAML_FLAG_OPTIONAL, sample_config, label, 0),
    CYAML_FIELD_STRING_PTR("note", CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL, sample_config, note, 0,
                           CYAML_UNLIMITED),
    CYAML_FIELD_ENUM("core", CYAML_FLAG_OPTIONAL, sample_config, core, core_kinds, 2),
    CYAML_FIELD_SEQUENCE_COUNT("tasks", CYAML_FLAG_POINTER, sample_config, tasks, task_count, &task_value, 1, 4),
    CYAML_FIELD_MAPPING("train", CYAML_FLAG_OPTIONAL, sample_config, train, train_fields),
    CYAML_FIELD_MAPPING_PTR("diffusion", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, sample_config, diffusion,
                            diffusion_fields),
    CYAML_FIELD_INT("untouched", CYAML_FLAG_OPTIONAL, sample_config, untouched),
    CYAML_FIELD_IGNORE("comment", CYAML_FLAG_OPTIONAL),
    CYAML_FIELD_END};
static const cyaml_schema_value_t sample_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, sample_config, sample_fields)};

static const ups_config_rule sample_rules[] = {
    {.path = "output", .fallback = "runs/default"},
    {.path = "label", .fallback = "run"},
    {.path = "core", .fallback = "stack"},
    {.path = "tasks", .help = "what is trained on"},
    {.path = "tasks[].name", .help = "what the task is called"},
    {.path = "tasks[].weight", .fallback = "1.5", .minimum = 0, .maximum = INFINITY},
    {.path = "tasks[].crops[][]", .minimum = 1, .maximum = 1024},
    {.path = "train.learning_rate", .fallback = "0.001", .minimum = 0, .maximum = 1, .help = "peak learning rate"},
    {.path = "train.steps", .fallback = "1000", .minimum = 1, .maximum = 9e15},
    {.path = "train.batch_size", .fallback = "auto", .minimum = 1, .maximum = 4096, .word = "auto", .word_value = 0},
    {.path = "train.clip", .fallback = "0.1"},
    {.path = "train.betas", .fallback = "[0.9, 0.99]", .minimum = 0, .maximum = 1},
    {.path = "train.ema", .fallback = "no"},
    {.path = "train.seed", .fallback = "42"},
    {.path = "train.stages", .fallback = "[autoencoder, operator]"},
    {.path = "diffusion.steps", .fallback = "8"},
};

static const ups_config_schema sample_schema = {&sample_value, sample_rules,
                                                sizeof sample_rules / sizeof *sample_rules};

/* Loads `text` as the file "c.yaml" with `override`, which may be NULL. */
static inline ups_status load_sample(const char *text, const char *override, sample_config **config, ups_error *error) {
    const char *overrides[] = {override};
    const char *path = scratch("c.yaml");
    write_text(path, text);
    error->message[0] = '\0';
    return ups_config_load(path, &sample_schema, overrides, override ? 1 : 0, (void **)config, error);
}

static inline sample_config *must_load(const char *text, const char *override) {
    sample_config *config = NULL;
    ups_error error;
    if (load_sample(text, override, &config, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_non_null(config);
    return config;
}

#define MINIMAL "tasks:\n  - name: burgers\n    files: [a.hdf5]\n"

#endif
