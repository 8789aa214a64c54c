/* Preloaded into a program, it makes the program's writing and reading fail: the nth of some calls, on some paths.
 *
 *   UPS_FAULT=CALLS:N[+]:OUTCOME[:PART]
 *     CALLS    names of `calls` below, joined by commas
 *     N        the how-manieth of them fails, from 1; with + all after it too, as on a disk that is full
 *     OUTCOME  an error's name (ENOSPC), `short` (half of the bytes), `cut` (the file loses its second half just before
 *              the call), `kill` (SIGKILL instead of the call), or `none`: they are only reported
 *     PART     only paths that hold this text count
 *   UPS_FAULT_REPORT=FILE gets a line "CALL PATH" when the call is reached.
 *
 * Calls go to the kernel directly, so that it does not matter what else is preloaded or linked in (sanitizers). What
 * goes through stdio or io_uring does not pass here. Standard streams are left alone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, SYNC, RENAME, OPEN, SPACE, MKDIR, LINK, CLOSE, UNLINK, READ, CALLS };
static const char *const calls[CALLS] = {"write", "sync", "rename", "open",   "space",
                                         "mkdir", "link", "close",  "unlink", "read"};

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EDQUOT", EDQUOT}, {"EINTR", EINTR},  {"EROFS", EROFS},
              {"EACCES", EACCES}, {"EMFILE", EMFILE}, {"EFBIG", EFBIG},   {"ESTALE", ESTALE}};

/* What is to go wrong, read once. */
static struct {
    bool wanted[CALLS];
    long nth;
    bool from_then_on, shortened, cut, kill, none;
    int error;
    const char *part, *report;
} fault;
static atomic_long reached;

static void misused(const char *what) {
    fprintf(stderr, "UPS_FAULT: %s\n", what);
    abort();
}

static void read_calls(char *list) {
    for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int call = 0;
        while (call < CALLS && strcmp(calls[call], name) != 0) call++;
        if (call == CALLS) misused("a call of that name is not known");
        fault.wanted[call] = true;
    }
}

static void read_outcome(const char *outcome) {
    fault.shortened = strcmp(outcome, "short") == 0;
    fault.cut = strcmp(outcome, "cut") == 0;
    fault.kill = strcmp(outcome, "kill") == 0;
    fault.none = strcmp(outcome, "none") == 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(errors[i].name, outcome) == 0) fault.error = errors[i].number;
    }
    if (!fault.shortened && !fault.cut && !fault.kill && !fault.none && fault.error == 0)
        misused("an outcome of that name is not known");
}

__attribute__((constructor)) static void prepare(void) {
    const char *text = getenv("UPS_FAULT");
    if (!text) return;
    static char copy[512]; /* `part` points into it */
    if (strlen(text) >= sizeof copy) misused("is too long");
    strcpy(copy, text);
    char *rest = copy, *which = strsep(&rest, ":"), *nth = strsep(&rest, ":"), *outcome = strsep(&rest, ":");
    if (!which || !nth || !outcome) misused("CALLS:N:OUTCOME[:PART] was expected");
    char *end;
    fault.nth = strtol(nth, &end, 10);
    fault.from_then_on = *end == '+';
    fault.part = rest;
    fault.report = getenv("UPS_FAULT_REPORT");
    read_outcome(outcome);
    read_calls(which);
}

static void report(int call, const char *path) {
    if (!fault.report) return;
    char line[PATH_MAX + 32];
    int length = snprintf(line, sizeof line, "%s %s\n", calls[call], path);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, fault.report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    syscall(SYS_write, fd, line, (size_t)length);
    syscall(SYS_close, fd);
}

static void cut(const char *path) {
    struct stat entry;
    if (stat(path, &entry) == 0 && S_ISREG(entry.st_mode)) syscall(SYS_truncate, path, entry.st_size / 2);
}

/* Whether this call is the one. */
static bool strikes(int call, const char *path) {
    if (!fault.wanted[call] || (fault.part && !strstr(path, fault.part))) return false;
    long number = atomic_fetch_add(&reached, 1) + 1;
    if (number != fault.nth && !(fault.from_then_on && number > fault.nth)) return false;
    report(call, path);
    if (fault.kill) kill(getpid(), SIGKILL);
    if (fault.cut) cut(path);
    return !fault.none && !fault.cut;
}

static bool strikes_descriptor(int call, int fd) {
    if (!fault.wanted[call] || fd <= STDERR_FILENO) return false;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return path[0] == '/' && strikes(call, path); /* no pipes, sockets, rings */
}

static int fail(void) {
    errno = fault.error;
    return -1;
}

/* ---- writing ---- */

ssize_t write(int fd, const void *bytes, size_t length) {
    if (strikes_descriptor(WRITE, fd)) {
        if (!fault.shortened) return fail();
        if (length > 1) length /= 2;
    }
    return syscall(SYS_write, fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    if (strikes_descriptor(WRITE, fd)) {
        if (!fault.shortened) return fail();
        if (length > 1) length /= 2;
    }
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    return pwrite(fd, bytes, length, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (strikes_descriptor(WRITE, fd)) {
        if (!fault.shortened) return fail();
        if (count > 1) count /= 2;
    }
    return syscall(SYS_writev, fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    if (strikes_descriptor(WRITE, fd)) {
        if (!fault.shortened) return fail();
        if (count > 1) count /= 2;
    }
    return syscall(SYS_pwritev, fd, parts, count, offset, 0);
}

int fsync(int fd) {
    return strikes_descriptor(SYNC, fd) ? fail() : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    return strikes_descriptor(SYNC, fd) ? fail() : (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t length) {
    return strikes_descriptor(SPACE, fd) ? fail() : (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate64(int fd, off64_t length) {
    return ftruncate(fd, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    return strikes_descriptor(SPACE, fd) ? fail() : (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    return fallocate(fd, mode, offset, length);
}

/* Closed all the same, as Linux does. Descriptors that were only read from do not count. */
int close(int fd) {
    int flags = fault.wanted[CLOSE] && fd > STDERR_FILENO ? (int)syscall(SYS_fcntl, fd, F_GETFL) : 0;
    bool struck = (flags & O_ACCMODE) != O_RDONLY && strikes_descriptor(CLOSE, fd);
    int closed = (int)syscall(SYS_close, fd);
    return struck && closed == 0 ? fail() : closed;
}

/* ---- reading ---- */

ssize_t read(int fd, void *bytes, size_t length) {
    if (strikes_descriptor(READ, fd)) {
        if (!fault.shortened) return fail();
        if (length > 1) length /= 2;
    }
    return syscall(SYS_read, fd, bytes, length);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t offset) {
    if (strikes_descriptor(READ, fd)) {
        if (!fault.shortened) return fail();
        if (length > 1) length /= 2;
    }
    return syscall(SYS_pread64, fd, bytes, length, offset);
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    return pread(fd, bytes, length, offset);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    if (strikes_descriptor(READ, fd)) {
        if (!fault.shortened) return fail();
        if (count > 1) count /= 2;
    }
    return syscall(SYS_preadv, fd, parts, count, offset, 0);
}

/* ---- names ---- */

/* Only what is opened to be written counts. */
static int open_at(int folder, const char *path, int flags, mode_t mode) {
    bool writes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
    if (writes && strikes(OPEN, path)) return fail();
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(flags, last)                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) {                                                         \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags, flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE_OF(flags, flags)
    return open_at(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE_OF(flags, flags)
    return open_at(folder, path, flags, mode);
}

int rename(const char *from, const char *to) {
    return strikes(RENAME, to) ? fail() : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* A directory that is there is found to be, on a full or read-only disk too. */
int mkdir(const char *path, mode_t mode) {
    bool there = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
    return !there && strikes(MKDIR, path) ? fail() : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int symlink(const char *what, const char *path) {
    return strikes(LINK, path) ? fail() : (int)syscall(SYS_symlinkat, what, AT_FDCWD, path);
}

int unlink(const char *path) {
    return strikes(UNLINK, path) ? fail() : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return strikes(UNLINK, path) ? fail() : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}
