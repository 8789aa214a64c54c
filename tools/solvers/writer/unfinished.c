#include "tools/solvers/writer/unfinished.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/system/links.h"
#include "base/system/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Between two notes passes at least this time, and ten times what the last note took: on a slow disk, too, noting costs
 * less than a tenth. A killed run loses what was computed since the last. */
static const double least_pause = 0.1, pause_by_cost = 10.0;

enum { LINE_BYTES = 20 }; /* "0000000017 5a1b2c3d\n": the sample, its CRC32C */
static const char line_format[] = "%010lld %08x\n";

struct ups_unfinished {
    char *path, *directory, *storage, *journal;
    int journal_descriptor, storage_descriptor;
    uint64_t journal_bytes;
    json_t *header;
    int64_t samples, found;
    bool continues;
    atomic_uchar *complete; /* one bit a sample */
    pthread_mutex_t lock;   /* of what follows */
    int64_t *waiting;       /* complete, not yet noted down */
    int64_t waiting_count, waiting_capacity;
    double next_note; /* not before this moment */
    bool noting;      /* one thread at a time */
    bool lost;        /* a sync failed: what was not noted down before may never reach the disk */
};

static void release(ups_unfinished *unfinished) {
    if (unfinished->storage_descriptor >= 0) close(unfinished->storage_descriptor);
    if (unfinished->journal_descriptor >= 0) close(unfinished->journal_descriptor); /* and with it the lock */
    pthread_mutex_destroy(&unfinished->lock);
    json_decref(unfinished->header);
    free(unfinished->waiting);
    free(unfinished->complete);
    free(unfinished->journal);
    free(unfinished->storage);
    free(unfinished->directory);
    free(unfinished->path);
    free(unfinished);
}

/* `.NAME.suffix` beside `path`. */
static char *hidden_name(const char *path, const char *suffix) {
    const char *slash = strrchr(path, '/');
    const int directory = slash ? (int)(slash - path) + 1 : 0;
    char *name = NULL;
    if (asprintf(&name, "%.*s.%s.%s", directory, path, path + directory, suffix) < 0) return NULL;
    return name;
}

static ups_unfinished *allocate(const char *path, const json_t *identity, int64_t samples) {
    ups_unfinished *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    const char *slash = strrchr(path, '/');
    made->storage_descriptor = made->journal_descriptor = -1;
    pthread_mutex_init(&made->lock, NULL);
    made->samples = samples;
    made->path = strdup(path);
    made->directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    made->storage = hidden_name(path, "ups-unfinished");
    made->journal = hidden_name(path, "ups-journal");
    made->complete = calloc((size_t)samples / 8 + 1, 1);
    made->header = json_pack("{s:i, s:s, s:O}", "journal", 1, "ups", UPS_VERSION, "made", (json_t *)identity);
    if (made->path && made->directory && made->storage && made->journal && made->complete && made->header) return made;
    release(made);
    return NULL;
}

/* ---- the lock ---- */

static bool same_file(int descriptor, const char *path) {
    struct stat opened, named;
    return fstat(descriptor, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* A file system without locks goes without. Between opening and locking the owner before us may have removed the file:
 * then the lock is on nothing, and we try again. */
static ups_status lock_journal(ups_unfinished *unfinished, ups_error *error) {
    for (;;) {
        const int descriptor = open(unfinished->journal, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor < 0) return ups_fail_errno(error, "%s: cannot be created", unfinished->path);
        unfinished->journal_descriptor = descriptor;
        if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            return ups_fail(error, UPS_ERR_IO, "%s: is being made by another process", unfinished->path);
        }
        if (same_file(descriptor, unfinished->journal)) return UPS_OK;
        close(descriptor);
        unfinished->journal_descriptor = -1;
    }
}

/* ---- reading what an earlier run has left ---- */

static bool set_complete(ups_unfinished *unfinished, int64_t sample) {
    const unsigned char bit = (unsigned char)(1u << (sample % 8));
    return !(atomic_fetch_or(&unfinished->complete[sample / 8], bit) & bit);
}

static uint32_t line_check(long long sample) {
    return ups_crc32c(0, &sample, sizeof sample);
}

/* Lines up to the first that is torn, which a crash while writing explains. Returns the bytes that hold true. */
static uint64_t read_lines(ups_unfinished *unfinished, const char *text, size_t length, size_t at) {
    for (; at + LINE_BYTES <= length; at += LINE_BYTES) {
        char *end;
        const long long sample = strtoll(text + at, &end, 10);
        const unsigned long check = strtoul(end, &end, 16);
        if (end != text + at + LINE_BYTES - 1 || *end != '\n' || sample < 0 || sample >= unfinished->samples ||
            check != line_check(sample))
            break;
        unfinished->found += set_complete(unfinished, sample);
    }
    return at;
}

/* The first of what was asked for that was otherwise, as a sentence's part: "seed is 1 there and 2 here". */
static void name_difference(const json_t *there, const json_t *here, char text[200]) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)here, key, value) {
        const json_t *other = json_object_get(there, key);
        if (json_equal(other, value)) continue;
        if (json_is_object(value) && json_is_object(other)) {
            name_difference(other, value, text);
            return;
        }
        char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        char *was = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
        snprintf(text, 200, "%s is %.60s there and %.60s here", key, was ? was : "not given", is ? is : "");
        free(was);
        free(is);
        return;
    }
    snprintf(text, 200, "it was made by another version");
}

static ups_status read_journal(ups_unfinished *unfinished, ups_error *error) {
    char *text = NULL;
    size_t length = 0;
    const uint64_t longest = UINT64_C(1) << 40;
    UPS_TRY(ups_read_regular(unfinished->journal, longest, &text, &length, error));
    ups_status status = UPS_OK;
    const char *newline = memchr(text, '\n', length);
    json_t *found = newline ? json_loadb(text, (size_t)(newline - text), 0, NULL) : NULL;
    if (found && ups_path_exists(unfinished->storage)) {
        if (json_equal(found, unfinished->header)) {
            unfinished->continues = true;
            unfinished->journal_bytes = read_lines(unfinished, text, length, (size_t)(newline - text) + 1);
        } else {
            char difference[200];
            name_difference(found, unfinished->header, difference);
            status = ups_fail(error, UPS_ERR_ARGUMENT,
                              "%s: an unfinished run of other settings is there (%s); --restart discards it",
                              unfinished->path, difference);
        }
    }
    json_decref(found);
    free(text);
    return status;
}

/* Opens the storage to sync it, and cuts torn lines off the journal. */
static ups_status take_up(ups_unfinished *unfinished, ups_error *error) {
    unfinished->storage_descriptor = open(unfinished->storage, O_RDWR | O_CLOEXEC);
    if (unfinished->storage_descriptor < 0) return ups_fail_errno(error, "%s: cannot be opened", unfinished->storage);
    if (ftruncate(unfinished->journal_descriptor, (off_t)unfinished->journal_bytes) != 0)
        return ups_fail_errno(error, "%s: cannot be written", unfinished->journal);
    unfinished->next_note = ups_now() + least_pause;
    return UPS_OK;
}

ups_status ups_unfinished_open(const char *path, const json_t *identity, int64_t samples, bool restart,
                               ups_unfinished **unfinished, ups_error *error) {
    char *place;
    UPS_TRY(ups_follow_links(path, &place, error));
    ups_unfinished *made = allocate(place, identity, samples);
    free(place);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    ups_status status = lock_journal(made, error);
    if (status == UPS_OK && !restart) status = read_journal(made, error);
    if (status == UPS_OK && made->continues) status = take_up(made, error);
    if (status != UPS_OK) {
        release(made);
        return status;
    }
    *unfinished = made;
    return UPS_OK;
}

const char *ups_unfinished_storage(const ups_unfinished *unfinished) {
    return unfinished->storage;
}

int64_t ups_unfinished_samples(const ups_unfinished *unfinished) {
    return unfinished->found;
}

bool ups_unfinished_continues(const ups_unfinished *unfinished) {
    return unfinished->continues;
}

/* ---- writing ---- */

static ups_status sync_data(int descriptor, const char *name, ups_error *error) {
    int failed;
    do failed = fdatasync(descriptor);
    while (failed != 0 && errno == EINTR);
    if (failed == 0) return UPS_OK;
    return ups_fail_errno(error, "%s: cannot be written to disk", name);
}

static ups_status append(ups_unfinished *unfinished, const char *text, size_t length, ups_error *error) {
    UPS_TRY(ups_write_at(unfinished->journal_descriptor, unfinished->journal, unfinished->journal_bytes, text, length,
                         error));
    unfinished->journal_bytes += length;
    return sync_data(unfinished->journal_descriptor, unfinished->journal, error);
}

ups_status ups_unfinished_begin(ups_unfinished *unfinished, ups_error *error) {
    UPS_TRY(take_up(unfinished, error)); /* also empties a journal that was not to be continued */
    UPS_TRY(sync_data(unfinished->storage_descriptor, unfinished->path, error));
    char *text = json_dumps(unfinished->header, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its journal", unfinished->path);
    const size_t length = strlen(text);
    text[length] = '\n'; /* in the place of the NUL */
    ups_status status = append(unfinished, text, length + 1, error);
    free(text);
    if (status == UPS_OK) status = ups_sync_directory(unfinished->directory, error);
    return status;
}

bool ups_unfinished_has(const ups_unfinished *unfinished, int64_t sample) {
    return atomic_load(&unfinished->complete[sample / 8]) >> (sample % 8) & 1;
}

/* Data to disk, then `count` lines. */
static ups_status note_down(ups_unfinished *unfinished, const int64_t *samples, int64_t count, ups_error *error) {
    if (count == 0) return UPS_OK;
    ups_status status = sync_data(unfinished->storage_descriptor, unfinished->path, error);
    if (status != UPS_OK) {
        pthread_mutex_lock(&unfinished->lock);
        unfinished->lost = true;
        pthread_mutex_unlock(&unfinished->lock);
        return status;
    }
    char *lines = malloc((size_t)count * LINE_BYTES + 1);
    if (!lines) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its journal", unfinished->path);
    for (int64_t i = 0; i < count; i++) {
        snprintf(lines + i * LINE_BYTES, LINE_BYTES + 1, line_format, (long long)samples[i], line_check(samples[i]));
    }
    status = append(unfinished, lines, (size_t)count * LINE_BYTES, error);
    free(lines);
    return status;
}

static bool add_waiting(ups_unfinished *unfinished, int64_t sample) {
    if (unfinished->waiting_count == unfinished->waiting_capacity) {
        const int64_t capacity = unfinished->waiting_capacity > 0 ? 2 * unfinished->waiting_capacity : 64;
        int64_t *larger = realloc(unfinished->waiting, sizeof *larger * (size_t)capacity);
        if (!larger) return false;
        unfinished->waiting = larger;
        unfinished->waiting_capacity = capacity;
    }
    unfinished->waiting[unfinished->waiting_count++] = sample;
    return true;
}

ups_status ups_unfinished_complete(ups_unfinished *unfinished, int64_t sample, ups_error *error) {
    int64_t *samples = NULL, count = 0;
    const double begin = ups_now();
    set_complete(unfinished, sample);
    pthread_mutex_lock(&unfinished->lock);
    const bool added = add_waiting(unfinished, sample);
    if (added && !unfinished->noting && begin >= unfinished->next_note) {
        unfinished->noting = true; /* the list is ours; others begin a new one */
        samples = unfinished->waiting;
        count = unfinished->waiting_count;
        unfinished->waiting = NULL;
        unfinished->waiting_count = unfinished->waiting_capacity = 0;
    }
    pthread_mutex_unlock(&unfinished->lock);
    if (!added) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its journal", unfinished->path);
    if (!samples) return UPS_OK;
    ups_status status = note_down(unfinished, samples, count, error);
    free(samples);
    pthread_mutex_lock(&unfinished->lock);
    const double end = ups_now(), pause = pause_by_cost * (end - begin);
    unfinished->next_note = end + (pause > least_pause ? pause : least_pause);
    unfinished->noting = false;
    pthread_mutex_unlock(&unfinished->lock);
    return status;
}

/* ---- the end ---- */

ups_status ups_unfinished_publish(ups_unfinished *unfinished, ups_error *error) {
    ups_status status = UPS_OK;
    if (ups_sync_file(unfinished->storage_descriptor) != 0) {
        status = ups_fail_errno(error, "%s: cannot be written to disk", unfinished->path);
    } else if (rename(unfinished->storage, unfinished->path) != 0) {
        status = ups_fail_errno(error, "%s: cannot be put in place", unfinished->path);
    } else {
        unlink(unfinished->journal);
        status = ups_sync_directory(unfinished->directory, error);
    }
    release(unfinished);
    return status;
}

ups_status ups_unfinished_keep(ups_unfinished *unfinished, ups_error *error) {
    /* The system gives up pages that it could not write, and a second sync would succeed without them (fsync(2)). */
    ups_status status =
        unfinished->lost ? UPS_OK : note_down(unfinished, unfinished->waiting, unfinished->waiting_count, error);
    release(unfinished);
    return status;
}

void ups_unfinished_discard(ups_unfinished *unfinished) {
    if (!unfinished) return;
    unlink(unfinished->storage);
    unlink(unfinished->journal);
    release(unfinished);
}
