/* Two runs side by side in a terminal: a comparison (train/run/comparison.h) as tables, which fit in 80 columns. */
#ifndef UPS_TOOLS_REPORT_RUN_TABLE_H
#define UPS_TOOLS_REPORT_RUN_TABLE_H

#include "base/json.h"

/* The keys of their configurations that differ; nothing where these are not known. */
void ups_run_table_print_differences(const json_t *comparison);

/* What both cost and how they learnt, with the ratio; below it machines, where they are unlike, and why losses are not
 * held against each other. */
void ups_run_table_print(const json_t *comparison);

#endif
