#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Puts ": ", `text` and `more` behind the `used` characters of the message; what does not fit is cut. */
static void append(ups_error *error, int used, const char *text, const char *more) {
    const char *parts[] = {": ", text, more};
    size_t at = used < 0 ? sizeof error->message : (size_t)used;
    for (int i = 0; i < 3 && at < sizeof error->message; i++) {
        size_t length = strnlen(parts[i], sizeof error->message - 1 - at);
        memcpy(error->message + at, parts[i], length);
        at += length;
        error->message[at] = '\0';
    }
}

/* Code of the last failure that nobody wanted in words. A caller that passes no error still gets the right status from
 * whoever only adds words on the way up. */
static _Thread_local ups_status unheard = UPS_ERR_ARGUMENT;

ups_status ups_fail(ups_error *error, ups_status code, const char *format, ...) {
    if (!error) return unheard = code;
    error->code = code;
    error->number = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return code;
}

/* What the user can do where the system's own words leave that open. */
static const char *remedy(int number) {
    switch (number) {
    case ENOSPC:
        return "; make room there and run the command again";
    case EDQUOT:
        return "; your quota there is used up: remove something, or write elsewhere";
    case EFBIG:
        return "; the limit on file size (ulimit -f) was reached, or that of the file system";
    case EROFS:
        return "; it is mounted for reading only: write elsewhere";
    case EACCES:
        return "; change the permissions, or choose another place";
    case EIO:
        return "; the disk, or the network to it, failed: see the system's log (dmesg)";
    case EMFILE:
        return "; this process has as many files open as it may: raise `ulimit -n`";
    case ENFILE:
        return "; this machine has as many files open as it may: close some, or raise fs.file-max";
    default:
        return "";
    }
}

ups_status ups_fail_errno(ups_error *error, const char *format, ...) {
    int saved = errno;
    if (!error) return unheard = UPS_ERR_IO;
    error->code = UPS_ERR_IO;
    error->number = saved;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    append(error, used, strerror(saved), remedy(saved));
    return UPS_ERR_IO;
}

ups_status ups_fail_within(ups_error *error, const char *format, ...) {
    if (!error) return unheard;
    char inner[sizeof error->message];
    memcpy(inner, error->message, sizeof inner);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    append(error, used, inner, "");
    return error->code;
}

const char *ups_status_name(ups_status status) {
    switch (status) {
    case UPS_OK:
        return "ok";
    case UPS_ERR_ARGUMENT:
        return "argument";
    case UPS_ERR_CONFIG:
        return "config";
    case UPS_ERR_IO:
        return "io";
    case UPS_ERR_FORMAT:
        return "format";
    case UPS_ERR_CHECKSUM:
        return "checksum";
    case UPS_ERR_STALE:
        return "stale";
    case UPS_ERR_NUMERIC:
        return "numeric";
    case UPS_ERR_MEMORY:
        return "memory";
    case UPS_ERR_UNSUPPORTED:
        return "unsupported";
    case UPS_ERR_CANCELLED:
        return "cancelled";
    }
    return "unknown";
}
