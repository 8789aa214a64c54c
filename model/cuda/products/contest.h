/* A contest between two ways of doing the same work on the card. Both run on the same inputs, in turn and timed; the
 * second wins where it takes 3 % less time, and its results are the first's but for rounding. Which one won is kept in
 * the file of choices (choices.h), so that later runs take the same one, and give the same bits.
 *
 * Who holds one has a context of its own, and three functions that know it:
 *
 *     typedef struct trial { void *x, *y[2]; } trial;
 *     static void lay_out(ups_cuda_contest_memory *memory, void *context) {
 *         trial *t = context;
 *         t->x = ups_cuda_contest_numbers(memory, COUNT, UPS_BF16, 0.0f, 2.0f);
 *         ups_cuda_contest_results(memory, COUNT, UPS_BF16, t->y);
 *     }
 *     static ups_status run_old(ups_device *device, const void *context, ups_error *error) {
 *         const trial *t = context;
 *         return square_rows(device, t->x, t->y[0], error);
 *     }
 *     ...
 *     trial t;
 *     const ups_cuda_contest contest = {.lay_out = lay_out, .run = {run_old, run_new}, .context = &t};
 *     const bool takes_new = ups_cuda_second_wins(device, "square-1.bfloat16.1000", &contest);
 */
#ifndef UPS_MODEL_CUDA_PRODUCTS_CONTEST_H
#define UPS_MODEL_CUDA_PRODUCTS_CONTEST_H

#include "model/cuda/host.h"

/* Device memory of one contest: it begins as zeros, and is released when the contest is over. */
typedef struct ups_cuda_contest_memory ups_cuda_contest_memory;

/* A contestant: issues its work to the compute stream, the same work each time. `error` may be NULL. */
typedef ups_status ups_cuda_contestant(ups_device *device, const void *context, ups_error *error);

typedef struct ups_cuda_contest {
    /* Gives tensors their places in `memory`, by the functions below. Called twice, and asks for the same both times:
     * the first time it is measured, and all places are NULL. */
    void (*lay_out)(ups_cuda_contest_memory *memory, void *context);
    ups_cuda_contestant *prepare; /* runs once before both, and is not timed; NULL: nothing does */
    ups_cuda_contestant *run[2];
    void *context; /* of the caller, who keeps it */
} ups_cuda_contest;

/* `bytes` that are zeros, at a multiple of 256: a workspace, or what `prepare` fills. */
void *ups_cuda_contest_room(ups_cuda_contest_memory *memory, size_t bytes);
/* An input, `count` numbers of bf16, fp16 or float32: from middle - spread to middle + spread, most of them near the
 * middle, others in each tensor and the same in each contest. A card makes less heat of zeros, and more speed. */
void *ups_cuda_contest_numbers(ups_cuda_contest_memory *memory, int64_t count, ups_dtype dtype, float middle,
                               float spread);
/* A result of both, as zeros, in a place each: `count` > 0 elements of bf16, fp16 or float32 that have to agree when
 * both have run. A contest has at most UPS_CUDA_CONTEST_RESULTS: with more it cannot be held. */
enum { UPS_CUDA_CONTEST_RESULTS = 8 };
void ups_cuda_contest_results(ups_cuda_contest_memory *memory, int64_t count, ups_dtype dtype, void *of[2]);

/* Whether the second is to be taken: by the file of choices, under `name`, or by a contest that is held now, and kept
 * there. `name`: as in choices.h, no blanks; what tells the work from other work, and a version that changes with the
 * code of either. Without a file, where kernels are chosen by shape, or on a card that is only planned for, nothing
 * runs, and the first is taken. So it is where a contest cannot be held, for want of memory or because one does not
 * run: no error is told, and no winner is kept. A contest that was begun and never ended, since a kernel hung or
 * faulted, is not held again, nor is one that another process holds at the moment. Waits for the compute stream,
 * which must not be captured. */
bool ups_cuda_second_wins(ups_device *device, const char *name, const ups_cuda_contest *contest);

#endif
