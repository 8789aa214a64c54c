/* The update in the memory of a device, and the host's ends of it: inputs on their way there, results on their way
 * back. */
#ifndef UPS_MODEL_UPDATE_CHANNEL_H
#define UPS_MODEL_UPDATE_CHANNEL_H

#include "base/error.h"
#include "model/update.h"

struct ups_device;

typedef struct ups_update_channel ups_update_channel;

/* The loss scale begins at 1, fixed. */
ups_status ups_update_open(struct ups_device *device, ups_update_channel **channel, ups_error *error);
void ups_update_close(ups_update_channel *channel); /* NULL is fine */

ups_update *ups_update_memory(const ups_update_channel *channel); /* device memory */

/* Replaces what lives on from step to step. Nothing that was given may be under way. */
ups_status ups_update_restore(ups_update_channel *channel, const ups_update_state *state, ups_error *error);
/* For what is issued from here on. Waits only where the device is several micro-batches behind. */
ups_status ups_update_give(ups_update_channel *channel, const ups_update_input *input, ups_error *error);
/* Sends the update back as it stands once all that was issued is done; at most UPS_UPDATE_TAKEN wait to be read. */
ups_status ups_update_take(ups_update_channel *channel, ups_error *error);
/* Waits for the oldest that was taken and not read yet. */
ups_status ups_update_read(ups_update_channel *channel, ups_update *update, ups_error *error);

#define UPS_UPDATE_TAKEN 2

#endif
