#include "train/comm/exchange.h"

#include "base/system/cancel.h"
#include "train/comm/join.h"
#include <stdlib.h>
#include <string.h>

/* Gradients that are summed at once. Between cards each ends a part of what a card is given of backward
 * (model/step): fewer and larger ones, and no more than some twenty. */
#define BUCKET UPS_SHARE_RUN
#define CARDS_BUCKET (INT64_C(4) << 20)
#define CARDS_MOST_BUCKETS 20

/* What processes tell each other of a step before its sums. */
typedef struct intent {
    bool trained[UPS_UPDATE_MAX_SETS]; /* the sets of parameters that one has gradients of */
    int signalled;                     /* the signal that it was asked to end by; 0: none */
} intent;

/* Of a micro-batch, or of a step, once it is done. */
typedef struct told {
    ups_update_result result;
    intent intent;
} told;

struct ups_exchange {
    ups_exchange_options options;
    int64_t elements;
    float *host;      /* (elements): gradients of a device whose memory is not the host's; else NULL */
    float *slice;     /* where each micro-batch is summed by itself: this process's part of the sum so far; else NULL */
    ups_peers *peers; /* devices that sum by themselves; NULL: they do not */
    int64_t bucket;
    told own, *all;
    int64_t *set_end;        /* (sets): where in the flat buffers each ends, and the next begins; NULL: all are sent */
    const bool *own_trained; /* the sets that this process has gradients of in the step; borrowed */
    intent *intents;         /* of each process */
    bool agreed;             /* all know the intents of all in the step */
    ups_status failed;       /* of sums that began during backward */
    ups_error failure;
    int64_t begun; /* gradients of the step, from the first on, whose sums were begun */
    ups_gradient_watch watch;
    ups_parameter_gather gather;
    ups_update_result total;                      /* of the step so far */
    bool trained[UPS_UPDATE_MAX_SETS], cancelled; /* by what is known of the step */
};

/* Where a process has one micro-batch of a step, one sum has their order already. */
static bool takes_each(int64_t rounds, bool reproducible) {
    return reproducible && rounds > 1;
}

/* Whether each process gets the sums of its share alone. */
static bool divides(const ups_shares *shares, bool reproducible) {
    return shares && !reproducible;
}

size_t ups_exchange_measure(const ups_comm *comm, const ups_device *device, int64_t elements, int64_t rounds,
                            bool reproducible, const ups_shares *shares) {
    if (!comm && !takes_each(rounds, reproducible)) return 0;
    const int64_t bucket = elements < BUCKET ? elements : BUCKET;
    const int64_t at_once = takes_each(rounds, reproducible) ? elements : bucket;
    const size_t ranks = (size_t)ups_comm_size(comm), staged = device->class->immediate ? 0 : (size_t)elements;
    const bool divided = divides(shares, reproducible);
    const size_t slice = (size_t)(divided ? ups_shares_most_within(shares, BUCKET) : ups_comm_slice(comm, at_once));
    const size_t received = comm ? slice * ranks : 0, packed = shares ? (size_t)bucket : 0; /* comm.c */
    return (staged + received + packed + (divided ? 0 : slice)) * sizeof(float);
}

/* ---- what no process has trained --------------------------------------------------------------------------------- */

/* Tasks have sets of parameters of their own, and a step has gradients of the tasks that it drew. Parts of a share lie
 * wherever they lie, and sums of each micro-batch are of all: these are sent whole. */
static bool knows_sets(const ups_exchange_options *options) {
    return options->comm && ups_parameters_sets(options->parameters) > 1 && !options->shares &&
           !takes_each(options->rounds, options->reproducible);
}

/* Where sets end, which lie one after the other; false: they do not. */
static bool find_sets(ups_exchange *e) {
    const ups_parameters *parameters = e->options.parameters;
    int32_t last = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, ups_parameters_placed(parameters, i));
        if (p->set < last) return false;
        for (; last < p->set; last++) e->set_end[last] = p->offset;
    }
    for (; last < ups_parameters_sets(parameters); last++) e->set_end[last] = e->elements;
    return true;
}

static intent intent_of(const bool *trained) {
    intent own = {.signalled = ups_cancel_requested() ? ups_cancel_signal() : 0};
    if (trained) memcpy(own.trained, trained, sizeof own.trained);
    return own;
}

static void take_intent(ups_exchange *e, const intent *theirs) {
    for (int set = 0; set < UPS_UPDATE_MAX_SETS; set++) e->trained[set] |= theirs->trained[set];
    if (theirs->signalled) ups_cancel_request_as(theirs->signalled);
    e->cancelled |= theirs->signalled != 0;
}

/* Once a step, where somebody has to know it: of sets that nobody trained nothing is sent, and devices that sum by
 * themselves tell the hosts nothing of the step. */
static ups_status agree(ups_exchange *e, ups_error *error) {
    if (e->agreed || (!e->set_end && !e->peers)) return UPS_OK;
    const intent own = intent_of(e->own_trained);
    UPS_TRY(ups_comm_gather(e->options.comm, &own, e->intents, sizeof own, error));
    e->cancelled = false;
    for (int rank = 0; rank < ups_comm_size(e->options.comm); rank++) take_intent(e, &e->intents[rank]);
    e->agreed = true;
    return UPS_OK;
}

/* From element `from` on, the first that is to be summed, and in *end where what follows it without a gap ends. */
static int64_t next_trained(const ups_exchange *e, int64_t from, int64_t *end) {
    *end = e->elements;
    if (!e->set_end) return from;
    const int32_t sets = ups_parameters_sets(e->options.parameters);
    int32_t set = 0;
    while (set < sets && e->set_end[set] <= from) set++;
    while (set < sets && !e->trained[set]) from = e->set_end[set++];
    while (set < sets && e->trained[set]) *end = e->set_end[set++];
    return from;
}

static const ups_peers_class *peers_of(const ups_exchange *e) {
    return e->options.device->class->peers;
}

/* A whole number of lines of memory, by which cards move most at once. */
static int64_t choose_bucket(const ups_exchange *e) {
    const int64_t line = UPS_SHARE_ALIGNMENT, asked = (int64_t)(e->options.bucket * 0x1p20 / sizeof(float));
    int64_t bucket = e->elements / CARDS_MOST_BUCKETS;
    if (!e->peers) return BUCKET;
    if (bucket < CARDS_BUCKET) bucket = CARDS_BUCKET;
    if (e->options.bucket > 0) bucket = asked > line ? asked : line;
    return (bucket + line - 1) / line * line;
}

/* Where gradients are summed. */
static float *summed_at(const ups_exchange *e) {
    return e->host && !e->peers ? e->host : ups_parameters_gradients(e->options.parameters);
}

/* What was begun is ended, whatever came between. */
static ups_status end_exchange(const ups_exchange *e, ups_status status, ups_error *error) {
    ups_error after;
    const ups_status ended = peers_of(e)->end(e->options.device, e->peers, status == UPS_OK ? error : &after);
    return status == UPS_OK ? ended : status;
}

static ups_status sum_by_peers(const ups_exchange *e, float *values, int64_t count, ups_error *error) {
    UPS_TRY(peers_of(e)->begin(e->options.device, e->peers, error));
    return end_exchange(e, peers_of(e)->sum(e->options.device, e->peers, values, count, error), error);
}

typedef ups_status peers_exchange(ups_device *device, ups_peers *peers, float *values, int64_t count, int rank,
                                  ups_error *error);

/* Each piece of the elements [from, from + count) with the rank whose share it is of; the first lies at `values`.
 * Pieces differ in length, and shares have any number of them. */
static ups_status exchange_pieces(const ups_exchange *e, peers_exchange *exchange, float *values, int64_t from,
                                  int64_t count, ups_error *error) {
    const ups_shares *shares = e->options.shares;
    ups_device *device = e->options.device;
    ups_status status = UPS_OK;
    UPS_TRY(peers_of(e)->begin(device, e->peers, error));
    for (int32_t p = ups_shares_piece_at(shares, from); p < shares->piece_count && status == UPS_OK; p++) {
        const ups_share_piece piece = ups_share_piece_within(shares->pieces[p], from, from + count);
        if (piece.count <= 0) break;
        status = exchange(device, e->peers, values + (piece.offset - from), piece.count, piece.share, error);
    }
    return end_exchange(e, status, error);
}

/* Of so many gradients from the first on whose sum was not begun yet. */
static ups_status begin_sum(ups_exchange *e, int64_t count, ups_error *error) {
    const ups_exchange_options *options = &e->options;
    const ups_shares *shares = divides(options->shares, options->reproducible) ? options->shares : NULL;
    const int64_t from = e->begun;
    float *gradients = summed_at(e) + from;
    e->begun += count;
    if (e->peers && shares) return exchange_pieces(e, peers_of(e)->sum_at, gradients, from, count, error);
    if (e->peers) return sum_by_peers(e, gradients, count, error);
    if (shares)
        ups_comm_reduce_scatter(options->comm, shares, gradients, from, count);
    else
        ups_comm_sum(options->comm, gradients, count);
    return UPS_OK; /* what fails there is told when it is finished */
}

/* Of whole buckets that are complete. All processes sum the same ones in the same order, whatever they were told when.
 */
static ups_status begin_sums(ups_exchange *e, int64_t complete, ups_error *error) {
    UPS_TRY(agree(e, error));
    for (;;) {
        int64_t end;
        const int64_t from = next_trained(e, e->begun, &end), count = end - from < e->bucket ? end - from : e->bucket;
        if (count <= 0 || from + count > complete) return UPS_OK;
        e->begun = from;
        UPS_TRY(begin_sum(e, count, error));
    }
}

/* While backward goes on. */
static void begin_complete(void *context, int64_t complete) {
    ups_exchange *e = context;
    const int64_t first = e->elements < e->bucket ? e->elements : e->bucket; /* before, nothing is worth waiting for */
    if (e->failed == UPS_OK && complete >= first) e->failed = begin_sums(e, complete, &e->failure);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static ups_status bring(void *context, float *elements, int64_t offset, int64_t count, ups_error *error) {
    const ups_exchange *e = context;
    ups_comm_bring(e->options.comm, e->options.shares, elements, offset, count);
    return ups_comm_finish(e->options.comm, error);
}

ups_status ups_exchange_open(const ups_exchange_options *options, ups_exchange **exchange, ups_error *error) {
    *exchange = NULL;
    const bool each = takes_each(options->rounds, options->reproducible);
    if (!options->comm && !each) return UPS_OK;
    ups_exchange *opened = calloc(1, sizeof *opened);
    if (!opened) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    opened->options = *options;
    opened->gather = (ups_parameter_gather){bring, opened, .writes = ups_comm_rank(options->comm) == 0};
    opened->elements = ups_parameters_elements(options->parameters);
    const size_t ranks = (size_t)ups_comm_size(options->comm), sets = (size_t)ups_parameters_sets(options->parameters);
    opened->all = calloc(ranks, sizeof *opened->all);
    opened->intents = calloc(ranks, sizeof *opened->intents);
    if (knows_sets(options)) opened->set_end = calloc(sets, sizeof *opened->set_end);
    const size_t bytes = (size_t)opened->elements * sizeof(float);
    const int64_t slice = ups_comm_slice(options->comm, opened->elements);
    if (each) opened->slice = malloc((size_t)(slice + 1) * sizeof(float));
    ups_status status =
        opened->all && opened->intents && (opened->set_end || !knows_sets(options)) && (opened->slice || !each)
            ? UPS_OK
            : ups_fail(error, UPS_ERR_MEMORY, "no memory for the sums of %lld gradients", (long long)opened->elements);
    ups_device *device = options->device;
    if (status == UPS_OK && !device->class->immediate)
        status = device->class->allocate_host(device, bytes, (void **)&opened->host, error);
    if (opened->set_end && !find_sets(opened)) {
        free(opened->set_end);
        opened->set_end = NULL;
    }
    if (status == UPS_OK && options->comm && !options->reproducible && options->path != UPS_GRADIENTS_HOST)
        status = ups_join_devices(options->comm, device, options->path == UPS_GRADIENTS_NCCL, options->most_blocks,
                                  &opened->peers, error);
    opened->bucket = choose_bucket(opened);
    opened->watch = (ups_gradient_watch){begin_complete, opened, .every = opened->bucket};
    if (status != UPS_OK) {
        ups_exchange_close(opened);
        return status;
    }
    *exchange = opened;
    return UPS_OK;
}

void ups_exchange_close(ups_exchange *exchange) {
    if (!exchange) return;
    ups_error after;
    ups_comm_finish(exchange->options.comm, &after);
    ups_device *device = exchange->options.device;
    if (exchange->peers) device->class->peers->leave(device, exchange->peers);
    if (exchange->host) device->class->release_host(device, exchange->host);
    free(exchange->slice);
    free(exchange->set_end);
    free(exchange->intents);
    free(exchange->all);
    free(exchange);
}

const ups_gradient_watch *ups_exchange_watch(ups_exchange *exchange, const bool *trained) {
    if (!exchange || !exchange->options.comm || exchange->slice) return NULL;
    if (exchange->host && !exchange->peers) return NULL; /* the host has none before all are made */
    exchange->own_trained = trained;
    return &exchange->watch;
}

bool ups_exchange_takes_each(const ups_exchange *exchange) {
    return exchange && exchange->slice;
}

bool ups_exchange_divides_gradients(const ups_exchange *exchange) {
    return exchange && divides(exchange->options.shares, exchange->options.reproducible);
}

const ups_parameter_gather *ups_exchange_gather(const ups_exchange *exchange) {
    return exchange && exchange->options.shares ? &exchange->gather : NULL;
}

bool ups_exchange_cancelled(const ups_exchange *exchange) {
    return exchange && exchange->cancelled;
}

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* As they are by now, in the host's memory. */
static ups_status fetch_weights(ups_exchange *e, float **weights, ups_error *error) {
    ups_device *device = e->options.device;
    float *own = ups_parameters_values(e->options.parameters);
    *weights = e->host ? e->host : own;
    if (!e->host) return UPS_OK;
    return device->class->download(device, e->host, own, (size_t)e->elements * sizeof *own, error);
}

static ups_status put_weights_back(ups_exchange *e, ups_error *error) {
    ups_device *device = e->options.device;
    float *own = ups_parameters_values(e->options.parameters);
    if (e->host) UPS_TRY(device->class->upload(device, own, e->host, (size_t)e->elements * sizeof *own, error));
    UPS_TRY(ups_parameters_refresh(e->options.parameters, error));
    return device->class->synchronize(device, error);
}

ups_status ups_exchange_share_weights(ups_exchange *exchange, ups_error *error) {
    if (!exchange || !exchange->options.comm) return UPS_OK;
    float *weights;
    UPS_TRY(fetch_weights(exchange, &weights, error));
    const int64_t bytes = exchange->elements * (int64_t)sizeof *weights;
    UPS_TRY(ups_comm_broadcast(exchange->options.comm, weights, bytes, error));
    return put_weights_back(exchange, error);
}

/* In the devices' own memory. */
static ups_status gather_by_peers(ups_exchange *e, ups_error *error) {
    ups_device *device = e->options.device;
    float *weights = ups_parameters_values(e->options.parameters);
    for (int64_t at = 0; at < e->elements; at += e->bucket) {
        const int64_t count = e->elements - at < e->bucket ? e->elements - at : e->bucket;
        UPS_TRY(exchange_pieces(e, peers_of(e)->spread, weights + at, at, count, error));
    }
    UPS_TRY(peers_of(e)->finish(device, e->peers, error));
    return ups_parameters_refresh(e->options.parameters, error);
}

ups_status ups_exchange_weights(ups_exchange *exchange, ups_error *error) {
    if (!exchange || !exchange->options.shares) return UPS_OK;
    ups_comm *comm = exchange->options.comm;
    float *weights;
    if (exchange->peers) return gather_by_peers(exchange, error);
    UPS_TRY(fetch_weights(exchange, &weights, error));
    ups_comm_all_gather(comm, exchange->options.shares, weights, 0, exchange->elements);
    UPS_TRY(ups_comm_finish(comm, error));
    return put_weights_back(exchange, error);
}

typedef struct common {
    ups_exchange_facts facts;
    ups_hash weights;
} common;

static bool hashes_differ(ups_hash a, ups_hash b) {
    return a.low != b.low || a.high != b.high;
}

static ups_status compare(const common *own, const common *first, int rank, ups_error *error) {
    if (own->facts.step != first->facts.step)
        return ups_fail(
            error, UPS_ERR_IO,
            "rank %d is at step %lld, and rank 0 at step %lld: every process has to see the run's directory by "
            "the same path",
            rank, (long long)own->facts.step, (long long)first->facts.step);
    if (hashes_differ(own->facts.data, first->facts.data))
        return ups_fail(
            error, UPS_ERR_IO,
            "rank %d has another checkpoint, other samples or other statistics of fields than rank 0: every "
            "process has to see the run's directory and data.root by the same paths",
            rank);
    if (hashes_differ(own->weights, first->weights))
        return ups_fail(
            error, UPS_ERR_IO,
            "rank %d has other weights than rank 0, which equal updates cannot lead to; go on from the last "
            "checkpoint, on other machines if it happens again",
            rank);
    return UPS_OK;
}

ups_status ups_exchange_check(ups_exchange *exchange, const ups_exchange_facts *facts, ups_error *error) {
    if (!exchange || !exchange->options.comm) return UPS_OK;
    ups_comm *comm = exchange->options.comm;
    const int ranks = ups_comm_size(comm);
    float *weights;
    UPS_TRY(fetch_weights(exchange, &weights, error));
    const common own = {*facts, ups_hash_bytes(weights, (size_t)exchange->elements * sizeof *weights)};
    common *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_comm_gather(comm, &own, all, sizeof own, error);
    for (int rank = 1; rank < ranks && status == UPS_OK; rank++) {
        status = compare(&all[rank], &all[0], rank, error);
        if (status != UPS_OK) ups_comm_end_together(comm, true);
    }
    free(all);
    return status;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Where they lie in the host's memory, once they have all been made. */
static ups_status fetch(ups_exchange *e, float **gradients, ups_error *error) {
    ups_device *device = e->options.device;
    float *own = ups_parameters_gradients(e->options.parameters);
    *gradients = e->host ? e->host : own;
    if (!e->host) return UPS_OK;
    return device->class->download(device, e->host, own, (size_t)e->elements * sizeof *own, error);
}

static ups_status put_gradients_back(ups_exchange *e, ups_error *error) {
    ups_device *device = e->options.device;
    if (!e->host) return UPS_OK;
    UPS_TRY(device->class->upload(device, ups_parameters_gradients(e->options.parameters), e->host,
                                  (size_t)e->elements * sizeof *e->host, error));
    return device->class->synchronize(device, error); /* before it is filled again */
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

static void add_result(ups_update_result *total, const ups_update_result *own) {
    total->squared_norm += own->squared_norm;
    total->non_finite += own->non_finite;
    for (int t = 0; t < UPS_UPDATE_MAX_TASKS; t++) {
        total->loss[t] += own->loss[t];
        total->windows[t] += own->windows[t];
    }
    for (int i = 0; i < UPS_UPDATE_MAX_LOSSES; i++) {
        total->part[i] += own->part[i];
        total->part_windows[i] += own->part_windows[i];
    }
    const int64_t bad = own->bad_micro_batch;
    if (bad > 0 && (total->bad_micro_batch == 0 || bad < total->bad_micro_batch)) total->bad_micro_batch = bad;
}

/* Adds to the total what every process has by now. */
static ups_status tell(ups_exchange *e, const ups_update *update, const bool *trained, ups_error *error) {
    ups_device *device = e->options.device;
    e->own = (told){.intent = intent_of(trained)};
    UPS_TRY(device->class->download(device, &e->own.result, &update->result, sizeof e->own.result, error));
    UPS_TRY(ups_comm_gather(e->options.comm, &e->own, e->all, sizeof e->own, error));
    e->cancelled = false;
    for (int rank = 0; rank < ups_comm_size(e->options.comm); rank++) {
        add_result(&e->total, &e->all[rank].result);
        take_intent(e, &e->all[rank].intent);
    }
    return UPS_OK;
}

/* In the devices' own memory: no host waits for the step. */
static ups_status add_by_peers(const ups_exchange *e, ups_update_result *result, ups_error *error) {
    ups_device *device = e->options.device;
    UPS_TRY(peers_of(e)->begin(device, e->peers, error));
    UPS_TRY(end_exchange(e, peers_of(e)->add_results(device, e->peers, result, error), error));
    return peers_of(e)->finish(device, e->peers, error);
}

static ups_status clear_result(const ups_exchange *e, ups_update *update, ups_error *error) {
    ups_device *device = e->options.device;
    return device->class->zero(device, &update->result, sizeof update->result, error);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

ups_status ups_exchange_micro_batch(ups_exchange *exchange, int64_t round, ups_update *update, ups_error *error) {
    if (!ups_exchange_takes_each(exchange)) return UPS_OK;
    float *gradients;
    UPS_TRY(fetch(exchange, &gradients, error));
    ups_comm_add(exchange->options.comm, gradients, exchange->elements, exchange->slice, round == 0);
    UPS_TRY(tell(exchange, update, NULL, error));
    return clear_result(exchange, update, error);
}

/* Of those whose sums have not begun. */
static ups_status sum_the_rest(ups_exchange *e, ups_error *error) {
    float *gradients;
    if (e->failed != UPS_OK) {
        *error = e->failure;
        return e->failed;
    }
    if (!e->peers) UPS_TRY(fetch(e, &gradients, error));
    UPS_TRY(begin_sums(e, e->elements, error));
    e->begun = 0;
    e->agreed = false;
    return UPS_OK;
}

ups_status ups_exchange_gradients(ups_exchange *exchange, const bool *trained, ups_error *error) {
    if (!exchange) return UPS_OK;
    ups_comm *comm = exchange->options.comm;
    exchange->own_trained = trained;
    if (exchange->slice)
        ups_comm_collect(comm, exchange->slice, summed_at(exchange), exchange->elements);
    else
        UPS_TRY(sum_the_rest(exchange, error));
    if (exchange->peers) return peers_of(exchange)->finish(exchange->options.device, exchange->peers, error);
    UPS_TRY(ups_comm_finish(comm, error));
    return put_gradients_back(exchange, error);
}

ups_status ups_exchange_results(ups_exchange *exchange, ups_update *update, bool *trained, ups_error *error) {
    if (!exchange) return UPS_OK;
    ups_device *device = exchange->options.device;
    if (exchange->peers) {
        UPS_TRY(add_by_peers(exchange, &update->result, error));
    } else {
        UPS_TRY(tell(exchange, update, trained, error));
        UPS_TRY(device->class->upload(device, &update->result, &exchange->total, sizeof exchange->total, error));
        UPS_TRY(device->class->synchronize(device, error));
    }
    memcpy(trained, exchange->trained, sizeof exchange->trained);
    exchange->total = (ups_update_result){0};
    memset(exchange->trained, 0, sizeof exchange->trained);
    return UPS_OK;
}
