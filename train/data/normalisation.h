/* Normalisation: mean and scale of every field of a task, measured once on the training split and from then on part of
 * what is trained on it. tasks.h declares ups_tasks_normalise, for runs that have trained nothing yet. */
#ifndef UPS_TRAIN_DATA_NORMALISATION_H
#define UPS_TRAIN_DATA_NORMALISATION_H

#include "train/data/tasks.h"

/* Sets every task's statistics to those of `model`, a trained autoencoder's file: what it tells of a task is part of
 * the model and is taken as it is, whatever files the task has now, so that a model can be used on other data of the
 * same PDE. UPS_ERR_STALE when those have other fields or grid axes. The frequencies of its decoder come with it
 * (task.finest_frequency), since they were chosen for the grid it was trained on. Tasks of which the file tells
 * nothing, and all where `model` is NULL, are normalised as ups_tasks_normalise does. */
ups_status ups_tasks_normalise_as_trained(const ups_run_config *config, ups_tasks *tasks, const char *model,
                                          ups_error *error);

/* The same where the model has to tell all of them, and there are no files. */
ups_status ups_tasks_normalise_by_model(ups_tasks *tasks, const char *model, ups_error *error);

/* UPS_ERR_STALE when a task's files have other contents than those that the run's normalisation.json was measured on.
 */
ups_status ups_tasks_check_data(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);

#endif
