/* Every kind of mistake in a configuration, each with the sentence that it is answered with. Messages are compared
 * whole: they are what the user sees. "c.yaml" stands for the path of the file. */
#include "sample_config.h"

#include <sys/stat.h>

static void assert_mistake(const char *text, const char *override, const char *expected) {
    sample_config *config = NULL;
    ups_error error;
    ups_status status = load_sample(text, override, &config, &error);
    if (status == UPS_OK) fail_msg("no mistake was found; \"%s\" was expected", expected);
    assert_int_equal(status, UPS_ERR_CONFIG);
    assert_null(config);
    char message[sizeof error.message] = "";
    size_t used = 0, path_length = strlen(scratch_directory) + 1; /* the directory is left out of the comparison */
    for (const char *at = error.message; *at;) {
        if (strncmp(at, scratch_directory, path_length - 1) == 0)
            at += path_length;
        else
            message[used++] = *at++;
    }
    assert_string_equal(message, expected);
}

/* A mistake in the file alone. */
static void assert_told(const char *text, const char *expected) {
    assert_mistake(text, NULL, expected);
}

/* A mistake in an override, with which the sentence begins. */
static void assert_override_told(const char *override, const char *expected) {
    char sentence[1000];
    snprintf(sentence, sizeof sentence, "--set %s: %s", override, expected);
    assert_mistake(MINIMAL, override, sentence);
}

static void an_unknown_key_is_named_and_the_nearest_known_one_suggested(void **state) {
    assert_told(MINIMAL "train:\n  steps: 5\n  learning_rte: 0.1\n",
                "c.yaml:6: train.learning_rte: there is no such key; did you mean 'learning_rate'?");
    assert_told("taks: []\n", "c.yaml:1: taks: there is no such key; did you mean 'tasks'?");
    assert_told("tasks:\n- name: a\n  file: [x]\n",
                "c.yaml:3: tasks[0].file: there is no such key; did you mean 'files'?");
    assert_told(MINIMAL "diffusion:\n  temperature: 5\n",
                "c.yaml:5: diffusion.temperature: there is no such key; the keys here are steps, schedule");
}

static void a_key_of_earlier_versions_is_refused_with_what_to_do_instead(void **state) {
    assert_told(MINIMAL "diffusion:\n  count: 5\n",
                "c.yaml:5: diffusion.count: this key was removed: diffusion.steps says the same");
    assert_override_told("diffusion.count=5", "this key was removed: diffusion.steps says the same");
}

static void a_key_in_the_wrong_section_is_sent_to_the_right_one(void **state) {
    assert_told(MINIMAL "learning_rate: 0.1\n",
                "c.yaml:4: learning_rate: there is no such key here; did you mean 'train.learning_rate'?");
    assert_told(MINIMAL "train:\n  weight: 2\n",
                "c.yaml:5: train.weight: there is no such key here; did you mean 'tasks[].weight'?");
}

static void text_where_a_number_belongs_is_told_with_the_range(void **state) {
    assert_told(MINIMAL "train:\n  learning_rate: fast\n",
                "c.yaml:5: train.learning_rate: 'fast' is not a number; a number between 0 and 1 was expected");
    assert_told(MINIMAL "train: {steps: 2.5}\n",
                "c.yaml:4: train.steps: '2.5' is not a whole number; a whole number of at least 1 was expected");
    assert_told(MINIMAL "train: {steps: 10k}\n",
                "c.yaml:4: train.steps: '10k' is not a whole number; a whole number of at least 1 was expected");
    assert_told(MINIMAL "train: {clip: 0x10}\n", "c.yaml:4: train.clip: '0x10' is not a number; a number was expected");
    assert_told(MINIMAL "train: {clip: .inf}\n", "c.yaml:4: train.clip: '.inf' is not a number; a number was expected");
    assert_told(MINIMAL "train: {clip: nan}\n", "c.yaml:4: train.clip: 'nan' is not a number; a number was expected");
    assert_told(MINIMAL "train: {clip: 1.2.3}\n",
                "c.yaml:4: train.clip: '1.2.3' is not a number; a number was expected");
    assert_told(MINIMAL "train: {clip: 1e}\n", "c.yaml:4: train.clip: '1e' is not a number; a number was expected");
    assert_told(MINIMAL "train: {clip: -}\n", "c.yaml:4: train.clip: '-' is not a number; a number was expected");
    assert_told(MINIMAL "train: {steps: \"5\"}\n",
                "c.yaml:4: train.steps: '5' in quotes is text, not a whole number; a whole number of at least 1 was "
                "expected");
    assert_told(MINIMAL "train: {batch_size: automatic}\n",
                "c.yaml:4: train.batch_size: 'automatic' is not a whole number; a whole number between 1 and 4096, or "
                "auto was expected");
}

static void numbers_out_of_range_are_told_the_range(void **state) {
    assert_told(MINIMAL "train: {learning_rate: 1.5}\n",
                "c.yaml:4: train.learning_rate: 1.5 is out of range; a number between 0 and 1 was expected");
    assert_told(MINIMAL "train: {learning_rate: -1e-9}\n",
                "c.yaml:4: train.learning_rate: -1e-9 is out of range; a number between 0 and 1 was expected");
    assert_told(MINIMAL "train: {steps: 0}\n",
                "c.yaml:4: train.steps: 0 is out of range; a whole number of at least 1 was expected");
    assert_told("tasks: [{name: a, files: [x], weight: -1}]\n",
                "c.yaml:1: tasks[0].weight: -1 is out of range; a number of at least 0 was expected");
    assert_told(MINIMAL "train:\n  betas:\n  - 0.9\n  - 1.1\n",
                "c.yaml:7: train.betas[1]: 1.1 is out of range; a number between 0 and 1 was expected");
    assert_told("tasks: [{name: a, files: [x], crops: [1, 0]}]\n",
                "c.yaml:1: tasks[0].crops[1]: 0 is out of range; a whole number between 1 and 1024 was expected");
}

static void numbers_too_large_for_their_type_are_refused(void **state) {
    assert_told(MINIMAL "train: {shift: 2147483648}\n",
                "c.yaml:4: train.shift: '2147483648' is out of range; a whole number was expected");
    assert_told(MINIMAL "train: {shift: -2147483649}\n",
                "c.yaml:4: train.shift: '-2147483649' is out of range; a whole number was expected");
    assert_told(MINIMAL "train: {seed: 18446744073709551616}\n",
                "c.yaml:4: train.seed: '18446744073709551616' is out of range; a whole number of at least 0 was "
                "expected");
    assert_told(MINIMAL "train: {seed: -1}\n",
                "c.yaml:4: train.seed: '-1' is out of range; a whole number of at least 0 was expected");
    assert_told(MINIMAL "train: {steps: 9223372036854775808}\n",
                "c.yaml:4: train.steps: '9223372036854775808' is out of range; a whole number of at least 1 was "
                "expected");
    assert_told(MINIMAL "train: {clip: 1e39}\n", "c.yaml:4: train.clip: '1e39' is out of range; a number was expected");
    assert_told(MINIMAL "train: {learning_rate: 1e400}\n",
                "c.yaml:4: train.learning_rate: '1e400' is out of range; a number between 0 and 1 was expected");
}

static void a_word_that_is_no_choice_is_told_the_choices(void **state) {
    assert_told(MINIMAL "core: transformer\n",
                "c.yaml:4: core: 'transformer' is not one of the choices; stack or unet was expected");
    assert_told(
        MINIMAL "core: Stack\n",
        "c.yaml:4: core: 'Stack' is not one of the choices (did you mean 'stack'?); stack or unet was expected");
    assert_told(MINIMAL "core: 1\n", "c.yaml:4: core: '1' is not one of the choices; stack or unet was expected");
    assert_told(MINIMAL "train: {stages: [cache, operater]}\n",
                "c.yaml:4: train.stages[1]: 'operater' is not one of the choices (did you mean 'operator'?); "
                "autoencoder, cache or operator was expected");
}

static void what_is_neither_true_nor_false_is_refused(void **state) {
    const char *words[] = {"maybe", "1", "0", "t", "2.0"};
    for (int i = 0; i < 5; i++) {
        char text[200], expected[200];
        snprintf(text, sizeof text, MINIMAL "train: {ema: %s}\n", words[i]);
        snprintf(expected, sizeof expected,
                 "c.yaml:4: train.ema: '%s' is neither true nor false; true or false was expected", words[i]);
        assert_told(text, expected);
    }
}

static void a_mapping_a_list_and_a_scalar_are_not_taken_for_each_other(void **state) {
    assert_told("tasks: burgers\n", "c.yaml:1: tasks: 'burgers' stands here; a list of 1 to 4 mappings was expected");
    assert_told("tasks:\n  name: a\n",
                "c.yaml:1: tasks: a mapping stands here; a list of 1 to 4 mappings was expected");
    assert_told("tasks:\n- burgers\n",
                "c.yaml:2: tasks[0]: 'burgers' stands here; a mapping (indented lines of key: value) was expected");
    assert_told(MINIMAL "train: [1]\n",
                "c.yaml:4: train: a list stands here; a mapping (indented lines of key: value) was expected");
    assert_told(MINIMAL "output: [a]\n", "c.yaml:4: output: a list stands here; text was expected");
    assert_told(MINIMAL "core: {stack: 1}\n", "c.yaml:4: core: a mapping stands here; stack or unet was expected");
    assert_told(MINIMAL "train: {steps: [1]}\n",
                "c.yaml:4: train.steps: a list stands here; a whole number of at least 1 was expected");
    assert_told("- a\n- b\n", "c.yaml:1: a list stands here; a mapping (indented lines of key: value) was expected");
    assert_told("just text\n",
                "c.yaml:1: 'just text' stands here; a mapping (indented lines of key: value) was expected");
}

static void a_key_without_a_value_is_told_what_belongs_there(void **state) {
    assert_told("tasks:\n", "c.yaml:1: tasks: no value stands here; a list of 1 to 4 mappings was expected");
    assert_told(MINIMAL "output:\n", "c.yaml:4: output: no value stands here; text was expected");
    assert_told(MINIMAL "output: ~\n", "c.yaml:4: output: no value stands here; text was expected");
    assert_told(MINIMAL "train:\n  steps: null\n",
                "c.yaml:5: train.steps: no value stands here; a whole number of at least 1 was expected");
}

static void a_missing_key_is_told_with_its_help(void **state) {
    assert_told("output: x\n",
                "c.yaml:1: the key 'tasks' is missing; a list of 1 to 4 mappings was expected (what is trained on)");
    assert_told("tasks:\n- name: a\n  files: [x]\n- files: [y]\n",
                "c.yaml:4: tasks[1]: the key 'name' is missing; text was expected (what the task is called)");
}

static void a_key_given_twice_is_told_with_both_places(void **state) {
    assert_told(MINIMAL "train:\n  steps: 1\n  ema: true\n  steps: 2\n",
                "c.yaml:7: train.steps: this key is given twice; it first stands at c.yaml:5");
    assert_told("tasks: []\n" MINIMAL, "c.yaml:1: tasks: the list has 0 items; a list of 1 to 4 mappings was expected");
}

static void lists_of_the_wrong_length_are_told_the_right_one(void **state) {
    assert_told("tasks: []\n", "c.yaml:1: tasks: the list has 0 items; a list of 1 to 4 mappings was expected");
    assert_told("tasks: [{name: a, files: []}]\n",
                "c.yaml:1: tasks[0].files: the list has 0 items; a list of at least 1 texts was expected");
    assert_told(MINIMAL "train: {betas: [0.1]}\n",
                "c.yaml:4: train.betas: the list has 1 item; a list of 2 to 3 numbers was expected");
    assert_told(MINIMAL "train: {betas: [0.1, 0.2, 0.3, 0.4]}\n",
                "c.yaml:4: train.betas: the list has 4 items; a list of 2 to 3 numbers was expected");
}

static void texts_of_the_wrong_length_are_refused(void **state) {
    assert_told("tasks: [{name: '', files: [x]}]\n",
                "c.yaml:1: tasks[0].name: '' is shorter than 1 characters; text was expected");
    assert_told("tasks: [{name: abcdefghijklmnopq, files: [x]}]\n",
                "c.yaml:1: tasks[0].name: 'abcdefghijklmnopq' is longer than 16 characters; text was expected");
    assert_told(MINIMAL "label: eightlet\n",
                "c.yaml:4: label: 'eightlet' is longer than 7 characters; text was expected");
}

static void long_and_broken_values_are_shown_in_short_on_one_line(void **state) {
    assert_told(
        MINIMAL "train:\n  clip: a23456789 b23456789 c23456789 d23456789 e23456789 f23456789 g23456789\n",
        "c.yaml:5: train.clip: 'a23456789 b23456789 c23456789 d23456789 e23456789 f23456789 …' is not a number; "
        "a number was expected");
    assert_told(MINIMAL "core: |\n  a\n  b\n",
                "c.yaml:4: core: 'a b ' is not one of the choices; stack or unet was expected");
}

static void malformed_yaml_is_told_with_its_line(void **state) {
    assert_told("tasks: [\n",
                "c.yaml:2: not valid YAML: while parsing a flow node, did not find expected node content");
    assert_told("a: 1\n b: 2\n", "c.yaml:2: not valid YAML: mapping values are not allowed in this context");
    assert_told("tasks:\n\t- name: a\n",
                "c.yaml:2: not valid YAML: while scanning for the next token, found character that cannot start any "
                "token (YAML does not allow tabs for indentation: use spaces)");
    assert_told("a: \"unfinished\n",
                "c.yaml:2: not valid YAML: while scanning a quoted scalar, found unexpected end of stream");
    assert_told(MINIMAL "note: \xff\xfe\n", "c.yaml:4: not valid YAML: invalid leading UTF-8 octet");
    assert_told("tasks: *nothing\n", "c.yaml:1: not valid YAML: found undefined alias");
    assert_told(MINIMAL "---\nmore: 1\n", "c.yaml:5: a second YAML document begins here; one was expected");
    assert_told("[a, b]: 1\n", "c.yaml:1: a list or mapping stands where the name of a key was expected");
    assert_told("note: \"a\\0b\"\n", "c.yaml:1: a NUL character stands inside a text");
    assert_told(MINIMAL "train: {<<: 5}\n", "c.yaml:4: '<<' takes a mapping or a list of mappings");
    assert_told(MINIMAL "train: {<<: [5]}\n", "c.yaml:4: '<<' takes a mapping or a list of mappings");
}

static void documents_nested_too_deep_are_refused(void **state) {
    char deep[200000] = MINIMAL "note: ";
    memset(deep + strlen(deep), '[', 100000);
    assert_told(deep, "c.yaml:4: nested more than 64 deep");
    char override[200000] = "a.a";
    for (int i = 0; i < 64; i++) strcat(override, ".a");
    strcat(override, "=1");
    assert_mistake(MINIMAL, override,
                   "--set a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.…: more than 64 keys, one below the other");
}

static void documents_without_end_are_refused(void **state) {
    assert_told("tasks: &a [*a]\n",
                "c.yaml:1: nested more than 64 deep, or more than 100000 values once aliases are written out");
    char bomb[1000];
    int used = snprintf(bomb, sizeof bomb, "a: &a0 [x]\n");
    for (int i = 0; i < 9; i++) {
        used += snprintf(bomb + used, sizeof bomb - (size_t)used,
                         "a: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i + 1, i, i, i, i, i, i, i);
    }
    sample_config *config = NULL;
    ups_error error;
    assert_fails(load_sample(bomb, NULL, &config, &error), UPS_ERR_CONFIG, error, "more than 100000 values");
}

static void an_empty_file_is_told(void **state) {
    const char *texts[] = {"", "\n\n", "# only a comment\n", "---\n", "~\n"};
    for (int i = 0; i < 5; i++) {
        assert_told(texts[i], "c.yaml: the file is empty; lines of key: value were expected");
    }
}

static void a_file_that_cannot_be_read_is_told(void **state) {
    void *loaded = NULL;
    ups_error error;
    assert_fails(ups_config_load(scratch("absent.yaml"), &sample_schema, NULL, 0, &loaded, &error), UPS_ERR_IO, error,
                 "absent.yaml: No such file or directory");
    assert_fails(ups_config_load(scratch_directory, &sample_schema, NULL, 0, &loaded, &error), UPS_ERR_IO, error,
                 "is a directory; a file was expected");
    const char *huge = scratch("huge.yaml");
    write_text(huge, "a: 1\n");
    assert_int_equal(truncate(huge, 17 << 20), 0);
    assert_fails(ups_config_load(huge, &sample_schema, NULL, 0, &loaded, &error), UPS_ERR_FORMAT, error,
                 "larger than the 16777216 bytes");
    assert_null(loaded);
}

static void mistakes_in_overrides_name_the_override(void **state) {
    assert_override_told("train.learning_rate=fast", "'fast' is not a number; a number between 0 and 1 was expected");
    assert_override_told("train.learning_rate=2", "2 is out of range; a number between 0 and 1 was expected");
    assert_override_told("train.learning_rte=1", "there is no such key; did you mean 'learning_rate'?");
    assert_override_told("steps=1", "there is no such key here; did you mean 'train.steps'?");
    assert_override_told("trian.steps=1", "trian: there is no such key; did you mean 'train'?");
    assert_override_told("train={steps: x}",
                         "train.steps: 'x' is not a whole number; a whole number of at least 1 was expected");
    assert_override_told("tasks[0].name=", "no value stands here; text was expected");
    assert_override_told("core=", "no value stands here; stack or unet was expected");
}

static void overrides_that_lead_nowhere_are_refused(void **state) {
    assert_override_told("train.steps", "KEY=VALUE was expected, as in --set operator.steps=4000");
    assert_override_told("=5", "KEY=VALUE was expected, as in --set operator.steps=4000");
    assert_override_told("", "KEY=VALUE was expected, as in --set operator.steps=4000");
    assert_override_told("train..steps=1", "the name of a key is missing before '.'");
    assert_override_told(".steps=1", "the name of a key is missing before '.'");
    assert_override_told("train.=1", "the name of a key is missing after '.'");
    assert_override_told("tasks[2].name=x", "'tasks' has 1 item, counted from 0; there is no item 2");
    assert_override_told("tasks[x].name=y", "'[x].name' is no item of a list; [0], [1], … was expected");
    assert_override_told("tasks[0=y", "'[0' is no item of a list; [0], [1], … was expected");
    assert_override_told("tasks[-1]=y", "'[-1]' is no item of a list; [0], [1], … was expected");
    assert_override_told("tasks.name=x",
                         "'tasks' is not a mapping, it has no keys; it is a list: name an item, as in [0]");
    assert_override_told("tasks[0].name.x=1", "'tasks[0].name' is not a mapping, it has no keys");
    assert_override_told("tasks[0][0]=1", "'tasks[0]' is not a list");
    assert_override_told("train.betas=[0.1, 0.2",
                         "not valid YAML: while parsing a flow sequence, did not find expected ',' or "
                         "']' (put the value in quotes if it is meant as text)");
    assert_override_told("note=*x",
                         "not valid YAML: found undefined alias (put the value in quotes if it is meant as text)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_key_is_named_and_the_nearest_known_one_suggested),
        cmocka_unit_test(a_key_of_earlier_versions_is_refused_with_what_to_do_instead),
        cmocka_unit_test(a_key_in_the_wrong_section_is_sent_to_the_right_one),
        cmocka_unit_test(text_where_a_number_belongs_is_told_with_the_range),
        cmocka_unit_test(numbers_out_of_range_are_told_the_range),
        cmocka_unit_test(numbers_too_large_for_their_type_are_refused),
        cmocka_unit_test(a_word_that_is_no_choice_is_told_the_choices),
        cmocka_unit_test(what_is_neither_true_nor_false_is_refused),
        cmocka_unit_test(a_mapping_a_list_and_a_scalar_are_not_taken_for_each_other),
        cmocka_unit_test(a_key_without_a_value_is_told_what_belongs_there),
        cmocka_unit_test(a_missing_key_is_told_with_its_help),
        cmocka_unit_test(a_key_given_twice_is_told_with_both_places),
        cmocka_unit_test(lists_of_the_wrong_length_are_told_the_right_one),
        cmocka_unit_test(texts_of_the_wrong_length_are_refused),
        cmocka_unit_test(long_and_broken_values_are_shown_in_short_on_one_line),
        cmocka_unit_test(malformed_yaml_is_told_with_its_line),
        cmocka_unit_test(documents_nested_too_deep_are_refused),
        cmocka_unit_test(documents_without_end_are_refused),
        cmocka_unit_test(an_empty_file_is_told),
        cmocka_unit_test(a_file_that_cannot_be_read_is_told),
        cmocka_unit_test(mistakes_in_overrides_name_the_override),
        cmocka_unit_test(overrides_that_lead_nowhere_are_refused),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
