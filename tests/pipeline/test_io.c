/* The I/O engines' claims, each for the ring and for threads, through the page cache and around it. */

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/arena.h"
#include "base/files.h"
#include "pipeline/io/io.h"
#include "tests/base/testing.h"

#define FILES 3
#define FILE_BYTES 300001 /* no multiple of anything */

static char directory[] = "ups-test-io-XXXXXX";
static char paths[FILES][64];
static const char *names[FILES];
static uint8_t *contents[FILES];

static int make_files(void **state) {
    if (!mkdtemp(directory)) return -1;
    srand(5);
    for (int f = 0; f < FILES; f++) {
        snprintf(paths[f], sizeof paths[f], "%s/%d.bin", directory, f);
        names[f] = paths[f];
        contents[f] = malloc(FILE_BYTES);
        for (int i = 0; i < FILE_BYTES; i++) contents[f][i] = (uint8_t)rand();
        if (ups_publish_bytes(paths[f], contents[f], FILE_BYTES, NULL) != UPS_OK) return -1;
    }
    return 0;
}

static int remove_files(void **state) {
    for (int f = 0; f < FILES; f++) {
        unlink(paths[f]);
        free(contents[f]);
    }
    return rmdir(directory);
}

static ups_io *open_engine(const char *const *files, int64_t count, ups_io_engine engine, int depth, bool direct) {
    ups_io_options options = {.engine = engine, .queue_depth = depth, .threads = 3, .direct = direct};
    ups_io *io = NULL;
    ups_error error = {0};
    if (ups_io_open(files, count, &options, &io, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_int_equal(ups_io_chosen(io), engine);
    return io;
}

/* How a claim reads: it is registered for each. */
typedef struct way {
    ups_io_engine engine;
    bool direct;
} way;

/* Reads `reads` random extents, keeping the queue as full as it gets, and compares every byte. */
static void read_random_extents(const way *w, int depth, bool registered) {
    enum { READS = 400, LONGEST = 40000 };
    ups_io *io = open_engine(names, FILES, w->engine, depth, w->direct);
    uint64_t room = ups_io_room(LONGEST);
    uint8_t *memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, room * (size_t)depth);
    if (registered) ups_io_register_buffers(io, memory, room * (uint64_t)depth);
    int unused[64], unused_count = depth, started = 0, finished = 0;
    for (int i = 0; i < depth; i++) unused[i] = i;
    while (finished < READS) {
        while (started < READS && unused_count > 0) {
            uint64_t length = (uint64_t)(rand() % LONGEST);
            ups_extent extent = {(uint32_t)(rand() % FILES), (uint64_t)(rand() % (FILE_BYTES - LONGEST)), length};
            if (started % 7 == 0) extent.offset = FILE_BYTES - length; /* up to the last byte */
            int buffer = unused[--unused_count];
            assert_true(ups_io_submit(io, extent, memory + (uint64_t)buffer * room, (uint64_t)buffer));
            started++;
        }
        if (unused_count == 0) assert_false(ups_io_submit(io, (ups_extent){0, 0, 1}, memory, 0));
        assert_int_equal(ups_io_in_flight(io), depth - unused_count);
        ups_io_completion completions[5];
        int count = 0;
        assert_int_equal(ups_io_reap(io, true, completions, 5, &count, NULL), UPS_OK);
        assert_in_range(count, 1, 5);
        for (int i = 0; i < count; i++) {
            assert_int_equal(completions[i].status, UPS_OK);
            assert_int_equal(completions[i].got, completions[i].extent.length);
            assert_memory_equal(completions[i].bytes,
                                contents[completions[i].extent.file] + completions[i].extent.offset,
                                completions[i].extent.length);
            unused[unused_count++] = (int)completions[i].tag;
            finished++;
        }
    }
    ups_io_close(io);
    ups_aligned_free(memory);
}

static const way threads = {UPS_IO_THREADS, false}, ring = {UPS_IO_URING, false},
                 threads_direct = {UPS_IO_THREADS, true}, ring_direct = {UPS_IO_URING, true};

/* Skipped where the kernel or the build has no such engine, or the file system no O_DIRECT: engines would then read in
 * another way, under this one's name. */
static const way *way_of(const char *claim, void **state) {
    const way *w = *state;
    char reason[200];
    if (w->engine == UPS_IO_URING && !ups_io_uring_available(reason))
        skip_claim_because(claim, "no io_uring here: %s", reason);
    int file = w->direct ? open(names[0], O_RDONLY | O_DIRECT) : -1;
    if (w->direct && file < 0) skip_claim_because(claim, "the file system of the build folder refuses O_DIRECT");
    if (file >= 0) close(file);
    return w;
}

static void random_extents_are_read_bit_for_bit(void **state) {
    const way *w = way_of(__func__, state);
    const int depths[] = {1, 7, 64};
    for (int d = 0; d < 3; d++) {
        read_random_extents(w, depths[d], false);
        if (w->engine == UPS_IO_URING) read_random_extents(w, depths[d], true);
    }
}

static ups_io_completion read_one(ups_io *io, ups_extent extent, void *buffer) {
    ups_io_completion completion = {0};
    int count = 0;
    assert_true(ups_io_submit(io, extent, buffer, 42));
    assert_int_equal(ups_io_reap(io, true, &completion, 1, &count, NULL), UPS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(completion.tag, 42);
    return completion;
}

static void a_read_past_the_end_names_the_file_and_the_place(void **state) {
    const way *w = way_of(__func__, state);
    ups_io *io = open_engine(names, FILES, w->engine, 4, w->direct);
    void *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(8192));
    ups_error error = {0};
    ups_io_completion completion = read_one(io, (ups_extent){1, FILE_BYTES - 100, 8192}, buffer);
    assert_fails(ups_io_completion_error(io, &completion, &error), UPS_ERR_FORMAT, error,
                 "1.bin: truncated: 8192 bytes expected at offset 299901, 100 found");
    completion = read_one(io, (ups_extent){2, FILE_BYTES + 5000, 10}, buffer);
    assert_fails(ups_io_completion_error(io, &completion, &error), UPS_ERR_FORMAT, error,
                 "2.bin: truncated: 10 bytes expected at offset 305001, 0 found");
    completion = read_one(io, (ups_extent){2, FILE_BYTES - 10, 10}, buffer); /* and the engine goes on */
    assert_int_equal(completion.status, UPS_OK);
    ups_io_close(io);
    ups_aligned_free(buffer);
}

static void a_refused_read_carries_the_systems_reason(void **state) {
    const way *w = way_of(__func__, state);
    const char *files[] = {"/proc/self/mem"}; /* nothing lies at address 0 */
    ups_io *io = open_engine(files, 1, w->engine, 4, w->direct);
    void *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(10));
    ups_error error = {0};
    ups_io_completion completion = read_one(io, (ups_extent){0, 0, 10}, buffer);
    assert_fails(ups_io_completion_error(io, &completion, &error), UPS_ERR_IO, error, "/proc/self/mem");
    assert_contains(error.message, "Input/output error");
    ups_io_close(io);
    ups_aligned_free(buffer);
}

/* /proc hands out a page or so a read, and refuses O_DIRECT when opened with it. */
enum { PROC_BYTES = 60000 };
static uint8_t symbols[PROC_BYTES];

static bool kernel_shows_its_symbols(void) {
    FILE *file = fopen("/proc/kallsyms", "rb");
    size_t there = file ? fread(symbols, 1, PROC_BYTES, file) : 0;
    if (file) fclose(file);
    return there == PROC_BYTES;
}

static void short_reads_are_continued_and_refused_o_direct_falls_back(void **state) {
    const way *w = way_of(__func__, state);
    const char *files[] = {"/proc/kallsyms"};
    enum { WANTED = PROC_BYTES };
    if (!kernel_shows_its_symbols()) skip_because("/proc/kallsyms is not long enough: nothing else in /proc is");
    ups_io *io = open_engine(files, 1, w->engine, 4, w->direct);
    void *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(WANTED));
    ups_io_completion completion = read_one(io, (ups_extent){0, 1234, WANTED - 1234}, buffer);
    assert_int_equal(completion.status, UPS_OK);
    assert_memory_equal(completion.bytes, symbols + 1234, WANTED - 1234);
    ups_io_close(io);
    ups_aligned_free(buffer);
}

static void closing_with_reads_in_flight_waits_for_them(void **state) {
    const way *w = way_of(__func__, state);
    enum { DEPTH = 32 };
    for (int round = 0; round < 20; round++) {
        ups_io *io = open_engine(names, FILES, w->engine, DEPTH, w->direct);
        uint64_t room = ups_io_room(FILE_BYTES);
        uint8_t *memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, room * DEPTH);
        for (int i = 0; i < DEPTH; i++)
            assert_true(
                ups_io_submit(io, (ups_extent){(uint32_t)i % FILES, 0, FILE_BYTES}, memory + (uint64_t)i * room, 0));
        int count = 0;
        ups_io_completion completion;
        assert_int_equal(ups_io_reap(io, false, &completion, 1, &count, NULL), UPS_OK);
        ups_io_close(io);
        memset(memory, 0, room * DEPTH); /* nobody else may write here any more: the sanitizers watch */
        ups_aligned_free(memory);
    }
}

static void *reap_elsewhere(void *context) {
    ups_io *io = context;
    uint8_t *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(1000));
    ups_io_completion completion = {.status = UPS_ERR_IO};
    int count = 0;
    bool same = ups_io_submit(io, (ups_extent){0, 77, 1000}, buffer, 1) &&
                ups_io_reap(io, true, &completion, 1, &count, NULL) == UPS_OK && completion.status == UPS_OK &&
                memcmp(completion.bytes, contents[0] + 77, 1000) == 0;
    ups_aligned_free(buffer);
    return same ? context : NULL;
}

static void one_thread_may_open_and_another_read(void **state) {
    const way *w = way_of(__func__, state);
    ups_io *io = open_engine(names, FILES, w->engine, 4, w->direct);
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, reap_elsewhere, io), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, io);
    ups_io_close(io);
}

/* Makes io_uring_setup fail with EPERM in this process, as container run-times do. */
static bool refuse_io_uring(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* In the child: 0 when the fallback works and the refusal is explained. */
static int read_without_io_uring(void *unused) {
    if (!refuse_io_uring()) return UPS_SKIPPED_EXIT;
    char reason[200];
    const char *cause = ups_io_uring_version() ? "not permitted" : "no liburing";
    if (ups_io_uring_available(reason) || !strstr(reason, cause)) return 2;
    ups_io *io = NULL;
    ups_error error = {0};
    ups_io_options options = {.engine = UPS_IO_URING};
    if (ups_io_open(names, FILES, &options, &io, &error) != UPS_ERR_UNSUPPORTED) return 3;
    if (!strstr(error.message, cause) || !strstr(error.message, "threads")) return 4;
    options.engine = UPS_IO_AUTO;
    if (ups_io_open(names, FILES, &options, &io, &error) != UPS_OK) return 5;
    if (ups_io_chosen(io) != UPS_IO_THREADS) return 6;
    int result = reap_elsewhere(io) == io ? 0 : 7;
    ups_io_close(io);
    return result;
}

static void where_io_uring_is_refused_auto_reads_with_threads(void **state) {
    int code = exit_code_of(read_without_io_uring, NULL);
    if (code == UPS_SKIPPED_EXIT) skip_because("this kernel has no seccomp to refuse io_uring with");
    assert_int_equal(code, 0);
}

static void a_missing_file_is_named(void **state) {
    const char *files[] = {names[0], "no-such-file.h5"};
    ups_io *io = NULL;
    ups_error error = {0};
    ups_io_options options = {0};
    assert_fails(ups_io_open(files, 2, &options, &io, &error), UPS_ERR_IO, error, "no-such-file.h5");
    assert_null(io);
}

static void more_files_than_the_soft_limit_of_descriptors_open(void **state) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    enum { MANY = 300 };
    if (limit.rlim_max < 2 * MANY)
        skip_because("at most %llu descriptors are allowed here, which is too few", (unsigned long long)limit.rlim_max);
    limit.rlim_cur = 128;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const char *files[MANY];
    for (int i = 0; i < MANY; i++) files[i] = names[i % FILES];
    ups_io *io = open_engine(files, MANY, UPS_IO_THREADS, 4, false);
    void *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(50));
    ups_io_completion completion = read_one(io, (ups_extent){MANY - 1, 9, 50}, buffer);
    assert_memory_equal(completion.bytes, contents[(MANY - 1) % FILES] + 9, 50);
    ups_io_close(io);
    ups_aligned_free(buffer);
}

/* ---- more files than may be open ---- */

enum { MANY_FILES = 300, FEW_DESCRIPTORS = 64, MANY_BYTES = 5000 };

static void fill_pattern(int file, uint8_t bytes[MANY_BYTES]) {
    for (int i = 0; i < MANY_BYTES; i++) bytes[i] = (uint8_t)(file * 31 + i * 7 + i / 256);
}

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < FEW_DESCRIPTORS; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

typedef struct many {
    ups_io *io;
    char names[MANY_FILES][80];
    const char *files[MANY_FILES];
    int failures;
} many;

/* As decode threads do: looks into the page cache and copies out of it, beside the thread that submits. */
static void *read_beside(void *context) {
    many *m = context;
    uint8_t *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(100)), expected[MANY_BYTES];
    for (unsigned i = 0; i < 3000; i++) {
        ups_extent extent = {i * 2654435761u % MANY_FILES, i % 4000, 100};
        ups_io_cached(m->io, extent);
        ups_io_completion read = ups_io_read_now(m->io, extent, buffer);
        fill_pattern((int)extent.file, expected);
        if (read.status != UPS_OK || memcmp(read.bytes, expected + extent.offset, 100) != 0) m->failures++;
    }
    ups_aligned_free(buffer);
    return NULL;
}

static int read_many(many *m, ups_io_engine engine, bool direct) {
    enum { DEPTH = 64, READS = 2000 }; /* more than files may be open */
    ups_io_options options = {.engine = engine, .queue_depth = DEPTH, .threads = 2, .direct = direct};
    ups_error error;
    if (ups_io_open(m->files, MANY_FILES, &options, &m->io, &error) != UPS_OK) return 2;
    if (open_descriptors() > FEW_DESCRIPTORS / 2) return 3;
    pthread_t beside;
    if (pthread_create(&beside, NULL, read_beside, m) != 0) return 4;
    uint64_t room = ups_io_room(1000);
    uint8_t *memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, room * DEPTH), expected[MANY_BYTES];
    int unused[DEPTH], unused_count = DEPTH, started = 0, finished = 0;
    for (int i = 0; i < DEPTH; i++) unused[i] = i;
    while (finished < READS) {
        while (started < READS && unused_count > 0) {
            ups_extent extent = {(uint32_t)(rand() % MANY_FILES), (uint64_t)(rand() % 4000), 1000};
            int buffer = unused[unused_count - 1];
            if (!ups_io_submit(m->io, extent, memory + (uint64_t)buffer * room, (uint64_t)buffer)) break;
            unused_count--;
            started++;
        }
        ups_io_completion completions[5];
        int count = 0;
        if (ups_io_reap(m->io, true, completions, 5, &count, NULL) != UPS_OK) return 5;
        for (int i = 0; i < count; i++) {
            fill_pattern((int)completions[i].extent.file, expected);
            if (completions[i].status != UPS_OK ||
                memcmp(completions[i].bytes, expected + completions[i].extent.offset, 1000) != 0)
                return 6;
            unused[unused_count++] = (int)completions[i].tag;
            finished++;
        }
        if (open_descriptors() > FEW_DESCRIPTORS / 2) return 7;
    }
    pthread_join(beside, NULL);
    /* One that changed while it was closed is found out, and named. */
    for (int f = 0; f < MANY_FILES; f++) {
        int fd = open(m->names[f], O_WRONLY | O_APPEND);
        if (write(fd, "x", 1) != 1 || close(fd) != 0) return 8;
        ups_io_completion read = ups_io_read_now(m->io, (ups_extent){(uint32_t)f, 0, 10}, memory);
        if (read.status != UPS_ERR_STALE) return 9;
        if (ups_io_completion_error(m->io, &read, &error) != UPS_ERR_STALE || !strstr(error.message, "5001 now"))
            return 10;
        if (truncate(m->names[f], MANY_BYTES) != 0) return 11;
    }
    /* With none left the message says so. */
    ups_io_close(m->io);
    int taken[FEW_DESCRIPTORS], taken_count = 0;
    while ((taken[taken_count] = open("/dev/null", O_RDONLY)) >= 0) taken_count++;
    ups_status refused = ups_io_open(m->files, MANY_FILES, &options, &m->io, &error);
    if (refused == UPS_OK) ups_io_close(m->io);
    while (taken_count > 0) close(taken[--taken_count]);
    ups_aligned_free(memory);
    if (refused != UPS_ERR_IO || !strstr(error.message, "ulimit -n")) return 13;
    return m->failures > 0 ? 12 : 0;
}

/* Where the first file was closed again, and is wanted: from another directory, and when it is gone. */
static int reopen_first(many *m, ups_io_engine engine) {
    ups_io_options options = {.engine = engine, .queue_depth = 4, .threads = 2};
    if (ups_io_open(m->files, MANY_FILES, &options, &m->io, NULL) != UPS_OK) return 2;
    uint8_t *buffer = ups_aligned_alloc(UPS_IO_ALIGNMENT, ups_io_room(10));
    char *here = getcwd(NULL, 0), aside[100];
    ups_io_completion completions[2] = {{.status = UPS_OK}}; /* room for more: the back end is asked, too */
    int count = 0, wrong = 0;
    snprintf(aside, sizeof aside, "%s-aside", m->names[0]);
    if (rename(m->names[0], aside) != 0) return 3;
    if (!ups_io_submit(m->io, (ups_extent){0, 0, 10}, buffer, 7)) wrong = 4;
    if (!wrong && ups_io_reap(m->io, false, completions, 2, &count, NULL) != UPS_OK) wrong = 5; /* the first call */
    if (!wrong && (count != 1 || completions[0].tag != 7 || completions[0].status != UPS_ERR_IO)) wrong = 6;
    if (!wrong && (ups_io_in_flight(m->io) != 0 || completions[0].error_number != ENOENT)) wrong = 7;
    if (rename(aside, m->names[0]) != 0) return 8;
    if (chdir("/") != 0) return 9;
    if (!wrong && ups_io_read_now(m->io, (ups_extent){0, 0, 10}, buffer).status != UPS_OK) wrong = 10;
    if (chdir(here) != 0) return 11;
    ups_io_close(m->io);
    ups_aligned_free(buffer);
    free(here);
    return wrong;
}

static int read_many_in_child(void *context) {
    many *m = context;
    struct rlimit few = {FEW_DESCRIPTORS, FEW_DESCRIPTORS};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    for (int by_ring = 0; by_ring <= ups_io_uring_available(NULL); by_ring++) {
        int wrong = reopen_first(m, by_ring ? UPS_IO_URING : UPS_IO_THREADS);
        if (wrong) return 40 + 20 * by_ring + wrong;
    }
    for (int direct = 0; direct < 2; direct++) {
        int wrong = read_many(m, UPS_IO_THREADS, direct);
        if (wrong) return wrong;
        if (!ups_io_uring_available(NULL)) continue;
        if ((wrong = read_many(m, UPS_IO_URING, direct)) != 0) return 20 + wrong;
    }
    return 0;
}

static void more_files_than_may_be_open_are_read_by_a_few_descriptors(void **state) {
    many *m = calloc(1, sizeof *m);
    uint8_t bytes[MANY_BYTES];
    for (int f = 0; f < MANY_FILES; f++) {
        snprintf(m->names[f], sizeof m->names[f], "%s/many-%d.bin", directory, f);
        m->files[f] = m->names[f];
        fill_pattern(f, bytes);
        assert_int_equal(ups_publish_bytes(m->names[f], bytes, MANY_BYTES, NULL), UPS_OK);
    }
    int code = exit_code_of(read_many_in_child, m);
    for (int f = 0; f < MANY_FILES; f++) unlink(m->names[f]);
    free(m);
    assert_int_equal(code, 0);
}

static void a_pipe_is_refused_by_name_at_once(void **state) {
    char path[90];
    snprintf(path, sizeof path, "%s/pipe", directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    const char *files[] = {names[0], path};
    ups_io *io = NULL;
    ups_error error = {0};
    ups_io_options options = {0};
    alarm(30);
    ups_status status = ups_io_open(files, 2, &options, &io, &error);
    alarm(0);
    unlink(path);
    assert_int_equal(status, UPS_ERR_FORMAT);
    assert_contains(error.message, "pipe: is a named pipe");
}

static void engines_have_names(void **state) {
    ups_io_engine engine;
    assert_true(ups_io_engine_parse("threads", &engine));
    assert_int_equal(engine, UPS_IO_THREADS);
    assert_string_equal(ups_io_engine_name(UPS_IO_URING), "uring");
    assert_false(ups_io_engine_parse("aio", &engine));
}

static void the_room_for_an_extent_is_never_less_than_the_extent_takes(void **state) {
    assert_int_equal(ups_io_room(0), 2 * UPS_IO_ALIGNMENT);
    assert_int_equal(ups_io_room(4097), 4 * UPS_IO_ALIGNMENT);
    const uint64_t largest = UINT64_MAX - UPS_IO_ALIGNMENT + 1;
    static const uint64_t below[] = {0, 1, 4095, 4096, 8191, 8192, 12288, 12289, 1 << 20};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        uint64_t room = ups_io_room(UINT64_MAX - below[i]);
        assert_true(room <= largest && room % UPS_IO_ALIGNMENT == 0);
        assert_true(room == largest || room >= UINT64_MAX - below[i] + 2 * UPS_IO_ALIGNMENT);
    }
}

#define one_way(claim, w)                                                                                              \
    { #claim ", " #w, claim, NULL, NULL, (void *)&(w) }
#define by_every_way(claim)                                                                                            \
    one_way(claim, threads), one_way(claim, threads_direct), one_way(claim, ring), one_way(claim, ring_direct)

int main(void) {
    const struct CMUnitTest tests[] = {
        by_every_way(random_extents_are_read_bit_for_bit),
        by_every_way(a_read_past_the_end_names_the_file_and_the_place),
        by_every_way(a_refused_read_carries_the_systems_reason),
        by_every_way(short_reads_are_continued_and_refused_o_direct_falls_back),
        by_every_way(closing_with_reads_in_flight_waits_for_them),
        by_every_way(one_thread_may_open_and_another_read),
        cmocka_unit_test(where_io_uring_is_refused_auto_reads_with_threads),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(more_files_than_the_soft_limit_of_descriptors_open),
        cmocka_unit_test(a_pipe_is_refused_by_name_at_once),
        cmocka_unit_test(more_files_than_may_be_open_are_read_by_a_few_descriptors),
        cmocka_unit_test(engines_have_names),
        cmocka_unit_test(the_room_for_an_extent_is_never_less_than_the_extent_takes),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
