/* What a model belongs to, kept in the header of its file (safetensors metadata): an autoencoder to each task's
 * encoder, decoder and normalisation, an operator to the autoencoder whose latents it was trained on, to the order
 * of its tasks and to that of their PDE parameters. Tensors of another origin often have the very same shapes: they
 * load, run, and give wrong fields that look right. So whoever uses a model compares first.
 *
 * An origin is a JSON object of texts: {"advection1d.normalisation": "[[0.5,2.0]]", …}, {"autoencoder": XXH3, …}. */
#ifndef UPS_TRAIN_DATA_ORIGIN_H
#define UPS_TRAIN_DATA_ORIGIN_H

#include "base/json.h"
#include "train/data/tasks.h"

/* New references; NULL when out of memory. `tasks` are normalised. */
json_t *ups_origin_autoencoder(const ups_run_config *config, const ups_tasks *tasks);
/* The same without the tasks' grids: a trained autoencoder can be used on others, well where it has a fixed number of
 * tokens; of those of a grid ups_origin_is_of_another_grid warns. */
json_t *ups_origin_autoencoder_on_any_grid(const ups_run_config *config, const ups_tasks *tasks);
json_t *ups_origin_operator(const ups_run_config *config, const ups_tasks *tasks, const char *autoencoder_hash);

/* Whether the model in `path` is of the expected origin. What the file does not tell (it was made elsewhere, or before
 * a task or a key was added) is not compared. UPS_ERR_STALE names the part that differs. */
ups_status ups_origin_check(const char *path, const json_t *expected, ups_error *error);

/* Whether the tokens of the task's autoencoder in `path` are patches of another grid than the task has. A patch counts
 * points: of points that are nearer to each other it spans less, which neither its components nor the operator's steps
 * were learnt for, and predictions go wrong without a sign of it. Of points that are each sample's own, whether there
 * are more than were trained on. `words`: that, as a sentence. */
ups_status ups_origin_is_of_another_grid(const char *path, const ups_run_config *config, const ups_task *task,
                                         bool *other, char *words, size_t bytes, ups_error *error);

#endif
