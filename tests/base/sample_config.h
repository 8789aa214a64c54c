/* A configuration with every type that keys may have, for the tests of base/config. */
#ifndef UPS_TESTS_BASE_SAMPLE_CONFIG_H
#define UPS_TESTS_BASE_SAMPLE_CONFIG_H

#include "testing.h"

#include "base/config/config.h"

#include <stdbool.h>

typedef enum core_kind { CORE_STACK, CORE_UNET } core_kind;
typedef enum stage { STAGE_AUTOENCODER, STAGE_CACHE, STAGE_OPERATOR } stage;

typedef struct task_config {
    char *name;
    char **files;
    unsigned file_count;
    double weight;
    int32_t *crops;
    unsigned crop_count;
} task_config;

typedef struct train_config {
    double learning_rate;
    int64_t steps;
    int32_t batch_size; /* 0: auto */
    float clip;
    float *betas;
    unsigned beta_count;
    bool ema;
    uint64_t seed;
    int32_t shift;
    stage *stages;
    unsigned stage_count;
} train_config;

typedef struct sample_config {
    char *output, *label, *note, *folder;
    core_kind core;
    task_config *tasks;
    unsigned task_count;
    train_config train;
    struct {
        int32_t steps;
        char *schedule;
    } diffusion;
} sample_config;

static const char *const core_kinds[] = {"stack", "unet", NULL};
static const char *const stages[] = {"autoencoder", "cache", "operator", NULL};

#define KEY(...) UPS_CONFIG_KEY(sample_config, __VA_ARGS__)
#define TASK_KEY(...) UPS_CONFIG_KEY(task_config, __VA_ARGS__)
#define LIST(owner, member, count, minimum, maximum) .list = UPS_CONFIG_LIST(owner, member, count, minimum, maximum)

static const ups_config_key task_keys[] = {
    TASK_KEY(TEXT, "name", name, NULL, 1, 16, "what the task is called"),
    TASK_KEY(TEXT, "files", files, NULL, 1, UPS_CONFIG_UNBOUNDED, NULL, LIST(task_config, files, file_count, 1, 0)),
    TASK_KEY(DOUBLE, "weight", weight, "1.5", 0, UPS_CONFIG_UNBOUNDED, NULL),
    TASK_KEY(INT32, "crops", crops, "[]", 1, 1024, NULL, LIST(task_config, crops, crop_count, 0, 0)),
    {.name = NULL}};

static const ups_config_key sample_keys[] = {
    KEY(TEXT, "output", output, "runs/default", 0, 0, NULL),
    KEY(TEXT, "label", label, "run", 0, 7, NULL),
    KEY(TEXT, "note", note, "''", 0, 0, NULL),
    KEY(CHOICE, "core", core, "stack", 0, 0, NULL, .choices = core_kinds),
    KEY(SECTION, "tasks", tasks, NULL, 0, 0, "what is trained on", .keys = task_keys,
        LIST(sample_config, tasks, task_count, 1, 4)),
    UPS_CONFIG_SUBSECTION(
        "train", KEY(DOUBLE, "learning_rate", train.learning_rate, "0.001", 0, 1, "peak learning rate"),
        KEY(INT64, "steps", train.steps, "1000", 1, UPS_CONFIG_UNBOUNDED, NULL),
        KEY(INT32, "batch_size", train.batch_size, "auto", 1, 4096, NULL, .word = "auto"),
        KEY(FLOAT, "clip", train.clip, "0.1", 0, 0, NULL),
        KEY(FLOAT, "betas", train.betas, "[0.9, 0.99]", 0, 1, NULL,
            LIST(sample_config, train.betas, train.beta_count, 2, 3)),
        KEY(BOOL, "ema", train.ema, "no", 0, 0, NULL), KEY(UINT64, "seed", train.seed, "42", 0, 0, NULL),
        KEY(INT32, "shift", train.shift, "0", 0, 0, NULL),
        KEY(CHOICE, "stages", train.stages, "[autoencoder, operator]", 0, 0, NULL, .choices = stages,
            LIST(sample_config, train.stages, train.stage_count, 1, 3))),
    UPS_CONFIG_SUBSECTION("diffusion", KEY(INT32, "steps", diffusion.steps, "8", 0, 0, NULL),
                          {.name = "count", .type = UPS_CONFIG_REMOVED, .help = "diffusion.steps says the same"},
                          KEY(TEXT, "schedule", diffusion.schedule, "cosine", 0, 0, NULL)),
    KEY(TEXT, "folder", folder, "/nowhere", 0, 0, NULL, .path = true),
    {.name = NULL}};

static const ups_config_schema sample_schema = {sample_keys, sizeof(sample_config)};

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
