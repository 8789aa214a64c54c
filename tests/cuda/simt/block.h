/* The block that runs: what the emulator's own files share. */
#ifndef UPS_TESTS_CUDA_SIMT_BLOCK_H
#define UPS_TESTS_CUDA_SIMT_BLOCK_H

#include "tests/cuda/simt/fiber.h"
#include "tests/cuda/simt/simt.h"

enum {
    SIMT_LANES = 32,
    SIMT_MAX_WARPS = 32,
    SIMT_MAX_THREADS = SIMT_LANES * SIMT_MAX_WARPS,
    SIMT_BARRIERS = 16,
    SIMT_MAX_ACTORS = 2 * SIMT_MAX_THREADS, /* threads, and each one's asynchronous copies (races.c) */
    SIMT_MAX_COPIES = 128,
    SIMT_MAX_SHARED = 227 << 10,
    SIMT_GROUP_WARPS = 4, /* a warpgroup */
    SIMT_GROUP_THREADS = SIMT_GROUP_WARPS * SIMT_LANES,
    SIMT_MAX_GROUPS = SIMT_MAX_WARPS / SIMT_GROUP_WARPS,
    SIMT_ROW = 16, /* bytes of shared memory that wgmma reads at once */
};

/* An asynchronous copy that was begun. */
typedef struct simt_copy {
    uint32_t to, bytes, source_bytes;
    const uint8_t *from;
    const simt_place *at;
} simt_copy;

/* An arrival at an mbarrier that follows copies. */
typedef struct simt_arrival {
    uint32_t mbarrier, copies; /* how many that were not brought yet it follows */
    uint32_t time;             /* of the last that was */
} simt_arrival;

/* Copies that a thread waits for together. */
typedef struct simt_copy_group {
    uint32_t end;  /* how many copies up to its last, of those that were not brought yet */
    uint32_t time; /* of the last that was brought before the thread waited; 0: none */
} simt_copy_group;

typedef struct simt_thread {
    simt_fiber fiber;
    simt_dim tid;
    uint32_t index;
    bool done;
    int barrier;          /* where it waits; -1: nowhere */
    const char *waits;    /* for what, in words */
    const simt_place *at; /* and where */
    uint64_t turns;
    uint8_t *local;
    uint32_t local_bytes;
    simt_copy copies[SIMT_MAX_COPIES];
    simt_copy_group groups[SIMT_MAX_COPIES], open; /* open: of the copies that were not committed yet */
    simt_arrival arrivals[SIMT_MAX_COPIES];
    uint32_t copy_count, group_count, arrival_count;
    uint32_t brought; /* when the last copy was that an arrival follows; 0: never */
} simt_thread;

typedef struct simt_block {
    uint32_t launch, number; /* of the work, of the block in its grid */
    const simt_kernel *kernel;
    uint32_t thread_count, alive;
    simt_thread *threads, *running;
    uint8_t *shared;
    uint32_t shared_bytes;
} simt_block;
extern simt_block simt_now;

/* The running thread stops until someone wakes it. */
void simt_park(const char *waits, const simt_place *at);
void simt_wake(simt_thread *thread);

/* A thread of the warp is done: a meeting may be complete without it (warp.c). */
void simt_warps_begin(void);
void simt_warp_left(uint32_t thread);

/* Asynchronous copies (copies.c): a block begins, the running thread ends. */
void simt_copies_block(void);
void simt_copies_end(void);
/* An arrival that follows copies happens, with them, at an mbarrier that a thread waits at. False: there is none. */
bool simt_copies_help(void);
void simt_copies_switch(void); /* threads change: as it may be */
void simt_copies_finish(void); /* all do */

/* Products of warpgroups (warpgroup.c): a block begins, the running thread comes to a barrier of the block, or ends. */
void simt_wgmma_block(void);
void simt_wgmma_barrier(const simt_place *at);
void simt_wgmma_end(void);
/* The running thread writes shared memory: no product may be reading it. */
void simt_wgmma_check_write(uint64_t offset, uint32_t bytes, const simt_place *at);

/* mbarriers (mbarrier.c): a block begins; the running thread touches shared memory, where none may lie. */
void simt_mbarrier_block(void);
void simt_mbarrier_check(uint64_t offset, uint32_t bytes, const simt_place *at);
/* The running thread's copies are to arrive at an mbarrier, which is told; it releases what the thread did and knows.
 * `adds`: one more is expected. */
uint32_t simt_mbarrier_expect(uint64_t address, bool adds, const simt_place *at);
/* They do, and release what copies of that thread did up to `time`. */
void simt_mbarrier_copied(uint32_t mbarrier, uint32_t thread, uint32_t time);
bool simt_mbarrier_is_awaited(uint32_t mbarrier);

/* Registers that threads give up and take (register_pool.c): a block begins, the running thread ends. */
void simt_pool_block(void);
void simt_pool_end(void);

/* The race checker (races.c). Times are the block's own: they pass when threads synchronise. */
void simt_races_launch(uint32_t launch, uint32_t blocks);
void simt_races_block(void);
void simt_races_synchronise(uint32_t warps); /* bit i: warp i takes part */
void simt_races_atomic(simt_access access);  /* of device memory, by the running thread */
typedef struct simt_shadow simt_shadow;
simt_shadow *simt_shadow_create(size_t bytes); /* of memory; NULL: races are not looked for */
void simt_shadow_destroy(simt_shadow *shadow);
simt_shadow *simt_shadow_of_shared(void);
/* A thread touches `bytes` bytes, `offset` into what the shadow is of. `where` names the memory. */
void simt_races_check(simt_shadow *shadow, uint64_t offset, uint32_t bytes, simt_access access, const char *where,
                      const simt_place *at);
/* Work that is not a kernel does. */
void simt_races_check_work(simt_shadow *shadow, uint32_t launch, uint64_t offset, size_t bytes, bool write);
/* Bytes of shared memory are to be brought by an asynchronous copy. */
void simt_races_expect(uint32_t offset, uint32_t bytes, const simt_place *at);
/* The copying thread brings them, when it waits. `is_apart`: its copies do, for whoever waits for their arrival. */
void simt_races_arrived(uint32_t offset, uint32_t bytes, uint32_t thread, bool is_apart);
uint32_t simt_races_copied(void); /* the time of copies that were brought apart; those that follow are later */
void simt_races_hear_copies(uint32_t time); /* the running thread knows of its own up to a time */
uint32_t simt_races_actor(uint32_t thread); /* the number of a thread's copies: threads have the first */
uint32_t simt_races_actors(void);
/* The time, and up to which the running thread knows what another did. */
uint32_t simt_races_now(void);
uint32_t simt_races_known(uint32_t actor);
uint32_t simt_races_seen(uint32_t warp); /* what all of the running thread's warp know of all of another */
/* Phases of mbarriers: the running thread adds what it did and knows to `known`, of each actor; and takes it over. */
void simt_races_release(uint32_t *known);
void simt_races_acquire(const uint32_t *known);
/* The threads of a warpgroup that come to a product. */
typedef struct simt_readers {
    uint32_t warps;                      /* that came, a bit each */
    uint32_t known[SIMT_MAX_ACTORS];     /* up to which time all of them know what each actor did */
    uint32_t fences[SIMT_GROUP_THREADS]; /* how many fence.proxy.async each had run */
    uint32_t fenced[SIMT_MAX_ACTORS]; /* up to which time all knew that before their last; UINT32_MAX: not looked at */
} simt_readers;
void simt_races_readers(simt_readers *readers);
void simt_races_come(simt_readers *readers); /* the running thread does */
/* The product reads SIMT_ROW bytes of shared memory, through the asynchronous proxy, when all have come. */
void simt_races_read_by_product(uint32_t offset, simt_readers *readers, const simt_place *at);

#endif
