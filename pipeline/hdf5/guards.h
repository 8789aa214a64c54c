/* Guards against bugs of HDF5 1.10 (and, in parts, of later versions up to 1.14): what a damaged file makes the library
 * read beyond memory, free twice or follow for ever is looked at before the library takes it apart. Each guard names
 * its bug. What the library checks by itself is not asked here, and what is not understood is left to it: a guard
 * refuses nothing that the library reads (tests/python/test_sources.py, check_guards; test_layouts.py, attributes).
 *
 * Left to the library are faults that no flipped bit of a sound file led to in tens of thousands of tries: names of old
 * groups beyond their heap, free blocks in a circle, chunks without extent. Every call within the lock. */
#ifndef UPS_PIPELINE_HDF5_GUARDS_H
#define UPS_PIPELINE_HDF5_GUARDS_H

#include "pipeline/hdf5/file.h"

/* For the driver: whether a block of metadata can be given to the library. A superblock fills in `sizes`. */
bool ups_hdf5_guard_block(ups_hdf5_sizes *sizes, int fd, uint64_t end, uint64_t address, const uint8_t *block,
                          size_t size, ups_hdf5_trouble *trouble);

/* Whether the attributes of an open object may be decoded, one by one; those of another file, behind an external link,
 * are not looked at. */
bool ups_hdf5_guard_attributes(const ups_hdf5_file *file, hid_t object);

/* Whether the library may list all attributes of an open object. */
bool ups_hdf5_guard_list(hid_t object);

/* The `count` texts of an attribute whose type is a string of variable length: `texts` (count) receives them, each to
 * be freed, NULL for one that the file has none of. False when one cannot be had, or is longer than `longest`; all are
 * NULL then. */
bool ups_hdf5_read_texts(ups_hdf5_file *file, hid_t attribute, int64_t count, uint64_t longest, char **texts);

#endif
