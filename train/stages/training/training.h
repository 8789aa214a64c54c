/* The training of a stage, the same for every stage: graphs over one set of parameters, planned, then run by the loop
 * on the batches of a loader, validated, checkpointed, exported. A stage supplies what differs: its graphs, where its
 * samples come from, and how a batch gets into a graph. */
#ifndef UPS_TRAIN_STAGES_TRAINING_TRAINING_H
#define UPS_TRAIN_STAGES_TRAINING_TRAINING_H

#include "base/json.h"
#include "model/devices/cards.h"
#include "train/data/feed.h"
#include "train/losses.h"
#include "train/stages/stage.h"

#define UPS_STAGE_MAX_INPUTS 6
#define UPS_STAGE_PART_SHIFT UPS_MAX_LOSSES /* of ups_stage_graph.losses */

/* A graph for one kind of batch and one set of losses. */
typedef struct ups_stage_graph {
    int variant;     /* of its task's windows */
    int64_t kind;    /* of the batches it takes, in the stage's own terms: a task, a length of windows */
    unsigned losses; /* a mask: bit i for training.losses[i]; above them the part of a curriculum */
    ups_graph *graph;
    ups_step *step;            /* NULL while only a plan is wanted */
    ups_arithmetic arithmetic; /* of a batch in training; known with the step */
    ups_value inputs[UPS_STAGE_MAX_INPUTS];
    ups_value tasks;                /* (batch) int32: of each window, for the losses by task */
    ups_value ramp[UPS_MAX_LOSSES]; /* (batch) float32, of losses that warm up; else UPS_NO_VALUE */
    ups_objective objective;
} ups_stage_graph;

/* What is random in a batch is a function of these: the same for a run that was resumed. */
typedef struct ups_stage_draw {
    uint64_t seed;
    int64_t step;    /* of the run; of a validation its last */
    int64_t item;    /* micro-batch of the run; batch of a validation */
    double progress; /* of the run, from 0 to 1; of a validation 1 */
} ups_stage_draw;

typedef struct ups_stage_description {
    ups_stage stage;
    const ups_training_config *training;
    bool one_task_per_batch;
    ups_dtype batches;      /* what the loader hands over: UPS_F32, or UPS_F16 where all sources are FP16 */
    unsigned exact_losses;  /* a mask: graphs with one of these compute in float32, whatever the run computes in */
    unsigned staged_losses; /* a mask: sets with one of these have a graph for each part of a curriculum, `parts` */
    int parts;
    int (*part)(const void *context, int64_t step); /* of a step: 0 to parts − 1; NULL: there is one */
    const char *on_damage; /* what a wrong checksum in its samples means, and what to do; NULL: nothing to add */
    void *context;         /* the stage's own; handed to all of the following */
    /* How many variants of its windows a task is trained on, each with graphs of its own, and which one a batch is:
     * drawn; validations take the first. NULL: one. */
    int (*variants)(const void *context, int task);
    int (*draw_variant)(const void *context, int task, const ups_stage_draw *draw);
    /* Kind of the batches that hold this task in this variant. Tasks of one kind share their graphs. */
    int64_t (*kind)(const void *context, int task, int variant);
    /* Fills graph->inputs and graph->objective for batches of `batch` windows; variant, kind, losses and an empty graph
     * are there. `task` is the first one of that kind. */
    void (*build)(const void *context, int task, int64_t batch, ups_stage_graph *graph);
    /* What loading a window of the task takes; known before there is anything to load. */
    ups_loader_load (*load)(const void *context, int task, ups_split split);
    /* What the encoders take of sources that encode on the fly; NULL: there are none. */
    ups_status (*measure_encoders)(const void *context, size_t *bytes, ups_error *error);
    /* Once, before the first batch: tables, sources. */
    ups_status (*prepare)(void *context, int64_t batch, ups_error *error);
    /* Sets those of the first weights that are not random, by ups_parameters_set, once samples were found; NULL: all
     * are random. Not asked for where a run goes on, or begins with another's weights. */
    ups_status (*initialise)(void *context, ups_parameters *parameters, ups_error *error);
    /* Where the task's samples of a split come from; `entry` has the name and the weight. No samples: count 0. */
    ups_status (*find_samples)(void *context, int task, ups_split split, ups_loader_task *entry, ups_error *error);
    /* Puts a batch into the graph's inputs, its frames by ups_feed_upload; task_of[window.task] is the task of a
     * window. Earlier uploads were read: memory that is uploaded from may be filled again. */
    ups_status (*upload)(void *context, ups_stage_graph *graph, const ups_batch *batch, ups_feed *feed,
                         const int *task_of, const ups_stage_draw *draw, ups_error *error);
    /* What the model belongs to (origin.h): a new reference. */
    ups_status (*find_origin)(const void *context, json_t **origin, ups_error *error);
    /* What the finished model's file tells besides: a new reference to an object of texts, NULL when out of memory.
     * NULL: nothing. */
    json_t *(*describe_model)(const void *context);
} ups_stage_description;

ups_status ups_stage_training_plan(const ups_stage_description *stage, const ups_stage_request *request,
                                   ups_stage_plan *plan, ups_error *error);
ups_status ups_stage_training_run(const ups_stage_description *stage, const ups_stage_request *request,
                                  ups_error *error);

#endif
