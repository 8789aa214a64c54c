#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of the caller's: ZSTD_initStaticDCtx */
#include "cache/codec/chunk.h"

#include "base/hash.h"
#include "pipeline/convert.h"
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define CRC_BYTES 4

struct ups_chunk_encoder {
    ups_chunk_codec codec;
    ups_chunk_shape shape;
    ups_latent_encoder *latent; /* or, when portable, */
    ZSTD_CCtx *zstd;
    uint8_t *encoded;
    size_t capacity;
};

static int64_t series_of(ups_chunk_shape shape) {
    return shape.tokens * shape.dim;
}

size_t ups_chunk_raw_bytes(ups_chunk_shape shape) {
    return (size_t)shape.times * (size_t)series_of(shape) * sizeof(ups_f16);
}

bool ups_chunk_may_hold(ups_chunk_codec codec, ups_chunk_shape shape, uint64_t bytes) {
    enum { MAX_BY_BYTE = 1 << 15 }; /* zstd makes 4 bytes, and headers, of a run of 128 KiB */
    double raw = 2.0 * (double)shape.times * (double)shape.tokens * (double)shape.dim;
    if (codec.portable) return raw <= (double)bytes * MAX_BY_BYTE;
    return bytes >= ups_latent_least_bytes(shape.times, series_of(shape)) + CRC_BYTES;
}

void ups_chunk_encoder_destroy(ups_chunk_encoder *encoder) {
    if (!encoder) return;
    ups_latent_encoder_destroy(encoder->latent);
    ZSTD_freeCCtx(encoder->zstd);
    free(encoder->encoded);
    free(encoder);
}

ups_chunk_encoder *ups_chunk_encoder_create(ups_chunk_codec codec, ups_chunk_shape shape) {
    ups_chunk_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) return NULL;
    encoder->codec = codec;
    encoder->shape = shape;
    encoder->capacity = (codec.portable ? ZSTD_compressBound(ups_chunk_raw_bytes(shape))
                                        : ups_latent_bound(shape.times, series_of(shape))) +
                        CRC_BYTES;
    encoder->encoded = malloc(encoder->capacity);
    if (codec.portable)
        encoder->zstd = ZSTD_createCCtx();
    else
        encoder->latent = ups_latent_encoder_create(shape.times, series_of(shape));
    if (!encoder->encoded || (!encoder->zstd && !encoder->latent)) {
        ups_chunk_encoder_destroy(encoder);
        return NULL;
    }
    if (codec.portable) {
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_compressionLevel,
                               codec.level ? codec.level : UPS_PORTABLE_DEFAULT_LEVEL);
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_checksumFlag, 1);
    }
    return encoder;
}

static ups_status encode_portable(ups_chunk_encoder *encoder, const ups_f16 *latents, size_t *length,
                                  ups_error *error) {
    *length = ZSTD_compress2(encoder->zstd, encoder->encoded, encoder->capacity - CRC_BYTES, latents,
                             ups_chunk_raw_bytes(encoder->shape));
    if (!ZSTD_isError(*length)) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "zstd cannot compress a chunk: %s", ZSTD_getErrorName(*length));
}

ups_status ups_chunk_encode(ups_chunk_encoder *encoder, const ups_f16 *latents, const uint8_t **bytes, size_t *length,
                            ups_error *error) {
    size_t packed;
    if (encoder->latent)
        packed = ups_latent_encode(encoder->latent, latents, encoder->encoded);
    else
        UPS_TRY(encode_portable(encoder, latents, &packed, error));
    uint32_t crc = ups_crc32c(0, encoder->encoded, packed);
    memcpy(encoder->encoded + packed, &crc, CRC_BYTES);
    *bytes = encoder->encoded;
    *length = packed + CRC_BYTES;
    return UPS_OK;
}

static size_t context_bytes(void) {
    return (ZSTD_estimateDCtxSize() + 63) / 64 * 64;
}

size_t ups_chunk_scratch_bytes(ups_chunk_codec codec, ups_chunk_shape shape) {
    return codec.portable ? context_bytes() + ups_chunk_raw_bytes(shape) : ups_latent_scratch_bytes(shape.times);
}

/* One zstd frame into `plain` of exactly the expected size. */
static ups_status unpack(const uint8_t *bytes, size_t length, void *scratch, void *plain, size_t expected,
                         ups_error *error) {
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

static ups_status decode_portable(ups_chunk_shape shape, const uint8_t *bytes, size_t length, int64_t start,
                                  int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                                  ups_error *error) {
    size_t expected = ups_chunk_raw_bytes(shape), frame = (size_t)series_of(shape) * sizeof(ups_f16);
    bool whole = dtype == UPS_F16 && start == 0 && count == shape.times;
    uint8_t *plain = whole ? out : (uint8_t *)scratch + context_bytes();
    UPS_TRY(unpack(bytes, length, scratch, plain, expected, error));
    *finite = ups_convert(plain + (size_t)start * frame, UPS_F16, out, dtype, (size_t)count * (size_t)series_of(shape));
    return UPS_OK;
}

ups_status ups_chunk_decode(ups_chunk_codec codec, ups_chunk_shape shape, const uint8_t *bytes, size_t length,
                            int64_t start, int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                            ups_latent_orders *orders, ups_error *error) {
    if (length <= CRC_BYTES)
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk of %zu bytes is too short to be one", length);
    uint32_t stored;
    memcpy(&stored, bytes + length - CRC_BYTES, CRC_BYTES);
    length -= CRC_BYTES;
    if (ups_crc32c(0, bytes, length) != stored) {
        return ups_fail(error, UPS_ERR_CHECKSUM,
                        "the chunk's CRC32C does not match: its bytes changed since they were written");
    }
    if (codec.portable) return decode_portable(shape, bytes, length, start, count, scratch, dtype, out, finite, error);
    return ups_latent_decode(bytes, length, shape.times, series_of(shape), start, count, scratch, dtype, out, finite,
                             orders, error);
}
