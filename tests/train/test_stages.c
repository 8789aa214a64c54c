/* The stages as `ups train` runs them, on data of our own solvers: what the plan says of memory is what training then
 * takes, and nothing is allocated after the first step.
 *
 * Memory is what is alive on the heap, the C library's allocator being watched for the whole process, libraries
 * included. Optimizer steps are seen through a device that counts and passes on. */
#include "base/files.h"
#include "tests/train/generate.h"
#include "train/cache_build/encode.h"
#include "train/data/latents.h"
#include "train/evaluation/evaluate.h"
#include "train/stages/stage.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdatomic.h>

#if !defined(UPS_SANITIZED) && defined(__GLIBC__)
#define WATCHES_ALLOCATIONS 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static atomic_long alive, most_alive, largest_asked; /* bytes; the latter two since they were last set */

/* What the C library sets aside for an alignment is never touched, so large blocks count with the bytes asked for. */
enum { LARGE = 128 << 10, MOST_LARGE = 4096 };
static struct {
    void *memory;
    long bytes;
} large[MOST_LARGE];
static atomic_flag large_busy = ATOMIC_FLAG_INIT;

/* Swaps an entry of the table: (NULL, memory) adds, (memory, NULL) removes. The bytes of the entry; -1: no such. */
static long exchange(void *from, void *to, long bytes) {
    while (atomic_flag_test_and_set(&large_busy)) {
    }
    long found = -1;
    for (int i = 0; i < MOST_LARGE && found < 0; i++) {
        if (large[i].memory != from) continue;
        if (to) large[i].bytes = bytes;
        found = large[i].bytes;
        large[i].memory = to;
    }
    atomic_flag_clear(&large_busy);
    return found;
}

static void *gained(void *memory, size_t asked) {
    if (!memory) return NULL;
    long bytes = (long)malloc_usable_size(memory);
    if (bytes >= LARGE) bytes = exchange(NULL, memory, (long)asked);
    long now = atomic_fetch_add(&alive, bytes) + bytes, most = atomic_load(&most_alive);
    while (now > most && !atomic_compare_exchange_weak(&most_alive, &most, now)) {
    }
    long known = atomic_load(&largest_asked);
    while (bytes > known && !atomic_compare_exchange_weak(&largest_asked, &known, bytes)) {
    }
    return memory;
}

static void lost(void *memory) {
    if (!memory) return;
    long bytes = (long)malloc_usable_size(memory), known = bytes >= LARGE ? exchange(memory, NULL, 0) : -1;
    atomic_fetch_sub(&alive, known >= 0 ? known : bytes);
}

void *malloc(size_t bytes) {
    return gained(__libc_malloc(bytes), bytes);
}
void *calloc(size_t count, size_t bytes) {
    return gained(__libc_calloc(count, bytes), count * bytes);
}
void *realloc(void *old, size_t bytes) {
    lost(old);
    return gained(__libc_realloc(old, bytes), bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    return gained(__libc_memalign(alignment, bytes), bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = gained(__libc_memalign(alignment, bytes), bytes);
    return *memory ? 0 : ENOMEM;
}
void free(void *memory) {
    lost(memory);
    __libc_free(memory);
}
static const char *const unwatched = NULL;
#else
static const char *const unwatched = "the allocator of a sanitizer, or one that is not glibc's, cannot be watched";
#endif

/* ---- a device that watches -------------------------------------------------------------------------------------- */

enum { MOST_STEPS = 64, MOST_KINDS = 8 /* of steps: by the sets they train */, SMALL = 4096 };

static struct {
    const ups_device_class *real;
    ups_device_class class;                  /* the real one's, but for what is counted */
    int steps;                               /* optimizer steps begun */
    int device_allocations;                  /* since the first one */
    bool capturing, decides;                 /* what is being captured has a step's decision */
    const ups_capture *steps_of[MOST_KINDS]; /* what was captured and has one */
    int kinds;
    long alive[MOST_STEPS]; /* heap when each began */
    long largest;           /* that was asked for between the first and the last one */
} watched;

static ups_status watched_allocate(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    if (watched.steps > 0) watched.device_allocations++;
    return watched.real->allocate(device, bytes, memory, error);
}

static void count_step(void) {
#ifdef WATCHES_ALLOCATIONS
    watched.alive[watched.steps] = atomic_load(&alive);
    if (watched.steps == 0) atomic_store(&largest_asked, 0);
    watched.largest = atomic_load(&largest_asked);
#endif
    watched.steps++;
}

/* The optimizer asks for a decision once a step, itself or by launching what it captured. */
static ups_status watched_decide(ups_device *device, const ups_update_rules *rules, ups_update *update,
                                 ups_error *error) {
    if (watched.capturing)
        watched.decides = true;
    else
        count_step();
    return watched.real->decide(device, rules, update, error);
}

static ups_status watched_capture_begin(ups_device *device, ups_error *error) {
    watched.capturing = true;
    watched.decides = false;
    return watched.real->capture_begin(device, error);
}

static ups_status watched_capture_end(ups_device *device, ups_capture **capture, ups_error *error) {
    watched.capturing = false;
    UPS_TRY(watched.real->capture_end(device, capture, error));
    if (watched.decides) {
        assert_true(watched.kinds < MOST_KINDS);
        watched.steps_of[watched.kinds++] = *capture;
    }
    return UPS_OK;
}

static ups_status watched_capture_launch(ups_device *device, const ups_capture *capture, ups_error *error) {
    for (int i = 0; i < watched.kinds; i++)
        if (watched.steps_of[i] == capture) count_step();
    return watched.real->capture_launch(device, capture, error);
}

static void watched_capture_release(ups_device *device, ups_capture *capture) {
    for (int i = 0; i < watched.kinds; i++)
        if (watched.steps_of[i] == capture) watched.steps_of[i] = watched.steps_of[--watched.kinds];
    watched.real->capture_release(device, capture);
}

static void watch(ups_device *device) {
    memset(&watched, 0, sizeof watched);
    watched.real = device->class;
    watched.class = *device->class;
    watched.class.allocate = watched_allocate;
    watched.class.decide = watched_decide;
    if (watched.real->capture_begin) {
        watched.class.capture_begin = watched_capture_begin;
        watched.class.capture_end = watched_capture_end;
        watched.class.capture_launch = watched_capture_launch;
        watched.class.capture_release = watched_capture_release;
    }
    device->class = &watched.class;
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

/* Large enough that what the plan counts outweighs tables and names, small enough for seconds; or, for a device that is
 * emulated, as small as that. */
static const struct {
    int samples, points, frames, cells; /* of advection, and of Darcy */
    int tokens, dim, width, decoder_hidden, decoder_depth, queries;
    int hidden, depth, heads, mlp_ratio; /* of the operator */
    int batch;
    struct {
        int dim, hidden, depth, modes[2];
    } history; /* the model that reads several frames */
    struct {
        int samples, points, frames;
        double most, least, too_little; /* MiB that a build may take, halved from the first to the second */
    } cache;
    double nrmse; /* of what the autoencoder gives back: it is below that */
#ifdef SMALL_STAGES
} sizes = {.samples = 20,
           .points = 64,
           .frames = 6,
           .cells = 16,
           .tokens = 8,
           .dim = 8,
           .width = 16,
           .decoder_hidden = 16,
           .decoder_depth = 1,
           .queries = 16,
           .hidden = 16,
           .depth = 2,
           .heads = 2,
           .mlp_ratio = 2,
           .batch = 4,
           .history = {4, 16, 2, {5, 3}},
           .cache = {6, 64, 32, 12, 6, 3},
           .nrmse = INFINITY}; /* twelve steps of so little teach nothing */
#else
} sizes = {.samples = 40,
           .points = 128,
           .frames = 11,
           .cells = 32,
           .tokens = 32,
           .dim = 32,
           .width = 64,
           .decoder_hidden = 64,
           .decoder_depth = 2,
           .queries = 128,
           .hidden = 128,
           .depth = 4,
           .heads = 4,
           .mlp_ratio = 4,
           .batch = 32,
           .history = {8, 64, 3, {9, 4}},
           .cache = {40, 1024, 512, 24, 12, 3}, /* 2 MiB a trajectory */
           .nrmse = 1};
#endif

static const char configuration[] = "output: %s/run\n"
                                    "seed: 5\n"
                                    "precision: %s\n"
                                    "device: {threads: 1}\n"
                                    "data:\n"
                                    "  root: %s\n"
                                    "  split: {train: 0.8, validation: 0.1, test: 0.1}\n"
                                    "  decode_threads: 1\n"
                                    "tasks:\n"
                                    "  - name: advection\n"
                                    "    files: [advection.h5]\n"
                                    "    patch: [4]\n"
                                    "  - name: darcy\n"
                                    "    files: [darcy.h5]\n"
                                    "    patch: [4]\n"
                                    "model:\n"
                                    "  tokens: %d\n"
                                    "  dim: %d\n"
                                    "  encoder: {width: %d, frequencies: [1, 2, 4]}\n"
                                    "  decoder: {hidden: %d, depth: %d, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}\n"
                                    "  operator: {hidden: %d, depth: %d, heads: %d, mlp_ratio: %d, drop_path: 0.1}\n"
                                    "autoencoder:\n"
                                    "  steps: 12\n"
                                    "  batch_size: %d\n"
                                    "  accumulation: 2\n"
                                    "  queries: %d\n"
                                    "  log_every: 12\n"
                                    "  validate_every: 0\n"
                                    "  checkpoint_every: 0\n"
                                    "  validation_batches: 1\n"
                                    "  optimizer: {learning_rate: 0.003, warmup_steps: 2, ema_decay: 0.9}\n"
                                    "  losses: {inverse_decoding: {weight: 1}, relative: {weight: 0}}\n"
                                    "operator:\n"
                                    "  steps: 12\n"
                                    "  batch_size: %d\n"
                                    "  log_every: 12\n"
                                    "  validate_every: 0\n"
                                    "  checkpoint_every: 0\n"
                                    "  validation_batches: 1\n"
                                    "  rollout_steps: 3\n"
                                    "  optimizer: {kind: adamw, ema_decay: 0, learning_rate: 0.003, warmup_steps: 2}\n"
                                    "  losses:\n"
                                    "    one_step: {weight: 1}\n"
                                    "    relative: {weight: 0}\n"
                                    "    rollout: {weight: 1, every: 2}\n";

static int make_data(void **state) {
    if (make_scratch(state) != 0) return -1;
    generate("advection1d", "advection.h5", sizes.samples, sizes.points, sizes.frames);
    generate("darcy2d", "darcy.h5", sizes.samples, sizes.cells, 0);
    return 0;
}

static void write_configuration(const char *name, const char *output, const char *precision) {
    char text[4096];
    snprintf(text, sizeof text, configuration, output, precision, scratch_directory, sizes.tokens, sizes.dim,
             sizes.width, sizes.decoder_hidden, sizes.decoder_depth, sizes.hidden, sizes.depth, sizes.heads,
             sizes.mlp_ratio, sizes.batch, sizes.queries, sizes.batch);
    write_text(scratch(name), text);
}

static ups_status try_run(const char *precision, const char *override, ups_session *session, ups_error *error) {
    write_configuration("run.yaml", scratch_directory, precision);
    return ups_session_open(scratch("run.yaml"), &override, override ? 1 : 0, true, session, error);
}

static void open_run(const char *precision, const char *override, ups_session *session) {
    ok(try_run(precision, override, session, &failure));
}

/* The last loss that metrics.jsonl has of a stage. */
static double logged_loss(const char *stage) {
    char *bytes = NULL, *line, *rest;
    size_t length;
    double loss = NAN;
    ok(ups_read_file(scratch("run/metrics.jsonl"), 1 << 20, &bytes, &length, &failure));
    for (line = strtok_r(bytes, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);
        const char *of = json_string_value(json_object_get(json, "stage"));
        if (of && strcmp(of, stage) == 0 && json_object_get(json, "loss"))
            loss = json_number_value(json_object_get(json, "loss"));
        json_decref(json);
    }
    free(bytes);
    return loss;
}

/* Runs a stage under watch and holds what it took against what was promised. */
static void run_watched(const char *precision, const char *override, ups_stage stage) {
    const char *name = ups_stage_name(stage);
    ups_session session;
    ups_stage_plan promised;
    open_run(precision, override, &session);
    ok(ups_stages[stage]->plan(&(ups_stage_request){.session = &session}, &promised, &failure));
    watch(session.device);
#ifdef WATCHES_ALLOCATIONS
    long before = atomic_load(&alive);
    atomic_store(&most_alive, before);
#endif
    ok(ups_stages[stage]->run(&(ups_stage_request){.session = &session}, &failure));
    assert_int_equal(watched.steps, 12);
    assert_int_equal(watched.device_allocations, 0);
    assert_true(isfinite(logged_loss(name)));
#ifdef WATCHES_ALLOCATIONS
    /* Training alone as the steps go, and all of it where it was most: in a validation, which has a loader too. */
    long taken = watched.alive[1] - before, most = atomic_load(&most_alive) - before;
    double planned = (double)(promised.total - promised.validation), off = planned / (double)taken - 1;
    print_message("    %s %s: promised %.2f MiB, taken %.2f MiB, off by %+.2f %%; %.2f MiB and %.2f MiB at most\n",
                  name, precision, planned / (1 << 20), (double)taken / (1 << 20), 100 * off,
                  (double)promised.total / (1 << 20), (double)most / (1 << 20));
    if (strcmp(watched.real->name, "cpu") != 0) {
        say_skipped("the memory that a stage takes", "the queue of the device '%s' is no part of the plan",
                    watched.real->name);
        ups_session_close(&session);
        return;
    }
    assert_true(fabs(off) <= 0.05);
    assert_true((double)most <= 1.05 * (double)promised.total);
    assert_true(watched.largest < SMALL);
    for (int step = 2; step < watched.steps; step++) assert_true(watched.alive[step] <= watched.alive[1] + SMALL);
#else
    say_skipped("the memory that a stage takes", "%s", unwatched);
#endif
    ups_session_close(&session);
}

static void build_cache(const char *precision, const char *override) {
    ups_session session;
    open_run(precision, override, &session);
    ok(ups_encode_remove(session.config, &failure));
    ok(ups_encode_run(&session, NULL, NULL, &failure));
    ups_session_close(&session);
}

CLAIM(every_stage_builds_on_stages_before_it_and_plans_where_it_trains) {
    ups_session session;
    open_run("f32", NULL, &session);
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        assert_non_null(ups_stages[s]->run);
        assert_true(ups_stages[s]->depends_on < 1u << s);
        assert_true(!ups_run_training(session.config, (ups_stage)s) || ups_stages[s]->plan);
    }
    ups_session_close(&session);
}

static void check_all(const char *precision) {
    run_watched(precision, NULL, UPS_STAGE_AUTOENCODER);
    build_cache(precision, NULL);
    run_watched(precision, NULL, UPS_STAGE_OPERATOR);
}

CLAIM(in_float32_stages_take_the_memory_that_was_planned_and_no_more_after_the_first_step) {
    check_all("f32");
}

CLAIM(without_a_cache_the_operator_takes_the_memory_that_was_planned_encoders_included) {
    run_watched("f32", "data.residency=encode", UPS_STAGE_OPERATOR);
}

CLAIM(with_muon_the_operator_takes_the_memory_that_was_planned) {
    run_watched("f32", "operator.optimizer.kind=muon", UPS_STAGE_OPERATOR);
}

CLAIM(in_bf16_stages_take_the_memory_that_was_planned_and_no_more_after_the_first_step) {
    check_all("bf16");
}

/* ---- the cache's build ------------------------------------------------------------------------------------------- */

/* Builds the cache of a split, within so many GiB; what it took at most, 0 where that is not watched. */
static long build_within(double gib, ups_session *session, ups_status expected, ups_error *error) {
    session->config->cache.memory_limit = gib;
    ok(ups_encode_remove(session->config, &failure));
    ups_encode_report report;
#ifdef WATCHES_ALLOCATIONS
    long before = atomic_load(&alive);
    atomic_store(&most_alive, before);
#endif
    ups_status status =
        ups_encode_split(session, &session->tasks->task[0], UPS_SPLIT_TRAIN, (ups_encode_options){0}, &report, error);
    if (status != expected) fail_msg("%s", error->message);
#ifdef WATCHES_ALLOCATIONS
    return atomic_load(&most_alive) - before;
#else
    return 0;
#endif
}

/* Bytes of all that the cache of that split holds. */
static char *read_latents(ups_session *session, size_t *bytes) {
    ups_source *source;
    const ups_task *task = &session->tasks->task[0];
    ok(ups_latents_open(session->config, task, UPS_SPLIT_TRAIN, &source, &failure));
    size_t each = (size_t)(task->geometry.times * sizes.tokens * sizes.dim) * sizeof(uint16_t);
    char *all = malloc(*bytes = each * (size_t)source->count);
    for (int64_t i = 0; i < source->count; i++)
        ok(ups_source_read(source, i, (ups_frames){0, task->geometry.times}, all + (size_t)i * each, &failure));
    ups_source_close(source);
    return all;
}

CLAIM(a_cache_is_built_within_the_memory_it_may_take_or_not_at_all) {
    const double mib = 1.0 / 1024;
    ups_session session;
    size_t bytes, same;
    char too_long[64], too_little[64];
    generate("advection1d", "long.h5", sizes.cache.samples, sizes.cache.points, sizes.cache.frames);
    const char *override = "tasks[0].files=[long.h5]";
    write_configuration("long.yaml", scratch("long"), "auto");
    ok(ups_session_open(scratch("long.yaml"), &override, 1, true, &session, &failure));
    session.config->autoencoder.training.steps = 2;
    ok(ups_stages[UPS_STAGE_AUTOENCODER]->run(&(ups_stage_request){.session = &session}, &failure));
    const bool on_cpu = strcmp(session.device->class->name, "cpu") == 0;
    const char *why_not = on_cpu ? unwatched : "of a device that is not the processor the queue is no part of the plan";
    long taken = build_within(0, &session, UPS_OK, &failure);
    char *expected = read_latents(&session, &bytes);
    for (double limit = sizes.cache.most; limit >= sizes.cache.least; limit /= 2) {
        long most = build_within(limit * mib, &session, UPS_OK, &failure);
        char *found = read_latents(&session, &same);
        assert_int_equal(same, bytes);
        assert_memory_equal(found, expected, bytes);
        free(found);
        print_message("    cache within %g MiB: %.1f MiB taken\n", limit, (double)most / (1 << 20));
        /* with what waits for its shard, and the codec */
        assert_true(why_not || (double)most * 0x1p-20 <= limit + 2);
    }
    print_message("    cache without a limit: %.1f MiB taken\n", (double)taken / (1 << 20));
    if (why_not)
        say_skipped("the memory that a cache's build takes", "%s", why_not);
    else
        assert_true((double)taken * 0x1p-20 > sizes.cache.most + 2);
    build_within(sizes.cache.too_little * mib, &session, UPS_ERR_MEMORY, &failure);
    snprintf(too_long, sizeof too_long, "%d frames of %d values", sizes.cache.frames, sizes.cache.points);
    snprintf(too_little, sizeof too_little, "%.3f GiB may be used", sizes.cache.too_little * mib);
    assert_contains(failure.message, too_long);
    assert_contains(failure.message, too_little);
    assert_contains(failure.message, "cache.memory_limit");
    free(expected);
    ups_session_close(&session);
}

/* ---- models in use ---------------------------------------------------------------------------------------------- */

CLAIM(a_trained_model_is_used_on_other_files_at_another_resolution_with_the_normalisation_it_was_trained_with) {
    ups_session trained, other;
    ups_surrogate_files files;
    ups_surrogate *surrogate = NULL;
    ups_task_evaluation evaluation;
    open_run("auto", NULL, &trained);
    const int64_t points = 2 * sizes.points, frames = sizes.frames + 5;
    generate("advection1d", "fine.h5", sizes.samples, points, frames);
    ok(try_run("auto", "tasks[0].files=[fine.h5]", &other, &failure));
    const ups_task *task = &other.tasks->task[0];
    assert_int_equal(task->geometry.grid[0], points);
    assert_memory_equal(task->statistics, trained.tasks->task[0].statistics, 2 * sizeof(float));
    assert_true(task->finest_frequency <= sizes.points / 4.0); /* of the grid it was trained on */
    ok(ups_surrogate_find(other.config, NULL, &files, &failure));
    ok(ups_surrogate_open(other.config, other.tasks, 0, other.device, &files, (ups_surrogate_use){0}, &surrogate,
                          &failure));
    ok(ups_evaluate_task(other.config, other.tasks, 0, UPS_SPLIT_TEST, &(ups_evaluated){.surrogate = surrogate},
                         &evaluation, &failure));
    assert_int_equal(evaluation.steps, frames - 1);
    double nrmse = evaluation.horizons[0].summary[UPS_FORECAST_RECONSTRUCTION].nrmse;
    assert_true(nrmse > 0 && nrmse < sizes.nrmse); /* it knows what it sees */
    ups_task_evaluation_free(&evaluation);
    ups_surrogate_close(surrogate);
    ups_surrogate_files_free(&files);
    ups_session_close(&other);
    ups_session_close(&trained);
}

CLAIM(files_of_another_pde_do_not_fit_a_trained_model) {
    ups_session session;
    refused(try_run("auto", "tasks[0].files=[darcy.h5]", &session, &failure), UPS_ERR_STALE, "task advection",
            "trained on 1 fields, these files have 2");
}

/* ---- several frames read and given --------------------------------------------------------------------------------
 */

CLAIM(an_operator_that_reads_and_gives_several_frames_takes_the_memory_that_was_planned) {
    char model[200];
    snprintf(model, sizeof model,
             "model={tokens: grid, dim: %d, operator: {core: spectral, hidden: %d, depth: %d, modes: [%d, %d], "
             "history: 3, bundle: 2}}",
             sizes.history.dim, sizes.history.hidden, sizes.history.depth, sizes.history.modes[0],
             sizes.history.modes[1]);
    ups_session session;
    open_run("f32", model, &session);
    ok(ups_stages[UPS_STAGE_AUTOENCODER]->run(&(ups_stage_request){.session = &session}, &failure));
    ups_session_close(&session);
    build_cache("f32", model);
    run_watched("f32", model, UPS_STAGE_OPERATOR);
}

int main(void) {
    return run_claims(make_data, remove_scratch, NULL);
}
