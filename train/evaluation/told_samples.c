#include "train/evaluation/told_samples.h"

#include "pipeline/hdf5/storage.h"
#include <stdlib.h>
#include <string.h>

static void take_text(void *context, const char *name, double number, const char *text) {
    char **found = context;
    (void)number;
    if (text && !*found && strcmp(name, "ups.samples") == 0) *found = strdup(text);
}

/* "a, b, c", malloc'ed; NULL where the file tells none, also since it is no HDF5. */
static char *read_text(const char *path) {
    ups_hdf5_file *file = NULL;
    ups_error unused;
    char *text = NULL;
    if (ups_hdf5_open(path, NULL, false, &file, &unused) != UPS_OK) return NULL;
    (void)ups_hdf5_attributes(file, "", take_text, &text, &unused);
    ups_hdf5_close(file);
    return text;
}

/* False when out of memory. */
static bool add(ups_told_samples *told, const char *name, size_t length) {
    char **longer = realloc(told->names, (size_t)(told->count + 1) * sizeof *longer);
    if (!longer) return false;
    told->names = longer;
    longer[told->count] = strndup(name, length);
    if (!longer[told->count]) return false;
    told->count++;
    return true;
}

static bool add_all(ups_told_samples *told, const char *text) {
    static const char between[] = ", ";
    for (const char *end; text; text = end ? end + strlen(between) : NULL) {
        end = strstr(text, between);
        if (!add(told, text, end ? (size_t)(end - text) : strlen(text))) return false;
    }
    return true;
}

ups_status ups_told_samples_read(const char *const *files, int64_t count, ups_told_samples *told, ups_error *error) {
    *told = (ups_told_samples){0};
    for (int64_t i = 0; i < count; i++) {
        char *text = read_text(files[i]);
        const bool tells = text != NULL, fine = tells && add_all(told, text);
        free(text);
        if (fine) continue;
        ups_told_samples_free(told);
        return tells ? ups_fail(error, UPS_ERR_MEMORY, "out of memory") : UPS_OK;
    }
    return UPS_OK;
}

void ups_told_samples_free(ups_told_samples *told) {
    for (int64_t i = 0; i < told->count; i++) free(told->names[i]);
    free(told->names);
    *told = (ups_told_samples){0};
}

int64_t ups_told_samples_find(const ups_told_samples *told, const char *name) {
    int64_t found = -1;
    for (int64_t i = 0; i < told->count; i++) {
        if (strcmp(told->names[i], name) != 0) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}
