/* Where the time of a stage's training went, op by op: `ups train --profile`. Of this process; what is told of
 * arithmetic and traffic is what the shapes ask for (model/work.h). */
#include "base/log.h"
#include "model/step/step.h"
#include "train/stages/training/parts.h"

static void tell_row(const ups_op_work *op, double batches, double all) {
    const double seconds = ups_op_seconds(op), to_ms = 1e3 / batches;
    char flops[UPS_OP_RATE], bytes[UPS_OP_RATE];
    ups_op_rate(op->flops, seconds, flops);
    ups_op_rate(op->bytes, seconds, bytes);
    ups_log(UPS_LOG_INFO, "  %-16s %10.3f %10.3f %7.1f %% %10s %8s", ups_op_name((ups_op_kind)op->kind),
            (op->forward + op->recompute) * to_ms, op->backward * to_ms, 100 * seconds / all, flops, bytes);
}

void ups_stage_training_tell_profile(const ups_stage_training *t, double seconds) {
    ups_step_profile all = {0};
    double rest = seconds;
    for (int i = 0; i < t->graph_count; i++) ups_step_profile_add(t->graphs[i].step, &all);
    if (all.runs == 0) return;
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) rest -= ups_op_seconds(&all.of[kind]);
    ups_op_works_sort(all.of, UPS_OP_COUNT);
    ups_log(UPS_LOG_INFO, "%s: where the time of its %lld batches went", ups_stage_name(t->stage->stage),
            (long long)all.runs);
    ups_log(UPS_LOG_INFO, "  %-16s %10s %10s %9s %10s %8s", "ms a batch", "forward", "backward", "share", "GFLOP/s",
            "GB/s");
    for (int i = 0; i < UPS_OP_COUNT && ups_op_seconds(&all.of[i]) > 0; i++)
        tell_row(&all.of[i], (double)all.runs, seconds);
    ups_log(UPS_LOG_INFO, "  %-16s %21.3f %7.1f %%  optimizer, data, other processes, validations, checkpoints",
            "all else", rest / (double)all.runs * 1e3, 100 * rest / seconds);
}
