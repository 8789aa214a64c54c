/* An attribute holds, of a text of variable length, where it lies: its length, a global heap's address and an index in
 * it. HDF5 1.10 follows the index without looking whether the heap has so many objects, and reads past its own tables.
 * So the library is asked for the reference alone, by a conversion that leaves its 16 bytes as they are, and the heap
 * is looked into here.
 *
 * Source: HDF5 File Format Specification 3.0, III.E (global heaps), IV.B (variable-length data). */
#include "pipeline/hdf5_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REFERENCE = 16, HEADER = 16, LARGEST_HEAP = 1 << 24 };

static const char reference_name[] = "ups heap reference";

static uint64_t number(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* The library's conversion of stored references to `reference_name`: they stay what they are. */
static herr_t keep_references(hid_t stored, hid_t wanted, H5T_cdata_t *about, size_t count, size_t stride,
                              size_t background_stride, void *buffer, void *background, hid_t transfer) {
    if (about->command == H5T_CONV_CONV) return H5Tget_size(stored) == REFERENCE ? 0 : -1;
    if (about->command == H5T_CONV_FREE) return 0;
    char *tag = H5Tget_class(wanted) == H5T_OPAQUE ? H5Tget_tag(wanted) : NULL;
    bool ours = tag && strcmp(tag, reference_name) == 0;
    if (tag) H5free_memory(tag);
    about->need_bkg = H5T_BKG_NO;
    return ours ? 0 : -1;
}

static bool read_references(hid_t attribute, uint8_t *references) {
    hid_t wanted = H5Tcreate(H5T_OPAQUE, REFERENCE), stored = H5Aget_type(attribute);
    bool fine = wanted >= 0 && stored >= 0 && H5Tset_tag(wanted, reference_name) >= 0 &&
                H5Tregister(H5T_PERS_SOFT, reference_name, stored, wanted, keep_references) >= 0;
    if (fine) {
        fine = H5Aread(attribute, wanted, references) >= 0;
        H5Tunregister(H5T_PERS_SOFT, reference_name, stored, wanted, keep_references);
    }
    if (stored >= 0) H5Tclose(stored);
    if (wanted >= 0) H5Tclose(wanted);
    return fine;
}

static uint64_t base_address(const ups_hdf5_file *file) {
    hsize_t bytes = 0;
    hid_t creation = H5Fget_create_plist(file->id);
    if (creation >= 0) {
        H5Pget_userblock(creation, &bytes);
        H5Pclose(creation);
    }
    return bytes;
}

static bool read_exactly(const ups_hdf5_file *file, uint8_t *to, uint64_t bytes, uint64_t offset) {
    if (offset > file->bytes || bytes > file->bytes - offset) return false;
    while (bytes) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return true;
}

/* Where object `index` of a heap of `size` bytes begins, and its length in *bytes; 0 when there is none. */
static uint64_t find_object(const uint8_t *heap, uint64_t size, uint64_t index, uint64_t *bytes) {
    for (uint64_t at = HEADER; at + HEADER <= size;) {
        const uint64_t found = number(heap + at, 2), room = size - at - HEADER;
        *bytes = number(heap + at + 8, 8);
        if (found == 0 || *bytes > room) return 0; /* the free rest, which is last */
        if (found == index) return at + HEADER;
        at += HEADER + (*bytes + 7) / 8 * 8;
    }
    return 0;
}

/* The text that a reference stands for, to be freed; NULL when it cannot be had. */
static char *fetch(const ups_hdf5_file *file, uint64_t base, const uint8_t *reference, uint64_t longest) {
    const uint64_t length = number(reference, 4), index = number(reference + 12, 4);
    uint64_t address = number(reference + 4, 8), bytes;
    uint8_t header[HEADER];
    if (length > longest || address > file->bytes) return NULL;
    address += base;
    if (!read_exactly(file, header, HEADER, address) || memcmp(header, "GCOL", 4) != 0) return NULL;
    const uint64_t size = number(header + 8, 8);
    uint8_t *heap = size >= HEADER && size <= LARGEST_HEAP ? malloc(size) : NULL;
    char *text = NULL;
    if (heap && read_exactly(file, heap, size, address)) {
        const uint64_t at = find_object(heap, size, index, &bytes);
        if (at != 0 && length <= bytes) text = strndup((const char *)heap + at, length);
    }
    free(heap);
    return text;
}

bool ups_hdf5_read_texts(const ups_hdf5_file *file, hid_t attribute, int64_t count, uint64_t longest, char **texts) {
    memset(texts, 0, (size_t)count * sizeof *texts);
    uint8_t *references = calloc((size_t)count, REFERENCE);
    bool fine = references && read_references(attribute, references);
    const uint64_t base = base_address(file);
    for (int64_t i = 0; fine && i < count; i++) {
        const uint8_t *reference = references + i * REFERENCE;
        if (number(reference + 4, 8) == 0) continue; /* never written */
        texts[i] = fetch(file, base, reference, longest);
        fine = texts[i] != NULL;
    }
    for (int64_t i = 0; !fine && i < count; i++) {
        free(texts[i]);
        texts[i] = NULL;
    }
    free(references);
    return fine;
}
