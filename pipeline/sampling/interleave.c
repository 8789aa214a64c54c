#include "pipeline/sampling/interleave.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* A leaf is a task; an inner node deals its turns out to two children in proportion to their weights. */
typedef struct split {
    int64_t weight;
    int32_t left, right, parent; /* −1: none */
} split;

struct ups_interleave {
    int32_t tasks;
    int64_t period;
    int64_t *counts; /* (tasks) turns of each in a period */
    split *splits;   /* (2·tasks − 1), leaves first, root last; exact only */
    uint16_t *task;  /* (period) whose turn; shares only */
    uint32_t *rank;  /* (period) turns that task had before within the period; shares only */
};

void ups_interleave_destroy(ups_interleave *interleave) {
    if (!interleave) return;
    free(interleave->counts);
    free(interleave->splits);
    free(interleave->task);
    free(interleave->rank);
    free(interleave);
}

static ups_interleave *interleave_create(int32_t n) {
    ups_interleave *interleave = calloc(1, sizeof *interleave);
    if (!interleave) return NULL;
    interleave->tasks = n;
    interleave->counts = calloc((size_t)n, sizeof *interleave->counts);
    if (interleave->counts) return interleave;
    ups_interleave_destroy(interleave);
    return NULL;
}

/* The lightest node without a parent among the first `made`, other than `except`. */
static int32_t lightest_root(const split *splits, int32_t made, int32_t except) {
    int32_t best = -1;
    for (int32_t i = 0; i < made; i++) {
        if (splits[i].parent >= 0 || i == except) continue;
        if (best < 0 || splits[i].weight < splits[best].weight) best = i;
    }
    return best;
}

/* Heavy tasks sit near the root, so few roundings lie between a task and its share. */
static void grow_tree(split *splits, int32_t leaves) {
    for (int32_t made = leaves; made < 2 * leaves - 1; made++) {
        int32_t a = lightest_root(splits, made, -1);
        int32_t b = lightest_root(splits, made, a);
        splits[made] = (split){.weight = splits[a].weight + splits[b].weight, .left = b, .right = a, .parent = -1};
        splits[a].parent = made;
        splits[b].parent = made;
    }
}

ups_status ups_interleave_exact(const int64_t *counts, int32_t n, ups_interleave **out, ups_error *error) {
    *out = NULL;
    if (n < 1) return ups_fail(error, UPS_ERR_ARGUMENT, "there is no task to interleave");
    int64_t total = 0;
    for (int32_t k = 0; k < n; k++) {
        if (counts[k] <= 0)
            return ups_fail(error, UPS_ERR_ARGUMENT, "task %d has %lld samples; at least 1 is needed", k,
                            (long long)counts[k]);
        if (__builtin_add_overflow(total, counts[k], &total))
            return ups_fail(error, UPS_ERR_ARGUMENT, "the tasks' sample counts sum to more than 64 bits hold");
    }
    ups_interleave *interleave = interleave_create(n);
    if (interleave) interleave->splits = calloc((size_t)(2 * n - 1), sizeof(split));
    if (!interleave || !interleave->splits) {
        ups_interleave_destroy(interleave);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the interleave of %d tasks", n);
    }
    interleave->period = total;
    for (int32_t k = 0; k < n; k++) {
        interleave->counts[k] = counts[k];
        interleave->splits[k] = (split){.weight = counts[k], .left = -1, .right = -1, .parent = -1};
    }
    grow_tree(interleave->splits, n);
    *out = interleave;
    return UPS_OK;
}

/* Of the first `turns` turns of a node, those of its left child: the rounded straight line. Both halves are exact at
 * the node's end. */
static int64_t left_turns(const split *splits, const split *node, int64_t turns) {
    __int128 weight = splits[node->left].weight;
    return (int64_t)((2 * weight * turns + node->weight) / (2 * (__int128)node->weight));
}

static ups_turn tree_at(const ups_interleave *interleave, int64_t turn) {
    const split *splits = interleave->splits;
    int32_t at = 2 * interleave->tasks - 2;
    while (splits[at].left >= 0) {
        int64_t before = left_turns(splits, &splits[at], turn);
        bool left = left_turns(splits, &splits[at], turn + 1) > before;
        turn = left ? before : turn - before;
        at = left ? splits[at].left : splits[at].right;
    }
    return (ups_turn){at, turn};
}

/* Turns of `node` among the first `turns` of the whole: its parent's, then the split. */
static int64_t tree_count(const split *splits, int32_t node, int64_t turns) {
    int32_t parent = splits[node].parent;
    if (parent < 0) return turns;
    int64_t of_parent = tree_count(splits, parent, turns);
    int64_t left = left_turns(splits, &splits[parent], of_parent);
    return splits[parent].left == node ? left : of_parent - left;
}

static double wanted_turns(const double *weights, int32_t k, double total, int64_t period) {
    return weights[k] / total * (double)period;
}

static bool divides(const double *weights, int32_t n, double total, int64_t period) {
    const double exact = 1e-7; /* turns a period: what doubles such as 0.1 leave over, with room */
    for (int32_t k = 0; k < n; k++) {
        double wanted = wanted_turns(weights, k, total, period);
        if (wanted < 0.5 || fabs(wanted - nearbyint(wanted)) > exact) return false;
    }
    return true;
}

/* The smallest period that the weights divide without a remainder; else the longest allowed, the remainder going to the
 * heaviest. Every task gets at least one turn. */
static int64_t choose_period(const double *weights, int32_t n, int64_t *counts) {
    double total = 0.0;
    for (int32_t k = 0; k < n; k++) total += weights[k];
    int64_t period = n;
    while (period < UPS_INTERLEAVE_PERIOD && !divides(weights, n, total, period)) period++;
    int64_t sum = 0;
    int32_t heaviest = 0;
    for (int32_t k = 0; k < n; k++) {
        double wanted = wanted_turns(weights, k, total, period);
        counts[k] = wanted < 1.0 ? 1 : llround(wanted);
        sum += counts[k];
        if (counts[k] > counts[heaviest]) heaviest = k;
    }
    counts[heaviest] += period - sum;
    return period;
}

/* With a of `period` turns, a task's turn number j (from 0) may be given at t once (t + 1)·a > j·period, which keeps it
 * less than one ahead of its share, and must be given before t reaches (j + 1)·period/a, which keeps it less than one
 * behind. */
static void fill_period(ups_interleave *interleave, int64_t *had) {
    for (int64_t t = 0; t < interleave->period; t++) {
        int32_t chosen = -1;
        int64_t soonest = INT64_MAX;
        for (int32_t k = 0; k < interleave->tasks; k++) {
            int64_t a = interleave->counts[k];
            if (had[k] == a || (t + 1) * a <= had[k] * interleave->period) continue;
            int64_t deadline = ((had[k] + 1) * interleave->period + a - 1) / a;
            if (deadline >= soonest) continue;
            soonest = deadline;
            chosen = k;
        }
        interleave->task[t] = (uint16_t)chosen;
        interleave->rank[t] = (uint32_t)had[chosen]++;
    }
}

ups_status ups_interleave_shares(const double *weights, int32_t n, ups_interleave **out, ups_error *error) {
    *out = NULL;
    if (n < 1) return ups_fail(error, UPS_ERR_ARGUMENT, "there is no task to interleave");
    for (int32_t k = 0; k < n; k++)
        if (!(weights[k] > 0.0) || isinf(weights[k]))
            return ups_fail(error, UPS_ERR_ARGUMENT, "task %d has weight %g; a finite number above 0 is needed", k,
                            weights[k]);
    ups_status status = UPS_OK;
    int64_t *had = calloc((size_t)n, sizeof *had);
    ups_interleave *interleave = interleave_create(n);
    if (interleave) {
        interleave->period = choose_period(weights, n, interleave->counts);
        interleave->task = calloc((size_t)interleave->period, sizeof *interleave->task);
        interleave->rank = calloc((size_t)interleave->period, sizeof *interleave->rank);
    }
    if (!had || !interleave || !interleave->task || !interleave->rank) {
        ups_interleave_destroy(interleave);
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for the interleave of %d tasks", n);
    } else {
        fill_period(interleave, had);
        *out = interleave;
    }
    free(had);
    return status;
}

ups_turn ups_interleave_at(const ups_interleave *interleave, int64_t turn) {
    int64_t periods = turn / interleave->period, within = turn % interleave->period;
    ups_turn found = interleave->splits ? tree_at(interleave, within)
                                        : (ups_turn){interleave->task[within], interleave->rank[within]};
    found.count += periods * interleave->counts[found.task];
    return found;
}

void ups_interleave_share(const ups_interleave *interleave, int32_t task, int64_t *numerator, int64_t *denominator) {
    *numerator = interleave->counts[task];
    *denominator = interleave->period;
}

int32_t ups_interleave_tasks(const ups_interleave *interleave) {
    return interleave->tasks;
}

/* Of the turns within one period. */
static int64_t count_within(const ups_interleave *interleave, int32_t task, int64_t turns) {
    if (interleave->splits) return tree_count(interleave->splits, task, turns);
    for (int64_t t = turns - 1; t >= 0; t--) {
        if (interleave->task[t] == task) return interleave->rank[t] + 1;
    }
    return 0;
}

int64_t ups_interleave_count(const ups_interleave *interleave, int32_t task, int64_t turns) {
    int64_t periods = turns / interleave->period, within = turns % interleave->period;
    return periods * interleave->counts[task] + count_within(interleave, task, within);
}
