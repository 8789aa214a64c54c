/* Files that are damaged: each gives an error that names it, or data, never a crash. The sanitizer build watches. */
#ifndef UPS_TESTS_PIPELINE_DAMAGED_H
#define UPS_TESTS_PIPELINE_DAMAGED_H

#include "pipeline/layouts/layouts.h"
#include "tests/base/testing.h"

/* How many files were refused when they were opened, gave samples that could not be read, and gave them all. */
typedef struct damaged_files {
    int refused, unread, read;
} damaged_files;

/* Writes the bytes as the file `name`, opens it, and reads the first samples of it that are of reasonable size. */
static inline void read_damaged(const char *name, const void *bytes, size_t length, damaged_files *seen) {
    enum { MOST_READ = 1 << 24, SAMPLES_READ = 4 };
    ups_source *source;
    ups_error error = {0};
    write_bytes(scratch(name), bytes, length);
    if (ups_layout_open(scratch(name), NULL, &source, &error) != UPS_OK) {
        assert_contains(error.message, name);
        assert_null(source);
        seen->refused++;
        return;
    }
    bool sound = true;
    for (int64_t i = 0; i < source->count && i < SAMPLES_READ; i++) {
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, i, &sample, &error), UPS_OK);
        size_t sample_bytes = (size_t)sample.times * ups_sample_frame_bytes(&sample);
        if (sample_bytes > MOST_READ || source->limits.stored_bytes > MOST_READ) continue;
        void *out = malloc(sample_bytes);
        error.message[0] = '\0';
        if (ups_source_read(source, i, (ups_frames){0, sample.times}, out, &error) != UPS_OK) {
            assert_contains(error.message, name);
            sound = false;
        }
        free(out);
    }
    *(sound ? &seen->read : &seen->unread) += 1;
    ups_source_close(source);
}

#endif
