/* `ups config init FILES... -o c.yaml`: a configuration to begin with, for data files. Families of files (families.h)
 * become tasks; sizes of the model follow from how much data there is. What it writes was opened as `ups train` opens
 * it. */
#include "base/config/annotate.h"
#include "base/files.h"
#include "base/json.h"
#include "base/system/memory_limit.h"
#include "pipeline/layouts/mapping.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config/families.h"
#include "tools/output.h"
#include "train/config/given.h"
#include "train/config/load.h"
#include "train/session.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT, LAYOUT, FROM, FORCE, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [OUTPUT] = {"output", 'o', "CONFIG", "the configuration to write"},
    [LAYOUT] = {"layout", 0, "YAML", "what files of your own hold, as a task's `layout` says it: YAML, or @FILE"},
    [FROM] = {"from", 0, "MODEL", "a run, or a file of `ups export`, as whose model this one is to begin"},
    [FORCE] = {"force", 'f', NULL, "overwrites what is there"},
};

/* The directory that all files lie below; "" for the current one, "/" for the root. */
static const char *common_root(ups_arena *arena, char **paths, int count) {
    char *root = ups_arena_strdup(arena, paths[0]);
    char *slash = strrchr(root, '/');
    if (!slash) return "";
    slash[slash == root] = '\0';
    for (int i = 1; i < count;) {
        size_t length = strlen(root);
        bool below = strncmp(paths[i], root, length) == 0 && (paths[i][length] == '/' || strcmp(root, "/") == 0);
        if (below) {
            i++;
            continue;
        }
        slash = strrchr(root, '/');
        if (!slash || strcmp(root, "/") == 0) return "";
        slash[slash == root] = '\0';
    }
    return root;
}

/* The same as the configuration `output` says it, in whose folder relative paths begin. */
static const char *told_root(ups_arena *arena, const char *output, const char *root) {
    char resolved[PATH_MAX];
    if (!*root) root = ".";
    return root[0] != '/' && strchr(output, '/') && realpath(root, resolved) ? ups_arena_strdup(arena, resolved) : root;
}

static const char *below_root(const char *path, const char *root) {
    size_t length = strlen(root);
    if (length == 0) return path;
    path += length;
    return path + strspn(path, "/");
}

/* ---- the configuration ------------------------------------------------------------------------------------------ */

/* Sizes of an operator for so much data. Memory: what training takes, roughly. */
typedef struct model_size {
    double bytes, memory; /* of data, at most; of the machine, at least */
    int64_t hidden, depth, steps;
} model_size;
static const model_size sizes[] = {
    {64e6, 0, 48, 4, 24000},
    {2e9, 2e9, 64, 4, 60000},
    {20e9, 4e9, 96, 6, 240000},
    {1e300, 8e9, 128, 8, 600000},
};

static const model_size *choose_size(double bytes) {
    size_t chosen = 0;
    double memory = (double)ups_memory_free();
    while (sizes[chosen].bytes < bytes && (memory <= 0 || sizes[chosen + 1].memory <= memory)) chosen++;
    return &sizes[chosen];
}

/* A document that grows; keys are written where they are set. */
static ups_yaml *section(ups_arena *arena, ups_yaml *parent, const char *key) {
    ups_yaml *made = ups_yaml_collection(arena, UPS_YAML_MAPPING, "");
    ups_yaml_append(parent, made, key);
    return made;
}

static void set_text(ups_arena *arena, ups_yaml *parent, const char *key, const char *text) {
    ups_yaml_append(parent, ups_yaml_scalar(arena, text, true), key);
}

static void set_plain(ups_arena *arena, ups_yaml *parent, const char *key, const char *text) {
    ups_yaml_append(parent, ups_yaml_scalar(arena, text, false), key);
}

static void set_number(ups_arena *arena, ups_yaml *parent, const char *key, int64_t number) {
    set_plain(arena, parent, key, ups_arena_printf(arena, "%" PRId64, number));
}

static ups_yaml *list(ups_arena *arena, ups_yaml *parent, const char *key) {
    ups_yaml *made = ups_yaml_collection(arena, UPS_YAML_LIST, "");
    ups_yaml_append(parent, made, key);
    return made;
}

static ups_yaml *copy(ups_arena *arena, const ups_yaml *node) {
    if (node->kind == UPS_YAML_SCALAR) return ups_yaml_scalar(arena, node->text, node->quoted);
    ups_yaml *made = ups_yaml_collection(arena, node->kind, "");
    for (const ups_yaml *child = node->first; child; child = child->next)
        ups_yaml_append(made, copy(arena, child), child->key);
    return made;
}

/* Whether a family's equation has no direction of its own, for all that PDEBench's say of theirs: windows may then be
 * seen by the symmetries of a square or a cube ("Symmetries" in docs/performance.md). On a line there is a reflection
 * alone, and a velocity that may be called anything. */
static bool has_symmetries(const ups_family *f) {
    static const char *const kinds[] = {"pdebench.compressible", "pdebench.darcy", "pdebench.incompressible"};
    /* groups a seed are what others write, too */
    bool known = strcmp(f->kind, "pdebench.seedgroup") == 0 &&
                 (strcmp(f->fields, "h") == 0 || strcmp(f->fields, "activator, inhibitor") == 0);
    bool fits = true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) known = known || strcmp(f->kind, kinds[i]) == 0;
    for (int a = 0; a < f->shape.dims; a++) fits = fits && f->shape.grid[a] % f->patch[a] == 0;
    return known && fits && !f->scattered && f->shape.dims > 1;
}

static bool any_symmetries(const ups_survey *s) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) any |= has_symmetries(f);
    return any && !s->from; /* what a model was trained with is its own */
}

static void add_tasks(const ups_survey *s, ups_yaml *root, const char *data_root) {
    ups_yaml *tasks = list(s->arena, root, "tasks");
    for (const ups_family *f = s->families; f < s->families + s->count; f++) {
        ups_yaml *task = section(s->arena, tasks, NULL);
        set_text(s->arena, task, "name", f->name);
        ups_yaml *files = list(s->arena, task, "files"), *patch = list(s->arena, task, "patch");
        for (int i = 0; i < f->file_count; i++) set_text(s->arena, files, NULL, below_root(f->files[i], data_root));
        ups_yaml *test_files = f->test_count > 0 ? list(s->arena, task, "test_files") : NULL;
        for (int i = 0; i < f->test_count; i++)
            set_text(s->arena, test_files, NULL, below_root(f->files[f->file_count + i], data_root));
        bool same = true;
        for (int a = 1; a < f->shape.dims; a++) same = same && f->patch[a] == f->patch[0];
        for (int a = 0; a < (same ? 1 : f->shape.dims); a++) set_number(s->arena, patch, NULL, f->patch[a]);
        if (f->segment > 0) set_number(s->arena, task, "segment", f->segment);
        if (any_symmetries(s) && !has_symmetries(f)) set_plain(s->arena, task, "symmetries", "false");
        const int32_t bundle = s->told ? ups_given_bundle(s->told, f->name) : 0;
        if (bundle > 0) set_number(s->arena, task, "bundle", bundle);
        if (s->layout) ups_yaml_append(task, copy(s->arena, s->layout), "layout");
    }
}

static bool any_scattered(const ups_survey *s) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) any |= f->scattered;
    return any;
}

static bool any_grid(const ups_survey *s) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) any |= !f->scattered;
    return any;
}

static int64_t tokens_of(const ups_family *f) {
    int64_t tokens = 1;
    for (int a = 0; a < f->shape.dims; a++) tokens *= (f->shape.grid[a] + f->patch[a] - 1) / f->patch[a];
    return tokens;
}

/* Whether points make so many tokens that attention over all of them, which costs the square, is out of reach. */
static bool needs_windows(const ups_survey *s) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++)
        any |= f->scattered && tokens_of(f) > UPS_MOST_OWN_LEAVES;
    return any;
}

/* Attention over all tokens wins where they are about a hundred, Fourier modes where they are a thousand, and on most
 * planes of some hundreds the U-Net of attention: docs/performance.md, "Attention or Fourier modes". */
enum { FEW = 128, SOME = 512 };

static const char *choose_core(const ups_survey *s) {
    int64_t most = 1;
    int dims = 1;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) {
        const int64_t tokens = tokens_of(f);
        if (tokens > most || (tokens == most && f->shape.dims > dims)) most = tokens, dims = f->shape.dims;
    }
    if (any_scattered(s)) return most <= UPS_MOST_OWN_LEAVES ? "stack" : "unet"; /* modes are those of a grid */
    return most <= FEW ? "stack" : most <= SOME && dims == 2 ? "unet" : "spectral";
}

/* Whether a task has at least `low` tokens and at most `high`. */
static bool any_within(const ups_survey *s, int64_t low, int64_t high) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++)
        any |= tokens_of(f) >= low && tokens_of(f) <= high;
    return any;
}

/* Whether blocks mix modes of tasks with many tokens and attend in those with few: then each task has what suits it
 * ("One model for all nine tasks"). */
static bool mix_by_size(const ups_survey *s) {
    return strcmp(choose_core(s), "spectral") == 0 && any_within(s, 1, UPS_ATTENDED_TOKENS) &&
           any_within(s, UPS_ATTENDED_TOKENS + 1, INT64_MAX);
}

/* Whether blocks mix modes along more than one axis of a task that has more than `most` tokens. */
static bool any_plane(const ups_survey *s, int64_t most) {
    bool any = false;
    for (const ups_family *f = s->families; f < s->families + s->count; f++)
        any |= f->shape.dims > 1 && !f->scattered && tokens_of(f) > most;
    return any;
}

static void add_core(const ups_survey *s, ups_yaml *core, const model_size *size) {
    enum { HEAD = 32 };
    const bool mixed = mix_by_size(s);
    const char *name = mixed ? "stack" : choose_core(s);
    const bool unet = strcmp(name, "unet") == 0;
    set_plain(s->arena, core, "core", name);
    set_number(s->arena, core, "hidden", size->hidden);
    if (unet) { /* about as many blocks */
        ups_yaml *depths = list(s->arena, core, "depths");
        const int64_t level[] = {1, size->depth > 6 ? 2 : 1, size->depth > 4 ? 2 : 1};
        for (int i = 0; i < 3; i++) set_number(s->arena, depths, NULL, level[i]);
    } else {
        set_number(s->arena, core, "depth", size->depth);
    }
    if (unet && any_within(s, 1, FEW)) set_number(s->arena, core, "merge_above", FEW);
    if (mixed) set_plain(s->arena, list(s->arena, core, "mixing"), NULL, "auto");
    if (s->count > 1) { /* docs/notes/accuracy.md, "What tasks share" */
        ups_yaml *own = list(s->arena, core, "task_specific");
        set_plain(s->arena, own, NULL, "mixing");
        set_plain(s->arena, own, NULL, "mlp");
    }
    if (strcmp(name, "spectral") != 0) set_number(s->arena, core, "heads", (size->hidden + HEAD - 1) / HEAD);
    if ((mixed || strcmp(name, "spectral") == 0) && any_plane(s, mixed ? UPS_ATTENDED_TOKENS : 0))
        set_plain(s->arena, core, "factorized", "true");
    set_number(s->arena, core, "mlp_ratio", 2);
    if (!any_scattered(s)) set_number(s->arena, core, "convolution", 3);
    if (needs_windows(s)) { /* runs of the tree */
        enum { WINDOW = 64 };
        set_plain(s->arena, core, "attention", "window");
        set_number(s->arena, list(s->arena, core, "window"), NULL, WINDOW);
    }
}

static void add_model(const ups_survey *s, ups_yaml *root, const model_size *size) {
    ups_yaml *model = section(s->arena, root, "model");
    if (s->from) { /* all else is that model's */
        set_text(s->arena, model, "from", s->from);
        return;
    }
    set_plain(s->arena, model, "tokens", "grid");
    set_plain(s->arena, model, "dim", "auto");
    add_core(s, section(s->arena, model, "operator"), size);
}

/* Whether tokens are patches. A model to begin with may have learnt others. */
static bool is_of_grid(const ups_survey *s) {
    return !s->told || json_is_string(json_object_get(json_object_get(s->told, "model"), "tokens"));
}

/* Batches are small, since many steps win: "Small batches" in docs/performance.md. Volumes, and points that lie
 * anywhere, have OTHER_BATCH. */
enum { LINE_BATCH = 8, OTHER_BATCH = 4, PLANE_BATCH = 2 };

static int64_t batch_for(const ups_survey *s) {
    int64_t batch = LINE_BATCH;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) {
        const int64_t own = f->scattered || f->shape.dims == 3 ? OTHER_BATCH
                            : f->shape.dims == 2               ? PLANE_BATCH
                                                               : LINE_BATCH;
        if (own < batch) batch = own;
    }
    return batch;
}

static int64_t steps_for(const ups_survey *s) {
    const int64_t steps = choose_size(ups_survey_bytes(s))->steps;
    const bool dear = !any_grid(s) && any_within(s, 2 * FEW, INT64_MAX); /* attention over many */
    if (batch_for(s) == PLANE_BATCH) return 2 * steps; /* each takes half as long as one of twice the batch */
    return dear ? steps / 2 : steps;
}

/* A batch holds one task: as many batches a step as there are tasks, up to a few. */
static void add_operator(const ups_survey *s, ups_yaml *root) {
    enum { MOST_BATCHES = 8 };
    ups_arena *arena = s->arena;
    ups_yaml *stage = section(arena, root, "operator");
    set_number(arena, stage, "steps", steps_for(s));
    set_number(arena, stage, "batch_size", batch_for(s));
    set_number(arena, stage, "accumulation", s->count < MOST_BATCHES ? s->count : MOST_BATCHES);
    if (!is_of_grid(s)) return;
    if (any_grid(s) && !s->from) set_plain(arena, section(arena, stage, "optimizer"), "learning_rate", "0.003");
    if (any_symmetries(s)) set_plain(arena, stage, "augment", "symmetries");
    ups_yaml *losses = section(arena, stage, "losses");
    set_number(arena, section(arena, losses, "relative"), "weight", 0); /* of latents; below are those of fields */
    set_number(arena, section(arena, losses, "decoded"), "weight", 1);
    if (any_grid(s)) set_plain(arena, section(arena, losses, "spectral"), "weight", "0.1");
}

static const ups_yaml *compose(const ups_survey *s, const char *output, const char *data_root) {
    ups_arena *arena = s->arena;
    const model_size *size = choose_size(ups_survey_bytes(s));
    ups_yaml *root = ups_yaml_collection(arena, UPS_YAML_MAPPING, "");
    const char *base = strrchr(output, '/') ? strrchr(output, '/') + 1 : output, *dot = strrchr(base, '.');
    int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    set_text(arena, root, "output", ups_arena_printf(arena, "runs/%.*s", length, base));
    set_number(arena, root, "seed", 42);
    /* bf16 rounds away what models of grids reach; those of points want many steps first */
    set_plain(arena, root, "precision", any_grid(s) ? "f32" : "auto");
    set_text(arena, section(arena, root, "data"), "root", told_root(arena, output, data_root));
    add_tasks(s, root, data_root);
    add_model(s, root, size);
    if (is_of_grid(s)) set_number(arena, section(arena, root, "autoencoder"), "steps", 0);
    add_operator(s, root);
    return root;
}

static const char *heading_of(const ups_survey *s, const char *output) {
    const char *text = ups_arena_printf(
        s->arena,
        "A configuration to begin with; data.root counts from this file's folder, %s from where a command runs.\n"
        "`ups config check` lists mistakes in it, `ups config keys` all keys that may stand here. To run it:\n"
        "  ups train %s\n"
        "With --for 10m it takes ten minutes or so, by as many operator steps as fit, whatever operator.steps says.\n",
        s->from ? "output and model.from" : "output", output);
    for (const ups_family *f = s->families; f < s->families + s->count; f++) {
        const bool differ = f->longest > f->shape.times;
        text = ups_arena_printf(s->arena, "%s\n%s: %s, %" PRId64 " sample%s of %" PRId64, text, f->name, f->kind,
                                f->samples, f->samples == 1 ? "" : "s", f->shape.times);
        if (differ) text = ups_arena_printf(s->arena, "%s to %" PRId64, text, f->longest);
        text = ups_arena_printf(s->arena, "%s frames, %s", text, f->own_points ? "up to " : "");
        for (int a = 0; a < f->shape.dims; a++) {
            text = ups_arena_printf(s->arena, "%s%s%" PRId64, text, a ? " × " : "", f->shape.grid[a]);
        }
        text = ups_arena_printf(s->arena, "%s points; %s", text, f->fields);
        if (f->test_count > 0) text = ups_arena_printf(s->arena, "%s; %" PRId64 " test samples", text, f->test_samples);
        if (f->segment > 0)
            text = ups_arena_printf(s->arena, "%s; cut into segments of %" PRId64 " frames", text, f->segment);
    }
    return text;
}

/* Under a temporary name first, which is opened as `ups train` would: only what runs gets its own name. */
static ups_status publish(const char *path, const char *text, ups_error *error) {
    ups_publication *publication = NULL;
    ups_session session;
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = ups_publish_append(publication, text, strlen(text), error);
    if (status == UPS_OK) {
        status = ups_session_open(ups_publish_temporary(publication), NULL, 0, false, &session, error);
        if (status == UPS_OK) ups_session_close(&session);
    }
    if (status == UPS_OK) return ups_publish_commit(publication, error);
    ups_publish_abandon(publication);
    return status;
}

static json_t *file_names(char *const *names, int count) {
    json_t *made = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(made, json_string(names[i]));
    return made;
}

static json_t *describe_families(const ups_survey *s, const char *output) {
    json_t *tasks = json_array();
    for (const ups_family *f = s->families; f < s->families + s->count; f++) {
        json_t *files = file_names(f->files, f->file_count), *patch = json_array();
        for (int a = 0; a < f->shape.dims; a++) json_array_append_new(patch, json_integer(f->patch[a]));
        json_t *task = json_pack("{s:s, s:o, s:o, s:I}", "name", f->name, "files", files, "patch", patch, "samples",
                                 (json_int_t)f->samples);
        if (f->test_count > 0)
            json_object_set_new(task, "test_files", file_names(f->files + f->file_count, f->test_count));
        if (f->segment > 0) json_object_set_new(task, "segment", json_integer(f->segment));
        json_array_append_new(tasks, task);
    }
    return json_pack("{s:o, s:o}", "config", ups_json_printable(output), "tasks", tasks);
}

/* `given`: YAML, or @FILE. */
static ups_status take_layout(ups_survey *s, const char *given, ups_error *error) {
    const char *name = given[0] == '@' ? given + 1 : "--layout", *text = given;
    ups_mapping *mapping = UPS_ARENA_NEW(s->arena, ups_mapping);
    ups_yaml *root = NULL, *layout = NULL;
    size_t length;
    if (given[0] == '@') {
        char *read = NULL;
        UPS_TRY(ups_read_file(name, 1 << 20, &read, &length, error));
        text = ups_arena_strdup(s->arena, read);
        free(read);
    }
    UPS_TRY(ups_mapping_parse(name, text, s->arena, mapping, error));
    UPS_TRY(ups_yaml_parse(s->arena, name, true, text, strlen(text), &root, error));
    UPS_TRY(ups_mapping_section(name, root, &layout, error));
    s->mapping = mapping;
    s->layout = layout;
    return UPS_OK;
}

static ups_status init(ups_survey *s, char **files, int count, const char *layout, const char *output, bool force,
                       ups_error *error) {
    UPS_TRY(ups_output_is_no_input(output, (const char *const *)files, count, error));
    if (!force && !ups_path_is_absent(output)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s is there already; --force overwrites it", output);
    }
    if (layout) UPS_TRY(take_layout(s, layout, error));
    if (s->from) UPS_TRY(ups_given_read(s->from, &s->told, error));
    UPS_TRY(ups_survey_files(s, files, count, error));
    const char *data_root = common_root(s->arena, files, count);
    char *text = NULL;
    UPS_TRY(ups_config_annotate(&ups_run_schema, compose(s, output, data_root), heading_of(s, output), &text, error));
    ups_status status = publish(output, text, error);
    free(text);
    return status;
}

static void print_summary(const ups_survey *s, const char *output) {
    int tests = 0;
    for (const ups_family *f = s->families; f < s->families + s->count; f++) tests += f->test_count;
    printf("%s: %d task%s", output, s->count, s->count == 1 ? "" : "s");
    if (tests > 0) printf(", %d file%s kept for evaluation", tests, tests == 1 ? "" : "s");
    printf("; `ups train %s` runs it\n", output);
    printf("Its operator takes %" PRId64
           " steps, by the amount of data; with --for 10m as many as fit into that time.\n",
           steps_for(s));
}

int ups_cmd_config_init(int argc, char **argv) {
    static const ups_usage usage = {
        .command = "config init",
        .arguments = "FILE...",
        .summary = "writes a configuration for data files, with what each key means, to begin with",
        .options = options,
        .option_count = OPTION_COUNT,
        .details =
            "Files of one family become one task: the same layout, fields, grid and frames, names that differ in\n"
            "numbers alone. Files whose name or folder says \"test\" become its test_files; those that say \"valid\" "
            "are\n"
            "trained on, since splits are drawn from a task's files. Long runs, and runs of different lengths, are cut "
            "into segments. Patches are chosen\n"
            "from the grid or the number of points, the core from how many tokens they make, sizes of the model\n"
            "from the amount of data. For files of your own, --layout says what they hold. With --from the model\n"
            "begins as another one, of which it has the sizes; tasks of the same name go on as they were there,\n"
            "with their patches.\n\n"
            "Examples:\n"
            "  ups config init data/*.hdf5 -o run.yaml\n"
            "  ups train run.yaml\n"
            "  ups data inspect --suggest mine.h5 >mine.yaml   # a layout, to be looked through\n"
            "  ups config init mine.h5 --layout @mine.yaml -o run.yaml\n"
            "  ups config init mine.h5 --from runs/many -o tuned.yaml\n"};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    const char *output = NULL, *layout = NULL, *from = NULL;
    bool force = false;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == OUTPUT) output = arguments.value;
        if (option == LAYOUT) layout = arguments.value;
        if (option == FROM) from = arguments.value;
        if (option == FORCE) force = true;
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count < 1) return ups_command_usage_error(&arguments, "at least one FILE was expected");
    if (from && !from[0])
        return ups_command_usage_error(&arguments, "--from: a run, or a file of `ups export`, was expected");
    if (!output) return ups_command_usage_error(&arguments, "-o CONFIG was expected: where to write it");
    ups_survey s = {.arena = ups_arena_create(0), .from = from};
    ups_error error;
    ups_status status = s.arena ? init(&s, arguments.operands, arguments.operand_count, layout, output, force, &error)
                                : ups_fail(&error, UPS_ERR_MEMORY, "no memory");
    int exit_code = status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
    if (status == UPS_OK && arguments.json) {
        json_t *document = describe_families(&s, output);
        ups_print_json(document, JSON_INDENT(2));
        json_decref(document);
    } else if (status == UPS_OK && !arguments.quiet) {
        print_summary(&s, output);
    }
    json_decref(s.told);
    ups_arena_destroy(s.arena);
    return exit_code;
}
