/* The files of an engine, of which a bounded number are open. Up to that number all are, from the first to the last
 * read; beyond it those that were read last are, and one that is wanted again takes the place of the one that was not
 * wanted for longest. A file is held while a read of it is under way, and only one that nobody holds is closed. What
 * a file was when the engine opened is kept with it, so that one which changed while it was closed is found out. */
#include "base/files.h"
#include "base/log.h"
#include "pipeline/io/engine.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_OPEN = 4096, /* of one engine; shards of 64 MiB that hold a quarter of a terabyte */
    FEWEST_OPEN = 8,
    SHARES = 4, /* of the descriptors that a process may have: several engines live at a time, beside everything else */
    NOBODY = -1
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* How many of `count` files may be open. The soft limit is raised for them as far as the hard one allows: 1024 is the
 * ordinary soft limit. */
static int64_t room_for(int64_t count) {
    const int64_t wished = smaller(count, MAX_OPEN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return smaller(count, FEWEST_OPEN);
    const rlim_t wanted = (rlim_t)(wished + FEWEST_OPEN) * SHARES;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    const int64_t share = limit.rlim_cur < wanted ? (int64_t)limit.rlim_cur / SHARES : wished;
    return smaller(wished, share > FEWEST_OPEN ? share : FEWEST_OPEN);
}

/* ---- one file
 * -------------------------------------------------------------------------------------------------------- */

static void note_state(ups_io_file *file) {
    struct stat now;
    file->regular = fstat(file->fd, &now) == 0 && S_ISREG(now.st_mode) && now.st_size > 0; /* /proc's have no size */
    if (!file->regular) return;
    file->size = (uint64_t)now.st_size;
    file->modified = now.st_mtim;
}

bool ups_io_file_has_changed(const ups_io_file *file) {
    struct stat now;
    if (!file->regular || fstat(file->fd, &now) != 0) return false;
    return (uint64_t)now.st_size != file->size || now.st_mtim.tv_sec != file->modified.tv_sec ||
           now.st_mtim.tv_nsec != file->modified.tv_nsec;
}

/* Once a process: a folder of a thousand shards needs no thousand lines. */
void ups_io_say_direct_is_refused(const ups_io_file *file) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&said)) return;
    ups_log(UPS_LOG_INFO, "%s: its file system refuses O_DIRECT; reading through the page cache instead", file->name);
}

const char *ups_io_file_path(const ups_io_file *file) {
    return file->absolute ? file->absolute : file->name;
}

/* Relative names are of the directory in which the engine is opened, wherever the process goes. */
static ups_status note_place(ups_io_file *file, const char *directory, ups_error *error) {
    if (!directory || file->name[0] == '/' || asprintf(&file->absolute, "%s/%s", directory, file->name) >= 0)
        return UPS_OK;
    file->absolute = NULL;
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to open it", file->name);
}

/* A file that was known to be a regular one, for the fewest calls: this is done for read after read. */
static bool open_again(const ups_io_file *file, int *fd) {
    const int direct = atomic_load(&file->direct) ? O_DIRECT : 0;
    *fd = file->regular ? open(ups_io_file_path(file), O_RDONLY | O_CLOEXEC | direct) : NOBODY;
    return *fd != NOBODY;
}

/* A descriptor of the file; UPS_ERR_IO with errno. */
static ups_status open_descriptor(ups_io_file *file, int *fd, ups_error *error) {
    const char *path = ups_io_file_path(file);
    if (open_again(file, fd)) return UPS_OK;
    if (atomic_load(&file->direct)) {
        ups_status status = ups_open_regular(path, O_RDONLY | O_DIRECT, fd, error);
        if (status != UPS_ERR_IO || errno != EINVAL) return status;
        atomic_store(&file->direct, false);
        ups_io_say_direct_is_refused(file);
    }
    return ups_open_regular(path, O_RDONLY, fd, error);
}

/* ---- those that are open and not held, the one that was let go last first
 * --------------------------------------------- */

static void unlink_idle(ups_io *io, ups_io_file *file) {
    if (file->before)
        file->before->after = file->after;
    else
        io->idle_first = file->after;
    if (file->after)
        file->after->before = file->before;
    else
        io->idle_last = file->before;
    file->before = file->after = NULL;
}

static void link_idle(ups_io *io, ups_io_file *file) {
    file->before = NULL;
    file->after = io->idle_first;
    if (io->idle_first)
        io->idle_first->before = file;
    else
        io->idle_last = file;
    io->idle_first = file;
}

/* Closes the one that was not wanted for longest; false when all are held. */
static bool close_oldest(ups_io *io) {
    ups_io_file *file = io->idle_last;
    if (!file) return false;
    unlink_idle(io, file);
    close(file->fd);
    file->fd = NOBODY;
    io->open_count--;
    return true;
}

/* Opens a file that is not; others may be at it as well, and one descriptor is enough. Holds the lock but for the
 * opening itself. */
static ups_status open_locked(ups_io *io, ups_io_file *file, ups_error *error) {
    while (io->open_count >= io->most_open && close_oldest(io)) continue;
    for (;;) {
        int fd;
        pthread_mutex_unlock(&io->lock);
        ups_status status = open_descriptor(file, &fd, error);
        const int reason = errno;
        pthread_mutex_lock(&io->lock);
        if (file->fd != NOBODY) { /* another was faster */
            if (status == UPS_OK) close(fd);
            return UPS_OK;
        }
        if (status == UPS_OK) {
            file->fd = fd;
            io->open_count++;
            return UPS_OK;
        }
        const bool none_left = status == UPS_ERR_IO && (reason == EMFILE || reason == ENFILE);
        if (!none_left || !close_oldest(io)) {
            errno = reason;
            return status;
        }
        io->most_open = io->open_count > 0 ? io->open_count : 1; /* others have taken the rest */
    }
}

bool ups_io_file_must_wait(ups_io *io, uint32_t index) {
    if (!io->bounded) return false;
    pthread_mutex_lock(&io->lock);
    const bool must = io->files[index].fd == NOBODY && io->open_count >= io->most_open && !io->idle_last;
    pthread_mutex_unlock(&io->lock);
    return must;
}

int ups_io_file_hold(ups_io *io, uint32_t index) {
    if (!io->bounded) return 0;
    ups_io_file *file = &io->files[index];
    int reason = 0;
    pthread_mutex_lock(&io->lock);
    if (file->holders++ == 0 && file->fd != NOBODY) unlink_idle(io, file);
    if (file->fd == NOBODY && open_locked(io, file, NULL) != UPS_OK) {
        reason = errno ? errno : EIO;
        file->holders--;
    }
    pthread_mutex_unlock(&io->lock);
    return reason;
}

void ups_io_file_release(ups_io *io, uint32_t index) {
    if (!io->bounded) return;
    ups_io_file *file = &io->files[index];
    pthread_mutex_lock(&io->lock);
    if (--file->holders == 0 && file->fd != NOBODY) {
        link_idle(io, file);
        if (io->open_count > io->most_open) close_oldest(io);
    }
    pthread_mutex_unlock(&io->lock);
}

/* ---- all of them
 * ------------------------------------------------------------------------------------------------------- */

ups_status ups_io_files_open(ups_io *io, const char *const *files, int64_t count, ups_error *error) {
    ups_status status = UPS_OK;
    char *directory = getcwd(NULL, 0); /* NULL: it was removed, and names of it are all there is */
    pthread_mutex_init(&io->lock, NULL);
    io->most_open = room_for(count);
    pthread_mutex_lock(&io->lock);
    for (; io->file_count < count && status == UPS_OK; io->file_count++) {
        ups_io_file *file = &io->files[io->file_count];
        file->fd = NOBODY;
        file->name = strdup(files[io->file_count]);
        atomic_store(&file->direct, io->options.direct);
        status = file->name ? open_locked(io, file, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to open it", files[io->file_count]);
        if (status != UPS_OK) continue;
        note_state(file);
        link_idle(io, file);
        status = note_place(file, directory, error);
    }
    io->bounded = io->open_count < count;
    pthread_mutex_unlock(&io->lock);
    free(directory);
    return status;
}

void ups_io_files_close(ups_io *io) {
    for (int64_t i = 0; i < io->file_count; i++) {
        if (io->files[i].fd >= 0) close(io->files[i].fd);
        free(io->files[i].name);
        free(io->files[i].absolute);
    }
    if (io->most_open > 0 || io->file_count > 0) pthread_mutex_destroy(&io->lock);
    free(io->files);
}
