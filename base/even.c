#include "base/even.h"

#include <math.h>

int64_t ups_even_choice(int64_t first, int64_t last, int64_t most, bool to_last, int64_t *chosen) {
    int64_t intervals = last - first, step = 1, count;
    if (most == 1 || intervals == 0) {
        chosen[0] = to_last ? last : first;
        return 1;
    }
    if (intervals > most - 1) {
        step = intervals / (most - 1);
        if (intervals - step * (most - 1) >= step) step = (intervals + most - 2) / (most - 1);
    }
    count = intervals / step + 1;
    if (to_last) first = last - step * (count - 1);
    for (int64_t i = 0; i < count; i++) chosen[i] = first + i * step;
    return count;
}

bool ups_is_even(const double *values, int64_t count) {
    double step = count > 1 ? (values[count - 1] - values[0]) / (double)(count - 1) : 0;
    for (int64_t i = 0; i < count && step != 0; i++) {
        if (!(fabs(values[i] - values[0] - step * (double)i) <= 0.01 * fabs(step))) return false;
    }
    return step != 0;
}
