#include "base/log.h"

#include "base/printable.h"
#include "base/progress.h"
#include "base/system/threads.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 }; /* longer lines are cut: an error message of 1000 bytes fits with room */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threshold = UPS_LOG_INFO;
static double start_time;
static atomic_int rank; /* that is told; 0: none */

static const char *const level_names[] = {"debug", "info", "warning", "error"};

__attribute__((constructor)) static void note_start(void) {
    start_time = ups_now();
    const char *wanted = getenv("UPS_LOG");
    for (int level = UPS_LOG_DEBUG; wanted && level <= UPS_LOG_ERROR; level++) {
        if (strcmp(wanted, level_names[level]) == 0) atomic_store(&threshold, level);
    }
}

ups_log_level ups_log_set_level(ups_log_level level) {
    return (ups_log_level)atomic_exchange(&threshold, (int)level);
}

void ups_log_tell_rank(int told) {
    atomic_store(&rank, told);
    if (!getenv("UPS_LOG")) ups_log_set_level(UPS_LOG_WARNING);
}

static void write_whole(const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written <= 0) return; /* nowhere left to complain */
        text += written;
        length -= (size_t)written;
    }
}

void ups_log(ups_log_level level, const char *format, ...) {
    if ((int)level < atomic_load(&threshold)) return;
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "[%8.3f] ", ups_now() - start_time);
    if (atomic_load(&rank) > 0)
        used += snprintf(line + used, sizeof line - (size_t)used, "rank %d: ", atomic_load(&rank));
    if (level != UPS_LOG_INFO) {
        used += snprintf(line + used, sizeof line - (size_t)used, "%s: ", level_names[level]);
    }
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    size_t length = (size_t)used + (wanted > 0 ? (size_t)wanted : 0);
    if (length > sizeof line - 2) length = sizeof line - 2;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' '; /* one line stays one line */
    }
    char printable[UPS_PRINTABLE_ROOM * LINE_BYTES];
    length = ups_printable(line, length, printable, sizeof printable);
    printable[length++] = '\n'; /* in the place of the NUL */

    pthread_mutex_lock(&lock);
    ups_progress_hide();
    write_whole(printable, length);
    ups_progress_show();
    pthread_mutex_unlock(&lock);
}
