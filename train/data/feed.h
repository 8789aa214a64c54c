/* A batch's frames on their way into a step: from the loader's slots and stores, or, with `data.residency: device`,
 * from trajectories that stay in the device's memory. A trajectory goes there when a window of it is drawn for the
 * first time, as long as there is room, and the device draws windows of it from then on: only a list of addresses
 * crosses the bus. Windows of others are sent, as they are without. The bits are the same. */
#ifndef UPS_TRAIN_DATA_FEED_H
#define UPS_TRAIN_DATA_FEED_H

#include "model/step/step.h"
#include "train/data/stores.h"

typedef struct ups_feed ups_feed;

typedef struct ups_feed_options {
    ups_device *device;           /* borrowed */
    const ups_stores_list *lists; /* whose windows will be drawn, with their stores; borrowed as `device` is */
    int list_count;
    ups_dtype dtype;       /* of batches */
    int64_t rows;          /* frames of a step's input, at most, */
    int64_t elements;      /* and their elements, all together; 0, both: batches come whole, as the loader has them */
    bool draws;            /* the device draws windows (ups_feed_can_keep_on), of what stays there or was sent */
    uint64_t device_bytes; /* of the device's memory for what stays, at most */
} ups_feed_options;

/* Whether a device can draw windows itself: it has memory of its own. Loaders for one that does are `in_place`. */
bool ups_feed_can_keep_on(const ups_device *device);

ups_status ups_feed_open(const ups_feed_options *options, ups_feed **feed, ups_error *error);
/* The device has to be done with what was uploaded. NULL is fine. */
void ups_feed_close(ups_feed *feed);

typedef struct ups_feed_facts {
    int64_t trajectories; /* on the device by now */
    uint64_t bytes, room; /* that they take, and may take */
    int64_t drawn, sent;  /* windows so far: on the device, and from the host */
} ups_feed_facts;
ups_feed_facts ups_feed_look(const ups_feed *feed);

/* The batch that is uploaded from now on; `entries`: the loader's tasks. Both stay until the upload was read. */
void ups_feed_take(ups_feed *feed, const ups_batch *batch, const ups_loader_task *entries);

/* Of the window b its frames first[b], first[b] + spacing, … (`count` of them; `first` NULL: from 0) become the input
 * (windows, count, …) of `step`. Once between two ups_step_wait_uploaded. */
ups_status ups_feed_upload(ups_feed *feed, ups_step *step, ups_value input, const int64_t *first, int64_t count,
                           int64_t spacing, ups_error *error);

#endif
