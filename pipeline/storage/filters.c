#include "pipeline/storage/filters.h"

#include "base/hash.h"
#include "pipeline/storage/compressors.h"
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* ---- byte shuffle ---------------------------------------------------------------------------------------------------
 */

#if defined(__SSE2__)
/* 16 elements of 4 bytes from four planes. */
static size_t unshuffle4_wide(const uint8_t *in, uint8_t *out, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(in + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(in + count + i));
        __m128i c = _mm_loadu_si128((const __m128i *)(in + 2 * count + i));
        __m128i d = _mm_loadu_si128((const __m128i *)(in + 3 * count + i));
        __m128i ab_low = _mm_unpacklo_epi8(a, b), ab_high = _mm_unpackhi_epi8(a, b);
        __m128i cd_low = _mm_unpacklo_epi8(c, d), cd_high = _mm_unpackhi_epi8(c, d);
        __m128i *to = (__m128i *)(out + 4 * i);
        _mm_storeu_si128(to, _mm_unpacklo_epi16(ab_low, cd_low));
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab_low, cd_low));
        _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab_high, cd_high));
        _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab_high, cd_high));
    }
    return i;
}

/* 16 elements of 8 bytes from eight planes: three rounds of interleaving bytes, pairs, quadruples. */
static size_t unshuffle8_wide(const uint8_t *in, uint8_t *out, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i plane[8], pair[8], quad[8];
        for (int p = 0; p < 8; p++) plane[p] = _mm_loadu_si128((const __m128i *)(in + (size_t)p * count + i));
        for (int p = 0; p < 4; p++) {
            pair[p] = _mm_unpacklo_epi8(plane[2 * p], plane[2 * p + 1]);     /* elements 0…7, bytes 2p and 2p + 1 */
            pair[4 + p] = _mm_unpackhi_epi8(plane[2 * p], plane[2 * p + 1]); /* elements 8…15 */
        }
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < 2; p++) {
                __m128i first = pair[4 * half + 2 * p], second = pair[4 * half + 2 * p + 1];
                quad[4 * half + p] = _mm_unpacklo_epi16(first, second); /* elements 0…3 of the half, bytes 4p… */
                quad[4 * half + 2 + p] = _mm_unpackhi_epi16(first, second); /* elements 4…7 */
            }
        }
        __m128i *to = (__m128i *)(out + 8 * i);
        for (int q = 0; q < 4; q++) {
            _mm_storeu_si128(to + 2 * q, _mm_unpacklo_epi32(quad[2 * q], quad[2 * q + 1]));
            _mm_storeu_si128(to + 2 * q + 1, _mm_unpackhi_epi32(quad[2 * q], quad[2 * q + 1]));
        }
    }
    return i;
}
#endif

void ups_unshuffle(const uint8_t *in, uint8_t *out, size_t length, size_t element_bytes) {
    if (element_bytes < 2) {
        memcpy(out, in, length);
        return;
    }
    size_t count = length / element_bytes;
    size_t done = 0;
#if defined(__SSE2__)
    if (element_bytes == 4) done = unshuffle4_wide(in, out, count);
    if (element_bytes == 8) done = unshuffle8_wide(in, out, count);
#endif
    for (size_t i = done; i < count; i++) {
        for (size_t byte = 0; byte < element_bytes; byte++) out[i * element_bytes + byte] = in[byte * count + i];
    }
    size_t whole = count * element_bytes;
    if (length > whole) memcpy(out + whole, in + whole, length - whole);
}

/* ---- Fletcher-32 and byte order -------------------------------------------------------------------------------------
 */

uint32_t ups_fletcher32(const uint8_t *bytes, size_t length) {
    enum { BLOCK_WORDS = 360 }; /* as many words as two 32-bit sums take without overflow */
    uint32_t low = 0, high = 0;
    size_t words = length / 2;
    while (words) {
        size_t block = words < BLOCK_WORDS ? words : BLOCK_WORDS;
        words -= block;
        while (block--) {
            low += (uint32_t)bytes[0] << 8 | bytes[1];
            high += low;
            bytes += 2;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    if (length % 2) {
        low += (uint32_t)bytes[0] << 8;
        high += low;
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    return high << 16 | low;
}

/* The checksum is stored little-endian behind the data. HDF5 before 1.6.3 swapped the bytes of each half; readers
 * accept both. */
static ups_status check_fletcher32(const uint8_t *stored, uint64_t *length, ups_error *error) {
    if (*length < 4) return ups_fail(error, UPS_ERR_FORMAT, "it is too short to hold its Fletcher-32 checksum");
    *length -= 4;
    const uint8_t *tail = stored + *length;
    uint32_t expected = (uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
    uint32_t found = ups_fletcher32(stored, *length);
    uint32_t old_style = (found & 0x00ff00ffu) << 8 | (found & 0xff00ff00u) >> 8;
    if (expected != found && expected != old_style)
        return ups_fail(error, UPS_ERR_CHECKSUM,
                        "its Fletcher-32 checksum does not match: bytes changed since written");
    return UPS_OK;
}

static ups_status check_crc32c(const uint8_t *stored, uint64_t *length, ups_error *error) {
    enum { CRC_BYTES = 4 };
    if (*length < CRC_BYTES) return ups_fail(error, UPS_ERR_FORMAT, "it is too short to hold its CRC32C");
    *length -= CRC_BYTES;
    const uint8_t *tail = stored + *length;
    uint32_t expected = (uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
    if (expected == ups_crc32c(0, stored, *length)) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM, "its CRC32C does not match: bytes changed since written");
}

void ups_swap_bytes(void *elements, size_t count, size_t element_bytes) {
    if (element_bytes == 4) {
        uint32_t *words = elements;
        for (size_t i = 0; i < count; i++) words[i] = __builtin_bswap32(words[i]);
    } else {
        uint64_t *words = elements;
        for (size_t i = 0; i < count; i++) words[i] = __builtin_bswap64(words[i]);
    }
}

/* ---- the pipeline ---------------------------------------------------------------------------------------------------
 */

static size_t stage_bytes(uint64_t chunk_bytes) {
    return ((size_t)chunk_bytes + UPS_FILTER_SLACK + 63) / 64 * 64;
}

bool ups_filters_any(const ups_filters *filters) {
    return filters->shuffle_position >= 0 || filters->compressor_position >= 0 || filters->fletcher32_position >= 0 ||
           filters->crc32c_position >= 0;
}

size_t ups_filters_scratch(uint64_t chunk_bytes) {
    return 2 * stage_bytes(chunk_bytes); /* decompressed, then unshuffled */
}

static bool applied(int position, uint32_t mask) {
    return position >= 0 && !(mask >> position & 1);
}

ups_status ups_filters_undo(const ups_filters *filters, uint32_t mask, const uint8_t *stored, uint64_t length,
                            uint64_t chunk_bytes, uint8_t *scratch, const uint8_t **decoded, ups_error *error) {
    const uint8_t *bytes = stored;
    if (applied(filters->fletcher32_position, mask)) UPS_TRY(check_fletcher32(stored, &length, error));
    if (applied(filters->crc32c_position, mask)) UPS_TRY(check_crc32c(stored, &length, error));
    if (applied(filters->compressor_position, mask)) {
        size_t produced = 0;
        UPS_TRY(ups_decompress(filters->compressor, stored, length, scratch, chunk_bytes, &produced, error));
        bytes = scratch;
        length = produced;
    }
    if (length != chunk_bytes)
        return ups_fail(error, UPS_ERR_FORMAT, "it holds %llu bytes where a chunk has %llu", (unsigned long long)length,
                        (unsigned long long)chunk_bytes);
    if (applied(filters->shuffle_position, mask)) {
        uint8_t *out = scratch + stage_bytes(chunk_bytes);
        ups_unshuffle(bytes, out, chunk_bytes, (size_t)filters->shuffle_bytes);
        bytes = out;
    }
    *decoded = bytes;
    return UPS_OK;
}
