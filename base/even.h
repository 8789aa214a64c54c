/* What is evenly spaced: a selection, such as which frames of a trajectory are drawn, and numbers that are. */
#ifndef UPS_BASE_EVEN_H
#define UPS_BASE_EVEN_H

#include <stdbool.h>
#include <stdint.h>

/* Chooses at most `most` of first … last, all the same number apart, and returns how many. They begin with `first`, or,
 * `to_last`, end with `last`; the other end is missed by less than one step. `chosen` has room for `most` (at least
 * one). */
int64_t ups_even_choice(int64_t first, int64_t last, int64_t most, bool to_last, int64_t *chosen);

/* Whether numbers are equally far apart, within a hundredth of a step: those of a file are rounded. False of one
 * number, and of equal ones. */
bool ups_is_even(const double *values, int64_t count);

#endif
