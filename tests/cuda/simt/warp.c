/* What the threads of a warp do together: shuffles, votes, ldmatrix, mma.sync.
 *
 * All lanes of a mask come to a meeting; the last one does the work of all, and each takes its own result. Groups of
 * lanes whose masks have none in common may meet at the same time. A meeting is complete without lanes that have ended;
 * a shuffle that reads from one of those is a fault. */
#include "tests/cuda/ptx/numbers.h"
#include "tests/cuda/simt/block.h"
#include <string.h>

typedef struct mailbox {
    uint32_t in[10], out[4];
    bool flag;
} mailbox;

typedef struct meeting meeting;
typedef void meeting_work(const meeting *m, mailbox *lanes);

struct meeting {
    const char *what;
    const simt_place *at;
    meeting_work *work;
    uint32_t mask, arrived;
    uint32_t warp;
};

typedef struct warp {
    uint32_t alive;
    uint32_t under_way, engaged;  /* which of the meetings are; the lanes of all their masks */
    meeting meetings[SIMT_LANES]; /* at the first lane of its mask */
    mailbox lanes[SIMT_LANES];
} warp;

static warp warps[SIMT_MAX_WARPS];

void simt_warps_begin(void) {
    for (uint32_t i = 0; i < SIMT_MAX_WARPS; i++) {
        uint32_t first = i * SIMT_LANES, count = simt_now.thread_count > first ? simt_now.thread_count - first : 0;
        warps[i].alive = count >= SIMT_LANES ? ~0u : (1u << count) - 1;
        warps[i].under_way = warps[i].engaged = 0;
    }
}

static bool complete(warp *w, meeting *m) {
    if (m->arrived != (m->mask & w->alive)) return false;
    m->work(m, w->lanes);
    for (uint32_t left = m->arrived; left; left &= left - 1) {
        simt_thread *t = &simt_now.threads[m->warp * SIMT_LANES + (uint32_t)__builtin_ctz(left)];
        if (t != simt_now.running) simt_wake(t);
    }
    w->under_way &= ~(1u << (m - w->meetings));
    w->engaged &= ~m->mask;
    return true;
}

void simt_warp_left(uint32_t thread) {
    warp *w = &warps[thread / SIMT_LANES];
    w->alive &= ~(1u << thread % SIMT_LANES);
    for (uint32_t left = w->under_way; left; left &= left - 1) complete(w, &w->meetings[__builtin_ctz(left)]);
}

static _Noreturn void refuse_meeting(const warp *w, const char *what, uint32_t mask, const simt_place *at) {
    uint32_t left = w->under_way;
    while (!(w->meetings[__builtin_ctz(left)].mask & mask)) left &= left - 1;
    const meeting *m = &w->meetings[__builtin_ctz(left)];
    simt_fail(at, "%s with mask %#x, while other lanes of the warp are at %s with mask %#x in %s:%d", what, mask,
              m->what, m->mask, m->at->file, m->at->line);
}

/* The meeting of a mask that is under way, or a new one. Masks of different meetings have no lane in common. */
static meeting *find_meeting(warp *w, const char *what, uint32_t mask, meeting_work *work, const simt_place *at) {
    const uint32_t first = (uint32_t)__builtin_ctz(mask), bit = 1u << first;
    meeting *m = &w->meetings[first];
    if ((w->under_way & bit) && m->mask == mask && m->work == work && m->at->line == at->line) return m;
    if (w->engaged & mask) refuse_meeting(w, what, mask, at);
    w->under_way |= bit;
    w->engaged |= mask;
    *m = (meeting){what, at, work, mask, 0, (uint32_t)(w - warps)};
    return m;
}

static mailbox *meet(const char *what, uint32_t mask, const mailbox *mine, meeting_work *work, const simt_place *at) {
    simt_thread *t = simt_now.running;
    uint32_t lane = t->index % SIMT_LANES;
    warp *w = &warps[t->index / SIMT_LANES];
    if (!(mask >> lane & 1)) simt_fail(at, "%s: lane %u is not in its own mask %#x", what, lane, mask);
    meeting *m = find_meeting(w, what, mask, work, at);
    w->lanes[lane] = *mine;
    m->arrived |= 1u << lane;
    if (!complete(w, m)) simt_park(what, at);
    return &w->lanes[lane];
}

/* ---- barriers, votes, shuffles ------------------------------------------------------------------------------------
 */

static void work_barrier(const meeting *m, mailbox *lanes) {
    simt_races_synchronise(1u << m->warp);
}

void simt_warp_barrier(uint32_t mask, const simt_place *at) {
    meet("__syncwarp", mask, &(mailbox){.flag = false}, work_barrier, at);
}

static void work_vote(const meeting *m, mailbox *lanes) {
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
        if ((m->arrived >> lane & 1) && lanes[lane].flag) ballot |= 1u << lane;
    }
    for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
        uint32_t *out = lanes[lane].out;
        if (!(m->arrived >> lane & 1)) continue; /* of another meeting, perhaps */
        switch ((simt_vote_mode)lanes[lane].in[0]) {
        case SIMT_ALL:
            *out = ballot == m->arrived;
            break;
        case SIMT_ANY:
            *out = ballot != 0;
            break;
        case SIMT_UNIFORM:
            *out = ballot == 0 || ballot == m->arrived;
            break;
        case SIMT_BALLOT:
            *out = ballot;
            break;
        }
    }
}

uint32_t simt_vote(simt_vote_mode mode, bool predicate, uint32_t mask, const simt_place *at) {
    return meet("a vote", mask, &(mailbox){.in = {mode}, .flag = predicate}, work_vote, at)->out[0];
}

/* PTX ISA, shfl.sync: the source lane, and whether it is inside the lane's segment; otherwise the lane itself. */
static void work_shuffle(const meeting *m, mailbox *lanes) {
    for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
        if (!(m->arrived >> lane & 1)) continue;
        mailbox *box = &lanes[lane];
        uint32_t by = box->in[2] & 31, clamp = box->in[3] & 31, segment = box->in[3] >> 8 & 31;
        uint32_t last = (lane & segment) | (clamp & ~segment), first = lane & segment;
        int64_t source = 0;
        bool inside = false;
        switch ((simt_shuffle_mode)box->in[0]) {
        case SIMT_UP:
            source = (int64_t)lane - by;
            inside = source >= (int64_t)last;
            break;
        case SIMT_DOWN:
            source = (int64_t)lane + by;
            inside = source <= (int64_t)last;
            break;
        case SIMT_BUTTERFLY:
            source = lane ^ by;
            inside = source <= (int64_t)last;
            break;
        case SIMT_INDEX:
            source = first | (by & ~segment);
            inside = source <= (int64_t)last;
            break;
        }
        if (!inside) source = lane;
        if (!(m->arrived >> source & 1)) {
            simt_fail(m->at, "a shuffle in which lane %u reads from lane %u, which does not take part", lane,
                      (uint32_t)source);
        }
        box->out[0] = lanes[source].in[1];
        box->flag = inside;
    }
}

uint32_t simt_shuffle(simt_shuffle_mode mode, uint32_t value, uint32_t by, uint32_t clamp, uint32_t mask, bool *inside,
                      const simt_place *at) {
    mailbox *m = meet("a shuffle", mask, &(mailbox){.in = {mode, value, by, clamp}}, work_shuffle, at);
    *inside = m->flag;
    return m->out[0];
}

/* ---- matrices -----------------------------------------------------------------------------------------------------
 */

/* PTX ISA, ldmatrix: lanes 8 i to 8 i + 7 hold the addresses of the rows of matrix i, 8 rows of 8 16-bit elements. Lane
 * l gets the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; transposed, of column l / 4. */
static void work_ldmatrix(const meeting *m, mailbox *lanes) {
    enum { ROW_BYTES = 16, ROWS = 8 };
    if (m->arrived != ~0u) simt_fail(m->at, "ldmatrix without all lanes of the warp");
    uint32_t count = lanes[0].in[1];
    bool transposed = lanes[0].flag;
    for (uint32_t matrix = 0; matrix < count; matrix++) {
        uint16_t rows[ROWS][ROW_BYTES / 2];
        for (uint32_t row = 0; row < ROWS; row++) {
            uint32_t address = lanes[ROWS * matrix + row].in[0];
            memcpy(rows[row], simt_now.shared + address, ROW_BYTES);
        }
        for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
            uint32_t i = lane / 4, j = 2 * (lane % 4);
            uint32_t low = transposed ? rows[j][i] : rows[i][j], high = transposed ? rows[j + 1][i] : rows[i][j + 1];
            lanes[lane].out[matrix] = low | high << 16;
        }
    }
}

void simt_ldmatrix(uint32_t count, bool transposed, uint32_t *to, uint64_t address, const simt_place *at) {
    enum { ROW_BYTES = 16 };
    uint32_t lane = simt_now.running->index % SIMT_LANES;
    if (lane < 8 * count) simt_reach(SIMT_SHARED, address, ROW_BYTES, SIMT_READ, at); /* other lanes' are not used */
    mailbox *m =
        meet("ldmatrix", ~0u, &(mailbox){.in = {(uint32_t)address, count}, .flag = transposed}, work_ldmatrix, at);
    memcpy(to, m->out, count * sizeof *to);
}

typedef struct fragment_class {
    uint32_t k;
    float (*element)(uint32_t word, uint32_t half);
} fragment_class;

static float bf16_element(uint32_t word, uint32_t half) {
    return ptx_float(half ? word & 0xffff0000u : word << 16);
}
static float f16_element(uint32_t word, uint32_t half) {
    return ptx_from_f16((uint16_t)(half ? word >> 16 : word));
}
static float tf32_element(uint32_t word, uint32_t half) {
    return ptx_float(word & 0xffffe000u); /* the hardware reads 19 bits */
}

static const fragment_class fragments[] = {
    [SIMT_BF16_16] = {16, bf16_element}, [SIMT_F16_16] = {16, f16_element}, [SIMT_TF32_8] = {8, tf32_element}};

/* PTX ISA, "Matrix fragments for mma.m16n8k16" and "… m16n8k8": of lane l, a holds rows l / 4 and l / 4 + 8, b column
 * l / 4, c and d the rows of a and columns 2 (l % 4) + {0, 1}. A word holds two 16-bit elements, or one of tf32. Along
 * k, words are (l % 4) times as wide as a word, and half of k further.
 *
 * Products are exact in float64 and their sum is rounded once: the order and rounding of the hardware are not told. */
static void work_mma(const meeting *m, mailbox *lanes) {
    if (m->arrived != ~0u) simt_fail(m->at, "mma.sync without all lanes of the warp");
    const fragment_class *f = &fragments[lanes[0].out[0]];
    uint32_t words = f->k == 16 ? 2 : 1; /* elements a word */
    float a[16][16], b[16][8];
    for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
        for (uint32_t half = 0; half < words; half++) {
            uint32_t row = lane / 4, k = words * (lane % 4) + half;
            for (uint32_t i = 0; i < 4; i++)
                a[row + i % 2 * 8][k + i / 2 * f->k / 2] = f->element(lanes[lane].in[i], half);
            for (uint32_t i = 0; i < 2; i++) b[k + i * f->k / 2][row] = f->element(lanes[lane].in[4 + i], half);
        }
    }
    for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
            double sum = (double)ptx_float(lanes[lane].in[6 + i]);
            for (uint32_t k = 0; k < f->k; k++) sum += (double)a[row][k] * (double)b[k][column];
            lanes[lane].out[i] = ptx_bits((float)sum);
        }
    }
}

void simt_mma(simt_fragment kind, uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c,
              const simt_place *at) {
    mailbox mine = {.in = {a[0], a[1], a[2], a[3], b[0], b[1]}, .out = {kind}}; /* the kind, until the work is done */
    memcpy(mine.in + 6, c, 4 * sizeof *c);
    memcpy(d, meet("mma.sync", ~0u, &mine, work_mma, at)->out, 4 * sizeof *d);
}
