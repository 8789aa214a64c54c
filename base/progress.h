/* Progress of long work: a bar with rate and time left on a terminal; a plain line every few seconds elsewhere; nothing
 * with --quiet or
 * --json. Written to standard error. One bar at a time; thread-safe. */
#ifndef UPS_BASE_PROGRESS_H
#define UPS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ups_progress ups_progress;

void ups_progress_enable(bool on); /* default: on */

/* `unit` names what is counted, plural: "trajectories", "steps". `total` < 0 when unknown; `done` where a resumed run
 * starts. */
ups_progress *ups_progress_begin(const char *title, const char *unit, int64_t total, int64_t done);
void ups_progress_update(ups_progress *progress, int64_t done,
                         const char *note);    /* `note`: short text after the bar, or NULL */
void ups_progress_end(ups_progress *progress); /* leaves a last line with the total time and mean rate; frees */

/* For ups_log: erase the bar before a line is written, redraw after it. */
void ups_progress_hide(void);
void ups_progress_show(void);

#endif
