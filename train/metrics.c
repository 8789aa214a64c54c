#include "train/metrics.h"

#include "base/files.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES (UINT64_C(1) << 32)

struct ups_metrics {
    int fd;
    uint64_t bytes; /* of whole lines */
    char *path;
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

/* Also drops a last line that a killed run left half-written. */
static ups_status drop_redone(const char *path, const char *stage, int64_t step, ups_error *error) {
    char *bytes = NULL;
    size_t length = 0, kept = 0;
    UPS_TRY(ups_read_file(path, MOST_BYTES, &bytes, &length, error));
    for (size_t at = 0; at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t line = end ? (size_t)(end - (bytes + at)) + 1 : length - at;
        if (end && !is_redone(bytes + at, line, stage, step)) {
            memmove(bytes + kept, bytes + at, line);
            kept += line;
        }
        at += line;
    }
    ups_status status = kept == length ? UPS_OK : ups_publish_bytes(path, bytes, kept, error);
    free(bytes);
    return status;
}

ups_status ups_metrics_open(const char *path, const char *stage, int64_t step, ups_metrics **metrics,
                            ups_error *error) {
    if (ups_path_exists(path)) UPS_TRY(drop_redone(path, stage, step, error));
    ups_metrics *made = calloc(1, sizeof *made);
    if (made) *made = (ups_metrics){.fd = -1, .path = strdup(path)};
    if (!made || !made->path) {
        free(made);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    }
    made->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    ups_status status = made->fd < 0 ? ups_fail_errno(error, "%s: cannot be opened for appending", path)
                                     : ups_file_size(path, &made->bytes, error);
    if (status != UPS_OK) {
        ups_metrics_close(made);
        return status;
    }
    *metrics = made;
    return UPS_OK;
}

/* Of a full disk. What cannot be cut now is dropped by the run that goes on. */
static void cut_torn_line(ups_metrics *metrics) {
    if (ftruncate(metrics->fd, (off_t)metrics->bytes) != 0) return;
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
    if (!text) return ups_fail(error, UPS_ERR_NUMERIC, "%s: a line could not be written as JSON", metrics->path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in the place of the NUL */
    ups_status status = ups_write_at(metrics->fd, metrics->path, metrics->bytes, text, length + 1, error);
    free(text);
    if (status == UPS_OK)
        metrics->bytes += length + 1;
    else
        cut_torn_line(metrics);
    return status;
}

void ups_metrics_close(ups_metrics *metrics) {
    if (!metrics) return;
    if (metrics->fd >= 0) close(metrics->fd);
    free(metrics->path);
    free(metrics);
}
