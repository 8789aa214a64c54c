#include "model/cuda/products/choices.h"

#include "base/files.h"
#include "base/hash.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    DIGITS = 2 * sizeof(cublasLtMatmulAlgo_t),
    LINE = UPS_CUDA_CHOICE_KEY + DIGITS + 16,
    LARGEST_FILE = 16 << 20,
};

typedef struct choice {
    char key[UPS_CUDA_CHOICE_KEY];
    cublasLtMatmulAlgo_t algorithm;
} choice;

struct ups_cuda_choices {
    char *path;       /* NULL: nowhere */
    char prefix[120]; /* of keys: the form of lines, card, driver, library */
    choice *list;
    int count, room;
};

/* ---- lines: "KEY ALGORITHM CHECKSUM\n", the algorithm in hexadecimal digits, CRC32C of what stands before it ------
 */

static uint32_t checksum_of(const char *key, const char *digits) {
    return ups_crc32c(ups_crc32c(0, key, strlen(key)), digits, strlen(digits));
}

static int write_line(const choice *made, char line[LINE]) {
    const unsigned char *bytes = (const unsigned char *)&made->algorithm;
    char digits[DIGITS + 1];
    for (size_t i = 0; i < sizeof made->algorithm; i++) snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
    return snprintf(line, LINE, "%s %s %08x\n", made->key, digits, checksum_of(made->key, digits));
}

static bool read_line(const char *line, choice *found) {
    char key[UPS_CUDA_CHOICE_KEY], digits[DIGITS + 1];
    unsigned checksum;
    _Static_assert(UPS_CUDA_CHOICE_KEY == 384 && DIGITS == 128, "the widths below");
    if (sscanf(line, "%383s %128s %8x", key, digits, &checksum) != 3) return false;
    if (strlen(digits) != DIGITS || checksum != checksum_of(key, digits)) return false;
    *found = (choice){{0}, {{0}}};
    memcpy(found->key, key, strlen(key));
    for (size_t i = 0; i < sizeof found->algorithm; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1) return false;
        ((unsigned char *)&found->algorithm)[i] = (unsigned char)byte;
    }
    return true;
}

/* ---- the list -----------------------------------------------------------------------------------------------------
 */

static choice *find(const ups_cuda_choices *c, const char *key) {
    for (int i = 0; i < c->count; i++) {
        if (strcmp(c->list[i].key, key) == 0) return &c->list[i];
    }
    return NULL;
}

static bool append(ups_cuda_choices *c, const choice *made) {
    if (find(c, made->key)) return false;
    if (c->count == c->room) {
        const int room = c->room ? 2 * c->room : 64;
        choice *list = realloc(c->list, (size_t)room * sizeof *list);
        if (!list) return false;
        c->list = list;
        c->room = room;
    }
    c->list[c->count++] = *made;
    return true;
}

static void read_all(ups_cuda_choices *c) {
    char *text = NULL;
    size_t length;
    if (ups_read_regular(c->path, LARGEST_FILE, &text, &length, NULL) != UPS_OK) return;
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        choice found;
        if (!end) break; /* it was cut off */
        *end = '\0';
        if (read_line(line, &found)) append(c, &found);
        line = end + 1;
    }
    free(text);
}

/* ---- the file -----------------------------------------------------------------------------------------------------
 */

/* In the user's cache; NULL: the user has none. */
static char *default_path(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && cache[0] == '/';
    char *path = NULL;
    if (!own && (!home || !*home)) return NULL;
    return asprintf(&path, "%s%s/ups/cublaslt.txt", own ? cache : home, own ? "" : "/.cache") < 0 ? NULL : path;
}

static void name_card(ups_cuda_choices *c, const char *card, int driver, size_t library) {
    enum { FORM = 2 }; /* another one where a product's name, or what UPS asks of the library, changes */
    char name[64];
    size_t used = 0;
    for (; *card && used + 1 < sizeof name; card++) {
        const bool plain =
            (*card >= 'a' && *card <= 'z') || (*card >= 'A' && *card <= 'Z') || (*card >= '0' && *card <= '9');
        name[used++] = plain ? *card : '_';
    }
    name[used] = '\0';
    snprintf(c->prefix, sizeof c->prefix, "%d/%s/%d/%zu/", FORM, name, driver, library);
}

ups_cuda_choices *ups_cuda_choices_open(const char *card, int driver, size_t library) {
    const char *wanted = getenv("UPS_CUDA_CHOICES");
    if (wanted && !*wanted) return NULL;
    ups_cuda_choices *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    name_card(c, card, driver, library);
    c->path = wanted ? strdup(wanted) : default_path();
    if (c->path) read_all(c);
    return c;
}

void ups_cuda_choices_close(ups_cuda_choices *c) {
    if (!c) return;
    free(c->path);
    free(c->list);
    free(c);
}

static void make_folder_of(const char *path) {
    char *folder = strdup(path), *end = folder ? strrchr(folder, '/') : NULL;
    if (end && end > folder) {
        *end = '\0';
        ups_make_directories(folder, NULL);
    }
    free(folder);
}

static bool whole_key(const ups_cuda_choices *c, const char *key, char whole[UPS_CUDA_CHOICE_KEY]) {
    return snprintf(whole, UPS_CUDA_CHOICE_KEY, "%s%s", c->prefix, key) < UPS_CUDA_CHOICE_KEY;
}

bool ups_cuda_choices_find(const ups_cuda_choices *c, const char *key, cublasLtMatmulAlgo_t *algorithm) {
    char whole[UPS_CUDA_CHOICE_KEY];
    const choice *found = whole_key(c, key, whole) ? find(c, whole) : NULL;
    if (found) *algorithm = found->algorithm;
    return found;
}

/* One writer at a time, and one write a line. */
static void write_to_file(ups_cuda_choices *c, const choice *made) {
    char line[LINE];
    make_folder_of(c->path);
    const int file = open(c->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (flock(file, LOCK_EX) == 0) {
        read_all(c);
        if (!find(c, made->key) && lseek(file, 0, SEEK_END) < LARGEST_FILE - LINE) {
            const ssize_t written = write(file, line, (size_t)write_line(made, line));
            (void)written; /* a part of a line spoils the next one, no more */
        }
    }
    close(file);
}

void ups_cuda_choices_add(ups_cuda_choices *c, const char *key, cublasLtMatmulAlgo_t *algorithm) {
    choice made = {{0}, *algorithm};
    if (!whole_key(c, key, made.key) || find(c, made.key)) return;
    if (c->path) write_to_file(c, &made);
    const choice *theirs = find(c, made.key);
    if (theirs)
        *algorithm = theirs->algorithm;
    else
        append(c, &made);
}
