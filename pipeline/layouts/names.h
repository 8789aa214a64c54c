/* What a dimension's or an array's name alone says. */
#ifndef UPS_PIPELINE_LAYOUTS_NAMES_H
#define UPS_PIPELINE_LAYOUTS_NAMES_H

#include <stdbool.h>

bool ups_name_is_time(const char *name);    /* "time", "t", "nt", "frames", … */
bool ups_name_is_sample(const char *name);  /* "sample", "run", "member", … */
bool ups_name_is_channel(const char *name); /* "channel", "component", … */

#endif
