/* An evaluation as one page of HTML that needs nothing but a browser: the table of metrics; how error, correlation and
 * means go over time; spectra; the error of each trajectory. */
#ifndef UPS_TOOLS_REPORT_EVALUATION_REPORT_H
#define UPS_TOOLS_REPORT_EVALUATION_REPORT_H

#include "base/error.h"
#include "base/json.h"
#include "tools/report/html.h"

/* Publishes the page of an evaluation's document (what `ups eval --json` prints) at `path`. `subject` says what was
 * evaluated. Errors: UPS_ERR_MEMORY, UPS_ERR_IO. */
ups_status ups_evaluation_report(const json_t *document, const char *subject, const char *path, ups_error *error);

/* The same as sections of a page that has more. */
void ups_evaluation_sections(ups_html *html, const json_t *document);

#endif
