/* `ups bench io`: random reads by each engine, through the page cache and around it, in turn. */
#include "pipeline/io/io.h"
#include "base/arena.h"
#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "tools/bench/data.h"
#include "tools/bench/go_on.h"
#include "tools/bench/median.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <stdio.h>
#include <stdlib.h>

enum { SIZE, BLOCK, DEPTH, THREADS, SECONDS, ROUNDS, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SIZE] = {"size", 0, "MIB", "size of the file that is made when none is given (default 512)"},
    [BLOCK] = {"block", 0, "KIB", "bytes a read (default 256)"},
    [DEPTH] = {"depth", 0, "N[,N...]", "reads in flight; several are compared (default 32)"},
    [THREADS] = {"threads", 't', "N", "threads of the threads engine (default 4)"},
    [SECONDS] = {"seconds", 0, "S", "time for each way and round (default 0.5)"},
    [ROUNDS] = {"rounds", 0, "N", "times each way has its turn; the median counts (default 5)"},
};

static const ups_usage usage = {
    "bench io",
    "[FILE]",
    "measures random reads by io_uring and by threads",
    options,
    OPTION_COUNT,
    "Reads blocks at random places of FILE or of a file of random bytes that it makes in $TMPDIR and removes. The\n"
    "page cache is as the reads before left it: warm, when the file fits into memory. `direct` goes around it.\n\n"
    "Example, how many reads in flight are enough here:\n  ups bench io --depth 1,2,4,8,16,32,64,128\n",
};

enum { WAYS = 4, MAXIMUM_ROUNDS = 101, MAXIMUM_DEPTHS = 16 };

typedef struct read_plan {
    const char *path;
    uint64_t file_bytes, block;
    int depths[MAXIMUM_DEPTHS], depth_count, threads;
    double seconds;
} read_plan;

/* Bytes a second of one way of reading. */
static ups_status measure(const read_plan *plan, ups_io_engine engine, bool direct, int depth, uint32_t round,
                          double *rate, ups_error *error) {
    ups_io_options how = {.engine = engine, .queue_depth = depth, .threads = plan->threads, .direct = direct};
    ups_io *io = NULL;
    UPS_TRY(ups_io_open(&plan->path, 1, &how, &io, error));
    uint64_t room = ups_io_room(plan->block), blocks = plan->file_bytes / plan->block, draw = 0;
    uint8_t *memory = ups_aligned_alloc(UPS_IO_ALIGNMENT, room * (uint64_t)depth);
    if (!memory) {
        ups_io_close(io);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d reads", depth);
    }
    if (direct) ups_io_register_buffers(io, memory, room * (uint64_t)depth);
    ups_random places = ups_random_stream(round, UPS_RANDOM_TEST, 0);
    for (; draw < (uint64_t)depth; draw++)
        ups_io_submit(io, (ups_extent){0, ups_random_below(places, draw, blocks) * plan->block, plan->block},
                      memory + draw * room, draw);
    double start = ups_now(), now = start, bytes = 0.0;
    ups_status status = UPS_OK;
    while (status == UPS_OK && now - start < plan->seconds) {
        ups_io_completion done[16];
        int count = 0;
        status = ups_bench_go_on(error);
        if (status == UPS_OK) status = ups_io_reap(io, true, done, 16, &count, error);
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

typedef double rates_of_way[WAYS][MAXIMUM_ROUNDS];

static json_t *row_json(const struct way *way, int depth, const double *rates, int64_t rounds) {
    return json_pack("{s:s, s:b, s:i, s:f, s:f, s:f}", "io", ups_io_engine_name(way->engine), "direct", way->direct,
                     "queue_depth", depth, "gb_per_s", rates[rounds / 2] / 1e9, "lowest", rates[0] / 1e9, "highest",
                     rates[rounds - 1] / 1e9);
}

static void print(const read_plan *plan, rates_of_way *rates, int64_t rounds, const char *no_ring, bool as_json) {
    json_t *rows = json_array();
    for (int d = 0; d < plan->depth_count; d++) {
        for (int w = 0; w < WAYS; w++) {
            if (no_ring && ways[w].engine == UPS_IO_URING) continue;
            double *of = rates[d][w];
            const double median = ups_bench_median(of, rounds);
            json_array_append_new(rows, row_json(&ways[w], plan->depths[d], of, rounds));
            if (as_json) continue;
            if (plan->depth_count > 1) printf("depth %-4d ", plan->depths[d]);
            printf("%-16s %6.2f GB/s (%.2f to %.2f)\n", ways[w].name, median / 1e9, of[0] / 1e9, of[rounds - 1] / 1e9);
        }
    }
    if (as_json) {
        json_t *facts = json_pack("{s:I, s:i, s:O}", "block_bytes", (json_int_t)plan->block, "loader_queue_depth",
                                  UPS_IO_DEFAULT_QUEUE_DEPTH, "ways", rows);
        ups_print_json(facts, JSON_REAL_PRECISION(6));
        json_decref(facts);
    } else {
        if (plan->depth_count > 1) printf("the loader reads with at most %d in flight\n", UPS_IO_DEFAULT_QUEUE_DEPTH);
        if (no_ring) printf("no io_uring here: %s\n", no_ring);
    }
    json_decref(rows);
}

/* All depths and ways in turn, so that what else goes on in the machine meets them alike. */
static ups_status compare(const read_plan *plan, int64_t rounds, bool as_json, ups_error *error) {
    char reason[200];
    bool ring = ups_io_uring_available(reason);
    rates_of_way *rates = calloc((size_t)plan->depth_count, sizeof *rates);
    ups_status status = rates ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for %d rates", plan->depth_count);
    for (int64_t r = -1; r < rounds && status == UPS_OK; r++) { /* the first round warms up */
        for (int at = 0; at < plan->depth_count * WAYS && status == UPS_OK; at++) {
            int d = at / WAYS, w = at % WAYS;
            if (!ring && ways[w].engine == UPS_IO_URING) continue;
            status = measure(plan, ways[w].engine, ways[w].direct, plan->depths[d], (uint32_t)(r + 1),
                             &rates[d][w][r < 0 ? 0 : r], error);
        }
    }
    if (status == UPS_OK) print(plan, rates, rounds, ring ? NULL : reason, as_json);
    free(rates);
    return status;
}

/* "1,2,4": false when it is no list of depths. */
static bool parse_depths(const char *text, read_plan *plan) {
    enum { DEEPEST = 4096 };
    plan->depth_count = 0;
    for (char *end; plan->depth_count < MAXIMUM_DEPTHS; text = end + 1) {
        long depth = strtol(text, &end, 10);
        if (end == text || depth < 1 || depth > DEEPEST) return false;
        plan->depths[plan->depth_count++] = (int)depth;
        if (*end == '\0') return true;
        if (*end != ',') return false;
    }
    return false;
}

int ups_cmd_bench_io(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t mib = 512, kib = 256, threads = 4, rounds = 5;
    const char *depths = "32";
    double seconds = 0.5;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SIZE) ups_arguments_integer(&arguments, 1, 1 << 20, &mib);
        if (option == BLOCK) ups_arguments_integer(&arguments, 1, 1 << 20, &kib);
        if (option == DEPTH) depths = arguments.value;
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 256, &threads);
        if (option == SECONDS) ups_arguments_real(&arguments, 0.01, 600.0, &seconds);
        if (option == ROUNDS) ups_arguments_integer(&arguments, 1, MAXIMUM_ROUNDS, &rounds);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count > 1) return ups_command_usage_error(&arguments, "at most one FILE was expected");

    ups_error error = {0};
    char *directory = NULL, *made = NULL;
    ups_status status = UPS_OK;
    read_plan plan = {.block = (uint64_t)kib << 10, .threads = (int)threads, .seconds = seconds};
    if (!parse_depths(depths, &plan)) {
        return ups_command_usage_error(&arguments,
                                       "--depth: '%s' is no list of at most %d numbers from 1 to 4096, as 1,2,4",
                                       depths, MAXIMUM_DEPTHS);
    }
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
