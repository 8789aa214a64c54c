#include "testing.h"

#include "base/nearest.h"

static const char *nearest_of(const char *word, const char *const *names) {
    ups_nearest nearest = {.word = word};
    for (; *names; names++) ups_nearest_try(&nearest, *names);
    return nearest.name;
}

static const char *const stages[] = {"autoencoder", "cache", "operator", "test", NULL};

static void slips_of_the_finger_are_seen_through(void **state) {
    static const struct {
        const char *word, *name;
    } slips[] = {{"oprator", "operator"}, {"opperatro", "operator"}, {"cahce", "cache"},
                 {"cace", "cache"},       {"OPERATOR", "operator"},  {"auto", "autoencoder"},
                 {"tset", "test"},        {"tests", "test"},         {"", NULL},
                 {"tost!", NULL},         {"operations", NULL},      {"opretion", NULL}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        const char *found = nearest_of(slips[i].word, stages);
        if (slips[i].name)
            assert_string_equal(found, slips[i].name);
        else
            assert_null(found);
    }
}

static void the_nearest_wins_and_of_several_the_first(void **state) {
    const char *const names[] = {"steps", "step", "stop", NULL};
    assert_string_equal(nearest_of("step", names), "step");
    assert_string_equal(nearest_of("stap", names), "step");
    assert_string_equal(nearest_of("stp", names), "step");
}

static void words_of_any_length_are_taken(void **state) {
    char endless[1000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(nearest_of(endless, stages));
    const char *const names[] = {endless, "auto", NULL};
    assert_string_equal(nearest_of("aut", names), "auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_of_the_finger_are_seen_through),
        cmocka_unit_test(the_nearest_wins_and_of_several_the_first),
        cmocka_unit_test(words_of_any_length_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
