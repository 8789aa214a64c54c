#include "pipeline/storage/placing.h"

#include "pipeline/storage/filters.h"
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Drops axes of one element and joins neighbours that lie in memory as one axis would, on both sides. */
static void simplify(ups_box *shape) {
    int kept = 0;
    for (int axis = 0; axis < shape->rank; axis++) {
        if (shape->count[axis] == 1) continue;
        if (kept > 0 && shape->from_stride[kept - 1] == shape->count[axis] * shape->from_stride[axis] &&
            shape->to_stride[kept - 1] == shape->count[axis] * shape->to_stride[axis]) {
            kept--;
            shape->count[kept] *= shape->count[axis];
        } else {
            shape->count[kept] = shape->count[axis];
        }
        shape->from_stride[kept] = shape->from_stride[axis];
        shape->to_stride[kept] = shape->to_stride[axis];
        kept++;
    }
    if (kept == 0) {
        shape->count[0] = 1;
        shape->from_stride[0] = shape->to_stride[0] = 1;
        kept = 1;
    }
    shape->rank = kept;
}

/* One row, element by element. Inlined with constant sizes and strides where they are common, so that the compiler can
 * unroll. */
static inline __attribute__((always_inline)) void copy_strided(uint8_t *to, int64_t to_stride, const uint8_t *from,
                                                               int64_t from_stride, int64_t count, size_t size,
                                                               bool swapped) {
    for (int64_t i = 0; i < count; i++) {
        if (swapped && size == 4) {
            uint32_t word;
            memcpy(&word, from, 4);
            word = __builtin_bswap32(word);
            memcpy(to, &word, 4);
        } else if (swapped) {
            uint64_t word;
            memcpy(&word, from, 8);
            word = __builtin_bswap64(word);
            memcpy(to, &word, 8);
        } else {
            memcpy(to, from, size);
        }
        to += to_stride * (int64_t)size;
        from += from_stride * (int64_t)size;
    }
}

#if defined(__SSE2__)
/* Every other float of `to` becomes the next of `from`; those between keep what they hold. This is what fields of two
 * channels need whose chunks hold one channel each, as h5py chunks PDEBench's diffusion-reaction. */
static void interleave_floats(float *to, const float *from, int64_t count) {
    const __m128 keep = _mm_castsi128_ps(_mm_set_epi32(-1, 0, -1, 0));
    const __m128 zero = _mm_setzero_ps();
    int64_t i = 0;
    for (; i + 4 < count; i += 4) { /* the very last element has no neighbour that is ours to write */
        __m128 values = _mm_loadu_ps(from + i);
        __m128 low = _mm_and_ps(_mm_loadu_ps(to + 2 * i), keep), high = _mm_and_ps(_mm_loadu_ps(to + 2 * i + 4), keep);
        _mm_storeu_ps(to + 2 * i, _mm_or_ps(low, _mm_unpacklo_ps(values, zero)));
        _mm_storeu_ps(to + 2 * i + 4, _mm_or_ps(high, _mm_unpackhi_ps(values, zero)));
    }
    for (; i < count; i++) memcpy(to + 2 * i, from + i, sizeof *to);
}
#endif

static void copy_row(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t from_stride, int64_t count,
                     ups_element_form form) {
    if (form.packing) {
        ups_unpack(form.packing, form.swapped, from, from_stride * (int64_t)form.stored_size, form.dtype, to,
                   to_stride * (int64_t)form.size, count);
        return;
    }
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)count * form.size);
        if (form.swapped) ups_swap_bytes(to, (size_t)count, form.size);
        return;
    }
#if defined(__SSE2__)
    if (to_stride == 2 && from_stride == 1 && form.size == 4 && !form.swapped) {
        interleave_floats((float *)(void *)to, (const float *)(const void *)from, count);
        return;
    }
#endif
    if (form.size == 4 && form.swapped) {
        copy_strided(to, to_stride, from, from_stride, count, 4, true);
    } else if (form.size == 4) {
        copy_strided(to, to_stride, from, from_stride, count, 4, false);
    } else {
        copy_strided(to, to_stride, from, from_stride, count, 8, form.swapped);
    }
}

static void swap_axes(ups_box *shape, int a, int b) {
    int64_t count = shape->count[a], from = shape->from_stride[a], to = shape->to_stride[a];
    shape->count[a] = shape->count[b];
    shape->from_stride[a] = shape->from_stride[b];
    shape->to_stride[a] = shape->to_stride[b];
    shape->count[b] = count;
    shape->from_stride[b] = from;
    shape->to_stride[b] = to;
}

void ups_box_copy(ups_box *shape, uint8_t *to, const uint8_t *from, ups_element_form form) {
    enum { SHORT_ROW = 8 }; /* the components of a vector, next to a long grid axis */
    simplify(shape);
    int inner = shape->rank - 1;
    if (inner > 0 && shape->count[inner] <= SHORT_ROW && shape->count[inner - 1] > shape->count[inner])
        swap_axes(shape, inner - 1, inner);
    int64_t at[UPS_ARRAY_MAX_RANK] = {0};
    for (;;) {
        copy_row(to, shape->to_stride[inner], from, shape->from_stride[inner], shape->count[inner], form);
        int axis = inner - 1;
        for (; axis >= 0; axis--) {
            to += shape->to_stride[axis] * (int64_t)form.size;
            from += shape->from_stride[axis] * (int64_t)form.stored_size;
            if (++at[axis] < shape->count[axis]) break;
            to -= shape->to_stride[axis] * at[axis] * (int64_t)form.size;
            from -= shape->from_stride[axis] * at[axis] * (int64_t)form.stored_size;
            at[axis] = 0;
        }
        if (axis < 0) return;
    }
}
