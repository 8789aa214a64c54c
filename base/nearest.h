/* The name that somebody meant who mistyped one: the only judge of that, for commands, options and their values, keys
 * of configurations, tasks, solvers and whatever else has a name.
 *
 *     ups_nearest nearest = {.word = word};
 *     for (…) ups_nearest_try(&nearest, names[i]);
 *     if (nearest.name) … "did you mean '%s'?" … */
#ifndef UPS_BASE_NEAREST_H
#define UPS_BASE_NEAREST_H

#include <stddef.h>

typedef struct ups_nearest {
    const char *word; /* as it was typed */
    const char *name; /* the nearest so far, the first of several; NULL: none is near */
    size_t distance;
} ups_nearest;

/* Near are names with at most two slips of the finger (one in a name of less than five letters): a letter added, left
 * out or replaced, two neighbours swapped; small letters for capitals are none. So are names that begin with the word,
 * from three letters on. Neither word nor name is near where one has more than 64 bytes. */
void ups_nearest_try(ups_nearest *nearest, const char *name);

#endif
