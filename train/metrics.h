/* Metrics of a run: output/metrics.jsonl, one JSON object a line, and beside it the same for TensorBoard
 * (event_file.h). A resumed run first drops the lines of steps that it will do again. */
#ifndef UPS_TRAIN_METRICS_H
#define UPS_TRAIN_METRICS_H

#include "base/error.h"
#include "base/json.h"
#include <stdint.h>

typedef struct ups_metrics ups_metrics;

/* Opens for appending; lines of `stage` beyond `step` are removed first (at step 0, all). Errors name the file. */
ups_status ups_metrics_open(const char *path, const char *stage, int64_t step, ups_metrics **metrics, ups_error *error);
/* Writes one line and takes the reference to `line`, which gets the `time` (UTC, ISO 8601). Numbers that are not finite
 * become null. */
ups_status ups_metrics_write(ups_metrics *metrics, json_t *line, ups_error *error);
void ups_metrics_close(ups_metrics *metrics); /* NULL is fine */

/* All lines of a metrics.jsonl in their order, a new list; an absent file has none. What is no JSON object is left out:
 * a run that is training may be writing the last line. Errors name the file. */
ups_status ups_metrics_read(const char *path, json_t **lines, ups_error *error);

/* The event file beside a metrics.jsonl that took the place of another one tells of its lines. */
ups_status ups_metrics_show(const char *path, ups_error *error);

json_t *ups_json_number(double value); /* a real, or null where it is not finite */

#endif
