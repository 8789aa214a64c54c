/* Latents that are encoded on the fly are those of the cache to the last bit, whoever reads them and however. */
#include "base/system/threads.h"
#include "cache/store/source.h"
#include "pipeline/loader/loader.h"
#include "tests/train/generate.h"
#include "train/cache_build/encode.h"
#include "train/cache_build/memory.h"
#include "train/data/encoding/encoding_source.h"
#include "train/data/encoding/frame_encoder.h"
#include "train/data/latents.h"
#include "train/stages/stage.h"
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum { TIMES = 21, TASKS = 2 };

/* Trajectories end within a block of frames (21), or have fewer than a block (Darcy's 2). */
static const char configuration[] = "output: %s/run\n"
                                    "precision: f32\n"
                                    "device: {threads: 1}\n"
                                    "data:\n"
                                    "  root: %s\n"
                                    "  split: {train: 0.8, validation: 0.2, test: 0}\n"
                                    "  decode_threads: 3\n"
                                    "tasks:\n"
                                    "  - {name: advection, files: [advection.h5], patch: [4]}\n"
                                    "  - {name: darcy, files: [darcy.h5], patch: [4]}\n"
                                    "model:\n"
                                    "  tokens: 8\n"
                                    "  dim: 16\n"
                                    "  encoder: {width: 32, frequencies: [1, 2]}\n"
                                    "  decoder: {hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}\n"
                                    "autoencoder:\n"
                                    "  steps: 3\n"
                                    "  batch_size: 4\n"
                                    "  queries: 16\n"
                                    "  validate_every: 0\n"
                                    "  validation_batches: 1\n"
                                    "cache: {samples_per_shard: 4}\n";

static ups_session session;
static ups_encoder_pool *pool;
static ups_source *cached[TASKS], *encoded[TASKS]; /* of the training splits */
static int processors_of_build;

static void note_processors(void *context, const ups_encode_report *report) {
    processors_of_build = report->processors;
}

/* Data, a trained encoder, its cache, and the sources of both kinds. */
static int make_run(void **state) {
    if (make_scratch(state) != 0) return -1;
    generate("advection1d", "advection.h5", 15, 32, TIMES);
    generate("darcy2d", "darcy.h5", 15, 16, 0);
    char text[2048];
    snprintf(text, sizeof text, configuration, scratch_directory, scratch_directory);
    write_text(scratch("run.yaml"), text);
    ok(ups_session_open(scratch("run.yaml"), NULL, 0, true, &session, &failure));
    ok(ups_stages[UPS_STAGE_AUTOENCODER]->run(&(ups_stage_request){.session = &session}, &failure));
    ok(ups_encode_run(&session, note_processors, NULL, &failure));
    ok(ups_encoder_pool_open(&session, &pool, &failure));
    for (int t = 0; t < TASKS; t++) {
        const ups_task *task = &session.tasks->task[t];
        ok(ups_latents_open(session.config, task, UPS_SPLIT_TRAIN, &cached[t], &failure));
        ok(ups_encoding_source_open(pool, task, UPS_SPLIT_TRAIN, &encoded[t], &failure));
    }
    return 0;
}

static int remove_run(void **state) {
    for (int t = 0; t < TASKS; t++) {
        ups_source_close(cached[t]);
        ups_source_close(encoded[t]);
    }
    ups_encoder_pool_close(pool);
    ups_session_close(&session);
    return remove_scratch(state);
}

/* ---- single reads ---------------------------------------------------------------------------------------------- */

CLAIM(any_frames_of_any_sample_are_those_of_the_cache_to_the_last_bit) {
    static const ups_frames windows[] = {{0, 1}, {0, TIMES}, {3, 2}, {7, 2}, {5, 12}, {12, 9}, {15, 3}, {19, 2}};
    const size_t frame = 8 * 16 * sizeof(uint16_t);
    uint8_t *expected = malloc(TIMES * frame), *found = malloc(TIMES * frame);
    for (int t = 0; t < TASKS; t++) {
        assert_int_equal(encoded[t]->count, cached[t]->count);
        for (int64_t i = 0; i < cached[t]->count; i++) {
            ups_sample a, b;
            ok(ups_source_describe(cached[t], i, &a, &failure));
            ok(ups_source_describe(encoded[t], i, &b, &failure));
            assert_int_equal(a.times, b.times);
            assert_int_equal(ups_sample_frame_bytes(&b), frame);
            assert_memory_equal(a.time, b.time, (size_t)a.times * sizeof *a.time);
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
                if (windows[w].start + windows[w].count > a.times) continue;
                ok(ups_source_read(cached[t], i, windows[w], expected, &failure));
                ok(ups_source_read(encoded[t], i, windows[w], found, &failure));
                assert_memory_equal(found, expected, (size_t)windows[w].count * frame);
            }
        }
    }
    free(expected);
    free(found);
}

/* A file may claim times that no memory holds; latents may be larger than the fields, whose sizes were checked. */
CLAIM(latents_that_no_memory_holds_have_no_small_limits) {
    ups_task task = session.tasks->task[0];
    for (int64_t times = INT64_C(1) << 48; times <= INT64_C(1) << 60; times *= 2) {
        task.geometry.times = times;
        ups_source_limits limits = ups_encoding_limits(session.config, &task, times);
        assert_true(limits.decoded_bytes >= (uint64_t)times && limits.scratch_bytes >= (uint64_t)times);
    }
}

/* What the loader makes room for by the limits of a window is enough for each. */
CLAIM(no_window_reads_more_than_the_limits_of_its_length_say) {
    for (int64_t frames = 1; frames <= TIMES; frames++) {
        ups_source_limits limits = ups_source_window_limits(encoded[0], frames);
        ups_extent *extents = calloc((size_t)encoded[0]->limits.extents, sizeof *extents);
        for (int64_t start = 0; start + frames <= TIMES; start++) {
            int64_t count;
            uint64_t bytes = 0;
            ups_frames window = {start, frames};
            ok(encoded[0]->class->extents(encoded[0], 1, window, extents, &count, &failure));
            for (int64_t e = 0; e < count; e++) bytes += extents[e].length;
            assert_true(count <= limits.extents);
            assert_true(bytes <= limits.stored_bytes);
        }
        free(extents);
    }
}

/* ---- loaders --------------------------------------------------------------------------------------------------- */

typedef struct loading {
    int threads;
    ups_io_engine io;
    int64_t windows_per_draw, stride;
    bool kept;
} loading;

/* All of so many batches, one behind the other. */
static float *load(ups_source *const sources[TASKS], const loading *how, int64_t batches, size_t *bytes) {
    ups_store *stores[TASKS] = {NULL, NULL};
    ups_loader_task tasks[TASKS];
    for (int t = 0; t < TASKS; t++) {
        ups_store_options options = {.residency = UPS_RESIDENCY_RAM, .dtype = UPS_F32, .max_bytes = UINT64_MAX};
        if (how->kept) ok(ups_store_open(sources[t], NULL, 0, &options, &stores[t], &failure));
        tasks[t] = (ups_loader_task){.name = session.tasks->task[t].name,
                                     .source = sources[t],
                                     .sample_count = sources[t]->count,
                                     .store = stores[t],
                                     .stride = t == 0 ? how->stride : 1};
    }
    ups_loader_options options = {.seed = 3,
                                  .batch = 4,
                                  .windows_per_draw = how->windows_per_draw,
                                  .window = 2,
                                  .dtype = UPS_F32,
                                  .batch_count = batches,
                                  .io = how->io,
                                  .decode_threads = how->threads};
    ups_loader *loader;
    ok(ups_loader_open(&options, tasks, TASKS, &loader, &failure));
    size_t batch_bytes = (size_t)(4 * 2 * 8 * 16) * sizeof(float);
    float *all = malloc((size_t)batches * batch_bytes);
    for (int64_t b = 0; b < batches; b++) {
        const ups_batch *batch;
        ok(ups_loader_next(loader, &batch, &failure));
        memcpy((uint8_t *)all + (size_t)b * batch_bytes, batch->data, batch_bytes);
        ups_loader_release(loader, batch);
    }
    ups_loader_close(loader);
    for (int t = 0; t < TASKS; t++) ups_store_close(stores[t]);
    *bytes = (size_t)batches * batch_bytes;
    return all;
}

CLAIM(loaders_hand_out_the_same_batches_on_any_number_of_threads_and_either_engine) {
    static const loading ways[] = {{1, UPS_IO_AUTO, 1, 1, false},    {3, UPS_IO_AUTO, 1, 1, false},
                                   {3, UPS_IO_THREADS, 1, 3, false}, {3, UPS_IO_AUTO, 2, 2, false},
                                   {1, UPS_IO_THREADS, 1, 1, true},  {3, UPS_IO_AUTO, 2, 3, true}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        size_t bytes;
        float *expected = load(cached, &ways[w], 20, &bytes), *found = load(encoded, &ways[w], 20, &bytes);
        assert_memory_equal(found, expected, bytes);
        free(expected);
        free(found);
    }
}

/* ---- fields that are not finite --------------------------------------------------------------------------------- */

enum { BAD_SAMPLE = 3, BAD_FRAME = 1 };

/* Exchanges the first value of a frame in the file with *value. */
static void exchange_value(float *value) {
    const ups_task *task = &session.tasks->task[0];
    int64_t count = 0;
    ups_extent *extents = calloc((size_t)task->source->limits.extents, sizeof *extents);
    ok(task->source->class->extents(task->source, task->splits.samples[UPS_SPLIT_TRAIN][BAD_SAMPLE],
                                    (ups_frames){BAD_FRAME, 1}, extents, &count, &failure));
    float there;
    int fd = open(task->source->files[extents[0].file], O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &there, sizeof there, (off_t)extents[0].offset), sizeof there);
    assert_int_equal(pwrite(fd, value, sizeof *value, (off_t)extents[0].offset), sizeof *value);
    close(fd);
    *value = there;
    free(extents);
}

/* One bit for each frame whose latents hold a NaN. */
static unsigned frames_with_nan(ups_frames frames) {
    uint16_t *latents = malloc(TIMES * 8 * 16 * sizeof *latents);
    ok(ups_source_read(encoded[0], BAD_SAMPLE, frames, latents, &failure));
    unsigned found = 0;
    for (int64_t t = 0; t < frames.count; t++)
        for (int64_t i = 0; i < 8 * 16; i++)
            if ((latents[t * 8 * 16 + i] & 0x7fff) > 0x7c00) found |= 1u << (frames.start + t);
    free(latents);
    return found;
}

/* Whether a loader skips the window of the sample's first frames. */
static bool loader_skips(int64_t frames) {
    const int64_t samples[] = {BAD_SAMPLE};
    ups_loader_task task = {.name = "advection", .source = encoded[0], .samples = samples, .sample_count = 1};
    ups_loader_options options = {.batch = 1,
                                  .window = frames,
                                  .dtype = UPS_F32,
                                  .sequential = true,
                                  .batch_count = 1,
                                  .decode_threads = 1,
                                  .on_bad_sample = UPS_BAD_SAMPLE_SKIP};
    ups_loader *loader;
    const ups_batch *batch;
    ok(ups_loader_open(&options, &task, 1, &loader, &failure));
    ok(ups_loader_next(loader, &batch, &failure));
    bool skipped = batch->window[0].sample == UPS_NO_SAMPLE;
    ups_loader_release(loader, batch);
    ups_loader_close(loader);
    return skipped;
}

CLAIM(a_frame_is_bad_when_its_own_fields_are_whatever_is_read_beside_it) {
    float value = NAN;
    assert_int_equal(frames_with_nan((ups_frames){0, TIMES}), 0);
    assert_false(loader_skips(BAD_FRAME + 1));
    exchange_value(&value);
    assert_int_equal(frames_with_nan((ups_frames){BAD_FRAME, 1}), 1u << BAD_FRAME);
    assert_int_equal(frames_with_nan((ups_frames){0, TIMES}), 1u << BAD_FRAME);
    assert_int_equal(frames_with_nan((ups_frames){0, BAD_FRAME}), 0); /* of the same block */
    assert_false(loader_skips(BAD_FRAME));
    assert_true(loader_skips(BAD_FRAME + 1));
    exchange_value(&value);
    assert_int_equal(frames_with_nan((ups_frames){0, TIMES}), 0);
}

enum { DRAWN = 60, DRAWN_BATCH = 4 };

/* Sample and first frame of every window of batches `first` to DRAWN, where `kept` of samples that stay in memory. */
static void record_windows(int64_t first, bool kept, int64_t (*drawn)[2]) {
    ups_store *store = NULL;
    ups_store_options keep = {.residency = UPS_RESIDENCY_RAM, .dtype = UPS_F32, .max_bytes = UINT64_MAX};
    if (kept) ok(ups_store_open(encoded[0], NULL, 0, &keep, &store, &failure));
    ups_loader_task task = {.name = "advection", .source = encoded[0], .store = store};
    ups_loader_options options = {.seed = 11,
                                  .batch = DRAWN_BATCH,
                                  .window = 2,
                                  .dtype = UPS_F32,
                                  .first_batch = first,
                                  .batch_count = DRAWN,
                                  .decode_threads = 2,
                                  .on_bad_sample = UPS_BAD_SAMPLE_SKIP};
    ups_loader *loader;
    ok(ups_loader_open(&options, &task, 1, &loader, &failure));
    for (int64_t b = first; b < DRAWN; b++) {
        const ups_batch *batch;
        ok(ups_loader_next(loader, &batch, &failure));
        for (int64_t w = 0; w < DRAWN_BATCH; w++) {
            drawn[b * DRAWN_BATCH + w][0] = batch->window[w].sample;
            drawn[b * DRAWN_BATCH + w][1] = batch->window[w].start;
        }
        ups_loader_release(loader, batch);
    }
    const char *const *lines;
    assert_in_range(ups_loader_bad_samples(loader, &lines), 0, 1);
    ups_loader_close(loader);
    ups_store_close(store);
}

/* A run that goes on from a checkpoint reads first, and then whole, what the run before it had read. */
CLAIM(bad_samples_are_skipped_alike_whatever_stays_in_memory_and_wherever_a_run_goes_on) {
    int64_t expected[DRAWN * DRAWN_BATCH][2], found[DRAWN * DRAWN_BATCH][2];
    float value = NAN;
    exchange_value(&value);
    record_windows(0, true, expected);
    int64_t of_bad = 0;
    for (int64_t i = 0; i < DRAWN * DRAWN_BATCH; i++) {
        if (expected[i][0] != BAD_SAMPLE) continue;
        assert_true(expected[i][1] > BAD_FRAME || expected[i][1] + 1 < BAD_FRAME);
        of_bad++;
    }
    assert_in_range(of_bad, 5, DRAWN * DRAWN_BATCH); /* its other windows are served */
    for (int64_t first = 0; first < DRAWN; first += 7) {
        for (int kept = 0; kept < 2; kept++) {
            memcpy(found, expected, sizeof found);
            record_windows(first, kept, found);
            assert_memory_equal(found, expected, sizeof found);
        }
    }
    exchange_value(&value);
}

/* ---- memory of a build ------------------------------------------------------------------------------------------ */

static uint64_t card_has; /* bytes that are free */

static ups_status memory_of_a_card(ups_device *device, uint64_t *total, uint64_t *available, ups_error *error) {
    *total = *available = card_has;
    return UPS_OK;
}

static int all_processors(const ups_device *device) {
    return ups_cpu_count();
}

/* The device's kernels ask for what they ask for, wherever their memory lies; encoders are as many in both places. */
CLAIM(encoders_on_a_card_are_held_against_its_memory_and_not_against_the_hosts) {
    const ups_task *task = &session.tasks->task[0];
    const ups_device_class *real = session.device->class;
    static ups_device_class class; /* also while the device is closed after a failure */
    ups_encode_plan on_host, on_card, on_full_card;
    size_t encoder = 0;
    class = *real;
    class.threads = all_processors;
    session.device->class = &class;
    session.config->cache.memory_limit = 1;
    ok(ups_frame_encoder_measure(&session, task, &encoder, &failure));
    class.memory = NULL;
    ok(ups_encode_plan_make(&session, task, &on_host, &failure));
    class.memory = memory_of_a_card;
    card_has = UINT64_C(1) << 40;
    ok(ups_encode_plan_make(&session, task, &on_card, &failure));
    assert_int_equal(on_card.workers, on_host.workers);
    assert_true(on_card.workers > 1);
    const uint64_t blocks = (uint64_t)real->input_sets * UPS_ENCODER_BLOCK * 8 * 16 * sizeof(float);
    const uint64_t each = encoder - blocks;
    assert_int_equal(on_host.bytes - on_card.bytes, each * (uint64_t)on_card.workers);
    card_has = 2 * each; /* nine tenths of it are for one */
    ok(ups_encode_plan_make(&session, task, &on_full_card, &failure));
    assert_int_equal(on_full_card.workers, 1);
    session.config->device.memory = (double)card_has / (1 << 30); /* all of it */
    ok(ups_encode_plan_make(&session, task, &on_full_card, &failure));
    assert_int_equal(on_full_card.workers, 2);
    session.config->device.memory = 0;
    card_has = each;
    refused(ups_encode_plan_make(&session, task, &on_full_card, &failure), UPS_ERR_MEMORY, "task advection",
            "of the card's memory", "device.memory");
    session.config->cache.memory_limit = 0;
    session.device->class = real;
}

/* Kernels of a card have one thread of the host, which issues them; those of this run's processor have one, too. */
CLAIM(encoders_on_a_card_are_as_many_as_the_host_has_processors) {
    const ups_task *task = &session.tasks->task[0];
    const ups_device_class *real = session.device->class;
    static ups_device_class class;
    ups_encode_plan plan;
    const int waiting = 1; /* for the disk */
    assert_int_equal(ups_device_threads(session.device), 1);
    assert_int_equal(processors_of_build, real->memory ? ups_cpu_count() : 1);
    class = *real;
    session.device->class = &class;
    class.memory = NULL;
    ok(ups_encode_plan_make(&session, task, &plan, &failure));
    assert_int_equal(plan.workers, 1 + waiting);
    class.memory = memory_of_a_card;
    card_has = UINT64_C(1) << 40;
    ok(ups_encode_plan_make(&session, task, &plan, &failure));
    assert_int_equal(plan.workers, ups_cpu_count() + waiting);
    session.device->class = real;
}

int main(void) {
    return run_claims(make_run, remove_run, NULL);
}
