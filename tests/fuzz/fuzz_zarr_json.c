/* A cache group one of whose documents is the input: of the group, of the latents or of an array beside them (the first
 * byte chooses, and with its highest bit that the group's own gets a check that fits). The rest of the group is sound.
 */
#include "tests/fuzz/fuzz.h"

#include "base/files.h"
#include "cache/store/document.h"
#include "cache/store/reader.h"
#include "cache/store/source.h"
#include "tests/cache/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENTS = 7, SAMPLES = 5, TIMES = 6, TOKENS = 2, DIM = 4, PER_SHARD = 2, MOST_BYTES = 1 << 20 };

typedef struct made_group {
    char directory[300];
    char document[DOCUMENTS][400];
    char *sound[DOCUMENTS];
    size_t length[DOCUMENTS];
} made_group;

static const char *const folders[DOCUMENTS] = {
    "", "latent/", "time/", "condition/", "source_sample/", "statistics/", "shards/"};

static void build(made_group *made) {
    ups_error error;
    ups_cache_description description = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    FUZZ_CHECK(fixture_build(fuzz_directory(), &description, 1, &error) == UPS_OK);
    snprintf(made->directory, sizeof made->directory, "%s/waves/train", fuzz_directory());
    for (int d = 0; d < DOCUMENTS; d++) {
        snprintf(made->document[d], sizeof made->document[d], "%s/%szarr.json", made->directory, folders[d]);
        FUZZ_CHECK(ups_read_file(made->document[d], MOST_BYTES, &made->sound[d], &made->length[d], &error) == UPS_OK);
    }
}

/* Whether the group opens. */
static bool read_by_reader(const char *directory) {
    ups_error error = {0};
    ups_cache_group *group;
    if (!fuzz_accepted(ups_cache_group_open(directory, &group, &error), &error)) return false;
    ups_cache_reader *reader = ups_cache_reader_create(group);
    FUZZ_CHECK(reader != NULL);
    ups_cache_trajectory trajectory;
    for (int64_t i = 0; i < group->shape.samples; i++) {
        if (!fuzz_accepted(ups_cache_read(reader, i, &trajectory, &error), &error)) break;
    }
    ups_cache_reader_destroy(reader);
    ups_cache_group_close(group);
    return true;
}

static void read_by_source(const char *directory) {
    ups_error error = {0};
    ups_source *source;
    if (!fuzz_accepted(ups_cache_source_open(directory, NULL, &source, &error), &error)) return;
    for (int64_t i = 0; i < source->count; i++) {
        ups_sample sample;
        FUZZ_CHECK(ups_source_describe(source, i, &sample, &error) == UPS_OK);
        ups_cache_source_origin(source, i);
        void *out = fuzz_room((size_t)sample.times * ups_sample_frame_bytes(&sample));
        bool read = fuzz_accepted(ups_source_read(source, i, (ups_frames){0, sample.times}, out, &error), &error);
        free(out);
        if (!read) break;
    }
    ups_source_close(source);
}

/* What comes after the check is reached by documents that have it right. */
static void mend(const char *directory) {
    ups_error changed, error;
    json_t *attributes;
    if (ups_document_read_group(directory, &attributes, &changed, &error) != UPS_OK) return;
    fuzz_accepted(ups_document_publish_group(directory, attributes, &error), &error);
    json_decref(attributes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static made_group on;
    static int damaged;
    if (!on.directory[0]) build(&on);
    fuzz_input input = {data, size};
    int which = (fuzz_byte(&input) & 0x7f) % DOCUMENTS;
    if (damaged != which) fuzz_write(on.document[damaged], (const uint8_t *)on.sound[damaged], on.length[damaged]);
    damaged = which;
    fuzz_write(on.document[which], input.bytes, input.length);
    if (size > 0 && data[0] & 0x80) mend(on.directory);
    if (read_by_reader(on.directory)) read_by_source(on.directory);
    return 0;
}
