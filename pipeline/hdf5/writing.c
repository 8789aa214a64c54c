#include "pipeline/hdf5/writing.h"

#include "pipeline/hdf5/library.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of the first failure; between enter and leave, so that the library's one lock guards it. */
static struct {
    bool failed;
    int number; /* errno; 0: not known */
    char reason[300];
} first;

/* The file driver tells "… errno = 28, error message = …", over two lines since a time stands in it. */
static herr_t take_number(unsigned depth, const H5E_error2_t *entry, void *context) {
    static const char key[] = "errno = ";
    const char *found = entry->desc ? strstr(entry->desc, key) : NULL;
    if (found && first.number == 0) first.number = atoi(found + strlen(key));
    return 0;
}

static herr_t note_failure(hid_t stack, void *context) {
    if (first.failed) return 0;
    first.failed = true;
    ups_hdf5_reason(first.reason);
    first.reason[strcspn(first.reason, "\n")] = '\0';
    H5Ewalk2(stack, H5E_WALK_UPWARD, take_number, NULL);
    return 0;
}

void ups_hdf5_enter_to_write(void) {
    ups_hdf5_enter();
    first.failed = false;
    first.number = 0;
    H5Eset_auto2(H5E_DEFAULT, note_failure, NULL);
}

ups_status ups_hdf5_write_failed(const char *name, const char *what, ups_error *error) {
    errno = first.number;
    if (first.number > 0) return ups_fail_errno(error, "%s: %s cannot be written", name, what);
    return ups_fail(error, UPS_ERR_IO, "%s: the HDF5 library could not write %s: %s", name, what,
                    first.failed ? first.reason : "no reason given");
}
