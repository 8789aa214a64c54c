/* Configurations of runs: those in configs/ load; every kind of mistake is answered with the file, the line or key, and
 * what would be right. How YAML itself is checked is the business of base/'s tests; here it is the run's own schema. */
#include "base/files.h"
#include "base/system/cpu_features.h"
#include "model/cpu/device.h"
#include "tests/model/claims.h"
#include "train/config/load.h"
#include "train/precision.h"
#include "train/run_precision.h"

#include <math.h>

static const char minimal[] = "tasks:\n"
                              "  - name: wave\n"
                              "    files: [wave.h5]\n"
                              "  - name: darcy\n"
                              "    files: [darcy.h5]\n";

static ups_run_config *load(const char *text, const char *override) {
    ups_run_config *config = NULL;
    write_text(scratch("run.yaml"), text);
    if (ups_run_config_load(scratch("run.yaml"), &override, override ? 1 : 0, &config, &failure) != UPS_OK) {
        fail_msg("%s", failure.message);
    }
    return config;
}

CLAIM(the_configurations_that_come_with_the_project_load) {
    static const char *const names[] = {"quickstart", "reference_2task", "pdebench_seedgroups"};
    for (int i = 0; i < 3; i++) {
        char path[500];
        ups_run_config *config = NULL;
        snprintf(path, sizeof path, "%s/%s.yaml", UPS_CONFIGS, names[i]);
        ok(ups_run_config_load(path, NULL, 0, &config, &failure));
        assert_int_equal(config->task_count, 2);
        ups_run_config_free(config);
    }
}

CLAIM(what_is_left_out_has_its_default) {
    ups_run_config *config = load(minimal, NULL);
    assert_int_equal(config->task_count, 2);
    assert_int_equal(config->seed, 42);
    assert_int_equal(config->precision, UPS_PRECISION_AUTO);
    assert_int_equal(config->stage_count, 3);
    assert_int_equal(config->stages[1], UPS_STAGE_CACHE);
    assert_int_equal(config->model.tokens, 128);
    assert_int_equal(config->model.core.depth, 12);
    assert_true(config->op.training.losses[UPS_OPERATOR_RELATIVE].weight == 1 &&
                config->op.training.losses[UPS_OPERATOR_ONE_STEP].weight == 0 &&
                config->op.training.losses[UPS_OPERATOR_ROLLOUT].weight == 0);
    assert_int_equal(config->op.training.optimizer.kind, UPS_OPTIMIZER_MUON);
    assert_int_equal(config->autoencoder.training.optimizer.kind, UPS_OPTIMIZER_ADAMW);
    assert_true(config->op.training.optimizer.ema_decay == 0.998 &&
                config->autoencoder.training.optimizer.ema_decay == 0);
    assert_int_equal(config->op.training.losses[UPS_OPERATOR_ROLLOUT].every, 1);
    assert_int_equal(config->tasks[1].patch[0], 8);
    assert_string_equal(ups_stage_name(config->stages[2]), "operator");
    char *cache = ups_run_cache_directory(config);
    assert_string_equal(cache, "runs/default/cache");
    free(cache);
    ups_run_config_free(config);
}

CLAIM(a_batch_may_be_found_by_itself_and_a_cache_lie_elsewhere) {
    ups_run_config *config = load(minimal, "operator.batch_size=auto");
    assert_int_equal(config->op.training.batch_size, 0);
    ups_run_config_free(config);
    config = load(minimal, "cache.directory=/elsewhere");
    char *cache = ups_run_cache_directory(config);
    assert_string_equal(cache, "/elsewhere");
    free(cache);
    ups_run_config_free(config);
}

CLAIM(what_is_printed_loads_to_the_same) {
    ups_run_config *config = load(minimal, "operator.losses.rollout={weight: 0.5, every: 2, from: 7}");
    char *text = NULL, *again = NULL;
    ok(ups_config_print(&ups_run_schema, config, &text, &failure));
    ups_run_config *second = load(text, NULL);
    ok(ups_config_print(&ups_run_schema, second, &again, &failure));
    assert_string_equal(text, again);
    assert_int_equal(second->op.training.losses[UPS_OPERATOR_ROLLOUT].from, 7);
    free(text);
    free(again);
    ups_run_config_free(config);
    ups_run_config_free(second);
}

/* ---- mistakes --------------------------------------------------------------------------------------------------- */

typedef struct mistake {
    const char *text;     /* appended to the minimal configuration, or an override where it has no newline */
    const char *parts[4]; /* of the message, besides the file or the override */
} mistake;

static void told(const mistake *m) {
    char text[2000];
    bool override = !strchr(m->text, '\n');
    const char *overrides[] = {m->text};
    ups_run_config *config = NULL;
    snprintf(text, sizeof text, "%s%s", minimal, override ? "" : m->text);
    write_text(scratch("run.yaml"), text);
    ups_status status = ups_run_config_load(scratch("run.yaml"), overrides, override ? 1 : 0, &config, &failure);
    if (status != UPS_ERR_CONFIG) fail_msg("'%s' was answered with %s", m->text, ups_status_name(status));
    assert_null(config);
    for (int i = 0; i < 3 && m->parts[i]; i++) assert_contains(failure.message, m->parts[i]);
    bool names_place = strstr(failure.message, "run.yaml") || (override && strstr(failure.message, "--set"));
    if (!names_place) fail_msg("\"%s\" does not say where", failure.message);
}

static void all_told(const mistake *list, size_t count) {
    for (size_t i = 0; i < count; i++) told(&list[i]);
}
#define ALL_TOLD(list) all_told(list, sizeof(list) / sizeof(list)[0])

CLAIM(keys_that_do_not_exist_are_told_with_line_and_the_nearest) {
    static const mistake list[] = {
        {"modle:\n  tokens: 3\n", {"run.yaml:6", "modle", "model"}},
        {"model:\n  tokns: 3\n", {"run.yaml:7", "model.tokns", "tokens"}},
        {"operator:\n  losses:\n    one_stp: {weight: 1}\n", {"run.yaml:8", "one_stp", "one_step"}},
        {"autoencoder:\n  optimizer: {lerning_rate: 1}\n", {"run.yaml:7", "lerning_rate", "learning_rate"}},
        {"model:\n  learning_rate: 0.1\n", {"run.yaml:7", "learning_rate"}},
        {"model.tokns=3", {"model.tokns", "tokens"}},
        {"cache:\n  fill: true\n", {"run.yaml:7: cache.fill", "removed", "ups cache build"}},
        {"cache.fill=true", {"cache.fill", "removed", "ups cache build"}},
    };
    ALL_TOLD(list);
}

/* A run of before wrote all its keys into config.yaml. */
CLAIM(a_removed_key_may_say_what_happens_anyway) {
    char text[1024];
    snprintf(text, sizeof text, "%scache:\n  fill: false\n", minimal);
    write_text(scratch("run.yaml"), text);
    ups_run_config *config = NULL;
    ok(ups_run_config_load(scratch("run.yaml"), NULL, 0, &config, &failure));
    ups_run_config_free(config);
}

CLAIM(values_of_another_type_are_told_with_what_belongs_there) {
    static const mistake list[] = {
        {"model:\n  tokens: many\n", {"run.yaml:7", "model.tokens", "number"}},
        {"model:\n  tokens: 1.5\n", {"run.yaml:7", "model.tokens"}},
        {"model:\n  tokens: [1, 2]\n", {"run.yaml:7", "model.tokens"}},
        {"model: 5\n", {"run.yaml:6", "model"}},
        {"model:\n  operator: {qk_norm: perhaps}\n", {"run.yaml:7", "qk_norm", "true"}},
        {"precision: f16\n", {"run.yaml:6", "precision", "auto, f32, tf32, bf16, fp16 or fp8"}},
        {"stages: [autoencoder, distil]\n", {"run.yaml:6", "distil", "operator"}},
        {"stages: []\n", {"run.yaml:6", "stages"}},
        {"seed: -1\n", {"run.yaml:6", "seed"}},
        {"output: ''\n", {"run.yaml:6: output: '' is empty", "such as runs/first"}},
        {"output: /\n", {"run.yaml:6: output: '/' is the root", "such as runs/first"}},
        {"output=//", {"--set output=//", "is the root"}},
        {"output=/tmp/..", {"--set output=/tmp/..", "is the root"}},
        {"cache: {directory: /}\n", {"run.yaml:6: cache.directory: '/' is the root", "output/cache"}},
        {"operator:\n  batch_size: some\n", {"run.yaml:7", "operator.batch_size", "auto"}},
        {"tasks[0].patch=x", {"patch"}},
        {"model.encoder.frequencies=[]", {"frequencies"}},
    };
    ALL_TOLD(list);
}

CLAIM(values_out_of_range_are_told_the_range) {
    static const mistake list[] = {
        {"model:\n  tokens: 0\n", {"run.yaml:7", "model.tokens", "1"}},
        {"model.dim=100000", {"model.dim", "65536"}},
        {"model.operator.drop_path=1", {"model.operator.drop_path", "0.9"}},
        {"data.split.train=1.5", {"data.split.train", "1"}},
        {"data.slots=1", {"data.slots", "2"}},
        {"tasks[0].stride=0", {"stride", "1"}},
        {"tasks[0].patch=[0]", {"patch", "1"}},
        {"tasks[0].field_scale=[0]", {"field_scale"}},
        {"autoencoder.steps=-1", {"autoencoder.steps", "0"}},
        {"autoencoder.batch_size=-4", {"autoencoder.batch_size", "1"}},
        {"operator.rollout_steps=1", {"operator.rollout_steps", "2"}},
        {"model.operator.history=17", {"model.operator.history", "16"}},
        {"model.operator.bundle=33", {"model.operator.bundle", "32"}},
        {"operator.short_history=1.5", {"operator.short_history", "1"}},
        {"operator.rollout_steps=33", {"operator.rollout_steps", "32"}}, /* an objective has 64 terms */
        {"operator.optimizer.learning_rate=-1", {"learning_rate", "0"}},
        {"operator.optimizer.beta2=1", {"beta2"}},
        {"operator.losses.rollout.every=0", {"every", "1"}},
        {"operator.losses.rollout.weight=-1", {"weight", "0"}},
        {"cache.level=40", {"cache.level", "19"}},
        {"cache.max_abs_error=-0.1", {"cache.max_abs_error", "0"}},
        {"device.threads=-1", {"device.threads", "0"}},
        {"operator.optimizer.learning_rate=.nan", {"learning_rate"}},
    };
    ALL_TOLD(list);
}

/* As `told`, for whole documents. */
static void document_told(const char *text, const char *part, const char *other) {
    ups_run_config *config = NULL;
    write_text(scratch("run.yaml"), text);
    refused(ups_run_config_load(scratch("run.yaml"), NULL, 0, &config, &failure), UPS_ERR_CONFIG, "run.yaml", part,
            other);
}

CLAIM(keys_that_must_be_there_are_missed) {
    document_told("seed: 1\n", "tasks", "missing");
    document_told("tasks: []\n", "tasks", "");
    document_told("tasks:\n  - files: [a.h5]\n", "name", "missing");
    document_told("tasks:\n  - name: a\n", "files", "missing");
    document_told("tasks:\n  - name: a\n    files: []\n", "files", "");
    document_told("tasks:\n  - name: ''\n    files: [a.h5]\n", "name", "");
    document_told("", "run.yaml", "");
}

CLAIM(what_no_single_key_can_say_is_checked_too) {
    static const mistake list[] = {
        {"stages: [operator, operator]\n", {"stages", "'operator'", "twice"}},
        {"stages: [operator, autoencoder]\n", {"stages", "'autoencoder'", "the order is autoencoder, cache, operator"}},
        {"data:\n  split: {train: 0.5, validation: 0.1, test: 0.1}\n",
         {"run.yaml:7: data.split", "0.7", "1 was expected"}},
        {"tasks[1].name=wave", {"tasks[1].name", "wave", "tasks[0]"}},
        {"tasks[1].name=a/b", {"tasks[1].name", "a/b", "letters"}},
        {"tasks[1].name=..", {"tasks[1].name", "letters"}},
        {"tasks[1].name=blocks", {"tasks[1].name", "blocks", "another name"}},
        {"tasks[0].patch=[4, 4, 4, 4]", {"tasks[0].patch", "4 numbers", "3"}},
        {"autoencoder.pairs_per_trajectory=3", {"autoencoder.batch_size", "16", "pairs_per_trajectory (3)"}},
        {"operator.pairs_per_trajectory=5", {"operator.batch_size", "multiple"}},
        {"model.operator.heads=7", {"--set model.operator.heads=7: model.operator.heads: hidden (384)", "heads (7)"}},
        {"model.decoder.heads=5", {"model.decoder.heads", "5 heads", "128"}},
        {"model: {encoder: {pooling: queries, width: 100}}\n",
         {"run.yaml:6: model.encoder.heads", "8 heads", "width = 100"}},
        {"model: {encoder: {depth: 1, width: 97}}\n", {"model.encoder.heads", "8 heads", "width = 97"}},
        {"tasks[1].from=5000", {"tasks[1].from", "autoencoder.steps", "never"}},
        {"data: {sampling: difficulty, slots: 63}\n", {"data.slots", "63", "62"}},
        {"data: {sampling: difficulty, split: {train: 1, validation: 0, test: 0}}\n",
         {"difficulty", "split.validation"}},
        {"data: {sampling: difficulty}\noperator: {validate_every: 0}\n", {"difficulty", "operator.validate_every"}},
        {"model.encoder.frequencies=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]", {"frequencies"}},
        {"operator.losses.relative.weight=0", {"operator.losses", "no loss", "weight: 1"}},
        {"model.operator.history=2", {"model.operator.history", "history of 2", "tokens: grid"}},
        {"model.operator.bundle=4", {"model.operator.bundle", "bundle of 4", "tokens: grid"}},
        {"model:\n  tokens: grid\n  operator: {bundle: 9}\noperator:\n  losses: {rollout: {weight: 1}}\n",
         {"operator.rollout_steps", "4 applications of 9 steps", "are 36", "32 at most"}},
        {"operator.losses.relative.from=5", {"operator.losses", "no loss", "from: 0"}},
        {"operator.losses.relative.every=2", {"operator.losses", "no loss", "every: 1"}},
        {"autoencoder.losses.relative.weight=0", {"autoencoder.losses", "no loss"}},
        {"autoencoder.losses.relative={every: 3, from: 3}", {"autoencoder.losses", "no loss"}},
        {"operator: {steps: 100, optimizer: {schedule: wsd, warmup_steps: 90}}\n",
         {"run.yaml:6: operator.optimizer.schedule", "of 100 steps, 90 of warm-up and 20 of decay", "overlap"}},
        {"operator: {patience: 3, optimizer: {schedule: wsd}}\n",
         {"run.yaml:6: operator.optimizer.schedule", "operator.patience: 3", "patience: 0"}},
        {"operator: {validate_every: 0, optimizer: {schedule: plateau}}\n",
         {"run.yaml:6: operator.optimizer.schedule", "operator.validate_every: 0", "give it a number"}},
        {"data: {split: {train: 0.9, validation: 0, test: 0.1}}\nautoencoder: {optimizer: {schedule: plateau}}\n",
         {"run.yaml:7: autoencoder.optimizer.schedule", "data.split.validation is 0"}},
        {"operator: {patience: 3, optimizer: {schedule: plateau, plateau_patience: 3}}\n",
         {"run.yaml:6: operator.optimizer.schedule", "after 3 validations", "more than plateau_patience"}},
    };
    ALL_TOLD(list);
}

CLAIM(shares_of_tasks_may_change_where_a_stage_has_no_steps) {
    ups_run_config_free(load(minimal, "autoencoder.steps=0"));
    char text[400];
    snprintf(text, sizeof text, "%s    from: 10\ndata: {sampling: difficulty}\nautoencoder: {steps: 0}\n", minimal);
    ups_run_config_free(load(text, NULL));
}

/* Each is told where it stands; none is told because of another. */
CLAIM(all_mistakes_are_told_at_once_each_with_its_line) {
    static const char text[] = "output: ''\n"                                               /*  1 */
                               "seed: many\n"                                               /*  2 */
                               "data:\n"                                                    /*  3 */
                               "  split: {train: 0.5, validation: 0.1, test: 0.1}\n"        /*  4 */
                               "  slots: 1\n"                                               /*  5 */
                               "tasks:\n"                                                   /*  6 */
                               "  - {name: wave, files: [a.h5], patch: [4, x]}\n"           /*  7 */
                               "  - name: wave\n"                                           /*  8 */
                               "    file: [b.h5]\n"                                         /*  9 */
                               "model:\n"                                                   /* 10 */
                               "  decoder: {hidden: 100, heads: 8}\n"                       /* 11 */
                               "  operator:\n"                                              /* 12 */
                               "    hidden: wide\n"                                         /* 13 */
                               "    heads: 7\n"                                             /* 14 */
                               "stages: [operator, cache]\n"                                /* 15 */
                               "operator: {pairs_per_trajectory: 5, losses: [one_step]}\n"; /* 16 */
    static const struct {
        size_t line;
        const char *key;
    } expected[] = {{1, "output"},
                    {2, "seed"},
                    {4, "data.split"},
                    {5, "data.slots"},
                    {7, "tasks[0].patch[1]"},
                    {8, "tasks[1].name"},
                    {9, "tasks[1].file"},
                    {11, "model.decoder.heads"},
                    {13, "model.operator.hidden"},
                    {15, "stages"},
                    {16, "operator.losses"},
                    {16, "operator.batch_size"}};
    enum { COUNT = sizeof expected / sizeof *expected };
    ups_run_config *config = NULL;
    ups_config_mistakes *found = NULL;
    write_text(scratch("run.yaml"), text);
    ok(ups_run_config_read(scratch("run.yaml"), NULL, 0, &found, &config, &failure));
    ups_config_mistakes_sort(found);
    for (size_t i = 0; i < found->count && i < COUNT; i++) {
        char place[600];
        const ups_config_mistake *one = &found->list[i];
        assert_string_equal(one->key, expected[i].key);
        assert_int_equal(one->line, expected[i].line);
        snprintf(place, sizeof place, "%s:%zu: %s: ", scratch("run.yaml"), expected[i].line, expected[i].key);
        if (strncmp(one->sentence, place, strlen(place)) != 0) fail_msg("\"%s\"", one->sentence);
    }
    assert_int_equal(found->count, COUNT);
    ups_run_config_free(config);
    ups_config_mistakes_destroy(found);
}

/* ---- precision -------------------------------------------------------------------------------------------------- */

CLAIM(precision_auto_is_bf16_where_the_processor_multiplies_it_fast_and_f32_elsewhere) {
    const char *set = ups_cpu_instruction_set();
    bool amx = strcmp(set, "amx") == 0, fast = amx || (strcmp(set, "avx512_bf16") == 0 && ups_multiplies_bf16_fast());
    char text[160];
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_AUTO, "auto"), fast ? UPS_PRECISION_BF16 : UPS_PRECISION_F32);
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_F32, "auto"), UPS_PRECISION_F32);
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_BF16, "auto"), UPS_PRECISION_BF16);
    ups_precision_explain(UPS_PRECISION_BF16, "auto", text, sizeof text);
    assert_contains(text, amx    ? "bf16 (AMX multiplies it"
                          : fast ? "bf16 (AVX-512 multiplies it"
                                 : "bf16 (nothing here multiplies bf16 faster; f32 would be faster");
    ups_precision_explain(UPS_PRECISION_F32, "auto", text, sizeof text);
    assert_contains(text, fast ? "would multiply bf16 faster" : "bf16 would be slower");
    ups_precision_explain(UPS_PRECISION_F16, "auto", text, sizeof text);
    assert_contains(text, fast ? "fp16 (processors compute it in float32; bf16 would be faster"
                               : "fp16 (processors compute it in float32; f32 would be");
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_F16, "auto"), UPS_PRECISION_F16);
    assert_int_equal(ups_precision_dtype(UPS_PRECISION_F16), UPS_F16);
    assert_true(ups_precision_is_slow(UPS_PRECISION_F16, "auto") && !ups_precision_is_slow(UPS_PRECISION_F32, "auto"));
}

CLAIM(precision_auto_is_bf16_on_a_card_and_halves_are_fast_there) {
    char text[160];
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_AUTO, "cuda"), UPS_PRECISION_BF16);
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_F32, "cuda"), UPS_PRECISION_F32);
    assert_false(ups_precision_is_slow(UPS_PRECISION_BF16, "cuda") || ups_precision_is_slow(UPS_PRECISION_F16, "cuda"));
    ups_precision_explain(UPS_PRECISION_F16, "cuda", text, sizeof text);
    assert_string_equal(text, "fp16 (a card's tensor cores multiply it)");
    ups_precision_explain(UPS_PRECISION_F32, "cuda", text, sizeof text);
    assert_contains(text, "would multiply tf32 and bf16 faster");
}

CLAIM(precision_tf32_is_float32_on_a_processor) {
    char text[160];
    assert_int_equal(ups_precision_resolve(UPS_PRECISION_TF32, "auto"), UPS_PRECISION_TF32);
    assert_int_equal(ups_precision_dtype(UPS_PRECISION_TF32), UPS_F32);
    assert_true(ups_precision_allows_tf32(UPS_PRECISION_TF32) && !ups_precision_allows_tf32(UPS_PRECISION_F32));
    assert_false(ups_precision_is_slow(UPS_PRECISION_TF32, "auto"));
    ups_precision_explain(UPS_PRECISION_TF32, "auto", text, sizeof text);
    assert_string_equal(text, "tf32 (processors compute it as f32)");
    ups_precision_explain(UPS_PRECISION_TF32, "cuda", text, sizeof text);
    assert_string_equal(text, "tf32 (a card's tensor cores multiply it)");
}

/* The precision that commands take, where the run's directory holds `record` as config.yaml (NULL: none). */
static ups_precision of_run(const char *precision, const char *record) {
    char text[600];
    ups_precision found = UPS_PRECISION_AUTO;
    ok(ups_make_directories(scratch("run"), &failure));
    remove(scratch("run/config.yaml"));
    if (record) write_text(scratch("run/config.yaml"), record);
    snprintf(text, sizeof text, "precision=%s", precision);
    char output[600];
    snprintf(output, sizeof output, "output=%s", scratch("run"));
    const char *overrides[] = {text, output};
    ups_run_config *config = NULL;
    write_text(scratch("run.yaml"), minimal);
    ok(ups_run_config_load(scratch("run.yaml"), overrides, 2, &config, &failure));
    ok(ups_precision_of_run(config, &found, &failure));
    if (found != UPS_PRECISION_AUTO) { /* the same into the configuration itself */
        ok(ups_precision_of_run(config, &config->precision, &failure));
        assert_int_equal(config->precision, found);
    }
    ups_run_config_free(config);
    return found;
}

CLAIM(a_run_goes_on_in_the_precision_that_it_began_in_unless_another_is_configured) {
    ups_precision here = ups_precision_resolve(UPS_PRECISION_AUTO, "auto");
    char bf16[600], f32[600], fp16[600], open[600];
    snprintf(fp16, sizeof fp16, "%sprecision: fp16\n", minimal);
    snprintf(bf16, sizeof bf16, "%sprecision: bf16\n", minimal);
    snprintf(f32, sizeof f32, "%sprecision: f32\n", minimal);
    snprintf(open, sizeof open, "%sprecision: auto\n", minimal);
    assert_int_equal(of_run("auto", NULL), here);
    assert_int_equal(of_run("auto", bf16), UPS_PRECISION_BF16);
    assert_int_equal(of_run("auto", f32), UPS_PRECISION_F32);
    assert_int_equal(of_run("auto", open), here);
    assert_int_equal(of_run("f32", bf16), UPS_PRECISION_F32);
    assert_int_equal(of_run("bf16", f32), UPS_PRECISION_BF16);
    assert_int_equal(of_run("fp16", f32), UPS_PRECISION_F16);
    assert_int_equal(of_run("auto", fp16), UPS_PRECISION_F16);
}

/* With a warning: the checkpoint tells it, too. */
CLAIM(a_record_that_cannot_be_read_is_no_record) {
    assert_int_equal(of_run("auto", "precision: bf17\n"), ups_precision_resolve(UPS_PRECISION_AUTO, "auto"));
    assert_int_equal(of_run("f32", "precision: bf17\n"), UPS_PRECISION_F32);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
