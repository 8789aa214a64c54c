#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of the caller's: ZSTD_initStaticDCtx */
#include "cache/codec.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define HEADER_BYTES 8
#define BLOCK_BYTES 16 /* what the table says of a block */

/* The high plane of a block is to hold this much: large enough that a frame's table of symbols costs nothing, small
 * enough that all planes of a block (twice as much) stay in a second-level cache. */
#define HIGH_PLANE_BYTES (128 * 1024)
#define SERIES_QUANTUM 64

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are little-endian; a big-endian port must swap here");

enum { LOW, MIDDLE, HIGH, PLANES };

typedef struct block_entry {
    uint8_t order, reserved[3];
    uint32_t length[PLANES];
} block_entry;

_Static_assert(sizeof(block_entry) == BLOCK_BYTES, "entries are read and written as they lie in memory");

struct ups_latent_encoder {
    int64_t times, series;
    ZSTD_CCtx *zstd;
    uint8_t *memory;
    ups_planes planes;
};

/* Series in each block but the last. */
static int64_t block_series(int64_t times, int64_t series) {
    int64_t fitting = HIGH_PLANE_BYTES / times / SERIES_QUANTUM * SERIES_QUANTUM;
    if (fitting < SERIES_QUANTUM) fitting = SERIES_QUANTUM;
    return fitting < series ? fitting : series;
}

static int64_t block_count(int64_t series, int64_t per_block) {
    return (series + per_block - 1) / per_block;
}

static void plane_bytes(int64_t times, int64_t series, size_t bytes[PLANES]) {
    bytes[LOW] = bytes[MIDDLE] = (size_t)(series * ups_planes_pairs(times));
    bytes[HIGH] = (size_t)(series * times);
}

/* Room for the planes of a block, each aligned and with its slack. */
static size_t room(size_t bytes) {
    return (bytes + UPS_PLANES_SLACK + 63) / 64 * 64;
}

static size_t planes_bytes(int64_t times, int64_t series) {
    size_t bytes[PLANES];
    plane_bytes(times, block_series(times, series), bytes);
    return 2 * room(bytes[LOW]) + room(bytes[HIGH]);
}

static ups_planes planes_in(uint8_t *memory, int64_t times, int64_t series) {
    size_t bytes[PLANES];
    plane_bytes(times, block_series(times, series), bytes);
    return (ups_planes){memory, memory + room(bytes[LOW]), memory + 2 * room(bytes[LOW])};
}

size_t ups_latent_bound(int64_t times, int64_t series) {
    int64_t per_block = block_series(times, series);
    size_t bytes[PLANES], total = HEADER_BYTES;
    plane_bytes(times, per_block, bytes);
    for (int p = 0; p < PLANES; p++) total += (size_t)block_count(series, per_block) * ZSTD_compressBound(bytes[p]);
    return total + (size_t)block_count(series, per_block) * BLOCK_BYTES;
}

void ups_latent_encoder_destroy(ups_latent_encoder *encoder) {
    if (!encoder) return;
    ZSTD_freeCCtx(encoder->zstd);
    free(encoder->memory);
    free(encoder);
}

ups_latent_encoder *ups_latent_encoder_create(int64_t times, int64_t series, int level) {
    ups_latent_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) return NULL;
    encoder->times = times;
    encoder->series = series;
    encoder->zstd = ZSTD_createCCtx();
    encoder->memory = malloc(planes_bytes(times, series));
    if (!encoder->zstd || !encoder->memory) {
        ups_latent_encoder_destroy(encoder);
        return NULL;
    }
    encoder->planes = planes_in(encoder->memory, times, series);
    ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_compressionLevel, level ? level : UPS_LATENT_DEFAULT_LEVEL);
    if (level <= UPS_LATENT_DEFAULT_LEVEL) {
        /* Planes of residuals have long runs and no words: looking for long matches only leaves noise to Huffman, which
         * is smaller and faster to decode than level 1 as it is. */
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_strategy, ZSTD_dfast);
        ZSTD_CCtx_setParameter(encoder->zstd, ZSTD_c_minMatch, 7);
    }
    return encoder;
}

static bool all_zero(const uint8_t *bytes, size_t count) {
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

ups_status ups_latent_encode(ups_latent_encoder *encoder, const ups_f16 *latents, uint8_t *out, size_t *length,
                             ups_error *error) {
    int64_t times = encoder->times, series = encoder->series, per_block = block_series(times, series);
    int64_t blocks = block_count(series, per_block);
    uint32_t header[2] = {UPS_LATENT_VERSION, (uint32_t)per_block};
    memcpy(out, header, HEADER_BYTES);
    uint8_t *table = out + HEADER_BYTES, *at = table + blocks * BLOCK_BYTES;
    const uint8_t *end = out + ups_latent_bound(times, series);
    for (int64_t b = 0; b < blocks; b++, table += BLOCK_BYTES) {
        const ups_f16 *first = latents + b * per_block;
        int64_t here = series - b * per_block < per_block ? series - b * per_block : per_block;
        block_entry entry = {.order = (uint8_t)ups_planes_choose_order(first, series, times, here)};
        ups_planes_split(first, series, times, here, entry.order, encoder->planes);
        const uint8_t *planes[PLANES] = {encoder->planes.low, encoder->planes.middle, encoder->planes.high};
        size_t bytes[PLANES];
        plane_bytes(times, here, bytes);
        for (int p = 0; p < PLANES; p++) {
            if (all_zero(planes[p], bytes[p])) continue;
            size_t packed = ZSTD_compress2(encoder->zstd, at, (size_t)(end - at), planes[p], bytes[p]);
            if (ZSTD_isError(packed))
                return ups_fail(error, UPS_ERR_MEMORY, "zstd cannot compress latents: %s", ZSTD_getErrorName(packed));
            entry.length[p] = (uint32_t)packed;
            at += packed;
        }
        memcpy(table, &entry, BLOCK_BYTES);
    }
    *length = (size_t)(at - out);
    return UPS_OK;
}

static size_t context_bytes(void) {
    return (ZSTD_estimateDCtxSize() + 63) / 64 * 64;
}

size_t ups_latent_scratch_bytes(int64_t times, int64_t series) {
    return context_bytes() + planes_bytes(times, series);
}

static ups_status check_header(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t *per_block,
                               ups_error *error) {
    uint32_t header[2];
    if (length < HEADER_BYTES) return ups_fail(error, UPS_ERR_FORMAT, "%zu bytes are too few for ups.latent", length);
    memcpy(header, encoded, HEADER_BYTES);
    if (header[0] != UPS_LATENT_VERSION) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "a chunk has version %u of ups.latent; this reader knows version %d: build the cache again",
                        header[0], UPS_LATENT_VERSION);
    }
    *per_block = header[1];
    if (*per_block < 1 || *per_block > block_series(times, series)) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "a chunk's ups.latent header is wrong: blocks of %lld series, expected 1 to %lld",
                        (long long)*per_block, (long long)block_series(times, series));
    }
    if ((length - HEADER_BYTES) / BLOCK_BYTES < (uint64_t)block_count(series, *per_block))
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk of ups.latent ends within its table");
    return UPS_OK;
}

static ups_status unpack(ZSTD_DCtx *context, const uint8_t *packed, size_t length, uint8_t *plane, size_t bytes,
                         ups_error *error) {
    if (length == 0) {
        memset(plane, 0, bytes);
        return UPS_OK;
    }
    size_t unpacked = ZSTD_decompressDCtx(context, plane, bytes, packed, length);
    if (ZSTD_isError(unpacked))
        return ups_fail(error, UPS_ERR_FORMAT, "a zstd frame of ups.latent is damaged: %s",
                        ZSTD_getErrorName(unpacked));
    if (unpacked != bytes)
        return ups_fail(error, UPS_ERR_FORMAT, "a plane of ups.latent unpacks to %zu bytes where %zu were expected",
                        unpacked, bytes);
    return UPS_OK;
}

ups_status ups_latent_decode(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                             int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                             ups_latent_orders *orders, ups_error *error) {
    int64_t per_block = 0;
    UPS_TRY(check_header(encoded, length, times, series, &per_block, error));
    int64_t blocks = block_count(series, per_block);
    ZSTD_DCtx *context = ZSTD_initStaticDCtx(scratch, context_bytes());
    ups_planes planes = planes_in((uint8_t *)scratch + context_bytes(), times, series);
    uint8_t *const plane[PLANES] = {planes.low, planes.middle, planes.high};
    const uint8_t *table = encoded + HEADER_BYTES, *at = table + blocks * BLOCK_BYTES, *end = encoded + length;
    bool past_caches = (size_t)(count * series) * sizeof(float) > HIGH_PLANE_BYTES * 8, fine = true;
    if (orders) *orders = (ups_latent_orders){0};
    for (int64_t b = 0; b < blocks; b++, table += BLOCK_BYTES) {
        int64_t first = b * per_block, here = series - first < per_block ? series - first : per_block;
        block_entry entry;
        memcpy(&entry, table, BLOCK_BYTES);
        if (entry.order > UPS_PLANES_MAX_ORDER || entry.reserved[0] || entry.reserved[1] || entry.reserved[2])
            return ups_fail(error, UPS_ERR_FORMAT, "block %lld of ups.latent: order %d is none that this reader knows",
                            (long long)b, entry.order);
        if (orders) orders->blocks[entry.order]++;
        size_t bytes[PLANES];
        plane_bytes(times, here, bytes);
        for (int p = 0; p < PLANES; p++) {
            if (entry.length[p] > (size_t)(end - at))
                return ups_fail(error, UPS_ERR_FORMAT, "block %lld of ups.latent goes past the chunk's end",
                                (long long)b);
            UPS_TRY(unpack(context, at, entry.length[p], plane[p], bytes[p], error));
            at += entry.length[p];
        }
        int64_t stop = start + count;
        fine &= dtype == UPS_F32 ? ups_planes_join_f32(planes, times, here, entry.order, start, stop, past_caches,
                                                       (float *)out + first, series)
                                 : ups_planes_join_f16(planes, times, here, entry.order, start, stop,
                                                       (ups_f16 *)out + first, series);
    }
    if (at != end) return ups_fail(error, UPS_ERR_FORMAT, "a chunk of ups.latent goes on after its last block");
    if (finite) *finite = fine;
    return UPS_OK;
}
