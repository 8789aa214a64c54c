/* How far apart two words are, for suggestions. */
#ifndef UPS_BASE_EDIT_DISTANCE_H
#define UPS_BASE_EDIT_DISTANCE_H

#include <stddef.h>

/* Levenshtein's distance: letters to insert, leave out or replace. 64 where a word is longer than 64 bytes. */
size_t ups_edit_distance(const char *a, const char *b);

#endif
