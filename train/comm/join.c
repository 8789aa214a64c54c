#include "train/comm/join.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct joined {
    ups_status status;
    char message[500]; /* of why not */
} joined;

static void note(joined *own, ups_status status, const ups_error *error) {
    own->status = status;
    snprintf(own->message, sizeof own->message, "%.*s", (int)sizeof own->message - 1,
             status == UPS_OK ? "" : error->message);
}

/* What every rank said: the first that could not, and why. */
static ups_status gather_joined(ups_comm *comm, const joined *own, joined *first, int *rank, ups_error *error) {
    joined *all = calloc((size_t)ups_comm_size(comm), sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const ups_status status = ups_comm_gather(comm, own, all, sizeof *own, error);
    for (*rank = 0; *rank < ups_comm_size(comm) && all[*rank].status == UPS_OK;) ++*rank;
    *first = *rank < ups_comm_size(comm) ? all[*rank] : (joined){0};
    free(all);
    return status;
}

static ups_status join(ups_comm *comm, ups_device *device, int most_blocks, ups_peers **peers, joined *first, int *rank,
                       ups_error *error) {
    const ups_peers_class *class = device->class->peers;
    struct {
        joined made;
        unsigned char name[UPS_PEERS_NAME];
    } met = {0};
    joined own = {0};
    ups_error why;
    char library[80];
    if (!class) {
        note(&own, ups_fail(&why, UPS_ERR_UNSUPPORTED, "it computes on '%s'", device->class->name), &why);
    } else { /* a rank that lacks it must not let the others wait for it in join() */
        note(&own, class->library(library, sizeof library, &why), &why);
    }
    UPS_TRY(gather_joined(comm, &own, first, rank, error));
    if (first->status != UPS_OK) return UPS_OK;
    if (ups_comm_rank(comm) == 0) note(&met.made, class->meet(met.name, &why), &why);
    UPS_TRY(ups_comm_broadcast(comm, &met, sizeof met, error));
    own = met.made;
    if (own.status == UPS_OK) {
        ups_peers_place place = {.rank = ups_comm_rank(comm), .size = ups_comm_size(comm), .most_blocks = most_blocks};
        memcpy(place.name, met.name, sizeof place.name);
        note(&own, class->join(device, &place, peers, &why), &why);
    }
    UPS_TRY(gather_joined(comm, &own, first, rank, error));
    if (first->status == UPS_OK) return UPS_OK;
    class->leave(device, *peers);
    *peers = NULL;
    return UPS_OK;
}

ups_status ups_join_devices(ups_comm *comm, ups_device *device, bool required, int most_blocks, ups_peers **peers,
                            ups_error *error) {
    const bool leads = ups_comm_rank(comm) == 0;
    joined first;
    int rank;
    *peers = NULL;
    UPS_TRY(join(comm, device, most_blocks, peers, &first, &rank, error));
    if (*peers) {
        char library[80];
        if (leads && device->class->peers->library(library, sizeof library, NULL) == UPS_OK)
            ups_log(UPS_LOG_INFO, "cards sum gradients by %s", library);
        return UPS_OK;
    }
    if (required)
        return ups_fail(error, first.status, "ranks.gradients: nccl: rank %d cannot take part: %s", rank,
                        first.message);
    if (leads && device->class->peers)
        ups_log(UPS_LOG_WARNING, "gradients are summed in the host's memory, which is slow: rank %d: %s", rank,
                first.message);
    return UPS_OK;
}
