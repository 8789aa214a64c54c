/* Windows of a grid of tokens, in which attention stays: every axis is cut into lengths of a window, the first cut a
 * shift behind the grid's beginning. Along a periodic axis what is left at the end goes on at the beginning; along any
 * other the first and the last window are shorter. A window as long as the axis is never cut. */
#ifndef UPS_MODEL_CPU_WINDOWS_H
#define UPS_MODEL_CPU_WINDOWS_H

#include "model/cpu/vector.h"

typedef struct windows {
    int dims; /* 0: one window of all tokens */
    bool periodic;
    int64_t cells[3], size[3], shift[3], count[3];
    int64_t all, most;        /* windows; tokens of the largest */
    int64_t offsets, step[3]; /* places of one token seen from another, (2 size − 1) an axis, row-major */
    int64_t centre;           /* of those the one of a token seen from itself */
} windows;

static inline windows windows_of(const ups_op_attributes *a, int64_t tokens) {
    windows w = {.dims = a->dims, .periodic = a->periodic, .all = 1, .most = a->dims ? 1 : tokens, .offsets = 1};
    for (int axis = w.dims - 1; axis >= 0; axis--) {
        int64_t n = w.cells[axis] = a->grid[axis], size = w.size[axis] = a->patch[axis];
        bool whole = size >= n, leading;
        w.shift[axis] = whole ? 0 : a->shift[axis];
        leading = !w.periodic && w.shift[axis] > 0; /* a window before the first cut */
        w.count[axis] = leading ? 1 + ups_div_up(n - w.shift[axis], size) : ups_div_up(n, size);
        w.all *= w.count[axis];
        w.most *= ups_min(size, n);
        w.step[axis] = w.offsets;
        w.centre += (size - 1) * w.step[axis];
        w.offsets *= 2 * size - 1;
    }
    return w;
}

/* Where window `index` of an axis begins, and its length. */
static inline int64_t window_start(const windows *w, int axis, int64_t index, int64_t *length) {
    int64_t n = w->cells[axis], size = w->size[axis], shift = w->shift[axis], start = index * size;
    if (!w->periodic && shift > 0) start -= size - shift;
    if (w->periodic) {
        *length = ups_min(size, n - start);
        return start + shift;
    }
    *length = ups_min(start + size, n) - (start > 0 ? start : 0);
    return start > 0 ? start : 0;
}

/* The tokens of window `index` of a grid, and codes of their places: seen from token j, token i lies at code[i] −
 * code[j] + centre. Returns how many there are. */
static inline int64_t windows_list(const windows *w, int64_t index, int32_t *token, int32_t *code) {
    int64_t start[3] = {0}, length[3] = {1, 1, 1}, count = 1;
    for (int axis = w->dims - 1; axis >= 0; axis--) {
        start[axis] = window_start(w, axis, index % w->count[axis], &length[axis]);
        index /= w->count[axis];
        count *= length[axis];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, stride = 1, at = 0, place = 0;
        for (int axis = w->dims - 1; axis >= 0; axis--) {
            int64_t local = rest % length[axis];
            at += (start[axis] + local) % w->cells[axis] * stride;
            place += local * w->step[axis];
            stride *= w->cells[axis];
            rest /= length[axis];
        }
        token[i] = (int32_t)at;
        code[i] = (int32_t)place;
    }
    return count;
}

#endif
