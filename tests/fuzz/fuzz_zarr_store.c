/* A Zarr store one of whose files is the input: the document of an array of version 2 or 3, a shard or a chunk (the
 * first byte chooses, and with its highest bit the index of the shard gets a checksum that fits). The rest is sound. */
#include "tests/fuzz/fuzz_source.h"

#include "base/files.h"
#include "base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 4, CHUNK_VALUES = 2 * 3 * 4, CHUNKS = 4, INDEX_BYTES = 16 * CHUNKS + 4 };

static const char group_3[] = "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {\"nu\": 0.5}}";
static const char array_3[] =
    "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [3, 3, 8], \"data_type\": \"float32\","
    "\"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": [4, 3, 8]}},"
    "\"chunk_key_encoding\": {\"name\": \"default\", \"configuration\": {\"separator\": \"/\"}}, \"fill_value\": NaN,"
    "\"codecs\": [{\"name\": \"sharding_indexed\", \"configuration\": {\"chunk_shape\": [2, 3, 4],"
    "\"codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}],"
    "\"index_codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}, {\"name\": \"crc32c\"}],"
    "\"index_location\": \"end\"}}], \"dimension_names\": [\"sample\", \"time\", \"x\"], \"attributes\": {}}";
static const char array_2[] = "{\"zarr_format\": 2, \"shape\": [3, 3, 4], \"chunks\": [3, 3, 4], \"dtype\": \">i2\","
                              "\"compressor\": null, \"fill_value\": 0, \"order\": \"F\", \"filters\": null}";

typedef struct made_stores {
    char three[300], two[300]; /* folders */
    char path[FILES][400];
    uint8_t *sound[FILES];
    size_t length[FILES];
} made_stores;

static void make_folder(const char *path) {
    ups_error error;
    FUZZ_CHECK(ups_make_directories(path, &error) == UPS_OK);
}

static void keep(made_stores *on, int which, const char *folder, const char *name, const void *bytes, size_t length) {
    snprintf(on->path[which], sizeof on->path[which], "%s/%s", folder, name);
    on->sound[which] = malloc(length);
    FUZZ_CHECK(on->sound[which] != NULL);
    memcpy(on->sound[which], bytes, length);
    on->length[which] = length;
    fuzz_write(on->path[which], bytes, length);
}

/* The checksum of a shard's index, which is its end. */
static void mend(uint8_t *shard, size_t length) {
    if (length < INDEX_BYTES) return;
    uint32_t crc = ups_crc32c(0, shard + length - INDEX_BYTES, INDEX_BYTES - sizeof crc);
    memcpy(shard + length - sizeof crc, &crc, sizeof crc);
}

static void build(made_stores *on) {
    static uint8_t shard[CHUNKS * CHUNK_VALUES * 4 + INDEX_BYTES], chunk[3 * 3 * 4 * 2];
    char path[400];
    snprintf(on->three, sizeof on->three, "%s/three.zarr", fuzz_directory());
    snprintf(on->two, sizeof on->two, "%s/two.zarr", fuzz_directory());
    snprintf(path, sizeof path, "%s/u/c/0/0", on->three);
    make_folder(path);
    make_folder(on->two);
    snprintf(path, sizeof path, "%s/zarr.json", on->three);
    fuzz_write(path, (const uint8_t *)group_3, strlen(group_3));
    for (int c = 0; c < CHUNKS; c++) {
        uint64_t entry[2] = {(uint64_t)c * CHUNK_VALUES * 4, CHUNK_VALUES * 4};
        memcpy(shard + CHUNKS * CHUNK_VALUES * 4 + 16 * c, entry, sizeof entry);
    }
    mend(shard, sizeof shard);
    for (size_t i = 0; i < sizeof chunk; i++) chunk[i] = (uint8_t)i;
    keep(on, 0, on->three, "u/zarr.json", array_3, strlen(array_3));
    keep(on, 1, on->three, "u/c/0/0/0", shard, sizeof shard);
    keep(on, 2, on->two, ".zarray", array_2, strlen(array_2));
    keep(on, 3, on->two, "0.0.0", chunk, sizeof chunk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static made_stores on;
    static int damaged;
    if (!on.three[0]) build(&on);
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const int which = (steer & 0x7f) % FILES;
    if (damaged != which) fuzz_write(on.path[damaged], on.sound[damaged], on.length[damaged]);
    damaged = which;
    uint8_t *bytes = fuzz_room(input.length ? input.length : 1);
    if (input.length) memcpy(bytes, input.bytes, input.length);
    if (steer & 0x80) mend(bytes, input.length);
    fuzz_write(on.path[which], bytes, input.length);
    free(bytes);
    fuzz_read_suggested(which < 2 ? on.three : on.two);
    return 0;
}
