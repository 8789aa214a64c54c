/* The trained encoder of a run, alone: fields in memory to latents in memory, nothing read, compressed or written. What
 * `ups cache build` could reach if everything but encoding were free. */
#ifndef UPS_TOOLS_BENCH_RUN_ENCODER_H
#define UPS_TOOLS_BENCH_RUN_ENCODER_H

#include "train/session.h"

typedef struct ups_encoder_rate {
    int encoders, threads; /* so many beside each other, each on so many processors */
    double frames_per_s;   /* of all together, the median round */
    double cpu_us;         /* CPU microseconds a frame, summed over processors */
} ups_encoder_rate;

/* Encodes trajectories of the task's training split over and over, `rounds` times `seconds` each way in turn: one
 * encoder a processor, as the cache build does (`apart`), and one on all processors (`fused`). */
ups_status ups_bench_run_encoder(const ups_session *session, const ups_task *task, double seconds, int64_t rounds,
                                 ups_encoder_rate *apart, ups_encoder_rate *fused, ups_error *error);

#endif
