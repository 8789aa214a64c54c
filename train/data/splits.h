/* Splits: which of a task's samples are trained on, which validation looks at, and which are kept for evaluation.
 *
 * Where trajectories are cut into segments, those of one trajectory are in one split, in what follows as one sample; or
 * each trajectory is split by time, its last segments held out.
 *
 * Samples of a file are ordered at random, by a stream that is the task's name's and the file's own, and each split
 * gets its share of them; test samples may also be a file's first or last ones, or files of their own. A file's splits
 * do not depend on the files behind it, so a task that gets more files keeps what it had; but for segments, which
 * UPS_SPLIT_BY_AUTO splits by time only as long as trajectories are few.
 *
 * Files of one task often hold the same initial conditions under other parameters, in the same order. By index, sample
 * i of all files is in one split: an initial condition that was trained on is in no test. */
#ifndef UPS_TRAIN_DATA_SPLITS_H
#define UPS_TRAIN_DATA_SPLITS_H

#include "train/config/config.h"

typedef enum ups_split { UPS_SPLIT_TRAIN, UPS_SPLIT_VALIDATION, UPS_SPLIT_TEST, UPS_SPLIT_COUNT } ups_split;

const char *ups_split_name(ups_split split); /* "train", "validation", "test" */

typedef struct ups_sample_splits {
    int64_t *samples[UPS_SPLIT_COUNT]; /* indices into the source, ascending; freed by ups_sample_splits_free */
    int64_t count[UPS_SPLIT_COUNT];
} ups_sample_splits;

/* Splits the source's samples as `data` and the task say: all of its test files, and of the others those within its
 * max_samples. With UPS_SPLIT_BY_AUTO it is by time where fewer trajectories than there are splits are cut into
 * segments, by index where the task's files hold equally many samples and those that are compared (the first, the
 * middle and the last of each file) begin with the same field. UPS_ERR_CONFIG where by index was asked for and cannot
 * be. */
ups_status ups_split_samples(const ups_data_config *data, const ups_task_config *task, const ups_source *source,
                             ups_sample_splits *splits, ups_error *error);
void ups_sample_splits_free(ups_sample_splits *splits);

/* Which of the source's files holds a sample, or the first of its arrays. */
int64_t ups_sample_file(const ups_source *source, int64_t sample);

/* Whether sample i of all files of the source begins with the same field, as UPS_SPLIT_BY_AUTO finds out: false for one
 * file alone. */
ups_status ups_files_begin_alike(const ups_source *source, bool *alike, ups_error *error);

/* Warns where what is held out says little: nothing is, though data->split asks for it; or test samples begin with the
 * same field as samples that are trained on. Of large tasks an even selection of samples is compared. */
ups_status ups_splits_compare(const ups_data_config *data, const ups_task_config *task, const ups_source *source,
                              const ups_sample_splits *splits, ups_error *error);

#endif
