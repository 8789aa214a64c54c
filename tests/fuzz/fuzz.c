#include "tests/fuzz/fuzz.h"

#include "base/files.h"
#include "base/log.h"
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_fail(const char *file, int line, const char *sentence) {
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, sentence);
    abort();
}

bool fuzz_accepted(ups_status status, const ups_error *error) {
    if (status == UPS_OK) return true;
    FUZZ_CHECK(error->message[0] != '\0');
    FUZZ_CHECK(memchr(error->message, '\0', sizeof error->message) != NULL);
    return false;
}

uint8_t fuzz_byte(fuzz_input *input) {
    if (input->length == 0) return 0;
    input->length--;
    return *input->bytes++;
}

int64_t fuzz_from_1_to(fuzz_input *input, int64_t most) {
    return 1 + fuzz_byte(input) % most;
}

static void fill(int descriptor, const uint8_t *bytes, size_t length) {
    FUZZ_CHECK(ftruncate(descriptor, 0) == 0);
    for (size_t at = 0; at < length;) {
        ssize_t written = pwrite(descriptor, bytes + at, length - at, (off_t)at);
        FUZZ_CHECK(written > 0);
        at += (size_t)written;
    }
}

const char *fuzz_file(const uint8_t *bytes, size_t length) {
    static int descriptor = -1;
    static char name[40];
    if (descriptor < 0) {
        descriptor = memfd_create("input", MFD_CLOEXEC);
        FUZZ_CHECK(descriptor >= 0);
        ups_log_set_level(UPS_LOG_ERROR); /* what is odd about an input is not news here */
        snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    }
    fill(descriptor, bytes, length);
    return name;
}

static char directory[200];

static void remove_directory(void) {
    ups_remove_tree(directory, NULL);
}

const char *fuzz_directory(void) {
    if (directory[0]) return directory;
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/ups-fuzz-XXXXXX", base ? base : "/tmp");
    FUZZ_CHECK(mkdtemp(directory) != NULL);
    atexit(remove_directory);
    return directory;
}

void fuzz_write(const char *path, const uint8_t *bytes, size_t length) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    FUZZ_CHECK(descriptor >= 0);
    fill(descriptor, bytes, length);
    close(descriptor);
}

void *fuzz_room(size_t bytes) {
    void *room = NULL;
    FUZZ_CHECK(posix_memalign(&room, 64, bytes ? bytes : 1) == 0);
    return room;
}

void *fuzz_kept_room(int which, size_t bytes) {
    enum { BEYOND = 256 }; /* bytes after the room that may not be touched */
    static uint8_t *room[UPS_FUZZ_ROOMS];
    static size_t capacity[UPS_FUZZ_ROOMS];
    if (room[which]) ASAN_UNPOISON_MEMORY_REGION(room[which], capacity[which] + BEYOND);
    if (!room[which] || bytes > capacity[which]) {
        free(room[which]);
        capacity[which] = bytes + bytes / 2;
        room[which] = fuzz_room(capacity[which] + BEYOND);
    }
    ASAN_POISON_MEMORY_REGION(room[which] + bytes, BEYOND);
    return room[which];
}
