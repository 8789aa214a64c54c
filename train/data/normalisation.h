/* Normalisation: mean and scale of every field of a task, measured once on the training split and from then on part of
 * what is trained on it. */
#ifndef UPS_TRAIN_DATA_NORMALISATION_H
#define UPS_TRAIN_DATA_NORMALISATION_H

#include "train/data/tasks.h"

/* Sets every task's statistics to those of `model`, a trained autoencoder's file: what it tells of a task is part of
 * the model and is taken as it is, whatever files the task has now, so that a model can be used on other data of the
 * same PDE. UPS_ERR_STALE when those have other fields or grid axes. The frequencies of its decoder come with it
 * (task.finest_frequency), since they were chosen for the grid it was trained on.
 *
 * Tasks of which the file tells nothing, and all where `model` is NULL: mean and deviation of each field over the
 * training split (at most 512 samples, evenly spread), by the loader; a constant field keeps its values: deviation 1.
 * They are kept in `output`/normalisation.json with what they were measured on (files, samples, field_scale) and taken
 * from there while that is the same; where it differs the log says what, and they are measured anew. */
ups_status ups_tasks_normalise_as_trained(const ups_run_config *config, ups_tasks *tasks, const char *model,
                                          ups_error *error);

/* The same where the model has to tell all of them, and there are no files. */
ups_status ups_tasks_normalise_by_model(ups_tasks *tasks, const char *model, ups_error *error);

/* Where a task's files have other contents than those that the run has been trained on, as far as its
 * normalisation.json tells: UPS_ERR_STALE with `refuse`, else a warning. */
ups_status ups_tasks_check_data(const ups_run_config *config, const ups_tasks *tasks, bool refuse, ups_error *error);

/* Writes down there what the run is trained on from now on, for tasks whose statistics were not measured on it: they
 * came with a model, say. */
ups_status ups_tasks_record_data(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);

#endif
