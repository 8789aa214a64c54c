/* The model that a configuration begins with (`model.from`): a run's directory, or a file of `ups export`. Keys of the
 * section `model` that the configuration does not say are that model's; those that it says otherwise are mistakes, but
 * for what may change from one training to the next. */
#ifndef UPS_TRAIN_CONFIG_GIVEN_H
#define UPS_TRAIN_CONFIG_GIVEN_H

#include "base/config/mistakes.h"
#include "base/json.h"
#include "train/config/config.h"

#define UPS_TOLD_CONFIG "ups.config" /* the text of a model's file that tells its configuration (described.h) */

/* The file of `from` that holds what the stage has learnt. Free with free(); NULL when out of memory. */
char *ups_given_file(const char *from, ups_stage stage);

/* What the model tells of its configuration, {"model": …, "tasks": […]}: a new reference. UPS_ERR_IO, UPS_ERR_FORMAT.
 */
ups_status ups_given_read(const char *from, json_t **told, ups_error *error);
/* The patch of the model's task of that name along an axis, counted from 0; 0: it has no such task. */
int64_t ups_given_patch(const json_t *told, const char *task, unsigned axis);
/* tasks[].bundle of it; 0: it has no such task, or none of its own. */
int32_t ups_given_bundle(const json_t *told, const char *task);

/* Overrides "model.operator.hidden=64" for the keys that stand nowhere in the document: *count texts and their list,
 * freed with ups_given_free, on failure too. UPS_ERR_MEMORY. */
ups_status ups_given_inherit(const json_t *told, const ups_config_mistakes *mistakes, char ***assignments,
                             size_t *count, ups_error *error);
void ups_given_free(char **assignments, size_t count);

/* Adds what the configuration, whose section `model` is given as JSON, too, says otherwise than the model, and must
 * not; of keys that were inherited (`assignments`) nothing. */
void ups_given_check(const ups_run_config *config, const json_t *model, const json_t *told, char *const *assignments,
                     size_t count, ups_config_mistakes *mistakes);

#endif
