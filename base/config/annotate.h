/* A new configuration as text for people: each key with what its table says of it. */
#ifndef UPS_BASE_CONFIG_ANNOTATE_H
#define UPS_BASE_CONFIG_ANNOTATE_H

#include "base/config/document.h"
#include "base/config/table.h"

/* Writes the document `root` as YAML, in its order, with the help of each key in a comment above it (of a list's items:
 * of the first one's keys). `heading`: comment lines at the top, without their '#'. Free *text with free(). */
ups_status ups_config_annotate(const ups_config_schema *schema, const ups_yaml *root, const char *heading, char **text,
                               ups_error *error);

#endif
