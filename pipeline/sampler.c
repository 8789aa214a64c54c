#include "pipeline/sampler.h"

#include "base/random.h"
#include "pipeline/interleave.h"
#include <stdlib.h>

/* Rounds of the Feistel network: four make a pseudo-random permutation of a good round function (Luby & Rackoff 1988);
 * small domains, where a half has two bits, want more. */
#define FEISTEL_ROUNDS 8

struct ups_sampler {
    ups_sampler_options options;
    int32_t tasks;
    ups_sampler_task *task; /* (tasks) */
    ups_interleave *turns;  /* in units of blocks */
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

static ups_status make_turns(ups_sampler *sampler, ups_error *error) {
    if (sampler->options.strategy == UPS_SAMPLER_PROPORTIONAL) {
        int64_t counts[UPS_SAMPLER_MAX_TASKS];
        for (int32_t k = 0; k < sampler->tasks; k++) counts[k] = sampler->task[k].samples;
        return ups_interleave_exact(counts, sampler->tasks, &sampler->turns, error);
    }
    double weights[UPS_SAMPLER_MAX_TASKS];
    for (int32_t k = 0; k < sampler->tasks; k++)
        weights[k] = sampler->task[k].weight == 0.0 ? 1.0 : sampler->task[k].weight;
    return ups_interleave_shares(weights, sampler->tasks, &sampler->turns, error);
}

ups_status ups_sampler_create(const ups_sampler_options *options, const ups_sampler_task *tasks, int32_t task_count,
                              ups_sampler **out, ups_error *error) {
    *out = NULL;
    UPS_TRY(check(options, tasks, task_count, error));
    ups_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler) sampler->task = calloc((size_t)task_count, sizeof *sampler->task);
    if (!sampler || !sampler->task) {
        ups_sampler_destroy(sampler);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a sampler of %d tasks", task_count);
    }
    sampler->options = *options;
    sampler->tasks = task_count;
    for (int32_t k = 0; k < task_count; k++) sampler->task[k] = tasks[k];
    ups_status status = make_turns(sampler, error);
    if (status != UPS_OK) {
        ups_sampler_destroy(sampler);
        return status;
    }
    *out = sampler;
    return UPS_OK;
}

void ups_sampler_destroy(ups_sampler *sampler) {
    if (!sampler) return;
    ups_interleave_destroy(sampler->turns);
    free(sampler->task);
    free(sampler);
}

int64_t ups_sampler_epoch_draws(const ups_sampler *sampler) {
    int64_t blocks = 0;
    for (int32_t k = 0; k < sampler->tasks; k++) {
        int64_t needed = (sampler->task[k].samples + sampler->options.block - 1) / sampler->options.block;
        int64_t turns = ups_interleave_turns(sampler->turns, k, needed);
        if (turns > blocks) blocks = turns;
    }
    return blocks * sampler->options.block;
}

ups_draw ups_sampler_draw(const ups_sampler *sampler, int64_t position) {
    int64_t block = sampler->options.block;
    ups_turn turn = ups_interleave_at(sampler->turns, position / block);
    int64_t samples = sampler->task[turn.task].samples;
    int64_t had = turn.count * block + position % block; /* draws of this task before this one */
    int64_t epoch = had / samples;
    uint64_t key[2];
    permutation_key(sampler->options.seed, UPS_RANDOM_SAMPLER, (uint32_t)turn.task, epoch, key);
    return (ups_draw){.task = turn.task, .sample = permute(samples, key, had % samples), .epoch = epoch};
}

int64_t ups_sampler_start(const ups_sampler *sampler, int64_t position, int64_t w) {
    ups_turn turn = ups_interleave_at(sampler->turns, position / sampler->options.block);
    int64_t starts = sampler->task[turn.task].starts;
    uint64_t key[2];
    permutation_key(sampler->options.seed, UPS_RANDOM_WINDOW, (uint32_t)turn.task, position, key);
    return permute(starts, key, w % starts);
}

int64_t ups_sampler_position(int64_t batch, int64_t draws, int32_t rank, int32_t ranks, int64_t d) {
    return batch * draws + rank * (draws / ranks) + d;
}
