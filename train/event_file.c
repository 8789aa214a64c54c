#include "train/event_file.h"

#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES (UINT64_C(1) << 33)

/* ---- protocol buffers -------------------------------------------------------------------------------------------- */

/* Fields by their numbers. Event: */
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { VALUE = 1 };                 /* Summary: */
enum { TAG = 1, SIMPLE_VALUE = 2 }; /* Summary.Value: */
enum { STATUS = 1, START = 1 }; /* SessionLog, and a status: what stood in earlier files is void from this step on */

/* How a field's value is written, in the low bits of its key. */
enum { VARINT = 0, FIXED_64 = 1, LENGTH_AND_BYTES = 2, FIXED_32 = 5 };

static void put_varint(FILE *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) putc((int)(value & 0x7f) | 0x80, out);
    putc((int)value, out);
}

static void put_key(FILE *out, int field, int how) {
    put_varint(out, (uint64_t)(field << 3 | how));
}

static void put_bytes(FILE *out, int field, const void *bytes, size_t length) {
    put_key(out, field, LENGTH_AND_BYTES);
    put_varint(out, length);
    fwrite(bytes, 1, length, out);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* What is written into memory; `out` is NULL where there was none. */
typedef struct message {
    FILE *out;
    char *bytes;
    size_t length;
} message;

static message *begin(message *m) {
    *m = (message){0};
    m->out = open_memstream(&m->bytes, &m->length);
    return m->out ? m : NULL;
}

/* Whether all of it is there. */
static bool end(message *m) {
    bool whole = m->out && !ferror(m->out);
    return m->out && fclose(m->out) == 0 && whole;
}

static void put_crc(FILE *out, const void *bytes, size_t length) {
    const uint32_t crc = ups_crc32c(0, bytes, length), masked = (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
    fwrite(&masked, sizeof masked, 1, out);
}

/* An Event of which one field is bytes. */
static bool put_event(FILE *out, double wall_time, int64_t step, int field, const void *bytes, size_t length) {
    message event;
    if (!begin(&event)) return false;
    put_key(event.out, WALL_TIME, FIXED_64);
    fwrite(&wall_time, sizeof wall_time, 1, event.out);
    put_key(event.out, STEP, VARINT);
    put_varint(event.out, (uint64_t)step);
    put_bytes(event.out, field, bytes, length);
    const bool whole = end(&event);
    if (whole) {
        const uint64_t size = event.length;
        fwrite(&size, sizeof size, 1, out);
        put_crc(out, &size, sizeof size);
        fwrite(event.bytes, 1, event.length, out);
        put_crc(out, event.bytes, event.length);
    }
    free(event.bytes);
    return whole;
}

/* What a file begins with: its version, and that it tells of all steps. */
static bool put_head(FILE *out, int64_t seconds) {
    static const char version[] = "brain.Event:2", started[] = {STATUS << 3 | VARINT, START};
    return put_event(out, (double)seconds, 0, FILE_VERSION, version, sizeof version - 1) &&
           put_event(out, (double)seconds, 0, SESSION_LOG, started, sizeof started);
}

static bool put_value(FILE *summary, const char *tag, double number) {
    const float value = (float)number;
    message m;
    if (!begin(&m)) return false;
    put_bytes(m.out, TAG, tag, strlen(tag));
    put_key(m.out, SIMPLE_VALUE, FIXED_32);
    fwrite(&value, sizeof value, 1, m.out);
    const bool whole = end(&m);
    if (whole) put_bytes(summary, VALUE, m.bytes, m.length);
    free(m.bytes);
    return whole;
}

/* All numbers of an object, and of the objects in it. */
static bool put_numbers(FILE *summary, const char *above, json_t *object) {
    bool whole = true;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char *tag = NULL;
        if (!json_is_number(value) && !json_is_object(value)) continue;
        if (asprintf(&tag, "%s/%s", above, key) < 0) return false;
        whole = whole && (json_is_object(value) ? put_numbers(summary, tag, value)
                                                : put_value(summary, tag, json_number_value(value)));
        free(tag);
    }
    return whole;
}

/* Seconds since 1970; 0 where a line does not tell. */
static double read_time(const char *text) {
    struct tm utc = {0};
    double seconds = 0;
    if (!text || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%6lfZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
                        &utc.tm_min, &seconds) != 6)
        return 0;
    utc.tm_year -= 1900;
    utc.tm_mon--;
    return (double)timegm(&utc) + seconds;
}

/* The step is the horizontal axis, and no curve. */
static bool put_line(FILE *out, const char *text, size_t length) {
    json_t *line = json_loadb(text, length, 0, NULL);
    const char *stage = json_string_value(json_object_get(line, "stage"));
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    const double wall_time = read_time(json_string_value(json_object_get(line, "time")));
    message summary = {0};
    bool whole = true;
    if (stage) {
        json_object_del(line, "step");
        whole = begin(&summary) && put_numbers(summary.out, stage, line);
        whole = end(&summary) && whole;
        if (whole && summary.length > 0)
            whole = put_event(out, wall_time, step, SUMMARY, summary.bytes, summary.length);
    }
    free(summary.bytes);
    json_decref(line);
    return whole;
}

static ups_status finish(message *records, bool whole, char **bytes, size_t *length, ups_error *error) {
    if (end(records) && whole) {
        *bytes = records->bytes;
        *length = records->length;
        return UPS_OK;
    }
    free(records->bytes);
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for an event of TensorBoard");
}

ups_status ups_event_record(const char *line, size_t line_length, char **bytes, size_t *length, ups_error *error) {
    message records;
    const bool whole = begin(&records) && put_line(records.out, line, line_length);
    return finish(&records, whole, bytes, length, error);
}

/* The file of that name, all of it. */
static ups_status tell(int64_t seconds, const char *lines, size_t line_bytes, char **bytes, size_t *length,
                       ups_error *error) {
    message records;
    bool whole = begin(&records) && put_head(records.out, seconds);
    for (size_t at = 0; whole && at < line_bytes;) {
        const char *line_end = memchr(lines + at, '\n', line_bytes - at);
        const size_t line = line_end ? (size_t)(line_end - (lines + at)) : line_bytes - at;
        whole = put_line(records.out, lines + at, line);
        at += line + 1;
    }
    return finish(&records, whole, bytes, length, error);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char *name_of(const char *directory, int64_t seconds) {
    char *path = NULL;
    return asprintf(&path, "%s/events.out.tfevents.%010lld.ups", directory, (long long)seconds) < 0 ? NULL : path;
}

/* The seconds in a file's name; −1: it has another name than ours, of ten digits. */
static int64_t seconds_of(const char *name) {
    static const char before[] = "events.out.tfevents.";
    enum { DIGITS = 10 };
    const char *digits = name + sizeof before - 1;
    if (strncmp(name, before, sizeof before - 1) != 0 || strspn(digits, "0123456789") != DIGITS) return -1;
    return strcmp(digits + DIGITS, ".ups") == 0 ? strtoll(digits, NULL, 10) : -1;
}

/* The latest of the directory; −1: none. */
static ups_status find_latest(const char *directory, int64_t *latest, ups_error *error) {
    DIR *listing = opendir(directory);
    *latest = -1;
    if (!listing) return ups_fail_errno(error, "%s: cannot be listed", directory);
    for (struct dirent *entry; (entry = readdir(listing));) {
        const int64_t seconds = seconds_of(entry->d_name);
        if (seconds > *latest) *latest = seconds;
    }
    closedir(listing);
    return UPS_OK;
}

/* Empties the files but one, and removes those that were empty already where that one is `new`: a TensorBoard without
 * its fast loader asks for the file that it had last by name, and goes on to the next one at its end alone. */
static ups_status retire_others(const char *directory, int64_t but, bool new, ups_error *error) {
    DIR *listing = opendir(directory);
    ups_status status = listing ? UPS_OK : ups_fail_errno(error, "%s: cannot be listed", directory);
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(listing));) {
        const int64_t seconds = seconds_of(entry->d_name);
        if (seconds < 0 || seconds == but) continue;
        char *path = name_of(directory, seconds);
        uint64_t bytes = 0;
        status = path ? ups_file_size(path, &bytes, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        if (status == UPS_OK && bytes > 0 && truncate(path, 0) != 0)
            status = ups_fail_errno(error, "%s: cannot be emptied", path);
        if (status == UPS_OK && bytes == 0 && new) status = ups_remove_tree(path, error);
        free(path);
    }
    if (listing) closedir(listing);
    return status;
}

/* What is missing at the end of a file that TensorBoard may have open. */
static ups_status complete(const char *path, const char *bytes, size_t from, size_t length, ups_error *error) {
    int fd;
    UPS_TRY(ups_open_regular(path, O_WRONLY, &fd, error));
    ups_status status = ups_write_at(fd, path, from, bytes + from, length - from, error);
    close(fd);
    return status;
}

/* Whether the file of that name tells of the lines now: it told of the first ones. */
static ups_status go_on(const char *path, int64_t seconds, const char *lines, size_t line_bytes, bool *does,
                        ups_error *error) {
    char *found = NULL, *bytes = NULL;
    size_t found_length = 0, length = 0;
    ups_status status = ups_read_regular(path, MOST_BYTES, &found, &found_length, error);
    if (status == UPS_OK) status = tell(seconds, lines, line_bytes, &bytes, &length, error);
    *does = status == UPS_OK && found_length <= length && memcmp(found, bytes, found_length) == 0;
    if (*does && found_length < length) status = complete(path, bytes, found_length, length, error);
    free(found);
    free(bytes);
    return status;
}

static ups_status begin_anew(const char *path, int64_t seconds, const char *lines, size_t line_bytes,
                             ups_error *error) {
    char *bytes = NULL;
    size_t length = 0;
    UPS_TRY(tell(seconds, lines, line_bytes, &bytes, &length, error));
    ups_status status = ups_publish_bytes(path, bytes, length, error);
    free(bytes);
    return status;
}

ups_status ups_event_file_publish(const char *directory, const char *lines, size_t length, char **path,
                                  ups_error *error) {
    int64_t seconds;
    bool goes_on = false;
    UPS_TRY(find_latest(directory, &seconds, error));
    char *name = name_of(directory, seconds);
    ups_status status = name ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", directory);
    if (status == UPS_OK && seconds >= 0) status = go_on(name, seconds, lines, length, &goes_on, error);
    if (status == UPS_OK && !goes_on) {
        const int64_t now = (int64_t)time(NULL);
        seconds = now > seconds ? now : seconds + 1;
        free(name);
        name = name_of(directory, seconds);
        status = name ? begin_anew(name, seconds, lines, length, error)
                      : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", directory);
    }
    if (status == UPS_OK) status = retire_others(directory, seconds, !goes_on, error);
    if (status == UPS_OK)
        *path = name;
    else
        free(name);
    return status;
}
