#include "sample_config.h"

static void every_type_reaches_its_place_in_the_struct(void **state) {
    sample_config *c = must_load("output: runs/one\n"
                                 "label: abc\n"
                                 "note: \"it's: quoted\"\n"
                                 "core: unet\n"
                                 "tasks:\n"
                                 "  - name: burgers\n"
                                 "    files: [a.hdf5, 'b c.hdf5']\n"
                                 "    weight: 2\n"
                                 "    crops: [1, 2, 6]\n"
                                 "  - {name: \"1d\", files: [0001]}\n"
                                 "train:\n"
                                 "  learning_rate: 5e-4\n"
                                 "  steps: 9007199254740993\n"
                                 "  batch_size: 010\n"
                                 "  clip: .25\n"
                                 "  betas: [0.5, 0.75]\n"
                                 "  ema: Yes\n"
                                 "  seed: 18446744073709551615\n"
                                 "  shift: -2147483648\n"
                                 "  stages: [operator, cache]\n"
                                 "diffusion: {steps: 3, schedule: linear}\n",
                                 NULL);
    assert_string_equal(c->output, "runs/one");
    assert_string_equal(c->label, "abc");
    assert_string_equal(c->note, "it's: quoted");
    assert_int_equal(c->core, CORE_UNET);
    assert_int_equal(c->task_count, 2);
    assert_string_equal(c->tasks[0].name, "burgers");
    assert_int_equal(c->tasks[0].file_count, 2);
    assert_string_equal(c->tasks[0].files[1], "b c.hdf5");
    assert_true(c->tasks[0].weight == 2.0);
    assert_int_equal(c->tasks[0].crop_count, 3);
    assert_int_equal(c->tasks[0].crops[2], 6);
    assert_string_equal(c->tasks[1].name, "1d");
    assert_string_equal(c->tasks[1].files[0], "0001");
    assert_true(c->train.learning_rate == 5e-4);
    assert_true(c->train.steps == 9007199254740993);
    assert_int_equal(c->train.batch_size, 10); /* not octal */
    assert_true(c->train.clip == 0.25f);
    assert_int_equal(c->train.beta_count, 2);
    assert_true(c->train.betas[0] == 0.5f && c->train.betas[1] == 0.75f);
    assert_true(c->train.ema);
    assert_true(c->train.seed == UINT64_MAX);
    assert_int_equal(c->train.shift, INT32_MIN);
    assert_int_equal(c->train.stage_count, 2);
    assert_int_equal(c->train.stages[0], STAGE_OPERATOR);
    assert_int_equal(c->train.stages[1], STAGE_CACHE);
    assert_int_equal(c->diffusion.steps, 3);
    assert_string_equal(c->diffusion.schedule, "linear");
    ups_config_free(c);
}

static void absent_keys_take_their_defaults(void **state) {
    sample_config *c = must_load(MINIMAL, NULL);
    assert_string_equal(c->output, "runs/default");
    assert_string_equal(c->label, "run");
    assert_string_equal(c->note, "");
    assert_int_equal(c->core, CORE_STACK);
    assert_true(c->tasks[0].weight == 1.5);
    assert_int_equal(c->tasks[0].crop_count, 0);
    assert_true(c->train.learning_rate == 0.001); /* "train" itself is absent */
    assert_int_equal(c->train.steps, 1000);
    assert_int_equal(c->train.batch_size, 0); /* auto */
    assert_true(c->train.clip == 0.1f);
    assert_true(c->train.betas[0] == 0.9f && c->train.betas[1] == 0.99f);
    assert_false(c->train.ema);
    assert_int_equal(c->train.stage_count, 2);
    assert_int_equal(c->diffusion.steps, 8);
    ups_config_free(c);
    ups_config_free(NULL);
}

static void a_section_whose_lines_are_all_commented_out_takes_its_defaults(void **state) {
    sample_config *c = must_load(MINIMAL "train:\n#  steps: 5\n", NULL);
    assert_int_equal(c->train.steps, 1000);
    ups_config_free(c);
}

static void overrides_replace_create_and_append(void **state) {
    const char *text = MINIMAL "train: {steps: 5}\n";
    sample_config *c = must_load(text, "train.steps=7");
    assert_int_equal(c->train.steps, 7);
    ups_config_free(c);
    c = must_load(text, "train.stages=[cache, operator, autoencoder]");
    assert_int_equal(c->train.stage_count, 3);
    assert_int_equal(c->train.stages[2], STAGE_AUTOENCODER);
    assert_int_equal(c->train.steps, 5);
    ups_config_free(c);
    c = must_load(MINIMAL "train: {betas: [0.25, 0.5]}\n", "train.betas[1]=0.75");
    assert_true(c->train.betas[0] == 0.25f && c->train.betas[1] == 0.75f);
    ups_config_free(c);
}

static void overrides_reach_into_lists(void **state) {
    sample_config *c = must_load(MINIMAL, "tasks[0].name=advection");
    assert_string_equal(c->tasks[0].name, "advection");
    ups_config_free(c);
    c = must_load(MINIMAL, "tasks[0].files[1]=more files/b.hdf5");
    assert_int_equal(c->tasks[0].file_count, 2);
    assert_string_equal(c->tasks[0].files[1], "more files/b.hdf5");
    ups_config_free(c);
    c = must_load(MINIMAL, "tasks[1]={name: darcy, files: [d.hdf5]}");
    assert_int_equal(c->task_count, 2);
    assert_string_equal(c->tasks[1].name, "darcy");
    ups_config_free(c);
    c = must_load(MINIMAL, "tasks[0].crops=[3, 4]");
    assert_int_equal(c->tasks[0].crops[1], 4);
    ups_config_free(c);
}

static void overrides_create_sections(void **state) {
    sample_config *c = must_load(MINIMAL, "diffusion.schedule=linear");
    assert_string_equal(c->diffusion.schedule, "linear");
    assert_int_equal(c->diffusion.steps, 8);
    ups_config_free(c);
    c = must_load(MINIMAL, "output=a=b"); /* only the first = separates */
    assert_string_equal(c->output, "a=b");
    ups_config_free(c);
    c = must_load(MINIMAL "train: {steps: wrong}\n", "train.steps=3"); /* the mistake is overridden */
    assert_int_equal(c->train.steps, 3);
    ups_config_free(c);
}

static void later_overrides_win(void **state) {
    const char *overrides[] = {"train.steps=1", "train={steps: 2, ema: true}", "train.steps=3"};
    void *loaded = NULL;
    write_text(scratch("c.yaml"), MINIMAL);
    assert_int_equal(ups_config_load(scratch("c.yaml"), &sample_schema, overrides, 3, &loaded, NULL), UPS_OK);
    const sample_config *c = loaded;
    assert_int_equal(c->train.steps, 3);
    assert_true(c->train.ema);
    ups_config_free(loaded);
}

static void aliases_are_copies_and_merge_keys_fill_in(void **state) {
    sample_config *c = must_load("tasks:\n"
                                 "  - &first\n"
                                 "    name: a\n"
                                 "    files: &files [x.hdf5]\n"
                                 "    weight: 3\n"
                                 "  - {<<: *first, name: b}\n"
                                 "  - {name: c, files: *files}\n",
                                 "tasks[2].files[0]=y.hdf5");
    assert_int_equal(c->task_count, 3);
    assert_string_equal(c->tasks[1].name, "b");
    assert_true(c->tasks[1].weight == 3);
    assert_string_equal(c->tasks[0].files[0], "x.hdf5"); /* the override touched the copy alone */
    assert_string_equal(c->tasks[1].files[0], "x.hdf5");
    assert_string_equal(c->tasks[2].files[0], "y.hdf5");
    ups_config_free(c);
    c = must_load("tasks: [&a {name: a, files: [x]}, &b {weight: 4, name: b, files: [y]}, {<<: [*b, *a]}]\n", NULL);
    assert_string_equal(c->tasks[2].name, "b"); /* the first of the bases wins */
    ups_config_free(c);
}

static void texts_keep_every_character(void **state) {
    sample_config *c =
        must_load(MINIMAL "note: \"tab\\t line\\n ψ 🌀 \\x01 \\\\ ' \\\" # :\"\noutput: |\n  two\n  lines\n", NULL);
    assert_string_equal(c->note, "tab\t line\n ψ 🌀 \x01 \\ ' \" # :");
    assert_string_equal(c->output, "two\nlines\n");
    char *text = NULL;
    assert_int_equal(ups_config_print(&sample_schema, c, &text, NULL), UPS_OK);
    sample_config *again = must_load(text, NULL);
    assert_string_equal(again->note, c->note);
    assert_string_equal(again->output, c->output);
    free(text);
    ups_config_free(c);
    ups_config_free(again);
}

static void what_is_printed_shows_defaults_and_loads_to_the_same(void **state) {
    sample_config *c = must_load("tasks:\n"
                                 "  - {name: a, files: ['true', \"12\", x y], crops: [1, 2, 3]}\n"
                                 "  - {name: b, files: [z], weight: 0.1234567890123456789}\n"
                                 "train: {learning_rate: 0.30000000000000004, clip: 0.1, shift: -7}\n",
                                 NULL);
    char *text = NULL, *second = NULL;
    ups_error error;
    assert_int_equal(ups_config_print(&sample_schema, c, &text, &error), UPS_OK);
    assert_string_equal(text, "output: runs/default\n"
                              "label: run\n"
                              "note: \"\"\n"
                              "core: stack\n"
                              "tasks:\n"
                              "- name: a\n"
                              "  files: [\"true\", \"12\", x y]\n"
                              "  weight: 1.5\n"
                              "  crops: [1, 2, 3]\n"
                              "- name: b\n"
                              "  files: [z]\n"
                              "  weight: 0.12345678901234568\n"
                              "  crops: []\n"
                              "train:\n"
                              "  learning_rate: 0.30000000000000004\n"
                              "  steps: 1000\n"
                              "  batch_size: auto\n"
                              "  clip: 0.1\n"
                              "  betas: [0.9, 0.99]\n"
                              "  ema: false\n"
                              "  seed: 42\n"
                              "  shift: -7\n"
                              "  stages: [autoencoder, operator]\n"
                              "diffusion:\n"
                              "  steps: 8\n"
                              "  schedule: cosine\n"
                              "folder: /nowhere\n"
                              "map: {}\n");
    sample_config *again = must_load(text, NULL);
    assert_true(again->train.learning_rate == c->train.learning_rate && again->tasks[1].weight == c->tasks[1].weight);
    assert_int_equal(ups_config_print(&sample_schema, again, &second, &error), UPS_OK);
    assert_string_equal(second, text);
    free(text);
    free(second);
    ups_config_free(c);
    ups_config_free(again);
}

typedef struct listing {
    char text[4000];
    size_t length;
} listing;

typedef struct seen {
    int count;
    char text[9][120];
} seen;

static void note_difference(void *context, const ups_config_difference *difference) {
    seen *s = context;
    assert_in_range(s->count, 0, 8);
    snprintf(s->text[s->count++], sizeof s->text[0], "%s: %s, %s", difference->path, difference->first,
             difference->second);
}

static void what_differs_is_told_key_by_key_in_the_tables_order(void **state) {
    static const char other[] = "tasks:\n  - name: darcy\n    files: [a.hdf5, b.hdf5]\n  - name: wave\n    files: [c]\n"
                                "core: unet\nnote: it's\ntrain: {batch_size: 8, betas: [0.5, 0.99, 1], ema: yes}\n"
                                "map: {x: 1}\n";
    static const char *const expected[] = {"note: , it's",
                                           "core: stack, unet",
                                           "tasks[0].name: burgers, darcy",
                                           "tasks[0].files: [a.hdf5], [a.hdf5, b.hdf5]",
                                           "tasks[1]: absent, name: wave",
                                           "train.batch_size: auto, 8",
                                           "train.betas: [0.9, 0.99], [0.5, 0.99, 1]",
                                           "train.ema: false, true",
                                           "map: {}, {x: 1}"};
    ups_error error;
    seen s = {0};
    sample_config *first = must_load(MINIMAL, NULL), *second = must_load(other, NULL);
    assert_int_equal(ups_config_compare(&sample_schema, first, second, note_difference, &s, &error), UPS_OK);
    assert_int_equal(s.count, 9);
    for (int i = 0; i < s.count; i++) assert_string_equal(s.text[i], expected[i]);
    s.count = 0;
    assert_int_equal(ups_config_compare(&sample_schema, second, second, note_difference, &s, &error), UPS_OK);
    assert_int_equal(s.count, 0);
    ups_config_free(first);
    ups_config_free(second);
}

/* Paths begin at the document's folder, those of overrides at the working directory. */
static void paths_become_absolute(void **state) {
    static const struct {
        const char *text, *below; /* the scratch directory; NULL: the text itself */
    } cases[] = {{".", ""},
                 {"./", ""},
                 {"data", "/data"},
                 {"./data/x", "/data/x"},
                 {"../x", NULL},
                 {"/abs/x", NULL},
                 {".hidden", "/.hidden"},
                 {"..data", "/..data"},
                 {"a/../b", "/a/../b"}};
    char root[PATH_MAX], text[300], expected[PATH_MAX + 100];
    assert_non_null(realpath(scratch_directory, root));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, MINIMAL "folder: %s\n", cases[i].text);
        sample_config *config = must_load(text, NULL);
        snprintf(expected, sizeof expected, "%s%s", cases[i].below ? root : "",
                 cases[i].below ? cases[i].below : cases[i].text);
        if (strcmp(cases[i].text, "../x") == 0)
            snprintf(expected, sizeof expected, "%.*s/x", (int)(strrchr(root, '/') - root), root);
        assert_string_equal(config->folder, expected);
        ups_config_free(config);
    }
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_non_null(realpath(here, root));
    sample_config *config = must_load(MINIMAL, "folder=there");
    snprintf(expected, sizeof expected, "%s/there", root);
    assert_string_equal(config->folder, expected);
    ups_config_free(config);
}

static void list_key(void *context, const char *path, const char *expected, const ups_config_key *key) {
    listing *l = context;
    l->length += (size_t)snprintf(l->text + l->length, sizeof l->text - l->length, "%s: %s (%s)%s\n", path, expected,
                                  ups_config_is_required(key) ? "required"
                                  : key->default_value        ? key->default_value
                                                              : "-",
                                  key->help ? key->help : "");
}

static void every_key_is_listed_with_what_it_takes(void **state) {
    listing l = {.length = 0};
    ups_config_each_key(&sample_schema, list_key, &l);
    assert_contains(l.text, "core: stack or unet (stack)\n");
    assert_contains(l.text,
                    "tasks: a list of 1 to 4 mappings (required)what is trained on\ntasks[].name: text (required)");
    assert_contains(l.text, "tasks[].weight: a number of at least 0 (1.5)\n");
    assert_contains(l.text, "tasks[].crops: a list of whole numbers ([])\n");
    assert_contains(l.text, "train.learning_rate: a number between 0 and 1 (0.001)peak learning rate\n");
    assert_contains(l.text, "train.steps: a whole number of at least 1 (1000)\n");
    assert_contains(l.text, "train.batch_size: a whole number between 1 and 4096, or auto (auto)\n");
    assert_contains(l.text, "train.betas: a list of 2 to 3 numbers ([0.9, 0.99])\n");
    assert_contains(l.text, "train.ema: true or false (no)\n");
    assert_contains(l.text, "diffusion: a mapping (indented lines of key: value) (-)\n");
    assert_contains(l.text, "diffusion.schedule: text (cosine)\n");
    assert_null(strstr(l.text, "diffusion.count")); /* removed */
}

static void yaml_of_any_form_is_kept_and_prints_to_the_same(void **state) {
    static const char *const values[] = {"{a: {b: [1, two, '3'], c: ~}, d: \"x: y\"}",
                                         "plain text",
                                         "'true'",
                                         "~",
                                         "{'<<': 1, \"a b\": {}}",
                                         "|\n  two\n  lines\n"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[300], *once = NULL, *twice = NULL;
        ups_error error;
        snprintf(text, sizeof text, "%smap: %s\n", MINIMAL, values[i]);
        sample_config *c = must_load(text, NULL);
        assert_int_equal(ups_config_print(&sample_schema, c, &once, &error), UPS_OK);
        sample_config *again = must_load(once, NULL);
        assert_int_equal(ups_config_print(&sample_schema, again, &twice, &error), UPS_OK);
        assert_string_equal(once, twice);
        assert_string_equal(c->map, again->map);
        free(once);
        free(twice);
        ups_config_free(c);
        ups_config_free(again);
    }
    sample_config *c = must_load(MINIMAL "map: {a: {b: [1, two, '3']}}\n", "map.a.c=4");
    assert_string_equal(c->map, "a:\n  b: [1, two, \"3\"]\n  c: 4\n");
    ups_config_free(c);
    ups_error error;
    assert_int_equal(load_sample(MINIMAL "map: [1]\n", NULL, &c, &error), UPS_ERR_CONFIG);
    assert_contains(error.message, "c.yaml:");
    assert_contains(error.message, ": map: a list stands here");
}

static const ups_config_key wrong_keys[] = {
    KEY(SECTION, "tasks", tasks, NULL, 0, 0, NULL, .keys = task_keys, LIST(sample_config, tasks, task_count, 1, 4)),
    UPS_CONFIG_SUBSECTION("train", KEY(INT64, "steps", train.steps, "many", 1, 10, NULL)),
    {.name = NULL}};

static void a_wrong_default_is_reported_as_such(void **state) {
    const ups_config_schema schema = {wrong_keys, sizeof(sample_config)};
    void *loaded = NULL;
    ups_error error;
    write_text(scratch("c.yaml"), MINIMAL);
    assert_int_equal(ups_config_load(scratch("c.yaml"), &schema, NULL, 0, &loaded, &error), UPS_ERR_CONFIG);
    assert_string_equal(error.message, "the default of train.steps: train.steps: 'many' is not a whole number; a whole "
                                       "number between 1 and 10 was expected");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_reaches_its_place_in_the_struct),
        cmocka_unit_test(absent_keys_take_their_defaults),
        cmocka_unit_test(a_section_whose_lines_are_all_commented_out_takes_its_defaults),
        cmocka_unit_test(overrides_replace_create_and_append),
        cmocka_unit_test(overrides_reach_into_lists),
        cmocka_unit_test(overrides_create_sections),
        cmocka_unit_test(later_overrides_win),
        cmocka_unit_test(aliases_are_copies_and_merge_keys_fill_in),
        cmocka_unit_test(texts_keep_every_character),
        cmocka_unit_test(what_is_printed_shows_defaults_and_loads_to_the_same),
        cmocka_unit_test(what_differs_is_told_key_by_key_in_the_tables_order),
        cmocka_unit_test(paths_become_absolute),
        cmocka_unit_test(yaml_of_any_form_is_kept_and_prints_to_the_same),
        cmocka_unit_test(every_key_is_listed_with_what_it_takes),
        cmocka_unit_test(a_wrong_default_is_reported_as_such),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
