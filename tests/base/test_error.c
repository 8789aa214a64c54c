#include "testing.h"

#include "base/error.h"

#include <errno.h>

static void a_failure_carries_its_code_and_sentence(void **state) {
    ups_error error = {0};
    ups_status status = ups_fail(&error, UPS_ERR_FORMAT, "%s: rank %d; 3 was expected", "a.h5", 2);
    assert_int_equal(status, UPS_ERR_FORMAT);
    assert_int_equal(error.code, UPS_ERR_FORMAT);
    assert_string_equal(error.message, "a.h5: rank 2; 3 was expected");
    assert_int_equal(ups_fail(NULL, UPS_ERR_STALE, "nobody listens"), UPS_ERR_STALE);
}

static void the_operating_systems_reason_is_appended(void **state) {
    ups_error error = {0};
    errno = ENOSPC;
    assert_int_equal(ups_fail_errno(&error, "%s", "out.bin"), UPS_ERR_IO);
    assert_string_equal(error.message, "out.bin: No space left on device; make room there and run the command again");
}

static void a_caller_puts_the_file_before_the_callees_sentence(void **state) {
    ups_error error = {0};
    ups_fail(&error, UPS_ERR_CHECKSUM, "bytes changed");
    assert_int_equal(ups_fail_within(&error, "shard %d", 3), UPS_ERR_CHECKSUM);
    assert_string_equal(error.message, "shard 3: bytes changed");
}

static void a_code_survives_the_way_up_where_nobody_wants_the_sentence(void **state) {
    ups_fail(NULL, UPS_ERR_CHECKSUM, "bytes changed");
    assert_int_equal(ups_fail_within(NULL, "shard %d", 3), UPS_ERR_CHECKSUM);
    ups_fail_errno(NULL, "out.bin");
    assert_int_equal(ups_fail_within(NULL, "shard %d", 3), UPS_ERR_IO);
}

static void long_messages_are_cut_and_stay_terminated(void **state) {
    ups_error error = {0};
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ups_fail(&error, UPS_ERR_IO, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    ups_fail_within(&error, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

static void every_status_has_a_name_of_its_own(void **state) {
    for (int a = UPS_OK; a <= UPS_ERR_CANCELLED; a++) {
        assert_string_not_equal(ups_status_name((ups_status)a), "unknown");
        for (int b = UPS_OK; b < a; b++) {
            assert_string_not_equal(ups_status_name((ups_status)a), ups_status_name((ups_status)b));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_carries_its_code_and_sentence),
        cmocka_unit_test(the_operating_systems_reason_is_appended),
        cmocka_unit_test(a_caller_puts_the_file_before_the_callees_sentence),
        cmocka_unit_test(a_code_survives_the_way_up_where_nobody_wants_the_sentence),
        cmocka_unit_test(long_messages_are_cut_and_stay_terminated),
        cmocka_unit_test(every_status_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
