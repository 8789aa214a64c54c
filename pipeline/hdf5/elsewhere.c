/* Other files are opened by the library itself, through the driver, which asks here; so nothing is opened that is not
 * admitted, however the library finds it. External storage alone it opens without its driver. What may surprise:
 * sources that cannot be opened, for whatever reason, are fill values to the library, and it opens them again with each
 * read. So they are looked for before, where it will look for them, and what the driver noted counts more than what a
 * call returned. */
#include "pipeline/hdf5/elsewhere.h"

#include "base/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what may be opened -------------------------------------------------------------------------------------------
 */

/* Of real paths. */
static bool lies_below(const char *path, const char *directory) {
    const size_t length = strcmp(directory, "/") == 0 ? 0 : strlen(directory);
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

void ups_hdf5_refuse_absent(ups_hdf5_note *note, const char *name) {
    ups_hdf5_refuse(note, UPS_ERR_FORMAT, "'/%s' lies behind an external link, in a file that is missing: %s", name,
                    note->absent);
}

char *ups_hdf5_boundary(const char *path, const char *root) {
    char *real = realpath(path, NULL), *real_root = root ? realpath(root, NULL) : NULL;
    if (real && real_root && lies_below(real, real_root)) {
        free(real);
        return real_root;
    }
    free(real_root);
    char *slash = real ? strrchr(real, '/') : NULL;
    if (slash) slash[slash == real] = '\0';
    return real;
}

/* Whether `path`, of a file that was found there, may be read. */
static bool is_admitted(ups_hdf5_note *note, const char *path, const struct stat *found) {
    if (found->st_dev == note->device && found->st_ino == note->inode) return true;
    char *real = realpath(path, NULL);
    const bool admitted = real && note->boundary && lies_below(real, note->boundary);
    if (!admitted)
        ups_hdf5_refuse(
            note, UPS_ERR_FORMAT,
            "refers to the file %s, which does not lie below %s: other files are read only below data.root; without "
            "a configuration, or for files beside data.root, only below the file's own directory",
            real ? real : path, note->boundary ? note->boundary : "it");
    free(real);
    return admitted;
}

static bool is_absence(int reason) {
    return reason == ENOENT || reason == ENOTDIR;
}

int ups_hdf5_open_admitted(ups_hdf5_note *note, const char *path) {
    ups_error error = {0};
    struct stat found;
    int descriptor;
    if (note->bounded && stat(path, &found) == 0 && !is_admitted(note, path, &found)) return -1;
    errno = 0;
    if (ups_open_regular(path, O_RDONLY, &descriptor, &error) == UPS_OK) {
        note->absent[0] = '\0';
        return descriptor;
    }
    const bool absent = error.code == UPS_ERR_IO && is_absence(errno);
    snprintf(note->absent, sizeof note->absent, "%s", absent ? path : "");
    if (!absent) ups_hdf5_refuse(note, error.code, "%s", error.message);
    return -1;
}

/* The library would look below such a prefix, past what is checked here; no property of ours outweighs it. */
static bool prefix_is_unset(ups_hdf5_note *note, const char *dataset, const char *variable) {
    const char *prefix = getenv(variable);
    if (!prefix || !*prefix) return true;
    ups_hdf5_refuse(note, UPS_ERR_UNSUPPORTED,
                    "dataset '%s' is kept in other files, and %s=%.300s would have them looked for elsewhere: unset "
                    "it, or copy all of the dataset into one file (h5repack)",
                    dataset, variable, prefix);
    return false;
}

/* ---- external storage ---------------------------------------------------------------------------------------------
 */

typedef struct dataset_search {
    ups_hdf5_note *note;
    const char *name; /* of the dataset that is looked at for its user */
    int sources;      /* of virtual datasets, seen so far */
    bool unlimited;   /* how long one is depends on what its sources have */
} dataset_search;

enum { LONGEST_NAME = 4096 };

/* The library reads zeros where such a file ends early. */
static bool external_file_is_there(dataset_search *search, const char *name, uint64_t offset, uint64_t bytes) {
    struct stat found;
    if (stat(name, &found) != 0) {
        if (is_absence(errno))
            ups_hdf5_refuse(
                search->note, UPS_ERR_FORMAT,
                "dataset '%s' is kept in the external file %s, which is missing%s: bring it back, or copy all of "
                "the dataset into one file (h5repack)",
                search->name, name, name[0] == '/' ? "" : " from the working directory, where HDF5 looks for it");
        else
            ups_hdf5_refuse(search->note, UPS_ERR_IO,
                            "dataset '%s' is kept in the external file %s, which cannot be opened: %s", search->name,
                            name, strerror(errno));
        return false;
    }
    if (!is_admitted(search->note, name, &found)) return false;
    if (!S_ISREG(found.st_mode)) {
        ups_hdf5_refuse(search->note, UPS_ERR_FORMAT, "dataset '%s' is kept in %s, which is no regular file",
                        search->name, name);
        return false;
    }
    const uint64_t there = (uint64_t)found.st_size;
    if (offset <= there && bytes <= there - offset) return true;
    ups_hdf5_refuse(
        search->note, UPS_ERR_FORMAT,
        "dataset '%s' is kept in the external file %s from byte %llu on, %llu bytes of it, but that has only %llu: "
        "it was cut short, or never filled",
        search->name, name, (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)there);
    return false;
}

static bool external_storage_is_there(dataset_search *search, hid_t dataset, hid_t creation, int count) {
    uint64_t left = H5Dget_storage_size(dataset);
    for (int i = 0; i < count; i++) {
        char name[LONGEST_NAME] = "";
        off_t offset = 0;
        hsize_t size = 0;
        if (H5Pget_external(creation, (unsigned)i, sizeof name, name, &offset, &size) < 0 || offset < 0 ||
            !memchr(name, '\0', sizeof name)) {
            ups_hdf5_refuse(search->note, UPS_ERR_FORMAT, "dataset '%s' names an external file that makes no sense",
                            search->name);
            return false;
        }
        const uint64_t bytes = size < left ? size : left;
        if (!external_file_is_there(search, name, (uint64_t)offset, bytes)) return false;
        left -= bytes;
    }
    return true;
}

/* ---- virtual datasets ---------------------------------------------------------------------------------------------
 */

enum {
    DEEPEST = 8,           /* virtual datasets of virtual datasets; a circle has no end */
    MAX_SOURCES = 1 << 17, /* looked for in one dataset */
    GAP = 64               /* numbered sources ("%b") are looked for beyond the first that is missing */
};

static bool is_there(dataset_search *search, hid_t dataset, int depth);

/* "%b" stands for the number of a block, "%%" for a "%"; to be freed. */
static char *numbered(const char *pattern, long long block, bool *has_number) {
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    if (!stream) return NULL;
    for (const char *at = pattern; *at; at++) {
        if (*at != '%') {
            fputc(*at, stream);
        } else if (*++at == 'b') {
            *has_number = true;
            fprintf(stream, "%lld", block);
        } else if (*at == '%') {
            fputc('%', stream);
        } else {
            break; /* the library refuses it */
        }
    }
    return fclose(stream) == 0 ? text : NULL;
}

/* Tries one place; whether the search is over. */
static bool try_file(dataset_search *search, const char *directory, size_t directory_length, const char *name,
                     hid_t access, hid_t *file) {
    char *path = NULL, reason[300];
    if (asprintf(&path, "%.*s%s", (int)directory_length, directory, name) < 0) {
        ups_hdf5_refuse(search->note, UPS_ERR_MEMORY, "no memory for the name of a source of dataset '%s'",
                        search->name);
        return true;
    }
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (*file < 0 && !search->note->absent[0])
        ups_hdf5_refuse(search->note, UPS_ERR_FORMAT,
                        "%s, a source of the virtual dataset '%s', cannot be read as HDF5 (%s)", path, search->name,
                        ups_hdf5_failed(search->note, reason));
    free(path);
    return *file >= 0 || search->note->refusal.code != UPS_OK;
}

/* Opens the file of a source where the library will look for it (H5F_prefix_open_file): as named if the name begins
 * with "/", and then by its last part; in the directory of the file that refers to it, as that was named; in the
 * working directory; in the directory where that file really lies. Negative: missing, or refused. */
static hid_t open_file(dataset_search *search, hid_t dataset, const char *name) {
    hid_t own = H5Iget_file_id(dataset), file = H5I_INVALID_HID;
    if (own < 0 || strcmp(name, ".") == 0) return own;
    hid_t access = H5Fget_access_plist(own);
    char referring[LONGEST_NAME] = "", *real = NULL;
    H5Fget_name(own, referring, sizeof referring);
    const char *slash = strrchr(referring, '/'), *last = strrchr(name, '/');
    const char *relative = name[0] == '/' ? last + 1 : name;
    bool over = access < 0 || (name[0] == '/' && try_file(search, "", 0, name, access, &file));
    if (!over) over = try_file(search, referring, slash ? (size_t)(slash + 1 - referring) : 0, relative, access, &file);
    if (!over) over = try_file(search, "", 0, relative, access, &file);
    if (!over && (real = realpath(referring, NULL)))
        try_file(search, real, (size_t)(strrchr(real, '/') + 1 - real), relative, access, &file);
    free(real);
    if (access >= 0) H5Pclose(access);
    H5Fclose(own);
    return file;
}

static bool has_no_end(hid_t selection) {
    hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
    if (H5Sget_select_type(selection) != H5S_SEL_HYPERSLABS || H5Sis_regular_hyperslab(selection) <= 0 ||
        H5Sget_regular_hyperslab(selection, start, stride, count, block) < 0)
        return false;
    for (int axis = H5Sget_simple_extent_ndims(selection) - 1; axis >= 0; axis--) {
        if (count[axis] == H5S_UNLIMITED || block[axis] == H5S_UNLIMITED) return true;
    }
    return false;
}

/* An entry of a virtual dataset's list: `selection` of a source becomes `place` in the dataset. */
typedef struct virtual_entry {
    hid_t selection, place;
} virtual_entry;

/* What is taken of a source must lie within it, or the library may read something else. */
static bool selection_fits(dataset_search *search, hid_t source, const virtual_entry *entry, const char *file,
                           const char *name) {
    hid_t space = H5Dget_space(source);
    hsize_t shape[H5S_MAX_RANK], first[H5S_MAX_RANK], end[H5S_MAX_RANK];
    const int rank = space < 0 ? -1 : H5Sget_simple_extent_dims(space, shape, NULL);
    bool fits = rank >= 0;
    if (H5Sget_select_type(entry->selection) == H5S_SEL_ALL) { /* which knows no axes */
        fits = fits &&
               (has_no_end(entry->place) || H5Sget_select_npoints(entry->place) == H5Sget_simple_extent_npoints(space));
    } else if (!has_no_end(entry->selection)) {
        fits = fits && rank == H5Sget_simple_extent_ndims(entry->selection) &&
               H5Sget_select_bounds(entry->selection, first, end) >= 0;
        for (int axis = 0; fits && axis < rank; axis++) fits = end[axis] < shape[axis];
    }
    if (space >= 0) H5Sclose(space);
    if (!fits)
        ups_hdf5_refuse(
            search->note, UPS_ERR_FORMAT,
            "dataset '%s' is virtual, and its source, dataset '%s' of %s, is smaller than what is taken from it, or "
            "has other axes",
            search->name, name, file);
    return fits;
}

/* Whether a source is there; where it is missing, and need not be, that alone is no reason to refuse. */
static bool source_is_there(dataset_search *search, hid_t dataset, const char *file_name, const char *name,
                            const virtual_entry *entry, bool needed, int depth) {
    if (++search->sources > MAX_SOURCES) {
        ups_hdf5_refuse(search->note, UPS_ERR_UNSUPPORTED, "dataset '%s' is virtual and has more than %d sources",
                        search->name, (int)MAX_SOURCES);
        return false;
    }
    char reason[300] = "there is no such file";
    hid_t file = open_file(search, dataset, file_name);
    hid_t source = file < 0 ? -1 : H5Dopen2(file, name, H5P_DEFAULT);
    if (file >= 0 && source < 0) ups_hdf5_failed(search->note, reason);
    bool there =
        source >= 0 && is_there(search, source, depth + 1) && selection_fits(search, source, entry, file_name, name);
    if (!there && needed)
        ups_hdf5_refuse(
            search->note, UPS_ERR_FORMAT,
            "dataset '%s' is virtual, and a source of it is missing: dataset '%s' of the file %s (%s). Put it where "
            "it was, or copy all of the dataset into one file (h5repack)",
            search->name, name, strcmp(file_name, ".") == 0 ? "itself" : file_name, reason);
    if (source >= 0) H5Dclose(source);
    if (file >= 0) H5Fclose(file);
    return there;
}

/* The sources of one entry of a virtual dataset's list: one, or with "%b" in a name those numbered from 0 to the last
 * that is there. One that is missing before others would end the data early. */
static bool sources_are_there(dataset_search *search, hid_t dataset, const char *files, const char *names,
                              const virtual_entry *entry, int depth) {
    long long end = -1; /* the first block that is missing */
    bool has_number = false;
    for (long long block = 0; end < 0 || block <= end + GAP; block++) {
        char *file = numbered(files, block, &has_number), *name = numbered(names, block, &has_number);
        bool there = false;
        if (file && name)
            there = source_is_there(search, dataset, file, name, entry, !has_number || block == 0, depth);
        else
            ups_hdf5_refuse(search->note, UPS_ERR_MEMORY, "no memory for the sources of dataset '%s'", search->name);
        free(file);
        free(name);
        if (search->note->refusal.code != UPS_OK) return false;
        if (!has_number) return there;
        if (!there && end < 0) end = block;
        if (!there || end < 0) continue;
        file = numbered(files, end, &has_number), name = numbered(names, end, &has_number);
        ups_hdf5_refuse(
            search->note, UPS_ERR_FORMAT,
            "dataset '%s' is virtual, and a source of it is missing: dataset '%s' of the file %s, number %lld of "
            "those that %s and %s stand for. Put it where it was, or copy all of the dataset into one file "
            "(h5repack)",
            search->name, name ? name : names, file ? file : files, end, files, names);
        free(file);
        free(name);
        return false;
    }
    return true;
}

/* A text that the library writes into memory of the size that it asks for; to be freed. */
static char *virtual_text(hid_t creation, size_t index,
                          ssize_t (*get)(hid_t creation, size_t index, char *text, size_t size)) {
    const ssize_t length = get(creation, index, NULL, 0);
    char *text = length >= 0 ? calloc(1, (size_t)length + 1) : NULL;
    if (text && get(creation, index, text, (size_t)length + 1) >= 0) return text;
    free(text);
    return NULL;
}

static bool all_sources_are_there(dataset_search *search, hid_t dataset, hid_t creation, int depth) {
    size_t count = 0;
    bool there = H5Pget_virtual_count(creation, &count) >= 0;
    for (size_t i = 0; i < count && there; i++) {
        char *files = virtual_text(creation, i, H5Pget_virtual_filename);
        char *names = virtual_text(creation, i, H5Pget_virtual_dsetname);
        const virtual_entry entry = {H5Pget_virtual_srcspace(creation, i), H5Pget_virtual_vspace(creation, i)};
        there = files && names && entry.selection >= 0 && entry.place >= 0;
        if (there) there = sources_are_there(search, dataset, files, names, &entry, depth);
        if (there && has_no_end(entry.place)) search->unlimited = true;
        if (entry.selection >= 0) H5Sclose(entry.selection);
        if (entry.place >= 0) H5Sclose(entry.place);
        free(files);
        free(names);
    }
    if (!there)
        ups_hdf5_refuse(search->note, UPS_ERR_FORMAT, "dataset '%s': the list of its sources is damaged", search->name);
    return there;
}

static bool is_there(dataset_search *search, hid_t dataset, int depth) {
    hid_t creation = H5Dget_create_plist(dataset);
    if (creation < 0) return true; /* the caller meets it */
    bool there = true;
    const H5D_layout_t layout = H5Pget_layout(creation);
    const int external = layout == H5D_CONTIGUOUS ? H5Pget_external_count(creation) : 0;
    if (external > 0)
        there = prefix_is_unset(search->note, search->name, "HDF5_EXTFILE_PREFIX") &&
                external_storage_is_there(search, dataset, creation, external);
    if (layout == H5D_VIRTUAL && depth > DEEPEST) {
        ups_hdf5_refuse(
            search->note, UPS_ERR_FORMAT,
            "dataset '%s' is virtual, and leads from source to source more than %d times: it refers to itself, or "
            "to one that refers to it",
            search->name, (int)DEEPEST);
        there = false;
    } else if (layout == H5D_VIRTUAL) {
        there = prefix_is_unset(search->note, search->name, "HDF5_VDS_PREFIX") &&
                all_sources_are_there(search, dataset, creation, depth);
    }
    H5Pclose(creation);
    return there;
}

/* The shape of a virtual dataset whose sources grow: up to the end of the shortest, or to that of the longest. */
static int shape_by(hid_t file, const char *name, H5D_vds_view_t view, hsize_t shape[H5S_MAX_RANK]) {
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t dataset = access >= 0 && H5Pset_virtual_view(access, view) >= 0 ? H5Dopen2(file, name, access) : -1;
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const int rank = space < 0 ? -1 : H5Sget_simple_extent_dims(space, shape, NULL);
    if (space >= 0) H5Sclose(space);
    if (dataset >= 0) H5Dclose(dataset);
    if (access >= 0) H5Pclose(access);
    return rank;
}

/* No dataset of that name may be open meanwhile: the library would take its shape. */
static bool sources_are_of_one_length(hid_t file, ups_hdf5_note *note, const char *name) {
    hsize_t shortest[H5S_MAX_RANK], longest[H5S_MAX_RANK];
    const int rank = shape_by(file, name, H5D_VDS_FIRST_MISSING, shortest);
    if (rank < 0 || shape_by(file, name, H5D_VDS_LAST_AVAILABLE, longest) != rank) return true; /* met when opened */
    for (int axis = 0; axis < rank; axis++) {
        if (shortest[axis] == longest[axis]) continue;
        ups_hdf5_refuse(
            note, UPS_ERR_FORMAT,
            "dataset '%s' is virtual, and along axis %d one of its sources has values for %llu entries, another for "
            "%llu: let them be of one length",
            name, axis, (unsigned long long)shortest[axis], (unsigned long long)longest[axis]);
        return false;
    }
    return true;
}

hid_t ups_hdf5_open_dataset(hid_t file, ups_hdf5_note *note, const char *name) {
    dataset_search search = {.note = note, .name = name};
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    if (dataset < 0) return dataset;
    bool fine = is_there(&search, dataset, 0);
    if (fine && !search.unlimited) return dataset;
    H5Dclose(dataset);
    return fine && sources_are_of_one_length(file, note, name) ? H5Dopen2(file, name, H5P_DEFAULT) : H5I_INVALID_HID;
}

bool ups_hdf5_all_is_there(ups_hdf5_note *note, hid_t dataset, const char *name) {
    dataset_search search = {.note = note, .name = name};
    return is_there(&search, dataset, 0);
}
