/* Text of others as a terminal may show it. */
#include "base/printable.h"

#include "testing.h"

static void assert_becomes(const char *text, const char *expected) {
    char out[200];
    assert_int_equal(ups_printable(text, strlen(text), out, sizeof out), strlen(expected));
    assert_string_equal(out, expected);
}

static void plain_text_of_any_script_stays(void **state) {
    assert_becomes("", "");
    assert_becomes("density, ρ = 0.5 \n\tüä 漢字 😀", "density, ρ = 0.5 \n\tüä 漢字 😀");
}

static void what_a_terminal_obeys_is_shown(void **state) {
    assert_becomes("\x1b]0;title\x07", "\\u001b]0;title\\u0007");
    assert_becomes("a\rb\bc\x7f", "a\\u000db\\u0008c\\u007f");
    assert_becomes("\xc2\x9b"
                   "31m",
                   "\\u009b31m");
    assert_becomes("\xe2\x80\xae"
                   "txt.exe",
                   "\\u202etxt.exe");
    assert_becomes("\xe2\x81\xa6x\xe2\x81\xa9", "\\u2066x\\u2069");
}

static void bytes_that_are_no_utf8_are_shown_by_number(void **state) {
    assert_becomes("caf\xe9", "caf\\xe9");
    assert_becomes("\x9b"
                   "31m",
                   "\\x9b31m");
    assert_becomes("\xc0\xaf", "\\xc0\\xaf");          /* an overlong "/" */
    assert_becomes("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* half of a surrogate pair */
    assert_becomes("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
    assert_becomes("cut \xe2\x80", "cut \\xe2\\x80");
}

static void a_nul_and_what_follows_are_shown_too(void **state) {
    char out[20];
    assert_int_equal(ups_printable("a\0b", 3, out, sizeof out), 8);
    assert_string_equal(out, "a\\u0000b");
}

static void what_does_not_fit_is_cut_between_characters(void **state) {
    const char text[] = "a\x1b\xc3\xbc";
    for (size_t room = 1; room < 12; room++) {
        char out[12];
        memset(out, '#', sizeof out);
        const size_t used = ups_printable(text, strlen(text), out, room);
        assert_true(used < room);
        assert_int_equal(used, room < 2 ? 0 : room < 8 ? 1 : room < 10 ? 7 : 9);
        assert_int_equal(out[used], '\0');
        if (room < sizeof out) assert_int_equal(out[room], '#');
    }
}

static void a_character_whose_end_is_missing_is_told_apart_from_none(void **state) {
    assert_int_equal(ups_utf8_length("\xe2\x80\xae", 3), 3);
    assert_int_equal(ups_utf8_length("\xe2\x80", 2), -1);
    assert_int_equal(ups_utf8_length("\xe2", 1), -1);
    assert_int_equal(ups_utf8_length("\xe2z", 2), 0);
    assert_int_equal(ups_utf8_length("\x80", 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_of_any_script_stays),
        cmocka_unit_test(what_a_terminal_obeys_is_shown),
        cmocka_unit_test(bytes_that_are_no_utf8_are_shown_by_number),
        cmocka_unit_test(a_nul_and_what_follows_are_shown_too),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
        cmocka_unit_test(a_character_whose_end_is_missing_is_told_apart_from_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
