/* For tests of processes that train together, which mpirun starts: every process runs the same claims, and one that
 * fails ends all. Of what is exchanged they know the sums by hand. */
#ifndef UPS_TESTS_TRAIN_RANKS_H
#define UPS_TESTS_TRAIN_RANKS_H

#include "train/comm/comm.h"

extern ups_comm *comm;
extern int rank, size;

/* Opens the communicator, or says why not and returns the code to exit with. */
int meet_ranks(void);
void sleep_ms(long ms);
void forget_signals(void); /* until the communicators have seen that nobody is asked to end */

/* Of any rank and place; so different in size that another order of the sum has other bits. */
float term(int64_t of, int64_t i);
float sum_of(int64_t first, int64_t terms, int64_t i); /* of terms `first`, `first` + 1, … in order */
float *fill(int64_t of, int64_t count);                /* terms of `of`; free with free() */
void assert_sums(const float *values, int64_t first, int64_t terms, int64_t count);
void assert_number(float found, float expected, int64_t i); /* of element `i`, to the bit */

/* Pieces of uneven lengths, dealt to ranks in no order; every fifth piece is long. */
ups_shares make_shares(int64_t count);
int32_t owner(const ups_shares *shares, int64_t element);

#endif
