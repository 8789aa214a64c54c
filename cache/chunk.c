#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of the caller's: ZSTD_initStaticDCtx */
#include "cache/chunk.h"

#include "base/hash.h"
#include "cache/codec.h"
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define CRC_BYTES 4

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "chunks are little-endian; a big-endian port must swap here");

struct ups_chunk_encoder {
    ups_chunk_codec codec;
    ups_chunk_shape shape;
    ZSTD_CCtx *zstd;
    uint8_t *planes;
    uint8_t *compressed;
    size_t capacity;
};

static int64_t series_of(ups_chunk_shape shape) {
    return shape.tokens * shape.dim;
}

size_t ups_chunk_raw_bytes(ups_chunk_shape shape) {
    return (size_t)shape.times * (size_t)series_of(shape) * sizeof(ups_f16);
}

/* Bytes between the array→bytes codec and zstd. */
static size_t plain_bytes(ups_chunk_codec codec, ups_chunk_shape shape) {
    return codec.portable ? ups_chunk_raw_bytes(shape) : ups_latent_encoded_bytes(shape.times, series_of(shape));
}

void ups_chunk_encoder_destroy(ups_chunk_encoder *encoder) {
    if (!encoder) return;
    ZSTD_freeCCtx(encoder->zstd);
    free(encoder->planes);
    free(encoder->compressed);
    free(encoder);
}

ups_chunk_encoder *ups_chunk_encoder_create(ups_chunk_codec codec, ups_chunk_shape shape) {
    ups_chunk_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) return NULL;
    encoder->codec = codec;
    encoder->shape = shape;
    encoder->capacity = ZSTD_compressBound(plain_bytes(codec, shape)) + CRC_BYTES;
    encoder->zstd = ZSTD_createCCtx();
    encoder->planes = codec.portable ? NULL : malloc(plain_bytes(codec, shape));
    encoder->compressed = malloc(encoder->capacity);
    if (!encoder->zstd || !encoder->compressed || (!codec.portable && !encoder->planes)) {
        ups_chunk_encoder_destroy(encoder);
        return NULL;
    }
    ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_compressionLevel, codec.level ? codec.level : UPS_CHUNK_DEFAULT_LEVEL);
    ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_checksumFlag, 1);
    if (!codec.portable && codec.level <= UPS_CHUNK_DEFAULT_LEVEL) {
        /* Byte planes of residuals have long runs and no words: looking for long matches only leaves noise to Huffman,
         * which makes chunks 1-3 % smaller and 8-10 % faster to decode than level 1 as it is, for 7 % of the encoder's
         * speed. */
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_strategy, ZSTD_dfast);
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_minMatch, 7);
    }
    return encoder;
}

ups_status ups_chunk_encode(ups_chunk_encoder *encoder, const ups_f16 *latents, const uint8_t **bytes, size_t *length,
                            ups_error *error) {
    const void *plain = latents;
    if (!encoder->codec.portable) {
        int64_t times = encoder->shape.times, series = series_of(encoder->shape);
        int order = ups_latent_choose_order(latents, times, series);
        ups_latent_encode(latents, times, series, order, encoder->planes);
        plain = encoder->planes;
    }
    size_t packed = ZSTD_compress2(encoder->zstd, encoder->compressed, encoder->capacity - CRC_BYTES, plain,
                                   plain_bytes(encoder->codec, encoder->shape));
    if (ZSTD_isError(packed)) {
        return ups_fail(error, UPS_ERR_MEMORY, "zstd cannot compress a chunk: %s", ZSTD_getErrorName(packed));
    }
    uint32_t crc = ups_crc32c(0, encoder->compressed, packed);
    memcpy(encoder->compressed + packed, &crc, CRC_BYTES);
    *bytes = encoder->compressed;
    *length = packed + CRC_BYTES;
    return UPS_OK;
}

static size_t context_bytes(void) {
    return (ZSTD_estimateDCtxSize() + 63) / 64 * 64;
}

size_t ups_chunk_scratch_bytes(ups_chunk_codec codec, ups_chunk_shape shape) {
    return context_bytes() + plain_bytes(codec, shape);
}

/* CRC, then zstd, into `plain` of exactly the expected size. */
static ups_status unpack(const uint8_t *bytes, size_t length, void *scratch, void *plain, size_t expected,
                         ups_error *error) {
    if (length <= CRC_BYTES) {
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk of %zu bytes is too short to be one", length);
    }
    uint32_t stored;
    memcpy(&stored, bytes + length - CRC_BYTES, CRC_BYTES);
    length -= CRC_BYTES;
    if (ups_crc32c(0, bytes, length) != stored) {
        return ups_fail(error, UPS_ERR_CHECKSUM,
                        "the chunk's CRC32C does not match: its bytes changed since they were written");
    }
    unsigned long long content = ZSTD_getFrameContentSize(bytes, length);
    if (content != expected) {
        return ups_fail(error, UPS_ERR_FORMAT, "the chunk's zstd frame does not announce the %zu bytes of its shape",
                        expected);
    }
    ZSTD_DCtx *context = ZSTD_initStaticDCtx(scratch, context_bytes());
    size_t unpacked = ZSTD_decompressDCtx(context, plain, expected, bytes, length);
    if (ZSTD_isError(unpacked)) {
        return ups_fail(error, UPS_ERR_CHECKSUM, "the chunk's zstd frame is damaged: %s", ZSTD_getErrorName(unpacked));
    }
    if (unpacked != expected) {
        return ups_fail(error, UPS_ERR_FORMAT, "the chunk unpacks to %zu bytes where %zu were expected", unpacked,
                        expected);
    }
    return UPS_OK;
}

ups_status ups_chunk_decode(ups_chunk_codec codec, ups_chunk_shape shape, const uint8_t *bytes, size_t length,
                            int64_t start, int64_t count, void *scratch, ups_f16 *out, ups_error *error) {
    uint8_t *plain = (uint8_t *)scratch + context_bytes();
    size_t expected = plain_bytes(codec, shape), frame = (size_t)series_of(shape) * sizeof(ups_f16);
    if (!codec.portable) {
        UPS_TRY(unpack(bytes, length, scratch, plain, expected, error));
        return ups_latent_decode(plain, expected, shape.times, series_of(shape), start, count, out, error);
    }
    if (start == 0 && count == shape.times) return unpack(bytes, length, scratch, out, expected, error);
    UPS_TRY(unpack(bytes, length, scratch, plain, expected, error));
    memcpy(out, plain + (size_t)start * frame, (size_t)count * frame);
    return UPS_OK;
}

int ups_chunk_order(ups_chunk_codec codec, const void *scratch) {
    return codec.portable ? -1 : ((const uint8_t *)scratch + context_bytes())[1];
}
