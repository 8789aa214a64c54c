/* A loader does not grow: memory and descriptors after very many batches are what they were after the first few, but
 * for pages of stacks and heaps that a thread happens to touch late. Takes the number of batches from UPS_TEST_BATCHES.
 */

#include "loader_fixture.h"
#include "tests/base/testing.h"

#define DEFAULT_BATCHES 100000
#define TOUCHED_LATE_MIB 0.25 /* three bytes lost a batch are more */

/* Memory of the process's own: pages of programs and libraries come when they are first run. */
static double resident_mib(void) {
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1) break;
    if (file) fclose(file);
    return (double)kib / 1024;
}

static int descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static void memory_and_descriptors_stay_as_they_are_over_very_many_batches(void **state) {
    const char *wanted = getenv("UPS_TEST_BATCHES");
    int64_t batches = wanted ? atoll(wanted) : DEFAULT_BATCHES;
    plain_options plain = ordinary;
    plain.elements = 1000;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = pairs;
    options.batch = 2;
    options.batch_count = batches;
    ups_loader *loader = open_one(&options, source);
    double resident[2] = {0};
    int files[2] = {0};
    for (const ups_batch *batch; (batch = next(loader)); ups_loader_release(loader, batch)) {
        if (batch->index % 997 == 0) check_batch(batch, 1);
        if (batch->index != batches / 10 && batch->index != batches - 1) continue;
        int late = batch->index == batches - 1;
        files[late] = descriptors();
        resident[late] = resident_mib();
    }
    print_message("%lld batches: %.2f MiB after a tenth of them, %.2f MiB at the end; %d descriptors\n",
                  (long long)batches, resident[0], resident[1], files[1]);
    assert_true(resident[0] > 0);
#ifndef __SANITIZE_ADDRESS__ /* whose own memory grows */
    assert_true(resident[1] < resident[0] + TOUCHED_LATE_MIB);
#endif
    assert_int_equal(files[0], files[1]);
    ups_loader_close(loader);
    ups_source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_descriptors_stay_as_they_are_over_very_many_batches),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
