/* How far a word is from another, for suggestions to who mistyped it. */
#ifndef UPS_BASE_EDIT_DISTANCE_H
#define UPS_BASE_EDIT_DISTANCE_H

#include <stddef.h>

/* Levenshtein's distance: letters inserted, removed or replaced. Words of more than 64 bytes are 64 from every other.
 */
size_t ups_edit_distance(const char *a, const char *b);

#endif
