#include "cache/codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 8
#define LENGTH_BYTES 4       /* what the table says of a block */
#define BLOCK_HEADER_BYTES 3 /* order, lanes, grid */
#define STORED 3             /* in the place of the order */

/* A block holds this many values: enough that its frequencies and states cost nothing (1 %), few enough that an
 * encoder's codes stay in a second-level cache. */
#define BLOCK_VALUES (256 * 1024)
/* A block of fewer values and fewer coded bytes has fewer lanes, whose states would be more than a fiftieth of it. */
#define FEW_VALUES (32 * 1024)
#define FEW_BYTES (8 * 1024)
#define PAST_CACHES_BYTES (1024 * 1024)

/* The order is chosen by looking at one group of series in so many, and at the first. */
#define LOOKED_AT 32

/* Numbers that are whole multiples of 2^(grid − GRID_ZERO), and few enough of them, are coded as those multiples: what
 * an error bound (statistics.h) leaves is on such a grid. Without a grid, 0, they are coded by the order of FP16
 * numbers. */
#define GRID_ZERO 25 /* grid 1: of 2^−24, FP16's smallest */
#define MAX_GRID 40

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are little-endian; a big-endian port must swap here");

struct ups_latent_encoder {
    int64_t times, series;
    uint16_t *codes; /* of one block */
    uint16_t *words; /* as many as a block can become */
    ups_f16 *on_grid;
    uint32_t tables[UPS_RANS_ENCODER_ENTRIES];
    ups_rans_histogram counts;
};

/* Series in each block but the last. */
static int64_t block_series(int64_t times, int64_t series) {
    int64_t fitting = BLOCK_VALUES / times / UPS_RANS_LANES * UPS_RANS_LANES;
    if (fitting < UPS_RANS_LANES) fitting = UPS_RANS_LANES;
    return fitting < series ? fitting : series;
}

static int64_t block_count(int64_t series, int64_t per_block) {
    return (series + per_block - 1) / per_block;
}

static int lanes_for(int64_t values, ups_rans_histogram counts) {
    bool few = values < FEW_VALUES && ups_rans_bits_in_contexts(counts) < 8 * FEW_BYTES;
    return few ? UPS_RANS_FEW_LANES : UPS_RANS_LANES;
}

size_t ups_latent_bound(int64_t times, int64_t series) {
    size_t blocks = (size_t)block_count(series, block_series(times, series));
    return HEADER_BYTES + blocks * (LENGTH_BYTES + BLOCK_HEADER_BYTES) + (size_t)(times * series) * sizeof(ups_f16);
}

size_t ups_latent_least_bytes(int64_t times, int64_t series) {
    size_t blocks = (size_t)block_count(series, block_series(times, series));
    return HEADER_BYTES + blocks * (LENGTH_BYTES + BLOCK_HEADER_BYTES);
}

void ups_latent_encoder_destroy(ups_latent_encoder *encoder) {
    if (!encoder) return;
    free(encoder->codes);
    free(encoder->words);
    free(encoder->on_grid);
    free(encoder);
}

ups_latent_encoder *ups_latent_encoder_create(int64_t times, int64_t series) {
    ups_latent_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) return NULL;
    size_t values = (size_t)(times * block_series(times, series));
    encoder->times = times;
    encoder->series = series;
    encoder->codes = malloc(values * sizeof *encoder->codes);
    encoder->words = malloc((2 * values + UPS_RANS_SLACK) * sizeof *encoder->words);
    encoder->on_grid = malloc(values * sizeof *encoder->on_grid);
    if (encoder->codes && encoder->words && encoder->on_grid) return encoder;
    ups_latent_encoder_destroy(encoder);
    return NULL;
}

/* The exponent of the lowest bit of a number that is not 0: of 1.5 · 2^3 it is 2. */
static int lowest_exponent(ups_f16 bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent > 0) fraction |= 0x400;
    return (exponent > 0 ? exponent : 1) - 25 + __builtin_ctz((unsigned)fraction);
}

/* The coarsest grid that all numbers of a block are on, within 32767 steps of 0; 0: there is none, as for nearly any
 * latents, which the first few tell. Not for −0, NaN and Inf. */
static int find_grid(const ups_f16 *latents, int64_t stride, int64_t times, int64_t here) {
    int lowest = MAX_GRID, highest = -GRID_ZERO;
    for (int64_t t = 0; t < times; t++) {
        for (int64_t s = 0; s < here; s++) {
            ups_f16 bits = latents[t * stride + s];
            if (bits == 0) continue;
            int exponent = bits >> 10 & 31;
            if (bits == 0x8000 || exponent == 31) return 0;
            int low = lowest_exponent(bits), high = exponent > 0 ? exponent - 15 : -15; /* below 2^(high + 1) */
            if (low < lowest) lowest = low;
            if (high > highest) highest = high;
            if (highest - lowest > 14) return 0;
        }
    }
    return lowest == MAX_GRID ? 0 : lowest + GRID_ZERO;
}

/* FP16 numbers to those whose place in the order of FP16 numbers is their multiple of the grid. */
static void put_on_grid(const ups_f16 *latents, int64_t stride, int64_t times, int64_t here, int grid, ups_f16 *out) {
    float scale = ldexpf(1.0F, GRID_ZERO - grid);
    for (int64_t t = 0; t < times; t++) {
        for (int64_t s = 0; s < here; s += UPS_RANS_LANES, out += UPS_RANS_LANES) {
            float values[UPS_RANS_LANES];
            int64_t width = here - s < UPS_RANS_LANES ? here - s : UPS_RANS_LANES;
            ups_f16_to_f32(latents + t * stride + s, values, (size_t)width);
            for (int64_t i = 0; i < width; i++) out[i] = ups_rans_ordered((uint16_t)(int32_t)(values[i] * scale));
            out -= UPS_RANS_LANES - width;
        }
    }
}

static int choose_order(ups_latent_encoder *encoder, const ups_f16 *latents, int64_t stride, int64_t here) {
    int best = 0;
    uint64_t best_bits = UINT64_MAX;
    for (int order = 0; order <= UPS_RANS_MAX_ORDER && order < encoder->times; order++) {
        memset(encoder->counts, 0, sizeof encoder->counts);
        for (int64_t s = 0; s < here; s += (int64_t)LOOKED_AT * UPS_RANS_LANES) {
            int64_t width = here - s < UPS_RANS_LANES ? here - s : UPS_RANS_LANES;
            ups_rans_residuals(latents + s, stride, encoder->times, width, order, encoder->codes);
            ups_rans_count(encoder->codes, encoder->times, width, encoder->counts);
        }
        uint64_t bits = ups_rans_bits(encoder->counts);
        if (bits < best_bits) best_bits = bits, best = order;
    }
    return best;
}

/* The block as it is. */
static uint8_t *store_block(const ups_f16 *latents, int64_t stride, int64_t times, int64_t here, uint8_t *out) {
    *out++ = STORED;
    *out++ = 0;
    *out++ = 0;
    size_t row = (size_t)here * sizeof *latents;
    for (int64_t t = 0; t < times; t++, out += row) memcpy(out, latents + t * stride, row);
    return out;
}

/* `here` series from `latents` on become a block at `out`; returns its end. */
static uint8_t *encode_block(ups_latent_encoder *encoder, const ups_f16 *latents, int64_t here, uint8_t *out) {
    int64_t times = encoder->times, stride = encoder->series;
    int grid = find_grid(latents, stride, times, here);
    const ups_f16 *coded = latents;
    if (grid) {
        put_on_grid(latents, stride, times, here, grid, encoder->on_grid);
        coded = encoder->on_grid, stride = here;
    }
    int order = choose_order(encoder, coded, stride, here);
    ups_rans_residuals(coded, stride, times, here, order, encoder->codes);
    memset(encoder->counts, 0, sizeof encoder->counts);
    ups_rans_count(encoder->codes, times, here, encoder->counts);
    ups_rans_merge(encoder->counts);
    int lanes = lanes_for(times * here, encoder->counts);
    ups_rans_normalise(encoder->counts);
    ups_rans_encoder_tables(encoder->counts, encoder->tables);
    uint32_t state[UPS_RANS_LANES];
    for (int i = 0; i < UPS_RANS_LANES; i++) state[i] = UPS_RANS_FLOOR;
    uint16_t *end = encoder->words + UPS_RANS_SLACK + 2 * times * block_series(times, encoder->series), *top = end;
    for (int64_t s = (here - 1) / lanes * lanes; s >= 0; s -= lanes) {
        int width = here - s < lanes ? (int)(here - s) : lanes;
        top = ups_rans_encode(encoder->tables, encoder->codes + s, here, times, width, state, top);
    }
    uint8_t table[UPS_RANS_MAX_TABLE_BYTES];
    size_t table_bytes = ups_rans_write_frequencies(encoder->counts, table);
    size_t state_bytes = (size_t)lanes * sizeof *state, word_bytes = (size_t)(end - top) * sizeof *top;
    if (table_bytes + state_bytes + word_bytes >= (size_t)(times * here) * sizeof *latents)
        return store_block(latents, encoder->series, times, here, out);
    *out++ = (uint8_t)order;
    *out++ = (uint8_t)lanes;
    *out++ = (uint8_t)grid;
    memcpy(out, table, table_bytes);
    memcpy(out + table_bytes, state, state_bytes);
    memcpy(out + table_bytes + state_bytes, top, word_bytes);
    return out + table_bytes + state_bytes + word_bytes;
}

size_t ups_latent_encode(ups_latent_encoder *encoder, const ups_f16 *latents, uint8_t *out) {
    int64_t series = encoder->series, per_block = block_series(encoder->times, series);
    int64_t blocks = block_count(series, per_block);
    uint32_t header[2] = {UPS_LATENT_VERSION, (uint32_t)per_block};
    memcpy(out, header, HEADER_BYTES);
    uint8_t *table = out + HEADER_BYTES, *at = table + blocks * LENGTH_BYTES;
    for (int64_t b = 0; b < blocks; b++, table += LENGTH_BYTES) {
        int64_t first = b * per_block, here = series - first < per_block ? series - first : per_block;
        uint8_t *end = encode_block(encoder, latents + first, here, at);
        uint32_t length = (uint32_t)(end - at);
        memcpy(table, &length, LENGTH_BYTES);
        at = end;
    }
    return (size_t)(at - out);
}

/* What decoding needs: in a caller's memory. */
typedef struct decoder {
    uint32_t tables[UPS_RANS_DECODER_ENTRIES];
    ups_rans_histogram frequencies;
    ups_f16 group[]; /* (times, UPS_RANS_LANES): of a group on a grid */
} decoder;

size_t ups_latent_scratch_bytes(int64_t times) {
    return sizeof(decoder) + (size_t)times * UPS_RANS_LANES * sizeof(ups_f16);
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
    if ((length - HEADER_BYTES) / LENGTH_BYTES < (uint64_t)block_count(series, *per_block))
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk of ups.latent ends within its table");
    return UPS_OK;
}

static bool decode_stored(const uint8_t *bytes, size_t length, int64_t times, int64_t here, ups_rans_frames to,
                          bool *finite) {
    size_t row = (size_t)here * sizeof(ups_f16);
    if (length != (size_t)times * row) return false;
    bytes += (size_t)to.start * row;
    for (int64_t t = to.start; t < to.end; t++, bytes += row) {
        int64_t at = (t - to.start) * to.stride;
        for (int64_t s = 0; s < here; s += UPS_RANS_LANES) {
            ups_f16 values[UPS_RANS_LANES];
            int64_t width = here - s < UPS_RANS_LANES ? here - s : UPS_RANS_LANES;
            memcpy(values, bytes + (size_t)s * sizeof *values, (size_t)width * sizeof *values);
            for (int64_t i = 0; i < width; i++) *finite &= (values[i] & 0x7c00) != 0x7c00;
            if (to.dtype == UPS_F16)
                memcpy((ups_f16 *)to.out + at + s, values, (size_t)width * sizeof *values);
            else
                ups_f16_to_f32(values, (float *)to.out + at + s, (size_t)width);
        }
    }
    return true;
}

/* What put_on_grid made of a group, back to numbers in their place. False where FP16 does not have one of them: no
 * encoder made that. They are whole multiples of FP16's smallest number, so it has those that are below 65536 and of no
 * more than 11 bits. */
static bool take_from_grid(const ups_f16 *group, int width, int grid, ups_rans_frames to) {
    const uint32_t beyond_eleven_bits = 0x1fff, magnitude = 0x7fffffff, too_large = 0x47800000;
    float scale = ldexpf(1.0F, grid - GRID_ZERO), values[UPS_RANS_LANES];
    uint32_t wrong = 0;
    for (int64_t t = 0; t < to.end - to.start; t++, group += UPS_RANS_LANES) {
        for (int i = 0; i < width; i++) {
            uint32_t bits;
            values[i] = (float)(int16_t)ups_rans_ordered(group[i]) * scale;
            memcpy(&bits, &values[i], sizeof bits);
            wrong |= (bits & beyond_eleven_bits) | ((bits & magnitude) >= too_large);
        }
        if (to.dtype == UPS_F32)
            memcpy((float *)to.out + t * to.stride, values, (size_t)width * sizeof *values);
        else
            ups_f32_to_f16(values, (ups_f16 *)to.out + t * to.stride, (size_t)width);
    }
    return wrong == 0;
}

/* False: damaged. */
static bool decode_block(decoder *d, const uint8_t *bytes, size_t length, int64_t times, int64_t here,
                         ups_rans_frames to, bool *finite, int *order) {
    if (length < BLOCK_HEADER_BYTES) return false;
    int lanes = bytes[1], grid = bytes[2];
    const uint8_t *at = bytes + BLOCK_HEADER_BYTES, *end = bytes + length;
    *order = bytes[0];
    if (*order == STORED && lanes == 0 && grid == 0) {
        *order = 0;
        return decode_stored(at, (size_t)(end - at), times, here, to, finite);
    }
    if (*order > UPS_RANS_MAX_ORDER || (lanes != UPS_RANS_LANES && lanes != UPS_RANS_FEW_LANES)) return false;
    if (grid > MAX_GRID) return false;
    size_t table_bytes = ups_rans_read_frequencies(at, (size_t)(end - at), d->frequencies);
    uint32_t state[UPS_RANS_LANES];
    size_t state_bytes = (size_t)lanes * sizeof *state;
    if (table_bytes == 0 || (size_t)(end - at) - table_bytes < state_bytes) return false;
    memcpy(state, at + table_bytes, state_bytes);
    at += table_bytes + state_bytes;
    if ((end - at) % 2) return false;
    ups_rans_decoder_tables(d->frequencies, ups_rans_first_context(times), d->tables);
    size_t size = to.dtype == UPS_F16 ? sizeof(ups_f16) : sizeof(float);
    for (int64_t s = 0; s < here; s += lanes) {
        int width = here - s < lanes ? (int)(here - s) : lanes;
        if (grid) {
            bool ignored = true;
            ups_rans_frames group = {UPS_F16, false, to.start, to.end, UPS_RANS_LANES, d->group};
            at = ups_rans_decode(d->tables, at, end, times, width, *order, group, state, &ignored);
            if (!take_from_grid(d->group, width, grid, to)) return false;
        } else {
            at = ups_rans_decode(d->tables, at, end, times, width, *order, to, state, finite);
        }
        to.out = (char *)to.out + (size_t)width * size;
    }
    bool fine = at == end;
    for (int i = 0; i < lanes; i++) fine &= state[i] == UPS_RANS_FLOOR;
    return fine;
}

ups_status ups_latent_decode(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                             int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                             ups_latent_orders *orders, ups_error *error) {
    int64_t per_block = 0;
    UPS_TRY(check_header(encoded, length, times, series, &per_block, error));
    int64_t blocks = block_count(series, per_block);
    const uint8_t *table = encoded + HEADER_BYTES, *at = table + blocks * LENGTH_BYTES, *end = encoded + length;
    size_t size = dtype == UPS_F16 ? sizeof(ups_f16) : sizeof(float);
    bool fine = true, past_caches = (size_t)(count * series) * size > PAST_CACHES_BYTES;
    if (orders) *orders = (ups_latent_orders){0};
    for (int64_t b = 0; b < blocks; b++, table += LENGTH_BYTES) {
        int64_t first = b * per_block, here = series - first < per_block ? series - first : per_block;
        ups_rans_frames to = {dtype, past_caches, start, start + count, series, (char *)out + (size_t)first * size};
        uint32_t bytes;
        memcpy(&bytes, table, LENGTH_BYTES);
        if (bytes > (size_t)(end - at))
            return ups_fail(error, UPS_ERR_FORMAT, "block %lld of ups.latent goes past the chunk's end", (long long)b);
        int order = 0;
        if (!decode_block(scratch, at, bytes, times, here, to, &fine, &order))
            return ups_fail(error, UPS_ERR_FORMAT, "block %lld of ups.latent is damaged", (long long)b);
        if (orders) orders->blocks[order]++;
        at += bytes;
    }
    if (at != end) return ups_fail(error, UPS_ERR_FORMAT, "a chunk of ups.latent goes on after its last block");
    if (finite) *finite = fine;
    return UPS_OK;
}
