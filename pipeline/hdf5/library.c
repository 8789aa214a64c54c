#include "pipeline/hdf5/library.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The library is one for the process, so is the lock around it. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static H5E_auto2_t outer_report; /* what the program had set before we entered */
static void *outer_report_context;

void ups_hdf5_enter(void) {
    pthread_mutex_lock(&library_lock);
    H5Eget_auto2(H5E_DEFAULT, &outer_report, &outer_report_context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void ups_hdf5_leave(void) {
    H5Eset_auto2(H5E_DEFAULT, outer_report, outer_report_context);
    pthread_mutex_unlock(&library_lock);
}

static herr_t take_innermost(unsigned depth, const H5E_error2_t *entry, void *context) {
    char *text = context;
    if (depth == 0 && entry->desc) snprintf(text, 300, "%s", entry->desc);
    return 0;
}

const char *ups_hdf5_reason(char text[300]) {
    snprintf(text, 300, "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, text);
    return text;
}

void ups_hdf5_refuse(ups_hdf5_note *note, ups_status code, const char *format, ...) {
    if (note->refusal.code != UPS_OK) return; /* the first reason is the one told */
    char message[sizeof note->refusal.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ups_fail(&note->refusal, code, "%s", message);
}

static herr_t is_for_want_of_memory(unsigned depth, const H5E_error2_t *entry, void *context) {
    bool *found = context;
    *found |= entry->maj_num == H5E_RESOURCE || entry->min_num == H5E_NOSPACE || entry->min_num == H5E_CANTALLOC;
    return 0;
}

/* A damaged file, too, may claim so much that no machine has it: what no sound one of its size needs is to be had
 * where memory is not short. */
static bool memory_is_short(const ups_hdf5_note *note) {
    const uint64_t sound = (uint64_t)64 << 20, most = (uint64_t)256 << 20; /* of a file of any size */
    void *probe = malloc((size_t)(note->bytes < most - sound ? sound + note->bytes : most));
    free(probe);
    return !probe;
}

const char *ups_hdf5_failed(ups_hdf5_note *note, char reason[300]) {
    bool wanted = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, is_for_want_of_memory, &wanted);
    ups_hdf5_reason(reason);
    if (wanted && memory_is_short(note))
        ups_hdf5_refuse(note, UPS_ERR_MEMORY,
                        "the HDF5 library found no memory to read it (%s); see `ulimit -v`, and what "
                        "else runs here",
                        reason);
    return reason;
}
