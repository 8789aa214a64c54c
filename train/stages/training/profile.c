/* Where the time of a stage's training went, op by op: `ups train --profile`. Of this process; what is told of
 * arithmetic and traffic is what the shapes ask for (model/work.h). */
#include "base/log.h"
#include "model/step/step.h"
#include "model/work.h"
#include "train/stages/training/parts.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct op_time {
    const char *name;
    double forward, backward, recompute; /* seconds */
    double flops, bytes;
} op_time;

static double seconds_of(const op_time *op) {
    return op->forward + op->backward + op->recompute;
}

static int by_time(const void *a, const void *b) {
    const double x = seconds_of(a), y = seconds_of(b);
    return (x < y) - (x > y);
}

/* All training batches that went through a graph. */
static void add_graph(const ups_stage_graph *of, op_time ops[UPS_OP_COUNT]) {
    const ups_step_profile profile = ups_step_profile_get(of->step);
    const ups_plan *plan = ups_step_plan(of->step);
    const ups_schedule *schedule = ups_plan_schedule(plan);
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        ops[kind].forward += profile.forward[kind];
        ops[kind].backward += profile.backward[kind];
        ops[kind].recompute += profile.recompute[kind];
    }
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_work work = ups_work_of(of->graph, plan, at);
        op_time *op = &ops[of->graph->nodes[schedule->entries[at].node].kind];
        op->flops += (double)profile.runs * (work.product_flops + work.other_flops);
        op->bytes += (double)profile.runs * (work.read + work.written + work.apart);
    }
}

/* Where nothing is known the column is empty. */
static void write_number(char text[24], double value, bool known) {
    if (known)
        snprintf(text, 24, "%.1f", value);
    else
        text[0] = '\0';
}

static void tell_row(const op_time *op, double batches, double all) {
    const double seconds = seconds_of(op), to_ms = 1e3 / batches;
    char flops[24], bytes[24];
    write_number(flops, op->flops / seconds * 1e-9, op->flops > 0);
    write_number(bytes, op->bytes / seconds * 1e-9, op->bytes > 0);
    ups_log(UPS_LOG_INFO, "  %-16s %10.3f %10.3f %7.1f %% %10s %8s", op->name, (op->forward + op->recompute) * to_ms,
            op->backward * to_ms, 100 * seconds / all, flops, bytes);
}

void ups_stage_training_tell_profile(const ups_stage_training *t, double seconds) {
    op_time ops[UPS_OP_COUNT] = {{0}};
    double rest = seconds;
    int64_t batches = 0;
    for (int i = 0; i < t->graph_count; i++) {
        batches += ups_step_profile_get(t->graphs[i].step).runs;
        add_graph(&t->graphs[i], ops);
    }
    if (batches == 0) return;
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        ops[kind].name = ups_op_name((ups_op_kind)kind);
        rest -= seconds_of(&ops[kind]);
    }
    qsort(ops, UPS_OP_COUNT, sizeof *ops, by_time);
    ups_log(UPS_LOG_INFO, "%s: where the time of its %lld batches went", ups_stage_name(t->stage->stage),
            (long long)batches);
    ups_log(UPS_LOG_INFO, "  %-16s %10s %10s %9s %10s %8s", "ms a batch", "forward", "backward", "share", "GFLOP/s",
            "GB/s");
    for (int i = 0; i < UPS_OP_COUNT && seconds_of(&ops[i]) > 0; i++) tell_row(&ops[i], (double)batches, seconds);
    ups_log(UPS_LOG_INFO, "  %-16s %21.3f %7.1f %%  optimizer, data, other processes, validations, checkpoints",
            "all else", rest / (double)batches * 1e3, 100 * rest / seconds);
}
