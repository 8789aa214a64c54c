/* `known` remembers what was seen of every other builder: what its record says, and when its heartbeat last changed.
 * Records are opened before their time is read: NFS then asks its server instead of its cache. */
#include "cache/build/leases.h"

#include "base/files.h"
#include "base/json.h"
#include "base/system/threads.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_PREFIX "builder-"

enum { NAME_BYTES = 64, FACT_BYTES = 80, MAX_TRIES = 100 };
static const double default_heartbeat = 2, default_timeout = 30;

/* What tells a process of this host from all others, at any time. */
typedef struct identity {
    char host[HOST_NAME_MAX + 1];
    char boot[FACT_BYTES];      /* /proc/sys/kernel/random/boot_id */
    char pid_space[FACT_BYTES]; /* of the container: ids of processes mean something only in there */
    long long pid, started;     /* clock ticks since boot */
} identity;

typedef struct builder {
    char name[NAME_BYTES], purpose[NAME_BYTES];
    identity who;
    bool read, local; /* the record was understood; it is of this host and container */
    struct timespec heartbeat;
    double changed; /* when `heartbeat` was last seen to change, on our clock */
    struct builder *next;
} builder;

struct ups_leases {
    char *folder, *own_path;
    char own[NAME_BYTES], purpose[NAME_BYTES];
    identity self;
    ups_leases_timing timing;
    pthread_mutex_t lock; /* guards `known`, `leaving` */
    pthread_cond_t wake;
    pthread_t heartbeat;
    bool started, leaving;
    builder *known;
};

/* ---- who is who ------------------------------------------------------------------------------------------------ */

static void read_line(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* Start time of a process in clock ticks since boot (proc(5), field 22 of stat); −1 when there is none, or it is a
 * zombie, which will do nothing more. */
static long long start_of(long long pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    read_line(path, text, sizeof text);
    const char *after = strrchr(text, ')'); /* the name of the program may hold anything */
    char state;
    long long started;
    if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
                         &state, &started) != 2) {
        return -1;
    }
    return state == 'Z' || state == 'X' ? -1 : started;
}

static void identify(identity *self) {
    *self = (identity){.pid = getpid()};
    gethostname(self->host, sizeof self->host - 1);
    read_line("/proc/sys/kernel/random/boot_id", self->boot, sizeof self->boot);
    ssize_t length = readlink("/proc/self/ns/pid", self->pid_space, sizeof self->pid_space - 1);
    if (length < 0) self->pid_space[0] = '\0';
    self->started = start_of(self->pid);
}

static void copy_fact(const json_t *record, const char *key, char *text, size_t size) {
    const char *value = json_string_value(json_object_get(record, key));
    snprintf(text, size, "%s", value ? value : "");
}

static void read_record(const ups_leases *leases, const char *path, builder *b) {
    json_t *record = NULL;
    if (ups_json_read(path, &record, NULL) != UPS_OK) return;
    copy_fact(record, "host", b->who.host, sizeof b->who.host);
    copy_fact(record, "boot", b->who.boot, sizeof b->who.boot);
    copy_fact(record, "pid_space", b->who.pid_space, sizeof b->who.pid_space);
    copy_fact(record, "purpose", b->purpose, sizeof b->purpose);
    b->who.pid = json_integer_value(json_object_get(record, "pid"));
    b->who.started = json_integer_value(json_object_get(record, "started"));
    json_decref(record);
    b->read = true;
    b->local = *b->who.boot && *b->who.pid_space && leases->self.started >= 0 &&
               strcmp(b->who.boot, leases->self.boot) == 0 && strcmp(b->who.pid_space, leases->self.pid_space) == 0;
}

static ups_status publish_record(const ups_leases *leases, ups_error *error) {
    json_t *record =
        json_pack("{s:s, s:I, s:s, s:s, s:I, s:s}", "host", leases->self.host, "pid", (json_int_t)leases->self.pid,
                  "boot", leases->self.boot, "pid_space", leases->self.pid_space, "started",
                  (json_int_t)leases->self.started, "purpose", leases->purpose);
    ups_status status = record ? ups_json_publish(leases->own_path, record, error)
                               : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", leases->folder);
    json_decref(record);
    return status;
}

/* ---- who is alive -------------------------------------------------------------------------------------------------
 */

static char *join_path(const char *folder, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* The entry of a builder in `known`, made when it is new; NULL: out of memory. */
static builder *recall(ups_leases *leases, const char *name) {
    for (builder *b = leases->known; b; b = b->next) {
        if (strcmp(b->name, name) == 0) return b;
    }
    builder *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    snprintf(b->name, sizeof b->name, "%s", name);
    b->changed = ups_now();
    b->next = leases->known;
    leases->known = b;
    return b;
}

/* Whether the builder named is alive. One that is not loses its record, and with it all its leases. Holds the lock. */
static bool is_alive(ups_leases *leases, const char *name, const builder **which) {
    if (which) *which = NULL;
    if (strcmp(name, leases->own) == 0) return true;
    char *path = join_path(leases->folder, name);
    if (!path) return true; /* without memory nobody expires */
    struct stat now;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool there = fd >= 0 && fstat(fd, &now) == 0;
    if (fd >= 0) close(fd);
    builder *b = there ? recall(leases, name) : NULL;
    bool alive = there;
    if (b) {
        if (!b->read) read_record(leases, path, b);
        if (now.st_mtim.tv_sec != b->heartbeat.tv_sec || now.st_mtim.tv_nsec != b->heartbeat.tv_nsec) {
            b->heartbeat = now.st_mtim;
            b->changed = ups_now();
        }
        alive = b->read && b->local ? start_of(b->who.pid) == b->who.started
                                    : ups_now() - b->changed <= leases->timing.timeout;
        if (!alive) unlink(path);
        if (alive && which) *which = b;
    }
    free(path);
    return alive;
}

static bool is_record(const char *name) {
    return strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0 && strlen(name) < NAME_BYTES;
}

ups_leases_others ups_leases_look(ups_leases *leases) {
    ups_leases_others others = {0};
    DIR *stream = opendir(leases->folder);
    if (!stream) return others;
    pthread_mutex_lock(&leases->lock);
    for (struct dirent *entry; (entry = readdir(stream));) {
        const builder *b;
        if (!is_record(entry->d_name) || !is_alive(leases, entry->d_name, &b) || !b) continue;
        bool other = strcmp(b->purpose, leases->purpose) != 0;
        others.count++;
        others.other_purpose += other;
        if (others.count == 1 || (other && others.other_purpose == 1)) {
            snprintf(others.example, sizeof others.example, "process %lld on %.64s", b->who.pid, b->who.host);
        }
    }
    pthread_mutex_unlock(&leases->lock);
    closedir(stream);
    return others;
}

/* ---- leases ---------------------------------------------------------------------------------------------------- */

/* The name of the record that a lease points to; false when there is no such lease. */
static bool holder_of(const char *path, char name[NAME_BYTES]) {
    ssize_t length = readlink(path, name, NAME_BYTES - 1);
    if (length < 0) return false;
    name[length] = '\0';
    return true;
}

/* Takes over an expired lease: in one step, so that it is never free in between. */
static bool take_over(const ups_leases *leases, const char *path, const char *name) {
    char *beside = NULL, holder[NAME_BYTES];
    if (asprintf(&beside, "%s/.%s-%s", leases->folder, leases->own, name) < 0) return false;
    bool done = symlink(leases->own, beside) == 0 && rename(beside, path) == 0;
    if (!done) unlink(beside);
    free(beside);
    return done && holder_of(path, holder) && strcmp(holder, leases->own) == 0;
}

ups_status ups_leases_take(ups_leases *leases, const char *name, bool *ours, ups_error *error) {
    *ours = false;
    char *path = join_path(leases->folder, name), holder[NAME_BYTES];
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", leases->folder);
    ups_status status = UPS_OK;
    for (int tries = 0; tries < MAX_TRIES; tries++) { /* again only when a lease vanished while it was looked at */
        if (symlink(leases->own, path) == 0) {
            *ours = true;
            break;
        }
        if (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP) { /* no symbolic links here: see the header */
            *ours = true;
            break;
        }
        if (errno == ENOENT) { /* a builder that left took the folder with it */
            if (mkdir(leases->folder, 0777) == 0 || errno == EEXIST) continue;
        }
        if (errno != EEXIST) {
            status = ups_fail_errno(error, "%s: cannot be leased", path);
            break;
        }
        if (!holder_of(path, holder)) continue;
        pthread_mutex_lock(&leases->lock);
        bool alive = is_alive(leases, holder, NULL);
        pthread_mutex_unlock(&leases->lock);
        /* NFS may say that a link exists which it has just made for us. */
        *ours = strcmp(holder, leases->own) == 0 || (!alive && take_over(leases, path, name));
        if (*ours || alive) break;
    }
    free(path);
    return status;
}

void ups_leases_release(ups_leases *leases, const char *name) {
    char *path = join_path(leases->folder, name), holder[NAME_BYTES];
    if (path && holder_of(path, holder) && strcmp(holder, leases->own) == 0) unlink(path);
    free(path);
}

/* ---- coming and going ------------------------------------------------------------------------------------------ */

/* A record that is gone was removed by a builder that saw no heartbeat of ours within its timeout. The leases are lost;
 * the record is published again, so that others know of us. */
static void *send_heartbeats(void *context) {
    ups_leases *leases = context;
    pthread_mutex_lock(&leases->lock);
    while (!leases->leaving) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        double seconds = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + leases->timing.heartbeat;
        until.tv_sec = (time_t)seconds;
        until.tv_nsec = (long)((seconds - (double)until.tv_sec) * 1e9);
        pthread_cond_timedwait(&leases->wake, &leases->lock, &until);
        if (leases->leaving) break;
        pthread_mutex_unlock(&leases->lock);
        if (utimensat(AT_FDCWD, leases->own_path, NULL, 0) != 0 && errno == ENOENT) publish_record(leases, NULL);
        pthread_mutex_lock(&leases->lock);
    }
    pthread_mutex_unlock(&leases->lock);
    return NULL;
}

/* Removes what no living builder holds, and the folder when nothing remains. */
static void clear_away(ups_leases *leases) {
    ups_leases_look(leases); /* removes the records of expired builders */
    DIR *stream = opendir(leases->folder);
    if (!stream) return;
    ups_remove_partials(leases->folder, NULL);
    for (struct dirent *entry; (entry = readdir(stream));) {
        char *path = join_path(leases->folder, entry->d_name);
        struct stat link;
        if (path && lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && !ups_path_exists(path)) unlink(path);
        free(path);
    }
    closedir(stream);
    rmdir(leases->folder); /* fails, and may, when others are there */
}

static void destroy(ups_leases *leases) {
    while (leases->known) {
        builder *next = leases->known->next;
        free(leases->known);
        leases->known = next;
    }
    pthread_cond_destroy(&leases->wake);
    pthread_mutex_destroy(&leases->lock);
    free(leases->own_path);
    free(leases->folder);
    free(leases);
}

void ups_leases_leave(ups_leases *leases) {
    if (!leases) return;
    if (leases->started) {
        pthread_mutex_lock(&leases->lock);
        leases->leaving = true;
        pthread_cond_signal(&leases->wake);
        pthread_mutex_unlock(&leases->lock);
        pthread_join(leases->heartbeat, NULL);
    }
    unlink(leases->own_path); /* frees all our leases at once */
    clear_away(leases);
    destroy(leases);
}

/* Failing where the folder is may be due to one who left and took it away, and another who made it again since: what
 * is really wrong fails some more times. */
static ups_status enter(ups_leases *leases, ups_error *error) {
    enum { BELIEVED = 8 };
    ups_status status = UPS_OK;
    for (int tries = 0, failures = 0; tries < MAX_TRIES; tries++) {
        if (mkdir(leases->folder, 0777) != 0 && errno != EEXIST) {
            return ups_fail_errno(error, "%s: the directory cannot be created", leases->folder);
        }
        status = publish_record(leases, error);
        if (status == UPS_OK || (ups_path_exists(leases->folder) && ++failures == BELIEVED)) break;
    }
    return status;
}

/* One that has not entered. NULL: out of memory. */
static ups_leases *create(const char *directory, const char *purpose, ups_leases_timing timing) {
    ups_leases *leases = calloc(1, sizeof *leases);
    if (!leases) return NULL;
    leases->timing.heartbeat = timing.heartbeat > 0 ? timing.heartbeat : default_heartbeat;
    leases->timing.timeout = timing.timeout > 0 ? timing.timeout : default_timeout;
    pthread_mutex_init(&leases->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&leases->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    identify(&leases->self);
    snprintf(leases->purpose, sizeof leases->purpose, "%s", purpose);
    leases->folder = join_path(directory, UPS_LEASES_FOLDER);
    if (leases->folder) return leases;
    destroy(leases);
    return NULL;
}

void ups_leases_clear(const char *directory) {
    ups_leases *leases = create(directory, "", (ups_leases_timing){0});
    if (!leases) return;
    clear_away(leases);
    destroy(leases);
}

ups_status ups_leases_join(const char *directory, const char *purpose, ups_leases_timing timing, ups_leases **result,
                           ups_error *error) {
    *result = NULL;
    ups_leases *leases = create(directory, purpose, timing);
    if (!leases) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build in it", directory);
    uint64_t nonce[2];
    ups_status status = UPS_OK;
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        status = ups_fail_errno(error, "%s: no random numbers can be had", directory);
    }
    if (status == UPS_OK) {
        snprintf(leases->own, sizeof leases->own, RECORD_PREFIX "%016llx%016llx", (unsigned long long)nonce[0],
                 (unsigned long long)nonce[1]);
        leases->own_path = join_path(leases->folder, leases->own);
        if (!leases->own_path) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build in it", directory);
    }
    if (status == UPS_OK) status = enter(leases, error);
    if (status == UPS_OK && pthread_create(&leases->heartbeat, NULL, send_heartbeats, leases) != 0) {
        unlink(leases->own_path);
        rmdir(leases->folder);
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: a thread could not be started", directory);
    }
    if (status != UPS_OK) {
        destroy(leases);
        return status;
    }
    leases->started = true;
    *result = leases;
    return UPS_OK;
}
