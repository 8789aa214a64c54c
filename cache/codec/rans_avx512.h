/* The loops of rans_kernel.c for AVX-512: sixteen lanes a vector, of which a group has one or four. Part of that file,
 * which includes it where it is compiled for AVX-512 and has defined what is common to both; no header for others. */
#ifndef UPS_CACHE_CODEC_RANS_AVX512_H
#define UPS_CACHE_CODEC_RANS_AVX512_H

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

/* The bit after a float's exponent is the second of the number. Codes below PLAIN_TOKENS are smaller than that. */
INLINE __m512i tokens_of(__m512i codes) {
    __m512i by_length = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(codes)), 22);
    return _mm512_min_epu32(codes, _mm512_sub_epi32(by_length, constant(2 * 126 + 10 - PLAIN_TOKENS)));
}

INLINE void index_sixteen(const uint16_t *codes, const uint16_t *last, const uint16_t *before, uint16_t *index) {
    __m512i context = contexts_of(load_codes(last), load_codes(before));
    __m512i both = _mm512_add_epi32(_mm512_slli_epi32(context, 6), tokens_of(load_codes(codes)));
    _mm256_storeu_si256((__m256i *)index, _mm512_cvtepi32_epi16(both));
}

INLINE __m512i extra_bits_in(__m512i tokens) { /* of tokens from PLAIN_TOKENS on */
    return _mm512_sub_epi32(_mm512_srli_epi32(tokens, 1), constant(PLAIN_TOKENS / 2 - 3));
}

/* The low words of the lanes of `mask` go below `top`, in the order of lanes; those lanes are shifted. */
INLINE uint16_t *push(__mmask16 mask, __m512i *state, uint16_t *top) {
    __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, *state));
    int count_of = __builtin_popcount(mask);
    top -= count_of;
    _mm256_mask_storeu_epi16(top, (__mmask16)((1u << count_of) - 1), words);
    *state = _mm512_mask_srli_epi32(*state, mask, *state, 16);
    return top;
}

/* state → (state / frequency) · 2^BITS + state mod frequency + start. One more in the quotient is one frequency less in
 * the remainder. One step of Newton's makes the reciprocal, of 14 bits, as exact as floats are; all of it is done
 * before the state is known, which a division would wait for. */
INLINE __m512i put_token(__m512i state, __m512i frequency, __m512i start) {
    __m512 divisor = _mm512_cvtepi32_ps(frequency), rough = _mm512_rcp14_ps(divisor);
    __m512 reciprocal = _mm512_fmadd_ps(rough, _mm512_fnmadd_ps(divisor, rough, _mm512_set1_ps(1)), rough);
    __m512i quotient = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepu32_ps(state), reciprocal));
    __m512i rest = _mm512_sub_epi32(state, _mm512_mullo_epi32(quotient, frequency));
    __m512i more = _mm512_sub_epi32(constant(TOTAL), frequency);
    __mmask16 over = _mm512_cmplt_epi32_mask(rest, _mm512_setzero_si512());
    __mmask16 under = _mm512_cmpge_epi32_mask(rest, frequency);
    state = _mm512_add_epi32(_mm512_slli_epi32(quotient, BITS), _mm512_add_epi32(rest, start));
    state = _mm512_mask_sub_epi32(state, over, state, more);
    return _mm512_mask_add_epi32(state, under, state, more);
}

INLINE uint16_t *encode_vectors(bool gathers, const uint32_t *tables, const uint16_t *codes, int64_t stride,
                                int64_t times, int vectors, uint32_t *states, uint16_t *top) {
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

/* Words for the lanes whose state is below the floor. */
INLINE const uint8_t *take_vector(const uint8_t *at, __m512i *state) {
    __mmask16 needs = _mm512_cmplt_epu32_mask(*state, constant(FLOOR));
    __m512i words = _mm512_maskz_expand_epi32(needs, load_codes((const uint16_t *)at));
    *state = _mm512_mask_or_epi32(*state, needs, _mm512_slli_epi32(*state, 16), words);
    return at + 2 * __builtin_popcount(needs);
}

typedef enum target { TO_F16, TO_F16_PAST_CACHES, TO_F32, TO_F32_PAST_CACHES } target;

INLINE void put_vectors(const __m256i *numbers, int vectors, target to, void *row) {
    for (int v = 0; v < vectors; v++) {
        if (to == TO_F16)
            _mm256_storeu_si256((__m256i *)row + v, numbers[v]);
        else if (to == TO_F32)
            _mm512_storeu_ps((float *)row + 16 * v, _mm512_cvtph_ps(numbers[v]));
        else if (to == TO_F32_PAST_CACHES)
            _mm512_stream_ps((float *)row + 16 * v, _mm512_cvtph_ps(numbers[v]));
        else if (v % 2 == 1) /* whole lines */
            _mm512_stream_si512((__m512i *)row + v / 2,
                                _mm512_inserti64x4(_mm512_castsi256_si512(numbers[v - 1]), numbers[v], 1));
    }
}

/* Frames from 0 on while there certainly are enough words; returns the next frame. The history of that frame, if any,
 * is left in *h. Everything constant but the frames: vectors, order, target. */
INLINE int64_t decode_vectors(const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times,
                              int vectors, int order, target kind, const ups_rans_frames *to, uint32_t *states,
                              history *h, bool *finite) {
    __m512i state[LANES / 16], last[LANES / 16], before[LANES / 16], value[LANES / 16], slope[LANES / 16];
    __m512i exponents = _mm512_setzero_si512();
    const uint8_t *at = *words;
    size_t size = kind <= TO_F16_PAST_CACHES ? sizeof(ups_f16) : sizeof(float);
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
            at = take_vector(at, &state[v]);
            any |= _mm512_cmpge_epu32_mask(token[v], constant(1u << DECODED_EXTRA));
            before[v] = last[v];
            last[v] = token[v];
        }
        if (any) {
            for (int v = 0; v < vectors; v++) {
                __m512i extra = _mm512_srli_epi32(token[v], DECODED_EXTRA);
                __m512i leading = _mm512_and_si512(token[v], constant(DECODED_CODE));
                __m512i above = _mm512_srlv_epi32(state[v], extra);
                last[v] = _mm512_sub_epi32(state[v], _mm512_sllv_epi32(_mm512_sub_epi32(above, leading), extra));
                at = take_vector(at, &above);
                state[v] = above;
            }
        }
        bool wanted = t >= to->start && t < to->end;
        __m256i numbers[LANES / 16];
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
            numbers[v] = number;
        }
        if (!wanted) continue;
        put_vectors(numbers, vectors, kind, row);
        row += (size_t)to->stride * size;
    }
    *finite &=
        !_mm256_movemask_epi8(_mm256_and_si256(_mm512_castsi512_si256(exponents), _mm256_set1_epi16((short)0x8000)));
    for (int v = 0; v < vectors; v++) _mm512_storeu_si512(states + 16 * v, state[v]);
    for (int v = 0; v < vectors && t < times; v++) {
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
    FORM(vectors, order, TO_F16)                                                                                       \
    FORM(vectors, order, TO_F16_PAST_CACHES) FORM(vectors, order, TO_F32) FORM(vectors, order, TO_F32_PAST_CACHES)
#define FORMS(vectors) FORMS_OF_ORDER(vectors, 0) FORMS_OF_ORDER(vectors, 1) FORMS_OF_ORDER(vectors, 2)
FORMS(1)
FORMS(4)

typedef int64_t decode_form(const uint32_t *tables, const uint8_t **words, const uint8_t *end, int64_t times,
                            const ups_rans_frames *to, uint32_t *states, history *h, bool *finite);
#define LIST(vectors, order)                                                                                           \
    {                                                                                                                  \
        decode_##vectors##_##order##_TO_F16, decode_##vectors##_##order##_TO_F16_PAST_CACHES,                          \
            decode_##vectors##_##order##_TO_F32, decode_##vectors##_##order##_TO_F32_PAST_CACHES                       \
    }
static decode_form *const decode_forms[2][UPS_RANS_MAX_ORDER + 1][4] = {
    {LIST(1, 0), LIST(1, 1), LIST(1, 2)},
    {LIST(4, 0), LIST(4, 1), LIST(4, 2)},
};

/* Of groups of UPS_RANS_FEW_LANES or LANES. */
INLINE decode_form *form_for(bool gathers, int width, int order, const ups_rans_frames *to) {
    return decode_forms[width == LANES][order][(to->dtype == UPS_F16 ? TO_F16 : TO_F32) + to->past_caches];
}

#endif
