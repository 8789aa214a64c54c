/* One group's section of the cache's page. For cache_report.c alone. */
#ifndef UPS_TOOLS_REPORT_CACHE_GROUP_H
#define UPS_TOOLS_REPORT_CACHE_GROUP_H

#include "base/json.h"
#include "tools/report/html.h"
#include "train/evaluation/reconstruction.h"

/* `id` is the section's anchor; `facts` are the group's; `reconstructor` may be NULL. */
ups_status ups_report_group(ups_html *html, const char *id, const json_t *facts, ups_reconstructor *reconstructor,
                            ups_error *error);

#endif
