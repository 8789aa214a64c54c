#include "train/run_lock.h"

#include "base/files.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct ups_run_lock {
    char *directory, *path;
    int fd;
    bool held, made_directory;
};

/* "process 4711 on host n01", as the holder wrote it; what is not there yet is not known. */
static void read_holder(int fd, char *text, size_t bytes) {
    ssize_t got = pread(fd, text, bytes - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (!text[0]) snprintf(text, bytes, "another process");
}

static ups_status write_holder(int fd, const char *path, ups_error *error) {
    char host[256] = "", text[300];
    gethostname(host, sizeof host - 1);
    int length = snprintf(text, sizeof text, "process %ld on host %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0) return ups_fail_errno(error, "%s: cannot be written", path);
    return ups_write_at(fd, path, 0, text, (size_t)length, error);
}

static ups_status take(int fd, const char *directory, ups_error *error) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return UPS_OK;
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) {
        ups_log(UPS_LOG_WARNING, "%s: its file system has no locks; see that no other `ups train` works there",
                directory);
        return UPS_OK;
    }
    if (errno != EWOULDBLOCK) return ups_fail_errno(error, "%s: cannot be locked", directory);
    char holder[300];
    read_holder(fd, holder, sizeof holder);
    return ups_fail(error, UPS_ERR_IO,
                    "%s: %s is training there; wait for it or stop it, or choose another directory with --set "
                    "output=DIR",
                    directory, holder);
}

/* Whether the file that is locked still is the one of that name: its last holder may have removed it in between. */
static bool is_current(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

ups_status ups_run_lock_take(const char *directory, ups_run_lock **lock, ups_error *error) {
    *lock = NULL;
    ups_run_lock *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    made->fd = -1;
    made->made_directory = !ups_path_exists(directory);
    made->directory = strdup(directory);
    bool had = made->directory && asprintf(&made->path, "%s/lock", directory) >= 0;
    ups_status status = had ? ups_make_directories(directory, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    while (status == UPS_OK && !made->held) {
        made->fd = open(made->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (made->fd < 0) {
            status = ups_fail_errno(error, "%s: cannot be opened", made->path);
            break;
        }
        status = take(made->fd, directory, error);
        made->held = status == UPS_OK && is_current(made->fd, made->path);
        if (!made->held) {
            close(made->fd);
            made->fd = -1;
        }
    }
    if (status == UPS_OK) status = write_holder(made->fd, made->path, error);
    if (status == UPS_OK) {
        *lock = made;
    } else {
        ups_run_lock_release(made);
    }
    return status;
}

void ups_run_lock_release(ups_run_lock *lock) {
    if (!lock) return;
    if (lock->held) {
        unlink(lock->path);                               /* while it is held: see is_current */
        if (lock->made_directory) rmdir(lock->directory); /* nothing came of it: it goes unless it holds something */
    }
    if (lock->fd >= 0) close(lock->fd);
    free(lock->path);
    free(lock->directory);
    free(lock);
}
