/* The configuration of a run: what `ups train`, `cache build`, `eval` and `rollout` read. YAML by base/config; the
 * keys, default values and ranges stand in keys.c, and `ups config keys` prints them. Pointers belong to the
 * configuration; free with ups_run_config_free. */
#ifndef UPS_TRAIN_CONFIG_CONFIG_H
#define UPS_TRAIN_CONFIG_CONFIG_H

#include "base/error.h"
#include "model/nets/encoder.h"
#include "model/nets/operator.h"
#include "pipeline/layouts/mapping.h"
#include "pipeline/loader/loader.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ups_precision {
    UPS_PRECISION_AUTO,
    UPS_PRECISION_F32,
    UPS_PRECISION_TF32,
    UPS_PRECISION_BF16,
    UPS_PRECISION_F16,
    UPS_PRECISION_FP8,
} ups_precision;
typedef enum ups_cache_codec { UPS_CACHE_UPS_LATENT, UPS_CACHE_PORTABLE } ups_cache_codec;
typedef enum ups_optimizer_kind { UPS_OPTIMIZER_ADAMW, UPS_OPTIMIZER_MUON } ups_optimizer_kind;
typedef enum ups_schedule_kind {
    UPS_SCHEDULE_CONSTANT,
    UPS_SCHEDULE_COSINE,
    UPS_SCHEDULE_WSD, /* warm-up, stable, decay */
    UPS_SCHEDULE_PLATEAU,
} ups_schedule_kind;
typedef enum ups_decay_shape { UPS_DECAY_LINEAR, UPS_DECAY_SQRT } ups_decay_shape;
typedef enum ups_stage { UPS_STAGE_AUTOENCODER, UPS_STAGE_CACHE, UPS_STAGE_OPERATOR, UPS_STAGE_COUNT } ups_stage;

extern const char *const ups_stage_names[UPS_STAGE_COUNT + 1]; /* by value; NULL ends them */
const char *ups_stage_name(ups_stage stage); /* "autoencoder", "cache", "operator": its section, too */

/* Where samples stay between draws (pipeline/loader/residency.h), or `encode`: the operator's latents come from no
 * cache, but from raw fields that are encoded on the fly (train/data/encoding/encoding_source.h). */
typedef enum ups_run_residency {
    UPS_RUN_AUTO = UPS_RESIDENCY_AUTO,
    UPS_RUN_STREAM = UPS_RESIDENCY_STREAM,
    UPS_RUN_RAM_COMPRESSED = UPS_RESIDENCY_RAM_COMPRESSED,
    UPS_RUN_RAM = UPS_RESIDENCY_RAM,
    UPS_RUN_ENCODE,
    UPS_RUN_DEVICE /* ram, and in the device's memory where it has its own (train/data/feed.h) */
} ups_run_residency;

/* What is kept together when samples are split (train/data/splits.h). */
typedef enum ups_split_by {
    UPS_SPLIT_BY_AUTO,
    UPS_SPLIT_BY_INDEX,
    UPS_SPLIT_BY_SAMPLE,
    UPS_SPLIT_BY_TIME
} ups_split_by;
typedef enum ups_test_place { UPS_TEST_ANYWHERE, UPS_TEST_FIRST, UPS_TEST_LAST } ups_test_place;

typedef struct ups_split_config {
    double train, validation;
    char *test_share; /* as written: "0.1", "10%", "first 10%"; what it says stands in the next two */
    double test;      /* shares; they sum up to 1 */
    ups_test_place test_place;
    ups_split_by by;
} ups_split_config;

/* How the strategy `difficulty` makes shares of validation losses: see train/data/task_sampling.h. */
typedef struct ups_difficulty_config {
    double smoothing;      /* of the moving average: what is kept of the average before */
    double power;          /* of the loss over the mean of all tasks' */
    double floor, ceiling; /* of what a task's share is multiplied by */
} ups_difficulty_config;

typedef struct ups_data_config {
    char *root;
    ups_split_config split;
    ups_io_engine io;
    int32_t decode_threads, queue_depth, slots;
    bool direct;
    ups_run_residency residency;
    double residency_memory; /* GiB that samples may stay in; 0: a quarter of what is free */
    ups_on_bad_sample on_bad_sample;
    ups_sampler_strategy strategy;
    double temperature; /* of the strategy `temperature` */
    ups_difficulty_config difficulty;
} ups_data_config;

#define UPS_MAX_STRIDES 8 /* of a task */

typedef struct ups_task_config {
    char *name;
    char **files; /* relative to data.root */
    unsigned file_count;
    char **test_files; /* likewise: all of their samples are of the split `test` */
    unsigned test_file_count;
    int64_t stride;        /* time stride of a step, in stored frames */
    int64_t *strides;      /* that the operator learns at once, `stride` among them */
    unsigned stride_count; /* 0: that one alone */
    int32_t bundle;        /* frames that an application of the operator gives; 0: model.operator.bundle */
    bool symmetries;       /* operator.augment: symmetries is of this task, too */
    int64_t segment;       /* frames of the segments that trajectories are cut into; 0: they are not */
    int64_t max_samples;   /* 0: all */
    double weight;         /* what its share is multiplied by; 0: 1 */
    int64_t from, ramp;    /* optimizer step of a stage from which it is drawn, and steps until it has its full share */
    int64_t
        *thin; /* every how many-th point of the files' grid is taken, slowest axis first; one number for all axes */
    unsigned thin_count; /* 0: all points */
    int64_t *patch;      /* points a patch, slowest axis first */
    unsigned patch_count;
    float *field_scale; /* standard deviation each field is normalised to: its weight in losses; empty: 1 each */
    unsigned field_scale_count;
    ups_mapping_config layout; /* what its files hold, where that cannot be recognised */
} ups_task_config;

typedef struct ups_encoder_config {
    int64_t width, depth, heads;
    double mlp_ratio;
    ups_pooling pooling;
    float *frequencies;
    unsigned frequency_count;
} ups_encoder_config;
typedef struct ups_decoder_config {
    int64_t hidden, depth, heads;
    double mlp_ratio;
    float *frequencies; /* Fourier features of the query points */
    unsigned frequency_count;
    bool qk_norm;
    int64_t between; /* on a grid of tokens: features of what corrects values between grid points; 0: none */
    bool position;   /* latents carry Fourier features of their patch's place into the decoder's keys and values */
} ups_decoder_config;
/* Tokens that the linear part of an operator's update reads. */
typedef enum ups_linear_part { UPS_LINEAR_TOKEN, UPS_LINEAR_NEIGHBORS } ups_linear_part;
typedef struct ups_core_config {
    char *name; /* in the table of cores (model/nets/core.h) */
    int64_t hidden, depth, heads;
    double mlp_ratio, drop_path;
    bool qk_norm, condition, boundary, conserve;
    ups_linear_part linear;
    ups_mixing *mixing; /* of the core's blocks in turn */
    unsigned mixing_count;
    ups_block_half *task_specific; /* halves of blocks that each task has weights of its own for */
    unsigned task_specific_count;
    int64_t attended_tokens; /* by blocks whose mixing is auto */
    int64_t merge_above;     /* of the core unet: tokens of a level that are not merged for the next, at most */
    ups_attention_kind attention;
    int64_t *window;
    unsigned window_count;
    ups_positions positions;
    int64_t *depths; /* of the core `unet`, finest level first */
    unsigned depth_count;
    int64_t convolution;
    int64_t *modes; /* of spectral mixing: for tasks of one, two and three grid axes */
    unsigned mode_count;
    bool factorized;
    ups_update_norm update_norm;
    ups_residual_dtype residual;
    int32_t history, bundle; /* frames that it reads, and that it gives */
} ups_core_config;
typedef struct ups_model_config {
    char *from;     /* a run's directory or a file of `ups export`: what the model begins as; "": nothing (given.h) */
    int64_t tokens; /* 0: "grid", one a patch */
    int64_t dim;    /* 0: "auto", the smallest that reaches autoencoder.target */
    double bound;   /* latents are b asinh(z / b); 0: z itself */
    ups_encoder_config encoder;
    ups_decoder_config decoder;
    ups_core_config core;
} ups_model_config;

typedef struct ups_optimizer_config {
    ups_optimizer_kind kind;
    double learning_rate, weight_decay, beta1, beta2, epsilon;
    double momentum;  /* of Muon */
    double clip;      /* largest gradient norm; 0: no clipping */
    double ema_decay; /* 0: no EMA */
    ups_schedule_kind schedule;
    int64_t warmup_steps;
    double final_fraction; /* of the learning rate: where cosine and wsd end, and plateau does not go below */
    double decay_fraction; /* of the steps, in which wsd's rate falls */
    ups_decay_shape decay_shape;
    double plateau_factor;    /* that the rate is multiplied by at a plateau: */
    int64_t plateau_patience; /* so many validations in a row without a better score */
    bool offload;             /* moments lie in the host's memory, where a device has its own */
} ups_optimizer_config;

#define UPS_MAX_LOSSES 24    /* of a stage; UPS_UPDATE_MAX_LOSSES is as many */
#define UPS_MAX_LOSS_SETS 16 /* sets of losses that fall due together in a run: a graph each */

/* A loss: its weight (0: never taken), every how many steps it is taken, from which step on, and over how many steps
 * from there its weight rises from nothing. */
typedef struct ups_loss_config {
    double weight;
    int64_t every, from, warmup;
} ups_loss_config;

typedef struct ups_training_config {
    int64_t steps;        /* optimizer steps */
    int64_t batch_size;   /* windows a micro-batch; 0: "auto", the largest that fits memory_limit */
    int64_t accumulation; /* micro-batches an optimizer step */
    int64_t pairs_per_trajectory;
    int64_t validate_every, checkpoint_every, log_every; /* optimizer steps */
    int64_t validation_batches;
    int64_t patience; /* validations without a better score after which the stage ends; 0: it runs to its last step */
    double min_delta; /* by how much a score has to be lower to be better */
    double
        memory_limit; /* GiB that `batch_size: auto` may plan for; 0: half of what is free, on a card device.memory */
    ups_checkpointing checkpointing; /* of activations */
    double spike_factor;             /* a loss this many times its running mean is reported; 0: never */
    ups_optimizer_config optimizer;
    ups_loss_config losses[UPS_MAX_LOSSES]; /* by the stage's own enumeration, below */
} ups_training_config;

enum {
    UPS_AUTOENCODER_INVERSE_DECODING, /* decode(encode(field)) ≈ field, mean squared */
    UPS_AUTOENCODER_RELATIVE,         /* the same as nRMSE */
    UPS_AUTOENCODER_INVERSE_ENCODING, /* encode(decode(latent)) ≈ latent */
    UPS_AUTOENCODER_LATENT_NORM,      /* variances of latent features ≈ 1 */
    UPS_AUTOENCODER_LATENT_DIVERSITY, /* covariances of different ones ≈ 0 */
    UPS_AUTOENCODER_ROUNDED,          /* decode(FP16(encode(field))) ≈ field, nRMSE; computed in float32 */
    UPS_AUTOENCODER_BETWEEN,          /* field read from every second grid point ≈ field, nRMSE */
};
/* How query points are drawn from a grid (train/stages/autoencoder.c). */
typedef enum ups_query_sampling { UPS_QUERY_UNIFORM, UPS_QUERY_STRATIFIED, UPS_QUERY_CURRICULUM } ups_query_sampling;
typedef struct ups_autoencoder_config {
    ups_training_config training;
    int64_t queries; /* points a sample is decoded at */
    ups_query_sampling query_sampling;
    double target; /* nRMSE of fields read back that `model.dim: auto` reaches on the frames it looks at */
    double gate;   /* nRMSE of held-out fields read back above which the run stops; 0: it goes on whatever it is */
} ups_autoencoder_config;

enum {
    UPS_OPERATOR_ONE_STEP,         /* latent, mean squared, after one application: one step, or each of its bundle */
    UPS_OPERATOR_RELATIVE,         /* the same as nRMSE */
    UPS_OPERATOR_ROLLOUT,          /* mean squared over every later step of a rollout of rollout_steps applications */
    UPS_OPERATOR_ROLLOUT_RELATIVE, /* the same as nRMSE */
    UPS_OPERATOR_SEMIGROUP,        /* one step of twice the length against two steps */
    /* Of decoded fields (train/objectives/field_losses.h). */
    UPS_OPERATOR_DECODED,
    UPS_OPERATOR_ROLLOUT_DECODED,
    UPS_OPERATOR_SPECTRAL,
    UPS_OPERATOR_CONSERVATION,
    UPS_OPERATOR_POSITIVITY,
    UPS_OPERATOR_DIVERGENCE,
    UPS_OPERATOR_BOUNDARY,
};
/* Fields that a loss is of, by name. */
typedef struct ups_field_names {
    char **names;
    unsigned count; /* 0: all */
} ups_field_names;
#define UPS_MAX_CURRICULUM 7 /* lengths of rollouts before the last */
/* What training changes windows by. */
typedef enum ups_augment { UPS_AUGMENT_NONE, UPS_AUGMENT_SHIFT, UPS_AUGMENT_SYMMETRIES } ups_augment;
/* What an operator on a grid of tokens begins as; auto: whichever of the others suits each task. */
typedef enum ups_initial { UPS_INITIAL_AUTO, UPS_INITIAL_LINEAR, UPS_INITIAL_PERSISTENCE } ups_initial;
/* Names of PDEBench's vectors, of which a task has those of its dimensions. */
#define UPS_USUAL_VECTORS "Vx, Vy, Vz, force_x, force_y, force_z"

typedef struct ups_operator_stage_config {
    ups_training_config training;
    int64_t rollout_steps;       /* applications */
    int64_t *rollout_curriculum; /* and in earlier, equal parts of the steps that take rollout losses */
    unsigned rollout_curriculum_count;
    bool pushforward;     /* rollout losses teach each application by itself, not those before it */
    double short_history; /* share of windows that know fewer frames than the operator reads */
    double noise;         /* deviation of what is added to the first state, over what a step changes; 0: none */
    ups_augment augment;
    ups_initial initial;
    ups_field_names conservation, positivity, divergence, boundary;
    ups_field_names vectors; /* for symmetries: components along each axis, a vector after the other */
} ups_operator_stage_config;

typedef struct ups_cache_config {
    char *directory;
    ups_cache_codec codec;
    int64_t samples_per_shard;
    int64_t level;
    float max_abs_error; /* 0: latents change by FP16's rounding alone */
    ups_on_bad_sample on_bad_sample;
    double memory_limit; /* GiB that a build may plan for; 0: half of what is free */
} ups_cache_config;

/* What is judged of whole rollouts (train/evaluation/scores/gates.h). */
enum {
    UPS_GATE_BOUNDED,
    UPS_GATE_CONSERVATION,
    UPS_GATE_POSITIVITY,
    UPS_GATE_NEGATIVE_SHARE,
    UPS_GATE_BOUNDARY,
    UPS_GATE_DIVERGENCE,
    UPS_GATES
};

typedef struct ups_evaluation_config {
    int64_t *horizons;
    unsigned horizon_count;
    int64_t max_samples;
    int64_t start_every;
    double correlation;      /* below it a rollout has lost the truth */
    int64_t given;           /* true frames that a rollout has before the first that is scored */
    double gates[UPS_GATES]; /* limits; 0: not judged */
} ups_evaluation_config;

typedef struct ups_device_config {
    char *name;
    int32_t threads;
    double memory; /* GiB of a card's that may be used; 0: nine tenths of what is free */
} ups_device_config;

typedef struct ups_checkpoint_config {
    int64_t keep; /* of a stage */
} ups_checkpoint_config;

/* How gradients are summed over processes: by their cards, where these can, or in the hosts' memories. */
typedef enum ups_gradient_path {
    UPS_GRADIENTS_AUTO,
    UPS_GRADIENTS_HOST,
    UPS_GRADIENTS_NCCL,
} ups_gradient_path;

/* What each process keeps a share of, in the place of all. */
typedef enum ups_sharding {
    UPS_SHARD_NONE,
    UPS_SHARD_OPTIMIZER,
} ups_sharding;

/* Processes that train one model together (train/comm/). */
typedef struct ups_ranks_config {
    bool reproducible;
    ups_gradient_path gradients;
    double bucket;  /* MiB of gradients that cards sum at once; 0: as many as suit */
    int32_t blocks; /* of a card's threads that sums take at once; 0: as many as NCCL likes */
    ups_sharding shard;
} ups_ranks_config;

typedef struct ups_run_config {
    char *output; /* the run's directory */
    uint64_t seed;
    ups_precision precision;
    char **fp8_layers; /* patterns of names */
    unsigned fp8_layer_count;
    ups_device_config device;
    ups_ranks_config ranks;
    ups_data_config data;
    ups_task_config *tasks;
    unsigned task_count;
    ups_model_config model;
    ups_stage *stages;
    unsigned stage_count;
    ups_autoencoder_config autoencoder;
    ups_cache_config cache;
    ups_operator_stage_config op;
    ups_checkpoint_config checkpoint;
    ups_evaluation_config evaluation;
} ups_run_config;

/* Whether every task's latent tokens are the cells of its own grid of patches. */
static inline bool ups_run_on_grid(const ups_run_config *config) {
    return config->model.tokens == 0;
}

/* Frames of a task that an application of the operator is to give; of a steady one it gives one. */
static inline int32_t ups_run_bundle(const ups_run_config *config, const ups_task_config *task) {
    return task->bundle > 0 ? task->bundle : config->model.core.bundle;
}

/* How a stage is trained: what its section says. NULL for a stage that trains nothing. */
const ups_training_config *ups_run_training(const ups_run_config *config, ups_stage stage);
/* Names of its losses, by its enumeration: UPS_MAX_LOSSES of them, NULL where there is none of a number. NULL for a
 * stage that trains nothing. */
const char *const *ups_run_loss_names(ups_stage stage);

/* The run that a directory of its cache lies in, by its config.yaml: the directory itself or one up to three above,
 * from a task's split to the run. Free with free(); NULL when there is none. */
char *ups_run_find(const char *directory);

/* Path of a file of the run: "output/…"; the caller frees with free(). */
char *ups_run_path(const ups_run_config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Path of a task's file: below data.root, unless it begins with a slash; the caller frees with free(). */
char *ups_run_data_path(const ups_run_config *config, const char *file);
/* The cache's directory for this run: cache.directory, or output/cache. Free with free(). */
char *ups_run_cache_directory(const ups_run_config *config);

#endif
