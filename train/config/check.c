#include "train/config/check.h"

#include "train/data/task_sampling.h"
#include "train/learning_rate.h"
#include "train/losses.h"
#include "train/networks.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The keys that a mistake depends on: where one of them is wrong by itself, no more is said. */
#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})
#define disagree ups_config_mistakes_disagree

enum { NAME_BYTES = 96 };

/* "operator" and "steps" to "operator.steps". */
static const char *name_key(char name[NAME_BYTES], const char *section, const char *key) {
    snprintf(name, NAME_BYTES, "%s.%s", section, key);
    return name;
}

static const char *name_task_key(char name[NAME_BYTES], unsigned task, const char *key) {
    snprintf(name, NAME_BYTES, "tasks[%u].%s", task, key);
    return name;
}

static void check_batch_size(const char *stage, const ups_training_config *training, ups_config_mistakes *mistakes) {
    char key[NAME_BYTES], pairs[NAME_BYTES];
    if (training->batch_size % training->pairs_per_trajectory == 0) return;
    name_key(pairs, stage, "pairs_per_trajectory");
    disagree(mistakes, name_key(key, stage, "batch_size"), WITH(pairs),
             "%lld is not a multiple of pairs_per_trajectory (%lld)", (long long)training->batch_size,
             (long long)training->pairs_per_trajectory);
}

static void check_heads(const char *section, const char *width_key, int64_t width, int64_t heads,
                        ups_config_mistakes *mistakes) {
    char key[NAME_BYTES], other[NAME_BYTES];
    if (width % heads == 0) return;
    name_key(other, section, width_key);
    disagree(mistakes, name_key(key, section, "heads"), WITH(other), "%lld heads do not divide %s = %lld",
             (long long)heads, width_key, (long long)width);
}

static void check_frequencies(const char *section, unsigned count, ups_config_mistakes *mistakes) {
    char key[NAME_BYTES];
    if (count <= UPS_MAX_FREQUENCIES) return;
    disagree(mistakes, name_key(key, section, "frequencies"), NULL, "the list has %u entries; at most %d were expected",
             count, UPS_MAX_FREQUENCIES);
}

static void check_ranks(const ups_run_config *config, ups_config_mistakes *mistakes) {
    if (config->ranks.gradients == UPS_GRADIENTS_NCCL && config->ranks.reproducible)
        disagree(
            mistakes, "ranks.gradients", WITH("ranks.reproducible"),
            "NCCL sums in an order of its own, and ranks.reproducible wants that of micro-batches; take auto or host");
}

/* The core's own objection. It names keys by their names: the place is where the first of them stands, but an override
 * before a line. */
static void check_core(const ups_run_config *config, ups_config_mistakes *mistakes) {
    static const char section[] = "model.operator", prefix[] = "operator: ";
    enum { MOST_KEYS = 8 };
    char names[MOST_KEYS][NAME_BYTES];
    const char *keys[MOST_KEYS + 1] = {NULL};
    ups_operator_options core = ups_run_core(config);
    ups_error error;
    if (ups_operator_check(&core, &error) == UPS_OK) return;
    const char *sentence = error.message, *at = sentence;
    if (strncmp(sentence, prefix, sizeof prefix - 1) == 0) at = sentence += sizeof prefix - 1;
    for (int found = 0; *at && found < MOST_KEYS;) {
        int length = 0;
        while (isalpha((unsigned char)at[length]) || at[length] == '_') length++;
        snprintf(names[found], NAME_BYTES, "%s.%.*s", section, length, at);
        bool named = length > 0 && (ups_config_mistakes_find(mistakes, names[found]) ||
                                    ups_config_mistakes_know(mistakes, names[found]));
        if (named) {
            keys[found] = names[found];
            found++;
        }
        at += length > 0 ? length : 1;
    }
    disagree(mistakes, keys[0] ? keys[0] : section, keys, "%s", sentence);
}

/* What its keys must be to each other; what each must be was checked where its line is known. */
static void check_layout(unsigned number, const ups_mapping_config *layout, ups_config_mistakes *mistakes) {
    char key[NAME_BYTES];
    name_task_key(key, number, "layout");
    if (!ups_mapping_is_given(layout) || ups_config_mistakes_know(mistakes, key)) return;
    const ups_yaml *node = ups_config_mistakes_find(mistakes, key);
    const char *where = node ? node->where : mistakes->path;
    ups_mapping mapping;
    ups_error error;
    const char *place = ups_arena_printf(mistakes->arena, "%s: %s", where, key);
    if (ups_mapping_read(layout, place, mistakes->arena, &mapping, &error) == UPS_OK) return;
    ups_config_mistakes_add(mistakes, where, key, NULL, ups_arena_printf(mistakes->arena, "%s", error.message));
}

static void check_model(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const ups_encoder_config *encoder = &config->model.encoder;
    const ups_decoder_config *decoder = &config->model.decoder;
    check_ranks(config, mistakes);
    check_core(config, mistakes);
    check_heads("model.decoder", "hidden", decoder->hidden, decoder->heads, mistakes);
    if (encoder->pooling == UPS_POOL_QUERIES || encoder->depth > 0) { /* else there is no attention in it */
        check_heads("model.encoder", "width", encoder->width, encoder->heads, mistakes);
    }
    if (!ups_run_on_grid(config) && config->model.dim == 0) {
        disagree(mistakes, "model.dim", WITH("model.tokens"),
                 "auto needs tokens: grid; a fixed number of tokens needs a number of features, such as 64");
    }
    check_frequencies("model.encoder", encoder->frequency_count, mistakes);
    check_frequencies("model.decoder", decoder->frequency_count, mistakes);
}

/* Of all tasks; `key`: which says it. */
static int32_t largest_bundle(const ups_run_config *config, char key[NAME_BYTES]) {
    int32_t largest = 0;
    for (unsigned i = 0; i < config->task_count; i++) {
        const int32_t bundle = ups_run_bundle(config, &config->tasks[i]);
        if (bundle <= largest) continue;
        largest = bundle;
        if (config->tasks[i].bundle > 0)
            name_task_key(key, i, "bundle");
        else
            snprintf(key, NAME_BYTES, "model.operator.bundle");
    }
    return largest;
}

static void check_strides(const ups_run_config *config, unsigned number, ups_config_mistakes *mistakes) {
    const ups_task_config *task = &config->tasks[number];
    char key[NAME_BYTES], other[NAME_BYTES];
    if (task->stride_count > 1 && ups_run_on_grid(config) && !config->model.core.condition) {
        disagree(mistakes, name_task_key(key, number, "strides"), WITH("model.operator.condition"),
                 "the operator is not told the length of a step; set model.operator.condition: true");
    }
    bool found = task->stride_count == 0;
    for (unsigned i = 0; i < task->stride_count; i++) {
        found = found || task->strides[i] == task->stride;
        for (unsigned j = 0; j < i; j++) {
            if (task->strides[i] != task->strides[j]) continue;
            disagree(mistakes, name_task_key(key, number, "strides"), NULL, "%lld stands there twice",
                     (long long)task->strides[i]);
            return;
        }
    }
    if (found) return;
    disagree(mistakes, name_task_key(key, number, "strides"), WITH(name_task_key(other, number, "stride")),
             "stride %lld is not among them; validation, rollouts and evaluations take it unless told otherwise",
             (long long)task->stride);
}

/* Weights are found by their names, in which a task's stand where parts that tasks share have their own. */
static bool names_a_part(const char *task) {
    static const char *const parts[] = {"blocks", "centres", "condition", "input", "layers",      "norm",
                                        "output", "skips",   "time",      "trunk", "update_norm", NULL};
    for (int i = 0; parts[i]; i++)
        if (strcmp(task, parts[i]) == 0) return true;
    return false;
}

static void check_tasks(const ups_run_config *config, ups_config_mistakes *mistakes) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    char key[NAME_BYTES], other[NAME_BYTES];
    for (unsigned i = 0; i < config->task_count; i++) {
        const ups_task_config *task = &config->tasks[i];
        name_task_key(key, i, "name");
        if (strspn(task->name, letters) != strlen(task->name)) {
            disagree(mistakes, key, NULL, "'%s' becomes a folder's name: only letters, digits, _ and - may stand in it",
                     task->name);
        }
        if (names_a_part(task->name))
            disagree(mistakes, key, NULL,
                     "'%s' is what a part of the model is called in its files; give the task another name", task->name);
        check_layout(i, &task->layout, mistakes);
        check_strides(config, i, mistakes);
        if (task->bundle > 1 && !ups_run_on_grid(config))
            disagree(mistakes, name_task_key(other, i, "bundle"), WITH("model.tokens"),
                     "several frames at once need a grid of tokens, where the change of a step is measured; set "
                     "model.tokens: grid");
        if (task->segment == 1)
            disagree(mistakes, name_task_key(other, i, "segment"), NULL,
                     "an operator needs two frames or more; 0 leaves trajectories whole");
        for (unsigned j = 0; j < i; j++) {
            if (strcmp(config->tasks[j].name, task->name) != 0) continue;
            disagree(mistakes, key, WITH(name_task_key(other, j, "name")), "'%s' names tasks[%u] already", task->name,
                     j);
            break;
        }
        if (task->patch_count > UPS_MAX_GRID_DIMS) {
            disagree(mistakes, name_task_key(key, i, "patch"), NULL, "%u numbers; a grid has at most %d axes",
                     task->patch_count, UPS_MAX_GRID_DIMS);
        }
    }
}

/* Whether one of the losses of a mask holds predictions against data: without one nothing is learnt of it. The loss
 * `between` does, but only for the correction, and so holds nothing against losses that move latents. */
static bool are_of_data(ups_stage stage, unsigned mask) {
    if (stage == UPS_STAGE_OPERATOR)
        return mask & ((2u << UPS_OPERATOR_SPECTRAL) - 1) & ~(1u << UPS_OPERATOR_SEMIGROUP);
    const unsigned of_latents = 1u << UPS_AUTOENCODER_LATENT_NORM | 1u << UPS_AUTOENCODER_LATENT_DIVERSITY;
    unsigned of_data = ((1u << UPS_AUTOENCODER_LATENT_NORM) - 1) | 1u << UPS_AUTOENCODER_ROUNDED;
    if (!(mask & of_latents)) of_data |= 1u << UPS_AUTOENCODER_BETWEEN;
    return mask & of_data;
}

/* A step without any loss would train nothing. */
static void check_losses(ups_stage of, const ups_training_config *training, ups_config_mistakes *mistakes) {
    const char *stage = ups_stage_name(of);
    unsigned masks[UPS_MAX_LOSS_SETS];
    char key[NAME_BYTES];
    int found = ups_losses_masks(training->losses, training->steps, masks);
    if (found > UPS_MAX_LOSS_SETS) {
        disagree(mistakes, name_key(key, stage, "losses"), NULL,
                 "more than %d sets of losses fall due together, each of which takes a graph; give losses the same "
                 "every and from",
                 UPS_MAX_LOSS_SETS);
        return;
    }
    for (int m = 0; m < found; m++) {
        if (are_of_data(of, masks[m])) continue;
        disagree(mistakes, name_key(key, stage, "losses"), NULL,
                 "at some steps no loss%s is taken; give one of them weight: 1, every: 1 and from: 0",
                 masks[m] ? " against the data" : "");
        return;
    }
}

/* What needs the linear decoder of a grid of tokens, and what it needs beside. */
static void check_grid_training(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const char *const *names = ups_run_loss_names(UPS_STAGE_OPERATOR);
    const ups_loss_config *losses = config->op.training.losses;
    char key[NAME_BYTES], bundle[NAME_BYTES] = "";
    for (int i = UPS_OPERATOR_DECODED; i <= UPS_OPERATOR_BOUNDARY; i++) {
        if (losses[i].weight <= 0) continue;
        name_key(key, "operator.losses", names[i]);
        if (!ups_run_on_grid(config)) {
            disagree(mistakes, key, WITH("model.tokens"),
                     "this loss is one of decoded fields, and needs model.tokens: grid, whose decoder is a linear map");
        } else if (config->model.bound > 0) {
            disagree(mistakes, key, WITH("model.bound"),
                     "this loss is one of decoded fields, and needs latents whose decoder is a linear map; set "
                     "model.bound: 0");
        }
    }
    if (config->op.noise > 0 && !ups_run_on_grid(config)) {
        disagree(mistakes, "operator.noise", WITH("model.tokens"),
                 "noise is measured by what a step changes, which is known with model.tokens: grid");
    }
    if (config->op.augment == UPS_AUGMENT_SHIFT && !ups_run_on_grid(config)) {
        disagree(mistakes, "operator.augment", WITH("model.tokens"),
                 "shift moves windows by whole tokens, and needs model.tokens: grid");
    }
    if (config->op.augment == UPS_AUGMENT_SYMMETRIES && !ups_run_on_grid(config)) {
        disagree(mistakes, "operator.augment", WITH("model.tokens"),
                 "symmetries move the cells of a grid, and need model.tokens: grid");
    } else if (config->op.augment == UPS_AUGMENT_SYMMETRIES && config->model.bound > 0) {
        disagree(mistakes, "operator.augment", WITH("model.bound"),
                 "symmetries decode windows and encode them again, and need latents whose decoder is a linear map; set "
                 "model.bound: 0");
    }
    if (losses[UPS_OPERATOR_SEMIGROUP].weight > 0 &&
        (config->model.core.history > 1 || largest_bundle(config, bundle) > 1)) {
        disagree(mistakes, "operator.losses.semigroup", WITH("model.operator.history", bundle),
                 "the loss is of an operator that reads one frame and gives one; leave history and bundle 1");
    }
    if (losses[UPS_OPERATOR_SEMIGROUP].weight > 0 && ups_run_on_grid(config) && !config->model.core.condition) {
        disagree(mistakes, "operator.losses.semigroup", WITH("model.operator.condition"),
                 "the operator is not told the length of a step; set model.operator.condition: true");
    }
    for (unsigned t = 0; t < config->task_count; t++) {
        if (losses[UPS_OPERATOR_SEMIGROUP].weight <= 0 || !ups_run_on_grid(config) || config->tasks[t].stride_count < 2)
            continue;
        disagree(mistakes, "operator.losses.semigroup", WITH(name_task_key(key, t, "strides")),
                 "on a grid of tokens a stride has a scale of its own for what a step changes, which a step of twice "
                 "the length would not have; leave the loss, or learn one stride");
        break;
    }
    if (losses[UPS_OPERATOR_POSITIVITY].weight > 0 && config->op.positivity.count == 0) {
        disagree(mistakes, "operator.losses.positivity", NULL,
                 "it names no fields; fields: [density, pressure] were possible");
    }
}

/* What corrects values between grid points is trained by a loss of its own, and by nothing else. */
static void check_between(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const int64_t features = config->model.decoder.between;
    const bool trained = config->autoencoder.training.losses[UPS_AUTOENCODER_BETWEEN].weight > 0;
    if (features > 0 && !ups_run_on_grid(config)) {
        disagree(mistakes, "model.decoder.between", WITH("model.tokens"),
                 "it corrects what is read of a grid of patches, and needs model.tokens: grid");
    } else if (features > 0 && (!trained || config->autoencoder.training.steps == 0)) {
        disagree(mistakes, "model.decoder.between", WITH("autoencoder.losses.between", "autoencoder.steps"),
                 "the correction would learn nothing; give autoencoder.losses.between a weight and autoencoder some "
                 "steps");
    } else if (features == 0 && trained) {
        disagree(mistakes, "autoencoder.losses.between", WITH("model.decoder.between"),
                 "there is no correction that it could train; give model.decoder.between features, such as 16");
    }
}

/* A schedule that looks at validations must have some, and one that ends in a decay must reach it. */
static void check_schedule(const ups_run_config *config, const char *stage, const ups_training_config *training,
                           ups_config_mistakes *mistakes) {
    const ups_optimizer_config *optimizer = &training->optimizer;
    char schedule[NAME_BYTES], other[NAME_BYTES], third[NAME_BYTES];
    name_key(schedule, stage, "optimizer.schedule");
    if (training->steps == 0) return;
    if (optimizer->schedule == UPS_SCHEDULE_WSD) {
        const int64_t stable = ups_schedule_decay_start(optimizer, training->steps);
        name_key(other, stage, "optimizer.decay_fraction");
        if (optimizer->warmup_steps > stable) {
            disagree(mistakes, schedule, WITH(name_key(third, stage, "optimizer.warmup_steps"), other),
                     "wsd: of %lld steps, %lld of warm-up and %lld of decay (decay_fraction: %g) overlap; give fewer "
                     "of either, or more steps",
                     (long long)training->steps, (long long)optimizer->warmup_steps,
                     (long long)(training->steps - stable), optimizer->decay_fraction);
        }
        if (training->patience > 0) {
            disagree(mistakes, schedule, WITH(name_key(other, stage, "patience")),
                     "wsd gets its best scores in the decay at the end, before which %s.patience: %lld may end the "
                     "stage; take patience: 0, or schedule: plateau",
                     stage, (long long)training->patience);
        }
    }
    if (optimizer->schedule != UPS_SCHEDULE_PLATEAU) return;
    if (training->validate_every == 0) {
        disagree(mistakes, schedule, WITH(name_key(other, stage, "validate_every")),
                 "plateau looks at validations, and %s.validate_every: 0 has none before the end; give it a number of "
                 "steps",
                 stage);
    }
    if (config->data.split.validation <= 0) {
        disagree(mistakes, schedule, WITH("data.split.validation"),
                 "plateau looks at validations, and data.split.validation is 0");
    }
    if (training->patience > 0 && training->patience <= optimizer->plateau_patience) {
        disagree(mistakes, schedule,
                 WITH(name_key(other, stage, "patience"), name_key(third, stage, "optimizer.plateau_patience")),
                 "plateau lowers the rate after %lld validations, but %s.patience: %lld ends the stage before; give "
                 "patience more than plateau_patience",
                 (long long)optimizer->plateau_patience, stage, (long long)training->patience);
    }
}

/* In an order in which each finds what it needs, and none twice: the enumeration's. */
static void check_stages(const ups_run_config *config, ups_config_mistakes *mistakes) {
    for (unsigned i = 1; i < config->stage_count; i++) {
        ups_stage before = config->stages[i - 1], here = config->stages[i];
        if (here > before) continue;
        if (here == before) {
            disagree(mistakes, "stages", NULL, "'%s' stands there twice", ups_stage_name(here));
            return;
        }
        char order[200] = "";
        for (int s = 0; s < UPS_STAGE_COUNT; s++) {
            size_t used = strlen(order);
            snprintf(order + used, sizeof order - used, "%s%s", s > 0 ? ", " : "", ups_stage_name((ups_stage)s));
        }
        disagree(mistakes, "stages", NULL, "'%s' cannot come after '%s'; the order is %s", ups_stage_name(here),
                 ups_stage_name(before), order);
        return;
    }
}

static void check_stage_sampling(const ups_run_config *config, const char *stage, const ups_training_config *training,
                                 ups_config_mistakes *mistakes) {
    char key[NAME_BYTES], other[NAME_BYTES];
    if (training->steps == 0) return; /* nothing is drawn */
    if (config->data.strategy == UPS_SAMPLER_DIFFICULTY && training->validate_every == 0) {
        disagree(mistakes, "data.sampling", WITH(name_key(other, stage, "validate_every")),
                 "difficulty is learnt from validations, and %s.validate_every: 0 has none before the end; give it a "
                 "number of steps",
                 stage);
    }
    for (unsigned t = 0; t < config->task_count; t++) {
        if (config->tasks[t].from < training->steps) continue;
        disagree(mistakes, name_task_key(key, t, "from"), WITH(name_key(other, stage, "steps")),
                 "step %lld lies beyond %s.steps (%lld): the task would never be trained",
                 (long long)config->tasks[t].from, stage, (long long)training->steps);
    }
}

static void check_sampling(const ups_run_config *config, ups_config_mistakes *mistakes) {
    if (!ups_task_sampling_changes(config)) return;
    bool any = false;
    for (unsigned t = 0; t < config->task_count; t++) any = any || config->tasks[t].from == 0;
    if (!any) disagree(mistakes, "tasks", NULL, "no task has from: 0; one has to be there at the beginning");
    if (config->data.slots > UPS_SAMPLING_LEAD - 2) {
        disagree(mistakes, "data.slots", WITH("data.sampling"),
                 "%d batches in flight; where shares of tasks change in training, at most %d", config->data.slots,
                 UPS_SAMPLING_LEAD - 2);
    }
    if (config->data.strategy == UPS_SAMPLER_DIFFICULTY && config->data.split.validation <= 0) {
        disagree(mistakes, "data.sampling", WITH("data.split.validation"),
                 "difficulty is learnt from validation losses, and data.split.validation is 0");
    }
    for (unsigned i = 0; i < config->stage_count; i++) {
        const ups_training_config *training = ups_run_training(config, config->stages[i]);
        if (training) check_stage_sampling(config, ups_stage_name(config->stages[i]), training, mistakes);
    }
}

/* Every step that the rollout losses look at is a term of the objective; their lengths grow. */
static void check_rollouts(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const ups_operator_stage_config *op = &config->op;
    char key[NAME_BYTES] = "";
    const int64_t bundle = largest_bundle(config, key);
    bool rolls_out = op->training.losses[UPS_OPERATOR_ROLLOUT].weight > 0 ||
                     op->training.losses[UPS_OPERATOR_ROLLOUT_RELATIVE].weight > 0 ||
                     op->training.losses[UPS_OPERATOR_ROLLOUT_DECODED].weight > 0;
    if (!rolls_out && (op->rollout_curriculum_count > 0 || op->pushforward)) {
        disagree(mistakes, op->pushforward ? "operator.pushforward" : "operator.rollout_curriculum",
                 WITH("operator.losses.rollout", "operator.losses.rollout_relative", "operator.losses.rollout_decoded"),
                 "no loss of rollouts is taken; give operator.losses.rollout_decoded, rollout_relative or rollout a "
                 "weight");
    }
    for (unsigned i = 0; i < op->rollout_curriculum_count && rolls_out; i++) {
        if (op->rollout_curriculum[i] < op->rollout_steps) continue;
        disagree(mistakes, "operator.rollout_curriculum", WITH("operator.rollout_steps"),
                 "rollouts of %lld applications are to come before those of rollout_steps, %lld; make them shorter",
                 (long long)op->rollout_curriculum[i], (long long)op->rollout_steps);
        break;
    }
    if (!rolls_out || op->rollout_steps * bundle <= UPS_MAX_ROLLOUT_STEPS) return;
    disagree(mistakes, "operator.rollout_steps", WITH(key),
             "%lld applications of %lld steps each (%s) are %lld; rollout losses look at %d at most",
             (long long)op->rollout_steps, (long long)bundle, key, (long long)(op->rollout_steps * bundle),
             UPS_MAX_ROLLOUT_STEPS);
}

void ups_run_config_check(const ups_run_config *config, ups_config_mistakes *mistakes) {
    const ups_split_config *split = &config->data.split;
    double sum = split->train + split->validation + split->test;
    if (sum < 0.999 || sum > 1.001) {
        disagree(mistakes, "data.split", NULL, "train + validation + test is %g; 1 was expected", sum);
    }
    check_tasks(config, mistakes);
    check_stages(config, mistakes);
    check_sampling(config, mistakes);
    check_rollouts(config, mistakes);
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const ups_training_config *training = ups_run_training(config, (ups_stage)s);
        if (!training) continue;
        check_batch_size(ups_stage_name((ups_stage)s), training, mistakes);
        check_losses((ups_stage)s, training, mistakes);
        check_schedule(config, ups_stage_name((ups_stage)s), training, mistakes);
    }
    check_grid_training(config, mistakes);
    check_between(config, mistakes);
    check_model(config, mistakes);
}

void ups_run_config_check_model(const ups_run_config *config, ups_config_mistakes *mistakes) {
    check_tasks(config, mistakes);
    check_model(config, mistakes);
}
