/* Log lines for the person watching: one line each on standard error, with the time since the start. Libraries log only
 * through this, only things worth knowing on every run; results go to standard output and are printed by `tools/`. */
#ifndef UPS_BASE_LOG_H
#define UPS_BASE_LOG_H

typedef enum ups_log_level { UPS_LOG_DEBUG, UPS_LOG_INFO, UPS_LOG_WARNING, UPS_LOG_ERROR } ups_log_level;

/* Lines below `level` are dropped. Default: UPS_LOG_INFO, or what UPS_LOG=debug|info|warning|error says. Returns what
 * it was. */
ups_log_level ups_log_set_level(ups_log_level level);

/* Lines from here on begin with "rank N: ", and only warnings and errors are written unless UPS_LOG says otherwise: of
 * processes that do the same, one tells of it. */
void ups_log_tell_rank(int rank);

/* Writes one line, atomically; erases and redraws a progress bar that is on the terminal. Thread-safe. */
void ups_log(ups_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
