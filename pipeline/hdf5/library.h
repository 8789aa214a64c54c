/* The HDF5 library: one lock around it, its error stack as a sentence, and what is noted of an open file while the
 * library reads it. */
#ifndef UPS_PIPELINE_HDF5_LIBRARY_H
#define UPS_PIPELINE_HDF5_LIBRARY_H

#include "base/error.h"
#include "pipeline/hdf5/bytes.h"
#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What an open file, and the files that it refers to, tell of themselves; see elsewhere.h for the latter. */
typedef struct ups_hdf5_note {
    bool armed;
    bool taken;
    uint64_t offset; /* bytes from the start of the file */
    uint64_t length;
    ups_hdf5_trouble trouble;
    bool bounded; /* files but that of (device, inode) are opened only below `boundary` */
    dev_t device;
    ino_t inode;
    char *boundary;    /* a real path; NULL: no other file is */
    char absent[512];  /* the latest file that was to be opened, where it is not there; else "" */
    uint64_t bytes;    /* of the largest file that was opened */
    ups_error refusal; /* why the file cannot be used though the library may go on; no error while its code is UPS_OK */
} ups_hdf5_note;

/* Every use of the library lies between enter and leave: it is one lock for the whole process, because the library may
 * be built without thread safety. While held, the library prints nothing; its error stack is read with ups_hdf5_reason.
 * Not recursive. */
void ups_hdf5_enter(void);
void ups_hdf5_leave(void);

/* What the library says went wrong in its last call, in its own words: the innermost reason. Every call, even of a
 * close function, starts with a clean slate: ask at once. Call within the lock. */
const char *ups_hdf5_reason(char text[300]);

/* The same of a call that failed on a file; notes where it did for want of memory, of which the file is innocent. */
const char *ups_hdf5_failed(ups_hdf5_note *note, char reason[300]);

/* Notes why a file cannot be used, unless there is a reason already. */
void ups_hdf5_refuse(ups_hdf5_note *note, ups_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
