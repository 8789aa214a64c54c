/* A cache as one page of HTML that needs nothing but a browser: summary, tables, statistics of the latents, compression
 * by sample, and, where the run's autoencoder is at hand, fields beside what the cache keeps of them. */
#ifndef UPS_TOOLS_REPORT_CACHE_REPORT_H
#define UPS_TOOLS_REPORT_CACHE_REPORT_H

#include "base/json.h"
#include "train/evaluation/reconstruction.h"

typedef struct ups_report_request {
    const char *directory;            /* as it was asked for */
    const json_t *facts;              /* array of what describes each group (cache_facts.h), broken ones included */
    ups_reconstructor *reconstructor; /* NULL: no fields */
    const char *path;
} ups_report_request;

/* Publishes the page at `path`. Time and memory are bounded: some trajectories of each group are decoded, and the page
 * says how many. Errors: those of reading, UPS_ERR_MEMORY, UPS_ERR_CANCELLED. */
ups_status ups_cache_report(const ups_report_request *request, ups_error *error);

#endif
