#include "pipeline/arrays/arrays.h"

#include "base/files.h"
#include "pipeline/arrays/format.h"
#include "pipeline/netcdf/storage.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ups_arrays {
    const ups_arrays_format_class *format;
    void *handle;
    const char *path;
    ups_file_list *files;
    uint32_t file;
};

/* ---- which format -------------------------------------------------------------------------------------------------
 */

static bool is_directory(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool begins_with(const char *path, const char *start, size_t length) {
    char found[8];
    int fd;
    if (ups_open_regular(path, O_RDONLY, &fd, NULL) != UPS_OK) return false;
    bool same = ups_read_at(fd, path, 0, found, length, NULL) == UPS_OK && memcmp(found, start, length) == 0;
    close(fd);
    return same;
}

static const ups_arrays_format_class *format_of(const char *path) {
    if (is_directory(path)) return &ups_arrays_zarr;
    if (begins_with(path, "\x93NUMPY", 6) || begins_with(path, "PK\3\4", 4) || begins_with(path, "PK\5\6", 4))
        return &ups_arrays_numpy;
    return ups_netcdf_is_classic(path) ? &ups_arrays_netcdf : &ups_arrays_hdf5;
}

bool ups_arrays_are_foreign(const char *path, const char **format) {
    static const char *const documents[] = {"zarr.json", ".zgroup", ".zarray"};
    const ups_arrays_format_class *found = format_of(path);
    *format = found->name;
    if (found == &ups_arrays_numpy) return true;
    if (found != &ups_arrays_zarr) return false;
    for (size_t d = 0; d < sizeof documents / sizeof *documents; d++) {
        char *document = NULL;
        bool there = asprintf(&document, "%s/%s", path, documents[d]) >= 0 && ups_path_exists(document);
        free(document);
        if (there) return true;
    }
    return false;
}

/* ---- one file -----------------------------------------------------------------------------------------------------
 */

ups_status ups_arrays_open(const char *path, const char *root, bool through_library, ups_file_list *files,
                           ups_arrays **out, ups_error *error) {
    const ups_arrays_options options = {root, through_library};
    const ups_arrays_format_class *format = format_of(path);
    void *handle;
    const char *file = path;
    *out = NULL;
    ups_arrays *arrays = calloc(1, sizeof *arrays);
    if (!arrays) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_status status = format->open(path, &options, files->arena, &handle, &file, error);
    if (status == UPS_OK) {
        *arrays = (ups_arrays){
            .format = format, .handle = handle, .path = ups_arena_strdup(files->arena, path), .files = files};
        status = ups_file_list_add(files, file, &arrays->file, error);
        if (status != UPS_OK) format->close(handle);
    }
    if (status != UPS_OK) free(arrays);
    if (status == UPS_OK) *out = arrays;
    return status;
}

const char *ups_arrays_format(const ups_arrays *arrays) {
    return arrays->format->name;
}

uint32_t ups_arrays_file(const ups_arrays *arrays) {
    return arrays->file;
}

ups_status ups_arrays_check(const ups_arrays *arrays, ups_error *error) {
    return arrays->format->check ? arrays->format->check(arrays->handle, error) : UPS_OK;
}

void ups_arrays_settle(ups_arrays *arrays) {
    if (arrays->format->settle) arrays->format->settle(arrays->handle);
}

void ups_arrays_close(ups_arrays *arrays) {
    if (!arrays) return;
    arrays->format->close(arrays->handle);
    free(arrays);
}

/* ---- its arrays ---------------------------------------------------------------------------------------------------
 */

ups_status ups_arrays_list(ups_arrays *arrays, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                           ups_error *error) {
    *count = 0;
    return arrays->format->list(arrays->handle, arena, outlines, count, error);
}

/* "u (10, 5, 64) float32, t (5) float64" */
static const char *list_text(ups_arena *arena, const ups_array_outline *outlines, int64_t count) {
    enum { MAX_SHOWN = 12 };
    const char *text = count ? "" : "nothing";
    for (int64_t i = 0; i < count && i < MAX_SHOWN; i++) {
        text = ups_arena_printf(arena, "%s%s'%.64s' (", text, i ? ", " : "", outlines[i].name);
        for (int axis = 0; axis < outlines[i].rank; axis++)
            text = ups_arena_printf(arena, "%s%s%lld", text, axis ? ", " : "", (long long)outlines[i].shape[axis]);
        text = ups_arena_printf(arena, "%s) %s", text, outlines[i].type ? outlines[i].type : "");
    }
    return count > MAX_SHOWN ? ups_arena_printf(arena, "%s, …", text) : text;
}

static ups_status fail_absent(ups_arrays *arrays, const char *name, ups_arena *arena, ups_error *error) {
    const ups_array_outline *outlines;
    int64_t count;
    UPS_TRY(ups_arrays_list(arrays, arena, &outlines, &count, error));
    return ups_fail(error, UPS_ERR_FORMAT, "%s holds no array '%s'; it holds %.600s", arrays->path, name,
                    list_text(arena, outlines, count));
}

ups_status ups_arrays_map(ups_arrays *arrays, const char *name, ups_arena *arena, ups_found_array *found,
                          ups_error *error) {
    bool is_there = true;
    *found = (ups_found_array){.array = UPS_ARENA_NEW(arena, ups_stored_array)};
    for (int axis = 0; axis < UPS_ARRAY_MAX_RANK; axis++) found->axis_of[axis] = axis;
    UPS_TRY(arrays->format->map(arrays->handle, name, arrays->file, arrays->files, arena, found, &is_there, error));
    return is_there ? UPS_OK : fail_absent(arrays, name, arena, error);
}

/* Fetches all extents of an array with plain reads. */
static ups_status fetch(const ups_arrays *arrays, const ups_extent *extents, int64_t count, ups_piece *pieces,
                        uint8_t *to, ups_error *error) {
    for (int64_t i = 0; i < count; i++) {
        const char *path = arrays->files->paths[extents[i].file];
        int fd;
        UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
        ups_status status = ups_read_at(fd, path, extents[i].offset, to, extents[i].length, error);
        close(fd);
        UPS_TRY(status);
        pieces[i] = (ups_piece){to, extents[i].length};
        to += extents[i].length;
    }
    return UPS_OK;
}

/* The elements of a region in the array's own type, in stored order. */
static ups_status read_elements(const ups_arrays *arrays, const ups_stored_array *array, const ups_region *region,
                                void *out, ups_error *error) {
    int64_t count = ups_array_extents(array, region, NULL), used;
    ups_extent *extents = calloc((size_t)count + 1, sizeof *extents);
    ups_piece *pieces = calloc((size_t)count + 1, sizeof *pieces);
    void *scratch = ups_aligned_alloc(64, ups_array_scratch(array) + 64);
    uint64_t total = 0;
    if (extents) ups_array_extents(array, region, extents);
    for (int64_t i = 0; extents && i < count; i++) total += extents[i].length;
    uint8_t *bytes = malloc(total + 1);
    ups_status status = UPS_OK;
    if (!extents || !pieces || !scratch || !bytes) status = ups_fail(error, UPS_ERR_MEMORY, "no memory to read it");
    if (status == UPS_OK) status = fetch(arrays, extents, count, pieces, bytes, error);
    if (status == UPS_OK) status = ups_array_decode(array, region, pieces, count, scratch, out, &used, error);
    free(bytes);
    ups_aligned_free(scratch);
    free(pieces);
    free(extents);
    return status;
}

/* Elements of a region from stored order to the user's, as doubles. */
static void put_in_order(const ups_found_array *found, const ups_region *region, const void *elements,
                         ups_numbers *numbers) {
    const ups_stored_array *array = found->array;
    int64_t strides[UPS_ARRAY_MAX_RANK] = {0}, at[UPS_ARRAY_MAX_RANK] = {0}, stride = 1;
    for (int axis = array->rank - 1; axis >= 0; axis--) {
        for (int stored = 0; stored < array->rank; stored++) {
            if (found->axis_of[stored] != axis) continue;
            strides[stored] = stride;
            stride *= region->count[stored];
            numbers->shape[axis] = region->count[stored];
        }
    }
    for (int64_t i = 0; i < numbers->count; i++) {
        int64_t to = 0;
        for (int axis = 0; axis < array->rank; axis++) to += at[axis] * strides[axis];
        numbers->values[to] =
            array->dtype == UPS_F64 ? ((const double *)elements)[i] : (double)((const float *)elements)[i];
        for (int axis = array->rank - 1; axis >= 0 && ++at[axis] == region->count[axis]; axis--) at[axis] = 0;
    }
}

/* All of an array, or what has the index 0 along an axis as the user counts them (-1: all), which keeps its place. */
static ups_status read_mapped(ups_arrays *arrays, const char *name, int first_along, int64_t limit, ups_arena *arena,
                              ups_numbers *numbers, ups_error *error) {
    ups_found_array found;
    ups_region region = {{0}, {0}};
    UPS_TRY(ups_arrays_map(arrays, name, arena, &found, error));
    for (int axis = 0; axis < found.array->rank; axis++)
        region.count[axis] = found.axis_of[axis] == first_along ? 1 : found.array->shape[axis];
    *numbers = (ups_numbers){.rank = found.array->rank, .count = ups_array_elements(found.array, &region)};
    if (numbers->count > limit)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has %lld entries; at most %lld make sense", arrays->path, name,
                        (long long)numbers->count, (long long)limit);
    void *elements = malloc((size_t)numbers->count * sizeof(double) + 1);
    numbers->values = UPS_ARENA_ARRAY(arena, double, numbers->count + 1);
    ups_status status = elements ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory to read it");
    if (status == UPS_OK) status = read_elements(arrays, found.array, &region, elements, error);
    if (status == UPS_OK) put_in_order(&found, &region, elements, numbers);
    if (status != UPS_OK) ups_fail_within(error, "%s: '%s' cannot be read", arrays->path, name);
    free(elements);
    return status;
}

ups_status ups_arrays_read_first(ups_arrays *arrays, const char *name, int axis, int64_t limit, ups_arena *arena,
                                 ups_numbers *numbers, ups_error *error) {
    return read_mapped(arrays, name, axis, limit, arena, numbers, error);
}

ups_status ups_arrays_read(ups_arrays *arrays, const char *name, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                           ups_error *error) {
    bool is_there = true;
    if (!arrays->format->read) return read_mapped(arrays, name, -1, limit, arena, numbers, error);
    UPS_TRY(arrays->format->read(arrays->handle, name, limit, arena, numbers, &is_there, error));
    return is_there ? UPS_OK : fail_absent(arrays, name, arena, error);
}

ups_status ups_arrays_each_number(ups_arrays *arrays, const char *object, ups_number_visitor visit, void *context,
                                  ups_error *error) {
    if (!arrays->format->each_number) return UPS_OK;
    return arrays->format->each_number(arrays->handle, object, visit, context, error);
}

ups_status ups_arrays_attribute(ups_arrays *arrays, const char *object, const char *name, ups_arena *arena,
                                ups_attribute *attribute, ups_error *error) {
    *attribute = (ups_attribute){0};
    return arrays->format->attribute(arrays->handle, object, name, arena, attribute, error);
}
