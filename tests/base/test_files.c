#include "testing.h"

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static void assert_content(const char *path, const char *expected) {
    char *bytes = NULL;
    size_t length = 0;
    ups_error error = {0};
    if (ups_read_file(path, 1 << 20, &bytes, &length, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(bytes, expected);
    free(bytes);
}

/* Nothing can be published there, and the sentence says `part`. */
static void assert_not_published(const char *path, ups_status status, const char *part) {
    ups_error error = {0};
    assert_fails(ups_publish_bytes(path, "x", 1, &error), status, error, part);
}

static void a_file_is_invisible_until_it_is_committed(void **state) {
    const char *path = scratch("new.bin");
    ups_error error = {0};
    ups_publication *publication = NULL;
    assert_int_equal(ups_publish_begin(path, &publication, &error), UPS_OK);
    assert_int_equal(ups_publish_append(publication, "hello ", 6, &error), UPS_OK);
    assert_int_equal(ups_publish_append(publication, "world", 5, &error), UPS_OK);
    assert_false(ups_path_exists(path));
    assert_true(ups_path_exists(ups_publish_temporary(publication)));
    assert_int_equal(ups_publish_commit(publication, &error), UPS_OK);
    assert_content(path, "hello world");
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
}

static void the_writer_may_write_at_positions_of_its_own(void **state) {
    const char *path = scratch("placed.bin");
    ups_publication *publication = NULL;
    assert_int_equal(ups_publish_begin(path, &publication, NULL), UPS_OK);
    int fd = ups_publish_descriptor(publication);
    assert_int_equal(ups_write_at(fd, path, 3, "def", 3, NULL), UPS_OK);
    assert_int_equal(ups_write_at(fd, path, 0, "abc", 3, NULL), UPS_OK);
    assert_int_equal(ups_publish_commit(publication, NULL), UPS_OK);
    assert_content(path, "abcdef");
}

static void an_abandoned_publication_leaves_the_old_file_and_nothing_else(void **state) {
    const char *path = scratch("kept.bin");
    ups_publication *publication = NULL;
    assert_int_equal(ups_publish_bytes(path, "old", 3, NULL), UPS_OK);
    assert_int_equal(ups_publish_begin(path, &publication, NULL), UPS_OK);
    assert_int_equal(ups_publish_append(publication, "new", 3, NULL), UPS_OK);
    ups_publish_abandon(publication);
    ups_publish_abandon(NULL);
    assert_content(path, "old");
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
    assert_int_equal(ups_publish_bytes(path, "newer", 5, NULL), UPS_OK);
    assert_content(path, "newer");
}

/* A process that gets as far as `stage` with replacing `path` and is then killed; it has ended, and is yet to be waited
 * for. */
static pid_t begin_killed_writer(const char *path, int stage) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ups_publication *publication = NULL;
        if (stage >= 1) ups_publish_begin(path, &publication, NULL);
        if (stage >= 2) ups_publish_append(publication, "half of what was", 16, NULL);
        if (stage >= 3) ups_publish_append(publication, " to be written", 14, NULL);
        if (stage >= 4) ups_publish_commit(publication, NULL);
        raise(SIGKILL);
    }
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    return child;
}

static void killed_writer(const char *path, int stage) {
    int status;
    waitpid(begin_killed_writer(path, stage), &status, 0);
    assert_true(WIFSIGNALED(status));
}

static void a_killed_writer_leaves_the_old_file_or_the_new_one_and_its_remains_are_removed(void **state) {
    const char *path = scratch("shard");
    for (int stage = 0; stage <= 4; stage++) {
        assert_int_equal(ups_publish_bytes(path, "old", 3, NULL), UPS_OK);
        killed_writer(path, stage);
        assert_content(path, stage < 4 ? "old" : "half of what was to be written");
        assert_int_equal(count_entries(scratch_directory, ".shard.ups-partial-"), stage >= 1 && stage < 4);
        assert_int_equal(ups_remove_partials(scratch_directory, NULL), UPS_OK);
        assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
    }
}

static void what_a_killed_writer_leaves_is_removed_although_nobody_has_waited_for_it(void **state) {
    const pid_t writer = begin_killed_writer(scratch("unreaped"), 2);
    assert_int_equal(count_entries(scratch_directory, ".unreaped.ups-partial-"), 1);
    assert_int_equal(ups_remove_partials(scratch_directory, NULL), UPS_OK);
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
    waitpid(writer, NULL, 0);
}

static void a_living_writers_file_and_files_of_other_names_are_not_removed(void **state) {
    ups_publication *publication = NULL;
    assert_int_equal(ups_publish_begin(scratch("alive"), &publication, NULL), UPS_OK);
    const char *others[] = {
        ".a.ups-partial-", ".a.ups-partial-00000000-1-1", "a.ups-partial-00000000-999999999-0123456789abcdef-1",
        ".a.ups-partial-00000000-999999999-0123456789abcdef-1" /* another host's */, ".a.ups-partial-999999999-1"};
    for (int i = 0; i < 5; i++) write_text(scratch(others[i]), "x");
    assert_int_equal(ups_remove_partials(scratch_directory, NULL), UPS_OK);
    for (int i = 0; i < 5; i++) assert_true(ups_path_exists(scratch(others[i])));
    assert_true(ups_path_exists(ups_publish_temporary(publication)));
    for (int i = 0; i < 5; i++) unlink(scratch(others[i]));
    ups_publish_abandon(publication);
}

static void a_commit_that_fails_names_the_file_and_leaves_nothing(void **state) {
    const char *path = scratch("becomes-a-directory");
    ups_publication *publication = NULL;
    ups_error error = {0};
    assert_int_equal(ups_publish_begin(path, &publication, &error), UPS_OK);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_fails(ups_publish_commit(publication, &error), UPS_ERR_IO, error,
                 "becomes-a-directory: cannot be put in place: Is a directory");
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
}

static void links_to_what_has_no_name_are_not_replaced(void **state) {
    int ends[2];
    char link[64];
    assert_int_equal(pipe(ends), 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", ends[1]);
    assert_not_published(link, UPS_ERR_ARGUMENT, "is a device or a pipe, not a file that can be replaced");
    close(ends[0]);
    close(ends[1]);
}

/* As root alone may make such a link, or leave it out. */
static void links_of_others_where_anybody_may_leave_them_are_not_followed(void **state) {
    if (geteuid() != 0) skip_because("only root can make a link of another user");
    const char *shared = scratch("shared");
    char link[600], victim[600];
    ups_error error;
    assert_int_equal(mkdir(shared, 0777), 0);
    assert_int_equal(chmod(shared, 01777), 0);
    snprintf(link, sizeof link, "%s/out", shared);
    snprintf(victim, sizeof victim, "%s", scratch("victim"));
    assert_int_equal(symlink(victim, link), 0);
    assert_int_equal(ups_publish_bytes(link, "x", 1, &error), UPS_OK); /* our own */
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(lchown(link, 65534, 65534), 0);
    assert_int_not_equal(ups_publish_bytes(link, "x", 1, &error), UPS_OK);
    assert_contains(error.message, "cannot be created");
    assert_int_not_equal(access(victim, F_OK), 0);
}

static void directories_devices_and_pipes_are_not_replaced(void **state) {
    assert_int_equal(mkdir(scratch("is-a-directory"), 0777), 0);
    assert_not_published(scratch("is-a-directory"), UPS_ERR_ARGUMENT,
                         "is-a-directory: is a directory, not a file that can be replaced");
    assert_int_equal(mkfifo(scratch("pipe"), 0666), 0);
    assert_not_published(scratch("pipe"), UPS_ERR_ARGUMENT,
                         "pipe: is a device or a pipe, not a file that can be replaced");
    assert_not_published("/dev/full", UPS_ERR_ARGUMENT, "");
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
}

static bool is_link_to(const char *path, const char *text) {
    char found[300];
    ssize_t length = readlink(path, found, sizeof found - 1);
    return length == (ssize_t)strlen(text) && strncmp(found, text, (size_t)length) == 0;
}

static void a_link_stays_and_its_target_is_written(void **state) {
    assert_int_equal(mkdir(scratch("elsewhere"), 0777), 0);
    write_text(scratch("elsewhere/target"), "old");
    assert_int_equal(symlink("elsewhere/next", scratch("link")), 0); /* relative to the link's own directory … */
    assert_int_equal(symlink("target", scratch("elsewhere/next")), 0);
    ups_publication *publication = NULL;
    assert_int_equal(ups_publish_begin(scratch("link"), &publication, NULL), UPS_OK);
    assert_non_null(strstr(ups_publish_temporary(publication), "/elsewhere/.target.ups-partial-"));
    assert_int_equal(ups_publish_append(publication, "new", 3, NULL), UPS_OK);
    assert_content(scratch("elsewhere/target"), "old");
    assert_int_equal(ups_publish_commit(publication, NULL), UPS_OK);
    assert_true(is_link_to(scratch("link"), "elsewhere/next"));
    assert_true(is_link_to(scratch("elsewhere/next"), "target"));
    assert_content(scratch("elsewhere/target"), "new");

    unlink(scratch("link"));
    assert_int_equal(symlink(scratch("elsewhere/target"), scratch("link")), 0); /* … or absolute */
    assert_int_equal(ups_publish_bytes(scratch("link"), "newer", 5, NULL), UPS_OK);
    assert_true(is_link_to(scratch("link"), scratch("elsewhere/target")));
    assert_content(scratch("elsewhere/target"), "newer");
    assert_int_equal(count_entries(scratch_directory, "ups-partial"), 0);
    assert_int_equal(count_entries(scratch("elsewhere"), "ups-partial"), 0);
}

static void what_a_link_leads_to_need_not_be_there_yet(void **state) {
    ups_error error = {0};
    assert_int_equal(mkdir(scratch("later"), 0777), 0);
    assert_int_equal(symlink("later/file", scratch("dangling")), 0);
    assert_int_equal(ups_publish_bytes(scratch("dangling"), "made", 4, &error), UPS_OK);
    assert_true(is_link_to(scratch("dangling"), "later/file"));
    assert_content(scratch("later/file"), "made");

    assert_int_equal(symlink("later/directory/", scratch("dangling-directory")), 0);
    assert_not_published(scratch("dangling-directory"), UPS_ERR_ARGUMENT, "later/directory/): names no file");
    ups_directory_publication *publication = NULL;
    assert_int_equal(ups_publish_directory_begin(scratch("dangling-directory/"), &publication, &error), UPS_OK);
    assert_int_equal(ups_publish_directory_commit(publication, &error), UPS_OK);
    assert_true(is_link_to(scratch("dangling-directory"), "later/directory/"));
    assert_true(ups_path_exists(scratch("later/directory/.")));
    assert_fails(ups_publish_directory_begin(scratch("dangling-directory"), &publication, &error), UPS_ERR_ARGUMENT,
                 error, "dangling-directory: is there already");

    assert_int_equal(symlink("absent/file", scratch("astray")), 0);
    assert_not_published(scratch("astray"), UPS_ERR_IO, "astray (a link to ");
    assert_not_published(scratch("astray"), UPS_ERR_IO, "/absent/file): cannot be created: No such file or directory");
}

static void links_in_a_circle_and_to_directories_or_devices_are_refused(void **state) {
    ups_error error = {0};
    assert_int_equal(symlink("circle-b", scratch("circle-a")), 0);
    assert_int_equal(symlink("circle-a", scratch("circle-b")), 0);
    assert_not_published(scratch("circle-a"), UPS_ERR_IO,
                         "circle-a: cannot be created: its symbolic links lead round in a circle");
    assert_true(is_link_to(scratch("circle-a"), "circle-b"));
    ups_directory_publication *publication = NULL;
    assert_int_equal(ups_publish_directory_begin(scratch("circle-a"), &publication, &error), UPS_ERR_IO);
    assert_int_equal(symlink(".", scratch("to-a-directory")), 0);
    assert_not_published(scratch("to-a-directory"), UPS_ERR_ARGUMENT,
                         "is a directory, not a file that can be replaced");
    assert_int_equal(symlink("/dev/full", scratch("to-a-device")), 0);
    assert_not_published(scratch("to-a-device"), UPS_ERR_ARGUMENT,
                         "to-a-device (a link to /dev/full): is a device or a pipe");
}

typedef struct locked_path {
    const char *path, *said[2];
} locked_path;

static int publish_as_nobody(void *context) {
    const locked_path *locked = context;
    ups_error error = {0};
    if (geteuid() == 0 && setuid(65534) != 0) return UPS_SKIPPED_EXIT;
    if (ups_publish_bytes(locked->path, "x", 1, &error) != UPS_ERR_IO) return 2;
    return strstr(error.message, locked->said[0]) && strstr(error.message, locked->said[1]) ? 0 : 3;
}

/* Nothing can be published there by nobody in particular, as whom a process of its own tries where the tests run as
 * root. */
static void assert_locked(const char *claim, const locked_path *locked) {
    int code = exit_code_of(publish_as_nobody, (void *)locked);
    if (code == UPS_SKIPPED_EXIT)
        skip_claim_because(claim, "root of this container cannot become another user, and may write anywhere");
    assert_int_equal(code, 0);
}

static void a_link_into_a_directory_that_may_not_be_written_is_named_with_its_target(void **state) {
    assert_int_equal(chmod(scratch_directory, 0755), 0);
    assert_int_equal(mkdir(scratch("no-entry"), 0555), 0);
    assert_int_equal(symlink("no-entry/file", scratch("into-locked")), 0);
    assert_locked(__func__,
                  &(locked_path){scratch("into-locked"),
                                 {"into-locked (a link to ", "/no-entry/file): cannot be created: Permission denied"}});
    assert_true(is_link_to(scratch("into-locked"), "no-entry/file"));
    assert_int_equal(count_entries(scratch("no-entry"), "file"), 0);
}

static void what_a_killed_writer_left_beside_a_links_target_is_removed(void **state) {
    assert_int_equal(mkdir(scratch("kept-apart"), 0777), 0);
    assert_int_equal(symlink("kept-apart/file", scratch("by-link")), 0);
    killed_writer(scratch("by-link"), 3);
    assert_int_equal(count_entries(scratch("kept-apart"), ".file.ups-partial-"), 1);
    ups_remove_partials_of(scratch("by-link"));
    assert_int_equal(count_entries(scratch("kept-apart"), "ups-partial"), 0);
}

static void a_directory_that_is_not_there_or_not_ours_is_named(void **state) {
    assert_not_published(scratch("absent/x"), UPS_ERR_IO, "absent/x: cannot be created: No such file or directory");
    assert_not_published("/proc/ups-test", UPS_ERR_IO, "/proc/ups-test: cannot be created");
    assert_not_published("name/", UPS_ERR_ARGUMENT, "");
}

static void a_directory_without_rights_is_named(void **state) {
    assert_int_equal(chmod(scratch_directory, 0755), 0);
    assert_int_equal(mkdir(scratch("locked"), 0555), 0);
    assert_locked(__func__,
                  &(locked_path){scratch("locked/x"), {"locked/x: cannot be created: Permission denied", ""}});
    assert_int_equal(count_entries(scratch("locked"), "x"), 0);
}

static void a_full_device_is_reported_as_such(void **state) {
    ups_error error = {0};
    int fd = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(ups_write_at(fd, "out.h5", 4096, "x", 1, &error), UPS_ERR_IO);
    assert_string_equal(
        error.message,
        "out.h5: cannot be written at byte 4096: No space left on device; make room there and run the command again");
    close(fd);
}

static bool write_once(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return done;
}

/* Mounts that only this process sees: as root, or as root of a user namespace of its own. */
static bool have_own_mounts(void) {
    char users[40], groups[40];
    snprintf(users, sizeof users, "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getegid());
    bool own = unshare(CLONE_NEWNS) == 0 ||
               (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_once("/proc/self/setgroups", "deny") &&
                write_once("/proc/self/uid_map", users) && write_once("/proc/self/gid_map", groups));
    return own && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* In a process of its own: writes more than a small file system holds. Exit codes: 0 as claimed, UPS_SKIPPED_EXIT not
 * possible here. */
static int fill_a_small_disk(void *unused) {
    if (!have_own_mounts() || mount("tmpfs", scratch_directory, "tmpfs", 0, "size=256k") != 0) return UPS_SKIPPED_EXIT;
    static char megabyte[1 << 20];
    ups_error error = {0};
    if (ups_publish_bytes(scratch("big"), megabyte, sizeof megabyte, &error) != UPS_ERR_IO) return 1;
    if (!strstr(error.message, "big: cannot be written at byte ") ||
        !strstr(error.message, "No space left on device")) {
        return 2;
    }
    return count_entries(scratch_directory, "big") == 0 ? 0 : 3;
}

static void on_a_full_disk_nothing_remains(void **state) {
    int code = exit_code_of(fill_a_small_disk, NULL);
    if (code == UPS_SKIPPED_EXIT)
        skip_because("a small file system cannot be mounted here: neither as root nor in a user namespace");
    assert_int_equal(code, 0);
}

static int exceed_the_file_size_limit(void *unused) {
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {100000, 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    static char megabyte[1 << 20];
    ups_error error = {0};
    if (ups_publish_bytes(scratch("large"), megabyte, sizeof megabyte, &error) != UPS_ERR_IO) return 2;
    if (!strstr(error.message, "large: cannot be written at byte 100000: File too large")) return 3;
    return count_entries(scratch_directory, "large") == 0 ? 0 : 4;
}

static void a_write_that_stops_half_way_leaves_nothing(void **state) {
    assert_int_equal(exit_code_of(exceed_the_file_size_limit, NULL), 0);
}

static void directories_are_made_along_the_whole_path(void **state) {
    ups_error error = {0};
    assert_int_equal(ups_make_directories(scratch("a/b//c/"), &error), UPS_OK);
    assert_true(ups_path_exists(scratch("a/b/c")));
    assert_int_equal(ups_make_directories(scratch("a/b/c"), &error), UPS_OK);
    write_text(scratch("a/file"), "x");
    assert_fails(ups_make_directories(scratch("a/file/d"), &error), UPS_ERR_IO, error,
                 "a/file is a file, not a directory");
    assert_fails(ups_make_directories("/proc/ups/x", &error), UPS_ERR_IO, error,
                 "/proc/ups: the directory cannot be created");
}

static void a_whole_file_is_read_whatever_its_kind(void **state) {
    ups_error error = {0};
    char *bytes = NULL;
    size_t length = 0;
    uint64_t size = 0;
    write_text(scratch("text"), "12345");
    assert_content(scratch("text"), "12345");
    write_text(scratch("nothing"), "");
    assert_content(scratch("nothing"), "");
    assert_int_equal(ups_file_size(scratch("text"), &size, &error), UPS_OK);
    assert_int_equal(size, 5);
    assert_int_equal(ups_read_file("/proc/self/status", 1 << 20, &bytes, &length, &error), UPS_OK); /* size 0 in stat */
    assert_true(length > 100 && strncmp(bytes, "Name:", 5) == 0);
    free(bytes);
    assert_int_equal(ups_read_file(scratch("text"), 5, &bytes, &length, &error), UPS_OK);
    free(bytes);
    assert_fails(ups_read_file(scratch("text"), 4, &bytes, &length, &error), UPS_ERR_FORMAT, error,
                 "larger than the 4 bytes");
    assert_fails(ups_read_file(scratch_directory, 100, &bytes, &length, &error), UPS_ERR_IO, error, "is a directory");
    assert_fails(ups_read_file(scratch("absent"), 100, &bytes, &length, &error), UPS_ERR_IO, error,
                 "absent: No such file or directory");
}

static void what_is_no_regular_file_is_refused_by_name_at_once(void **state) {
    ups_error error = {0};
    int fd;
    char *bytes;
    size_t length;
    write_text(scratch("regular"), "12345");
    assert_int_equal(symlink("regular", scratch("to-regular")), 0);
    assert_int_equal(ups_open_regular(scratch("to-regular"), O_RDONLY, &fd, &error), UPS_OK);
    assert_int_equal(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDONLY);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    assert_int_equal(mkfifo(scratch("a-pipe"), 0600), 0);
    alarm(10); /* a pipe that nobody writes to would be waited for */
    assert_fails(ups_open_regular(scratch("a-pipe"), O_RDONLY, &fd, &error), UPS_ERR_FORMAT, error,
                 "pipe: is a named pipe; a regular file was expected");
    assert_int_equal(fd, -1);
    assert_int_equal(ups_read_regular(scratch("a-pipe"), 100, &bytes, &length, &error), UPS_ERR_FORMAT);
    assert_int_equal(ups_publish_bytes_once(scratch("regular"), "12345", 5, &error), UPS_OK);
    alarm(0);
    assert_fails(ups_open_regular(scratch_directory, O_RDONLY, &fd, &error), UPS_ERR_FORMAT, error, "is a directory");
    assert_fails(ups_open_regular("/dev/null", O_RDONLY, &fd, &error), UPS_ERR_FORMAT, error, "is a device");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/socket", scratch_directory);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_fails(ups_open_regular(address.sun_path, O_RDONLY, &fd, &error), UPS_ERR_FORMAT, error, "is a socket");
    close(listener);
    errno = 0;
    assert_int_equal(ups_open_regular(scratch("absent"), O_RDONLY, &fd, &error), UPS_ERR_IO);
    assert_int_equal(errno, ENOENT);
    assert_contains(error.message, "absent: cannot be opened: No such file");
}

static void without_descriptors_left_the_message_says_so(void **state) {
    ups_error error = {0};
    struct rlimit before, few;
    write_text(scratch("one-more"), "12345");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int fd, reason;
    ups_status status = ups_open_regular(scratch("one-more"), O_RDONLY, &fd, &error);
    reason = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, UPS_ERR_IO);
    assert_int_equal(reason, EMFILE);
    assert_contains(error.message, "raise `ulimit -n`");
}

static void a_read_past_the_end_says_that_the_file_is_truncated(void **state) {
    ups_error error = {0};
    char buffer[10] = {0};
    write_text(scratch("short"), "0123456789");
    int fd = open(scratch("short"), O_RDONLY);
    assert_int_equal(ups_read_at(fd, "short", 4, buffer, 6, &error), UPS_OK);
    assert_string_equal(buffer, "456789");
    assert_fails(ups_read_at(fd, "short", 4, buffer, 7, &error), UPS_ERR_FORMAT, error, "truncated");
    close(fd);
    assert_fails(ups_read_at(fd, "short", 0, buffer, 1, &error), UPS_ERR_IO, error,
                 "short: cannot be read at byte 0: Bad file descriptor");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_invisible_until_it_is_committed),
        cmocka_unit_test(the_writer_may_write_at_positions_of_its_own),
        cmocka_unit_test(an_abandoned_publication_leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(a_killed_writer_leaves_the_old_file_or_the_new_one_and_its_remains_are_removed),
        cmocka_unit_test(what_a_killed_writer_leaves_is_removed_although_nobody_has_waited_for_it),
        cmocka_unit_test(a_living_writers_file_and_files_of_other_names_are_not_removed),
        cmocka_unit_test(a_commit_that_fails_names_the_file_and_leaves_nothing),
        cmocka_unit_test(links_to_what_has_no_name_are_not_replaced),
        cmocka_unit_test(links_of_others_where_anybody_may_leave_them_are_not_followed),
        cmocka_unit_test(directories_devices_and_pipes_are_not_replaced),
        cmocka_unit_test(a_link_stays_and_its_target_is_written),
        cmocka_unit_test(what_a_link_leads_to_need_not_be_there_yet),
        cmocka_unit_test(links_in_a_circle_and_to_directories_or_devices_are_refused),
        cmocka_unit_test(a_link_into_a_directory_that_may_not_be_written_is_named_with_its_target),
        cmocka_unit_test(what_a_killed_writer_left_beside_a_links_target_is_removed),
        cmocka_unit_test(a_directory_that_is_not_there_or_not_ours_is_named),
        cmocka_unit_test(a_directory_without_rights_is_named),
        cmocka_unit_test(a_full_device_is_reported_as_such),
        cmocka_unit_test(on_a_full_disk_nothing_remains),
        cmocka_unit_test(a_write_that_stops_half_way_leaves_nothing),
        cmocka_unit_test(directories_are_made_along_the_whole_path),
        cmocka_unit_test(a_whole_file_is_read_whatever_its_kind),
        cmocka_unit_test(what_is_no_regular_file_is_refused_by_name_at_once),
        cmocka_unit_test(without_descriptors_left_the_message_says_so),
        cmocka_unit_test(a_read_past_the_end_says_that_the_file_is_truncated),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
