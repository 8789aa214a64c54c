#include "pipeline/arrays/found.h"

#include <string.h>

ups_status ups_file_list_add(ups_file_list *files, const char *path, uint32_t *index, ups_error *error) {
    enum { MOST_FILES = 1 << 22 };
    if (files->count == MOST_FILES)
        return ups_fail(
            error, UPS_ERR_UNSUPPORTED,
            "%s: more than %d files are to be read; a Zarr store of fewer, larger chunks, or with sharding, "
            "has fewer",
            path, MOST_FILES);
    if (files->count == files->capacity) {
        files->capacity = files->capacity ? 2 * files->capacity : 16;
        const char **longer = UPS_ARENA_ARRAY(files->arena, const char *, files->capacity);
        if (files->count) memcpy(longer, files->paths, (size_t)files->count * sizeof *longer);
        files->paths = longer;
    }
    files->paths[files->count] = ups_arena_strdup(files->arena, path);
    *index = (uint32_t)files->count++;
    return UPS_OK;
}

ups_array_outline *ups_outline_add(ups_outline_list *list, const char *name) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        ups_array_outline *longer = UPS_ARENA_ARRAY(list->arena, ups_array_outline, list->capacity);
        if (list->count) memcpy(longer, list->list, (size_t)list->count * sizeof *longer);
        list->list = longer;
    }
    ups_array_outline *outline = &list->list[list->count++];
    *outline = (ups_array_outline){.name = ups_arena_strdup(list->arena, name)};
    return outline;
}
