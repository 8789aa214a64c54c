/* Gives a target the inputs of its corpus, one after the other: what stands in for libFuzzer where a build is without
 * it. Arguments are files and directories of files. */
#include "base/files.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int replayed;

static bool replay_file(const char *path) {
    char *bytes;
    size_t length;
    ups_error error;
    if (ups_read_file(path, UINT64_C(1) << 30, &bytes, &length, &error) != UPS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return false;
    }
    uint8_t *exact = malloc(length ? length : 1); /* the sanitizer sees the first byte beyond */
    if (!exact) return false;
    memcpy(exact, bytes, length);
    free(bytes);
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
    replayed++;
    return true;
}

static bool replay(const char *path) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) return replay_file(path);
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        perror(path);
        return false;
    }
    bool fine = true;
    for (int i = 0; i < count; i++) {
        char *below = NULL;
        if (entries[i]->d_name[0] != '.')
            fine = fine && asprintf(&below, "%s/%s", path, entries[i]->d_name) > 0 && replay(below);
        free(below);
        free(entries[i]);
    }
    free(entries);
    return fine;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!replay(argv[i])) return 1;
    }
    printf("%d inputs replayed\n", replayed);
    return replayed > 0 ? 0 : 1;
}
