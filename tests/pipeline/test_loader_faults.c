/* Reads that fail, stutter or come back short, and files that change while they are read: each ends in a sentence or in
 * the right samples, never in a hang or a wrong value. Faults come through the engine's own seam for tests, so that
 * both engines and the decode threads' own reads meet them. */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "loader_fixture.h"
#include "tests/base/testing.h"

#define HANG_SECONDS 600

/* What goes wrong, and when. */
typedef struct faults {
    int64_t at;            /* the read that it happens to, from 0; −1: none */
    int error;             /* errno of that read */
    int storm;             /* errno of every read but each third */
    bool shortened;        /* reads return a part of what they could */
    const char *truncated; /* this file loses its second half at that read */
    const char *touched;   /* this file is written to at that read */
    atomic_int_least64_t reads;
} faults;

static void cut(const char *path) {
    struct stat entry;
    if (stat(path, &entry) != 0 || truncate(path, entry.st_size / 2) != 0) abort();
}

/* As somebody who saves another version of it over the old one. */
static void save_over(const char *path) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || pwrite(fd, "!", 1, 5000) != 1) abort();
    close(fd);
}

static int64_t interfere(void *context, const ups_extent *read, int64_t outcome) {
    faults *f = context;
    int64_t number = atomic_fetch_add(&f->reads, 1);
    if (number == f->at && f->truncated) cut(f->truncated);
    if (number == f->at && f->touched) save_over(f->touched);
    if (number == f->at && f->error) return -f->error;
    if (f->storm && number % 3 != 2) return -f->storm;
    if (f->shortened && outcome > 1) return 1 + (number * 7919) % (outcome - 1);
    return outcome;
}

/* Every way of reading: both engines, through the page cache and around it; straight into slots, and by pieces. */
enum { WAYS = 8 };

static ups_loader_options way_options(int way, faults *f) {
    ups_loader_options options = pairs;
    options.io = way & 1 ? UPS_IO_THREADS : UPS_IO_AUTO;
    options.direct = way & 2;
    options.fault = interfere;
    options.fault_context = f;
    return options;
}

static plain_options way_data(int way) {
    plain_options plain = ordinary;
    plain.as_stored = way & 4;
    return plain;
}

static void for_each_way(void (*check)(const ups_loader_options *options, const ups_source *source,
                                       const plain_options *plain, faults *f),
                         faults proto) {
    for (int way = 0; way < WAYS; way++) {
        plain_options plain = way_data(way);
        ups_source *source = plain_source(&plain);
        faults f = {.at = proto.at, .error = proto.error, .storm = proto.storm, .shortened = proto.shortened};
        ups_loader_options options = way_options(way, &f);
        alarm(HANG_SECONDS);
        check(&options, source, &plain, &f);
        alarm(0);
        ups_source_close(source);
    }
}

static void check_all_right(const ups_loader_options *options, const ups_source *source, const plain_options *plain,
                            faults *f) {
    check_run(options, source, plain);
    assert_true(atomic_load(&f->reads) > 0);
}

static void interrupted_and_postponed_reads_are_tried_again(void **state) {
    for_each_way(check_all_right, (faults){.at = -1, .storm = EINTR});
    for_each_way(check_all_right, (faults){.at = -1, .storm = EAGAIN});
}

static void short_reads_are_completed(void **state) {
    for_each_way(check_all_right, (faults){.at = -1, .shortened = true});
}

static void check_named(const ups_loader_options *options, const ups_source *source, const plain_options *plain,
                        faults *f) {
    ups_loader *loader = open_one(options, source);
    ups_error error = {0};
    assert_in_range(run_to_failure(loader, UPS_ERR_IO, &error), 0, 9);
    assert_contains(error.message, "task ordinary, sample 00");
    assert_contains(error.message, "could not be read: Input/output error");
    assert_contains(error.message, "ordinary-");
    ups_loader_close(loader);
}

static void a_disk_error_at_any_read_is_named_and_ends_the_run(void **state) {
    for (int64_t at = 0; at < 12; at += 5) for_each_way(check_named, (faults){.at = at, .error = EIO});
}

static int64_t refuse_all(void *context, const ups_extent *read, int64_t outcome) {
    return -EAGAIN;
}

static void a_disk_that_is_never_ready_is_given_up(void **state) {
    for (int way = 0; way < WAYS; way++) {
        plain_options plain = way_data(way);
        ups_source *source = plain_source(&plain);
        ups_loader_options options = way_options(way, NULL);
        options.fault = refuse_all;
        alarm(HANG_SECONDS);
        ups_loader *loader = open_one(&options, source);
        ups_error error = {0};
        run_to_failure(loader, UPS_ERR_IO, &error);
        assert_contains(error.message, "could not be read");
        ups_loader_close(loader);
        alarm(0);
        ups_source_close(source);
    }
}

/* Batches are right until the one that is not there any more. */
static void check_change(bool truncated) {
    for (int way = 0; way < WAYS; way++)
        for (int64_t at = 0; at < 20; at += 9) {
            plain_options plain = way_data(way);
            ups_source *source = plain_source(&plain);
            faults f = {.at = at,
                        .truncated = truncated ? source->files[1] : NULL,
                        .touched = truncated ? NULL : source->files[1]};
            ups_loader_options options = way_options(way, &f);
            options.batch_count = -1;
            ups_loader *loader = open_one(&options, source);
            ups_error error = {0};
            alarm(HANG_SECONDS);
            run_to_failure(loader, UPS_ERR_STALE, &error);
            alarm(0);
            assert_contains(error.message, "ordinary-1.bin: was changed while it was being read");
            ups_loader_close(loader);
            ups_source_close(source);
        }
}

static void a_file_truncated_while_it_is_read_is_said_and_not_served(void **state) {
    check_change(true);
}

static void a_file_written_to_while_it_is_read_is_said_and_not_served(void **state) {
    check_change(false);
}

/* A place in a store that could not be filled is left for another. */
static void a_failed_read_leaves_nothing_in_a_store(void **state) {
    ups_source *source = plain_source(&ordinary);
    for (int ram = 0; ram < 2; ram++) {
        ups_store_options kept = {.residency = ram ? UPS_RESIDENCY_RAM : UPS_RESIDENCY_RAM_COMPRESSED,
                                  .dtype = UPS_F32,
                                  .max_bytes = UINT64_MAX};
        ups_store *store = NULL;
        assert_int_equal(ups_store_open(source, NULL, 0, &kept, &store, NULL), UPS_OK);
        for (int64_t at = 0; at < 5; at++) {
            faults f = {.at = at, .error = EIO};
            ups_loader_options options = way_options((int)at % WAYS, &f);
            ups_loader *loader = open_kept(&options, source, store);
            ups_error error = {0};
            const ups_batch *batch = NULL;
            while (ups_loader_next(loader, &batch, &error) == UPS_OK && batch) {
                check_batch(batch, 1);
                ups_loader_release(loader, batch);
            }
            ups_loader_close(loader);
        }
        ups_loader *loader = open_kept(&pairs, source, store);
        check_batches(loader, &pairs, &ordinary);
        ups_loader_close(loader);
        assert_int_equal(ups_store_look(store).resident, 13);
        ups_store_close(store);
    }
    ups_source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted_and_postponed_reads_are_tried_again),
        cmocka_unit_test(short_reads_are_completed),
        cmocka_unit_test(a_disk_error_at_any_read_is_named_and_ends_the_run),
        cmocka_unit_test(a_disk_that_is_never_ready_is_given_up),
        cmocka_unit_test(a_file_truncated_while_it_is_read_is_said_and_not_served),
        cmocka_unit_test(a_file_written_to_while_it_is_read_is_said_and_not_served),
        cmocka_unit_test(a_failed_read_leaves_nothing_in_a_store),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
