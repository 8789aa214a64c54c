/* Loading a run's configuration: the tables of its keys, and what they cannot say (check.h). */
#ifndef UPS_TRAIN_CONFIG_LOAD_H
#define UPS_TRAIN_CONFIG_LOAD_H

#include "base/config/config.h"
#include "train/config/config.h"

extern const ups_config_schema ups_run_schema; /* keys.c */

/* "0.1", "10%", "first 10%", "last 0.1": a split's share, and where it lies; false: it is none. */
bool ups_run_read_share(const char *text, double *share, ups_test_place *place);

/* Loads and checks: base/config's checks, then what no single key can say (unique task names, heads that divide hidden,
 * …). `path` is a configuration, or the directory of a run, whose own one (DIR/config.yaml) is taken with `output:
 * DIR`. */
ups_status ups_run_config_load(const char *path, const char *const *overrides, size_t override_count,
                               ups_run_config **config, ups_error *error);

/* KEY='TEXT', an override of a key that is a text. Free with free(); NULL: no memory. */
char *ups_run_override(const char *key, const char *text);

/* Of a file that says all keys, such as a run owns: the model that model.from names is not looked at. */
ups_status ups_run_config_load_owned(const char *path, ups_run_config **config, ups_error *error);

/* Whether a configuration fits the model that model.from names. UPS_ERR_IO, UPS_ERR_FORMAT, UPS_ERR_CONFIG. */
ups_status ups_run_config_check_given(const ups_run_config *config, ups_error *error);

/* Of what a trained model tells (train/portable/described.h), YAML or JSON; `name` stands for the file in messages.
 * Keys are checked as those of a run are, but for what training alone wants of several. */
ups_status ups_run_config_load_model(const char *name, const char *text, ups_run_config **config, ups_error *error);

/* The same, with all mistakes instead of the first: ups_config_read, then the checks of several keys. *mistakes is the
 * caller's, on an error too (then it may be NULL). */
ups_status ups_run_config_read(const char *path, const char *const *overrides, size_t override_count,
                               ups_config_mistakes **mistakes, ups_run_config **config, ups_error *error);

void ups_run_config_free(ups_run_config *config);

#endif
