/* The CUDA runtime in software, as far as the back end calls it: what its files share.
 *
 * Work is queued and done as late as the API allows: when the host waits for it, and then only what it waits for, in a
 * random order that respects streams, events and edges of graphs (SIMT_ORDER, SIMT_SEED). Host code that relies on more
 * reads NaN, or faults on a page that it may not touch yet.
 *
 * A call that the real runtime refuses returns the real error, and one sentence on stderr says why. A call that is not
 * here does not link. The default stream is refused: it waits for all others, and hides what they forget. */
#ifndef UPS_TESTS_CUDA_RUNTIME_H
#define UPS_TESTS_CUDA_RUNTIME_H

#include "tests/cuda/runtime/counts.h"
#include "tests/cuda/simt/simt.h"
#include <cuda_runtime_api.h>

enum { EMULATED_FRAMES = 12 };

/* The host code that called. */
typedef struct emulated_caller {
    void *frames[EMULATED_FRAMES];
    int count;
} emulated_caller;
void emulated_caller_take(emulated_caller *caller);
/* FILE:LINE of the first frame that is not the emulator's, in static storage. */
const char *emulated_caller_describe(const emulated_caller *caller);

/* What is to be done: shared by a graph and what it launches. */
typedef enum emulated_kind {
    EMULATED_NOTHING,
    EMULATED_END, /* of a graph's launch */
    EMULATED_KERNEL,
    EMULATED_COPY,
    EMULATED_FILL,
    EMULATED_CALL
} emulated_kind;
typedef struct emulated_body {
    emulated_kind kind;
    int references;
    emulated_caller caller;
    const simt_kernel *kernel;
    simt_dim grid, block;
    uint32_t dynamic_shared;
    void *owned; /* a kernel's parameters, a call's argument, what was copied from pageable memory; freed with it */
    void *to;
    const void *from;
    size_t bytes;
    int value;
    uint64_t hash;                                  /* of pinned memory that is to be copied */
    void (*call)(uint32_t work, const void *owned); /* a library's */
    const char *name;                               /* of it */
} emulated_body;
emulated_body *emulated_body_create(emulated_kind kind);
void emulated_body_release(emulated_body *body);

/* One piece of work: it runs after all of `before`. */
typedef struct emulated_work {
    uint32_t id;     /* in the order of issuing */
    uint32_t waited; /* id of the first work that was issued after the host had waited for this; 0: it has not */
    uint32_t mark, collected;
    bool done;
    double clock; /* milliseconds that work had taken when this was done: products alone take any */
    emulated_body *body;
    struct emulated_work **before;
    uint32_t before_count;
} emulated_work;

typedef struct emulated_list {
    emulated_work **items;
    uint32_t count, room;
} emulated_list;
void emulated_list_add(emulated_list *list, emulated_work *work);

emulated_work *emulated_work_add(emulated_body *body, const emulated_list *before); /* takes `body` */
extern double emulated_clock;
extern bool emulated_broken;                  /* as after a kernel's fault: waiting for a stream fails, for good */
void emulated_work_wait(emulated_work *work); /* the host does; NULL is fine */
bool emulated_work_try(emulated_work *work);  /* does a little of what is left; whether it is done */

/* A capture under way, or one that ended: events remember it. */
typedef struct emulated_capture {
    struct emulated_capture *before;
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    bool ended, invalid, relaxed;
} emulated_capture;

typedef struct emulated_indices {
    uint32_t *items, count, room;
} emulated_indices;
void emulated_indices_add(emulated_indices *to, uint32_t index); /* once */
void emulated_indices_copy(emulated_indices *to, const emulated_indices *from);

struct CUstream_st {
    struct CUstream_st *next; /* of all there were */
    emulated_work *last;
    emulated_list waits; /* for events: of the next work */
    emulated_capture *capture;
    emulated_indices frontier; /* of its graph: the nodes that come before the next one */
};

struct CUevent_st {
    bool timed;
    emulated_work *work;
    emulated_capture *capture; /* it was recorded in */
    emulated_indices nodes;
};

typedef struct emulated_node {
    emulated_body *body;
    emulated_indices before;
} emulated_node;

struct CUgraph_st {
    emulated_node *nodes;
    uint32_t count, room;
};

/* Issues to a stream, or to the graph that it captures; takes `body`. */
cudaError_t emulated_issue(cudaStream_t stream, emulated_body *body, emulated_work **work);
struct CUstream_st *emulated_streams(void);
void emulated_wait_for_all(void);
bool emulated_is_capturing(void); /* on any stream, in a mode that forbids what is not safe in it */

/* Host and device memory of a copy or fill. `begin` when it is issued: pages that the host may not touch until `run`.
 */
bool emulated_copy_is_pinned(const void *host);
void emulated_copy_begin(emulated_body *body);
void emulated_copy_run(uint32_t work, emulated_body *body);
void emulated_fill_run(uint32_t work, emulated_body *body);

void emulated_capability(int *major, int *minor); /* of the card */
size_t emulated_most_shared(void);                /* bytes of a block, with asking */

/* Remembers an error for cudaGetLastError and says why. */
cudaError_t emulated_refuse(cudaError_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Set by programs that mean to describe products that cuBLASLt refuses; others are stopped there. */
extern bool emulated_may_be_refused;

/* What cuBLASLt does with sums of B's columns, and how long a product with them takes, of one without. */
typedef enum emulated_sums {
    EMULATED_SUMS_RIGHT,
    EMULATED_SUMS_NOT_MADE,
    EMULATED_SUMS_OF_A,
    EMULATED_SUMS_REFUSED
} emulated_sums;
extern emulated_sums emulated_sums_are;
extern double emulated_sums_time;

extern emulated_counts emulated_counted;
extern int64_t emulated_graphs_left; /* launches that have not run */
void emulated_count_issued(const emulated_body *body);
/* The host has waited; `for_nothing`: what it waited for was done before. */
void emulated_count_wait(bool for_nothing);

/* One call at a time: put at the top of each. */
void emulated_lock(void);
void emulated_unlock(const int *unused);
#define EMULATED_CALL_BEGINS()                                                                                         \
    __attribute__((cleanup(emulated_unlock), unused)) const int emulated_locked_ = (emulated_lock(), 0)

#endif
