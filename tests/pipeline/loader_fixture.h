/* What the tests of the loader share: sources whose every byte is known, and checks of every value handed out. */
#ifndef UPS_TESTS_LOADER_FIXTURE_H
#define UPS_TESTS_LOADER_FIXTURE_H

#include "pipeline/loader/loader.h"
#include "plain_source.h"

extern const plain_options ordinary;   /* 13 float32 trajectories of 11 frames, in two files */
extern const ups_loader_options pairs; /* ten batches of eight pairs */

/* Set-up and tear-down of a test program: the directory that `ordinary` writes into. */
int make_directory(void **state);
int remove_directory(void **state);

ups_loader *open_tasks(const ups_loader_options *options, const ups_loader_task *tasks, int32_t count);
ups_loader *open_one(const ups_loader_options *options, const ups_source *source);
ups_loader *open_kept(const ups_loader_options *options, const ups_source *source, ups_store *store);
const ups_batch *next(ups_loader *loader); /* fails the test when it is an error */

/* Every element of every window is that of the sample and frame the window names. */
void check_batch(const ups_batch *batch, int64_t stride);

/* Opens, checks every batch and what is said of it, closes. */
void check_run(const ups_loader_options *options, const ups_source *source, const plain_options *plain);
/* The same from a loader that is open, which stays open; returns its statistics. */
ups_loader_statistics check_batches(ups_loader *loader, const ups_loader_options *options, const plain_options *plain);

/* Writes (sample, start) of every window of a run into `order`, at its place among the windows of all ranks; returns
 * how many there were. */
int64_t record_order(ups_loader_options options, const ups_source *source, int64_t (*order)[2]);

/* Runs to the failure, which must be `expected` and stay; returns how many batches came before it. */
int64_t run_to_failure(ups_loader *loader, ups_status expected, ups_error *error);

#endif
