/* Symbolic links as the names of files to be written. What is published by renaming would take the place of a link;
 * whoever put the link there wants its target written. */
#ifndef UPS_BASE_SYSTEM_LINKS_H
#define UPS_BASE_SYSTEM_LINKS_H

#include "base/error.h"

/* Where writing `path` ends up: where its last component leads when that is a symbolic link, through links to links,
 * and also when nothing is there yet; else `path` itself. malloc. Links that lead round in a circle, or that the system
 * does not follow for this user, are UPS_ERR_IO. */
ups_status ups_follow_links(const char *path, char **place, ups_error *error);

#endif
