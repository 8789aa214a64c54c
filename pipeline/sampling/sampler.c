#include "pipeline/sampling/sampler.h"

#include "base/random.h"
#include "pipeline/sampling/interleave.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Rounds of the Feistel network: four make a pseudo-random permutation of a good round function (Luby & Rackoff 1988);
 * small domains, where a half has two bits, want more. */
#define FEISTEL_ROUNDS 8

/* A phase of the run with fixed shares. Counts and turns are in units of blocks. */
typedef struct phase {
    struct phase *before; /* NULL: the first, or released */
    int64_t first;        /* block */
    int64_t *had;         /* (tasks) blocks that each task had before it */
    int32_t *task;        /* of the interleave's i-th: those that are drawn */
    ups_interleave *turns;
} phase;

struct ups_sampler {
    ups_sampler_options options;
    int32_t tasks;
    ups_sampler_task *task; /* (tasks) */
    _Atomic(phase *) latest;
    _Atomic int64_t *asked; /* the highest position that was drawn; apart, since drawing leaves the sampler as it is */
};

/* SplitMix64's finaliser (Steele, Lea & Flood 2014). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A keyed permutation of [0, n): a Feistel network over the next even number of bits, walked along its cycle until it
 * falls inside (at most four steps on average). */
static int64_t permute(int64_t n, const uint64_t key[2], int64_t index) {
    if (n == 1) return 0;
    int bits = 64 - __builtin_clzll((uint64_t)(n - 1));
    int half = (bits + 1) / 2;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t x = (uint64_t)index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t next = left ^ (mix(mix(right ^ key[0]) + key[1] + round * 0x9e3779b97f4a7c15u) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static void permutation_key(uint64_t seed, uint32_t purpose, uint32_t item, int64_t number, uint64_t key[2]) {
    ups_random stream = ups_random_stream(seed, purpose, item);
    uint32_t counter[4] = {(uint32_t)number, (uint32_t)((uint64_t)number >> 32), stream.stream[0], stream.stream[1]};
    uint32_t words[4];
    ups_philox(counter, stream.key, words);
    key[0] = (uint64_t)words[1] << 32 | words[0];
    key[1] = (uint64_t)words[3] << 32 | words[2];
}

static ups_status check(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t count,
                        ups_error *error) {
    if (count < 1 || count > UPS_SAMPLER_MAX_TASKS)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%d tasks; 1 to %d can be sampled together", count,
                        UPS_SAMPLER_MAX_TASKS);
    if (options->windows_per_draw < 1 || options->block < 1)
        return ups_fail(error, UPS_ERR_ARGUMENT, "windows_per_draw is %lld and block is %lld; both must be at least 1",
                        (long long)options->windows_per_draw, (long long)options->block);
    for (int32_t k = 0; k < count; k++)
        if (tasks[k].samples < 1 || tasks[k].starts < 1)
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "task %d has %lld samples of %lld start frames; at least one of each is needed", k,
                            (long long)tasks[k].samples, (long long)tasks[k].starts);
    return UPS_OK;
}

static void phase_destroy(phase *p) {
    if (!p) return;
    ups_interleave_destroy(p->turns);
    free(p->task);
    free(p->had);
    free(p);
}

/* Without turns yet. */
static phase *phase_create(int32_t tasks, int64_t first) {
    phase *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->first = first;
    made->had = calloc((size_t)tasks, sizeof *made->had);
    made->task = calloc((size_t)tasks, sizeof *made->task);
    if (made->had && made->task) return made;
    phase_destroy(made);
    return NULL;
}

static phase *phase_at(const ups_sampler *sampler, int64_t block) {
    phase *p = atomic_load_explicit(&sampler->latest, memory_order_acquire);
    while (p->first > block) p = p->before;
    return p;
}

static double positive_weight(const ups_sampler_task *task) {
    return task->weight == 0.0 ? 1.0 : task->weight;
}

void ups_sampler_weights(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t task_count,
                         double *weights) {
    double temperature = options->temperature > 0.0 ? options->temperature : 1.0;
    for (int32_t k = 0; k < task_count; k++) {
        double size = (double)tasks[k].samples;
        if (options->strategy == UPS_SAMPLER_PROPORTIONAL)
            weights[k] = size;
        else if (options->strategy == UPS_SAMPLER_TEMPERATURE)
            weights[k] = positive_weight(&tasks[k]) * pow(size, 1.0 / temperature);
        else
            weights[k] = positive_weight(&tasks[k]);
    }
}

void ups_sampler_shares(const double *weights, int32_t task_count, int32_t *shares) {
    double total = 0.0, remainder[UPS_SAMPLER_MAX_TASKS];
    for (int32_t k = 0; k < task_count; k++) total += weights[k];
    int32_t left = UPS_SAMPLER_SHARES;
    for (int32_t k = 0; k < task_count; k++) {
        double wanted = weights[k] / total * UPS_SAMPLER_SHARES;
        shares[k] = (int32_t)wanted;
        if (shares[k] == 0 && weights[k] > 0.0) shares[k] = 1;
        remainder[k] = wanted - shares[k];
        left -= shares[k];
    }
    while (left != 0) {
        int32_t one = left > 0 ? 1 : -1, best = -1;
        for (int32_t k = 0; k < task_count; k++) {
            if (weights[k] <= 0.0 || shares[k] + one < 1) continue;
            if (best < 0 || (remainder[k] - remainder[best]) * one > 0.0) best = k;
        }
        if (best < 0) break; /* cannot be: there are more shares than tasks */
        shares[best] += one;
        remainder[best] -= one;
        left -= one;
    }
}

static ups_status make_first_phase(ups_sampler *sampler, ups_error *error) {
    phase *first = phase_create(sampler->tasks, 0);
    if (!first) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a sampler of %d tasks", sampler->tasks);
    atomic_store(&sampler->latest, first);
    for (int32_t k = 0; k < sampler->tasks; k++) first->task[k] = k;
    if (sampler->options.strategy == UPS_SAMPLER_PROPORTIONAL) {
        int64_t counts[UPS_SAMPLER_MAX_TASKS];
        for (int32_t k = 0; k < sampler->tasks; k++) counts[k] = sampler->task[k].samples;
        return ups_interleave_exact(counts, sampler->tasks, &first->turns, error);
    }
    double weights[UPS_SAMPLER_MAX_TASKS];
    ups_sampler_weights(&sampler->options, sampler->task, sampler->tasks, weights);
    return ups_interleave_shares(weights, sampler->tasks, &first->turns, error);
}

ups_status ups_sampler_create(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t task_count,
                              ups_sampler **out, ups_error *error) {
    *out = NULL;
    UPS_TRY(check(options, tasks, task_count, error));
    ups_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler) sampler->task = calloc((size_t)task_count, sizeof *sampler->task);
    if (sampler) sampler->asked = malloc(sizeof *sampler->asked);
    if (!sampler || !sampler->task || !sampler->asked) {
        ups_sampler_destroy(sampler);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a sampler of %d tasks", task_count);
    }
    atomic_init(sampler->asked, -1);
    sampler->options = *options;
    sampler->tasks = task_count;
    for (int32_t k = 0; k < task_count; k++) sampler->task[k] = tasks[k];
    ups_status status = make_first_phase(sampler, error);
    if (status != UPS_OK) {
        ups_sampler_destroy(sampler);
        return status;
    }
    *out = sampler;
    return UPS_OK;
}

static void release_phases(phase *newest) {
    for (phase *before; newest; newest = before) {
        before = newest->before;
        phase_destroy(newest);
    }
}

void ups_sampler_destroy(ups_sampler *sampler) {
    if (!sampler) return;
    release_phases(atomic_load(&sampler->latest));
    free((void *)sampler->asked);
    free(sampler->task);
    free(sampler);
}

/* ---- phases ---------------------------------------------------------------------------------------------------- */

static ups_status check_phase(const ups_sampler *sampler, const ups_sampler_phase *added, ups_error *error) {
    const phase *latest = atomic_load(&sampler->latest);
    int64_t position = added->position, sum = 0;
    if (position < 0 || position % sampler->options.block != 0)
        return ups_fail(error, UPS_ERR_ARGUMENT, "a phase of sampling begins at draw %lld, within a block of %lld",
                        (long long)position, (long long)sampler->options.block);
    if (position / sampler->options.block < latest->first || position <= atomic_load(sampler->asked))
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "a phase of sampling begins at draw %lld, but draws up to %lld were made", (long long)position,
                        (long long)atomic_load(sampler->asked));
    for (int32_t k = 0; k < sampler->tasks; k++) {
        sum += added->shares[k];
        if (added->shares[k] < 0 || sum > UPS_SAMPLER_SHARES)
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "the shares of a phase of sampling must be 0 or more and sum to at most %d",
                            UPS_SAMPLER_SHARES);
    }
    if (sum > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "from draw %lld on no task would be drawn", (long long)position);
}

/* What every task had up to `first`: what it had before the latest phase, and its turns in that one. */
static void count_turns(const ups_sampler *sampler, const phase *latest, int64_t first, int64_t *had) {
    for (int32_t k = 0; k < sampler->tasks; k++) had[k] = latest->had[k];
    for (int32_t i = 0; i < ups_interleave_tasks(latest->turns); i++) {
        had[latest->task[i]] += ups_interleave_count(latest->turns, i, first - latest->first);
    }
}

ups_status ups_sampler_add_phase(ups_sampler *sampler, const ups_sampler_phase *added, ups_error *error) {
    UPS_TRY(check_phase(sampler, added, error));
    phase *latest = atomic_load(&sampler->latest);
    phase *made = phase_create(sampler->tasks, added->position / sampler->options.block);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a phase of sampling");
    double weights[UPS_SAMPLER_MAX_TASKS];
    int32_t drawn = 0;
    for (int32_t k = 0; k < sampler->tasks; k++) {
        if (added->shares[k] == 0) continue;
        weights[drawn] = added->shares[k];
        made->task[drawn++] = k;
    }
    count_turns(sampler, latest, made->first, made->had);
    made->before = latest;
    ups_status status = ups_interleave_shares(weights, drawn, &made->turns, error);
    if (status != UPS_OK) {
        phase_destroy(made);
        return status;
    }
    atomic_store_explicit(&sampler->latest, made, memory_order_release);
    return UPS_OK;
}

void ups_sampler_forget(ups_sampler *sampler, int64_t position) {
    phase *oldest = phase_at(sampler, position / sampler->options.block);
    release_phases(oldest->before); /* which nobody reads: they look further back only from later phases */
    oldest->before = NULL;
}

/* ---- draws ----------------------------------------------------------------------------------------------------- */

typedef struct block_turn {
    int32_t task;
    int64_t had; /* blocks of this task before this one */
} block_turn;

static block_turn turn_at(const ups_sampler *sampler, int64_t block) {
    const phase *p = phase_at(sampler, block);
    ups_turn turn = ups_interleave_at(p->turns, block - p->first);
    int32_t task = p->task[turn.task];
    return (block_turn){task, p->had[task] + turn.count};
}

static void note_asked(const ups_sampler *sampler, int64_t position) {
    int64_t known = atomic_load_explicit(sampler->asked, memory_order_relaxed);
    while (position > known && !atomic_compare_exchange_weak(sampler->asked, &known, position)) {
    }
}

ups_draw ups_sampler_draw(const ups_sampler *sampler, int64_t position) {
    int64_t block = sampler->options.block;
    note_asked(sampler, position);
    block_turn turn = turn_at(sampler, position / block);
    int64_t samples = sampler->task[turn.task].samples;
    int64_t had = turn.had * block + position % block; /* draws of this task before this one */
    int64_t epoch = had / samples;
    uint64_t key[2];
    permutation_key(sampler->options.seed, UPS_RANDOM_SAMPLER, (uint32_t)turn.task, epoch, key);
    return (ups_draw){.task = turn.task, .sample = permute(samples, key, had % samples), .epoch = epoch};
}

int64_t ups_sampler_start(const ups_sampler *sampler, int64_t position, int64_t w) {
    block_turn turn = turn_at(sampler, position / sampler->options.block);
    int64_t starts = sampler->task[turn.task].starts;
    uint64_t key[2];
    permutation_key(sampler->options.seed, UPS_RANDOM_WINDOW, (uint32_t)turn.task, position, key);
    return permute(starts, key, w % starts);
}

int64_t ups_sampler_position(int64_t batch, int64_t draws, int32_t rank, int32_t ranks, int64_t d) {
    return batch * draws + rank * (draws / ranks) + d;
}
