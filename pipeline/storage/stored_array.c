#include "pipeline/storage/stored_array.h"

#include "base/arena.h"
#include "base/files.h"
#include "pipeline/storage/placing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t ups_array_elements(const ups_stored_array *array, const ups_region *region) {
    int64_t elements = 1;
    for (int axis = 0; axis < array->rank; axis++) elements *= region ? region->count[axis] : array->shape[axis];
    return elements;
}

size_t ups_array_stored_size(const ups_stored_array *array) {
    return array->packing ? ups_number_size(array->packing->number) : ups_dtype_size(array->dtype);
}

uint64_t ups_array_chunk_bytes(const ups_stored_array *array) {
    if (array->storage != UPS_STORAGE_CHUNKED) return 0;
    uint64_t bytes = ups_array_stored_size(array);
    for (int axis = 0; axis < array->rank; axis++) bytes *= (uint64_t)array->chunk_shape[axis];
    return bytes;
}

/* What the library reads at a time where its elements do not stay next to each other: the array's last axes, from
 * `first_axis` on. */
typedef struct library_slab {
    int first_axis;
    size_t bytes;
} library_slab;

static library_slab find_slab(const ups_stored_array *array) {
    static const size_t enough = (size_t)4 << 20; /* a call of the library costs little beside that many bytes */
    library_slab slab = {array->rank, ups_dtype_size(array->dtype)};
    while (slab.first_axis > 0) {
        size_t larger = slab.bytes * (size_t)array->shape[slab.first_axis - 1];
        if (larger > enough && slab.first_axis < array->rank) break;
        slab.bytes = larger;
        slab.first_axis--;
    }
    return slab;
}

size_t ups_array_scratch(const ups_stored_array *array) {
    if (array->storage == UPS_STORAGE_CHUNKED) return ups_filters_scratch(ups_array_chunk_bytes(array));
    return array->storage == UPS_STORAGE_LIBRARY ? find_slab(array).bytes : 0;
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

static int64_t chunk_number(const ups_stored_array *array, const int64_t *at) {
    int64_t number = 0;
    for (int axis = 0; axis < array->rank; axis++) number = number * array->chunk_grid[axis] + at[axis];
    return number;
}

/* The same with `shared_axis` first, so that the chunks of a row of samples follow each other. */
static int64_t shared_number(const ups_stored_array *array, const int64_t *at) {
    int64_t number = at[array->shared_axis];
    for (int axis = 0; axis < array->rank; axis++) {
        if (axis != array->shared_axis) number = number * array->chunk_grid[axis] + at[axis];
    }
    return number;
}

static const ups_stored_chunk *chunk_at(const ups_stored_array *array, const int64_t *at) {
    return &array->chunks[chunk_number(array, at)];
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

/* Elements of the chunk at `at` from its first that the region needs to one past the last. Where no filter was applied
 * only these are read: a chunk may hold rows of many samples. */
static void chunk_span(const ups_stored_array *array, const ups_region *region, const int64_t *at,
                       const ups_stored_chunk *chunk, int64_t *first, int64_t *end) {
    int64_t elements = (int64_t)(ups_array_chunk_bytes(array) / ups_array_stored_size(array));
    *first = 0;
    *end = elements;
    if (ups_filters_any(&array->filters) || chunk->length != ups_array_chunk_bytes(array)) return;
    *end = 0;
    for (int axis = 0; axis < array->rank; axis++) {
        int64_t chunk_start = at[axis] * array->chunk_shape[axis],
                region_end = region->start[axis] + region->count[axis];
        int64_t start = region->start[axis] > chunk_start ? region->start[axis] - chunk_start : 0;
        int64_t stop = region_end - chunk_start;
        if (stop > array->chunk_shape[axis]) stop = array->chunk_shape[axis];
        *first = *first * array->chunk_shape[axis] + start;
        *end = *end * array->chunk_shape[axis] + stop - 1;
    }
    *end += 1;
}

/* The bytes of a chunk that the region needs: all as stored, or the span of one without filters. */
static ups_extent chunk_extent(const ups_stored_array *array, const ups_region *region, const int64_t *at,
                               const ups_stored_chunk *chunk, int64_t *first) {
    int64_t end;
    uint64_t size = ups_array_stored_size(array), all = ups_array_chunk_bytes(array);
    chunk_span(array, region, at, chunk, first, &end);
    uint64_t length = (uint64_t)(end - *first) * size;
    if (length == all) length = chunk->length;
    uint32_t file = array->chunk_files ? array->chunk_files[chunk - array->chunks] : array->file;
    return (ups_extent){file, chunk->offset + (uint64_t)*first * size, length};
}

/* The leading axes along which each entry is an extent of its own. */
static int run_axes(const ups_stored_array *array) {
    return array->storage == UPS_STORAGE_RECORDS && array->run_axes < 1 ? 1 : array->run_axes;
}

uint64_t ups_array_axis_stride(const ups_stored_array *array, int axis) {
    if (array->storage == UPS_STORAGE_RECORDS && axis == 0) return array->record_stride;
    uint64_t stride = ups_array_stored_size(array);
    for (int inner = axis + 1; inner < array->rank; inner++) stride *= (uint64_t)array->shape[inner];
    return stride;
}

/* The runs of a region, one after the other: a run is what lies in one entry of every run axis. */
typedef struct run_walk {
    int axes;
    ups_region part;    /* of a run, which then counts as the first */
    int64_t count;      /* of all runs */
    int64_t first, end; /* elements from the run's start that the region needs */
    int64_t at[UPS_ARRAY_MAX_RANK];
    uint64_t offset; /* bytes from the array's start to the run's */
} run_walk;

static void runs_begin(const ups_stored_array *array, const ups_region *region, run_walk *walk) {
    *walk = (run_walk){.axes = run_axes(array), .part = *region, .count = 1};
    for (int axis = 0; axis < walk->axes; axis++) {
        walk->count *= region->count[axis];
        walk->part.start[axis] = 0;
        walk->part.count[axis] = 1;
        walk->offset += (uint64_t)region->start[axis] * ups_array_axis_stride(array, axis);
    }
    contiguous_span(array, &walk->part, &walk->first, &walk->end);
}

static void runs_next(const ups_stored_array *array, const ups_region *region, run_walk *walk) {
    for (int axis = walk->axes - 1; axis >= 0; axis--) {
        walk->offset += ups_array_axis_stride(array, axis);
        if (++walk->at[axis] < region->count[axis]) return;
        walk->offset -= (uint64_t)walk->at[axis] * ups_array_axis_stride(array, axis);
        walk->at[axis] = 0;
    }
}

/* One extent a run. */
static int64_t run_extents(const ups_stored_array *array, const ups_region *region, ups_extent *extents) {
    if (array->offset == UPS_OFFSET_UNWRITTEN) return 0;
    const uint64_t size = ups_array_stored_size(array);
    run_walk walk;
    runs_begin(array, region, &walk);
    for (int64_t r = 0; extents && r < walk.count; r++, runs_next(array, region, &walk)) {
        uint64_t first = array->offset + walk.offset + (uint64_t)walk.first * size;
        extents[r] = (ups_extent){array->file, first, (uint64_t)(walk.end - walk.first) * size};
    }
    return walk.count;
}

int64_t ups_array_extents(const ups_stored_array *array, const ups_region *region, ups_extent *extents) {
    if (ups_array_elements(array, region) == 0) return 0;
    if (array->storage == UPS_STORAGE_LIBRARY || array->storage == UPS_STORAGE_MEMORY) return 0;
    if (array->storage != UPS_STORAGE_CHUNKED) return run_extents(array, region, extents);
    int64_t count = 0;
    chunk_walk walk;
    walk_begin(array, region, &walk);
    do {
        const ups_stored_chunk *chunk = chunk_at(array, walk.at);
        if (chunk->offset == UPS_OFFSET_UNWRITTEN) continue;
        int64_t first;
        if (extents) extents[count] = chunk_extent(array, region, walk.at, chunk, &first);
        count++;
    } while (walk_next(array, &walk));
    return count;
}

static ups_element_form form_of(const ups_stored_array *array) {
    return (ups_element_form){ups_dtype_size(array->dtype), ups_array_stored_size(array), array->swapped,
                              array->packing, array->dtype};
}

/* Copies the part of the chunk at `at` that lies in the region. `chunk` holds its elements from number `first` on;
 * `from_step` 0 repeats one element: the fill value. */
static void place_chunk(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                        const int64_t *at, const uint8_t *chunk, int64_t first, int64_t from_step, uint8_t *out) {
    ups_box shape = {.rank = array->rank};
    int64_t from = -first, to = 0, from_stride = from_step;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        int64_t chunk_start = at[axis] * array->chunk_shape[axis];
        int64_t chunk_end = chunk_start + array->chunk_shape[axis];
        int64_t region_end = region->start[axis] + region->count[axis];
        int64_t start = chunk_start > region->start[axis] ? chunk_start : region->start[axis];
        int64_t end = chunk_end < region_end ? chunk_end : region_end;
        shape.count[axis] = end - start;
        shape.from_stride[axis] = from_stride;
        shape.to_stride[axis] = strides[axis];
        from += (start - chunk_start) * from_stride;
        to += (start - region->start[axis]) * strides[axis];
        from_stride *= array->chunk_shape[axis];
    }
    ups_element_form form = form_of(array);
    ups_box_copy(&shape, out + to * (int64_t)form.size, chunk + from * (int64_t)form.stored_size, form);
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

/* Copies a region whose elements lie at `from` as the array's own shape says, or are all the one at `from`. */
static void place_region(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                         const uint8_t *from, const int64_t *from_shape, int64_t from_step, uint8_t *out) {
    ups_box shape = {.rank = array->rank};
    int64_t from_stride = from_step;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        shape.count[axis] = region->count[axis];
        shape.from_stride[axis] = from_stride;
        shape.to_stride[axis] = strides[axis];
        from_stride *= from_shape[axis];
    }
    ups_box_copy(&shape, out, from, form_of(array));
}

static ups_status decode_runs(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                              const ups_piece *pieces, int64_t count, uint8_t *out, int64_t *used, ups_error *error) {
    if (array->offset == UPS_OFFSET_UNWRITTEN) {
        place_region(array, region, strides, array->fill, array->shape, 0, out);
        return UPS_OK;
    }
    run_walk walk;
    runs_begin(array, region, &walk);
    const uint64_t bytes = (uint64_t)(walk.end - walk.first) * ups_array_stored_size(array);
    for (int64_t r = 0; r < walk.count; r++, runs_next(array, region, &walk)) {
        if (r >= count || pieces[r].length != bytes)
            return ups_fail(error, UPS_ERR_ARGUMENT, "dataset '%s': decode was not given the bytes it asked for",
                            array->name);
        int64_t to = 0;
        for (int axis = 0; axis < walk.axes; axis++) to += walk.at[axis] * strides[axis];
        place_region(array, &walk.part, strides, pieces[r].bytes, array->shape, 1,
                     out + to * (int64_t)ups_dtype_size(array->dtype));
    }
    *used = walk.count;
    return UPS_OK;
}

static ups_status decode_memory(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                                uint8_t *out, ups_error *error) {
    const uint8_t *bytes;
    int64_t first, end;
    UPS_TRY(array->in_memory(array, &bytes, error));
    contiguous_span(array, region, &first, &end);
    place_region(array, region, strides, bytes + (size_t)first * ups_array_stored_size(array), array->shape, 1, out);
    return UPS_OK;
}

/* Undoes the filters of a chunk that is given whole; *decoded points into scratch, or is what was given. */
static ups_status undo_filters(const ups_stored_array *array, const int64_t *at, const uint8_t *stored,
                               uint8_t *scratch, const uint8_t **decoded, ups_error *error) {
    const ups_stored_chunk *chunk = chunk_at(array, at);
    ups_status status = ups_filters_undo(&array->filters, chunk->mask, stored, chunk->length,
                                         ups_array_chunk_bytes(array), scratch, decoded, error);
    if (status != UPS_OK) name_chunk(array, at, chunk, error);
    return status;
}

/* Decodes a chunk into the place that was taken for it, and says so. */
static ups_status fill_shared(const ups_stored_array *array, const int64_t *at, const uint8_t *stored, uint8_t *scratch,
                              uint8_t *place, ups_error *error) {
    const uint8_t *decoded;
    ups_status status = undo_filters(array, at, stored, scratch, &decoded, error);
    if (status == UPS_OK) memcpy(place, decoded, ups_array_chunk_bytes(array));
    ups_shared_chunks_filled(array->shared, shared_number(array, at), status == UPS_OK);
    return status;
}

/* Fills places of the region's chunks that nobody else is filling: threads whose samples lie in the same chunks share
 * the work this way before each takes what it needs. */
static ups_status fill_untaken(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                               int64_t count, uint8_t *scratch, ups_error *error) {
    int64_t used = 0;
    chunk_walk walk;
    walk_begin(array, region, &walk);
    do {
        const ups_stored_chunk *chunk = chunk_at(array, walk.at);
        if (chunk->offset == UPS_OFFSET_UNWRITTEN) continue;
        if (used == count) return UPS_OK; /* told by whoever takes them */
        const ups_piece *piece = &pieces[used++];
        uint8_t *place;
        if (piece->length != chunk->length) continue;
        int64_t number = shared_number(array, walk.at);
        ups_shared_chunk taken = ups_shared_chunks_take(array->shared, number, false, &place);
        if (taken == UPS_SHARED_THERE) ups_shared_chunks_release(array->shared, number);
        if (taken == UPS_SHARED_FILL) UPS_TRY(fill_shared(array, walk.at, piece->bytes, scratch, place, error));
    } while (walk_next(array, &walk));
    return UPS_OK;
}

/* Places the region's part of a chunk that is given whole, from where decoded chunks are shared if it is there. */
static ups_status place_whole(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                              const int64_t *at, const uint8_t *stored, uint8_t *scratch, uint8_t *out,
                              ups_error *error) {
    int64_t number = shared_number(array, at);
    uint8_t *place = NULL;
    ups_shared_chunk taken = UPS_SHARED_REFUSED;
    if (array->shared) taken = ups_shared_chunks_take(array->shared, number, true, &place);
    if (taken == UPS_SHARED_FILL) { /* it had to make room since it was filled, or its filling failed */
        UPS_TRY(fill_shared(array, at, stored, scratch, place, error));
        taken = ups_shared_chunks_take(array->shared, number, true, &place);
        if (taken == UPS_SHARED_FILL) ups_shared_chunks_filled(array->shared, number, false);
    }
    const uint8_t *decoded = place;
    if (taken != UPS_SHARED_THERE) UPS_TRY(undo_filters(array, at, stored, scratch, &decoded, error));
    place_chunk(array, region, strides, at, decoded, 0, 1, out);
    if (taken == UPS_SHARED_THERE) ups_shared_chunks_release(array->shared, number);
    return UPS_OK;
}

static ups_status decode_chunks(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                                const ups_piece *pieces, int64_t count, uint8_t *scratch, uint8_t *out, int64_t *used,
                                ups_error *error) {
    if (array->shared) UPS_TRY(fill_untaken(array, region, pieces, count, scratch, error));
    chunk_walk walk;
    walk_begin(array, region, &walk);
    do {
        const ups_stored_chunk *chunk = chunk_at(array, walk.at);
        if (chunk->offset == UPS_OFFSET_UNWRITTEN) {
            place_chunk(array, region, strides, walk.at, array->fill, 0, 0, out);
            continue;
        }
        int64_t first;
        ups_extent extent = chunk_extent(array, region, walk.at, chunk, &first);
        if (*used >= count || pieces[*used].length != extent.length)
            return ups_fail(error, UPS_ERR_ARGUMENT, "dataset '%s': decode was not given the bytes it asked for",
                            array->name);
        const uint8_t *stored = pieces[(*used)++].bytes;
        if (extent.length == chunk->length)
            UPS_TRY(place_whole(array, region, strides, walk.at, stored, scratch, out, error));
        else
            place_chunk(array, region, strides, walk.at, stored, first, 1, out);
    } while (walk_next(array, &walk));
    return UPS_OK;
}

/* Reads slab by slab into scratch, and places each. The library puts bytes into our order by itself. */
static ups_status decode_library(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                                 void *scratch, uint8_t *out, ups_error *error) {
    ups_stored_array native = *array;
    native.swapped = false;
    int inner = find_slab(array).first_axis;
    ups_region slab = *region;
    for (int axis = 0; axis < inner; axis++) slab.count[axis] = 1;
    size_t size = ups_dtype_size(array->dtype);
    for (;;) {
        int64_t to = 0;
        for (int axis = 0; axis < inner; axis++) to += (slab.start[axis] - region->start[axis]) * strides[axis];
        UPS_TRY(array->read_through(array, &slab, scratch, error));
        place_region(&native, &slab, strides, scratch, slab.count, 1, out + to * (int64_t)size);
        int axis = inner - 1;
        for (; axis >= 0; axis--) {
            if (++slab.start[axis] < region->start[axis] + region->count[axis]) break;
            slab.start[axis] = region->start[axis];
        }
        if (axis < 0) return UPS_OK;
    }
}

static bool are_contiguous(const ups_stored_array *array, const ups_region *region, const int64_t *strides) {
    int64_t stride = 1;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        if (region->count[axis] > 1 && strides[axis] != stride) return false;
        stride *= region->count[axis];
    }
    return true;
}

ups_status ups_array_decode_strided(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                                    const ups_piece *pieces, int64_t count, void *scratch, void *out, int64_t *used,
                                    ups_error *error) {
    *used = 0;
    if (ups_array_elements(array, region) == 0) return UPS_OK;
    if (array->storage == UPS_STORAGE_CONTIGUOUS || array->storage == UPS_STORAGE_RECORDS)
        return decode_runs(array, region, strides, pieces, count, out, used, error);
    if (array->storage == UPS_STORAGE_MEMORY) return decode_memory(array, region, strides, out, error);
    if (array->storage == UPS_STORAGE_CHUNKED)
        return decode_chunks(array, region, strides, pieces, count, scratch, out, used, error);
    if (!are_contiguous(array, region, strides)) return decode_library(array, region, strides, scratch, out, error);
    UPS_TRY(array->read_through(array, region, out, error));
    int64_t size = (int64_t)ups_dtype_size(array->dtype);
    if (array->packing)
        ups_unpack(array->packing, false, out, size, array->dtype, out, size, ups_array_elements(array, region));
    return UPS_OK;
}

ups_status ups_array_decode(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                            int64_t count, void *scratch, void *out, int64_t *used, ups_error *error) {
    int64_t strides[UPS_ARRAY_MAX_RANK], stride = 1;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        strides[axis] = stride;
        stride *= region->count[axis];
    }
    return ups_array_decode_strided(array, region, strides, pieces, count, scratch, out, used, error);
}

ups_status ups_array_read(const ups_stored_array *array, const ups_region *region, int fd, const char *path, void *out,
                          ups_error *error) {
    ups_region all = {{0}, {0}};
    for (int axis = 0; axis < array->rank; axis++) all.count[axis] = array->shape[axis];
    if (region) all = *region;
    int64_t count = ups_array_extents(array, &all, NULL), used;
    ups_extent *extents = calloc((size_t)count + 1, sizeof *extents);
    ups_piece *pieces = calloc((size_t)count + 1, sizeof *pieces);
    void *scratch = ups_aligned_alloc(64, ups_array_scratch(array) + 64);
    uint8_t *bytes = NULL;
    ups_status status = UPS_ERR_MEMORY;
    if (!extents || !pieces || !scratch) goto cleanup;
    ups_array_extents(array, &all, extents);
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += extents[i].length;
    if (!(bytes = malloc(total + 1))) goto cleanup;
    status = UPS_OK;
    uint8_t *to = bytes;
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        status = ups_read_at(fd, path, extents[i].offset, to, extents[i].length, error);
        pieces[i] = (ups_piece){to, extents[i].length};
        to += extents[i].length;
    }
    if (status == UPS_OK) status = ups_array_decode(array, &all, pieces, count, scratch, out, &used, error);
cleanup:
    free(bytes);
    ups_aligned_free(scratch);
    free(pieces);
    free(extents);
    if (status == UPS_ERR_MEMORY) ups_fail(error, status, "no memory to read it");
    return status;
}
