/* A training step's share of each process, and the sums over all of them: gradients, losses, and which parameters were
 * trained. Every process then makes the same update, so that all have the same weights.
 *
 * A step has `accumulation` micro-batches however many processes there are, and each takes every so-manieth of them:
 * rank r of R those with index r, R + r, 2R + r … What a micro-batch holds and draws depends on its index alone.
 * Gradients are summed once a step. A sum of many numbers depends on where it is begun, in its last bits;
 * `reproducible` sums micro-batch by micro-batch, in their order, so that any number of processes, one among them, has
 * the same bits. That takes a sum a micro-batch in the place of one a step.
 *
 * With `shares` (shares.h) each process updates its share of the weights alone, and all get the others' after it. Then
 * a process needs the sums of its share alone; but where the norm of all gradients is to have the bits of one process,
 * it gets all of them:
 *
 *   gradients → [the norm of this process's share] → results → the update → weights
 *
 * Sums begin while backward computes the rest: on processors, and between cards that join (join.h). Cards that do not
 * give their gradients to the hosts once all are made. */
#ifndef UPS_TRAIN_COMM_EXCHANGE_H
#define UPS_TRAIN_COMM_EXCHANGE_H

#include "base/hash.h"
#include "model/device.h"
#include "model/parameters/parameters.h"
#include "model/step/step.h"
#include "model/update.h"
#include "train/comm/comm.h"
#include "train/config/config.h"

typedef struct ups_exchange ups_exchange;

typedef struct ups_exchange_options {
    ups_comm *comm; /* borrowed, like what follows; NULL: one process */
    ups_device *device;
    ups_parameters *parameters; /* allocated with gradients */
    int64_t rounds;             /* micro-batches of a step that this process computes */
    bool reproducible;
    ups_gradient_path path;
    double bucket;            /* MiB of gradients that devices sum at once by themselves; 0: as many as suit */
    int most_blocks;          /* that devices' exchanges take, at most (ups_peers_place) */
    const ups_shares *shares; /* one a process; NULL: each updates all */
} ups_exchange_options;

/* *exchange is NULL where one process has nothing to exchange; all that follows takes that. Devices that can sum in
 * their own memory (ups_peers_class) do so, where all of them join: else the log says why not, and where it was asked
 * for, that is an error. */
ups_status ups_exchange_open(const ups_exchange_options *options, ups_exchange **exchange, ups_error *error);
void ups_exchange_close(ups_exchange *exchange);
/* What `open` would allocate, in bytes of the host's memory. */
size_t ups_exchange_measure(const ups_comm *comm, const ups_device *device, int64_t elements, int64_t rounds,
                            bool reproducible, const ups_shares *shares);

/* All processes begin with the weights of rank 0. */
ups_status ups_exchange_share_weights(ups_exchange *exchange, ups_error *error);
/* What processes that train together have in common. */
typedef struct ups_exchange_facts {
    int64_t step;  /* optimizer steps done */
    ups_hash data; /* what the model belongs to, and the samples */
} ups_exchange_facts;

/* Whether all have these and the same weights; UPS_ERR_IO says which rank has not. */
ups_status ups_exchange_check(ups_exchange *exchange, const ups_exchange_facts *facts, ups_error *error);

/* Who is to be told which gradients are complete while the last micro-batch of a step is computed: sums of these begin
 * meanwhile. NULL where nobody is. `trained`, borrowed until the gradients are exchanged: by then which sets of
 * parameters this process has gradients for; what no process has is not sent. */
const ups_gradient_watch *ups_exchange_watch(ups_exchange *exchange, const bool *trained);
/* Whether each micro-batch is summed by itself: its gradients and losses begin at nothing. */
bool ups_exchange_takes_each(const ups_exchange *exchange);
/* After a micro-batch of this process, its `round`-th of the step, was issued. */
ups_status ups_exchange_micro_batch(ups_exchange *exchange, int64_t round, ups_update *update, ups_error *error);
/* After the last one: gradients become those of all, or, where it divides them, those of this process's share do. Those
 * of sets that no process has trained are left as they are. `trained` is as above. */
ups_status ups_exchange_gradients(ups_exchange *exchange, const bool *trained, ups_error *error);
/* Whether that is so: then each adds up the norm of its share before it tells its results. */
bool ups_exchange_divides_gradients(const ups_exchange *exchange);
/* Losses and norms in `update` (device memory) and `trained` (by set of parameters) become those of all. Between
 * devices that join no host waits for the step. */
ups_status ups_exchange_results(ups_exchange *exchange, ups_update *update, bool *trained, ups_error *error);
/* After the update, or whatever else changed them: each process's share of the weights goes to all. */
ups_status ups_exchange_weights(ups_exchange *exchange, ups_error *error);
/* Of what each keeps of its share alone, when it is saved (parameters.h); NULL: each has all. */
const ups_parameter_gather *ups_exchange_gather(const ups_exchange *exchange);
/* Whether any process was asked to end, by the last step; the same answer on all. */
bool ups_exchange_cancelled(const ups_exchange *exchange);

#endif
