/* The compressors that chunks of HDF5 and Zarr, and members of NPZ files, come in. Blosc and LZ4 only where the build
 * found their libraries.
 *
 * Bytes may be damaged: that is an error, never a crash. No allocation but what a thread decompresses with, made at its
 * first chunk and freed when the thread ends. */
#ifndef UPS_PIPELINE_STORAGE_COMPRESSORS_H
#define UPS_PIPELINE_STORAGE_COMPRESSORS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decoders write in wide steps and may spoil this many bytes beyond the end of what they produce. */
#define UPS_FILTER_SLACK 64

typedef enum ups_compressor {
    UPS_COMPRESSOR_NONE,
    UPS_COMPRESSOR_GZIP, /* a zlib stream, as HDF5's gzip filter writes it */
    UPS_COMPRESSOR_LZF,
    UPS_COMPRESSOR_GZIP_FILE, /* a stream with the header of gzip files (RFC 1952), as Zarr's gzip writes it */
    UPS_COMPRESSOR_ZSTD,
    UPS_COMPRESSOR_LZ4,   /* the size as 32 bits, then one block, as numcodecs writes it */
    UPS_COMPRESSOR_BLOSC, /* with its own shuffles and compressors */
} ups_compressor;

const char *ups_compressor_name(ups_compressor compressor); /* "gzip", "lzf", "zstd", … */
bool ups_compressor_is_there(ups_compressor compressor);    /* whether this build can undo it */

/* Decompresses a whole stream. `out` has `capacity` + UPS_FILTER_SLACK bytes; *length is what was produced, at most
 * `capacity`. UPS_ERR_FORMAT when it is damaged or holds more; the message does not name the chunk. */
ups_status ups_decompress(ups_compressor compressor, const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity,
                          size_t *length, ups_error *error);

/* LZF as liblzf writes it (and h5py's filter 32000). `out` has `capacity` + UPS_FILTER_SLACK bytes; *length is what was
 * produced, at most `capacity`. UPS_ERR_FORMAT when the stream is cut short, refers before its start or produces too
 * much. */
ups_status ups_lzf_decode(const uint8_t *in, size_t in_length, uint8_t *out, size_t capacity, size_t *length,
                          ups_error *error);

#endif
