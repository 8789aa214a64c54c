#include "base/edit_distance.h"

#include <string.h>

size_t ups_edit_distance(const char *a, const char *b) {
    enum { LONGEST = 64 };
    size_t row[LONGEST + 1], a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST) return LONGEST;
    for (size_t j = 0; j <= b_length; j++) row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            size_t shorter = row[j - 1] < row[j] ? row[j - 1] + 1 : row[j] + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[b_length];
}
