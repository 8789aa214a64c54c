#include "pipeline/layouts.h"

#include "pipeline/layout_source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ups_layout *const layouts[] = {&ups_layout_tensor, &ups_layout_darcy, &ups_layout_seedgroup};
enum { LAYOUT_COUNT = sizeof layouts / sizeof *layouts };

/* No layout fits: says what the file has at its root, and what was looked for. */
static ups_status fail_unknown(ups_hdf5_file *file, ups_arena *arena, ups_error *error) {
    const char *const *names;
    int64_t count;
    UPS_TRY(ups_hdf5_list(file, "", arena, &names, &count, error));
    char found[300] = "nothing";
    size_t used = 0;
    for (int64_t i = 0; i < count && used + 48 < sizeof found; i++) {
        const char *dots = i + 1 < count && used + 96 >= sizeof found ? ", …" : "";
        int wrote = snprintf(found + used, sizeof found - used, "%s'%.32s'%s", i ? ", " : "", names[i], dots);
        if (wrote > 0) used += (size_t)wrote;
    }
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s holds no layout that UPS reads: at its root is %s. Known are 'tensor' (sample, t, x) with "
        "'x-coordinate' and 't-coordinate'; 'nu' with 'tensor' (Darcy); groups '0000', '0001', … with 'data'",
        ups_hdf5_path(file), found);
}

static ups_status recognise(ups_hdf5_file *file, ups_arena *arena, const ups_layout **layout, ups_error *error) {
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        if (!layouts[i]->recognises(file)) continue;
        *layout = layouts[i];
        return UPS_OK;
    }
    return fail_unknown(file, arena, error);
}

/* All parameter names of members [first, end) are among those of [other_first, other_end). */
static const char *missing_parameter(const ups_layout_builder *builder, int64_t first, int64_t end, int64_t other_first,
                                     int64_t other_end) {
    for (int64_t m = first; m < end; m++) {
        const ups_pde_parameters *wanted = &builder->members[m].found;
        for (int i = 0; i < wanted->count; i++) {
            bool found = false;
            for (int64_t o = other_first; o < other_end && !found; o++) {
                const ups_pde_parameters *there = &builder->members[o].found;
                for (int j = 0; j < there->count && !found; j++)
                    found = strcmp(there->list[j].name, wanted->list[i].name) == 0;
            }
            if (!found) return wanted->list[i].name;
        }
    }
    return NULL;
}

static ups_status check_parameters(const ups_layout_builder *builder, int64_t first_end, int64_t first,
                                   const char *first_path, ups_error *error) {
    const char *path = ups_hdf5_path(builder->file);
    const char *name = missing_parameter(builder, 0, first_end, first, builder->member_count);
    if (name)
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s does not say what parameter '%s' is, but %s does; files of one task must name the same parameters",
            path, name, first_path);
    name = missing_parameter(builder, first, builder->member_count, 0, first_end);
    if (name)
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s does not say what parameter '%s' is, but %s does; files of one task must name the same parameters",
            first_path, name, path);
    return UPS_OK;
}

/* Opens one more file into the builder. */
static ups_status add_file(ups_layout_builder *builder, const char *path, const ups_layout_options *options,
                           ups_hdf5_file **file, const ups_layout **layout, const char *first_path, ups_error *error) {
    UPS_TRY(ups_hdf5_open(path, options && options->through_library, file, error));
    const ups_layout *found = NULL;
    UPS_TRY(recognise(*file, builder->arena, &found, error));
    if (*layout && *layout != found)
        return ups_fail(error, UPS_ERR_FORMAT, "%s is %s, but %s is %s; files of one task must have one layout", path,
                        found->kind, first_path, (*layout)->kind);
    *layout = found;
    builder->file = *file;
    int64_t first = builder->member_count;
    UPS_TRY(found->describe(builder, error));
    for (int64_t m = first; m < builder->member_count; m++)
        ups_pde_parameters_from_path(&builder->members[m].found, path);
    ups_hdf5_settle(*file);
    return UPS_OK;
}

ups_status ups_layout_open_many(const char *const *paths, int64_t count, const ups_layout_options *options,
                                ups_source **source, ups_error *error) {
    *source = NULL;
    if (count < 1) return ups_fail(error, UPS_ERR_ARGUMENT, "a source needs at least one file");
    ups_layout_builder builder = {.arena = ups_arena_create(0)};
    ups_hdf5_file **files = calloc((size_t)count, sizeof *files);
    const ups_layout *layout = NULL;
    ups_status status = UPS_OK;
    if (!builder.arena || !files)
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a source of %lld files", (long long)count);
    int64_t first_end = 0; /* members of the first file */
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        int64_t first = builder.member_count;
        builder.file_index = (uint32_t)i;
        status = add_file(&builder, paths[i], options, &files[i], &layout, paths[0], error);
        if (i == 0) first_end = builder.member_count;
        if (i > 0 && status == UPS_OK) status = check_parameters(&builder, first_end, first, paths[0], error);
    }
    if (status == UPS_OK) status = ups_layout_source_create(&builder, layout, files, count, source, error);
    if (status != UPS_OK) {
        for (int64_t i = 0; files && i < count; i++) ups_hdf5_close(files[i]);
        ups_arena_destroy(builder.arena);
    }
    free(builder.members);
    free(files);
    return status;
}

ups_status ups_layout_open(const char *path, const ups_layout_options *options, ups_source **source, ups_error *error) {
    return ups_layout_open_many(&path, 1, options, source, error);
}
