/* Errors: functions that can fail return a `ups_status`; the story goes into the `ups_error` that the caller passes.
 *
 * A message is one sentence for the person who made the mistake: what was wrong, where (file, sample, key), and what
 * would be right. Libraries never print and never exit; `tools/` prints the message and turns it into an exit code.
 */
#ifndef UPS_BASE_ERROR_H
#define UPS_BASE_ERROR_H

#include <stddef.h>

typedef enum ups_status {
    UPS_OK = 0,
    UPS_ERR_ARGUMENT,    /* the caller asked for something that makes no sense */
    UPS_ERR_CONFIG,      /* a configuration is wrong: file, line, key, what would be right */
    UPS_ERR_IO,          /* the operating system refused: not found, no rights, disk full, read error */
    UPS_ERR_FORMAT,      /* a file is not what it should be: truncated, corrupted, another layout */
    UPS_ERR_CHECKSUM,    /* bytes changed since they were written */
    UPS_ERR_STALE,       /* a cache or checkpoint was made by something else than what now asks for it */
    UPS_ERR_NUMERIC,     /* NaN, Inf or overflow where a finite number must be */
    UPS_ERR_MEMORY,      /* memory that could not be had */
    UPS_ERR_UNSUPPORTED, /* valid, but this build or machine cannot do it */
    UPS_ERR_CANCELLED,   /* SIGINT or SIGTERM arrived, or the other side shut down */
} ups_status;

typedef struct ups_error {
    ups_status code;
    int number; /* errno, where ups_fail_errno told of it; else 0 */
    char message[1000];
} ups_error;

/* Records `code` and a printf-style message in `error` (which may be NULL) and returns `code`:
 * `return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset 'tensor' has rank %d; 3 was expected", path, rank);` */
ups_status ups_fail(ups_error *error, ups_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As `ups_fail(error, UPS_ERR_IO, …)`, with ": ", the text of `errno`, and for some what can be done about it appended.
 */
ups_status ups_fail_errno(ups_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a printf-style prefix and ": " before the message already in `error`; returns its code. Use on the way up, to
 * add the file or sample that the callee did not know. Without an `error` it returns the code of this thread's last
 * failure without one: the callee's. */
ups_status ups_fail_within(ups_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A short name of a status, as scripts see it in --json output: "config", "checksum", … Static storage. */
const char *ups_status_name(ups_status status);

/* Returns early from the calling function when `expression` is not UPS_OK. Only where nothing has to be released. */
#define UPS_TRY(expression)                                                                                            \
    do {                                                                                                               \
        ups_status try_status_ = (expression);                                                                         \
        if (try_status_ != UPS_OK) return try_status_;                                                                 \
    } while (0)

#endif
