#include "tools/solvers/datagen.h"
#include "base/arena.h"
#include "base/cancel.h"
#include "base/files.h"
#include "base/half.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/threads.h"
#include "tools/solvers/pdebench_writer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const int64_t most_samples = INT64_C(1) << 32; /* random streams are numbered in 32 bits */

typedef struct worker_memory {
    void *scratch;
    float *sample;
} worker_memory;

typedef struct datagen_run {
    const ups_datagen_request *request;
    const void *plan;
    const ups_pdebench_file *file;
    int64_t sample_floats;
    worker_memory *workers; /* one a thread */
    ups_progress *progress;
    atomic_int_fast64_t done;
} datagen_run;

static ups_status cancelled(const ups_datagen_request *request, ups_error *error) {
    return ups_fail(error, UPS_ERR_CANCELLED, "cancelled; %s was not written", request->path);
}

static ups_status make_sample(void *context, int64_t index, int thread, ups_error *error) {
    datagen_run *run = context;
    const ups_datagen_request *request = run->request;
    const ups_solver *solver = request->solver;
    float *sample = run->workers[thread].sample;
    if (ups_cancel_requested()) return cancelled(request, error);
    ups_status status = solver->solve(run->plan, index, run->workers[thread].scratch, sample, error);
    if (status == UPS_ERR_CANCELLED) return cancelled(request, error);
    if (status != UPS_OK) return ups_fail_within(error, "%s, sample %lld", solver->name, (long long)index);
    const ups_f32_range_result range = ups_f32_range(sample, (size_t)run->sample_floats);
    if (range.non_finite > 0) {
        return ups_fail(
            error, UPS_ERR_NUMERIC,
            "%s, sample %lld: the solution left the range of float32 at value %zu; milder parameters are needed",
            solver->name, (long long)index, range.first_non_finite);
    }
    if (solver->layout == UPS_LAYOUT_DARCY) {
        const int64_t cells = run->sample_floats / 2;
        UPS_TRY(ups_pdebench_write(run->file, 0, index, sample, error));
        UPS_TRY(ups_pdebench_write(run->file, 1, index, sample + cells, error));
    } else {
        UPS_TRY(ups_pdebench_write(run->file, 0, index, sample, error));
    }
    ups_progress_update(run->progress, atomic_fetch_add(&run->done, 1) + 1, NULL);
    return UPS_OK;
}

/* ---- the file's description ---- */

json_t *ups_datagen_describe(const ups_datagen_request *request) {
    const ups_solver *solver = request->solver;
    const ups_solver_setup *setup = &request->setup;
    json_t *parameters = json_object();
    for (int i = 0; i < solver->parameter_count; i++) {
        const double value = setup->parameters[i];
        json_object_set_new(parameters, solver->parameters[i].name,
                            solver->parameters[i].whole ? json_integer((json_int_t)value) : json_real(value));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "solver", solver->name, "seed", (json_int_t)setup->seed,
                     "samples", (json_int_t)request->samples, "resolution", (json_int_t)setup->resolution, "steps",
                     (json_int_t)setup->steps, "parameters", parameters);
}

/* The same as text; freed with free(). */
static char *provenance_text(const ups_datagen_request *request) {
    json_t *document = ups_datagen_describe(request);
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(document);
    return text;
}

static ups_status create_file(const ups_datagen_request *request, ups_pdebench_file **file, ups_error *error) {
    const ups_solver *solver = request->solver;
    const ups_solver_setup *setup = &request->setup;
    const uint64_t samples = (uint64_t)request->samples, cells = (uint64_t)setup->resolution;
    const uint64_t steps = (uint64_t)setup->steps;
    ups_status status = UPS_OK;
    char *provenance = provenance_text(request);
    float *centres = malloc(sizeof(float) * cells), *times = malloc(sizeof(float) * (steps + 1));
    if (!provenance || !centres || !times) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its coordinates", request->path);
        goto cleanup;
    }
    for (uint64_t i = 0; i < cells; i++) centres[i] = (float)(((double)i + 0.5) / (double)cells);

    ups_pdebench_layout layout = {
        .parameter_name = solver->attribute_name,
        .parameter = setup->parameters[solver->attribute],
        .provenance = provenance,
    };
    if (solver->layout == UPS_LAYOUT_DARCY) {
        layout.arrays =
            (const ups_pdebench_array[]){{"nu", 3, {samples, cells, cells}}, {"tensor", 4, {samples, 1, cells, cells}}};
        layout.array_count = 2;
        layout.coordinates =
            (const ups_pdebench_coordinate[]){{"x-coordinate", centres, cells}, {"y-coordinate", centres, cells}};
        layout.coordinate_count = 2;
        status = ups_pdebench_create(request->path, &layout, file, error);
        goto cleanup;
    }
    /* PDEBench's time coordinate has one entry more than the data; readers of its files know. */
    const double end = setup->parameters[solver->end_time];
    for (uint64_t i = 0; i <= steps; i++) times[i] = (float)ups_solver_time(end, setup->steps, (int64_t)i);
    layout.arrays = (const ups_pdebench_array[]){{"tensor", 3, {samples, steps, cells}}};
    layout.array_count = 1;
    layout.coordinates =
        (const ups_pdebench_coordinate[]){{"x-coordinate", centres, cells}, {"t-coordinate", times, steps + 1}};
    layout.coordinate_count = 2;
    status = ups_pdebench_create(request->path, &layout, file, error);
cleanup:
    free(times);
    free(centres);
    free(provenance);
    return status;
}

/* ---- the run ---- */

static void free_workers(worker_memory *workers, int threads) {
    for (int i = 0; workers && i < threads; i++) {
        ups_aligned_free(workers[i].scratch);
        ups_aligned_free(workers[i].sample);
    }
    free(workers);
}

static worker_memory *allocate_workers(int threads, size_t scratch_bytes, int64_t sample_floats) {
    worker_memory *workers = calloc((size_t)threads, sizeof *workers);
    for (int i = 0; workers && i < threads; i++) {
        workers[i].scratch = ups_aligned_alloc(64, scratch_bytes);
        workers[i].sample = ups_aligned_alloc(64, sizeof(float) * (size_t)sample_floats);
        if (!workers[i].scratch || !workers[i].sample) {
            free_workers(workers, threads);
            return NULL;
        }
    }
    return workers;
}

static ups_status check_request(const ups_datagen_request *request, ups_error *error) {
    UPS_TRY(ups_solver_check(request->solver, &request->setup, error));
    if (request->samples < 1 || request->samples > most_samples) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%lld samples are out of range; 1 to %lld were expected",
                        (long long)request->samples, (long long)most_samples);
    }
    struct stat found;
    if (stat(request->path, &found) == 0 && !S_ISREG(found.st_mode)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is not a file that could be replaced; name a file to write",
                        request->path);
    }
    if (!request->replace && ups_path_exists(request->path)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: exists already; --force replaces it", request->path);
    }
    return UPS_OK;
}

/* A run that was killed has left its hidden, perhaps large file; this is only housekeeping, so it may fail. */
static void sweep_directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (directory) ups_remove_partials(directory, NULL);
    free(directory);
}

ups_status ups_datagen_run(const ups_datagen_request *request, ups_datagen_result *result, ups_error *error) {
    UPS_TRY(check_request(request, error));
    const ups_solver *solver = request->solver;
    const double begin = ups_now();
    ups_status status = UPS_OK;
    void *plan = NULL;
    ups_pdebench_file *file = NULL;
    ups_pool *pool = ups_pool_create(request->threads);
    datagen_run run = {.request = request, .sample_floats = ups_solver_sample_floats(solver, &request->setup)};
    if (!pool) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%d threads could not be started", request->threads);
        goto cleanup;
    }
    status = solver->prepare(&request->setup, &plan, error);
    if (status != UPS_OK) goto cleanup;
    run.plan = plan;
    run.workers = allocate_workers(ups_pool_threads(pool), solver->scratch_bytes(plan), run.sample_floats);
    if (!run.workers) {
        status = ups_fail(error, UPS_ERR_MEMORY,
                          "%s: no memory for samples of %.1f MB on %d threads; fewer --threads need less",
                          request->path, 4e-6 * (double)run.sample_floats, ups_pool_threads(pool));
        goto cleanup;
    }
    sweep_directory_of(request->path);
    status = create_file(request, &file, error);
    if (status != UPS_OK) goto cleanup;
    run.file = file;
    run.progress = ups_progress_begin(solver->name, "samples", request->samples, 0);
    status = ups_pool_run(pool, request->samples, make_sample, &run, error);
    ups_progress_end(run.progress);
    if (status != UPS_OK) goto cleanup;
    *result = (ups_datagen_result){.bytes = ups_pdebench_bytes(file), .threads = ups_pool_threads(pool)};
    status = ups_pdebench_commit(file, error);
    file = NULL;
    result->seconds = ups_now() - begin;
cleanup:
    ups_pdebench_abandon(file);
    if (run.workers) free_workers(run.workers, ups_pool_threads(pool));
    solver->release(plan);
    if (pool) ups_pool_destroy(pool);
    return status;
}
