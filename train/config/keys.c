/* The keys of a run's configuration. A key is its member in config.h and its entry here; docs/ups.1 lists it too. */
#include "base/nearest.h"
#include "model/nets/core.h"
#include "train/config/check.h"
#include "train/config/load.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY UPS_CONFIG_UNBOUNDED

/* ---- choices, by their values ---------------------------------------------------------------------------------- */

static const char *const precisions[] = {"auto", "f32", "tf32", "bf16", "fp16", "fp8", NULL};
static const char *const checkpointings[] = {"none", "cheap", "block", NULL};
static const char *const poolings[] = {"average", "queries", NULL};
static const char *const update_norms[] = {"layer_norm", "none", NULL};
static const char *const residuals[] = {"float32", "half", NULL};
static const char *const mixings[] = {"attention", "spectral", "auto", NULL};
static const char *const halves[] = {"mixing", "mlp", NULL};
static const char *const attentions[] = {"standard", "channel_separated", "window", NULL};
static const char *const positions[] = {"borders", "none", "learned", "rotary", NULL};
static const char *const codecs[] = {"latent", "portable", NULL};
static const char *const optimizers[] = {"adamw", "muon", NULL};
static const char *const schedules[] = {"constant", "cosine", "wsd", "plateau", NULL};
static const char *const decay_shapes[] = {"linear", "sqrt", NULL};
static const char *const split_bys[] = {"auto", "index", "sample", "time", NULL};
static const char *const gradient_paths[] = {"auto", "host", "nccl", NULL};
static const char *const shardings[] = {"none", "optimizer", NULL};
static const char *const engines[] = {"auto", "uring", "threads", NULL};
static const char *const residencies[] = {"auto", "stream", "ram_compressed", "ram", "encode", "device", NULL};
static const char *const strategies[] = {"proportional", "balanced", "temperature", "difficulty", NULL};
static const char *const query_samplings[] = {"uniform", "stratified", "curriculum", NULL};
static const char *const augments[] = {"none", "shift", "symmetries", NULL};
static const char *const linear_parts[] = {"token", "neighbors", NULL};
static const char *const initials[] = {"auto", "linear", "persistence", NULL};
static const char *const bad_samples[] = {"stop", "skip", NULL};

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

static const char *object_to_core(const char *text) {
    static _Thread_local char objection[120]; /* read before the next value is */
    if (ups_core_find(text)) return NULL;
    ups_nearest nearest = {.word = text};
    for (int i = 0; ups_cores[i]; i++) ups_nearest_try(&nearest, ups_cores[i]->name);
    if (!nearest.name) return "is no core of the operator; `ups config keys model.operator.core` tells which there are";
    snprintf(objection, sizeof objection, "is no core of the operator; did you mean '%s'?", nearest.name);
    return objection;
}

/* "0.1", "10%", "first 10%", "last 0.1". */
bool ups_run_read_share(const char *text, double *share, ups_test_place *place) {
    *place = strncmp(text, "first ", 6) == 0  ? UPS_TEST_FIRST
             : strncmp(text, "last ", 5) == 0 ? UPS_TEST_LAST
                                              : UPS_TEST_ANYWHERE;
    if (*place != UPS_TEST_ANYWHERE) text = strchr(text, ' ') + 1;
    char *end;
    *share = strtod(text, &end);
    if (end == text) return false;
    if (*end == '%') {
        *share /= 100;
        end++;
    }
    return *end == '\0' && *share >= 0 && *share <= 1;
}

static const char *object_to_share(const char *text) {
    double share;
    ups_test_place place;
    return ups_run_read_share(text, &share, &place)
               ? NULL
               : "is no share between 0 and 1; 0.1, 10%, first 10% or last 10% were possible";
}

#define KEY(...) UPS_CONFIG_KEY(ups_run_config, __VA_ARGS__)
#define TASK_KEY(...) UPS_CONFIG_KEY(ups_task_config, __VA_ARGS__)
#define SUBSECTION UPS_CONFIG_SUBSECTION
#define LIST(type, member, count, minimum, maximum) .list = UPS_CONFIG_LIST(type, member, count, minimum, maximum)

/* ---- sections that several stages have ------------------------------------------------------------------------- */

#define LOSS(key, at, default_weight, text)                                                                            \
    SUBSECTION(key, KEY(DOUBLE, "weight", at.weight, default_weight, 0, 1e6, text),                                    \
               KEY(INT64, "every", at.every, "1", 1, MANY, "taken every so many steps"),                               \
               KEY(INT64, "from", at.from, "0", 0, MANY, "taken from this step on"),                                   \
               KEY(INT64, "warmup", at.warmup, "0", 0, MANY,                                                           \
                   "steps over which its weight rises from nothing; 0: it is whole at once"))

#define LOSS_OF_FIELDS(key, at, names_at, text, fields_text)                                                           \
    SUBSECTION(key, KEY(DOUBLE, "weight", at.weight, "0", 0, 1e6, text),                                               \
               KEY(INT64, "every", at.every, "1", 1, MANY, "taken every so many steps"),                               \
               KEY(INT64, "from", at.from, "0", 0, MANY, "taken from this step on"),                                   \
               KEY(INT64, "warmup", at.warmup, "0", 0, MANY,                                                           \
                   "steps over which its weight rises from nothing; 0: it is whole at once"),                          \
               KEY(TEXT, "fields", names_at.names, "[]", 1, 256, fields_text,                                          \
                   LIST(ups_run_config, names_at.names, names_at.count, 0, 0)))

#define OPTIMIZER(at, by, rate, decay, average)                                                                        \
    SUBSECTION(                                                                                                        \
        "optimizer",                                                                                                   \
        KEY(CHOICE, "kind", at.kind, by, 0, 0,                                                                         \
            "adamw, or muon: hidden matrices move along their momentum made orthogonal, all else by AdamW",            \
            .choices = optimizers),                                                                                    \
        KEY(DOUBLE, "learning_rate", at.learning_rate, rate, 0, 10, "peak learning rate"),                             \
        KEY(DOUBLE, "weight_decay", at.weight_decay, decay, 0, 10, "decoupled weight decay of matrices"),              \
        KEY(DOUBLE, "beta1", at.beta1, "0.9", 0, 0.999999, "AdamW's decay of the first moment"),                       \
        KEY(DOUBLE, "beta2", at.beta2, "0.99", 0, 0.999999, "AdamW's decay of the second moment"),                     \
        KEY(DOUBLE, "epsilon", at.epsilon, "1e-8", 0, 1, "AdamW's guard against division by zero"),                    \
        KEY(DOUBLE, "momentum", at.momentum, "0.95", 0, 0.999999, "Muon's decay of the momentum"),                     \
        KEY(DOUBLE, "clip", at.clip, "1.0", 0, 1e9, "largest gradient norm; 0: no clipping"),                          \
        KEY(DOUBLE, "ema_decay", at.ema_decay, average, 0, 0.999999,                                                   \
            "decay of the weights' moving average, less in the first steps, which is what is validated and kept; 0: "  \
            "none"),                                                                                                   \
        KEY(CHOICE, "schedule", at.schedule, "cosine", 0, 0,                                                           \
            "learning rate after the warm-up: constant; cosine, down to the last step; wsd, constant and down in the " \
            "last steps; plateau, lower each time that validations no longer get better",                              \
            .choices = schedules),                                                                                     \
        KEY(INT64, "warmup_steps", at.warmup_steps, "100", 0, MANY, "steps of linear warm-up"),                        \
        KEY(DOUBLE, "final_fraction", at.final_fraction, "0.01", 0, 1,                                                 \
            "share of the peak at which cosine and wsd end, and below which plateau does not go"),                     \
        KEY(DOUBLE, "decay_fraction", at.decay_fraction, "0.2", 0.001, 1,                                              \
            "share of the steps, the last ones, in which the rate of wsd falls"),                                      \
        KEY(CHOICE, "decay_shape", at.decay_shape, "sqrt", 0, 0,                                                       \
            "how it falls: linear, or sqrt (by 1 - sqrt of the share of the decay that is done)",                      \
            .choices = decay_shapes),                                                                                  \
        KEY(DOUBLE, "plateau_factor", at.plateau_factor, "0.5", 0.001, 0.999, "what plateau multiplies the rate by"),  \
        KEY(INT64, "plateau_patience", at.plateau_patience, "3", 1, MANY,                                              \
            "validations in a row without a better score (min_delta) after which plateau lowers the rate"),            \
        KEY(BOOL, "offload", at.offload, "false", 0, 0,                                                                \
            "on a card: moments lie in the host's memory, and steps reach them there", .neutral = true))

#define TRAINING(at, step_count, batch, optimizer_keys)                                                                \
    KEY(INT64, "steps", at.steps, step_count, 0, MANY, "optimizer steps; 0: the model stays what it begins as"),       \
        KEY(INT64, "batch_size", at.batch_size, batch, 1, 1048576,                                                     \
            "windows a micro-batch, or auto: the largest that fits memory_limit", .word = "auto"),                     \
        KEY(INT64, "accumulation", at.accumulation, "1", 1, 65536, "micro-batches an optimizer step"),                 \
        KEY(INT64, "pairs_per_trajectory", at.pairs_per_trajectory, "1", 1, 65536,                                     \
            "windows taken from a trajectory once it is decoded"),                                                     \
        KEY(INT64, "validate_every", at.validate_every, "500", 0, MANY,                                                \
            "steps between validations; 0: only at the end"),                                                          \
        KEY(INT64, "checkpoint_every", at.checkpoint_every, "1000", 0, MANY,                                           \
            "steps between checkpoints; 0: only at the end", .neutral = true),                                         \
        KEY(INT64, "log_every", at.log_every, "50", 1, MANY, "steps between lines in metrics.jsonl", .neutral = true), \
        KEY(INT64, "validation_batches", at.validation_batches, "16", 1, MANY,                                         \
            "batches a validation takes from each task"),                                                              \
        KEY(INT64, "patience", at.patience, "0", 0, MANY,                                                              \
            "validations in a row without a better score after which the stage ends; 0: never"),                       \
        KEY(DOUBLE, "min_delta", at.min_delta, "0", 0, 1e6,                                                            \
            "by how much a validation's score has to be lower to be better"),                                          \
        KEY(DOUBLE, "memory_limit", at.memory_limit, "0", 0, 1e6,                                                      \
            "GiB that batch_size: auto may plan for; 0: half of what is free, on a card device.memory",                \
            .neutral = true),                                                                                          \
        KEY(CHOICE, "activation_checkpointing", at.checkpointing, "none", 0, 0,                                        \
            "activations that backward computes again instead of keeping: none, cheap (all but products), or block",   \
            .choices = checkpointings, .neutral = true),                                                               \
        KEY(DOUBLE, "spike_factor", at.spike_factor, "10", 0, 1e6,                                                     \
            "reports a loss this many times its running mean, if larger than all reported before; 0: never",           \
            .neutral = true),                                                                                          \
        optimizer_keys

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static const ups_config_key data_keys[] = {
    KEY(TEXT, "root", data.root, ".", 0, 0, "folder that the tasks' files lie in, relative to this file's",
        .path = true, .neutral = true),
    SUBSECTION("split", KEY(DOUBLE, "train", data.split.train, "0.8", 0, 1, "share of a task's samples trained on"),
               KEY(DOUBLE, "validation", data.split.validation, "0.1", 0, 1, "share that validation looks at"),
               KEY(TEXT, "test", data.split.test_share, "0.1", 0, 0,
                   "share kept for evaluation, drawn at random: 0.1 or 10%; first 10% or last 10%: of each file",
                   .objection = object_to_share),
               KEY(CHOICE, "by", data.split.by, "auto", 0, 0,
                   "what is split: sample (each by itself), index (sample i of all of a task's files together), time "
                   "(the segments of each trajectory, the last ones held out); auto: time where `segment` cuts fewer "
                   "trajectories than there are splits, index where files hold equally many samples that begin alike",
                   .choices = split_bys)),
    KEY(CHOICE, "io", data.io, "auto", 0, 0, "I/O engine; auto: io_uring, threads where it is refused",
        .choices = engines, .neutral = true),
    KEY(INT32, "decode_threads", data.decode_threads, "0", 0, 4096, "threads that decode; 0: one a core",
        .neutral = true),
    KEY(INT32, "queue_depth", data.queue_depth, "64", 1, 65536, "reads in flight", .neutral = true),
    KEY(INT32, "slots", data.slots, "4", 2, 4096, "batches in flight", .neutral = true),
    KEY(BOOL, "direct", data.direct, "false", 0, 0, "O_DIRECT: for data that exceeds memory", .neutral = true),
    KEY(CHOICE, "residency", data.residency, "auto", 0, 0,
        "what of the samples stays in memory once read: stream (nothing), ram_compressed (as stored), ram (decoded); "
        "encode (no cache: fields are encoded on the fly, their latents kept while they fit); device (ram, "
        "and a card's memory, where windows are drawn); auto: what fits, encode where there is no complete cache",
        .choices = residencies, .neutral = true),
    KEY(DOUBLE, "residency_memory", data.residency_memory, "0", 0, 1e6,
        "GiB that samples may stay in; 0: a quarter of what is free", .neutral = true),
    KEY(CHOICE, "on_bad_sample", data.on_bad_sample, "stop", 0, 0,
        "a sample with NaN or Inf: stop with a sentence, or skip and record it", .choices = bad_samples,
        .neutral = true),
    KEY(CHOICE, "sampling", data.strategy, "balanced", 0, 0,
        "how tasks share the draws: by samples (proportional), equally (balanced), by samples^(1/temperature), or by "
        "validation loss (difficulty)",
        .choices = strategies),
    KEY(DOUBLE, "temperature", data.temperature, "2", 0.01, 1e6,
        "of sampling: temperature; 1 is proportional, a large one balanced"),
    SUBSECTION(
        "difficulty",
        KEY(DOUBLE, "smoothing", data.difficulty.smoothing, "0.5", 0, 0.999,
            "share of the average loss so far in the next one, at each validation"),
        KEY(DOUBLE, "power", data.difficulty.power, "1", 0, 10,
            "shares grow with the loss over the mean of all tasks', to this power"),
        KEY(DOUBLE, "floor", data.difficulty.floor, "0.25", 0.001, 1, "least that a task's share is multiplied by"),
        KEY(DOUBLE, "ceiling", data.difficulty.ceiling, "4", 1, 1000, "most that a task's share is multiplied by")),
    {.name = NULL}};

static const ups_config_key task_keys[] = {
    TASK_KEY(TEXT, "name", name, NULL, 1, 64, "what the task is called everywhere: letters, digits, _ and -"),
    TASK_KEY(TEXT, "files", files, NULL, 1, MANY, "its files, relative to data.root; * ? [ ] stand for many",
             LIST(ups_task_config, files, file_count, 1, 0)),
    TASK_KEY(TEXT, "test_files", test_files, "[]", 1, MANY,
             "further files, kept for evaluation whole; training and validation share out the others",
             LIST(ups_task_config, test_files, test_file_count, 0, 0)),
    TASK_KEY(INT64, "stride", stride, "1", 1, MANY, "time stride of a step, in stored frames"),
    TASK_KEY(INT64, "strides", strides, "[]", 1, MANY,
             "time strides that the operator learns at once, in stored frames, `stride` among them; []: that one alone",
             LIST(ups_task_config, strides, stride_count, 0, UPS_MAX_STRIDES)),
    TASK_KEY(INT32, "bundle", bundle, "0", 0, UPS_MAX_BUNDLE,
             "frames that an application of the operator gives for this task; 0: model.operator.bundle; more than 1 "
             "needs model.tokens: grid"),
    TASK_KEY(INT64, "segment", segment, "0", 0, MANY,
             "cuts trajectories into segments of so many frames, each a sample of its own: long ones, and those of "
             "different lengths; 0: they stay whole"),
    TASK_KEY(INT64, "thin", thin, "[]", 1, 1024,
             "takes every n-th point along each grid axis, slowest first, as if the files had no others: PDEBench's "
             "reduced_resolution; one number counts for all axes; []: all points",
             LIST(ups_task_config, thin, thin_count, 0, UPS_MAX_GRID_DIMS)),
    TASK_KEY(INT64, "max_samples", max_samples, "0", 0, MANY,
             "takes only the first so many samples of `files`; 0: all. Those of test_files all stay"),
    TASK_KEY(DOUBLE, "weight", weight, "0", 0, 1e6,
             "multiplies its share of the draws, but for proportional sampling; 0: 1"),
    TASK_KEY(INT64, "from", from, "0", 0, MANY, "step of a stage from which the task is drawn"),
    TASK_KEY(INT64, "ramp", ramp, "0", 0, MANY, "steps after that in which its share rises to its full size"),
    TASK_KEY(INT64, "patch", patch, "[8]", 1, 1024,
             "points a patch along each grid axis, slowest first; one number counts for all; the last patch may reach "
             "beyond the grid",
             LIST(ups_task_config, patch, patch_count, 1, 0)),
    TASK_KEY(BOOL, "symmetries", symmetries, "true", 0, 0,
             "whether operator.augment: symmetries is of this task, too; false where its equation has a direction of "
             "its own, as advection with a given speed, gravity or an inflow have"),
    TASK_KEY(FLOAT, "field_scale", field_scale, "[]", 1e-6, 1e6,
             "standard deviation each field is normalised to: its weight in losses",
             LIST(ups_task_config, field_scale, field_scale_count, 0, 0)),
    {.name = "layout",
     .type = UPS_CONFIG_SECTION,
     .offset = offsetof(ups_task_config, layout),
     .keys = ups_mapping_keys},
    {.name = NULL}};

static const ups_config_key model_keys[] = {
    KEY(TEXT, "from", model.from, "''", 0, 0,
        "a run, or a file of `ups export`, as whose model this one begins: tasks of the same name go on as they were "
        "there, others share its blocks; keys of this section that are not given are that model's; empty: none, it "
        "begins with random numbers",
        .path = true, .working = true),
    KEY(INT64, "tokens", model.tokens, "128", 1, 65536,
        "latent tokens; grid: one for each patch of the task's grid, which a linear map encodes", .word = "grid"),
    KEY(INT64, "dim", model.dim, "128", 1, 65536,
        "features of a latent token, with tokens: grid at most the numbers of a patch; auto: as few as reach "
        "autoencoder.target",
        .word = "auto"),
    KEY(DOUBLE, "bound", model.bound, "0", 0, 1e6,
        "softly bounds latents z: they become b asinh(z / b), with this b, and z again in the decoder; 0: they stay z"),
    SUBSECTION("encoder",
               KEY(INT64, "width", model.encoder.width, "128", 1, 65536, "features of a patch inside the encoder"),
               KEY(INT64, "depth", model.encoder.depth, "0", 0, 64,
                   "transformer blocks on the tokens; 0 keeps latents linear in what the stem makes"),
               KEY(INT64, "heads", model.encoder.heads, "8", 1, 1024,
                   "attention heads of pooling by queries and of the blocks; divides width"),
               KEY(DOUBLE, "mlp_ratio", model.encoder.mlp_ratio, "4", 0.1, 64, "MLP width over width, of the same"),
               KEY(CHOICE, "pooling", model.encoder.pooling, "average", 0, 0, "how patches become tokens",
                   .choices = poolings),
               KEY(FLOAT, "frequencies", model.encoder.frequencies, "[1, 2, 4, 8, 16]", 0, 1e6,
                   "Fourier frequencies of a patch's place",
                   LIST(ups_run_config, model.encoder.frequencies, model.encoder.frequency_count, 1, 0))),
    SUBSECTION("decoder", KEY(INT64, "hidden", model.decoder.hidden, "128", 1, 65536, "features of a query point"),
               KEY(INT64, "depth", model.decoder.depth, "3", 1, 64, "layers of cross-attention onto the latents"),
               KEY(INT64, "heads", model.decoder.heads, "4", 1, 1024, "attention heads; divides hidden"),
               KEY(DOUBLE, "mlp_ratio", model.decoder.mlp_ratio, "2", 0.1, 64, "MLP width over hidden"),
               KEY(FLOAT, "frequencies", model.decoder.frequencies, "[1, 2, 4, 8]", 0, 1e6,
                   "Fourier frequencies of a query point",
                   LIST(ups_run_config, model.decoder.frequencies, model.decoder.frequency_count, 1, 0)),
               KEY(BOOL, "qk_norm", model.decoder.qk_norm, "false", 0, 0, "RMSNorm on each head's queries and keys"),
               KEY(BOOL, "position", model.decoder.position, "true", 0, 0,
                   "tells the decoder where each latent's patches lie"),
               KEY(INT64, "between", model.decoder.between, "0", 0, 4096,
                   "with tokens: grid: features of a learnt correction of what is read between the grid's points; 0: "
                   "none, cubic convolution alone")),
    SUBSECTION(
        "operator",
        KEY(TEXT, "core", model.core.name, "stack", 0, 0,
            "what changes tokens: stack (transformer blocks), spectral (Fourier modes of the token grid), unet (blocks "
            "on "
            "ever coarser tokens and back)",
            .objection = object_to_core),
        KEY(INT64, "hidden", model.core.hidden, "384", 1, 65536, "features of a token inside the operator"),
        KEY(INT64, "depth", model.core.depth, "12", 1, 256, "blocks of the cores stack and spectral"),
        KEY(INT64, "depths", model.core.depths, "[2, 2, 2]", 1, 64,
            "blocks of the core unet on each level, finest first; but for the last one, as many again on the way up",
            LIST(ups_run_config, model.core.depths, model.core.depth_count, 1, UPS_MAX_LEVELS)),
        KEY(INT64, "merge_above", model.core.merge_above, "0", 0, MANY,
            "of the core unet: a level of at most so many tokens hands them on as they are, and does not merge them in "
            "pairs; 0: every level merges"),
        KEY(INT64, "heads", model.core.heads, "8", 1, 1024, "attention heads; divides hidden"),
        KEY(DOUBLE, "mlp_ratio", model.core.mlp_ratio, "4", 0.1, 64, "MLP width over hidden"),
        KEY(DOUBLE, "drop_path", model.core.drop_path, "0", 0, 0.9,
            "drop-path of the last block, rising linearly from 0"),
        KEY(BOOL, "qk_norm", model.core.qk_norm, "true", 0, 0, "RMSNorm on each head's queries and keys"),
        KEY(CHOICE, "mixing", model.core.mixing, "[]", 0, 0,
            "what the core's blocks do in turn, such as [spectral, attention]; auto: attention to few tokens, Fourier "
            "modes of many, for each task by itself; []: all do what the core does by itself",
            .choices = mixings, LIST(ups_run_config, model.core.mixing, model.core.mixing_count, 0, UPS_MAX_TURNS)),
        KEY(INT64, "attended_tokens", model.core.attended_tokens, "256", 0, MANY,
            "with mixing: [auto]: how many tokens blocks attend to, at most; of more they mix Fourier modes, but for "
            "tokens on no regular grid; in a U-Net those of its level count"),
        KEY(CHOICE, "task_specific", model.core.task_specific, "[]", 0, 0,
            "with tokens: grid: what each task has weights of its own for in every block: mlp, mixing; a step costs "
            "the same; []: tasks share all of it",
            .choices = halves,
            LIST(ups_run_config, model.core.task_specific, model.core.task_specific_count, 0, UPS_HALF_COUNT)),
        KEY(CHOICE, "attention", model.core.attention, "standard", 0, 0,
            "over all tokens, by groups of 32 features that share weights, or over tokens of a window of the token "
            "grid, "
            "shifted in every second block that attends",
            .choices = attentions),
        KEY(INT64, "window", model.core.window, "[16, 8, 4]", 2, 4096,
            "tokens of a window along an axis: of tasks with one, two and three grid axes; the last number counts for "
            "those after it",
            LIST(ups_run_config, model.core.window, model.core.window_count, 1, 3)),
        KEY(CHOICE, "positions", model.core.positions, "rotary", 0, 0,
            "how blocks know where a token of the grid lies: borders: a map of its place is added where the domain has "
            "borders; rotary: as borders, and attention, where blocks attend, turns queries and keys by their places; "
            "learned: a table of each task is added",
            .choices = positions),
        KEY(INT64, "convolution", model.core.convolution, "0", 0, 7,
            "cells along an axis of a depthwise convolution over the token grid in every block: 3, 5 or 7; 0: none"),
        KEY(INT64, "modes", model.core.modes, "[32, 12, 8]", 1, 4096,
            "modes along an axis that spectral mixing takes, at most: of tasks with one, two and three grid axes; "
            "the last number counts for those after it",
            LIST(ups_run_config, model.core.modes, model.core.mode_count, 1, 3)),
        KEY(BOOL, "factorized", model.core.factorized, "false", 0, 0,
            "in 2D and 3D, spectral mixing takes the modes along each axis by itself, as a factorized FNO does, not "
            "those of all axes together: far fewer weights"),
        KEY(BOOL, "condition", model.core.condition, "true", 0, 0, "AdaLN from PDE parameters, task and time step"),
        KEY(BOOL, "boundary", model.core.boundary, "false", 0, 0,
            "on a grid of tokens: AdaLN is told, too, whether the domain is periodic or open: a vector of each, which "
            "tasks share"),
        KEY(BOOL, "conserve", model.core.conserve, "true", 0, 0,
            "on a grid of tokens: a mean over the domain that is the same in all training frames stays the same"),
        KEY(CHOICE, "linear", model.core.linear, "token", 0, 0,
            "what the linear part of an update reads, on a grid of tokens: token: the token alone; neighbors: those "
            "around "
            "it, too, 3 along each axis, which points that lie anywhere do not have",
            .choices = linear_parts),
        KEY(CHOICE, "update_norm", model.core.update_norm, "layer_norm", 0, 0,
            "what normalises the core's output before it is added to z, of a fixed number of tokens: with tokens: grid "
            "nothing does",
            .choices = update_norms),
        KEY(CHOICE, "residual", model.core.residual, "float32", 0, 0,
            "dtype of what the blocks add to: half is that of the products in bf16 and fp16 runs, which moves less "
            "memory on a card, and rounds what blocks add to the stream, and to its gradient",
            .choices = residuals),
        KEY(INT32, "history", model.core.history, "1", 1, UPS_MAX_HISTORY,
            "frames that the operator reads; more than 1 with tokens: grid"),
        KEY(INT32, "bundle", model.core.bundle, "1", 1, UPS_MAX_BUNDLE,
            "frames that an application of the operator gives; more than 1 with tokens: grid")),
    {.name = NULL}};

static const ups_config_key autoencoder_keys[] = {
    TRAINING(autoencoder.training, "5000", "16",
             OPTIMIZER(autoencoder.training.optimizer, "adamw", "0.002", "0.01", "0.0")),
    KEY(INT64, "queries", autoencoder.queries, "256", 1, MANY, "points a sample is decoded at in a training step"),
    KEY(CHOICE, "query_sampling", autoencoder.query_sampling, "uniform", 0, 0,
        "how these points are drawn: uniform; stratified (one from each of as many parts of the grid); curriculum "
        "(from every eighth point along each axis at first to all of them in the last quarter)",
        .choices = query_samplings),
    KEY(DOUBLE, "target", autoencoder.target, "0.001", 0, 1,
        "nRMSE of fields read back that model.dim: auto is chosen for"),
    KEY(DOUBLE, "gate", autoencoder.gate, "0.2", 0, 1e6,
        "the run stops where held-out fields, encoded and decoded, have a larger nRMSE in any task; 0: never",
        .neutral = true),
    SUBSECTION("losses",
               LOSS("inverse_decoding", autoencoder.training.losses[UPS_AUTOENCODER_INVERSE_DECODING], "0",
                    "decode(encode(field)) against the field, mean squared"),
               LOSS("relative", autoencoder.training.losses[UPS_AUTOENCODER_RELATIVE], "1",
                    "decode(encode(field)) against the field, nRMSE"),
               LOSS("inverse_encoding", autoencoder.training.losses[UPS_AUTOENCODER_INVERSE_ENCODING], "0",
                    "encode(decode(latent)) against the latent; begin it when fields are read back well, by from: "
                    "before, it draws all latents together"),
               LOSS("latent_norm", autoencoder.training.losses[UPS_AUTOENCODER_LATENT_NORM], "0",
                    "variance of each latent feature over a batch against 1, mean squared"),
               LOSS("latent_diversity", autoencoder.training.losses[UPS_AUTOENCODER_LATENT_DIVERSITY], "0",
                    "covariance of each two latent features over a batch against 0, mean squared"),
               LOSS("rounded", autoencoder.training.losses[UPS_AUTOENCODER_ROUNDED], "0",
                    "decode(encode(field)) against the field, nRMSE, of latents rounded to FP16 as the cache has them; "
                    "steps with it compute in float32"),
               LOSS("between", autoencoder.training.losses[UPS_AUTOENCODER_BETWEEN], "0",
                    "field at grid points and between them, read from every second point, nRMSE: what "
                    "model.decoder.between learns from")),
    {.name = NULL}};

static const ups_config_key cache_keys[] = {
    KEY(TEXT, "directory", cache.directory, "''", 0, 0, "where the cache lies; empty: output/cache",
        .objection = object_to_cache, .neutral = true),
    KEY(CHOICE, "codec", cache.codec, "latent", 0, 0, "latent: smallest; portable: plain Zarr v3 + zstd for any reader",
        .choices = codecs),
    KEY(INT64, "samples_per_shard", cache.samples_per_shard, "0", 0, 1e9, "trajectories a shard; 0: by size"),
    KEY(INT64, "level", cache.level, "1", 1, 19, "zstd level of a portable cache"),
    KEY(FLOAT, "max_abs_error", cache.max_abs_error, "0", 0, 100,
        "how far latents may be moved so that the cache is smaller; 0: not at all"),
    {.name = "fill",
     .type = UPS_CONFIG_REMOVED,
     .default_value = "false",
     .help = "training no longer fills the cache, since building it first was faster; remove "
             "the line, and run `ups cache build` where a cache is wanted"},
    KEY(CHOICE, "on_bad_sample", cache.on_bad_sample, "stop", 0, 0,
        "a latent that is not finite or overflows FP16: stop, or skip and record it", .choices = bad_samples,
        .neutral = true),
    KEY(DOUBLE, "memory_limit", cache.memory_limit, "0", 0, 1e6,
        "GiB that building it may plan for; 0: half of what is free", .neutral = true),
    {.name = NULL}};

static const ups_config_key operator_keys[] = {
    TRAINING(op.training, "20000", "16", OPTIMIZER(op.training.optimizer, "muon", "0.002", "0.0001", "0.998")),
    KEY(CHOICE, "initial", op.initial, "auto", 0, 0,
        "what an operator on a grid of tokens begins as: linear: the linear map (model.operator.linear) that comes "
        "closest "
        "to a step, measured on training trajectories; persistence: no change; auto: linear for tasks of which that "
        "map "
        "explains three quarters of what a step changes",
        .choices = initials),
    KEY(INT64, "rollout_steps", op.rollout_steps, "4", 2, UPS_MAX_ROLLOUT_STEPS,
        "applications of the operator in the rollout losses"),
    KEY(INT64, "rollout_curriculum", op.rollout_curriculum, "[]", 1, UPS_MAX_ROLLOUT_STEPS,
        "applications in the rollout losses before that: [2, 4] means 2 in the first third of the steps that take such "
        "losses, 4 in the second, rollout_steps in the last",
        LIST(ups_run_config, op.rollout_curriculum, op.rollout_curriculum_count, 0, UPS_MAX_CURRICULUM)),
    KEY(BOOL, "pushforward", op.pushforward, "false", 0, 0,
        "rollout losses teach each application of the operator to go on from what those before it gave; no gradient "
        "goes back to them, so that nothing is learnt of what a step does to later ones"),
    KEY(DOUBLE, "noise", op.noise, "0", 0, 100,
        "deviation of the noise added to a window's first state in training, over what a step changes"),
    KEY(CHOICE, "augment", op.augment, "none", 0, 0,
        "what is done to windows at random in training; shift: those of periodic domains are shifted by whole tokens; "
        "symmetries: windows are reflected, and axes that are alike exchanged, which helps where trajectories are few "
        "and the equation has no direction of its own",
        .choices = augments),
    KEY(TEXT, "vectors", op.vectors.names, "[" UPS_USUAL_VECTORS "]", 1, 256,
        "for symmetries: fields that are components of vectors, along each grid axis in their order, one vector after "
        "the other; all other fields are scalars, and every name that is given is a field of some task",
        LIST(ups_run_config, op.vectors.names, op.vectors.count, 0, 0)),
    KEY(DOUBLE, "short_history", op.short_history, "0.2", 0, 1,
        "share of windows that know fewer frames than model.operator.history, as rollouts do when they begin"),
    SUBSECTION("losses",
               LOSS("one_step", op.training.losses[UPS_OPERATOR_ONE_STEP], "0", "latent after one step, mean squared"),
               LOSS("relative", op.training.losses[UPS_OPERATOR_RELATIVE], "1", "latent after one step, nRMSE"),
               LOSS("rollout", op.training.losses[UPS_OPERATOR_ROLLOUT], "0",
                    "latents of every later step of a rollout, mean squared"),
               LOSS("rollout_relative", op.training.losses[UPS_OPERATOR_ROLLOUT_RELATIVE], "0",
                    "latents of every later step of a rollout, nRMSE"),
               LOSS("semigroup", op.training.losses[UPS_OPERATOR_SEMIGROUP], "0",
                    "latent after one step of twice the length against that after two steps, nRMSE"),
               LOSS("decoded", op.training.losses[UPS_OPERATOR_DECODED], "0", "field after one step, nRMSE"),
               LOSS("rollout_decoded", op.training.losses[UPS_OPERATOR_ROLLOUT_DECODED], "0",
                    "fields of every later step of a rollout, nRMSE"),
               LOSS("spectral", op.training.losses[UPS_OPERATOR_SPECTRAL], "0",
                    "Fourier modes of the field, relative error of each octave of wavenumbers"),
               LOSS_OF_FIELDS("conservation", op.training.losses[UPS_OPERATOR_CONSERVATION], op.conservation,
                              "mean of a field over the grid, squared error", "fields it is of; none: all"),
               LOSS_OF_FIELDS("positivity", op.training.losses[UPS_OPERATOR_POSITIVITY], op.positivity,
                              "what of a field is below zero, mean squared", "fields it is of, such as density"),
               LOSS_OF_FIELDS("divergence", op.training.losses[UPS_OPERATOR_DIVERGENCE], op.divergence,
                              "divergence of the velocity, mean squared error",
                              "velocity along each grid axis, in their order"),
               LOSS_OF_FIELDS("boundary", op.training.losses[UPS_OPERATOR_BOUNDARY], op.boundary,
                              "field at the domain's border, mean squared error", "fields it is of; none: all")),
    {.name = NULL}};

#define GATE(key, gate, limit, text) KEY(DOUBLE, key, evaluation.gates[gate], limit, 0, 1e9, text, .neutral = true)

static const ups_config_key run_keys[] = {
    KEY(TEXT, "output", output, "runs/default", 0, 0, "the run's directory: checkpoints, metrics, cache, pictures",
        .objection = object_to_output, .neutral = true),
    KEY(UINT64, "seed", seed, "42", 0, MANY, "seed of everything random"),
    KEY(CHOICE, "precision", precision, "auto", 0, 0,
        "what matmuls compute in (weights, their gradients and, unless model.operator.residual is half, the residual "
        "stream are float32); auto: bf16 where it is "
        "faster (cards; AMX; AVX-512 of AMD since Zen 4), else f32; tf32: float32, with operands of products that "
        "cards may round to ten bits; fp16 (with a dynamic "
        "loss scale) is slower than f32 on processors; fp8: bf16, with operands of hidden layers' products that cards "
        "from Ada and Hopper on round to eight bits in training; a run goes on in what it began in",
        .choices = precisions),
    KEY(TEXT, "fp8_layers", fp8_layers, "[operator.*]", 1, MANY,
        "hidden layers whose products fp8 rounds, by their names in the models' files, which begin with encoder., "
        "decoder. "
        "or operator.; * stands for any part",
        LIST(ups_run_config, fp8_layers, fp8_layer_count, 0, 0)),
    SUBSECTION(
        "device",
        KEY(TEXT, "name", device.name, "auto", 0, 0, "auto: a card where there is one, else cpu; cpu or cuda",
            .neutral = true),
        KEY(INT32, "threads", device.threads, "0", 0, 4096, "cores the CPU's kernels use; 0: all", .neutral = true),
        KEY(DOUBLE, "memory", device.memory, "0", 0, 1e6,
            "GiB of a card's memory that may be used; 0: nine tenths of what is free", .neutral = true)),
    SUBSECTION("ranks",
               KEY(BOOL, "reproducible", ranks.reproducible, "false", 0, 0,
                   "gradients are summed micro-batch by micro-batch, in order: the same bits on any number of "
                   "processes, for a sum a micro-batch instead of one a step"),
               KEY(CHOICE, "gradients", ranks.gradients, "auto", 0, 0,
                   "where they are summed over processes: nccl (by the cards, in their own memory), host (by MPI, in "
                   "the host's), auto (nccl where all have cards and NCCL, and reproducible is false)",
                   .choices = gradient_paths, .neutral = true),
               KEY(DOUBLE, "bucket", ranks.bucket, "0", 0, 1e6,
                   "MiB of gradients that cards sum at once, while backward makes the next; 0: 16, or a twentieth of "
                   "all where that is more",
                   .neutral = true),
               KEY(INT32, "blocks", ranks.blocks, "0", 0, 64,
                   "blocks of a card's threads that such sums take at once, at most: fewer leave more of it to "
                   "backward; 0: as many as NCCL likes",
                   .neutral = true),
               KEY(CHOICE, "shard", ranks.shard, "none", 0, 0,
                   "what each process keeps a share of instead of all: optimizer (moments, 8 bytes a parameter that "
                   "AdamW moves and 4 of Muon's, and the average of the weights, 4 bytes), none",
                   .choices = shardings, .neutral = true)),
    {.name = "data", .type = UPS_CONFIG_SECTION, .keys = data_keys},
    KEY(SECTION, "tasks", tasks, NULL, 0, 0, NULL, .keys = task_keys,
        LIST(ups_run_config, tasks, task_count, 1, UPS_SAMPLER_MAX_TASKS)),
    {.name = "model", .type = UPS_CONFIG_SECTION, .keys = model_keys},
    KEY(CHOICE, "stages", stages, "[autoencoder, cache, operator]", 0, 0, "what `ups train` runs, in this order",
        .choices = ups_stage_names, .neutral = true, LIST(ups_run_config, stages, stage_count, 1, 0)),
    {.name = "autoencoder", .type = UPS_CONFIG_SECTION, .keys = autoencoder_keys},
    {.name = "cache", .type = UPS_CONFIG_SECTION, .keys = cache_keys},
    {.name = "operator", .type = UPS_CONFIG_SECTION, .keys = operator_keys},
    SUBSECTION("checkpoint", KEY(INT64, "keep", checkpoint.keep, "1", 1, 1e6,
                                 "checkpoints of a stage that are kept, beside the best weights", .neutral = true)),
    SUBSECTION("evaluation",
               KEY(INT64, "horizons", evaluation.horizons, "[1, 10, 0]", 0, 1e9,
                   "steps ahead to report; 0: the whole trajectory", .neutral = true,
                   LIST(ups_run_config, evaluation.horizons, evaluation.horizon_count, 1, 0)),
               KEY(INT64, "max_samples", evaluation.max_samples, "64", 0, MANY,
                   "trajectories evaluated a task; 0: all of the split", .neutral = true),
               KEY(INT64, "start_every", evaluation.start_every, "10", 1, MANY,
                   "steps between the start frames of one trajectory", .neutral = true),
               KEY(INT64, "given", evaluation.given, "1", 1, MANY,
                   "first frames of a trajectory that are given and not scored; PDEBench: 10", .neutral = true),
               KEY(DOUBLE, "correlation", evaluation.correlation, "0.8", 0, 1,
                   "correlation with the truth below which a rollout counts as lost", .neutral = true),
               SUBSECTION("gates",
                          GATE("bounded", UPS_GATE_BOUNDED, "0.5",
                               "how far a prediction may leave the data's range, in parts of it; 0: any"),
                          GATE("conservation", UPS_GATE_CONSERVATION, "0.01",
                               "how far the mean of a field that the data conserve may drift, in parts of the field's "
                               "root mean square; 0: any"),
                          GATE("positivity", UPS_GATE_POSITIVITY, "0.1",
                               "how deep below 0 a field may fall that the data have nowhere negative, in parts of its "
                               "root mean square; 0: any"),
                          GATE("negative_share", UPS_GATE_NEGATIVE_SHARE, "0.05",
                               "share of points and frames at which such a field may be negative; 0: any"),
                          GATE("boundary", UPS_GATE_BOUNDARY, "0.1",
                               "error on the border of a domain that is not periodic, in parts of the field's root "
                               "mean square; 0: any"),
                          GATE("divergence", UPS_GATE_DIVERGENCE, "0.1",
                               "divergence of an incompressible velocity beyond the data's, in parts of its gradient; "
                               "0: any"))),
    {.name = NULL}};

const ups_config_schema ups_run_schema = {run_keys, sizeof(ups_run_config)};
