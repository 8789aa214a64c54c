/* The evaluation of all of a run's tasks as one JSON document: made, kept as evaluation.json in the run's directory,
 * and found again there while it is still true. */
#ifndef UPS_TRAIN_EVALUATION_DOCUMENT_H
#define UPS_TRAIN_EVALUATION_DOCUMENT_H

#include "train/evaluation/evaluate.h"
#include "train/session.h"

/* A file of predictions (predictions.h). Several of one task follow one another. */
typedef struct ups_predicted_file {
    const char *task; /* NULL: the only one that there is */
    const char *path;
} ups_predicted_file;

typedef struct ups_evaluation_request {
    const char *checkpoint;              /* as in ups_surrogate_find; NULL: the run's own models */
    ups_split split;                     /* UPS_SPLIT_COUNT: ups_task_held_out */
    const ups_predicted_file *predicted; /* (predicted_count) to be evaluated in the place of models: tasks that they
                                            are of, and no other */
    int64_t predicted_count;
    void (*show)(void *context, const ups_task_evaluation *evaluation); /* of each task, once it is done; NULL: none */
    void *context;
} ups_evaluation_request;

/* Evaluates every task; normalises the session's tasks, unless predictions are given. *document, a new reference:
 * {"autoencoder", "operator":
 * {"file", "xxh3"}, "tasks": [evaluate.h, and "data_xxh3"], "worse_than_persistence": [{"task", "steps", "whole",
 * "ratio"}] of tasks whose data change in time, "failed_gates": [{"task", "gate", "value", "limit", "worst"}],
 * "training": the run that trained the operator, "autoencoder_training": that of the autoencoder where it is another,
 * "command": {"config"}, "machine": what computed this (train/run/machine.h)}. Of predictions no models and trainings,
 * but "predictions":
 * [{"task", "files", "xxh3"}]. Errors: those of ups_surrogate_find, of reading, of ups_evaluate_task;
 * UPS_ERR_ARGUMENT of predictions whose task is none. */
ups_status ups_evaluation_make(ups_session *session, const ups_evaluation_request *request, json_t **document,
                               ups_error *error);

/* Writes evaluation.json into the run's directory. */
ups_status ups_evaluation_publish(const ups_run_config *config, const json_t *document, ups_error *error);

/* The run's evaluation.json, where it is what ups_evaluation_make would make of the run's own models now: of the same
 * models, configuration (but for keys that change no number) and files, on the split that is held out, with each
 * trajectory's error. Else *document is NULL and `reason` (may be NULL) says why, as static text. Errors:
 * UPS_ERR_FORMAT where the file is damaged. */
ups_status ups_evaluation_recall(ups_session *session, json_t **document, const char **reason, ups_error *error);

/* The run's evaluation.json, or one that is made now, and written, where that is none of it; the log says why. `name`:
 * what the user calls the run. */
ups_status ups_evaluation_recall_or_make(ups_session *session, const char *name, json_t **document, ups_error *error);

#endif
