/* `ups bench codec`: what the cache's codec makes of latents (how small, how fast), beside plain zstd, on the same
 * data. */
#include "base/arena.h"
#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "cache/codec/rans.h"
#include "cache/inspect/find.h"
#include "cache/store/reader.h"
#include "tools/bench/go_on.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAXIMUM_BYTES (INT64_C(512) << 20) /* of latents held in memory */
#define MADE_SAMPLES 8
#define STATIC_TIMES 2 /* latents of a steady problem have its input and its solution */

/* Latents in memory: (samples, shape). */
typedef struct latents {
    ups_chunk_shape shape;
    int64_t samples;
    ups_f16 *values;
    const char *origin; /* what is measured, in words */
} latents;

static ups_status allocate(latents *data, ups_error *error) {
    size_t each = ups_chunk_raw_bytes(data->shape);
    int64_t most = MAXIMUM_BYTES / (int64_t)each;
    if (data->samples > most) data->samples = most > 0 ? most : 1;
    data->values = malloc((size_t)data->samples * each);
    return data->values ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the latents");
}

static ups_f16 *trajectory(const latents *data, int64_t sample) {
    return data->values + sample * (int64_t)(ups_chunk_raw_bytes(data->shape) / sizeof(ups_f16));
}

/* Smooth evolutions: each (token, dim) is a sum of two waves in time, as latents of a smooth PDE are. */
static ups_status make_latents(latents *data, ups_error *error) {
    data->shape = (ups_chunk_shape){101, 128, 128};
    data->samples = MADE_SAMPLES;
    data->origin = "synthetic waves";
    UPS_TRY(allocate(data, error));
    int64_t series = data->shape.tokens * data->shape.dim, times = data->shape.times;
    float *values = malloc((size_t)(series * times) * sizeof *values);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the latents");
    for (int64_t i = 0; i < data->samples; i++) {
        ups_random stream = ups_random_stream(1, UPS_RANDOM_DATAGEN, (uint32_t)i);
        for (int64_t s = 0; s < series; s++) {
            double draw[6];
            for (int k = 0; k < 6; k++) draw[k] = ups_random_uniform(stream, (uint64_t)(6 * s + k));
            double turn = 2 * M_PI / (double)(times - 1);
            for (int64_t t = 0; t < times; t++) {
                double slow = sin(turn * (1 + draw[0]) * (double)t + 6 * draw[1]),
                       fast = sin(turn * (3 + 4 * draw[2]) * (double)t + 6 * draw[3]);
                values[t * series + s] = (float)(2 * draw[4] * slow + 0.3 * draw[5] * fast);
            }
        }
        ups_f32_to_f16(values, trajectory(data, i), (size_t)(series * times));
    }
    free(values);
    return UPS_OK;
}

/* NPY 1.0 of four axes, '<f2', C order: what `ups cache export` writes. */
static ups_status read_npy(const char *path, latents *data, ups_error *error) {
    FILE *file = fopen(path, "rb");
    if (!file) return ups_fail_errno(error, "%s: cannot be opened", path);
    unsigned char prefix[10];
    char header[1024] = "";
    long long shape[4];
    ups_status status = UPS_OK;
    size_t length = 0;
    if (fread(prefix, 1, sizeof prefix, file) == sizeof prefix && memcmp(prefix, "\x93NUMPY\x01", 7) == 0) {
        length = (size_t)prefix[8] | (size_t)prefix[9] << 8;
    }
    const char *at = NULL;
    if (length > 0 && length < sizeof header && fread(header, 1, length, file) == length)
        at = strstr(header, "'shape': (");
    if (!at || !strstr(header, "'<f2'") || strstr(header, "True") ||
        sscanf(at, "'shape': (%lld, %lld, %lld, %lld)", &shape[0], &shape[1], &shape[2], &shape[3]) != 4 ||
        shape[0] < 1 || shape[1] < 1 || shape[2] < 1 || shape[3] < 1) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: is not an NPY file of float16 latents (sample, time, token, dim)",
                          path);
    }
    if (status == UPS_OK &&
        (double)shape[1] * (double)shape[2] * (double)shape[3] * sizeof(ups_f16) > (double)MAXIMUM_BYTES) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: trajectories of %lld × %lld × %lld are larger than this can hold",
                          path, shape[1], shape[2], shape[3]);
    }
    if (status == UPS_OK) {
        data->samples = shape[0];
        data->shape = (ups_chunk_shape){shape[1], shape[2], shape[3]};
        data->origin = path;
        status = allocate(data, error);
    }
    size_t bytes = status == UPS_OK ? (size_t)data->samples * ups_chunk_raw_bytes(data->shape) : 0;
    if (status == UPS_OK && fread(data->values, 1, bytes, file) != bytes) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: is truncated: its header promises more latents", path);
    }
    fclose(file);
    return status;
}

static ups_status read_group(const char *directory, latents *data, ups_error *error) {
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    data->shape = group->shape.trajectory;
    data->samples = group->shape.samples;
    data->origin = directory;
    ups_cache_reader *reader = ups_cache_reader_create(group);
    ups_status status =
        reader ? allocate(data, error) : ups_fail(error, UPS_ERR_MEMORY, "no memory to read %s", directory);
    int64_t kept = 0;
    for (int64_t i = 0; i < group->shape.samples && kept < data->samples && status == UPS_OK; i++) {
        ups_cache_trajectory read;
        status = ups_cache_read(reader, i, &read, error);
        if (status == UPS_OK && read.present)
            memcpy(trajectory(data, kept++), read.latents, ups_chunk_raw_bytes(data->shape));
    }
    if (status == UPS_OK) data->samples = kept;
    ups_cache_reader_destroy(reader);
    ups_cache_group_close(group);
    if (status == UPS_OK && kept == 0) return ups_fail(error, UPS_ERR_FORMAT, "%s: holds no trajectory", directory);
    return status;
}

/* One codec under measurement; a pass encodes or decodes every trajectory once, spread over the threads. */
typedef struct contest {
    const latents *data;
    ups_chunk_codec codec;
    ups_chunk_encoder **encoders; /* one a thread */
    void **scratch;               /* one a thread */
    ups_f16 **out;                /* one a thread */
    uint8_t **bytes;              /* (samples) encoded */
    size_t *lengths;
    double *used;                          /* one a thread: CPU seconds of this pass */
    double encode_seconds, decode_seconds; /* CPU seconds of the best pass */
} contest;

static ups_status encode_one(void *context, int64_t sample, int thread, ups_error *error) {
    contest *c = context;
    const uint8_t *bytes;
    size_t length;
    double began = ups_thread_seconds();
    UPS_TRY(ups_chunk_encode(c->encoders[thread], trajectory(c->data, sample), &bytes, &length, error));
    if (!c->bytes[sample]) {
        c->bytes[sample] = malloc(length);
        if (!c->bytes[sample]) return ups_fail(error, UPS_ERR_MEMORY, "no memory for encoded latents");
    }
    c->used[thread] += ups_thread_seconds() - began;
    memcpy(c->bytes[sample], bytes, length); /* the same length every time: encoding is deterministic */
    c->lengths[sample] = length;
    return UPS_OK;
}

static ups_status decode_one(void *context, int64_t sample, int thread, ups_error *error) {
    contest *c = context;
    bool finite;
    double began = ups_thread_seconds();
    UPS_TRY(ups_chunk_decode(c->codec, c->data->shape, c->bytes[sample], c->lengths[sample], 0, c->data->shape.times,
                             c->scratch[thread], UPS_F16, c->out[thread], &finite, NULL, error));
    c->used[thread] += ups_thread_seconds() - began;
    return UPS_OK;
}

static ups_status check_one(void *context, int64_t sample, int thread, ups_error *error) {
    contest *c = context;
    UPS_TRY(decode_one(context, sample, thread, error));
    if (memcmp(c->out[thread], trajectory(c->data, sample), ups_chunk_raw_bytes(c->data->shape)) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "trajectory %lld came back changed: the codec is broken", (long long)sample);
}

static ups_status timed_pass(ups_pool *pool, contest *c, ups_pool_task task, double *best, ups_error *error) {
    int threads = ups_pool_threads(pool);
    double seconds = 0;
    for (int i = 0; i < threads; i++) c->used[i] = 0;
    UPS_TRY(ups_pool_run(pool, c->data->samples, task, c, error));
    for (int i = 0; i < threads; i++) seconds += c->used[i];
    if (seconds < *best) *best = seconds;
    return UPS_OK;
}

static void close_contest(contest *c, int threads) {
    for (int i = 0; i < threads; i++) {
        if (c->encoders) ups_chunk_encoder_destroy(c->encoders[i]);
        if (c->scratch) ups_aligned_free(c->scratch[i]);
        if (c->out) ups_aligned_free(c->out[i]);
    }
    for (int64_t i = 0; c->bytes && i < c->data->samples; i++) free(c->bytes[i]);
    free(c->encoders);
    free(c->scratch);
    free(c->out);
    free(c->bytes);
    free(c->lengths);
    free(c->used);
}

static ups_status open_contest(contest *c, const latents *data, ups_chunk_codec codec, int threads, ups_error *error) {
    *c = (contest){.data = data, .codec = codec, .encode_seconds = INFINITY, .decode_seconds = INFINITY};
    c->encoders = calloc((size_t)threads, sizeof *c->encoders);
    c->scratch = calloc((size_t)threads, sizeof *c->scratch);
    c->out = calloc((size_t)threads, sizeof *c->out);
    c->bytes = calloc((size_t)data->samples, sizeof *c->bytes);
    c->lengths = calloc((size_t)data->samples, sizeof *c->lengths);
    c->used = calloc((size_t)threads, sizeof *c->used);
    bool fine = c->used && c->encoders && c->scratch && c->out && c->bytes && c->lengths;
    for (int i = 0; i < threads && fine; i++) {
        c->encoders[i] = ups_chunk_encoder_create(codec, data->shape);
        c->scratch[i] = ups_aligned_alloc(64, ups_chunk_scratch_bytes(codec, data->shape));
        c->out[i] = ups_aligned_alloc(64, ups_chunk_raw_bytes(data->shape)); /* as a loader's slots are */
        fine = c->encoders[i] && c->scratch[i] && c->out[i];
    }
    return fine ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory to measure");
}

static json_t *facts_of(const contest *c, const char *name) {
    double raw = (double)ups_chunk_raw_bytes(c->data->shape) * (double)c->data->samples, stored = 0;
    for (int64_t i = 0; i < c->data->samples; i++) stored += (double)c->lengths[i];
    return json_pack("{s:s, s:f, s:f, s:f}", "codec", name, "ratio", raw / stored, "encode_gb_s_per_thread",
                     raw / c->encode_seconds / 1e9, "decode_gb_s_per_thread", raw / c->decode_seconds / 1e9);
}

/* The codecs in turn, `repeat` times; the best pass of each counts. */
static ups_status measure(const latents *data, ups_pool *pool, int level, int64_t repeat, json_t *results,
                          ups_error *error) {
    enum { CODECS = 2 };
    static const char *const names[CODECS] = {"ups.latent", "portable (zstd)"};
    contest contests[CODECS] = {0};
    int threads = ups_pool_threads(pool);
    ups_status status = UPS_OK;
    for (int i = 0; i < CODECS && status == UPS_OK; i++) {
        status =
            open_contest(&contests[i], data, (ups_chunk_codec){.portable = i == 1, .level = level}, threads, error);
    }
    for (int64_t pass = 0; pass < repeat && status == UPS_OK; pass++) {
        for (int i = 0; i < CODECS && status == UPS_OK; i++) {
            contest *c = &contests[i];
            status = ups_bench_go_on(error);
            if (status == UPS_OK) status = timed_pass(pool, c, encode_one, &c->encode_seconds, error);
            if (status == UPS_OK && pass == 0) status = ups_pool_run(pool, data->samples, check_one, c, error);
            if (status == UPS_OK) status = timed_pass(pool, c, decode_one, &c->decode_seconds, error);
        }
    }
    for (int i = 0; i < CODECS; i++) {
        if (status == UPS_OK) json_array_append_new(results, facts_of(&contests[i], names[i]));
        if (contests[i].data) close_contest(&contests[i], threads);
    }
    return status;
}

typedef struct bench {
    ups_pool *pool;
    int level;
    int64_t repeat;
    json_t *results; /* one object for each latents */
} bench;

/* An NPY file, a group, or NULL for synthetic latents. */
static ups_status bench_input(bench *b, const char *input, ups_error *error) {
    latents data = {0};
    size_t length = input ? strlen(input) : 0;
    ups_status status;
    if (!input)
        status = make_latents(&data, error);
    else if (length > 4 && strcmp(input + length - 4, ".npy") == 0)
        status = read_npy(input, &data, error);
    else
        status = read_group(input, &data, error);
    json_t *codecs = json_array();
    if (status == UPS_OK) status = measure(&data, b->pool, b->level, b->repeat, codecs, error);
    if (status == UPS_OK) {
        json_array_append_new(b->results, json_pack("{s:s, s:[I,I,I,I], s:i, s:s, s:O}", "latents", data.origin,
                                                    "shape", (json_int_t)data.samples, (json_int_t)data.shape.times,
                                                    (json_int_t)data.shape.tokens, (json_int_t)data.shape.dim,
                                                    "threads", ups_pool_threads(b->pool), "instruction_set",
                                                    ups_rans_instruction_set(), "codecs", codecs));
    }
    json_decref(codecs);
    free(data.values);
    return status;
}

/* A directory stands for the groups below it: of every task the split `train`, unless it is a group itself. */
static ups_status bench_operand(bench *b, const char *operand, ups_error *error) {
    ups_found_paths found = {0};
    struct stat entry;
    if (stat(operand, &entry) != 0 || !S_ISDIR(entry.st_mode)) return bench_input(b, operand, error);
    UPS_TRY(ups_cache_find(operand, &found, error));
    ups_status status = UPS_OK;
    int64_t measured = 0;
    for (int64_t i = 0; i < found.count && status == UPS_OK; i++) {
        const char *slash = strrchr(found.path[i], '/');
        if (found.count > 1 && (!slash || strcmp(slash, "/train") != 0)) continue;
        status = bench_input(b, found.path[i], error);
        measured++;
    }
    ups_found_paths_free(&found);
    if (status == UPS_OK && measured == 0)
        status = ups_fail(error, UPS_ERR_IO, "%s: there is no cache with a split 'train' here", operand);
    return status;
}

/* A table; over several latents with times also the mean of the first codec's ratios. */
static void print(const json_t *results) {
    size_t width = strlen("latents"), evolving = 0;
    double sum = 0;
    for (size_t i = 0; i < json_array_size(results); i++) {
        size_t length = strlen(json_string_value(json_object_get(json_array_get(results, i), "latents")));
        if (length > width) width = length;
    }
    printf("%-*s  %-24s  %-16s %7s  %13s  %13s\n", (int)width, "latents", "(sample, time, token, dim)", "codec",
           "ratio", "encode, GB/s", "decode, GB/s");
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i), *codecs = json_object_get(result, "codecs");
        const json_t *shape = json_object_get(result, "shape");
        char extents[64];
        snprintf(extents, sizeof extents, "(%lld, %lld, %lld, %lld)",
                 (long long)json_integer_value(json_array_get(shape, 0)),
                 (long long)json_integer_value(json_array_get(shape, 1)),
                 (long long)json_integer_value(json_array_get(shape, 2)),
                 (long long)json_integer_value(json_array_get(shape, 3)));
        for (size_t k = 0; k < json_array_size(codecs); k++) {
            const json_t *row = json_array_get(codecs, k);
            printf("%-*s  %-26s  %-14s %7.3f  %13.3f  %13.3f\n", (int)width,
                   k ? "" : json_string_value(json_object_get(result, "latents")), k ? "" : extents,
                   json_string_value(json_object_get(row, "codec")), json_real_value(json_object_get(row, "ratio")),
                   json_real_value(json_object_get(row, "encode_gb_s_per_thread")),
                   json_real_value(json_object_get(row, "decode_gb_s_per_thread")));
        }
        if (json_integer_value(json_array_get(shape, 1)) <= STATIC_TIMES) continue;
        sum += json_real_value(json_object_get(json_array_get(codecs, 0), "ratio"));
        evolving++;
    }
    printf("speeds are those of a thread, in CPU time; instructions: %s\n", ups_rans_instruction_set());
    if (evolving > 1) printf("mean ratio over the %zu that evolve in time: %.2f\n", evolving, sum / (double)evolving);
}

enum { THREADS, REPEAT, LEVEL, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [THREADS] = {"threads", 't', "N", "threads, each with trajectories of its own (default 1)"},
    [REPEAT] = {"repeat", 0, "N", "passes; the best counts (default 5)"},
    [LEVEL] = {"level", 0, "N", "zstd's level, of the portable codec (default 1)"},
};

static const ups_usage usage = {
    "bench codec",
    "[DIR|FILE.npy]...",
    "measures how small the cache's codec makes latents, and how fast it is",
    options,
    OPTION_COUNT,
    "Measures on caches (of each task the split `train`, or the task and split given), on NPY files as `ups cache "
    "export`\n"
    "writes them, or, without either, on smooth synthetic latents. Every trajectory is first checked to come back bit "
    "for bit. Speeds are of FP16 latents\n"
    "(not of compressed bytes), in GB/s of a thread's own CPU time, so that other work counts little; "
    "everything\n"
    "is included: checksums, prediction, entropy coding.",
};

int ups_cmd_bench_codec(int argc, char **argv) {
    enum { MAXIMUM_THREADS = 1024, MAXIMUM_REPEAT = 10000, MAXIMUM_LEVEL = 19 };
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t threads = 1, repeat = 5, level = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == THREADS) ups_arguments_integer(&arguments, 1, MAXIMUM_THREADS, &threads);
        if (option == REPEAT) ups_arguments_integer(&arguments, 1, MAXIMUM_REPEAT, &repeat);
        if (option == LEVEL) ups_arguments_integer(&arguments, 1, MAXIMUM_LEVEL, &level);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    ups_error error;
    ups_pool *pool = ups_pool_create((int)threads);
    ups_status status = pool ? UPS_OK : ups_fail(&error, UPS_ERR_MEMORY, "threads cannot be had; try --threads 1");
    bench b = {pool, (int)level, repeat, json_array()};
    if (status == UPS_OK && arguments.operand_count == 0) status = bench_input(&b, NULL, &error);
    for (int i = 0; i < arguments.operand_count && status == UPS_OK; i++)
        status = bench_operand(&b, arguments.operands[i], &error);
    if (status == UPS_OK && arguments.json) {
        ups_print_json(b.results, JSON_INDENT(2));
    } else if (status == UPS_OK) {
        print(b.results);
    }
    json_decref(b.results);
    ups_pool_destroy(pool);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
}
