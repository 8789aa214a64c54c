#include "tools/solvers/datagen.h"
#include "base/arena.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/threads.h"
#include "tools/solvers/initial/initial_fields.h"
#include "tools/solvers/writer/pdebench_writer.h"
#include "tools/solvers/writer/unfinished.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const int64_t most_samples = INT64_C(1) << 32; /* random streams are numbered in 32 bits */

typedef struct worker_memory {
    void *scratch;
    size_t scratch_bytes;
    ups_sink *sink;
} worker_memory;

typedef struct datagen_run {
    const ups_datagen_request *request;
    ups_file_layout layout;
    json_t *description;
    char *provenance; /* the same as text */
    ups_unfinished *unfinished;
    ups_pdebench_file *file;
    void *plan;
    bool draws, plan_each; /* samples have parameters of their own; and plans */
    ups_pool *pool;
    int threads;            /* of the pool */
    worker_memory *workers; /* one a thread */
    ups_progress *progress;
    atomic_int_fast64_t complete;
} datagen_run;

/* ---- one sample ---- */

static ups_status write_values(void *context, int array, int64_t sample, int64_t first, const float *values,
                               int64_t count, ups_error *error) {
    const datagen_run *run = context;
    return ups_pdebench_write(run->file, array, sample, first, values, count, error);
}

static ups_status no_memory(const datagen_run *run, size_t bytes, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: no memory to solve %s on %d threads (%.1f MB each); fewer --threads need less",
                    run->request->path, run->request->solver->name, run->threads, 1e-6 * (double)bytes);
}

/* Solves a sample of `setup`, which has values for all parameters. */
static ups_status solve_sample(datagen_run *run, const ups_solver_setup *setup, const void *plan, int64_t sample,
                               worker_memory *memory, ups_error *error) {
    const ups_solver *solver = run->request->solver;
    const size_t bytes = solver->scratch_bytes(setup, plan);
    if (bytes > memory->scratch_bytes) { /* a drawn parameter may ask for more than the last one did */
        ups_aligned_free(memory->scratch);
        memory->scratch = ups_aligned_alloc(64, bytes);
        memory->scratch_bytes = memory->scratch ? bytes : 0;
        if (!memory->scratch) return no_memory(run, bytes, error);
    }
    ups_sink_begin(memory->sink, sample);
    UPS_TRY(solver->solve(setup, plan, sample, memory->scratch, memory->sink, error));
    return ups_sink_end(memory->sink, error);
}

/* The same with what is drawn for this sample, and a plan of its own where that concerns the plan. */
static ups_status solve_drawn(datagen_run *run, int64_t sample, worker_memory *memory, ups_error *error) {
    const ups_solver *solver = run->request->solver;
    ups_solver_setup own;
    ups_solver_draw(&run->request->setup, sample, &own);
    if (solver->check) UPS_TRY(solver->check(&own, error));
    if (!run->plan_each) return solve_sample(run, &own, run->plan, sample, memory, error);
    void *plan = NULL;
    UPS_TRY(solver->prepare(&own, &plan, error));
    ups_status status = solve_sample(run, &own, plan, sample, memory, error);
    if (solver->release) solver->release(plan);
    return status;
}

static ups_status make_sample(void *context, int64_t sample, int thread, ups_error *error) {
    datagen_run *run = context;
    const ups_datagen_request *request = run->request;
    worker_memory *memory = &run->workers[thread];
    if (ups_unfinished_has(run->unfinished, sample)) return UPS_OK;
    if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
    ups_status status = run->draws ? solve_drawn(run, sample, memory, error)
                                   : solve_sample(run, &request->setup, run->plan, sample, memory, error);
    if (status == UPS_ERR_CANCELLED || status == UPS_ERR_IO) return status;
    if (status != UPS_OK) return ups_fail_within(error, "%s, sample %lld", request->solver->name, (long long)sample);
    UPS_TRY(ups_unfinished_complete(run->unfinished, sample, error));
    ups_progress_update(run->progress, atomic_fetch_add(&run->complete, 1) + 1, NULL);
    return UPS_OK;
}

/* ---- the file's description ---- */

/* A number, the word of a choice, or "log:0.001:0.1" as it was asked for. */
static json_t *describe_parameter(const ups_solver_setup *setup, int index) {
    const ups_solver_parameter *parameter = &setup->solver->parameters[index];
    const ups_solver_range *range = &setup->ranges[index];
    const double value = setup->parameters[index];
    const char *word;
    if (range->drawn) return json_sprintf("%s%.15g:%.15g", range->logarithmic ? "log:" : "", range->low, range->high);
    if (parameter->kind & UPS_CHOICE) {
        const int length = ups_solver_word(parameter, (int)value, &word);
        return json_stringn(word, (size_t)length);
    }
    return parameter->kind & UPS_WHOLE ? json_integer((json_int_t)value) : json_real(value);
}

json_t *ups_datagen_describe(const ups_datagen_request *request) {
    const ups_solver *solver = request->solver;
    const ups_solver_setup *setup = &request->setup;
    json_t *parameters = json_object();
    for (int i = 0; i < solver->parameter_count; i++)
        json_object_set_new(parameters, solver->parameters[i].name, describe_parameter(setup, i));
    json_t *description =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "solver", solver->name, "seed", (json_int_t)setup->seed, "samples",
                  (json_int_t)request->samples, "resolution", (json_int_t)setup->resolution, "steps",
                  (json_int_t)setup->steps, "parameters", parameters);
    if (setup->initial) {
        json_object_set_new(description, "initial", json_string(ups_initial_fields_path(setup->initial)));
        json_object_set_new(description, "initial_digest", json_string(ups_initial_fields_digest(setup->initial)));
    }
    return description;
}

/* ---- preparation ---- */

/* Begins from a file's samples, as many as are asked for, or all. */
static ups_status open_initial(ups_datagen_request *request, ups_initial_fields **fields, ups_error *error) {
    *fields = NULL;
    if (!request->initial) return UPS_OK;
    UPS_TRY(ups_initial_fields_open(request->initial, request->solver, request->setup.resolution, fields, error));
    const int64_t given = ups_initial_fields_samples(*fields);
    request->setup.initial = *fields;
    if (request->samples == 0) request->samples = given;
    if (request->samples <= given) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s: has %lld samples to begin from where %lld were asked for",
                    request->initial, (long long)given, (long long)request->samples);
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

static ups_status describe_file(datagen_run *run, ups_error *error) {
    const ups_datagen_request *request = run->request;
    run->draws = ups_solver_draws(&request->setup, 0);
    run->plan_each = request->solver->prepare && ups_solver_draws(&request->setup, UPS_PLANNED);
    request->solver->describe(&request->setup, run->plan, &run->layout);
    run->description = ups_datagen_describe(request);
    if (run->description) run->provenance = json_dumps(run->description, JSON_COMPACT | JSON_REAL_PRECISION(15));
    return run->provenance ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", request->path);
}

static ups_status allocate_workers(datagen_run *run, ups_error *error) {
    const ups_datagen_request *request = run->request;
    const size_t scratch_bytes = request->solver->scratch_bytes(&request->setup, run->plan);
    run->workers = calloc((size_t)run->threads, sizeof *run->workers);
    bool had = run->workers != NULL;
    for (int i = 0; had && i < run->threads; i++) {
        run->workers[i].scratch = ups_aligned_alloc(64, scratch_bytes);
        run->workers[i].scratch_bytes = scratch_bytes;
        run->workers[i].sink = ups_sink_create(&run->layout, write_values, run);
        had = run->workers[i].scratch && run->workers[i].sink;
    }
    if (had) return UPS_OK;
    return no_memory(run, scratch_bytes, error);
}

static ups_status open_file(datagen_run *run, ups_error *error) {
    const ups_datagen_request *request = run->request;
    const ups_pdebench_content content = {&run->layout, request->solver, &request->setup, request->samples,
                                          run->provenance};
    UPS_TRY(ups_unfinished_open(request->path, run->description, request->samples, request->restart, &run->unfinished,
                                error));
    const char *storage = ups_unfinished_storage(run->unfinished);
    if (ups_unfinished_continues(run->unfinished)) {
        if (ups_pdebench_reopen(storage, request->path, &content, &run->file, error) == UPS_OK) return UPS_OK;
        return ups_fail_within(error, "an earlier run cannot be continued; --restart discards it");
    }
    UPS_TRY(ups_pdebench_create(storage, request->path, &content, &run->file, error));
    return ups_unfinished_begin(run->unfinished, error);
}

static ups_status prepare(datagen_run *run, ups_error *error) {
    const ups_datagen_request *request = run->request;
    const int wanted = request->threads > 0 ? request->threads : ups_cpu_count();
    run->pool = ups_pool_create(request->samples < wanted ? (int)request->samples : wanted);
    if (!run->pool) return ups_fail(error, UPS_ERR_MEMORY, "%d threads could not be started", wanted);
    run->threads = ups_pool_threads(run->pool);
    if (request->solver->prepare) UPS_TRY(request->solver->prepare(&request->setup, &run->plan, error));
    UPS_TRY(describe_file(run, error));
    UPS_TRY(allocate_workers(run, error));
    return open_file(run, error);
}

/* ---- the run ---- */

static void release(datagen_run *run) {
    for (int i = 0; run->workers && i < run->threads; i++) {
        ups_sink_destroy(run->workers[i].sink);
        ups_aligned_free(run->workers[i].scratch);
    }
    free(run->workers);
    if (run->request->solver->release) run->request->solver->release(run->plan);
    ups_pdebench_close(run->file);
    if (run->pool) ups_pool_destroy(run->pool);
    json_decref(run->description);
    free(run->provenance);
}

/* After a failure: what is complete is kept if the same request may still succeed. */
static ups_status leave_unfinished(datagen_run *run, ups_status status, ups_error *error) {
    const ups_datagen_request *request = run->request;
    const int64_t complete = atomic_load(&run->complete);
    const bool may_succeed = status == UPS_ERR_CANCELLED || status == UPS_ERR_IO || status == UPS_ERR_MEMORY;
    const bool not_ours = ups_unfinished_continues(run->unfinished) && !run->file; /* it could not even be opened */
    if (not_ours || (complete > 0 && may_succeed)) {
        ups_unfinished_keep(run->unfinished, NULL); /* the failure to be told is the first */
        if (not_ours) return status;
        if (status != UPS_ERR_CANCELLED)
            return ups_fail_within(error, "after %lld of %lld samples, which the same command continues",
                                   (long long)complete, (long long)request->samples);
        return ups_fail(error, UPS_ERR_CANCELLED,
                        "cancelled; %lld of %lld samples of %s are kept: the same command continues, --restart begins "
                        "again",
                        (long long)complete, (long long)request->samples, request->path);
    }
    ups_unfinished_discard(run->unfinished);
    if (status != UPS_ERR_CANCELLED) return status;
    return ups_fail(error, UPS_ERR_CANCELLED, "cancelled; %s was not written", request->path);
}

static ups_status run_request(const ups_datagen_request *request, ups_datagen_result *result, ups_error *error) {
    UPS_TRY(check_request(request, error));
    const double begin = ups_now();
    datagen_run run = {.request = request};
    *result = (ups_datagen_result){0};
    ups_status status = prepare(&run, error);
    if (status == UPS_OK) {
        const int64_t continued = ups_unfinished_samples(run.unfinished);
        atomic_store(&run.complete, continued);
        run.progress = ups_progress_begin(request->solver->name, "samples", request->samples, continued);
        status = ups_pool_run(run.pool, request->samples, make_sample, &run, error);
        ups_progress_end(run.progress);
        *result =
            (ups_datagen_result){.bytes = ups_pdebench_bytes(run.file), .continued = continued, .threads = run.threads};
    }
    if (status == UPS_OK)
        status = ups_unfinished_publish(run.unfinished, error);
    else if (run.unfinished)
        status = leave_unfinished(&run, status, error);
    result->seconds = ups_now() - begin;
    release(&run);
    return status;
}

ups_status ups_datagen_run(const ups_datagen_request *request, ups_datagen_result *result, ups_error *error) {
    ups_datagen_request own = *request;
    ups_initial_fields *fields;
    *result = (ups_datagen_result){0};
    ups_status status = open_initial(&own, &fields, error);
    if (status == UPS_OK) status = run_request(&own, result, error);
    result->samples = own.samples;
    ups_initial_fields_close(fields);
    return status;
}
