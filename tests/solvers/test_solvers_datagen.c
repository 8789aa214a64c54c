/* From request to file: the same bytes on any number of threads, all or nothing, and sentences for mistakes. */
#include "base/files.h"
#include "tests/solvers/datagen_directory.h"
#include "tools/solvers/datagen.h"

static ups_datagen_request request_for(const char *solver, const char *path, int64_t samples, int threads) {
    ups_datagen_request request = {
        .solver = ups_solver_find(solver), .samples = samples, .threads = threads, .path = path};
    assert_non_null(request.solver);
    ups_solver_setup_begin(request.solver, &request.setup);
    request.setup.resolution = 16;
    if (request.solver->default_steps > 0) request.setup.steps = 4;
    request.setup.seed = 7;
    return request;
}

static char *made(const char *solver, const char *name, int64_t samples, int threads, size_t *length) {
    ups_error error = {0};
    ups_datagen_result result;
    const char *path = scratch(name);
    ups_datagen_request request = request_for(solver, path, samples, threads);
    if (ups_datagen_run(&request, &result, &error) != UPS_OK) fail_msg("%s", error.message);
    char *bytes = NULL;
    assert_int_equal(ups_read_file(path, 1 << 28, &bytes, length, &error), UPS_OK);
    assert_int_equal(result.bytes, *length);
    return bytes;
}

static void any_number_of_threads_writes_the_same_bytes(void **state) {
    int count;
    const ups_solver *const *solvers = ups_solvers(&count);
    for (int i = 0; i < count; i++) {
        const int dims = solvers[i]->dims;
        const int64_t samples = dims == 3 ? 3 : dims == 2 ? 5 : 37;
        size_t alone_length, together_length, many_length;
        char *alone = made(solvers[i]->name, "alone.h5", samples, 1, &alone_length);
        char *together = made(solvers[i]->name, "together.h5", samples, 2, &together_length);
        char *many = made(solvers[i]->name, "many.h5", samples, 7, &many_length);
        assert_int_equal(alone_length, together_length);
        assert_int_equal(alone_length, many_length);
        assert_memory_equal(alone, together, alone_length);
        assert_memory_equal(alone, many, alone_length);
        free(many);
        free(together);
        free(alone);
        unlink(scratch("alone.h5"));
        unlink(scratch("together.h5"));
        unlink(scratch("many.h5"));
    }
}

static void a_later_run_writes_the_same_bytes(void **state) {
    size_t length, later_length;
    char *bytes = made("darcy2d", "a.h5", 2, 1, &length);
    sleep(1); /* HDF5 would put the second into every dataset */
    char *later = made("darcy2d", "b.h5", 2, 1, &later_length);
    assert_int_equal(length, later_length);
    assert_memory_equal(bytes, later, length);
    free(later);
    free(bytes);
}

static void another_seed_writes_other_bytes(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    size_t length, other_length;
    char *bytes = made("burgers1d", "a.h5", 3, 1, &length), *other = NULL;
    ups_datagen_request request = request_for("burgers1d", scratch("b.h5"), 3, 1);
    request.setup.seed = 8;
    assert_int_equal(ups_datagen_run(&request, &result, &error), UPS_OK);
    assert_int_equal(ups_read_file(scratch("b.h5"), 1 << 28, &other, &other_length, &error), UPS_OK);
    assert_int_equal(length, other_length);
    assert_memory_not_equal(bytes, other, length);
    free(other);
    free(bytes);
}

static void a_cancelled_run_leaves_nothing(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request request = request_for("advection1d", scratch("x.h5"), 1000, 2);
    ups_cancel_request();
    assert_int_equal(ups_datagen_run(&request, &result, &error), UPS_ERR_CANCELLED);
    assert_int_equal(entries(), 0);
}

static void an_existing_file_is_refused_untouched_unless_it_may_be_replaced(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    const char *path = scratch("x.h5");
    assert_int_equal(ups_publish_bytes(path, "mine", 4, &error), UPS_OK);
    ups_datagen_request request = request_for("darcy2d", path, 2, 1);
    assert_fails(ups_datagen_run(&request, &result, &error), UPS_ERR_ARGUMENT, error, path);
    assert_contains(error.message, "--force");
    uint64_t size;
    assert_int_equal(ups_file_size(path, &size, &error), UPS_OK);
    assert_int_equal(size, 4);

    request.replace = true;
    ups_cancel_request(); /* a replacement that fails leaves the old file */
    assert_int_equal(ups_datagen_run(&request, &result, &error), UPS_ERR_CANCELLED);
    assert_int_equal(ups_file_size(path, &size, &error), UPS_OK);
    assert_int_equal(size, 4);
    ups_cancel_reset();
    assert_int_equal(ups_datagen_run(&request, &result, &error), UPS_OK);
    assert_int_equal(ups_file_size(path, &size, &error), UPS_OK);
    assert_true(size > 4);
    assert_int_equal(entries(), 1);
}

static void what_cannot_be_a_file_is_refused_before_any_work(void **state) {
    ups_error error = {0};
    ups_datagen_result result;
    ups_datagen_request request = request_for("advection1d", scratch("missing/x.h5"), 1, 1);
    assert_fails(ups_datagen_run(&request, &result, &error), UPS_ERR_IO, error, scratch("missing/x.h5"));

    request = request_for("advection1d", scratch_directory, 1, 1);
    request.replace = true;
    assert_int_equal(ups_datagen_run(&request, &result, &error), UPS_ERR_ARGUMENT);

    request = request_for("advection1d", scratch("x.h5"), INT64_C(1) << 32, 1); /* 6 TB; 4 PB with more steps */
    request.setup.steps = 30000;
    assert_fails(ups_datagen_run(&request, &result, &error), UPS_ERR_IO, error, "no room");
    assert_int_equal(entries(), 0);
}

static void wrong_parameters_are_answered_with_what_would_be_right(void **state) {
    static const struct {
        const char *solver, *assignment, *answer;
    } cases[] = {
        {"burgers1d", "viscosity=1", "it has nu, t_end"},
        {"burgers1d", "nu=-1", "from 0 to 10"},
        {"burgers1d", "nu=thick", "not a number"},
        {"burgers1d", "nu=nan", "not a number"},
        {"burgers1d", "nu=1e-3x", "not a number"},
        {"burgers1d", "n=0.1", "no parameter 'n'"},
        {"advection1d", "k_max=2.5", "whole number"},
        {"advection1d", "beta", "NAME=VALUE"},
        {"darcy2d", "=3", "NAME=VALUE"},
        {"darcy2d", "nu_low=0", "from 0.001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ups_error error = {0};
        const ups_solver *solver = ups_solver_find(cases[i].solver);
        ups_solver_setup setup, before;
        ups_solver_setup_begin(solver, &setup);
        before = setup;
        assert_fails(ups_solver_set(solver, &setup, cases[i].assignment, &error), UPS_ERR_ARGUMENT, error,
                     cases[i].answer);
        assert_memory_equal(setup.parameters, before.parameters, sizeof setup.parameters);
    }
}

static void resolution_and_steps_are_checked(void **state) {
    ups_error error = {0};
    ups_solver_setup setup;
    ups_solver_setup_begin(ups_solver_find("darcy2d"), &setup);
    setup.steps = 5;
    assert_fails(ups_solver_check(ups_solver_find("darcy2d"), &setup, &error), UPS_ERR_ARGUMENT, error, "steady");
    ups_solver_setup_begin(ups_solver_find("burgers1d"), &setup);
    setup.resolution = 3;
    assert_fails(ups_solver_check(ups_solver_find("burgers1d"), &setup, &error), UPS_ERR_ARGUMENT, error,
                 "8 to 131072");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        in_a_directory(any_number_of_threads_writes_the_same_bytes),
        in_a_directory(a_later_run_writes_the_same_bytes),
        in_a_directory(another_seed_writes_other_bytes),
        in_a_directory(a_cancelled_run_leaves_nothing),
        in_a_directory(an_existing_file_is_refused_untouched_unless_it_may_be_replaced),
        in_a_directory(what_cannot_be_a_file_is_refused_before_any_work),
        cmocka_unit_test(wrong_parameters_are_answered_with_what_would_be_right),
        cmocka_unit_test(resolution_and_steps_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
