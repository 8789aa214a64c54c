/* What an HDF5 file keeps in other files: external links, sources of virtual datasets, external storage. Each may name
 * any file of the machine, and what is missing the library reads as fill values. So other files are opened only below
 * the boundary that ups_hdf5_open was given, and all of a dataset's are looked for before it is read.
 *
 * Every call within the lock; what speaks against a file is noted in its `note`, and ups_hdf5_check_reads says it. */
#ifndef UPS_PIPELINE_HDF5_ELSEWHERE_H
#define UPS_PIPELINE_HDF5_ELSEWHERE_H

#include "pipeline/hdf5/library.h"

/* The directory that a file may refer into: `root` where the file lies below it, otherwise the file's own directory,
 * symbolic links resolved. To be freed; NULL when there is no telling: then no other file is opened. */
char *ups_hdf5_boundary(const char *path, const char *root);

/* Opens `path` for reading for the driver: −1 when it is not there (note->absent), or not to be read (note->refusal).
 */
int ups_hdf5_open_admitted(ups_hdf5_note *note, const char *path);

/* After an object could not be opened since note->absent, which it lies in, is missing. */
void ups_hdf5_refuse_absent(ups_hdf5_note *note, const char *name);

/* Whether everything is there that an open dataset keeps elsewhere, and may be read: to be asked before its dataspace,
 * since that of a virtual dataset may depend on its sources. `name` is for the message. */
bool ups_hdf5_all_is_there(ups_hdf5_note *note, hid_t dataset, const char *name);

/* Opens a dataset of which all is there; else negative, and what speaks against it is noted unless it was the library
 * that could not open it. */
hid_t ups_hdf5_open_dataset(hid_t file, ups_hdf5_note *note, const char *name);

#endif
