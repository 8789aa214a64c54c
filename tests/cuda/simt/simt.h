/* A streaming multiprocessor in software: what translated kernels (ptx/translate.py) call, and how the runtime starts
 * them.
 *
 * Every CUDA thread is a fiber of the one host thread that launches. It runs until it has to meet others: a barrier, a
 * shuffle, a product of the whole warp. What it waits for, and at which line, is known, so that a kernel that cannot go
 * on is reported with the lines where its threads stand.
 *
 * A fault is one sentence on stderr that begins with FILE:LINE of the .cu file, and the process aborts.
 *
 * The environment: SIMT_ORDER=forward (default), backward or random, with SIMT_SEED, says in which order threads,
 * blocks and work of streams run; SIMT_RACES=0 leaves out the race checker (races.c), which takes most of the time;
 * SIMT_TURNS is how many turns of loops a thread may make before a kernel counts as hanging (default 2^26). */
#ifndef UPS_TESTS_CUDA_SIMT_H
#define UPS_TESTS_CUDA_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct simt_dim {
    uint32_t x, y, z;
} simt_dim;

typedef struct simt_place {
    const char *file;
    int line;
} simt_place;

/* Where the translated instruction stands in its .cu file: the translator writes #line. */
#define SIMT_HERE                                                                                                      \
    __extension__({                                                                                                    \
        static const simt_place here_ = {__FILE__, __LINE__};                                                          \
        &here_;                                                                                                        \
    })

typedef struct simt_parameter {
    uint32_t offset, bytes;
} simt_parameter;

/* One __global__ function. */
typedef struct simt_kernel {
    const char *name; /* mangled */
    void (*run)(const uint8_t *parameters);
    uint32_t shared_bytes; /* of its own; dynamic shared memory follows */
    uint32_t most_threads; /* a block (__launch_bounds__) */
    uint32_t least_blocks; /* at once on a multiprocessor (the same) */
    uint32_t parameter_count;
    const simt_parameter *parameters;
} simt_kernel;

/* What special registers say of the thread that runs. */
typedef struct simt_registers {
    simt_dim tid, ntid, ctaid, nctaid;
    uint32_t laneid;
    uint32_t turns_left; /* of loops, until simt_turned is asked */
    uint8_t *local;      /* the thread's local memory, NULL: none */
    uint32_t local_bytes;
} simt_registers;
extern simt_registers simt_self;

/* ---- for the runtime ------------------------------------------------------------------------------------------- */

/* Translated files tell of their kernels before main begins. `kernels` ends with one without a name. */
void simt_add_kernels(const simt_kernel *kernels);
const simt_kernel *simt_find_kernel(const char *name); /* NULL: none */
/* Variables of a translated file, which its kernels may touch. */
void simt_add_variable(const char *name, void *memory, size_t bytes, bool constant);

/* Runs a whole grid. `launch` is a number that grows from one piece of work to the next. */
void simt_launch(uint32_t launch, const simt_kernel *kernel, simt_dim grid, simt_dim block, uint32_t dynamic_shared,
                 const uint8_t *parameters);

/* Device memory: addresses that the host cannot touch, full of NaN. They are never handed out twice. */
uint64_t simt_memory_allocate(size_t bytes); /* 0: there is no more */
bool simt_memory_free(uint64_t address);     /* false: it is not the beginning of an allocation */
bool simt_memory_is_device(const void *address);
void *simt_memory_contents(uint64_t address); /* where the host may touch it all the same: memory that both have */
/* What lies between `address` and `bytes` further, for copies and libraries: NULL, and the reason, where that is not
 * all within one allocation. `write`: it is going to be changed. Tells the race checker as well. */
void *simt_memory_reach(uint32_t launch, uint64_t address, size_t bytes, bool write, const char **wrong);

/* Whether a piece of work is done before the one that runs begins, whatever order is taken; and a piece of work in
 * words, for messages. Set by the runtime. */
extern bool (*simt_is_ordered)(uint32_t earlier);
extern const char *(*simt_describe_work)(uint32_t work);

uint32_t simt_random(uint32_t below); /* by SIMT_SEED */
typedef enum simt_order { SIMT_FORWARD, SIMT_BACKWARD, SIMT_RANDOM } simt_order;
simt_order simt_order_wanted(void);
/* Which of `count` that could come next does. */
uint32_t simt_choose(uint32_t count);

_Noreturn void simt_fail(const simt_place *at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- for translated kernels -------------------------------------------------------------------------------------- */

typedef enum simt_space { SIMT_GENERIC, SIMT_GLOBAL, SIMT_SHARED, SIMT_LOCAL } simt_space;
/* Atomic: with what other threads do at the same time. SIMT_ATOMIC reads and writes. */
typedef enum simt_access { SIMT_READ, SIMT_WRITE, SIMT_ATOMIC, SIMT_ATOMIC_READ, SIMT_ATOMIC_WRITE } simt_access;

/* What lies at an address; it ends with a message where a kernel may not do this. Shared addresses count from 0 in the
 * space SIMT_SHARED. */
void *simt_reach(simt_space space, uint64_t address, uint32_t bytes, simt_access access, const simt_place *at);
/* What may be touched without a further look: shared memory while nothing is told of parts of it, and the allocation
 * that was touched last, while races are not looked for. */
typedef struct simt_open {
    uint8_t *shared;
    uint32_t shared_bytes; /* 0: all accesses are looked at */
    uint64_t begin, bytes; /* of the allocation; bytes 0: none */
    uint8_t *contents;
} simt_open;
extern simt_open simt_opened;
static inline void *simt_touch(simt_space space, uint64_t address, uint32_t bytes, simt_access access,
                               const simt_place *at) {
    const uint64_t offset = space == SIMT_SHARED ? (uint32_t)address : address - simt_opened.begin;
    const uint64_t room = space == SIMT_SHARED ? simt_opened.shared_bytes : simt_opened.bytes;
    if (space != SIMT_LOCAL && address % bytes == 0 && room >= bytes && offset <= room - bytes)
        return (space == SIMT_SHARED ? simt_opened.shared : simt_opened.contents) + offset;
    return simt_reach(space, address, bytes, access, at);
}
uint64_t simt_shared_to_generic(uint64_t offset);
uint64_t simt_generic_to_shared(uint64_t address);

void simt_barrier(uint32_t id, uint32_t threads, const simt_place *at); /* threads 0: all of the block */
/* The same, and how many threads came with `predicate`. */
uint32_t simt_barrier_count(uint32_t id, bool predicate, const simt_place *at);
void simt_warp_barrier(uint32_t mask, const simt_place *at);
void simt_fence(void); /* for threads of other blocks too (races.c): memory itself is always in order here */

typedef enum simt_shuffle_mode { SIMT_UP, SIMT_DOWN, SIMT_BUTTERFLY, SIMT_INDEX } simt_shuffle_mode;
uint32_t simt_shuffle(simt_shuffle_mode mode, uint32_t value, uint32_t lane, uint32_t clamp, uint32_t mask,
                      bool *inside, const simt_place *at);
typedef enum simt_vote_mode { SIMT_ALL, SIMT_ANY, SIMT_UNIFORM, SIMT_BALLOT } simt_vote_mode;
uint32_t simt_vote(simt_vote_mode mode, bool predicate, uint32_t mask, const simt_place *at);
void simt_ldmatrix(uint32_t count, bool transposed, uint32_t *to, uint64_t address, const simt_place *at);

typedef enum simt_fragment { SIMT_BF16_16, SIMT_F16_16, SIMT_TF32_8 } simt_fragment; /* operands, and k */
/* d (4) = a (4) b (2) + c (4) of m16n8k16 or m16n8k8, float32 sums. */
void simt_mma(simt_fragment kind, uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c,
              const simt_place *at);

void simt_copy_async(uint64_t to, uint64_t from, uint32_t bytes, uint32_t source_bytes, const simt_place *at);
void simt_copy_async_commit(void);
void simt_copy_async_wait(uint32_t groups_left);
/* cp.async.mbarrier.arrive: an arrival at the mbarrier, when the copies that the thread issued before are over. `adds`:
 * the phase expects one more for it (without .noinc). */
void simt_copy_async_arrive(uint64_t mbarrier, bool adds, const simt_place *at);

/* Products of a warpgroup, wgmma (warpgroup.c). A register that such products read or write, or that their results are
 * copied to, is one of an array of its kernel function, and products name it by its place there. */
typedef struct simt_register {
    uint32_t value;
    uint32_t product; /* that is still to write it; 0: none */
    uint32_t reader;  /* the last product under way that has it in A; 0: none */
    uint32_t written; /* how many wgmma.fence the thread had run when it last computed this */
} simt_register;

/* One wgmma.mma_async in the code. */
typedef struct simt_wgmma {
    simt_fragment kind; /* SIMT_BF16_16 or SIMT_F16_16 */
    uint32_t n;
    const uint16_t *d; /* n / 2 registers */
    const uint16_t *a; /* 4 registers; NULL: A is in shared memory */
    int scale_a, scale_b;
    bool transposed_a, transposed_b; /* M-major, N-major */
} simt_wgmma;

/* D = A B + (accumulates ? D : 0) by 128 threads, which all come. It is done when the threads wait for its group: until
 * then D may not be touched, nor A's registers written, nor the shared memory that it reads. `fences`: how many
 * wgmma.fence the thread has run. `a` counts where A is in shared memory. */
void simt_wgmma_begin(const simt_wgmma *form, simt_register *registers, uint32_t fences, uint64_t a, uint64_t b,
                      bool accumulates, const simt_place *at);
void simt_wgmma_commit(void);
void simt_wgmma_wait(uint32_t groups_left, const simt_place *at);
/* `to` becomes a copy of `from`, which a product is still to write: it will be when that is done. */
void simt_wgmma_copy(simt_register *registers, uint32_t to, uint32_t from, const simt_place *at);
/* The thread touches a register that a product is still to write, or to read as it was. */
_Noreturn void simt_wgmma_touched(const simt_register *touched, const simt_place *at);
static inline void simt_wgmma_reads(const simt_register *r, const simt_place *at) {
    if (r->product) simt_wgmma_touched(r, at);
}
static inline void simt_wgmma_writes(const simt_register *r, const simt_place *at) {
    if (r->product | r->reader) simt_wgmma_touched(r, at);
}
static inline void simt_wgmma_move(simt_register *registers, uint32_t to, uint32_t from, const simt_place *at) {
    registers[to].written = registers[from].written;
    if (registers[from].product) {
        simt_wgmma_copy(registers, to, from, at);
    } else {
        simt_wgmma_writes(&registers[to], at);
        registers[to].value = registers[from].value;
    }
}
/* fence.proxy.async: what the thread wrote into shared memory, or knows of it, can be seen by wgmma that come after. */
void simt_proxy_fence(void);

/* mbarriers (mbarrier.c), by their addresses in shared memory. Arriving gives the state, which nothing here takes. A
 * wait says whether the phase of that parity is over; where it is not, a thread that `parks` is not told so before it
 * is. */
void simt_mbarrier_init(uint64_t address, uint64_t count, const simt_place *at);
void simt_mbarrier_inval(uint64_t address, const simt_place *at);
uint64_t simt_mbarrier_arrive(uint64_t address, uint32_t count, const simt_place *at);
bool simt_mbarrier_wait(uint64_t address, uint32_t parity, bool parks, const simt_place *at);

/* setmaxnreg: the running thread has `count` registers from here on (register_pool.c). */
void simt_set_registers(uint32_t count, bool takes, const simt_place *at);

void simt_turned(const simt_place *at);
/* Before every jump back: threads that spin let others go on, and end with a message when that does not help. */
static inline void simt_turn(const simt_place *at) {
    if (--simt_self.turns_left == 0) simt_turned(at);
}

#endif
