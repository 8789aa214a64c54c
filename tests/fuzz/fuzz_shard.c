/* A shard: index and chunks. The first bytes choose the shape, how many chunks there are and which checksums are made
 * to fit; the rest is the file. */
#include "tests/fuzz/fuzz.h"

#include "base/hash.h"
#include "cache/codec/chunk.h"
#include "cache/store/shard.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_CHUNKS = 8, CRC_BYTES = 4 };

static void put_crc(uint8_t *bytes, size_t length) {
    uint32_t crc = ups_crc32c(0, bytes, length - CRC_BYTES);
    memcpy(bytes + length - CRC_BYTES, &crc, CRC_BYTES);
}

/* The shard that is asked for, and that a mended seal says it is. */
static const ups_shard_identity identity = {"000102030405060708090a0b0c0d0e0f", "waves/train", 3};

static void mend(uint8_t *shard, size_t length, int64_t chunks, bool chunks_too) {
    size_t index_bytes = ups_shard_index_bytes(chunks), tail_bytes = ups_shard_tail_bytes(chunks);
    if (length < tail_bytes) return;
    uint8_t *index = shard + length - index_bytes, *seal = shard + length - tail_bytes,
            *end = seal + chunks * CRC_BYTES;
    for (int64_t i = 0; i < chunks && chunks_too; i++) {
        uint64_t data = length - tail_bytes, place[2];
        memcpy(place, index + 16 * i, sizeof place);
        if (place[1] <= CRC_BYTES || place[1] > data || place[0] > data - place[1]) continue;
        put_crc(shard + place[0], place[1]);
        memcpy(seal + i * CRC_BYTES, shard + place[0] + place[1] - CRC_BYTES, CRC_BYTES);
    }
    for (uint8_t b = 0; b < 16; b++) end[UPS_SHARD_OWNER_BYTES + b] = b;
    memcpy(end + UPS_SHARD_OWNER_BYTES + 16, &(uint64_t){3}, 8);
    put_crc(seal, tail_bytes - index_bytes);
    put_crc(index, index_bytes);
}

static void read_chunk(ups_chunk_codec codec, ups_chunk_shape shape, ups_chunk_place place, const uint8_t *bytes) {
    const size_t length = place.length;
    uint8_t *exact = malloc(length ? length : 1);
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, bytes, length);
    void *scratch = fuzz_kept_room(0, ups_chunk_scratch_bytes(codec, shape));
    void *out = fuzz_kept_room(1, ups_chunk_raw_bytes(shape));
    bool finite;
    ups_error error = {0};
    if (!ups_chunk_may_hold(codec, shape, length))
        FUZZ_CHECK(ups_chunk_decode(codec, shape, exact, length, 0, shape.times, scratch, UPS_F16, out, &finite, NULL,
                                    &error) != UPS_OK);
    fuzz_accepted(ups_chunk_check_place(place, exact, length, &error), &error);
    fuzz_accepted(
        ups_chunk_decode(codec, shape, exact, length, 0, shape.times, scratch, UPS_F16, out, &finite, NULL, &error),
        &error);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    uint8_t how = fuzz_byte(&input);
    ups_chunk_codec codec = {.portable = how & 1};
    int64_t chunks = fuzz_from_1_to(&input, MOST_CHUNKS);
    ups_chunk_shape shape = {fuzz_from_1_to(&input, 32), 1, 1};
    shape.tokens = fuzz_from_1_to(&input, 8);
    shape.dim = fuzz_from_1_to(&input, 64);
    uint8_t *shard = malloc(input.length + 1);
    FUZZ_CHECK(shard != NULL);
    if (input.length) memcpy(shard, input.bytes, input.length);
    if (how & 2) mend(shard, input.length, chunks, how & 4);

    const char *path = fuzz_file(shard, input.length);
    ups_chunk_place places[MOST_CHUNKS];
    ups_error error = {0};
    if (fuzz_accepted(ups_shard_read_index(path, &identity, chunks, 0, places, NULL, &error), &error)) {
        uint64_t end = input.length - ups_shard_tail_bytes(chunks), reached = 0;
        for (int64_t i = 0; i < chunks; i++) {
            if (!ups_chunk_present(places[i])) continue;
            FUZZ_CHECK(places[i].offset == reached && places[i].length <= end - reached);
            reached += places[i].length;
            read_chunk(codec, shape, places[i], shard + places[i].offset);
        }
        FUZZ_CHECK(reached == end);
    }
    free(shard);
    return 0;
}
