/* make_cache DIR [portable] [skip=I,J,…]: a small cache of smooth synthetic latents, for tests in Python; and the
 * latents it put in, as raw float16, in DIR/expected.f16. */
#include "base/files.h"
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 9, TIMES = 21, TOKENS = 5, DIM = 32, PER_SHARD = 4, COUNT = TIMES * TOKENS * DIM };

static ups_status build(const char *directory, const ups_cache_description *description, const char *skip, ups_f16 *all,
                        ups_error *error) {
    ups_cache_writer *writer;
    UPS_TRY(ups_cache_writer_open(directory, description, &writer, error));
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < SAMPLES && status == UPS_OK; i++) {
        float latents[COUNT];
        char digit[2] = {(char)('0' + i), '\0'};
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        ups_f32_to_f16(latents, all + i * COUNT, COUNT);
        if (skip && strstr(skip, digit))
            status = ups_cache_writer_skip(writer, i, error);
        else
            status = ups_cache_writer_put(writer, i, "waves", latents, error);
    }
    if (status == UPS_OK) status = ups_cache_writer_finish(writer, NULL, error);
    ups_cache_writer_close(writer);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    ups_cache_description description = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    const char *skip = NULL;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "portable") == 0) description.codec.portable = true;
        if (strncmp(argv[i], "skip=", 5) == 0) skip = argv[i] + 5;
    }
    static ups_f16 all[SAMPLES * COUNT];
    ups_error error;
    char *path = NULL;
    ups_status status = build(argv[1], &description, skip, all, &error);
    if (status == UPS_OK && asprintf(&path, "%s/expected.f16", argv[1]) > 0) {
        status = ups_publish_bytes(path, all, sizeof all, &error);
    }
    free(path);
    if (status == UPS_OK) return 0;
    fprintf(stderr, "%s\n", error.message);
    return 1;
}
