#include "train/metrics.h"

#include "base/files.h"
#include "train/event_file.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES (UINT64_C(1) << 32)

/* A file that grows by whole pieces. */
typedef struct growing_file {
    int fd;
    uint64_t bytes; /* of whole pieces */
    char *path;
} growing_file;

struct ups_metrics {
    growing_file lines, events;
};

json_t *ups_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* A stage that begins at step 0 writes all of its lines again, the opening one too. */
static bool is_redone(const char *line, size_t length, const char *stage, int64_t step) {
    json_t *json = json_loadb(line, length, 0, NULL);
    const char *of = json_string_value(json_object_get(json, "stage"));
    int64_t at = json_integer_value(json_object_get(json, "step"));
    bool redone = !json || (of && strcmp(of, stage) == 0 && (at > step || step == 0));
    json_decref(json);
    return redone;
}

/* The lines that stay; `error` names the file. Also drops a last line that a killed run left half-written. */
static ups_status drop_redone(const char *path, const char *stage, int64_t step, char **lines, size_t *kept,
                              ups_error *error) {
    size_t length = 0;
    *kept = 0;
    if (!ups_path_exists(path)) return UPS_OK;
    UPS_TRY(ups_read_file(path, MOST_BYTES, lines, &length, error));
    char *bytes = *lines;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t line = end ? (size_t)(end - (bytes + at)) + 1 : length - at;
        if (end && !is_redone(bytes + at, line, stage, step)) {
            memmove(bytes + *kept, bytes + at, line);
            *kept += line;
        }
        at += line;
    }
    return *kept == length ? UPS_OK : ups_publish_bytes(path, bytes, *kept, error);
}

/* DIRECTORY of DIRECTORY/metrics.jsonl. Free with free(). */
static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static ups_status publish_events(const char *path, const char *lines, size_t length, char **events, ups_error *error) {
    char *directory = directory_of(path);
    if (!directory) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    ups_status status = ups_event_file_publish(directory, lines, length, events, error);
    free(directory);
    return status;
}

/* Takes `path`. */
static ups_status open_growing(growing_file *file, char *path, ups_error *error) {
    *file = (growing_file){.fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666), .path = path};
    return file->fd < 0 ? ups_fail_errno(error, "%s: cannot be opened for appending", path)
                        : ups_file_size(path, &file->bytes, error);
}

static void close_growing(growing_file *file) {
    if (file->path && file->fd >= 0) close(file->fd);
    free(file->path);
}

ups_status ups_metrics_open(const char *path, const char *stage, int64_t step, ups_metrics **metrics,
                            ups_error *error) {
    char *kept = NULL, *own = strdup(path), *events = NULL;
    size_t length = 0;
    ups_metrics *made = calloc(1, sizeof *made);
    ups_status status = made && own ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    if (status == UPS_OK) status = drop_redone(path, stage, step, &kept, &length, error);
    if (status == UPS_OK) {
        status = open_growing(&made->lines, own, error);
        own = NULL;
    }
    if (status == UPS_OK) status = publish_events(path, kept, length, &events, error);
    if (status == UPS_OK) status = open_growing(&made->events, events, error);
    free(own);
    free(kept);
    if (status == UPS_OK)
        *metrics = made;
    else
        ups_metrics_close(made);
    return status;
}

ups_status ups_metrics_read(const char *path, json_t **lines, ups_error *error) {
    char *bytes = NULL;
    size_t length = 0;
    *lines = NULL;
    if (!ups_path_is_absent(path)) UPS_TRY(ups_read_regular(path, MOST_BYTES, &bytes, &length, error));
    json_t *read = json_array();
    for (size_t at = 0; read && at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        const size_t line = end ? (size_t)(end - (bytes + at)) : length - at;
        json_t *parsed = json_loadb(bytes + at, line, 0, NULL);
        if (json_is_object(parsed)) json_array_append(read, parsed);
        json_decref(parsed);
        at += line + 1;
    }
    free(bytes);
    if (!read) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    *lines = read;
    return UPS_OK;
}

ups_status ups_metrics_show(const char *path, ups_error *error) {
    char *lines = NULL, *events = NULL;
    size_t length = 0;
    ups_status status = ups_read_file(path, MOST_BYTES, &lines, &length, error);
    if (status == UPS_OK) status = publish_events(path, lines, length, &events, error);
    free(events);
    free(lines);
    return status;
}

/* Of a full disk. What cannot be cut now is dropped by the run that goes on. */
static void cut_torn_piece(const growing_file *file) {
    if (ftruncate(file->fd, (off_t)file->bytes) != 0) return;
}

static ups_status grow(growing_file *file, const void *piece, size_t length, ups_error *error) {
    ups_status status = ups_write_at(file->fd, file->path, file->bytes, piece, length, error);
    if (status == UPS_OK)
        file->bytes += length;
    else
        cut_torn_piece(file);
    return status;
}

static void add_time(json_t *line) {
    struct timespec now;
    struct tm utc;
    char text[64];
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || !gmtime_r(&now.tv_sec, &utc)) return;
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + length, sizeof text - length, ".%03ldZ", now.tv_nsec / 1000000);
    json_object_set_new(line, "time", json_string(text));
}

ups_status ups_metrics_write(ups_metrics *metrics, json_t *line, ups_error *error) {
    if (line) add_time(line);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    if (!text) return ups_fail(error, UPS_ERR_NUMERIC, "%s: a line could not be written as JSON", metrics->lines.path);
    size_t length = strlen(text), event_length = 0;
    char *event = NULL;
    ups_status status = ups_event_record(text, length, &event, &event_length, error);
    text[length] = '\n'; /* in the place of the NUL */
    if (status == UPS_OK) status = grow(&metrics->lines, text, length + 1, error);
    if (status == UPS_OK) status = grow(&metrics->events, event, event_length, error);
    free(event);
    free(text);
    return status;
}

void ups_metrics_close(ups_metrics *metrics) {
    if (!metrics) return;
    close_growing(&metrics->lines);
    close_growing(&metrics->events);
    free(metrics);
}
