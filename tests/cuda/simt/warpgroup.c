/* wgmma: products of four warps, m64nNk16, whose operands lie in shared memory, A in registers too.
 *
 * A product is begun when the last of the 128 threads comes to it, and done at the last moment that it may: when the
 * first of them waits for its group. Then it reads shared memory, and writes the accumulators of all threads. A thread
 * that touches one of its own before it waited itself is told (the translated code looks at each), and one that writes
 * shared memory that a product is still to read, as well. A's registers are taken as they are when it is begun.
 *
 * PTX ISA 9.0, section 9.7.15. What is not looked at:
 *   - that wgmma.fence is run by all warps, and stands between accesses of accumulators by a thread and by a product
 *     where the thread only read, moved, or set them to a constant, or where two products have other shapes
 *   - that the lanes of a warp come together to fences, commits and waits */
#include "tests/cuda/ptx/numbers.h"
#include "tests/cuda/simt/block.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, M = 64, K = 16, MOST_N = 256, ELEMENTS = SIMT_ROW / sizeof(uint16_t), A_WORDS = 4 };

/* One under way. A row is SIMT_ROW bytes of shared memory: eight elements, along K or, transposed, along M or N. */
typedef struct product {
    const simt_wgmma *form;
    const simt_place *at;
    uint64_t a, b; /* descriptors */
    bool accumulates;
    uint32_t arrived; /* threads that came to it */
    simt_readers readers;
    uint32_t a_rows[M * K / ELEMENTS], b_rows[MOST_N * K / ELEMENTS];
    uint32_t a_words[SIMT_GROUP_THREADS][A_WORDS];
    simt_register *registers[SIMT_GROUP_THREADS];
} product;

/* What is kept of every product of a block: until when its threads had it read shared memory. */
typedef struct reading {
    const simt_place *at;
    uint32_t waited;                                            /* threads that waited for it */
    uint32_t times[SIMT_GROUP_THREADS], last[SIMT_GROUP_WARPS]; /* last: of each warp */
} reading;

/* Products are numbered from 1. */
typedef struct warpgroup {
    uint32_t begun, done;
    product products[MOST]; /* by number, modulo MOST */
    reading *readings;      /* by number */
    uint32_t room;
    uint32_t last_reader[SIMT_MAX_SHARED / SIMT_ROW]; /* of each row of shared memory; 0: none */
} warpgroup;

/* A register that is to be a copy of another when a product is done. */
typedef struct copy {
    uint32_t product, to, from;
} copy;

typedef struct member {
    uint32_t begun, waited, awaited;    /* products; the one that it waits for others to begin, or 0 */
    uint32_t groups[MOST], group_count; /* the last product of each that was committed and not waited for */
    uint32_t committed;
    copy *copies;
    uint32_t copy_count, copy_room;
} member;

static warpgroup groups[SIMT_MAX_GROUPS];
static member members[SIMT_MAX_THREADS];
static bool any; /* product of this block */

void simt_wgmma_block(void) {
    if (!any) return;
    for (uint32_t i = 0; i < SIMT_MAX_GROUPS; i++) {
        if (groups[i].begun) memset(groups[i].last_reader, 0, sizeof groups[i].last_reader);
        groups[i].begun = groups[i].done = 0;
    }
    for (uint32_t i = 0; i < SIMT_MAX_THREADS; i++) {
        copy *copies = members[i].copies;
        uint32_t room = members[i].copy_room;
        members[i] = (member){.copies = copies, .copy_room = room};
    }
    any = false;
}

static warpgroup *group_of(uint32_t thread) {
    return &groups[thread / SIMT_GROUP_THREADS];
}

static product *product_of(warpgroup *g, uint32_t number) {
    return &g->products[number % MOST];
}

/* ---- descriptors --------------------------------------------------------------------------------------------------
 */

/* Where the rows of an operand of `count` rows or columns lie. PTX ISA 9.0, section 9.7.15.5.1.2, "Canonical
 * Layouts": here in rows, where the first numbers count and those behind say how far apart; LBO and SBO are the leading
 * and the stride offset of the descriptor.
 *
 *   K-major,  no swizzle    (8, count / 8), 2       at  (1, SBO), LBO      rows of M or N, halves of K
 *             swizzle of W  (8, count / 8), 2       at  (W, SBO), 1
 *   MN-major, no swizzle    count / 8, (8, 2)       at  SBO, (1, LBO)      eights of M or N, columns of K
 *             swizzle of W  (W, count / 8 W), (8, 2) at (1, LBO), (W, SBO)
 *
 * A swizzle of W = 2, 4, 8 rows turns log2(W) bits of the address, from bit 4 on, by those from bit 7 on. */
static void find_rows(uint64_t descriptor, uint32_t count, bool transposed, uint32_t *rows, const char *which,
                      const simt_place *at) {
    static const uint32_t widths[] = {1, 8, 4, 2};
    const uint64_t fields =
        (uint64_t)0x3fff | (uint64_t)0x3fff << 16 | (uint64_t)0x3fff << 32 | (uint64_t)7 << 49 | (uint64_t)3 << 62;
    uint32_t start = (uint32_t)(descriptor & 0x3fff) * SIMT_ROW;
    uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) * SIMT_ROW;
    uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) * SIMT_ROW, width = widths[descriptor >> 62];
    if (descriptor & ~fields) {
        simt_fail(at, "the descriptor of %s is %#llx, in which bits %#llx are reserved", which,
                  (unsigned long long)descriptor, (unsigned long long)(descriptor & ~fields));
    }
    if (descriptor >> 49 & 7)
        simt_fail(at, "the descriptor of %s has a base offset, which the emulator has not", which);
    for (uint32_t i = 0; i < count * K / ELEMENTS; i++) {
        uint32_t eights = count / ELEMENTS, outer = transposed ? i % eights : i / 2;
        uint32_t k = transposed ? i / eights : i % 2, offset;
        if (!transposed)
            offset = outer % 8 * width * SIMT_ROW + outer / 8 * stride + k * (width == 1 ? leading : SIMT_ROW);
        else if (width == 1)
            offset = outer * stride + k % 8 * SIMT_ROW + k / 8 * leading;
        else
            offset = outer % width * SIMT_ROW + outer / width * leading + k % 8 * width * SIMT_ROW + k / 8 * stride;
        uint32_t address = start + offset;
        address ^= (address >> 7 & (width - 1)) << 4;
        if (address + SIMT_ROW > simt_now.shared_bytes) {
            simt_fail(at,
                      "wgmma reads %d bytes at byte %u of shared memory, which has %u, by the descriptor of %s: start "
                      "%u, leading offset %u, stride offset %u",
                      SIMT_ROW, address, simt_now.shared_bytes, which, start, leading, stride);
        }
        rows[i] = address;
    }
}

/* ---- products ------------------------------------------------------------------------------------------------------
 */

static inline void convert(simt_fragment kind, const uint16_t *from, float *to, uint32_t count, int scale) {
    if (kind == SIMT_F16_16)
        ups_f16_to_f32(from, to, count);
    else
        for (uint32_t i = 0; i < count; i++) to[i] = ptx_from_bf16(from[i]);
    for (uint32_t i = 0; scale < 0 && i < count; i++) to[i] = -to[i];
}

/* Elements of an operand in shared memory, as numbers, `outer_step` apart along M or N and `k_step` along K. */
static inline void gather(const simt_wgmma *form, const uint32_t *rows, uint32_t count, bool transposed, int scale,
                          float *to, uint32_t outer_step, uint32_t k_step) {
    uint32_t inner = transposed ? count / ELEMENTS : K / ELEMENTS; /* rows that follow each other */
    uint32_t far = transposed ? k_step : outer_step, near = transposed ? outer_step : k_step;
    for (uint32_t i = 0; i < count * K / ELEMENTS / inner; i++) {
        for (uint32_t j = 0; j < inner; j++) {
            uint16_t bits[ELEMENTS];
            float row[ELEMENTS];
            memcpy(bits, simt_now.shared + rows[i * inner + j], sizeof bits);
            convert(form->kind, bits, row, ELEMENTS, scale);
            for (uint32_t e = 0; e < ELEMENTS; e++) to[i * far + (j * ELEMENTS + e) * near] = row[e];
        }
    }
}

/* Figure "WGMMA .m64nNk16 register fragment layout for matrix A": as that of mma.m16n8k16, of 16 rows a warp. */
static void gather_registers(const product *p, float (*to)[K]) {
    for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
        uint32_t row = t / SIMT_LANES * 16 + t % SIMT_LANES / 4, k = 2 * (t % 4);
        for (uint32_t i = 0; i < A_WORDS; i++) {
            uint16_t pair[2] = {(uint16_t)p->a_words[t][i], (uint16_t)(p->a_words[t][i] >> 16)};
            convert(p->form->kind, pair, &to[row + i % 2 * 8][k + i / 2 * 8], 2, p->form->scale_a);
        }
    }
}

enum { ROWS = 4, COLUMNS = 8 }; /* of D that are summed at once, in what registers the host has */
typedef float columns __attribute__((vector_size(COLUMNS * sizeof(float)), aligned(4)));

static inline void multiply(const float (*a)[K], const float *b, uint32_t n, float (*to)[MOST_N], uint32_t column) {
    columns sums[ROWS] = {{0.0f}};
    for (uint32_t k = 0; k < K; k++) {
        const columns row = *(const columns *)&b[k * n];
        for (uint32_t i = 0; i < ROWS; i++) sums[i] += a[i][k] * row;
    }
    for (uint32_t i = 0; i < ROWS; i++) memcpy(&to[i][column], &sums[i], sizeof sums[i]);
}

/* Products are summed in float32, in the order of K, and the sum is added to D: the order and rounding of the hardware
 * are not told. Accumulator j of a thread is row 16 w + l / 4, eight further where j / 2 is odd, and column 8 (j / 4) +
 * 2 (l % 4) + j % 2, of lane l of warp w (figure "WGMMA .m64nNk16 register fragment layout for accumulator matrix D").
 */
static void run(const product *p) {
    static float a[M][K], b[K * MOST_N], sums[M][MOST_N];
    const simt_wgmma *form = p->form;
    uint32_t n = form->n;
    if (form->a)
        gather_registers(p, a);
    else if (form->transposed_a)
        gather(form, p->a_rows, M, true, form->scale_a, a[0], K, 1);
    else
        gather(form, p->a_rows, M, false, form->scale_a, a[0], K, 1);
    if (form->transposed_b)
        gather(form, p->b_rows, n, true, form->scale_b, b, 1, n);
    else
        gather(form, p->b_rows, n, false, form->scale_b, b, 1, n);
    for (uint32_t row = 0; row < M; row += ROWS) {
        for (uint32_t column = 0; column < n; column += COLUMNS) multiply(&a[row], b + column, n, &sums[row], column);
    }
    for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
        uint32_t row = t / SIMT_LANES * 16 + t % SIMT_LANES / 4, column = 2 * (t % 4);
        for (uint32_t j = 0; j < n / 2; j++) {
            uint32_t *d = &p->registers[t][form->d[j]].value;
            float sum = sums[row + j / 2 % 2 * 8][column + j / 4 * 8 + j % 2];
            *d = ptx_bits(p->accumulates ? ptx_float(*d) + sum : sum);
        }
    }
}

/* Registers that are copies of what a product, which is done, wrote. */
static void make_copies(uint32_t first_thread, uint32_t number, const product *p) {
    for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
        const member *m = &members[first_thread + t];
        for (uint32_t i = 0; i < m->copy_count; i++) {
            const copy *c = &m->copies[i];
            if (c->product == number) p->registers[t][c->to].value = p->registers[t][c->from].value;
        }
    }
}

static void begin(warpgroup *g, product *p, const simt_wgmma *form, uint64_t a, uint64_t b, bool accumulates,
                  const simt_place *at) {
    uint32_t number = g->begun + 1, first = (uint32_t)(g - groups) * SIMT_GROUP_THREADS;
    if (first + SIMT_GROUP_THREADS > simt_now.thread_count)
        simt_fail(at, "wgmma by a warpgroup that is not whole: %u threads a block", simt_now.thread_count);
    for (uint32_t t = first; t < first + SIMT_GROUP_THREADS; t++) {
        if (simt_now.threads[t].done) simt_fail(at, "wgmma by a warpgroup of which thread %u has ended", t);
    }
    if (number > MOST && g->readings[number - MOST].waited < SIMT_GROUP_THREADS)
        simt_fail(at, "more than %d wgmma of a warpgroup at once", MOST);
    if (abs(form->scale_a) != 1 || abs(form->scale_b) != 1)
        simt_fail(at, "wgmma scales by %d and %d; 1 or -1 were expected", form->scale_a, form->scale_b);
    *p = (product){.form = form, .at = at, .a = a, .b = b, .accumulates = accumulates};
    simt_races_readers(&p->readers);
    if (!form->a) find_rows(a, M, form->transposed_a, p->a_rows, "A", at);
    find_rows(b, form->n, form->transposed_b, p->b_rows, "B", at);
    if (number >= g->room) {
        g->room = g->room ? 2 * g->room : MOST;
        g->readings = realloc(g->readings, g->room * sizeof *g->readings);
        if (!g->readings) simt_fail(NULL, "no memory for the products of a block");
    }
    g->readings[number] = (reading){.at = at};
    for (uint32_t i = 0; !form->a && i < M * K / ELEMENTS; i++) g->last_reader[p->a_rows[i] / SIMT_ROW] = number;
    for (uint32_t i = 0; i < form->n * K / ELEMENTS; i++) g->last_reader[p->b_rows[i] / SIMT_ROW] = number;
    g->begun = number;
    any = true;
    simt_opened.shared_bytes = 0;
}

static void join(const product *p, const simt_wgmma *form, uint64_t a, uint64_t b, bool accumulates,
                 const simt_place *at) {
    if (p->form != form) {
        simt_fail(at, "another wgmma than that of other threads of the warpgroup, which is in %s:%d", p->at->file,
                  p->at->line);
    }
    if (p->a != a || p->b != b || p->accumulates != accumulates) {
        simt_fail(at,
                  "wgmma with the descriptors %#llx and %#llx, scale-d %d; other threads of the warpgroup have %#llx "
                  "and %#llx, %d",
                  (unsigned long long)a, (unsigned long long)b, accumulates, (unsigned long long)p->a,
                  (unsigned long long)p->b, p->accumulates);
    }
}

static void check_read(product *p, uint32_t row) {
    simt_mbarrier_check(row, SIMT_ROW, p->at);
    simt_races_read_by_product(row, &p->readers, p->at);
}

/* All threads have come. */
static void check_reads(product *p) {
    for (uint32_t i = 0; !p->form->a && i < M * K / ELEMENTS; i++) check_read(p, p->a_rows[i]);
    for (uint32_t i = 0; i < p->form->n * K / ELEMENTS; i++) check_read(p, p->b_rows[i]);
}

static void check_fenced(const simt_register *r, uint32_t fences, const simt_place *at) {
    if (fences == 0 || r->written == fences) {
        simt_fail(at, "wgmma.fence is missing: %s",
                  fences ? "the thread wrote a register of this wgmma after the last one"
                         : "the thread has run none before its first wgmma");
    }
}

/* The running thread's registers: those of D become the product's, those of A are taken. */
static void take_registers(product *p, uint32_t number, simt_register *registers, uint32_t fences,
                           const simt_place *at) {
    const simt_wgmma *form = p->form;
    uint32_t t = simt_now.running->index % SIMT_GROUP_THREADS;
    for (uint32_t i = 0; form->a && i < A_WORDS; i++) {
        simt_register *r = &registers[form->a[i]];
        if (r->product) simt_wgmma_touched(r, at);
        check_fenced(r, fences, at);
        p->a_words[t][i] = r->value;
        r->reader = number;
    }
    for (uint32_t j = 0; j < form->n / 2; j++) {
        simt_register *r = &registers[form->d[j]];
        if (r->reader) simt_wgmma_touched(r, at);
        check_fenced(r, fences, at);
        r->product = number;
    }
    p->registers[t] = registers;
}

void simt_wgmma_begin(const simt_wgmma *form, simt_register *registers, uint32_t fences, uint64_t a, uint64_t b,
                      bool accumulates, const simt_place *at) {
    uint32_t thread = simt_now.running->index, first = thread / SIMT_GROUP_THREADS * SIMT_GROUP_THREADS;
    warpgroup *g = group_of(thread);
    member *m = &members[thread];
    uint32_t number = m->begun + 1;
    product *p = product_of(g, number);
    if (number > g->begun)
        begin(g, p, form, a, b, accumulates, at);
    else
        join(p, form, a, b, accumulates, at);
    m->begun = number;
    take_registers(p, number, registers, fences, at);
    simt_races_come(&p->readers);
    if (++p->arrived < SIMT_GROUP_THREADS) return;
    check_reads(p);
    for (uint32_t t = first; t < first + SIMT_GROUP_THREADS; t++) {
        if (members[t].awaited != number) continue;
        members[t].awaited = 0;
        simt_wake(&simt_now.threads[t]);
    }
}

void simt_wgmma_commit(void) {
    member *m = &members[simt_now.running->index];
    if (m->group_count == MOST) { /* of groups without products, the others being fewer */
        memmove(m->groups, m->groups + 1, (MOST - 1) * sizeof *m->groups);
        m->group_count--;
    }
    m->groups[m->group_count++] = m->committed = m->begun;
}

/* A product is over for the running thread. */
static void release(warpgroup *g, uint32_t number) {
    uint32_t thread = simt_now.running->index, t = thread % SIMT_GROUP_THREADS;
    member *m = &members[thread];
    const product *p = product_of(g, number);
    reading *done = &g->readings[number];
    simt_register *registers = p->registers[t];
    for (uint32_t j = 0; j < p->form->n / 2; j++) {
        simt_register *r = &registers[p->form->d[j]];
        if (r->product == number) r->product = 0;
    }
    for (uint32_t i = 0; p->form->a && i < A_WORDS; i++) {
        simt_register *r = &registers[p->form->a[i]];
        if (r->reader == number) r->reader = 0;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < m->copy_count; i++) {
        simt_register *to = &registers[m->copies[i].to];
        if (m->copies[i].product != number)
            m->copies[left++] = m->copies[i];
        else if (to->product == number)
            to->product = 0;
    }
    m->copy_count = left;
    done->times[t] = done->last[t / SIMT_LANES] = simt_races_now();
    done->waited++;
}

void simt_wgmma_wait(uint32_t groups_left, const simt_place *at) {
    uint32_t thread = simt_now.running->index;
    warpgroup *g = group_of(thread);
    member *m = &members[thread];
    if (m->group_count <= groups_left) return;
    uint32_t over = m->group_count - groups_left, last = m->groups[over - 1];
    while (g->done < last) {
        product *p = product_of(g, g->done + 1);
        if (p->arrived == SIMT_GROUP_THREADS) {
            run(p);
            make_copies(thread - thread % SIMT_GROUP_THREADS, ++g->done, p);
            continue;
        }
        m->awaited = g->done + 1;
        simt_park("a wgmma that other threads of the warpgroup have not begun", at);
    }
    while (m->waited < last) release(g, ++m->waited);
    m->group_count = groups_left;
    memmove(m->groups, m->groups + over, groups_left * sizeof *m->groups);
}

void simt_wgmma_copy(simt_register *registers, uint32_t to, uint32_t from, const simt_place *at) {
    member *m = &members[simt_now.running->index];
    if (registers[to].reader) simt_wgmma_touched(&registers[to], at);
    if (m->copy_count == m->copy_room) {
        m->copy_room = m->copy_room ? 2 * m->copy_room : 2 * MOST;
        m->copies = realloc(m->copies, m->copy_room * sizeof *m->copies);
        if (!m->copies) simt_fail(NULL, "no memory for copies of accumulators");
    }
    registers[to].value = registers[from].value; /* another thread's waiting may have had it done already */
    registers[to].product = registers[from].product;
    m->copies[m->copy_count++] = (copy){registers[from].product, to, from};
}

/* ---- what a thread may not -----------------------------------------------------------------------------------------
 */

_Noreturn void simt_wgmma_touched(const simt_register *r, const simt_place *at) {
    const simt_place *of = group_of(simt_now.running->index)->readings[r->product ? r->product : r->reader].at;
    simt_fail(at, "touches a register that the wgmma in %s:%d is still to %s: wgmma.wait_group is missing", of->file,
              of->line, r->product ? "write" : "read");
}

void simt_wgmma_barrier(const simt_place *at) {
    uint32_t thread = simt_now.running->index;
    const member *m = &members[thread];
    if (m->begun == m->committed) return;
    const simt_place *of = group_of(thread)->readings[m->committed + 1].at;
    simt_fail(at, "a barrier before the wgmma in %s:%d was committed (wgmma.commit_group)", of->file, of->line);
}

void simt_wgmma_end(void) {
    uint32_t thread = simt_now.running->index;
    const warpgroup *g = group_of(thread);
    const member *m = &members[thread];
    if (m->begun > m->waited)
        simt_fail(g->readings[m->waited + 1].at, "a wgmma that nobody waited for before the thread ended");
    if (g->begun > m->begun)
        simt_fail(g->readings[m->begun + 1].at,
                  "a wgmma that thread %u of the warpgroup did not come to before it ended", thread);
}

/* Whether the running thread knows that all threads of a warpgroup, but for its own warp's, had a product read. */
static bool knows_end(const reading *r, uint32_t group) {
    for (uint32_t w = 0; w < SIMT_GROUP_WARPS; w++) {
        uint32_t warp = group * SIMT_GROUP_WARPS + w;
        if (warp == simt_now.running->index / SIMT_LANES || r->last[w] <= simt_races_seen(warp)) continue;
        for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
            if (r->times[w * SIMT_LANES + lane] > simt_races_known(warp * SIMT_LANES + lane)) return false;
        }
    }
    return true;
}

void simt_wgmma_check_write(uint64_t offset, uint32_t bytes, const simt_place *at) {
    if (!any) return;
    for (uint32_t i = 0; i < SIMT_MAX_GROUPS; i++) {
        if (!groups[i].begun) continue;
        for (uint64_t row = offset / SIMT_ROW; row <= (offset + bytes - 1) / SIMT_ROW; row++) {
            uint32_t number = groups[i].last_reader[row];
            if (!number) continue;
            const reading *r = &groups[i].readings[number];
            if (r->waited < SIMT_GROUP_THREADS) {
                simt_fail(at,
                          "writes shared memory, byte %llu, that the wgmma in %s:%d is still to read: not all of its "
                          "threads waited for it",
                          (unsigned long long)offset, r->at->file, r->at->line);
            }
            if (!knows_end(r, i)) {
                simt_fail(
                    at,
                    "race in shared memory, byte %llu: this write and the wgmma in %s:%d, with no barrier between them",
                    (unsigned long long)offset, r->at->file, r->at->line);
            }
        }
    }
}
