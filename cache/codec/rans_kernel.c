/* A group of series is coded frame after frame: first the tokens of all its lanes, then the extra bits of those lanes
 * whose codes have any. A lane whose state has fallen below 2^16 takes the next word of 16 bits; lanes take them in
 * their order, which is what lets a vector of states share one stream: the mask of those in need says which of the next
 * words goes where. An encoder does all of it backwards.
 *
 * What may surprise. Whether a lane needs a word for its extra bits does not depend on the word it may just have taken
 * for its token. The division of the encoder is one of floats: a state is below 2^22 frequencies when it is divided, so
 * that three roundings (of the state, the reciprocal and the product) and a state's lowest bit leave the quotient wrong
 * by one at most, and the remainder tells. */
#include "cache/codec/rans_kernel.h"

#include <string.h>

#if defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512VL__)
#include <immintrin.h>
#define KERNEL ups_rans_avx512
#define NAME "avx512"
#define AVX512 1
#define VECTOR 16
#define WIDE 8 /* lanes that plain loops take at once */
#elif defined(__AVX2__)
#include <immintrin.h>
#define KERNEL ups_rans_avx2
#define NAME "avx2"
#define AVX512 0
#define VECTOR 8
#define WIDE 8
#else
#define KERNEL ups_rans_baseline
#define NAME "baseline"
#define WIDE 4
#endif

#define PLAIN_TOKENS UPS_RANS_PLAIN_TOKENS
#define SMALL_CODES 4 /* two codes below make a context by themselves */
#define LANES UPS_RANS_LANES
#define BITS UPS_RANS_BITS
#define TOTAL UPS_RANS_TOTAL
#define FLOOR UPS_RANS_FLOOR
#define DECODED_EXTRA UPS_RANS_DECODED_EXTRA
#define DECODED_CODE ((1 << DECODED_EXTRA) - 1)
#define BEFORE_FIRST 0xffff /* the codes that stand before the first frame */

#define INLINE static inline __attribute__((always_inline))

#define FOUR_TIMES(n) n, n, n, n
static const uint16_t before_first[LANES] = {FOUR_TIMES(FOUR_TIMES(FOUR_TIMES(BEFORE_FIRST)))};

/* What decoding carries along time, for each lane: its last two codes, its last integer and the last difference. */
typedef struct history {
    uint32_t last[LANES], before[LANES], value[LANES], slope[LANES];
} history;

#if defined(__AVX2__)
#include "cache/codec/rans_avx2.h"
#if AVX512
#include "cache/codec/rans_avx512.h"
#endif
#else
static void prepare(void) {}
#endif

INLINE uint16_t zigzag(uint16_t residual) {
    return (uint16_t)((residual << 1) ^ (uint16_t) - (residual >> 15));
}

/* WIDE lanes for any instruction set, as the compiler sees fit. Shorter groups are filled up with lanes that nobody
 * looks at. */
typedef uint32_t wide_u32 __attribute__((vector_size(4 * WIDE)));
typedef int32_t wide_s32 __attribute__((vector_size(4 * WIDE)));
typedef float wide_f32 __attribute__((vector_size(4 * WIDE)));
typedef uint16_t wide_u16 __attribute__((vector_size(2 * WIDE)));

INLINE wide_u32 load_wide(const uint32_t *from) {
    wide_u32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE wide_u32 load_wide_codes(const uint16_t *from) {
    wide_u16 v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, wide_u32);
}

INLINE void store_wide(uint32_t *to, wide_u32 v) {
    memcpy(to, &v, sizeof v);
}

INLINE wide_u32 below(wide_u32 numbers, int32_t bound) { /* all ones where it is so; numbers below 2^31 */
    return (wide_u32)((wide_s32)numbers < bound);
}

INLINE wide_u32 choose(wide_u32 mask, wide_u32 yes, wide_u32 no) {
    return (yes & mask) | (no & ~mask);
}

/* Bits of numbers from 1 to 2^24: the exponent of a float. */
INLINE wide_u32 lengths_of(wide_u32 numbers) {
    return ((wide_u32) __builtin_convertvector((wide_s32)numbers, wide_f32) >> 23) - 126;
}

/* `last` and `before`: codes of the same series one and two frames ago. */
INLINE wide_u32 wide_contexts(wide_u32 last, wide_u32 before) {
    wide_u32 sum = 2 * last + before;
    return choose(below(last | before, SMALL_CODES), sum + 2 * last, lengths_of(sum) + 13); /* the latter: 16 … 31 */
}

INLINE wide_u32 wide_tokens(wide_u32 codes, wide_u32 *extra) {
    wide_u32 length = lengths_of(codes | PLAIN_TOKENS), small = below(codes, PLAIN_TOKENS);
    *extra = (length - 2) & ~small;
    return choose(small, codes, PLAIN_TOKENS - 10 + 2 * length + (codes >> *extra & 1));
}

static void residuals(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                      uint16_t *codes) {
    for (int64_t t = 0; t < times; t++, codes += series) {
        const ups_f16 *here = latents + t * stride, *last = here - stride, *before = last - stride;
        if (t == 0 || order == 0) {
            for (int64_t s = 0; s < series; s++) codes[s] = zigzag(ups_rans_ordered(here[s]));
        } else if (t == 1 || order == 1) {
            for (int64_t s = 0; s < series; s++)
                codes[s] = zigzag((uint16_t)(ups_rans_ordered(here[s]) - ups_rans_ordered(last[s])));
        } else {
            for (int64_t s = 0; s < series; s++)
                codes[s] = zigzag((uint16_t)(ups_rans_ordered(here[s]) - 2 * ups_rans_ordered(last[s]) +
                                             ups_rans_ordered(before[s])));
        }
    }
}

/* (context, token) of `width` codes as one number; `index` has room for a multiple of WIDE. */
INLINE void index_row(const uint16_t *codes, const uint16_t *last, const uint16_t *before, int width, uint16_t *index) {
    int i = 0;
#if defined(__AVX2__)
    for (; i + 16 <= width; i += 16) index_sixteen(codes + i, last + i, before + i, index + i);
#endif
    for (; i < width; i += WIDE) {
        uint16_t rows[3][WIDE] = {{0}};
        const uint16_t *from[3] = {codes + i, last + i, before + i};
        for (int r = 0; r < 3 && width - i < WIDE; r++) {
            memcpy(rows[r], from[r], (size_t)(width - i) * sizeof *codes);
            from[r] = rows[r];
        }
        wide_u32 extra, token = wide_tokens(load_wide_codes(from[0]), &extra);
        wide_u32 context = wide_contexts(load_wide_codes(from[1]), load_wide_codes(from[2]));
        wide_u16 both = __builtin_convertvector(UPS_RANS_TOKENS * context + token, wide_u16);
        memcpy(index + i, &both, sizeof both);
    }
}

/* A counter that is raised again waits for the last time, and the same token comes again and again: neighbours have
 * tables of their own. These do not lie a multiple of a page apart, which would look like the same place. */
enum { MAX_TABLES = 4, TABLE = UPS_RANS_ENCODER_ENTRIES + 16 };

INLINE void count_into(const uint16_t *codes, int64_t times, int64_t series, int used,
                       uint32_t (*restrict tables)[TABLE]) {
    for (int64_t t = 0; t < times; t++) {
        for (int64_t s = 0; s < series; s += LANES) {
            const uint16_t *here = codes + t * series + s;
            const uint16_t *last = t > 0 ? here - series : before_first;
            const uint16_t *before = t > 1 ? here - 2 * series : before_first;
            int width = series - s < LANES ? (int)(series - s) : LANES;
            uint16_t index[LANES];
            index_row(here, last, before, width, index);
            int i = 0;
            for (; i + used <= width; i += used)
                for (int k = 0; k < used; k++) tables[k][index[i + k]]++;
            for (; i < width; i++) tables[0][index[i]]++;
        }
    }
}

static void count(const uint16_t *codes, int64_t times, int64_t series, ups_rans_histogram counts) {
    uint32_t tables[MAX_TABLES][TABLE], *sums = &counts[0][0];
    int first = ups_rans_first_context(times) * UPS_RANS_TOKENS, entries = UPS_RANS_ENCODER_ENTRIES - first;
    int used = times * series >= 32 * entries ? MAX_TABLES : 2; /* more are not worth clearing for a few codes */
    for (int k = 0; k < used; k++) memset(tables[k] + first, 0, (size_t)entries * sizeof *tables[k]);
    if (used == MAX_TABLES)
        count_into(codes, times, series, MAX_TABLES, tables);
    else
        count_into(codes, times, series, 2, tables);
    for (int k = 0; k < used; k++)
        for (int i = first; i < UPS_RANS_ENCODER_ENTRIES; i++) sums[i] += tables[k][i];
}

/* The low words of those of `width` states that need it go below `top`, and they are shifted: without branches, since
 * nobody could predict them. */
INLINE uint16_t *push_words(const uint32_t *needs, int width, uint32_t *state, uint16_t *top) {
    int i = width - 1;
#if defined(__AVX2__)
    for (; i >= WIDE - 1 && width % WIDE == 0; i -= WIDE) { /* words of no lane may go below; they are written over */
        __m256i *at = (__m256i *)(state + i - WIDE + 1), x = _mm256_loadu_si256(at);
        __m256i here = _mm256_loadu_si256((const __m256i *)(needs + i - WIDE + 1));
        top = push_eight(_mm256_sub_epi32(_mm256_setzero_si256(), here), &x, top);
        _mm256_storeu_si256(at, x);
    }
#endif
    for (; i >= 0; i--) {
        top[-1] = (uint16_t)state[i];
        top -= needs[i];
        state[i] >>= 16 * needs[i];
    }
    return top;
}

/* state → (state / frequency) · 2^BITS + state mod frequency + start. Floats of 31 bits, the most that all instruction
 * sets convert. */
INLINE wide_u32 put_wide(wide_u32 state, wide_u32 frequency, wide_u32 start) {
    wide_f32 estimate = __builtin_convertvector((wide_s32)(state >> 1), wide_f32) * 2 /
                        __builtin_convertvector((wide_s32)frequency, wide_f32);
    wide_u32 quotient = (wide_u32) __builtin_convertvector(estimate, wide_s32), rest = state - quotient * frequency;
    wide_u32 over = (wide_u32)((wide_s32)rest < 0);
    quotient += over, rest += over & frequency;
    wide_u32 under = (wide_u32)((wide_s32)rest >= (wide_s32)frequency);
    quotient -= under, rest -= under & frequency;
    return (quotient << BITS) + rest + start;
}

INLINE uint16_t *encode_frame(const uint32_t *tables, const uint16_t *codes, const uint16_t *last,
                              const uint16_t *before, int width, uint32_t *state, uint16_t *top) {
    uint32_t needs[LANES], entries[LANES];
    uint16_t row[LANES] = {0}, index[LANES];
    memcpy(row, codes, (size_t)width * sizeof *row);
    index_row(codes, last, before, width, index);
    for (int i = 0; i < width; i++) entries[i] = tables[index[i]];
    for (int i = width; i % WIDE; i++) entries[i] = 1;
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 extra, token = wide_tokens(load_wide_codes(row + i), &extra);
        wide_u32 high = load_wide(state + i) >> 16 >> (16 - extra); /* never a shift by 32 */
        store_wide(needs + i, ~below(token, PLAIN_TOKENS) & (wide_u32)(high != 0) & 1);
    }
    top = push_words(needs, width, state, top);
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 code = load_wide_codes(row + i), extra, x = load_wide(state + i);
        wide_tokens(code, &extra);
        x = x << extra | (code & ~(~(code & 0) << extra));
        wide_u32 frequency = load_wide(entries + i) & 0xffff;
        store_wide(state + i, x);
        store_wide(needs + i, (wide_u32)(x >> (32 - BITS) >= frequency) & 1);
    }
    top = push_words(needs, width, state, top);
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 entry = load_wide(entries + i);
        store_wide(state + i, put_wide(load_wide(state + i), entry & 0xffff, entry >> 16));
    }
    return top;
}

INLINE uint16_t *encode_group(bool gathers, const uint32_t *tables, const uint16_t *codes, int64_t stride,
                              int64_t times, int width, uint32_t *state, uint16_t *top) {
#if defined(__AVX2__)
    if (width == LANES) return encode_vectors(gathers, tables, codes, stride, times, LANES / VECTOR, state, top);
    if (width == UPS_RANS_FEW_LANES)
        return encode_vectors(gathers, tables, codes, stride, times, UPS_RANS_FEW_LANES / VECTOR, state, top);
#endif
    uint32_t padded[LANES] = {0};
    memcpy(padded, state, (size_t)width * sizeof *padded);
    for (int64_t t = times - 1; t >= 0; t--) {
        const uint16_t *here = codes + t * stride;
        top = encode_frame(tables, here, t > 0 ? here - stride : before_first, t > 1 ? here - 2 * stride : before_first,
                           width, padded, top);
    }
    memcpy(state, padded, (size_t)width * sizeof *padded);
    return top;
}

INLINE void gather(const uint32_t *tables, const uint32_t *slots, int width, uint32_t *entries) {
    int i = 0;
#if defined(__AVX2__)
    for (; i + WIDE <= width; i += WIDE) {
        __m256i at = _mm256_loadu_si256((const __m256i *)(slots + i));
        _mm256_storeu_si256((__m256i *)(entries + i), _mm256_i32gather_epi32((const int *)tables, at, 4));
    }
#endif
    for (; i < width; i++) entries[i] = tables[slots[i]];
}

/* Words for those of `width` states that need them: without branches. `checked`: words may run out; the rest are zeros.
 */
INLINE const uint8_t *take_words(int width, const uint8_t *at, const uint8_t *end, bool checked, uint32_t *state) {
    int i = 0;
#if defined(__AVX2__)
    for (; !checked && i + WIDE <= width; i += WIDE) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(state + i));
        at = take_eight(at, &x);
        _mm256_storeu_si256((__m256i *)(state + i), x);
    }
#endif
    for (; i < width; i++) {
        uint32_t needs = state[i] < FLOOR;
        uint16_t word = 0;
        if (!checked || end - at >= 2) memcpy(&word, at, sizeof word);
        state[i] = state[i] << 16 * needs | (word & -needs);
        at += checked && end - at < 2 ? 0 : 2 * needs;
    }
    return at;
}

/* One frame of codes into h->last. */
INLINE const uint8_t *decode_codes(const uint32_t *tables, const uint8_t *at, const uint8_t *end, bool checked,
                                   int width, uint32_t *state, history *h) {
    uint32_t slots[LANES], entries[LANES];
    for (int i = 0; i < width; i += WIDE)
        store_wide(slots + i, TOTAL * wide_contexts(load_wide(h->last + i), load_wide(h->before + i)) +
                                  load_wide(state + i) % TOTAL);
    gather(tables, slots, width, entries);
    for (int i = width; i % WIDE; i++) entries[i] = 0;
    wide_u32 any = {0};
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 entry = load_wide(entries + i), token = entry >> 21;
        wide_u32 x = (entry & 0x7ff) * (load_wide(state + i) >> BITS) + (entry >> 11 & 0x3ff);
        store_wide(state + i, x);
        store_wide(h->before + i, load_wide(h->last + i));
        store_wide(h->last + i, token);
        any |= token >> DECODED_EXTRA;
    }
    at = take_words(width, at, end, checked, state);
    uint32_t large = 0;
    for (int i = 0; i < WIDE; i++) large |= any[i];
    if (!large) return at;
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 token = load_wide(h->last + i), x = load_wide(state + i), extra = token >> DECODED_EXTRA;
        store_wide(h->last + i, (token & DECODED_CODE) << extra | (x & ~(~(token & 0) << extra)));
        store_wide(state + i, x >> extra);
    }
    return take_words(width, at, end, checked, state);
}

/* `past_caches`: around them; `out` is aligned. */
INLINE void put_floats(const ups_f16 *bits, int width, bool past_caches, float *out) {
    int i = 0;
#if defined(__AVX2__)
    for (; i + WIDE <= width; i += WIDE) {
        __m256 floats = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bits + i)));
        if (past_caches)
            _mm256_stream_ps(out + i, floats);
        else
            _mm256_storeu_ps(out + i, floats);
    }
#endif
    if (i < width) ups_f16_to_f32(bits + i, out + i, (size_t)(width - i));
}

INLINE bool put_frame(history *h, int width, int order, int64_t frame, const ups_rans_frames *to) {
    ups_f16 bits[LANES];
    wide_u16 carry = {0};
    for (int i = 0; i < width; i += WIDE) {
        wide_u32 code = load_wide(h->last + i), residual = code >> 1 ^ -(code & 1);
        wide_u32 value = load_wide(h->value + i), slope = load_wide(h->slope + i);
        if (order == 0 || frame == 0)
            value = residual;
        else
            slope = order == 1 ? residual : slope + residual, value += slope;
        store_wide(h->value + i, value);
        store_wide(h->slope + i, slope);
        wide_u16 integer = __builtin_convertvector(value, wide_u16);
        wide_u16 number = integer ^ ((integer >> 15) * 0x7fff);
        carry |= (number & 0x7c00) + 0x0400;
        memcpy(bits + i, &number, sizeof number);
    }
    if (frame < to->start || frame >= to->end) return true;
    int64_t at = (frame - to->start) * to->stride;
    if (to->dtype == UPS_F16)
        memcpy((ups_f16 *)to->out + at, bits, (size_t)width * sizeof *bits);
    else
        put_floats(bits, width, to->past_caches, (float *)to->out + at);
    if (width % WIDE) { /* the lanes that nobody looks at may hold anything */
        bool finite = true;
        for (int i = 0; i < width; i++) finite &= (bits[i] & 0x7c00) != 0x7c00;
        return finite;
    }
    uint16_t any = 0;
    for (int i = 0; i < WIDE; i++) any |= carry[i];
    return !(any & 0x8000);
}

/* Frames [first, times), plainly. */
INLINE const uint8_t *decode_plainly(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t first,
                                     int64_t times, int width, int order, const ups_rans_frames *to, uint32_t *state,
                                     history *h, bool *finite) {
    uint32_t padded[LANES] = {0};
    memcpy(padded, state, (size_t)width * sizeof *padded);
    for (int64_t t = first; t < times; t++) {
        if (end - at >= 4 * width + 2 * WIDE) /* words are looked at before they are known to be needed */
            at = decode_codes(tables, at, end, false, width, padded, h);
        else
            at = decode_codes(tables, at, end, true, width, padded, h);
        *finite &= put_frame(h, width, order, t, to);
    }
    memcpy(state, padded, (size_t)width * sizeof *padded);
    return at;
}

INLINE const uint8_t *decode_group(bool gathers, const uint32_t *tables, const uint8_t *at, const uint8_t *end,
                                   int64_t times, int width, int order, ups_rans_frames to, uint32_t *state,
                                   bool *finite) {
    history h;
    int64_t done = 0;
    to.past_caches &= width == LANES && (uintptr_t)to.out % 64 == 0 && to.stride % 32 == 0;
#if defined(__AVX2__)
    if (width == LANES || width == UPS_RANS_FEW_LANES)
        done = form_for(gathers, width, order, &to)(tables, &at, end, times, &to, state, &h, finite);
    else
#endif
        for (int i = 0; i < LANES; i++) h.last[i] = h.before[i] = BEFORE_FIRST, h.value[i] = h.slope[i] = 0;
    if (done < times && order == 2)
        at = decode_plainly(tables, at, end, done, times, width, 2, &to, state, &h, finite);
    else if (done < times && order == 1)
        at = decode_plainly(tables, at, end, done, times, width, 1, &to, state, &h, finite);
    else if (done < times)
        at = decode_plainly(tables, at, end, done, times, width, 0, &to, state, &h, finite);
#if defined(__AVX2__)
    if (to.past_caches) _mm_sfence(); /* other threads see it once they are told of it */
#endif
    return at;
}

static uint16_t *encode(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times, int width,
                        uint32_t *state, uint16_t *top) {
    return encode_group(true, tables, codes, stride, times, width, state, top);
}

static const uint8_t *decode(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times, int width,
                             int order, ups_rans_frames to, uint32_t *state, bool *finite) {
    return decode_group(true, tables, at, end, times, width, order, to, state, finite);
}

const ups_rans_kernel KERNEL = {NAME, prepare, residuals, count, encode, decode};

#if defined(__AVX2__) && !AVX512
static uint16_t *encode_by_loads(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times,
                                 int width, uint32_t *state, uint16_t *top) {
    return encode_group(false, tables, codes, stride, times, width, state, top);
}

static const uint8_t *decode_by_loads(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times,
                                      int width, int order, ups_rans_frames to, uint32_t *state, bool *finite) {
    return decode_group(false, tables, at, end, times, width, order, to, state, finite);
}

const ups_rans_kernel ups_rans_avx2_by_loads = {NAME, prepare, residuals, count, encode_by_loads, decode_by_loads};
#endif
