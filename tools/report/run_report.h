/* A run as one page of HTML that needs nothing but a browser: how each stage's training went, what the trained operator
 * does on held-out trajectories, and the configuration. */
#ifndef UPS_TOOLS_REPORT_RUN_REPORT_H
#define UPS_TOOLS_REPORT_RUN_REPORT_H

#include "base/error.h"
#include "base/json.h"
#include "tools/report/html.h"

/* What the page is made of; borrowed. */
typedef struct ups_run_facts {
    const char *run;           /* its directory */
    const json_t *metrics;     /* the lines of metrics.jsonl, a list of objects in their order */
    const json_t *evaluation;  /* the document of `ups eval`; NULL: there is none */
    const char *unevaluated;   /* why, a sentence */
    const char *configuration; /* YAML */
    /* Puts fields on the page, predicted and true; NULL: there are none to show. */
    ups_status (*show_fields)(void *context, ups_html *page, ups_error *error);
    void *context;
} ups_run_facts;

/* Publishes the page at `path`. Where fields cannot be shown, it says why. Errors: UPS_ERR_CANCELLED, UPS_ERR_MEMORY,
 * UPS_ERR_IO. */
ups_status ups_run_report(const ups_run_facts *facts, const char *path, ups_error *error);

#endif
