/* Where modules are looked for: from the program, and from a shared library that has this code in it, wherever a
 * program loads it from. */
#include "base/system/program.h"
#include "testing.h"

#include <dlfcn.h>
#include <limits.h>

static void a_module_that_the_environment_names_is_taken_and_no_other(void **state) {
    char path[PATH_MAX];
    setenv("UPS_TEST_MODULE", "/nowhere/module.so", 1);
    assert_true(ups_program_find_module("UPS_TEST_MODULE", "program_library.so", ".", path));
    assert_string_equal(path, "/nowhere/module.so");
    unsetenv("UPS_TEST_MODULE");
    assert_false(ups_program_find_module("UPS_TEST_MODULE", "no module of this name", ".", path));
}

static void a_program_finds_what_was_built_with_it(void **state) {
    char path[PATH_MAX], found[PATH_MAX];
    assert_true(ups_program_find_module("UPS_TEST_MODULE", "program_library.so", "../base", path));
    assert_string_equal(realpath(path, found), UPS_TEST_LIBRARY);
}

static void a_library_finds_what_lies_beside_it_and_what_is_installed_with_it(void **state) {
    char path[PATH_MAX], found[PATH_MAX], expected[PATH_MAX], command[600];
    const char *const places[] = {scratch("lib/one.so"), scratch("lib/x86_64-linux-gnu/two.so")};
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p lib/ups lib/x86_64-linux-gnu && touch lib/ups/module.so lib/beside.so", scratch(""));
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "cp '%s' '%s'", UPS_TEST_LIBRARY, places[i]);
        assert_int_equal(system(command), 0);
        void *library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        assert_non_null(library);
        bool (*find)(const char *file, char *path) = NULL;
        *(void **)&find = dlsym(library, "find_from_library");
        assert_non_null(find);
        assert_true(find("module.so", path));
        assert_string_equal(realpath(path, found), realpath(scratch("lib/ups/module.so"), expected));
        assert_int_equal(find("beside.so", path), i == 0);
        assert_false(find("no module of this name", path));
        dlclose(library);
    }
    assert_false(ups_program_find_module("UPS_TEST_MODULE", "module.so", ".", path)); /* the program is elsewhere */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_that_the_environment_names_is_taken_and_no_other),
        cmocka_unit_test(a_program_finds_what_was_built_with_it),
        cmocka_unit_test(a_library_finds_what_lies_beside_it_and_what_is_installed_with_it),
    };
    unsetenv("UPS_TEST_MODULE");
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
