#include "pipeline/stored_array.h"

#include <stdio.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

int64_t ups_array_elements(const ups_stored_array *array, const ups_region *region) {
    int64_t elements = 1;
    for (int axis = 0; axis < array->rank; axis++) elements *= region ? region->count[axis] : array->shape[axis];
    return elements;
}

uint64_t ups_array_chunk_bytes(const ups_stored_array *array) {
    if (array->storage != UPS_STORAGE_CHUNKED) return 0;
    uint64_t bytes = ups_dtype_size(array->dtype);
    for (int axis = 0; axis < array->rank; axis++) bytes *= (uint64_t)array->chunk_shape[axis];
    return bytes;
}

size_t ups_array_scratch(const ups_stored_array *array) {
    return array->storage == UPS_STORAGE_CHUNKED ? ups_filters_scratch(ups_array_chunk_bytes(array)) : 0;
}

/* ---- walking the chunks of a region -------------------------------------------------------------------------------
 */

typedef struct chunk_walk {
    int64_t first[UPS_ARRAY_MAX_RANK], last[UPS_ARRAY_MAX_RANK]; /* chunk coordinates that the region touches */
    int64_t at[UPS_ARRAY_MAX_RANK];
} chunk_walk;

static void walk_begin(const ups_stored_array *array, const ups_region *region, chunk_walk *walk) {
    for (int axis = 0; axis < array->rank; axis++) {
        walk->first[axis] = region->start[axis] / array->chunk_shape[axis];
        walk->last[axis] = (region->start[axis] + region->count[axis] - 1) / array->chunk_shape[axis];
        walk->at[axis] = walk->first[axis];
    }
}

static bool walk_next(const ups_stored_array *array, chunk_walk *walk) {
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        if (walk->at[axis]++ < walk->last[axis]) return true;
        walk->at[axis] = walk->first[axis];
    }
    return false;
}

static const ups_stored_chunk *chunk_at(const ups_stored_array *array, const int64_t *at) {
    int64_t index = 0;
    for (int axis = 0; axis < array->rank; axis++) index = index * array->chunk_grid[axis] + at[axis];
    return &array->chunks[index];
}

/* ---- extents ------------------------------------------------------------------------------------------------------
 */

/* Elements from the array's start to the region's first, and to one past its last, in row-major order. */
static void contiguous_span(const ups_stored_array *array, const ups_region *region, int64_t *first, int64_t *end) {
    *first = 0;
    *end = 0;
    for (int axis = 0; axis < array->rank; axis++) {
        *first = *first * array->shape[axis] + region->start[axis];
        *end = *end * array->shape[axis] + region->start[axis] + region->count[axis] - 1;
    }
    *end += 1;
}

int64_t ups_array_extents(const ups_stored_array *array, const ups_region *region, ups_extent *extents) {
    if (ups_array_elements(array, region) == 0 || array->storage == UPS_STORAGE_LIBRARY) return 0;
    if (array->storage == UPS_STORAGE_CONTIGUOUS) {
        if (array->offset == UPS_OFFSET_UNWRITTEN) return 0;
        int64_t first, end;
        contiguous_span(array, region, &first, &end);
        uint64_t size = ups_dtype_size(array->dtype);
        if (extents)
            *extents =
                (ups_extent){array->file, array->offset + (uint64_t)first * size, (uint64_t)(end - first) * size};
        return 1;
    }
    int64_t count = 0;
    chunk_walk walk;
    walk_begin(array, region, &walk);
    do {
        const ups_stored_chunk *chunk = chunk_at(array, walk.at);
        if (chunk->offset == UPS_OFFSET_UNWRITTEN) continue;
        if (extents) extents[count] = (ups_extent){array->file, chunk->offset, chunk->length};
        count++;
    } while (walk_next(array, &walk));
    return count;
}

/* ---- placing a box of elements ------------------------------------------------------------------------------------
 */

/* A box to copy, in elements; axes slowest first. */
typedef struct box {
    int rank;
    int64_t count[UPS_ARRAY_MAX_RANK], from_stride[UPS_ARRAY_MAX_RANK], to_stride[UPS_ARRAY_MAX_RANK];
} box;

/* Drops axes of one element and joins neighbours that lie in memory as one axis would, on both sides. */
static void simplify(box *shape) {
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

/* One row, element by element. Inlined with constant strides where they are common, so that the compiler can unroll. */
static inline __attribute__((always_inline)) void copy_strided(uint8_t *to, int64_t to_stride, const uint8_t *from,
                                                               int64_t from_stride, int64_t count, size_t size) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(to, from, size);
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
                     size_t size) {
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)count * size);
        return;
    }
#if defined(__SSE2__)
    if (to_stride == 2 && from_stride == 1 && size == 4) {
        interleave_floats((float *)(void *)to, (const float *)(const void *)from, count);
        return;
    }
#endif
    if (size == 4) {
        copy_strided(to, to_stride, from, from_stride, count, 4);
    } else {
        copy_strided(to, to_stride, from, from_stride, count, 8);
    }
}

static void copy_box(const box *shape, uint8_t *to, const uint8_t *from, size_t size) {
    int inner = shape->rank - 1;
    int64_t at[UPS_ARRAY_MAX_RANK] = {0};
    for (;;) {
        copy_row(to, shape->to_stride[inner], from, shape->from_stride[inner], shape->count[inner], size);
        int axis = inner - 1;
        for (; axis >= 0; axis--) {
            to += shape->to_stride[axis] * (int64_t)size;
            from += shape->from_stride[axis] * (int64_t)size;
            if (++at[axis] < shape->count[axis]) break;
            to -= shape->to_stride[axis] * at[axis] * (int64_t)size;
            from -= shape->from_stride[axis] * at[axis] * (int64_t)size;
            at[axis] = 0;
        }
        if (axis < 0) return;
    }
}

/* Copies the part of the chunk at `at` that lies in the region. `from_step` 0 repeats one element: the fill value. */
static void place_chunk(const ups_stored_array *array, const ups_region *region, const int64_t *at,
                        const uint8_t *chunk, int64_t from_step, uint8_t *out) {
    box shape = {.rank = array->rank};
    int64_t from = 0, to = 0, from_stride = from_step, to_stride = 1;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        int64_t chunk_start = at[axis] * array->chunk_shape[axis];
        int64_t chunk_end = chunk_start + array->chunk_shape[axis];
        int64_t region_end = region->start[axis] + region->count[axis];
        int64_t start = chunk_start > region->start[axis] ? chunk_start : region->start[axis];
        int64_t end = chunk_end < region_end ? chunk_end : region_end;
        shape.count[axis] = end - start;
        shape.from_stride[axis] = from_stride;
        shape.to_stride[axis] = to_stride;
        from += (start - chunk_start) * from_stride;
        to += (start - region->start[axis]) * to_stride;
        from_stride *= array->chunk_shape[axis];
        to_stride *= region->count[axis];
    }
    simplify(&shape);
    size_t size = ups_dtype_size(array->dtype);
    copy_box(&shape, out + (size_t)to * size, chunk + (size_t)from * size, size);
}

/* ---- decode -------------------------------------------------------------------------------------------------------
 */

/* Puts the place of a chunk before the message. */
static void name_chunk(const ups_stored_array *array, const int64_t *at, const ups_stored_chunk *chunk,
                       ups_error *error) {
    char coordinates[128];
    size_t used = 0;
    for (int axis = 0; axis < array->rank && used < sizeof coordinates; axis++) {
        int wrote =
            snprintf(coordinates + used, sizeof coordinates - used, "%s%lld", axis ? ", " : "", (long long)at[axis]);
        if (wrote > 0) used += (size_t)wrote;
    }
    ups_fail_within(error, "chunk (%s) of dataset '%s', %u bytes at offset %llu, cannot be decoded", coordinates,
                    array->name, chunk->length, (unsigned long long)chunk->offset);
}

static void fill_region(const ups_stored_array *array, int64_t elements, uint8_t *out) {
    size_t size = ups_dtype_size(array->dtype);
    for (int64_t i = 0; i < elements; i++) memcpy(out + (size_t)i * size, array->fill, size);
}

static ups_status decode_contiguous(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                                    int64_t count, uint8_t *out, int64_t *used, ups_error *error) {
    int64_t elements = ups_array_elements(array, region);
    *used = 0;
    if (array->offset == UPS_OFFSET_UNWRITTEN) {
        fill_region(array, elements, out);
        return UPS_OK;
    }
    int64_t first, end;
    contiguous_span(array, region, &first, &end);
    size_t size = ups_dtype_size(array->dtype);
    if (count < 1 || pieces[0].length != (uint64_t)(end - first) * size)
        return ups_fail(error, UPS_ERR_ARGUMENT, "dataset '%s': decode was not given the bytes it asked for",
                        array->name);
    *used = 1;
    box shape = {.rank = array->rank};
    int64_t from_stride = 1, to_stride = 1;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        shape.count[axis] = region->count[axis];
        shape.from_stride[axis] = from_stride;
        shape.to_stride[axis] = to_stride;
        from_stride *= array->shape[axis];
        to_stride *= region->count[axis];
    }
    simplify(&shape);
    copy_box(&shape, out, pieces[0].bytes, size);
    return UPS_OK;
}

static ups_status decode_chunks(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                                int64_t count, uint8_t *scratch, uint8_t *out, int64_t *used, ups_error *error) {
    uint64_t chunk_bytes = ups_array_chunk_bytes(array);
    *used = 0;
    chunk_walk walk;
    walk_begin(array, region, &walk);
    do {
        const ups_stored_chunk *chunk = chunk_at(array, walk.at);
        if (chunk->offset == UPS_OFFSET_UNWRITTEN) {
            place_chunk(array, region, walk.at, array->fill, 0, out);
            continue;
        }
        if (*used >= count || pieces[*used].length != chunk->length)
            return ups_fail(error, UPS_ERR_ARGUMENT, "dataset '%s': decode was not given the bytes it asked for",
                            array->name);
        const uint8_t *decoded;
        ups_status status = ups_filters_undo(&array->filters, chunk->mask, pieces[*used].bytes, chunk->length,
                                             chunk_bytes, scratch, &decoded, error);
        if (status != UPS_OK) {
            name_chunk(array, walk.at, chunk, error);
            return status;
        }
        place_chunk(array, region, walk.at, decoded, 1, out);
        ++*used;
    } while (walk_next(array, &walk));
    return UPS_OK;
}

ups_status ups_array_decode(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                            int64_t count, void *scratch, void *out, int64_t *used, ups_error *error) {
    *used = 0;
    int64_t elements = ups_array_elements(array, region);
    if (elements == 0) return UPS_OK;
    if (array->storage == UPS_STORAGE_LIBRARY) return array->read_through(array, region, out, error);
    if (array->storage == UPS_STORAGE_CONTIGUOUS) {
        UPS_TRY(decode_contiguous(array, region, pieces, count, out, used, error));
    } else {
        UPS_TRY(decode_chunks(array, region, pieces, count, scratch, out, used, error));
    }
    if (array->swapped) ups_swap_bytes(out, (size_t)elements, ups_dtype_size(array->dtype));
    return UPS_OK;
}
