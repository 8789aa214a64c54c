/* A group of series is coded frame after frame: first the tokens of all its lanes, then the extra bits of those lanes
 * whose codes have any. A lane whose state has fallen below 2^16 takes the next word of 16 bits; lanes take them in
 * their order, which is what lets a vector of states share one stream: the mask of those in need says which of the next
 * words goes where. An encoder does all of it backwards.
 *
 * What may surprise. Whether a lane needs a word for its extra bits does not depend on the word it may just have taken
 * for its token. The division of the encoder is one of floats: a state is below 2^22 frequencies when it is divided, so
 * the quotient is wrong by one at most, and the remainder tells. */
#include "cache/rans_kernel.h"

#include <string.h>

#if defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512VL__)
#include <immintrin.h>
#define KERNEL ups_rans_avx512
#define NAME "avx512"
#define VECTORS 1
#elif defined(__AVX2__)
#define KERNEL ups_rans_avx2
#define NAME "avx2"
#define VECTORS 0
#else
#define KERNEL ups_rans_baseline
#define NAME "baseline"
#define VECTORS 0
#endif

#define PLAIN_TOKENS UPS_RANS_PLAIN_TOKENS
#define SMALL_CODES 4 /* two codes below make a context by themselves */
#define LANES UPS_RANS_LANES
#define BITS UPS_RANS_BITS
#define TOTAL UPS_RANS_TOTAL
#define FLOOR UPS_RANS_FLOOR
#define BEFORE_FIRST 0xffff /* the codes that stand before the first frame */

#define INLINE static inline __attribute__((always_inline))

INLINE uint16_t ordered(uint16_t bits) {
    return (uint16_t)(bits ^ ((bits >> 15) * 0x7fffu));
}

INLINE uint16_t zigzag(uint16_t residual) {
    return (uint16_t)((residual << 1) ^ (uint16_t) - (residual >> 15));
}

INLINE uint16_t unzigzag(uint16_t code) {
    return (uint16_t)((code >> 1) ^ (uint16_t) - (code & 1));
}

/* Bits of a number above 0. */
INLINE uint32_t length_of(uint32_t number) {
    return 32 - (uint32_t)__builtin_clz(number);
}

/* `last` and `before`: codes of the same series one and two frames ago. */
INLINE uint32_t context_of(uint32_t last, uint32_t before) {
    if ((last | before) < SMALL_CODES) return SMALL_CODES * last + before;
    return 13 + length_of(2 * last + before); /* 16 … 31 */
}

INLINE uint32_t token_of(uint32_t code, uint32_t *extra_bits) {
    uint32_t length = length_of(code | 1);
    *extra_bits = code < PLAIN_TOKENS ? 0 : length - 2;
    return code < PLAIN_TOKENS ? code : PLAIN_TOKENS + 2 * (length - 5) + (code >> (length - 2) & 1);
}

INLINE uint32_t extra_bits_of(uint32_t token) {
    return (token - PLAIN_TOKENS) / 2 + 3;
}

static void residuals(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                      uint16_t *codes) {
    for (int64_t t = 0; t < times; t++, codes += series) {
        const ups_f16 *here = latents + t * stride, *last = here - stride, *before = last - stride;
        if (t == 0 || order == 0) {
            for (int64_t s = 0; s < series; s++) codes[s] = zigzag(ordered(here[s]));
        } else if (t == 1 || order == 1) {
            for (int64_t s = 0; s < series; s++) codes[s] = zigzag((uint16_t)(ordered(here[s]) - ordered(last[s])));
        } else {
            for (int64_t s = 0; s < series; s++)
                codes[s] = zigzag((uint16_t)(ordered(here[s]) - 2 * ordered(last[s]) + ordered(before[s])));
        }
    }
}

static const uint16_t before_first[LANES] = {
#define EIGHT                                                                                                          \
    BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST, BEFORE_FIRST
    EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT};

#if VECTORS
typedef struct symbols {
    __m512i code, token, context;
} symbols;

INLINE __m512i constant(uint32_t value) {
    return _mm512_set1_epi32((int)value);
}

INLINE __m512i load_codes(const uint16_t *codes) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)codes));
}

INLINE __m512i contexts_of(__m512i last, __m512i before) {
    __mmask16 small = _mm512_cmplt_epu32_mask(_mm512_or_si512(last, before), constant(SMALL_CODES));
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(last, 1), before);
    __m512i large = _mm512_sub_epi32(constant(13 + 32), _mm512_lzcnt_epi32(sum));
    return _mm512_mask_add_epi32(large, small, _mm512_slli_epi32(last, 1), sum);
}

INLINE __m512i tokens_of(__m512i code) {
    __m512i length = _mm512_sub_epi32(constant(32), _mm512_lzcnt_epi32(code));
    __m512i second = _mm512_and_si512(_mm512_srlv_epi32(code, _mm512_sub_epi32(length, constant(2))), constant(1));
    __m512i token =
        _mm512_add_epi32(_mm512_slli_epi32(length, 1), _mm512_add_epi32(second, constant(PLAIN_TOKENS - 10)));
    return _mm512_mask_mov_epi32(token, _mm512_cmplt_epu32_mask(code, constant(PLAIN_TOKENS)), code);
}

INLINE __m512i extra_bits_in(__m512i tokens) { /* of tokens from PLAIN_TOKENS on */
    return _mm512_sub_epi32(_mm512_srli_epi32(tokens, 1), constant(PLAIN_TOKENS / 2 - 3));
}
#endif

/* (context, token) of `width` codes as one number. */
INLINE void index_row(const uint16_t *codes, const uint16_t *last, const uint16_t *before, int width, uint16_t *index) {
    int i = 0;
#if VECTORS
    for (; i + 16 <= width; i += 16) {
        __m512i context = contexts_of(load_codes(last + i), load_codes(before + i));
        __m512i both = _mm512_add_epi32(_mm512_slli_epi32(context, 6), tokens_of(load_codes(codes + i)));
        _mm256_storeu_si256((__m256i *)(index + i), _mm512_cvtepi32_epi16(both));
    }
#endif
    for (; i < width; i++) {
        uint32_t extra;
        index[i] = (uint16_t)(context_of(last[i], before[i]) * UPS_RANS_TOKENS + token_of(codes[i], &extra));
    }
}

static void count(const uint16_t *codes, int64_t times, int64_t series, ups_rans_histogram counts) {
    uint32_t odd[UPS_RANS_ENCODER_ENTRIES] = {0}, *even = &counts[0][0]; /* neighbours seldom wait for each other */
    for (int64_t t = 0; t < times; t++) {
        for (int64_t s = 0; s < series; s += LANES) {
            const uint16_t *here = codes + t * series + s;
            const uint16_t *last = t > 0 ? here - series : before_first;
            const uint16_t *before = t > 1 ? here - 2 * series : before_first;
            int width = series - s < LANES ? (int)(series - s) : LANES;
            uint16_t index[LANES + 1];
            index_row(here, last, before, width, index);
            int i = 0;
            for (; i + 2 <= width; i += 2) even[index[i]]++, odd[index[i + 1]]++;
            if (i < width) even[index[i]]++;
        }
    }
    for (int i = 0; i < UPS_RANS_ENCODER_ENTRIES; i++) even[i] += odd[i];
}

INLINE uint16_t *encode_frame(const uint32_t *tables, const uint16_t *codes, const uint16_t *last,
                              const uint16_t *before, int width, uint32_t *state, uint16_t *top) {
    uint32_t tokens[LANES];
    for (int i = width - 1; i >= 0; i--) {
        uint32_t extra;
        tokens[i] = token_of(codes[i], &extra);
        if (extra == 0) continue;
        uint32_t x = state[i];
        if (x >> (32 - extra)) *--top = (uint16_t)x, x >>= 16;
        state[i] = x << extra | (codes[i] & ((1u << extra) - 1));
    }
    for (int i = width - 1; i >= 0; i--) {
        uint32_t entry = tables[context_of(last[i], before[i]) * UPS_RANS_TOKENS + tokens[i]], x = state[i];
        uint32_t frequency = entry & 0xffff, start = entry >> 16;
        if (x >= (uint64_t)frequency << (32 - BITS)) *--top = (uint16_t)x, x >>= 16;
        state[i] = (x / frequency << BITS) + x % frequency + start;
    }
    return top;
}

#if VECTORS
/* The low words of the lanes of `mask` go below `top`, in the order of lanes; those lanes are shifted. */
INLINE uint16_t *push(__mmask16 mask, __m512i *state, uint16_t *top) {
    __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, *state));
    int count_of = __builtin_popcount(mask);
    top -= count_of;
    _mm256_mask_storeu_epi16(top, (__mmask16)((1u << count_of) - 1), words);
    *state = _mm512_mask_srli_epi32(*state, mask, *state, 16);
    return top;
}

/* state → (state / frequency) · 2^BITS + state mod frequency + start */
INLINE __m512i put_token(__m512i state, __m512i frequency, __m512i start) {
    __m512 quotient_f = _mm512_div_ps(_mm512_cvtepu32_ps(state), _mm512_cvtepi32_ps(frequency));
    __m512i quotient = _mm512_cvttps_epi32(quotient_f);
    __m512i rest = _mm512_sub_epi32(state, _mm512_mullo_epi32(quotient, frequency));
    __mmask16 over = _mm512_cmplt_epi32_mask(rest, _mm512_setzero_si512());
    quotient = _mm512_mask_sub_epi32(quotient, over, quotient, constant(1));
    rest = _mm512_mask_add_epi32(rest, over, rest, frequency);
    __mmask16 under = _mm512_cmpge_epi32_mask(rest, frequency);
    quotient = _mm512_mask_add_epi32(quotient, under, quotient, constant(1));
    rest = _mm512_mask_sub_epi32(rest, under, rest, frequency);
    return _mm512_add_epi32(_mm512_slli_epi32(quotient, BITS), _mm512_add_epi32(rest, start));
}

INLINE uint16_t *encode_vectors(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times,
                                int vectors, uint32_t *states, uint16_t *top) {
    __m512i state[LANES / 16];
    for (int v = 0; v < vectors; v++) state[v] = _mm512_loadu_si512(states + 16 * v);
    for (int64_t t = times - 1; t >= 0; t--) {
        const uint16_t *here = codes + t * stride;
        const uint16_t *last = t > 0 ? here - stride : before_first;
        const uint16_t *before = t > 1 ? here - 2 * stride : before_first;
        __m512i entry[LANES / 16];
        for (int v = vectors - 1; v >= 0; v--) {
            __m512i code = load_codes(here + 16 * v), token = tokens_of(code);
            __m512i context = contexts_of(load_codes(last + 16 * v), load_codes(before + 16 * v));
            entry[v] = _mm512_i32gather_epi32(_mm512_add_epi32(_mm512_slli_epi32(context, 6), token), tables, 4);
            __mmask16 large = _mm512_cmpge_epu32_mask(token, constant(PLAIN_TOKENS));
            if (!large) continue;
            __m512i extra = extra_bits_in(token);
            __m512i above = _mm512_srlv_epi32(state[v], _mm512_sub_epi32(constant(32), extra));
            top = push(_mm512_mask_test_epi32_mask(large, above, above), &state[v], top);
            __m512i bits = _mm512_andnot_si512(_mm512_sllv_epi32(constant(~0u), extra), code);
            state[v] = _mm512_mask_or_epi32(state[v], large, _mm512_sllv_epi32(state[v], extra), bits);
        }
        for (int v = vectors - 1; v >= 0; v--) {
            __m512i frequency = _mm512_and_si512(entry[v], constant(0xffff)), start = _mm512_srli_epi32(entry[v], 16);
            __m512i most =
                _mm512_sub_epi32(_mm512_slli_epi32(frequency, 32 - BITS), constant(1)); /* 2^32 − 1 at most */
            top = push(_mm512_cmpgt_epu32_mask(state[v], most), &state[v], top);
            state[v] = put_token(state[v], frequency, start);
        }
    }
    for (int v = 0; v < vectors; v++) _mm512_storeu_si512(states + 16 * v, state[v]);
    return top;
}
#endif

static uint16_t *encode(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times, int width,
                        uint32_t *state, uint16_t *top) {
#if VECTORS
    if (width == LANES) return encode_vectors(tables, codes, stride, times, LANES / 16, state, top);
    if (width == UPS_RANS_FEW_LANES) return encode_vectors(tables, codes, stride, times, 1, state, top);
#endif
    for (int64_t t = times - 1; t >= 0; t--) {
        const uint16_t *here = codes + t * stride;
        top = encode_frame(tables, here, t > 0 ? here - stride : before_first, t > 1 ? here - 2 * stride : before_first,
                           width, state, top);
    }
    return top;
}

/* What decoding carries along time, for each lane: its last two codes, its last integer and the last difference. */
typedef struct history {
    uint32_t last[LANES], before[LANES], value[LANES], slope[LANES];
} history;

INLINE const uint8_t *take(const uint8_t *at, const uint8_t *end, bool checked, uint32_t *state) {
    uint16_t word = 0;
    bool needs = *state < FLOOR;
    if (!checked || end - at >= 2) memcpy(&word, at, sizeof word);
    *state = needs ? *state << 16 | word : *state;
    return checked && end - at < 2 ? end : at + 2 * needs;
}

/* One frame of codes into h->last. `checked`: words may run out. */
INLINE const uint8_t *decode_codes(const uint32_t *tables, const uint8_t *at, const uint8_t *end, bool checked,
                                   int width, uint32_t *state, history *h) {
    uint32_t tokens[LANES], large = 0;
    for (int i = 0; i < width; i++) {
        uint32_t x = state[i], entry = tables[context_of(h->last[i], h->before[i]) * TOTAL + x % TOTAL];
        x = (entry & 0x7ff) * (x >> BITS) + (entry >> 11 & 0x3ff);
        at = take(at, end, checked, &x);
        state[i] = x;
        tokens[i] = entry >> 21;
        large |= tokens[i];
    }
    for (int i = 0; i < width; i++) h->before[i] = h->last[i], h->last[i] = tokens[i];
    if (large < PLAIN_TOKENS) return at;
    for (int i = 0; i < width; i++) {
        if (tokens[i] < PLAIN_TOKENS) continue;
        uint32_t extra = extra_bits_of(tokens[i]), x = state[i];
        h->last[i] = (2 | (tokens[i] & 1)) << extra | (x & ((1u << extra) - 1));
        x >>= extra;
        at = take(at, end, checked, &x);
        state[i] = x;
    }
    return at;
}

INLINE void undo(history *h, int width, int order, int64_t frame) {
    for (int i = 0; i < width; i++) {
        uint32_t residual = unzigzag((uint16_t)h->last[i]);
        if (order == 0 || frame == 0)
            h->value[i] = residual;
        else
            h->slope[i] = order == 1 ? residual : h->slope[i] + residual, h->value[i] += h->slope[i];
    }
}

INLINE bool put(const history *h, int width, const ups_rans_frames *to, int64_t frame) {
    ups_f16 bits[LANES];
    bool finite = true;
    for (int i = 0; i < width; i++) bits[i] = ordered((uint16_t)h->value[i]);
    for (int i = 0; i < width; i++) finite &= (bits[i] & 0x7c00) != 0x7c00;
    int64_t at = (frame - to->start) * to->stride;
    if (to->dtype == UPS_F16)
        memcpy((ups_f16 *)to->out + at, bits, (size_t)width * sizeof *bits);
    else
        ups_f16_to_f32(bits, (float *)to->out + at, (size_t)width);
    return finite;
}

/* Frames [first, times), plainly. */
INLINE const uint8_t *decode_plainly(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t first,
                                     int64_t times, int width, int order, const ups_rans_frames *to, uint32_t *state,
                                     history *h, bool *finite) {
    for (int64_t t = first; t < times; t++) {
        if (end - at >= 4 * width)
            at = decode_codes(tables, at, end, false, width, state, h);
        else
            at = decode_codes(tables, at, end, true, width, state, h);
        undo(h, width, order, t);
        if (t >= to->start && t < to->end) *finite &= put(h, width, to, t);
    }
    return at;
}

#if VECTORS
INLINE const uint8_t *take_vector(__mmask16 needs, const uint8_t *at, __m512i *state) {
    __m512i words = _mm512_maskz_expand_epi32(needs, load_codes((const uint16_t *)at));
    *state = _mm512_mask_or_epi32(*state, needs, _mm512_slli_epi32(*state, 16), words);
    return at + 2 * __builtin_popcount(needs);
}

typedef enum target { TO_F16, TO_F32, TO_F32_PAST_CACHES } target;

INLINE void put_vector(__m256i bits, target to, void *out) {
    if (to == TO_F16)
        _mm256_storeu_si256(out, bits);
    else if (to == TO_F32)
        _mm512_storeu_ps(out, _mm512_cvtph_ps(bits));
    else
        _mm512_stream_ps(out, _mm512_cvtph_ps(bits));
}

/* Frames from 0 on while there certainly are enough words; returns the next frame. Everything constant but the frames:
 * vectors, order, target. */
INLINE int64_t decode_vectors(const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times,
                              int vectors, int order, target kind, const ups_rans_frames *to, uint32_t *states,
                              history *h, bool *finite) {
    __m512i state[LANES / 16], last[LANES / 16], before[LANES / 16], value[LANES / 16], slope[LANES / 16];
    __m512i exponents = _mm512_setzero_si512();
    const uint8_t *at = *words;
    size_t size = kind == TO_F16 ? sizeof(ups_f16) : sizeof(float);
    char *row = to->out;
    for (int v = 0; v < vectors; v++) {
        state[v] = _mm512_loadu_si512(states + 16 * v);
        last[v] = before[v] = constant(BEFORE_FIRST);
        value[v] = slope[v] = _mm512_setzero_si512();
    }
    int64_t t = 0;
    for (; t < times && end - at >= 4 * 16 * vectors; t++) {
        __m512i token[LANES / 16];
        __mmask16 any = 0;
        for (int v = 0; v < vectors; v++) {
            __m512i at_slot = _mm512_add_epi32(_mm512_slli_epi32(contexts_of(last[v], before[v]), BITS),
                                               _mm512_and_si512(state[v], constant(TOTAL - 1)));
            __m512i entry = _mm512_i32gather_epi32(at_slot, tables, 4);
            __m512i frequency = _mm512_and_si512(entry, constant(0x7ff));
            __m512i offset = _mm512_and_si512(_mm512_srli_epi32(entry, 11), constant(0x3ff));
            token[v] = _mm512_srli_epi32(entry, 21);
            state[v] = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(state[v], BITS)), offset);
            at = take_vector(_mm512_cmplt_epu32_mask(state[v], constant(FLOOR)), at, &state[v]);
            any |= _mm512_cmpge_epu32_mask(token[v], constant(PLAIN_TOKENS));
            before[v] = last[v];
            last[v] = token[v];
        }
        if (any) {
            for (int v = 0; v < vectors; v++) {
                __mmask16 large = _mm512_cmpge_epu32_mask(token[v], constant(PLAIN_TOKENS));
                __m512i extra = extra_bits_in(token[v]);
                __m512i bits = _mm512_andnot_si512(_mm512_sllv_epi32(constant(~0u), extra), state[v]);
                __m512i leading = _mm512_or_si512(_mm512_and_si512(token[v], constant(1)), constant(2));
                last[v] = _mm512_mask_or_epi32(last[v], large, _mm512_sllv_epi32(leading, extra), bits);
                state[v] = _mm512_mask_srlv_epi32(state[v], large, state[v], extra);
                at = take_vector(_mm512_mask_cmplt_epu32_mask(large, state[v], constant(FLOOR)), at, &state[v]);
            }
        }
        bool wanted = t >= to->start && t < to->end;
        for (int v = 0; v < vectors; v++) {
            __m512i sign = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_and_si512(last[v], constant(1)));
            __m512i residual = _mm512_xor_si512(_mm512_srli_epi32(last[v], 1), sign);
            if (order == 0 || t == 0) {
                value[v] = residual;
            } else if (order == 1) {
                value[v] = _mm512_add_epi32(value[v], residual);
            } else {
                slope[v] = _mm512_add_epi32(slope[v], residual);
                value[v] = _mm512_add_epi32(value[v], slope[v]);
            }
            if (!wanted) continue;
            __m256i integer = _mm512_cvtepi32_epi16(value[v]);
            __m256i flip = _mm256_and_si256(_mm256_srai_epi16(integer, 15), _mm256_set1_epi16(0x7fff));
            __m256i number = _mm256_xor_si256(integer, flip);
            __m256i exponent = _mm256_and_si256(number, _mm256_set1_epi16(0x7c00));
            exponents = _mm512_or_si512(exponents,
                                        _mm512_castsi256_si512(_mm256_add_epi16(exponent, _mm256_set1_epi16(0x0400))));
            put_vector(number, kind, row + (size_t)(16 * v) * size);
        }
        if (wanted) row += (size_t)to->stride * size;
    }
    *finite &=
        !_mm256_movemask_epi8(_mm256_and_si256(_mm512_castsi512_si256(exponents), _mm256_set1_epi16((short)0x8000)));
    for (int v = 0; v < vectors; v++) {
        _mm512_storeu_si512(states + 16 * v, state[v]);
        _mm512_storeu_si512(h->last + 16 * v, last[v]);
        _mm512_storeu_si512(h->before + 16 * v, before[v]);
        _mm512_storeu_si512(h->value + 16 * v, value[v]);
        _mm512_storeu_si512(h->slope + 16 * v, slope[v]);
    }
    *words = at;
    return t;
}

#define FORM(vectors, order, kind)                                                                                     \
    static int64_t decode_##vectors##_##order##_##kind(const uint32_t *tables, const uint8_t **words,                  \
                                                       const uint8_t *end, int64_t times, const ups_rans_frames *to,   \
                                                       uint32_t *states, history *h, bool *finite) {                   \
        return decode_vectors(tables, words, end, times, vectors, order, kind, to, states, h, finite);                 \
    }
#define FORMS_OF_ORDER(vectors, order)                                                                                 \
    FORM(vectors, order, TO_F16) FORM(vectors, order, TO_F32) FORM(vectors, order, TO_F32_PAST_CACHES)
#define FORMS(vectors) FORMS_OF_ORDER(vectors, 0) FORMS_OF_ORDER(vectors, 1) FORMS_OF_ORDER(vectors, 2)
FORMS(1)
FORMS(4)

typedef int64_t decode_form(const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times,
                            const ups_rans_frames *to, uint32_t *states, history *h, bool *finite);
#define LIST(vectors, order)                                                                                           \
    {                                                                                                                  \
        decode_##vectors##_##order##_TO_F16, decode_##vectors##_##order##_TO_F32,                                      \
            decode_##vectors##_##order##_TO_F32_PAST_CACHES                                                            \
    }
static decode_form *const forms[2][UPS_RANS_MAX_ORDER + 1][3] = {
    {LIST(1, 0), LIST(1, 1), LIST(1, 2)},
    {LIST(4, 0), LIST(4, 1), LIST(4, 2)},
};
#endif

static const uint8_t *decode(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times, int width,
                             int order, ups_rans_frames to, uint32_t *state, bool *finite) {
    history h;
    int64_t done = 0;
#if VECTORS
    if (width == LANES || width == UPS_RANS_FEW_LANES) {
        bool aligned = (uintptr_t)to.out % 64 == 0 && to.stride % 16 == 0;
        target kind = to.dtype == UPS_F16 ? TO_F16 : to.past_caches && aligned ? TO_F32_PAST_CACHES : TO_F32;
        done = forms[width == LANES][order][kind](tables, &at, end, times, &to, state, &h, finite);
        if (kind == TO_F32_PAST_CACHES) _mm_sfence(); /* other threads see it once they are told of it */
    } else
#endif
        for (int i = 0; i < LANES; i++) h.last[i] = h.before[i] = BEFORE_FIRST, h.value[i] = h.slope[i] = 0;
    if (order == 2) return decode_plainly(tables, at, end, done, times, width, 2, &to, state, &h, finite);
    if (order == 1) return decode_plainly(tables, at, end, done, times, width, 1, &to, state, &h, finite);
    return decode_plainly(tables, at, end, done, times, width, 0, &to, state, &h, finite);
}

const ups_rans_kernel KERNEL = {NAME, residuals, count, encode, decode};
