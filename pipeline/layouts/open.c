#include "pipeline/layouts/layouts.h"

#include "pipeline/layouts/source.h"
#include "pipeline/layouts/thin.h"
#include "pipeline/netcdf/storage.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ups_layout *const layouts[] = {&ups_layout_tensor,       &ups_layout_darcy,          &ups_layout_seedgroup,
                                            &ups_layout_compressible, &ups_layout_incompressible, &ups_layout_well,
                                            &ups_layout_points,       &ups_layout_netcdf};
/* What to do with a file that is none of them. */
#define SUGGEST "For data of your own, `ups data inspect --suggest %s` prints the `layout` to paste into the task"

enum { LAYOUT_COUNT = sizeof layouts / sizeof *layouts };

/* ---- recognising --------------------------------------------------------------------------------------------------
 */

/* "'a', 'b' and 'c'"; at most MAX_LISTED of them. */
static const char *list_names(ups_arena *arena, int64_t count, const char *const *names) {
    enum { MAX_LISTED = 10 };
    const char *text = "nothing";
    for (int64_t i = 0; i < count && i < MAX_LISTED; i++) {
        const char *link = i == 0 ? "" : i + 1 == count ? " and " : ", ";
        text = ups_arena_printf(arena, "%s%s'%.64s'", i ? text : "", link, names[i]);
    }
    return count > MAX_LISTED ? ups_arena_printf(arena, "%s, …", text) : text;
}

/* What a file has of what a layout looks for: how many, and the same in words. */
static int compare_with(ups_hdf5_file *file, const ups_layout *layout, ups_arena *arena, const char **comparison) {
    const char *has[UPS_LAYOUT_MAX_SOUGHT], *lacks[UPS_LAYOUT_MAX_SOUGHT];
    int has_count = 0, lack_count = 0;
    for (int i = 0; i < UPS_LAYOUT_MAX_SOUGHT && layout->looks_for[i]; i++) {
        if (ups_hdf5_kind_of(file, layout->looks_for[i]) != UPS_HDF5_ABSENT) {
            has[has_count++] = layout->looks_for[i];
        } else {
            lacks[lack_count++] = layout->looks_for[i];
        }
    }
    *comparison = ups_arena_printf(arena, "%s: it has %s but no %s", layout->title, list_names(arena, has_count, has),
                                   list_names(arena, lack_count, lacks));
    return has_count;
}

/* No layout fits: says what the file has at its root, and what the nearest layouts miss. */
static ups_status fail_unknown(ups_layout_builder *builder, ups_error *error) {
    enum { MAX_TRIED = 64 };
    const char *const *names, *nearest = NULL;
    int64_t count;
    char reason[300];
    UPS_TRY(ups_hdf5_list(builder->file, "", builder->arena, &names, &count, error));
    for (int64_t i = 0; i < count && i < MAX_TRIED; i++) {
        if (!ups_hdf5_unreadable(builder->file, names[i], reason)) continue;
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s holds '%.64s', which this machine's HDF5 library cannot open (%s): it is damaged, or was written by "
            "a newer library, whose h5repack --low=0 --high=1 makes a copy that opens",
            builder->path, names[i], reason);
    }
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        const char *comparison;
        if (compare_with(builder->file, layouts[i], builder->arena, &comparison) == 0) continue;
        nearest = nearest ? ups_arena_printf(builder->arena, "%s; or %s", nearest, comparison) : comparison;
    }
    const char *found = list_names(builder->arena, count, names);
    if (nearest)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s holds no layout that UPS reads: at its root is %s. Nearest is %s. " SUGGEST, builder->path,
                        found, nearest, builder->path);
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s holds no layout that UPS reads: at its root is %s. Known are 'tensor' (sample, t, x) with "
                    "'x-coordinate' and 't-coordinate'; 'nu' with 'tensor' (Darcy); groups '0000', '0001', … with "
                    "'data'; 'density', 'pressure', 'Vx', … (compressible flow); 'velocity' and 'particles' "
                    "(incompressible flow); 't0_fields', 't1_fields', … with 'dimensions' (The Well); 'points' (point, "
                    "coordinate) with fields (sample, time, point); NetCDF with a time dimension. " SUGGEST,
                    builder->path, found, builder->path);
}

static ups_status recognise(ups_layout_builder *builder, const ups_layout **layout, ups_error *error) {
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        if (!layouts[i]->recognises(builder->file)) continue;
        *layout = layouts[i];
        return UPS_OK;
    }
    return fail_unknown(builder, error);
}

/* ---- several files ------------------------------------------------------------------------------------------------
 */

static const char *geometry_text(ups_arena *arena, const ups_sample *sample) {
    return ups_arena_printf(arena, "grid %s and %lld frames", ups_layout_shape_text(arena, sample->dims, sample->grid),
                            (long long)sample->times);
}

/* Points of each sample's own, which may be another number: they get places for the largest (create.c). */
static bool have_own_points(const ups_sample *one, const ups_sample *other) {
    return one->points && other->points && one->points->own && other->points->own;
}

/* A file's first sample must look like the first file's; samples within a file may differ. */
static ups_status check_geometry(const ups_layout_builder *builder, int64_t first, const char *first_path,
                                 ups_error *error) {
    const ups_sample *one = &builder->members[0].sample, *other = &builder->members[first].sample;
    if (one->dims == other->dims && one->times == other->times &&
        (one->points ? one->points->dims : 0) == (other->points ? other->points->dims : 0) &&
        (have_own_points(one, other) || memcmp(one->grid, other->grid, sizeof one->grid) == 0))
        return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s has %s, but %s has %s; files of one task must agree: put these into tasks of their own%s",
                    builder->path, geometry_text(builder->arena, other), first_path, geometry_text(builder->arena, one),
                    one->times != other->times ? ", or cut their trajectories into segments of one length (`segment`)"
                    : one->points && other->points ? ", or give each sample its points (docs/points.md)"
                                                   : "");
}

static void close_hdf5(void *handle) {
    ups_hdf5_close(handle);
}

static void close_arrays(void *handle) {
    ups_arrays_close(handle);
}

/* Takes what the open file holds into the builder. */
static ups_status look_into(ups_layout_builder *builder, const ups_layout **layout, const char *first_path,
                            ups_error *error) {
    const ups_layout *found = builder->mapping ? &ups_layout_mapped : &ups_layout_netcdf;
    if (builder->file) UPS_TRY(recognise(builder, &found, error));
    if (*layout && *layout != found)
        return ups_fail(error, UPS_ERR_FORMAT, "%s is %s, but %s is %s; files of one task must have one layout",
                        builder->path, found->kind, first_path, (*layout)->kind);
    *layout = found;
    return found->describe(builder, error);
}

/* By a mapping: whatever holds arrays. */
static ups_status look_by_mapping(ups_layout_builder *builder, const char *root, ups_layout_file *file,
                                  const ups_layout **layout, const char *first_path, ups_error *error) {
    UPS_TRY(ups_arrays_open(builder->path, root, builder->through_library, &builder->files, &builder->arrays, error));
    *file = (ups_layout_file){builder->path, builder->arrays, close_arrays};
    builder->file_index = ups_arrays_file(builder->arrays);
    ups_status status = look_into(builder, layout, first_path, error);
    UPS_TRY(ups_arrays_check(builder->arrays, error)); /* whatever else seems to be wrong with it */
    ups_arrays_settle(builder->arrays);
    return status;
}

/* By what it holds: HDF5 and NetCDF. */
static ups_status look_for_layout(ups_layout_builder *builder, const char *root, ups_layout_file *file,
                                  const ups_layout **layout, const char *first_path, ups_error *error) {
    const char *format;
    ups_hdf5_file *opened = NULL;
    if (ups_arrays_are_foreign(builder->path, &format))
        return ups_fail(error, UPS_ERR_FORMAT, "%s is %s, which does not say what its axes are. " SUGGEST,
                        builder->path, format, builder->path);
    UPS_TRY(ups_file_list_add(&builder->files, builder->path, &builder->file_index, error));
    if (!ups_netcdf_is_classic(builder->path)) {
        UPS_TRY(ups_hdf5_open(builder->path, root, builder->through_library, &opened, error));
        *file = (ups_layout_file){builder->path, opened, close_hdf5};
    }
    builder->file = opened;
    ups_status status = look_into(builder, layout, first_path, error);
    if (opened) UPS_TRY(ups_hdf5_check_reads(opened, error)); /* whatever else seems to be wrong with it */
    if (opened && status == UPS_OK) ups_hdf5_settle(opened);
    return status;
}

/* Opens one more file into the builder. */
static ups_status add_file(ups_layout_builder *builder, const char *path, const ups_layout_options *options,
                           ups_layout_file *file, const ups_layout **layout, const char *first_path, ups_error *error) {
    const char *root = options ? options->root : NULL;
    builder->path = path;
    builder->through_library = options && options->through_library;
    builder->points_as_stored = options && options->points_as_stored;
    builder->segment = options ? options->segment : 0;
    builder->thin_count = options ? options->thin_count : 0;
    if (options) memcpy(builder->thin, options->thin, sizeof builder->thin);
    builder->mapping = options ? options->mapping : NULL;
    *file = (ups_layout_file){.path = path};
    int64_t first = builder->member_count;
    UPS_TRY(builder->mapping ? look_by_mapping(builder, root, file, layout, first_path, error)
                             : look_for_layout(builder, root, file, layout, first_path, error));
    for (int64_t m = first; m < builder->member_count; m++)
        ups_pde_parameters_from_path(&builder->members[m].found, path);
    UPS_TRY(ups_layout_cut(builder, first, error));
    UPS_TRY(ups_layout_thin(builder, first, error));
    return first > 0 ? check_geometry(builder, first, first_path, error) : UPS_OK;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef struct path_list {
    const char **paths;
    int64_t count, capacity;
} path_list;

static void append_path(ups_arena *arena, path_list *list, const char *path) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        const char **longer = UPS_ARENA_ARRAY(arena, const char *, list->capacity);
        if (list->count) memcpy(longer, list->paths, (size_t)list->count * sizeof *longer);
        list->paths = longer;
    }
    list->paths[list->count++] = ups_arena_strdup(arena, path);
}

/* A path with * ? [ that names no file is a pattern: the files that match, in the order of their names' bytes. */
static ups_status expand(ups_arena *arena, const char *const *paths, int64_t count, path_list *list, ups_error *error) {
    for (int64_t i = 0; i < count; i++) {
        if (!strpbrk(paths[i], "*?[") || access(paths[i], F_OK) == 0) {
            append_path(arena, list, paths[i]);
            continue;
        }
        glob_t matches;
        if (glob(paths[i], GLOB_NOSORT, NULL, &matches) != 0) {
            globfree(&matches);
            return ups_fail(error, UPS_ERR_IO, "no file matches %s", paths[i]);
        }
        qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, by_bytes);
        for (size_t m = 0; m < matches.gl_pathc; m++) append_path(arena, list, matches.gl_pathv[m]);
        globfree(&matches);
    }
    return UPS_OK;
}

/* A file named twice would have its samples in training and in validation. */
static ups_status check_distinct(ups_arena *arena, const path_list *list, ups_error *error) {
    const char **sorted = UPS_ARENA_ARRAY(arena, const char *, list->count);
    memcpy(sorted, list->paths, (size_t)list->count * sizeof *sorted);
    qsort(sorted, (size_t)list->count, sizeof *sorted, by_bytes);
    for (int64_t i = 1; i < list->count; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s is named twice among the files of one task; name it once",
                            sorted[i]);
    }
    return UPS_OK;
}

ups_status ups_layout_open_many(const char *const *given, int64_t given_count, const ups_layout_options *options,
                                ups_source **source, ups_error *error) {
    *source = NULL;
    if (given_count < 1) return ups_fail(error, UPS_ERR_ARGUMENT, "a source needs at least one file");
    ups_layout_builder builder = {.arena = ups_arena_create(0)};
    if (!builder.arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a source");
    builder.files.arena = builder.arena;
    path_list list = {0};
    ups_layout_file *files = NULL;
    int64_t opened = 0;
    const ups_layout *layout = NULL;
    ups_status status = expand(builder.arena, given, given_count, &list, error);
    if (status == UPS_OK) status = check_distinct(builder.arena, &list, error);
    if (status == UPS_OK) files = UPS_ARENA_ARRAY(builder.arena, ups_layout_file, list.count);
    for (; opened < list.count && status == UPS_OK; opened++) {
        status = add_file(&builder, list.paths[opened], options, &files[opened], &layout, list.paths[0], error);
    }
    if (status == UPS_OK) status = ups_layout_source_create(&builder, layout, files, list.count, source, error);
    if (status != UPS_OK) {
        for (int64_t i = 0; i < opened; i++) {
            if (files[i].close) files[i].close(files[i].handle);
        }
        ups_arena_destroy(builder.arena);
    }
    free(builder.members);
    return status;
}

ups_status ups_layout_open(const char *path, const ups_layout_options *options, ups_source **source, ups_error *error) {
    return ups_layout_open_many(&path, 1, options, source, error);
}
