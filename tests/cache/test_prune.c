/* What can go is found, and nothing else; what is not certainly ours stays, whatever is asked. */
#include "base/files.h"
#include "cache/inspect/find.h"
#include "cache/inspect/prune.h"
#include "fixture.h"
#include "tests/base/testing.h"
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>

static const double day = 86400;

static void make_old(const char *path, double age) {
    struct timespec then = {time(NULL) - (time_t)age, 0}, both[2] = {then, then};
    assert_int_equal(utimensat(AT_FDCWD, path, both, AT_SYMLINK_NOFOLLOW), 0);
}

/* Everything in a group, so that its age can be told. */
static void make_group_old(char *group, double age) {
    FTS *walk = fts_open((char *[]){group, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; (entry = fts_read(walk));) make_old(entry->fts_path, age);
    fts_close(walk);
}

/* A group whose first shard is there, and no more: a build that was left. */
static char *unfinished(const char *root) {
    ups_cache_description d = fixture_description(4, 5, 2, 4, 2);
    ups_cache_writer *writer = fixture_writer(root, &d);
    for (int64_t i = 0; i < 2; i++) fixture_put(writer, &d, i);
    ups_cache_writer_close(writer);
    return fixture_join(root, "waves/train");
}

static char *finished(const char *root) {
    ups_cache_description d = fixture_description(4, 5, 2, 4, 2);
    fixture_must_build(root, &d, 1);
    return fixture_join(root, "waves/train");
}

static ups_prune_list found_below(const char *directory, const ups_prune_options *options) {
    ups_error error;
    ups_prune_list list = {0};
    if (ups_prune_find(directory, options, &list, &error) != UPS_OK) fail_msg("%s", error.message);
    return list;
}

static const ups_prune_options after_a_week = {.incomplete_age = 7 * 86400.0};

static void a_finished_cache_and_a_young_build_are_left_alone(void **state) {
    char *root = fixture_directory();
    make_group_old(finished(fixture_join(root, "a")), 400 * day);
    unfinished(fixture_join(root, "b"));
    ups_prune_list list = found_below(root, &after_a_week);
    assert_int_equal(list.count, 0);
    ups_prune_list_free(&list);
}

static void an_old_unfinished_build_is_found_and_removed_whole(void **state) {
    ups_error error;
    char *root = fixture_directory(), *group = unfinished(root);
    make_group_old(group, 8 * day);
    ups_prune_list list = found_below(root, &after_a_week);
    assert_int_equal(list.count, 1);
    assert_true(list.item[0].removable && list.item[0].kind == UPS_PRUNE_INCOMPLETE);
    assert_string_equal(list.item[0].path, group);
    assert_true(list.item[0].bytes > 0 && list.bytes == list.item[0].bytes);
    assert_true(ups_path_exists(group)); /* finding removes nothing */
    assert_int_equal(ups_prune_remove(&list.item[0], &error), UPS_OK);
    assert_false(ups_path_exists(group));
    assert_int_equal(fixture_count_partials(root), 0);
    ups_prune_list_free(&list);
}

static void a_group_that_holds_anything_else_is_kept(void **state) {
    static const char *const foreign[] = {"notes.txt", "latent/c/0/0/0/thesis.tex", "latent/extra", "time/c/0.bak"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        ups_error error;
        char *root = fixture_directory(), *group = unfinished(root), *path = fixture_join(group, foreign[i]);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        assert_int_equal(ups_make_directories(path, &error), UPS_OK);
        *slash = '/';
        assert_int_equal(ups_publish_bytes(path, "dear", 4, &error), UPS_OK);
        make_group_old(group, 8 * day);
        make_old(path, 8 * day);
        ups_prune_options at_once = {.incomplete_age = 0};
        ups_prune_list list = found_below(root, &at_once);
        assert_int_equal(list.count, 1);
        assert_false(list.item[0].removable);
        assert_contains(list.item[0].reason, foreign[i]);
        assert_int_equal(ups_prune_remove(&list.item[0], &error), UPS_ERR_ARGUMENT);
        list.item[0].removable = true; /* somebody put it there between finding and removing */
        assert_int_equal(ups_prune_remove(&list.item[0], &error), UPS_ERR_ARGUMENT);
        assert_true(ups_path_exists(path));
        ups_prune_list_free(&list);
    }
}

static void a_group_that_is_being_built_is_kept(void **state) {
    char *root = fixture_directory();
    unfinished(root);
    ups_cache_description d = fixture_description(4, 5, 2, 4, 2);
    ups_cache_writer *writer = fixture_writer(root, &d);
    ups_prune_options at_once = {.incomplete_age = 0};
    ups_prune_list list = found_below(root, &at_once);
    assert_int_equal(list.count, 1);
    assert_false(list.item[0].removable);
    assert_contains(list.item[0].reason, "at work");
    ups_prune_list_free(&list);
    ups_cache_writer_close(writer);
    list = found_below(root, &at_once);
    assert_true(list.item[0].removable);
    ups_prune_list_free(&list);
}

/* Temporary files of a process that has ended, made as such a process makes them. */
static int begin_file(void *path) {
    ups_publication *file;
    return ups_publish_begin(path, &file, NULL) != UPS_OK || ups_publish_append(file, "half", 4, NULL) != UPS_OK;
}

static int begin_folder(void *path) {
    ups_directory_publication *folder;
    return ups_publish_directory_begin(path, &folder, NULL) != UPS_OK;
}

static void only_old_temporary_files_of_the_dead_go(void **state) {
    ups_error error;
    char *root = fixture_directory(), *path = fixture_join(root, "latents.h5"), *store = fixture_join(root, "out.zarr");
    char *like = fixture_join(root, ".my.ups-partial-notes"); /* looks alike, is not ours */
    ups_publication *alive;
    assert_int_equal(exit_code_of(begin_file, path), 0);
    assert_int_equal(exit_code_of(begin_folder, store), 0);
    assert_int_equal(ups_publish_begin(path, &alive, &error), UPS_OK);
    assert_int_equal(ups_publish_bytes(like, "dear", 4, &error), UPS_OK);
    assert_int_equal(fixture_count_partials(root), 5); /* a directory is seen on the way in and out */
    ups_prune_list list = found_below(root, &after_a_week);
    assert_int_equal(list.count, 3);
    for (int64_t i = 0; i < list.count; i++) {
        assert_false(list.item[i].removable); /* of the living, or too young */
        make_old(list.item[i].path, day);
    }
    ups_prune_list_free(&list);
    list = found_below(root, &after_a_week);
    int64_t removed = 0;
    for (int64_t i = 0; i < list.count; i++) {
        if (!list.item[i].removable) continue;
        assert_int_equal(ups_prune_remove(&list.item[i], &error), UPS_OK);
        removed++;
    }
    assert_int_equal(removed, 2);
    assert_int_equal(fixture_count_partials(root), 2);
    assert_true(ups_path_exists(like));
    assert_true(ups_path_exists(ups_publish_temporary(alive)));
    ups_publish_abandon(alive);
    ups_prune_list_free(&list);
}

static bool always_stale(void *context, const char *directory, bool *kept, char reason[600]) {
    strcpy(reason, "another encoder");
    return strcmp(directory, context) == 0;
}

static bool stale_and_kept(void *context, const char *directory, bool *kept, char reason[600]) {
    *kept = true;
    return always_stale(context, directory, kept, reason);
}

static void what_is_called_stale_is_found_and_only_that(void **state) {
    char *root = fixture_directory(), *stale = finished(fixture_join(root, "a"));
    finished(fixture_join(root, "b"));
    ups_prune_options options = {.incomplete_age = 7 * day, .stale = always_stale, .context = stale};
    ups_prune_list list = found_below(root, &options);
    assert_int_equal(list.count, 1);
    assert_true(list.item[0].kind == UPS_PRUNE_STALE && list.item[0].removable);
    assert_string_equal(list.item[0].reason, "another encoder");
    ups_prune_list_free(&list);
    options.stale = stale_and_kept;
    list = found_below(root, &options);
    assert_true(list.count == 1 && !list.item[0].removable && list.bytes == 0);
    ups_prune_list_free(&list);
}

static void groups_are_found_at_any_depth_and_links_are_not_followed(void **state) {
    ups_error error;
    char *root = fixture_directory(), *deep = fixture_join(root, "x/y/z"), *link = fixture_join(root, "x/loop");
    char *group = finished(deep);
    assert_int_equal(symlink(root, link), 0);
    ups_found_paths found;
    assert_int_equal(ups_cache_find(root, &found, &error), UPS_OK);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.path[0], group);
    ups_found_paths_free(&found);
    assert_fails(ups_cache_find("/nonexistent/place", &found, &error), UPS_ERR_IO, error, "/nonexistent/place");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finished_cache_and_a_young_build_are_left_alone),
        cmocka_unit_test(an_old_unfinished_build_is_found_and_removed_whole),
        cmocka_unit_test(a_group_that_holds_anything_else_is_kept),
        cmocka_unit_test(a_group_that_is_being_built_is_kept),
        cmocka_unit_test(only_old_temporary_files_of_the_dead_go),
        cmocka_unit_test(what_is_called_stale_is_found_and_only_that),
        cmocka_unit_test(groups_are_found_at_any_depth_and_links_are_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
