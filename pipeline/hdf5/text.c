/* An attribute holds, of a text of variable length, where it lies: its length, a global heap's address and an index in
 * it. HDF5 1.10 follows the index without looking whether the heap has so many objects, and reads past its own tables.
 * So the library is asked for the reference alone, by a conversion that leaves its bytes as they are, and the heap is
 * looked into here; unless the attribute lies in another file than the one that was opened (behind an external link).
 *
 * Source: HDF5 File Format Specification 3.0, IV.B (variable-length data). */
#include "pipeline/hdf5/text.h"

#include "pipeline/hdf5/bytes.h"
#include "pipeline/hdf5/object.h"

#include <stdlib.h>
#include <string.h>

static const char reference_name[] = "ups heap reference";

/* The library's conversion of stored references to `reference_name`: they stay what they are. */
static herr_t keep_references(hid_t stored, hid_t wanted, H5T_cdata_t *about, size_t count, size_t stride,
                              size_t background_stride, void *buffer, void *background, hid_t transfer) {
    if (about->command == H5T_CONV_CONV) return H5Tget_size(stored) == H5Tget_size(wanted) ? 0 : -1;
    if (about->command == H5T_CONV_FREE) return 0;
    char *tag = H5Tget_class(wanted) == H5T_OPAQUE ? H5Tget_tag(wanted) : NULL;
    bool ours = tag && strcmp(tag, reference_name) == 0;
    if (tag) H5free_memory(tag);
    about->need_bkg = H5T_BKG_NO;
    return ours ? 0 : -1;
}

static bool read_references(hid_t attribute, size_t size, uint8_t *references) {
    static bool registered; /* within the lock; stays for the process, and touches no type but the one of this name */
    hid_t wanted = H5Tcreate(H5T_OPAQUE, size), stored = H5Aget_type(attribute);
    bool fine = wanted >= 0 && stored >= 0 && H5Tset_tag(wanted, reference_name) >= 0;
    if (fine && !registered)
        registered = H5Tregister(H5T_PERS_SOFT, reference_name, stored, wanted, keep_references) >= 0;
    fine = fine && H5Aread(attribute, wanted, references) >= 0;
    if (stored >= 0) H5Tclose(stored);
    if (wanted >= 0) H5Tclose(wanted);
    return fine;
}

/* The text that a reference stands for, to be freed; NULL when it cannot be had. */
static char *fetch(ups_hdf5_file *file, const ups_hdf5_sizes *sizes, const uint8_t *reference, uint64_t longest) {
    const uint64_t length = ups_hdf5_number(reference, 4), heap = ups_hdf5_number(reference + 4, sizes->address);
    const uint64_t index = ups_hdf5_number(reference + 4 + sizes->address, 4);
    uint64_t offset, bytes;
    if (length > longest || heap > file->bytes || index == 0 ||
        !ups_hdf5_find_in_heap(file->fd, file->bytes, sizes, sizes->base + heap, index, &offset, &bytes,
                               &file->note.trouble) ||
        length > bytes)
        return NULL;
    char *text = calloc(1, length + 1);
    if (text && ups_hdf5_read(file->fd, file->bytes, offset, text, length, &file->note.trouble)) return text;
    free(text);
    return NULL;
}

static bool fetch_all(ups_hdf5_file *file, const ups_hdf5_sizes *sizes, hid_t attribute, int64_t count,
                      uint64_t longest, char **texts) {
    const size_t size = 8 + (size_t)sizes->address;
    uint8_t *references = calloc((size_t)count, size);
    bool fine = references && read_references(attribute, size, references);
    for (int64_t i = 0; fine && i < count; i++) {
        const uint8_t *reference = references + (size_t)i * size;
        if (ups_hdf5_number(reference + 4, sizes->address) == 0) continue; /* never written */
        texts[i] = fetch(file, sizes, reference, longest);
        fine = texts[i] != NULL;
    }
    free(references);
    return fine;
}

static bool read_by_library(hid_t attribute, int64_t count, uint64_t longest, char **texts) {
    char **found = calloc((size_t)count, sizeof *found);
    hid_t type = H5Aget_type(attribute), wanted = H5Tcopy(H5T_C_S1);
    bool fine = found && type >= 0 && H5Tset_size(wanted, H5T_VARIABLE) >= 0 &&
                H5Tset_cset(wanted, H5Tget_cset(type)) >= 0 && H5Aread(attribute, wanted, found) >= 0;
    for (int64_t i = 0; fine && i < count; i++) {
        if (!found[i]) continue;
        texts[i] = strlen(found[i]) <= longest ? strdup(found[i]) : NULL;
        fine = texts[i] != NULL;
    }
    for (int64_t i = 0; found && i < count; i++) H5free_memory(found[i]);
    free(found);
    if (type >= 0) H5Tclose(type);
    H5Tclose(wanted);
    return fine;
}

bool ups_hdf5_read_texts(ups_hdf5_file *file, hid_t attribute, int64_t count, uint64_t longest, char **texts) {
    memset(texts, 0, (size_t)count * sizeof *texts);
    const ups_hdf5_sizes sizes = ups_hdf5_sizes_of(file->id);
    bool fine = sizes.address && ups_hdf5_is_of(file, attribute)
                    ? fetch_all(file, &sizes, attribute, count, longest, texts)
                    : read_by_library(attribute, count, longest, texts);
    for (int64_t i = 0; !fine && i < count; i++) {
        free(texts[i]);
        texts[i] = NULL;
    }
    return fine;
}
