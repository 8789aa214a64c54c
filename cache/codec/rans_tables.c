/* The coder's model: contexts that share a table, normalised frequencies, and the tables that kernels look up. */
#include "cache/codec/rans.h"

#include <math.h>
#include <string.h>

/* 2^16 · log2(number), of the first LOGARITHMS exactly, of larger numbers to a few thousandths. In integers, so that
 * every machine makes the same choices. */
#define LOGARITHMS 2048
static uint32_t logarithms[LOGARITHMS];

__attribute__((constructor)) static void fill_logarithms(void) {
    for (int i = 1; i < LOGARITHMS; i++) logarithms[i] = (uint32_t)lround(65536 * log2(i));
}

static uint64_t logarithm(uint32_t number) {
    uint32_t shift = 0;
    while (number >> shift >= LOGARITHMS) shift++;
    return logarithms[number >> shift] + ((uint64_t)shift << 16);
}

/* 2^16 times the bits that an ideal coder spends on tokens that came so often. */
static uint64_t cost(const uint32_t counts[UPS_RANS_TOKENS]) {
    uint64_t sum = 0;
    uint32_t total = 0;
    for (int i = 0; i < UPS_RANS_USED_TOKENS; i++) {
        if (counts[i] == 0) continue;
        total += counts[i];
        sum += counts[i] * logarithm(counts[i]);
    }
    uint64_t all = total * logarithm(total);
    return all > sum ? all - sum : 0;
}

static uint64_t extra_bits(ups_rans_histogram counts) {
    uint64_t bits = 0;
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++)
        for (int i = UPS_RANS_PLAIN_TOKENS; i < UPS_RANS_USED_TOKENS; i++)
            bits += counts[c][i] * (uint64_t)((i - UPS_RANS_PLAIN_TOKENS) / 2 + 3);
    return bits;
}

uint64_t ups_rans_bits(ups_rans_histogram counts) {
    uint32_t together[UPS_RANS_TOKENS] = {0};
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++)
        for (int i = 0; i < UPS_RANS_TOKENS; i++) together[i] += counts[c][i];
    return (cost(together) >> 16) + extra_bits(counts);
}

uint64_t ups_rans_bits_in_contexts(ups_rans_histogram counts) {
    uint64_t bits = extra_bits(counts);
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) bits += cost(counts[c]) >> 16;
    return bits;
}

static int tokens_in(const uint32_t counts[UPS_RANS_TOKENS]) {
    int tokens = UPS_RANS_USED_TOKENS;
    while (tokens > 0 && counts[tokens - 1] == 0) tokens--;
    return tokens;
}

void ups_rans_merge(ups_rans_histogram counts) {
    int into = -1; /* the context whose table the next one could share */
    uint64_t cost_into = 0;
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) {
        int tokens = tokens_in(counts[c]);
        if (tokens == 0) continue;
        uint64_t cost_here = cost(counts[c]);
        if (into >= 0) {
            uint32_t both[UPS_RANS_TOKENS];
            for (int i = 0; i < UPS_RANS_TOKENS; i++) both[i] = counts[into][i] + counts[c][i];
            uint64_t cost_both = cost(both), table = (uint64_t)(8 * (1 + tokens)) << 16;
            if (cost_both <= cost_into + cost_here + table) {
                memcpy(counts[into], both, sizeof both);
                memset(counts[c], 0, sizeof both);
                cost_into = cost_both;
                continue;
            }
        }
        into = c;
        cost_into = cost_here;
    }
}

/* One context. Rounded shares of the total, none of those that occur below 1; the largest make up for the rounding. */
static void normalise(uint32_t counts[UPS_RANS_TOKENS]) {
    uint64_t sum = 0;
    for (int i = 0; i < UPS_RANS_USED_TOKENS; i++) sum += counts[i];
    if (sum == 0) return;
    int32_t missing = UPS_RANS_TOTAL;
    for (int i = 0; i < UPS_RANS_USED_TOKENS; i++) {
        if (!counts[i]) continue;
        counts[i] = (uint32_t)((counts[i] * (uint64_t)UPS_RANS_TOTAL + sum / 2) / sum);
        if (counts[i] == 0) counts[i] = 1;
        missing -= (int32_t)counts[i];
    }
    while (missing != 0) {
        int largest = 0;
        for (int i = 1; i < UPS_RANS_USED_TOKENS; i++)
            if (counts[i] > counts[largest]) largest = i;
        int32_t least = -(int32_t)(counts[largest] / 2), change = missing < least ? least : missing;
        counts[largest] = (uint32_t)((int32_t)counts[largest] + change);
        missing -= change;
    }
}

void ups_rans_normalise(ups_rans_histogram counts) {
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) normalise(counts[c]);
}

size_t ups_rans_write_frequencies(ups_rans_histogram frequencies, uint8_t *out) {
    uint32_t present = 0;
    uint8_t *at = out + sizeof present;
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) {
        int tokens = tokens_in(frequencies[c]);
        if (tokens == 0) continue;
        present |= 1u << c;
        *at++ = (uint8_t)tokens;
        for (int i = 0; i < tokens; i++) {
            uint32_t f = frequencies[c][i];
            if (f >= 128) *at++ = (uint8_t)(128 | f >> 8);
            *at++ = (uint8_t)f;
        }
    }
    memcpy(out, &present, sizeof present);
    return (size_t)(at - out);
}

size_t ups_rans_read_frequencies(const uint8_t *bytes, size_t length, ups_rans_histogram frequencies) {
    uint32_t present;
    const uint8_t *at = bytes, *end = bytes + length;
    if (length < sizeof present) return 0;
    memcpy(&present, at, sizeof present);
    at += sizeof present;
    memset(frequencies, 0, sizeof(ups_rans_histogram));
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) {
        if (!(present >> c & 1)) continue;
        if (at == end || *at > UPS_RANS_USED_TOKENS) return 0;
        uint32_t sum = 0;
        for (int i = 0, tokens = *at++; i < tokens; i++) {
            if (end - at < 2 && (at == end || *at >= 128)) return 0;
            uint32_t f = *at++;
            if (f >= 128) f = (f & 127) << 8 | *at++;
            frequencies[c][i] = f;
            sum += f;
        }
        if (sum != UPS_RANS_TOTAL) return 0;
    }
    return (size_t)(at - bytes);
}

void ups_rans_encoder_tables(ups_rans_histogram frequencies, uint32_t tables[UPS_RANS_ENCODER_ENTRIES]) {
    for (int c = 0; c < UPS_RANS_CONTEXTS; c++) {
        uint32_t start = 0;
        if (c > 0 && tokens_in(frequencies[c]) == 0) {
            memcpy(tables + c * UPS_RANS_TOKENS, tables + (c - 1) * UPS_RANS_TOKENS, UPS_RANS_TOKENS * sizeof *tables);
            continue;
        }
        for (int i = 0; i < UPS_RANS_TOKENS; i++) {
            tables[c * UPS_RANS_TOKENS + i] = frequencies[c][i] | start << 16;
            start += frequencies[c][i];
        }
    }
}

/* One context: frequencies to entries. */
static void fill_slots(const uint32_t frequencies[UPS_RANS_TOKENS], uint32_t slots[UPS_RANS_TOTAL]) {
    uint32_t *slot = slots;
    for (uint32_t i = 0; i < UPS_RANS_USED_TOKENS; i++) {
        bool plain = i < UPS_RANS_PLAIN_TOKENS;
        uint32_t extra = plain ? 0 : i / 2 - (UPS_RANS_PLAIN_TOKENS / 2 - 3), bits = plain ? i : 2 | (i & 1);
        uint32_t f = frequencies[i], entry = (extra << UPS_RANS_DECODED_EXTRA | bits) << 21 | f;
        for (uint32_t k = 0; k < f; k++) slot[k] = entry | k << 11;
        slot += f;
    }
    /* what damaged words may lead to, all the same each time */
    memset(slot, 0, (size_t)(slots + UPS_RANS_TOTAL - slot) * sizeof *slot);
}

void ups_rans_decoder_tables(ups_rans_histogram frequencies, int first, uint32_t tables[UPS_RANS_DECODER_ENTRIES]) {
    int from = first; /* whose table this context has */
    while (from > 0 && tokens_in(frequencies[from]) == 0) from--;
    for (int c = first; c < UPS_RANS_CONTEXTS; c++) {
        uint32_t *slots = tables + (size_t)c * UPS_RANS_TOTAL;
        if (c > first && tokens_in(frequencies[c]) == 0)
            memcpy(slots, tables + (size_t)(c - 1) * UPS_RANS_TOTAL, UPS_RANS_TOTAL * sizeof *slots);
        else
            fill_slots(frequencies[c > first ? c : from], slots);
    }
}
