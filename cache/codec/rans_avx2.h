/* The loops of rans_kernel.c for AVX2: eight lanes a vector, of which a group has two or eight. Part of that file,
 * which includes it where it is compiled for AVX2 and has defined what is common to both; no header for others.
 * Compiled for AVX-512, too, it has only what groups of another width are made of.
 *
 * What a group carries along time does not fit sixteen registers, so that it lies in memory, and a frame is two passes
 * over it: tokens first, then extra bits and prediction together. Codes predict in vectors of sixteen, since integers
 * wrap around at 16 bits. There are no masks: a table says, for each mask of eight lanes, which word goes where. */
#ifndef UPS_CACHE_CODEC_RANS_AVX2_H
#define UPS_CACHE_CODEC_RANS_AVX2_H

/* Bytes of eight words by the mask of lanes that take them or give them: to those lanes, the others getting zeros; and
 * from them, to the end. */
static _Alignas(16) uint8_t spread[256][16], gathered_last[256][16];

static void prepare(void) {
    for (int mask = 0; mask < 256; mask++) {
        int count = 0, from = 8 - __builtin_popcount((unsigned)mask);
        for (int i = 0; i < 8; i++) {
            for (int byte = 0; byte < 2; byte++) {
                bool taken = mask >> i & 1;
                spread[mask][2 * i + byte] = (uint8_t)(taken ? 2 * count + byte : 0x80);
                if (taken) gathered_last[mask][2 * (from + count) + byte] = (uint8_t)(2 * i + byte);
            }
            count += mask >> i & 1;
        }
    }
}

/* The low words of the lanes of `needs` (all ones) go below `top`, in the order of lanes; those lanes are shifted. What
 * is below them is written over. */
INLINE uint16_t *push_eight(__m256i needs, __m256i *state, uint16_t *top) {
    uint64_t mask = (uint8_t)_mm256_movemask_ps(_mm256_castsi256_ps(needs));
    __m256i low = _mm256_and_si256(*state, _mm256_set1_epi32(0xffff));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    words = _mm_shuffle_epi8(words, _mm_load_si128((const __m128i *)gathered_last[mask]));
    _mm_storeu_si128((__m128i *)(top - 8), words);
    *state = _mm256_srlv_epi32(*state, _mm256_and_si256(needs, _mm256_set1_epi32(16)));
    return top - (uint64_t)__builtin_popcountll(mask);
}

/* Words for the lanes whose state is below the floor. Eight are looked at. */
INLINE const uint8_t *take_eight(const uint8_t *at, __m256i *state) {
    __m256i needs = _mm256_cmpeq_epi32(_mm256_srli_epi32(*state, 16), _mm256_setzero_si256());
    uint64_t mask = (uint8_t)_mm256_movemask_ps(_mm256_castsi256_ps(needs));
    __m128i words = _mm_loadu_si128((const __m128i *)at);
    words = _mm_shuffle_epi8(words, _mm_load_si128((const __m128i *)spread[mask]));
    __m256i shifted = _mm256_sllv_epi32(*state, _mm256_and_si256(needs, _mm256_set1_epi32(16)));
    *state = _mm256_or_si256(shifted, _mm256_cvtepu16_epi32(words));
    return at + 2 * (uint64_t)__builtin_popcountll(mask);
}

#if !AVX512
#define MAX_VECTORS (LANES / 8)

INLINE __m256i constant(uint32_t value) {
    return _mm256_set1_epi32((int)value);
}

INLINE __m256i load_codes(const uint16_t *codes) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)codes));
}

/* Two vectors of numbers below 2^16, in their order. */
INLINE __m256i narrow(__m256i first, __m256i second) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
}

INLINE __m256i float_bits(__m256i numbers) {
    return _mm256_castps_si256(_mm256_cvtepi32_ps(numbers));
}

/* A float's exponent is how long the number is: where a code below SMALL_CODES is, the other choice is smaller. */
INLINE __m256i contexts_of(__m256i last, __m256i before) {
    __m256i twice = _mm256_add_epi32(last, last), sum = _mm256_add_epi32(twice, before);
    __m256i large = _mm256_cmpgt_epi32(_mm256_or_si256(last, before), constant(SMALL_CODES - 1));
    __m256i by_length = _mm256_sub_epi32(_mm256_srli_epi32(float_bits(sum), 23), constant(126 - 13));
    return _mm256_min_epu32(by_length, _mm256_or_si256(_mm256_add_epi32(sum, twice), large));
}

/* The bit after a float's exponent is the second of the number. Codes below PLAIN_TOKENS are smaller than that. */
INLINE __m256i tokens_of(__m256i codes) {
    __m256i by_length = _mm256_srli_epi32(float_bits(codes), 22);
    return _mm256_min_epu32(codes, _mm256_sub_epi32(by_length, constant(2 * 126 + 10 - PLAIN_TOKENS)));
}

/* tables[at]. Where a gathering instruction is slow (ups_gathers_fast), by a load a lane. */
INLINE __m256i look_up(bool gathers, const uint32_t *tables, __m256i at) {
    if (gathers) return _mm256_i32gather_epi32((const int *)tables, at, 4);
    _Alignas(32) uint32_t place[8];
    _mm256_store_si256((__m256i *)place, at);
    __asm__("" : "+m"(place)); /* so that places are read from memory, not taken out of the vector one by one */
    __m256 lane[8];
    for (int i = 0; i < 8; i++) lane[i] = _mm256_broadcast_ss((const float *)tables + place[i]);
    for (int i = 0; i < 8; i += 2) lane[i] = _mm256_blend_ps(lane[i], lane[i + 1], 0xaa);
    __m256 first = _mm256_blend_ps(lane[0], lane[2], 0xcc), second = _mm256_blend_ps(lane[4], lane[6], 0xcc);
    return _mm256_castps_si256(_mm256_blend_ps(first, second, 0xf0));
}

INLINE void index_sixteen(const uint16_t *codes, const uint16_t *last, const uint16_t *before, uint16_t *index) {
    __m256i both[2];
    for (int v = 0; v < 2; v++) {
        __m256i context = contexts_of(load_codes(last + 8 * v), load_codes(before + 8 * v));
        both[v] = _mm256_add_epi32(_mm256_slli_epi32(context, 6), tokens_of(load_codes(codes + 8 * v)));
    }
    _mm256_storeu_si256((__m256i *)index, narrow(both[0], both[1]));
}

/* state → (state / frequency) · 2^BITS + state mod frequency + start. One more in the quotient is one frequency less in
 * the remainder. */
INLINE __m256i put_token(__m256i state, __m256i frequency, __m256i start) {
    __m256 reciprocal = _mm256_div_ps(_mm256_set1_ps(2), _mm256_cvtepi32_ps(frequency));
    __m256 half = _mm256_cvtepi32_ps(_mm256_srli_epi32(state, 1)); /* numbers below 2^31 become floats */
    __m256i quotient = _mm256_cvttps_epi32(_mm256_mul_ps(half, reciprocal));
    __m256i rest = _mm256_sub_epi32(state, _mm256_mullo_epi32(quotient, frequency));
    __m256i more = _mm256_sub_epi32(constant(TOTAL), frequency);
    __m256i over = _mm256_srai_epi32(rest, 31), fits = _mm256_cmpgt_epi32(frequency, rest);
    state = _mm256_add_epi32(_mm256_slli_epi32(quotient, BITS), _mm256_add_epi32(rest, start));
    state = _mm256_sub_epi32(state, _mm256_and_si256(over, more));
    return _mm256_add_epi32(state, _mm256_andnot_si256(fits, more));
}

INLINE uint16_t *encode_vectors(bool gathers, const uint32_t *tables, const uint16_t *codes, int64_t stride,
                                int64_t times, int vectors, uint32_t *states, uint16_t *top) {
    __m256i state[MAX_VECTORS], entry[MAX_VECTORS];
    for (int v = 0; v < vectors; v++) state[v] = _mm256_loadu_si256((const __m256i *)states + v);
    for (int64_t t = times - 1; t >= 0; t--) {
        const uint16_t *here = codes + t * stride;
        const uint16_t *last = t > 0 ? here - stride : before_first;
        const uint16_t *before = t > 1 ? here - 2 * stride : before_first;
        for (int v = vectors - 1; v >= 0; v--) {
            __m256i code = load_codes(here + 8 * v), token = tokens_of(code);
            __m256i context = contexts_of(load_codes(last + 8 * v), load_codes(before + 8 * v));
            __m256i at = _mm256_add_epi32(_mm256_slli_epi32(context, 6), token);
            entry[v] = look_up(gathers, tables, at);
            __m256i large = _mm256_cmpgt_epi32(token, constant(PLAIN_TOKENS - 1));
            if (_mm256_testz_si256(large, large)) continue;
            __m256i extra = _mm256_sub_epi32(_mm256_srli_epi32(token, 1), constant(PLAIN_TOKENS / 2 - 3));
            extra = _mm256_and_si256(extra, large);
            __m256i above = _mm256_srlv_epi32(state[v], _mm256_sub_epi32(constant(32), extra)); /* by 32 leaves 0 */
            __m256i fits = _mm256_cmpeq_epi32(above, _mm256_setzero_si256());
            __m256i x = state[v];
            top = push_eight(_mm256_andnot_si256(fits, large), &x, top);
            __m256i bits = _mm256_andnot_si256(_mm256_sllv_epi32(constant(~0u), extra), code);
            state[v] = _mm256_or_si256(_mm256_sllv_epi32(x, extra), bits);
        }
        for (int v = vectors - 1; v >= 0; v--) {
            __m256i frequency = _mm256_and_si256(entry[v], constant(0xffff)), x = state[v];
            __m256i fits = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(x, 32 - BITS));
            top = push_eight(_mm256_xor_si256(fits, constant(~0u)), &x, top);
            state[v] = put_token(x, frequency, _mm256_srli_epi32(entry[v], 16));
        }
    }
    for (int v = 0; v < vectors; v++) _mm256_storeu_si256((__m256i *)states + v, state[v]);
    return top;
}

/* Sixteen numbers to place `i` of a row. */
INLINE void put_sixteen(__m256i numbers, const ups_rans_frames *to, void *row, int i) {
    if (to->dtype == UPS_F16) {
        __m256i *at = (__m256i *)((ups_f16 *)row + i);
        if (to->past_caches)
            _mm256_stream_si256(at, numbers);
        else
            _mm256_storeu_si256(at, numbers);
        return;
    }
    float *at = (float *)row + i;
    __m256 first = _mm256_cvtph_ps(_mm256_castsi256_si128(numbers));
    __m256 second = _mm256_cvtph_ps(_mm256_extracti128_si256(numbers, 1));
    if (to->past_caches)
        _mm256_stream_ps(at, first), _mm256_stream_ps(at + 8, second);
    else
        _mm256_storeu_ps(at, first), _mm256_storeu_ps(at + 8, second);
}

/* What a group carries along time. Of codes those of the last two frames, by turns. */
typedef struct group {
    __m256i state[MAX_VECTORS], context[MAX_VECTORS], code[2][MAX_VECTORS];
    __m256i value[MAX_VECTORS / 2], slope[MAX_VECTORS / 2];
} group;

/* The tokens of a frame into `codes`, with how many more bits each code has above DECODED_EXTRA; whether any has. */
INLINE bool decode_tokens(bool gathers, const uint32_t *tables, int vectors, const uint8_t **words, group *g,
                          __m256i *codes) {
    __m256i any = _mm256_setzero_si256();
    const uint8_t *at = *words;
#pragma GCC unroll 1 /* so that constants stay in registers */
    for (int v = 0; v < vectors; v++) {
        __m256i x = g->state[v];
        __m256i slot = _mm256_add_epi32(g->context[v], _mm256_and_si256(x, constant(TOTAL - 1)));
        __m256i entry = look_up(gathers, tables, slot);
        __m256i frequency = _mm256_and_si256(entry, constant(0x7ff));
        __m256i offset = _mm256_and_si256(_mm256_srli_epi32(entry, 11), constant(0x3ff));
        x = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srli_epi32(x, BITS)), offset);
        at = take_eight(at, &x);
        g->state[v] = x;
        codes[v] = _mm256_srli_epi32(entry, 21);
        any = _mm256_or_si256(any, entry);
    }
    *words = at;
    return !_mm256_testz_si256(any, constant(~0u << (21 + DECODED_EXTRA)));
}

/* Codes of a frame become numbers of sixteen series. */
INLINE __m256i predict(__m256i codes, int order, bool is_first, __m256i *value, __m256i *slope) {
    __m256i sign = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(codes, _mm256_set1_epi16(1)));
    __m256i residual = _mm256_xor_si256(_mm256_srli_epi16(codes, 1), sign);
    if (order == 0 || is_first) return *value = residual;
    if (order == 2) residual = *slope = _mm256_add_epi16(*slope, residual);
    return *value = _mm256_add_epi16(*value, residual);
}

/* A frame whose tokens are in `codes`: its extra bits where some are `large`, and where the next tokens' tables are. */
INLINE const uint8_t *decode_extra_bits(bool large, int k, const uint8_t *at, const __m256i *last, group *g,
                                        __m256i *codes) {
    __m256i code = codes[k];
    if (large) {
        __m256i extra = _mm256_srli_epi32(code, DECODED_EXTRA), x = g->state[k];
        __m256i leading = _mm256_and_si256(code, constant(DECODED_CODE));
        __m256i above = _mm256_srlv_epi32(x, extra);
        code = _mm256_sub_epi32(x, _mm256_sllv_epi32(_mm256_sub_epi32(above, leading), extra));
        at = take_eight(at, &above);
        g->state[k] = above;
        codes[k] = code;
    }
    g->context[k] = _mm256_slli_epi32(contexts_of(code, last[k]), BITS);
    return at;
}

/* Of the integers of all frames put out: NaN and Inf are beyond the others. */
typedef struct extremes {
    __m256i most, least;
} extremes;

/* The rest of a frame whose tokens are in `codes`; `large`: some have extra bits. To `row`, unless that is NULL. */
INLINE const uint8_t *finish_frame(bool large, int vectors, int order, bool is_first, const uint8_t *at,
                                   const __m256i *last, const ups_rans_frames *to, group *g, __m256i *codes,
                                   extremes *range, void *row) {
    for (int v = 0; v < vectors; v += 2) {
        at = decode_extra_bits(large, v, at, last, g, codes);
        at = decode_extra_bits(large, v + 1, at, last, g, codes);
        __m256i both = narrow(codes[v], codes[v + 1]);
        __m256i value = predict(both, order, is_first, &g->value[v / 2], &g->slope[v / 2]);
        if (!row) continue;
        range->most = _mm256_max_epi16(range->most, value);
        range->least = _mm256_min_epi16(range->least, value);
        __m256i flip = _mm256_and_si256(_mm256_srai_epi16(value, 15), _mm256_set1_epi16(0x7fff));
        put_sixteen(_mm256_xor_si256(value, flip), to, row, 8 * v);
    }
    return at;
}

/* Frames from 0 on while there certainly are enough words; returns the next frame. The history of that frame, if any,
 * is left in *h. */
INLINE int64_t decode_vectors(bool gathers, const uint32_t *tables, const uint8_t **words, const uint8_t *end,
                              int64_t times, int vectors, int order, const ups_rans_frames *to, uint32_t *states,
                              history *h, bool *finite) {
    group g;
    extremes range = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const uint8_t *at = *words;
    char *row = to->out;
    size_t row_bytes = (size_t)to->stride * (to->dtype == UPS_F16 ? sizeof(ups_f16) : sizeof(float));
    for (int v = 0; v < vectors; v++) {
        g.state[v] = _mm256_loadu_si256((const __m256i *)states + v);
        g.code[0][v] = g.code[1][v] = constant(BEFORE_FIRST);
        g.context[v] = _mm256_slli_epi32(contexts_of(constant(BEFORE_FIRST), constant(BEFORE_FIRST)), BITS);
        g.value[v / 2] = g.slope[v / 2] = _mm256_setzero_si256();
    }
    int64_t t = 0;
    for (; t < times && end - at >= 4 * 8 * vectors; t++) {
        const __m256i *last = g.code[(t + 1) % 2];
        __m256i *codes = g.code[t % 2];
        bool wanted = t >= to->start && t < to->end;
        void *here = wanted ? row : NULL;
        if (decode_tokens(gathers, tables, vectors, &at, &g, codes))
            at = finish_frame(true, vectors, order, t == 0, at, last, to, &g, codes, &range, here);
        else
            at = finish_frame(false, vectors, order, t == 0, at, last, to, &g, codes, &range, here);
        if (wanted) row += row_bytes;
    }
    __m256i most = _mm256_max_epi16(range.most, _mm256_xor_si256(range.least, _mm256_set1_epi16(-1)));
    most = _mm256_cmpgt_epi16(most, _mm256_set1_epi16(0x7bff)); /* the largest number, as an integer */
    *finite &= _mm256_testz_si256(most, most);
    for (int v = 0; v < vectors; v++) _mm256_storeu_si256((__m256i *)states + v, g.state[v]);
    for (int v = 0; v < vectors && t < times; v++) {
        _mm256_storeu_si256((__m256i *)h->last + v, g.code[(t + 1) % 2][v]);
        _mm256_storeu_si256((__m256i *)h->before + v, g.code[t % 2][v]);
        _mm256_storeu_si256((__m256i *)h->value + v, load_codes((const uint16_t *)g.value + 8 * v));
        _mm256_storeu_si256((__m256i *)h->slope + v, load_codes((const uint16_t *)g.slope + 8 * v));
    }
    *words = at;
    return t;
}

typedef int64_t decode_form(const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times,
                            const ups_rans_frames *to, uint32_t *states, history *h, bool *finite);

#define FORM(vectors, order, gathers)                                                                                  \
    static int64_t decode_##vectors##_##order##_##gathers(                                                             \
        const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times, const ups_rans_frames *to,   \
        uint32_t *states, history *h, bool *finite) {                                                                  \
        return decode_vectors(gathers, tables, words, end, times, vectors, order, to, states, h, finite);              \
    }
#define FORMS(vectors, gathers) FORM(vectors, 0, gathers) FORM(vectors, 1, gathers) FORM(vectors, 2, gathers)
FORMS(2, 0)
FORMS(2, 1)
FORMS(8, 0)
FORMS(8, 1)

#define LIST(vectors, gathers)                                                                                         \
    { decode_##vectors##_0_##gathers, decode_##vectors##_1_##gathers, decode_##vectors##_2_##gathers }
static decode_form *const decode_forms[2][2][UPS_RANS_MAX_ORDER + 1] = {
    {LIST(2, 0), LIST(8, 0)},
    {LIST(2, 1), LIST(8, 1)},
};

/* Of groups of UPS_RANS_FEW_LANES or LANES. */
INLINE decode_form *form_for(bool gathers, int width, int order, const ups_rans_frames *to) {
    return decode_forms[gathers][width == LANES][order];
}
#endif

#endif
