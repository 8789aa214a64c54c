/* One bar at a time: `active` is the one that is shown; a bar begun while another is active stays silent. Drawing
 * happens inside ups_progress_update, at most ten times a second on a terminal: there is no thread behind it. */
#include "base/progress.h"

#include "base/printable.h"
#include "base/system/terminal.h"
#include "base/system/threads.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, BAR_COLUMNS = 24, SHORTEST_BAR = 6, DEFAULT_COLUMNS = 80 };
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

/* What a line has beside its title and counts, in the order in which it gives way where the terminal is narrow. */
typedef enum detail { BAR, NOTE, PERCENT, BEGINNING, RATE, UNIT, TIME_LEFT, DETAILS } detail;

/* All details from `least` on; the bar with so many columns. */
static void compose(line *l, const ups_progress *p, detail least, int bar_columns) {
    l->length = 0;
    add(l, "%s ", p->title);
    if (p->total >= 0 && least <= BAR) add_bar(l, fraction(p), bar_columns);
    if (p->total >= 0 && least <= PERCENT) add(l, least <= BAR ? " %3d%% " : "%d%% ", (int)(100 * fraction(p)));
    add(l, "%lld", (long long)p->done);
    if (p->total >= 0) add(l, "/%lld", (long long)p->total);
    if (least <= UNIT) add(l, " %s", p->unit);
    if (p->first > 0 && least <= BEGINNING) add(l, " from %lld", (long long)p->first);
    if (p->rate > 0 && least <= RATE) {
        add(l, ", ");
        add_rate(l, p->rate);
    }
    if (p->rate > 0 && p->total > p->done && least <= TIME_LEFT) {
        add(l, ", ");
        add_duration(l, (double)(p->total - p->done) / p->rate);
        add(l, " left");
    }
    if (p->note[0] && least <= NOTE) add(l, ", %s", p->note);
}

static int columns_of(const line *l) {
    int columns = 0;
    for (size_t i = 0; i < l->length; i++) columns += ((unsigned char)l->text[i] & 0xC0) != 0x80;
    return columns;
}

/* The bar is as long as what is left of the line; then one detail after the other goes. */
static void fit(line *l, const ups_progress *p, int columns) {
    compose(l, p, BAR, 0);
    int room = columns - columns_of(l);
    if (room >= SHORTEST_BAR || p->total < 0) {
        compose(l, p, BAR, room < BAR_COLUMNS ? room : BAR_COLUMNS);
        if (columns_of(l) <= columns) return;
    }
    for (detail least = NOTE; least <= DETAILS; least++) {
        compose(l, p, least, 0);
        if (columns_of(l) <= columns) return;
    }
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

static void draw(const ups_progress *p) {
    line l = {.length = 0};
    if (!on_terminal) {
        compose(&l, p, NOTE, 0);
        put(l.text, l.length);
        put("\n", 1);
        return;
    }
    int columns = ups_terminal_columns(STDERR_FILENO);
    columns = (columns > 0 ? columns : DEFAULT_COLUMNS) - 1; /* some terminals wrap when the last one is written */
    fit(&l, p, columns);
    cut(&l, columns);
    put("\r\033[K", 4);
    put(l.text, l.length);
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
        on_terminal = ups_terminal_is_capable(STDERR_FILENO);
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
        const int64_t made = progress->done - progress->first;
        const bool whole = progress->total < 0 || progress->done >= progress->total;
        add(&l, "%s %lld ", progress->title, (long long)made);
        if (progress->first == 0 && !whole) add(&l, "of %lld ", (long long)progress->total);
        add(&l, "%s in ", progress->unit);
        if (elapsed < 10)
            add(&l, "%.2f s", elapsed);
        else
            add_duration(&l, elapsed);
        if (elapsed > 0 && made > 0) {
            add(&l, ", ");
            add_rate(&l, (double)made / elapsed);
        }
        if (progress->first > 0) {
            add(&l, ", from %lld to %lld", (long long)progress->first, (long long)progress->done);
            if (progress->total >= 0) add(&l, " of %lld", (long long)progress->total);
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
