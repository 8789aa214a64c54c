/* The keys of a run's configuration: types and places (libcyaml schema), then defaults, ranges and help (rules). A key
 * is added in three places: the struct in config.h, the schema here, the rule here. */
#include "train/config/config.h"

#include "base/arena.h"
#include "train/config/check.h"
#include "train/losses.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPT CYAML_FLAG_OPTIONAL
#define POINTER (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)

/* ---- enumerations ---------------------------------------------------------------------------------------------- */

static const cyaml_strval_t precisions[] = {{"auto", UPS_PRECISION_AUTO},
                                            {"f32", UPS_PRECISION_F32},
                                            {"bf16", UPS_PRECISION_BF16},
                                            {"fp16", UPS_PRECISION_F16}};
static const cyaml_strval_t poolings[] = {{"average", UPS_POOL_MEAN}, {"queries", UPS_POOL_QUERIES}};
static const cyaml_strval_t update_norms[] = {{"layer_norm", UPS_UPDATE_LAYER_NORM}, {"none", UPS_UPDATE_PLAIN}};
static const cyaml_strval_t codecs[] = {{"latent", UPS_CACHE_UPS_LATENT}, {"portable", UPS_CACHE_PORTABLE}};
static const cyaml_strval_t schedules[] = {{"constant", UPS_SCHEDULE_CONSTANT}, {"cosine", UPS_SCHEDULE_COSINE}};
static const cyaml_strval_t stages[] = {
    {"autoencoder", UPS_STAGE_AUTOENCODER}, {"cache", UPS_STAGE_CACHE}, {"operator", UPS_STAGE_OPERATOR}};
static const cyaml_strval_t engines[] = {{"auto", UPS_IO_AUTO}, {"uring", UPS_IO_URING}, {"threads", UPS_IO_THREADS}};
static const cyaml_strval_t residencies[] = {{"auto", UPS_DATA_AUTO},
                                             {"stream", UPS_DATA_STREAM},
                                             {"ram_compressed", UPS_DATA_RAM_COMPRESSED},
                                             {"ram", UPS_DATA_RAM},
                                             {"encode", UPS_DATA_ENCODE}};
static const cyaml_strval_t strategies[] = {{"proportional", UPS_SAMPLER_PROPORTIONAL},
                                            {"balanced", UPS_SAMPLER_BALANCED},
                                            {"temperature", UPS_SAMPLER_TEMPERATURE},
                                            {"difficulty", UPS_SAMPLER_DIFFICULTY}};
static const cyaml_strval_t bad_sample[] = {{"stop", UPS_BAD_SAMPLE_STOP}, {"skip", UPS_BAD_SAMPLE_SKIP}};

const char *ups_stage_name(ups_stage stage) {
    return stage < UPS_STAGE_COUNT ? stages[stage].str : "unknown";
}

/* ---- schema ---------------------------------------------------------------------------------------------------- */

static const cyaml_schema_value_t text_value = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, CYAML_UNLIMITED)};
static const cyaml_schema_value_t float_value = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, float)};
static const cyaml_schema_value_t integer_value = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int64_t)};
static const cyaml_schema_value_t stage_value = {
    CYAML_VALUE_ENUM(CYAML_FLAG_DEFAULT | CYAML_FLAG_STRICT, ups_stage, stages, CYAML_ARRAY_LEN(stages))};

#define TEXT(key, type, member) CYAML_FIELD_STRING_PTR(key, POINTER, type, member, 0, CYAML_UNLIMITED)
#define INTEGER(key, type, member) CYAML_FIELD_INT(key, OPT, type, member)
#define REAL(key, type, member) CYAML_FIELD_FLOAT(key, OPT, type, member)
#define BOOLEAN(key, type, member) CYAML_FIELD_BOOL(key, OPT, type, member)
#define CHOICE(key, type, member, table)                                                                               \
    CYAML_FIELD_ENUM(key, OPT | CYAML_FLAG_STRICT, type, member, table, CYAML_ARRAY_LEN(table))
#define SECTION(key, type, member, fields) CYAML_FIELD_MAPPING(key, OPT, type, member, fields)
#define LIST(key, type, member, count, value, minimum)                                                                 \
    CYAML_FIELD_SEQUENCE_COUNT(key, POINTER, type, member, count, value, minimum, CYAML_UNLIMITED)

static const cyaml_schema_field_t split_fields[] = {REAL("train", ups_split_config, train),
                                                    REAL("validation", ups_split_config, validation),
                                                    REAL("test", ups_split_config, test), CYAML_FIELD_END};

static const cyaml_schema_field_t difficulty_fields[] = {
    REAL("smoothing", ups_difficulty_config, smoothing), REAL("power", ups_difficulty_config, power),
    REAL("floor", ups_difficulty_config, floor), REAL("ceiling", ups_difficulty_config, ceiling), CYAML_FIELD_END};

static const cyaml_schema_field_t data_fields[] = {
    TEXT("root", ups_data_config, root),
    SECTION("split", ups_data_config, split, split_fields),
    CHOICE("io", ups_data_config, io, engines),
    INTEGER("decode_threads", ups_data_config, decode_threads),
    INTEGER("queue_depth", ups_data_config, queue_depth),
    INTEGER("slots", ups_data_config, slots),
    BOOLEAN("direct", ups_data_config, direct),
    CHOICE("residency", ups_data_config, residency, residencies),
    REAL("residency_memory", ups_data_config, residency_memory),
    CHOICE("on_bad_sample", ups_data_config, on_bad_sample, bad_sample),
    CHOICE("sampling", ups_data_config, strategy, strategies),
    REAL("temperature", ups_data_config, temperature),
    SECTION("difficulty", ups_data_config, difficulty, difficulty_fields),
    CYAML_FIELD_END};

static const cyaml_schema_field_t task_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, ups_task_config, name, 1, 64),
    CYAML_FIELD_SEQUENCE_COUNT("files", CYAML_FLAG_POINTER, ups_task_config, files, file_count, &text_value, 1,
                               CYAML_UNLIMITED),
    INTEGER("stride", ups_task_config, stride),
    INTEGER("max_samples", ups_task_config, max_samples),
    REAL("weight", ups_task_config, weight),
    INTEGER("from", ups_task_config, from),
    INTEGER("ramp", ups_task_config, ramp),
    LIST("patch", ups_task_config, patch, patch_count, &integer_value, 1),
    LIST("field_scale", ups_task_config, field_scale, field_scale_count, &float_value, 0),
    CYAML_FIELD_END};
static const cyaml_schema_value_t task_value = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, ups_task_config, task_fields)};

static const cyaml_schema_field_t encoder_fields[] = {
    INTEGER("width", ups_encoder_config, width),
    INTEGER("depth", ups_encoder_config, depth),
    INTEGER("heads", ups_encoder_config, heads),
    REAL("mlp_ratio", ups_encoder_config, mlp_ratio),
    CHOICE("pooling", ups_encoder_config, pooling, poolings),
    LIST("frequencies", ups_encoder_config, frequencies, frequency_count, &float_value, 1),
    CYAML_FIELD_END};
static const cyaml_schema_field_t decoder_fields[] = {
    INTEGER("hidden", ups_decoder_config, hidden),
    INTEGER("depth", ups_decoder_config, depth),
    INTEGER("heads", ups_decoder_config, heads),
    REAL("mlp_ratio", ups_decoder_config, mlp_ratio),
    LIST("frequencies", ups_decoder_config, frequencies, frequency_count, &float_value, 1),
    BOOLEAN("qk_norm", ups_decoder_config, qk_norm),
    BOOLEAN("position", ups_decoder_config, position),
    CYAML_FIELD_END};
static const cyaml_schema_field_t core_fields[] = {INTEGER("hidden", ups_core_config, hidden),
                                                   INTEGER("depth", ups_core_config, depth),
                                                   INTEGER("heads", ups_core_config, heads),
                                                   REAL("mlp_ratio", ups_core_config, mlp_ratio),
                                                   REAL("drop_path", ups_core_config, drop_path),
                                                   BOOLEAN("qk_norm", ups_core_config, qk_norm),
                                                   BOOLEAN("condition", ups_core_config, condition),
                                                   CHOICE("update_norm", ups_core_config, update_norm, update_norms),
                                                   CYAML_FIELD_END};
static const cyaml_schema_field_t model_fields[] = {INTEGER("tokens", ups_model_config, tokens),
                                                    INTEGER("dim", ups_model_config, dim),
                                                    SECTION("encoder", ups_model_config, encoder, encoder_fields),
                                                    SECTION("decoder", ups_model_config, decoder, decoder_fields),
                                                    SECTION("operator", ups_model_config, core, core_fields),
                                                    CYAML_FIELD_END};

static const cyaml_schema_field_t optimizer_fields[] = {REAL("learning_rate", ups_optimizer_config, learning_rate),
                                                        REAL("weight_decay", ups_optimizer_config, weight_decay),
                                                        REAL("beta1", ups_optimizer_config, beta1),
                                                        REAL("beta2", ups_optimizer_config, beta2),
                                                        REAL("epsilon", ups_optimizer_config, epsilon),
                                                        REAL("clip", ups_optimizer_config, clip),
                                                        REAL("ema_decay", ups_optimizer_config, ema_decay),
                                                        CHOICE("schedule", ups_optimizer_config, schedule, schedules),
                                                        INTEGER("warmup_steps", ups_optimizer_config, warmup_steps),
                                                        REAL("final_fraction", ups_optimizer_config, final_fraction),
                                                        CYAML_FIELD_END};

static const cyaml_schema_field_t loss_fields[] = {REAL("weight", ups_loss_config, weight),
                                                   INTEGER("every", ups_loss_config, every),
                                                   INTEGER("from", ups_loss_config, from), CYAML_FIELD_END};
static const cyaml_schema_field_t autoencoder_loss_fields[] = {
    SECTION("inverse_decoding", ups_autoencoder_losses, inverse_decoding, loss_fields),
    SECTION("relative", ups_autoencoder_losses, relative, loss_fields),
    SECTION("inverse_encoding", ups_autoencoder_losses, inverse_encoding, loss_fields), CYAML_FIELD_END};
static const cyaml_schema_field_t operator_loss_fields[] = {
    SECTION("one_step", ups_operator_losses, one_step, loss_fields),
    SECTION("relative", ups_operator_losses, relative, loss_fields),
    SECTION("rollout", ups_operator_losses, rollout, loss_fields), CYAML_FIELD_END};

#define TRAINING_FIELDS(type)                                                                                          \
    INTEGER("steps", type, training.steps), INTEGER("batch_size", type, training.batch_size),                          \
        INTEGER("accumulation", type, training.accumulation),                                                          \
        INTEGER("pairs_per_trajectory", type, training.pairs_per_trajectory),                                          \
        INTEGER("validate_every", type, training.validate_every),                                                      \
        INTEGER("checkpoint_every", type, training.checkpoint_every), INTEGER("log_every", type, training.log_every),  \
        INTEGER("validation_batches", type, training.validation_batches),                                              \
        REAL("memory_limit", type, training.memory_limit), REAL("spike_factor", type, training.spike_factor),          \
        SECTION("optimizer", type, training.optimizer, optimizer_fields)

static const cyaml_schema_field_t autoencoder_fields[] = {
    TRAINING_FIELDS(ups_autoencoder_config), INTEGER("queries", ups_autoencoder_config, queries),
    SECTION("losses", ups_autoencoder_config, losses, autoencoder_loss_fields), CYAML_FIELD_END};
static const cyaml_schema_field_t operator_fields[] = {
    TRAINING_FIELDS(ups_operator_stage_config), INTEGER("rollout_steps", ups_operator_stage_config, rollout_steps),
    SECTION("losses", ups_operator_stage_config, losses, operator_loss_fields), CYAML_FIELD_END};

static const cyaml_schema_field_t cache_fields[] = {
    TEXT("directory", ups_cache_config, directory),
    CHOICE("codec", ups_cache_config, codec, codecs),
    INTEGER("samples_per_shard", ups_cache_config, samples_per_shard),
    INTEGER("level", ups_cache_config, level),
    REAL("max_abs_error", ups_cache_config, max_abs_error),
    BOOLEAN("fill", ups_cache_config, fill),
    CHOICE("on_bad_sample", ups_cache_config, on_bad_sample, bad_sample),
    REAL("memory_limit", ups_cache_config, memory_limit),
    CYAML_FIELD_END};
static const cyaml_schema_field_t evaluation_fields[] = {
    LIST("horizons", ups_evaluation_config, horizons, horizon_count, &integer_value, 1),
    INTEGER("max_samples", ups_evaluation_config, max_samples),
    INTEGER("start_every", ups_evaluation_config, start_every), CYAML_FIELD_END};
static const cyaml_schema_field_t device_fields[] = {TEXT("name", ups_device_config, name),
                                                     INTEGER("threads", ups_device_config, threads), CYAML_FIELD_END};

static const cyaml_schema_field_t run_fields[] = {
    TEXT("output", ups_run_config, output),
    CYAML_FIELD_UINT("seed", OPT, ups_run_config, seed),
    CHOICE("precision", ups_run_config, precision, precisions),
    SECTION("device", ups_run_config, device, device_fields),
    SECTION("data", ups_run_config, data, data_fields),
    CYAML_FIELD_SEQUENCE_COUNT("tasks", CYAML_FLAG_POINTER, ups_run_config, tasks, task_count, &task_value, 1,
                               UPS_SAMPLER_MAX_TASKS),
    SECTION("model", ups_run_config, model, model_fields),
    LIST("stages", ups_run_config, stages, stage_count, &stage_value, 1),
    SECTION("autoencoder", ups_run_config, autoencoder, autoencoder_fields),
    SECTION("cache", ups_run_config, cache, cache_fields),
    SECTION("operator", ups_run_config, op, operator_fields),
    SECTION("evaluation", ups_run_config, evaluation, evaluation_fields),
    CYAML_FIELD_END};
static const cyaml_schema_value_t run_value = {CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, ups_run_config, run_fields)};

/* ---- rules ----------------------------------------------------------------------------------------------------- */

#define MANY 9e15                              /* no real upper bound; exact in a double */
#define MOST_ROLLOUT_STEPS (UPS_MAX_TERMS - 1) /* each step but the first is a term, beside one_step and relative */
#define RULE(key, default_text, low, high, text)                                                                       \
    { .path = key, .fallback = default_text, .minimum = low, .maximum = high, .help = text }

#define LOSS_RULES(key, default_weight, text)                                                                          \
    RULE(key ".weight", default_weight, 0, 1e6, text), RULE(key ".every", "1", 1, MANY, "taken every so many steps"),  \
        RULE(key ".from", "0", 0, MANY, "taken from this step on")

#define TRAINING_RULES(stage, step_count, batch, rate)                                                                 \
    RULE(stage ".steps", step_count, 1, MANY, "optimizer steps"),                                                      \
        {.path = stage ".batch_size",                                                                                  \
         .fallback = batch,                                                                                            \
         .minimum = 1,                                                                                                 \
         .maximum = 1048576,                                                                                           \
         .word = "auto",                                                                                               \
         .word_value = 0,                                                                                              \
         .help = "windows a micro-batch, or auto: the largest that fits memory_limit"},                                \
        RULE(stage ".accumulation", "1", 1, 65536, "micro-batches an optimizer step"),                                 \
        RULE(stage ".pairs_per_trajectory", "1", 1, 65536, "windows taken from a trajectory once it is decoded"),      \
        RULE(stage ".validate_every", "500", 0, MANY, "steps between validations; 0: only at the end"),                \
        RULE(stage ".checkpoint_every", "1000", 0, MANY, "steps between checkpoints; 0: only at the end"),             \
        RULE(stage ".log_every", "50", 1, MANY, "steps between lines in metrics.jsonl"),                               \
        RULE(stage ".validation_batches", "16", 1, MANY, "batches a validation takes from each task"),                 \
        RULE(stage ".memory_limit", "0", 0, 1e6, "GiB that batch_size: auto may plan for; 0: half of what is free"),   \
        RULE(stage ".spike_factor", "10", 0, 1e6, "reports a loss this many times its running mean; 0: never"),        \
        RULE(stage ".optimizer.learning_rate", rate, 0, 10, "peak learning rate"),                                     \
        RULE(stage ".optimizer.weight_decay", "0.01", 0, 10, "decoupled weight decay of matrices"),                    \
        RULE(stage ".optimizer.beta1", "0.9", 0, 0.999999, "AdamW's decay of the first moment"),                       \
        RULE(stage ".optimizer.beta2", "0.99", 0, 0.999999, "AdamW's decay of the second moment"),                     \
        RULE(stage ".optimizer.epsilon", "1e-8", 0, 1, "AdamW's guard against division by zero"),                      \
        RULE(stage ".optimizer.clip", "1.0", 0, 1e9, "largest gradient norm; 0: no clipping"),                         \
        RULE(stage ".optimizer.ema_decay", "0.0", 0, 0.999999, "decay of the weights' moving average; 0: none"),       \
        RULE(stage ".optimizer.schedule", "cosine", 0, 0, "learning rate after the warm-up"),                          \
        RULE(stage ".optimizer.warmup_steps", "100", 0, MANY, "steps of linear warm-up"),                              \
        RULE(stage ".optimizer.final_fraction", "0.01", 0, 1, "share of the peak at which the cosine ends")

/* Whether a directory, existing or not, is the root of the file system. */
static bool is_root(const char *path) {
    char resolved[PATH_MAX];
    return realpath(path, resolved) && strcmp(resolved, "/") == 0;
}

static const char *object_to_output(const char *text) {
    if (!text[0]) return "is empty, and the run would lie in /; name a directory of its own, such as runs/first";
    if (is_root(text)) return "is the root of the file system; name a directory of its own, such as runs/first";
    return NULL;
}

static const char *object_to_cache(const char *text) {
    return is_root(text) ? "is the root of the file system; name a directory, or leave it empty for output/cache"
                         : NULL;
}

static const ups_config_rule rules[] = {
    {.path = "output",
     .fallback = "runs/default",
     .help = "the run's directory: checkpoints, metrics, cache, pictures",
     .objection = object_to_output},
    RULE("seed", "42", 0, MANY, "seed of everything random"),
    RULE("precision", "auto", 0, 0,
         "what matmuls compute in (weights, gradients and the residual stream are float32); auto: bf16 where it is "
         "faster, on processors with AMX, else f32; fp16 (with a dynamic loss scale) is slower than f32 on processors; "
         "a run goes on in what it began in"),
    RULE("device.name", "auto", 0, 0, "auto, cpu or cuda"),
    RULE("device.threads", "0", 0, 4096, "cores the CPU's kernels use; 0: all"),
    RULE("data.root", ".", 0, 0, "folder that the tasks' files lie in"),
    RULE("data.split.train", "0.8", 0, 1, "share of a task's samples trained on"),
    RULE("data.split.validation", "0.1", 0, 1, "share that validation looks at"),
    RULE("data.split.test", "0.1", 0, 1, "share kept for evaluation"),
    RULE("data.io", "auto", 0, 0, "I/O engine; auto: io_uring, threads where it is refused"),
    RULE("data.decode_threads", "0", 0, 4096, "threads that decode; 0: one a core"),
    RULE("data.queue_depth", "64", 1, 65536, "reads in flight"),
    RULE("data.slots", "4", 2, 4096, "batches in flight"),
    RULE("data.direct", "false", 0, 0, "O_DIRECT: for data that exceeds memory"),
    RULE("data.residency", "auto", 0, 0,
         "what of the samples stays in memory once read: stream (nothing), ram_compressed (as stored), ram (decoded); "
         "encode (no cache: fields are encoded as they come, their latents kept while they fit); auto: what fits, "
         "encode where there is no complete cache"),
    RULE("data.residency_memory", "0", 0, 1e6, "GiB that samples may stay in; 0: a quarter of what is free"),
    RULE("data.on_bad_sample", "stop", 0, 0, "a sample with NaN or Inf: stop with a sentence, or skip and record it"),
    RULE("data.sampling", "balanced", 0, 0,
         "how tasks share the draws: by samples (proportional), equally (balanced), by samples^(1/temperature), or by "
         "validation loss (difficulty)"),
    RULE("data.temperature", "2", 0.01, 1e6, "of sampling: temperature; 1 is proportional, a large one balanced"),
    RULE("data.difficulty.smoothing", "0.5", 0, 0.999,
         "share of the average loss so far in the next one, at each validation"),
    RULE("data.difficulty.power", "1", 0, 10, "shares grow with the loss over the mean of all tasks', to this power"),
    RULE("data.difficulty.floor", "0.25", 0.001, 1, "least that a task's share is multiplied by"),
    RULE("data.difficulty.ceiling", "4", 1, 1000, "most that a task's share is multiplied by"),
    RULE("tasks[].name", NULL, 0, 0, "what the task is called everywhere: letters, digits, _ and -"),
    RULE("tasks[].files", NULL, 0, 0, "its files, relative to data.root; * ? [ ] stand for many"),
    RULE("tasks[].stride", "1", 1, MANY, "time stride of a step, in stored frames"),
    RULE("tasks[].max_samples", "0", 0, MANY, "takes only the first so many samples; 0: all"),
    RULE("tasks[].weight", "0", 0, 1e6, "multiplies its share of the draws, but for proportional sampling; 0: 1"),
    RULE("tasks[].from", "0", 0, MANY, "step of a stage from which the task is drawn"),
    RULE("tasks[].ramp", "0", 0, MANY, "steps after that in which its share rises to its full size"),
    RULE("tasks[].patch", "[8]", 1, 1024,
         "points a patch along each grid axis, slowest first; one number counts for all; the last patch may reach "
         "beyond the grid"),
    RULE("tasks[].field_scale", "[]", 1e-6, 1e6,
         "standard deviation each field is normalised to: its weight in losses"),
    RULE("model.tokens", "128", 1, 65536, "latent tokens"),
    RULE("model.dim", "128", 1, 65536, "features of a latent token"),
    RULE("model.encoder.width", "128", 1, 65536, "features of a patch inside the encoder"),
    RULE("model.encoder.pooling", "average", 0, 0, "how patches become tokens"),
    RULE("model.encoder.depth", "0", 0, 64,
         "transformer blocks on the tokens; 0 keeps latents linear in what the stem makes"),
    RULE("model.encoder.heads", "8", 1, 1024, "attention heads of pooling by queries and of the blocks; divides width"),
    RULE("model.encoder.mlp_ratio", "4", 0.1, 64, "MLP width over width, of the same"),
    RULE("model.encoder.frequencies", "[1, 2, 4, 8, 16]", 0, 1e6, "Fourier frequencies of a patch's place"),
    RULE("model.decoder.hidden", "128", 1, 65536, "features of a query point"),
    RULE("model.decoder.depth", "3", 1, 64, "layers of cross-attention onto the latents"),
    RULE("model.decoder.heads", "4", 1, 1024, "attention heads; divides hidden"),
    RULE("model.decoder.mlp_ratio", "2", 0.1, 64, "MLP width over hidden"),
    RULE("model.decoder.frequencies", "[1, 2, 4, 8]", 0, 1e6, "Fourier frequencies of a query point"),
    RULE("model.decoder.qk_norm", "false", 0, 0, "RMSNorm on each head's queries and keys"),
    RULE("model.decoder.position", "true", 0, 0, "tells the decoder where each latent's patches lie"),
    RULE("model.operator.hidden", "384", 1, 65536, "features of a token inside the operator"),
    RULE("model.operator.depth", "12", 1, 256, "transformer blocks"),
    RULE("model.operator.heads", "8", 1, 1024, "attention heads; divides hidden"),
    RULE("model.operator.mlp_ratio", "4", 0.1, 64, "MLP width over hidden"),
    RULE("model.operator.drop_path", "0.1", 0, 0.9, "drop-path of the last block, rising linearly from 0"),
    RULE("model.operator.qk_norm", "true", 0, 0, "RMSNorm on each head's queries and keys"),
    RULE("model.operator.condition", "true", 0, 0, "AdaLN from PDE parameters, task and time step"),
    RULE("model.operator.update_norm", "layer_norm", 0, 0, "what normalises the core's output before it is added to z"),
    RULE("stages", "[autoencoder, cache, operator]", 0, 0, "what `ups train` runs, in this order"),
    TRAINING_RULES("autoencoder", "5000", "16", "0.002"),
    RULE("autoencoder.queries", "256", 1, MANY, "points a sample is decoded at in a training step"),
    LOSS_RULES("autoencoder.losses.inverse_decoding", "1", "decode(encode(field)) against the field, mean squared"),
    LOSS_RULES("autoencoder.losses.relative", "0", "decode(encode(field)) against the field, nRMSE"),
    LOSS_RULES("autoencoder.losses.inverse_encoding", "0", "encode(decode(latent)) against the latent"),
    {.path = "cache.directory",
     .fallback = "''",
     .help = "where the cache lies; empty: output/cache",
     .objection = object_to_cache},
    RULE("cache.codec", "latent", 0, 0, "latent: smallest; portable: plain Zarr v3 + zstd for any reader"),
    RULE("cache.samples_per_shard", "0", 0, 1e9, "trajectories a shard; 0: by size"),
    RULE("cache.level", "1", 1, 19, "zstd level of a portable cache"),
    RULE("cache.max_abs_error", "0", 0, 100,
         "how far latents may be moved so that the cache is smaller; 0: not at all"),
    RULE("cache.fill", "false", 0, 0, "puts what training encodes as it goes into the cache"),
    RULE("cache.on_bad_sample", "stop", 0, 0,
         "a latent that is not finite or overflows FP16: stop, or skip and record it"),
    RULE("cache.memory_limit", "0", 0, 1e6, "GiB that building it may plan for; 0: half of what is free"),
    TRAINING_RULES("operator", "20000", "16", "0.001"),
    RULE("operator.rollout_steps", "4", 2, MOST_ROLLOUT_STEPS, "steps of the rollout loss"),
    LOSS_RULES("operator.losses.one_step", "1", "latent after one step, mean squared"),
    LOSS_RULES("operator.losses.relative", "0", "latent after one step, nRMSE"),
    LOSS_RULES("operator.losses.rollout", "0", "latents of every later step of a rollout, mean squared"),
    RULE("evaluation.horizons", "[1, 10, 0]", 0, 1e9, "steps ahead to report; 0: the whole trajectory"),
    RULE("evaluation.max_samples", "64", 0, MANY, "trajectories evaluated a task; 0: all of the split"),
    RULE("evaluation.start_every", "10", 1, MANY, "steps between the start frames of one trajectory"),
};

const ups_config_schema ups_run_schema = {&run_value, rules, sizeof rules / sizeof *rules};

/* ---- loading ---------------------------------------------------------------------------------------------------- */

ups_status ups_run_config_load(const char *path, const char *const *overrides, size_t override_count,
                               ups_run_config **config, ups_error *error) {
    void *value = NULL;
    UPS_TRY(ups_config_load(path, &ups_run_schema, overrides, override_count, &value, error));
    ups_status status = ups_run_config_check(path, value, error);
    if (status != UPS_OK) {
        ups_run_config_free(value);
        return status;
    }
    *config = value;
    return UPS_OK;
}

void ups_run_config_free(ups_run_config *config) {
    if (config) ups_config_free(&ups_run_schema, config);
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

char *ups_run_path(const ups_run_config *config, const char *format, ...) {
    char *tail = NULL, *path = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&tail, format, args);
    va_end(args);
    if (length < 0 || asprintf(&path, "%s/%s", config->output, tail) < 0) path = NULL;
    free(tail);
    return path;
}

char *ups_run_cache_directory(const ups_run_config *config) {
    return config->cache.directory[0] ? strdup(config->cache.directory) : ups_run_path(config, "cache");
}
