/* A rank's seat: its part of the machine that it shares with others, a card of its own, and as many processors as leave
 * the others theirs. */
#ifndef UPS_TRAIN_COMM_SEAT_H
#define UPS_TRAIN_COMM_SEAT_H

#include <sched.h>
#include <stdint.h>

/* Where a process may run. */
typedef struct ups_seat {
    char host[65];
    cpu_set_t processors; /* none: it is not known */
} ups_seat;

/* Of a machine with several cards each process has its own: that of its number here, of those that are to be seen. Said
 * before MPI begins, which may ask the driver for cards, too. */
void ups_seat_choose_card(int64_t number);

/* This process's. All bytes are set: seats are exchanged. */
void ups_seat_find(ups_seat *seat);
/* How many of these (count), itself among them, may run on some of the same processors as `own`: who divides its
 * processors by that leaves the others theirs, whether a launcher bound them or not. */
int ups_seat_count_sharing(const ups_seat *own, const ups_seat *all, int count);
/* Warns where a launcher bound a process to less than half of its part of a machine that so many share. */
void ups_seat_warn_of_binding(const ups_seat *own, int processes);

#endif
