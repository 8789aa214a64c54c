#include "model/update_channel.h"

#include "model/device.h"
#include <stddef.h>
#include <stdlib.h>

enum { GIVEN = 4 /* inputs that may be under way at once */ };

_Static_assert(offsetof(ups_update, result) == sizeof(ups_update_input), "input and result are written at once");

/* Host memory of the device's own, and when it may be touched again. */
typedef struct slot {
    ups_update *host;
    ups_event *event;
} slot;

struct ups_update_channel {
    ups_device *device;
    ups_update *memory;
    slot given[GIVEN], taken[UPS_UPDATE_TAKEN];
    int64_t give_count, take_count, read_count;
};

static ups_status make_slot(ups_device *device, slot *made, ups_error *error) {
    UPS_TRY(device->class->allocate_host(device, sizeof *made->host, (void **)&made->host, error));
    return device->class->event_create(device, &made->event, error);
}

static void free_slot(ups_device *device, slot *made) {
    if (made->event) device->class->event_destroy(device, made->event);
    if (made->host) device->class->release_host(device, made->host);
}

ups_status ups_update_open(ups_device *device, ups_update_channel **channel, ups_error *error) {
    ups_update_channel *made = calloc(1, sizeof *made);
    *channel = NULL;
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a training step's state");
    made->device = device;
    ups_status status = device->class->allocate(device, sizeof *made->memory, (void **)&made->memory, error);
    for (int i = 0; i < GIVEN && status == UPS_OK; i++) status = make_slot(device, &made->given[i], error);
    for (int i = 0; i < UPS_UPDATE_TAKEN && status == UPS_OK; i++) status = make_slot(device, &made->taken[i], error);
    if (status == UPS_OK) status = ups_update_restore(made, &(ups_update_state){.loss_scale = 1}, error);
    if (status == UPS_OK) {
        *channel = made;
        return UPS_OK;
    }
    ups_update_close(made);
    return status;
}

void ups_update_close(ups_update_channel *channel) {
    if (!channel) return;
    ups_device *device = channel->device;
    if (channel->memory) device->class->release(device, channel->memory); /* waits for what uses the slots */
    for (int i = 0; i < GIVEN; i++) free_slot(device, &channel->given[i]);
    for (int i = 0; i < UPS_UPDATE_TAKEN; i++) free_slot(device, &channel->taken[i]);
    free(channel);
}

ups_update *ups_update_memory(const ups_update_channel *channel) {
    return channel->memory;
}

ups_status ups_update_restore(ups_update_channel *channel, const ups_update_state *state, ups_error *error) {
    ups_device *device = channel->device;
    UPS_TRY(device->class->upload(device, &channel->memory->state, state, sizeof *state, error));
    return device->class->synchronize(device, error); /* `state` is the caller's */
}

ups_status ups_update_give(ups_update_channel *channel, const ups_update_input *input, ups_error *error) {
    ups_device *device = channel->device;
    slot *next = &channel->given[channel->give_count++ % GIVEN];
    UPS_TRY(device->class->event_wait(device, next->event, error));
    *next->host = (ups_update){.input = *input};
    size_t bytes = sizeof *input + (input->micro_batch == 0 || input->clears ? sizeof next->host->result : 0);
    UPS_TRY(device->class->upload(device, channel->memory, next->host, bytes, error));
    return device->class->event_record(device, next->event, UPS_STREAM_COMPUTE, error);
}

ups_status ups_update_take(ups_update_channel *channel, ups_error *error) {
    ups_device *device = channel->device;
    if (channel->take_count - channel->read_count == UPS_UPDATE_TAKEN) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%d results of training steps wait to be read already",
                        UPS_UPDATE_TAKEN);
    }
    slot *next = &channel->taken[channel->take_count++ % UPS_UPDATE_TAKEN];
    UPS_TRY(device->class->download_later(device, next->host, channel->memory, sizeof *next->host, error));
    return device->class->event_record(device, next->event, UPS_STREAM_COMPUTE, error);
}

ups_status ups_update_read(ups_update_channel *channel, ups_update *update, ups_error *error) {
    ups_device *device = channel->device;
    if (channel->read_count == channel->take_count) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "no result of a training step was taken");
    }
    slot *next = &channel->taken[channel->read_count++ % UPS_UPDATE_TAKEN];
    UPS_TRY(device->class->event_wait(device, next->event, error));
    *update = *next->host;
    return UPS_OK;
}
