/* What the library's files share: what is behind its handles, and how errors and sized structs cross its border. Nobody
 * else includes it. Within the library the floors' names (ups_source, ups_loader, …) mean what they always mean; what
 * begins with ups_data belongs to the public header. */
#ifndef UPS_LIBUPS_HANDLES_H
#define UPS_LIBUPS_HANDLES_H

#include "pipeline/source.h"
#include "tools/libups/ups.h"
#include <stdatomic.h>
#include <stdbool.h>

struct ups_data {
    ups_source *source;
    char *path;          /* as it was opened; the first of several */
    bool latent;         /* cached: has attributes and origins */
    char *attributes;    /* JSON; NULL unless latent */
    atomic_int *holders; /* of this data set: its caller and its loaders */
};

/* What the library does once in a process, before it opens anything. */
void ups_library_settle(void);

/* A data set that a loader keeps; let go by ups_data_close. */
const ups_data *ups_data_keep(const ups_data *data);

/* Hands `inner` to the caller, who may not want it; returns its code. */
ups_data_status ups_data_fail(ups_data_error *error, const ups_error *inner);

/* Copies what the caller gave, of the size the caller knows, into the library's own struct, zeroed beyond it. What a
 * newer caller has set beyond the library's is refused: it would be ignored. NULL is all defaults. */
ups_status ups_data_take(const char *name, void *own, size_t own_size, const void *given, ups_error *error);

/* Copies the library's struct out, as much of it as the caller knows; `given` begins with its size, and is refused
 * where it is NULL. */
ups_status ups_data_give(const char *name, void *given, const void *own, size_t own_size, ups_error *error);

bool ups_data_dtype_known(ups_data_dtype dtype, ups_dtype *inner);
ups_data_dtype ups_data_dtype_of(ups_dtype inner);

/* Axes of a sample: its shape with time first, which of them is the channel, and the grid axis that each is (−1: time,
 * −2: channel). Returns the rank. */
int ups_data_axes(const ups_sample *sample, int64_t shape[UPS_DATA_MAX_RANK], int grid_axis[UPS_DATA_MAX_RANK],
                  int *channel_axis);

#endif
