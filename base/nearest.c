#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

static bool same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Levenshtein's distance with swapped neighbours as one slip ("optimal string alignment"), row by row. */
static size_t distance_between(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][LONGEST + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) above[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t least = above[j - 1] + !same(a[i - 1], b[j - 1]);
            if (above[j] + 1 < least) least = above[j] + 1;
            if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
            if (swapped && before[j - 2] + 1 < least) least = before[j - 2] + 1;
            row[j] = least;
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[b_length];
}

void ups_nearest_try(ups_nearest *nearest, const char *name) {
    const size_t word = strlen(nearest->word), length = strlen(name), allowed = length < 5 ? 1 : 2;
    if (word > LONGEST || length > LONGEST) return;
    size_t distance = distance_between(nearest->word, word, name, length);
    if (word >= 3 && distance > 1 && strncasecmp(nearest->word, name, word) == 0) distance = 1;
    if (distance > allowed || (nearest->name && distance >= nearest->distance)) return;
    nearest->name = name;
    nearest->distance = distance;
}
