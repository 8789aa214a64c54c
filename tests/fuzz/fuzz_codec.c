/* A chunk of latents: bytes that were never one, a chunk that is right but for what it holds, latents there and back.
 *
 * The first bytes choose the way, the shape, the frames wanted and the type; the rest is
 *   way 0: the chunk's bytes, to which the CRC32C that fits is added;
 *   way 1: blocks of the codec with sound frequencies, and states and words that nobody encoded;
 *   way 2: latents, which must come back bit for bit; then the chunk is damaged where the input's end says. */
#include "tests/fuzz/fuzz.h"

#include "base/hash.h"
#include "cache/codec/chunk.h"
#include <stdlib.h>
#include <string.h>

typedef struct request {
    ups_chunk_codec codec;
    ups_chunk_shape shape;
    int64_t start, count;
    ups_dtype dtype;
} request;

/* Contexts of zstd are dear to make: a target keeps them from one input to the next. */
static ups_chunk_encoder *encoder_of(const request *wanted) {
    static ups_chunk_encoder *encoder;
    static request of;
    if (encoder && of.codec.portable == wanted->codec.portable && of.shape.times == wanted->shape.times &&
        of.shape.tokens == wanted->shape.tokens && of.shape.dim == wanted->shape.dim)
        return encoder;
    ups_chunk_encoder_destroy(encoder);
    of = *wanted;
    encoder = ups_chunk_encoder_create(wanted->codec, wanted->shape);
    FUZZ_CHECK(encoder != NULL);
    return encoder;
}

/* Decodes into room of just the size that is needed. What was produced, or NULL where the bytes were refused. */
static const void *decode(const request *wanted, const uint8_t *bytes, size_t length, ups_status *status) {
    size_t values = (size_t)(wanted->count * wanted->shape.tokens * wanted->shape.dim);
    void *scratch = fuzz_kept_room(0, ups_chunk_scratch_bytes(wanted->codec, wanted->shape));
    void *out = fuzz_kept_room(1, values * ups_dtype_size(wanted->dtype));
    ups_error error = {0};
    bool finite = false;
    ups_latent_orders orders;
    *status = ups_chunk_decode(wanted->codec, wanted->shape, bytes, length, wanted->start, wanted->count, scratch,
                               wanted->dtype, out, &finite, &orders, &error);
    return fuzz_accepted(*status, &error) ? out : NULL;
}

static void decode_with_crc(const request *wanted, const uint8_t *bytes, size_t length) {
    uint8_t *whole = malloc(length + 4);
    FUZZ_CHECK(whole != NULL);
    uint32_t crc = ups_crc32c(0, bytes, length);
    if (length) memcpy(whole, bytes, length);
    memcpy(whole + length, &crc, 4);
    ups_status status;
    decode(wanted, whole, length + 4, &status);
    FUZZ_CHECK(status != UPS_ERR_CHECKSUM || wanted->codec.portable); /* zstd's own checksum is one too */
    free(whole);
}

/* docs/cache-format.md: version, series a block; the length of each block; its order, lanes, frequencies, states and
 * words. Frequencies are sound but where the input says otherwise, so that the words are reached. */
static void decode_blocks(const request *wanted, fuzz_input *input) {
    enum { MOST_BLOCKS = 64, MOST_WORD_BYTES = 600 };
    static ups_rans_histogram counts;
    int64_t series = wanted->shape.tokens * wanted->shape.dim;
    int64_t per_block = fuzz_from_1_to(input, series < 256 ? series : 256);
    int64_t blocks = (series + per_block - 1) / per_block;
    if (blocks > MOST_BLOCKS) return;
    size_t most = 2 + UPS_RANS_MAX_TABLE_BYTES + 4 * UPS_RANS_LANES + MOST_WORD_BYTES;
    uint8_t *chunk = calloc(1, 8 + (size_t)blocks * (4 + most)), *at = chunk + 8 + blocks * 4;
    FUZZ_CHECK(chunk);
    uint32_t header[2] = {UPS_LATENT_VERSION, (uint32_t)per_block};
    memcpy(chunk, header, sizeof header);
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t *begin = at;
        uint8_t how = fuzz_byte(input);
        int lanes = how & 1 ? UPS_RANS_LANES : UPS_RANS_FEW_LANES;
        *at++ = how >> 1 & 3;
        *at++ = (uint8_t)lanes;
        memset(counts, 0, sizeof counts);
        for (int i = fuzz_byte(input) % 100; i >= 0; i--)
            counts[fuzz_byte(input) % UPS_RANS_CONTEXTS][fuzz_byte(input) % UPS_RANS_USED_TOKENS] = fuzz_byte(input);
        ups_rans_normalise(counts);
        size_t table_bytes = ups_rans_write_frequencies(counts, at);
        if (how & 8) at[fuzz_byte(input) % table_bytes] ^= fuzz_byte(input);
        at += table_bytes;
        for (int i = 0; i < 4 * lanes; i++) *at++ = fuzz_byte(input);
        for (int i = (fuzz_byte(input) | fuzz_byte(input) << 8) % MOST_WORD_BYTES; i > 0; i--) *at++ = fuzz_byte(input);
        uint32_t length = (uint32_t)(at - begin);
        memcpy(chunk + 8 + b * 4, &length, sizeof length);
    }
    decode_with_crc(wanted, chunk, (size_t)(at - chunk));
    free(chunk);
}

static void there_and_back(const request *wanted, fuzz_input *input) {
    size_t values = ups_chunk_raw_bytes(wanted->shape) / sizeof(ups_f16);
    ups_f16 *latents = calloc(values, sizeof *latents);
    FUZZ_CHECK(latents != NULL);
    for (size_t i = 0; i < values; i++) latents[i] = (ups_f16)(fuzz_byte(input) | fuzz_byte(input) << 8);
    const uint8_t *bytes;
    size_t length;
    ups_error error = {0};
    FUZZ_CHECK(ups_chunk_encode(encoder_of(wanted), latents, &bytes, &length, &error) == UPS_OK);
    uint8_t *damaged = malloc(length);
    FUZZ_CHECK(damaged != NULL);
    memcpy(damaged, bytes, length);
    ups_status status;
    request halves = *wanted;
    halves.dtype = UPS_F16;
    const ups_f16 *back = decode(&halves, damaged, length, &status);
    size_t row = (size_t)(wanted->shape.tokens * wanted->shape.dim);
    FUZZ_CHECK(back &&
               memcmp(back, latents + (size_t)wanted->start * row, (size_t)wanted->count * row * sizeof *back) == 0);
    for (int i = 0; i < 4 && input->length > 1; i++) {
        size_t place = (size_t)fuzz_byte(input) | (size_t)fuzz_byte(input) << 8;
        damaged[place % (length - 4)] ^= fuzz_byte(input);
    }
    decode_with_crc(wanted, damaged, length - 4);
    free(damaged);
    free(latents);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    uint8_t way = fuzz_byte(&input);
    request wanted = {.codec = {.portable = way & 4}, .dtype = way & 8 ? UPS_F32 : UPS_F16};
    wanted.shape.times = fuzz_from_1_to(&input, way & 16 ? 40 : 12);
    wanted.shape.tokens = fuzz_from_1_to(&input, 6);
    wanted.shape.dim = fuzz_from_1_to(&input, way & 32 ? 40 : 10);
    wanted.start = fuzz_byte(&input) % wanted.shape.times;
    wanted.count = 1 + fuzz_byte(&input) % (wanted.shape.times - wanted.start);
    if (way % 4 == 1 && !wanted.codec.portable)
        decode_blocks(&wanted, &input);
    else if (way % 4 == 2)
        there_and_back(&wanted, &input);
    else
        decode_with_crc(&wanted, input.bytes, input.length);
    return 0;
}
