/* One bar at a time: `active` is the one that is shown; a bar begun while another is active stays silent. Drawing
 * happens inside ups_progress_update, at most ten times a second on a terminal: there is no thread behind it. */
#include "base/progress.h"

#include "base/printable.h"
#include "base/system/threads.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, BAR_COLUMNS = 24, DEFAULT_COLUMNS = 80 };
static const double redraw_seconds = 0.1, plain_seconds = 10.0;
static const double rate_memory = 10.0; /* seconds over which the rate shown is averaged */

struct ups_progress {
    char title[80], unit[40], note[160];
    int64_t total, done, first; /* `first`: where a resumed run started */
    double begun, drawn;        /* times */
    double rate, rate_time;     /* units a second, as of rate_time */
    int64_t rate_done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below, and the members of the active bar */
static atomic_bool enabled = true;
static ups_progress *active;
static bool on_terminal, hidden;

void ups_progress_enable(bool on) {
    atomic_store(&enabled, on);
}

static void put(const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}

/* A line under construction; what does not fit is dropped. */
typedef struct line {
    char text[LINE_BYTES];
    size_t length;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(l->text + l->length, sizeof l->text - l->length, format, args);
    va_end(args);
    if (wanted > 0) l->length += (size_t)wanted;
    if (l->length > sizeof l->text - 1) l->length = sizeof l->text - 1;
}

static void add_duration(line *l, double seconds) {
    long long whole = (long long)(seconds + 0.5);
    if (whole >= 3600)
        add(l, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        add(l, "%lld:%02lld", whole / 60, whole % 60);
}

static void add_rate(line *l, double rate) {
    if (rate >= 100)
        add(l, "%.0f/s", rate);
    else
        add(l, "%.3g/s", rate);
}

static double fraction(const ups_progress *p) {
    if (p->total <= 0) return p->total == 0 ? 1.0 : 0.0;
    double f = (double)p->done / (double)p->total;
    return f < 0 ? 0 : f > 1 ? 1 : f;
}

/* ████▌     , in eighths of a column. */
static void add_bar(line *l, double filled, int columns) {
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int total = (int)(filled * columns * 8);
    for (int column = 0; column < columns; column++) {
        int part = total - 8 * column;
        add(l, "%s", eighths[part < 0 ? 0 : part > 8 ? 8 : part]);
    }
}

static void add_counts(line *l, const ups_progress *p) {
    if (p->total >= 0)
        add(l, "%lld/%lld %s", (long long)p->done, (long long)p->total, p->unit);
    else
        add(l, "%lld %s", (long long)p->done, p->unit);
    if (p->rate > 0) {
        add(l, ", ");
        add_rate(l, p->rate);
        if (p->total > p->done) {
            add(l, ", ");
            add_duration(l, (double)(p->total - p->done) / p->rate);
            add(l, " left");
        }
    }
    if (p->note[0]) add(l, ", %s", p->note);
}

/* Cuts UTF-8 text to a number of columns; every code point used here is one column wide. */
static void cut(line *l, int columns) {
    int seen = 0;
    for (size_t i = 0; i < l->length; i++) {
        if (((unsigned char)l->text[i] & 0xC0) == 0x80) continue; /* continues a code point */
        if (seen++ < columns) continue;
        l->length = i;
        return;
    }
}

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : DEFAULT_COLUMNS;
}

static void draw(const ups_progress *p) {
    line l = {.length = 0};
    add(&l, "%s ", p->title);
    if (on_terminal) {
        if (p->total >= 0) {
            add_bar(&l, fraction(p), BAR_COLUMNS);
            add(&l, " %3d%% ", (int)(100 * fraction(p)));
        }
        add_counts(&l, p);
        cut(&l, terminal_columns() - 1); /* the last column stays free: some terminals wrap when it is written */
        put("\r\033[K", 4);
        put(l.text, l.length);
        return;
    }
    if (p->total >= 0) add(&l, "%d%% ", (int)(100 * fraction(p)));
    add_counts(&l, p);
    put(l.text, l.length);
    put("\n", 1);
}

static void erase(void) {
    if (on_terminal) put("\r\033[K", 4);
}

static void update_rate(ups_progress *p, double now) {
    double elapsed = now - p->rate_time;
    if (elapsed <= 0 || p->done == p->rate_done) return;
    double recent = (double)(p->done - p->rate_done) / elapsed;
    double weight = p->rate > 0 ? 1 - exp(-elapsed / rate_memory) : 1;
    p->rate += weight * (recent - p->rate);
    p->rate_time = now;
    p->rate_done = p->done;
}

static void copy_text(char *to, size_t size, const char *from) {
    ups_printable(from ? from : "", from ? strlen(from) : 0, to, size);
}

ups_progress *ups_progress_begin(const char *title, const char *unit, int64_t total, int64_t done) {
    ups_progress *p = calloc(1, sizeof *p);
    if (!p) return NULL; /* work goes on without a bar */
    copy_text(p->title, sizeof p->title, title);
    copy_text(p->unit, sizeof p->unit, unit);
    p->total = total;
    p->done = p->first = p->rate_done = done;
    p->begun = p->rate_time = p->drawn = ups_now();
    pthread_mutex_lock(&lock);
    if (!active && atomic_load(&enabled)) {
        active = p;
        on_terminal = isatty(STDERR_FILENO);
        if (on_terminal && !hidden) draw(p);
    }
    pthread_mutex_unlock(&lock);
    return p;
}

void ups_progress_update(ups_progress *progress, int64_t done, const char *note) {
    if (!progress) return;
    pthread_mutex_lock(&lock);
    progress->done = done;
    double now = ups_now();
    if (progress == active && now - progress->drawn >= (on_terminal ? redraw_seconds : plain_seconds)) {
        copy_text(progress->note, sizeof progress->note, note);
        update_rate(progress, now);
        progress->drawn = now;
        if (!hidden) draw(progress);
    }
    pthread_mutex_unlock(&lock);
}

void ups_progress_end(ups_progress *progress) {
    if (!progress) return;
    pthread_mutex_lock(&lock);
    if (progress == active) {
        double elapsed = ups_now() - progress->begun;
        line l = {.length = 0};
        add(&l, "%s %lld %s in ", progress->title, (long long)progress->done, progress->unit);
        if (elapsed < 10)
            add(&l, "%.2f s", elapsed);
        else
            add_duration(&l, elapsed);
        if (elapsed > 0 && progress->done > progress->first) {
            add(&l, ", ");
            add_rate(&l, (double)(progress->done - progress->first) / elapsed);
        }
        erase();
        put(l.text, l.length);
        put("\n", 1);
        active = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(progress);
}

void ups_progress_hide(void) {
    pthread_mutex_lock(&lock);
    hidden = true;
    if (active) erase();
    pthread_mutex_unlock(&lock);
}

void ups_progress_show(void) {
    pthread_mutex_lock(&lock);
    hidden = false;
    if (active && on_terminal) draw(active);
    pthread_mutex_unlock(&lock);
}
