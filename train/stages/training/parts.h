/* What the parts of a stage's training share: graphs.c makes its graphs and frees it, given.c takes another model's
 * weights to begin with, plan.c says what it takes, profile.c where its time went, batches.c hands batches to its
 * graphs, run.c runs it. */
#ifndef UPS_TRAIN_STAGES_TRAINING_PARTS_H
#define UPS_TRAIN_STAGES_TRAINING_PARTS_H

#include "model/update_channel.h"
#include "train/data/stores.h"
#include "train/data/task_sampling.h"
#include "train/loop.h"
#include "train/stages/training/training.h"

/* The tasks that have samples in a split, as the loader wants them. */
typedef struct ups_stage_samples {
    ups_loader_task *entries;
    int *task_of; /* task of the i-th entry */
    int count;
} ups_stage_samples;

typedef struct ups_stage_training {
    const ups_stage_description *stage;
    const ups_stage_request *request;
    const ups_run_config *config;
    const ups_tasks *tasks;
    int64_t batch;
    unsigned masks[UPS_MAX_LOSS_SETS]; /* as ups_stage_graph.losses: what steps take, and what validations take */
    int mask_count;
    unsigned validated_losses; /* the latter: all */
    ups_parameters *parameters;
    ups_stage_graph *graphs;
    int graph_count;
    bool *trains;      /* (graph, UPS_UPDATE_MAX_SETS): the sets of parameters that a graph trains */
    bool undivided;    /* all parameters are one set, though graphs train different ones */
    ups_shares shares; /* what each of several processes updates; no pieces: all update all */
    ups_optimizer *optimizer;
    ups_exchange *exchange;   /* what processes that train together sum; NULL: nothing */
    ups_exchange_facts facts; /* that they have in common */
    ups_stage_samples train, validation;
    ups_stores stores; /* of the samples of both */
    ups_feed *feed;
    ups_loader *loader;
    const ups_batch *batch_in_hand; /* whose upload may not have been read yet */
    ups_step *uploading;            /* the step it goes to; NULL: none */
    int32_t *window_tasks;          /* (batch): uploaded with it */
    float *ramps;                   /* (UPS_MAX_LOSSES, batch): likewise; NULL where no loss warms up */
    ups_window *windows;            /* of the micro-batches of two steps, for messages */
    ups_update_channel *validated;  /* losses of a validation */
    ups_task_sampling *sampling;
    bool given;         /* the first weights are another run's */
    bool shares_unsaid; /* they changed since the log last told of them */
    json_t *origin;
    json_t *opening; /* the metrics' first line */
} ups_stage_training;

/* ---- graphs.c ---------------------------------------------------------------------------------------------------- */

/* The graphs, without memory to run in. Ended with `_end`, whatever it returns. */
ups_status ups_stage_training_begin(ups_stage_training *t, const ups_stage_description *stage,
                                    const ups_stage_request *request, int64_t batch, ups_error *error);
/* Waits for what was issued, and frees all that is there. */
void ups_stage_training_end(ups_stage_training *t);
/* For batches of a kind and a set of losses; NULL: there is none. */
ups_stage_graph *ups_stage_training_find_graph(const ups_stage_training *t, int64_t kind, unsigned losses);
/* What a step takes, as ups_stage_graph.losses. */
unsigned ups_stage_training_losses_due(const ups_stage_training *t, int64_t step);
/* All graphs, in a list that the caller frees; NULL where memory is out. */
const ups_graph **ups_stage_training_list_graphs(const ups_stage_training *t);
int ups_stage_training_variants(const ups_stage_training *t, int task);
/* Parameters that the same graphs train become a set. More sets than an update has place for: one set, which every step
 * trains. */
ups_status ups_stage_training_divide_parameters(ups_stage_training *t, ups_error *error);

/* Once they are divided: where each process updates its share of the parameters, places them and finds the shares. */
ups_status ups_stage_training_find_shares(ups_stage_training *t, ups_error *error);
/* NULL: all update all. */
const ups_shares *ups_stage_training_shares(const ups_stage_training *t);

/* ---- given.c ------------------------------------------------------------------------------------------------------
 */

/* Over what the parameters were initialised with: the weights in output/initial, where there are any (t->given). */
ups_status ups_stage_training_take_given(ups_stage_training *t, ups_error *error);

/* ---- plan.c ------------------------------------------------------------------------------------------------------ */

bool ups_stage_training_draws_on_device(const ups_stage_training *t);
/* Of a training that goes on from `step`, and of a validation over so many tasks. */
ups_loader_options ups_stage_training_loader_options(const ups_stage_training *t, int64_t step);
ups_loader_options ups_stage_training_validation_options(const ups_stage_training *t, int tasks);
/* Frames of a batch, and their elements, at most; 0 where batches go to the device as the loader has them. */
void ups_stage_training_find_largest_batch(const ups_stage_training *t, int64_t *rows, int64_t *elements);

/* ---- profile.c --------------------------------------------------------------------------------------------------- */

/* A table by op, in the log; `seconds`: of the loop, in which steps were timed. */
void ups_stage_training_tell_profile(const ups_stage_training *t, double seconds);

/* ---- batches.c: the first four are what the loop asks of a stage (loop.h), `context` a training ------------------ */

ups_status ups_stage_training_micro_batch(void *context, const ups_micro_batch *micro, ups_error *error);
/* The objective of all losses, on fixed windows of the validation split. */
ups_status ups_stage_training_validate(void *context, ups_loss_sums *sums, ups_error *error);
/* Which of the sets of losses that occur a step takes. */
int ups_stage_training_loss_set_due(void *context, int64_t step);
void ups_stage_training_describe_batch(void *context, int64_t step, int64_t index, char *text, size_t bytes);

#endif
