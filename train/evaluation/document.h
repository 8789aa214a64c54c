/* The evaluation of all of a run's tasks as one JSON document: made, kept as evaluation.json in the run's directory,
 * and found again there while it is still true. */
#ifndef UPS_TRAIN_EVALUATION_DOCUMENT_H
#define UPS_TRAIN_EVALUATION_DOCUMENT_H

#include "train/evaluation/evaluate.h"
#include "train/session.h"

typedef struct ups_evaluation_request {
    const char *checkpoint; /* as in ups_surrogate_find; NULL: the run's own models */
    ups_split split;        /* UPS_SPLIT_COUNT: ups_task_held_out */
    void (*show)(void *context, const ups_task_evaluation *evaluation); /* of each task, once it is done; NULL: none */
    void *context;
} ups_evaluation_request;

/* Evaluates every task; normalises the session's tasks. *document, a new reference: {"autoencoder", "operator":
 * {"file", "xxh3"}, "tasks": [evaluate.h, and "data_xxh3"], "worse_than_persistence": [{"task", "steps", "whole",
 * "ratio"}], "failed_gates": [{"task", "gate", "value", "limit", "worst"}], "training": the run that trained the
 * operator, "autoencoder_training": that of the autoencoder where it is another, "command": {"config"},
 * "machine": what computed this (train/run/machine.h)}. Errors: those
 * of ups_surrogate_find, of reading, of ups_evaluate_task. */
ups_status ups_evaluation_make(ups_session *session, const ups_evaluation_request *request, json_t **document,
                               ups_error *error);

/* Writes evaluation.json into the run's directory. */
ups_status ups_evaluation_publish(const ups_run_config *config, const json_t *document, ups_error *error);

/* The run's evaluation.json, where it is what ups_evaluation_make would make of the run's own models now: of the same
 * models, configuration and files, on the split that is held out, with each trajectory's error. Else *document is NULL
 * and `reason` (may be NULL) says why, as static text. Errors: UPS_ERR_FORMAT where the file is damaged. */
ups_status ups_evaluation_recall(ups_session *session, json_t **document, const char **reason, ups_error *error);

/* The run's evaluation.json, or one that is made now, and written, where that is none of it; the log says why. `name`:
 * what the user calls the run. */
ups_status ups_evaluation_recall_or_make(ups_session *session, const char *name, json_t **document, ups_error *error);

#endif
