/* `ups bench io`: random reads by each engine, through the page cache and around it, in turn. */
#include "base/arena.h"
#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "base/threads.h"
#include "pipeline/io.h"
#include "tools/bench_data.h"
#include "tools/command.h"
#include "tools/commands.h"
#include <stdio.h>
#include <stdlib.h>

enum { SIZE, BLOCK, DEPTH, THREADS, SECONDS, ROUNDS, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SIZE] = {"size", 's', "MIB", "size of the file that is made when none is given (default 512)"},
    [BLOCK] = {"block", 'b', "KIB", "bytes a read (default 256)"},
    [DEPTH] = {"queue-depth", 0, "N", "reads in flight (default 32)"},
    [THREADS] = {"threads", 't', "N", "threads of the threads engine (default 4)"},
    [SECONDS] = {"seconds", 0, "S", "time for each way and round (default 0.5)"},
    [ROUNDS] = {"rounds", 'n', "N", "times each way has its turn; the median counts (default 5)"},
};

static const ups_usage usage = {
    "bench io",
    "[FILE]",
    "measures random reads by io_uring and by threads",
    options,
    OPTION_COUNT,
    "Reads blocks at random places of FILE or of a file of random bytes that it makes in $TMPDIR and removes. The\n"
    "page cache is as the reads before left it: warm, when the file fits into memory. `direct` goes around it.",
};

typedef struct read_plan {
    const char *path;
    uint64_t file_bytes, block;
    int depth, threads;
    double seconds;
} read_plan;

/* Bytes a second of one way of reading. */
static ups_status measure(const read_plan *plan, ups_io_engine engine, bool direct, uint32_t round, double *rate,
                          ups_error *error) {
    ups_io_options how = {.engine = engine, .queue_depth = plan->depth, .threads = plan->threads, .direct = direct};
    ups_io *io = NULL;
    UPS_TRY(ups_io_open(&plan->path, 1, &how, &io, error));
    uint64_t room = ups_io_room(plan->block), blocks = plan->file_bytes / plan->block, draw = 0;
    uint8_t *memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, room * (uint64_t)plan->depth);
    if (!memory) {
        ups_io_close(io);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d reads", plan->depth);
    }
    if (direct) ups_io_register_buffers(io, memory, room * (uint64_t)plan->depth);
    ups_random places = ups_random_stream(round, UPS_RANDOM_TEST, 0);
    for (; draw < (uint64_t)plan->depth; draw++)
        ups_io_submit(io, (ups_extent){0, ups_random_below(places, draw, blocks) * plan->block, plan->block},
                      memory + draw * room, draw);
    double start = ups_now(), now = start, bytes = 0.0;
    ups_status status = UPS_OK;
    while (status == UPS_OK && now - start < plan->seconds) {
        ups_io_completion done[16];
        int count = 0;
        status = ups_io_reap(io, true, done, 16, &count, error);
        for (int i = 0; i < count && status == UPS_OK; i++) {
            status = ups_io_completion_error(io, &done[i], error);
            bytes += (double)done[i].got;
            ups_extent extent = {0, ups_random_below(places, draw++, blocks) * plan->block, plan->block};
            ups_io_submit(io, extent, memory + done[i].tag * room, done[i].tag);
        }
        now = ups_now();
    }
    *rate = bytes / (now - start);
    ups_io_close(io);
    ups_aligned_free(memory);
    return status;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { WAYS = 4, MOST_ROUNDS = 101 };
static const struct way {
    const char *name;
    ups_io_engine engine;
    bool direct;
} ways[WAYS] = {
    {"uring", UPS_IO_URING, false},
    {"threads", UPS_IO_THREADS, false},
    {"uring, direct", UPS_IO_URING, true},
    {"threads, direct", UPS_IO_THREADS, true},
};

static ups_status compare(const read_plan *plan, int64_t rounds, bool as_json, ups_error *error) {
    char reason[200];
    bool ring = ups_io_uring_available(reason);
    double rates[WAYS][MOST_ROUNDS];
    for (int64_t r = -1; r < rounds; r++) /* the first round warms up */
        for (int w = 0; w < WAYS; w++)
            if (ring || ways[w].engine != UPS_IO_URING)
                UPS_TRY(
                    measure(plan, ways[w].engine, ways[w].direct, (uint32_t)(r + 1), &rates[w][r < 0 ? 0 : r], error));
    json_t *rows = json_array();
    for (int w = 0; w < WAYS; w++) {
        if (!ring && ways[w].engine == UPS_IO_URING) continue;
        qsort(rates[w], (size_t)rounds, sizeof **rates, ascending);
        json_array_append_new(rows, json_pack("{s:s, s:b, s:f, s:f, s:f}", "io", ups_io_engine_name(ways[w].engine),
                                              "direct", ways[w].direct, "gb_per_s", rates[w][rounds / 2] / 1e9,
                                              "lowest", rates[w][0] / 1e9, "highest", rates[w][rounds - 1] / 1e9));
        if (!as_json)
            printf("%-16s %6.2f GB/s (%.2f to %.2f)\n", ways[w].name, rates[w][rounds / 2] / 1e9, rates[w][0] / 1e9,
                   rates[w][rounds - 1] / 1e9);
    }
    if (as_json) {
        json_t *facts = json_pack("{s:I, s:i, s:O}", "block_bytes", (json_int_t)plan->block, "queue_depth", plan->depth,
                                  "ways", rows);
        json_dumpf(facts, stdout, JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(facts);
    } else if (!ring) {
        printf("no io_uring here: %s\n", reason);
    }
    json_decref(rows);
    return UPS_OK;
}

int ups_cmd_bench_io(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t mib = 512, kib = 256, depth = 32, threads = 4, rounds = 5;
    double seconds = 0.5;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SIZE) ups_arguments_integer(&arguments, 1, 1 << 20, &mib);
        if (option == BLOCK) ups_arguments_integer(&arguments, 1, 1 << 20, &kib);
        if (option == DEPTH) ups_arguments_integer(&arguments, 1, 4096, &depth);
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 256, &threads);
        if (option == SECONDS) ups_arguments_real(&arguments, 0.01, 600.0, &seconds);
        if (option == ROUNDS) ups_arguments_integer(&arguments, 1, MOST_ROUNDS, &rounds);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 1) return ups_command_usage_error(&arguments, "at most one FILE was expected");

    ups_error error = {0};
    char *directory = NULL, *made = NULL;
    ups_status status = UPS_OK;
    read_plan plan = {.block = (uint64_t)kib << 10, .depth = (int)depth, .threads = (int)threads, .seconds = seconds};
    if (arguments.operand_count == 0) {
        status = ups_bench_directory(&directory, &error);
        if (status == UPS_OK) status = ups_bench_make_file(directory, (uint64_t)mib << 20, &made, &error);
    }
    plan.path = arguments.operand_count ? arguments.operands[0] : made;
    if (status == UPS_OK) status = ups_file_size(plan.path, &plan.file_bytes, &error);
    if (status == UPS_OK && plan.file_bytes < plan.block)
        status =
            ups_fail(&error, UPS_ERR_ARGUMENT, "%s: is smaller than one block of %lld KiB", plan.path, (long long)kib);
    if (status == UPS_OK) status = compare(&plan, rounds, arguments.json, &error);
    free(made);
    ups_bench_remove(directory);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
}
