/* A program that uses HDF5 itself keeps what it has not closed, though UPS used the library first. */
#include "tests/base/testing.h"

#include "pipeline/hdf5/driver.h"
#include <sys/wait.h>

enum { NUMBERS = 1000 };

static void write_without_closing(const char *path) {
    const hsize_t count = NUMBERS;
    double numbers[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) numbers[i] = i;
    ups_hdf5_enter();
    ups_hdf5_leave();
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate_simple(1, &count, NULL);
    hid_t data = H5Dcreate2(file, "numbers", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    exit(H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0 ? 0 : 1);
}

static void a_program_that_exits_without_closing_its_own_file_keeps_it(void **state) {
    int status;
    double numbers[NUMBERS] = {0};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) write_without_closing(scratch("host.h5"));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    hid_t file = H5Fopen(scratch("host.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    hid_t data = H5Dopen2(file, "numbers", H5P_DEFAULT);
    assert_true(H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
    assert_true(numbers[NUMBERS - 1] == NUMBERS - 1);
    H5Dclose(data);
    H5Fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_program_that_exits_without_closing_its_own_file_keeps_it)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
