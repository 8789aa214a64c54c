#include "pipeline/storage/compressors.h"

#include <libdeflate.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#ifdef UPS_HAVE_BLOSC
#include <blosc.h>
#endif
#ifdef UPS_HAVE_LZ4
#include <lz4.h>
#endif

const char *ups_compressor_name(ups_compressor compressor) {
    static const char *const names[] = {
        [UPS_COMPRESSOR_NONE] = "none",      [UPS_COMPRESSOR_GZIP] = "gzip", [UPS_COMPRESSOR_LZF] = "lzf",
        [UPS_COMPRESSOR_GZIP_FILE] = "gzip", [UPS_COMPRESSOR_ZSTD] = "zstd", [UPS_COMPRESSOR_LZ4] = "lz4",
        [UPS_COMPRESSOR_BLOSC] = "blosc",
    };
    return names[compressor];
}

bool ups_compressor_is_there(ups_compressor compressor) {
#ifndef UPS_HAVE_BLOSC
    if (compressor == UPS_COMPRESSOR_BLOSC) return false;
#endif
#ifndef UPS_HAVE_LZ4
    if (compressor == UPS_COMPRESSOR_LZ4) return false;
#endif
    return true;
}

/* ---- LZF ------------------------------------------------------------------------------------------------------------
 *
 * A stream of tokens. A byte below 32 is a run: that many bytes plus one follow as they are. Any other byte starts a
 * match: its upper three bits are the length − 2 (7: a further byte is added), its lower five bits and the next byte
 * the distance − 1, big end first. Lengths: runs 1…32, matches 3…264; distances 1…8192. (liblzf by Marc Lehmann,
 * lzf_d.c; no format document exists.) */

enum { LZF_RUN_LIMIT = 32, LZF_WIDE = 32 };

static inline void copy8(uint8_t *to, const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    memcpy(to, &word, sizeof word);
}

static inline void copy16(uint8_t *to, const uint8_t *from) {
    uint64_t words[2];
    memcpy(words, from, sizeof words);
    memcpy(to, words, sizeof words);
}

/* Copies `count` bytes from `distance` before `to`; regions may overlap, which repeats the pattern. Spoils up to 15
 * bytes beyond. */
static inline void copy_match(uint8_t *to, size_t distance, size_t count) {
    /* the smallest multiple of the distance that is at least 8: from there on, eight bytes at a time are the same
     * pattern */
    static const uint8_t reach[8] = {0, 8, 8, 9, 8, 10, 12, 14};
    const uint8_t *from = to - distance;
    uint8_t *end = to + count;
    if (distance >= 16) {
        do {
            copy16(to, from);
            to += 16;
            from += 16;
        } while (to < end);
        return;
    }
    if (distance < 8) {
        for (int i = 0; i < 8; i++) to[i] = from[i];
        to += 8;
        from = to - reach[distance];
    }
    while (to < end) {
        copy8(to, from);
        to += 8;
        from += 8;
    }
}

ups_status ups_lzf_decode(const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity, size_t *length,
                          ups_error *error) {
    const uint8_t *in_end = in + in_length;
    uint8_t *to = out, *end = out + capacity;
    *length = 0;
    while (in < in_end) {
        size_t token = *in++;
        if (token < LZF_RUN_LIMIT) {
            size_t count = token + 1;
            if (count > (size_t)(in_end - in)) return ups_fail(error, UPS_ERR_FORMAT, "the LZF stream is cut short");
            if (count > (size_t)(end - to))
                return ups_fail(error, UPS_ERR_FORMAT, "the LZF stream holds more than a chunk");
            if (in_end - in >= LZF_WIDE) {
                copy16(to, in);
                if (count > 16) copy16(to + 16, in + 16);
            } else {
                memcpy(to, in, count);
            }
            to += count;
            in += count;
            continue;
        }
        size_t count = (token >> 5) + 2;
        size_t long_match = count == 7 + 2;
        if ((size_t)(in_end - in) < 1 + long_match)
            return ups_fail(error, UPS_ERR_FORMAT, "the LZF stream is cut short");
        if (long_match) count += *in++;
        size_t distance = ((token & 31) << 8 | *in++) + 1;
        if (distance > (size_t)(to - out))
            return ups_fail(error, UPS_ERR_FORMAT, "the LZF stream refers to bytes before its start");
        if (count > (size_t)(end - to))
            return ups_fail(error, UPS_ERR_FORMAT, "the LZF stream holds more than a chunk");
        copy_match(to, distance, count);
        to += count;
    }
    *length = (size_t)(to - out);
    return UPS_OK;
}

/* ---- deflate, in its three wrappings --------------------------------------------------------------------------------
 */

/* What a thread decompresses with: reusable, and dear to make. Made at its first chunk, freed when it ends. */
typedef struct decompressors {
    struct libdeflate_decompressor *deflate;
    ZSTD_DCtx *zstd;
} decompressors;

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static int thread_key_failed;

static void free_decompressors(void *context) {
    decompressors *of_thread = context;
    if (of_thread->deflate) libdeflate_free_decompressor(of_thread->deflate);
    ZSTD_freeDCtx(of_thread->zstd);
    free(of_thread);
}

static void create_thread_key(void) {
    thread_key_failed = pthread_key_create(&thread_key, free_decompressors);
}

static decompressors *of_this_thread(void) {
    pthread_once(&thread_once, create_thread_key);
    if (thread_key_failed) return NULL;
    decompressors *found = pthread_getspecific(thread_key);
    if (found) return found;
    found = calloc(1, sizeof *found);
    if (found && pthread_setspecific(thread_key, found) == 0) return found;
    free(found);
    return NULL;
}

static struct libdeflate_decompressor *thread_inflater(void) {
    decompressors *own = of_this_thread();
    if (own && !own->deflate) own->deflate = libdeflate_alloc_decompressor();
    return own ? own->deflate : NULL;
}

static ups_status no_memory(const char *what, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for a %s decompressor", what);
}

static ups_status told(enum libdeflate_result result, ups_error *error) {
    switch (result) {
    case LIBDEFLATE_SUCCESS:
        return UPS_OK;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
        return ups_fail(error, UPS_ERR_FORMAT, "the gzip stream holds more than a chunk");
    default:
        return ups_fail(error, UPS_ERR_FORMAT, "the gzip stream is damaged");
    }
}

static ups_status inflate(ups_compressor compressor, const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity,
                          size_t *length, ups_error *error) {
    struct libdeflate_decompressor *inflater = thread_inflater();
    if (!inflater) return no_memory("gzip", error);
    if (compressor == UPS_COMPRESSOR_GZIP_FILE)
        return told(libdeflate_gzip_decompress(inflater, in, in_length, out, capacity, length), error);
    return told(libdeflate_zlib_decompress(inflater, in, in_length, out, capacity, length), error);
}

/* ---- zstd, LZ4, Blosc ----------------------------------------------------------------------------------------------
 */

static ups_status undo_zstd(const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity, size_t *length,
                            ups_error *error) {
    decompressors *own = of_this_thread();
    if (own && !own->zstd) own->zstd = ZSTD_createDCtx();
    if (!own || !own->zstd) return no_memory("zstd", error);
    *length = ZSTD_decompressDCtx(own->zstd, out, capacity, in, in_length);
    if (!ZSTD_isError(*length)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "the zstd stream is damaged (%s)", ZSTD_getErrorName(*length));
}

static ups_status undo_lz4(const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity, size_t *length,
                           ups_error *error) {
#ifdef UPS_HAVE_LZ4
    enum { SIZE_BYTES = 4 };
    if (in_length < SIZE_BYTES || in_length > INT32_MAX || capacity > INT32_MAX)
        return ups_fail(error, UPS_ERR_FORMAT, "the LZ4 block is damaged");
    int got =
        LZ4_decompress_safe((const char *)in + SIZE_BYTES, (char *)out, (int)(in_length - SIZE_BYTES), (int)capacity);
    if (got < 0) return ups_fail(error, UPS_ERR_FORMAT, "the LZ4 block is damaged");
    *length = (size_t)got;
    return UPS_OK;
#else
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "this build is without LZ4; build UPS with liblz4-dev");
#endif
}

static ups_status undo_blosc(const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity, size_t *length,
                             ups_error *error) {
#ifdef UPS_HAVE_BLOSC
    if (blosc_cbuffer_validate(in, in_length, length) != 0 || *length > capacity)
        return ups_fail(error, UPS_ERR_FORMAT, "the Blosc buffer is damaged, or holds more than a chunk");
    int got = *length > 0 ? blosc_decompress_ctx(in, out, *length, 1) : 0;
    if (got >= 0 && (size_t)got == *length) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "the Blosc buffer cannot be decompressed (%d): it is damaged, or was made by a compressor that this "
        "machine's libblosc lacks",
        got);
#else
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "this build is without Blosc; build UPS with libblosc-dev");
#endif
}

ups_status ups_decompress(ups_compressor compressor, const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity,
                          size_t *length, ups_error *error) {
    switch (compressor) {
    case UPS_COMPRESSOR_LZF:
        return ups_lzf_decode(in, in_length, out, capacity, length, error);
    case UPS_COMPRESSOR_ZSTD:
        return undo_zstd(in, in_length, out, capacity, length, error);
    case UPS_COMPRESSOR_LZ4:
        return undo_lz4(in, in_length, out, capacity, length, error);
    case UPS_COMPRESSOR_BLOSC:
        return undo_blosc(in, in_length, out, capacity, length, error);
    default:
        return inflate(compressor, in, in_length, out, capacity, length, error);
    }
}
